// The model at work beside the page, so that nothing that it computes holds the page up: a worker
// that answers the questions of page/engine.js.

import { answer } from "./jobs.js";
import { Translator } from "./translator.js";

const BREATH_MS = 50; // after so long it looks whether it is to stop

/** A value with other numbers. @param {any} value what a job gives
 *  @param {(part: Vector) => unknown} change @returns {unknown} */
function walk(value, change) {
  if (ArrayBuffer.isView(value)) return change(/** @type {Vector} */ (value));
  if (Array.isArray(value)) return value.map((part) => walk(part, change));
  if (!value || typeof value !== "object") return value;
  const parts = Object.entries(value).map(([name, part]) => [name, walk(part, change)]);
  return Object.fromEntries(parts);
}

/** The same with all numbers in one block, which a message copies at once instead of row by row. */
function packed(/** @type {unknown} */ value) {
  /** Where each begins. @type {Map<Vector, number>} */
  const places = new Map();
  let length = 0;
  walk(value, (part) => {
    if (places.has(part)) return;
    places.set(part, length);
    length += part.length;
  });
  const block = new Float32Array(length);
  for (const [part, at] of places) block.set(part, at);
  return walk(value, (part) => {
    const at = places.get(part) ?? 0;
    return block.subarray(at, at + part.length);
  });
}

/** @typedef {{ id: number, what: import("./jobs.js").JobName,
 *    asked: import("./jobs.js").Question }} Job */
/** @type {Job[]} */
const jobs = [];
/** @type {Set<number>} */
const stopped = new Set();
const pause = () => new Promise((go) => setTimeout(go));
/** @type {Promise<Translator>} */
let translator;
let working = false;

async function work() {
  if (working) return;
  working = true;
  for (let job; (job = jobs.shift());)
    try {
      await answered(job);
    } catch (error) {
      postMessage({ id: job.id, error: /** @type {Error} */ (error).message });
    }
  working = false;
}

async function answered(/** @type {Job} */ { id, what, asked }) {
  const steps = answer(await translator, what, asked);
  let breath = performance.now();
  while (!stopped.has(id)) {
    const { done, value } = steps.next();
    if (done) return postMessage({ id, found: packed(value) });
    if (performance.now() - breath < BREATH_MS) continue;
    postMessage({ id, step: value });
    await pause(); // the message that says stop, if there is one
    breath = performance.now();
  }
  steps.return(undefined);
}

onmessage = ({ data }) => {
  if (data.content) {
    translator = Translator.load(data.content);
    translator.then(
      () => postMessage({ ready: true }),
      (error) => postMessage({ failed: error.message }),
    );
  } else if ("stop" in data) stopped.add(data.stop);
  else {
    jobs.push(data);
    work();
  }
};
