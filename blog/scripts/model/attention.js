// Attention (Section 3.2): a query is given the keys that it may see, so there is no mask.

import { dot, linear, softmax } from "./tensors.js";

// One head: one query over the keys that it may see, all given by where their part begins.
// Equation (1). `hidden` has the places of keys that are not to be seen.
export function attention(
  query,
  keys,
  values,
  keyStart,
  keyWidth,
  valueStart,
  valueWidth,
  hidden,
  divisor = Math.sqrt(keyWidth),
) {
  const score = (key) => dot(query, keyStart, key, keyStart, keyWidth) / divisor;
  const scores = keys.map((key, s) => (hidden?.has(s) ? -Infinity : score(key)));
  const weights = softmax(scores),
    output = new Float32Array(valueWidth);
  values.forEach((value, s) => {
    for (let i = 0; i < valueWidth; i++) output[i] += weights[s] * value[valueStart + i];
  });
  return { output, weights };
}

export class MultiHeadedAttention {
  constructor(weights, name, h, rotary = false) {
    for (const W of ["W_q", "W_k", "W_v", "W_o"])
      this[W] = { weight: weights(`${name}.${W}.weight`) };
    // `off` has the heads that are set to zero, counted from 0; `scaling` says whether scores are
    // divided by √d_k; `own(head)` may give a function of all queries in place of Equation (1)
    Object.assign(this, { h, rotary, off: new Set(), scaling: true, own: null });
  }

  // Queries or keys, of which all have the place `at` or else each its own: turned by their
  // places if these are rotary (since_2017).
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

  queries(x, at) {
    return this.turned(linear(x, this.W_q), at);
  }

  keysValues(memory, at) {
    return { keys: this.turned(linear(memory, this.W_k), at), values: linear(memory, this.W_v) };
  }

  // What scores are divided by.
  get divisor() {
    return this.scaling ? Math.sqrt(this.W_k.weight.shape[0] / this.h) : 1;
  }

  // Position t of x sees the keys and values visible[t]. weights[t][head] are its weights.
  attend(x, visible, at) {
    const queries = this.queries(x, at);
    const width = this.W_v.weight.shape[0] / this.h;
    const joined = queries.map(() => new Float32Array(this.h * width));
    const weights = queries.map(() => []);
    for (let head = 0; head < this.h; head++)
      this.ofHead(head, queries, visible).forEach((row, t) => {
        weights[t].push(row.weights);
        if (!this.off.has(head)) joined[t].set(row.output, head * width);
      });
    return { output: linear(joined, this.W_o), weights };
  }

  // Output and weights of every query in one head.
  ofHead(head, queries, visible) {
    const [keyWidth, valueWidth] = [this.W_k, this.W_v].map(
      ({ weight }) => weight.shape[0] / this.h,
    );
    const places = [head * keyWidth, keyWidth, head * valueWidth, valueWidth];
    const own = this.own?.(head);
    const isShared = visible.every((seen) => seen === visible[0]);
    if (own && isShared) {
      const { keys, values, hidden } = visible[0];
      return own(queries, keys, values, ...places, hidden);
    }
    return queries.flatMap((query, t) => {
      const { keys, values, hidden } = visible[t];
      if (own) return own([query], keys, values, ...places, hidden);
      return attention(query, keys, values, ...places, hidden, this.divisor);
    });
  }
}
