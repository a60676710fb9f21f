// What a reader's clicks, keys and words do in a figure.

import { all, targetOf } from "../../page/dom.js";
import { direction } from "../../page/language.js";
import { withHead } from "../switches.js";
import { drawMaps, headChoices } from "./maps.js";
import { go, idsOf, play, stop, take } from "./steps.js";
import { lightUp } from "./strips.js";

const TYPING_MS = 600; // of silence, after which what was typed is translated

export function listen(/** @type {Figure} */ figure) {
  for (const listenTo of Object.values(LISTENERS)) listenTo(figure);
}

/** @param {HTMLElement} element @param {string} events @param {(event: Event) => void} heard */
function on(element, events, heard) {
  for (const name of events.split(" ")) element.addEventListener(name, heard);
}

/** The element around an event's target that matches.
 *  @param {Event} event @param {string} selector @returns {HTMLElement | null} */
const within = (event, selector) => targetOf(event).closest(selector);

/** @type {Record<string, (figure: Figure) => void>} */
const LISTENERS = {
  sentence(figure) {
    const { $ } = figure;
    on($("ask"), "submit", (event) => {
      event.preventDefault();
      figure.ask($("text").value);
    });
    on($("text"), "keydown", (event) => {
      const { key, isComposing } = /** @type {KeyboardEvent} */ (event);
      if (key !== "Enter" || isComposing) return;
      event.preventDefault(); // a field of several lines takes one sentence
      figure.ask($("text").value);
    });
    on($("text"), "input", () => {
      $("samples").value = "";
      $("text").dir = direction($("text").value);
      clearTimeout(figure.typing);
      figure.typing = window.setTimeout(() => {
        const { value } = $("text");
        if (value.trim() !== figure.state.sentence.trim()) figure.ask(value);
      }, TYPING_MS);
    });
    on($("samples"), "change", () => {
      const sentence = $("samples").value;
      $("samples").value = ""; // so that it can be picked again
      if (sentence) figure.ask(sentence);
    });
  },
  search(figure) {
    const { $, state } = figure;
    on($("search"), "change", ({ target }) => {
      Object.assign(state, { search: /** @type {HTMLInputElement} */ (target).value });
      figure.compute();
    });
    on($("halt"), "click", () => figure.halt());
  },
  steps(figure) {
    const { $, state } = figure;
    const move = (/** @type {number} */ step) => {
      stop(figure);
      go(figure, step);
    };
    on($("back"), "click", () => move(state.step - 1));
    on($("forward"), "click", () => move(state.step + 1));
    on($("step"), "input", () => move(Number($("step").value)));
    on($("play"), "click", () => play(figure));
  },
  words(figure) {
    const { $, engine } = figure;
    on($("likeliest"), "click", (event) => {
      const button = within(event, "button");
      if (button) take(figure, [Number(button.dataset.id)]);
    });
    on($("own"), "submit", (event) => {
      event.preventDefault();
      const ids = engine ? idsOf(engine, $("own-word").value.trim()) : [];
      if (ids.length) take(figure, ids);
      $("own-word").value = "";
    });
    on($("untake"), "click", () => {
      figure.changes.taken = null;
      figure.compute();
    });
  },
  maps(figure) {
    const { $, state } = figure;
    for (const id of ["kind", "layer", "head"])
      on($(id), "change", ({ target }) =>
        figure.choose({ [id]: /** @type {HTMLInputElement} */ (target).value }),
      );
    on($("maps"), "toggle", () => {
      if (figure.result && $("maps").open) drawMaps(figure);
    });
    on($("zero"), "change", () =>
      figure.switch(withHead(state.switches, state.kind, `${state.layer} ${state.head}`)),
    );
    on($("overview"), "click", (event) => {
      const button = within(event, "button");
      if (!button) return;
      const { layer, head } = button.dataset;
      figure.choose({ layer, head });
    });
    rove(figure, $("overview"), () => headChoices(figure).length);
  },
  strips(figure) {
    listenToStrip(figure, "source");
    listenToStrip(figure, "target");
  },
};

function listenToStrip(/** @type {Figure} */ figure, /** @type {"source" | "target"} */ side) {
  const box = figure.$(side);
  const place = (/** @type {Event} */ event) => Number(within(event, "button")?.dataset.i ?? -1);
  const isHidden = (/** @type {number} */ i) => side === "source" && figure.changes.hidden.has(i);
  on(box, "pointerover focusin", (event) => {
    const i = place(event);
    if (isHidden(i)) lightUp(figure);
    else if (i >= 0) lightUp(figure, side, i);
  });
  on(box, "pointerleave focusout", () => lightUp(figure));
  on(box, "click", (event) => {
    const i = place(event);
    if (i < 0) return;
    if (side === "source") return figure.touch(i);
    stop(figure);
    go(figure, i + 1, figure.state.whole);
  });
  rove(figure, box, () => 1);
}

/** One tab stop for a grid of buttons; the arrow keys move inside it.
 *  @param {Figure} figure @param {HTMLElement} box @param {() => number} countColumns */
function rove({ root }, box, countColumns) {
  box.addEventListener("keydown", (event) => {
    const places = all("button", box);
    const [right, down] = [box.dir === "rtl" ? -1 : 1, countColumns()];
    const steps = { ArrowLeft: -right, ArrowRight: right, ArrowUp: -down, ArrowDown: down };
    const step = new Map(Object.entries(steps)).get(event.key);
    // Alt and an arrow is "back" in the browser
    if (!step || event.altKey) return;
    event.preventDefault();
    const place = places[places.findIndex((element) => element === root.activeElement) + step];
    place?.focus({ preventScroll: true });
    // focus() alone may ignore the padding
    place?.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  on(box, "focusin", (event) => {
    box.querySelector("[tabindex='0']")?.setAttribute("tabindex", "-1");
    targetOf(event).tabIndex = 0;
  });
}
