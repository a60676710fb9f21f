"""Searching with PyTorch, and translating lines with it: for models that decode token by token.

Where CTranslate2 computes the same, `translator/engine.py` asks it instead. This search is the
reference that one reads, and the one that can tell what a model looked at.
"""

from bisect import insort
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import Tensor

import the_annotated_transformer as tat
from the_annotated_transformer import ALPHA, BOS, EOS, Transformer, Translator
from translator.engine import check_options
from translator.files import Refused, nobody, within_memory
from translator.stepping import StepwiseDecoder, check_stepwise

LONG_LINE_TOKENS = 500  # hardly any corpus has such sentences, so hardly any model translates one
EMPTY = -torch.inf  # the log-probability of a place in a beam that holds no translation


class Hypothesis(NamedTuple):
    """A translation that a search has found."""

    score: float  # the last of `sums`, divided by the length penalty
    ids: list[int]  # from BOS on, with EOS if it has ended
    sums: list[float]  # for each token after BOS, the sum of log-probabilities up to it
    looked_at: list[int]  # and the source position with the largest weight, if that was asked for


class Beam:
    """The open translations of the sources that are still searched, and the best finished ones.

    A source has `width` places for open translations; each that ends takes its place along. A place
    that holds nothing keeps its row, at log-probability EMPTY: one shape for all sources is simpler
    than rows that come and go.
    """

    def __init__(self, limit: Tensor, width: int, alpha: float, n_best: int):
        """limit (B): how many tokens each translation may have, BOS included."""
        B = len(limit)
        device = limit.device
        self.width, self.alpha, self.n_best = width, alpha, n_best
        self.finished: list[list[Hypothesis]] = [[] for _ in range(B)]  # of each source, best first
        # all that follows has one entry for each source that is still searched
        self.source_index = torch.arange(B, device=device)  # its place among the given sources
        self.limit = limit
        # the score that a translation has to exceed to be among its n_best
        self.bar = torch.full((B,), EMPTY, device=device, dtype=torch.float)
        self.open_places = torch.full((B, 1), width, device=device)  # how many it still has
        # and here (sources, places): at first, one place holds the empty translation
        self.log_p = torch.full((B, width), EMPTY, device=device, dtype=torch.float)
        self.log_p[:, 0] = 0.0
        self.ids = torch.full((B, width, 1), BOS, device=device)  # (sources, places, t)
        # `sums` and `looked_at` of a Hypothesis (sources, places, t - 1, 2)
        self.history = torch.zeros(B, width, 0, 2, device=device)

    def extend(self, logits: Tensor, looked_at: Tensor) -> Tensor:
        """Put each source's likeliest extensions into its places, best first.

        logits (rows, vocab) of the next token; looked_at (rows): where each row looked. Returns
        which row each place goes on from: (sources, places).
        """
        # all places are filled, also if fewer are open; `finish` empties those behind the open ones
        sources = len(self.log_p)
        # at most `width` of the best can come from one row; `gain` is the log-softmax of these
        top, tokens = logits.float().topk(min(self.width, logits.size(-1)))
        gain = top - logits.float().logsumexp(-1, keepdim=True)
        extensions = (self.log_p.view(-1, 1) + gain).view(sources, -1)  # (sources, places * k)
        self.log_p, chosen = extensions.topk(self.width)
        first = torch.arange(0, sources * self.width, self.width, device=chosen.device)
        rows = first.unsqueeze(1) + chosen // tokens.size(1)
        token = tokens.view(sources, -1).gather(1, chosen)
        self.ids = torch.cat((self.ids.flatten(0, 1)[rows], token.unsqueeze(-1)), dim=-1)
        # places as floats, too, so that one gather moves both
        latest = torch.stack((self.log_p, looked_at[rows]), dim=-1).unsqueeze(2)
        self.history = torch.cat((self.history.flatten(0, 1)[rows], latest), dim=2)
        return rows

    def finish(self) -> None:
        """Move what has ended, by EOS or by its limit, to `finished`, if its score is high."""
        steps = self.ids.size(-1) - 1
        place = torch.arange(self.width, device=self.log_p.device)
        alive = (place < self.open_places) & (self.log_p > EMPTY)  # places are filled best first
        at_limit = (steps + 1 >= self.limit).unsqueeze(1)
        ended = alive & ((self.ids[..., -1] == EOS) | at_limit)
        scores = self.log_p / tat.length_penalty(steps, self.alpha)
        # all of these exceeded `bar` as it was; if it rises meanwhile, `del` removes the surplus
        for i, j in (ended & (scores > self.bar.unsqueeze(1))).nonzero().tolist():
            best = self.finished[self.source_index[i]]
            sums, looked_at = self.history[i, j].unbind(-1)
            lists = self.ids[i, j].tolist(), sums.tolist(), looked_at.long().tolist()
            insort(best, Hypothesis(float(scores[i, j]), *lists), key=lambda other: -other.score)
            del best[self.n_best :]
            if len(best) == self.n_best:
                self.bar[i] = best[-1].score
        self.log_p = self.log_p.masked_fill(ended | ~alive, EMPTY)
        # each ending costs a place, also one whose score was too low
        self.open_places = self.open_places - ended.sum(1, keepdim=True)

    def drop(self) -> Tensor | None:
        """Drop the sources whose search is over; returns which of them stay (None: all)."""
        # Log-probabilities only fall, and what divides them is largest at the limit: so whatever
        # continues an open translation can't score more than `highest`.
        highest = self.log_p.amax(1) / tat.length_penalty(self.limit - 1, self.alpha)
        stay = (highest > self.bar).nonzero().flatten()  # EMPTY, with nothing open, is never higher
        if len(stay) == len(self.source_index):
            return None  # as in most steps: nothing has to be copied
        for field in ("source_index", "limit", "bar", "open_places", "log_p", "ids", "history"):
            setattr(self, field, getattr(self, field)[stay])
        return stay


