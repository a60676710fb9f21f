// Light or dark: as the system has it, until the reader chooses; paper is light (blog.css).

import { byId } from "./dom.js";

const root = document.documentElement;
const systemDark = matchMedia("(prefers-color-scheme: dark)");

const isDark = () => (root.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";

export function startTheme() {
  byId("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.theme = root.dataset.theme; // the page's first script reads it
    } catch {
      // not kept
    }
  });
}
