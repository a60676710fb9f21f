// What a reader can switch off in the model that translates, beside each place of the sentence.

import { el } from "./dom.js";
import { say } from "../page/language.js";

/** @typedef {{ encoder: string[], decoder: string[], cross: string[] }} Off heads that are set to
 *    zero, as "layer head" from 1 */
/** @typedef {{ positions: boolean, scaling: boolean, mask: boolean, off: Off }} Switches */

/** The model as it was built. @returns {Switches} */
export const asBuilt = () => ({
  positions: true,
  scaling: true,
  mask: true,
  off: { encoder: [], decoder: [], cross: [] },
});

export const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
export const changesModel = (switches) => !same(switches, asBuilt());

/** The same switches with a head set to zero, or no longer. @returns {Switches} */
export function withHead(switches, kind, place) {
  const places = switches.off[kind];
  const others = places.filter((one) => one !== place);
  const now = others.length < places.length ? others : [...places, place].sort();
  return { ...switches, off: { ...switches.off, [kind]: now } };
}

const NAMES = { positions: say("positions"), scaling: say("÷ √dₖ"), mask: say("mask") };
const ABOUT = {
  positions: say("The positions that are added to the German words"),
  scaling: say("The division of attention’s scores by the square root of d_k"),
  mask: say("The mask that hides what a word of the translation is followed by"),
};
const KINDS = { encoder: say("encoder"), decoder: say("decoder"), cross: say("cross-attention") };

/** Boxes and a list, whose `show(switches)` shows them; `changed(switches)` is told of a change.
 *  @param {{ N: number, h: number }} config @param {(switches: Switches) => void} changed */
export function switchBoxes({ N, h }, changed) {
  let shown = asBuilt();
  const boxes = Object.entries(NAMES).map(([name, text]) => {
    const box = el("input", { type: "checkbox", name });
    box.addEventListener("change", () => changed({ ...shown, [name]: box.checked }));
    return { name, box, label: el("label", { title: ABOUT[name] }, box, ` ${text}`) };
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
  const show = (switches) => {
    shown = switches;
    for (const { name, box } of boxes) box.checked = switches[name];
    showHeads(heads, switches.off);
  };
  show(shown);
  return { host, show };
}

function headList(N, h) {
  const heads = Array.from({ length: N * h }, (_, i) => [1 + Math.floor(i / h), 1 + (i % h)]);
  const option = (kind, [layer, head]) =>
    el(
      "option",
      { value: `${kind}:${layer} ${head}` },
      say("layer {layer}, head {head}", { layer, head }),
    );
  return el(
    "select",
    { name: "off" },
    el("option", { value: "" }, say("none")),
    ...Object.entries(KINDS).map(([kind, text]) =>
      el("optgroup", { label: text }, ...heads.map((head) => option(kind, head))),
    ),
  );
}

function showHeads(list, off) {
  list.querySelector("[value=several]")?.remove();
  const places = Object.entries(off).flatMap(([kind, heads]) => heads.map((at) => `${kind}:${at}`));
  if (places.length > 1)
    list.append(
      el("option", { value: "several", hidden: "" }, say("{n} heads", { n: places.length })),
    );
  list.value = places.length > 1 ? "several" : (places[0] ?? "");
}
