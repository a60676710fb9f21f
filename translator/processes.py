"""The processes that train together: how they join, add up numbers, stop well, and share a model.

A *sharded* model has a part of each weight, moment and average in each process (Rajbhandari et al.,
2020). PyTorch's `fully_shard` gathers the weights of a layer right before they are needed and lets
them go after it, so the model may be larger than the memory of one device. Checkpoints are whole:
the same file serves any number of processes, sharded or not.
"""

import os
import re
import signal
import threading
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from the_annotated_transformer import unwrapped
from translator.files import Refused, refusing


def choose_device() -> torch.device:
    """The accelerator of this machine, or the CPU; in a torchrun process, that of its rank."""
    # The environment variable ANNOTATED_DEVICE may name another device, such as `cuda:1`.
    device = torch.accelerator.current_accelerator(check_available=True)
    # a device with a number is meant as it stands; one without is that of this process's rank
    wanted = torch.device(os.environ.get("ANNOTATED_DEVICE") or device or "cpu")
    if device is None or wanted.type != device.type or wanted.index is not None:
        return wanted
    if told("LOCAL_WORLD_SIZE", 1) > torch.accelerator.device_count():
        return torch.device("cpu")  # more processes than accelerators
    return torch.device(device.type, told("LOCAL_RANK", 0))


def told(name: str, default: int) -> int:
    """A launcher's number in the environment; Refused, naming the variable, if it is none."""
    with refusing(f"{name} in the environment is no number", ValueError):
        return int(os.environ.get(name) or default)


def use_device(name: str | None = None) -> None:
    """Have `choose_device` choose this device from now on.

    Raises Refused if that, or else the one it chooses, does not compute here.
    """
    wanted = os.environ.get("ANNOTATED_DEVICE", "")
    option = f"--device {name}" if name else f"ANNOTATED_DEVICE={wanted}"
    message = option + " cannot be used here; --device cpu always can"
    with refusing(message, Exception):  # of as many kinds as there are devices
        device = name or choose_device()
        torch.ones(2, 2, device=device).mm(torch.eye(2, device=device)).sum().item()
    if name:
        os.environ["ANNOTATED_DEVICE"] = name


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes if torchrun started this one; leave them at the end.

    A group that is there already is used. If another process dies, raises ConnectionError in this
    one. Raises OSError if torchrun may restart processes, but was not told to give them a new
    store: in the old one they would find the addresses of dead processes, and wait for those.
    """
    if dist.is_initialized() or told("WORLD_SIZE", 1) == 1:
        yield
        return
    same_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    if told("TORCHELASTIC_MAX_RESTARTS", 0) and same_store:
        raise OSError(
            "torchrun --max-restarts needs TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 in its environment"
        )
    device = choose_device()
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    # the first process may read a large corpus for hours before the others have work
    wait = timedelta(days=1)
    message = "WORLD_SIZE is set, but what torchrun sets beside it is not right"
    with refusing(message, ValueError, RuntimeError):
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=wait)
    try:
        yield
    except BaseException as error:
        # the error's frames hold the trainer, and PyTorch can hang if that outlives the group
        traceback.clear_frames(error.__traceback__)
        lost = isinstance(error, dist.DistError) or re.search("gloo|nccl", str(error), re.I)
        if not isinstance(error, RuntimeError) or not lost:
            raise
        reason = " ".join(str(error).split())[:200]
        raise ConnectionError(
            f"process {dist.get_rank()}: another process of this training has ended ({reason}); "
            "the same command goes on from the last checkpoint"
        ) from error
    finally:
        dist.destroy_process_group()


def processes() -> tuple[int, int]:
    """The rank of this process and the number of processes that train together."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def over_processes(*numbers: float) -> list[float]:
    """The sum of each number over all processes; the number itself if there is one process."""
    if not dist.is_initialized():
        return list(numbers)
    total = torch.tensor(numbers, dtype=torch.float64, device=choose_device())
    dist.all_reduce(total)
    return total.tolist()


def any_process(*flags: bool) -> list[bool]:
    """For each flag, whether at least one process has raised it."""
    return [count > 0 for count in over_processes(*map(float, flags))]


def wait_for_all() -> None:
    """Return when every process has come here."""
    if dist.is_initialized():
        dist.barrier()


# Ctrl-C; of schedulers, some of them before a job's time is up; of a terminal that closes, on
# Windows the last
REQUESTS = "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGXCPU", "SIGHUP", "SIGBREAK"


@contextmanager
def stop_requests() -> Iterator[list[int]]:
    """The numbers of the signals that ask this program to end, as they come."""
    # So an update can be finished and saved first. What this process was started to ignore, such as
    # SIGHUP under nohup, it ignores, unless it is torchrun that passes it on. A Ctrl-C after
    # another request ends a training of one process at once.
    asked: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if asked and number == signal.SIGINT and not dist.is_initialized():
            raise KeyboardInterrupt  # torchrun hands Ctrl-C to processes that have had it already
        asked.append(number)

    numbers = [getattr(signal, name) for name in REQUESTS if hasattr(signal, name)]
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        numbers = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    main = threading.current_thread() is threading.main_thread()  # others may not handle signals
    earlier = {number: signal.signal(number, note) for number in numbers} if main else {}
    try:
        yield asked
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: it wasn't Python's


# --- A model in parts ---
def shard(module: nn.Module, layers: Iterable[nn.Module], device: torch.device) -> None:
    """Divide a module's weights among the processes, by layers; what is in none is a unit, too."""
    # The module may be in main memory: its parts are moved to the device one after the other.
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (processes()[1],))
    # layers first: the outermost unit takes what no layer has
    for unit in (*layers, module):
        fully_shard(unit, mesh=mesh, reshard_after_forward=True)


def is_sharded(tensor: Any) -> bool:
    """Whether this process has only a part of a tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> Tensor:
    """A tensor with all its parts; every process has to ask for it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def part_for(tensor: Tensor, like: Any) -> Tensor:
    """The part of a whole tensor that belongs where `like` is."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    mesh, placements = like.device_mesh, like.placements
    return distribute_tensor(tensor.to(like.device), mesh, placements, src_data_rank=None)


def gathered(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors in main memory, in the first process; others help to gather, and get none."""
    first = processes()[0] == 0
    whole_tensors = {}
    for name, tensor in sorted(tensors.items()):  # in one order everywhere
        # all have to ask, or those that do would wait for ever; only the first keeps what came
        complete = whole(tensor).detach()
        if first:
            whole_tensors[name] = complete.cpu()
    return whole_tensors


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The parameters by name, of a wrapped model the model's; a tied one appears once."""
    return dict(unwrapped(model).named_parameters())


def check_weights(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Raise Refused naming `path` if tensors do not fit the model's parameters."""
    parameters = weights_of(model)
    for name in sorted(parameters.keys() ^ tensors.keys()):
        place = "missing" if name in parameters else "not part of it"
        raise Refused(f"{path}: not weights of this model ({name} is {place})")
    for name, parameter in parameters.items():
        if parameter.shape != tensors[name].shape:
            raise Refused(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}, "
                f"but the model needs {tuple(parameter.shape)}"
            )


def load_weights(model: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into the model's parameters; raises Refused naming `path` if they do not fit."""
    check_weights(model, tensors, path)
    with torch.no_grad():
        for name, parameter in weights_of(model).items():
            parameter.copy_(part_for(tensors[name], parameter))
