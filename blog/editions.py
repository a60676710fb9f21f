"""Other languages: for each a gettext catalogue in languages/, with an entry per piece of prose.

    python -m blog edition update
        bring languages/*.po up to date with the English text, and README.*.md with them
    python -m blog edition check
        say what is missing, damaged or out of date; exit 1 if something must be mended
    python -m blog edition apply LANGUAGE IN OUT
        write the notebook IN in that language

A piece is a heading, a paragraph, an item of a list, a row of a table, the text of a picture, the
title of a fold, the caption of an example, or a text of the page's own (what its scripts and
templates give to say(), told() and _()). Line breaks and the depth of a quotation do not belong to
a piece. When a piece changes, its translation is kept beside the English that it was made from and
marked as fuzzy; until someone has seen to it, the page shows the English, marked.

A second language needs no code: an empty .po with its header, and a .tsv of terms (English,
translation, also allowed, checked, note). Headings keep their English anchors on the page, so links
lead to the same place in every language.
"""

import ast
import base64
import difflib
import functools
import json
import mimetypes
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import nbformat
import polib
from bs4 import BeautifulSoup, NavigableString
from markdown_it import MarkdownIt
from nbformat import NotebookNode

from blog import companion, listing
from blog.notebook import QUOTED, build

BLOG = Path(__file__).resolve().parent
ROOT = BLOG.parent
LANGUAGES = ROOT / "languages"
UNITS = {"million": 10**6, "百万": 10**6, "万": 10**4}
# the lab notebook stays English
NOTEBOOKS = "the_annotated_transformer", "since_2017", "exercises", "practice/clinic"
SCRIPTS = [ROOT / f"{name}.py" for name in NOTEBOOKS]
NAMES = [script.stem for script in SCRIPTS]
FIGURE = ROOT / "translator" / "explorer_page"
SOURCES = BLOG / "scripts"  # of what runs on the pages
TITLE = "# @title "  # as in notebook.py
REFERENCES = "References"  # the items of its list are the same in every language
TARGET = r"(?:[^()\s]|\([^()\s]*\))+"  # of a link
CODE = r"`[^`]+`|\$[^$]+\$"  # or a formula
COMMONMARK = MarkdownIt("commonmark")
HAN = "\u3400-\u9fff"
TABLE_RULE = r"\|?[-:| ]+\|"  # the line below a table's head
VERBATIM = rf"\s*|{TABLE_RULE}|</?details[^>]*>"  # a line that is not translated
# a line that is a piece by itself: what stands before it, the piece, what stands after it; `()` for
# nothing, so that each kind has three groups
SINGLE_LINE = (
    r"(#+ )(.+)()|(<details[^>]*><summary>)(.+)(</summary>)"
    r"|(!\[)(.+)(\]\([^()\s]+\))|(\| )(.*)( \|)"
)
CAPTION = r"(?s)(\*\*\d+\.\*\* )(.+)"  # of an executed example
DIGITS = r"\d(?:[\d,.]*\d)?"  # of a number, as it is written
MARK = r"(#+|\d+[.)]|[-*+>|])\s|\s{4}|```|~~~"  # what makes another kind of block of a text
# what leads from the README to others
SWITCH = r"(?m)^\[(?:\w+\]\(README\.\w+\.md\)|!\[Open in Colab\].*)\n\n"
LABELS = ["aria-label", "title", "placeholder", "label"]  # attributes with text


# --- the pieces of a text ---


