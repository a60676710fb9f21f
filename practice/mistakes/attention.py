"""Attention and its heads (Section 3.2)."""

from collections.abc import Callable

import torch
from torch import Tensor

import the_annotated_transformer as tat
from practice.mistakes.catalogue import CATALOGUE, mistake, right_attention, slip
from practice.mistakes.masks import attention_with

# Equation (1). A mistake that a mask can't hide from needs a fill of its own: with a softmax over
# queries or heads, a row of minus infinity alone would give NaN, and be seen at once.
mistake("not_scaled", attention=attention_with(scale=lambda d_k: 1.0))
mistake("scaled_by_d_k", attention=attention_with(scale=lambda d_k: 1 / d_k))
mistake("multiplied_by_root", attention=attention_with(scale=lambda d_k: d_k**0.5))
mistake("softmax_over_queries", attention=attention_with(dim=-2, fill=-1e9))
mistake("softmax_over_heads", attention=attention_with(dim=1, fill=-1e9))
# Heads are cut and joined by a view and a transpose; the shape is right without the transpose, too.
mistake("heads_split_by_view", split_heads=lambda x, h: x.reshape(x.size(0), h, x.size(1), -1))
mistake("heads_joined_by_view", join_heads=lambda x: x.reshape(x.size(0), x.size(2), -1))


def keys_by_W_q(self, key, value):
    return tat.split_heads(self.W_q(key), self.h), tat.split_heads(self.W_v(value), self.h)


mistake("keys_by_W_q", MultiHeadedAttention__keys_values=keys_by_W_q)


# the decoder layer's three sublayers, as `decoder_layer` puts them together
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


mistake(
    "cross_attends_to_itself",
    DecoderLayer__forward=decoder_layer(
        (0, own),
        (1, lambda layer, z, _, src, tgt_mask: layer.src_attn(z, z, z, tgt_mask)),
        (2, network),
    ),
)


# what only a comparison with right numbers shows
def scaled_by_length(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / key.size(-2) ** 0.5
    scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
    return scores.softmax(-1) @ value, scores.softmax(-1)


slip("scaled_by_length", attention=scaled_by_length)
# a hidden key has score 0, not minus infinity, or the sum would be infinite
slip("no_softmax", attention=attention_with(fill=0.0, softmax=False))


def not_divided(subtract: bool) -> Callable:
    """An attention whose weights are powers that nobody divided by their sum."""

    def attention(query, key, value, mask=None, dropout=None):
        scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
        scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
        powers = (scores - scores.amax(-1, keepdim=True) if subtract else scores).exp()
        return powers @ value, powers

    return attention


slip("powers_not_divided", attention=not_divided(subtract=False))
slip("powers_of_differences_not_divided", attention=not_divided(subtract=True))
slip(
    "scaled_by_the_model's_width",
    MultiHeadedAttention__weigh=lambda self, Q, K, V, mask: right_attention(
        Q / self.h**0.5, K, V, mask
    )[0],
)
slip("softmax_over_all_heads", **CATALOGUE["softmax_over_heads"].puts)
slip("mask_ignored", attention=lambda Q, K, V, mask=None, dropout=None: right_attention(Q, K, V))


def mask_added(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return weights @ value, weights


slip("mask_added", attention=mask_added)
slip("mask_times_scores", attention=attention_with(fill=0.0))
slip("true_means_hidden", attention=attention_with(flipped=True))
slip(
    "heads_cut_and_joined_by_view",
    **CATALOGUE["heads_split_by_view"].puts,
    **CATALOGUE["heads_joined_by_view"].puts,
)


def without_W_o(self, query, K, V, mask=None):
    Q = tat.split_heads(self.W_q(query), self.h)
    return tat.join_heads(self.weigh(Q, K, V, tat.for_all_heads(mask)))


slip("no_output_matrix", MultiHeadedAttention__attend=without_W_o)
# Fresh weights learn with any way to cut heads that is undone by the same way to join them; only
# weights that were trained have a layout.
slip("heads_interleaved", split_heads=lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2))
slip("heads_not_split", split_heads=lambda x, h: x.unsqueeze(1))


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


# which side each is made of: x asks, y is asked
slip("keys_and_values_from_x", **heads_of("xxx"))
slip("keys_from_x", **heads_of("xxy"))
slip("values_from_x", **heads_of("xyx"))
slip("queries_from_y", **heads_of("yyy"))
slip("x_and_y_exchanged", **heads_of("yxx"))

# by which matrix: queries, keys, values, and the output's
slip("values_by_W_k", **heads_of(matrices="qkko"))
slip("keys_by_W_v", **heads_of(matrices="qvvo"))
slip("queries_by_W_k", **heads_of(matrices="kkvo"))
slip("values_by_W_q", **heads_of(matrices="qkqo"))
slip("queries_and_keys_exchanged", **heads_of(matrices="kqvo"))
slip("keys_and_values_exchanged", **heads_of(matrices="qvko"))

# A matrix that is square fits both ways round, so no shape tells; nn.Linear keeps the transpose of
# what the paper writes.
slip("matrices_transposed", **heads_of(transposed="qkvo"))
slip("q_k_v_transposed", **heads_of(transposed="qkv"))
slip("output_matrix_transposed", **heads_of(transposed="o"))
