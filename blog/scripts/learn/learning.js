// How the small model learns: what it reads of a pair, the loss and its gradient, Adam, and what it
// gets right.

import { smoothed_loss } from "./autograd.js";
import { PAPER } from "./mistakes.js";
import { forward } from "./small_model.js";

/** What is read and what is predicted. @param {Pair[]} pairs @param {Ways} ways @returns {Row[]} */
export const batch = (pairs, ways = PAPER) =>
  pairs.map((pair, i) => {
    const src = ways.reads === "target" ? pair.tgt.slice(1) : pair.src;
    const whole = pairs[(i + ways.neighbour) % pairs.length].tgt;
    const tgt = ways.ends ? whole : whole.slice(0, -1);
    const read = tgt.slice(0, Math.min(-1, -ways.shift));
    return { src, read, predict: ways.shift ? tgt.slice(ways.shift) : read };
  });

/** Set the gradient of the mean loss per target token; returns that loss.
 *  @param {SmallModel} model @param {Pair[]} pairs */
export function gradient(model, pairs, { smoothing = 0, shift = true } = {}) {
  if (model.ways.clears) for (const p of Object.values(model.parameters)) p.grad.fill(0);
  const rows = batch(pairs, shift ? model.ways : { ...PAPER, shift: 0 });
  const { logits, tape } = forward(model, rows);
  const targets = rows.flatMap(({ predict }) => predict);
  const loss = smoothed_loss(logits, targets, smoothing, model.specials.PAD);
  while (tape.steps.length) tape.steps.pop()?.();
  return loss;
}

/** Equation (3).
 *  @param {number} step @param {number} d_model @param {number} factor @param {number} warmup */
export const rate = (step, d_model, factor, warmup) =>
  factor * d_model ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

/** One step of Adam on some pairs; returns the loss before it.
 *  @param {SmallModel} model @param {Pair[]} pairs
 *  @param {{ lr: number, smoothing?: number, shift?: boolean }} options */
export function update(model, pairs, { lr, smoothing = 0, shift = true }) {
  const loss = gradient(model, pairs, { smoothing, shift });
  const [beta1, beta2, eps] = [0.9, 0.98, 1e-9];
  const t = ++model.step;
  for (const [name, p] of Object.entries(model.parameters)) {
    const zeros = () => new model.Real(p.data.length);
    const { m, v } = (model.moments[name] ??= { m: zeros(), v: zeros() });
    for (let i = 0; i < m.length; i++) {
      m[i] = beta1 * m[i] + (1 - beta1) * p.grad[i];
      v[i] = beta2 * v[i] + (1 - beta2) * p.grad[i] ** 2;
      p.data[i] -= (lr * (m[i] / (1 - beta1 ** t))) / (Math.sqrt(v[i] / (1 - beta2 ** t)) + eps);
    }
  }
  return loss;
}

/** The rows of which the model, at place `from` or later, predicts another token.
 *  @param {SmallModel} model @param {Row[]} rows @param {number} from @param {Set<number>} wrong */
function add_wrong(model, rows, from, wrong) {
  const { data, cols } = forward(model, rows).logits;
  let place = 0;
  for (const [r, { predict }] of rows.entries()) {
    for (const [t, target] of predict.entries()) {
      const row = data.subarray(place * cols, ++place * cols);
      if (t >= from && row.indexOf(Math.max(...row)) !== target) wrong.add(r);
    }
  }
}

/** The places of the pairs that greedy decoding gets wrong: it is right if it is right after each
 *  beginning of the true tokens. */
export function wrong_pairs(/** @type {SmallModel} */ model, /** @type {Pair[]} */ pairs) {
  /** @type {Set<number>} */
  const wrong = new Set();
  const rows = batch(pairs);
  const longest = Math.max(...rows.map(({ read }) => read.length));
  if (model.causal && model.ways === PAPER) {
    add_wrong(model, rows, 0, wrong); // all beginnings at once
  } else {
    for (let t = 0; t < longest; t++) {
      const begun = rows.map(({ src, read, predict }) => ({
        src,
        read: read.slice(0, t + 1),
        predict: predict.slice(0, t + 1),
      }));
      add_wrong(model, begun, t, wrong);
    }
  }
  return [...wrong].sort((a, b) => a - b);
}
