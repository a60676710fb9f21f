"""The examination: what a training curve can't show, cheapest first.

    make = functools.partial(of_document, config)        # makes a fresh model of the document, or
    make = lambda: Patient(predict, model, update, ...)  # one's own, by three functions
    for finding in examine(make, pairs): print(finding)

`wires` to `heart` are for fresh models, and only `heart` trains one, on eight pairs. `swap` to
`references` are for a trained model, which `make` then returns again and again.
"""

import contextlib
import functools
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

import the_annotated_transformer as tat
from practice import mistakes
from practice.wires import MOVED, predict_with, wires
from the_annotated_transformer import BOS, EOS, PAD, Config, Pair

MANY = 1e9
ALONE = 12  # sentences that are translated one by one
DRAWS = 12  # of what chance decides: a layer that half the updates leave out is in one of them
Values = dict[str, float | None]  # by tests; None where one can't be asked


class Patient(NamedTuple):
    """A model as the examination needs it; what calls a function that isn't there is left out."""

    predict: Callable[[list[Pair]], Tensor]  # logits (B, T, vocab); position t is for target t + 1
    model: Any = None  # the module that learns
    update: Any = None  # Callable[[list[Pair]], float]: a step of training; its loss per token
    decode: Any = None  # Callable[[list[Pair]], list[list[int]]]: ids without BOS, up to EOS
    smoothing: float = 0.0
    rate: Callable[[], float] | None = None  # the learning rate of the last update
    expected_weights: int | None = None  # their number by the formula


class Test(NamedTuple):
    """Bounds of what a healthy model shows, what was measured, and what it means outside them."""

    exam: str
    low: float
    high: float
    measured: str
    means: str


# Most bounds lie between what healthy models of the document show, over seeds, sizes and both
# norms, and what the catalogue's mistakes do (benchmarks/results/clinic.jsonl).
BOUNDS: dict[str, tuple] = {
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
    "each word": ("wires", 1e-5, MANY, "the source word that matters least moves one by {:.2g}",
        "part of the source is not read"),
    "twice": ("wires", 0, MOVED, "asked twice, it differs by {:.2g}",
        "dropout is on, or it draws, or keeps what it was asked before"),
    "modes": ("wires", 0, 0.05, "without dropout, training and evaluation differ by {:.2g}",
        "what learns isn't what is evaluated"),
    "dropout": ("wires", 0.28, 1.6, "with dropout, {:.0%} of its predictions are left on average",
        "it drops too much, or doesn't make up for it"),
    "first loss": ("loss", -MANY, 3.0, "the first loss differs from that of guessing by {:+.2g}",
        "the weights start too large"),
    "recomputed": ("loss", -1e-3, 1e-3,
        "the reported loss differs from that of the logits by {:+.2g}",
        "another shift, other pairs, the end left out, padding counted, or a sum"),
    "otherwise": ("loss", -1e-3, 1e-3,
        "the reported loss differs from that of the logits by {:+.2g}",
        "no sum, padding or usual shift explains it: some pairs are others"),
    "term": ("loss", -MANY, MANY, "beside the loss of the pairs, what is reported has {:+.2g}", ""),
    "gradient": ("gradient", 1e-2, 20, "the gradient's norm is {:.2g}", "most have 1 or 2"),
    "again": ("gradient", 0.99, 1.01, "computed again, it is {:.3g} times as large",
        "it isn't cleared between updates, or too soon"),
    "without": ("gradient", 0, 0, "{:.0f} matrices or biases get none",
        "something isn't connected"),
    "step": ("gradient", 1e-9, 5e-3, "the first step is {:.1g} of the weights",
        "no step at all, or one that they don't survive"),
    "steady step": ("gradient", 1e-9, 0.1, "the first step is {:.1g} of the weights",
        "no step at all, or one that they don't survive"),
    "second step": ("gradient", 0, 1.1,
        "from the same gradient, and by its rate, the second step is {:.2g} times the first",
        "Adam's averages begin at zero and aren't corrected"),
    "weights": ("inventory", 0, 0, "it has {:+.0f} weights more than the formula",
        "some are shared or missing"),
    "entropy": ("inventory", 0.75, 0.965, "attention starts with {:.2f} of the largest entropy",
        "scores are too large (near 0) or too small (near 1)"),
    "stream": ("inventory", 0, MOVED, "a silent sublayer changes the stream by {:.2g}",
        "there is no residual"),
    "token to place": ("inventory", 2, 20, "a token weighs {:.2g} times its place",
        "embeddings or positions have another scale"),
    "heart loss": ("heart", -MANY, 0.5, "eight pairs by heart: loss {:+.2g} from the lowest",
        "the update or the pairs"),
    "by heart": ("heart", 0.9, 1, "of eight pairs by heart, {:.0%} are translated",
        "the decoder, or what it was taught"),
    "evaluated": ("heart", -MANY, 0.1,
        "in evaluation, the loss of what it learned is {:+.2g} beside that in training",
        "what learns isn't what is evaluated"),
    "swap": ("swap", 0.5, MANY, "with another's source the loss changes by {:+.2g}",
        "it writes without reading"),
    "overlap": ("translations", 0.3, 1,
        "translations share {:.0%} more with their references than with those of others",
        "what it writes has nothing to do with its source"),
    "ends": ("translations", 0.5, 1, "{:.0%} of translations end by themselves",
        "it never learned to end, or is stopped, or goes on behind the end"),
    "alone": ("translations", 1, 1, "{:.0%} are the same alone and in a batch",
        "padding, the neighbours or chance matter in decoding"),
    "fed back": ("references", 0.97, 1, "{:.0%} of a translation is predicted when fed back",
        "the decoder isn't the model"),
    "peeks": ("references", 0, 0, "{:.0%} change with the reference",
        "that was no translation, or it is drawn by chance"),
}  # fmt: skip
TESTS = {name: Test(*bounds) for name, bounds in BOUNDS.items()}


