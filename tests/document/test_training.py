"""The document's batches, loss, schedule and copy task against plain sums and PyTorch's losses."""

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

import the_annotated_transformer as tat
from tests.helpers import dense_loss

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
    moved = vars(batch.to(torch.device("meta"))).values()
    assert all(value.is_meta for value in moved if isinstance(value, Tensor))


@pytest.mark.parametrize(("eps", "pad"), [(0.0, 0), (0.1, 0), (0.3, 4)])
def test_smoothed_loss_equals_its_definition(eps, pad):
    """In both forms; catches mass on padding, a wrong share elsewhere, a loss at padded targets."""
    logits, target = torch.randn(3, 4, 9), torch.randint(0, 9, (3, 4))
    target[0, 0] = 8
    target[2, 1:] = pad
    loss = tat.smoothed_loss(logits, target, eps, pad)
    assert_close(loss, dense_loss(logits, target, eps, pad), atol=1e-4, rtol=1e-5)
    q = tat.smoothed_targets(target, 9, eps, pad)
    assert_close(loss, -(q * logits.log_softmax(-1)).sum(), atol=1e-4, rtol=1e-5)
    assert_close(q.sum(-1), (target != pad).float())
    assert q[..., pad].abs().max() == 0
    assert tat.smoothed_loss(logits, torch.full((3, 4), pad), eps, pad) == 0


def test_another_padding_is_the_same_in_the_loss(small_model):
    """Catches a loss that counts a batch's padding, or leaves out id 0, which is a word here."""
    src, tgt = torch.tensor([[5, 6, 0], [5, 7, 7]]), torch.tensor([[1, 0, 8, 9], [1, 0, 7, 7]])
    model, batch = small_model(), tat.Batch(src, tgt, pad=7)
    logits = model(src, tgt[:, :-1], batch.src_mask, batch.tgt_mask)
    chosen = logits.log_softmax(-1).gather(-1, tgt[:, 1:, None])[..., 0]
    expected = -chosen[tgt[:, 1:] != 7].sum()
    assert_close(tat.batch_loss(model, batch, 0.0).double(), expected, rtol=1e-5, atol=0)
    adam = torch.optim.Adam(model.parameters())
    mean = tat.learn(model, adam, batch, 0.0)
    assert mean == pytest.approx(expected.item() / batch.ntokens)


@pytest.mark.parametrize("tgt", [[1, 7, 2], [0, 0, 0]], ids=["in the loss", "in the gradient"])
def test_a_nan_stops_the_training_before_it_is_in_the_weights(small_model, tgt):
    """A sentence of padding alone; catches weights lost, and a failed update that counts."""
    model = small_model()
    trainer = tat.Trainer(model, tat.Config(d_model=16))
    good, bad = tat.Pair([5, 6, 2], [1, 7, 2]), tat.Pair([0, 0, 0], tgt)
    trainer.update([good])
    weights = [p.detach().clone() for p in model.parameters()]
    for refused in (
        lambda: trainer.update([good, bad]), lambda: tat.fit(trainer, [[good, bad]]),
        lambda: tat.learn(model, trainer.optimizer, tat.make_batch([good, bad]), 1e-3),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="the gradient is nan, so no weight was changed"):
            refused()
    assert all(map(torch.equal, weights, model.parameters())) and trainer.step == 1


def test_copy_pairs_are_copies():
    """Catches a lost EOS, a special token inside, a token that never occurs; for `example_copy`."""
    pairs = tat.copy_pairs(600, 14, seed=10**6)
    assert all(pair.tgt == [tat.BOS, *pair.src] and pair.src[-1] == tat.EOS for pair in pairs)
    inside = {symbol for pair in pairs for symbol in pair.src[:-1]}
    assert inside == set(range(len(tat.SPECIALS), 14))
