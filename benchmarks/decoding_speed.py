"""Sentences per second of translation: this edition, the 2022 edition's loop, Hugging Face, CTranslate2.

    python benchmarks/decoding_speed.py --model RUN [--data SOURCE] [--split NAME] [--sentences N] [--rounds R] [--out FILE]

There are three tasks. A side uses the weights of RUN if it can load them:

- `split`: the sentences of a split, greedy, 64 at a time, each to its own end, but at most 50 tokens longer than its source.
  The 2022 edition's loop (see `edition_2022.py`; random weights of the same sizes) takes one sentence at a time, runs the
  whole prefix at every step and never stops before 72 tokens; it gets only the first few sentences.
- `beam`: the same sentences with beams of five and the length penalty 0.6. Only CTranslate2 (whose penalty has another form)
  takes part.
- `steps`: 8 batches of 64 random sources of 15 tokens, exactly 15 steps each. Hugging Face's MarianMTModel has random weights.

`this` uses the compiled step, `this, eager` does without. All sides have the same number of threads. This edition gives each
batch to one thread. Hugging Face and CTranslate2 are measured with a batch for each thread and with all threads on one batch;
the faster way counts.

Every side runs in a process of its own, so that no library's threads disturb another's, and the sides take turns round by
round. A side that has the task `steps` does it once before, to warm up (earlier rows, up to commit 23b774b: only
CTranslate2 before `split`). A figure is the median over the rounds. CTranslate2 has the weights that `export` writes. If a
side's package (requirements-bench.txt) is missing, that side is left out, with a notice.
"""

import argparse
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import edition_2022, peers
from benchmarks.rows import RESULTS, append, origin, portable
from the_annotated_transformer import BOS, EOS, Translator, in_threads, source_mask
from translator import compiled
from translator.decoding import greedy_decode, make_search, translate_lines
from translator.files import read_json
from translator.settings import Settings
from translator.sources import load_pairs
from translator.weights import load_translator

SIDES = ("this", "this, eager", "2022", "Hugging Face", "CTranslate2", "CTranslate2 int8")
TASKS = ("split", "beam", "steps")
BATCH, STEPS, BATCHES, FEW, BEAM, ALPHA = 64, 15, 8, 8, 5, 0.6


def random_sources(vocab: int) -> list[list[int]]:
    """The sources of the task `steps`; the last token ends the sentence."""
    draw = random.Random(0)
    return [[draw.randrange(4, vocab) for _ in range(STEPS - 1)] + [EOS] for _ in range(BATCHES * BATCH)]


def this_edition(translator: Translator, lines: list[str]) -> dict[str, Callable[[], int]]:
    """This edition's function for each task; each call returns the number of sentences."""
    batches = torch.tensor(random_sources(len(translator.tokenizer))).split(BATCH)

    def decode(src: torch.Tensor) -> int:
        return len(greedy_decode(translator.model, src, source_mask(src), STEPS + 1, end_symbol=None))

    def steps() -> int:
        return sum(in_threads(decode, batches, torch.device("cpu")))

    def split(search: Callable = greedy_decode) -> int:
        return len(translate_lines(translator, lines, search, BATCH))

    return {"split": split, "beam": lambda: split(make_search(BEAM, ALPHA)), "steps": steps}


def edition_of_2022(translator: Translator, lines: list[str], config: Settings) -> dict[str, Callable[[], int]]:
    """The 2022 edition's loop over the first sentences."""
    vocab = len(translator.tokenizer)
    model = edition_2022.Model(vocab, vocab, config.N, config.d_model, config.d_ff, config.h).eval()
    sources = [translator.tokenizer.encode(line, translator.languages[0])[:70] for line in lines[:FEW]]

    @torch.no_grad()
    def split() -> int:
        for ids in sources:
            src = edition_2022.fixed_batch([edition_2022.Pair([BOS, *ids, EOS], [BOS, EOS])]).src
            edition_2022.greedy(model, src)
        return len(sources)

    return {"split": split}


def hugging_face(translator: Translator, config: Settings) -> dict[str, Callable[[], int]]:
    """MarianMTModel's own `generate`, greedy."""
    model = peers.marian(config, len(translator.tokenizer)).eval()
    batches = torch.tensor(random_sources(len(translator.tokenizer))).split(BATCH)
    length = {"min_new_tokens": STEPS, "max_new_tokens": STEPS}

    def decode(src: torch.Tensor) -> int:
        search = {"num_beams": 1, "do_sample": False, **length}
        return len(model.generate(src, attention_mask=torch.ones_like(src), **search))

    return {
        "steps": lambda: sum(map(decode, batches)),
        "steps in threads": lambda: sum(in_threads(decode, batches, torch.device("cpu"))),
    }


