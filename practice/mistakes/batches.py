"""What is in a batch: pairs, the shift, and which numbers come when."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

import the_annotated_transformer as tat
from practice.mistakes.catalogue import CATALOGUE, mistake, right_batch, right_gradient, slip
from the_annotated_transformer import BOS, EOS, PAD, Pair


def batch_with(read: Callable[[Tensor], Tensor], predict: Callable[[Tensor], Tensor]) -> Callable:
    """A Batch whose targets are cut differently."""

    def init(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        self.src = src
        self.src_mask = tat.source_mask(src, pad)
        if tgt is not None:
            self.tgt, self.tgt_y = read(tgt), predict(tgt)
            self.tgt_mask = tat.target_mask(self.tgt, pad)
            self.ntokens = int((self.tgt_y != pad).sum())

    return init


# what the decoder reads, and what it has to predict at each place
mistake("no_shift", Batch____init__=batch_with(lambda tgt: tgt[:, :-1], lambda tgt: tgt[:, :-1]))
mistake("shift_by_two", Batch____init__=batch_with(lambda tgt: tgt[:, :-2], lambda tgt: tgt[:, 2:]))
mistake(
    "bos_twice", make_batch=lambda pairs: right_batch([Pair(p.src, [BOS, *p.tgt]) for p in pairs])
)


def eos_cut_off(pairs):
    return right_batch([Pair(p.src, [i for i in p.tgt if i != EOS]) for p in pairs])


mistake("eos_cut_off", make_batch=eos_cut_off)
mistake(
    "target_fed_as_source",
    make_batch=lambda pairs: right_batch([Pair(p.tgt[1:], p.tgt) for p in pairs]),
)


# In the data, and so in the trainer's eyes all is well: its loss is that of the pairs it was given.
def shifted_by_one_line(pairs: list[Pair]) -> list[Pair]:
    """Each source with the next pair's target."""
    return [Pair(a.src, b.tgt) for a, b in zip(pairs, [*pairs[1:], *pairs[:1]], strict=True)]


mistake(
    "pairs_misaligned",
    Trainer__gradient=lambda self, pairs: right_gradient(self, shifted_by_one_line(pairs)),
)


def quarter_misaligned(self, pairs):
    rest = [p for i, p in enumerate(pairs) if i % 4]
    return right_gradient(self, shifted_by_one_line(pairs[::4]) + rest)


mistake("quarter_misaligned", Trainer__gradient=quarter_misaligned)


# instead of draws: an order that comes back, in which neighbours are alike
def not_shuffled(known, held_out, draw):
    cycle = itertools.cycle([*range(100), *sorted(known)])
    while True:
        yield list(itertools.islice(cycle, 32))


mistake("not_shuffled", numbers=not_shuffled)
# the same cuts, asked of a single sentence
slip("eos_is_read", Batch____init__=batch_with(lambda tgt: tgt, lambda tgt: tgt[:, 1:]))
slip("nothing_cut_off", Batch____init__=batch_with(lambda tgt: tgt, lambda tgt: tgt))
slip(
    "shift_the_other_way",
    Batch____init__=batch_with(lambda tgt: tgt[:, 1:], lambda tgt: tgt[:, :-1]),
)
slip("bos_in_front", **CATALOGUE["bos_twice"].puts)
slip(
    "eos_in_front",
    Batch____init__=batch_with(
        lambda tgt: torch.cat((torch.full_like(tgt[:, :1], EOS), tgt[:, :-1]), 1), lambda tgt: tgt
    ),
)
