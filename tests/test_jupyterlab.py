"""The notebook in JupyterLab, in a real browser that reaches nothing but this machine. `make soak` runs it."""

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
    left_out = shutil.ignore_patterns(".git", ".venv*", "node_modules", "runs", "build", "__pycache__")
    return shutil.copytree(ROOT, tmp_path_factory.mktemp("lab") / "copy", ignore=left_out)


@pytest.fixture(scope="module")
def server(copy) -> Iterator[str]:
    """JupyterLab on the copy; yields the address of the notebook."""
    folder = copy.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("JUPYTER")}
    environment |= {"ANNOTATED_DEVICE": "cpu", "HOME": str(folder), "JUPYTER_RUNTIME_DIR": str(folder / "runtime")}
    options = ["--no-browser", "--allow-root", "--ServerApp.port=0", "--LabApp.expose_app_in_browser=True"]
    options += ["--LabApp.news_url=None", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    log = folder / "log"
    command = [sys.executable, "-m", "jupyterlab", *options]
    with log.open("w") as file, started(command, cwd=copy, env=environment, stdout=file, stderr=file) as process:
        address = re.compile(r"(http://127\.0\.0\.1:\d+)/lab\?token=(\w+)")
        found = wait_for("JupyterLab", lambda: address.search(log.read_text()) or process.poll() is not None, 60)
        assert found is not True, log.read_text()
        yield f"{found[1]}/lab/tree/{NAME}?token={found[2]}"


@pytest.fixture(scope="module")
def tab(browser, server) -> Iterator:
    """The notebook, open in Chromium; every request to another machine is stopped and fails the test in the end."""
    page, elsewhere = browser.new_page(viewport={"width": 1400, "height": 900}), []

    def stop(route) -> None:
        elsewhere.append(route.request.url)
        route.abort()

    page.route(lambda url: not re.match(r"(http|ws)://127\.0\.0\.1:|data:|blob:", url), stop)
    page.goto(server)
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=120_000)
    idle = "window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
    page.wait_for_function(idle, timeout=120_000)
    yield page
    assert not elsewhere


def test_it_opens_with_its_helpers_folded(tab):
    """Cells that begin with a title, and examples, are folded; all others are not."""
    widgets = "jupyterapp.shell.currentWidget.content.widgets"
    cells = tab.evaluate(f"{widgets}.map(c => [c.model.type, c.model.sharedModel.source, !!c.inputHidden])")
    marks = "# @title ", "@example\n"
    code = [(source.startswith(marks), hidden) for kind, source, hidden in cells if kind == "code"]
    assert len(code) > 150 and all(marked == hidden for marked, hidden in code)
    assert tab.locator("h1", has_text="The Annotated Transformer").first.is_visible()


def test_parts_0_and_1_run_and_their_charts_are_drawn(tab):
    """All cells above Part 2 are executed anew; none fails, and a chart made now is drawn by JupyterLab itself."""
    found = tab.evaluate(
        """async () => {
            const panel = jupyterapp.shell.currentWidget, notebook = panel.content;
            const end = notebook.widgets.findIndex((cell) => cell.model.sharedModel.source.startsWith("# Part 2"));
            for (const cell of notebook.widgets.slice(0, end)) cell.model.type === "code" && cell.model.clearExecution();
            notebook.activeCellIndex = end;
            await jupyterapp.commands.execute("notebook:run-all-above");
            const code = notebook.widgets.slice(0, end).filter((cell) => cell.model.type === "code");
            return JSON.stringify(code.map((cell) => cell.model.toJSON()));
        }"""
    )
    cells = json.loads(found)
    assert len(cells) > 40 and all(cell["execution_count"] for cell in cells)
    outputs = [output for cell in cells for output in cell["outputs"]]
    assert not [output["evalue"] for output in outputs if output["output_type"] == "error"]
    charts = [output for output in outputs if "application/vnd.vegalite.v5+json" in output.get("data", {})]
    assert len(charts) >= 5 and not any("text/html" in chart["data"] for chart in charts)
    tab.evaluate(
        """() => {
            const notebook = jupyterapp.shell.currentWidget.content;
            const chart = notebook.widgets.findIndex((cell) => cell.model.type === "code" &&
                cell.model.toJSON().outputs.some((output) => output.data?.["application/vnd.vegalite.v5+json"]));
            return notebook.scrollToItem(chart, "start");
        }"""
    )
    drawing = tab.locator(".vega-embed :is(svg, canvas)").first
    drawing.wait_for(timeout=60_000)
    assert drawing.bounding_box()["width"] > 200


def test_saving_leaves_the_script_alone(tab, copy):
    """jupytext is installed beside JupyterLab; it must not write the notebook back into its twin."""
    before = (copy / NAME).read_bytes()
    tab.evaluate("jupyterapp.commands.execute('docmanager:save')")
    assert (copy / NAME).read_bytes() != before
    script = "the_annotated_transformer.py"
    assert (copy / script).read_bytes() == (ROOT / script).read_bytes()
