// A Transformer that learns, in plain JavaScript: the model of the document, pre-norm or post-norm.
// Names are the document's. The sequences of a batch stand one below the other, without padding: a
// matrix has a row for each position of all of them, and `starts` says where each begins.

import { attention } from "./attention.js";
import * as autograd from "./autograd.js";
import { ways_with } from "./mistakes.js";

/** @typedef {"encoder" | "decoder"} Stack */
/** What a model has; PAD of `specials` is -1 without padding.
 *  @typedef {{ vocab: number } & Partial<typeof USUAL>} Sizes */
/** `weights` receives the attention of the decoder's last layer to the source; `first` receives
 *  that of the encoder's first layer, and what it reads.
 *  @typedef {{ weights?: Reals[], first?: { weights: Reals[], inputs: Matrix[] },
 *    writing?: boolean }} Options */
/** What a sublayer makes of its input. @typedef {(y: Matrix) => Matrix} Sublayer */

export const SPECIALS = { PAD: 0, BOS: 1, EOS: 2 };
const USUAL = {
  ...{ N: 1, d_model: 16, d_ff: 32, h: 2, seed: 0 },
  ...{ positions: true, causal: true, norms: true, residuals: true },
  norm: /** @type {"pre" | "post"} */ ("pre"),
  slip: /** @type {string | null} a mistake's name in practice/mistakes */ (null),
  Real: /** @type {Precision} */ (Float32Array),
  specials: SPECIALS,
};
const TABLE = "src_embed.embeddings.table";

