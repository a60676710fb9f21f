"""The small model that learns on the page: gradients are PyTorch's, and lessons can be tried."""

import contextlib
import json
import random
from collections.abc import Iterator

import pytest
import torch

import the_annotated_transformer as tat
from blog import editions, page
from practice import examine
from practice.mistakes import CATALOGUE, HEALTHY, made
from tests.helpers import node

RUN = """
import * as clinic from "./learn/clinic.js";
import * as learning from "./learn/learning.js";
import { CHANGES } from "./learn/mistakes.js";
import { greedy_decode, make_model } from "./learn/small_model.js";
import * as tasks from "./learn/tasks.js";
const Real = asked.double ? Float64Array : Float32Array;
"""
GRADIENT = """
const model = make_model({ ...asked.sizes, Real });
for (const [name, numbers] of Object.entries(asked.weights)) {
  model.parameters[name].data.set(numbers);
}
const options = { smoothing: asked.smoothing, shift: asked.shift };
const loss = learning.gradient(model, asked.pairs, options);
const named = Object.entries(model.parameters);
const gradients = Object.fromEntries(named.map(([name, p]) => [name, Array.from(p.grad)]));
const losses = Array.from({ length: 5 }, (_, u) => {
  const lr = learning.rate(u + 1, asked.sizes.d_model, 1, 10);
  return learning.update(model, asked.pairs, { ...options, lr });
});
console.log(JSON.stringify({ loss, gradients, losses }));
"""
TRAINING = """
const task = tasks.make(asked.task, asked.seed);
const model = make_model({ vocab: task.letters.length, ...asked });
let loss = 0;
for (let u = 1; u <= asked.updates; u++) {
  const lr = learning.rate(u, 16, 0.7, 100) * Math.min(1, 2 * (1 - u / asked.updates));
  loss = learning.update(model, task.batch(8), { lr, shift: asked.shift });
}
const exact = (pairs) => 1 - learning.wrong_pairs(model, pairs).length / pairs.length;
const some = task.held_out.slice(0, 20);
const free = some.filter(({ src, tgt }) =>
  greedy_decode(model, src, 12).ids.join() === tgt.slice(1).join());
const written = greedy_decode(model, task.held_out[0].src, 12).ids;
console.log(JSON.stringify({
  exact: exact(task.held_out), loss, written,
  some: exact(some), free: free.length / some.length,
}));
"""


def learner(script: str, **asked) -> dict:
    return node(RUN + script, asked)


