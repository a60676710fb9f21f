// What the page asks the model in its worker. A job is a generator: it yields how far it is, so
// that it can be stopped.

import { ALPHA, BEAM, beamSteps, greedySteps, nucleus, sampleSteps } from "./decoding.js";
import { lens, neighbours, patched, trace, without } from "./trace.js";

const KEPT = 24; // results

const kept = new Map(); // the results of the last questions
function* once(key, search) {
  const name = JSON.stringify(key);
  if (!kept.has(name)) kept.set(name, yield* search());
  if (kept.size > KEPT) kept.delete(kept.keys().next().value);
  return kept.get(name);
}

export const JOBS = {
  *translate(translator, asked) {
    const { sentence, search, temperature, topP, off = {}, forced = [], changes } = asked,
      { model } = translator,
      src = translator.source(sentence);
    const at = changes && { ...changes, hidden: new Set(changes.hidden) },
      options = { forced, changes: at };
    const searches = {
      beam: () => beamSteps(model, src, BEAM, ALPHA, options),
      *greedy() {
        return { ids: yield* greedySteps(model, src, undefined, options) };
      },
      *sample() {
        return { ids: yield* sampleSteps(model, src, temperature, topP, Math.random, options) };
      },
    };
    const whole = function* () {
      const { ids, nodes = null, best = null } = yield* searches[search](),
        pieces = translator.tokenizer.pieces;
      const drawnFrom =
        search === "sample" ? (logits) => nucleus(logits, temperature, topP) : undefined;
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
          return tokenizer.decode(yield* greedySteps(model, src));
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
