"""The web page, made from the committed notebook, in a real browser without a network: live figure, walk, links, themes."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHROMIUM = shutil.which("chromium")
AXE = ROOT / "blog" / "node_modules" / "axe-core" / "axe.min.js"
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """The page of the notebook as it is committed."""
    if not (ROOT / "blog" / "node_modules" / "katex").is_dir():
        (pytest.fail if os.environ.get("ANNOTATED_TESTS") == "all" else pytest.skip)("no KaTeX: npm ci --prefix blog")
    out = tmp_path_factory.mktemp("page") / "page.html"
    command = [sys.executable, ROOT / "blog" / "page.py", ROOT / "the_annotated_transformer.ipynb", out]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture
def open_page(page, browser) -> Iterator:
    """Opens the page in a window of some width; in the end there must have been no error and no request."""
    opened, problems = [], []

    def visit(width: int = 1440, **options):
        context = browser.new_context(
            viewport={"width": width, "height": 900}, offline=True, reduced_motion="reduce", **options
        )
        opened.append(context)
        tab, own = context.new_page(), ("data:", "blob:", "file:")
        tab.on("console", lambda m: problems.append(m.text) if m.type == "error" else None)
        tab.on("pageerror", lambda e: problems.append(str(e)))
        tab.on("request", lambda r: None if r.url.startswith(own) else problems.append(r.url))
        tab.goto(page.as_uri())
        tab.locator(".explorer").first.scroll_into_view_if_needed()
        tab.wait_for_selector(".explorer.ready #step-readout:not(:empty)")
        return tab

    yield visit
    for context in opened:
        context.close()
    assert not problems


def test_it_is_no_larger_than_it_may_be(page):
    assert page.stat().st_size <= 9e6


def test_the_live_figure_translates(open_page):
    """In the document's first screen and again in Part 6, with one model for both."""
    tab = open_page()
    first = tab.locator(".explorer").first
    first.locator("#text").fill("Ein Mann hebt einen Hund auf.")
    first.locator("text=Translate").click()
    assert "dog" in first.locator("#translation").inner_text()
    assert not first.locator("#heat").is_visible()
    second = tab.locator(".explorer").nth(1)
    second.scroll_into_view_if_needed()
    second.locator("#heat").wait_for()
    second.locator("#zero-label").wait_for(state="hidden")  # until a head is chosen
    second.locator("#head").select_option("1")
    assert second.locator("#zero").is_visible()


@pytest.mark.parametrize("width", [390, 820, 1440])
def test_nothing_is_wider_than_the_screen(open_page, width):
    tab = open_page(width)
    tab.locator(".explorer").nth(1).scroll_into_view_if_needed()
    tab.wait_for_function("document.querySelectorAll('.explorer.ready').length === 2")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.locator("#walk").click()
    assert tab.evaluate("document.querySelector('.walk').getBoundingClientRect().right") <= width


def test_the_walk_has_ten_stops_with_numbers_of_the_model(open_page):
    """Keyboard and buttons; every stop marks a part of the figure and leads to a section that exists."""
    tab = open_page()
    tab.locator("#walk").click()
    titles, marks = [], set()
    for _ in range(10):
        titles.append(tab.locator("#walk-title").inner_text())
        marks.add(tuple(tab.locator(".walk-mark").get_attribute(name) for name in ("x", "y")))
        section = tab.locator(".walk-side a").get_attribute("href")
        assert tab.locator(section).count() == 1 and any(c.isdigit() for c in tab.locator(".walk-text").inner_text())
        tab.keyboard.press("ArrowRight")
    assert [title.split(".")[0] for title in titles] == [str(n) for n in range(1, 11)] and len(marks) == 10
    last = tab.locator(".walk-text").inner_text()
    assert tab.locator(".explorer").first.locator("#translation").inner_text() in last
    assert tab.locator("text=next ▶").is_disabled()
    tab.locator("text=◀ back").click()
    assert tab.locator("#walk-title").inner_text() == titles[8]
    tab.keyboard.press("Escape")
    assert not tab.locator("#walk-title").is_visible()


def test_the_walk_follows_the_sentence_of_the_figure(open_page):
    tab = open_page(390)
    tab.locator(".explorer").first.locator("#text").fill("Zwei Hunde schlafen.")
    tab.locator(".explorer").first.locator("text=Translate").click()
    tab.locator("#walk").click()
    assert "Hunde" in tab.locator(".walk-text").inner_text()
    assert tab.locator(".walk-picture svg").bounding_box()["height"] < 250  # on a phone, only the part in question


def test_each_box_of_figure_1_leads_to_its_section(open_page):
    tab = open_page()
    links = tab.locator(".picture .arch-fig a")
    assert links.count() == 20
    for i in range(links.count()):
        assert tab.locator(links.nth(i).get_attribute("href")).count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_accessible(open_page, scheme):
    """No finding of axe with serious or critical impact."""
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm ci --prefix blog")
    tab = open_page(color_scheme=scheme)
    tab.evaluate(AXE.read_text("utf-8"))
    rules = "" if scheme == "light" else ", {runOnly: ['color-contrast']}"  # all other rules do not depend on the theme
    found = tab.evaluate(f"axe.run(document{rules}).then((result) => result.violations)")
    serious = [
        (v["id"], len(v["nodes"]), v["nodes"][0]["html"][:150]) for v in found if v["impact"] in ("serious", "critical")
    ]
    assert not serious