@pytest.fixture
def double_precision() -> Iterator[None]:
    """Numbers of 64 bits, also for positions and targets."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("double_precision")
def test_gradients_and_updates_are_pytorchs():
    """Of every parameter; catches an error in any backward pass, and another Adam."""
    V, N, h, d_model = 14, 2, 4, 32
    draw = random.Random(0)
    model = tat.make_model(V, V, N, d_model, 2 * d_model, h, 0.0, norm="pre", tie="all")
    named = dict(model.named_parameters())
    with torch.no_grad():
        for p in named.values():  # gains and biases, too, are no longer what they start as
            p.add_(0.2 * torch.randn_like(p))

    def ids():
        return draw.choices(range(4, V), k=draw.randint(1, 8))

    pairs = [tat.Pair([*ids(), tat.EOS], [tat.BOS, *ids(), tat.EOS]) for _ in range(7)]
    twin = learner(
        GRADIENT, double=True, smoothing=0.1, shift=True,
        sizes={"vocab": V, "N": N, "d_model": d_model, "d_ff": 2 * d_model, "h": h},
        weights={name: p.flatten().tolist() for name, p in named.items()},
        pairs=[pair._asdict() for pair in pairs],
    )  # fmt: skip
    batch = tat.make_batch(pairs)

    def loss() -> torch.Tensor:
        logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        q = tat.smoothed_targets(batch.tgt_y, V, 0.1)
        return -(q * logits.log_softmax(-1)).sum() / batch.ntokens

    loss().backward()
    assert twin["loss"] == pytest.approx(loss().item(), rel=1e-10)
    assert twin["gradients"].keys() == named.keys()
    for name, p in named.items():
        ours = torch.tensor(twin["gradients"][name]).view_as(p)
        assert (ours - p.grad).norm() <= 1e-10 * p.grad.norm(), name
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step, theirs in enumerate(twin["losses"], 1):
        adam.param_groups[0]["lr"] = tat.rate(step, d_model, 1, 10)
        adam.zero_grad()
        now = loss()
        assert theirs == pytest.approx(now.item(), rel=1e-8), step
        now.backward()
        adam.step()


def test_it_learns_what_it_is_asked_freely_and_nothing_without_the_shift():
    """Not with the true letters before it, which a model without the mask reads ahead in."""
    copying = {"task": "copy", "seed": 0}
    assert learner(TRAINING, **copying, updates=500, shift=True)["exact"] >= 0.95
    ahead = learner(TRAINING, **copying, updates=200, shift=True, causal=False)
    assert ahead["some"] == ahead["free"] and ahead["loss"] < 1
    unshifted = learner(TRAINING, **copying, updates=200, shift=False)
    assert unshifted["loss"] < 0.1 and unshifted["exact"] < 0.05
    assert set(unshifted["written"]) == {1}  # `<s>` for ever


def test_what_is_held_out_is_never_learned_from():
    tasks = learner(
        """const found = {};
        for (const name of Object.keys(tasks.TASKS)) {
          const task = tasks.make(name, 3);
          const held = new Set(task.held_out.map((pair) => pair.source));
          const known = (pair) => held.has(pair.source);
          found[name] = [held.size, task.batch(4000).filter(known).length];
        }
        found.german = [0, 1, 21, 101, 345, 999].map(tasks.german_number);
        console.log(JSON.stringify(found));"""
    )
    german = tasks.pop("german")
    assert tasks["numbers"][0] == 180
    assert all(count > 140 and known == 0 for count, known in tasks.values())
    assert german == [tat.german_number(n) for n in (0, 1, 21, 101, 345, 999)]


def test_without_warmup_the_rate_is_never_higher_than_with_it():
    """Its height is a choice of its own; a tenfold peak would be another experiment."""
    rates = learner(
        """const rates = (change) => {
             const run = tasks.training({ ...tasks.WHOLE, task: "copy", seed: 0, ...change });
             return Array.from({ length: 120 }, () => run.step()[2]); };
           console.log(JSON.stringify([{}, { warmup: false }, { rate: 10 }].map(rates)));"""
    )
    usual, without, high = (torch.tensor(row) for row in rates)
    assert usual.max() == without[0] == without.max()
    assert usual[0] == pytest.approx(usual.max() / 100)
    assert torch.equal(usual[100:], without[100:]) and torch.allclose(high, 10 * usual)


def test_a_model_that_was_trained_beforehand_can_be_trained_again():
    """Its row begins as the training does; rows are of settings on offer, and none comes twice."""
    lines = (page.BLOG / "learned.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    kinds = {json.dumps([row["task"], row["seed"], row["change"]]) for row in rows}
    assert len(kinds) == len(rows) >= 20
    panel = learner(
        """import { PARTS, TASKS } from "./views/trainer_screen.js";
           const keys = PARTS.map(([key]) => key), names = Object.keys(TASKS);
           console.log(JSON.stringify({ keys, names, tasks: Object.keys(tasks.TASKS) }));"""
    )
    assert {*panel["names"]} == {*panel["tasks"]} == {row["task"] for row in rows}
    assert {key for row in rows for key in row["change"]} <= {*panel["keys"], "h", "rate"}
    first_rows = [row for row in rows if row["task"] == "copy" or not row["change"]]
    losses = learner(
        """const first = ({ task, seed, change }) => {
             const run = tasks.training({ ...tasks.WHOLE, ...change, task, seed });
             const length = Math.round(run.total / asked.stretches);
             return Array.from({ length }, () => run.step()[1]).reduce((a, b) => a + b) / length; };
           console.log(JSON.stringify(asked.rows.map(first)));""",
        rows=first_rows,
        stretches=len(first_rows[0]["losses"]),
    )
    assert losses == pytest.approx([row["losses"][0] for row in first_rows], abs=0.001)
    assert len(set(losses)) > 5


ON_PAGE = {name: m for name, m in CATALOGUE.items() if m.label and m.trains}
IN_THE_GRADIENT = [name for name, m in ON_PAGE.items() if m.kind not in ("schedule", "adam")]


def test_a_mistake_on_the_page_is_that_of_the_catalogue():
    """Loss and gradient are the document's with the same mistake, and not a healthy model's."""
    V = 14
    draw = random.Random(0)
    models = []
    expected = []

    def letters(k):
        return draw.choices(range(4, V), k=k)

    pairs = [tat.Pair([*letters(6), tat.EOS], [tat.BOS, *letters(5), tat.EOS]) for _ in range(5)]
    for name in [None, *IN_THE_GRADIENT]:
        with contextlib.nullcontext() if name is None else made(name):
            trainer = tat.Trainer(tat.Config(**vars(HEALTHY) | {"N": 2}).make_model(V), HEALTHY)
            named = dict(trainer.model.named_parameters())
            weights = {key: p.flatten().tolist() for key, p in named.items()}
            loss = trainer.gradient(pairs)
        grads = {key: torch.zeros_like(p) if p.grad is None else p.grad for key, p in named.items()}
        expected.append((loss, grads))
        sizes = {"vocab": V, "N": 2, "d_model": 16, "d_ff": 32, "h": 2, "slip": name}
        models.append({"slip": name, "weights": weights, "sizes": sizes})
    results = learner(
        """const one = ({ sizes, weights }) => {
             const model = make_model({ ...sizes, Real });
             const named = Object.entries(model.parameters);
             for (const [name, p] of named) p.data.set(weights[name]);
             const loss = learning.gradient(model, asked.pairs);
             const grads = named.map(([name, p]) => [name, Array.from(p.grad)]);
             return [loss, Object.fromEntries(grads)];
           };
           console.log(JSON.stringify(asked.models.map(one)));""",
        double=True, models=models, pairs=[pair._asdict() for pair in pairs],
    )  # fmt: skip
    assert len(IN_THE_GRADIENT) == 15
    for model, (loss, grads), (ours, theirs) in zip(models, expected, results, strict=True):
        # the document's trainer divides by all six
        fewer = 6 / 5 if model["slip"] in ("shift_by_two", "eos_cut_off") else 1
        assert ours == pytest.approx(fewer * loss, rel=1e-4), model["slip"]
        for key, grad in grads.items():
            near = torch.tensor(theirs[key]).view_as(grad)
            assert (near - fewer * grad).norm() <= 1e-3 * grad.norm() + 1e-6, (model["slip"], key)


def test_each_patient_is_found_by_the_test_that_its_entry_names():
    """And a healthy one by none, of any seed."""
    names = {name: CATALOGUE[name].seen_by for name in CATALOGUE if CATALOGUE[name].label}
    cheap = ["wires", "loss", "gradient", "inventory"]
    orders = [(name, test, 0) for name, test in names.items()] + [
        (None, test, seed) for test in cheap for seed in (0, 1)
    ]
    result = learner(
        """const values = ([slip, test, seed]) =>
             clinic.TESTS[test](clinic.patient(slip, seed)).measured;
           const ones = (slip) => clinic.TESTS.inventory(clinic.patient(slip)).ones;
           console.log(JSON.stringify({ slips: Object.keys(CHANGES),
             found: asked.orders.map(values), ones: asked.slips.map(ones) }));""",
        orders=[*orders, (None, "heart", 0)],
        slips=(slips := [None, "no_causal_mask", "softmax_over_queries", "norm_over_time"]),
    )  # fmt: skip
    assert set(result["slips"]) == set(names)
    for slip, ones in zip(
        slips, result["ones"], strict=True
    ):  # the wires of these three look alike
        odd = [key for key, (low, high) in ones.items() if low < 0.9 or high > 1.1]
        expected = {"softmax_over_queries": ["sums"], "norm_over_time": ["spreads"]}
        assert odd == expected.get(slip, []), slip
    for (name, test, _), values in zip([*orders, (None, "heart", 0)], result["found"], strict=True):
        ill = [key for key, value in values.items() if examine.Finding(key, value).ill]
        tests = {key: examine.TESTS[key].exam for key in values}
        assert all(exam == test and key in editions.CLINIC_TESTS for key, exam in tests.items())
        assert bool(ill) == (name is not None), (name, test, values)
        if test == "wires":
            assert ("source order" in values) == (values["source"] > examine.MOVED), name


def test_a_patient_was_trained_with_its_mistake():
    """Every mistake has a row with each seed, and a healthy one; it begins as the training does."""
    lines = (page.BLOG / "patients.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    seeds = {row["seed"] for row in rows}
    names = [None, *(m.name for m in CATALOGUE.values() if m.label)]
    wanted = {(name, seed) for seed in seeds for name in names}
    assert {(row["slip"], row["seed"]) for row in rows} == wanted and len(rows) == len(wanted)
    assert all(row["exact"] > 0.9 for row in rows if row["slip"] is None)
    useless = ("no_causal_mask", "heads_split_by_view")
    assert all(row["exact"] < 0.1 for row in rows if row["slip"] in useless)
    first = [row for row in rows if row["seed"] == 0]
    some_rows = [row for row in first if row["slip"] in (None, "norm_over_time", "rate_too_high")]
    losses = learner(
        """const first = ({ slip, seed }) => {
             const run = tasks.training({ ...tasks.WHOLE, task: "numbers", seed, slip });
             return Array.from({ length: 42 }, () => run.step()[1]).reduce((a, b) => a + b) / 42; };
           console.log(JSON.stringify(asked.rows.map(first)));""",
        rows=some_rows,
    )  # fmt: skip
    assert losses == pytest.approx([row["losses"][0] for row in some_rows], abs=0.02)
    assert len(set(losses)) == 3
