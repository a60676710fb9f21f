// The worker of the editors: what is asked, what is right, and what comes out with a mistake of
// practice/mistakes. MicroPython, whose script comes before this, makes `loadMicroPython`.

import { attention } from "./attention.js";
import { CachedDecoder, greedyDecode } from "./decoding.js";
import { positionalEncoding } from "./layers.js";
import { softmax, unpack } from "./tensors.js";
import { BOS, EOS, PAD } from "./tokeniser.js";
import { Translator } from "./translator.js";

const rows = (x) => x.map((row) => [...row]),
  map2 = (x, f) => x.map((row, i) => row.map((value, j) => f(value, i, j)));
const product = (A, B) =>
  A.map((row) => B[0].map((_, j) => row.reduce((sum, a, k) => sum + a * B[k][j], 0)));
const turned = (A) => A[0].map((_, j) => A.map((row) => row[j]));
// The reader's code with what MicroPython doesn't read spelled as it does, on the same lines:
// row[::2] = x as _strided(row)[::2] = x, z.__getitem__ as a lambda, no / among parameters. If
// it still can't be compiled, [*ids, best] may be why: it becomes _list(*ids, best).
function spelled(code, displays) {
  const literals = [];
  let text = code.replace(
    /#.*|("""|''')[^]*?\1|(["'])(?:\\[^]|(?!\2)[^\\\n])*\2/g,
    (literal) => (literals.push(literal), "\u0001"),
  );
  text = text
    .replace(/,\s*\/(?=\s*[,)])/g, "")
    .replace(/([A-Za-z_][\w.]*)\.__getitem__\b/g, "(lambda _key: $1[_key])")
    .replace(
      /(^\s*|[;:,=]\s*)([A-Za-z_][\w.]*(?:\[[^[\]:\n]*\])*)(?=\[[^[\]\n]*:[^[\]\n]*:[^[\]\n]*\](?:\s*,[^=\n]*)?\s*=(?!=))/gm,
      "$1_strided($2)",
    );
  const marks = [...text],
    open = [];
  if (displays)
    for (const [at, mark] of [...text].entries()) {
      const before = text.slice(0, at),
        after = text.slice(at + 1);
      if ("([{".includes(mark)) {
        const call =
          /[\w)\]\u0001]\s*$/.test(before) &&
          !/\b(?:return|yield|in|and|or|not|if|elif|else|is|assert|while|from)\s*$/.test(before);
        open.push({ at, call: call && mark !== "{", stars: false });
      } else if (mark === "*" && open.length && /[([{,]\s*$/.test(before)) {
        const last = open.at(-1);
        // not a parameter, and not the target of a loop
        last.stars ||=
          marks[at + 1] !== "*" &&
          !/\b(?:lambda|for)\b(?:(?!:|\bin\b)[^])*$/.test(text.slice(last.at, at));
      } else if (")]}".includes(mark) && open.length) {
        const { at: start, call, stars } = open.pop();
        const target =
          /^[\s\])]*=(?!=)/.test(after) ||
          (/^[\s\])]*in\b/.test(after) && /\bfor\s(?:(?!\bin\b)[^:])*$/.test(text.slice(0, start)));
        if (!stars || call || target) continue;
        marks[start] = { "[": "_list(", "(": "_tuple(", "{": "_set(" }[text[start]];
        marks[at] = ")";
      }
    }
  return marks.join("").replace(/\u0001/g, () => literals.shift());
}

let run,
  translator,
  progress = () => {};
// the page has a sentence for it
const refuse = (name, about = "") => new Error(`told: ${name} ${about}`);
function call(name, asked, scores) {
  // what the reader's function gives; numbers that aren't finite become NaN
  const given = {
    _asked: JSON.stringify(asked),
    _scores: (ids) => JSON.stringify(scores(JSON.parse(ids))),
  };
  const text = run(
    `_given = json.loads(_asked)\n_found = json.dumps(_mine["${name}"](${scores ? "lambda ids: json.loads(_scores(json.dumps(ids))), " : ""}*_given))`,
    given,
  );
  if (text === "null") throw refuse("nothing");
  const number = (_, value) => {
    if (value !== null && !["number", "boolean"].includes(typeof value) && !Array.isArray(value))
      throw 0;
    return value ?? NaN;
  };
  try {
    return JSON.parse(text.replace(/-?\binf\b|\bnan\b/g, "null"), number);
  } catch {
    throw refuse("things");
  }
}
const first = () => translator.model.encoder.layers[0],
  embedded = (src) => translator.model.embed(translator.model.src_embed, src);

