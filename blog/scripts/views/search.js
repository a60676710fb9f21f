// Full-text search of the page, in a dialog.

import { overThePage } from "../page/dialog.js";
import { all, button, byId, el, targetOf } from "../page/dom.js";
import { say } from "../page/language.js";
import * as Index from "../page/search_index.js";

const MOST_HITS = 30;
const SCROLL_MILLISECONDS = [0, 200, 600, 1500]; // charts and panels above still grow

export function startSearch() {
  const search = new Search();
  byId("search").addEventListener("click", () => search.open());
  addEventListener("keydown", (event) => {
    const [element] = event.composedPath();
    const typing = element instanceof Element && element.matches("input, textarea, select");
    if (event.key !== "/" || event.ctrlKey || event.metaKey || typing) return;
    if (document.querySelector("dialog[open]")) return;
    event.preventDefault();
    search.open();
  });
}

class Search {
  constructor() {
    const words = say("Search the text");
    this.input = el("input", {
      ...{ type: "search", id: "query", placeholder: words, ariaLabel: words },
      autocomplete: "off",
      oninput: () => this.find(),
    });
    this.count = el("p", { role: "status", id: "found" });
    const onclick = (/** @type {MouseEvent} */ event) => this.follow(event);
    this.results = el("ol", { id: "results", onclick });
    const close = button(say("close"), () => this.dialog.close(), { id: "search-close" });
    this.dialog = el(
      "dialog",
      { className: "search", ariaLabel: say("Search") },
      el("p", { className: "search-line" }, this.input, close),
      this.count,
      this.results,
    );
    overThePage(this.dialog);
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    // or the next "/" may still be typed into it
    this.dialog.addEventListener("close", () => this.input.blur());
  }

  open() {
    this.dialog.show();
    this.input.select();
    Index.sectionsOfPage(); // is read while the reader types
  }

  async find() {
    const typing = this.input.value;
    const sections = await Index.sectionsOfPage();
    if (typing !== this.input.value) return; // later letters are looked for
    const query = Index.queryOf(typing);
    const hits = Index.hitsOf(sections, query);
    this.count.textContent = query.enough ? countOf(hits.length) : "";
    this.results.replaceChildren(...hits.slice(0, MOST_HITS).map((hit) => resultOf(hit, query)));
  }

  follow(/** @type {MouseEvent} */ event) {
    const link = targetOf(event).closest("a");
    if (!link || event.ctrlKey || event.metaKey) return;
    const sought = link.parentElement?.querySelector("mark")?.textContent;
    this.dialog.close();
    globalThis.CSS.highlights?.delete("found");
    if (!sought) return;
    event.preventDefault();
    location.hash = link.hash;
    reveal(decodeURIComponent(link.hash.slice(1)), Index.plainly(sought.replace(/\s+/g, " ")));
  }

  /** Enter opens the first result. @param {KeyboardEvent} event */
  key(event) {
    // letters of Chinese may be being chosen
    if (event.key !== "Enter" || event.isComposing || event.target !== this.input) return;
    event.preventDefault(); // or it would press the button that the focus goes back to
    all("a", this.results)[0]?.click();
  }
}

function countOf(/** @type {number} */ count) {
  if (count === 1) return say("1 section");
  const more = count > MOST_HITS;
  const values = { count, shown: MOST_HITS };
  return say(more ? "{count} sections, of which {shown} are listed" : "{count} sections", values);
}

function resultOf(/** @type {Section} */ section, /** @type {Query} */ query) {
  const { before, match, after } = Index.excerpt(section, query);
  const mark = match ? el("mark", { textContent: match }) : "";
  const link = el("a", { href: `#${section.id}`, textContent: section.title });
  return el("li", {}, link, el("span", {}, before, mark, after));
}

/** Where a section has what was sought, first of all in what is open: in the middle of the window,
 *  and marked. Otherwise the heading will do.
 *  @param {string} id of the heading @param {string} sought */
function reveal(id, sought) {
  const texts = textsBelow(byId(id));
  const whole = Index.typed(texts.map(({ node }) => node.data).join(""));
  /** @param {number} place in the whole text */
  const at = (place) => texts.findLast(({ start }) => start <= place) ?? texts[0];
  const matches = [...whole.matchAll(Index.pattern(sought))];
  const match = matches.find(({ index }) => !at(index).folded) ?? matches[0];
  if (!match) return;
  const end = match.index + match[0].length - 1;
  const [first, last] = [at(match.index), at(end)];
  const range = new Range();
  range.setStart(first.node, match.index - first.start);
  range.setEnd(last.node, end - last.start + 1);
  globalThis.CSS.highlights?.set("found", new Highlight(range));
  show(/** @type {HTMLElement} */ (first.node.parentElement));
}

function show(/** @type {HTMLElement} */ place) {
  const folds = /** @type {HTMLDetailsElement[]} */ (all("details"));
  for (const fold of folds) fold.open ||= fold.contains(place);
  const timers = SCROLL_MILLISECONDS.map((wait) =>
    setTimeout(() => place.scrollIntoView({ block: "center" }), wait),
  );
  for (const name of ["wheel", "touchstart", "pointerdown", "keydown"])
    addEventListener(name, () => timers.forEach(clearTimeout), { once: true, capture: true });
}

/** The texts between a heading and the next one, and where each starts in all of them. */
function textsBelow(/** @type {HTMLElement} */ heading) {
  const content = byId("content");
  const headings = all(Index.HEADINGS, content);
  const next = headings[headings.indexOf(heading) + 1];
  const walker = document.createTreeWalker(content, NodeFilter.SHOW_TEXT);
  walker.currentNode = heading;
  const texts = [];
  let start = 0;
  for (;;) {
    const node = /** @type {Text | null} */ (walker.nextNode());
    if (!node || next?.contains(node)) return texts;
    const parent = /** @type {HTMLElement} */ (node.parentElement);
    if (heading.contains(node) || parent.closest(".anchor, .katex, script, style, svg, .copy"))
      continue;
    texts.push({ node, start, folded: Boolean(parent.closest("details:not([open])")) });
    start += node.length;
  }
}
