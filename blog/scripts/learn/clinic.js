// A patient of the page's clinic: the small model with a mistake of practice/mistakes, and the
// tests that can be ordered. What they measure has the names and bounds of practice/examine.py. The
// tests of TESTS need a fresh model, and are made when they are ordered; `trained` needs a trained
// one, whose row is in patients.jsonl. As a worker, it makes one of TESTS.

import { logSoftmax } from "../model/tensors.js";
import { batch, gradient, update } from "./learning.js";
import { PAPER } from "./mistakes.js";
import * as small from "./small_model.js";
import * as tasks from "./tasks.js";

/** @typedef {ReturnType<typeof patient>} Fresh */
/** @typedef {{ test: string, slip: string | null, seed: number }} Order */

const { BOS, EOS } = small.SPECIALS;

const mean = (/** @type {number[]} */ list) => list.reduce((sum, x) => sum + x, 0) / list.length;
/** @param {number[][]} lists */
const norm = (lists) => Math.sqrt(lists.flat().reduce((sum, x) => sum + x * x, 0));
/** All weights, or their gradients. @param {SmallModel} model @param {"data" | "grad"} kind */
const lists_of = ({ parameters }, kind) => Object.values(parameters).map((p) => [...p[kind]]);
/** The smallest and the largest. @param {number[]} list @returns {[number, number]} */
const range = (list) => [Math.min(...list), Math.max(...list)];

/** What the model reads of pairs. @param {SmallModel} model @param {Pair[]} pairs */
const read_by = ({ ways }, pairs) => batch(pairs, { ...PAPER, reads: ways.reads });

/** Log-probabilities (T)(V) of each pair. @param {SmallModel} model @param {Pair[]} pairs */
const predict = (model, pairs) =>
  small
    .logits_of(model, read_by(model, pairs))
    .map((rows) => rows.map((scores) => [...logSoftmax(scores)]));

/** The mean loss, position t against letter t + 1, from the log-probabilities alone. */
const own_loss = (/** @type {SmallModel} */ model, /** @type {Pair[]} */ pairs) =>
  mean(predict(model, pairs).flatMap((rows, i) => rows.map((row, t) => -row[pairs[i].tgt[t + 1]])));

/** How far predictions (pairs)(T)(V) have moved, place by place. */
const moved = (/** @type {number[][][]} */ before, /** @type {number[][][]} */ after) =>
  before[0].map((_, t) =>
    Math.max(...before.flatMap((rows, i) => after[i][t].map((x, k) => Math.abs(x - rows[t][k])))),
  );

/** A fresh model with this mistake, the pairs of the tests, and pairs of equal lengths. */
export function patient(/** @type {string | null} */ slip, /** @type {number} */ seed = 0) {
  const task = tasks.make("numbers", seed);
  const { letters } = task;
  const random = small.generator(seed + 9);
  const ids = (/** @type {string} */ names) =>
    Array.from({ length: 5 }, () => letters.indexOf(names[Math.floor(random() * names.length)]));
  const strangers = Array.from({ length: 4 }, () => ({
    src: [...ids("einsdrvuhtz"), EOS],
    tgt: [BOS, ...ids("0123456789"), EOS],
  }));
  const pairs = [7, 1, 12, 4, 30, 345, 608, 917, 223, 555, 770, 836].map(
    (n) => /** @type {tasks.TextPair} */ (task.of(String(n))),
  );
  return { task, strangers, pairs, fresh: () => tasks.fresh_model(task, { seed, slip }) };
}

/** Ids of source, target and what is written. @param {SmallModel} model @param {Pair} pair */
const written = (model, { src, tgt }) => [
  src,
  tgt.slice(1),
  small.greedy_decode(model, src, tgt.length + 1).ids,
];
/** @param {number[][]} answer of `written` */
const right = ([, target, ids]) => Number(target.join() === ids.join());
/** @param {Fresh} patient @param {number[][]} answer of `written` */
const as_text = ({ task }, answer) =>
  answer.map((ids) =>
    ids
      .map((i) => task.letters[i])
      .join("")
      .replace("</s>", ""),
  );

const UNREAD = 1e-3; // a smaller change is none

