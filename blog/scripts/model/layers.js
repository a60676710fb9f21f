// The blocks of Part 1, and the model that they make.

import { MultiHeadedAttention } from "./attention.js";
import { add, linear, sinusoid } from "./tensors.js";

/** @typedef {(name: string) => Tensor} Weights */
/** @typedef {{ table: Tensor, positions: Tensor | null }} Embedding */

export class LayerNorm {
  constructor(/** @type {Weights} */ weights, /** @type {string} */ name) {
    this.gain = weights(`${name}.weight`).data;
    this.bias = weights(`${name}.bias`).data;
  }

  forward(/** @type {Vectors} */ x) {
    return x.map((vector) => {
      const mean = vector.reduce((a, b) => a + b, 0) / vector.length;
      const variance = vector.reduce((sum, value) => sum + (value - mean) ** 2, 0) / vector.length;
      const scale = 1 / Math.sqrt(variance + 1e-5);
      return vector.map((value, i) => this.gain[i] * (value - mean) * scale + this.bias[i]);
    });
  }
}

class PositionwiseFeedForward {
  constructor(/** @type {Weights} */ weights, /** @type {string} */ name) {
    const layer = (/** @type {string} */ W) => ({
      weight: weights(`${name}.${W}.weight`),
      bias: weights(`${name}.${W}.bias`),
    });
    this.W_1 = layer("W_1");
    this.W_2 = layer("W_2");
  }

  hidden(/** @type {Vectors} */ x) {
    return linear(x, this.W_1).map((vector) => vector.map((value) => Math.max(0, value)));
  }

  forward(/** @type {Vectors} */ x) {
    return linear(this.hidden(x), this.W_2);
  }
}

class SublayerConnection {
  /** @param {Weights} weights @param {string} name @param {boolean} pre */
  constructor(weights, name, pre) {
    this.norm = new LayerNorm(weights, `${name}.norm`);
    this.pre = pre;
  }

  /** What the sublayer gets. @param {Vectors} x */
  input(x) {
    return this.pre ? this.norm.forward(x) : x;
  }

  /** What becomes of its output y. @param {Vectors} x @param {Vectors} y */
  joined(x, y) {
    return this.pre ? add(x, y) : this.norm.forward(add(x, y));
  }

  forward(/** @type {Vectors} */ x, /** @type {(x: Vectors) => Vectors} */ sublayer) {
    return this.joined(x, sublayer(this.input(x)));
  }
}

class EncoderLayer {
  /** @param {Weights} weights @param {string} name
   *  @param {Config} config @param {number} sublayers */
  constructor(weights, name, { h, norm, rotary }, sublayers = 2) {
    this.self_attn = new MultiHeadedAttention(weights, `${name}.self_attn`, h, rotary);
    this.feed_forward = new PositionwiseFeedForward(weights, `${name}.feed_forward`);
    this.sublayer = Array.from(
      { length: sublayers },
      (_, i) => new SublayerConnection(weights, `${name}.sublayer.${i}`, norm === "pre"),
    );
  }

  /** As the encoder's, and all that is computed on the way.
   *  @param {Vectors} before @param {Set<number> | null} hidden @param {number} [at] */
  traced(before, hidden, at) {
    const { self_attn, feed_forward, sublayer } = this;
    const normed = sublayer[0].input(before);
    const visible = { ...self_attn.keysValues(normed, at), hidden };
    const everyone = normed.map(() => visible);
    const { output: attended, ...looks } = self_attn.attend(normed, everyone, at);
    const between = sublayer[0].joined(before, attended);
    const inner = feed_forward.hidden(sublayer[1].input(between));
    const after = sublayer[1].joined(between, linear(inner, feed_forward.W_2));
    return { before, normed, attended, between, inner, after, keys: visible.keys, ...looks };
  }
}

class DecoderLayer extends EncoderLayer {
  /** @param {Weights} weights @param {string} name @param {Config} config */
  constructor(weights, name, config) {
    super(weights, name, config, 3);
    this.src_attn = new MultiHeadedAttention(weights, `${name}.src_attn`, config.h);
  }
}

/** @param {number} position @param {number} d_model */
export const positionalEncoding = (position, d_model) =>
  Float32Array.from({ length: d_model }, (_, i) => sinusoid(position, i, d_model));

