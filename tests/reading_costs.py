"""What reading costs, counted room by room: python -m tests.reading_costs

A room that has been read for it keeps to LIMITS, as `test_layout` says. The counts are for readers:
one that falls without a reader who gains is worth nothing.
"""

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ROOMS = "translator", "practice", "blog", "benchmarks", "recipes", "tests"
VAGUE = {
    "found", "known", "about", "one", "part", "what", "own", "kept", "both", "asked", "wrong",
    "some", "other", "others", "all", "whole", "right", "told", "said", "given", "made", "done",
    "left", "rest", "more", "most", "how", "many", "here", "there", "same", "each", "thing",
    "things", "stuff", "shown",
}  # fmt: skip
SAYS = {"warn", "print", "tell", "note", "say", "refusing", "within_memory", "Refused"}
NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENCODING, tokenize.ENDMARKER,
}  # fmt: skip
FOR_TOOLS = "# fmt", "# noqa", "# %%", "# @title"
ASSIGNS = ast.Assign, ast.For, ast.comprehension, ast.NamedExpr
LIMITS = {
    "tokens a line": 10.5, "vague names in 100": 1.0, "messages of fragments": 0,
    "packed assignments": 0, "loops over a choice": 0, "longest function": 40,
}  # fmt: skip
READ = "", "translator", "practice", "blog", "benchmarks", "tests"  # the rooms that keep to LIMITS
# formulas and signatures, in a document with a ceiling of lines; rows of figures, tables of cases,
# and mistakes, each a line of code
DENSER = dict.fromkeys(("benchmarks", "tests"), {"tokens a line": 12.0})
DENSER["practice"] = {"tokens a line": 11.5}
DENSER[""] = {"tokens a line": 12.5}


def is_text(node: ast.AST) -> bool:
    """Whether an expression is a string, or a formatted one."""
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def has_docstring(node: ast.FunctionDef) -> bool:
    """Whether a function begins with text, which is no code (of a command, it is the help)."""
    return len(node.body) > 1 and isinstance(node.body[0], ast.Expr) and is_text(node.body[0].value)


def is_packed(node: ast.AST) -> bool:
    """`a, b = f(x), 0`: several names from a written tuple of unlike expressions, and no swap."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple):
        return False
    targets = node.targets[0]
    values = node.value.elts
    if not isinstance(targets, ast.Tuple) or any(isinstance(v, ast.Starred) for v in values):
        return False
    swap = {ast.unparse(v) for v in values} == {ast.unparse(t) for t in targets.elts}
    return not swap and len({type(v) for v in values}) > 1


def names_of(node: ast.AST) -> Iterator[str]:
    """The names that a statement or a comprehension assigns."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
            yield inner.id


def fragments(function: ast.AST) -> Iterator[int]:
    """The lines of messages in which stands a piece of text that has a name of its own."""
    pieces = {
        node.targets[0].id for node in ast.walk(function)
        if isinstance(node, ast.Assign) and is_text(node.value)
        and isinstance(node.targets[0], ast.Name)
    }  # fmt: skip
    for node in ast.walk(function):
        says = isinstance(node, ast.Call) and getattr(node.func, "id", None) in SAYS
        text = node.args[0] if says and node.args else None
        names = {n.id for n in ast.walk(text) if isinstance(n, ast.Name)} if text else set()
        if isinstance(text, ast.JoinedStr) and names & pieces:
            yield node.lineno


def faults(tree: ast.AST, path: Path) -> Iterator[tuple[str, str]]:
    """What LIMITS forbids in a file: its count, and its place with a word about it."""
    for node in ast.walk(tree):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}:"
        if isinstance(node, ASSIGNS):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            for name in VAGUE & {*names_of(target)}:
                yield "vague", f"{where} the name {name}"
        if is_packed(node):
            yield "packed", f"{where} unlike things packed"
        if isinstance(node, ast.For) and isinstance(node.iter, ast.IfExp):
            yield "choices", f"{where} a loop over a choice"
        if isinstance(node, ast.FunctionDef):
            if size_of(node) > LIMITS["longest function"]:
                yield "long", f"{where} {node.name} has {size_of(node)} lines"
            for line in fragments(node):
                yield "fragments", f"{path.relative_to(ROOT)}:{line}: a message of fragments"


def size_of(node: ast.FunctionDef) -> int:
    """The lines of a function's body."""
    return node.end_lineno - node.body[has_docstring(node)].lineno + 1


def costs(paths: list[Path]) -> tuple[dict[str, float], list[str]]:
    """The counts of some files, and where what LIMITS forbids stands."""
    count: Counter = Counter()
    places = []
    for path in paths:
        source = path.read_text("utf-8")
        tree = ast.parse(source)
        lines_of_code = set()
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith(FOR_TOOLS):
                count["comments"] += 1
            elif token.type not in NO_CODE and not token.string.startswith(('"""', 'r"""')):
                count["tokens"] += 1
                lines_of_code.add(token.start[0])
        count["lines"] += len(lines_of_code)
        for node in ast.walk(tree):
            count["assigned"] += isinstance(node, ASSIGNS)
            if isinstance(node, ast.FunctionDef):
                count["longest"] = max(count["longest"], size_of(node))
        for kind, place in faults(tree, path):
            count[kind] += 1
            places.append(place)
    lines = max(count["lines"], 1)
    return {
        "lines": count["lines"],
        "comments in 100 lines": round(100 * count["comments"] / lines, 1),
        "tokens a line": round(count["tokens"] / lines, 1),
        "vague names in 100": round(100 * count["vague"] / max(count["assigned"], 1), 1),
        "packed assignments": count["packed"],
        "loops over a choice": count["choices"],
        "messages of fragments": count["fragments"],
        "longest function": count["longest"],
    }, places


def room(name: str) -> list[Path]:
    """The Python files of a room; of the top level for an empty name.

    The clinic's cells are for learners to mend, and `one_screen.py` is to fit on one screen.
    """
    paths = (ROOT / name).rglob("*.py") if name else ROOT.glob("*.py")
    paths = (path for path in paths if "node_modules" not in path.parts)
    left_out = ROOT / "practice" / "clinic.py", ROOT / "one_screen.py"
    return sorted(path for path in paths if path not in left_out)


if __name__ == "__main__":
    for name in ("", *ROOMS):
        counts, places = costs(room(name))
        print(name or "documents", counts)
        if name in sys.argv[1:]:
            print(*places, sep="\n")
