"""What shows a mistake: every one of the catalogue is made, trained and examined."""

import contextlib
import functools
import json
import math
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import torch

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Rows, Seeds
from practice import examine, mistakes
from practice.mistakes import CATALOGUE, HEALTHY, made, settings_with
from the_annotated_transformer import Config, Pair, number_pair
from translator.files import write_text
from translator.settings import Count

CONTROLS = {  # no mistake, with the settings that some of them need
    "healthy": {},
    "healthy, two layers": {"N": 2},
    "healthy, dropout": {"dropout": 0.1},
    "healthy, post-norm": {"N": 2, "norm": "post"},
}
NAMES = (*CONTROLS, *CATALOGUE)


@contextlib.contextmanager
def patient_of(name: str) -> Iterator[Config]:
    """The document with a mistake, or as it is; gives the settings."""
    if name in CONTROLS:
        yield Config(**(vars(HEALTHY) | CONTROLS[name]))
    else:
        with made(name):
            yield settings_with(name)


def numbers_of(seed: int) -> tuple[list[int], list[int]]:
    """The numbers from 100 to 999 to learn from, and those held out, as in the document."""
    large = list(range(100, 1000))
    random.Random(seed).shuffle(large)
    return large[180:], large[:180]


@contextlib.contextmanager
def quick_adam() -> Iterator[None]:
    """Adam in one call: a sixth faster for so small a model; mistakes may replace it again."""
    with mock.patch.object(torch.optim, "Adam", functools.partial(torch.optim.Adam, fused=True)):
        yield


def train(config: Config, seed: int, updates: int) -> tuple[tat.Trainer, list[float], set[int]]:
    """Learn German numbers; returns the trainer, the losses, and what was seen."""
    # The losses end with the first that is no number.
    to_learn, held_out = numbers_of(seed)
    torch.manual_seed(seed)
    trainer = tat.Trainer(config.make_model(len(tat.LETTERS)), config)
    losses: list[float] = []
    seen: set[int] = set()
    numbers = mistakes.numbers(to_learn, held_out, random.Random(seed))
    while len(losses) < updates and (not losses or math.isfinite(losses[-1])):
        chosen = next(numbers)
        seen.update(chosen)
        try:
            losses.append(trainer.update([number_pair(n) for n in chosen]))
        except ValueError:  # the gradient isn't finite
            losses.append(math.nan)
    return trainer, losses, seen


def mean(losses: list[float]) -> float:
    """Their mean, rounded as a row has it."""
    return round(sum(losses) / len(losses), 4)


def measures(
    trainer: tat.Trainer, losses: list[float], seen: set[int], held_out: list[int]
) -> dict[str, Any]:
    """What a reader sees of a finished run, and what the examinations of a trained model find."""
    tenth = len(losses) // 10
    curve = [mean(losses[i : i + 50]) for i in range(0, 10 * tenth, tenth)]
    row = {"loss": mean(losses[-100:]), "curve": curve}
    learned_numbers = random.Random(0).sample(sorted(seen - set(held_out)), 60)
    patient = examine.of_trainer(trainer)
    pairs = mistakes.examined([number_pair(n) for n in held_out])
    learned = mistakes.examined([number_pair(n) for n in learned_numbers])
    for kind, pairs_of_kind in (("known", learned), ("held_out", pairs)):
        row |= {f"{kind}_{key}": value for key, value in reported(trainer, pairs_of_kind).items()}
        row[f"{kind}_exact"] = round(examine.exact(patient, pairs_of_kind), 4)
    row["overlap"] = round(len(seen & set(held_out)) / len(held_out), 3)
    row["samples"] = ["".join(tat.LETTERS[i] for i in ids) for ids in patient.decode(pairs[:5])]
    return row | {"trained": findings(lambda: patient, pairs[:60], examine.TRAINED)}


@torch.inference_mode()
def reported(trainer: tat.Trainer, pairs: list[Pair]) -> dict[str, float]:
    """Loss and teacher-forced accuracy as the reader's own code reports them."""
    with tat.evaluating(trainer.model):
        batch = tat.make_batch(pairs)
        best = trainer.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).argmax(-1)
        loss = tat.batch_loss(trainer.model, batch, 0.0).item() / batch.ntokens
    return {
        "loss": round(loss, 4),
        "forced": round((best == batch.tgt_y)[batch.tgt_y != tat.PAD].float().mean().item(), 4),
    }


