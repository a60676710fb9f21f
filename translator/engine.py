"""The engine: CTranslate2 translates, in C++, with every model whose layers it computes.

A model is converted when it is first used, and the result stays beside its weights or, where that
can't be written, in the user's cache. `translator/search.py` serves all other models. Nothing here
imports PyTorch unless a model has to be converted: that alone takes longer than a translation.
"""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from translator import files
from translator.ctranslate2_folder.translate import Model
from translator.files import MODEL_FILES, Refused, read_json, refusing, warn

ROOM = Path(__file__).resolve().parent
# whose change may change what a model computes, and so whether CTranslate2 computes the same
SOURCES = [
    *(ROOM.parent / name for name in ("the_annotated_transformer.py", "since_2017.py")),
    *(ROOM / name for name in ("settings.py", "export.py", "ctranslate2_folder/translate.py")),
]
CONVERTED = ".ctranslate2-"  # how the name of a converted model's folder begins


class Engine(Model):
    """A converted model: `translate` turns lines into lines, as `Search.translate` does."""

    def __init__(self, folder: Path, converted: Path, beam: int, alpha: float, **options: str):
        """folder: the model's own; options: `device` and `type`, as CTranslate2 names them."""
        import ctranslate2

        super().__init__(converted, beam, alpha, **options)
        self.languages = tuple(read_json(folder / "config.json")[side] for side in ("src", "tgt"))
        self.words = type(self.rules.model).__name__ == "WordLevel"
        self.name = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
        self.engine = {"engine": "ctranslate2", "version": ctranslate2.__version__}
        self.engine["type"] = self.translator.compute_type

    def pieces(self, text: str) -> list[str]:
        """The tokens of a source text; none of a vocabulary of whole words."""
        return [] if self.words else self.tokens(text)

    def tokens(self, text: str) -> list[str]:
        """The tokens of a line."""
        if not self.words:
            return super().tokens(text)
        from the_annotated_transformer import words_of  # spaCy's rules; they take seconds to load

        words = words_of(text, self.languages[0])
        return self.rules.encode(words, is_pretokenized=True).tokens

    def text(self, tokens: list[str]) -> str:
        """The line that tokens make; an unknown word most likely has a space before it."""
        if self.words:
            tokens = ["▁<unk>" if token == "<unk>" else token for token in tokens]
        return super().text(tokens)


def check_options(beam: int, alpha: float) -> None:
    """Raise Refused for a number of beams, or an exponent of the length penalty, out of range."""
    if not 1 <= beam <= 1000:
        raise Refused(f"--beam must be at least 1 and at most 1000, but it is {beam}")
    if not 0 <= alpha <= 10:  # a larger alpha overflows
        raise Refused(f"--alpha must be at least 0 and at most 10, but it is {alpha}")


def open_search(
    folder: Path, beam: int, alpha: float, device: str | None = None, engine: str | None = None,
    type: str | None = None, n_best: int = 1, tell: Callable[[str], None] = warn,
) -> Any:  # fmt: skip
    """What translates lines with the model in a folder: an Engine or, where need be, a Search.

    engine: ctranslate2 or pytorch; None: PyTorch only where CTranslate2 can't, as `tell` hears.
    type: of CTranslate2's numbers, such as int8; None: the model's own.
    Raises Refused for options that don't fit, and as `read_translator` does.
    """
    check_options(beam, alpha)
    if type and engine == "pytorch":
        raise Refused("--type is CTranslate2's, and --engine pytorch computes in float32")
    if engine != "pytorch":
        try:
            return open_engine(folder, beam, alpha, device, type)
        except Unsuited as reason:
            if engine == "ctranslate2" or type:
                raise
            if str(reason):
                tell(f"PyTorch translates, which takes longer to start: {reason}")
    from translator.model_folder import read_translator
    from translator.processes import use_device
    from translator.search import Search

    use_device(device)
    return Search(read_translator(folder), beam, alpha, n_best)


class Unsuited(Refused):
    """CTranslate2 can't translate with this model, or on this machine; PyTorch can."""


def open_engine(
    folder: Path, beam: int, alpha: float, device: str | None, type: str | None
) -> Engine:
    """CTranslate2 with a model's conversion; Unsuited where it can't compute what the model does.

    Raises Refused for a type of numbers that this machine lacks, and as `read_translator` does.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise Unsuited(f"the package ctranslate2 is missing ({error})") from error
    # CTranslate2 knows CPUs and CUDA; on all else PyTorch computes
    device = device or os.environ.get("ANNOTATED_DEVICE")
    device = device or ("cuda" if ctranslate2.get_cuda_device_count() else "cpu")
    if device not in ("cpu", "cuda"):
        raise Unsuited  # a device of PyTorch's, as it was asked for
    options = {"device": device, "type": type or "default"}
    converted = conversion_of(folder)
    try:
        with refusing(f"--type {type}", ValueError):
            return Engine(folder, converted, beam, alpha, **options)
    except RuntimeError as error:
        raise Unsuited(f"CTranslate2 can't load {folder} on {device} ({error})") from error


def conversion_of(folder: Path) -> Path:
    """The folder with CTranslate2's form of a model, which is made now unless it is there.

    Raises Unsuited for layers that CTranslate2 doesn't compute, and where nothing can be written.
    """
    # The name tells of which weights, settings and code it is, so a model that has been trained
    # further, or a layer that has been changed, has a name of its own. The folder is filled under
    # another name and then renamed: it is whole or not there, whoever else converts or is killed.
    files.check_sums(folder, MODEL_FILES)
    name = CONVERTED + fingerprint(folder)
    if (folder / name).is_dir():
        return folder / name
    from platformdirs import user_cache_path

    places = [folder, user_cache_path("annotated-transformer")]
    if (places[1] / name).is_dir():
        return places[1] / name
    from translator.model_folder import read_translator

    translator = read_translator(folder, "cpu")
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
            temporary = tempfile.TemporaryDirectory(prefix=CONVERTED, dir=place)
        except OSError:
            continue  # the next place
        with temporary:
            fill_conversion(translator, Path(temporary.name) / "model", place / name)
        remove_earlier(folder, name)
        return place / name
    raise Unsuited(f"neither {places[0]} nor {places[1]} can be written to, for its conversion")


def fill_conversion(translator: Any, new: Path, target: Path) -> None:
    """Write a conversion into a new folder, and give it its name."""
    from translator.export import write_ctranslate2

    try:
        write_ctranslate2(translator, new)
    except Refused as reason:
        raise Unsuited(str(reason)) from reason
    (new / ".gitignore").write_text("*\n", encoding="utf-8")
    try:
        new.rename(target)
    except OSError:
        if not target.is_dir():  # else another process was sooner
            raise


def fingerprint(folder: Path) -> str:
    """Of a model's files, the code that computes with them, and CTranslate2's version."""
    from ctranslate2.version import __version__

    # a change of any of these may change what is computed
    paths = [*(folder / name for name in MODEL_FILES), *SOURCES]
    digests = [files.digest_of(path) for path in paths if path.is_file()]
    return hashlib.sha256(" ".join([__version__, *digests]).encode()).hexdigest()[:16]


def remove_earlier(folder: Path, name: str) -> None:
    """Remove a model's conversions but the one of this name."""
    for path in folder.glob(f"{CONVERTED}*"):
        with suppress(OSError):  # another process may be doing the same
            # one that is being made has a longer name
            if path.name != name and len(path.name) == len(name):
                shutil.rmtree(path)
