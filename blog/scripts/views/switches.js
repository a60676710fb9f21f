// What a reader can switch off in the model that translates, beside each place of the sentence.

import { el } from "../page/dom.js";
import { say } from "../page/language.js";

/** The model as it was built. @returns {Switches} */
export const asBuilt = () => ({
  positions: true,
  scaling: true,
  mask: true,
  off: { encoder: [], decoder: [], cross: [] },
});

/** @param {Switches} one @param {Switches} other */
export const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export const changesModel = (/** @type {Switches} */ switches) => !same(switches, asBuilt());

/** The same switches with a head set to zero, or no longer.
 *  @param {Switches} switches @param {Kind} kind @param {string} place @returns {Switches} */
export function withHead(switches, kind, place) {
  const places = switches.off[kind];
  const now = places.includes(place)
    ? places.filter((other) => other !== place)
    : [...places, place].sort();
  return { ...switches, off: { ...switches.off, [kind]: now } };
}

/** Names and what they mean. @type {["positions" | "scaling" | "mask", string, string][]} */
const NAMES = [
  ["positions", say("positions"), say("The positions that are added to the German words")],
  ["scaling", say("÷ √dₖ"), say("The division of attention’s scores by the square root of d_k")],
  ["mask", say("mask"), say("The mask that hides what a word of the translation is followed by")],
];
const KINDS = { encoder: say("encoder"), decoder: say("decoder"), cross: say("cross-attention") };

/** Boxes and a list, whose `show(switches)` shows them; `changed(switches)` is told of a change.
 *  @param {Config} config @param {(switches: Switches) => void} changed */
export function switchBoxes({ N, h }, changed) {
  let shown = asBuilt();
  const boxes = NAMES.map(([name, text, title]) => {
    const box = el("input", { type: "checkbox", name });
    box.addEventListener("change", () => changed({ ...shown, [name]: box.checked }));
    return { name, box, label: el("label", { title }, box, ` ${text}`) };
  });
  const heads = headList(N, h);
  heads.addEventListener("change", () => {
    const [kind, place] = heads.value.split(":");
    const { off } = asBuilt();
    changed({ ...shown, off: place ? { ...off, [kind]: [place] } : off });
  });
  const host = el(
    "span",
    { class: "switches", role: "group", "aria-label": say("Switches of the model") },
    ...boxes.map(({ label }) => label),
    el("label", {}, `${say("head off")} `, heads),
  );
  const show = (/** @type {Switches} */ switches) => {
    shown = switches;
    for (const { name, box } of boxes) box.checked = switches[name];
    showHeads(heads, switches.off);
  };
  show(shown);
  return { host, show };
}

/** @param {number} N @param {number} h */
function headList(N, h) {
  const heads = Array.from({ length: N * h }, (_, i) => [1 + Math.floor(i / h), 1 + (i % h)]);
  const groups = Object.entries(KINDS).map(([kind, label]) => {
    const options = heads.map(([layer, head]) => {
      const text = say("layer {layer}, head {head}", { layer, head });
      return el("option", { value: `${kind}:${layer} ${head}` }, text);
    });
    return el("optgroup", { label }, ...options);
  });
  return el("select", { name: "off" }, el("option", { value: "" }, say("none")), ...groups);
}

/** @param {HTMLSelectElement} list @param {Off} off */
function showHeads(list, off) {
  list.querySelector("[value=several]")?.remove();
  const places = Object.entries(off).flatMap(([kind, heads]) => heads.map((at) => `${kind}:${at}`));
  const isSeveral = places.length > 1;
  const text = say("{n} heads", { n: places.length });
  if (isSeveral) list.append(el("option", { value: "several", hidden: true }, text));
  list.value = isSeveral ? "several" : (places[0] ?? "");
}
