"""The catalogue: mistakes that people make when they build a Transformer, as patches.

    CATALOGUE["no_causal_mask"]         a Mistake: what is written, what people believe, what it does
    with made("no_causal_mask"): ...    the document's module with this mistake; undone at the end
    replaced("no_causal_mask")          {"subsequent_mask": function}: what it puts in place of what

A mistake is in force while its model trains and while it is examined, because whoever made it made
it in both. What the document has only inside its examples (which numbers to learn from, how to
translate them) is here as `numbers`, `examined` and `translate`, so that it can be made wrong as
well: call these through the module.
"""

import contextlib
import copy
import functools
import inspect
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


class Mistake(NamedTuple):
    """One mistake; `kind` says where it is made, `section` is the heading under which the document
    explains it."""

    name: str
    kind: str  # mask, shift, data, attention, heads, positions, norm, loss, schedule, adam,
    # decoding or report
    line: str  # what is written, for what should be
    belief: str  # what the one who writes it believes
    effect: str  # what it does
    section: str
    found: str  # the cheapest examination that sees it, a key of examine.EXAMINATIONS; or none
    harmless: bool  # at this size
    page: bool  # the model in the page can have it
    trains: bool  # False: it is made after training, so a healthy model serves
    settings: dict[str, Any]
    patch: Callable[[Callable], Any]


CATALOGUE: dict[str, Mistake] = {}
SLIPS: dict[str, Mistake] = {}  # of single functions, at the end of this file


def mistake(
    kind: str, line: str, section: str, found: str, *, harmless: bool = False, page: bool = False,
    trains: bool = True, **settings: Any,
) -> Callable:  # fmt: skip
    """Enter a function in the catalogue. It gets `patch(owner, name, new)`; its docstring is belief
    and effect."""

    def enter(function: Callable) -> Callable:
        belief, _, effect = inspect.getdoc(function).replace("\n", " ").partition(" | ")
        CATALOGUE[function.__name__] = Mistake(
            function.__name__,
            kind,
            line,
            belief,
            effect,
            section,
            found,
            harmless,
            page,
            trains,
            settings,
            function,
        )
        return function

    return enter


@contextlib.contextmanager
def made(name: str) -> Iterator[Mistake]:
    """The document's module with this mistake in it; afterwards all is as before."""
    with contextlib.ExitStack() as stack:
        found = CATALOGUE.get(name) or SLIPS[name]
        found.patch(lambda *what: stack.enter_context(mock.patch.object(*what)))
        yield found


def replaced(name: str) -> dict[str, Any]:
    """What a mistake puts in place of what: {"attention": function} or {"Transformer.decode":
    method}."""
    found: dict[str, Any] = {}

    def note(owner: Any, what: str, new: Any) -> None:
        found[f"{owner.__name__}.{what}" if inspect.isclass(owner) else what] = new

    CATALOGUE[name].patch(note)
    return found


def settings_with(name: str, settings: Config = HEALTHY) -> Config:
    """The settings of a model that has this mistake."""
    return Config(**(vars(settings) | CATALOGUE[name].settings))


# --- What the document has only inside its examples ---


def numbers(known: list[int], held_out: list[int], draw: random.Random) -> Iterator[list[int]]:
    """The numbers of one update after the other: a quarter of them small."""
    while True:
        yield [*draw.choices(range(100), k=8), *draw.choices(known, k=24)]


def examined(pairs: list[Pair]) -> list[Pair]:
    """The pairs that a trained model is asked about, as the reader's code encodes them."""
    return pairs


def translate(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """Greedy translations of the sources, without BOS, up to and with EOS; the targets are not
    looked at."""
    return greedy(model, pairs, longest, BOS)


def greedy(
    model: nn.Module,
    pairs: list[Pair],
    longest: int,
    start: int,
    mask: bool = True,
    decode: Callable | None = None,
) -> list[list[int]]:
    """Greedy translations that begin with `start`, by the document's naive loop or another one."""
    src = tat.pad_rows([pair.src for pair in pairs])
    found = (decode or tat.greedy_decode_naive)(
        model, src, tat.source_mask(src) if mask else None, longest + 1, start
    )
    return [until_end(row) for row in found[:, 1:].tolist()]


def until_end(row: list[int]) -> list[int]:
    """Ids up to and with the first EOS."""
    return row[: row.index(EOS) + 1] if EOS in row else row


def cached(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """The same translations by the document's decoder that keeps keys and values."""
    return greedy(model, pairs, longest, BOS, decode=tat.greedy_decode)


HERE = sys.modules[__name__]
init_of, batch_of, gradient_of, loss_of = (
    tat.initialise,
    tat.make_batch,
    tat.Trainer.gradient,
    tat.batch_loss,
)
encode_of, decode_of, split_of, rate_of = (
    tat.Transformer.encode,
    tat.Transformer.decode,
    tat.split_heads,
    tat.rate,
)
encoding_of, step_of = tat.positional_encoding, tat.CachedDecoder.step
adam_of, trainer_init = torch.optim.Adam, tat.Trainer.__init__


# --- Masks ---

MASKS = "Masks"


def square(size: int) -> Tensor:
    """A mask that hides nothing: (1, size, size)."""
    return torch.ones(1, size, size, dtype=torch.bool)


def attention_with(
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5, fill: float = -torch.inf,
    flipped: bool = False, dim: int = -1, after: bool = False,
) -> Callable:  # fmt: skip
    """Equation (1) with one line changed."""

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
        dropout: Callable | None = None,
    ) -> tuple[Tensor, Tensor]:
        scores = query @ key.transpose(-2, -1) * scale(query.size(-1))
        if mask is not None and not after:
            scores = scores.masked_fill(mask if flipped else mask == 0, fill)
        weights = scores.softmax(dim)
        if mask is not None and after:
            weights = weights * mask
        return (weights if dropout is None else dropout(weights)) @ value, weights

    return attention


@mistake("mask", "torch.ones(size, size)  # no .tril()", MASKS, "wires", page=True)
def no_causal_mask(patch):
    """The shift already hides the next token. | Each position copies its answer from the next one:
    the loss falls to zero, and in translation, where there is no next token, nothing comes out."""
    patch(tat, "subsequent_mask", square)


@mistake("mask", ".tril(1)  # for .tril()", MASKS, "wires", page=True)
def causal_mask_one_too_far(patch):
    """A position must see itself, so the diagonal above has to be open. | Position t sees token t +
    1, which is the one it has to predict."""
    patch(tat, "subsequent_mask", lambda size: square(size).tril(1))


@mistake("mask", "masked_fill(mask, -1e9)  # where True = may attend", MASKS, "wires")
def mask_the_other_way_round(patch):
    """True means masked, as in nn.Transformer. | What may be seen is hidden, and what must be
    hidden is all that is seen: the future and the padding."""
    patch(tat, "attention", attention_with(fill=-1e9, flipped=True))


@mistake("mask", "masked_fill(~mask, -1e-9)  # for -1e9", MASKS, "wires")
def mask_with_tiny_number(patch):
    """A number with a nine in the exponent is a large one. | Masked scores become 0 instead of
    minus infinity, so nothing is masked at all."""
    patch(tat, "attention", attention_with(fill=-1e-9))


@mistake("mask", "softmax(scores) * mask", MASKS, "wires")
def mask_after_softmax(patch):
    """A weight of zero is a weight of zero. | The hidden keys stay in the denominator: each weight
    tells how well the future would have fitted."""
    patch(tat, "attention", attention_with(after=True))


@mistake("mask", "no src_mask", MASKS, "wires", harmless=True)
def padding_seen(patch):
    """Padding is a token like any other; the model learns to ignore it. | A translation depends on
    how much padding its neighbours need."""
    patch(
        tat,
        "source_mask",
        lambda src, pad=PAD: torch.ones_like(src, dtype=torch.bool).unsqueeze(-2),
    )


@mistake("mask", "mask & (tgt != pad).unsqueeze(-1)", MASKS, "gradient")
def padded_queries_masked(patch):
    """Padding should be hidden on both sides, rows and columns. | A row without any key is 0 / 0:
    the first batch that needs two pads gives NaN, and one batch later every weight is NaN."""

    def target_mask(tgt: Tensor, pad: int = PAD) -> Tensor:
        real = tgt != pad
        return real.unsqueeze(-2) & real.unsqueeze(-1) & square(tgt.size(1)).tril()

    patch(tat, "target_mask", target_mask)


@mistake("mask", "encoder(x, src_mask & causal)", MASKS, "wires", harmless=True)
def encoder_causal(patch):
    """Attention is masked in a Transformer. | The encoder reads each word without the rest of the
    sentence."""

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        mask = src_mask & square(x.size(1)).tril()
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward)

    patch(tat.EncoderLayer, "forward", forward)


