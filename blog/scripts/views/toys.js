// Small figures that one can touch. Each stands behind the section of a heading and computes what
// it shows.

import { el } from "../page/dom.js";
import { say } from "../page/language.js";
import { box, picture, shape, words } from "../page/svg.js";

/** @typedef {{ name: string, min: number, max: number, value: number }} Slider */
/** A figure behind the section of a heading, whose id is given; `draw` makes its picture of the
 *  sliders' values.
 *  @typedef {{ heading: string, sliders: Slider[], draw: (...values: number[]) => Element,
 *    caption: string }} Toy */

const PALE = "light-dark(#cfe3fb, #23486f)";

export const startToys = () => TOYS.forEach(place);

/** @template Item @param {number} count @param {(i: number) => Item} make */
const times = (count, make) => Array.from({ length: count }, (_, i) => make(i));

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
  const shapes = times(CLOCKS, (i) => {
    const x = 34 + 66 * i;
    return [
      shape("circle", { cx: x, cy: 34, r: 27, fill: "none", stroke: "var(--rule)" }),
      hand(x, angle(q, i), "light-dark(#b35900, #ffa657)", 2),
      hand(x, angle(p, i), "var(--link)", 3),
      words(x, 76, `${2 * i}, ${2 * i + 1}`),
    ];
  });
  const cosines = times(CLOCKS, (i) => Math.cos(angle(p - q, i)));
  const result = say(
    "dot product: {score}, the same for any two positions that are {distance} apart",
    { score: cosines.reduce((sum, c) => sum + c, 0).toFixed(2), distance: Math.abs(p - q) },
  );
  const label = say("Eight clocks with hands for the positions {p} and {q}", { p, q });
  return picture(530, 104, label, ...shapes.flat(), words(265, 99, result));
}

// --- a softmax that runs over tiles ---

const SCORES = [2, 0, 5, 1, 3, 4];

/** Sum of exponentials relative to m. @param {number[]} scores @param {number} m */
const sum_below = (scores, m) => scores.reduce((sum, x) => sum + Math.exp(x - m), 0);

/** What is written down after each tile. @param {number} tiles */
export function running_softmax(tiles) {
  const lines = [];
  let m = -Infinity;
  let sum = 0;
  for (let t = 0; t < tiles; t++) {
    const tile = SCORES.slice(2 * t, 2 * t + 2);
    const higher = Math.max(m, ...tile);
    const added = sum_below(tile, higher);
    const before = t ? `${sum.toFixed(3)} · e^(${m - higher}) + ${added.toFixed(3)} = ` : "";
    sum = sum * Math.exp(m - higher) + added;
    m = higher;
    lines.push(`${say("tile {n}", { n: t + 1 })}: m = ${m}, ℓ = ${before}${sum.toFixed(3)}`);
  }
  const all_at_once = sum_below(SCORES.slice(0, 2 * tiles), m).toFixed(3);
  lines.push(say("{count} scores at once: {sum}", { count: 2 * tiles, sum: all_at_once }));
  return lines;
}

/** @param {number} tiles how many have been read */
function tile_by_tile(tiles) {
  const boxes = SCORES.flatMap((score, j) => {
    const x = 30 + 34 * j + 10 * Math.floor(j / 2);
    return [
      box(x, 6, 30, 24, j < 2 * tiles ? PALE : "none", "var(--rule)"),
      words(x + 15, 22, String(score), { fill: "var(--ink)" }),
    ];
  });
  const lines = running_softmax(tiles).map((line, i) =>
    words(30, 50 + 18 * i, line, { "text-anchor": "start" }),
  );
  const label = say("The running softmax after {tiles} tiles", { tiles });
  return picture(440, 120, label, ...boxes, ...lines);
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
  {
    heading: "fused-attention-tile-by-tile",
    sliders: [{ name: say("tiles read"), min: 1, max: 3, value: 1 }],
    draw: tile_by_tile,
    caption: say`Six scores in tiles of two. The largest score and the sum relative to it are all that is kept.`,
  },
];
