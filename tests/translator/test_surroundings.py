"""Where the program runs: streams missing or replaced, readers and terminals that go away.

And signals, and launchers.
"""

import base64
import builtins
import errno
import importlib.util
import io
import json
import os
import shutil
import signal
import sys
import types
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import torch

import since_2017
import the_annotated_transformer as tat
from benchmarks import __main__ as benchmarks
from blog import notebook
from tests.helpers import ROOT, caption_files, refused
from translator import plan, search, trainer
from translator.__main__ import main
from translator.corpus import write_store
from translator.files import Refused, model_folder, read_tensors
from translator.processes import stop_requests, told
from translator.run_log import accelerator_use, matrix_speed, read_log
from translator.scoring import score
from translator.sources import Corpus, load_pairs, warn_of_hidden
from translator.trainer import ParallelTrainer

SMALL = "--N 1 --d-model 8 --d-ff 8 --h 1 --bpe 50 --tokens-per-batch 400"


class Cell(io.TextIOBase):
    """What a notebook puts in the place of a stream: text can be written to it, and no more."""

    def __init__(self):
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


def unread() -> io.TextIOWrapper:
    """A pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    return os.fdopen(writing, "w")


def full() -> io.TextIOWrapper:
    """A place without room."""
    return open("/dev/full", "w")  # noqa: SIM115


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


# --- Streams ---
@pytest.mark.parametrize(
    "missing", [lambda: None, closed, lambda: io.TextIOWrapper(io.BytesIO()).detach() and None]
)
@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_a_stream_that_is_missing_is_as_good_as_the_null_device(monkeypatch, missing, names):
    """Closed by the shell (`>&-`), or never there, as without a console."""
    for name in names:
        monkeypatch.setattr(sys, name, missing())
    cell = Cell()
    if "stdout" not in names:
        monkeypatch.setattr(sys, "stdout", cell)
    assert main(["translate", "Ein Hund.", "--beam", "1"]) == 0
    assert main(["translate", "--nonsense"]) == 2
    assert cell.text == ("" if "stdout" in names else "A dog.\n")


def test_every_command_works_from_a_cell(monkeypatch, tmp_path):
    """Where streams have neither `reconfigure` nor `buffer` nor `fileno`.

    Catches a command that wants a terminal.
    """
    out, error = Cell(), Cell()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    run = str(tmp_path / "run")
    command = f"train --data captions --run {run} {SMALL} --steps 2 --checkpoint-every 1"
    assert main(command.split()) == 0
    for command in (
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


@pytest.mark.parametrize("text", ["\ufeffEin Hund.\n\nEin Hund.", "Ein Hund.\r\n\r\nEin Hund.\r\n"])
def test_text_may_take_the_place_of_standard_input(monkeypatch, capsys, text):
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["translate", "--beam", "1"]) == 0
    assert capsys.readouterr().out == "A dog.\n\nA dog.\n"


@pytest.mark.parametrize("stream", [None, closed()])
def test_a_standard_input_that_is_closed_is_one_line(monkeypatch, capsys, tmp_path, stream):
    """And the file that would have been written is left as it is."""
    (tmp_path / "out").write_text("mine")
    monkeypatch.setattr(sys, "stdin", stream)
    assert "standard input is closed" in refused(capsys, f"translate --output {tmp_path / 'out'}")
    assert (tmp_path / "out").read_text() == "mine" and len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize(
    ("lost", "names"), [(unread, ["stdout"]), (full, ["stdout"]), (unread, ["stdout", "stderr"])]
)
def test_a_training_goes_on_when_nobody_reads(monkeypatch, capsys, tmp_path, lost, names):
    """`train | head`, `2>&1 | head`, a full disk behind the log; catches success without a model.

    Nothing fails later, either.
    """
    streams = {name: lost() for name in names}
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        command = f"train --data captions --run {tmp_path / 'run'} {SMALL} --steps 10"
        command += " --checkpoint-every 5"
        assert main(command.split()) == 0
    assert read_log(tmp_path / "run")[-1]["step"] == 10
    assert (tmp_path / "run" / "model.safetensors").is_file()
    for stream in streams.values():
        stream.close()  # what was still to be flushed
    said = capsys.readouterr().err
    if "stderr" not in names:
        assert "standard output could not be written" in said and said.count("\n") == 1


@pytest.mark.parametrize("lost", [unread, full])
def test_scores_that_nobody_gets_are_no_success(monkeypatch, capsys, lost):
    """Unlike translations: their reader may have enough, such as `head`; a full disk has not."""
    scores = "evaluate --data captions --split test --beam 1 --json"
    commands = (scores.split(), 2), (["translate", "Hund"], 0 if lost is unread else 2)
    for command, status in commands:
        with monkeypatch.context() as patch, lost() as stream:
            patch.setattr(sys, "stdout", stream)
            assert main(command) == status
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1 if status else said == ""


def test_a_report_that_nobody_gets_is_no_success(monkeypatch, capsys):
    monkeypatch.setattr("translator.plan.plan", lambda *_: {})
    monkeypatch.setattr("translator.doctor.diagnose", lambda *_: {})
    for command in ("plan captions --json", "doctor runs/mine --json"):
        with monkeypatch.context() as patch, unread() as stream:
            patch.setattr(sys, "stdout", stream)
            assert main(command.split()) == 2
        assert "standard output: cannot be written" in capsys.readouterr().err
    command = "translate Hund --beam 1 --output /dev/full"
    assert "/dev/full: cannot be written" in refused(capsys, command)


def test_a_folder_is_written_though_nobody_reads_that_it_is(monkeypatch, tmp_path):
    with unread() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["export", "--to", "half", "--out", str(tmp_path / "half")]) == 0
    assert (tmp_path / "half" / "SHA256SUMS").is_file()


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
    """Catches a corpus replaced by captions, and a file emptied before its new text is there."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.de").write_text("meins\n")
    assert "exists already" in refused(capsys, f"captions --out {mine}")
    assert [path.read_text() for path in mine.iterdir()] == ["meins\n"]
    (mine / "in").write_bytes(b"Hund\nK\xe4se\n")
    (mine / "out").write_text("hours of work\n")
    command = ["translate", "--beam", "1", "--input", str(mine / "in")]
    command += ["--output", str(mine / "out")]
    (mine / "out.partial").write_text("mine, too\n")
    assert main(command) == 2
    assert (mine / "out").read_text() == "hours of work\n"
    (ready,) = mine.glob("out.*.annotated-partial")
    assert ready.read_text().count("\n") == 1
    assert f"is as it was, and the lines that were ready are in {ready}" in capsys.readouterr().err
    ready.unlink()
    (mine / "in").write_text("Ein Hund.\n")
    assert main(command) == 0
    assert (mine / "out").read_text() == "A dog.\n"
    assert {path.name for path in mine.iterdir()} == {"in", "out", "out.partial", "train.de"}
    assert (mine / "out.partial").read_text() == "mine, too\n"


