// The figure behind the section on positions: clocks with a hand for each of two positions.

import { all, el } from "../page/dom.js";
import { say } from "../page/language.js";
import { picture, shape, words } from "../page/svg.js";

const CLOCKS = 8;

export function startClocks() {
  // it belongs to what waits there for a prediction
  const [place] = all("section:has(> #positions-section-3-5) + .awaiting");
  if (!place) return;
  const [p, q] = [slider(say("position"), 5), slider(say("and"), 8)];
  const drawing = el("div");
  const caption = say`Sine and cosine of a pair of dimensions are the tip of a clock's hand. The left clocks turn fast, the right ones hardly at all; 16 dimensions, blue and orange.`;
  const row = el("div", { className: "learn-row" }, p.label, q.label);
  place.append(el("figure", { className: "toy" }, row, drawing, el("figcaption", {}, caption)));
  const draw = () => drawing.replaceChildren(clocks(p.value(), q.value()));
  row.addEventListener("input", draw);
  draw();
}

/** Of a position. @param {string} name @param {number} start */
function slider(name, start) {
  const input = el("input", { type: "range", min: "0", max: "48", value: `${start}` });
  const output = el("output", {}, `${start}`);
  input.addEventListener("input", () => (output.textContent = input.value));
  const value = () => Number(input.value);
  return { label: el("label", {}, `${name} `, input, " ", output), value };
}

/** The angle of a clock's hand. @param {number} position @param {number} i */
const angle = (position, i) => position / 10000 ** ((2 * i) / (2 * CLOCKS));

/** @param {number} x @param {number} radians @param {string} stroke @param {number} width */
function hand(x, radians, stroke, width) {
  const [x2, y2] = [x + 24 * Math.sin(radians), 34 - 24 * Math.cos(radians)];
  const ends = { x1: x, y1: 34, x2, y2, "stroke-linecap": "round" };
  return shape("line", { ...ends, stroke, "stroke-width": width });
}

/** @param {number} p @param {number} q two positions */
function clocks(p, q) {
  const numbers = [...Array(CLOCKS).keys()];
  const shapes = numbers.flatMap((i) => {
    const x = 34 + 66 * i;
    return [
      shape("circle", { cx: x, cy: 34, r: 27, fill: "none", stroke: "var(--rule)" }),
      hand(x, angle(q, i), "light-dark(#b35900, #ffa657)", 2),
      hand(x, angle(p, i), "var(--link)", 3),
      words(x, 76, `${2 * i}, ${2 * i + 1}`),
    ];
  });
  const score = numbers.reduce((sum, i) => sum + Math.cos(angle(p - q, i)), 0).toFixed(2);
  const result = say(
    "dot product: {score}, the same for any two positions that are {distance} apart",
    { score, distance: Math.abs(p - q) },
  );
  const label = say("Eight clocks with hands for the positions {p} and {q}", { p, q });
  return picture(530, 104, label, ...shapes, words(265, 99, result));
}
