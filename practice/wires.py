"""What a model's predictions depend on: a look at its wires, which needs no training.

A loss says how well a model predicts from what it sees, but not whether it sees something that it
mustn't. `predict` is any function that makes logits (B, T, vocab) of pairs.
"""

from collections.abc import Callable

import torch
from torch import Tensor

import the_annotated_transformer as tat
from the_annotated_transformer import PAD, Pair

MOVED = 1e-3  # nats; rounding moves a log-probability by 1e-6, a fresh model's wire by 1e-2 or more


def predict_with(model: tat.Transformer, pairs: list[Pair]) -> Tensor:
    """Logits of pairs, in evaluation mode."""
    batch = tat.make_batch(pairs)
    with torch.inference_mode(), tat.evaluating(model):
        return model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)


def influence(predict: Callable[[list[Pair]], Tensor], pairs: list[Pair]) -> Tensor:
    """How far each prediction (row) moves, in nats, if a target word (column) changes: (T, T).

    The pairs have equal lengths.
    """
    T = len(pairs[0].tgt) - 1
    changed = []  # all pairs with another word at 0, then all with another at 1, and so on
    for t in range(T):
        for p in pairs:
            word = next(i for i in pairs[0].tgt[1:] if i != p.tgt[t])
            changed.append(Pair(p.src, [*p.tgt[:t], word, *p.tgt[t + 1 :]]))
    # all in one call: what a model draws or remembers would differ from call to call
    log_p = predict([*pairs, *changed]).log_softmax(-1).unflatten(0, (1 + T, len(pairs)))
    return (log_p[1:] - log_p[0]).abs().amax((1, 3)).mT  # the largest change among pairs and words


def wires(predict: Callable[[list[Pair]], Tensor], pairs: list[Pair]) -> dict[str, float]:
    """How far predictions move in nats; `future`, `padding`, `neighbours` must be 0, others not."""
    target = influence(predict, pairs)
    # each wire is a change that should matter, or should not: of what comes later, of padding, of
    # neighbours, of the source, of its order and of the target's
    base = predict(pairs).log_softmax(-1)
    moved = {"future": target.triu(1).max().item(), "past": target.tril(-1).max().item()}
    changed_batches = {
        "padding": [Pair([*p.src, PAD, PAD], [*p.tgt, PAD, PAD]) for p in pairs],
        "neighbours": [*pairs[1:], *pairs],
        "source": [Pair(q.src, p.tgt) for p, q in zip(pairs, pairs[::-1], strict=True)],
        "source order": [Pair([*p.src[-2::-1], p.src[-1]], p.tgt) for p in pairs],
        "target order": [Pair(p.src, [p.tgt[0], p.tgt[2], p.tgt[1], *p.tgt[3:]]) for p in pairs],
    }
    for name, batch in changed_batches.items():
        # the pairs themselves come last: with neighbours, others stand before them
        log_p = predict(batch)[-len(pairs) :, : base.size(1)].log_softmax(-1)
        change = (log_p - base).abs().amax((0, 2))  # (T)
        first = 3 if name == "target order" else 0  # behind the two that changed places
        moved[name] = change[first:].max().item()
    if moved["source"] <= MOVED:
        del moved["source order"]  # who doesn't read the source says nothing of its order
    return moved
