"""Where sentence pairs come from: Multi30k, a folder, the Hugging Face hub, or a grammar."""

import gzip
import itertools
import os
import secrets
import shutil
import textwrap
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

from translator.captions import caption_pairs
from translator.ctranslate2_folder.translate import decoded, plain
from translator.files import (
    PARTIAL,
    POINTER,
    Refused,
    check_pointer,
    nobody,
    refusing,
    stream_of,
    warn,
    writing,
)


def find_file(folder: Path, name: str) -> Path:
    """The file `name` or `name`.gz in a folder; raises FileNotFoundError if there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    advice = "; --held-out 0.01 takes val from train" if name.startswith("val.") else ""
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    held = textwrap.shorten(", ".join(found), 120, placeholder=" ...") or "nothing"
    raise FileNotFoundError(
        f"{folder / name}: no such file, and no {name}.gz beside it; the folder holds {held}; "
        f"the endings are the languages, as --src and --tgt (or a model) name them{advice}"
    )


def open_file(path: Path, mode: Any = "rb", **how: Any) -> Any:
    """A file, opened as `open` does; packed if its name ends with .gz.

    Raises Refused for a pointer of Git LFS.
    """
    if mode == "rb":
        check_pointer(path)
    return (gzip.open if path.suffix == ".gz" else open)(path, mode, **how)


@contextmanager
def new_text(path: Path) -> Iterator[IO]:
    """A file to write text to as it comes, or the stream that `path` names.

    A file that holds something stays until the new one, beside it, is whole. Whoever is interrupted
    learns where the lines are that are ready.
    """
    if stream := stream_of(path):
        yield stream
        return
    target, place = Path(os.path.realpath(path)), path  # links are kept
    if held := path.is_file() and path.stat().st_size > 0:
        random = secrets.token_hex(4)
        place = target.with_name(f"{target.stem[:50]}.{random}{PARTIAL}{target.suffix}")
    new = not place.exists()
    file = open_file(place, "xt" if held else "wt", encoding="utf-8")
    try:
        yield file
        with writing(path):  # what was left to write
            file.close()
        if held:
            with suppress(OSError):  # some file systems have no modes
                shutil.copymode(target, place)
            os.replace(place, target)
    except BaseException:
        empty = False
        with suppress(OSError, ValueError):  # a pipe has no position, and a full disk no room
            empty = file.tell() == 0
        with suppress(OSError, ValueError):
            file.close()
        if empty and new:
            place.unlink()
        elif held:
            warn(f"{path} is as it was, and the lines that were ready are in {place}")
        raise


LONGEST = 100_000  # bytes of a line: no sentence is longer, but a small .gz may unpack to far more


def decoded_line(line: bytes, name: Path | str, number: int) -> str:
    """A line of UTF-8 text without surrounding space; Refused names the file and the line."""
    where = f"{name}, line {number}"
    if len(line) > LONGEST:
        raise Refused(f"{where}: more than {LONGEST:,} bytes; there should be a sentence per line")
    if line.startswith(POINTER):
        raise Refused(f"{where}: only a pointer of Git LFS; `git lfs pull` fetches the file itself")
    try:
        return decoded(line)
    except ValueError as error:
        raise Refused(f"{where}: {error}") from error


def decoded_lines(file: Any, name: Path | str) -> Iterator[list[str]]:
    """The lines of UTF-8 text, in lists of those that have arrived.

    Raises Refused for a damaged file or line, after the lines before it.
    """
    # `read1` returns what a pipe holds, without waiting for more, so a line is not kept waiting for
    # the next. What comes after the last line feed is kept for the next round: it is a line only
    # when the file ends there, or when it is too long already, which `decoded_line` says.
    number, rest, data = 0, b"", b"more"
    while data:
        what = f"{name}: truncated or not a gzip file"
        with refusing(what, gzip.BadGzipFile, EOFError, zlib.error):
            data = file.read1(1 << 16)
        *lines, rest = (rest + data).split(b"\n")  # only a line feed ends a line
        if rest and (not data or len(rest) > LONGEST):
            lines.append(rest)
            rest = b""
        found = []
        for line in lines:
            number += 1
            try:
                found.append(decoded_line(line, name, number))
            except Refused:
                yield found
                raise
        yield found


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
    paths = [find_file(Path(folder), f"{split}.{language}") for language in (src, tgt)]
    sides = [read_lines(path) for path in paths]
    for number, pair in enumerate(itertools.zip_longest(sides[0], sides[1])):
        if None in pair:
            short = pair.index(None)
            longer = number + 1 + sum(1 for _ in sides[1 - short])
            other = f"{paths[1 - short]} has {longer} lines"
            raise Refused(f"{paths[short]}: ends at line {number}, but {other}")
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
    from filelock import FileLock

    names = [f"{split}.{language}.gz" for language in ("de", "en")]
    if names[0] not in MULTI30K_FILES:
        known = sorted({name.split(".")[0] for name in MULTI30K_FILES})
        raise Refused(f"multi30k has no split {split!r}; it has {', '.join(known)}")
    pooch.get_logger().setLevel("WARNING")
    folder = os.environ.get("MULTI30K_CACHE")
    what = "multi30k needs a folder: MULTI30K_CACHE in the environment may name one"
    with refusing(what, RuntimeError):  # there is no home
        folder = folder or pooch.os_cache("annotated-transformer") / "multi30k"
        folder = Path(folder).expanduser()
    store = pooch.create(folder, url, registry=MULTI30K_FILES, retry_if_failed=2)
    missing = not all((store.abspath / name).is_file() for name in names)
    what = f"multi30k: {names[0]} is not in {store.abspath} and could not be fetched"
    what += f"; put {' and '.join(names)} from {url} there yourself, or use `captions`"
    with refusing(f"{what}, which needs no network", OSError, ValueError):
        if missing:
            store.abspath.mkdir(parents=True, exist_ok=True)
        # two processes may fetch at the same time; one that finds both files needs no lock, and may
        # not be allowed to make one
        with FileLock(store.abspath / ".lock", timeout=600) if missing else nullcontext():
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
    has = f"translation sets have `translation` with {src}, {tgt} (here: {columns})"
    with refusing(f"hf:{name}: {has}, but {split} lacks one", KeyError, TypeError, AttributeError):
        for row in rows:
            sides = (row["translation"][language] or "" for language in (src, tgt))
            source, target = (plain(" ".join(text.split())) for text in sides)
            yield source, target


def divided(pairs: Iterable[tuple], share: float, split: str, data: str) -> Iterator[tuple]:
    """The held-out pairs for the split `val`, the others for `train`; Refused if there are none.

    What follows the two texts of a pair, such as its line's number, comes with it.
    """
    some = False
    for pair in pairs:
        # the texts alone decide, so repetitions stay together; sorted, so that both directions of a
        # pair of languages hold out the same
        number = zlib.crc32("\n".join(sorted(pair[:2])).encode())
        if (number < share * 2**32) == (split == "val"):
            some = True
            yield pair
    if not some:
        raise Refused(f"{data}: --held-out {share:g} leaves no pair of train for {split}")


BUILT_IN, SPLITS = ("multi30k", "captions"), ("train", "val")


@cache
def warn_of_hidden(data: str) -> None:
    """Say once that a built-in name hides a folder of that name."""
    if data in BUILT_IN and any(Path(data).glob("*.*")):
        what = f"--data {data} is what comes with the program"
        warn(f"{what}, not the folder here, which is ./{data}")


def stream_pairs(
    data: str, split: str, src: str, tgt: str, held_out: float | None = None
) -> Iterator[tuple[str, str]]:  # fmt: skip
    """The sentence pairs of a split, one by one: of `multi30k`, `captions`, `hf:NAME` or a folder.

    With `held_out`, `val` is that share of what `train` has there, `train` is the rest, and other
    splits stay as they are. Raises Refused or FileNotFoundError with a one-line message; a damaged
    line raises when it is read.
    """
    # What the name alone decides is refused at once, before the first pair is asked for: this is a
    # function that returns iterators, and no generator. Multi30k is fetched and captions are made
    # now, too; a missing file, or a set that isn't on the hub, shows at the first pair. A built-in
    # name comes before a folder.
    warn_of_hidden(data)
    of_training = split in SPLITS
    if held_out is not None and not 0 < held_out < 1:
        raise Refused(f"--held-out must be above 0 and below 1, but it is {held_out}")
    if held_out is not None and of_training:
        return divided(stream_pairs(data, "train", src, tgt), held_out, split, data)
    if data == "multi30k":
        return read_parallel(fetch_multi30k(split), split, src, tgt)
    if data == "captions":
        return caption_pairs(split, src, tgt)
    if data.startswith("hf:"):
        if data.startswith(("hf::", "hf:@")) or data == "hf:":
            raise Refused("hf: needs the name of a set, hf:NAME or hf:NAME:CONFIG")
        return hub_pairs(data.removeprefix("hf:"), split, src, tgt)
    if Path(data).is_dir():
        return read_parallel(Path(data), split, src, tgt)
    splits = SPLITS if of_training else [split]
    names = [f"{name}.{side}" for name in splits for side in (src, tgt)]
    wanted = f"with {', '.join(names)}"
    if Path(data).is_file():
        raise Refused(f"{data}: a file; --data takes a folder {wanted}, one sentence per line")
    known = "neither multi30k, captions nor hf:NAME"
    raise FileNotFoundError(f"{data}: no such folder {wanted}, and {known}")


def fingerprint(data: str, languages: tuple[str, str]) -> str | None:
    """A checksum of the beginnings and sizes of a folder's train and val; None for other data."""
    names = [f"{split}.{language}" for split in SPLITS for language in languages]
    paths = [Path(data, name + suffix) for name in names for suffix in ("", ".gz")]
    paths = [path for path in paths if path.is_file()]
    digest = 0
    for path in paths:
        with path.open("rb") as file:
            digest = zlib.crc32(file.read(1 << 20) + str(path.stat().st_size).encode(), digest)
    return f"{digest:08x}" if paths and data not in BUILT_IN else None