# --- The shift, and what is in a batch ---

SHIFT = "Batches and the shift (Section 5.1)"


def batch_with(read: Callable[[Tensor], Tensor], predict: Callable[[Tensor], Tensor]) -> Callable:
    """A Batch whose targets are cut differently."""

    def init(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        self.src, self.src_mask = src, tat.source_mask(src, pad)
        if tgt is not None:
            self.tgt, self.tgt_y = read(tgt), predict(tgt)
            self.tgt_mask, self.ntokens = (
                tat.target_mask(self.tgt, pad),
                int((self.tgt_y != pad).sum()),
            )

    return init


@mistake("shift", "tgt_y = tgt[:, :-1]  # as tgt", SHIFT, "loss", page=True)
def no_shift(patch):
    """The target is the target. | The model learns to repeat what it has just read."""
    patch(tat.Batch, "__init__", batch_with(lambda tgt: tgt[:, :-1], lambda tgt: tgt[:, :-1]))


@mistake("shift", "tgt = tgt[:, :-2], tgt_y = tgt[:, 2:]", SHIFT, "loss", page=True)
def shift_by_two(patch):
    """The loader shifts, and the loss shifts. | Each position predicts the token after the next;
    written one by one, every second token is missing."""
    patch(tat.Batch, "__init__", batch_with(lambda tgt: tgt[:, :-2], lambda tgt: tgt[:, 2:]))


@mistake("shift", "<s> by the tokeniser and by the collate function", SHIFT, "loss", harmless=True)
def bos_twice(patch):
    """Someone has to add it. | The model learns to write <s> first; decoding gets through it, one
    token late."""
    patch(tat, "make_batch", lambda pairs: batch_of([Pair(p.src, [BOS, *p.tgt]) for p in pairs]))


@mistake("shift", "targets without </s>", SHIFT, "loss", page=True)
def eos_cut_off(patch):
    """The end is the end of the list. | Nothing ever tells the model to stop: right words, and then
    more words."""
    patch(
        tat,
        "make_batch",
        lambda pairs: batch_of([Pair(p.src, [i for i in p.tgt if i != EOS]) for p in pairs]),
    )


@mistake("data", "Batch(src=tgt, tgt=tgt)", SHIFT, "wires", page=True)
def target_fed_as_source(patch):
    """One variable, two names. | The encoder reads the answer; at translation it reads something
    else."""
    patch(tat, "make_batch", lambda pairs: batch_of([Pair(p.tgt[1:], p.tgt) for p in pairs]))


def shifted_by_one_line(pairs: list[Pair]) -> list[Pair]:
    """Each source with the next pair's target."""
    return [Pair(a.src, b.tgt) for a, b in zip(pairs, [*pairs[1:], *pairs[:1]], strict=True)]


@mistake("data", "random.shuffle(sources)  # and the targets not", SHIFT, "loss", page=True)
def pairs_misaligned(patch):
    """Shuffling is harmless. | The source says nothing about the target, so the model learns to
    write numbers as such: a language model that ignores its source."""
    patch(
        tat.Trainer, "gradient", lambda self, pairs: gradient_of(self, shifted_by_one_line(pairs))
    )


@mistake("data", "a quarter of the lines off by one", SHIFT, "heart", harmless=True)
def quarter_misaligned(patch):
    """Both files have the same number of lines. | The loss stays up and looks ill; the translations
    are nearly as good as without the bad quarter."""

    def gradient(self, pairs: list[Pair]) -> float:
        return gradient_of(
            self, shifted_by_one_line(pairs[::4]) + [p for i, p in enumerate(pairs) if i % 4]
        )

    patch(tat.Trainer, "gradient", gradient)


@mistake("data", "0, 1, 2, ... again and again", "Batches of similar lengths", "run")
def not_shuffled(patch):
    """Each epoch sees everything, in whichever order. | Each update unlearns the one before: 32
    neighbours in the alphabet of numbers are all alike."""

    def in_order(known: list[int], held_out: list[int], draw: random.Random) -> Iterator[list[int]]:
        cycle = itertools.cycle([*range(100), *sorted(known)])
        while True:
            yield list(itertools.islice(cycle, 32))

    patch(HERE, "numbers", in_order)


# --- Attention and its heads ---

DOT, HEADS = "Scaled dot-product attention (Section 3.2.1)", "Multi-head attention (Section 3.2.2)"
STEPS = "The decoder writes (Sections 3.1 and 3.2.3)"


@mistake("attention", "query @ key.mT  # not divided", DOT, "inventory", harmless=True)
def not_scaled(patch):
    """The softmax normalises anyway. | Scores are larger by the root of d_k, so the softmax starts
    sharper and passes on less gradient. The wider the heads, the worse."""
    patch(tat, "attention", attention_with(scale=lambda d_k: 1.0))


@mistake("attention", "/ d_k  # for / math.sqrt(d_k)", DOT, "inventory", harmless=True)
def scaled_by_d_k(patch):
    """The mean over the dimensions. | Attention begins nearly even and must learn to choose."""
    patch(tat, "attention", attention_with(scale=lambda d_k: 1 / d_k))


@mistake("attention", "* math.sqrt(d_k)  # for /", DOT, "inventory", page=True)
def multiplied_by_root(patch):
    """The formula has a root of d_k. | Every head looks at one token from the start, chosen at
    random, and gets almost no gradient to choose another."""
    patch(tat, "attention", attention_with(scale=lambda d_k: d_k**0.5))


@mistake("attention", "scores.softmax(dim=-2)", DOT, "wires", page=True)
def softmax_over_queries(patch):
    """Some dimension has to add up to 1. | Each key shares itself out among the queries, those to
    come included: with a causal mask that is right, the future leaks."""
    patch(tat, "attention", attention_with(dim=-2, fill=-1e9))


@mistake("attention", "scores.softmax(dim=1)", DOT, "wires")
def softmax_over_heads(patch):
    """dim=1, as for (B, S). | With heads, dimension 1 is the heads: a position masked in all heads
    gets the same weight in each, so nothing is hidden."""
    patch(tat, "attention", attention_with(dim=1, fill=-1e9))


@mistake("heads", "x.view(B, h, T, d_k)  # no transpose", HEADS, "wires", page=True)
def heads_split_by_view(patch):
    """The shape is right. | A head gets some of the positions, whole, instead of a part of each:
    its fourth row may be the sixth word, and the causal mask is laid over rows that are no
    times."""
    patch(tat, "split_heads", lambda x, h: x.reshape(x.size(0), h, x.size(1), -1))


@mistake("heads", "x.view(B, T, h * d_v)  # no transpose", HEADS, "wires")
def heads_joined_by_view(patch):
    """The shape is right. | The heads' rows are dealt out to the wrong positions; what the last
    ones computed is given to the first."""
    patch(tat, "join_heads", lambda x: x.reshape(x.size(0), x.size(2), -1))


@mistake("heads", "K = self.W_q(key)", HEADS, "gradient", harmless=True)
def keys_by_W_q(patch):
    """One letter. | Queries and keys share a matrix, and W_k never learns."""

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        return tat.split_heads(self.W_q(key), self.h), tat.split_heads(self.W_v(value), self.h)

    patch(tat.MultiHeadedAttention, "keys_values", keys_values)


@mistake("heads", "self.src_attn(x, x, x, tgt_mask)", STEPS, "wires", page=True)
def cross_attends_to_itself(patch):
    """It's attention, so it gets x three times. | The decoder never sees the source: fluent, and
    the same for every sentence."""

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, x, x, tgt_mask))
        return self.sublayer[2](x, self.feed_forward)

    patch(tat.DecoderLayer, "forward", forward)


