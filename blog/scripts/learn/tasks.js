// What a small model can learn in a tab: German numbers, letter by letter; copying; reversing.
// After the document's Part 2.
export const Tasks = (learn) => {
  const { BOS, EOS, generator } = learn;
  const ONES = [
    "null",
    "ein",
    "zwei",
    "drei",
    "vier",
    "fünf",
    "sechs",
    "sieben",
    "acht",
    "neun",
    "zehn",
    "elf",
    "zwölf",
    "dreizehn",
    "vierzehn",
    "fünfzehn",
    "sechzehn",
    "siebzehn",
    "achtzehn",
    "neunzehn",
  ];
  const TENS = [
    "",
    "",
    "zwanzig",
    "dreißig",
    "vierzig",
    "fünfzig",
    "sechzig",
    "siebzig",
    "achtzig",
    "neunzig",
  ];

  /** A number below 1000 in German words. */
  function german_number(n) {
    const [hundreds, rest] = [Math.floor(n / 100), n % 100];
    if (hundreds) return `${ONES[hundreds]}hundert${rest ? german_number(rest) : ""}`;
    if (n < 20) return n === 1 ? "eins" : ONES[n];
    return (n % 10 ? `${ONES[n % 10]}und` : "") + TENS[Math.floor(n / 10)];
  }

  const SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"];

  /** A task: its letters, pairs from texts, batches, and pairs that are never learned from. */
  function make(name, seed) {
    const random = generator(seed),
      below = (n) => Math.floor(random() * n),
      pick = (rows) => rows[below(rows.length)];
    const numbers = name === "numbers";
    const texts = numbers
      ? Array.from({ length: 1000 }, (_, n) => german_number(n) + n)
      : ["abcdefghij"];
    const letters = [...SPECIALS, ...[...new Set(texts.join(""))].sort()],
      ids = (text) => [...text].map((letter) => letters.indexOf(letter));
    const pair = (source, target) => ({
      source,
      target,
      src: [...ids(source), EOS],
      tgt: [BOS, ...ids(target), EOS],
    });
    if (numbers) {
      const large = Array.from({ length: 900 }, (_, i) => 100 + i);
      for (let i = large.length - 1; i > 0; i--) {
        const j = below(i + 1);
        [large[i], large[j]] = [large[j], large[i]];
      }
      const of = (n) => pair(german_number(n), String(n)),
        known = large.slice(180);
      const small = () => of(below(100)),
        big = () => of(pick(known));
      return {
        letters,
        of: (text) => (/^\d{1,3}$/.test(text) ? of(Number(text)) : null),
        held_out: large.slice(0, 180).map(of),
        batch: (n) => Array.from({ length: n }, (_, i) => (i < n / 4 ? small() : big())),
      };
    }
    const of = (text) => pair(text, name === "copy" ? text : [...text].reverse().join(""));
    const draw = () =>
      of(Array.from({ length: 3 + below(6) }, () => letters[SPECIALS.length + below(10)]).join(""));
    const held_out = Array.from({ length: 150 }, draw),
      held = new Set(held_out.map(({ source }) => source));
    const fresh = () => {
      let found;
      do found = draw();
      while (held.has(found.source));
      return found;
    };
    return {
      letters,
      of: (text) => (/^[a-j]{1,12}$/.test(text) ? of(text) : null),
      held_out,
      batch: (n) => Array.from({ length: n }, fresh),
    };
  }

  // --- a training ---

  const UPDATES = { numbers: 2500, copy: 500, reverse: 1200 },
    WARMUP = 100,
    D_MODEL = 16,
    FACTOR = 0.7;
  const PEAK = learn.rate(WARMUP, D_MODEL, FACTOR, WARMUP); // of the usual rate

  /** The rate of a step: Equation (3) times `rate`, and in the second half down to zero; without
   *  warmup, at the peak from the start. */
  const lr = (step, total, { warmup, rate }) =>
    rate *
    learn.rate(warmup ? step : Math.max(step, WARMUP), D_MODEL, FACTOR, WARMUP) *
    Math.min(1, 2 * (1 - step / total));

  /** A fresh model, its task, and what makes the next update: then the number of the update, the
   *  loss before it, and its rate. */
  function training(settings) {
    const total = UPDATES[settings.task],
      task = make(settings.task, settings.seed);
    const model = learn.make_model({
      vocab: task.letters.length,
      d_model: D_MODEL,
      d_ff: 2 * D_MODEL,
      ...settings,
    });
    function step() {
      const at = model.step + 1,
        rate = lr(at, total, settings);
      return [at, learn.update(model, task.batch(8), { lr: rate, shift: settings.shift }), rate];
    }
    /** What it writes for a pair, as names of letters; with the weights of the last layer's
     *  cross-attention. */
    function answer(pair, withMap) {
      const { ids, weights } = learn.greedy_decode(model, pair.src, pair.tgt.length),
        found = ids.map((i) => task.letters[i]);
      return { source: pair.source, target: pair.target, found, ...(withMap && { weights }) };
    }
    /** The share of what was held out that it gets right, and examples, those first that it gets
     *  wrong. */
    function score(shown) {
      const wrong = learn.wrong_ones(model, task.held_out),
        right = task.held_out.filter((_, i) => !wrong.includes(i));
      const examples = [...wrong.slice(0, shown).map((i) => task.held_out[i]), ...right].slice(
        0,
        shown,
      );
      return {
        exact: 1 - wrong.length / task.held_out.length,
        examples: examples.map((pair) => answer(pair)),
      };
    }
    return { task, model, total, step, answer, score };
  }
  /** Settings that leave out nothing. */
  const WHOLE = {
    warmup: true,
    positions: true,
    causal: true,
    shift: true,
    norms: true,
    residuals: true,
    h: 2,
    rate: 1,
  };

  return { PEAK, WHOLE, german_number, make, training };
};
