"""Each fast form of since_2017 against its plain form."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import since_2017 as since
import the_annotated_transformer as tat
from tests.helpers import realistic_lengths


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("budget", [45, 400, 100_000])
def test_token_batches_hold_every_pair_once_within_the_budget(seed, budget):
    """Catches lost or repeated pairs, a batch over its budget on either side, and an empty one."""
    lengths = [*realistic_lengths(1000), (40, 3), (3, 40), (45, 1)]
    batches = since.sorted_batches(lengths, budget, seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        for side in (0, 1):
            assert 0 < len(batch) * max(lengths[i][side] for i in batch) <= budget
    assert since.sorted_batches([], budget, seed) == []


def test_token_batches_follow_their_seed():
    """Catches an order that cannot be repeated, and epochs that are all the same."""
    lengths = realistic_lengths(1000)
    seeds = (None, None, 1, 1, 2)
    plain, repeated, first, again, second = (
        [b.tolist() for b in since.sorted_batches(lengths, 400, seed)] for seed in seeds
    )
    assert plain == repeated and first == again != second
    # drawn anew, not only moved
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}
    longest = [max(lengths[i][1] for i in batch) for batch in first]
    assert longest != sorted(longest)  # short and long batches mixed, not a curriculum


@pytest.mark.parametrize("pair", [(12, 3), (3, 12)])
def test_token_batches_refuse_a_pair_that_never_fits(pair):
    """Catches a pair that silently makes a batch over the budget."""
    with pytest.raises(ValueError, match="pair 3 has 12 tokens, but a batch holds 11"):
        since.sorted_batches([(4, 4), (11, 11), pair], budget=11)


@pytest.mark.parametrize("chunk", [1, 3, 12, 512])
@pytest.mark.parametrize(("eps", "pad"), [(0.1, 0), (0.0, 0), (0.2, 5)])
def test_chunked_loss_equals_the_whole(chunk, eps, pad):
    """Catches a chunk that is lost or counted twice, and a wrong special column of p - q."""
    generator, x = tat.Generator(6, 9), torch.randn(12, 6, requires_grad=True)
    generator.proj = nn.Linear(6, 9)  # with a bias
    target = torch.tensor([y for y in range(9) if y != pad] + [3, 3, 8, 1])
    logits = generator.logits(x)
    loss = tat.smoothed_loss(logits, target, eps, pad)
    loss_again, gradient = since.smoothed_gradient(logits.detach(), target, eps, pad)
    assert_close(loss_again, loss.detach())
    assert_close(gradient, torch.autograd.grad(loss, logits, retain_graph=True)[0])
    if pad == tat.PAD:
        chunked = since.chunked_loss(generator, x, target, eps, chunk)
        inputs = (x, *generator.parameters())
        assert_close(chunked, loss)
        expected = torch.autograd.grad(3 * loss, inputs)
        assert_close(torch.autograd.grad(3 * chunked, inputs), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_dropout_statistics(p):
    """Catches a wrong rate or scale, and dependent decisions: one random number makes four."""
    x = torch.ones(400_003, requires_grad=True)  # not a multiple of four
    y = since.FastDropout(p)(x)
    dropped = (y == 0).double()
    deviation = math.sqrt(p * (1 - p) / 100_000)
    assert all(abs(dropped[i::4].mean() - p) < 5 * deviation for i in range(4))
    for distance in (1, 2, 3, 4):
        pairs_dropped = (dropped[:-distance] * dropped[distance:]).mean()
        assert abs(pairs_dropped - p * p) < 5 * deviation
    assert_close(y[y != 0], torch.full_like(y[y != 0], 1 / (1 - p)))
    (2 * y).sum().backward()
    assert_close(x.grad, 2 * y.detach())
