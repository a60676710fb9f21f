// The panels: a title, what can be chosen, and what to show of what the model computed.

import { dot, largest, softmax } from "../../model/tensors.js";
import { el, percent } from "../../page/dom.js";
import { say } from "../../page/language.js";
import { tree } from "../tree.js";
import * as Trust from "../trust.js";
import * as Parts from "./parts.js";

const { bars, code, cutting, heat, MOST, nearestRows, numbers } = Parts;
const { row, scrolling, size, sizes, top, wordTable } = Parts;

/** @typedef {import("../panels.js").Facts} Facts */
/** Places of what is chosen; only the `other` sentence is written.
 *  @typedef {{ layer: number, head: number, token: number, key: number, step: number,
 *    differing: number, kind: number, whose: number, other: string }} Chosen */
/** @typedef {(Node | string)[]} Drawn */
/** @typedef {[title: string, choices: (keyof Chosen)[], draw: (f: Facts, chosen: Chosen,
 *    choose: (changes: Partial<Chosen>) => void) => Drawn | Promise<Drawn>]} PanelKind */

const LISTED_KEYS = 6;
/** In the order of the menu. @type {Kind[]} */
const ATTENTIONS = ["cross", "decoder", "encoder"];
export const BREAKS = "Ein kleiner Junge spielt im Park mit einem Hund."; // many heads are missed here

