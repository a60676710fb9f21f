"""The vocabulary of a run: reading its file, encoding many sentences at once, and BPE-dropout."""

import itertools
import json
import random
import zlib
from collections.abc import Iterable
from pathlib import Path

from the_annotated_transformer import BOS, EOS, SPECIALS, Pair, Tokenizer, words_of
from translator.files import read_json


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from its file.

    Raises ValueError for a damaged one, and for one with parts that this program does not write. Some would shorten sentences
    or add to them, and some patterns take years.
    """
    from tokenizers import Tokenizer as Vocabulary

    description = read_json(path)
    if '"Regex"' in json.dumps(description).replace(json.dumps({"Regex": r"\s+"}), ""):
        raise ValueError(f"{path}: not a tokenizer of this program; it has patterns of its own")
    for name in ("truncation", "padding", "post_processor"):
        if description.get(name) is not None:
            raise ValueError(f"{path}: not a tokenizer of this program; it has {name}")
    try:
        model = description["model"]
        if sorted(model["vocab"].values()) != list(range(len(model["vocab"]))):
            raise ValueError("its ids are not 0, 1, 2, ...")
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(name) is not None:
                raise ValueError(f"it has {name}")
        tokenizer = Tokenizer(Vocabulary.from_file(str(path)))
        encode_batch(tokenizer, ["Hund und Katze, 1."], "de")
        return tokenizer
    except (
        BaseException
    ) as error:  # the library raises bare Exception, and what it did not expect is no Exception at all
        if isinstance(error, KeyboardInterrupt):
            raise
        raise ValueError(f"{path}: not a tokenizer ({error})") from error


def encode_batch(tokenizer: Tokenizer, texts: Iterable[str], language: str) -> list[list[int]]:
    """The ids of many sentences, without BOS and EOS, encoded on all cores at once."""
    words = [words_of(text, language) for text in texts] if tokenizer.words else list(texts)
    return [found.ids for found in tokenizer.vocabulary.encode_batch_fast(words, is_pretokenized=tokenizer.words)]


def encode_pairs(tokenizer: Tokenizer, texts: Iterable[tuple[str, str]], languages: tuple[str, str]) -> list[Pair]:
    """Sentence pairs as training examples."""
    sides = [
        encode_batch(tokenizer, side, language)
        for side, language in zip(zip(*texts, strict=True), languages, strict=True)
    ]
    return [Pair([*src, EOS], [BOS, *tgt, EOS]) for src, tgt in zip(*sides, strict=True)]


# --- BPE-dropout (Provilkov et al., 2020) ---
#
# A model that always sees a word split in the same way learns little about its parts. So training skips some merges at
# random, and in each epoch the word splits into other, smaller pieces. Translation still uses all merges. Batches are made
# up before that, from the usual number of pieces, so they grow beyond `tokens_per_batch`.


def merge_ranks(tokenizer: Tokenizer) -> dict[tuple[str, str], int]:
    """The merges of a byte-pair encoding, each with its place in the order in which they were learnt."""
    merges = json.loads(tokenizer.vocabulary.to_str())["model"].get("merges", [])
    return {tuple(merge): i for i, merge in enumerate(merges)}


def segment(word: str, ranks: dict[tuple[str, str], int], skip: float, draw: random.Random) -> list[str]:
    """A word as pieces: merges the pair of lowest rank first, but skips each possible merge with probability `skip`."""
    pieces = list(word)
    while True:
        pairs = enumerate(itertools.pairwise(pieces))
        merges = [(ranks[pair], i) for i, pair in pairs if pair in ranks and draw.random() >= skip]
        if not merges:
            return pieces
        i = min(merges)[1]
        pieces[i : i + 2] = ["".join(pieces[i : i + 2])]


def recut(
    tokenizer: Tokenizer, ranks: dict[tuple[str, str], int], ids: Iterable[int], skip: float, draw: random.Random
) -> list[int]:
    """The same sentence split into other pieces; each merge is skipped with probability `skip`."""
    words = [""]
    for piece in tokenizer.tokens(ids):
        if piece.startswith("▁") or piece in SPECIALS or words[-1] in SPECIALS:
            words.append(piece)
        else:
            words[-1] += piece
    pieces = ([word] if word in SPECIALS else segment(word, ranks, skip, draw) for word in words)
    return [tokenizer.vocabulary.token_to_id(piece) for piece in itertools.chain.from_iterable(pieces)]


class Recut:
    """Splits training batches into other pieces, the same ones for the same batch, seed and epoch. For DataLoader."""

    def __init__(self, tokenizer: Tokenizer, skip: float, seed: int, epoch: int):
        self.tokenizer, self.skip, self.seed, self.epoch = tokenizer, skip, seed, epoch
        self.ranks = merge_ranks(tokenizer)

    def __call__(self, pairs: list[Pair]) -> list[Pair]:
        """The same sentences split into other pieces."""
        draw = random.Random(f"{self.seed} {self.epoch} {zlib.crc32(repr(pairs).encode())}")
        return [Pair(*(recut(self.tokenizer, self.ranks, side, self.skip, draw) for side in pair)) for pair in pairs]
