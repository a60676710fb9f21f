"""The web page of the committed notebook, in a real browser without a network."""

import functools
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from bs4 import BeautifulSoup

import the_annotated_transformer as tat
from blog import charts
from blog.page import SENTENCE
from blog.prose import HEADINGS, anchor_name
from blog.times import contents, minutes
from practice.mistakes import CATALOGUE
from tests.helpers import ROOT, in_view, node, offline_tab, wait_for

# the sentences of the live figures that are awake
FIGURES = "[...document.querySelectorAll('.explorer > div')]"
FOLLOWED = f"{FIGURES}.map((figure) => figure.explored.sentence())"
AXE = ROOT / "blog" / "node_modules" / "axe-core" / "axe.min.js"
# works that the text names without a year, in code, in a link of its own, or in the rows of a
# table that a cell prints
NOT_LINKED = {"gehring-2017", "kaiser-2016", "kalchbrenner-2017", "sukhbaatar-2015", "vaswani-2017"}
NOT_LINKED |= {"huang-2009", "mcclosky-2006", "vinyals-2014", "zhou-2016", "zhu-2013"}


@pytest.mark.parametrize(
    ("html", "parts"),
    [
        ("<h1>T<h1>A<h2>B<h2>C<h1>D", {"A": ["B", "C"], "D": []}),
        ("<h1>T<h2>A<h3>B<h2>C", {"A": ["B"], "C": []}),
    ],
)
def test_a_part_of_the_contents_begins_at_each_of_the_highest_headings(html, parts):
    """Catches, on a page that has sections alone, a first one that swallows the others."""
    source = re.sub(r"<(h.)>(.)", r"<\1 id=\2>\2</\1>", html)
    entries = contents(BeautifulSoup(source, "html.parser").find_all(True))
    assert {entry["text"]: [s["text"] for s in entry["sections"]] for entry in entries} == parts


@pytest.fixture(scope="module")
def page(committed_page) -> Path:
    return committed_page("the_annotated_transformer")


def visit(page, browser, width: int, **options) -> tuple:
    """A tab in which the page has woken, and the list of its errors and requests."""
    tab, problems = offline_tab(browser, width, reduced_motion="reduce", **options)
    tab.goto(page.as_uri(), wait_until="domcontentloaded")
    reach(tab, ".explorer")
    tab.wait_for_selector(".explorer.ready #step-readout:not(:empty)")
    return tab, problems


@pytest.fixture(scope="module")
def tab_of_width(page, browser) -> Callable:
    """Opens a window of some width once; its tab is used by one test after the other."""
    return functools.cache(functools.partial(visit, page, browser))


@pytest.fixture
def shared_page(tab_of_width) -> Iterator:
    """Opens the page in a tab of some width, which is reused; no error, no request is allowed."""
    visits = []

    def opens(width: int = 1440):
        tab, problems = tab_of_width(width)
        visits.append((tab, problems))
        tab.keyboard.press("Escape")  # the walk, if it is open
        tab.set_viewport_size({"width": width, "height": 900})
        tab.evaluate("scrollTo(0, 0)")
        return tab

    yield opens
    all_problems = [problem for _, problems in visits for problem in problems]
    for tab, problems in visits:
        problems.clear()  # the next test has its own
        tab.evaluate("sentence => Page.yourSentence.follow(sentence)", SENTENCE)
        is_first = f"(sentence) => sentence === {json.dumps(SENTENCE)}"
        tab.wait_for_function(f"{FOLLOWED}.every({is_first})")
    assert not all_problems


def reach(tab, selector: str):
    """The first element that matches, in view."""
    return in_view(tab.locator(selector).first)


def test_the_live_figure_translates(shared_page):
    """In the document's first screen and again in Part 6, with one model for both."""
    tab = shared_page()
    first = tab.locator(".explorer").first
    first.locator("#text").fill("Ein Mann hebt einen Hund auf.")
    first.locator("text=Translate").click()
    first.locator("#target", has_text="dog").wait_for()
    for later in ("#heat", "#search", "#sure"):  # Part 4 has them
        assert not first.locator(later).is_visible()
    first.locator("#text").fill("Wie heißt du?")
    second = reach(tab, ".explorer[data-number='2']")
    second.locator("#underlined").wait_for()
    second.locator("#heat").wait_for()
    second.locator("#zero-label").wait_for(state="hidden")  # until a head is chosen
    second.locator("#head").select_option("1")
    assert second.locator("#zero").is_visible()


def test_one_click_changes_the_translation(shared_page):
    """A German word, with its English below it, is hidden; the words that changed are marked."""
    tab = shared_page()
    first = tab.locator(".explorer").first
    word = first.locator("#source button", has_text="Frauen")
    assert "women" in word.inner_text() and not first.locator("#target .later").count()
    switches = first.locator("#switches")
    place = switches.bounding_box()
    step = first.locator("#target .now").inner_text()
    word.click()
    first.locator("#target .changed", has_text="men").wait_for()
    word.hover()  # what nobody sees looks at nobody
    assert f"“{step}”" in first.locator("#shades").inner_text()
    assert "Before: Two women" in first.locator("#compared").inner_text()
    assert first.locator("#target .now").inner_text() == step
    first.locator("#compared button").click()
    for name in ("cross", "decoder"):  # and so does each switch of the first screen
        first.locator(f"[name={name}]").uncheck()
        first.locator("#target .changed").first.wait_for()
        assert switches.bounding_box() == place
        reach(tab, ".road-next")
        first.locator("#compared").wait_for(state="hidden")  # nothing follows the reader down
        tab.evaluate("scrollTo(0, 0)")


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_moves_while_the_page_loads(shared_page, width):
    tab = shared_page(width)
    tab.reload()
    tab.wait_for_selector(".explorer.ready #step-readout:not(:empty)")
    shift = tab.evaluate("""() => new Promise((tell) => {
        const sum = (list) => list.getEntries().reduce((total, { value }) => total + value, 0);
        const observer = new PerformanceObserver((list) => tell(sum(list)));
        observer.observe({ type: "layout-shift", buffered: true });
        setTimeout(() => tell(0), 1000);
    })""")
    assert shift < 0.05


