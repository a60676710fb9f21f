// Panels that show what the model computes for one sentence: `add(element, name)` puts the panel
// `name` into an element, and `follow(engine, sentence)` has all panels show another sentence.
// model/trace.js computes it.

import { largest, softmax } from "../model/tensors.js";
import * as Trust from "./trust.js";
import { gloss, interlinear } from "../page/gloss.js";
import { isolated, say, told } from "../page/language.js";

// --- how it is shown ---

export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}
export const code = (text) => el("code", {}, text);
export const percent = (p) => (100 * p).toFixed(1) + "%";
export const size = (vector) =>
  Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0) / vector.length);
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const three = (vector) =>
  code([...vector.slice(0, 3)].map((value) => value.toFixed(2)).join(" ") + " …");
// All numbers of a vector as colours, blue below zero and orange above it; strips with one `top`
// can be compared.
function strip(vector, top = Math.max(...vector.map(Math.abs))) {
  const canvas = el("canvas", {
    class: "panel-strip",
    width: vector.length,
    height: 1,
    role: "img",
    "aria-label": say("{count} numbers from {low} to {high}", {
      count: vector.length,
      low: Math.min(...vector).toFixed(2),
      high: Math.max(...vector).toFixed(2),
    }),
  });
  const image = new ImageData(vector.length, 1);
  vector.forEach((value, i) =>
    image.data.set(
      [
        ...(value < 0 ? [20, 110, 220] : [225, 115, 15]),
        255 * Math.min(1, Math.abs(value) / (top || 1)),
      ],
      4 * i,
    ),
  );
  canvas.getContext("2d").putImageData(image, 0, 0);
  canvas.addEventListener("pointermove", ({ offsetX }) => {
    const i = Math.max(
      0,
      Math.min(vector.length - 1, Math.floor((offsetX / canvas.clientWidth) * vector.length)),
    );
    canvas.title = say("number {n}: {value}", { n: i + 1, value: vector[i].toFixed(3) });
  });
  return canvas;
}
export const numbers = (vector, top) =>
  el("span", { class: "panel-numbers" }, strip(vector, top), three(vector));
const top = (...vectors) => Math.max(...vectors.map((vector) => Math.max(...vector.map(Math.abs))));
export const row = (name, value) => el("p", { class: "panel-row" }, el("span", {}, name), value);
const symbol = (letters, ...text) =>
  el(
    "span",
    { class: "panel-symbol", "data-symbol": letters, tabindex: "0" },
    ...(text.length ? text : letters),
  ); // which the page lights up in its formulas
export const bars = (entries, show = percent) => {
  const most = Math.max(...entries.map(([, value]) => value));
  return el(
    "div",
    { class: "panel-bars" },
    ...entries.flatMap(([name, value, strong]) => [
      el(strong ? "strong" : "span", {}, name),
      el("i", { style: `width:${Math.max(0.3, (100 * value) / most)}%` }),
      el("span", {}, show(value)),
    ]),
  );
};
const MOST = 40; // rows and columns of a map that are drawn
const cutting = (...lists) =>
  lists.some((list) => list.length > MOST)
    ? [say("Only the first {count} tokens of a long sentence are drawn.", { count: MOST })]
    : [];

