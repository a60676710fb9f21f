"""The exercises: every check accepts the answer, and says what an attempt lacks; answers run."""

import functools
import re
import runpy
from pathlib import Path

import pytest
import torch

import exercises
import since_2017
import the_annotated_transformer as tat
from tests.helpers import ROOT

TEXT = Path(exercises.__file__).read_text(encoding="utf-8")
ANSWERS = sorted(name for name in vars(exercises) if name.startswith("example_answer_"))
NUMBERS = [name.removeprefix("example_answer_").replace("_", ".") for name in ANSWERS]
RIGHT = {  # the answer of each exercise whose name does not say so
    "1.1": exercises.TokenBesidePosition, "2.1": exercises.reverse_pairs,
    "2.2": 12.25, "3.1": {100: 900.0, 400: 2000.0, 1600: 2500.0}, "4.1": "longer",
}  # fmt: skip


def positions_behind(width: int, places: int, vocab: int) -> torch.nn.Module:
    """Token beside position, but every part of a sentence is counted from 0."""
    module = exercises.TokenBesidePosition(width, places, vocab)
    forward = module.forward
    module.forward = lambda ids, start=0: forward(ids)
    return module


def with_inside(token: int, *about: int) -> list[tat.Pair]:
    """Right pairs, but for one token inside that no sequence may have."""
    *_, (src, tgt) = pairs = exercises.reverse_pairs(*about)
    src[0] = tgt[-2] = token
    return pairs


WRONG = [  # exercise, attempt, a part of what the check says
    ("1.1", positions_behind, "with start = 3"),
    ("1.1", lambda width, places, vocab: exercises.TokenBesidePosition(places, width, vocab),
     "last 4 entries"),
    ("2.1", lambda n, seed, a, b: tat.copy_pairs(n, 14, seed, a, b), "copied, not reversed"),
    ("2.1", lambda n, seed, a, b: exercises.reverse_pairs(n, 0, a, b), "seed should decide"),
    ("2.1", lambda n, seed, a, b: exercises.reverse_pairs(n, seed, a, b - 1),
     "lengths should go from 3 to 8"),
    ("2.1", lambda n, seed, a, b: [tat.Pair(s, t[::-1]) for s, t in tat.copy_pairs(n, 14, seed)],
     "begin with BOS"),
    ("2.1", lambda *about: with_inside(tat.EOS, *about), "ids from 4 to 13"),
    ("2.1", lambda *about: with_inside(tat.PAD, *about), "ids from 4 to 13"),
    ("2.1", lambda *about: with_inside(14, *about), "ids from 4 to 13"),
    ("2.2", 150, "root of the step"),
    ("2.2", 1 / 12.25, "other way round"),
    ("2.2", 3, "3 is not it"),
    ("2.2", None, "It can't be tried out: TypeError"),
    ("6.1", 7, "'int' object is not callable, at `"),
    ("3.1", {100: 900.0, 1600: 20_000.0}, "at three budgets"),
    ("3.1", {100: 900.0, 400: 800.0, 1600: 700.0}, "smallest batch is the fastest"),
    ("3.1", {100: 10.0, 400: 40.0, 1600: 160.0}, "as fast as the budget"),
    ("4.1", "shorter", "Try 8 tokens"),
    ("4.1", "loonger", "One of"),
    ("4.2", lambda mean, weights, n: {name: (mean[name] + weights[name]) / 2 for name in mean},
     "counts for half"),
    ("4.2", lambda mean, weights, n: {name: weights[name] for name in mean},
     "The mean of 2 checkpoints"),
    ("4.2", lambda mean, weights, n: {name: w.add_(mean[name] * n).div_(n + 1)
                                      for name, w in weights.items()}, "was changed"),
    ("6.1", lambda W_o, head, h: exercises.answer_6_1(W_o.T, head, h).T, "These are rows"),
    ("6.1", lambda W_o, head, h: W_o.mul_(0), "has changed"),
    ("6.1", lambda W_o, head, h: exercises.answer_6_1(W_o, (head + 1) % h, h), "without head"),
]  # fmt: skip


def check_of(number: str):
    return getattr(exercises, f"check_{number.replace('.', '_')}")


