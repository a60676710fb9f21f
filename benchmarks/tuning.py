"""The miniature's rate and warmup, chosen on the validation set for each optimiser and norm."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from benchmarks import quality
from benchmarks.miniature import COMMON, EPOCHS, run_folder
from benchmarks.shared import RESULTS, Data, Rows, Runs, portable
from translator.__main__ import train
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.settings import Count, Limits

GRIDS = {  # optimiser and norm: factors of the learning rate, updates of warmup
    "muon pre": ((0.375, 0.75, 1.5), (100, 300)),
    "muon post": ((0.1875, 0.375, 0.75), (100, 300)),
    "adam pre": ((0.5, 1.0, 2.0), (200, 400, 800)),
    "adam post": ((0.25, 0.5, 1.0), (200, 400, 800)),
}
Grids = Annotated[tuple[Literal[*GRIDS], ...], Parameter(help="some of them; by default all")]


def benchmark(
    *, data: Data = "multi30k", epochs: Count = EPOCHS, runs: Runs = Path("runs"),
    only: Grids = (), rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train the preset `tiny` without dropout for a few passes:
    each rate of a grid, then other lengths of the warmup with the best.

    The rows hold the validation loss, which decides, and the greedy scores on the validation set. A
    row that is saved is not trained again.

    Args:
        epochs: passes through the data
    """
    for recipe in only or GRIDS:
        (factors, (first, *others)), rest = GRIDS[recipe], (data, epochs, runs, rows)
        losses = {factor: trained(recipe, factor, first, *rest)["val_loss"] for factor in factors}
        for warmup in others:
            trained(recipe, min(losses, key=losses.get), warmup, *rest)


def trained(
    recipe: str, factor: float, warmup: int, data: str, epochs: int, runs: Path, rows: Rows
) -> dict[str, Any]:
    """The row of one recipe, trained now unless it is saved."""
    about = {"recipe": recipe, "factor": factor, "warmup": warmup}
    about |= {"data": portable(data), "epochs": epochs}
    if saved := rows.saved(about):
        return saved[0]
    optimizer, norm = recipe.split()
    run = run_folder(runs, "tuning", f"{recipe} {factor} {warmup} epochs {epochs}")
    changes = COMMON | {"optimizer": optimizer, "norm": norm, "factor": factor, "warmup": warmup}
    limits = Limits(epochs=epochs, checkpoint_every=10**9)
    train(data=data, run=run, preset="tiny", limits=limits, changes=changes)
    translator = read_translator(run)
    row = about | quality.describe(run, translator) | quality.scores(translator, data)
    rows.add(row, choose_device())
    found = f"loss {row['val_loss']:.3f}, BLEU {row['bleu']:.2f}"
    print(f"{recipe}, factor {factor}, warmup {warmup}: {found}", flush=True)
    return row
