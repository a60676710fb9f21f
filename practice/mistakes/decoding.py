"""Decoding, and what is reported."""

import contextlib
import functools
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.mistakes.catalogue import (
    LONGEST,
    cached,
    mistake,
    right_numbers,
    right_source,
    right_step,
    right_target,
    right_translate,
    slip,
    until_end,
)
from practice.mistakes.masks import square
from the_annotated_transformer import BOS, EOS, Pair

# Made after training: one healthy model serves for all of these.
mistake("decoding_begins_with_eos", translate=functools.partial(right_translate, start=EOS))


def every_step_at_position_zero(self, tokens):
    self.length = 0  # from which the step takes its position
    return right_step(self, tokens)


mistake(
    "every_step_at_position_zero", CachedDecoder__step=every_step_at_position_zero, translate=cached
)


def cache_forgets(self, i, query, key, value, mask=None):
    attn = self.model.decoder.layers[i].self_attn
    # its own keys alone, where the document puts them behind those of the steps before
    return attn.attend(query, *attn.keys_values(key, value))


mistake("cache_forgets", CachedDecoder__own=cache_forgets, translate=cached)
mistake("no_source_mask_in_decoding", translate=functools.partial(right_translate, mask=False))


@contextlib.contextmanager
def dropout_left_on(model):
    model.train()
    yield


mistake("dropout_left_on", settings={"dropout": 0.1}, evaluating=dropout_left_on)


def vocabulary_reordered(pairs):
    letters = list(range(len(tat.SPECIALS), len(tat.LETTERS)))
    random.Random(1).shuffle(letters)
    ids = [*range(len(tat.SPECIALS)), *letters]
    return [Pair([ids[i] for i in p.src], [ids[i] for i in p.tgt]) for p in pairs]


mistake("vocabulary_reordered", examined=vocabulary_reordered)


# A report that reads the reference: it is high, and nothing was translated.
def forced(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """What the model says at each position after it has read the true tokens before it."""
    batch = tat.make_batch(pairs)
    with torch.inference_mode(), tat.evaluating(model):
        best = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).argmax(-1)
    return [until_end(row) for row in best.tolist()]


mistake("teacher_forcing_reported", translate=forced)
mistake("mask_missing_and_not_noticed", subsequent_mask=square, translate=forced)
mistake(
    "held_out_in_training",
    numbers=lambda known, held_out, draw: right_numbers(known + held_out, [], draw),
)
# what is given back: neither <s>, which isn't written, nor fewer or more ids than `longest`
slip("bos_given_back", translate=lambda *asked: [[BOS, *row] for row in right_translate(*asked)])
slip(
    "eos_not_given_back",
    translate=lambda *asked: [[i for i in row if i != EOS] for row in right_translate(*asked)],
)
slip(
    "one_token_too_many",
    translate=lambda model, pairs, n=LONGEST: right_translate(model, pairs, n + 1),
)
slip(
    "one_token_too_few",
    translate=lambda model, pairs, n=LONGEST: right_translate(model, pairs, n - 1),
)
slip(
    "bos_counted",
    translate=lambda model, pairs, n=LONGEST: [
        [BOS, *row] for row in right_translate(model, pairs, n - 1)
    ],
)


def loop_with(
    best: Callable = Tensor.argmax,
    end: int = EOS,
    last_alone: bool = False,
    most: int = 0,
    causal: bool = True,
    read_at: int = -1,
    source: Callable[[list[int]], list[int]] = list,
) -> Callable:
    """Greedy decoding, one sentence after the other, with one thing changed."""

    def translate(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
        texts = []
        for src in (torch.tensor([source(pair.src)]) for pair in pairs):
            ids, mask = torch.tensor([[BOS]]), right_source(src)
            with tat.evaluating(model):
                memory = model.encode(src, mask)
                # `ids` has BOS as well, so it holds one id more than were written
                while ids.size(1) <= (most or longest) and ids[0, -1] != end:
                    read = ids[:, -1:] if last_alone else ids
                    x = model.decode(memory, mask, read, right_target(read) if causal else None)
                    # (1, 1, vocab), so that what `best` gives can be put behind the ids
                    scores = model.generator.logits(x[:, read_at]).unsqueeze(1)
                    ids = torch.cat((ids, best(scores, dim=-1)), 1)
            texts.append(ids[0, 1:].tolist())
        return texts

    return translate


# what the loop does at each step
slip("eos_ignored", translate=loop_with(end=-1))
slip("longest_ignored", translate=loop_with(most=60))
slip("least_probable", translate=loop_with(best=Tensor.argmin))
slip("last_token_alone", translate=loop_with(last_alone=True))
slip("written_without_a_mask", translate=loop_with(causal=False))
slip("first_position_read", translate=loop_with(read_at=0))
slip("source_begins_with_bos", translate=loop_with(source=lambda ids: [BOS, *ids]))
slip("source_without_end", translate=loop_with(source=lambda ids: ids[:-1]))
