// The page's side of the model, which computes in a worker.

import { EOS, Tokenizer } from "../model/tokeniser.js";
import source from "bundle:../model/model_worker.js";
import { startWorker } from "./worker.js";

/** A question to the model is a promise: `ask(what, asked, { signal, step })`; `step` is told how
 *  far a long search is. */
export function engine(model) {
  const worker = startWorker(source);
  const waiting = new Map(),
    { weights, ...rest } = model;
  let count = 0;
  const ready = new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => {
      if (data.ready) return resolve();
      if (data.failed) return reject(new Error(data.failed));
      const { resolve: found, reject: refuse, step } = waiting.get(data.id) ?? {};
      if ("step" in data) return step?.(data.step);
      waiting.delete(data.id);
      if ("error" in data) refuse?.(new Error(data.error));
      else found?.(data.found);
    };
    worker.onerror = (event) => reject(new Error(event.message));
  });
  ready.catch(() => {}); // who asks is told
  worker.postMessage({
    content: {
      ...rest,
      weights: weights ?? document.getElementById("explorer-weights").textContent,
    },
  });
  function ask(what, asked, { signal, step } = {}) {
    const id = (count += 1);
    return ready.then(
      () =>
        new Promise((resolve, reject) => {
          if (signal?.aborted) return reject(signal.reason);
          waiting.set(id, { resolve, reject, step });
          worker.postMessage({ id, what, asked });
          signal?.addEventListener("abort", () => {
            worker.postMessage({ stop: id });
            waiting.delete(id);
            reject(signal.reason);
          });
        }),
    );
  }
  const tokenizer = new Tokenizer(model.vocab, model.merges);
  return {
    ask,
    ready,
    tokenizer,
    note: model.note,
    config: model.config,
    source: (sentence) => [...tokenizer.encode(sentence), EOS],
  };
}

/** What explorer.py wrote into the page; a model in it begins to load. */
export async function explorerContent() {
  const content = JSON.parse(document.getElementById("explorer-content").textContent);
  if (content.model) content.engine = engine(content.model);
  return content;
}

let content;
/** The same, read once for all places of a page. */
export const liveContent = () => (content ??= explorerContent());
