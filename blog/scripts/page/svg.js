// Elements of pictures.

/** An SVG element with attributes and content.
 *  @template {keyof SVGElementTagNameMap} Kind @param {Kind} kind
 *  @param {Record<string, string | number>} attributes @param {...(Node | string)} content
 *  @returns {SVGElementTagNameMap[Kind]} */
export function shape(kind, attributes, ...content) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", kind);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, `${value}`);
  element.append(...content);
  return element;
}

/** A picture that scrolls on a phone: its letters of 11 px would become too small there.
 *  @param {number} width @param {number} height @param {string} label what a screen reader says
 *  @param {...Node} content */
export function picture(width, height, label, ...content) {
  const viewBox = `0 0 ${width} ${height}`;
  const style = `min-width: ${0.9 * width}px`;
  const attributes = { viewBox, width, height, style, role: "img", "aria-label": label };
  return shape("svg", attributes, ...content);
}

/** @param {number} x @param {number} y @param {number} width @param {number} height
 *  @param {string} fill @param {string} stroke */
export const box = (x, y, width, height, fill, stroke = "none") =>
  shape("rect", { x, y, width, height, fill, stroke });

/** A text, in the middle of which x is.
 *  @param {number} x @param {number} y @param {string} text
 *  @param {Record<string, string | number>} attributes */
export const words = (x, y, text, attributes = {}) =>
  shape(
    "text",
    { x, y, "font-size": 11, "text-anchor": "middle", fill: "var(--muted)", ...attributes },
    text,
  );

/** A curve without points yet.
 *  @param {number} width @param {string} dashes @param {string} colour a name of base.css */
export const curve = (width, dashes, colour) =>
  shape("polyline", {
    fill: "none",
    stroke: `var(--${colour})`,
    "stroke-width": width,
    "stroke-dasharray": dashes,
  });

/** @param {SVGPolylineElement} line @param {[number, number][]} points */
export function put(line, points) {
  const pairs = points.map((point) => point.map((number) => number.toFixed(1)).join(","));
  line.setAttribute("points", pairs.join(" "));
}

/** A copy of a drawing for the eye alone, in the size that its place gives it. */
export function copyOf(/** @type {Element} */ drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  for (const part of copy.querySelectorAll("title, desc, style, defs")) part.remove();
  for (const name of ["aria-labelledby", "width", "height"]) copy.removeAttribute(name);
  copy.setAttribute("aria-hidden", "true");
  return copy;
}
