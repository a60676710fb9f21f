"""Memory and start-up time of training on a large corpus and on a small one, in one run.

    python benchmarks/scale.py [--pairs 29000,5000000] [--updates 1000] [--out FILE.jsonl]

Writes a synthetic corpus (pairs put together from halves of captions) and trains one update on it, which makes the
vocabulary and the token store. Then it continues in a new process, as `train` does, and reports the seconds from the start of
that process to its first update, and its resident memory after the last. 29,000 pairs are the size of Multi30k. The model is
as small as possible, so that the memory is mostly the data's.
"""

import argparse
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

START = time.perf_counter()
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.rows import RESULTS, append, origin, portable
from translator import commands
from translator.sources import load_pairs
from translator.trainer import Trainer

MODEL = {"N": "1", "d_model": "16", "d_ff": "16", "h": "1", "bpe": "2000", "ema": "0"}


def write_corpus(folder: Path, pairs: int) -> None:
    """Synthetic train and val files: each pair is the first half of one caption's and the second half of another's."""
    folder.mkdir()
    draw, captions = random.Random(0), load_pairs("captions", "train")
    halves = [[text.split() for text in pair] for pair in captions]
    for split, count in (("train", pairs), ("val", 500)):
        with open(folder / f"{split}.de", "w", encoding="utf-8") as de, open(folder / f"{split}.en", "w") as en:
            for _ in range(count):
                first, second = draw.choice(halves), draw.choice(halves)
                for file, a, b in zip((de, en), first, second, strict=True):
                    file.write(" ".join([*a[: len(a) // 2], *b[len(b) // 2 :]]) + "\n")


def resident() -> float:
    """The resident memory of this process in megabytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    raise OSError("no VmRSS in /proc/self/status")


def train(folder: Path, updates: int) -> dict[str, float]:
    """Train up to `updates`; returns the seconds from the start of the process to the first update, and the final memory."""
    first, update = [], Trainer.update

    def timed(self, pairs):
        first.append(time.perf_counter() - START)
        return update(self, pairs)

    Trainer.update = timed
    commands.train(data=str(folder), run=folder / "run", steps=updates, checkpoint_every=10**9, **MODEL)
    seconds = time.perf_counter() - START
    return {"first_update_seconds": round(first[0], 1), "seconds": round(seconds, 1), "resident_mb": round(resident())}


def measure(pairs: int, updates: int) -> dict[str, float]:
    """Write a corpus, make its store in one process, train in another."""
    folder = Path(tempfile.mkdtemp(prefix="scale-")) / "corpus"
    try:
        write_corpus(folder, pairs)
        found = []
        for steps in (1, updates):
            command = [sys.executable, __file__, "--folder", str(folder), "--updates", str(steps)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
        size = sum(file.stat().st_size for file in (folder / "run" / "tokens").iterdir())
        return found[1] | {"tokenised_in_seconds": found[0]["first_update_seconds"], "store_mb": round(size / 2**20)}
    finally:
        shutil.rmtree(folder.parent)


def main(arguments: list[str]) -> None:
    """Run the benchmark and append its row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--pairs", default="29000,5000000", help="sizes of the corpora")
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "scale.jsonl")
    options = parser.parse_args(arguments)
    if options.folder:
        print(json.dumps(train(options.folder, options.updates)))
        return
    row = origin(shlex.join(["python", "benchmarks/scale.py", *map(portable, arguments)])) | {
        "updates": options.updates
    }
    row |= {"pairs": {str(n): measure(n, options.updates) for n in map(int, options.pairs.split(","))}}
    print(json.dumps(row["pairs"], indent=1))
    append(options.out, row)


if __name__ == "__main__":
    main(sys.argv[1:])
