// Elements of the page: made, and looked up.

/** An element with these properties or, where it has none of a name, attributes. Strings become
 *  text nodes, so that no token is ever read as HTML.
 *  @template {keyof HTMLElementTagNameMap} Tag
 *  @param {Tag} tag
 *  @param {Record<string, unknown>} properties
 *  @param {...(Node | string)} children */
export function el(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties))
    if (name in element) Object.assign(element, { [name]: value });
    else element.setAttribute(name, `${value}`);
  element.append(...children);
  return element;
}

/** A picture of pixels, each with red, green, blue and alpha.
 *  @param {number} width @param {number[]} numbers @param {Record<string, unknown>} properties */
export function pixels(width, numbers, properties = {}) {
  const image = new ImageData(new Uint8ClampedArray(numbers), width);
  const canvas = el("canvas", { width, height: image.height, ...properties });
  canvas.getContext("2d")?.putImageData(image, 0, 0);
  return canvas;
}

/** A token in quotation marks; <bdi> keeps one from right to left from moving its neighbours.
 *  @param {string} text */
export const quoted = (text) => el("span", {}, "“", el("bdi", {}, text), "”");

/** @param {number} p */
export const percent = (p) => `${(100 * p).toFixed(1)}%`;

/** Head and body of a table; each row is its cells.
 *  @param {Node[]} head @param {Node[][]} body */
export const rowsOf = (head, body) => [
  el("thead", {}, el("tr", {}, ...head)),
  el("tbody", {}, ...body.map((cells) => el("tr", {}, ...cells))),
];

/** The element that every page has under this id. @param {string} id */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** All elements that a selector matches.
 *  @param {string} selector
 *  @param {ParentNode} within
 *  @returns {HTMLElement[]} */
export const all = (selector, within = document) =>
  [...within.querySelectorAll(selector)].map(asHtml);

/** @param {Element} element */
const asHtml = (element) => /** @type {HTMLElement} */ (element);

/** What an event happened to. @param {Event} event */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);
