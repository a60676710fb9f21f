"""Decoding as fast as PyTorch allows: greedy and beam search with all the ideas of Part 5 of the document.

All sentences of a batch advance together. A sentence that has ended leaves the batch, and its keys and values go with it.
The beams of a sentence share the keys and values of their source. A finished place in the beam no longer has a row.
"""

import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from the_annotated_transformer import (
    BOS,
    EOS,
    PAD,
    DecoderLayer,
    Transformer,
    Translator,
    evaluating,
    in_threads,
    largest,
    length_penalty,
    pad_rows,
    padded_logits,
    source_mask,
    split_heads,
)
from translator.architecture import check_decoder
from translator.compiled import CompiledDecoder, in_use


def make_search(beam: int, alpha: float) -> Callable[..., Tensor]:
    """Beam search with these settings, or greedy decoding for one beam; raises ValueError for impossible ones."""
    if not 1 <= beam <= 1000:
        raise ValueError(f"--beam must be at least 1 and at most 1000, but it is {beam}")
    if not 0 <= alpha <= 10:
        raise ValueError(f"--alpha must be at least 0 and at most 10, but it is {alpha}")
    return greedy_decode if beam == 1 else functools.partial(beam_search, beam=beam, alpha=alpha)


class Memory:
    """Keys or values of earlier positions, (rows, h, t, d), which grow by one position per step.

    Their tensor has room for more positions than there are, so that most steps write one position and copy nothing. When
    it is full, it doubles.
    """

    def __init__(self) -> None:
        self.room: Tensor | None = None  # (rows, h, at least t, d)
        self.length = 0

    def extend(self, new: Tensor, rows: Tensor | None = None) -> Tensor:
        """Add new (rows, h, 1, d), after taking the given rows in the given order (None: all, as they are); returns all."""
        t, self.length = self.length, self.length + 1
        if self.room is None:
            self.room = new
        elif rows is not None or t == self.room.size(2):
            old, full = self.room[:, :, :t], t == self.room.size(2)
            capacity = max(16, 2 * t) if full else self.room.size(2)
            self.room = new.new_empty(*new.shape[:2], capacity, new.size(3))
            if rows is None:
                self.room[:, :, :t] = old
            elif old.device.type == "cpu":  # choosing and copying at once halves the work
                torch.index_select(old, 0, rows, out=self.room[:, :, :t])
            else:
                self.room[:, :, :t] = old.index_select(0, rows)
        self.room[:, :, t : t + 1] = new
        return self.room[:, :, : t + 1]


class CachedLayer:
    """A decoder layer that takes one position at a time and keeps the keys and values of earlier ones and of the source.

    Only the two attentions are reimplemented here; the rest is the layer's own code.
    """

    def __init__(self, layer: DecoderLayer, memory: Tensor, mask: Tensor | None):
        own, cross = layer.self_attn, layer.src_attn
        self.layer, self.mask = layer, mask  # mask (B, 1, 1, S), 0 or -inf
        self.weight = torch.cat([W.weight.t() for W in (own.W_q, own.W_k, own.W_v)], dim=1)  # (d_model, ...)
        self.sizes = [W.out_features for W in (own.W_q, own.W_k, own.W_v)]
        self.past = Memory(), Memory()  # keys and values so far
        self.rows: Tensor | None = None  # which of these rows continue, in which order; None: all, as they are
        self.source = [split_heads(W(memory), cross.h).contiguous() for W in (cross.W_k, cross.W_v)]  # (B, h, S, ...)

    def __call__(self, x: Tensor, live: Tensor | None = None) -> Tensor:
        """x (rows, d_model) at the next position to the layer's output there; `CachedDecoder.step` explains `live`."""
        x = self.layer.sublayer[0](x, self.own)
        x = self.layer.sublayer[1](x, lambda x: self.cross(x, live))
        return self.layer.sublayer[2](x, self.layer.feed_forward)

    def own(self, x: Tensor) -> Tensor:
        """Self-attention of the new position to itself and to the earlier ones; its key and value join theirs."""
        attn = self.layer.self_attn
        Q, *new = (y.view(len(x), attn.h, 1, -1) for y in (x @ self.weight).split(self.sizes, dim=-1))
        past = [memory.extend(y, self.rows) for memory, y in zip(self.past, new, strict=True)]
        self.rows = None
        return attn.W_o(F.scaled_dot_product_attention(Q, *past).flatten(1))

    def cross(self, x: Tensor, live: Tensor | None) -> Tensor:
        """Attention of each row to its source."""
        attn, Q = self.layer.src_attn, self.layer.src_attn.W_q(x)
        if live is not None:  # one place for each row, the other places empty
            Q = Q.new_zeros(*live.shape, Q.size(-1)).masked_scatter(live.unsqueeze(-1), Q)
        Q = split_heads(Q.view(len(self.source[0]), -1, Q.size(-1)), attn.h)  # (sources, h, places, d_k)
        found = F.scaled_dot_product_attention(Q, *self.source, attn_mask=self.mask).transpose(1, 2).flatten(2)
        return attn.W_o(found.flatten(0, 1) if live is None else found[live])


