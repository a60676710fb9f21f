"""The examination: what a training curve can't show, cheapest first.

    make = functools.partial(of_document, config)       # makes a fresh model of the document, or
    make = lambda: Patient(predict, model, update, ...)  # one's own, by three functions
    for finding in examine(make, pairs): print(finding)

`wires`, `loss`, `gradient` and `inventory` need no training; `heart` trains on eight pairs. `swap`,
`translations` and `references` are for a trained model, which `make` then returns again and again.
"""

import contextlib
import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice import mistakes
from practice.wires import wires
from the_annotated_transformer import BOS, EOS, PAD, Config, Pair

MOVED = (
    1e-3  # nats; rounding moves a log-probability by 1e-6, a wire of a fresh model by 1e-2 or more
)
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
    """The bounds of what a healthy model shows, what was measured, and what it means outside them."""

    exam: str
    low: float
    high: float
    measured: str
    means: str


TESTS = {
    "future": Test("wires", 0, MOVED, "a later word moves a prediction by {:.2g}", "it sees the future"),
    "past": Test("wires", MOVED, MANY, "an earlier word moves one by {:.2g}", "it doesn't see the past"),
    "padding": Test("wires", 0, MOVED, "padding moves one by {:.2g}", "padding isn't masked"),
    "neighbours": Test("wires", 0, MOVED, "alone and in a batch, one differs by {:.2g}",
        "a pair depends on its neighbours, or on its row"),
    "source": Test("wires", MOVED, MANY, "another source moves one by {:.2g}", "it ignores the source"),
    "source order": Test("wires", MOVED, MANY, "the source's order moves one by {:.2g}",
        "the encoder has no positions"),
    "target order": Test("wires", MOVED, MANY, "the target's order moves one by {:.2g}",
        "the decoder has no positions"),
    "looks ahead": Test("wires", MOVED, MANY, "a source word moves the vector of the first by {:.2g}",
        "the encoder sees only what came before"),
    "twice": Test("wires", 0, MOVED, "asked twice, it differs by {:.2g}", "dropout is on"),
    "first loss": Test("loss", -MANY, 2.0, "the first loss is that of guessing {:+.2g}",
        "the weights start too large"),
    "recomputed": Test("loss", -1e-3, 1e-3, "the reported loss is that of the logits {:+.2g}",
        "another shift, padding counted, or a sum"),
    "halves": Test("loss", -1e-3, 1e-3, "the loss of a batch is that of its halves {:+.2g}",
        "it isn't a mean over words"),
    "gradient": Test("gradient", 1e-2, 20, "the gradient's norm is {:.2g}", "most have 1 or 2"),
    "again": Test("gradient", 0.99, 1.01, "computed again, it is {:.3g} times as large",
        "it is never cleared"),
    "without": Test("gradient", 0, 0, "{:.0f} matrices or biases get none", "something isn't connected"),
    "step": Test("gradient", 1e-9, 5e-3, "the first step is {:.1g} of the weights",
        "no step at all, or one that they don't survive"),
    "step by rate": Test("gradient", 0.9, 1.1, "the first step is {:.2g} times the rate",
        "this isn't Adam as in the paper, whose first step is the rate"),
    "weights": Test("inventory", 0, 0, "it has {:+.0f} weights more than the formula",
        "some are shared or missing"),
    "entropy": Test("inventory", 0.75, 0.965, "attention starts with {:.2f} of the largest entropy",
        "scores are too large or too small"),
    "rows": Test("inventory", 0, 0.01, "the weights of a query miss 1 by {:.2g}", "another softmax"),
    "stream": Test("inventory", 0, MOVED, "a silent sublayer changes the stream by {:.2g}",
        "there is no residual"),
    "token to place": Test("inventory", 2, 20, "a token weighs {:.2g} times its place",
        "embeddings or positions have another scale"),
    "dropout": Test("inventory", 0, 0, "dropout is without effect in training ({:.0f})", "eval() too soon"),
    "heart loss": Test("heart", -MANY, 0.15, "eight pairs by heart: the loss ends {:+.2g} from the lowest",
        "the update or the pairs"),
    "by heart": Test("heart", 0.9, 1, "and {:.0%} are translated", "the decoder, or what it was taught"),
    "swap": Test("swap", 0.5, MANY, "with another's source the loss changes by {:+.2g}",
        "it writes without reading"),
    "alone": Test("translations", 1, 1, "{:.0%} are the same alone and in a batch",
        "padding matters in decoding"),
    "fed back": Test("references", 0.97, 1, "{:.0%} of a translation is predicted when fed back",
        "the decoder isn't the model"),
    "peeks": Test("references", 0, 0, "{:.0%} change with the reference", "that was no translation"),
}  # fmt: skip


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

    @torch.inference_mode()
    def predict(pairs: list[Pair]) -> Tensor:
        batch = tat.make_batch(pairs)
        with tat.evaluating(trainer.model):
            return trainer.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return mistakes.translate(trainer.model, pairs, max(len(p.tgt) for p in pairs) + 3)

    def rate() -> float:
        return trainer.optimizer.param_groups[0]["lr"]

    eps = trainer.config.smoothing
    return Patient(predict, trainer.model, trainer.update, decode, eps, rate, weights)


