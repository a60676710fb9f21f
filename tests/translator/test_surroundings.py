"""Where the program runs: streams that are missing or replaced, readers and terminals that go away, signals, launchers."""

import builtins
import io
import os
import signal
import sys
import types
from collections.abc import Iterator

import pytest

import the_annotated_transformer as tat
from tests.helpers import refused
from translator.__main__ import main
from translator.processes import stop_requests
from translator.run import read_log

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
@pytest.mark.parametrize("missing", [lambda: None, closed, lambda: io.TextIOWrapper(io.BytesIO()).detach() and None])
@pytest.mark.parametrize("names", [["stdout"], ["stderr"], ["stdout", "stderr"]])
def test_a_stream_that_is_missing_is_as_good_as_the_null_device(monkeypatch, missing, names):
    """Closed by the shell (`>&-`), or never there, as without a console."""
    for name in names:
        monkeypatch.setattr(sys, name, missing())
    cell = Cell()
    if "stdout" not in names:
        monkeypatch.setattr(sys, "stdout", cell)
    assert main(["translate", "Ein Hund.", "--beam", "1"]) == 0 and main(["translate", "--nonsense"]) == 2
    assert cell.text == ("" if "stdout" in names else "A dog.\n")


def test_every_command_works_from_a_cell(monkeypatch, tmp_path):
    """Where streams have neither `reconfigure` nor `buffer` nor `fileno`; catches a command that wants a terminal."""
    out, error = Cell(), Cell()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", error)
    run = str(tmp_path / "run")
    assert main(f"train --data captions --run {run} {SMALL} --steps 2 --checkpoint-every 1".split()) == 0
    for command in (
        ["translate", "Hund", "--model", run], ["evaluate", "--data", "captions", "--split", "test", "--model", run, "--beam", "1"],
        ["average", run, "--last", "2", "--out", f"{run}2"], ["explain", "Hund", "--model", run, "--out", f"{run}.html"],
        ["export", "--model", run, "--to", "half", "--out", f"{run}3"], ["captions", "--out", f"{run}4"], ["--help"],
    ):  # fmt: skip
        assert main(command) == 0, error.text
    assert "BLEU" in out.text and "100%" in out.text
    assert main(["translate", "Hund", "--model", "nowhere"]) == 2 and error.text.count("error: ") == 1


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


@pytest.mark.parametrize("lost", [unread, full])
@pytest.mark.parametrize("names", [["stdout"], ["stdout", "stderr"]])
def test_a_training_goes_on_when_nobody_reads(monkeypatch, capsys, tmp_path, lost, names):
    """`train | head`, `2>&1 | head`, a full disk behind the log; catches success without a model. Nothing fails later, either."""
    streams = {name: lost() for name in names}
    with monkeypatch.context() as patch:
        for name, stream in streams.items():
            patch.setattr(sys, name, stream)
        command = f"train --data captions --run {tmp_path / 'run'} {SMALL} --steps 30 --checkpoint-every 10"
        assert main(command.split()) == 0
    assert read_log(tmp_path / "run")[-1]["step"] == 30 and (tmp_path / "run" / "model.safetensors").is_file()
    for stream in streams.values():
        stream.close()  # what was still to be flushed
    said = capsys.readouterr().err
    assert "stderr" in names or "standard output could not be written" in said and said.count("\n") == 1


@pytest.mark.parametrize("lost", [unread, full])
def test_scores_that_nobody_gets_are_no_success(monkeypatch, capsys, lost):
    """Unlike translations: their reader may have enough, such as `head`; but a full disk is none."""
    scores = "evaluate --data captions --split test --beam 1 --json"
    for command, status in ((scores.split(), 2), (["translate", "Hund"], 0 if lost is unread else 2)):
        with monkeypatch.context() as patch, lost() as stream:
            patch.setattr(sys, "stdout", stream)
            assert main(command) == status
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1 if status else said == ""


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
    """`%run the_annotated_transformer.py translate ...`; a kernel has arguments, but its cells are no file."""
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "kernel.json"])
    assert tat.in_notebook("__main__") and not tat.in_notebook("the_annotated_transformer")
    under_ipython.__file__ = tat.__file__
    monkeypatch.setattr(sys, "argv", [tat.__file__])
    assert tat.in_notebook("__main__")  # `%run` alone runs the document
    monkeypatch.setattr(sys, "argv", [tat.__file__, "translate", "Hund"])
    assert not tat.in_notebook("__main__")


# --- What was there ---
def test_what_a_reader_has_is_not_written_over(capsys, tmp_path):
    """Catches a corpus that is replaced by captions, and a file that is emptied before there is something to put there."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "train.de").write_text("meins\n")
    assert "exists already" in refused(capsys, f"captions --out {mine}")
    assert [path.read_text() for path in mine.iterdir()] == ["meins\n"]
    (mine / "in").write_bytes(b"Hund\nK\xe4se\n")
    (mine / "out").write_text("hours of work\n")
    command = ["translate", "--beam", "1", "--input", str(mine / "in"), "--output", str(mine / "out")]
    assert main(command) == 2
    assert f"out is as it was; what was written is in {mine / 'out.partial'}" in capsys.readouterr().err
    assert (mine / "out").read_text() == "hours of work\n" and (mine / "out.partial").read_text().count("\n") == 1
    (mine / "in").write_text("Ein Hund.\n")
    assert main(command) == 0
    assert (mine / "out").read_text() == "A dog.\n" and not (mine / "out.partial").exists()


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
