"""The notebooks: twins agree, all of each runs, the pages are complete, and the README is true."""

import dataclasses
import inspect
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from blog import notebook
from tests.helpers import ROOT, SOAK, caption_files, in_view, offline_tab
from translator import __main__ as commands
from translator.settings import Limits, Settings

NAMES = ["the_annotated_transformer", "since_2017", "lab_notebook", "exercises"]
EXECUTED = NAMES if SOAK else NAMES[:3]  # every answer of the exercises runs in test_exercises.py
SCRIPT, NOTEBOOK = ROOT / f"{NAMES[0]}.py", ROOT / f"{NAMES[0]}.ipynb"

# Adam updates all weights in one call; leaves no name that a cell could use
FUSED = """def fuse():
    import functools, torch
    torch.optim.Adam.__init__ = functools.partialmethod(torch.optim.Adam.__init__, fused=True)
fuse()
del fuse
"""


def run(command: str, *arguments: str | Path, status: int = 0, **options) -> str:
    """What a command of blog/ prints; it must end with this status."""
    call = [sys.executable, "-m", "blog", command, *arguments]
    process = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, **options)
    assert process.returncode == status, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


@pytest.fixture(scope="module")
def executed(tmp_path_factory) -> Path:
    """The folder of the notebooks, executed on captions, beside what a clone has; 30 updates."""
    folder = tmp_path_factory.mktemp("document")
    for name in NAMES:
        shutil.copy(ROOT / f"{name}.py", folder)
    for name in ("images", "benchmarks/results", "models", "translator"):
        shutil.copytree(ROOT / name, folder / name)
    data = caption_files(folder / "captions", train=2000, val=30, test=30)
    settings = os.environ | {"ANNOTATED_DATA": str(data), "ANNOTATED_STEPS": "30"}
    # a third off the time of small trainings
    begin = folder / "ipython" / "profile_default" / "startup" / "fused.py"
    begin.parent.mkdir(parents=True)
    begin.write_text(FUSED)
    settings |= {"IPYTHONDIR": str(folder / "ipython")}
    for name in EXECUTED:
        run("notebook", "run", "--script", folder / f"{name}.py", env=settings)
    return folder


def test_a_difference_between_the_twins_is_found(tmp_path):
    for path in (SCRIPT, NOTEBOOK):
        shutil.copy(path, tmp_path)
    old, new = "PAD, BOS, EOS, UNK = 0, 1, 2, 3", "PAD, BOS, EOS, UNK = 0, 2, 1, 3"
    script = tmp_path / SCRIPT.name
    script.write_text(script.read_text(encoding="utf-8").replace(old, new))
    assert f"+{new}" in run("notebook", "check", "--script", script, status=1)