class Finding(NamedTuple):
    """What a test measured, None if it can't be asked here; as a string, what it means."""

    test: str
    value: float | None

    @property
    def ill(self) -> bool:
        """Whether no healthy model shows this; a value that isn't a number is ill."""
        if self.value is None:
            return False
        return not TESTS[self.test].low <= self.value <= TESTS[self.test].high

    def __str__(self) -> str:
        test = TESTS[self.test]
        if self.value is None:
            return f"---- can't be asked here [{self.test}]"
        means = f": {test.means}" if self.ill else ""
        # NaN compares with nothing, so its own sentence comes in place of the bound's
        if not math.isfinite(self.value):
            means = ": no number: a row of a mask without any key, or a rate that is far too high"
        verdict = "ILL " if self.ill else "well"
        return f"{verdict} {test.measured.format(self.value)}{means} [{self.test}]"


def of_trainer(trainer: tat.Trainer, weights: int | None = None) -> Patient:
    """A model of the document, with its trainer and the decoding of `mistakes.translate`."""
    model = trainer.model
    predict = functools.partial(predict_with, model)

    def rate() -> float:
        return trainer.optimizer.param_groups[0]["lr"]

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return mistakes.translate(model, pairs, max(len(pair.tgt) for pair in pairs) + 3)

    def update(pairs: list[Pair]) -> float:
        # the trainer refuses such a gradient, and changes no weight
        try:
            return trainer.update(pairs)
        except ValueError:  # the gradient isn't finite, which is for the examination to see
            return trainer.gradient(pairs)

    return Patient(predict, model, update, decode, trainer.config.smoothing, rate, weights)


def of_document(c: Config, vocab: int = len(tat.LETTERS), seed: int = 0) -> Patient:
    """A fresh model of the document; its number of weights is that of Table 3."""
    torch.manual_seed(seed)
    # gain and bias of a norm; both matrices of a network with their biases
    norm, ffn = 2 * c.d_model, 2 * c.d_model * c.d_ff + c.d_ff + c.d_model
    # an encoder layer: one attention (four matrices), two norms; a decoder layer: two, three
    layers = c.N * (12 * c.d_model**2 + 2 * ffn + 5 * norm)
    size = layers + vocab * c.d_model + (2 * norm if c.norm == "pre" else 0)
    return of_trainer(tat.Trainer(c.make_model(vocab), c), size)


