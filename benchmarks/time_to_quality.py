"""BLEU against minutes of training."""

import itertools
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.types import PositiveFloat

from benchmarks import beside, quality
from benchmarks.shared import RESULTS, Changes, Data, Preset, Rows, portable
from translator.__main__ import train
from translator.model_folder import read_translator
from translator.settings import Limits

Programs = Annotated[
    tuple[Literal["this", "nn.Transformer"], ...], Parameter(help="by default this one alone")
]
Minutes = Annotated[tuple[PositiveFloat, ...], Parameter(help="of training; each is a run")]


def benchmark(
    run: Path, *, data: Data = "multi30k", preset: Preset = "tiny", minutes: Minutes = (5, 10, 30),
    programs: Programs = ("this",), changes: Changes = None, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """BLEU on the validation set after so many minutes of training:
    for each number of minutes, a run that ends there.

    A run may know its end, because its rate falls to zero there, so one run can't be scored on its
    way. (Rows up to commit 0ede01c are of a single run.) Only training time counts, including its
    own validation loss and checkpoints. Scores are greedy. The command can be given again: an
    interrupted run continues, and a row that is saved is not trained again.

    PyTorch's module learns from the same German and English text with the same sizes, and with the
    paper's positions, Adam and rate; see `beside`.

    Args:
        run: the folder of the runs
        preset: what all other settings are, unless they are given
    """
    changes = changes or {}
    chosen = {name: str(value) for name, value in changes.items()}
    run_key = {"run": run.name, "preset": preset, "data": portable(data), "set": chosen}
    for program, budget in itertools.product(programs, minutes):
        run_key |= {"program": program, "budget": budget}
        if rows.saved(run_key):
            continue
        if program == "this":
            figures = trained(run / f"{budget:g}", data, preset, changes, budget)
        else:
            figures = beside.trained(data, preset, changes, budget)
        rows.add(run_key | figures | {"preset": preset})
        print(
            f"{program}, {figures['minutes']:.1f} minutes: BLEU {figures['bleu']:.2f}", flush=True
        )


def trained(
    run: Path, data: str, preset: str, changes: dict[str, Any], minutes: float
) -> dict[str, Any]:
    """The figures of a row: a run that ends after so many minutes, and its greedy scores."""
    train(data=data, run=run, preset=preset, limits=Limits(minutes=minutes), changes=changes)
    translator = read_translator(run)
    return quality.describe(run, translator) | quality.scores(translator, data)