def test_what_is_far_from_the_window_waits_and_keeps_its_height(shared_page):
    """Another theme styles what is near; a link into what waits lands at its heading."""
    tab = shared_page()
    share = """() => {
        const elements = [...document.querySelectorAll("main *")];
        const seen = elements.filter((e) => e.checkVisibility({ contentVisibilityAuto: true }));
        return seen.length / elements.length;
    }"""
    headings = [
        "the-decoder-writes-sections-3-1-and-3-2-3",
        "tokens-and-ids",
        "beam-search-section-6-1",
    ]
    top = "id => document.getElementById(id).getBoundingClientRect().top"
    anchoring = "value => { document.documentElement.style.overflowAnchor = value }"
    tab.evaluate(anchoring, "none")  # as in Safari
    for width in (1440, 500):
        tab.set_viewport_size({"width": width, "height": 900})
        tab.wait_for_timeout(500)
        tab.wait_for_selector("main.laid-out")
        if width == 500:  # the reader sees what he saw
            assert tab.evaluate(top, headings[-1]) == pytest.approx(164, abs=80)
        places = f"ids => ids.map(id => scrollY + ({top})(id))"
        kept = tab.evaluate(places, headings)
        tab.evaluate("document.querySelector('main').classList.remove('laid-out')")
        assert kept == pytest.approx(tab.evaluate(places, headings), abs=5)
        tab.evaluate("document.querySelector('main').classList.add('laid-out')")
        for heading in headings:
            tab.evaluate("id => { location.hash = id }", heading)
            tab.wait_for_timeout(500)
            assert tab.evaluate(top, heading) == pytest.approx(64, abs=8)
            assert tab.locator("#toc a[aria-current]").get_attribute("href") == f"#{heading}"
            assert tab.evaluate(share) < 0.2
        tab.evaluate("scrollBy(0, -100)")
        tab.wait_for_timeout(300)
    tab.evaluate(anchoring, "")
    tab.emulate_media(media="print")
    assert tab.evaluate(share) > 0.4
    tab.emulate_media(media="screen")


def test_what_the_text_tries_is_done_in_the_page(shared_page):
    """A call of `translate` in the text is a button; switches and sentence are the page's."""
    tab = shared_page()
    bar = tab.locator("#your-sentence")
    reach(tab, "button.call:has-text('positions=False')").click()
    # as the answer in the text has it
    bar.locator("output", has_text="A man chases a dog.").wait_for()
    assert not bar.locator("[name=positions]").is_checked()
    figure = tab.locator(".explorer > div").first
    positions = "figure => figure.explored.result && figure.explored.state.switches.positions"
    assert figure.evaluate(positions) is False
    bar.locator("[name=positions]").check()
    bar.locator("output", has_text="A dog chases a man.").wait_for()
    assert figure.evaluate(positions) is True


def walk(tab) -> None:
    """Open the walk, which waits for the model."""
    tab.locator("#walk").click()
    tab.locator(".walk[open]").wait_for()


def test_nothing_is_wider_than_the_screen(shared_page):
    tab = shared_page(390)
    top = tab.evaluate("document.querySelector('.explorer').getBoundingClientRect().top + scrollY")
    assert top < 560  # the live figure is on a phone's first screen
    scale = """[...document.querySelectorAll('.picture:not(.here) svg')]
        .map((svg) => svg.clientWidth / svg.viewBox.baseVal.width)"""
    # letters of 14 pixels have nine at least: a wide drawing scrolls
    assert min(tab.evaluate(scale)) > 0.64
    reach(tab, ".explorer[data-number='2']")
    tab.wait_for_function("document.querySelectorAll('.explorer.ready').length === 2")
    for width in (320, 390, 820, 1440):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        walk(tab)
        right_edge = "document.querySelector('.walk').getBoundingClientRect().right"
        assert tab.evaluate(right_edge) <= width
        for _ in range(8 * (width == 390)):  # to the answer of the fourth stop, which is long
            buttons = tab.locator(".walk-buttons").bounding_box()
            assert buttons["y"] + buttons["height"] < 900
            tab.locator("text=/next ▶|answer ▶/").click()
        tab.keyboard.press("Escape")


def test_the_contents_close_and_give_the_focus_back(shared_page):
    tab = shared_page(390)
    for close in (lambda: tab.keyboard.press("Escape"), lambda: tab.mouse.click(380, 800)):
        tab.locator("#contents").click()
        tab.locator("#toc a").nth(2).focus()
        close()
        tab.locator("#toc").wait_for(state="hidden")
        assert tab.locator("#contents").get_attribute("aria-expanded") == "false"
    tab.locator("#contents").click()
    tab.keyboard.press("Escape")
    assert tab.evaluate("document.activeElement.id") == "contents"


