"""Memory and start-up time of training on a large corpus and on a small one."""

import json
import random
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

from benchmarks.shared import RESULTS, Counts, Rows, in_new_process
from translator import __main__ as program
from translator.settings import Count, Limits
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer

MODEL = {"N": 1, "d_model": 16, "d_ff": 16, "h": 1, "bpe": 2000, "ema": 0.0}


def write_corpus(folder: Path, pairs: int) -> None:
    """Synthetic train and val files: a pair is one caption's first half and another's second."""
    folder.mkdir()
    draw, captions = random.Random(0), load_pairs("captions", "train")
    halves = [[text.split() for text in pair] for pair in captions]
    for split, count in (("train", pairs), ("val", 500)):
        german, english = folder / f"{split}.de", folder / f"{split}.en"
        with open(german, "w", encoding="utf-8") as de, open(english, "w", encoding="utf-8") as en:
            for _ in range(count):
                first, second = draw.choice(halves), draw.choice(halves)
                for file, a, b in zip((de, en), first, second, strict=True):
                    file.write(" ".join([*a[: len(a) // 2], *b[len(b) // 2 :]]) + "\n")


def train(folder: Path, updates: int, start: float) -> dict[str, float]:
    """Train up to `updates`.

    Returns the seconds from `start` to the first update and to the end, and the final memory.
    """
    moments = []
    update = ParallelTrainer.update

    def timed(self, pairs):
        moments.append(time.time())
        return update(self, pairs)

    limits = Limits(steps=updates, checkpoint_every=10**9)
    with patch.object(ParallelTrainer, "update", timed):
        program.train(data=str(folder), run=folder / "run", limits=limits, changes=MODEL)
    seconds = {"first_update_seconds": round(moments[0] - start, 1)}
    seconds |= {"seconds": round(time.time() - start, 1)}
    # Linux alone tells a process its resident memory
    status = Path("/proc/self/status").read_text()
    return seconds | {"resident_mb": round(int(status.partition("VmRSS:")[2].split()[0]) / 1024)}


def measure(pairs: int, updates: int) -> dict[str, float]:
    """Write a corpus, make its store in one process, train in another."""
    with tempfile.TemporaryDirectory(prefix="scale-") as parent:
        folder = Path(parent) / "corpus"
        write_corpus(folder, pairs)
        begun = in_new_process(train, folder, 1, time.time())
        trained = in_new_process(train, folder, updates, time.time())
        size = sum(file.stat().st_size for file in (folder / "run" / "tokens").iterdir())
    store = {"tokenised_in_seconds": begun["first_update_seconds"], "store_mb": round(size / 2**20)}
    return trained | store


def benchmark(
    *, pairs: Counts = (29_000, 5_000_000), updates: Count = 1000, rows: Rows = RESULTS
) -> None:
    """Memory and start-up time of training on a large corpus and on a small one, in one run.

    Writes a synthetic corpus (pairs put together from halves of captions) and trains one update on
    it, which makes the vocabulary and the token store. Then it continues in a new process, as
    `train` does, and reports the seconds from the start of that process to its first update, and
    its resident memory after the last. 29,000 pairs are the size of Multi30k. The model is as small
    as possible, so that the memory is mostly the data's.

    Args:
        pairs: sizes of the corpora
        updates: of the training, two or more
    """
    row = {"updates": updates, "pairs": {str(n): measure(n, updates) for n in pairs}}
    print(json.dumps(row["pairs"], indent=1))
    rows.add(row)
