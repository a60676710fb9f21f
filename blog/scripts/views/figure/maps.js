// The maps of a result's attention: which one is chosen, and all of them, small.

import { say } from "../../page/language.js";
import { el, opacity } from "../dom.js";
import { drawHeat } from "./heat.js";
import { drawLines, pin } from "./lines.js";

const LARGEST_MAP_CELLS = 2000; // that are drawn at once
const LEAST_ROWS = 6;

// Cross-attention names (and merges) its rows by what they PREDICT: they search the source for
// that word.
export const KINDS = {
  encoder: {
    name: say("Encoder self-attention"),
    queries: "source",
    keys: "source",
    explanation: say(
      "Each source token (query, row) looks at all source tokens (keys, columns), including itself.",
    ),
  },
  decoder: {
    name: say("Decoder self-attention"),
    queries: "target",
    keys: "target",
    explanation: say(
      "Each target token that is read (query, row) looks at itself and at the tokens before it (keys, columns). The mask hides later ones.",
    ),
  },
  cross: {
    name: say("Cross-attention"),
    queries: "predicted",
    keys: "source",
    explanation: say(
      "Each decoder position (query, row) reads one target token and predicts the next. To do so it looks at the source tokens in the encoder’s output (keys, columns).",
    ),
  },
};

export const headName = (head) =>
  head === "mean" ? say("mean of heads") : say("head {head}", { head });
export const headChoices = ({ result, state }) => [
  ...result.maps[state.kind][0].map((_, i) => i + 1),
  "mean",
];

/** The weights of a head, or their mean over the heads: (queries, keys). */
export function weightsOf({ maps }, kind, layer, head) {
  const heads = maps[kind][layer - 1];
  if (head !== "mean") return heads[head - 1];
  const mean = (q, k) => heads.reduce((sum, map) => sum + map[q][k], 0) / heads.length;
  return heads[0].map((row, q) => Float32Array.from(row, (_, k) => mean(q, k)));
}

// As a key, a word gets the sum of its pieces' weights; as a query, the mean of their rows. So
// each row still sums to 1.
function merged(weights, queries, keys) {
  const sum = (row, members) => members.reduce((total, k) => total + row[k], 0);
  const weight = ({ members }, key) =>
    members.reduce((total, q) => total + sum(weights[q], key.members), 0) / members.length;
  return queries.map((query) => keys.map((key) => weight(query, key)));
}

/** The rows and columns of the chosen map; of a long sentence the rows around the step.
 *  @param {import("../figure.js").Figure} figure */
function chosenMap({ state, names, result }) {
  const { kind, layer, head, words, step } = state;
  const all = names.items(KINDS[kind].queries, words, true);
  const keys = names.items(KINDS[kind].keys, words, false);
  const rows = Math.max(LEAST_ROWS, Math.floor(LARGEST_MAP_CELLS / keys.length));
  const middle = kind === "encoder" ? 0 : step - 1 - Math.floor(rows / 2);
  const first = Math.max(0, Math.min(all.length - rows, middle));
  const queries = all.slice(first, first + rows);
  const weights = merged(weightsOf(result, kind, layer, head), queries, keys);
  return { queries, keys, first, all: all.length, weights };
}

function fit(value, top, fallback) {
  const number = Number(value);
  return Number.isInteger(number) && number >= 1 && number <= top ? number : fallback;
}

/** Everything below the strips: the chosen map, its lines, the overview. */
export function drawMaps(figure) {
  const { $, state, result } = figure;
  const layers = result.maps[state.kind].length;
  state.layer = fit(state.layer, layers, layers);
  state.head = fit(state.head, headChoices(figure).length - 1, "mean");
  figure.view = chosenMap(figure);
  showChoices(figure);
  if (!$("maps").open) return; // nobody sees the rest
  drawOverview(figure);
  markThumbnail(figure);
  drawHeat(figure);
  drawLines(figure);
  const { pinned, view } = figure;
  pin(figure, pinned !== null && pinned < view.queries.length ? pinned : null);
}

