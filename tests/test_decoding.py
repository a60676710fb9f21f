"""Greedy decoding and its key/value cache, against the loop that recomputes everything."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import the_annotated_transformer as tat


def greedy_by_hand(model: tat.Transformer, src: list[int], max_len: int) -> list[int]:
    """One sentence, no padding, no cache, no batch: the likeliest symbol after the whole prefix, until EOS."""
    ids = [tat.BOS]
    while len(ids) < max_len and ids[-1] != tat.EOS:
        tgt = torch.tensor([ids])
        ids.append(int(model(torch.tensor([src]), tgt, None, tat.subsequent_mask(len(ids)))[0, -1].argmax()))
    return ids


class Scripted(tat.Generator):
    """A generator that says what it is told: row b of `script` is what sentence b is to produce, step by step.

    It expects that a sentence is asked for until it has produced `end`, and not again.
    """

    def __init__(self, script: list[list[int]], end: int | None = tat.EOS):
        super().__init__(16, 11)
        self.script, self.end, self.steps = torch.tensor(script), end, 0

    def logits(self, x: Tensor) -> Tensor:
        """One-hot scores of the next symbol of each sentence."""
        assert len(x) == len(self.script)
        symbols, self.steps = self.script[:, self.steps], self.steps + 1
        if self.end is not None:
            self.script = self.script[symbols != self.end]
        return nn.functional.one_hot(symbols, 11).double()

    def padded(self) -> Callable[[Tensor], Tensor]:
        """The same: there is no matrix to be padded."""
        return self.logits


@pytest.fixture
def varied() -> tuple[tat.Transformer, tat.Batch]:
    """A random model, not far from chaos, and 40 random sentences that it ends at different steps, if at all."""
    torch.manual_seed(1)
    model = tat.make_model(13, 6, 2, 16, 24, 4, dropout=0.0, norm="pre").double().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)
    lengths = torch.randint(1, 9, (40,)).tolist()
    return model, tat.Batch(tat.pad_rows([torch.randint(4, 13, (n,)).tolist() + [tat.EOS] for n in lengths]))


def test_batched_greedy_equals_one_by_one(varied):
    """Catches sentences that influence each other in a batch, by padding or by what goes on after their end."""
    model, batch = varied
    found = tat.greedy_decode(model, batch.src, batch.src_mask, max_len=12).tolist()
    ends = set()
    for row, src, mask in zip(found, batch.src, batch.src_mask, strict=True):
        expected = greedy_by_hand(model, src[mask[0]].tolist(), 12)
        assert row == expected + [tat.PAD] * (len(row) - len(expected))
        ends.add(len(expected))
    assert len(ends) > 3  # otherwise the sentences are no test


def test_greedy_equals_the_naive_loop_up_to_the_end(varied):
    """Catches a cache that changes the result; the naive loop does not stop at EOS."""
    model, batch = varied
    cached = tat.greedy_decode(model, batch.src, batch.src_mask, 12)
    naive = tat.greedy_decode_naive(model, batch.src, batch.src_mask, 12, tat.BOS)
    assert naive.shape == (40, 12)
    for row, free in zip(cached.tolist(), naive.tolist(), strict=True):
        real = row.index(tat.EOS) + 1 if tat.EOS in row else len(row)
        assert row[:real] == free[:real]
    assert torch.equal(tat.greedy_decode(model, batch.src, batch.src_mask, 12, end_symbol=None), naive)


def test_greedy_stops_when_all_have_ended(small_model, sentences):
    """Catches a loop that goes on to max_len, stops with the first sentence, or writes after an end."""
    model, calls = small_model(), []
    model.generator = Scripted([[5, 2, 9, 9, 9, 9], [2, 9, 9, 9, 9, 9], [7, 6, 5, 2, 9, 9]])
    model.decoder.layers[0].feed_forward.register_forward_hook(lambda *_: calls.append(1))
    found = tat.greedy_decode(model, sentences.src, sentences.src_mask, max_len=7)
    assert found.tolist() == [[1, 5, 2, 0, 0], [1, 2, 0, 0, 0], [1, 7, 6, 5, 2]]
    assert len(calls) == model.generator.steps == 4


def test_greedy_takes_other_symbols(small_model, sentences):
    """Catches BOS, EOS or PAD that are written into the loop."""
    model = small_model()
    model.generator = Scripted([[5, 2, 9, 9], [9, 2, 4, 4], [2, 9, 3, 3]], end=9)
    found = tat.greedy_decode(model, sentences.src, sentences.src_mask, 9, start_symbol=8, end_symbol=9, pad=10)
    assert found.tolist() == [[8, 5, 2, 9], [8, 9, 10, 10], [8, 2, 9, 10]]


@pytest.mark.parametrize("end_symbol", [tat.EOS, None])
def test_greedy_keeps_to_max_len(small_model, sentences, end_symbol):
    """Catches a limit that is off by one, and an end symbol that stops where none was asked for."""
    script = [[5, 6, 5, 6, 5, 6], [2, 3, 2, 3, 2, 3], [7, 7, 7, 2, 7, 7]]
    for max_len in (1, 2, 6):
        model = small_model()
        model.generator = Scripted(script, end_symbol)
        found = tat.greedy_decode(model, sentences.src, sentences.src_mask, max_len, end_symbol=end_symbol)
        assert found.shape == (3, max_len)
        if end_symbol is None:
            assert found[:, 1:].tolist() == [row[: max_len - 1] for row in script]


@pytest.mark.parametrize("training", [True, False])
def test_greedy_evaluates_and_restores_the_mode(small_model, sentences, training):
    """Catches dropout while decoding, and a model that is left in another mode than it came in."""
    model, modes = small_model(dropout=0.5).train(training), []
    model.decoder.layers[0].feed_forward.register_forward_hook(lambda module, *_: modes.append(module.training))
    tat.greedy_decode(model, sentences.src, sentences.src_mask, max_len=5)
    assert modes and not any(modes)
    assert {module.training for module in model.modules()} == {training}


def test_mode_is_restored_after_an_error(small_model):
    """Catches a failed translation in the middle of training that switches dropout off for the rest of it."""
    model = small_model().train()
    with pytest.raises(IndexError):
        tat.greedy_decode(model, torch.tensor([[99]]), torch.ones(1, 1, 1), max_len=5)
    assert model.training


def test_greedy_builds_no_gradients(small_model, sentences):
    """Catches a graph that grows with every step."""
    model, graphs = small_model(), []
    model.decoder.norm.register_forward_hook(lambda module, inputs, output: graphs.append(output.requires_grad))
    tat.greedy_decode(model, sentences.src, sentences.src_mask, max_len=5)
    tat.greedy_decode_naive(model, sentences.src, sentences.src_mask, 5, tat.BOS)
    assert graphs and not any(graphs)


@pytest.mark.parametrize("changes", [{"norm": "pre"}, {"norm": "post"}, {"positions": "learned", "d_k": 3}])
def test_stepwise_decoding_equals_parallel_decoding(small_model, sentences, changes):
    """Catches wrong positions, keys out of order or lost, at every position of every sentence; beyond 256, too."""
    model, batch = small_model(**changes), sentences
    tgt = torch.randint(4, 11, (3, 300))
    parallel = model(batch.src, tgt, batch.src_mask, tat.subsequent_mask(300))
    decoder = tat.CachedDecoder(model, batch.src, batch.src_mask)
    steps = [decoder.step(tgt[:, t]) for t in range(300)]
    found = torch.stack(steps, dim=1)
    assert_close(found[..., : parallel.size(-1)], parallel)
    assert found.size(-1) == 64 and (found[..., parallel.size(-1) :] == -torch.inf).all()


def test_the_likeliest_symbols_of_many_rows():
    """Catches rows that change places or get lost where they are cut into parts, and values that are not logarithms."""
    logits = torch.randn(150, 700, dtype=torch.double)
    values, symbols = tat.likeliest(logits, 5)
    expected = logits.float().log_softmax(-1).topk(5)
    assert torch.equal(symbols, expected.indices)
    assert_close(values, expected.values)


def test_rows_of_a_cache_can_be_dropped_and_reordered(small_model, sentences):
    """Catches a part of the memory that stays behind when sentences change places, once or twice between two steps."""
    model, batch, rows = small_model(), sentences, torch.tensor([2, 0])
    tgt = torch.randint(4, 11, (3, 6))
    decoder = tat.CachedDecoder(model, batch.src, batch.src_mask)
    for t in range(3):
        decoder.step(tgt[:, t])
    decoder.select(torch.tensor([0, 2]), torch.tensor([0, 2]))
    decoder.select(torch.tensor([1, 0]), torch.tensor([1, 0]))
    steps = torch.stack([decoder.step(tgt[rows, t]) for t in range(3, 6)], dim=1)
    parallel = model(batch.src, tgt, batch.src_mask, tat.subsequent_mask(6))
    assert_close(steps[..., : parallel.size(-1)], parallel[rows, 3:])


def test_sources_may_have_different_numbers_of_rows(small_model, sentences):
    """Catches a row that reads the source of its neighbour, or the past of one that is gone."""
    model, batch, owners = small_model(), sentences, torch.tensor([0, 0, 2])
    live = torch.tensor([[True, False, True], [False, False, False], [False, True, False]])
    tgt = torch.randint(4, 11, (3, 6))
    decoder = tat.CachedDecoder(model, batch.src, batch.src_mask)
    for t in range(3):
        decoder.step(tgt[:, t])
    decoder.select(owners)
    tgt = torch.cat((tgt[owners, :3], torch.randint(4, 11, (3, 3))), dim=1)
    steps = torch.stack([decoder.step(tgt[:, t], live) for t in range(3, 6)], dim=1)
    parallel = model(batch.src[owners], tgt, batch.src_mask[owners], tat.subsequent_mask(6))
    assert_close(steps[..., : parallel.size(-1)], parallel[:, 3:])


def test_cache_projects_nothing_twice(small_model, sentences):
    """Catches keys and values that are computed again: the source's once, each target position's once."""
    model, seen = small_model(N=1), []
    for W in (model.decoder.layers[0].src_attn.W_k, model.decoder.layers[0].src_attn.W_v):
        W.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[:2]))
    decoder = tat.CachedDecoder(model, sentences.src, sentences.src_mask)
    for t in range(1, 6):
        decoder.step(torch.full((3,), tat.BOS))
        assert [past.size(2) for past in decoder.layers[0].past] == [t, t]
    assert seen == [sentences.src.shape] * 2


@pytest.mark.parametrize("width", [1, 63, 640, 1279, 1280, 1281, 6106])
def test_the_largest_are_found_by_blocks(width):
    """Catches a block that is left out, the symbols after the last whole block, and places that belong to other values."""
    torch.manual_seed(width)
    x = torch.randn(40, width)
    x[::2, -1] = x[::2].amax(1) + 1
    for k in {1, min(10, width)}:
        values, places = tat.largest(x, k)
        assert torch.equal(values, x.sort(descending=True).values[:, :k])
        assert torch.equal(x.gather(1, places), values)


def test_code_written_for_the_2022_edition_runs():
    """Catches a changed name, argument order or mask convention: thousands of snippets look like this."""
    model = tat.make_model(11, 11, 2)
    model.eval()
    src = torch.LongTensor([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
    src_mask = torch.ones(1, 1, 10)
    memory = model.encode(src, src_mask)
    ys = torch.zeros(1, 1).type_as(src)
    for _ in range(9):
        out = model.decode(memory, src_mask, ys, tat.subsequent_mask(ys.size(1)).type_as(src.data))
        prob = model.generator(out[:, -1])
        _, next_word = torch.max(prob, dim=1)
        next_word = next_word.data[0]
        ys = torch.cat([ys, torch.empty(1, 1).type_as(src.data).fill_(next_word)], dim=1)
    assert ys.shape == (1, 10) and ys.dtype == torch.int64
    found = tat.greedy_decode(model, src, src_mask, max_len=10, start_symbol=0)
    assert torch.equal(found, ys[:, : found.size(1)]) and (found.size(1) == 10 or found[0, -1] == tat.EOS)
    assert torch.equal(tat.greedy_decode(model, src, src_mask, 10, 0, end_symbol=None), ys)
    batch = tat.Batch(src, src, pad=0)
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    assert_close(model.generator(model.decode(memory, src_mask, batch.tgt, batch.tgt_mask)), logits.log_softmax(-1))


def test_work_in_threads_comes_back_in_order_and_leaves_the_threads_as_they_were():
    """Catches results in order of completion, several threads inside one piece of work, and an error that is lost."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        inside = []

        def work(i: int) -> int:
            inside.append((threading.get_ident(), torch.get_num_threads()))
            time.sleep(0.02 if i == 0 else 0)
            return i * i

        cpu = torch.device("cpu")
        assert tat.in_threads(work, [0, 1, 2, 3, 4], cpu) == [0, 1, 4, 9, 16]
        assert len({thread for thread, _ in inside}) > 1 and {count for _, count in inside} == {1}
        assert torch.get_num_threads() == in_a_new_thread(torch.get_num_threads) == 3
        with pytest.raises(ZeroDivisionError):
            tat.in_threads(lambda i: 1 / i, [1, 0], cpu)
        assert torch.get_num_threads() == in_a_new_thread(torch.get_num_threads) == 3
        assert tat.in_threads(work, [], cpu) == []
    finally:
        torch.set_num_threads(before)


