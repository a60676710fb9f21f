"""The architecture against PyTorch's own modules, same weights, naive loops, the paper's counts."""

import copy
import io
import math
import re
from collections import Counter

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import since_2017 as since
import the_annotated_transformer as tat

pytestmark = pytest.mark.quick

BOTH_NORMS = pytest.mark.parametrize("norm", ["pre", "post"])


# --- PyTorch's modules as the oracle ---
def renamed(ours: dict[str, Tensor]) -> dict[str, Tensor]:
    """Our tensors under PyTorch's names; it stacks the projections of queries, keys and values."""
    theirs = {}
    for name, tensor in ours.items():
        name = re.sub(r"W_[qkv]\.", "in_proj_", name).replace("W_o", "out_proj")
        name = name.replace("feed_forward.W_", "linear").replace("src_attn", "multihead_attn")
        name = re.sub(r"sublayer\.(\d)\.norm", lambda match: f"norm{int(match[1]) + 1}", name)
        theirs[name] = torch.cat((theirs[name], tensor)) if name in theirs else tensor
    return theirs


def copy_weights(ours: dict[str, Tensor], theirs: nn.Module) -> nn.Module:
    """PyTorch's module with these weights; its attention biases, which we do not have, are zero."""
    missing, unexpected = theirs.double().load_state_dict(renamed(ours), strict=False)
    assert not unexpected
    assert all(name.endswith(("in_proj_bias", "out_proj.bias")) for name in missing)
    return theirs


def assert_same_gradients(ours: dict[str, Tensor], theirs: nn.Module) -> None:
    """Of all these weights, none of which has a gradient of zero."""
    expected = dict(theirs.named_parameters())
    gradients = renamed({name: p.grad for name, p in ours.items()})
    assert all(gradient.abs().max() > 1e-6 for gradient in gradients.values())
    assert_close(gradients, {name: expected[name].grad for name in gradients})


def test_attention_drops_weights_but_returns_them_whole():
    """Catches dropout on the returned weights, and no dropout on the weights that are used."""
    Q, K, V = torch.randn(1, 4, 6), torch.randn(1, 5, 6), torch.randn(1, 5, 7)
    output, weights = tat.attention(Q, K, V, dropout=lambda weights: 2 * weights)
    plain, plain_weights = tat.attention(Q, K, V)
    assert_close(output, 2 * plain)
    assert_close(weights, plain_weights)


@pytest.mark.parametrize("masked", [False, True])
def test_multi_head_attention_equals_pytorch(randomise, masked):
    """Catches wrong heads, projections, masks or gradients; queries and keys differ in length."""
    ours = randomise(tat.MultiHeadedAttention(4, 16))
    weights = dict(ours.named_parameters())
    theirs = copy_weights(weights, nn.MultiheadAttention(16, 4, bias=False, batch_first=True))
    # queries, keys, values
    inputs = [torch.randn(2, length, 16).double().requires_grad_() for length in (4, 5, 5)]
    real = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]).bool()  # (B, S)
    mask, padding = (real.unsqueeze(1), ~real) if masked else (None, None)
    expected, their_maps = theirs(*inputs, key_padding_mask=padding, average_attn_weights=False)
    with tat.recording(ours) as maps:
        assert_close(ours(*inputs, mask), expected)
    assert_close(maps[ours], their_maps.detach())
    sums = [output.sin().sum() for output in (ours(*inputs, mask), expected)]
    assert_close(*(torch.autograd.grad(x, inputs, retain_graph=True) for x in sums))
    sum(sums).backward()
    assert_same_gradients(weights, theirs)


