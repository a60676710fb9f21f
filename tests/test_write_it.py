"""What a reader writes on the page: right functions, what wrong ones are told, the live model."""

import itertools
from collections.abc import Iterator

import pytest

from blog import editions
from practice.mistakes import CATALOGUE, SLIPS
from tests.helpers import offline_tab

ATTENTION = """from math import exp, sqrt

def attention(Q, K, V, mask):
    out = []
    for t, q in enumerate(Q):
        scores = [sum(a * b for a, b in zip(q, k)) / sqrt(len(k)) for k in K]
        if mask:
            scores = [s if m else -1e30 for s, m in zip(scores, mask[t])]
        powers = [exp(s - max(scores)) for s in scores]
        weights = [p / sum(powers) for p in powers]
        out.append([sum(w * v[j] for w, v in zip(weights, V)) for j in range(len(V[0]))])
    return out
"""
POSITIONS = """from math import sin, cos

def positions(length, d_model):
    wave = lambda p, i: (cos if i % 2 else sin)(p / 10000 ** ((i - i % 2) / d_model))
    return [[wave(p, i) for i in range(d_model)] for p in range(length)]
"""
MASKS = """def masks(src, tgt, pad):
    n = range(len(tgt))
    return [[i != pad for i in src]], [[k <= t and tgt[k] != pad for k in n] for t in n]
"""
NORM = """from math import sqrt

def layer_norm(x, gain, bias):
    out = []
    for row in x:
        mean = sum(row) / len(row)
        root = sqrt(sum((a - mean) ** 2 for a in row) / len(row) + 1e-5)
        out.append([g * (a - mean) / root + b for a, g, b in zip(row, gain, bias)])
    return out
"""
DECODE = """def decode(scores, bos, eos, longest):
    ids = [bos]
    while len(ids) <= longest and ids[-1] != eos:
        z = scores(ids)
        ids.append(z.index(max(z)))
    return ids[1:]
"""
GRADIENT = """from math import exp

def loss_gradient(logits, target, smoothing, pad):
    out = []
    for z, y in zip(logits, target):
        powers = [exp(a - max(z)) for a in z]
        p = [a / sum(powers) for a in powers]
        q = [(k != pad) * ((k == y) * (1 - smoothing) + smoothing / (len(z) - 1))
             for k in range(len(z))]
        out.append([(y != pad) * (a - b) for a, b in zip(p, q)])
    return out
"""
RATE = """def rate(step, d_model, warmup):
    return d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
"""
RIGHT = dict(attention=ATTENTION, positions=POSITIONS, masks=MASKS, layer_norm=NORM, decode=DECODE)
RIGHT |= dict(loss_gradient=GRADIENT, rate=RATE)
# in this order, and then to the clinic
ON_THE_PAGE = ["attention", "positions", "layer_norm", "masks", "decode", "loss_gradient", "rate"]
WRONG = [
    ("attention", " / sqrt(len(k))", "", "not_scaled"),
    ("attention", " / sqrt(len(k))", " / len(k)", "scaled_by_d_k"),
    ("attention", "s if m else -1e30", "-1e30 if m else s", "mask_the_other_way_round"),
    ("attention", "s if m else -1e30", "s + m", "mask_added"),
    ("attention", "s if m else -1e30", "s * m", "mask_times_scores"),
    ("attention", "p / sum(powers)", "p", None),
    ("positions", "(i - i % 2) / d_model", "i / d_model", "cosine_with_its_own_frequency"),
    ("positions", "wave(p, i) for i", "wave(p + 1, i) for i", "positions_from_one"),
    ("masks", " and tgt[k] != pad", "", "target_mask_without_padding"),
    ("masks", "k <= t and", "", "no_causal_mask"),
    ("layer_norm", " / len(row) + 1e-5", " / (len(row) - 1) + 1e-5", "variance_of_a_sample"),
    ("layer_norm", " / len(row) + 1e-5)", " / len(row)) + 1e-5", "epsilon_outside_the_root"),
    ("decode", "ids.append(z.index(max(z)))",
     "ids.append(z.index(max(z)) - (len(ids) == 3))", None),
    ("loss_gradient", "(a - b)", "(b - a)", "gradient_upside_down"),
    ("rate", "min(", "max(", "rate_with_max"),
    ("rate", "return ", "return 1.1 * ", None),
    ("attention", " / sqrt(len(k))", " / sqrt(len(K))", "scaled_by_length"),
    ("positions", "(i - i % 2) / d_model", "2 * i / d_model", "frequency_of_twice_the_dimension"),
    ("positions", "p / 10000", "p * 10000", "positions_multiplied"),
    ("positions", "cos if i % 2 else sin", "sin", "sines_alone"),
    ("positions", "/ d_model)", "/ d_model / 2)", "frequency_of_half_the_exponent"),
    ("positions", "10000", "1000", "base_of_1000"),
    ("masks", "k <= t", "k < t", "causal_mask_without_diagonal"),
    ("masks", "t and", "t or", "or_for_and"),
    ("masks", "tgt[k] != pad for", "tgt[t] != pad for", "padded_queries_masked"),
    ("masks", "i != pad", "True", "padding_seen"),
    ("layer_norm", "/ root + b", "/ root", "bias_forgotten"),
    ("layer_norm", "g * (a - mean) / root + b", "(a - mean) / root + b", "gain_forgotten"),
    ("layer_norm", "(a - mean) / root + b", "((a - mean) / root + b)", "bias_before_gain"),
    ("layer_norm", " / len(row) + 1e-5", " + 1e-5", "norm_by_sum"),
    ("decode", "ids[1:]", "ids", "bos_given_back"),
    ("decode", "<= longest", "< longest", "one_token_too_few"),
    ("decode", "len(ids) <= longest and ", "", "longest_ignored"),
    ("decode", "scores(ids)", "scores(ids[-1:])", "last_token_alone"),
    ("loss_gradient", "(y != pad) * ", "", "pads_are_tokens"),
    ("loss_gradient", "(k != pad) * ", "", "padding_has_a_share"),
    ("loss_gradient", "/ (len(z) - 1)", "/ len(z)", None),
    ("loss_gradient", "(y != pad) * (a - b)",
     "(y != pad) * (a - b) / sum(t != pad for t in target)", "mean_for_sum"),
    ("loss_gradient", "(a - b)", "a", "gradient_without_target"),
    ("rate", "warmup ** -1.5", "4000 ** -1.5", "warmup_written_in"),
    ("rate", "d_model **", "512 **", "width_written_in"),
    ("attention", "s if m else -1e30", "float('-inf') if m else s", "mask_the_other_way_round"),
    ("masks", "i != pad", "i == pad", "masks_inverted"),
    ("masks", "pad):\n", "pad):\n    pad = 0\n", "pad_written_in"),
    ("loss_gradient", "pad):\n", "pad):\n    pad = 0\n", "pad_written_in"),
    ("loss_gradient", "((k == y) * (1 - smoothing) + ",
     "(1 - smoothing if k == y else ", "shared_by_all_others"),
    ("rate", "min(step ** -0.5, step * warmup ** -1.5)", "step ** -0.5", "rate_only_falls"),
]  # fmt: skip