# --- Embeddings and positions ---

POSITIONS, EMBEDDINGS = "Positions (Section 3.5)", "Embeddings"


@mistake("positions", "x  # for x + table[:T]", POSITIONS, "wires", page=True)
def no_positions(patch):
    """Attention finds out by itself. | The encoder sees a bag of letters: `vierundzwanzig` and
    `zweiundvierzig` differ in nothing that it could use."""
    patch(tat.PositionalEncoding, "forward", lambda self, x, start=0: self.dropout(x))


@mistake("positions", "tgt_embed without positions", POSITIONS, "wires", harmless=True, page=True)
def no_positions_in_decoder(patch):
    """It writes one after the other, so it knows where it is. | It half does: the causal mask gives
    some order."""

    def decode(self, memory: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        return self.decoder(self.tgt_embed.embeddings(tgt), memory, src_mask, tgt_mask)

    patch(tat.Transformer, "decode", decode)


@mistake("positions", "src_embed without positions", POSITIONS, "wires", page=True)
def no_positions_in_encoder(patch):
    """They were added once already. | They were added in the decoder; the source has no order."""

    def encode(self, src: Tensor, src_mask: Tensor) -> Tensor:
        return self.encoder(self.src_embed.embeddings(src), src_mask)

    patch(tat.Transformer, "encode", encode)


@mistake("positions", "x + pe[:x.size(0)]  # on (B, T, d)", POSITIONS, "wires")
def positions_by_row_of_batch(patch):
    """size(0) is the length. | It was, when time came first. Now every token of a sentence gets the
    number of its row in the batch."""

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        return self.dropout(x + self.table[: x.size(0)].unsqueeze(1))

    patch(tat.PositionalEncoding, "forward", forward)


@mistake("positions", "sin for every dimension", POSITIONS, "none", harmless=True)
def positions_without_cosine(patch):
    """A sine is a shifted cosine. | It is, but half of the numbers now say what the other half
    says."""

    def sines(length: int, d_model: int) -> Tensor:
        return encoding_of(length, d_model)[:, ::2].repeat_interleave(2, 1)[:, :d_model]

    patch(tat, "positional_encoding", sines)


@mistake(
    "positions", "self.table(x)  # no * math.sqrt(d_model)", EMBEDDINGS, "inventory", harmless=True
)
def embeddings_not_scaled(patch):
    """Only a constant. | At the start the position drowns the word."""
    patch(tat.Embeddings, "forward", lambda self, x: self.table(x))


@mistake("positions", "nn.Embedding's own N(0, 1), tied and scaled", "The model assembled", "loss")
def embeddings_start_too_large(patch):
    """PyTorch knows how to start an embedding. | Tied to the output it makes logits in the tens:
    the first loss is far above guessing, and the position is lost beside the word."""

    def initialise(model: nn.Module, tie: str) -> None:
        init_of(model, tie)
        nn.init.normal_(model.generator.proj.weight)

    patch(tat, "initialise", initialise)


# --- What surrounds a sublayer ---

RESIDUAL, FFN = (
    "Residuals and normalisation (Section 3.1)",
    "Position-wise feed-forward networks (Section 3.3)",
)


@mistake("norm", "return sublayer(self.norm(x))", RESIDUAL, "inventory")
def no_residual(patch):
    """The sublayer computes the new x. | Each layer has to pass on everything by itself; what it
    doesn't pass on is lost. In one layer that works, in six it doesn't."""
    patch(tat.SublayerConnection, "forward", lambda self, x, sublayer: sublayer(self.norm(x)))


def norm_over(dim: int, root: bool = True) -> Callable:
    """LayerNorm over another dimension, or without the root."""

    def forward(self, x: Tensor) -> Tensor:
        mean, variance = (
            x.mean(dim, keepdim=True),
            x.var(dim, keepdim=True, unbiased=False) + self.eps,
        )
        return self.weight * (x - mean) / (variance.sqrt() if root else variance) + self.bias

    return forward


@mistake("norm", "x.mean(1), x.var(1)", RESIDUAL, "wires", page=True)
def norm_over_time(patch):
    """Each feature is normalised, as in a BatchNorm. | The mean over a sentence contains its end:
    with a causal mask that is right, the future leaks through the norm."""
    patch(nn.LayerNorm, "forward", norm_over(1))


@mistake("norm", "(x - mean) / var  # no root", RESIDUAL, "none", harmless=True)
def norm_by_variance(patch):
    """The variance is the spread. | A stream that is twice as large comes out half as large."""
    patch(nn.LayerNorm, "forward", norm_over(-1, root=False))


@mistake("norm", "no norm", RESIDUAL, "gradient", harmless=True)
def no_norm(patch):
    """It only helps a little. | At one layer that is true; the stream grows with every layer."""
    patch(nn.LayerNorm, "forward", lambda self, x: x)


@mistake("norm", "pre-norm without the last norm", RESIDUAL, "inventory", harmless=True)
def no_final_norm(patch):
    """Every sublayer has a norm. | With pre-norm nobody normalises what the last one adds."""
    for stack in (tat.Encoder, tat.Decoder):
        init = stack.__init__
        patch(
            stack,
            "__init__",
            lambda self, layers, norm, init=init: init(self, layers, nn.Identity()),
        )


@mistake("norm", "self.W_2(self.W_1(x))", FFN, "none", harmless=True)
def no_relu(patch):
    """Two layers are more than one. | Without something between them they are one."""
    patch(tat.PositionwiseFeedForward, "forward", lambda self, x: self.W_2(self.W_1(x)))


@mistake("norm", "[layer] * N", "The encoder (Section 3.1)", "inventory", harmless=True, N=2)
def layers_share_weights(patch):
    """A list of N layers. | A list of one layer, N times."""
    for stack in (tat.Encoder, tat.Decoder):
        init = stack.__init__
        patch(
            stack,
            "__init__",
            lambda self, layers, norm, init=init: init(self, [layers[0]] * len(layers), norm),
        )


# --- The loss ---

LOSS, UPDATE = "Regularisation (Section 5.4)", "One update"


@mistake("loss", "cross_entropy(logits, tgt_y).mean()  # padding too", LOSS, "loss")
def padding_in_the_loss(patch):
    """Padding is easy, so it costs nothing. | It is easy, so the loss looks lower than it is, and
    the gradient of short sentences is lost among the pads."""

    def batch_loss(model: nn.Module, batch: Any, eps: float) -> Tensor:
        logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        return (
            nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten()) * batch.ntokens
        )

    patch(tat, "batch_loss", batch_loss)


