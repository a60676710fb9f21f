"""A web page: an executed notebook as one HTML file that needs nothing else, not even a network.

    python -m blog page the_annotated_transformer.ipynb OUT.html [--repository URL]

KaTeX (npm ci --prefix blog) renders the formulas here, and only the fonts that they use go into the
page. Charts go in as drawings, which are in the page's tree while they are near the view. Pictures
go in as SVG, so that they follow the page's theme. Cells tagged `active-ipynb`, code or prose, are
for the notebook alone, and so is the table that says where the road goes. Cells tagged `hide-input`
are folded, under the title in their first line if there is one; those tagged `hide-cell` with what
they show, and of those tagged `hide-output` only that. The paths of pictures start at the
repository, wherever the notebook is. The picture of the live figure becomes that figure, with its
model. A link to a notebook beside this one becomes a link to its page.

The links at the top of the page need the address of the repository: --repository, or else the
document's constant REPOSITORY. Without an address there are no links.
"""

import base64
import functools
import gzip
import html
import json
import re
import subprocess
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
from bs4 import BeautifulSoup, SoupStrainer, Tag
from nbconvert.exporters.templateexporter import TemplateExporter
from traitlets.config import Config

from blog import charts, companion, editions, listing
from blog import notebook as twins
from blog.editions import Language
from blog.links import Links
from blog.prose import (
    HEADINGS,
    ONE_SCREEN,
    PageError,
    Prose,
    anchor_name,
    cells_of_the_page,
    parse,
    render_prose,
    words,
)
from blog.style import TEMPLATE, Highlighter, code_style, css, draw_formulas, katex_style, run_node
from blog.times import TRAINER, contents, mark_what_is_read, time_the_road

BLOG = Path(__file__).resolve().parent
DOCUMENT = BLOG.parent / "the_annotated_transformer.py"
MICROPYTHON = BLOG / "node_modules" / "@micropython" / "micropython-webassembly-pyscript"
AS_SCRIPT = {  # what makes a script, to be put into a worker, of the module micropython.mjs
    "import.meta.url": '""', "export default _createMicroPythonModule;": "",
    "export async function": "async function",
    'const path=await import("path"),url=await import("url")':
        'const path=import("path"),url=import("url")',
    "let Module={locateFile": "let Module={wasmBinary:options.wasmBinary,locateFile",
}  # fmt: skip
# the best first
PICTURES = "image/svg+xml", "image/png", "image/jpeg"
OUTPUT_TYPES = [charts.VEGA_LITE, "text/html", *PICTURES, "text/plain"]
# what the live figure shows first
SENTENCE = "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."
PAPERS = "the_annotated_transformer", "since_2017"  # the documents that speak for papers


def mark_the_paper(tree: BeautifulSoup, prose: Prose) -> None:
    """Mark a document's plain prose: what it says in the paper's name. Pictures have no mark."""
    # plain prose speaks for the paper, quoted prose is ours
    for (_, key), section in zip(prose.places, tree.contents, strict=True):
        for node in section.find_all(["p", "ul", "ol", "details"], recursive=False):
            pieces = [child for child in node.children if str(child).strip()]
            picture = node.find(class_=["picture", "explorer"], recursive=False)
            # a line that is all bold or italic is the title of what follows
            title = len(pieces) == 1 and pieces[0].name in ("em", "strong")
            if key == "source" and not picture and not title:
                node["class"] = [*node.get("class", []), "paper"]


def addresses(name: str, repository: str | None, folder: str) -> dict[str, str]:
    """The repository; if it is on GitHub, also the addresses of Colab and the page.

    repository: by default the document's REPOSITORY.
    folder: that of the page's language, such as `zh/`; none in English.
    """
    if repository is None:
        repository = re.search(r'(?m)^REPOSITORY = "([^"]*)"', DOCUMENT.read_text("utf-8"))[1]
    on_github = re.fullmatch(r"https://github\.com/([\w.-]+)/([\w.-]+?)(?:\.git)?/?", repository)
    if not on_github:
        return {"repository": repository}
    owner, project = on_github.groups()
    # where .github/workflows/page.yml publishes the pages
    site = f"https://{owner.lower()}.github.io/{project}/"
    page = "" if name == DOCUMENT.stem and not folder else f"{folder}{name}.html"
    return {
        "repository": repository,
        "colab": f"https://colab.research.google.com/github/{owner}/{project}/blob/main/{name}.ipynb",
        "address": site + page,
        "image": f"{site}live_figure.png",
    }


