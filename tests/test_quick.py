"""For a first red light: a training that is continued, and a translation, through the command line."""

from pathlib import Path

import pytest

from translator.__main__ import main
from translator.files import read_tensors

pytestmark = pytest.mark.quick

SMALL = "--data captions --N 1 --d-model 16 --d-ff 16 --h 2 --bpe 100 --tokens-per-batch 600 --warmup 10"


def test_a_training_goes_on_where_it_stopped_and_its_model_translates(tmp_path: Path, capsys):
    for folder, stops in (("whole", (6,)), ("parts", (3, 6))):
        for steps in stops:
            assert main(["train", *SMALL.split(), "--run", str(tmp_path / folder), "--steps", str(steps)]) == 0
    ours, theirs = (read_tensors(tmp_path / name / "checkpoints/state.safetensors")[0] for name in ("parts", "whole"))
    assert ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)
    capsys.readouterr()
    assert main(["translate", "Ein Hund.", "--model", str(tmp_path / "parts")]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_the_shipped_model_translates(capsys):
    assert main(["translate", "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."]) == 0
    assert capsys.readouterr().out == "Two women are sitting on a bench while a man reads a newspaper.\n"
