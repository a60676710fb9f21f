"""Translation beside CTranslate2.

Every side runs in a process of its own, so that no library's threads disturb another's, and
translates once before, to warm up. The sides take turns round by round.

Until commit 3d8b0c6 `this` was PyTorch, in processes of one thread. The row of the preset
`Marian's` has Marian itself beside it. Rows up to commit ad32212 have more: the 2022 edition's
loop, Hugging Face with random weights and exactly fifteen `steps`; and `this` is with a compiled
step.
"""

import functools
import shutil
import statistics
import subprocess
import sys
import tempfile
import timeit
from pathlib import Path

import torch

from benchmarks.decoding_ctranslate2 import ALPHA, BATCH, BEAM, Work, ctranslate2_speed, speed
from benchmarks.shared import (
    CPU,
    RESULTS,
    ROOT,
    Data,
    Rounds,
    Rows,
    Sentences,
    in_new_process,
    portable,
)  # fmt: skip
from translator.__main__ import Model
from translator.engine import open_search
from translator.export import write_ctranslate2
from translator.files import model_folder, nobody, read_json
from translator.model_folder import read_translator
from translator.sources import load_pairs


def this_program(engine: str, work: Work) -> dict[str, float]:
    """The program's speed for each task, with one of its engines."""
    searches = {beam: open_search(work.model, beam, ALPHA, "cpu", engine) for beam in (1, BEAM)}
    return speed(work, lambda beam: searches[beam].translate(work.lines, nobody))


def ctranslate2(kind: str, work: Work) -> dict[str, float]:
    """CTranslate2's, with all threads on one batch or a batch for each, whichever is faster."""
    ways = [in_new_process(ctranslate2_speed, work, kind, at_once) for at_once in {1, work.threads}]
    return {task: max(way[task] for way in ways) for task in ways[0]}


SIDES = {
    "this": functools.partial(in_new_process, this_program, "ctranslate2"),
    "PyTorch": functools.partial(in_new_process, this_program, "pytorch"),
    "CTranslate2": functools.partial(ctranslate2, "float32"),
    "CTranslate2 int8": functools.partial(ctranslate2, "int8"),
}


def process_seconds(work: Work) -> dict[str, float]:
    """Seconds of whole processes, from the start of Python to its end.

    `first` is a sentence with a model that was never converted, `sentence` the next one, `lines`
    all lines of `work`, greedily and with beams; `export` the lines through the script of an
    export, which is nothing but CTranslate2.
    """
    model = work.export.parent / "unconverted"
    shutil.copytree(work.model, model, ignore=shutil.ignore_patterns(".ctranslate2-*"))
    program = [sys.executable, ROOT / "the_annotated_transformer.py"]
    translate = [*program, "translate", "--model", model]
    sentence = "Ein Hund läuft durch den Schnee."
    text = "\n".join(work.lines).encode()
    export = [sys.executable, work.export / "translate.py"]
    processes = {
        "help": ([*program, "train", "--help"], b""),
        "first": ([*translate, sentence], b""),
        "sentence": ([*translate, sentence], b""),
        "lines, greedily": ([*translate, "--beam", "1"], text),
        "lines, beams": (translate, text),
        "export, beams": (export, text),
    }
    run = functools.partial(subprocess.run, check=True, stdout=subprocess.DEVNULL)
    seconds = {
        name: timeit.timeit(functools.partial(run, command, input=text_of_input), number=1)
        for name, (command, text_of_input) in processes.items()
    }
    shutil.rmtree(model)
    return seconds


def benchmark(
    *, model: Model = None, data: Data = "multi30k", split: str = "test_2016_flickr",
    sentences: Sentences = None, rounds: Rounds = 5, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Sentences per second of translation: this program beside CTranslate2.

    The task `split` is the sentences of a split, greedy, 64 at a time, each to its own end, but at
    most 50 tokens longer than its source; `beam` the same with beams of five and the length penalty
    0.6 (CTranslate2's has another form).

    `this` is the program as it translates by default, `PyTorch` with `--engine pytorch`. All have
    the same weights, those that `export` writes, and the same number of threads. CTranslate2 is
    measured with a batch for each thread and with all threads on one batch; the faster way counts.
    It runs the weights as they are and in int8. `process_seconds` are those of whole processes.

    Args:
        split: the name of the split
    """
    folder = model_folder(model)
    lines = [source for source, _ in load_pairs(data, split)][:sentences]
    with tempfile.TemporaryDirectory() as parent:
        work = Work(lines, folder, Path(parent, "model"), torch.get_num_threads())
        write_ctranslate2(read_translator(folder, CPU), work.export)
        turns_of_sides = [{who: SIDES[who](work) for who in SIDES} for _ in range(rounds)]
        processes = [process_seconds(work) for _ in range(rounds)]
    row = {"data": portable(data), "split": split, "rounds": rounds}
    preset = read_json(folder / "config.json").get("preset", "Marian's")
    row |= {"preset": preset, "batch": BATCH, "beam": BEAM, "sentences_per_second": {}, "ratio": {}}
    for task in ("split", "beam"):
        speeds = {who: [turn[who][task] for turn in turns_of_sides] for who in SIDES}
        figures = {who: round(statistics.median(turns), 1) for who, turns in speeds.items()}
        ratios = {who: round(figures["this"] / figures[who], 2) for who in list(figures)[1:]}
        row["sentences_per_second"][task], row["ratio"][task] = figures, ratios
        for who, figure in figures.items():
            print(f"{task:<8}{who:<18}{figure:>9,.1f} sentences/s  {ratios.get(who, '')}")
    medians = {name: statistics.median(turn[name] for turn in processes) for name in processes[0]}
    row["process_seconds"] = {name: round(seconds, 2) for name, seconds in medians.items()}
    for name, seconds in row["process_seconds"].items():
        print(f"{name:<26}{seconds:>9.2f} s, the whole process")
    rows.add(row)
