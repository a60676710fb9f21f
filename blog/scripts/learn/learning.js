// How the small model learns: what it reads of a pair, the loss and its gradient, Adam, and what it
// gets right.

import { smoothed_loss } from "./autograd.js";
import { PAPER } from "./mistakes.js";
import { best, forward, logits_of } from "./small_model.js";

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

/** The places of the pairs that greedy decoding gets wrong: it is right if it is right after each
 *  beginning of the true tokens. A whole model reads all beginnings in one pass; one in which a
 *  query may see beyond its own place can't. */
export function wrong_pairs(/** @type {SmallModel} */ model, /** @type {Pair[]} */ pairs) {
  const rows = batch(pairs);
  const longest = Math.max(...rows.map(({ read }) => read.length));
  const at_once = model.causal && model.ways === PAPER;
  const lengths = at_once ? [longest] : Array.from({ length: longest }, (_, t) => t + 1);
  /** @type {Set<number>} */
  const wrong = new Set();
  for (const length of lengths) {
    const first = at_once ? 0 : length - 1;
    const begun = rows.map(({ src, read }) => ({ src, read: read.slice(0, length) }));
    for (const [r, logits] of logits_of(model, begun).entries())
      if (logits.some((scores, t) => t >= first && best(scores) !== rows[r].predict[t]))
        wrong.add(r);
  }
  return [...wrong].sort((a, b) => a - b);
}
