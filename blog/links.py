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


def equations(tree: BeautifulSoup, say: Callable[[str], str]) -> dict[tuple[str, str], str]:
    """Mentions of equations, such as Equation and 3, and the id of each."""
    ids = {}
    for tag in tree(class_="equation"):
        number = tag["id"].removeprefix("equation-")
        ids["Equation", number] = tag["id"]
        ids[say("Equation"), number] = tag["id"]
    return ids


def references(tree: BeautifulSoup) -> dict[tuple[str, str], str]:
    """Mentions of works, such as Press and 2016, and the id that the list's item gets."""
    ids = {}
    surname = ""  # of the first author; "The same" stands for those of the item above
    for item in tree.select("#references ~ * li"):
        work = re.match(r"([^(]+) \((\d{4}b?)\)\.", words(item.descendants))
        if not work:
            continue
        authors, year = work.groups()
        if authors != "The same":
            surname = re.split(r",| and ", authors)[0].split()[-1]
        elif not surname:
            raise PageError("the first reference cannot be by the same authors")
        item["id"] = f"ref-{surname.lower()}-{year}"
        ids[surname, year] = item["id"]
    return ids


def glossary(tree: BeautifulSoup) -> dict[str, str]:
    """Terms in small letters, and the id that the row of each gets; a row may name several."""
    ids = {}
    for cell in tree.select("#glossary ~ * td:first-child"):
        terms = [term.strip() for term in re.split("[,，]", words(cell.descendants).lower())]
        terms = [term for term in terms if term]
        if terms:
            cell.parent["id"] = f"term-{anchor_name(terms[0])}"
            ids.update(dict.fromkeys(terms, cell.parent["id"]))
    return ids


def legend(tree: BeautifulSoup) -> dict[str, str]:
    """The TeX of symbols, as patterns, and the id that the row of each gets."""
    ids = {}
    for cell in tree.select("#names-and-shapes ~ * td:first-child:has(code)"):
        symbols = [code.get_text() for code in cell("code")]
        cell.parent["id"] = f"symbol-{symbols[0]}"
        for symbol in symbols:
            ids[re.escape(SYMBOLS.get(symbol, symbol))] = cell.parent["id"]
    return ids


class Links:
    """The links that the page adds: from mentions, terms and symbols to what explains them."""

    def __init__(self, tree: BeautifulSoup, say: Callable[[str], str]) -> None:
        """say: the page's word for an English one."""
        self.tree = tree
        self.say = say
        self.mentions = equations(tree, say) | references(tree)
        self.terms = glossary(tree)
        self.symbols = legend(tree)
        # the ids of the part's terms and the section's symbols that have a link
        self.linked: set[str] = set()
        names = {re.escape(name) for name, _ in self.mentions}
        longest_first = sorted(names, key=lambda name: (-len(name), name))
        self.mention = re.compile(MENTION.format(names="|".join(longest_first)))

    def add(self) -> None:
        """Link a term once in a part, a symbol once in a section, and a mention wherever it is."""
        for section in self.tree.contents:
            # what is listed there has no link to itself
            has_references = section.find(id="references") is not None
            for node in list(section.descendants):
                if node.name == "h1":
                    self.linked = set()
                elif node.name == "h2":
                    self.linked = self.linked.intersection(self.terms.values())
                elif node.find_parent(CLOSED):
                    continue
                elif node.name == "formula":
                    self.link_symbols(node)
                elif type(node) is NavigableString and not has_references:
                    self.link_text(node)

    def link(self, kind: str, target: str, text: str | None = None) -> Tag:
        """A link to an id of the page."""
        return self.tree.new_tag("a", attrs={"class": kind, "href": f"#{target}"}, string=text)

    def link_text(self, text: NavigableString) -> None:
        """Link emphasised terms to rows of the glossary, mentions to references and equations."""
        term = self.terms.get(text.lower())
        if term and term not in self.linked and text.parent.name in ("em", "strong"):
            self.linked.add(term)
            text.parent.wrap(self.link("term", term))
            return
        if not self.mentions:  # the pattern would match any number in brackets
            return
        # text, link, text, link: what stands between two mentions stays as it is
        nodes = []
        end = 0  # of the last link in the text
        for mention in self.mention.finditer(text):
            name = mention[1]
            if target := self.mentions.get((name, mention[2] or mention[3])):
                kind = "equation-link" if name in ("Equation", self.say("Equation")) else "cite"
                nodes += [text[end : mention.start()], self.link(kind, target, mention[0])]
                end = mention.end()
        text.replace_with(*nodes, text[end:])

    def link_symbols(self, formula: Tag) -> None:
        """Make a link of a formula that is a symbol or gives its value, else of symbols in it."""
        # Links inside formulas are for the pointer alone, because assistive technology reads the
        # formula's MathML.
        # the first symbol that the whole formula is, or else each that it holds
        for tex, target in self.symbols.items():
            # a symbol has one link in a section, but a displayed equation has all of its own
            if target in self.linked and not formula.has_attr("display"):
                continue
            if re.fullmatch(tex + r"( = [\d,]+)?", formula["tex"]):
                self.linked.add(target)
                name = target.removeprefix("symbol-")
                spoken = self.tree.new_tag("span", attrs={"class": "spoken"}, string=name)
                formula.wrap(self.link("symbol", target)).insert(0, spoken)
                return
            inside = tex + r"(?![\w{])"
            if "_" in tex and re.search(inside, formula["tex"]):  # letters have other meanings
                self.linked.add(target)
                with_link = rf"\\href{{#{target}}}{{\g<0>}}"
                formula["tex"] = re.sub(inside, with_link, formula["tex"], count=1)
