"""The links that a page adds: to references, equations, glossary and legend."""

import re
from collections.abc import Callable

from bs4 import BeautifulSoup, NavigableString, Tag

from blog.prose import HEADINGS, PageError, anchor_name, words

CLOSED = {*HEADINGS, "a", "code", "svg"}  # no link may be put there
# names of the legend whose TeX is another
SYMBOLS = {"d_model": r"d_{\text{model}}", "d_ff": r"d_{\text{ff}}"}
# a work, such as Press and Wolf (2016), or Equation (3)
MENTION = (
    r"(?<![A-Za-z])({names})(?![a-z])[^\d<>()（）;；。]{{0,30}}?"
    r"(?:(\d{{4}}b?)(?![\da-z])|[(（](\d{{4}}b?|\d)[)）])"
)


class Links:
    """The links that the page adds: from mentions, terms and symbols to what explains them."""

    def __init__(self, tree: BeautifulSoup, say: Callable[[str], str]) -> None:
        """say: the page's word for an English one."""
        self.tree = tree
        self.say = say
        self.mentions: dict[tuple[str, str], str] = {}  # such as Equation and 3 -> an id
        # a term in small letters -> the id of its row in the glossary
        self.terms: dict[str, str] = {}
        # the TeX of a symbol, as a pattern -> the id of its row in the legend
        self.symbols: dict[str, str] = {}
        # the ids of the part's terms and the section's symbols that have a link
        self.seen: set[str] = set()
        for name in (tag["id"] for tag in tree(class_="equation")):
            number = name.removeprefix("equation-")
            self.mentions["Equation", number] = self.mentions[self.say("Equation"), number] = name
        surname = ""
        for item in tree.select("#references ~ * li"):
            if found := re.match(r"([^(]+) \((\d{4}b?)\)\.", words(item.descendants)):
                if found[1] != "The same":
                    surname = re.split(r",| and ", found[1])[0].split()[-1]
                elif not surname:
                    raise PageError("the first reference cannot be by the same authors")
                item["id"] = self.mentions[surname, found[2]] = f"ref-{surname.lower()}-{found[2]}"
        for cell in tree.select("#glossary ~ * td:first-child"):
            listed = re.split("[,，]", words(cell.descendants).lower())
            if names := [name.strip() for name in listed if name.strip()]:
                cell.parent["id"] = f"term-{anchor_name(names[0])}"
                self.terms.update(dict.fromkeys(names, cell.parent["id"]))
        for cell in tree.select("#names-and-shapes ~ * td:first-child:has(code)"):
            names = [code.get_text() for code in cell("code")]
            cell.parent["id"] = f"symbol-{names[0]}"
            patterns = (re.escape(SYMBOLS.get(name, name)) for name in names)
            self.symbols.update(dict.fromkeys(patterns, cell.parent["id"]))

        names: list[str] = [re.escape(name) for name, _ in self.mentions]
        names = sorted(set(names), key=len, reverse=True)
        self.mention = re.compile(MENTION.format(names="|".join(names)))

    def add(self) -> None:
        """Link a term once in a part, a symbol once in a section, and a mention wherever it is."""
        for section in self.tree.contents:
            # what is listed there has no link to itself
            lists = section.find(id="references") is not None
            for node in list(section.descendants):
                if node.name in ("h1", "h2"):
                    kept = self.terms.values() if node.name == "h2" else ()
                    self.seen = self.seen.intersection(kept)
                elif node.find_parent(CLOSED):
                    continue
                elif node.name == "formula":
                    self.link_symbols(node)
                elif type(node) is NavigableString and not lists:
                    self.link_text(node)

    def link(self, kind: str, target: str, text: str | None = None) -> Tag:
        """A link to an id of the page."""
        return self.tree.new_tag("a", attrs={"class": kind, "href": f"#{target}"}, string=text)

    def link_text(self, text: NavigableString) -> None:
        """Link emphasised terms to rows of the glossary, mentions to references and equations."""
        term = self.terms.get(text.lower())
        if term and term not in self.seen and text.parent.name in ("em", "strong"):
            self.seen.add(term)
            text.parent.wrap(self.link("term", term))
            return
        pieces, end = [], 0
        for found in self.mention.finditer(text) if self.mentions else ():
            if target := self.mentions.get((found[1], found[2] or found[3])):
                kind = "equation-link" if found[1] in ("Equation", self.say("Equation")) else "cite"
                pieces += [text[end : found.start()], self.link(kind, target, found[0])]
                end = found.end()
        text.replace_with(*pieces, text[end:])

    def link_symbols(self, formula: Tag) -> None:
        """Make a link of a formula that is a symbol or gives its value, else of symbols in it.

        Links inside formulas are for the pointer alone, because assistive technology reads the
        formula's MathML.
        """
        for tex, target in self.symbols.items():
            if target in self.seen and not formula.has_attr("display"):
                continue
            if re.fullmatch(tex + r"( = [\d,]+)?", formula["tex"]):
                self.seen.add(target)
                name = target.removeprefix("symbol-")
                spoken = self.tree.new_tag("span", attrs={"class": "spoken"}, string=name)
                formula.wrap(self.link("symbol", target)).insert(0, spoken)
                return
            inside = tex + r"(?![\w{])"
            if "_" in tex and re.search(inside, formula["tex"]):  # letters have other meanings
                self.seen.add(target)
                linked = rf"\\href{{#{target}}}{{\g<0>}}"
                formula["tex"] = re.sub(inside, linked, formula["tex"], count=1)
