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
    // divided by √d_k; `own(head)` may give a function for Equation (1)
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
    const [keyWidth, valueWidth] = [this.W_k, this.W_v].map(
      ({ weight }) => weight.shape[0] / this.h,
    );
    const weights = [],
      joined = this.queries(x, at).map((query, t) => {
        const together = new Float32Array(this.h * valueWidth),
          { keys, values, hidden } = visible[t];
        weights.push(
          Array.from({ length: this.h }, (_, head) => {
            const [a, b] = [head * keyWidth, head * valueWidth];
            const found = (this.own?.(head) || attention)(
              query,
              keys,
              values,
              a,
              keyWidth,
              b,
              valueWidth,
              hidden,
              this.divisor,
            );
            if (!this.off.has(head)) together.set(found.output, b);
            return found.weights;
          }),
        );
        return together;
      });
    return { output: linear(joined, this.W_o), weights };
  }
}
