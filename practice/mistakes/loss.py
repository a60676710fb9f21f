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

LOSS, UPDATE = "Regularisation (Section 5.4)", "One update"


def padding_in_the_loss(model, batch, eps):
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    mean = nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten())
    return mean * batch.ntokens


mistake(
    "padding_in_the_loss",
    kind="loss",
    line="cross_entropy(logits, tgt_y).mean()  # padding too",
    section=LOSS,
    seen_by="loss",
    belief="Padding is easy, so it costs nothing.",
    effect=(
        "It is easy, so the loss looks lower than it is, and the gradient of short sentences is "
        "lost among the pads."
    ),
    batch_loss=padding_in_the_loss,
)
mistake(
    "softmax_before_the_loss",
    kind="loss",
    line="cross_entropy(logits.softmax(-1), tgt_y)",
    section=LOSS,
    seen_by="heart",
    belief="The loss wants probabilities.",
    effect=(
        "It takes the softmax itself. Twice, the best token gets at most e times what another "
        "gets, and the loss stays near that of guessing."
    ),
    Generator__logits=lambda self, x: self.proj(x).softmax(-1),
)
mistake(
    "loss_is_a_sum",
    kind="loss",
    line="loss.sum()  # for the mean",
    section=UPDATE,
    seen_by="loss",
    belief="A constant doesn't matter.",
    effect="With Adam it doesn't; the number that is reported grows with the batch.",
    harmless=True,
    batch_loss=lambda model, batch, eps: right_loss(model, batch, eps) * batch.ntokens,
)
slip(
    "probabilities_for_logits",
    line="softmax(logits)",
    effect="Logits are what goes into the softmax. (The loss takes it itself.)",
    **CATALOGUE["softmax_before_the_loss"].puts,
)
slip(
    "logits_divided",
    line="x @ table.T / math.sqrt(d_model)",
    effect="The rows score as they are. Divided, they would make the softmax far too unsure.",
    Generator__logits=lambda self, x: self.proj(x) / x.size(-1) ** 0.5,
)
slip(
    "log_probabilities_for_logits",
    line="log_softmax(logits)",
    effect="Logits are what goes into the softmax. (The loss takes it itself.)",
    Generator__logits=lambda self, x: self.proj(x).log_softmax(-1),
)
slip(
    "logits_of_scaled_rows",
    line="x @ (table * math.sqrt(d_model)).T",
    effect=(
        "The rows are scaled when they are read, not when they score: the softmax would be far too "
        "sure."
    ),
    Generator__logits=lambda self, x: self.proj(x) * x.size(-1) ** 0.5,
)


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


slip(
    "pad_written_in",
    line="0  # for pad",
    effect="pad is given: another vocabulary may give another number to padding.",
    source_mask=lambda src, pad=PAD: right_source(src, PAD),
    target_mask=lambda tgt, pad=PAD: right_source(tgt, PAD) & square(tgt.size(1)).tril(),
    smoothed_loss=lambda z, y, eps=0.1, pad=PAD: smoothed(evenly)(z, y, eps, PAD),
)
slip(
    "padding_has_a_share",
    line="smoothing / vocab  # padding has a share",
    effect=(
        "It asks for padding with a small probability, which is never right. It is also what "
        "cross_entropy(label_smoothing=...) does."
    ),
    smoothed_loss=smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)),
)


def right_token_without_share(hot, real, eps):
    return torch.where(hot > 0, 1 - eps, eps / (real.sum() - 1)) * real


slip(
    "right_token_without_share",
    line="1 - smoothing for the right token, the rest for the others",
    effect=(
        "That is what the authors' code does; here the right token has its part of the tenth as "
        "well."
    ),
    smoothed_loss=smoothed(right_token_without_share),
)
slip(
    "smoothing_of_2018",
    line="KLDivLoss with 1 - smoothing for the right token",
    effect=(
        "That's LabelSmoothing of The Annotated Transformer of 2018: its divergence leaves out the "
        "entropy of q, and the right token has no part of the tenth."
    ),
    smoothed_loss=smoothed(right_token_without_share, divergence=True),
)
slip(
    "divergence_for_cross_entropy",
    line="KLDivLoss  # for cross-entropy",
    effect=(
        "The divergence is the cross-entropy less the entropy of q: the gradient is the same, and "
        "the number is not."
    ),
    smoothed_loss=smoothed(evenly, divergence=True),
)


def share_taken_and_not_given(hot, real, eps):
    return torch.where(hot > 0, 1 - eps, eps / real.sum()) * real


