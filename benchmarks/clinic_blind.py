"""A blind trial of the examination: mistakes nobody chose, healthy models of untried kinds."""

import ast
import functools
import inspect
import itertools
import math
import random
import textwrap
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

import the_annotated_transformer as tat
from benchmarks.clinic import findings, judged, mean, numbers_of, quick_adam, train
from benchmarks.shared import RESULTS, Rows
from practice import examine
from practice.mistakes import HEALTHY
from the_annotated_transformer import Config, Pair, number_pair
from translator.settings import Count, Whole

CODE = (  # where a mistake may be made: all that lies between pairs and an update
    "attention", "subsequent_mask", "source_mask", "target_mask", "split_heads",
    "positional_encoding", "pad_rows", "rate", "smoothed_loss", "batch_loss", "make_batch",
    "initialise", "Batch.__init__", "Embeddings.forward", "PositionalEncoding.forward",
    "MultiHeadedAttention.keys_values", "MultiHeadedAttention.attend", "MultiHeadedAttention.weigh",
    "join_heads", "SublayerConnection.forward", "PositionwiseFeedForward.forward",
    "EncoderLayer.forward", "Encoder.forward", "DecoderLayer.forward", "Decoder.forward",
    "Transformer.encode", "Transformer.decode", "Transformer.forward", "Trainer.gradient",
    "Trainer.update",
)  # fmt: skip
SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
CONFIGS = {
    "N": (1, 2, 3), "d_model": (16, 32, 64), "h": (1, 2, 4), "norm": ("pre", "post"),
    "dropout": (0.0, 0.1, 0.3),
}  # fmt: skip


def changes(tree: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """Every small change of a function's code, as what it is and how to make it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
            yield "another operator", functools.partial(setattr, node, "op", SWAPS[type(node.op)]())
        if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
            opposite = SWAPS[type(node.ops[0])]()
            yield "the opposite comparison", functools.partial(setattr, node, "ops", [opposite])
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield "a number one higher", functools.partial(setattr, node, "value", node.value + 1)
            yield "a number one lower", functools.partial(setattr, node, "value", node.value - 1)
        if isinstance(node, ast.Call) and len(node.args) > 1:
            swapped = [*node.args[1::-1], *node.args[2:]]
            yield "two arguments change places", functools.partial(setattr, node, "args", swapped)
        for name in ("value", "func", "elt"):
            inner = getattr(node, name, None)
            if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
                yield "a call is left out", functools.partial(setattr, node, name, inner.func.value)
        for body in (getattr(node, "body", None),):
            for at, line in enumerate(body if isinstance(body, list) and len(body) > 1 else ()):
                if isinstance(line, ast.Expr | ast.Assign | ast.AugAssign):
                    yield "a line is left out", functools.partial(body.__setitem__, at, ast.Pass())


def mutant(seed: int) -> tuple[str, str, Any, str, Any]:
    """A change drawn by chance: where, what, the owner, the name and the new function."""
    draw = random.Random(seed)
    where = draw.choice(CODE)
    owner, _, name = where.rpartition(".")
    place = getattr(tat, owner) if owner else tat
    tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(place, name))))
    what, change = draw.choice(list(changes(tree)))
    before = ast.unparse(tree)
    change()
    after = ast.unparse(ast.fix_missing_locations(tree))
    lines = zip(before.splitlines(), after.splitlines(), strict=False)
    line = next((new.strip() for old, new in lines if old != new), "")
    made: dict[str, Any] = {}
    exec(compile(tree, where, "exec"), vars(tat), made)
    return where, f"{what}: {line}", place, name, made[name]


def behaviour(pairs: list, config: Config = HEALTHY) -> list[float]:
    """Losses and weights of some updates, to see whether a change changes anything."""
    torch.manual_seed(0)
    trainer = tat.Trainer(config.make_model(len(tat.LETTERS)), config)
    losses = [trainer.update(pairs[i::4]) for i in range(4)]
    return [*losses, *(p.double().sum().item() for p in trainer.model.parameters())]


def trained(updates: int) -> dict[str, float]:
    """What a short training shows: its loss, and how many held-out numbers are then translated."""
    with quick_adam():
        trainer, losses, _ = train(HEALTHY, 0, updates)
    if not math.isfinite(losses[-1]):
        return {"updates": len(losses), "exact": 0.0}
    pairs = [number_pair(n) for n in numbers_of(0)[1]]
    exact = examine.exact(examine.of_trainer(trainer), pairs)
    return {"updates": updates, "loss": mean(losses[-100:]), "exact": round(exact, 4)}


def examined(
    about: dict[str, Any], make: Callable[[], examine.Patient], pairs: list[Pair]
) -> dict[str, Any]:
    """A row of what the examination of a fresh model finds."""
    return judged(about | {"fresh": findings(make, pairs, examine.FRESH)})


def changed(seed: int, pairs: list[Pair], usual: list[float], updates: int) -> dict[str, Any]:
    """A row of a random change: whether it does anything, what is found, what training comes to."""
    where, what, place, name, new = mutant(seed)
    row: dict[str, Any] = {"kind": "mistake", "draw": seed}
    row |= {"where": where, "change": what, "ill": []}
    with mock.patch.object(place, name, new):
        try:
            row["works"] = "the same" if behaviour(pairs) == usual else "differently"
            if row["works"] == "differently":
                row = examined(row, functools.partial(examine.of_document, HEALTHY), pairs)
                row["trained"] = trained(updates)
        except Exception as error:  # whatever a random change may do
            row["works"] = type(error).__name__
    return row


def benchmark(
    *, mistakes: Count = 30, healthy: Count = 20, first: Whole = 0, updates: Count = 500,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Examine fresh models with a random change of the document's code,
    and healthy ones of random kinds.

    A change that raises an error is noted and not examined; nor is one that changes neither a loss
    nor a weight. The others are trained as well, to see which of them do harm.

    Args:
        mistakes: so many changes that make a difference are drawn
        healthy: models whose sizes and settings are drawn
        first: the first number that draws
        updates: of the training of a changed model
    """
    small = random.Random(0).sample(range(100), 10)
    pairs = [number_pair(n) for n in small + numbers_of(0)[1][:22]]
    usual = behaviour(pairs)
    rows.add({"kind": "as it is"} | {"trained": trained(updates)})
    draws = itertools.count(first)
    while mistakes:
        row = changed(next(draws), pairs, usual, updates)
        mistakes -= row["works"] == "differently"
        rows.add(row)
        told = (row.get(key, "") for key in ("works", "where", "change", "ill", "trained"))
        print(*told, sep=" | ", flush=True)
    for seed in range(first, first + healthy):
        draw = random.Random(seed)
        drawn = {key: draw.choice(values) for key, values in CONFIGS.items()}
        config = Config(**vars(HEALTHY) | drawn | {"d_ff": 2 * drawn["d_model"]})
        make = functools.partial(examine.of_document, config, seed=seed)
        row = examined({"kind": "healthy", "draw": seed, "settings": drawn}, make, pairs)
        rows.add(row)
        print("healthy", drawn, row["ill"], sep=" | ", flush=True)
