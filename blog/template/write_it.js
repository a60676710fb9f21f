// Write it yourself: under some sections an editor in which the reader writes Python in plain lists. A gate compares what the
// function gives for the reader's own sentence with what the live model computes, names the mistake if it is a known one, and
// puts the function into the live model. Python is MicroPython, in a worker that can be ended.

const WriteIt = (() => {
  "use strict";

  const SECONDS = 5, PLUGGED = 120; // for a gate, and for a whole translation
  // Heading -> gate. The names and arguments are those of `judge`, so that what was written can be taken there.
  const PLACES = {
    "scaled-dot-product-attention-section-3-2-1": "attention", "positions-section-3-5": "positions", masks: "masks",
    "residuals-and-normalisation-section-3-1": "layer_norm", "a-vector-becomes-a-word-section-3-4": "decode", "the-loss": "loss_gradient", "one-update": "rate",
  };
  const STUBS = {
    attention: "from math import exp, sqrt\n\ndef attention(Q, K, V, mask):\n    # Q, K, V: lists of rows; mask: rows of True and False, or None\n    return [[0.0 for v in V[0]] for q in Q]\n",
    positions: "from math import sin, cos\n\ndef positions(length, d_model):\n    return [[0.0] * d_model for p in range(length)]\n",
    masks: "def masks(src, tgt, pad):\n    # True where a query (row) may look at a key (column): 1 row for src, len(tgt) rows for tgt\n    return [[True] * len(src)], [[True] * len(tgt) for t in tgt]\n",
    layer_norm: "from math import sqrt\n\ndef layer_norm(x, gain, bias):\n    # x: a list of rows; epsilon is 1e-5\n    return x\n",
    decode: "def decode(scores, bos, eos, longest):\n    # scores(ids) gives a score for each token of the vocabulary: what comes after ids\n    return []\n",
    loss_gradient: "from math import exp\n\ndef loss_gradient(logits, target, smoothing, pad):\n    # logits: a row of scores for each position; target: the right ids\n    return [[0.0] * len(row) for row in logits]\n",
    rate: "def rate(step, d_model, warmup):\n    return 0.0\n",
  };

  // --- in the worker: what is asked, what is right, and what comes out with a mistake of practice/mistakes.py ---

  function serve() {
    const { softmax, attention, positionalEncoding, greedyDecode, CachedDecoder, BOS, EOS, PAD } = Transformer;
    const rows = (x) => x.map((row) => [...row]), map2 = (x, f) => x.map((row, i) => row.map((value, j) => f(value, i, j)));
    const product = (A, B) => A.map((row) => B[0].map((_, j) => row.reduce((sum, a, k) => sum + a * B[k][j], 0)));
    const turned = (A) => A[0].map((_, j) => A.map((row) => row[j]));
    let python, translator, progress = () => {};

    // Equation (1) of the live model, and the same with one thing changed.
    const right = ([Q, K, V, mask]) => Q.map((q, t) => [...attention(q, K, V, 0, q.length, 0, V[0].length,
      mask && new Set(K.map((_, s) => s).filter((s) => !mask[t][s]))).output]);
    const wrong = ({ scale = (d) => 1 / Math.sqrt(d), fill = -Infinity, flipped = false, columns = false, after = false, plain = false, added = false, ignored = false }) =>
      ([Q, K, V, mask]) => {
        let scores = map2(product(Q, turned(K)), (s) => s * scale(K[0].length));
        if (mask && !ignored) scores = map2(scores, (s, t, k) => (added ? s + mask[t][k] : !after && mask[t][k] === flipped ? fill : s));
        let weights = plain ? scores : columns ? turned(turned(scores).map((row) => [...softmax(row)])) : scores.map((row) => [...softmax(row)]);
        if (mask && after) weights = map2(weights, (w, t, k) => w * mask[t][k]);
        return product(weights, V);
      };
    const waves = (exponent, start = 0, order = (i) => i) => ([length, d]) => Array.from({ length }, (_, p) => Array.from({ length: d }, (_, at) => {
      const i = order(at, d), angle = (p + start) / 10000 ** exponent(i, d);
      return i % 2 ? Math.cos(angle) : Math.sin(angle);
    }));
    const pairwise = (i, d) => (i - i % 2) / d;
    const normed = ({ less = 0, inside = 1e-5, outside = 0, centred = true, plain = false, root = Math.sqrt }) => ([x, gain, bias]) => x.map((row) => {
      const mean = centred ? row.reduce((a, b) => a + b, 0) / row.length : 0;
      const size = root(row.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (row.length - less) + inside) + outside;
      return row.map((value, i) => (plain ? 1 : gain[i]) * (value - mean) / size + (plain ? 0 : bias[i]));
    });
    const share = (k, y, smoothing, V, pad) => (k === pad ? 0 : (k === y) * (1 - smoothing) + smoothing / (V - 1));
    const pull = (change) => ([logits, target, smoothing, pad]) => logits.map((row, t) => [...softmax(row)].map((p, k, all) =>
      (target[t] === pad ? 0 : change(p, (y = target[t], s = smoothing) => share(k, y, s, all.length, pad)))));
    const step = (f) => ([s, d, w]) => f(s, d, w);
    const triangle = (sees) => ([src, tgt, pad]) => [[src.map((id) => id !== pad)], tgt.map((_, t) => tgt.map((id, k) => sees(t, k, id !== pad)))];

    const GATES = {
      attention: {
        cases(src) {
          const { self_attn, sublayer } = translator.model.encoder.layers[0], x = sublayer[0].norm.forward(translator.model.embed(translator.model.src_embed, src));
          const { keys, values } = self_attn.keysValues(x), width = keys[0].length / self_attn.h, head = (y) => y.map((row) => [...row.slice(width, 2 * width)]);
          const [Q, K, V] = [self_attn.queries(x), keys, values].map(head), past = Q.map((_, t) => K.map((_, s) => s <= t));
          return [[Q, K, V, null], [Q, K, V, past]];
        },
        right, wrong: {
          not_scaled: wrong({ scale: () => 1 }), scaled_by_d_k: wrong({ scale: (d) => 1 / d }), multiplied_by_root: wrong({ scale: Math.sqrt }),
          softmax_over_queries: wrong({ columns: true }), no_softmax: wrong({ plain: true, fill: 0 }), mask_the_other_way_round: wrong({ fill: -1e9, flipped: true }),
          mask_after_softmax: wrong({ after: true }), mask_ignored: wrong({ ignored: true }), mask_added: wrong({ added: true }), mask_times_scores: wrong({ fill: 0 }),
        },
      },
      positions: {
        cases: (src) => [[src.length, translator.model.config.d_model], [3, 6]],
        right: ([length, d]) => Array.from({ length }, (_, p) => [...positionalEncoding(p, d)]),
        wrong: {
          sines_then_cosines: waves(pairwise, 0, (i, d) => (i < d / 2 ? 2 * i : 2 * (i - d / 2) + 1)), positions_from_one: waves(pairwise, 1),
          cosine_with_its_own_frequency: waves((i, d) => i / d), frequency_of_half_the_exponent: waves((i, d) => pairwise(i, d) / 2),
          cosine_first: ([n, d]) => waves(pairwise)([n, d]).map((row) => row.map((_, i) => row[i + 1 - 2 * (i % 2)])),
        },
      },
      masks: {
        cases: () => [[[7, 8, EOS, PAD], [BOS, 9, 9, 8, PAD], PAD], [[EOS], [BOS], PAD]],
        right: triangle((t, k, real) => k <= t && real),
        wrong: {
          no_causal_mask: triangle((t, k, real) => real), causal_mask_one_too_far: triangle((t, k, real) => k <= t + 1 && real),
          target_mask_without_padding: triangle((t, k) => k <= t), causal_mask_transposed: triangle((t, k, real) => k >= t && real),
          masks_inverted: (asked) => triangle((t, k, real) => k <= t && real)(asked).map((mask) => map2(mask, (seen) => !seen)),
        },
      },
      layer_norm: {
        cases(src) {
          const { norm } = translator.model.encoder.layers[0].sublayer[0], x = rows(translator.model.embed(translator.model.src_embed, src));
          return [x, x.slice(0, 2).map((row) => row.map((value) => 1 + value / 300))].map((x) => [x, [...norm.gain], [...norm.bias]]);
        },
        right: ([x]) => rows(translator.model.encoder.layers[0].sublayer[0].norm.forward(x)),
        wrong: {
          variance_of_a_sample: normed({ less: 1 }), epsilon_outside_the_root: normed({ inside: 0, outside: 1e-5 }), no_epsilon: normed({ inside: 0 }),
          norm_without_mean: normed({ centred: false }), no_gain_and_bias: normed({ plain: true }), norm_by_variance: normed({ root: (v) => v }),
        },
      },
      decode: {
        cases: (src) => [[src.length + 20], [3]].map(([longest]) => [null, BOS, EOS, longest]),
        call: (asked, src) => python.call("decode", [asked[1], asked[2], asked[3]], scores(src)),
        right: ([, , , longest], src) => greedyDecode(translator.model, src).slice(1, longest + 1),
        wrong: { decoding_begins_with_eos: ([, , , longest], src) => greedyFrom(src, EOS, longest) },
      },
      loss_gradient: {
        cases(src) {
          const ids = greedyDecode(translator.model, src), decoder = new CachedDecoder(translator.model, translator.model.encode(src).memory);
          const [logits] = decoder.step([ids[0]]).logits, few = [...logits.slice(0, 40)];
          return [[[few, few], [few.indexOf(Math.max(...few.slice(4))), PAD], 0.1, PAD], [[few], [5], 0, PAD]];
        },
        right: pull((p, q) => p - q()),
        wrong: { gradient_upside_down: pull((p, q) => q() - p), no_smoothing: pull((p, q) => p - q(undefined, 0)) },
      },
      rate: {
        cases: () => [1, 400, 4000, 100000].map((s) => [s, 512, 4000]),
        right: step((s, d, w) => d ** -0.5 * Math.min(s ** -0.5, s * w ** -1.5)),
        wrong: {
          rate_with_max: step((s, d, w) => d ** -0.5 * Math.max(s ** -0.5, s * w ** -1.5)), rate_without_width: step((s, d, w) => Math.min(s ** -0.5, s * w ** -1.5)),
          rate_without_warmup: step((s, d, w) => d ** -0.5 * Math.min(s ** -0.5, s * w ** -0.5)),
        },
      },
    };

    // What comes after some ids, by the live model. If they go on from those of the last question, only the new ones are read.
    function scores(src) {
      const { memory } = translator.model.encode(src);
      let decoder = new CachedDecoder(translator.model, memory), read = [], found;
      return (text) => {
        const ids = JSON.parse(text), goesOn = ids.length > read.length && read.every((id, i) => id === ids[i]);
        if (!goesOn) [decoder, read] = [new CachedDecoder(translator.model, memory), []];
        for (const id of ids.slice(read.length)) found = decoder.step([id]).logits[0];
        read = ids;
        progress();
        return JSON.stringify([...found]);
      };
    }
    function greedyFrom(src, first, longest) {
      const ask = scores(src), ids = [first];
      while (ids.length <= longest && (ids.length === 1 || ids.at(-1) !== EOS)) {
        const z = JSON.parse(ask(JSON.stringify(ids)));
        ids.push(z.indexOf(Math.max(...z)));
      }
      return ids.slice(1);
    }

    const flat = (value) => (Array.isArray(value) ? value.flatMap(flat) : [Number(value)]);
    const shape = (value) => (Array.isArray(value) ? [value.length, ...(value.length ? shape(value[0]) : [])] : []);
    const close = (a, b) => Math.abs(a - b) <= 1e-4 + 1e-4 * Math.abs(b);
    const agree = (a, b) => {
      const [x, y] = [flat(a), flat(b)];
      return x.length === y.length && x.every((value, i) => close(value, y[i]));
    };

    function judge(name, src) {
      const gate = GATES[name], cases = gate.cases(src), found = [];
      for (const asked of cases) found.push(gate.call ? gate.call(asked, src) : python.call(name, asked));
      const wanted = cases.map((asked) => gate.right(asked, src)), bad = cases.findIndex((_, i) => !agree(found[i], wanted[i]));
      if (bad < 0) return { right: true };
      const mistake = Object.keys(gate.wrong).find((one) => cases.every((asked, i) => agree(found[i], gate.wrong[one](asked, src))));
      if (mistake) return { mistake };
      const [mine, theirs] = [found[bad], wanted[bad]], [x, y] = [flat(mine), flat(theirs)];
      if (x.length !== y.length) return { shape: shape(mine), wanted: shape(theirs) };
      if (!x.every(Number.isFinite)) return { infinite: x.filter((value) => !Number.isFinite(value)).length };
      const at = x.findIndex((value, i) => !close(value, y[i])), width = shape(theirs).at(-1) || 1;
      return { row: Math.floor(at / width), column: at % width, mine: x[at], expected: y[at], largest: Math.max(...x.map((value, i) => Math.abs(value - y[i]))) };
    }

    // The live model's translation with the reader's function in it: `where` has the layer and head for attention, or nothing for all.
    function plug(name, src, where) {
      const { model, tokenizer } = translator, undo = [];
      const replace = (owner, what, value) => { const old = owner[what]; undo.push(() => { owner[what] = old; }); owner[what] = value; };
      if (name === "attention") for (const kind of ["encoder", "decoder", "cross"]) model.heads(kind).forEach((one, layer) => {
        if (where && (kind !== "encoder" || layer !== where.layer)) return;
        replace(one, "own", (head) => (!where || head === where.head) && ((query, keys, values, keyStart, keyWidth, valueStart, valueWidth, hidden) => {
          const part = (x, at, width) => [...x.slice(at, at + width)], mask = hidden ? [keys.map((_, s) => !hidden.has(s))] : null;
          const asked = [[part(query, keyStart, keyWidth)], [...keys].map((k) => part(k, keyStart, keyWidth)), [...values].map((v) => part(v, valueStart, valueWidth)), mask];
          const [output] = python.call("attention", asked);
          progress();
          return { output: Float32Array.from(output), weights: new Float64Array(keys.length) };
        }));
      });
      if (name === "layer_norm") for (const one of [...model.encoder.layers, ...model.decoder.layers].flatMap(({ sublayer }) => sublayer.map(({ norm }) => norm)).concat(model.encoder.norm, model.decoder.norm))
        replace(one, "forward", (x) => { progress(); return python.call("layer_norm", [rows(x), [...one.gain], [...one.bias]]).map((row) => Float32Array.from(row)); });
      if (name === "positions") {
        const table = python.call("positions", [200, model.config.d_model]);
        replace(model, "place", (position) => Float32Array.from(table[position]));
      }
      try {
        const ids = name === "decode" ? [BOS, ...GATES.decode.call([null, BOS, EOS, src.length + 20], src)] : greedyDecode(model, src);
        return { text: tokenizer.decode(ids) };
      } finally { undo.forEach((one) => one()); }
    }

    onmessage = async ({ data }) => {
      try {
        if (data.content) {
          translator = await Transformer.Translator.load(data.content);
          const machine = await loadMicroPython({ wasmBinary: await Transformer.unpack(data.wasm), heapsize: 64 * 2 ** 20, stdout: (line) => postMessage({ printed: line }) });
          machine.runPython("import json");
          python = {
            read(code) { machine.runPython(code); },
            call(name, asked, scores) {
              machine.globals.set("_asked", JSON.stringify(asked));
              if (scores) machine.globals.set("_scores", scores);
              const first = scores ? "lambda ids: json.loads(_scores(json.dumps(ids))), " : "";
              machine.runPython(`_found = ${name}(${first}*json.loads(_asked))\n_found = json.dumps(_found)`);
              const text = machine.globals.get("_found");
              if (text === "null") throw new Error("None");
              return JSON.parse(text.replace(/-?\binf\b|\bnan\b/g, "null"), (_, value) => (value === null ? NaN : value));
            },
          };
          return void postMessage({ ready: true });
        }
        let last = 0, count = 0;
        progress = () => { count += 1; if (performance.now() - last > 200) { last = performance.now(); postMessage({ step: count }); } };
        python.read(data.code);
        const { ids } = { ids: translator.source(data.sentence) };
        postMessage({ found: data.plug ? plug(data.name, ids, data.where) : judge(data.name, ids) });
      } catch (error) {
        const line = [...error.message.matchAll(/line (\d+)/g)].at(-1), last = error.message.trim().split("\n").at(-1);
        postMessage({ error: last, line: line ? Number(line[1]) : null });
      }
    };
  }

  // --- on the page ---

  const el = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  let kept = {}; // what was written, by function
  try { kept = JSON.parse(localStorage.mine ?? "{}"); } catch { /* nothing was kept, or may be */ }
  const keep = (name, code) => {
    kept[name] = code;
    try { localStorage.mine = JSON.stringify(kept); } catch { /* not kept */ }
  };

  let worker = null; // one for all editors, made when it is first asked, and again after it had to be ended
  async function running() {
    if (worker) return worker;
    const parts = [...document.querySelectorAll("script[data-worker], #micropython")].map((script) => script.textContent);
    const address = URL.createObjectURL(new Blob([`${parts.join("\n")}\n(${serve})();`], { type: "text/javascript" })), made = new Worker(address);
    URL.revokeObjectURL(address);
    const [{ model }, wasm] = [await liveContent(), document.getElementById("micropython-wasm").textContent];
    const ready = new Promise((resolve, reject) => {
      made.onmessage = ({ data }) => (data.ready ? resolve() : reject(new Error(data.error)));
      made.onerror = (event) => reject(new Error(event.message));
    });
    made.postMessage({ content: { ...model, weights: document.getElementById("explorer-weights").textContent }, wasm });
    await ready;
    return (worker = made);
  }
  const end = () => { worker?.terminate(); worker = null; };

  // Ask the worker; it is ended after some seconds, or when the reader stops it.
  async function ask(asked, seconds, signal, step) {
    const one = await running();
    return new Promise((resolve) => {
      let printed = "";
      const done = (found) => { clearTimeout(late); signal.removeEventListener("abort", stop); resolve({ ...found, printed }); };
      const stop = () => { end(); done({ stopped: true }); }, late = setTimeout(() => { end(); done({ late: seconds }); }, 1000 * seconds);
      signal.addEventListener("abort", stop);
      one.onmessage = ({ data }) => {
        if ("step" in data) step(data.step);
        else if ("printed" in data) printed = (printed + data.printed + "\n").slice(0, 300);
        else done(data);
      };
      one.postMessage(asked);
    });
  }

  const number = (value) => String(Number(value.toPrecision(5)));
  function verdict({ found, error, line, late, stopped }) { // [whether it is right, what is said]
    if (stopped) return [false, say("Stopped.")];
    if (late) return [false, say("It didn't end within {seconds} seconds.", { seconds: late })];
    if (error === "None") return [false, say("The function gives nothing: a `return` is missing, or not reached.")];
    if (error) return [false, line ? say("Line {line}: {error}", { line, error }) : error];
    if (found.right) return [true, say("Right, for your sentence and for the awkward cases.")];
    if (found.mistake) {
      const { line: code, effect } = WRITTEN[found.mistake];
      return [false, `${say("This is what comes out with {code}.", { code })} ${effect}`];
    }
    if (found.infinite) return [false, say("{count} of the numbers aren't finite.", { count: found.infinite })];
    if (found.shape) return [false, say("The result has the shape ({mine}), and should have ({right}).", { mine: found.shape.join(", "), right: found.wanted.join(", ") })];
    const { row, column, mine, expected, largest } = found;
    return [false, say("Row {row}, column {column} is {mine} instead of {right}; the largest error is {largest}. No mistake that I know gives this.",
      { row, column, mine: number(mine), right: number(expected), largest: number(largest) })];
  }

  const PLUGGABLE = { attention: true, positions: true, layer_norm: true, decode: true };
  function editor(name) {
    const field = el("textarea", { value: kept[name] ?? STUBS[name], spellcheck: false, wrap: "off", rows: 9, ariaLabel: say("Your function {name}", { name }) });
    const check = el("button", { type: "button", textContent: say("Check it") }), stop = el("button", { type: "button", textContent: say("Stop"), hidden: true });
    const put = el("button", { type: "button", textContent: say("Put it into the model"), hidden: !PLUGGABLE[name] });
    const take = el("button", { type: "button", textContent: say("Take mine.py along") }), said = el("output");
    const where = el("select", { hidden: name !== "attention", ariaLabel: say("Where in the encoder") });
    let stopper = new AbortController();

    async function ask_(plugged) {
      keep(name, field.value);
      const before = document.activeElement;
      for (const button of [check, put]) button.disabled = true;
      stop.hidden = false;
      stopper = new AbortController();
      said.className = "busy";
      said.textContent = say("computing…");
      try {
        await yourSentence.begin();
        const sentence = yourSentence.current(), [layer, head] = where.value.split(" ").map(Number);
        const asked = { code: field.value, name, sentence, plug: plugged, where: where.value === "all" || !where.value ? null : { layer, head } };
        const found = await ask(asked, plugged ? PLUGGED : name === "decode" ? 4 * SECONDS : SECONDS, stopper.signal, (count) => { said.textContent = say("computing… {count} calls", { count }); });
        if (plugged && found.found) {
          said.className = "plugged";
          said.replaceChildren(say("With your function in it, the model writes:"), el("strong", { textContent: found.found.text || say("(nothing)") }));
        } else {
          const [right, text] = verdict(found);
          said.className = right ? "right" : "wrong";
          said.textContent = text;
        }
        if (found.printed) said.append(el("pre", { textContent: found.printed }));
      } catch (error) {
        said.className = "wrong";
        said.textContent = error.message;
      }
      for (const button of [check, put]) button.disabled = false;
      stop.hidden = true;
      before?.focus();
    }

    check.addEventListener("click", () => ask_(false));
    put.addEventListener("click", () => ask_(true));
    stop.addEventListener("click", () => stopper.abort());
    take.addEventListener("click", () => {
      keep(name, field.value);
      const text = [`"""${say("Judge it: annotated-transformer judge mine.py")}"""`, "", "", "def take(array):", "    return array.tolist()", "", "", ...Object.values(kept)].join("\n");
      const link = el("a", { href: URL.createObjectURL(new Blob([text], { type: "text/x-python" })), download: "mine.py" });
      link.click();
      URL.revokeObjectURL(link.href);
    });
    field.addEventListener("input", () => keep(name, field.value));
    let leaves = false; // Escape, then Tab, leaves the field; Tab alone indents
    field.addEventListener("keydown", (event) => {
      if (event.key === "Tab" && !leaves && !event.shiftKey) {
        event.preventDefault();
        field.setRangeText("    ", field.selectionStart, field.selectionEnd, "end");
      }
      leaves = event.key === "Escape";
    });
    const fold = el("details", { className: "write-it" });
    fold.dataset.function = name;
    fold.append( el("summary", { textContent: say("Write it yourself: {name}", { name }) }),
      el("p", { textContent: say("Python in plain lists. It is compared with the live model, for your sentence. Escape, then Tab, leaves the field.") }),
      field, el("div", { className: "controls" }, check, stop, put, where, take), said);
    fold.addEventListener("toggle", async () => {
      if (!fold.open || where.options.length || name !== "attention") return;
      const { model: { config: { N, h } } } = await liveContent();
      where.append(...Array.from({ length: N * h }, (_, i) => {
        const [layer, head] = [Math.floor(i / h), i % h];
        return el("option", { value: `${layer} ${head}`, selected: i === 1, textContent: say("layer {layer}, head {head}", { layer: layer + 1, head: head + 1 }) });
      }), el("option", { value: "all", textContent: say("all heads of the model") }));
    });
    return fold;
  }

  function start() {
    for (const [heading, name] of Object.entries(PLACES)) {
      const section = document.getElementById(heading)?.closest("section");
      if (!section) continue;
      let last = section;
      while (last.nextElementSibling && !last.nextElementSibling.querySelector(":scope > :is(h1, h2, h3)")) last = last.nextElementSibling;
      last.after(editor(name));
    }
  }

  return { PLACES, STUBS, SECONDS, PLUGGED, serve, start };
})();

if (typeof module !== "undefined") module.exports = WriteIt;
else if (document.getElementById("micropython-wasm")) WriteIt.start();
