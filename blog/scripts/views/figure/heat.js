// The chosen map as a table of coloured cells.

import { say } from "../../page/language.js";
import { el, opacity, percent, quoted } from "../dom.js";
import { KINDS, headName } from "./maps.js";
import { describeQuery, label } from "./tokens.js";

const LEAST_CELL_PX = 20;
const LARGEST_CELL_PX = 34;
const MAP_PX = 480;

export const startClass = (item) => (item.start ? "start" : "");
const shade = (weight) => "--a:" + opacity(weight).toFixed(3);

/** Only a weight of exactly 0 counts as masked, so a leak through the mask would show. */
export const isMasked = ({ state, view }, q, k) =>
  state.kind === "decoder" &&
  view.keys[k].members[0] > view.queries[q].members.at(-1) &&
  view.weights[q][k] === 0;

// The true alignment, where it is known: links of the source's and the reference's tokens, if the
// model wrote just these.
function trueLinks({ content, result, state }) {
  const { alignment } = content;
  const same = (a, b) => a.join("\n") === b.join("\n");
  const fits =
    alignment &&
    same(alignment.source, result.source) &&
    same(alignment.predicted, result.predicted);
  return state.kind === "cross" && fits ? alignment.links : [];
}

function isTrue(figure, q, k) {
  const { keys, queries } = figure.view;
  return trueLinks(figure).some(
    ([s, t]) => keys[k].members.includes(s) && queries[q].members.includes(t),
  );
}

function cell(figure, q, k) {
  const weight = figure.view.weights[q][k];
  const masked = isMasked(figure, q, k);
  const classes = [
    startClass(figure.view.keys[k]),
    masked ? "masked" : "",
    isTrue(figure, q, k) ? "true" : "",
  ];
  return el("td", {
    class: classes.join(" ").trim(),
    role: "gridcell",
    "data-q": q,
    "data-k": k,
    tabindex: q + k ? -1 : 0,
    style: shade(weight),
    "aria-label": masked ? say("masked") : percent(weight),
  });
}

/** @param {import("../figure.js").Figure} figure */
export function drawHeat(figure) {
  const { $, state } = figure;
  const { queries, keys } = figure.view;
  const rows = state.kind === "encoder" ? say("query") : say("reads → predicts");
  const column = (key) =>
    el(
      "th",
      { scope: "col", role: "columnheader", class: startClass(key) },
      el("div", { class: "upright" }, ...label(key)),
    );
  const row = (query, q) =>
    el(
      "tr",
      { role: "row", class: startClass(query) },
      el("th", { scope: "row", role: "rowheader" }, ...label(query)),
      ...keys.map((_, k) => cell(figure, q, k)),
    );
  const corner = el("td", { role: "gridcell" }, `${rows} ↓\n${say("key")} →`);
  const size = Math.floor(MAP_PX / keys.length);
  const fitting = Math.max(LEAST_CELL_PX, Math.min(LARGEST_CELL_PX, size));
  $("heat").style.setProperty("--cell", `${fitting}px`);
  $("heat").replaceChildren(
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, corner, ...keys.map(column))),
    el("tbody", { role: "rowgroup" }, ...queries.map(row)),
  );
  describeMap(figure);
  drawLegend(figure);
}

function describeMap({ $, state, view, finger }) {
  $("heat-title").textContent = say("{attention}, layer {layer}, {head}", {
    attention: KINDS[state.kind].name,
    layer: state.layer,
    head: headName(state.head),
  });
  const { first, queries, all } = view;
  const cut =
    queries.length < all
      ? say("Rows {from} to {to} of {all}, those around the step. ", {
          from: first + 1,
          to: first + queries.length,
          all,
        })
      : "";
  const how = finger.matches
    ? say("Tap a cell to read it and to keep its query’s lines.")
    : say(
        "Point at a cell, or use Tab and the arrow keys. Click it (or press Enter) to keep its query’s lines.",
      );
  $("readout").textContent = cut + how;
}

/** Say what a cell of the map has. */
export function readCell(figure, td) {
  if (!td?.dataset.q) return;
  const { $, view } = figure;
  const q = Number(td.dataset.q);
  const k = Number(td.dataset.k);
  const table = $("heat");
  for (const old of table.querySelectorAll("th.on")) old.classList.remove("on");
  table.tHead.rows[0].cells[k + 1].classList.add("on");
  table.tBodies[0].rows[q].cells[0].classList.add("on");
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

function drawLegend(figure) {
  const swatches = [0, 0.01, 0.05, 0.2, 0.5, 1].map((weight) =>
    el("span", {}, el("i", { class: "swatch", style: shade(weight) }), 100 * weight + "%"),
  );
  if (figure.state.kind === "decoder")
    swatches.push(el("span", {}, el("i", { class: "hatched" }), say("masked")));
  if (trueLinks(figure).length)
    swatches.push(
      el("span", {}, el("i", { style: "border: 2px solid var(--mark)" }), say("true alignment")),
    );
  figure.$("legend").replaceChildren(...swatches);
}
