// Step by step through a translation: what the model thinks most probable, what a reader takes
// instead, and the steps played one after the other.

import { EOS, plain } from "../../model/tokeniser.js";
import { el, percent } from "../../page/dom.js";
import { say } from "../../page/language.js";
import { inCommon } from "../trust.js";
import { compare } from "./changes.js";
import { lightUp } from "./strips.js";
import { isMarker } from "./tokens.js";

const STEP_MS = 600; // of Play

export function drawStep(/** @type {Figure} */ figure) {
  const { $, state, result } = figure;
  const values = { step: state.step, count: result.predicted.length };
  Object.assign($("step"), { max: values.count, value: state.step });
  $("step").setAttribute("aria-valuetext", say("{step} of {count}", values));
  drawProgress(figure);
  drawLikeliest(figure);
  lightUp(figure);
}

/** What has been written so far: what comes later is not to be seen before. */
function drawProgress(/** @type {Figure} */ figure) {
  const { $, result, state } = figure;
  const { predicted, translation } = result;
  const now = state.step - 1;
  const shown = state.whole ? predicted.length : state.step;
  figure.all("#target li").forEach(({ classList, firstElementChild }, i) => {
    classList.toggle("later", i >= shown);
    firstElementChild?.classList.toggle("now", i === now);
  });
  $("underlined").hidden = !$("target").querySelector(".doubtful:not(.later)");
  const tokens = predicted.slice(0, shown).filter((token) => !isMarker(token));
  const beginning = tokens.length ? `${plain(tokens.join(""))} …` : "…";
  const text = shown === predicted.length ? translation : beginning;
  $("translation").replaceChildren(el("strong", { dir: "auto" }, text));
}

function drawLikeliest(/** @type {Figure} */ figure) {
  const { $, result, state, engine, names } = figure;
  const { predicted, steps, ids } = result;
  const { step } = state;
  const written = `“${plain(predicted.slice(0, step - 1).join(""))}”`;
  const values = { step, count: predicted.length, written };
  $("step-readout").textContent =
    step > 1
      ? say("Step {step} of {count}. It has written {written} and predicts:", values)
      : say("Step {step} of {count}. It has written nothing, and predicts:", values);
  const { likeliest, chosen: p } = steps[step - 1];
  const token = predicted[step - 1];
  const isListed = likeliest.some((other) => other.token === token);
  const listed = isListed ? [...likeliest] : [...likeliest, { id: ids?.[step], token, p }];
  const rows = listed.flatMap((row) => {
    const name = row.token === token ? "chosen" : "";
    const text = el("bdi", {}, names.piece(row.token));
    const button = { type: "button", class: name, "data-id": row.id };
    const first = engine ? el("button", button, text) : el("span", {}, text);
    const bar = { style: `width:${Math.max(0.2, 100 * row.p)}%` };
    return [
      el("span", { class: name }, first, name ? " ←" : ""),
      el("i", bar),
      el("span", { class: name }, percent(row.p)),
    ];
  });
  $("likeliest").replaceChildren(...rows);
}

/** Show a step, with what is written later only if `whole`.
 *  @param {Figure} figure @param {number} step @param {boolean} whole */
export function go(figure, step, whole = false) {
  const { result, state } = figure;
  if (!result) return;
  state.whole = whole;
  state.step = Math.max(1, Math.min(result.predicted.length, step));
  drawStep(figure);
}

export function stop(/** @type {Figure} */ figure) {
  clearInterval(figure.playing);
  figure.playing = 0;
  figure.$("play").textContent = say("Play");
}

/** Replay how the translation was written. @param {Figure} figure */
export function play(figure) {
  const { state, result } = figure;
  if (figure.playing || !result) return stop(figure);
  const end = result.predicted.length;
  const isAtRest = state.whole || state.step === end;
  if (matchMedia("(prefers-reduced-motion: reduce)").matches)
    return go(figure, isAtRest ? 1 : state.step + 1);
  go(figure, isAtRest ? 1 : state.step);
  figure.$("play").textContent = say("Stop");
  figure.playing = window.setInterval(() => {
    if (state.step < end) return go(figure, state.step + 1);
    stop(figure);
    go(figure, state.step, true);
  }, STEP_MS);
}

/** The step that writes what a step wrote before something was changed.
 *  @param {Result} result @param {Result} old @param {number} step of it */
export function sameStep({ predicted }, old, step) {
  const places = [...inCommon(predicted, old.predicted)];
  return 1 + (places.find(([, before]) => before === step - 1)?.[0] ?? step - 1);
}

/** Where a figure rests: at the step, from the second on, that looks at one word hardest. */
export function clearestStep(/** @type {Result} */ { maps, predicted, source }) {
  const heads = maps.cross.at(-2) ?? maps.cross[0];
  const words = [...source.keys()].filter(
    (k) => /\p{L}{2}/u.test(source[k]) && !isMarker(source[k]),
  );
  const sharpness = predicted.map((token, t) => {
    if (t === 0 || isMarker(token) || !/\p{L}/u.test(token)) return 0;
    return Math.max(0, ...words.map((k) => heads.reduce((sum, map) => sum + map[t][k], 0)));
  });
  return 1 + sharpness.indexOf(Math.max(...sharpness));
}

/** Have the sentence go on from tokens of the reader's choice. */
export async function take(/** @type {Figure} */ figure, /** @type {number[]} */ ids) {
  const { result, changes, engine, state } = figure;
  const { step } = state;
  const { likeliest } = result.steps[step - 1];
  const choice = {
    step,
    ids,
    token: engine?.tokenizer.tokens(ids).join("") ?? "",
    p: likeliest.find(({ id }) => id === ids[0])?.p ?? 0,
    other: likeliest[0].token,
    q: likeliest[0].p,
  };
  const earlier = (changes.taken?.choices ?? []).filter((other) => other.step < step);
  changes.taken = { forced: [...result.ids.slice(1, step), ...ids], choices: [...earlier, choice] };
  if (!(await figure.compute(step))) return;
  const taken = figure.result.steps.slice(step - 1, step - 1 + ids.length);
  choice.p = taken.reduce((p, { chosen }) => p * chosen, 1);
  compare(figure);
}

/** The ids of a word that a reader writes; "·" begins a piece that continues one. */
export function idsOf(/** @type {Engine} */ { tokenizer }, /** @type {string} */ word) {
  if (word === "</s>") return [EOS];
  return word.startsWith("·") ? tokenizer.merge(word.slice(1)) : tokenizer.encode(word);
}