def test_the_judge_writes_over_nothing_and_returns_what_it_found(monkeypatch, capsys, tmp_path):
    """Also in a cell, where leaving Python is no answer.

    Catches the reader's code, or an earlier report, that is emptied.
    """
    mine, report = tmp_path / "mine.py", tmp_path / "report"
    command = ["judge", str(mine), "--report"]
    mine.write_text("mine")
    report.write_text("earlier")
    assert f"--report is {mine} itself" in refused(capsys, [*command, str(mine)])
    assert mine.read_text() == "mine"
    notebook, text = tmp_path / "new.ipynb", tmp_path / "mine.txt"
    text.write_text("mine")
    assert "ends in .py" in refused(capsys, ["judge", "--new", str(notebook)])
    assert not notebook.exists()
    assert "only Python files" in refused(capsys, ["judge", str(text)])
    assert "isn't a file" in refused(capsys, ["judge", str(tmp_path)])
    assert "no such sentences" in refused(capsys, ["judge", str(mine), "--split", "nonsense"])
    with monkeypatch.context() as patch:
        patch.setattr(sys, "flags", Mock(optimize=2))
        assert "-OO" in refused(capsys, ["judge", "--new", str(tmp_path / "new.py")])
        assert not (tmp_path / "new.py").exists()
    ends = ((KeyboardInterrupt, 130, "earlier"), ([False], 1, "\n"), ([True], 0, "\n"))
    for right, status, left in ends:
        monkeypatch.setattr("practice.judge.judge", Mock(side_effect=right))
        assert main([*command, str(report)]) == status and report.read_text() == left
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
@pytest.mark.parametrize("torchrun", [False, True])
def test_a_terminal_that_closes_is_a_request_unless_it_is_ignored(monkeypatch, torchrun):
    """Under nohup it is; but what torchrun passes on was meant for its processes."""
    if torchrun:
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "none")
    for before, heard in ((signal.SIG_DFL, True), (signal.SIG_IGN, torchrun)):
        earlier = signal.signal(signal.SIGHUP, before)
        try:
            with stop_requests() as asked:
                signal.raise_signal(signal.SIGHUP)
            assert asked == [signal.SIGHUP] * heard and signal.getsignal(signal.SIGHUP) == before
        finally:
            signal.signal(signal.SIGHUP, earlier)


