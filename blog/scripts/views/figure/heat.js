// The chosen map as a table of coloured cells.

import { el, percent, quoted, rowsOf } from "../../page/dom.js";
import { say } from "../../page/language.js";
import { KINDS, headName, opacity } from "./maps.js";
import { describeQuery, label } from "./tokens.js";

const LEAST_CELL_PX = 20;
const LARGEST_CELL_PX = 34;
const MAP_PX = 480;

/** @param {import("./tokens.js").Item} item */
const startClass = ({ start }) => (start ? "start" : "");
const shade = (/** @type {number} */ weight) => `--a:${opacity(weight).toFixed(3)}`;

/** Only a weight of exactly 0 counts as masked, so a leak through the mask would show.
 *  @param {Figure} figure @param {number} q @param {number} k */
const isMasked = ({ state, view: { keys, queries, weights } }, q, k) =>
  state.kind === "decoder" &&
  keys[k].members[0] > Math.max(...queries[q].members) &&
  weights[q][k] === 0;

/** The true alignment, where it is known: links of the source's and the reference's tokens, if the
 *  model wrote just these. @param {Figure} figure @returns {[number, number][]} */
function trueLinks({ content: { alignment }, result, state }) {
  const fits =
    alignment?.source.join("\n") === result.source.join("\n") &&
    alignment.predicted.join("\n") === result.predicted.join("\n");
  return state.kind === "cross" && fits ? alignment.links : [];
}

/** @param {Figure} figure @param {number} q @param {number} k */
function isTrue(figure, q, k) {
  const { keys, queries } = figure.view;
  return trueLinks(figure).some(
    ([s, t]) => keys[k].members.includes(s) && queries[q].members.includes(t),
  );
}

/** @param {Figure} figure @param {number} q @param {number} k */
function cell(figure, q, k) {
  const { weights, keys } = figure.view;
  const weight = weights[q][k];
  const masked = isMasked(figure, q, k);
  const start = startClass(keys[k]);
  return el("td", {
    class: `${start} ${masked ? "masked" : ""} ${isTrue(figure, q, k) ? "true" : ""}`.trim(),
    "data-q": q,
    "data-k": k,
    tabindex: q + k ? -1 : 0,
    style: shade(weight),
    "aria-label": masked ? say("masked") : percent(weight),
  });
}

export function drawHeat(/** @type {Figure} */ figure) {
  const { $, state, view } = figure;
  const rows = state.kind === "encoder" ? say("query") : say("reads → predicts");
  const columns = view.keys.map((key) => {
    const name = el("div", { class: "upright" }, ...label(key));
    return el("th", { scope: "col", class: startClass(key) }, name);
  });
  const cells = view.queries.map((query, q) => [
    el("th", { scope: "row" }, ...label(query)),
    ...view.keys.map((_, k) => cell(figure, q, k)),
  ]);
  const size = Math.floor(MAP_PX / view.keys.length);
  const fitting = Math.max(LEAST_CELL_PX, Math.min(LARGEST_CELL_PX, size));
  const corner = el("td", {}, `${rows} ↓\n${say("key")} →`);
  $("heat").style.setProperty("--cell", `${fitting}px`);
  $("heat").replaceChildren(...rowsOf([corner, ...columns], cells));
  view.queries.forEach((query, q) => ($("heat").rows[q + 1].className = startClass(query)));
  describeMap(figure);
  drawLegend(figure);
}

function describeMap(/** @type {Figure} */ { $, state, view, finger }) {
  const { kind, layer, head } = state;
  const title = { attention: KINDS[kind].name, layer, head: headName(head) };
  $("heat-title").textContent = say("{attention}, layer {layer}, {head}", title);
  const { first, queries, all } = view;
  const rows = { from: first + 1, to: first + queries.length, all };
  const cut =
    queries.length < all ? say("Rows {from} to {to} of {all}, those around the step. ", rows) : "";
  const how = finger.matches
    ? say("Tap a cell to read it.")
    : say("Point at a cell, or use Tab and the arrow keys.");
  $("readout").textContent = cut + how;
}

/** Say what a cell of the map has. @param {Figure} figure @param {HTMLElement | null} td */
export function readCell(figure, td) {
  if (!td?.dataset.q) return;
  const { $, view } = figure;
  const [q, k] = [Number(td.dataset.q), Number(td.dataset.k)];
  const { rows } = $("heat");
  for (const old of figure.all("#heat th.on")) old.classList.remove("on");
  for (const name of [rows[0].cells[k + 1], rows[q + 1].cells[0]]) name.classList.add("on");
  const weight = isMasked(figure, q, k)
    ? say("masked (not yet written)")
    : percent(view.weights[q][k]);
  $("readout").replaceChildren(
    say("Query: "),
    ...describeQuery(view.queries[q]),
    say(" · key: "),
    quoted(view.keys[k].text),
    say(" · weight: "),
    el("strong", {}, weight),
    isTrue(figure, q, k) ? say(" · a true link") : "",
  );
}

function drawLegend(/** @type {Figure} */ figure) {
  const entry = (/** @type {object} */ attributes, /** @type {string} */ text) =>
    el("span", {}, el("i", { ...attributes }), text);
  const isDecoder = figure.state.kind === "decoder";
  const isAligned = trueLinks(figure).length > 0;
  const border = { style: "border: 2px solid var(--mark)" };
  figure
    .$("legend")
    .replaceChildren(
      ...[0, 0.01, 0.05, 0.2, 0.5, 1].map((weight) =>
        entry({ class: "swatch", style: shade(weight) }, `${100 * weight}%`),
      ),
      ...(isDecoder ? [entry({ class: "hatched" }, say("masked"))] : []),
      ...(isAligned ? [entry(border, say("true alignment"))] : []),
    );
}
