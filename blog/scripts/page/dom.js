// Elements of the page: made, and looked up.

/** An element with these properties and children.
 *  @template {keyof HTMLElementTagNameMap} Tag
 *  @param {Tag} tag
 *  @param {Record<string, unknown>} properties
 *  @param {...(Node | string)} children */
export function el(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

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
