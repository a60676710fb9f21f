"""What is looked at before the first update: if a model sees too much, and if all of it learns.

And before that, if its device computes what the CPU computes: some devices go wrong in silence.

The wires are those of `practice.wires`, which this floor and `practice.examine`, which looks at
more, share. The words are random: a wire is the same whatever is said.
"""

import copy
import math
from collections.abc import Iterator

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.wires import wires
from the_annotated_transformer import Pair
from translator.agreement import precise
from translator.files import OUT_OF_MEMORY, Refused
from translator.trainer import Objective, ParallelTrainer

# nats: a fresh model's wires move predictions by 0.01 to 3, rounding by 1e-6
LEAK, DEAF = 1e-2, 1e-5
# shares of a loss and of a matrix's gradient. With six layers, rounding to float32 moves the
# latter by up to 0.01, to TF32 by 0.05; a mask that is not heeded moves it by 0.8 and more
LOSS_ERROR, GRADIENT_ERROR = 0.01, 0.1
ADVICE = "train with --device cpu; a newer system, driver or PyTorch may be right"


def doubts(trainer: ParallelTrainer) -> Iterator[str]:
    """What a model of one process shows that no sound one does, line by line; no weight changes."""
    # Predictions are compared with those of changed batches, then the loss and the gradient with
    # themselves: what differs though it should not, or does not though it should, is said.
    vocab = trainer.model.generator.proj.out_features
    eps = trainer.settings.smoothing
    if vocab < len(tat.SPECIALS) + 2:  # no word to put in the place of another
        return
    pairs = tat.copy_pairs(2, vocab, seed=0, shortest=5, longest=5)
    norms = []
    with precise(), tat.evaluating(trainer.model):
        with torch.inference_mode():
            moved = wires(lambda batch: logits(trainer, batch), pairs)
            loss_by_logits = mean_loss(logits(trainer, pairs), pairs, eps)
        if not math.isfinite(loss_by_logits):
            return  # the training says so, and ends
        # twice: a gradient that isn't cleared between updates would grow
        for _ in range(2):
            loss = trainer.gradient(pairs)
            grads = [p.grad for p in trainer.model.parameters() if p.requires_grad]
            norm = nn.utils.get_total_norm([grad for grad in grads if grad is not None])
            norms.append(norm.item())
        deaf = sum(grad is None or not grad.any() for grad in grads)
        trainer.model.zero_grad()
    yield from wire_doubts(moved)
    if not abs(loss - loss_by_logits) < 1e-3 * max(loss_by_logits, 1.0):
        yield (
            f"the loss is {loss:.4g}, but {loss_by_logits:.4g} by the logits, "
            "if position t predicts target token t + 1"
        )
    first, second = norms
    if not abs(second - first) < 0.01 * first:
        yield (
            f"the gradient of the same pairs has norm {first:.3g}, and the second time {second:.3g}"
        )
    if deaf:
        yield f"{deaf} of {len(grads)} matrices and vectors get no gradient"


def wire_doubts(moved: dict[str, float]) -> Iterator[str]:
    """The first wire that moves predictions too much or too little; others then say little."""
    # in the order in which one explains the next: who sees neighbours or the future needs no source
    nats = {name: f"by {value:.2g} nats" for name, value in moved.items()}
    if not moved["neighbours"] < LEAK:
        yield (
            "the predictions for a pair depend on its neighbours in the batch, "
            f"{nats['neighbours']}"
        )
    elif not moved["future"] < LEAK:
        yield f"this model sees the future: a later word moves a prediction {nats['future']}"
    elif not moved["padding"] < LEAK:
        yield f"padding moves this model's predictions, {nats['padding']}: a mask is missing"
    elif not moved["source"] > DEAF:
        yield "another source moves no prediction: the decoder doesn't see it"
    elif not moved["past"] > DEAF:
        yield "an earlier word moves no prediction: the decoder doesn't see what it wrote"


def check_device(model: nn.Module, device: torch.device, eps: float) -> None:
    """Raise Refused if a device gives another loss or gradient than the CPU, where the model is."""
    # Padding is on both sides of the batch, because masks are what Apple's and AMD's devices have
    # got wrong most often.
    vocab = model.generator.proj.out_features
    cpu = torch.device("cpu")
    if device == cpu or vocab < len(tat.SPECIALS) + 2:
        return
    pairs = tat.copy_pairs(8, vocab, seed=0, shortest=2, longest=30)
    loss, grads = loss_and_gradient(model, cpu, pairs, eps)
    if not math.isfinite(loss):
        return  # the training says so, and ends
    try:
        other_loss, other_grads = loss_and_gradient(model, device, pairs, eps)
    except RuntimeError as error:
        if OUT_OF_MEMORY.search(str(error)):
            raise
        raise Refused(f"{device} can't compute this model ({error}); {ADVICE}") from error
    if not abs(other_loss - loss) < LOSS_ERROR * abs(loss):
        raise Refused(
            f"{device} gives a loss of {other_loss:.4g} where the CPU gives {loss:.4g}; {ADVICE}"
        )
    # some gradients are zero but for rounding, such as that of keys' biases
    least = 0.01 * nn.utils.get_total_norm(grads.values())
    for name, grad in grads.items():
        error = (other_grads[name] - grad).norm() / torch.maximum(grad.norm(), least)
        if not error < GRADIENT_ERROR:
            raise Refused(
                f"{device} gives another gradient of {name} than the CPU, by {error:.0%}; {ADVICE}"
            )


def loss_and_gradient(
    model: nn.Module, device: torch.device, pairs: list[Pair], eps: float
) -> tuple[float, dict[str, Tensor]]:
    """The loss per pair of a copy of the model on a device, without dropout, and its gradient."""
    # a copy, so that neither weights nor gradients of the training change
    objective = Objective(copy.deepcopy(model).to(device), eps)
    with precise(), tat.evaluating(objective.model):
        loss = objective(tat.make_batch(pairs).to(device)) / len(pairs)
        loss.backward()
    weights = objective.model.named_parameters()
    return loss.item(), {name: p.grad.cpu() for name, p in weights if p.grad is not None}


def logits(trainer: ParallelTrainer, pairs: list[Pair]) -> Tensor:
    """Logits (B, T, vocab) of pairs, as the document makes them."""
    batch = tat.make_batch(pairs).to(trainer.device)
    return trainer.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).float()


def mean_loss(scores: Tensor, pairs: list[Pair], eps: float) -> float:
    """The document's smoothed loss per token, of pairs whose targets have one length."""
    y = torch.tensor([pair.tgt[1:] for pair in pairs], device=scores.device)[:, : scores.size(1)]
    return (tat.smoothed_loss(scores[:, : y.size(1)], y, eps) / y.numel()).item()
