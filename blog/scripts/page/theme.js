// Light or dark: as the system has it, until the reader chooses; paper is light.

import { byId } from "./dom.js";

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");

export const isDark = () =>
  (root.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";

/** @param {() => void} redraw has what a theme's colours were drawn in drawn anew */
export function startTheme(redraw) {
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.theme = root.dataset.theme; // the page's first script reads it
    } catch {
      // not kept
    }
    redraw();
  });
  systemDark.addEventListener("change", redraw);
  /** @type {string | undefined} */
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
  });
}
