"""The processes that train together: joining them, counting them, and adding up their numbers."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist


def best_device() -> torch.device:
    """The accelerator of this machine, or the CPU; in a torchrun process, the accelerator of its rank."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None or os.environ.get("ANNOTATED_DEVICE") == "cpu":
        return torch.device("cpu")
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.accelerator.device_count():
        return torch.device("cpu")  # more processes than accelerators
    return torch.device(device.type, int(os.environ.get("LOCAL_RANK", 0)))


@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes if torchrun started this one; leave them at the end."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield
        return
    device = best_device()
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    wait = timedelta(days=1)  # the first process may read a large corpus for hours before the others have work
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=wait)
    try:
        yield
    finally:
        dist.destroy_process_group()


def processes() -> tuple[int, int]:
    """The rank of this process and the number of processes that train together."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def over_processes(*numbers: float) -> list[float]:
    """The sum of each number over all processes; the number itself if there is one process."""
    if not dist.is_initialized():
        return list(numbers)
    total = torch.tensor(numbers, dtype=torch.float64, device=best_device())
    dist.all_reduce(total)
    return total.tolist()