def drawn_pairs(pairs: list[Pair], length: int = 6) -> list[Pair]:
    """Six pairs of equal lengths, of the words of others: a wire is the same whatever is said."""
    draw = random.Random(0)
    src_words = sorted({i for pair in pairs for i in words(pair.src)})
    tgt_words = sorted({i for pair in pairs for i in words(pair.tgt)})
    drawn = []
    for _ in range(6):
        src = draw.choices(src_words, k=length)
        tgt = draw.choices(tgt_words, k=length)
        drawn.append(Pair([*src, EOS], [BOS, *tgt, EOS]))
    return drawn


def with_next(pairs: list[Pair]) -> list[Pair]:
    """Each source with the target of the next pair."""
    return [Pair(a.src, b.tgt) for a, b in zip(pairs, pairs[1:] + pairs[:1], strict=True)]


def losses(
    patient: Patient, pairs: list[Pair], shift: int = 1, padding: bool = False, among: int = 0
) -> list[float]:
    """The mean loss per word, position t against target t + `shift`, from the logits alone.

    Smoothed as in the document; whoever smooths otherwise has a constant term more. Also the mean
    over pairs of their own means, and the sum divided by `among`.
    """
    eps = patient.smoothing
    log_p = patient.predict(pairs).float().log_softmax(-1)  # (B, T, V)
    # position t against target t + shift; what has no logits is cut off, and padding isn't counted
    y = tat.pad_rows([p.tgt[shift:] for p in pairs])[:, : log_p.size(1)].to(log_p.device)
    log_p = log_p[:, : y.size(1)]  # with a shift of 2, there is one target fewer
    target = log_p.gather(-1, y.unsqueeze(-1)).squeeze(-1)  # (B, T)
    # smoothing asks for all tokens but padding, each with an equal share
    spread = (log_p.sum(-1) - log_p[..., PAD]) / (log_p.size(-1) - 1)
    counts = torch.ones_like(y, dtype=torch.bool) if padding else y != PAD
    by_word = -((1 - eps) * target + eps * spread).where(counts, 0)
    means = [by_word.sum() / counts.sum(), (by_word.sum(1) / counts.sum(1)).mean()]
    return [mean.item() for mean in [*means, by_word.sum() / (among or counts.sum())]]


def own_loss(patient: Patient, pairs: list[Pair]) -> float:
    """The mean loss per word, with the document's label smoothing, from the logits alone."""
    return losses(patient, pairs)[0]


def explanations(patient: Patient, pairs: list[Pair]) -> Iterator[float]:
    """The losses that are reported by who adds up, counts padding or asks for another target."""
    # each is what some mistake reports: a sum, a mean over sentences, other targets, other pairs
    count = sum(len(pair.tgt) - 1 for pair in pairs)
    for loss in losses(patient, pairs):
        yield from (loss * count, loss * count / len(pairs))
    yield from losses(patient, pairs, padding=True)
    for shift in (0, 2):
        yield from losses(patient, pairs, shift, among=count)
    changed_batches = [
        with_next(pairs),
        with_next(pairs[::-1])[::-1],  # with the one before
        [Pair(p.src, p.tgt[:-1]) for p in pairs],  # without the end
        [Pair(p.src, [BOS, *p.tgt]) for p in pairs],  # with two beginnings
    ]
    for batch in changed_batches:
        yield from losses(patient, batch, among=count)