@pytest.fixture(scope="module")
def tab(browser, committed_page) -> Iterator:
    """The document's page, from a file and without a network."""
    page, problems = offline_tab(browser)
    page.goto(committed_page("the_annotated_transformer").as_uri())
    yield page
    assert problems == []
    page.context.close()


SAY = """async ([name, code, label]) => {
    const box = document.querySelector(`details.write-it[data-function=${name}]`);
    const field = box.querySelector("textarea");
    box.open = true;
    field.value = code;
    field.dispatchEvent(new Event("input"));
    [...box.querySelectorAll("button")].find(({ textContent }) => textContent === label).click();
    const output = box.querySelector("output");
    while (output.className === "busy") await new Promise((resolve) => setTimeout(resolve, 5));
    return output.textContent;
}"""


def said(tab, name: str, code: str, button: str = "Check it") -> str:
    """What a reader is told of a function. The page itself clicks: by hand it costs a second."""
    return tab.evaluate(SAY, [name, code, button])


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_is_right_and_works_in_the_live_model(tab, name):
    text = said(tab, name, RIGHT[name])
    following = dict(itertools.pairwise(ON_THE_PAGE)).get(name)
    way_on = f"Next, write {following} ▸" if following else "To the clinic ▸"
    assert "Right" in text and text.endswith(way_on)
    if name in ("attention", "positions", "layer_norm", "decode"):
        plugged = said(tab, name, RIGHT[name], "Put it into the model")
        assert "Two women are sitting on a bench while a man reads a newspaper." in plugged
        assert plugged.endswith("Without it, it writes the same.")


@pytest.mark.parametrize(("name", "old", "new", "mistake"), WRONG)
def test_a_wrong_function_gets_its_diagnosis(tab, name, old, new, mistake):
    assert old in RIGHT[name]
    text = said(tab, name, RIGHT[name].replace(old, new))
    if mistake:
        known = (CATALOGUE | SLIPS)[mistake]
        assert known.line in text and known.effect in text
    else:
        assert "No mistake that I know" in text or "should have" in text


