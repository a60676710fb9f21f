// What each box of Figure 1 makes of a sentence, in a few lines for the margin.

import { el } from "../page/dom.js";
import { say } from "../page/language.js";
import { bars, code, numbers, row } from "./panels.js";
import {
  active_units,
  row_of_sizes,
  STOPS,
  strongest,
  written_before,
  chance_of,
} from "./walk_stops.js";

/** @import { Facts } from "./walk_stops.js" */

const BARS = 4;

const title = (/** @type {string} */ text) => el("strong", {}, text);
/** What stop of the walk a box has, by its title. @param {string} part */
const titleOf = (part) => title(STOPS.find((stop) => stop.part === part)?.title ?? "");
/** @param {string[]} tokens @param {Numbers} weights @param {string} whose */
const looks = (tokens, weights, whose) => [
  bars(strongest(tokens, weights, BARS)),
  el("small", {}, whose),
];

/** By box: a title, and what it makes of the sentence.
 *  @type {Record<string, (f: Facts) => Node[]>} */
export const NUMBERS = {
  inputs: (f) => [
    titleOf("inputs"),
    row(say("tokens"), code(f.source.join(" | "))),
    row(say("ids"), code(f.src.join(" "))),
  ],
  "source embedding": (f) => [
    titleOf("source embedding"),
    row(f.source[f.word], numbers(f.embedded[f.word])),
  ],
  "source position": (f) => [
    titleOf("source position"),
    row(say("position {position}", { position: f.word }), numbers(f.positions[f.word])),
    row(`${f.source[f.word]}, ${say("sum")}`, numbers(f.input[f.word])),
  ],
  "encoder attention": (f) => [
    title(say("“{token}” looks at", { token: f.source[f.word] })),
    ...looks(f.source, f.own, say("layer 1, head {head}", { head: f.head + 1 })),
  ],
  "encoder norm": (f) => {
    const [before, after] = [f.input[f.word], f.layer.between[f.word]];
    return [
      titleOf("encoder norm"),
      row(`${f.source[f.word]}, ${say("before")}`, numbers(before)),
      row(`${f.source[f.word]}, ${say("after")}`, numbers(after)),
      row_of_sizes(before, after),
    ];
  },
  "encoder feed-forward": (f) => {
    const units = f.layer.inner[f.word];
    return [
      titleOf("encoder feed-forward"),
      row(`${f.source[f.word]}, ${say("its hidden units")}`, numbers(units)),
      row(say("above zero"), code(`${active_units(f)} / ${units.length}`)),
    ];
  },
  memory: (f) => [
    titleOf("memory"),
    row(say("shape"), code(`${f.memory.length} × ${f.memory[0].length}`)),
    row(f.source[f.word], numbers(f.memory[f.word])),
  ],
  outputs: (f) => [titleOf("decoder attention"), code(f.written.slice(0, f.step + 1).join(" | "))],
  "decoder attention": (f) => [
    title(say("“{token}” looks at", { token: f.written[f.step] })),
    ...looks(
      f.written.slice(0, f.step + 1),
      f.back,
      say("layer {layer}, head {head}", { layer: f.config.N, head: 1 }),
    ),
  ],
  "cross-attention": (f) => [
    title(say("To write “{token}”, it looks at", { token: f.predicted[f.step] })),
    ...looks(
      f.source,
      f.cross,
      say("layer {layer}, mean of heads", { layer: Math.max(1, f.config.N - 1) }),
    ),
  ],
  softmax: (f) => [
    title(say("After “{written}”", { written: written_before(f) })),
    bars(f.likeliest.slice(0, BARS).map((id) => chance_of(f, id))),
  ],
};
NUMBERS.linear = NUMBERS.softmax;
NUMBERS.probabilities = NUMBERS.softmax;