WITHOUT_SHARE = (
    "All tokens but padding share the smoothing, the right one included: it has 1 - smoothing and "
    "its share. Without, q doesn't add up to 1."
)

slip(
    "right_token_without_its_share",
    line="1 - smoothing for the right token, without its share",
    effect=WITHOUT_SHARE,
    smoothed_loss=smoothed(share_taken_and_not_given),
)
slip(
    "gradient_without_its_share",
    line="p - q  # q without the right token's share",
    effect=WITHOUT_SHARE,
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
slip(
    "right_token_alone",
    line="(1 - smoothing) * the right token's, and nothing else",
    effect="What is taken away from the right token is shared out among all tokens but padding.",
    smoothed_loss=smoothed(lambda hot, real, eps: (1 - eps) * hot),
)
slip(
    "smoothing_not_divided",
    line="smoothing * log_p.sum()  # not divided",
    effect="The tokens share the smoothing; here each has all of it.",
    smoothed_loss=smoothed(lambda hot, real, eps: ((1 - eps) * hot + eps) * real),
)
slip(
    "no_logarithm",
    line="p  # for log p",
    effect="Cross-entropy is -q * log p, summed.",
    smoothed_loss=smoothed(evenly, log_p=lambda logits: logits.softmax(-1)),
)
slip(
    "logits_for_log_probabilities",
    line="logits  # for log p",
    effect="log p is the logits less the logarithm of the sum of their exponentials.",
    smoothed_loss=smoothed(evenly, log_p=lambda logits: logits),
)
slip(
    "no_smoothing",
    line="no label smoothing",
    effect="Section 5.4 takes a tenth away from the right token.",
    smoothed_loss=smoothed(lambda hot, real, eps: hot),
)
slip(
    "mean_for_sum",
    line="the mean over the tokens",
    effect="A batch gives its sum, so that short sentences don't count for more.",
    smoothed_loss=smoothed(evenly, mean=True),
)
slip(
    "pads_counted",
    line="padding counts",
    effect="The loss depends on how much padding a batch needs.",
    smoothed_loss=functools.partial(smoothed(evenly), padding=True),
)
slip(
    "pads_are_tokens",
    line="padding counts as a token like any other",
    effect="Where the target is padding, the loss and its gradient are zero.",
    smoothed_loss=functools.partial(
        smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / real.sum() * real), padding=True
    ),
)
slip(
    "pads_are_tokens_with_a_share",
    line="cross_entropy(..., label_smoothing=eps)  # no ignore_index",
    effect="Where the target is padding, the loss is zero; and padding has no share of the smoothing.",
    smoothed_loss=functools.partial(
        smoothed(lambda hot, real, eps: (1 - eps) * hot + eps / len(real)), padding=True
    ),
)
slip(
    "gradient_where_padding_is",
    line="p where the target is padding",
    effect="There the loss is zero, and so is its gradient.",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        right_smoothed(logits, target, eps, pad) + (logits.logsumexp(-1) * (target == pad)).sum()
    ),
)
slip(
    "gradient_upside_down",
    line="q - p  # or q * log p, without a minus",
    effect="The loss is -q * log p, and its derivative p - q; an update goes against it.",
    smoothed_loss=lambda *arguments: -right_smoothed(*arguments),
)
slip(
    "shared_by_all_others",
    line="smoothing / (vocab - 1) for all but the right token",
    effect="Padding is one of these others and has no share; the right token has one.",
    smoothed_loss=smoothed(
        lambda hot, real, eps: torch.where(hot > 0, 1 - eps, eps / (len(real) - 1))
    ),
)
slip(
    "mean_with_padding",
    line="the mean over all positions, padding included",
    effect="The loss is a sum over the tokens, and padding isn't one of them.",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        right_smoothed(logits, target, eps, pad) / target.numel()
    ),
)


def unnormalised(logits, target, eps=0.1, pad=PAD):
    hot = nn.functional.one_hot(target, logits.size(-1)).to(logits.dtype)
    q = evenly(hot, torch.arange(logits.size(-1)) != pad, eps)
    return ((logits**2 / 2 - q * logits).sum(-1) * (target != pad)).sum()


slip(
    "scores_for_probabilities",
    line="logits - q  # for p - q",
    effect="p is the softmax of the logits.",
    smoothed_loss=unnormalised,
)
slip(
    "gradient_without_target",
    line="p  # for p - q",
    effect="Without q every token is pushed down, the right one as well.",
    smoothed_loss=lambda logits, target, eps=0.1, pad=PAD: (
        logits.logsumexp(-1) * (target != pad)
    ).sum(),
)
