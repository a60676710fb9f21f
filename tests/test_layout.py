"""The layout: what may import what, and that what the document defines is used."""

import ast
import re
from pathlib import Path

import pytest

import since_2017
import the_annotated_transformer as tat
from tests.helpers import ROOT

DOCUMENT = ROOT / "the_annotated_transformer.py"
DOCUMENTS = {DOCUMENT.stem, "since_2017"}
OURS = {*DOCUMENTS, "lab_notebook", "exercises", "translator", "practice", "benchmarks", "tests"}
OURS |= {"blog", "notebook", "page", "charts"}  # the last three are in blog/


def imports(text: str) -> set[str]:
    """Our modules that a source imports; a relative import would hide where an arrow points."""
    assert not re.search(r"(?m)^ *from \.", text)
    return {*re.findall(r"(?m)^ *(?:from|import) (\w+)", text)} & OURS


def test_the_document_imports_nothing_of_ours():
    """Except in its last cell, which starts the program."""
    start = 'if __name__ == "__main__" and not in_notebook(__name__):'
    before, _, last = DOCUMENT.read_text("utf-8").partition(start)
    assert not imports(before) and imports(last) == {"translator"}


@pytest.mark.parametrize(
    ("files", "allowed"),
    [
        ("one_screen.py", set()),
        ("since_2017.py", {DOCUMENT.stem}),
        ("lab_notebook.py", DOCUMENTS),
        ("exercises.py", DOCUMENTS),
        ("practice/*.py", {*DOCUMENTS, "practice"}),
        ("translator/*.py", {*DOCUMENTS, "practice", "translator"}),
        # one runs the page's learn.js
        ("benchmarks/*.py", {*DOCUMENTS, "practice", "translator", "benchmarks", "blog"}),
    ],
)
def test_import_arrows_point_down(files, allowed):
    found = {path.name: imports(path.read_text("utf-8")) for path in ROOT.glob(files)}
    assert found and all(names <= allowed for names in found.values()), found


@pytest.mark.parametrize("module", [tat, since_2017], ids=lambda module: module.__name__)
def test_what_a_document_defines_is_used(module):
    source = Path(module.__file__).read_text("utf-8")
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    unused = vars(module).keys() - {name.id for name in names if isinstance(name.ctx, ast.Load)}
    assert not {name for name in unused if not name.startswith(("example_", "__"))}
