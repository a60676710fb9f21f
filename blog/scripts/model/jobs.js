// What the page asks the model in its worker. A job is a generator: it yields how far it is, so
// that it can be stopped.

import { ALPHA, BEAM, beamSteps, greedySteps } from "./decoding.js";
import { lineSteps } from "./greedy_translator.js";
import { lens, neighbours, patched, switched, trace, without } from "./trace.js";

/** What the page sends; each job reads some of it. `forced` and `hidden` are SearchOptions.
 *  @typedef {{ sentence: string, other: string, search: SearchName, kind: Kind,
 *    step: number | null, switches?: Switches, forced?: number[], hidden?: number[] }} Question */
/** @typedef {ReturnType<typeof translated>} Searching
 *  @typedef {Searching extends Search<infer Outcome> ? Outcome : never} Result */
/** @typedef {import("./trace.js").Trace & { sentence: string,
 *    near: { id: number, cosine: number }[][] }} Facts */

/** @typedef {keyof typeof JOBS} JobName */

const KEPT_RESULTS = 24;

/** Of the last questions. @type {Map<string, unknown>} */
const results = new Map();

/** @template Outcome @param {unknown[]} key @param {() => Search<Outcome>} search
 *  @returns {Search<Outcome>} */
function* once(key, search) {
  const name = JSON.stringify(key);
  if (!results.has(name)) results.set(name, yield* search());
  if (results.size > KEPT_RESULTS) results.delete([...results.keys()][0]);
  return /** @type {Outcome} */ (results.get(name));
}

const JOBS = {
  *translate(/** @type {Translator} */ translator, /** @type {Question} */ question) {
    const { sentence, search, forced = [], hidden = [], switches } = question;
    const job = () => translated(translator, question);
    return yield* once(["translate", sentence, search, switches, forced, hidden], job);
  },
  *line(/** @type {Translator} */ translator, /** @type {Question} */ { sentence }) {
    return yield* lineSteps(translator, sentence);
  },
  *facts(/** @type {Translator} */ translator, /** @type {Question} */ { sentence, switches }) {
    return yield* once(["facts", sentence, switches], function* () {
      const facts = trace(translator, sentence, yield* beam(translator, sentence, switches));
      yield 0;
      const near = new Map(facts.src.map((id) => [id, neighbours(translator, id)]));
      return { ...facts, near: facts.src.map((id) => near.get(id) ?? []), sentence };
    });
  },
  *lens(/** @type {Translator} */ translator, /** @type {Question} */ question) {
    const { steps } = yield* JOBS.facts(translator, question);
    const layers = [];
    for (const step of steps) {
      layers.push(lens(translator, step));
      yield layers.length;
    }
    return layers;
  },
  /** The greedy translation of a sentence, with all heads of a kind and without each of them.
   *  @param {Translator} translator @param {Question} question */
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
  /** @param {Translator} translator @param {Question} question */
  *patch(translator, { sentence, other, step, switches }) {
    const { ids } = yield* beam(translator, sentence, switches);
    return patched(translator, [sentence, other], ids.slice(0, -1), step);
  },
};

/** @param {Translator} translator @param {string} sentence @param {Switches} [switches] */
function beam(translator, sentence, switches) {
  const question = { sentence, switches, search: "beam" };
  return JOBS.translate(translator, /** @type {Question} */ (question));
}

/** A translation with all weights, and the beam's nodes.
 *  @param {Translator} translator @param {Question} question */
function* translated(translator, { sentence, search, forced, hidden: places = [] }) {
  const { model, tokenizer } = translator;
  const src = translator.source(sentence);
  const hidden = new Set(places);
  const options = { forced, hidden };
  /** @type {Found} */
  const { ids, nodes, best } =
    search === "beam"
      ? yield* beamSteps(model, src, BEAM, ALPHA, options)
      : { ids: yield* greedySteps(model, src, undefined, options) };
  return {
    ...translator.attentionMaps(src, ids, hidden),
    nodes: nodes?.map((node) => ({ ...node, token: tokenizer.pieces[node.id] })) ?? null,
    best: best ?? null,
  };
}

/** What the model answers, with what the reader has switched off in it.
 *  @param {Translator} translator @param {JobName} what @param {Question} question
 *  @returns {Search<unknown>} */
export function answer(translator, what, question) {
  /** @returns {Search<unknown>} */
  const job = () => JOBS[what](translator, question);
  return switched(translator.model, question.switches, job);
}
