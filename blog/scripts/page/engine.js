// The page's side of the model, which computes in a worker.

import { byId } from "./dom.js";
import { EOS, Tokenizer } from "../model/tokeniser.js";
import source from "bundle:../model/model_worker.js";
import { startWorker } from "./worker.js";

/** Who waits for an answer. @typedef {{ resolve: (answer: any) => void,
 *    reject: (error: Error) => void, step?: (count: number) => void }} Waiting */
/** `step` is told how far a long search is.
 *  @typedef {{ signal?: AbortSignal, step?: (count: number) => void }} Options */

class Engine {
  /** @param {ModelContent} model */
  constructor({ weights = byId("explorer-weights").textContent, ...model }) {
    this.worker = startWorker(source);
    this.count = 0;
    /** By the number of the question. @type {Map<number, Waiting>} */
    this.waiting = new Map();
    /** @type {Promise<void>} */
    this.ready = new Promise((resolve, reject) => {
      this.worker.onmessage = ({ data }) => {
        if (data.ready) resolve();
        else if (data.failed) reject(new Error(data.failed));
        else this.hear(data);
      };
      this.worker.onerror = (event) => reject(new Error(event.message));
    });
    this.ready.catch(() => {}); // who asks is told
    this.worker.postMessage({ content: { ...model, weights } });
    this.tokenizer = new Tokenizer(model.vocab, model.merges);
    this.note = model.note;
    this.config = model.config;
  }

  /** @param {{ id: number, step?: number, error?: string, found?: any }} message */
  hear({ id, step, error, found }) {
    const waiting = this.waiting.get(id);
    if (step !== undefined) return waiting?.step?.(step);
    this.waiting.delete(id);
    if (error !== undefined) waiting?.reject(new Error(error));
    else waiting?.resolve(found);
  }

  /** A question to the model (model/jobs.js).
   *  @param {string} what @param {object} asked @param {Options} options
   *  @returns {Promise<any>} what that job gives */
  async ask(what, asked, { signal, step } = {}) {
    this.count += 1;
    const id = this.count;
    await this.ready;
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      this.waiting.set(id, { resolve, reject, step });
      this.worker.postMessage({ id, what, asked });
      signal?.addEventListener("abort", () => {
        this.worker.postMessage({ stop: id });
        this.waiting.delete(id);
        reject(signal.reason);
      });
    });
  }

  /** The ids of a sentence, EOS included. @param {string} sentence @returns {number[]} */
  source(sentence) {
    return [...this.tokenizer.encode(sentence), EOS];
  }
}

export const engine = (/** @type {ModelContent} */ model) => new Engine(model);

/** What explorer.py writes: `engine` is there if the model is, else what it `recorded` by search.
 *  @typedef {{ name: string, sentence: string, language?: string, model?: ModelContent,
 *    engine?: Engine, recorded: Record<string, Result>, samples?: string[],
 *    provocations?: { sentence: string, teaches: string }[] }} Content */

/** What explorer.py wrote into the page; a model in it begins to load.
 *  @returns {Promise<Content>} */
export async function explorerContent() {
  const content = JSON.parse(byId("explorer-content").textContent ?? "");
  if (content.model) content.engine = engine(content.model);
  return content;
}

/** @type {Promise<Content> | undefined} */
let content;
/** The same, read once for all places of a page. */
export const liveContent = () => (content ??= explorerContent());