# --- Devices, launchers, homes ---
@pytest.mark.parametrize("name", ["GPU", "cuda:77", "meta", "0"])
def test_a_device_that_does_not_compute_is_one_line_in_every_command(
    monkeypatch, capsys, tmp_path, name
):
    """Before a corpus is read; the line says what always works."""
    monkeypatch.setenv("ANNOTATED_DEVICE", name)
    run = tmp_path / "run"
    for command in (
        "translate Hund",
        "evaluate --data captions --split test",
        f"train --data captions --run {run}",
        f"explain Hund --out {run}",
        f"export --out {run} --to half",
    ):
        said = refused(capsys, command)
        assert f"ANNOTATED_DEVICE={name} cannot be used here" in said and "--device cpu" in said
    assert main(["translate", "Hund", "--device", "cpu"]) == 0 and not run.exists()


def test_a_card_without_kernels_is_left_to_itself(monkeypatch, capsys, few_phrases):
    """Simulated: it is there, and computes nothing.

    The program says what to do, the document goes on with the CPU.
    """
    monkeypatch.delenv("ANNOTATED_DEVICE", raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: torch.device("meta"))
    assert "--device cpu" in refused(capsys, "translate Hund --engine pytorch")
    tat.tried_device.cache_clear()
    assert tat.best_device() == tat.best_device() == torch.device("cpu")
    assert capsys.readouterr().out.count("NOTICE: meta doesn't compute here") == 1


