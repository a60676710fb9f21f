"""Other languages: a complete catalogue, true to the English, makes pages and notebooks."""

import functools
import re
import shutil

import nbformat
import polib
import pytest
from bs4 import BeautifulSoup

from blog import editions, page, prose
from tests.helpers import ROOT, in_view, offline_tab

NAMES = editions.NAMES
BOOKS = {script.stem: script.with_suffix(".ipynb") for script in editions.SCRIPTS}


@pytest.mark.parametrize("language", editions.languages())
def test_the_catalogue_is_complete_and_true(language):
    """What is out of date is listed and may land; what is missing or damaged may not."""
    problems, old = editions.check(language)
    print(*(f"{language}: out of date: {text[:100]}" for text in old), sep="\n")
    assert not problems


@pytest.mark.parametrize(
    ("english", "chinese", "fault"),
    [
        ("The `mask` hides it.", "掩码把它遮住。", "code"),
        ("A root $d_k$.", "根号 $d$。", "formulas"),
        ("See [Masks](#Masks).", "见[掩码](#Mask)。", "links"),
        ("Of {all} heads.", "头里的 {some} 个。", "places"),
        ("There are 64 heads.", "有 46 个头。", "numbers"),
        ("a | b", "甲，乙", "cells"),
        ("A Transformer.", "一个Transformer。", "Latin"),
        ("One, two.", "一,二。", "half-width"),
        ("Search", "搜<script>索", "tags"),
        ("A title", "一个\n\n# 题目", "line break"),
        ("A title", "# 题目", "beginning"),
        ("The encoder.", "译码的前一半。", "encoder"),
    ],
)
def test_a_fault_is_found(english, chinese, fault):
    assert any(
        fault in problem for problem in editions.faults(english, chinese, editions.terms("zh"))
    )


def test_what_is_missing_may_not_land_and_what_is_out_of_date_may(monkeypatch, tmp_path):
    shutil.copytree(editions.LANGUAGES, tmp_path / "languages")
    monkeypatch.setattr(editions, "LANGUAGES", tmp_path / "languages")
    catalogue = editions.load("zh")
    catalogue[-1].msgstr = ""
    catalogue[-2].flags.append("fuzzy")
    catalogue.save()
    problems, old = editions.check("zh")
    missing = f"not translated: {catalogue[-1].msgid[:90]}"
    assert any(problem.startswith(missing) for problem in problems)
    assert old[-1] == catalogue[-2].msgid  # there may be others
    assert editions.main("check", "zh") == 1


def test_a_changed_piece_keeps_its_translation_and_is_marked():
    old = polib.POFile()
    english = "The encoder reads the whole sentence at once."
    old.append(polib.POEntry(msgid=english, msgstr="编码器一次读完整个句子。"))
    old.append(polib.POEntry(msgid="Nothing like it is left.", msgstr="什么也没留下。"))
    shorter = (None, "The encoder reads the sentence at once.")
    texts = {shorter: "section · paragraph", (None, "New."): "x"}
    changed, new = editions.update(old, texts)
    assert changed.msgstr == "编码器一次读完整个句子。"
    assert "fuzzy" in changed.flags and not changed.translated()
    assert changed.previous_msgid == english and not new.msgstr
    # saved, read, and brought up to date once more
    again = editions.update(polib.pofile(str(editions.update(old, texts))), texts)
    assert again[0].fuzzy and again[0].previous_msgid == english
    # the English is what it was
    back = editions.update(again, {(None, old[0].msgid): "section · paragraph"})[0]
    assert back.msgstr == changed.msgstr and back.translated() and not back.previous_msgid


def test_a_number_that_its_rows_change_changes_in_the_translation_too():
    """Catches words that changed with it, and a number whose two places now differ."""
    old = polib.POFile()
    old.append(
        polib.POEntry(
            msgid="It always gains 1.4 BLEU, then 1.4.", msgstr="先得 1.4 分，再得 1.4 分。"
        )
    )
    (entry,) = editions.update(old, {(None, "It always gains 1.5 BLEU, then 1.5."): "x"})
    assert entry.msgstr == "先得 1.5 分，再得 1.5 分。" and not entry.fuzzy
    for changed in ("It always loses 1.5 BLEU, then 1.5.", "It always gains 1.5 BLEU, then 1.4."):
        assert editions.update(old, {(None, changed): "x"})[0].fuzzy


