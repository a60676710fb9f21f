// The Transformer of the document in plain JavaScript: one sentence at a time, no training, nothing
// to install.
//
// Names are those of the document. A sequence of vectors is an array of Float32Array, one for each
// position; there is no batch, so there is no padding and no mask: a query is simply given the keys
// that it may see. Every attention returns its weights as well. `await Translator.load(content)`
// takes what `model_content` of explorer.py writes.

import { BEAM, CachedDecoder, beamSearch, greedyDecode } from "./decoding.js";
import { Model } from "./layers.js";
import { largest, readWeights, softmax, unpack } from "./tensors.js";
import { EOS, Tokenizer } from "./tokeniser.js";

const LISTED = 5; // tokens of a step

export class Translator {
  constructor(/** @type {ModelContent} */ content, /** @type {Uint8Array} */ bytes) {
    this.tokenizer = new Tokenizer(content.vocab, content.merges);
    this.model = new Model(content.config, readWeights(content, bytes));
  }

  static async load(/** @type {ModelContent} */ content) {
    return new Translator(content, await unpack(content.weights));
  }

  /** The ids of a sentence, EOS included. @param {string} sentence */
  source(sentence) {
    return [...this.tokenizer.encode(sentence), EOS];
  }

  /** @param {string} sentence */
  translate(sentence, { beam = BEAM } = {}) {
    const src = this.source(sentence);
    const isGreedy = beam === 1;
    const ids = isGreedy ? greedyDecode(this.model, src) : beamSearch(this.model, src, beam).ids;
    return this.tokenizer.decode(ids);
  }

  /** All weights of a source and its translation (ids with BOS, and EOS at the end), and of every
   *  step the likeliest tokens, and the probability of the one that was taken.
   *  @param {number[]} src @param {number[]} ids @param {Set<number> | null} [hidden] */
  attentionMaps(src, ids, hidden) {
    const { tokenizer } = this;
    const { memory, layers } = this.model.encode(src, hidden);
    const cached = new CachedDecoder(this.model, memory, hidden);
    const steps = ids.slice(0, -1).map((id, t) => {
      const { logits, decoder, cross, whole } = cached.step([id]);
      const p = softmax(logits[0]);
      const names = largest(p, LISTED).map((id) => ({ id, token: tokenizer.pieces[id], p: p[id] }));
      const taken = { likeliest: names, chosen: p[ids[t + 1]] };
      return { decoder, cross, whole, taken };
    });
    const maps = {
      encoder: this.byHead(layers.map(({ weights }) => weights)),
      // without the mask, as all looks at all in the end
      decoder: this.byHead(
        steps[steps.length - 1].whole ??
          layers.map((_, n) => steps.map((step) => step.decoder[n][0])),
      ),
      cross: this.byHead(layers.map((_, n) => steps.map((step) => step.cross[n][0]))),
    };
    return {
      source: tokenizer.tokens(src),
      target: tokenizer.tokens(ids.slice(0, -1)),
      predicted: tokenizer.tokens(ids.slice(1)),
      maps,
      translation: tokenizer.decode(ids),
      steps: steps.map(({ taken }) => taken),
      ids,
    };
  }

  /** By layer and head (queries, keys), as the document's AttentionMaps; later tokens weigh 0. */
  byHead(/** @type {LayerWeights[]} */ layers) {
    const heads = [...Array(this.model.config.h).keys()];
    return layers.map((rows) =>
      heads.map((head) => {
        const length = Math.max(...rows.map((row) => row[head].length));
        return rows.map((row) => Float64Array.from({ length }, (_, k) => row[head][k] ?? 0));
      }),
    );
  }
}
