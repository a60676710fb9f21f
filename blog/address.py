"""The public address: written once into everything that names it.

    python -m blog address https://github.com/OWNER/NAME

Stamps the constant REPOSITORY of every document, with which a notebook that is alone fetches what
it lacks; the notebooks, without executing them; and the badges of README.md. An address that is
there already is replaced.
"""

import re
from pathlib import Path

import nbformat

from blog import companion, notebook

ROOT = Path(__file__).resolve().parents[1]
GITHUB = r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?"
BADGES = r"(?m)^\[!\[Open in Colab\].*\n\n"


def stamp_script(text: str, address: str) -> str:
    """A document's script with the address."""
    return re.sub(r'(?m)^((?:# )?REPOSITORY = )"[^"]*"', rf'\g<1>"{address}"', text)


def stamp_notebook(book: nbformat.NotebookNode, script: str) -> nbformat.NotebookNode:
    """The notebook of a stamped script with its outputs: the same cells in the same order."""
    stamped = notebook.build(script)
    for old, new in zip(book.cells, stamped.cells, strict=True):
        if new.cell_type == "code":
            new.execution_count = old.execution_count
            new.outputs = old.outputs
    return stamped


def badges(owner: str, name: str) -> str:
    """A line that leads to Colab, and to the page that .github/workflows/page.yml publishes."""
    host = "https://colab.research.google.com"
    colab = f"{host}/github/{owner}/{name}/blob/main/the_annotated_transformer.ipynb"
    badge = f"[![Open in Colab]({host}/assets/colab-badge.svg)]({colab})"
    return f"{badge} [Read it on the web](https://{owner.lower()}.github.io/{name}/)\n\n"


def stamp(root: Path, address: str) -> list[Path]:
    """Write the address into all files below `root` with a place for it; returns those changed."""
    owner, name = re.fullmatch(GITHUB, address).groups()
    address = f"https://github.com/{owner}/{name}"
    texts: dict[Path, str] = {}  # all are made before one is written: an error leaves no mixture
    for script in (root / path.relative_to(ROOT) for path in notebook.SCRIPTS):
        texts[script] = stamp_script(script.read_text("utf-8"), address)
        book = script.with_suffix(".ipynb")
        stamped = stamp_notebook(nbformat.reads(book.read_text("utf-8"), 4), texts[script])
        texts[book] = nbformat.writes(stamped) + "\n"
    readme = re.sub(BADGES, "", (root / "README.md").read_text("utf-8"))
    texts[root / "README.md"] = readme.replace("\n\n", f"\n\n{badges(owner, name)}", 1)
    changed = []
    for path, text in texts.items():
        if text != path.read_text("utf-8"):
            companion.whole(path, text.encode())
            changed.append(path)
    return changed


def main(address: str, /) -> None:
    """Write the public address, such as https://github.com/OWNER/NAME, wherever it is named."""
    if not re.fullmatch(GITHUB, address):
        raise ValueError(f"{address} is no address such as https://github.com/OWNER/NAME")
    for path in stamp(ROOT, address):
        print(f"stamped {path.relative_to(ROOT)}")
