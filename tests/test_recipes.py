"""The recipes name options that the program has, and messages of programs become pairs."""

import re

import polib

from recipes import messages
from tests.helpers import ROOT
from translator.__main__ import main

RECIPES = ROOT / "recipes"


def test_the_program_knows_every_option(capsys):
    """In the commands that the recipes and their README give."""
    assert main(["train", "--help"]) == 0
    options_of_train = {*re.findall(r"--[a-z-]+", capsys.readouterr().out)}
    for name in ("README.md", "slurm.sbatch", "ray_train.py"):
        command = re.search(r"--data \w.*", (RECIPES / name).read_text(encoding="utf-8"))[0]
        options = {*re.findall(r"--[a-z-]+", command)}
        assert {"--data", "--run", "--steps"} <= options <= options_of_train, name


def test_messages_of_programs_become_pairs(tmp_path):
    """Catches marks of shortcuts, halves without words, a held-out catalogue's texts in train."""
    catalogue = polib.POFile()
    for original, translated in (
        ("_Open the file", "_Ouvrir le fichier"), ("Two\nlines here", "Deux\nlignes ici"),
        ("Not translated yet", ""), ("%d: %s", "%d : %s"),
        ("No such file", "Aucun fichier de ce type"),
    ):  # fmt: skip
        catalogue.append(polib.POEntry(msgid=original, msgstr=translated))
    catalogue.save_as_mofile(str(tmp_path / "one.mo"))
    pairs = messages.pairs_of(tmp_path / "one.mo")
    files = ("Ouvrir le fichier", "Open the file"), ("Aucun fichier de ce type", "No such file")
    assert sorted(pairs) == sorted(files)

    def texts(size: int) -> list[tuple[str, str]]:
        return [(f"un texte {i}", f"a text {i}") for i in range(size, 2 * size)]

    catalogues = [texts(size) + pairs for size in (4, 30, 9)]
    largest = catalogues[1]
    train, val = messages.divided(catalogues, 12)  # in another order
    assert set(largest) <= set(train) and 0 < len(val) <= 12
    assert not {side for pair in train for side in pair} & {side for pair in val for side in pair}
