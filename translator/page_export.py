"""A translator in one file: what `export --to page` writes.

The page has a field and the translation, which it computes itself, greedily, without a network. Its
script is `blog/scripts/translate.js`; `make format` puts it together and writes it beside the page.
"""

import base64
import gzip
import html
import json
import re
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import since_2017 as since
from the_annotated_transformer import Translator
from translator.explorer import ABOUT, LARGEST, model_content
from translator.export import check_papers
from translator.files import MODEL_FILES, Refused, digest_of, read_json, refusing
from translator.run_folder import token_store

PAGE = Path(__file__).with_name("translator_page")
# codes of languages that are written from right to left
RIGHT_TO_LEFT = {"ar", "ckb", "dv", "fa", "he", "nqo", "ps", "sd", "syr", "ug", "ur", "yi"}
LEARNED = (
    "It has learned from translated sentences ({source}), and knows nothing else: "
    "of other text it makes something, and doesn’t always know that it is wrong."
)
SCORE = (
    "On {sentences} sentences ({data}, {split}), it has {bleu} ± {width} of 100 points (BLEU): "
    "100 would be that text’s own translation, word for word."
)
UNMEASURED = "Nobody has measured it yet."
ROUNDED = "This was measured before its numbers were rounded, which makes the page smaller."
# all texts of a page; `lang` is their language
WORDS = {
    "lang", "One moment …", "It is unsure of the underlined words.", "About this translator",
    "It works without a network. What you write stays on this device.",
    "A sentence is too long: end it earlier, with a full stop or a new line.",
    "It has never seen: {letters}", "This browser cannot translate: {message}",
    "This page needs JavaScript.", "What it knows", LEARNED, "How good it is", SCORE, UNMEASURED,
    ROUNDED, "Made on",
}  # fmt: skip


@dataclass
class Texts:
    """What a page says in its maker's words, and otherwise in the program's."""

    title: str | None = None
    names: tuple[str, str] | None = None  # of the source and the target language
    note: str | None = None  # what the translator has learned from
    words: dict[str, str] = field(default_factory=dict)  # a text of `WORDS` to another

    def say(self, text: str, **values: str) -> str:
        """A text in the page's language; {name} in it is filled in with a value."""
        return re.sub(
            r"\{(\w+)\}", lambda name: values.get(name[1], name[0]), self.words.get(text, text)
        )


def page(folder: Path, translator: Translator, texts: Texts, score: Path | None, type_: str) -> str:
    """The page of a model folder; `score` is a file of `evaluate --json`.

    type_: of its weights, float16 or int8.
    Raises Refused for another type, a model that JavaScript can't run, or a score of other weights.
    """
    if type_ not in ("float16", "int8"):
        raise Refused(f"--type {type_}: a page has float16 or int8")
    content = page_content(folder, translator, type_)
    weights = content.pop("weights")
    source, target = texts.names or translator.languages
    title = texts.title or f"{source} – {target}"
    card = {
        "What it knows": knowledge(folder, translator, texts),
        "How good it is": quality(folder, score, type_, texts),
        "Made on": date.today().isoformat(),
    }
    rows = [
        f"<dt>{html.escape(texts.say(term))}</dt><dd>{html.escape(text)}</dd>"
        for term, text in card.items()
    ]
    page_data = {"title": title, "words": texts.words, "model": content}
    fields = {text: html.escape(replacement) for text, replacement in texts.words.items()}
    fields |= {
        "LANGUAGE": html.escape(texts.words.get("lang", "")) if texts.words else "en",
        "TITLE": html.escape(title),
        "SOURCE": html.escape(source),
        "TARGET": html.escape(target),
        "SOURCE_ATTRIBUTES": attributes(translator.languages[0]),
        "TARGET_ATTRIBUTES": attributes(translator.languages[1]),
        "CARD": f'<dl dir="auto">{"".join(rows)}</dl>',
        "CONTENT": json.dumps(page_data, ensure_ascii=False).replace("<", "\\u003c"),
        "WEIGHTS": weights,
        "SCRIPT": (PAGE / "translate.js").read_text("utf-8"),
    }
    # in one pass: what stands in a field, such as a word in capitals, is filled in nowhere
    template = (PAGE / "page.html").read_text("utf-8")
    names = r"(?<=>)[A-Z][^<>\n]*(?=<)|\b[A-Z_]{4,}\b"  # an element's text, or a field
    return re.sub(names, lambda name: fields.get(name[0], name[0]), template)


def attributes(language: str) -> str:
    """The language of a field and its direction of writing."""
    direction = "rtl" if re.split("[-_]", language)[0].lower() in RIGHT_TO_LEFT else "ltr"
    return f'lang="{html.escape(language)}" dir="{direction}"'


