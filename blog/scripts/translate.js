// The page that `export --to page` writes: a field, and its translation.

import { byId, el } from "./page/dom.js";
import { engine as startEngine } from "./page/engine.js";
import { isolated, say } from "./page/language.js";
import { TokenNames } from "./views/figure/tokens.js";
import { doubtful } from "./views/trust.js";

const PAUSE_MS = 400; // since the last key; then what was typed is translated

/** @typedef {import("./model/greedy_translator.js").Translation} Translation */

const content = JSON.parse(byId("content").textContent);
globalThis.WORDS = content.words;
const field = /** @type {HTMLTextAreaElement} */ (byId("text"));
const output = byId("translation");

/** The words of a translation; those of which the model is unsure are marked. */
function words(/** @type {Translation} */ { tokens, probabilities }) {
  const names = new TokenNames({ source: [], target: [], predicted: tokens });
  const starts = (/** @type {number} */ i) => names.startsWord(tokens, i);
  const unsure = doubtful(
    probabilities.map((chosen) => ({ chosen })),
    starts,
  );
  /** @type {{ text: string, unsure: boolean }[]} */
  const parts = [];
  tokens.forEach((token, i) => {
    if (/^<(pad|\/?s)>$/.test(token)) return;
    const piece = token.replaceAll("▁", " ").replaceAll("&amp;", "&");
    if (starts(i)) parts.push({ text: "", unsure: unsure[i] });
    parts[parts.length - 1].text += piece;
  });
  return parts.flatMap((part, i) => {
    const text = part.text.trimStart();
    if (!part.unsure) return [i ? part.text : text];
    const mark = el("u", {}, text);
    return i && part.text.startsWith(" ") ? [" ", mark] : [mark];
  });
}

function showLine(/** @type {Translation} */ line) {
  const { long, unknown } = line;
  /** @type {string[]} */
  const notes = [];
  if (long)
    notes.push(say("A sentence is too long: end it earlier, with a full stop or a new line."));
  const letters = unknown.map(isolated).join(" ");
  if (letters) notes.push(say("It has never seen: {letters}", { letters }));
  output.append(
    el("p", {}, ...words(line)),
    ...notes.map((note) => el("p", { className: "note", dir: "auto" }, note)),
  );
}

let shown = "";
let last = new AbortController();
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

/** A new text takes the place of the one before. */
async function translate() {
  clearTimeout(timer);
  const text = field.value.replace(/\s+$/, "");
  if (text === shown) return;
  shown = text;
  last.abort();
  last = new AbortController();
  const { signal } = last;
  output.ariaBusy = "true";
  for (const [place, sentence] of text.split("\n").entries()) {
    const line = await engine.ask("line", { sentence }, { signal });
    if (!place) output.replaceChildren();
    showLine(line);
    byId("legend").hidden = !output.querySelector("u");
  }
  output.ariaBusy = "false";
}

const tryTo = () =>
  translate().catch((error) => error.name === "AbortError" || refuse(error.message));

function refuse(/** @type {string} */ message) {
  byId("state").textContent = say("This browser cannot translate: {message}", { message });
}

/** From a server, browsers install a page that has a manifest; from a file, none does. */
function offerInstallation() {
  if (!location.protocol.startsWith("http")) return;
  const icon = /** @type {HTMLLinkElement} */ (document.querySelector("link[rel=icon]")).href;
  const manifest = {
    name: content.title,
    short_name: content.title,
    start_url: location.href.split("#")[0],
    display: "standalone",
    icons: [{ src: icon, sizes: "any", type: "image/svg+xml" }],
  };
  const href = `data:application/manifest+json,${encodeURIComponent(JSON.stringify(manifest))}`;
  document.head.append(el("link", { rel: "manifest", href }));
}

field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(tryTo, PAUSE_MS);
});
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  tryTo();
});
const engine = startEngine({ ...content.model, weights: byId("weights").textContent });
engine.ready
  .then(() => {
    byId("state").textContent = "";
    tryTo();
  })
  .catch(({ message }) => refuse(message));
offerInstallation();
