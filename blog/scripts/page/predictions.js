// Predict, then look: one of the choices before a folded answer, which begins with the number of
// the right one. What answers it waits until one has chosen: the cells that follow, what is said of
// them, and what else is then only shown.

import { all, button, el } from "./dom.js";
import { say } from "./language.js";
import { recall, remember } from "./memory.js";

export function startPredictions() {
  for (const answer of /** @type {HTMLDetailsElement[]} */ (all("details.answer"))) {
    const list = answer.previousElementSibling;
    const right = parseInt(all("strong", answer)[0]?.textContent ?? "", 10);
    if (!(list instanceof HTMLOListElement) || !right) continue;
    new Prediction(answer, list, right - 1);
    const shown = whatAnswers(answer);
    if (shown.length) foldUntil(answer, shown);
  }
}

let guesses = recall("guesses", { right: 0, all: 0 });

/** How often a reader has guessed right, over the whole page. @param {boolean} isRight */
export function countGuess(isRight) {
  guesses = { right: guesses.right + Number(isRight), all: guesses.all + 1 };
  remember("guesses", guesses);
}

/** What is said of them; nothing before the first. */
export const guessesText = () =>
  guesses.all ? say("{right} of {all} guesses right", guesses) : "";

/** The choice at each question, so that one who comes back sees what he has been through.
 *  @type {Record<string, number>} */
const guessed = recall("guessed", {});

class Prediction {
  /** @param {HTMLDetailsElement} answer @param {HTMLOListElement} list of the choices
   *  @param {number} right from 0 */
  constructor(answer, list, right) {
    this.answer = answer;
    this.right = right;
    this.question = list.previousElementSibling?.textContent ?? "";
    this.count = el("small");
    const items = /** @type {HTMLElement[]} */ ([...list.children]);
    this.buttons = items.map((item, i) => this.choice(item, i));
    list.classList.add("choices");
    answer.before(this.count);
    if (this.question in guessed) this.settle(guessed[this.question]);
  }

  choice(/** @type {HTMLElement} */ item, /** @type {number} */ i) {
    const choice = item.textContent?.trim() ?? "";
    const ariaLabel = say("I say: {choice}", { choice });
    const mark = button("○", () => this.guess(i), { ariaLabel });
    item.prepend(mark, " ");
    item.addEventListener("click", ({ target }) => {
      if (target instanceof Element && !target.closest("a, button")) mark.click();
    });
    return mark;
  }

  guess(/** @type {number} */ i) {
    countGuess(i === this.right);
    guessed[this.question] = i;
    remember("guessed", guessed);
    const focused = document.activeElement === this.buttons[i]; // a button that is disabled loses it
    this.settle(i);
    if (focused) all("summary", this.answer)[0].focus({ preventScroll: true });
  }

  settle(/** @type {number} */ choice) {
    this.answer.open = true;
    this.count.textContent = guessesText();
    for (const [i, button] of this.buttons.entries()) {
      button.disabled = true;
      button.classList.toggle("right", i === this.right);
      button.classList.toggle("wrong", i === choice && i !== this.right);
      if (i === this.right) button.textContent = "✓";
      else if (i === choice) button.textContent = "✗";
    }
  }
}

/** The cells that answer a question at the end of its section, and what is said of them. */
function whatAnswers(/** @type {HTMLElement} */ answer) {
  const section = /** @type {HTMLElement} */ (answer.closest("section"));
  const isLast = [section, section.lastElementChild].includes(answer.parentElement);
  if (answer.nextElementSibling || !isLast) return [];
  const siblings = all(":scope > *", section.parentElement ?? section);
  const following = siblings.slice(siblings.indexOf(section) + 1);
  const cells = firstOf(following, (element) => !element.matches("section"));
  if (!cells.some((cell) => cell.matches(".jp-CodeCell"))) return [];
  const [words, ...others] = following.slice(cells.length);
  if (!words || words.querySelector("h1, h2, h3, .choices, .answer")) return cells;
  // not a cell whose code is the next step
  const shown = (/** @type {HTMLElement} */ cell) =>
    cell.matches(".celltag_hide-input, div:not(.jp-Cell)");
  return [...cells, words, ...firstOf(others, shown)];
}

/** Those before the first that doesn't fit.
 *  @param {HTMLElement[]} elements @param {(element: HTMLElement) => boolean} fits */
function firstOf(elements, fits) {
  const end = elements.findIndex((element) => !fits(element));
  return end < 0 ? elements : elements.slice(0, end);
}

function foldUntil(/** @type {HTMLDetailsElement} */ answer, /** @type {HTMLElement[]} */ shown) {
  const textContent = say("What comes out opens here as soon as you've chosen");
  const open = matchMedia("print").matches;
  const without = el("u", { textContent: say("show it without a guess") });
  const summary = el("summary", {}, textContent, " · ", without);
  const fold = el("details", { className: "awaiting", open }, summary);
  answer.closest("section")?.after(fold);
  fold.append(...shown);
  answer.addEventListener("toggle", () => {
    fold.open ||= answer.open;
  });
}
