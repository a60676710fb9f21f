// How far a translation is to be trusted: what the model's own probabilities say, and what a
// sentence has that it hardly knows.

import { UNK } from "../model/tokeniser.js";
import { say } from "../page/language.js";

// Of 22 sentences that were tried, six good captions had 70% or more, and twelve outputs without
// sense 60% or less. A wrong word of which the model is sure isn't found in this way.
const GUESSING = 0.65;
const ENGLISH =
  /^(the|is|are|and|with|of|on|to|from|two|woman|women|his|her|you|this|that|what|how|my|i|we)$/i;

/** The geometric mean of the probabilities that the model gave the tokens it wrote. */
export const confidence = (steps) =>
  Math.exp(
    steps.reduce((sum, { own, chosen }) => sum + Math.log(Math.max(1e-12, own ?? chosen)), 0) /
      steps.length,
  );
export const guessing = (steps) => confidence(steps) < GUESSING;
export function verdict(steps) {
  const unsure = guessing(steps),
    share = `${Math.round(100 * confidence(steps))}%`;
  return say(
    unsure
      ? "The model is guessing: it gives its tokens {share} (geometric mean)."
      : "The model gives its tokens {share} (geometric mean).",
    { share },
  );
}

// Of the words below 40% in translations of Multi30k's val, the reference had a third, of those
// above 90% nine of ten.
const DOUBTFUL = 0.4;

/** For each token, whether it belongs to a word that the model gave less than 40%: the product
 *  over the word's tokens. */
export function doubtful(steps, starts) {
  const found = [];
  for (let from = 0, to; from < steps.length; from = to) {
    to = from + 1;
    while (to < steps.length && !starts(to)) to++;
    const p = steps
      .slice(from, to)
      .reduce((product, { own, chosen }) => product * (own ?? chosen), 1);
    for (let i = from; i < to; i++) found.push(p < DOUBTFUL);
  }
  return found;
}

const NEGATION = /^(nicht|kein(e[mnrs]?)?|nie|niemals|niemand|nirgends)$/i;
const quoted = (words) => words.map((word) => `“${word}”`).join(say(", "));
const capital = (word) => word[0].toUpperCase() + word.slice(1);

/** What is to be said of a sentence before anyone believes its translation.
 *  @returns {string[]} */
export function doubts(sentence, tokenizer, language) {
  const pieces = (word) => tokenizer.encode(word).length;
  const words = sentence
    .split(/\s+/)
    .map((word) => word.replace(/^\p{P}+|\p{P}+$/gu, ""))
    .filter(Boolean);
  const unknown = [...new Set(sentence.normalize("NFC"))].filter(
    (character) => character.trim() && tokenizer.encode(character).includes(UNK),
  );
  const { messages, small } =
    language === "de" ? doubtsOfGerman(words, pieces) : { messages: [], small: [] };
  const rare = words.filter(
    (word) => pieces(word) > 4 && !small.includes(word) && !/\d/.test(word),
  );
  if (unknown.length)
    messages.unshift(say("It has never seen {characters}.", { characters: quoted(unknown) }));
  if (rare.length)
    messages.push(
      say("It does not know {words} as a word, and reads small pieces.", { words: quoted(rare) }),
    );
  if (words.some((word) => /\d/.test(word)))
    messages.push(say("It has read very few numbers in figures."));
  return messages;
}

function doubtsOfGerman(words, pieces) {
  const messages = [];
  const english =
    words.filter((word) => ENGLISH.test(word)).length * 6 >= Math.max(1, words.length);
  if (english) messages.push(say("This looks like English, but the model reads German."));
  const small = english
    ? []
    : words.filter((word) => /^\p{Ll}/u.test(word) && pieces(capital(word)) < pieces(word));
  if (small.length)
    messages.push(
      say(
        "German nouns begin with a capital letter, and the model knows them only so: write {words}.",
        { words: quoted(small.map(capital)) },
      ),
    );
  const negated = words.filter((word) => NEGATION.test(word));
  if (negated.length)
    messages.push(
      say(
        "In captions hardly anything is denied, so it often leaves {words} out and is sure all the same.",
        { words: quoted(negated) },
      ),
    );
  return { messages, small };
}

/** The longest list that two lists have in common, in order: places of the first, and where each
 *  is in the second.
 *  @param {string[]} ours @param {string[]} theirs @returns {Map<number, number>} */
export function inCommon(ours, theirs) {
  const lengths = ours.map(() => []);
  const length = (i, j) => (i < 0 || j < 0 ? 0 : lengths[i][j]);
  ours.forEach((word, i) =>
    theirs.forEach((their, j) => {
      lengths[i][j] =
        word === their ? length(i - 1, j - 1) + 1 : Math.max(length(i - 1, j), length(i, j - 1));
    }),
  );
  const places = new Map();
  let [i, j] = [ours.length - 1, theirs.length - 1];
  while (i >= 0 && j >= 0) {
    if (ours[i] === theirs[j]) {
      places.set(i, j);
      i--;
      j--;
    } else if (length(i - 1, j) >= length(i, j - 1)) i--;
    else j--;
  }
  return places;
}

/** The words of a text, with those marked that another text does not have in this order, and a
 *  dash where it has more. */
export function marked(text, other) {
  const words = text.split(" ");
  const places = inCommon(words, other.split(" "));
  const node = (tag, textContent) => Object.assign(document.createElement(tag), { textContent });
  const more = (i) =>
    (i === 0 || places.has(i - 1)) && places.get(i) > (places.get(i - 1) ?? -1) + 1;
  return words.flatMap((word, i) => [
    ...(i ? [" "] : []),
    ...(more(i) ? [node("mark", "–"), " "] : []),
    node(places.has(i) ? "span" : "mark", word),
  ]);
}
