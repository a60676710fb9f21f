// What panels and the walk put into a panel: strips of numbers, bars, rows, maps.

import { dot } from "../../model/tensors.js";
import { el, percent, pixels, tableOf } from "../../page/dom.js";
import { say } from "../../page/language.js";

/** @typedef {(q: number, k: number) => number | null} ByCell */

export const MOST = 48; // rows and columns of a map that are drawn: all of every ready sentence

export const code = (/** @type {string} */ text) => el("code", {}, text);
/** The root of the mean square, as text. @param {Numbers} vector */
export const size = (vector) =>
  Math.sqrt(dot(vector, 0, vector, 0, vector.length) / vector.length).toFixed(2);
/** The largest absolute number. @param {...Numbers} vectors */
export const top = (...vectors) =>
  Math.max(...vectors.map((vector) => Math.max(...[...vector].map(Math.abs))));
/** @param {Node | string} name @param {Node | string} value */
export const row = (name, value) => el("p", { class: "panel-row" }, el("span", {}, name), value);
/** The sizes of two vectors. @param {Numbers} before @param {Numbers} after */
export const sizes = (before, after) =>
  row(say("root mean square"), code(`${size(before)} → ${size(after)}`));
/** Texts become paragraphs. @param {(Node | string)[]} parts */
export const paragraphs = (parts) =>
  parts.map((part) => (typeof part === "string" ? el("p", {}, part) : part));
export const cutting = (/** @type {...string[]} */ ...lists) =>
  lists.some((list) => list.length > MOST)
    ? [say("Only the first {count} tokens of a long sentence are drawn.", { count: MOST })]
    : [];

/** All numbers of a vector as colours, blue below zero and orange above it, and the first three as
 *  text; strips with one `highest` can be compared. */
export function numbers(/** @type {Numbers} */ vector, highest = top(vector)) {
  const count = vector.length;
  const [low, high] = [Math.min(...vector).toFixed(2), Math.max(...vector).toFixed(2)];
  const colours = [...vector].flatMap((value) => [
    ...(value < 0 ? [20, 110, 220] : [225, 115, 15]),
    255 * Math.min(1, Math.abs(value) / (highest || 1)),
  ]);
  const strip = pixels(count, colours, {
    class: "panel-strip",
    role: "img",
    "aria-label": say("{count} numbers from {low} to {high}", { count, low, high }),
  });
  const first = [...vector.slice(0, 3)].map((value) => value.toFixed(2)).join(" ");
  return el("span", { class: "panel-numbers" }, strip, code(`${first} …`));
}

/** Bars with names; a third `true` makes a name bold. */
export function bars(/** @type {[string, number, boolean?][]} */ entries, show = percent) {
  const most = Math.max(...entries.map(([, value]) => value));
  const lines = entries.flatMap(([name, value, strong]) => [
    el(strong ? "strong" : "span", {}, name),
    el("i", { style: `width:${Math.max(0.3, (100 * value) / most)}%` }),
    el("span", {}, show(value)),
  ]);
  return el("div", { class: "panel-bars" }, ...lines);
}

/** The tokens whose rows are most like one's, with their cosines.
 *  @param {{ name: string, cosine: number }[]} near */
export function nearestRows(near) {
  const names = near.map(({ name, cosine }) => `${name} ${cosine.toFixed(2)}`);
  return row(say("nearest rows"), code(names.join("   ")));
}

/** What may be wider than the page. @param {string} title @param {Element} content */
export const scrolling = (title, content) =>
  el("div", { class: "panel-scroll", tabindex: 0, role: "group", "aria-label": title }, content);

/** A token, and its English small. @param {string} name */
const label = (name) =>
  name.split(/(?= ‘)/).map((text, i) => (i ? el("small", { lang: "en" }, text) : text));

/** A table with names of columns and rows. @param {string} kind @param {Node} corner
 *  @param {(Node | string)[]} columns @param {[string, Node[]][]} rows */
function named(kind, corner, columns, rows) {
  const head = [corner, ...columns.map((name) => el("th", { scope: "col" }, name))];
  const body = rows.map(([name, cells]) => [el("th", { scope: "row" }, ...label(name)), ...cells]);
  return el("table", { class: kind }, ...tableOf(head, body));
}

/** A table of words with a colour: columns have names, rows a name and cells.
 *  @param {string} corner @param {string[]} columns
 *  @param {[string, { text: string, share: number, title?: string }[]][]} rows */
export function wordTable(corner, columns, rows) {
  const body = rows.map(([name, cells]) => {
    const coloured = cells.map(({ text, share, title = "" }) =>
      el("td", { style: `--w:${(0.6 * share).toFixed(2)}`, title }, text),
    );
    return /** @type {[string, Node[]]} */ ([name, coloured]);
  });
  return named("panel-heat words", el("th", { scope: "col" }, corner), columns, body);
}

/** A map of weights with words on its axes. A weight colours its cell, null hides it; `chosen` is
 *  the cell that is looked into, and a click `choose`s another one.
 *  @param {string[]} queries @param {string[]} keys @param {ByCell} weight @param {string} title
 *  @param {{ chosen?: number[], choose?: (q: number, k: number) => void }} options */
export function heat(queries, keys, weight, title, { chosen, choose } = {}) {
  const columns = keys.slice(0, MOST);
  const cell = (/** @type {number} */ q, /** @type {number} */ k) => {
    const [query, key] = [queries[q], keys[k]];
    const share = weight(q, k);
    if (share === null)
      return el("td", {
        class: "hidden",
        title: say("{query} may not look at {key}", { query, key }),
      });
    const text = share.toFixed(2);
    const attributes = {
      style: `--w:${share.toFixed(3)}`,
      title: `${query} → ${key}: ${text}`,
      class: chosen?.join() === `${q},${k}` ? "chosen" : "",
    };
    return el("td", attributes, share >= 0.1 ? text.replace(/^0(?=\.)/, "") : "");
  };
  const names = columns.map((key) => el("span", {}, ...label(key)));
  const rows = queries.slice(0, MOST).map((query, q) => {
    const cells = columns.map((_, k) => cell(q, k));
    return /** @type {[string, Node[]]} */ ([query, cells]);
  });
  const table = named(choose ? "panel-heat touched" : "panel-heat", el("td"), names, rows);
  table.addEventListener("click", ({ target }) => {
    const td = /** @type {Element} */ (target).closest("td");
    const tr = td?.closest("tr");
    if (td && tr && tr.rowIndex > 0) choose?.(tr.rowIndex - 1, td.cellIndex - 1);
  });
  return scrolling(title, table);
}
