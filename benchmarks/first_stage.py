"""The shipped models' recipe on the pairs alone, to its end, with the paper's parts and others."""

import itertools
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.miniature import VARIANTS, run_folder, train
from benchmarks.shared import RESULTS, Data, Rows, Runs, Seeds, portable
from translator.plan import MEASURED
from translator.processes import choose_device
from translator.settings import Limits, make_settings
from translator.sources import load_pairs

STEPS = {"de-en": 4200, "en-de": 4700}  # updates of the shipped models' first stage
SPLITS = "val", "test_2016_flickr"
KINDS = "base", "since 2017"
NAMES = tuple(
    name for name, variant in VARIANTS.items() if variant.row in KINDS and "only" not in name
)
Directions = Annotated[tuple[Literal[*STEPS], ...], Parameter(help="by default both")]
Variants = Annotated[
    tuple[Literal[*NAMES], ...], Parameter(help="variants, as `miniature` names them")
]


def benchmark(
    *, data: Data = "multi30k", runs: Runs = Path("runs"), seeds: Seeds = (0, 1, 2),
    only: Variants = ("base", "rotary"), directions: Directions = tuple(STEPS),
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train variants of the preset `tiny` as the shipped models were trained on the pairs alone,
    and score them.

    4,200 updates from German to English and 4,700 from English to German, with the preset's dropout
    and rate. A row holds the scores on `val` and on `test_2016_flickr`, greedy and with the
    document's beam. The command can be stopped and given again: an interrupted run continues, and a
    row that is saved is not trained again.
    """
    for split in SPLITS:
        load_pairs(data, split)  # to find out now if it isn't there
    for seed, name, direction in itertools.product(seeds, only, directions):
        about = {"variant": name, "direction": direction, "seed": seed, "data": portable(data)}
        if rows.saved(about, choose_device()):
            continue
        settings = make_settings("tiny", False, MEASURED | VARIANTS[name].changes | {"seed": seed})
        run = run_folder(runs, "first_stage", f"{name} {direction} seed {seed}")
        limits, languages = Limits(steps=STEPS[direction]), tuple(direction.split("-"))
        translator = train(run, data, name, settings, limits, languages)
        row = about | quality.describe(run, translator) | {"preset": "tiny"}
        keep = quality.keeping(rows, f"first_stage {name} {direction} seed {seed}")
        for split in SPLITS:
            beams = {"greedy": 1, "beam": tat.BEAM}.items()
            row[split] = {
                search: quality.scores(translator, data, split, beam, keep=keep)
                for search, beam in beams
            }
        rows.add(row, choose_device())
        found = ", ".join(f"{split} {row[split]['beam']['bleu']:.2f}" for split in SPLITS)
        title = f"{name}, {direction}, seed {seed}"
        print(f"{title}: {found}, {row['minutes']:.1f} minutes", flush=True)
