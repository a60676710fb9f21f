"""The speed of this checkout against that of another one."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.shared import RESULTS, ROOT, Data, Rounds, Rows, commit, portable
from translator.files import Refused


def measure(checkout: Path, data: str) -> dict[str, float]:
    """The speeds of a checkout, by `compare_child.py` in a new process; Refused if that fails."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, str(Path(__file__).with_name("compare_child.py")), data]
    process = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise Refused(
            f"{checkout}: {(process.stderr.strip().splitlines() or ['it was killed'])[-1]}"
        )
    return json.loads(process.stdout.splitlines()[-1])


def benchmark(
    other: Path, *, data: Data = "multi30k", rounds: Rounds = 5, rows: Rows = RESULTS
) -> None:
    """The speed of training and translation, this checkout against another one, in one run.

    The two take turns, round by round, each time in a new process that imports its own code. A
    round is twenty updates of `tiny` and eight of `small`, on the same batches, and the translation
    of the split `val` by the model in `models/`, greedy and with the recommended beam, as the
    command line searches by default. A figure is the median over the rounds, a ratio the median of
    the rounds' ratios. A ratio above 1 means that this checkout is faster.

    Args:
        other: the folder of another checkout, such as this one's parent
    """
    if not (other / "translator").is_dir():
        raise Refused(f"{other} is no checkout with a folder `translator`")
    data = str(Path(data).resolve()) if Path(data).is_dir() else data
    row = {"other": commit(other), "data": portable(data), "rounds": rounds}
    sides = {"other": other.resolve(), "this": ROOT}
    turns = [
        {side: measure(checkout, data) for side, checkout in sides.items()} for _ in range(rounds)
    ]
    for task in turns[0]["this"]:
        speeds = {side: [turn[side][task] for turn in turns] for side in sides}
        row[task] = {side: round(statistics.median(x), 1) for side, x in speeds.items()}
        ratio = statistics.median(turn["this"][task] / turn["other"][task] for turn in turns)
        row[task]["ratio"] = round(ratio, 3)
        print(f"{task:<36}{row[task]['other']:>10,.1f}{row[task]['this']:>10,.1f}  {ratio:.3f}")
    rows.add(row)
