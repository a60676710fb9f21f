"""What a reader writes on the page: right functions, what wrong ones are told, the live model."""

import itertools
import json
from collections.abc import Iterator

import pytest

from blog import page as pages
from practice.mistakes import CATALOGUE, SLIPS
from practice.mistakes.plain import FUNCTIONS
from tests.helpers import node, offline_tab
from translator.explorer import model_content
from translator.files import model_folder
from translator.model_folder import read_translator

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
    ("attention", "p / sum(powers)", "p", "powers_of_differences_not_divided"),
    ("attention", "p / sum(powers)", "p / len(powers)", None),
    ("positions", "(i - i % 2) / d_model", "i / d_model", "cosine_with_its_own_frequency"),
    ("masks", "k <= t and", "", "no_causal_mask"),
    ("layer_norm", " / len(row) + 1e-5)", " / len(row)) + 1e-5", "epsilon_outside_the_root"),
    ("decode", "ids.append(z.index(max(z)))", "ids.append(z.index(max(z)) - (len(ids) == 3))",
     None),
    ("loss_gradient", "(a - b)", "(b - a)", "gradient_upside_down"),
    ("rate", "min(", "max(", "rate_with_max"),
    ("rate", "return ", "return 1.1 * ", None),
    ("decode", "scores(ids)", "scores(ids[-1:])", "last_token_alone"),
    ("loss_gradient", "/ (len(z) - 1)", "/ len(z)", None),
]  # fmt: skip
# what the page itself compares with, but a decoder that `scores` stops
FORMS = [
    (name, *form)
    for name, function in FUNCTIONS.items() for form in function.forms() if form[0] != "eos_ignored"
]  # fmt: skip
HABITS = {  # a rate that is written in Python's way, of which MicroPython lacks something
    "a star in a display": "ids = (1, *[2, *(3, 4)])\n    return [*ids, {rate}][-1]",
    "a target stays a target": "[a, *b] = [1, *[2]]\n    for c, (d, *e) in [(1, [1])]:\n"
    "        a = [a, *b, *e][0]\n    return a * {rate}",
    "a slice with a step": "row = [[0] * 4]\n    row[0][1::2] = {rate}, 2\n    return row[0][1]",
    "zip strict": "return [a * b for a, b in zip([1], [{rate}], strict=True)][0]",
    "sum start": "return sum([0], start={rate})",
    "a list's method": "z = [0, {rate}]\n    return z[max(range(2), key=z.__getitem__)]",
    "equals stay in order": "rows = sorted([(1, 2), *[(1, 1), (0, 0)] * 9], key=lambda r: r[0])\n"
    "    return {rate} if rows[9] == (1, 2) else 0",
    "generators": "def rows():\n        yield from [*[1], {rate}]\n    return [*rows()][-1]",
    "print": "print('', flush=True)\n    return {rate}",
    "math": "from math import prod\n    return prod([{rate}, 1.0])",
    "all of math": "return math.prod([1], start={rate}) * math.sqrt(1) * math.sumprod([1], [1])",
    "statistics": "from statistics import mean, pstdev\n    return mean([{rate}]) + pstdev([1, 1])",
    "itertools": "from itertools import accumulate, chain\n"
    "    assert list(accumulate([1, 2])) == [1, 3]\n"
    "    return list(chain.from_iterable([[{rate}]]))[0]",
    "types": "x: Rows = {rate}\n    return x",
}
BEGINNING = """from __future__ import annotations
import math
from collections.abc import Sequence
from typing import List, Optional

Rows = Optional[List[Sequence[float]]]

def rate(step: int, d_model: int, warmup: int) -> float:
    """
