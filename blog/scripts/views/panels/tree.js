// The beam as a tree: a column for each step, a line from each token to those that continue it.

import { say } from "../../page/language.js";
import { svg } from "../dom.js";
import { scrolling } from "./parts.js";

const COLUMN_PX = 84;
const ROW_PX = 20;
const LABEL_LETTERS = 7;

export function tree({ nodes, best, name }) {
  const way = new Set();
  for (let at = best; at !== null; at = nodes[at].parent) way.add(at);
  const counts = []; // of the nodes of a step
  const places = nodes.map(({ step }) => {
    counts[step] = (counts[step] ?? 0) + 1;
    return [COLUMN_PX * step + 4, ROW_PX * (counts[step] - 1) + 14];
  });
  const classOf = (i) => (way.has(i) ? "way" : "");
  const lines = nodes.flatMap(({ parent }, i) => {
    if (parent === null) return [];
    const [x, y] = places[parent];
    const [z, w] = places[i];
    const d = `M${x + 60} ${y - 4}C${x + 72} ${y - 4} ${z - 18} ${w - 4} ${z - 4} ${w - 4}`;
    return [svg("path", { d, class: classOf(i) })];
  });
  const labels = nodes.map((node, i) => {
    const [x, y] = places[i];
    const text = name([node.id])[0].slice(0, LABEL_LETTERS);
    return svg("text", { x, y, class: classOf(i) }, svg("title", {}, numbersOf(node)), text);
  });
  const height = ROW_PX * Math.max(...counts) + 6;
  const width = COLUMN_PX * counts.length;
  const title = say("The beam as a tree");
  const viewBox = `0 0 ${width} ${height}`;
  const size = { width, height, viewBox, role: "img", "aria-label": title };
  return scrolling(title, svg("svg", size, ...lines, ...labels), "panel-tree");
}

const numbersOf = ({ logP, score }) =>
  score === undefined
    ? say("log-probability {logP}", { logP: logP.toFixed(2) })
    : say("log-probability {logP}, score {score}", {
        logP: logP.toFixed(2),
        score: score.toFixed(2),
      });
