// The two sentences of a figure, token by token: what was read, with its English, and what was
// written.

import { plain } from "../../model/tokeniser.js";
import { el } from "../../page/dom.js";
import { glossOf } from "../../page/gloss.js";
import { direction, say } from "../../page/language.js";
import * as Trust from "../trust.js";
import { isGone } from "./changes.js";
import { headName, opacity, weightsOf } from "./maps.js";
import { isMarker } from "./tokens.js";

export function drawStrips(/** @type {Figure} */ figure) {
  const { $, result, state, names } = figure;
  $("source").dir = direction(state.sentence);
  $("target").dir = direction(result.translation);
  drawSource(figure);
  drawTarget(figure);
  const { source, predicted } = result;
  $("dot").hidden = ![source, predicted].some((tokens) =>
    tokens.some((_, i) => !names.startsWord(tokens, i)),
  );
}

/** @param {Figure} figure @param {string[]} tokens @param {number} i
 *  @param {object} attributes @param {string} classes @param {...Node} below the token */
function listItem({ names }, tokens, i, attributes, classes, ...below) {
  const start = names.startsWord(tokens, i) ? "start " : "";
  const marker = isMarker(tokens[i]) ? "marker " : "";
  const token = el("bdi", {}, names.spell(tokens, i));
  const places = { type: "button", tabindex: i ? -1 : 0, "data-i": i };
  const button = el("button", { ...places, ...attributes }, token, ...below);
  return el("li", { class: (start + marker + classes).trim() }, button);
}

function drawSource(/** @type {Figure} */ figure) {
  const { hidden } = figure.changes;
  const { source } = figure.result;
  const english = glossOf(figure.state.shown, source);
  const isReady = english.some(Boolean);
  const items = source.map((_, i) => {
    const below = isReady ? [el("small", { lang: "en" }, english[i])] : [];
    const title = hidden.has(i) ? say("Click to show it again") : say("Click to hide it");
    const pressed = i < source.length - 1 ? { "aria-pressed": hidden.has(i), title } : {};
    return listItem(figure, source, i, pressed, hidden.has(i) ? "gone" : "", ...below);
  });
  figure.$("source").replaceChildren(...items);
}

function drawTarget(/** @type {Figure} */ figure) {
  const { $, result, whole, changes, names } = figure;
  const { predicted, steps } = result;
  const choices = changes.taken?.choices ?? [];
  const chosen = (/** @type {number} */ i) =>
    choices.some(({ step, ids }) => i >= step - 1 && i < step - 1 + ids.length);
  const judged = steps.filter((_, i) => !chosen(i)); // only what the model chose itself
  const doubtful = Trust.doubtful(
    steps.map((step, i) => (chosen(i) ? { chosen: 1 } : step)),
    (i) => names.startsWord(predicted, i),
  );
  const before = whole && Trust.inCommon(predicted, whole.predicted);
  const items = predicted.map((token, i) => {
    const isDoubtful = doubtful[i] && !isMarker(token);
    const isChanged = before && !before.has(i);
    const classes = `${isDoubtful ? "doubtful " : ""}${isChanged ? "changed" : ""}`;
    const share = el("small", { class: "beyond" }, `${Math.round(100 * steps[i].chosen)}%`);
    return listItem(figure, predicted, i, {}, classes, share);
  });
  $("target").replaceChildren(...items);
  const underlined = say`It gave the underlined words less than 40%: in a test, only a third of such words were in the reference.`;
  const verdict = judged.length ? Trust.verdict(judged) : "";
  $("sure").replaceChildren(verdict, el("span", { id: "underlined" }, " ", underlined));
  $("sure").classList.toggle("warning", judged.length > 0 && Trust.guessing(judged));
}

/** Shade the weights that a token's row has in the chosen layer and head; without a token, those
 *  of the current step.
 *  @param {Figure} figure @param {"source" | "target"} [side] @param {number} [i] */
export function lightUp(figure, side = "target", i = figure.state.step - 1) {
  const { $, result, state } = figure;
  const { first } = figure.options;
  const writes = side === "target";
  // the first screen has no menus: of a German word it shows the head of which text and walk speak
  const usual = { layer: 1, head: Math.min(2, result.maps.encoder[0].length) };
  const { head, ...place } = first && !writes ? usual : state;
  const layer = Math.min(place.layer, result.maps.cross.length);
  const isBlind = (/** @type {Kind} */ kind) => isGone(kind, result, state.switches);
  const row = (/** @type {Kind} */ kind) =>
    isBlind(kind) ? [] : (weightsOf(result, kind, layer, head)[i] ?? []);
  const shade = (/** @type {string} */ strip, /** @type {Numbers} */ weights) =>
    figure.all(`#${strip} button`).forEach((button, k) => {
      button.style.setProperty("--a", opacity(weights[k] ?? 0).toFixed(3));
    });
  shade("source", row(writes ? "cross" : "encoder"));
  shade("target", writes ? row("decoder").slice(1) : []);
  const token = plain(writes ? result.predicted[i] : result.source[i]);
  $("shades").textContent = shadesText(first, writes, { token, layer, head });
}

/** @param {boolean | undefined} first @param {boolean} writes
 *  @param {{ token: string, layer: number, head: Head }} place */
function shadesText(first, writes, { token, layer, head }) {
  const place = { token, layer, head: headName(head) };
  if (first && writes)
    return say("Shaded: where the model looks before it writes “{token}”.", place);
  if (first) return say("Shaded: where “{token}” looks in the German sentence.", place);
  if (writes)
    return say(
      "Shaded: where the step that writes “{token}” looks (layer {layer}, {head}).",
      place,
    );
  return say("Shaded: where “{token}” looks in the encoder (layer {layer}, {head}).", place);
}
