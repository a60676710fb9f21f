"""The judge: files that pass, files that don't and what each is told, and files that misbehave."""

import dataclasses
import itertools
import re
import types
from pathlib import Path

import pytest

from practice import judge, worker
from practice.gates import GATES, world
from practice.mistakes import CATALOGUE, SLIPS

MINE = Path(__file__).with_name("mine")
NUMPY = (MINE / "in_numpy.py").read_text("utf-8")


class InProcess:
    """Stands for a process of its own, which costs a second: the same answers, here."""

    def __init__(self, source: str):
        self.module = types.ModuleType("mine")
        exec(compile(source, "mine.py", "exec"), vars(self.module))

    def ask(self, function: str, arguments: tuple, parts: int, seconds: float) -> dict:
        try:
            return worker.answer(self.module, function, arguments, parts)
        except Exception as error:
            return {"error": worker.complaint(error, "mine.py")}


def tried(number: int, source: str) -> judge.Verdict:
    """What a gate says of a file."""
    return judge.try_gate(GATES[number - 1], world(), InProcess(source))


def changed(old: str, new: str) -> str:
    """The file in NumPy with a mistake in it."""
    assert NUMPY.count(old) >= 1, old
    return NUMPY.replace(old, new)


@pytest.mark.parametrize("name", ["in_numpy", "in_torch", "in_lists"])
def test_a_right_file_passes_every_gate(name):
    """One after another in a process of its own; in lists, only the first words of a translation."""
    w = world()
    with judge.Reader(MINE / f"{name}.py") as reader:
        for gate in GATES:
            if (name, gate.function) == ("in_lists", "translate"):
                gate = dataclasses.replace(gate, cases=lambda w, cases=gate.cases: itertools.islice(cases(w), 1))
            verdict = judge.try_gate(gate, w, reader)
            assert verdict.state == "right", (gate.title, verdict)


WRONG = [
    (1, "table[ids] * table.shape[1] ** 0.5", "table[ids]", "embeddings_not_scaled"),
    (1, "table[ids] * table.shape[1] ** 0.5", "table[ids] / np.sqrt(128)", "embeddings_divided"),
    (2, "table[:, 0::2], table[:, 1::2]", "h = d_model // 2; table[:, :h], table[:, h:]", "sines_then_cosines"),
    (2, "np.arange(0, d_model, 2) / d_model", "np.arange(d_model // 2) / d_model", "frequency_of_half_the_exponent"),
    (2, "np.arange(length)[:, None]", "np.arange(1, length + 1)[:, None]", "positions_from_one"),
    (2, "np.sin(angle), np.cos(angle)", "np.cos(angle), np.sin(angle)", "cosine_first"),
    (3, "Q @ K.T / Q.shape[1] ** 0.5", "Q @ K.T", "not_scaled"),
    (3, "Q @ K.T / Q.shape[1] ** 0.5", "Q @ K.T / len(Q[0])", "scaled_by_d_k"),
    (3, "Q @ K.T / Q.shape[1] ** 0.5", "Q @ K.T * 32 ** 0.5", "multiplied_by_root"),
    (3, "return softmax(scores) @ V", "return softmax(scores.T).T @ V", "softmax_over_queries"),
    (3, "return softmax(scores) @ V", "return scores @ V", "no_softmax"),
    (4, "np.where(mask, scores, -np.inf)", "np.where(mask, -1e9, scores)", "mask_the_other_way_round"),
    (4, "np.where(mask, scores, -np.inf)", "scores + mask", "mask_added"),
    (4, "np.where(mask, scores, -np.inf)", "scores * mask", "mask_times_scores"),
    (4, "    return softmax(scores) @ V", "    return softmax(Q @ K.T / 32 ** 0.5) * mask @ V", "mask_after_softmax"),
    (5, "np.split(z, h, axis=1)", "z.reshape(h, len(z), -1)", "heads_split_by_view"),
    (5, "np.split(z, h, axis=1)", "[z[:, i::h] for i in range(h)]", "heads_interleaved"),
    (5, "y @ W_k", "y @ W_q", "keys_by_W_q"),
    (6, "x.var(-1, keepdims=True)", "x.var(-1, keepdims=True, ddof=1)", "variance_of_a_sample"),
    (6, "np.sqrt(variance + 1e-5)", "(np.sqrt(variance) + 1e-5)", "epsilon_outside_the_root"),
    (6, "gain * (x - mean)", "gain * x", ""),
    (6, "np.sqrt(variance + 1e-5)", "(variance + 1e-5)", "norm_by_variance"),
    (7, "np.maximum(x @ W_1 + b_1, 0)", "(x @ W_1 + b_1)", "no_relu"),
    (
        8,
        "z = normed(x, w, 1)\n    x = x + attend(z, z, mask",
        "x = z = normed(x, w, 1)\n    x = x + attend(z, z, mask",
        "",
    ),
    (
        9,
        '    return layer_norm(x, w["gain"], w["bias"])\n\n\ndef masks',
        "    return x\n\n\ndef masks",
        "encoder_without_last_norm",
    ),
    (10, "& (tgt != pad)[None]", "", "target_mask_without_padding"),
    (
        10,
        "(src != pad)[None], np.tri(len(tgt), dtype=bool)",
        "(src != pad)[None], np.ones((len(tgt), len(tgt)), bool)",
        "target_mask_without_order",
    ),
    (
        11,
        "attend(normed(x, w, 2), memory, src_mask",
        "attend(normed(x, w, 2), normed(x, w, 2), tgt_mask",
        "cross_attends_to_itself",
    ),
    (12, "x = x + positions(*x.shape)", "x = x", "no_positions"),
    (13, "return x @ table.T", "z = x @ table.T; return np.log(softmax(z))", "log_probabilities_for_logits"),
    (14, "[bos]\n", "[eos]\n", ""),
    (15, "return ids[:-1], ids[1:]", "return ids[:-1], ids[:-1]", "no_shift"),
    (15, "return ids[:-1], ids[1:]", "return ids[:-2], ids[2:]", "shift_by_two"),
    (16, "smoothing / (vocab - 1))\n", "smoothing / vocab)\n", ""),
    (16, "q[:, pad] = 0\n    q[target == pad] = 0", "q[:, pad] = 0", "pads_counted"),
    (
        17,
        "(softmax(logits) - shares(target, logits.shape[1], smoothing, pad))",
        "(shares(target, logits.shape[1], smoothing, pad) - softmax(logits))",
        "gradient_upside_down",
    ),
    (18, "min(step**-0.5", "max(step**-0.5", "rate_with_max"),
    (18, "step * warmup**-1.5", "step * warmup**-0.5", "rate_without_warmup"),
    (
        19,
        "0.98 * v + 0.02 * g**2\n    return w - lrate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step))",
        "0.999 * v + 0.001 * g**2\n    return w - lrate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step))",
        "usual_betas",
    ),
    (
        19,
        "(m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9)",
        "m / (np.sqrt(v) + 1e-9)",
        "no_bias_correction",
    ),
]


