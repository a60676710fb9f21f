// A Transformer that learns, in plain JavaScript: the model of the document, pre-norm or post-norm.
// Names are the document's. The sequences of a batch stand one below the other, without padding: a
// matrix has a row for each position of all of them, and `starts` says where each begins.

import { attention } from "./attention.js";
import * as autograd from "./autograd.js";
import { ways_with } from "./mistakes.js";

/** @import { Numbers, Precision, Tape, Tensor } from "./autograd.js" */
/** @import { Ways } from "./mistakes.js" */
/** @typedef {"encoder" | "decoder"} Stack */
/** @typedef {{ PAD: number, BOS: number, EOS: number }} Specials */
/** Ids of a source, with EOS, and of a target, with BOS and EOS.
 *  @typedef {{ src: number[], tgt: number[] }} Pair */
/** What is read of a pair, and what is predicted at each place of `read`.
 *  @typedef {{ src: number[], read: number[], predict: number[] }} Row */
/** @typedef {object} Sizes
 *  @property {number} vocab
 *  @property {number} [N]
 *  @property {number} [d_model]
 *  @property {number} [d_ff]
 *  @property {number} [h]
 *  @property {number} [seed]
 *  @property {boolean} [positions]
 *  @property {boolean} [causal]
 *  @property {boolean} [norms]
 *  @property {boolean} [residuals]
 *  @property {"pre" | "post"} [norm]
 *  @property {string | null} [slip] a mistake's name in practice/mistakes
 *  @property {Precision} [Real]
 *  @property {Specials} [specials] PAD is -1 without padding */
/** @typedef {ReturnType<typeof make_model>} Model */
/** `weights` receives the attention of the decoder's last layer to the source, or, if `first` is
 *  true, that of the encoder's first layer; `inputs` receives what the encoder's attentions read.
 *  @typedef {{ weights?: Numbers[], inputs?: Tensor[], writing?: boolean, first?: boolean }}
 *    Options */

export const SPECIALS = { PAD: 0, BOS: 1, EOS: 2 };
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
export const STACKS = [
  ["encoder", ["self_attn"]],
  ["decoder", ["self_attn", "src_attn"]],
];

/** Fresh parameters, with the document's names. One matrix embeds and scores.
 *  @param {Required<Pick<Sizes,
 *    "vocab" | "N" | "d_model" | "d_ff" | "seed" | "norm" | "Real">>} sizes */