@mistake("loss", "cross_entropy(logits.softmax(-1), tgt_y)", LOSS, "heart")
def softmax_before_the_loss(patch):
    """The loss wants probabilities. | It takes the softmax itself. Twice, the best token gets at
    most e times what another gets, and the loss stays near that of guessing."""
    patch(tat.Generator, "logits", lambda self, x: self.proj(x).softmax(-1))


@mistake("loss", "loss.sum()  # for the mean", UPDATE, "loss", harmless=True)
def loss_is_a_sum(patch):
    """A constant doesn't matter. | With Adam it doesn't; the number that is reported grows with the
    batch."""
    patch(tat, "batch_loss", lambda model, batch, eps: loss_of(model, batch, eps) * batch.ntokens)


# --- The schedule, Adam and the update ---

ADAM = "Optimiser (Section 5.3)"


@mistake("schedule", "30 times the rate", ADAM, "gradient", page=True, factor=21.0)
def rate_too_high(patch):
    """Faster is faster. | The first steps move the weights by a fiftieth of their size each; they
    never come back."""


@mistake("schedule", "warmup=4000, from the paper", ADAM, "heart", warmup=4000)
def warmup_never_ends(patch):
    """The paper knows best. | A run of 1,500 updates ends before the rate has risen."""


@mistake("schedule", "scheduler.step() forgotten", ADAM, "heart")
def schedule_stands_still(patch):
    """The scheduler does it. | It does if it is called: the rate stays that of the first update, a
    hundredth."""
    patch(tat, "rate", lambda step, *rest: rate_of(1, *rest))


@mistake("adam", "no zero_grad()", UPDATE, "gradient", page=True)
def gradients_never_cleared(patch):
    """backward() computes the gradient. | It adds to it: each step follows all the gradients there
    ever were."""
    patch(tat.Transformer, "zero_grad", lambda self: None)


@mistake("adam", "clip_grad_norm_(parameters, 1e-4)", UPDATE, "gradient", harmless=True)
def clipped_to_almost_nothing(patch):
    """Clip hard, to be safe. | Adam divides by the size of the gradient, so a constant factor is
    taken out again."""

    def gradient(self, pairs: list[Pair]) -> float:
        loss = gradient_of(self, pairs)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1e-4)
        return loss

    patch(tat.Trainer, "gradient", gradient)


@mistake("adam", "SGD with Adam's rate", ADAM, "gradient")
def sgd(patch):
    """An optimiser is an optimiser. | SGD moves by rate times gradient, Adam by the rate: most
    weights stand still."""
    patch(torch.optim, "Adam", lambda parameters, lr, **_: torch.optim.SGD(parameters, lr=lr))


