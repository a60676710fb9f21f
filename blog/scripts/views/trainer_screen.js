// What there is on the screen of the trainer, and its tables.

import { meanOf } from "../model/tensors.js";
import { all, byId, el, rowsOf } from "../page/dom.js";
import { say } from "../page/language.js";

/** Parts that a fresh model has, or lacks. @type {[string, string][]} */
export const PARTS = [
  ["warmup", say("warmup")],
  ["positions", say("positions")],
  ["causal", say("causal mask")],
  ["shift", say("the shift")],
  ["norms", say("norms")],
  ["residuals", say("residuals")],
];

const LETTERS = {
  question: say("Your letters, a to j (it learns from words of 3 to 8)"),
  example: "abcdefg",
  allowed: say("Write 1 to 12 letters, each from a to j."),
};
/** The tasks: a name, what the reader is asked to write, what to try, and what can be written.
 *  @type {Record<string, { name: string, question: string, example: string, allowed: string }>} */
export const TASKS = {
  numbers: {
    name: say("German numbers"),
    question: say("Your number, 0 to 999"),
    example: "345",
    allowed: say("Write a number from 0 to 999."),
  },
  copy: { name: say("copying"), ...LETTERS },
  reverse: { name: say("reversing"), ...LETTERS },
};

/** What a part was for. Warmup, height of the rate, norms, residuals, positions: in the end; the
 *  others: with a loss of nothing, and nothing right.
 *  @type {Record<string, string>} */
export const WHY = {
  warmup: say`Here the rate has its usual peak from the first update. That costs much with some seeds and little with others; try the rate × 10 to see what its height does.`,
  rate: say`The rate is too high for this model, with warmup and without: how high it is counts for more than how early.`,
  positions: say`Without positions the encoder knows which letters it reads, but not in which order.`,
  causal: say`In training it saw the letter that it was to predict, because nothing hid it, and learned to repeat that. Now it isn't there.`,
  shift: say`In training it read the very letter that it was to predict, and learned to repeat that. Now it repeats what it wrote.`,
};

/** @param {number[]} values @param {number} first @param {(value: number) => string} name */
const options = (values, first, name) =>
  values
    .map((n) => `<option value="${n}"${n === first ? " selected" : ""}>${name(n)}</option>`)
    .join("");

const tasks = Object.entries(TASKS).map(
  ([value, { name }]) => `<option value="${value}">${name}</option>`,
);
const parts = PARTS.map(
  ([key, name]) => `<label><input type="checkbox" data-key="${key}" checked> ${name}</label>`,
);

const SCREEN = `
  <div class="learn-row">
    <label>${say("Task")} <select id="learn-task">${tasks.join("")}</select></label>
    <button type="button" id="learn-run">${say("▶ Train")}</button> <button type="button" id="learn-step">${say("Step")}</button>
    <button type="button" id="learn-again">${say("Restart")}</button> <button type="button" id="learn-other">${say("Other seed")}</button>
    <span id="learn-state" role="status"></span>
  </div>
  <div class="learn-row" role="group" aria-label="${say("What a fresh model has")}">
    <span>${say("A fresh model with")}</span>
    ${parts.join(" ")}
    <label>${say("heads")} <select data-key="h">${options([1, 2, 4], 2, String)}</select></label>
    <label>${say("learning rate")} <select data-key="rate">${options([0.3, 1, 3, 10], 1, (rate) => `× ${rate}`)}</select></label>
  </div>
  <div class="learn-parts">
    <div><svg id="learn-curve" viewBox="0 0 340 200" role="img" aria-label="${say("Loss and learning rate over the updates")}"></svg>
      <p class="learn-note">${say("Above: the loss in nats per letter; thick is this model, thin your run before it, dotted the whole model with seed 0, trained beforehand, and dashed one that lacks the same part. Below: the learning rate, always on one scale.")}</p></div>
    <div><p class="learn-note" id="learn-exact"></p><p class="learn-note" id="learn-before"></p>
      <table id="learn-examples"></table></div>
  </div>
  <div class="learn-row"><label><span id="learn-ask">${TASKS.numbers.question}</span> <input id="learn-own" size="12" value="345" autocomplete="off" autocapitalize="off"></label> <output id="learn-answer"></output></div>
  <div class="learn-scroll" tabindex="0" role="group" aria-label="${say("Cross-attention")}"><table id="learn-map"></table></div>
  <p class="learn-note">${say("cross-attention: a row for each letter that is written, a column for each that is read; ⏎ is the end")}</p>
  <p class="learn-note">${say("An encoder-decoder of 6,000 weights learns in your browser, from nothing. Take a part away, which begins anew, and see what it was for.")}</p>`;

/** An element of the screen, which is drawn before. @param {string} name */
export const $ = (name) => /** @type {Control} */ (byId(`learn-${name}`));
export const draw_screen = () => (document.body.innerHTML = SCREEN);
/** What the fresh model has. */
export const inputs = () =>
  /** @type {(HTMLInputElement | HTMLSelectElement)[]} */ (all("[data-key]"));

/** Letters as a text without the end; a second beginning is a dot. @param {string[]} letters */
export const text_of = (letters) =>
  letters
    .filter((letter) => letter !== "</s>")
    .join("")
    .replaceAll("<s>", "·");

/** Cross-attention, the mean of the heads.
 *  @param {HTMLTableElement} table
 *  @param {{ source: string, target: string, written: string[], weights: number[][][] } | null} own
 *    weights (T)(h)(S) */
export function draw_map(table, own) {
  if (!own) return table.replaceChildren();
  /** @param {"row" | "col"} scope @param {string} letter */
  const head = (scope, letter = "") => el("th", { scope }, letter.replace("</s>", "⏎"));
  const letters = [...own.source, "</s>"];
  /** @type {HTMLElement[][]} */
  const body = own.weights.map((heads, t) => [
    head("row", own.written[t]),
    ...meanOf(heads).map((weight) => el("td", { style: `--w: ${weight.toFixed(2)}` })),
  ]);
  while (body.length < own.target.length + 1) body.push([el("td")]); // as high as it will be
  const columns = letters.map((letter) => head("col", letter));
  table.replaceChildren(...rowsOf([[el("td"), ...columns], ...body]));
}
