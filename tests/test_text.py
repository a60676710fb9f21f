"""The text: its words are British English or in words.txt, and its links work.

Code, formulas, addresses and names such as d_model are not words. A German example stands in
backticks, or in double quotes if it is longer than a word. Nothing is fetched.
"""

import ast
import functools
import io
import json
import os
import re
import subprocess
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import nbformat
import pytest
from bs4 import BeautifulSoup

from blog import notebook, prose, style

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "the_annotated_transformer.py"
NOTEBOOKS = [DOCUMENT, ROOT / "since_2017.py", ROOT / "lab_notebook.py", ROOT / "exercises.py"]
NOTEBOOKS += [ROOT / "practice/clinic.py"]
MARKDOWN = ["README.md", "CONTRIBUTING.md", "TEACHING.md", "CHANGELOG.md"]
MARKDOWN = [ROOT / name for name in (*MARKDOWN, "benchmarks/results/LOG.md")]
FOLDERS = [ROOT / name for name in ("models", "recipes", "translator")]
MARKDOWN += sorted(path for folder in FOLDERS for path in folder.rglob("README.md"))
FOLDERS = [ROOT / name for name in ("blog", "translator", "benchmarks")]
PYTHON = [*NOTEBOOKS, ROOT / "one_screen.py"]
PYTHON += sorted(path for folder in FOLDERS for path in folder.glob("*.py"))
PYTHON += sorted((ROOT / "tests").rglob("*.py"))
WORDS = ROOT / "tests" / "words.txt"
# does not know `optimize` or `color`
DICTIONARY = ROOT / "blog/node_modules/@cspell/dict-en-gb-ise/en_GB.trie.gz"
LOOK_UP = """
import { readFileSync } from "fs";
import { gunzipSync } from "zlib";
import { decodeTrie } from "cspell-trie-lib";
const trie = decodeTrie(gunzipSync(readFileSync(process.argv[1])));
const known = (word) => trie.hasWord(word, true) || trie.hasWord(word.replace("'", "’"), true);
process.stdout.write(JSON.stringify(JSON.parse(readFileSync(0, "utf8")).filter(known)));
"""
NOT_PROSE = [
    r"(?ms)^[> ]*(?P<fence>```+|~~~+).*?^[> ]*(?P=fence)[ ]*$",
    r"(?s)<!--.*?-->|<(?P<tag>style|script|svg)\b.*?</(?P=tag)>",
    r"(?s)## References\n.*?(?=\n#+ |\Z)",  # names, and titles in their authors' spelling
    r"(?s)(?<!`)(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)\w*",
    r"(?s)\$\$.*?\$\$|\\begin\{(?P<name>\w+\*?)\}.*?\\end\{(?P=name)\}",
    r"(?<![\\\w])\$[^$\n]+(?:\n[^$\n]+)?\$",  # a formula may continue on the next line
    r"(?s)</?[a-zA-Z][^<>]*>",
    r"(?<=\])\((?:[^()\s]|\([^()\s]*\))*\)",  # the target of a link
    r"\bhttps?://[^\s<>\"]+",
]
NAMES = [
    r"\b(?:noqa|fmt|type|pragma): .*",
    r"(?m)^ +Args:$|^ {8}\w+:(?= )",  # what the command line reads in a docstring
    r"(?<![\w-])--?[a-z][\w-]*|(?<!\w)\.\w+",  # --option, .gz
    r"\w+(?:[.:]\w+)+|\w+(?:\(\)|\[\S*|=\S*)",  # alt.Color, hf:NAME, close(), row[0], dim=0
    r"\w*(?:_|\d)\w*",
]
WORD = r"[^\W\d_⁰-₟¹²³]+(?:['’][^\W\d_]+)*"
QUOTED = r'"[^"]*"|“[^”]*”|„[^“”]*[“”]|»[^«]*«'
HOST = r"(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}"
PLACE = r"(?:[\w\-.~:/?#@!$&'()*+,;=]|%[0-9A-Fa-f]{2})*"
ADDRESS = f"https://{HOST}(?:[/?#]{PLACE})?"


