// The page that `translator explain` writes: one figure, and the panels below it.

import { all, byId } from "./page/dom.js";
import { explorerContent } from "./page/engine.js";
import { openOnPaper } from "./page/language.js";
import { Figure } from "./views/figure.js";
import * as Panels from "./views/panels.js";

/** @type {HTMLElement & { explored?: Figure }} the tests look for `explored` */
const place = byId("figure");

async function start() {
  const content = await explorerContent();
  const { engine, name } = content;
  byId("model").textContent = `model ${name}`;
  await engine?.ready;
  const inside = byId("inside");
  inside.hidden = !engine; // else there are only the numbers that were recorded
  if (engine) for (const panel of Panels.names) Panels.add(inside, panel);
  let followed = "";
  const changed = (/** @type {{ sentence: string }} */ { sentence }) => {
    document.title = `Attention: ${sentence}`;
    if (!engine || sentence === followed) return;
    followed = sentence;
    Panels.follow(engine, sentence);
  };
  openOnPaper(all("main")[0]);
  place.explored = new Figure(place, content, { changed });
}

start().catch((error) => {
  place.setAttribute("role", "alert");
  place.textContent = `This browser cannot show the page: ${error.message}`;
});
