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
KEPT = "References"  # the items of its list are the same in every language
TARGET = r"(?:[^()\s]|\([^()\s]*\))+"  # of a link
COMMONMARK = MarkdownIt("commonmark")
HAN = "\u3400-\u9fff"
VERBATIM = r"\s*|\|?[-:| ]+\||</?details[^>]*>|```.*"  # a line that is not translated
# a line that is a piece
WHOLE = (
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


def pieces(source: str) -> Iterator[tuple[str, str, str]]:
    """The pieces of Markdown in order, each as one line, with what stands before and after it.

    A piece is "" where nothing is translated.
    """
    before, text, verbatim = "", [], False
    for line in [*source.split("\n"), ""]:
        quote, inner = re.fullmatch(r"((?:> ?)*)(.*)", line).groups()
        formula = inner.count("$$") % 2 == 1
        whole = None if verbatim else re.fullmatch(WHOLE, inner)
        item = re.match(r"- |\d+\. ", inner)
        untouched = inner.startswith("$$") or re.fullmatch(VERBATIM, inner)
        alone = verbatim or formula or whole or untouched
        if text and (alone or item):
            yield before, " ".join(text), "\n"
            text = []
        verbatim ^= formula or inner.startswith("```")
        if whole and not re.fullmatch(r"\|?[-:| ]+\|", inner):
            start, piece, end = [part for part in whole.groups() if part is not None]
            yield quote + start, piece, end + "\n"
        elif alone:
            yield line + "\n", "", ""
        elif item:
            before, text = quote + item[0], [inner[item.end() :]]
        elif text:
            text.append(inner.strip())
        else:
            before, text = quote, [inner.strip()]


def translate(source: str, word: Callable[[str], str]) -> str:
    """Markdown with `word` of each piece in its place; the items below the heading KEPT stay."""
    parts, kept = [], False
    for before, text, after in pieces(source):
        kept = text == KEPT if before.startswith("#") else kept
        stays = not text or (kept and before.lstrip("> ") == "- ")
        parts.append(before + (text if stays else word(text)) + after)
    return "".join(parts).removesuffix("\n")


def prose(cells: list[NotebookNode]) -> Iterator[tuple[str, str]]:
    """The pieces of a notebook's cells with a note for the translator: section and kind."""
    where = ""
    for cell in cells:
        if cell.cell_type == "code":
            if cell.source.startswith(TITLE):
                title = cell.source.partition("\n")[0].removeprefix(TITLE)
                yield title, f"{where} · title of a folded cell"
            for function in ast.parse(cell.source).body if "@example\n" in cell.source else []:
                if isinstance(function, ast.FunctionDef) and any(
                    ast.unparse(d) == "example" for d in function.decorator_list
                ):
                    for _, text, _ in pieces(ast.get_docstring(function, clean=False) or ""):
                        if text:
                            yield text, f"{where} · caption"
            continue
        for before, text, _ in pieces(cell.source):
            begin = before.lstrip("> ")[:1]
            if begin == "#":
                where = text
            if text and not (where == KEPT and begin == "-"):
                kind = {
                    "#": "heading", "!": "text of a picture", "<": "title of a note",
                    "|": "row of a table", "-": "item",
                }  # fmt: skip
                yield text, f"{where} · {kind.get(begin, 'paragraph')}"


def labelled(html: str, word: Callable[[str], str]) -> str:
    """A piece of HTML with `word` of each text in it, and of each attribute that is one."""
    tree = BeautifulSoup(html, "html.parser")
    for node in list(tree.descendants):
        if not isinstance(node, NavigableString):
            node.attrs |= {name: word(node[name]) for name in LABELS if name in node.attrs}
        elif node.parent.name not in ("style", "script") and re.search("[A-Za-z]{2}", node):
            node.replace_with(node.replace(node.strip(), word(node.strip())))
    return str(tree)


def own_words() -> Iterator[tuple[str, str]]:
    """The page's own texts, and the file of each."""
    text = r'"((?:[^"\\]|\\.)*)"'
    files = [*sorted(SOURCES.rglob("*.js")), *sorted((BLOG / "template").iterdir())]
    files += [BLOG / f"{room}.py" for room in ("page", "links", "times")]
    for path in files:
        source = path.read_text("utf-8")
        for found in re.finditer(rf"\b(?:say|told|_)\(\s*(?:\w+\s+\? {text}\s+: )?{text}", source):
            yield from ((json.loads(f'"{one}"'), path.name) for one in found.groups() if one)
    labels: list[str] = []
    labelled((FIGURE / "figure.html").read_text("utf-8"), lambda text: labels.append(text) or text)
    yield from ((text, "figure.html") for text in labels)
    for about in json.loads((FIGURE / "models.json").read_text("utf-8")).values():
        yield about["note"], "models.json"
        yield from ((one["teaches"], "models.json") for one in about.get("provocations", []))
    from practice.examine import TESTS
    from practice.mistakes import CATALOGUE, SLIPS

    known = CATALOGUE | SLIPS
    yield from ((known[name].effect, "mistakes.py") for name in mistakes_of_the_page())
    for mistake in (CATALOGUE[name] for name in mistakes_of_the_clinic()):
        yield from ((text, "mistakes.py") for text in (mistake.belief, mistake.effect))
    for test in (TESTS[name] for name in CLINIC_TESTS):
        yield from ((text, "examine.py") for text in (test.measured, test.means))


CLINIC_TESTS = (  # those that the page's clinic can make, of practice/examine.py
    "future", "past", "source", "source order", "target order", "first loss", "recomputed",
    "again", "without", "step", "entropy", "heart loss", "by heart", "swap", "fed back",
)  # fmt: skip


def mistakes_of_the_clinic() -> list[str]:
    """The mistakes that a patient on the page may have."""
    from practice.mistakes import CATALOGUE

    return [name for name, mistake in CATALOGUE.items() if mistake.page]


def mistakes_of_the_page() -> list[str]:
    """The mistakes that the page can name in what a reader writes there."""
    from practice.mistakes.plain import FUNCTIONS

    names = [name for function in FUNCTIONS.values() for name, _ in function.mistakes]
    return list(dict.fromkeys(names))


def first_screen() -> str:
    """What a visitor sees of the README first: up to its first commands."""
    text = re.sub(f"{SWITCH}|{QUOTED}", "", (ROOT / "README.md").read_text("utf-8"))
    return re.match(r"(?s).*?\n```.*?\n```\n", text)[0]


def readme(language: str) -> str:
    """The README's first screen in another language."""
    known = meanings(language)
    heading, text = translate(first_screen(), lambda text: known.get(text, text)).split("\n\n", 1)
    return f"{heading}\n\n[English](README.md)\n\n{text}"


# --- catalogues ---


def wanted() -> dict[tuple[str | None, str], str]:
    """What a catalogue has to contain, in order: context and English text -> a note."""
    entries: dict[tuple[str | None, str], str] = {}
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
    for text, note in own_words():
        entries.setdefault(("page", text), note)
    return entries


def load(language: str) -> polib.POFile:
    """A language's catalogue; `polib` itself would take seconds to find texts that it has twice."""
    catalogue = polib.pofile(str(LANGUAGES / f"{language}.po"), wrapwidth=110)
    seen = set()
    for key in ((entry.msgctxt, entry.msgid) for entry in catalogue):
        if key in seen:
            raise ValueError(f"{language}.po has a text twice: {key[1][:90]}")
        seen.add(key)
    return catalogue


def languages() -> list[str]:
    """The languages that have a catalogue."""
    return sorted(path.stem for path in LANGUAGES.glob("*.po"))


def closest(text: str, others: list[str]) -> str | None:
    """The most similar of some texts, if more than half is the same."""
    words = text.split()
    near: dict[str, float] = {}
    for other in others:
        matcher = difflib.SequenceMatcher(None, words, other.split(), autojunk=False)
        if matcher.real_quick_ratio() > 0.5 and matcher.quick_ratio() > 0.5:
            near[other] = matcher.ratio()
    best = max(near, key=near.__getitem__, default=None)
    return best if best is not None and near[best] > 0.5 else None


def renumbered(old: str, new: str, translation: str) -> str | None:
    """The translation of `old` with the numbers of `new`, if nothing else has changed in it."""
    if re.sub(DIGITS, "0", old) != re.sub(DIGITS, "0", new):
        return None
    numbers_before, numbers_after = (re.findall(DIGITS, text) for text in (old, new))
    pairs = dict(zip(numbers_before, numbers_after, strict=True))
    if [pairs[number] for number in numbers_before] != numbers_after:
        return None  # a number that stood for two is now two
    return re.sub(DIGITS, lambda number: pairs.get(number[0], number[0]), translation)


def update(catalogue: polib.POFile, texts: dict[tuple[str | None, str], str]) -> polib.POFile:
    """A catalogue with the pieces `texts`: translations stay, fuzzy if the English has changed."""
    entries = ((entry.msgctxt, entry.msgid, entry) for entry in catalogue)
    known: dict[tuple[str | None, str], polib.POEntry] = {(c, text): e for c, text, e in entries}
    gone = {key: entry for key, entry in known.items() if entry.msgstr and key not in texts}
    new = polib.POFile(wrapwidth=110)
    new.metadata, new.header = catalogue.metadata, catalogue.header
    for (context, text), note in texts.items():
        entry = polib.POEntry(msgid=text, msgctxt=context, comment=note)
        if same := known.get((context, text)):
            entry.msgstr, entry.flags, entry.tcomment = same.msgstr, same.flags, same.tcomment
            entry.previous_msgid = same.previous_msgid
        elif (other := closest(text, [one for where, one in gone if where == context])) is not None:
            old = gone.pop((context, other))
            entry.msgstr = old.msgstr
            # the English that this translates
            made_from = (old.fuzzy and old.previous_msgid) or other
            if new_numbers := renumbered(made_from, text, old.msgstr):
                entry.msgstr = new_numbers
            elif made_from != text:  # else the English is again what it was
                entry.previous_msgid, entry.flags = made_from, ["fuzzy"]
        new.append(entry)
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
    known = meanings(language)
    result = nbformat.from_dict(json.loads(json.dumps(notebook)))  # a copy

    def word(text: str) -> str:
        return known.get(text) or stale(text)

    for cell in result.cells:
        if cell.cell_type == "markdown":
            cell.source = translate(cell.source, word)
        elif cell.source.startswith(TITLE):
            title, line, rest = cell.source.removeprefix(TITLE).partition("\n")
            cell.source = TITLE + known.get(title, title) + line + rest
        for output in cell.get("outputs", []):
            if caption := re.fullmatch(CAPTION, output.get("data", {}).get("text/markdown", "")):
                output.data["text/markdown"] = caption[1] + translate(caption[2], word)
    return result


def names(english: NotebookNode, own: NotebookNode) -> dict[str, str]:
    """Jupyter's names of a notebook's headings in English, and those in another language."""
    both = (
        [re.sub(r"<[^>]+>|`", "", heading).replace(" ", "-") for heading in anchors(notebook)]
        for notebook in (english, own)
    )
    return dict(zip(*both, strict=True))


@functools.cache
def names_of_all(language: str) -> dict[str, dict[str, str]]:
    """The same of every notebook that is translated, by its file."""
    found = {}
    for path in (script.with_suffix(".ipynb") for script in SCRIPTS):
        book = nbformat.reads(path.read_text("utf-8"), 4)
        found[path.name] = names(book, translated(book, language))
    return found


def for_jupyter(notebook: NotebookNode, language: str) -> NotebookNode:
    """An executed notebook in another language, with its pictures in it.

    Links lead to the headings there, by Jupyter's names of them. All notebooks of a language stand
    in one folder, two below the English documents.
    """
    own = translated(notebook, language)
    there = {"": names(notebook, own)} | names_of_all(language)

    def lead(found: re.Match[str]) -> str:
        file, heading = found[1] or "", found[2] or ""
        if file not in there:
            return f"](../../{file}{'#' * bool(heading)}{heading})"
        return f"]({file}{'#' * bool(heading)}{there[file].get(heading, heading)})"

    link = rf"\]\((?:(?:\.\./|practice/)?(\w+\.ipynb))?(?:#({TARGET}))?\)"
    for cell in own.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(link, lead, cell.source)
            for picture in re.findall(r"\]\((images/[^()\s]+)\)", cell.source):
                name, kind = Path(picture).name, mimetypes.guess_type(picture)[0]
                data = base64.b64encode((ROOT / picture).read_bytes()).decode()
                cell.setdefault("attachments", {})[name] = {kind: data}
                cell.source = cell.source.replace(f"]({picture})", f"](attachment:{name})")
    return own


# --- what a program can see of a translation ---


def signature(text: str) -> dict[str, list[str]]:
    """What translation and source must share: code, formulas, links, places to fill in, tags."""
    code = re.findall(r"`[^`]+`", text)
    text = re.sub(r"`[^`]+`", " ", text)
    formulas = ["".join(found.split()) for found in re.findall(r"\$[^$]+\$", text)]
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
    """The digits of each number outside code, formulas and links, and those of its value.

    Its unit counts for the value: 4.5 million is `450 万`.
    """
    text = re.sub(rf"`[^`]+`|\$[^$]+\$|\]\({TARGET}\)", " ", text)
    for number, unit in re.findall(rf"(\d[\d,.]*(?<![,.]))(?: ({'|'.join(UNITS)}))?", text):
        digits = re.sub("[,.]", "", number)
        yield digits, f"{float(number.replace(',', '')) * UNITS[unit]:.0f}" if unit else digits


# what to find in the English, its name, and the words of which the translation needs one
Term = tuple[re.Pattern[str], str, list[str]]


def terms(language: str) -> list[Term]:
    """The checked terms, longest first."""
    file, found = LANGUAGES / f"{language}.tsv", []
    lines = file.read_text("utf-8").splitlines()[1:] if file.is_file() else []
    rows = [row for row in (line.split("\t") for line in lines) if row[3] == "yes"]
    for name, word, also, *_ in sorted(rows, key=lambda row: -len(row[0])):
        pattern = re.compile(rf"\b{re.escape(name)}s?\b", re.I)
        found.append((pattern, name, [word, *filter(None, also.split("|"))]))
    return found


def faults(source: str, translation: str, checked: list[Term]) -> list[str]:
    """What is wrong with a translation; `checked` are the language's `terms`."""
    found, ours, theirs = [], signature(translation), signature(source)
    for kind in ours:
        if ours[kind] != theirs[kind]:
            differing = sorted({*ours[kind]} ^ {*theirs[kind]}) or ours[kind]
            found.append(f"{kind} differ: {' '.join(differing)}")
    written = {whole for _, whole in numbers(translation)}
    if lost := [digits for digits, whole in numbers(source) if written.isdisjoint({digits, whole})]:
        found.append(f"numbers differ: {' '.join(sorted(lost))}")
    if re.search(r"[\n\r]", translation):
        found.append("a line break")
    if bool(re.match(MARK, translation)) > bool(re.match(MARK, source)):
        found.append("a mark of Markdown at the beginning")
    if source.count(" | ") != translation.count(" | "):
        found.append("another number of cells")
    bare = re.sub(rf"\]\({TARGET}\)", "", re.sub(r"`[^`]+`|\$[^$]+\$", "x", translation))
    sides = (re.sub(r"`[^`]+`|\$[^$]+\$", "x", text) for text in (source, translation))
    before, after = ("*" in COMMONMARK.render(text) for text in sides)
    if after and not before:  # in a line of code, one may stand for itself
        found.append("a * that marks nothing")
    if re.search(rf"[{HAN}][,;:?!]|[{HAN}][A-Za-z0-9]|[A-Za-z0-9%][{HAN}]", bare):
        found.append("half-width punctuation, or no space between Chinese and Latin letters")
    text = re.sub(r"`[^`]+`|\$[^$]+\$|\]\(\S+\)|\{\w+\}", " ", source)
    for pattern, name, words in checked:
        text, count = pattern.subn(" ", text)
        if count and not any(word.lower() in translation.lower() for word in words):
            found.append(f"{name}: none of {', '.join(words)}")
    return found


def check(language: str) -> tuple[list[str], list[str]]:
    """What must be mended in a catalogue, and what is out of date: the English changed since."""
    catalogue, texts, checked = load(language), wanted(), terms(language)
    # a set, in the catalogue's order
    ours = dict.fromkeys((entry.msgctxt, entry.msgid) for entry in catalogue)
    problems = [f"not in the catalogue: {key[1][:90]}" for key in texts if key not in ours]
    problems += [f"no longer in the text: {key[1][:90]}" for key in ours if key not in texts]
    if (ROOT / f"README.{language}.md").read_text("utf-8") != readme(language):
        problems.append(f"README.{language}.md is not what the catalogue makes")
    # `update` mends all of these; what follows needs a translator
    problems = [f"{problem} (python -m blog edition update)" for problem in problems]
    for entry in catalogue:
        if not entry.msgstr.strip():
            problems.append(f"not translated: {entry.msgid[:90]}")
        elif not entry.fuzzy:
            found = faults(entry.msgid, entry.msgstr, checked)
            problems += [f"{entry.msgid[:70]}: {fault}" for fault in found]
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
    for code in [language] if language else languages():
        if command == "update":
            old, file = load(code), LANGUAGES / f"{code}.po"
            new = update(old, wanted())
            new.save(f"{file}.new")
            os.replace(f"{file}.new", file)  # all of it, or nothing
            (ROOT / f"README.{code}.md").write_text(readme(code), "utf-8")
            kept = {entry.msgstr for entry in new}
            for entry in old:
                if entry.msgstr not in kept:
                    print(f"{code}: dropped {entry.msgid[:60]!r}: {entry.msgstr}")
            continue
        problems, outdated = check(code)
        for line in [*problems, *(f"out of date: {text[:90]}" for text in outdated)]:
            print(line)
        print(f"{code}: {len(problems)} to mend, {len(outdated)} out of date")
        status |= bool(problems)
    return status
