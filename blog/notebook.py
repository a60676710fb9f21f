"""The twins: a script that people edit, and the notebook that is made from it.

    python -m blog notebook check
        compare notebook and script; if they differ, say how and exit 1
    python -m blog notebook run [--out FOLDER]
        execute the script's cells in order and write the notebook

Both do so for the two documents, the lab notebook, the exercises and the clinic, one after the
other, or for --script PATH alone. A notebook is beside its script unless --out says otherwise.
`run` takes --timeout SECONDS, the limit for one cell, and writes nothing if a cell fails.

A first reader may skip a code cell whose first line is `# @title ...`: the notebook and the page
fold it under that title. They also fold a cell that begins with `@example`; what it shows has a
caption. `# @title Answer ...` hides output as well, and so does the notebook where prose ends with
a question to predict from, and the cell behind it would give the answer away.

The notebook depends only on the script and on the output of its cells: it has no random ids, times,
version numbers or paths of the machine that made it. Nothing ever flows back from the notebook into
the script.
"""

import difflib
import hashlib
import json
import os
import re
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Literal

import jupytext
import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbclient.util import run_sync
from nbconvert.filters import strip_ansi
from nbformat import NotebookNode
from traitlets.config import Config

from blog import companion

BLOG = Path(__file__).resolve().parent
NAMES = ("the_annotated_transformer", "since_2017", "lab_notebook", "exercises", "practice/clinic")
SCRIPTS = [BLOG.parent / f"{name}.py" for name in NAMES]
# otherwise jupytext guesses the twin's format
PERCENT = {"extension": ".py", "format_name": "percent", "format_version": "1.3"}
METADATA = {
    "jupytext": {"text_representation": PERCENT},
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
}
EXAMPLE = "@example\n"  # how a cell begins that only shows something
FOLDED = ("# @title ", EXAMPLE)  # how those begin that a first reader may skip
ANSWER = "# @title Answer "  # how a cell begins whose output a reader should not see by chance
# How prose ends with a question that the next cells answer, too: with its folded answer, the last
# <details> of the prose. The inner group goes on over any character (`[^\0]`: line feeds, too) at
# which no other <details> begins, and only space may follow.
QUESTION = r'<details class="answer">(?:(?!<details)[^\0])*</details>\s*$'
# a number's name in `quotes.py`, behind it in a script or a README
QUOTED = r"(?<=[\w%)])<!--([^<>\n]+)-->"
ENABLE_CHARTS = (
    f"import sys; sys.path.append({str(BLOG)!r}); import charts; sys.path.pop(); charts.enable()"
)


def build(script: str) -> NotebookNode:
    """The notebook that the text of a py:percent script describes, not yet executed."""
    count_by_digest: Counter[str] = Counter()
    cells = jupytext.reads(script, fmt="py:percent").cells
    for cell in cells:
        if cell.cell_type == "markdown":
            # where a number in the text comes from is no matter of its readers
            cell.source = re.sub(QUOTED, "", cell.source)
        # An id comes from the content, so that a changed cell changes no other one's, except of
        # equal cells: the second gets the suffix -2, the third -3.
        digest = hashlib.sha256(f"{cell.cell_type}\0{cell.source}".encode()).hexdigest()[:8]
        count_by_digest[digest] += 1
        count = count_by_digest[digest]
        cell.id = digest if count == 1 else f"{digest}-{count}"
        # what else jupytext notes is of the script, such as the blank lines behind a cell
        cell.metadata = {"tags": cell.metadata["tags"]} if "tags" in cell.metadata else {}
    fold_and_hide(cells)
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": METADATA, "cells": cells}
    return nbformat.from_dict(notebook)  # a copy: METADATA stays as it is


def fold_and_hide(cells: list[NotebookNode]) -> None:
    """Fold the cells that a first reader may skip, and hide outputs that answer a question."""
    # A question stands at the end of prose. It reaches over the examples behind that prose, and
    # over those behind the next prose too, if that has no heading and isn't followed by code of the
    # text (neither an example nor titled): such code is the next step, and what it shows answers no
    # question any more. Code directly behind the question doesn't end it, as it may be asked about.
    reach = 0  # 2: behind a question; 1: behind the next prose, too; 0: no question reaches here
    for cell in cells:
        if cell.cell_type == "markdown":
            if re.search(QUESTION, cell.source):
                reach = 2
            elif reach == 2 and not re.search("(?m)^#", cell.source):
                reach = 1
            else:
                reach = 0
        elif cell.source.startswith(FOLDED):
            fold(cell)
            if reach and cell.source.startswith(EXAMPLE):
                cell.metadata["jupyter"]["outputs_hidden"] = True
        elif reach == 1:  # code of the text: the next step
            reach = 0
        if "hide-output" in cell.metadata.get("tags", []):
            cell.metadata.setdefault("jupyter", {})["outputs_hidden"] = True


