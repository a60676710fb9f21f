"""The miniature: rates from saved rows, and variants trained like the preset."""

import json

import pytest

import the_annotated_transformer as tat
from benchmarks import million, miniature
from benchmarks.shared import Rows
from tests.helpers import caption_files
from translator.files import Refused
from translator.settings import PRESETS, make_settings


@pytest.fixture
def folders(tmp_path) -> str:
    """The options for a small corpus, and for where runs are kept."""
    return f"--data {caption_files(tmp_path, train=40, val=6)} --runs {tmp_path}/runs"


def test_the_rate_and_the_warmup_are_those_of_the_lowest_loss(tmp_path):
    """Catches a row of another recipe or of other text, and a recipe without rows."""
    tried = {"recipe": "adam post", "data": "multi30k", "epochs": miniature.EPOCHS}
    rows = [
        tried | {"factor": 0.5, "warmup": 4, "val_loss": 3.0},
        tried | {"factor": 2.0, "warmup": 2, "val_loss": 2.0},
        tried | {"factor": 9.0, "warmup": 9, "val_loss": 0.0, "data": "captions"},
        tried | {"factor": 8.0, "warmup": 8, "val_loss": 0.0, "epochs": 1},
        tried | {"factor": 7.0, "warmup": 7, "val_loss": 0.0, "recipe": "adam pre"},
    ]
    saved = Rows(tmp_path / "saved.jsonl")
    saved.out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert miniature.tuned("adam", "post", saved) == {"factor": 2.0, "warmup": 2}
    with pytest.raises(Refused, match="no row for muon pre"):
        miniature.tuned("muon", "pre", saved)


def test_the_recipes_of_a_million_tokens_go_from_the_paper_to_the_preset(
    rows_of, folders, tmp_path, monkeypatch
):
    """Catches a last recipe that isn't `train`'s, a first not the document's, a row made twice."""
    assert make_settings("tiny", False, million.RECIPES["dropout that grows"]) == PRESETS["tiny"]
    names = [*million.RECIPES]
    paper = million.RECIPES["the paper's parts"]
    live = {name: getattr(tat.LIVE, name) for name in ("factor", "warmup", "dropout")}
    assert live.items() <= paper.items()
    assert (paper["optimizer"], paper["positions"]) == ("adam", "sinusoidal")
    small = {name: recipe | {"N": 1} for name, recipe in million.RECIPES.items()}
    monkeypatch.setattr(million, "RECIPES", small)
    for _ in range(2):
        rows = rows_of(f"million {folders} --steps 2 --only Muon", "dropout")
    assert [row["recipe"] for row in rows] == [names[2], names[4]]
    assert rows[0]["val_loss"] != rows[1]["val_loss"]
    for row in rows:
        assert million.RECIPES[row["recipe"]].items() <= row["settings"].items()
        assert row["step"] == 2
        assert len(row["samples"]) == len(million.SENTENCES) and row["translations"]
