// A translator that does nothing else: greedily, with the probability of every token. It takes what
// `page_content` of page_export.py writes.

import { LONGEST, greedySteps } from "./decoding.js";
import { Model } from "./layers.js";
import { largest, readTensors, softmax, unpack } from "./tensors.js";
import { EOS, Tokenizer, UNK } from "./tokeniser.js";

/** @typedef {{ shape: number[], data: Float32Array }} Tensor
 * @typedef {{ vocab: string[], merges: string[], config: Config, weights: string,
 *   shapes: Record<string, number[]>, rows?: Record<string, number[]> }} Content
 * @typedef {{ text: string, tokens: string[], probabilities: number[], unknown: string[],
 *   long?: boolean }} Translation `long`: the line is too long, and so there is none */

/** Weights by their names. Those in float16 come first; then, if there are `rows`, come matrices
 *  in 8 bits, each row to be multiplied by its number in `NAME.scale`.
 * @param {Pick<Content, "shapes" | "rows">} content
 * @param {Uint8Array} bytes */
export function readWeights({ shapes, rows = {} }, bytes) {
  /** @param {number[]} shape */
  const entries = ([outputs, inputs]) => outputs * inputs;
  const count = Object.values(rows).reduce((sum, shape) => sum + entries(shape), 0);
  let at = bytes.length - count;
  /** @type {Record<string, Tensor>} */
  const tensors = readTensors(shapes, bytes.subarray(0, at));
  const whole = new Int8Array(bytes.buffer, bytes.byteOffset);
  for (const [name, shape] of Object.entries(rows)) {
    const scales = tensors[`${name}.scale`].data;
    delete tensors[`${name}.scale`];
    const data = Float32Array.from(
      whole.subarray(at, at + entries(shape)),
      (value, i) => value * scales[Math.floor(i / shape[1])],
    );
    tensors[name] = { shape, data };
    at += entries(shape);
  }
  return tensors;
}

export class GreedyTranslator {
  /** @param {Content} content
   * @param {Uint8Array} bytes */
  constructor(content, bytes) {
    this.tokenizer = new Tokenizer(content.vocab, content.merges);
    this.model = new Model(content.config, readWeights(content, bytes));
  }

  /** @param {Content} content */
  static async load(content) {
    return new GreedyTranslator(content, await unpack(content.weights));
  }

  /** The characters of a line that the model has never seen.
   * @param {string} line */
  unknown(line) {
    const characters = new Set(line.normalize("NFC"));
    return [...characters].filter(
      (character) => character.trim() && this.tokenizer.encode(character).includes(UNK),
    );
  }

  /** A line's translation. It yields after every token, so that whoever runs it can stop.
   * @param {string} line
   * @returns {Generator<number, Translation, void>} */
  *steps(line) {
    const none = { text: "", tokens: [], probabilities: [], unknown: [] };
    if (!line.trim()) return none;
    const src = [...this.tokenizer.encode(line), EOS];
    if (src.length > LONGEST) return { ...none, long: true };
    /** @type {number[]} */
    const probabilities = [];
    /** @param {Float32Array} logits */
    const choose = (logits) => {
      const [id] = largest(logits, 1);
      probabilities.push(softmax(logits)[id]);
      return id;
    };
    const ids = yield* greedySteps(this.model, src, choose);
    const tokens = this.tokenizer.tokens(ids.slice(1));
    return { text: this.tokenizer.decode(ids), tokens, probabilities, unknown: this.unknown(line) };
  }
}