def share_of_pairs(patient: Patient, pairs: list[Pair], usual: list[float]) -> float:
    """Which share of what is reported is the loss of these pairs; 0 if it is of other pairs."""
    # A target's last word is in no input. With another one, a term that is added to the loss stays
    # as it is, and the rest changes as the loss by the logits does, pair by pair. `usual`: what is
    # reported, and the losses by the logits.
    rows = []
    # each quarter of the pairs is changed by itself: four equations for one unknown share
    for first in range(4):
        changed = list(pairs)
        changed[first::4] = [Pair(p.src, [*p.tgt[:-1], p.tgt[1]]) for p in pairs[first::4]]
        rows.append([update(patient, changed)[0], *losses(patient, changed)])
    change, *own_changes = (torch.tensor(rows) - torch.tensor(usual)).T
    for own_change in own_changes:  # of each kind of mean
        share = (change @ own_change / own_change.square().sum()).item()
        if (change - share * own_change).norm() < 0.01 * change.norm():
            return share
    return 0.0


@contextlib.contextmanager
def without_dropout(model: nn.Module) -> Iterator[None]:
    """No dropout inside, in whatever mode the model is, whatever a module calls it."""
    # That is a number in a module named like dropout, or one named so itself.
    with contextlib.ExitStack() as stack:
        for module in model.modules():
            for key, value in [*vars(module).items()]:
                if isinstance(value, float) and "drop" in f"{type(module).__name__} {key}".lower():
                    stack.enter_context(mock.patch.object(module, key, 0.0))
        yield


@contextlib.contextmanager
def in_training(model: nn.Module) -> Iterator[None]:
    """Training mode inside, whoever asks for evaluation; modes and buffers are the same after."""
    # a model may be put into evaluation by whoever predicts: inside, that does nothing
    modes = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    model.train()
    try:
        with mock.patch.object(model, "train", lambda mode=True: model):
            yield
    finally:
        for module, training in modes.items():
            module.training = training
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


@contextlib.contextmanager
def drawn_by(seed: int) -> Iterator[None]:
    """Chance begins with a seed inside, whoever draws, and goes on afterwards as if nothing was."""
    # Python's, NumPy's and PyTorch's chance; a reader's model may draw from any of them
    states = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])


@contextlib.contextmanager
def put_back(model: nn.Module) -> Iterator[list[tuple[nn.Parameter, Tensor]]]:
    """Gives weights and what is in them now; that is in them afterwards, too."""
    before = [(p, p.detach().clone()) for p in model.parameters()]
    yield before
    with torch.no_grad():
        for p, old in before:
            p.copy_(old)


def update(
    patient: Patient, pairs: list[Pair], seed: int = 0
) -> tuple[float, list[Tensor], Tensor]:
    """An update without dropout: its loss, gradients and step; the weights stay as they were."""
    # What can't be switched off is drawn by the seed.
    weights = list(patient.model.parameters())
    gradients: list[Tensor] = []

    def see(*_: Any) -> None:  # before the step: after it, a healthy update may clear them
        gradients[:] = [torch.zeros(1) if p.grad is None else p.grad.flatten() for p in weights]
        gradients[:] = [gradient.clone() for gradient in gradients]

    hook = register_optimizer_step_pre_hook(see)
    try:
        with put_back(patient.model) as before:
            with without_dropout(patient.model), drawn_by(seed):
                loss = patient.update(pairs)
            if not gradients:  # an optimiser that isn't PyTorch's
                see()
            step = torch.cat([(p.detach() - old).flatten() for p, old in before])
    finally:
        hook.remove()
    return loss, gradients, step


def answers_by_weights(patient: Patient, pairs: list[Pair]) -> bool:
    """Whether predictions are those of the model's weights, and not, say, of an average of them."""
    usual = patient.predict(pairs)
    # with other weights the answers must be others, or they are of some other weights
    with put_back(patient.model) as before, drawn_by(0), torch.no_grad():
        for p, _ in before:
            p.add_(torch.randn_like(p))
        return not torch.equal(patient.predict(pairs), usual)


