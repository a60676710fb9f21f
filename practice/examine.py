"""The examination: what a training curve can't show, cheapest first.

    make = functools.partial(of_document, config)        # makes a fresh model of the document, or
    make = lambda: Patient(predict, model, update, ...)  # one's own, by three functions
    for finding in examine(make, pairs): print(finding)

`wires` to `heart` are for fresh models, and only `heart` trains one, on eight pairs. `swap` to
`references` are for a trained model, which `make` then returns again and again.
"""

import contextlib
import functools
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import the_annotated_transformer as tat
from practice import mistakes
from practice.wires import MOVED, predict_with, wires
from the_annotated_transformer import BOS, EOS, PAD, Config, Pair

MANY = 1e9


class Patient(NamedTuple):
    """A model as the examination needs it; what calls a function that isn't there is left out."""

    predict: Callable[[list[Pair]], Tensor]  # logits (B, T, vocab); position t is for target t + 1
    model: nn.Module | None = None
    update: Callable[[list[Pair]], float] | None = None  # a step of training; its loss per token
    decode: Callable[[list[Pair]], list[list[int]]] | None = None  # ids without BOS, up to EOS
    smoothing: float = 0.0
    rate: Callable[[], float] | None = None  # Adam's learning rate in the last update
    weights: int | None = None  # how many it should have


class Test(NamedTuple):
    """Bounds of what a healthy model shows, what was measured, and what it means outside them."""

    exam: str
    low: float
    high: float
    measured: str
    means: str


TESTS = {
    "future": ("wires", 0, MOVED, "a later word moves a prediction by {:.2g}",
        "it sees the future"),
    "past": ("wires", MOVED, MANY, "an earlier word moves one by {:.2g}",
        "it doesn't see the past"),
    "padding": ("wires", 0, MOVED, "padding moves one by {:.2g}", "padding isn't masked"),
    "neighbours": ("wires", 0, MOVED, "alone and in a batch, one differs by {:.2g}",
        "a pair depends on its neighbours, or on its row"),
    "source": ("wires", MOVED, MANY, "another source moves one by {:.2g}", "it ignores the source"),
    "source order": ("wires", MOVED, MANY, "the source's order moves one by {:.2g}",
        "the encoder has no positions"),
    "target order": ("wires", MOVED, MANY, "the target's order moves one by {:.2g}",
        "the decoder has no positions"),
    "looks ahead": ("wires", MOVED, MANY, "a source word moves the vector of the first by {:.2g}",
        "the encoder sees only what came before"),
    "twice": ("wires", 0, MOVED, "asked twice, it differs by {:.2g}", "dropout is on"),
    "first loss": ("loss", -MANY, 2.0, "the first loss differs from that of guessing by {:+.2g}",
        "the weights start too large"),
    "recomputed": ("loss", -1e-3, 1e-3,
        "the reported loss differs from that of the logits by {:+.2g}",
        "another shift, other pairs, padding counted, or a sum"),
    "gradient": ("gradient", 1e-2, 20, "the gradient's norm is {:.2g}", "most have 1 or 2"),
    "again": ("gradient", 0.99, 1.01, "computed again, it is {:.3g} times as large",
        "it is never cleared"),
    "without": ("gradient", 0, 0, "{:.0f} matrices or biases get none",
        "something isn't connected"),
    "step": ("gradient", 1e-9, 5e-3, "the first step is {:.1g} of the weights",
        "no step at all, or one that they don't survive"),
    "step by rate": ("gradient", 0.9, 1.1, "the first step is {:.2g} times the rate",
        "this isn't Adam as in the paper, whose first step is the rate"),
    "weights": ("inventory", 0, 0, "it has {:+.0f} weights more than the formula",
        "some are shared or missing"),
    "entropy": ("inventory", 0.75, 0.965, "attention starts with {:.2f} of the largest entropy",
        "scores are too large (near 0) or too small (near 1)"),
    "stream": ("inventory", 0, MOVED, "a silent sublayer changes the stream by {:.2g}",
        "there is no residual"),
    "token to place": ("inventory", 2, 20, "a token weighs {:.2g} times its place",
        "embeddings or positions have another scale"),
    "heart loss": ("heart", -MANY, 0.15, "eight pairs by heart: loss {:+.2g} from the lowest",
        "the update or the pairs"),
    "by heart": ("heart", 0.9, 1, "of eight pairs by heart, {:.0%} are translated",
        "the decoder, or what it was taught"),
    "swap": ("swap", 0.5, MANY, "with another's source the loss changes by {:+.2g}",
        "it writes without reading"),
    "alone": ("translations", 1, 1, "{:.0%} are the same alone and in a batch",
        "padding matters in decoding"),
    "fed back": ("references", 0.97, 1, "{:.0%} of a translation is predicted when fed back",
        "the decoder isn't the model"),
    "peeks": ("references", 0, 0, "{:.0%} change with the reference", "that was no translation"),
}  # fmt: skip
TESTS = {name: Test(*about) for name, about in TESTS.items()}