def of_document(c: Config, vocab: int = len(tat.LETTERS), seed: int = 0) -> Patient:
    """A fresh model of the document; its number of weights is that of Table 3."""
    torch.manual_seed(seed)
    norm, ffn = 2 * c.d_model, 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    layers = c.N * (12 * c.d_model**2 + 2 * ffn + 5 * norm)
    size = layers + vocab * c.d_model + (2 * norm if c.norm == "pre" else 0)
    return of_trainer(tat.Trainer(c.make_model(vocab), c), size)


def strangers(pairs: list[Pair], n: int = 6, length: int = 6) -> list[Pair]:
    """Pairs of equal lengths, of the words of others: a wire is the same whatever is said."""
    draw, found = random.Random(0), []
    src, tgt = (
        sorted({i for side in sides for i in side if i > EOS}) for sides in zip(*pairs, strict=True)
    )
    for _ in range(n):
        found.append(
            Pair(draw.choices(src, k=length) + [EOS], [BOS] + draw.choices(tgt, k=length) + [EOS])
        )
    return found


def turned(pairs: list[Pair]) -> list[Pair]:
    """The next pair of each."""
    return pairs[1:] + pairs[:1]


def own_loss(patient: Patient, pairs: list[Pair]) -> float:
    """The mean loss per word, position t against target t + 1, from the logits alone."""
    log_p, eps = patient.predict(pairs).float().log_softmax(-1), patient.smoothing
    spread, losses = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.size(-1) - 1), []
    for i, pair in enumerate(pairs):
        for t, word in enumerate(pair.tgt[1:][: log_p.size(1)]):
            losses.append(-(1 - eps) * log_p[i, t, word] - eps * spread[i, t])
    return torch.stack(losses).mean().item()


@contextlib.contextmanager
def kept(model: nn.Module, dropout: bool = False) -> Iterator[None]:
    """The weights as before, afterwards; inside, no dropout unless it is asked for."""
    before, rates = [(p, p.detach().clone()) for p in model.parameters()], []
    for module in model.modules() if not dropout else ():
        for key in {"p", "dropout"} & vars(module).keys():  # nn.MultiheadAttention has a number
            if isinstance(vars(module)[key], float):
                rates.append((module, key, vars(module)[key]))
                setattr(module, key, 0.0)
    yield
    for module, key, rate in rates:
        setattr(module, key, rate)
    with torch.no_grad():
        for p, old in before:
            p.copy_(old)


def tokens(pairs: list[Pair]) -> int:
    """How many tokens are predicted."""
    return sum(len(p.tgt) - 1 for p in pairs)


def update(patient: Patient, pairs: list[Pair], dropout: bool = False) -> float:
    """The loss that an update reports; the weights stay as they were."""
    with kept(patient.model, dropout):
        return patient.update(pairs)


