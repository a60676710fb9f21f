"""The catalogue: mistakes that people make when they build a Transformer, as patches.

    CATALOGUE["no_causal_mask"]        a Mistake: what is written, what people believe, what it does
    with made("no_causal_mask"): ...   the document's module with this mistake; undone at the end

A mistake says what it puts in place of what, as `mistake(..., rate=function)`, or with two
underscores for a method, `Trainer__gradient=function`. It is in force while its model trains and
while it is examined, because whoever made it made it in both. What the document has only inside
its examples (which numbers to learn from, how to translate them) is here as `numbers`, `examined`
and `translate`, so that it can be made wrong as well: call these through the module.
"""

import contextlib
import copy
import functools
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from the_annotated_transformer import BOS, EOS, PAD, Config, Pair

HEALTHY = Config(
    N=1, d_model=16, d_ff=32, h=2, dropout=0.0, norm="pre", factor=0.7, warmup=100, smoothing=0.0
)  # the settings of the document's German numbers
LONGEST = 8  # tokens that a translation of a number may have
HERE = sys.modules[__name__]


class Mistake(NamedTuple):
    """One mistake. `page`: the model in the page can have it; `trains` is False if it is made after
    training, so that a healthy model serves."""

    name: str
    kind: str  # mask, shift, data, attention, heads, positions, norm, loss, schedule, adam,
    # decoding or report; slip for those at the end of this file
    line: str  # what is written, for what should be
    section: str  # the heading under which the document explains it
    found: str  # the cheapest examination that sees it, a key of examine.EXAMINATIONS; run
    # if only a finished run shows it, or none
    belief: str  # what the one who writes it believes
    effect: str  # what it does
    puts: dict[str, Any]  # what is put in place of what
    settings: dict[str, Any]
    harmless: bool  # at this size
    page: bool
    trains: bool


CATALOGUE: dict[str, Mistake] = {}
SLIPS: dict[str, Mistake] = {}  # of single functions, at the end of this file


def mistake(
    *about: str, settings: dict[str, Any] | None = None, harmless: bool = False, page: bool = False,
    trains: bool = True, **puts: Any,
) -> None:  # fmt: skip
    """Enter a mistake in the catalogue; `about` are name to effect."""
    CATALOGUE[about[0]] = Mistake._make((*about, puts, settings or {}, harmless, page, trains))


def slip(name: str, line: str, effect: str, **puts: Any) -> None:
    """Enter one that is seen only beside a reference with the same weights."""
    about = name, "slip", line, "", "reference", "", effect
    SLIPS[name] = Mistake(*about, puts, {}, harmless=True, page=False, trains=True)


def place(what: str) -> tuple[Any, str]:
    """The owner and the last part of a name that something is put in place of."""
    owner, _, method = what.partition("__")
    if method:
        return getattr(tat, owner, None) or getattr(nn, owner), method
    if what in ("numbers", "examined", "translate"):
        return HERE, what
    return torch.optim if what == "Adam" else tat, what


@contextlib.contextmanager
def put(puts: dict[str, Any]) -> Iterator[None]:
    """The document's module with something in place of something; afterwards all is as before."""
    with contextlib.ExitStack() as stack:
        for what, new in puts.items():
            stack.enter_context(mock.patch.object(*place(what), new))
        yield


@contextlib.contextmanager
def made(name: str) -> Iterator[Mistake]:
    """The document's module with this mistake in it."""
    found = CATALOGUE.get(name) or SLIPS[name]
    with put(found.puts):
        yield found


def settings_with(name: str) -> Config:
    """The settings of a model that has this mistake."""
    return Config(**(vars(HEALTHY) | CATALOGUE[name].settings))


# --- What the document has only inside its examples ---


def numbers(known: list[int], held_out: list[int], draw: random.Random) -> Iterator[list[int]]:
    """The numbers of one update after the other: a quarter of them small."""
    while True:
        yield [*draw.choices(range(100), k=8), *draw.choices(known, k=24)]


def examined(pairs: list[Pair]) -> list[Pair]:
    """The pairs that a trained model is asked about, as the reader's code encodes them."""
    return pairs


def translate(
    model: nn.Module, pairs: list[Pair], longest: int = LONGEST, start: int = BOS,
    mask: bool = True, decode: Callable | None = None,
) -> list[list[int]]:  # fmt: skip
    """Greedy translations of the sources, without BOS, up to and with EOS; the targets are not
    looked at. By the document's naive loop, or another one."""
    src = tat.pad_rows([pair.src for pair in pairs])
    src_mask = tat.source_mask(src) if mask else None
    found = (decode or tat.greedy_decode_naive)(model, src, src_mask, longest + 1, start)
    return [until_end(row) for row in found[:, 1:].tolist()]


def until_end(row: list[int]) -> list[int]:
    """Ids up to and with the first EOS."""
    return row[: row.index(EOS) + 1] if EOS in row else row


