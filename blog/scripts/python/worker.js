// The worker of the editors. MicroPython's script, which comes before this one, makes
// `loadMicroPython`.

import { unpack } from "../model/tensors.js";
import { Translator } from "../model/translator.js";
import { answerOf } from "./judge.js";
import { Interpreter } from "./interpreter.js";

const PROGRESS_MILLISECONDS = 200; // between two messages

/** @type {World} */
let world;

/** @param {{ content: any, wasm: string, forms: World["forms"] }} page */
async function prepare({ content, wasm, forms }) {
  const translator = await Translator.load(content);
  const interpreter = await Interpreter.load(loadMicroPython, await unpack(wasm), (line) =>
    postMessage({ printed: line }),
  );
  world = { interpreter, translator, forms, progress: () => {} };
  postMessage({ ready: true });
}

/** Has the page know how often something was computed, now and then. */
function counter() {
  let time = 0;
  let count = 0;
  return () => {
    count += 1;
    if (performance.now() - time < PROGRESS_MILLISECONDS) return;
    time = performance.now();
    postMessage({ step: count });
  };
}

onmessage = async ({ data }) => {
  if (data.content) {
    await prepare(data).catch(({ message }) => postMessage({ error: message }));
    return;
  }
  world.progress = counter();
  postMessage(answerOf(world, data));
};
