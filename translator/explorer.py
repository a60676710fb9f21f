"""The explorer: one HTML file that shows how a model translates a sentence, and runs the model if it is small enough.

The files in `explorer_page/` are the figure (`figure.html`, `figure.js`), the Transformer in JavaScript (`transformer.js`), and
a page around them (`page.html`). The document's web page shows the same figure.
"""

import base64
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import the_annotated_transformer as tat
from the_annotated_transformer import (
    EOS,
    LearnedPositions,
    MultiHeadedAttention,
    Transformer,
    Translator,
    attention_maps,
    evaluating,
    source_mask,
    target_mask,
)
from translator.architecture import check_export
from translator.captions import caption_corpus, token_links
from translator.decoding import greedy_decode, make_search, translate_lines
from translator.files import write_text
from translator.weights import weights_of

PARTS = Path(__file__).with_name("explorer_page")
LARGEST = 7_500_000  # bytes of a model in a page, in base64
SAMPLES = {  # sentences to start with; none of them is from a corpus
    "multi30k-de-en": [
        "Ein kleiner Junge spielt im Park mit einem Hund.",
        "Eine Frau, die ein rotes Kleid trägt, liest an einem See ein Buch.",
        "Ein Mann hebt einen Hund auf.",
        "Drei Kinder bauen am Strand eine große Burg aus Sand.",
        "Zwei Männer in blauen Jacken reparieren das Dach eines Hauses.",
        "Ein Hund springt über einen umgefallenen Baumstamm, während eine Katze zusieht.",
        "Ein alter Mann mit einem grauen Bart sitzt auf einer Bank und spielt mit seinem kleinen Hund.",
        "Die Bundeskanzlerin beantwortet die Fragen der Journalisten.",
    ],
}
NOTES = {  # what a shipped model knows, in the page's own words
    "multi30k-de-en": "This model has only ever read captions of photographs; of anything else it makes a caption.",
    "multi30k-en-de": "This model has only ever read captions of photographs; of anything else it makes a caption.",
}