def see_wires(patient: Patient, pairs: list[Pair]) -> Values:
    """What depends on what; nothing, where the answers are drawn by chance."""
    # First it is asked twice: if the answers differ, no difference between others says anything.
    # Then the wires are tried; if one that should be there seems cut, once more after some updates.
    # The pairs are of one length, so that nothing is padded.
    probe = drawn_pairs(pairs)
    once, again = (patient.predict(probe).log_softmax(-1) for _ in range(2))
    differs = (once - again).abs().max().item()
    if not differs <= MOVED:  # no number isn't, either
        return {"twice": differs}
    moved = wires(patient.predict, probe)
    # a matrix that starts at zero, as in some ways to begin, cuts what is behind it
    connections = "past", "source", "source order", "target order"
    if patient.update and min(moved[name] for name in connections if name in moved) <= MOVED:
        awaken(patient, pairs)
        moved = wires(patient.predict, probe)
    values: Values = {**moved, "twice": differs}
    if patient.model:
        values |= see_modes(patient, probe)
    if moved["source"] > MOVED:
        values["each word"] = least_word(patient, pairs)
    if isinstance(patient.model, tat.Transformer):
        values["looks ahead"] = look_ahead(patient.model, probe)
    return values


def look_ahead(model: tat.Transformer, pairs: list[Pair]) -> float:
    """How far another fourth word of a source moves the encoder's vector of its first one."""
    src = torch.tensor([p.src for p in pairs])
    changed = src.index_copy(1, torch.tensor([3]), src[:, :1])  # the first word again
    with torch.inference_mode(), tat.evaluating(model):
        memory, changed_memory = (model.encode(x, tat.source_mask(x)) for x in (src, changed))
    return (memory - changed_memory)[:, 0].abs().max().item()


def awaken(patient: Patient, pairs: list[Pair], updates: int = 20) -> None:
    """Some updates: matrices that start at zero hide until then what is connected behind them."""
    for _ in range(updates):
        patient.update(pairs)


def least_word(patient: Patient, pairs: list[Pair]) -> float:
    """How far the word of the longest source that moves predictions least moves them, in nats."""
    src, tgt = max(pairs, key=lambda pair: len(pair.src))
    # the longest source: what is read in parts shows where there are most of them
    rows = [Pair(src, tgt)]
    for s, i in enumerate(src):  # with another word in the place of each
        changed = [*src[:s], src[0] if src[0] != i else src[1], *src[s + 1 :]]
        if changed != src:
            rows.append(Pair(changed, tgt))
    log_p = patient.predict(rows).log_softmax(-1)
    return (log_p[1:-1] - log_p[0]).abs().amax((1, 2)).min().item()  # all but the end's


def see_modes(patient: Patient, probe: list[Pair]) -> Values:
    """The same asked in training mode as in evaluation, without dropout and with it."""
    log_p = patient.predict(probe).log_softmax(-1)
    if not answers_by_weights(patient, probe):
        return {"dropout": None, "modes": None}
    with in_training(patient.model), drawn_by(0):
        with without_dropout(patient.model):
            trained = torch.stack([patient.predict(probe).log_softmax(-1) for _ in range(DRAWS)])
        mean: Any = sum(patient.predict(probe).log_softmax(-1) for _ in range(8)) / 8
    # how much of the usual prediction is in the mean one: their projection, a constant apart
    usual, dropped = (x - x.mean(-1, keepdim=True) for x in (log_p, mean))
    differs = (trained[0] - log_p).abs().max().item()
    # where chance remains, its dropout has a name that nobody knows
    chance = (trained - trained[0]).abs().max() > MOVED
    return {
        "dropout": ((usual * dropped).sum() / usual.square().sum()).item(),
        "modes": None if chance else differs,
    }


def recompute_loss(patient: Patient, pairs: list[Pair]) -> Values:
    """The first loss beside that of guessing; and the reported one beside that of the logits."""
    pairs = sorted(pairs, key=lambda p: len(p.tgt))
    vocab = patient.predict(pairs[:1]).size(-1)
    by_logits = losses(patient, pairs)  # before an update, which an average of weights follows
    values: Values = {"first loss": by_logits[0] - math.log(vocab)}
    if not (patient.update and patient.model):
        return values
    # with several seeds: a loss that chance moves can't be explained by logits without it
    reported = [update(patient, pairs, seed)[0] for seed in range(DRAWS)]
    if max(reported) - min(reported) > MOVED:  # a dropout with a name that nobody knows
        return values | {"recomputed": None}
    difference = min((reported[0] - loss for loss in by_logits), key=abs)
    # What is reported is the loss by the logits, or explained by a mistake that we know, or has a
    # term more (of which nothing is said), or is of other pairs.
    test = "recomputed"
    if abs(difference) > MOVED:
        # with a share of about 1 it is the loss and a constant: an equal number would be chance
        share = share_of_pairs(patient, pairs, [reported[0], *by_logits])
        candidates = [] if abs(share - 1) < 0.01 else explanations(patient, pairs)
        if not any(math.isclose(reported[0], loss, rel_tol=2e-5) for loss in candidates):
            test = "term" if share > 0 else "otherwise"
    return values | {test: difference}


