"""Batches, loss, schedule and updates, against sums written out, PyTorch's losses and arithmetic by hand."""

import copy
import math
import random
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

import the_annotated_transformer as tat

# --- Batches ---


def test_pad_rows():
    """Catches rows that are cut or padded on the wrong side, and padding that is always 0."""
    assert tat.pad_rows([[1, 2, 3], [4], []], pad=9).tolist() == [[1, 2, 3], [4, 9, 9], [9, 9, 9]]
    assert tat.pad_rows([[1, 2]]).dtype == torch.int64


@pytest.mark.parametrize("pad", [0, 7])
def test_batch_shifts_by_one_and_masks(pad):
    """Catches a shift of none or two, a lost EOS, and masks or counts that are taken from the wrong side."""
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


def realistic_lengths(n: int) -> list[tuple[int, int]]:
    """Lengths of sentence pairs about as Multi30k has them."""
    draw = random.Random(0)
    targets = [max(4, round(draw.gauss(14, 4.5))) for _ in range(n)]
    return [(max(4, t + round(draw.gauss(0, 2))), t) for t in targets]


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("budget", [45, 400, 100_000])
def test_token_batches_hold_every_pair_once_within_the_budget(seed, budget):
    """Catches pairs that are lost or repeated, a batch over its budget on either side, and an empty one."""
    lengths = [*realistic_lengths(1000), (40, 3), (3, 40), (45, 1)]
    batches = tat.token_batches(lengths, budget, seed)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))
    for batch in batches:
        for side in (0, 1):
            assert 0 < len(batch) * max(lengths[i][side] for i in batch) <= budget
    assert tat.token_batches([], budget, seed) == []


def test_token_batches_waste_little():
    """Catches batches that mix lengths (padding), and batches that are left half empty."""
    lengths, budget = realistic_lengths(29_000), 5000
    batches = tat.token_batches(lengths, budget, seed=0)
    padded = [[len(batch) * max(lengths[i][side] for i in batch) for batch in batches] for side in (0, 1)]
    assert 1 - sum(map(sum, lengths)) / sum(map(sum, padded)) < 0.05
    assert sum(sum(side) for side in padded) / (2 * budget * len(batches)) > 0.9


def test_token_batches_follow_their_seed():
    """Catches an order that cannot be repeated, and epochs that are all the same."""
    lengths = realistic_lengths(1000)
    first, again, second = ([b.tolist() for b in tat.token_batches(lengths, 400, seed)] for seed in (1, 1, 2))
    assert first == again != second
    assert {frozenset(batch) for batch in first} != {frozenset(batch) for batch in second}  # drawn anew, not only moved
    longest = [max(lengths[i][1] for i in batch) for batch in first]
    assert longest != sorted(longest)  # short and long batches in turns, not a curriculum
    assert [b.tolist() for b in tat.token_batches(lengths, 400)] == [
        b.tolist() for b in tat.token_batches(lengths, 400)
    ]


@pytest.mark.parametrize("pair", [(12, 3), (3, 12)])
def test_token_batches_refuse_a_pair_that_never_fits(pair):
    """Catches a pair that silently makes a batch over the budget."""
    with pytest.raises(ValueError, match="pair 3 has 12 tokens, but a batch holds 11"):
        tat.token_batches([(4, 4), (11, 11), pair], budget=11)


# --- The loss ---


def dense_loss(logits: Tensor, target: Tensor, eps: float, pad: int = tat.PAD) -> Tensor:
    """The definition: minus the sum of q log p, with q written out entry by entry."""
    total, V = logits.new_zeros(()), logits.size(-1)
    for scores, y in zip(logits.reshape(-1, V), target.flatten().tolist(), strict=True):
        if y != pad:
            q = [(1 - eps) * (k == y) + eps / (V - 1) * (k != pad) for k in range(V)]
            total = total - (torch.tensor(q, dtype=logits.dtype) * scores.log_softmax(-1)).sum()
    return total


