"""Where sentence pairs come from: Multi30k, a folder, the Hugging Face hub, or a grammar."""

import gzip
import itertools
import os
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from translator.captions import caption_pairs
from translator.ctranslate2_folder.translate import decoded, plain
from translator.files import Refused, nobody, refusing


def find_file(folder: Path, name: str) -> Path:
    """The file `name` or `name`.gz in a folder; raises FileNotFoundError if there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    listed = textwrap.shorten(", ".join(names), 120, placeholder=" ...") or "nothing"
    train = name.replace("val.", "train.", 1)
    has_train = train != name and {train, f"{train}.gz"} & {*names}
    advice = "; --held-out 0.01 takes val from train" if has_train else ""
    raise FileNotFoundError(
        f"{folder / name}: no such file, and no {name}.gz beside it; the folder holds {listed}; "
        f"the endings are the languages, as --src and --tgt (or a model) name them{advice}"
    )


def open_file(path: Path, mode: Any = "rb", **how: Any) -> Any:
    """A file, opened as `open` does; packed if its name ends with .gz."""
    return (gzip.open if path.suffix == ".gz" else open)(path, mode, **how)


LONGEST_LINE_BYTES = 100_000  # no sentence is longer, but a small .gz may unpack to far more


def decoded_line(line: bytes, name: Path | str, number: int) -> str:
    """A line of UTF-8 text without surrounding space; Refused names the file and the line."""
    if len(line) > LONGEST_LINE_BYTES:
        raise Refused(
            f"{name}, line {number}: more than {LONGEST_LINE_BYTES:,} bytes; "
            "there should be a sentence per line"
        )
    try:
        return decoded(line)
    except ValueError as error:
        raise Refused(f"{name}, line {number}: {error}") from error


def decoded_lines(file: Any, name: Path | str) -> Iterator[list[str]]:
    """The lines of UTF-8 text, in lists of those that have arrived.

    Raises Refused for a damaged file or line, after the lines before it.
    """
    # `read1` returns what a pipe holds, without waiting for more, so a line is not kept waiting for
    # the next. What comes after the last line feed waits in `line_start` for the next round: it is
    # a line only when the file ends there, or when it is too long already, as `decoded_line` says.
    number = 0
    line_start = b""
    data = b"more"
    damages = gzip.BadGzipFile, EOFError, zlib.error
    while data:
        with refusing(f"{name}: truncated or not a gzip file", *damages):
            data = file.read1(1 << 16)
        *lines, line_start = (line_start + data).split(b"\n")  # only a line feed ends a line
        if line_start and (not data or len(line_start) > LONGEST_LINE_BYTES):
            lines.append(line_start)
            line_start = b""
        texts = []
        for line in lines:
            number += 1
            try:
                texts.append(decoded_line(line, name, number))
            except Refused:
                yield texts
                raise
        yield texts


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or .gz; Refused if it is damaged or holds no text."""
    text = False
    with open_file(path) as file:
        for lines in decoded_lines(file, path):
            text = text or any(lines)
            yield from lines
    if not text:
        raise Refused(f"{path}: empty")


