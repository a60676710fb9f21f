"""How sure a difference of means of several seeds is, from kept translations, without training."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

from benchmarks.shared import RESULTS, Data, Rows, portable
from translator.files import Refused, refusing
from translator.settings import Count
from translator.sources import load_pairs

MEASURES = {  # the metric, and what counts of its score
    "bleu": (BLEU, lambda result: result.score),
    # before the brevity penalty
    "without length": (BLEU, lambda result: result.score / (result.bp or 1)),
    "chrf": (CHRF, lambda result: result.score),
}


def interval(scores: np.ndarray) -> list[float]:
    """The lowest and highest of the middle 95% of resampled scores, cut off as sacreBLEU does."""
    ordered = np.sort(scores)
    left_out = len(scores) // 40
    return [round(float(ordered[i]), 2) for i in (left_out, len(scores) - 1 - left_out)]


def seeds_error(sides: list[np.ndarray]) -> tuple[float, float]:
    """Standard error and degrees of freedom of a difference of two means of seeds (Welch, 1947)."""
    errors = [(float(np.var(scores, ddof=1)) / len(scores), len(scores) - 1) for scores in sides]
    total = sum(error for error, _ in errors)
    squares = sum(error**2 / freedom for error, freedom in errors)
    return total**0.5, total**2 / squares if total else 1.0


def resampled(
    references: list[str], sides: list[list[list[str]]], samples: int = 1000, seed: int = 0
) -> dict[str, dict[str, Any]]:
    """By measure, the score of each seed of two sides, and how the difference of means varies.

    `sentences_interval` is for other sentences: a sample has the same ones for all. For `interval`,
    each sample's difference moves besides by what other seeds would change, a draw from Student's
    distribution; of a side with one seed nobody knows that, so there it's null.
    """
    draw = np.random.default_rng(seed)
    counts = draw.multinomial(len(references), [1 / len(references)] * len(references), samples)
    rows = {}
    for measure, (kind, value) in MEASURES.items():
        metric = kind(references=[references])
        scores_by_side, drawn = [], []
        extract = metric._extract_corpus_statistics

        def score(sums: np.ndarray, metric: Metric = metric, value: Callable = value) -> float:
            return value(metric._compute_score_from_stats(sums.tolist()))

        for side in sides:
            statistics = [np.array(extract(lines, None)) for lines in side]
            scores_by_side.append(
                np.array([score(counts_by_sentence.sum(0)) for counts_by_sentence in statistics])
            )
            scores = [
                [score(sums) for sums in counts @ counts_by_sentence]
                for counts_by_sentence in statistics
            ]
            drawn.append(np.mean(scores, axis=0))
        sentences = drawn[1] - drawn[0]
        wider = None
        if min(map(len, sides)) > 1:
            error, freedom = seeds_error(scores_by_side)
            wider = interval(sentences + error * draw.standard_t(freedom, samples))
        rows[measure] = {"scores": [scores.round(2).tolist() for scores in scores_by_side]}
        rows[measure] |= {"difference": float(scores_by_side[1].mean() - scores_by_side[0].mean())}
        rows[measure] |= {"sentences_interval": interval(sentences), "interval": wider}
        rows[measure] |= {"signature": str(metric.get_signature())}
    return rows


def unpacked(file: Path) -> list[str]:
    """The lines of a file of translations, which only a line feed ends; Refused if it is none."""
    with refusing(f"{file}: no file of translations", OSError, EOFError, ValueError):
        return gzip.decompress(file.read_bytes()).decode("utf-8").removesuffix("\n").split("\n")


def benchmark(
    *, a: tuple[Path, ...], b: tuple[Path, ...], data: Data = "multi30k", split: str = "val",
    src: str = "de", tgt: str = "en", samples: Count = 1000, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Compare the means of two groups of translations,
    such as three seeds of each of two recipes, by bootstrap resampling.

    For BLEU, BLEU before its brevity penalty and chrF, the row holds the score of each seed, the
    difference B - A of the means, and two 95% intervals of it: one for other sentences, and one for
    other sentences and other seeds together.

    Args:
        a: files of benchmarks/results/translations, one for each seed
        b: others
        split: the split that they translate
        src: the language that was read
        tgt: the language that was written
        samples: how often sentences are drawn
    """
    references = [pair[1] for pair in load_pairs(data, split, src, tgt)]
    sides = [[unpacked(file) for file in side] for side in (a, b)]
    if not all(sides) or {len(lines) for side in sides for lines in side} != {len(references)}:
        raise Refused(f"{split} has {len(references)} sentences, and some file hasn't")
    row = {"data": portable(data), "split": split}
    row |= {"a": [file.name for file in a], "b": [file.name for file in b]}
    row |= {"direction": f"{src}-{tgt}", "samples": samples} | resampled(references, sides, samples)
    rows.add(row)
    for measure in MEASURES:
        figures = row[measure]
        print(
            f"{measure}: difference {figures['difference']:+.2f}, 95% {figures['interval']} "
            f"(sentences alone {figures['sentences_interval']})"
        )
