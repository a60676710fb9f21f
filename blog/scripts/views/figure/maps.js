// The maps of a result's attention: which one is chosen, and all of them, small.

import { meanOf } from "../../model/tensors.js";
import { el, pixels, tableOf } from "../../page/dom.js";
import { glossed, glossOf } from "../../page/gloss.js";
import { say } from "../../page/language.js";
import { cutting, heat } from "../panels/parts.js";

/** Cross-attention names its rows by what they PREDICT: they search the source for that word.
 *  @typedef {import("./tokens.js").Side} Side */
/** @type {Record<Kind, { name: string, queries: Side, keys: Side, explanation: string }>} */
export const KINDS = {
  encoder: {
    name: say("Encoder self-attention"),
    queries: "source",
    keys: "source",
    explanation: say`Each source token (query, row) looks at all source tokens (keys, columns), including itself.`,
  },
  decoder: {
    name: say("Decoder self-attention"),
    queries: "target",
    keys: "target",
    explanation: say`Each target token that is read (query, row) looks at itself and at the tokens before it (keys, columns). The mask hides later ones.`,
  },
  cross: {
    name: say("Cross-attention"),
    queries: "predicted",
    keys: "source",
    explanation: say`Each decoder position (query, row) reads one target token and predicts the next. To do so it looks at the source tokens in the encoder’s output (keys, columns).`,
  },
};

/** Counted from 1, or all of them. @typedef {number | "mean"} Head */

/** How dark a weight is drawn: the square root makes 2% visible beside 90%. All maps have the same
 *  scale, so they can be compared. @param {number} weight */
export const opacity = (weight) => Math.sqrt(Math.max(0, Math.min(1, weight)));

export const headName = (/** @type {Head} */ head) =>
  head === "mean" ? say("mean of heads") : say("head {head}", { head });

/** @param {Figure} figure @returns {Head[]} */
export const headChoices = ({ result, state }) => [
  ...result.maps[state.kind][0].map((_, i) => i + 1),
  "mean",
];

/** The weights of a head, or their mean over the heads: (queries, keys).
 *  @param {Result} result @param {Kind} kind @param {number} layer @param {Head} head */
export function weightsOf({ maps }, kind, layer, head) {
  const heads = maps[kind][layer - 1];
  if (head !== "mean") return heads[head - 1];
  return heads[0].map((_, q) => meanOf(heads.map((map) => map[q])));
}

/** Everything below the strips: the chosen map, the overview. @param {Figure} figure */
export function drawMaps(figure) {
  const { $, state, result } = figure;
  const layers = result.maps[state.kind].map((_, i) => i + 1);
  const heads = headChoices(figure);
  // where attention finds the right word best, and of which the text speaks: the last but one
  const usual = Math.max(1, layers.length - 1);
  // the menu of another kind may have others
  state.layer = layers.find((layer) => layer === Number(state.layer)) ?? usual;
  state.head = heads.find((head) => head === Number(state.head)) ?? "mean";
  fillSelect($("layer"), layers, state.layer);
  fillSelect($("head"), heads, state.head);
  showChoices(figure);
  if (!$("maps").open) return; // nobody sees the rest
  drawOverview(figure, layers, heads);
  drawHeat(figure);
}

function drawHeat(/** @type {Figure} */ { $, state, names, result }) {
  const { kind, layer, head, shown } = state;
  const attention = { attention: KINDS[kind].name, layer, head: headName(head) };
  const title = say("{attention}, layer {layer}, {head}", attention);
  const english = glossOf(shown, result.source);
  const named = (/** @type {Side} */ side, isQuery = false) =>
    names
      .names(side, isQuery)
      .map((name, i) => (side === "source" ? glossed(name, english[i]) : name));
  const queries = named(KINDS[kind].queries, true);
  const keys = named(KINDS[kind].keys);
  const weights = weightsOf(result, kind, layer, head);
  /** Only a weight of exactly 0 counts as masked, so a leak through the mask would show. */
  const weight = (/** @type {number} */ q, /** @type {number} */ k) =>
    kind === "decoder" && k > q && weights[q][k] === 0 ? null : weights[q][k];
  $("heat-title").textContent = title;
  $("heat").replaceChildren(heat(queries, keys, weight, title));
  $("cut").textContent = cutting(queries, keys).join("");
}

/** @param {HTMLElement & { value: string }} select @param {Head[]} values @param {Head} chosen */
function fillSelect(select, values, chosen) {
  const options = values.map((value) =>
    el("option", { value }, value === "mean" ? headName(value) : `${value}`),
  );
  select.replaceChildren(...options);
  select.value = `${chosen}`;
}

function showChoices(/** @type {Figure} */ figure) {
  const { $, state, engine } = figure;
  for (const name of /** @type {const} */ (["kind", "search"])) {
    const [radio] = figure.all(`[name=${name}][value=${state[name]}]`);
    Object.assign(radio, { checked: true });
  }
  $("zero-label").hidden = !engine || state.head === "mean";
  $("zero").checked = isZero(figure, state.layer, state.head);
  $("explanation").textContent = KINDS[state.kind].explanation;
}

/** @param {Figure} figure @param {number} layer @param {Head} head */
const isZero = ({ state }, layer, head) =>
  state.switches.off[state.kind].includes(`${layer} ${head}`);

/** @param {Figure} figure @param {number} layer @param {Head} head
 *  @param {number[]} colour red, green and blue */
function thumbnail(figure, layer, head, colour) {
  const { result, state } = figure;
  const weights = weightsOf(result, state.kind, layer, head);
  const colours = weights.flatMap((row) =>
    [...row].flatMap((weight) => [...colour, 255 * opacity(weight)]),
  );
  const zeroed = isZero(figure, layer, head);
  const place = { layer, head: headName(head) };
  const name = zeroed
    ? say("layer {layer}, {head}, set to zero", place)
    : say("layer {layer}, {head}", place);
  const isChosen = layer === state.layer && head === state.head;
  const marks = { class: zeroed ? "off" : "", "aria-pressed": isChosen, "aria-label": name };
  const map = pixels(weights[0].length, colours);
  const attributes = { type: "button", tabindex: isChosen ? 0 : -1, ...marks };
  return el("button", { ...attributes, "data-layer": layer, "data-head": head }, map);
}

/** Red, green and blue of the darkest weight in the page's theme. @param {ShadowRoot} root */
function darkest(root) {
  const probe = root.appendChild(el("i", { style: "color: var(--full)", hidden: true }));
  const colour = getComputedStyle(probe).color.match(/[\d.]+/g) ?? [];
  probe.remove();
  return colour.slice(0, 3).map(Number);
}

/** @param {Figure} figure @param {number[]} layers @param {Head[]} heads */
function drawOverview(figure, layers, heads) {
  const { $, root } = figure;
  const colour = darkest(root);
  const columns = heads.map((head) =>
    el("th", { scope: "col" }, head === "mean" ? say("mean") : headName(head)),
  );
  const rows = layers.map((layer) => [
    el("th", { scope: "row" }, say("layer {layer}", { layer })),
    ...heads.map((head) => el("td", {}, thumbnail(figure, layer, head, colour))),
  ]);
  const focused = $("overview").contains(root.activeElement);
  $("overview").replaceChildren(...tableOf([el("td"), ...columns], rows));
  if (focused) figure.all("#overview [aria-pressed=true]")[0].focus();
}
