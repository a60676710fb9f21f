"""The document's batches, loss, schedule and copy task against sums written out and PyTorch's losses."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.testing import assert_close

import the_annotated_transformer as tat
from tests.helpers import dense_loss, uneven_pairs

pytestmark = pytest.mark.quick


def test_pad_rows():
    """Catches rows that are cut or padded on the wrong side, and padding that is always 0."""
    assert tat.pad_rows([[1, 2, 3], [4], []], pad=9).tolist() == [[1, 2, 3], [4, 9, 9], [9, 9, 9]]
    assert tat.pad_rows([[1, 2]]).dtype == torch.int64


@pytest.mark.parametrize("pad", [0, 7])
def test_batch_shifts_by_one_and_masks(pad):
    """Catches a shift of zero or two, a lost EOS, and masks or counts from the wrong side."""
    src = torch.tensor([[5, 6, 2], [5, 2, pad]])
    tgt = torch.tensor([[1, 8, 2, pad, pad], [1, 8, 9, 4, 2]])
    batch = tat.Batch(src, tgt, pad)
    assert batch.tgt.tolist() == [[1, 8, 2, pad], [1, 8, 9, 4]]
    assert batch.tgt_y.tolist() == [[8, 2, pad, pad], [8, 9, 4, 2]]
    assert batch.ntokens == 2 + 4
    assert batch.src_mask.tolist() == [[[True, True, True]], [[True, True, False]]]
    for row in range(2):
        for query in range(4):
            visible = [key <= query and batch.tgt[row, key] != pad for key in range(4)]
            assert batch.tgt_mask[row, query].tolist() == visible
    assert not hasattr(tat.Batch(src), "tgt")
    assert all(value.is_meta for value in vars(batch.to(torch.device("meta"))).values() if isinstance(value, Tensor))


@pytest.mark.parametrize(("eps", "pad"), [(0.0, 0), (0.1, 0), (0.3, 4)])
def test_smoothed_loss_equals_its_definition(eps, pad):
    """Catches mass on padding, a wrong share for the other tokens, and a loss at padded targets, in both forms."""
    logits, target = torch.randn(3, 4, 9), torch.randint(0, 9, (3, 4))
    target[0, 0], target[2, 1:] = 8, pad
    loss = tat.smoothed_loss(logits, target, eps, pad)
    assert_close(loss, dense_loss(logits, target, eps, pad), atol=1e-4, rtol=1e-5)
    q = tat.smoothed_targets(target, 9, eps, pad)
    assert_close(loss, -(q * logits.log_softmax(-1)).sum(), atol=1e-4, rtol=1e-5)
    assert_close(q.sum(-1), (target != pad).float())
    assert q[..., pad].abs().max() == 0
    assert tat.smoothed_loss(logits, torch.full((3, 4), pad), eps, pad) == 0


def test_without_smoothing_the_loss_is_cross_entropy():
    """Catches a validation loss whose exponential is not a perplexity."""
    logits, target = torch.randn(3, 4, 9), torch.randint(0, 9, (3, 4))
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=tat.PAD, reduction="sum")
    assert_close(tat.smoothed_loss(logits, target, eps=0.0), expected)


def test_smoothed_loss_and_pytorch_differ_by_the_padding_symbol():
    """Catches a smoothing that the text does not explain.

    If p' is the softmax over all tokens except padding, log p = log p' + log(1 - p(pad)). So our loss is PyTorch's on the
    vocabulary without padding, minus log(1 - p(pad)) per target. They agree exactly if the model gives padding nothing.
    On the whole vocabulary, PyTorch's mean of log p includes padding and ours does not.
    """
    logits, target, eps = torch.randn(20, 9), torch.randint(1, 9, (20,)), 0.1
    ours = tat.smoothed_loss(logits, target, eps)
    beside = F.cross_entropy(logits[:, 1:], target - 1, label_smoothing=eps, reduction="sum")
    log_p = logits.log_softmax(-1)
    assert_close(ours, beside - (1 - log_p[:, tat.PAD].exp()).log().sum())
    whole = F.cross_entropy(logits, target, label_smoothing=eps, reduction="sum")
    assert_close(ours - whole, eps * (log_p.mean(-1) - log_p[:, 1:].mean(-1)).sum(), atol=1e-4, rtol=1e-4)
    assert abs(ours - whole) > 0.01 and abs(ours - beside) > 0.01
    logits[:, tat.PAD] = -30.0  # nothing for padding
    assert_close(tat.smoothed_loss(logits, target, eps), beside)


def test_rate_is_equation_3():
    """Catches wrong exponents or factors, a peak that is not at the end of the warmup, and a crash at step 0."""
    for d_model, factor, warmup in ((512, 1.0, 4000), (64, 0.5, 30)):
        peak = factor / math.sqrt(d_model * warmup)
        for step in (1, 2, warmup // 2, warmup - 1, warmup, warmup + 1, 10 * warmup):
            expected = peak * min(step / warmup, math.sqrt(warmup / step))
            assert tat.rate(step, d_model, factor, warmup) == pytest.approx(expected, rel=1e-12)
        assert max(range(1, 5 * warmup), key=lambda s: tat.rate(s, d_model, factor, warmup)) == warmup  # noqa: B023
        assert tat.rate(0, d_model, factor, warmup) == tat.rate(1, d_model, factor, warmup) > 0


def test_split_rows_deals_every_pair_once():
    """Catches an empty micro-batch, and idle pairs that have something to predict."""
    pairs = uneven_pairs(5)
    for pieces in (1, 2, 5, 8):
        dealt = tat.split_rows(pairs, pieces)
        assert len(dealt) == pieces and all(dealt)
        learned = [pair for piece in dealt for pair in piece if tat.make_batch([pair]).ntokens]
        assert sorted(learned) == sorted(pairs)


def test_copy_pairs_are_copies():
    """Catches a lost EOS, a special token inside, and a token that never occurs; `example_copy` trains on them."""
    pairs = tat.copy_pairs(600, 14, seed=10**6)
    assert all(pair.tgt == [tat.BOS, *pair.src] and pair.src[-1] == tat.EOS for pair in pairs)
    assert {symbol for pair in pairs for symbol in pair.src[:-1]} == set(range(len(tat.SPECIALS), 14))


def test_copying_is_being_learned():
    """A short training; how well it ends is in `example_copy`. Catches a loop that does not learn, or leaves the model in training."""
    model, losses = tat.train_copy(updates=60)
    assert losses[-1]["loss"] < 0.8 * losses[0]["loss"] and not model.training