# Only a paragraph or an item can have several lines. So its lines wait in `paragraph` until one
# comes that can't belong to it: the next item, a line that is a piece by itself (a heading, a row
# of a table), or one that nobody translates (an empty line, or a line of a block). A block is
# code or a formula on lines of its own, from ``` to ``` or from $$ to $$. A quotation begins,
# ends or becomes deeper only behind an empty line: a paragraph has the marks of its first line.
def pieces(source: str) -> Iterator[tuple[str, str, str]]:
    """The pieces of Markdown in order, each as one line, with what stands before and after it.

    A piece is "" where nothing is translated. Items begin with "- " or "1. ", and have no items
    inside; ``` stands in the first column, behind marks of quotation.
    """
    paragraph: list[str] = []  # its lines so far
    prefix = ""  # what stands before it: marks of quotation, the mark of an item
    block = ""  # what ends the block that this line is in: ``` or $$
    for line in [*source.split("\n"), ""]:  # the last, empty line ends the last paragraph
        quote, content = re.fullmatch(r"((?:> ?)*)(.*)", line).groups()
        # an even number of $$ opens no block; a line that begins with a formula isn't translated
        opens_or_closes = {"```": content.startswith("```"), "$$": content.count("$$") % 2 == 1}
        # not empty on every line of a block, not only the first and the last
        block_mark = block or next((mark for mark, seen in opens_or_closes.items() if seen), "")
        formula = content.startswith("$$")
        verbatim = bool(block_mark or formula or re.fullmatch(VERBATIM, content))
        single_line = None if verbatim else re.fullmatch(SINGLE_LINE, content)
        item = re.match(r"- |\d+\. ", content)
        if paragraph and (verbatim or single_line or item):
            yield prefix, " ".join(paragraph), "\n"
            paragraph = []
        if block_mark and opens_or_closes[block_mark]:
            block = "" if block else block_mark
        if single_line:
            start, piece, end = (group for group in single_line.groups() if group is not None)
            yield quote + start, piece, end + "\n"
        elif verbatim:
            yield line + "\n", "", ""
        elif item:
            prefix = quote + item[0]
            paragraph = [content[item.end() :]]
        elif paragraph:
            paragraph.append(content.strip())
        else:
            prefix = quote
            paragraph = [content.strip()]


def translate(source: str, word: Callable[[str], str]) -> str:
    """Markdown with `word` of each piece in its place; the items below REFERENCES stay."""
    result = ""
    # surnames, titles and venues are the same in every language
    below_references = False
    for before, text, after in pieces(source):
        if before.startswith("#"):
            below_references = text == REFERENCES
        is_reference = below_references and before.lstrip("> ") == "- "
        result += before + (word(text) if text and not is_reference else text) + after
    # the line feeds of the empty line that `pieces` adds, and of the line before it
    return result.removesuffix("\n\n")


def prose(cells: list[NotebookNode]) -> Iterator[tuple[str, str]]:
    """The pieces of a notebook's cells with a note for the translator: section and kind."""
    section = ""
    for cell in cells:
        if cell.cell_type == "code":
            if cell.source.startswith(TITLE):
                title = cell.source.partition("\n")[0].removeprefix(TITLE)
                yield title, f"{section} · title of a folded cell"
            for text in captions(cell.source):
                yield text, f"{section} · caption"
            continue
        for before, text, _ in pieces(cell.source):
            mark = before.lstrip("> ")[:1]
            if mark == "#":
                section = text
            if text and not (section == REFERENCES and mark == "-"):
                yield text, f"{section} · {KINDS.get(mark, 'paragraph')}"


KINDS = {
    "#": "heading", "!": "text of a picture", "<": "title of a note", "|": "row of a table",
    "-": "item",
}  # fmt: skip


def captions(code: str) -> Iterator[str]:
    """The pieces of the captions in a code cell: the docstrings of its examples."""
    if "@example\n" not in code:  # most cells: parsing them all would take seconds
        return
    for node in ast.parse(code).body:
        decorators = map(ast.unparse, getattr(node, "decorator_list", []))
        if isinstance(node, ast.FunctionDef) and "example" in decorators:
            for _, text, _ in pieces(ast.get_docstring(node, clean=False) or ""):
                if text:
                    yield text


def labelled(html: str, word: Callable[[str], str]) -> str:
    """A piece of HTML with `word` of each text in it, and of each attribute that is one."""
    tree = BeautifulSoup(html, "html.parser")
    # a list: what is replaced would end the walk
    for node in list(tree.descendants):
        if not isinstance(node, NavigableString):
            node.attrs |= {name: word(node[name]) for name in LABELS if name in node.attrs}
        elif node.parent.name not in ("style", "script") and re.search("[A-Za-z]{2}", node):
            node.replace_with(node.replace(node.strip(), word(node.strip())))
    return str(tree)


