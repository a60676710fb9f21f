"""Whether one translation is better than another, or just luckier."""

from pathlib import Path
from typing import Any

import numpy as np
from sacrebleu import significance
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Counts, Data, Rows, portable
from translator.files import Refused
from translator.model_folder import read_translator
from translator.search import Search
from translator.settings import Count
from translator.sources import MULTI30K_FILES, load_pairs

ALLOWED = ("val", "test_2016_flickr")


def interval(scores: np.ndarray) -> list[float]:
    """The lowest and highest of the middle 95% of resampled scores, cut off as sacreBLEU does."""
    ordered, cut = np.sort(scores), len(scores) // 40
    return [round(float(ordered[i]), 2) for i in (cut, len(scores) - 1 - cut)]


def paired(metric: Metric, a: list[str], b: list[str], samples: int) -> dict[str, Any]:
    """Scores of two translations a and b of the same sentences, b - a, their intervals, and p."""
    test = significance.PairedTest(
        [("a", a), ("b", b)], {"it": metric}, None, test_type="bs", n_samples=samples
    )
    signatures, found = test()
    (name,) = signatures
    scores = []
    for side in (a, b):  # drawn again from the same seed: the same samples as in the test
        statistics = metric._extract_corpus_statistics(side, None)
        resampled = significance._bootstrap_resample(statistics, metric, samples)[1]
        scores.append(np.array([score.score for score in resampled]))
    one, two = (result.score for result in found[name])
    differences = scores[1] - scores[0]
    row = {"scores": [one, two], "intervals": [interval(side) for side in scores]}
    row |= {"difference": two - one, "difference_interval": interval(differences)}
    row |= {"signature": str(signatures[name])}
    # without a difference, sacreBLEU's p would be its smallest
    return row | {"p": found[name][1].p_value if differences.any() else None}


def compare(
    references: list[str], a: list[str], b: list[str], samples: int = 1000
) -> dict[str, Any]:
    """BLEU of two translations with what `paired` finds; and under `chrf` the same for chrF."""
    row, chrf = (paired(kind(references=[references]), a, b, samples) for kind in (BLEU, CHRF))
    pairs = zip("ab", row.pop("scores"), row.pop("intervals"), strict=True)
    sides = {side: {"bleu": score, "interval": reach} for side, score, reach in pairs}
    return sides | row | {"chrf": chrf}


def benchmark(
    model_a: Path, model_b: Path, *, data: Data, split: str, beam: Counts = (1,),
    alpha: tuple[float, ...] = (tat.ALPHA,), samples: Count = 1000, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Whether one translation is better than another or just luckier:
    paired bootstrap resampling of BLEU (Koehn, 2004).

    Two models translate a split, or one model (named twice) does so with two searches. Again and
    again, sacreBLEU then draws as many sentences as the split has, with replacement, and scores
    both translations of them. The row holds the BLEU of each with its 95% interval, and the
    difference B - A with its own (both translate the same sentences, so it is narrower than the
    other two suggest). It also holds sacreBLEU's two-sided p: how often the choice of sentences
    alone would make a difference at least this large (null if all scores are equal). Under `chrf`
    it has the same for chrF. None of this accounts for the seed of the training.

    Of Multi30k it accepts only val and test_2016_flickr: the other test sets are scored only once,
    elsewhere.

    Args:
        model_a: the folder of a run or a model
        model_b: another one, or the same
        split: the name of the split
        beam: for both models, or one for each
        alpha: for both models, or one for each
        samples: how often sentences are drawn
    """
    multi30k = {name.partition(".")[0] for name in MULTI30K_FILES} - {"train"}
    # a name of Multi30k's is refused even if a folder holds it
    if split not in ALLOWED and (data == "multi30k" or split in multi30k):
        raise Refused(f"of multi30k only {' and '.join(ALLOWED)} are compared here, not {split}")
    if max(len(beam), len(alpha)) > 2:
        raise Refused("--beam and --alpha take one value for both models or one for each")
    translators = [read_translator(model) for model in (model_a, model_b)]
    if translators[0].languages != translators[1].languages:
        raise Refused("the two models translate between different languages")
    pairs = load_pairs(data, split, *translators[0].languages)
    sources, references = map(list, zip(*pairs, strict=True))
    searches = [
        Search(model, beam[i % len(beam)], alpha[i % len(alpha)])
        for i, model in enumerate(translators)
    ]
    row = {"data": portable(data), "split": split, "sentences": len(sources)}
    row |= {"direction": "-".join(translators[0].languages), "samples": samples}
    row |= compare(references, *(search.translate(sources) for search in searches), samples)
    for side, model, search in zip("ab", (model_a, model_b), searches, strict=True):
        row[side] = {"model": model.name, "search": search.name} | row[side]
        score = f"BLEU {row[side]['bleu']:.2f}, 95% {row[side]['interval']}"
        print(f"{model.name}, {search.name}: {score}")
    print(f"difference {row['difference']:+.2f}, 95% {row['difference_interval']}, p = {row['p']}")
    rows.add(row)
