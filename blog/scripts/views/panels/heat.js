// A map of weights with words on its axes.

import { say } from "../../page/language.js";
import { el } from "../dom.js";
import { MOST, scrolling } from "./parts.js";

// `weight` from 0 to 1 colours a cell, null hides it; `chosen` is the cell that is looked into.
export function heat(queries, keys, value, title, options = {}) {
  const { weight = value, digits = 2, chosen = null, choose = null } = options;
  const cell = (q, k) => {
    const words = { query: queries[q], key: keys[k] };
    const shade = weight(q, k);
    if (shade === null)
      return el("td", { class: "hidden", title: say("{query} may not look at {key}", words) });
    const text = value(q, k).toFixed(digits);
    const bare = shade >= 0.1 ? text.replace(/^0(?=\.)/, "") : "";
    return el(
      "td",
      {
        style: `--w:${shade.toFixed(3)}`,
        title: `${words.query} → ${words.key}: ${text}`,
        class: chosen?.[0] === q && chosen[1] === k ? "chosen" : "",
      },
      digits < 2 ? text : bare,
    );
  };
  const columns = keys.slice(0, MOST);
  const column = (key) => el("th", { scope: "col" }, el("span", {}, key));
  const row = (query, q) =>
    el("tr", {}, el("th", { scope: "row" }, query), ...columns.map((_, k) => cell(q, k)));
  const table = el(
    "table",
    { class: "panel-heat" },
    el("thead", {}, el("tr", {}, el("td"), ...columns.map(column))),
    el("tbody", {}, ...queries.slice(0, MOST).map(row)),
  );
  if (choose)
    table.addEventListener("click", ({ target }) => {
      const td = target.closest("tbody td");
      if (td) choose(td.parentElement.rowIndex - 1, td.cellIndex - 1);
    });
  return scrolling(title, table, choose ? "touched" : "");
}