STRING = r'"((?:[^"\\]|\\.)*)"'  # in a script, a template or a Python file
# a text given to say(), told() or _(), or two of which it gets one: `plural ? "words" : "word"`;
# or say`text`, which is longer than a line
SPOKEN = rf"\b(?:say|told|_)\(\s*(?:\w+\s+\? {STRING}\s+: )?{STRING}|\bsay`([^`]+)`"


def texts_of_the_page() -> Iterator[tuple[str, str]]:
    """The page's own texts, and the file of each, in the order of a catalogue."""
    # What scripts, templates and rooms give to say(), told() and _(); then what stands in files of
    # data: the figure, the models, the mistakes and the clinic's tests.
    from practice import NEXT_RUNG
    from practice.examine import TESTS
    from practice.mistakes import CATALOGUE, GROUPS, SLIPS

    # always in this order, or else each update would move the entries of a catalogue about
    scripts = sorted(SOURCES.rglob("*.js"))
    templates = sorted((BLOG / "template").iterdir())
    rooms = [BLOG / f"{name}.py" for name in ("page", "links", "times")]
    for path in [*scripts, *templates, *rooms]:
        for match in re.finditer(SPOKEN, path.read_text("utf-8")):
            for literal in filter(None, match.groups()):
                yield json.loads(f'"{literal}"'), path.name
    for text in labels((FIGURE / "figure.html").read_text("utf-8")):
        yield text, "figure.html"
    for model in json.loads((FIGURE / "models.json").read_text("utf-8")).values():
        yield model["note"], "models.json"
        for provocation in model.get("provocations", []):
            yield provocation["teaches"], "models.json"
    for name in mistakes_of_the_page():
        yield (CATALOGUE | SLIPS)[name].effect, "practice/mistakes"
    for name in mistakes_of_the_clinic():
        mistake = CATALOGUE[name]
        for text in (GROUPS[mistake.kind], mistake.label, mistake.belief, mistake.effect):
            yield text, "practice/mistakes"
    yield NEXT_RUNG["let it learn"], "practice"
    for name in CLINIC_TESTS:
        yield TESTS[name].measured, "examine.py"
        yield TESTS[name].means, "examine.py"


def labels(html: str) -> list[str]:
    """The texts that `labelled` asks for, in order."""
    texts: list[str] = []

    def remember(text: str) -> str:
        texts.append(text)
        return text

    labelled(html, remember)
    return texts


CLINIC_TESTS = (  # those that the page's clinic can make, of practice/examine.py
    "future", "past", "source", "source order", "target order", "first loss", "recomputed",
    "again", "without", "step", "entropy", "heart loss", "by heart", "swap", "fed back",
)  # fmt: skip


def mistakes_of_the_clinic() -> list[str]:
    """The mistakes that a patient on the page may have."""
    from practice.mistakes import CATALOGUE

    return [name for name, mistake in CATALOGUE.items() if mistake.label]


def mistakes_of_the_page() -> list[str]:
    """The mistakes that the page can name in what a reader writes there."""
    from practice.mistakes.plain import FUNCTIONS

    names = [name for function in FUNCTIONS.values() for name, _ in function.mistakes]
    return list(dict.fromkeys(names))


def first_screen() -> str:
    """What a visitor sees of the README first: up to its first commands."""
    # the rest of the README stays English: who reads on has chosen a language
    text = re.sub(f"{SWITCH}|{QUOTED}", "", (ROOT / "README.md").read_text("utf-8"))
    return re.match(r"(?s).*?\n```.*?\n```\n", text)[0]


def readme(language: str) -> str:
    """The README's first screen in another language."""
    translations = meanings(language)
    screen = translate(first_screen(), lambda text: translations.get(text, text))
    heading, text = screen.split("\n\n", 1)
    return f"{heading}\n\n[English](README.md)\n\n{text}"


# --- catalogues ---


