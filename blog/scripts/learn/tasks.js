// What a small model can learn in a tab, and a training. After the document's Part 2.

import * as learning from "./learning.js";
import { generator, greedy_decode, make_model, SPECIALS } from "./small_model.js";

/** @typedef {Pair & { source: string, target: string }} TextPair */
/** `of` makes a pair of what a reader writes, if it can be learned; from `held_out` it never is.
 *  @typedef {{ letters: string[], of: (text: string) => TextPair | null, held_out: TextPair[],
 *    batch: (pairs: number) => TextPair[] }} Task */
/** What a task is made from: the letters, and how it draws.
 *  @typedef {{ letters: string[], pair: (source: string, target: string) => TextPair,
 *    below: (end: number) => number }} Means */
/** An update: its number, the loss before it, and its rate.
 *  @typedef {[number, number, number]} Update */
/** What the reader chooses: parts of a fresh model, and of its training.
 *  @typedef {typeof WHOLE & { task: string, seed: number, slip?: string | null }} Settings */

const MARKS = ["<pad>", "<s>", "</s>", "<unk>"];
const ONES = (
  "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf " +
  "dreizehn vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn"
).split(" ");
const TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split(" ");

/** A number below 1000 in German words. @param {number} n @returns {string} */
export function german_number(n) {
  const [hundreds, rest] = [Math.floor(n / 100), n % 100];
  if (hundreds) return `${ONES[hundreds]}hundert${rest ? german_number(rest) : ""}`;
  if (n < 20) return n === 1 ? "eins" : ONES[n];
  return (n % 10 ? `${ONES[n % 10]}und` : "") + TENS[Math.floor(n / 10) - 2];
}

/** German numbers, letter by letter. @param {Means} means @returns {Task} */
function numbers({ letters, pair, below }) {
  const large = Array.from({ length: 900 }, (_, i) => 100 + i);
  for (let i = large.length - 1; i > 0; i--) {
    const j = below(i + 1);
    [large[i], large[j]] = [large[j], large[i]];
  }
  const of = (/** @type {number} */ n) => pair(german_number(n), String(n));
  const learned = large.slice(180);
  const small = () => of(below(100));
  const big = () => of(learned[below(learned.length)]);
  return {
    letters,
    of: (text) => (/^\d{1,3}$/.test(text) ? of(Number(text)) : null),
    held_out: large.slice(0, 180).map(of),
    batch: (pairs) => Array.from({ length: pairs }, (_, i) => (i < pairs / 4 ? small() : big())),
  };
}

/** Words of 3 to 8 of the task's letters, and what is made of each.
 *  @param {(word: string) => string} target_of @returns {(means: Means) => Task} */
const words =
  (target_of) =>
  ({ letters, pair, below }) => {
    const own = letters.slice(MARKS.length);
    const of = (/** @type {string} */ word) => pair(word, target_of(word));
    const letter = () => own[below(own.length)];
    const draw = () => of(Array.from({ length: 3 + below(6) }, letter).join(""));
    const held_out = Array.from({ length: 150 }, draw);
    const held = new Set(held_out.map(({ source }) => source));
    function fresh() {
      let drawn = draw();
      while (held.has(drawn.source)) drawn = draw();
      return drawn;
    }
    return {
      letters,
      of: (text) =>
        /^.{1,12}$/.test(text) && [...text].every((one) => own.includes(one)) ? of(text) : null,
      held_out,
      batch: (pairs) => Array.from({ length: pairs }, fresh),
    };
  };

const LETTERS = "abcdefghij";
const ALL_NUMBERS = Array.from({ length: 1000 }, (_, n) => german_number(n) + n).join("");

/** The tasks: the letters of their texts, how many updates a training makes, and what makes them.
 *  @type {Record<string, { texts: string, updates: number, make: (means: Means) => Task }>} */
export const TASKS = {
  numbers: { texts: ALL_NUMBERS, updates: 2500, make: numbers },
  copy: { texts: LETTERS, updates: 500, make: words((word) => word) },
  reverse: { texts: LETTERS, updates: 1200, make: words((word) => [...word].reverse().join("")) },
};

