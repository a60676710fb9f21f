// The worker that does what one_screen.py does.

import { OneScreen } from "./one_screen.js";
import { german_number } from "./tasks.js";

/** @import { Settings } from "./one_screen.js" */
/** What it posts: first the size, then progress, in the end the result.
 *  @typedef {{ kind: "size", parameters: number, seed: number }
 *    | { kind: "progress", step: number, left: number, loss: number, rate: number, word: string,
 *        written: string }
 *    | { kind: "result", held: number, right: number, last: number, averaged: number,
 *        word: string, text: string, map: number[][] }} Line */

const post = (/** @type {Line} */ line) => postMessage(line);

onmessage = (/** @type {MessageEvent<{ settings: Settings, seed: number }>} */ { data }) => {
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
