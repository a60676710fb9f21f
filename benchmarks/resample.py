"""How sure a difference between the means of several seeds is, from translations that were kept: nothing is trained."""

import gzip
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from benchmarks.bootstrap import interval
from benchmarks.shared import RESULTS, Data, Rows, portable
from translator.files import Refused, refusing
from translator.settings import Count
from translator.sources import load_pairs


def resampled(
    references: list[str], sides: list[list[list[str]]], samples: int = 1000, seed: int = 0
) -> dict[str, Any]:
    """BLEU of each seed of two sides, and how their means differ when the sentences, or sentences and seeds, are drawn anew.

    A sample has the same sentences for all. Where seeds are drawn, each side draws as many as it has, with replacement, and
    their deviations from the side's mean are stretched by sqrt(n / (n - 1)), because n seeds scatter less about their own
    mean than about the true one.
    """
    metric, draw = BLEU(references=[references]), np.random.default_rng(seed)
    counts = draw.multinomial(len(references), [1 / len(references)] * len(references), samples)
    whole, drawn = [], []
    for side in sides:
        statistics = [np.array(metric._extract_corpus_statistics(lines, None)) for lines in side]
        score = lambda sums: metric._compute_score_from_stats(sums.tolist()).score  # noqa: E731
        whole.append(np.array([score(found.sum(0)) for found in statistics]))
        drawn.append(np.array([[score(sums) for sums in counts @ found] for found in statistics]))  # (seeds, samples)
    both = []
    for scores in drawn:
        n, mean = len(scores), scores.mean(0)
        chosen = scores[draw.integers(n, size=(n, samples)), np.arange(samples)].mean(0)
        both.append(mean + (chosen - mean) * (n / max(1, n - 1)) ** 0.5)
    sentences = drawn[1].mean(0) - drawn[0].mean(0)
    found = {"bleu": [scores.round(2).tolist() for scores in whole]}
    found |= {"difference": float(whole[1].mean() - whole[0].mean()), "sentences_sd": float(sentences.std(ddof=1))}
    found |= {"sentences_interval": interval(sentences), "interval": interval(both[1] - both[0])}
    return found | {"signature": str(metric.get_signature())}


def unpacked(file: Path) -> list[str]:
    """The lines of a file of translations, which only a line feed ends; Refused if it is none."""
    with refusing(f"{file}: no file of translations", OSError, EOFError, ValueError):
        return gzip.decompress(file.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")


def benchmark(
    *, a: tuple[Path, ...], b: tuple[Path, ...], data: Data = "multi30k", split: str = "val", src: str = "de", tgt: str = "en",
    samples: Count = 1000, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Compare the means of two groups of translations, such as three seeds of each of two recipes, by bootstrap resampling.

    The row holds the BLEU of each seed, the difference B - A of the means, and two 95% intervals of it: one for other
    sentences, and one for other sentences and other seeds together.

    Args:
        a: files of benchmarks/results/translations, one for each seed
        b: others
        split: the split that they translate
        src: the language that was read
        tgt: the language that was written
        samples: how often sentences, and seeds, are drawn
    """
    references = [pair[1] for pair in load_pairs(data, split, src, tgt)]
    sides = [[unpacked(file) for file in side] for side in (a, b)]
    if not all(sides) or {len(lines) for side in sides for lines in side} != {len(references)}:
        raise Refused(f"{split} has {len(references)} sentences, and some file hasn't")
    row = {"data": portable(data), "split": split, "a": [file.name for file in a], "b": [file.name for file in b]}
    row |= {"samples": samples} | resampled(references, sides, samples)
    rows.add(row)
    print(f"difference {row['difference']:+.2f}, 95% {row['interval']} (sentences alone {row['sentences_interval']})")