// A map with words on its axes; `weight` from 0 to 1 colours a cell, null hides it; `chosen` is
// the cell that is looked into.
function heat(
  queries,
  keys,
  value,
  about,
  { weight = value, digits = 2, chosen = null, choose = null } = {},
) {
  const cell = (q, k) => {
    const shade = weight(q, k);
    if (shade === null)
      return el("td", {
        class: "hidden",
        title: say("{query} may not look at {key}", { query: queries[q], key: keys[k] }),
      });
    const text = value(q, k).toFixed(digits),
      node = el(
        "td",
        { style: `--w:${shade.toFixed(3)}`, title: `${queries[q]} → ${keys[k]}: ${text}` },
        digits < 2 ? text : shade >= 0.1 ? text.replace(/^0(?=\.)/, "") : "",
      );
    if (chosen?.[0] === q && chosen[1] === k) node.className = "chosen";
    return node;
  };
  const [some, others] = [queries, keys].map((list) => list.slice(0, MOST));
  const head = el(
    "tr",
    {},
    el("td"),
    ...others.map((key) => el("th", { scope: "col" }, el("span", {}, key))),
  );
  const body = some.map((query, q) =>
    el("tr", {}, el("th", { scope: "row" }, query), ...others.map((_, k) => cell(q, k))),
  );
  const table = el(
    "table",
    { class: "panel-heat" },
    el("thead", {}, head),
    el("tbody", {}, ...body),
  );
  if (choose)
    table.addEventListener("click", ({ target }) => {
      const td = target.closest("tbody td");
      if (td) choose(td.parentElement.rowIndex - 1, td.cellIndex - 1);
    });
  return el(
    "div",
    {
      class: choose ? "panel-scroll touched" : "panel-scroll",
      tabindex: "0",
      role: "group",
      "aria-label": about,
    },
    table,
  );
}

// Where a weight comes from: query, key, their products, the sum, its part of √d_k, and the
// softmax of the row.
function causes(f, layer, head, q, k) {
  const { queries, keys, scores, weights } = f.layers[layer],
    width = queries[0].length / f.config.h;
  const part = (vector) => vector.slice(head * width, (head + 1) * width),
    [query, key] = [part(queries[q]), part(keys[k])];
  const products = query.map((value, i) => value * key[i]),
    sum = dot(query, key),
    scale = top(query, key),
    shown = largest(weights[head][q], 6);
  const powers = scores[head][q].map((score) => Math.exp(score - Math.max(...scores[head][q]))),
    listed = shown.includes(k) ? shown : [...shown.slice(0, 5), k];
  return el(
    "div",
    { class: "panel-causes" },
    el(
      "p",
      {},
      el(
        "strong",
        {},
        say("Where the weight {weight} comes from: “{query}” looks at “{key}”", {
          weight: weights[head][q][k].toFixed(3),
          query: f.source[q],
          key: f.source[k],
        }),
      ),
    ),
    row(el("span", {}, ...told("query {Q}", { Q: symbol("Q") })), numbers(query, scale)),
    row(el("span", {}, ...told("key {K}", { K: symbol("K") })), numbers(key, scale)),
    row(say("{count} products", { count: width }), numbers(products)),
    row(say("their sum"), code(sum.toFixed(2))),
    ...(f.switches?.scaling === false
      ? []
      : [
          row(
            say("divided by √{width}", { width }),
            code(
              `${sum.toFixed(2)} / ${Math.sqrt(width).toFixed(2)} = ${scores[head][q][k].toFixed(2)}`,
            ),
          ),
        ]),
    row(
      say("softmax of the row"),
      code(
        `e^${scores[head][q][k].toFixed(2)} / ${say("sum over all keys")} = ${powers[k].toFixed(3)} / ${powers.reduce((a, b) => a + b, 0).toFixed(3)} = ${weights[head][q][k].toFixed(3)}`,
      ),
    ),
    bars(
      listed.map((i) => [
        `${f.source[i]} (${scores[head][q][i].toFixed(2)})`,
        weights[head][q][i],
        i === k,
      ]),
    ),
    say("In brackets the scores of this row, the largest first; the bars are the weights."),
  );
}

