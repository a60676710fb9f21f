// The two sentences of a figure, token by token: what was read, with its English, and what was
// written.

import { gloss } from "../../page/gloss.js";
import { direction, say } from "../../page/language.js";
import { plain } from "../../model/tokeniser.js";
import * as Trust from "../trust.js";
import { el, opacity } from "../dom.js";
import { unseen } from "./steps.js";
import { headName, weightsOf } from "./maps.js";
import { isMarker } from "./tokens.js";

/** @param {import("../figure.js").Figure} figure */
export function drawStrips(figure) {
  const { $, result, state } = figure;
  $("source").dir = direction(state.sentence);
  $("target").dir = direction(result.translation);
  drawSource(figure);
  drawTarget(figure);
  $("dot").hidden = ![result.source, result.predicted].some((tokens) =>
    tokens.some((_, i) => !figure.names.startsWord(tokens, i)),
  );
}

function listItem(figure, tokens, i, classes, ...below) {
  const start = figure.names.startsWord(tokens, i) ? "start" : "";
  const marker = isMarker(tokens[i]) ? "marker" : "";
  const button = el(
    "button",
    { type: "button", tabindex: i ? -1 : 0, "data-i": i },
    el("bdi", {}, figure.names.spell(tokens, [i])),
    ...below,
  );
  return el("li", { class: [start, marker, ...classes].filter(Boolean).join(" ") }, button);
}

function drawSource(figure) {
  const { $, result, changes, state } = figure;
  const english = gloss(state.shown);
  let word = 0; // of the gloss: the next one
  const items = result.source.map((token, i) => {
    const begins = english.length > 0 && token.startsWith("▁");
    const name = begins ? english[word++].replaceAll("-", " ") : "";
    const moved = changes.order && changes.order[i] !== i;
    return listItem(
      figure,
      result.source,
      i,
      [changes.hidden.has(i) && "gone"],
      ...(english.length ? [el("small", { lang: "en" }, name)] : []),
      ...(moved ? [el("small", {}, say("at {place}", { place: changes.order[i] + 1 }))] : []),
    );
  });
  $("source").replaceChildren(...items);
  [...$("source").children].slice(0, -1).forEach((item, i) => {
    item.firstChild.setAttribute("aria-pressed", changes.hidden.has(i));
  });
}

function drawTarget(figure) {
  const { $, result, whole, changes, names } = figure;
  const choices = changes.taken?.choices ?? [];
  const chosen = (i) => choices.some(({ step, ids }) => i >= step - 1 && i < step - 1 + ids.length);
  const judged = result.steps.filter((_, i) => !chosen(i)); // only what the model chose itself
  const doubtful = Trust.doubtful(
    result.steps.map((step, i) => (chosen(i) ? { own: 1 } : step)),
    (i) => names.startsWord(result.predicted, i),
  );
  const before = whole && Trust.inCommon(result.predicted, whole.predicted);
  const items = result.predicted.map((token, i) =>
    listItem(
      figure,
      result.predicted,
      i,
      [
        doubtful[i] && !isMarker(token) && "doubtful",
        before && !before.has(i) && !figure.state.guess && "changed",
      ],
      el("small", { class: "beyond" }, Math.round(100 * result.steps[i].chosen) + "%"),
    ),
  );
  $("target").replaceChildren(...items);
  $("sure").replaceChildren(
    judged.length ? Trust.verdict(judged) : "",
    el(
      "span",
      { id: "underlined" },
      " ",
      say(
        "It gave the underlined words less than 40%: in a test, only a third of such words were in the reference.",
      ),
    ),
  );
  $("sure").classList.toggle("warning", judged.length > 0 && Trust.guessing(judged));
}

/** Shade the weights that a token's row has in the chosen layer and head; without a token, those
 *  of the current step. */
export function lightUp(figure, side = "target", i = figure.state.step - 1) {
  const { $, result, state } = figure;
  const layer = Math.min(state.layer, result.maps.cross.length);
  const { head } = state;
  const row = (kind) => weightsOf(result, kind, layer, head)[i];
  const shade = (id, weights) =>
    [...$(id).children].forEach((item, k) =>
      item.firstChild.style.setProperty("--a", opacity(weights?.[k] ?? 0).toFixed(3)),
    );
  const writes = side === "target";
  shade("source", row(writes ? "cross" : "encoder"));
  shade("target", writes ? row("decoder").slice(1) : []);
  const token = plain(writes ? result.predicted[i] : result.source[i]);
  const place = { token, layer, head: headName(head) };
  const hidesToken = writes && unseen(figure) && i === state.step - 1;
  $("shades").textContent = figure.options.first
    ? writes
      ? say("Shaded: where the model looks before it writes “{token}”.", place)
      : say("Shaded: where “{token}” looks in the German sentence.", place)
    : hidesToken
      ? say("Shaded: where this step looks (layer {layer}, {head}).", place)
      : writes
        ? say("Shaded: where the step that writes “{token}” looks (layer {layer}, {head}).", place)
        : say("Shaded: where “{token}” looks in the encoder (layer {layer}, {head}).", place);
}
