"""The gain from each optimisation: the time of a task without it divided by the time with it, all others kept.

    python benchmarks/gains.py --model RUN [--data SOURCE] [--preset tiny] [--rounds R] [--out FILE.jsonl]

Training: three updates on the same sentences. Decoding: the sentences of the split `val`, with the weights of RUN, greedy and
with the recommended beam. The variants take turns, round by round; a figure is the median over the rounds. All variants
compute the same (for dropout: the same distribution), except that batches in random order are other batches.
"""

import argparse
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks.rows import RESULTS, append, origin, portable
from translator import decoding
from translator.decoding import CachedDecoder, greedy_decode, make_search, translate_lines
from translator.settings import PRESETS, Settings, build_model
from translator.sources import load_pairs
from translator.trainer import Trainer
from translator.vocabulary import encode_pairs
from translator.weights import load_translator

UPDATES = 3  # per round


@contextmanager
def plain_attention() -> Iterator[None]:
    """Equation (1) step by step, instead of PyTorch's fused kernel."""

    def attend(Q, K, V, attn_mask=None, dropout_p=0.0):
        return tat.attention(Q, K, V, attn_mask, lambda w: F.dropout(w, dropout_p))[0]

    with patch.object(F, "scaled_dot_product_attention", attend):
        yield


@contextmanager
def whole_loss() -> Iterator[None]:
    """All scores at once, and autograd instead of p - q."""

    def loss(x, weight, target, *_):
        return tat.smoothed_loss(x.squeeze(0) @ weight.T, target)

    with patch.object(tat.ChunkedLoss, "apply", loss):
        yield


@contextmanager
def usual_dropout() -> Iterator[None]:
    """PyTorch's own dropout."""
    with patch.object(tat.FastDropout, "forward", nn.Dropout.forward):
        yield


def batches_of(pairs: list[tat.Pair], budget: int, sort: bool) -> list[list[tat.Pair]]:
    """The first batches of an epoch: grouped by length, or random sentences up to the same number of padded tokens."""
    if sort:
        rows = tat.sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], budget, seed=0)
        return [[pairs[i] for i in row] for row in rows[:UPDATES]]
    found, draw = [[]], random.Random(0)
    while len(found) <= UPDATES:
        pair = draw.choice(pairs)
        longest = max(len(side) for p in [*found[-1], pair] for side in p)
        if longest * (len(found[-1]) + 1) > budget:
            found.append([])
        found[-1].append(pair)
    return found[:UPDATES]


