// What panels and the walk put into a panel: strips of numbers, bars, rows.

import { say } from "../../page/language.js";
import { el, percent } from "../dom.js";

export const code = (text) => el("code", {}, text);
export const size = (vector) =>
  Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0) / vector.length);
export const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const three = (vector) =>
  code([...vector.slice(0, 3)].map((value) => value.toFixed(2)).join(" ") + " …");
// All numbers of a vector as colours, blue below zero and orange above it; strips with one `top`
// can be compared.
function strip(vector, top = Math.max(...vector.map(Math.abs))) {
  const canvas = el("canvas", {
    class: "panel-strip",
    width: vector.length,
    height: 1,
    role: "img",
    "aria-label": say("{count} numbers from {low} to {high}", {
      count: vector.length,
      low: Math.min(...vector).toFixed(2),
      high: Math.max(...vector).toFixed(2),
    }),
  });
  const image = new ImageData(vector.length, 1);
  vector.forEach((value, i) =>
    image.data.set(
      [
        ...(value < 0 ? [20, 110, 220] : [225, 115, 15]),
        255 * Math.min(1, Math.abs(value) / (top || 1)),
      ],
      4 * i,
    ),
  );
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.addEventListener("pointermove", ({ offsetX }) => {
    const i = Math.max(
      0,
      Math.min(vector.length - 1, Math.floor((offsetX / canvas.clientWidth) * vector.length)),
    );
    canvas.title = say("number {n}: {value}", { n: i + 1, value: vector[i].toFixed(3) });
  });
  return canvas;
}
export const numbers = (vector, top) =>
  el("span", { class: "panel-numbers" }, strip(vector, top), three(vector));
export const top = (...vectors) =>
  Math.max(...vectors.map((vector) => Math.max(...vector.map(Math.abs))));
export const row = (name, value) => el("p", { class: "panel-row" }, el("span", {}, name), value);
export const symbol = (letters, ...text) =>
  el(
    "span",
    { class: "panel-symbol", "data-symbol": letters, tabindex: "0" },
    ...(text.length ? text : letters),
  ); // which the page lights up in its formulas
export const bars = (entries, show = percent) => {
  const most = Math.max(...entries.map(([, value]) => value));
  return el(
    "div",
    { class: "panel-bars" },
    ...entries.flatMap(([name, value, strong]) => [
      el(strong ? "strong" : "span", {}, name),
      el("i", { style: `width:${Math.max(0.3, (100 * value) / most)}%` }),
      el("span", {}, show(value)),
    ]),
  );
};
export const MOST = 40; // rows and columns of a map that are drawn
export const cutting = (...lists) =>
  lists.some((list) => list.length > MOST)
    ? [say("Only the first {count} tokens of a long sentence are drawn.", { count: MOST })]
    : [];

/** What may be wider than the page. */
export const scrolling = (title, content, name = "") =>
  el(
    "div",
    { class: `panel-scroll ${name}`.trim(), tabindex: "0", role: "group", "aria-label": title },
    content,
  );

/** A table of words with a colour: columns have names, rows a name and cells { text, share }. */
export function wordTable(corner, columns, rows) {
  const column = (name) => el("th", { scope: "col" }, name);
  const cell = ({ text, share, title = "" }) =>
    el("td", { style: `--w:${(0.6 * share).toFixed(2)}`, title }, text);
  const row = ([name, cells]) => el("tr", {}, el("th", { scope: "row" }, name), ...cells.map(cell));
  return el(
    "table",
    { class: "panel-heat words" },
    el("thead", {}, el("tr", {}, column(corner), ...columns.map(column))),
    el("tbody", {}, ...rows.map(row)),
  );
}