def test_a_chart_is_drawn_in_both_themes_and_once_more_for_a_phone():
    """No two drawings share an id, by which a colour of the other one would be found."""
    rows = [{"step": x, "loss": x * y, "model": y} for x in range(3) for y in (1, 2)]
    whole, narrow = charts.drawings(tat.curves(rows, "step", "loss", "model").to_dict(), 600)
    assert "light-dark(#" in whole
    assert float(re.search(r' width="([\d.]+)', narrow)[1]) < 400
    letters = [*"abcdefghij"]
    maps = [tat.heatmap(torch.eye(10) * n, letters, letters).to_dict() for n in (1, 2)]
    ids = [set(re.findall(r' id="([^"]+)"', charts.drawing(spec))) for spec in maps]
    assert all(ids) and not ids[0] & ids[1]


def test_a_map_is_drawn_shade_by_shade_and_says_what_each_cell_is(shared_page):
    letters = [*"abcdefghij"]
    weights = torch.arange(100.0).view(10, 10) / 100
    drawn = charts.drawing(tat.heatmap(weights, letters, letters).to_dict())
    columns, labels = re.search(r'data-columns="(\d+)" data-labels="([^"]*)"', drawn).groups()
    assert columns == "10"
    assert labels.split("\n")[12] == "key: 2 c; query: 1 b; weight: 0.12"
    cells = re.findall(r"M([\d.]+),([\d.]+)h18v18", drawn)
    assert len({*cells}) == len(labels.split("\n")) == 100
    assert drawn.count('<path fill="') < 60
    tab = shared_page()
    drawn_map = reach(tab, ".chart").locator("[data-labels]")
    drawn_map.wait_for()
    labels = drawn_map.get_attribute("data-labels").split("\n")
    columns = int(drawn_map.get_attribute("data-columns"))
    box = drawn_map.bounding_box()
    cell = box["width"] / columns
    for row, column in ((0, 0), (3, 5), (3, 6)):
        tab.mouse.move(box["x"] + (column + 0.5) * cell, box["y"] + (row + 0.5) * cell)
        assert drawn_map.locator("title").text_content() == labels[row * columns + column]


def test_the_walk_has_ten_stops_with_numbers_of_the_model(shared_page):
    """At each a question, then numbers; it marks a part of the figure and names a section."""
    tab = shared_page()
    walk(tab)
    titles = []
    marks = set()
    for _ in range(10):
        titles.append(tab.locator("#walk-title").inner_text())
        marks.add(tuple(tab.locator(".walk-mark").get_attribute(name) for name in ("x", "y")))
        section = tab.locator(".walk-side a").get_attribute("href")
        explanation = tab.locator(".walk-text > div:last-child")
        assert tab.locator(section).count() == 1
        assert not explanation.inner_text()  # not before the answer
        if len(titles) % 2:
            tab.locator(".walk-answers button").first.click()
        else:
            tab.locator("text=answer ▶").click()
        assert tab.locator(".walk-answers .right").count() == 1
        assert any(c.isdigit() for c in explanation.inner_text())
        if len(titles) < 10:
            tab.keyboard.press("ArrowRight")
    assert [title.split(".")[0] for title in titles] == [str(n) for n in range(1, 11)]
    assert len(marks) == 10
    translation = "document.querySelector('.explorer > div').explored.result.translation"
    assert tab.evaluate(translation) in explanation.inner_text()
    tab.locator("text=◀ back").click()
    tab.mouse.click(4, 450)  # outside; nothing there is pressed
    assert not tab.locator("#walk-title").is_visible()
    walk(tab)  # goes on where it was left
    assert tab.locator("#walk-title").inner_text() == titles[8]
    tab.locator(".walk-part[data-part=memory]").click()
    tab.locator(".walk-side a").click()
    tab.locator("#walk-home").click()  # from the section back to where one was
    tab.locator(".walk[open]").wait_for()
    assert tab.locator("#walk-title").inner_text() == titles[6]
    tab.locator(".walk-part[data-part=softmax]").click()
    tab.locator("text=start reading ▶").click()
    assert not tab.locator("#walk-title").is_visible()
    assert tab.url.endswith(tab.locator("#road").get_attribute("href"))


# the code and the formulas whose colours others have, for a checker that looks at every element
TAKE_OUT = """() => {
    const seen = new Set();
    window.taken_out ??= [];
    for (const part of document.querySelectorAll(".highlight pre, .katex")) {
        const around = part.parentElement.closest(
            "p, li, td, th, h1, h2, h3, figcaption, summary, a, em, strong");
        const names = [...part.querySelectorAll("[class]")].map((tag) => tag.className);
        const box = around?.closest("blockquote, details, table");
        const place = [around, box].map((tag) => tag?.localName + tag?.className);
        const kinds = part.matches("pre") ? names : [place.join()];
        if (kinds.every((kind) => seen.has(kind))) {
            taken_out.push([document.createComment(""), part]);
            part.replaceWith(taken_out.at(-1)[0]);
        }
        kinds.forEach((kind) => seen.add(kind));
    }
}"""


