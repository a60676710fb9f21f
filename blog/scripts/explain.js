// The page that `translator explain` writes: one figure, and the panels below it. Its exports are
// there for the tests, as `Page`.

import { all, byId } from "./page/dom.js";
import { explorerContent } from "./page/engine.js";
import { openOnPaper } from "./page/language.js";
import { exploreAttention } from "./views/figure.js";
import * as Panels from "./views/panels.js";

export { exploreAttention };

const theme = /** @type {HTMLSelectElement} */ (byId("theme"));
/** @type {HTMLElement & { explored?: Figure }} the tests look for `explored` */
const place = byId("figure");

/** The address carries the choices, so that a link shows the same map. It may hold anything; the
 *  figure checks what it gets. */
function chosen() {
  const hash = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  /** @param {string} name @param {...string} names of which the first is for all others */
  const among = (name, ...names) => (names.includes(hash[name]) ? hash[name] : names[0]);
  const { layer, head } = hash;
  const kind = among("kind", "cross", "encoder", "decoder");
  return {
    view: { kind, layer, head, words: hash.words === "1" },
    asked: hash.search,
    search: among("search", "beam", "greedy"),
    sentence: hash.sentence?.trim() && hash.sentence.slice(0, 2000),
    colours: among("theme", "auto", "light", "dark"),
  };
}

function applyTheme() {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

/** @param {import("./views/figure.js").State} state */
function remember({ kind, layer, head, words, search, sentence }) {
  document.title = `Attention: ${sentence}`;
  const choices = { kind, layer: `${layer}`, head: `${head}`, search, sentence };
  const hash = new URLSearchParams(choices);
  if (words) hash.set("words", "1");
  if (theme.value !== "auto") hash.set("theme", theme.value);
  try {
    history.replaceState(null, "", `#${hash}`);
  } catch {
    // a notebook's sandboxed frame has no address to change
  }
}

/** Shows what the address has.
 *  @param {import("./page/engine.js").Content} content @param {Figure} figure */
function follow({ model }, figure) {
  const { view, asked, search, sentence, colours } = chosen();
  theme.value = colours;
  applyTheme();
  const { state } = figure;
  // one that is drawn has no address
  const isOther = asked !== state.search && search !== state.search;
  if (isOther || (model && sentence && sentence.trim() !== state.sentence.trim()))
    location.reload();
  else figure.choose(view);
}

async function start() {
  const { view, search, sentence, colours } = chosen();
  theme.value = colours;
  applyTheme();
  const content = await explorerContent();
  const { engine, model } = content;
  byId("model").textContent = `model ${content.name}`;
  await engine?.ready;
  if (model && sentence) content.sentence = sentence;
  const inside = byId("inside");
  inside.hidden = !engine; // else there are only the numbers that were recorded
  if (engine) for (const name of Panels.names) Panels.add(inside, name);
  let followed = "";
  const changed = (/** @type {import("./views/figure.js").State} */ state) => {
    remember(state);
    if (!engine || state.sentence === followed) return;
    followed = state.sentence;
    Panels.follow(engine, followed);
  };
  openOnPaper(all("main")[0]);
  const figure = exploreAttention(place, content, {
    open: true,
    state: { ...view, search },
    changed,
  });
  place.explored = figure;
  theme.addEventListener("change", () => {
    applyTheme();
    remember(figure.state);
  });
  addEventListener("hashchange", () => follow(content, figure)); // a link was pasted into the page
}

start().catch((error) => {
  place.setAttribute("role", "alert");
  place.textContent = `This browser cannot show the page: ${error.message}`;
});
