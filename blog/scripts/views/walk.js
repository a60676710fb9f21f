// The guided walk: a dialog with ten stops from the text of one sentence to the text of its
// translation, with the live model's numbers.

import { interlinear } from "../page/gloss.js";
import { all } from "../page/dom.js";
import { liveContent } from "../page/engine.js";
import * as Guesses from "../page/guesses.js";
import { say } from "../page/language.js";
import { shape } from "../page/svg.js";
import { el } from "./panels.js";
import { overThePage } from "../page/dialog.js";
import { follow, STOPS } from "./walk_stops.js";

/** @import { Facts } from "./walk_stops.js" */

const INVITATION = say("Walk through the model in ten stops");
const FIGURE_HEIGHT = 912;
const WINDOW_HEIGHT = 260; // of the figure on a phone

/** A copy of the figure that leads to the stops.
 *  @param {Element} figure @param {(stop: number) => void} show */
function copy_of(figure, show) {
  const picture = /** @type {SVGSVGElement} */ (figure.cloneNode(true));
  for (const unneeded of picture.querySelectorAll("title, desc, style, defs")) unneeded.remove();
  for (const link of picture.querySelectorAll("a")) link.removeAttribute("href");
  for (const [stop, { part }] of STOPS.entries()) {
    for (const element of picture.querySelectorAll(`[data-part="${part}"]`)) {
      element.classList.add("walk-part");
      element.addEventListener("click", () => show(stop));
    }
  }
  for (const name of ["aria-labelledby", "width", "height"]) picture.removeAttribute(name);
  picture.setAttribute("aria-hidden", "true");
  return picture;
}

/** @param {string} label @param {string} name for a screen reader @returns {HTMLButtonElement} */
const button = (label, name) => el("button", { type: "button", "aria-label": name }, label);

class Walk {
  /** @type {Facts | null} of the sentence that was followed last */
  facts = null;
  stop = 0;
  /** @type {Record<number, string>} by stop: what was clicked */
  answered = {};
  title = el("h2", { id: "walk-title" });
  sentence = el("p", { class: "walk-whose" });
  text = el("div", { class: "walk-text" });
  link = el("a", {}, say("Read the section"));
  count = el("span", { class: "walk-count" });
  back = button(say("◀ back"), say("Previous stop"));
  next = button(say("next ▶"), say("Next stop"));
  close = button(say("close"), say("Close the walk"));
  start = el("button", { type: "button", id: "walk" }, INVITATION);
  home = el("button", { type: "button", id: "walk-home", hidden: "" }, say("↩ back to the walk"));
  mark = shape("rect", { class: "walk-mark" });

  /** @param {Element} figure */
  constructor(figure) {
    this.picture = copy_of(figure, (stop) => this.show(stop));
    this.picture.append(this.mark);
    this.dialog = el(
      "dialog",
      { class: "walk", "aria-labelledby": "walk-title" },
      el("div", { class: "walk-picture" }, this.picture),
      el(
        "div",
        { class: "walk-side" },
        this.title,
        this.sentence,
        this.text,
        el("p", {}, this.link),
        el("p", { class: "walk-buttons" }, this.back, this.count, this.next, this.close),
      ),
    );
    overThePage(this.dialog);
    this.listen();
  }

  listen() {
    this.start.addEventListener("click", () => this.open());
    this.back.addEventListener("click", () => this.show(this.stop - 1));
    this.next.addEventListener("click", () => this.show(this.stop + 1));
    this.close.addEventListener("click", () => this.dialog.close());
    this.link.addEventListener("click", () => {
      this.dialog.close();
      this.home.hidden = false;
    });
    this.home.addEventListener("click", () => {
      this.home.hidden = true;
      this.open();
    });
    this.dialog.addEventListener("keydown", (/** @type {KeyboardEvent} */ event) => {
      if (event.altKey || event.ctrlKey || event.metaKey) return;
      if (event.key === "ArrowRight") this.show(this.stop + 1);
      if (event.key === "ArrowLeft") this.show(this.stop - 1);
    });
  }