// Equation (1) of the live model, and the same with one thing changed; so with the others.
const right = ([Q, K, V, mask]) =>
  Q.map((q, t) => [
    ...attention(
      q,
      K,
      V,
      0,
      q.length,
      0,
      V[0].length,
      mask && new Set(K.map((_, s) => s).filter((s) => !mask[t][s])),
    ).output,
  ]);
const wrong =
  ({
    scale = (d) => d ** -0.5,
    hide = (s, m) => (m ? s : -Infinity),
    norm = softmax,
    columns = false,
    after = false,
  }) =>
  ([Q, K, V, mask]) => {
    const masked = (x, f) => (mask ? map2(x, (value, t, k) => f(value, mask[t][k])) : x),
      turn = columns ? turned : (A) => A;
    const scores = map2(product(Q, turned(K)), (s) => s * scale(K[0].length, K.length));
    const weights = turn(turn(after ? scores : masked(scores, hide)).map((row) => [...norm(row)]));
    return product(after ? masked(weights, (w, m) => w * m) : weights, V);
  };
const pairwise = (i, d) => (i - (i % 2)) / d,
  range = (length, f) => Array.from({ length }, (_, i) => f(i));
const waves =
  (exponent, { start = 0, order = (i) => i, base = 10000, odd = Math.cos } = {}) =>
  ([length, d]) =>
    range(length, (p) =>
      range(d, (at) => {
        const i = order(at, d),
          angle = (p + start) / base ** exponent(i, d);
        return i % 2 ? odd(angle) : Math.sin(angle);
      }),
    );
const mean = (row) => row.reduce((a, b) => a + b, 0) / row.length;
const scaled = (value, gain, bias) => gain * value + bias;
const normed =
  ({
    less = 0,
    inside = 1e-5,
    outside = 0,
    centre = mean,
    last = scaled,
    root = Math.sqrt,
    of = mean,
    among = (row) => row,
  }) =>
  ([x, gain, bias]) =>
    x.map((row) => {
      const all = among(row, x),
        m = centre(all),
        size =
          root(
            (of(all.map((value) => (value - m) ** 2)) * all.length) / (all.length - less) + inside,
          ) + outside;
      return row.map((value, i) => last((value - m) / size, gain[i], bias[i]));
    });
// the document's q
const evenly = (right, k, pad, s, count) => (k === pad ? 0 : right * (1 - s) + s / (count - 1));
const pull =
  ({ share = evenly, force = (p, q) => p - q, padding = () => 0, over = () => 1 }) =>
  ([logits, target, smoothing, pad]) =>
    logits.map((row, t) =>
      [...softmax(row)].map((p, k) => {
        const q = share(k === target[t], k, pad, smoothing, row.length);
        return (
          (target[t] === pad
            ? padding(p, q, (k === pad) * (1 - smoothing) + q)
            : force(p, q, row[k])) / over(target, pad)
        );
      }),
    );
const triangle =
  (sees, all = false) =>
  ([src, tgt, pad]) => [
    [src.map((id) => all || id !== pad)],
    tgt.map((query, t) => tgt.map((id, k) => sees(t, k, id !== pad, query !== pad))),
  ];
// The ids that the live model writes, and those of a loop with one thing changed.
const sentences = {},
  written = (src) => (sentences[src] ??= greedyDecode(translator.model, src).slice(1));
const loop =
  ({ best = Math.max, read = (ids) => ids }) =>
  ([bos, , longest], src) => {
    const next = scores(src),
      ids = [bos];
    while (ids.length <= longest && ids.at(-1) !== EOS) {
      const z = next(read(ids));
      ids.push(z.indexOf(best(...z)));
    }
    return ids.slice(1);
  };

