// Elements of the page: made, and looked up.

/** An element with these properties or, where it has none of a name, attributes. Strings become
 *  text nodes, so that no token is ever read as HTML.
 *  @template {keyof HTMLElementTagNameMap} Tag @param {Tag} tag
 *  @param {Record<string, unknown>} properties @param {...(Node | string)} children */
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

export const percent = (/** @type {number} */ p, digits = 1) => `${(100 * p).toFixed(digits)}%`;

/** Rows of a table. @param {Node[][]} rows of cells */
export const rowsOf = (rows) => rows.map((cells) => el("tr", {}, ...cells));

/** Head and body of a table. @param {Node[]} head @param {Node[][]} body */
export const tableOf = (head, body) => [
  el("thead", {}, ...rowsOf([head])),
  el("tbody", {}, ...rowsOf(body)),
];

/** A button, and what a click on it does.
 *  @param {string} textContent @param {(event: MouseEvent) => void} onclick
 *  @param {Partial<HTMLButtonElement>} properties */
export const button = (textContent, onclick, properties = {}) =>
  el("button", { type: "button", textContent, onclick, ...properties });

/** The element that every page has under this id. @param {string} id */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** All elements that a selector matches. @returns {HTMLElement[]} */
export const all = (/** @type {string} */ selector, /** @type {ParentNode} */ within = document) =>
  [...within.querySelectorAll(selector)].map(asHtml);

const asHtml = (/** @type {Element} */ element) => /** @type {HTMLElement} */ (element);

/** What an event happened to. @param {Event} event */
export const targetOf = (event) => /** @type {HTMLElement} */ (event.target);

/** A button opens what lies over the page; Escape, a click elsewhere or on a link in it close it.
 *  @param {HTMLElement} opener @param {HTMLElement} drawer @param {() => void} opened */
export function startDrawer(opener, drawer, opened = () => {}) {
  const isOpen = () => drawer.classList.contains("open");
  const show = (/** @type {boolean} */ open) => {
    drawer.classList.toggle("open", open);
    opener.ariaExpanded = String(open);
    if (open) opened();
  };
  opener.addEventListener("click", () => show(!isOpen()));
  document.addEventListener("click", (event) => {
    const target = targetOf(event);
    const inside = drawer.contains(target) || opener.contains(target);
    if (!inside || (drawer.contains(target) && target.closest("a"))) show(false);
  });
  addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !isOpen()) return;
    show(false);
    opener.focus();
  });
}

/** Is told of elements that come into the window, or near it, and of those that leave.
 *  @param {Iterable<Element>} elements
 *  @param {(isNear: boolean, element: HTMLElement) => void} told
 *  @param {string} rootMargin what is near */
export function watch(elements, told, rootMargin = "0px") {
  const observer = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) told(isIntersecting, asHtml(target));
    },
    { rootMargin },
  );
  for (const element of elements) observer.observe(element);
  return observer;
}

/** Is told once of each element that comes near.
 *  @param {Iterable<Element>} elements @param {(element: HTMLElement) => void} told
 *  @param {string} rootMargin */
export function onceNear(elements, told, rootMargin) {
  const tellOnce = (/** @type {boolean} */ isNear, /** @type {HTMLElement} */ element) => {
    if (!isNear) return;
    observer.unobserve(element);
    told(element);
  };
  const observer = watch(elements, tellOnce, rootMargin);
  return observer;
}
