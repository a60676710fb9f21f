"""What a training says before its first update: nothing on a sound model, a line on a wrong one."""

import pytest
import torch
from torch import nn

import since_2017
from practice import mistakes
from tests.helpers import refused
from translator.__main__ import main
from translator.guard import check_device, doubts
from translator.run_log import read_log
from translator.settings import Settings, build_model
from translator.trainer import ParallelTrainer

SIZES = {"N": 2, "d_model": 32, "d_ff": 64, "h": 4, "bpe": 100}


def trainer(later: tuple[str, ...] = (), **changes) -> ParallelTrainer:
    """The program's trainer of a fresh model, with the later parts of these names."""
    settings = Settings(**SIZES | changes)
    return ParallelTrainer(build_model(settings, 100, **since_2017.modern(*later)), settings)


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "pre"}, {"norm": "post"}, {"positions": "learned"}, {"positions": "rotary"},
        {"tie": "none"}, {"h": 1}, {"smoothing": 0.0}, {"inner_dropout": 0.2}, {"N": 6},
        {"later": since_2017.LATER},
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
        notes = list(doubts(trainer()))
    assert any(WRONG[name] in doubt and "\n" not in doubt for doubt in notes), notes


def test_a_training_tells_and_goes_on(tmp_path, capsys):
    """A changed model that sees the future is told so on standard error, once, and is trained."""
    command = f"train --data captions --run {tmp_path / 'run'} --N 1 --d-model 16 --d-ff 16 --h 2"
    command += " --bpe 100 --steps 2"
    with mistakes.made("no_causal_mask"):
        assert main(command.split()) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if "sees the future" in line]
    assert len(lines) == 1 and read_log(tmp_path / "run")[-1]["step"] == 2


# --- A device that computes wrongly ---
DEVICE = torch.device("cpu", 0)  # stands in for one: the same processor by another name


@pytest.fixture
def wrong(request, monkeypatch) -> None:
    """Simulated: on DEVICE alone, masks, a gradient or a kernel are wrong."""
    to = nn.Module.to
    kind = request.param

    def moved(module, device):
        if device != DEVICE:
            return to(module, device)
        if kind == "gradient":
            module.encoder.layers[0].self_attn.W_q.weight.register_hook(lambda grad: 1.5 * grad)
        else:
            encode = module.encode

            def changed(src, mask):
                if kind == "kernel":
                    raise NotImplementedError("not implemented for this device")
                if kind == "nan":
                    return encode(src, mask) * torch.nan
                return encode(src, torch.ones_like(mask))

            module.encode = changed
        return to(module, device)

    monkeypatch.setattr(nn.Module, "to", moved)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("mask", "cpu:0 gives another gradient of "), ("nan", "cpu:0 gives a loss of nan where"),
        ("gradient", "of encoder.layers.0.self_attn.W_q.weight than the CPU, by 50%"),
        ("kernel", "cpu:0 can't compute this model (not implemented"),
    ],
    indirect=["wrong"],
)  # fmt: skip
def test_a_device_that_computes_otherwise_than_the_cpu_is_refused(tmp_path, capsys, wrong, said):
    """Before the first update, in a sentence that says what to do; and that helps."""
    command = f"train --data captions --run {tmp_path / 'run'} --N 1 --d-model 16 --d-ff 16 --h 2"
    command += " --bpe 100 --steps 1"
    error = refused(capsys, f"{command} --device cpu:0")
    assert said in error and "train with --device cpu;" in error
    assert not (tmp_path / "run" / "log.jsonl").exists()
    assert main(f"{command} --device cpu".split()) == 0


def test_a_device_that_rounds_is_not_refused(monkeypatch):
    """Catches a tolerance that is too small for a device which sums in another order."""
    model, to = trainer(norm="post", N=6).model, nn.Module.to

    def rounded(module, device):
        if device == DEVICE:
            for p in module.parameters():
                p.data *= 1 + 1e-4 * torch.randn_like(p)
        return to(module, device)

    monkeypatch.setattr(nn.Module, "to", rounded)
    check_device(model, DEVICE, 0.1)
