// What moves on the page: charts, the live figures, predictions, contents, copies.

import { Figure } from "../views/figure.js";
import { startCharts } from "./charts.js";
import { startContents } from "./contents.js";
import { all, button, byId, el, onceNear, targetOf } from "./dom.js";
import { liveContent } from "./engine.js";
import { openOnPaper, say } from "./language.js";
import { remember } from "./memory.js";
import { startPredictions } from "./predictions.js";
import { yourSentence } from "./sentence.js";

const COPIED_MILLISECONDS = 1500;

export function startText() {
  startCharts();
  startLiveFigures();
  startPredictions();
  startPaper();
  startTheme();
  startContents();
  startReach();
  startOtherPages();
  document.getElementById("forget")?.addEventListener("click", forget);
  // not on a page that came without https
  if (navigator.clipboard) for (const block of all(".highlight")) addCopyButton(block);
}

/** The others are made ready when one of their places comes near the screen. */
function startLiveFigures() {
  const whenIdle = window.requestIdleCallback ?? setTimeout;
  const places = all(".explorer:not([data-number='1'])");
  onceNear(places, (place) => whenIdle(() => makeLive(place)), "300px");
}

/** The one on the first screen is made ready before the text below it has been read. */
export function startFirstFigure() {
  const place = document.querySelector(".explorer");
  if (place) makeLive(/** @type {HTMLElement} */ (place)).catch(() => {}); // who asks is told
}

async function makeLive(/** @type {HTMLElement} */ place) {
  const content = await liveContent();
  /** @type {any} the tests and the walk look for `explored`, what views/figure.js gives */
  const host = el("div");
  place.append(host);
  /** @param {{ sentence: string, switches: Switches }} state */
  const changed = ({ sentence, switches }) =>
    // not what it starts with
    host.explored && yourSentence.follow(sentence, { switches, from: host.explored });
  const first = place.dataset.number === "1";
  host.explored = new Figure(host, content, { first, changed });
  yourSentence.join(host.explored);
  place.classList.add("ready"); // hides the picture
}

/** Paper has open what is folded, but not the answers to exercises, in code and in words. */
function startPaper() {
  /** @param {Element | null | undefined} element */
  const isAnswer = (element) => Boolean(element?.matches("details:has(> .celltag_hide-cell)"));
  openOnPaper(all("main")[0], (fold) => {
    return isAnswer(fold) || isAnswer(fold.closest("section")?.nextElementSibling);
  });
}

/** Light or dark: as the system has it, until the reader chooses; paper is light (blog.css). */
function startTheme() {
  const { dataset } = document.documentElement;
  const system = matchMedia("(prefers-color-scheme: dark)");
  byId("theme").addEventListener("click", () => {
    const theme = dataset.theme ?? (system.matches ? "dark" : "light");
    dataset.theme = theme === "dark" ? "light" : "dark";
    try {
      localStorage.theme = dataset.theme; // the page's first script reads it
    } catch {
      // not kept
    }
  });
}

/** What scrolls sideways can be reached by keyboard. */
function startReach() {
  (window.requestIdleCallback ?? setTimeout)(() => reach(document));
  addEventListener("resize", () => reach(document));
  addEventListener("toggle", (event) => reach(targetOf(event)), { capture: true });
}

function reach(/** @type {ParentNode} */ within) {
  // in what is folded, once it is opened: to measure there, the browser would lay it out each time
  const boxes = all(
    ".katex-display, .picture, .table, .toy > div:not(.learn-row), .jp-OutputArea-output, main pre",
    within,
  ).filter((box) => !box.closest("details:not([open])"));
  const wide = boxes.map((box) => box.scrollWidth > box.clientWidth);
  // only now: a change between two measurements would have the page laid out again
  for (const [i, box] of boxes.entries()) {
    if (wide[i]) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

/** The list of other pages. */
function startOtherPages() {
  const pages = /** @type {HTMLDetailsElement | undefined} */ (all("header .pages")[0]);
  document.addEventListener("click", (event) => {
    if (!targetOf(event).closest(".pages")) pages?.removeAttribute("open");
  });
  pages?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    pages.open = false;
    all("summary", pages)[0].focus();
  });
}

function forget() {
  if (!confirm(say("Forget your answers, your code, your sentence and how far you have come?")))
    return;
  for (const name of ["guessed", "guesses", "road", "mine"]) remember(name, null);
  remember("sentence", null, "sessionStorage");
  location.reload();
}

/** @param {HTMLElement} block of code */
function addCopyButton(block) {
  const copier = button(say("copy"), onclick, { className: "copy" });
  async function onclick() {
    await navigator.clipboard.writeText(all("pre", block)[0].textContent ?? "");
    copier.textContent = say("copied");
    setTimeout(() => (copier.textContent = say("copy")), COPIED_MILLISECONDS);
  }
  block.append(copier);
}
