"""Peak memory of an update of the base model: this edition against the 2022 edition's way.

    python benchmarks/memory.py [--preset base] [--tokens 4096] [--vocab 37000] [--out FILE.jsonl]

Each side makes two updates in a process of its own, which then reports the largest resident memory it ever had. This
edition's batch has `--tokens` padded target tokens. The 2022 edition's batch has as many positions, but pads each sentence to
72, so it holds fewer words. It runs once with all sentences together and once in that edition's micro-batches of 32.
Sentences are random tokens with lengths like Multi30k's.
"""

import argparse
import json
import random
import resource
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import edition_2022
from benchmarks.rows import RESULTS, append, origin, portable
from the_annotated_transformer import BOS, EOS, Pair, sorted_batches
from translator.settings import PRESETS, build_model
from translator.trainer import Trainer

SIDES = ("this", "2022", "2022 in micro-batches")


def random_pairs(vocab: int) -> list[Pair]:
    """A thousand pairs of random tokens, about 14 a side."""
    draw = random.Random(0)

    def symbols() -> list[int]:
        return [draw.randrange(4, vocab) for _ in range(max(4, round(draw.gauss(14, 4))))]

    return [Pair([*symbols(), EOS], [BOS, *symbols(), EOS]) for _ in range(1000)]


def peak(side: str, options: argparse.Namespace) -> dict[str, int]:
    """The peak resident memory of this process after two updates, in megabytes, and the target tokens of one."""
    pairs = random_pairs(options.vocab)
    config = replace(PRESETS[options.preset], tokens_per_batch=options.tokens)
    if side == "this":
        trainer = Trainer(build_model(config, options.vocab), config)
        batch = [pairs[i] for i in sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], options.tokens, seed=0)[0]]
        tokens = sum(len(p.tgt) - 1 for p in batch)
    else:
        sizes = (config.N, config.d_model, config.d_ff, config.h)
        trainer = edition_2022.Trainer(edition_2022.Model(options.vocab, options.vocab, *sizes), config.d_model)
        sentences = [Pair([BOS, *p.src], p.tgt) for p in pairs[: options.tokens // edition_2022.LENGTH]]
        size = len(sentences) if side == "2022" else edition_2022.MICRO_BATCH
        batch = [sentences[i : i + size] for i in range(0, len(sentences), size)]
        tokens = sum(len(p.tgt) - 1 for p in sentences)
    for _ in range(2):
        trainer.update(batch)
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"peak_mb": round(kilobytes / 1024), "target_tokens": tokens}


def main(arguments: list[str]) -> None:
    """Measure all sides, each in a new process; print and append the row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--preset", default="base", choices=PRESETS)
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--vocab", type=int, default=37_000)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "memory.jsonl")
    options = parser.parse_args(arguments)
    if options.side:
        print(json.dumps(peak(options.side, options)))
        return
    row = origin(shlex.join(["python", "benchmarks/memory.py", *map(portable, arguments)]))
    row |= {"preset": options.preset, "tokens": options.tokens, "vocab": options.vocab}
    for side in SIDES:
        command = [sys.executable, __file__, "--side", side, "--preset", options.preset]
        command += ["--tokens", str(options.tokens), "--vocab", str(options.vocab)]
        row[side] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        print(f"{side:<22} {row[side]['peak_mb']:>7,} MB for {row[side]['target_tokens']:,} target tokens")
    row["ratio"] = round(row["this"]["peak_mb"] / row["2022"]["peak_mb"], 3)
    print(f"this edition needs {row['ratio']:.0%} of 2022, all together")
    append(options.out, row)


if __name__ == "__main__":
    main(sys.argv[1:])
