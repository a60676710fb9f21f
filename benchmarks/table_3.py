"""The paper's Table 3 in miniature: variants of a small model, each trained on the same number of tokens.

    python benchmarks/table_3.py [--data multi30k] [--epochs 4] [--runs runs/table_3] [--only NAME,...] [--out FILE.jsonl]

Each variant changes one thing in the preset `tiny`; the preset itself is trained with three seeds, so that the spread
between seeds is known. Batches are smaller and the warmup shorter than in the preset, since the runs are short. A run that
was interrupted goes on; a variant whose row is saved is not trained again, so the command can be stopped and given anew.
Rows hold the validation loss and greedy BLEU on the validation set, parameters, tokens and minutes.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks.rows import RESULTS, append, origin, portable

COMMON = {"tokens_per_batch": 2000, "warmup": 300}
VARIANTS = {  # name: (row of the paper's table, seed, what differs)
    **{f"seed {seed}": ("base", seed, {}) for seed in range(3)},
    **{f"h = {h}": ("A", 0, {"h": h}) for h in (1, 2, 8, 16)},
    **{f"d_k = {d}": ("B", 0, {"d_k": d}) for d in (8, 16)},
    **{f"N = {N}": ("C", 0, {"N": N}) for N in (1, 2, 6)},
    **{f"d_model = {d}": ("C", 0, {"d_model": d}) for d in (64, 256)},
    **{f"d_ff = {d}": ("C", 0, {"d_ff": d}) for d in (128, 512)},
    **{f"dropout = {p}": ("D", 0, {"dropout": p}) for p in (0.0, 0.1, 0.4)},
    **{f"smoothing = {eps}": ("D", 0, {"smoothing": eps}) for eps in (0.0, 0.2)},
    "positions = learned": ("E", 0, {"positions": "learned"}),
    "norm = post": ("", 0, {"norm": "post"}),
}


def train(name: str, options: argparse.Namespace) -> dict:
    """Train one variant, or go on with it, and score it on the validation set."""
    table_row, seed, changes = VARIANTS[name]
    settings = {key: str(value) for key, value in (COMMON | changes | {"seed": seed}).items()}
    run = options.runs / name.replace(" = ", "-").replace(" ", "-")
    tat.train(data=options.data, run=run, preset="tiny", epochs=options.epochs, checkpoint_every=10**9, **settings)
    translator, log = tat.load_translator(run), tat.read_log(run)
    last = {key: value for row in log for key, value in row.items()}
    sources, references = zip(*tat.load_pairs(options.data, "val", *translator.languages), strict=True)
    scores = tat.score(tat.translate_lines(translator, list(sources)), list(references), translator.languages[1])
    parameters = sum(p.numel() for p in translator.model.parameters())
    found = {key: last[key] for key in ("step", "tokens", "minutes", "val_loss", "val_perplexity")}
    return {"variant": name, "row": table_row, "seed": seed, "parameters": parameters, **found, **scores}


def saved(path: Path, about: dict) -> set[str]:
    """The variants that have a row with the same data and epochs."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []
    return {row["variant"] for row in rows if all(row[key] == value for key, value in about.items())}


def main(arguments: list[str]) -> int:
    """Train what has no row yet; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--runs", type=Path, default=Path("runs") / "table_3", help="where the runs are kept")
    parser.add_argument("--only", help="some of the variants, with commas between them")
    parser.add_argument("--out", type=Path, default=RESULTS / "table_3.jsonl")
    options = parser.parse_args(arguments)
    names = options.only.split(",") if options.only else list(VARIANTS)
    if unknown := [name for name in names if name not in VARIANTS]:
        print(f"error: unknown variant {unknown[0]!r}; there are {', '.join(VARIANTS)}", file=sys.stderr)
        return 2
    command = shlex.join(["python", "benchmarks/table_3.py", *map(portable, arguments)])
    about = {"data": portable(options.data), "epochs": options.epochs}
    for name in names:
        if name not in saved(options.out, about):
            row = origin(command) | about | train(name, options)
            append(options.out, row)
            print(
                f"{name}: BLEU {row['bleu']:.2f}, loss {row['val_loss']:.3f}, {row['minutes']:.1f} minutes", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