  async open() {
    try {
      const content = await liveContent();
      this.start.textContent = say("computing…");
      const before = this.facts?.sentence;
      /** @type {any} the figure, which has no types yet */
      const figure = document.querySelector(".explorer > div");
      const sentence = figure?.explored?.sentence().trim() || content.sentence;
      this.facts = await follow(content.engine, sentence);
      if (sentence !== before) this.answered = {};
      this.dialog.show();
      this.start.textContent = INVITATION;
      // one who read a section meanwhile goes on
      this.show(sentence === before && this.stop < STOPS.length - 1 ? this.stop : 0);
      this.next.focus();
    } catch (error) {
      const why = /** @type {Error} */ (error).message;
      this.start.textContent = say("The walk cannot begin: {why}", { why });
    }
  }

  /** @param {number} number */
  show(number) {
    if (!this.facts) return;
    this.stop = Math.max(0, Math.min(STOPS.length - 1, number));
    const { part, title, section } = STOPS[this.stop];
    this.title.textContent = `${this.stop + 1}. ${title}`;
    this.sentence.replaceChildren(...interlinear(this.facts.sentence));
    this.text.replaceChildren(...this.question(this.facts));
    this.link.href = `#${section}`;
    this.count.textContent = say("{stop} of {all}", { stop: this.stop + 1, all: STOPS.length });
    this.disable(this.back, this.stop === 0, this.next);
    this.disable(this.next, this.stop === STOPS.length - 1, this.back);
    this.point_at(part);
  }

  /** @param {HTMLButtonElement} button @param {boolean} at_end @param {HTMLButtonElement} other */
  disable(button, at_end, other) {
    // a disabled button would lose the focus, and with it the keys
    if (at_end && document.activeElement === button) other.focus();
    button.disabled = at_end;
  }

  /** A question with its answers; what is told appears when one of them has been clicked.
   *  @param {Facts} facts */
  question(facts) {
    const { stop, answered } = this;
    const { ask, tell } = STOPS[stop];
    const [question, names, right] = ask(facts);
    const answers = el("div", { class: "walk-answers" });
    const told = el("div", {});
    /** @param {string} name */
    const answer = (name) => {
      if (!(stop in answered)) Guesses.add(name === right);
      answered[stop] = name;
      const results = names.map((one) => {
        const [kind, mark] =
          one === right ? ["right", "✓"] : one === name ? ["wrong", "✗"] : ["", ""];
        return el("span", { class: kind }, `${one} ${mark}`);
      });
      answers.replaceChildren(...results, el("small", {}, Guesses.text()));
      told.replaceChildren(
        ...tell(facts).map((piece) => (typeof piece === "string" ? el("p", {}, piece) : piece)),
      );
    };
    answers.append(...names.map((name) => button(name, name)));
    for (const [i, element] of all("button", answers).entries())
      element.addEventListener("click", () => {
        answer(names[i]);
        this.next.focus();
      });
    if (stop in answered) answer(answered[stop]);
    return [el("p", { class: "walk-question" }, question), answers, told];
  }

  /** Mark a part of the figure. @param {string} name */
  point_at(name) {
    const part = /** @type {SVGGraphicsElement} */ (
      this.picture.querySelector(`[data-part="${name}"]`)
    );
    const { x, y, width, height } = part.getBBox();
    const around = { x: x - 6, y: y - 6, width: width + 12, height: height + 12, rx: 10 };
    for (const [key, value] of Object.entries(around)) this.mark.setAttribute(key, `${value}`);
    // on a phone only the part and what is around it
    const narrow = matchMedia("(max-width: 48rem)").matches;
    const middle = y + height / 2 - WINDOW_HEIGHT / 2;
    const top = Math.max(0, Math.min(FIGURE_HEIGHT - WINDOW_HEIGHT, middle));
    const box = narrow ? `0 ${top} 540 ${WINDOW_HEIGHT}` : `0 0 540 ${FIGURE_HEIGHT}`;
    this.picture.setAttribute("viewBox", box);
  }
}

export function startWalk() {
  const place = document.querySelector(".explorer");
  const figure = document.querySelector(".arch-fig");
  if (!place || !figure) return;
  const walk = new Walk(figure);
  document.body.append(walk.home);
  place.before(walk.start);
}
