"""Files: written whole or not at all, with a checksum; an error in reading one names it."""

import hashlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # importing PyTorch takes longer than a translation
    from torch import Tensor


class Refused(ValueError):
    """What a user asked for cannot be had, for a reason that he can mend.

    The command line prints it as one line.
    """


class Stopped(Exception):
    """A training was asked to stop, and has saved its state; `number` is the signal's."""

    def __init__(self, number: int, step: int):
        super().__init__(
            f"stopped by {signal.Signals(number).name} after update {step}, which is saved; "
            "the same command goes on from there"
        )
        self.number = number


@contextmanager
def refusing(what: str, *kinds: type[BaseException]) -> Iterator[None]:
    """Turn errors of these kinds into Refused that says `what`, with the error's own words."""
    # One that is Refused already passes as it is.
    try:
        yield
    except kinds as error:
        if isinstance(error, (Refused, KeyboardInterrupt)):
            raise
        words = textwrap.shorten(str(error), 300, placeholder=" ...") or type(error).__name__
        raise Refused(f"{what} ({words})") from error


def warn(text: str) -> None:
    """One line on standard error."""
    print(f"note: {text}", file=sys.stderr)


def nobody(text: str) -> None:
    """Hears a line and does nothing, in the place of `warn`."""


class Steady:
    """A stream that may be missing, or its reader go: what can't be written is lost.

    `lost` is the first error.
    """

    def __init__(self, stream: Any):
        self.stream = stream or open(os.devnull, "w")  # noqa: SIM115
        self.lost: Exception | None = None
        if hasattr(self.stream, "reconfigure"):
            self.stream.reconfigure(encoding="utf-8", errors="replace")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def write(self, text: str) -> int:
        self.attempt(self.stream.write, text)
        return len(text)

    def flush(self) -> None:
        self.attempt(self.stream.flush)

    def attempt(self, call: Callable, *text: str) -> None:
        try:
            call(*text)
        except (OSError, ValueError) as error:
            self.lost = self.lost or error
            # else it would fail again when Python ends
            with suppress(OSError, ValueError, AttributeError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())


SHIPPED_MODEL = "models/multi30k-de-en"
MODEL_FILES = ["config.json", "tokenizer.json", "model.safetensors"]


def model_folder(path: Path | None = None) -> Path:
    """The given folder, or the folder of the model that comes with the program.

    If none came with it, raises FileNotFoundError with a command that makes one.
    """
    if path is not None:
        return Path(path)
    room = Path(__file__).resolve().parent
    for folder in (room.parent / SHIPPED_MODEL, room / SHIPPED_MODEL):  # in a clone; installed
        if all((folder / name).is_file() for name in MODEL_FILES):
            return folder
    raise FileNotFoundError(
        f"no {SHIPPED_MODEL} here; make one with `python the_annotated_transformer.py "
        "train --data multi30k --preset tiny --run runs/tiny` and give --model runs/tiny"
    )


# how the names of files and folders end that are still being written, and nobody else's
PARTIAL = ".annotated-partial"
SUMS = "SHA256SUMS"  # checksums of the files of a folder, as sha256sum writes and checks them


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Let `write` fill a file of that name in a temporary folder, then move it to `path`."""
    # The disk has the new content before the name is moved to it, so `path` is whole even after a
    # power failure. A link is kept, and what it leads to is replaced.
    target = Path(os.path.realpath(path))
    folder = None
    try:
        with writing(path):
            # a folder: what libraries leave of half a file when they are killed is in it, too
            folder = tempfile.mkdtemp(PARTIAL, f".{target.name[:50]}.", target.parent)
            new = Path(folder) / "new"
            write(new)
            with open(new, "r+b") as file:
                os.fsync(file.fileno())
            os.replace(new, target)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)


# what those say whose request for memory failed: CUDA, PyTorch's allocators, threads
OUT_OF_MEMORY = re.compile(
    "allocate memory|not enough memory|out of memory|alloc_failed|start new thread", re.I
)


@contextmanager
def within_memory(what: str) -> Iterator[None]:
    """Turn what devices, PyTorch or Python raise when memory is out into Refused saying `what`."""
    with refusing(what, MemoryError):
        try:
            yield
        except RuntimeError as error:
            if OUT_OF_MEMORY.search(str(error)):
                raise MemoryError(str(error)) from error
            raise


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Name a file in the system's errors about writing it: those of a full disk name none."""
    try:
        yield
    except OSError as error:
        if error.errno is None:  # a sentence of ours
            raise
        raise OSError(f"{path}: cannot be written ({error.strerror})") from error


