"""The paper's Table 3 in miniature, and an ablation of the program's recipe."""

import re
from pathlib import Path
from typing import Any, Literal, NamedTuple

from benchmarks import quality
from benchmarks.shared import RESULTS, Data, Rows, Runs, portable
from translator.__main__ import train
from translator.model_folder import read_translator
from translator.run import Limits
from translator.settings import Count


class Variant(NamedTuple):
    """What a variant changes, and its row in the paper's table, if any."""

    row: str
    changes: dict[str, Any]


EPOCHS, COMMON = 4, {"tokens_per_batch": 2000}
PAPER = {"optimizer": "adam", "clip": 0.0, "ema": 0.0, "dropout": 0.1}  # what the paper's recipe has, besides post-norm
VARIANTS = {
    **{f"seed {seed}": Variant("base", {"seed": seed}) for seed in range(3)},
    **{f"h = {h}": Variant("A", {"h": h}) for h in (1, 2, 8, 16)},
    **{f"d_k = {d}": Variant("B", {"d_k": d}) for d in (8, 16)},
    **{f"N = {N}": Variant("C", {"N": N}) for N in (1, 2, 6)},
    **{f"d_model = {d}": Variant("C", {"d_model": d}) for d in (64, 256)},
    **{f"d_ff = {d}": Variant("C", {"d_ff": d}) for d in (128, 512)},
    **{f"dropout = {p}": Variant("D", {"dropout": p}) for p in (0.0, 0.1, 0.4)},
    **{f"smoothing = {eps}": Variant("D", {"smoothing": eps}) for eps in (0.0, 0.2)},
    "positions = learned": Variant("E", {"positions": "learned"}),
    "norm = post": Variant("", {"norm": "post"}),
    "norm = post + adam": Variant("", {"norm": "post", "factor": 1.0, "warmup": 800} | PAPER),
    "optimizer = adam": Variant("", {"optimizer": "adam", "warmup": 500}),
    "ema = 0": Variant("", {"ema": 0.0}),
    "tie = none": Variant("", {"tie": "none"}),
    "words": Variant("", {"bpe": 0}),
    "clip = 0": Variant("", {"clip": 0.0}),
}


def run_folder(runs: Path, benchmark: str, title: str) -> Path:
    """Where a variant's run is kept; its title may hold any characters."""
    return runs / benchmark / re.sub(r"[^\w.]+", "-", title)


def benchmark(
    *, data: Data = "multi30k", epochs: Count = EPOCHS, runs: Runs = Path("runs"), only: tuple[Literal[*VARIANTS], ...] = (),
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train variants of the preset `tiny` that each differ in one thing: the paper's Table 3 in miniature, and an ablation.

    Each variant changes one size, setting or ingredient, and all variants train for the same number of epochs. The preset
    itself runs with three seeds, to show the spread between seeds. Batches are smaller than the preset's, because the runs
    are short.

    The command can be stopped and given again: an interrupted run continues, and a variant with a saved row is not trained
    again. Rows hold parameters, tokens, minutes, the validation loss and the scores on the validation set, greedy and with a
    beam.

    Args:
        epochs: passes through the data
        only: some of them, such as 'seed 0' 'h = 1'; by default all
    """
    for name in only or VARIANTS:
        about = {"variant": name, "data": portable(data), "epochs": epochs}
        if rows.saved(about):
            continue
        run, variant = run_folder(runs, "variants", f"{name} epochs {epochs}"), VARIANTS[name]
        limits = Limits(epochs=epochs, checkpoint_every=10**9)
        train(data=data, run=run, preset="tiny", limits=limits, changes=COMMON | variant.changes)
        translator = read_translator(run)
        row = about | {"row": variant.row} | quality.describe(run, translator)
        row |= quality.greedy_and_beam(translator, data)
        rows.add(row)
        print(f"{name}: BLEU {row['bleu']:.2f}, with a beam {row['bleu_beam']:.2f}, {row['minutes']:.1f} minutes")
