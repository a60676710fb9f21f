// The text of the page, section by section, read in short pieces so that the page stays quick; and
// what is searched: words as people type them, and how they are found in a text.

import { all, byId } from "./dom.js";

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
    const { title, text, code } = section;
    section.plain = { title: plainly(title), text: plainly(text), code: plainly(code) };
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

// --- what is searched ---

const HAN = "\\p{Script=Han}";

/** What people search for under another name than the text's. */
const SAME = [
  ["backpropagation", "backprop", "the chain rule", "反向传播", "链式法则"],
  ["kv cache", "key-value cache", "keeping keys and values", "kv 缓存", "键值缓存"],
  ["query key value", "queries, keys and values", "查询、键和值"],
  ["byte pair encoding", "byte-pair encoding", "字节对编码"],
  ["skip connection", "residual connection", "残差连接"],
  ["optimizer", "optimiser", "优化器"],
  ["regularization", "regularisation"],
  ["normalization", "normalisation"],
  ["tokenizer", "tokeniser"],
];

/** Letters as people type them. @param {string} text */
export const typed = (text) => text.normalize("NFC").toLowerCase().replaceAll("’", "'");

/** Chinese is written without spaces, and one beside its characters is a matter of taste. */
export const plainly = (/** @type {string} */ text) =>
  typed(text).replace(new RegExp(`(?<=${HAN}) | (?=${HAN})`, "gu"), "");

/** What finds some plain words in a text that has such spaces, or line breaks. */
export function pattern(/** @type {string} */ words) {
  const han = new RegExp(HAN, "u");
  const letters = [...words].map((letter, i, all) => {
    const beside = i > 0 && (han.test(all[i - 1]) || han.test(letter)) ? "\\s?" : "";
    const escaped = letter === " " ? "\\s" : letter.replace(/[.*+?^${}()|[\]\\/]/, "\\$&");
    return beside + escaped;
  });
  return new RegExp(letters.join(""), "gu");
}

/** @param {string} phrase plain; gives its other names, likewise */
const othersOf = (phrase) =>
  SAME.map((names) => names.map(plainly))
    .filter((names) => names.includes(phrase))
    .flat()
    .filter((name) => name !== phrase);

/** What was typed into the field. @param {string} typing */
export function queryOf(typing) {
  const words = typing.trim().split(/\s+/).map(plainly).filter(Boolean);
  const phrase = plainly(words.join(" "));
  // one character can be a word
  const enough = phrase.length > 1 || new RegExp(HAN, "u").test(phrase);
  return { words, phrase, others: othersOf(phrase), enough };
}

/** The sections that have all words or another name of them, the best first.
 *  @param {Section[]} sections @param {Query} query */
export function hitsOf(sections, { words, phrase, others, enough }) {
  if (!enough) return [];
  const hits = sections.flatMap((section) => {
    const { title, text, code } = section.plain;
    const hasAll = (/** @type {string} */ place) => words.every((word) => place.includes(word));
    const hasOther = (/** @type {string} */ place) => others.some((name) => place.includes(name));
    if (!hasAll(`${title} ${text} ${code}`) && !hasOther(`${title} ${text}`)) return [];
    // folded code counts for nothing
    const worth =
      4 * Number(hasAll(title) || hasOther(title)) +
      2 * Number(text.includes(phrase)) +
      Number(hasAll(text) || hasOther(text));
    return { section, worth };
  });
  return hits.sort((a, b) => b.worth - a.worth).map(({ section }) => section);
}

/** A piece of a section's text around the words, and where they are in it.
 *  @param {Section} section @param {Query} query */
export function excerpt({ text, code }, { words, phrase, others }) {
  const whole = text + code;
  const found = [phrase, ...others, ...words]
    .map((sought) => pattern(sought).exec(typed(whole)))
    .find(Boolean);
  const [from, length] = [found?.index ?? 0, found?.[0].length ?? 0];
  const [begin, end] = [Math.max(0, from - 60), from + length + 100];
  return {
    before: (begin ? "… " : "") + whole.slice(begin, from),
    match: whole.slice(from, from + length),
    after: whole.slice(from + length, end) + (end < whole.length ? " …" : ""),
  };
}
