"""What a run recommends: its end, its best model or the mean of its last checkpoints."""

import tempfile
from pathlib import Path
from typing import Any

from benchmarks import quality
from benchmarks.shared import RESULTS, Data, Rows, portable
from translator.__main__ import average
from translator.model_folder import read_translator
from translator.run_folder import token_store
from translator.run_log import read_log
from translator.settings import Count
from translator.trainer import chance, greedy_bleu, sample


def benchmark(
    run: Path, *, data: Data, split: str = "test", last: Count = 5, rows: Rows = RESULTS
) -> None:
    """Score the three models of a finished run on a split that took no part in the choice.

    The choice is the program's: the end, unless one of the others has a BLEU on the held-out
    sentences of a validation that is higher by more than chance. `behind` is what it costs: the
    highest BLEU of the three on the split, less that of the model chosen.

    Args:
        run: the folder of a run
        split: the name of the split, such as test
        last: number of checkpoints to average
    """
    with tempfile.TemporaryDirectory() as folder:
        mean = Path(folder) / "mean"
        average(run, out=mean, last=last)
        models = {"end": run, "best": run / "best", "mean": mean}
        translators = {name: read_translator(path) for name, path in models.items()}
    tokenizer = translators["end"].tokenizer
    store = token_store(run, "val", tokenizer)
    sentences = sample(store.pairs(range(len(store))))
    val, test = {}, {}
    for name, translator in translators.items():
        val[name] = round(greedy_bleu(translator.model, tokenizer, sentences), 2)
        test[name] = round(quality.scores(translator, data, split)["bleu"], 2)
    chosen = max(val, key=lambda name: val[name] - chance(len(sentences)) * (name != "end"))
    row: dict[str, Any] = {"data": portable(data), "split": split, "last": last}
    row |= {"validations": [r for r in read_log(run) if "val_loss" in r], "val_bleu": val}
    row |= {"sentences": len(sentences), "chance": chance(len(sentences)), "bleu": test}
    row |= {"chosen": chosen, "behind": round(max(test.values()) - test[chosen], 2)}
    rows.add(row | quality.describe(run, translators["end"]))
    print(f"{data}: {chosen}, {row['behind']} BLEU behind; {test}")