// The beam as a tree: a column for each step, a line from each token to those that continue it.
function tree({ nodes, best, name }) {
  const way = new Set(),
    columns = [];
  for (let at = best; at !== null; at = nodes[at].parent) way.add(at);
  nodes.forEach((node, i) => (columns[node.step] ??= []).push(i));
  const place = [];
  columns.forEach((column, step) =>
    column.forEach((i, y) => {
      place[i] = [84 * step + 4, 20 * y + 14];
    }),
  );
  const shape = (tag, attributes, ...text) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    node.append(...text);
    return node;
  };
  const height = 20 * Math.max(...columns.map((column) => column.length)) + 6,
    width = 84 * columns.length;
  const lines = nodes.flatMap(({ parent }, i) => {
    if (parent === null) return [];
    const [[x, y], [z, w]] = [place[parent], place[i]];
    return [
      shape("path", {
        d: `M${x + 60} ${y - 4}C${x + 72} ${y - 4} ${z - 18} ${w - 4} ${z - 4} ${w - 4}`,
        class: way.has(i) ? "way" : "",
      }),
    ];
  });
  const labels = nodes.map(({ id, logP, score }, i) =>
    shape(
      "text",
      { x: place[i][0], y: place[i][1], class: way.has(i) ? "way" : "" },
      shape(
        "title",
        {},
        score === undefined
          ? say("log-probability {logP}", { logP: logP.toFixed(2) })
          : say("log-probability {logP}, score {score}", {
              logP: logP.toFixed(2),
              score: score.toFixed(2),
            }),
      ),
      name([id])[0].slice(0, 7),
    ),
  );
  const svg = shape(
    "svg",
    {
      width,
      height,
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": say("The beam as a tree"),
    },
    ...lines,
    ...labels,
  );
  return el(
    "div",
    {
      class: "panel-scroll panel-tree",
      tabindex: "0",
      role: "group",
      "aria-label": say("The beam as a tree"),
    },
    svg,
  );
}

// --- the panels: a title, what can be chosen, and what to show ---

const KINDS = {
  encoder: say("encoder self-attention"),
  decoder: say("decoder self-attention"),
  cross: say("cross-attention"),
};
const CHOICES = {
  layer: say("layer"),
  head: say("head"),
  token: say("token"),
  key: say("looks at"),
  step: say("step"),
  kind: say("attention"),
  temperature: say("temperature"),
  whose: say("sentence"),
  other: say("second sentence"),
};
const BREAKS = "Ein kleiner Junge spielt im Park mit einem Hund."; // many heads are missed here
const PANELS = {
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
      const found = (await f.ask("lens", {})).slice(0, MOST),
        layers = found[0].map((_, n) => n);
      const cells = (n) =>
        found.map((steps) =>
          el(
            "td",
            { style: `--w:${(0.6 * steps[n].p).toFixed(2)}`, title: percent(steps[n].p) },
            f.name([steps[n].id])[0],
          ),
        );
      const head = el(
        "tr",
        {},
        el("th", { scope: "col" }, say("step")),
        ...found.map((_, t) => el("th", { scope: "col" }, `${t + 1}`)),
      );
      const table = el(
        "table",
        { class: "panel-heat words" },
        el("thead", {}, head),
        el(
          "tbody",
          {},
          ...layers.map((n) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, say("layer {layer}", { layer: n + 1 })),
              ...cells(n),
            ),
          ),
        ),
      );
      return [
        el(
          "div",
          {
            class: "panel-scroll",
            tabindex: "0",
            role: "group",
            "aria-label": say("What each layer would say"),
          },
          table,
        ),
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
    async (f, { other, step }, choose) => {
      if (!other.trim()) return [say("Change one word in the second sentence.")];
      const { at, names, rows } = await f.ask("patch", { other, step: step < 0 ? null : step });
      const label = ({ kind, layers }) =>
        !layers.length
          ? say("nothing")
          : kind === "decoder"
            ? say("self-attention of all layers (control)")
            : layers.length === 1
              ? say("cross-attention of layer {layer}", { layer: layers[0] + 1 })
              : layers.length === f.config.N
                ? say("cross-attention of all layers")
                : say("cross-attention of the last two layers");
      const table = el(
        "table",
        { class: "panel-heat words" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col" }, say("replaced")),
            ...f.name(names).map((name) => el("th", { scope: "col" }, name)),
          ),
        ),
        el(
          "tbody",
          {},
          ...rows.map((one) =>
            el(
              "tr",
              {},
              el("th", { scope: "row" }, label(one)),
              ...one.p.map((p) => el("td", { style: `--w:${(0.6 * p).toFixed(2)}` }, percent(p))),
            ),
          ),
        ),
      );
      return [
        say(
          "At step {step}, after “{written}”, the output of these sublayers is taken from the second sentence:",
          { step: at + 1, written: f.written.slice(1, at + 1).join(" ") || "<s>" },
        ),
        el(
          "div",
          {
            class: "panel-scroll",
            tabindex: "0",
            role: "group",
            "aria-label": say("Attention from another sentence"),
          },
          table,
        ),
        names[0] === names[1]
          ? say("Here both sentences go on with the same token; choose another step.")
          : say(
              "Left the token that this sentence wants, right the one that the second wants. Whoever moves the probability carries the difference.",
            ),
      ];
    },
  ],
};
const SWAPS = {
  Frauen: "Kinder",
  Männer: "Frauen",
  Mann: "Junge",
  Junge: "Mann",
  Hund: "Ball",
  Frau: "Katze",
  Kinder: "Hunde",
};

