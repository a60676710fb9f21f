"""Where the program runs: in notebooks, and beside what a reader has there already."""

import base64
import builtins
import io
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import ROOT, caption_files, refused
from translator.__main__ import main
from translator.files import model_folder
from translator.scoring import score
from translator.sources import load_pairs

SMALL = "--N 1 --d-model 8 --d-ff 8 --h 1 --bpe 50 --tokens-per-batch 400"


class Cell(io.TextIOBase):
    """What a notebook puts in the place of a stream: text can be written to it, and no more."""

    def __init__(self):
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


# --- Streams ---
def test_every_command_works_from_a_cell(monkeypatch, tmp_path):
    """Where streams have neither `reconfigure` nor `buffer` nor `fileno`."""
    out = Cell()
    error = Cell()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    run = str(tmp_path / "run")
    for command in (
        f"train --data captions --run {run} {SMALL} --steps 2 --checkpoint-every 1",
        f"translate Hund --model {run}",
        f"evaluate --data captions --split test --model {run} --beam 1",
        f"average {run} --last 2 --out {run}2",
        f"explain Hund --model {run} --out {run}.html",
        f"export --model {run} --to half --out {run}3",
        f"captions --out {run}4",
        "--help",
    ):
        assert main(command.split()) == 0, error.text
    assert "BLEU" in out.text and "100%" in out.text
    assert main(["translate", "Hund", "--model", "nowhere"]) == 2
    assert error.text.count("error: ") == 1


@pytest.fixture
def under_ipython(monkeypatch) -> Iterator[types.ModuleType]:
    """The module __main__ of a notebook or of IPython's shell."""
    monkeypatch.setattr(builtins, "__IPYTHON__", True, raising=False)
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    return sys.modules["__main__"]


def test_a_script_with_arguments_is_a_command_under_ipython_too(under_ipython, monkeypatch):
    """`%run the_annotated_transformer.py translate ...`; a kernel has arguments, but no file."""
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "kernel.json"])
    assert tat.in_notebook("__main__") and not tat.in_notebook("the_annotated_transformer")
    under_ipython.__file__ = tat.__file__
    monkeypatch.setattr(sys, "argv", [tat.__file__])
    assert tat.in_notebook("__main__")  # `%run` alone runs the document
    monkeypatch.setattr(sys, "argv", [tat.__file__, "translate", "Hund"])
    assert not tat.in_notebook("__main__")


# --- What was there ---
def test_what_a_reader_has_is_not_written_over(capsys, tmp_path):
    """Catches a corpus replaced by captions."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.de").write_text("meins\n")
    assert "exists already" in refused(capsys, f"captions --out {mine}")


def test_the_judge_writes_over_nothing_and_returns_what_it_found(monkeypatch, capsys, tmp_path):
    """Catches the reader's code, or an earlier report, that is emptied."""
    mine = tmp_path / "mine.py"
    report = tmp_path / "report"
    command = ["judge", str(mine), "--report"]
    mine.write_text("mine")
    report.write_text("earlier")
    ends = ((KeyboardInterrupt, 130, "earlier"), ([False], 1, "\n"), ([True], 0, "\n"))
    for verdict, status, text in ends:
        monkeypatch.setattr("practice.judge.judge", Mock(side_effect=verdict))
        assert main([*command, str(report)]) == status and report.read_text() == text
    monkeypatch.setattr("practice.judge.judge", lambda path, gate, split, say, _: say("judged"))
    monkeypatch.setattr("time.sleep", Mock(side_effect=[None, KeyboardInterrupt]))
    assert main([*command, str(report), "--watch"]) == 130 and report.read_text() == "judged\n"
    tutor = tmp_path / "AGENTS.md"
    tutor.write_text("mine")
    assert main(["judge", "--new", str(tmp_path / "new.py")]) == 0 and tutor.read_text() == "mine"
    tutor.unlink()
    assert main(["judge", "--new", str(tmp_path / "newer.py")]) == 0
    assert "newer.py" in tutor.read_text()


def test_what_a_file_learns_is_asked_for_by_its_source(monkeypatch, capsys, tmp_path):
    """--learn alone means numbers; a report in JSON is as Gradescope reads it."""
    (mine := tmp_path / "mine.py").write_text("mine")
    report = tmp_path / "results.json"
    monkeypatch.setattr("practice.learn.learn_numbers", lambda path, say, typed: say("20") or True)
    for learn in (["--learn"], ["--learn", "numbers"], ["--learn", "--gate", "1"]):
        assert main(["judge", str(mine), *learn, "--report", str(report)]) == 0
        result = json.loads(report.read_text())
        assert result["score"] == result["tests"][0]["score"] == 1 and result["output"] == "20\n"
    command = ["judge", str(mine), "--learn", "captions", "--report", str(tmp_path / "text")]
    assert "needs a folder" in refused(capsys, command)
    assert "no folder of `judge" in refused(capsys, ["judge", str(mine), "--run", str(tmp_path)])


# --- Signals ---


def test_a_card_without_kernels_is_left_to_itself(monkeypatch, capsys, few_phrases):
    """Simulated: the program says what to do, and the document goes on with the CPU."""
    monkeypatch.delenv("ANNOTATED_DEVICE", raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("meta"))
    assert "--device cpu" in refused(capsys, "translate Hund --engine pytorch")
    tat.tried_device.cache_clear()
    assert tat.best_device() == tat.best_device() == torch.device("cpu")
    assert capsys.readouterr().out.count("NOTICE: meta doesn't compute here") == 1


