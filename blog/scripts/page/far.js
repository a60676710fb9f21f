// Text that is far from the window waits: the browser remembers how high it is, and neither styles
// nor draws it (blog.css). Otherwise another theme would have all 12,000 elements styled anew.

import { all } from "./dom.js";

export function startFar() {
  const [text] = all("main");
  const wait = () => text.classList.add("laid-out");
  document.fonts.ready.then(() => (window.requestIdleCallback ?? setTimeout)(wait));
  let width = innerWidth;
  addEventListener("resize", () => {
    if (width === innerWidth) return;
    width = innerWidth;
    text.classList.remove("laid-out"); // its heights are others now
    requestAnimationFrame(() => requestAnimationFrame(wait));
  });
}