const GATES = {
  attention: {
    cases(src) {
      const { self_attn, sublayer } = first(),
        x = sublayer[0].norm.forward(embedded(src)),
        { keys, values } = self_attn.keysValues(x),
        width = keys[0].length / self_attn.h;
      const [Q, K, V] = [self_attn.queries(x), keys, values].map((y) =>
        y.map((row) => [...row.slice(width, 2 * width)]),
      ); // of the second head
      return [
        [Q, K, V, null],
        [Q, K, V, Q.map((_, t) => K.map((_, s) => s <= t))],
      ];
    },
    right,
    wrong: {
      not_scaled: wrong({ scale: () => 1 }),
      scaled_by_d_k: wrong({ scale: (d) => 1 / d }),
      scaled_by_length: wrong({ scale: (d, length) => length ** -0.5 }),
      multiplied_by_root: wrong({ scale: Math.sqrt }),
      softmax_over_queries: wrong({ columns: true }),
      no_softmax: wrong({ hide: (s, m) => s * m, norm: (row) => row }),
      mask_the_other_way_round: [-1e9, -Infinity].map((low) =>
        wrong({ hide: (s, m) => (m ? low : s) }),
      ),
      mask_after_softmax: wrong({ after: true }),
      mask_ignored: wrong({ hide: (s) => s }),
      mask_added: wrong({ hide: (s, m) => s + m }),
      mask_times_scores: wrong({ hide: (s, m) => s * m }),
    },
  },
  positions: {
    cases: (src) => [
      [src.length, translator.model.config.d_model],
      [3, 6],
    ],
    right: ([length, d]) => range(length, (p) => [...positionalEncoding(p, d)]),
    wrong: {
      sines_then_cosines: waves(pairwise, {
        order: (i, d) => (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1),
      }),
      positions_from_one: waves(pairwise, { start: 1 }),
      cosine_with_its_own_frequency: waves((i, d) => i / d),
      frequency_of_half_the_exponent: waves((i, d) => pairwise(i, d) / 2),
      frequency_of_twice_the_exponent: waves((i, d) => 2 * pairwise(i, d)),
      frequency_of_twice_the_dimension: waves((i, d) => (2 * i) / d),
      base_of_1000: waves(pairwise, { base: 1000 }),
      positions_multiplied: waves((i, d) => -pairwise(i, d)),
      sines_alone: waves(pairwise, { odd: Math.sin }),
      cosine_first: ([n, d]) =>
        waves(pairwise)([n, d]).map((row) => row.map((_, i) => row[i + 1 - 2 * (i % 2)])),
    },
  },
  masks: {
    cases: () => [
      [[7, 8, EOS, PAD], [BOS, 9, 9, 8, PAD], PAD],
      [[EOS, PAD, 5], [BOS, PAD, 5], 5],
    ], // another id may be the padding
    right: triangle((t, k, real) => k <= t && real),
    wrong: {
      no_causal_mask: triangle((t, k, real) => real),
      causal_mask_one_too_far: triangle((t, k, real) => k <= t + 1 && real),
      target_mask_without_padding: triangle((t, k) => k <= t),
      causal_mask_transposed: triangle((t, k, real) => k >= t && real),
      causal_mask_without_diagonal: triangle((t, k, real) => k < t && real),
      or_for_and: triangle((t, k, real) => k <= t || real),
      padded_queries_masked: triangle((t, k, real, asks) => k <= t && real && asks),
      padding_seen: triangle((t, k, real) => k <= t && real, true),
      pad_written_in: ([src, tgt]) => triangle((t, k, real) => k <= t && real)([src, tgt, PAD]),
      masks_inverted: [
        [1, 1],
        [1, 0],
        [0, 1],
      ].map(
        (which) => (asked) =>
          triangle((t, k, real) => k <= t && real)(asked).map((mask, i) =>
            map2(mask, (seen) => seen !== Boolean(which[i])),
          ),
      ),
    },
  },
  layer_norm: {
    cases(src) {
      const { norm } = first().sublayer[0],
        x = rows(embedded(src)),
        even = map2(x.slice(0, 2), (value) => 1 + value / 300);
      return [x, even].map((x) => [x, [...norm.gain], [...norm.bias]]);
    },
    right: ([x]) => rows(first().sublayer[0].norm.forward(x)),
    wrong: {
      variance_of_a_sample: normed({ less: 1 }),
      epsilon_outside_the_root: normed({ inside: 0, outside: 1e-5 }),
      no_epsilon: normed({ inside: 0 }),
      norm_without_mean: normed({ centre: () => 0 }),
      no_gain_and_bias: normed({ last: (value) => value }),
      norm_by_variance: normed({ root: (v) => v }),
      norm_by_sum: normed({ of: (squares) => squares.reduce((a, b) => a + b, 0) }),
      norm_of_the_whole: normed({ among: (row, x) => x.flat() }),
      norm_over_time: ([x, gain, bias]) =>
        turned(
          turned(x).map(
            (column, i) =>
              normed({})([[column], column.map(() => gain[i]), column.map(() => bias[i])])[0],
          ),
        ),
      gain_forgotten: normed({ last: (value, gain, bias) => value + bias }),
      bias_forgotten: normed({ last: (value, gain) => gain * value }),
      bias_before_gain: normed({ last: (value, gain, bias) => gain * (value + bias) }),
    },
  },
  decode: {
    cases: (src) => [
      [BOS, EOS, 3],
      [BOS, EOS, src.length + 6],
    ], // the short one tells mistakes apart sooner
    next(src, asked = scores(src)) {
      // a question that nobody would ask is answered at once
      return (ids) => {
        const odd = ids.find((id) => !Number.isInteger(id));
        if (odd !== undefined) throw refuse("odd", odd);
        if (ids.includes(EOS)) throw refuse("eos_ignored");
        return asked(ids);
      };
    },
    right: ([, , longest], src) => written(src).slice(0, longest),
    wrong: {
      bos_given_back: ([, , n], src) => [BOS, ...written(src).slice(0, n)],
      bos_counted: ([, , n], src) => [BOS, ...written(src).slice(0, n - 1)],
      eos_not_given_back: ([, , n], src) =>
        written(src)
          .slice(0, n)
          .filter((id) => id !== EOS),
      one_token_too_many: ([, , n], src) => written(src).slice(0, n + 1),
      one_token_too_few: ([, , n], src) => written(src).slice(0, n - 1),
      longest_ignored: (asked, src) => written(src),
      least_probable: loop({ best: Math.min }),
      last_token_alone: loop({ read: (ids) => ids.slice(-1) }),
    },
  },
  loss_gradient: {
    cases(src) {
      const next = scores(src),
        few = next([BOS]).slice(0, 12),
        best = few.indexOf(Math.max(...few.slice(4)));
      return [
        [[few, next([BOS, best]).slice(0, 12), few], [best, 7, PAD], 0.1, PAD],
        [[few, few], [4, 5], 0, 5],
      ];
    },
    right: pull({}),
    wrong: {
      gradient_upside_down: pull({ force: (p, q) => q - p }),
      no_smoothing: pull({ share: (right) => +right }),
      gradient_without_target: pull({ force: (p) => p }),
      scores_for_probabilities: pull({ force: (p, q, z) => z - q }),
      padding_has_a_share: [0, 1].map((less) =>
        pull({ share: (right, k, pad, s, count) => right * (1 - s) + s / (count - less) }),
      ),
      right_token_without_share: pull({
        share: (right, k, pad, s, count) => (k === pad ? 0 : right ? 1 - s : s / (count - 2)),
      }),
      shared_by_all_others: [true, false].map((all) =>
        pull({
          share: (right, k, pad, s, count) =>
            right ? 1 - s : ((all || k !== pad) * s) / (count - 1),
        }),
      ),
      pad_written_in: ([logits, target, smoothing]) => pull({})([logits, target, smoothing, PAD]),
      gradient_where_padding_is: pull({ padding: (p) => p }),
      pads_are_tokens: [
        pull({ padding: (p, q, hard) => p - hard }),
        pull({ padding: (p, q) => p - q }),
      ],
      mean_for_sum: pull({ over: (target, pad) => target.filter((id) => id !== pad).length }),
      mean_with_padding: pull({ over: (target) => target.length }),
    },
  },
  rate: {
    cases: () => [...[1, 400, 4000, 100000].map((s) => [s, 512, 4000]), [30, 128, 100]],
    right: ([s, d, w]) => d ** -0.5 * Math.min(s ** -0.5, s * w ** -1.5),
    wrong: {
      rate_with_max: ([s, d, w]) => d ** -0.5 * Math.max(s ** -0.5, s * w ** -1.5),
      rate_without_width: ([s, , w]) => Math.min(s ** -0.5, s * w ** -1.5),
      rate_without_warmup: ([s, d, w]) => d ** -0.5 * Math.min(s ** -0.5, s * w ** -0.5),
      rate_only_rises: ([s, d, w]) => d ** -0.5 * s * w ** -1.5,
      rate_only_falls: ([s, d]) => d ** -0.5 * s ** -0.5,
      rate_grows_with_width: ([s, d, w]) => d ** 0.5 * Math.min(s ** -0.5, s * w ** -1.5),
      rate_one_step_late: ([s, d, w]) => d ** -0.5 * Math.min((s + 1) ** -0.5, (s + 1) * w ** -1.5),
      rate_falls_like_the_step: ([s, d, w]) => d ** -0.5 * Math.min(1 / s, s * w ** -1.5),
      rate_beside_its_peak: ([s, d, w]) => d ** -0.5 * Math.min((s / w) ** -0.5, s / w),
      warmup_written_in: ([s, d]) => d ** -0.5 * Math.min(s ** -0.5, s * 4000 ** -1.5),
      width_written_in: ([s, , w]) => 512 ** -0.5 * Math.min(s ** -0.5, s * w ** -1.5),
    },
  },
};