@pytest.mark.parametrize(("eps", "pad"), [(0.0, 0), (0.1, 0), (0.3, 4)])
def test_smoothed_loss_equals_its_definition(eps, pad):
    """Catches mass for padding, a wrong share for the others, and a loss at padded targets; in both forms."""
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
    """Catches validation whose exponential is no perplexity."""
    logits, target = torch.randn(3, 4, 9), torch.randint(0, 9, (3, 4))
    expected = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=tat.PAD, reduction="sum")
    assert_close(tat.smoothed_loss(logits, target, eps=0.0), expected)


def test_smoothed_loss_and_pytorch_differ_by_the_padding_symbol():
    """Catches another smoothing than the text explains.

    With p' the softmax over the symbols beside padding, log p = log p' + log(1 - p(pad)). So ours is PyTorch's on the
    vocabulary without padding, minus log(1 - p(pad)) a target; they agree exactly where the model gives padding nothing.
    On the whole vocabulary PyTorch's mean of log p includes padding and ours does not.
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


def test_smallest_loss_is_the_entropy_of_the_targets():
    """Catches a smoothed loss that has its minimum elsewhere than at p = q."""
    target, eps, V = torch.tensor([5, 2]), 0.1, 12
    q = tat.smoothed_targets(target, V, eps)
    logits = q.clamp_min(1e-12).log().requires_grad_()
    loss = tat.smoothed_loss(logits, target, eps)
    right, other = 1 - eps + eps / (V - 1), eps / (V - 1)
    entropy = -2 * (right * math.log(right) + (V - 2) * other * math.log(other))
    assert loss.item() == pytest.approx(entropy, abs=1e-5)
    assert torch.autograd.grad(loss, logits)[0].abs().max() < 1e-6
    for _ in range(20):
        assert tat.smoothed_loss(logits + 0.3 * torch.randn(2, V), target, eps) > loss


@pytest.mark.parametrize("chunk", [1, 3, 12, 512])
@pytest.mark.parametrize(("eps", "pad"), [(0.1, 0), (0.0, 0), (0.2, 5)])
def test_chunked_loss_equals_the_whole(chunk, eps, pad):
    """Catches a chunk that is lost or counted twice, and each column of p - q that needs care."""
    x, weight = torch.randn(12, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    target = torch.tensor([y for y in range(9) if y != pad] + [3, 3, 8, 1])
    whole = tat.smoothed_loss(x @ weight.T, target, eps, pad)
    chunked = tat.ChunkedLoss.apply(x, weight, target, partial(tat.smoothed_gradient, eps=eps, pad=pad), chunk)
    assert_close(chunked, whole)
    expected = torch.autograd.grad(3 * whole, (x, weight))
    assert_close(torch.autograd.grad(3 * chunked, (x, weight)), expected, atol=1e-5, rtol=1e-4)


def test_chunked_gradient_equals_finite_differences():
    """Catches a gradient that agrees with autograd's of the same mistake: slopes of the loss, measured in float64."""
    x, weight, target = torch.randn(5, 4).double(), torch.randn(7, 4).double(), torch.tensor([1, 6, 3, 3, 2])
    inputs = x.requires_grad_(), weight.requires_grad_()
    gradients = torch.autograd.grad(tat.ChunkedLoss.apply(*inputs, target, tat.smoothed_gradient, 2), inputs)
    for tensor, gradient in zip(inputs, gradients, strict=True):
        for place in range(tensor.numel()):
            losses = []
            for step in (1e-5, -1e-5):
                moved = [t.detach().clone() for t in inputs]
                moved[0 if tensor is x else 1].view(-1)[place] += step
                losses.append(dense_loss(moved[0] @ moved[1].T, target, 0.1).item())
            assert gradient.view(-1)[place].item() == pytest.approx((losses[0] - losses[1]) / 2e-5, abs=1e-5)