@torch.inference_mode()
def fast_beam(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int,
    alpha: float = 0.6, n_best: int = 1, aligned: bool = False,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The best translations that a beam finds (Section 6.1): of each source, at most `n_best`.

    src (B, S), src_mask (B or 1, 1, S); alpha: 0.6 in the paper. max_len, in tokens with BOS, holds
    for sources without padding: one with n padded positions gets n tokens fewer, as if it were
    alone, but at least one behind BOS. `aligned` asks for `looked_at`; ValueError if
    attention can't be recorded.
    """
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(len(src))).clamp(min=2)
    state = Beam(limit, beam, alpha, n_best)
    with tat.evaluating(model), tat.recording(model) if aligned else nullcontext() as weights:
        decoder = StepwiseDecoder(model, src, src_mask, beam)
        # Before each step, state and decoder have the same rows in the same order: `beam` for each
        # source that is still searched. `extend` says from which row each place goes on, and `drop`
        # with which sources; `select` then gives the decoder these rows and sources.
        for _ in range(1, max_len):
            logits = decoder.step(state.ids[..., -1].flatten())
            rows = state.extend(logits, decoder.looked_at(weights or {}))
            state.finish()
            stay = state.drop()
            if len(state.source_index) == 0:
                break
            decoder.select((rows if stay is None else rows[stay]).flatten(), stay)
    # where scores are no numbers, or max_len leaves no step
    nothing = Hypothesis(EMPTY, [BOS], [], [])
    return [best or [nothing] for best in state.finished]


class Search:
    """Translation of lines with one model, greedily or with a beam."""

    def __init__(self, translator: Translator, beam: int = 1, alpha: float = ALPHA, n_best=1):
        """Raises Refused for a number out of range, and for a model that has no steps."""
        # refused now, because a model that has no steps would fail at the first line
        check_options(beam, alpha)
        if not 1 <= n_best <= beam:
            raise Refused(
                f"--n-best must be at least 1 and at most --beam, {beam}, but it is {n_best}"
            )
        check_stepwise(translator.model)
        self.translator, self.beam, self.alpha, self.n_best = translator, beam, alpha, n_best
        self.languages = translator.languages
        self.lost = 0  # lines with text that got no translation
        self.name = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
        self.engine = {"engine": "pytorch", "version": torch.__version__, "type": "float32"}

    def translate(self, lines: list[str], tell: Callable = nobody, first: int = 1) -> list[str]:
        """A translation for each line, in order; see `each`."""
        best = self.each(lines, self.hypotheses, tell, first)
        decode = self.translator.tokenizer.decode
        return ["" if hypotheses is None else decode(hypotheses[0].ids) for hypotheses in best]

    def pieces(self, text: str) -> list[str]:
        """The tokens of a source text; none of a vocabulary of whole words."""
        tokenizer = self.translator.tokenizer
        if tokenizer.words:
            return []
        return tokenizer.tokens(tokenizer.encode(text, self.languages[0]))

    def each(self, lines: list[str], work: Callable, tell: Callable, first: int = 1) -> list[Any]:
        """What `work` makes of each line, in order; it gets some sources as ids, longest first.

        None is for a blank line, and for a refused one: longer than the positions of the model, or
        than memory suffices for. `lost` counts the refused, and `tell` gets a note on each.
        """
        # A line of more than LONG_LINE_TOKENS comes alone, and is decoded greedily, because a beam
        # would take minutes. The others come in batches, the longest first, so that little is
        # padded; `results` has them in the order in which they were given.
        _, tokenizer, (language, _) = self.translator
        sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
        written = [i for i, line in enumerate(lines) if line.strip()]
        order = sorted(written, key=lambda i: -len(sources[i]))
        long = [i for i in order if len(sources[i]) > LONG_LINE_TOKENS]
        for i in long:
            tell(
                f"line {first + i} has {len(sources[i]):,} tokens, far more than a sentence; it is translated greedily, and badly"
            )
        short = order[len(long) :]
        # the beam multiplies the rows of a batch: at most 640, or one sentence
        size = min(128, max(1, 640 // self.beam))
        batches = [[i] for i in long] + [short[i : i + size] for i in range(0, len(short), size)]
        results: list[Any] = [None] * len(lines)
        for numbers in batches:
            outcomes = attempted(work, [sources[i] for i in numbers])
            for i, outcome in zip(numbers, outcomes, strict=True):
                if isinstance(outcome, Refused):
                    self.lost += 1
                    tell(
                        f"line {first + i}, of {len(sources[i]):,} tokens, is left empty: {outcome}"
                    )
                else:
                    results[i] = outcome
        return results

    def hypotheses(self, rows: list[list[int]], aligned: bool = False) -> list[list[Hypothesis]]:
        """Up to `n_best` of each source, given as ids; with at most 50 tokens more than that."""
        model = self.translator.model
        src = tat.pad_rows(rows).to(next(model.parameters()).device)
        long = src.size(1) > LONG_LINE_TOKENS
        beam, n_best = (1, 1) if long else (self.beam, self.n_best)
        try:
            settings = src.size(1) + 50, beam, self.alpha, n_best, aligned
            return fast_beam(model, src, tat.source_mask(src), *settings)
        except ValueError as error:
            # a shorter source, with 50 tokens more, stays below the 512 learned positions: there,
            # an error is a mistake of ours
            if src.size(1) < LONG_LINE_TOKENS - 50:
                raise
            raise Refused(str(error)) from error

    def decode(self, model: Transformer, src: Tensor, src_mask: Tensor, max_len: int) -> Tensor:
        """As the document's searches: ids (B, at most max_len), BOS first, PAD after EOS."""
        best = fast_beam(model, src, src_mask, max_len, self.beam, self.alpha)
        return tat.pad_rows([hypotheses[0].ids for hypotheses in best]).to(src.device)


def attempted(work: Callable, rows: list[list[int]]) -> list[Any]:
    """What `work` makes of each source; Refused in the place of one that there is no memory for."""
    # A line that is too long must not cost its neighbours: a batch that fails is tried row by row.
    try:
        with within_memory("out of memory"):
            return work(rows)
    except Refused as error:
        if len(rows) == 1:
            return [error]
        return [outcome for row in rows for outcome in attempted(work, [row])]