// What comes after some ids, by the live model. If they go on from those of the last question,
// only the new ones are read.
function scores(src) {
  const { memory } = translator.model.encode(src);
  let decoder,
    read = null,
    found;
  return (ids) => {
    if (!ids.length) throw refuse("none");
    if (!(ids.length > read?.length && read.every((id, i) => id === ids[i])))
      [decoder, read] = [new CachedDecoder(translator.model, memory), []];
    for (const id of ids.slice(read.length)) [found] = decoder.step([id]).logits;
    read = ids;
    progress();
    return [...found];
  };
}
const flat = (value) => (Array.isArray(value) ? value.flatMap(flat) : [Number(value)]);
const shape = (value) =>
  Array.isArray(value) ? [value.length, ...(value.length ? shape(value[0]) : [])] : [];
const shapes = (name, value) =>
  (name === "masks" && Array.isArray(value) ? value : [value])
    .map((part) => shape(part).join(", "))
    .join("), ("); // masks are two
// Where numbers first differ by more than rounding, beside the largest right one; -1: nowhere.
const differ = (x, y, most = Math.max(...y.filter(Number.isFinite).map(Math.abs))) =>
  x.findIndex(
    (value, i) =>
      !(
        Math.abs(value - y[i]) <= 2e-4 * most ||
        (isNaN(value + y[i]) && isNaN(value) === isNaN(y[i]))
      ),
  );
