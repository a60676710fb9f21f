// The blocks of Part 1, and the model that they make.

import { MultiHeadedAttention } from "./attention.js";
import { add, linear } from "./tensors.js";

class LayerNorm {
  constructor(weights, name, eps = 1e-5) {
    Object.assign(this, {
      gain: weights(name + ".weight").data,
      bias: weights(name + ".bias").data,
      eps,
    });
  }

  forward(x) {
    return x.map((vector) => {
      const mean = vector.reduce((a, b) => a + b, 0) / vector.length;
      const variance = vector.reduce((sum, value) => sum + (value - mean) ** 2, 0) / vector.length;
      const scale = 1 / Math.sqrt(variance + this.eps);
      return vector.map((value, i) => this.gain[i] * (value - mean) * scale + this.bias[i]);
    });
  }
}

class PositionwiseFeedForward {
  constructor(weights, name) {
    const layer = (W) => ({
      weight: weights(`${name}.${W}.weight`),
      bias: weights(`${name}.${W}.bias`),
    });
    Object.assign(this, { W_1: layer("W_1"), W_2: layer("W_2") });
  }

  hidden(x) {
    return linear(x, this.W_1).map((vector) => vector.map((value) => Math.max(0, value)));
  }

  forward(x) {
    return linear(this.hidden(x), this.W_2);
  }
}

class SublayerConnection {
  constructor(weights, name, pre) {
    Object.assign(this, { norm: new LayerNorm(weights, name + ".norm"), pre });
  }

  forward(x, sublayer) {
    return this.pre
      ? add(x, sublayer(this.norm.forward(x)))
      : this.norm.forward(add(x, sublayer(x)));
  }
}

class Layer {
  // of the encoder, or of the decoder, which has one attention more
  constructor(weights, name, { h, norm, rotary }, decoder) {
    const count = decoder ? 3 : 2;
    this.self_attn = new MultiHeadedAttention(weights, name + ".self_attn", h, rotary);
    if (decoder) this.src_attn = new MultiHeadedAttention(weights, name + ".src_attn", h);
    this.feed_forward = new PositionwiseFeedForward(weights, name + ".feed_forward");
    this.sublayer = Array.from(
      { length: count },
      (_, i) => new SublayerConnection(weights, `${name}.sublayer.${i}`, norm === "pre"),
    );
  }
}

export function positionalEncoding(position, d_model) {
  return Float32Array.from({ length: d_model }, (_, i) => {
    const angle = position * Math.exp((-(i - (i % 2)) * Math.log(10000)) / d_model);
    return i % 2 ? Math.cos(angle) : Math.sin(angle);
  });
}

export class Model {
  // config: N, h, norm, positions, rotary, d_model; tensors: as readTensors gives them. Shared
  // matrices are there once.
  constructor(config, tensors) {
    const unread = new Set(Object.keys(tensors));
    const weights = (name) => {
      if (!tensors[name]) throw new Error(`the weights ${name} are missing`);
      unread.delete(name);
      return tensors[name];
    };
    const either = (...names) => weights(names.find((name) => tensors[name]) ?? names[0]);
    const stack = (name, decoder) => ({
      layers: Array.from(
        { length: config.N },
        (_, i) => new Layer(weights, `${name}.layers.${i}`, config, decoder),
      ),
      norm: config.norm === "pre" ? new LayerNorm(weights, name + ".norm") : { forward: (x) => x },
    });
    const [src, tgt] = ["src_embed", "tgt_embed"].map((name) => name + ".embeddings.table.weight");
    const learned = config.positions === "learned";
    const embed = (name, table) => ({
      table,
      positions: learned ? weights(name + ".positions.table.weight") : null,
    });
    Object.assign(this, {
      config,
      encoder: stack("encoder", false),
      decoder: stack("decoder", true),
      // what a reader may switch off: the positions of the source, and the mask of the decoder
      positions: true,
      mask: true,
    });
    this.src_embed = embed("src_embed", weights(src));
    this.tgt_embed = embed("tgt_embed", either(tgt, src));
    this.generator = { weight: either("generator.proj.weight", tgt, src) };
    if (unread.size)
      throw new Error(`these weights belong to no known part: ${[...unread].join(", ")}`);
  }

  // The embeddings of ids, scaled.
  scaled({ table }, ids) {
    const { d_model } = this.config;
    const scale = Math.sqrt(d_model);
    const row = (id) => table.data.slice(id * d_model, (id + 1) * d_model);
    return ids.map((id) => row(id).map((value) => value * scale));
  }

  // The same with the positions from `start` on, or with those in `order`.
  embed(embedding, ids, start = 0, order = null) {
    const { d_model } = this.config;
    const { positions } = embedding;
    const scaled = this.scaled(embedding, ids);
    if (this.config.positions === "none") return scaled;
    return scaled.map((vector, t) => {
      const place = order ? order[t] : start + t;
      if (positions && place >= positions.shape[0])
        throw new Error(`only ${positions.shape[0]} positions are learned`);
      const at = positions
        ? positions.data.subarray(place * d_model)
        : (this.place?.(place) ?? positionalEncoding(place, d_model));
      return vector.map((value, i) => value + at[i]);
    });
  }

  // The encoder's input.
  source(ids, order = null) {
    return this.positions
      ? this.embed(this.src_embed, ids, 0, order)
      : this.scaled(this.src_embed, ids);
  }

  // Ids of the source, EOS included: the memory, and the weights of every layer, position and
  // head. Tokens may have the positions of others (`order`) and be `hidden`, so that nobody looks
  // at them.
  encode(ids, { order = null, hidden = null } = {}) {
    let x = this.source(ids, order);
    const at = this.positions ? undefined : 0; // rotary positions, all alike
    const weights = [];
    for (const { self_attn, feed_forward, sublayer } of this.encoder.layers) {
      x = sublayer[0].forward(x, (y) => {
        const all = { ...self_attn.keysValues(y, at), hidden };
        const visible = y.map(() => all);
        const attended = self_attn.attend(y, visible, at);
        weights.push(attended.weights);
        return attended.output;
      });
      x = sublayer[1].forward(x, (y) => feed_forward.forward(y));
    }
    return { memory: this.encoder.norm.forward(x), weights, hidden };
  }

  heads(kind) {
    // the attentions of all layers: "encoder", "decoder" or "cross"
    if (kind === "encoder") return this.encoder.layers.map((layer) => layer.self_attn);
    return this.decoder.layers.map((layer) =>
      kind === "decoder" ? layer.self_attn : layer.src_attn,
    );
  }
}
