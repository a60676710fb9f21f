"""The page of one_screen.py: its listing, and what a reader may want beside each block.

    python -m blog listing OUT.html [--repository URL] [--language zh]

That is a sentence, a button that runs the block, and numbers for whoever ports it. one_screen.md
has the sentences; a line such as `@attention` says that what follows belongs to the block that
defines that name. In another language, the comments come from its catalogue, as all prose does.
"""

import ast
import base64
import io
import json
import re
import textwrap
import tokenize
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nbformat

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "one_screen.py"
NOTES = ROOT / "blog" / "one_screen.md"
PORT = ROOT / "tests" / "one_screen.json"
WIDTH = 100
BANNER = r"=== (.+?) =+"


def settings(source: str) -> dict[str, Any]:
    """The numbers at the listing's top, and others in it that its twin in the browser needs."""
    namespace: dict[str, Any] = {}  # the listing's first lines are only its settings
    exec(source.partition("def random")[0], namespace)
    names = ("N", "d_model", "d_ff", "h", "eps_ls", "updates", "pairs", "warmup", "factor", "seed")
    places = {
        "held": r"shuffled\[:(\d+)\]",
        "every": r"step % (\d+)",
        "last": r"checkpoints\[-(\d+):\]",
    }
    elsewhere = {name: int(re.search(place, source)[1]) for name, place in places.items()}
    return {name: namespace[name] for name in names} | elsewhere


def blocks(source: str) -> list[str]:
    """The listing in pieces, at its blank lines."""
    return re.split(r"\n\n", source.rstrip("\n"))


def defines(block: str) -> set[str]:
    """The names that a block defines at the top level; `docstring` and `main` for what has none."""
    names = set()
    for node in ast.parse(block).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            inner_nodes = (inner for target in node.targets for inner in ast.walk(target))
            names |= {inner.id for inner in inner_nodes if isinstance(inner, ast.Name)}
        elif isinstance(node, ast.Expr):
            names.add("docstring")
        elif isinstance(node, ast.If):
            names.add("main")
    return names


def notes() -> tuple[str, dict[str, str], str]:
    """What comes before the listing, the text for each name, and what comes after the listing."""
    # split() gives what its group matched as well: names and texts alternate
    before, *names_and_texts = re.split(r"(?m)^@(\w+)\n", NOTES.read_text("utf-8"))
    names = names_and_texts[::2]
    texts = dict(zip(names, map(str.strip, names_and_texts[1::2]), strict=True))
    after = texts.pop("end")
    return before.strip(), texts, after


def title() -> str:
    """The title of the page."""
    return re.match(r"# (.+)", NOTES.read_text("utf-8"))[1]


def texts() -> list[str]:
    """The comments and docstrings of the listing, for a catalogue."""
    remarks = (text for *_, text in comments(FILE.read_text("utf-8")))
    return [text for text in remarks if re.search("[A-Za-z]{3}", text)]


def comments(source: str) -> Iterator[tuple[tuple[int, int], tuple[int, int], str]]:
    """Each comment and docstring: where it begins and ends (line from 1, column), and its words."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            banner = re.fullmatch("# " + BANNER, token.string)
            yield token.start, token.end, banner[1] if banner else token.string.removeprefix("# ")
        elif token.type == tokenize.STRING and token.string.startswith('"""'):
            yield token.start, token.end, " ".join(token.string.strip('"').split())


def in_words(source: str, word: Callable[[str], str]) -> str:
    """The listing with `word` of comments and docstrings in their place."""
    # Banners and docstrings keep their form.
    lines = source.split("\n")
    # from the end: a longer docstring moves only lines that are done
    for (first, column), (last, end), text in reversed([*comments(source)]):
        old = lines[first - 1][column:] if first < last else lines[first - 1][column:end]
        new = word(text)
        if new == text:
            continue
        if old.startswith('"""'):
            # a Chinese character is two columns wide
            wrapped = textwrap.wrap(new, (WIDTH - column) // 2 - 2)
            remark = '"""' + f"\n{' ' * column}".join(wrapped) + '"""'
        elif re.fullmatch("# " + BANNER, old):
            remark = f"# === {new} ".ljust(WIDTH - 2 - len(new), "=")
        else:
            remark = f"# {new}"
        text_of_lines = lines[first - 1][:column] + remark + lines[last - 1][end:]
        lines[first - 1 : last] = text_of_lines.split("\n")
    return "\n".join(lines)


def notebook(word: Callable[[str], str] = str) -> nbformat.NotebookNode:
    """The page's cells, as of a notebook: the listing's blocks, after each what is said of it.

    word: what stands in place of a comment.
    """
    # blank lines divide the listing into blocks, and each block has a note by the name that it
    # defines
    source = in_words(FILE.read_text("utf-8"), word)
    before, texts, after = notes()
    cells = [nbformat.v4.new_markdown_cell(before, id="before")]
    for number, block in enumerate(blocks(source)):
        (name,) = defines(block) & texts.keys()  # each block has one text, or this fails
        title, _, note = texts[name].rpartition("\n\n")
        if title:
            cells.append(nbformat.v4.new_markdown_cell(title, id=f"title-{number}"))
        cells.append(nbformat.v4.new_code_cell(block, id=f"block-{number}"))
        cells.append(nbformat.v4.new_markdown_cell(note, id=f"note-{number}"))
    cells.append(nbformat.v4.new_markdown_cell(after, id="after"))
    return nbformat.v4.new_notebook(cells=cells)


def filled(html: str) -> str:
    """The page with the listing, its twin's settings and the numbers of a port in their places."""
    source = FILE.read_text("utf-8")
    data = base64.b64encode(source.encode()).decode()
    values = {
        "FILE": f"data:text/x-python;charset=utf-8;base64,{data}",
        "SETTINGS": json.dumps(settings(source)),
        "PORT": PORT.read_text("utf-8").strip().replace('"', "&quot;"),
    }
    for name, value in values.items():
        html = html.replace(f"{name}_HERE", value)
    return html