def findings(
    make: Callable[[], examine.Patient], pairs: list[Pair], exams: list[str]
) -> dict[str, float | None]:
    """The values of all tests that can be asked, rounded; None for what is no number."""
    values = [item for item in examine.examine(make, pairs, exams) if item.value is not None]
    return {test: float(f"{value:.5g}") if math.isfinite(value) else None for test, value in values}


def patient(name: str, seed: int, updates: int, runs: dict) -> dict[str, Any]:
    """A row: the curve, the numbers that are usually looked at, and every finding."""
    to_learn, held_out = numbers_of(seed)
    small = random.Random(seed + 1).sample(range(100), 10)
    pairs = [number_pair(n) for n in small + held_out[:22]]
    with quick_adam(), patient_of(name) as config:
        start = time.process_time()
        make = functools.partial(examine.of_document, config, seed=seed)
        row = {"fresh": findings(make, pairs, examine.FRESH)}
        row["examined_s"] = round(time.process_time() - start, 2)
        if name in CATALOGUE and not CATALOGUE[name].trains:
            run = runs[seed] = runs.get(seed) or train(HEALTHY, seed, updates)
        else:
            run = train(config, seed, updates)
        row |= {"updates": len(run[1]), "minutes": round((time.process_time() - start) / 60, 2)}
        if math.isfinite(run[1][-1]):
            row |= measures(*run, held_out)
    return row


def ill(row: dict[str, Any]) -> list[str]:
    """The tests that call a row ill; a saved None was no number."""
    values = row.get("fresh", {}) | row.get("trained", {})
    measured = {test: values[test] for test in examine.TESTS if test in values}
    numbers = {test: math.nan if value is None else value for test, value in measured.items()}
    return [test for test, value in numbers.items() if examine.Finding(test, value).ill]


def seen(row: dict[str, Any]) -> list[str]:
    """Where a row looks ill: the curve, held-out numbers, translations, and which examinations."""
    places = []
    diverged = row.get("loss") is None
    if diverged or row["loss"] > 0.2:
        places.append("curve")
    if diverged or row["held_out_forced"] < 0.9 or row["known_loss"] > row["loss"] + 0.3:
        places.append("held out")
    if row.get("held_out_exact", 0.0) < 0.8:
        places.append("written")
    exams = {examine.TESTS[test].exam for test in row["ill"]}
    return places + [exam for exam in examine.EXAMINATIONS if exam in exams]


def judged(row: dict[str, Any]) -> dict[str, Any]:
    """A row, and where it looks ill."""
    row |= {"ill": ill(row)}
    if "planned" not in row:
        return row
    return row | {
        "kind": "healthy" if row["mistake"] in CONTROLS else CATALOGUE[row["mistake"]].kind,
        "seen": seen(row),
    }


def look_again(file: Path) -> None:
    """Say anew of all saved rows where they look ill, after a bound has changed."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    write_text(file, "".join(json.dumps(judged(row)) + "\n" for row in rows))


def benchmark(
    *,
    seeds: Seeds = (0, 1, 2),
    updates: Count = 1500,
    only: tuple[Literal[NAMES], ...] = (),
    again: bool = False,
    rows: Rows = RESULTS,
) -> None:
    """Train and examine every mistake of the catalogue on the document's German numbers.

    One seed after the other; a row that is saved is not made again. Mistakes in decoding share a
    healthy run.

    Args:
        updates: of each training
        only: some of them, such as no_causal_mask
        again: train nothing; only say anew of the rows in --out where they look ill
    """
    if again:
        look_again(rows.out)
        return
    runs: dict[int, Any] = {}
    for seed in seeds:
        for name in only or NAMES:
            patient_key = {"mistake": name, "seed": seed, "planned": updates}
            if not rows.saved(patient_key):
                row = patient_key | patient(name, seed, updates, runs)
                rows.add(judged(row))
                figures = map(row.get, ("loss", "held_out_forced", "held_out_exact"))
                print(name, seed, *figures, flush=True)