@pytest.mark.parametrize(("number", "old", "new", "name"), WRONG, ids=lambda value: str(value)[:40])
def test_a_wrong_answer_gets_its_diagnosis(number, old, new, name):
    verdict = tried(number, changed(old, new))
    assert verdict.state == "wrong"
    known = CATALOGUE | SLIPS
    said = {other for other in known if f"{known[other].line}" in verdict.sentence}
    if name:
        assert name in said, verdict.sentence
        assert known[name].effect in verdict.sentence or len(said) > 1
    else:
        assert "no mistake that I know" in verdict.sentence, verdict.sentence


@pytest.mark.parametrize(
    ("number", "old", "new", "name"),
    [
        (3, "Q @ K.T / Q.shape[1] ** 0.5", "np.einsum('td,sd->ts', Q, K)", "not_scaled"),
        (5, "np.split(z, h, axis=1)", "list(np.reshape(z, (h, -1, z.shape[1] // h)))", "heads_split_by_view"),
        (
            6,
            "x.var(-1, keepdims=True)",
            "((x - x.mean(-1, keepdims=True)) ** 2).sum(-1, keepdims=True) / 127",
            "variance_of_a_sample",
        ),
    ],
)
def test_the_same_mistake_in_other_clothes(number, old, new, name):
    assert SLIPS.get(name, CATALOGUE.get(name)).line in tried(number, changed(old, new)).sentence


def test_two_mistakes_at_once_get_no_diagnosis():
    """Neither of them alone gives these numbers, so neither is named."""
    source = changed("Q @ K.T / Q.shape[1] ** 0.5", "2 * Q @ K.T")
    verdict = tried(3, source)
    assert "no mistake that I know" in verdict.sentence and re.search(r"query 0, dimension \d+: ", verdict.sentence)


def test_what_a_file_does_besides_is_told():
    printed = tried(6, changed("    mean, variance =", "    print('here')\n    mean, variance ="))
    assert printed.state == "right" and printed.notes == ["it printed 'here'"]
    altered = tried(6, changed("    mean, variance =", "    x += 0.0\n    x *= 2\n    x /= 4\n    mean, variance ="))
    assert altered.state == "wrong" and "changes what it is given" in " ".join(altered.notes)
    assert "aren't finite" in tried(3, changed("softmax(scores) @ V", "softmax(scores) @ V / 0.0")).sentence
    assert (
        "the shape is (1, 15, 32), and should be (15, 32)"
        in tried(3, changed("softmax(scores) @ V", "(softmax(scores) @ V)[None]")).sentence
    )
    assert "gives nothing" in tried(2, changed("    return table\n", "")).sentence
    assert "should give 2 things" in tried(15, changed("return ids[:-1], ids[1:]", "return ids")).sentence


LOADED = {
    "def embed(ids, table) return": r"line 1: SyntaxError",
    "": "there is no function embed",
    "raise SystemExit": r"line 1, raise SystemExit: SystemExit",
    "def embed(ids, table):\n    return input()": "line 2, .*EOFError",
    "def embed(ids, table):\n    while True: pass": r"line 2: no answer within 1 seconds",
    "def embed(ids, table):\n    import os\n    os._exit(9)": "ended with status 9",
    "import numpy\ndef embed(ids, table):\n    return numpy.ones(5_000_000_000)": r"line 3, .*MemoryError|unable to allocate",
    "def embed(ids, table):\n    return [1, 'a']": "TypeError",
}


@pytest.mark.parametrize("source", LOADED)
def test_a_file_that_misbehaves_harms_nobody(source, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(source, "utf-8")
    gate = dataclasses.replace(GATES[0], seconds=1)
    with judge.Reader(path) as reader:
        verdict = judge.try_gate(gate, world(), reader)
    assert verdict.state == "wrong" and re.search(LOADED[source], verdict.sentence), verdict.sentence


def test_the_empty_file(tmp_path):
    path = tmp_path / "mine.py"
    judge.write_stubs(path)
    lines = path.read_text("utf-8").splitlines()
    assert len(lines) <= 120 and all(len(line) <= 100 for line in lines)
    said: list[str] = []
    assert not judge.judge(path, only=1, say=said.append) and "1 not written yet" in said[-1]
    with pytest.raises(FileExistsError):
        judge.write_stubs(path)