def blank(text: str, patterns: Iterable[str]) -> str:
    """The text with spaces in place of each match; line breaks stay."""
    for pattern in patterns:
        text = re.sub(pattern, lambda found: re.sub(r"[^\n]", " ", found[0]), text)
    return text


def comments(source: str) -> Iterator[tuple[int, str]]:
    """A Python file's blocks of comments and Markdown cells, each with its first line's number."""
    blocks: list[tuple[int, int, list[str]]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            if not blocks or blocks[-1][:2] != (line - len(blocks[-1][2]), column):
                blocks.append((line, column, []))
            blocks[-1][2].append(token.string.removeprefix("#").removeprefix(" "))
    for line, _, lines in blocks:
        if not lines[0].startswith(("---", "!", '%% tags=["active-ipynb"]')):  # these are code
            yield line, "\n".join(["" if lines[0].startswith("%%") else lines[0], *lines[1:]])


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a Python file, each with the number of its first line."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, kinds) and (text := ast.get_docstring(node, clean=False)):
            yield node.body[0].lineno, text


def all_text() -> list[tuple[str, int, str]]:
    """All our prose: each text's file, first line's number, and text, all else blanked out."""
    texts = [(path, 1, path.read_text("utf-8")) for path in MARKDOWN]
    for path in PYTHON:
        source = path.read_text("utf-8")
        texts += [(path, line, text) for of in (comments, docstrings) for line, text in of(source)]
    names = NOT_PROSE + NAMES
    return [(str(path.relative_to(ROOT)), line, blank(text, names)) for path, line, text in texts]


def words_of(text: str) -> list[str]:
    return [word.replace("’", "'") for word in re.findall(WORD, text)]


def forms(word: str) -> list[str]:
    """A word and its possible bases: small letters, without 's, without a plural s of capitals."""
    stems = [word, *re.findall(r"^(.+)'s?$", word), *re.findall(r"^([A-Z]{2,})s$", word)]
    alike = [stem for stem in stems if stem[1:] in (stem[1:].lower(), stem[1:].upper())]
    return stems + [stem.lower() for stem in alike]


def look_up(words: set[str]) -> set[str]:
    """The words in the dictionary; without it `make test` fails, and other calls skip the test."""
    try:
        if not DICTIONARY.is_file():
            raise FileNotFoundError(DICTIONARY)
        options = {"stdout": subprocess.PIPE, "text": True, "encoding": "utf-8", "check": True}
        options |= {"cwd": ROOT / "blog", "input": json.dumps(sorted(words))}
        command = ["--input-type=module", "-e", LOOK_UP, str(DICTIONARY)]
        return set(json.loads(style.run_node(*command, **options).stdout))
    except FileNotFoundError as error:
        missing = f"{error}: spelling needs node and a dictionary: "
        missing += "`make setup`, or `npm ci --prefix blog`"
        (pytest.fail if os.environ.get("ANNOTATED_TESTS") == "all" else pytest.skip)(missing)


@functools.cache
def names_in_code() -> set[str]:
    """Names in our code with capitals inside, such as LayerNorm and EOS."""
    texts = [io.StringIO(path.read_text("utf-8")) for path in PYTHON]
    tokens = (t for text in texts for t in tokenize.generate_tokens(text.readline))
    return {t.string for t in tokens if t.type == tokenize.NAME and re.search(r"\w[A-Z]", t.string)}


def misspelt(texts: list[tuple[str, int, str]]) -> list[str]:
    """The unknown words of the texts, each with its place."""
    words = {word for _, _, text in texts for word in words_of(text)}
    correct = look_up({form for word in words for form in forms(word)}) | names_in_code()
    # names and terms that the dictionary does not know
    correct |= {*WORDS.read_text("utf-8").splitlines()}
    unknown = {word for word in words if correct.isdisjoint(forms(word))}

    def foreign(match: re.Match[str]) -> str:
        inside = words_of(match[0])
        passage = len(inside) > 1 and 2 * sum(word in unknown for word in inside) >= len(inside)
        return blank(match[0], [r"[^\n]+"]) if passage else match[0]

    return [
        f"{file}:{number}: {word}"
        for file, start, text in texts
        for number, line in enumerate(re.sub(QUOTED, foreign, text).split("\n"), start)
        for word in words_of(line)
        if word in unknown
    ]


def goal_of(target: str, file: Path, html: BeautifulSoup) -> str:
    """What is wrong with the target of a link in a file, or nothing."""
    if target.startswith("data:"):
        return ""
    if urlsplit(target).scheme or target.startswith("//"):
        sound = re.fullmatch(ADDRESS, target) and target[-1] not in ".,;:"
        return "" if sound else "no sound https address"
    path, _, fragment = target.partition("#")
    # a page is made from it, as from a notebook
    path = "one_screen.py" if path == "one_screen.html" else re.sub(r"\.html$", ".ipynb", path)
    goal = (file.parent / unquote(path)).resolve() if path else file
    # their pages are in one folder
    books = {book.stem: book.with_suffix(".ipynb") for book in NOTEBOOKS}
    goal = books.get(goal.stem, goal) if path.endswith(".ipynb") else goal
    if not goal.exists() or not goal.is_relative_to(ROOT):
        return "no such file"
    headings = anchors_of(goal) if path else anchors(file, html)
    return "" if "#" not in target or unquote(fragment) in headings else "no such heading"


def test_every_word_is_spelt_as_in_britain():
    advice = "Mend the spelling; put code into backticks; "
    advice += "a name or a term of the field goes into tests/words.txt."
    mistakes = misspelt(all_text())
    assert not mistakes, "\n".join(["not in the dictionary:", *mistakes, advice])


def test_spelling_sees_what_it_should():
    text = 'The `color` of alt.Color is "ein Hund läuft", $color$\n'
    text += "and its color optimized: the model isn’t colourful."
    assert misspelt([("a", 1, blank(text, NOT_PROSE + NAMES))]) == ["a:2: color", "a:2: optimized"]
    assert [text for _, text in comments("# a\n# b\nx = 1  # c\n")] == ["a\nb", "c"]


def render(cells: list[str], folder: Path) -> BeautifulSoup:
    """The Markdown of cells as the page's HTML, with its pictures and heading ids."""
    cells = [nbformat.v4.new_markdown_cell(text) for text in cells]
    prose.render_prose(nbformat.v4.new_notebook(cells=cells), prose.Prose(folder))
    return BeautifulSoup("\n".join(cell.source for cell in cells), "html.parser")


@functools.cache
def markdown_cells(script: Path) -> list[str]:
    """The Markdown cells of a notebook's script that go into its page."""
    cells = notebook.build(script.read_text("utf-8")).cells
    visible = [cell for cell in cells if "active-ipynb" not in cell.metadata.get("tags", [])]
    return [cell.source for cell in visible if cell.cell_type == "markdown"]


@functools.cache
def anchors_of(file: Path) -> set[str]:
    """The possible targets of a # in a file that is there."""
    if file.with_suffix(".py") in NOTEBOOKS:
        return anchors(file, render(markdown_cells(file.with_suffix(".py")), ROOT))
    if file.suffix not in (".py", ".md"):
        return set()
    return anchors(file, render([file.read_text("utf-8")], file.parent))


def anchors(file: Path, html: BeautifulSoup) -> set[str]:
    """The targets of a # in a file that becomes `html`: a notebook's ids, or those of GitHub."""
    if file.with_suffix(".py") in NOTEBOOKS:
        return prose.OWN_IDS | {tag["id"] for tag in html.find_all(id=True)}
    slugs = []
    targets = set()
    for heading in html.find_all(re.compile(r"^h[1-6]$")):
        title = heading.get_text().removesuffix("#").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        targets.add(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
        slugs.append(slug)
    return targets


def broken(html: BeautifulSoup, file: Path) -> list[str]:
    """The errors in the links and pictures of a text."""
    errors = []
    for tag in html.find_all(["a", "img"]):
        pictures = " ".join(inside.get("alt", "") for inside in tag.find_all("img"))
        words = tag.get_text().strip() or pictures.strip()
        target = tag.get("href", tag.get("src"))
        if target is None:
            continue  # <a id="...">
        if tag.name == "a" and not words and not tag.find(attrs={"aria-label": True}):
            errors.append(f"no text: {target}")
        if error := goal_of(target, file, html):
            errors.append(f"{error}: [{words}]({target})")
    for text in html.find_all(string=True):
        if text.find_parent(["code", "pre", "script", "style", "svg"]) is None:
            errors += [f"not a link: {odd}" for odd in re.findall(r"\S*\](?:\(|\[)\S*", text)]
    return errors


ALL = [*NOTEBOOKS, *MARKDOWN]


@pytest.mark.parametrize("file", ALL, ids=lambda file: str(file.relative_to(ROOT)))
def test_links_lead_somewhere(file):
    """A missing picture raises the page's own error."""
    texts = markdown_cells(file) if file in NOTEBOOKS else [file.read_text("utf-8")]
    html = render(texts, file.parent)
    errors = broken(html, file)
    assert not errors, "\n".join(errors)


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_folded_ends_in_its_cell(file):
    """Catches a fold that is never closed, and would take the next section with it."""
    for cell in markdown_cells(file):
        opened = [tag == "<details" for tag in re.findall(r"</?details\b", cell)]
        assert opened == [True, False] * (len(opened) // 2), cell[:200]


def test_the_document_stays_short():
    """Ceilings for the script, and for the words that aren't folded, without the appendix."""
    text = "\n".join(markdown_cells(DOCUMENT)).partition("\n# Appendix")[0]
    seen = re.sub(r"(?s)<details.*?</details>|!\[.*?\]\(.*?\)", "", text)
    assert 10_000 < sum(bool(re.search(r"\w", word)) for word in seen.split()) < 13_100
    assert len(DOCUMENT.read_text("utf-8").splitlines()) < 5_200


def test_links_that_lead_nowhere_are_seen():
    for text in (
        "[a](nowhere.md)", "[a](#nowhere)", "[a](README.md#nowhere)", "[](README.md)",
        "[a](http://arxiv.org/)", "[a][b]", "[a](https://arxiv/abs)",
        "[a](https://arxiv.org/abs/1.)", '<a href="nowhere.md">a</a>',
        '<img src="nowhere.png">', "[a](../a)", "[a] (README.md) [a](READ ME.md)",
    ):  # fmt: skip
        assert broken(render(["# Terms", text], ROOT), ROOT / "README.md"), text
    with pytest.raises(prose.PageError, match="no picture"):
        render(["![a](images/nowhere.svg)"], ROOT)
    good = "# Some `terms`\n[a](#some-terms) [b](README.md#how-it-compares) [c](blog/page.py) "
    good += "[d](https://arxiv.org/abs/1706.03762#S3)"
    html = render([good, "`[a](b)` $a[b](c)$ ![](https://a.org/b.svg)"], ROOT)
    assert not broken(html, ROOT / "README.md")


@pytest.mark.parametrize("name", ["the_annotated_transformer", "since_2017", "lab_notebook"])
def test_no_example_of_a_committed_notebook_is_without_its_output(name):
    """Catches a cell that was changed and not executed again."""
    cells = json.loads((ROOT / f"{name}.ipynb").read_text("utf-8"))["cells"]
    examples = [cell for cell in cells if "@example\n" in cell["source"]]
    assert len(examples) > 5 and all(cell["outputs"] for cell in examples)
