"""The settings of a training run, the presets, and the model that settings make.

`Settings` lists every setting once: its type, range and choices are what the command line accepts
(cyclopts reads them), and its docstring is the help.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_type_hints

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveFloat
from cyclopts.validators import Number

if TYPE_CHECKING:  # the command line reads this room, and PyTorch takes seconds to import
    from the_annotated_transformer import Part, Transformer


def whole(kind: type, tokens: Any) -> int:
    """A number from the command line that has to be whole; by itself, cyclopts would round it."""
    if not tokens[0].value.lstrip("+-").isdecimal():
        raise ValueError(f"{tokens[0].value!r} is not a whole number")
    return int(tokens[0].value)


Integer = Annotated[int, Parameter(converter=whole)]
Count = Annotated[Integer, Parameter(validator=Number(gte=1))]
Whole = Annotated[Integer, Parameter(validator=Number(gte=0))]
Share = Annotated[float, Parameter(validator=Number(gte=0, lt=1))]
DROPOUT_PER_PASS, MOST_DROPOUT = 0.01, 0.25  # of a dropout that grows


@dataclass(frozen=True)
class Settings:
    """The document's `Config` plus what real use needs.

    The defaults are the base model's, plus clipping.
    """

    N: Annotated[Count, Parameter(name="--N")] = 6
    """layers in the encoder, and in the decoder"""
    d_model: Count = 512
    """width of the model"""
    d_ff: Count = 2048
    """width inside the feed-forward"""
    h: Count = 8
    """attention heads of a layer"""
    d_k: Whole = 0
    """width of a head's queries and keys; 0: d_model / h"""
    positions: Literal["sinusoidal", "learned", "rotary"] = "sinusoidal"
    """what tells the order of the tokens (3.5; rotary: since_2017)"""
    norm: Literal["post", "pre"] = "post"
    """post: after the addition, as in the paper; pre: before the sublayer"""
    tie: Literal["none", "target", "all"] = "all"
    """which embeddings share the output matrix (3.4)"""
    bpe: Whole = 37_000
    """merges of byte-pair encoding; --words takes whole words instead"""
    tokens_per_batch: Count = 25_000
    """padded target (and source) tokens in an update"""
    accumulate: Count = 1
    """micro-batches of an update, to save memory"""
    optimizer: Literal["adam", "muon"] = "adam"
    """adam, or muon for the layers' matrices"""
    factor: NonNegativeFloat = 1.0
    """scales the learning rate of Equation (3)"""
    warmup: Count = 4000
    """updates over which the rate rises"""
    schedule: Literal["paper", "linear"] = "paper"
    """after the warmup: paper: Equation (3); linear: in a straight line to zero at the run's end"""
    clip: NonNegativeFloat = 1.0
    """largest norm of an update's gradient; 0: no limit"""
    dropout: Share | None = 0.1
    """share of zeros on embeddings and sublayers' outputs; None: it grows by 0.01 with each pass
    through the text, up to 0.25"""
    inner_dropout: Share = 0.0
    """dropout on attention weights (6.3) and inside the feed-forward (the authors' code)"""
    smoothing: Share = 0.1
    """label smoothing (5.4)"""
    ema: Share = 0.0
    """decay of the weights' moving average; 0: none"""
    seed: Annotated[Integer, Parameter(validator=Number(gte=0, lt=2**32))] = 0
    """of weights, order and dropout"""


PRESETS = {
    "tiny": Settings(
        N=4, d_model=128, d_ff=256, h=4, positions="rotary", dropout=None, norm="pre",
        bpe=6000, tokens_per_batch=2000, optimizer="muon", factor=1.0, warmup=100,
        schedule="linear", ema=0.999,
    ),
    "small": Settings(
        N=3, d_model=256, d_ff=1024, h=8, dropout=0.3, norm="pre",
        bpe=6000, tokens_per_batch=5000, optimizer="muon", warmup=100, ema=0.999,
    ),
    "base": Settings(),
    "big": Settings(d_model=1024, d_ff=4096, h=16, dropout=0.3),
}  # fmt: skip
# settings that only older runs have, and what they were
GONE = {"dropout_after": 0, "r_drop": 0.0, "r_drop_after": 0, "bpe_dropout": 0.0}


@dataclass
class Progress:
    """How far a run has come."""

    step: int = 0  # updates
    epoch: int = 0
    batch: int = 0  # batches of this epoch that are done
    tokens: int = 0
    seconds: float = 0.0  # of training
    skipped: int = 0  # updates whose gradient was not finite
    best: float = math.inf  # the lowest validation loss
    bleu: float | None = None  # the highest of a validation; None: the loss says which is best
    since_best: int = 0  # checkpoints after the best
    owed: bool = False  # it was stopped where a checkpoint was due, which has a validation
    left: float = 1.0  # the share of the run that was still to come before the last update

    def validated(self, loss: float, bleu: float | None) -> bool:
        """Note a validation; returns whether it is the best so far: by BLEU, which users see."""
        # The loss decides below one BLEU, which is chance, and in a run that began by the loss.
        if bleu is not None and self.best == math.inf:
            self.bleu = 0.0
        if bleu is None or self.bleu is None or max(bleu, self.bleu) < 1:
            better = loss < self.best
        else:
            better = bleu > self.bleu
        self.best = min(loss, self.best)
        self.bleu = None if self.bleu is None else max(bleu or 0.0, self.bleu)
        self.since_best = 0 if better else self.since_best + 1
        return better


