// Dialogs over the page. `showModal` would make all else inert, for which browsers style the whole
// page anew, half a second of it: here a veil (blog.css) keeps the pointer away from the page, and
// this the focus.

import { all, targetOf } from "./dom.js";

/** Have a dialog open over the page. @param {HTMLDialogElement} dialog */
export function overThePage(dialog) {
  const stops = () => all("a[href], button:enabled, input", dialog);
  dialog.ariaModal = "true";
  dialog.classList.add("over-the-page");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && isOutside(event, dialog.getBoundingClientRect())) dialog.close();
  });
  document.addEventListener("focusin", (event) => {
    if (dialog.open && !dialog.contains(targetOf(event))) stops()[0].focus();
  });
  document.addEventListener("keydown", (event) => {
    if (!dialog.open) return;
    if (event.key === "Escape" && !event.isComposing) dialog.close();
    if (event.key === "Tab") keepFocus(event, stops());
  });
  document.body.append(dialog);
}

const isOutside = (/** @type {MouseEvent} */ { clientX, clientY }, /** @type {DOMRect} */ box) =>
  clientX < box.left || clientX > box.right || clientY < box.top || clientY > box.bottom;

/** From the last stop to the first one, and back. */
function keepFocus(/** @type {KeyboardEvent} */ event, /** @type {HTMLElement[]} */ stops) {
  const [first, last] = [stops[0], stops[stops.length - 1]];
  const focused = /** @type {HTMLElement} */ (document.activeElement);
  const end = event.shiftKey ? first : last;
  if (focused !== end && stops.includes(focused)) return;
  event.preventDefault();
  (event.shiftKey ? last : first).focus();
}
