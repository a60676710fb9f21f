"""How sure a model is of what it wrote, and which source tokens it looked at for each token: `translate --json`.

Both come from one pass over a source and its finished translation, all positions at once, as in training.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import the_annotated_transformer as tat
from the_annotated_transformer import EOS, PAD, Translator, length_penalty
from translator.files import refusing
from translator.search import Search


@torch.inference_mode()
def look_back(translator: Translator, rows: list[list[int]], outputs: list[list[int]]) -> list[tuple[Tensor, Tensor]]:
    """Of each source and translation (ids): log-probabilities of its tokens (T), and cross-attention (T, S), EOS included.

    The attention is the mean over all heads of all layers, in the row that predicts a token: of all ways to read an
    alignment from attention that were measured, it has the lowest error rate (benchmarks/results/alignment.jsonl).
    """
    model, src, ids = translator.model, tat.pad_rows(rows), tat.pad_rows(outputs)
    device = next(model.parameters()).device
    src, tgt, predicted = src.to(device), ids[:, :-1].to(device), ids[:, 1:].to(device)
    mask, real = tat.source_mask(src), predicted != PAD
    with tat.evaluating(model), refusing("no alignment", ValueError), tat.recording(model) as weights:
        x = model.decode(model.encode(src, mask), mask, tgt, tat.target_mask(tgt))  # (B, T, d_model)
        cross = torch.stack([weights[layer.src_attn].mean(1) for layer in model.decoder.layers]).mean(0)  # (B, T, S)
    log_p = predicted.new_zeros(predicted.shape, dtype=torch.float)
    logits = (model.generator.logits(part).float() for part in x[real].split(256))  # padding needs none
    parts = zip(logits, predicted[real].split(256), strict=True)
    log_p[real] = torch.cat([row.log_softmax(-1).gather(1, y.unsqueeze(1))[:, 0] for row, y in parts])
    sizes = zip(rows, real.sum(1).tolist(), strict=True)
    return [(log_p[i, :T].cpu(), cross[i, :T, : len(row)].cpu()) for i, (row, T) in enumerate(sizes)]


def links(cross: Tensor, predicted: list[int]) -> list[list[int]]:
    """Cross-attention (T, S) and ids (T) to [source, target] places; EOS has none, nor has a token that looks at it most."""
    places, last = cross.argmax(-1).tolist(), cross.size(1) - 1
    return [[i, j] for j, (i, token) in enumerate(zip(places, predicted, strict=True)) if i < last and token != EOS]


def hypotheses(search: Search, rows: list[list[int]]) -> list[dict[str, Any]]:
    """What is known of the translations of some sources: of the best one, and with more than one of all, `hypotheses`."""
    tokenizer, found = search.translator.tokenizer, search.decode_rows(rows)
    ended = [[ids for ids in group if ids[1:2] not in ([], [PAD])] or group[:1] for group in found]
    pairs = [(row, ids) for row, group in zip(rows, ended, strict=True) for ids in group]
    seen, results = iter(look_back(search.translator, *map(list, zip(*pairs, strict=True)))), []
    for row, group in zip(rows, ended, strict=True):
        each = [described(search, ids, *next(seen)) for ids in group]
        more = {"hypotheses": each} if len(found[0]) > 1 else {}
        results.append({"source_tokens": tokenizer.tokens(row)} | each[0] | more)
    return results


def described(search: Search, ids: list[int], log_p: Tensor, cross: Tensor) -> dict[str, Any]:
    """A translation with its tokens: natural logarithms of their probabilities, the mean, and which source token each is from.

    The names are those of CTranslate2 (`tokens`, `log_probs`, `score`: the sum, divided by the length penalty) and of fairseq
    (`alignment`: places of a source and a target token).
    """
    tokenizer, rounded = search.translator.tokenizer, [round(value, 4) for value in log_p.tolist()]
    predicted = ids[1 : len(log_p) + 1]
    about = {"translation": tokenizer.decode(ids), "tokens": tokenizer.tokens(predicted)}
    about |= {"log_probs": rounded, "mean_log_prob": round(float(log_p.mean()), 4)}
    score = float(log_p.sum() / length_penalty(len(log_p), search.alpha))
    return about | {"score": round(score, 4), "alignment": links(cross, predicted)}


def judged(search: Search, lines: list[str], tell: Callable[[str], None], first: int = 1) -> list[dict[str, Any]]:
    """What `translate --json` prints of each line; a blank one has an empty translation and nothing else."""
    found = search.each(lines, lambda rows: hypotheses(search, rows), tell, first)
    return [{"source": line} | (one or {"translation": ""}) for line, one in zip(lines, found, strict=True)]
