// What the page asks the model in its worker. A job is a generator: it yields how far it is, so
// that it can be stopped.

import { ALPHA, BEAM, beamSteps, greedySteps, nucleus, sampleSteps } from "./decoding.js";
import { lens, neighbours, patched, switched, trace, without } from "./trace.js";

const KEPT = 24; // results

const kept = new Map(); // the results of the last questions
function* once(key, search) {
  const name = JSON.stringify(key);
  if (!kept.has(name)) kept.set(name, yield* search());
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return kept.get(name);
}

const JOBS = {
  *translate(translator, asked) {
    const { sentence, search, forced = [], changes, switches } = asked;
    const at = changes && { ...changes, hidden: new Set(changes.hidden) };
    const job = () => translated(translator, asked, { forced, changes: at });
    return search === "sample"
      ? yield* job()
      : yield* once(["translate", sentence, search, switches, forced, changes ?? null], job);
  },
  *facts(translator, { sentence, switches }) {
    return yield* once(["facts", sentence, switches], function* () {
      const search = { sentence, switches, search: "beam" };
      const facts = trace(translator, sentence, yield* JOBS.translate(translator, search));
      yield 0;
      const near = new Map(facts.src.map((id) => [id, neighbours(translator, id)]));
      return { ...facts, near: facts.src.map((id) => near.get(id)), sentence };
    });
  },
  *lens(translator, { sentence, switches }) {
    const { steps } = yield* JOBS.facts(translator, { sentence, switches });
    const layers = [];
    for (const step of steps) {
      layers.push(lens(translator, step));
      yield layers.length;
    }
    return layers;
  },
  // The greedy translation of a sentence, with all heads of a kind and without each of them.
  *removed(translator, { sentence, kind, switches }) {
    return yield* once(["removed", sentence, kind, switches], function* () {
      const { model, tokenizer } = translator;
      const src = translator.source(sentence);
      const greedy = function* () {
        return tokenizer.decode(yield* greedySteps(model, src));
      };
      const whole = yield* greedy();
      const rows = [];
      for (const [layer, { h }] of model.heads(kind).entries())
        for (let head = 0; head < h; head++) {
          const off = { [kind]: [`${layer + 1} ${head + 1}`] };
          rows.push({ layer, head, text: yield* without(model, off, greedy) });
        }
      return { whole, rows };
    });
  },
  *patch(translator, { sentence, other, step, switches }) {
    const search = { sentence, switches, search: "beam" };
    const { ids } = yield* JOBS.translate(translator, search);
    return patched(translator, [sentence, other], ids.slice(0, -1), step);
  },
};

// A translation with all weights, and the beam's nodes.
function* translated(translator, { sentence, search, temperature, topP }, options) {
  const { model, tokenizer } = translator;
  const src = translator.source(sentence);
  const searches = {
    beam: () => beamSteps(model, src, BEAM, ALPHA, options),
    *greedy() {
      return { ids: yield* greedySteps(model, src, undefined, options) };
    },
    *sample() {
      return { ids: yield* sampleSteps(model, src, temperature, topP, Math.random, options) };
    },
  };
  const { ids, nodes = null, best = null } = yield* searches[search]();
  const drawnFrom =
    search === "sample" ? (logits) => nucleus(logits, temperature, topP) : undefined;
  return {
    ...translator.attentionMaps(src, ids, drawnFrom, options),
    nodes: nodes?.map((node) => ({ ...node, token: tokenizer.pieces[node.id] })) ?? null,
    best,
  };
}

/** What the model answers, with what the reader has switched off in it. */
export function* answer(translator, what, asked) {
  return yield* switched(translator.model, asked.switches, () => JOBS[what](translator, asked));
}
