// What one_screen.py does, with small_model.js: the same random numbers in the same order, so the
// same weights, batches and losses. As a worker, it trains.

import { meanOf } from "../model/tensors.js";
import * as learning from "./learning.js";
import { greedy_decode, make_model } from "./small_model.js";
import { german_number } from "./tasks.js";

/** The values that stand at the top of one_screen.py, under their names there.
 *  @typedef {Record<"N" | "d_model" | "d_ff" | "h" | "eps_ls" | "pairs" | "warmup" | "factor" |
 *    "held" | "every" | "last" | "updates" | "seed", number>} Settings */

/** What it posts: first the size, then progress, in the end the result.
 *  @typedef {{ kind: "size", parameters: number, seed: number }
 *    | { kind: "progress", step: number, left: number, loss: number, rate: number, word: string,
 *        written: string }
 *    | { kind: "result", held: number, right: number, last: number, averaged: number,
 *        word: string, text: string, map: number[][] }} Line */

const M = 2 ** 31 - 1;

/** Reals between 0 and 1; the products are below 2 ** 53, so they are exact. */
const generator = (/** @type {number} */ state) => () => {
  state = (48271 * state) % M;
  return state / M;
};

/** The numbers of the training, those held out, and the letters of both. */
function split(/** @type {() => number} */ random, /** @type {number} */ held) {
  const keys = Array.from({ length: 900 }, random);
  const shuffled = [...keys.keys()].sort((a, b) => keys[a] - keys[b]).map((i) => 100 + i);
  const held_out = shuffled.slice(0, held);
  const known = [...Array(100).keys(), ...shuffled.slice(held)];
  const text = known.map((n) => german_number(n) + n).join("");
  return { held_out, known, letters: ["<", ">", ...[...new Set(text)].sort()] };
}

/** Draw all matrices in the order of one_screen.py, where each head has its own. What is a row here
 *  is a column there, but for the table.
 *  @param {SmallModel} model @param {() => number} random */
function draw_all({ parameters, h }, random) {
  /** Glorot's uniform. @param {number} rows @param {number} cols */
  const entry = (rows, cols) => Math.sqrt(6 / (rows + cols)) * (2 * random() - 1);
  /** @param {string} name @param {number} first row @param {number} count of rows */
  function draw(name, first = 0, count = parameters[name].rows) {
    const { data, cols } = parameters[name];
    for (let i = 0; i < cols; i++)
      for (let row = first; row < first + count; row++) data[row * cols + i] = entry(count, cols);
  }
  const table = parameters["src_embed.embeddings.table.weight"];
  for (let i = 0; i < table.data.length; i++) table.data[i] = entry(table.rows, table.cols);
  for (const [name, { rows }] of Object.entries(parameters)) {
    if (/W_[o12]\.weight$/.test(name)) draw(name);
    if (!name.endsWith("W_q.weight")) continue;
    for (let row = 0; row < rows; row += rows / h)
      for (const W of "qkv") draw(name.replace("W_q", `W_${W}`), row, rows / h);
  }
}

/** The program of one_screen.py with a seed, before its first update. */
export class OneScreen {
  constructor(/** @type {Settings} */ settings, /** @type {number} */ seed) {
    this.settings = settings;
    this.random = generator(seed);
    const { held_out, known, letters } = split(this.random, settings.held);
    this.held_out = held_out;
    this.known = known;
    this.letters = letters;
    const { N, d_model, d_ff, h } = settings;
    const specials = { PAD: -1, BOS: 0, EOS: 1 };
    const sizes = { vocab: letters.length, N, d_model, d_ff, h };
    this.model = make_model({ ...sizes, norm: "post", Real: Float64Array, specials });
    draw_all(this.model, this.random);
    this.parameters = Object.values(this.model.parameters);
    /** @type {Reals[][]} */
    this.checkpoints = [];
  }

  pair(/** @type {number} */ n) {
    /** @param {string} text */
    const ids = (text) => [...text].map((letter) => this.letters.indexOf(letter));
    return { src: ids(`${german_number(n)}>`), tgt: ids(`<${n}>`) };
  }

  batch() {
    const number = () => this.known[Math.floor(this.known.length * this.random())];
    return Array.from({ length: this.settings.pairs }, () => this.pair(number()));
  }

  rate(/** @type {number} */ step) {
    const { d_model, factor, warmup } = this.settings;
    return learning.rate(step, d_model, factor, warmup);
  }

  /** One update; returns the loss before it. */
  update() {
    const { eps_ls, every, last } = this.settings;
    const lr = this.rate(this.model.step + 1);
    const loss = learning.update(this.model, this.batch(), { lr, smoothing: eps_ls });
    if (this.model.step % every === 0)
      this.checkpoints.push(this.parameters.map(({ data }) => data.slice()));
    if (this.checkpoints.length > last) this.checkpoints.shift();
    return loss;
  }

  /** Put the mean of the last checkpoints into the model (Section 6.1). */
  average() {
    const { checkpoints } = this;
    for (const [p, { data }] of this.parameters.entries())
      for (let i = 0; i < data.length; i++)
        data[i] = checkpoints.reduce((sum, kept) => sum + kept[p][i], 0) / checkpoints.length;
  }

  /** What it writes for a number, and where it looks, the mean of the heads: a row for each letter
   *  that it writes. @param {number} n */
  read(n) {
    const { ids, weights } = greedy_decode(this.model, this.pair(n).src, 5);
    const text = ids.map((i) => this.letters[i]).join("");
    return { text: text.replace(/>$/, ""), map: weights.map(meanOf) };
  }

  right() {
    return this.held_out.filter((n) => this.read(n).text === String(n)).length;
  }
}

const post = (/** @type {Line} */ line) => postMessage(line);

globalThis.onmessage = (
  /** @type {MessageEvent<{ settings: Settings, seed: number }>} */ { data },
) => {
  const { settings, seed } = data;
  const program = new OneScreen(settings, seed);
  const begin = performance.now();
  const { updates, every, last, held } = settings;
  const sizes = program.parameters.map(({ data: numbers }) => numbers.length);
  post({ kind: "size", parameters: sizes.reduce((sum, size) => sum + size, 0), seed });
  let n = program.held_out[0];
  for (let step = 1; step <= updates; step++) {
    const loss = program.update();
    if (step % every) continue;
    n = program.held_out[step / every];
    const left = ((performance.now() - begin) / 1000) * (updates / step - 1);
    const [word, written] = [german_number(n), program.read(n).text];
    post({ kind: "progress", step, left, loss, rate: program.rate(step), word, written });
  }
  const right = program.right();
  program.average();
  const averaged = program.right();
  const { text, map } = program.read(n);
  post({ kind: "result", held, right, last, averaged, word: german_number(n), text, map });
};