def make_page(
    notebook: nbformat.NotebookNode, name: str, folder: Path, repository: str | None = None,
    language: str = "en",
) -> str:  # fmt: skip
    """The page of the executed notebook `name`, with pictures of `folder`; raises PageError."""
    # Markdown becomes HTML first, cell by cell. Links, times and formulas need all of it at once,
    # so it is put into one tree; what comes back goes to its cells, and the template puts code and
    # outputs around it.
    edition = Language(language)
    anchors = [] if language == "en" else editions.anchors(notebook)
    if language != "en":
        notebook = editions.translated(notebook, language)
    notebook.cells = cells_of_the_page(notebook)
    prose = Prose(folder, anchors, english=edition.up)
    render_prose(notebook, prose)
    # one tree of all prose, in which links, times and headings are seen together; a <section> of it
    # goes back to its cell at the end
    tree = parse("".join(f"<section>{holder[key]}</section>" for holder, key in prose.places))
    headings = tree(HEADINGS, id=True)
    if not headings:
        raise PageError("the notebook has no heading to be the page's title")
    mark_what_is_read(tree, notebook)  # before all times, in which it counts
    time_the_road(tree, edition.say)
    if name in PAPERS:
        mark_the_paper(tree, prose)
    for table in tree("table"):  # in a box that scrolls if the screen is too narrow
        table.wrap(tree.new_tag("div", attrs={"class": "table"}))
    Links(tree, edition.say).add()  # before formulas are drawn: a symbol is found by its TeX
    draw_formulas(tree)
    content = about_the_page(name, repository, edition) | of_the_text(tree, headings)
    content |= of_the_cells(notebook, prose, edition)
    content["style"] = "\n".join(styles(name, tree))
    add_anchors(tree, headings, edition.say)
    for (holder, key), section in zip(prose.places, tree.contents, strict=True):
        if section.find(class_="explorer", attrs={"data-number": "1"}):
            holder["first"] = True  # the page's script stands behind it
        holder[key] = section.decode_contents()
    text = export(notebook, content, edition.say)
    refuse_requests(text)
    return text


def about_the_page(name: str, repository: str | None, edition: Language) -> dict[str, Any]:
    """What the template needs to know of a page apart from its notebook."""
    texts = json.dumps(edition.texts, ensure_ascii=False).replace("<", "\\u003c")
    return {
        "name": name,
        "language": edition.code,
        "editions": other_editions(name, edition) if name in [*editions.NAMES, ONE_SCREEN] else [],
        "others": other_pages(name, edition),
        "companion": edition.up + companion.NAME,
        "words": texts if edition.texts else "",
        **addresses(name, repository, edition.folder),
        "base": css("base"),
        "learn": css("learn"),  # the style of a frame
        "script": script(),
        "chart": charts.VEGA_LITE,
    }


def of_the_text(tree: BeautifulSoup, headings: list[Tag]) -> dict[str, Any]:
    """The page's title, description and table of contents."""
    # They are taken before headings get their "#", with which the texts of parts would end.
    return {
        "title": words(headings[0].descendants),
        "description": shortened(words(tree.p.descendants)) if tree.p else "",
        "parts": contents(headings),
        "figure": tree.find(class_="arch-fig") is not None,  # then it stays in the margin
    }


