// What each box of Figure 1 makes of a sentence, in a few lines for the margin.

import { largest, softmax } from "../model/tensors.js";
import { el } from "../page/dom.js";
import { say } from "../page/language.js";
import { bars, code, numbers, row, size } from "./panels.js";

const BARS = 4;

/** `f` is what the model computes, as views/panels.js has it; the others say what is followed.
 *  @typedef {{ f: any, head: number, token: number, step: number }} Followed */

/** By box: a title, and what it makes of the sentence.
 *  @type {Record<string, (followed: Followed) => Node[]>} */
export const NUMBERS = {
  inputs: ({ f }) => [
    title(say("Text becomes tokens")),
    row(say("tokens"), code(f.source.join(" | "))),
    row(say("ids"), code(f.src.join(" "))),
  ],
  "source embedding": ({ f, token }) => [
    title(say("A token becomes a vector")),
    row(f.source[token], numbers(f.embedded[token])),
  ],
  "source position": ({ f, token }) => [
    title(say("The position is added")),
    row(say("position {position}", { position: token }), numbers(f.positions[token])),
    row(`${f.source[token]}, ${say("sum")}`, numbers(f.input[token])),
  ],
  "encoder attention": ({ f, head, token }) => [
    title(say("“{token}” looks at", { token: f.source[token] })),
    strongest(f.source, f.layers[0].weights[head][token]),
    small(say("layer 1, head {head}", { head: head + 1 })),
  ],
  "encoder norm": ({ f, token }) => {
    const [before, after] = [f.input, f.layers[0].between].map((vectors) => vectors[token]);
    return [
      title(say("The result is added")),
      row(`${f.source[token]}, ${say("before")}`, numbers(before)),
      row(`${f.source[token]}, ${say("after")}`, numbers(after)),
      row(say("root mean square"), code(`${size(before).toFixed(2)} → ${size(after).toFixed(2)}`)),
    ];
  },
  "encoder feed-forward": ({ f, token }) => {
    const units = [...f.layers[0].inner[token]];
    return [
      title(say("Each position is worked on alone")),
      row(`${f.source[token]}, ${say("its hidden units")}`, numbers(units)),
      row(say("above zero"), code(`${units.filter((unit) => unit > 0).length} / ${units.length}`)),
    ];
  },
  memory: ({ f, token }) => [
    title(say("After all layers: the memory")),
    row(say("shape"), code(`${f.memory.length} × ${f.memory[0].length}`)),
    row(f.source[token], numbers(f.memory[token])),
  ],
  outputs: ({ f, step }) => [
    title(say("The decoder reads what it has written")),
    code(f.written.slice(0, step + 1).join(" | ")),
  ],
  "decoder attention": ({ f, step }) => [
    title(say("“{token}” looks at", { token: f.written[step] })),
    strongest(f.written.slice(0, step + 1), f.steps[step].decoder.at(-1)[0][0]),
    small(say("layer {layer}, head {head}", { layer: f.config.N, head: 1 })),
  ],
  "cross-attention": ({ f, step }) => {
    const layer = Math.max(0, f.config.N - 2);
    /** @type {number[][]} */
    const heads = f.steps[step].cross[layer][0];
    const mean = heads[0].map(
      (_, key) => heads.reduce((sum, weights) => sum + weights[key], 0) / heads.length,
    );
    return [
      title(say("To write “{token}”, it looks at", { token: f.predicted[step] })),
      strongest(f.source, mean),
      small(say("layer {layer}, mean of heads", { layer: layer + 1 })),
    ];
  },
  softmax: ({ f, step }) => {
    const p = softmax(f.steps[step].logits);
    const likeliest = largest(p, BARS);
    return [
      title(say("After “{written}”", { written: f.written.slice(1, step + 1).join(" ") })),
      bars(likeliest.map((id) => [f.name([id])[0], p[id], id === f.ids[step + 1]])),
    ];
  },
};
NUMBERS.linear = NUMBERS.softmax;
NUMBERS.probabilities = NUMBERS.softmax;

/** @param {string} text */
const title = (text) => el("strong", {}, text);
/** @param {string} text */
const small = (text) => el("small", {}, text);
/** @param {string[]} tokens @param {number[]} weights */
const strongest = (tokens, weights) =>
  bars(largest(weights, BARS).map((key) => [tokens[key], weights[key]]));
