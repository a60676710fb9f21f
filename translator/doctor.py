"""After a training, or in its midst: what is wrong with a run.

`practice/examine.py` has the examinations and what each means; those that hold for trained models
are made here, and a run is made a patient of theirs. Its log adds what no model shows: whether it
has learned anything but the frequency of words, whether it should have stopped, whether it was
stopped too soon. The bounds for real text are wider than those for German numbers, on which the
catalogue was measured.
"""

import math
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

from practice import mistakes
from practice.examine import TESTS, Finding, Patient, examine
from practice.mistakes import CATALOGUE, Mistake
from practice.wires import predict_with
from the_annotated_transformer import Pair, Transformer, Translator
from translator.corpus import encode_pairs
from translator.files import Refused, read_json
from translator.model_folder import read_translator
from translator.run import read_log, token_store
from translator.settings import saved_settings
from translator.sources import FullPairs

# the cheap ones that hold for a trained model
EXAMS = ("wires", "loss", "swap", "translations", "references")
SOME = 48  # pairs that are examined
# nats; a model that reads loses more by another's source: captions after 90 seconds, one core: 0.69
YOUNG = 0.5
SUSPECTS = {  # a test that is ill, and kinds of mistakes that it was ill with
    "future": ("mask", "attention", "heads", "norm"), "past": ("mask",), "padding": ("mask",),
    "source": ("heads", "data"), "neighbours": ("positions", "norm"),
    "first loss": ("shift", "data"), "source order": ("positions",),
    "target order": ("positions",), "looks ahead": ("mask",), "twice": ("report",),
    "swap": ("heads", "data"), "variety": ("heads", "data"), "alone": ("decoding",),
    "fed back": ("decoding",), "peeks": ("report",), "frequency": ("schedule", "data", "adam"),
}  # fmt: skip
# as ill in the first update as in the last
WIRED = "future", "padding", "neighbours", "twice", "peeks", "skipped"
EVERY = (
    "future", "past", "padding", "neighbours", "source", "source order", "target order",
    "looks ahead", "twice",
)  # fmt: skip


class Symptom(NamedTuple):
    """What was seen, in words."""

    test: str
    state: str  # well, young or ill
    said: str


def patient_of(model: Transformer) -> Patient:
    """A trained model as `practice.examine` needs it, with the document's greedy decoding.

    The program's own search refuses a model that sees the future, and such ones come to a doctor.
    """

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return mistakes.translate(model, pairs, max(len(pair.src) for pair in pairs) + 15)

    return Patient(partial(predict_with, model), model, decode=decode)


def some_pairs(folder: Path, translator: Translator, data: str | None) -> list[Pair]:
    """Held-out pairs of a run, or of a source if one is given.

    Raises Refused if there is neither, or too little text.
    """
    store = token_store(folder, "val", translator.tokenizer)
    if data:
        texts = islice(FullPairs(data, "val", *translator.languages), 4 * SOME)
        found = encode_pairs(translator.tokenizer, texts, translator.languages)
    elif store.path.with_suffix(".starts").exists():
        found = store.pairs(range(min(len(store), 4 * SOME)))
    else:
        advice = "--data names a source with the split val"
        raise Refused(f"{folder} holds no text to examine it with; {advice}")
    found = [pair for pair in found if 3 < len(pair.src) < 60 and 3 < len(pair.tgt) < 60][:SOME]
    if len({tuple(pair.src) for pair in found}) < 8:
        few = "val has fewer than eight sentences of three to sixty tokens"
        raise Refused(f"{data or folder}: {few}")
    return found


def of_log(rows: list[dict], warmup: int, guessing: float | None) -> list[Symptom]:
    """What the log of a run shows by itself; `guessing` is the loss of word frequencies."""
    losses = [row["val_loss"] for row in rows if "val_loss" in row]
    step = max([row["step"] for row in rows], default=0)
    skipped = max([row.get("skipped", 0) for row in rows], default=0)
    last = f"validation loss {losses[-1]:.2f}" if losses else ""
    found = []
    if rows and step < warmup:
        said = f"{step} updates, and the rate rises until {warmup}: train longer"
        found += [("warmup", "young", said)]
    if guessing and losses and step >= warmup and losses[-1] > guessing - 0.5:
        said = f"{last} after the warmup; knowing nothing but word frequencies has {guessing:.2f}"
        found += [("frequency", "young" if step < 3 * warmup else "ill", said)]
    if len(losses) > 3 and losses[-1] > min(losses) + 0.1:
        heart = "it learns its text by heart; RUN/best is better"
        said = f"{last}, but it was {min(losses):.2f}: {heart}"
        found += [("overfit", "ill", said)]
    elif len(losses) > 1 and losses[-2] - losses[-1] > 0.1:
        said = f"{last}; it still falls, before it was {losses[-2]:.2f}: train longer"
        found += [("falling", "young", said)]
    if skipped > step / 10:
        said = f"{skipped} of {step} updates changed nothing: their gradient wasn't finite"
        found += [("skipped", "ill", said)]
    return [Symptom(*one) for one in found]


