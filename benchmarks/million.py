"""What a million tokens give, with the paper's parts and with today's, one change after another."""

from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.shared import RESULTS, Data, Rows, Runs, portable
from translator.__main__ import train
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.settings import Count, Limits

SENTENCES = [  # none of which is in Multi30k
    *tat.OUR_SENTENCES,
    "Ein Hund läuft durch den Schnee.",
    "Mein Nachbar hat gestern sein Fahrrad verkauft.",  # nobody would write this under a photograph
]
PAPER = {
    "positions": "sinusoidal", "optimizer": "adam", "schedule": "paper",
    "factor": tat.LIVE.factor, "warmup": tat.LIVE.warmup, "dropout": 0.0,
}  # fmt: skip
RECIPES = {"the paper's parts": PAPER}  # each has all changes of those before it
for name, change in {
    "a rate that falls to zero": {"schedule": "linear", "factor": 1.0, "warmup": 100},
    "Muon": {"optimizer": "muon"},
    "rotary positions": {"positions": "rotary"},
    "dropout": {"dropout": 0.1},
    "dropout that grows": {"dropout": None},
}.items():
    RECIPES[name] = [*RECIPES.values()][-1] | change
Recipes = Annotated[tuple[Literal[*RECIPES], ...], Parameter(help="some of them; by default all")]


def benchmark(
    *, data: Data = "multi30k", steps: Count = 500, seed: int = 0, runs: Runs = Path("runs"),
    only: Recipes = (), rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train the preset `tiny` for some updates of 2,000 padded tokens with each recipe;
    the last is the preset itself.

    The rows hold the greedy scores on the validation set, and what the model makes of a few
    sentences. The command can be given again: a row that is saved is not trained again.

    Args:
        steps: updates of each
    """
    for recipe in only or RECIPES:
        recipe_key = {"recipe": recipe, "data": portable(data), "steps": steps, "seed": seed}
        if rows.saved(recipe_key):
            continue
        run = runs / "million" / f"{recipe} {steps} seed {seed}"
        limits = Limits(steps=steps, checkpoint_every=100)
        changes = RECIPES[recipe] | {"seed": seed}
        train(data=data, run=run, preset="tiny", limits=limits, changes=changes)
        row = recipe_key | measures(run, data, quality.keeping(rows, run.name))
        rows.add(row, choose_device())
        print(f"{recipe}: loss {row['val_loss']:.3f}, BLEU {row['bleu']:.2f}", flush=True)


def measures(run: Path, data: str, keep: quality.Keep) -> dict[str, Any]:
    """What a finished run says of itself, its greedy scores, and what it makes of the sentences."""
    translator = read_translator(run)
    row = quality.describe(run, translator) | quality.scores(translator, data, keep=keep)
    return row | {"samples": tat.translate_lines(translator, SENTENCES)}