def test_heads_with_narrow_keys_equal_a_loop():
    """Catches a scale or a split that assumes d_k = d_model / h, unlike rows B of Table 3."""
    h, d_k, d_v = 2, 3, 4
    x = torch.randn(2, 5, 8)
    ours = tat.AdjustableAttention(h, 8, d_k=d_k)
    heads = []
    for i in range(h):
        W_q, W_k = (W.weight[i * d_k : (i + 1) * d_k].T for W in (ours.W_q, ours.W_k))
        weights = ((x @ W_q) @ (x @ W_k).mT / math.sqrt(d_k)).softmax(-1)
        heads.append(weights @ x @ ours.W_v.weight[i * d_v : (i + 1) * d_v].T)
    assert_close(ours(x, x, x), torch.cat(heads, -1) @ ours.W_o.weight.T)


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@BOTH_NORMS
def test_whole_model_equals_pytorch(small_model, sentences, norm):
    """Catches a wrong memory, a missing final norm, scale or position, and every wrong gradient."""
    ours = small_model(norm=norm)
    options = {"dropout": 0.0, "batch_first": True, "norm_first": norm == "pre"}
    theirs = nn.Transformer(16, 4, 2, 2, 24, **options)
    if norm == "post":  # its stacks end with a norm only if the layers are pre-norm
        theirs.encoder.norm = theirs.decoder.norm = None
    stacks = ("encoder", "decoder")
    weights = {name: p for name, p in ours.named_parameters() if name.startswith(stacks)}
    copy_weights(weights, theirs)
    real_src, real_tgt = sentences.src != tat.PAD, sentences.tgt != tat.PAD
    named = (ours.src_embed.embeddings.table, ours.tgt_embed.embeddings.table, ours.generator.proj)
    tables = [module.weight.detach().clone().requires_grad_() for module in named]
    x, y = (
        # 4 is the root of d_model = 16
        F.embedding(ids, table) * 4.0 + ours.src_embed.positions.table[: ids.size(1)]
        for ids, table in zip((sentences.src, sentences.tgt), tables[:2], strict=True)
    )
    padding = {"src_key_padding_mask": ~real_src, "tgt_key_padding_mask": ~real_tgt}
    causal = torch.ones(y.size(1), y.size(1)).triu(1).bool()
    states = theirs(x, y, tgt_mask=causal, memory_key_padding_mask=~real_src, **padding)
    expected = states @ tables[2].T
    logits = ours(sentences.src, sentences.tgt, sentences.src_mask, sentences.tgt_mask)
    assert_close(logits[real_tgt], expected[real_tgt])
    for result in (logits, expected):
        result[real_tgt].sin().mean().backward()
    assert_same_gradients(weights, theirs)
    for module, table in zip(named, tables, strict=True):
        assert_close(module.weight.grad, table.grad)


@pytest.mark.parametrize("size", [1.0, 1e-3])
def test_layer_norm_equals_pytorch(randomise, size):
    """Catches the unbiased variance, and an epsilon outside the root: small inputs show it."""
    theirs = randomise(nn.LayerNorm(7))
    x = torch.randn(3, 4, 7, dtype=torch.float64) * size + 0.5
    assert_close(tat.layer_norm(x, theirs.weight, theirs.bias), theirs(x))


# --- Masks ---
@pytest.mark.parametrize(
    "dtype", [torch.int32, torch.int64, torch.uint8, torch.float32, torch.float64]
)
@pytest.mark.parametrize("record", [False, True])
def test_masks_of_zeros_and_ones_equal_boolean_ones(small_model, sentences, dtype, record):
    """Catches a mask of numbers added to scores, in the fused path or where weights are kept."""
    model = small_model()
    b = sentences
    expected = model(b.src, b.tgt, b.src_mask, b.tgt_mask)
    with tat.recording(model if record else nn.Identity()):
        logits = model(b.src, b.tgt, b.src_mask.to(dtype), b.tgt_mask.to(dtype))
    assert_close(logits, expected)


@pytest.mark.parametrize("shape", [(3, 6), (3, 1, 1, 6)])
def test_mask_of_other_dimensions_is_refused(small_model, sentences, shape):
    """Catches a mask (B, S) that would silently broadcast to the wrong dimensions."""
    sizes = ", ".join(map(str, shape))
    with pytest.raises(ValueError, match=rf"\(B or 1, T or 1, S\).*\({sizes}\)"):
        small_model().encode(sentences.src, torch.ones(shape))


