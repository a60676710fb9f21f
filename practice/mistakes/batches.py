"""What is in a batch: pairs, the shift, and which numbers come when."""

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

import the_annotated_transformer as tat
from practice.mistakes.catalogue import CATALOGUE, mistake, right_batch, right_gradient, slip
from the_annotated_transformer import BOS, EOS, PAD, Pair

SHIFT = "Batches and the shift (Section 5.1)"


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


mistake(
    "no_shift",
    label="the target isn't shifted",
    kind="shift",
    line="tgt_y = tgt[:, :-1]  # as tgt",
    section=SHIFT,
    seen_by="loss",
    belief="The target is the target.",
    effect="The model learns to repeat what it has just read.",
    Batch____init__=batch_with(lambda tgt: tgt[:, :-1], lambda tgt: tgt[:, :-1]),
)
mistake(
    "shift_by_two",
    label="the target is shifted twice",
    kind="shift",
    line="tgt = tgt[:, :-2], tgt_y = tgt[:, 2:]",
    section=SHIFT,
    seen_by="loss",
    belief="The loader shifts, and the loss shifts.",
    effect="Each position predicts the token after the next, so the first one is never written.",
    Batch____init__=batch_with(lambda tgt: tgt[:, :-2], lambda tgt: tgt[:, 2:]),
)
mistake(
    "bos_twice",
    kind="shift",
    line="<s> by the tokeniser and by the collate function",
    section=SHIFT,
    seen_by="loss",
    belief="Someone has to add it.",
    effect="The model learns to write <s> first; decoding gets through it, one token late.",
    harmless=True,
    make_batch=lambda pairs: right_batch([Pair(p.src, [BOS, *p.tgt]) for p in pairs]),
)


def eos_cut_off(pairs):
    return right_batch([Pair(p.src, [i for i in p.tgt if i != EOS]) for p in pairs])


mistake(
    "eos_cut_off",
    label="targets without their end",
    kind="shift",
    line="targets without </s>",
    section=SHIFT,
    seen_by="loss",
    belief="The end is the end of the list.",
    effect="Nothing ever tells the model to stop: right words, and then more words.",
    make_batch=eos_cut_off,
)
mistake(
    "target_fed_as_source",
    label="the target is given as the source, too",
    kind="data",
    line="Batch(src=tgt, tgt=tgt)",
    section=SHIFT,
    seen_by="wires",
    belief="One variable, two names.",
    effect="The encoder reads the answer; at translation it reads something else.",
    make_batch=lambda pairs: right_batch([Pair(p.tgt[1:], p.tgt) for p in pairs]),
)


def shifted_by_one_line(pairs: list[Pair]) -> list[Pair]:
    """Each source with the next pair's target."""
    return [Pair(a.src, b.tgt) for a, b in zip(pairs, [*pairs[1:], *pairs[:1]], strict=True)]


mistake(
    "pairs_misaligned",
    label="each source has the next one's target",
    kind="data",
    line="random.shuffle(sources)  # and the targets not",
    section=SHIFT,
    seen_by="loss",
    belief="Shuffling is harmless.",
    effect=(
        "The source says nothing about the target, so the model learns to write numbers as such: a "
        "language model that ignores its source."
    ),
    Trainer__gradient=lambda self, pairs: right_gradient(self, shifted_by_one_line(pairs)),
)


def quarter_misaligned(self, pairs):
    rest = [p for i, p in enumerate(pairs) if i % 4]
    return right_gradient(self, shifted_by_one_line(pairs[::4]) + rest)


mistake(
    "quarter_misaligned",
    kind="data",
    line="a quarter of the lines off by one",
    section=SHIFT,
    seen_by="heart",
    belief="Both files have the same number of lines.",
    effect=(
        "The loss stays up and looks ill; the translations are nearly as good as without the bad "
        "quarter."
    ),
    harmless=True,
    Trainer__gradient=quarter_misaligned,
)


def not_shuffled(known, held_out, draw):
    cycle = itertools.cycle([*range(100), *sorted(known)])
    while True:
        yield list(itertools.islice(cycle, 32))


mistake(
    "not_shuffled",
    kind="data",
    line="0, 1, 2, ... again and again",
    section="Batches of similar lengths",
    seen_by="run",
    belief="Each epoch sees everything, in whichever order.",
    effect=(
        "Each update unlearns the one before: 32 neighbours in the alphabet of numbers are all "
        "alike."
    ),
    numbers=not_shuffled,
)
slip(
    "eos_is_read",
    line="ids, ids[1:]  # ids for ids[:-1]",
    effect="Nothing comes after </s>, so the decoder never reads it.",
    Batch____init__=batch_with(lambda tgt: tgt, lambda tgt: tgt[:, 1:]),
)
slip(
    "nothing_cut_off",
    line="ids, ids",
    effect="Each position would have to predict the token that it has just read. The next one is asked.",
    Batch____init__=batch_with(lambda tgt: tgt, lambda tgt: tgt),
)
slip(
    "shift_the_other_way",
    line="ids[1:], ids[:-1]  # the two swapped",
    effect="Each position would read a token and predict the one before it.",
    Batch____init__=batch_with(lambda tgt: tgt[:, 1:], lambda tgt: tgt[:, :-1]),
)
slip(
    "bos_in_front",
    line="[bos] + ids[:-1], ids",
    effect="ids begins with <s> already: it would be read twice, and asked for once.",
    **CATALOGUE["bos_twice"].puts,
)
slip(
    "eos_in_front",
    line="[eos] + ids[:-1], ids",
    effect="The first thing that is read is <s>, and ids begins with it already.",
    Batch____init__=batch_with(
        lambda tgt: torch.cat((torch.full_like(tgt[:, :1], EOS), tgt[:, :-1]), 1), lambda tgt: tgt
    ),
)
