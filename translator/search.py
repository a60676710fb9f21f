"""Decoding by calling the model, a position at a time: greedy and beam search, and the translation of many lines.

All sentences of a batch advance together. A sentence that has ended leaves the batch, and its keys and values go with it.
The beams of a sentence share the keys and values of their source. A finished place in the beam no longer has a row.
"""

import copy
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
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
from the_annotated_transformer import (
    ALPHA,
    BOS,
    EOS,
    PAD,
    Transformer,
    Translator,
    evaluating,
    length_penalty,
    recording,
)
from translator.corpus import SidedTokenizer, mark_of
from translator.files import Refused, refusing, within_memory


class CachedLayer:
    """A decoder layer that is called with one position of each row; its two attentions look at what is kept."""

    def __init__(self, layer: nn.Module, memory: Tensor, mask: Tensor | None):
        self.attn, self.src_attn, self.mask = layer.self_attn, layer.src_attn, mask  # mask (sources, 1, S)
        self.layer = tat.with_attention(layer, self_attn=self.own, src_attn=self.cross)
        self.past: list[Tensor] = []  # keys and values so far, (rows, h, t, ...)
        self.rows: Tensor | None = None  # which of these rows continue, in which order; None: all, as they are
        self.live: Tensor | None = None  # `StepwiseDecoder.step` explains it
        self.source = [y.contiguous() for y in layer.src_attn.keys_values(memory, memory)]  # (sources, h, S, ...)

    def __call__(self, x: Tensor, live: Tensor | None = None) -> Tensor:
        """x (rows, 1, d_model) at the next position to the layer's output."""
        self.live = live
        return self.layer(x, None, self.mask, None)

    def own(self, query: Tensor, key: Tensor, value: Tensor, mask: None = None) -> Tensor:
        """Self-attention of the new position to itself and to the earlier ones; its key and value join theirs."""
        rows, self.rows = self.rows, None
        past = self.past if rows is None else [y.index_select(0, rows) for y in self.past]
        new = self.attn.keys_values(key, value)
        self.past = [torch.cat(pair, dim=2) for pair in zip(past, new, strict=True)] if past else [*new]
        return self.attn.attend(query, *self.past)

    def cross(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Attention of each row to its source; the rows of one source are asked together, as if they were its positions."""
        if self.live is None:
            together = query.reshape(len(self.source[0]), -1, query.size(-1))
            return self.src_attn.attend(together, *self.source, mask).view_as(query)
        places = query.new_zeros(*self.live.shape, query.size(-1))  # those without a row stay empty
        places = places.masked_scatter(self.live.unsqueeze(-1), query)
        return self.src_attn.attend(places, *self.source, mask)[self.live].unsqueeze(1)


class PaddedLinear(nn.Module):
    """A linear layer with its matrix column by column and a multiple of 64 outputs wide, which few rows go through fastest."""

    def __init__(self, linear: nn.Linear):
        super().__init__()
        self.size, self.bias = linear.out_features, linear.bias
        self.matrix = F.pad(linear.weight.detach(), (0, 0, 0, -self.size % 64)).t().contiguous()

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d) to (..., outputs)."""
        y = (x @ self.matrix)[..., : self.size]
        return y if self.bias is None else y + self.bias


def padded(generator: nn.Module) -> nn.Module:
    """A copy of the generator, for many calls, in which linear layers are padded; its own code is called as it is."""
    other = copy.deepcopy(generator, {id(p): p for p in generator.parameters()})  # weights are not copied
    for name, part in generator.named_children():
        if type(part) is nn.Linear:
            setattr(other, name, PaddedLinear(part))
    return other


class StepwiseDecoder:
    """The decoder, one token of each row at a time; every search uses it. Several rows may share a source."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor):
        memory, self.model, self.length = model.encode(src, src_mask), model, 0
        self.generator = padded(model.generator)
        mask = None if src_mask.all() else src_mask.expand(len(src), 1, -1)
        self.layers = [CachedLayer(layer, memory, mask) for layer in model.decoder.layers]

    @torch.no_grad()
    def step(self, tokens: Tensor, live: Tensor | None = None) -> Tensor:
        """The next token of each row (rows) to the logits of the one after it: (rows, vocab), without gradients.

        live (sources, places) tells which places of each source have a row, in this order; None: every source has the same
        number of rows.
        """
        live = None if live is None or live.all() else live
        x = self.model.tgt_embed(tokens.unsqueeze(1), self.length)  # (rows, 1, d_model)
        for layer in self.layers:
            x = layer(x, live)
        self.length += 1
        return self.generator.logits(self.model.decoder.norm(x))[:, 0]

    def looked_at(self, weights: dict[nn.Module, Tensor]) -> Tensor:
        """The source token that each row looked at most in the last step, by the mean of all heads of all layers: (sources, places)."""
        means = [weights[layer.src_attn].mean(1) for layer in self.layers]  # (sources, places, S)
        return torch.stack(means).sum(0).argmax(-1).float()

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Continue with these rows, in this order, and with these sources (None: with all)."""
        for layer in self.layers:
            layer.rows = rows if layer.rows is None else layer.rows[rows]
            if sources is not None:
                layer.source = [x.index_select(0, sources) for x in layer.source]
                layer.mask = None if layer.mask is None else layer.mask[sources]


@torch.inference_mode()
def check_stepwise(model: Transformer, S: int = 40, T: int = 32) -> None:
    """Raise Refused naming the first part of a model that gives something else step by step than for all positions at once.

    A layer that mixes positions elsewhere than in its attentions is such, or a cross-attention that depends on where its
    query is: in a beam, the rows of a source stand in for positions. The ids are random, two rows for one source.
    """
    draw, device = torch.Generator().manual_seed(0), next(model.parameters()).device
    special = lambda *size: torch.randint(4, size, generator=draw).to(device)  # every vocabulary has them  # noqa: E731
    src, tgt = special(1, S), special(2, T)
    mask, future = (torch.arange(S, device=device) < S - 3).view(1, 1, S), tat.subsequent_mask(T).to(device)
    with evaluating(model):
        memory, embed, kind = model.encode(src, mask), model.tgt_embed, "cannot be decoded step by step"
        both, one_by_one = memory.expand(2, -1, -1), lambda: [embed(tgt[:, t : t + 1], t) for t in range(T)]
        x = compare("tgt_embed", embed, kind, lambda: embed(tgt), lambda: torch.cat(one_by_one(), dim=1))
        for i, layer in enumerate(model.decoder.layers):
            steps = lambda: map(CachedLayer(layer, memory, mask), x.split(1, dim=1))  # noqa: B023, E731
            at_once = partial(layer, x, both, mask, future)
            x = compare(f"decoder.layers.{i}", layer, kind, at_once, lambda: torch.cat([*steps()], dim=1))  # noqa: B023
        whole = partial(model.decode, both, mask, tgt, future)
        x = compare("decoder", model.decoder, kind, whole, lambda: model.decoder.norm(x))
        generator = model.generator
        compare("generator", generator, kind, lambda: generator.logits(x), lambda: padded(generator).logits(x))


@contextmanager
def precise() -> Iterator[None]:
    """Products of float32 matrices are not rounded to TF32 or bfloat16 meanwhile, in whichever way the caller has set it."""
    kinds = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
    chosen, whole = [kind.fp32_precision for kind in kinds], None
    with suppress(RuntimeError):  # what was set for one kind alone, PyTorch does not tell as a whole
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
    """What `found` gives; raises Refused naming a part of a model, and of what kind it is, if that is not expected."""
    with refusing(f"{name} ({type(part).__name__}) {kind}", Exception):  # a changed part may raise anything
        result = found()
        tolerance = max(1.0, float(result.nan_to_num().abs().max())) * max(1e-3, 4 * torch.finfo(result.dtype).eps)
        if not torch.allclose(expected(), result, rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError("the results are others")
        return result


# --- Searches ---
class Hypothesis(NamedTuple):
    """A translation that a beam has found: ids from BOS on; `seen` (T, 2) has the sum of log-probabilities up to each token
    after it, and the place in the source that the row which predicts it looks at most; None if nobody asked.
    """

    score: float  # the last sum, divided by the length penalty
    ids: list[int]
    seen: Tensor | None


@torch.inference_mode()
def fast_greedy(model: Transformer, src: Tensor, src_mask: Tensor, max_len: int) -> Tensor:
    """The likeliest token at each step: ids (B, at most max_len), BOS first, PAD after EOS; src (B, S), src_mask (B or 1, 1, S)."""
    with evaluating(model):
        decoder = StepwiseDecoder(model, src, src_mask)
        ys = torch.full((len(src), max_len), PAD, device=src.device)
        ys[:, 0], going = BOS, torch.arange(len(src), device=src.device)  # the sentences that have not ended
        for t in range(1, max_len):
            best = decoder.step(ys[going, t - 1]).max(-1).indices  # argmax is slower
            ys[going, t] = best
            rows = (best != EOS).nonzero().flatten()
            if len(rows) == 0:
                return ys[:, : t + 1]
            if len(rows) < len(going):
                going = going[rows]
                decoder.select(rows, rows)
    return ys


@torch.inference_mode()
def fast_beam(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int, alpha: float = 0.6,
    n_best: int = 1, notes: list[list[Hypothesis]] | None = None,
) -> Tensor:  # fmt: skip
    """The best translation that beam search finds: ids (B, at most max_len), BOS first, PAD after EOS (Section 6.1).


    src (B, S), src_mask (B or 1, 1, S). max_len holds for sources without padding. A source with n padded positions gets n
    tokens fewer, as if it were alone, but at least one. `notes` gets what was found for each source, the best first and at
    most `n_best`; ValueError if the model's attention cannot be recorded.
    """
    device, neg = src.device, -torch.inf
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(len(src))).clamp(min=2)  # of each output, BOS included
    results: list[list[Hypothesis]] = [[] for _ in src]
    best = torch.full((len(src),), neg, device=device, dtype=torch.float)  # the score that a new one has to exceed
    places, open_places = torch.arange(beam, device=device), torch.full((len(src), 1), beam, device=device)
    watch = notes is not None
    with evaluating(model), recording(model) if watch else nullcontext() as weights:
        decoder, going = StepwiseDecoder(model, src, src_mask), torch.arange(len(src), device=device)
        log_p = torch.where(places > 0, neg, 0.0).float().repeat(len(src), 1)  # (B, beam); at first one beginning each
        live, ys = log_p > neg, torch.full((len(src), 1), BOS, device=device)  # each has a row of tokens, (rows, t)
        seen = torch.zeros(len(src), 0, 2, device=device)  # for each token the sum of log-probabilities, and its source
        for t in range(1, max_len):
            step, tokens = likeliest(decoder.step(ys[:, -1], live), beam)  # (rows, at most beam)
            scores = log_p.new_full((*live.shape, step.size(1)), neg)
            scores[live] = log_p[live].unsqueeze(1) + step
            log_p, found = scores.flatten(1).topk(beam)  # (B, beam), best first
            parents = (live.flatten().cumsum(0).view_as(live) - 1).gather(1, found // step.size(1))  # their rows
            tokens = tokens[parents, found % step.size(1)]
            ys = torch.cat((ys[parents], tokens.unsqueeze(-1)), dim=-1)  # (B, beam, t + 1)
            if watch:
                new = torch.stack((log_p, decoder.looked_at(weights)[live][parents]), dim=-1)  # (B, beam, 2)
                seen = torch.cat((seen[parents], new.unsqueeze(2)), dim=2)
            alive = (places < open_places) & (log_p > neg)
            ended = alive & ((tokens == EOS) | (t + 1 >= limit[going]).unsqueeze(1))
            score = (log_p / length_penalty(t, alpha)).masked_fill(~ended, neg)
            for i, place in (score > best[going].unsqueeze(1)).nonzero().tolist():
                kept = results[going[i]]
                kept.append(
                    Hypothesis(float(score[i, place]), ys[i, place].tolist(), seen[i, place] if watch else None)
                )
                kept.sort(key=lambda one: -one.score)
                if len(kept) >= n_best:
                    del kept[n_best:]
                    best[going[i]] = kept[-1].score
            log_p, open_places = log_p.masked_fill(ended | ~alive, neg), open_places - ended.sum(1, keepdim=True)
            rows = (log_p.amax(1) / length_penalty(limit[going] - 1, alpha) > best[going]).nonzero().flatten()
            if len(rows) == 0:  # no continuation can score higher
                break
            log_p, going, open_places, ys, parents = (x[rows] for x in (log_p, going, open_places, ys, parents))
            seen = seen[rows][log_p > neg] if watch else seen
            decoder.select(parents[log_p > neg], rows if len(rows) < len(live) else None)
            live, ys = log_p > neg, ys[log_p > neg]
    if watch:
        notes.extend(results)
    return tat.pad_rows([kept[0].ids if kept else [BOS] for kept in results]).to(device)


def likeliest(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The log-probabilities and ids of the k likeliest tokens in each row of logits (R, vocab): both (R, at most k)."""
    count = 64 if logits.device.type == "cpu" else len(logits)  # what few rows give is read while still in the cache
    parts = [rows.float().log_softmax(-1).topk(min(k, rows.size(-1))) for rows in logits.split(count)]
    values, tokens = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(tokens)


# --- Many lines ---
FAR = 500  # tokens; hardly any corpus has sentences that long, so hardly any model can translate one


class Search:
    """Translation with one model, greedy or with a beam; `decode` is the search itself, from ids to ids."""

    def __init__(self, translator: Translator, beam: int = 1, alpha: float = ALPHA, n_best: int = 1):
        """Raises Refused for a number out of range, and naming a layer that cannot be decoded step by step."""
        if not 1 <= beam <= 1000:
            raise Refused(f"--beam must be at least 1 and at most 1000, but it is {beam}")
        if not 0 <= alpha <= 10:  # a larger alpha overflows
            raise Refused(f"--alpha must be at least 0 and at most 10, but it is {alpha}")
        if not 1 <= n_best <= beam:
            raise Refused(f"--n-best must be at least 1 and at most --beam, {beam}, but it is {n_best}")
        check_stepwise(translator.model)
        self.translator, self.batch_size, self.lost = translator, min(128, max(1, 512 // beam)), 0
        self.beam, self.alpha, self.n_best = beam, alpha, n_best
        self.told = {""}  # marks of languages that the model does not know
        self.decode = fast_greedy if beam == 1 else partial(fast_beam, beam=beam, alpha=alpha)
        self.name = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"

    def translate(self, lines: list[str], tell: Callable[[str], None] = lambda text: None, first: int = 1) -> list[str]:
        """One translation for each line, in order; `each` says what `tell` hears and what is refused."""
        decode, found = self.translator.tokenizer.decode, self.each(lines, self.decode_rows, tell, first)
        return ["" if ids is None else decode(ids) for ids in found]

    def each(self, lines: list[str], work: Callable, tell: Callable[[str], None], first: int = 1) -> list[Any]:
        """What `work` makes of each line, in order, and None for a blank one; it gets some sources as ids, longest first.

        A line of more than FAR tokens comes alone, and is decoded greedily, because a beam would take minutes; `tell` gets a
        warning with its number, counted from `first`. One that is longer than the positions of the model, or than memory
        suffices for, gets None; `lost` counts these.
        """
        _, tokenizer, (language, _) = self.translator
        sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
        strange = (
            {mark_of(tokenizer, line, known=False) for line in lines} if isinstance(tokenizer, SidedTokenizer) else {}
        )
        if new := {*strange} - self.told:
            tell(f"the model does not know {', '.join(sorted(new))}, which it takes for text")
            self.told |= new
        order = sorted((i for i, line in enumerate(lines) if line.strip()), key=lambda i: -len(sources[i]))
        far = [i for i in order if len(sources[i]) > FAR]
        for i in far:
            tokens = f"line {first + i} has {len(sources[i]):,} tokens, far more than a sentence"
            tell(f"{tokens}; it is translated greedily, and badly")
        near = order[len(far) :]
        batches = [[i] for i in far] + [near[i : i + self.batch_size] for i in range(0, len(near), self.batch_size)]
        device, results = next(self.translator.model.parameters()).device, [None] * len(lines)
        done = self.careful(partial(attempt, work), [[sources[i] for i in rows] for rows in batches], device)
        for rows, found in zip(batches, done, strict=True):
            for i, result in zip(rows, found, strict=True):
                if isinstance(result, str):
                    self.lost += 1
                    tell(f"line {first + i}, of {len(sources[i]):,} tokens, is left empty: {result}")
                else:
                    results[i] = result
        return results

    def careful(self, work: Callable, batches: list[list[list[int]]], device: torch.device) -> list:
        """What `work` makes of batches; one that fails is tried alone, then each of its rows: what fails then says why."""
        found = in_parallel(work, batches, device, any(len(rows[0]) > FAR for rows in batches))
        for i, rows in enumerate(batches):
            if isinstance(found[i], str) and len(batches) > 1:
                found[i] = self.careful(work, [rows], device)[0]
            elif isinstance(found[i], str):
                alone = [[row] for row in rows]
                found[i] = [self.careful(work, [row], device)[0][0] for row in alone] if len(rows) > 1 else [found[i]]
        return found

    def decode_rows(self, rows: list[list[int]]) -> list[list[int]]:
        """The translations of some sources, ids to ids; each may have up to 50 tokens more than its source."""
        found = self.found(rows, fast_greedy if len(rows[0]) > FAR else self.decode)
        return [ids[: len(row) + 50] for row, ids in zip(rows, found.tolist(), strict=True)]  # as if it had been alone

    def hypotheses(self, rows: list[list[int]]) -> list[list[Hypothesis]]:
        """Of each of some sources up to `n_best` translations, with what is known of them; a beam of one is greedy, too."""
        notes: list[list[Hypothesis]] = []
        beam = 1 if len(rows[0]) > FAR else self.beam
        how = {"beam": beam, "alpha": self.alpha, "n_best": min(beam, self.n_best), "notes": notes}
        self.found(rows, partial(fast_beam, **how))
        return notes

    def found(self, rows: list[list[int]], decode: Callable) -> Tensor:
        """What a search finds for some sources, as ids."""
        src = tat.pad_rows(rows).to(next(self.translator.model.parameters()).device)
        try:
            return decode(self.translator.model, src, tat.source_mask(src), max_len=src.size(1) + 50)
        except ValueError as error:
            if src.size(1) < FAR - 50:
                raise
            raise Refused(str(error)) from error  # learned positions have an end


def attempt(work: Callable, rows: list[list[int]]) -> Any:
    """What `work` makes of some sources, or why there is nothing: memory is out, or positions are."""
    try:
        with within_memory("out of memory"):
            return work(rows)
    except Refused as error:
        return str(error)


# --- On all cores ---
def in_parallel(work: Callable, items: list, device: torch.device, apart: bool = False) -> list:
    """The results of `work` for each item, in order; on a CPU by as many workers as PyTorch has threads, each with one.

    Python starts the many small operations of a step one by one, and only one thread of a process at a time can do that. So
    on Linux the workers are processes. They are forked: they have the model already, and only results are sent. If the
    system ends one of them, a text says so; `apart` asks for workers even if one thread is all there is.
    """
    count = min(torch.get_num_threads(), len(items)) if device.type == "cpu" else 0
    if count < 2 and not (count and apart):
        return [work(item) for item in items]
    before, pool = torch.get_num_threads(), ThreadPoolExecutor
    if sys.platform == "linux":
        pool = partial(ProcessPoolExecutor, mp_context=multiprocessing.get_context("fork"))
    killed = "a process was killed, likely for want of memory"
    try:
        with pool(count, initializer=begin, initargs=(work,)) as workers:
            futures = [workers.submit(do if sys.platform == "linux" else work, item) for item in items]
            return [killed if isinstance(f.exception(), BrokenProcessPool) else f.result() for f in futures]
    except BrokenProcessPool:
        return [killed] * len(items)
    finally:
        torch.set_num_threads(before)  # threads share the number


def begin(work: Callable) -> None:
    """Prepare a worker: one thread for PyTorch, and Ctrl-C is left to the process that started it."""
    global WORK
    WORK = work
    torch.set_num_threads(1)
    if parent := multiprocessing.parent_process():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        threading.Thread(target=end_with, args=(parent.sentinel,), daemon=True).start()


def end_with(sentinel: int) -> None:
    """End this process when the one that started it is gone, however it ended; else it would wait for work for ever."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def do(item: Any) -> Any:
    """What a worker does with an item."""
    return WORK(item)
