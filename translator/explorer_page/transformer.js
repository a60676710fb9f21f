// The Transformer of the document in plain JavaScript: one sentence at a time, no training, nothing
// to install.
//
// Names are those of the document. A sequence of vectors is an array of Float32Array, one for each
// position; there is no batch, so there is no padding and no mask: a query is simply given the keys
// that it may see. Every attention returns its weights as well. `await Translator.load(content)`
// takes what `model_content` of explorer.py writes.

const Transformer = (() => {
  "use strict";

  const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];
  const MORE = 50; // a translation may be this much longer than its source
  const [BEAM, ALPHA] = [5, 1.8];
  const LONGEST = 150; // tokens of a source: with more, a search would take too long

  // --- numbers ---

  // All 65,536 numbers of 16 bits: a sign, five bits of exponent, ten of fraction.
  const halves = () =>
    Float32Array.from({ length: 65536 }, (_, bits) => {
      const sign = bits >> 15 ? -1 : 1,
        exponent = (bits >> 10) & 31,
        fraction = bits & 1023;
      if (exponent === 31) return fraction ? NaN : sign * Infinity;
      return (
        sign *
        (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : 2 ** -14 * (fraction / 1024))
      );
    });

  // Weights in float16 as {name: {shape, data}}. bytes: the lower byte of every number, then the
  // upper one of every number.
  function readTensors(shapes, bytes) {
    const half = bytes.length / 2,
      HALVES = halves();
    let at = 0;
    return Object.fromEntries(
      Object.entries(shapes).map(([name, shape]) => {
        const data = new Float32Array(shape.reduce((a, b) => a * b, 1));
        for (let i = 0; i < data.length; i++, at++)
          data[i] = HALVES[bytes[at] | (bytes[half + at] << 8)];
        return [name, { shape, data }];
      }),
    );
  }

  // The bytes of what was compressed by gzip and written in base64.
  async function unpack(packed) {
    const text = atob(packed),
      bytes = new Uint8Array(text.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = text.charCodeAt(i);
    const stream = new Response(bytes).body.pipeThrough(new DecompressionStream("gzip"));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  }

  function dot(a, i, b, j, n) {
    // of n entries, from a[i] and b[j] on; four sums, so that no product waits for another
    let s0 = 0,
      s1 = 0,
      s2 = 0,
      s3 = 0,
      k = 0;
    for (; k + 3 < n; k += 4) {
      s0 += a[i + k] * b[j + k];
      s1 += a[i + k + 1] * b[j + k + 1];
      s2 += a[i + k + 2] * b[j + k + 2];
      s3 += a[i + k + 3] * b[j + k + 3];
    }
    for (; k < n; k++) s0 += a[i + k] * b[j + k];
    return s0 + s1 + s2 + s3;
  }

  const add = (x, y) => x.map((vector, t) => vector.map((value, i) => value + y[t][i]));

  // x W^T + b for every position.
  function linear(
    x,
    {
      weight: {
        shape: [outputs, inputs],
        data,
      },
      bias,
    },
  ) {
    return x.map((vector) => {
      const y = new Float32Array(outputs);
      for (let o = 0; o < outputs; o++)
        y[o] = dot(data, o * inputs, vector, 0, inputs) + (bias ? bias.data[o] : 0);
      return y;
    });
  }

  function softmax(scores) {
    const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
    const powers = Float64Array.from(scores, (score) => Math.exp(score - largest));
    const sum = powers.reduce((a, b) => a + b, 0);
    return powers.map((power) => power / sum);
  }

  function logSoftmax(scores) {
    const largest = scores.reduce((a, b) => Math.max(a, b), -Infinity);
    const sum = scores.reduce((total, score) => total + Math.exp(score - largest), 0);
    return Float64Array.from(scores, (score) => score - largest - Math.log(sum));
  }

  // --- the blocks of Part 1 ---

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
        const variance =
          vector.reduce((sum, value) => sum + (value - mean) ** 2, 0) / vector.length;
        const scale = 1 / Math.sqrt(variance + this.eps);
        return vector.map((value, i) => this.gain[i] * (value - mean) * scale + this.bias[i]);
      });
    }
  }

  // One head: one query over the keys that it may see, all given by where their part begins.
  // Equation (1). `hidden` has the places of keys that are not to be seen.
  function attention(query, keys, values, keyStart, keyWidth, valueStart, valueWidth, hidden) {
    const score = (key) => dot(query, keyStart, key, keyStart, keyWidth) / Math.sqrt(keyWidth);
    const scores = keys.map((key, s) => (hidden?.has(s) ? -Infinity : score(key)));
    const weights = softmax(scores),
      output = new Float32Array(valueWidth);
    values.forEach((value, s) => {
      for (let i = 0; i < valueWidth; i++) output[i] += weights[s] * value[valueStart + i];
    });
    return { output, weights };
  }

  class MultiHeadedAttention {
    constructor(weights, name, h, rotary = false) {
      for (const W of ["W_q", "W_k", "W_v", "W_o"])
        this[W] = { weight: weights(`${name}.${W}.weight`) };
      // `off` has the heads that are set to zero, counted from 0; `own(head)` may give a function
      // for Equation (1)
      Object.assign(this, { h, rotary, off: new Set(), own: null });
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

  function positionalEncoding(position, d_model) {
    return Float32Array.from({ length: d_model }, (_, i) => {
      const angle = position * Math.exp((-(i - (i % 2)) * Math.log(10000)) / d_model);
      return i % 2 ? Math.cos(angle) : Math.sin(angle);
    });
  }

  class Model {
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
        norm:
          config.norm === "pre" ? new LayerNorm(weights, name + ".norm") : { forward: (x) => x },
      });
      const [src, tgt] = ["src_embed", "tgt_embed"].map(
        (name) => name + ".embeddings.table.weight",
      );
      const learned = config.positions === "learned";
      const embed = (name, table) => ({
        table,
        positions: learned ? weights(name + ".positions.table.weight") : null,
      });
      Object.assign(this, {
        config,
        encoder: stack("encoder", false),
        decoder: stack("decoder", true),
      });
      this.src_embed = embed("src_embed", weights(src));
      this.tgt_embed = embed("tgt_embed", either(tgt, src));
      this.generator = { weight: either("generator.proj.weight", tgt, src) };
      if (unread.size)
        throw new Error(`these weights belong to no known part: ${[...unread].join(", ")}`);
    }

    // The embeddings of ids, scaled, with the positions from `start` on, or with those in `order`.
    embed({ table, positions }, ids, start = 0, order = null) {
      const { d_model } = this.config,
        scale = Math.sqrt(d_model);
      const none = this.config.positions === "none" && new Float32Array(d_model);
      return ids.map((id, t) => {
        const place = order ? order[t] : start + t;
        if (positions && place >= positions.shape[0])
          throw new Error(`only ${positions.shape[0]} positions are learned`);
        const at = positions
          ? positions.data.subarray(place * d_model)
          : none || (this.place?.(place) ?? positionalEncoding(place, d_model));
        return table.data
          .slice(id * d_model, (id + 1) * d_model)
          .map((value, i) => value * scale + at[i]);
      });
    }

    // Ids of the source, EOS included: the memory, and the weights of every layer, position and
    // head. Tokens may have the positions of others (`order`) and be `hidden`, so that nobody looks
    // at them.
    encode(ids, { order = null, hidden = null } = {}) {
      let x = this.embed(this.src_embed, ids, 0, order);
      const weights = [];
      for (const { self_attn, feed_forward, sublayer } of this.encoder.layers) {
        x = sublayer[0].forward(x, (y) => {
          const all = { ...self_attn.keysValues(y), hidden },
            found = self_attn.attend(
              y,
              y.map(() => all),
            );
          weights.push(found.weights);
          return found.output;
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

  // --- decoding: Parts 2 and 4 ---

  // The decoder, one token of each row at a time, with the keys and values of all that was before.
  // Rows share the source. `change` is given the output of every attention, with "decoder" or
  // "cross" and the layer, and gives what takes its place.
  class CachedDecoder {
    constructor(model, memory, hidden = null, change = (kind, layer, output) => output) {
      Object.assign(this, { model, change, length: 0 });
      this.source = model.decoder.layers.map((layer) => ({
        ...layer.src_attn.keysValues(memory),
        hidden,
      }));
      // of each row and layer
      this.past = [model.decoder.layers.map(() => ({ keys: [], values: [] }))];
    }

    // The next token of each row to the logits of the one after it, the weights of every layer, row
    // and head, and the vectors after every layer, `states`.
    step(ids) {
      const { model } = this,
        decoder = [],
        cross = [],
        states = [];
      let x = ids.map((id) => model.embed(model.tgt_embed, [id], this.length)[0]);
      model.decoder.layers.forEach(({ self_attn, src_attn, feed_forward, sublayer }, n) => {
        x = sublayer[0].forward(x, (y) => {
          const { keys, values } = self_attn.keysValues(y, this.length);
          const visible = this.past.map((layers, row) => {
            layers[n].keys.push(keys[row]);
            layers[n].values.push(values[row]);
            return layers[n];
          });
          const found = self_attn.attend(y, visible, this.length);
          decoder.push(found.weights);
          return this.change("decoder", n, found.output);
        });
        x = sublayer[1].forward(x, (y) => {
          const found = src_attn.attend(
            y,
            y.map(() => this.source[n]),
          );
          cross.push(found.weights);
          return this.change("cross", n, found.output);
        });
        x = sublayer[2].forward(x, (y) => feed_forward.forward(y));
        states.push(x);
      });
      this.length += 1;
      return {
        logits: linear(model.decoder.norm.forward(x), model.generator),
        decoder,
        cross,
        states,
      };
    }

    // Continue with these rows, in this order; a row may be taken more than once.
    select(rows) {
      this.past = rows.map((row) =>
        this.past[row].map(({ keys, values }) => ({ keys: [...keys], values: [...values] })),
      );
    }
  }

  // The k largest entries: their places, the largest first.
  function largest(values, k) {
    const places = [];
    for (let i = 0; i < values.length; i++) {
      if (places.length === k && values[i] <= values[places[k - 1]]) continue;
      let at = places.length;
      while (at > 0 && values[places[at - 1]] < values[i]) at--;
      places.splice(at, 0, i);
      if (places.length > k) places.pop();
    }
    return places;
  }

  // The searches are generators: they yield the number of the step, so that whoever runs them can
  // pause or stop between two. `forced` has the tokens that a translation is to begin with;
  // `changes` are those of `encode`.
  const finished = (search) => {
    for (;;) {
      const { done, value } = search.next();
      if (done) return value;
    }
  };

  // One token after another, each chosen from its logits; the likeliest one unless `choose` says
  // otherwise.
  function* greedySteps(
    model,
    src,
    choose = (logits) => largest(logits, 1)[0],
    { forced = [], changes } = {},
  ) {
    const { memory, hidden } = model.encode(src, changes),
      decoder = new CachedDecoder(model, memory, hidden),
      ids = [BOS];
    while (ids.length < src.length + MORE && (ids.length === 1 || ids.at(-1) !== EOS)) {
      const { logits } = decoder.step([ids.at(-1)]);
      ids.push(forced[ids.length - 1] ?? choose(logits[0]));
      yield ids.length;
    }
    return ids;
  }
  const greedyDecode = (...asked) => finished(greedySteps(...asked));

  // The probabilities of the fewest tokens that have topP together, else zero.
  function nucleus(logits, temperature = 1, topP = 1) {
    const p = softmax(logits.map((logit) => logit / temperature));
    const order = Array.from(p.keys()).sort((a, b) => p[b] - p[a]);
    let before = 0;
    for (const id of order) {
      const own = p[id];
      if (topP < 1 && before > 0 && before >= topP) p[id] = 0; // the likeliest one always stays
      before += own;
    }
    const sum = p.reduce((a, b) => a + b, 0);
    return p.map((value) => value / sum);
  }

  // As greedyDecode, but each token is drawn; `random` gives numbers from 0 to below 1.
  function sampleSteps(model, src, temperature = 1, topP = 1, random = Math.random, options) {
    return greedySteps(
      model,
      src,
      (logits) => {
        const p = nucleus(logits, temperature, topP);
        let rest = random();
        const drawn = p.findIndex((value) => (rest -= value) < 0);
        return drawn < 0 ? largest(p, 1)[0] : drawn; // the rest of rounding
      },
      options,
    );
  }
  const sampleDecode = (...asked) => finished(sampleSteps(...asked));

  const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

  // The best translation that a beam finds, and the search as a tree: a node has an id, the node
  // that it continues (its parent), its step, its log-probability alone (p) and with all before it
  // (logP); an ended one has a score.
  function* beamSteps(model, src, beam = BEAM, alpha = ALPHA, { forced = [], changes } = {}) {
    const limit = src.length + MORE,
      { memory, hidden } = model.encode(src, changes),
      decoder = new CachedDecoder(model, memory, hidden);
    const nodes = [{ id: BOS, parent: null, step: 0, p: 0, logP: 0 }];
    let rows = [0],
      open = beam,
      best = null; // rows and best are places in nodes
    for (let t = 1; t < limit; t++) {
      const found = decoder.step(rows.map((row) => nodes[row].id)).logits.flatMap((logits, row) => {
        const p = logSoftmax(logits),
          next = t <= forced.length ? [forced[t - 1]] : largest(p, beam);
        return next.map((id) => ({ id, row, p: p[id], logP: nodes[rows[row]].logP + p[id] }));
      });
      const kept = found.sort((a, b) => b.logP - a.logP).slice(0, open),
        going = [];
      for (const { id, row, p, logP } of kept) {
        const node = { id, parent: rows[row], step: t, p, logP };
        nodes.push(node);
        if (id === EOS || t + 1 >= limit) {
          node.score = logP / lengthPenalty(t, alpha);
          if (best === null || node.score > nodes[best].score) best = nodes.length - 1;
          open -= 1;
        } else going.push({ row, place: nodes.length - 1, logP });
      }
      const bound = going.length ? going[0].logP / lengthPenalty(limit - 1, alpha) : -Infinity;
      if (best !== null && bound <= nodes[best].score) break; // no continuation can score more
      if (!going.length) break;
      decoder.select(going.map(({ row }) => row));
      rows = going.map(({ place }) => place);
      yield t;
    }
    const ids = [];
    for (let at = best; at !== null; at = nodes[at].parent) ids.unshift(nodes[at].id);
    return { ids, nodes, best };
  }
  const beamSearch = (...asked) => finished(beamSteps(...asked));

  // --- text ---

  class Tokenizer {
    // byte-pair encoding as translator and document have it
    constructor(vocab, merges) {
      this.pieces = vocab;
      this.ids = new Map(vocab.map((piece, id) => [piece, id]));
      this.ranks = new Map(merges.map((merge, rank) => [merge, rank]));
    }

    // A piece as it is shown: without the mark of a word's beginning, and with a dot in front if it
    // continues a word.
    spell(piece) {
      const bare = piece.replaceAll("▁", "");
      return bare !== piece || /^(<.+>|\p{P}+)$/u.test(piece) ? bare || "␣" : `·${piece}`;
    }

    encode(text) {
      const clean = text
        .normalize("NFC")
        .replace(/\p{White_Space}+/gu, " ")
        .replace(/^ | $/g, "")
        .replaceAll(" ", "▁");
      const words = ("▁" + clean.replace(/^▁/, "")).match(/▁?[^▁]*/gu).filter(Boolean);
      const punctuation = /([!-\/:-@\[-`{-~]|\p{P})/u;
      return words
        .flatMap((word) => word.split(punctuation).filter(Boolean))
        .flatMap((word) => this.merge(word));
    }

    merge(word) {
      // merges the pair that was learned first, until none is left
      const pieces = [...word];
      for (;;) {
        let first = Infinity,
          place = -1;
        for (let i = 0; i + 1 < pieces.length; i++) {
          const rank = this.ranks.get(pieces[i] + " " + pieces[i + 1]);
          if (rank < first) [first, place] = [rank, i];
        }
        if (place < 0) return pieces.map((piece) => this.ids.get(piece) ?? UNK);
        pieces.splice(place, 2, pieces[place] + pieces[place + 1]);
      }
    }

    tokens(ids) {
      return ids.map((id) => this.pieces[id]);
    }

    decode(ids) {
      const end = ids.indexOf(EOS),
        kept = (end < 0 ? ids : ids.slice(0, end)).filter((id) => id !== PAD && id !== BOS);
      return this.tokens(kept).join("").replaceAll("▁", " ").replaceAll("&amp;", "&").trim();
    }
  }

  class Translator {
    constructor({ name, note, config, vocab, merges, shapes }, bytes) {
      Object.assign(this, { name, note, tokenizer: new Tokenizer(vocab, merges) });
      this.model = new Model(config, readTensors(shapes, bytes));
    }

    // From what `model_content` of explorer.py writes, whose `weights` are packed.
    static async load(content) {
      return new Translator(content, await unpack(content.weights));
    }

    // The ids of a sentence, EOS included.
    source(sentence) {
      return [...this.tokenizer.encode(sentence), EOS];
    }

    translate(sentence, { beam = BEAM, alpha = ALPHA } = {}) {
      const src = this.source(sentence);
      const ids =
        beam === 1 ? greedyDecode(this.model, src) : beamSearch(this.model, src, beam, alpha).ids;
      return this.tokenizer.decode(ids);
    }

    // All weights of a source and its translation (ids with BOS, and EOS at the end), and of every
    // step the likeliest tokens, and the model's probability of the one that was taken (`own`).
    // Named as in the document's AttentionMaps: maps[kind][layer][head][query][key].
    attentionMaps(src, ids, distribution = softmax, { changes, top = 5 } = {}) {
      const { memory, weights, hidden } = this.model.encode(src, changes),
        decoder = new CachedDecoder(this.model, memory, hidden);
      const steps = ids.slice(0, -1).map((id, t) => {
        const { logits, states, ...found } = decoder.step([id]),
          p = distribution(logits[0]);
        const own = distribution === softmax ? p : softmax(logits[0]);
        const likeliest = largest(p, top)
          .filter((token) => p[token] > 0)
          .map((token) => ({ id: token, token: this.tokenizer.pieces[token], p: p[token] }));
        return { ...found, likeliest, chosen: p[ids[t + 1]], own: own[ids[t + 1]] };
      });
      const heads = [...Array(this.model.config.h).keys()],
        padded = (row) => Float64Array.from({ length: steps.length }, (_, k) => row[k] ?? 0);
      const byHead = (layers) =>
        layers.map((rows) => heads.map((head) => rows.map((row) => row[head])));
      const overSteps = (kind) => weights.map((_, n) => steps.map((step) => step[kind][n][0]));
      const maps = {
        encoder: byHead(weights),
        decoder: byHead(overSteps("decoder")),
        cross: byHead(overSteps("cross")),
      };
      // later tokens have weight 0
      maps.decoder = maps.decoder.map((layer) => layer.map((rows) => rows.map(padded)));
      return {
        source: this.tokenizer.tokens(src),
        target: this.tokenizer.tokens(ids.slice(0, -1)),
        predicted: this.tokenizer.tokens(ids.slice(1)),
        maps,
        translation: this.tokenizer.decode(ids),
        steps: steps.map(({ likeliest, chosen, own }) => ({ likeliest, chosen, own })),
        ids,
      };
    }
  }

  return {
    PAD,
    BOS,
    EOS,
    UNK,
    BEAM,
    ALPHA,
    LONGEST,
    readTensors,
    unpack,
    linear,
    softmax,
    largest,
    attention,
    positionalEncoding,
    Model,
    CachedDecoder,
    greedySteps,
    greedyDecode,
    nucleus,
    sampleSteps,
    sampleDecode,
    lengthPenalty,
    beamSteps,
    beamSearch,
    Tokenizer,
    Translator,
  };
})();

if (typeof module !== "undefined") module.exports = Transformer;