def cached(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """The same translations by the document's decoder that keeps keys and values."""
    return right_translate(model, pairs, longest, decode=tat.greedy_decode)


# What is replaced, as it is in the document: mistakes call it.
right_attention, right_batch, right_gradient = tat.attention, tat.make_batch, tat.Trainer.gradient
right_loss, right_smoothed, right_rate = tat.batch_loss, tat.smoothed_loss, tat.rate
right_encode, right_encoding, right_step = (
    tat.Transformer.encode, tat.positional_encoding, tat.CachedDecoder.step
)  # fmt: skip
right_initialise, right_init = tat.initialise, tat.Trainer.__init__
right_numbers, right_translate = numbers, translate
right_source, right_target, right_adam = tat.source_mask, tat.target_mask, torch.optim.Adam

# A function that takes another's place has that one's signature, hints included.
# fmt: off


# --- Masks ---

MASKS = "Masks"

def square(size: int) -> Tensor:
    """A mask that hides nothing: (1, size, size)."""
    return torch.ones(1, size, size, dtype=torch.bool)

def attention_with(
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5, fill: float = -torch.inf,
    flipped: bool = False, dim: int = -1, after: bool = False,
) -> Callable:
    """Equation (1) with one line changed."""

    def attention(query, key, value, mask=None, dropout=None):
        scores = query @ key.transpose(-2, -1) * scale(query.size(-1))
        if mask is not None and not after:
            scores = scores.masked_fill(mask if flipped else mask == 0, fill)
        weights = scores.softmax(dim)
        if mask is not None and after:
            weights = weights * mask
        return (weights if dropout is None else dropout(weights)) @ value, weights

    return attention

mistake("no_causal_mask", "mask", "torch.ones(size, size)  # no .tril()", MASKS, "wires",
        "The shift already hides the next token.",
        "Each position copies its answer from the next one: the loss falls to zero, and in "
        "translation, where there is no next token, nothing comes out.",
        page=True, subsequent_mask=square)
mistake("causal_mask_one_too_far", "mask", ".tril(1)  # for .tril()", MASKS, "wires",
        "A position must see itself, so the diagonal above has to be open.",
        "Position t sees token t + 1, which is the one it has to predict.",
        page=True, subsequent_mask=lambda size: square(size).tril(1))
mistake("mask_the_other_way_round", "mask",
        "masked_fill(mask, -1e9)  # where True = may attend", MASKS, "wires",
        "True means masked, as in nn.Transformer.",
        "What may be seen is hidden, and what must be hidden is all that is seen: the future and "
        "the padding.",
        attention=attention_with(fill=-1e9, flipped=True))
mistake("mask_with_tiny_number", "mask", "masked_fill(~mask, -1e-9)  # for -1e9", MASKS, "wires",
        "A number with a nine in the exponent is a large one.",
        "Masked scores become 0 instead of minus infinity, so nothing is masked at all.",
        attention=attention_with(fill=-1e-9))
mistake("mask_after_softmax", "mask", "softmax(scores) * mask", MASKS, "wires",
        "A weight of zero is a weight of zero.",
        "The hidden keys stay in the denominator: each weight tells how well the future would "
        "have fitted.",
        attention=attention_with(after=True))
mistake("padding_seen", "mask", "no src_mask", MASKS, "wires",
        "Padding is a token like any other; the model learns to ignore it.",
        "A translation depends on how much padding its neighbours need.",
        harmless=True, source_mask=lambda src, pad=PAD: square(src.size(1))[:, :1])

def padded_queries_masked(tgt, pad=PAD):
    real = tgt != pad
    return real.unsqueeze(-2) & real.unsqueeze(-1) & square(tgt.size(1)).tril()

mistake("padded_queries_masked", "mask", "mask & (tgt != pad).unsqueeze(-1)", MASKS, "gradient",
        "Padding should be hidden on both sides, rows and columns.",
        "A row without any key is 0 / 0: the first batch that needs two pads gives NaN, and one "
        "batch later every weight is NaN.",
        target_mask=padded_queries_masked)

def encoder_causal(self, x, src_mask):
    mask = src_mask & square(x.size(1)).tril()
    x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
    return self.sublayer[1](x, self.feed_forward)

mistake("encoder_causal", "mask", "encoder(x, src_mask & causal)", MASKS, "wires",
        "Attention is masked in a Transformer.",
        "The encoder reads each word without the rest of the sentence.",
        harmless=True, EncoderLayer__forward=encoder_causal)


# --- The shift, and what is in a batch ---

SHIFT = "Batches and the shift (Section 5.1)"

def batch_with(read: Callable[[Tensor], Tensor], predict: Callable[[Tensor], Tensor]) -> Callable:
    """A Batch whose targets are cut differently."""

    def init(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        self.src, self.src_mask = src, tat.source_mask(src, pad)
        if tgt is not None:
            self.tgt, self.tgt_y = read(tgt), predict(tgt)
            self.tgt_mask = tat.target_mask(self.tgt, pad)
            self.ntokens = int((self.tgt_y != pad).sum())

    return init

mistake("no_shift", "shift", "tgt_y = tgt[:, :-1]  # as tgt", SHIFT, "loss",
        "The target is the target.",
        "The model learns to repeat what it has just read.",
        page=True, Batch____init__=batch_with(lambda tgt: tgt[:, :-1], lambda tgt: tgt[:, :-1]))
mistake("shift_by_two", "shift", "tgt = tgt[:, :-2], tgt_y = tgt[:, 2:]", SHIFT, "loss",
        "The loader shifts, and the loss shifts.",
        "Each position predicts the token after the next, so the first one is never written.",
        page=True, Batch____init__=batch_with(lambda tgt: tgt[:, :-2], lambda tgt: tgt[:, 2:]))
mistake("bos_twice", "shift", "<s> by the tokeniser and by the collate function", SHIFT, "loss",
        "Someone has to add it.",
        "The model learns to write <s> first; decoding gets through it, one token late.",
        harmless=True,
        make_batch=lambda pairs: right_batch([Pair(p.src, [BOS, *p.tgt]) for p in pairs]))
def eos_cut_off(pairs):
    return right_batch([Pair(p.src, [i for i in p.tgt if i != EOS]) for p in pairs])


mistake("eos_cut_off", "shift", "targets without </s>", SHIFT, "loss",
        "The end is the end of the list.",
        "Nothing ever tells the model to stop: right words, and then more words.",
        page=True, make_batch=eos_cut_off)
mistake("target_fed_as_source", "data", "Batch(src=tgt, tgt=tgt)", SHIFT, "wires",
        "One variable, two names.",
        "The encoder reads the answer; at translation it reads something else.",
        page=True, make_batch=lambda pairs: right_batch([Pair(p.tgt[1:], p.tgt) for p in pairs]))

def shifted_by_one_line(pairs: list[Pair]) -> list[Pair]:
    """Each source with the next pair's target."""
    return [Pair(a.src, b.tgt) for a, b in zip(pairs, [*pairs[1:], *pairs[:1]], strict=True)]

mistake("pairs_misaligned", "data", "random.shuffle(sources)  # and the targets not", SHIFT, "loss",
        "Shuffling is harmless.",
        "The source says nothing about the target, so the model learns to write numbers as such: "
        "a language model that ignores its source.",
        page=True,
        Trainer__gradient=lambda self, pairs: right_gradient(self, shifted_by_one_line(pairs)))

def quarter_misaligned(self, pairs):
    rest = [p for i, p in enumerate(pairs) if i % 4]
    return right_gradient(self, shifted_by_one_line(pairs[::4]) + rest)

mistake("quarter_misaligned", "data", "a quarter of the lines off by one", SHIFT, "heart",
        "Both files have the same number of lines.",
        "The loss stays up and looks ill; the translations are nearly as good as without the bad "
        "quarter.",
        harmless=True, Trainer__gradient=quarter_misaligned)

def not_shuffled(known, held_out, draw):
    cycle = itertools.cycle([*range(100), *sorted(known)])
    while True:
        yield list(itertools.islice(cycle, 32))

mistake("not_shuffled", "data", "0, 1, 2, ... again and again", "Batches of similar lengths", "run",
        "Each epoch sees everything, in whichever order.",
        "Each update unlearns the one before: 32 neighbours in the alphabet of numbers are all "
        "alike.",
        numbers=not_shuffled)


# --- Attention and its heads ---

DOT, HEADS = "Scaled dot-product attention (Section 3.2.1)", "Multi-head attention (Section 3.2.2)"
STEPS = "The decoder writes (Sections 3.1 and 3.2.3)"

mistake("not_scaled", "attention", "query @ key.mT  # not divided", DOT, "inventory",
        "The softmax normalises anyway.",
        "Scores are larger by the root of d_k, so the softmax starts sharper and passes on less "
        "gradient. The wider the heads, the worse.",
        harmless=True, attention=attention_with(scale=lambda d_k: 1.0))
mistake("scaled_by_d_k", "attention", "/ d_k  # for / math.sqrt(d_k)", DOT, "inventory",
        "The mean over the dimensions.",
        "Attention begins nearly even and must learn to choose.",
        harmless=True, attention=attention_with(scale=lambda d_k: 1 / d_k))
mistake("multiplied_by_root", "attention", "* math.sqrt(d_k)  # for /", DOT, "inventory",
        "The formula has a root of d_k.",
        "Every head looks at one token from the start, chosen at random, and gets almost no "
        "gradient to choose another.",
        page=True, attention=attention_with(scale=lambda d_k: d_k**0.5))
mistake("softmax_over_queries", "attention", "scores.softmax(dim=-2)", DOT, "wires",
        "Some dimension has to add up to 1.",
        "Each key shares itself out among the queries, those to come included: with a causal mask "
        "that is right, the future leaks.",
        page=True, attention=attention_with(dim=-2, fill=-1e9))
mistake("softmax_over_heads", "attention", "scores.softmax(dim=1)", DOT, "wires",
        "dim=1, as for (B, S).",
        "With heads, dimension 1 is the heads: a position masked in all heads gets the same "
        "weight in each, so nothing is hidden.",
        attention=attention_with(dim=1, fill=-1e9))
mistake("heads_split_by_view", "heads", "x.view(B, h, T, d_k)  # no transpose", HEADS, "wires",
        "The shape is right.",
        "A head gets some of the positions, whole, instead of a part of each: its fourth row may "
        "be the sixth word, so the causal mask, which counts rows, hides the wrong ones.",
        page=True, split_heads=lambda x, h: x.reshape(x.size(0), h, x.size(1), -1))
mistake("heads_joined_by_view", "heads", "x.view(B, T, h * d_v)  # no transpose", HEADS, "wires",
        "The shape is right.",
        "The heads' rows are dealt out to the wrong positions; what the last ones computed is "
        "given to the first.",
        join_heads=lambda x: x.reshape(x.size(0), x.size(2), -1))

def keys_by_W_q(self, key, value):
    return tat.split_heads(self.W_q(key), self.h), tat.split_heads(self.W_v(value), self.h)

mistake("keys_by_W_q", "heads", "K = self.W_q(key)", HEADS, "gradient",
        "One letter.",
        "Queries and keys share a matrix, and W_k never learns.",
        harmless=True, MultiHeadedAttention__keys_values=keys_by_W_q)

def own(layer, z, memory, src_mask, tgt_mask):
    return layer.self_attn(z, z, z, tgt_mask)

def across(layer, z, memory, src_mask, tgt_mask):
    return layer.src_attn(z, memory, memory, src_mask)

def network(layer, z, *_):
    return layer.feed_forward(z)

def decoder_layer(*parts: tuple[int | None, Callable]) -> Callable:
    """A decoder layer of these sublayers, each with the norm of that number, or without one."""

    def forward(self, x: Tensor, *rest: Tensor) -> Tensor:
        for number, part in parts:
            if number is None:
                x = x + part(self, x, *rest)
            else:
                x = self.sublayer[number](x, lambda z, part=part: part(self, z, *rest))
        return x

    return forward

mistake("cross_attends_to_itself", "heads", "self.src_attn(x, x, x, tgt_mask)", STEPS, "wires",
        "It's attention, so it gets x three times.",
        "The decoder never sees the source: fluent, and the same for every sentence.",
        page=True, DecoderLayer__forward=decoder_layer(
            (0, own), (1, lambda layer, z, _, src, tgt_mask: layer.src_attn(z, z, z, tgt_mask)),
            (2, network)))


# --- Embeddings and positions ---

POSITIONS, EMBEDDINGS = "Positions (Section 3.5)", "Embeddings"

mistake("no_positions", "positions", "x  # for x + table[:T]", POSITIONS, "wires",
        "Attention finds out by itself.",
        "The encoder sees a bag of letters: `fünfundvierzig` and `vierundfünfzig` have the same "
        "ones, and only their order says which is which.",
        page=True, PositionalEncoding__forward=lambda self, x, start=0: self.dropout(x))

def no_positions_in_decoder(self, memory, src_mask, tgt, tgt_mask):
    return self.decoder(self.tgt_embed.embeddings(tgt), memory, src_mask, tgt_mask)

mistake("no_positions_in_decoder", "positions", "tgt_embed without positions", POSITIONS, "wires",
        "It writes one after the other, so it knows where it is.",
        "It half does: the causal mask gives some order.",
        harmless=True, page=True, Transformer__decode=no_positions_in_decoder)

def no_positions_in_encoder(self, src, src_mask):
    return self.encoder(self.src_embed.embeddings(src), src_mask)

mistake("no_positions_in_encoder", "positions", "src_embed without positions", POSITIONS, "wires",
        "They were added once already.",
        "They were added in the decoder; the source has no order.",
        page=True, Transformer__encode=no_positions_in_encoder)

def positions_by_row_of_batch(self, x, start=0):
    return self.dropout(x + self.table[: x.size(0)].unsqueeze(1))

mistake("positions_by_row_of_batch", "positions",
        "x + pe[:x.size(0)]  # on (B, T, d)", POSITIONS, "wires",
        "size(0) is the length.",
        "It was, when time came first. Now every token of a sentence gets the number of its row "
        "in the batch.",
        PositionalEncoding__forward=positions_by_row_of_batch)

def positions_without_cosine(length, d_model):
    return right_encoding(length, d_model)[:, ::2].repeat_interleave(2, 1)[:, :d_model]

mistake("positions_without_cosine", "positions", "sin for every dimension", POSITIONS, "none",
        "A sine is a shifted cosine.",
        "It is, but half of the numbers now say what the other half says.",
        harmless=True, positional_encoding=positions_without_cosine)
mistake("embeddings_not_scaled", "positions",
        "self.table(x)  # no * math.sqrt(d_model)", EMBEDDINGS, "inventory",
        "Only a constant.",
        "At the start the position drowns the word.",
        harmless=True, Embeddings__forward=lambda self, x: self.table(x))

def embeddings_start_too_large(model, tie):
    right_initialise(model, tie)
    nn.init.normal_(model.generator.proj.weight)

mistake("embeddings_start_too_large", "positions",
        "nn.Embedding's own N(0, 1), tied and scaled", "The model assembled", "loss",
        "PyTorch knows how to start an embedding.",
        "Tied to the output it makes logits in the tens: the first loss is far above guessing, "
        "and the position is lost beside the word.",
        initialise=embeddings_start_too_large)


# --- What surrounds a sublayer ---

RESIDUAL = "Residuals and normalisation (Section 3.1)"
FFN = "Position-wise feed-forward networks (Section 3.3)"

mistake("no_residual", "norm", "return sublayer(self.norm(x))", RESIDUAL, "inventory",
        "The sublayer computes the new x.",
        "Each layer has to pass on everything by itself; what it doesn't pass on is lost. In one "
        "layer that works, in six it doesn't.",
        SublayerConnection__forward=lambda self, x, sublayer: sublayer(self.norm(x)))

def norm_over(dim: int, root: bool = True) -> Callable:
    """LayerNorm over another dimension, or without the root."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim, keepdim=True)
        variance = x.var(dim, keepdim=True, unbiased=False) + self.eps
        return self.weight * (x - mean) / (variance.sqrt() if root else variance) + self.bias

    return forward

mistake("norm_over_time", "norm", "x.mean(1), x.var(1)", RESIDUAL, "wires",
        "Each feature is normalised, as in a BatchNorm.",
        "The mean over a sentence contains its end: with a causal mask that is right, the future "
        "leaks through the norm.",
        page=True, LayerNorm__forward=norm_over(1))
mistake("norm_by_variance", "norm", "(x - mean) / var  # no root", RESIDUAL, "none",
        "The variance is the spread.",
        "A stream that is twice as large comes out half as large.",
        harmless=True, LayerNorm__forward=norm_over(-1, root=False))
mistake("no_norm", "norm", "no norm", RESIDUAL, "gradient",
        "It only helps a little.",
        "At one layer that is true; the stream grows with every layer.",
        harmless=True, LayerNorm__forward=lambda self, x: x)

def stacks(change: Callable) -> dict[str, Any]:
    """Encoder and decoder of other layers, or with another last norm."""

    def with_init(init: Callable) -> Callable:
        return lambda self, layers, norm: init(self, *change(layers, norm))

    both = tat.Encoder, tat.Decoder
    return {f"{stack.__name__}____init__": with_init(stack.__init__) for stack in both}

mistake("no_final_norm", "norm", "pre-norm without the last norm", RESIDUAL, "inventory",
        "Every sublayer has a norm.",
        "With pre-norm nobody normalises what the last one adds.",
        harmless=True, **stacks(lambda layers, norm: (layers, nn.Identity())))
mistake("no_relu", "norm", "self.W_2(self.W_1(x))", FFN, "none",
        "Two layers are more than one.",
        "Without something between them they are one.",
        harmless=True, PositionwiseFeedForward__forward=lambda self, x: self.W_2(self.W_1(x)))
mistake("layers_share_weights", "norm", "[layer] * N", "The encoder (Section 3.1)", "inventory",
        "A list of N layers.",
        "A list of one layer, N times.",
        harmless=True, settings={"N": 2},
        **stacks(lambda layers, norm: ([layers[0]] * len(layers), norm)))


# --- The loss ---

LOSS, UPDATE = "Regularisation (Section 5.4)", "One update"

def padding_in_the_loss(model, batch, eps):
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    mean = nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten())
    return mean * batch.ntokens

mistake("padding_in_the_loss", "loss",
        "cross_entropy(logits, tgt_y).mean()  # padding too", LOSS, "loss",
        "Padding is easy, so it costs nothing.",
        "It is easy, so the loss looks lower than it is, and the gradient of short sentences is "
        "lost among the pads.",
        batch_loss=padding_in_the_loss)
mistake("softmax_before_the_loss", "loss",
        "cross_entropy(logits.softmax(-1), tgt_y)", LOSS, "heart",
        "The loss wants probabilities.",
        "It takes the softmax itself. Twice, the best token gets at most e times what another "
        "gets, and the loss stays near that of guessing.",
        Generator__logits=lambda self, x: self.proj(x).softmax(-1))
mistake("loss_is_a_sum", "loss", "loss.sum()  # for the mean", UPDATE, "loss",
        "A constant doesn't matter.",
        "With Adam it doesn't; the number that is reported grows with the batch.",
        harmless=True,
        batch_loss=lambda model, batch, eps: right_loss(model, batch, eps) * batch.ntokens)


# --- The schedule, Adam and the update ---

ADAM = "Optimiser (Section 5.3)"

mistake("rate_too_high", "schedule", "30 times the rate", ADAM, "gradient",
        "Faster is faster.",
        "The first steps move the weights by a fiftieth of their size each; they never come back.",
        page=True, settings={"factor": 21.0})
mistake("warmup_never_ends", "schedule", "warmup=4000, from the paper", ADAM, "heart",
        "The paper knows best.",
        "A run of 1,500 updates ends before the rate has risen.",
        settings={"warmup": 4000})
mistake("schedule_stands_still", "schedule", "scheduler.step() forgotten", ADAM, "heart",
        "The scheduler does it.",
        "It does if it is called: the rate stays that of the first update, a hundredth.",
        rate=lambda step, *rest: right_rate(1, *rest))
mistake("gradients_never_cleared", "adam", "no zero_grad()", UPDATE, "gradient",
        "backward() computes the gradient.",
        "It adds to it: each step follows all the gradients there ever were.",
        page=True, Transformer__zero_grad=lambda self: None)

def clipped_to_almost_nothing(self, pairs):
    loss = right_gradient(self, pairs)
    nn.utils.clip_grad_norm_(self.model.parameters(), 1e-4)
    return loss

mistake("clipped_to_almost_nothing", "adam",
        "clip_grad_norm_(parameters, 1e-4)", UPDATE, "gradient",
        "Clip hard, to be safe.",
        "Adam divides by the size of the gradient, so a constant factor is taken out again.",
        harmless=True, Trainer__gradient=clipped_to_almost_nothing)
mistake("sgd", "adam", "SGD with Adam's rate", ADAM, "gradient",
        "An optimiser is an optimiser.",
        "SGD moves by rate times gradient, Adam by the rate: most weights stand still.",
        Adam=lambda parameters, lr, **_: torch.optim.SGD(parameters, lr=lr))

def average(b: float, old: Any, new: Any) -> Any:
    """A running average."""
    return b * old + (1 - b) * new

def adam_with(
    move: Callable = lambda m, v, c1, c2, eps: m / c1 / ((v / c2).sqrt() + eps),
    first: Callable = average, second: Callable = lambda b, old, g: average(b, old, g**2),
    ahead: int = 0, given_back: Callable = lambda old, new, corrected: new,
    moved_by: Callable = lambda old, new, g: new, decay: float = 0.0,
) -> type:
    """Adam with one line changed: how far a weight moves, either average, or the step; which of
    the old, the new and the corrected averages are given back, and which it moves by."""

    class Adam(torch.optim.Optimizer):
        """In place of PyTorch's; the arguments are those that the document gives."""

        def __init__(self, parameters, lr, betas, eps, fused=False):
            super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

        @torch.no_grad()
        def step(self) -> None:
            """Move each weight by the rate, times average gradient over average size."""
            for group in self.param_groups:
                (b1, b2), eps = group["betas"], group["eps"]
                for p in [p for p in group["params"] if p.grad is not None]:
                    state = self.state[p]
                    t = state["step"] = state.get("step", 0) + 1
                    zeros = torch.zeros_like(p)
                    old = state.get("exp_avg", zeros), state.get("exp_avg_sq", zeros)
                    m, v = new = first(b1, old[0], p.grad), second(b2, old[1], p.grad)
                    c1, c2 = 1 - b1 ** (t + ahead), 1 - b2 ** (t + ahead)
                    state["exp_avg"], state["exp_avg_sq"] = given_back(old, new, (m / c1, v / c2))
                    m, v = moved_by(old, new, p.grad)
                    p.sub_(group["lr"] * (move(m, v, c1, c2, eps) + decay * p))

    return Adam

mistake("no_bias_correction", "adam",
        "m, v for m / (1 - b1 ** t), v / (1 - b2 ** t)", ADAM, "gradient",
        "After some steps it is gone.",
        "The first step is 0.7 of the usual one, the fifth 1.3; the warmup hides it.",
        harmless=True, Adam=adam_with(lambda m, v, c1, c2, eps: m / (v.sqrt() + eps)))
mistake("weight_decay_on_all", "adam", "Adam(weight_decay=0.1)", ADAM, "heart",
        "AdamW has 0.1.",
        "In Adam the decay joins the gradient and is divided by its size: small gradients drown "
        "in it. AdamW takes it apart.",
        Adam=functools.partial(right_adam, weight_decay=0.1))

def optimiser_of_another_model(self, model, config):
    right_init(self, copy.deepcopy(model), config)
    self.model = model

mistake("optimiser_of_another_model", "adam",
        "Adam(model.parameters()); model = deepcopy(model)", UPDATE, "gradient",
        "The optimiser follows the model.",
        "It holds the old tensors; the new model never moves.",
        Trainer____init__=optimiser_of_another_model)
mistake("encoder_gets_no_gradient", "adam", "memory.detach()", UPDATE, "gradient",
        "The encoder only reads.",
        "It stays as it was born, random; the decoder makes do with it, and half succeeds.",
        Transformer__encode=lambda self, src, src_mask: right_encode(self, src, src_mask).detach())


# --- Decoding, and what is reported ---

GREEDY, CACHE = "Greedy decoding", "Keeping keys and values"

mistake("decoding_begins_with_eos", "decoding", "start_symbol = EOS", GREEDY, "heart",
        "fairseq begins with </s>.",
        "fairseq's models learn with it. One that learned with <s> has never read </s> first.",
        page=True, trains=False, translate=functools.partial(right_translate, start=EOS))

def every_step_at_position_zero(self, tokens):
    self.length = 0
    return right_step(self, tokens)

mistake("every_step_at_position_zero", "decoding",
        "tgt_embed(token)  # without its position", CACHE, "heart",
        "One token goes in.",
        "Each is embedded as if it were the first; the model counts nothing.",
        page=True, trains=False, CachedDecoder__step=every_step_at_position_zero, translate=cached)

def cache_forgets(self, i, query, key, value, mask=None):
    attn = self.model.decoder.layers[i].self_attn
    return attn.attend(query, *attn.keys_values(key, value))

mistake("cache_forgets", "decoding", "self.past = K, V  # not appended", CACHE, "heart",
        "The cache holds keys and values.",
        "It holds the last ones: each step knows the token before it and nothing else.",
        trains=False, CachedDecoder__own=cache_forgets, translate=cached)
mistake("no_source_mask_in_decoding", "decoding",
        "src_mask=None for a padded batch", GREEDY, "heart",
        "A mask is for training.",
        "A sentence that is padded reads the pads, which it never did in training; alone it is "
        "translated well.",
        trains=False, translate=functools.partial(right_translate, mask=False))

@contextlib.contextmanager
def dropout_left_on(model):
    model.train()
    yield

mistake("dropout_left_on", "report", "no model.eval()", GREEDY, "wires",
        "The model is trained, so it's done.",
        "Every call rolls its dice again; scores are worse, and never twice the same.",
        settings={"dropout": 0.1}, evaluating=dropout_left_on)

def vocabulary_reordered(pairs):
    letters = list(range(len(tat.SPECIALS), len(tat.LETTERS)))
    random.Random(1).shuffle(letters)
    ids = [*range(len(tat.SPECIALS)), *letters]
    return [Pair([ids[i] for i in p.src], [ids[i] for i in p.tgt]) for p in pairs]

mistake("vocabulary_reordered", "report",
        "vocabulary built again, in another order", "Tokens and ids", "run",
        "A set of letters is a set of letters.",
        "Its order differs from the one in training: the model reads another alphabet.",
        trains=False, examined=vocabulary_reordered)

def forced(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """What the model says at each position after it has read the true tokens before it."""
    batch = tat.make_batch(pairs)
    with torch.inference_mode(), tat.evaluating(model):
        best = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).argmax(-1)
    return [until_end(row) for row in best.tolist()]

mistake("teacher_forcing_reported", "report",
        "logits.argmax(-1) is called a translation", SHIFT, "references",
        "The argmax of the logits is what the model says.",
        "After reading the reference. A wrong first word is put right before the second.",
        trains=False, translate=forced)
mistake("mask_missing_and_not_noticed", "report",
        "no mask, and logits.argmax(-1) reported", MASKS, "wires",
        "100 % on held-out sentences.",
        "It copies the reference that it was given. It can't translate one word.",
        subsequent_mask=square, translate=forced)
mistake("held_out_in_training", "report",
        "held-out pairs are among those it learns from", "A second task: German numbers", "none",
        "Split after shuffling.",
        "The model isn't worse; the number is, because nobody knows any more what it means.",
        harmless=True,
        numbers=lambda known, held_out, draw: right_numbers(known + held_out, [], draw))


# --- Slips of single functions, seen beside a reference with the same weights ---
# Nobody needs a training run to see these: the judge compares what a function gives with what the
# document gives while one of them is in force. Whoever trains with one hardly notices most of them.

def unscaled(power: float) -> Callable:
    """Embeddings times another power of d_model."""
    return lambda self, x: self.table(x) * self.table.embedding_dim**power

slip("embeddings_divided", "self.table(x) / math.sqrt(d_model)",
     "The words are d_model times too small beside their positions.",
     Embeddings__forward=unscaled(-0.5))
slip("embeddings_times_width", "self.table(x) * d_model  # no root",
     "The position is lost beside the word.",
     Embeddings__forward=unscaled(1.0))

def waves(
    exponent: Callable, start: int = 0, halves: bool = False, base: int = 10_000
) -> Callable:
    """Sinusoids with another exponent of 10000, first position, order or base."""

    def encoding(length: int, d_model: int) -> Tensor:
        j = torch.arange(d_model).double()
        position = torch.arange(start, start + length).double().unsqueeze(1)
        angle = position / base ** exponent(j, d_model)
        even = j % 2 == 0
        table = torch.where(even, angle.sin(), angle.cos())
        return (torch.cat((table[:, even], table[:, ~even]), 1) if halves else table).float()

    return encoding

def pairwise(j: Tensor, d_model: int) -> Tensor:
    """The paper's exponent, 2i / d_model, for dimensions 2i and 2i + 1."""
    return (j - j % 2) / d_model

slip("sines_then_cosines", "all sines, then all cosines",
     "A new model wouldn't mind; trained weights expect sine and cosine side by side.",
     positional_encoding=waves(pairwise, halves=True))
slip("cosine_with_its_own_frequency", "10000 ** (j / d_model)  # j for 2i",
     "Sine and cosine of a pair then turn at different speeds, and are no longer the hand of one "
     "clock.",
     positional_encoding=waves(lambda j, d: j / d))
slip("frequency_of_half_the_exponent", "10000 ** (i / d_model)  # i for 2i",
     "The formula has 2i: with i, the slowest wave ends at 100 times 2 pi, and not near 10000 "
     "times.",
     positional_encoding=waves(lambda j, d: (j - j % 2) / 2 / d))
slip("frequency_of_twice_the_exponent", "10000 ** (4 * i / d_model)  # for 2 * i",
     "If your i counts 0, 2, 4, ..., it is the formula's 2i already.",
     positional_encoding=waves(lambda j, d: 2 * pairwise(j, d)))
slip("base_of_1000", "1000 for 10000",
     "The slowest wave is then about a tenth as long.",
     positional_encoding=waves(pairwise, base=1000))
slip("positions_not_added", "the positions aren't added",
     "Attention doesn't look at the order, so without them a sentence is a bag of tokens.",
     **CATALOGUE["no_positions"].puts)
slip("positions_from_one", "positions 1, 2, 3, ...",
     "These weights learned that the first position is number 0.",
     positional_encoding=waves(pairwise, start=1))
slip("first_position_everywhere", "positions(1, d_model) for every token",
     "All tokens then stand at the same place, and nothing says in which order they come.",
     **CATALOGUE["positions_by_row_of_batch"].puts)

def positions_scaled(self, x, start=0):
    return x + self.table[start : start + x.size(1)] * x.size(-1) ** 0.5

slip("positions_scaled", "(table[ids] + positions) * math.sqrt(d_model)",
     "Only the embeddings are multiplied; then the positions are added as they are.",
     PositionalEncoding__forward=positions_scaled)
slip("cosine_first", "cosine first, then sine",
     "Dimension 0 is a sine in Section 3.5, and in these weights.",
     positional_encoding=lambda n, d: right_encoding(n, d).unflatten(1, (-1, 2)).flip(2).flatten(1))
slip("frequency_of_twice_the_dimension", "10000 ** (2 * j / d_model)  # j for i",
     "In the formula i counts the pairs: dimensions 2i and 2i + 1 share one speed.",
     positional_encoding=waves(lambda j, d: 2 * j / d))
slip("positions_multiplied", "pos * 10000 ** (2 * i / d_model)  # for /",
     "The first pair of dimensions turns fastest, and each one after it more slowly.",
     positional_encoding=waves(lambda j, d: -pairwise(j, d)))
slip("sines_alone", "a sine in every dimension",
     "Only sine and cosine together say where the hand of a clock stands.",
     positional_encoding=lambda n, d: right_encoding(n, d)[:, ::2].repeat_interleave(2, 1))

def no_softmax(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    scores = scores if mask is None else scores.masked_fill(mask == 0, 0.0)
    return scores @ value, scores

slip("no_softmax", "scores @ V  # no softmax",
     "Scores add up to anything, and some are negative; the softmax makes weights of them.",
     attention=no_softmax)

def scaled_by_length(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / key.size(-2) ** 0.5
    scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
    return scores.softmax(-1) @ value, scores.softmax(-1)

slip("scaled_by_length", "/ math.sqrt(T)  # the number of keys",
     "The sum is over d_k, not over the keys.",
     attention=scaled_by_length)
slip("scaled_by_the_model's_width", "/ math.sqrt(d_model)  # for d_k",
     "A head's query and key have d_k numbers each, and the score is a sum over those.",
     MultiHeadedAttention__weigh=lambda self, Q, K, V, mask: right_attention(
         Q / self.h**0.5, K, V, mask)[0])
slip("softmax_over_all_heads", "softmax over the heads  # dim=0 of (h, T, S)",
     "Each head has weights of its own: for each query, those of its keys add up to 1.",
     **CATALOGUE["softmax_over_heads"].puts)
slip("mask_ignored", "the mask isn't looked at",
     "What the mask should hide is seen.",
     attention=lambda Q, K, V, mask=None, dropout=None: right_attention(Q, K, V))

def mask_added(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return weights @ value, weights

slip("mask_added", "scores + mask  # of 0 and 1",
     "A mask of True and False, added, gives 1 to what may be seen, and hides nothing.",
     attention=mask_added)
slip("mask_times_scores", "scores * mask  # before the softmax",
     "A score of zero means e to the zero: a key that is hidden gets as much as one that fits "
     "neither well nor badly.",
     attention=attention_with(fill=0.0))
slip("true_means_hidden", "masked_fill(mask, -inf)  # where True = may attend",
     "True means that a query may see a key. (In nn.Transformer's masks it means the opposite.) A "
     "row that may see every key then sees none, and 0 / 0 isn't a number.",
     attention=attention_with(flipped=True))
slip("heads_cut_and_joined_by_view", "reshape(h, T, d_k), and back by reshape(T, d_model)",
     "The shapes are right. But a head gets some of the positions, whole, instead of a part of "
     "each: both ways need a transpose.",
     **CATALOGUE["heads_split_by_view"].puts, **CATALOGUE["heads_joined_by_view"].puts)

def without_W_o(self, query, K, V, mask=None):
    Q = tat.split_heads(self.W_q(query), self.h)
    return tat.join_heads(self.weigh(Q, K, V, tat.for_all_heads(mask)))

slip("no_output_matrix", "the heads side by side  # no @ W_o",
     "W_o mixes what the heads have found; without it each writes into its own columns alone.",
     MultiHeadedAttention__attend=without_W_o)
slip("heads_interleaved", "x.unflatten(-1, (d_k, h))  # heads interleaved",
     "New weights wouldn't mind; trained ones have their heads in blocks of d_k columns.",
     split_heads=lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
slip("heads_not_split", "a single head of full width",
     "One map instead of h.",
     split_heads=lambda x, h: x.unsqueeze(1))

def heads_of(
    sides: str = "xyy", matrices: str = "qkvo", transposed: str = ""
) -> dict[str, Callable]:
    """Attention whose queries, keys and values are of the sides x or y, by other matrices."""

    def forward(self, query, key, value, mask=None):
        def times(x: Tensor, number: int) -> Tensor:
            name = matrices[number]
            W = getattr(self, f"W_{name}").weight  # as nn.Linear keeps it: the judge's is W.T
            return x @ (W if name in transposed else W.T)

        given = [query if side == "x" else key for side in sides]
        Q, K, V = (tat.split_heads(times(x, i), self.h) for i, x in enumerate(given))
        return times(tat.join_heads(self.weigh(Q, K, V, tat.for_all_heads(mask))), 3)

    return {"MultiHeadedAttention__forward": forward}

FROM_Y = "x asks, so queries are of x; y is asked, so keys and values are both of y."
slip("keys_and_values_from_x", "x @ W_k, x @ W_v  # x for y", FROM_Y, **heads_of("xxx"))
slip("keys_from_x", "x @ W_k  # x for y", FROM_Y, **heads_of("xxy"))
slip("values_from_x", "x @ W_v  # x for y", FROM_Y, **heads_of("xyx"))
slip("queries_from_y", "y @ W_q  # y for x", FROM_Y, **heads_of("yyy"))
slip("x_and_y_exchanged", "y @ W_q, x @ W_k, x @ W_v  # x and y exchanged",
     FROM_Y, **heads_of("yxx"))
OWN_MATRIX = "Queries, keys and values each have a matrix that was trained for them."
slip("values_by_W_k", "y @ W_k for keys and values  # W_k twice", OWN_MATRIX,
     **heads_of(matrices="qkko"))
slip("keys_by_W_v", "y @ W_v for keys and values  # W_v twice", OWN_MATRIX,
     **heads_of(matrices="qvvo"))
slip("queries_by_W_k", "x @ W_k  # for x @ W_q", OWN_MATRIX, **heads_of(matrices="kkvo"))
slip("values_by_W_q", "y @ W_q  # for y @ W_v", OWN_MATRIX, **heads_of(matrices="qkqo"))
slip("queries_and_keys_exchanged", "x @ W_k, y @ W_q", OWN_MATRIX, **heads_of(matrices="kqvo"))
slip("keys_and_values_exchanged", "y @ W_v, y @ W_k", OWN_MATRIX, **heads_of(matrices="qvko"))
TRANSPOSED = (
    "Here it's x @ W. Only nn.Linear keeps its matrix the other way round; a square one fits both "
    "ways, so no shape tells."
)
slip("matrices_transposed", "x @ W.T  # all four", TRANSPOSED, **heads_of(transposed="qkvo"))
slip("q_k_v_transposed", "x @ W_q.T, y @ W_k.T, y @ W_v.T", TRANSPOSED,
     **heads_of(transposed="qkv"))
slip("output_matrix_transposed", "heads @ W_o.T", TRANSPOSED, **heads_of(transposed="o"))

def variance_of_a_sample(self, x):
    variance = x.var(-1, keepdim=True) + self.eps
    return self.weight * (x - x.mean(-1, keepdim=True)) / variance.sqrt() + self.bias

slip("variance_of_a_sample", "x.var(-1)  # divides by d - 1",
     "The norm's divides by d, as its Equation has it. torch.var divides by d - 1 unless it is "
     "told otherwise.",
     LayerNorm__forward=variance_of_a_sample)

def normed(eps_inside: float, eps_outside: float, centred: bool = True) -> Callable:
    """LayerNorm with epsilon elsewhere, or without the mean."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x - x.mean(-1, keepdim=True) if centred else x
        root = (middle.square().mean(-1, keepdim=True) + eps_inside).sqrt() + eps_outside
        return self.weight * middle / root + self.bias

    return forward

slip("epsilon_outside_the_root", "/ (std + eps)  # outside the root",
     "On rows that hardly vary epsilon decides, and belongs inside the root.",
     LayerNorm__forward=normed(0.0, 1e-5))
slip("no_epsilon", "/ std  # no epsilon",
     "On rows that hardly vary the result is far too large.",
     LayerNorm__forward=normed(0.0, 0.0))
slip("norm_without_mean", "the mean isn't taken away",
     "That is RMSNorm; these weights were trained with LayerNorm.",
     LayerNorm__forward=normed(1e-5, 0.0, centred=False))
slip("another_epsilon", "epsilon 1e-6  # for 1e-5",
     "On rows that hardly vary, epsilon decides how large the result is.",
     LayerNorm__forward=normed(1e-6, 0.0))

def norm_of_2018(eps: float) -> Callable:
    """The norm of the 2018 edition."""
    return lambda self, x: self.bias + self.weight * (x - x.mean(-1, keepdim=True)) / (
        x.std(-1, keepdim=True) + eps
    )

EDITION_OF_2018 = (
    "That's the norm of The Annotated Transformer of 2018: its x.std divides by d - 1, and its "
    "epsilon is outside the root. LayerNorm's variance divides by d, with epsilon inside."
)
slip("norm_of_2018", "(x - mean) / (x.std(-1) + 1e-6)", EDITION_OF_2018,
     LayerNorm__forward=norm_of_2018(1e-6))
slip("norm_of_2018_with_this_epsilon", "(x - mean) / (x.std(-1) + 1e-5)", EDITION_OF_2018,
     LayerNorm__forward=norm_of_2018(1e-5))
def norm_with(last: Callable, of: Callable = Tensor.mean, dim: Any = -1) -> Callable:
    """LayerNorm with something else done at its end, or with another sum of squares."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x - x.mean(dim, keepdim=True)
        root = (of(middle.square(), dim, keepdim=True) + self.eps).sqrt()
        return last(middle / root, self.weight, self.bias)

    return forward

def gain_then_bias(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """The right end."""
    return gain * x + bias

slip("norm_over_positions", "mean and variance over the positions  # axis 0",
     "Each row is normalised over its d_model numbers, which are axis 1 here, or -1.",
     **CATALOGUE["norm_over_time"].puts)

def centred_in_the_variance_alone(self, x):
    variance = x.var(-1, keepdim=True, unbiased=False) + self.eps
    return self.weight * x / variance.sqrt() + self.bias

slip("mean_only_in_the_variance", "x / sqrt(variance + eps)  # for x - mean",
     "The mean is taken away before the division as well.",
     LayerNorm__forward=centred_in_the_variance_alone)
slip("norm_of_the_whole", "x.mean(), x.var()  # over all positions at once",
     "Each position is normalised by itself; otherwise it would depend on all the others.",
     LayerNorm__forward=norm_with(gain_then_bias, dim=(-2, -1)))
slip("norm_by_sum", "the sum of the squares  # for their mean",
     "The variance is a mean: with a sum, the wider the vector, the smaller its entries.",
     LayerNorm__forward=norm_with(gain_then_bias, of=Tensor.sum))
slip("gain_forgotten", "no gain",
     "Each entry is multiplied by a gain that was learned.",
     LayerNorm__forward=norm_with(lambda x, gain, bias: x + bias))
slip("bias_forgotten", "no bias",
     "A bias that was learned is added to each entry.",
     LayerNorm__forward=norm_with(lambda x, gain, bias: gain * x))
slip("bias_before_gain", "gain * (x + bias)",
     "The gain multiplies what was normalised; the bias is added after it.",
     LayerNorm__forward=norm_with(lambda x, gain, bias: gain * (x + bias)))
slip("no_gain_and_bias", "(x - mean) / std  # no gain, no bias",
     "The learned gain and bias come after it.",
     LayerNorm__forward=lambda self, x: nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps))
slip("post_norm_for_pre_norm", "norm(x + sublayer(x))  # these weights: x + sublayer(norm(x))",
     "That is Figure 1 of the paper, but the shipped weights were trained with pre-norm.",
     SublayerConnection__forward=lambda self, x, sublayer: self.norm(x + sublayer(x)))

def residual_from_normed(self, x, sublayer):
    x = self.norm(x)
    return x + sublayer(x)

slip("residual_from_normed", "x = norm(x); x + sublayer(x)",
     "What is added to is the normed vector, so the stream is reset at each sublayer.",
     SublayerConnection__forward=residual_from_normed)
slip("sublayer_without_norm", "x + sublayer(x)  # no norm",
     "The sublayer gets vectors of a size that it doesn't know.",
     SublayerConnection__forward=lambda self, x, sublayer: x + sublayer(x))
def norm_1_twice(self, x, src_mask):
    x = self.sublayer[0](x, lambda z: self.self_attn(z, z, z, src_mask))
    return self.sublayer[0](x, self.feed_forward)

slip("norm_1_twice", "norm_1 before the network, too",
     "Each sublayer has a norm with a gain and a bias that were trained for it: here norm_2.",
     EncoderLayer__forward=norm_1_twice)

def layers_of(order: Callable[[list], list], residual: Callable[[int, int], bool]) -> dict:
    """Layers with their sublayers in another order, or some of them without a residual.

    `residual` gets the number of a sublayer, counted from 0, and how many there are.
    """

    def run(layer: nn.Module, x: Tensor, sublayers: list[Callable]) -> Tensor:
        numbered = list(zip(layer.sublayer, sublayers, strict=True))
        for number, (connection, sublayer) in enumerate(order(numbered)):
            y = sublayer(connection.norm(x))
            x = x + y if residual(number, len(numbered)) else y
        return x

    def encoder(self, x, src_mask):
        return run(self, x, [lambda z: self.self_attn(z, z, z, src_mask), self.feed_forward])

    def decoder(self, x, memory, src_mask, tgt_mask):
        return run(self, x, [
            lambda z: self.self_attn(z, z, z, tgt_mask),
            lambda z: self.src_attn(z, memory, memory, src_mask), self.feed_forward])

    return {"EncoderLayer__forward": encoder, "DecoderLayer__forward": decoder}

ONE_RESIDUAL = "What a sublayer computes is added to what went in, around each of them."
slip("first_residual_missing", "x = self_attn(norm_1(x))  # no x +", ONE_RESIDUAL,
     **layers_of(list, lambda number, _: number > 0))
slip("last_residual_missing", "x = feed_forward(norm(x))  # no x +", ONE_RESIDUAL,
     **layers_of(list, lambda number, last: number < last - 1))
slip("middle_residual_missing", "x = src_attn(norm_2(x), memory)  # no x +", ONE_RESIDUAL,
     DecoderLayer__forward=layers_of(list, lambda number, _: number != 1)["DecoderLayer__forward"])
slip("network_first", "the network before the attention",
     "In Figure 1 attention comes first; norm_1 is its norm.",
     **layers_of(lambda sublayers: [sublayers[-1], *sublayers[:-1]], lambda *_: True))
slip("no_b_1", "x @ W_1  # no + b_1",
     "Equation (2) adds b_1 before the ReLU: it decides how large a sum must be to pass.",
     PositionwiseFeedForward__forward=lambda self, x: self.W_2((x @ self.W_1.weight.T).relu()))
slip("no_b_2", "max(0, x @ W_1 + b_1) @ W_2  # no + b_2",
     "Equation (2) ends with b_2.",
     PositionwiseFeedForward__forward=lambda self, x: self.W_1(x).relu() @ self.W_2.weight.T)
slip("gelu_for_relu", "gelu for relu",
     "Equation (2) has max(0, ...), and these weights learned with it.",
     PositionwiseFeedForward__forward=lambda self, x: self.W_2(nn.functional.gelu(self.W_1(x))))
slip("relu_twice", "relu after the second matrix, too",
     "The network could then only ever add, never take away.",
     PositionwiseFeedForward__forward=lambda self, x: self.W_2(self.W_1(x).relu()).relu())

def encoder_without_last_norm(self, x, src_mask):
    for layer in self.layers:
        x = layer(x, src_mask)
    return x

slip("encoder_without_last_norm", "memory without the encoder's last norm",
     "With pre-norm nobody normalises what the last one adds.",
     Encoder__forward=encoder_without_last_norm)

def first_layer_every_time(self, x, *rest):
    for _ in self.layers:
        x = self.layers[0](x, *rest)
    return self.norm(x)

slip("first_layer_every_time", "layers[0] N times",
     "Each layer has weights that were trained for its place.",
     Encoder__forward=first_layer_every_time, Decoder__forward=first_layer_every_time)

def stack_with(change: Callable[[list], list], fed: bool = True, norm: bool = True) -> dict:
    """Stacks of other layers, or all of them fed the same, or without the last norm."""

    def forward(self, x, *rest):
        y = x
        for layer in change([*self.layers]):
            y = layer(y if fed else x, *rest)
        return self.norm(y) if norm else y

    return {"Encoder__forward": forward, "Decoder__forward": forward}

FIRST_ALONE = "The return ends the loop after its first layer; it belongs behind the loop."
slip("return_in_the_loop", "return in the loop over the layers", FIRST_ALONE,
     **stack_with(lambda layers: layers[:1]))
slip("return_in_the_loop_without_norm", "return x in the loop over the layers", FIRST_ALONE,
     **stack_with(lambda layers: layers[:1], norm=False))
slip("each_layer_reads_the_embeddings", "y = layer(x)  # in each round the same x",
     "Each layer reads what the one before it wrote, so only the last one counts here.",
     **stack_with(list, fed=False))
slip("last_layer_missing", "one layer too few", "All N layers of w are run.",
     **stack_with(lambda layers: layers[:-1]))
slip("first_layer_missing", "the first layer is left out", "All N layers of w are run.",
     **stack_with(lambda layers: layers[1:]))
slip("layers_reversed", "the last layer first",
     "The layers of w are in their order, the first one first.",
     **stack_with(lambda layers: layers[::-1]))

def decoder_without_last_norm(self, x, memory, src_mask, tgt_mask):
    for layer in self.layers:
        x = layer(x, memory, src_mask, tgt_mask)
    return x

slip("decoder_without_last_norm", "decoder without its last norm",
     "With pre-norm nobody normalises what the last one adds.",
     Decoder__forward=decoder_without_last_norm)

slip("cross_attention_first", "attention to the memory first, then to the target",
     "Figure 1 has the target's own attention first.",
     DecoderLayer__forward=decoder_layer((1, across), (0, own), (2, network)))
slip("cross_attention_first_with_norm_1", "attention to the memory first, with norm_1",
     "Figure 1 has the target's own attention first; norm_1 is its norm.",
     DecoderLayer__forward=decoder_layer((0, across), (1, own), (2, network)))
slip("cross_attention_missing", "no attention to the memory",
     "The decoder's has three sublayers; without the second it never sees the source.",
     DecoderLayer__forward=decoder_layer((0, own), (2, network)))
slip("own_attention_unmasked", "the decoder's own attention without its mask",
     "When it writes, there is no future; in training there is, and it must be hidden.",
     DecoderLayer__forward=decoder_layer(
         (0, lambda layer, z, *_: layer.self_attn(z, z, z)), (1, across), (2, network)))
slip("source_mask_not_passed", "src_mask isn't passed to the attention to the memory",
     "The decoder then sees the padding of the source.",
     DecoderLayer__forward=decoder_layer(
         (0, own), (1, lambda layer, z, memory, *_: layer.src_attn(z, memory, memory)),
         (2, network)))
slip("query_not_normed", "x + src_attn(x, memory, ...)  # no norm_2",
     "Pre-norm normalises the query of this attention as well. (The memory has had its last norm.)",
     DecoderLayer__forward=decoder_layer((0, own), (None, across), (2, network)))
slip("memory_normed_again", "norm_2(memory)",
     "The encoder's last norm was the memory's; norm_2 is for the query alone.",
     DecoderLayer__forward=decoder_layer(
         (0, own),
         (1, lambda layer, z, y, *rest: across(layer, z, layer.sublayer[1].norm(y), *rest)),
         (2, network)))
slip("target_mask_without_padding", ".tril()  # without & (tgt != pad)",
     "The words don't see the pads, but the pads see each other: harmless, because they don't "
     "count, but not what was asked.",
     target_mask=lambda tgt, pad=PAD: square(tgt.size(1)).tril().expand(len(tgt), -1, -1))
slip("target_mask_without_order", "tgt != pad  # without .tril()",
     "The decoder's mask hides the future as well as the padding.",
     target_mask=lambda tgt, pad=PAD: (tgt != pad).unsqueeze(1).expand(-1, tgt.size(1), -1))
slip("masks_inverted", "True where it is hidden",
     "Here True means that it may be seen.",
     source_mask=lambda src, pad=PAD: ~right_source(src, pad),
     target_mask=lambda tgt, pad=PAD: ~(right_source(tgt, pad) & square(tgt.size(1)).tril()))
slip("causal_mask_transposed", "triu  # for tril",
     "Each token then sees itself and the future, and hides the past.",
     subsequent_mask=lambda size: square(size).triu())
slip("causal_mask_without_diagonal", ".tril(-1)  # for .tril()",
     "A token may see itself; here the first one sees nothing at all.",
     subsequent_mask=lambda size: square(size).tril(-1))
slip("or_for_and", "order or padding  # for and",
     "A key may be seen if it is real and not in the future; with or, one of the two is enough.",
     target_mask=lambda tgt, pad=PAD: right_source(tgt, pad) | square(tgt.size(1)).tril())
slip("eos_is_read", "ids, ids[1:]  # ids for ids[:-1]",
     "Nothing comes after </s>, so the decoder never reads it.",
     Batch____init__=batch_with(lambda tgt: tgt, lambda tgt: tgt[:, 1:]))
slip("nothing_cut_off", "ids, ids",
     "Each position would have to predict the token that it has just read. The next one is asked.",
     Batch____init__=batch_with(lambda tgt: tgt, lambda tgt: tgt))
slip("shift_the_other_way", "ids[1:], ids[:-1]  # the two swapped",
     "Each position would read a token and predict the one before it.",
     Batch____init__=batch_with(lambda tgt: tgt[:, 1:], lambda tgt: tgt[:, :-1]))
slip("bos_in_front", "[bos] + ids[:-1], ids",
     "ids begins with <s> already: it would be read twice, and asked for once.",
     **CATALOGUE["bos_twice"].puts)
slip("eos_in_front", "[eos] + ids[:-1], ids",
     "The first thing that is read is <s>, and ids begins with it already.",
     Batch____init__=batch_with(
         lambda tgt: torch.cat((torch.full_like(tgt[:, :1], EOS), tgt[:, :-1]), 1),
         lambda tgt: tgt))
slip("bos_given_back", "[bos] + what was written",
     "Decoding begins with <s>, but the model hasn't written it.",
     translate=lambda *asked: [[BOS, *row] for row in right_translate(*asked)])
slip("eos_not_given_back", "the ids without eos",
     "The model has written </s> as well, and it was asked for.",
     translate=lambda *asked: [[i for i in row if i != EOS] for row in right_translate(*asked)])
slip("one_token_too_many", "longest + 1 ids",
     "`longest` is how many ids may be written.",
     translate=lambda model, pairs, n=LONGEST: right_translate(model, pairs, n + 1))
slip("one_token_too_few", "longest - 1 ids",
     "`longest` is how many ids may be written, and <s> isn't written.",
     translate=lambda model, pairs, n=LONGEST: right_translate(model, pairs, n - 1))
slip("bos_counted", "[bos] + longest - 1 ids",
     "<s> is what the decoder reads first. It hasn't been written: it isn't given back, and "
     "doesn't count.",
     translate=lambda model, pairs, n=LONGEST: [
         [BOS, *row] for row in right_translate(model, pairs, n - 1)])

def loop_with(
    best: Callable = Tensor.argmax, end: int = EOS, last_alone: bool = False, most: int = 0,
    causal: bool = True, read_at: int = -1, source: Callable[[list[int]], list[int]] = list,
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

slip("eos_ignored", "no stop at eos",
     "With </s> the sentence is over; what the model writes after it belongs to nothing.",
     translate=loop_with(end=-1))
slip("longest_ignored", "no stop after `longest` ids",
     "A model that never writes </s> would write for ever.",
     translate=loop_with(most=60))
slip("least_probable", "min  # for max",
     "Greedy decoding takes the most probable token.",
     translate=loop_with(best=Tensor.argmin))
slip("last_token_alone", "scores(ids[-1:])",
     "What comes next depends on all that has been written, not only on the last token.",
     translate=loop_with(last_alone=True))
slip("written_without_a_mask", "no causal mask in translate",
     "Earlier positions then see later ones, which never happened in training. Many sentences come "
     "out right all the same, by luck.",
     translate=loop_with(causal=False))
slip("first_position_read", "scores[0]  # for scores[-1]",
     "What comes next is what the last position predicts.",
     translate=loop_with(read_at=0))
slip("source_begins_with_bos", "[bos] + src",
     "The model has only read sources without <s>.",
     translate=loop_with(source=lambda ids: [BOS, *ids]))
slip("source_without_end", "src[:-1]",
     "The model has only read sources with their </s>.",
     translate=loop_with(source=lambda ids: ids[:-1]))
slip("probabilities_for_logits", "softmax(logits)",
     "Logits are what goes into the softmax. (The loss takes it itself.)",
     **CATALOGUE["softmax_before_the_loss"].puts)
slip("logits_divided", "x @ table.T / math.sqrt(d_model)",
     "The rows score as they are. Divided, they would make the softmax far too unsure.",
     Generator__logits=lambda self, x: self.proj(x) / x.size(-1) ** 0.5)
slip("log_probabilities_for_logits", "log_softmax(logits)",
     "Logits are what goes into the softmax. (The loss takes it itself.)",
     Generator__logits=lambda self, x: self.proj(x).log_softmax(-1))
slip("logits_of_scaled_rows", "x @ (table * math.sqrt(d_model)).T",
     "The rows are scaled when they are read, not when they score: the softmax would be far too "
     "sure.",
     Generator__logits=lambda self, x: self.proj(x) * x.size(-1) ** 0.5)

def smoothed(
    share: Callable[[Tensor, Tensor, float], Tensor], mean: bool = False,
    log_p: Callable[[Tensor], Tensor] = lambda logits: logits.log_softmax(-1),
    divergence: bool = False,
) -> Callable:
    """The loss from another q: share(one-hot targets, tokens that aren't padding, eps).

    Or from something else for log p, or the divergence of q and p for the cross-entropy.
    """

    def loss(logits, target, eps=0.1, pad=PAD, padding=False):
        hot = nn.functional.one_hot(target, logits.size(-1)).to(logits.dtype)
        real = torch.arange(logits.size(-1)) != pad
        q = share(hot, real, eps)
        each = -(q * log_p(logits)).sum(-1) + (torch.special.entr(q).sum(-1) * -divergence)
        each = each if padding else each * (target != pad)
        return each.sum() / (target != pad).sum() if mean else each.sum()

    return loss

def evenly(hot: Tensor, real: Tensor, eps: float) -> Tensor:
    """The document's q."""
    return ((1 - eps) * hot + eps / real.sum()) * real

slip("pad_written_in", "0  # for pad",
     "pad is given: another vocabulary may give another number to padding.",
     source_mask=lambda src, pad=PAD: right_source(src, PAD),
     target_mask=lambda tgt, pad=PAD: right_source(tgt, PAD) & square(tgt.size(1)).tril(),
     smoothed_loss=lambda z, y, eps=0.1, pad=PAD: smoothed(evenly)(z, y, eps, PAD))
slip("padding_has_a_share", "smoothing / vocab  # padding has a share",
     "It asks for padding with a small probability, which is never right. It is also what "
     "cross_entropy(label_smoothing=...) does.",
     smoothed_loss=smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)))

def right_token_without_share(hot, real, eps):
    return torch.where(hot > 0, 1 - eps, eps / (real.sum() - 1)) * real

slip("right_token_without_share", "1 - smoothing for the right token, the rest for the others",
     "That is what the authors' code does; here the right token has its part of the tenth as "
     "well.",
     smoothed_loss=smoothed(right_token_without_share))
slip("smoothing_of_2018", "KLDivLoss with 1 - smoothing for the right token",
     "That's LabelSmoothing of The Annotated Transformer of 2018: its divergence leaves out the "
     "entropy of q, and the right token has no part of the tenth.",
     smoothed_loss=smoothed(right_token_without_share, divergence=True))
slip("divergence_for_cross_entropy", "KLDivLoss  # for cross-entropy",
     "The divergence is the cross-entropy less the entropy of q: the gradient is the same, and the "
     "number is not.",
     smoothed_loss=smoothed(evenly, divergence=True))

def share_taken_and_not_given(hot, real, eps):
    return torch.where(hot > 0, 1 - eps, eps / real.sum()) * real

WITHOUT_SHARE = (
    "All tokens but padding share the smoothing, the right one included: it has 1 - smoothing and "
    "its share. Without, q doesn't add up to 1."
)
slip("right_token_without_its_share", "1 - smoothing for the right token, without its share",
     WITHOUT_SHARE, smoothed_loss=smoothed(share_taken_and_not_given))
slip("gradient_without_its_share", "p - q  # q without the right token's share",
     WITHOUT_SHARE, smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: right_smoothed(
         logits, target, eps, pad) + (eps / (logits.size(-1) - 1) * logits.gather(
             -1, target.unsqueeze(-1))[:, 0] * (target != pad)).sum())
slip("right_token_alone", "(1 - smoothing) * the right token's, and nothing else",
     "What is taken away from the right token is shared out among all tokens but padding.",
     smoothed_loss=smoothed(lambda hot, real, eps: (1 - eps) * hot))
slip("smoothing_not_divided", "smoothing * log_p.sum()  # not divided",
     "The tokens share the smoothing; here each has all of it.",
     smoothed_loss=smoothed(lambda hot, real, eps: ((1 - eps) * hot + eps) * real))
slip("no_logarithm", "p  # for log p",
     "Cross-entropy is -q * log p, summed.",
     smoothed_loss=smoothed(evenly, log_p=lambda logits: logits.softmax(-1)))
slip("logits_for_log_probabilities", "logits  # for log p",
     "log p is the logits less the logarithm of the sum of their exponentials.",
     smoothed_loss=smoothed(evenly, log_p=lambda logits: logits))
slip("no_smoothing", "no label smoothing",
     "Section 5.4 takes a tenth away from the right token.",
     smoothed_loss=smoothed(lambda hot, real, eps: hot))
slip("mean_for_sum", "the mean over the tokens",
     "A batch gives its sum, so that short sentences don't count for more.",
     smoothed_loss=smoothed(evenly, mean=True))
slip("pads_counted", "padding counts",
     "The loss depends on how much padding a batch needs.",
     smoothed_loss=functools.partial(smoothed(evenly), padding=True))
slip("pads_are_tokens", "padding counts as a token like any other",
     "Where the target is padding, the loss and its gradient are zero.",
     smoothed_loss=functools.partial(
         smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / real.sum() * real), padding=True))
slip("pads_are_tokens_with_a_share", "cross_entropy(..., label_smoothing=eps)  # no ignore_index",
     "Where the target is padding, the loss is zero; and padding has no share of the smoothing.",
     smoothed_loss=functools.partial(
         smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)), padding=True))
slip("gradient_where_padding_is", "p where the target is padding",
     "There the loss is zero, and so is its gradient.",
     smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: right_smoothed(
         logits, target, eps, pad) + (logits.logsumexp(-1) * (target == pad)).sum())
slip("gradient_upside_down", "q - p  # or q * log p, without a minus",
     "The loss is -q * log p, and its derivative p - q; an update goes against it.",
     smoothed_loss=lambda *arguments: -right_smoothed(*arguments))
slip("shared_by_all_others", "smoothing / (vocab - 1) for all but the right token",
     "Padding is one of these others and has no share; the right token has one.",
     smoothed_loss=smoothed(
         lambda hot, real, eps: torch.where(hot > 0, 1 - eps, eps / (len(real) - 1))))
slip("mean_with_padding", "the mean over all positions, padding included",
     "The loss is a sum over the tokens, and padding isn't one of them.",
     smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: right_smoothed(
         logits, target, eps, pad) / target.numel())

def unnormalised(logits, target, eps=0.1, pad=PAD):
    hot = nn.functional.one_hot(target, logits.size(-1)).to(logits.dtype)
    q = evenly(hot, torch.arange(logits.size(-1)) != pad, eps)
    return ((logits**2 / 2 - q * logits).sum(-1) * (target != pad)).sum()

slip("scores_for_probabilities", "logits - q  # for p - q",
     "p is the softmax of the logits.",
     smoothed_loss=unnormalised)
slip("gradient_without_target", "p  # for p - q",
     "Without q every token is pushed down, the right one as well.",
     smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
         logits.logsumexp(-1) * (target != pad)).sum())

def rate_with(formula: Callable[[int, int, int], float]) -> Callable:
    """Another schedule, of step, d_model and warmup."""
    return lambda step, model_size, factor, warmup: factor * formula(step, model_size, warmup)

slip("rate_with_max", "max for min",
     "The rate begins at its highest, falls, and then rises for ever.",
     rate=rate_with(lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5)))
