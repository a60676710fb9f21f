"""The paper's Table 3 in miniature, and what came since: `tiny`, one thing changed at a time."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

import since_2017 as since
import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.quality import Keep
from benchmarks.shared import RESULTS, ROOT, Data, Rows, Runs, Seeds, portable
from translator.files import Refused
from translator.plan import MEASURED
from translator.processes import choose_device
from translator.run import Run
from translator.run_folder import RunFolder
from translator.scoring import score
from translator.settings import Count, Limits, Settings, build_model, make_settings
from translator.sources import Corpus, load_pairs
from translator.trainer import ParallelTrainer
from translator.training import Training

Make = Callable[[Settings, int], tat.Transformer]
EPOCHS = 4
# in four passes dropout does harm, as its variant shows
COMMON = MEASURED | {"tokens_per_batch": 2000, "dropout": 0.0}
ALPHAS = (0.6, 1.0, 1.4, 2.2)  # tried beside the document's


def changed(*names: str) -> Make:
    """The preset's model with some parts of since_2017."""
    return partial(build_model, **since.modern(*names))


def one_stack(*names: str) -> Make:
    """A decoder-only model of equal work per token: a fourth more layers, none looking across."""

    def make(settings: Settings, vocab: int) -> tat.Transformer:
        N = settings.N + settings.N // 4
        parts = since.modern(*names)
        return since.with_fast_dropout(since.make_decoder_only(vocab, settings, N, **parts))

    return make


class Variant(NamedTuple):
    """Its row in the paper's table or elsewhere; what is set otherwise; how its model is made."""

    row: str
    changes: dict[str, Any] = {}
    make: Make = build_model


VARIANTS = {
    "base": Variant("base"),
    **{f"h = {h}": Variant("A", {"h": h}) for h in (1, 2, 8, 16)},
    "d_k = 8": Variant("B", {"d_k": 8}),
    **{f"N = {N}": Variant("C", {"N": N}) for N in (2, 6)},
    **{f"d_model = {d}": Variant("C", {"d_model": d}) for d in (64, 256)},
    **{f"d_ff = {d}": Variant("C", {"d_ff": d}) for d in (128, 512)},
    **{f"dropout = {p}": Variant("D", {"dropout": p}) for p in (0.1, 0.25)},
    **{f"smoothing = {eps}": Variant("D", {"smoothing": eps}) for eps in (0.0, 0.2)},
    "positions = learned": Variant("E", {"positions": "learned"}),
    "positions = none": Variant("E", make=partial(build_model, positions=since.NoPositions)),
    "rotary": Variant("since 2017", {"positions": "rotary"}),
    **{new: Variant("since 2017", make=changed(new)) for new in ("rms_norm", "gated", "grouped")},
    "modern": Variant("since 2017", make=changed("rotary", "rms_norm", "gated", "grouped")),
    "decoder_only": Variant("since 2017", make=one_stack()),
    "decoder_only rotary": Variant("since 2017", make=one_stack("rotary")),
    "muon post": Variant("recipe", {"norm": "post"}),
    "adam pre": Variant("recipe", {"optimizer": "adam"}),
    "adam post": Variant("recipe", {"optimizer": "adam", "norm": "post"}),
    "words": Variant("recipe", {"bpe": 0}),
    "tie = none": Variant("recipe", {"tie": "none"}),
}


def run_folder(runs: Path, benchmark: str, title: str) -> Path:
    """Where a variant's run is kept; its title may hold any characters."""
    return runs / benchmark / re.sub(r"[^\w.]+", "-", title)


def tuned(optimizer: str, norm: str, rows: Rows) -> dict[str, Any]:
    """The rate and the warmup with the lowest validation loss among the rows of `tuning.jsonl`.

    Only rows of Multi30k and of EPOCHS passes count; Refused without a row.
    """
    saved = rows.saved({"recipe": f"{optimizer} {norm}", "data": "multi30k", "epochs": EPOCHS})
    if not saved:
        raise Refused(f"{rows.out} has no row for {optimizer} {norm}")
    best = min(saved, key=lambda row: row["val_loss"])
    return {"factor": best["factor"], "warmup": best["warmup"]}


def settings_of(variant: Variant, seed: int, tuning: Rows) -> Settings:
    """The settings of a variant, with the rate and the warmup tuned for its optimiser and norm."""
    settings = make_settings("tiny", False, COMMON | variant.changes | {"seed": seed})
    return replace(settings, **tuned(settings.optimizer, settings.norm, tuning))


