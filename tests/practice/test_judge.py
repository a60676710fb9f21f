"""The judge: files that pass, files that don't and what each is told, and files that misbehave."""

import dataclasses
import json
import re
import types
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from practice import judge, worker
from practice.gates import GATES, small_world, stubs, world
from practice.mistakes import CATALOGUE, SLIPS
from practice.mistakes.plain import FUNCTIONS

MINE = Path(__file__).with_name("mine")
NUMPY = (MINE / "in_numpy.py").read_text("utf-8")


class InProcess:
    """Stands for a process of its own, which costs a second: the same answers, here."""

    def __init__(self, source: str):
        self.module = types.ModuleType(worker.MODULE)
        self.module.__file__ = "mine.py"
        exec(compile(source, "mine.py", "exec"), vars(self.module))

    def ask(self, function: str, arguments: tuple, parts: int, seconds: float) -> dict:
        try:
            answer = worker.answer(self.module, function, arguments, parts)
        except Exception as error:
            answer = {"error": worker.complaint(error, "mine.py")}
        return answer | {"calls": worker.called(self.module, function)}


def tried(number: int, source: str, **failed_gates: int) -> judge.Verdict:
    """What a gate says of a file; some of its functions are known as wrong, from their gates."""
    with np.errstate(all="ignore"):
        return judge.try_gate(GATES[number - 1], world(), InProcess(source), failed_gates)


def changed(old: str, new: str) -> str:
    """The file in NumPy with a mistake in it."""
    assert NUMPY.count(old) >= 1, old
    return NUMPY.replace(old, new)


@pytest.mark.parametrize("name", ["in_numpy", "in_torch"])
def test_a_right_file_passes_every_gate(name):
    """One by one in a process of its own."""
    with closing(judge.ReadersCode(MINE / f"{name}.py")) as reader:
        for gate in GATES:
            verdict = judge.try_gate(gate, world(), reader, {})
            assert verdict.state == "right", (gate.title, verdict)


