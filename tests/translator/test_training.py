"""Batches, loss, schedule, updates against written sums, PyTorch's losses, arithmetic by hand."""

import copy
import dataclasses

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import the_annotated_transformer as tat
from tests.helpers import assert_gradient_of_the_loss, uneven_pairs
from translator.corpus import encode_pairs
from translator.files import model_folder
from translator.model_folder import read_translator
from translator.scoring import score
from translator.search import Search
from translator.settings import Settings, build_model
from translator.sources import load_pairs
from translator.trainer import Muon, ParallelTrainer, greedy_bleu, make_optimizers

# --- Updates ---

SIZES = {"N": 1, "d_model": 16, "d_ff": 24, "h": 2, "dropout": 0.0}


def small_trainer(
    model: nn.Module | None = None, kind: type = ParallelTrainer, **settings
) -> ParallelTrainer | tat.Trainer:
    """A trainer for a copy of `model`, by default a fresh one; the program's or the document's."""
    model = copy.deepcopy(model) if model else tat.make_model(13, 13, **SIZES)
    if kind is tat.Trainer:
        return tat.Trainer(model, tat.Config(**{"d_model": 16, "warmup": 10} | settings))
    return ParallelTrainer(model, Settings(**{"d_model": 16, "warmup": 10, "clip": 0.0} | settings))


both_trainers = pytest.mark.parametrize(
    "kind", [tat.Trainer, ParallelTrainer], ids=["document", "program"]
)


def gradients(model: nn.Module) -> list[Tensor]:
    return [p.grad.clone() for p in model.parameters()]


