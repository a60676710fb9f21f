"""Target tokens per second of training: this edition against the 2022 edition's way and other libraries, in one run.

    python benchmarks/training_speed.py [--presets tiny,small] [--data SOURCE] [--peers] [--rounds R] [--out FILE.jsonl]

A target token is a token to predict, so padding does not count. All sides train models of the preset's sizes on the same
sentence pairs, German to English, in this process and with its number of threads:

- this edition: `Trainer.update` on batches of `sorted_batches`, the preset with Adam (like all others), joint byte-pair encoding;
- the 2022 edition: see `edition_2022.py`, whose docstring says what is re-created, from which facts;
- with `--peers`, other libraries on the same batches as this edition: see `peers.py`.

After all have warmed up, they take turns, round by round, so that a machine that becomes slower or busier affects all. A round
of this edition or of 2022's is as many whole updates as fit into `--seconds`; a peer's round uses the batches of this
edition's. Time to make batches of ids counts; time to turn text into ids does not. A figure is the median over the rounds.
Pieces are shorter than words, so the same text has more tokens here than in 2022's way. So the rows also give sentence pairs
per second, which do not depend on the vocabulary.
"""

import argparse
import itertools
import random
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import edition_2022, peers
from benchmarks.rows import RESULTS, append, origin, portable
from the_annotated_transformer import Pair, learn_bpe, sorted_batches
from translator.settings import PRESETS, Settings, build_model
from translator.sources import load_pairs
from translator.trainer import Trainer
from translator.vocabulary import encode_pairs

QUICK_PAIRS = 100  # how much of the data `--quick` reads


class Work(NamedTuple):
    """What an update learns from."""

    tokens: int  # tokens to predict
    pairs: int


@dataclass
class Speed:
    """One figure per round of one side."""

    tokens: list[float] = field(default_factory=list)  # per second
    pairs: list[float] = field(default_factory=list)  # per second

    def summary(self) -> dict[str, float]:
        """Median, minimum and maximum of the target tokens per second."""
        return {f.__name__: round(f(self.tokens), 1) for f in (statistics.median, min, max)}

    def add(self, update: Callable[[], Work], seconds: float, updates: int | None = None) -> int:
        """Measure one round: `updates` updates, or whole ones until `seconds` have passed; returns their number."""
        done, start = [], time.perf_counter()
        while not done or (len(done) < updates if updates else time.perf_counter() - start < seconds):
            done.append(update())
        elapsed = time.perf_counter() - start
        self.tokens.append(sum(work.tokens for work in done) / elapsed)
        self.pairs.append(sum(work.pairs for work in done) / elapsed)
        return len(done)


def on_batches(learn: Callable[[list[Pair]], object], pairs: list[Pair], budget: int) -> Callable[[], Work]:
    """A function that makes one update with `learn` on the next batch; all sides get the same batches."""
    lengths = [(len(pair.src), len(pair.tgt)) for pair in pairs]

    def epochs() -> Iterator[Sequence[int]]:
        """The batches of one epoch after another, as row numbers."""
        for epoch in itertools.count():
            yield from sorted_batches(lengths, budget, seed=epoch)

    batches = epochs()

    def update() -> Work:
        batch = [pairs[i] for i in next(batches)]
        learn(batch)
        return Work(sum(len(pair.tgt) - 1 for pair in batch), len(batch))

    return update


