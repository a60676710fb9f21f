// Attention (Section 3.2): a query is given the keys that it may see, so there is no mask.

import { dot, linear, softmax } from "./tensors.js";

/** One head, Equation (1). @param {Vector} query @param {Visible} visible @param {Part} part
 *  @param {number} [divisor] @returns {HeadOutput} */
export function attention(
  query,
  { keys, values, hidden },
  [keyStart, keyWidth, valueStart, valueWidth],
  divisor = Math.sqrt(keyWidth),
) {
  const scores = new Float64Array(keys.length).fill(-Infinity);
  keys.forEach((key, s) => {
    if (!hidden?.has(s)) scores[s] = dot(query, keyStart, key, keyStart, keyWidth) / divisor;
  });
  const weights = softmax(scores);
  const output = new Float32Array(valueWidth);
  values.forEach((value, s) => {
    for (let i = 0; i < valueWidth; i++) output[i] += weights[s] * value[valueStart + i];
  });
  return { output, weights, scores };
}

export class MultiHeadedAttention {
  /** @param {(name: string) => Tensor} weights @param {string} name @param {number} h
   *  @param {boolean} [rotary] */
  constructor(weights, name, h, rotary = false) {
    /** @param {string} matrix */
    const layer = (matrix) => ({ weight: weights(`${name}.${matrix}.weight`) });
    this.W_q = layer("W_q");
    this.W_k = layer("W_k");
    this.W_v = layer("W_v");
    this.W_o = layer("W_o");
    this.h = h;
    this.rotary = rotary;
    /** Heads that are set to zero, from 0. @type {Set<number>} */
    this.off = new Set();
    this.scaling = true; // whether scores are divided by √d_k
    /** What computes a head in place of Equation (1). @type {OwnAttention | null} */
    this.own = null;
  }

  /** Queries or keys, turned by their places if these are rotary (since_2017): of all it is `at`,
   *  or else each has its own. @param {Vectors} x @param {number} [at] */
  turned(x, at) {
    if (!this.rotary) return x;
    const width = x[0].length / this.h;
    return x.map((vector, t) =>
      vector.map((value, i) => {
        const angle = (at ?? t) * 10000 ** -(((i % width) - (i % 2)) / width);
        return i % 2
          ? vector[i - 1] * Math.sin(angle) + value * Math.cos(angle)
          : value * Math.cos(angle) - vector[i + 1] * Math.sin(angle);
      }),
    );
  }

  /** @param {Vectors} x @param {number} [at] */
  queries(x, at) {
    return this.turned(linear(x, this.W_q), at);
  }

  /** @param {Vectors} memory @param {number} [at] */
  keysValues(memory, at) {
    return { keys: this.turned(linear(memory, this.W_k), at), values: linear(memory, this.W_v) };
  }

  /** What scores are divided by. */
  get divisor() {
    return this.scaling ? Math.sqrt(this.W_k.weight.shape[0] / this.h) : 1;
  }

  /** Position t of x sees the keys and values visible[t]. weights[t][head] are its weights, and so
   *  are its scores.
   *  @param {Vectors} x @param {Visible[]} visible @param {number} [at] */
  attend(x, visible, at) {
    const queries = this.queries(x, at);
    const width = this.W_v.weight.shape[0] / this.h;
    const joined = queries.map(() => new Float32Array(this.h * width));
    /** @type {LayerWeights} */
    const weights = queries.map(() => []);
    /** @type {LayerWeights} */
    const scores = queries.map(() => []);
    for (let head = 0; head < this.h; head++)
      this.ofHead(head, queries, visible).forEach((row, t) => {
        weights[t].push(row.weights);
        scores[t].push(row.scores);
        if (!this.off.has(head)) joined[t].set(row.output, head * width);
      });
    return { output: linear(joined, this.W_o), weights, scores, queries };
  }

  /** Output and weights of every query in one head.
   *  @param {number} head @param {Vectors} queries @param {Visible[]} visible */
  ofHead(head, queries, visible) {
    const keyWidth = this.W_k.weight.shape[0] / this.h;
    const valueWidth = this.W_v.weight.shape[0] / this.h;
    /** @type {Part} */
    const part = [head * keyWidth, keyWidth, head * valueWidth, valueWidth];
    const { own } = this;
    if (own && visible.every((seen) => seen === visible[0])) return own(queries, visible[0], part);
    return queries.flatMap((query, t) =>
      own ? own([query], visible[t], part) : attention(query, visible[t], part, this.divisor),
    );
  }
}
