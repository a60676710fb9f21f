"""The answers to the exercises: all of them run on a few captions, and other ways to find the same agree."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import executed

SCRIPT = Path(tat.__file__)
LONGEST = "example_answer_2_2"  # it trains four models
ANSWERS = sorted(name for name in vars(tat) if name.startswith("example_answer_"))


@pytest.fixture
def small() -> tuple[tat.Transformer, list[tat.Pair]]:
    """A model of 14 tokens with weights large enough to matter, and pairs for it."""
    model = tat.make_model(14, 14, 2, 16, 32, 4, 0.0, norm="pre")
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)
    return model.eval(), tat.copy_pairs(20, 14, seed=0)


def test_every_exercise_has_an_answer_and_every_answer_an_exercise():
    text = SCRIPT.read_text(encoding="utf-8")
    exercises = " ".join(re.findall(r"\*\*Exercises\.?\*\*.*?\n\n", text.replace("\n# >", ""), re.S))
    asked = re.findall(r"\s(\d\.\d) (?=[A-Z])", exercises)
    assert re.findall(r"^# ### Answer (\d\.\d): \w", text, re.M) == asked == sorted(set(asked)) != []
    assert re.findall(r"^# @title Answer (\d\.\d): the code$", text, re.M) == asked
    assert [f"example_answer_{number.replace('.', '_')}" for number in asked] == ANSWERS


@pytest.mark.parametrize("name", [pytest.param(name, marks=[executed] * (name == LONGEST)) for name in ANSWERS])
def test_an_answer_runs_and_what_it_shows_can_be_shown(name, few_phrases, capsys):
    """Its own assertions hold; a table has rows, a chart is one that can be drawn, and everything else is printed."""
    shown = getattr(tat, name)()
    if shown is None:
        printed = capsys.readouterr().out
        assert re.search(r"\w", printed) and "nothing to show" not in printed, "neither shown nor printed"
    elif hasattr(shown, "to_html") and hasattr(shown, "iloc"):
        assert len(shown) > 1
    else:
        assert shown.to_dict()["$schema"]


def test_token_beside_position_counts_from_the_start_that_it_is_given():
    """Answer 1.3."""
    layer, ids = tat.TokenBesidePosition(12, 4, 50), torch.randint(4, 50, (2, 7))
    whole = layer(ids)
    torch.testing.assert_close(whole[..., :12], layer.embeddings(ids))
    torch.testing.assert_close(whole[1, :, 12:], tat.positional_encoding(7, 4))
    torch.testing.assert_close(layer(ids[:, 3:], 3), whole[:, 3:])


def test_the_late_mask_is_right_once_its_weights_are_divided_by_their_sum():
    """Answer 1.4, what it calls right on paper."""
    x, mask = torch.randn(2, 5, 8), tat.subsequent_mask(5)
    weights = tat.attention_masked_late(x, x, x, mask)[1]
    torch.testing.assert_close(weights / weights.sum(-1, keepdim=True), tat.attention(x, x, x, mask)[1])


def test_reverse_pairs_are_copy_pairs_backwards():
    """Answer 2.1."""
    for pair in tat.reverse_pairs(20, seed=3):
        assert [tat.BOS, *reversed(pair.src[:-1]), tat.EOS] == pair.tgt and pair.src[-1] == tat.EOS
    assert {len(pair.src) for pair in tat.reverse_pairs(200, seed=3)} == set(range(4, 10))


def test_the_unshifted_gradient_is_that_of_the_mean_loss(small):
    """Answer 2.3."""
    model, pairs = small
    found = tat.UnshiftedTrainer(model, tat.Config(smoothing=0.0)).gradient(pairs)
    batch = tat.make_batch(pairs)
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    expected = torch.nn.functional.cross_entropy(logits.mT, batch.tgt, ignore_index=tat.PAD)
    assert found == pytest.approx(expected.item(), rel=1e-5)
    grad = model.generator.proj.weight.grad.clone()
    torch.testing.assert_close(grad, torch.autograd.grad(expected, model.generator.proj.weight)[0])


def test_the_threshold_leaves_so_much_of_students_distribution_outside():
    """Answer 5.2: the density with two degrees of freedom, added up."""
    for chance in (0.2, 0.05, 0.002):
        t = np.linspace(-tat.threshold(chance), tat.threshold(chance), 200_001)
        inside = np.trapezoid((1 + t**2 / 2) ** -1.5 / (2 * 2**0.5), t)
        assert inside == pytest.approx(1 - chance, abs=1e-6)


def test_a_model_without_a_head_is_the_model_afterwards(small):
    """Answer 6.2: no head less changes nothing, all heads of a layer silence it, and every weight comes back."""
    model, pairs = small
    before = {name: p.clone() for name, p in model.named_parameters()}
    whole = tat.validation_loss(model, pairs)
    assert tat.loss_without(model, [], pairs) == whole
    one, layer = tat.loss_without(model, [(1, 2)], pairs), tat.loss_without(model, [(1, i) for i in range(4)], pairs)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())
    with torch.no_grad():
        W_o = model.decoder.layers[1].src_attn.W_o.weight
        W_o[:, 8:12] = 0  # the third of four heads of width 4
        assert tat.validation_loss(model, pairs) == one != whole
        W_o.zero_()
    assert tat.validation_loss(model, pairs) == layer != one


def test_the_last_checkpoint_is_in_the_model_after_averaging(few_phrases):
    """Answer 4.3 leaves the document's model as it found it."""
    model, checkpoints = tat.live_run().translator.model, tat.live_run().checkpoints
    tat.example_answer_4_3()
    assert all(torch.equal(p, checkpoints[-1][name]) for name, p in model.named_parameters())


