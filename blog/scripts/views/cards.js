// Cards that show what a link leads to: a term, a citation, an equation, a section.

import { all, byId, el, targetOf } from "../page/dom.js";
import { HEADINGS, wordsOf } from "../page/search_index.js";

const SHOW_MILLISECONDS = 250;
const HIDE_MILLISECONDS = 200; // so that the pointer can move onto the card
const MARGIN = 12; // pixels
const GAP = 8;

export function startCards() {
  const card = new Card();
  document.body.append(card.element);
  document.addEventListener("pointerover", (event) => {
    const link = linkOf(event);
    if (link && event.pointerType !== "touch" && link !== card.link)
      card.later(() => card.show(link), SHOW_MILLISECONDS);
  });
  const leave = () =>
    card.later(() => {
      if (!card.element.matches(":hover")) card.hide();
    }, HIDE_MILLISECONDS);
  document.addEventListener("pointerout", (event) => {
    if (linkOf(event) && event.pointerType !== "touch") leave();
  });
  card.element.addEventListener("pointerleave", leave);
  document.addEventListener("focusin", (event) => {
    const link = linkOf(event);
    if (link?.matches(":focus-visible")) card.show(link);
  });
  document.addEventListener("focusout", (event) => {
    if (linkOf(event)) card.hide();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") card.hide();
  });
  document.addEventListener("click", (event) => card.click(event));
}

/** A link within the page, also one in a figure, whose address is no text. @param {Event} event */
const linkOf = (event) =>
  targetOf(event).closest?.("main a[href^='#']:not(.anchor, .road-next a)") ?? null;

class Card {
  element = el("div", { className: "card", id: "card", role: "tooltip", hidden: true });
  timer = 0;
  /** The link that it shows something of. @type {Element | null} */
  link = null;

  later(/** @type {() => void} */ act, /** @type {number} */ milliseconds) {
    clearTimeout(this.timer);
    this.timer = window.setTimeout(act, milliseconds);
  }

  hide() {
    clearTimeout(this.timer);
    this.element.hidden = true;
    this.link?.removeAttribute("aria-describedby");
    this.link = null;
  }

  show(/** @type {Element} */ link) {
    const id = decodeURIComponent(link.getAttribute("href")?.slice(1) ?? "");
    const target = document.getElementById(id);
    if (!target) return;
    this.hide();
    const { element } = this;
    element.replaceChildren(...contentsOf(target));
    for (const part of all(".here", element)) part.remove();
    for (const part of all("[id]", element)) part.removeAttribute("id");
    element.hidden = false;
    this.placeBy(link.getBoundingClientRect());
    link.setAttribute("aria-describedby", "card");
    this.link = link;
  }

  /** Below the link, or above it if there is no room. @param {DOMRect} box */
  placeBy(box) {
    const { element } = this;
    const width = Math.min(420, innerWidth - 2 * MARGIN);
    const left = Math.max(MARGIN, Math.min(box.left, innerWidth - width - MARGIN));
    element.style.width = `${width}px`;
    element.style.left = `${left + scrollX}px`;
    const height = element.offsetHeight + 2 * GAP;
    const below = box.bottom + height < innerHeight || box.top < height;
    const top = below ? box.bottom + GAP : box.top - element.offsetHeight - GAP;
    element.style.top = `${top + scrollY}px`;
  }

  /** A finger opens the card first; a second tap follows the link. @param {MouseEvent} event */
  click(event) {
    const link = linkOf(event);
    const hasCard = link?.matches(".cite, .term, .symbol, .equation-link, .katex a");
    if (link && link !== this.link && hasCard && matchMedia("(hover: none)").matches) {
      event.preventDefault();
      this.show(link);
    } else if (!this.element.contains(targetOf(event))) this.hide();
  }
}

/** What stands at a target: a reference, the meaning of a term, an equation, or a heading with its
 *  first paragraph. @param {HTMLElement} target */
function contentsOf(target) {
  if (target instanceof HTMLTableRowElement) return meaningOf(target);
  if (!target.matches(HEADINGS)) return [target.cloneNode(true)];
  const title = el("strong", { textContent: wordsOf(target) });
  const after = all(`p, ${HEADINGS}`, byId("content")).find(
    (element) => target.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING,
  );
  return after?.matches("p") ? [title, after.cloneNode(true)] : [title];
}

/** A row of the legend, which may have an example: the size in the base model. */
function meaningOf(/** @type {HTMLTableRowElement} */ row) {
  const [name, meaning, example] = row.cells;
  const title = el("strong", { textContent: wordsOf(name) });
  const pieces = [title, el("p", {}, ...meaning.cloneNode(true).childNodes)];
  const column = example && row.closest("table")?.tHead?.rows[0].cells[2];
  const [heading, size] = [column, example].map((cell) => (cell ? wordsOf(cell) : ""));
  if (heading && size) pieces.push(el("p", { textContent: `${heading}: ${size}` }));
  return pieces;
}
