"""The explorer: a page that shows how a model translates, and runs it if it is small.

The files in `explorer_page/` are the figure (`figure.html`), a page around it (`page.html`), and
its script (`explain.js`), which `make format` puts together out of `blog/scripts/`. The document's
web page shows the same figure.
"""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import torch

import since_2017 as since
import the_annotated_transformer as tat
from the_annotated_transformer import Transformer, Translator
from translator.export import check_papers
from translator.files import Refused
from translator.search import Search

PARTS = Path(__file__).with_name("explorer_page")
FILES = "figure.html", "panels.css"
LARGEST = 7_500_000  # bytes of a model in a page, in base64
# what is added to embeddings, and what model/layers.js calls it
ADDED = {tat.LearnedPositions: "learned", since.NoPositions: "none"}
# by model: sentences to start with, and what it knows
ABOUT = json.loads((PARTS / "models.json").read_text("utf-8"))


def figure(content: dict[str, Any]) -> str:
    """The figure for a page to contain once: its template, style and content."""
    # The page's script, which comes after it, draws the figure.
    html, style = ((PARTS / name).read_text("utf-8") for name in FILES)
    # The model's numbers are most of the page. They have an element of their own, so that the rest
    # can be read before they are unpacked.
    weights = ""
    if model := content.get("model"):  # its weights are read by the worker alone
        weightless = {name: value for name, value in model.items() if name != "weights"}
        content = content | {"model": weightless}
        tag = '<script type="application/gzip" id="explorer-weights">'
        weights = f"{tag}{model['weights']}</script>\n"
    data = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    data = data.replace("<", "\\u003c")  # no "</script>" in it
    data = f'<script type="application/json" id="explorer-content">{data}</script>'
    return f'{html}<style id="style-panels">\n{style}</style>\n{data}\n{weights}'


def uniform(model: Transformer) -> bool:
    """Whether all layers are alike in what the scripts read once: heads, norms, depth.

    And the output matrix has no bias.
    """
    # the scripts read these of the first layer, and compute all layers by them
    stacks = [model.encoder.layers, model.decoder.layers]
    layers = [layer for stack in stacks for layer in stack]
    heads = {module.h for module in model.modules() if isinstance(module, tat.MultiHeadedAttention)}
    sublayers = [sublayer for layer in layers for sublayer in layer.sublayer]
    norms = {(isinstance(sublayer, tat.PostNorm), sublayer.norm.eps) for sublayer in sublayers}
    kinds = {type(embed.positions) for embed in (model.src_embed, model.tgt_embed)}
    attentions = {type(layer.self_attn) for layer in layers}
    one_kind = max(map(len, (heads, norms, kinds, attentions))) == 1
    alike = one_kind and len(stacks[0]) == len(stacks[1])
    return alike and {eps for _, eps in norms} == {1e-5} and model.generator.proj.bias is None


def shape_of(model: Transformer) -> dict[str, Any]:
    """What the scripts have to know of a model before they read its weights."""
    first = model.encoder.layers[0]
    positions = model.src_embed.positions
    added = (name for kind, name in ADDED.items() if isinstance(positions, kind))
    return {
        "N": len(model.encoder.layers),
        "d_model": model.src_embed.embeddings.table.embedding_dim,
        "h": first.self_attn.h,
        "norm": "post" if isinstance(first.sublayer[0], tat.PostNorm) else "pre",
        "positions": next(added, "sinusoidal"),
        "rotary": isinstance(first.self_attn, since.RotaryAttention),
    }