# --- Beam search ---


def beam_by_hand(model: tat.Transformer, src: list[int], max_len: int, beam: int, alpha: float) -> list[int]:
    """One sentence, no padding, no cache, no batch: lists of (log-probability, ids)."""
    source, open_ends, finished = torch.tensor([src]), [(0.0, [tat.BOS])], []
    for t in range(1, max_len):
        extended = []
        for log_p, ids in open_ends:
            step = model(source, torch.tensor([ids]), None, tat.subsequent_mask(len(ids)))[0, -1].log_softmax(-1)
            extended += [(log_p + more, [*ids, symbol]) for symbol, more in enumerate(step.tolist())]
        open_ends = []
        for log_p, ids in sorted(extended, reverse=True)[: beam - len(finished)]:
            if ids[-1] == tat.EOS or len(ids) == max_len:
                finished.append((log_p / ((5 + t) / 6) ** alpha, ids))
            else:
                open_ends.append((log_p, ids))
    return max(finished)[1]


@pytest.mark.parametrize(("beam", "alpha"), [(1, 0.6), (2, 0.0), (3, 0.6), (3, 2.5), (5, 1.5)])
def test_batched_beam_equals_one_by_one(varied, beam, alpha):
    """Catches beams that take each other's past or source, a wrong penalty, and a search that stops too soon.

    By hand nothing stops early, so the bound that ends the search is tested, too.
    """
    model, batch = varied
    found = tat.beam_search(model, batch.src, batch.src_mask, 12, beam, alpha).tolist()
    longest = batch.src.size(1)
    lengths = set()
    for row, src, mask in zip(found, batch.src, batch.src_mask, strict=True):
        real = src[mask[0]].tolist()
        expected = beam_by_hand(model, real, 12 - (longest - len(real)), beam, alpha)
        assert row == expected + [tat.PAD] * (len(row) - len(expected))
        lengths.add(len(expected))
    assert len(lengths) > 3


