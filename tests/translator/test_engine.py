"""CTranslate2 as the engine of `translate` and `evaluate`: when, with what, and what it gives."""

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import ROOT, refused
from translator import __main__ as command_line
from translator import engine, sources
from translator.__main__ import main
from translator.ctranslate2_folder import translate as exported
from translator.files import MODEL_FILES, Refused, nobody
from translator.model_folder import read_translator
from translator.search import Search
from translator.settings import Settings
from translator.sources import load_pairs

SHIPPED = ROOT / tat.SHIPPED_MODEL
SIZES = "--N 2 --d-model 32 --d-ff 48 --h 2 --tokens-per-batch 600 --warmup 30 --factor 2"
LINES = [
    "Ein Hund läuft durch den Schnee.", "", "Zwei Frauen sitzen auf einer Bank &amp; lesen.",
    " Ein Mann </s> isst.", "▁ <unk> 😀", "Ein Mädchen.",
]  # fmt: skip


@pytest.fixture
def model(tmp_path) -> Path:
    """A copy of the shipped model, not yet converted."""
    folder = tmp_path / "model"
    folder.mkdir()
    for name in MODEL_FILES:
        shutil.copy(SHIPPED / name, folder)
    return folder


def conversions(folder: Path) -> list[str]:
    """The names of a folder's conversions, and of what others may have left."""
    return sorted(path.name for path in folder.glob(".ctranslate2-*"))


@pytest.mark.parametrize("beam", [1, 5])
def test_both_engines_give_the_same_translations(beam):
    """But for ties; catches another penalty, a missing </s>, other tokens, and lines that move."""
    lines = [german for german, _ in load_pairs("captions", "test")[:200]] + LINES
    quick = engine.open_search(SHIPPED, beam, tat.ALPHA, "cpu")
    ours = Search(read_translator(SHIPPED, "cpu"), beam).translate(lines)
    theirs = quick.translate(lines, nobody)
    assert isinstance(quick, engine.Engine)
    different = [row for row in zip(lines, ours, theirs, strict=True) if row[1] != row[2]]
    assert len(different) <= len(lines) / (100 if beam == 1 else 20), different
    assert theirs[-5] == "" and "&" in theirs[-4]


