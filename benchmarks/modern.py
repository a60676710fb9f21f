"""What Part 7 adds, trained like the preset `tiny` in `variants.py`: rotary positions, RMSNorm, gates, groups, one stack.

    python benchmarks/modern.py [--data multi30k] [--epochs 4] [--runs runs] [--seeds 0,1,2] [--only NAME,...] [--out FILE.jsonl]

Data, order of batches, optimiser, moving average and number of updates are those of `variants.py`, whose rows `seed 0` to
`seed 2` are the same model without a change (here `base`, to check just that). Seeds are trained in the order given, each
with all variants. A row that is saved is not trained again. The document's own search translates all of them, because the
program's fast one knows the layers of 2017 alone; `decoder_only` has greedy decoding only.
"""

import argparse
import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.rows import RESULTS, append, origin, portable
from benchmarks.variants import COMMON, EPOCHS, mistake, run_folder, saved
from translator.runs import Budget, load_checkpoint, prepare_run
from translator.scoring import score
from translator.settings import PRESETS, Settings, build_model
from translator.sources import load_pairs
from translator.store import TokenStore
from translator.trainer import Trainer
from translator.training import Every, fit


class Variant(NamedTuple):
    """What is trained, and how it is searched greedily; `beam` tells whether beam search knows it."""

    model: Callable[[Settings, int], tat.Transformer]
    greedy: Callable[..., torch.Tensor] = tat.greedy_decode
    beam: bool = True


def changed(*what: str, h_kv: int = 2) -> Variant:
    """The preset's model with some of its parts replaced."""
    return Variant(lambda config, vocab: tat.modern(build_model(config, vocab), *what, h_kv=h_kv))


def one_stack(*what: str) -> Variant:
    """A decoder-only model with about as many parameters."""

    def make(config: Settings, vocab: int) -> tat.Transformer:
        model = tat.make_decoder_only(vocab, config, N=5 * config.N // 2)
        return tat.modern(model, *what) if what else model

    return Variant(make, tat.decoder_only_greedy, beam=False)


VARIANTS = {
    "rotary": changed("rotary"),
    "rms_norm": changed("rms_norm"),
    "gated": changed("gated"),
    "grouped 2": changed("grouped"),
    "modern": changed("rotary", "rms_norm", "gated", "grouped"),
    "decoder_only": one_stack(),
    "grouped 1": changed("grouped", h_kv=1),
    "decoder_only rotary": one_stack("rotary"),
    "base": Variant(build_model),
}
DEFAULT = ["rotary", "rms_norm", "gated", "grouped 2", "modern", "decoder_only"]


def train(run: Path, data: str, name: str, config: Settings, epochs: int) -> tat.Translator:
    """Train one variant as the program trains its own model, or take a finished run; returns its averaged weights."""
    about = {"preset": f"tiny, {name}", "data": data, "src": "de", "tgt": "en", "start_from": None}
    tokenizer = prepare_run(run, config, about, None, None)
    pairs, val = (TokenStore(run / "tokens" / f"{split}.ids", len(tokenizer)) for split in ("train", "val"))
    torch.manual_seed(config.seed)
    model = tat.speed_up(VARIANTS[name].model(config, len(tokenizer)))
    trainer, budget = Trainer(model, config), Budget(epochs=epochs)
    progress, held_out = load_checkpoint(run, trainer), val.__getitems__(range(len(val)))
    fit(run, trainer, tokenizer, pairs, held_out, budget, Every(), 0, progress)
    return tat.Translator(trainer.averaged.eval(), tokenizer)


def scores(translator: tat.Translator, data: str, variant: Variant) -> dict[str, Any]:
    """BLEU and chrF on the validation set, greedy and with a beam where there is one, named as in `variants.py`."""
    sources, references = (list(side) for side in zip(*load_pairs(data, "val"), strict=True))
    found = score(tat.translate_lines(translator, sources, variant.greedy), references, "en")
    row = {"split": "val", "search": "greedy"} | found
    if variant.beam:
        search = functools.partial(tat.beam_search, beam=tat.BEAM, alpha=tat.ALPHA)
        found = score(tat.translate_lines(translator, sources, search), references, "en")
        row |= {"beam": f"beam {tat.BEAM}, alpha {tat.ALPHA}", "bleu_beam": found["bleu"], "chrf_beam": found["chrf"]}
    return row


def main(arguments: list[str]) -> int:
    """Train what has no row yet; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--data", default="multi30k", help="multi30k, captions or a folder")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help="passes through the data")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="where the runs are kept")
    parser.add_argument("--seeds", default="0,1,2", help="with commas between them")
    parser.add_argument("--only", default=",".join(DEFAULT), help="some of the variants, with commas between them")
    parser.add_argument("--out", type=Path, default=RESULTS / "modern.jsonl", help="the rows")
    options = parser.parse_args(arguments)
    names, seeds = options.only.split(","), [int(seed) for seed in options.seeds.split(",")]
    if wrong := mistake(names, VARIANTS, options.epochs):
        print(f"error: {wrong}", file=sys.stderr)
        return 2
    command = shlex.join(["python", "benchmarks/modern.py", *map(portable, arguments)])
    for seed in seeds:
        for name in names:
            about = {"variant": name, "seed": seed, "data": portable(options.data), "epochs": options.epochs}
            if saved(options.out, about):
                continue
            config = replace(PRESETS["tiny"], seed=seed, **COMMON)
            run = run_folder(options.runs, "modern", f"{name} seed {seed} epochs {options.epochs}")
            row = origin(command) | about | {"row": "since 2017", "preset": "tiny", "direction": "de-en"}
            translator = train(run, options.data, name, config, options.epochs)
            row |= {"parameters": sum(p.numel() for p in translator.model.parameters()), "settings": asdict(config)}
            row |= quality.training(run) | scores(translator, options.data, VARIANTS[name])
            append(options.out, row)
            beam = f", with a beam {row['bleu_beam']:.2f}" if "bleu_beam" in row else ""
            print(f"{name}, seed {seed}: BLEU {row['bleu']:.2f}{beam}, {row['minutes']:.1f} minutes", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
