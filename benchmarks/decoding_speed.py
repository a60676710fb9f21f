"""Translation beside CTranslate2, and beside Marian."""

import functools
import importlib.util
import statistics
import tempfile
from contextlib import suppress
from pathlib import Path

import torch

from benchmarks.decoding_ctranslate2 import ALPHA, BATCH, BEAM, Work, ctranslate2_speed, speed
from benchmarks.shared import CPU, RESULTS, Data, Rounds, Rows, Sentences, in_new_process, portable
from translator.__main__ import Model
from translator.engine import open_search
from translator.export import write_ctranslate2
from translator.files import Refused, model_folder, nobody, read_json
from translator.marian import write_npz
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


def marian(work: Work) -> dict[str, float]:
    """Marian's own, with a batch for each thread; it reads and writes the tokens of the model."""
    from pymarian import Translator

    tokenizer, (language, _) = read_translator(work.model, CPU)[1:]
    model, vocabulary = (str(work.marian / name) for name in ("model.npz", "vocab.yml"))
    options = {"models": model, "vocabs": [vocabulary] * 2, "mini_batch": BATCH}
    options |= {"maxi_batch": len(work.lines), "maxi_batch_sort": "src", "workspace": 500}
    options |= {"normalize": ALPHA, "cpu_threads": work.threads}
    options |= {"max_length_factor": 3, "quiet": True}
    programs = {beam: Translator(**options, beam_size=beam) for beam in (1, BEAM)}

    def translate(beam: int) -> list[str]:
        ids = [tokenizer.encode(line, language) for line in work.lines]
        found = programs[beam].translate([" ".join(tokenizer.tokens(row)) for row in ids])
        return [line.replace(" ", "").replace("▁", " ").strip() for line in found]

    return speed(work, translate)


SIDES = {
    "this": functools.partial(in_new_process, this_program, "ctranslate2"),
    "PyTorch": functools.partial(in_new_process, this_program, "pytorch"),
    "CTranslate2": functools.partial(ctranslate2, "float32"),
    "CTranslate2 int8": functools.partial(ctranslate2, "int8"),
    "Marian itself": functools.partial(in_new_process, marian),
}


def benchmark(
    *, model: Model = None, data: Data = "multi30k", split: str = "test_2016_flickr",
    sentences: Sentences = None, rounds: Rounds = 5, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Sentences per second of translation: this program beside CTranslate2,
    and beside Marian if it trained the model.

    The task `split` is the sentences of a split, greedy, 64 at a time, each to its own end, but at
    most 50 tokens longer than its source; `beam` the same with beams of five and the length penalty
    0.6 (CTranslate2's has another form).

    `this` is the program as it translates by default, `PyTorch` with `--engine pytorch`. All have
    the same weights, those that `export` writes, and the same number of threads. Marian gives each
    thread a batch. CTranslate2 is measured in that way and with all threads on one batch; the
    faster way counts. It runs the weights as they are and in int8. Marian
    needs a model that `import` made of its own file, and the package `pymarian`.

    Every side runs in a process of its own, so that no library's threads disturb another's, and
    translates once before, to warm up. The sides take turns round by round. (Until commit 3d8b0c6
    `this` was PyTorch, in processes of one thread. Rows up to commit
    ad32212 have more: the 2022 edition's loop, Hugging Face with random weights and exactly fifteen
    `steps`; and `this` is with a compiled step.)

    Args:
        split: the name of the split
    """
    folder = model_folder(model)
    lines = [source for source, _ in load_pairs(data, split)][:sentences]
    with tempfile.TemporaryDirectory() as parent:
        others = Path(parent, "model"), Path(parent, "marian")
        work = Work(lines, folder, *others, torch.get_num_threads())
        translator = read_translator(folder, CPU)
        write_ctranslate2(translator, work.export)
        if importlib.util.find_spec("pymarian"):
            with suppress(Refused):  # of a model that isn't one of Marian's own
                write_npz(translator, work.marian)
        sides = [who for who in SIDES if who != "Marian itself" or work.marian.exists()]
        found = [{who: SIDES[who](work) for who in sides} for _ in range(rounds)]
    row = {"data": portable(data), "split": split, "rounds": rounds}
    preset = read_json(folder / "config.json").get("preset", "Marian's")
    row |= {"preset": preset, "batch": BATCH, "beam": BEAM, "sentences_per_second": {}, "ratio": {}}
    for task in ("split", "beam"):
        speeds = {who: [turn[who][task] for turn in found] for who in sides}
        figures = {who: round(statistics.median(turns), 1) for who, turns in speeds.items()}
        ratios = {who: round(figures["this"] / figures[who], 2) for who in list(figures)[1:]}
        row["sentences_per_second"][task], row["ratio"][task] = figures, ratios
        for who, figure in figures.items():
            print(f"{task:<8}{who:<18}{figure:>9,.1f} sentences/s  {ratios.get(who, '')}")
    rows.add(row)