def on_the_same_batches(config: Settings, texts: list[tuple[str, str]], others: bool) -> dict[str, Callable[[], Work]]:
    """This edition's training and, if wanted, that of the installed peers."""
    tokenizer = learn_bpe(texts, config.bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    torch.manual_seed(config.seed)
    learn: dict[str, Callable] = {"this": Trainer(build_model(config, len(tokenizer)), config).update}
    for name in peers.PEERS if others else ():
        try:
            peers.self_check(name, config, len(tokenizer))
            learn[name] = peers.peer_update(name, config, len(tokenizer))
        except ImportError as error:
            print(f"NOTICE: {name} is left out: {error}", file=sys.stderr)
    return {name: on_batches(update, pairs, config.tokens_per_batch) for name, update in learn.items()}


def previous_edition(config: Settings, data: edition_2022.WordPairs, accumulate: int) -> Callable[[], Work]:
    """A function that makes one update of the 2022 edition's training, with a model of the same sizes."""
    torch.manual_seed(config.seed)
    sizes = (config.N, config.d_model, config.d_ff, config.h)
    trainer = edition_2022.Trainer(edition_2022.Model(data.src_vocab, data.tgt_vocab, *sizes), config.d_model)
    draw = random.Random(config.seed)

    def epochs() -> Iterator[list[edition_2022.Pair]]:
        """The micro-batches of one epoch after another; the last of an epoch may be short."""
        while True:
            shuffled = draw.sample(data.pairs, len(data.pairs))
            for start in range(0, len(shuffled), edition_2022.MICRO_BATCH):
                yield shuffled[start : start + edition_2022.MICRO_BATCH]

    batches = epochs()

    def update() -> Work:
        micro_batches = list(itertools.islice(batches, accumulate))
        return Work(trainer.update(micro_batches), sum(map(len, micro_batches)))

    return update


def measure(updates: dict[str, Callable[[], Work]], rounds: int, seconds: float) -> dict[str, Speed]:
    """Warm up every side with two updates, then let them take turns."""
    for update in updates.values():
        Speed().add(update, seconds, updates=2)
    speeds = {edition: Speed() for edition in updates}
    for _ in range(rounds):
        count = speeds["this"].add(updates["this"], seconds)
        for edition in list(updates)[1:]:
            speeds[edition].add(updates[edition], seconds, None if edition == "2022" else count)
    return speeds


def result(speeds: dict[str, Speed]) -> dict[str, Any]:
    """The figures of a row: both sides, and how many times faster this edition is."""
    tokens = {edition: speed.summary() for edition, speed in speeds.items()}
    pairs = {edition: round(statistics.median(speed.pairs), 1) for edition, speed in speeds.items()}
    return {
        "tokens_per_second": tokens,
        "ratio": round(tokens["this"]["median"] / tokens["2022"]["median"], 2),
        "pairs_per_second": pairs,
        "ratio_of_pairs": round(pairs["this"] / pairs["2022"], 2),
        "ratio_to_peers": {
            name: round(tokens["this"]["median"] / tokens[name]["median"], 2) for name in peers.PEERS if name in tokens
        },
    }


def table_lines(row: dict[str, Any]) -> list[str]:
    """The lines of a row in the printed table."""
    ratios = {"2022": f"{row['ratio']:.2f} ({row['ratio_of_pairs']:.2f} by pairs)", "this": "", **row["ratio_to_peers"]}
    lines = []
    for edition, figures in row["tokens_per_second"].items():
        numbers = "".join(f"{figures[name]:>9,.0f}" for name in ("median", "min", "max"))
        pairs = row["pairs_per_second"][edition]
        lines.append(f"{row['preset']:<8}{edition:<16}{numbers}{pairs:>9,.0f}  {ratios[edition]}")
    return lines


HEADER = (
    f"{'preset':<8}{'who':<16}{'tokens/s':>9}{'min':>9}{'max':>9}{'pairs/s':>9}  this edition is so many times faster"
)


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options; raises ValueError for an unknown preset or an impossible number."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--presets", default="tiny,small", help=f"some of {','.join(PRESETS)}")
    parser.add_argument("--data", default="captions", help="multi30k, captions or a folder; default: captions")
    parser.add_argument("--peers", action="store_true", help="measure other libraries, too: requirements-bench.txt")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each side; default: 7")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a turn; default: 15")
    parser.add_argument("--out", type=Path, help="rows are appended here; default: the results folder")
    parser.add_argument(
        "--tokens-per-batch", type=int, help="in place of the presets'; 2022 gets about as many positions"
    )
    parser.add_argument("--bpe", type=int, help="merges, in place of the presets'")
    parser.add_argument(
        "--quick", action="store_true", help="check the re-creation, then make very few updates; no row without --out"
    )
    options = parser.parse_args(arguments)
    options.presets = options.presets.split(",")
    if unknown := [name for name in options.presets if name not in PRESETS]:
        raise ValueError(f"unknown preset {unknown[0]!r}; there are {', '.join(PRESETS)}")
    if options.rounds < 1 or not options.seconds >= 0:
        raise ValueError(
            f"--rounds must be at least 1 and --seconds at least 0, not {options.rounds}, {options.seconds}"
        )
    if options.quick:
        options.rounds, options.seconds = min(options.rounds, 2), 0.0
    elif options.out is None:
        options.out = RESULTS / "training_speed.jsonl"
    return options


def run(options: argparse.Namespace, command: str) -> None:
    """Measure every preset, print the table, append the rows."""
    if options.quick:
        edition_2022.self_check()
    if options.out:  # if it cannot be written, fail now, not after the measurement
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.open("a").close()
    texts = [text for text in load_pairs(options.data, "train") if all(text)]
    texts = texts[:QUICK_PAIRS] if options.quick else texts
    if not texts:
        raise ValueError(f"{options.data}: no pair of the training split has text on both sides")
    about = origin(command)
    words, accumulate = edition_2022.word_pairs(texts), 1 if options.quick else edition_2022.ACCUMULATE
    positions = edition_2022.MICRO_BATCH * edition_2022.LENGTH
    changed = {"bpe": options.bpe, "tokens_per_batch": options.tokens_per_batch}
    changed = {name: number for name, number in changed.items() if number is not None}
    if options.tokens_per_batch:
        accumulate = max(1, round(options.tokens_per_batch / positions))
    print(HEADER)
    for preset in options.presets:
        start, config = time.perf_counter(), replace(PRESETS[preset], optimizer="adam", **changed)  # like all others
        sides = on_the_same_batches(config, texts, options.peers)
        sides["2022"] = previous_edition(config, words, accumulate)
        row = about | {
            "preset": preset,
            "data": portable(options.data),
            "tokens_per_batch": config.tokens_per_batch,
            "bpe": config.bpe,
        }
        row |= {"quick": options.quick}
        row |= result(measure(sides, options.rounds, options.seconds))
        row |= {"rounds": options.rounds, "seconds": round(time.perf_counter() - start, 1)}
        print(*table_lines(row), sep="\n", flush=True)
        if options.out:
            append(options.out, row)


def main(arguments: list[str]) -> int:
    """Run the benchmark; returns the exit status."""
    command = shlex.join(["python", "benchmarks/training_speed.py", *map(portable, arguments)])
    try:
        run(parse(arguments), command)
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
