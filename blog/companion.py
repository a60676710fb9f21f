"""The companion of a notebook that is alone: one file with all that the notebooks need.

    python -m blog companion OUT.zip [--notebooks FOLDER]

The file, to download, unpack or upload, holds the notebooks, the modules that they import, the
trained model, the saved rows, the pictures and the program. Unpacked, it is a folder in which every
notebook runs. Left packed beside a notebook, for example uploaded to Colab, it is unpacked by the
notebook's first cell. --notebooks names a folder with executed ones (default: those that are
committed).
"""

import io
import os
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# as the first cells of the notebooks and the page's header call it
NAME = "the_annotated_transformer.zip"
HELD = [
    "*.ipynb", "*.py", "LICENSE", "requirements.txt", "benchmarks/results/*.jsonl",
    "images/**/*.*", "models/multi30k-de-en/*", "practice/*.py", "practice/mistakes/*.*", "practice/*.ipynb",
    "translator/*.py", "translator/captions.txt", "translator/*/*",
]  # fmt: skip
BORN = 2026, 1, 1, 0, 0, 0  # of every file, so that the same files give the same archive


def files(notebooks: Path) -> dict[str, Path]:
    """Each name in the companion, and the file that it holds."""
    # sorted and with one date, so that the same files give the same archive
    paths = {path for pattern in HELD for path in ROOT.glob(pattern) if path.is_file()}
    paths = sorted(path for path in paths if "__pycache__" not in path.parts)
    held = {path.relative_to(ROOT).as_posix(): path for path in paths}
    for name in held:
        executed = notebooks / Path(name).name
        if name.endswith(".ipynb") and executed.is_file():
            held[name] = executed
    return held


def whole(out: Path, content: bytes) -> None:
    """Write a file; what was there stays until the new one is whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    # beside it: only within a file system does a file move in one piece
    new = out.with_name(f".{out.name}.new")
    new.write_bytes(content)
    os.replace(new, out)


def write(out: Path, notebooks: Path) -> None:
    """Write the companion."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, path in files(notebooks).items():
            archive.writestr(zipfile.ZipInfo(name, BORN), path.read_bytes(), zipfile.ZIP_DEFLATED)
    whole(out, packed.getvalue())


def main(out: Path, /, *, notebooks: Path = ROOT) -> None:
    """Write the companion; `notebooks` is a folder with executed ones."""
    write(out, notebooks)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
