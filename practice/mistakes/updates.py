"""The schedule, Adam and the update (Section 5.3)."""

import copy
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from practice.mistakes.catalogue import (
    mistake,
    right_adam,
    right_encode,
    right_gradient,
    right_init,
    right_rate,
    slip,
)
from practice.mistakes.loss import UPDATE

ADAM = "Optimiser (Section 5.3)"

mistake(
    "rate_too_high",
    label="a learning rate that is 30 times too high",
    kind="schedule",
    line="30 times the rate",
    section=ADAM,
    seen_by="gradient",
    belief="Faster is faster.",
    effect="The first steps move the weights by a fiftieth of their size each; they never come back.",
    settings={"factor": 21.0},
)
mistake(
    "warmup_never_ends",
    kind="schedule",
    line="warmup=4000, from the paper",
    section=ADAM,
    seen_by="heart",
    belief="The paper knows best.",
    effect="A run of 1,500 updates ends before the rate has risen.",
    settings={"warmup": 4000},
)
mistake(
    "schedule_stands_still",
    kind="schedule",
    line="scheduler.step() forgotten",
    section=ADAM,
    seen_by="heart",
    belief="The scheduler does it.",
    effect="It does if it is called: the rate stays that of the first update, a hundredth.",
    rate=lambda step, *rest: right_rate(1, *rest),
)
mistake(
    "gradients_never_cleared",
    label="gradients that are never cleared",
    kind="adam",
    line="no zero_grad()",
    section=UPDATE,
    seen_by="gradient",
    belief="backward() computes the gradient.",
    effect="It adds to it: each step follows all the gradients there ever were.",
    Transformer__zero_grad=lambda self: None,
)


def clipped_to_almost_nothing(self, pairs):
    loss = right_gradient(self, pairs)
    nn.utils.clip_grad_norm_(self.model.parameters(), 1e-4)
    return loss


mistake(
    "clipped_to_almost_nothing",
    kind="adam",
    line="clip_grad_norm_(parameters, 1e-4)",
    section=UPDATE,
    seen_by="gradient",
    belief="Clip hard, to be safe.",
    effect="Adam divides by the size of the gradient, so a constant factor is taken out again.",
    harmless=True,
    Trainer__gradient=clipped_to_almost_nothing,
)
mistake(
    "sgd",
    kind="adam",
    line="SGD with Adam's rate",
    section=ADAM,
    seen_by="heart",
    belief="An optimiser is an optimiser.",
    effect="SGD moves by rate times gradient, Adam by the rate: most weights stand still.",
    Adam=lambda parameters, lr, **_: torch.optim.SGD(parameters, lr=lr),
)


def average(b: float, old: Any, new: Any) -> Any:
    """A running average."""
    return b * old + (1 - b) * new