def weights(model: nn.Module) -> list[Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("tie", ["none", "all"])
@both_trainers
def test_gradient_is_that_of_the_mean_loss_over_tokens(tie, kind):
    """Catches an objective that differs from a naive loss of the logits, and a wrong divisor."""
    trainer, pairs = small_trainer(tat.make_model(13, 13, **SIZES, tie=tie), kind), uneven_pairs()
    assert_gradient_of_the_loss(trainer, trainer.model, pairs, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("pieces", [2, 3, 7, 10])
@both_trainers
def test_pieces_give_the_gradient_of_the_whole(pieces, kind):
    """Catches micro-batches divided by their own tokens, lost or left over, and more than rows."""
    model, pairs = tat.make_model(13, 13, **SIZES), uneven_pairs()
    trainer, cut = small_trainer(model, kind), small_trainer(model, kind, accumulate=pieces)
    loss = trainer.gradient(pairs)
    for _ in range(2):  # nothing of the first is left the second time
        assert cut.gradient(pairs) == pytest.approx(loss, rel=1e-5)
        assert_close(gradients(cut.model), gradients(trainer.model), atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("accumulate", [1, 3])
@both_trainers
def test_update_is_adam_with_the_papers_constants(accumulate, kind):
    """Catches other betas or eps, another step's rate, and micro-batches counted as updates."""
    trainer = small_trainer(kind=kind, accumulate=accumulate)
    pairs = uneven_pairs()
    warmup = 2
    name = "config" if kind is tat.Trainer else "settings"
    setattr(trainer, name, dataclasses.replace(getattr(trainer, name), warmup=warmup))
    adam = trainer.optimizer if kind is tat.Trainer else trainer.optimizers[0]
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
        assert trainer.step == step and adam.param_groups[0]["lr"] == pytest.approx(rate)
    assert adam.param_groups[0]["eps"] == 1e-9  # too small to be seen in three updates


def test_muon_moves_by_the_singular_vectors_of_the_average():
    """Catches a wrong average or scale, a transposed product, a layer's matrices left to Adam."""
    matrices = [nn.Parameter(torch.randn(shape)) for shape in ((8, 16), (16, 8), (8, 16), (5, 5))]
    optimizer = Muon(matrices, lr=0.1)
    average = [torch.zeros_like(p) for p in matrices]
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
    adam, muon = make_optimizers(tat.make_model(13, 13, **SIZES | {"tie": "all"}), "muon")
    assert all(p.dim() == 1 or 13 in p.shape for p in adam.param_groups[0]["params"])
    assert all(p.dim() == 2 and 13 not in p.shape for p in muon.param_groups[0]["params"])
    assert len(make_optimizers(tat.make_model(13, 13, **SIZES), "adam")) == 1


def test_clip_bounds_the_gradient_of_an_update():
    """Catches clipping by micro-batch, by value, or not at all, and clipping not asked for."""
    model, pairs = tat.make_model(13, 13, **SIZES), uneven_pairs()
    clips = (0.0, 0.05, 1e6)
    free, clipped, loose = (small_trainer(model, clip=clip, accumulate=3) for clip in clips)
    for trainer in (free, clipped, loose):
        trainer.update(pairs)
    gradient = torch.cat([g.flatten() for g in gradients(free.model)])
    assert gradient.norm() > 0.1
    short = torch.cat([g.flatten() for g in gradients(clipped.model)])
    assert_close(short, gradient * 0.05 / gradient.norm(), atol=1e-6, rtol=1e-3)
    assert_close(gradients(loose.model), gradients(free.model))


@pytest.mark.parametrize("tie", ["none", "all"])
def test_averaged_weights_equal_the_average_by_hand(tie):
    """Catches an average with a swapped decay, a wrong start, and memory shared with the model."""
    trainer = small_trainer(tat.make_model(13, 13, **SIZES, tie=tie), ema=0.2)
    expected = weights(trainer.model)
    for step in (1, 2, 3, 4):
        trainer.update(uneven_pairs())
        decay = [None, 0.1, 2 / 11, 0.2, 0.2][step]  # step / (step + 9), until it reaches 0.2
        pairs_of_weights = zip(expected, weights(trainer.model), strict=True)
        expected = [decay * a + (1 - decay) * w for a, w in pairs_of_weights]
        assert_close(weights(trainer.averaged), expected)
    assert not any(p.requires_grad for p in trainer.averaged.parameters())
    assert not trainer.averaged.training
    alone = small_trainer(ema=0.0)
    assert alone.averaged is alone.model


def test_seed_decides_the_run():
    """Catches random numbers that ignore the seed: the same gives the same bits, another others."""
    model, pairs = tat.make_model(13, 13, **SIZES | {"dropout": 0.3}), uneven_pairs()
    runs = []
    for noise, seed in enumerate((5, 5, 6)):
        torch.manual_seed(noise)
        trainer = small_trainer(model, seed=seed)
        for _ in range(3):
            trainer.update(pairs)
        runs.append(weights(trainer.model))
    equal = [all(map(torch.equal, runs[0], weights_of_run)) for weights_of_run in runs]
    assert equal == [True, True, False]


def test_updates_draw_different_dropout():
    """Catches the same seed before every update."""
    model = tat.make_model(13, 13, **SIZES | {"dropout": 0.3})
    trainer = small_trainer(model, factor=0.0)  # a rate of zero: only dropout can change the loss
    losses = [trainer.update(uneven_pairs()) for _ in range(3)]
    assert len(set(losses)) == 3


# --- Translations of a validation ---
def test_the_quick_score_is_that_of_the_search():
    """Catches another text, a lost end, and rows that are not in the order of their references."""
    translator = read_translator(model_folder(), torch.device("cpu"))
    pairs = load_pairs("captions", "val")[:20]
    sources, references = map(list, zip(*pairs, strict=True))
    expected = score(Search(translator).translate(sources), references)["bleu"]
    ids = encode_pairs(translator.tokenizer, pairs, translator.languages)
    assert 20 < expected < 90
    assert greedy_bleu(translator.model, translator.tokenizer, ids) == pytest.approx(expected)


# --- The end of a run ---
def test_the_rate_rises_and_falls_in_straight_lines_if_the_end_is_known():
    """Catches a fall by a root, a peak elsewhere, and not Equation (3) where no end is known."""
    trainer, peak = small_trainer(schedule="linear"), tat.rate(10, 16, 1.0, 10)
    for trainer.step, trainer.left, expected in (
        (5, 0.9, peak / 2), (10, 1.0, peak), (20, 0.5, peak / 2), (40, 0.01, peak / 100),
        (40, None, tat.rate(40, 16, 1.0, 10)),
    ):  # fmt: skip
        assert trainer.rate() == pytest.approx(expected)
    paper = small_trainer()
    paper.step, paper.left = 40, 0.01
    assert paper.rate() == tat.rate(40, 16, 1.0, 10)


def test_a_growing_dropout_follows_the_passes():
    """Catches one that doesn't grow, has no end, or reaches the sublayers' inside."""
    sizes = {"N": 1, "d_model": 16, "d_ff": 24, "h": 4}
    settings = Settings(**sizes, dropout=None, inner_dropout=0.2)
    trainer = ParallelTrainer(build_model(settings, 13), settings)
    layer = trainer.model.decoder.layers[0]
    for passes, share in ((0.0, 0.0), (7.5, 0.075), (99.0, 0.25)):
        trainer.passes = passes
        trainer.update(uneven_pairs())
        assert {sublayer.dropout.p for sublayer in layer.sublayer} == {share}
        assert trainer.model.src_embed.positions.dropout.p == share
        assert layer.feed_forward.dropout.p == layer.self_attn.dropout.p == 0.2
