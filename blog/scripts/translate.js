// The page that `export --to page` writes: a field, and its translation.

import { isolated, say } from "./page/language.js";
import { startWorker } from "./page/worker.js";
import { doubtful } from "./views/trust.js";
import source from "bundle:./model/greedy_worker.js";

const PAUSE_MS = 400; // since the last key; then what was typed is translated

/** @typedef {import("./model/greedy_translator.js").Translation} Translation */

/** @param {string} id */
const place = (id) => /** @type {HTMLElement} */ (document.getElementById(id));
const content = JSON.parse(place("content").textContent);
globalThis.WORDS = content.words;
const field = /** @type {HTMLTextAreaElement} */ (place("text"));
const output = place("translation");

/** @param {string[]} tokens
 * @param {number} i */
const startsWord = (tokens, i) =>
  i === 0 || /^(▁|<.*>$|\p{P}+$)/u.test(tokens[i]) || /^<.*>$/.test(tokens[i - 1]);

/** The words of a translation; those of which the model is unsure are marked.
 * @param {Translation} translation */
function words({ tokens, probabilities }) {
  /** @param {number} i */
  const starts = (i) => startsWord(tokens, i);
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
    if (!part.unsure) return [i ? part.text : part.text.trimStart()];
    const mark = document.createElement("u");
    mark.textContent = part.text.trimStart();
    return i && part.text.startsWith(" ") ? [" ", mark] : [mark];
  });
}

/** @param {Translation} line */
function showLine(line) {
  const row = document.createElement("p");
  if (line.long) {
    row.className = "note";
    row.textContent = say("This line is too long.");
  } else row.append(...words(line));
  output.append(row);
  if (!line.unknown.length) return;
  const note = document.createElement("p");
  note.className = "note";
  note.dir = "auto";
  const letters = line.unknown.map(isolated).join(" ");
  note.textContent = say("It has never seen: {letters}", { letters });
  output.append(note);
}

let last = 0;
let shown = "";
/** @type {ReturnType<typeof setTimeout> | undefined} */
let timer;

function translate() {
  clearTimeout(timer);
  const text = field.value.replace(/\s+$/, "");
  if (text === shown) return;
  shown = text;
  last += 1;
  output.setAttribute("aria-busy", "true");
  worker.postMessage({ id: last, text });
}

/** What the worker posts.
 * @param {{ id: number, place: number, ready?: boolean, finished?: boolean, failed?: string }
 *   & Translation} data */
function heard(data) {
  if (data.failed) return refuse(data.failed);
  if (data.ready) {
    place("state").textContent = "";
    return translate();
  }
  if (data.id !== last) return;
  if (data.finished) output.setAttribute("aria-busy", "false");
  else {
    if (!data.place) output.replaceChildren();
    showLine(data);
  }
  place("legend").hidden = !output.querySelector("u");
}

/** @param {string} message */
function refuse(message) {
  place("state").textContent = say("This browser cannot translate: {message}", { message });
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
  const link = document.createElement("link");
  link.rel = "manifest";
  link.href = `data:application/manifest+json,${encodeURIComponent(JSON.stringify(manifest))}`;
  document.head.append(link);
}

for (const element of document.querySelectorAll("[data-say]"))
  element.textContent = say(element.textContent);
field.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(translate, PAUSE_MS);
});
field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  translate();
});
const worker = startWorker(source, heard);
worker.onerror = (event) => refuse(event.message);
const weights = place("weights").textContent;
worker.postMessage({ content: { ...content.model, weights } });
offerInstallation();
