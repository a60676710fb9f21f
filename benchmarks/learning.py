"""One sentence while the document's model learns: its translation, and a map of the attention.

python -m benchmarks learning            # five minutes on two cores
"""

import functools
import itertools
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Counts, Rows, Runs
from translator.files import write_atomically
from translator.processes import choose_device

LAYER = 2  # whose cross-attention is kept; the first is number 0
RIGHT = "Two women are sitting on a bench while a man reads a newspaper."


def benchmark(
    *, updates: Counts = (85, 170, 850), runs: Runs = Path("runs"), rows: Rows = RESULTS
) -> None:
    """Train the document's live model and look at it after these numbers of updates.

    The row holds, for each of them, the translation of the sentence of Part 1, and the
    cross-attention of the third layer (mean of the heads) while the model reads one and the same
    translation. Weights that a run has kept are not trained again.
    """
    device, folder, stages = choose_device(), runs / "learning", []
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(tat.LIVE.seed)
    tokenizer = tat.learn_bpe(tat.load_split("train"), tat.LIVE.bpe)
    model = tat.LIVE.make_model(len(tokenizer)).to(device)
    kept = {update: folder / f"{update:05}.pt" for update in sorted(updates)}
    if not all(path.exists() for path in kept.values()):
        train(model, tokenizer, kept)
    for update, path in kept.items():
        weights = torch.load(path, map_location=device)["weights"]
        model.load_state_dict(weights, strict=False)  # tied: under one name
        stages.append({"updates": update} | look(tat.Translator(model, tokenizer)))
        print(f"{update:,} updates: {stages[-1]['translation']}", flush=True)
    row = {"seed": tat.LIVE.seed, "sentence": tat.SENTENCE, "layer": LAYER + 1}
    rows.add(row | {"stages": stages}, device)


def train(model: tat.Transformer, tokenizer: tat.Tokenizer, kept: dict[int, Path]) -> None:
    """As `train_tiny` does, to the last of these updates, with the weights kept after each."""
    pairs, trainer = tat.to_pairs(tokenizer, tat.load_split("train")), tat.Trainer(model, tat.LIVE)
    budget = tat.LIVE.tokens_per_batch
    epochs = (tat.token_batches(pairs, budget, epoch) for epoch in itertools.count())
    batches = itertools.islice(itertools.chain.from_iterable(epochs), max(kept))
    for batch in tqdm(batches, "training", total=max(kept)):
        trainer.update(batch)
        if trainer.step in kept:
            weights = {name: p.detach().clone() for name, p in model.named_parameters()}
            held = {"update": trainer.step, "weights": weights}
            write_atomically(kept[trainer.step], functools.partial(torch.save, held))


@torch.inference_mode()
def look(translator: tat.Translator) -> dict[str, Any]:
    """The translation of the sentence, and the weights while a right translation is read."""
    model, tokenizer, _ = translator
    model.eval()
    device = next(model.parameters()).device
    src = torch.tensor([[*tokenizer.encode(tat.SENTENCE, "de"), tat.EOS]], device=device)
    ids = [tat.BOS, *tokenizer.encode(RIGHT, "en"), tat.EOS]
    tgt = torch.tensor([ids[:-1]], device=device)
    with tat.recording(model) as weights:
        model(src, tgt, tat.source_mask(src), tat.target_mask(tgt))
    mean = weights[model.decoder.layers[LAYER].src_attn][0].mean(0)  # (T, S)
    steps = itertools.pairwise(tokenizer.tokens(ids))
    return {
        "translation": tat.translate_lines(translator, tat.SENTENCE),
        "source": tokenizer.tokens(src[0].tolist()),
        "steps": [f"{reads} → {predicts}" for reads, predicts in steps],
        "weights": [[round(weight, 3) for weight in row] for row in mean.tolist()],
    }
