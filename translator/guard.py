"""What is looked at before the first update: whether a model sees what it must not, and whether all of it learns.

The wires are those of `practice.wires`, which this floor and `practice.examine`, which looks at more,
share. The words are random: a wire is the same whatever is said.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.wires import wires
from the_annotated_transformer import Pair
from translator.search import precise
from translator.trainer import ParallelTrainer

LEAK, DEAF = 1e-2, 1e-5  # nats: a fresh model's wires move predictions by 0.01 to 3, rounding by 1e-6


def doubts(trainer: ParallelTrainer) -> Iterator[str]:
    """What a model of one process shows that no sound one does, a line for each; no weight changes."""
    vocab, eps = trainer.model.generator.proj.out_features, trainer.settings.smoothing
    if vocab < len(tat.SPECIALS) + 2:  # no word to put in the place of another
        return
    pairs, norms = tat.copy_pairs(2, vocab, seed=0, shortest=5, longest=5), []
    with precise(), tat.evaluating(trainer.model):
        with torch.inference_mode():
            moved = wires(lambda some: logits(trainer, some), pairs)
            own = mean_loss(logits(trainer, pairs), pairs, eps)
        if not math.isfinite(own):
            return  # the training says so, and ends
        for _ in range(2):
            loss = trainer.gradient(pairs)
            grads = [p.grad for p in trainer.model.parameters() if p.requires_grad]
            norms.append(nn.utils.get_total_norm([grad for grad in grads if grad is not None]).item())
        deaf = sum(grad is None or not grad.any() for grad in grads)
        trainer.model.zero_grad()
    if not moved["neighbours"] < LEAK:  # then the other wires say nothing
        yield f"the predictions for a pair depend on its neighbours in the batch, by {moved['neighbours']:.2g} nats"
    elif not moved["future"] < LEAK:
        yield f"this model sees the future: a later word moves a prediction by {moved['future']:.2g} nats"
    elif not moved["padding"] < LEAK:
        yield f"padding moves this model's predictions, by {moved['padding']:.2g} nats: a mask is missing"
    elif not moved["source"] > DEAF:
        yield "another source moves no prediction: the decoder doesn't see it"
    elif not moved["past"] > DEAF:
        yield "an earlier word moves no prediction: the decoder doesn't see what it wrote"
    if not abs(loss - own) < 1e-3 * max(own, 1.0):
        yield f"the loss is {loss:.4g}, but {own:.4g} by the logits, if position t predicts target token t + 1"
    if not abs(norms[1] - norms[0]) < 0.01 * norms[0]:
        yield f"the gradient of the same pairs has norm {norms[0]:.3g}, and the second time {norms[1]:.3g}"
    if deaf:
        yield f"{deaf} of {len(grads)} matrices and vectors get no gradient"


def logits(trainer: ParallelTrainer, pairs: list[Pair]) -> Tensor:
    """Logits (B, T, vocab) of pairs, as the document makes them."""
    batch = tat.make_batch(pairs).to(trainer.device)
    return trainer.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).float()


def mean_loss(scores: Tensor, pairs: list[Pair], eps: float) -> float:
    """The document's smoothed loss per token, of pairs whose targets have one length."""
    y = torch.tensor([pair.tgt[1:] for pair in pairs], device=scores.device)[:, : scores.size(1)]
    return (tat.smoothed_loss(scores[:, : y.size(1)], y, eps) / y.numel()).item()
