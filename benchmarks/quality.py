"""Score the model of a finished run on a split and append the row to benchmarks/results/quality.jsonl.

    python benchmarks/quality.py MODEL --data SOURCE --split NAME --command "the command that trained it" [--commit HASH]
        [--run RUN] [--beam 1] [--alpha A] [--out FILE.jsonl]

The row holds what was trained, for how long and from which commit, the last losses in its log, and sacreBLEU and chrF with
their signatures. All figures come from the run's own files. Only the command and the commit of the training are typed in,
because the run does not know them. MODEL is a run, or a model made from the run that `--run` names.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks.rows import RESULTS, append, origin, portable
from translator.decoding import make_search, translate_lines
from translator.files import read_json
from translator.runs import read_log
from translator.scoring import score
from translator.sources import load_pairs
from translator.weights import load_translator


def training(run: Path) -> dict[str, Any]:
    """The last figures in the log of a run; after only a few updates there is no `loss` yet."""
    last = {key: value for row in read_log(run) for key, value in row.items()}
    kinds = ("step", "epoch", "minutes", "tokens", "loss", "val_loss", "val_perplexity")
    return {key: last[key] for key in kinds if key in last}


def scores(model: Path, data: str, split: str, beam: int = 1, alpha: float = tat.ALPHA) -> dict[str, Any]:
    """BLEU and chrF of a model's translations of a split, with their signatures, and the search."""
    translator = load_translator(model)
    sources, references = zip(*load_pairs(data, split, *translator.languages), strict=True)
    found = translate_lines(translator, list(sources), make_search(beam, alpha))
    search = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
    return {"split": split, "search": search} | score(found, list(references), translator.languages[1])


def describe(model: Path) -> dict[str, Any]:
    """Preset, direction, size and settings of a model."""
    about = read_json(model / "config.json")
    parameters = sum(p.numel() for p in load_translator(model).model.parameters())
    found = {"preset": about["preset"], "direction": f"{about['src']}-{about['tgt']}", "parameters": parameters}
    return found | {"seed": about["settings"]["seed"], "settings": about["settings"]}


def main(arguments: list[str]) -> int:
    """Score one model; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("model", type=Path)
    parser.add_argument("--run", type=Path, help="the run that MODEL was made from (default: MODEL itself)")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", required=True)
    parser.add_argument("--command", required=True, help="the command that trained the run")
    parser.add_argument("--commit", help="the commit that trained it (default: the one checked out)")
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--alpha", type=float, default=tat.ALPHA)
    parser.add_argument("--out", type=Path, default=RESULTS / "quality.jsonl")
    options = parser.parse_args(arguments)
    run = options.run or options.model
    if not read_log(run):
        print(f"error: {run} has no log; --run names the run that the model was made from", file=sys.stderr)
        return 2
    row = origin(options.command) | describe(options.model) | training(run)
    row |= {"commit": options.commit or row["commit"], "model": options.model.name, "data": portable(options.data)}
    row |= scores(options.model, options.data, options.split, options.beam, options.alpha)
    append(options.out, row)
    print(
        f"{row['split']}, {row['search']}: BLEU {row['bleu']:.2f}, chrF {row['chrf']:.2f}, {row['minutes']:.1f} minutes"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