@pytest.mark.parametrize(
    "name", ["WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "TORCHELASTIC_MAX_RESTARTS"]
)
def test_variables_of_launchers_may_be_empty_and_wrong_ones_are_named(monkeypatch, name):
    monkeypatch.setenv(name, "")
    assert told(name, 1) == 1
    monkeypatch.setenv(name, "two")
    with pytest.raises(Refused, match=f"{name} in the environment is no number"):
        told(name, 1)


def test_an_empty_number_of_processes_is_one(monkeypatch, tmp_path):
    for name in ("WORLD_SIZE", "RANK"):
        monkeypatch.setenv(name, "")
    assert main(f"train --data captions --run {tmp_path / 'run'} {SMALL} --steps 1".split()) == 0


def test_a_figure_for_the_log_ends_no_training(monkeypatch):
    def fail(*_) -> None:
        raise RuntimeError("not on this device")

    for name in ("reset_peak_memory_stats", "memory_allocated", "max_memory_allocated"):
        monkeypatch.setattr(torch.accelerator, name, fail)
    assert matrix_speed(torch.device("cpu")) > 0 and accelerator_use(torch.device("meta")) == {}


def test_a_system_without_a_count_of_memory_has_all_commands(monkeypatch):
    """As Windows; `plan` alone asks for it."""
    monkeypatch.setitem(sys.modules, "resource", None)
    spec = importlib.util.spec_from_file_location("plan_elsewhere", plan.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sizes = {"N": 1, "d_model": 8, "h": 1, "bpe": 9}
    found = module.rehearse([("Ein Hund.", "A dog.")], ("de", "en"), sizes, 0.0)
    assert found["gigabytes"] == 0.0 and found["tokens_per_second"] > 0


def test_without_a_home_multi30k_may_still_have_a_folder(monkeypatch, multi30k, capsys):
    """A user without a name, as in some containers; without a folder the document takes phrases."""
    homeless = Mock(side_effect=RuntimeError("could not determine the home directory"))
    monkeypatch.setattr("pooch.os_cache", homeless)
    monkeypatch.setenv("MULTI30K_CACHE", str(multi30k))
    assert len(load_pairs("multi30k", "val")) == len(tat.multi30k("val")) == 1014
    monkeypatch.setenv("MULTI30K_CACHE", "")
    error = refused(capsys, "evaluate --data multi30k --split val")
    assert "MULTI30K_CACHE in the environment may name one" in error
    monkeypatch.setattr(Path, "home", homeless)
    assert "~" not in dict(notebook.machine_paths(ROOT)).values()  # after all cells were run
    monkeypatch.delenv("ANNOTATED_DATA", raising=False)
    assert tat.choose_data.__wrapped__() == "phrases" and "NOTICE" in capsys.readouterr().out


# --- Memory and length ---
def test_a_line_that_memory_does_not_suffice_for_costs_itself_alone(monkeypatch, capsys):
    """The others are translated, those of its batch, too; the status says that not all is done."""
    decode = search.fast_beam

    def limited(model, src, *rest, **more):
        if src.size(1) > 20:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: "
                "you tried to allocate 9 bytes"
            )
        return decode(model, src, *rest, **more)

    monkeypatch.setattr(search, "fast_beam", limited)
    lines = io.BytesIO(b"Ein Hund.\n" + b"Hund " * 30 + b"\nEin Hund.")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    assert main(["translate", "--beam", "1", "--engine", "pytorch"]) == 2
    out, error = capsys.readouterr()
    assert out == "A dog.\n\nA dog.\n"
    assert "line 2, of 31 tokens, is left empty: out of memory" in error
    assert "not translated: 1 of 3 lines" in error


@pytest.mark.parametrize(
    "error", [MemoryError("9 bytes"), RuntimeError("DefaultCPUAllocator: not enough memory")]
)
def test_memory_that_is_out_is_one_line_in_every_command(monkeypatch, capsys, tmp_path, error):
    monkeypatch.setattr("translator.model_folder.read_translator", Mock(side_effect=error))
    evaluation = "evaluate --data captions --split test --engine pytorch"
    for command in ("translate Hund --json", evaluation, f"explain Hund --out {tmp_path}/x"):
        assert "error: out of memory" in refused(capsys, command)


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
    said = refused(capsys, command)
    assert "--tokens-per-batch is 400, but the longest sentence has 602 tokens" in said
    told = [f"train.{side}, line 61); --longest 400 leaves" for side in ("en", "de")]
    assert any(one in said for one in told)
    gradient = ParallelTrainer.gradient

    def limited(self, pairs):
        if max(len(pair.src) for pair in pairs) > 500:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return gradient(self, pairs)

    monkeypatch.setattr(ParallelTrainer, "gradient", limited)
    roomy = command.replace("batch 400", "batch 4000")
    assert main(roomy.split()) == 2
    error = capsys.readouterr().err
    assert "line 61); --longest 500 leaves such pairs out, in another --run" in error
    assert "update" not in error
    command = command.replace("/run", "/other")
    assert main([*command.split(), "--longest", "100"]) == 0
    assert "of more than 100 tokens, which are left out: 1" in capsys.readouterr().err
    assert "longest = 100, not None" in refused(capsys, command)
    assert "leaves no pair" in refused(capsys, command.replace("/other", "/third") + " --longest 2")


def test_a_pair_of_val_makes_no_run_unfinishable(monkeypatch, capsys, data, tmp_path):
    """It would end the run at each first checkpoint."""
    for language in ("de", "en"):
        for one, other in (("train", "x"), ("val", "train"), ("x", "val")):
            (data / f"{one}.{language}").rename(data / f"{other}.{language}")
    whole = trainer.mean_loss

    def limited(objective, pairs, *rest):
        if max(len(pair.src) for pair in pairs) > 500:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return whole(objective, pairs, *rest)

    monkeypatch.setattr(trainer, "mean_loss", limited)
    large = SMALL.replace("batch 400", "batch 4000")
    command = f"train --data {data} --run {tmp_path / 'run'} {large} --steps 1"
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert "memory: the longest pair of val has 3,001" in error and "update" not in error
    assert main([*command.replace("/run", "/other").split(), "--longest", "500"]) == 0


def test_plan_leaves_out_what_is_far_longer_than_a_sentence(monkeypatch, data):
    machine = {"tokens_per_second": 9, "tokens_per_pair": 9}
    machine |= {"longest": 5000, "seconds_per_update": 1}
    monkeypatch.setattr(plan, "rehearse", lambda *_: machine)
    command = plan.plan(Corpus(str(data)), 1.0, print)["command"]
    assert " --tokens-per-batch 1000 " in command and command.endswith(" --longest 1000")


# --- A run is its tokens ---
def test_a_run_knows_its_text_in_another_place_and_under_another_name(
    monkeypatch, capsys, tmp_path
):
    data = caption_files(tmp_path / "data", train=40, val=40)
    command = f"train --run {tmp_path / 'run'} {SMALL} --data"
    monkeypatch.chdir(tmp_path)
    for step, name in enumerate((str(data), f"{data}/", "data", "./data"), 1):
        assert main([*command.split(), name, "--steps", str(step)]) == 0
    data.rename(tmp_path / "moved")
    assert main([*command.split(), "moved", "--steps", "5"]) == 0
    assert capsys.readouterr().err == ""
    shutil.copytree("moved", "data")
    for name in ("data", "moved"):
        Path(name, "train.de").write_text("Hund\n" * 40)
    assert "moved, another text" in refused(capsys, f"{command} moved")
    assert main([*command.split(), "data", "--steps", "6"]) == 0
    assert "data has changed since this run began" in capsys.readouterr().err


def test_all_settings_that_differ_are_named_at_once(capsys, tmp_path):
    command = f"train --data captions --run {tmp_path / 'run'} {SMALL} --steps 1"
    assert main(command.split()) == 0
    said = refused(capsys, command.replace("--d-ff 8", "--d-ff 16") + " --norm post --seed 3")
    others = ("d_ff = 8, not 16", "norm = pre, not post", "seed = 0, not 3")
    assert all(other in said for other in others)


@pytest.mark.parametrize("name", ["000001 2", "٠٠٠٠٠١"])
def test_copies_beside_checkpoints_are_left_alone(tmp_path, name):
    """Catches a training that dies at every checkpoint, and a copy that is averaged or removed."""
    command = f"train --data captions --run {tmp_path / 'run'} {SMALL} --checkpoint-every 1 --steps"
    assert main([*command.split(), "1"]) == 0
    copy = tmp_path / "run" / "checkpoints" / f"{name}.safetensors"
    copy.write_bytes(b"")
    assert main([*command.split(), "2"]) == 0 and copy.exists()
    assert main(f"average {tmp_path / 'run'} --last 2 --out {tmp_path / 'out'}".split()) == 0


# --- Text ---
PAIRS = {
    "zh": "狗在跑。",
    "ja": "犬が走っている。",
    "th": "สุนัขกำลังวิ่ง",
    "my": "ခွေးပြေးနေသည်",
    "lo": "ໝາກຳລັງແລ່ນ",
    "ko": "개가 지금 뛰고 있어요.",
}


@pytest.mark.parametrize("language", PAIRS)
def test_a_perfect_translation_has_all_points_in_every_script(language):
    """And its signature says how it was cut; catches words that are whole sentences."""
    found = score([PAIRS[language]] * 9, [PAIRS[language]] * 9, language)
    measures = ("bleu", "bleu_lower", "bleu_moses", "chrf")
    assert all(found[name] == pytest.approx(100) for name in measures)
    assert ("tok:13a" in found["bleu_signature"]) == (language == "ko")
    wrong = score([PAIRS[language][::-1]] * 9, [PAIRS[language]] * 9, language)
    assert wrong["bleu"] < 60


def test_a_score_of_0_that_says_nothing_is_noted():
    notes = []
    assert score(["a dog"], ["a dog"], "en", notes.append)["bleu"] == 0
    assert "no translation has four tokens" in notes[0]


@pytest.mark.parametrize(
    "bad",
    [b"M\xe4dchen\n", "Mädchen\n".encode("utf-16"), "Hund\n".encode("utf-16-le")],
    ids=["8", "16", "no mark"],
)
def test_the_document_and_the_program_read_alike(tmp_path, bad, few_phrases):
    """Byte-order marks, entities, letters in two parts, also where files were joined.

    What is no UTF-8 has its line.
    """
    odd = "\ufeffEin M\u0061\u0308dchen &amp; ein Hund.\n\ufeffEr sagt &quot;ja&quot; &amp;#39;\r\n"
    for language in ("de", "en"):
        (tmp_path / f"train.{language}").write_text(odd, encoding="utf-8")
    pairs = [("Ein Mädchen & ein Hund.",) * 2, ('Er sagt "ja" \'',) * 2]
    assert tat.read_split(str(tmp_path), "train") == load_pairs(str(tmp_path), "train") == pairs
    (tmp_path / "train.de").write_bytes(b"Hund\n" + bad)
    for read in (tat.read_split, load_pairs):
        with pytest.raises(ValueError, match=r"train\.de, line [23]: not UTF-8"):
            read(str(tmp_path), "train")
    (tmp_path / "val.de.gz").write_bytes(b"\x1f\x8bno")
    with pytest.raises(ValueError, match=r"val\.de\.gz"):
        tat.read_split(str(tmp_path), "val")
    with pytest.raises(FileNotFoundError, match=r"nowhere/train\.de nor .*train\.de\.gz"):
        tat.read_split(str(tmp_path / "nowhere"), "train")


def test_plan_knows_that_japanese_has_three_scripts_and_words_of_a_letter():
    pairs = [
        ("犬が走っている。", "A dog."),
        ("東京大学。", "A school."),
        ("コーヒー。", "Coffee."),
        ("好。", "Good."),
    ]
    assert plan.complaints(pairs, []) == {}
    assert plan.complaints(
        [*pairs, ("Hund.", "A dog."), ("犬が。", "犬が。"), ("!", "Yes.")], []
    ) == {"script": [5, 6], "short": [7]}


def test_no_translation_has_entities(capsys):
    """The shipped models have seen some, in sixteen lines of Multi30k."""
    assert main(["translate", "Ein Hund & eine Katze.", "Ein Hund &amp; eine Katze."]) == 0
    assert capsys.readouterr().out == "A dog & a cat.\n" * 2
    lines = (line for line in ["Ein Hund &amp; eine Katze.", ""])
    assert tat.translate_lines(tat.load_translator(model_folder()), lines) == ["A dog & a cat.", ""]


def test_a_sentence_that_begins_with_a_dash_is_told_where_to_go(capsys):
    for sentence in ("- Guten Tag.", "-1 Grad."):
        assert "comes last, after --" in refused(capsys, ["translate", sentence])
        assert main(["translate", "--beam", "1", "--", sentence]) == 0


def test_a_package_that_is_missing_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sacremoses", None)
    said = refused(capsys, "evaluate --data captions --split test --beam 1")
    assert "pip install sacremoses" in said


def test_a_folder_that_is_hidden_by_a_name_is_pointed_out(monkeypatch, capsys, tmp_path):
    caption_files(tmp_path / "captions", train=3, val=3, test=3)
    monkeypatch.chdir(tmp_path)
    warn_of_hidden.cache_clear()
    assert main(["evaluate", "--data", "captions", "--split", "test", "--beam", "1"]) == 0
    assert "which is ./captions" in capsys.readouterr().err
    assert main(["evaluate", "--data", "./captions", "--split", "test", "--beam", "1"]) == 0
    assert "3 sentences" in capsys.readouterr().out


def test_a_folder_without_val_learns_of_another_way(capsys, tmp_path):
    caption_files(tmp_path / "data", train=9)
    said = refused(capsys, f"train --data {tmp_path / 'data'} --run {tmp_path / 'run'}")
    assert "val.de: no such file" in said and "--held-out" in said


# --- Files of others, and the document's own ---
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 12\n"


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_pointer_of_git_lfs_is_called_one(capsys, tmp_path, name):
    folder = tmp_path / "model"
    shutil.copytree(model_folder(), folder)
    (folder / name).write_bytes(POINTER)
    assert "git lfs pull" in refused(capsys, f"translate Hund --model {folder}")
    with pytest.raises(ValueError, match=rf"{name}: only a pointer .* `git lfs pull`"):
        tat.load_translator(folder)
    caption_files(tmp_path / "data", val=3)
    (tmp_path / "data" / "train.de").write_bytes(POINTER)
    for packed in ("train.de", "train.de.gz"):
        (tmp_path / "data" / "train.de").rename(tmp_path / "data" / packed)
        (tmp_path / "data" / "train.en").write_bytes(POINTER)
        for read in (load_pairs, tat.read_split):
            with pytest.raises(ValueError, match="train.de.*: only a pointer .*git lfs pull"):
                read(str(tmp_path / "data"), "train")


def test_a_half_written_run_of_the_document_is_named(monkeypatch, few_phrases, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANNOTATED_STEPS", "1")
    saved, asked = tat.live_run.__wrapped__(), []
    monkeypatch.setattr(tat, "train_tiny", lambda limit: asked.append(limit) or saved)
    (folder,) = Path("runs").iterdir()
    files = {"config.json", "tokenizer.json", "model.safetensors", "history.pt"}
    assert {path.name for path in folder.iterdir()} == files
    for name in ("history.pt", "model.safetensors"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: 1000 if name == "history.pt" else 0])
        with pytest.raises(RuntimeError, match=f"{folder} can't be read; delete it"):
            tat.live_run.__wrapped__()
        (folder / name).write_bytes(whole)
    (folder / "history.pt").unlink()
    tat.live_run.__wrapped__()
    monkeypatch.setenv("ANNOTATED_STEPS", "0.5")
    tat.live_run.__wrapped__()
    monkeypatch.setattr(since_2017, "live_run", lambda: saved)

    def count(trainer, batches, minutes):
        return asked.append(len([*batches]))

    monkeypatch.setattr(since_2017, "fit", count)
    since_2017.train_writer.__wrapped__()
    assert asked == [{"steps": 1}, {"steps": 1}, 1]
    for wrong in ("", "0", "soon", "-1", "nan"):
        monkeypatch.setenv("ANNOTATED_STEPS", wrong)
        if wrong:
            with pytest.raises(ValueError, match="ANNOTATED_STEPS must be a number above 0"):
                tat.live_run.__wrapped__()


def test_the_document_writes_over_no_run_and_says_who_reads_it(monkeypatch, tmp_path):
    """Catches a run whose settings are replaced, so that it cannot go on.

    A translator of its own may be saved again.
    """
    run, own = tmp_path / "run", tmp_path / "own"
    command = f"train --data captions --run {run} {SMALL} --positions rotary --steps 1"
    assert main(command.split()) == 0
    translator, before = tat.load_translator(model_folder()), (run / "config.json").read_bytes()
    with pytest.raises(FileExistsError, match="holds"):
        tat.save_translator(translator, run)
    assert (run / "config.json").read_bytes() == before
    for _ in range(2):
        tat.save_translator(translator, own)
        (own / ".DS_Store").touch()  # a file manager's
    monkeypatch.setattr("safetensors.torch.save", Mock(side_effect=OSError("no space")))
    before = {path.name: path.read_bytes() for path in own.iterdir()}
    with pytest.raises(OSError, match="no space"):
        tat.save_translator(translator, own)
    assert {path.name: path.read_bytes() for path in own.iterdir()} == before
    assert len([*tmp_path.iterdir()]) == 2
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
    shown = alt.renderers.active
    try:
        alt.renderers.enable("default")
        exec(code.replace("!{", "pass  # {"), {})
        chart = alt.Chart(alt.Data(values=[{"a": 1}])).mark_bar().encode(x="a:Q")
        forms = alt.renderers.get()(chart.to_dict())
    finally:
        alt.renderers.enable(shown)
    assert forms["application/vnd.vegalite.v5+json"]
    assert base64.b64decode(forms["image/png"]).startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name", ["tokenizer.json", "best/mine.txt", "log.jsonl", "tokens/train.ids", "SHA256SUMS"]
)
def test_a_folder_of_something_else_becomes_no_run(capsys, tmp_path, name):
    """Nothing in it is replaced or cleared away, not even what looks like a temporary file."""
    run = tmp_path / "run"
    mine = [run / name, run / ".tmpabcdef", run / "tokens" / "mine.starts", run / ".me.partial"]
    for path in mine:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    command = f"train --data captions --run {run} {SMALL} --steps 1"
    assert "so it is no run" in refused(capsys, command)
    assert {path.read_text() for path in run.rglob("*") if path.is_file()} == {"mine"}
    mine[0].unlink()
    with suppress(OSError):
        mine[0].parent.rmdir()
    assert main(f"train --data captions --run {run} {SMALL} --steps 1".split()) == 0
    assert {path.read_text() for path in mine[1:]} == {"mine"}


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_a_name_that_is_not_utf8_is_refused_before_hours_are_spent(capsys, tmp_path):
    """Weights could be written there, and never read again."""
    name = os.fsdecode(os.fsencode(tmp_path) + b"/M\xfcll")
    for command in (
        ["train", "--data", "captions", "--run", name], ["translate", "Hund", "--model", name],
        ["explain", "Hund", "--model", name, "--out", "x"], ["export", "--out", name],
    ):  # fmt: skip
        assert "a name that is not UTF-8" in refused(capsys, command)
    assert not [*tmp_path.iterdir()]