def wanted() -> dict[tuple[str | None, str], str]:
    """What a catalogue has to contain, in order: context and English text -> a note."""
    entries: dict[tuple[str | None, str], str] = {}
    # a text that comes again has one entry, at its first place
    for script in SCRIPTS:
        for text, note in prose(build(script.read_text("utf-8")).cells):
            entries.setdefault((None, text), note)
    for text, note in prose(listing.notebook().cells):
        entries.setdefault((None, text), note)
    for text in listing.texts():
        entries.setdefault((listing.FILE.name, text), "comment in the listing")
    for _, text, _ in pieces(first_screen()):
        if text:
            entries.setdefault((None, text), "README")
    for text, note in texts_of_the_page():
        entries.setdefault(("page", text), note)
    return entries


def load(language: str) -> polib.POFile:
    """A language's catalogue; `polib` itself would take seconds to find texts that it has twice."""
    catalogue = polib.pofile(str(LANGUAGES / f"{language}.po"), wrapwidth=110)
    # two entries for a text would let one of them rot
    seen = set()
    for key in ((entry.msgctxt, entry.msgid) for entry in catalogue):
        if key in seen:
            raise ValueError(f"{language}.po has a text twice: {key[1][:90]}")
        seen.add(key)
    return catalogue


def languages() -> list[str]:
    """The languages that have a catalogue."""
    return sorted(path.stem for path in LANGUAGES.glob("*.po"))


def closest(text: str, candidates: list[str]) -> str | None:
    """The most similar of some texts, if more than half is the same."""
    # by words, because a sentence that was changed keeps most of them
    words = text.split()
    similarity: dict[str, float] = {}
    for candidate in candidates:
        matcher = difflib.SequenceMatcher(None, words, candidate.split(), autojunk=False)
        # both are quick, and never below the ratio: most candidates end here
        if matcher.real_quick_ratio() > 0.5 and matcher.quick_ratio() > 0.5:
            similarity[candidate] = matcher.ratio()
    best = max(similarity, key=similarity.__getitem__, default=None)
    return best if best is not None and similarity[best] > 0.5 else None


def renumbered(old: str, new: str, translation: str) -> str | None:
    """The translation of `old` with the numbers of `new`, if nothing else has changed in it."""
    if re.sub(DIGITS, "0", old) != re.sub(DIGITS, "0", new):
        return None
    # from old number to new one: in the translation, they may come in another order
    numbers_before, numbers_after = (re.findall(DIGITS, text) for text in (old, new))
    pairs = dict(zip(numbers_before, numbers_after, strict=True))
    if [pairs[number] for number in numbers_before] != numbers_after:
        return None  # a number that stood for two is now two
    return re.sub(DIGITS, lambda number: pairs.get(number[0], number[0]), translation)


def update(catalogue: polib.POFile, texts: dict[tuple[str | None, str], str]) -> polib.POFile:
    """A catalogue with the pieces `texts`: translations stay, fuzzy if the English has changed."""
    # A piece that the catalogue lacks is new, or an old one that was changed. So it takes over the
    # translation of the closest piece that is gone from the text, which then is no longer offered;
    # marked as fuzzy, it waits until somebody has compared the two. The order is the text's.
    old_entries: dict[tuple[str | None, str], polib.POEntry] = {
        (entry.msgctxt, entry.msgid): entry for entry in catalogue
    }
    gone = {key: entry for key, entry in old_entries.items() if entry.msgstr and key not in texts}
    new = polib.POFile(wrapwidth=110)
    new.metadata = catalogue.metadata
    new.header = catalogue.header
    for (context, text), note in texts.items():
        entry = polib.POEntry(msgid=text, msgctxt=context, comment=note)
        new.append(entry)
        if old := old_entries.get((context, text)):
            entry.msgstr = old.msgstr
            entry.flags = old.flags
            entry.tcomment = old.tcomment
            entry.previous_msgid = old.previous_msgid
            continue
        candidate = closest(text, [english for where, english in gone if where == context])
        if candidate is not None:
            old = gone.pop((context, candidate))
            entry.msgstr = old.msgstr
            # the English that this translates
            made_from = (old.fuzzy and old.previous_msgid) or candidate
            if new_numbers := renumbered(made_from, text, old.msgstr):
                entry.msgstr = new_numbers
            elif made_from != text:  # else the English is again what it was
                entry.previous_msgid = made_from
                entry.flags = ["fuzzy"]
    return new