def fold(cell: NotebookNode) -> None:
    """Mark a cell as folded for the page (a tag), JupyterLab, and Colab, which shows the title."""
    answer = cell.source.startswith(ANSWER)
    tag = "hide-cell" if answer else "hide-input"
    tags = [name for name in cell.metadata.get("tags", []) if name != tag]
    cell.metadata["tags"] = [*tags, tag]
    cell.metadata["jupyter"] = {"source_hidden": True}
    if answer:
        cell.metadata["jupyter"]["outputs_hidden"] = True
    cell.metadata["cellView"] = "form"


def as_lines(notebook: NotebookNode) -> list[str]:
    """All of a notebook except the outputs, as text to compare; the script determines all of it."""
    lines = [json.dumps(notebook.metadata, sort_keys=True)]
    for cell in notebook.cells:
        lines += [
            f"# %% [{cell.cell_type}] {cell.id} {json.dumps(cell.metadata, sort_keys=True)}",
            *cell.source.split("\n"),
            "",
        ]
    return lines


def executed_in_order(notebook: NotebookNode) -> bool:
    """Whether every code cell ran once, from the top, in one kernel."""
    cells = (cell for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip())
    counts = [cell.execution_count for cell in cells]
    return counts == list(range(1, len(counts) + 1))


def check(script: Path, notebook: Path) -> int:
    """Print how the notebook differs from what the script makes; returns the exit status."""
    committed = nbformat.reads(notebook.read_text("utf-8"), 4)
    expected = as_lines(build(script.read_text("utf-8")))
    names = notebook.name, f"made from {script.name}"
    lines = list(difflib.unified_diff(as_lines(committed), expected, *names, lineterm=""))
    if not lines and not executed_in_order(committed):
        lines = [f"{notebook.name}: not every cell was executed once, from the top"]
    if lines:
        print(*lines, "make it again: python -m blog notebook run", sep="\n")
    return int(bool(lines))


def place(script: str, cell: NotebookNode, index: int) -> str:
    """Where a cell is, for a message: its number and, if the script has it, its line there."""
    start = script.find(cell.source)
    line = script.count("\n", 0, start) + 1
    return f"cell {index + 1}" + (f", line {line} of the script" if start >= 0 else "")


def refuse_hidden_error(cell: NotebookNode) -> None:
    """Raise an error that a cell only displayed: a chart that cannot be drawn does not stop it."""
    expected = "raises-exception" in cell.metadata.get("tags", [])
    for output in cell.outputs:
        if output.output_type == "error" and not expected:
            raise CellExecutionError.from_cell_and_msg(cell, output)


def notices(cell: NotebookNode) -> list[str]:
    """The lines that a cell printed for the person running it; they begin with NOTICE."""
    printed = "".join(output.text for output in cell.outputs if output.output_type == "stream")
    return [line for line in printed.splitlines(keepends=True) if line.startswith("NOTICE")]


def prepare_client(
    notebook: NotebookNode, folder: Path, sockets: str, timeout: int
) -> NotebookClient:
    """A client that starts a kernel in `folder` and sends it cells, if possible by `sockets`."""
    # the path of a socket has at most about a hundred bytes
    short = os.name == "posix" and len(os.fsencode(sockets)) < 80
    local = {"KernelManager": {"transport": "ipc", "ip": f"{sockets}/kernel"}} if short else {}
    return NotebookClient(
        notebook,
        timeout=timeout,
        kernel_name="python3",
        coalesce_streams=True,  # keep only the last line of a progress bar
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
        config=Config(local),
    )


