// Step by step through a translation: what the model thinks most probable, what a reader guesses
// or takes instead, and the steps played one after the other.

import * as Guesses from "../../page/guesses.js";
import { say, told } from "../../page/language.js";
import { EOS, plain } from "../../model/tokeniser.js";
import { el, percent, quoted, setAll } from "../dom.js";
import { inCommon } from "../trust.js";
import { compare } from "./changes.js";
import { drawMaps } from "./maps.js";
import { pin } from "./lines.js";
import { lightUp } from "./strips.js";
import { isMarker } from "./tokens.js";

const STEP_MS = 600; // of Play

/** Whether the reader is still to guess this step. */
export const unseen = ({ state, guessed }) => state.guess && state.step > guessed;

/** @param {import("../figure.js").Figure} figure */
export function drawStep(figure) {
  const { $, state, view } = figure;
  drawStepper(figure);
  drawProgress(figure);
  drawLikeliest(figure);
  $("count").textContent = Guesses.text();
  showSpoilers(figure);
  lightUp(figure);
  for (const node of $("tree").querySelectorAll("[data-step]"))
    node.classList.toggle("later", !state.whole && Number(node.dataset.step) > state.step);
  if (state.words || state.kind === "encoder" || !view || !$("maps").open) return;
  const row = state.step - 1 - view.first;
  if (view.queries[row]) pin(figure, row);
  else drawMaps(figure); // a map of a long sentence shows the rows around the step
}

function drawStepper({ $, root, result, state }) {
  const count = result.predicted.length;
  const { step } = state;
  setAll($("step"), { max: count });
  $("step").value = step;
  $("step").setAttribute("aria-valuetext", say("{step} of {count}", { step, count }));
  for (const [id, atEnd, other] of [
    ["back", step <= 1, "forward"],
    ["forward", step >= count, "back"],
  ]) {
    // a disabled button would lose the focus
    if (atEnd && root.activeElement === $(id)) $(count > 1 ? other : "step").focus();
    $(id).disabled = atEnd;
  }
  $("play").disabled = state.guess;
}

// What has been written so far: what comes later is not to be seen before.
function drawProgress(figure) {
  const { $, result, state } = figure;
  const { step } = state;
  const shown = state.whole ? result.predicted.length : step;
  [...$("target").children].forEach((item, i) => {
    item.classList.toggle("later", i >= shown);
    item.classList.toggle("unseen", i === step - 1 && unseen(figure));
    item.firstChild.classList.toggle("now", i === step - 1);
  });
  $("underlined").hidden = !$("target").querySelector(".doubtful:not(.later, .unseen)");
  const tokens = result.predicted
    .slice(0, unseen(figure) ? step - 1 : shown)
    .filter((token) => !isMarker(token));
  const text =
    shown === result.predicted.length && !unseen(figure)
      ? result.translation
      : tokens.length
        ? `${plain(tokens.join(""))} …`
        : "…";
  $("translation").replaceChildren(el("strong", { dir: "auto" }, text));
}

function drawLikeliest(figure) {
  const { $, result, state, engine, names } = figure;
  const { step } = state;
  const count = result.predicted.length;
  const written = quoted(plain(result.predicted.slice(0, step - 1).join("")));
  $("step-readout").replaceChildren(
    ...(step > 1
      ? told("Step {step} of {count}. It has written {written} and predicts:", {
          step,
          count,
          written,
        })
      : [say("Step {step} of {count}. It has written nothing, and predicts:", { step, count })]),
  );
  const { likeliest, chosen: p } = result.steps[step - 1];
  const chosen = result.predicted[step - 1];
  const listed = likeliest.some(({ token }) => token === chosen)
    ? [...likeliest]
    : [...likeliest, { id: result.ids?.[step], token: chosen, p }];
  const hidden = unseen(figure);
  if (hidden) listed.sort((a, b) => (plain(a.token) < plain(b.token) ? -1 : 1));
  $("likeliest").replaceChildren(
    ...listed.flatMap(({ id, token, p }) => {
      const name = token === chosen && !hidden ? "chosen" : "";
      const text = el("bdi", {}, names.piece(token));
      const first = engine
        ? el("button", { type: "button", class: name, "data-id": id }, text)
        : el("span", {}, text);
      const bar = hidden ? el("span") : el("i", { style: `width:${Math.max(0.2, 100 * p)}%` });
      const share = hidden ? el("span") : el("span", { class: name }, percent(p));
      return [el("span", { class: name }, first, name ? " ←" : ""), bar, share];
    }),
  );
  if (hidden) $("step-readout").append(" ", say("Which of these comes next? Click it."));
}

