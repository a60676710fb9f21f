"""Sharded training: each process keeps only its part of every weight, moment and average (Rajbhandari et al., 2020).

PyTorch's `fully_shard` does it. The processes gather the weights of a layer right before they need them, let them go after
it, and keep the sum of its gradient in parts as well. So a model may be larger than the memory of one device. Checkpoints
are whole: the tensors are gathered one by one, and the same file serves any number of processes, sharded or not.
"""

import torch
from torch import Tensor

from translator.losses import Objective
from translator.processes import processes


def shard(objective: Objective, device: torch.device) -> Objective:
    """Divide the weights of a model among the processes, layer by layer; what is in no layer is one more unit.

    The model may be in main memory: its parts are moved to the device one after the other.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (processes()[1],))
    for layer in (*objective.model.encoder.layers, *objective.model.decoder.layers, objective):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    return objective


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process has only a part of a tensor."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """A tensor with all its parts; every process has to ask for it."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def part_for(tensor: Tensor, like: Tensor) -> Tensor:
    """The part of a whole tensor that belongs where `like` is."""
    if not is_sharded(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor.to(like.device), like.device_mesh, like.placements, src_data_rank=None)


def gathered(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors in main memory, in the first process; the others, who help to gather them, get none."""
    first, found = processes()[0] == 0, {}
    for name, tensor in sorted(tensors.items()):  # in one order everywhere
        complete = whole(tensor).detach()
        if first:
            found[name] = complete.cpu()
    return found
