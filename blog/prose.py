"""Prose: the cells of a page, and their Markdown as HTML, with headings, pictures and formulas."""

import base64
import functools
import html
import itertools
import mimetypes
import re
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import nbformat
from bs4 import BeautifulSoup, NavigableString, PageElement, Tag
from mistune.plugins.table import table_in_quote
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

from blog import editions

TITLE = "# @title "  # the first line of a folded cell, as in notebook.py
ONE_SCREEN = "one_screen"  # the page that listing.py makes; has a style of its own
LIVE = "images/live_figure.png"  # in its place, the page has the figure that it is a picture of
# what a cell prints that says nothing to a page's reader: of his machine, of an exercise's place
# that nobody can fill here, a bar of progress
UNSEEN = re.compile(r"Python \d|(?s:.*nothing is there yet\.)")
PROGRESS = re.compile(r"^.*\d%\|.*\|.*\n", re.MULTILINE)
# pandas puts the name of the index below the names of the columns
TWO_HEADS = re.compile(
    r"(<thead>\s*<tr[^>]*>\s*)<th></th>((?:(?!</tr>).)*)</tr>\s*<tr>\s*"
    r"<th>([^<]+)</th>(?:\s*<th></th>)+\s*</tr>",
    re.DOTALL,
)
OWN_IDS = {  # those of the template
    "search", "search-close", "query", "results", "found", "card", "walk", "walk-title", "style-panels",
    "explorer-figure", "explorer-content", "top", "contents", "left", "theme", "toc", "content",
    "your-sentence", "style-base", "style-learn", "learned", "patients", "clinic", "trainer",
    "clinic-frame", "road", "road-home", "micropython", "micropython-wasm", "explorer-weights",
    "place", "where", "ways",
}  # fmt: skip
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
parse = functools.partial(BeautifulSoup, features="html.parser")  # a piece of HTML as a tree


class PageError(ValueError):
    """The notebook cannot become a page; the message says why."""


class Prose(IPythonRenderer):
    """Markdown to HTML; names headings, embeds pictures, and makes a <formula> of each formula."""

    def __init__(self, folder: Path, anchors: Iterable[str] = (), english: str = "") -> None:
        super().__init__(escape=False)
        self.folder = folder
        self.english = english  # the folder of the English pages, seen from this one
        self.ids = set(OWN_IDS)  # that nothing else may have
        self.live = 0  # how many live figures there are
        self.anchors = list(anchors)  # of a translation: the English headings still to come
        # each object that holds prose, and under which key
        self.places: list[tuple[nbformat.NotebookNode, str]] = []

    def inline_math(self, body: str, display: str = "") -> str:
        """`$...$`, for KaTeX to render later."""
        return f'<formula tex="{html.escape(body.strip())}" {display}></formula>'

    def block_math(self, body: str) -> str:
        """`$$...$$`; a numbered equation can be linked to."""
        formula = self.inline_math(body, "display")
        number = re.search(r"\\tag\{(\d+)\}", body)
        if number is None:
            return formula
        return f'<span class="equation" id="equation-{number[1]}">{formula}</span>'

    def latex_environment(self, name: str, body: str) -> str:
        """`\\begin{align}...` without dollar signs."""
        return self.inline_math(f"\\begin{{{name}}}{body}\\end{{{name}}}", "display")

    def heading(self, text: str, level: int, **_: Any) -> str:
        """A heading with an id of its own."""
        base = anchor_name(self.anchors.pop(0) if self.anchors else words(parse(text).descendants))
        names = itertools.chain([base], (f"{base}-{count}" for count in itertools.count(2)))
        # two headings may have one text, and no two elements one id
        name = next(name for name in names if name not in self.ids)
        self.ids.add(name)
        return f'<h{level} id="{name}">{text}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link; one to a heading, named as Jupyter does, spaces as hyphens, leads to its id."""
        # All pages of a language are in one folder.
        # a notebook becomes its page, and a heading, as Jupyter names it, the page's id
        if link := re.fullmatch(r"(?:(?:[.\w]+/)*(\w+))?(?(1)\.ipynb)(?:#(.+))?", url):
            notebook, heading = link.groups()
            url = ""
            if notebook:  # what has no translation stands with the English pages
                folder = "" if notebook in editions.NAMES else self.english
                url = f"{folder}{notebook}.html"
            if heading:
                url += f"#{anchor_name(heading)}"
        if url == f"{ONE_SCREEN}.py":  # the listing has a page
            url = f"{ONE_SCREEN}.html"
        return super().link(text, url, title)

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """A picture embedded in the page; only the text of one on the network."""
        alt = html.escape(words(parse(text).descendants))
        if re.match(r"https?:", url):  # such as a badge, which the page would fetch
            return alt
        file = self.folder / url
        if not file.is_file():
            raise PageError(f"there is no picture {url}")
        if file.suffix == ".svg":
            svg = self.inline_svg(file)
            # where in the model a section is
            kind = "picture here" if file.parent.name == "here" else "picture"
            role = "group" if svg.a else "img"
            return f'<span class="{kind}" role="{role}" aria-label="{alt}">{svg}</span>'
        data = base64.b64encode(file.read_bytes()).decode()
        picture = f'<img alt="{alt}" src="data:{mimetypes.guess_type(url)[0]};base64,{data}">'
        if url != LIVE:
            return picture
        self.live += 1
        # the picture stands there until the figure does; once is enough for the page's size
        first = self.live == 1
        content = picture if first else f"<span>{alt}</span>"
        figure = f'<span class="explorer" data-number="{self.live}">{content}</span>'
        return f'<span id="ways"></span>{figure}' if first else figure

    def inline_svg(self, file: Path) -> Tag:
        """The file's <svg>. Its ids must differ from the page's, because it becomes part of it."""
        # as a part of the page, a drawing follows its theme and can be read aloud
        drawing = parse(file.read_text("utf-8"))
        ids = {tag["id"] for tag in drawing(id=True)}
        if clash := self.ids & ids:
            raise PageError(f"{file.name}: the page has another {', '.join(sorted(clash))}")
        self.ids |= ids
        # links are for everyone
        drawing.svg.attrs |= {"role": "group"} if drawing.a else {"aria-hidden": "true"}
        # narrower, letters of 14 pixels couldn't be read on a phone, where the rest now scrolls
        drawing.svg["style"] = f"min-width: {0.65 * float(drawing.svg['width']):.0f}px"
        return drawing.svg


