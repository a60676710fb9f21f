"""Masks: what may be seen, and what is hidden (Sections 3.2.3 and 3.1)."""

from collections.abc import Callable

import torch
from torch import Tensor

from practice.mistakes.catalogue import mistake, right_source, slip
from the_annotated_transformer import PAD

MASKS = "Masks"


def square(size: int) -> Tensor:
    """A mask that hides nothing: (1, size, size)."""
    return torch.ones(1, size, size, dtype=torch.bool)


def attention_with(
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5,
    fill: float = -torch.inf,
    flipped: bool = False,
    dim: int = -1,
    after: bool = False,
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


mistake(
    "no_causal_mask",
    label="no causal mask",
    kind="mask",
    line="torch.ones(size, size)  # no .tril()",
    section=MASKS,
    seen_by="wires",
    belief="The shift already hides the next token.",
    effect=(
        "Each position copies its answer from the next one: the loss falls to zero, and in "
        "translation, where there is no next token, nothing comes out."
    ),
    subsequent_mask=square,
)
mistake(
    "causal_mask_one_too_far",
    label="a causal mask that is open one place too far",
    kind="mask",
    line=".tril(1)  # for .tril()",
    section=MASKS,
    seen_by="wires",
    belief="A position must see itself, so the diagonal above has to be open.",
    effect="Position t sees token t + 1, which is the one it has to predict.",
    subsequent_mask=lambda size: square(size).tril(1),
)
mistake(
    "mask_the_other_way_round",
    kind="mask",
    line="masked_fill(mask, -1e9)  # where True = may attend",
    section=MASKS,
    seen_by="wires",
    belief="True means masked, as in nn.Transformer.",
    effect=(
        "What may be seen is hidden, and what must be hidden is all that is seen: the future and "
        "the padding."
    ),
    attention=attention_with(fill=-1e9, flipped=True),
)
mistake(
    "mask_with_tiny_number",
    kind="mask",
    line="masked_fill(~mask, -1e-9)  # for -1e9",
    section=MASKS,
    seen_by="wires",
    belief="A number with a nine in the exponent is a large one.",
    effect="Masked scores become 0 instead of minus infinity, so nothing is masked at all.",
    attention=attention_with(fill=-1e-9),
)
mistake(
    "mask_after_softmax",
    kind="mask",
    line="softmax(scores) * mask",
    section=MASKS,
    seen_by="wires",
    belief="A weight of zero is a weight of zero.",
    effect=(
        "The hidden keys stay in the denominator: each weight tells how well the future would have "
        "fitted."
    ),
    attention=attention_with(after=True),
)
mistake(
    "padding_seen",
    kind="mask",
    line="no src_mask",
    section=MASKS,
    seen_by="wires",
    belief="Padding is a token like any other; the model learns to ignore it.",
    effect="A translation depends on how much padding its neighbours need.",
    harmless=True,
    source_mask=lambda src, pad=PAD: square(src.size(1))[:, :1],
)


def padded_queries_masked(tgt, pad=PAD):
    real = tgt != pad
    return real.unsqueeze(-2) & real.unsqueeze(-1) & square(tgt.size(1)).tril()


mistake(
    "padded_queries_masked",
    kind="mask",
    line="mask & (tgt != pad).unsqueeze(-1)",
    section=MASKS,
    seen_by="gradient",
    belief="Padding should be hidden on both sides, rows and columns.",
    effect=(
        "A row without any key is 0 / 0: the first batch that needs two pads gives NaN, and one "
        "batch later every weight is NaN."
    ),
    target_mask=padded_queries_masked,
)


def encoder_causal(self, x, src_mask):
    mask = src_mask & square(x.size(1)).tril()
    x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
    return self.sublayer[1](x, self.feed_forward)


mistake(
    "encoder_causal",
    kind="mask",
    line="encoder(x, src_mask & causal)",
    section=MASKS,
    seen_by="wires",
    belief="Attention is masked in a Transformer.",
    effect="The encoder reads each word without the rest of the sentence.",
    harmless=True,
    EncoderLayer__forward=encoder_causal,
)
slip(
    "target_mask_without_padding",
    line=".tril()  # without & (tgt != pad)",
    effect=(
        "The words don't see the pads, but the pads see each other: harmless, because they don't "
        "count, but not what was asked."
    ),
    target_mask=lambda tgt, pad=PAD: square(tgt.size(1)).tril().expand(len(tgt), -1, -1),
)
slip(
    "target_mask_without_order",
    line="tgt != pad  # without .tril()",
    effect="The decoder's mask hides the future as well as the padding.",
    target_mask=lambda tgt, pad=PAD: (tgt != pad).unsqueeze(1).expand(-1, tgt.size(1), -1),
)
slip(
    "masks_inverted",
    line="True where it is hidden",
    effect="Here True means that it may be seen.",
    source_mask=lambda src, pad=PAD: ~right_source(src, pad),
    target_mask=lambda tgt, pad=PAD: ~(right_source(tgt, pad) & square(tgt.size(1)).tril()),
)
slip(
    "causal_mask_transposed",
    line="triu  # for tril",
    effect="Each token then sees itself and the future, and hides the past.",
    subsequent_mask=lambda size: square(size).triu(),
)
slip(
    "causal_mask_without_diagonal",
    line=".tril(-1)  # for .tril()",
    effect="A token may see itself; here the first one sees nothing at all.",
    subsequent_mask=lambda size: square(size).tril(-1),
)
slip(
    "or_for_and",
    line="order or padding  # for and",
    effect="A key may be seen if it is real and not in the future; with or, one of the two is enough.",
    target_mask=lambda tgt, pad=PAD: right_source(tgt, pad) | square(tgt.size(1)).tril(),
)
