"""What a run survives: signals, kills at any moment, damaged files, infinite gradients."""

import math
import multiprocessing
import os
import random
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import SOAK, caption_files, same
from translator import run as runs
from translator.__main__ import main
from translator.files import MODEL_FILES, read_tensors
from translator.model_folder import read_translator
from translator.processes import weights_of
from translator.run_log import read_log
from translator.settings import PRESETS, Limits, Progress
from translator.trainer import ParallelTrainer

SIZES = "--N 1 --d-model 16 --d-ff 16 --h 2 --bpe 100 --tokens-per-batch 300 --warmup 20"
SIZES += " --schedule linear"
STEPS, EVERY = 12, 3
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this system")


def training(run: Path, options: str = "", steps: int = STEPS) -> str:
    """The words of `train` on captions for a moment, with a checkpoint every three updates."""
    every = "" if "--checkpoint-every" in options else f"--checkpoint-every {EVERY}"
    return f"train --data captions --run {run} {SIZES} --steps {steps} {every} {options}"


def train(run: Path, options: str = "", steps: int = STEPS) -> int:
    return main(training(run, options, steps).split())


def train_until(step: int, run: Path) -> int:
    """A run that ends too soon: the same command makes it go on to the end of its rate's fall."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Limits, "spent", lambda self, progress: progress.step >= step)
        return train(run)


@pytest.fixture(autouse=True)
def heeded() -> None:
    """Tests in the background, or under nohup, are started to ignore these; so would a training."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert train(folder) == 0
    return folder


def results(run: Path) -> dict[str, torch.Tensor]:
    """All tensors that a run ends with: of its state, model, best model and checkpoints."""
    names = ["checkpoints/state.safetensors", "model.safetensors", "best/model.safetensors"]
    checkpoints = sorted((run / "checkpoints").glob("[0-9]*.safetensors"))
    names += [f"checkpoints/{path.name}" for path in checkpoints]
    files = {name: read_tensors(run / name)[0] for name in names}
    return {f"{name} {key}": files[name][key] for name in names for key in files[name]}


def rows(run: Path) -> list[dict]:
    """The log of a run without times."""
    timed = ("minutes", "tokens_per_second")
    return [{key: value for key, value in row.items() if key not in timed} for row in read_log(run)]


def updates(run: Path) -> int:
    """The updates of the state that a run goes on from."""
    return read_tensors(run / "checkpoints" / "state.safetensors")[1]["progress"]["step"]


def assert_same(run: Path, other: Path) -> None:
    """Two runs ended with the same bits and log, but for times; nothing half-written is left."""
    assert same(results(run), results(other))
    assert rows(run) == rows(other)
    assert not [path for path in run.rglob(".*") if path.name != ".lock"]


# --- Asked to stop ---
@pytest.mark.parametrize(("name", "step"), [("SIGINT", 7), ("SIGTERM", 12)])
def test_a_signal_lets_the_update_end_and_saves_it(
    finished, tmp_path, monkeypatch, capsys, name, step
):
    """Catches lost updates, a wrong exit status, and a run that can't go on from there."""
    number = getattr(signal, name)
    update = ParallelTrainer.update

    def interrupted(self, pairs):
        if self.step == step - 1:
            signal.raise_signal(number)
        return update(self, pairs)

    before = signal.getsignal(number)
    monkeypatch.setattr(ParallelTrainer, "update", interrupted)
    assert train(tmp_path / "run") == 128 + number
    assert f"stopped by {name} after update {step}, which is saved" in capsys.readouterr().err
    assert signal.getsignal(number) == before
    assert updates(tmp_path / "run") == step
    monkeypatch.undo()
    assert train(tmp_path / "run") == 0
    logs = (rows(folder) for folder in (tmp_path / "run", finished))
    validations = [[row for row in log if "val_loss" in row] for log in logs]
    assert validations[0] == validations[1]
    assert same(results(tmp_path / "run"), results(finished))


