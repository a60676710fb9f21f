// A translator that does nothing else: greedily, with the probability of every token. It takes what
// `page_content` of page_export.py writes.

import { LONGEST, greedySteps } from "./decoding.js";
import { Model } from "./layers.js";
import { largest, readTensors, softmax, unpack } from "./tensors.js";
import { EOS, Tokenizer, UNK } from "./tokeniser.js";

/** Weights as {name: {shape, data}}. Those in float16 come first; then, if there are `rows`, come
 *  matrices in 8 bits, each row to be multiplied by its number in `NAME.scale`. */
export function readWeights({ shapes, rows = {} }, bytes) {
  const entries = ([outputs, inputs]) => outputs * inputs;
  const count = Object.values(rows).reduce((sum, shape) => sum + entries(shape), 0);
  let at = bytes.length - count;
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
  constructor(content, bytes) {
    this.tokenizer = new Tokenizer(content.vocab, content.merges);
    this.model = new Model(content.config, readWeights(content, bytes));
  }

  static async load(content) {
    return new GreedyTranslator(content, await unpack(content.weights));
  }

  /** The characters of a line that the model has never seen. */
  unknown(line) {
    const characters = new Set(line.normalize("NFC"));
    return [...characters].filter(
      (character) => character.trim() && this.tokenizer.encode(character).includes(UNK),
    );
  }

  /** A line's translation, its tokens and their probabilities. A generator: it yields after every
   *  token, so that whoever runs it can stop. `long` is true of a line that is too long. */
  *steps(line) {
    if (!line.trim()) return { text: "", tokens: [], probabilities: [] };
    const src = [...this.tokenizer.encode(line), EOS];
    if (src.length > LONGEST) return { long: true };
    const probabilities = [];
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
