// The panels: a title, what can be chosen, and what to show of what the model computed.

import { largest, softmax } from "../../model/tensors.js";
import { say, told } from "../../page/language.js";
import { el, percent } from "../dom.js";
import * as Trust from "../trust.js";
import { causes } from "./causes.js";
import { heat } from "./heat.js";
import {
  bars,
  code,
  cutting,
  MOST,
  numbers,
  row,
  scrolling,
  size,
  symbol,
  top,
  wordTable,
} from "./parts.js";
import { tree } from "./tree.js";

export const BREAKS = "Ein kleiner Junge spielt im Park mit einem Hund."; // many heads are missed here
export const PANELS = {
  vectors: [
    say("A token becomes a vector"),
    ["token"],
    (f, { token }) => [
      row(say("tokens"), code(f.source.join(" | "))),
      row(say("ids"), code(f.src.join("  "))),
      row(say("row {id}", { id: f.src[token] }), numbers(f.rows[token])),
      row(say("times {factor}", { factor: `√${f.rows[0].length}` }), numbers(f.embedded[token])),
      row(
        say("root mean square"),
        code(`${size(f.rows[token]).toFixed(2)} → ${size(f.embedded[token]).toFixed(2)}`),
      ),
      row(
        say("nearest rows"),
        code(
          f.near[token]
            .map(({ id, cosine }) => `${f.name([id])[0]} ${cosine.toFixed(2)}`)
            .join("   "),
        ),
      ),
      say(
        "Each strip has all {count} numbers, orange above zero and blue below. The nearest rows are those of the tokens with the largest cosine: what the model takes for similar.",
        { count: f.rows[0].length },
      ),
    ],
  ],
  positions: [
    say("The position is added"),
    ["token"],
    (f, { token }) =>
      f.config.rotary
        ? [
            el(
              "p",
              {},
              say(
                "This model adds no positions: each self-attention rotates its queries and keys (see Since 2017).",
              ),
            ),
          ]
        : [
            row(say("embedding"), numbers(f.embedded[token], top(f.input[token]))),
            row(
              symbol("PE", say("position {position}", { position: token })),
              numbers(f.positions[token], top(f.input[token])),
            ),
            row(say("sum"), numbers(f.input[token])),
          ],
  ],
  heads: [
    say("Whom a token looks at, and why"),
    ["layer", "head", "token", "key"],
    (f, { layer, head, token, key }, choose) => {
      const weights = f.layers[layer].weights[head];
      return [
        heat(f.source, f.source, (q, k) => weights[q][k], say("Attention weights of the encoder"), {
          chosen: [token, key],
          choose: (q, k) => choose({ token: q, key: k }),
        }),
        ...cutting(f.source),
        el(
          "p",
          {},
          ...told(
            "Each row adds up to 1; weights below .10 have a colour, but no number. With these weights, the row’s token gets the mean of all values {V}. Click a weight to see where it comes from.",
            { V: symbol("V") },
          ),
        ),
        causes(f, layer, head, token, key),
      ];
    },
  ],
  residual: [
    say("The stream before and after attention"),
    ["layer", "token"],
    (f, { layer, token }) => {
      const { before, normed, attended, between } = f.layers[layer],
        pre = f.config.norm === "pre",
        scale = top(before[token], between[token]);
      const show = (x, ...scales) =>
        el(
          "span",
          {},
          numbers(x[token], ...scales),
          " ",
          say("root mean square {size}", { size: size(x[token]).toFixed(2) }),
        );
      return [
        row(symbol("x", say("the stream x")), show(before, scale)),
        row(pre ? say("normalised, times the gain") : say("as it is"), show(normed)),
        row(say("attention’s output"), show(attended, scale)),
        row(pre ? say("their sum") : say("sum, normalised"), show(between, scale)),
      ];
    },
  ],
  neurons: [
    say("Which neurons answer"),
    ["layer", "token"],
    (f, { layer, token }) => {
      const inner = f.layers[layer].inner,
        [first, ...rest] = largest(inner[token], 3),
        active = inner[token].filter((value) => value > 0).length;
      const strongest = [first, ...rest]
        .map((n) => say("number {n} ({value})", { n, value: inner[token][n].toFixed(2) }))
        .join(say(", "));
      const answering = f.source
          .map((name, t) => [name, inner[t][first], t === token])
          .filter(([, value, own]) => value > 0.005 || own),
        silent = f.source.length - answering.length;
      return [
        say(
          "Of {all} neurons, {active} are above zero for “{token}”. The strongest are {strongest}. The first of these answers to the tokens of the sentence like this:",
          { all: inner[token].length, active, token: f.source[token], strongest },
        ),
        bars(answering, (value) => value.toFixed(2)),
        ...(silent ? [say("For the other {count} tokens it is zero.", { count: silent })] : []),
      ];
    },
  ],
  masks: [
    say("The mask on what has been written"),
    ["layer", "head"],
    (f, { layer, head }) => [
      heat(
        f.written,
        f.written,
        (q, k) => lookBack(f, layer, head, q)[k] ?? 0,
        say("Attention weights of the decoder"),
        { weight: (q, k) => lookBack(f, layer, head, q)[k] ?? null },
      ),
      ...cutting(f.written),
      say("Hatched: later tokens, which the mask hides."),
    ],
  ],
  cross: [
    say("Where the decoder looks"),
    ["layer", "head"],
    (f, { layer, head }) => [
      heat(
        f.predicted,
        f.source,
        (q, k) => f.steps[q].cross[layer][0][head][k],
        say("Weights of the cross-attention"),
      ),
      ...cutting(f.predicted, f.source),
      say(
        "Each row is a step, with the token that it writes: where the decoder looked before it wrote that.",
      ),
    ],
  ],
  logits: [
    say("A score for every token"),
    ["step"],
    (f, { step }) => {
      const { logits } = f.steps[step],
        p = softmax(logits),
        ids = largest(p, 6);
      return [
        say("After “{written}”:", {
          written: f.written.slice(1, step + 1).join(" ") || say("nothing but <s>"),
        }),
        bars(
          ids.map((id) => [
            `${f.name([id])[0]} (${logits[id].toFixed(1)})`,
            p[id],
            id === f.ids[step + 1],
          ]),
        ),
        say(
          "In brackets the logit; the bar is the probability. Bold: the token that the search took.",
        ),
      ];
    },
  ],
  temperature: [
    say("The same logits at another temperature"),
    ["step", "temperature"],
    (f, { step, temperature }) => {
      const { logits } = f.steps[step],
        p = softmax(logits.map((logit) => (10 * logit) / temperature)),
        ids = largest(logits, 8),
        among = ids.reduce((sum, id) => sum + p[id], 0);
      return [
        bars(ids.map((id) => [f.name([id])[0], p[id]])),
        say("Temperature {temperature}: the other {count} tokens have {share} together.", {
          temperature: (temperature / 10).toFixed(1),
          count: (p.length - ids.length).toLocaleString("en"),
          share: percent(Math.max(0, 1 - among)),
        }),
      ];
    },
  ],
  beam: [
    say("The search as a tree"),
    [],
    (f) => [
      tree(f),
      say("The best way is drawn bold: “{translation}”", { translation: f.translation }),
    ],
  ],
  lens: [
    say("What each layer would say"),
    [],
    async (f) => {
      const steps = (await f.ask("lens", {})).slice(0, MOST); // (T, N) of { id, p }
      const cell = ({ id, p }) => ({ text: f.name([id])[0], share: p, title: percent(p) });
      const layers = steps[0].map((_, n) => [
        say("layer {layer}", { layer: n + 1 }),
        steps.map((step) => cell(step[n])),
      ]);
      const columns = steps.map((_, t) => `${t + 1}`);
      const table = wordTable(say("step"), columns, layers);
      return [
        scrolling(say("What each layer would say"), table),
        ...cutting(f.predicted),
        say(
          "The stronger the colour, the surer the layer. The last row is the translation, if the greedy choice is the beam’s.",
        ),
      ];
    },
  ],
  removed: [
    say("One head less"),
    ["whose", "kind"],
    async (f, { whose, kind }) => {
      const { whole, rows } = await f.ask("removed", {
          kind,
          ...(whose === "own" ? {} : { sentence: BREAKS }),
        }),
        changed = rows.filter(({ text }) => text !== whole);
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
    ["other", "step"],
    async (f, { other, step }) => {
      if (!other.trim()) return [say("Change one word in the second sentence.")];
      const { at, names, rows } = await f.ask("patch", { other, step: step < 0 ? null : step });
      const written = f.written.slice(1, at + 1).join(" ") || "<s>";
      const cells = ({ p }) => p.map((share) => ({ text: percent(share), share }));
      const table = wordTable(
        say("replaced"),
        f.name(names),
        rows.map((replaced) => [replacement(f, replaced), cells(replaced)]),
      );
      return [
        say(
          "At step {step}, after “{written}”, the output of these sublayers is taken from the second sentence:",
          { step: at + 1, written },
        ),
        scrolling(say("Attention from another sentence"), table),
        names[0] === names[1]
          ? say("Here both sentences go on with the same token; choose another step.")
          : say(
              "Left the token that this sentence wants, right the one that the second wants. Whoever moves the probability carries the difference.",
            ),
      ];
    },
  ],
};

function replacement({ config }, { kind, layers }) {
  if (!layers.length) return say("nothing");
  if (kind === "decoder") return say("self-attention of all layers (control)");
  if (layers.length === 1) return say("cross-attention of layer {layer}", { layer: layers[0] + 1 });
  if (layers.length === config.N) return say("cross-attention of all layers");
  return say("cross-attention of the last two layers");
}

// The decoder's weights for itself at a step; without the mask, after all steps.
const lookBack = (f, layer, head, q) =>
  f.steps.at(-1).whole?.[layer][q][head] ?? f.steps[q].decoder[layer][0][head];