SPLIT_AND_JOINED = (
    "np.split(z, h, axis=1) for z in (x @ W_q, y @ W_k, y @ W_v)]\n"
    "    return np.hstack([attention(Q, K, V, mask) for Q, K, V in zip(*cut)])",
    "z.reshape(h, len(z), -1) for z in (x @ W_q, y @ W_k, y @ W_v)]\n"
    "    return np.reshape([attention(Q, K, V, mask) for Q, K, V in zip(*cut)], x.shape)",
)
CROSS = 'x = x + attend(normed(x, w, 2), memory, src_mask, w, "src_attn", h)'
IN_THE_DECODER = (
    f'z = normed(x, w, 1)\n    x = x + attend(z, z, tgt_mask, w, "self_attn", h)\n    {CROSS}'
)
CROSS_FIRST = (
    'x = x + attend(normed(x, w, 1), memory, src_mask, w, "src_attn", h)\n'
    "    z = normed(x, w, 2)\n"
    '    x = x + attend(z, z, tgt_mask, w, "self_attn", h)'
)
ONE_HOT = "    q[np.arange(len(target)), target] += 1 - smoothing\n"
NO_PADS = "    q[:, pad] = 0\n    q[target == pad] = 0\n"
RATE = "d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)"
M, V = "0.9 * m + 0.1 * g", "0.98 * v + 0.02 * g**2"
WRONG = [
    (1, "table[ids] * table.shape[1] ** 0.5", "table[ids]", "embeddings_not_scaled"),
    (1, "table[ids] * table.shape[1] ** 0.5", "table[ids] / np.sqrt(128)", "embeddings_divided"),
    (4, "np.where(mask, scores, -np.inf)", "np.where(mask, -np.inf, scores)", "true_means_hidden"),
    (5, *SPLIT_AND_JOINED, "heads_cut_and_joined_by_view"),
    (5, "zip(*cut)]) @ W_o", "zip(*cut)])", "no_output_matrix"),
    (5, "np.split(z, h, axis=1)", "z.reshape(h, len(z), -1)", "heads_split_by_view"),
    (5, "np.split(z, h, axis=1)", "[z[:, i::h] for i in range(h)]", "heads_interleaved"),
    (5, "y @ W_k", "y @ W_q", "keys_by_W_q"),
    (5, "y @ W_k, y @ W_v", "x @ W_k, x @ W_v", "keys_and_values_from_x"),
    (5, "y @ W_v", "y @ W_k", "values_by_W_k"),
    (6, "gain * (x - mean)", "gain * x", "mean_only_in_the_variance"),
    (6, "x.mean(-1, keepdims=True), x.var(-1, keepdims=True)", "x.mean(0), x.var(0)",
     "norm_over_positions"),
    (7, "x @ W_1 + b_1", "x @ W_1", "no_b_1"),
    (7, "@ W_2 + b_2", "@ W_2", "no_b_2"),
    (7, "np.maximum(x @ W_1 + b_1, 0)", "(x @ W_1 + b_1)", "no_relu"),
    (8, "compute(normed(x, w, 2), w)", "compute(normed(x, w, 1), w)", "norm_1_twice"),
    (8, "z = normed(x, w, 1)\n    x = x + attend(z, z, mask",
     "x = z = normed(x, w, 1)\n    x = x + attend(z, z, mask", ""),
    (9, "encoder_layer(x, mask, layer, h)", 'encoder_layer(x, mask, w["layers"][0], h)',
     "first_layer_every_time"),
    (9, '    return layer_norm(x, w["gain"], w["bias"])\n\n\ndef masks',
     "    return x\n\n\ndef masks", "encoder_without_last_norm"),
    (11, IN_THE_DECODER, CROSS_FIRST, "cross_attention_first_with_norm_1"),
    (11, CROSS, CROSS.replace("normed(x, w, 2)", "x"), "query_not_normed"),
    (11, CROSS, CROSS.replace("memory", "normed(memory, w, 2)"), "memory_normed_again"),
    (11, CROSS, CROSS.replace("x + attend", "attend"), "middle_residual_missing"),
    (11, "attend(normed(x, w, 2), memory, src_mask",
     "attend(normed(x, w, 2), normed(x, w, 2), tgt_mask", "cross_attends_to_itself"),
    (12, CROSS, CROSS.replace("src_mask", "None"), "source_mask_not_passed"),
    (12, "x = x + positions(*x.shape)", "x = x", "positions_not_added"),
    (13, "return x @ table.T", "return softmax(x @ table.T)", "probabilities_for_logits"),
    (13, "return x @ table.T", "z = x @ table.T; return np.log(softmax(z))",
     "log_probabilities_for_logits"),
    (14, "return written[1:]", "return written", "bos_given_back"),
    (14, "len(written) <= longest", "len(written) <= longest + 1", "one_token_too_many"),
    (14, "return written[1:]", "return written[:longest]", "bos_counted"),
    (15, "return ids[:-1], ids[1:]", "return ids, ids[1:]", "eos_is_read"),
    (15, "return ids[:-1], ids[1:]", "return ids, ids", "nothing_cut_off"),
    (15, "return ids[:-1], ids[1:]", "return ids[1:], ids[:-1]", "shift_the_other_way"),
    (15, "return ids[:-1], ids[1:]", "return ids[:-1], ids[:-1]", "no_shift"),
    (15, "return ids[:-1], ids[1:]", "return ids[:-2], ids[2:]", "shift_by_two"),
    (16, ONE_HOT + NO_PADS, "    q[:, pad] = 0\n" + ONE_HOT, "pads_are_tokens"),
    (16, ONE_HOT, "    q[np.arange(len(target)), target] = 1 - smoothing\n",
     "right_token_without_its_share"),
    (16, "q[:, pad] = 0\n    q[target == pad] = 0", "q[:, pad] = 0", "pads_counted"),
    (17, ONE_HOT, "    q[np.arange(len(target)), target] = 1 - smoothing\n",
     "gradient_without_its_share"),
    (18, RATE, "d_model**-0.5 * min(max(step - 1, 1)**-0.5, (step - 1) * warmup**-1.5)",
     "rate_one_step_early"),
    (19, "(np.sqrt(v / (1 - 0.98**step)) + 1e-9)", "np.sqrt(v / (1 - 0.98**step) + 1e-9)",
     "adam_epsilon_in_the_root"),
    (19, V, "0.98 * v + 0.02 * g", "second_average_of_g"),
    (19, "return w", "step += 1\n    return w", "adam_one_step_ahead"),
    (19, f"{M}, {V}", "0.9 * m + g, 0.98 * v + g**2", "both_averages_are_sums"),
    (19, "return w -", "return w +", "uphill"),
    (19, "m / (1 - 0.9**step)", "m", "no_correction_of_m"),
    (19, "v / (1 - 0.98**step)", "v", "no_correction_of_v"),
    (19, "return w - lrate *", "return w -", "learning_rate_forgotten"),
    (19, f"{M}, {V}", "0.1 * m + 0.9 * g, 0.02 * v + 0.98 * g**2", "new_and_old_exchanged"),
    (19, "0.98 * v + 0.02 * g**2\n    return w - lrate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98",
     "0.999 * v + 0.001 * g**2\n    return w - lrate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999",
     "usual_betas"),
    (19, "(m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9)",
     "m / (np.sqrt(v) + 1e-9)", "no_bias_correction"),
]  # fmt: skip


