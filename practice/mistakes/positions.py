"""Embeddings and positions (Sections 3.4 and 3.5)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from practice.mistakes.catalogue import CATALOGUE, mistake, right_encoding, right_initialise, slip

POSITIONS, EMBEDDINGS = "Positions (Section 3.5)", "Embeddings"

mistake(
    "no_positions",
    label="no positions",
    kind="positions",
    line="x  # for x + table[:T]",
    section=POSITIONS,
    seen_by="wires",
    belief="Attention finds out by itself.",
    effect=(
        "The encoder sees a bag of letters: `fünfundvierzig` and `vierundfünfzig` have the same "
        "ones, and only their order says which is which."
    ),
    PositionalEncoding__forward=lambda self, x, start=0: self.dropout(x),
)


def no_positions_in_decoder(self, memory, src_mask, tgt, tgt_mask):
    return self.decoder(self.tgt_embed.embeddings(tgt), memory, src_mask, tgt_mask)


mistake(
    "no_positions_in_decoder",
    label="no positions in the decoder",
    kind="positions",
    line="tgt_embed without positions",
    section=POSITIONS,
    seen_by="wires",
    belief="It writes one after the other, so it knows where it is.",
    effect="It half does: the causal mask gives some order.",
    harmless=True,
    Transformer__decode=no_positions_in_decoder,
)


def no_positions_in_encoder(self, src, src_mask):
    return self.encoder(self.src_embed.embeddings(src), src_mask)


mistake(
    "no_positions_in_encoder",
    label="no positions in the encoder",
    kind="positions",
    line="src_embed without positions",
    section=POSITIONS,
    seen_by="wires",
    belief="They were added once already.",
    effect="They were added in the decoder; the source has no order.",
    Transformer__encode=no_positions_in_encoder,
)


def positions_by_row_of_batch(self, x, start=0):
    return self.dropout(x + self.table[: x.size(0)].unsqueeze(1))


mistake(
    "positions_by_row_of_batch",
    kind="positions",
    line="x + pe[:x.size(0)]  # on (B, T, d)",
    section=POSITIONS,
    seen_by="wires",
    belief="size(0) is the length.",
    effect=(
        "It was, when time came first. Now every token of a sentence gets the number of its row in "
        "the batch."
    ),
    PositionalEncoding__forward=positions_by_row_of_batch,
)


def positions_without_cosine(length, d_model):
    return right_encoding(length, d_model)[:, ::2].repeat_interleave(2, 1)[:, :d_model]


mistake(
    "positions_without_cosine",
    kind="positions",
    line="sin for every dimension",
    section=POSITIONS,
    seen_by="none",
    belief="A sine is a shifted cosine.",
    effect="It is, but half of the numbers now say what the other half says.",
    harmless=True,
    positional_encoding=positions_without_cosine,
)
mistake(
    "embeddings_not_scaled",
    kind="positions",
    line="self.table(x)  # no * math.sqrt(d_model)",
    section=EMBEDDINGS,
    seen_by="inventory",
    belief="Only a constant.",
    effect="At the start the position drowns the word.",
    harmless=True,
    Embeddings__forward=lambda self, x: self.table(x),
)


def embeddings_start_too_large(model, tie):
    right_initialise(model, tie)
    nn.init.normal_(model.generator.proj.weight)


mistake(
    "embeddings_start_too_large",
    kind="positions",
    line="nn.Embedding's own N(0, 1), tied and scaled",
    section="The model assembled",
    seen_by="loss",
    belief="PyTorch knows how to start an embedding.",
    effect=(
        "Tied to the output it makes logits in the tens: the first loss is far above guessing, and "
        "the position is lost beside the word."
    ),
    initialise=embeddings_start_too_large,
)


def unscaled(power: float) -> Callable:
    """Embeddings times another power of d_model."""
    return lambda self, x: self.table(x) * self.table.embedding_dim**power


slip(
    "embeddings_divided",
    line="self.table(x) / math.sqrt(d_model)",
    effect="The words are d_model times too small beside their positions.",
    Embeddings__forward=unscaled(-0.5),
)
slip(
    "embeddings_times_width",
    line="self.table(x) * d_model  # no root",
    effect="The position is lost beside the word.",
    Embeddings__forward=unscaled(1.0),
)


def waves(exponent: Callable, start: int = 0, halves: bool = False, base: int = 10_000) -> Callable:
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


slip(
    "sines_then_cosines",
    line="all sines, then all cosines",
    effect="A new model wouldn't mind; trained weights expect sine and cosine side by side.",
    positional_encoding=waves(pairwise, halves=True),
)
slip(
    "cosine_with_its_own_frequency",
    line="10000 ** (j / d_model)  # j for 2i",
    effect=(
        "Sine and cosine of a pair then turn at different speeds, and are no longer the hand of "
        "one clock."
    ),
    positional_encoding=waves(lambda j, d: j / d),
)
slip(
    "frequency_of_half_the_exponent",
    line="10000 ** (i / d_model)  # i for 2i",
    effect=(
        "The formula has 2i: with i, the slowest wave ends at 100 times 2 pi, and not near 10000 "
        "times."
    ),
    positional_encoding=waves(lambda j, d: (j - j % 2) / 2 / d),
)
slip(
    "frequency_of_twice_the_exponent",
    line="10000 ** (4 * i / d_model)  # for 2 * i",
    effect="If your i counts 0, 2, 4, ..., it is the formula's 2i already.",
    positional_encoding=waves(lambda j, d: 2 * pairwise(j, d)),
)
slip(
    "base_of_1000",
    line="1000 for 10000",
    effect="The slowest wave is then about a tenth as long.",
    positional_encoding=waves(pairwise, base=1000),
)
slip(
    "positions_not_added",
    line="the positions aren't added",
    effect="Attention doesn't look at the order, so without them a sentence is a bag of tokens.",
    **CATALOGUE["no_positions"].puts,
)
slip(
    "positions_from_one",
    line="positions 1, 2, 3, ...",
    effect="These weights learned that the first position is number 0.",
    positional_encoding=waves(pairwise, start=1),
)
slip(
    "first_position_everywhere",
    line="positions(1, d_model) for every token",
    effect="All tokens then stand at the same place, and nothing says in which order they come.",
    **CATALOGUE["positions_by_row_of_batch"].puts,
)


def positions_scaled(self, x, start=0):
    return x + self.table[start : start + x.size(1)] * x.size(-1) ** 0.5


slip(
    "positions_scaled",
    line="(table[ids] + positions) * math.sqrt(d_model)",
    effect="Only the embeddings are multiplied; then the positions are added as they are.",
    PositionalEncoding__forward=positions_scaled,
)
slip(
    "cosine_first",
    line="cosine first, then sine",
    effect="Dimension 0 is a sine in Section 3.5, and in these weights.",
    positional_encoding=lambda n, d: right_encoding(n, d).unflatten(1, (-1, 2)).flip(2).flatten(1),
)
slip(
    "frequency_of_twice_the_dimension",
    line="10000 ** (2 * j / d_model)  # j for i",
    effect="In the formula i counts the pairs: dimensions 2i and 2i + 1 share one speed.",
    positional_encoding=waves(lambda j, d: 2 * j / d),
)
slip(
    "positions_multiplied",
    line="pos * 10000 ** (2 * i / d_model)  # for /",
    effect="The first pair of dimensions turns fastest, and each one after it more slowly.",
    positional_encoding=waves(lambda j, d: -pairwise(j, d)),
)
slip(
    "sines_alone",
    line="a sine in every dimension",
    effect="Only sine and cosine together say where the hand of a clock stands.",
    positional_encoding=lambda n, d: right_encoding(n, d)[:, ::2].repeat_interleave(2, 1),
)
