"""What a number of sentence pairs buys: scores against the size of the corpus.

Training starts from random weights, or from another model's.
"""

import itertools
import random
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.shared import RESULTS, Changes, Counts, Data, Rows, Runs, Seeds, portable
from translator.__main__ import train
from translator.files import Refused, write_text
from translator.model_folder import read_translator
from translator.plan import MEASURED, recipe, seen
from translator.processes import choose_device
from translator.run_log import read_log
from translator.settings import Count, Limits
from translator.sources import load_pairs

SIZES = (500, 1000, 2000, 4000, 8000, 16_000, 29_000)
START = Path("models/multi30k-en-de")  # the other direction of the same language pair
Starts = Literal["scratch", "other direction"]


def sample(data: str, pairs: int, seed: int, languages: tuple[str, str], folder: Path) -> Path:
    """A folder with so many pairs of train, drawn by the seed, and all of val."""
    # A smaller sample is the start of a larger one.
    every = load_pairs(data, "train", *languages)
    if pairs > len(every):
        raise Refused(f"{data} has {len(every):,} pairs to learn from, not {pairs:,}")
    random.Random(seed).shuffle(every)
    folder.mkdir(parents=True, exist_ok=True)
    for split, texts in ("train", every[:pairs]), ("val", load_pairs(data, "val", *languages)):
        for language, side in zip(languages, zip(*texts, strict=True), strict=True):
            write_text(folder / f"{split}.{language}", "\n".join(side) + "\n")
    return folder


def trained(
    folder: Path, text: Path, languages: tuple[str, str], start: str, changes: dict[str, Any],
    steps: int,
) -> tuple[Path, float, bool]:  # fmt: skip
    """Train on a folder of text.

    Returns the run, the CPU minutes it took, and whether it went on from an earlier try.
    """
    again = (folder / "config.json").exists()
    before = time.process_time()
    src, tgt = languages
    limits = Limits(steps=steps, checkpoint_every=max(25, steps // 6))
    start_from = None if start == "scratch" else START
    train(
        data=str(text), run=folder, preset="tiny", src=src, tgt=tgt, start_from=start_from,
        limits=limits, changes=MEASURED | changes,
    )  # fmt: skip
    return folder, (time.process_time() - before) / 60, again


def stopped(run: Path, data: str, keep: quality.Keep) -> tuple[str, tat.Translator, dict[str, Any]]:
    """Where a run should have stopped, by BLEU on val: at its lowest validation loss or its end."""
    scores_by_stop = {}
    losses = [row["val_loss"] for row in read_log(run) if "val_loss" in row]
    best = {"lowest loss": run / "best"} if losses[-1] > min(losses) else {}
    for name, folder in (best | {"end": run}).items():
        translator = read_translator(folder)
        scores_by_stop[name] = quality.scores(translator, data)["bleu"], translator
    stop = max(scores_by_stop, key=lambda name: scores_by_stop[name][0])
    translator = scores_by_stop[stop][1]
    # again: only this one's lines are kept
    return stop, translator, quality.scores(translator, data, keep=keep)


def benchmark(
    *, data: Data = "multi30k", src: str = "de", tgt: str = "en", test: str = "test_2016_flickr",
    sizes: Annotated[Counts, Parameter(help="numbers of pairs")] = SIZES,
    starts: tuple[Starts, ...] = ("scratch", "other direction"), seeds: Seeds = (0, 1, 2),
    steps: Count | None = None, runs: Runs = Path("runs"), changes: Changes = None,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train on 500 pairs, 1,000, ... and score what comes of it.

    Each seed draws its own pairs, so the spread over seeds holds what the choice of sentences does,
    too. All sizes share `val`. Settings follow the number of pairs, as `plan` recommends them;
    those for 500 pairs were tried on `val` (rows of kind "choice"). Seeds come one after the other,
    each with all sizes. The command can be stopped and given again: an interrupted run continues,
    and a row that is saved is not trained again.

    "other direction" begins with the weights and the vocabulary of models/multi30k-en-de. That
    model has learned from all 29,000 pairs of Multi30k the other way round, so it has met every
    sentence of these samples, but has never written English. A row of kind "text" says what share
    of val's neighbouring words these pairs show; `plan` reads it. In a row, `cpu_minutes` are those
    of the last try; if `continued`, there was an earlier one, and `minutes` has both.

    Args:
        test: the split that finished runs are scored on
        steps: updates of a run; by default as `plan` says
    """
    changes = changes or {}
    languages = src, tgt
    corpus = {"data": portable(data), "direction": f"{src}-{tgt}"}
    for seed, pairs in itertools.product(seeds, sizes):
        name = f"{Path(data).name} {src} {tgt} {seed} {pairs}"
        folder = runs / "curve" / "text" / name.replace(" ", "-")
        text = sample(data, pairs, seed, languages, folder)
        text_key = {"kind": "text"} | corpus | {"pairs": pairs, "seed": seed}
        if not rows.saved(text_key):
            texts = (load_pairs(str(text), split, *languages) for split in ("train", "val"))
            rows.add(text_key | {"seen": seen(*texts)})
        for start in starts:
            settings, updates = recipe(pairs, start != "scratch")
            settings = settings | changes | {"seed": seed}
            updates = steps or updates
            run_key = {"kind": "curve"} | corpus
            run_key |= {"pairs": pairs, "start": start, "seed": seed}
            run_key |= {"updates": updates, "changed": settings}
            if rows.saved(run_key):
                continue
            values = "-".join(f"{key}-{value}" for key, value in settings.items())
            run = runs / "curve" / f"{name} {start} {updates} {values}".replace(" ", "-")
            run, minutes, again = trained(run, text, languages, start, settings, updates)
            keep = quality.keeping(rows, f"curve {name} {start} {updates}")
            scored = data if data == "multi30k" else str(text)
            row = run_key | scores_of(run, scored, keep, data, test)
            row |= {"cpu_minutes": round(minutes, 2), "continued": again}
            rows.add(row, choose_device())
            print(
                "{pairs:,} pairs, {start}, seed {seed}".format(**run_key),
                f"val {row['val']['bleu']:.1f}, test {row['test']['beam']['bleu']:.1f}",
                f"{minutes:.1f} CPU minutes",
                sep=": ", flush=True,
            )  # fmt: skip


def scores_of(run: Path, scored: str, keep: quality.Keep, data: str, test: str) -> dict[str, Any]:
    """A finished run's figures: of its log, on the val of `scored`, and on a split of `data`."""
    stop, translator, val = stopped(run, scored, keep)
    row = quality.describe(run, translator) | {"preset": "tiny", "stopped_at": stop, "val": val}
    validations = [logged for logged in read_log(run) if "val_loss" in logged]
    row["val_losses"] = {logged["step"]: logged["val_loss"] for logged in validations}
    row["test"] = {"split": test}
    for search, beam in (("greedy", 1), ("beam", tat.BEAM)):
        row["test"][search] = quality.scores(translator, data, test, beam, keep=keep)
    return row