def enable_charts(client: NotebookClient) -> None:
    """Enable `charts.py` in the kernel, with no trace in the document's names and cell numbers."""

    async def ask_kernel() -> dict[str, Any]:
        code = f"exec({ENABLE_CHARTS!r}, {{}})"  # in a namespace of its own
        kernel: Any = client.kc  # is there when this is called
        return await kernel.execute(code, silent=True, reply=True, timeout=120)

    reply = run_sync(ask_kernel)()["content"]
    if reply["status"] != "ok":
        raise RuntimeError("\n".join(["cannot enable the chart renderer", *reply["traceback"]]))


def execute(notebook: NotebookNode, folder: Path, script: str, timeout: int) -> None:
    """Fill in the outputs of all cells, printing one line for each; an error names its cell."""
    code = [(i, cell) for i, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    cells = [(i, cell) for i, cell in code if cell.source.strip()]
    with tempfile.TemporaryDirectory() as sockets:
        client = prepare_client(notebook, folder, sockets, timeout)
        with client.setup_kernel():
            enable_charts(client)  # before the first cell, which may draw one
            for number, (index, cell) in enumerate(cells, 1):
                first_line = cell.source.strip().removeprefix("@example\n").partition("\n")[0]
                print(f"[{number:3}/{len(cells)}] {first_line[:80]:80}", end="", flush=True)
                start = time.monotonic()
                try:
                    client.execute_cell(cell, index)
                    refuse_hidden_error(cell)
                except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
                    error.add_note(f"\n{place(script, cell, index)} failed")
                    raise
                print(f" {time.monotonic() - start:7.1f} s", flush=True)
                print(*notices(cell), sep="", end="", flush=True)


def portable(value: Any, replacements: list[tuple[str, str]]) -> Any:
    """An output without this machine's paths: patterns are replaced in all texts but pictures."""
    if isinstance(value, str):
        for pattern, replacement in replacements:
            value = re.sub(pattern, replacement, value)
    elif isinstance(value, list):
        return [portable(item, replacements) for item in value]
    elif isinstance(value, dict):
        return {
            key: item if key.startswith("image/") else portable(item, replacements)
            for key, item in value.items()
        }
    return value


def machine_paths(folder: Path) -> list[tuple[str, str]]:
    """What `portable` replaces: working folder, installed packages, home, IPython's cell files."""
    # the deepest first: packages may lie in the working folder, and that in the home
    packages = Path(sysconfig.get_path("purelib"))
    names = {folder: ".", packages: "site-packages", Path.home(): "~"}
    deepest_first = sorted(names, key=lambda path: -len(path.parts))
    paths = [path for path in deepest_first if path != Path(path.anchor)]
    # a path ends where no character of a name follows
    patterns = [(re.escape(str(path)) + r"(?![\w.-])", names[path]) for path in paths]
    return [(r"[^\s'\"]*ipykernel_\d+[/\\]\d+\.py", "<cell>"), *patterns]


def run(script: Path, out: Path, timeout: int) -> None:
    """Execute the script's cells in its own folder and write the notebook."""
    text = script.read_text("utf-8")
    notebook = build(text)
    out.parent.mkdir(parents=True, exist_ok=True)  # an error now, not after minutes of work
    execute(notebook, script.parent, text, timeout)
    replacements = machine_paths(script.parent)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = nbformat.from_dict(portable(cell.outputs, replacements))
    nbformat.validate(notebook)
    companion.whole(out, f"{nbformat.writes(notebook)}\n".encode())


def main(
    command: Literal["check", "run"], /, *,
    script: Path | None = None, out: Path | None = None, timeout: int = 10_800,
) -> int:  # fmt: skip
    """Compare the twins, or execute the scripts; returns the exit status.

    Args:
        script: the only one to look at.
        out: folder of the notebooks; without it, they are beside their scripts.
        timeout: seconds that one cell may take.
    """
    status = 0
    paths = [script.resolve()] if script else SCRIPTS
    try:
        for path in paths:
            notebook = (out or path.parent) / f"{path.stem}.ipynb"
            if command == "run":
                run(path, notebook, timeout)
                print(f"wrote {notebook}")
            else:
                status |= check(path, notebook)
        return status
    except (CellExecutionError, CellTimeoutError, RuntimeError, OSError) as error:
        message = "\n".join([*getattr(error, "__notes__", []), str(error)])
        print(message if sys.stderr.isatty() else strip_ansi(message), file=sys.stderr)
        return 1
