"""BLEU against minutes of training."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import PositiveFloat

from benchmarks import quality
from benchmarks.shared import RESULTS, Changes, Data, Preset, Rows, portable
from translator.__main__ import train
from translator.model_folder import read_translator
from translator.run import Limits

Minutes = Annotated[tuple[PositiveFloat, ...], Parameter(help="of training; each is a run")]


def benchmark(
    run: Path, *, data: Data = "multi30k", preset: Preset = "tiny", minutes: Minutes = (5, 10, 30),
    changes: Changes = None, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """BLEU on the validation set after so many minutes of training:
    for each number of minutes, a run that ends there.

    A run may know its end, because its rate falls to zero there, so one run can't be scored on its
    way. (Rows up to commit 0ede01c are of a single run.) Only training time counts, including its
    own validation loss and checkpoints. Scores are greedy. The command can be given again: an
    interrupted run continues, and a row that is saved is not trained again.

    Args:
        run: the folder of the runs
        preset: what all other settings are, unless they are given
    """
    changes = changes or {}
    about = {"run": run.name, "preset": preset, "data": portable(data)}
    about["set"] = {name: str(value) for name, value in changes.items()}
    for budget in minutes:
        if rows.saved(about | {"budget": budget}):
            continue
        folder = run / f"{budget:g}"
        train(data=data, run=folder, preset=preset, limits=Limits(minutes=budget), changes=changes)
        translator = read_translator(folder)
        row = about | {"budget": budget} | quality.describe(folder, translator) | {"preset": preset}
        row |= quality.scores(translator, data)
        rows.add(row)
        print(f"{row['minutes']:.1f} minutes: BLEU {row['bleu']:.2f}")