slip("rate_without_warmup", "warmup ** -0.5  # for -1.5",
     "The rate is at its top after a few updates, 16 for a warmup of 4000.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * w**-0.5)))
slip("rate_without_width", "without d_model ** -0.5",
     "That factor makes wide models learn more slowly.",
     rate=rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5)))
slip("rate_one_step_early", "step - 1  # counted from 0",
     "Every rate is that of the step before, and the first is zero.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min(max(s - 1, 1e-9) ** -0.5, (s - 1) * w**-1.5)))
slip("rate_one_step_late", "step + 1",
     "step counts from 1 already; the first rate is twice as high.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min((s + 1) ** -0.5, (s + 1) * w**-1.5)))
slip("rate_only_rises", "step * warmup ** -1.5  # no min",
     "That is the warmup; the other term takes over after it.",
     rate=rate_with(lambda s, d, w: d**-0.5 * s * w**-1.5))
slip("rate_only_falls", "step ** -0.5  # no min",
     "That is what comes after the warmup; at the first update it is 250,000 times the right rate.",
     rate=rate_with(lambda s, d, w: d**-0.5 * s**-0.5))
slip("rate_grows_with_width", "d_model ** 0.5  # for -0.5",
     "A wide model needs a lower rate, not a higher one.",
     rate=rate_with(lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5)))
slip("rate_divided_by_the_width", "1 / d_model  # for d_model ** -0.5",
     "The rate falls with the root of the width.",
     rate=rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5) / d))
