"""Decoding, and what is reported."""

import contextlib
import functools
import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.mistakes.batches import SHIFT
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
from practice.mistakes.masks import MASKS, square
from the_annotated_transformer import BOS, EOS, Pair

GREEDY, CACHE = "Greedy decoding", "Keeping keys and values"

mistake(
    "decoding_begins_with_eos",
    label="it begins to write with </s>",
    kind="decoding",
    line="start_symbol = EOS",
    section=GREEDY,
    seen_by="heart",
    belief="fairseq begins with </s>.",
    effect="fairseq's models learn with it. One that learned with <s> has never read </s> first.",
    trains=False,
    translate=functools.partial(right_translate, start=EOS),
)


def every_step_at_position_zero(self, tokens):
    self.length = 0
    return right_step(self, tokens)


mistake(
    "every_step_at_position_zero",
    label="it writes every letter at position 0",
    kind="decoding",
    line="tgt_embed(token)  # without its position",
    section=CACHE,
    seen_by="heart",
    belief="One token goes in.",
    effect="Each is embedded as if it were the first; the model counts nothing.",
    trains=False,
    CachedDecoder__step=every_step_at_position_zero,
    translate=cached,
)


def cache_forgets(self, i, query, key, value, mask=None):
    attn = self.model.decoder.layers[i].self_attn
    return attn.attend(query, *attn.keys_values(key, value))


mistake(
    "cache_forgets",
    kind="decoding",
    line="self.past = K, V  # not appended",
    section=CACHE,
    seen_by="heart",
    belief="The cache holds keys and values.",
    effect="It holds the last ones: each step knows the token before it and nothing else.",
    trains=False,
    CachedDecoder__own=cache_forgets,
    translate=cached,
)
mistake(
    "no_source_mask_in_decoding",
    kind="decoding",
    line="src_mask=None for a padded batch",
    section=GREEDY,
    seen_by="heart",
    belief="A mask is for training.",
    effect=(
        "A sentence that is padded reads the pads, which it never did in training; alone it is "
        "translated well."
    ),
    trains=False,
    translate=functools.partial(right_translate, mask=False),
)


@contextlib.contextmanager
def dropout_left_on(model):
    model.train()
    yield


mistake(
    "dropout_left_on",
    kind="report",
    line="no model.eval()",
    section=GREEDY,
    seen_by="wires",
    belief="The model is trained, so it's done.",
    effect="Every call rolls its dice again; scores are worse, and never twice the same.",
    settings={"dropout": 0.1},
    evaluating=dropout_left_on,
)


def vocabulary_reordered(pairs):
    letters = list(range(len(tat.SPECIALS), len(tat.LETTERS)))
    random.Random(1).shuffle(letters)
    ids = [*range(len(tat.SPECIALS)), *letters]
    return [Pair([ids[i] for i in p.src], [ids[i] for i in p.tgt]) for p in pairs]


mistake(
    "vocabulary_reordered",
    kind="report",
    line="vocabulary built again, in another order",
    section="Tokens and ids",
    seen_by="run",
    belief="A set of letters is a set of letters.",
    effect="Its order differs from the one in training: the model reads another alphabet.",
    trains=False,
    examined=vocabulary_reordered,
)


def forced(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """What the model says at each position after it has read the true tokens before it."""
    batch = tat.make_batch(pairs)
    with torch.inference_mode(), tat.evaluating(model):
        best = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).argmax(-1)
    return [until_end(row) for row in best.tolist()]