def load_pairs(
    data: str, split: str, src: str = "de", tgt: str = "en", held_out: float | None = None
) -> list[tuple[str, str]]:  # fmt: skip
    """All sentence pairs of a split of a source; raises as `stream_pairs` does."""
    return list(stream_pairs(data, split, src, tgt, held_out))


@dataclass
class FullPairs:
    """The pairs of a split that have text on both sides; each iteration reads them again.

    Others teach nothing. After it, `tell` gets a sentence with their number, if there are any; they
    may mean that two files have slipped. Raises Refused if there are no full pairs, and whatever
    `stream_pairs` raises.
    """

    data: str
    split: str
    src: str
    tgt: str
    held_out: float | None = None
    tell: Callable[[str], None] = nobody

    def __iter__(self) -> Iterator[tuple[str, str]]:
        full = left_out = 0
        for pair in stream_pairs(self.data, self.split, self.src, self.tgt, self.held_out):
            if all(pair):
                full += 1
                yield pair
            else:
                left_out += 1
        if not full:
            both = f"both {self.src} and {self.tgt}"
            raise Refused(f"{self.data}: no line of {self.split} has text in {both}")
        if left_out:
            what = f"pairs of {self.split} without text on one side"
            self.tell(f"{what}, which are left out: {left_out:,}")