def right(number: str):
    answer = f"answer_{number.replace('.', '_')}"
    return RIGHT[number] if number in RIGHT else getattr(exercises, answer)


def test_every_exercise_has_hint_check_place_and_answer_and_is_linked():
    tasks = re.split(r"(?m)^# ## (?=\d\.\d )", TEXT)[1:]
    assert [task[:3] for task in tasks] == NUMBERS == sorted({number for number, _, _ in WRONG})
    for number, task in zip(NUMBERS, tasks, strict=True):
        assert re.search(r"^# > ★+, \d+ minutes, after \[", task, re.M), number
        check = check_of(number).__name__
        pieces = ["your attempt", "<summary>Hint"]
        pieces += [f"# @title The check of {number}\n", f"\n{check}("]
        pieces += [f"<summary>Answer {number}</summary>", f"# @title Answer {number}: the code\n"]
        assert not [piece for piece in pieces if piece not in task], number
    files = [Path(module.__file__) for module in (tat, since_2017)]
    documents = "".join(file.read_text(encoding="utf-8") for file in files)
    assert sorted({*re.findall(r"exercises\.ipynb#(\d\.\d)-", documents)}) == NUMBERS


@pytest.mark.parametrize("number", NUMBERS)
def test_a_check_accepts_the_answer(number, few_phrases, capsys):
    for seed in range(5):  # the inputs are random
        torch.manual_seed(seed)
        assert check_of(number)(right(number)), capsys.readouterr().out
    assert f"{number}: right." in capsys.readouterr().out


@pytest.mark.parametrize(("number", "attempt", "said"), WRONG)
def test_a_check_says_what_is_wrong(number, attempt, said, few_phrases, capsys):
    for seed in range(5):
        torch.manual_seed(seed)
        assert not check_of(number)(attempt)
    printed = capsys.readouterr().out.splitlines()
    begin = f"{number}: not yet. "
    assert all(line.startswith(begin) and said in line for line in printed), printed


def test_an_empty_place_is_no_mistake(monkeypatch, capsys):
    """The notebook says that an empty place is empty; importing the exercises prints nothing."""
    places = re.findall(r"(?m)^check_(\d_\d)\((\w+)\)$", TEXT)
    assert [number.replace("_", ".") for number, _ in places] == NUMBERS
    for in_jupyter in (False, True):
        monkeypatch.setattr(exercises, "in_notebook", lambda name, answer=in_jupyter: answer)
        for number, place in places:
            assert not check_of(number.replace("_", "."))(getattr(exercises, place))
            nothing = f"{number.replace('_', '.')}: nothing is there yet.\n"
            assert capsys.readouterr().out == nothing * in_jupyter


def test_an_error_in_an_attempt_is_shown_with_its_line_and_what_follows_runs(capsys):
    assert not exercises.check_6_1(lambda W_o, head, h: 1 // 0)
    printed = capsys.readouterr().out
    assert printed.startswith("6.1: not yet.") and "lambda W_o, head, h: 1 // 0" in printed
    assert "ZeroDivisionError: integer division or modulo by zero" in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize("name", ["exercises", "since_2017", "lab_notebook"])
def test_a_script_says_what_it_is(name, capsys):
    runpy.run_path(str(ROOT / f"{name}.py"), run_name="__main__")
    assert f"{name}.ipynb" in capsys.readouterr().out


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_runs_and_what_it_shows_can_be_shown(name, few_phrases, capsys, monkeypatch):
    """Its own assertions hold; a table has rows, a chart can be drawn, all else is printed."""
    adam = torch.optim.Adam  # which is a third faster if it updates all weights in one call
    monkeypatch.setattr(adam, "__init__", functools.partialmethod(adam.__init__, fused=True))
    result = getattr(exercises, name)()
    if result is None:
        printed = capsys.readouterr().out
        assert re.search(r"\w", printed), "neither shown nor printed"
        assert "nothing to show" not in printed, "neither shown nor printed"
    elif hasattr(result, "to_html") and hasattr(result, "iloc"):
        assert len(result) > 1
    else:
        assert result.to_dict()["$schema"]
