"""Text as numbers: the vocabulary's file, encoding, and the token store.

The store is for corpora that do not fit in memory. A run turns its text into ids once and keeps
them: all ids one after the other, and where each sentence starts. Later each batch reads only what
it needs. The files are *mapped*: they look like arrays, and the operating system loads the pages
that are touched. Those pages count as the program's memory until the mapping is closed, so each
batch opens a new mapping.
"""

import itertools
import json
import re
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from the_annotated_transformer import BOS, EOS, UNK, Pair, Tokenizer, words_of
from translator.ctranslate2_folder.translate import HIDDEN, MARK
from translator.files import Refused, read_json, refusing, warn, write_atomically


class SidedTokenizer(Tokenizer):
    """A tokenizer that cuts text of one language, the target's, by other rules.

    The tokens and their ids are the same.
    """

    def __init__(self, source: Any, target: Any, language: str):
        super().__init__(source)
        self.target, self.language = target, language

    def encode(self, text: str, language: str) -> list[int]:
        """The ids of a sentence, without BOS and EOS."""
        return encode_texts(self, [text], language)[0]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens with these ids, specials included."""
        return [token.removesuffix(HIDDEN) for token in super().tokens(ids)]


def vocabulary_for(tokenizer: Tokenizer, language: str) -> Any:
    """The rules (a `tokenizers.Tokenizer`) by which text of a language is cut."""
    sided = isinstance(tokenizer, SidedTokenizer) and language == tokenizer.language
    return tokenizer.target if sided else tokenizer.vocabulary


def tokenizer_text(tokenizer: Tokenizer) -> str:
    """What `read_tokenizer` reads from a file: the library's own JSON, or that of both sides."""
    if not isinstance(tokenizer, SidedTokenizer):
        return tokenizer.vocabulary.to_str(pretty=True)
    sides = {"source": tokenizer.vocabulary, "target": tokenizer.target}
    description = {name: json.loads(side.to_str()) for name, side in sides.items()}
    return json.dumps(description | {"language": tokenizer.language}, ensure_ascii=False)


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from its file; Refused for a damaged one, and for one with its own patterns."""
    # some patterns take years; those of this program are known
    description = read_json(path)
    if "target" not in description:
        return Tokenizer(read_rules(description, path))
    source, target = (read_rules(description.get(side), path) for side in ("source", "target"))
    if source.get_vocab() != target.get_vocab():
        raise Refused(f"{path}: its two sides have different tokens")
    return SidedTokenizer(source, target, str(description.get("language")))


def read_rules(description: Any, path: Path) -> Any:
    """A `tokenizers.Tokenizer` from its description; raises as `read_tokenizer` does."""
    from tokenizers import Tokenizer as Vocabulary

    # the library's panics are no Exception
    with refusing(f"{path}: not a tokenizer of this program", BaseException):
        if '"Regex"' in json.dumps(description).replace(json.dumps({"Regex": r"\s+"}), ""):
            raise ValueError("it has patterns of its own")
        vocabulary = Vocabulary.from_str(json.dumps(description))
        # what it can't encode shows now, not in the midst of a training
        encode_texts(Tokenizer(vocabulary), ["Hund und Katze, 1."], "de")
        return vocabulary


def encode_texts(tokenizer: Tokenizer, texts: Iterable[str], language: str) -> list[list[int]]:
    """The ids of many sentences, without BOS and EOS, encoded on all cores at once."""
    rules = vocabulary_for(tokenizer, language)
    if not has_marks(tokenizer):
        words: Any = (words_of(text, language) for text in texts) if tokenizer.words else texts
        encodings = rules.encode_batch_fast(list(words), is_pretokenized=tokenizer.words)
        return [encoding.ids for encoding in encodings]
    # A text has no special token in it, except that the mark of a language in front of it is one.
    # All texts go through the rules at once, without their marks; these are put before their ids.
    texts = [text.replace(HIDDEN, "") for text in texts]
    marks = [mark_of(tokenizer, text) for text in texts]
    unmarked = [
        text.lstrip().removeprefix(mark) if mark else text
        for text, mark in zip(texts, marks, strict=True)
    ]
    ids = [encoding.ids for encoding in rules.encode_batch_fast(unmarked)]
    for row, mark in zip(ids, marks, strict=True):
        if mark:
            row.insert(0, rules.token_to_id(mark + HIDDEN))
    return ids


def has_marks(tokenizer: Tokenizer) -> bool:
    """Whether special tokens have names that no text contains, as in a vocabulary of Marian's."""
    return tokenizer.vocabulary.token_to_id("</s>" + HIDDEN) is not None


