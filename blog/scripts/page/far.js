// Text that is far from the window waits: the browser remembers how high it is, and neither styles
// nor draws it (blog.css). Otherwise another theme would have every element styled anew.

import { all } from "./dom.js";

const SETTLED_MILLISECONDS = 150; // after the last change of the window's width
const BELOW_THE_BAR = 56; // pixels
const STEP = 20;

/** What is read, and how far below the window's edge it begins.
 *  @typedef {{ element: Element, top: number }} Place */

export function startFar() {
  const [text] = all("main");
  /** @type {Place | null} */
  let read = null;
  let resizing = 0; // a timer
  let width = innerWidth;
  function settle() {
    // a browser that opens no hidden text finds none that waits: Safari before version 26.2
    if (!("onbeforematch" in text)) return;
    // heights are remembered once they have been drawn; a page in the background isn't
    requestAnimationFrame(() => requestAnimationFrame(() => text.classList.add("laid-out")));
  }
  document.fonts.ready.then(settle);
  addEventListener("scroll", () => (read = resizing ? read : placeIn(text)), { passive: true });
  addEventListener("resize", () => {
    if (width === innerWidth) return;
    width = innerWidth;
    text.classList.remove("laid-out"); // all heights are others now
    clearTimeout(resizing);
    resizing = window.setTimeout(() => {
      resizing = 0;
      // a phone that was turned shows what it showed
      if (read) scrollBy(0, read.element.getBoundingClientRect().top - read.top);
      settle();
    }, SETTLED_MILLISECONDS);
  });
}

/** The first piece of text below the bar. @returns {Place | null} */
function placeIn(/** @type {HTMLElement} */ text) {
  const left = text.getBoundingClientRect().left + 3 * STEP;
  for (let y = BELOW_THE_BAR; y < innerHeight; y += STEP) {
    const element = document.elementFromPoint(left, y)?.closest("main *");
    const piece = element?.closest("p, li, tr, pre, h1, h2, h3, h4") ?? element;
    if (piece) return { element: piece, top: piece.getBoundingClientRect().top };
  }
  return null;
}