/** @type {Record<string, (patient: Fresh) => Examination>} */
export const TESTS = {
  wires({ fresh, strangers }) {
    const model = fresh();
    const before = predict(model, strangers);
    const T = before[0].length;
    /** A pair of other letters. */
    const other = (/** @type {number} */ i) => strangers[(i + 1) % strangers.length];
    /** @param {(pair: Pair, i: number) => Pair} change */
    const changed = (change) => moved(before, predict(model, strangers.map(change)));
    const columns = Array.from({ length: T }, (_, u) =>
      changed(({ src, tgt }, i) => ({
        src,
        tgt: tgt.map((id, t) => (t === u ? other(i).tgt[Math.max(1, u)] : id)), // 0 is BOS
      })),
    );
    const grid = Array.from({ length: T }, (_, t) => columns.map((column) => column[t]));
    const most = (/** @type {(u: number, t: number) => boolean} */ within) =>
      Math.max(0, ...grid.flatMap((row, t) => row.filter((_, u) => within(u, t))));
    /** @type {Record<string, number>} */
    const measured = {
      future: most((u, t) => u > t),
      past: most((u, t) => u < t),
      source: Math.max(...changed(({ tgt }, i) => ({ src: other(i).src, tgt }))),
    };
    // who doesn't read it says nothing of its order
    if (measured.source > UNREAD)
      measured["source order"] = Math.max(
        ...changed(({ src, tgt }) => ({ src: [...src.slice(0, -1).reverse(), EOS], tgt })),
      );
    const turned = changed(({ src, tgt: [bos, a, b, ...rest] }) => ({
      src,
      tgt: [bos, b, a, ...rest],
    }));
    measured["target order"] = Math.max(...turned.slice(3)); // behind both
    return { measured, grid };
  },
  loss({ fresh, pairs, task }) {
    const model = fresh();
    const logits = own_loss(model, pairs);
    const guessing = Math.log(task.letters.length);
    const reported = gradient(model, pairs);
    const measured = { "first loss": logits - guessing, recomputed: reported - logits };
    return { measured, bars: { reported, logits, guessing } };
  },
  gradient({ fresh, pairs }) {
    const model = fresh();
    const before = lists_of(model, "data");
    gradient(model, pairs);
    const first = lists_of(model, "grad");
    gradient(model, pairs);
    const again = lists_of(model, "grad");
    const other = fresh();
    update(other, pairs, { lr: tasks.usual_rate(1) * other.ways.rate });
    const steps = lists_of(other, "data").map((list, i) => list.map((x, k) => x - before[i][k]));
    return {
      measured: {
        again: norm(again) / norm(first),
        without: first.filter((list) => !list.some(Boolean)).length,
        step: norm(steps) / norm(before),
      },
      bars: { once: norm(first), again: norm(again) },
    };
  },
  inventory({ fresh, strangers }) {
    const model = fresh();
    const rows = read_by(model, strangers);
    /** @type {{ weights: Reals[], inputs: Matrix[] }} */
    const first = { weights: [], inputs: [] };
    small.forward(model, rows, { first });
    const maps = first.weights.map((row) => [...row]);
    /** @param {number[]} row */
    const bits = (row) => row.reduce((sum, p) => sum + p * Math.log(Math.max(p, 1e-9)), 0);
    /** @param {number[]} x */
    const spread = (x) => Math.sqrt(mean(x.map((value) => value ** 2)) - mean(x) ** 2);
    return {
      measured: { entropy: mean(maps.map((row) => -bits(row) / Math.log(row.length))) },
      ones: {
        sums: range(maps.map((row) => row.reduce((sum, p) => sum + p, 0))),
        spreads: range(small.vectors_of(first.inputs[0]).map((x) => spread([...x]))),
      },
      grid: maps.slice(0, rows[0].src.length),
    };
  },
  heart(patient) {
    const model = patient.fresh();
    const few = patient.pairs.slice(4);
    let last = NaN;
    for (let step = 1; step <= 150; step++)
      last = update(model, few, { lr: tasks.usual_rate(step) * model.ways.rate });
    const answers = few.map((pair) => written(model, pair));
    const measured = { "heart loss": last, "by heart": mean(answers.map(right)) };
    return { measured, examples: answers.map((answer) => as_text(patient, answer)) };
  },
};

/** The share of the letters that the model, reading those before, gets right.
 *  @param {Numbers[][]} scores (pairs)(T)(V) @param {(i: number, t: number) => number} target */
const share_right = (scores, target) =>
  mean(scores.flatMap((rows, i) => rows.map((row, t) => Number(small.best(row) === target(i, t)))));

/** What a trained model shows: the last numbers of its row. */
function trained(/** @type {Fresh} */ patient, /** @type {SmallModel} */ model) {
  const pairs = patient.task.held_out.slice(0, 60);
  const answers = pairs.map((pair) => written(model, pair));
  const fed = pairs
    .map(({ src }, i) => ({ src, tgt: [BOS, ...answers[i][2]] }))
    .filter(({ tgt }) => tgt.length > 1);
  const forced = batch(pairs, { ...model.ways, neighbour: 0 });
  const others = pairs.map(({ tgt }, i) => ({ src: pairs[(i + 1) % pairs.length].src, tgt }));
  const sources = [own_loss(model, pairs), own_loss(model, others)];
  return {
    forced: share_right(small.logits_of(model, forced), (i, t) => forced[i].predict[t]),
    exact: mean(answers.map(right)),
    swap: sources[1] - sources[0],
    "fed back": share_right(predict(model, fed), (i, t) => fed[i].tgt[t + 1]),
    sources,
    examples: answers.slice(0, 5).map((answer) => as_text(patient, answer)),
  };
}

/** A training with a mistake: its losses, in stretches, and what the trained model shows.
 *  @param {string | null} slip @param {number} seed @param {number} stretches */
export function row(slip, seed, stretches) {
  const run = tasks.training({ ...tasks.WHOLE, task: "numbers", seed, slip });
  const losses = tasks.losses_of(run, stretches);
  return { slip, seed, losses, ...trained(patient(slip, seed), run.model) };
}

globalThis.onmessage = (/** @type {MessageEvent<Order>} */ { data: { test, slip, seed } }) =>
  postMessage(TESTS[test](patient(slip, seed)));