// Tree and maps tell what comes.
function showSpoilers(figure) {
  const { $, result, state, guessed } = figure;
  const spoils = state.guess && guessed < result.predicted.length;
  const returns = $("maps").hidden && !spoils;
  $("tree-box").hidden = !result.nodes || spoils;
  $("maps").hidden = spoils;
  if (returns) drawMaps(figure);
}

/** Show a step, with what is written later only if `whole`. */
export function go(figure, step, whole = false) {
  if (!figure.result) return;
  Object.assign(figure.state, { whole: whole && !figure.state.guess });
  figure.state.step = Math.max(1, Math.min(figure.result.predicted.length, step));
  drawStep(figure);
}

export function stop(figure) {
  clearInterval(figure.playing);
  figure.playing = 0;
  figure.$("play").textContent = say("Play");
}

/** Replay how the translation was written. */
export function play(figure) {
  const { state, result } = figure;
  if (figure.playing || !result) return stop(figure);
  const end = result.predicted.length;
  const first = state.whole || state.step === end ? 1 : state.step;
  if (figure.calm.matches)
    return go(figure, state.whole || state.step < end ? first + !state.whole : 1);
  go(figure, first);
  figure.$("play").textContent = say("Stop");
  figure.playing = setInterval(() => {
    if (state.step < end) go(figure, state.step + 1);
    else rest(figure);
  }, STEP_MS);
}

function rest(figure) {
  stop(figure);
  go(figure, figure.state.step, true);
}

/** Where a figure rests: at the first word that is not in the `whole` model's translation, else at
 *  the step, from the second on, that looks at one word hardest. */
export function clearestStep({ maps, predicted, source }, whole) {
  const before = inCommon(predicted, whole?.predicted ?? predicted);
  const changed = predicted.findIndex((_, t) => !before.has(t));
  if (changed >= 0) return 1 + changed;
  const heads = maps.cross.at(-1);
  const sharpness = predicted.map((token, t) => {
    if (t === 0 || isMarker(token) || !/\p{L}/u.test(token)) return 0;
    const weights = source.map((_, k) => heads.reduce((sum, map) => sum + map[t][k], 0));
    return Math.max(
      ...weights.filter((_, k) => /\p{L}{2}/u.test(source[k]) && !isMarker(source[k])),
      0,
    );
  });
  return 1 + sharpness.indexOf(Math.max(...sharpness));
}

/** The reader's guess of the next token. */
export function answer(figure, id) {
  const { $, result, state, engine } = figure;
  const right = id === result.ids[state.step];
  figure.guessed = state.step;
  Guesses.add(right);
  drawStep(figure);
  const message = right
    ? say("You guessed it.")
    : say("You guessed “{token}”.", { token: plain(engine.tokenizer.pieces[id]) });
  $("step-readout").append(" ", el("strong", {}, message));
  $("forward").focus();
}

/** Have the sentence go on from tokens of the reader's choice. */
export async function take(figure, ids) {
  const { result, changes, engine } = figure;
  const { step } = figure.state;
  const { likeliest } = result.steps[step - 1];
  const choice = {
    step,
    ids,
    token: engine.tokenizer.tokens(ids).join(""),
    p: likeliest.find(({ id }) => id === ids[0])?.p ?? 0,
    other: likeliest[0].token,
    q: likeliest[0].p,
  };
  const earlier = (changes.taken?.choices ?? []).filter((other) => other.step < step);
  changes.taken = { forced: [...result.ids.slice(1, step), ...ids], choices: [...earlier, choice] };
  if (!(await figure.compute(step))) return;
  const { steps } = figure.result;
  choice.p = ids.reduce((p, _, i) => p * (steps[step - 1 + i]?.own ?? 1), 1);
  compare(figure);
}

/** The ids of a word that a reader writes; "·" begins a piece that continues one. */
export function idsOf({ tokenizer }, word) {
  if (word === "</s>") return [EOS];
  return word.startsWith("·") ? tokenizer.merge(word.slice(1)) : tokenizer.encode(word);
}