def test_a_folded_cell_is_folded_its_twins_agree_and_a_notice_reaches_the_terminal(tmp_path):
    """Catches metadata that differ only in order, code mistaken for a title, other output there."""
    script = tmp_path / "short.py"
    cells = (
        "# %% [markdown]\n# # A title\n# Text.",
        "# %%\n# @title Sums <b>\na = 1 + 1",
        "# %%\nprint(f'NOTICE: {a}\\nmore')",
    )
    script.write_text("\n\n".join(cells) + "\n")
    printed = run("notebook", "run", "--script", script)
    assert "\nNOTICE: 2\n" in printed and "\nmore" not in printed
    run("notebook", "check", "--script", script)
    notebook = nbformat.read(script.with_suffix(".ipynb"), 4)
    notebook.cells[2].metadata["tags"] = ["hide-input"]  # by hand, without a title
    nbformat.write(notebook, script.with_suffix(".ipynb"))
    run("page", script.with_suffix(".ipynb"), tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<summary>Sums &lt;b&gt;</summary>" in text
    assert "<summary>Show the code (1 lines)</summary>" in text
    code = re.sub(r"<[^>]+>", "", text)
    assert "a = 1 + 1" in code and "print(f" in code and "@title" not in code


def executed_cells(path: Path) -> list[nbformat.NotebookNode]:
    """The code cells of a notebook, each of which was executed once, in order."""
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    return code


@pytest.mark.parametrize("name", EXECUTED)
def test_every_cell_executes(executed, name):
    """Without an error or output on standard error; every example that should draw a chart does."""
    for cell in executed_cells(executed / f"{name}.ipynb"):
        for output in cell.outputs:
            place = cell.source[:200], output
            assert output.output_type != "error" and output.get("name") != "stderr", place
        if re.search(r"^@example\ndef \w+\(\) -> Chart", cell.source, re.M):
            images = ["image/png" in output.get("data", {}) for output in cell.outputs]
            assert any(images), cell.source[:200]


@pytest.mark.parametrize("name", NAMES)
def test_a_committed_notebook_is_executed_and_names_no_machine(name):
    outputs = [cell.outputs for cell in executed_cells(ROOT / f"{name}.ipynb")]
    text = json.dumps(outputs, ensure_ascii=False)
    assert not re.findall(r"(?:/root|/home|/work|/tmp)/\w+", text)
    assert "NOTICE" not in text, "the committed notebook was not executed on Multi30k"


@pytest.mark.parametrize("name", NAMES)
def test_what_a_first_reader_may_skip_is_folded(tree_of, name):
    """One mark in the script is a form in Jupyter and Colab, and on the page a title to click."""
    titles = []
    for before, cell in itertools.pairwise(nbformat.read(ROOT / f"{name}.ipynb", 4).cells):
        first, *more_lines = cell.source.splitlines() or [""]
        answer = first.startswith("# @title Answer ")
        example = first == "@example"
        marked = (example or first.startswith("# @title ")) and cell.cell_type == "code"
        tags = {*cell.metadata.get("tags", [])}
        hidden = cell.metadata.get("jupyter", {})
        expected = {"hide-cell" if answer else "hide-input"} if marked else set()
        assert tags & {"hide-input", "hide-cell"} == expected
        assert marked == ("cellView" in cell.metadata) == hidden.get("source_hidden", False)
        question = re.search(notebook.QUESTION, before.source)  # a reader predicts first
        assert hidden.get("outputs_hidden", False) or not (answer or (question and example))
        if marked and "active-ipynb" not in tags:
            code = f"Show the code ({len(more_lines) + 1} lines)"
            titles.append(code if example else first.removeprefix("# @title "))
    folded = tree_of(name).select("details.code")
    # neighbours of Part 0 share a fold, with all their titles
    shown = [title for fold in folded for title in fold.summary.get_text().split(" · ")]
    assert shown == titles and "Imports" in titles
    # what an answer shows is folded with its code, what an example shows is not
    for fold in folded:
        answer = fold.summary.get_text().startswith("Answer ")
        assert bool(fold.select(".jp-OutputArea")) == answer


@pytest.mark.parametrize("name", NAMES)
def test_a_page_is_self_contained(committed_page, name):
    text = committed_page(name).read_text(encoding="utf-8")
    assert len(text.encode()) <= 10e6 and text.startswith("<!DOCTYPE html>")
    assert "@@math" not in text and "katex-error" not in text
    text = re.sub(r"(?s)<script.*?</script>", "", text)  # which write links of their own
    assert not re.findall(r"""(?:src|srcset)="(?!data:)[^"]+""", text)
    ids = re.findall(r'<h[1-6] id="([^"]+)"', text)
    assert len(ids) == len(set(ids)) > 8
    targets = re.findall(r'href="#([^"]+)"', text)
    assert not [target for target in targets if f'id="{target}"' not in text]
    # a link to another notebook leads to its page
    assert not re.search(r'href="[^":]*\.ipynb\b', text)


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), *([(1300, "light")] if SOAK else [])])
def test_the_page_draws_in_a_browser(browser, committed_page, width, scheme):
    """Offline: no error, request or sideways scroll; seen charts are drawn, the theme changes."""
    tab, problems = offline_tab(browser, width, color_scheme=scheme)
    tab.goto(committed_page(NAMES[0]).as_uri())
    charts = tab.locator("figure.chart").all()
    assert len(charts) >= 10
    for chart in charts:
        in_view(chart)
        chart.locator("svg.marks, canvas").first.wait_for(timeout=20_000)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    before = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    tab.locator("#theme").click()
    assert tab.evaluate("getComputedStyle(document.body).backgroundColor") != before
    assert not problems
    tab.context.close()


def test_the_readme_has_the_commands_that_ci_runs():
    readme, makefile = ((ROOT / name).read_text("utf-8") for name in ("README.md", "Makefile"))
    assert "make html" in readme and "make test" in readme
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith('exec make test "$@"')
    targets = set(re.findall(r"^([a-z]+):", makefile, re.M))
    assert set(re.findall(r"(?:^|`)make ([a-z]+)", readme, re.M)) <= targets
    program = (ROOT / "translator" / "README.md").read_text("utf-8")
    calls = re.findall(r"the_annotated_transformer\.py ([a-z]+)([^\n`]*)", readme + program)
    assert {"train", "translate", "evaluate", "explain", "plan", "doctor"} <= {*dict(calls)}
    settings = {field.name for kind in (Settings, Limits) for field in dataclasses.fields(kind)}
    for command, options in calls:
        parameters = inspect.signature(getattr(commands, command)).parameters
        option_names = {*parameters, "json", *(settings if command == "train" else ())}
        used = {name.replace("-", "_") for name in re.findall(r"--([a-z-]+)", options)}
        assert used <= option_names


def test_nothing_names_the_machine_it_was_made_on():
    """In no text file that git tracks."""
    command = ["git", "-C", ROOT, "grep", "-IlE", r"/root/|/home/\w|/work/\w"]
    files = subprocess.run(command, capture_output=True, text=True).stdout.split()
    assert files == [Path(__file__).relative_to(ROOT).as_posix()]
