// Elements, and what figures and panels write into them in the same way.

const SVG = "http://www.w3.org/2000/svg";

export function setAll(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
}

/** An element. Strings become text nodes, so that no token is ever read as HTML. */
export function el(tag, attributes = {}, ...children) {
  const node = setAll(document.createElement(tag), attributes);
  node.append(...children);
  return node;
}

export function svg(tag, attributes = {}, ...children) {
  const node = setAll(document.createElementNS(SVG, tag), attributes);
  node.append(...children);
  return node;
}

/** A token in quotation marks; <bdi> keeps one from right to left from reordering its neighbours. */
export const quoted = (text) => el("span", {}, "“", el("bdi", {}, text), "”");

export const percent = (p) => (100 * p).toFixed(1) + "%";

/** How dark a weight is drawn: the square root makes 2% visible beside 90%. All maps have the same
 *  scale, so they can be compared. */
export const opacity = (weight) => Math.sqrt(Math.max(0, Math.min(1, weight)));

/** One tab stop for a grid of elements that match; the arrow keys move inside it. */
export function rove(box, selector, countColumns) {
  box.addEventListener("keydown", (event) => {
    const all = [...box.querySelectorAll(selector)];
    const at = all.indexOf(box.getRootNode().activeElement);
    const to = destination(event.key, at, countColumns(), all.length, box.dir === "rtl");
    // Alt and an arrow is "back" in the browser
    if (at < 0 || to === undefined || event.altKey) return;
    event.preventDefault();
    all[to]?.focus({ preventScroll: true });
    // focus() alone may ignore the padding
    all[to]?.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  box.addEventListener("focusin", (event) => {
    for (const old of box.querySelectorAll("[tabindex='0']")) old.tabIndex = -1;
    event.target.tabIndex = 0;
  });
}

function destination(key, at, columns, count, leftwards) {
  const first = columns > 1 ? at - (at % columns) : 0;
  const last = columns > 1 ? first + columns - 1 : count - 1;
  const forward = leftwards ? -1 : 1;
  const beside = (places) => Math.max(first, Math.min(last, at + places));
  return {
    ArrowLeft: beside(-forward),
    ArrowRight: beside(forward),
    ArrowUp: at - columns,
    ArrowDown: at + columns,
    Home: first,
    End: last,
  }[key];
}
