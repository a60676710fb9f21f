// The live model with the reader's function in it.

import { greedyDecode } from "../model/decoding.js";
import { BOS, EOS } from "../model/tokeniser.js";
import { liveScores } from "./gates.js";

/** @typedef {import("./judge.js").World} World */
/** @typedef {(given: any[]) => any} Call */
/** A method of the model, and what takes its place. @typedef {[any, string, unknown]} Change */

const LONGEST_SENTENCE = 200; // positions
const MORE_TOKENS = 20; // that a translation may have than its sentence

/** What the model translates greedily with the reader's function in it, and `own` without.
 *  @param {World} world
 *  @param {string} name of the function
 *  @param {number[]} src ids of the sentence
 *  @param {boolean} all whether attention is that of all heads, or of one */
export function plug({ interpreter, translator, progress }, name, src, all) {
  const { model, tokenizer } = translator;
  const own = greedyDecode(model, src);
  /** @type {Call} */
  const call = (given) => {
    progress();
    return interpreter.call("_mine", name, given);
  };
  const changes = CHANGES[name]?.(model, call, all) ?? [];
  const before = changes.map(([owner, method]) => owner[method]);
  for (const [owner, method, value] of changes) owner[method] = value;
  try {
    const ids = name === "decode" ? decoded() : greedyDecode(model, src);
    return { text: tokenizer.decode(ids), own: tokenizer.decode(own) };
  } finally {
    for (const [i, [owner, method]] of changes.entries()) owner[method] = before[i];
  }

  function decoded() {
    const scores = liveScores(translator, src, progress);
    const given = [BOS, EOS, src.length + MORE_TOKENS];
    return [BOS, .../** @type {number[]} */ (interpreter.call("_mine", name, given, scores))];
  }
}

/** @type {Record<string, (model: any, call: Call, all: boolean) => Change[]>} */
const CHANGES = {
  attention(model, call, all) {
    const heads = all
      ? ["encoder", "decoder", "cross"].flatMap((kind) => model.heads(kind))
      : [model.encoder.layers[0].self_attn];
    const attention = asAttention(call);
    return heads.map((attn) => [
      attn,
      "own",
      (/** @type {number} */ head) => (all || head === 1) && attention,
    ]);
  },
  layer_norm(model, call) {
    const norms = [model.encoder, model.decoder].flatMap(({ norm, layers }) => [
      norm,
      ...layers.flatMap((/** @type {any} */ layer) =>
        layer.sublayer.map((/** @type {any} */ sublayer) => sublayer.norm),
      ),
    ]);
    return norms.map((norm) => [
      norm,
      "forward",
      (/** @type {Float32Array[]} */ x) =>
        call([x.map((row) => [...row]), [...norm.gain], [...norm.bias]]).map(asFloats),
    ]);
  },
  positions(model, call) {
    const table = call([LONGEST_SENTENCE, model.config.d_model]);
    return [[model, "place", (/** @type {number} */ place) => Float32Array.from(table[place])]];
  },
};

/** @param {number[]} row */
const asFloats = (row) => Float32Array.from(row);

/** The reader's attention in place of model/attention.js's, with the same arguments.
 *  @param {Call} call */
const asAttention =
  (call) =>
  /** @type {typeof import("../model/attention.js").attention} */
  (query, keys, values, keyStart, keyWidth, valueStart, valueWidth, hidden) => {
    /** @param {Float32Array} x @param {number} start @param {number} width */
    const slice = (x, start, width) => [...x.subarray(start, start + width)];
    const mask = hidden
      ? [keys.map((/** @type {unknown} */ _, /** @type {number} */ s) => !hidden.has(s))]
      : null;
    const [output] = call([
      [slice(query, keyStart, keyWidth)],
      keys.map((/** @type {Float32Array} */ key) => slice(key, keyStart, keyWidth)),
      values.map((/** @type {Float32Array} */ value) => slice(value, valueStart, valueWidth)),
      mask,
    ]);
    return { output: Float32Array.from(output), weights: new Float64Array(keys.length) };
  };