def test_the_rate_falls_to_zero_where_a_run_ends_however_often_it_is_stopped(
    tmp_path, monkeypatch, capsys
):
    """By epochs here, and with the same bits; made longer, it says that its rate rises again."""
    data = caption_files(tmp_path / "data", train=60, val=20)
    update = ParallelTrainer.update
    rates: dict[str, list] = {}

    def interrupted(self, pairs):
        if name == "stopped" and self.step % 5 == 2:
            signal.raise_signal(signal.SIGTERM)
        loss = update(self, pairs)
        rates.setdefault(name, []).append(self.lr)
        return loss

    def go(name: str, epochs: int) -> int:
        sizes = SIZES.replace("--warmup 20", "--warmup 4")
        command = f"train --data {data} --run {tmp_path / name} {sizes} --epochs {epochs}"
        return main(command.split())

    monkeypatch.setattr(ParallelTrainer, "update", interrupted)
    for name in ("undisturbed", "stopped"):
        while go(name, 2):
            assert name == "stopped"
    assert "rises again" not in capsys.readouterr().err
    assert same(*(read_tensors(tmp_path / name / "model.safetensors")[0] for name in rates))
    peak = tat.rate(4, 16, PRESETS["tiny"].factor, 4)
    count = len(rates["stopped"])
    straight = [peak * min((i + 1) / 4, 1 - i / count) for i in range(count)]
    # epochs differ in batches
    assert rates["stopped"] == rates["undisturbed"] == pytest.approx(straight, rel=0.2)
    assert rates["stopped"][-1] == pytest.approx(peak / count, rel=0.2) and count > 10
    assert go(name := "undisturbed", 3) == 0
    assert "note: this run is longer now" in capsys.readouterr().err
    assert rates[name][count] > 5 * rates[name][count - 1]


# --- Killed ---
def killed(work: Callable[[], None]) -> int:
    """The status of a copy of this process in which `work` runs; negative if a signal ends it."""
    process = multiprocessing.get_context("fork").Process(target=work)
    process.start()
    process.join()
    return process.exitcode


def die_at(call: int) -> None:
    """Have this process killed at a call, from 1, of those that give files content and names."""
    count = 0

    def counting(function: Callable) -> Callable:
        def counted(*arguments, **options):
            nonlocal count
            count += 1
            if count == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return counted

    for name in ("replace", "fsync", "chmod", "unlink"):
        setattr(os, name, counting(getattr(os, name)))


@needs_fork
@pytest.mark.parametrize("seed", range(20 if SOAK else 2))
def test_a_run_that_is_killed_while_it_writes_ends_as_if_it_had_not_been(finished, tmp_path, seed):
    """Killed again and again, each time at another moment of a start or a checkpoint."""
    draw = random.Random(seed)
    deaths = 0
    for _ in range(3):
        call = draw.randint(1, 60)

        def work(call=call):
            return (die_at(call), train(tmp_path / "run"))

        deaths += killed(work) == -signal.SIGKILL
    assert deaths
    assert train(tmp_path / "run") == 0
    assert_same(tmp_path / "run", finished)


# --- Damaged ---