/** @type {Record<string, PanelKind>} */
export const PANELS = {
  vectors: [
    say("A token becomes a vector"),
    ["token"],
    ({ near, source, src, rows, embedded }, { token }) => {
      const count = rows[token].length;
      return [
        row(say("tokens"), code(source.join(" | "))),
        row(say("ids"), code(src.join("  "))),
        row(say("row {id}", { id: src[token] }), numbers(rows[token])),
        row(say("times {factor}", { factor: `√${count}` }), numbers(embedded[token])),
        sizes(rows[token], embedded[token]),
        nearestRows(near[token]),
        say(
          "Each strip has all {count} numbers, orange above zero and blue below. The nearest rows are those of the tokens with the largest cosine: what the model takes for similar.",
          { count },
        ),
      ];
    },
  ],
  positions: [
    say("The position is added"),
    ["token"],
    ({ config, embedded, positions, input }, { token }) => {
      if (config.rotary)
        return [
          say`This model adds no positions: each self-attention rotates its queries and keys (see Since 2017).`,
        ];
      const highest = top(input[token]);
      return [
        row(say("embedding"), numbers(embedded[token], highest)),
        row(say("position {position}", { position: token }), numbers(positions[token], highest)),
        row(say("sum"), numbers(input[token])),
      ];
    },
  ],
  heads: [
    say("Whom a token looks at, and why"),
    ["layer", "head", "token", "key"],
    (f, { layer, head, token, key }, choose) => [
      heat(
        f.german,
        f.german,
        (q, k) => f.layers[layer].weights[head][q][k],
        say("Attention weights of the encoder"),
        { chosen: [token, key], choose: (q, k) => choose({ token: q, key: k }) },
      ),
      ...cutting(f.source),
      say`Each row adds up to 1; weights below .10 have a colour, but no number. With these weights, the row’s token gets the mean of all values V. Click a weight to see where it comes from.`,
      causes(f, layer, head, token, key),
    ],
  ],
  residual: [
    say("The stream before and after attention"),
    ["layer", "token"],
    ({ layers, config }, { layer, token }) => {
      const { before, normed, attended, between } = layers[layer];
      const pre = config.norm === "pre";
      const scale = top(before[token], between[token]);
      /** @param {Vectors} x @param {number} [highest] */
      const show = ({ [token]: vector }, highest) => {
        const text = say("root mean square {size}", { size: size(vector) });
        return el("span", {}, numbers(vector, highest), " ", text);
      };
      return [
        row(say("the stream x"), show(before, scale)),
        row(pre ? say("normalised, times the gain") : say("as it is"), show(normed)),
        row(say("attention’s output"), show(attended, scale)),
        row(pre ? say("their sum") : say("sum, normalised"), show(between, scale)),
      ];
    },
  ],
  neurons: [
    say("Which neurons answer"),
    ["layer", "token"],
    ({ layers, german, source }, { layer, token }) => {
      const { inner } = layers[layer];
      const neurons = largest(inner[token], 3);
      const strongest = neurons
        .map((n) => say("number {n} ({value})", { n, value: inner[token][n].toFixed(2) }))
        .join(say(", "));
      const answers = inner.map((ofToken) => ofToken[neurons[0]]);
      const places = [...source.keys()].filter((t) => answers[t] > 0.005 || t === token);
      const silent = source.length - places.length;
      const active = inner[token].filter((value) => value > 0).length;
      return [
        say(
          "Of {all} neurons, {active} are above zero for “{token}”. The strongest are {strongest}. The first of these answers to the tokens of the sentence like this:",
          { all: inner[token].length, active, token: german[token], strongest },
        ),
        bars(
          places.map((t) => [german[t], answers[t], t === token]),
          (value) => value.toFixed(2),
        ),
        ...(silent ? [say("For the other {count} tokens it is zero.", { count: silent })] : []),
      ];
    },
  ],
  masks: [
    say("The mask on what has been written"),
    ["layer", "head"],
    ({ written, steps }, { layer, head }) => {
      // the decoder's weights for itself at a step; without the mask, after all steps
      const whole = steps[steps.length - 1].whole?.[layer];
      return [
        heat(
          written,
          written,
          (q, k) => (whole?.[q] ?? steps[q].decoder[layer][0])[head][k] ?? null,
          say("Attention weights of the decoder"),
        ),
        ...cutting(written),
        say("Hatched: later tokens, which the mask hides."),
      ];
    },
  ],
  cross: [
    say("Where the decoder looks"),
    ["layer", "head"],
    ({ predicted, german, steps }, { layer, head }) => [
      heat(
        predicted,
        german,
        (q, k) => steps[q].cross[layer][0][head][k],
        say("Weights of the cross-attention"),
      ),
      ...cutting(predicted, german),
      say`Each row is a step, with the token that it writes: where the decoder looked before it wrote that.`,
    ],
  ],
  logits: [
    say("A score for every token"),
    ["step"],
    ({ steps, written, name, ids }, { step }) => {
      const { logits } = steps[step];
      const p = softmax(logits);
      const label = (/** @type {number} */ id) => `${name([id])[0]} (${logits[id].toFixed(1)})`;
      return [
        say("After “{written}”:", {
          written: written.slice(1, step + 1).join(" ") || say("nothing but <s>"),
        }),
        bars(largest(p, 6).map((id) => [label(id), p[id], id === ids[step + 1]])),
        say`In brackets the logit; the bar is the probability. Bold: the token that the search took.`,
      ];
    },
  ],
  beam: [
    say("The search as a tree"),
    [],
    ({ nodes, best, name, translation }) => [
      scrolling(
        say("The beam as a tree"),
        tree(nodes, best, ({ id }) => name([id])[0]),
      ),
      say("The best way is drawn bold: “{translation}”", { translation }),
    ],
  ],
  lens: [
    say("What each layer would say"),
    [],
    async ({ ask, name, predicted }) => {
      /** By step and layer. @type {{ id: number, p: number }[][]} */
      const steps = (await ask("lens", {})).slice(0, MOST);
      const table = wordTable(
        say("step"),
        steps.map((_, t) => `${t + 1}`),
        steps[0].map((_, n) => [
          say("layer {layer}", { layer: n + 1 }),
          steps.map(({ [n]: { id, p } }) => ({ text: name([id])[0], share: p, title: percent(p) })),
        ]),
      );
      return [
        scrolling(say("What each layer would say"), table),
        ...cutting(predicted),
        say`The stronger the colour, the surer the layer. The last row is the translation, if the greedy choice is the beam’s.`,
      ];
    },
  ],
  removed: [
    say("One head less"),
    ["whose", "kind"],
    async (f, { whose, kind }) => {
      const sentence = [BREAKS, f.sentence][whose];
      /** @type {{ whole: string, rows: { layer: number, head: number, text: string }[] }} */
      const { whole, rows } = await f.ask("removed", { kind: ATTENTIONS[kind], sentence });
      const changed = rows.filter(({ text }) => text !== whole);
      return [
        row(say("all heads"), el("span", { dir: "auto" }, whole)),
        ...changed.map(({ layer, head, text }) =>
          row(
            say("layer {layer}, head {head}", { layer: layer + 1, head: head + 1 }),
            el("span", { dir: "auto" }, ...Trust.marked(text, whole)),
          ),
        ),
        say(
          "{changed} of {all} heads change the greedy translation when they are removed alone; the words that changed are marked, and a dash is where one is gone.",
          { changed: changed.length, all: rows.length },
        ),
      ];
    },
  ],
  patch: [
    say("Attention from another sentence"),
    ["other", "differing"],
    async (f, { other, differing }) => {
      const step = differing ? differing - 1 : null;
      if (!other.trim()) return [say("Change one word in the second sentence.")];
      /** @type {ReturnType<typeof import("../../model/trace.js").patched>} */
      const { at, names, rows } = await f.ask("patch", { other, step });
      const table = wordTable(
        say("replaced"),
        f.name(names),
        rows.map(({ kind, layers, p }) => [
          replacement(f.config.N, kind, layers),
          p.map((share) => ({ text: percent(share), share })),
        ]),
      );
      return [
        say(
          "At step {step}, after “{written}”, the output of these sublayers is taken from the second sentence:",
          { step: at + 1, written: f.written.slice(1, at + 1).join(" ") || "<s>" },
        ),
        scrolling(say("Attention from another sentence"), table),
        names[0] === names[1]
          ? say("Here both sentences go on with the same token; choose another step.")
          : say`Left the token that this sentence wants, right the one that the second wants. Whoever moves the probability carries the difference.`,
      ];
    },
  ],
};

