"""A corpus of another kind: what programs say, in English and another language, from Debian.

    python recipes/messages.py fr runs/messages     train.fr, train.en, val.fr, val.en, sources.txt

It fetches packages with `apt-get download`, which needs Debian 12 and no rights, and keeps of their
gettext catalogues the messages of one line. The texts belong to the programs, whose licences
differ: train on them, and pass on neither the corpus nor parts of it.
"""

import random
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import polib

PACKAGES = (
    "binutils-common", "coreutils", "evolution-common", "gcc-12-locales", "gettext", "gimp-data",
    "git", "gnome-control-center-data", "gnucash-common", "gnumeric-common", "nautilus-data",
    "util-linux-locales",
)  # fmt: skip
HELD_OUT = 1000  # pairs of val; all messages of their catalogues stay out of train


def fetched(packages: tuple[str, ...], folder: Path) -> list[str]:
    """Fetch packages into a folder, those that there are; returns their names and versions."""
    for package in packages:
        download = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True)
        if download.returncode:
            print(f"note: no {package}", file=sys.stderr)
    return sorted(path.stem for path in folder.glob("*.deb"))


def catalogues(folder: Path, language: str) -> list[Path]:
    """The gettext catalogues of a language in the packages of a folder."""
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, folder / package.stem], check=True)
    return sorted(folder.glob(f"**/locale/{language}/LC_MESSAGES/*.mo"))


def plain(message: str) -> str:
    """A message on one line, without the mark of its keyboard shortcut (`_File`, `&File`)."""
    return " ".join(re.sub(r"(?<!\w)[_&](?=\w)", "", message).split())


def pairs_of(catalogue: Path) -> list[tuple[str, str]]:
    """The messages of a catalogue, translated and original, of one line and at least two words."""
    pairs = []
    for entry in polib.mofile(str(catalogue)):
        sides = entry.msgstr, entry.msgid
        if all(side.strip() and "\n" not in side.strip() for side in sides):
            sides = tuple(map(plain, sides))
            if all(len(re.findall(r"[^\W\d]{2,}", side)) >= 2 for side in sides):
                pairs.append(sides)
    return pairs


def divided(texts: list[list[tuple[str, str]]], held_out: int) -> tuple[list, list]:
    """Train and val: whole catalogues are held out, in an order that is always the same."""
    random.Random(0).shuffle(texts)
    train, val = [], []
    for pairs in texts:
        (val if len(val) < held_out and len(pairs) < held_out else train).extend(pairs)
    train_texts = {side for pair in train for side in pair}
    val = [pair for pair in dict.fromkeys(val) if train_texts.isdisjoint(pair)]
    return list(dict.fromkeys(train)), val[:held_out]


def main(language: str, out: Path) -> None:
    """Write the corpus, and which packages it is from."""
    if out.exists():
        sys.exit(f"{out}: exists already")
    if shutil.which("apt-get") is None:
        sys.exit("it needs Debian's apt-get")
    with tempfile.TemporaryDirectory() as folder:
        names = fetched(PACKAGES, Path(folder))
        texts = [pairs_of(path) for path in catalogues(Path(folder), language)]
    if not sum(map(len, texts)):
        sys.exit(f"no messages in {language}")
    out.mkdir(parents=True)
    for split, pairs in zip(("train", "val"), divided(texts, HELD_OUT), strict=True):
        for name, side in zip((language, "en"), zip(*pairs, strict=True), strict=True):
            (out / f"{split}.{name}").write_text("".join(f"{line}\n" for line in side), "utf-8")
        print(f"{split}: {len(pairs):,} pairs")
    (out / "sources.txt").write_text("".join(f"{name}\n" for name in names), "utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], Path(sys.argv[2]))
