"""The document as a paper: the web page printed by Chromium, with an outline and tags.

    python -m blog pdf build/the_annotated_transformer.html OUT.pdf [--chromium PATH]

The page opens what is folded, and charts are the stills that the notebook holds. Nothing is
fetched.
"""

import shutil
from pathlib import Path

# for letters that a machine may lack; from `make pdf`
FONTS = Path(__file__).parent / "node_modules" / "@fontsource"
FOOTER = (
    '<div style="width:100%; text-align:center; font-size:8px">'
    '<span class="pageNumber"></span></div>'
)


def print_page(page: Path, out: Path, chromium: str) -> None:
    """Print an HTML file as A4; raises playwright's Error if Chromium cannot."""
    from playwright.sync_api import sync_playwright

    # The page is opened as a reader opens it, without a network; then it gets fonts, a sentence for
    # its panels, and time until all is drawn.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        tab = browser.new_context(offline=True, color_scheme="light", bypass_csp=True).new_page()
        tab.set_default_timeout(120_000)  # the page is large, and the machine may be busy
        tab.goto(page.resolve().as_uri())
        for style in [*FONTS.glob("*/400.css"), *FONTS.glob("*/700.css")]:
            files = (style.parent / "files").resolve().as_uri()
            css = style.read_text("utf-8").replace("url(./files", f"url({files}")
            tab.add_style_tag(content=css)
        # so that the panels have a sentence to show
        tab.evaluate(
            "document.querySelector('.explorer') && Page.yourSentence.begin().then(Page.Panels.drawn)"
        )
        tab.evaluate("document.fonts.ready.then(() => true)")
        margin = {"top": "18mm", "bottom": "18mm", "left": "17mm", "right": "17mm"}
        tab.pdf(
            path=out,
            format="A4",
            margin=margin,
            print_background=True,
            prefer_css_page_size=True,  # the listing's page has a size of its own
            display_header_footer=True,
            header_template="<span></span>",  # an empty one would give Chromium's own
            footer_template=FOOTER,
            outline=True,
            tagged=True,
        )
        browser.close()


def main(page: Path, out: Path, /, *, chromium: str | None = None) -> None:
    """Print a page."""
    chromium = chromium or shutil.which("chromium") or shutil.which("google-chrome")
    if not page.is_file():
        raise FileNotFoundError(f"there is no page {page}; make html or make page writes it")
    if not chromium:
        raise FileNotFoundError("a paper needs Chromium; --chromium says where it is")
    out.parent.mkdir(parents=True, exist_ok=True)
    print_page(page, out, chromium)
    print(f"wrote {out} ({out.stat().st_size / 1e6:.1f} MB)")
