"""Attention and its heads (Section 3.2)."""

from collections.abc import Callable

import torch
from torch import Tensor

import the_annotated_transformer as tat
from practice.mistakes.catalogue import CATALOGUE, mistake, right_attention, slip
from practice.mistakes.masks import attention_with

DOT, HEADS = "Scaled dot-product attention (Section 3.2.1)", "Multi-head attention (Section 3.2.2)"

STEPS = "The decoder writes (Sections 3.1 and 3.2.3)"

mistake(
    "not_scaled",
    kind="attention",
    line="query @ key.mT  # not divided",
    section=DOT,
    seen_by="inventory",
    belief="The softmax normalises anyway.",
    effect=(
        "Scores are larger by the root of d_k, so the softmax starts sharper and passes on less "
        "gradient. The wider the heads, the worse."
    ),
    harmless=True,
    attention=attention_with(scale=lambda d_k: 1.0),
)
mistake(
    "scaled_by_d_k",
    kind="attention",
    line="/ d_k  # for / math.sqrt(d_k)",
    section=DOT,
    seen_by="inventory",
    belief="The mean over the dimensions.",
    effect="Attention begins nearly even and must learn to choose.",
    harmless=True,
    attention=attention_with(scale=lambda d_k: 1 / d_k),
)
mistake(
    "multiplied_by_root",
    label="scores times √d_k, not divided by it",
    kind="attention",
    line="* math.sqrt(d_k)  # for /",
    section=DOT,
    seen_by="inventory",
    belief="The formula has a root of d_k.",
    effect=(
        "Every head looks at one token from the start, chosen at random, and gets almost no "
        "gradient to choose another."
    ),
    attention=attention_with(scale=lambda d_k: d_k**0.5),
)
mistake(
    "softmax_over_queries",
    label="softmax over the queries",
    kind="attention",
    line="scores.softmax(dim=-2)",
    section=DOT,
    seen_by="wires",
    belief="Some dimension has to add up to 1.",
    effect=(
        "Each key shares itself out among the queries, those to come included: with a causal mask "
        "that is right, the future leaks."
    ),
    attention=attention_with(dim=-2, fill=-1e9),
)
mistake(
    "softmax_over_heads",
    kind="attention",
    line="scores.softmax(dim=1)",
    section=DOT,
    seen_by="wires",
    belief="dim=1, as for (B, S).",
    effect=(
        "With heads, dimension 1 is the heads: a position masked in all heads gets the same weight "
        "in each, so nothing is hidden."
    ),
    attention=attention_with(dim=1, fill=-1e9),
)
mistake(
    "heads_split_by_view",
    label="heads split without a transpose",
    kind="heads",
    line="x.view(B, h, T, d_k)  # no transpose",
    section=HEADS,
    seen_by="wires",
    belief="The shape is right.",
    effect=(
        "A head gets some of the positions, whole, instead of a part of each: its fourth row may "
        "be the sixth word, so the causal mask, which counts rows, hides the wrong ones."
    ),
    split_heads=lambda x, h: x.reshape(x.size(0), h, x.size(1), -1),
)
mistake(
    "heads_joined_by_view",
    kind="heads",
    line="x.view(B, T, h * d_v)  # no transpose",
    section=HEADS,
    seen_by="wires",
    belief="The shape is right.",
    effect=(
        "The heads' rows are dealt out to the wrong positions; what the last ones computed is "
        "given to the first."
    ),
    join_heads=lambda x: x.reshape(x.size(0), x.size(2), -1),
)


def keys_by_W_q(self, key, value):
    return tat.split_heads(self.W_q(key), self.h), tat.split_heads(self.W_v(value), self.h)


mistake(
    "keys_by_W_q",
    kind="heads",
    line="K = self.W_q(key)",
    section=HEADS,
    seen_by="gradient",
    belief="One letter.",
    effect="Queries and keys share a matrix, and W_k never learns.",
    harmless=True,
    MultiHeadedAttention__keys_values=keys_by_W_q,
)


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
    label="cross-attention that reads the target",
    kind="heads",
    line="self.src_attn(x, x, x, tgt_mask)",
    section=STEPS,
    seen_by="wires",
    belief="It's attention, so it gets x three times.",
    effect="The decoder never sees the source: fluent, and the same for every sentence.",
    DecoderLayer__forward=decoder_layer(
        (0, own),
        (1, lambda layer, z, _, src, tgt_mask: layer.src_attn(z, z, z, tgt_mask)),
        (2, network),
    ),
)