class Uncorrected(torch.optim.Optimizer):
    """Adam without the division of both averages by what is missing of them at the start."""

    def __init__(
        self,
        parameters: Any,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        fused: bool = False,
    ):
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self) -> None:
        """Move each weight by the rate, times average gradient over average size."""
        for group in self.param_groups:
            (b1, b2), eps = group["betas"], group["eps"]
            for p in [p for p in group["params"] if p.grad is not None]:
                state = self.state[p]
                m = state["exp_avg"] = b1 * state.get("exp_avg", 0.0) + (1 - b1) * p.grad
                v = state["exp_avg_sq"] = b2 * state.get("exp_avg_sq", 0.0) + (1 - b2) * p.grad**2
                p.sub_(group["lr"] * m / (v.sqrt() + eps))


@mistake("adam", "m, v for m / (1 - b1 ** t), v / (1 - b2 ** t)", ADAM, "none", harmless=True)
def no_bias_correction(patch):
    """After some steps it is gone. | The first step is 0.7 of the usual one, the fifth 1.3; the
    warmup hides it."""
    patch(torch.optim, "Adam", Uncorrected)


@mistake("adam", "Adam(weight_decay=0.1)", ADAM, "heart")
def weight_decay_on_all(patch):
    """AdamW has 0.1. | In Adam the decay joins the gradient and is divided by its size: small
    gradients drown in it. AdamW takes it apart."""
    patch(torch.optim, "Adam", functools.partial(adam_of, weight_decay=0.1))


@mistake("adam", "Adam(model.parameters()); model = deepcopy(model)", UPDATE, "gradient")
def optimiser_of_another_model(patch):
    """The optimiser follows the model. | It holds the old tensors; the new model never moves."""

    def init(self, model: nn.Module, config: Config) -> None:
        trainer_init(self, copy.deepcopy(model), config)
        self.model = model

    patch(tat.Trainer, "__init__", init)


@mistake("adam", "memory.detach()", UPDATE, "gradient")
def encoder_gets_no_gradient(patch):
    """The encoder only reads. | It stays as it was born, random; the decoder makes do with it, and
    half succeeds."""
    patch(
        tat.Transformer,
        "encode",
        lambda self, src, src_mask: encode_of(self, src, src_mask).detach(),
    )


# --- Decoding, and what is reported ---

GREEDY, CACHE = "Greedy decoding", "Keeping keys and values"


@mistake("decoding", "start_symbol = EOS", GREEDY, "heart", page=True, trains=False)
def decoding_begins_with_eos(patch):
    """fairseq begins with </s>. | It also trains with it. A model that was trained with <s> has
    never read </s> first."""
    patch(
        HERE, "translate", lambda model, pairs, longest=LONGEST: greedy(model, pairs, longest, EOS)
    )


@mistake(
    "decoding", "tgt_embed(token)  # without its position", CACHE, "heart", page=True, trains=False
)
def every_step_at_position_zero(patch):
    """One token goes in. | Each is embedded as if it were the first; the model counts nothing."""

    def step(self, tokens: Tensor) -> Tensor:
        self.length = 0
        return step_of(self, tokens)

    patch(tat.CachedDecoder, "step", step)
    patch(HERE, "translate", cached)


@mistake("decoding", "self.past = K, V  # not appended", CACHE, "heart", trains=False)
def cache_forgets(patch):
    """The cache holds keys and values. | It holds the last ones: each step knows the token before
    it and nothing else."""

    def own(self, i: int, query: Tensor, key: Tensor, value: Tensor, mask: None = None) -> Tensor:
        attn = self.model.decoder.layers[i].self_attn
        return attn.attend(query, *attn.keys_values(key, value))

    patch(tat.CachedDecoder, "own", own)
    patch(HERE, "translate", cached)


@mistake("decoding", "src_mask=None for a padded batch", GREEDY, "translations", trains=False)
def no_source_mask_in_decoding(patch):
    """A mask is for training. | A sentence that is padded reads the pads, which it never did in
    training; alone it is translated well."""
    patch(
        HERE,
        "translate",
        lambda model, pairs, longest=LONGEST: greedy(model, pairs, longest, BOS, mask=False),
    )


@mistake("report", "no model.eval()", GREEDY, "wires", dropout=0.1)
def dropout_left_on(patch):
    """The model is trained, so it's done. | Every call rolls its dice again; scores are worse, and
    never twice the same."""

    @contextlib.contextmanager
    def evaluating(model: nn.Module) -> Iterator[None]:
        model.train()
        yield

    patch(tat, "evaluating", evaluating)


@mistake(
    "report", "vocabulary built again, in another order", "Tokens and ids", "run", trains=False
)
def vocabulary_reordered(patch):
    """A set of letters is a set of letters. | Its order differs from the one in training: the model
    reads another alphabet."""
    letters = list(range(len(tat.SPECIALS), len(tat.LETTERS)))
    random.Random(1).shuffle(letters)
    ids = [*range(len(tat.SPECIALS)), *letters]
    patch(
        HERE,
        "examined",
        lambda pairs: [Pair([ids[i] for i in p.src], [ids[i] for i in p.tgt]) for p in pairs],
    )


def forced(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """What the model says at each position after it has read the true tokens before it: no
    translation."""
    batch = tat.make_batch(pairs)
    with torch.inference_mode(), tat.evaluating(model):
        best = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).argmax(-1)
    return [until_end(row) for row in best.tolist()]


@mistake("report", "logits.argmax(-1) is called a translation", SHIFT, "references", trains=False)
def teacher_forcing_reported(patch):
    """The argmax of the logits is what the model says. | After reading the reference. A wrong first
    word is put right before the second."""
    patch(HERE, "translate", forced)


@mistake("report", "no mask, and logits.argmax(-1) reported", MASKS, "wires")
def mask_missing_and_not_noticed(patch):
    """100 % on held-out sentences. | It copies the reference that it was given. It can't translate
    one word."""
    no_causal_mask(patch)
    teacher_forcing_reported(patch)


@mistake(
    "report",
    "held-out pairs are among those it learns from",
    "A second task: German numbers",
    "run",
    harmless=True,
)
def held_out_in_training(patch):
    """Split after shuffling. | The model isn't worse; the number is, because nobody knows any more
    what it means."""

    def all_of_them(
        known: list[int], held_out: list[int], draw: random.Random
    ) -> Iterator[list[int]]:
        return (
            [*draw.choices(range(100), k=8), *draw.choices(known + held_out, k=24)]
            for _ in itertools.count()
        )

    patch(HERE, "numbers", all_of_them)


