// Small figures that one can touch. Each stands behind the section of a heading and computes what
// it shows.

import { say } from "../page/language.js";

export function startToys() {
  const SVG = "http://www.w3.org/2000/svg";

  /** A figure behind the first section of a heading: sliders, a picture that `draw` makes of their
   *  values, a caption. */
  function toy(heading, sliders, draw, caption) {
    const section = document.getElementById(heading)?.closest("section");
    if (!section) return;
    const figure = document.createElement("figure"),
      picture = document.createElement("div"),
      row = document.createElement("div");
    figure.className = "toy";
    row.className = "learn-row";
    const inputs = sliders.map(({ name, min, max, value, show = String }) => {
      const label = document.createElement("label"),
        input = document.createElement("input"),
        output = document.createElement("output");
      Object.assign(input, { type: "range", min, max, value });
      input.addEventListener("input", update);
      label.append(`${name} `, input, " ", output);
      row.append(label);
      return { input, output, show };
    });
    const text = document.createElement("figcaption");
    text.textContent = caption;
    figure.append(row, picture, text);
    const next = section.nextElementSibling;
    if (next?.matches(".awaiting"))
      next.append(figure); // it belongs to what waits for a prediction
    else section.after(figure);
    function update() {
      for (const { input, output, show } of inputs) output.textContent = show(Number(input.value));
      picture.replaceChildren(draw(...inputs.map(({ input }) => Number(input.value))));
    }
    update();
  }

  /** An SVG element with attributes and content. */
  function shape(kind, attributes, ...content) {
    const element = document.createElementNS(SVG, kind);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...content);
    return element;
  }
  const picture = (width, height, label, ...content) =>
    // on a phone it scrolls: its letters of 11 px would become too small
    shape(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        width,
        height,
        style: `min-width: ${0.9 * width}px`,
        role: "img",
        "aria-label": label,
      },
      ...content,
    );
  const words = (x, y, text, extra = {}) =>
    shape(
      "text",
      { x, y, "font-size": 11, "text-anchor": "middle", fill: "var(--muted)", ...extra },
      text,
    );

  // --- positions as hands of clocks ---

  const d = 16,
    angle = (p, i) => p / 10000 ** ((2 * i) / d);
  toy(
    "positions-section-3-5",
    [
      { name: say("position"), min: 0, max: 48, value: 5 },
      { name: say("and"), min: 0, max: 48, value: 8 },
    ],
    (p, q) => {
      const clocks = Array.from({ length: d / 2 }, (_, i) => {
        const x = 34 + 66 * i,
          hand = (at, colour, width) =>
            shape("line", {
              x1: x,
              y1: 34,
              x2: x + 24 * Math.sin(angle(at, i)),
              y2: 34 - 24 * Math.cos(angle(at, i)),
              stroke: colour,
              "stroke-width": width,
              "stroke-linecap": "round",
            });
        return [
          shape("circle", { cx: x, cy: 34, r: 27, fill: "none", stroke: "var(--rule)" }),
          hand(q, "light-dark(#b35900, #ffa657)", 2),
          hand(p, "var(--link)", 3),
          words(x, 76, `${2 * i}, ${2 * i + 1}`),
        ];
      }).flat();
      const score = Array.from({ length: d / 2 }, (_, i) => Math.cos(angle(p - q, i))).reduce(
        (sum, c) => sum + c,
        0,
      );
      return picture(
        530,
        104,
        say("Eight clocks with hands for the positions {p} and {q}", { p, q }),
        ...clocks,
        words(
          265,
          99,
          say("dot product: {score}, the same for any two positions that are {distance} apart", {
            score: score.toFixed(2),
            distance: Math.abs(p - q),
          }),
        ),
      );
    },
    say(
      "Sine and cosine of a pair of dimensions are the tip of a clock's hand. The left clocks turn fast, the right ones hardly at all; 16 dimensions, blue and orange.",
    ),
  );

  // --- why the scores are divided ---

  function normals(n, seed) {
    // the same random numbers every time
    const next = () => (seed = (seed * 16807) % 2147483647) / 2147483647;
    return Array.from(
      { length: n },
      () => Math.sqrt(-2 * Math.log(next())) * Math.cos(2 * Math.PI * next()),
    );
  }
  const softmax = (scores) => {
    const highest = Math.max(...scores),
      powers = scores.map((s) => Math.exp(s - highest)),
      total = powers.reduce((sum, e) => sum + e, 0);
    return powers.map((e) => e / total);
  };
  const drawn = {}; // for each power of two
  function scores(draws, d_k) {
    // in each draw, those of eight keys
    const numbers = normals(draws * 9 * d_k, 12345678),
      vector = (at) => numbers.slice(at * d_k, (at + 1) * d_k);
    return Array.from({ length: draws }, (_, at) => {
      const query = vector(9 * at);
      return Array.from({ length: 8 }, (_, j) =>
        vector(9 * at + 1 + j).reduce((sum, k, i) => sum + k * query[i], 0),
      );
    });
  }
  toy(
    "scaled-dot-product-attention-section-3-2-1",
    [{ name: "d_k =", min: 0, max: 9, value: 6, show: (n) => String(2 ** n) }],
    (n) => {
      const d_k = 2 ** n,
        draws = (drawn[n] ??= scores(100, d_k));
      const mean = (divisor) =>
        draws
          .map((scores) => softmax(scores.map((s) => s / divisor)).sort((a, b) => b - a))
          .reduce(
            (sums, weights) => sums.map((sum, j) => sum + weights[j] / draws.length),
            Array(8).fill(0),
          );
      const group = (values, x, title) => [
        words(x + 112, 12, title),
        ...values.flatMap((w, j) => [
          shape("rect", {
            x: x + 28 * j,
            y: 110 - 86 * w,
            width: 22,
            height: 86 * w + 0.5,
            fill: "var(--link)",
          }),
          words(x + 28 * j + 11, 124, w.toFixed(2)),
        ]),
      ];
      return picture(
        500,
        130,
        say("Weights of eight random keys of width {d_k}, without and with the division", { d_k }),
        ...group(mean(1), 8, say("softmax of the dot products")),
        ...group(mean(Math.sqrt(d_k)), 268, say("divided by √d_k before")),
      );
    },
    say(
      "Eight random keys compete for a random query: their weights, the largest first, in the mean of a hundred draws. Without the division, one key takes nearly all the weight as d_k grows.",
    ),
  );

  // --- a row cut into heads ---

  toy(
    "multi-head-attention-section-3-2-2",
    [{ name: "h =", min: 0, max: 5, value: 3, show: (n) => String(2 ** n) }],
    (n) => {
      const h = 2 ** n,
        width = 512 / h;
      return picture(
        530,
        70,
        say("A vector of 512 numbers cut into {h} heads of {width}", { h, width }),
        ...Array.from({ length: h }, (_, i) => [
          shape("rect", {
            x: 8 + (512 / h) * i,
            y: 8,
            width: width - (h > 1 ? 2 : 0),
            height: 26,
            fill: i % 2 ? "light-dark(#7fb0e6, #3b74ad)" : "light-dark(#cfe3fb, #23486f)",
          }),
          ...(h <= 16
            ? [words(8 + width * (i + 0.5), 25, String(i + 1), { fill: "var(--ink)" })]
            : []),
        ]).flat(),
        words(264, 56, say("d_k = 512 / {h} = {width}", { h, width })),
      );
    },
    say(
      "A query of the base model, cut into heads: the more there are, the narrower each of them is.",
    ),
  );

  // --- the target of label smoothing ---

  const TOKENS = ["<pad>", "a", "bench", "dog", "man", "reads", "the", "woman"];
  toy(
    "regularisation-section-5-4",
    [
      { name: "ε =", min: 0, max: 50, value: 10, show: (n) => (n / 100).toFixed(2) },
      { name: say("right token"), min: 1, max: 7, value: 5, show: (n) => TOKENS[n] },
    ],
    (n, right) => {
      const eps = n / 100,
        q = TOKENS.map((_, k) => (k === 0 ? 0 : eps / 7 + (k === right ? 1 - eps : 0)));
      return picture(
        480,
        140,
        say("The smoothed target over eight tokens for ε = {eps}", { eps: eps.toFixed(2) }),
        ...q.flatMap((share, k) => [
          shape("rect", {
            x: 12 + 58 * k,
            y: 106 - 90 * share,
            width: 44,
            height: 90 * share + 0.5,
            fill: k === right ? "light-dark(#e08a2b, #ffa657)" : "var(--link)",
          }),
          words(34 + 58 * k, 100 - 90 * share, share.toFixed(3)),
          words(34 + 58 * k, 122, TOKENS[k], { fill: "var(--ink)" }),
        ]),
      );
    },
    say(
      "The distribution that the model should give, in a vocabulary of eight tokens. Padding is never right.",
    ),
  );

  // --- keys and values that are kept ---

  toy(
    "keeping-keys-and-values",
    [{ name: say("step"), min: 1, max: 6, value: 3 }],
    (step) => {
      const grid = (x, title, cached) => [
        words(x + 78, 12, title),
        ...Array.from({ length: 6 }, (_, j) => {
          const made = j < step && (!cached || j === step - 1),
            fill = made
              ? "light-dark(#e08a2b, #ffa657)"
              : j < step
                ? "light-dark(#7fb0e6, #3b74ad)"
                : "none";
          return [
            shape("rect", {
              x: x + 26 * j,
              y: 20,
              width: 22,
              height: 22,
              fill,
              stroke: "var(--rule)",
            }),
            words(x + 26 * j + 11, 56, String(j + 1)),
          ];
        }).flat(),
        words(
          x + 78,
          74,
          say("computed in all steps so far: {count}", {
            count: cached ? step : (step * (step + 1)) / 2,
          }),
        ),
      ];
      return picture(
        420,
        80,
        say("Which keys and values step {step} computes and which it reads", { step }),
        ...grid(10, say("every step anew"), false),
        ...grid(240, say("with a cache"), true),
      );
    },
    say("Orange: a key and a value that this step computes. Blue: one that it finds in the cache."),
  );

  // --- a softmax that runs over tiles ---

  const SCORES = [2, 0, 5, 1, 3, 4];
  toy(
    "fused-attention-tile-by-tile",
    [{ name: say("tiles read"), min: 1, max: 3, value: 1 }],
    (tiles) => {
      let [m, sum] = [-Infinity, 0],
        lines = [];
      for (let t = 0; t < tiles; t++) {
        const tile = SCORES.slice(2 * t, 2 * t + 2),
          higher = Math.max(m, ...tile),
          kept = sum * Math.exp(m - higher),
          added = tile.reduce((s, x) => s + Math.exp(x - higher), 0);
        lines.push(
          `${say("tile {n}", { n: t + 1 })}: m = ${higher}, ℓ = ${t ? `${sum.toFixed(3)} · e^(${m - higher}) + ${added.toFixed(3)} = ` : ""}${(kept + added).toFixed(3)}`,
        );
        [m, sum] = [higher, kept + added];
      }
      const all = SCORES.slice(0, 2 * tiles).reduce((s, x) => s + Math.exp(x - m), 0);
      return picture(
        440,
        120,
        say("The running softmax after {tiles} tiles", { tiles }),
        ...SCORES.flatMap((score, j) => [
          shape("rect", {
            x: 30 + 34 * j + 10 * Math.floor(j / 2),
            y: 6,
            width: 30,
            height: 24,
            fill: j < 2 * tiles ? "light-dark(#cfe3fb, #23486f)" : "none",
            stroke: "var(--rule)",
          }),
          words(45 + 34 * j + 10 * Math.floor(j / 2), 22, String(score), { fill: "var(--ink)" }),
        ]),
        ...lines.map((line, i) => words(30, 50 + 18 * i, line, { "text-anchor": "start" })),
        words(
          30,
          50 + 18 * tiles,
          say("{count} scores at once: {sum}", { count: 2 * tiles, sum: all.toFixed(3) }),
          { "text-anchor": "start" },
        ),
      );
    },
    say(
      "Six scores in tiles of two. The largest score and the sum relative to it are all that is kept.",
    ),
  );
}