def no_softmax(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    scores = scores if mask is None else scores.masked_fill(mask == 0, 0.0)
    return scores @ value, scores


slip(
    "no_softmax",
    line="scores @ V  # no softmax",
    effect="Scores add up to anything, and some are negative; the softmax makes weights of them.",
    attention=no_softmax,
)


def scaled_by_length(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / key.size(-2) ** 0.5
    scores = scores if mask is None else scores.masked_fill(mask == 0, -torch.inf)
    return scores.softmax(-1) @ value, scores.softmax(-1)


slip(
    "scaled_by_length",
    line="/ math.sqrt(T)  # the number of keys",
    effect="The sum is over d_k, not over the keys.",
    attention=scaled_by_length,
)
slip(
    "scaled_by_the_model's_width",
    line="/ math.sqrt(d_model)  # for d_k",
    effect="A head's query and key have d_k numbers each, and the score is a sum over those.",
    MultiHeadedAttention__weigh=lambda self, Q, K, V, mask: right_attention(
        Q / self.h**0.5, K, V, mask
    )[0],
)
slip(
    "softmax_over_all_heads",
    line="softmax over the heads  # dim=0 of (h, T, S)",
    effect="Each head has weights of its own: for each query, those of its keys add up to 1.",
    **CATALOGUE["softmax_over_heads"].puts,
)
slip(
    "mask_ignored",
    line="the mask isn't looked at",
    effect="What the mask should hide is seen.",
    attention=lambda Q, K, V, mask=None, dropout=None: right_attention(Q, K, V),
)


def mask_added(query, key, value, mask=None, dropout=None):
    scores = query @ key.transpose(-2, -1) / query.size(-1) ** 0.5
    weights = (scores if mask is None else scores + mask).softmax(-1)
    return weights @ value, weights


slip(
    "mask_added",
    line="scores + mask  # of 0 and 1",
    effect="A mask of True and False, added, gives 1 to what may be seen, and hides nothing.",
    attention=mask_added,
)
slip(
    "mask_times_scores",
    line="scores * mask  # before the softmax",
    effect=(
        "A score of zero means e to the zero: a key that is hidden gets as much as one that fits "
        "neither well nor badly."
    ),
    attention=attention_with(fill=0.0),
)
slip(
    "true_means_hidden",
    line="masked_fill(mask, -inf)  # where True = may attend",
    effect=(
        "True means that a query may see a key. (In nn.Transformer's masks it means the opposite.) "
        "A row that may see every key then sees none, and 0 / 0 isn't a number."
    ),
    attention=attention_with(flipped=True),
)
slip(
    "heads_cut_and_joined_by_view",
    line="reshape(h, T, d_k), and back by reshape(T, d_model)",
    effect=(
        "The shapes are right. But a head gets some of the positions, whole, instead of a part of "
        "each: both ways need a transpose."
    ),
    **CATALOGUE["heads_split_by_view"].puts,
    **CATALOGUE["heads_joined_by_view"].puts,
)


def without_W_o(self, query, K, V, mask=None):
    Q = tat.split_heads(self.W_q(query), self.h)
    return tat.join_heads(self.weigh(Q, K, V, tat.for_all_heads(mask)))


slip(
    "no_output_matrix",
    line="the heads side by side  # no @ W_o",
    effect="W_o mixes what the heads have found; without it each writes into its own columns alone.",
    MultiHeadedAttention__attend=without_W_o,
)
slip(
    "heads_interleaved",
    line="x.unflatten(-1, (d_k, h))  # heads interleaved",
    effect="New weights wouldn't mind; trained ones have their heads in blocks of d_k columns.",
    split_heads=lambda x, h: x.unflatten(-1, (-1, h)).permute(0, 3, 1, 2),
)
slip(
    "heads_not_split",
    line="a single head of full width",
    effect="One map instead of h.",
    split_heads=lambda x, h: x.unsqueeze(1),
)


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

slip("keys_and_values_from_x", line="x @ W_k, x @ W_v  # x for y", effect=FROM_Y, **heads_of("xxx"))
slip("keys_from_x", line="x @ W_k  # x for y", effect=FROM_Y, **heads_of("xxy"))
slip("values_from_x", line="x @ W_v  # x for y", effect=FROM_Y, **heads_of("xyx"))
slip("queries_from_y", line="y @ W_q  # y for x", effect=FROM_Y, **heads_of("yyy"))
slip(
    "x_and_y_exchanged",
    line="y @ W_q, x @ W_k, x @ W_v  # x and y exchanged",
    effect=FROM_Y,
    **heads_of("yxx"),
)

OWN_MATRIX = "Queries, keys and values each have a matrix that was trained for them."

slip(
    "values_by_W_k",
    line="y @ W_k for keys and values  # W_k twice",
    effect=OWN_MATRIX,
    **heads_of(matrices="qkko"),
)
slip(
    "keys_by_W_v",
    line="y @ W_v for keys and values  # W_v twice",
    effect=OWN_MATRIX,
    **heads_of(matrices="qvvo"),
)
slip(
    "queries_by_W_k", line="x @ W_k  # for x @ W_q", effect=OWN_MATRIX, **heads_of(matrices="kkvo")
)
slip("values_by_W_q", line="y @ W_q  # for y @ W_v", effect=OWN_MATRIX, **heads_of(matrices="qkqo"))
slip(
    "queries_and_keys_exchanged",
    line="x @ W_k, y @ W_q",
    effect=OWN_MATRIX,
    **heads_of(matrices="kqvo"),
)
slip(
    "keys_and_values_exchanged",
    line="y @ W_v, y @ W_k",
    effect=OWN_MATRIX,
    **heads_of(matrices="qvko"),
)

TRANSPOSED = (
    "Here it's x @ W. Only nn.Linear keeps its matrix the other way round; a square one fits both "
    "ways, so no shape tells."
)

slip(
    "matrices_transposed",
    line="x @ W.T  # all four",
    effect=TRANSPOSED,
    **heads_of(transposed="qkvo"),
)
slip(
    "q_k_v_transposed",
    line="x @ W_q.T, y @ W_k.T, y @ W_v.T",
    effect=TRANSPOSED,
    **heads_of(transposed="qkv"),
)
slip(
    "output_matrix_transposed", line="heads @ W_o.T", effect=TRANSPOSED, **heads_of(transposed="o")
)
