"""How many times as long a task takes without each idea that makes it fast."""

import random
import statistics
import timeit
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import torch
from torch import Tensor, nn

import since_2017 as since
import the_annotated_transformer as tat
from benchmarks import shared
from benchmarks.shared import RESULTS, Changes, Data, Preset, Rounds, Rows, Sentences, epoch
from translator import search as searching
from translator import trainer as training
from translator.__main__ import Model
from translator.corpus import encode_pairs
from translator.model_folder import model_folder, read_translator
from translator.search import Search, StepwiseDecoder
from translator.settings import Settings, build_model
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer

UPDATES = 3  # per round
AS_IT_IS = "as it is"


# --- Training ---
def whole_loss(generator: tat.Generator, x: Tensor, target: Tensor, eps: float) -> Tensor:
    """As the document's `chunked_loss`, but all scores at once, and autograd instead of p - q."""
    return tat.smoothed_loss(generator.logits(x), target, eps)


def random_batches(pairs: list[tat.Pair], budget: int) -> list[list[tat.Pair]]:
    """As an epoch's first UPDATES batches, but of random sentences, up to as many padded tokens."""
    found, draw = [[]], random.Random(0)
    while len(found) <= UPDATES:
        pair = draw.choice(pairs)
        longest = max(len(side) for p in [*found[-1], pair] for side in p)
        if longest * (len(found[-1]) + 1) > budget:
            found.append([])
        found[-1].append(pair)
    return found[:UPDATES]


