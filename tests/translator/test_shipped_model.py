"""The models in the repository: what their cards say is true."""

import re
import shlex
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import the_annotated_transformer as tat
from benchmarks import quality
from tests.helpers import ROOT
from translator.__main__ import main
from translator.model_folder import read_translator

MODEL = ROOT / tat.SHIPPED_MODEL
MODELS = sorted(path.parent for path in MODEL.parent.glob("*/README.md"))
each_model = pytest.mark.parametrize("model", MODELS, ids=lambda path: path.name)


def card(model: Path) -> str:
    return (model / "README.md").read_text(encoding="utf-8")


def saved(model: Path) -> list[dict]:
    """The scores of the current model, not those of older models with its name."""
    rows = [row for row in tat.saved_rows("quality") if row.get("model") == model.name]
    return [row for row in rows if row["step"] == rows[-1]["step"]]


@each_model
def test_it_is_small(model):
    files = "README.md SHA256SUMS config.json model.safetensors tokenizer.json"
    shipped = [path for path in model.iterdir() if not path.name.startswith(".ctranslate2-")]
    assert {path.name for path in shipped} == set(files.split())
    assert sum(path.stat().st_size for path in shipped) <= 20e6
    with safe_open(model / "model.safetensors", "pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118
        assert kinds == {torch.float16}
    parameters = quality.describe(model, read_translator(model))["parameters"]
    assert parameters <= 10e6 and f"{parameters:,} parameters" in " ".join(card(model).split())


@each_model
def test_the_command_on_the_card_translates(model, capsys):
    command = r"^python the_annotated_transformer.py (translate .*)$"
    command = shlex.split(re.search(command, card(model), re.M)[1])
    named = Path(command[2]) if command[1] == "--model" else Path(tat.SHIPPED_MODEL)
    assert named.name == model.name
    assert main([word if word != str(named) else str(model) for word in command]) == 0
    words = set(re.findall(r"\w+", capsys.readouterr().out.lower()))
    assert {"dog", "through", "snow"} <= words or {"hund", "durch", "schnee"} <= words


@each_model
def test_the_card_quotes_saved_rows(model):
    rows, text = saved(model), card(model)
    line = r"^\| (\w+) \| (greedy|beam \d+, alpha [\d.]+) \| ([\d.]+(?: \| [\d.]+)+) \|$"
    quoted = re.findall(line, text, re.M)
    kinds = ["bleu", "bleu_lower", "chrf", "bleu_moses"]
    assert len(quoted) >= 4
    for split, search, figures in quoted:
        scores = figures.split(" | ")
        assert len(scores) >= 3
        alike = [r for r in rows if (r["split"], r["search"]) == (split, search)]
        assert scores in [[f"{r[k]:.2f}" for k in kinds[: len(scores)]] for r in alike]
    last = rows[-1]
    flat = " ".join(text.split())
    minutes = f"{last['minutes']:.0f} minutes"
    for quote in (last["bleu_signature"], last["command"], last["commit"], minutes):
        assert quote in flat, quote
    assert f"{last['step']:,} updates, {last['epoch']} passes" in flat


@each_model
def test_the_rows_are_those_of_the_files(model, multi30k):
    row = [r for r in saved(model) if r["split"] == "val" and r["search"] == "greedy"][-1]
    scores = quality.scores(read_translator(model), str(multi30k), "val")
    assert scores["bleu"] == pytest.approx(row["bleu"], abs=0.15)