# --- Dropout and residual connections ---
def test_dropout_rate_reaches_every_module():
    """Catches a part with its own rate: a model without dropout must have none anywhere."""
    N = 2
    for dropout, inner in ((0.0, 0.0), (0.3, 0.0), (0.3, 0.2)):
        model = tat.make_model(9, 9, N, 16, 24, 4, dropout, inner_dropout=inner, norm="pre")
        modules = {name: m for name, m in model.named_modules() if isinstance(m, nn.Dropout)}
        inside = [name for name in modules if "attn" in name or "feed_forward" in name]
        # two are on the sums of embeddings
        assert (len(inside), len(modules)) == (5 * N, 10 * N + 2)
        expected = {name: inner if name in inside else dropout for name in modules}
        assert {name: m.p for name, m in modules.items()} == expected


@pytest.mark.parametrize(("dropout", "inner"), [(0.3, 0.0), (0.0, 0.3), (0.0, 0.0)])
def test_dropout_acts_in_training_only(small_model, sentences, dropout, inner):
    """Catches dropout in evaluation, no dropout in training, and dropout at a rate of zero."""
    model = small_model(dropout=dropout, inner_dropout=inner)
    inputs = (sentences.src, sentences.tgt, sentences.src_mask, sentences.tgt_mask)
    assert not torch.equal(model.train()(*inputs), model(*inputs)) or dropout == inner == 0
    assert torch.equal(model.eval()(*inputs), model(*inputs))


@BOTH_NORMS
def test_dropout_acts_on_the_sublayer_and_not_on_the_residual(norm):
    """Catches dropout on x itself, or after the sum."""
    kind = tat.PostNorm if norm == "post" else tat.DroppingConnection
    connection = kind(64, 0.5)
    x = torch.randn(50, 64)
    seen = []
    connection.norm.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0].detach()))
    output = connection(x, torch.ones_like)
    total = output if norm == "pre" else seen[0]  # the sum, before post-norm normalises it
    added = (total - x).round(decimals=4)
    assert set(added.unique().tolist()) == {0.0, 2.0}


# --- Embeddings, positions, initialisation ---
@pytest.mark.parametrize(
    ("start", "end"), [(0, 100), (1, 21), (0, 255), (0, 257), (250, 270), (5999, 6000), (0, 6000)]
)
def test_positions_begin_anywhere_and_have_no_longest_length(start, end):
    """Catches a table that ends, and a decoder that miscounts its steps."""
    x = torch.randn(2, end - start, 8)
    added = tat.PositionalEncoding(8, 0.0)(x, start) - x
    expected = tat.positional_encoding(end, 8)[start:].expand(2, -1, -1)
    assert_close(added, expected, atol=1e-5, rtol=0)


def test_a_position_is_moved_by_a_rotation_and_dot_products_depend_on_distance():
    """What Section 3.5 hopes for: one rotation per dimension pair moves every position on by k."""
    k, d_model = 7, 64
    PE = tat.positional_encoding(200, d_model).double()
    angle = k / 10_000 ** (torch.arange(0, d_model, 2).double() / d_model)
    sine, cosine = PE[:, 0::2], PE[:, 1::2]
    moved = angle.cos() * sine + angle.sin() * cosine, angle.cos() * cosine - angle.sin() * sine
    assert_close(torch.stack(moved, -1).flatten(1)[:-k], PE[k:], atol=1e-4, rtol=0)
    dots = PE @ PE.T
    assert_close(dots.diagonal(k), dots[0, k].expand(200 - k), atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int64])
def test_a_mask_to_be_added_to_scores_is_refused(small_model, sentences, dtype):
    """Catches nn.Transformer's masks of 0 and -inf, which hide what may be seen, in every form."""
    hidden = -torch.inf if dtype.is_floating_point else -10_000
    mask = torch.zeros(1, 6, 6, dtype=dtype)
    mask[..., 3:] = hidden
    x = torch.randn(3, 6, 16).double()
    fused = since.FusedAttention(4, 16).double()
    model = small_model()
    src = sentences.src
    for refused in (
        lambda: tat.attention(x, x, x, mask), lambda: since.tiled_attention(x, x, x, mask),
        lambda: fused(x, x, x, mask), lambda: model.encode(src, mask[:, :1]),
        lambda: tat.beam_search(model, src, mask[:, :1], 9),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"true or 1 .* this one holds {hidden}"):
            refused()
    ones = (mask == 0).to(dtype)
    assert_close(tat.attention(x, x, x, ones), tat.attention(x, x, x, mask == 0))


