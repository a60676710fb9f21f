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

# The schedule. The settings of German numbers have a factor of 0.7 and a warmup of 100.
mistake("rate_too_high", settings={"factor": 21.0})
mistake("warmup_never_ends", settings={"warmup": 4000})
mistake("schedule_stands_still", rate=lambda step, *rest: right_rate(1, *rest))
mistake("gradients_never_cleared", Transformer__zero_grad=lambda self: None)


# Adam divides by the gradient's size, so this does no harm; SGD, which doesn't, hardly moves.
def clipped_to_almost_nothing(self, pairs):
    loss = right_gradient(self, pairs)
    nn.utils.clip_grad_norm_(self.model.parameters(), 1e-4)
    return loss


mistake("clipped_to_almost_nothing", Trainer__gradient=clipped_to_almost_nothing)
mistake("sgd", Adam=lambda parameters, lr, **_: torch.optim.SGD(parameters, lr=lr))


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
                    # both averages begin at zero; these divisors correct for it
                    c1, c2 = 1 - b1 ** (t + ahead), 1 - b2 ** (t + ahead)
                    # what is kept for the next step, and then what this one moves by
                    state["exp_avg"], state["exp_avg_sq"] = given_back(old, new, (m / c1, v / c2))
                    m, v = moved_by(old, new, p.grad)
                    p.sub_(group["lr"] * (move(m, v, c1, c2, eps) + decay * p))

    return Adam


mistake("no_bias_correction", Adam=adam_with(lambda m, v, c1, c2, eps: m / (v.sqrt() + eps)))
mistake("weight_decay_on_all", Adam=functools.partial(right_adam, weight_decay=0.1))


# the trainer's optimiser has tensors of its own, to which no gradient ever comes
def optimiser_of_another_model(self, model, config):
    right_init(self, copy.deepcopy(model), config)
    self.model = model


mistake("optimiser_of_another_model", Trainer____init__=optimiser_of_another_model)
mistake(
    "encoder_gets_no_gradient",
    Transformer__encode=lambda self, src, src_mask: right_encode(self, src, src_mask).detach(),
)


def rate_with(formula: Callable[[int, int, int], float]) -> Callable:
    """Another schedule, of step, d_model and warmup."""
    return lambda step, model_size, factor, warmup: factor * formula(step, model_size, warmup)


# Equation (3), of s steps, d_model and w updates of warmup
slip("rate_with_max", rate=rate_with(lambda s, d, w: d**-0.5 * max(s**-0.5, s * w**-1.5)))
slip("rate_without_warmup", rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * w**-0.5)))
slip("rate_without_width", rate=rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5)))
slip(
    "rate_one_step_early",
    rate=rate_with(lambda s, d, w: d**-0.5 * min(max(s - 1, 1e-9) ** -0.5, (s - 1) * w**-1.5)),
)
slip(
    "rate_one_step_late",
    rate=rate_with(lambda s, d, w: d**-0.5 * min((s + 1) ** -0.5, (s + 1) * w**-1.5)),
)
slip("rate_only_rises", rate=rate_with(lambda s, d, w: d**-0.5 * s * w**-1.5))
slip("rate_only_falls", rate=rate_with(lambda s, d, w: d**-0.5 * s**-0.5))
slip("rate_grows_with_width", rate=rate_with(lambda s, d, w: d**0.5 * min(s**-0.5, s * w**-1.5)))
slip("rate_divided_by_the_width", rate=rate_with(lambda s, d, w: min(s**-0.5, s * w**-1.5) / d))
slip("rate_of_a_product", rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, (s * w) ** -1.5)))
slip("rate_falls_like_the_step", rate=rate_with(lambda s, d, w: d**-0.5 * min(1 / s, s * w**-1.5)))
slip("rate_beside_its_peak", rate=rate_with(lambda s, d, w: d**-0.5 * min((s / w) ** -0.5, s / w)))
slip("warmup_written_in", rate=rate_with(lambda s, d, w: d**-0.5 * min(s**-0.5, s * 4000**-1.5)))
slip("width_written_in", rate=rate_with(lambda s, d, w: 512**-0.5 * min(s**-0.5, s * w**-1.5)))
slip("usual_betas", Adam=lambda p, lr, betas, eps: right_adam(p, lr, (0.9, 0.999), eps))
slip("betas_swapped", Adam=lambda p, lr, betas, eps: right_adam(p, lr, betas[::-1], eps))
slip("uphill", Adam=adam_with(lambda m, v, c1, c2, eps: -m / c1 / ((v / c2).sqrt() + eps)))
slip("no_second_average", Adam=adam_with(lambda m, v, c1, c2, eps: m / c1))
slip(
    "adam_epsilon_in_the_root",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v / c2 + eps).sqrt()),
)
slip("second_average_of_g", Adam=adam_with(second=average))
slip("adam_one_step_ahead", Adam=adam_with(ahead=1))
slip("first_average_is_a_sum", Adam=adam_with(first=lambda b, m, g: b * m + g))
slip(
    "both_averages_are_sums",
    Adam=adam_with(first=lambda b, m, g: b * m + g, second=lambda b, v, g: b * v + g**2),
)
slip("no_correction_of_m", Adam=adam_with(lambda m, v, c1, c2, eps: m / ((v / c2).sqrt() + eps)))
slip("no_correction_of_v", Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v.sqrt() + eps)))
slip(
    "betas_of_the_corrections_exchanged",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / c2 / ((v / c1).sqrt() + eps)),
)
slip(
    "correction_stands_still",
    Adam=adam_with(lambda m, v, c1, c2, eps: m / 0.1 / ((v / 0.02).sqrt() + eps)),
)
slip(
    "corrected_averages_given_back",
    Adam=adam_with(given_back=lambda old, new, corrected: corrected),
)
slip("old_averages_given_back", Adam=adam_with(given_back=lambda old, new, corrected: old))
slip("averages_exchanged", Adam=adam_with(given_back=lambda old, new, corrected: new[::-1]))
slip("moved_by_the_old_averages", Adam=adam_with(moved_by=lambda old, new, g: old))
slip(
    "moved_by_the_gradient",
    Adam=adam_with(
        lambda m, v, c1, c2, eps: m / ((v / c2).sqrt() + eps),
        moved_by=lambda old, new, g: (g, new[1]),
    ),
)
slip("not_the_root_of_v", Adam=adam_with(lambda m, v, c1, c2, eps: m / c1 / (v / c2 + eps)))
slip(
    "new_and_old_exchanged",
    Adam=adam_with(
        first=lambda b, m, g: average(1 - b, m, g), second=lambda b, v, g: average(1 - b, v, g**2)
    ),
)
slip("second_average_is_a_sum", Adam=adam_with(second=lambda b, v, g: b * v + g**2))
slip("learning_rate_forgotten", Adam=lambda p, lr, betas, eps: right_adam(p, 1.0, betas, eps))
slip("weight_decay", Adam=adam_with(decay=0.01))
slip("another_adam_epsilon", Adam=lambda p, lr, betas, eps: right_adam(p, lr, betas, 1e-8))
