"""The layout: what may import what, and that what a cell defines is used."""

import ast
import re
from pathlib import Path

import jupytext

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "the_annotated_transformer.py"
NOTEBOOKS = {"lab_notebook", "exercises"}
OURS = {
    "the_annotated_transformer",
    "translator",
    "benchmarks",
    "blog",
    "tests",
    "notebook",
    "page",
    "charts",
} | NOTEBOOKS


def imports(tree: ast.AST) -> set[str]:
    """The top-level names of all modules that a syntax tree imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where an arrow points"
            found.add((node.module or "").partition(".")[0])
    return found


def parse(path: Path) -> ast.Module:
    """The syntax tree of a source file."""
    return ast.parse(path.read_text(encoding="utf-8"))


def test_the_document_imports_nothing_of_ours():
    """Except in its last cell, which starts the program."""
    allowed = []
    for node in parse(DOCUMENT).body:
        if imports(node) & OURS:
            assert imports(node) & OURS == {"translator"}
            allowed.append(node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node.test))
    assert allowed == ["__name__ == '__main__' and (not in_notebook(__name__))"]


def test_the_other_notebooks_import_the_document_and_nothing_else_of_ours():
    for name in NOTEBOOKS:
        assert imports(parse(ROOT / f"{name}.py")) & OURS == {"the_annotated_transformer"}, name


def test_the_program_imports_the_document_and_nothing_else_of_ours():
    for path in (ROOT / "translator").glob("*.py"):
        assert imports(parse(path)) & OURS <= {"the_annotated_transformer", "translator"}, path.name


def test_the_benchmarks_import_both_and_nothing_else_of_ours():
    for path in (ROOT / "benchmarks").glob("*.py"):
        assert imports(parse(path)) & OURS <= {"the_annotated_transformer", "translator", "benchmarks"}, path.name


def code_cells() -> list[tuple[str, str]]:
    """The code cells of the document, each with the Part that it is in."""
    part, found = "Part 0", []
    for cell in jupytext.read(DOCUMENT).cells:
        if cell.cell_type == "markdown":
            for line in cell.source.splitlines():
                part = heading[1] if (heading := re.match(r"#+ (Part \d|Appendix|Questions)", line)) else part
        elif cell.source.strip():
            found.append((part, cell.source))
    return found


def test_what_is_defined_is_used_soon():
    """Everything that a cell defines is used, the first of it in the same Part or the next."""
    parts = ["Part 0", "Part 1", "Part 2", "Part 3", "Part 4", "Part 5", "Part 6", "Part 7", "Appendix", "Questions"]
    cells = [(parts.index(part), ast.parse(re.sub(r"(?m)^\s*!.*$", "", source))) for part, source in code_cells()[1:]]
    used: dict[str, list[int]] = {}
    for part, tree in cells:
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used.setdefault(node.id, []).append(part)
    for part, tree in cells:
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for node in tree.body:
            for target in node.targets if isinstance(node, ast.Assign) else []:
                names |= {name.id for name in ast.walk(target) if isinstance(name, ast.Name)}
        names = {name for name in names if not name.startswith("example_")}
        assert not names - used.keys(), f"{names - used.keys()} is defined and never used"
        if names:
            first = min(min(used[name]) for name in names)
            assert first - part <= 1, f"{names} is defined in {parts[part]} and first used in {parts[first]}"
