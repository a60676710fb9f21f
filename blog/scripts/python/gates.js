// What the reader's functions are asked, for his sentence and for awkward cases, and what is right:
// the live model's own numbers, where it has them.

import { attention } from "../model/attention.js";
import { CachedDecoder, greedyDecode } from "../model/decoding.js";
import { positionalEncoding } from "../model/layers.js";
import { softmax } from "../model/tensors.js";
import { BOS, EOS, PAD } from "../model/tokeniser.js";
import { refusal } from "./interpreter.js";

const rows = (/** @type {Iterable<ArrayLike<number>>} */ x) => [...x].map((row) => Array.from(row));

const firstLayer = (/** @type {Translator} */ { model }) => model.encoder.layers[0];

/** @param {Translator} translator @param {number[]} src */
const embedded = ({ model }, src) => model.embed(model.src_embed, src);

/** By the name of the reader's function. @type {Record<string, Gate>} */
export const GATES = {
  attention: {
    cases(translator, src) {
      const { self_attn, sublayer } = firstLayer(translator);
      const x = sublayer[0].norm.forward(embedded(translator, src));
      const { keys, values } = self_attn.keysValues(x);
      const d_k = keys[0].length / self_attn.h;
      /** @param {Float32Array[]} vectors of all heads; gives the second one's */
      const ofHead = (vectors) => rows(vectors.map((row) => row.subarray(d_k, 2 * d_k)));
      const [Q, K, V] = [self_attn.queries(x), keys, values].map(ofHead); // (S, d_k)
      return [
        [Q, K, V, null],
        [Q, K, V, Q.map((_, t) => K.map((_, s) => s <= t))],
      ];
    },
    right: ([Q, K, V, mask]) =>
      Array.from(Q, (query, t) => {
        const places = [...K.keys()].filter((s) => mask && !mask[t][s]);
        const visible = { keys: K, values: V, hidden: new Set(places) };
        return [...attention(query, visible, [0, query.length, 0, V[0].length]).output];
      }),
  },
  positions: {
    cases: ({ model }, src) => [
      [src.length, model.config.d_model],
      [3, 6],
    ],
    right: ([length, d_model]) =>
      Array.from({ length }, (_, position) => [...positionalEncoding(position, d_model)]),
  },
  masks: {
    cases: () => [
      [[7, 8, EOS, PAD], [BOS, 9, 9, 8, PAD], PAD],
      [[EOS, PAD, 5], [BOS, PAD, 5], 5], // another id may be the padding
    ],
    right([src, tgt, pad]) {
      const tokens = Array.from(tgt, (id) => id !== pad);
      return [
        [Array.from(src, (id) => id !== pad)],
        tokens.map((_, t) => tokens.map((isToken, k) => k <= t && isToken)),
      ];
    },
  },
  layer_norm: {
    cases(translator, src) {
      const { norm } = firstLayer(translator).sublayer[0];
      const x = rows(embedded(translator, src));
      // rows that are nearly constant show where epsilon is
      const even = x.slice(0, 2).map((row) => row.map((value) => 1 + value / 300));
      return [x, even].map((x) => [x, [...norm.gain], [...norm.bias]]);
    },
    right: ([x], translator) => rows(firstLayer(translator).sublayer[0].norm.forward(x)),
  },
  decode: {
    cases: (_translator, src) => [
      [BOS, EOS, 3],
      [BOS, EOS, src.length + 6],
    ],
    right: ([, , longest], { model }, src) => greedyDecode(model, src).slice(1, longest + 1),
    scores(translator, src, progress) {
      const scores = liveScores(translator, src, progress);
      return (ids) => {
        // a question that nobody would ask is answered at once
        const odd = ids.find((id) => !Number.isInteger(id));
        if (odd !== undefined) throw refusal("odd", odd);
        if (ids.includes(EOS)) throw refusal("eos_ignored");
        return scores(ids);
      };
    },
    few: [
      [BOS, EOS, 3],
      [BOS, EOS, 20],
    ],
    // of a vocabulary of twelve; a few tokens, and eos is the most probable one
    fewScores(ids) {
      const place = ids.reduce((sum, id, i) => sum + (i + 2) * id, 0);
      return Array.from({ length: 12 }, (_, token) => {
        const bonus = token === EOS ? ids.length - 5 : 0;
        return Math.sin((token + 1) * place) + bonus;
      });
    },
  },
  loss_gradient: {
    cases(translator, src) {
      const scores = liveScores(translator, src, () => {});
      const few = scores([BOS]).slice(0, 12);
      const best = few.indexOf(Math.max(...few.slice(4)));
      const next = scores([BOS, best]).slice(0, 12);
      return [
        [[few, next, few], [best, 7, PAD], 0.1, PAD],
        [[few, few], [4, 5], 0, 5],
      ];
    },
    right: ([logits, target, smoothing, pad]) =>
      Array.from(logits, (row, t) =>
        Array.from(softmax(row), (p, k) => {
          const share = k === pad ? 0 : smoothing / (row.length - 1);
          const q = k === target[t] ? 1 - smoothing + share : share;
          return target[t] === pad ? 0 : p - q;
        }),
      ),
  },
  rate: {
    cases: () => [...[1, 400, 4000, 100000].map((step) => [step, 512, 4000]), [30, 128, 100]],
    right: ([step, d_model, warmup]) =>
      d_model ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5),
  },
};

/** What comes after some ids, by the live model. If they go on from those of the last question,
 *  only the new ones are read.
 *  @param {Translator} translator @param {number[]} src @param {() => void} progress
 *  @returns {Scores} */
export function liveScores({ model }, src, progress) {
  const { memory } = model.encode(src);
  /** @type {CachedDecoder | null} */
  let decoder = null;
  /** @type {number[]} */
  let read = [];
  /** @type {Float32Array} */
  let logits;
  return (ids) => {
    if (!ids.length) throw refusal("none");
    if (!decoder || ids.length <= read.length || read.some((id, i) => id !== ids[i])) {
      decoder = new CachedDecoder(model, memory);
      read = [];
    }
    for (const id of ids.slice(read.length)) [logits] = decoder.step([id]).logits;
    read = ids;
    progress();
    return [...logits];
  };
}
