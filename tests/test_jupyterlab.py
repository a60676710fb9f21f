"""The notebook in JupyterLab, in a browser that reaches only this machine. `make soak` runs it."""

import importlib.util
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers import ROOT, started, wait_for

NAME = "the_annotated_transformer.ipynb"
LAB = importlib.util.find_spec("jupyterlab")
pytestmark = pytest.mark.skipif(LAB is None, reason="JupyterLab is not installed: make soak")


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    left_out = (".git", ".venv*", "node_modules", "runs", "build", "__pycache__")
    ignore = shutil.ignore_patterns(*left_out)
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("lab") / "copy", ignore=ignore)


@pytest.fixture(scope="module")
def server(copy) -> Iterator[str]:
    """JupyterLab on the copy; yields the address of the notebook."""
    folder = copy.parent
    environment = {name: os.environ[name] for name in os.environ if not name.startswith("JUPYTER")}
    environment |= {"ANNOTATED_DEVICE": "cpu", "HOME": str(folder)}
    environment["JUPYTER_RUNTIME_DIR"] = str(folder / "runtime")
    options = ["--no-browser", "--allow-root", "--ServerApp.port=0"]
    options += ["--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"]
    options += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    log = folder / "log"
    command = [sys.executable, "-m", "jupyterlab", *options]
    with log.open("w") as file:
        streams = {"stdout": file, "stderr": file}
        with started(command, cwd=copy, env=environment, **streams):
            address = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)")
            match = wait_for("JupyterLab", lambda: address.search(log.read_text()), 60)
            yield f"{match[1]}/lab/tree/{NAME}?token={match[2]}"


@pytest.fixture(scope="module")
def tab(browser, server) -> Iterator:
    """The notebook in Chromium; a request to another machine is stopped, and fails the test."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    elsewhere = []

    def stop(route) -> None:
        elsewhere.append(route.request.url)
        route.abort()

    page.route(lambda url: not re.match(r"(http|ws)://127\.0\.0\.1:|data:|blob:", url), stop)
    page.goto(server)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=120_000)
    kernel = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel"
    idle = f"{kernel}?.status === 'idle'"
    page.wait_for_function(idle, timeout=120_000)
    yield page
    assert not elsewhere


def test_it_opens_with_its_helpers_folded(tab):
    """Cells that begin with a title, and examples, are folded; all others are not."""
    widgets = "jupyterapp.shell.currentWidget.content.widgets"
    columns = "[c.model.type, c.model.sharedModel.source, !!c.inputHidden]"
    cells = tab.evaluate(f"{widgets}.map(c => {columns})")
    marks = "# @title ", "@example\n"
    code = [(source.startswith(marks), hidden) for kind, source, hidden in cells if kind == "code"]
    assert len(code) > 100 and all(marked == hidden for marked, hidden in code)


def test_parts_0_and_1_run_and_their_charts_are_drawn(tab):
    """All cells above Part 2 are executed anew; none fails, and JupyterLab draws a new chart."""
    executed = tab.evaluate(
        """async () => {
            const panel = jupyterapp.shell.currentWidget, notebook = panel.content;
            const source = (cell) => cell.model.sharedModel.source;
            const end = notebook.widgets.findIndex((cell) => source(cell).startsWith("# Part 2"));
            const code = () => notebook.widgets.slice(0, end)
                .filter((cell) => cell.model.type === "code");
            code().forEach((cell) => cell.model.clearExecution());
            notebook.activeCellIndex = end;
            await jupyterapp.commands.execute("notebook:run-all-above");
            const vega = (output) => output.data?.["application/vnd.vegalite.v5+json"];
            const chart = notebook.widgets.findIndex((cell) => cell.model.type === "code"
                && cell.model.toJSON().outputs.some(vega));
            await notebook.scrollToItem(chart, "start");
            return JSON.stringify(code().map((cell) => cell.model.toJSON()));
        }"""
    )
    cells = json.loads(executed)
    assert len(cells) > 40 and all(cell["execution_count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output["evalue"] for output in outputs if output["output_type"] == "error"]
    drawing = tab.locator(".vega-embed :is(svg, canvas)").first
    drawing.wait_for(timeout=60_000)
    assert drawing.bounding_box()["width"] > 200
