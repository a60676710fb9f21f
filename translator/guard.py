"""What is looked at before the first update: if a model sees too much, and if all of it learns.

The wires are those of `practice.wires`, which this floor and `practice.examine`, which looks at
more, share. The words are random: a wire is the same whatever is said.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.wires import wires
from the_annotated_transformer import Pair
from translator.stepping import precise
from translator.trainer import ParallelTrainer

# nats: a fresh model's wires move predictions by 0.01 to 3, rounding by 1e-6
LEAK, DEAF = 1e-2, 1e-5


def doubts(trainer: ParallelTrainer) -> Iterator[str]:
    """What a model of one process shows that no sound one does, line by line; no weight changes."""
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
            known = [grad for grad in grads if grad is not None]
            norms.append(nn.utils.get_total_norm(known).item())
        deaf = sum(grad is None or not grad.any() for grad in grads)
        trainer.model.zero_grad()
    nats = {name: f"by {value:.2g} nats" for name, value in moved.items()}
    if not moved["neighbours"] < LEAK:  # then the other wires say nothing
        pair = "the predictions for a pair depend on its neighbours in the batch"
        yield f"{pair}, {nats['neighbours']}"
    elif not moved["future"] < LEAK:
        yield f"this model sees the future: a later word moves a prediction {nats['future']}"
    elif not moved["padding"] < LEAK:
        yield f"padding moves this model's predictions, {nats['padding']}: a mask is missing"
    elif not moved["source"] > DEAF:
        yield "another source moves no prediction: the decoder doesn't see it"
    elif not moved["past"] > DEAF:
        yield "an earlier word moves no prediction: the decoder doesn't see what it wrote"
    if not abs(loss - own) < 1e-3 * max(own, 1.0):
        both = f"the loss is {loss:.4g}, but {own:.4g} by the logits"
        yield f"{both}, if position t predicts target token t + 1"
    first, second = norms
    if not abs(second - first) < 0.01 * first:
        both = f"has norm {first:.3g}, and the second time {second:.3g}"
        yield f"the gradient of the same pairs {both}"
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