const agree = (a, b, x = flat(a), y = flat(b)) => x.length === y.length && differ(x, y) < 0;
const fits = (name, a, b) =>
  shapes(name, a) === shapes(name, b) && flat(a).length === flat(b).length;

function judge(name, src) {
  const { cases, next, right, wrong } = GATES[name],
    all = cases(src);
  const found = all.map((asked) => {
      const gives = call(name, asked, next?.(src));
      if (run("_found = _given != json.loads(_asked)")) throw refuse("changed");
      return gives;
    }),
    wanted = all.map((asked) => right(asked, src)),
    bad = all.findIndex((_, i) => !fits(name, found[i], wanted[i]) || !agree(found[i], wanted[i]));
  if (bad < 0) return { right: true };
  const gives = (one, asked, i, theirs = one(asked, src)) =>
    fits(name, found[i], theirs) && agree(found[i], theirs);
  const mistake = Object.keys(wrong).find((one) =>
    [wrong[one]].flat().some((form) => all.every((asked, i) => gives(form, asked, i))),
  );
  if (mistake) return { mistake };
  const [x, y] = [found[bad], wanted[bad]].map(flat);
  if (!fits(name, found[bad], wanted[bad]))
    return { shape: shapes(name, found[bad]), wanted: shapes(name, wanted[bad]) };
  if (!x.every(Number.isFinite))
    return { infinite: x.filter((value) => !Number.isFinite(value)).length, all: x.length };
  const at = differ(x, y),
    width = shape(wanted[bad]).at(-1) || 1;
  if (name === "rate") return { asked: all[bad].join(", "), mine: x[0], expected: y[0] };
  return {
    masked: name === "attention" && bad > 0,
    row: Math.floor(at / width),
    column: at % width,
    mine: x[at],
    expected: y[at],
    largest: Math.max(...x.map((value, i) => Math.abs(value - y[i]))),
  };
}