function fillSelect(select, values, chosen) {
  select.replaceChildren(
    ...values.map((value) => el("option", { value }, value === "mean" ? headName(value) : value)),
  );
  select.value = chosen;
}

function showChoices(figure) {
  const { $, root, state, engine, result, names } = figure;
  for (const radio of root.querySelectorAll("input[name=kind]"))
    radio.checked = radio.value === state.kind;
  for (const radio of root.querySelectorAll("input[name=search]"))
    radio.checked = radio.value === state.search;
  $("sampling").hidden = state.search !== "sample";
  $("drawn-from").hidden = state.search !== "sample";
  const layers = result.maps[state.kind].map((_, i) => i + 1);
  fillSelect($("layer"), layers, state.layer);
  fillSelect($("head"), headChoices(figure), state.head);
  $("words").checked = state.words;
  $("words-label").hidden = !names.hasPieces;
  $("zero-label").hidden = !engine || state.head === "mean";
  $("switch-label").hidden = !engine;
  $("zero").checked = state.switches.off[state.kind].includes(`${state.layer} ${state.head}`);
  const restorable = figure.restorable();
  if (!restorable && root.activeElement === $("restore")) $("head").focus();
  $("restore").hidden = !restorable;
  $("explanation").textContent = KINDS[state.kind].explanation;
}

function thumbnail({ result, state }, layer, head, colour) {
  const weights = weightsOf(result, state.kind, layer, head);
  const width = weights[0].length;
  const zeroed = state.switches.off[state.kind].includes(`${layer} ${head}`);
  const image = new ImageData(width, weights.length);
  let at = 0;
  for (const row of weights)
    for (const weight of row) {
      image.data.set([...colour, 255 * opacity(weight)], at);
      at += 4;
    }
  const canvas = el("canvas", { width, height: weights.length });
  canvas.getContext("2d").putImageData(image, 0, 0);
  const place = { layer, head: headName(head) };
  const name = zeroed
    ? say("layer {layer}, {head}, set to zero", place)
    : say("layer {layer}, {head}", place);
  const attributes = { type: "button", tabindex: -1, class: zeroed ? "off" : "" };
  return el(
    "button",
    { ...attributes, "data-layer": layer, "data-head": head, "aria-label": name },
    canvas,
  );
}

// Red, green and blue of the darkest weight in the page's theme.
function darkest(root) {
  const probe = root.appendChild(el("i", { style: "color: var(--full)", hidden: "" }));
  const colour = getComputedStyle(probe)
    .color.match(/[\d.]+/g)
    .slice(0, 3);
  probe.remove();
  return colour.map(Number);
}

function drawOverview(figure) {
  const { $, root, result, state } = figure;
  const colour = darkest(root);
  const heads = headChoices(figure);
  const column = (head) =>
    el("th", { scope: "col" }, head === "mean" ? say("mean") : headName(head));
  const row = (layer) =>
    el(
      "tr",
      {},
      el("th", { scope: "row" }, say("layer {layer}", { layer })),
      ...heads.map((head) => el("td", {}, thumbnail(figure, layer, head, colour))),
    );
  const focused = $("overview").contains(root.activeElement);
  $("overview").replaceChildren(
    el("thead", {}, el("tr", {}, el("td"), ...heads.map(column))),
    el("tbody", {}, ...result.maps[state.kind].map((_, i) => row(i + 1))),
  );
  if (focused) chosenThumbnail(figure).focus();
}

const selector = ({ layer, head }) => `[data-layer="${layer}"][data-head="${head}"]`;
const chosenThumbnail = ({ $, state }) => $("overview").querySelector(selector(state));

function markThumbnail({ $, state }) {
  for (const button of $("overview").querySelectorAll("button")) {
    const chosen = button.matches(selector(state));
    button.setAttribute("aria-pressed", chosen);
    button.tabIndex = chosen ? 0 : -1;
  }
}
