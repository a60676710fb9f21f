// The guided walk: a dialog with ten stops from the text of one sentence to the text of its
// translation, with the live model's numbers.

import { overThePage } from "../page/dialog.js";
import { all, button, el } from "../page/dom.js";
import { liveContent } from "../page/engine.js";
import { interlinear } from "../page/gloss.js";
import { countGuess, guessesText } from "../page/predictions.js";
import { say } from "../page/language.js";
import { copyOf, shape } from "../page/svg.js";
import { look } from "./panels.js";
import { paragraphs } from "./panels/parts.js";
import { followed, STOPS } from "./walk_stops.js";

/** @import { Facts } from "./walk_stops.js" */

const INVITATION = say("Walk through the model in ten stops");
const FIGURE_HEIGHT = 912;
const WINDOW_HEIGHT = 260; // of the figure on a phone

/** A copy of the figure that leads to the stops.
 *  @param {Element} figure @param {(stop: number) => void} show */
function picture_of(figure, show) {
  const picture = copyOf(figure);
  for (const link of all("a", picture)) link.removeAttribute("href");
  for (const [stop, { part }] of STOPS.entries()) {
    for (const element of all(`[data-part="${part}"]`, picture)) {
      element.classList.add("walk-part");
      element.addEventListener("click", () => show(stop));
    }
  }
  return picture;
}

class Walk {
  /** @type {Facts | null} of the sentence that was followed last */
  facts = null;
  stop = 0;
  /** @type {Record<number, string>} by stop: what was clicked, "" if the answer was shown */
  answered = {};
  title = el("h2", { id: "walk-title" });
  sentence = el("p", { className: "walk-whose" });
  text = el("div", { className: "walk-text" });
  count = el("span", { className: "walk-count" });
  mark = shape("rect", { class: "walk-mark" });
  back = button(say("◀ back"), () => this.show(this.stop - 1), { ariaLabel: say("Previous stop") });
  next = button("", () => this.goOn());
  start = button(INVITATION, () => this.open(), { id: "walk" });
  home = button(say("↩ back to the walk"), () => this.open(), { id: "walk-home", hidden: true });
  link = el("a", { textContent: say("Read the section"), onclick: () => this.leave(true) });

  constructor(/** @type {Element} */ figure) {
    const ariaLabel = say("Close the walk");
    const close = button(say("close"), () => this.leave(false), { ariaLabel });
    this.figure = figure;
    this.picture = picture_of(figure, (stop) => this.show(stop));
    this.picture.append(this.mark);
    this.dialog = el(
      "dialog",
      { className: "walk" },
      el("div", { className: "walk-picture" }, this.picture),
      el(
        "div",
        { className: "walk-side" },
        ...[this.title, this.sentence, this.text],
        el("p", {}, this.link),
        el("p", { className: "walk-buttons" }, this.back, this.count, this.next, close),
      ),
    );
    this.dialog.setAttribute("aria-labelledby", "walk-title");
    overThePage(this.dialog);
    this.dialog.addEventListener("keydown", ({ key, altKey, ctrlKey, metaKey }) => {
      if (altKey || ctrlKey || metaKey) return;
      if (key === "ArrowRight") this.goOn();
      if (key === "ArrowLeft") this.show(this.stop - 1);
    });
  }

  leave(/** @type {boolean} */ returns) {
    this.dialog.close();
    if (returns) this.home.hidden = false;
  }

  async open() {
    this.home.hidden = true;
    try {
      const { engine, sentence: first } = await liveContent();
      this.start.textContent = say("computing…");
      const before = this.facts?.sentence;
      /** @type {any} the figure, which page/text.js gives this property */
      const figure = document.querySelector(".explorer > div");
      const sentence = figure?.explored?.sentence().trim() || first;
      const model = /** @type {NonNullable<typeof engine>} */ (engine); // where there is a walk
      this.facts = followed(await look({ engine: model, sentence }));
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

  /** To the answer, then to the next stop, and from the last one to the text. */
  goOn() {
    if (!(this.stop in this.answered)) {
      this.answered[this.stop] = "";
      this.show(this.stop);
    } else if (this.stop < STOPS.length - 1) this.show(this.stop + 1);
    else {
      this.leave(false);
      document.getElementById("road")?.click();
    }
  }

  nameNext() {
    const isLast = this.stop === STOPS.length - 1;
    const way = isLast ? say("start reading ▶") : say("next ▶");
    this.next.textContent = this.stop in this.answered ? way : say("answer ▶");
  }

  show(/** @type {number} */ number) {
    if (!this.facts) return;
    if (number !== this.stop) this.dialog.scrollTop = 0;
    this.stop = Math.max(0, number);
    const { part, title, section } = STOPS[this.stop];
    this.title.textContent = `${this.stop + 1}. ${title}`;
    this.sentence.replaceChildren(...interlinear(this.facts.sentence));
    this.text.replaceChildren(...this.question(this.facts));
    const box = this.figure.querySelector(`[data-part="${part}"]`);
    this.link.href = section ? `#${section}` : (box?.getAttribute("href") ?? "");
    this.count.textContent = say("{stop} of {all}", { stop: this.stop + 1, all: STOPS.length });
    // a disabled button would lose the focus, and with it the keys
    if (this.stop === 0 && document.activeElement === this.back) this.next.focus();
    this.back.disabled = this.stop === 0;
    this.nameNext();
    this.point_at(part);
  }

  /** A question with its answers; what is told appears when one of them has been clicked. */
  question(/** @type {Facts} */ facts) {
    const { stop, answered } = this;
    const { ask, tell } = STOPS[stop];
    const [question, names, nameOrPlace] = ask(facts);
    const right = typeof nameOrPlace === "number" ? names[nameOrPlace] : nameOrPlace;
    const answers = el("div", { className: "walk-answers" });
    const told = el("div");
    const answer = (/** @type {string} */ choice) => {
      if (!(stop in answered)) countGuess(choice === right);
      answered[stop] = choice;
      this.nameNext();
      const results = names.map((name) => {
        const mark = name === right ? "✓" : name === choice ? "✗" : "";
        const className = { "✓": "right", "✗": "wrong", "": "" }[mark];
        return el("span", { className }, `${name} ${mark}`);
      });
      answers.replaceChildren(...results, el("small", {}, guessesText()));
      told.replaceChildren(...paragraphs(tell(facts)));
    };
    const choose = (/** @type {string} */ name) => {
      answer(name);
      this.next.focus();
    };
    answers.append(...names.map((name) => button(name, () => choose(name))));
    if (stop in answered) answer(answered[stop]);
    return [el("p", { className: "walk-question" }, question), answers, told];
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
  const place = document.getElementById("ways");
  const figure = document.querySelector(".arch-fig");
  if (!place || !figure) return;
  const walk = new Walk(figure);
  document.body.append(walk.home);
  place.append(walk.start);
}