def figure(about: dict[str, Any]) -> str:
    """The figure's template, its scripts and its content, for a page to contain once. Its own script calls the figure."""
    scripts = "".join(
        f"<script>\n{(PARTS / name).read_text('utf-8')}</script>\n" for name in ("transformer.js", "figure.js")
    )
    data = json.dumps(about, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")  # no "</script>" in it
    return (
        (PARTS / "figure.html").read_text("utf-8")
        + scripts
        + f'<script type="application/json" id="explorer-content">{data}</script>\n'
    )


def uniform(model: Transformer) -> None:
    """Raise ValueError if layers differ in what transformer.js reads only once: heads, norms, depth; or if there is a bias."""
    stacks = [model.encoder.layers, model.decoder.layers]
    layers = [layer for stack in stacks for layer in stack]
    heads = {module.h for module in model.modules() if isinstance(module, MultiHeadedAttention)}
    norms = {(sublayer.pre, sublayer.norm.eps) for layer in layers for sublayer in layer.sublayer}
    kinds = {type(embed.positions) for embed in (model.src_embed, model.tgt_embed)}
    if (
        max(map(len, (heads, norms, kinds))) > 1
        or {eps for _, eps in norms} != {1e-5}
        or len(stacks[0]) != len(stacks[1])
    ):
        raise ValueError("the layers of this model differ from each other")
    if model.generator.proj.bias is not None:
        raise ValueError("the output layer of this model has a bias")


def model_content(translator: Translator, name: str) -> dict[str, Any] | None:
    """A model as transformer.js reads it, weights in float16; None if JavaScript cannot run it or it is too large.

    Whole words need spaCy's rules, which are Python. A layer that is not the paper's is not known there.
    """
    model, tokenizer, _ = translator
    try:
        check_export(model)
        uniform(model)
    except ValueError:
        return None
    halves = {name: weight.detach().cpu().half().contiguous() for name, weight in weights_of(model).items()}
    finite = all(weight.isfinite().all() for weight in halves.values())
    if tokenizer.words or not finite or sum(2 * weight.numel() for weight in halves.values()) * 4 / 3 > LARGEST:
        return None
    numbers = torch.cat([weight.flatten() for weight in halves.values()]).numpy()
    planes = numbers.view("uint8").reshape(-1, 2).T  # the lower bytes, then the upper ones, which compress better
    first = model.encoder.layers[0]
    merges = json.loads(tokenizer.vocabulary.to_str())["model"]["merges"]
    config = {
        "N": len(model.encoder.layers),
        "d_model": model.src_embed.embeddings.table.embedding_dim,
        "h": first.self_attn.h,
        "norm": "pre" if first.sublayer[0].pre else "post",
        "positions": "learned" if isinstance(model.src_embed.positions, LearnedPositions) else "sinusoidal",
    }
    return {
        "name": name,
        "note": NOTES.get(name, ""),
        "config": config,
        "vocab": tokenizer.tokens(range(len(tokenizer))),
        "merges": [" ".join(merge) for merge in merges],
        "shapes": {name: list(weight.shape) for name, weight in halves.items()},
        "weights": base64.b64encode(gzip.compress(planes.tobytes(), mtime=0)).decode(),
    }


@torch.inference_mode()
def recorded(
    translator: Translator, sentence: str, search: Callable[..., torch.Tensor], top: int = 5
) -> dict[str, Any]:
    """What `attentionMaps` of transformer.js gives: all weights of a sentence and its translation, and each step's tokens."""
    model, tokenizer, (language, _) = translator
    found, known = attention_maps(translator, sentence, search), tokenizer.vocabulary.token_to_id
    src = torch.tensor([[*tokenizer.encode(sentence, language), EOS]], device=next(model.parameters()).device)
    tgt, chosen = (
        torch.tensor([[known(x) for x in side]], device=src.device) for side in (found.target, found.predicted)
    )
    with evaluating(model):
        p = model(src, tgt, source_mask(src), target_mask(tgt))[0].softmax(-1)  # (T, vocab)
    steps = []
    for row, token in zip(p, chosen[0], strict=True):
        values, ids = row.topk(min(top, len(row)))
        listed = zip(tokenizer.tokens(ids.tolist()), values.tolist(), strict=True)
        steps.append(
            {"likeliest": [{"token": t, "p": round(q, 6)} for t, q in listed], "chosen": round(float(row[token]), 6)}
        )
    maps = {
        kind: [[rounded(head) for head in layer] for layer in weights.tolist()] for kind, weights in found.maps.items()
    }
    return found._asdict() | {"maps": maps, "steps": steps, "nodes": None, "best": None}


def rounded(rows: list[list[float]]) -> list[list[float]]:
    """Weights with four decimals, which keep a page small."""
    return [[round(weight, 4) for weight in row] for row in rows]


def known_alignment(translator: Translator, sentence: str) -> dict[str, Any] | None:
    """The true links of a caption that the grammar wrote and of its reference, as tokens; None for any other sentence."""
    caption = next((caption for caption in caption_corpus() if caption.de == sentence.strip()), None)
    if caption is None or translator.languages != ("de", "en"):
        return None
    sides = [translator.tokenizer.encode(text, "") for text in (caption.de, caption.en)]
    source, target = (translator.tokenizer.tokens(ids) for ids in sides)
    links = sorted(token_links(caption, source, target))
    return {"source": [*source, "</s>"], "predicted": [*target, "</s>"], "links": links}


def content(translator: Translator, name: str, sentence: str, data: str = "") -> dict[str, Any]:
    """What the figure shows: a sentence, and the model itself or else its recorded translations; ValueError for a blank one.

    data: what the model was trained on; for captions of the grammar, the true alignment is shown as well.
    """
    if not sentence.strip():
        raise ValueError("the sentence is blank")
    about: dict[str, Any] = {"name": name, "sentence": sentence, "language": translator.languages[0]}
    if data == "captions" and not translator.tokenizer.words:
        about["alignment"] = known_alignment(translator, sentence)
    if model := model_content(translator, name):
        return about | {"model": model, "samples": SAMPLES.get(name, [])}
    searches = {"greedy": greedy_decode, "beam": make_search(tat.BEAM, tat.ALPHA)}
    return about | {"recorded": {kind: recorded(translator, sentence, search) for kind, search in searches.items()}}


def write_page(translator: Translator, name: str, sentence: str, out: Path, data: str = "") -> str:
    """Write the page of a sentence, and return its translation by the beam; `name` and `data` as in `content`.

    Raises ValueError for a blank sentence or a layer that the fast decoder does not know, OSError if the page cannot be
    written.
    """
    if not sentence.strip():
        raise ValueError("the sentence is blank")
    translation = translate_lines(translator, [sentence], make_search(tat.BEAM, tat.ALPHA))[0]  # refuses unknown layers
    page = (PARTS / "page.html").read_text("utf-8")
    write_text(out, page.replace("<!-- figure -->", figure(content(translator, name, sentence, data))))
    return translation