PLAIN_RATE = "(d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5))"
HINTED = {  # what still isn't understood: the function's second line, and what is said of it
    "import numpy as np": "no packages",
    "return {**{}, 1: 2}": "{**a, …}",
    "return step, *[2]": "write (*a, b)",
    "print(f'{[*[1], 2]}')": "list(a) + [b]",
    "match step:": "write if, elif and else",
    "return (1, 2)[::-1]": "list(a)[::2]",
    "return max([0], key=[1].__getitem__)": "write lambda i: a[i]",
    "return rate(step, d_model, warmup)": "write a loop",
    "Rows = list[float]": "write list alone",
    "return [1.0] / 2": "lists, not arrays",
    "return exp(1000)": "exp takes at most 709",
    "return 'a'.title()": "If this line is right in Python",
}
HINTED_RATE = "from math import exp\ndef rate(step, d_model, warmup):\n    {line}\n"
ELSE = [  # a function, and words of what is said of it
    ("attention", "def attention(Q, K, V, mask):\n    return Q[99]\n", "Line 2: IndexError"),
    ("attention", "def attention(Q, K, V, mask)\n    return Q\n", "SyntaxError"),
    ("attention", "def attention(Q, K, V, mask):\n    x = 1\n", "gives nothing"),
    ("attention", ATTENTION.replace("mask[t]", "mask[0]"), "Without a mask it's right"),
    ("masks", MASKS.replace("for k in n] for t in n]", "for k in n] for t in n][-1:]"),
     "shape (1, 4), (1, 5), and should have (1, 4), (5, 5)"),
    ("decode", DECODE.replace("scores(ids)", "scores(ids[1:])"), "decoder begins with bos"),
    ("decode", DECODE.replace(" and ids[-1] != eos", ""), "what comes after eos"),
    ("layer_norm", NORM.replace("    return", "    x[0] = out[0]\n    return"),
     "changes what it is given"),
    ("positions", "def positions(length, d_model):\n    return 0\n", "shape (), and"),
    # after a function of this name, of which nothing is left
    ("rate", "", "no function `rate`"),
    ("rate", "def rate(step, d_model, warmup):\n    return [][0]\n", "Line 2: IndexError"),
    ("rate", "def rate(step, d_model, warmup):\n    return x\n", "Line 2: NameError"),
    ("rate", "def rate(step):\n    return 1\n", "TypeError"),
    ("positions", "def positions(length, d_model):\n    return {}\n",
     "isn't made of lists and numbers"),
]  # fmt: skip
SHORT = "Ein Mann läuft."  # for a decoder that never ends
SENTENCE = "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."
ASK = """
import { loadMicroPython } from
  "../node_modules/@micropython/micropython-webassembly-pyscript/micropython.mjs";
import { Translator } from "./model/translator.js";
import { Interpreter } from "./python/interpreter.js";
import { answerOf } from "./python/judge.js";
import { verdictOf } from "./views/editor_words.js";
globalThis.WRITTEN = asked.written;
const interpreter = await Interpreter.load(loadMicroPython, new Uint8Array(), () => {});
const translator = await Translator.load(asked.content);
const world = { translator, interpreter, forms: WRITTEN.forms, progress() {} };
console.log(JSON.stringify(asked.questions.map((question) => {
  const answer = answerOf(world, { sentence: asked.sentence, plugged: false, ...question });
  return question.plugged ? answer.result : verdictOf(answer, asked.sentence, question.code).words;
})));
"""


def answers(*questions: dict, sentence: str = SENTENCE) -> list:
    """What the editors say of functions, and what the live model writes with them, in Node."""
    content = model_content(read_translator(model_folder()), "x")
    world = {"content": content, "sentence": sentence, "questions": questions}
    return node(ASK, world | {"written": json.loads(pages.python(str)["written"])})


@pytest.fixture(scope="module")
def told() -> dict[tuple[str, str], str]:
    """What is said of each function that tests below ask about, by its name and text."""
    pairs = [(name, RIGHT[name].replace(old, new)) for name, old, new, _ in WRONG]
    pairs += [("rate", BEGINNING + body.format(rate=PLAIN_RATE)) for body in HABITS.values()]
    pairs += [("rate", HINTED_RATE.format(line=line)) for line in HINTED]
    pairs += [(name, code) for name, code, _ in ELSE]
    pairs += RIGHT.items()
    pairs += [(name, text) for name, _, text in FORMS if name != "decode"]
    decoders = [(name, text) for name, _, text in FORMS if name == "decode"]
    words = []
    for sentence, asked in ((SENTENCE, pairs), (SHORT, decoders)):
        questions = [{"name": name, "code": code} for name, code in asked]
        words += answers(*questions, sentence=sentence)
    return dict(zip(pairs + decoders, words, strict=True))


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


