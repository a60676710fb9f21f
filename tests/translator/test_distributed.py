"""Several processes have the same gradient, losses and validation loss as one."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import the_annotated_transformer as tat
from tests.helpers import ROOT, SOAK, free_ports, started, wait_for
from translator.__main__ import captions, main
from translator.files import read_tensors
from translator.model_folder import read_translator
from translator.processes import is_sharded, over_processes, whole
from translator.run_log import read_log
from translator.settings import Settings
from translator.trainer import ParallelTrainer

UPDATES = 20 if SOAK else 2
DATA = Path(
    os.environ.setdefault("FEW_CAPTIONS", tempfile.mkdtemp(prefix="captions-") + "/captions")
)  # for the processes, too
SIZES = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.0}
SHORT = f"train --data {DATA} --N 1 --d-model 32 --d-ff 32 --h 2 --bpe 200 --dropout 0"
SHORT += " --tokens-per-batch 600"
# a fall to zero would depend on where each part of a run ends
SHORT += " --schedule paper --checkpoint-every 5"
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


def torchrun(count: int, *options: str) -> list[str]:
    """The words before those of a program that several processes on this machine run."""
    standalone = ["--standalone", f"--nproc-per-node={count}"]
    return [sys.executable, "-m", "torch.distributed.run", *standalone, *options, "--"]


def launch(count: int, command: str, *before: str) -> list[str]:
    """The words that run a command in several processes here; `before` are torchrun's options."""
    return [*torchrun(count, *before), str(ROOT / "the_annotated_transformer.py"), *command.split()]


def train(count: int, command: str) -> None:
    """A training that ends well, in several processes as under torchrun, or in this one."""
    if count == 1:
        assert main(command.split()) == 0
    else:
        together(train_as_told, count, free_ports(1)[0], command)


def train_as_told(rank: int, world: int, port: int, command: str) -> None:
    join(rank, world, port)
    assert main(command.split()) == 0


PRELOADED = ["the_annotated_transformer", "translator.__main__", "torch.distributed.fsdp"]
multiprocessing.set_forkserver_preload(PRELOADED)


def together(function: Callable[..., None], world: int, *arguments: Any) -> None:
    """Call a function in `world` new processes, with its rank, `world` and arguments.

    They are copies of a process that has done nothing but import the program. Copies of this one
    were once seen to hang.
    """
    inputs = (world, *arguments)
    multiprocessing.start_processes(function, inputs, nprocs=world, start_method="forkserver")


@pytest.fixture(scope="module", autouse=True)
def few_captions() -> Iterator[None]:
    captions(out=DATA)
    yield
    shutil.rmtree(DATA.parent, ignore_errors=True)


@pytest.fixture(scope="module")
def alone(few_captions, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("alone") / "run"
    train(1, f"{SHORT} --steps 15 --run {run}")
    return run


def assert_alike(run: Path, other: Path, at_15: Path | None = None) -> None:
    """Same losses, models that differ by rounding; `at_15`: weights where the other one ended."""
    last = "checkpoints/000015.safetensors" if at_15 else "model.safetensors"
    losses = [
        [row.get("loss", row.get("val_loss")) for row in read_log(folder) if row["step"] <= 15]
        for folder in (run, other)
    ]
    assert losses[0] == pytest.approx(losses[1], abs=1e-3)
    ours, theirs = (read_tensors(path)[0] for path in (at_15 or run / last, other / last))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, atol=1e-4, rtol=1e-3)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch) -> None:
    """For each process; more would share the cores of a small machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def pairs(rows: int = 8) -> list[tat.Pair]:
    targets = ([tat.BOS, *range(5, 6 + i), tat.EOS] for i in range(rows))
    return [tat.Pair([5 + i, 6, tat.EOS], target) for i, target in enumerate(targets)]


class Case(NamedTuple):
    """A way to train together."""

    exact: bool  # in float64
    sharded: bool = False
    accumulate: int = 1
    rows: int = 8
    optimizer: str = "adam"
    ema: float = 0.0


YES_OR_NO = (False, True)
CASES = [
    *(Case(exact, sharded, accumulate=2) for exact in YES_OR_NO for sharded in YES_OR_NO),
    *(Case(True, sharded, rows=1) for sharded in YES_OR_NO),  # fewer pairs than processes
    *(Case(True, sharded, optimizer="muon", ema=0.99) for sharded in YES_OR_NO),
]


class Outcome(NamedTuple):
    """What must not depend on the number of processes."""

    gradient: torch.Tensor
    loss: float
    validation: float  # before the first update
    moves: torch.Tensor  # how far UPDATES have moved the weights, and their averages


def flat(tensors: Iterable[torch.Tensor]) -> torch.Tensor:
    """All entries of some tensors, also of those that are divided among processes."""
    return torch.cat([whole(tensor).detach().flatten() for tensor in tensors])


def outcome(case: Case) -> Outcome:
    """The outcome of a case in this process, and those that train with it."""
    torch.manual_seed(0)
    options = {"accumulate": case.accumulate, "optimizer": case.optimizer, "ema": case.ema}
    settings = Settings(**SIZES, **options, tokens_per_batch=12, warmup=10)
    model = tat.make_model(21, 21, **SIZES)
    sharded = case.sharded and dist.is_initialized()
    trainer = ParallelTrainer(model.double() if case.exact else model, settings, sharded=sharded)
    validation = trainer.validate(pairs())
    loss = over_processes(trainer.gradient(pairs(case.rows)))[0]
    gradient = flat(p.grad for p in trainer.model.parameters())
    weights = [*trainer.model.parameters(), *trainer.averaged.parameters()]
    before = flat(weights)
    for _ in range(UPDATES):
        trainer.update(pairs(case.rows))
    if sharded:
        states = [state for optimizer in trainer.optimizers for state in optimizer.state.values()]
        moments = [tensor for state in states for kind, tensor in state.items() if kind != "step"]
        for tensor in (*weights, *moments):  # each process has its part, and no more
            rows = -(-len(tensor) // dist.get_world_size())
            assert is_sharded(tensor) and tensor.to_local().numel() <= rows * tensor[0].numel()
    return Outcome(gradient, loss, validation, flat(weights) - before)


def work(rank: int, world: int, folder: str) -> None:
    """Writes the outcome of each case; then sources beyond the first table of positions."""
    meeting = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    torch.save([tuple(outcome(case)) for case in CASES], f"{folder}/{rank}.pt")
    trainer = ParallelTrainer(tat.make_model(20, 20, **SIZES), Settings(**SIZES))
    for _ in range(2):
        lengths = (600, 200, 100, 50)
        trainer.update([tat.Pair([5] * n + [tat.EOS], [tat.BOS, 5, tat.EOS]) for n in lengths])
    dist.destroy_process_group()


def distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """How far b is from a, relative to a's size."""
    return float((a - b).norm() / a.norm())


