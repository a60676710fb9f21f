// The search as a tree: a column for each step, a row for each place in the beam; the line of the
// translation is marked.

import { percent } from "../page/dom.js";
import { say } from "../page/language.js";
import { picture, shape } from "../page/svg.js";

const COLUMN_PX = 112;
const ROW_PX = 40;
const LABEL_LETTERS = 9;

/** @param {BeamNode[]} nodes @param {number | null} best the place of the translation's end
 *  @param {(node: BeamNode) => string} name */
export function tree(nodes, best, name) {
  const onBest = new Set();
  for (let at = best; at !== null; at = nodes[at].parent) onBest.add(at);
  /** Of the nodes of a step. @type {number[]} */
  const counts = [];
  const places = nodes.map(({ step }) => {
    counts[step] = (counts[step] ?? 0) + 1;
    return { x: 40 + COLUMN_PX * step, y: ROW_PX * counts[step] - 16 };
  });
  const branches = nodes.map((node, i) => {
    const { x, y } = places[i];
    const from = node.parent === null ? null : places[node.parent];
    const d = from
      ? `M${from.x + 36},${from.y} C${x - 54},${from.y} ${x - 58},${y} ${x - 36},${y}`
      : "";
    return shape(
      "g",
      { class: onBest.has(i) ? "best" : "" },
      shape("title", {}, describe(node, name(node))),
      shape("path", { d }),
      ...labels(node, [...name(node)].slice(0, LABEL_LETTERS).join(""), places[i]),
    );
  });
  const width = COLUMN_PX * (counts.length - 1) + 90;
  const height = ROW_PX * Math.max(...counts) + 30;
  const label = say(
    "{count} beginnings that the search kept; numbers are log-probabilities, and scores where a translation ends",
    { count: nodes.length },
  );
  const drawing = picture(width, height, label, ...branches);
  drawing.classList.add("tree");
  return drawing;
}

/** @param {BeamNode} node @param {string} name @param {{ x: number, y: number }} place */
function labels({ logP, score }, name, { x, y }) {
  const number = (score ?? logP).toFixed(2);
  return [
    shape("text", { x, y: y + 4, "text-anchor": "middle" }, name),
    shape("text", { x, y: y + 17, "text-anchor": "middle", class: "score" }, number),
  ];
}

function describe(/** @type {BeamNode} */ { step, p, logP }, /** @type {string} */ token) {
  const values = { step, token, p: percent(Math.exp(p)), logP: logP.toFixed(2) };
  return say("step {step}: {token}, {p}, log-probability in all {logP}", values);
}