def adam_with(
    move: Callable = lambda m, v, c1, c2, eps: m / c1 / ((v / c2).sqrt() + eps),
    first: Callable = average,
    second: Callable = lambda b, old, g: average(b, old, g**2),
    ahead: int = 0,
    given_back: Callable = lambda old, new, corrected: new,
    moved_by: Callable = lambda old, new, g: new,
    decay: float = 0.0,
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


mistake(
    "no_bias_correction",
    kind="adam",
    line="m, v for m / (1 - b1 ** t), v / (1 - b2 ** t)",
    section=ADAM,
    seen_by="gradient",
    belief="After some steps it is gone.",
    effect="The first step is 0.7 of the usual one, the fifth 1.3; the warmup hides it.",
    harmless=True,
    Adam=adam_with(lambda m, v, c1, c2, eps: m / (v.sqrt() + eps)),
)
mistake(
    "weight_decay_on_all",
    kind="adam",
    line="Adam(weight_decay=0.1)",
    section=ADAM,
    seen_by="heart",
    belief="AdamW has 0.1.",
    effect=(
        "In Adam the decay joins the gradient and is divided by its size: small gradients drown in "
        "it. AdamW takes it apart."
    ),
    Adam=functools.partial(right_adam, weight_decay=0.1),
)


def optimiser_of_another_model(self, model, config):
    right_init(self, copy.deepcopy(model), config)
    self.model = model


mistake(
    "optimiser_of_another_model",
    kind="adam",
    line="Adam(model.parameters()); model = deepcopy(model)",
    section=UPDATE,
    seen_by="gradient",
    belief="The optimiser follows the model.",
    effect="It holds the old tensors; the new model never moves.",
    Trainer____init__=optimiser_of_another_model,
)
mistake(
    "encoder_gets_no_gradient",
    kind="adam",
    line="memory.detach()",
    section=UPDATE,
    seen_by="gradient",
    belief="The encoder only reads.",
    effect="It stays as it was born, random; the decoder makes do with it, and half succeeds.",
    Transformer__encode=lambda self, src, src_mask: right_encode(self, src, src_mask).detach(),
)


def rate_with(formula: Callable[[int, int, int], float]) -> Callable:
    """Another schedule, of step, d_model and warmup."""
    return lambda step, model_size, factor, warmup: factor * formula(step, model_size, warmup)


slip(
    "rate_with_max",
    line="max for min",
    effect="The rate begins at its highest, falls, and then rises for ever.",
    rate=rate_with(lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5)),
)
slip(
    "rate_without_warmup",
    line="warmup ** -0.5  # for -1.5",
    effect="The rate is at its top after a few updates, 16 for a warmup of 4000.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * w**-0.5)),
)
slip(
    "rate_without_width",
    line="without d_model ** -0.5",
    effect="That factor makes wide models learn more slowly.",
    rate=rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5)),
)
slip(
    "rate_one_step_early",
    line="step - 1  # counted from 0",
    effect="Every rate is that of the step before, and the first is zero.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min(max(s - 1, 1e-9) ** -0.5, (s - 1) * w**-1.5)),
)
slip(
    "rate_one_step_late",
    line="step + 1",
    effect="step counts from 1 already; the first rate is twice as high.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min((s + 1) ** -0.5, (s + 1) * w**-1.5)),
)
slip(
    "rate_only_rises",
    line="step * warmup ** -1.5  # no min",
    effect="That is the warmup; the other term takes over after it.",
    rate=rate_with(lambda s, d, w: d**-0.5 * s * w**-1.5),
)
slip(
    "rate_only_falls",
    line="step ** -0.5  # no min",
    effect="That is what comes after the warmup; at the first update it is 250,000 times the right rate.",
    rate=rate_with(lambda s, d, w: d**-0.5 * s**-0.5),
)
slip(
    "rate_grows_with_width",
    line="d_model ** 0.5  # for -0.5",
    effect="A wide model needs a lower rate, not a higher one.",
    rate=rate_with(lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5)),
)
slip(
    "rate_divided_by_the_width",
    line="1 / d_model  # for d_model ** -0.5",
    effect="The rate falls with the root of the width.",
    rate=rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5) / d),
)
slip(
    "rate_of_a_product",
    line="(step * warmup) ** -1.5",
    effect="The power is that of warmup alone; step rises as it is.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, (s * w) ** -1.5)),
)
slip(
    "rate_falls_like_the_step",
    line="1 / step  # for step ** -0.5",
    effect="The rate falls with the root of the step: far more slowly.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min(1 / s, s * w**-1.5)),
)
slip(
    "rate_beside_its_peak",
    line="min((step / warmup) ** -0.5, step / warmup)",
    effect="That has the right form, but it is too high by the root of `warmup`.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min((s / w) ** -0.5, s / w)),
)
slip(
    "warmup_written_in",
    line="4000  # for warmup",
    effect="warmup is given: a short training has a shorter one.",
    rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * 4000**-1.5)),
)
slip(
    "width_written_in",
    line="512  # for d_model",
    effect="d_model is given: 512 is the width of the paper's base model.",
    rate=rate_with(lambda s, d, w: 512**-0.5 * min(s**-0.5, s * w**-1.5)),
)
slip(
    "usual_betas",
    line="betas=(0.9, 0.999)  # for 0.98",
    effect="The paper's second is 0.98: an average over fifty updates, not a thousand.",
    Adam=lambda p, lr, betas, eps: right_adam(p, lr, (0.9, 0.999), eps),
)
slip(
    "betas_swapped",
    line="betas swapped",
    effect="The gradient is averaged over fifty updates, its size over ten.",
    Adam=lambda p, lr, betas, eps: right_adam(p, lr, betas[::-1], eps),
)
slip(
    "uphill",
    line="w + ...",
    effect="The gradient points to where the loss rises.",
    Adam=adam_with(lambda m, v, c1, c2, eps: -m / c1 / ((v / c2).sqrt() + eps)),
)
slip(
    "no_second_average",
    line="not divided by the root of v",
    effect="Adam divides the average gradient by its usual size.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c1),
)
slip(
    "adam_epsilon_in_the_root",
    line="sqrt(v + eps)  # for sqrt(v) + eps",
    effect="In LayerNorm epsilon is inside the root, in Adam outside; v is so small that it matters.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v / c2 + eps).sqrt()),
)
slip(
    "second_average_of_g",
    line="v is an average of g  # for g ** 2",
    effect="v is the average square: its root is the usual size of the gradient.",
    Adam=adam_with(second=average),
)
slip(
    "adam_one_step_ahead",
    line="b1 ** (step + 1), b2 ** (step + 1)",
    effect="step counts from 1 already.",
    Adam=adam_with(ahead=1),
)
slip(
    "first_average_is_a_sum",
    line="m = b1 * m + g  # no (1 - b1)",
    effect="That is the momentum of SGD, ten times as large. Adam's m is an average.",
    Adam=adam_with(first=lambda b, m, g: b * m + g),
)
slip(
    "both_averages_are_sums",
    line="m = b1 * m + g, v = b2 * v + g ** 2  # no (1 - b)",
    effect="Both are averages, so what is new counts as much as what is old gives up.",
    Adam=adam_with(first=lambda b, m, g: b * m + g, second=lambda b, v, g: b * v + g**2),
)
slip(
    "no_correction_of_m",
    line="m  # for m / (1 - b1 ** step)",
    effect="Both averages begin at zero and are too small at first; each has its correction.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / ((v / c2).sqrt() + eps)),
)
slip(
    "no_correction_of_v",
    line="v  # for v / (1 - b2 ** step)",
    effect="Both averages begin at zero and are too small at first; each has its correction.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v.sqrt() + eps)),
)
slip(
    "betas_of_the_corrections_exchanged",
    line="m / (1 - b2 ** step), v / (1 - b1 ** step)",
    effect="m is corrected by its own beta, 0.9, and v by 0.98.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c2 / ((v / c1).sqrt() + eps)),
)
slip(
    "correction_stands_still",
    line="1 - b1, 1 - b2  # no ** step",
    effect="The correction fades: it is 1 - b ** step, and nearly 1 after some steps.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / 0.1 / ((v / 0.02).sqrt() + eps)),
)
slip(
    "corrected_averages_given_back",
    line="return w, m / (1 - b1 ** step), v / (1 - b2 ** step)",
    effect="The next step goes on with the averages as they are; corrected ones move the weights alone.",
    Adam=adam_with(given_back=lambda old, new, corrected: corrected),
)
slip(
    "old_averages_given_back",
    line="return w and the m and v that were given",
    effect="The next step goes on with the new averages.",
    Adam=adam_with(given_back=lambda old, new, corrected: old),
)
slip(
    "averages_exchanged",
    line="return w, v, m",
    effect="m comes before v.",
    Adam=adam_with(given_back=lambda old, new, corrected: new[::-1]),
)
slip(
    "moved_by_the_old_averages",
    line="w is moved before m and v are new",
    effect="First the averages take in this gradient, then they move the weights.",
    Adam=adam_with(moved_by=lambda old, new, g: old),
)
slip(
    "moved_by_the_gradient",
    line="g / sqrt(v)  # for m",
    effect="That's RMSProp; Adam moves by the average m.",
    Adam=adam_with(
        lambda m, v, c1, c2, eps: m / ((v / c2).sqrt() + eps),
        moved_by=lambda old, new, g: (g, new[1]),
    ),
)
slip(
    "not_the_root_of_v",
    line="m / (v + eps)  # no root",
    effect="v is an average of squares; its root is the usual size of the gradient.",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v / c2 + eps)),
)
slip(
    "new_and_old_exchanged",
    line="m = 0.1 * m + 0.9 * g, v = 0.02 * v + 0.98 * g ** 2",
    effect="An average keeps most of what it was, and takes in little of what is new.",
    Adam=adam_with(
        first=lambda b, m, g: average(1 - b, m, g), second=lambda b, v, g: average(1 - b, v, g**2)
    ),
)
slip(
    "second_average_is_a_sum",
    line="v = b2 * v + g ** 2  # no (1 - b2)",
    effect="v is an average, so what is new counts as much as what is old gives up.",
    Adam=adam_with(second=lambda b, v, g: b * v + g**2),
)
slip(
    "learning_rate_forgotten",
    line="w - m / sqrt(v)  # no lrate",
    effect="The schedule's rate says how far a weight moves.",
    Adam=lambda p, lr, betas, eps: right_adam(p, 1.0, betas, eps),
)
slip(
    "weight_decay",
    line="w - lrate * (... + 0.01 * w)",
    effect="That's AdamW with its usual decay; the paper has none.",
    Adam=adam_with(decay=0.01),
)
slip(
    "another_adam_epsilon",
    line="epsilon 1e-8  # for 1e-9",
    effect="1e-8 is what PyTorch takes; Section 5.3 has 1e-9.",
    Adam=lambda p, lr, betas, eps: right_adam(p, lr, betas, 1e-8),
)
