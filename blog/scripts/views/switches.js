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

/** `isOn` in some switches, which are `turned` on or off.
 *  @typedef {{ name: string, text: string, title: string, isOn: (switches: Switches) => boolean,
 *    turned: (switches: Switches, on: boolean) => Switches }} Switch */

/** @type {["positions" | "scaling" | "mask", string, string][]} */
const FLAGS = [
  ["positions", say("positions"), say("The positions that are added to the German words")],
  ["scaling", say("÷ √dₖ"), say("The division of attention’s scores by the square root of d_k")],
  ["mask", say("mask"), say("The mask that hides what a word of the translation is followed by")],
];
/** @returns {Switch[]} */
const flags = () =>
  FLAGS.map(([name, text, title]) => ({
    ...{ name, text, title },
    isOn: (switches) => switches[name],
    turned: (switches, on) => ({ ...switches, [name]: on }),
  }));

/** A kind of attention, all its heads. @param {Kind} name @param {string} text
 *  @param {string} title @param {string[]} places of its heads @returns {Switch} */
const attention = (name, text, title, places) => ({
  ...{ name, text, title },
  isOn: ({ off }) => off[name].length < places.length,
  turned: ({ off, ...others }, on) => ({ ...others, off: { ...off, [name]: on ? [] : places } }),
});
/** Those of the page's first screen: its sentence needs each. @returns {Switch[]} */
const firstOnes = (/** @type {string[]} */ places) => [
  attention("cross", say("looks at the German sentence"), say("Cross-attention"), places),
  attention("decoder", say("looks at its own words"), say("The decoder’s self-attention"), places),
];

const KINDS = { encoder: say("encoder"), decoder: say("decoder"), cross: say("cross-attention") };

/** Boxes and a list, whose `show(switches)` shows them; `changed(switches)` is told of a change.
 *  @param {Config} config @param {(switches: Switches) => void} changed
 *  @param {boolean} [isFirst] whether it is the page's first screen that has them */
export function switchBoxes({ N, h }, changed, isFirst = false) {
  let shown = asBuilt();
  const places = Array.from({ length: N * h }, (_, i) => `${1 + Math.floor(i / h)} ${1 + (i % h)}`);
  const boxes = (isFirst ? firstOnes(places) : flags()).map(
    ({ name, text, title, isOn, turned }) => {
      const box = el("input", { type: "checkbox", name });
      box.addEventListener("change", () => changed(turned(shown, box.checked)));
      return { box, isOn, label: el("label", { title }, box, ` ${text}`) };
    },
  );
  const heads = headList(places);
  heads.addEventListener("change", () => {
    const [kind, place] = heads.value.split(":");
    const { off } = asBuilt();
    changed({ ...shown, off: place ? { ...off, [kind]: [place] } : off });
  });
  const host = el(
    "span",
    { class: "switches", role: "group", "aria-label": say("Switches of the model") },
    ...boxes.map(({ label }) => label),
    ...(isFirst ? [] : [el("label", {}, `${say("head off")} `, heads)]),
  );
  const show = (/** @type {Switches} */ switches) => {
    shown = switches;
    for (const { isOn, box } of boxes) box.checked = isOn(switches);
    showHeads(heads, switches.off);
  };
  show(shown);
  return { host, show };
}

function headList(/** @type {string[]} */ places) {
  const groups = Object.entries(KINDS).map(([kind, label]) => {
    const options = places.map((place) => {
      const [layer, head] = place.split(" ");
      const text = say("layer {layer}, head {head}", { layer, head });
      return el("option", { value: `${kind}:${place}` }, text);
    });
    return el("optgroup", { label }, ...options);
  });
  return el("select", { name: "off" }, el("option", { value: "" }, say("none")), ...groups);
}

function showHeads(/** @type {HTMLSelectElement} */ list, /** @type {Off} */ off) {
  list.querySelector("[value=several]")?.remove();
  const places = Object.entries(off).flatMap(([kind, heads]) => heads.map((at) => `${kind}:${at}`));
  const isSeveral = places.length > 1;
  const text = say("{n} heads", { n: places.length });
  if (isSeveral) list.append(el("option", { value: "several", hidden: true }, text));
  list.value = isSeveral ? "several" : (places[0] ?? "");
}
