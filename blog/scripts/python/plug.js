// The live model with the reader's function in it.

import { greedyDecode } from "../model/decoding.js";
import { LayerNorm } from "../model/layers.js";
import { BOS, EOS } from "../model/tokeniser.js";
import { liveScores } from "./gates.js";

/** @typedef {(given: any[]) => any} Call */
/** A method of the model, and what takes its place. @typedef {[any, string, unknown]} Change */

const LONGEST_SENTENCE = 200; // positions
const MORE_TOKENS = 20; // that a translation may have than its sentence

/** What the model translates greedily with the reader's function in it, and `own` without.
 *  @param {World} world @param {string} name of the function
 *  @param {number[]} src ids of the sentence */
export function plug({ interpreter, translator, progress }, name, src) {
  const { model, tokenizer } = translator;
  const own = greedyDecode(model, src);
  /** @type {Call} */
  const call = (given) => {
    progress();
    return interpreter.call("_mine", name, given);
  };
  const changes = CHANGES[name]?.(model, call, interpreter) ?? [];
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

/** @type {Record<string, (model: Model, call: Call, interpreter: Interpreter) => Change[]>} */
const CHANGES = {
  attention(model, call, interpreter) {
    const kinds = /** @type {Kind[]} */ (["encoder", "decoder", "cross"]);
    const attention = asAttention(call, interpreter);
    return kinds.flatMap((kind) => model.heads(kind)).map((attn) => [attn, "own", attention]);
  },
  layer_norm({ encoder, decoder }, call) {
    const norms = [encoder, decoder].flatMap(({ norm, layers }) => [
      norm,
      ...layers.flatMap(({ sublayer }) => sublayer.map((connection) => connection.norm)),
    ]);
    return norms
      .filter((norm) => norm instanceof LayerNorm) // a post-norm model's stacks end without one
      .map((norm) => [
        norm,
        "forward",
        (/** @type {Vectors} */ x) =>
          call([x.map((row) => [...row]), [...norm.gain], [...norm.bias]]).map(asFloats),
      ]);
  },
  positions(model, call) {
    const table = call([LONGEST_SENTENCE, model.config.d_model]);
    return [[model, "place", (/** @type {number} */ place) => Float32Array.from(table[place])]];
  },
};

const asFloats = (/** @type {number[]} */ row) => Float32Array.from(row);

/** The reader's attention in place of model/attention.js's, for many queries at a time. Keys and
 *  values stay in Python: a step sends those of the newest token alone. */
function asAttention(/** @type {Call} */ call, /** @type {Interpreter} */ interpreter) {
  /** @type {Map<Float32Array[], { id: number, counts: Record<number, number> }>} how many rows
   *    Python has, by their first column */
  const sent = new Map();
  interpreter.run("_kept.clear()");
  /** @param {Float32Array[]} x @param {number} start @param {number} width */
  const kept = (x, start, width) => {
    const { id, counts } = sent.get(x) ?? { id: sent.size, counts: {} };
    sent.set(x, { id, counts });
    const name = `${id} ${start}`;
    const rows = x.slice(counts[start] ?? 0).map((row) => slice(row, start, width));
    counts[start] = x.length;
    return { name, rows };
  };
  /** @type {OwnAttention} */
  return (queries, { keys, values, hidden }, [keyStart, keyWidth, valueStart, valueWidth]) => {
    const seen = keys.map((_, s) => !hidden?.has(s));
    const outputs = call([
      queries.map((query) => slice(query, keyStart, keyWidth)),
      kept(keys, keyStart, keyWidth),
      kept(values, valueStart, valueWidth),
      hidden ? queries.map(() => seen) : null,
    ]);
    const weights = new Float64Array(keys.length); // which the reader's function doesn't tell
    return outputs.map((/** @type {number[]} */ row) => ({
      output: asFloats(row),
      weights,
      scores: weights,
    }));
  };
}

/** @param {Float32Array} row @param {number} start @param {number} width */
const slice = (row, start, width) => [...row.subarray(start, start + width)];