def test_a_loop_that_runs_to_its_end_gets_its_diagnosis(tab):
    """For a short sentence: each step costs Python in the browser a fifth of a second."""
    tab.evaluate("Page.yourSentence.follow('Ein Hund.')")
    text = said(tab, "decode", DECODE.replace(" and ids[-1] != eos", ""))
    assert "what comes after eos" in text and SLIPS["eos_ignored"].effect in text
    text = said(tab, "decode", DECODE.replace("z.index(max(z))", "z.index(min(z))"))
    assert SLIPS["least_probable"].line in text and SLIPS["least_probable"].effect in text
    sentence = "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."
    tab.evaluate(f"Page.yourSentence.follow('{sentence}')")


def test_what_else_can_go_wrong_is_told(tab):
    beyond = "def attention(Q, K, V, mask):\n    return Q[99]\n"
    assert "Line 2: IndexError" in said(tab, "attention", beyond)
    assert "SyntaxError" in said(tab, "attention", "def attention(Q, K, V, mask)\n    return Q\n")
    assert "gives nothing" in said(tab, "attention", "def attention(Q, K, V, mask):\n    x = 1\n")
    assert "shape (1)" in said(tab, "attention", "def attention(Q, K, V, mask):\n    return [1]\n")
    rows = MASKS.replace("for k in n] for t in n]", "for k in n] for t in n][-1:]")
    assert "shape (1, 4), (1, 5), and should have (1, 4), (5, 5)" in said(tab, "masks", rows)
    assert "shape (4), (5, 5)" in said(
        tab, "masks", MASKS.replace("[[i != pad for i in src]]", "[i != pad for i in src]")
    )
    later = DECODE.replace("scores(ids)", "scores(ids[1:])")
    assert "decoder begins with bos" in said(tab, "decode", later)
    score = DECODE.replace("z.index(max(z))", "max(z)")
    assert "isn't the id of a token" in said(tab, "decode", score)
    assert "changes what it is given" in said(
        tab, "layer_norm", NORM.replace("    return", "    x[0] = out[0]\n    return")
    )
    for wrong in ("(r for r in ())", "[['a'] * d_model] * length", "{}", "(-1) ** 0.5"):
        text = said(tab, "positions", f"def positions(length, d_model):\n    return {wrong}\n")
        assert "isn't made of lists and numbers" in text
    number = "def positions(length, d_model):\n    return 0\n"
    assert "shape (), and" in said(tab, "positions", number)
    masked = said(tab, "attention", ATTENTION.replace("mask[t]", "mask[0]"))
    assert masked.startswith("Without a mask it's right")
    assert "Right" in said(tab, "rate", RATE)
    for nothing in ("", "# " + RATE.replace("\n", "\n# "), RATE.replace("def rate", "def rates")):
        assert "no function `rate`" in said(tab, "rate", nothing)  # not the one before it
    endless = "def rate(step, d_model, warmup):\n    while True:\n        pass\n"
    assert "within 5 seconds" in said(tab, "rate", endless)
    assert "Right" in said(tab, "rate", RATE)  # in a new worker


HABITS = {  # a rate that is written in Python's way, of which MicroPython lacks something
    "a star in a display": "ids = (1, *[2, *(3, 4)])\n    return [*ids, {rate}][-1]",
    "a star in a set": "return len({{*[1], 2}}) / 2 * {rate}",
    "a target stays a target": "[a, *b] = [1, *[2]]\n    for c, (d, *e) in [(1, [1])]:\n"
    "        a = [a, *b, *e][0]\n    return a * {rate}",
    "a slice with a step": "row = [[0] * 4]\n    row[0][1::2] = {rate}, 2\n    return row[0][1]",
    "two slices": "x = [0] * 4\n    x[::2], x[1::2] = [1, 2], [{rate}, 4]\n    return x[1]",
    "text stays": "a = 'x[::2] = [*b'  # it's [*c\n    return [*a, {rate}][-1]",
    "zip strict": "return [a * b for a, b in zip([1], [{rate}], strict=True)][0]",
    "sum start": "return sum([0], start={rate})",
    "a list's method": "z = [0, {rate}]\n    return z[max(range(2), key=z.__getitem__)]",
    "equals stay in order": "rows = sorted([(1, 2), *[(1, 1), (0, 0)] * 9], key=lambda r: r[0])\n"
    "    return {rate} if rows[9] == (1, 2) else 0",
    "deque": "from collections import deque\n    ids = deque()\n    ids.append(1)\n"
    "    return deque([0, {rate}], maxlen=1).pop()",
    "generators": "def rows():\n        yield from [*[1], {rate}]\n    return [*rows()][-1]",
    "print": "print('', flush=True)\n    return {rate}",
    "positional": "def f(a, /, b):\n        return a / b\n    return f({rate}, 1)",
    "math": "from math import prod\n    return prod([{rate}, 1.0])",
    "all of math": "return math.prod([1], start={rate}) * math.sqrt(1) * math.sumprod([1], [1])",
    "operator": "from operator import mul\n    return functools.reduce(mul, [1, {rate}])",
    "statistics": "from statistics import mean, pstdev\n    return mean([{rate}]) + pstdev([1, 1])",
    "itertools": "from itertools import accumulate, chain, product\n"
    "    assert list(product([1], [2])) == [(1, 2)] and list(accumulate([1, 2])) == [1, 3]\n"
    "    return list(chain.from_iterable([[{rate}]]))[0]",
    "cache": "f = functools.cache(lambda n: n * {rate})\n    return f(1)",
    "counter": "from collections import Counter\n    return Counter('aab')['a'] / 2 * {rate}",
    "types": "x: Rows = {rate}\n    return x",
}
BEGINNING = """from __future__ import annotations
import functools
import math
from collections.abc import Sequence
from typing import List, Optional

Rows = Optional[List[Sequence[float]]]

def rate(step: int, d_model: int, warmup: int) -> float:
    """


