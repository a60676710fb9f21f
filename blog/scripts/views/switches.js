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

/** @typedef {"positions" | "scaling" | "mask"} Flag */
/** What a box turns, with its text and title: all heads of a kind, or something else.
 *  @typedef {[name: Flag | Kind, text: string, title: string]} Switch */

/** @type {Switch[]} */
const FLAGS = [
  ["positions", say("positions"), say("The positions that are added to the German words")],
  ["scaling", say("÷ √dₖ"), say("The division of attention’s scores by the square root of d_k")],
  ["mask", say("mask"), say("The mask that hides what a word of the translation is followed by")],
];
/** Those of the page's first screen: its sentence needs each. @type {Switch[]} */
const ATTENTIONS = [
  ["cross", say("looks at the German sentence"), say("Cross-attention")],
  ["decoder", say("looks at its own words"), say("The decoder’s self-attention")],
];

/** @param {Flag | Kind} name @returns {name is Kind} */
const isKind = (name) => name in asBuilt().off;

/** Boxes, whose `show(switches)` shows them; `changed(switches)` is told of a change.
 *  @param {Config} config @param {(switches: Switches) => void} changed
 *  @param {boolean} [isFirst] whether it is the page's first screen that has them */
export function switchBoxes({ N, h }, changed, isFirst = false) {
  let shown = asBuilt();
  const places = Array.from({ length: N * h }, (_, i) => `${1 + Math.floor(i / h)} ${1 + (i % h)}`);
  /** @param {Flag | Kind} name @param {boolean} on @returns {Switches} */
  const turned = (name, on) =>
    isKind(name)
      ? { ...shown, off: { ...shown.off, [name]: on ? [] : places } }
      : { ...shown, [name]: on };
  const boxes = (isFirst ? ATTENTIONS : FLAGS).map(([name, text, title]) => {
    const box = el("input", { type: "checkbox", name });
    box.addEventListener("change", () => changed(turned(name, box.checked)));
    return { name, box, label: el("label", { title }, box, ` ${text}`) };
  });
  const attributes = {
    class: "switches",
    role: "group",
    "aria-label": say("Switches of the model"),
  };
  const host = el("span", attributes, ...boxes.map(({ label }) => label));
  const show = (/** @type {Switches} */ switches) => {
    shown = switches;
    for (const { name, box } of boxes)
      box.checked = isKind(name) ? shown.off[name].length < places.length : shown[name];
  };
  show(shown);
  return { host, show };
}
