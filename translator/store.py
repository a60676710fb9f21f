"""The token store: sentence pairs as ids in two files, for corpora that do not fit in memory.

A run turns its text into ids once and keeps them: all ids one after the other, and where each sentence starts. Later each
batch reads only what it needs. The files are *mapped*: they look like arrays, and the operating system loads the pages that
are touched. Those pages count as the program's memory until the mapping is closed, so each batch opens a new mapping.
"""

import itertools
from array import array
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from the_annotated_transformer import Pair, Tokenizer
from translator.files import write_atomically
from translator.vocabulary import encode_pairs


class TokenStore:
    """Sentence pairs as ids in two files, PATH and PATH with the suffix .starts; only the needed parts are read."""

    def __init__(self, path: Path, vocab: int):
        self.path, self.kind = path, np.uint16 if vocab <= 2**16 else np.uint32

    def starts(self) -> np.ndarray:
        """Where each source and target starts among the ids, and where the last one ends: (2n + 1)."""
        return np.asarray(np.memmap(self.path.with_suffix(".starts"), np.int64, "r"))

    def lengths(self) -> np.ndarray:
        """The number of tokens of each source and target: (n, 2)."""
        return np.diff(self.starts()).astype(np.int32).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.starts()) // 2

    def __getitems__(self, rows: Iterable[int]) -> list[Pair]:
        """The pairs with these numbers."""
        ids, starts = np.asarray(np.memmap(self.path, self.kind, "r")), self.starts()
        spans = (starts[2 * row : 2 * row + 3].tolist() for row in rows)
        return [Pair(ids[src:tgt].tolist(), ids[tgt:end].tolist()) for src, tgt, end in spans]


def write_store(
    path: Path, texts: Iterable[tuple[str, str]], tokenizer: Tokenizer, languages: tuple[str, str]
) -> TokenStore:
    """Turn text into a store, ten thousand pairs at a time; a crash leaves a whole store or none."""
    store, texts, starts = TokenStore(path, len(tokenizer)), iter(texts), array("q", [0])

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            while chunk := list(itertools.islice(texts, 10_000)):
                sides = list(itertools.chain.from_iterable(encode_pairs(tokenizer, chunk, languages)))
                starts.extend(itertools.accumulate(map(len, sides), initial=starts.pop()))
                file.write(np.fromiter(itertools.chain.from_iterable(sides), store.kind).tobytes())

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)
    write_atomically(path.with_suffix(".starts"), lambda temporary: temporary.write_bytes(starts.tobytes()))
    return store
