"""Variants of a model that differ in one thing, trained alike: the paper's Table 3 in miniature.

    python benchmarks/variants.py table_3 [--data multi30k] [--epochs N] [--runs runs] [--only NAME,...] [--out FILE.jsonl]

`table_3`: one size or setting of the preset `tiny` changed at a time, each trained on the same number of tokens; the
preset itself with three seeds, so that the spread between seeds is known. Batches are smaller and the warmup shorter than
in the preset, since the runs are short.

A run that was interrupted goes on, and a variant whose row is saved is not trained again: the command can be stopped and
given anew. Rows hold parameters, tokens, minutes, the validation loss and the scores on the validation set, greedy and
with a beam.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.rows import RESULTS, append, origin, portable


class Table(NamedTuple):
    """What all variants have in common, and by name what each changes: (row of the paper's table, settings)."""

    epochs: int
    common: dict[str, Any]
    variants: dict[str, tuple[str, dict[str, Any]]]


TABLES = {
    "table_3": Table(
        epochs=4,
        common={"tokens_per_batch": 2000, "warmup": 300},
        variants={
            **{f"seed {seed}": ("base", {"seed": seed}) for seed in range(3)},
            **{f"h = {h}": ("A", {"h": h}) for h in (1, 2, 8, 16)},
            **{f"d_k = {d}": ("B", {"d_k": d}) for d in (8, 16)},
            **{f"N = {N}": ("C", {"N": N}) for N in (1, 2, 6)},
            **{f"d_model = {d}": ("C", {"d_model": d}) for d in (64, 256)},
            **{f"d_ff = {d}": ("C", {"d_ff": d}) for d in (128, 512)},
            **{f"dropout = {p}": ("D", {"dropout": p}) for p in (0.0, 0.1, 0.4)},
            **{f"smoothing = {eps}": ("D", {"smoothing": eps}) for eps in (0.0, 0.2)},
            "positions = learned": ("E", {"positions": "learned"}),
            "norm = post": ("", {"norm": "post"}),
        },
    ),
}


def measure(run: Path, options: argparse.Namespace, settings: dict[str, Any]) -> dict[str, Any]:
    """Train one variant, or go on with it, and score it on the validation set."""
    texts = {key: str(value) for key, value in settings.items()}
    tat.train(data=options.data, run=run, preset="tiny", epochs=options.epochs, checkpoint_every=10**9, **texts)
    greedy, beam = (quality.scores(run, options.data, "val", size) for size in (1, 4))
    searched = {"beam": beam["search"], "bleu_beam": beam["bleu"], "chrf_beam": beam["chrf"]}
    return quality.describe(run) | quality.training(run) | greedy | searched


def saved(path: Path, about: dict[str, Any]) -> set[str]:
    """The variants that have a row with the same data and epochs."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {row["variant"] for row in rows if all(row[key] == value for key, value in about.items())}


def main(arguments: list[str]) -> int:
    """Train what has no row yet; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--epochs", type=int, help="passes through the data (default: the table's own number)")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are kept")
    parser.add_argument("--only", help="some of the variants, with commas between them")
    parser.add_argument("--out", type=Path, help="the rows (default: benchmarks/results/TABLE.jsonl)")
    options = parser.parse_args(arguments)
    table, out = TABLES[options.table], options.out or RESULTS / f"{options.table}.jsonl"
    options.epochs = options.epochs or table.epochs
    names = options.only.split(",") if options.only else list(table.variants)
    if unknown := [name for name in names if name not in table.variants]:
        print(f"error: unknown variant {unknown[0]!r}; there are {', '.join(table.variants)}", file=sys.stderr)
        return 2
    command = shlex.join(["python", "benchmarks/variants.py", *map(portable, arguments)])
    about = {"data": portable(options.data), "epochs": options.epochs}
    for name in names:
        if name not in saved(out, about):
            row_of_paper, changes = table.variants[name]
            run = options.runs / options.table / name.replace(" = ", "-").replace(" ", "-")
            row = origin(command) | about | {"variant": name, "row": row_of_paper}
            row |= measure(run, options, table.common | changes)
            append(out, row)
            print(f"{name}: BLEU {row['bleu']:.2f}, with a beam {row['bleu_beam']:.2f}, {row['minutes']:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
