// What a reader has changed in a figure, and what became of the translation.

import { say } from "../../page/language.js";
import { plain } from "../../model/tokeniser.js";
import { el, percent } from "../dom.js";
import { changesModel } from "../switches.js";
import * as Trust from "../trust.js";
import { KINDS } from "./maps.js";

/**
 * @typedef {object} Changes
 * @property {Set<number>} hidden tokens that nobody looks at, by place
 * @property {number[] | null} order the position that each token has
 * @property {{ forced: number[], choices: object[] } | null} taken what the reader chose: all
 *   tokens that the translation begins with, and each choice { step, ids, token, p, other, q }
 */

/** @returns {Changes} */
export const none = () => ({ hidden: new Set(), order: null, taken: null });

const moved = ({ hidden, order }) => hidden.size > 0 || order !== null;

/** Whether the model would not translate by itself as it does now. */
export const any = ({ changes, state }) =>
  moved(changes) || changes.taken !== null || changesModel(state.switches);

/** What the model is asked, without and with the changes. */
export const asItIs = ({ state }) => ({
  sentence: state.shown,
  search: state.search,
  temperature: state.temperature,
  topP: state.topP,
});
export const asChanged = (figure) => {
  const { hidden, order, taken } = figure.changes;
  return {
    ...asItIs(figure),
    forced: taken?.forced ?? [],
    switches: figure.state.switches,
    changes: moved(figure.changes) ? { hidden: [...hidden], order } : undefined,
  };
};

/** Whether "Restore all" would do something. */
export const restorable = ({ changes, state }) => moved(changes) || changesModel(state.switches);

/** Hide a token or no longer; the end stays where it is. */
export function hide({ hidden }, i) {
  if (hidden.has(i)) hidden.delete(i);
  else hidden.add(i);
}

/** Give a token the position of the next one, and that one its own. */
export function swap(changes, i, count) {
  const order = changes.order ?? Array.from({ length: count }, (_, t) => t);
  [order[i], order[i + 1]] = [order[i + 1], order[i]];
  changes.order = order.every((place, t) => place === t) ? null : order;
}

function list({ changes, result, state, names }) {
  const { positions, scaling, mask, off } = state.switches;
  const zeroed = Object.entries(off).flatMap(([kind, places]) =>
    places.map((place) => `${KINDS[kind].name.toLowerCase()} ${place.replace(" ", "/")}`),
  );
  const name = (i) => `“${names.spell(result.source, [i])}”`;
  const swaps = (changes.order ?? []).flatMap((place, t) =>
    place > t ? [`${name(t)} ⇄ ${name(place)}`] : [],
  );
  const joined = (texts) => ({ names: texts.join(say(", ")) });
  return [
    zeroed.length > 0 && say("Set to zero (layer/head): {names}. ", joined(zeroed)),
    !positions && say("Without the positions of the source. "),
    !scaling && say("Without the division by √d_k. "),
    !mask && say("Without the mask of the decoder. "),
    changes.hidden.size > 0 && say("Hidden: {names}. ", joined([...changes.hidden].map(name))),
    swaps.length > 0 && say("Positions swapped: {names}. ", joined(swaps)),
  ].filter(Boolean);
}

function effect({ whole, result, state, options }) {
  const before = whole?.translation;
  if (before === undefined || state.guess) return [];
  const now = result.translation;
  if (before === now) return [say("The translation is the same as without it.")];
  const rest = [say("Before: "), el("span", {}, ...Trust.marked(before, now))];
  if (options.first) return rest; // which shows the translation right above
  return [say("Now: "), el("strong", {}, ...Trust.marked(now, before)), el("br"), ...rest];
}

/** Say what has been changed and what it did: once under the translation, and once beside the
 *  heads.
 *  @param {import("../figure.js").Figure} figure */
export function compare(figure) {
  const { $, state } = figure;
  const changed = list(figure);
  for (const id of ["compared", "effect"]) {
    $(id).hidden = !changed.length || (id === "effect" && !changesModel(state.switches));
    $(id).replaceChildren(...changed, ...effect(figure));
  }
  const undo = el("button", { type: "button" }, say("Undo"));
  undo.addEventListener("click", () => {
    figure.restore();
    $("source").querySelector("[tabindex='0']").focus();
  });
  $("compared").append(" ", undo);
  tellChoices(figure);
}

function tellChoices({ $, changes, result, whole }) {
  const { taken } = changes;
  $("taken").hidden = !taken;
  if (!taken) return;
  const share = ({ steps }) => `${Math.round(100 * Trust.confidence(steps))}%`;
  const choices = taken.choices.map(({ token, p, other, q, step }) =>
    say("You took “{token}” at step {step} (probability {p}) instead of “{other}” ({q}).", {
      token: plain(token),
      step,
      p: percent(p),
      other: plain(other),
      q: percent(q),
    }),
  );
  const cost = whole
    ? say(" The sentence has now {now} per token (geometric mean); the model’s own has {before}.", {
        now: share(result),
        before: share(whole),
      })
    : "";
  $("taken").firstElementChild.textContent = choices.join(" ") + cost;
}