def of_finding(finding: Finding) -> Symptom:
    """An examination's finding, with bounds for real text."""
    test, value, state = TESTS[finding.test], finding.value, "ill" if finding.ill else "well"
    if finding.test == "swap" and math.isfinite(value):
        state = "well" if value > YOUNG else "young" if value > 0.05 else "ill"
    if finding.test in ("alone", "fed back") and value >= 0.9:
        state = "well"  # of two tokens as good as alike, rounding takes either
    means = {"well": "", "young": ": it reads, but little as yet", "ill": f": {test.means}"}[state]
    return Symptom(finding.test, state, test.measured.format(value) + means)


def resembles(symptoms: list[Symptom]) -> list[Mistake]:
    """Mistakes of the catalogue that show the first test which is ill.

    There are none if no test is ill, or if no mistake shows it.
    """
    ill = [one.test for one in symptoms if one.state == "ill" and one.test in SUSPECTS]
    first = ill[0] if ill else None
    kinds, exam = SUSPECTS.get(first, ()), "wires" if first in EVERY else None
    known = [one for one in CATALOGUE.values() if one.kind in kinds and not one.harmless]
    order = sorted(known, key=lambda one: kinds.index(one.kind))  # the likeliest kind first
    return [one for one in order if exam is None or one.found == exam]


def diagnose(folder: Path, data: str | None = None) -> dict[str, Any]:
    """The verdict on a run or a model, the mistakes that it resembles, and all symptoms."""
    translator = read_translator(folder, torch.device("cpu"))
    about = read_json(folder / "config.json")
    pairs, settings = some_pairs(folder, translator, data), saved_settings(about["settings"])
    train = token_store(folder, "train", translator.tokenizer)
    guessing = train.guessing() if train.path.exists() else None
    symptoms = of_log(read_log(folder), settings.warmup, guessing)
    patient = patient_of(translator.model)
    symptoms += [of_finding(finding) for finding in examine(lambda: patient, pairs, EXAMS)]
    rows = {tuple(row) for row in patient.decode(pairs)}
    share, sources = len(rows) / len(pairs), len({tuple(pair.src) for pair in pairs}) / len(pairs)
    state = "ill" if share < 0.1 * sources else "young" if share < 0.5 * sources else "well"
    said = f"{len(rows)} different translations of {len(pairs)} sentences"
    symptoms.append(Symptom("variety", state, said))
    # what has just begun doesn't read yet, but its wires are there
    if any(one.test == "warmup" for one in symptoms):
        ill = [one for one in symptoms if one.state == "ill" and one.test not in WIRED]
        symptoms = [one._replace(state="young") if one in ill else one for one in symptoms]
    ill, young = (any(one.state == state for one in symptoms) for state in ("ill", "young"))
    found = resembles(symptoms)
    verdict = "healthy"
    if ill:
        verdict = "resembles" if found else "ill, by none of the mistakes that I know"
        if {one.test for one in symptoms if one.state == "ill"} <= {"overfit"}:
            verdict = "healthy, but it has learned for too long"
    elif young:
        verdict = "undertrained"
    shown = found if verdict == "resembles" else []
    like = [{"name": one.name, "line": one.line, "section": one.section} for one in shown]
    seen = [one._asdict() for one in symptoms]
    return {"run": str(folder), "verdict": verdict, "resembles": like, "symptoms": seen}


def report(found: dict[str, Any]) -> list[str]:
    """The lines that `doctor` prints."""
    lines = [f"{one['state']:<6}{one['said']}" for one in found["symptoms"]]
    lines.append(f"{found['run']}: {found['verdict']}" + (":" if found["resembles"] else ""))
    for one in found["resembles"]:
        lines.append(f"  {one['line']} ({one['name']}; the document: {one['section']})")
    return lines