def of_the_cells(
    notebook: nbformat.NotebookNode, prose: Prose, edition: Language
) -> dict[str, Any]:
    """What only some pages hold: live figures, trainings made beforehand, MicroPython."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    printed = [output.get("text", "") for output in outputs]
    return {
        # as the document's `choose_data` says
        "made_up": any("going on with a few made-up phrases" in text for text in printed),
        "rows": rows_of_the_page(edition.say) if TRAINER in prose.ids else {},
        "live": live_figure(edition) if prose.live else "",
        "python": python(edition.say) if prose.live else {},
    }


def styles(name: str, tree: BeautifulSoup) -> list[str]:
    """The style sheets of a page."""
    sheets = [css("blog"), code_style(), katex_style(tree)]
    return [*sheets, css(name)] if name == ONE_SCREEN else sheets


def add_anchors(tree: BeautifulSoup, headings: list[Tag], say: Callable[[str], str]) -> None:
    """A link to itself behind each heading, for the pointer: the contents have the same ones."""
    label = say("Link to this section")
    hidden = {"title": label, "aria-hidden": "true", "tabindex": "-1"}
    for heading in headings:
        anchor = {"class": "anchor", "href": f"#{heading['id']}", **hidden}
        heading.extend([" ", tree.new_tag("a", attrs=anchor, string="#")])


def shortened(text: str) -> str:
    """The beginning of a text, 200 letters; Chinese characters count twice."""
    if re.search(f"[{editions.HAN}]", text):
        return text if len(text) <= 100 else f"{text[:99]}…"
    return textwrap.shorten(text, 200, placeholder=" …")


def other_editions(name: str, edition: Language) -> list[tuple[str, str, str]]:
    """The other languages of a page: code, name, and the page's address seen from this one."""
    names = {"en": "English"}
    for code in editions.languages():
        names[code] = editions.load(code).metadata.get("Language-Name", code)
    return [
        (code, names[code], f"{edition.up}{'' if code == 'en' else code + '/'}{name}.html")
        for code in names
        if code != edition.code
    ]


def other_pages(name: str, edition: Language) -> list[tuple[str, str]]:
    """The pages that belong to this one: the title of each, and its address seen from this one."""
    # the titles of all pages, in the order of the header's list
    sources = {script.stem: script.read_text("utf-8") for script in twins.SCRIPTS}
    titles = {stem: re.search(r"(?m)^# # (.+)$", source)[1] for stem, source in sources.items()}
    titles[ONE_SCREEN] = listing.title()
    if name not in titles:
        return []
    translations = editions.meanings(edition.code) if edition.texts else {}
    pages = []
    for stem, title in titles.items():
        if stem == name:
            continue
        if stem in [*editions.NAMES, ONE_SCREEN]:
            pages.append((translations.get(title, title), f"{stem}.html"))
        else:
            pages.append((title, f"{edition.up}{stem}.html"))
    return pages