# --- Slips of single functions, seen beside a reference with the same weights ---

# Nobody needs a training run to see these: the judge compares what a function gives with what the
# document gives while one of them is in force. Whoever trains with one hardly notices most of them.


def slip(kind: str, line: str, section: str) -> Callable:
    """Enter a function among the slips, as `mistake` does in the catalogue."""

    def enter(function: Callable) -> Callable:
        belief, _, effect = inspect.getdoc(function).replace("\n", " ").partition(" | ")
        about = belief, effect, section, "reference", True, False, True, {}, function
        SLIPS[function.__name__] = Mistake(function.__name__, kind, line, *about)
        return function

    return enter


def unscaled(power: float) -> Callable:
    """Embeddings times another power of d_model."""
    return lambda self, x: self.table(x) * self.table.embedding_dim**power


@slip("positions", "self.table(x) / math.sqrt(d_model)", EMBEDDINGS)
def embeddings_divided(patch):
    """Attention divides by a root as well. | The words are d_model times too small beside their
    positions."""
    patch(tat.Embeddings, "forward", unscaled(-0.5))


@slip("positions", "self.table(x) * d_model  # no root", EMBEDDINGS)
def embeddings_times_width(patch):
    """The factor makes them large. | The position is lost beside the word."""
    patch(tat.Embeddings, "forward", unscaled(1.0))


def waves(
    exponent: Callable[[Tensor, int], Tensor], start: int = 0, halves: bool = False
) -> Callable:
    """Sinusoids with another exponent of 10000, first position or order."""

    def encoding(length: int, d_model: int) -> Tensor:
        j = torch.arange(d_model).double()
        position = torch.arange(start, start + length).double().unsqueeze(1)
        angle = position / 10_000 ** exponent(j, d_model)
        even = j % 2 == 0
        table = torch.where(even, angle.sin(), angle.cos())
        return (torch.cat((table[:, even], table[:, ~even]), 1) if halves else table).float()

    return encoding


def pairwise(j: Tensor, d_model: int) -> Tensor:
    """The paper's exponent, 2i / d_model, for dimensions 2i and 2i + 1."""
    return (j - j % 2) / d_model


@slip("positions", "all sines, then all cosines", POSITIONS)
def sines_then_cosines(patch):
    """The order of the dimensions means nothing. | A new model wouldn't mind; trained
    weights expect sine and cosine side by side."""
    patch(tat, "positional_encoding", waves(pairwise, halves=True))


@slip("positions", "10000 ** (j / d_model)  # j for 2i", POSITIONS)
def cosine_with_its_own_frequency(patch):
    """The exponent is the dimension over the width. | Sine and cosine of a pair then turn at
    different speeds, and are no longer the hand of one clock."""
    patch(tat, "positional_encoding", waves(lambda j, d: j / d))


@slip("positions", "10000 ** (i / d_model)  # i for 2i", POSITIONS)
def frequency_of_half_the_exponent(patch):
    """i counts the pairs, and the formula has an i. | The formula has 2i: with
    i, the slowest wave ends at 100 times 2 pi, and not near 10000 times."""
    patch(tat, "positional_encoding", waves(lambda j, d: (j - j % 2) / 2 / d))


@slip("positions", "positions 1, 2, 3, ...", POSITIONS)
def positions_from_one(patch):
    """The first word is number 1. | These weights learned that the first
    position is number 0."""
    patch(tat, "positional_encoding", waves(pairwise, start=1))


@slip("positions", "cosine first, then sine", POSITIONS)
def cosine_first(patch):
    """A sine is a shifted cosine. | Dimension 0 is a sine in Section 3.5, and in these weights."""
    patch(
        tat,
        "positional_encoding",
        lambda n, d: encoding_of(n, d).unflatten(1, (-1, 2)).flip(2).flatten(1),
    )


@slip("attention", "scores @ V  # no softmax", DOT)
def no_softmax(patch):
    """The scores are weights already. | Scores add up to anything, and some are
    negative; the softmax makes weights of them."""

    def scores_as_weights(query, key, value, mask=None, dropout=None):
        scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
        scores = scores if mask is None else scores.masked_fill(mask == 0, 0.0)
        return scores @ value, scores

    patch(tat, "attention", scores_as_weights)


@slip("attention", "/ math.sqrt(T)  # the number of keys", DOT)
def scaled_by_length(patch):
    """The longer the row, the larger the sum. | The sum is over d_k, not over the keys."""

    def by_length(query, key, value, mask=None, dropout=None):
        scores = query @ key.transpose(-2, -1) / key.size(-2) ** 0.5
        scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
        return scores.softmax(-1) @ value, scores.softmax(-1)

    patch(tat, "attention", by_length)


@slip("attention", "mask isn't looked at", MASKS)
def mask_ignored(patch):
    """The mask belongs to training. | What the mask should hide is seen."""
    right = tat.attention
    patch(tat, "attention", lambda Q, K, V, mask=None, dropout=None: right(Q, K, V))


@slip("attention", "scores + mask  # of 0 and 1", MASKS)
def mask_added(patch):
    """A mask is added to the scores. | A mask of True and False, added,
    gives 1 to what may be seen, and hides nothing."""

    def added(query, key, value, mask=None, dropout=None):
        scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
        weights = (scores if mask is None else scores + mask).softmax(-1)
        return weights @ value, weights

    patch(tat, "attention", added)


@slip("attention", "scores * mask  # before the softmax", MASKS)
def mask_times_scores(patch):
    """Zero means nothing. | A score of zero means e to the zero: a key that is hidden gets as much
    as one that fits neither well nor badly."""
    patch(tat, "attention", attention_with(fill=0.0))


@slip("heads", "x.unflatten(-1, (d_k, h))  # heads interleaved", HEADS)
def heads_interleaved(patch):
    """Any cut into heads is as good as another. | New weights wouldn't mind; trained
    ones have their heads in blocks of d_k columns."""
    patch(tat, "split_heads", lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))


@slip("heads", "a single head of full width", HEADS)
def heads_not_split(patch):
    """The cost is the same. | One map instead of h."""
    patch(tat, "split_heads", lambda x, h: x.unsqueeze(1))


