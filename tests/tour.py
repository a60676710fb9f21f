"""The paper's equations in its order, each against something else that computes the same.

    `python -m pytest tests/tour.py`

The one file of tests that everyone may read. An *oracle* is what a test trusts: PyTorch's own
module with the same weights, the formula written out as a loop, a search that tries everything, or
a number in the paper. Every other test works in this way.
"""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

import the_annotated_transformer as tat
from tests.helpers import exhaustive_search

pytestmark = pytest.mark.quick
B, T, h, d_model, d_ff, V = 2, 5, 4, 16, 24, 11
PARAMETERS = {65: (6, 512, 2048, 8), 213: (6, 1024, 4096, 16)}  # in millions: N, d_model, d_ff, h


@pytest.fixture
def x() -> torch.Tensor:
    """A batch of vectors (B, T, d_model)."""
    return torch.randn(B, T, d_model)


@pytest.fixture
def model() -> tat.Transformer:
    """A Transformer so small that everything can be tried."""
    return tat.make_model(V, V, 2, d_model, d_ff, h, dropout=0.0, tie="all").eval()


def test_equation_1_attention(x):
    """softmax(Q K^T / sqrt(d_k)) V; the oracle is PyTorch's fused kernel."""
    assert_close(tat.attention(x, x, x)[0], F.scaled_dot_product_attention(x, x, x))


def test_section_3_2_2_several_heads(x):
    """`Concat(head_1, ..., head_h) W_O`; the oracle is PyTorch's module with the same matrices."""
    ours = tat.MultiHeadedAttention(h, d_model)
    theirs = nn.MultiheadAttention(d_model, h, bias=False, batch_first=True)
    stacked = torch.cat([ours.W_q.weight, ours.W_k.weight, ours.W_v.weight])
    theirs.load_state_dict({"in_proj_weight": stacked, "out_proj.weight": ours.W_o.weight})
    assert_close(ours(x, x, x), theirs(x, x, x)[0])


def test_section_3_2_3_no_position_sees_the_future(model):
    """The oracle is the change itself: of a later word, earlier predictions know nothing."""
    src, tgt = torch.randint(4, V, (B, T)), torch.randint(4, V, (B, T))
    changed = tgt.clone()
    changed[:, 3] = 4 + (tgt[:, 3] - 3) % (V - 4)  # another word
    before, after = (model(src, y, None, tat.subsequent_mask(T)) for y in (tgt, changed))
    assert_close(before[:, :3], after[:, :3])
    assert not torch.allclose(before[:, 3:], after[:, 3:])


def test_equation_2_feed_forward(x):
    """max(0, x W_1 + b_1) W_2 + b_2; the oracle is a loop over positions."""
    layer = tat.PositionwiseFeedForward(d_model, d_ff)
    W_1, W_2 = layer.W_1, layer.W_2
    for b, t in itertools.product(range(B), range(T)):
        inner = (x[b, t] @ W_1.weight.T + W_1.bias).clamp(min=0)
        assert_close(layer(x)[b, t], inner @ W_2.weight.T + W_2.bias)


def test_section_3_1_layer_norm_of_the_sum(x):
    """LayerNorm(x + Sublayer(x)); the oracle is the definition, entry by entry."""
    sums = x + x.sin()
    outputs = tat.PostNorm(d_model, dropout=0.0)(x, torch.sin)
    for row, output in zip(sums.flatten(0, 1), outputs.flatten(0, 1), strict=True):
        mean = sum(row) / d_model
        variance = sum((value - mean) ** 2 for value in row) / d_model
        assert_close(output, (row - mean) / (variance + 1e-5).sqrt())  # a fresh gain is 1, a bias 0


def test_section_3_4_embeddings_share_a_matrix_and_are_scaled(model):
    """One matrix for both sides and the output, times sqrt(d_model) where words are read."""
    table = model.src_embed.embeddings.table.weight
    assert table is model.tgt_embed.embeddings.table.weight is model.generator.proj.weight
    expected = table[7] * math.sqrt(d_model)
    assert_close(model.src_embed.embeddings(torch.tensor(7)), expected)


def test_section_3_5_positions():
    """Sine and cosine of `pos / 10000^(2i / d_model)`; the oracle is Python's `math`."""
    table = tat.positional_encoding(50, d_model)
    for pos, i in itertools.product(range(50), range(d_model // 2)):
        angle = pos / 10000 ** (2 * i / d_model)
        assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
        assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("millions", PARAMETERS)
def test_table_3_the_number_of_parameters(millions):
    """Of the base model and the big one, with about 37,000 tokens; the oracle is the table."""
    with torch.device("meta"):  # sizes without numbers
        model = tat.make_model(37_000, 37_000, *PARAMETERS[millions], tie="all")
    count = sum(p.numel() for p in model.parameters()) / 1e6
    assert count == pytest.approx(millions, rel=0.04)


def test_equation_3_the_learning_rate():
    """d_model^-0.5 min(step^-0.5, step warmup^-1.5): a line up to the warmup, then a root."""
    rates = [tat.rate(step, 512, 1.0, 4000) for step in range(1, 16_001)]
    assert rates.index(max(rates)) + 1 == 4000
    assert rates[1999] == pytest.approx(rates[3999] / 2)  # half of the way up
    assert rates[15_999] == pytest.approx(rates[3999] / 2)  # four times as many updates
    assert rates[3999] == pytest.approx((512 * 4000) ** -0.5)
    assert tat.rate(0, 512, 2.0, 4000) == pytest.approx(2 * rates[0])  # no crash before the first


def test_section_5_4_label_smoothing():
    """The cross-entropy with q: 0.9 for the right token, and 0.1 for all but padding; a loop."""
    logits = torch.randn(3, V)
    target = [4, 9, 10]
    expected = 0.0
    for row, answer in zip(logits.log_softmax(-1), target, strict=True):
        for token in range(1, V):  # 0 is padding
            q = 0.9 * (token == answer) + 0.1 / (V - 1)
            expected -= q * row[token].item()
    assert tat.smoothed_loss(logits, torch.tensor(target), 0.1).item() == pytest.approx(expected)


@pytest.mark.parametrize("alpha", [0.0, 0.6])
def test_section_6_1_beam_search(alpha):
    """With as many beams as there are sequences; the oracle tries them all."""
    model = tat.make_model(V, 4, 1, d_model, d_ff, h, dropout=0.0).eval()
    src = torch.tensor([[5, 6, 7, tat.EOS]])
    ids = tat.beam_search(model, src, tat.source_mask(src), 5, beam=4**4, alpha=alpha)
    assert ids[0].tolist() == exhaustive_search(model, src, 5, alpha)[1]


def test_section_6_1_averaged_checkpoints(model):
    """The mean of each weight; the oracle is the definition."""
    second = tat.make_model(V, V, 2, d_model, d_ff, h, tie="all").state_dict()
    mean = tat.average_weights([model.state_dict(), second])
    for name, weight in model.state_dict().items():
        assert_close(mean[name], (weight + second[name]) / 2)