def training_gains(config: Settings, texts: list[tuple[str, str]], rounds: int) -> dict[str, float]:
    """The time per target token of each variant, divided by the first variant's."""
    tokenizer = tat.learn_bpe(texts, config.bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    trainer = Trainer(build_model(config, len(tokenizer)), config)
    slow_adam = torch.optim.Adam(trainer.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, foreach=False)
    variants = {
        "as it is": nullcontext,
        "attention written out": plain_attention,
        "loss of all scores at once": whole_loss,
        "PyTorch's dropout": usual_dropout,
        "Adam as a loop": lambda: patch.object(trainer, "optimizers", [slow_adam]),
        "batches in random order": nullcontext,
    }

    def measure(name: str) -> float:
        batches = batches_of(pairs, config.tokens_per_batch, sort=name != "batches in random order")
        with variants[name]():
            trainer.update(batches[0])
            start = time.perf_counter()
            for batch in batches:
                trainer.update(batch)
            return (time.perf_counter() - start) / sum(len(p.tgt) - 1 for batch in batches for p in batch)

    return in_turns(measure, variants, rounds)


@torch.inference_mode()
def no_cache(model: tat.Transformer, src: torch.Tensor, src_mask: torch.Tensor, max_len: int) -> torch.Tensor:
    """Greedy decoding of the whole prefix at every step; sentences that have ended leave the batch."""
    memory, going = model.encode(src, src_mask), torch.arange(len(src))
    ys = torch.full((len(src), max_len), tat.PAD).index_fill_(1, torch.tensor([0]), tat.BOS)
    for t in range(1, max_len):
        x = model.decode(memory, src_mask, ys[going, :t], tat.subsequent_mask(t))
        ys[going, t] = model.generator.logits(x[:, -1]).max(-1).indices
        rows = (ys[going, t] != tat.EOS).nonzero().flatten()
        memory, src_mask, going = memory[rows], src_mask[rows], going[rows]
        if len(going) == 0:
            break
    return ys


@torch.inference_mode()
def all_stay(model: tat.Transformer, src: torch.Tensor, src_mask: torch.Tensor, max_len: int) -> torch.Tensor:
    """Greedy decoding; sentences that have ended stay in the batch until all have ended."""
    decoder, ended = CachedDecoder(model, src, src_mask), torch.zeros(len(src), dtype=torch.bool)
    ys = [torch.full((len(src),), tat.BOS)]
    while len(ys) < max_len and not ended.all():
        best = decoder.step(ys[-1]).max(-1).indices.masked_fill(ended, tat.PAD)
        ys, ended = [*ys, best], ended | (best == tat.EOS)
    return torch.stack(ys, 1)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """All threads on one batch."""
    with patch.object(decoding, "in_threads", lambda work, items, device: [work(item) for item in items]):
        yield


@contextmanager
def unsorted() -> Iterator[None]:
    """Batches in the order of the input."""
    with patch.object(decoding, "sorted", lambda rows, key: list(rows), create=True):
        yield


@contextmanager
def plain_topk() -> Iterator[None]:
    """PyTorch's topk over all tokens, instead of the blocks with the largest maxima."""
    with patch.object(decoding, "largest", lambda x, k: x.topk(k)):
        yield


@contextmanager
def scores_as_they_are() -> Iterator[None]:
    """The output matrix without padding or transposition."""
    with patch.object(decoding, "padded_logits", lambda generator: generator.logits):
        yield


@contextmanager
def row_by_row(model: tat.Transformer) -> Iterator[None]:
    """The layers' matrices in memory as training leaves them."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.contiguous()
    try:
        yield
    finally:
        tat.transpose_in_memory(model)


def decoding_gains(model: Path, lines: list[str], rounds: int) -> dict[str, dict[str, float]]:
    """The time of each variant for all lines, divided by the first variant's; all must give the same translations."""
    translator = load_translator(model)
    greedy = {
        "as it is": (nullcontext, greedy_decode),
        "no key/value cache": (nullcontext, no_cache),
        "ended sentences stay": (nullcontext, all_stay),
        "batches in the input's order": (unsorted, greedy_decode),
        "all threads on one batch": (one_at_a_time, greedy_decode),
    }
    search = make_search(tat.BEAM, tat.ALPHA)
    changes = {
        "as it is": nullcontext,
        "topk over all symbols": plain_topk,
        "output matrix as it is": scores_as_they_are,
        "layers' matrices row by row": lambda: row_by_row(translator.model),
    }
    beam = {name: (change, search) for name, change in changes.items()}
    return {task: times(translator, lines, kinds, rounds) for task, kinds in (("decoding", greedy), ("beam", beam))}


def times(translator: tat.Translator, lines: list[str], variants: dict, rounds: int) -> dict[str, float]:
    """The times of one task's variants, divided by the first variant's."""
    expected = translate_lines(translator, lines, variants["as it is"][1])

    def measure(name: str) -> float:
        change, search = variants[name]
        with change():
            start = time.perf_counter()
            found = translate_lines(translator, lines, search)
            seconds = time.perf_counter() - start
        same = sum(a == b for a, b in zip(found, expected, strict=True)) / len(lines)
        if same < 0.99:  # rounding may decide between two equally likely tokens
            raise AssertionError(f"{name}: {same:.1%} of the translations are the same")
        return seconds

    return in_turns(measure, variants, rounds)


def in_turns(measure: Callable[[str], float], variants: dict, rounds: int) -> dict[str, float]:
    """For each variant, the median over the rounds of its time divided by the first variant's in the same round."""
    found = [{name: measure(name) for name in variants} for _ in range(rounds)]
    return {
        name: round(statistics.median(times[name] / times["as it is"] for times in found), 2)
        for name in list(variants)[1:]
    }


def main(arguments: list[str]) -> None:
    """Run the benchmark, print and append its row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True, help="the folder of a run")
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--preset", default="tiny", choices=PRESETS)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens-per-batch", type=int, help="in place of the preset's")
    parser.add_argument("--sentences", type=int, help="only the first so many")
    parser.add_argument("--out", type=Path, default=RESULTS / "gains.jsonl")
    options = parser.parse_args(arguments)
    row = origin(shlex.join(["python", "benchmarks/gains.py", *map(portable, arguments)]))
    row |= {"preset": options.preset, "data": portable(options.data), "rounds": options.rounds}
    lines = [source for source, _ in load_pairs(options.data, "val")][: options.sentences]
    config = PRESETS[options.preset]
    config = replace(config, optimizer="adam", tokens_per_batch=options.tokens_per_batch or config.tokens_per_batch)
    row["training"] = training_gains(config, load_pairs(options.data, "train"), options.rounds)
    row |= decoding_gains(options.model, lines, options.rounds)
    for task in ("training", "decoding", "beam"):
        print(*(f"{task:<10}{name:<30}{ratio:>6.2f} times the time" for name, ratio in row[task].items()), sep="\n")
    append(options.out, row)


if __name__ == "__main__":
    main(sys.argv[1:])
