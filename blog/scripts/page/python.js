// The page's side of the reader's Python, which runs in a worker (python/worker.js).

import source from "bundle:../python/worker.js";
import { byId } from "./dom.js";
import { liveContent } from "./engine.js";
import { startWorker } from "./worker.js";

const LONGEST_PRINTED = 300; // characters

/** One for all editors, made when it is first needed, and again after it had to be ended.
 *  @type {Worker | null} */
let worker = null;

async function running() {
  if (worker) return worker;
  const started = startWorker(`${byId("micropython").textContent}\n${source}`);
  const { model } = await liveContent();
  started.postMessage({
    content: { ...model, weights: byId("explorer-weights").textContent },
    wasm: byId("micropython-wasm").textContent,
    forms: WRITTEN.forms,
  });
  await new Promise((resolve, reject) => {
    started.onmessage = ({ data }) => (data.ready ? resolve(data) : reject(new Error(data.error)));
    started.onerror = (event) => reject(new Error(event.message));
  });
  worker = started;
  return started;
}

/** Ask the worker; it is ended after some seconds, or when the reader stops it.
 *  @param {Asked} question
 *  @param {{ seconds: number, signal: AbortSignal, step: (count: number) => void }} options
 *  @returns {Promise<Answer>} */
export async function askPython(question, { seconds, signal, step }) {
  const python = await running();
  return new Promise((resolve) => {
    let printed = "";
    const done = (/** @type {object} */ answer) => {
      clearTimeout(timer);
      signal.removeEventListener("abort", stop);
      resolve({ ...answer, printed });
    };
    const end = (/** @type {object} */ answer) => {
      python.terminate();
      worker = null;
      done(answer);
    };
    const stop = () => end({ stopped: true });
    const timer = setTimeout(() => end({ late: seconds }), 1000 * seconds);
    signal.addEventListener("abort", stop);
    python.onmessage = ({ data }) => {
      if ("step" in data) step(data.step);
      else if ("printed" in data) printed = `${printed}${data.printed}\n`.slice(0, LONGEST_PRINTED);
      else done(data);
    };
    python.postMessage(question);
  });
}