// of every panel: `draw` it if it is not drawn, and draw it `again` if it is seen
const shown = [];
// { engine, sentence, facts }: what the model found is asked for when a panel is seen
let followed = null;

export async function look(of) {
  const { engine, sentence, switches } = of,
    { tokenizer } = engine,
    name = (ids) => ids.map((id) => isolated(tokenizer.spell(tokenizer.pieces[id])));
  const f = await (of.facts ??= engine.ask("facts", { sentence, switches }));
  return {
    ...f,
    config: engine.config,
    switches,
    pieces: tokenizer.pieces,
    name,
    source: name(f.src),
    written: name(f.ids.slice(0, -1)),
    predicted: name(f.ids.slice(1)),
    ask: (what, asked) => engine.ask(what, { sentence, switches, ...asked }),
  };
}

// The choices of a panel with their names, for this sentence.
function choices(what, f) {
  const { N, h } = f.config,
    count = (n) => Array.from({ length: n }, (_, i) => [i, `${i + 1}`]),
    tokens = f.source.map((name, t) => [t, name]);
  return {
    layer: count(N),
    head: count(h),
    token: tokens,
    key: tokens,
    step: f.predicted.map((name, t) => [t, `${t + 1}: ${name}`]),
    kind: Object.entries(KINDS).reverse(),
    whose: [
      ["breaks", BREAKS],
      ["own", say("the sentence that you follow")],
    ],
  }[what];
}

// The decoder's weights for itself at a step; without the mask, after all steps.
const lookBack = (f, layer, head, q) =>
  f.steps.at(-1).whole?.[layer][q][head] ?? f.steps[q].decoder[layer][0][head];