def model_content(translator: Translator, name: str) -> dict[str, Any] | None:
    """A model as model/translator.js reads it, weights in float16.

    None if JavaScript cannot run it or it is too large. Whole words need spaCy's rules, which are
    Python. A layer that is not the paper's is not known there.
    """
    # What the page runs are the paper's layers in JavaScript: whatever computes otherwise, or is
    # too large to be sent, or needs Python to cut its words, is recorded instead.
    model, tokenizer, _ = translator
    try:
        check_papers(model)
    except Refused:
        return None
    named = model.named_parameters()
    halves = {name: weight.detach().cpu().half().contiguous() for name, weight in named}
    finite = all(weight.isfinite().all() for weight in halves.values())
    size = sum(2 * weight.numel() for weight in halves.values()) * 4 / 3
    if not uniform(model) or tokenizer.words or not finite or size > LARGEST:
        return None
    numbers = torch.cat([weight.flatten() for weight in halves.values()]).numpy()
    # the lower bytes, then the upper ones, which compress better
    planes = numbers.view("uint8").reshape(-1, 2).T
    merges = json.loads(tokenizer.vocabulary.to_str())["model"]["merges"]
    return {
        "name": name,
        "note": ABOUT.get(name, {}).get("note", ""),
        "config": shape_of(model),
        "vocab": tokenizer.tokens(range(len(tokenizer))),
        "merges": [" ".join(merge) for merge in merges],
        "shapes": {name: list(weight.shape) for name, weight in halves.items()},
        "weights": base64.b64encode(gzip.compress(planes.tobytes(), mtime=0)).decode(),
    }


@torch.inference_mode()
def recorded(search: Search, sentence: str, top: int = 5) -> dict[str, Any]:
    """What `attentionMaps` of model/translator.js gives: all weights, and each step's tokens."""
    model, tokenizer, (language, _) = search.translator
    # once more over the whole translation, for the probabilities of what else might have been
    # written
    record = tat.attention_maps(search.translator, sentence, search.decode)
    ids_by_token = {token: i for i, token in enumerate(tokenizer.tokens(range(len(tokenizer))))}
    source = [*tokenizer.encode(sentence, language), tat.EOS]
    src = torch.tensor([source], device=next(model.parameters()).device)
    sides = record.target, record.predicted
    tgt, chosen = (
        torch.tensor([[ids_by_token[x] for x in side]], device=src.device) for side in sides
    )
    with tat.evaluating(model):
        p = model(src, tgt, tat.source_mask(src), tat.target_mask(tgt))[0].softmax(-1)  # (T, vocab)
    steps = []
    for row, token in zip(p, chosen[0], strict=True):
        values, ids = row.topk(min(top, len(row)))
        listed = zip(tokenizer.tokens(ids.tolist()), values.tolist(), strict=True)
        listed = [{"token": name, "p": round(share, 6)} for name, share in listed]
        steps.append({"likeliest": listed, "chosen": round(float(row[token]), 6)})
    # rounded, which keeps a page small
    maps = {kind: w.double().round(decimals=4).tolist() for kind, w in record.maps.items()}
    return record._asdict() | {"maps": maps, "steps": steps, "nodes": None, "best": None}


def content(translator: Translator, name: str, sentence: str) -> dict[str, Any]:
    """What the figure shows: a sentence, and the model itself or else its recorded translations."""
    language = translator.languages[0]
    facts: dict[str, Any] = {"name": name, "sentence": sentence, "language": language}
    if model := model_content(translator, name):
        notes = ABOUT.get(name, {})
        sentences = {kind: notes.get(kind, []) for kind in ("samples", "provocations")}
        return facts | {"model": model, **sentences}
    searches = {"greedy": Search(translator), "beam": Search(translator, tat.BEAM)}
    records = {kind: recorded(search, sentence) for kind, search in searches.items()}
    return facts | {"recorded": records}


def page(translator: Translator, name: str, sentence: str) -> tuple[str, str]:
    """A sentence's page in HTML, and the beam's translation; raises as `Search` does."""
    notes: list[str] = []
    translation = (search := Search(translator, tat.BEAM)).translate([sentence], notes.append)[0]
    if search.lost:
        raise Refused(notes[-1])
    facts = content(translator, name, sentence)
    html, script = ((PARTS / name).read_text("utf-8") for name in ("page.html", "explain.js"))
    body = f"{figure(facts)}<script>\n{script}</script>\n"
    return html.replace("<!-- figure -->", body), translation
