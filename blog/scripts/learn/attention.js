// Equation (1) in every head, sequence by sequence, and its gradient.

import { tensor } from "./autograd.js";

/** @import { Line, Numbers, Precision, Tape, Tensor } from "./autograd.js" */
/** @import { Ways } from "./mistakes.js" */
/** What an attention reads: where the sequences of its queries and keys begin; how far a query may
 *  look beyond its own place; `weights` is filled with a row for each head and query.
 *  @typedef {{ h: number, queries: number[], keys: number[], ahead: number, ways: Ways,
 *    weights?: Numbers[] }} Reading */
/** One head of one sequence, n queries and m keys: the first numbers of its queries, keys and
 *  results, how far apart their rows are, and its weights P (n, m).
 *  @typedef {{ n: number, m: number, d: number, d_k: number, apart: number, q0: number, k0: number,
 *    o0: number, ahead: number, scale: number, P: Numbers, lines: Line[] }} Head */

/** @param {Tape} tape @param {Tensor} Q (queries, d_model) @param {Tensor} K (keys, d_model)
 *  @param {Tensor} V (keys, d_model) @param {Reading} reading
 *  @returns {Tensor} (queries, d_model) */
export function attention(tape, Q, K, V, reading) {
  const out = tensor(tape.Real, Q.rows, Q.cols);
  /** @type {Head[]} */
  const heads = [];
  for (let s = 0; s + 1 < reading.queries.length; s++) {
    for (let head = 0; head < reading.h; head++) {
      const one = head_of(tape.Real, Q.cols, reading, s, head);
      score(one, Q, K);
      softmax(one);
      mix(one, V, out);
      for (let i = 0; i < one.n; i++)
        reading.weights?.push(one.P.subarray(i * one.m, i * one.m + visible(one, i)));
      heads.push(one);
    }
  }
  tape.steps.push(() => {
    for (const one of heads) {
      const dP = mix_back(one, V, out, new tape.Real(one.n * one.m));
      softmax_back(one, dP);
      score_back(one, Q, K, dP);
    }
  });
  return out;
}

/** @param {Precision} Real @param {number} d @param {Reading} reading @param {number} s
 *  @param {number} head @returns {Head} */
function head_of(Real, d, { h, queries, keys, ahead, ways }, s, head) {
  const n = queries[s + 1] - queries[s];
  const m = keys[s + 1] - keys[s];
  const d_k = d / h;
  // without a transpose, a head's rows are whole pieces of the sequence, one after the other
  const viewed = ways.split === "view";
  const place = {
    n,
    m,
    d,
    d_k,
    ahead,
    apart: viewed ? d_k : d,
    q0: queries[s] * d + head * d_k * (viewed ? n : 1),
    k0: keys[s] * d + head * d_k * (viewed ? m : 1),
    o0: queries[s] * d + head * d_k,
    scale: ways.scale(d_k),
    P: new Real(n * m).fill(-Infinity),
  };
  const lines =
    ways.softmax_over === "queries"
      ? Array.from({ length: m }, (_, j) => ({ start: j, count: n, step: m }))
      : Array.from({ length: n }, (_, i) => ({
          start: i * m,
          count: Math.min(m, i + 1 + ahead),
          step: 1,
        }));
  return { ...place, lines };
}

/** How many keys query i sees. @param {Head} head @param {number} i */
const visible = ({ m, ahead }, i) => Math.min(m, i + 1 + ahead);

/** @param {Head} head @param {Tensor} Q @param {Tensor} K */
function score(head, Q, K) {
  const { n, m, d_k, apart, q0, k0, scale, P } = head;
  for (let i = 0; i < n; i++) {
    const end = visible(head, i);
    for (let j = 0; j < end; j++) {
      let dot = 0;
      for (let k = 0, p = q0 + i * apart, q = k0 + j * apart; k < d_k; k++)
        dot += Q.data[p++] * K.data[q++];
      P[i * m + j] = dot * scale;
    }
  }
}

/** @param {Head} head */
function softmax({ P, lines }) {
  for (const { start, count, step } of lines) {
    let highest = -Infinity;
    let total = 0;
    for (let k = 0, p = start; k < count; k++, p += step) highest = Math.max(highest, P[p]);
    for (let k = 0, p = start; k < count; k++, p += step) total += P[p] = Math.exp(P[p] - highest);
    for (let k = 0, p = start; k < count; k++, p += step) P[p] /= total;
  }
}

/** @param {Head} head @param {Tensor} V @param {Tensor} out */
function mix(head, V, out) {
  const { n, m, d, d_k, apart, k0, o0, P } = head;
  for (let i = 0, o = o0; i < n; i++, o += d) {
    const end = visible(head, i);
    for (let j = 0; j < end; j++)
      for (let k = 0, q = k0 + j * apart; k < d_k; k++)
        out.data[o + k] += P[i * m + j] * V.data[q++];
  }
}

/** @param {Head} head @param {Tensor} V @param {Tensor} out @param {Numbers} dP */
function mix_back(head, V, out, dP) {
  const { n, m, d, d_k, apart, k0, o0, P } = head;
  for (let i = 0, o = o0; i < n; i++, o += d) {
    const end = visible(head, i);
    for (let j = 0; j < end; j++) {
      const p = P[i * m + j];
      let dp = 0;
      for (let k = 0, q = k0 + j * apart; k < d_k; k++, q++) {
        dp += out.grad[o + k] * V.data[q];
        V.grad[q] += p * out.grad[o + k];
      }
      dP[i * m + j] = dp;
    }
  }
  return dP;
}

/** @param {Head} head @param {Numbers} dP becomes the gradient of the dot products */
function softmax_back({ P, lines, scale }, dP) {
  for (const { start, count, step } of lines) {
    let dot = 0;
    for (let k = 0, p = start; k < count; k++, p += step) dot += P[p] * dP[p];
    for (let k = 0, p = start; k < count; k++, p += step) dP[p] = P[p] * (dP[p] - dot) * scale;
  }
}

/** @param {Head} head @param {Tensor} Q @param {Tensor} K @param {Numbers} dS */
function score_back(head, Q, K, dS) {
  const { n, m, d_k, apart, q0, k0 } = head;
  for (let i = 0; i < n; i++) {
    const end = visible(head, i);
    for (let j = 0; j < end; j++) {
      const ds = dS[i * m + j];
      for (let k = 0, p = q0 + i * apart, q = k0 + j * apart; k < d_k; k++, p++, q++) {
        Q.grad[p] += ds * K.data[q];
        K.grad[q] += ds * Q.data[p];
      }
    }
  }
}
