"""The catalogue: mistakes that people make when they build a Transformer, as patches.

    CATALOGUE["no_causal_mask"]        a Mistake: what is written, what people believe, what it does
    with made("no_causal_mask"): ...   the document's module with this mistake; undone at the end

What is written, believed and what it does stands in two tables, mistakes.tsv and slips.tsv. The
rooms beside this file say by the same names what a mistake puts in place of what:
`mistake(NAME, rate=function)`, or with two underscores between a class and its method,
`Trainer__gradient=function`, so `Batch____init__`. It is in force while its model trains and while
it is examined, because whoever made it made it in both. What the document has only inside its
examples (which numbers to learn from, how to translate them) is here as `numbers`, `examined` and
`translate`, so that it can be made wrong as well: call these through the module.
"""

import contextlib
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import torch
from torch import nn

import the_annotated_transformer as tat
from the_annotated_transformer import BOS, EOS, Config, Pair

HEALTHY = Config(
    N=1, d_model=16, d_ff=32, h=2, dropout=0.0, norm="pre", factor=0.7, warmup=100, smoothing=0.0
)  # the settings of the document's German numbers
LONGEST = 8  # tokens that a translation of a number may have


class Mistake(NamedTuple):
    """One mistake: what the tables beside this file say of it, in their columns, and its code."""

    name: str
    # mask, shift, data, attention, heads, positions, norm, loss, schedule, adam, decoding or
    # report; slip for those of SLIPS
    kind: str
    line: str  # what is written, for what should be
    effect: str  # what it does
    section: str = ""  # the heading under which the document explains it
    # the cheapest examination that sees it, a key of examine.EXAMINATIONS; run if only a finished
    # run shows it, reference if only the right numbers do, or none
    seen_by: str = ""
    belief: str = ""  # what the one who writes it believes
    label: str = ""  # what the page's clinic calls it; empty: the small model there can't have it
    harmless: bool = False  # at this size
    trains: bool = True  # False: it is made after training, so that a healthy model serves
    settings: dict[str, Any] = {}
    puts: dict[str, Any] = {}  # what is put in place of what


# what the page's clinic calls the kinds; those of mistakes that it doesn't have are missing
GROUPS = {
    "mask": "Mask and shift", "shift": "Mask and shift", "data": "Data", "attention": "Attention",
    "heads": "Attention", "positions": "Positions and norm", "norm": "Positions and norm",
    "schedule": "Training", "adam": "Training", "decoding": "Writing",
}  # fmt: skip

CATALOGUE: dict[str, Mistake] = {}
SLIPS: dict[str, Mistake] = {}  # of single functions; a whole training hardly shows most of them


def table(name: str) -> dict[str, dict[str, str]]:
    """The rows of a table beside this file, by the names of mistakes."""
    # tabs separate the cells, and no cell holds one; so it needs no quotes, and editors show
    # columns
    header, *lines = Path(__file__).with_name(name).read_text("utf-8").splitlines()
    columns = header.split("\t")
    rows = (dict(zip(columns, line.split("\t"), strict=True)) for line in lines)
    return {row["name"]: row for row in rows}


MISTAKES_TABLE = table("mistakes.tsv")
SLIPS_TABLE = table("slips.tsv")


def mistake(name: str, settings: dict[str, Any] | None = None, **puts: Any) -> None:
    """Enter a mistake in the catalogue: its row of mistakes.tsv, and what it puts where."""
    row: dict[str, Any] = dict(MISTAKES_TABLE[name])
    row["harmless"] = row["harmless"] == "yes"
    row["trains"] = row["trains"] != "no"
    CATALOGUE[name] = Mistake(**row, settings=settings or {}, puts=puts)


def slip(name: str, **puts: Any) -> None:
    """Enter one that is seen only beside a reference with the same weights, of slips.tsv.

    A whole training with it may come out as well as without, so it counts as harmless there.
    """
    row: dict[str, Any] = dict(SLIPS_TABLE[name])
    SLIPS[name] = Mistake(**row, kind="slip", seen_by="reference", harmless=True, puts=puts)


def place(what: str) -> tuple[Any, str]:
    """The owner and the last part of a name that something is put in place of."""
    owner, _, method = what.partition("__")
    if method:
        return getattr(tat, owner, None) or getattr(nn, owner), method
    # what is here is looked up in the package when it is called, so it is replaced there
    if what in ("numbers", "examined", "translate"):
        return sys.modules["practice.mistakes"], what
    return torch.optim if what == "Adam" else tat, what


@contextlib.contextmanager
def put(puts: dict[str, Any]) -> Iterator[None]:
    """The document's module with something in place of something; afterwards all is as before."""
    # one after the other, and undone in the opposite order, also if something fails inside
    with contextlib.ExitStack() as stack:
        for name, new in puts.items():
            stack.enter_context(mock.patch.object(*place(name), new))
        yield


@contextlib.contextmanager
def made(name: str) -> Iterator[Mistake]:
    """The document's module with this mistake in it."""
    mistake = CATALOGUE.get(name) or SLIPS[name]
    with put(mistake.puts):
        yield mistake


def settings_with(name: str) -> Config:
    """The settings of a model that has this mistake."""
    return Config(**(vars(HEALTHY) | CATALOGUE[name].settings))


# --- What the document has only inside its examples ---


def numbers(known: list[int], held_out: list[int], draw: random.Random) -> Iterator[list[int]]:
    """The numbers of one update after the other: a quarter of them small."""
    while True:
        yield [*draw.choices(range(100), k=8), *draw.choices(known, k=24)]


def examined(pairs: list[Pair]) -> list[Pair]:
    """The pairs that a trained model is asked about, as the reader's code encodes them."""
    return pairs


def translate(
    model: nn.Module, pairs: list[Pair], longest: int = LONGEST, start: int = BOS,
    mask: bool = True, decode: Callable | None = None,
) -> list[list[int]]:  # fmt: skip
    """Greedy translations of the sources, without BOS, up to and with EOS; the targets are not
    looked at. By the document's naive loop, or another one."""
    # `start`, `mask` and `decode` are what a mistake may do otherwise
    src = tat.pad_rows([pair.src for pair in pairs])
    src_mask = tat.source_mask(src) if mask else None
    ids = (decode or tat.greedy_decode_naive)(model, src, src_mask, longest + 1, start)
    return [until_end(row) for row in ids[:, 1:].tolist()]


def until_end(row: list[int]) -> list[int]:
    """Ids up to and with the first EOS."""
    return row[: row.index(EOS) + 1] if EOS in row else row


def cached(model: nn.Module, pairs: list[Pair], longest: int = LONGEST) -> list[list[int]]:
    """The same translations by the document's decoder that keeps keys and values."""
    return right_translate(model, pairs, longest, decode=tat.greedy_decode)


# What is replaced, as it is in the document: mistakes call it.
right_attention, right_batch, right_gradient = tat.attention, tat.make_batch, tat.Trainer.gradient
right_loss, right_smoothed, right_rate = tat.batch_loss, tat.smoothed_loss, tat.rate
right_encode, right_encoding, right_step = (
    tat.Transformer.encode, tat.positional_encoding, tat.CachedDecoder.step
)  # fmt: skip
right_initialise, right_init = tat.initialise, tat.Trainer.__init__
right_numbers, right_translate = numbers, translate
right_source, right_target, right_adam = tat.source_mask, tat.target_mask, torch.optim.Adam
