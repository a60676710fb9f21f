// The model at work beside the page, so that nothing that it computes holds the page up:
// `Inside.serve()` answers questions in a worker, `Inside.engine(content)` is the page's side of
// it. What a sentence goes through, stop by stop, is `trace`.

const Inside = (() => {
  "use strict";

  const { softmax, linear, largest } = Transformer;
  const KINDS = ["encoder", "decoder", "cross"],
    KEPT = 24; // results

  // --- what the model computes ---

  // The numbers on the way of a sentence whose translation is known, named as in the document;
  // vectors are those of every token, in its order.
  function trace(
    translator,
    sentence,
    { ids, nodes = null, best = null } = Transformer.beamSearch(
      translator.model,
      translator.source(sentence),
    ),
  ) {
    const { model, tokenizer } = translator,
      { d_model, h } = model.config,
      src = translator.source(sentence),
      { table } = model.src_embed;
    const rows = src.map((id) => table.data.slice(id * d_model, (id + 1) * d_model));
    const embedded = rows.map((row) => row.map((value) => value * Math.sqrt(d_model))),
      input = model.embed(model.src_embed, src);
    const positions = input.map((vector, t) => vector.map((value, i) => value - embedded[t][i]));
    let x = input;
    const layers = model.encoder.layers.map(({ self_attn, feed_forward, sublayer }) => {
      const found = { before: x };
      x = found.between = sublayer[0].forward(x, (y) => {
        const all = self_attn.keysValues(y),
          queries = self_attn.queries(y),
          width = queries[0].length / h;
        const score = (q, k, head) =>
          q
            .slice(head * width, (head + 1) * width)
            .reduce((sum, value, i) => sum + value * k[head * width + i], 0) / Math.sqrt(width);
        found.scores = Array.from({ length: h }, (_, head) =>
          queries.map((q) => Float64Array.from(all.keys, (k) => score(q, k, head))),
        );
        found.weights = found.scores.map((rows) => rows.map(softmax));
        Object.assign(found, {
          normed: y,
          queries,
          keys: all.keys,
          attended: self_attn.attend(
            y,
            y.map(() => all),
          ).output,
        });
        return found.attended;
      });
      x = found.after = sublayer[1].forward(x, (y) => {
        found.inner = feed_forward.hidden(y);
        return feed_forward.forward(y);
      });
      return found;
    });
    const memory = model.encoder.norm.forward(x),
      decoder = new Transformer.CachedDecoder(model, memory);
    const steps = ids.slice(0, -1).map((id) => {
      const { logits, states, ...weights } = decoder.step([id]);
      return { logits: logits[0], states: states.map(([vector]) => vector), ...weights };
    });
    return {
      src,
      ids,
      nodes,
      best,
      rows,
      embedded,
      positions,
      input,
      layers,
      memory,
      steps,
      translation: tokenizer.decode(ids),
    };
  }

  // What each layer of the decoder would say at a step if it were the last: token ids and their
  // probabilities.
  function lens({ model }, { states }) {
    return states.map((vector) => {
      const p = softmax(linear(model.decoder.norm.forward([vector]), model.generator)[0]),
        [id] = largest(p, 1);
      return { id, p: p[id] };
    });
  }

  // The tokens whose rows point in the directions most like a token's, with their cosines.
  function neighbours(
    {
      model: {
        src_embed: {
          table: { data },
        },
        config: { d_model },
      },
    },
    id,
    count = 8,
  ) {
    const row = (i) => data.subarray(i * d_model, (i + 1) * d_model),
      dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
    const own = row(id),
      size = Math.sqrt(dot(own, own));
    const cosines = Float64Array.from({ length: data.length / d_model }, (_, i) =>
      i === id ? -1 : dot(row(i), own) / (size * Math.sqrt(dot(row(i), row(i))) || 1),
    );
    return largest(cosines, count).map((i) => ({ id: i, cosine: cosines[i] }));
  }

  // With some heads set to zero, as { kind: ["layer head", ...] } from 1, while a search runs.
  function* without(model, off, search) {
    const set = (chosen) =>
      KINDS.forEach((kind) =>
        model.heads(kind).forEach((attention, layer) => {
          attention.off.clear();
          for (const [l, head] of (chosen[kind] ?? []).map((place) => place.split(" ")))
            if (l - 1 === layer) attention.off.add(head - 1);
        }),
      );
    set(off);
    try {
      return yield* search();
    } finally {
      set({});
    }
  }

  // The probabilities after each step of a translation, with what `change` puts in the place of
  // attentions' outputs.
  function* read(translator, sentence, ids, change) {
    const { memory } = translator.model.encode(translator.source(sentence));
    let t = 0;
    const decoder = new Transformer.CachedDecoder(
      translator.model,
      memory,
      null,
      (kind, layer, output) => change(t, kind, layer, output),
    );
    for (; t < ids.length; t++) yield softmax(decoder.step([ids[t]]).logits[0]);
  }

  // At a step of a sentence's translation (by default the first at which the two differ), the
  // probabilities of what the sentence would write and of what another one would, when some outputs
  // of attentions come from that other one.
  function patched(translator, [sentence, other], ids, step = null) {
    const kept = {},
      N = translator.model.config.N,
      layers = [...Array(N).keys()],
      same = (t, kind, layer, output) => output;
    const own = [...read(translator, sentence, ids, same)];
    const theirs = [
      ...read(
        translator,
        other,
        ids,
        (t, kind, layer, output) => (kept[[t, kind, layer]] = output),
      ),
    ];
    const first = (p) => largest(p, 1)[0],
      differs = own.findIndex((p, t) => first(p) !== first(theirs[t]));
    const at = step ?? Math.max(0, differs),
      names = [first(own[at]), first(theirs[at])];
    const choices = [
      { kind: "cross", layers: [] },
      ...layers.map((layer) => ({ kind: "cross", layers: [layer] })),
      { kind: "cross", layers: layers.slice(-2) },
      { kind: "cross", layers },
      { kind: "decoder", layers },
    ].filter(
      (one, i, all) =>
        all.findIndex(
          ({ kind, layers }) => kind === one.kind && layers.join() === one.layers.join(),
        ) === i,
    );
    const rows = choices.map(({ kind, layers }) => {
      const change = (t, k, layer, output) =>
        t === at && k === kind && layers.includes(layer) ? kept[[t, k, layer]] : output;
      const p = [...read(translator, sentence, ids.slice(0, at + 1), change)].at(-1);
      return { kind, layers, p: names.map((id) => p[id]) };
    });
    return { at, names, rows };
  }

  // --- in the worker ---

  const kept = new Map(); // the results of the last questions
  function* once(key, search) {
    const name = JSON.stringify(key);
    if (!kept.has(name)) kept.set(name, yield* search());
    if (kept.size > KEPT) kept.delete(kept.keys().next().value);
    return kept.get(name);
  }

  const JOBS = {
    *translate(translator, asked) {
      const { sentence, search, temperature, topP, off = {}, forced = [], changes } = asked,
        { model } = translator,
        src = translator.source(sentence);
      const at = changes && { ...changes, hidden: new Set(changes.hidden) },
        options = { forced, changes: at };
      const searches = {
        beam: () => Transformer.beamSteps(model, src, Transformer.BEAM, Transformer.ALPHA, options),
        *greedy() {
          return { ids: yield* Transformer.greedySteps(model, src, undefined, options) };
        },
        *sample() {
          return {
            ids: yield* Transformer.sampleSteps(
              model,
              src,
              temperature,
              topP,
              Math.random,
              options,
            ),
          };
        },
      };
      const whole = function* () {
        const { ids, nodes = null, best = null } = yield* searches[search](),
          pieces = translator.tokenizer.pieces;
        const drawnFrom =
          search === "sample"
            ? (logits) => Transformer.nucleus(logits, temperature, topP)
            : undefined;
        return {
          ...translator.attentionMaps(src, ids, drawnFrom, { changes: at }),
          nodes: nodes?.map((node) => ({ ...node, token: pieces[node.id] })) ?? null,
          best,
        };
      };
      const job = () => without(model, off, whole);
      return search === "sample"
        ? yield* job()
        : yield* once(["translate", sentence, search, off, forced, changes ?? null], job);
    },
    *facts(translator, { sentence }) {
      return yield* once(["facts", sentence], function* () {
        const found = yield* JOBS.translate(translator, { sentence, search: "beam" }),
          facts = trace(translator, sentence, found);
        yield 0;
        const near = new Map(facts.src.map((id) => [id, neighbours(translator, id)]));
        return { ...facts, near: facts.src.map((id) => near.get(id)), sentence };
      });
    },
    *lens(translator, { sentence }) {
      const found = yield* JOBS.facts(translator, { sentence }),
        layers = [];
      for (const step of found.steps) {
        layers.push(lens(translator, step));
        yield layers.length;
      }
      return layers;
    },
    // The greedy translation of a sentence, with all heads of a kind and without each of them.
    *removed(translator, { sentence, kind }) {
      return yield* once(["removed", sentence, kind], function* () {
        const { model, tokenizer } = translator,
          src = translator.source(sentence),
          rows = [];
        const greedy = function* () {
            return tokenizer.decode(yield* Transformer.greedySteps(model, src));
          },
          whole = yield* greedy();
        for (const [layer, { h }] of model.heads(kind).entries())
          for (let head = 0; head < h; head++)
            rows.push({
              layer,
              head,
              text: yield* without(model, { [kind]: [`${layer + 1} ${head + 1}`] }, greedy),
            });
        return { whole, rows };
      });
    },
    *patch(translator, { sentence, other, step }) {
      const { ids } = yield* JOBS.translate(translator, { sentence, search: "beam" });
      return patched(translator, [sentence, other], ids.slice(0, -1), step);
    },
  };

  // The same with all numbers in one block, which a message copies at once instead of row by row.
  function packed(value) {
    const parts = new Map(),
      walk = (part, found) =>
        ArrayBuffer.isView(part)
          ? found(part)
          : Array.isArray(part)
            ? part.map((one) => walk(one, found))
            : part && typeof part === "object"
              ? Object.fromEntries(
                  Object.entries(part).map(([name, one]) => [name, walk(one, found)]),
                )
              : part;
    let length = 0;
    walk(value, (part) => {
      if (!parts.has(part)) {
        parts.set(part, length);
        length += part.length;
      }
    });
    const block = new Float32Array(length);
    for (const [part, at] of parts) block.set(part, at);
    return walk(value, (part) => block.subarray(parts.get(part), parts.get(part) + part.length));
  }

  function serve() {
    const jobs = [],
      stopped = new Set(),
      pause = () => new Promise((go) => setTimeout(go));
    let translator = null,
      working = false;
    async function work() {
      if (working) return;
      working = true;
      for (let job; (job = jobs.shift());) {
        const { id, what, asked } = job;
        try {
          const steps = JOBS[what](await translator, asked);
          for (let breath = performance.now(), { done, value } = { done: false }; ;) {
            if (stopped.has(id)) {
              steps.return();
              break;
            }
            ({ done, value } = steps.next());
            if (done) {
              postMessage({ id, found: packed(value) });
              break;
            }
            if (performance.now() - breath < 50) continue;
            postMessage({ id, step: value });
            await pause(); // the message that says stop, if there is one
            breath = performance.now();
          }
        } catch (error) {
          postMessage({ id, error: error.message });
        }
      }
      working = false;
    }
    onmessage = ({ data }) => {
      if (data.content) {
        translator = Transformer.Translator.load(data.content);
        translator.then(
          () => postMessage({ ready: true }),
          (error) => postMessage({ failed: error.message }),
        );
      } else if ("stop" in data) stopped.add(data.stop);
      else {
        jobs.push(data);
        work();
      }
    };
  }

  // --- on the page ---

  /** A question to the model is a promise: `ask(what, asked, { signal, step })`; `step` is told how
   *  far a long search is. */
  function engine(model) {
    const source = [...document.querySelectorAll("script[data-worker]")]
      .map((script) => script.textContent)
      .join("\n");
    const address = URL.createObjectURL(
        new Blob([`${source}\nInside.serve();`], { type: "text/javascript" }),
      ),
      worker = new Worker(address);
    URL.revokeObjectURL(address);
    const waiting = new Map(),
      { weights, ...rest } = model;
    let count = 0;
    const ready = new Promise((resolve, reject) => {
      worker.onmessage = ({ data }) => {
        if (data.ready) return resolve();
        if (data.failed) return reject(new Error(data.failed));
        const { resolve: found, reject: refuse, step } = waiting.get(data.id) ?? {};
        if ("step" in data) return step?.(data.step);
        waiting.delete(data.id);
        if ("error" in data) refuse?.(new Error(data.error));
        else found?.(data.found);
      };
      worker.onerror = (event) => reject(new Error(event.message));
    });
    ready.catch(() => {}); // who asks is told
    worker.postMessage({
      content: {
        ...rest,
        weights: weights ?? document.getElementById("explorer-weights").textContent,
      },
    });
    function ask(what, asked, { signal, step } = {}) {
      const id = (count += 1);
      return ready.then(
        () =>
          new Promise((resolve, reject) => {
            if (signal?.aborted) return reject(signal.reason);
            waiting.set(id, { resolve, reject, step });
            worker.postMessage({ id, what, asked });
            signal?.addEventListener("abort", () => {
              worker.postMessage({ stop: id });
              waiting.delete(id);
              reject(signal.reason);
            });
          }),
      );
    }
    const tokenizer = new Transformer.Tokenizer(model.vocab, model.merges);
    return {
      ask,
      ready,
      tokenizer,
      note: model.note,
      config: model.config,
      source: (sentence) => [...tokenizer.encode(sentence), Transformer.EOS],
    };
  }

  return { trace, lens, neighbours, without, patched, serve, engine };
})();

if (typeof module !== "undefined") module.exports = Inside;
