"""Several processes have the same gradient, losses and validation loss as one."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import the_annotated_transformer as tat
from tests.helpers import SOAK
from translator.commands import main
from translator.files import read_tensors
from translator.processes import over_processes, process_group
from translator.runs import read_log
from translator.settings import Settings
from translator.trainer import Trainer
from translator.training import validation_loss

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.0}


CAPTURED = {"capture_output": True, "text": True, "timeout": 300}


def launch(count: int, *arguments: str, before: list[str] | None = None) -> list[str]:
    """The words that run the command line in several processes on this machine; `before` are options of torchrun."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"]
    return [*torchrun, *(before or []), "--", str(ROOT / "the_annotated_transformer.py"), *arguments]


def torchrun(count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in several processes, to its end."""
    return subprocess.run(launch(count, *arguments), **CAPTURED)


@pytest.fixture(autouse=True)
def one_thread(monkeypatch) -> None:
    """For each process; more would share the cores of a small machine."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def pairs(rows: int = 7) -> list[tat.Pair]:
    """Pairs of different lengths."""
    return [tat.Pair([5 + i, 6, tat.EOS], [tat.BOS, *range(5, 6 + i), tat.EOS]) for i in range(rows)]


def gradient(accumulate: int = 1, rows: int = 7) -> tuple[torch.Tensor, float]:
    """The gradient of one update and the loss of this process's part."""
    torch.manual_seed(0)
    trainer = Trainer(tat.make_model(20, 20, **SIZES), Settings(**SIZES, accumulate=accumulate))
    loss = trainer.gradient(pairs(rows))
    return torch.cat([p.grad.flatten() for p in trainer.model.parameters()]), loss


def work(rank: int, world: int, folder: str, accumulate: int, rows: int) -> None:
    """One of `world` processes; it writes its gradient, loss and validation loss."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    grad, loss = gradient(accumulate, rows)
    torch.manual_seed(0)
    trainer = Trainer(tat.make_model(20, 20, **SIZES), Settings(**SIZES, tokens_per_batch=12))
    result = grad, over_processes(loss)[0], validation_loss(trainer, pairs())
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def together(folder: Path, world: int, accumulate: int, rows: int) -> list:
    """What each of `world` processes wrote."""
    folder.mkdir()
    multiprocessing.spawn(work, (world, str(folder), accumulate, rows), nprocs=world)
    return [torch.load(folder / f"{rank}.pt") for rank in range(world)]


def test_two_processes_give_the_gradient_of_one(tmp_path):
    """Also with accumulation, and if there are fewer pairs than micro-batches."""
    torch.manual_seed(0)
    trainer = Trainer(tat.make_model(20, 20, **SIZES), Settings(**SIZES, tokens_per_batch=12))
    validation = validation_loss(trainer, pairs())
    for world, accumulate, rows in ((2, 1, 7), (2, 2, 7), (3, 1, 1)):
        alone, loss = gradient(rows=rows)
        for grad, shared_loss, shared_validation in together(
            tmp_path / f"{world}-{accumulate}", world, accumulate, rows
        ):
            torch.testing.assert_close(grad, alone, atol=1e-6, rtol=1e-4)
            assert abs(shared_loss - loss) < 1e-5
            assert abs(shared_validation - validation) < 1e-6


def train_on_long_pairs(rank: int, world: int, folder: str) -> None:
    """Two updates with sources of different lengths in the processes, one beyond the first table of positions."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    trainer = Trainer(tat.make_model(20, 20, **SIZES), Settings(**SIZES))
    for _ in range(2):
        trainer.update([tat.Pair([5] * length + [tat.EOS], [tat.BOS, 5, tat.EOS]) for length in (600, 200)])
    dist.destroy_process_group()


def test_processes_may_hold_tables_of_positions_of_different_lengths(tmp_path):
    multiprocessing.spawn(train_on_long_pairs, (2, str(tmp_path)), nprocs=2)


def test_torchrun_trains_what_one_process_trains(tmp_path):
    """One process and two give the same losses; one of the two writes."""
    losses = {}
    for processes in (1, 2):
        run = tmp_path / str(processes)
        arguments = "train --data captions --steps 20 --N 1 --d-model 32 --d-ff 32 --h 2 --bpe 200 --dropout 0 --tokens-per-batch 600"
        done = torchrun(processes, *arguments.split(), "--run", str(run))
        assert done.returncode == 0, done.stderr[-2000:]
        losses[processes] = [row.get("loss", row.get("val_loss")) for row in read_log(run)]
        assert (run / "model.safetensors").is_file()
    assert len(losses[1]) == len(losses[2]) == 3
    assert max(abs(a - b) for a, b in zip(losses[1], losses[2], strict=True)) < 1e-3


def train_in_a_group_that_exists(rank: int, world: int, folder: str) -> None:
    """What Ray Train and others do: the group is theirs, and stays when the training ends."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world)
    assert main([*SHORT.split(), "--steps", "2", "--run", f"{folder}/run"]) == 0
    assert dist.is_initialized()
    dist.destroy_process_group()


def test_a_group_that_exists_already_is_used(tmp_path):
    multiprocessing.spawn(train_in_a_group_that_exists, (2, str(tmp_path)), nprocs=2)
    assert (tmp_path / "run" / "model.safetensors").is_file()


SHORT = "train --data captions --N 1 --d-model 32 --d-ff 32 --h 2 --bpe 200 --dropout 0 --tokens-per-batch 600"


def test_a_run_goes_on_with_another_number_of_processes(tmp_path):
    """Two processes, then one; the losses are those of one process throughout."""
    runs = [tmp_path / name for name in ("alone", "changing")]
    assert main([*SHORT.split(), "--steps", "20", "--checkpoint-every", "10", "--run", str(runs[0])]) == 0
    for count, steps in ((2, 10), (1, 20)):
        done = torchrun(count, *SHORT.split(), "--steps", str(steps), "--checkpoint-every", "10", "--run", str(runs[1]))
        assert done.returncode == 0, done.stderr[-2000:]
    losses = [[row.get("loss", row.get("val_loss")) for row in read_log(run)] for run in runs]
    assert len(losses[0]) == len(losses[1]) == 4
    assert max(abs(a - b) for a, b in zip(*losses, strict=True)) < 1e-3


def wait_for(path: Path, seconds: float = 120) -> None:
    """Wait until a file is there."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} never came"
        time.sleep(0.05)


@contextmanager
def started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A process that does not outlive the test, whatever happens."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def ranks_of(agent: int) -> list[int]:
    """The processes that a torchrun process has started."""
    return [int(pid) for pid in Path(f"/proc/{agent}/task/{agent}/children").read_text().split()]


needs_proc = pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="this system has no /proc")