class CachedDecoder:
    """The decoder, one token of each row at a time; every search uses it. Several rows may share a source."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor, beam: int = 0):
        memory, self.model, self.length, self.beam = model.encode(src, src_mask), model, 0, beam
        closed = (src_mask == 0).expand(len(src), 1, -1).unsqueeze(1)  # (B, 1, 1, S)
        mask = memory.new_zeros(closed.shape).masked_fill(closed, -torch.inf) if closed.any() else None
        self.layers = [CachedLayer(layer, memory, mask) for layer in model.decoder.layers]
        self.logits = padded_logits(model.generator)

    @torch.no_grad()
    def step(self, symbols: Tensor, live: Tensor | None = None) -> Tensor:
        """The next token of each row (rows) to the logits of the one after it: (rows, V rounded up to a multiple of 64).

        The logits have no gradients and are -inf beyond V. live (sources, places) tells which places of each source have a
        row, in this order; None: every source has the same number of rows.
        """
        live = None if live is None or live.all() else live
        x = self.model.tgt_embed(symbols.unsqueeze(1), self.length).squeeze(1)  # (rows, d_model)
        for layer in self.layers:
            x = layer(x, live)
        self.length += 1
        return self.logits(self.model.decoder.norm(x))

    def likeliest(self, tokens: Tensor, live: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """`step`, and then the log-probabilities and ids of the likeliest tokens: (rows, at most beam) both.

        Greedy decoding, beam 0, needs no log-probabilities and gets logits.
        """
        logits = self.step(tokens, live)
        return likeliest(logits, self.beam) if self.beam else tuple(logits.max(-1, keepdim=True))

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Continue with these rows, in this order, and with these sources (None: with all)."""
        for layer in self.layers:
            layer.rows = rows if layer.rows is None else layer.rows[rows]
            if sources is not None:
                layer.source = [x.index_select(0, sources) for x in layer.source]
                layer.mask = None if layer.mask is None else layer.mask[sources]


def start(model: Transformer, src: Tensor, src_mask: Tensor, beam: int = 0) -> CachedDecoder | CompiledDecoder:
    """A decoder at its first position: with the compiled step if there is one for this beam (0: greedy), else the eager one."""
    call = in_use(model, beam)
    return CompiledDecoder(model, src, src_mask, call) if call else CachedDecoder(model, src, src_mask, beam)


@torch.inference_mode()
def greedy_decode(
    model: Transformer,
    src: Tensor,
    src_mask: Tensor,
    max_len: int,
    start_symbol: int = BOS,
    end_symbol: int | None = EOS,
    pad: int = PAD,
) -> Tensor:
    """The likeliest token at each step: ids (B, at most max_len), start_symbol first, `pad` after end_symbol.

    src (B, S), src_mask (B or 1, 1, S). Stops when every sentence has ended; if end_symbol is None, only at max_len.
    """
    with evaluating(model):
        decoder = start(model, src, src_mask)
        ys = torch.full((len(src), max_len), pad, device=src.device)
        ys[:, 0], going = start_symbol, torch.arange(len(src), device=src.device)  # the sentences that have not ended
        for t in range(1, max_len):
            best = decoder.likeliest(ys[going, t - 1])[1][:, 0]
            ys[going, t] = best
            if end_symbol is None:
                continue
            rows = (best != end_symbol).nonzero().flatten()
            if len(rows) == 0:
                return ys[:, : t + 1]
            if len(rows) < len(going):
                going = going[rows]
                decoder.select(rows, rows)
    return ys


