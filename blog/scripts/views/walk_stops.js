// The ten stops of the walk, from the text of a sentence to that of its translation: the model's
// numbers, and what is asked and told of them.

import { largest, meanOf, softmax } from "../model/tensors.js";
import { el } from "../page/dom.js";
import { say } from "../page/language.js";
import { bars, code, nearestRows, numbers, row, sizes } from "./panels/parts.js";

/** What the model computes on the way. @typedef {import("./panels.js").Facts} Trace */
/** The same, and whom we follow.
 *  @typedef {ReturnType<typeof followed>} Facts */
/** A stop: the part of the figure, a title, the section that explains it if the part doesn't lead
 *  there, what is asked (a question, its answers, the right one or its place), and what is told;
 *  and, for the margin, where the sentences of that are left out, `whose` numbers they are.
 *  @typedef {{ part: string, title: string, section?: string, whose?: (facts: Facts) => string,
 *    ask: (facts: Facts) => [string, string[], string | number],
 *    tell: (facts: Facts) => (string | Element)[] }} Stop */

/** The tokens with the largest weights, and these.
 *  @param {string[]} tokens @param {Numbers} weights @returns {[string, number][]} */
const strongest = (tokens, weights, n = 5) =>
  largest(weights, n).map((place) => [tokens[place], weights[place]]);

/** Neither a piece with a dot nor a mark. @param {string} token */
const is_word = (token) => /^[\p{L}\p{N}]{2,}$/u.test(token);

/** The word that looks hardest at another word. @param {string[]} source
 *  @param {Numbers[]} weights of a head of the first layer */
function word_to_follow(source, weights) {
  const words = source.map(is_word);
  const strengths = weights.map((row, t) =>
    words[t] ? Math.max(0, ...[...row].filter((_, k) => k !== t && words[k])) : -1,
  );
  return strengths.indexOf(Math.max(...strengths));
}

/** The step, from the third on, at which it is least sure of a word.
 *  @param {string[]} predicted @param {{ logits: Float32Array }[]} steps */
function step_to_follow(predicted, steps) {
  const sure = predicted
    .slice(0, -1)
    .map((token, t) => (t > 1 && is_word(token) ? Math.max(...softmax(steps[t].logits)) : 2));
  return sure.length ? sure.indexOf(Math.min(...sure)) : 0;
}

/** Whom we follow, by sentence: no other one when something is switched off in the model.
 *  @type {Map<string, number>} */
const words = new Map();

/** What is computed of a sentence, and whom we follow through it: the word that looks hardest at
 *  another one, the head that shows it, and the step at which the model is least sure of a word.
 *  @param {Trace} f as views/panels.js has it */
export function followed(f) {
  const { config, layers, predicted, source, steps } = f;
  const head = Math.min(1, config.h - 1);
  const word = words.get(f.sentence) ?? word_to_follow(source, layers[0].weights[head]);
  words.set(f.sentence, word);
  const step = step_to_follow(predicted, steps);
  const { logits, cross, decoder } = steps[step];
  const p = softmax(logits);
  const heads = (cross.at(-2) ?? cross[0])[0];
  return {
    ...f,
    head,
    word,
    step,
    p,
    likeliest: largest(p, 5),
    cross: meanOf(heads),
    own: layers[0].weights[head][word],
    back: decoder[decoder.length - 1][0][0],
    layer: layers[0],
  };
}

/** Some names, the right one among them, in an order that doesn't tell: that of the alphabet; and
 *  the right one.
 *  @param {string[]} names @param {string} right @returns {[string[], string]} */
function among(names, right, n = 4) {
  const others = [...new Set(names)].filter((name) => name !== right);
  return [[right, ...others.slice(0, n - 1)].sort(), right];
}

/** The token that is looked at most, among others.
 *  @param {string[]} tokens @param {Numbers} weights */
const most = (tokens, weights) => among(tokens, strongest(tokens, weights, 1)[0][0]);

