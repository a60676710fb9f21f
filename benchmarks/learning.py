"""What the document's model makes of one sentence while it learns: its translation, and a map of its attention.

python -m benchmarks learning            # an hour on one core; a run that was interrupted goes on
"""

import itertools
import os
import time
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Counts, Rows, Runs
from translator.processes import choose_device

EVERY = 100  # updates from one checkpoint to the next
LAYER = 2  # whose cross-attention is kept; the first is number 0


def benchmark(*, updates: Counts = (170, 850, 5000), runs: Runs = Path("runs"), rows: Rows = RESULTS) -> None:
    """Train the document's live model and look at it after these numbers of updates.

    The row holds, for each of them, the validation loss, the translation of the sentence of Part 1, and the cross-attention
    of the third layer (mean of the heads) while the model reads the translation that the last of them makes.
    """
    device, folder = choose_device(), runs / "learning"
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(tat.LIVE.seed)
    tokenizer = tat.learn_bpe(tat.load_split("train"), tat.LIVE.bpe)
    model = tat.LIVE.make_model(len(tokenizer)).to(device)
    minutes = train(model, tokenizer, sorted(updates), folder)
    stages = []
    for update in sorted(updates, reverse=True):  # what the last one writes, all of them read
        model.load_state_dict(torch.load(folder / f"{update}.pt", map_location=device))
        stages.append(look(tat.Translator(model, tokenizer), stages[0]["ids"] if stages else None))
        stages[-1] |= {"updates": update, "minutes": minutes[update]}
        print(f"{update:,} updates: {stages[-1]['translation']}", flush=True)
    stages.reverse()
    rows.add({"seed": tat.LIVE.seed, "sentence": tat.SENTENCE, "layer": LAYER + 1, "stages": stages}, device)


def train(model: tat.Transformer, tokenizer: tat.Tokenizer, updates: list[int], folder: Path) -> dict[int, float]:
    """As `train_tiny` does, to the last of these updates, with the weights kept after each; returns their minutes."""
    pairs = tat.to_pairs(tokenizer, tat.load_split("train"))
    trainer, kept, minutes = tat.Trainer(model, tat.LIVE), folder / "last.pt", {}
    before = 0.0
    if kept.exists():
        state = torch.load(kept, map_location=next(model.parameters()).device)
        model.load_state_dict(state["model"])
        trainer.optimizer.load_state_dict(state["optimizer"])
        trainer.step, minutes, before = state["step"], state["minutes"], state["minutes"]["last"]
    epochs = (tat.token_batches(pairs, tat.LIVE.tokens_per_batch, epoch) for epoch in itertools.count())
    batches = itertools.islice(itertools.chain.from_iterable(epochs), trainer.step, updates[-1])
    start = time.monotonic()
    for batch in tqdm(batches, "training", initial=trainer.step, total=updates[-1]):
        trainer.update(batch)
        minutes["last"] = before + (time.monotonic() - start) / 60
        if trainer.step in updates:
            torch.save(model.state_dict(), folder / f"{trainer.step}.pt")
            minutes[trainer.step] = round(minutes["last"], 2)
        if trainer.step % EVERY == 0 or trainer.step in updates:
            state = {"model": model.state_dict(), "optimizer": trainer.optimizer.state_dict()}
            torch.save(state | {"step": trainer.step, "minutes": minutes}, f"{kept}.part")
            os.replace(f"{kept}.part", kept)  # whole, or the one before
    return minutes


@torch.inference_mode()
def look(translator: tat.Translator, ids: list[int] | None) -> dict[str, Any]:
    """The loss on `val`, the translation of the sentence, and the weights while these ids are read (None: its own)."""
    model, tokenizer, _ = translator
    model.eval()
    device = next(model.parameters()).device
    src = torch.tensor([[*tokenizer.encode(tat.SENTENCE, "de"), tat.EOS]], device=device)
    own = tat.greedy_decode(model, src, tat.source_mask(src), src.size(1) + 50)[0].tolist()
    ids = own if ids is None else ids
    tgt = torch.tensor([ids[:-1]], device=device)
    with tat.recording(model) as weights:
        model(src, tgt, tat.source_mask(src), tat.target_mask(tgt))
    mean = weights[model.decoder.layers[LAYER].src_attn][0].mean(0)  # (T, S)
    tokens = tokenizer.tokens(ids)
    return {
        "loss": round(tat.validation_loss(model, tat.to_pairs(tokenizer, tat.load_split("val"))), 2),
        "translation": tokenizer.decode(own), "ids": ids, "source": tokenizer.tokens(src[0].tolist()),
        "steps": [f"{reads} → {predicts}" for reads, predicts in itertools.pairwise(tokens)],
        "weights": [[round(weight, 3) for weight in row] for row in mean.tolist()],
    }  # fmt: skip
