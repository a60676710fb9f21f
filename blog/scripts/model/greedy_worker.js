// The translator of the page that `export --to page` writes, at work beside it. A new text takes
// the place of the one before.

import { lineSteps } from "./greedy_translator.js";
import { Translator } from "./translator.js";

const BREATH_MS = 50; // after so long it looks whether there is a new text
const pause = () => new Promise((go) => setTimeout(go));

/** @type {Translator} */
let translator;
let latest = 0;

/** @param {number} id @param {string} text */
async function translate(id, text) {
  let breath = performance.now();
  for (const [place, line] of text.split("\n").entries()) {
    const search = lineSteps(translator, line);
    for (let step = search.next(); ; step = search.next()) {
      if (step.done) {
        postMessage({ id, place, ...step.value });
        break;
      }
      if (performance.now() - breath < BREATH_MS) continue;
      await pause();
      if (id !== latest) return;
      breath = performance.now();
    }
  }
  postMessage({ id, finished: true });
}

onmessage = async ({ data }) => {
  try {
    if (data.content) {
      translator = await Translator.load(data.content);
      postMessage({ ready: true });
    } else {
      latest = data.id;
      await translate(data.id, data.text);
    }
  } catch (error) {
    postMessage({ failed: String(error) });
  }
};