def test_pieces_put_together_again_are_the_text():
    """For every cell of both documents, as the page renders it."""

    assert editions.translate("# One\n\nTwo.\n", str) == "# One\n\nTwo.\n"

    def rendered(text: str) -> str:
        renderer = prose.MarkdownWithMath(renderer=prose.Prose(ROOT))
        prose.table_in_quote(renderer)
        return " ".join(prose.parse(renderer.render(text)).decode().split())

    for name in NAMES:
        for cell in nbformat.read(BOOKS[name], 4).cells:
            if cell.cell_type == "markdown":
                assert rendered(editions.translate(cell.source, str)) == rendered(cell.source)


@pytest.mark.parametrize("name", NAMES)
def test_the_translated_page_has_all_that_the_english_one_has(tree_of, name):
    english, chinese = tree_of(name), tree_of(name, "zh")
    assert chinese.html["lang"] == "zh" and english.html["lang"] == "en"

    def ids(tree):
        return [tag["id"] for tag in tree("h1") + tree("h2") + tree("h3") if tag.get("id")]

    assert ids(chinese) == ids(english)
    alike = ("a.cite", "a.equation-link", ".katex", "pre", "figure.chart", "table")
    for css in (*alike, "[data-road]", "main img"):
        assert len(chinese.select(css)) == len(english.select(css)), css
    # which a translation may mention more often
    assert len(chinese.select("a.term")) >= len(english.select("a.term"))

    def code(tree):
        return [pre.get_text() for pre in tree.select(".highlight pre")]

    def titled(text):
        return "# @title" not in text

    assert list(filter(titled, code(chinese))) == list(filter(titled, code(english)))
    paragraphs = chinese.select(".prose p:not(:has(code, a, .katex, svg))")
    prose = " ".join(paragraph.get_text() for paragraph in paragraphs)
    assert len(re.findall(f"[{editions.HAN}]", prose)) > 0.5 * len(re.sub(r"\s", "", prose))


@pytest.mark.parametrize("name", NAMES)
def test_links_of_a_translated_page_lead_somewhere(tree_of, name):
    tree = tree_of(name, "zh")
    ids_of = {f"{book}.html": {tag["id"] for tag in tree_of(book, "zh")(id=True)} for book in NAMES}
    ids_of[""] = ids_of[f"{name}.html"]
    for link in tree.select("a[href]"):
        target, _, anchor = link["href"].partition("#")
        # tests/test_one_screen.py looks at that page
        if not re.match(r"https?:|\.\./|one_screen", target):
            assert not anchor or anchor in ids_of[target], link["href"]
    assert tree.select_one("a.language")["href"] == f"../{name}.html"
    assert tree_of(name).select_one("a.language")["href"] == f"zh/{name}.html"
    # one folder up
    assert not [link for link in tree.select("a[href]") if link["href"].startswith("lab_notebook")]


def headings_of(notebook: nbformat.NotebookNode) -> set[str]:
    """Jupyter's names of a notebook's headings."""
    return {heading.replace("`", "").replace(" ", "-") for heading in editions.anchors(notebook)}


@functools.cache
def translated_headings() -> dict[str, set[str]]:
    """Those of each translated notebook."""
    books = {name: editions.translated(nbformat.read(BOOKS[name], 4), "zh") for name in NAMES}
    return {f"{name}.ipynb": headings_of(book) for name, book in books.items()}