# functions of the page that are asked at a gate, too, and with each mistake
PLAIN = {name: FUNCTIONS[name] for name in FUNCTIONS if name in {gate.function for gate in GATES}}
FORMS = [  # the first of each mistake
    (name, *form)
    for name, function in PLAIN.items() for form in dict(reversed(function.forms())).items()
]  # fmt: skip
# whose padding the document changes elsewhere as well, or not there
ON_THE_PAGE_ALONE = {"padding_seen", "pads_are_tokens", "padding_has_a_share"}
FORMS = [form for form in FORMS if form[1] not in ON_THE_PAGE_ALONE]
# what the judge calls them, which looks at a function, and not at a training
IN_ONE_FUNCTION = {
    "no_causal_mask": "target_mask_without_order", "norm_over_time": "norm_over_positions",
    "shared_by_all_others": "gradient_without_its_share",
}  # fmt: skip


@pytest.mark.parametrize(("number", "old", "new", "name"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_answer_gets_its_diagnosis(number, old, new, name):
    verdict = tried(number, changed(old, new))
    assert verdict.state == "wrong"
    mistakes = CATALOGUE | SLIPS
    named = {key for key, mistake in mistakes.items() if mistake.line in verdict.sentence}
    if name:
        assert name in named, verdict.sentence
        assert mistakes[name].effect in verdict.sentence or len(named) > 1
    else:
        assert "no mistake that I tried" in verdict.sentence, verdict.sentence


def in_lists(function: str, text: str) -> list[judge.Verdict]:
    """What the gates of a function of the page say of it, which computes with plain lists."""
    file = InProcess(f"def take(array):\n    return array.tolist()\n\n{text}")
    gates = [gate for gate in GATES if gate.function == function]
    return [judge.try_gate(gate, small_world(), file, {}) for gate in gates]  # few numbers


@pytest.mark.parametrize(("function", "name", "text"), FORMS)
def test_the_page_and_the_judge_mean_the_same_by_a_mistake(function, name, text):
    """Catches a change of the page's text, or of the document's, that isn't what its name says."""
    verdicts = in_lists(function, text)
    line = (CATALOGUE | SLIPS)[IN_ONE_FUNCTION.get(name, name)].line
    assert any(line in verdict.sentence for verdict in verdicts), verdicts


@pytest.mark.parametrize("function", [*PLAIN])
def test_a_right_function_in_lists_passes(function):
    assert {verdict.state for verdict in in_lists(function, PLAIN[function].text)} == {"right"}


def test_two_mistakes_at_once_get_no_diagnosis():
    """Neither of them alone gives these numbers, so neither is named."""
    source = changed("Q @ K.T / Q.shape[1] ** 0.5", "2 * Q @ K.T")
    verdict = tried(3, source)
    assert "no mistake that I tried" in verdict.sentence
    assert re.search(r"query 0, dimension \d+: ", verdict.sentence)
    source = source.replace("np.where(mask, scores, -np.inf)", "np.where(mask, -np.inf, scores)")
    assert "; first mend gate 3, " in tried(4, source, attention=3).sentence


def test_what_a_file_does_besides_is_told():
    printed = tried(6, changed("    mean, variance =", "    print('here')\n    mean, variance ="))
    assert printed.state == "right" and printed.notes == ["it printed 'here'"]
    mean = "    mean, variance ="
    altered = tried(6, changed(mean, f"    x += 0.0\n    x *= 2\n    x /= 4\n{mean}"))
    assert altered.state == "wrong" and "changes what it is given" in " ".join(altered.notes)
    infinite = changed("softmax(scores) @ V", "softmax(scores) @ V / 0.0")
    assert "aren't finite" in tried(3, infinite).sentence
    deeper = changed("softmax(scores) @ V", "(softmax(scores) @ V)[None]")
    assert "the shape is (1, 15, 32), and should be (15, 32)" in tried(3, deeper).sentence
    assert "gives nothing" in tried(2, changed("    return table\n", "")).sentence
    single = changed("return ids[:-1], ids[1:]", "return ids")
    assert "should give 2 things" in tried(15, single).sentence


def test_a_function_is_told_of_what_it_uses_and_of_nothing_else():
    """Catches a line that sends somebody to mend what has nothing to do with it."""
    source = changed("Q @ K.T / Q.shape[1] ** 0.5", "Q @ K.T")
    sentence = tried(8, source, embed=1, attention=3, multi_head=5).sentence
    assert sentence.endswith("; first mend what it uses: gates 3, 5") and "mistake" not in sentence
    assert "mend" not in tried(18, changed(RATE, "0.0"), attention=3).sentence
    ignored = changed("np.where(mask, scores, -np.inf)", "scores")
    assert SLIPS["mask_ignored"].line in tried(4, ignored, attention=3).sentence


LOADED = {
    "def embed(ids, table) return": r"^line 1: SyntaxError: expected ':'$",
    "": "there is no function embed",
    "def embed(ids, table):\n    return input()": "line 2, .*EOFError",
    "def embed(ids, table):\n    while True: pass": r"line 2: no answer within 1 seconds",
    "def embed(ids, table):\n    import os\n    os._exit(9)": "embed: the process ended with status 9",
    "x = 1\nwhile True:\n    x += 1": r"^line [23]: the file itself doesn't end within 1 seconds",
    "import time\ntime.sleep(20)": "^line 2: the file itself doesn't end within 1 seconds",
    "def embed(ids, table):\n    while True:\n        print('x' * 999)": "^line [23]: no answer within",
    "def take(array):\n    return array.no\ndef embed(ids, table): return table":
        "^`take`, before embed is called: line 2, return array.no: AttributeError",
    "def embed(ids, table):\n    return inner(table)\ndef inner(x):\n    return x.no":
        r"^line 2, return inner\(table\)\nline 4, return x.no: AttributeError",
    "def embed(ids, table):\n    return [1, 'a']": "TypeError",
}  # fmt: skip


@pytest.mark.parametrize("source", LOADED)
def test_a_file_that_misbehaves_harms_nobody(source, tmp_path, monkeypatch):
    monkeypatch.setattr(judge, "LOADING_SECONDS", 1)
    path = tmp_path / "mine.py"
    path.write_text(source, "utf-8")
    gate = dataclasses.replace(GATES[0], seconds=1)
    with closing(judge.ReadersCode(path)) as reader:
        verdict = judge.try_gate(gate, world(), reader, {})
    assert verdict.state in ("wrong", "unread", "empty"), verdict
    assert re.search(LOADED[source], verdict.sentence), verdict.sentence


AS_IT_RUNS = """from __future__ import annotations
import dataclasses, enum, inspect, pickle, sys, typing
@dataclasses.dataclass
class Sizes:
    h: int = 3
class Kind(enum.Enum):
    WIDE = 1
class Pair(typing.NamedTuple):
    h: int
assert typing.get_type_hints(Sizes) == {"h": int}
assert "h: int = 3" in inspect.getsource(Sizes)
assert pickle.loads(pickle.dumps([Sizes(), Kind.WIDE, Pair(3)])) == [Sizes(), Kind.WIDE, Pair(3)]
import helper
if __name__ == "__main__":
    raise SystemExit("this trains for an hour")
"""


@pytest.mark.parametrize("suffix", ["py", "ipynb"])
def test_a_file_is_loaded_as_it_runs_by_itself(suffix, tmp_path):
    """Also a notebook, of which an error names the cell; the folder's modules are there."""
    (tmp_path / "helper.py").write_text("", "utf-8")
    path = tmp_path / f"mine.{suffix}"
    cells = [AS_IT_RUNS, "%matplotlib inline\ndef embed(ids, table):\n    return table.no"]
    if suffix == "ipynb":
        written = [{"cell_type": "code", "source": cell.splitlines(True)} for cell in cells]
        written.insert(1, {"cell_type": "markdown", "source": ["while True:"]})
        path.write_text(json.dumps({"cells": written}), "utf-8")
        line = "code cell 2, line 3, return table.no: Attr"
    else:
        path.write_text(cells[0] + cells[1].replace("%", "# "), "utf-8")
        line = "line 18, return table.no: Attr"
    with closing(judge.ReadersCode(path)) as reader:
        verdict = judge.try_gate(GATES[0], world(), reader, {})
    assert verdict.sentence.startswith(line), verdict


ADAM = "(np.sqrt(v / (1 - 0.98**step)) + 1e-9)"
# what differs from the paper in few cases, or only with weights of other sizes
HARDLY_WRONG = [
    (1, "table.shape[1] ** 0.5", "128 ** 0.5"),
    (2, "np.arange(length)[:, None]", "np.arange(length)[:, None] % 512"),
    (3, "Q.shape[1] ** 0.5", "32 ** 0.5"),
    (4, "np.where(mask, scores, -np.inf)", "np.where(mask, scores, -100)"),
    (5, "np.split(z, h, axis=1)", "np.split(z, 4, axis=1)"),
    (6, "x.var(-1, keepdims=True)", "((x - x.mean(-1, keepdims=True))**2).sum(-1)[:, None] / 128"),
    (8, "    z = normed(x, w, 1)\n    x = x + attend(z, z, mask",
     "    mask = np.arange(len(x)) < mask.sum()\n    z = normed(x, w, 1)\n    x = x + attend(z, z, mask"),
    (9, 'w["layers"]', 'w["layers"][:4] + w["layers"][:max(0, 4 - len(w["layers"]))]'),
    (10, "(tgt != pad)[None]", "(np.arange(len(tgt)) < (tgt != pad).sum())[None]"),
    (11, IN_THE_DECODER, f"tgt_mask = np.tri(len(x), dtype=bool)\n    {IN_THE_DECODER}"),
    (12, 'w["layers"]', 'w["layers"][:4] + w["layers"][:max(0, 4 - len(w["layers"]))]'),
    (13, "x @ table.T", "x[:, :128] @ table.T * (len(table[0]) / 128)"),
    (14, "encoder(src, None,", "encoder(src[:-1] if len(src) > 1 else src, None,"),
    (14, "len(written) <= longest", "len(written) <= min(longest, len(src) + 50)"),
    (14, "memory, None, tgt_mask", "memory, None, None"),
    (14, "[bos]\n", "[1]\n"),
    (14, "written[-1] != eos", "written[-1] != 2"),
    (14, "return written[1:]", "return written[1:] + [eos] * (written[-1] != eos)"),
    (15, "return ids[:-1], ids[1:]", "return [1, *ids[1:-1]], ids[1:]"),
    (16, "smoothing / (vocab - 1))\n", "min(smoothing, 0.1) / (vocab - 1))\n"),
    (17, "shares(target, logits.shape[1], smoothing, pad)", "shares(target, logits.shape[1], 0.1, pad)"),
    (18, "step**-0.5", "(step if step < warmup or warmup == 4000 else 4000)**-0.5"),
    (19, ADAM, ADAM.replace("1e-9", "1e-8")),
    (19, "- lrate *", "- 0.01 *"),
]  # fmt: skip


@pytest.mark.parametrize(("number", "old", "new"), HARDLY_WRONG)
def test_what_is_hardly_wrong_is_wrong(number, old, new, monkeypatch):
    """And what fits the shipped weights alone is told so."""
    monkeypatch.setattr(judge, "diagnosis", lambda *_: [])
    verdict = tried(number, changed(old, new))
    assert verdict.state == "wrong", verdict
    if new in ("128 ** 0.5", "32 ** 0.5"):
        assert "with the shipped weights it is right" in verdict.sentence


def test_the_empty_file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(stubs(), "utf-8")
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= 120 and all(len(line) <= 100 for line in lines)
    assert "# Gate 3: attention; gate 4: attention with a mask" in lines and "0.98" in stubs()
    said: list[str] = []
    assert not judge.judge(path, only=1, say=said.append) and "1 not written yet" in said[-1]
