"""What `doctor` says of twelve runs: eight with a mistake, two healthy, two undertrained."""

import contextlib
import itertools
import re
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.shared import RESULTS, Rows, Runs, Seeds
from practice.mistakes import made
from translator.__main__ import train
from translator.doctor import diagnose
from translator.files import write_text
from translator.plan import MEASURED
from translator.settings import Limits
from translator.sources import load_pairs

SIZES = {
    "N": 2, "bpe": 1000, "tokens_per_batch": 1000, "factor": 0.75, "warmup": 100, "dropout": 0.1,
}  # fmt: skip


class Case(NamedTuple):
    """A run: what is wrong with it, for how many updates it trains, with which settings."""

    expected: str  # the verdict
    mistake: str = ""  # of the catalogue; in force while it trains and while it is examined
    steps: int = 450
    changes: dict[str, Any] = {}
    misaligned: bool = False  # made in the text, because the program has a trainer of its own
    like: str = ""  # the run of this case serves: the mistake is made after training


CASES = {
    "healthy": Case("healthy"),
    "healthy, post-norm": Case("healthy", changes={"norm": "post"}),
    "stopped in the warmup": Case("undertrained", steps=60),
    "stopped soon after it": Case("undertrained", steps=150),
    "sees the future": Case("resembles", "no_causal_mask", 250),
    "heads cut wrongly": Case("resembles", "heads_split_by_view", 250),
    "never asks the source": Case("resembles", "cross_attends_to_itself", 250),
    "no order in the source": Case("resembles", "no_positions_in_encoder", 250),
    "normalises over time": Case("resembles", "norm_over_time", 250),
    "lines have slipped": Case("resembles", "pairs_misaligned", 350, misaligned=True),
    "rate too high": Case("resembles", "rate_too_high", 350, {"factor": 22.5}),
    "decodes from the end token": Case("resembles", "decoding_begins_with_eos", like="healthy"),
}


def text(folder: Path, misaligned: bool) -> Path:
    """A folder with captions, train and val; misaligned: each source has the next pair's target."""
    folder.mkdir(parents=True, exist_ok=True)
    for split in ("train", "val"):
        sources, targets = map(list, zip(*load_pairs("captions", split), strict=True))
        if misaligned:
            targets = targets[1:] + targets[:1]
        for language, side in (("de", sources), ("en", targets)):
            write_text(folder / f"{split}.{language}", "\n".join(side) + "\n")
    return folder


def benchmark(*, seeds: Seeds = (0,), runs: Runs = Path("runs"), rows: Rows = RESULTS) -> None:
    """Train small models on captions, most of them with a mistake, and ask `doctor` about each.

    A row has the verdict, the mistakes that the run is said to resemble, and whether the one that
    was made is among them. An interrupted run continues; one that has a row is not trained again.
    """
    for seed, (name, case) in itertools.product(seeds, CASES.items()):
        if rows.saved({"case": name, "seed": seed}):
            continue
        folder = runs / "doctor"
        data = text(folder / ("misaligned" if case.misaligned else "captions"), case.misaligned)
        run = folder / re.sub(r"\W+", "-", f"{case.like or name} {seed}")
        start = time.process_time()
        with made(case.mistake) if case.mistake else contextlib.nullcontext():
            if not case.like:
                limits = Limits(steps=case.steps, checkpoint_every=50)
                changes = MEASURED | SIZES | case.changes | {"seed": seed}
                train(data=str(data), run=run, preset="tiny", limits=limits, changes=changes)
            trained = time.process_time()
            diagnosis = diagnose(run)
        seconds = round(time.process_time() - trained, 1)
        names = [symptom["name"] for symptom in diagnosis["resembles"]]
        row = {"case": name, "seed": seed, "mistake": case.mistake, "expected": case.expected}
        row |= {"verdict": diagnosis["verdict"], "resembles": names, "named": case.mistake in names}
        row |= {
            "symptoms": [symptom for symptom in diagnosis["symptoms"] if symptom["state"] != "well"]
        }
        row |= {"cpu_minutes": round((trained - start) / 60, 2), "doctor_seconds": seconds}
        rows.add(row)
        like = f"{names.index(case.mistake) + 1} of {len(names)}" if row["named"] else ""
        print(f"{name:<28}{diagnosis['verdict']:<24}{like}")
