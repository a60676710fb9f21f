"""Gate 20: files that learn, files that don't and what each is told, and what is left of it."""

import dataclasses
import itertools
import types
from contextlib import closing
from pathlib import Path

import pytest
import torch

import the_annotated_transformer as tat
from practice import NEXT_RUNG, judge, learn, learner, worker
from practice.gates import GATES, TUTOR, as_arrays, stubs
from tests.helpers import SOAK
from translator.captions import caption_pairs

MINE = Path(__file__).with_name("mine")
TORCH = (MINE / "in_torch.py").read_text("utf-8")
SMALL = dataclasses.replace(learn.NUMBERS, d_model=16, d_ff=16, h=2, bpe=60, tokens_per_batch=80)
PAIRS = learn.plain([tat.number_pair(n) for n in (3, 20, 345, 999)])


def changed(old: str, new: str) -> str:
    """The file in PyTorch with something else in it."""
    assert TORCH.count(old) >= 1, old
    return TORCH.replace(old, new, 1)


def pupil(path: Path, source: str) -> learner.Learner:
    """A file that is about to learn numbers, in this process."""
    path.write_text(source, "utf-8")
    module = types.ModuleType(worker.MODULE)
    module.__file__ = str(path)
    exec(compile(source, str(path), "exec"), vars(module))
    torch.manual_seed(0)
    task = {"weights": as_arrays(learn.weights_of(SMALL.make_model(len(tat.LETTERS))))}
    task |= {"h": 2, "pad": 0, "bos": 1, "eos": 2, "smoothing": 0.1, "warmup": 10, "factor": 1.0}
    task |= {"step": 0, "averages": None, "threads": 1, "pairs": PAIRS}
    return learner.Learner(module, lambda number: worker.place(number, str(path)), task)