@needs_proc
@pytest.mark.parametrize("attempt", range(10 if SOAK else 1))
def test_all_processes_stop_together(tmp_path, attempt):
    """A signal for one of them: both end after the same update, which is saved, and the run can go on."""
    run = tmp_path / "run"
    options = [*SHORT.split(), "--checkpoint-every", "5", "--run", str(run)]
    with started(launch(2, *options, "--steps", "100000")) as agent:
        wait_for(run / "checkpoints" / "000010.safetensors")
        os.kill(ranks_of(agent.pid)[1], signal.SIGTERM)
        error = agent.communicate(timeout=120)[1]
    step = int(re.search(r"stopped by SIGTERM after update (\d+), which is saved", error)[1])
    state = run / "checkpoints" / "state.safetensors"
    assert read_tensors(state)[1]["progress"]["step"] == step > 10
    done = torchrun(2, *options, "--steps", str(step + 2))
    assert done.returncode == 0 and f"{step + 2} updates" in done.stdout


@needs_proc
@pytest.mark.parametrize("attempt", range(10 if SOAK else 1))
def test_a_process_that_dies_is_brought_back(tmp_path, monkeypatch, attempt):
    """With --max-restarts, the run ends like one that nothing has disturbed."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1")
    runs = [tmp_path / name for name in ("whole", "broken")]
    options = [*SHORT.split(), "--checkpoint-every", "5", "--steps", "60"]
    assert torchrun(2, *options, "--run", str(runs[0])).returncode == 0
    command = launch(2, *options, "--run", str(runs[1]), before=["--max-restarts=1", "--monitor-interval=2"])
    with started(command) as agent:
        wait_for(runs[1] / "checkpoints" / "000010.safetensors")
        os.kill(ranks_of(agent.pid)[1], signal.SIGKILL)
        out, error = agent.communicate(timeout=240)
    assert agent.returncode == 0, error[-3000:]
    assert "60 updates" in out
    ours, theirs = (read_tensors(run / "model.safetensors")[0] for run in runs)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor)


def lose_the_other(rank: int, world: int, port: int) -> None:
    """Process 1 dies; process 0 notices when it adds up."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    with pytest.raises(ConnectionError, match="process 0: another process of this training has ended"):  # noqa: SIM117
        with process_group():
            if rank == 1:
                os._exit(0)
            over_processes(1.0)


def test_a_process_that_dies_ends_the_others_with_a_line():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(lose_the_other, (2, port), nprocs=2)


def test_restarts_without_a_new_store_are_refused(tmp_path):
    """Because the restarted processes might wait for the dead ones for ever."""
    run = tmp_path / "run"
    done = subprocess.run(
        launch(1, *SHORT.split(), "--steps", "1", "--run", str(run), before=["--max-restarts=1"]), **CAPTURED
    )
    assert done.returncode == 0  # one process has nobody to wait for
    done = subprocess.run(launch(2, *SHORT.split(), "--run", str(run), before=["--max-restarts=1"]), **CAPTURED)
    assert done.returncode != 0 and "needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in done.stderr


def test_bad_input_under_torchrun_ends_all_processes(tmp_path):
    done = torchrun(2, "train", "--data", str(tmp_path / "nowhere"), "--run", str(tmp_path / "run"))
    assert done.returncode != 0 and "nowhere: neither multi30k, captions, hf:NAME nor a folder" in done.stderr