@pytest.mark.parametrize("body", HABITS.values(), ids=HABITS)
def test_what_is_written_by_habit_is_understood(tab, body):
    right = "(d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5))"
    assert said(tab, "rate", BEGINNING + body.format(rate=right)).startswith("Right")


HINTED = {  # what still isn't understood: the function's second line, and what is said of it
    "import numpy as np": "no packages",
    "from dataclasses import dataclass": "judge mine.py` takes any module",
    "return {**{}, 1: 2}": "{**a, …}",
    "return step, *[2]": "write (*a, b)",
    "print(f'{[*[1], 2]}')": "list(a) + [b]",
    "match step:": "write if, elif and else",
    "return (1, 2)[::-1]": "list(a)[::2]",
    "del [1, 2][::2]": "list(a)[::2]",
    "return max([0], key=[1].__getitem__)": "write lambda i: a[i]",
    "return rate(step, d_model, warmup)": "write a loop",
    "Rows = list[float]": "write list alone",
    "return [1.0] / 2": "lists, not arrays",
    "return [step].shape": "lists, not arrays",
    "return [[1]][:, 0]": "lists, not arrays",
    "return exp(1000)": "exp takes at most 709",
    "return 'a'.title()": "If this line is right in Python",
    "from math import lcm": "If this line is right in Python",
    "return round(1.5, ndigits=0)": "If this line is right in Python",
    "return slice(1, 2)": "If this line is right in Python",
}


@pytest.mark.parametrize(("line", "words"), HINTED.items())
def test_what_micropython_lacks_is_said_in_words(tab, line, words):
    text = said(
        tab, "rate", f"from math import exp\ndef rate(step, d_model, warmup):\n    {line}\n"
    )
    assert text.startswith("Line 3: ") and words in text


def test_a_mistake_of_the_readers_gets_no_word_about_micropython(tab):
    for line, error in {"return [][0]": "IndexError", "return x": "NameError"}.items():
        text = said(tab, "rate", f"def rate(step, d_model, warmup):\n    {line}\n")
        assert text.startswith(f"Line 2: {error}") and "Python" not in text
    few = said(tab, "rate", "def rate(step):\n    return 1\n")
    assert few.startswith("TypeError") and "Line" not in few  # none of the reader's lines
    seen = tab.evaluate("document.querySelector('.write-it > p').textContent")
    assert "MicroPython" in seen  # before anything is written


def test_without_positions_the_model_writes_something_else(tab):
    zeros = POSITIONS.replace("(p / 10000", "(0 * p / 10000")
    broken = said(tab, "positions", zeros, "Put it into the model")
    assert "the model writes for “Zwei Frauen" in broken and "Without it: Two women" in broken


def test_what_was_written_is_kept(tab):
    said(tab, "rate", RATE)
    tab.locator("details.write-it[data-function=rate]").scroll_into_view_if_needed()
    # which the function is judged with, where no panel is near
    tab.locator("#your-sentence.shown").wait_for()
    kept = "JSON.parse(localStorage.mine).rate"
    assert "warmup ** -1.5" in tab.evaluate(kept)
    said(tab, "rate", f"from __future__ import annotations\n{RATE}")
    with tab.expect_download() as along:
        said(tab, "masks", MASKS, "Take mine.py along")
    compile(along.value.path().read_text("utf-8"), "mine.py", "exec")
    last = "details.write-it[data-function=rate] .controls button:last-child"
    tab.evaluate(f"document.querySelector('{last}').click()")
    # begun again
    assert "warmup ** -1.5" not in tab.evaluate(kept) and "def rate" in tab.evaluate(kept)
    assert set(editions.mistakes_of_the_page()) <= {*CATALOGUE, *SLIPS}