def test_the_page_is_accessible(shared_page):
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci --prefix blog")
    tab = shared_page()
    learning(tab)
    # of another test's sentence: pale
    stale = "document.querySelector('.panel-body[aria-busy=true]:not(:empty)')"
    scrolled = f"() => {{ const panel = {stale}; panel?.scrollIntoView(); return !panel; }}"
    tab.wait_for_function(scrolled, polling=100)
    for frame in tab.frames:
        frame.evaluate(AXE.read_text("utf-8"))
    quick = "{iframes: false, resultTypes: ['violations']}"  # a frame is asked by itself
    # in the dark; all other rules do not depend on the theme
    for rules in ("{}", "{runOnly: ['color-contrast']}"):
        run = f"axe.run(document, {{...{rules}, ...{quick}}}).then((result) => result.violations)"
        violations = [violation for frame in tab.frames for violation in frame.evaluate(run)]
        grave = [v for v in violations if v["impact"] in ("serious", "critical")]
        assert not [(v["id"], len(v["nodes"]), v["nodes"][0]["html"][:150]) for v in grave]
        tab.locator("#theme").click()
        tab.evaluate(TAKE_OUT)
    tab.evaluate("""() => {
        for (const [place, part] of taken_out.reverse()) place.replaceWith(part);
        delete document.documentElement.dataset.theme;
        localStorage.removeItem("theme");
    }""")


def test_search_finds_words_in_the_text(shared_page):
    """By button or by the key "/"; a result leads to its section."""
    tab = shared_page(390)
    tab.keyboard.press("/")
    tab.keyboard.type("teacher forcing")
    assert "Batches and the shift" in tab.locator("#results a").first.inner_text()
    tab.keyboard.press("Enter")
    assert not tab.locator("#query").is_visible()
    assert tab.url.endswith("#batches-and-the-shift-section-5-1")
    in_view = """(text) => [...CSS.highlights.get("found") ?? []]
        .map((range) => [range.toString().toLowerCase().replace(/\\s+/g, " "),
                         range.getBoundingClientRect().top])
        .some(([words, top]) => words === text && top > 0 && top < innerHeight)"""
    tab.wait_for_function(in_view, arg="teacher forcing")
    tab.keyboard.press("/")
    tab.locator("#query").fill("model’s")  # the apostrophe that phones type
    tab.keyboard.press("Enter")
    tab.wait_for_function(in_view, arg="model's")
    tab.locator("header #search").click()
    tab.locator("#query").fill("xyzzy")
    assert tab.locator("#found").inner_text() == "0 sections"
    tab.locator("#search-close").click()
    assert not tab.locator("#query").is_visible()


def test_cards_show_what_a_link_leads_to(shared_page):
    """A citation its reference, an equation itself, others what they are; by pointer and keys."""
    tab = shared_page()
    tab.locator("a.cite", has_text="Ba et al., 2016").first.hover()
    tab.locator("#card", has_text="Layer normalization").wait_for()
    tab.mouse.move(2, 2)
    tab.locator("#card").wait_for(state="hidden")
    tab.locator("a.equation-link", has_text="(1)").first.focus()
    tab.keyboard.press("Shift+Tab")
    tab.keyboard.press("Tab")
    tab.locator("#card .katex").wait_for()
    tab.keyboard.press("Escape")
    assert not tab.locator("#card").is_visible()
    tab.locator("a.symbol[href='#symbol-d_model']").first.hover()
    tab.locator("#card", has_text="width of every vector").wait_for()
    boxes = tab.locator(".picture .arch-fig a").all()
    assert len(boxes) == 20
    assert all(tab.locator(box.get_attribute("href")).count() == 1 for box in boxes)
    boxes[3].hover()
    tab.locator("#card strong", has_text="Multi-head attention").wait_for()


def learning(tab):
    """The document in which a model learns to copy, read anew; it is in a frame of the page."""
    again = """(frame) => new Promise((read) => {
        frame.onload = read;
        frame.srcdoc = frame.srcdoc;
    })"""
    reach(tab, "#trainer").evaluate(again)
    panel = tab.frame_locator("#trainer")
    panel.locator("#learn-task").select_option("copy")
    panel.locator("#learn-state", has_text="update 0 of 500").wait_for()
    return panel


def wait_until_whole(tab) -> None:
    """Until the frame is as high as its document."""
    tab.frames[1].wait_for_function("document.documentElement.scrollHeight <= innerHeight")


def test_a_model_learns_on_the_page(shared_page):
    """By keyboard: train, pause, go on, to the end; one's own letters; another seed begins anew."""
    tab = shared_page(390)
    panel = learning(tab)
    panel.locator("#learn-step").press("Enter")
    panel.locator("#learn-state", has_text="update 1 of 500, loss").wait_for()
    tab.evaluate("window.heights = 0; addEventListener('message', () => { heights += 1; })")
    for state in ("", "Pause", "Train"):
        panel.locator("#learn-run", has_text=state).press("Enter")
    panel.locator("#learn-run:disabled").wait_for(timeout=120_000)
    assert panel.locator("#learn-state").inner_text().startswith("update 500 of 500")
    assert tab.evaluate("heights") == 0  # the long page is not laid out anew
    assert int(re.search(r"\d+", panel.locator("#learn-exact").inner_text())[0]) >= 95
    panel.locator("#learn-own").fill("facade")
    panel.locator("#learn-answer", has_text="facade → facade").wait_for()
    assert panel.locator("#learn-map tr").count() == 1 + 7
    for button, seed in (("#learn-again", 0), ("#learn-other", 1)):
        panel.locator(button).click()
        panel.locator("#learn-state", has_text=f"update 0 of 500, seed {seed}").wait_for()


