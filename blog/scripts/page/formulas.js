// What is wider than its column. A formula becomes smaller, so that it isn't cut; what scrolls
// sideways can be reached by keyboard.

import { all, onceNear, targetOf } from "./dom.js";

const SMALLEST_EM = 0.65; // below it, letters couldn't be read, and the formula scrolls
const SCROLLING =
  ".katex-display, .picture, .table, .toy > div:not(.learn-row), .jp-OutputArea-output, pre";

/** Each chapter is measured when it comes near, and when what is folded in it is opened: elsewhere
 *  the browser would have to lay it out for this. */
export function startWidths() {
  /** @type {IntersectionObserver | undefined} */
  let coming;
  const start = () => {
    coming?.disconnect();
    coming = onceNear(all("main > *"), measure, "600px");
  };
  start();
  document.fonts.addEventListener("loadingdone", start); // each with the first formula that needs it
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) start();
    width = innerWidth;
  });
  addEventListener("toggle", (event) => measure(targetOf(event)), { capture: true });
}

function measure(/** @type {HTMLElement} */ within) {
  const boxes = all(SCROLLING, within).filter((box) => !box.closest("details:not([open])"));
  for (const box of boxes) box.style.removeProperty("font-size");
  // measured together: a change between two measurements would have the page laid out again
  const shares = boxes.map((box) => box.clientWidth / box.scrollWidth);
  for (const [i, box] of boxes.entries()) {
    const isFormula = box.matches(".katex-display");
    if (shares[i] < 1 && isFormula)
      box.style.fontSize = `${Math.max(SMALLEST_EM, shares[i] - 0.01)}em`;
    if (shares[i] < (isFormula ? SMALLEST_EM : 1)) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}