def anchor_name(heading: str) -> str:
    """The id of a heading: its letters and digits, in small letters, with hyphens between them."""
    return re.sub(r"\W+", "-", urllib.parse.unquote(heading).lower()).strip("-") or "section"


def words(nodes: Iterable[PageElement]) -> str:
    """The words of some nodes, without those of drawings and of formulas that are drawn."""

    def drawn(parent: Tag) -> bool:
        return parent.name == "svg" or "katex" in parent.get("class", ())

    texts = (node for node in nodes if type(node) is NavigableString)
    return " ".join("".join(text for text in texts if not any(map(drawn, text.parents))).split())


def at_headings(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """A cell, or its pieces with headings: what scripts add to a section goes behind all of it."""
    if cell.cell_type != "markdown":
        return [cell]
    return [
        nbformat.NotebookNode({**cell, "id": f"{cell.id}-{i}", "source": text})
        for i, text in enumerate(re.split(r"\n(?=#{1,6} )", cell.source))
    ]


def cells_of_the_page(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The page's cells: folds with their titles, prose in pieces, one a heading."""
    # Without those that are for a hosted notebook only.
    cells = [cell for cell in notebook.cells if "active-ipynb" not in cell.metadata.get("tags", [])]
    for cell in cells:
        outputs = cell.get("outputs", [])
        if any(UNSEEN.match(output.get("text", "")) for output in outputs):
            cell.outputs = []
        for output in outputs:
            if "text" in output:
                output.text = PROGRESS.sub("", output.text)
            if table := output.get("data", {}).get("text/html"):
                output.data["text/html"] = TWO_HEADS.sub(r"\1<th>\3</th>\2</tr>", table)
        if cell.source.startswith(TITLE) and cell.cell_type == "code":
            cell.metadata.title, _, cell.source = cell.source.removeprefix(TITLE).partition("\n")
    return [piece for cell in joined(cells) for piece in at_headings(cell)]


def joined(cells: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """The same, with the folds of Part 0 that follow each other as one."""
    tops = [i for i, cell in enumerate(cells) if cell.source.startswith("# ")]  # title, Part 0
    end = tops[2] if len(tops) > 2 else 0
    folds: list[nbformat.NotebookNode] = []
    for cell in cells[:end]:
        if folds and all("title" in c.metadata for c in (folds[-1], cell)):
            folds[-1].metadata.title += f" · {cell.metadata.title}"
            folds[-1].source += f"\n\n\n{cell.source}"
        else:
            folds.append(cell)
    return folds + cells[end:]


def render_prose(notebook: nbformat.NotebookNode, prose: Prose) -> None:
    """Turn the notebook's Markdown, in cells and outputs, into HTML in place."""
    markdown = MarkdownWithMath(renderer=prose)
    table_in_quote(markdown)  # much of our commentary is a table
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            prose.places.append((cell, "source"))
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                output.data["text/html"] = output.data["text/markdown"]
                prose.places.append((output.data, "text/html"))
    for holder, key in prose.places:
        holder[key] = markdown.render(holder[key])
