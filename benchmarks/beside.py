"""PyTorch's nn.Transformer, trained for some minutes on the text that this program learns from.

It has the sizes of a preset and what the paper has: sinusoids, Adam, and Equation (3) with the
factor and the warmup of the document's own training. What the library leaves to its user is as
plain as a reader of its manual would write it.
"""

import itertools
import time
from typing import Any

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from benchmarks.million import PAPER
from benchmarks.peers import TorchTransformer
from benchmarks.shared import epoch
from the_annotated_transformer import BOS, EOS, PAD, Pair, make_batch
from translator.corpus import encode_pairs
from translator.scoring import score
from translator.settings import Settings, make_settings
from translator.sources import Corpus, load_pairs

AT_ONCE = 128  # sentences that are translated together


@torch.inference_mode()
def greedy(model: TorchTransformer, sources: list[list[int]]) -> list[list[int]]:
    """The most probable token at each step. The library keeps no keys: it reads all anew."""
    ids_by_row: dict[int, list[int]] = {}
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    for start in range(0, len(order), AT_ONCE):
        rows = order[start : start + AT_ONCE]
        pairs = [Pair([*sources[i], EOS], [BOS, EOS]) for i in rows]
        src = make_batch(pairs).src
        memory = model.core.encoder(model.embed(src), src_key_padding_mask=src == PAD)
        tgt = torch.full((len(rows), 1), BOS)
        # as long as in the document's `translate_lines`
        while not (tgt == EOS).any(1).all() and tgt.size(1) < src.size(1) + 50:
            tgt = torch.cat([tgt, next_token(model, memory, src, tgt)], 1)
        ids_by_row |= zip(rows, tgt[:, 1:].tolist(), strict=True)
    return [ids_by_row[i] for i in range(len(sources))]


def next_token(model: TorchTransformer, memory: Tensor, src: Tensor, tgt: Tensor) -> Tensor:
    """Target ids (B, T) to those that follow (B, 1)."""
    causal = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), dtype=torch.bool)
    x = model.core.decoder(
        model.embed(tgt), memory, tgt_mask=causal, tgt_is_causal=True,
        memory_key_padding_mask=src == PAD,
    )  # fmt: skip
    return (x[:, -1] @ model.table.weight.T).argmax(-1, keepdim=True)


def learned(
    vocab: int, pairs: list[Pair], settings: Settings, seconds: float
) -> tuple[TorchTransformer, float, int]:
    """The model after so many seconds of updates, its seconds, and their target tokens."""
    torch.manual_seed(settings.seed)
    model = TorchTransformer(settings, vocab).train()
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=True)
    sizes = settings.d_model, settings.factor, settings.warmup
    seeds = itertools.count(settings.seed)
    batches = (batch for seed in seeds for batch in epoch(pairs, settings.tokens_per_batch, seed))
    began = time.monotonic()
    tokens = 0
    for step, rows in enumerate(batches, 1):
        batch = make_batch(rows)
        optimizer.param_groups[0]["lr"] = tat.rate(step, *sizes)
        optimizer.zero_grad()
        (model(batch) / batch.ntokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        tokens += int(batch.ntokens)
        if (spent := time.monotonic() - began) >= seconds:
            break
    return model.eval(), spent, tokens


def trained(data: str, preset: str, changes: dict[str, Any], minutes: float) -> dict[str, Any]:
    """The figures of a row: a training, and the greedy scores on the validation set."""
    usual = PAPER | {"dropout": 0.1}
    settings = make_settings(preset, False, usual | changes)
    texts = list(Corpus(data).full_pairs("train"))
    tokenizer = tat.learn_bpe(texts, settings.bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    model, seconds, tokens = learned(len(tokenizer), pairs, settings, 60 * minutes)
    held = load_pairs(data, "val", "de", "en")
    ids = greedy(model, [tokenizer.encode(src, "de") for src, _ in held])
    lines = [tokenizer.decode(row) for row in ids]
    figures = {"seed": settings.seed, "minutes": round(seconds / 60, 3), "tokens": tokens}
    figures |= {"split": "val", "search": "greedy"}
    return figures | score(lines, [tgt for _, tgt in held])