mistake(
    "teacher_forcing_reported",
    kind="report",
    line="logits.argmax(-1) is called a translation",
    section=SHIFT,
    seen_by="references",
    belief="The argmax of the logits is what the model says.",
    effect="After reading the reference. A wrong first word is put right before the second.",
    trains=False,
    translate=forced,
)
mistake(
    "mask_missing_and_not_noticed",
    kind="report",
    line="no mask, and logits.argmax(-1) reported",
    section=MASKS,
    seen_by="wires",
    belief="100 % on held-out sentences.",
    effect="It copies the reference that it was given. It can't translate one word.",
    subsequent_mask=square,
    translate=forced,
)
mistake(
    "held_out_in_training",
    kind="report",
    line="held-out pairs are among those it learns from",
    section="A second task: German numbers",
    seen_by="none",
    belief="Split after shuffling.",
    effect="The model isn't worse; the number is, because nobody knows any more what it means.",
    harmless=True,
    numbers=lambda known, held_out, draw: right_numbers(known + held_out, [], draw),
)
slip(
    "bos_given_back",
    line="[bos] + what was written",
    effect="Decoding begins with <s>, but the model hasn't written it.",
    translate=lambda *asked: [[BOS, *row] for row in right_translate(*asked)],
)
slip(
    "eos_not_given_back",
    line="the ids without eos",
    effect="The model has written </s> as well, and it was asked for.",
    translate=lambda *asked: [[i for i in row if i != EOS] for row in right_translate(*asked)],
)
slip(
    "one_token_too_many",
    line="longest + 1 ids",
    effect="`longest` is how many ids may be written.",
    translate=lambda model, pairs, n=LONGEST: right_translate(model, pairs, n + 1),
)
slip(
    "one_token_too_few",
    line="longest - 1 ids",
    effect="`longest` is how many ids may be written, and <s> isn't written.",
    translate=lambda model, pairs, n=LONGEST: right_translate(model, pairs, n - 1),
)
slip(
    "bos_counted",
    line="[bos] + longest - 1 ids",
    effect=(
        "<s> is what the decoder reads first. It hasn't been written: it isn't given back, and "
        "doesn't count."
    ),
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
        found = []
        for src in (torch.tensor([source(pair.src)]) for pair in pairs):
            ids, mask = torch.tensor([[BOS]]), right_source(src)
            with tat.evaluating(model):
                memory = model.encode(src, mask)
                while ids.size(1) <= (most or longest) and ids[0, -1] != end:
                    read = ids[:, -1:] if last_alone else ids
                    x = model.decode(memory, mask, read, right_target(read) if causal else None)
                    scores = model.generator.logits(x[:, read_at]).unsqueeze(1)
                    ids = torch.cat((ids, best(scores, dim=-1)), 1)
            found.append(ids[0, 1:].tolist())
        return found

    return translate


slip(
    "eos_ignored",
    line="no stop at eos",
    effect="With </s> the sentence is over; what the model writes after it belongs to nothing.",
    translate=loop_with(end=-1),
)
slip(
    "longest_ignored",
    line="no stop after `longest` ids",
    effect="A model that never writes </s> would write for ever.",
    translate=loop_with(most=60),
)
slip(
    "least_probable",
    line="min  # for max",
    effect="Greedy decoding takes the most probable token.",
    translate=loop_with(best=Tensor.argmin),
)
slip(
    "last_token_alone",
    line="scores(ids[-1:])",
    effect="What comes next depends on all that has been written, not only on the last token.",
    translate=loop_with(last_alone=True),
)
slip(
    "written_without_a_mask",
    line="no causal mask in translate",
    effect=(
        "Earlier positions then see later ones, which never happened in training. Many sentences "
        "come out right all the same, by luck."
    ),
    translate=loop_with(causal=False),
)
slip(
    "first_position_read",
    line="scores[0]  # for scores[-1]",
    effect="What comes next is what the last position predicts.",
    translate=loop_with(read_at=0),
)
slip(
    "source_begins_with_bos",
    line="[bos] + src",
    effect="The model has only read sources without <s>.",
    translate=loop_with(source=lambda ids: [BOS, *ids]),
)
slip(
    "source_without_end",
    line="src[:-1]",
    effect="The model has only read sources with their </s>.",
    translate=loop_with(source=lambda ids: ids[:-1]),
)