def take_gradient(patient: Patient, pairs: list[Pair]) -> Values:
    """The gradient of an update, computed twice, and both steps."""
    # Both are from the same weights; but the optimiser remembers the first. What `awaken` does
    # comes last: from there on, the patient is trained.
    size = torch.cat([p.detach().flatten() for p in patient.model.parameters()]).norm().item()
    _, gradients, step = update(patient, pairs)
    rate = patient.rate() if patient.rate else 0.0  # before the second update raises it
    _, same_gradients, second_step = update(patient, pairs)
    second_rate = patient.rate() if patient.rate else 0.0
    # computed twice from the same weights, a gradient is the same, unless it adds to the first
    norm = torch.cat(gradients).norm().item()
    # this model is an average of the one that learns, or its gradients are cleared before the step
    if step.any() and not norm:
        return {"gradient": None}
    values: Values = {"gradient": norm}
    values["again"] = torch.cat(same_gradients).norm().item() / max(norm, 1e-12)
    # What is zero at first may wait for another matrix that starts at zero; so a second look comes
    # after some updates, in which a drawn layer has taken part as well.
    unconnected = {i for i, gradient in enumerate(gradients) if not gradient.any()}
    if unconnected:
        awaken(patient, pairs)
        for seed in range(DRAWS):  # which layers take part may be drawn
            later = update(patient, pairs, seed)[1]
            unconnected = {i for i in unconnected if not later[i].any()}
    values["without"] = len(unconnected)
    # in a warmup the first step is the smallest: the largest is a hundred times that
    values["step" if second_rate > rate else "steady step"] = step.norm().item() / size
    if rate and step.any():
        moved = step != 0  # those without a gradient stay
        sizes = step[moved].abs() / rate
        second_sizes = second_step[moved].abs() / second_rate
        # Adam moves all weights equally far; whoever doesn't is another optimiser
        even = ((sizes / sizes.median() - 1).abs() < 0.02).float().mean() > 0.5
        ratio = (second_sizes.median() / sizes.median()).item()
        values["second step"] = ratio if even else None
    return values


