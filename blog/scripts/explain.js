// The page that `translator explain` writes: one figure, and the panels below it. Its exports are
// there for the tests, as `Page`.

import { explorerContent } from "./page/engine.js";
import { openOnPaper } from "./page/language.js";
import { exploreAttention } from "./views/figure.js";
import * as Panels from "./views/panels.js";

export { exploreAttention };

// The address carries the choices, so that a link shows the same map. It may hold anything; the
// figure checks what it gets.
const hash = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
const theme = document.getElementById("theme");

function chooseTheme() {
  theme.value = ["light", "dark"].includes(hash().theme) ? hash().theme : "auto";
  applyTheme();
}

function applyTheme() {
  if (theme.value === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
}

function remember({ kind, layer, head, words, search, sentence }) {
  document.title = "Attention: " + sentence;
  const choices = new URLSearchParams({ kind, layer, head, search, sentence });
  if (words) choices.set("words", 1);
  if (theme.value !== "auto") choices.set("theme", theme.value);
  try {
    history.replaceState(null, "", "#" + choices);
  } catch {
    // a notebook's sandboxed frame has no address to change
  }
}

function chosen() {
  const { kind, layer, head, words, search } = hash();
  return {
    kind: ["encoder", "decoder", "cross"].includes(kind) ? kind : "cross",
    layer,
    head,
    words: words === "1",
    search: ["beam", "greedy"].includes(search) ? search : "beam",
  };
}

async function start() {
  chooseTheme();
  const content = await explorerContent();
  document.getElementById("model").textContent = `model ${content.name}`;
  await content.engine?.ready;
  if (content.model && hash().sentence?.trim()) content.sentence = hash().sentence.slice(0, 2000);
  const inside = document.getElementById("inside");
  if (content.engine) {
    // else there are only the numbers that were recorded
    inside.hidden = false;
    for (const name of Panels.names) Panels.add(inside, name);
  }
  let followed = "";
  const changed = (state) => {
    remember(state);
    if (content.engine && state.sentence !== followed)
      Panels.follow(content.engine, (followed = state.sentence));
  };
  openOnPaper(document.querySelector("main"));
  const options = { open: true, state: chosen(), changed };
  const place = document.getElementById("figure");
  const figure = (place.explored = exploreAttention(place, content, options));
  theme.addEventListener("change", () => {
    applyTheme();
    remember(figure.state);
  });
  addEventListener("hashchange", () => {
    // a link was pasted into the open page
    chooseTheme();
    const { search, ...view } = chosen(),
      asked = hash(),
      sentence = asked.sentence?.trim();
    // one that is drawn has no address
    const other = asked.search !== figure.state.search && search !== figure.state.search;
    const changed = content.model && sentence && sentence !== figure.state.sentence.trim();
    if (other || changed) location.reload();
    else figure.choose(view);
  });
}

start().catch((error) => {
  const place = document.getElementById("figure");
  place.setAttribute("role", "alert");
  place.textContent = `This browser cannot show the page: ${error.message}`;
});
