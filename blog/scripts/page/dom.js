// Elements of the page: made, and looked up.

/** An element with these properties and children.
 *  @template {keyof HTMLElementTagNameMap} Tag @param {Tag} tag
 *  @param {Record<string, unknown>} properties @param {...(Node | string)} children */
export function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** A button, and what a click on it does.
 *  @param {string} textContent @param {(event: MouseEvent) => void} onclick
 *  @param {Partial<HTMLButtonElement>} properties */
export const button = (textContent, onclick, properties = {}) =>
  el("button", { type: "button", textContent, onclick, ...properties });

/** The element that every page has under this id. @param {string} id */
export const byId = (id) => /** @type {HTMLElement} */ (document.getElementById(id));

/** All elements that a selector matches.
 *  @param {string} selector @param {ParentNode} within @returns {HTMLElement[]} */
export const all = (selector, within = document) =>
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
 *  @param {Iterable<Element>} elements @param {(isNear: boolean, element: HTMLElement) => void} told
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