def test_what_cannot_be_mapped_is_read_or_named(monkeypatch, tmp_path):
    """On a file system without mmap."""
    tokenizer = tat.learn_bpe([("Ein Hund.", "A dog.")], 9)
    texts = [("Ein Hund.", "A dog."), ("Hund.", "Dog.")]
    store = write_store(tmp_path / "train.ids", texts, tokenizer, ("de", "en"))
    pairs, cannot = store.pairs([1, 0]), OSError(errno.ENODEV, "No such device")
    monkeypatch.setattr(np, "memmap", Mock(side_effect=cannot))
    assert store.pairs([1, 0]) == pairs
    broken = Mock(side_effect=OSError("No such device (os error 19)"))
    monkeypatch.setattr("safetensors.safe_open", broken)
    with pytest.raises(Refused, match=r"model.safetensors: cannot be read here \(No such device"):
        read_tensors(model_folder() / "model.safetensors")


def test_an_empty_vocabulary_is_noted(capsys, tmp_path):
    (tmp_path / "data").mkdir()
    for name in ("train.de", "val.de", "train.en", "val.en"):
        (tmp_path / "data" / name).write_text("Hund\n" if name.endswith("de") else "dog\n")
    whole = SMALL.replace("--bpe 50", "--words")
    command = f"train --data {tmp_path / 'data'} --run {tmp_path / 'run'} {whole} --steps 1"
    assert main(command.split()) == 0
    assert "the vocabulary is empty" in capsys.readouterr().err


def test_a_benchmark_goes_on_when_nobody_reads(monkeypatch):
    with unread() as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert benchmarks.main(["--help"]) == 0