slip("rate_of_a_product", "(step * warmup) ** -1.5",
     "The power is that of warmup alone; step rises as it is.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, (s * w) ** -1.5)))
slip("rate_falls_like_the_step", "1 / step  # for step ** -0.5",
     "The rate falls with the root of the step: far more slowly.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min(1 / s, s * w**-1.5)))
slip("rate_beside_its_peak", "min((step / warmup) ** -0.5, step / warmup)",
     "That has the right form, but it is too high by the root of `warmup`.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min((s / w) ** -0.5, s / w)))
slip("warmup_written_in", "4000  # for warmup",
     "warmup is given: a short training has a shorter one.",
     rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * 4000**-1.5)))
slip("width_written_in", "512  # for d_model",
     "d_model is given: 512 is the width of the paper's base model.",
     rate=rate_with(lambda s, d, w: 512**-0.5 * min(s**-0.5, s * w**-1.5)))
slip("usual_betas", "betas=(0.9, 0.999)  # for 0.98",
     "The paper's second is 0.98: an average over fifty updates, not a thousand.",
     Adam=lambda p, lr, betas, eps: right_adam(p, lr, (0.9, 0.999), eps))
slip("betas_swapped", "betas swapped",
     "The gradient is averaged over fifty updates, its size over ten.",
     Adam=lambda p, lr, betas, eps: right_adam(p, lr, betas[::-1], eps))
slip("uphill", "w + ...",
     "The gradient points to where the loss rises.",
     Adam=adam_with(lambda m, v, c1, c2, eps: -m / c1 / ((v / c2).sqrt() + eps)))
slip("no_second_average", "not divided by the root of v",
     "Adam divides the average gradient by its usual size.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / c1))
slip("adam_epsilon_in_the_root", "sqrt(v + eps)  # for sqrt(v) + eps",
     "In LayerNorm epsilon is inside the root, in Adam outside; v is so small that it matters.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v / c2 + eps).sqrt()))
slip("second_average_of_g", "v is an average of g  # for g ** 2",
     "v is the average square: its root is the usual size of the gradient.",
     Adam=adam_with(second=average))
slip("adam_one_step_ahead", "b1 ** (step + 1), b2 ** (step + 1)",
     "step counts from 1 already.",
     Adam=adam_with(ahead=1))
slip("first_average_is_a_sum", "m = b1 * m + g  # no (1 - b1)",
     "That is the momentum of SGD, ten times as large. Adam's m is an average.",
     Adam=adam_with(first=lambda b, m, g: b * m + g))
slip("both_averages_are_sums", "m = b1 * m + g, v = b2 * v + g ** 2  # no (1 - b)",
     "Both are averages, so what is new counts as much as what is old gives up.",
     Adam=adam_with(first=lambda b, m, g: b * m + g, second=lambda b, v, g: b * v + g**2))
slip("no_correction_of_m", "m  # for m / (1 - b1 ** step)",
     "Both averages begin at zero and are too small at first; each has its correction.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / ((v / c2).sqrt() + eps)))
slip("no_correction_of_v", "v  # for v / (1 - b2 ** step)",
     "Both averages begin at zero and are too small at first; each has its correction.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v.sqrt() + eps)))
slip("betas_of_the_corrections_exchanged", "m / (1 - b2 ** step), v / (1 - b1 ** step)",
     "m is corrected by its own beta, 0.9, and v by 0.98.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / c2 / ((v / c1).sqrt() + eps)))
slip("correction_stands_still", "1 - b1, 1 - b2  # no ** step",
     "The correction fades: it is 1 - b ** step, and nearly 1 after some steps.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / 0.1 / ((v / 0.02).sqrt() + eps)))
slip("corrected_averages_given_back", "return w, m / (1 - b1 ** step), v / (1 - b2 ** step)",
     "The next step goes on with the averages as they are; corrected ones move the weights alone.",
     Adam=adam_with(given_back=lambda old, new, corrected: corrected))
slip("old_averages_given_back", "return w and the m and v that were given",
     "The next step goes on with the new averages.",
     Adam=adam_with(given_back=lambda old, new, corrected: old))
slip("averages_exchanged", "return w, v, m",
     "m comes before v.",
     Adam=adam_with(given_back=lambda old, new, corrected: new[::-1]))
slip("moved_by_the_old_averages", "w is moved before m and v are new",
     "First the averages take in this gradient, then they move the weights.",
     Adam=adam_with(moved_by=lambda old, new, g: old))
slip("moved_by_the_gradient", "g / sqrt(v)  # for m",
     "That's RMSProp; Adam moves by the average m.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / ((v / c2).sqrt() + eps),
                    moved_by=lambda old, new, g: (g, new[1])))
slip("not_the_root_of_v", "m / (v + eps)  # no root",
     "v is an average of squares; its root is the usual size of the gradient.",
     Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v / c2 + eps)))
slip("new_and_old_exchanged", "m = 0.1 * m + 0.9 * g, v = 0.02 * v + 0.98 * g ** 2",
     "An average keeps most of what it was, and takes in little of what is new.",
     Adam=adam_with(first=lambda b, m, g: average(1 - b, m, g),
                    second=lambda b, v, g: average(1 - b, v, g**2)))
slip("second_average_is_a_sum", "v = b2 * v + g ** 2  # no (1 - b2)",
     "v is an average, so what is new counts as much as what is old gives up.",
     Adam=adam_with(second=lambda b, v, g: b * v + g**2))
slip("learning_rate_forgotten", "w - m / sqrt(v)  # no lrate",
     "The schedule's rate says how far a weight moves.",
     Adam=lambda p, lr, betas, eps: right_adam(p, 1.0, betas, eps))
slip("weight_decay", "w - lrate * (... + 0.01 * w)",
     "That's AdamW with its usual decay; the paper has none.",
     Adam=adam_with(decay=0.01))
slip("another_adam_epsilon", "epsilon 1e-8  # for 1e-9",
     "1e-8 is what PyTorch takes; Section 5.3 has 1e-9.",
     Adam=lambda p, lr, betas, eps: right_adam(p, lr, betas, 1e-8))


# here, and not in the file that is to be read
KEY_OF_THE_INTERVIEW = """\
`.tril(diagonal=1)` in Model.forward: each position sees the token that it has to predict. \
`.tril()`
`self.places[: x.size(0)]` in embed: a sentence's row in its batch, for each word's place. \
`[: x.size(1)]`
`cross_entropy` in update: padding counts, and lowers the loss. \
`ignore_index=PAD`
`loss.backward()` in update adds to the gradient of the update before. \
`adam.zero_grad()` above it"""
