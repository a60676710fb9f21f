"""Whether `plan` was right: its minutes and its range of BLEU, beside a run as it recommends."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import the_annotated_transformer as tat
from benchmarks import curve, quality
from benchmarks.shared import RESULTS, Data, Rows, Runs, portable
from translator import plan as planning
from translator.model_folder import read_translator
from translator.settings import Count
from translator.sources import Corpus

Pairs = Annotated[Count, Parameter(help="how many to learn from")]


def benchmark(
    *, data: Data, src: str = "de", tgt: str = "en", pairs: Pairs = 2000, seed: int = 0,
    runs: Runs = Path("runs"), rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Ask `plan` about a part of a corpus, train as it says, and compare.

    Its minutes are compared with those of the run's log, its range with BLEU on `val`, with the
    document's beam. An interrupted run continues, but then its minutes are of no use: `continued`.
    """
    plan_key = {"data": portable(data), "direction": f"{src}-{tgt}", "pairs": pairs, "seed": seed}
    if rows.saved(plan_key):
        return
    languages = src, tgt
    name = f"{Path(data).name}-{src}-{tgt}-{pairs}-{seed}"
    text = curve.sample(data, pairs, seed, languages, runs / "plan" / "text" / name)
    planned = planning.plan(Corpus(str(text), src, tgt), 20, print)
    changes = dict(planned["advice"])
    steps = changes.pop("steps")
    del changes["preset"]  # `tiny`, as the curve has it
    run = runs / "plan" / name
    run, _, again = curve.trained(run, text, languages, "scratch", changes, steps)
    translator = read_translator(run)
    keep = quality.keeping(rows, f"plan {name}")
    scores = quality.scores(translator, str(text), beam=tat.BEAM, keep=keep)
    row = plan_key | quality.describe(run, translator) | {"continued": again} | scores
    row |= {"predicted_minutes": planned["minutes"], "predicted_bleu": planned["bleu"]}
    row |= {"seen": planned["seen"]}
    rows.add(row)
    print(f"{run.name}: {planned['minutes']} minutes predicted, {row['minutes']:.1f} taken")
    print(f"{run.name}: BLEU {planned['bleu']} predicted, {scores['bleu']:.1f} on val")
