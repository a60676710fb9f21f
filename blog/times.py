"""Minutes: what it takes to read a section and to do what it asks, and where the road goes."""

import itertools
import re
from collections.abc import Callable
from typing import Any

import nbformat
from bs4 import BeautifulSoup, Tag

from blog import editions
from blog.prose import HEADINGS, words

TRAINER = "a-second-task-german-numbers"  # the heading behind which a model learns
PANELS = {TRAINER: 4, "what-the-loss-can-t-see": 4}  # minutes at the trainer and in the clinic
GUESS, QUESTION = 0.5, 0.75  # minutes until an answer is opened
WORD = r"[^\W\d_][\w'’-]*"  # begins with a letter
MOST_WORDS_READ = 80  # of what a cell shows


def minutes(heading: Tag, ends: list[str]) -> float:
    """What it takes to read from a heading to the next of the headings `ends`, without asides."""
    # In a minute one reads 200 words, captions, outputs and opened answers among them, 400 Chinese
    # characters, or 8 lines of code. A guess takes half a minute, a question without choices three
    # quarters, and PANELS what is said there. An exercise says itself what it takes; a list of them
    # is only read.
    nodes = list(itertools.takewhile(lambda node: node.name not in ends, heading.next_elements))
    tags = [heading, *(node for node in nodes if isinstance(node, Tag))]
    asides = "details:not(.answer)"
    nodes = [node for node in nodes if not (node.parent and node.parent.css.closest(asides))]
    outside_lists = (node for node in nodes if not node.find_parent("li"))
    # an exercise says behind its star what it takes
    if stated := re.findall(r"★[,，]\s*(\d+)", words(outside_lists)):
        return sum(map(int, stated))
    text = words(nodes)
    han = f"[{editions.HAN}]"
    time = len(re.findall(WORD, re.sub(han, " ", text))) / 200
    time += len(re.findall(han, text)) / 400
    for tag in tags:
        time += int(tag.get("lines", 0)) / 8 + int(tag.get("shown", 0)) / 200
        time += PANELS.get(tag.get("id"), 0)
        if tag.name == "details" and "answer" in tag.get("class", []):
            before = tag.find_previous_sibling()
            time += GUESS if before and before.name == "ol" else QUESTION
    return time


def mark_what_is_read(tree: BeautifulSoup, notebook: nbformat.NotebookNode) -> None:
    """Give each section, a piece of prose, what is open since the last one."""
    # That is the number of lines of code, and of words that cells show.
    sections = iter(tree.contents)  # as the notebook's cells and outputs, in the same order
    lines_of_code = 0
    words_of_outputs = 0
    for cell in notebook.cells:
        tags = {*cell.metadata.get("tags", [])}
        if cell.cell_type == "markdown":
            section = next(sections)
            section["lines"] = lines_of_code
            section["shown"] = words_of_outputs
            lines_of_code = 0
            words_of_outputs = 0
        elif not {"hide-input", "hide-cell"} & tags:
            lines_of_code += sum(bool(line.strip()) for line in cell.source.splitlines())
        if not {"hide-cell", "hide-output"} & tags:
            words_of_outputs += min(words_shown(cell), MOST_WORDS_READ)
        for output in cell.get("outputs", []):
            if "text/markdown" in output.get("data", {}):
                next(sections)  # a caption, which is prose and counts as such


def words_shown(cell: nbformat.NotebookNode) -> int:
    """The number of words that a cell prints, or shows as a table."""
    outputs = cell.get("outputs", [])
    texts = [
        output.get("text") or output.get("data", {}).get("text/plain", "") for output in outputs
    ]
    return sum(len(re.findall(WORD, text)) for text in texts)


def time_the_road(tree: BeautifulSoup, say: Callable[[str], str]) -> None:
    """Mark the road's headings; the table that says where it goes is for the notebook."""
    # A link of its row to a section of a Part stands for the Part up to there.
    for row in tree("tr"):
        if row.td and row.td.get_text().startswith(say("the road")):
            for link in row("a"):
                heading = tree.find(id=link["href"][1:])
                stop = heading.find_previous("h1")  # the Part's; up to the heading, all is road
                while stop is not heading:
                    stop["data-road"] = ""
                    stop = stop.find_next(HEADINGS)
                heading["data-road"] = ""
            row.find_parent("table").decompose()


def contents(headings: list[Tag]) -> list[dict[str, Any]]:
    """The table of contents: the parts (highest headings after the title), sections and times."""
    # The minutes of the parts, and those of them that are on the road, add up. the highest headings
    # are parts, the two levels below them sections; deeper ones only add their minutes
    parts: list[dict[str, Any]] = []
    highest = min((heading.name for heading in headings[1:]), default="")
    for heading in headings[1:]:  # the first is the title
        time = minutes(heading, HEADINGS)  # up to the next heading of any level
        entry = {"level": heading.name[1], "id": heading["id"], "text": heading.decode_contents()}
        entry["own"] = f"{time:.2f}"
        if heading.name == highest or not parts:
            parts.append({**entry, "minutes": 0.0, "road": 0.0, "sections": []})
        elif heading.name in ("h2", "h3"):
            parts[-1]["sections"].append({**entry, "minutes": max(1, round(time))})
        parts[-1]["minutes"] += time
        if "data-road" in heading.attrs:
            parts[-1]["road"] += time
    for entry in parts:  # rounded at the end: what is added up is exact
        entry["minutes"] = max(1, round(entry["minutes"]))
        entry["road"] = round(entry["road"])
    return parts
