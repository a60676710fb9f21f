"""BLEU on the validation set against minutes of training: a run that stops every few minutes to be scored.

    python benchmarks/time_to_quality.py RUN [--data multi30k] [--preset tiny] [--every 5] [--until 45] [--set NAME=VALUE ...]
        [--out FILE.jsonl]

Only training time counts, including its own validation loss and checkpoints; the scoring in between does not. Scores are
greedy. An interrupted run continues and appends the missing rows.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import quality
from benchmarks.rows import RESULTS, append, origin, portable
from translator.commands import train
from translator.runs import read_log


def setting(text: str) -> tuple[str, str]:
    """NAME=VALUE split in two; argparse reports the ValueError."""
    name, value = text.split("=", 1)
    return name, value


def main(arguments: list[str]) -> int:
    """Train and score in turns; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--every", type=float, default=5, help="minutes between two scores")
    parser.add_argument("--until", type=float, default=45, help="minutes of training in all")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", type=setting)
    parser.add_argument("--out", type=Path, default=RESULTS / "time_to_quality.jsonl")
    options = parser.parse_args(arguments)
    if not 0 < options.every <= options.until:
        parser.error(f"--every must be above 0 and at most --until, but it is {options.every}")
    settings = dict(options.set)
    about = {"run": options.run.name, "preset": options.preset, "data": portable(options.data), "set": settings}
    command = shlex.join(["python", "benchmarks/time_to_quality.py", *map(portable, arguments)])
    rows = [json.loads(line) for line in options.out.read_text().splitlines()] if options.out.exists() else []
    done = {row["budget"] for row in rows if about.items() <= row.items()}
    for turn in range(1, int(options.until / options.every + 1e-9) + 1):
        minutes = turn * options.every
        if minutes in done:
            continue
        if any(row["minutes"] >= minutes + options.every for row in read_log(options.run)[-1:]):
            print(f"error: {options.run} has trained for more than {minutes:g} minutes already", file=sys.stderr)
            return 2
        train(
            data=options.data,
            run=options.run,
            preset=options.preset,
            minutes=minutes,
            checkpoint_every=100,
            **settings,
        )
        row = origin(command) | about | {"budget": minutes} | quality.describe(options.run)
        row |= quality.training(options.run) | quality.scores(options.run, options.data, "val")
        append(options.out, row)
        print(f"{row['minutes']:.1f} minutes: BLEU {row['bleu']:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