# --- Memory and length ---


@pytest.fixture
def data(tmp_path) -> Path:
    """A corpus whose last pair is far longer than the others."""
    folder = caption_files(tmp_path / "data", train=60, val=20)
    for name, word in (("train.de", "Hund "), ("train.en", "dog ")):
        with (folder / name).open("a") as file:
            file.write(word * 600 + "\n")
    return folder


def test_one_pair_makes_no_run_unfinishable(monkeypatch, capsys, data, tmp_path):
    """What is too long is named with its line, before anything is learned, and can be left out."""
    command = f"train --data {data} --run {tmp_path / 'run'} {SMALL} --steps 1"
    error = refused(capsys, command)
    assert "--tokens-per-batch is 400, but the longest sentence has 602 tokens" in error
    assert "line 61); --longest 400 leaves" in error
    # with pairs left out, the store's rows don't number the text's lines
    assert "602 tokens; --longest 400" in refused(capsys, f"{command} --longest 700")
    assert main([*command.split(), "--longest", "100"]) == 0
    assert "of more than 100 tokens, which are left out: 1" in capsys.readouterr().err
    assert "longest = 100, not None" in refused(capsys, command)


# --- Text ---
PAIRS = {
    "zh": "狗在跑。",
    "ja": "犬が走っている。",
    "th": "สุนัขกำลังวิ่ง",
    "ko": "개가 지금 뛰고 있어요.",
}


@pytest.mark.parametrize("language", PAIRS)
def test_a_perfect_translation_has_all_points_in_every_script(language):
    """And its signature says how it was cut; catches words that are whole sentences."""
    text = PAIRS[language]
    perfect = score([text] * 9, [text] * 9, language)
    measures = ("bleu", "bleu_lower", "bleu_moses", "chrf")
    assert all(perfect[name] == pytest.approx(100) for name in measures)
    assert ("tok:13a" in perfect["bleu_signature"]) == (language == "ko")
    assert score([text[::-1]] * 9, [text] * 9, language)["bleu"] < 60


def test_the_document_and_the_program_read_alike(tmp_path):
    """Byte-order marks, entities, letters in two parts; what is no UTF-8 has its line."""
    odd = "\ufeffEin M\u0061\u0308dchen &amp; ein Hund.\n\ufeffEr sagt &quot;ja&quot; &amp;#39;\r\n"
    for language in ("de", "en"):
        (tmp_path / f"train.{language}").write_text(odd, encoding="utf-8")
    pairs = [("Ein Mädchen & ein Hund.",) * 2, ('Er sagt "ja" \'',) * 2]
    assert tat.read_split(str(tmp_path), "train") == load_pairs(str(tmp_path), "train") == pairs
    for latin in (b"M\xe4dchen\n", "Mädchen\n".encode("utf-16")):
        (tmp_path / "train.de").write_bytes(b"Hund\n" + latin)
        for read in (tat.read_split, load_pairs):
            with pytest.raises(ValueError, match=r"train\.de, line 2: not UTF-8"):
                read(str(tmp_path), "train")


def test_no_translation_has_entities(capsys):
    """The shipped models have seen some, in sixteen lines of Multi30k."""
    assert main(["translate", "Ein Hund & eine Katze.", "Ein Hund &amp; eine Katze."]) == 0
    assert capsys.readouterr().out == "A dog & a cat.\n" * 2
    lines = (line for line in ["Ein Hund &amp; eine Katze.", ""])
    assert tat.translate_lines(tat.load_translator(model_folder()), lines) == ["A dog & a cat.", ""]


# --- Files of others, and the document's own ---


def test_the_document_writes_over_no_run_and_says_who_reads_it(monkeypatch, tmp_path):
    """Catches a run whose settings are replaced; a translator of its own may be saved again."""
    run = tmp_path / "run"
    command = f"train --data captions --run {run} {SMALL} --positions rotary --steps 1"
    assert main(command.split()) == 0
    translator = tat.load_translator(model_folder())
    before = (run / "config.json").read_bytes()
    with pytest.raises(FileExistsError, match="holds"):
        tat.save_translator(translator, run)
    assert (run / "config.json").read_bytes() == before
    for _ in range(2):
        tat.save_translator(translator, tmp_path / "saved")
    with pytest.raises(ValueError, match=f"py translate --model {run}"):
        tat.load_translator(run)


NOTEBOOKS = ["the_annotated_transformer", "since_2017", "exercises", "lab_notebook"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_chart_keeps_its_picture_wherever_the_notebook_runs(monkeypatch, name):
    """The cell that sets charts up, as any Jupyter runs it: a form, and a picture for GitHub."""
    alt = pytest.importorskip("altair")
    text = (ROOT / f"{name}.py").read_text("utf-8")
    text = text.split('# %% tags=["active-ipynb"]\n')[1].split("\n# %%")[0]
    code = "\n".join(line.removeprefix("#").removeprefix(" ") for line in text.splitlines())
    renderer = alt.renderers.active
    try:
        alt.renderers.enable("default")
        exec(code.replace("!{", "pass  # {"), {})
        chart = alt.Chart(alt.Data(values=[{"a": 1}])).mark_bar().encode(x="a:Q")
        forms = alt.renderers.get()(chart.to_dict())
    finally:
        alt.renderers.enable(renderer)
    assert forms["application/vnd.vegalite.v5+json"]
    assert base64.b64decode(forms["image/png"]).startswith(b"\x89PNG")