def remove_partial(folder: Path) -> None:
    """Remove the temporary folders that killed writers have left in a folder."""
    for path in folder.glob(f".*.????????{PARTIAL}"):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)


@contextmanager
def new_folder(out: Path) -> Iterator[None]:
    """Make a folder, to be filled inside; removed if that fails. FileExistsError if it exists."""
    try:
        out.mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(f"{out}: exists already") from None
    try:
        yield
    except BaseException:
        shutil.rmtree(out)
        raise


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; a device or a pipe gets the text as it is."""
    if path.exists() and not path.is_file():
        with writing(path):
            path.write_text(text, encoding="utf-8")
    else:
        write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


# --- Checksums ---
def write_sums(folder: Path, names: list[str]) -> None:
    """Write the checksums of some files of a folder into its file SHA256SUMS."""
    write_text(folder / SUMS, "".join(f"{digest_of(folder / name)}  {name}\n" for name in names))


def digest_of(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def changed_files(folder: Path, names: list[str]) -> list[str]:
    """Those of the named files that are there and listed in SHA256SUMS, but not what it says."""
    path = folder / SUMS
    text = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    lines = (line.partition("  ") for line in text.splitlines())
    sums = {name: digest for digest, _, name in lines}
    listed = [name for name in names if name in sums and (folder / name).is_file()]
    return [name for name in listed if digest_of(folder / name) != sums[name]]


def check_sums(folder: Path, names: list[str]) -> None:
    """Raise Refused if one of the named files is not what SHA256SUMS says."""
    for name in changed_files(folder, names):
        raise Refused(
            f"{folder / name}: damaged or edited, says {folder / SUMS}; "
            f"if you edited it, delete {SUMS}"
        )


def digest_of_tensors(tensors: "dict[str, Tensor]", notes: dict[str, str]) -> str:
    """The SHA-256 of names, types, shapes, numbers and metadata."""
    import torch

    digest = hashlib.sha256(json.dumps(notes, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(repr((name, tensor.dtype, tuple(tensor.shape))).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


# --- Tensors and JSON ---
def write_tensors(path: Path, tensors: "dict[str, Tensor]", **metadata: Any) -> None:
    """Write tensors, JSON-able metadata and their checksum as a safetensors file, atomically."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    notes = {key: json.dumps(value) for key, value in metadata.items()}
    notes["sha256"] = json.dumps(digest_of_tensors(tensors, notes))
    # safetensors raises its own error, no OSError, even if the disk is full
    with refusing(f"{path}: cannot be written", SafetensorError):
        write_atomically(path, lambda temporary: save_file(tensors, temporary, notes))


def read_tensors(path: Path) -> "tuple[dict[str, Tensor], dict[str, Any]]":
    """The tensors and metadata of a safetensors file, checked against its checksum if it has one.

    Raises Refused if it is damaged, FileNotFoundError if it is missing.
    """
    from safetensors import SafetensorError, safe_open

    if not path.exists():
        raise FileNotFoundError(f"{path}: no such file")
    damaged = f"{path}: not a safetensors file that a run wrote, or damaged"
    # a file system may lack what the library needs, and its errors name no file
    unread = f"{path}: cannot be read here"
    with refusing(damaged, SafetensorError, ValueError), refusing(unread, OSError):
        with safe_open(path, "pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            notes = file.metadata() or {}
        saved_digest = notes.pop("sha256", None)
        if saved_digest is not None and saved_digest != json.dumps(
            digest_of_tensors(tensors, notes)
        ):
            raise ValueError("its checksum is another")
        return tensors, {key: json.loads(value) for key, value in notes.items()}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; Refused for anything else, FileNotFoundError if it is missing."""
    if not path.is_file():  # a pipe would keep its reader waiting
        raise FileNotFoundError(
            f"{path}: no such file; is {path.parent} the folder of a run or a model?"
        )
    with refusing(f"{path}: not JSON", ValueError, RecursionError):
        value = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(value, dict):
        raise Refused(f"{path}: not a JSON object")
    return value
