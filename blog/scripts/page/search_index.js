// The text of the page, section by section, read in short pieces so that the page stays quick.

import { all, byId } from "./dom.js";
import { plainOf } from "./search_text.js";

export const HEADINGS = "h1, h2, h3, h4";
const NOTHING = { title: "", text: "", code: "" };
const PIECE_MILLISECONDS = 12;

/** @type {Promise<Section[]> | undefined} */
let sections;
/** All sections, read once. */
export const sectionsOfPage = () => (sections ??= readSections());

async function readSections() {
  /** @type {Section[]} */
  const read = [];
  const breath = breaths();
  for (const element of all(`:is(${HEADINGS}), p, li, td, pre`, byId("content"))) {
    await breath();
    if (element.matches(HEADINGS))
      read.push({ id: element.id, title: wordsOf(element), text: "", code: "", plain: NOTHING });
    else if (read.length && !element.parentElement?.closest("li, td, pre")) {
      const section = read[read.length - 1];
      section[element.closest("details.code") ? "code" : "text"] += ` ${wordsOf(element)}`;
    }
  }
  for (const section of read) {
    await breath();
    section.plain = plainOf(section);
  }
  return read;
}

/** Lets the browser answer the reader whenever a piece of work has taken long enough. */
function breaths() {
  let began = performance.now();
  return async () => {
    if (performance.now() - began < PIECE_MILLISECONDS) return;
    await new Promise((resolve) => setTimeout(resolve));
    began = performance.now();
  };
}

/** What a reader sees of an element: a formula once, no anchors, no code of figures. */
export function wordsOf(/** @type {HTMLElement} */ element) {
  const copy = /** @type {HTMLElement} */ (element.cloneNode(true));
  const unseen = ".anchor, .spoken, .katex-html, annotation, script, style, svg, .copy";
  for (const part of all(unseen, copy)) part.remove();
  for (const formula of all("msub, msup, msubsup, munder, munderover, mfrac, msqrt", copy))
    sayInALine(formula);
  return (copy.textContent ?? "").replace(/\s+/g, " ").trim();
}

/** What is drawn below or above, with signs between. @param {HTMLElement} formula MathML */
function sayInALine(formula) {
  const [first, second, third] = formula.children;
  if (formula.localName === "msqrt") formula.prepend("√");
  else if (formula.localName === "mfrac") {
    for (const side of [first, second])
      if (all("mo", side).some((sign) => /[-+−]/.test(sign.textContent ?? ""))) {
        side.prepend("(");
        side.append(")");
      }
    second.before("/");
  } else {
    second.before(formula.localName === "msup" ? "^" : "_");
    third?.before("^");
  }
}
