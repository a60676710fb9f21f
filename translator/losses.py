"""What training minimises: the smoothed loss, computed in chunks, and optionally R-Drop's divergence between two passes.

The loss is a module so that PyTorch's data parallelism can wrap it. It scores real positions only, because the output
matrix is the model's largest and padding needs no prediction.
"""

import functools

import torch
from torch import Tensor, nn

from the_annotated_transformer import PAD, Batch, ChunkedLoss, Transformer, smoothed_gradient


def r_drop_gradient(
    scores: Tensor, target: Tensor, alpha: float, eps: float = 0.1, pad: int = PAD
) -> tuple[Tensor, Tensor]:
    """R-Drop's loss, summed over targets, and its gradient by the scores (2, n, V) of two passes (Liang et al., 2021).

    Two passes with different dropout give p and p', which should agree. The loss is the mean of both losses plus alpha / 4
    times KL(p || p') + KL(p' || p); these two add up to the sum of (p - p')(log p - log p').
    """
    log_p, (loss, grad) = scores.log_softmax(-1), smoothed_gradient(scores, target, eps, pad)
    gap, (p1, p2) = log_p[0] - log_p[1], log_p.exp_()  # each (n, V)
    forth, back = (p1 * gap).sum(-1, keepdim=True), (p2 * gap).sum(-1, keepdim=True)  # KL(p || p'), -KL(p' || p)
    loss += alpha / 2 * (forth - back).sum()
    away = p1 - p2
    grad[0].add_(p1.mul_(gap - forth).add_(away), alpha=alpha / 2)
    grad[1].add_(p2.mul_(back - gap).sub_(away), alpha=alpha / 2)
    return loss / 2, grad.div_(2)


class Objective(nn.Module):
    """The smoothed loss of a batch, summed over its target tokens (Sections 3.4 and 5.4); of two passes with R-Drop."""

    def __init__(self, model: Transformer, eps: float, r_drop: float = 0.0):
        super().__init__()
        self.model, self.eps, self.r_drop = model, eps, r_drop

    def forward(self, batch: Batch, plain: bool = False) -> Tensor:
        """Batch to a scalar; if `plain`, the cross-entropy alone, without smoothing and from one pass."""
        eps, r_drop = (0.0, 0.0) if plain else (self.eps, self.r_drop)
        weight, passes = self.model.generator.proj.weight, 2 if r_drop else 1
        weight = weight if torch.is_grad_enabled() else weight.detach()  # skips a gradient that nobody asks for
        inputs = (batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        src, tgt, src_mask, tgt_mask = (torch.cat([t] * passes) for t in inputs)
        x = self.model.decode(self.model.encode(src, src_mask), src_mask, tgt, tgt_mask)  # (passes * B, T, d_model)
        real = batch.tgt_y != PAD
        x = x.unflatten(0, (passes, -1))[:, real]  # (passes, n, d_model)
        if r_drop:
            loss = functools.partial(r_drop_gradient, alpha=r_drop, eps=eps)
        else:
            loss = functools.partial(smoothed_gradient, eps=eps)
        return ChunkedLoss.apply(x, weight, batch.tgt_y[real], loss, 512 // passes)
