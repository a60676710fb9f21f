"""Score a finished run on a split and append the row to benchmarks/results/quality.jsonl.

    python benchmarks/quality.py RUN --data SOURCE --split NAME --command "the command that trained it" [--commit HASH]

The row holds what was trained, for how long and from which commit, the last losses of its log, and sacreBLEU and chrF with
their signatures. Figures come from the run's own files; nothing is typed in but the command and the commit of the
training, which the run does not know.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import the_annotated_transformer as tat
from benchmarks.rows import RESULTS, append, origin, portable


def main(arguments: list[str]) -> int:
    """Score one run; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split", required=True)
    parser.add_argument("--command", required=True, help="the command that trained the run")
    parser.add_argument("--commit", help="the commit that trained it (default: the one checked out)")
    options = parser.parse_args(arguments)
    translator, log = tat.load_translator(options.run), tat.read_log(options.run)
    about, last = tat.read_json(options.run / "config.json"), {key: value for row in log for key, value in row.items()}
    sources, references = zip(*tat.load_pairs(options.data, options.split, *translator.languages), strict=True)
    row = origin(options.command) | {"preset": about["preset"], "direction": "-".join(translator.languages)}
    row |= {"commit": options.commit or row["commit"], "seed": about["settings"]["seed"]}
    row |= {"parameters": sum(p.numel() for p in translator.model.parameters())}
    row |= {key: last[key] for key in ("step", "epoch", "minutes", "tokens", "loss", "val_loss", "val_perplexity")}
    row |= {"data": portable(options.data), "split": options.split, "search": "greedy", "settings": about["settings"]}
    row |= tat.score(tat.translate_lines(translator, list(sources)), list(references), translator.languages[1])
    append(RESULTS / "quality.jsonl", row)
    print(f"{options.split}: BLEU {row['bleu']:.2f}, chrF {row['chrf']:.2f} after {row['minutes']:.1f} minutes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