def training_gains(
    settings: Settings, texts: list[tuple[str, str]], rounds: int
) -> dict[str, float]:
    """For each idea, the time per target token without it divided by the time with it."""
    tokenizer = tat.learn_bpe(texts, settings.bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    trainer = ParallelTrainer(build_model(settings, len(tokenizer)), settings)
    slow_adam = torch.optim.Adam(
        trainer.model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, foreach=False
    )
    unsorted, fused = "batches in random order", "fused attention"
    changes: dict[str, Callable[[], AbstractContextManager]] = {
        AS_IT_IS: nullcontext,
        fused: lambda: patch.object(tat.MultiHeadedAttention, "weigh", since.FusedAttention.weigh),
        "loss of all scores at once": lambda: patch.object(training, "chunked_loss", whole_loss),
        "PyTorch's dropout": lambda: patch.object(since.FastDropout, "forward", nn.Dropout.forward),
        "Adam as a loop": lambda: patch.object(trainer, "optimizers", [slow_adam]),
        unsorted: nullcontext,
    }

    def measure(name: str) -> float:
        make = random_batches if name == unsorted else epoch
        batches = make(pairs, settings.tokens_per_batch)[:UPDATES]
        with changes[name]():
            trainer.update(batches[0])
            seconds = timeit.timeit(lambda: list(map(trainer.update, batches)), number=1)
        return seconds / sum(len(p.tgt) - 1 for batch in batches for p in batch)

    found = in_turns(measure, changes, rounds)
    # the program does without the fused kernel
    return {"attention written out": 1 / found.pop(fused)} | found


# --- Decoding ---
class UncachedDecoder(StepwiseDecoder):
    """Without the key/value cache: at every step the decoder reads the whole prefix of each row."""

    def __init__(self, model: tat.Transformer, src: Tensor, src_mask: Tensor):
        self.model, self.memory = model, model.encode(src, src_mask)
        self.src_mask = src_mask.expand(len(src), 1, -1)
        self.prefixes: Tensor | None = None  # (rows, t)

    @torch.no_grad()
    def step(self, tokens: Tensor, live: Tensor | None = None) -> Tensor:
        """As StepwiseDecoder.step."""
        live = torch.ones(len(self.memory), 1) if live is None else live
        sources, new = live.nonzero()[:, 0], tokens.unsqueeze(1)  # which source each row has
        self.prefixes = new if self.prefixes is None else torch.cat((self.prefixes, new), dim=1)
        future = tat.subsequent_mask(self.prefixes.size(1)).to(tokens.device)
        x = self.model.decode(self.memory[sources], self.src_mask[sources], self.prefixes, future)
        return self.model.generator.logits(x[:, -1])

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """As StepwiseDecoder.select."""
        self.prefixes = self.prefixes[rows]
        if sources is not None:
            self.memory, self.src_mask = self.memory[sources], self.src_mask[sources]


class StayingDecoder(StepwiseDecoder):
    """Nothing leaves: each step computes every place of every sentence, until all have ended."""

    def __init__(self, model: tat.Transformer, src: Tensor, src_mask: Tensor):
        super().__init__(model, src, src_mask)
        self.sources = torch.arange(len(src), device=src.device)
        self.going = self.sources  # those that the search has not dropped
        self.places: Tensor | None = None  # the place that each of its rows has among all

    def step(self, tokens: Tensor, live: Tensor | None = None) -> Tensor:
        """As StepwiseDecoder.step; the empty places read padding."""
        live = torch.ones(len(self.going), 1, device=tokens.device) > 0 if live is None else live
        beam = live.size(1)
        places = (self.going.unsqueeze(1) * beam + torch.arange(beam, device=tokens.device))[live]
        everything = tokens.new_full((len(self.sources) * beam,), tat.PAD)
        everything[places] = tokens
        if self.places is not None and not torch.equal(places, self.places):
            order = torch.arange(len(everything), device=tokens.device)
            order[places] = self.places
            super().select(order)
        self.places = places
        return super().step(everything)[places]

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """As StepwiseDecoder.select, but only noted: the next step puts rows where they belong."""
        self.places = self.places[rows]
        self.going = self.going if sources is None else self.going[sources]


DECODING: dict[str, tuple[str, object]] = {  # a name in the search, and what it stands for there
    AS_IT_IS: ("sorted", sorted),
    "no key/value cache": ("StepwiseDecoder", UncachedDecoder),
    "ended sentences stay": ("StepwiseDecoder", StayingDecoder),
    "batches in the input's order": ("sorted", lambda rows, key: list(rows)),
    "all threads on one batch": ("in_parallel", lambda work, items, *_: list(map(work, items))),
}


def decoding_gains(search: Search, lines: list[str], rounds: int) -> dict[str, float]:
    """For each idea, the time for all lines without it divided by the time with it.

    The translations must be the same.
    """
    expected = search.translate(lines)

    def measure(name: str) -> float:
        found = []
        with patch.object(searching, *DECODING[name], create=True):
            seconds = timeit.timeit(lambda: found.extend(search.translate(lines)), number=1)
        same = sum(a == b for a, b in zip(found, expected, strict=True)) / len(lines)
        if same < 0.99:  # rounding may decide between two equally likely tokens
            raise AssertionError(f"{name}: {same:.1%} of the translations are the same")
        return seconds

    return in_turns(measure, DECODING, rounds)


def in_turns(
    measure: Callable[[str], float], changes: Iterable[str], rounds: int
) -> dict[str, float]:
    """Each changed form's time divided by that of the form as it is in the same round: medians."""
    found = [{name: measure(name) for name in changes} for _ in range(rounds)]
    ratios = {name: [times[name] / times[AS_IT_IS] for times in found] for name in changes}
    return {name: statistics.median(x) for name, x in ratios.items() if name != AS_IT_IS}


def benchmark(
    *, model: Model = None, data: Data = "multi30k", preset: Preset = "tiny", rounds: Rounds = 5,
    sentences: Sentences = None, changes: Changes = None, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """What each idea gains: the time of a task without it divided by the time with it,
    all others kept.

    Training: three updates on the same sentences, with Adam. Decoding: the sentences of the split
    `val`, greedy, and with the recommended beam. The forms of a task take turns, round by round; a
    figure is the median over the rounds. All forms compute the same (for dropout: the same
    distribution), except that batches in random order are other batches. The program does not use
    the fused kernel of attention: `attention written out` is its time divided by the time with that
    kernel.

    Args:
        preset: size of the model that is trained
    """
    settings = shared.with_adam(preset, changes)
    translator = read_translator(model_folder(model))
    lines = [text for text, _ in load_pairs(data, "val")][:sentences]
    row = {"preset": preset, "data": shared.portable(data), "rounds": rounds}
    found = {"training": training_gains(settings, load_pairs(data, "train"), rounds)}
    for task, beam in (("decoding", 1), ("beam", tat.BEAM)):
        found[task] = decoding_gains(Search(translator, beam), lines, rounds)
    for task, ratios in found.items():
        row[task] = {name: round(ratio, 2) for name, ratio in ratios.items()}
        for name, times in row[task].items():
            print(f"{task:<10}{name:<30}{times:>6.2f} times the time")
    rows.add(row)