@pytest.mark.parametrize("outside", [-100, 11])
def test_an_id_outside_the_vocabulary_is_named(small_model, outside):
    """Catches the ignored label of other programs, and torch's words that name no id."""
    model = small_model()
    ids = torch.tensor([[1, 5, outside]])
    for refused in (
        lambda: model.decode(model.encode(ids[:, :2], None), None, ids, None),
        lambda: tat.smoothed_loss(torch.randn(1, 3, 11), ids),
        lambda: tat.smoothed_targets(ids, 11),
    ):
        with pytest.raises(ValueError, match=f"{outside} is no id.*the vocabulary has 11"):
            refused()


def shared(model: tat.Transformer) -> tuple[bool, bool]:
    """Whether the source embedding and the target embedding are the output matrix itself."""
    output = model.generator.proj.weight
    source, target = model.src_embed.embeddings, model.tgt_embed.embeddings
    return output is source.table.weight, output is target.table.weight


# --- Sizes ---
@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"d_model": 20, "h": 8}, "multiple of h.*d_model = 20 and h = 8"),
        ({"d_model": 7, "h": 1}, "d_model must be even .* it is 7"),
        ({"N": 0}, "N must be a whole number, at least 1, but it is 0"),
        ({"src_vocab": 0}, "src_vocab must be a whole number, at least 1, but it is 0"),
        ({"N": 2.0}, "N must be a whole number, .* 2.0"),
        ({"dropout": -0.1}, "dropout must be at least 0 .* -0.1"),
        ({"norm": "rms"}, "norm must be post or pre, but it is rms"),
        ({"tie": "source"}, "tie must be none, target or all, but it is source"),
        ({"tie": "all", "src_vocab": 8}, "one vocabulary.* 8 and 9"),
    ],
)
def test_bad_sizes_are_refused_with_the_numbers(sizes, message):
    """Catches a size that crashes deep inside, or later, or never."""
    good = {"src_vocab": 9, "tgt_vocab": 9, "N": 1, "d_model": 16, "d_ff": 24, "h": 4}
    tat.make_model(**good)
    with pytest.raises(ValueError, match=message):
        tat.make_model(**good | sizes)


# --- Parts of one's own ---
def test_parts_stand_wherever_they_should():
    """Catches an argument without effect, one module for two layers, and a model saved without."""
    count = {"attention": 4, "cross_attention": 2, "feed_forward": 4, "connection": 10}
    count |= {"norm_layer": 12, "positions": 2}
    bases = dict.fromkeys(("attention", "cross_attention"), tat.AdjustableAttention)
    bases |= {"feed_forward": tat.DroppingFeedForward, "connection": tat.DroppingConnection}
    bases |= {"norm_layer": nn.LayerNorm, "positions": tat.PositionalEncoding}
    parts = {name: type(name, (base,), {}) for name, base in bases.items()}
    model = tat.make_model(9, 9, 2, 16, 24, 4, norm="pre", **parts)
    kinds = Counter(type(module).__name__ for module in model.modules())
    assert {name: kinds[name] for name in parts} == count
    with pytest.raises(ValueError, match="so nobody could load it"):
        tat.savable_weights(model, 9)
    only_attention = tat.make_model(9, 9, 2, 16, 24, 4, attention=parts["attention"])
    assert Counter(type(m).__name__ for m in only_attention.modules())["attention"] == 6


