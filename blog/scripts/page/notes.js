// Side notes: open beside the text where the screen has room between prose and figures, folded
// behind their paragraph elsewhere and on paper.

import { all } from "./dom.js";

const MOST_BLANK_PIXELS = 100; // below the text, where a note is longer

/** @typedef {{ note: HTMLDetailsElement, paragraph: Element | null }} Home */

export function startNotes() {
  const width = document.getElementById("place") ? "90rem" : "76rem"; // with Figure 1, or without
  const room = matchMedia(`screen and (min-width: ${width})`);
  const notes = /** @type {HTMLDetailsElement[]} */ (all("details.note"));
  const homes = notes.map((note) => ({ note, paragraph: note.previousElementSibling }));
  /** @param {Event} [event] */
  const place = (event) => {
    const paper = event?.type === "beforeprint" || matchMedia("print").matches;
    for (const home of homes) fold(home, paper);
    if (room.matches && !paper) putBeside(homes);
  };
  place();
  room.addEventListener("change", place);
  for (const name of ["beforeprint", "afterprint"]) addEventListener(name, place);
}

/** @param {Home} home @param {boolean} open */
function fold({ note, paragraph }, open) {
  if (note.previousElementSibling !== paragraph) paragraph?.after(note);
  setBeside(note, false, open);
}

/** @param {HTMLDetailsElement} note @param {boolean} beside @param {boolean} open */
function setBeside(note, beside, open) {
  note.classList.toggle("beside", beside);
  note.open = open;
  // there it is a title, nothing to open
  all("summary", note)[0].tabIndex = beside ? -1 : 0;
}

/** A note ends with its paragraph, so it may begin some paragraphs before it. */
function putBeside(/** @type {Home[]} */ homes) {
  for (const { note } of homes) setBeside(note, true, true);
  // measured together: a change between two measurements would have the page laid out again
  const starts = homes.map(({ note, paragraph }) => startOf(paragraph, note.offsetHeight));
  for (const [i, { note }] of homes.entries()) {
    const start = starts[i];
    if (start) start.before(note);
    else setBeside(note, false, false);
  }
}

/** The paragraph with which a note of this height begins; null if there is too little text.
 *  @param {Element | null} paragraph @param {number} height */
function startOf(paragraph, height) {
  const end = paragraph?.getBoundingClientRect().bottom ?? 0;
  let [start, room] = [paragraph, 0];
  for (
    let block = paragraph;
    block && room < height && !block.matches("h1, h2, h3, h4");
    block = block.previousElementSibling
  ) {
    if (!block.matches("p") && block !== paragraph) continue;
    start = block;
    room = end - block.getBoundingClientRect().top;
  }
  return room > height - MOST_BLANK_PIXELS ? start : null;
}
