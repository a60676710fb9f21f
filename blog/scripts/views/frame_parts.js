// What trainer and clinic both have on their screens.

import { el, rowsOf } from "../page/dom.js";

/** @param {string[][]} examples source, target, and what was written */
export const examples_of = (examples) =>
  rowsOf(
    examples.map(([source, target, written]) => {
      const right = target === written;
      const text = `${written || "–"} ${right ? "✓" : `✗ (${target})`}`;
      return [el("td", {}, source), el("td", { className: right ? "right" : "wrong" }, text)];
    }),
  );
