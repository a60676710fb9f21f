// Charts are drawings that blog/charts.py made, in the colours of both themes. Each has thousands
// of elements, so it is in the page only while it is near the screen.

import { unpack } from "../model/tensors.js";
import { all, targetOf, watch } from "./dom.js";
import { shape } from "./svg.js";

/** Figures that are near. @type {Set<HTMLElement>} */
const near = new Set();

export function startCharts() {
  watch(all(".chart"), (isNear, figure) => (isNear ? show(figure) : drop(figure)), "600px");
  document.addEventListener("pointerover", (event) => {
    /** @type {HTMLElement | null} */
    const mark = targetOf(event).closest(".chart [data-label]");
    if (mark && !mark.firstChild) mark.append(shape("title", {}, mark.dataset.label ?? ""));
  });
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