def test_losses_survive_extreme_scores_and_no_targets():
    """Catches exp() that overflows, and a batch without anything to predict."""
    x, weight = torch.tensor([[1e4], [-1e4]], requires_grad=True), torch.tensor([[1.0], [2.0], [-3.0]])
    target = torch.tensor([1, 2])
    weight.requires_grad_()
    chunked, whole = tat.ChunkedLoss.apply(x, weight, target), tat.smoothed_loss(x @ weight.T, target)
    assert_close(chunked, whole)
    for gradients in (torch.autograd.grad(chunked, (x, weight)), torch.autograd.grad(whole, (x, weight))):
        assert all(g.isfinite().all() for g in gradients)
    nothing = tat.ChunkedLoss.apply(x[:0], weight, target[:0])
    (gradient,) = torch.autograd.grad(nothing, weight)
    assert nothing == 0 and gradient.abs().max() == 0


@pytest.mark.parametrize("chunk", [2, 256])
@pytest.mark.parametrize(("alpha", "eps", "pad"), [(5.0, 0.1, 0), (0.7, 0.0, 3)])
def test_r_drop_equals_the_sum_of_its_parts(chunk, alpha, eps, pad):
    """Catches a divergence in one direction only, a wrong factor, and a gradient that belongs to the other pass."""
    x, weight = torch.randn(2, 5, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    target = torch.tensor([1, 4, 8, 8, 2])
    r_drop = partial(tat.r_drop_gradient, alpha=alpha, eps=eps, pad=pad)
    ours = tat.ChunkedLoss.apply(x, weight, target, r_drop, chunk)
    p, q = (x @ weight.T).softmax(-1)
    both_ways = (p * (p / q).log()).sum() + (q * (q / p).log()).sum()
    plain = sum(tat.smoothed_loss(scores, target, eps, pad) for scores in x @ weight.T)
    expected = plain / 2 + alpha / 4 * both_ways
    assert_close(ours, expected)
    assert_close(torch.autograd.grad(ours, (x, weight)), torch.autograd.grad(expected, (x, weight)))


def test_no_gradient_is_computed_where_none_is_asked_for(small_model, sentences, monkeypatch):
    objective = tat.Objective(small_model(), 0.1)
    loss = objective(sentences)
    monkeypatch.setattr(torch.Tensor, "addmm_", None)  # what adds up the gradient of the output matrix
    with torch.no_grad():
        assert_close(objective(sentences), loss.detach())
    with pytest.raises(TypeError):
        objective(sentences)


def test_objective_with_r_drop_sends_every_sentence_through_twice():
    """Catches passes that share their dropout, and passes that are set beside another sentence's."""
    torch.manual_seed(0)
    batch = tat.make_batch(tat.copy_pairs(6, 14, seed=1))
    model = tat.make_model(14, 14, 2, 16, 32, 2, dropout=0.0)
    plain = tat.Objective(model, 0.1)(batch)
    assert_close(tat.Objective(model, 0.1, r_drop=5.0)(batch), plain)  # no dropout: both passes agree
    model = tat.make_model(14, 14, 2, 16, 32, 2, dropout=0.3)
    assert tat.Objective(model, 0.1, r_drop=50.0)(batch) > 1.2 * tat.Objective(model, 0.1, r_drop=1e-9)(batch)


def test_r_drop_begins_after_so_many_updates():
    """Catches an R-Drop that begins an update early or late, or never."""
    model = tat.make_model(13, 13, **SIZES | {"dropout": 0.3})
    plain, later = small_trainer(model), small_trainer(model, r_drop=50.0, r_drop_after=2)
    losses = [[trainer.update(uneven_pairs()) for _ in range(3)] for trainer in (plain, later)]
    assert losses[0][:2] == losses[1][:2] and losses[0][2] != losses[1][2]


# --- The schedule ---


def test_rate_is_equation_3():
    """Catches wrong exponents or factors, a peak elsewhere than at the end of the warmup, and a crash at step 0."""
    for d_model, factor, warmup in ((512, 1.0, 4000), (64, 0.5, 30)):
        peak = factor / math.sqrt(d_model * warmup)
        for step in (1, 2, warmup // 2, warmup - 1, warmup, warmup + 1, 10 * warmup):
            expected = peak * min(step / warmup, math.sqrt(warmup / step))
            assert tat.rate(step, d_model, factor, warmup) == pytest.approx(expected, rel=1e-12)
        assert max(range(1, 5 * warmup), key=lambda s: tat.rate(s, d_model, factor, warmup)) == warmup  # noqa: B023
        assert tat.rate(0, d_model, factor, warmup) == tat.rate(1, d_model, factor, warmup) > 0


# --- Updates ---

SIZES = {"N": 1, "d_model": 16, "d_ff": 24, "h": 2, "dropout": 0.0}


def uneven_pairs(n: int = 7) -> list[tat.Pair]:
    """Sentence pairs of very different lengths."""
    draw = random.Random(0)

    def ids(longest: int) -> list[int]:
        return [draw.randint(4, 12) for _ in range(draw.randint(1, longest))]

    return [tat.Pair([*ids(6), tat.EOS], [tat.BOS, *ids(12), tat.EOS]) for _ in range(n)]


def small_trainer(model: nn.Module | None = None, **settings) -> tat.Trainer:
    """A trainer of a copy of `model`, by default a fresh one."""
    settings = {"d_model": 16, "warmup": 10, "clip": 0.0} | settings
    return tat.Trainer(copy.deepcopy(model) if model else tat.make_model(13, 13, **SIZES), tat.Config(**settings))


def gradients(model: nn.Module) -> list[Tensor]:
    """The gradient of each weight, as it is now."""
    return [p.grad.clone() for p in model.parameters()]


def weights(model: nn.Module) -> list[Tensor]:
    """Each weight, as it is now."""
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("tie", ["none", "all"])
def test_gradient_is_that_of_the_mean_loss_over_tokens(tie):
    """Catches an objective that differs from logits and loss put together naively, or a wrong divisor."""
    trainer, pairs = small_trainer(tat.make_model(13, 13, **SIZES, tie=tie)), uneven_pairs()
    loss = trainer.gradient(pairs)
    found, model, batch = gradients(trainer.model), trainer.model, tat.make_batch(pairs)
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    expected = dense_loss(logits, batch.tgt_y, eps=0.1) / sum(len(pair.tgt) - 1 for pair in pairs)
    assert loss == pytest.approx(expected.item(), rel=1e-5)
    assert_close(found, list(torch.autograd.grad(expected, list(model.parameters()))), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("pieces", [2, 3, 7, 10])
def test_pieces_give_the_gradient_of_the_whole(pieces):
    """Catches pieces that are divided by their own tokens, lost, or left over; and more pieces than rows."""
    model, pairs = tat.make_model(13, 13, **SIZES), uneven_pairs()
    whole, cut = small_trainer(model), small_trainer(model, accumulate=pieces)
    loss = whole.gradient(pairs)
    for _ in range(2):  # the second time, nothing is left of the first
        assert cut.gradient(pairs) == pytest.approx(loss, rel=1e-5)
        assert_close(gradients(cut.model), gradients(whole.model), atol=1e-6, rtol=1e-4)


def test_split_rows_deals_every_pair_once():
    """Catches a piece that is empty, and idle pairs that have something to predict."""
    pairs = uneven_pairs(5)
    for pieces in (1, 2, 5, 8):
        dealt = tat.split_rows(pairs, pieces)
        assert len(dealt) == pieces and all(dealt)
        learned = [pair for piece in dealt for pair in piece if tat.make_batch([pair]).ntokens]
        assert sorted(learned) == sorted(pairs)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_update_is_adam_with_the_papers_constants(accumulate):
    """Catches other betas or eps, a rate of another step, and a schedule that counts pieces instead of updates."""
    trainer, pairs, warmup = small_trainer(accumulate=accumulate), uneven_pairs(), 2
    trainer.config = tat.replace(trainer.config, warmup=warmup)
    expected = [w.double() for w in weights(trainer.model)]
    first, second = ([torch.zeros_like(w) for w in expected] for _ in range(2))
    for step in (1, 2, 3):
        trainer.update(pairs)
        rate = 16**-0.5 * min(step**-0.5, step * warmup**-1.5)
        for w, m, v, g in zip(expected, first, second, gradients(trainer.model), strict=True):
            m.lerp_(g.double(), 1 - 0.9)
            v.lerp_(g.double().square(), 1 - 0.98)
            w -= rate * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9)
        assert_close(weights(trainer.model), [w.float() for w in expected], atol=1e-5, rtol=1e-4)
        assert trainer.step == step and trainer.optimizers[0].param_groups[0]["lr"] == pytest.approx(rate)
    assert trainer.optimizers[0].param_groups[0]["eps"] == 1e-9  # too small to be seen in three updates


def test_muon_moves_by_the_singular_vectors_of_the_average():
    """Catches another average, a wrong scale, a transposed product, and matrices of a layer that stay with Adam."""
    torch.manual_seed(0)
    matrices = [nn.Parameter(torch.randn(shape)) for shape in ((8, 16), (16, 8), (8, 16), (5, 5))]
    optimizer, average = tat.Muon(matrices, lr=0.1), [torch.zeros_like(p) for p in matrices]
    for _ in range(3):
        before = [p.detach().clone() for p in matrices]
        for p, m in zip(matrices, average, strict=True):
            p.grad = torch.randn_like(p)
            m.lerp_(p.grad, 0.05)
        optimizer.step()
        for p, m, old in zip(matrices, average, before, strict=True):
            U, S, Vh = torch.linalg.svd(0.05 * p.grad + 0.95 * m, full_matrices=False)
            sigma = S / S.norm()
            for _ in range(5):
                sigma = 3.4445 * sigma - 4.7750 * sigma**3 + 2.0315 * sigma**5
            moved = 0.1 * 0.3 * max(p.shape) ** 0.5 * U @ sigma.diag() @ Vh
            assert_close(old - p.detach(), moved, atol=1e-4, rtol=1e-3)
    adam, muon = tat.make_optimizers(tat.make_model(13, 13, **SIZES | {"tie": "all"}), "muon")
    assert all(p.dim() == 1 or 13 in p.shape for p in adam.param_groups[0]["params"])
    assert all(p.dim() == 2 and 13 not in p.shape for p in muon.param_groups[0]["params"])
    assert len(tat.make_optimizers(tat.make_model(13, 13, **SIZES), "adam")) == 1


@pytest.mark.parametrize("kind", ["adam", "muon"])
def test_an_update_moves_every_weight_at_its_rate(kind):
    """Catches an optimiser that makes no step, or has another's rate."""
    trainer = small_trainer(optimizer=kind, factor=0.1)
    before = {name: p.detach().clone() for name, p in trainer.model.named_parameters()}
    trainer.update(uneven_pairs())
    assert trainer.lr == tat.rate(1, 16, 0.1, 10)
    for name, p in trainer.model.named_parameters():
        moved = (p.detach() - before[name]).pow(2).mean().sqrt() / trainer.lr
        matrix = kind == "muon" and p.dim() == 2 and name.startswith(("encoder", "decoder"))
        assert (0.15 < moved < 0.45) if matrix else (0.3 < moved < 1.01), (name, moved)


def test_clip_bounds_the_gradient_of_an_update():
    """Catches clipping by piece, by value, or not at all; and any where none was asked for."""
    model, pairs = tat.make_model(13, 13, **SIZES), uneven_pairs()
    free, clipped, loose = (small_trainer(model, clip=clip, accumulate=3) for clip in (0.0, 0.05, 1e6))
    for trainer in (free, clipped, loose):
        trainer.update(pairs)
    whole = torch.cat([g.flatten() for g in gradients(free.model)])
    assert whole.norm() > 0.1
    short = torch.cat([g.flatten() for g in gradients(clipped.model)])
    assert_close(short, whole * 0.05 / whole.norm(), atol=1e-6, rtol=1e-3)
    assert_close(gradients(loose.model), gradients(free.model))


@pytest.mark.parametrize("tie", ["none", "all"])
def test_averaged_weights_equal_the_average_by_hand(tie):
    """Catches an average that follows the wrong way, from the wrong start, or shares memory with the model."""
    trainer = small_trainer(tat.make_model(13, 13, **SIZES, tie=tie), ema=0.2)
    expected = weights(trainer.model)
    for step in (1, 2, 3, 4):
        trainer.update(uneven_pairs())
        decay = [None, 0.1, 2 / 11, 0.2, 0.2][step]  # step / (step + 9), until it reaches 0.2
        expected = [decay * a + (1 - decay) * w for a, w in zip(expected, weights(trainer.model), strict=True)]
        assert_close(weights(trainer.averaged), expected)
    assert not any(p.requires_grad for p in trainer.averaged.parameters()) and not trainer.averaged.training
    alone = small_trainer(ema=0.0)
    assert alone.averaged is alone.model


def test_seed_decides_the_run():
    """Catches random numbers from outside the seed: the same seed must give the same bits, another one others."""
    model, pairs = tat.make_model(13, 13, **SIZES | {"dropout": 0.3}), uneven_pairs()
    runs = []
    for noise, seed in enumerate((5, 5, 6)):
        torch.manual_seed(noise)
        trainer = small_trainer(model, seed=seed)
        for _ in range(3):
            trainer.update(pairs)
        runs.append(weights(trainer.model))
    same = [all(map(torch.equal, runs[0], other)) for other in runs]
    assert same == [True, True, False]


def test_updates_draw_different_dropout():
    """Catches a seed that is set to the same number before every update."""
    model, pairs = tat.make_model(13, 13, **SIZES | {"dropout": 0.3}), uneven_pairs()
    trainer = small_trainer(model, factor=0.0)  # a rate of zero: only dropout can change the loss
    losses = [trainer.update(pairs) for _ in range(3)]
    assert len(set(losses)) == 3
    assert trainer.model.training


def test_dropout_may_begin_late():
    """Catches dropout in the first updates, none later, and one update too few or too many without."""
    model, pairs = tat.make_model(13, 13, **SIZES | {"dropout": 0.3}), uneven_pairs()
    trainer = small_trainer(model, factor=0.0, dropout_after=2)  # a rate of zero: only dropout can change the loss
    losses = [trainer.update(pairs) for _ in range(4)]
    assert losses[0] == losses[1] and len(set(losses)) == 3


def test_copy_task_learns_to_copy():
    """Catches whatever keeps model, loss, updates and decoding from working together: shift, masks, symbols."""
    pairs = tat.copy_pairs(600, 14, seed=10**6)
    assert all(pair.tgt == [tat.BOS, *pair.src] and pair.src[-1] == tat.EOS for pair in pairs)
    assert {symbol for pair in pairs for symbol in pair.src[:-1]} == set(range(len(tat.SPECIALS), 14))
    model, losses = tat.train_copy(updates=400)
    assert losses[-1]["loss"] < 0.1 * losses[0]["loss"] and not model.training
    pairs = [pair for pair in pairs if len(pair.src) > 6]  # of those there are too many to have seen them
    unseen = tat.make_batch(pairs)
    copies = tat.greedy_decode(model, unseen.src, unseen.src_mask, max_len=12).tolist()
    exact = [row[: len(pair.tgt)] == pair.tgt for row, pair in zip(copies, pairs, strict=True)]
    assert sum(exact) / len(exact) > 0.9


# --- The end of a run ---


@pytest.mark.parametrize(
    "budget, share",
    [({"epochs": 4}, 0.375), ({"epochs": 4, "steps": 10}, 0.7), ({"minutes": 1}, 0.5), ({"epochs": 1}, 1)],
)
def test_share_of_the_budget(budget, share):
    """Catches a bar that stands still within an epoch, that knows one limit only, or that passes the end."""
    progress = tat.Progress(step=7, epoch=1, batch=10, seconds=30)
    assert tat.Budget(**budget).share(progress, batches=20) == share
