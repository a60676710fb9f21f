// The model at work beside the page, so that nothing that it computes holds the page up: a worker
// that answers the questions of page/engine.js.

import { answer } from "./jobs.js";
import { Translator } from "./translator.js";

// The same with all numbers in one block, which a message copies at once instead of row by row.
function packed(value) {
  const parts = new Map(),
    walk = (part, found) =>
      ArrayBuffer.isView(part)
        ? found(part)
        : Array.isArray(part)
          ? part.map((one) => walk(one, found))
          : part && typeof part === "object"
            ? Object.fromEntries(
                Object.entries(part).map(([name, one]) => [name, walk(one, found)]),
              )
            : part;
  let length = 0;
  walk(value, (part) => {
    if (!parts.has(part)) {
      parts.set(part, length);
      length += part.length;
    }
  });
  const block = new Float32Array(length);
  for (const [part, at] of parts) block.set(part, at);
  return walk(value, (part) => block.subarray(parts.get(part), parts.get(part) + part.length));
}

const jobs = [],
  stopped = new Set(),
  pause = () => new Promise((go) => setTimeout(go));
let translator = null,
  working = false;
async function work() {
  if (working) return;
  working = true;
  for (let job; (job = jobs.shift());) {
    const { id, what, asked } = job;
    try {
      const steps = answer(await translator, what, asked);
      for (let breath = performance.now(), { done, value } = { done: false }; ;) {
        if (stopped.has(id)) {
          steps.return();
          break;
        }
        ({ done, value } = steps.next());
        if (done) {
          postMessage({ id, found: packed(value) });
          break;
        }
        if (performance.now() - breath < 50) continue;
        postMessage({ id, step: value });
        await pause(); // the message that says stop, if there is one
        breath = performance.now();
      }
    } catch (error) {
      postMessage({ id, error: error.message });
    }
  }
  working = false;
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
