// What has a document of its own, in a frame: a model that learns before the reader's eyes, and the
// clinic, where a model with a hidden mistake is admitted. In the document of the page, each new
// letter would have the browser look over tens of thousands of elements. Their workers compute.

import clinic from "bundle:./clinic_frame.js";
import trainer from "bundle:./trainer_frame.js";
import { byId, el } from "../page/dom.js";
import { say } from "../page/language.js";
import { endOf } from "../page/sentence.js";

/** @param {string} heading */
const sectionOf = (heading) => document.getElementById(heading)?.closest("section");

export function startFrames() {
  const task = sectionOf("a-second-task-german-numbers");
  if (task) ownDocument(task, "trainer", say("A model that learns"), trainer, linesOf("learned"));
  const loss = sectionOf("what-the-loss-can-t-see");
  const patients = linesOf("patients");
  if (!loss || !patients.length) return;
  const catalogue = JSON.parse(byId("clinic").textContent);
  ownDocument(endOf(loss), "clinic-frame", say("The clinic"), clinic, patients, catalogue);
}

/** Rows of a file that is in the page. @param {string} id @returns {any[]} as its maker has them */
const linesOf = (id) =>
  (document.getElementById(id)?.textContent ?? "")
    .split("\n")
    .filter(Boolean)
    .map((row) => JSON.parse(row));

const root = document.documentElement;
const theme = () => root.dataset.theme ?? "";

/** A frame behind an element; the text of a script makes its document, out of `GIVEN`. The frame is
 *  as high as that wants.
 *  @param {Element} place @param {string} id @param {string} title @param {string} script
 *  @param {...any} given whatever the script takes */
function ownDocument(place, id, title, script, ...given) {
  const srcdoc = documentOf(title, script, given);
  const sandbox = "allow-scripts";
  const frame = el("iframe", { className: "learn", id, title, sandbox, loading: "lazy", srcdoc });
  place.after(frame);
  addEventListener("message", ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    if (data?.height > 0) frame.style.height = `${data.height + 2}px`;
    if (typeof data?.section === "string") location.hash = data.section;
  });
  const tell = () => frame.contentWindow?.postMessage({ theme: theme() }, "*");
  frame.addEventListener("load", tell); // for a switch that came too early
  new MutationObserver(tell).observe(root, { attributeFilter: ["data-theme"] });
}

/** @param {string} title @param {string} script @param {any[]} given */
function documentOf(title, script, given) {
  const style = ["base", "learn"].map((name) => byId(`style-${name}`).textContent).join("");
  const inScript = (/** @type {unknown} */ value) => JSON.stringify(value).replace(/</g, "\\u003c");
  return `<!DOCTYPE html><html lang="${root.lang}" data-theme="${theme()}"><title>${title}</title><style>${style}</style><body>
    <script>globalThis.WORDS = ${inScript(globalThis.WORDS ?? {})}; globalThis.GIVEN = ${inScript(given)}; ${script}<\/script></body></html>`;
}