def test_beam_of_one_is_greedy(varied):
    """Catches a first step or an end that is another's."""
    model, batch = varied
    wide = batch.src_mask.all(-1).squeeze(-1)  # sentences without padding: max_len means the same to both
    src, mask = batch.src[wide], batch.src_mask[wide]
    assert len(src) > 3
    assert torch.equal(tat.beam_search(model, src, mask, 12, beam=1), tat.greedy_decode(model, src, mask, 12))


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
def test_the_widest_beam_finds_the_best_of_all_sequences(alpha):
    """Catches every mistake of the search: its score is that of the best of all 4 ** 5 endings."""
    model = tat.make_model(5, 4, 1, 16, 24, 2, dropout=0.0).eval()
    src = torch.randint(3, 5, (3, 4))
    found = tat.beam_search(model, src, tat.source_mask(src), 6, beam=4**5, alpha=alpha).tolist()
    with torch.no_grad():
        for row, one in zip(found, src, strict=True):
            best = tat.exhaustive_search(model, one.unsqueeze(0), 6, alpha)[1]
            assert row == best + [tat.PAD] * (len(row) - len(best))


def test_beam_search_stops_when_nothing_can_win(small_model, sentences):
    """Catches a search that always goes on to its limit."""
    model, steps = small_model(), []
    sure = torch.full((1, 11), -30.0).index_fill_(1, torch.tensor([tat.EOS]), 30.0).double()
    model.generator.padded = lambda: lambda x: steps.append(1) or sure.expand(len(x), -1)
    found = tat.beam_search(model, sentences.src, sentences.src_mask, max_len=40, beam=3)
    assert found.tolist() == [[tat.BOS, tat.EOS]] * 3 and len(steps) == 1