def see_wires(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What depends on what."""
    some = strangers(pairs)
    found = wires(patient.predict, some)
    if isinstance(patient.model, tat.Transformer):
        src = torch.tensor([p.src for p in some])
        other = src.index_copy(1, torch.tensor([3]), src[:, :1])  # the first word again
        with torch.inference_mode(), tat.evaluating(patient.model):
            one, two = (patient.model.encode(x, tat.source_mask(x)) for x in (src, other))
        found["looks ahead"] = (one - two)[:, 0].abs().max().item()
    once, again = (patient.predict(some).log_softmax(-1) for _ in range(2))
    return found | {"twice": (once - again).abs().max().item()}


def recompute_loss(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """The loss that the update reports, beside that of the logits and that of two halves."""
    own, guess = own_loss(patient, pairs), math.log(patient.predict(pairs[:1]).size(-1))
    found, pairs = {"first loss": own - guess}, sorted(pairs, key=lambda p: len(p.tgt))
    if patient.update:
        whole, parts = update(patient, pairs), 0.0
        for half in (pairs[: len(pairs) // 2], pairs[len(pairs) // 2 :]):
            parts += update(patient, half) * tokens(half) / tokens(pairs)
        found |= {"recomputed": whole - own, "halves": whole - parts}
    return found


def take_gradient(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """The gradient of an update, computed twice, and the first step."""
    weights, norms, steps = list(patient.model.parameters()), [], None
    for _ in range(2):
        with kept(patient.model):
            before = torch.cat([p.detach().flatten() for p in weights])
            patient.update(pairs)
            grads = [torch.zeros(1) if p.grad is None else p.grad.flatten() for p in weights]
            if steps is None:
                steps = torch.cat([p.detach().flatten() for p in weights]) - before
                rate = patient.rate() if patient.rate else 0.0
            norms.append(torch.cat(grads).norm().item())
    found = {"gradient": norms[0], "again": norms[1] / max(norms[0], 1e-12)}
    found["without"] = sum(not grad.any() for grad in grads)
    found["step"] = (steps.norm() / before.norm()).item()
    return found | (
        {"step by rate": (steps[steps != 0].abs().median() / rate).item()}
        if rate and steps.any()
        else {}
    )


def take_inventory(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What can be counted in a fresh model, and how large its parts are."""
    model, found = patient.model, {}
    if patient.weights is not None:
        found["weights"] = sum(p.numel() for p in model.parameters()) - patient.weights
    if patient.update and any(isinstance(m, nn.Dropout) and m.p for m in model.modules()):
        found["dropout"] = float(update(patient, pairs) == update(patient, pairs, dropout=True))
    if not isinstance(model, tat.Transformer):
        return found
    with torch.inference_mode(), tat.recording(model) as maps, tat.evaluating(model):
        patient.predict(strangers(pairs))  # nothing is padded
        x, even, missed, stream = torch.randn(1, 3, model.generator.proj.in_features), [], [], [0.0]
        for weights in maps.values():
            keys = (weights > 1e-6).sum(-1)
            rows = weights[keys > 1]
            entropy = -(rows * rows.clamp_min(1e-9).log()).sum(-1)
            even.append((entropy / keys[keys > 1].log()).mean().item())
            missed.append((weights.sum(-1) - 1).abs().max().item())
        for part in (m for m in model.modules() if isinstance(m, tat.SublayerConnection)):
            expected = part.norm(x) if isinstance(part, tat.PostNorm) else x
            silent = part(x, torch.zeros_like) - expected
            stream.append(silent.abs().max().item())
        ids = torch.tensor([[a] * 8 for a in pairs[0].src[:2]])
        a, b = model.src_embed(ids)
        place = (a[1:] - a[:-1]).square().mean().sqrt().item()
    found |= {"entropy": sum(even) / len(even), "rows": max(missed), "stream": max(stream)}
    return found | (
        {"token to place": (a - b).square().mean().sqrt().item() / place} if place else {}
    )


def learn_by_heart(patient: Patient, pairs: list[Pair], updates: int = 150) -> dict[str, float]:
    """Eight pairs, learnt by the patient's own updates and translated by its own decoder."""
    few, eps = (
        sorted(pairs, key=lambda p: len(p.tgt))[:: max(len(pairs) // 8, 1)][:8],
        patient.smoothing,
    )
    words = patient.predict(few).size(-1) - 1
    lowest = -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / words) if eps else 0.0
    for _ in range(updates):
        loss = patient.update(few)
    return {"heart loss": loss - lowest} | (
        {"by heart": exact(patient, few)} if patient.decode else {}
    )


def words(ids: list[int]) -> list[int]:
    """What is neither padding, beginning nor end."""
    return [i for i in ids if i > EOS]


def exact(patient: Patient, pairs: list[Pair]) -> float:
    """The share of pairs that are translated word for word, and ended."""
    rows = zip(patient.decode(pairs), pairs, strict=True)
    return sum(words(row) == words(p.tgt) and row[-1:] == [EOS] for row, p in rows) / len(pairs)


def swap_sources(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What it costs to read another's source."""
    others = [Pair(b.src, a.tgt) for a, b in zip(pairs, turned(pairs), strict=True)]
    return {"swap": own_loss(patient, others) - own_loss(patient, pairs)}


def translate_alone(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """The same sentences, all in a batch and each alone."""
    both = zip(patient.decode(pairs), pairs, strict=True)
    return {"alone": sum(row == patient.decode([p])[0] for row, p in both) / len(pairs)}


def without_references(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """Translations read by the model as targets; and translations with the references of others."""
    rows, right, total = patient.decode(pairs), 0, 0
    strange = patient.decode(
        [Pair(a.src, b.tgt) for a, b in zip(pairs, turned(pairs), strict=True)]
    )
    fed = [Pair(p.src, [BOS, *row, EOS]) for p, row in zip(pairs, rows, strict=True)]
    for best, row in zip(patient.predict(fed).argmax(-1).tolist(), rows, strict=True):
        right, total = (
            right + sum(a == b for a, b in zip(best, row, strict=False)),
            total + len(row),
        )
    peeks = sum(a != b for a, b in zip(rows, strange, strict=True)) / len(rows)
    return {"fed back": right / max(total, 1), "peeks": peeks}


EXAMINATIONS = {
    "wires": see_wires, "loss": recompute_loss, "gradient": take_gradient, "inventory": take_inventory,
    "heart": learn_by_heart, "swap": swap_sources, "translations": translate_alone,
    "references": without_references,
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
