// The search as a tree: a column for each step, a row for each place in the beam; the line of the
// translation is marked.

import { plain } from "../../model/tokeniser.js";
import { say } from "../../page/language.js";
import { percent, svg } from "../dom.js";

const COLUMN_PX = 112;
const ROW_PX = 40;

/** @param {import("../figure.js").Figure} figure */
export function drawTree({ $, result, names }) {
  const { nodes, best } = result;
  if (!nodes || !$("tree-box").open) return $("tree").replaceChildren();
  const onBest = new Set();
  for (let at = best; at !== null; at = nodes[at].parent) onBest.add(at);
  const count = {};
  const rows = nodes.map(({ step }) => (count[step] = (count[step] ?? -1) + 1));
  const x = (i) => 40 + COLUMN_PX * nodes[i].step;
  const y = (i) => 24 + ROW_PX * rows[i];
  const drawn = nodes.map((node, i) => {
    const from = node.parent;
    const line =
      from === null
        ? ""
        : `M${x(from) + 36},${y(from)} C${x(i) - 54},${y(from)} ${x(i) - 58},${y(i)} ${x(i) - 36},${y(i)}`;
    return branch(node, { line, x: x(i), y: y(i), name: names.piece(node.token) }, onBest.has(i));
  });
  const width = 90 + COLUMN_PX * Math.max(...nodes.map((node) => node.step));
  const height = 30 + ROW_PX * (1 + Math.max(...rows));
  const label = say(
    "{count} beginnings that the search kept; numbers are log-probabilities, and scores where a translation ends",
    { count: nodes.length },
  );
  const viewBox = `0 0 ${width} ${height}`;
  $("tree").replaceChildren(
    svg("svg", { width, height, viewBox, role: "img", "aria-label": label }, ...drawn),
  );
}

function branch({ token, step, p, logP, score }, { line, x, y, name }, isBest) {
  const values = {
    step,
    token: plain(token),
    p: percent(Math.exp(p)),
    logP: logP.toFixed(2),
    score: score?.toFixed(2),
  };
  const title =
    score === undefined
      ? say("step {step}: {token}, {p}, log-probability in all {logP}", values)
      : say("step {step}: {token}, {p}, log-probability in all {logP}, score {score}", values);
  const text = [...name].slice(0, 9).join("");
  const number = (score ?? logP).toFixed(2);
  return svg(
    "g",
    { class: isBest ? "best" : "", "data-step": step },
    svg("title", {}, title),
    svg("path", { d: line }),
    svg("text", { x, y: y + 4, "text-anchor": "middle" }, text),
    svg("text", { x, y: y + 17, "text-anchor": "middle", class: "score" }, number),
  );
}