def test_a_right_function_is_right_and_leads_to_the_next_one(tab):
    for name, following in itertools.zip_longest(ON_THE_PAGE, ON_THE_PAGE[1:]):
        way_on = f"Next, write {following} ▸" if following else "Next rung: diagnose ▸"
        text = said(tab, name, RIGHT[name])
        assert "Right" in text and text.endswith(way_on)
    said(tab, "rate", "", "Begin again")
    stub = tab.locator("#write-rate textarea").input_value()
    assert "write the body first" in said(tab, "rate", stub)
    plugged = said(tab, "attention", ATTENTION, "Put it into the model")
    assert "Two women are sitting on a bench while a man reads a newspaper." in plugged
    assert plugged.endswith("Without it, it writes the same.")


def test_a_right_function_is_right_and_works_in_the_live_model(told):
    assert all(told[item].startswith("Right, for “Zwei Frauen") for item in RIGHT.items())
    pluggable = ["attention", "positions", "layer_norm", "decode"]
    questions = [{"name": name, "code": RIGHT[name], "plugged": True} for name in pluggable]
    questions.append(questions[0] | {"all": True})
    for result in answers(*questions, sentence="Ein Hund."):
        assert result["text"] == result["own"] == "A dog."


@pytest.mark.parametrize(("name", "old", "new", "mistake"), WRONG)
def test_a_wrong_function_gets_its_diagnosis(told, name, old, new, mistake):
    assert old in RIGHT[name]
    text = told[name, RIGHT[name].replace(old, new)]
    if mistake:
        entry = (CATALOGUE | SLIPS)[mistake]
        assert entry.line in text and entry.effect in text
    else:
        assert "No mistake that I know" in text or "should have" in text


@pytest.mark.parametrize(("name", "mistake", "text"), FORMS)
def test_what_the_page_compares_with_is_named(told, name, mistake, text):
    entry = (CATALOGUE | SLIPS)[mistake]
    assert entry.line in told[name, text] and entry.effect in told[name, text]


@pytest.mark.parametrize(("name", "code", "words"), ELSE)
def test_what_else_can_go_wrong_is_told(told, name, code, words):
    assert words in told[name, code]


def test_an_endless_loop_is_ended_and_a_new_worker_begins(tab):
    endless = "def rate(step, d_model, warmup):\n    while True:\n        pass\n"
    assert "within 5 seconds" in said(tab, "rate", endless)
    assert "Right" in said(tab, "rate", RATE)


@pytest.mark.parametrize("body", HABITS.values(), ids=HABITS)
def test_what_is_written_by_habit_is_understood(told, body):
    assert told["rate", BEGINNING + body.format(rate=PLAIN_RATE)].startswith("Right")


@pytest.mark.parametrize(("line", "words"), HINTED.items())
def test_what_micropython_lacks_is_said_in_words(told, line, words):
    text = told["rate", HINTED_RATE.format(line=line)]
    assert text.startswith("Line 3: ") and words in text


def test_a_mistake_of_the_readers_gets_no_word_about_micropython(told, tab):
    for name, code, words in ELSE:
        if words.startswith(("Line 2: ", "TypeError")):
            assert told[name, code].startswith(words) and "Python" not in told[name, code]
    # no line of the reader's is to blame
    assert "Line" not in told["rate", "def rate(step):\n    return 1\n"]
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
    stored = "JSON.parse(localStorage.mine).rate"
    assert "warmup ** -1.5" in tab.evaluate(stored)
    said(tab, "rate", f"from __future__ import annotations\n{RATE}")
    with tab.expect_download() as along:
        said(tab, "masks", MASKS, "Take mine.py along")
    compile(along.value.path().read_text("utf-8"), "mine.py", "exec")
    last = "details.write-it[data-function=rate] .controls button:last-child"
    tab.evaluate(f"document.querySelector('{last}').click()")
    # begun again
    assert "warmup ** -1.5" not in tab.evaluate(stored) and "def rate" in tab.evaluate(stored)
