"""What finished models score on several splits, with their translations; each split is scored once."""

import itertools
from pathlib import Path

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.shared import RESULTS, Counts, Data, Rows, portable
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.search import Search
from translator.sources import load_pairs


def benchmark(
    models: tuple[Path, ...] = (), *, data: Data = "multi30k", splits: tuple[str, ...] = ("val", "test_2016_flickr"),
    beams: Counts = (1, tat.BEAM), rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Score models without a log, such as the shipped ones, and keep their translations.

    The length penalty is the document's. A model that has a row for a split and a search isn't scored there again: a test
    set is no place to try things out.

    Args:
        models: folders of models
        splits: names of splits
        beams: one row for each; 1 is greedy decoding
    """
    for folder, split, beam in itertools.product(models, splits, beams):
        translator = read_translator(folder)
        about = {"model": folder.name, "data": portable(data), "split": split, "search": Search(translator, beam).name}
        if rows.saved(about):
            continue
        size = {"sentences": len(load_pairs(data, split, *translator.languages))}
        keep = quality.keeping(rows, folder.name)
        rows.add(about | size | quality.scores(translator, data, split, beam, keep=keep), choose_device())
        print(f"{folder.name}, {split}, {about['search']}: {rows.saved(about)[0]['bleu']:.2f}", flush=True)
