"""Optimisers: Adam as the paper has it, and Muon for the matrices of the layers.

Muon (Jordan et al., 2024): Adam treats each entry of a matrix separately. Muon takes the gradient's moving average
M = U S V^T and moves by U V^T: the same directions, all by the same length. It needs no singular value decomposition. Divided
by its Frobenius norm, M has no singular value above 1. Each step X <- a X + b (X X^T) X + c (X X^T)^2 X then applies the
polynomial a s + b s^3 + c s^5 to every singular value s and leaves U and V alone. Five steps bring all but the smallest to
between about 0.7 and 1.2. Scaled by 0.3 sqrt(max(rows, columns)), the result has entries with a root mean square of about
0.3, like Adam's updates, so both share the schedule of Equation (3). Embeddings, output matrix, gains and biases stay with
Adam, as the authors advise. PyTorch's `torch.optim.Muon` computes in 16 bits, which many processors can only emulate.
"""

import copy

import torch
from torch import Tensor, nn

from the_annotated_transformer import Transformer
from translator.sharding import is_sharded, part_for, whole


def orthogonalised(M: Tensor, steps: int = 5) -> Tensor:
    """Matrices (n, rows, columns) with the singular vectors of M and singular values near 1 (Jordan et al., 2024)."""
    X = M / M.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    X = X.mT if M.size(1) > M.size(2) else X  # so that X X^T is the smaller product
    for _ in range(steps):
        S = X @ X.mT
        S = torch.baddbmm(S, S, S, beta=-4.7750, alpha=2.0315)  # b S + c S S
        X = torch.baddbmm(X, S, X, beta=3.4445)  # a X + S X
    return X.mT if M.size(1) > M.size(2) else X


class Muon(torch.optim.Optimizer):
    """Moves matrices by the orthogonalised moving average of their gradients, each entry by about 0.3 `lr`."""

    def __init__(self, matrices: list[nn.Parameter], lr: float = 0.0, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})
        self.state.update({p: {"momentum": torch.zeros_like(p)} for p in matrices})

    @torch.no_grad()
    def step(self) -> None:
        """One update; matrices of one shape are orthogonalised together, those in parts one by one, to save memory."""
        for group in self.param_groups:
            together: dict[torch.Size | nn.Parameter, list[nn.Parameter]] = {}
            for p in group["params"]:
                together.setdefault(p if is_sharded(p) else p.shape, []).append(p)
            for alike in together.values():
                grads, averages = [p.grad for p in alike], [self.state[p]["momentum"] for p in alike]
                torch._foreach_lerp_(averages, grads, 1 - group["momentum"])
                ahead = torch._foreach_lerp(grads, averages, group["momentum"])  # Nesterov's momentum: one step ahead
                moves = orthogonalised(torch.stack([whole(matrix) for matrix in ahead]))
                parts = [part_for(move, p) for move, p in zip(moves, alike, strict=True)]
                torch._foreach_add_(alike, parts, alpha=-0.3 * group["lr"] * max(alike[0].shape) ** 0.5)


def make_optimizers(model: Transformer, kind: str) -> list[torch.optim.Optimizer]:
    """Adam with the paper's settings (Section 5.3); for "muon", with Muon for the matrices of all layers."""
    layers = {"adam": [], "muon": [*model.encoder.parameters(), *model.decoder.parameters()]}[kind]
    matrices = [p for p in layers if p.dim() == 2]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    adam = torch.optim.Adam(others, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for p in others:  # Adam would do this at its first step; a checkpoint needs the tensors before that
        averages = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        adam.state[p] = {"step": torch.zeros((), device=p.device)} | averages
    return [adam, Muon(matrices)] if matrices else [adam]


def averaged_copy(model: Transformer) -> Transformer:
    """A copy of the model that takes no gradient, to hold a moving average of the weights."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def update_average(averaged: Transformer, model: Transformer, decay: float) -> None:
    """averaged = decay * averaged + (1 - decay) * model, for every weight."""
    for a, p in zip(averaged.parameters(), model.parameters(), strict=True):
        a.lerp_(p, 1 - decay)
