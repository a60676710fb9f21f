"""Several processes have the same gradient, losses and validation loss as one."""

import os
import subprocess
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import the_annotated_transformer as tat
from translator.processes import over_processes
from translator.runs import read_log
from translator.settings import Settings
from translator.trainer import Trainer
from translator.training import validation_loss

ROOT = Path(__file__).resolve().parents[2]
SIZES = {"N": 1, "d_model": 16, "d_ff": 32, "h": 2, "dropout": 0.0}


def torchrun(count: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command line in several processes on this machine."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "--"]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    script = ROOT / "the_annotated_transformer.py"
    return subprocess.run([*launch, script, *arguments], capture_output=True, text=True, timeout=300, env=one_thread)


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


def test_bad_input_under_torchrun_ends_all_processes(tmp_path):
    done = torchrun(2, "train", "--data", str(tmp_path / "nowhere"), "--run", str(tmp_path / "run"))
    assert done.returncode != 0 and "nowhere: neither multi30k, captions, hf:NAME nor a folder" in done.stderr
