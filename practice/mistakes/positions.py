"""Embeddings and positions (Sections 3.4 and 3.5)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from practice.mistakes.catalogue import CATALOGUE, mistake, right_encoding, right_initialise, slip

# Where positions are left out, or are those of something else. Attention alone sees a set.
mistake("no_positions", PositionalEncoding__forward=lambda self, x, start=0: self.dropout(x))


def no_positions_in_decoder(self, memory, src_mask, tgt, tgt_mask):
    return self.decoder(self.tgt_embed.embeddings(tgt), memory, src_mask, tgt_mask)


mistake("no_positions_in_decoder", Transformer__decode=no_positions_in_decoder)


def no_positions_in_encoder(self, src, src_mask):
    return self.encoder(self.src_embed.embeddings(src), src_mask)


mistake("no_positions_in_encoder", Transformer__encode=no_positions_in_encoder)


def positions_by_row_of_batch(self, x, start=0):
    # size(0) was the length when time came first
    return self.dropout(x + self.table[: x.size(0)].unsqueeze(1))


mistake("positions_by_row_of_batch", PositionalEncoding__forward=positions_by_row_of_batch)


# half of the table twice: two neighbouring dimensions say the same
def positions_without_cosine(length, d_model):
    return right_encoding(length, d_model)[:, ::2].repeat_interleave(2, 1)[:, :d_model]


mistake("positions_without_cosine", positional_encoding=positions_without_cosine)
mistake("embeddings_not_scaled", Embeddings__forward=lambda self, x: self.table(x))


def embeddings_start_too_large(model, tie):
    right_initialise(model, tie)
    nn.init.normal_(model.generator.proj.weight)


mistake("embeddings_start_too_large", initialise=embeddings_start_too_large)


def unscaled(power: float) -> Callable:
    """Embeddings times another power of d_model."""
    return lambda self, x: self.table(x) * self.table.embedding_dim**power


# Tied to the output matrix, embeddings start small; the root of d_model brings them to the size of
# positions, whose entries are between -1 and 1.
slip("embeddings_divided", Embeddings__forward=unscaled(-0.5))
slip("embeddings_times_width", Embeddings__forward=unscaled(1.0))


def waves(exponent: Callable, start: int = 0, halves: bool = False, base: int = 10_000) -> Callable:
    """Sinusoids with another exponent of 10000, first position, order or base."""

    def encoding(length: int, d_model: int) -> Tensor:
        # in double precision: for far positions, the angle is large beside its fraction of a turn
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


# the exponent and what is made of it
slip("sines_then_cosines", positional_encoding=waves(pairwise, halves=True))
slip("cosine_with_its_own_frequency", positional_encoding=waves(lambda j, d: j / d))
slip("frequency_of_half_the_exponent", positional_encoding=waves(lambda j, d: (j - j % 2) / 2 / d))
slip("frequency_of_twice_the_exponent", positional_encoding=waves(lambda j, d: 2 * pairwise(j, d)))
slip("base_of_1000", positional_encoding=waves(pairwise, base=1000))
slip("positions_not_added", **CATALOGUE["no_positions"].puts)
slip("positions_from_one", positional_encoding=waves(pairwise, start=1))
slip("first_position_everywhere", **CATALOGUE["positions_by_row_of_batch"].puts)


def positions_scaled(self, x, start=0):
    return x + self.table[start : start + x.size(1)] * x.size(-1) ** 0.5


slip("positions_scaled", PositionalEncoding__forward=positions_scaled)
slip(
    "cosine_first",
    positional_encoding=lambda n, d: right_encoding(n, d).unflatten(1, (-1, 2)).flip(2).flatten(1),
)
slip("frequency_of_twice_the_dimension", positional_encoding=waves(lambda j, d: 2 * j / d))
slip("positions_multiplied", positional_encoding=waves(lambda j, d: -pairwise(j, d)))
slip(
    "sines_alone",
    positional_encoding=lambda n, d: right_encoding(n, d)[:, ::2].repeat_interleave(2, 1),
)
