// The page that `translator explain` writes: one figure, and the panels below it. Its exports are
// there for the tests, as `Page`.

import { all, byId } from "./page/dom.js";
import { explorerContent } from "./page/engine.js";
import { openOnPaper } from "./page/language.js";
import { exploreAttention } from "./views/figure.js";
import * as Panels from "./views/panels.js";

export { exploreAttention };

/** @type {HTMLElement & { explored?: Figure }} the tests look for `explored` */
const place = byId("figure");

/** The address carries the choices, so that a link shows the same map. It may hold anything; the
 *  figure checks what it gets. */
function chosen() {
  const hash = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  /** @param {string} name @param {...string} names of which the first is for all others */
  const among = (name, ...names) => (names.includes(hash[name]) ? hash[name] : names[0]);
  const { layer, head } = hash;
  return {
    state: {
      kind: among("kind", "cross", "encoder", "decoder"),
      search: among("search", "beam", "greedy"),
      ...{ layer, head },
    },
    sentence: hash.sentence?.trim() && hash.sentence.slice(0, 2000),
  };
}

/** @param {import("./views/figure.js").State} state */
function remember({ kind, layer, head, search, sentence }) {
  document.title = `Attention: ${sentence}`;
  const choices = { kind, layer: `${layer}`, head: `${head}`, search, sentence };
  try {
    history.replaceState(null, "", `#${new URLSearchParams(choices)}`);
  } catch {
    // a notebook's sandboxed frame has no address to change
  }
}

async function start() {
  const { state, sentence } = chosen();
  const content = await explorerContent();
  const { engine, model } = content;
  byId("model").textContent = `model ${content.name}`;
  await engine?.ready;
  if (model && sentence) content.sentence = sentence;
  const inside = byId("inside");
  inside.hidden = !engine; // else there are only the numbers that were recorded
  if (engine) for (const name of Panels.names) Panels.add(inside, name);
  let followed = "";
  const changed = (/** @type {import("./views/figure.js").State} */ now) => {
    remember(now);
    if (!engine || now.sentence === followed) return;
    followed = now.sentence;
    Panels.follow(engine, followed);
  };
  openOnPaper(all("main")[0]);
  place.explored = exploreAttention(place, content, { open: true, state, changed });
  addEventListener("hashchange", () => location.reload()); // a link was pasted into the page
}

start().catch((error) => {
  place.setAttribute("role", "alert");
  place.textContent = `This browser cannot show the page: ${error.message}`;
});
