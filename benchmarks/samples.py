"""Samples before scores: sentences by the document's model as it learns, and by the shipped one."""

from pathlib import Path
from typing import Any

import torch

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Rows, Runs
from translator.files import Refused

SENTENCES = [
    *tat.OUR_SENTENCES,
    "Ein Hund läuft durch den Schnee.",
    "Mein Nachbar hat gestern sein Fahrrad verkauft.",  # nobody would write this under a photograph
]


def benchmark(*, runs: Runs = Path("runs"), rows: Rows = RESULTS) -> None:
    """Translate some sentences, none of which is in Multi30k,
    with weights that the document's training run has kept.

    The weights are in RUNS/learning, each file named by its number of updates. The last entry of
    the row is the shipped model.
    """
    # no copies, whose names are no numbers
    kept = sorted(path for path in (runs / "learning").glob("*.pt") if path.stem.isdecimal())
    if not kept:
        raise Refused(f"{runs / 'learning'} holds no weights")
    tokenizer = tat.learn_bpe(tat.load_split("train"), tat.LIVE.bpe)
    model, found = tat.LIVE.make_model(len(tokenizer)).eval(), []
    for path in kept:
        weights = torch.load(path, map_location="cpu")["weights"]
        model.load_state_dict(weights, strict=False)  # tied: under one name
        found.append({"updates": int(path.stem)} | translations(tat.Translator(model, tokenizer)))
    found.append({"model": Path(tat.SHIPPED_MODEL).name} | translations(tat.our_model()))
    for stage in found:
        print(stage)
    rows.add({"seed": tat.LIVE.seed, "sentences": SENTENCES, "stages": found}, torch.device("cpu"))


def translations(translator: tat.Translator) -> dict[str, Any]:
    """What a model makes of the sentences, greedily."""
    return {"translations": tat.translate_lines(translator, SENTENCES)}