/** Random numbers between 0 and 1 that follow from a seed (mulberry32). @param {number} seed */
export function generator(seed) {
  return () => {
    seed = (seed + 0x6d2b79f5) | 0;
    let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** The attentions of a layer. @type {[Stack, string[]][]} */
const STACKS = [
  ["encoder", ["self_attn"]],
  ["decoder", ["self_attn", "src_attn"]],
];

/** Fresh parameters, with the document's names. One matrix embeds and scores.
 *  @param {Required<Sizes>} sizes */
function draw_parameters({ vocab, N, d_model, d_ff, seed, norm, Real }) {
  const random = generator(seed);
  /** @type {Record<string, Matrix>} */
  const parameters = {};
  /** @param {string} name @param {number} rows @param {number} cols */
  const zeros = (name, rows, cols) => (parameters[name] = autograd.tensor(Real, rows, cols));
  /** Glorot's uniform. @param {string} name @param {number} rows @param {number} cols */
  function matrix(name, rows, cols) {
    const { data } = zeros(`${name}.weight`, rows, cols);
    const limit = Math.sqrt(6 / (rows + cols));
    for (let i = 0; i < data.length; i++) data[i] = (2 * random() - 1) * limit;
  }
  function gain_and_bias(/** @type {string} */ name) {
    zeros(`${name}.weight`, 1, d_model).data.fill(1);
    zeros(`${name}.bias`, 1, d_model);
  }
  const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
  const table = zeros(`${TABLE}.weight`, vocab, d_model).data;
  for (let i = 0; i < table.length; i++) table[i] = normal() / Math.sqrt(d_model);
  for (const [stack, attentions] of STACKS) {
    for (let n = 0; n < N; n++) {
      const layer = `${stack}.layers.${n}`;
      for (const name of attentions)
        for (const W of "qkvo") matrix(`${layer}.${name}.W_${W}`, d_model, d_model);
      matrix(`${layer}.feed_forward.W_1`, d_ff, d_model);
      zeros(`${layer}.feed_forward.W_1.bias`, 1, d_ff);
      matrix(`${layer}.feed_forward.W_2`, d_model, d_ff);
      zeros(`${layer}.feed_forward.W_2.bias`, 1, d_model);
      for (let i = 0; i <= attentions.length; i++) gain_and_bias(`${layer}.sublayer.${i}.norm`);
    }
    if (norm === "pre") gain_and_bias(`${stack}.norm`);
  }
  return parameters;
}

/** A fresh model; `moments` are Adam's two of each parameter, once there has been an update. */
export function make_model(/** @type {Sizes} */ sizes) {
  const whole = { ...USUAL, ...sizes };
  return {
    ...whole,
    parameters: draw_parameters(whole),
    ways: ways_with(whole.slip),
    step: 0,
    moments: /** @type {Record<string, { m: Reals, v: Reals }>} */ ({}),
  };
}

/** Sequences, one behind the other, on their way through a stack. */
class Pass {
  /** @param {SmallModel} model @param {Tape} tape @param {Stack} stack
   *  @param {number[][]} sequences ids */
  constructor(model, tape, stack, sequences) {
    this.model = model;
    this.tape = tape;
    this.stack = stack;
    this.ids = sequences.flat();
    this.starts = [0];
    for (const { length } of sequences)
      this.starts.push(this.starts[this.starts.length - 1] + length);
  }

  weight = (/** @type {string} */ name) => this.model.parameters[`${name}.weight`];
  /** @param {string} name of a module, which may lack the bias */
  bias = (name) => this.model.parameters[`${name}.bias`];
  /** @param {string} name @param {Matrix} x */
  linear = (name, x) => autograd.linear(this.tape, x, this.weight(name), this.bias(name));

  /** @param {boolean} still whether all stand at position 0 */
  embedded(still) {
    const { positions, ways } = this.model;
    const position = (/** @type {number} */ t) => (still ? 0 : t);
    const placed = positions && ways.positions.includes(this.stack) ? position : null;
    return autograd.embed(this.tape, this.weight(TABLE), this.ids, this.starts, placed);
  }

  normed(/** @type {string} */ name, /** @type {Matrix} */ x) {
    if (!this.model.norms) return x;
    const over_time = this.model.ways.norm_over === "time";
    const lines = over_time ? autograd.columns_of(x, this.starts) : autograd.rows_of(x);
    return autograd.layer_norm(this.tape, x, this.weight(name), this.bias(name), lines);
  }

  /** @param {string} norm its name @param {Matrix} x @param {Sublayer} f */
  sublayer(norm, x, f) {
    /** @type {Sublayer} */
    const joined = (y) => (this.model.residuals ? autograd.add(this.tape, x, y) : y);
    return this.model.norm === "pre"
      ? joined(f(this.normed(norm, x)))
      : this.normed(norm, joined(f(x)));
  }

  /** @param {string} name @param {Matrix} x what asks @param {Pass} source
   *  @param {Matrix} y what is asked @param {number} ahead @param {Reals[]} [weights] */
  attend(name, x, source, y, ahead, weights) {
    const { h, ways } = this.model;
    const [Q, K, V] = [x, y, y].map((rows, i) => this.linear(`${name}.W_${"qkv"[i]}`, rows));
    const reading = { h, queries: this.starts, keys: source.starts, ahead, ways, weights };
    return this.linear(`${name}.W_o`, attention(this.tape, Q, K, V, reading));
  }

  /** What the stack makes of them, with these attentions in each layer.
   *  @param {(layer: string, n: number) => Sublayer[]} attentions */
  through(attentions, still = false) {
    let x = this.embedded(still);
    for (let n = 0; n < this.model.N; n++) {
      const layer = `${this.stack}.layers.${n}`;
      /** @type {Sublayer} */
      const feed = (y) => {
        const hidden = this.linear(`${layer}.feed_forward.W_1`, y);
        return this.linear(`${layer}.feed_forward.W_2`, autograd.relu(this.tape, hidden));
      };
      for (const [i, f] of [...attentions(layer, n), feed].entries())
        x = this.sublayer(`${layer}.sublayer.${i}.norm`, x, f);
    }
    return this.model.norm === "pre" ? this.normed(`${this.stack}.norm`, x) : x;
  }
}

/** Logits of all target positions of all rows, one below the other, and the tape.
 *  @param {SmallModel} model @param {Pick<Row, "src" | "read">[]} rows @param {Options} options */
export function forward(model, rows, { weights, first, writing = false } = {}) {
  const { N, causal, ways, Real } = model;
  /** @type {Tape} */
  const tape = { Real, steps: [] };
  const sources = rows.map(({ src }) => src);
  const targets = rows.map(({ read }) => read);
  const encoder = new Pass(model, tape, "encoder", sources);
  const decoder = new Pass(model, tape, "decoder", targets);
  const memory = encoder.through((layer, n) => {
    const recorded = n === 0 ? first : undefined;
    return [
      (y) => {
        recorded?.inputs.push(y);
        return encoder.attend(`${layer}.self_attn`, y, encoder, y, Infinity, recorded?.weights);
      },
    ];
  });
  const ahead = causal ? ways.ahead : Infinity;
  const x = decoder.through((layer, n) => {
    const recorded = n === N - 1 ? weights : undefined;
    const name = `${layer}.src_attn`;
    return [
      (y) => decoder.attend(`${layer}.self_attn`, y, decoder, y, ahead),
      (y) =>
        ways.crosses_to === "target"
          ? decoder.attend(name, y, decoder, y, ahead, recorded)
          : decoder.attend(name, y, encoder, memory, Infinity, recorded),
    ];
  }, writing && !ways.moves);
  return { logits: autograd.linear(tape, x, decoder.weight(TABLE)), tape };
}

/** Logits (T)(V) of each row.
 *  @param {SmallModel} model @param {Pick<Row, "src" | "read">[]} rows */
export function logits_of(model, rows) {
  const vectors = vectors_of(forward(model, rows).logits);
  return rows.map(({ read }) => vectors.splice(0, read.length));
}

/** The rows of a matrix. @param {Matrix} x */
export const vectors_of = ({ data, rows, cols }) =>
  Array.from({ length: rows }, (_, i) => data.subarray(i * cols, (i + 1) * cols));

/** The token with the highest score. */
export const best = (/** @type {Numbers} */ scores) => scores.indexOf(Math.max(...scores));

/** The most probable token at each step, until EOS or `longest` tokens: ids without BOS, and the
 *  cross-attention (T)(h)(S) of the last layer.
 *  @param {SmallModel} model @param {number[]} src @param {number} longest */
export function greedy_decode(model, src, longest) {
  const { specials, ways, h } = model;
  const ids = [specials[ways.first]];
  const maps = [];
  while (ids.length <= longest && (ids.length === 1 || ids.at(-1) !== specials.EOS)) {
    const T = ids.length;
    /** @type {Reals[]} */
    const weights = [];
    const { logits } = forward(model, [{ src, read: ids }], { weights, writing: true });
    maps.push(Array.from({ length: h }, (_, head) => Array.from(weights[head * T + T - 1])));
    ids.push(best(vectors_of(logits)[T - 1]));
  }
  return { ids: ids.slice(1), weights: maps };
}