KINDS = [
    "--words", "--bpe 300 --positions sinusoidal --tie none", "--bpe 300 --positions rotary",
    "--bpe 300 --norm post --positions learned",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_run_is_translated_by_the_engine(tmp_path, kind, capsys):
    """Catches any weight in the wrong place, other positions, another epsilon, a missing </s>.

    With whole words, spaCy cuts them; an unknown one shows as it does by PyTorch.
    """
    run = tmp_path / "run"
    assert main(f"train --data captions --run {run} {SIZES} --steps 60 {kind}".split()) == 0
    lines = [german for german, _ in load_pairs("captions", "test")[:30]] + ["Ein Quastenflosser."]
    quick = engine.open_search(run, 1, tat.ALPHA, "cpu", "ctranslate2")
    assert quick.translate(lines, nobody) == Search(read_translator(run, "cpu")).translate(lines)


def test_what_is_exported_translates_text(tmp_path):
    """The script in the folder, run as its card says: text in, text out, an empty line for one."""
    out = tmp_path / "served"
    assert main(["export", "--out", str(out)]) == 0
    lines = "Ein Hund läuft durch den Schnee.\n\n Zwei Männer sitzen auf einer Bank </s>.\n"
    command = [sys.executable, out / "translate.py"]
    process = subprocess.run(command, input=lines, capture_output=True, text=True)
    texts = process.stdout.split("\n")
    assert texts[0] == "A dog runs through the snow.", process.stderr
    assert texts[1] == "" and len(texts) == 4, process.stderr
    assert texts[2].startswith("Two men are sitting on a bench") and "▁" not in process.stdout
    assert "de to en" in (out / "README.md").read_text(encoding="utf-8")


IMPORTS = """
import sys
from translator.__main__ import main
status = main(sys.argv[1:])
heavy = {"torch", "spacy", "the_annotated_transformer"} & sys.modules.keys()
sys.exit(f"imported {heavy}" if heavy else status)
"""


@pytest.mark.parametrize(
    "arguments",
    [
        ["translate", "Ein Hund."],
        ["evaluate", "--data", "captions", "--split", "val", "--beam", "1"],
        ["train", "--help"],
    ],
)
def test_a_command_imports_what_it_needs(arguments):
    """PyTorch takes ten times as long to import as a translation takes."""
    engine.conversion_of(SHIPPED)
    process = subprocess.run(
        [sys.executable, "-c", IMPORTS, *arguments], cwd=ROOT, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr


def test_a_model_is_converted_once_and_anew_after_more_training(model, capsys):
    """Catches a conversion of earlier weights, a second one, and what is left of the first."""
    first = engine.conversion_of(model)
    stamp = (first / "model.bin").stat().st_mtime_ns
    assert engine.conversion_of(model) == first
    assert (first / "model.bin").stat().st_mtime_ns == stamp
    assert (first / ".gitignore").read_text() == "*\n"  # whoever commits a model leaves it out
    with torch.no_grad():
        translator = read_translator(model, "cpu")
        translator.model.generator.proj.weight[7] += 1
        tat.save_translator(translator, model)
    second = engine.conversion_of(model)
    assert second != first and conversions(model) == [second.name]
    assert main(["translate", "Hund", "--model", str(second)]) == 2  # it is no model of its own
    assert "not the configuration of a model" in capsys.readouterr().err


def test_without_the_package_pytorch_translates(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)
    assert main(["translate", "Ein Hund.", "Ein Mann."]) == 0
    out, error = capsys.readouterr()
    assert out == "A dog.\nA man.\n"
    assert error.count("note: ") == 1 and "package ctranslate2 is missing" in error
    assert "ctranslate2 is missing" in refused(capsys, "translate Hund --engine ctranslate2")


def test_a_model_with_a_part_of_the_readers_own_is_translated_by_pytorch(monkeypatch, capsys):
    """Said once, with the name of the part."""
    forward = tat.PositionwiseFeedForward.forward

    def louder(self, x):
        return 1.5 * forward(self, x)

    monkeypatch.setattr(tat.PositionwiseFeedForward, "forward", louder)
    monkeypatch.setattr(engine, "fingerprint", lambda folder: "changed")
    assert main(["translate", "Ein Hund.", "Ein Mann."]) == 0
    error = capsys.readouterr().err
    assert error.count("encoder.layers.0 (EncoderLayer) is not the paper's") == 1


def test_options_of_the_engine_that_do_not_fit_are_refused(capsys):
    for options, message in (
        ("--type float3", "--type float3"), ("--type int8 --engine pytorch", "--type is CTrans"),
        ("--json --engine ctranslate2", "--json is PyTorch's work"), ("--beam 0", "--beam must"),
        ("--device meta", "cannot be used here"),
    ):  # fmt: skip
        assert message in refused(capsys, f"translate Hund {options}")


def test_a_score_says_what_computed_it(capsys):
    """The engine, its version, and the type of its numbers."""
    command = "evaluate --data captions --split val --json --beam 1"
    for options, expected in (
        ("--type int8", '"engine": "ctranslate2", "version": "4.'),
        ("--engine pytorch", f'"engine": "pytorch", "version": "{torch.__version__}"'),
    ):
        assert main([*command.split(), *options.split()]) == 0
        out = capsys.readouterr().out
        assert expected in out and ('"type": "int8' in out) == ("int8" in options)


def test_what_stands_twice_is_the_same():
    """The exported script and the command line import no document, so they repeat a few things."""
    for text in ("\ufeff Käse &amp;amp; Brot ", "Ka\u0308se &lt;b&gt;", "a &nbsp; b", "&quot"):
        assert exported.plain(text) == tat.plain(text)
    assert (command_line.BEAM, command_line.ALPHA) == (tat.BEAM, tat.ALPHA)
    assert tat.CHECKSUMS.items() <= sources.MULTI30K_FILES.items()
    defaults = Settings()
    for field in fields(tat.Config):
        assert getattr(defaults, field.name) == field.default
    with pytest.raises(Refused, match="UTF-16"):
        sources.decoded_line("Hund".encode("utf-16-le"), "x", 1)