/** A task: its letters, pairs from texts, batches, and pairs that are never learned from. */
export function make(/** @type {string} */ name, /** @type {number} */ seed) {
  const random = generator(seed);
  const { texts, make } = TASKS[name];
  const letters = [...MARKS, ...[...new Set(texts)].sort()];
  const ids = (/** @type {string} */ text) => [...text].map((letter) => letters.indexOf(letter));
  return make({
    letters,
    below: (end) => Math.floor(random() * end),
    pair: (source, target) => ({
      source,
      target,
      src: [...ids(source), SPECIALS.EOS],
      tgt: [SPECIALS.BOS, ...ids(target), SPECIALS.EOS],
    }),
  });
}

// --- a training ---

const WARMUP = 100;
const D_MODEL = 16;
const FACTOR = 0.7;
const PAIRS = 8; // of an update

/** The rate of step `step`, with warmup. @param {number} step */
export const usual_rate = (step) => learning.rate(step, D_MODEL, FACTOR, WARMUP);

/** The highest usual rate. */
export const PEAK = usual_rate(WARMUP);

/** The rate of a step: Equation (3) times `rate`, and in the second half down to zero; without
 *  warmup, at the peak from the start.
 *  @param {number} step @param {number} total
 *  @param {Pick<Settings, "warmup" | "rate">} settings */
const rate_of = (step, total, { warmup, rate }) =>
  rate * usual_rate(warmup ? step : Math.max(step, WARMUP)) * Math.min(1, 2 * (1 - step / total));

/** A fresh model of the page's size for a task.
 *  @param {Task} task @param {Partial<Settings>} settings */
export const fresh_model = ({ letters }, settings) =>
  make_model({ vocab: letters.length, d_model: D_MODEL, d_ff: 2 * D_MODEL, ...settings });

/** A fresh model, its task, and what makes the next update. @param {Settings} settings */
export function training(settings) {
  const total = TASKS[settings.task].updates;
  const task = make(settings.task, settings.seed);
  const model = fresh_model(task, settings);
  const rate = settings.rate * model.ways.rate;
  /** @returns {Update} */
  function step() {
    const number = model.step + 1;
    const lr = rate_of(number, total, { warmup: settings.warmup, rate });
    const loss = learning.update(model, task.batch(PAIRS), { lr, shift: settings.shift });
    return [number, loss, lr];
  }
  /** What it writes for a pair, as names of letters, with the weights of the last layer's
   *  cross-attention (T)(h)(S). @param {TextPair} pair */
  function answer({ source, target, src, tgt }) {
    const { ids, weights } = greedy_decode(model, src, tgt.length);
    return { source, target, written: ids.map((i) => task.letters[i]), weights };
  }
  /** The share of what was held out that it gets right, and examples, those first that it gets
   *  wrong. @param {number} shown how many examples */
  function score(shown) {
    const wrong = learning.wrong_pairs(model, task.held_out);
    const right = task.held_out.filter((_, i) => !wrong.includes(i));
    const examples = [...wrong.slice(0, shown).map((i) => task.held_out[i]), ...right];
    const exact = 1 - wrong.length / task.held_out.length;
    return { exact, examples: examples.slice(0, shown).map(answer) };
  }
  return { task, model, total, step, answer, score };
}

/** The mean losses of a whole training, in stretches.
 *  @param {ReturnType<typeof training>} run @param {number} stretches
 *  @param {(stretch: number) => void} ended is called after each stretch, from 1 */
export function losses_of({ total, step, model }, stretches, ended = () => {}) {
  return Array.from({ length: stretches }, (_, stretch) => {
    const end = Math.round((total * (stretch + 1)) / stretches);
    const losses = [];
    while (model.step < end) losses.push(step()[1]);
    ended(stretch + 1);
    return Number((losses.reduce((sum, loss) => sum + loss, 0) / losses.length).toFixed(3));
  });
}

/** Settings that leave out nothing. */
export const WHOLE = {
  ...{ warmup: true, positions: true, causal: true, shift: true, norms: true, residuals: true },
  ...{ h: 2, rate: 1 },
};