/** @param {number} N @param {Kind} kind @param {number[]} layers */
function replacement(N, kind, layers) {
  if (!layers.length) return say("nothing");
  if (kind === "decoder") return say("self-attention of all layers (control)");
  if (layers.length === 1) return say("cross-attention of layer {layer}", { layer: layers[0] + 1 });
  if (layers.length === N) return say("cross-attention of all layers");
  return say("cross-attention of the last two layers");
}

/** Where a weight comes from: query, key, their products, the sum, its part of √d_k, and the
 *  softmax of the row.
 *  @param {Facts} f @param {number} layer @param {number} head
 *  @param {number} q @param {number} k */
function causes({ layers, config, german, switches }, layer, head, q, k) {
  const { queries, keys, ...ofLayer } = layers[layer];
  const [scores, weights] = [ofLayer.scores[head][q], ofLayer.weights[head][q]];
  const width = queries[0].length / config.h;
  const part = [head * width, (head + 1) * width];
  const [query, key] = [queries[q].slice(...part), keys[k].slice(...part)];
  const scale = top(query, key);
  const words = { weight: weights[k].toFixed(3), query: german[q], key: german[k] };
  const title = say("Where the weight {weight} comes from: “{query}” looks at “{key}”", words);
  const strongest = largest(weights, LISTED_KEYS);
  const listed = strongest.includes(k) ? strongest : [...strongest.slice(0, -1), k];
  const sum = dot(query, 0, key, 0, width).toFixed(2);
  const score = (/** @type {number} */ i) => scores[i].toFixed(2);
  const divided = `${sum} / ${Math.sqrt(width).toFixed(2)} = ${score(k)}`;
  const powers = [...scores].map((value) => Math.exp(value - Math.max(...scores)));
  const total = powers.reduce((a, b) => a + b, 0).toFixed(3);
  const share = `${powers[k].toFixed(3)} / ${total} = ${words.weight}`;
  return el(
    "div",
    { class: "panel-causes" },
    el("p", {}, el("strong", {}, title)),
    row(say("query Q"), numbers(query, scale)),
    row(say("key K"), numbers(key, scale)),
    row(say("{count} products", { count: width }), numbers(query.map((x, i) => x * key[i]))),
    row(say("their sum"), code(sum)),
    ...(switches?.scaling === false
      ? []
      : [row(say("divided by √{width}", { width }), code(divided))]),
    row(say("softmax of the row"), code(`e^${score(k)} / ${say("sum over all keys")} = ${share}`)),
    bars(listed.map((i) => [`${german[i]} (${score(i)})`, weights[i], i === k])),
    say("In brackets the scores of this row, the largest first; the bars are the weights."),
  );
}