def test_beam_search_where_numbers_are_halves(small_model, sentences):
    """Catches scores that are kept in PyTorch's default precision."""
    before, model = torch.get_default_dtype(), small_model().bfloat16()
    torch.set_default_dtype(torch.bfloat16)
    try:
        found = tat.beam_search(model, sentences.src, sentences.src_mask, max_len=12, beam=3)
    finally:
        torch.set_default_dtype(before)
    assert torch.equal(found, tat.beam_search(model, sentences.src, sentences.src_mask, max_len=12, beam=3))


def test_padded_scores_are_the_scores():
    """Catches a bias that is left out."""
    generator = tat.Generator(16, 70)
    generator.proj = nn.Linear(16, 70)
    x = torch.randn(5, 16)
    assert_close(generator.padded()(x)[:, :70], generator.logits(x))
    assert generator.padded()(x).shape == (5, 128) and (generator.padded()(x)[:, 70:] == -torch.inf).all()


def test_a_finished_place_costs_nothing(small_model, sentences):
    """Catches rows of the decoder for places of the beam that hold no beginning."""
    model, rows = small_model(), []
    half = torch.full((1, 11), -30.0).double().index_fill_(1, torch.tensor([tat.EOS, 5]), 0.0)
    half[0, 5] = 0.1
    model.generator.padded = lambda: lambda x: rows.append(len(x)) or half.expand(len(x), -1)
    tat.beam_search(model, sentences.src, sentences.src_mask, max_len=40, beam=4, alpha=2.0)
    assert rows[:4] == [3, 9, 6, 3]  # of each sentence one beginning; then four, of which one ends; and so on


def test_beam_search_refuses_impossible_settings(small_model, sentences):
    for beam, alpha in ((0, 0.6), (-1, 0.6), (4, -0.1), (4, 10.1), (4, float("nan")), (4, float("inf"))):
        with pytest.raises(ValueError, match="beam must be at least 1 and alpha from 0 to 10"):
            tat.beam_search(small_model(), sentences.src, sentences.src_mask, 5, beam, alpha)


def in_a_new_thread(work: Callable[[], int]) -> int:
    """What `work` gives in a thread that has just started."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
