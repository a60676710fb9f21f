// Figure 1 in the margin. The boxes of the section that is being read are lit, and below the figure
// stands what one of them makes of the sentence that the page follows. A click on a box leads to
// its section. Where there is no margin, a button in the page's bar opens it.

import { all, byId, el, startDrawer } from "../page/dom.js";
import { yourSentence } from "../page/sentence.js";
import { copyOf } from "../page/svg.js";
import * as Panels from "./panels.js";
import { followed, STOPS } from "./walk_stops.js";

/** Which boxes are lit, and whose numbers are shown. @typedef {[RegExp, string | null]} Lit */

// Of sections that no box leads to, or that more of them belong to. No numbers where the text is
// about to ask for them.
/** @type {Record<string, Lit>} */
const LIT = {
  "tokens-and-ids": [/^inputs|^outputs/, "inputs"],
  "attention-section-3-2": [/attention/, null],
  "multi-head-attention-section-3-2-2": [/attention/, "encoder attention"],
  "the-encoder-section-3-1": [/^encoder|memory/, "memory"],
  "the-decoder-writes-sections-3-1-and-3-2-3": [/^decoder|cross/, "decoder attention"],
  "layers-of-three-sublayers": [/cross/, null],
  "the-model-assembled": [/./, "softmax"],
  "the-loss": [/softmax|probabilities/, "softmax"],
  "keeping-keys-and-values": [/decoder attention|cross/, "decoder attention"],
  "beam-search-section-6-1": [/probabilities/, "softmax"],
  "what-the-heads-of-the-encoder-do-figures-3-to-5": [/encoder attention/, "encoder attention"],
  "does-attention-find-the-right-word": [/cross/, "cross-attention"],
};

export function startPlace() {
  const figure = document.querySelector(".arch-fig");
  if (figure && document.getElementById("place")) new Place(figure).start();
}

class Place {
  /** @param {Element} figure Figure 1 in the text */
  constructor(figure) {
    this.aside = byId("place");
    this.picture = smallCopy(figure);
    this.boxes = all("[data-part]", this.picture);
    // blog.css hides the small pictures at the headings, but not from who hears what waits
    for (const small of all(".here")) small.ariaHidden = "true";
    this.lines = el("div", { className: "place-numbers" });
    this.aside.append(this.picture, this.lines);
    this.headings = headingsByLink();
    /** @type {string | null} the box whose numbers are shown */
    this.box = null;
    this.turn = 0;
  }

  start() {
    Panels.alsoFollow(() => this.tell());
    // page/contents.js marks there what is being read
    const marks = new MutationObserver(() => this.light());
    marks.observe(byId("toc"), { subtree: true, attributeFilter: ["aria-current"] });
    this.light();
    startDrawer(byId("where"), this.aside, () => this.tell());
  }

  light() {
    const link = document.querySelector("#toc a[aria-current]");
    const ids = this.headings.get(link) ?? [];
    const [pattern, box] = litAt(ids, this.boxes);
    for (const part of this.boxes)
      part.classList.toggle("lit", pattern.test(part.dataset.part ?? ""));
    this.box = box;
    this.tell();
  }

  /** Say what the box makes of the sentence, if anybody sees it. */
  async tell() {
    const turn = (this.turn += 1);
    if (this.aside.getClientRects().length === 0) return;
    try {
      if (this.box) await yourSentence.begin();
      const facts = await Panels.facts();
      if (!facts || turn !== this.turn) return;
      fillIn(this.picture, facts);
      this.lines.replaceChildren(...numbersOf(this.box ?? "", followed(facts)));
    } catch (error) {
      this.lines.replaceChildren(error instanceof Error ? error.message : "");
    }
  }
}

/** Boxes that have the numbers of another one. @type {Record<string, string>} */
const SAME = { outputs: "decoder attention", linear: "softmax", probabilities: "softmax" };

/** What the walk shows at a box, without its sentences.
 *  @param {string} box @param {import("./walk_stops.js").Facts} facts */
function numbersOf(box, facts) {
  const stop = STOPS.find(({ part }) => part === (SAME[box] ?? box));
  if (!stop) return [];
  const numbers = stop.tell(facts).filter((piece) => typeof piece !== "string");
  return [el("strong", {}, stop.whose?.(facts) ?? stop.title), ...numbers];
}

/** A copy of the figure, without what can't be read in this size. The contents lead to the same
 *  sections. */
function smallCopy(/** @type {Element} */ figure) {
  const picture = copyOf(figure);
  for (const part of all(".arch-key", picture)) part.remove();
  picture.setAttribute("class", "place-figure");
  picture.removeAttribute("style");
  picture.setAttribute("viewBox", "0 6 540 900");
  for (const link of all("a", picture)) link.tabIndex = -1;
  for (const letter of all("tspan.arch-i", picture))
    letter.dataset.letter = letter.textContent ?? "";
  return picture;
}

/** The sentence's sizes in the place of the paper's letters.
 *  @param {Element} picture @param {any} facts as views/panels.js has them */
function fillIn(picture, { src, predicted, config }) {
  /** @type {Record<string, number>} */
  const sizes = { B: 1, S: src.length, T: predicted.length, N: config.N, d: config.d_model };
  for (const letter of all("[data-letter]", picture))
    letter.textContent = String(sizes[letter.dataset.letter ?? ""]);
  for (const index of all(".arch-sub", picture)) index.textContent = ""; // d_model is one number
}

/** By link of the contents: the heading's id, and that of the section that it is in. */
function headingsByLink() {
  /** @type {Map<Element | null, string[]>} */
  const ids = new Map();
  let section = "";
  for (const link of /** @type {HTMLAnchorElement[]} */ (all("#toc a"))) {
    const id = decodeURIComponent(link.hash.slice(1));
    if (!link.closest(".level-3")) section = id;
    ids.set(link, [id, section]);
  }
  return ids;
}

/** What is lit at the first of some headings that has anything. @returns {Lit} */
function litAt(/** @type {string[]} */ ids, /** @type {HTMLElement[]} */ boxes) {
  for (const id of ids) {
    if (LIT[id]) return LIT[id];
    const names = boxes
      .filter((part) => part.getAttribute("href") === `#${id}`)
      .map((part) => part.dataset.part ?? "");
    if (names.length) return [new RegExp(`^(${names.join("|")})$`), names[0]];
  }
  return [/^$/, null];
}
