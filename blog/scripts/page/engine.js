// The page's side of the model, which computes in a worker.

import { EOS, Tokenizer } from "../model/tokeniser.js";
import source from "bundle:../model/model_worker.js";
import { startWorker } from "./worker.js";

/** The worker with a model in it, and the questions that it has not answered yet. */
class Engine {
  constructor({ weights, ...content }) {
    this.tokenizer = new Tokenizer(content.vocab, content.merges);
    this.note = content.note;
    this.config = content.config;
    this.waiting = new Map();
    this.count = 0; // of questions
    this.worker = startWorker(source);
    this.ready = new Promise((resolve, reject) => {
      this.worker.onmessage = ({ data }) => {
        if (data.ready) resolve();
        else if (data.failed) reject(new Error(data.failed));
        else this.answered(data);
      };
      this.worker.onerror = (event) => reject(new Error(event.message));
    });
    this.ready.catch(() => {}); // who asks is told
    const packed = weights ?? document.getElementById("explorer-weights").textContent;
    this.worker.postMessage({ content: { ...content, weights: packed } });
  }

  answered(data) {
    const question = this.waiting.get(data.id);
    if ("step" in data) return question?.step?.(data.step);
    this.waiting.delete(data.id);
    if ("error" in data) question?.reject(new Error(data.error));
    else question?.resolve(data.found);
  }

  /** A question to the model is a promise; `step` is told how far a long search is. */
  async ask(what, asked, { signal, step } = {}) {
    this.count += 1;
    const id = this.count;
    await this.ready;
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      this.waiting.set(id, { resolve, reject, step });
      this.worker.postMessage({ id, what, asked });
      signal?.addEventListener("abort", () => {
        this.worker.postMessage({ stop: id });
        this.waiting.delete(id);
        reject(signal.reason);
      });
    });
  }

  /** The ids of a sentence, EOS included. */
  source(sentence) {
    return [...this.tokenizer.encode(sentence), EOS];
  }
}

/** What explorer.py wrote into the page; a model in it begins to load. */
export async function explorerContent() {
  const content = JSON.parse(document.getElementById("explorer-content").textContent);
  if (content.model) content.engine = new Engine(content.model);
  return content;
}

let content;
/** The same, read once for all places of a page. */
export const liveContent = () => (content ??= explorerContent());
