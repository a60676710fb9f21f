"""What finished models score on several splits, with translations; each split is scored once."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import the_annotated_transformer as tat
from benchmarks import quality
from benchmarks.shared import RESULTS, Counts, Data, Rows, portable
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.search import Search
from translator.sources import load_pairs


@contextmanager
def divided_by_length() -> Iterator[None]:
    """Beam search divides log P meanwhile by the number of tokens, with `</s>`, whatever alpha."""
    usual = tat.length_penalty
    tat.length_penalty = lambda length, alpha: length
    try:
        yield
    finally:
        tat.length_penalty = usual


def benchmark(
    models: tuple[Path, ...] = (), *, data: Data = "multi30k",
    splits: tuple[str, ...] = ("val", "test_2016_flickr"), beams: Counts = (1, tat.BEAM),
    by_length: bool = False, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Score models without a log, such as the shipped ones, and keep their translations.

    The length penalty is the document's. A model that has a row for a split and a search isn't
    scored there again: a test set is no place to try things out.

    Args:
        models: folders of models
        splits: names of splits
        beams: one row for each; 1 is greedy decoding
        by_length: divide log P by the length itself, as Wu et al. (2021) do,
            in place of the document's penalty
    """
    for folder, split, beam in itertools.product(models, splits, beams):
        model = read_translator(folder)
        search = Search(model, beam).name
        if by_length and beam > 1:
            search = f"beam {beam}, log P / length"
        row_key = {"model": folder.name, "data": portable(data), "split": split, "search": search}
        if rows.saved(row_key):
            continue
        size = {"sentences": len(load_pairs(data, split, *model.languages))}
        title = f"{folder.name} {split} {search}"
        keep = lambda _, lines, title=title: rows.keep(title, lines)  # noqa: E731
        with divided_by_length() if by_length else nullcontext():
            scores = quality.scores(model, data, split, beam, keep=keep)
        row = row_key | size | scores | {"search": search}
        rows.add(row, choose_device())
        print("{model}, {split}, {search}: {bleu:.2f}".format(**row), flush=True)
