// Lines translated greedily, with the probability of every token.

import { LONGEST, greedySteps } from "./decoding.js";
import { largest, softmax } from "./tensors.js";

/** @typedef {{ text: string, tokens: string[], probabilities: number[], unknown: string[],
 *   long: boolean }} Translation `long`: a sentence is too long, and its translation is left out */

// English's rules end sentences in other scripts, too
const SENTENCES = new Intl.Segmenter("en", { granularity: "sentence" });

/** The sentences of a line. A quotation mark after ".." belongs to what is before it, and "1." to
 *  what comes after it. @param {string} line */
function sentencesOf(line) {
  /** @type {string[]} */
  const parts = [""];
  for (const { segment } of SENTENCES.segment(line)) {
    const last = parts.length - 1;
    if (/\p{L}/u.test(parts[last]) && /[\p{L}\d]/u.test(segment)) parts.push(segment);
    else parts[last] += segment;
  }
  return parts.filter((part) => part.trim());
}

/** A line's translation, sentence by sentence: of several at once, a model that learned from single
 *  ones loses some. It yields after every token, so that whoever runs it can stop.
 *  @param {Translator} translator @param {string} line @returns {Search<Translation>} */
export function* lineSteps(translator, line) {
  /** @type {Omit<Translation, "unknown">[]} */
  const sentences = [];
  for (const sentence of sentencesOf(line))
    sentences.push(yield* sentenceSteps(translator, sentence));
  return {
    text: sentences.map(({ text }) => text).join(" "),
    tokens: sentences.flatMap(({ tokens }) => tokens),
    probabilities: sentences.flatMap(({ probabilities }) => probabilities),
    unknown: translator.tokenizer.unknown(line),
    long: sentences.some(({ long }) => long),
  };
}

/** @returns {Search<Omit<Translation, "unknown">>} */
function* sentenceSteps(/** @type {Translator} */ translator, /** @type {string} */ sentence) {
  const { model, tokenizer } = translator;
  const src = translator.source(sentence);
  /** @type {number[]} */
  const probabilities = [];
  if (src.length > LONGEST) return { text: "", tokens: [], probabilities, long: true };
  const ids = yield* greedySteps(model, src, (logits) => {
    const [id] = largest(logits, 1);
    probabilities.push(softmax(logits)[id]);
    return id;
  });
  const tokens = tokenizer.tokens(ids.slice(1));
  return { text: tokenizer.decode(ids), tokens, probabilities, long: false };
}
