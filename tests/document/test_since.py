"""The document since_2017, and the plain model, against PyTorch, the formulas, and each other."""

import pytest
import torch

import since_2017 as since
import the_annotated_transformer as tat

ALL = ("rotary", "rms_norm", "gated", "grouped")
# the first is the plain model
KINDS = [(), ("rotary",), ("rms_norm",), ("gated",), ("grouped",), ALL]
OF_EVERY_KIND = pytest.mark.parametrize("what", KINDS, ids=lambda what: "+".join(what) or "plain")


@pytest.fixture
def variant(small_model):
    """A small model with some parts replaced, and random weights in float64."""
    return lambda *what: small_model(**since.modern(*what)).eval()


@OF_EVERY_KIND
@pytest.mark.parametrize("norm", ["pre", "post"])
def test_each_part_stands_wherever_it_should_and_nowhere_else(what, norm):
    sizes = {"N": 2, "d_model": 16, "d_ff": 24, "h": 4, "norm": norm, "tie": "all", "d_k": 6}
    model = tat.make_model(20, 20, **sizes, **since.modern(*what))
    grouped, gated = "grouped" in what, "gated" in what
    layers = [*model.encoder.layers, *model.decoder.layers]
    attns = [layer.self_attn for layer in layers]
    cross = [layer.src_attn for layer in model.decoder.layers]
    assert all(isinstance(attn, since.RotaryAttention) == ("rotary" in what) for attn in attns)
    assert not any(isinstance(attn, since.RotaryAttention) for attn in cross)
    assert all(isinstance(attn, since.GroupedQueryAttention) == grouped for attn in attns + cross)
    assert all(attn.W_q.out_features == 24 for attn in attns + cross)
    assert all(isinstance(layer.feed_forward, since.GatedFeedForward) == gated for layer in layers)
    modules = list(model.modules())
    kinds = {"rms_norm" in what: torch.nn.RMSNorm, "rms_norm" not in what: torch.nn.LayerNorm}
    count = {is_rms: sum(isinstance(m, kind) for m in modules) for is_rms, kind in kinds.items()}
    assert count == {True: 10 + 2 * (norm == "pre"), False: 0}
    assert sum(isinstance(m, since.NoPositions) for m in modules) == 2 * ("rotary" in what)
    embedding = model.generator.proj.weight
    assert embedding is model.src_embed.embeddings.table.weight
    assert abs(embedding.std() * 4 - 1) < 0.2
    matrices = [p for p in model.parameters() if p.dim() == 2 and p is not embedding]
    for p in matrices:  # Glorot's uniform
        limit = (6 / sum(p.shape)) ** 0.5
        assert 0.9 * limit < p.abs().max() <= limit
    # no layer is a copy of another one
    assert len({p[0, 0].item() for p in matrices}) == len(matrices)
    vectors = [(name, p) for name, p in model.named_parameters() if p.dim() == 1]
    assert all((p == name.endswith("weight")).all() for name, p in vectors)


@OF_EVERY_KIND
def test_padding_and_the_future_change_nothing(what, variant, sentences):
    model = variant(*what)
    b = sentences
    logits = model(b.src, b.tgt, b.src_mask, b.tgt_mask)
    for i in range(3):
        S, T = int(b.src_mask[i].sum()), int((b.tgt_y[i] != tat.PAD).sum())
        alone = tat.Batch(b.src[i : i + 1, :S], b.tgt[i : i + 1, :T])
        lone = model(alone.src, b.tgt[i : i + 1, :T], alone.src_mask, tat.subsequent_mask(T))
        torch.testing.assert_close(lone[0], logits[i, :T])


@pytest.mark.parametrize(
    "what", [(), ("rotary",), ("grouped",), ("rotary", "grouped")], ids="+".join
)
def test_recorded_weights_are_those_of_every_head(what, variant, sentences):
    model = variant(*what)
    b = sentences
    plain = model(b.src, b.tgt, b.src_mask, b.tgt_mask)
    with tat.recording(model) as maps:
        torch.testing.assert_close(model(b.src, b.tgt, b.src_mask, b.tgt_mask), plain)
    weights = maps[model.decoder.layers[0].self_attn]
    assert weights.shape == (3, 4, b.tgt.size(1), b.tgt.size(1))
    assert weights.triu(1).abs().max() == 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4, b.tgt.size(1), dtype=torch.double))


@pytest.mark.parametrize("masked", [False, True])
def test_fused_attention_gives_the_same_vectors_and_gradients(randomise, masked):
    """Also as the foundation of another subclass."""

    class FusedRotary(since.RotaryAttention, since.FusedAttention):
        pass

    kinds = ((tat.MultiHeadedAttention, since.FusedAttention), (since.RotaryAttention, FusedRotary))
    for plain, kind in kinds:
        ours, theirs = randomise(plain(4, 16)), kind(4, 16).double()
        theirs.load_state_dict(ours.state_dict())
        x = torch.randn(2, 5, 16).double()
        mask = tat.subsequent_mask(5) if masked else None
        outputs = [layer(x, x, x, mask) for layer in (ours, theirs)]
        torch.testing.assert_close(*outputs)
        pairs = zip(outputs, (ours, theirs), strict=True)
        grads = (torch.autograd.grad(y.sin().sum(), [*layer.parameters()]) for y, layer in pairs)
        torch.testing.assert_close(*grads)


@pytest.fixture
def make_one_stack(randomise):
    config = tat.Config(d_model=16, d_ff=24, h=4, norm="pre")
    return lambda **parts: randomise(since.make_decoder_only(13, config, N=2, **parts)).eval()


