"""A notebook that is alone: its companion, and the address stamped into all that names it."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from unittest.mock import Mock

import nbformat
import pytest

from blog import address, companion, editions, notebook, page
from tests.helpers import ROOT

URL = "https://github.com/somebody/Some.where"
SOCKETS = "import socket; socket.socket.connect = None"  # a network that nothing can reach


@pytest.fixture(scope="module")
def archive(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("page") / companion.NAME
    companion.write(out, ROOT)
    return out


def test_what_is_written_takes_its_place_when_it_is_whole(monkeypatch, tmp_path):
    """Pages, notebooks, companion; catches a notebook that its page or translation overwrites."""
    mine = tmp_path / "mine.ipynb"
    mine.write_text("hours of work")
    with monkeypatch.context() as patch, pytest.raises(OSError, match="full"):
        patch.setattr(Path, "write_bytes", Mock(side_effect=OSError("full")))
        companion.whole(mine, b"half")
    assert mine.read_text() == "hours of work"
    companion.whole(mine, b"new")
    assert mine.read_bytes() == b"new" and len([*tmp_path.iterdir()]) == 1
    shutil.copy(ROOT / "practice" / "clinic.ipynb", mine)
    for overwritten in (
        lambda: page.main(mine, mine),
        lambda: editions.main("apply", "zh", mine, mine),
    ):
        with pytest.raises(ValueError, match="is the notebook itself"):
            overwritten()


def first_cells(name: str, heading: str) -> list[nbformat.NotebookNode]:
    """The code cells of a notebook before a heading."""
    cells = nbformat.read(ROOT / name, 4).cells
    pattern = rf"(?m)^#+ {heading}"
    end = next(i for i, cell in enumerate(cells)
               if cell.cell_type == "markdown" and re.search(pattern, cell.source))  # fmt: skip
    return [cell for cell in cells[:end] if cell.cell_type == "code"]


def run_alone(folder: Path, cells: list[nbformat.NotebookNode]) -> str:
    """What cells print in a kernel that has only this folder and no network."""
    cells = [nbformat.v4.new_code_cell(SOCKETS), *cells]
    book = nbformat.v4.new_notebook(cells=cells, metadata=notebook.METADATA)
    nbformat.write(book, folder / "alone.ipynb")
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook"]
    command += ["--execute", "--inplace", "alone.ipynb"]
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.run(command, cwd=folder, env=settings, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    cells = nbformat.read(folder / "alone.ipynb", 4).cells
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join(str(output.get("text", output.get("data", ""))) for output in outputs)


def test_alone_with_its_companion_the_first_part_translates(archive, tmp_path):
    """In an empty folder, without a network, with the trained weights; the reader's files stay."""
    # as a browser names a second download
    shutil.copy(archive, tmp_path / "the_annotated_transformer (1).zip")
    (tmp_path / "exercises.ipynb").write_text("mine")
    printed = run_alone(tmp_path, first_cells("the_annotated_transformer.ipynb", "Part 2"))
    printed = printed.replace("▁", " ").replace("'", "")
    assert "two women are sitting on a bench while a man" in printed.lower()
    assert "NOTICE" not in printed and (tmp_path / "exercises.ipynb").read_text() == "mine"


def test_the_companion_has_the_other_notebooks_and_the_weights(archive):
    with zipfile.ZipFile(archive) as files:
        names = files.namelist()
        scripts = [script.with_suffix(".ipynb").relative_to(ROOT) for script in notebook.SCRIPTS]
        assert {script.as_posix() for script in scripts} <= {*names}
        weights = "models/multi30k-de-en/model.safetensors"
        assert files.read(weights) == (ROOT / weights).read_bytes()
    assert not [name for name in names if "pycache" in name] and archive.stat().st_size < 10e6


def test_the_page_offers_the_companion(tree_of):
    pages = {language: tree_of("since_2017", language) for language in ("en", "zh")}
    links = {name: tree.select_one(".pages .companion a")["href"] for name, tree in pages.items()}
    assert links == {"en": companion.NAME, "zh": f"../{companion.NAME}"}


@pytest.fixture
def stamped(tmp_path) -> Path:
    """A copy of what has a place for the address."""
    (tmp_path / "practice").mkdir()
    twins = [path for script in notebook.SCRIPTS for path in (script, script.with_suffix(".ipynb"))]
    paths = [path.relative_to(ROOT) for path in twins]
    for path in (*paths, "README.md"):
        shutil.copy(ROOT / path, tmp_path / path)
    return tmp_path


def test_one_command_stamps_the_address(stamped, monkeypatch):
    """Everywhere, again and again; no output of a notebook is lost, and the twins agree."""
    texts = {script: script.read_text("utf-8") for script in notebook.SCRIPTS}
    placed = [script.relative_to(ROOT) for script in texts if "REPOSITORY = " in texts[script]]
    address.stamp(stamped, "https://github.com/before/it")
    assert len(address.stamp(stamped, URL + ".git")) == 2 * len(placed) + 1 and len(placed) >= 4
    assert not address.stamp(stamped, URL + "/")
    for script in placed:
        text, book = (stamped / script).read_text("utf-8"), script.with_suffix(".ipynb")
        assert text.count(f'REPOSITORY = "{URL}"') == 1 and 'REPOSITORY = ""' not in text
        books = [nbformat.read(folder / book, 4).cells for folder in (ROOT, stamped)]
        outputs = [json.dumps([cell.get("outputs") for cell in cells]) for cells in books]
        assert outputs[0] == outputs[1] and not notebook.check(stamped / script, stamped / book)
    text = (stamped / "README.md").read_text("utf-8")
    assert URL.removeprefix("https://github.com/") in text and "before/it" not in text
    monkeypatch.setattr(page, "DOCUMENT", stamped / "the_annotated_transformer.py")
    site = page.addresses("the_annotated_transformer", None, "")["address"]
    assert site == "https://somebody.github.io/Some.where/"