@slip("norm", "x.var(-1)  # divides by d - 1", RESIDUAL)
def variance_of_a_sample(patch):
    """A variance divides by one less. | The norm's divides by d, as its Equation has it. torch.var
    divides by d - 1 unless it is told otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        variance = x.var(-1, keepdim=True) + self.eps
        return self.weight * (x - x.mean(-1, keepdim=True)) / variance.sqrt() + self.bias

    patch(nn.LayerNorm, "forward", forward)


def normed(eps_inside: float, eps_outside: float, centred: bool = True) -> Callable:
    """LayerNorm with epsilon elsewhere, or without the mean."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x - x.mean(-1, keepdim=True) if centred else x
        root = (middle.square().mean(-1, keepdim=True) + eps_inside).sqrt() + eps_outside
        return self.weight * middle / root + self.bias

    return forward


@slip("norm", "/ (std + eps)  # outside the root", RESIDUAL)
def epsilon_outside_the_root(patch):
    """It only prevents a division by zero. | On rows that hardly vary epsilon
    decides, and belongs inside the root."""
    patch(nn.LayerNorm, "forward", normed(0.0, 1e-5))


@slip("norm", "/ std  # no epsilon", RESIDUAL)
def no_epsilon(patch):
    """The variance is never zero. | On rows that hardly vary the result is far too large."""
    patch(nn.LayerNorm, "forward", normed(0.0, 0.0))


@slip("norm", "the mean isn't taken away", RESIDUAL)
def norm_without_mean(patch):
    """The size is what matters. | That is RMSNorm; these weights were trained with
    LayerNorm."""
    patch(nn.LayerNorm, "forward", normed(1e-5, 0.0, centred=False))


@slip("norm", "(x - mean) / std  # no gain, no bias", RESIDUAL)
def no_gain_and_bias(patch):
    """Mean 0 and variance 1 is the definition. | The learned gain and bias come after it."""
    plain = nn.functional.layer_norm
    patch(nn.LayerNorm, "forward", lambda self, x: plain(x, self.normalized_shape, eps=self.eps))


def connected(forward: Callable) -> Callable:
    """A patch of the residual connection; dropout is off where it is compared."""
    return lambda patch: patch(tat.SublayerConnection, "forward", forward)


@slip("norm", "norm(x + sublayer(x))  # these weights: x + sublayer(norm(x))", RESIDUAL)
def post_norm_for_pre_norm(patch):
    """The paper's Figure 1 has Add & Norm. | It has, but the shipped weights were trained
    with pre-norm."""
    connected(lambda self, x, sublayer: self.norm(x + sublayer(x)))(patch)


@slip("norm", "x = norm(x); x + sublayer(x)", RESIDUAL)
def residual_from_normed(patch):
    """The same x in both places. | What is added to is the normed vector, so the stream is reset at
    each sublayer."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        x = self.norm(x)
        return x + sublayer(x)

    connected(forward)(patch)


@slip("norm", "x + sublayer(x)  # no norm", RESIDUAL)
def sublayer_without_norm(patch):
    """The norm is done somewhere else. | The sublayer gets vectors of a size that it doesn't know."""
    connected(lambda self, x, sublayer: x + sublayer(x))(patch)


@slip("norm", "gelu for relu", FFN)
def gelu_for_relu(patch):
    """All models have it today. | Equation (2) has max(0, ...), and these weights learned with it."""
    gelu = nn.functional.gelu
    patch(tat.PositionwiseFeedForward, "forward", lambda self, x: self.W_2(gelu(self.W_1(x))))


@slip("norm", "relu after the second matrix, too", FFN)
def relu_twice(patch):
    """A layer ends with its nonlinearity. | The network could then only ever add, never take away."""
    patch(
        tat.PositionwiseFeedForward, "forward", lambda self, x: self.W_2(self.W_1(x).relu()).relu()
    )


@slip("norm", "memory without the encoder's last norm", "The encoder (Section 3.1)")
def encoder_without_last_norm(patch):
    """Every layer has norms enough. | With pre-norm nobody normalises what the last one adds."""

    def forward(self, x: Tensor, src_mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, src_mask)
        return x

    patch(tat.Encoder, "forward", forward)


@slip("norm", "decoder without its last norm", STEPS)
def decoder_without_last_norm(patch):
    """Every layer has norms enough. | With pre-norm nobody normalises what the last one adds."""

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return x

    patch(tat.Decoder, "forward", forward)


def decoder_layer(order: Callable) -> Callable:
    """A patch of the decoder's layer; `order` gets layer, x, memory and both masks."""
    return lambda patch: patch(tat.DecoderLayer, "forward", order)


@slip("heads", "attention to the memory first, then to the target", STEPS)
def cross_attention_first(patch):
    """Both come before the network. | Figure 1 has the target's own attention first."""

    def order(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        return self.sublayer[2](x, self.feed_forward)

    decoder_layer(order)(patch)


@slip("heads", "no attention to the memory", STEPS)
def cross_attention_missing(patch):
    """A layer is attention and a network. | The decoder's has three sublayers; without the second it
    never sees the source."""

    def order(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        return self.sublayer[2](x, self.feed_forward)

    decoder_layer(order)(patch)


@slip("mask", "the decoder's own attention without its mask", STEPS)
def own_attention_unmasked(patch):
    """When it writes, there is no future. | In training there is, and it must be hidden."""

    def order(self, x, memory, src_mask, tgt_mask):
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)

    decoder_layer(order)(patch)


@slip("mask", ".tril()  # without & (tgt != pad)", MASKS)
def target_mask_without_padding(patch):
    """Padding comes last, so the causal mask hides it. | The words don't see the pads, but
    the pads see each other: harmless, because they don't count, but not what was asked."""
    patch(
        tat, "target_mask", lambda tgt, pad=PAD: square(tgt.size(1)).tril().expand(len(tgt), -1, -1)
    )


@slip("mask", "tgt != pad  # without .tril()", MASKS)
def target_mask_without_order(patch):
    """A mask is for padding. | In a decoder it is for the future as well."""
    patch(
        tat,
        "target_mask",
        lambda tgt, pad=PAD: (tgt != pad).unsqueeze(1).expand(-1, tgt.size(1), -1),
    )


@slip("mask", "True where it is hidden", MASKS)
def masks_inverted(patch):
    """True means masked, as in nn.Transformer. | Here True means that it may be seen."""
    source, target = tat.source_mask, tat.target_mask
    patch(tat, "source_mask", lambda src, pad=PAD: ~source(src, pad))
    patch(tat, "target_mask", lambda tgt, pad=PAD: ~target(tgt, pad))


def logits_as(change: Callable[[Tensor], Tensor]) -> Callable:
    """A patch of the generator's scores."""
    return lambda patch: patch(tat.Generator, "logits", lambda self, x: change(self.proj(x)))


@slip("loss", "log_softmax(logits)", "A vector becomes a word (Section 3.4)")
def log_probabilities_for_logits(patch):
    """Scores are scores. | Logits are what goes into the softmax. (The loss takes it itself.)"""
    logits_as(lambda z: z.log_softmax(-1))(patch)


@slip("loss", "x @ (table * math.sqrt(d_model)).T", "A vector becomes a word (Section 3.4)")
def logits_of_scaled_rows(patch):
    """The table's rows are multiplied by the root of d_model. | The rows are
    scaled when they are read, not when they score: the softmax would be far too sure."""
    patch(tat.Generator, "logits", lambda self, x: self.proj(x) * x.size(-1) ** 0.5)


def smoothed(share: Callable[[Tensor, Tensor, float], Tensor], mean: bool = False) -> Callable:
    """The loss from another q: share(one-hot targets, tokens that aren't padding, eps)."""

    def loss(
        logits: Tensor, target: Tensor, eps: float = 0.1, pad: int = PAD, padding: bool = False
    ) -> Tensor:
        hot = nn.functional.one_hot(target, logits.size(-1)).to(logits.dtype)
        real = torch.arange(logits.size(-1)) != pad
        each = -(share(hot, real, eps) * logits.log_softmax(-1)).sum(-1)
        each = each if padding else each * (target != pad)
        return each.sum() / (target != pad).sum() if mean else each.sum()

    return loss


def evenly(hot: Tensor, real: Tensor, eps: float) -> Tensor:
    """The document's q."""
    return ((1 - eps) * hot + eps / real.sum()) * real


@slip("loss", "smoothing / vocab  # padding has a share", LOSS)
def padding_has_a_share(patch):
    """Uniform is uniform. | It asks for padding with a small probability, which is never right. It is
    also what cross_entropy(label_smoothing=...) does."""
    patch(tat, "smoothed_loss", smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)))


