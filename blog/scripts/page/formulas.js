// No formula is cut: one that is wider than its column becomes smaller.

import { all, targetOf } from "./dom.js";

const SMALLEST_EM = 0.65; // below it, letters couldn't be read, and the formula scrolls

export function fitFormulas() {
  document.fonts.ready.then(() => fit(document));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) fit(document);
    width = innerWidth;
  });
  // what is folded has no width before
  addEventListener("toggle", (event) => fit(targetOf(event)), { capture: true });
}

function fit(/** @type {ParentNode} */ within) {
  const boxes = all("main .katex-display", within);
  for (const box of boxes) box.style.removeProperty("font-size");
  // measured together: a change between two measurements would have the page laid out again
  const shares = boxes.map((box) => box.clientWidth / box.scrollWidth);
  for (const [i, box] of boxes.entries())
    if (shares[i] < 1) box.style.fontSize = `${Math.max(SMALLEST_EM, shares[i] - 0.01)}em`;
}