@pytest.mark.parametrize("world", [2, 3, 4] if SOAK else [3])
def test_several_processes_compute_what_one_does(tmp_path, world):
    """To rounding: gradient, loss, validation loss, and weights after UPDATES, sharded or not."""
    together(work, world, str(tmp_path))
    alone = [outcome(case) for case in CASES]
    for rank in range(world):
        outcomes = torch.load(tmp_path / f"{rank}.pt")
        for case, ours, theirs in zip(CASES, outcomes, alone, strict=True):
            ours = Outcome(*ours)
            near = 1e-12 if case.exact else 1e-6
            assert distance(theirs.gradient, ours.gradient) < near, (case, "gradient")
            assert abs(ours.loss / theirs.loss - 1) < near, (case, "loss")
            assert abs(ours.validation / theirs.validation - 1) < near, (case, "validation loss")
            # where a gradient is zero but for rounding, Adam makes full steps of it: in 32 bits
            # there is nothing to compare
            assert not case.exact or distance(theirs.moves, ours.moves) < 1e-9, (case, "weights")


def test_a_run_goes_on_with_another_number_of_processes(alone, tmp_path):
    """With three that share the model, with one, and with two; Muon and averages included."""
    run = tmp_path / "run"
    for count, steps, shard in ((3, 5, "--shard"), (1, 10, ""), (2, 15, "")):
        train(count, f"{SHORT} {shard} --steps {steps} --run {run}")
    assert_alike(run, alone)
    states = [folder / "checkpoints" / "state.safetensors" for folder in (run, alone)]
    names = [sorted(read_tensors(state)[0]) for state in states]
    assert names[0] == names[1] and any("momentum" in name for name in names[0])
    assert read_translator(run / "best").languages == ("de", "en")


def ranks_of(agent: int) -> list[int]:
    """The processes that a torchrun process has started."""
    return [int(pid) for pid in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]


PROC = Path("/proc/self/task")
needs_proc = pytest.mark.skipif(not PROC.is_dir(), reason="this system has no /proc")


@needs_proc
@pytest.mark.parametrize("attempt", range(10 if SOAK else 1))
def test_a_process_that_dies_is_brought_back_and_all_stop_together(
    alone, tmp_path, monkeypatch, attempt
):
    """By --max-restarts, as if undisturbed; a signal for one ends both after the same update."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    run = tmp_path / "run"
    command = f"{SHORT} --run {run} --steps"
    checkpoints = run / "checkpoints"
    options = "--max-restarts=1", "--monitor-interval=0.1"
    with started(launch(2, f"{command} 100000", *options), **PIPES) as agent:
        wait_for("a checkpoint", (checkpoints / "000005.safetensors").exists)
        os.kill(ranks_of(agent.pid)[1], signal.SIGKILL)
        wait_for("its checkpoint", (checkpoints / "000015.safetensors").exists)
        shutil.copy(checkpoints / "000015.safetensors", tmp_path)  # before twenty others have come
        os.kill(ranks_of(agent.pid)[1], signal.SIGTERM)
        error = agent.communicate(timeout=240)[1]
    assert "failed (exitcode:" in error  # it was brought back
    assert_alike(run, alone, tmp_path / "000015.safetensors")
    step = int(re.search(r"stopped by SIGTERM after update (\d+), which is saved", error)[1])
    assert read_tensors(checkpoints / "state.safetensors")[1]["progress"]["step"] == step >= 15
    train(2, f"{command} {step + 2}")
    assert read_tensors(checkpoints / "state.safetensors")[1]["progress"]["step"] == step + 2


def join(rank: int, world: int, port: int) -> None:
    """What torchrun tells a process."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
