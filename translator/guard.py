"""What is looked at before the first update: whether a model sees what it must not, and whether all of it learns.

The wires are those of the document (Part 2), so that this floor and `practice.examine`, which looks at
more, share them. The words are random: a wire is the same whatever is said.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

import the_annotated_transformer as tat
from the_annotated_transformer import PAD, Pair
from translator.search import precise
from translator.trainer import ParallelTrainer

LEAK, DEAF = 1e-2, 1e-5  # nats: a fresh model's wires move predictions by 0.01 to 3, rounding by 1e-6


def doubts(trainer: ParallelTrainer) -> Iterator[str]:
    """What a model of one process shows that no sound one does, a line for each; no weight changes."""
    vocab, eps = trainer.model.generator.proj.out_features, trainer.settings.smoothing
    if vocab <= len(tat.SPECIALS):
        return  # there are no words to try
    pairs = tat.copy_pairs(2, vocab, seed=0, shortest=5, longest=5)
    with precise(), tat.evaluating(trainer.model):
        with torch.inference_mode():
            moved = tat.wires(lambda some: logits(trainer, some), pairs)
            own = mean_loss(logits(trainer, pairs), pairs, eps)
        if not math.isfinite(own):
            return  # the training says so, and ends
        loss = trainer.gradient(pairs)
        weights = [p for p in trainer.model.parameters() if p.requires_grad]
        grads = [torch.zeros(1) if p.grad is None else p.grad for p in weights]
        first = math.sqrt(sum(grad.square().sum().item() for grad in grads))
        deaf = sum(not grad.any() for grad in grads)
        trainer.gradient(pairs)
        again = math.sqrt(sum(p.grad.square().sum().item() for p in weights if p.grad is not None))
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
    if not abs(again - first) < 0.01 * first:
        yield f"the gradient of the same pairs has norm {first:.3g}, and the second time {again:.3g}"
    if deaf:
        yield f"{deaf} of {len(weights)} matrices and vectors get no gradient"


def logits(trainer: ParallelTrainer, pairs: list[Pair]) -> Tensor:
    """Logits (B, T, vocab) of pairs, as the document makes them."""
    batch = tat.make_batch(pairs).to(trainer.device)
    return trainer.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).float()


def mean_loss(scores: Tensor, pairs: list[Pair], eps: float) -> float:
    """The smoothed loss per token by its definition, of pairs whose targets have one length."""
    log_p = scores.log_softmax(-1)
    y = torch.tensor([pair.tgt[1:] for pair in pairs], device=log_p.device)[:, : log_p.size(1)]
    right = log_p[:, : y.size(1)].gather(-1, y.unsqueeze(-1)).mean()
    spread = log_p.index_fill(-1, torch.tensor([PAD], device=log_p.device), 0.0).sum(-1).mean()
    return (-(1 - eps) * right - eps * spread / (log_p.size(-1) - 1)).item()
