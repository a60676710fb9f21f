"""The exercises: every check accepts the answer, and says what an attempt lacks; answers run."""

import math
import re
import runpy
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

import exercises
import since_2017
import the_annotated_transformer as tat
from practice.mistakes import SLIPS, attention_with
from tests.helpers import ROOT, decided, node

TEXT = Path(exercises.__file__).read_text(encoding="utf-8")
ANSWERS = sorted(name for name in vars(exercises) if name.startswith("example_answer_"))
NUMBERS = [name.removeprefix("example_answer_").replace("_", ".") for name in ANSWERS]
RIGHT = {  # the answer of each exercise whose name does not say so
    "1.3": exercises.TokenBesidePosition, "2.1": exercises.reverse_pairs,
    "2.2": 12.25, "3.2": {100: 900.0, 400: 2000.0, 1600: 2500.0}, "3.3": 1, "4.1": {"target"},
    "4.2": "longer", "5.1": 28, "5.2": False, "6.1": "spielt", "6.3": True,
    "7.2": "greedy decoding", "7.3": True,
}  # fmt: skip


def masked(q, k, v, mask, divisor=8**0.5, dim=-1):
    """Attention with a divisor and an axis of the softmax."""
    weights = (q @ k.mT / divisor).masked_fill(mask == 0, -math.inf).softmax(dim)
    return weights @ v, weights


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
    ("1.1", lambda model, src: model.encode(src, None), "positions are still in"),
    ("1.1", lambda model, src: model.encode(src, None)[0], "shape (1, 6, 32), not (6, 32)"),
    ("1.2", lambda n, d, d_ff: 2 * exercises.answer_1_2(n, d, d_ff), "counted additions"),
    ("1.2", lambda n, d, d_ff: exercises.answer_1_2(n, d, d_ff) - 2 * n * n * d,
     "two products of positions"),
    ("1.2", lambda n, d, d_ff: exercises.answer_1_2(n, d, d_ff) - 2 * n * d * d_ff,
     "feed-forward network is missing"),
    ("1.3", positions_behind, "with start = 3"),
    ("1.3", lambda width, places, vocab: exercises.TokenBesidePosition(places, width, vocab),
     "last 4 entries"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v, mask, 1), "not divided by the root"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v, mask, 8), "divided by the width"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v, ~mask), "1 means may attend"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v, torch.ones_like(mask)), "The mask is not used"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v, torch.ones_like(mask), dim=-2),
     "runs over the queries"),
    ("1.4", attention_with(after=True), "The mask comes after the softmax"),
    ("1.4", attention_with(fill=0.0), "a score of 0 hides nothing"),
    ("1.4", attention_with(lambda d_k: d_k**0.5), "are multiplied by the root"),
    ("1.4", attention_with(lambda d_k: 6**-0.5), "root of the number of keys"),
    ("1.4", attention_with(flipped=True, fill=-1e9), "1 means may attend"),
    ("1.4", attention_with(dim=-3, fill=-1e9), "over the batch or the heads"),
    ("1.4", SLIPS["mask_added"].puts["attention"], "The mask is added"),
    ("1.4", SLIPS["no_softmax"].puts["attention"], "no softmax"),
    ("1.4", lambda q, k, v, mask: (masked(q, k, v, mask)[0], masked(q, k, v, mask)[1] * 2),
     "The sum of each query's weights"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v, mask)[0], "a tuple, not a value of the type Ten"),
    ("1.4", lambda q, k, v, mask: masked(q, k, v + 1, mask), "The output"),
    ("2.1", lambda n, seed, a, b: tat.copy_pairs(n, 14, seed, a, b), "copied, not reversed"),
    ("2.1", lambda n, seed, a, b: exercises.reverse_pairs(n, 0, a, b), "seed should decide"),
    ("2.1", lambda n, seed, a, b: exercises.reverse_pairs(n, seed, a, b - 1),
     "lengths should go from 3 to 8"),
    ("2.1", lambda n, seed, a, b: [tat.Pair(s, t[::-1]) for s, t in tat.copy_pairs(n, 14, seed)],
     "begin with BOS"),
    ("2.1", lambda *about: with_inside(tat.EOS, *about), "ids from 4 to 13"),
    ("2.1", lambda *about: with_inside(tat.PAD, *about), "ids from 4 to 13"),
    ("2.1", lambda *about: with_inside(14, *about), "ids from 4 to 13"),
    ("2.1", lambda n, seed, a, b: [("ab", "ba")] * n, "two lists of ids"),
    ("2.2", 150, "root of the step"),
    ("2.2", 1 / 12.25, "other way round"),
    ("2.3", lambda logits, target, eps: -exercises.answer_2_3(logits, target, eps),
     "sign is wrong"),
    ("2.3", lambda logits, target, eps: logits.softmax(-1) - tat.smoothed_targets(target, 13, eps),
     "no gradient"),
    ("2.3", lambda logits, target, eps: exercises.answer_2_3(logits, target, eps) / 7,
     "gradient of the mean"),
    ("2.3", lambda logits, target, eps: exercises.answer_2_3(logits, target, 0.0), "is off by"),
    ("3.1", lambda known, words: Counter(words), "A known word is counted"),
    ("3.1", lambda known, words: Counter(set(words) - known), "counted once"),
    ("3.2", {100: 900.0, 1600: 20_000.0}, "at three budgets"),
    ("3.2", {100: 900.0, 400: 800.0, 1600: 700.0}, "smallest batch is the fastest"),
    ("3.2", {100: 10.0, 400: 40.0, 1600: 160.0}, "as fast as the budget"),
    ("3.3", 0.5, "Not 0.5"),
    ("4.1", {"source"}, "words of another one"),
    ("4.1", {"source", "target"}, "does no harm"),
    ("4.2", "shorter", "Try 8 tokens"),
    ("4.3", lambda mean, weights, n: {name: (mean[name] + weights[name]) / 2 for name in mean},
     "counts for half"),
    ("4.3", lambda mean, weights, n: {name: weights[name] for name in mean},
     "The mean of 2 checkpoints"),
    ("4.3", lambda mean, weights, n: {name: w.add_(mean[name] * n).div_(n + 1)
                                      for name, w in weights.items()}, "was changed"),
    ("5.1", 3.5, "all eight together"),
    ("5.2", True, "different"),
    ("6.1", "▁Junge", "just translated"),
    ("6.2", lambda W_o, head, h: exercises.answer_6_2(W_o.T, head, h).T, "These are rows"),
    ("6.2", lambda W_o, head, h: W_o.mul_(0), "has changed"),
    ("6.2", lambda W_o, head, h: exercises.answer_6_2(W_o, (head + 1) % h, h), "without head"),
    ("6.3", False, "error rate"),
    ("7.1", lambda *sizes: exercises.answer_7_1(*sizes) // 2, "are two"),
    ("7.1", lambda N, *sizes: exercises.answer_7_1(N, *sizes) // N, "Every layer"),
    ("7.2", "beam search", "not several"),
    ("7.3", False, "distance"),
]  # fmt: skip


@pytest.fixture
def small() -> tuple[tat.Transformer, list[tat.Pair]]:
    """A model of 14 tokens with weights large enough to matter, and pairs for it."""
    model = tat.make_model(14, 14, 2, 16, 32, 4, 0.0, norm="pre")
    return decided(model).eval(), tat.copy_pairs(20, 14, seed=0)


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
        parts = ["your attempt", "<summary>Hint"]
        parts += [f"# @title The check of {number}\n", f"\n{check}("]
        parts += [f"<summary>Answer {number}</summary>", f"# @title Answer {number}: the code\n"]
        assert not [part for part in parts if part not in task], number
    files = [Path(module.__file__) for module in (tat, since_2017)]
    documents = "".join(file.read_text(encoding="utf-8") for file in files)
    link = r"^# > - \[(\d\.\d) [^\]]+\]\(exercises\.ipynb#[^)]+\) (★+, \d+ minutes)$"
    listed = re.findall(link, documents.replace("\n# >   ", " "), re.M)
    assert listed == re.findall(r"^# ## (\d\.\d) .*\n#\n# > (★+, \d+ minutes), after", TEXT, re.M)


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


# what a reader may answer on the page, and what that is in Python
ASKED = {
    "2.2": [12.25, 12.3, 0.0816, 150, 3], "3.3": [1, 0.99, 0.5], "5.1": [28, 3.5, 8],
    "6.1": ["spielt", " Spielt.", "Junge", "Hund"],
    "7.2": ["Greedy decoding", "beam search", "a draw"],
    "4.1": {"source": {"source"}, "target": {"target"}, "both": {"source", "target"}},
    "4.2": {name: name for name in ("longer", "shorter", "either")},
    **{number: {"yes": True, "no": False} for number in ("5.2", "6.3", "7.3")},
}  # fmt: skip


ASK = """
import { ANSWERS } from "./views/exercises.js";
const choices = Object.entries(ANSWERS).map(([number, { ask }]) => [number, ask]);
const said = asked.map(([number, answer]) => ANSWERS[number].check(answer) ?? null);
console.log(JSON.stringify([Object.fromEntries(choices), said]));
"""


def test_the_page_says_what_the_checks_say(few_phrases, capsys):
    """All answers that the page checks: the same verdict and words (6.3 has words of its own)."""
    asked = [[number, answer] for number, answers in ASKED.items() for answer in answers]
    choices, said_there = node(ASK, asked)
    kinds = {str: "word", int: "number", float: "number"}
    assert choices == {
        number: list(answers) if isinstance(answers, dict) else kinds[type(answers[0])]
        for number, answers in ASKED.items()
    }
    for (number, answer), said in zip(asked, said_there, strict=True):
        attempt = ASKED[number][answer] if isinstance(ASKED[number], dict) else answer
        assert check_of(number)(attempt) == (not said), (number, answer)
        printed = capsys.readouterr().out.strip()
        verdict = f"{number}: not yet. {said}" if said else f"{number}: right."
        assert number == "6.3" or printed == verdict


def test_an_empty_place_is_no_mistake(monkeypatch, capsys):
    """The notebook says that an empty place is empty; importing the exercises prints nothing."""
    places = re.findall(r"(?m)^check_(\d_\d)\((\w+)\)$", TEXT)
    assert [number.replace("_", ".") for number, _ in places] == NUMBERS
    for said in (False, True):
        monkeypatch.setattr(exercises, "in_notebook", lambda name, said=said: said)
        for number, place in places:
            assert not check_of(number.replace("_", "."))(getattr(exercises, place))
            nothing = f"{number.replace('_', '.')}: nothing is there yet.\n"
            assert capsys.readouterr().out == nothing * said


def test_an_error_in_an_attempt_is_told_with_its_line(capsys):
    """Of the attempt, not of the check or of a library that it calls."""
    assert not exercises.check_1_2(lambda n, d, d_ff: 1 // 0)
    assert re.search(r"ZeroDivisionError: .*, in line \d+: .*1 // 0", capsys.readouterr().out)
    assert not exercises.check_1_1(lambda model, src: torch.cat([src, model]))
    assert "TypeError" in (said := capsys.readouterr().out) and "torch.cat([src, model])" in said


ANYTHING = [
    None, "", "12.2 days", -7, 2.5, math.nan, math.inf, 1j, b"x", [], [3], {}, {"a": 1}, object(),
    torch.zeros(3), torch.zeros(()), torch.zeros(2, dtype=torch.complex64), [[]], {1: "a"},
    {1: 0, 2: 0, 16: 0}, int, max, lambda: None, lambda *_: None, lambda *_: "no", lambda *_: [],
    lambda *_: math.nan, lambda *_: torch.zeros(3, dtype=torch.bool), lambda *_: [1],
    lambda *_: torch.zeros(()), lambda *_: {"a": 1}, lambda *_: {"a": torch.zeros(3, 4)},
    lambda *_: 3, lambda *_: [torch.zeros(1)] * 2,
    lambda *_: torch.nn.Identity(), lambda *_: [(1, 2)] * 200, lambda *_: [((), ())] * 200,
    lambda *_: exit(), lambda *_: (lambda: 3), torch.nn.Linear,
]  # fmt: skip


@pytest.mark.parametrize("number", NUMBERS)
def test_an_attempt_of_any_kind_gets_one_sentence(number, few_phrases, capsys):
    for attempt in ANYTHING:
        assert not check_of(number)(attempt), attempt
        said = capsys.readouterr().out
        assert said.startswith(f"{number}: not yet. ") and said.count("\n") == 1, (attempt, said)


def test_what_is_right_is_right_in_other_types_and_in_place(few_phrases):
    def in_place(query, key, value, mask):
        query /= 8**0.5
        return exercises.answer_1_4(query * 8**0.5, key, value, mask)

    def emptied(known, words):
        return Counter(w for w in [words.pop() for _ in range(len(words))] if w not in known)

    for number, attempt in [
        ("1.2", lambda *sizes: float(exercises.answer_1_2(*sizes))),
        ("1.4", lambda *given: [part.double() for part in exercises.answer_1_4(*given)]),
        ("1.4", in_place), ("2.2", torch.tensor(12.25)), ("3.1", emptied), ("4.1", ["target"]),
        ("2.3", lambda *given: exercises.answer_2_3(*given).double()), ("5.1", np.float32(28)),
    ]:  # fmt: skip
        assert check_of(number)(attempt), number


def test_checks_hold_where_python_leaves_asserts_out():
    """`python -O`: the wrong answers are wrong, the right ones right."""
    optimised = {"__name__": "exercises"}
    exec(compile(TEXT, "exercises.py", "exec", optimize=1), optimised)
    assert not optimised["check_5_1"](3) and not optimised["check_4_1"]({"source"})
    assert optimised["check_5_1"](28)


@pytest.mark.parametrize("name", ["exercises", "since_2017", "lab_notebook"])
def test_a_script_says_what_it_is(name, capsys):
    runpy.run_path(str(ROOT / f"{name}.py"), run_name="__main__")
    assert f"{name}.ipynb" in capsys.readouterr().out


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_runs_and_what_it_shows_can_be_shown(name, few_phrases, capsys):
    """Its own assertions hold; a table has rows, a chart can be drawn, all else is printed."""
    shown = getattr(exercises, name)()
    if shown is None:
        printed = capsys.readouterr().out
        assert re.search(r"\w", printed), "neither shown nor printed"
        assert "nothing to show" not in printed, "neither shown nor printed"
    elif hasattr(shown, "to_html") and hasattr(shown, "iloc"):
        assert len(shown) > 1
    else:
        assert shown.to_dict()["$schema"]


def test_a_model_without_a_head_is_the_model_afterwards(small):
    """Answer 6.2: no head less changes nothing, none left is a silent layer; weights come back."""
    model, pairs = small
    before = {name: p.clone() for name, p in model.named_parameters()}
    whole = tat.validation_loss(model, pairs)
    assert exercises.loss_without(model, [], pairs) == whole
    heads = [[(1, 2)], [(1, i) for i in range(4)]]
    one, layer = (exercises.loss_without(model, gone, pairs) for gone in heads)
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
    exercises.example_answer_4_3()
    assert all(torch.equal(p, checkpoints[-1][name]) for name, p in model.named_parameters())


def test_the_alignment_rows_are_compared_as_they_are(monkeypatch):
    """Answer 6.3, on rows that are made up."""
    rates = {(1, 1): 0.5, (1, 2): 0.3, (1, "mean"): 0.4}
    rates |= {(2, 1): 0.6, (2, 2): 0.7, (2, "mean"): 0.35}
    rates["mean", "mean"] = 0.45
    heads = [
        {"layer": layer, "head": head, "convention": convention, "aer": rate + plus}
        for convention, plus in (("reads", 0.0), ("predicts", 0.1))
        for (layer, head), rate in rates.items()
    ]
    baselines = {"best": {"aer": 0.1}, "random": {"aer": 0.9}}
    row = {"set": {"seed": "1"}, "heads": heads, "baselines": baselines}
    monkeypatch.setattr(exercises, "saved_rows", lambda name: [row])
    shown = exercises.example_answer_6_3().to_dict("records")
    assert [list(line.values())[1:] for line in shown] == [[0.3, 0.35, 0.45], [0.4, 0.45, 0.55]]
    row["baselines"]["best"]["aer"] = 0.35  # a head cannot be better than the best that is possible
    with pytest.raises(AssertionError):
        exercises.example_answer_6_3()


def test_an_answer_without_its_rows_shows_nothing(monkeypatch):
    monkeypatch.setattr(exercises, "saved_rows", lambda name: [])
    assert exercises.example_answer_6_3() is None


def test_the_cache_has_the_sizes_of_the_formula():
    """Answer 7.1: two times 6 layers, 64 numbers a head, 1,000 tokens, 4 or 2 bytes."""
    shown = exercises.example_answer_7_1().to_dict("index")
    assert set(shown) == {8, 2, 1}
    for heads, sizes in shown.items():
        for name, size in (("float32", 4), ("bfloat16", 2)):
            assert sizes[name] == f"{2 * 6 * 64 * 1000 * heads * size / 1e6:.2f} MB"
