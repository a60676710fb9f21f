"""How good a trained model is: a row with its training and its scores on a split."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Data, Rows, portable
from translator.__main__ import Alpha, Beam
from translator.files import Refused, read_json
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.run_log import read_log
from translator.scoring import score
from translator.search import Search
from translator.sources import load_pairs

Keep = Callable[[str, list[str]], str]  # split and search, translations -> the file that has them


def describe(model: Path, translator: tat.Translator, run: Path | None = None) -> dict[str, Any]:
    """Preset, direction, size and settings of a model, and the last figures in its log."""
    # Without `run`, the model is the run itself. After only a few updates there is no `loss` yet.
    config = read_json(model / "config.json")
    rotary = ", rotary" * (config["settings"].get("positions") == "rotary")
    row = {"preset": config["preset"] + rotary, "direction": "-".join(translator.languages)}
    row["parameters"] = sum(p.numel() for p in translator.model.parameters())
    row |= {"seed": config["settings"]["seed"], "settings": config["settings"]}
    last = {key: value for row in read_log(run or model) for key, value in row.items()}
    kinds = ("step", "epoch", "minutes", "tokens", "loss", "val_loss", "val_perplexity")
    return row | {key: last[key] for key in kinds if key in last}


def scores(
    translator: tat.Translator, data: str, split: str = "val", beam: int = 1,
    alpha: float = tat.ALPHA, keep: Keep | None = None,
) -> dict[str, Any]:  # fmt: skip
    """BLEU and chrF of translations of a split, with their signatures, the search and the file."""
    search = Search(translator, beam, alpha)
    pairs = load_pairs(data, split, *translator.languages)
    sources, references = map(list, zip(*pairs, strict=True))
    lines = search.translate(sources)
    row = {"split": split, "search": search.name}
    row |= score(lines, references, translator.languages[1])
    return row | ({"translations": keep(f"{split} {search.name}", lines)} if keep else {})


def keeping(rows: Rows, title: str) -> Keep:
    """What keeps a model's translations beside its rows; the file's name begins with the title."""
    return lambda search, lines: rows.keep(f"{title} {search}", lines)


def benchmark(
    model: Path, *, data: Data, split: str, command: str, commit: str | None = None,
    run: Path | None = None, beam: Beam = 1, alpha: Alpha = tat.ALPHA, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Score the model of a finished run on a split.

    The row holds what was trained, for how long and from which commit, the last losses in its log,
    and sacreBLEU and chrF with their signatures. All figures come from the run's own files. Only
    the command and the commit of the training are typed in, because the run does not know them.

    Args:
        model: a run, or a model made from the run that --run names
        split: the name of the split, such as val
        command: the command that trained the run
        commit: the commit that trained it; by default the one checked out
        run: the run that the model was made from; by default the model's own folder
    """
    run = run or model
    if not read_log(run):
        raise Refused(f"{run} has no log; --run names the run that the model was made from")
    translator = read_translator(model)
    row = {"command": command, "commit": commit or rows.origin["commit"]}
    row |= describe(model, translator, run) | {"model": model.name, "data": portable(data)}
    row |= scores(translator, data, split, beam, alpha, keeping(rows, model.name))
    rows.add(row, choose_device())
    print(
        f"{split}, {row['search']}: "
        f"BLEU {row['bleu']:.2f}, chrF {row['chrf']:.2f}, {row['minutes']:.1f} minutes"
    )