export class Model {
  // what a reader may switch off: the positions of the source, and the mask of the decoder
  positions = true;
  mask = true;
  /** In place of `positionalEncoding`. @type {((place: number) => Vector) | undefined} */
  place;

  /** Shared matrices are in the tensors once. */
  constructor(/** @type {Config} */ config, /** @type {Record<string, Tensor>} */ tensors) {
    this.config = config;
    const unread = new Set(Object.keys(tensors));
    /** @param {...string} names of which the first that is there is taken */
    const weights = (...names) => {
      const name = names.find((known) => tensors[known]);
      if (!name) throw new Error(`the weights ${names[0]} are missing`);
      unread.delete(name);
      return tensors[name];
    };
    /** @template Layer @param {string} name
     *  @param {new (weights: Weights, name: string, config: Config) => Layer} Kind */
    const stack = (name, Kind) => ({
      layers: Array.from(
        { length: config.N },
        (_, i) => new Kind(weights, `${name}.layers.${i}`, config),
      ),
      norm: config.norm === "pre" ? new LayerNorm(weights, `${name}.norm`) : asItIs,
    });
    /** @param {string} name @param {...string} shared @returns {Embedding} */
    const embedding = (name, ...shared) => ({
      table: weights(`${name}.embeddings.table.weight`, ...shared),
      positions: config.positions === "learned" ? weights(`${name}.positions.table.weight`) : null,
    });
    const [src, tgt] = ["src_embed", "tgt_embed"].map((name) => `${name}.embeddings.table.weight`);
    this.encoder = stack("encoder", EncoderLayer);
    this.decoder = stack("decoder", DecoderLayer);
    this.src_embed = embedding("src_embed");
    this.tgt_embed = embedding("tgt_embed", src);
    this.generator = { weight: weights("generator.proj.weight", tgt, src) };
    if (unread.size)
      throw new Error(`these weights belong to no known part: ${[...unread].join(", ")}`);
  }

  /** The embeddings of ids, scaled. @param {Embedding} embedding @param {number[]} ids */
  scaled({ table }, ids) {
    const { d_model } = this.config;
    const scale = Math.sqrt(d_model);
    const row = (/** @type {number} */ id) => table.data.slice(id * d_model, (id + 1) * d_model);
    return ids.map((id) => row(id).map((value) => value * scale));
  }

  /** The same with the positions from `start` on.
   *  @param {Embedding} embedding @param {number[]} ids */
  embed(embedding, ids, start = 0) {
    const { d_model, positions } = this.config;
    const { positions: learned } = embedding;
    const scaled = this.scaled(embedding, ids);
    if (positions === "none") return scaled;
    return scaled.map((vector, t) => {
      const place = start + t;
      if (learned && place >= learned.shape[0])
        throw new Error(`only ${learned.shape[0]} positions are learned`);
      const at = learned
        ? learned.data.subarray(place * d_model)
        : (this.place?.(place) ?? positionalEncoding(place, d_model));
      return vector.map((value, i) => value + at[i]);
    });
  }

  /** The encoder's input. @param {number[]} ids */
  source(ids) {
    return this.positions ? this.embed(this.src_embed, ids) : this.scaled(this.src_embed, ids);
  }

  /** Ids of the source, EOS included: the memory, and what each layer computes.
   *  @param {number[]} ids @param {Set<number> | null} [hidden] tokens that nobody looks at */
  encode(ids, hidden = null) {
    let x = this.source(ids);
    const at = this.positions ? undefined : 0; // rotary positions, all alike
    const layers = this.encoder.layers.map((layer) => {
      const traced = layer.traced(x, hidden, at);
      x = traced.after;
      return traced;
    });
    return { memory: this.encoder.norm.forward(x), layers };
  }

  /** The attentions of all layers. @param {Kind} kind */
  heads(kind) {
    if (kind === "encoder") return this.encoder.layers.map((layer) => layer.self_attn);
    const name = kind === "decoder" ? "self_attn" : "src_attn";
    return this.decoder.layers.map((layer) => layer[name]);
  }
}

const asItIs = { forward: (/** @type {Vectors} */ x) => x };
