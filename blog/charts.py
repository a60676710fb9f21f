"""How the notebook stores a chart: data for programs that can draw it, a picture for the others.

`notebook.py` enables this renderer in the kernel before the first cell runs; the document itself
does not know about it. A chart becomes one output in two forms. JupyterLab and VS Code draw the
Vega-Lite specification, without a network; GitHub and printers show the picture, which is small.
Altair's own renderers would load Vega from the network, embed it once per chart, or use a media
type that the notebook format refuses. The web page has drawings, made of the specification.
"""

import base64
import io
import json
import re
import zlib
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert
from PIL import Image

# the newest that notebook programs know; draws v6 too
VEGA_LITE = "application/vnd.vegalite.v5+json"
# altair's Vega-Lite, without the patch number
VERSION = alt.SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
SCALE = 1.5  # pixels of the picture per pixel of the chart
COLOURS = 128
# colours that the colour-blind can tell apart (Okabe and Ito), and shades from nothing to much
RANGE = {
    "category": [
        "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f7f7f", "#4b3b8f",
    ],
    "heatmap": ["#ffffff", "#6baed6", "#08306b"],
}  # fmt: skip
UNKNOWN_WIDTH = 640  # of the picture, if the chart takes the width of its container
STYLE = Path(__file__).parent / "template" / "base.css"
VARIABLE = re.compile(r"--(\w+): light-dark\((#\w+), (#\w+)\)")
COLOUR = re.compile(r"(#[0-9a-f]{3,8}\b)")
PHONE_WIDTH = 350  # of a chart there
WIDE = 720  # a single panel that is so wide scrolls there
MOST_LABELS = 3000  # with more marks, nobody points at one
LEAST_SCALE = 0.7  # a smaller drawing couldn't be read, and scrolls
CELL = (
    r'<path(?: data-label="([^"]*)")? d="M([\d.]+),([\d.]+)h([\d.]+)v([\d.]+)h-[\d.]+Z"'
    r' fill="([^"]*)"/>'
)
FEWEST_CELLS = 40  # a map with fewer stays as it is
SHADE = 8  # of 256: the colours of a map that the light theme has in one such bin become one
MAP = re.compile(rf"(?:{CELL}){{{FEWEST_CELLS},}}")


def picture(spec: dict[str, Any]) -> tuple[bytes, dict[str, int]]:
    """The chart as a PNG with few colours, and its size on the screen."""
    if spec.get("width") == "container":
        spec = {**spec, "width": UNKNOWN_WIDTH}
    png = vl_convert.vegalite_to_png(spec, vl_version=VERSION, scale=SCALE)
    image = Image.open(io.BytesIO(png)).convert("RGB").quantize(COLOURS)
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    size = {"width": round(image.width / SCALE), "height": round(image.height / SCALE)}
    return file.getvalue(), size


def titles(spec: dict[str, Any]) -> list[str]:
    """The title of a chart; if it has none, the titles of the charts inside it."""
    title = spec.get("title", "")
    title = title.get("text", "") if isinstance(title, dict) else title
    if title:
        return [" ".join(title) if isinstance(title, list) else title]
    keys = "hconcat", "vconcat", "concat", "layer"
    charts = [chart for key in keys for chart in spec.get(key, [])]
    return [text for chart in charts for text in titles(chart)]