FFN = "return F.relu(x @ W_1 + b_1) @ W_2 + b_2"
OFF = ", where torch.no_grad or inference_mode is in force"
# what is replaced, by what, and the line in which the gradient is lost then
LOST = {
    "detach": (FFN, "x = F.relu(x @ W_1 + b_1).detach()\n    return x @ W_2 + b_2",
               "x = F.relu(x @ W_1 + b_1).detach()"),
    "torch.tensor": (FFN, "W_1 = torch.tensor(W_1)\n    return F.relu(x @ W_1 + b_1) @ W_2 + b_2",
                     "W_1 = torch.tensor(W_1)"),
    "item": (FFN, "x.max().item()\n    b_1 = torch.tensor([b.item() for b in b_1])\n"
                  "    return F.relu(x @ W_1 + b_1) @ W_2 + b_2",
             "b_1 = torch.tensor([b.item() for b in b_1])"),
    "no_grad": (FFN, "with torch.no_grad():\n        x = F.relu(x @ W_1 + b_1)\n    return x @ W_2 + b_2",
                "x = F.relu(x @ W_1 + b_1)"),
    "copy_": (FFN, "m = nn.Linear(*W_1.shape)\n    with torch.no_grad():\n"
              "        m.weight.copy_(W_1.T)\n    return F.relu(m(x) + b_1) @ W_2 + b_2",
              "m.weight.copy_(W_1.T)"),
    # the table has a gradient all the same, from what the decoder writes
    "table": ("def embed(ids, table):\n", "def embed(ids, table):\n    table = torch.tensor(table)\n",
              "table = torch.tensor(table)"),
    "the decoder's": ("def decoder(ids, memory, src_mask, tgt_mask, w, h):\n    x = begin(ids, w)\n",
                      "def decoder(ids, memory, src_mask, tgt_mask, w, h):\n    x = begin(ids, w).detach()\n",
                      "x = begin(ids, w).detach()"),
    "argmax": ("return x @ table.T", "place = (x @ table.T).argmax(-1)\n"
               "    return F.one_hot(place, len(table)).float()", "place = (x @ table.T).argmax(-1)"),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:To copy construct", "ignore:Converting a tensor")
@pytest.mark.parametrize("name", LOST)
def test_where_a_gradient_is_lost_is_named(name, tmp_path):
    """By the line of the file; an `item` that only looks is none."""
    old, new, text = LOST[name]
    source = changed(old, new)
    number = [row.strip() for row in source.splitlines()].index(text) + 1
    off = OFF if name in ("no_grad", "copy_") else ""
    with pytest.raises(learner.NotLearning) as error:
        pupil(tmp_path / "mine.py", source)
    message = str(error.value)
    assert message.startswith("no gradient reaches w['")
    assert message.endswith(f": it is lost in line {number}, {text}{off}")


def test_a_gradient_that_only_is_looked_at_is_not_lost(tmp_path):
    source = changed("    z = norm(x, w, 1)\n", "    z = norm(x, w, 1)\n    z.max().item()\n")
    assert pupil(tmp_path / "mine.py", source).notes == []


def test_a_weight_that_is_not_used_is_noted(tmp_path):
    (note,) = pupil(tmp_path / "mine.py", changed(FFN, FFN.removesuffix(" + b_2"))).notes
    assert "['feed_forward.b_2'] and 1 more, which your code doesn't use" in note


WAYS = {"vmap": TORCH, "one by one": changed(FFN, f"assert x.sum() == x.sum()\n    {FFN}")}
WAYS["64 bits"] = changed("angle = torch.arange(length)", "angle = torch.arange(length).double()")


def test_sentences_together_are_sentences_one_by_one(tmp_path):
    """Catches a batch with other gradients; and a file that `vmap` can't read learns the same."""
    losses = {}
    for name, source in WAYS.items():
        student = pupil(tmp_path / "mine.py", source)
        assert student.together == (name != "one by one")
        losses[name] = [student.update(PAIRS) for _ in range(8)]
    assert losses["vmap"][-1] < losses["vmap"][0] - 0.3
    for name in WAYS:
        assert losses[name] == pytest.approx(losses["vmap"], rel=1e-3), name
    from_the_end = changed('w["table"].size(1))', 'w["table"].size(1)).flip(0)')
    assert not pupil(tmp_path / "mine.py", from_the_end).together  # padding would move a position


STUCK = {
    "in NumPy": ("return torch.from_numpy(array)", "return array", "gate 20 needs tensors, .* ndarray"),
    "a rate": ("return d_model**-0.5 *", "return 1e30 * d_model**-0.5 *",
               r"the loss is \S+ in update [23]: first in line \d+"),
    "adam": ("m, v = 0.9 * m", "m, v = g.log(), 0.9 * m", r"adam makes w\[.*\] not finite in update 1"),
    "a sign": ("return -((1 - smoothing)", "return ((1 - smoothing)", "a cross-entropy is never below 0"),
    "no tensor": ("[known].sum()", "[known].sum().item()", "loss gives float, and no tensor"),
}  # fmt: skip


@pytest.mark.parametrize("name", STUCK)
def test_what_does_not_learn_is_told_why(name, tmp_path):
    old, new, message = STUCK[name]
    source = changed(old, new)
    if name == "adam":
        source = source.replace("0.9 * m + 0.1 * g, 0.98", "0.98")
    with pytest.raises(learner.NotLearning, match=message):
        student = pupil(tmp_path / "mine.py", source)
        for _ in range(4):
            student.update(PAIRS)


@pytest.mark.parametrize("source", [stubs(), TORCH.replace("def rate(", "def pace(")])
def test_functions_that_are_not_written_come_first(source, tmp_path):
    (path := tmp_path / "mine.py").write_text(source, "utf-8")
    said: list[str] = []
    assert not learn.learn_numbers(path, said.append)
    functions = "encoder and 8 more" if source == stubs() else "rate"
    assert said == [f"20 ✗ it can't learn: write the functions first ({functions}): judge mine.py"]


@pytest.mark.parametrize(("unseen", "wrong"), [(True, ""), (True, "gate 7"), (False, "gate 7")])
def test_gate_20_says_what_came_of_it(unseen, wrong, monkeypatch):
    """With three updates, nothing is read: what that resembles is said, and a wrong gate."""
    monkeypatch.setattr(learn, "UPDATES", 3)
    monkeypatch.setattr(learn, "wrong_gate", lambda reader: wrong)
    if unseen:
        monkeypatch.setattr(learn, "write_number", lambda pupil, n: tat.number_pair(n).tgt[1:])
    said: list[str] = []
    passes = learn.learn_numbers(MINE / "in_torch.py", said.append, ["12", "x"] if unseen else [])
    assert passes == (unseen and not wrong) and "whole batches" in said[0]
    if unseen:
        assert said[-2] == "zwölf → 12" and "180 of 180" in said[-3]
        assert said[-1].startswith("     gate 7" if wrong else "     next: a language")
    else:
        assert said[-1] == "     gate 7" and "its source" in "".join(said[2:])


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A language of forty pairs, a small model, and a clock with a second for each update."""
    monkeypatch.setattr(learn, "LIVE", SMALL)
    monkeypatch.setattr(learn, "wrong_gate", lambda reader: "")
    monkeypatch.setattr(learn, "SPLIT_SECONDS", 20)
    ticks = itertools.count()
    monkeypatch.setattr(learn, "time", types.SimpleNamespace(monotonic=lambda: next(ticks)))
    return list(itertools.islice(caption_pairs("train", "de", "en"), 40))


def study(folder: Path, pairs: list, updates: int, source: str = "captions") -> list[str]:
    said: list[str] = []
    session = learn.Study(folder, MINE / "in_torch.py", source, ("de", "en"))
    session.read(pairs, pairs[:2])
    assert learn.learn_language(session, updates / 60, said.append)
    return said


def test_a_language_goes_on_and_becomes_a_model(tiny, tmp_path):
    """Interrupted or not, the weights are the same; the document's model computes the same."""
    messages = study(tmp_path / "whole", tiny, 6)
    assert "BLEU" in messages[-2] and "document's" in messages[-2]
    assert NEXT_RUNG["change it and train"] in messages[-1]
    for updates in (2, 6):
        study(tmp_path / "cut", tiny, updates)
    straight, cut = (tat.load_translator(tmp_path / name) for name in ("whole", "cut"))
    for a, b in zip(straight.model.parameters(), cut.model.parameters(), strict=True):
        torch.testing.assert_close(a, b)
    session = learn.Study(tmp_path / "cut", MINE / "in_torch.py", None, ("de", "en"))
    session.read(tiny, [])
    with closing(judge.ReadersCode(session.file)) as reader:
        logits = session.pupil(reader).predict(session.train[:1])
    batch = tat.make_batch(session.train[:1])
    logits_there = straight.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    torch.testing.assert_close(logits, logits_there, atol=1e-4, rtol=1e-4)
    lines = [line for line, _ in tiny[:2]]
    texts = learn.own_lines(session, [[line] for line in lines])
    for mine, theirs in zip(texts, tat.translate_lines(straight, lines), strict=True):
        assert mine[:20] == theirs[:20]  # hardly trained, a choice later may hang on rounding


def test_a_file_that_departs_translates_by_itself(tiny, tmp_path, monkeypatch):
    """Its folder is no model, so that nobody translates by other code than his."""
    monkeypatch.setattr(learn, "wrong_gate", lambda reader: "gate 7 isn't right")
    messages = study(tmp_path / "run", tiny, 2)
    assert messages[0] == "gate 7 isn't right" and any("its own code" in line for line in messages)
    assert [p.name for p in (tmp_path / "run").iterdir()] == [learn.STATE]
    session = learn.Study(tmp_path / "run", MINE / "in_torch.py", None, ("de", "en"))
    assert len(list(learn.own_lines(session, [["Ein Hund."]]))) == 1


def test_a_report_for_gradescope():
    verdicts = {3: judge.Verdict("right", "", 0.1, []), 4: judge.Verdict("wrong", "", 0.1, ["no"])}
    tests = judge.scored_gates(verdicts, None)
    assert len(tests) == len(GATES) and [test["score"] for test in tests[2:4]] == [1.0, 0.0]
    assert tests[3] == {
        "name": "gate 4: attention with a mask", "score": 0.0, "max_score": 1.0,
        "status": "failed", "output": "no",
    }  # fmt: skip
    assert len(judge.scored_gates(verdicts, 3)) == 1
    assert "{" not in TUTOR.format(name="mine.py")


# what fails gate 20, and what is said of it: a gate, or what the examination has seen
SLIPS = {
    "no shift": ("return ids[:-1], ids[1:]", "return ids[:-1], ids[:-1]", "gate 15, shift"),
    "the future seen": ("multi_head(z, z, tgt_mask,", "multi_head(z, z, None,", "sees the future"),
    "uphill": ("return w - lrate", "return w + lrate", "gate 19, update of Adam"),
    "an Adam that forgets": ("+ 1e-9), m, v", "+ 1e-9), 0 * m, 0 * v", "gate 19, update of Adam"),
    "no end": ("return ids[:-1], ids[1:]", "return ids[:-2], ids[1:-1]", "end by themselves"),
}


@pytest.mark.skipif(not SOAK, reason="minutes: ANNOTATED_SOAK=1")
@pytest.mark.parametrize("name", ["right", *SLIPS])
def test_what_is_right_learns_and_what_is_not_is_named(name, tmp_path):
    old, new, message = SLIPS.get(name, ("", "", "20 ✓"))
    (path := tmp_path / "mine.py").write_text(changed(old, new) if old else TORCH, "utf-8")
    said: list[str] = []
    assert learn.learn_numbers(path, said.append) == (name == "right")
    assert message in "\n".join(said), said