def mark_of(tokenizer: Tokenizer, text: str) -> str:
    """The token such as `>>fra<<` that a sentence begins with, which names a language; or ""."""
    mark = re.match(MARK, text)
    is_token = mark and tokenizer.vocabulary.token_to_id(mark[1] + HIDDEN) is not None
    return mark[1] if is_token else ""


def encode_pairs(
    tokenizer: Tokenizer, texts: Iterable[tuple[str, str]], languages: tuple[str, str]
) -> list[Pair]:
    """Sentence pairs as training examples."""
    # a side at a time, so that all cores encode many sentences of one language together
    sides = zip(zip(*texts, strict=True), languages, strict=True)
    ids = [encode_texts(tokenizer, side, language) for side, language in sides]
    return [Pair([*src, EOS], [BOS, *tgt, EOS]) for src, tgt in zip(*ids, strict=True)]


class TokenStore:
    """Sentence pairs as ids in two files, PATH and PATH with the suffix .starts.

    Only the needed parts are read.
    """

    def __init__(self, path: Path, vocab: int):
        self.path = path
        self.kind = np.uint16 if vocab <= 2**16 else np.uint32

    @property
    def is_written(self) -> bool:
        """Whether it is there, whole: its starts are written last."""
        return self.path.with_suffix(".starts").exists()

    def starts(self) -> np.ndarray:
        """Where each source and target starts among the ids, and where the last ends: (2n + 1)."""
        path = self.path.with_suffix(".starts")
        return np.asarray(np.memmap(path, np.int64, "r"))

    def lengths(self) -> np.ndarray:
        """The number of tokens of each source and target: (n, 2)."""
        return np.diff(self.starts()).astype(np.int32).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.starts()) // 2

    def guessing(self) -> float:
        """The loss in nats of who only knows how often each token occurs, in the first million."""
        # of the first million tokens alone: a corpus may be larger than memory
        counts = np.bincount(np.fromfile(self.path, self.kind, count=10**6))
        return torch.distributions.Categorical(torch.from_numpy(counts).double()).entropy().item()

    def unknown(self) -> float:
        """The share of unknown tokens, 0 to 1, in the first million."""
        return float((np.fromfile(self.path, self.kind, count=10**6) == UNK).mean())

    def pairs(self, rows: Iterable[int]) -> list[Pair]:
        """The pairs with these numbers."""
        # opened for each batch: its pages are given back when it is closed
        ids = np.asarray(np.memmap(self.path, self.kind, "r"))
        starts = self.starts()
        spans = [starts[2 * row : 2 * row + 3].tolist() for row in rows]
        return [Pair(ids[src:tgt].tolist(), ids[tgt:end].tolist()) for src, tgt, end in spans]


def write_store(
    path: Path, texts: Iterable[tuple], tokenizer: Tokenizer, languages: tuple[str, str],
    longest: int | None = None,
) -> TokenStore:  # fmt: skip
    """Turn pairs of at most `longest` tokens a side, BOS and EOS among them, into a store.

    A crash leaves all of it or nothing, if there are no starts of an older one.
    """
    # The ids go to disk as they are made; of the text, memory holds ten thousand pairs and where
    # each side starts. The starts are written last: without them there is no store.
    store = TokenStore(path, len(tokenizer))
    texts = iter(texts)
    starts = array("q", [0])
    left_out = 0

    def write(temporary: Path) -> None:
        nonlocal left_out
        with temporary.open("wb") as file:
            while chunk := list(itertools.islice(texts, 10_000)):
                pairs = encode_pairs(tokenizer, chunk, languages)
                kept_pairs = [p for p in pairs if longest is None or max(map(len, p)) <= longest]
                sides = list(itertools.chain.from_iterable(kept_pairs))
                left_out += len(pairs) - len(kept_pairs)
                # the last start is where these pairs begin
                starts.extend(itertools.accumulate(map(len, sides), initial=starts.pop()))
                file.write(np.fromiter(itertools.chain.from_iterable(sides), store.kind).tobytes())
        if len(starts) == 1:
            raise Refused(f"--longest {longest} leaves no pair of {path.stem}")

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)
    write_atomically(path.with_suffix(".starts"), lambda file: file.write_bytes(starts.tobytes()))
    if left_out > 0:
        warn(
            f"pairs of {path.stem} of more than {longest} tokens, which are left out: {left_out:,}"
        )
    return store
