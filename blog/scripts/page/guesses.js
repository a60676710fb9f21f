// How often a reader has guessed right, over the whole page; kept in the browser.

import { say } from "./language.js";
import { recall, remember } from "./memory.js";

let count = recall("guesses", { right: 0, all: 0 });

export function add(/** @type {boolean} */ right) {
  count = { right: count.right + Number(right), all: count.all + 1 };
  remember("guesses", count);
  dispatchEvent(new Event("guessed"));
}

/** What is said of them; nothing before the first. */
export const text = () => (count.all ? say("{right} of {all} guesses right", count) : "");