def read_words(path: Path) -> dict[str, str]:
    """The page's words in another language; Refused for what isn't among its words."""
    words = read_json(path)
    for text, replacement in words.items():
        if text not in WORDS or not isinstance(replacement, str):
            texts = json.dumps(dict.fromkeys(sorted(WORDS), ""), ensure_ascii=False)
            raise Refused(f"{path}: {text!r} is no text of the page, which has: {texts}")
        if unknown := {*re.findall(r"\{\w+\}", replacement)} - {*re.findall(r"\{\w+\}", text)}:
            raise Refused(f"{path}: nothing is put in the place of {min(unknown)} of {text!r}")
    return {text: replacement for text, replacement in words.items() if replacement}


def knowledge(folder: Path, translator: Translator, texts: Texts) -> str:
    """One sentence on what a model has learned from, and a warning."""
    if texts.note:
        return texts.say(LEARNED, source=texts.note)
    if note := ABOUT.get(folder.name, {}).get("note"):
        return note
    source = Path(str(read_json(folder / "config.json").get("data", ""))).name or folder.name
    store = token_store(folder, "train", translator.tokenizer)
    if store.is_written:
        source += f": {spaced(len(store))}"
    return texts.say(LEARNED, source=source)


def spaced(number: int) -> str:
    """A number with spaces, which no language reads as a decimal point."""
    return f"{number:,}".replace(",", "\u00a0")


def quality(folder: Path, score: Path | None, type_: str, texts: Texts) -> str:
    """The score that `evaluate --json` has printed into a file, in words."""
    if score is None:
        return texts.say(UNMEASURED)
    row = read_json(score)
    with refusing(f"{score}: not what evaluate --json prints", KeyError, TypeError, ValueError):
        if row["weights"] != digest_of(folder / MODEL_FILES[2]):
            raise Refused(f"{score}: the score of other weights than {folder}; evaluate these")
        if row["search"] != "greedy":
            raise Refused(
                f"{score}: measured with {row['search']}, and a page translates greedily; "
                "evaluate with --beam 1"
            )
        text = texts.say(
            SCORE,
            sentences=spaced(row["sentences"]),
            data=Path(row["data"]).name,
            split=row["split"],
            bleu=f"{row['bleu']:.1f}",
            width=f"{row['bleu_half_width']:.1f}",
        )
    return f"{text} {texts.say(ROUNDED)}" if type_ == "int8" else text


def page_content(folder: Path, translator: Translator, type_: str) -> dict[str, Any]:
    """A model as model/tensors.js reads it; Refused if it can't run it."""
    if isinstance(translator.model.src_embed.positions, since.SplitPositions):
        raise Refused(f"{folder}: a model that Marian trained; a page has none of its layers")
    if translator.tokenizer.words:
        raise Refused(f"{folder}: whole words need spaCy's rules, and a page has none of them")
    check_papers(translator.model)
    content = model_content(translator, folder.name)
    if content is None:
        raise Refused(
            f"{folder}: a page takes models of up to {LARGEST / 1e6:g} MB in float16, "
            "whose layers have all the same heads and norms"
        )
    return (
        content | in_rows(dict(translator.model.named_parameters())) if type_ == "int8" else content
    )


def in_rows(parameters: dict[str, Tensor]) -> dict[str, Any]:
    """Matrices in 8 bits, with a scale for each row; everything else in float16."""
    halves: dict[str, np.ndarray] = {}
    bytes_by_name: dict[str, np.ndarray] = {}
    for name, parameter in parameters.items():
        numbers = parameter.detach().cpu().float().numpy()
        if numbers.ndim < 2:
            halves[name] = numbers.astype(np.float16)
            continue
        scales = np.abs(numbers).max(1) / 127
        # no scale is zero, or below float16's smallest numbers
        halves[f"{name}.scale"] = np.maximum(scales, 1e-5).astype(np.float16)
        exact = numbers / halves[f"{name}.scale"].astype(np.float32)[:, None]
        bytes_by_name[name] = exact.round().clip(-127, 127).astype(np.int8)
    # the lower bytes of all numbers, then the upper ones, which are alike and shrink more
    numbers = np.concatenate([array.ravel() for array in halves.values()])
    planes = numbers.view(np.uint8).reshape(-1, 2).T.tobytes()
    packed = gzip.compress(
        planes + b"".join(map(np.ndarray.tobytes, bytes_by_name.values())), mtime=0
    )
    return {
        "shapes": {name: list(array.shape) for name, array in halves.items()},
        "rows": {name: list(array.shape) for name, array in bytes_by_name.items()},
        "weights": base64.b64encode(packed).decode(),
    }