def test_a_part_is_taken_away_from_the_model_on_the_page(shared_page):
    """Without the shift the loss falls at once, and nothing is copied."""
    tab = shared_page(390)
    panel = learning(tab)
    panel.locator("#learn-run").click()
    panel.locator("#learn-run", has_text="Pause").wait_for()
    # a training that was under way goes on with the new model
    panel.locator("[data-key=shift]").uncheck()
    panel.locator("#learn-run:disabled").wait_for(timeout=120_000)
    assert "loss 0.0" in panel.locator("#learn-state").inner_text()
    assert ": 0% right" in panel.locator("#learn-exact").inner_text()
    # those that it gets wrong come first
    assert panel.locator("#learn-examples .wrong").count() == 5
    panel.locator("#learn-own").fill("abcdefghijab")
    # twelve letters, and the end
    panel.locator("#learn-map tr").first.locator("th").nth(12).wait_for()
    wait_until_whole(tab)


def test_the_road_has_a_button_stops_and_marks(shared_page):
    """Its marks are the document's road; stops lead to the next."""
    tab = shared_page()
    marks = tab.locator("#toc .on-road").evaluate_all("links => links.map((link) => link.hash)")
    road = tab.locator("main [data-road]").evaluate_all("tags => tags.map(({ id }) => '#' + id)")
    assert set(marks) == set(road)
    stops = tab.locator(".road-next")
    assert 10 <= stops.count() <= 25
    assert re.match(r"Start, \d+ min", tab.locator("#road").inner_text())
    leads = tab.locator(".road-next a:first-child").evaluate_all(
        """links => links.map((link) => {
            const stop = link.closest(".road-next"), next = document.querySelector(link.hash);
            return [link.hash, stop.compareDocumentPosition(next) & 4];
        })"""
    )
    assert len(leads) == stops.count() - 1 and all(after for _, after in leads)
    assert len({to for to, _ in leads}) == len(leads)


class Reader:
    """Somebody who clicks and looks."""

    def __init__(self, tab):
        self.tab = tab

    def comes_to(self, selector: str):
        return in_view(self.tab.locator(selector).first)

    def clicks(self, selector: str) -> None:
        self.comes_to(selector).click()

    def sees(self, selector: str, text: str = "") -> None:
        self.tab.locator(selector, has_text=text).first.wait_for()


def test_a_reader_takes_the_road(browser, committed_page):
    """From the first screen to the end; what he has read is remembered, and so are his guesses."""
    tab, problems = offline_tab(browser)
    tab.goto(committed_page("the_annotated_transformer").as_uri())
    reader = Reader(tab)
    last_line = ".road-next:not(:has(> a:first-child))"

    reader.sees("#road", "Start")
    reader.clicks("#road")
    reader.clicks("ol.choices button")
    reader.sees("ol.choices + small", "of 1 guesses right")
    reader.clicks(".road-next > a:first-child")
    reader.sees("#toc .on-road.read")
    reader.sees("#road", "Go on:")

    # who only looks at the end hasn't come the whole way
    reader.comes_to(last_line)
    tab.evaluate(
        "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
    )
    reader.sees("#road", "Go on:")

    # aside, and back to where he was
    for aside in ("trainer", "write-attention"):
        reader.clicks(f".road-next .aside[href='#{aside}']")
        reader.comes_to(f"#{aside}")
        reader.clicks("header #road-home")  # where it covers nothing
        assert tab.locator(f".road-next a[href='#{tab.url.split('#')[1]}']").count() == 1
    assert tab.locator("#write-attention[open]").count() == 1  # the next rung has opened

    tab.locator(".road-next > a:first-child").last.click()
    reader.comes_to(last_line)
    reader.sees("#road", "Start")
    assert problems == []
    tab.context.close()


