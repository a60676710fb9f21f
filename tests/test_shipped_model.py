"""The model in the repository: what its card says of it is true of its files."""

import re
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import the_annotated_transformer as tat
from benchmarks import quality

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / tat.SHIPPED_MODEL
CARD = (MODEL / "README.md").read_text(encoding="utf-8")
ROWS = [row for row in tat.saved_rows("quality") if row.get("model") == MODEL.name]


def test_it_is_small():
    assert {path.name for path in MODEL.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }
    assert sum(path.stat().st_size for path in MODEL.iterdir()) <= 20e6
    with safe_open(MODEL / "model.safetensors", "pt") as file:
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float16}  # noqa: SIM118
    parameters = quality.describe(MODEL)["parameters"]
    assert parameters <= 10e6 and f"{parameters:,} parameters" in CARD


def test_the_command_takes_it_when_none_is_named(capsys):
    assert tat.main(["translate", "Ein Hund läuft durch den Schnee."]) == 0
    words = capsys.readouterr().out.lower().split()
    assert {"dog", "through", "snow."} <= set(words)


def test_the_document_goes_on_without_it(monkeypatch, capsys, tmp_path):
    """Catches a notebook that stops where only the notebook is there."""
    monkeypatch.setattr(tat, "HERE", tmp_path)
    monkeypatch.setattr(tat, "live_run", lambda: MODEL)
    assert tat.our_model().path == MODEL
    assert "NOTICE: models/multi30k-de-en is not beside" in capsys.readouterr().out
    assert tat.main(["translate", "Hund"]) == 2
    assert "make a model with `python the_annotated_transformer.py train" in capsys.readouterr().err


def test_what_is_missing_is_fetched(monkeypatch, tmp_path):
    """Catches a folder that is not made, and half a file."""
    (tmp_path / "public/raw/main").mkdir(parents=True)
    (tmp_path / "public/raw/main/models").symlink_to(ROOT / "models")
    monkeypatch.setattr(tat, "REPOSITORY", (tmp_path / "public").as_uri())
    monkeypatch.setattr(tat, "HERE", tmp_path / "colab")
    assert tat.open_model().path == tmp_path / "colab" / tat.SHIPPED_MODEL
    assert tat.beside("models/nothing") is None and not list((tmp_path / "colab/models").glob("*nothing*"))


def test_the_card_quotes_saved_rows():
    quoted = re.findall(
        r"^\| (\w+) \| (greedy|beam \d+, alpha [\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", CARD, re.M
    )
    saved = {(r["split"], r["search"], *(f"{r[k]:.2f}" for k in ("bleu", "bleu_lower", "chrf"))) for r in ROWS}
    assert len(quoted) >= 4 and set(quoted) <= saved
    last = ROWS[-1]
    for text in (last["bleu_signature"], last["command"], last["commit"], f"{last['minutes']:.0f} minutes"):
        assert text in CARD, text
    assert f"{last['step']:,} updates, {last['epoch']} passes" in CARD.replace("\n", " ")


def test_the_rows_are_those_of_the_files(multi30k):
    row = [r for r in ROWS if r["split"] == "val" and r["search"] == "greedy"][-1]
    assert quality.scores(MODEL, str(multi30k), "val")["bleu"] == pytest.approx(row["bleu"], abs=0.15)
