"""The speed of training and translation, this checkout against another one, in one run.

    python benchmarks/compare.py OTHER [--data multi30k] [--rounds 5] [--out FILE.jsonl]

OTHER is the folder of another checkout, at any commit that has the models in `models/`. The two take turns, round by round,
each time in a new process that imports its own code. A round is ten updates of `tiny` and three of `small`, on the same
batches, and the translation of the split `val`, greedy and with the recommended beam. A figure is the median over the
rounds, a ratio the median of the rounds' ratios. A ratio above 1 means that this checkout is faster.
"""

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.rows import RESULTS, ROOT, append, origin, portable

PROBE = """
import json, sys, time
import torch
import the_annotated_transformer as tat
try:
    from translator.decoding import make_search, translate_lines
    from translator.settings import PRESETS, build_model
    from translator.sources import load_pairs
    from translator.trainer import Trainer
    from translator.vocabulary import encode_pairs
    from translator.weights import load_translator
    batches_of = tat.sorted_batches
except ImportError:  # before the program had a folder of its own
    from the_annotated_transformer import (
        PRESETS, Trainer, build_model, load_pairs, load_translator, make_search, translate_lines)
    encode_pairs, batches_of = tat.Tokenizer.pairs, tat.token_batches

def rate(work):
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)

data, found = sys.argv[1], {}
texts = load_pairs(data, "train")
tokenizer = tat.learn_bpe(texts, PRESETS["tiny"].bpe)
pairs = encode_pairs(tokenizer, texts, ("de", "en"))
for preset, updates in (("tiny", 10), ("small", 3)):
    config = PRESETS[preset]
    torch.manual_seed(0)
    trainer = Trainer(build_model(config, len(tokenizer)), config)
    rows = batches_of([(len(p.src), len(p.tgt)) for p in pairs], config.tokens_per_batch, seed=0)
    batches = [[pairs[i] for i in batch] for batch in rows[:updates]]
    trainer.update(batches[0])
    tokens = sum(len(p.tgt) - 1 for batch in batches for p in batch)
    found[f"training {preset}, target tokens/s"] = rate(lambda: [trainer.update(b) for b in batches] and tokens)
lines = [source for source, _ in load_pairs(data, "val")]
translator = load_translator("models/multi30k-de-en")
translate_lines(translator, lines[:64])
for name, beam in (("greedy", 1), ("beam 5", 5)):
    search = make_search(beam, 1.8)
    work = lambda: len(translate_lines(translator, lines, search, batch_size=512 // beam))
    found[f"translation {name}, sentences/s"] = rate(work)
print(json.dumps(found))
"""


def probe(checkout: Path, data: str) -> dict[str, float]:
    """The speeds of one checkout, measured in a new process."""
    environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", PROBE, data]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise ValueError(f"{checkout}: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def commit_of(checkout: Path) -> str:
    """The commit that is checked out there."""
    git = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str]) -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("other", type=Path, help="the folder of another checkout")
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=RESULTS / "compare.jsonl")
    options = parser.parse_args(arguments)
    row = origin(shlex.join(["python", "benchmarks/compare.py", *map(portable, arguments)]))
    try:
        row |= {"other": commit_of(options.other), "data": portable(options.data), "rounds": options.rounds}
        rounds = [[probe(place, options.data) for place in (options.other, ROOT)] for _ in range(options.rounds)]
    except (ValueError, OSError, subprocess.CalledProcessError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for task in rounds[0][0]:
        before, after = (statistics.median(found[side][task] for found in rounds) for side in (0, 1))
        ratio = statistics.median(found[1][task] / found[0][task] for found in rounds)
        row[task] = {"other": round(before, 1), "this": round(after, 1), "ratio": round(ratio, 3)}
        print(f"{task:<36}{before:>10,.1f}{after:>10,.1f}  {ratio:.3f}")
    append(options.out, row)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
