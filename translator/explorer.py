"""The explorer: a page that shows all attention weights of one sentence."""

import json
from pathlib import Path

from the_annotated_transformer import Translator, attention_maps
from translator.files import write_text

PAGE = Path(__file__).with_name("explorer.html")
EMPTY = '<script type="application/json" id="attention">{}</script>'


def write_page(translator: Translator, name: str, sentence: str, out: Path) -> str:
    """Write the page of a sentence and its greedy translation, and return the translation; `name` is the model's name.

    Raises ValueError for a blank sentence, OSError if the page cannot be written.
    """
    maps = attention_maps(translator, sentence)
    rounded = {
        kind: [[[[round(w, 4) for w in row] for row in head] for head in layer] for layer in weights.tolist()]
        for kind, weights in maps.maps.items()
    }
    content = maps._asdict() | {"maps": rounded, "sentence": sentence, "model": name}
    safe = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    write_text(out, PAGE.read_text(encoding="utf-8").replace(EMPTY, EMPTY.replace("{}", safe)))
    return maps.translation
