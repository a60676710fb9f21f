// What a reader has changed in a figure, and what became of the translation.

import { plain } from "../../model/tokeniser.js";
import { button, el, percent } from "../../page/dom.js";
import { say } from "../../page/language.js";
import { changesModel } from "../switches.js";
import * as Trust from "../trust.js";
import { KINDS } from "./maps.js";

/** What a reader took at a step, with its probability `p`, instead of `other` with `q`.
 *  @typedef {{ step: number, ids: number[], token: string, p: number, other: string, q: number }}
 *    Choice */
/** Tokens that nobody looks at, by place; and what the reader took, with all tokens that the
 *  translation begins with.
 *  @typedef {{ hidden: Set<number>,
 *    taken: { forced: number[], choices: Choice[] } | null }} Changes */

/** @returns {Changes} */
export const none = () => ({ hidden: new Set(), taken: null });

/** Whether "Undo" would do something. @param {Figure} figure */
export const restorable = ({ changes, state }) =>
  changes.hidden.size > 0 || changesModel(state.switches);

/** What the model is asked, without the changes. @param {Figure} figure */
export const asItIs = ({ state: { shown: sentence, search } }) => ({ sentence, search });
/** And with them. @param {Figure} figure */
export const asChanged = (figure) => ({
  ...asItIs(figure),
  forced: figure.changes.taken?.forced ?? [],
  switches: figure.state.switches,
  hidden: [...figure.changes.hidden],
});

const WITHOUT = {
  encoder: say("Without the encoder’s self-attention. "),
  decoder: say("Without the decoder’s self-attention, which looks at what it has written. "),
  cross: say("Without cross-attention, which looks at the German sentence. "),
};

const ATTENTIONS = /** @type {Kind[]} */ (Object.keys(WITHOUT));

/** Whether none of its heads is left.
 *  @param {Kind} kind @param {Result} result @param {Switches} switches */
export const isGone = (kind, { maps }, { off }) => off[kind].length === maps[kind].flat().length;

function list(/** @type {Figure} */ { changes: { hidden }, result, state, names }) {
  const { positions, scaling, mask, off } = state.switches;
  const gone = ATTENTIONS.filter((kind) => isGone(kind, result, state.switches));
  const others = ATTENTIONS.filter((kind) => !gone.includes(kind));
  const zeroed = others.flatMap((kind) =>
    off[kind].map((place) => `${KINDS[kind].name.toLowerCase()} ${place.replace(" ", "/")}`),
  );
  const name = (/** @type {number} */ i) => `“${names.spell(result.source, i)}”`;
  const joined = (/** @type {string[]} */ texts) => ({ names: texts.join(say(", ")) });
  return [
    ...gone.map((kind) => WITHOUT[kind]),
    zeroed.length ? say("Set to zero (layer/head): {names}. ", joined(zeroed)) : "",
    positions ? "" : say("Without the positions of the source. "),
    scaling ? "" : say("Without the division by √d_k. "),
    mask ? "" : say("Without the mask of the decoder. "),
    hidden.size ? say("Hidden: {names}. ", joined([...hidden].map(name))) : "",
    result.predicted.at(-1) === "</s>" ? "" : say("It has reached the limit of length. "),
  ].filter(Boolean);
}

function effect(/** @type {Figure} */ { whole, result, options }) {
  if (!whole) return [];
  const [before, now] = [whole.translation, result.translation];
  if (before === now) return [say("The translation stays the same.")];
  const rest = [say("Before: "), el("span", {}, ...Trust.marked(before, now))];
  if (options.first) return rest; // which shows the translation right above
  return [say("Now: "), el("strong", {}, ...Trust.marked(now, before)), el("br"), ...rest];
}

/** Say what has been changed and what it did: once under the translation, and once beside the
 *  heads. */
export function compare(/** @type {Figure} */ figure) {
  const { $, state } = figure;
  const changed = list(figure);
  for (const id of ["compared", "effect"]) {
    $(id).hidden = !changed.length || (id === "effect" && !changesModel(state.switches));
    const undo = button(say("Undo"), () => {
      figure.restore();
      (id === "effect" ? $("head") : figure.all("#source [tabindex='0']")[0]).focus();
    });
    const undoing = restorable(figure) ? [" ", undo] : [];
    $(id).replaceChildren(...changed, ...effect(figure), ...undoing);
  }
  tellChoices(figure);
}

function tellChoices(/** @type {Figure} */ { $, changes: { taken }, result, whole }) {
  $("taken").hidden = !taken;
  if (!taken) return;
  const choices = taken.choices.map(({ step, token, other, p, q }) => {
    const values = { step, token: plain(token), other: plain(other), p: percent(p), q: percent(q) };
    return say(
      "You took “{token}” at step {step} (probability {p}) instead of “{other}” ({q}).",
      values,
    );
  });
  const shares = { now: Trust.share(result.steps), before: whole && Trust.share(whole.steps) };
  const cost = say(
    " How sure it is of these words: {now}; of its own sentence’s: {before}.",
    shares,
  );
  $("taken").children[0].textContent = choices.join(" ") + (whole ? cost : "");
}
