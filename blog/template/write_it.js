// Write it yourself: under some sections an editor in which the reader writes Python in plain
// lists. A gate compares what the function gives for the reader's own sentence with what the live
// model computes, names the mistake if it is a known one, and puts the function into the live
// model. Python is MicroPython, in a worker that can be ended.

(() => {
  "use strict";
  if (!document.getElementById("micropython-wasm")) return;

  const SECONDS = 5,
    PLUGGED = 120; // for a gate, and for a whole translation
  // Heading, function, what it is given and gives, what there is at first. The names and arguments
  // are those of `judge`, so that what was written can be taken there.
  const PLACES = [
    [
      "scaled-dot-product-attention-section-3-2-1",
      "attention",
      say(
        "Q, K and V are lists of rows. mask is None, or has a row for each query: True where a key may be seen. Give back the output alone, a row for each query. When it’s right, leave out the division, put it into all heads, and follow “Ein Hund fotografiert einen Mann.”",
      ),
      "from math import exp, sqrt\n\ndef attention(Q, K, V, mask):\n    return [[0.0 for v in V[0]] for q in Q]\n",
    ],
    [
      "positions-section-3-5",
      "positions",
      say("Give back a row of d_model numbers for each position; the first position is 0."),
      "from math import sin, cos\n\ndef positions(length, d_model):\n    return [[0.0] * d_model for p in range(length)]\n",
    ],
    [
      "masks",
      "masks",
      say(
        "Give back two masks: one row for the source, and a row for each token of the target. True is where a query (row) may look at a key (column).",
      ),
      "def masks(src, tgt, pad):\n    return [[True] * len(src)], [[True] * len(tgt) for t in tgt]\n",
    ],
    [
      "residuals-and-normalisation-section-3-1",
      "layer_norm",
      say("x is a list of rows; epsilon is 1e-5."),
      "from math import sqrt\n\ndef layer_norm(x, gain, bias):\n    return x\n",
    ],
    [
      "a-vector-becomes-a-word-section-3-4",
      "decode",
      say(
        "scores(ids) gives each token of the vocabulary a score, as the one that comes after ids; ids begin with bos. Give back what was written: eos included, bos not, and at most longest ids.",
      ),
      "def decode(scores, bos, eos, longest):\n    return []\n",
    ],
    [
      "the-loss",
      "loss_gradient",
      say(
        "logits has a row of scores for each position, target the right ids. The loss is a sum over the positions, without those where target is pad. The right id gets 1 - smoothing in q; the smoothing is shared out evenly among all ids but pad, the right one included.",
      ),
      "from math import exp\n\ndef loss_gradient(logits, target, smoothing, pad):\n    return [[0.0] * len(row) for row in logits]\n",
    ],
    [
      "one-update",
      "rate",
      say("step counts from 1; give back a number."),
      "def rate(step, d_model, warmup):\n    return 0.0\n",
    ],
  ];
  const PLUGGABLE = ["attention", "positions", "layer_norm", "decode"]; // into the live model

  // What MicroPython lacks of Python's library, and what people use by habit in plain lists, as the
  // files of its folder /lib. `set_up` puts it where MicroPython has a part of it.
  const LIBRARY = {
    __future__: "annotations = None\n",
    typing: `
class Hint:  # anything that hints are made of; called, as in TypeVar("T"), it is what it got last
    def __getitem__(self, key):
        return self

    def __call__(self, *given, **named):
        return given[-1]

    def __or__(self, other):
        return self

    __ror__ = __or__

TYPE_CHECKING = False

def __getattr__(name):
    return Hint()
`,
    statistics: `
def mean(values):
    values = list(values)
    return sum(values) / len(values)

fmean = mean

def pvariance(values, mu=None):
    values = list(values)
    middle = mean(values) if mu is None else mu
    return sum((value - middle) ** 2 for value in values) / len(values)

def variance(values, xbar=None):
    values = list(values)
    return pvariance(values, xbar) * len(values) / (len(values) - 1)

def pstdev(values, mu=None):
    return pvariance(values, mu) ** 0.5

def stdev(values, xbar=None):
    return variance(values, xbar) ** 0.5

def median(values):
    values = sorted(values)
    return (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
`,
    mathematics: `
from math import *

fsum = sum

def prod(values, *, start=1):
    for value in values:
        start *= value
    return start

def sumprod(p, q):
    return sum(a * b for a, b in zip(p, q, strict=True))

def hypot(*sides):
    return sqrt(sum(side * side for side in sides))

def log1p(x):  # the quotient undoes the rounding of 1 + x
    return log(1 + x) * x / (1 + x - 1) if 1 + x != 1 else x
`,
    set_up: `
import builtins, collections, functools, itertools, mathematics, operator, sys, typing
from builtins import print as show, sorted as ordered, sum as total, zip as together
from collections import deque as bounded

sys.modules["math"] = mathematics
sys.modules["collections.abc"] = collections.abc = typing

def zip(*rows, strict=False):
    if strict:
        rows = [list(row) for row in rows]
        if len({len(row) for row in rows}) > 1:
            raise ValueError(f"zip() of rows of {', '.join(str(len(row)) for row in rows)} values")
    return together(*rows)

def sum(values, start=0):
    return total(values, start)

def sorted(values, *, key=None, reverse=False):  # which leaves equals in their order
    keyed = [
        (key(value) if key else value, -n if reverse else n, value)
        for n, value in enumerate(values)
    ]
    return [value for _, _, value in ordered(keyed, reverse=reverse)]

def print(*values, sep=" ", end="\\n", file=None, flush=False):
    show(*values, sep=sep, end=end)

def format(value, spec=""):
    return ("{:" + spec + "}").format(value)

class Strided:  # a list whose slices with a step can be assigned to
    def __init__(self, row):
        self.row = row

    def __getitem__(self, key):
        return self.row[key]

    def __setitem__(self, key, values):
        if not isinstance(self.row, list) or key.step in (None, 1):
            self.row[key] = values
            return
        places, values = range(*key.indices(len(self.row))), list(values)
        if len(values) != len(places):
            raise ValueError(f"{len(values)} values for the {len(places)} places of a slice")
        for place, value in zip(places, values):
            self.row[place] = value

for name, value in {
    "zip": zip, "sum": sum, "sorted": sorted, "print": print, "format": format, "_strided": Strided,
    "_list": lambda *items: list(items), "_tuple": lambda *items: items,
    "_set": lambda *items: set(items),
}.items():
    setattr(builtins, name, value)

operator.add = lambda a, b: a + b
operator.sub = lambda a, b: a - b
operator.mul = lambda a, b: a * b
operator.pow = lambda a, b: a ** b
operator.neg = lambda a: -a
operator.and_ = lambda a, b: a & b
operator.or_ = lambda a, b: a | b
operator.not_ = lambda a: not a
operator.getitem = lambda a, key: a[key]
operator.itemgetter = lambda *keys: (
    lambda a: a[keys[0]] if len(keys) == 1 else tuple(a[key] for key in keys))

def cache(function):
    results = {}
    def cached(*given):
        if given not in results:
            results[given] = function(*given)
        return results[given]
    return cached

functools.cache = cache
functools.lru_cache = lambda maxsize=None, typed=False: (
    cache(maxsize) if callable(maxsize) else cache)

class Chain:
    def __call__(self, *parts):
        return self.from_iterable(parts)

    def from_iterable(self, parts):
        return (item for part in parts for item in part)

itertools.chain = Chain()

def accumulate(values, func=operator.add, *, initial=None):
    values = iter(values)
    try:
        result = next(values) if initial is None else initial
    except StopIteration:
        return
    yield result
    for value in values:
        result = func(result, value)
        yield result

itertools.accumulate = accumulate

def product(*pools, repeat=1):
    tuples = [()]
    for pool in [list(pool) for pool in pools] * repeat:
        tuples = [start + (item,) for start in tuples for item in pool]
    return iter(tuples)

itertools.product = product

def pairwise(values):
    values = list(values)
    return zip(values, values[1:])

itertools.pairwise = pairwise

# 1: more than the room for 10,000 is an error
collections.deque = lambda items=(), maxlen=None: (
    bounded(list(items), 10000, 1) if maxlen is None else bounded(list(items), maxlen))

class Counter(collections.OrderedDict):
    def __init__(self, items=()):
        super().__init__()
        for item in items:
            self[item] = self.get(item, 0) + 1

    def __getitem__(self, item):
        return self.get(item, 0)

    def most_common(self, n=None):
        return sorted(self.items(), key=lambda pair: -pair[1])[:n]

collections.Counter = Counter
`,
  };

  // --- in the worker: what is asked, what is right, and what comes out with a mistake of
  // practice/mistakes.py ---

  function serve() {
    const { softmax, attention, positionalEncoding, greedyDecode, CachedDecoder, BOS, EOS, PAD } =
      Transformer;
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
              !/\b(?:return|yield|in|and|or|not|if|elif|else|is|assert|while|from)\s*$/.test(
                before,
              );
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
              (/^[\s\])]*in\b/.test(after) &&
                /\bfor\s(?:(?!\bin\b)[^:])*$/.test(text.slice(0, start)));
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
        if (
          value !== null &&
          !["number", "boolean"].includes(typeof value) &&
          !Array.isArray(value)
        )
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
        const weights = turn(
          turn(after ? scores : masked(scores, hide)).map((row) => [...norm(row)]),
        );
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
                (of(all.map((value) => (value - m) ** 2)) * all.length) / (all.length - less) +
                  inside,
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
          pad_written_in: ([logits, target, smoothing]) =>
            pull({})([logits, target, smoothing, PAD]),
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
          rate_one_step_late: ([s, d, w]) =>
            d ** -0.5 * Math.min((s + 1) ** -0.5, (s + 1) * w ** -1.5),
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
        bad = all.findIndex(
          (_, i) => !fits(name, found[i], wanted[i]) || !agree(found[i], wanted[i]),
        );
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
                return {
                  output: Float32Array.from(output),
                  weights: new Float64Array(keys.length),
                };
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
          translator = await Transformer.Translator.load(data.content);
          const machine = await loadMicroPython({
            wasmBinary: await Transformer.unpack(data.wasm),
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
        if (!run(`_found = callable(_mine.get("${data.name}"))`))
          throw refuse("missing", data.name);
        postMessage({
          found: (data.plugged ? plug : judge)(
            data.name,
            translator.source(data.sentence),
            data.all,
          ),
        });
      } catch ({ message }) {
        postMessage({
          error: message.trim().split("\n").at(-1),
          line: [...message.matchAll(/"mine\.py", line (\d+)/g)].at(-1)?.[1],
        });
      }
    };
  }

  // --- on the page ---

  const el = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  let kept = {}; // what was written, by function
  try {
    kept = JSON.parse(localStorage.mine ?? "{}");
  } catch {
    /* nothing was kept, or may be */
  }
  const keep = (name, code) => {
    kept[name] = code;
    try {
      localStorage.mine = JSON.stringify(kept);
    } catch {
      /* not kept */
    }
  };

  // one for all editors, made when it is first asked, and again after it had to be ended
  let worker = null;
  async function running() {
    if (worker) return worker;
    const parts = [...document.querySelectorAll("script[data-worker], #micropython")].map(
      (script) => script.textContent,
    );
    const address = URL.createObjectURL(
        new Blob([`${parts.join("\n")}\n(${serve})();`], { type: "text/javascript" }),
      ),
      made = new Worker(address);
    URL.revokeObjectURL(address);
    const { model } = await liveContent();
    made.postMessage({
      content: { ...model, weights: document.getElementById("explorer-weights").textContent },
      wasm: document.getElementById("micropython-wasm").textContent,
      library: LIBRARY,
    });
    await new Promise((resolve, reject) => {
      made.onmessage = ({ data }) => (data.ready ? resolve() : reject(new Error(data.error)));
      made.onerror = (event) => reject(new Error(event.message));
    });
    return (worker = made);
  }

  // Ask the worker; it is ended after some seconds, or when the reader stops it.
  async function ask(asked, seconds, signal, step) {
    const one = await running();
    return new Promise((resolve) => {
      let printed = "";
      const done = (found) => {
        clearTimeout(late);
        signal.removeEventListener("abort", stop);
        resolve({ ...found, printed });
      };
      const end = (found) => {
          one.terminate();
          worker = null;
          done(found);
        },
        stop = () => end({ stopped: true }),
        late = setTimeout(() => end({ late: seconds }), 1000 * seconds);
      signal.addEventListener("abort", stop);
      one.onmessage = ({ data }) => {
        if ("step" in data) step(data.step);
        else if ("printed" in data) printed = (printed + data.printed + "\n").slice(0, 300);
        else done(data);
      };
      one.postMessage(asked);
    });
  }

  const JUDGE = { judge: "`python the_annotated_transformer.py judge mine.py`" };
  const named = (mistake) =>
    `${say("This gives the same numbers: {code}.", { code: WRITTEN[mistake].line })} ${WRITTEN[mistake].effect}`;
  const TOLD = {
    // what isn't a matter of numbers
    missing: (name) => say("There's no function `{name}` in this field.", { name }),
    nothing: () => say("The function gives nothing: a `return` is missing, or not reached."),
    things: () => say("What the function gives isn't made of lists and numbers."),
    changed: () => say("The function changes what it is given, which others still need."),
    none: () =>
      say(
        "scores was asked about no ids at all. The decoder begins with bos: that is what it reads before it has written anything.",
      ),
    odd: (id) =>
      say(
        "scores was asked about {id}, which isn't the id of a token. An id is the place of a score, not the score.",
        { id },
      ),
    eos_ignored: () =>
      `${say("scores was asked what comes after eos.")} ${WRITTEN.eos_ignored.effect}`,
  };
  // What is added to an error that plain lists or MicroPython may be the cause of: a pattern of the
  // error and, below it, the reader's line; and the sentence. The first that fits is taken.
  const HINTS = [
    [
      /no module named/,
      say(
        "The page has no packages, and only a few of Python’s own modules. Write it in plain lists, or take mine.py along: {judge} takes any module.",
        JUDGE,
      ),
    ],
    [
      /^SyntaxError.*\n.*[{,]\s*\*\*/,
      say("MicroPython doesn’t read {**a, …}: write dict(a), and add the rest."),
    ],
    [
      /^SyntaxError(?:: \*x|.*\n.*(?:\breturn|\byield|\bin|=)\s*(?:(?:[^()[\]{}=]|\([^()]*\)|\[[^[\]]*\])*,\s*)?\*[\w[({])/,
      say("MicroPython doesn’t read this star: write (*a, b) with brackets, or list(a) + [b]."),
    ],
    [
      /^SyntaxError.*\n\s*(?:match|case)\b.*:/,
      say("MicroPython has no match: write if, elif and else."),
    ],
    [
      /^NotImplementedError.*\n.*\[[^\]]*:[^\]]*:/,
      say(
        "MicroPython takes a slice with a step from lists only, and can’t delete it: write list(a)[::2], or make a new list.",
      ),
    ],
    [/__getitem__/, say("MicroPython can’t pass on this method: write lambda i: a[i].")],
    [
      /^RuntimeError: maximum recursion/,
      say("Here a function can call itself only some 200 times: write a loop."),
    ],
    [
      /'type' object isn't subscriptable/,
      say("MicroPython doesn’t read list[float] here: write list alone."),
    ],
    [
      /'list' object has no attribute '(?:shape|T|size|dot|sum|mean|max|min|argmax|exp|transpose|view|reshape|tolist)'|types? for __(?:matmul|mul|sub|truediv|pow|neg)__: (?:'\w+', )?'list'|__: 'list', '(?:int|float)'|convert list to float|can't convert 'tuple' object to int|indices must be integers, not tuple/,
      say("These are lists, not arrays: loops or comprehensions go over their rows and numbers."),
    ],
    [
      /math domain error/,
      say("exp takes at most 709, sqrt nothing below 0, log only what is above 0."),
    ],
    [
      /^(?:SyntaxError|ImportError|NotImplementedError)|^AttributeError: (?:module|'(?:str|bytes|list|tuple|dict|set|int|float|bool|range|function|generator)' object)|keyword argument|can't create '\w+' instances|^NameError: name '(?:ascii|breakpoint|vars|[A-Z]\w+Error)'/,
      say(
        "If this line is right in Python, MicroPython lacks it: write it in another way, or take mine.py along, for {judge}.",
        JUDGE,
      ),
    ],
  ];
  const hint = (error, code) =>
    HINTS.find(([pattern]) => pattern.test(`${error}\n${code}`))?.[1] ?? "";

  function verdict({ found, error, line, late, stopped }, sentence, code) {
    // [whether it is right, what is said]
    if (stopped) return [false, say("Stopped.")];
    if (late) return [false, say("It didn't end within {seconds} seconds.", { seconds: late })];
    const [, known, about] = error?.match(/told: (\w+) ?(.*)$/) ?? [];
    if (known) return [false, TOLD[known](about)];
    if (error) {
      const place = line ? say("Line {line}: {error}", { line, error }) : error;
      const advice = hint(error, code.split("\n")[line - 1] ?? "");
      return [false, [place, advice].filter(Boolean).join(". ")];
    }
    if (found.right)
      return [true, say("Right, for “{sentence}” and for the awkward cases.", { sentence })];
    if (found.mistake) return [false, named(found.mistake)];
    if (found.infinite)
      return [
        false,
        say("{count} of {all} numbers aren't finite.", { count: found.infinite, all: found.all }),
      ];
    if ("shape" in found)
      return [
        false,
        say("The result has the shape ({mine}), and should have ({right}).", {
          mine: found.shape,
          right: found.wanted,
        }),
      ];
    const [mine, right, largest] = [found.mine, found.expected, found.largest ?? 0].map((value) =>
      String(Number(value.toPrecision(5))),
    );
    if (found.asked)
      return [
        false,
        say(
          "For the arguments {asked} it gives {mine} instead of {right}. No mistake that I know gives this.",
          { ...found, mine, right },
        ),
      ];
    const where = say(
      "Row {row}, column {column} is {mine} instead of {right}; the largest error is {largest}. No mistake that I know gives this.",
      { ...found, mine, right, largest },
    );
    return [
      false,
      found.masked ? `${say("Without a mask it's right, with one it isn't.")} ${where}` : where,
    ];
  }

  // A link from a function that is right to the next one; from the last one to the next rung.
  function wayOn(name) {
    const folds = [...document.querySelectorAll(".write-it")],
      next = folds[folds.findIndex((fold) => fold.dataset.function === name) + 1];
    const link = el("a", {
      href: next ? `#${next.id}` : "#clinic-frame",
      textContent: next
        ? say("Next, write {name} ▸", { name: next.dataset.function })
        : say("The next rung: diagnose. To the clinic ▸"),
    });
    if (next) link.addEventListener("click", () => (next.open = true));
    return link;
  }

  function editor(name, about, stub) {
    const field = el("textarea", {
      value: kept[name] ?? stub,
      spellcheck: false,
      wrap: "off",
      rows: 9,
      ariaLabel: say("Your function {name}", { name }),
    });
    const button = (textContent, act, hidden = false) => {
      const one = el("button", { type: "button", textContent, hidden });
      one.addEventListener("click", act);
      return one;
    };
    const check = button(say("Check it"), () => run(false)),
      put = button(say("Put it into the model"), () => run(true), !PLUGGABLE.includes(name));
    const stop = button(say("Stop"), () => stopper.abort(), true),
      take = button(say("Take mine.py along"), download),
      again = button(say("Begin again"), () => keep(name, (field.value = stub))),
      said = el("output");
    const where = el(
      "select",
      { hidden: name !== "attention", ariaLabel: say("Where in the encoder") },
      el("option", {
        value: "one",
        textContent: say("layer {layer}, head {head}", { layer: 1, head: 2 }),
      }),
      el("option", { value: "all", textContent: say("all heads of the model") }),
    );
    let stopper,
      leaves = false; // Escape, then Tab, leaves the field; Tab alone indents

    async function run(plugged) {
      const before = document.activeElement,
        wait = (is) => {
          check.disabled = put.disabled = is;
          stop.hidden = !is;
        };
      stopper = new AbortController();
      Object.assign(said, { className: "busy", textContent: say("computing…") });
      wait(true);
      try {
        await yourSentence.begin();
        const asked = {
          code: field.value,
          name,
          plugged,
          sentence: yourSentence.current(),
          all: where.value === "all",
        };
        const found = await ask(
          asked,
          plugged ? PLUGGED : name === "decode" ? 4 * SECONDS : SECONDS,
          stopper.signal,
          (count) => {
            said.textContent = say("computing… calls so far: {count}", { count });
          },
        );
        const { text, own } = found.found ?? {},
          [right, words] = plugged && found.found ? [] : verdict(found, asked.sentence, asked.code);
        said.className = words ? (right ? "right" : "wrong") : "plugged";
        if (words) said.replaceChildren(words, ...(right ? [" ", wayOn(name)] : []));
        else
          said.replaceChildren(
            say(
              "With your function in it, the model writes for “{sentence}”, one token at a time:",
              asked,
            ),
            el("strong", { textContent: text || say("(nothing)") }),
            text === own
              ? say("Without it, it writes the same.")
              : say("Without it: {text}", { text: own }),
          );
        if (found.printed) said.append(el("pre", { textContent: found.printed }));
      } catch (error) {
        Object.assign(said, { className: "wrong", textContent: error.message });
      }
      wait(false);
      before?.focus();
    }

    function download() {
      keep(name, field.value);
      // of several functions in one file, what Python takes at its beginning only
      const future = /^from __future__ import .*\n?/gm,
        functions = Object.values(kept).join("\n");
      const text = [
        `"""${say("Judge it: python the_annotated_transformer.py judge mine.py")}"""`,
        ...new Set(functions.match(future)?.map((line) => line.trim())),
        "",
        "",
        "def take(array):",
        "    return array.tolist()",
        "",
        "",
        functions.replace(future, ""),
      ].join("\n");
      el("a", {
        href: `data:text/x-python,${encodeURIComponent(text)}`,
        download: "mine.py",
      }).click();
    }

    field.addEventListener("input", () => keep(name, field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Tab" && !leaves && !event.shiftKey) {
        event.preventDefault();
        field.setRangeText("    ", field.selectionStart, field.selectionEnd, "end");
      }
      leaves = event.key === "Escape";
    });
    const fold = el(
      "details",
      { className: "write-it", id: `write-${name}` },
      el("summary", { textContent: say("Write it yourself: {name}", { name }) }),
      el("p", {
        textContent: `${about} ${say("Python in plain lists. It is compared with the live model, for your sentence. Escape, then Tab, leaves the field.")} ${say("MicroPython, a small Python without packages, runs your function.")}`,
      }),
      field,
      el("div", { className: "controls" }, check, stop, put, where, take, again),
      said,
    );
    fold.dataset.function = name;
    return fold;
  }

  for (const [heading, name, about, stub] of PLACES) {
    const section = document.getElementById(heading)?.closest("section");
    if (!section) continue;
    const fold = editor(name, about, stub);
    endOf(section).after(fold);
    yourSentence.beside(fold); // the bar is shown here, too
  }
})();
