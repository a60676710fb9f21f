"""How far to trust a probability: calibration on a split.

Rows up to commit 2a83660 also have contrast pairs of captions, which differ in one word that
matters.
"""

import math
from pathlib import Path
from typing import Any

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Data, Rows, Sentences, portable
from translator.confidence import judged
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.search import Search
from translator.sources import load_pairs

MODELS = Path("models/multi30k-de-en"), Path("models/multi30k-en-de")
GOOD = 60.0  # chrF of a sentence from which on it counts as right
EDGES = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # of probabilities


def in_bins(answers: list[tuple[float, bool]]) -> list[dict[str, Any]]:
    """Probabilities and whether each was right, in bins: mean probability, share right, number."""
    bins = []
    for low, high in zip(EDGES, EDGES[1:], strict=False):
        in_bin = [answer for answer in answers if low <= answer[0] < high or answer[0] == high == 1]
        if in_bin:
            mean, share = (sum(values) / len(in_bin) for values in zip(*in_bin, strict=True))
            row = {"from": low, "to": high, "mean": round(mean, 4)}
            bins.append(row | {"right": round(share, 4), "count": len(in_bin)})
    return bins


def words(tokens: list[str], log_probs: list[float]) -> list[tuple[str, float]]:
    """The words that tokens spell, each with the probability of all its tokens."""
    spelt: list[tuple[str, float]] = []
    for token, value in zip(tokens, log_probs, strict=True):
        if token == "</s>":
            continue
        if token.startswith("▁") or not spelt or not token.isalnum() or not spelt[-1][0].isalnum():
            spelt.append((token.removeprefix("▁"), value))
        else:
            spelt[-1] = spelt[-1][0] + token, spelt[-1][1] + value
    return [(word, math.exp(value)) for word, value in spelt]


def calibration(translator: tat.Translator, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """By confidence: how many translations of a split are right, and how many of their words."""
    # A word is right if the reference has it.
    from sacrebleu.metrics import CHRF

    sentences, tokens = [], []
    chrf = CHRF()
    sources, references = map(list, zip(*pairs, strict=True))
    translations = judged(Search(translator, tat.BEAM), sources, print)
    for result, reference in zip(translations, references, strict=True):
        score = chrf.sentence_score(result["translation"], [reference]).score
        sentences.append((math.exp(result["mean_log_prob"]), score >= GOOD))
        words_of_reference = set(reference.lower().replace(".", " ").replace(",", " ").split())
        spelt = words(result["tokens"], result["log_probs"])
        tokens += [(p, word.lower() in words_of_reference) for word, p in spelt if word.isalpha()]
    return {"chrf": GOOD, "sentences": in_bins(sentences), "words": in_bins(tokens)}


def benchmark(
    *models: Path, data: Data = "multi30k", split: str = "val", sentences: Sentences = None,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Say how often a model is right when it says that it is sure.

    A sentence's confidence is the geometric mean of its tokens' probabilities; it counts as right
    from a chrF of 60 on. A word's is the product over its tokens; it counts as right if the
    reference has it anywhere. Translations are those of the document's beam.

    Args:
        models: by default the shipped ones of both directions
        split: the name of the split
    """
    for folder in models or MODELS:
        translator = read_translator(folder)
        model_key = {"model": folder.name, "data": portable(data)}
        model_key |= {"split": split, "sentences": sentences}
        if rows.saved(model_key):
            continue
        bins_by_kind = calibration(
            translator, load_pairs(data, split, *translator.languages)[:sentences]
        )
        row = model_key | {"search": f"beam {tat.BEAM}, alpha {tat.ALPHA}"}
        rows.add(row | {"calibration": bins_by_kind}, choose_device())
        print(folder.name)
        for kind in ("sentences", "words"):
            for row_of_bin in bins_by_kind[kind]:
                print(
                    "  {} {from:.1f} to {to:.1f}: right {right:.0%} of {count:,}".format(
                        kind, **row_of_bin
                    )
                )
