// Small figures that one can touch. Each stands behind the section of a heading and computes what
// it shows.

import { el } from "../page/dom.js";
import { say } from "../page/language.js";
import { picture, shape, words } from "../page/svg.js";

/** @typedef {{ name: string, min: number, max: number, value: number }} Slider */
/** A figure behind the section of a heading, whose id is given; `draw` makes its picture of the
 *  sliders' values.
 *  @typedef {{ heading: string, sliders: Slider[], draw: (...values: number[]) => Element,
 *    caption: string }} Toy */

export const startToys = () => TOYS.forEach(place);

function place(/** @type {Toy} */ { heading, sliders, draw, caption }) {
  const section = document.getElementById(heading)?.closest("section");
  if (!section) return;
  const inputs = sliders.map(({ min, max, value }) =>
    el("input", { type: "range", min: `${min}`, max: `${max}`, value: `${value}` }),
  );
  const outputs = sliders.map(() => el("output"));
  const labels = sliders.map(({ name }, i) =>
    el("label", {}, `${name} `, inputs[i], " ", outputs[i]),
  );
  const drawing = el("div");
  const row = el("div", { className: "learn-row" }, ...labels);
  const text = el("figcaption", {}, caption);
  const figure = el("figure", { className: "toy" }, row, drawing, text);
  function update() {
    const values = inputs.map(({ value }) => Number(value));
    for (const [i, output] of outputs.entries()) output.textContent = String(values[i]);
    drawing.replaceChildren(draw(...values));
  }
  for (const input of inputs) input.addEventListener("input", update);
  update();
  const next = section.nextElementSibling;
  if (next?.matches(".awaiting"))
    next.append(figure); // it belongs to what waits for a prediction
  else section.after(figure);
}

// --- positions as hands of clocks ---

const CLOCKS = 8;

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

/** @type {Toy[]} */
export const TOYS = [
  {
    heading: "positions-section-3-5",
    sliders: [
      { name: say("position"), min: 0, max: 48, value: 5 },
      { name: say("and"), min: 0, max: 48, value: 8 },
    ],
    draw: clocks,
    caption: say`Sine and cosine of a pair of dimensions are the tip of a clock's hand. The left clocks turn fast, the right ones hardly at all; 16 dimensions, blue and orange.`,
  },
];
