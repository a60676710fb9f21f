"""Masks: what may be seen, and what is hidden (Sections 3.2.3 and 3.1)."""

from collections.abc import Callable

import torch
from torch import Tensor

from practice.mistakes.catalogue import mistake, right_source, slip
from the_annotated_transformer import PAD


def square(size: int) -> Tensor:
    """A mask that hides nothing: (1, size, size)."""
    return torch.ones(1, size, size, dtype=torch.bool)


def attention_with(
    scale: Callable[[int], float] = lambda d_k: d_k**-0.5,
    fill: float = -torch.inf,
    flipped: bool = False,
    dim: int = -1,
    after: bool = False,
    softmax: bool = True,
) -> Callable:
    """Equation (1) with one line changed."""

    def attention(query, key, value, mask=None, dropout=None):
        # `after`: hidden keys stay in the denominator, and lose only their own weight
        scores = query @ key.transpose(-2, -1) * scale(query.size(-1))
        if mask is not None and not after:
            scores = scores.masked_fill(mask if flipped else mask == 0, fill)
        weights = scores.softmax(dim) if softmax else scores
        if mask is not None and after:
            weights = weights * mask
        return (weights if dropout is None else dropout(weights)) @ value, weights

    return attention


# A mask is True where a query may attend: what is open, and in which formula it is heeded.
mistake("no_causal_mask", subsequent_mask=square)
mistake("causal_mask_one_too_far", subsequent_mask=lambda size: square(size).tril(1))
mistake("mask_the_other_way_round", attention=attention_with(fill=-1e9, flipped=True))
mistake("mask_with_tiny_number", attention=attention_with(fill=-1e-9))
mistake("mask_after_softmax", attention=attention_with(after=True))
mistake("padding_seen", source_mask=lambda src, pad=PAD: square(src.size(1))[:, :1])


def padded_queries_masked(tgt, pad=PAD):
    # a padded query then has no key, and its row is 0 / 0
    real = tgt != pad
    return real.unsqueeze(-2) & real.unsqueeze(-1) & square(tgt.size(1)).tril()


mistake("padded_queries_masked", target_mask=padded_queries_masked)


def encoder_causal(self, x, src_mask):
    mask = src_mask & square(x.size(1)).tril()
    x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
    return self.sublayer[1](x, self.feed_forward)


mistake("encoder_causal", EncoderLayer__forward=encoder_causal)
# asked as masks, and not by what a model does with them
slip(
    "target_mask_without_padding",
    target_mask=lambda tgt, pad=PAD: square(tgt.size(1)).tril().expand(len(tgt), -1, -1),
)
slip(
    "target_mask_without_order",
    target_mask=lambda tgt, pad=PAD: (tgt != pad).unsqueeze(1).expand(-1, tgt.size(1), -1),
)
slip(
    "masks_inverted",
    source_mask=lambda src, pad=PAD: ~right_source(src, pad),
    target_mask=lambda tgt, pad=PAD: ~(right_source(tgt, pad) & square(tgt.size(1)).tril()),
)
slip("causal_mask_transposed", subsequent_mask=lambda size: square(size).triu())
slip("causal_mask_without_diagonal", subsequent_mask=lambda size: square(size).tril(-1))
slip(
    "or_for_and",
    target_mask=lambda tgt, pad=PAD: right_source(tgt, pad) | square(tgt.size(1)).tril(),
)
