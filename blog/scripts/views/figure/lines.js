// The chosen map as lines from queries to keys; those of one query stay when it is pinned.

import { el, percent, quoted } from "../../page/dom.js";
import { say } from "../../page/language.js";
import { shape } from "../../page/svg.js";
import { isMasked, startClass } from "./heat.js";
import { describeQuery, label } from "./tokens.js";

const ROW_PX = 24;
const STRONGEST = 3; // keys that are named

export function drawLines(/** @type {Figure} */ { $, view }) {
  const queries = view.queries.map((item, q) => {
    const attributes = { role: "option", class: startClass(item), "data-q": q };
    return el("li", attributes, ...label(item));
  });
  const keys = view.keys.map((item) =>
    el("li", { class: startClass(item) }, ...label(item), " ", el("small")),
  );
  $("queries").replaceChildren(...queries);
  $("keys").replaceChildren(...keys);
}

/** @param {Figure} figure @param {number | null} active */
function drawThreads({ $, view }, active) {
  const height = ROW_PX * Math.max(view.queries.length, view.keys.length);
  const least = active === null ? 0.01 : 0.001;
  const threads = view.weights.flatMap((weights, q) =>
    weights.flatMap((weight, k) => {
      if (weight < least || (active !== null && active !== q)) return [];
      const ends = { x1: 0, y1: ROW_PX * (q + 0.5), x2: 100, y2: ROW_PX * (k + 0.5) };
      const stroke = { "stroke-opacity": Math.min(1, 0.08 + weight) };
      return [shape("line", { ...ends, ...stroke, "stroke-width": 0.5 + 6 * weight })];
    }),
  );
  $("threads").setAttribute("viewBox", `0 0 100 ${height}`);
  $("threads").style.height = `${height}px`;
  $("threads").replaceChildren(...threads);
}

/** Show the lines of a query, or of all if it is null.
 *  @param {Figure} figure @param {number | null} active */
export function showQuery(figure, active) {
  const { $, view } = figure;
  drawThreads(figure, active);
  figure.all("#queries li").forEach((item, q) => (item.ariaSelected = `${q === active}`));
  figure.all("#keys small").forEach((share, k) => {
    const isHidden = active !== null && isMasked(figure, active, k);
    share.textContent =
      active === null ? "" : isHidden ? say("masked") : percent(view.weights[active][k]);
  });
  $("all").disabled = active === null;
  $("lines-readout").replaceChildren(...describeLines(figure, active));
}

/** @param {Figure} figure @param {number | null} active */
function describeLines({ view, finger }, active) {
  if (active === null)
    return [
      finger.matches
        ? say("All weights of at least 1%. Tap a query to see only its lines.")
        : say(
            "All weights of at least 1%. Point at a query, or use Tab and the arrow keys, to see only its lines.",
          ),
    ];
  const strongest = view.weights[active]
    .map((weight, k) => ({ weight, text: view.keys[k].text }))
    .sort((a, b) => b.weight - a.weight)
    .slice(0, STRONGEST);
  return [
    say("Query: "),
    ...describeQuery(view.queries[active]),
    say(" · most to: "),
    ...strongest.flatMap(({ weight, text }, n) => [
      n ? ", " : "",
      quoted(text),
      ` ${percent(weight)}`,
    ]),
  ];
}

/** @param {Figure} figure @param {number | null} q */
export function pin(figure, q) {
  figure.pinned = q;
  figure.all("#queries li").forEach((item, i) => (item.tabIndex = i === (q ?? 0) ? 0 : -1));
  showQuery(figure, q);
}
