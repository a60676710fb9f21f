// What a sentence goes through, stop by stop.

import { CachedDecoder, beamSearch } from "./decoding.js";
import { dot, largest, linear, softmax } from "./tensors.js";

/** @typedef {ReturnType<typeof trace>} Trace */

/** @type {Kind[]} */
const KINDS = ["encoder", "decoder", "cross"];
const NEAREST = 8; // rows of the table that are told

/** The numbers on the way of a sentence whose translation is known, named as in the document;
 *  vectors are those of every token, in its order.
 *  @param {Translator} translator @param {string} sentence @param {Found} [found] */
export function trace(translator, sentence, found) {
  const { model, tokenizer } = translator;
  const { d_model } = model.config;
  const src = translator.source(sentence);
  const { ids, nodes, best } = found ?? beamSearch(model, src);
  const { data } = model.src_embed.table;
  const embedded = model.scaled(model.src_embed, src);
  const { layers, memory } = model.encode(src);
  const input = layers[0].before;
  const decoder = new CachedDecoder(model, memory);
  return {
    ...{ src, ids, nodes: nodes ?? [], best: best ?? null, embedded, input, memory },
    layers: layers.map(({ scores, weights, ...layer }) => ({
      ...layer,
      scores: byHead(scores),
      weights: byHead(weights),
    })),
    rows: src.map((id) => data.slice(id * d_model, (id + 1) * d_model)),
    positions: input.map((vector, t) => vector.map((value, i) => value - embedded[t][i])),
    steps: ids.slice(0, -1).map((id) => {
      const { logits, states, ...weights } = decoder.step([id]);
      return { logits: logits[0], states: states.map(([vector]) => vector), ...weights };
    }),
    translation: tokenizer.decode(ids),
  };
}

/** What was by position and head, by head and position. @param {LayerWeights} rows */
const byHead = (rows) => rows[0].map((_, head) => rows.map((row) => row[head]));

/** What each layer of the decoder would say at a step if it were the last: token ids and their
 *  probabilities. @param {Translator} translator @param {{ states: Vectors }} step */
export function lens({ model }, { states }) {
  return states.map((vector) => {
    const p = softmax(linear(model.decoder.norm.forward([vector]), model.generator)[0]);
    const [id] = largest(p, 1);
    return { id, p: p[id] };
  });
}

/** The tokens whose rows point in the directions most like a token's, with their cosines. */
export function neighbours(/** @type {Translator} */ { model }, /** @type {number} */ id) {
  const { d_model } = model.config;
  const { data } = model.src_embed.table;
  const product = (/** @type {number} */ i, /** @type {number} */ j) =>
    dot(data, i * d_model, data, j * d_model, d_model);
  const size = Math.sqrt(product(id, id));
  const cosines = Float64Array.from({ length: data.length / d_model }, (_, i) =>
    i === id ? -1 : product(i, id) / (size * Math.sqrt(product(i, i)) || 1),
  );
  return largest(cosines, NEAREST).map((i) => ({ id: i, cosine: cosines[i] }));
}

/** With some heads set to zero as well while a search runs. @template Outcome @param {Model} model
 *  @param {Partial<Off>} off @param {() => Search<Outcome>} search @returns {Search<Outcome>} */
export function* without(model, off, search) {
  const attentions = KINDS.flatMap((kind) =>
    model.heads(kind).map((attn, layer) => ({ attn, kind, layer, before: attn.off })),
  );
  for (const { attn, kind, layer, before } of attentions) {
    const places = (off[kind] ?? []).map((place) => place.split(" ").map(Number));
    const heads = places.filter(([l]) => l - 1 === layer).map(([, head]) => head - 1);
    attn.off = new Set([...before, ...heads]);
  }
  try {
    return yield* search();
  } finally {
    for (const { attn, before } of attentions) attn.off = before;
  }
}

/** With what a reader has switched off in the model: the positions of the source, the division by
 *  √d_k, the decoder's mask, and heads. @template Outcome @param {Model} model
 *  @param {Partial<Switches> | undefined} switches @param {() => Search<Outcome>} search
 *  @returns {Search<Outcome>} */
export function* switched(model, switches, search) {
  const { positions = true, scaling = true, mask = true, off = {} } = switches ?? {};
  const attentions = KINDS.flatMap((kind) => model.heads(kind));
  Object.assign(model, { positions, mask });
  for (const attn of attentions) attn.scaling = scaling;
  try {
    return yield* without(model, off, search);
  } finally {
    Object.assign(model, { positions: true, mask: true });
    for (const attn of attentions) attn.scaling = true;
  }
}

/** The probabilities after each step of a translation, with what `change` puts in the place of
 *  attentions' outputs. @param {Translator} translator @param {string} sentence
 *  @param {number[]} ids @param {(t: number, ...change: Parameters<Change>) => Vectors} change */
function read(translator, sentence, ids, change) {
  const { memory } = translator.model.encode(translator.source(sentence));
  let step = 0;
  const decoder = new CachedDecoder(translator.model, memory, null, (...given) =>
    change(step, ...given),
  );
  return ids.map((id, t) => {
    step = t;
    return softmax(decoder.step([id]).logits[0]);
  });
}

/** At a step of a sentence's translation (by default the first at which the two differ), the
 *  probabilities of what the sentence would write and of what another one would, when some outputs
 *  of attentions come from that other one.
 *  @param {Translator} translator @param {string[]} sentences this one and the other
 *  @param {number[]} ids @param {number | null} [step] */
export function patched(translator, [sentence, other], ids, step = null) {
  const layers = [...Array(translator.model.config.N).keys()];
  /** @type {Record<string, Vectors>} */
  const outputs = {};
  const ours = read(translator, sentence, ids, (_t, _kind, _layer, output) => output);
  const theirs = read(
    translator,
    other,
    ids,
    (t, kind, layer, output) => (outputs[`${t} ${kind} ${layer}`] = output),
  );
  const first = (/** @type {Float64Array} */ p) => largest(p, 1)[0];
  const differs = ours.findIndex((p, t) => first(p) !== first(theirs[t]));
  const at = step ?? Math.max(0, differs);
  const names = [first(ours[at]), first(theirs[at])];
  /** @type {[Kind, number[]][]} */
  const choices = [
    ["cross", []],
    ...layers.map((layer) => /** @type {[Kind, number[]]} */ (["cross", [layer]])),
    ["cross", layers.slice(-2)],
    ["cross", layers],
    ["decoder", layers],
  ];
  const unlike = new Map(choices.map((choice) => [choice.join(), choice])); // of few layers
  const rows = [...unlike.values()].map(([kind, replaced]) => {
    const p = read(translator, sentence, ids.slice(0, at + 1), (t, k, layer, output) =>
      t === at && k === kind && replaced.includes(layer) ? outputs[`${t} ${k} ${layer}`] : output,
    )[at];
    return { kind, layers: replaced, p: names.map((id) => p[id]) };
  });
  return { at, names, rows };
}