@dataclass(frozen=True)
class Limits:
    """When a run ends (without any of these after 30 minutes), and when there is a checkpoint."""

    minutes: PositiveFloat | None = None
    """stop after this many minutes; 30 if no limit is given"""
    epochs: Count | None = None
    """stop after this many passes through the data"""
    steps: Count | None = None
    """stop after this many updates"""
    patience: Count | None = None
    """stop after this many checkpoints whose translations are no better (BLEU)"""
    checkpoint_every: Count = 200
    """updates between two checkpoints"""
    checkpoint_minutes: PositiveFloat | None = None
    """minutes between two checkpoints, if that is sooner"""

    def shares(self, progress: Progress, in_epoch: float = math.inf) -> dict[str, float]:
        """How much of each limit is used up, by the clock of this process; 1 is all of it."""
        epochs = progress.epoch + progress.batch / in_epoch  # unless that is given, whole ones only
        used = {"minutes": progress.seconds / 60, "epochs": epochs}
        used |= {"steps": progress.step, "patience": progress.since_best}
        limits = {name: getattr(self, name) for name in used}
        if all(limit is None for limit in limits.values()):
            limits["minutes"] = 30
        return {name: used[name] / limit for name, limit in limits.items() if limit is not None}

    def left(self, progress: Progress, in_epoch: float) -> float | None:
        """The share of the run that is still to come; None if nothing but patience ends it."""
        # patience may end a run at any time, so nobody can fall to zero by it
        shares = self.shares(progress, in_epoch)
        shares.pop("patience", None)
        return max(0.0, 1 - max(shares.values())) if shares else None

    def spent(self, progress: Progress) -> bool:
        """Whether the run has to end."""
        return max(self.shares(progress).values()) >= 1

    def due(self, progress: Progress, saved_at: float) -> bool:
        """Whether a checkpoint is due; the last one ended after `saved_at` seconds of training."""
        minutes = self.checkpoint_minutes or math.inf
        late = progress.seconds - saved_at >= 60 * minutes
        return late or progress.step % self.checkpoint_every == 0


def options() -> type:
    """The settings as options of a command; their help shows the presets."""
    # Only those that were given have a value.
    from docstring_parser import parse_from_object

    help = {param.arg_name: param.description for param in parse_from_object(Settings).params}
    # help and choices are those of the dataclass; a default would hide whether an option was given
    hints = {}
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        values = [f"{getattr(preset, name)}" for preset in PRESETS.values()]
        values = ["growing" if value == "None" else value for value in values]
        presets = ", ".join(values[:1] if len(set(values)) == 1 else values)
        hints[name] = Annotated[hint, Parameter(help=f"{help[name]} ({presets})")]
    changes: Any = TypedDict
    return changes("Changes", hints, total=False)


def growing_dropout(passes: float) -> float:
    """The dropout after so many passes through the text: text that is new needs none."""
    return min(MOST_DROPOUT, DROPOUT_PER_PASS * passes)


def saved_settings(saved: dict[str, Any]) -> Settings:
    """The settings that `config.json` of a run or a model lists.

    Raises TypeError for one that never was.
    """
    if not isinstance(saved, dict):
        raise TypeError("it lists no settings")
    return Settings(**{name: value for name, value in saved.items() if name not in GONE})


def make_settings(preset: str, words: bool, changes: dict[str, Any]) -> Settings:
    """A preset with some settings changed; raises ValueError for what does not fit together."""
    if words and "bpe" in changes:
        raise ValueError("--words and --bpe exclude each other")
    whole_words: dict[str, Any] = {"bpe": 0} if words else {}
    settings = replace(PRESETS[preset], **changes | whole_words)
    import torch

    with torch.device("meta"):
        build_model(settings, 8)
    return settings


def build_model(
    settings: Settings, vocab: int, marian: dict[str, Any] | None = None, **parts: "Part"
) -> "Transformer":
    """A fresh model of these sizes, with the cheaper dropout; ValueError for sizes that do not fit.

    `marian`: for a model that Marian trained, in what it differs from the paper's, as arguments of
    `make_marian`. parts: other parts, as arguments of `make_model`.
    """
    from since_2017 import make_marian, modern, with_fast_dropout
    from the_annotated_transformer import make_model

    # a dropout that grows is set before each update
    sizes = (settings.d_model, settings.d_ff, settings.h, settings.dropout or 0.0)
    options = {
        "norm": settings.norm, "tie": settings.tie, "inner_dropout": settings.inner_dropout,
        "d_k": settings.d_k or None,
    }  # fmt: skip
    rotary = settings.positions == "rotary"
    own_parts: dict[str, Any] = modern("rotary") if rotary else {"positions": settings.positions}
    if marian:
        model = make_marian(vocab, *sizes, **options, **marian)
    else:
        model = make_model(vocab, vocab, settings.N, *sizes, **options, **own_parts | parts)
    if rotary and (settings.d_k or settings.d_model // settings.h) % 2:
        raise ValueError(
            "rotary positions turn pairs of numbers, so the width of a head has to be even"
        )
    return with_fast_dropout(model)
