"""The settings of a training run: the document's `Config` plus what real use needs, the presets, and the checks."""

import difflib
import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch

import the_annotated_transformer as document
from the_annotated_transformer import Config, MultiHeadedAttention, Transformer, make_model, speed_up
from translator.architecture import fused_agrees


@dataclass(frozen=True)
class Settings(Config):
    """The document's `Config` plus everything else that a run may set; the defaults are the base model's, plus clipping."""

    d_k: int = 0  # width of a head's queries and keys (3.2.2); 0: d_model / h
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # (3.5)
    tie: Literal["none", "target", "all"] = "all"  # which embeddings share the output matrix (3.4)
    inner_dropout: float = 0.0  # on attention weights (6.3) and inside the feed-forward (the authors' code)
    dropout_after: int = 0  # number of updates without dropout at the start
    r_drop: float = 0.0  # weight of the divergence between two passes with different dropout; 0: one pass
    r_drop_after: int = 0  # number of updates before R-Drop begins
    bpe_dropout: float = 0.0  # share of merges skipped at random in training; 0: none
    optimizer: Literal["adam", "muon"] = "adam"  # (5.3), or Muon for the layers' matrices
    clip: float = 1.0  # largest norm of an update's gradient; 0: no limit
    ema: float = 0.0  # decay of the weights' moving average; 0: none


PRESETS = {
    "tiny": Settings(
        N=4, d_model=128, d_ff=256, h=4, dropout=0.25, norm="pre",
        bpe=6000, tokens_per_batch=5000, optimizer="muon", factor=1.5, warmup=200, ema=0.999,
    ),
    "small": Settings(
        N=3, d_model=256, d_ff=1024, h=8, dropout=0.3, norm="pre",
        bpe=6000, tokens_per_batch=5000, optimizer="muon", warmup=100, ema=0.999,
    ),
    "base": Settings(),
    "big": Settings(d_model=1024, d_ff=4096, h=16, dropout=0.3),
}  # fmt: skip


MEANING = {
    "N": "layers in the encoder, and in the decoder",
    "d_model": "width of the model",
    "d_ff": "width inside the feed-forward",
    "h": "attention heads of a layer",
    "d_k": "width of a head's queries and keys; 0: d_model / h",
    "positions": "sinusoidal or learned",
    "norm": "post: after the addition, as in the paper; pre: before the sublayer",
    "tie": "what shares the output matrix: none, target or all embeddings",
    "bpe": "merges of byte-pair encoding; --words takes whole words instead",
    "tokens_per_batch": "padded target (and source) tokens in an update",
    "accumulate": "micro-batches of an update, to save memory",
    "optimizer": "adam, or muon for the layers' matrices",
    "factor": "scales the learning rate of Equation (3)",
    "warmup": "updates over which the rate rises",
    "clip": "largest norm of an update's gradient; 0: no limit",
    "dropout": "share of zeros on embeddings and sublayers' outputs",
    "dropout_after": "updates without dropout at the start",
    "inner_dropout": "dropout on attention weights and in the feed-forward",
    "smoothing": "label smoothing",
    "r_drop": "weight of R-Drop, which compares two passes; 0: one pass",
    "r_drop_after": "updates without R-Drop at the start",
    "bpe_dropout": "share of merges skipped at random in training",
    "ema": "decay of the weights' moving average; 0: none",
    "seed": "of weights, order and dropout",
}


def describe_settings() -> str:
    """A line for each setting, as an option with its meaning and its value in each preset, or the one that all share."""
    lines = []
    for name, meaning in MEANING.items():
        values = [f"{getattr(preset, name)}" for preset in PRESETS.values()]
        shown = ", ".join(values[:1] if len(set(values)) == 1 else values)
        lines.append(f"--{name.replace('_', '-')}: {meaning} ({shown})")
    return "\n    ".join(lines)


def build_model(config: Settings, vocab: int) -> Transformer:
    """A fresh model with the sizes of a configuration, in its fast form; without the fused kernel if `attention` was changed."""
    model = make_model(
        vocab, vocab, config.N, config.d_model, config.d_ff, config.h, config.dropout,
        norm=config.norm, tie=config.tie, inner_dropout=config.inner_dropout,
        d_k=config.d_k or None, positions=config.positions,
    )  # fmt: skip
    speed_up(model)
    for module in model.modules():
        if isinstance(module, MultiHeadedAttention):
            module.fused &= fused_agrees(document.attention)
    return model


def make_config(preset: str, words: bool, settings: dict[str, str], options: Iterable[str] = ()) -> Settings:
    """A preset with some of its settings changed; raises ValueError if a setting does not exist or does not fit.

    `options` are the command's own options: a misspelt setting may be meant as one of them.
    """
    if words and "bpe" in settings:
        raise ValueError("--words and --bpe exclude each other")
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    return apply_settings(PRESETS[preset], settings | ({"bpe": 0} if words else {}), options)


OTHER_NAMES = {"lr": "factor", "learning_rate": "factor", "batch_size": "tokens_per_batch", "layers": "N", "heads": "h"}


def nearest_option(name: str, options: Iterable[str]) -> str:
    """A question that suggests the setting or option most like an unknown one, if there is any."""
    known = {option.lower(): option.replace("_", "-") for option in [*asdict(Settings()), *options]}
    begun = [option for option in known if len(name) > 2 and option.startswith(name.lower())]
    near = [OTHER_NAMES.get(name.lower(), "").lower()] if name.lower() in OTHER_NAMES else begun
    near = near or difflib.get_close_matches(name.lower(), known, n=1)
    return f"; is it --{known[near[0]]}?" if near else ""


def apply_settings(config: Settings, settings: dict[str, Any], options: Iterable[str] = ()) -> Settings:
    """A configuration with some of its fields changed; a string is converted to the field's type.

    Raises ValueError for an unknown field or an impossible value.
    """
    changed = {}
    for option, value in settings.items():
        name = option.replace("-", "_")
        if name not in asdict(config):
            raise ValueError(f"unknown option --{option.replace('_', '-')}{nearest_option(name, options)}")
        kind = type(getattr(config, name))
        try:
            changed[name] = kind(value)
        except ValueError as error:
            raise ValueError(
                f"--{option.replace('_', '-')}: {value!r} is not {'a number' if kind is float else 'a whole number'}"
            ) from error
    config = replace(config, **changed)
    if not 0 <= config.seed < 2**32:
        raise ValueError(f"--seed must be at least 0 and below 2**32, but it is {config.seed}")
    limits = dict.fromkeys(("accumulate", "tokens_per_batch", "warmup"), (1, math.inf))
    limits |= dict.fromkeys(("bpe", "clip", "d_k", "dropout_after", "factor", "r_drop", "r_drop_after"), (0, math.inf))
    limits |= dict.fromkeys(("bpe_dropout", "ema", "smoothing"), (0, 1))
    for name, (low, high) in limits.items():
        if not low <= getattr(config, name) < high:
            below = "" if high == math.inf else f" and below {high}"
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} must be at least {low}{below}, but it is {getattr(config, name)}")
    if config.optimizer not in ("adam", "muon"):
        raise ValueError(f"--optimizer must be adam or muon, but it is {config.optimizer}")
    if config.bpe_dropout and not config.bpe:
        raise ValueError("--bpe-dropout needs byte-pair encoding, not whole words")
    with torch.device("meta"):
        build_model(config, 8)  # raises ValueError for sizes that do not fit
    return config
