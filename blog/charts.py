"""How the notebook stores a chart: data for programs that can draw it, a picture for the others.

`notebook.py` enables this renderer in the kernel before the first cell runs; the document itself
does not know about it. A chart becomes one output in two forms. JupyterLab, VS Code and the web
page draw the Vega-Lite specification, without a network; GitHub and printers show the picture,
which is small. Altair's own renderers would load Vega from the network, embed it once per chart, or
use a media type that the notebook format refuses.
"""

import base64
import io
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


def enable() -> None:
    """Show every chart of this process in the two forms."""
    alt.renderers.register("notebook", render)
    alt.renderers.enable("notebook")
