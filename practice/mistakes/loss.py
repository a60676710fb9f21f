"""The output matrix and the loss (Sections 3.4 and 5.4)."""

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from practice.mistakes.catalogue import (
    CATALOGUE,
    mistake,
    right_loss,
    right_smoothed,
    right_source,
    slip,
)
from practice.mistakes.masks import square
from the_annotated_transformer import PAD


# the loss of a training: what is counted, of which numbers, and divided by what
def padding_in_the_loss(model, batch, eps):
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    mean = nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten())
    return mean * batch.ntokens


mistake("padding_in_the_loss", batch_loss=padding_in_the_loss)
mistake("softmax_before_the_loss", Generator__logits=lambda self, x: self.proj(x).softmax(-1))
mistake(
    "loss_is_a_sum",
    batch_loss=lambda model, batch, eps: right_loss(model, batch, eps) * batch.ntokens,
)
# the output matrix, whose rows score as they are
slip("probabilities_for_logits", **CATALOGUE["softmax_before_the_loss"].puts)
slip("logits_divided", Generator__logits=lambda self, x: self.proj(x) / x.size(-1) ** 0.5)
slip("log_probabilities_for_logits", Generator__logits=lambda self, x: self.proj(x).log_softmax(-1))
slip("logits_of_scaled_rows", Generator__logits=lambda self, x: self.proj(x) * x.size(-1) ** 0.5)


def smoothed(
    share: Callable[[Tensor, Tensor, float], Tensor],
    mean: bool = False,
    log_p: Callable[[Tensor], Tensor] = lambda logits: logits.log_softmax(-1),
    divergence: bool = False,
) -> Callable:
    """The loss from another q: share(one-hot targets, tokens that aren't padding, eps).

    Or from something else for log p, or the divergence of q and p for the cross-entropy.
    """

    def loss(logits, target, eps=0.1, pad=PAD, padding=False):
        # (T, vocab) and (vocab): the right tokens, and which tokens may have a share at all
        hot = nn.functional.one_hot(target, logits.size(-1)).to(logits.dtype)
        real = torch.arange(logits.size(-1)) != pad
        q = share(hot, real, eps)
        # the divergence is the cross-entropy without the entropy of q
        each = -(q * log_p(logits)).sum(-1) + (torch.special.entr(q).sum(-1) * -divergence)
        each = each if padding else each * (target != pad)
        return each.sum() / (target != pad).sum() if mean else each.sum()

    return loss


def evenly(hot: Tensor, real: Tensor, eps: float) -> Tensor:
    """The document's q."""
    return ((1 - eps) * hot + eps / real.sum()) * real


# What is wrong with q, the distribution to be predicted: (1 - eps) for the right token and eps
# shared among all but padding; and with what is done with it.
slip(
    "pad_written_in",
    source_mask=lambda src, pad=PAD: right_source(src, PAD),
    target_mask=lambda tgt, pad=PAD: right_source(tgt, PAD) & square(tgt.size(1)).tril(),
    smoothed_loss=lambda z, y, eps=0.1, pad=PAD: smoothed(evenly)(z, y, eps, PAD),
)
slip(
    "padding_has_a_share",
    smoothed_loss=smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)),
)


def right_token_without_share(hot, real, eps):
    return torch.where(hot > 0, 1 - eps, eps / (real.sum() - 1)) * real


slip("right_token_without_share", smoothed_loss=smoothed(right_token_without_share))
slip("smoothing_of_2018", smoothed_loss=smoothed(right_token_without_share, divergence=True))
slip("divergence_for_cross_entropy", smoothed_loss=smoothed(evenly, divergence=True))


def share_taken_and_not_given(hot, real, eps):
    return torch.where(hot > 0, 1 - eps, eps / real.sum()) * real


slip("right_token_without_its_share", smoothed_loss=smoothed(share_taken_and_not_given))
slip(
    "gradient_without_its_share",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        right_smoothed(logits, target, eps, pad)
        + (
            eps
            / (logits.size(-1) - 1)
            * logits.gather(-1, target.unsqueeze(-1))[:, 0]
            * (target != pad)
        ).sum()
    ),
)
# other shares, then other things than log p
slip("right_token_alone", smoothed_loss=smoothed(lambda hot, real, eps: (1 - eps) * hot))
slip(
    "smoothing_not_divided",
    smoothed_loss=smoothed(lambda hot, real, eps: ((1 - eps) * hot + eps) * real),
)
slip("no_logarithm", smoothed_loss=smoothed(evenly, log_p=lambda logits: logits.softmax(-1)))
slip("logits_for_log_probabilities", smoothed_loss=smoothed(evenly, log_p=lambda logits: logits))
slip("no_smoothing", smoothed_loss=smoothed(lambda hot, real, eps: hot))
slip("mean_for_sum", smoothed_loss=smoothed(evenly, mean=True))
# where the target is padding, loss and gradient are zero
slip("pads_counted", smoothed_loss=functools.partial(smoothed(evenly), padding=True))
slip(
    "pads_are_tokens",
    smoothed_loss=functools.partial(
        smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / real.sum() * real), padding=True
    ),
)
slip(
    "pads_are_tokens_with_a_share",
    smoothed_loss=functools.partial(
        smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)), padding=True
    ),
)
slip(
    "gradient_where_padding_is",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        right_smoothed(logits, target, eps, pad) + (logits.logsumexp(-1) * (target == pad)).sum()
    ),
)
slip("gradient_upside_down", smoothed_loss=lambda *arguments: -right_smoothed(*arguments))
slip(
    "shared_by_all_others",
    smoothed_loss=smoothed(
        lambda hot, real, eps: torch.where(hot > 0, 1 - eps, eps / (len(real) - 1))
    ),
)
slip(
    "mean_with_padding",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        right_smoothed(logits, target, eps, pad) / target.numel()
    ),
)


def unnormalised(logits, target, eps=0.1, pad=PAD):
    hot = nn.functional.one_hot(target, logits.size(-1)).to(logits.dtype)
    q = evenly(hot, torch.arange(logits.size(-1)) != pad, eps)
    return ((logits**2 / 2 - q * logits).sum(-1) * (target != pad)).sum()


slip("scores_for_probabilities", smoothed_loss=unnormalised)
slip(
    "gradient_without_target",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        logits.logsumexp(-1) * (target != pad)
    ).sum(),
)
