"""BLEU against minutes of training."""

from pathlib import Path

from cyclopts.types import PositiveFloat

from benchmarks import quality
from benchmarks.shared import RESULTS, Changes, Data, Preset, Rows, portable
from translator.__main__ import train
from translator.files import Refused
from translator.model_folder import read_translator
from translator.run import Limits, read_log


def benchmark(
    run: Path, *, data: Data = "multi30k", preset: Preset = "tiny", every: PositiveFloat = 5, until: PositiveFloat = 45,
    changes: Changes = None, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """BLEU on the validation set against minutes of training: a run that stops every few minutes to be scored.

    Only training time counts, including its own validation loss and checkpoints; the scoring in between does not. Scores are
    greedy. An interrupted run continues and appends the missing rows.

    Args:
        run: the folder of the run
        preset: what all other settings are, unless they are given
        every: minutes between two scores
        until: minutes of training in all
    """
    if every > until:
        raise Refused(f"--every must be at most --until, {until:g}, but it is {every:g}")
    changes = changes or {}
    about = {"run": run.name, "preset": preset, "data": portable(data)}
    about["set"] = {name: str(value) for name, value in changes.items()}
    for turn in range(1, int(until / every + 1e-9) + 1):
        minutes = turn * every
        if rows.saved(about | {"budget": minutes}):
            continue
        if any(row["minutes"] >= minutes + every for row in read_log(run)[-1:]):
            raise Refused(f"{run} has trained for more than {minutes:g} minutes already")
        limits = Limits(minutes=minutes, checkpoint_every=100)
        train(data=data, run=run, preset=preset, limits=limits, changes=changes)
        translator = read_translator(run)
        row = about | {"budget": minutes} | quality.describe(run, translator) | quality.scores(translator, data)
        rows.add(row)
        print(f"{row['minutes']:.1f} minutes: BLEU {row['bleu']:.2f}")