def read_parallel(folder: Path, split: str, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of FOLDER/SPLIT.SRC and FOLDER/SPLIT.TGT, line by line.

    Raises FileNotFoundError or ValueError naming the file, and the line if there is one.
    """
    # both files at once, line by line: a corpus may be larger than memory
    paths = [find_file(Path(folder), f"{split}.{language}") for language in (src, tgt)]
    sides = [read_lines(path) for path in paths]
    for number, pair in enumerate(itertools.zip_longest(sides[0], sides[1])):
        if None in pair:
            short = pair.index(None)
            # the rest of the longer file is read: how many lines it has helps to find the slip
            lines = number + 1 + sum(1 for _ in sides[1 - short])
            raise Refused(
                f"{paths[short]}: ends at line {number}, but {paths[1 - short]} has {lines} lines"
            )
        yield pair


MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
MULTI30K_FILES = {  # SHA-256 of each compressed file; the first four are the document's, too
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    "test_2018_flickr.de.gz": "ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608",
    "test_2018_flickr.en.gz": "ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d",
}


def fetch_multi30k(split: str, url: str = MULTI30K_URL) -> Path:
    """The cache folder; fetches the two files of `split` if they are missing.

    A failure is followed by two more tries, after growing pauses. Raises Refused for an unknown
    split, and if the files can be neither found nor fetched.
    """
    import pooch

    # pooch compares the checksum of what is there and of what it fetches
    names = [f"{split}.{language}.gz" for language in ("de", "en")]
    if names[0] not in MULTI30K_FILES:
        splits = ", ".join(sorted({name.split(".")[0] for name in MULTI30K_FILES}))
        raise Refused(f"multi30k has no split {split!r}; it has {splits}")
    pooch.get_logger().setLevel("WARNING")
    folder = (
        os.environ.get("MULTI30K_CACHE") or pooch.os_cache("annotated-transformer") / "multi30k"
    )
    store = pooch.create(Path(folder).expanduser(), url, registry=MULTI30K_FILES, retry_if_failed=2)
    not_fetched = (
        f"multi30k: {names[0]} is not in {store.abspath} and could not be fetched; "
        f"put {' and '.join(names)} from {url} there yourself, "
        "or use `captions`, which needs no network"
    )
    with refusing(not_fetched, OSError, ValueError):
        for name in names:
            store.fetch(name, downloader=pooch.HTTPDownloader(timeout=20))
    return store.abspath


def hub_pairs(name: str, split: str, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    """The pairs of a set on the Hugging Face hub, NAME or NAME:CONFIG, read from disk one by one.

    NAME:CONFIG@parquet is for a set that is published as a script, which nobody should run: it
    reads the hub's own conversion (the branch refs/convert/parquet, a folder for each
    configuration). The split `val` is the hub's `validation`. Raises Refused if there is no such
    set or split, or if the set lacks a language.
    """
    with refusing(f"hf:{name} needs the package datasets: pip install datasets", ImportError):
        from datasets import load_dataset
    stem = name.removesuffix("@parquet")
    path, _, config = stem.partition(":")
    where = {"name": config or None}
    if stem != name:
        where = {"data_dir": config or None, "revision": "refs/convert/parquet"}
    with refusing(f"hf:{name} cannot be read", Exception):  # the library's errors are of many kinds
        rows = load_dataset(path, split="validation" if split == "val" else split, **where)
    columns = ", ".join(getattr(rows, "column_names", None) or [])
    lacks_one = (
        f"hf:{name}: translation sets have `translation` with {src}, {tgt} (here: {columns}), "
        f"but {split} lacks one"
    )
    with refusing(lacks_one, KeyError, TypeError, AttributeError):
        for row in rows:
            sides = (row["translation"][language] or "" for language in (src, tgt))
            source, target = (plain(" ".join(text.split())) for text in sides)
            yield source, target


def divided(pairs: Iterable[tuple], share: float, split: str, data: str) -> Iterator[tuple]:
    """The held-out pairs for the split `val`, the others for `train`; Refused if there are none."""
    # What follows the two texts of a pair, such as its line's number, comes with it.
    empty = True
    for pair in pairs:
        # the texts alone decide, so repetitions stay together; sorted, so that both directions of a
        # pair of languages hold out the same
        number = zlib.crc32("\n".join(sorted(pair[:2])).encode())
        if (number < share * 2**32) == (split == "val"):
            empty = False
            yield pair
    if empty:
        raise Refused(f"{data}: --held-out {share:g} leaves no pair of train for {split}")


BUILT_IN = "multi30k", "captions"
SPLITS = "train", "val"


@dataclass(frozen=True)
class Corpus:
    """Sentence pairs of two languages: `multi30k`, `captions`, `hf:NAME`, or those of a folder.

    With `held_out`, `val` is that share of what `train` has there, `train` is the rest, and other
    splits stay as they are.
    """

    data: str
    src: str = "de"
    tgt: str = "en"
    held_out: float | None = None

    @property
    def languages(self) -> tuple[str, str]:
        """Those of source and target."""
        return self.src, self.tgt

    @property
    def folder(self) -> Path | None:
        """The folder that holds the text; None for what is built in, on the hub or nowhere."""
        return Path(self.data) if self.data not in BUILT_IN and Path(self.data).is_dir() else None

    def pairs(self, split: str) -> Iterator[tuple[str, str]]:
        """The sentence pairs of a split, one by one.

        Raises Refused or FileNotFoundError with a one-line message; a damaged line raises when it
        is read.
        """
        # What the name alone decides is refused at once, before the first pair is asked for: this
        # returns iterators, and is no generator. Multi30k is fetched and captions are made now,
        # too; a missing file, or a set that isn't on the hub, shows at the first pair. A built-in
        # name comes before a folder.
        data = self.data
        if self.held_out is not None and not 0 < self.held_out < 1:
            raise Refused(f"--held-out must be above 0 and below 1, but it is {self.held_out}")
        if self.held_out is not None and split in SPLITS:
            undivided = replace(self, held_out=None)
            return divided(undivided.pairs("train"), self.held_out, split, data)
        if data == "multi30k":
            return read_parallel(fetch_multi30k(split), split, *self.languages)
        if data == "captions":
            return caption_pairs(split, *self.languages)
        if data.startswith("hf:"):
            return hub_pairs(data.removeprefix("hf:"), split, *self.languages)
        if self.folder:
            return read_parallel(self.folder, split, *self.languages)
        splits = SPLITS if split in SPLITS else [split]
        names = ", ".join(f"{name}.{side}" for name in splits for side in self.languages)
        if Path(data).is_file():
            raise Refused(
                f"{data}: a file; --data takes a folder with {names}, one sentence per line"
            )
        raise FileNotFoundError(
            f"{data}: no such folder with {names}, and neither multi30k, captions nor hf:NAME"
        )

    def full_pairs(self, split: str, tell: Callable[[str], None] = nobody) -> "FullPairs":
        """The pairs of a split that have text on both sides; see there."""
        return FullPairs(self, split, tell)

    def fingerprint(self) -> str | None:
        """A checksum of the beginnings and sizes of a folder's train and val; None without them."""
        if not self.folder:
            return None
        names = [f"{split}.{language}" for split in SPLITS for language in self.languages]
        paths = [self.folder / (name + suffix) for name in names for suffix in ("", ".gz")]
        paths = [path for path in paths if path.is_file()]
        # beginnings and sizes: a corpus of gigabytes is told apart in a moment
        digest = 0
        for path in paths:
            with path.open("rb") as file:
                digest = zlib.crc32(file.read(1 << 20) + str(path.stat().st_size).encode(), digest)
        return f"{digest:08x}" if paths else None

    def place(self, split: str, row: int) -> str:
        """Where the text has a full pair, in brackets; nothing if that is not there any more."""
        with suppress(Refused, OSError, StopIteration):
            pair = next(itertools.islice(self.full_pairs(split), row, None))
            if self.held_out:
                split = "train"
            lines = enumerate(replace(self, held_out=None).pairs(split), 1)
            number = next(number for number, line in lines if line == pair)
            longer_side = int(len(pair[1]) > len(pair[0]))
            return f" ({self.data}: {split}.{self.languages[longer_side]}, line {number})"
        return ""


@dataclass(frozen=True)
class FullPairs:
    """The pairs of a split that have text on both sides; each iteration reads them again.

    Others teach nothing. After it, `tell` gets a sentence with their number, if there are any; they
    may mean that two files have slipped. Raises Refused if there are no full pairs, and whatever
    `Corpus.pairs` raises.
    """

    corpus: Corpus
    split: str
    tell: Callable[[str], None] = nobody

    def __iter__(self) -> Iterator[tuple[str, str]]:
        full = left_out = 0
        for pair in self.corpus.pairs(self.split):
            if all(pair):
                full += 1
                yield pair
            else:
                left_out += 1
        if not full:
            data, src, tgt = self.corpus.data, self.corpus.src, self.corpus.tgt
            raise Refused(f"{data}: no line of {self.split} has text in both {src} and {tgt}")
        if left_out:
            self.tell(
                f"pairs of {self.split} without text on one side, which are left out: {left_out:,}"
            )


def load_pairs(
    data: str, split: str, src: str = "de", tgt: str = "en", held_out: float | None = None
) -> list[tuple[str, str]]:  # fmt: skip
    """All sentence pairs of a split of a source; raises as `Corpus.pairs` does."""
    return list(Corpus(data, src, tgt, held_out).pairs(split))