@torch.inference_mode()
def take_inventory(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """A fresh model's number of weights minus the formula's; of a Transformer three values more.

    They are how evenly attention begins, whether each sublayer adds to the stream, and how far two
    tokens differ in the input, divided by how far two neighbouring places do.
    """
    model = patient.model
    values = {}
    if patient.expected_weights is not None:
        values["weights"] = sum(p.numel() for p in model.parameters()) - patient.expected_weights
    if not isinstance(model, tat.Transformer):  # what follows calls its parts by name
        return values
    with tat.recording(model) as maps:
        patient.predict(drawn_pairs(pairs))  # of equal lengths: nothing is padded
    shares = [share_of_largest_entropy(weights) for weights in maps.values()]
    values["entropy"] = sum(shares) / len(shares)
    values["stream"] = change_by_silence(model)
    with tat.evaluating(model):
        # two ordinary tokens (the special ones have the smallest ids), each at eight places
        tokens = sorted({token for pair in pairs for token in pair.src})[-2:]
        first, second = model.src_embed(torch.tensor([[token] * 8 for token in tokens]))
    # (8, d_model) each: at the same place only the token differs, and from place to place only
    # the position
    by_token = (first - second).square().mean()
    by_place = (first[1:] - first[:-1]).square().mean()
    if by_place:  # else there are no positions, which another test says
        values["token to place"] = (by_token / by_place).sqrt().item()
    return values


def share_of_largest_entropy(weights: Tensor) -> float:
    """Entropy of a map's rows beside that of equal weights, where more than one key can be seen."""
    # A row that looks at n keys alike has an entropy of log n.
    visible_keys = (weights > 1e-6).sum(-1)
    rows = weights[visible_keys > 1]
    entropy = -(rows * rows.clamp_min(1e-9).log()).sum(-1)
    return (entropy / visible_keys[visible_keys > 1].log()).mean().item()


def change_by_silence(model: tat.Transformer) -> float:
    """How far a sublayer that gives zeros changes the stream, of all places the worst."""
    x = torch.randn(1, 3, model.generator.proj.in_features)
    changes = [0.0]
    with tat.evaluating(model):
        for module in model.modules():
            if isinstance(module, tat.SublayerConnection):
                # post-norm normalises the sum, too
                expected = module.norm(x) if isinstance(module, tat.PostNorm) else x
                changes.append((module(x, torch.zeros_like) - expected).abs().max().item())
    return max(changes)


def entropy_of_labels(eps: float, vocab: int) -> float:
    """The lowest loss with smoothed labels, which give the right token 1 - eps."""
    return -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / (vocab - 1)) if eps else 0.0


