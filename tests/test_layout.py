"""The layout: what may import what, and that what the document defines is used."""

import ast
from pathlib import Path

import pytest

import the_annotated_transformer as tat

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = "the_annotated_transformer"
OURS = {DOCUMENT, "lab_notebook", "exercises", "translator", "benchmarks", "blog", "tests"}
OURS |= {"notebook", "page", "charts"}  # in blog/


def imports(tree: ast.AST) -> set[str]:
    """The top-level names of our modules that a syntax tree imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where an arrow points"
            found.add((node.module or "").partition(".")[0])
    return found & OURS


def parse(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_the_document_imports_nothing_of_ours():
    """Except in its last cell, which starts the program."""
    importing = [node for node in parse(ROOT / f"{DOCUMENT}.py").body if imports(node)]
    assert [ast.unparse(node.test) for node in importing] == ["__name__ == '__main__' and (not in_notebook(__name__))"]
    assert imports(importing[0]) == {"translator"}


@pytest.mark.parametrize(
    ("files", "allowed"),
    [
        ("lab_notebook.py", {DOCUMENT}),
        ("exercises.py", {DOCUMENT}),
        ("translator/*.py", {DOCUMENT, "translator"}),
        ("benchmarks/*.py", {DOCUMENT, "translator", "benchmarks"}),
    ],
)
def test_import_arrows_point_down(files, allowed):
    found = {path.name: imports(parse(path)) for path in ROOT.glob(files)}
    assert found and all(names <= allowed for names in found.values()), found


def test_what_the_document_defines_is_used():
    names = [node for node in ast.walk(parse(ROOT / f"{DOCUMENT}.py")) if isinstance(node, ast.Name)]
    unused = vars(tat).keys() - {name.id for name in names if isinstance(name.ctx, ast.Load)}
    assert not {name for name in unused if not name.startswith(("example_", "__"))}