class Finding(NamedTuple):
    """What a test measured; as a string, what it means."""

    test: str
    value: float

    @property
    def ill(self) -> bool:
        """Whether no healthy model shows this; a value that isn't a number is ill."""
        return not TESTS[self.test].low <= self.value <= TESTS[self.test].high

    def __str__(self) -> str:
        test = TESTS[self.test]
        means = f": {test.means}" if self.ill else ""
        return f"{'ILL ' if self.ill else 'well'} {test.measured.format(self.value)}{means}"


def of_trainer(trainer: tat.Trainer, weights: int | None = None) -> Patient:
    """A model of the document, with its trainer and the decoding of `mistakes.translate`."""
    model, optimizer = trainer.model, trainer.optimizer
    predict = functools.partial(predict_with, model)
    rate = lambda: optimizer.param_groups[0]["lr"]  # noqa: E731

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return mistakes.translate(model, pairs, max(len(pair.tgt) for pair in pairs) + 3)

    return Patient(predict, model, trainer.update, decode, trainer.config.smoothing, rate, weights)


def of_document(c: Config, vocab: int = len(tat.LETTERS), seed: int = 0) -> Patient:
    """A fresh model of the document; its number of weights is that of Table 3."""
    torch.manual_seed(seed)
    norm, ffn = 2 * c.d_model, 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    layers = c.N * (12 * c.d_model**2 + 2 * ffn + 5 * norm)
    size = layers + vocab * c.d_model + (2 * norm if c.norm == "pre" else 0)
    return of_trainer(tat.Trainer(c.make_model(vocab), c), size)


def strangers(pairs: list[Pair], length: int = 6) -> list[Pair]:
    """Six pairs of equal lengths, of the words of others: a wire is the same whatever is said."""
    draw, sides = random.Random(0), zip(*pairs, strict=True)
    src, tgt = (sorted({i for ids in side for i in ids if i > EOS}) for side in sides)
    drawn = [(draw.choices(src, k=length), draw.choices(tgt, k=length)) for _ in range(6)]
    return [Pair([*one, EOS], [BOS, *other, EOS]) for one, other in drawn]


def with_next(pairs: list[Pair]) -> list[Pair]:
    """Each source with the target of the next pair."""
    return [Pair(a.src, b.tgt) for a, b in zip(pairs, pairs[1:] + pairs[:1], strict=True)]


def own_loss(patient: Patient, pairs: list[Pair]) -> float:
    """The mean loss per word, position t against target t + 1, from the logits alone."""
    log_p, eps = patient.predict(pairs).float().log_softmax(-1), patient.smoothing
    y = tat.pad_rows([p.tgt[1:] for p in pairs])[:, : log_p.size(1)].to(log_p.device)
    log_p = log_p[:, : y.size(1)]
    right = log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)
    others = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.size(-1) - 1)
    return -((1 - eps) * right + eps * others)[y != PAD].mean().item()


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """No dropout inside, whatever mode the model is in."""
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            for key in {"p", "dropout"} & vars(module).keys():  # nn.MultiheadAttention: a number
                if isinstance(vars(module)[key], float):
                    stack.enter_context(mock.patch.object(module, key, 0.0))
        yield


