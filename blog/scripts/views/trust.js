// How far a translation is to be trusted: what the model's own probabilities say, and what a
// sentence has that it hardly knows.

import { LONGEST } from "../model/decoding.js";
import { el } from "../page/dom.js";
import { say } from "../page/language.js";

/** What the model gave the token that was chosen. @typedef {{ chosen: number }} Step */

// Of 22 sentences that were tried, six good captions had 70% or more, and twelve outputs without
// sense 60% or less. A wrong word of which the model is sure isn't found in this way.
const GUESSING = 0.65;
// Of the words below 40% in translations of Multi30k's val, the reference had a third, of those
// above 90% nine of ten.
const DOUBTFUL = 0.4;
const ENGLISH =
  /^(the|is|are|and|with|of|on|to|from|two|woman|women|his|her|you|this|that|what|how|my|i|we)$/i;
const NEGATION = /^(nicht|kein(e[mnrs]?)?|nie|niemals|niemand|nirgends)$/i;

/** The geometric mean of the probabilities that the model gave the tokens it wrote. */
function confidence(/** @type {Step[]} */ steps) {
  const logs = steps.map(({ chosen }) => Math.log(Math.max(1e-12, chosen)));
  return Math.exp(logs.reduce((a, b) => a + b, 0) / steps.length);
}
/** How sure the model is. */
export const share = (/** @type {Step[]} */ steps) => `${Math.round(100 * confidence(steps))}%`;
export const guessing = (/** @type {Step[]} */ steps) => confidence(steps) < GUESSING;
export function verdict(/** @type {Step[]} */ steps) {
  const values = { share: share(steps) };
  return guessing(steps)
    ? say("The model is guessing. How sure it is of its words: {share}.", values)
    : say("How sure it is of its words: {share}.", values);
}

/** For each token, whether it belongs to a word that the model gave less than 40%: the product
 *  over the word's tokens.
 *  @param {Step[]} steps @param {(i: number) => unknown} starts whether a word begins there */
export function doubtful(steps, starts) {
  /** @type {Step[][]} */
  const words = [];
  steps.forEach((step, i) => {
    if (i === 0 || starts(i)) words.push([]);
    words[words.length - 1].push(step);
  });
  const product = (/** @type {Step[]} */ word) => word.reduce((p, { chosen }) => p * chosen, 1);
  return words.flatMap((word) => word.map(() => product(word) < DOUBTFUL));
}

const quoted = (/** @type {string[]} */ words) => words.map((word) => `“${word}”`).join(say(", "));
const capital = (/** @type {string} */ word) => word[0].toUpperCase() + word.slice(1);

/** Why a sentence isn't translated, if there is a reason. */
export function refusal(/** @type {string} */ sentence, /** @type {Engine} */ engine) {
  const count = engine.source(sentence).length;
  if (count <= LONGEST) return "";
  return say("it has {count} tokens, and here at most {most} are read", { count, most: LONGEST });
}

/** What is to be said of a sentence before anyone believes its translation.
 *  @param {string} sentence @param {Tokenizer} tokenizer @param {string} [language] */
export function doubts(sentence, tokenizer, language) {
  const pieces = (/** @type {string} */ word) => tokenizer.encode(word).length;
  const words = sentence
    .split(/\s+/)
    .map((word) => word.replace(/^\p{P}+|\p{P}+$/gu, ""))
    .filter(Boolean);
  const unknown = tokenizer.unknown(sentence);
  const isGerman = language === "de";
  const english = words.filter((word) => ENGLISH.test(word));
  const isEnglish = isGerman && english.length * 6 >= Math.max(1, words.length);
  const small = words.filter(
    (word) =>
      isGerman && !isEnglish && /^\p{Ll}/u.test(word) && pieces(capital(word)) < pieces(word),
  );
  const negated = words.filter((word) => isGerman && NEGATION.test(word));
  const rare = words.filter(
    (word) => pieces(word) > 4 && !/\d/.test(word) && !small.includes(word),
  );
  return [
    unknown.length && say("It has never seen {characters}.", { characters: quoted(unknown) }),
    isEnglish && say("This looks like English, but the model reads German."),
    small.length &&
      say(
        "German nouns begin with a capital letter. If one is meant, write {words}: the model knows it only so.",
        { words: quoted(small.map(capital)) },
      ),
    negated.length &&
      say(
        "In captions hardly anything is denied, so it often leaves {words} out and is sure all the same.",
        { words: quoted(negated) },
      ),
    rare.length &&
      say("It does not know {words} as a word, and reads small pieces.", { words: quoted(rare) }),
    words.some((word) => /\d/.test(word)) && say("It has read very few numbers in figures."),
  ].filter((message) => typeof message === "string");
}

/** The longest list that two lists have in common, in order: places of the first, and where each is
 *  in the second. @returns {Map<number, number>} */
export function inCommon(/** @type {string[]} */ ours, /** @type {string[]} */ theirs) {
  /** Of what ends at these places. @type {number[][]} */
  const lengths = ours.map(() => []);
  const length = (/** @type {number} */ i, /** @type {number} */ j) => lengths[i]?.[j] ?? 0;
  for (const [i, word] of ours.entries())
    for (const [j, their] of theirs.entries())
      lengths[i][j] =
        word === their ? length(i - 1, j - 1) + 1 : Math.max(length(i - 1, j), length(i, j - 1));
  const places = new Map();
  for (let [i, j] = [ours.length - 1, theirs.length - 1]; i >= 0 && j >= 0;)
    if (ours[i] === theirs[j]) places.set(i--, j--);
    else if (length(i - 1, j) >= length(i, j - 1)) i--;
    else j--;
  return places;
}

/** The words of a text, with those marked that another text does not have in this order, and a
 *  dash where it has more. @param {string} text @param {string} other */
export function marked(text, other) {
  const words = text.split(" ");
  const places = inCommon(words, other.split(" "));
  const more = (/** @type {number} */ i) =>
    (i === 0 || places.has(i - 1)) && (places.get(i) ?? 0) > (places.get(i - 1) ?? -1) + 1;
  return words.flatMap((word, i) => [
    ...(i ? [" "] : []),
    ...(more(i) ? [el("mark", {}, "–"), " "] : []),
    el(places.has(i) ? "span" : "mark", {}, word),
  ]);
}