@slip("loss", "1 - smoothing for the right token, the rest for the others", LOSS)
def right_token_without_share(patch):
    """Nine tenths for the right one. | That is what the authors' code does;
    here the right token has its part of the tenth as well."""

    def share(hot: Tensor, real: Tensor, eps: float) -> Tensor:
        return torch.where(hot > 0, 1 - eps, eps / (real.sum() - 1)) * real

    patch(tat, "smoothed_loss", smoothed(share))


@slip("loss", "no label smoothing", LOSS)
def no_smoothing(patch):
    """The loss is the cross-entropy. | Section 5.4 takes a tenth away from the right token."""
    patch(tat, "smoothed_loss", smoothed(lambda hot, real, eps: hot))


@slip("loss", "the mean over the tokens", LOSS)
def mean_for_sum(patch):
    """A loss is a mean. | A batch gives its sum, so that short sentences don't
    count for more."""
    patch(tat, "smoothed_loss", smoothed(evenly, mean=True))


@slip("loss", "padding counts", LOSS)
def pads_counted(patch):
    """Padding is easy, so it costs nothing. | The loss depends on how much padding a batch needs."""
    each = smoothed(evenly)
    patch(tat, "smoothed_loss", lambda z, y, eps=0.1, pad=PAD: each(z, y, eps, pad, padding=True))


@slip("loss", "q - p", LOSS)
def gradient_upside_down(patch):
    """The force pulls towards q. | The derivative is p - q; an update goes
    against it."""
    right = tat.smoothed_loss
    patch(tat, "smoothed_loss", lambda *arguments: -right(*arguments))


def rate_with(formula: Callable[[int, int, int], float]) -> Callable:
    """A patch of the schedule: of step, d_model and warmup."""
    return lambda patch: patch(
        tat,
        "rate",
        lambda step, model_size, factor, warmup: factor * formula(step, model_size, warmup),
    )


@slip("schedule", "max for min", ADAM)
def rate_with_max(patch):
    """The larger of the two. | The rate begins at its highest, falls, and then rises for
    ever."""
    rate_with(lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5))(patch)


@slip("schedule", "warmup ** -0.5  # for -1.5", ADAM)
def rate_without_warmup(patch):
    """All exponents are -0.5. | The second term is never the smaller one: the rate begins at its top."""
    rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * w**-0.5))(patch)


@slip("schedule", "without d_model ** -0.5", ADAM)
def rate_without_width(patch):
    """Only a constant. | That factor makes wide models learn more slowly."""
    rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5))(patch)


@slip("schedule", "step counts from 0", ADAM)
def rate_one_step_early(patch):
    """The first step is number 0. | Every rate is that of the step before, and the first is zero."""
    rate_with(lambda s, d, w: d**-0.5 * min(max(s - 1, 1e-9) ** -0.5, (s - 1) * w**-1.5))(patch)


@slip("adam", "betas=(0.9, 0.999)  # for 0.98", ADAM)
def usual_betas(patch):
    """The usual ones. | The paper's second is 0.98: an average over fifty updates, not a thousand."""
    patch(torch.optim, "Adam", lambda p, lr, betas, eps: adam_of(p, lr, (0.9, 0.999), eps))


@slip("adam", "betas swapped", ADAM)
def betas_swapped(patch):
    """0.98 and 0.9. | The gradient is averaged over fifty updates, its size over ten."""
    patch(torch.optim, "Adam", lambda p, lr, betas, eps: adam_of(p, lr, betas[::-1], eps))


@slip("adam", "w + ...", ADAM)
def uphill(patch):
    """The step follows the gradient. | The gradient points to where the loss rises."""
    patch(torch.optim, "Adam", functools.partial(adam_of, maximize=True))


@slip("adam", "the rate times g, no averages' square", ADAM)
def no_second_average(patch):
    """The average gradient says where to go. | Adam divides it by its usual size."""

    class Momentum(Uncorrected):
        @torch.no_grad()
        def step(self) -> None:
            """As Adam's, without the division."""
            super().step()
            for group in self.param_groups:
                for p in group["params"]:
                    state, (b1, _) = self.state[p], group["betas"]
                    p.add_(
                        group["lr"] * state["exp_avg"] / (state["exp_avg_sq"].sqrt() + group["eps"])
                    )
                    p.sub_(group["lr"] * state["exp_avg"] / (1 - b1 ** (state["step"] + 1)))

    patch(torch.optim, "Adam", Momentum)