def likeliest(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The log-probabilities and ids of the k likeliest tokens in each row of logits (R, V): both (R, at most k)."""
    count = 64 if logits.device.type == "cpu" else len(logits)  # what few rows give is read while still in the cache
    parts = [largest(rows.float().log_softmax(-1), k) for rows in logits.split(count)]
    values, symbols = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(symbols)


@torch.inference_mode()
def beam_search(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int = 4, alpha: float = 0.6
) -> Tensor:
    """The best translation that beam search finds: ids (B, at most max_len), BOS first, PAD after EOS (Section 6.1).

    src (B, S), src_mask (B or 1, 1, S). max_len holds for sources without padding. A source with n padded positions gets n
    tokens fewer, as if it were alone, but at least one. Raises ValueError for a beam below 1 or an alpha out of range.
    """
    if beam < 1 or not 0 <= alpha <= 10:  # a larger alpha overflows
        raise ValueError(f"the beam must be at least 1 and alpha from 0 to 10, but they are {beam} and {alpha}")
    device, neg = src.device, -torch.inf
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(len(src))).clamp(min=2)  # of each output, BOS included
    best, results = torch.full((len(src),), neg, device=device, dtype=torch.float), [[BOS]] * len(src)
    places, open_places = torch.arange(beam, device=device), torch.full((len(src), 1), beam, device=device)
    with evaluating(model):
        decoder, going = start(model, src, src_mask, beam), torch.arange(len(src), device=device)
        log_p = torch.where(places > 0, neg, 0.0).float().repeat(len(src), 1)  # (B, beam); at first one beginning each
        live, ys = log_p > neg, torch.full((len(src), 1), BOS, device=device)  # each has a row of tokens, (rows, t)
        for t in range(1, max_len):
            step, symbols = decoder.likeliest(ys[:, -1], live)  # (rows, at most beam)
            scores = log_p.new_full((*live.shape, step.size(1)), neg)
            scores[live] = log_p[live].unsqueeze(1) + step
            log_p, found = scores.flatten(1).topk(beam)  # (B, beam), best first
            parents = (live.flatten().cumsum(0).view_as(live) - 1).gather(1, found // step.size(1))  # their rows
            symbols = symbols[parents, found % step.size(1)]
            ys = torch.cat((ys[parents], symbols.unsqueeze(-1)), dim=-1)  # (B, beam, t + 1)
            alive = (places < open_places) & (log_p > neg)
            ended = alive & ((symbols == EOS) | (t + 1 >= limit[going]).unsqueeze(1))
            score, place = (log_p / length_penalty(t, alpha)).masked_fill(~ended, neg).max(1)
            for i in (score > best[going]).nonzero().flatten().tolist():
                best[going[i]], results[going[i]] = score[i], ys[i, place[i]].tolist()
            log_p, open_places = log_p.masked_fill(ended | ~alive, neg), open_places - ended.sum(1, keepdim=True)
            rows = (log_p.amax(1) / length_penalty(limit[going] - 1, alpha) > best[going]).nonzero().flatten()
            if len(rows) == 0:  # no continuation can score higher
                break
            log_p, going, open_places, ys, parents = (x[rows] for x in (log_p, going, open_places, ys, parents))
            decoder.select(parents[log_p > neg], rows if len(rows) < len(live) else None)
            live, ys = log_p > neg, ys[log_p > neg]
    return pad_rows(results).to(device)


FAR = 500  # tokens; hardly any corpus has sentences that long, so hardly any model can translate one


def translate_lines(
    translator: Translator, lines: list[str], search: Callable[..., Tensor] = greedy_decode, batch_size: int = 128,
    tell: Callable[[str], None] = lambda text: None, first: int = 1,
) -> list[str]:  # fmt: skip
    """One translation for each line, in order, by greedy decoding or another search.

    A line of more than FAR tokens is decoded alone and greedily, because a beam would take minutes; `tell` gets a warning
    with its number, counted from `first`.
    Raises ValueError naming a layer that the decoder does not know.
    """
    check_decoder(translator.model, CachedLayer, padded_logits)
    model, tokenizer, (language, _) = translator
    device = next(model.parameters()).device
    sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
    order = sorted((i for i, line in enumerate(lines) if line.strip()), key=lambda i: -len(sources[i]))  # longest first
    far = [i for i in order if len(sources[i]) > FAR]
    for i in far:
        tell(
            f"line {first + i} has {len(sources[i]):,} tokens, far more than a sentence; it is translated greedily, and badly"
        )
    starts = range(len(far), len(order), batch_size)
    batches = [[i] for i in far] + [order[start : start + batch_size] for start in starts]

    def decode(rows: list[int]) -> list[list[int]]:
        src = pad_rows([sources[i] for i in rows]).to(device)
        return (search if src.size(1) <= FAR else greedy_decode)(
            model, src, source_mask(src), max_len=src.size(1) + 50
        ).tolist()

    results = [""] * len(lines)
    with evaluating(model):
        for rows, decoded in zip(batches, in_threads(decode, batches, device), strict=True):
            for i, ids in zip(rows, decoded, strict=True):
                results[i] = tokenizer.decode(ids[: len(sources[i]) + 50])  # as if it had been alone
    return results
