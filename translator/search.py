"""Decoding by calling the model, a position at a time: greedy and beam search, and many lines.

    python -m translator.search [MODEL]     step by step equals at once: part by part, with times

All sentences of a batch advance together. A sentence that has ended leaves the batch, and its keys
and values go with it. The beams of a sentence share the keys and values of their source. A place in
the beam whose translation is finished no longer has a row.
"""

import copy
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import the_annotated_transformer as tat
from the_annotated_transformer import ALPHA, BOS, EOS, PAD, Transformer, Translator
from translator.corpus import SidedTokenizer, mark_of
from translator.files import Refused, nobody, refusing, within_memory


class CachedLayer:
    """A decoder layer that gets one position of each row; its attentions look at what is kept."""

    def __init__(self, layer: nn.Module, memory: Tensor, mask: Tensor | None):
        self.attn, self.src_attn = layer.self_attn, layer.src_attn
        self.layer = tat.with_attention(layer, self_attn=self.own, src_attn=self.cross)
        self.mask = mask  # (sources, 1, S)
        self.source = [y.contiguous() for y in self.src_attn.keys_values(memory, memory)]
        self.past: list[Tensor] = []  # keys and values so far, (rows, h, t, ...)
        self.rows: Tensor | None = None  # which rows of `past` continue; None: all, as they are
        self.live: Tensor | None = None  # `StepwiseDecoder.step` explains it

    def __call__(self, x: Tensor, live: Tensor | None = None) -> Tensor:
        """x (rows, 1, d_model) at the next position to the layer's output."""
        self.live = live  # kept here for `cross`: a layer hands its attentions only what it knows
        return self.layer(x, None, self.mask, None)

    def own(self, query: Tensor, key: Tensor, value: Tensor, mask: None = None) -> Tensor:
        """Self-attention of the new position to itself and to the earlier ones."""
        if self.rows is not None:
            self.past = [y.index_select(0, self.rows) for y in self.past]
            self.rows = None
        new = self.attn.keys_values(key, value)
        if self.past:
            new = [torch.cat(pair, dim=2) for pair in zip(self.past, new, strict=True)]
        self.past = [*new]
        return self.attn.attend(query, *self.past)  # without a mask: no key is in the future

    def cross(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of each row to its source.

        The rows of one source are asked together, as if they were its positions. So they have to be
        equally many; where they are not, those that a source lacks are asked with zeros.
        """
        if self.live is None:
            together = query.reshape(len(self.source[0]), -1, query.size(-1))
            return self.src_attn.attend(together, *self.source, mask).view_as(query)
        places = query.new_zeros(*self.live.shape, query.size(-1))
        places = places.masked_scatter(self.live.unsqueeze(-1), query)
        return self.src_attn.attend(places, *self.source, mask)[self.live].unsqueeze(1)


class PaddedLinear(nn.Module):
    """A linear layer for few rows, which go fastest through a matrix that lies column by column.

    Its width is a multiple of 64 outputs; those that are too many are cut off.
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.size, self.bias = linear.out_features, linear.bias
        self.matrix = F.pad(linear.weight.detach(), (0, 0, 0, -self.size % 64)).t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) to (..., outputs)."""
        y = (x @ self.matrix)[..., : self.size]
        return y if self.bias is None else y + self.bias


def padded(generator: nn.Module) -> nn.Module:
    """A copy of the generator with padded linear layers; its own code is called as it is."""
    weights = {id(p): p for p in generator.parameters()}
    other = copy.deepcopy(generator, weights)  # all but the weights is copied
    for name, part in generator.named_children():
        if type(part) is nn.Linear:
            setattr(other, name, PaddedLinear(part))
    return other


class StepwiseDecoder:
    """The decoder, one token of each row at a time, for every search; rows may share a source."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor):
        memory, self.model, self.length = model.encode(src, src_mask), model, 0
        self.generator = padded(model.generator)
        mask = None if src_mask.all() else src_mask.expand(len(src), 1, -1)
        self.layers = [CachedLayer(layer, memory, mask) for layer in model.decoder.layers]

    @torch.no_grad()
    def step(self, tokens: Tensor, live: Tensor | None = None) -> Tensor:
        """The next token of each row (rows) to the logits of the one after it: (rows, vocab).

        live (sources, places) tells which places of each source have a row, in this order; None:
        every source has the same number of rows.
        """
        live = None if live is None or live.all() else live
        x = self.model.tgt_embed(tokens.unsqueeze(1), self.length)  # (rows, 1, d_model)
        for layer in self.layers:
            x = layer(x, live)
        self.length += 1
        return self.generator.logits(self.model.decoder.norm(x))[:, 0]

    def looked_at(self, weights: dict[nn.Module, Tensor]) -> Tensor:
        """The place in its source that each row of the last step looked at most: (sources, places).

        By the mean over all heads of all layers, of the weights (sources, h, places, S).
        """
        means = [weights[layer.src_attn].mean(1) for layer in self.layers]
        return torch.stack(means).sum(0).argmax(-1).float()

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Continue with these rows, in this order, and with these sources (None: with all).

        Keys and values of rows are moved only when the next step needs them: once, however often
        rows were selected until then.
        """
        for layer in self.layers:
            layer.rows = rows if layer.rows is None else layer.rows[rows]
            if sources is not None:
                layer.source = [y.index_select(0, sources) for y in layer.source]
                layer.mask = None if layer.mask is None else layer.mask[sources]


# --- Step by step equals at once ---
@contextmanager
def precise() -> Iterator[None]:
    """Inside, products of float32 matrices are not rounded to TF32 or bfloat16."""
    kinds = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    chosen, whole = [kind.fp32_precision for kind in kinds], None
    with suppress(RuntimeError):  # PyTorch doesn't tell as a whole what was set for one kind alone
        whole = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
    for kind in kinds:
        kind.fp32_precision = "ieee"
    try:
        yield
    finally:
        if whole:
            torch.set_float32_matmul_precision(whole)
        for kind, precision in zip(kinds, chosen, strict=True):
            kind.fp32_precision = precision


@precise()  # what is rounded differs by more than the tolerance
def compare(name: str, part: nn.Module, kind: str, found: Callable, expected: Callable) -> Tensor:
    """What `found` gives; if that isn't expected, Refused says that the part is of this kind."""
    with refusing(f"{name} ({type(part).__name__}) {kind}", Exception):  # it may raise anything
        result = found()
        size = max(1.0, float(result.nan_to_num().abs().max()))
        tolerance = size * max(1e-3, 4 * torch.finfo(result.dtype).eps)
        if not torch.allclose(expected(), result, rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError("the results are others")
        return result


def compare_aloud(name: str, part: nn.Module, kind: str, *ways: Callable) -> Tensor:
    """As `compare`, and prints how long both ways took."""
    seconds = []

    def timed(work: Callable) -> Tensor:
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
        return result

    result = compare(name, part, kind, *(partial(timed, way) for way in ways))
    at_once, stepwise = (1000 * each for each in seconds)
    print(f"{name:<20}at once {at_once:.2f} ms, step by step {stepwise:.2f} ms: equal")
    return result


@torch.inference_mode()
def check_stepwise(model: Transformer, S: int = 40, T: int = 32, check: Callable = compare) -> None:
    """Raise Refused for the first part of a model that gives something else step by step.

    A layer that mixes positions elsewhere than in its attentions is such, or a cross-attention that
    depends on where its query is: in a beam, the rows of a source stand in for positions. So two
    rows share a source here. The ids are random special ones, which every vocabulary has.
    """
    draw, device = torch.Generator().manual_seed(0), next(model.parameters()).device

    def ids(*size: int) -> Tensor:
        return torch.randint(len(tat.SPECIALS), size, generator=draw).to(device)

    src, tgt = ids(1, S), ids(2, T)
    mask = (torch.arange(S, device=device) < S - 3).view(1, 1, S)  # three positions are padding
    future, kind = tat.subsequent_mask(T).to(device), "cannot be decoded step by step"

    def embedded() -> Tensor:
        return torch.cat([model.tgt_embed(tgt[:, t : t + 1], t) for t in range(T)], dim=1)

    def stepwise(layer: nn.Module, x: Tensor) -> Tensor:
        step = CachedLayer(layer, memory, mask)
        return torch.cat([step(position) for position in x.split(1, dim=1)], dim=1)

    with tat.evaluating(model):
        memory, decoder, generator = model.encode(src, mask), model.decoder, model.generator
        both = memory.expand(2, -1, -1)
        x = check("tgt_embed", model.tgt_embed, kind, partial(model.tgt_embed, tgt), embedded)
        for i, layer in enumerate(decoder.layers):
            at_once = partial(layer, x, both, mask, future)
            x = check(f"decoder.layers.{i}", layer, kind, at_once, partial(stepwise, layer, x))
        at_once = partial(model.decode, both, mask, tgt, future)
        x = check("decoder", decoder, kind, at_once, partial(decoder.norm, x))
        at_once = partial(generator.logits, x)
        check("generator", generator, kind, at_once, lambda: padded(generator).logits(x))


# --- Searches ---
class Hypothesis(NamedTuple):
    """A translation that a search has found: ids from BOS on.

    `seen` (T, 2) has for each token after BOS the sum of log-probabilities up to it, and the place
    in the source that the row which predicts it looks at most; None if nobody asked.
    """

    score: float  # the last sum, divided by the length penalty
    ids: list[int]
    seen: Tensor | None


@torch.inference_mode()
def fast_greedy(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, alpha: float = ALPHA,
    notes: list[list[Hypothesis]] | None = None,
) -> Tensor:  # fmt: skip
    """The likeliest token at each step: ids (B, at most max_len), BOS first, PAD after EOS.

    src (B, S), src_mask (B or 1, 1, S). `notes` gets a list for each source, of what was found.
    """
    watch, length = notes is not None, max_len
    with tat.evaluating(model), tat.recording(model) if watch else nullcontext() as weights:
        decoder = StepwiseDecoder(model, src, src_mask)
        ys = torch.full((len(src), max_len), PAD, device=src.device)
        ys[:, 0] = BOS
        going = torch.arange(len(src), device=src.device)  # the sources that have not ended
        seen = torch.zeros(len(src), max_len, 2, device=src.device, dtype=torch.float)
        for t in range(1, max_len):
            logits = decoder.step(ys[going, t - 1])
            top, best = logits.max(-1)  # argmax is slower
            ys[going, t] = best
            if watch:
                log_p = (top - logits.logsumexp(-1)).float()
                seen[going, t] = torch.stack((log_p, decoder.looked_at(weights)[:, 0]), dim=-1)
            rows = (best != EOS).nonzero().flatten()
            if len(rows) == 0:
                length = t + 1
                break
            if len(rows) < len(going):
                going = going[rows]
                decoder.select(rows, rows)
    if watch:
        seen[..., 0] = seen[..., 0].cumsum(1)
        limit = limits(src, src_mask, max_len).tolist()  # each source's own, which `ys` may exceed
        for ids, known, most in zip(ys[:, :length].tolist(), seen, limit, strict=True):
            end = ids.index(EOS) + 1 if EOS in ids[:most] else min(most, length)
            score = float(known[end - 1, 0]) / tat.length_penalty(end - 1, alpha)
            notes.append([Hypothesis(score, ids[:end], known[1:end])])
    return ys[:, :length]


@torch.inference_mode()
def fast_beam(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int, alpha: float = 0.6,
    n_best: int = 1, notes: list[list[Hypothesis]] | None = None,
) -> Tensor:  # fmt: skip
    """The best translation that a beam finds: ids (B, at most max_len), BOS first (Section 6.1).

    src (B, S), src_mask (B or 1, 1, S); alpha: 0.6 in the paper. max_len holds for sources without
    padding. A source with n padded positions gets n tokens fewer, as if it were alone, but at least
    one. After EOS there is PAD. `notes` gets what was found for each source, the best first and at
    most `n_best`; ValueError if the model's attention cannot be recorded.
    """
    # A source has as many places for open translations as the beam is wide, and one less whenever a
    # translation ends: the beam narrows to `width`. `log_p` (sources, beam) is minus infinity where
    # a place is empty, as all but one are before the first step. Only what is `live` has a row in
    # the decoder, in `ys` and in `seen`, and rows lie in the order of their places.
    #
    # A step extends every row and takes the best extensions of each source. From then on, `ys` and
    # `seen` have all places, (sources, beam, ...). The step notes extensions that end, drops
    # sources of which nothing open can beat what was found, and gives rows to what is left.
    device, none = src.device, -torch.inf
    watch, found = notes is not None, [[] for _ in src]
    limit = limits(src, src_mask, max_len)
    bar = torch.full((len(src),), none, device=device, dtype=torch.float)  # what scores must exceed
    place = torch.arange(beam, device=device)  # the number of each place
    with tat.evaluating(model), tat.recording(model) if watch else nullcontext() as weights:
        decoder = StepwiseDecoder(model, src, src_mask)
        going = torch.arange(len(src), device=device)  # the sources that are still searched
        width = torch.full((len(src), 1), beam, device=device)
        log_p = torch.where(place > 0, none, 0.0).float().repeat(len(src), 1)
        live = log_p > none
        ys = torch.full((len(src), 1), BOS, device=device)  # (rows, t)
        seen = torch.zeros(len(src), 0, 2, device=device)  # (rows, t - 1, 2), as in Hypothesis
        for t in range(1, max_len):
            # no row has more than `beam` of the best `beam` extensions
            gain, tokens = likeliest(decoder.step(ys[:, -1], live), beam)
            log_p, parents, rank = extended(log_p, live, gain)
            tokens = tokens[parents, rank]
            ys = torch.cat((ys[parents], tokens.unsqueeze(-1)), dim=-1)  # (sources, beam, t + 1)
            if watch:  # `live` is still that of the step: from places to rows, then to extensions
                latest = torch.stack((log_p, decoder.looked_at(weights)[live][parents]), dim=-1)
                seen = torch.cat((seen[parents], latest.unsqueeze(2)), dim=2)
            # extensions come best first, so the narrowed beam is the first `width` places
            alive = (place < width) & (log_p > none)
            ended = alive & ((tokens == EOS) | (t + 1 >= limit[going]).unsqueeze(1))
            score = (log_p / tat.length_penalty(t, alpha)).masked_fill(~ended, none)
            # the bar may rise in this loop; `entered` then drops what has become too low
            for i, j in (score > bar[going].unsqueeze(1)).nonzero().tolist():
                known = seen[i, j] if watch else None
                new = Hypothesis(float(score[i, j]), ys[i, j].tolist(), known)
                bar[going[i]] = entered(new, found[going[i]], n_best)
            log_p = log_p.masked_fill(ended | ~alive, none)
            # each ending costs a place, also one whose score was too low to be noted
            width = width - ended.sum(1, keepdim=True)
            # log-probabilities only fall, and what divides them is largest at the limit: whatever
            # continues an open translation can't score more than this
            highest = log_p.amax(1) / tat.length_penalty(limit[going] - 1, alpha)
            # strictly above: a source with nothing open has minus infinity, and leaves
            stay = (highest > bar[going]).nonzero().flatten()
            if len(stay) == 0:
                break
            # None: no source has left, and so no keys need be copied
            sources = stay if len(stay) < len(going) else None
            log_p, width, going = log_p[stay], width[stay], going[stay]
            live = log_p > none
            decoder.select(parents[stay][live], sources)
            ys, seen = ys[stay][live], seen[stay][live] if watch else seen
    if watch:
        notes.extend(found)
    return tat.pad_rows([kept[0].ids if kept else [BOS] for kept in found]).to(device)


def entered(new: Hypothesis, best: list[Hypothesis], n_best: int) -> float:
    """Put it among the best of its source; returns the score that further ones have to exceed."""
    best.append(new)
    best.sort(key=lambda one: -one.score)
    del best[n_best:]
    return best[-1].score if len(best) == n_best else -torch.inf


def limits(src: Tensor, src_mask: Tensor, max_len: int) -> Tensor:
    """How long each translation may become, BOS included, whatever is beside its source: (B)."""
    return (max_len - (src_mask == 0).sum((1, 2)).expand(len(src))).clamp(min=2)


def extended(log_p: Tensor, live: Tensor, gain: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The best extensions of each source: their log-probability, row, and rank in its `gain`.

    log_p and live (sources, places); gain (rows, k): log-probabilities of each row's likeliest next
    tokens. Each result is (sources, places), the best first.
    """
    scores = log_p.new_full((*live.shape, gain.size(1)), -torch.inf)
    scores[live] = log_p[live].unsqueeze(1) + gain
    log_p, found = scores.flatten(1).topk(live.size(1))
    # a place that isn't live gets the number of the row before it (-1, the last one, if there is
    # none): its log-probability is minus infinity, so nobody reads what it extends
    row = (live.flatten().cumsum(0).view_as(live) - 1).gather(1, found // gain.size(1))
    return log_p, row, found % gain.size(1)


def likeliest(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids of the k likeliest tokens in each row: both (rows, at most k)."""
    # what 64 rows give is read again while it is still in the processor's cache
    parts, found = logits.float().split(64 if logits.device.type == "cpu" else len(logits)), []
    for rows in parts:
        values, ids = largest(rows, k)
        total = (rows - values[:, :1]).exp_().sum(-1, keepdim=True)
        found.append((values - values[:, :1] - total.log(), ids))
    log_p, tokens = zip(*found, strict=True)
    return torch.cat(log_p), torch.cat(tokens)


def largest(x: Tensor, k: int, width: int = 64) -> tuple[Tensor, Tensor]:
    """As `topk` of each row, but sooner: the k largest are in the k blocks of largest maxima."""
    n, ids = x.size(-1) // width, torch.arange(x.size(-1), device=x.device)
    if n <= k:
        return x.topk(min(k, x.size(-1)))
    blocks = x[:, : n * width].unflatten(-1, (n, width)).amax(-1).topk(k).indices
    some, rest = width * blocks.unsqueeze(-1) + ids[:width], ids[n * width :]
    some = torch.cat((some.flatten(1), rest.expand(len(x), -1)), dim=-1)
    values, at = x.gather(-1, some).topk(k)
    return values, some.gather(-1, at)


# --- Many lines ---
FAR = 500  # tokens; hardly any corpus has such sentences, so hardly any model can translate one


class Search:
    """Translation with one model, greedy or with a beam; `decode` searches, from ids to ids."""

    def __init__(self, translator: Translator, beam: int = 1, alpha: float = ALPHA, n_best=1):
        """Raises Refused for a number out of range, and for a model that has no steps."""
        if not 1 <= beam <= 1000:
            raise Refused(f"--beam must be at least 1 and at most 1000, but it is {beam}")
        if not 0 <= alpha <= 10:  # a larger alpha overflows
            raise Refused(f"--alpha must be at least 0 and at most 10, but it is {alpha}")
        if not 1 <= n_best <= beam:
            limit = f"--beam, {beam}"
            raise Refused(f"--n-best must be at least 1 and at most {limit}, but it is {n_best}")
        check_stepwise(translator.model)
        self.translator, self.alpha, self.n_best = translator, alpha, n_best
        self.batch_size, self.lost = min(128, max(1, 512 // beam)), 0
        self.told = {""}  # marks of languages that the model does not know
        self.decode = partial(fast_beam, beam=beam, alpha=alpha) if beam > 1 else fast_greedy
        self.name = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"

    def translate(self, lines: list[str], tell: Callable = nobody, first: int = 1) -> list[str]:
        """A translation for each line, in order; see `each`."""
        found = self.each(lines, self.decode_rows, tell, first)
        decode = self.translator.tokenizer.decode
        return ["" if ids is None else decode(ids) for ids in found]

    def each(self, lines: list[str], work: Callable, tell: Callable, first: int = 1) -> list[Any]:
        """What `work` makes of each line, in order; it gets some sources as ids, longest first.

        A line of more than FAR tokens comes alone, and is decoded greedily, because a beam would
        take minutes; `tell` gets a warning with its number, counted from `first`. None is for a
        blank line, and for one that is longer than the positions of the model, or than memory
        suffices for; `lost` counts these.
        """
        _, tokenizer, (language, _) = self.translator
        sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
        if isinstance(tokenizer, SidedTokenizer):
            strange = {mark_of(tokenizer, line, known=False) for line in lines} - self.told
            if strange:
                marks = ", ".join(sorted(strange))
                tell(f"the model does not know {marks}, which it takes for text")
            self.told |= strange
        written = [i for i, line in enumerate(lines) if line.strip()]
        order = sorted(written, key=lambda i: -len(sources[i]))
        far = [i for i in order if len(sources[i]) > FAR]
        for i in far:
            tokens = f"line {first + i} has {len(sources[i]):,} tokens, far more than a sentence"
            tell(f"{tokens}; it is translated greedily, and badly")
        near, size = order[len(far) :], self.batch_size
        batches = [[i] for i in far] + [near[i : i + size] for i in range(0, len(near), size)]
        results: list[Any] = [None] * len(lines)
        ids = [[sources[i] for i in rows] for rows in batches]
        done = self.careful(partial(attempt, work), ids)
        for rows, found in zip(batches, done, strict=True):
            for i, result in zip(rows, found, strict=True):
                if isinstance(result, str):
                    self.lost += 1
                    line = f"line {first + i}, of {len(sources[i]):,} tokens"
                    tell(f"{line}, is left empty: {result}")
                else:
                    results[i] = result
        return results

    def careful(self, work: Callable, batches: list[list[list[int]]]) -> list[list[Any]]:
        """What `work` makes of batches, row by row; of a row that fails, a text that says why.

        One line that is too long must not cost its neighbours: a batch that fails is tried again
        alone, because others took memory beside it, and then each of its rows.
        """
        apart = any(len(rows[0]) > FAR for rows in batches)
        found = in_parallel(work, batches, self.device(), apart)
        for i, rows in enumerate(batches):
            if not isinstance(found[i], str):
                continue
            if len(batches) > 1:
                found[i] = self.careful(work, [rows])[0]
            elif len(rows) > 1:
                found[i] = [self.careful(work, [[row]])[0][0] for row in rows]
            else:
                found[i] = [found[i]]
        return found

    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.translator.model.parameters()).device

    def decode_rows(self, rows: list[list[int]], **asked: Any) -> list[list[int]]:
        """Translations of sources, as ids; each has at most 50 tokens more than its source."""
        src = tat.pad_rows(rows).to(self.device())
        decode, limit = self.decode if src.size(1) <= FAR else fast_greedy, src.size(1) + 50
        try:
            found = decode(self.translator.model, src, tat.source_mask(src), max_len=limit, **asked)
        except ValueError as error:
            if src.size(1) < FAR - 50:
                raise
            raise Refused(str(error)) from error  # learned positions have an end
        # as if it had been alone: a batch has the limit of its longest source
        return [ids[: len(row) + 50] for row, ids in zip(rows, found.tolist(), strict=True)]

    def hypotheses(self, rows: list[list[int]]) -> list[list[Hypothesis]]:
        """Of each of some sources up to `n_best` translations, with what is known of them."""
        notes: list[list[Hypothesis]] = []
        best = {"n_best": self.n_best} if self.n_best > 1 and len(rows[0]) <= FAR else {}
        self.decode_rows(rows, alpha=self.alpha, notes=notes, **best)
        return notes


def attempt(work: Callable, rows: list[list[int]]) -> Any:
    """What `work` makes of sources, or why there is nothing: memory is out, or positions are."""
    try:
        with within_memory("out of memory"):
            return work(rows)
    except Refused as error:
        return str(error)


# --- On all cores ---
KILLED = "a process was killed, likely for want of memory"


def in_parallel(work: Callable, items: list, device: torch.device, apart: bool = False) -> list:
    """The results of `work` for each item, in order; on a CPU by as many workers as threads.

    Python starts the many small operations of a step one by one, and only one thread of a process
    at a time can do that. So on Linux the workers are processes, with a thread each. They are
    forked: they have the model already, and only results are sent. If the system ends one of them,
    a text says so; `apart` asks for workers even if one thread is all there is.
    """
    before, forked = torch.get_num_threads(), sys.platform == "linux"
    count = min(before, len(items)) if device.type == "cpu" else 0
    if count < 2 and not (count and apart):
        return [work(item) for item in items]
    pool, do = ThreadPoolExecutor, work
    if forked:
        context = multiprocessing.get_context("fork")
        pool, do = partial(ProcessPoolExecutor, mp_context=context), do_the_work
    try:
        with pool(count, initializer=begin, initargs=(work,)) as workers:
            futures = [workers.submit(do, item) for item in items]
            errors = [future.exception() for future in futures]
            return [
                KILLED if isinstance(error, BrokenProcessPool) else future.result()
                for future, error in zip(futures, errors, strict=True)
            ]
    except BrokenProcessPool:  # before all was submitted
        return [KILLED] * len(items)
    finally:
        torch.set_num_threads(before)  # threads share the number


def begin(work: Callable) -> None:
    """Prepare a worker: one thread for PyTorch; Ctrl-C is left to the process that started it."""
    global WORK  # a forked worker has it already, and so nothing is pickled
    WORK = work
    torch.set_num_threads(1)
    if parent := multiprocessing.parent_process():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=end_with, args=(parent.sentinel,), daemon=True).start()


def end_with(sentinel: int) -> None:
    """End this process when its parent is gone; else it would wait for work for ever."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def do_the_work(item: Any) -> Any:
    """What a worker process does with an item."""
    return WORK(item)


if __name__ == "__main__":
    from translator.model_folder import model_folder, read_translator

    try:
        model = read_translator(model_folder(*sys.argv[1:2]), "cpu").model
        check_stepwise(model, check=compare_aloud)
    except (Refused, OSError) as error:
        sys.exit(f"error: {error}")