def learn_by_heart(patient: Patient, pairs: list[Pair], updates: int = 150) -> Values:
    """Eight pairs, learnt by the patient's own updates and translated by its own decoder."""
    # Learned once is learned: a high rate may lose it for a while, which is no mistake. So from a
    # third of the updates on it is asked at every fifth, until it knows them; after all updates it
    # is given a hundred more, if its loss had once been low enough. Its loss is the reported one or
    # that by the logits: the first may have a term more, the second may be by an average of the
    # weights. Of an average nothing else is asked, if it moves: it may be far behind.
    # from the shortest to the longest, evenly
    few = sorted(pairs, key=lambda p: len(p.tgt))[:: max(len(pairs) // 8, 1)][:8]
    lowest = entropy_of_labels(patient.smoothing, patient.predict(few).size(-1))
    low_enough = lowest + 0.15  # to be asked: whoever is asked often knows them once by chance
    is_model = answers_by_weights(patient, few)
    at_first = own_loss(patient, few)
    all_reported = []
    losses_so_far = []
    evaluated = math.nan
    share = 1.0
    with without_dropout(patient.model):
        for number in range(1, updates + 101):
            due = number % 5 == 0 and 3 * number >= updates
            # before the update: the weights are those that the reported loss is of
            evaluated = own_loss(patient, few) if due else math.inf
            all_reported.append(patient.update(few))
            loss = min(all_reported[-1], evaluated)
            losses_so_far.append(loss)
            # decoding takes longer than an update: only where the loss gives hope, or time is up
            if due and (number >= updates or loss < low_enough):
                share = exact(patient, few) if patient.decode and is_model else 1.0
                learned = loss < low_enough and share >= 0.9
                if learned or (number >= updates and min(losses_so_far) >= low_enough):
                    break
    values: Values = {"heart loss": losses_so_far[-1] - lowest}
    # the last update is due, as it is a fifth one; what was between the two losses at first is a
    # term of the reported one, and no gap
    gap = evaluated - all_reported[-1] - max(at_first - all_reported[0], 0)
    values["evaluated"] = None if not is_model and evaluated < at_first else gap
    if patient.decode:
        values["by heart"] = share if is_model else None
    return values


def words(ids: list[int]) -> list[int]:
    """What is neither padding, beginning nor end."""
    return [i for i in ids if i > EOS]


def exact(patient: Patient, pairs: list[Pair]) -> float:
    """The share of pairs that are translated word for word, and ended."""
    rows = zip(patient.decode(pairs), pairs, strict=True)
    return sum(words(row) == words(p.tgt) and row[-1:] == [EOS] for row, p in rows) / len(pairs)


def swap_sources(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """What it costs to be asked for another's target; and to be evaluated, beside training."""
    usual = own_loss(patient, pairs)
    values = {"swap": own_loss(patient, with_next(pairs)) - usual}
    if patient.update:
        values["evaluated"] = usual - update(patient, pairs)[0]
    return values


def same(a: list[int], b: list[int]) -> bool:
    """Whether two translations agree; one cut off, without an end, counts as far as it goes."""
    short, long = sorted((a, b), key=len)
    return long == short or (EOS not in short and long[: len(short)] == short)


def translate_alone(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """Translations beside references, and beside those of the same sentences each alone."""
    # what is written, whether it ends, and whether neighbours in a batch change it
    rows = patient.decode(pairs)
    step = max(len(pairs) // ALONE, 1)  # one by one takes long: some are enough
    single = zip(rows[::step], pairs[::step], strict=True)
    agree = [same(row, patient.decode([pair])[0]) for row, pair in single]
    shared = overlap(rows, pairs) - overlap(rows, with_next(pairs))
    ends = sum(row[-1:] == [EOS] for row in rows) / len(rows)
    return {"overlap": shared, "ends": ends, "alone": sum(agree) / len(agree)}


def without_references(patient: Patient, pairs: list[Pair]) -> dict[str, float]:
    """Translations read by the model as targets; and translations with the references of others."""
    # a translation that changes with the reference has read it
    rows = patient.decode(pairs)
    with_next_reference = patient.decode(with_next(pairs))
    fed = [Pair(p.src, [BOS, *row, EOS]) for p, row in zip(pairs, rows, strict=True)]
    # position t predicts token t of the row; what comes behind its end isn't compared
    predicted = 0
    for best, row in zip(patient.predict(fed).argmax(-1).tolist(), rows, strict=True):
        predicted += sum(a == b for a, b in zip(best, row, strict=False))
    peeks = sum(a != b for a, b in zip(rows, with_next_reference, strict=True)) / len(rows)
    return {"fed back": predicted / max(sum(map(len, rows)), 1), "peeks": peeks}


def overlap(rows: list[list[int]], pairs: list[Pair]) -> float:
    """The share of neighbouring words of translations and references that both have."""
    # the Dice coefficient of pairs of neighbouring words, beginning and end among them
    common = total = 0
    for row, pair in zip(rows, pairs, strict=True):
        written = Counter(itertools.pairwise([BOS, *words(row), EOS]))
        reference = Counter(itertools.pairwise([BOS, *words(pair.tgt), EOS]))
        common += 2 * (written & reference).total()
        total += (written + reference).total()
    return common / total


EXAMINATIONS = {
    "wires": see_wires, "loss": recompute_loss, "gradient": take_gradient,
    "inventory": take_inventory, "heart": learn_by_heart,
    "swap": swap_sources, "translations": translate_alone, "references": without_references,
}  # fmt: skip
NEEDS = {
    "gradient": ("update", "model"), "inventory": ("model",), "heart": ("update", "model"),
    "translations": ("decode",), "references": ("decode",),
}  # fmt: skip
FRESH, TRAINED = list(EXAMINATIONS)[:5], list(EXAMINATIONS)[5:]


def decode_to_lists(patient: Patient, pairs: list[Pair]) -> list[list[int]]:
    """What a patient's decoding gives, as lists of numbers."""
    return [[int(i) for i in row] for row in patient.decode(pairs)]


def examine(
    make: Callable[[], Patient], pairs: list[Pair], exams: Iterable[str] = FRESH
) -> list[Finding]:
    """All findings, in the order of `exams`, each of which gets a patient from `make`.

    `pairs`: 32 or more, of different lengths.
    """
    findings = []
    for exam in exams:
        patient = make()  # a fresh one: an examination may train it
        if patient.decode:
            patient = patient._replace(decode=functools.partial(decode_to_lists, patient))
        if all(getattr(patient, name) for name in NEEDS.get(exam, ())):
            values = EXAMINATIONS[exam](patient, pairs)
            for test, value in values.items():
                findings.append(Finding(test, value if value is None else float(value)))
    return findings
