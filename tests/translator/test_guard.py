"""What a training says before its first update: nothing on a sound model, a line on a wrong one."""

import pytest
import torch

import since_2017
from practice import mistakes
from translator.__main__ import main
from translator.guard import doubts
from translator.run import read_log
from translator.settings import Settings, build_model
from translator.trainer import ParallelTrainer

SIZES = {"N": 2, "d_model": 32, "d_ff": 64, "h": 4, "bpe": 100}


def trainer(**changes) -> ParallelTrainer:
    """The program's trainer of a fresh model."""
    settings = Settings(**SIZES | changes)
    return ParallelTrainer(build_model(settings, 100), settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"}, {"norm": "post"}, {"positions": "learned"}, {"positions": "rotary"},
        {"tie": "none"}, {"h": 1}, {"smoothing": 0.0}, {"inner_dropout": 0.2},
        {"optimizer": "muon"}, {"ema": 0.9}, {"accumulate": 3}, {"N": 6}, {"d_k": 4},
    ],
    ids=str,
)  # fmt: skip
def test_a_sound_model_raises_no_doubt_and_stays_as_it_was(changes):
    """Catches a false alarm, and a guard that changes weights or leaves gradients behind."""
    healthy = trainer(**changes)
    before = [p.detach().clone() for p in healthy.model.parameters()]
    assert list(doubts(healthy)) == []
    weights = healthy.model.parameters()
    assert all(torch.equal(p, old) for p, old in zip(weights, before, strict=True))
    assert not any(p.grad is not None and p.grad.any() for p in healthy.model.parameters())


@pytest.mark.parametrize(
    "parts", [["rms_norm"], ["gated"], ["grouped"], ["rotary", "rms_norm", "gated", "grouped"]]
)
def test_later_parts_raise_no_doubt(parts):
    settings = Settings(**SIZES)
    model = since_2017.modern(build_model(settings, 100), *parts)
    assert list(doubts(ParallelTrainer(model, settings))) == []


WRONG = {
    "no_causal_mask": "sees the future",
    "softmax_over_queries": "sees the future",
    "heads_joined_by_view": "sees the future",
    "norm_over_time": "sees the future",
    "padding_seen": "padding moves",
    "positions_by_row_of_batch": "neighbours in the batch",
    "cross_attends_to_itself": "another source moves no prediction",
    "no_shift": "if position t predicts target token t + 1",
    "gradients_never_cleared": "the second time",
    "encoder_gets_no_gradient": "get no gradient",
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_is_told_in_one_line(name):
    """Catches a wire, a loss or a gradient that is no longer looked at."""
    with mistakes.made(name):
        found = list(doubts(trainer()))
    assert any(WRONG[name] in doubt and "\n" not in doubt for doubt in found), found


def test_a_training_tells_and_goes_on(tmp_path, capsys):
    """A changed model that sees the future is told so on standard error, once, and is trained."""
    command = f"train --data captions --run {tmp_path / 'run'} --N 1 --d-model 16 --d-ff 16 --h 2"
    command += " --bpe 100 --steps 2"
    with mistakes.made("no_causal_mask"):
        assert main(command.split()) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "sees the future" in line]
    assert len(lines) == 1 and read_log(tmp_path / "run")[-1]["step"] == 2
