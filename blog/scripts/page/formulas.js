// No formula is cut: one that is wider than its column becomes smaller.

const SMALLEST_EM = 0.65; // below it, letters couldn't be read, and the formula scrolls

function fit(within) {
  const boxes = [...within.querySelectorAll("main .katex-display")];
  boxes.forEach((box) => box.style.removeProperty("font-size"));
  // measured together: a change between two measurements would have the page laid out again
  const shares = boxes.map((box) => box.clientWidth / box.scrollWidth);
  boxes.forEach((box, i) => {
    if (shares[i] < 1) box.style.fontSize = `${Math.max(SMALLEST_EM, shares[i] - 0.01)}em`;
  });
}

export function fitFormulas() {
  document.fonts.ready.then(() => fit(document));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width !== innerWidth) fit(document);
    width = innerWidth;
  });
  // what is folded has no width before
  addEventListener("toggle", ({ target }) => target.open && fit(target), { capture: true });
}
