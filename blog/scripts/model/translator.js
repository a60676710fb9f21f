// The Transformer of the document in plain JavaScript: one sentence at a time, no training, nothing
// to install.
//
// Names are those of the document. A sequence of vectors is an array of Float32Array, one for each
// position; there is no batch, so there is no padding and no mask: a query is simply given the keys
// that it may see. Every attention returns its weights as well. `await Translator.load(content)`
// takes what `model_content` of explorer.py writes.

import { ALPHA, BEAM, CachedDecoder, beamSearch, greedyDecode } from "./decoding.js";
import { Model } from "./layers.js";
import { largest, readTensors, softmax, unpack } from "./tensors.js";
import { EOS, Tokenizer } from "./tokeniser.js";

export class Translator {
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
    const { memory, weights, hidden } = this.model.encode(src, changes);
    const cached = new CachedDecoder(this.model, memory, hidden);
    const listed = (id, p) => ({ id, token: this.tokenizer.pieces[id], p: p[id] });
    const steps = ids.slice(0, -1).map((id, t) => {
      const { logits, decoder, cross, whole } = cached.step([id]);
      const p = distribution(logits[0]);
      const own = distribution === softmax ? p : softmax(logits[0]);
      const likeliest = largest(p, top)
        .filter((token) => p[token] > 0)
        .map((token) => listed(token, p));
      return { decoder, cross, whole, likeliest, chosen: p[ids[t + 1]], own: own[ids[t + 1]] };
    });
    const maps = this.byHead({
      encoder: weights,
      // without the mask, as all looks at all in the end
      decoder: steps.at(-1).whole ?? weights.map((_, n) => steps.map((step) => step.decoder[n][0])),
      cross: weights.map((_, n) => steps.map((step) => step.cross[n][0])),
    });
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

  // By layer and head, what is given by layer, position and head; later tokens have weight 0.
  byHead(layersByKind) {
    const heads = [...Array(this.model.config.h).keys()];
    const ofHead = (rows, head) => {
      const width = rows.at(-1)[head].length;
      return rows.map((row) => Float64Array.from({ length: width }, (_, k) => row[head][k] ?? 0));
    };
    return Object.fromEntries(
      Object.entries(layersByKind).map(([kind, layers]) => [
        kind,
        layers.map((rows) => heads.map((head) => ofHead(rows, head))),
      ]),
    );
  }
}
