"""Variants of the preset `tiny` that each differ in one thing: the paper's Table 3 in miniature, and an ablation.

    python benchmarks/variants.py [--data multi30k] [--epochs N] [--runs runs] [--only NAME,...] [--out FILE.jsonl]

Each variant changes one size, setting or ingredient, and all variants train for the same number of epochs. The preset itself
runs with three seeds, to show the spread between seeds. Batches are smaller than the preset's, because the runs are short.
With R-Drop an update costs more than twice as much, so that run is half as long unless --epochs is given.

The command can be stopped and given again: an interrupted run continues, and a variant with a saved row is not trained again.
Rows hold parameters, tokens, minutes, the validation loss and the scores on the validation set, greedy and with a beam.
"""

import argparse
import json
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.rows import RESULTS, append, origin, portable
from translator.commands import train


class Variant(NamedTuple):
    """What a variant changes, its row in the paper's table (if any), and its epochs (if they differ)."""

    row: str
    changes: dict[str, Any]
    epochs: int = 0


EPOCHS, COMMON = 4, {"tokens_per_batch": 2000}
PAPER = {"optimizer": "adam", "clip": 0.0, "ema": 0.0, "dropout": 0.1}  # what the paper's recipe has, besides post-norm
VARIANTS = {
    **{f"seed {seed}": Variant("base", {"seed": seed}) for seed in range(3)},
    **{f"h = {h}": Variant("A", {"h": h}) for h in (1, 2, 8, 16)},
    **{f"d_k = {d}": Variant("B", {"d_k": d}) for d in (8, 16)},
    **{f"N = {N}": Variant("C", {"N": N}) for N in (1, 2, 6)},
    **{f"d_model = {d}": Variant("C", {"d_model": d}) for d in (64, 256)},
    **{f"d_ff = {d}": Variant("C", {"d_ff": d}) for d in (128, 512)},
    **{f"dropout = {p}": Variant("D", {"dropout": p}) for p in (0.0, 0.1, 0.4)},
    **{f"smoothing = {eps}": Variant("D", {"smoothing": eps}) for eps in (0.0, 0.2)},
    "positions = learned": Variant("E", {"positions": "learned"}),
    "norm = post": Variant("", {"norm": "post"}),
    "norm = post + adam": Variant("", {"norm": "post", "factor": 1.0, "warmup": 800} | PAPER),
    "optimizer = adam": Variant("", {"optimizer": "adam", "warmup": 500}),
    "ema = 0": Variant("", {"ema": 0.0}),
    "tie = none": Variant("", {"tie": "none"}),
    "words": Variant("", {"bpe": 0}),
    "clip = 0": Variant("", {"clip": 0.0}),
    "dropout_after = 534": Variant("", {"dropout_after": 534}),
    "bpe_dropout = 0.1": Variant("", {"bpe_dropout": 0.1}),
    "r_drop = 5": Variant("", {"r_drop": 5.0}, epochs=2),
}


def measure(run: Path, data: str, epochs: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one variant, or continue its run, and score it on the validation set."""
    texts = {key: str(value) for key, value in settings.items()}
    train(data=data, run=run, preset="tiny", epochs=epochs, checkpoint_every=10**9, **texts)
    greedy, beam = (quality.scores(run, data, "val", size) for size in (1, tat.BEAM))
    searched = {"beam": beam["search"], "bleu_beam": beam["bleu"], "chrf_beam": beam["chrf"]}
    return quality.describe(run) | quality.training(run) | greedy | searched


def saved(path: Path, about: dict[str, Any]) -> bool:
    """Whether there is a row for the same variant, data and epochs."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return any(about.items() <= row.items() for row in rows)


def mistake(names: Iterable[str], known: Iterable[str], epochs: int | None) -> str:
    """What is wrong with the variants or epochs asked for; empty if nothing is."""
    if epochs is not None and epochs < 1:
        return f"--epochs must be at least 1, but it is {epochs}"
    unknown = [name for name in names if name not in known]
    return f"unknown variant {unknown[0]!r}; there are {', '.join(known)}" if unknown else ""


def run_folder(runs: Path, benchmark: str, title: str) -> Path:
    """Where a variant's run is kept; its title may hold any characters."""
    return runs / benchmark / re.sub(r"[^\w.]+", "-", title)


def main(arguments: list[str]) -> int:
    """Train every variant that has no row yet; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--epochs", type=int, help="passes through the data (default: 4)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are kept")
    parser.add_argument("--only", help="some of the variants, with commas between them")
    parser.add_argument("--out", type=Path, default=RESULTS / "variants.jsonl", help="the rows")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(VARIANTS)
    if wrong := mistake(names, VARIANTS, options.epochs):
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    command = shlex.join(["python", "benchmarks/variants.py", *map(portable, arguments)])
    for name in names:
        variant = VARIANTS[name]
        epochs = options.epochs or variant.epochs or EPOCHS
        about = {"variant": name, "data": portable(options.data), "epochs": epochs}
        if not saved(options.out, about):
            run = run_folder(options.runs, "variants", f"{name} epochs {epochs}")
            row = origin(command) | about | {"row": variant.row}
            row |= measure(run, options.data, epochs, COMMON | variant.changes)
            append(options.out, row)
            print(f"{name}: BLEU {row['bleu']:.2f}, with a beam {row['bleu_beam']:.2f}, {row['minutes']:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