def meanings(language: str, context: str | None = None) -> dict[str, str]:
    """English -> translation of what is translated and up to date."""
    entries = (entry for entry in load(language) if entry.msgctxt == context)
    return {entry.msgid: entry.msgstr for entry in entries if entry.translated()}


def stale(text: str) -> str:
    """English in the edition of another language, marked cell by cell."""

    def mark(cell: str) -> str:
        english = re.search("[A-Za-z]{3}", cell)
        return f'<span class="stale" lang="en">{cell}</span>' if english else cell

    return " | ".join(mark(cell) for cell in text.split(" | "))


def anchors(notebook: NotebookNode) -> list[str]:
    """The headings of a notebook, in order."""
    return [
        name
        for cell in notebook.cells
        if cell.cell_type == "markdown"
        for name in re.findall(r"(?m)^(?:> ?)*#+ (.+)$", cell.source)
    ]


def translated(notebook: NotebookNode, language: str) -> NotebookNode:
    """The executed notebook in another language: Markdown, captions, titles; the rest stays."""
    translations = meanings(language)
    # code and what it shows stay; of a folded cell the title is in its first line
    result = nbformat.from_dict(notebook)  # a copy

    def word(text: str) -> str:
        return translations.get(text) or stale(text)

    for cell in result.cells:
        if cell.cell_type == "markdown":
            cell.source = translate(cell.source, word)
        elif cell.source.startswith(TITLE):
            title, newline, code = cell.source.removeprefix(TITLE).partition("\n")
            cell.source = TITLE + translations.get(title, title) + newline + code
        for output in cell.get("outputs", []):
            if caption := re.fullmatch(CAPTION, output.get("data", {}).get("text/markdown", "")):
                output.data["text/markdown"] = caption[1] + translate(caption[2], word)
    return result


def jupyter_anchors(notebook: NotebookNode) -> list[str]:
    """Jupyter's names of a notebook's headings, in order."""
    return [re.sub(r"<[^>]+>|`", "", heading).replace(" ", "-") for heading in anchors(notebook)]


def names(english: NotebookNode, translation: NotebookNode) -> dict[str, str]:
    """Jupyter's names of a notebook's headings in English, and those in another language."""
    return dict(zip(jupyter_anchors(english), jupyter_anchors(translation), strict=True))


@functools.cache
def names_of_all(language: str) -> dict[str, dict[str, str]]:
    """The same of every notebook that is translated, by its file."""
    names_by_file = {}
    for path in (script.with_suffix(".ipynb") for script in SCRIPTS):
        notebook = nbformat.reads(path.read_text("utf-8"), 4)
        names_by_file[path.name] = names(notebook, translated(notebook, language))
    return names_by_file


def for_jupyter(notebook: NotebookNode, language: str) -> NotebookNode:
    """An executed notebook in another language, with its pictures in it."""
    # Links lead to the headings there, by Jupyter's names of them. All notebooks of a language
    # stand in one folder, two below the English documents.
    translation = translated(notebook, language)
    # A link names a file, "" for this notebook, and a heading. Both sides have as many headings, in
    # the same order, so a name leads to the other language's by its place.
    names_by_file = {"": names(notebook, translation)} | names_of_all(language)

    def redirected(link: re.Match[str]) -> str:
        file = link[1] or ""
        heading = link[2] or ""
        if file not in names_by_file:  # such as the lab notebook, which stays English
            return f"](../../{file}{'#' * bool(heading)}{heading})"
        return f"]({file}{'#' * bool(heading)}{names_by_file[file].get(heading, heading)})"

    link_to_notebook = rf"\]\((?:(?:\.\./|practice/)?(\w+\.ipynb))?(?:#({TARGET}))?\)"
    for cell in translation.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(link_to_notebook, redirected, cell.source)
            for picture in re.findall(r"\]\((images/[^()\s]+)\)", cell.source):
                name = Path(picture).name
                media_type = mimetypes.guess_type(picture)[0]
                data = base64.b64encode((ROOT / picture).read_bytes()).decode()
                cell.setdefault("attachments", {})[name] = {media_type: data}
                cell.source = cell.source.replace(f"]({picture})", f"](attachment:{name})")
    return translation


# --- what a program can see of a translation ---