def test_a_patient_is_examined_and_its_mistake_named(shared_page):
    """By keyboard: tests answer in a sentence and a picture; a wrong name costs points."""
    lines = (ROOT / "blog" / "patients.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    tab = shared_page(390)
    reach(tab, "#clinic-frame")
    panel = tab.frame_locator("#clinic-frame")
    panel.locator("#clinic-state", has_text="10 of 10 points").wait_for()
    slip = rows[int(tab.evaluate("Date.now()") // 864e5) % len(rows)]["slip"] or "healthy"
    pictures = {
        "Wires": ".clinic-grid td",
        "Swap": ".clinic-bars tr",
        "Let it write": ".clinic-examples tr",
    }
    for name, picture in pictures.items():
        panel.locator("#clinic-orders button", has_text=name).press("Enter")
        # behind those before it
        panel.locator(f".clinic-result:last-child {picture}").first.wait_for()
        assert panel.locator(".clinic-result:last-child li").count() >= 1
    assert panel.locator("#clinic-state").inner_text() == "7 of 10 points"
    mistaken = next(name for name in ("no_shift", "eos_cut_off") if name != slip)
    for name in (mistaken, slip):
        panel.locator("#clinic-names").select_option(name)
        panel.locator("#clinic-name").press("Enter")
        if name == mistaken:  # a point is left for the name, whatever is ordered
            for order in panel.locator("#clinic-orders button").all():
                order.press("Enter")
            assert panel.locator("#clinic-state").inner_text() == "1 of 10 points"
            assert not panel.locator("#clinic-verdict").count()
    # what was seen, and what such a model would have shown
    telling = re.compile(r"In such a model, .+\.|none of the tests that you have ordered")
    panel.locator(".clinic-result.wrong span", has_text=telling).wait_for()
    verdict = panel.locator("#clinic-verdict")
    assert re.match(r"Yes: .+\. Points left: 1\.", verdict.inner_text())
    if slip != "healthy":
        assert CATALOGUE[slip].effect in verdict.inner_text()
        panel.locator("text=Read the section").click()
        section = anchor_name(CATALOGUE[slip].section)
        tab.wait_for_function("id => location.hash === '#' + id", arg=section)
    panel.locator("#clinic-next").press("Enter")
    assert panel.locator("text=named so far: 1 of 1, with 1 of 10 points").count() == 1
    assert not panel.locator(".clinic-result").count()


def test_toys_are_touched_with_the_keyboard(shared_page):
    tab = shared_page(390)
    clocks = tab.locator(".awaiting .toy", has_text="a clock's hand")
    for place in clocks.locator("input").all()[:2]:
        for _ in range(7):
            place.press("ArrowRight")
    PE = tat.positional_encoding(16, 16)
    assert f"dot product: {PE[12] @ PE[15]:.2f}, the same" in clocks.locator("svg").text_content()


def test_toys_have_sections(tree_of):
    script = """import { TOYS } from "./views/toys.js";
    console.log(JSON.stringify(TOYS.map(({ heading }) => heading)));"""
    ids = {h["id"] for h in tree_of("the_annotated_transformer").select("h1, h2, h3, h4")}
    assert set() < {*node(script, {})} <= ids


def test_symbols_lead_to_the_legend(tree_of):
    soup = tree_of("the_annotated_transformer")
    links = [link["href"] for link in soup.select("a.symbol, .katex-html a")]
    assert {f"#symbol-{name}" for name in ("d_model", "d_k", "d_ff", "h", "N", "Q")} == set(links)
    assert all(soup.find(id=link[1:]).name == "tr" for link in links)


def test_figure_1_stays_in_the_margin(shared_page):
    """Its boxes are lit where one reads, with the sentence's numbers; never before a guess."""
    tab = shared_page()
    lit_box = "document.querySelector('#place .lit')?.dataset.part"

    def read(heading: str, box: str | None) -> None:
        tab.evaluate("id => document.getElementById(id).scrollIntoView()", heading)
        tab.wait_for_function(f"({lit_box} ?? null) === {json.dumps(box)}")

    read("attention-section-3-2", "encoder attention")  # which asks how large a weight is
    tab.locator("#place .panel-bars").wait_for(state="detached")
    read("masks", "decoder attention")
    tab.locator("#place .panel-bars").wait_for()
    tab.evaluate("Page.yourSentence.follow('Ein Hund schläft.')")
    tab.locator("#place", has_text="(1, 5)").wait_for()
    read("training", None)  # nothing is lit where no box belongs
    tab.set_viewport_size({"width": 390, "height": 800})
    read("masks", "decoder attention")
    assert not tab.locator("#place").is_visible()
    tab.locator("#where").click()
    tab.locator("#place .panel-bars").wait_for()


def fonts_of(paper) -> Iterator[tuple[str, bool]]:
    """The name of each font on the pages of a paper, and whether the file has its outlines."""
    for sheet in paper.pages:
        for font in (sheet["/Resources"].get("/Font") or {}).values():
            font = font.get_object()
            inner = font["/DescendantFonts"][0].get_object() if "/DescendantFonts" in font else font
            drawn = font["/Subtype"] == "/Type3"
            files = {"/FontFile", "/FontFile2", "/FontFile3"}
            yield font["/BaseFont"], drawn or bool(files & {*inner["/FontDescriptor"].get_object()})


def test_formulas_and_figures_keep_to_their_edges(shared_page):
    """No formula is cut, on a phone either; prose ends at one edge, and what is wide at another."""
    tab = shared_page(390)
    cut = """() => [...document.querySelectorAll("main .katex-display")]
        .filter((box) => box.scrollWidth > box.clientWidth + 1).map((box) => box.textContent)"""
    tab.wait_for_function(f"({cut})().length === 0")
    tab.set_viewport_size({"width": 1440, "height": 900})
    edges = """selector => [...new Set([...document.querySelectorAll(selector)]
        .map((box) => Math.round(box.getBoundingClientRect().right)).filter(Boolean))]"""
    wide = ".jp-CodeCell, .write-it, .explorer, .learn, .sentence-panel"
    prose = ".prose > p:not(:has(> .explorer)), .prose > blockquote > p"
    assert [len(tab.evaluate(edges, selector)) for selector in (wide, prose)] == [1, 1]


def test_every_citation_has_a_reference_and_every_reference_is_cited(tree_of):
    """Catches a work that is named with its year but not listed, and one that is listed in vain."""
    soup = tree_of("the_annotated_transformer")
    listed = {li["id"] for li in soup.select("li[id^=ref-]")}
    cited = {link["href"][1:] for link in soup.select("a.cite")}
    assert len(listed) >= 30 and cited <= listed
    assert listed - cited == {f"ref-{name}" for name in NOT_LINKED}
    sections = soup.select("section.prose")
    prose = " ".join(" ".join(section.stripped_strings) for section in sections)
    for name in re.findall(r"\b([A-Z][\w-]+) et al\.,? \(?(\d{4}b?)", " ".join(prose.split())):
        assert f"ref-{name[0].lower()}-{name[1]}" in listed, name


@pytest.mark.usefixtures("browser")
def test_the_paper_has_pages_outline_tags_and_fonts(page, tmp_path):
    """Printed by Chromium: at most 15 MB, all fonts inside, bookmarks of parts and sections."""
    from pypdf import PdfReader

    out = tmp_path / "paper.pdf"
    subprocess.run([sys.executable, "-m", "blog", "pdf", page, out], check=True)
    assert out.stat().st_size <= 15e6
    paper = PdfReader(out)
    assert 100 <= len(paper.pages) <= 220 and paper.trailer["/Root"]["/MarkInfo"]["/Marked"]
    parts = [entry if isinstance(entry, list) else [entry] for entry in paper.outline]
    titles = [e.title for entries in parts for e in entries if hasattr(e, "title")]
    wanted = {"The Annotated Transformer", "Part 1: A sentence through the model", "Appendix"}
    assert wanted <= {*titles} and len(titles) > 60
    assert not [name for name, embedded in fonts_of(paper) if not embedded]


def test_no_link_stands_inside_another_or_inside_code(tree_of):
    """Links that the page adds (citations, terms, equations) leave links and code alone."""
    soup = tree_of("the_annotated_transformer")
    assert len(soup.select("a.cite")) >= 30 and len(soup.select("a.term")) > 15
    linked = ":is(h1, h2, h3) :is(.cite, .term, .equation-link)"
    assert not soup.select(f"a a, code a, svg svg a, {linked}")
    assert not soup.select(":is(img, [role]):is([alt*='<a'], [aria-label*='<a'])")


def test_every_panel_follows_the_readers_sentence(shared_page):
    """Part by part down the page: panels show numbers, and others when the bar's text changes."""
    tab = shared_page()
    panels = tab.locator(".sentence-panel")
    names = panels.evaluate_all("panels => panels.map(panel => panel.dataset.panel)")
    assert len(names) >= 12 and {*tab.evaluate("Page.Panels.names")} == {*names}

    def texts() -> dict[str, str]:
        text_of = {}
        for name in names:
            panel = reach(tab, f".sentence-panel[data-panel={name}]")
            panel.locator(".panel-body[aria-busy=false] > *").first.wait_for()
            text_of[name] = panel.inner_text()
        return text_of

    before = texts()
    reach(tab, ".sentence-panel[data-panel=vectors]")
    tab.locator("#your-words").fill("Eine Katze schläft.")
    tab.locator("#your-words").press("Enter")
    followed = "document.querySelector('.explorer > div').explored.sentence()"
    tab.wait_for_function(f"{followed} === 'Eine Katze schläft.'")
    tab.locator("#your-sentence output", has_text="→ A cat").wait_for()
    after = texts()
    # it begins with a sentence that breaks
    assert [name for name in names if before[name] == after[name]] == ["removed"]
    numbers = tab.evaluate(
        """async () => {
            const { engine } = await Page.liveContent(), sentence = "Eine Katze schläft.";
            const f = await Page.Panels.look({ engine, sentence });
            const three = (vector) =>
                [...vector.slice(0, 3)].map((value) => value.toFixed(2)).join(" ");
            const { scores, weights } = f.layers[0];
            const largest = Page.largest(weights[1][2], 1)[0];
            return { vectors: three(f.rows[2]), positions: three(f.input[2]),
                     residual: three(f.layers[0].normed[2]),
                     heads: scores[1][2][largest].toFixed(2),
                     neurons: Math.max(...f.layers[0].inner[2]).toFixed(2) };
        }"""
    )
    assert not [name for name, text in numbers.items() if text not in " ".join(after[name].split())]


def test_a_sentence_of_ones_own_is_kept_where_the_page_wakes_later(shared_page):
    """Panels and the second figure come near later and follow the first; also after a reload."""
    tab = shared_page()
    tab.evaluate("sessionStorage.clear()")
    tab.reload()  # nothing has come near yet but the first figure
    tab.wait_for_selector(".explorer.ready #step-readout:not(:empty)")
    vectors = ".sentence-panel[data-panel=vectors]"
    tab.locator(".explorer[data-number='1'] #text").fill("Eine Katze schläft.")
    tab.locator(".explorer[data-number='1'] #text").press("Enter")
    reach(tab, ".explorer[data-number='2']")
    tab.locator(".explorer[data-number='2'].ready").wait_for()
    for _ in range(2):
        reach(tab, vectors)  # a panel that is out of sight isn't drawn anew
        tab.locator(vectors, has_text="Katze").wait_for()
        tab.reload()
    tab.evaluate("sessionStorage.clear()")


def test_a_panel_answers_the_keyboard_and_the_bar_folds(shared_page):
    tab = shared_page(390)
    panel = reach(tab, ".sentence-panel[data-panel=heads]")
    panel.locator("tbody td").first.wait_for()
    layer, head = (box.input_value() for box in panel.locator("select").all()[:2])
    assert (layer, head) == ("0", "1")  # those that the text speaks of
    before = panel.locator("tbody").inner_text()
    panel.locator("select").nth(1).focus()
    tab.keyboard.press("ArrowUp")
    changed = "([panel, before]) => panel.querySelector('tbody').innerText !== before"
    tab.wait_for_function(changed, arg=[panel.element_handle(), before])
    # where a weight comes from unfolds in place
    panel.locator("tbody tr").nth(4).locator("td").nth(3).click()
    panel.locator(".panel-causes strong", has_text="“einer ‘a’” looks at “auf ‘on’”").wait_for()
    assert panel.locator(".panel-strip").count() == 3
    fold = tab.locator("#your-sentence > button").last
    for visible in (False, True):
        fold.click()
        assert tab.locator("#your-words").is_visible() == visible


def test_the_header_leads_from_one_page_to_the_others(browser, committed_page):
    for name in ("since_2017", "exercises", "lab_notebook"):
        committed_page(name)
    tab, problems = offline_tab(browser, 390)
    tab.goto(committed_page("the_annotated_transformer").as_uri())
    titles = ("Exercises: change it and train", "Since 2017", "The lab notebook")
    for title in (*titles, "The Annotated Transformer"):
        tab.locator("header .pages summary").click()
        tab.locator("header .pages a", has_text=title).click()
        begins = "title => document.querySelector('h1')?.textContent.startsWith(title)"
        tab.wait_for_function(begins, arg=title)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390 and not problems
    tab.context.close()


def test_page_and_notebook_say_the_same_about_the_road(tree_of):
    """The notebook says the page's number, give or take a minute; the parts add up to it."""
    text = (ROOT / "the_annotated_transformer.py").read_text("utf-8")
    promised = int(re.search(r"\*\*the road\*\*.*about (\d+) minutes", text)[1])
    tree = tree_of("the_annotated_transformer")
    minutes_of = {a["href"][1:]: float(a["data-minutes"]) for a in tree.select("#toc a")}
    road = [tag["id"] for tag in tree.select("[data-road]") if tag["id"] in minutes_of]
    assert abs(promised - sum(minutes_of[name] for name in road)) <= 1 and promised <= 75
    # "39 of 49 min", or "22 min" where all of it is on the road, or none
    texts = [small.get_text() for small in tree.select("#toc > ol > li > a > small")]
    totals = [int(text.split()[-2]) for text in texts]
    assert abs(sum(minutes_of.values()) - sum(totals)) <= len(totals)


MINUTES = """<section><h1 id=a>A</h1> {words}</section> <section lines=8 shown=100>
<h2 id=b>B</h2> <ol><li>one</ol> <details class=answer><summary>Look</summary> {words}</details>
<p>Who?</p> <details class=answer><summary>Answer</summary></details>
<details>{words}</details></section>"""


def test_minutes_count_what_is_read_and_done():
    """Prose, an answer, code, what cells show, a guess and a question; not what is folded."""
    tree = BeautifulSoup(MINUTES.format(words="word " * 200), "html.parser")
    assert minutes(tree.h1, HEADINGS) == pytest.approx(201 / 200 + 8 / 8 + 100 / 200)
    assert minutes(tree.h2, HEADINGS) == pytest.approx(205 / 200 + 0.5 + 0.75)


def test_a_prediction_is_checked_and_counted(browser, committed_page):
    """One chooses, and the answer opens with what follows; a second try doesn't count."""
    tab, problems = offline_tab(browser)
    tab.goto(committed_page("the_annotated_transformer").as_uri())
    question = tab.locator("ol.choices").first
    answer = question.locator("xpath=following-sibling::details[1]")
    right_number = int(answer.locator("strong").first.text_content().rstrip("."))
    wrong_button = question.locator("button").nth(0 if right_number != 1 else 1)
    waiting = tab.locator(".awaiting")
    assert waiting.count() > 1 and waiting.first.get_attribute("open") is None

    wrong_button.focus()
    tab.keyboard.press("Enter")
    tab.wait_for_function("document.querySelector('.awaiting').open")
    assert waiting.first.locator(".chart").is_visible()
    assert waiting.nth(1).get_attribute("open") is None
    assert answer.get_attribute("open") is not None and wrong_button.text_content() == "✗"
    assert question.locator("button").nth(right_number - 1).text_content() == "✓"
    assert wrong_button.is_disabled()

    def stored() -> bool:  # Chromium may give a new page at once what was kept a moment before
        tab.reload()
        return tab.evaluate("localStorage.length > 0")

    wait_for("the guess, which isn't counted again", stored, 20)
    assert wrong_button.text_content() == "✗" and answer.get_attribute("open") is not None
    count = question.locator("xpath=following-sibling::small")
    assert count.text_content() == "0 of 1 guesses right"
    tab.goto(committed_page("since_2017").as_uri())  # which has no live figure
    wait_for("the guess of the other page", stored, 20)
    table = tab.locator(".awaiting table")
    assert table.count() == 1 and not table.is_visible()
    tab.locator("ol.choices button").nth(1).click()
    assert tab.locator(".awaiting table").is_visible()
    assert tab.locator("ol.choices + small").text_content() == "1 of 2 guesses right"
    assert problems == []
    tab.context.close()


def test_no_number_of_a_choice_is_mostly_right(tree_of):
    """And each is one of the choices."""
    rights = []
    for answer in tree_of("the_annotated_transformer").select("ol + details.answer:has(strong)"):
        if number := re.match(r"\d+", answer.strong.get_text()):
            rights.append(int(number[0]))
            assert 1 <= rights[-1] <= len(answer.find_previous_sibling("ol").find_all("li"))
    assert len(rights) >= 10 and max(map(rights.count, rights)) < len(rights) / 2
