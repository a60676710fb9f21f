// The chosen map as lines from queries to keys; those of one query stay when it is pinned.

import { say } from "../../page/language.js";
import { el, percent, quoted, svg } from "../dom.js";
import { isMasked, startClass } from "./heat.js";
import { describeQuery, label } from "./tokens.js";

const ROW_PX = 24;
const STRONGEST = 3; // keys that are named

/** @param {import("../figure.js").Figure} figure */
export function drawLines({ $, view }) {
  const query = (item, q) =>
    el("li", { role: "option", class: startClass(item), "data-q": q }, ...label(item));
  const key = (item) => el("li", { class: startClass(item) }, ...label(item), " ", el("small"));
  $("queries").replaceChildren(...view.queries.map(query));
  $("keys").replaceChildren(...view.keys.map(key));
}

function drawThreads({ $, view }, active) {
  const height = ROW_PX * Math.max(view.queries.length, view.keys.length);
  const least = active === null ? 0.01 : 0.001;
  const thread = (q, k, weight) =>
    svg("line", {
      x1: 0,
      y1: ROW_PX * (q + 0.5),
      x2: 100,
      y2: ROW_PX * (k + 0.5),
      "stroke-opacity": Math.min(1, 0.08 + weight),
      "stroke-width": 0.5 + 6 * weight,
    });
  const threads = view.weights.flatMap((weights, q) =>
    weights.flatMap((weight, k) =>
      weight >= least && (active === null || active === q) ? [thread(q, k, weight)] : [],
    ),
  );
  $("threads").setAttribute("viewBox", `0 0 100 ${height}`);
  $("threads").style.height = height + "px";
  $("threads").replaceChildren(...threads);
}

/** Show the lines of a query, or of all if it is null. */
export function showQuery(figure, active) {
  const { $, view } = figure;
  drawThreads(figure, active);
  for (const item of $("queries").children)
    item.setAttribute("aria-selected", Number(item.dataset.q) === active);
  const share = (k) =>
    isMasked(figure, active, k) ? say("masked") : percent(view.weights[active][k]);
  [...$("keys").children].forEach((item, k) => {
    item.lastChild.textContent = active === null ? "" : share(k);
  });
  $("all").disabled = active === null;
  $("lines-readout").replaceChildren(...describeLines(figure, active));
}

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
      " " + percent(weight),
    ]),
  ];
}

export function pin(figure, q) {
  figure.pinned = q;
  [...figure.$("queries").children].forEach((item, i) => {
    item.tabIndex = i === (q ?? 0) ? 0 : -1;
  });
  showQuery(figure, q);
}