def ctranslate2(translator: Translator, model: Path, lines: list[str], kind: str) -> dict[str, float]:
    """CTranslate2's speeds with our weights, measured by a program that does not load PyTorch."""
    import ctranslate2  # noqa: F401  raises here if it is missing

    from translator.export import write_model

    tokens = translator.tokenizer.tokens
    with tempfile.TemporaryDirectory() as folder:
        write_model(translator, model, Path(folder, "model"))
        sources = [tokens(row[:-1]) for row in random_sources(len(translator.tokenizer))]
        task = {"folder": f"{folder}/model", "kind": kind, "threads": torch.get_num_threads(), "batch": BATCH}
        task |= {"lines": lines, "sources": sources, "steps": STEPS, "beam": BEAM, "alpha": ALPHA}
        program = [sys.executable, Path(__file__).with_name("decoding_ctranslate2.py")]
        done = subprocess.run(program, input=json.dumps(task), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def speed(work: Callable[[], int]) -> float:
    """Sentences per second of one call."""
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def measure_side(side: str, options: argparse.Namespace) -> dict[str, float]:
    """Sentences per second of one side, for each of its tasks."""
    model, translator = options.model, load_translator(options.model)
    pairs = load_pairs(options.data, options.split, *translator.languages)
    lines = [source for source, _ in pairs[: options.sentences]]
    if side.startswith("CTranslate2"):
        return ctranslate2(translator, model, lines, side.partition(" ")[2] or "float32")
    config = Settings(**read_json(model / "config.json")["settings"])
    if side.startswith("this"):
        for beam in (1, BEAM) if side == "this" else ():
            compiled.use(translator.model, beam, "always", lambda text: print(f"NOTICE: {text}", file=sys.stderr))
        tasks = this_edition(translator, lines)
    else:
        tasks = (
            hugging_face(translator, config) if side == "Hugging Face" else edition_of_2022(translator, lines, config)
        )
    for way in [way for way in tasks if way.startswith("steps")]:
        tasks[way]()  # to warm up
    speeds: dict[str, float] = {}
    for way, work in tasks.items():  # of two ways to do a task, the faster counts
        task = way.partition(" ")[0]
        speeds[task] = max(speeds.get(task, 0.0), speed(work))
    return speeds


def in_a_process(side: str, options: argparse.Namespace) -> dict[str, float]:
    """`measure_side` in a new process; nothing if the side's package is missing."""
    arguments = ["--model", options.model, "--data", options.data, "--split", options.split, "--side", side]
    arguments += ["--sentences", options.sentences] if options.sentences else []
    done = subprocess.run([sys.executable, __file__, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode and "No module named" in done.stderr:
        print(f"NOTICE: {side} is left out: {done.stderr.splitlines()[-1]}", file=sys.stderr)
        return {}
    if done.returncode:
        raise ValueError(f"{side}: {done.stderr.strip().removeprefix('error: ')}")
    return json.loads(done.stdout.splitlines()[-1])


def result(rounds: list[dict[str, dict[str, float]]]) -> dict[str, dict]:
    """Medians over the rounds, and how many times faster this edition is; below 1 it is slower."""
    speeds = {
        task: {
            side: round(statistics.median(found[side][task] for found in rounds), 1)
            for side in SIDES
            if task in rounds[0][side]
        }
        for task in TASKS
    }
    ratios = {
        task: {side: round(found["this"] / speed, 2) for side, speed in found.items() if side != "this"}
        for task, found in speeds.items()
    }
    return {"sentences_per_second": speeds, "ratio": ratios}


def parse(arguments: list[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--model", type=Path, required=True, help="the folder of a run")
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--split", default="test_2016_flickr")
    parser.add_argument("--sentences", type=int, help="only the first so many")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=RESULTS / "decoding_speed.jsonl")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the benchmark; returns the exit status."""
    options = parse(arguments)
    command = shlex.join(["python", "benchmarks/decoding_speed.py", *map(portable, arguments)])
    try:
        if options.side:
            print(json.dumps(measure_side(options.side, options)))
            return 0
        about = origin(command) | {"data": portable(options.data), "split": options.split, "rounds": options.rounds}
        about |= {"preset": read_json(options.model / "config.json").get("preset"), "batch": BATCH, "beam": BEAM}
        rounds = [{side: in_a_process(side, options) for side in SIDES} for _ in range(options.rounds)]
    except (ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    row = about | result(rounds)
    for task, speeds in row["sentences_per_second"].items():
        for side, speed in speeds.items():
            print(f"{task:<8}{side:<18}{speed:>9,.1f} sentences/s  {row['ratio'][task].get(side, '')}")
    append(options.out, row)
    return 0


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    sys.exit(main(sys.argv[1:]))
