// Charts are drawn when they come near the screen, in the theme's colours, one after the other so
// that the page stays quick, and dropped when they are far away: each has thousands of elements.

import { unpack } from "../model/tensors.js";
import { all, byId, el, watch } from "./dom.js";
import { isDark } from "./theme.js";

/** @typedef {Record<string, any>} Spec of Vega-Lite, which has no types here */

const NEAR = "600px";

/** Figures that are near. @type {Set<HTMLElement>} */
const near = new Set();
/** What draws each figure that is drawn. @type {Map<HTMLElement, { finalize(): void }>} */
const drawn = new Map();
/** Figures to be drawn, one after the other. @type {Set<HTMLElement>} */
const queue = new Set();

export const startCharts = () =>
  watch(all(".chart"), (isNear, figure) => (isNear ? approach(figure) : leave(figure)), NEAR);

/** Charts that are near, in the colours of another theme. */
export function redrawCharts() {
  for (const figure of near) enqueue(figure);
}

function approach(/** @type {HTMLElement} */ figure) {
  near.add(figure);
  if (!drawn.has(figure)) enqueue(figure);
}

function leave(/** @type {HTMLElement} */ figure) {
  near.delete(figure);
  queue.delete(figure);
  if (drawn.has(figure)) drop(figure);
}

function drop(/** @type {HTMLElement} */ figure) {
  const place = placeIn(figure);
  place.style.height = `${place.offsetHeight}px`; // nothing below it may move
  drawn.get(figure)?.finalize();
  drawn.delete(figure);
  place.replaceChildren();
}

const placeIn = (/** @type {HTMLElement} */ figure) => all(".live", figure)[0];

/** Lets the browser answer the reader between two pieces of work. */
const breath = () => new Promise((resolve) => setTimeout(resolve));

async function enqueue(/** @type {HTMLElement} */ figure) {
  queue.add(figure);
  if (queue.size > 1) return;
  for (const next of queue) {
    await breath();
    if (near.has(next)) await draw(next);
    if (drawn.has(next) && !near.has(next)) drop(next); // it left meanwhile
    queue.delete(next);
  }
}

async function draw(/** @type {HTMLElement} */ figure) {
  await (vega ??= loadVega());
  const { spec, config } = await fitted(figure);
  const place = placeIn(figure);
  const before = drawn.get(figure);
  // until it is there, the picture or the chart before keeps its place
  place.style.height = before ? `${place.offsetHeight}px` : place.style.height || "0";
  before?.finalize();
  try {
    const tooltip = { theme: isDark() ? "dark" : "light" };
    const options = { mode: "vega-lite", renderer: "svg", actions: false, config, tooltip };
    drawn.set(figure, await vegaEmbed(place, spec, options));
    place.style.height = "";
    figure.classList.add("drawn");
  } catch (error) {
    figure.classList.add("failed"); // the picture takes its place
    console.error(error);
  }
}

/** Read when the first chart is drawn. @type {Promise<void> | undefined} */
let vega;
async function loadVega() {
  const textContent = await textOf(byId("vega"));
  await breath();
  document.head.append(el("script", { textContent }));
  await breath();
}

/** The text of an element that page.py compressed. @param {Element} element */
const textOf = async (element) => new TextDecoder().decode(await unpack(element.textContent ?? ""));

/** A figure's chart in the theme's colours, as wide as there is room. */
async function fitted(/** @type {HTMLElement} */ figure) {
  let text = await textOf(all("script", figure)[0]);
  const { signed, ...range } = darkShades();
  if (isDark())
    text = text.replace(
      /"scheme":\s*"blueorange"/g,
      `"range": ${JSON.stringify(signed)}, "interpolate": "rgb"`,
    );
  /** @type {Spec} */
  const spec = JSON.parse(text);
  if (isDark()) spec.config = { ...spec.config, range: { ...spec.config?.range, ...range } };
  const config = colours();
  const room = figure.clientWidth;
  const wanted = Number(all(".still", figure)[0].getAttribute("width"));
  if (wanted > room) {
    narrow(figure, spec, wanted, room);
    config.legend = { ...config.legend, orient: "bottom", columns: 1, labelLimit: room - 40 };
    config.title = { ...config.title, limit: room, anchor: "start" };
  }
  return { spec, config };
}

/** A chart of one panel shrinks, unless it is very wide; panels side by side go below each other.
 *  @param {HTMLElement} figure @param {Spec} spec @param {number} wanted @param {number} room */
function narrow(figure, spec, wanted, room) {
  const several = ["hconcat", "vconcat", "concat", "facet", "repeat", "spec"];
  const single = !several.some((key) => key in spec);
  if (single && wanted < 720)
    Object.assign(spec, { width: room, autosize: { type: "fit-x", contains: "padding" } });
  else if (!single && wanted > 1.4 * room) stack(spec);
  // a little too wide: smaller is better than a column of charts
  else if (!single) figure.classList.add("scaled");
}

function stack(/** @type {Spec} */ spec) {
  if (spec.hconcat) [spec.vconcat, spec.hconcat] = [spec.hconcat, undefined];
  for (const panel of spec.vconcat ?? []) stack(panel);
}

const probe = el("i", { hidden: true });
/** A colour of the page's style. @param {string} name */
function colour(name) {
  if (!probe.isConnected) document.body.append(probe);
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
}

/** Where there is nothing, a map has the colour of the page. */
function darkShades() {
  const page = colour("--page");
  return { heatmap: [page, "#2f6fb0", "#d6ebff"], signed: ["#6cb2ff", page, "#ffa657"] };
}

/** @returns {Spec} Vega-Lite's configuration */
function colours() {
  const [ink, muted, rule] = ["--ink", "--muted", "--rule"].map(colour);
  const words = { labelColor: muted, titleColor: ink };
  const lines = { domainColor: rule, tickColor: rule, gridColor: rule };
  return {
    background: "transparent",
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: rule },
    axis: { ...words, ...lines, gridOpacity: 0.6, labelSeparation: 5 },
    legend: words,
    header: words,
    title: { color: ink, subtitleColor: muted },
    text: { color: ink },
    rule: { color: muted }, // marks that are black otherwise
  };
}