def render(spec: dict[str, Any], **_: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The output of a cell with a chart: its forms by media type, and the metadata of each."""
    spec = {**spec, "config": {**spec.get("config", {}), "range": RANGE}}
    png, size = picture(spec)
    # for a reader who cannot see the picture
    words = spec.get("description") or ", ".join(titles(spec)) or "untitled"
    data = base64.b64encode(png).decode()
    forms = {VEGA_LITE: spec, "image/png": data, "text/plain": f"Chart: {words}"}
    return forms, {"image/png": size}


def themed(spec: dict[str, Any], theme: int) -> str:
    """The specification in colours of the page's style: 0 for light, 1 for dark."""
    shades = {name: pair[theme] for name, *pair in VARIABLE.findall(STYLE.read_text("utf-8"))}
    ink, muted, rule, page = (shades[name] for name in ("ink", "muted", "rule", "page"))
    words = {"labelColor": muted, "titleColor": ink}
    lines = {"domainColor": rule, "tickColor": rule, "gridColor": rule}
    config = spec.get("config", {})
    config = {
        **config,
        "background": "transparent",
        "padding": {"left": 5, "top": 5, "right": 15, "bottom": 5},  # letters are wider elsewhere
        "view": {**config.get("view", {}), "stroke": rule},
        "axis": {**words, **lines, "gridOpacity": 0.6, "labelSeparation": 5},
        "axisBand": {"ticks": False},
        "legend": {**config.get("legend", {}), **words},
        "header": words,
        "title": {**config.get("title", {}), "color": ink, "subtitleColor": muted},
        "text": {"color": ink},
        "rule": {"color": muted},  # marks that are black otherwise
    }
    text = json.dumps({**spec, "config": config})
    if theme == 0:
        return text
    # where there is nothing, a map has the colour of the page
    signed = json.dumps(["#6cb2ff", page, "#ffa657"])
    heat = json.dumps([page, "#2f6fb0", "#d6ebff"])
    text = text.replace('"scheme": "blueorange"', f'"range": {signed}, "interpolate": "rgb"')
    return text.replace(json.dumps(RANGE["heatmap"]), heat)


def drawing(spec: dict[str, Any]) -> str:
    """The chart as SVG, in the colours of both themes, between which the page's style chooses."""
    light, dark = (COLOUR.split(svg_of(spec, theme)) for theme in (0, 1))
    pairs = zip(light, dark, strict=True)
    svg = "".join(day if day == night else f"light-dark({day},{night})" for day, night in pairs)
    width = int(re.search(r'width="(\d+)', svg)[1])
    return MAP.sub(merged, svg).replace(
        "<svg", f'<svg style="min-width: {LEAST_SCALE * width:.0f}px"', 1
    )


def merged(cells: re.Match) -> str:
    """A map with one path for each shade instead of one for each cell, which a browser would have
    to keep. Its labels are in one attribute, row by row; page/charts.js finds that of a cell."""
    found = re.findall(CELL, cells[0])
    places = sorted((float(y), float(x), label) for label, x, y, *_ in found)
    columns = len({x for _, x, _ in places})
    whole = columns * len({y for y, *_ in places}) == len(found)
    if not whole or places[0][:2] != (0, 0):
        return cells[0]
    paths: dict[tuple[int, ...], str] = {}  # by shade: it begins with the first one's colour
    for _, x, y, width, height, colour in found:
        shade = tuple(part // SHADE for part in bytes.fromhex(COLOUR.search(colour)[1][1:]))
        paths.setdefault(shade, f'<path fill="{colour}" d="')
        paths[shade] += f"M{x},{y}h{width}v{height}h-{width}Z"
    labels = "\n".join(label for *_, label in places) if any(p[2] for p in places) else ""
    drawn = "".join(f'{path}"/>' for path in paths.values())
    return f'<g data-columns="{columns}" data-labels="{labels}">{drawn}</g>' if labels else drawn


def svg_of(spec: dict[str, Any], theme: int) -> str:
    """What Vega draws of a specification, in fewer letters, with ids that no other drawing has."""
    svg = vl_convert.vegalite_to_svg(themed(spec, theme), vl_version=VERSION)
    svg = re.sub(r"rgb\((.*?)\)", in_hex, svg)
    chart = zlib.crc32(json.dumps(spec).encode())
    for n, name in enumerate(re.findall(r' id="(\w+)"', svg)):  # Vega counts on from chart to chart
        svg = re.sub(rf'(["#]){name}\b', rf"\g<1>c{chart}-{n}", svg)
    svg = re.sub(r' (role|aria-(?!label)\w+)="[^"]*"', "", svg)
    if svg.count(" aria-label=") > MOST_LABELS:
        return re.sub(r' aria-label="[^"]*"', "", svg)
    return re.sub(r' aria-label="([^"]*)"', lambda label: f' data-label="{once(label[1])}"', svg)


def in_hex(rgb: re.Match) -> str:
    """A colour in fewer letters."""
    return f"#{bytes(map(int, rgb[1].split(','))).hex()}"


def once(label: str) -> str:
    """What Vega says of a mark, without what it says twice: under a title and as a field."""
    pieces = label.split("; ")
    half = len(pieces) // 2
    values = [piece.rpartition(": ")[2] for piece in pieces]
    twice = sorted(values[:half]) == sorted(values[half:])
    return "; ".join(pieces[:half] if twice else pieces)


def stacked(spec: dict[str, Any]) -> dict[str, Any]:
    """The chart with panels below each other that are side by side."""
    panels = [*spec.get("hconcat", []), *spec.get("vconcat", [])]
    rest = {key: value for key, value in spec.items() if key not in ("hconcat", "vconcat")}
    return {**rest, "vconcat": [stacked(panel) for panel in panels]} if panels else spec


def drawings(spec: dict[str, Any], width: int) -> list[str]:
    """The chart of this width, and one for a phone if it would be too small there."""
    whole = drawing(spec)
    single = not any(key in spec for key in ("hconcat", "vconcat", "concat", "facet", "repeat"))
    is_map = "rect" in json.dumps(spec.get("mark", ""))
    if width * LEAST_SCALE <= PHONE_WIDTH or single and (is_map or width >= WIDE):
        return [whole]
    legend = {"orient": "bottom", "columns": 1, "labelLimit": PHONE_WIDTH - 40}
    title = {"limit": PHONE_WIDTH, "anchor": "start"}
    narrow = {
        **stacked(spec),
        "config": {**spec.get("config", {}), "legend": legend, "title": title},
    }
    if single:
        narrow |= {"width": PHONE_WIDTH, "autosize": {"type": "fit-x", "contains": "padding"}}
    return [whole, drawing(narrow)]


def enable() -> None:
    """Show every chart of this process in the two forms."""
    alt.renderers.register("notebook", render)
    alt.renderers.enable("notebook")