@functools.cache
def script() -> str:
    """The script of every page, put together out of blog/scripts."""
    command = [str(BLOG / "bundle.js"), "document"]
    process = run_node(*command, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if process.returncode:
        raise PageError("the page's script cannot be put together (see above)")
    return process.stdout


def live_figure(edition: Language) -> str:
    """What the live figures share: their template and style, and the shipped model."""
    from translator.explorer import content, figure
    from translator.files import model_folder
    from translator.model_folder import read_translator

    # one template for all figures, and one copy of the model
    folder = model_folder()
    figures = figure(content(read_translator(folder), folder.name, SENTENCE))
    template, end, model = figures.partition("</template>")
    if edition.texts:  # only the template has words
        return editions.labelled(template + end, edition.say) + model
    return figures


def python(say: Callable[[str], str]) -> dict[str, str]:
    """What runs the functions that readers write: MicroPython, and the mistakes that it tells."""
    from practice.mistakes import CATALOGUE, SLIPS
    from practice.mistakes.plain import FUNCTIONS

    # a page that is one file has no modules to import: exports and imports are rewritten
    text = (MICROPYTHON / "micropython.mjs").read_text("utf-8")
    for old, new in AS_SCRIPT.items():
        if old not in text:
            raise PageError(f"{MICROPYTHON.name} has no {old!r}: another version?")
        text = text.replace(old, new)
    mistakes = {}
    for name in editions.mistakes_of_the_page():
        mistake = (CATALOGUE | SLIPS)[name]
        mistakes[name] = {"line": mistake.line, "effect": say(mistake.effect)}
    forms = {name: function.forms() for name, function in FUNCTIONS.items()}
    written = json.dumps({"mistakes": mistakes, "forms": forms}, ensure_ascii=False)
    written = written.replace("<", "\\u003c")  # or a text could end the script that holds it
    wasm = gzip.compress((MICROPYTHON / "micropython.wasm").read_bytes(), mtime=0)
    return {"script": text, "wasm": base64.b64encode(wasm).decode(), "written": written}


def rows_of_the_page(say: Callable[[str], str]) -> dict[str, str]:
    """Trainings of the page's small model, made beforehand; and the clinic's tests and mistakes."""
    from practice import NEXT_RUNG, examine, mistakes

    files = [BLOG / f"{name}.jsonl" for name in ("learned", "patients")]
    # a checkout without them makes a page all the same, without dotted curves
    rows = {file.stem: file.read_text("utf-8") for file in files if file.exists()}
    tests = {}
    for name, test in examine.TESTS.items():
        if name in editions.CLINIC_TESTS:
            texts = {"measured": say(test.measured), "means": say(test.means)}
            tests[name] = test._asdict() | texts
    patients = {}
    for name in editions.mistakes_of_the_clinic():
        mistake = mistakes.CATALOGUE[name]
        patients[name] = {
            "label": say(mistake.label),
            "group": say(mistakes.GROUPS[mistake.kind]),
            "line": mistake.line,
            "belief": say(mistake.belief),
            "effect": say(mistake.effect),
            "section": anchor_name(mistake.section),
            "seen_by": mistake.seen_by,
        }
    next_rung = say(NEXT_RUNG["let it learn"])
    clinic = {"tests": tests, "mistakes": patients, "next": next_rung}
    rows["clinic"] = json.dumps(clinic, ensure_ascii=False)
    return {name: text.replace("<", "\\u003c") for name, text in rows.items()}


def refuse_requests(text: str) -> None:
    """Raise an error if the page would fetch anything: pictures in raw HTML, scripts in outputs."""
    tags = BeautifulSoup(text, "lxml", parse_only=SoupStrainer(src=True))(src=True)
    if wanted := [tag["src"] for tag in tags if not tag["src"].startswith("data:")]:
        raise PageError(f"the page would fetch {', '.join(wanted)}")


def export(notebook: nbformat.NotebookNode, page: dict[str, Any], say: Callable[[str], str]) -> str:
    """Fill in the template; the data in it is gzip in base64, which page/text.js unpacks."""
    # nbconvert walks through cells and outputs; the template says what each becomes
    exporter = TemplateExporter(
        config=Config({"NbConvertBase": {"display_data_priority": OUTPUT_TYPES}}),
        template_name=TEMPLATE.name,
        extra_template_basedirs=[str(TEMPLATE.parent)],
        file_extension=".html",
    )
    exporter.register_filter("drawings", charts.drawings)
    exporter.register_filter(
        "packed", lambda text: base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    )
    words: dict[str, Any] = exporter.environment.globals
    words["_"] = lambda text: html.escape(say(text))
    exporter.register_filter("highlight_code", Highlighter(pygments_lexer="ipython3"))
    return exporter.from_notebook_node(notebook, {"page": page})[0]


def main(
    notebook: Path, out: Path, /, *,
    repository: str | None = None, language: str = "en",
) -> None:  # fmt: skip
    """Write the page of an executed notebook.

    Args:
        repository: its public address; without one, the notebook's REPOSITORY.
        language: one that has a catalogue in languages/.
    """
    cells = nbformat.reads(notebook.read_text("utf-8"), 4)
    if out.exists() and out.samefile(notebook):
        raise PageError(f"{out} is the notebook itself")
    page = make_page(cells, notebook.stem, BLOG.parent, repository, language)
    companion.whole(out, page.encode())
    print(f"wrote {out} ({len(page.encode()) / 1e6:.1f} MB)")


def listing_page(out: Path, /, *, repository: str | None = None, language: str = "en") -> None:
    """Write the page of one_screen.py, its listing with what is said of it.

    Args:
        repository: its public address; without one, the document's REPOSITORY.
        language: one that has a catalogue in languages/.
    """
    translations = {} if language == "en" else editions.meanings(language, listing.FILE.name)
    cells = listing.notebook(lambda text: translations.get(text, text))
    page = make_page(cells, ONE_SCREEN, BLOG.parent, repository, language)
    text = listing.filled(page).encode()
    companion.whole(out, text)
    print(f"wrote {out} ({len(text) / 1e6:.1f} MB)")
