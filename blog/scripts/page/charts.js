// Charts are drawings that blog/charts.py made, in the colours of both themes. Each has hundreds of
// elements, so it is in the page only while it is near the screen.

import { unpack } from "../model/tensors.js";
import { all, targetOf, watch } from "./dom.js";
import { box, shape } from "./svg.js";

/** Figures that are near. @type {Set<HTMLElement>} */
const near = new Set();

export function startCharts() {
  watch(all(".chart"), (isNear, figure) => (isNear ? show(figure) : drop(figure)), "600px");
  document.addEventListener("pointerover", (event) => {
    const target = targetOf(event);
    /** @type {HTMLElement | null} */
    const mark = target.closest(".chart [data-label]");
    if (mark && !mark.firstChild) mark.append(shape("title", {}, mark.dataset.label ?? ""));
    /** @type {SVGGElement | null} */
    const map = target.closest(".chart [data-labels]");
    if (map && !target.closest("rect")) showCell(map, event);
  });
}

/** The cells of a map are a path for each colour; the one under the pointer gets an element of its
 *  own, whose title the browser shows. @param {SVGGElement} map @param {PointerEvent} pointer */
function showCell(map, { clientX, clientY }) {
  const labels = map.dataset.labels?.split("\n") ?? [];
  const columns = Number(map.dataset.columns);
  const size = map.getBBox();
  const [width, height] = [size.width / columns, (size.height * columns) / labels.length];
  const at = new DOMPoint(clientX, clientY).matrixTransform(map.getScreenCTM()?.inverse());
  const [column, row] = [Math.floor(at.x / width), Math.floor(at.y / height)];
  const cell = box(column * width, row * height, width, height, "transparent");
  cell.append(shape("title", {}, labels[row * columns + column]));
  map.querySelector("rect")?.remove();
  map.append(cell);
}

async function show(/** @type {HTMLElement} */ figure) {
  near.add(figure);
  const [wide, narrow = wide] = all("script", figure);
  const [still] = all(".still", figure);
  const fits = Number(still.getAttribute("width")) <= figure.clientWidth;
  const svg = new TextDecoder().decode(await unpack((fits ? wide : narrow).textContent ?? ""));
  if (!near.has(figure)) return; // it left meanwhile
  all(".live", figure)[0].innerHTML = svg;
  figure.classList.add("drawn");
  figure.style.minHeight = "";
}

function drop(/** @type {HTMLElement} */ figure) {
  near.delete(figure);
  if (!figure.classList.contains("drawn")) return;
  figure.style.minHeight = `${figure.offsetHeight}px`; // nothing below it may move
  all(".live", figure)[0].replaceChildren();
}
