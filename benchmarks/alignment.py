"""How well cross-attention finds which word translates which."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.shared import RESULTS, Changes, Rows, Runs, Seeds
from translator.__main__ import train
from translator.captions import CAPTION_SPLITS, Caption, Links, caption_corpus, token_links
from translator.files import Refused
from translator.model_folder import read_translator
from translator.plan import MEASURED
from translator.settings import Count, Limits

RECIPE = {"tokens_per_batch": 1500}  # smaller batches than the preset's, because the run is short


def cross_attention(translator: tat.Translator, sentence: str, target: list[int]) -> Tensor:
    """The cross-attention of one pass over a sentence and a given translation, before dropout.

    It is (N, h, T + 1, S + 1) for a sentence of S tokens. target (T ids) comes without BOS and EOS.
    Row t reads token t - 1 of the target, or BOS, and predicts token t, or EOS; the last column is
    the source's EOS.
    """
    given = torch.tensor([[tat.BOS, *target, tat.EOS]])
    return tat.attention_maps(translator, sentence, lambda *_: given).maps["cross"]


def largest_links(weights: Tensor) -> Links:
    """weights (T, S + 1) to one link per target token; none if the last column, EOS, is largest."""
    return {(i, j) for j, i in enumerate(weights.argmax(-1).tolist()) if i < weights.size(1) - 1}


def rates(hits: float, found: float, true: float) -> dict[str, float]:
    """AER, precision and recall from |A & S|, |A| and |S|."""
    aer, precision = 1 - 2 * hits / (found + true), hits / found if found else 0.0
    figures = {"aer": aer, "precision": precision, "recall": hits / true}
    return {name: round(figure, 4) for name, figure in figures.items()}


def score(found: Iterable[Links], true: Iterable[Links]) -> dict[str, float]:
    """AER, precision and recall of the links of all sentences together."""
    counts = [(len(a & s), len(a), len(s)) for a, s in zip(found, true, strict=True)]
    return rates(*map(sum, zip(*counts, strict=True)))


def baselines(sizes: list[tuple[int, int]], true: list[Links]) -> dict[str, dict[str, float]]:
    """Scores without a model, for sentences of these sizes (S, T) without BOS and EOS."""
    diagonal = [{(int((j + 0.5) * S / T), j) for j in range(T)} for S, T in sizes]
    chance = sum(len(s) / (S + 1) for s, (S, _) in zip(true, sizes, strict=True))
    found = sum(T * S / (S + 1) for S, T in sizes)
    linked, total = sum(len({j for _, j in s}) for s in true), sum(map(len, true))
    scores = {"diagonal": score(diagonal, true), "random": rates(chance, found, total)}
    # at best, one link for each target token that has any
    return scores | {"best": rates(linked, linked, total)}


def measure(translator: tat.Translator, captions: list[Caption]) -> dict[str, Any]:
    """Scores of each head and of the means over heads, in both conventions, and the baselines.

    Layers and heads count from 1.
    """
    true, sizes, found = [], [], {}
    for caption in captions:
        source, target = map(translator.tokenizer.encode, caption[:2], translator.languages)
        true.append(token_links(caption, *map(translator.tokenizer.tokens, (source, target))))
        sizes.append((len(source), len(target)))
        weights = cross_attention(translator, caption.de, target)  # (N, h, T + 1, S + 1)
        for convention, rows in (("reads", weights[:, :, 1:]), ("predicts", weights[:, :, :-1])):
            kinds = {("mean", "mean"): rows.mean((0, 1))}
            for n, layer in enumerate(rows, 1):
                kinds |= {(n, "mean"): layer.mean(0)}
                kinds |= {(n, i): head for i, head in enumerate(layer, 1)}
            for (n, i), part in kinds.items():
                found.setdefault((n, i, convention), []).append(largest_links(part))
    heads = []
    for (n, i, convention), links in found.items():
        heads.append({"layer": n, "head": i, "convention": convention} | score(links, true))
    counts = {"sentences": len(captions), "target_symbols": sum(T for _, T in sizes)}
    counts |= {"links": sum(map(len, true))}
    return counts | {"baselines": baselines(sizes, true), "heads": heads}


def benchmark(
    *, steps: Count = 600, seeds: Seeds = (0, 1, 2), runs: Runs = Path("runs"),
    sentences: Count = 500, changes: Changes = None, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Alignment error rates of cross-attention on captions,
    where it is known which word translates which.

    For each seed a model is trained on `captions`. Then it reads the first sentences of the split
    `val` with their reference translations, and each target token is linked to the source token
    with the largest cross-attention weight. This is done for each head, for the mean over the heads
    of a layer, and for the mean over all layers and heads. A decoder row reads one token and
    predicts the next, so there are two conventions. With `reads`, a token's weights are those of
    the row that reads it; with `predicts`, those of the row before, which predicts it.

    The true links come from the grammar, are all sure, and hold between tokens: a word's pieces
    inherit its links, and full stops and commas count like words. BOS and EOS have no links. The
    target's EOS is left out; a target token whose largest weight is on the source's EOS has no
    link. The error rate is that of Och and Ney (2003), AER = 1 - 2|A & S| / (|A| + |S|), for all
    sentences together; precision is |A & S| / |A|, recall |A & S| / |S|. There are three baselines:
    the diagonal, a random source token (EOS included; expected counts), and the best that one link
    per token can reach, because some tokens have several.

    Args:
        steps: updates of the training
        sentences: of the split val, which has 500
    """
    if "seed" in (changes or {}):
        raise Refused("--seeds names the seeds")
    captions = caption_corpus()[CAPTION_SPLITS["val"]][:sentences]
    for seed in seeds:
        recipe = RECIPE | (changes or {}) | {"seed": seed}
        # as in rows of earlier commits
        texts = {name: str(value) for name, value in recipe.items()}
        about = {"preset": "tiny", "data": "captions", "set": texts, "steps": steps}
        if rows.saved(about | {"sentences": len(captions)}):
            continue
        name = "-".join(f"{key}-{value}" for key, value in sorted(texts.items()))
        run = runs / "alignment" / f"steps-{steps}-{name}"
        limits = Limits(steps=steps, checkpoint_every=10**9)
        train(data="captions", run=run, preset="tiny", limits=limits, changes=MEASURED | recipe)
        translator = read_translator(run)
        row = about | quality.describe(run, translator)
        row |= quality.scores(translator, "captions") | measure(translator, captions)
        rows.add(row)
        print(f"seed {seed}: BLEU {row['bleu']:.2f} on val")
        for kind, found in row["baselines"].items():
            print(f"  {kind:<32} AER {found['aer']:.3f}")
        for found in sorted(row["heads"], key=lambda found: found["aer"]):
            head = f"layer {found['layer']}, head {found['head']}, {found['convention']:<10}"
            print(f"  {head}\tAER {found['aer']:.3f}")