@pytest.fixture
def one_stack(make_one_stack):
    return make_one_stack()


def test_decoder_only_is_one_causal_sequence(one_stack, sentences):
    """Padding, other sentences and the future change nothing; the source's last symbol does."""
    model, b = one_stack, sentences
    logits = model(b.src, b.tgt, b.src_mask, b.tgt_mask)
    for i in range(3):
        S, T = int(b.src_mask[i].sum()), int((b.tgt_y[i] != tat.PAD).sum())
        ids = torch.cat((b.src[i, :S], b.tgt[i, :T])).unsqueeze(0)
        x = model.decoder(model.tgt_embed(ids), tat.subsequent_mask(S + T))
        torch.testing.assert_close(model.generator.logits(x)[0, S:], logits[i, :T])
    changed = b.tgt.clone()
    changed[1, 2] = 12
    change = (model(b.src, changed, b.src_mask, b.tgt_mask) - logits).abs().amax(-1)
    assert change[[0, 2]].max() == 0 and change[1, :2].max() == 0 and change[1, 2:].min() > 0
    source = b.src.clone()
    source[1, 1] = 4
    assert (model(source, b.tgt, b.src_mask, b.tgt_mask) - logits).abs().amax(-1)[1].min() > 0


def test_decoder_only_greedy_equals_the_naive_loop(one_stack, sentences, randomise):
    """Some sentences end, some do not, and none depends on those beside it."""
    b = sentences
    ends = 0
    for _ in range(10):
        model = randomise(one_stack, std=0.6)
        naive = tat.greedy_decode_naive(model, b.src, b.src_mask, 12, tat.BOS)
        ids = since.decoder_only_greedy(model, b.src, b.src_mask, 12)
        assert ids.shape == (3, 12) and (ids[:, 0] == tat.BOS).all()
        for i, row in enumerate(ids.tolist()):
            end = row.index(tat.EOS) + 1 if tat.EOS in row else len(row)
            assert row[:end] == naive[i, :end].tolist() and set(row[end:]) <= {tat.PAD}
            ends += tat.EOS in row
            src = b.src[i : i + 1, : int(b.src_mask[i].sum())]
            assert since.decoder_only_greedy(model, src, tat.source_mask(src), 12).tolist() == [row]
    assert 3 < ends < 27


def test_decoder_only_is_trained_by_both_trainers(one_stack, sentences):
    """The program's objective gives the document's loss and gradient; every weight gets one."""
    from translator.trainer import Objective

    model, b = one_stack, sentences
    loss = tat.batch_loss(model, b, 0.1)
    loss.backward()
    expected = {name: p.grad.clone() for name, p in model.named_parameters()}
    assert all(grad.abs().max() > 0 for grad in expected.values())
    model.zero_grad()
    again = Objective(model, 0.1)(b)
    again.backward()
    torch.testing.assert_close(again.float(), loss.float())
    gradients = {name: p.grad for name, p in model.named_parameters()}
    torch.testing.assert_close(gradients, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("tile", [1, 7, 16, 64])
def test_tiles_have_the_gradient_of_equation_1(tile):
    Q, K, V = (torch.randn(2, 3, 20, 8, dtype=torch.double, requires_grad=True) for _ in range(3))
    mask = torch.rand(2, 1, 20, 20) < 0.5
    mask[..., 19] = True
    plain = tat.attention(Q, K, V, mask)[0]
    tiled = since.tiled_attention(Q, K, V, mask, tile=tile)
    torch.testing.assert_close(tiled, plain)
    weight = torch.randn_like(plain)
    grads = (torch.autograd.grad((out * weight).sum(), (Q, K, V)) for out in (tiled, plain))
    torch.testing.assert_close(*grads)
    fused = torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
    torch.testing.assert_close(since.tiled_attention(Q, K, V, causal=True, tile=tile), fused)
    # fewer queries, narrower values
    q, v = torch.randn(2, 3, 7, 8).double(), torch.randn(2, 3, 20, 5).double()
    torch.testing.assert_close(since.tiled_attention(q, K, v, tile=tile), tat.attention(q, K, v)[0])


def test_samples_follow_the_probabilities(randomise):
    """Of many draws of one symbol, each occurs as often as the nucleus says."""
    model = randomise(tat.make_model(9, 9, N=1, d_model=8, d_ff=8, h=2)).eval()
    src = torch.tensor([[5, 6, tat.EOS]]).expand(20_000, -1)
    decoder = tat.CachedDecoder(model, src[:1], tat.source_mask(src[:1]))
    logits = decoder.step(torch.tensor([tat.BOS]))
    for temperature, top_p in ((1.0, 1.0), (0.7, 0.8)):
        p = since.nucleus(logits, temperature, top_p)[0]
        drawn = since.sample_decode(model, src, tat.source_mask(src), 2, temperature, top_p)[:, 1]
        shares = torch.bincount(drawn, minlength=9) / len(drawn)
        assert (shares - p).abs().max() < 0.015 and (shares[p == 0] == 0).all()


@pytest.mark.parametrize("temperature", [0, 0.0, 1e-40])
def test_temperature_zero_is_greedy(small_model, sentences, temperature):
    """Catches a division by zero, and numbers that overflow on the way."""
    model = small_model()
    b = sentences
    samples = since.sample_decode(model, b.src, b.src_mask, 9, temperature)
    assert torch.equal(samples, tat.greedy_decode(model, b.src, b.src_mask, 9))
    logits = torch.tensor([[1e30, 0.0, -1e30, 1e30]])
    assert since.nucleus(logits, temperature).tolist() == [[1.0, 0.0, 0.0, 0.0]]