/** Whom we follow, and where, for sentences. @param {Facts} f */
const values = (f) => ({ token: f.german[f.word], head: f.head + 1, h: f.config.h });

/** What it has written before the step that we follow. @param {Facts} f */
const written_before = (f) => f.written.slice(1, f.step + 1).join(" ");

/** @type {Stop[]} */
export const STOPS = [
  {
    part: "inputs",
    title: say("Text becomes tokens"),
    ask: (f) => [
      say("Into how many tokens does the vocabulary cut this sentence, its end included?"),
      [f.src.length - 3, f.src.length, f.src.length + 4].map(String),
      String(f.src.length),
    ],
    tell: (f) => [
      say`The model reads numbers. Its vocabulary cuts the sentence into tokens, and each token has an id.`,
      row(say("tokens"), code(f.source.join(" | "))),
      row(say("ids"), code(f.src.join("  "))),
      say("We follow “{token}”, token {id}.", { token: f.german[f.word], id: f.src[f.word] }),
    ],
  },
  {
    part: "source embedding",
    title: say("A token becomes a vector"),
    ask: (f) => [
      say("Which of these has a row most like that of “{token}”?", { token: f.german[f.word] }),
      ...among(
        f.german.filter(
          (_, t) =>
            is_word(f.source[t]) &&
            t !== f.word &&
            !f.near[f.word].some(({ id }) => id === f.src[t]),
        ),
        f.near[f.word][0].name,
      ),
    ],
    tell: (f) => [
      say(
        "Each id has a row of {width} learned numbers. It is multiplied by √{width}, so that its entries have about the size of the positions that come next.",
        { width: f.rows[0].length },
      ),
      row(say("its row"), numbers(f.rows[f.word])),
      row(say("scaled"), numbers(f.embedded[f.word])),
      sizes(f.rows[f.word], f.embedded[f.word]),
      nearestRows(f.near[f.word].slice(0, 5)),
    ],
  },
  {
    part: "source position",
    title: say("The position is added"),
    ask: () => [
      say("What would attention not know without this?"),
      [say("which words there are"), say("in which order they come"), say("how many there are")],
      1,
    ],
    tell: (f) => [
      say`Attention does not know the order of what it reads. So each position has a vector of its own, of sines and cosines, and it is added.`,
      row(say("position {position}", { position: f.word }), numbers(f.positions[f.word])),
      row(say("sum"), numbers(f.input[f.word])),
    ],
  },
  {
    part: "encoder attention",
    title: say("Every token looks at all others"),
    whose: (f) => say("“{token}” looks at (layer 1, head {head})", values(f)),
    ask: (f) => [
      say("Whom does “{token}” look at most in the first layer, in head {head} of {h}?", values(f)),
      ...most(f.german, f.own),
    ],
    tell: (f) => [
      say(
        "Three learned matrices make of each vector a query (what the token asks for), a key (what it is found by) and a value (what it passes on). The query of “{token}” is compared with all keys, and a softmax turns these scores into weights that add up to 1. With them, “{token}” receives the mean of all values. Each of the {h} heads has its own matrices; this is head {head} of the first layer:",
        values(f),
      ),
      bars(strongest(f.german, f.own)),
    ],
  },
  {
    part: "encoder norm",
    title: say("The result is added"),
    ask: () => [
      say("What happens to the vector that was there before?"),
      [
        say("it is replaced"),
        say("it stays, and the result is added"),
        say("the mean of both is taken"),
      ],
      1,
    ],
    tell: (f) => [
      f.config.norm === "pre"
        ? say`What attention found is added to what was there before: that is the residual connection. The figure is the paper’s, which normalises after the addition; our model does it before each sublayer instead, so the sum may grow.`
        : say`What attention found is added to what was there before: that is the residual connection. Then the sum is normalised.`,
      row(say("before"), numbers(f.input[f.word])),
      row(say("after"), numbers(f.layer.between[f.word])),
      sizes(f.input[f.word], f.layer.between[f.word]),
    ],
  },
  {
    part: "encoder feed-forward",
    title: say("Each position is worked on alone"),
    ask: (f) => [
      say(
        "A small network now reads the vector of “{token}” and no other. Can its result depend on other words all the same?",
        { token: f.german[f.word] },
      ),
      [
        say("no: it reads one position at a time"),
        say("yes: their positions are near its own"),
        say("yes: attention has added to this vector what they pass on"),
      ],
      2,
    ],
    tell: (f) => [
      say(
        "It reads one vector at a time, but that holds what attention has added. Of its {all} hidden units, {active} are active for our token; a ReLU sets all others to zero.",
        {
          all: f.layer.inner[f.word].length,
          active: f.layer.inner[f.word].filter((value) => value > 0).length,
        },
      ),
      row(say("its hidden units"), numbers(f.layer.inner[f.word])),
      row(say("after it"), numbers(f.layer.after[f.word])),
    ],
  },
  {
    part: "memory",
    title: say("After all layers: the memory"),
    ask: (f) => [
      say("How many vectors does the decoder get?"),
      ["1", String(f.src.length), String(f.memory[0].length)],
      String(f.src.length),
    ],
    tell: (f) => [
      say(
        "The other layers of the encoder do the same. In the end there is one vector for each of the {count} tokens. The decoder will look at them again and again.",
        { count: f.src.length },
      ),
      row(say("shape"), code(`${f.memory.length} × ${f.memory[0].length}`)),
      row(say("ours"), numbers(f.memory[f.word])),
    ],
  },
  {
    part: "decoder attention",
    title: say("The decoder reads what it has written"),
    whose: (f) => say("“{token}” looks at (last layer, head 1)", { token: f.written[f.step] }),
    ask: () => [
      say`In training, the whole translation is there at once. What would the model learn if a token could look at the one after it?`,
      [
        say("to copy that token, which it should predict"),
        say("to translate better, as it sees more"),
        say("nothing else: it knows that token anyway"),
      ],
      0,
    ],
    tell: (f) => [
      say(
        "So a mask hides what comes later. Here the decoder writes one token at a time, and so far it has written “{written}”: its newest token looks at itself and at those before it. In the first head of the last layer:",
        { written: written_before(f) },
      ),
      bars(strongest(f.written.slice(0, f.step + 1), f.back)),
    ],
  },
  {
    part: "cross-attention",
    title: say("It looks at the source"),
    whose: (f) => say("To write “{token}”, it looks at", { token: f.predicted[f.step] }),
    ask: (f) => [
      say(
        "It has written “{written}”. Which source token does it look at most before it goes on?",
        { written: written_before(f) },
      ),
      ...most(f.german, f.cross),
    ],
    tell: (f) => [
      say`Its queries meet the keys of the memory. The mean over the heads of the layer before the last shows what it looks at before it writes the next token:`,
      bars(strongest(f.german, f.cross)),
    ],
  },
  {
    part: "softmax",
    title: say("A score for every token"),
    whose: (f) => say("After “{written}”", { written: written_before(f) }),
    section: "greedy-decoding",
    ask: (f) => [
      say("What comes after “{written}”?", { written: written_before(f) }),
      ...among(f.name(f.likeliest), f.predicted[f.step], 5),
    ],
    tell: (f) => [
      say(
        "The last vector is compared with the row of each of the {count} tokens, and a softmax turns the scores into probabilities.",
        { count: f.p.length.toLocaleString("en") },
      ),
      bars(f.likeliest.map((id) => [f.name([id])[0], f.p[id], id === f.ids[f.step + 1]])),
      say("It writes “{token}”. Then it reads this token, and goes on until it writes </s>:", {
        token: f.predicted[f.step],
      }),
      el("p", {}, el("strong", {}, f.translation)),
    ],
  },
];