function draw_parameters({ vocab, N, d_model, d_ff, seed, norm, Real }) {
  const random = generator(seed);
  /** @type {Record<string, Tensor>} */
  const parameters = {};
  /** @param {string} name @param {number} rows @param {number} cols */
  const zeros = (name, rows, cols) => (parameters[name] = autograd.tensor(Real, rows, cols));
  /** Glorot's uniform. @param {string} name @param {number} rows @param {number} cols */
  function matrix(name, rows, cols) {
    const { data } = zeros(`${name}.weight`, rows, cols);
    const limit = Math.sqrt(6 / (rows + cols));
    for (let i = 0; i < data.length; i++) data[i] = (2 * random() - 1) * limit;
  }
  /** @param {string} name */
  function gain_and_bias(name) {
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

/** Adam's two moments of each parameter, once there has been an update.
 *  @type {Record<string, [Numbers, Numbers]> | null} */
const no_moments = null;

/** A fresh model. @param {Sizes} sizes */
export function make_model({
  vocab,
  N = 1,
  d_model = 16,
  d_ff = 32,
  h = 2,
  seed = 0,
  positions = true,
  causal = true,
  norms = true,
  residuals = true,
  norm = "pre",
  slip = null,
  Real = Float32Array,
  specials = SPECIALS,
}) {
  const parameters = draw_parameters({ vocab, N, d_model, d_ff, seed, norm, Real });
  const parts = { positions, causal, norms, residuals, norm };
  const ways = ways_with(slip);
  return { parameters, N, h, ...parts, ways, Real, specials, step: 0, moments: no_moments };
}

/** Sequences one behind the other, and where each begins. @param {number[][]} rows */
function stacked(rows) {
  const starts = [0];
  for (const row of rows) starts.push(starts[starts.length - 1] + row.length);
  return { ids: rows.flat(), starts };
}

/** One pass of rows through a model. */
class Pass {
  /** @param {Model} model @param {Pick<Row, "src" | "read">[]} rows @param {Options} options */
  constructor(model, rows, options) {
    this.model = model;
    this.options = options;
    /** @type {Tape} */
    this.tape = { Real: model.Real, steps: [] };
    this.texts = {
      encoder: stacked(rows.map(({ src }) => src)),
      decoder: stacked(rows.map(({ read }) => read)),
    };
  }

  /** @param {string} name */
  weight = (name) => this.model.parameters[`${name}.weight`];
  /** @param {string} name */
  bias = (name) => this.model.parameters[`${name}.bias`];

  /** @param {Stack} stack */
  embedded(stack) {
    const { positions, ways } = this.model;
    const still = stack === "decoder" && this.options.writing && !ways.moves;
    /** @param {number} t */
    const position = (t) => (still ? 0 : t);
    const placed = positions && ways.positions.includes(stack);
    const { ids, starts } = this.texts[stack];
    return autograd.embed(this.tape, this.weight(TABLE), ids, starts, placed ? position : null);
  }

  /** @param {Stack} stack @param {string} name @param {Tensor} x */
  normed(stack, name, x) {
    if (!this.model.norms) return x;
    const lines =
      this.model.ways.norm_over === "time"
        ? autograd.columns_of(x, this.texts[stack].starts)
        : autograd.rows_of(x);
    return autograd.layer_norm(this.tape, x, this.weight(name), this.bias(name), lines);
  }

  /** @param {Stack} stack @param {string} name @param {Tensor} x
   *  @param {(y: Tensor) => Tensor} f */
  sublayer(stack, name, x, f) {
    /** @param {Tensor} y */
    const joined = (y) => (this.model.residuals ? autograd.add(this.tape, x, y) : y);
    return this.model.norm === "pre"
      ? joined(f(this.normed(stack, `${name}.norm`, x)))
      : this.normed(stack, `${name}.norm`, joined(f(x)));
  }

  /** @param {string} name @param {[Stack, Tensor]} from @param {[Stack, Tensor]} to
   *  @param {number} ahead @param {Numbers[]} [weights] */
  attend(name, [reader, x], [source, y], ahead, weights) {
    const { h, ways } = this.model;
    const queries = this.texts[reader].starts;
    const keys = this.texts[source].starts;
    const Q = autograd.linear(this.tape, x, this.weight(`${name}.W_q`));
    const K = autograd.linear(this.tape, y, this.weight(`${name}.W_k`));
    const V = autograd.linear(this.tape, y, this.weight(`${name}.W_v`));
    const mixed = attention(this.tape, Q, K, V, { h, queries, keys, ahead, ways, weights });
    return autograd.linear(this.tape, mixed, this.weight(`${name}.W_o`));
  }

  /** @param {string} name @param {Tensor} x */
  feed(name, x) {
    const inner = autograd.linear(
      this.tape,
      x,
      this.weight(`${name}.W_1`),
      this.bias(`${name}.W_1`),
    );
    const active = autograd.relu(this.tape, inner);
    return autograd.linear(this.tape, active, this.weight(`${name}.W_2`), this.bias(`${name}.W_2`));
  }

  /** @param {Stack} stack @param {Tensor} x */
  last_norm = (stack, x) =>
    this.model.norm === "pre" ? this.normed(stack, `${stack}.norm`, x) : x;

  /** @returns {Tensor} memory */
  encode() {
    const { weights, inputs, first } = this.options;
    let x = this.embedded("encoder");
    for (let n = 0; n < this.model.N; n++) {
      const layer = `encoder.layers.${n}`;
      x = this.sublayer("encoder", `${layer}.sublayer.0`, x, (y) => {
        inputs?.push(y);
        const recorded = first && n === 0 ? weights : undefined;
        return this.attend(
          `${layer}.self_attn`,
          ["encoder", y],
          ["encoder", y],
          Infinity,
          recorded,
        );
      });
      x = this.sublayer("encoder", `${layer}.sublayer.1`, x, (y) =>
        this.feed(`${layer}.feed_forward`, y),
      );
    }
    return this.last_norm("encoder", x);
  }

  /** @param {Tensor} memory @returns {Tensor} logits */
  decode(memory) {
    const { N, causal, ways } = this.model;
    const { weights, first } = this.options;
    const ahead = causal ? ways.ahead : Infinity;
    let x = this.embedded("decoder");
    for (let n = 0; n < N; n++) {
      const layer = `decoder.layers.${n}`;
      const recorded = !first && n === N - 1 ? weights : undefined;
      x = this.sublayer("decoder", `${layer}.sublayer.0`, x, (y) =>
        this.attend(`${layer}.self_attn`, ["decoder", y], ["decoder", y], ahead),
      );
      x = this.sublayer("decoder", `${layer}.sublayer.1`, x, (y) =>
        ways.crosses_to === "target"
          ? this.attend(`${layer}.src_attn`, ["decoder", y], ["decoder", y], ahead, recorded)
          : this.attend(
              `${layer}.src_attn`,
              ["decoder", y],
              ["encoder", memory],
              Infinity,
              recorded,
            ),
      );
      x = this.sublayer("decoder", `${layer}.sublayer.2`, x, (y) =>
        this.feed(`${layer}.feed_forward`, y),
      );
    }
    return autograd.linear(this.tape, this.last_norm("decoder", x), this.weight(TABLE));
  }
}

/** Logits of all target positions of all rows, one below the other, and the tape.
 *  @param {Model} model @param {Pick<Row, "src" | "read">[]} rows @param {Options} options */
export function forward(model, rows, options = {}) {
  const pass = new Pass(model, rows, options);
  return { logits: pass.decode(pass.encode()), tape: pass.tape };
}

/** The most probable token at each step, until EOS or `longest` tokens: ids without BOS, and the
 *  cross-attention (T)(h)(S) of the last layer.
 *  @param {Model} model @param {number[]} src @param {number} longest */
export function greedy_decode(model, src, longest) {
  const { specials, ways, h } = model;
  const ids = [specials[ways.first]];
  const maps = [];
  while (ids.length <= longest && (ids.length === 1 || ids.at(-1) !== specials.EOS)) {
    const T = ids.length;
    /** @type {Numbers[]} */
    const weights = [];
    const { logits } = forward(model, [{ src, read: ids }], { weights, writing: true });
    const last = logits.data.subarray((T - 1) * logits.cols);
    maps.push(Array.from({ length: h }, (_, head) => Array.from(weights[head * T + T - 1])));
    ids.push(last.indexOf(Math.max(...last)));
  }
  return { ids: ids.slice(1), weights: maps };
}