def test_the_alignment_rows_are_compared_as_they_are(monkeypatch):
    """Answer 6.3, on rows that are made up."""
    rates = {(1, 1): 0.5, (1, 2): 0.3, (1, "mean"): 0.4, (2, 1): 0.6, (2, 2): 0.7, (2, "mean"): 0.35}
    rates["mean", "mean"] = 0.45
    heads = [
        {"layer": layer, "head": head, "convention": convention, "aer": rate + plus}
        for convention, plus in (("reads", 0.0), ("predicts", 0.1))
        for (layer, head), rate in rates.items()
    ]
    row = {"set": {"seed": "1"}, "heads": heads, "baselines": {"best": {"aer": 0.1}, "random": {"aer": 0.9}}}
    monkeypatch.setattr(tat, "saved_rows", lambda name: [row])
    shown = tat.example_answer_6_3().to_dict("records")
    assert [list(line.values())[1:] for line in shown] == [[0.3, 0.35, 0.45], [0.4, 0.45, 0.55]]
    row["baselines"]["best"]["aer"] = 0.35  # a head cannot be better than the best that is possible
    with pytest.raises(AssertionError):
        tat.example_answer_6_3()


@pytest.mark.parametrize("name", ["3_3", "5_2", "6_3"])
def test_an_answer_without_its_rows_shows_nothing(name, monkeypatch):
    monkeypatch.setattr(tat, "saved_rows", lambda name: [])
    assert getattr(tat, f"example_answer_{name}")() is None


def test_the_cache_has_the_sizes_of_the_formula():
    """Answer 7.1: two times 6 layers, 64 numbers a head, 1,000 tokens, 4 or 2 bytes."""
    shown = json.loads(tat.example_answer_7_1().to_json(orient="index"))
    for heads, sizes in shown.items():
        megabytes = [2 * 6 * 64 * 1000 * int(heads) * size / 1e6 for size in (4, 2)]
        assert sizes == {"float32": f"{megabytes[0]:.2f} MB", "bfloat16": f"{megabytes[1]:.2f} MB"}
    assert set(shown) == {"8", "2", "1"}