# --- Recorded weights ---
def test_recording_keeps_weights_only_inside(small_model, sentences):
    """Catches weights with a gradient, and weights stored after a recording, even a failed one."""
    model = small_model(dropout=0.5)
    inputs = (sentences.src, sentences.tgt, sentences.src_mask, sentences.tgt_mask)
    layers = [m for m in model.modules() if isinstance(m, tat.MultiHeadedAttention)]
    before = [dict(vars(layer)) for layer in layers]
    with pytest.raises(RuntimeError, match="stop"), tat.recording(model) as maps:
        model(*inputs)
        assert maps.keys() == {*layers}
        for weights in maps.values():
            assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
            assert not weights.requires_grad and weights.grad_fn is None
        maps.clear()
        raise RuntimeError("stop")
    model(*inputs)
    assert not maps and [vars(layer) for layer in layers] == before


def test_a_formula_of_ones_own_is_not_recorded_as_the_papers(small_model, sentences):
    """Catches maps of weights that the layer does not have; an unchanged `weigh` is recorded."""

    class Even(tat.MultiHeadedAttention):
        def weigh(
            self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, mask: torch.Tensor | None
        ) -> torch.Tensor:
            return V.mean(2, keepdim=True).expand(-1, -1, Q.size(2), -1)

    model = small_model()
    model.encoder.layers[1].self_attn = Even(4, 16).double()
    with pytest.raises(ValueError, match="Even weighs in a way of its own"), tat.recording(model):
        model(sentences.src, sentences.tgt, sentences.src_mask, sentences.tgt_mask)


# --- Copies, lengths, precision ---
@pytest.mark.parametrize(
    ("tie", "places"), [("none", (False, False)), ("target", (False, True)), ("all", (True, True))]
)
def test_copies_and_files_give_the_same_model(randomise, sentences, tie, places):
    """Also after a long sentence; catches ties that are equal numbers, or that a copy breaks."""
    sizes = (13, 13, 1, 16, 24, 4)
    model = randomise(tat.make_model(*sizes, tie=tie)).eval()
    with torch.inference_mode():
        model.encode(torch.full((1, 300), 5), None)
    inputs = (sentences.src, sentences.tgt, sentences.src_mask, sentences.tgt_mask)
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = tat.make_model(*sizes, tie=tie).double().eval()
    loaded.load_state_dict(model.state_dict())
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    assert names == set(model.state_dict())
    for clone in (copy.deepcopy(model), torch.load(file, weights_only=False), loaded):
        assert torch.equal(clone(*inputs), model(*inputs))
        assert shared(clone) == shared(model) == places
        assert next(clone.parameters()).data_ptr() != next(model.parameters()).data_ptr()


@pytest.mark.parametrize("record", [False, True])
@BOTH_NORMS
def test_half_precision_with_masks_is_finite(sentences, norm, record):
    """Catches a mask constant beyond 16 bits, and a part that falls back to another precision."""
    model = tat.make_model(13, 11, 2, 16, 24, 4, norm=norm).bfloat16()
    b = sentences
    with tat.recording(model if record else nn.Identity()):
        logits = model(b.src, b.tgt, b.src_mask, b.tgt_mask)
    logits.float().sum().backward()
    assert logits.dtype == torch.bfloat16 and logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    weights = tat.attention(*[torch.randn(1, 3, 4).half()] * 3, mask=tat.subsequent_mask(3))[1]
    assert weights.isfinite().all() and weights.triu(1).abs().max() == 0


def test_learned_positions_are_learned_and_end():
    """Catches positions without a gradient, one vector for all, and no error beyond the last."""
    model = tat.make_model(9, 9, 1, 16, 16, 2, dropout=0.0, positions="learned")
    ids = torch.tensor([[4, 4, 4]])
    x = model.src_embed(ids)
    assert not torch.equal(x[0, 0], x[0, 1])
    assert torch.equal(model.src_embed(ids[:, :1], 2), x[:, 2:])
    x.sum().backward()
    gradient = model.src_embed.positions.table.weight.grad
    assert gradient[:3].abs().min() > 0 and gradient[3:].abs().max() == 0
    with pytest.raises(ValueError, match="has 513 tokens, but only 512 positions are learned"):
        model.src_embed(torch.full((1, 513), 4))
