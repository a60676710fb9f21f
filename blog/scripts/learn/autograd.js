// Matrices, what computes with them, and what carries gradients back. A function that computes
// pushes onto the tape what takes the gradient of its result to its inputs.

import { logSoftmax, sinusoid } from "../model/tensors.js";

/** @param {Precision} Real @param {number} rows @param {number} cols @returns {Matrix} */
export const tensor = (Real, rows, cols) => ({
  rows,
  cols,
  data: new Real(rows * cols),
  grad: new Real(rows * cols),
});

/** y = x Wᵀ + b for x (n, a), W (b, a), bias (1, b).
 *  @param {Tape} tape @param {Matrix} x @param {Matrix} W @param {Matrix} [bias]
 *  @returns {Matrix} (n, b) */
export function linear(tape, x, W, bias) {
  const [n, a, b] = [x.rows, x.cols, W.rows];
  const y = tensor(tape.Real, n, b);
  const [X, M, Y] = [x.data, W.data, y.data];
  for (let i = 0; i < n; i++) {
    for (let o = 0; o < b; o++) {
      let sum = bias ? bias.data[o] : 0;
      for (let k = 0, p = i * a, q = o * a; k < a; k++) sum += X[p++] * M[q++];
      Y[i * b + o] = sum;
    }
  }
  tape.steps.push(() => {
    const [dX, dM, dY] = [x.grad, W.grad, y.grad];
    for (let i = 0; i < n; i++) {
      for (let o = 0; o < b; o++) {
        const g = dY[i * b + o];
        if (g === 0) continue;
        if (bias) bias.grad[o] += g;
        for (let k = 0, p = i * a, q = o * a; k < a; k++, p++, q++) {
          dX[p] += g * M[q];
          dM[q] += g * X[p];
        }
      }
    }
  });
  return y;
}

/** The sum of two matrices of one shape. @param {Tape} tape @param {Matrix} x @param {Matrix} y */
export function add(tape, x, y) {
  const z = tensor(tape.Real, x.rows, x.cols);
  for (let i = 0; i < z.data.length; i++) z.data[i] = x.data[i] + y.data[i];
  tape.steps.push(() => {
    for (let i = 0; i < z.grad.length; i++) {
      x.grad[i] += z.grad[i];
      y.grad[i] += z.grad[i];
    }
  });
  return z;
}

export function relu(/** @type {Tape} */ tape, /** @type {Matrix} */ x) {
  const y = tensor(tape.Real, x.rows, x.cols);
  for (let i = 0; i < y.data.length; i++) y.data[i] = Math.max(0, x.data[i]);
  tape.steps.push(() => {
    for (let i = 0; i < y.grad.length; i++) if (x.data[i] > 0) x.grad[i] += y.grad[i];
  });
  return y;
}

/** The rows of a matrix. @param {Matrix} x @returns {Line[]} */
export const rows_of = ({ rows, cols }) =>
  Array.from({ length: rows }, (_, i) => ({ start: i * cols, count: cols, step: 1 }));

/** Each feature over the rows of its sequence: what a norm over time reads. @returns {Line[]} */
export const columns_of = (/** @type {Matrix} */ { cols }, /** @type {number[]} */ starts) =>
  starts
    .slice(0, -1)
    .flatMap((start, s) =>
      Array.from({ length: cols }, (_, k) => ({
        start: start * cols + k,
        count: starts[s + 1] - start,
        step: cols,
      })),
    );

/** Write a line with mean 0 and variance 1; returns what its numbers were multiplied by.
 *  @param {Reals} from @param {Reals} to @param {Line} line @param {number} eps */
function normalise(from, to, { start, count, step }, eps) {
  let mean = 0;
  let variance = 0;
  for (let k = 0, p = start; k < count; k++, p += step) mean += from[p] / count;
  for (let k = 0, p = start; k < count; k++, p += step) variance += (from[p] - mean) ** 2 / count;
  const scale = 1 / Math.sqrt(variance + eps);
  for (let k = 0, p = start; k < count; k++, p += step) to[p] = (from[p] - mean) * scale;
  return scale;
}

/** LayerNorm of each line: x (n, d), gain and bias (1, d).
 *  @param {Tape} tape @param {Matrix} x @param {Matrix} gain @param {Matrix} bias
 *  @param {Line[]} lines @returns {Matrix} (n, d) */
export function layer_norm(tape, x, gain, bias, lines, eps = 1e-5) {
  const d = x.cols;
  const y = tensor(tape.Real, x.rows, d);
  const normal = new tape.Real(x.data.length);
  const scales = lines.map((line) => normalise(x.data, normal, line, eps));
  for (let p = 0; p < normal.length; p++)
    y.data[p] = normal[p] * gain.data[p % d] + bias.data[p % d];
  tape.steps.push(() => {
    for (const [i, { start, count, step }] of lines.entries()) {
      let sum = 0; // of the gradient of the normalised line
      let along = 0; // its part along that line
      for (let k = 0, p = start; k < count; k++, p += step) {
        gain.grad[p % d] += y.grad[p] * normal[p];
        bias.grad[p % d] += y.grad[p];
        sum += (y.grad[p] * gain.data[p % d]) / count;
        along += (y.grad[p] * gain.data[p % d] * normal[p]) / count;
      }
      for (let k = 0, p = start; k < count; k++, p += step)
        x.grad[p] += scales[i] * (y.grad[p] * gain.data[p % d] - sum - normal[p] * along);
    }
  });
  return y;
}

/** Rows of the table, times the root of d_model, plus the sinusoids of their positions.
 *  @param {Tape} tape @param {Matrix} table (V, d_model)
 *  @param {number[]} ids of all sequences, one behind the other
 *  @param {number[]} starts where each sequence begins, and where the last one ends
 *  @param {((t: number) => number) | null} position of the token t of a sequence; null adds none */
export function embed(tape, table, ids, starts, position) {
  const d = table.cols;
  const x = tensor(tape.Real, ids.length, d);
  const scale = Math.sqrt(d);
  for (let s = 0; s + 1 < starts.length; s++) {
    for (let i = starts[s]; i < starts[s + 1]; i++) {
      for (let k = 0; k < d; k++) {
        const added = position ? sinusoid(position(i - starts[s]), k, d) : 0;
        x.data[i * d + k] = table.data[ids[i] * d + k] * scale + added;
      }
    }
  }
  tape.steps.push(() => {
    for (let i = 0; i < ids.length; i++)
      for (let k = 0; k < d; k++) table.grad[ids[i] * d + k] += x.grad[i * d + k] * scale;
  });
  return x;
}

/** The smoothed cross-entropy per target; its gradient p - q is set in the logits.
 *  @param {Matrix} logits (n, V) @param {number[]} targets @param {number} eps
 *  @param {number} PAD gets no share; -1 without padding */
export function smoothed_loss(logits, targets, eps, PAD) {
  const V = logits.cols;
  const n = targets.length;
  const share = eps / (PAD < 0 ? V : V - 1);
  let loss = 0;
  for (let i = 0; i < n; i++) {
    const log_p = logSoftmax(logits.data.subarray(i * V, (i + 1) * V));
    for (let k = 0; k < V; k++) {
      const q = k === PAD ? 0 : share + (k === targets[i] ? 1 - eps : 0);
      loss -= (q * log_p[k]) / n;
      logits.grad[i * V + k] = (Math.exp(log_p[k]) - q) / n;
    }
  }
  return loss;
}
