// What the clinic says of tests and of what they measure.

import { percent } from "../page/dom.js";
import { say } from "../page/language.js";

/** The examinations that can be ordered: title, price, and what they do.
 *  @type {Record<string, [title: string, price: number, text: string]>} */
export const ORDERS = {
  wires: [
    say("Wires"),
    1,
    say("Change one word of the target after the other: which predictions move?"),
  ],
  loss: [say("Loss"), 1, say("Compute the loss once more, from the logits.")],
  gradient: [say("Gradient"), 1, say("Compute the gradient twice, and make one step.")],
  inventory: [
    say("Look inside"),
    1,
    say("Look at the encoder's first norm and first attention, before any training."),
  ],
  heart: [
    say("By heart"),
    2,
    say("A fresh model learns eight pairs by heart and translates them."),
  ],
  swap: [say("Swap sources"), 1, say("Give the trained model the sources of other numbers.")],
  references: [
    say("Let it write"),
    1,
    say("The trained model writes on its own; then it reads what it wrote."),
  ],
};

export const LEVELS = [
  say("easy: the curve is ill"),
  say("harder: the curve is well"),
  say("hard: the wires are well, too"),
];

/** @type {Record<string, string>} */
export const BARS = {
  reported: say("as reported"),
  logits: say("from the logits"),
  guessing: say("of guessing"),
  once: say("the gradient"),
  again: say("once more"),
  own: say("its own source"),
  other: say("another's source"),
};

/** @type {Record<string, string>} */
export const CAPTIONS = {
  wires: say`rows: predictions, columns: the word that is changed; framed: it moves a prediction before it`,
  inventory: say("rows: queries, columns: keys, of one head"),
};

/** What a look inside says of numbers that have to be 1.
 *  @param {string} name @param {boolean} well @param {{ low: string, high: string }} range */
export function say_of_ones(name, well, range) {
  if (name === "sums")
    return well
      ? say("the weights of a query add up to 1")
      : say("the weights of a query add up to {low} to {high}, not to 1", range);
  return well
    ? say("behind the norm, the spread of each vector is 1")
    : say("behind the norm, the spread of a vector is {low} to {high}, not 1", range);
}

export const share = (/** @type {number} */ value) => percent(value, 0);

export const last_loss = (/** @type {Patient} */ { losses }) => losses[losses.length - 1];

export const curve_is_ill = (/** @type {Patient} */ patient) => last_loss(patient) > 0.2;

export const writes_badly = (/** @type {Patient} */ { exact }) => exact < 0.8;

export const say_exact = (/** @type {Patient} */ { exact }) =>
  say("{share} of the held-out numbers are written correctly", { share: share(exact) });

export const say_measured = (/** @type {Patient} */ patient) =>
  say("loss {loss}, {forced} right with the reference, {exact} when it writes", {
    loss: last_loss(patient).toFixed(3),
    forced: share(patient.forced),
    exact: share(patient.exact),
  });

/** A text of Python with its number, as Python writes it. */
const formatted = (/** @type {string} */ text, /** @type {number} */ value) =>
  text.replace(/\{:(\+?)\.(\d)([gf%])\}/, (_, sign, digits, kind) => {
    const x = Math.abs(value) < 1e-4 ? 0 : value;
    const plus = sign && x > 0 ? "+" : "";
    if (kind === "%") return plus + share(x);
    return plus + (kind === "g" ? Number(x.toPrecision(digits)) : x.toFixed(digits));
  });

/** @param {Test} test @param {number} value */
export const is_ill = ({ low, high }, value) => !(low <= value && value <= high);

export const say_value = (/** @type {Test} */ test, /** @type {number} */ value) =>
  formatted(test.measured, value) +
  (is_ill(test, value) ? say(": {means}", { means: test.means }) : "");
