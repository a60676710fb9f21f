"""Whether one translation is better than another or just luckier: paired bootstrap resampling of BLEU (Koehn, 2004).

    python benchmarks/bootstrap.py MODEL_A MODEL_B --data SOURCE --split NAME [--beam 1 [5]] [--alpha A [A]] [--samples N]
        [--out FILE.jsonl]

Two models translate a split, or one model (named twice) does so with two searches: a second value of --beam or --alpha is
for the second model. Again and again, sacreBLEU then draws as many sentences as the split has, with replacement, and scores
both translations of them. The row holds the BLEU of each with its 95 % interval, and the difference B - A with its own (both
translate the same sentences, so it is narrower than the other two suggest). It also holds sacreBLEU's two-sided p: how often
the choice of sentences alone would make a difference at least this large (null if all scores are equal). None of this
accounts for the seed of the training.

Of Multi30k it accepts only val and test_2016_flickr: the other test sets are scored only once, elsewhere.
"""

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from sacrebleu import significance
from sacrebleu.metrics import BLEU

import the_annotated_transformer as tat
from benchmarks.rows import RESULTS, append, origin, portable
from translator.decoding import make_search, translate_lines
from translator.sources import MULTI30K_FILES, load_pairs
from translator.weights import load_translator

ALLOWED = ("val", "test_2016_flickr")


def check_split(data: str, split: str) -> None:
    """Raises ValueError for a split of Multi30k that must not be looked at, even if a folder holds it."""
    multi30k = {name.partition(".")[0] for name in MULTI30K_FILES} - {"train"}
    if split not in ALLOWED and (data == "multi30k" or split in multi30k):
        raise ValueError(f"of multi30k only {' and '.join(ALLOWED)} are compared here, not {split}")


def interval(scores: np.ndarray) -> list[float]:
    """The lowest and highest of the middle 95 % of the resampled scores, cut off as sacreBLEU does."""
    ordered, cut = np.sort(scores), len(scores) // 40
    return [round(float(ordered[i]), 2) for i in (cut, len(scores) - 1 - cut)]


def compare(references: list[str], a: list[str], b: list[str], samples: int = 1000) -> dict[str, Any]:
    """BLEU of two translations a and b of the same sentences, the difference b - a, their intervals, and p."""
    metric = BLEU(references=[references])
    test = significance.PairedTest([("a", a), ("b", b)], {"BLEU": metric}, None, test_type="bs", n_samples=samples)
    signatures, found = test()
    scores = []
    for side in (a, b):  # drawn again from the same seed: the same samples as in the test
        statistics = metric._extract_corpus_statistics(side, None)
        resampled = significance._bootstrap_resample(statistics, metric, samples)[1]
        scores.append(np.array([score.score for score in resampled]))
    sides = [{"bleu": result.score, "interval": interval(s)} for result, s in zip(found["BLEU"], scores, strict=True)]
    differences = scores[1] - scores[0]
    return {
        "a": sides[0],
        "b": sides[1],
        "difference": sides[1]["bleu"] - sides[0]["bleu"],
        "difference_interval": interval(differences),
        "p": found["BLEU"][1].p_value if differences.any() else None,  # sacreBLEU's would be its smallest
        "signature": str(signatures["BLEU"]),
    }


def main(arguments: list[str]) -> int:
    """Translate with both, compare, append the row; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("models", type=Path, nargs=2, metavar="MODEL")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", required=True)
    parser.add_argument("--beam", type=int, nargs="+", default=[1], help="for both, or one for each")
    parser.add_argument("--alpha", type=float, nargs="+", default=[tat.ALPHA], help="for both, or one for each")
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=RESULTS / "bootstrap.jsonl")
    options = parser.parse_args(arguments)
    try:
        check_split(options.data, options.split)
        if max(len(options.beam), len(options.alpha)) > 2:
            raise ValueError("--beam and --alpha take one value for both models or one for each")
        translators = [load_translator(model) for model in options.models]
        if translators[0].languages != translators[1].languages:
            raise ValueError("the two models translate between different languages")
        pairs = load_pairs(options.data, options.split, *translators[0].languages)
        sources, references = map(list, zip(*pairs, strict=True))
        names, translations = [], []
        for i, translator in enumerate(translators):
            beam, alpha = options.beam[min(i, len(options.beam) - 1)], options.alpha[min(i, len(options.alpha) - 1)]
            search = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
            names.append({"model": options.models[i].name, "search": search})
            translations.append(translate_lines(translator, sources, make_search(beam, alpha)))
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    row = origin(shlex.join(["python", "benchmarks/bootstrap.py", *map(portable, arguments)]))
    row |= {"data": portable(options.data), "split": options.split, "sentences": len(sources)}
    row |= {"direction": "-".join(translators[0].languages), "samples": options.samples}
    row |= compare(references, *translations, options.samples)
    row |= {side: name | row[side] for side, name in zip("ab", names, strict=True)}
    for side in "ab":
        about = row[side]
        print(f"{about['model']}, {about['search']}: BLEU {about['bleu']:.2f}, 95 % {about['interval']}")
    print(f"difference {row['difference']:+.2f}, 95 % {row['difference_interval']}, p = {row['p']}")
    append(options.out, row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