def signature(text: str) -> dict[str, list[str]]:
    """What translation and source must share: code, formulas, links, places to fill in, tags."""
    # each kind is taken out before the next is looked for: a $ in code begins no formula
    code = re.findall(r"`[^`]+`", text)
    text = re.sub(r"`[^`]+`", " ", text)
    formulas = ["".join(formula.split()) for formula in re.findall(r"\$[^$]+\$", text)]
    text = re.sub(r"\$[^$]+\$", " ", text)
    links = re.findall(rf"\]\(({TARGET})\)", text)
    text = re.sub(rf"\]\({TARGET}\)", " ", text)
    kinds = {"places": r"\{.*?\}|[{}]", "tags": r"<[/!?A-Za-z][^>]*>?"}
    return {
        "code": sorted(code),
        "formulas": sorted(formulas),
        "links": sorted(links),
        **{kind: sorted(re.findall(pattern, text)) for kind, pattern in kinds.items()},
    }


def numbers(text: str) -> Iterator[tuple[str, str]]:
    """The digits of each number outside code, formulas and links, and those of its value."""
    # Its unit counts for the value: 4.5 million is `450 万`. Numbers in code, formulas and
    # addresses are left out, because these are compared as they stand.
    text = re.sub(rf"{CODE}|\]\({TARGET}\)", " ", text)
    for number, unit in re.findall(rf"(\d[\d,.]*(?<![,.]))(?: ({'|'.join(UNITS)}))?", text):
        digits = re.sub("[,.]", "", number)
        yield digits, f"{float(number.replace(',', '')) * UNITS[unit]:.0f}" if unit else digits


# what to find in the English, its name, and the words of which the translation needs one
Term = tuple[re.Pattern[str], str, list[str]]


def terms(language: str) -> list[Term]:
    """The checked terms, longest first."""
    # only what a speaker of the language has checked is asked for
    file = LANGUAGES / f"{language}.tsv"
    lines = file.read_text("utf-8").splitlines()[1:] if file.is_file() else []
    rows = [row for row in (line.split("\t") for line in lines) if row[3] == "yes"]
    checked = []
    # a short term inside a long one must not be asked for as well
    for name, word, also, *_ in sorted(rows, key=lambda row: -len(row[0])):
        pattern = re.compile(rf"\b{re.escape(name)}s?\b", re.I)
        checked.append((pattern, name, [word, *filter(None, also.split("|"))]))
    return checked


def faults(source: str, translation: str, checked: list[Term]) -> list[str]:
    """What is wrong with a translation; `checked` are the language's `terms`."""
    messages = []
    # What a program can see: what must be the same on both sides, then marks that would make
    # another kind of block, then spaces and terms.
    required = signature(source)
    for kind, present in signature(translation).items():
        if present != required[kind]:
            differing = sorted({*present} ^ {*required[kind]}) or present
            messages.append(f"{kind} differ: {' '.join(differing)}")
    values = {value for _, value in numbers(translation)}
    if lost := [digits for digits, value in numbers(source) if values.isdisjoint({digits, value})]:
        messages.append(f"numbers differ: {' '.join(sorted(lost))}")
    if re.search(r"[\n\r]", translation):
        messages.append("a line break")
    if bool(re.match(MARK, translation)) > bool(re.match(MARK, source)):
        messages.append("a mark of Markdown at the beginning")
    if source.count(" | ") != translation.count(" | "):
        messages.append("another number of cells")
    plain_source, plain = (re.sub(CODE, "x", text) for text in (source, translation))
    # in a line of code, one may stand for itself
    if "*" in COMMONMARK.render(plain) and "*" not in COMMONMARK.render(plain_source):
        messages.append("a * that marks nothing")
    without_links = re.sub(rf"\]\({TARGET}\)", "", plain)
    if re.search(rf"[{HAN}][,;:?!]|[{HAN}][A-Za-z0-9]|[A-Za-z0-9%][{HAN}]", without_links):
        messages.append("half-width punctuation, or no space between Chinese and Latin letters")
    return messages + missing_terms(source, translation, checked)