@pytest.mark.parametrize("name", NAMES)
def test_the_translated_notebook_has_the_same_code_and_its_links_and_pictures_lead_somewhere(name):
    """To headings of translated notebooks; pictures are inside, the lab notebook two folders up."""
    english = nbformat.read(BOOKS[name], 4)
    chinese = editions.for_jupyter(english, "zh")
    nbformat.validate(chinese)
    headings = {"": headings_of(chinese)} | translated_headings()
    for ours, theirs in zip(chinese.cells, english.cells, strict=True):
        if ours.cell_type == "code":
            skip = 1 if ours.source.startswith(editions.TITLE) else 0
            assert ours.source.split("\n")[skip:] == theirs.source.split("\n")[skip:]
            continue
        for target in re.findall(rf"\]\(({editions.TARGET})\)", ours.source):
            file, _, heading = target.partition("#")
            if target.startswith("attachment:"):
                assert target.removeprefix("attachment:") in ours.attachments
            elif file.startswith("../../"):
                assert (ROOT / "build" / "zh" / file).resolve() == ROOT / "lab_notebook.ipynb"
            elif not file.startswith("http"):
                assert not heading or heading in headings[file], target
    books = (chinese, english)
    outputs = ([o for cell in book.cells for o in cell.get("outputs", [])] for book in books)
    for ours, theirs in zip(*outputs, strict=True):
        assert ours == theirs or "text/markdown" in theirs.get("data", {})


def test_a_second_language_is_a_catalogue_and_english_stands_where_it_has_nothing(
    monkeypatch, tmp_path
):
    """Ten pieces in German, and no line of code."""
    shutil.copytree(editions.LANGUAGES, tmp_path / "languages")
    monkeypatch.setattr(editions, "LANGUAGES", tmp_path / "languages")
    german = polib.POFile()
    german.metadata = {"Language": "de", "Language-Name": "Deutsch"}
    german.metadata["Content-Type"] = "text/plain; charset=UTF-8"
    texts = [text for context, text in editions.wanted() if context is None][:10]
    for number, text in enumerate(texts):
        german.append(polib.POEntry(msgid=text, msgstr=f"Absatz {number} auf Deutsch"))
    german.append(polib.POEntry(msgid="Search", msgstr="Suchen", msgctxt="page"))
    german.save(str(tmp_path / "languages" / "de.po"))
    name = "the_annotated_transformer"
    notebook = nbformat.read(BOOKS[name], 4)
    notebook.cells = notebook.cells[:12]
    tree = BeautifulSoup(page.make_page(notebook, name, ROOT, language="de"), "lxml")
    assert tree.html["lang"] == "de" and tree.find(id="search").get_text() == "Suchen"
    assert "Absatz 1 auf Deutsch" in tree.main.get_text()
    assert tree.select(".stale[lang=en]")
    assert {link["hreflang"] for link in tree.select("a.language")} == {"en", "zh"}
    assert tree.h1["id"] == "the-annotated-transformer"


def test_the_chinese_page_works_in_a_browser(browser, committed_page):
    """Search finds Chinese words, one character is enough, the switch leads to the same place."""
    tab, problems = offline_tab(browser, 390)
    committed_page("the_annotated_transformer")
    tab.goto(committed_page("the_annotated_transformer", "zh").as_uri())
    tab.wait_for_selector(".explorer.ready #step-readout:not(:empty)")
    assert "翻译" in tab.locator(".explorer button[type=submit]").first.inner_text()
    tab.locator("header #search").click()
    for query in ("残差流", "softmax 的", "BLEU分数", "头", "Transformer 模型", "注意力 掩码"):
        tab.locator("#query").fill(query)
        assert tab.locator("#results li").count() > 0, query
    tab.keyboard.press("Escape")
    panel = in_view(tab.locator(".sentence-panel[data-panel=masks]"))
    panel.locator("tbody td").first.wait_for()
    assert "斜线" in panel.inner_text()
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    section = tab.evaluate("document.querySelector('#toc [aria-current]').hash")
    tab.locator("a.language").click()
    tab.wait_for_url(lambda url: "/zh/" not in url)
    assert tab.url.endswith("the_annotated_transformer.html" + section) and len(section) > 1
    assert tab.evaluate("document.documentElement.lang") == "en" and not problems


def test_every_text_of_the_scripts_own_is_found():
    """Catches a text that stays English as it is neither one string nor a choice between two."""
    paths = sorted(editions.SOURCES.rglob("*.js"))
    assert len(paths) > 20
    for path in paths:
        for argument in re.findall(r"\b(?:say|told)\((.{0,80})", path.read_text("utf-8"), re.S):
            literal = re.match(r'\s*(?:"|\w+\s+\? ")', argument)
            quoted = re.search(r"[\"'`]", argument.split(")")[0].replace('""', ""))
            assert literal or not quoted, (path.name, argument)
