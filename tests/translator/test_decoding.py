"""Decoding with a key/value cache, greedy and with a beam, against recomputing everything."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import the_annotated_transformer as tat
from tests.helpers import (
    beam_by_hand,
    beam_ids,
    decided,
    exhaustive_search,
    greedy_by_hand,
    greedy_ids,
)
from translator.stepping import StepwiseDecoder


class Scripted(tat.Generator):
    """Writes row b of `script` for sentence b; with `leaving`, until it has written `end`."""

    def __init__(self, script: list[list[int]], end: int = tat.EOS, leaving: bool = True):
        super().__init__(16, 11)
        self.script = torch.tensor(script)
        self.end = end
        self.steps = 0
        self.leaving = leaving

    def logits(self, x: Tensor) -> Tensor:
        assert len(x) == len(self.script)
        symbols = self.script[:, self.steps]
        self.steps = self.steps + 1
        if self.leaving:
            self.script = self.script[symbols != self.end]
        scores = nn.functional.one_hot(symbols, 11).double()
        return scores.view(*x.shape[:-1], 11)


IDS = ["document", "program"]
both_searches = pytest.mark.parametrize("greedy", [tat.greedy_decode, greedy_ids], ids=IDS)
both_beams = pytest.mark.parametrize("search", [tat.beam_search, beam_ids], ids=IDS)


@pytest.fixture
def varied() -> tuple[tat.Transformer, tat.Batch]:
    """A random model, nearly chaotic, and 40 sentences that it ends at different steps or never."""
    torch.manual_seed(1)
    model = decided(tat.make_model(13, 6, 2, 16, 24, 4, dropout=0.0, norm="pre")).double().eval()
    lengths = torch.randint(1, 9, (40,)).tolist()
    rows = [torch.randint(4, 13, (n,)).tolist() + [tat.EOS] for n in lengths]
    return model, tat.Batch(tat.pad_rows(rows))


@both_searches
def test_batched_greedy_equals_one_by_one(varied, greedy):
    """Catches sentences that influence each other, through padding or steps after their end."""
    model, batch = varied
    rows = greedy(model, batch.src, batch.src_mask, max_len=12).tolist()
    ends = set()
    for row, src, mask in zip(rows, batch.src, batch.src_mask, strict=True):
        # the program's limit is that of the sentence alone
        longest = 12 if greedy is tat.greedy_decode else max(2, 12 - int((~mask).sum()))
        expected = greedy_by_hand(model, src[mask[0]].tolist(), longest)
        assert row == expected + [tat.PAD] * (len(row) - len(expected))
        ends.add(len(expected))
    assert len(ends) > 3 and max(ends) == 12  # otherwise the sentences test nothing
    assert greedy(model, batch.src, batch.src_mask, 1).tolist() == [[tat.BOS]] * 40


@both_searches
def test_greedy_stops_when_all_have_ended(small_model, sentences, greedy):
    """Catches a loop to max_len, one that stops with the first sentence, or writes after an end."""
    model = small_model()
    calls = []
    script = [[5, 2, 9, 9, 9, 9], [2, 9, 9, 9, 9, 9], [7, 6, 5, 2, 9, 9]]
    model.generator = Scripted(script, leaving=greedy is greedy_ids)
    model.decoder.layers[0].feed_forward.register_forward_hook(lambda *_: calls.append(1))
    ids = greedy(model, sentences.src, sentences.src_mask, max_len=7)
    assert ids.tolist() == [[1, 5, 2, 0, 0], [1, 2, 0, 0, 0], [1, 7, 6, 5, 2]]
    assert len(calls) == model.generator.steps == 4


@pytest.mark.parametrize("training", [True, False])
@both_searches
def test_greedy_evaluates_without_gradients_and_restores_the_mode(
    small_model, sentences, training, greedy
):
    """Also after an error; catches dropout while decoding, and a graph that grows with steps."""
    model, seen = small_model(dropout=0.5).train(training), set()
    for layer in (model.decoder.layers[0].feed_forward, model.decoder.norm):
        layer.register_forward_hook(
            lambda module, _, output: seen.add((module.training, output.requires_grad))
        )
    for search, start in ((greedy, ()), (tat.greedy_decode_naive, (tat.BOS,))):
        seen.clear()
        search(model, sentences.src, sentences.src_mask, 5, *start)
        assert seen == {(False, False)}
    with pytest.raises(ValueError, match="99 is no id"):
        greedy(model, torch.tensor([[99]]), torch.ones(1, 1, 1), max_len=5)
    assert {module.training for module in model.modules()} == {training}


@pytest.mark.parametrize(
    "changes", [{"norm": "pre"}, {"norm": "post"}, {"positions": "learned", "d_k": 3}]
)
def test_stepwise_decoding_equals_parallel_decoding(small_model, sentences, changes):
    """Catches wrong positions and lost or misplaced keys, at every position, even beyond 256."""
    model = small_model(**changes)
    batch = sentences
    tgt = torch.randint(4, 11, (3, 300))
    parallel = model(batch.src, tgt, batch.src_mask, tat.subsequent_mask(300))
    decoder = StepwiseDecoder(model, batch.src, batch.src_mask)
    assert_close(torch.stack([decoder.step(tokens) for tokens in tgt.unbind(1)], dim=1), parallel)


def test_rows_of_a_cache_can_be_dropped_and_reordered(small_model, sentences):
    """Catches a part of the cache that stays when sentences move, once or twice between steps."""
    model = small_model()
    batch = sentences
    rows = torch.tensor([2, 0])
    tgt = torch.randint(4, 11, (3, 6))
    decoder = StepwiseDecoder(model, batch.src, batch.src_mask)
    for t in range(3):
        decoder.step(tgt[:, t])
    decoder.select(torch.tensor([0, 2]), torch.tensor([0, 2]))
    decoder.select(torch.tensor([1, 0]), torch.tensor([1, 0]))
    steps = torch.stack([decoder.step(tgt[rows, t]) for t in range(3, 6)], dim=1)
    parallel = model(batch.src, tgt, batch.src_mask, tat.subsequent_mask(6))
    assert_close(steps, parallel[rows, 3:])


# --- Beam search ---
@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 0.0), (3, 0.6), (3, 2.5), (5, 1.5)])
@both_beams
def test_batched_beam_equals_one_by_one(varied, beam, alpha, search):
    """Catches another's past or source, a wrong penalty; by hand it never stops too soon."""
    model, batch = varied
    rows = search(model, batch.src, batch.src_mask, 12, beam, alpha).tolist()
    longest = batch.src.size(1)
    lengths = set()
    for row, src, mask in zip(rows, batch.src, batch.src_mask, strict=True):
        real = src[mask[0]].tolist()
        expected = beam_by_hand(model, real, 12 - (longest - len(real)), beam, alpha)
        assert row == expected + [tat.PAD] * (len(row) - len(expected))
        lengths.add(len(expected))
    assert len(lengths) > 3


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@both_beams
def test_the_widest_beam_finds_the_best_of_all_sequences(alpha, search):
    """Catches every mistake of the search: its score must be the best of all 4 ** 5 endings."""
    model = tat.make_model(5, 4, 1, 16, 24, 2, dropout=0.0).eval()
    src = torch.randint(3, 5, (3, 4))
    rows = search(model, src, tat.source_mask(src), 6, beam=4**5, alpha=alpha).tolist()
    with torch.no_grad():
        for row, source in zip(rows, src, strict=True):
            best = exhaustive_search(model, source.unsqueeze(0), 6, alpha)[1]
            assert row == best + [tat.PAD] * (len(row) - len(best))
