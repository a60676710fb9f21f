"""Searching with PyTorch, and translating lines with it: for every model that has steps.

Where CTranslate2 computes the same, `translator/engine.py` asks it instead. This search is the
reference that one reads, and the one that can tell what a model looked at.
"""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

import the_annotated_transformer as tat
from the_annotated_transformer import ALPHA, BOS, EOS, Transformer, Translator
from translator.corpus import SidedTokenizer, mark_of
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
    places: list[int]  # and where its row looked at most in the source, if that was asked for


class Beam:
    """The open translations of the sources that are still searched, and the best finished ones.

    A source has `width` places for open translations; each that ends takes its place along, so a
    source with as many ended ones has none left. A place that holds nothing keeps its row, at
    log-probability EMPTY: a batch of one shape is simpler than one that lacks rows here and there.
    """

    def __init__(self, limit: Tensor, width: int, alpha: float, n_best: int):
        """limit (B): how many tokens each translation may have, BOS included."""
        B, device = len(limit), limit.device
        self.width, self.alpha, self.n_best = width, alpha, n_best
        self.finished: list[list[Hypothesis]] = [[] for _ in range(B)]  # of each source, best first
        # what follows has a row for each source that is still searched
        self.source = torch.arange(B, device=device)  # its number
        self.limit = limit
        self.bar = torch.full(
            (B,), EMPTY, device=device, dtype=torch.float
        )  # scores must exceed it
        self.open_places = torch.full((B, 1), width, device=device)
        # and here (sources, places): at first, one place holds the empty translation
        self.log_p = torch.full((B, width), EMPTY, device=device, dtype=torch.float)
        self.log_p[:, 0] = 0.0
        self.ids = torch.full((B, width, 1), BOS, device=device)  # (sources, places, t)
        self.sums = torch.zeros(B, width, 0, device=device)  # as in Hypothesis, (..., t - 1)
        self.looked_at = torch.zeros(B, width, 0, dtype=torch.long, device=device)

    def extend(self, logits: Tensor, looked_at: Tensor | None) -> Tensor:
        """Put each source's likeliest extensions into its places, best first; which rows they are of.

        logits (rows, vocab) of the next token; looked_at (rows): where each row looked, if known.
        """
        sources = len(self.log_p)
        top, tokens = logits.float().topk(min(self.width, logits.size(-1)))  # more can't be needed
        gain = top - logits.float().logsumexp(-1, keepdim=True)
        extensions = (self.log_p.view(-1, 1) + gain).view(sources, -1)  # (sources, places * k)
        self.log_p, best = extensions.topk(self.width)
        first_row = torch.arange(0, sources * self.width, self.width, device=best.device)
        rows = (first_row.unsqueeze(1) + best // tokens.size(1)).flatten()
        token = tokens.view(sources, -1).gather(1, best).unsqueeze(-1)
        self.ids = torch.cat((self.ids.flatten(0, 1)[rows].view_as(self.ids), token), -1)
        past = self.sums.flatten(0, 1)[rows].view_as(self.sums)
        self.sums = torch.cat((past, self.log_p.unsqueeze(-1)), -1)
        if looked_at is not None:
            past = self.looked_at.flatten(0, 1)[rows].view_as(self.looked_at)
            latest = looked_at[rows].view(sources, -1, 1)
            self.looked_at = torch.cat((past, latest), -1)
        return rows

    def finish(self) -> None:
        """Move what has ended, by EOS or by its limit, to `finished`, if its score is high enough."""
        length = self.ids.size(-1)
        place = torch.arange(self.width, device=self.log_p.device)
        alive = (place < self.open_places) & (self.log_p > EMPTY)  # places are filled best first
        at_limit = (length >= self.limit).unsqueeze(1)
        ended = alive & ((self.ids[..., -1] == EOS) | at_limit)
        scores = self.log_p / tat.length_penalty(length - 1, self.alpha)
        for i, j in (ended & (scores > self.bar.unsqueeze(1))).nonzero().tolist():
            lists = self.ids[i, j], self.sums[i, j], self.looked_at[i, j]
            self.enter(i, Hypothesis(float(scores[i, j]), *(values.tolist() for values in lists)))
        self.log_p = self.log_p.masked_fill(ended | ~alive, EMPTY)
        # each ending costs a place, also one whose score was too low
        self.open_places = self.open_places - ended.sum(1, keepdim=True)

    def enter(self, i: int, hypothesis: Hypothesis) -> None:
        """Put it among the best of a source, and raise the bar when these are `n_best`."""
        best = self.finished[self.source[i]]
        best.append(hypothesis)
        best.sort(key=lambda each: -each.score)
        del best[self.n_best :]
        if len(best) == self.n_best:
            self.bar[i] = best[-1].score

    def drop(self) -> Tensor:
        """Leave the sources whose search is over; which ones stay, as rows of the fields.

        Log-probabilities only fall, and what divides them is largest at the limit: so whatever
        continues an open translation can't score more than `highest`.
        """
        highest = self.log_p.amax(1) / tat.length_penalty(self.limit - 1, self.alpha)
        stay = (highest > self.bar).nonzero().flatten()  # EMPTY, with nothing open, is never higher
        if len(stay) < len(self.source):
            self.source, self.limit, self.bar = self.source[stay], self.limit[stay], self.bar[stay]
            self.open_places, self.log_p = self.open_places[stay], self.log_p[stay]
            self.ids, self.sums = self.ids[stay], self.sums[stay]
            self.looked_at = self.looked_at[stay]
        return stay


@torch.inference_mode()
def fast_beam(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int,
    alpha: float = 0.6, n_best: int = 1, aligned: bool = False,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The best translations that a beam finds (Section 6.1): of each source, at most `n_best`.

    src (B, S), src_mask (B or 1, 1, S); alpha: 0.6 in the paper. max_len is in tokens, BOS included,
    and holds for sources without padding: one with n padded positions gets n tokens fewer, as if it
    were alone, but at least one. `aligned` asks for `places`; ValueError if the model's attention
    can't be recorded.
    """
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(len(src))).clamp(min=2)
    search = Beam(limit, beam, alpha, n_best)
    with tat.evaluating(model), tat.recording(model) if aligned else nullcontext() as weights:
        decoder = StepwiseDecoder(model, src, src_mask, beam)
        for _ in range(1, max_len):
            logits = decoder.step(search.ids[..., -1].flatten())
            rows = search.extend(logits, decoder.looked_at(weights) if aligned else None)
            search.finish()
            sources = len(search.source)
            stay = search.drop()
            if len(stay) == 0:
                break
            all_stay = len(stay) == sources
            decoder.select(rows.view(sources, beam)[stay].flatten(), None if all_stay else stay)
    nothing = Hypothesis(EMPTY, [BOS], [], [])  # of scores that are no numbers, or no steps
    return [best or [nothing] for best in search.finished]


def fast_greedy(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, alpha: float = ALPHA,
    aligned: bool = False,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The likeliest token at each step: a beam with a single place; see `fast_beam`."""
    return fast_beam(model, src, src_mask, max_len, 1, alpha, aligned=aligned)


class Search:
    """Translation of lines with one model, greedily or with a beam."""

    def __init__(self, translator: Translator, beam: int = 1, alpha: float = ALPHA, n_best=1):
        """Raises Refused for a number out of range, and for a model that has no steps."""
        check_options(beam, alpha)
        if not 1 <= n_best <= beam:
            raise Refused(
                f"--n-best must be at least 1 and at most --beam, {beam}, but it is {n_best}"
            )
        check_stepwise(translator.model)
        self.translator, self.beam, self.alpha, self.n_best = translator, beam, alpha, n_best
        self.languages = translator.languages
        self.batch_size = min(128, max(1, 640 // beam))
        self.lost = 0  # lines that were left empty
        self.told = {""}  # marks of languages that the model does not know
        self.name = "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}"
        self.engine = {"engine": "pytorch", "version": torch.__version__, "type": "float32"}

    def translate(self, lines: list[str], tell: Callable = nobody, first: int = 1) -> list[str]:
        """A translation for each line, in order; see `each`."""
        best = self.each(lines, self.hypotheses, tell, first)
        decode = self.translator.tokenizer.decode
        return ["" if hypotheses is None else decode(hypotheses[0].ids) for hypotheses in best]

    def each(self, lines: list[str], work: Callable, tell: Callable, first: int = 1) -> list[Any]:
        """What `work` makes of each line, in order; it gets some sources as ids, longest first.

        A line of more than LONG_LINE_TOKENS comes alone, and is decoded greedily, because a beam
        would take minutes; `tell` gets a warning with its number, counted from `first`. None is for
        a blank line, and for one that is longer than the positions of the model, or than memory
        suffices for; `lost` counts these.
        """
        _, tokenizer, (language, _) = self.translator
        sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
        self.tell_marks(lines, tell)
        written = [i for i, line in enumerate(lines) if line.strip()]
        order = sorted(written, key=lambda i: -len(sources[i]))
        long = [i for i in order if len(sources[i]) > LONG_LINE_TOKENS]
        for i in long:
            tell(
                f"line {first + i} has {len(sources[i]):,} tokens, far more than a sentence; "
                "it is translated greedily, and badly"
            )
        short, size = order[len(long) :], self.batch_size
        batches = [[i] for i in long] + [short[i : i + size] for i in range(0, len(short), size)]
        results: list[Any] = [None] * len(lines)
        for numbers in batches:
            outcomes = attempted(work, [sources[i] for i in numbers])
            for i, outcome in zip(numbers, outcomes, strict=True):
                if isinstance(outcome, Refused):
                    self.lost += 1
                    tokens = len(sources[i])
                    tell(f"line {first + i}, of {tokens:,} tokens, is left empty: {outcome}")
                else:
                    results[i] = outcome
        return results

    def tell_marks(self, lines: list[str], tell: Callable) -> None:
        """Tell, once each, which marks of languages such as >>fra<< the model takes for text."""
        tokenizer = self.translator.tokenizer
        if isinstance(tokenizer, SidedTokenizer):
            strange = {mark_of(tokenizer, line, known=False) for line in lines} - self.told
            if strange:
                marks = ", ".join(sorted(strange))
                tell(f"the model does not know {marks}, which it takes for text")
            self.told |= strange

    def hypotheses(self, rows: list[list[int]], aligned: bool = False) -> list[list[Hypothesis]]:
        """Of each source, as ids, up to `n_best`; each has at most 50 tokens more than its source."""
        model = self.translator.model
        src = tat.pad_rows(rows).to(next(model.parameters()).device)
        search = partial(fast_beam, beam=self.beam, n_best=self.n_best)
        if src.size(1) > LONG_LINE_TOKENS:
            search = fast_greedy
        given = model, src, tat.source_mask(src), src.size(1) + 50
        try:
            return search(*given, alpha=self.alpha, aligned=aligned)
        except ValueError as error:
            if src.size(1) < LONG_LINE_TOKENS - 50:
                raise
            raise Refused(str(error)) from error  # learned positions have an end


def attempted(work: Callable, rows: list[list[int]]) -> list[Any]:
    """What `work` makes of each source; Refused in the place of one that there is no memory for.

    A line that is too long must not cost its neighbours: a batch that fails is tried row by row.
    """
    try:
        with within_memory("out of memory"):
            return work(rows)
    except Refused as error:
        if len(rows) == 1:
            return [error]
        return [outcome for row in rows for outcome in attempted(work, [row])]