def update(patient: Patient, pairs: list[Pair]) -> tuple[float, list[Tensor], Tensor]:
    """An update without dropout: its loss, gradients and step; the weights stay as they were."""
    weights = list(patient.model.parameters())
    before = [p.detach().clone() for p in weights]
    gradients: list[Tensor] = []

    def see(*_: Any) -> None:  # before the step: after it, a healthy update may clear them
        gradients[:] = [torch.zeros(1) if p.grad is None else p.grad.flatten() for p in weights]
        gradients[:] = [gradient.clone() for gradient in gradients]

    hook = register_optimizer_step_pre_hook(see)
    try:
        with without_dropout(patient.model):
            loss = patient.update(pairs)
    finally:
        hook.remove()
    if not gradients:  # an optimiser that isn't PyTorch's
        see()
    with torch.no_grad():
        step = torch.cat([(p - old).flatten() for p, old in zip(weights, before, strict=True)])
        for p, old in zip(weights, before, strict=True):
            p.copy_(old)
    return loss, gradients, step


def see_wires(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What depends on what."""
    some = strangers(pairs)
    found, model = wires(patient.predict, some), patient.model
    if isinstance(model, tat.Transformer):
        src = torch.tensor([p.src for p in some])
        other = src.index_copy(1, torch.tensor([3]), src[:, :1])  # the first word again
        with torch.inference_mode(), tat.evaluating(model):
            one, two = (model.encode(x, tat.source_mask(x)) for x in (src, other))
        found["looks ahead"] = (one - two)[:, 0].abs().max().item()
    once, again = (patient.predict(some).log_softmax(-1) for _ in range(2))
    return found | {"twice": (once - again).abs().max().item()}


def recompute_loss(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """The first loss beside that of guessing; and the reported one beside that of the logits."""
    pairs = sorted(pairs, key=lambda p: len(p.tgt))
    own = own_loss(patient, pairs)
    found = {"first loss": own - math.log(patient.predict(pairs[:1]).size(-1))}
    return found | ({"recomputed": update(patient, pairs)[0] - own} if patient.update else {})


def take_gradient(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """The gradient of an update, computed twice, and the first step."""
    size = torch.cat([p.detach().flatten() for p in patient.model.parameters()]).norm().item()
    _, once, step = update(patient, pairs)
    rate, norm = patient.rate() if patient.rate else 0.0, torch.cat(once).norm().item()
    again = torch.cat(update(patient, pairs)[1]).norm().item()
    found = {"gradient": norm, "again": again / max(norm, 1e-12)}
    found |= {"without": sum(not g.any() for g in once), "step": step.norm().item() / size}
    typical = {"step by rate": step[step != 0].abs().median().item() / rate} if rate else {}
    return found | (typical if step.any() else {})


@torch.inference_mode()
def take_inventory(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What can be counted in a fresh model, and how large its parts are."""
    model, found = patient.model, {}
    if patient.weights is not None:
        found["weights"] = sum(p.numel() for p in model.parameters()) - patient.weights
    if not isinstance(model, tat.Transformer):
        return found
    with tat.recording(model) as maps:
        patient.predict(strangers(pairs))  # nothing is padded
    even, stream, x = [], [0.0], torch.randn(1, 3, model.generator.proj.in_features)
    for weights in maps.values():
        keys = (weights > 1e-6).sum(-1)
        rows = weights[keys > 1]
        entropy = -(rows * rows.clamp_min(1e-9).log()).sum(-1)
        even.append((entropy / keys[keys > 1].log()).mean().item())
    with tat.evaluating(model):
        for part in (m for m in model.modules() if isinstance(m, tat.SublayerConnection)):
            expected = part.norm(x) if isinstance(part, tat.PostNorm) else x
            stream.append((part(x, torch.zeros_like) - expected).abs().max().item())
        a, b = model.src_embed(torch.tensor([[token] * 8 for token in pairs[0].src[:2]]))
    found |= {"entropy": sum(even) / len(even), "stream": max(stream)}
    place, token = (d.square().mean().sqrt().item() for d in (a[1:] - a[:-1], a - b))
    return found | ({"token to place": token / place} if place else {})


def learn_by_heart(patient: Patient, pairs: list[Pair], updates: int = 150) -> dict[str, float]:
    """Eight pairs, learnt by the patient's own updates and translated by its own decoder."""
    few = sorted(pairs, key=lambda p: len(p.tgt))[:: max(len(pairs) // 8, 1)][:8]
    eps, others, lowest = patient.smoothing, patient.predict(few).size(-1) - 1, 0.0
    if eps:
        lowest = -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / others)
    with without_dropout(patient.model):
        for _ in range(updates):
            loss = patient.update(few)
    known = {"by heart": exact(patient, few)} if patient.decode else {}
    return {"heart loss": loss - lowest} | known


def words(ids: list[int]) -> list[int]:
    """What is neither padding, beginning nor end."""
    return [i for i in ids if i > EOS]


def exact(patient: Patient, pairs: list[Pair]) -> float:
    """The share of pairs that are translated word for word, and ended."""
    rows = zip(patient.decode(pairs), pairs, strict=True)
    return sum(words(row) == words(p.tgt) and row[-1:] == [EOS] for row, p in rows) / len(pairs)


def swap_sources(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What it costs to be asked for another's target."""
    return {"swap": own_loss(patient, with_next(pairs)) - own_loss(patient, pairs)}


def same(a: list[int], b: list[int]) -> bool:
    """Whether two translations agree; one cut off, without an end, counts as far as it goes."""
    short, long = sorted((a, b), key=len)
    return long == short or (EOS not in short and long[: len(short)] == short)


def translate_alone(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """The same sentences, all in a batch and each alone."""
    both = zip(patient.decode(pairs), pairs, strict=True)
    return {"alone": sum(same(row, patient.decode([p])[0]) for row, p in both) / len(pairs)}


def without_references(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """Translations read by the model as targets; and translations with the references of others."""
    rows, with_others = (patient.decode(some) for some in (pairs, with_next(pairs)))
    fed = [Pair(p.src, [BOS, *row, EOS]) for p, row in zip(pairs, rows, strict=True)]
    said = zip(patient.predict(fed).argmax(-1).tolist(), rows, strict=True)
    same = [a == b for best, row in said for a, b in zip(best, row, strict=False)]
    peeks = sum(a != b for a, b in zip(rows, with_others, strict=True)) / len(rows)
    return {"fed back": sum(same) / max(sum(map(len, rows)), 1), "peeks": peeks}


EXAMINATIONS = {
    "wires": see_wires, "loss": recompute_loss, "gradient": take_gradient,
    "inventory": take_inventory, "heart": learn_by_heart,
    "swap": swap_sources, "translations": translate_alone, "references": without_references,
}  # fmt: skip
NEEDS = {"gradient": "update", "heart": "update", "translations": "decode", "references": "decode"}
FRESH, TRAINED = list(EXAMINATIONS)[:5], list(EXAMINATIONS)[5:]


def examine(
    make: Callable[[], Patient], pairs: list[Pair], exams: Iterable[str] = FRESH
) -> list[Finding]:
    """All findings, in the order of `exams`, each of which gets a patient from `make`.

    `pairs`: 32 or more, of different lengths.
    """
    findings = []
    for exam in exams:
        patient = make()
        if exam not in NEEDS or getattr(patient, NEEDS[exam]):
            found = EXAMINATIONS[exam](patient, pairs)
            findings += [Finding(test, float(value)) for test, value in found.items()]
    return findings