// The live model's greedy translation with the reader's function in it, and its own. Attention
// is that of one head, or of all.
function plug(name, src, all) {
  const { model, tokenizer } = translator,
    undo = [],
    own = greedyDecode(model, src);
  const replace = (owner, what, value) => {
    const old = owner[what];
    undo.push(() => {
      owner[what] = old;
    });
    owner[what] = value;
  };
  const ask = (asked) => {
    progress();
    return call(name, asked);
  };
  if (name === "attention")
    for (const one of all
      ? ["encoder", "decoder", "cross"].flatMap((kind) => model.heads(kind))
      : [first().self_attn])
      replace(
        one,
        "own",
        (head) =>
          (all || head === 1) &&
          ((query, keys, values, keyStart, keyWidth, valueStart, valueWidth, hidden) => {
            const part = (x, at, width) => [...x.slice(at, at + width)],
              mask = hidden ? [keys.map((_, s) => !hidden.has(s))] : null;
            const [output] = ask([
              [part(query, keyStart, keyWidth)],
              [...keys].map((k) => part(k, keyStart, keyWidth)),
              [...values].map((v) => part(v, valueStart, valueWidth)),
              mask,
            ]);
            return { output: Float32Array.from(output), weights: new Float64Array(keys.length) };
          }),
      );
  if (name === "layer_norm")
    for (const stack of [model.encoder, model.decoder])
      for (const norm of [
        stack.norm,
        ...stack.layers.flatMap(({ sublayer }) => sublayer.map((one) => one.norm)),
      ])
        replace(norm, "forward", (x) =>
          ask([rows(x), [...norm.gain], [...norm.bias]]).map((row) => Float32Array.from(row)),
        );
  const table = name === "positions" && ask([200, model.config.d_model]);
  if (table) replace(model, "place", (position) => Float32Array.from(table[position]));
  try {
    const ids =
      name === "decode"
        ? [BOS, ...call(name, [BOS, EOS, src.length + 20], scores(src))]
        : greedyDecode(model, src);
    return { text: tokenizer.decode(ids), own: tokenizer.decode(own) };
  } finally {
    undo.forEach((one) => one());
  }
}

onmessage = async ({ data }) => {
  try {
    if (data.content) {
      translator = await Translator.load(data.content);
      const machine = await loadMicroPython({
        wasmBinary: await unpack(data.wasm),
        heapsize: 64 * 2 ** 20,
        stdout: (line) => postMessage({ printed: line }),
      });
      machine.FS.mkdirTree("/lib");
      for (const [file, text] of Object.entries(data.library))
        machine.FS.writeFile(`/lib/${file}.py`, text);
      machine.runPython("import json, set_up");
      run = (code, given = {}) => {
        for (const [name, value] of Object.entries(given)) machine.globals.set(name, value);
        machine.runPython(code);
        return machine.globals.get("_found");
      };
      return void postMessage({ ready: true });
    }
    let last = 0,
      count = 0;
    progress = () => {
      count += 1;
      if (performance.now() - last > 200) {
        last = performance.now();
        postMessage({ step: count });
      }
    };
    const compile = (_code) =>
      run("_program = compile(_code, 'mine.py', 'exec')\n_found = None", { _code });
    try {
      compile(spelled(data.code, false));
    } catch {
      compile(spelled(data.code, true));
    }
    // nothing of an earlier attempt is left
    run('_mine = {"__name__": "mine"}\nexec(_program, _mine)\n_found = None');
    if (!run(`_found = callable(_mine.get("${data.name}"))`)) throw refuse("missing", data.name);
    postMessage({
      found: (data.plugged ? plug : judge)(data.name, translator.source(data.sentence), data.all),
    });
  } catch ({ message }) {
    postMessage({
      error: message.trim().split("\n").at(-1),
      line: [...message.matchAll(/"mine\.py", line (\d+)/g)].at(-1)?.[1],
    });
  }
};