def test_the_state_before_a_damaged_one_is_used(finished, tmp_path, capsys):
    """The run ends with the same weights; catches a number's flipped bit, unseen by the format."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    assert train_until(EVERY, tmp_path / "early") == 0
    early = tmp_path / "early" / "checkpoints" / "state.safetensors"
    shutil.copy(early, run / "checkpoints" / "before.safetensors")
    state = run / "checkpoints" / "state.safetensors"
    content = bytearray(state.read_bytes())
    content[-9] ^= 4
    state.write_bytes(content)
    assert train(run) == 0
    captured = capsys.readouterr()
    assert "going on from the checkpoint before it" in captured.err
    assert "it had finished before" not in captured.out
    assert_same(run, finished)


# --- Gradients that are not finite ---
@pytest.mark.quick
def test_an_update_whose_gradient_is_not_finite_is_skipped_and_counted(
    tmp_path, monkeypatch, capsys
):
    """It changes neither weights nor averages; a run stopped after it ends with the same bits."""
    forward = tat.PositionwiseFeedForward.forward
    update = ParallelTrainer.update
    at = [0]

    def counted(self, pairs):
        at[0] = self.step + 1
        before = {name: p.detach().clone() for name, p in weights_of(self.model).items()}
        loss = update(self, pairs)
        assert at[0] != 2 or (loss != loss and same(before, weights_of(self.model)))
        return loss

    def infinite(self, x):
        return forward(self, x) * (torch.inf if at[0] == 2 and self.training else 1)

    monkeypatch.setattr(ParallelTrainer, "update", counted)
    monkeypatch.setattr(tat.PositionwiseFeedForward, "forward", infinite)
    for name, steps in (("stopped", 4), ("stopped", 8), ("undisturbed", 8)):
        assert train(tmp_path / name, steps=steps) == 0
        assert "1 of them changed nothing" in capsys.readouterr().out
    folders = (tmp_path / name / "checkpoints" for name in ("stopped", "undisturbed"))
    ours, theirs = (read_tensors(folder / "state.safetensors") for folder in folders)
    assert ours[1]["progress"]["skipped"] == 1 and same(ours[0], theirs[0])


# --- When there is a checkpoint, and which model is kept ---


def test_the_best_model_is_kept_and_patience_ends_a_run(tmp_path, monkeypatch, capsys):
    """The validation loss falls, falls and then rises."""
    losses = iter([3.0, 2.0, 2.5, 2.2, 2.1, 1.0])
    monkeypatch.setattr("translator.trainer.ParallelTrainer.validate", lambda *_: next(losses))
    run = tmp_path / "run"
    assert train(run, "--patience 3", steps=100) == 0
    out = capsys.readouterr().out
    assert "15 updates" in out and f"{run / 'best'} was chosen by the loss, 2.00" in out
    best, newest = (read_tensors(path / "model.safetensors") for path in (run / "best", run))
    assert best[1] == {"step": 6, "val_loss": 2.0, "val_bleu": pytest.approx(0.0, abs=0.1)}
    assert newest[1]["step"] == 15
    assert not all(torch.equal(best[0][name], newest[0][name]) for name in best[0])
    assert {path.name for path in (run / "best").iterdir()} == {*MODEL_FILES, "SHA256SUMS"}
    assert read_translator(run / "best").languages == ("de", "en")
    assert train(run, "--patience 3", steps=100) == 0  # it had ended; there is no seventh loss
    assert Limits(patience=3).spent(Progress(since_best=3))
    assert not Limits(patience=3).spent(Progress(since_best=2))


@pytest.mark.parametrize(
    ("losses", "bleus", "best", "message"),
    [
        # the loss says the opposite: the end is best, and no word is lost on another model
        ([3.0, 2.0, 2.5, 2.9], [2.0, 5.0, 9.0, 14.0], 12, None),
        ([3.0, 2.5, 2.2, 2.0], [3.0, 30.0, 29.0, 25.0], 6, "translates better: BLEU 30.0"),
        ([3.0, 2.5, 2.2, 2.0], [3.0, 30.0, 29.0, 29.5], 6, "BLEU 30.0, and is better by chance"),
        # below one BLEU, as at the start or where all targets are short, the loss decides
        ([3.0, 2.0, 2.5, 2.6], [0.9, 0.1, 0.3, 0.8], 6, "was chosen by the loss, 2.00"),
    ],
)  # fmt: skip
def test_translations_say_which_model_is_best(
    tmp_path, monkeypatch, capsys, losses, bleus, best, message
):
    """Catches a best by the loss, and a note that calls chance better; the log has both."""
    monkeypatch.setattr(ParallelTrainer, "validate", Mock(side_effect=losses))
    monkeypatch.setattr("translator.training.greedy_bleu", Mock(side_effect=bleus))
    monkeypatch.setattr(runs.Run, "guessing", math.inf)
    monkeypatch.setattr("translator.trainer.chance", lambda sentences: 2.0)
    assert train(tmp_path / "run") == 0
    notes = read_tensors(tmp_path / "run" / "best" / "model.safetensors")[1]
    at = best // EVERY - 1
    assert notes == {"step": best, "val_loss": losses[at], "val_bleu": bleus[at]}
    log = [row for row in read_log(tmp_path / "run") if "val_loss" in row]
    assert [(row["val_loss"], row["val_bleu"]) for row in log] == [*zip(losses, bleus, strict=True)]
    out = capsys.readouterr().out
    assert message in out if message else "/best" not in out
