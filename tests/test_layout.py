"""The layout: what may import what, and that what the document defines is used."""

import ast
import re
from pathlib import Path

import pytest

import since_2017
import the_annotated_transformer as tat
from tests import reading_costs
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
        ("practice/**/*.py", {*DOCUMENTS, "practice"}),
        ("translator/*.py", {*DOCUMENTS, "practice", "translator"}),
        # one runs the page's small_model.js
        ("benchmarks/*.py", {*DOCUMENTS, "practice", "translator", "benchmarks", "blog"}),
    ],
)
def test_import_arrows_point_down(files, allowed):
    modules_of = {path.name: imports(path.read_text("utf-8")) for path in ROOT.glob(files)}
    assert modules_of and all(names <= allowed for names in modules_of.values()), modules_of


BELOW = {"examine", "mistakes", "wires"}  # rooms of practice that the program stands on
ABOVE = {path.stem for path in (ROOT / "practice").glob("*.py")} - BELOW


def rooms_of_practice(path: Path) -> set[str]:
    """The rooms of practice that a file imports."""
    lines = re.findall(r"^ *from practice(?:\.(\w+)| import (.+))", path.read_text("utf-8"), re.M)
    return {name for room, names in lines for name in re.findall(r"\w+", room or names)}


def test_the_program_stands_on_examinations_and_mistakes_alone():
    """Of practice; the command line opens the rest for those who ask."""
    program = {*ROOT.glob("translator/*.py")} - {ROOT / "translator" / "__main__.py"}
    assert set().union(*map(rooms_of_practice, program)) == BELOW
    for room in ("examine.py", "wires.py", "mistakes/__init__.py"):
        assert not rooms_of_practice(ROOT / "practice" / room) & ABOVE


@pytest.mark.parametrize("module", [tat, since_2017], ids=lambda module: module.__name__)
def test_what_a_document_defines_is_used(module):
    source = Path(module.__file__).read_text("utf-8")
    names = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)]
    unused = vars(module).keys() - {name.id for name in names if isinstance(name.ctx, ast.Load)}
    assert not {name for name in unused if not name.startswith(("example_", "__"))}


WIDEST = 100


def too_long(path: Path) -> list[str]:
    """The lines of a source file that go beyond WIDEST, unless they hold a string or are prose.

    A text that is shown, a pattern, or a row of a table is easier to find and to read in one piece;
    Prettier sees to the code of the pages. Comments and docstrings of rooms in Python are ruff's.
    """
    prose = False
    long = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        prose = "[markdown]" in line if line.startswith("# %%") else prose
        free = prose or re.search(r"[\"'`]|@title", line)
        if path.suffix == ".js":
            free = not re.match(r"\s*(//|/?\*)", line)
        if len(line) > WIDEST and not free:
            long.append(f"{path.relative_to(ROOT)}:{number}: {line}")
    return long


def test_no_line_of_code_is_too_long():
    folders = "translator", "practice", "benchmarks", "blog", "recipes", "tests"
    inside = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    # the scripts of these are put together by bundle.js
    apart = {"node_modules", "explorer_page", "translator_page"}
    inside = [path for path in inside if apart.isdisjoint(path.parts)]
    paths = [
        path for path in [*ROOT.glob("*.py"), *inside] if path.suffix in (".py", ".js", ".css")
    ]
    long = [line for path in paths for line in too_long(path)]
    assert len(paths) > 50 and not long, "\n".join(long)


@pytest.mark.parametrize("room", reading_costs.READ)
def test_a_room_that_was_read_for_it_reads_easily(room):
    """CONTRIBUTING, "Reading": names, one fact a line, whole messages, short functions."""
    counts, places = reading_costs.costs(reading_costs.room(room))
    limits = reading_costs.LIMITS | reading_costs.DENSER.get(room, {})
    over = {name: counts[name] for name, limit in limits.items() if counts[name] > limit}
    assert counts["lines"] > 1000 and not over, "\n".join([str(over), *places])
