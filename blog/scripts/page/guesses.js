import { say } from "./language.js";

/** How often a reader has guessed right, over the whole page; kept in the browser. */
let kept = { right: 0, all: 0 };
try {
  kept = { ...kept, ...JSON.parse(localStorage.guesses ?? "{}") };
} catch {
  /* nothing was kept, or may be */
}
export function add(right) {
  kept = { right: kept.right + Boolean(right), all: kept.all + 1 };
  try {
    localStorage.guesses = JSON.stringify(kept);
  } catch {
    /* not kept */
  }
  dispatchEvent(new Event("guessed"));
}
/** What is said of them; nothing before the first. */
export const text = () => (kept.all ? say("{right} of {all} guesses right", kept) : "");