def train(
    folder: Path, data: str, name: str, settings: Settings, limits: Limits
) -> tat.Translator:  # fmt: skip
    """A variant's averaged weights, trained as the program trains its own, or of a finished run."""

    def make(settings: Settings, vocab: int, parts: None) -> torch.nn.Module:
        return VARIANTS[name].make(settings, vocab)

    run_folder = RunFolder(folder, Corpus(data), settings, f"tiny, {name}")
    with Run.opened(run_folder, make) as run:
        torch.manual_seed(settings.seed)
        trainer = ParallelTrainer(run.model(), settings, choose_device())
        Training(run, trainer, limits).fit()
    return tat.Translator(trainer.averaged.eval(), run.tokenizer, ("de", "en"))


def scores(translator: tat.Translator, data: str, keep: Keep | None = None) -> dict[str, Any]:
    """BLEU and chrF on `val`: greedy, with the document's beam, and with the best exponent."""
    # A model of one stack is decoded greedily alone, by the document.
    if isinstance(translator.model, since.DecoderOnly):
        sources, references = map(list, zip(*load_pairs(data, "val"), strict=True))
        lines = tat.translate_lines(translator, sources, since.decoder_only_greedy)
        row = {"split": "val", "search": "greedy"} | score(lines, references, "en")
        return row | ({"translations": keep("val greedy", lines)} if keep else {})
    scores_by_alpha = {
        alpha: quality.scores(translator, data, "val", tat.BEAM, alpha) for alpha in ALPHAS
    }
    scores_by_alpha[tat.ALPHA] = quality.scores(translator, data, "val", tat.BEAM, keep=keep)
    best = max(scores_by_alpha, key=lambda alpha: scores_by_alpha[alpha]["bleu"])
    beam = scores_by_alpha[tat.ALPHA]
    row = quality.scores(translator, data, keep=keep)
    row |= {"alpha_best": best, "bleu_alpha_best": scores_by_alpha[best]["bleu"]}
    names = ("bleu", "chrf", "length", "translations")
    row |= {f"{name}_beam": beam[name] for name in names if name in beam}
    return row | {"beam": beam["search"]}


def benchmark(
    *, data: Data = "multi30k", epochs: Count = EPOCHS, runs: Runs = Path("runs"),
    seeds: Seeds = (0, 1, 2), only: tuple[Literal[*VARIANTS], ...] = (), rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train variants of the preset `tiny` that each differ in one thing,
    without dropout and with a rate that was tuned.

    The rates are those of `tuning.jsonl`, one for each optimiser and norm. For one seed, the
    vocabulary and order of the batches are the same for all variants but `words`. Seeds are trained
    one after the other, each with all variants. The command can be stopped and given again: an
    interrupted run continues, and a row that is saved is not trained again.

    Args:
        epochs: passes through the data
        only: some of them, such as 'base' 'h = 1'; by default all
    """
    tuning = Rows(ROOT / "benchmarks" / "results" / "tuning.jsonl")
    names = only or tuple(VARIANTS)
    wanted = {
        (seed, name): settings_of(VARIANTS[name], seed, tuning) for seed in seeds for name in names
    }
    for (seed, name), settings in wanted.items():
        run_key = {"variant": name, "seed": seed, "data": portable(data), "epochs": epochs}
        rate = {"factor": settings.factor, "warmup": settings.warmup}
        saved = rows.saved(run_key, choose_device())
        if any(rate.items() <= row["settings"].items() for row in saved):
            continue
        run = run_folder(runs, "miniature", f"{name} seed {seed} epochs {epochs}")
        translator = train(run, data, name, settings, Limits(epochs=epochs))
        keep = quality.keeping(rows, f"miniature {name} seed {seed}")
        row = run_key | {"row": VARIANTS[name].row} | quality.describe(run, translator)
        row |= {"preset": "tiny"} | scores(translator, data, keep)
        rows.add(row, choose_device())
        print(f"{name}, seed {seed}: BLEU {row['bleu']:.2f}", end=", ")
        if "bleu_beam" in row:
            print(f"with a beam {row['bleu_beam']:.2f}", end=", ")
        print(f"{row['minutes']:.1f} minutes", flush=True)
