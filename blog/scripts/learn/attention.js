// Equation (1) in every head, sequence by sequence, and its gradient.

import { tensor } from "./autograd.js";

/** What an attention reads: where the sequences of its queries and keys begin; how far a query may
 *  look beyond its own place; `weights` is filled with a row for each head and query.
 *  @typedef {{ h: number, queries: number[], keys: number[], ahead: number, ways: Ways,
 *    weights?: Reals[] }} Reading */
/** One head of one sequence, n queries and m keys: the first numbers of its queries, keys and
 *  results, how far apart their rows are, and its weights P (n, m).
 *  @typedef {ReturnType<typeof head_of>} Head */
/** @typedef {Record<"Q" | "K" | "V" | "out", Matrix>} Tensors (positions, d_model) */

/** @param {Tape} tape @param {Matrix} Q (queries, d_model) @param {Matrix} K (keys, d_model)
 *  @param {Matrix} V (keys, d_model) @param {Reading} reading
 *  @returns {Matrix} (queries, d_model) */
export function attention(tape, Q, K, V, reading) {
  const out = tensor(tape.Real, Q.rows, Q.cols);
  const tensors = { Q, K, V, out };
  const heads = reading.queries.slice(1).flatMap((_, s) =>
    Array.from({ length: reading.h }, (_, number) => {
      const head = head_of(tape.Real, Q.cols, reading, s, number);
      attend(head, tensors);
      return head;
    }),
  );
  for (const { n, m, P, visible } of reading.weights ? heads : [])
    for (let i = 0; i < n; i++) reading.weights?.push(P.subarray(i * m, i * m + visible[i]));
  tape.steps.push(() => {
    for (const head of heads) attend_back(tape.Real, head, tensors);
  });
  return out;
}

/** @param {Precision} Real @param {number} d @param {Reading} reading @param {number} s
 *  @param {number} number of the head */
function head_of(Real, d, { h, queries, keys, ahead, ways }, s, number) {
  const n = queries[s + 1] - queries[s];
  const m = keys[s + 1] - keys[s];
  const d_k = d / h;
  // without a transpose, a head's rows are whole pieces of the sequence, one after the other
  const viewed = ways.split === "view";
  // how many keys each query sees
  const visible = Array.from({ length: n }, (_, i) => Math.min(m, i + 1 + ahead));
  /** What the softmax goes over. @type {Line[]} */
  const lines =
    ways.softmax_over === "queries"
      ? Array.from({ length: m }, (_, j) => ({ start: j, count: n, step: m }))
      : visible.map((count, i) => ({ start: i * m, count, step: 1 }));
  return {
    ...{ n, m, d, d_k, visible, lines },
    apart: viewed ? d_k : d,
    q0: queries[s] * d + number * d_k * (viewed ? n : 1),
    k0: keys[s] * d + number * d_k * (viewed ? m : 1),
    o0: queries[s] * d + number * d_k,
    scale: ways.scale(d_k),
    P: new Real(n * m).fill(-Infinity),
  };
}

/** @param {Head} head @param {Tensors} tensors */
function attend({ n, m, d, d_k, apart, q0, k0, o0, visible, scale, P, lines }, { Q, K, V, out }) {
  for (let i = 0; i < n; i++) {
    for (let j = 0, end = visible[i]; j < end; j++) {
      let dot = 0;
      for (let c = 0, q = q0 + i * apart, k = k0 + j * apart; c < d_k; c++)
        dot += Q.data[q++] * K.data[k++];
      P[i * m + j] = dot * scale;
    }
  }
  for (const { start, count, step } of lines) {
    let highest = -Infinity;
    let total = 0;
    for (let k = 0, p = start; k < count; k++, p += step) highest = Math.max(highest, P[p]);
    for (let k = 0, p = start; k < count; k++, p += step) total += P[p] = Math.exp(P[p] - highest);
    for (let k = 0, p = start; k < count; k++, p += step) P[p] /= total;
  }
  for (let i = 0; i < n; i++)
    for (let j = 0, end = visible[i]; j < end; j++)
      for (let c = 0, k = k0 + j * apart, o = o0 + i * d; c < d_k; c++)
        out.data[o++] += P[i * m + j] * V.data[k++];
}

/** @param {Tape["Real"]} Real @param {Head} head @param {Tensors} tensors */
function attend_back(Real, head, { Q, K, V, out }) {
  const { n, m, d, d_k, apart, q0, k0, o0, visible, scale, P, lines } = head;
  const dP = new Real(n * m); // the gradient of the weights, then of the dot products
  for (let i = 0; i < n; i++) {
    for (let j = 0, end = visible[i]; j < end; j++) {
      const p = P[i * m + j];
      let dp = 0;
      for (let c = 0, k = k0 + j * apart, o = o0 + i * d; c < d_k; c++, k++, o++) {
        dp += out.grad[o] * V.data[k];
        V.grad[k] += p * out.grad[o];
      }
      dP[i * m + j] = dp;
    }
  }
  for (const { start, count, step } of lines) {
    let dot = 0;
    for (let k = 0, p = start; k < count; k++, p += step) dot += P[p] * dP[p];
    for (let k = 0, p = start; k < count; k++, p += step) dP[p] = P[p] * (dP[p] - dot) * scale;
  }
  for (let i = 0; i < n; i++) {
    for (let j = 0, end = visible[i]; j < end; j++) {
      const ds = dP[i * m + j];
      for (let c = 0, q = q0 + i * apart, k = k0 + j * apart; c < d_k; c++, q++, k++) {
        Q.grad[q] += ds * K.data[k];
        K.grad[k] += ds * Q.data[q];
      }
    }
  }
}