def missing_terms(source: str, translation: str, checked: list[Term]) -> list[str]:
    """The terms whose translation is not in it; a longer term takes its words from shorter ones."""
    messages = []
    text = re.sub(rf"{CODE}|\]\(\S+\)|\{{\w+\}}", " ", source)
    for pattern, name, words in checked:
        text, count = pattern.subn(" ", text)
        if count and not any(word.lower() in translation.lower() for word in words):
            messages.append(f"{name}: none of {', '.join(words)}")
    return messages


def check(language: str) -> tuple[list[str], list[str]]:
    """What must be mended in a catalogue, and what is out of date: the English changed since."""
    catalogue = load(language)
    texts = wanted()
    checked = terms(language)
    # a set, in the catalogue's order
    listed = dict.fromkeys((entry.msgctxt, entry.msgid) for entry in catalogue)
    problems = [f"not in the catalogue: {key[1][:90]}" for key in texts if key not in listed]
    problems += [f"no longer in the text: {key[1][:90]}" for key in listed if key not in texts]
    if (ROOT / f"README.{language}.md").read_text("utf-8") != readme(language):
        problems.append(f"README.{language}.md is not what the catalogue makes")
    # `update` mends all of these; what follows needs a translator
    problems = [f"{problem} (python -m blog edition update)" for problem in problems]
    for entry in catalogue:
        if not entry.msgstr.strip():
            problems.append(f"not translated: {entry.msgid[:90]}")
        elif not entry.fuzzy:
            for fault in faults(entry.msgid, entry.msgstr, checked):
                problems.append(f"{entry.msgid[:70]}: {fault}")
            # some stand in attributes
            if entry.msgctxt == "page" and '"' in entry.msgstr and '"' not in entry.msgid:
                problems.append(f"{entry.msgid[:70]}: a straight quotation mark")
    return problems, [entry.msgid for entry in catalogue if entry.fuzzy]


class Language:
    """A language of the pages, with its words for the pages' own texts; English needs none."""

    def __init__(self, code: str = "en"):
        self.code = code
        self.texts = {} if code == "en" else meanings(code, "page")
        self.folder = "" if code == "en" else f"{code}/"  # of its pages, seen from the English ones
        self.up = "" if code == "en" else "../"

    def say(self, text: str) -> str:
        """One of the pages' own texts in this language."""
        return self.texts.get(text, text)


def write_notebook(language: str, path: Path, out: Path) -> None:
    """Write the notebook `path` in that language; ValueError if `out` is that notebook."""
    notebook = nbformat.reads(path.read_text("utf-8"), 4)
    if out.exists() and out.samefile(path):
        raise ValueError(f"{out} is the notebook itself")
    companion.whole(out, f"{nbformat.writes(for_jupyter(notebook, language))}\n".encode())


def main(
    command: Literal["update", "check", "apply"],
    language: str | None = None, notebook: Path | None = None, out: Path | None = None, /,
) -> int:  # fmt: skip
    """Update or check the catalogues, or apply one to a notebook; returns the exit status."""
    if language not in (None, *languages()):
        raise ValueError(f"languages are {', '.join(languages())}")
    if command == "apply":
        if language is None or notebook is None or out is None:
            raise ValueError("apply needs LANGUAGE, IN and OUT")
        write_notebook(language, notebook, out)
        return 0
    status = 0
    codes = [language] if language else languages()
    for code in codes:
        if command == "update":
            update_files(code)
            continue
        problems, outdated = check(code)
        for line in [*problems, *(f"out of date: {text[:90]}" for text in outdated)]:
            print(line)
        print(f"{code}: {len(problems)} to mend, {len(outdated)} out of date")
        status |= bool(problems)
    return status


def update_files(language: str) -> None:
    """Write a language's catalogue and README; prints the translations that have no place left."""
    old = load(language)
    new = update(old, wanted())
    file = LANGUAGES / f"{language}.po"
    new.save(f"{file}.new")
    os.replace(f"{file}.new", file)  # all of it, or nothing
    (ROOT / f"README.{language}.md").write_text(readme(language), "utf-8")
    translations = {entry.msgstr for entry in new}
    for entry in old:
        if entry.msgstr not in translations:
            print(f"{language}: dropped {entry.msgid[:60]!r}: {entry.msgstr}")
