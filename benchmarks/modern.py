"""What Part 7 adds, trained like the variants of the preset `tiny`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.shared import RESULTS, Data, Rows, Runs, Seeds, portable
from benchmarks.variants import COMMON, EPOCHS, run_folder
from translator.processes import choose_device
from translator.run import Limits, Run
from translator.scoring import score
from translator.settings import PRESETS, Count, Settings, build_model
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer
from translator.training import fit

Make = Callable[[Settings, int], tat.Transformer]


def changed(*what: str, h_kv: int = 2) -> Make:
    """The preset's model with some of its parts replaced."""
    return lambda settings, vocab: tat.modern(build_model(settings, vocab), *what, h_kv=h_kv)


def one_stack(*what: str) -> Make:
    """A decoder-only model with about as many parameters."""

    def make(settings: Settings, vocab: int) -> tat.Transformer:
        model = tat.make_decoder_only(vocab, settings, N=5 * settings.N // 2)
        return tat.modern(model, *what) if what else model

    return make


VARIANTS: dict[str, Make] = {
    "rotary": changed("rotary"),
    "rms_norm": changed("rms_norm"),
    "gated": changed("gated"),
    "grouped 2": changed("grouped"),
    "modern": changed("rotary", "rms_norm", "gated", "grouped"),
    "decoder_only": one_stack(),
    "grouped 1": changed("grouped", h_kv=1),
    "decoder_only rotary": one_stack("rotary"),
    "base": build_model,
}
DEFAULT = ("rotary", "rms_norm", "gated", "grouped 2", "modern", "decoder_only")


def train(folder: Path, data: str, name: str, settings: Settings, epochs: int) -> tat.Translator:
    """Train one variant as the program trains its own model, or take a finished run; returns its averaged weights."""
    about = {"preset": f"tiny, {name}", "data": data, "src": "de", "tgt": "en", "held_out": None, "start_from": None}
    run = Run(folder, settings, about)
    with run.alone():
        run.prepare(None)
        torch.manual_seed(settings.seed)
        model = tat.with_fast_dropout(VARIANTS[name](settings, len(run.tokenizer)))
        trainer = ParallelTrainer(model, settings, choose_device())
        run.restore(trainer)
        fit(run, trainer, Limits(epochs=epochs))
    return tat.Translator(trainer.averaged.eval(), run.tokenizer)


def scores(translator: tat.Translator, data: str) -> dict[str, Any]:
    """BLEU and chrF on the validation set, named as in `variants.py`; a model of one stack has greedy decoding only."""
    if not isinstance(translator.model, tat.DecoderOnly):
        return quality.greedy_and_beam(translator, data)
    sources, references = map(list, zip(*load_pairs(data, "val"), strict=True))
    found = score(tat.translate_lines(translator, sources, tat.decoder_only_greedy), references, "en")
    return {"split": "val", "search": "greedy"} | found


def benchmark(
    *, data: Data = "multi30k", epochs: Count = EPOCHS, runs: Runs = Path("runs"), seeds: Seeds = (0, 1, 2),
    only: tuple[Literal[*VARIANTS], ...] = DEFAULT, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train what Part 7 adds like the preset `tiny` in `variants`: rotary positions, RMSNorm, gates, groups, one stack.

    Data, order of batches, optimiser, moving average and number of updates are those of `variants`, whose rows `seed 0` to
    `seed 2` are the same model without a change (here `base`, to check just that). Seeds are trained in the order given, each
    with all variants. A row that is saved is not trained again. The program's search translates all but the models of one
    stack, `decoder_only`; the document decodes those, greedily. (Rows up to commit ad32212: the document decoded all.)

    Args:
        epochs: passes through the data
        only: some of them; 'grouped 1', 'decoder_only rotary' and base are trained only if they are named
    """
    for seed in seeds:
        for name in only:
            about = {"variant": name, "seed": seed, "data": portable(data), "epochs": epochs}
            if rows.saved(about):
                continue
            settings = replace(PRESETS["tiny"], seed=seed, **COMMON)
            run = run_folder(runs, "modern", f"{name} seed {seed} epochs {epochs}")
            translator = train(run, data, name, settings, epochs)
            row = about | {"row": "since 2017"} | quality.describe(run, translator) | {"preset": "tiny"}
            row |= scores(translator, data)
            rows.add(row)
            beam = f", with a beam {row['bleu_beam']:.2f}" if "bleu_beam" in row else ""
            print(f"{name}, seed {seed}: BLEU {row['bleu']:.2f}{beam}, {row['minutes']:.1f} minutes", flush=True)
