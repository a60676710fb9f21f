// Lines translated greedily, with the probability of every token.

import { LONGEST, greedySteps } from "./decoding.js";
import { largest, softmax } from "./tensors.js";

/** @typedef {{ text: string, tokens: string[], probabilities: number[], unknown: string[],
 *   long?: boolean }} Translation `long`: the line is too long, and so there is none */

/** A line's translation. It yields after every token, so that whoever runs it can stop.
 *  @param {Translator} translator @param {string} line @returns {Search<Translation>} */
export function* lineSteps(translator, line) {
  const { model, tokenizer } = translator;
  const none = { text: "", tokens: [], probabilities: [], unknown: [] };
  if (!line.trim()) return none;
  const src = translator.source(line);
  if (src.length > LONGEST) return { ...none, long: true };
  /** @type {number[]} */
  const probabilities = [];
  const ids = yield* greedySteps(model, src, (logits) => {
    const [id] = largest(logits, 1);
    probabilities.push(softmax(logits)[id]);
    return id;
  });
  const tokens = tokenizer.tokens(ids.slice(1));
  return { text: tokenizer.decode(ids), tokens, probabilities, unknown: tokenizer.unknown(line) };
}