// Panels of one place have one layer and one head; `first` has what the text beside the panel
// speaks of.
export function add(host, name, first = {}) {
  const [title, wanted, draw] = PANELS[name],
    body = el("div", { class: "panel-body" }),
    selects = {},
    line = el("p", { class: "panel-choices" });
  const whose = el("span", { class: "panel-whose" });
  host.append(
    el(
      "figure",
      { class: "sentence-panel", "data-panel": name },
      el("figcaption", {}, title, " ", whose),
      line,
      body,
    ),
  );
  const common = (host.chosen ??= {});
  for (const [what, value] of Object.entries(first)) common[what] ??= `${value}`;
  body.ariaBusy = "true"; // until it shows the sentence that is followed
  let seen = false,
    turn = 0;
  const redraw = () => {
    for (const panel of shown) if (panel.host === host) panel.again();
  };
  for (const what of wanted) {
    selects[what] =
      what === "temperature"
        ? el("input", { type: "range", min: 1, max: 30, value: 10 })
        : what === "other"
          ? el("input", { type: "text", size: 36, dir: "auto" })
          : el("select"); // in tenths
    selects[what].setAttribute("aria-label", `${title}: ${CHOICES[what]}`);
    selects[what].addEventListener(what === "other" ? "change" : "input", () => {
      common[what] = selects[what].value;
      redraw();
    });
    line.append(el("label", {}, `${CHOICES[what]} `, selects[what]));
  }
  async function show() {
    const mine = (turn += 1),
      of = followed;
    if (!of) return;
    const f = await look(of),
      chosen = {};
    for (const what of wanted) {
      if (what === "temperature") {
        chosen[what] = Number(selects[what].value);
        continue;
      }
      if (what === "other") {
        let swapped = false; // one word only
        const swap = (word) =>
          swapped || !Object.hasOwn(SWAPS, word) ? word : ((swapped = true), SWAPS[word]);
        if (common.follows !== f.sentence)
          [common.follows, selects.other.value] = [
            f.sentence,
            f.sentence.replace(/\p{L}+/gu, swap),
          ];
        chosen.other = selects.other.value === f.sentence ? "" : selects.other.value;
        continue;
      }
      const list = choices(what, f),
        last = list.length - 1;
      if (name === "patch" && what === "step") list.unshift([-1, say("the first that differs")]);
      const most =
        what === "key"
          ? largest(f.layers[chosen.layer].weights[chosen.head][chosen.token], 1)[0]
          : 0;
      const start =
        {
          token: Math.min(2, last),
          key: most,
          step: name === "patch" ? -1 : Math.min(3, last),
          layer: name === "cross" ? last : 0,
          head: Math.min(1, last),
        }[what] ?? list[0][0];
      const before = common[what] ?? ((what !== "key" && selects[what].value) || `${start}`);
      selects[what].replaceChildren(...list.map(([value, text]) => el("option", { value }, text)));
      selects[what].value = list.some(([value]) => `${value}` === before) ? before : start;
      chosen[what] = ["kind", "whose"].includes(what)
        ? selects[what].value
        : Number(selects[what].value);
    }
    const parts = await draw(f, chosen, (changes) => {
      Object.assign(
        common,
        Object.fromEntries(Object.entries(changes).map(([what, value]) => [what, `${value}`])),
      );
      redraw();
    });
    if (mine !== turn) return; // something else has been asked for meanwhile
    const about = name === "removed" && chosen.whose !== "own" ? BREAKS : f.sentence;
    whose.replaceChildren(
      ...told("of “{sentence}”", {
        sentence: el(
          "span",
          {},
          ...interlinear(
            about.length > 90 && !gloss(about).length ? `${about.slice(0, 88)}…` : about,
          ),
        ),
      }),
    );
    body.replaceChildren(
      ...parts.map((part) => (typeof part === "string" ? el("p", {}, part) : part)),
    );
    body.ariaBusy = "false";
  }
  const safely = () =>
    show().catch((error) => {
      if (error.name !== "AbortError") body.replaceChildren(el("p", {}, error.message));
    });
  new IntersectionObserver(
    (entries) => {
      // what nobody sees is not computed
      seen = entries.at(-1).isIntersecting;
      if (seen && body.ariaBusy === "true") safely();
    },
    { rootMargin: "300px" },
  ).observe(body);
  shown.push({
    host,
    draw: () => body.ariaBusy === "false" || safely(),
    again: () => {
      body.ariaBusy = "true";
      if (seen) safely();
    },
  });
}

export function follow(engine, sentence, switches) {
  if (!sentence.trim()) return;
  followed = { engine, sentence, switches };
  for (const { again } of shown) again();
}
export const drawn = () => Promise.all(shown.map(({ draw }) => draw()));
globalThis.addEventListener?.("beforeprint", drawn); // on paper, all of them

export const names = Object.keys(PANELS);
