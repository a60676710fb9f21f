// What a sentence goes through, stop by stop.

import { CachedDecoder, beamSearch } from "./decoding.js";
import { dot, largest, linear, softmax } from "./tensors.js";

const KINDS = ["encoder", "decoder", "cross"];

// The numbers on the way of a sentence whose translation is known, named as in the document;
// vectors are those of every token, in its order.
export function trace(
  translator,
  sentence,
  { ids, nodes = null, best = null } = beamSearch(translator.model, translator.source(sentence)),
) {
  const { model, tokenizer } = translator;
  const { d_model } = model.config;
  const src = translator.source(sentence);
  const { table } = model.src_embed;
  const rows = src.map((id) => table.data.slice(id * d_model, (id + 1) * d_model));
  const embedded = model.scaled(model.src_embed, src);
  const input = model.source(src);
  const positions = input.map((vector, t) => vector.map((value, i) => value - embedded[t][i]));
  const { layers, memory } = encoded(model, input);
  const decoder = new CachedDecoder(model, memory);
  const steps = ids.slice(0, -1).map((id) => {
    const { logits, states, ...weights } = decoder.step([id]);
    return { logits: logits[0], states: states.map(([vector]) => vector), ...weights };
  });
  const translation = tokenizer.decode(ids);
  return {
    ...{ src, ids, nodes, best, rows, embedded, positions, input, layers, memory, steps },
    translation,
  };
}

// What each layer of the encoder does to its input, and the memory.
function encoded(model, input) {
  let x = input;
  const at = model.positions ? undefined : 0;
  const layers = model.encoder.layers.map(({ self_attn, feed_forward, sublayer }) => {
    const before = x;
    let looked;
    let inner;
    const between = sublayer[0].forward(x, (y) => {
      looked = looks(self_attn, y, at);
      return looked.attended;
    });
    x = sublayer[1].forward(between, (y) => {
      inner = feed_forward.hidden(y);
      return feed_forward.forward(y);
    });
    return { before, between, inner, after: x, ...looked };
  });
  return { layers, memory: model.encoder.norm.forward(x) };
}

// Queries, keys, scores and weights of a self-attention, and what it gives for its input.
function looks(attn, y, at) {
  const visible = attn.keysValues(y, at);
  const queries = attn.queries(y, at);
  const width = queries[0].length / attn.h;
  const score = (q, k, head) => dot(q, head * width, k, head * width, width) / attn.divisor;
  const scores = Array.from({ length: attn.h }, (_, head) =>
    queries.map((q) => Float64Array.from(visible.keys, (k) => score(q, k, head))),
  );
  const everyone = y.map(() => visible);
  return {
    normed: y,
    queries,
    keys: visible.keys,
    scores,
    weights: scores.map((rows) => rows.map(softmax)),
    attended: attn.attend(y, everyone, at).output,
  };
}

// What each layer of the decoder would say at a step if it were the last: token ids and their
// probabilities.
export function lens({ model }, { states }) {
  return states.map((vector) => {
    const p = softmax(linear(model.decoder.norm.forward([vector]), model.generator)[0]),
      [id] = largest(p, 1);
    return { id, p: p[id] };
  });
}

// The tokens whose rows point in the directions most like a token's, with their cosines.
export function neighbours({ model }, id, count = 8) {
  const { d_model } = model.config;
  const { data } = model.src_embed.table;
  const product = (i, j) => dot(data, i * d_model, data, j * d_model, d_model);
  const size = Math.sqrt(product(id, id));
  const cosines = Float64Array.from({ length: data.length / d_model }, (_, i) =>
    i === id ? -1 : product(i, id) / (size * Math.sqrt(product(i, i)) || 1),
  );
  return largest(cosines, count).map((i) => ({ id: i, cosine: cosines[i] }));
}

// With some heads set to zero as well, as { kind: ["layer head", ...] } from 1, while a search
// runs.
export function* without(model, off, search) {
  const attentions = KINDS.flatMap((kind) =>
    model.heads(kind).map((attn, layer) => ({ attn, kind, layer, before: [...attn.off] })),
  );
  for (const { attn, kind, layer } of attentions)
    for (const place of off[kind] ?? []) {
      const [l, head] = place.split(" ").map(Number);
      if (l - 1 === layer) attn.off.add(head - 1);
    }
  try {
    return yield* search();
  } finally {
    for (const { attn, before } of attentions) attn.off = new Set(before);
  }
}

// With what a reader has switched off in the model: the positions of the source, the division by
// √d_k, the decoder's mask, and heads, `off`.
export function* switched(
  model,
  { positions = true, scaling = true, mask = true, off = {} } = {},
  search,
) {
  const attentions = KINDS.flatMap((kind) => model.heads(kind));
  const set = (values) => {
    model.positions = values.positions;
    model.mask = values.mask;
    for (const attn of attentions) attn.scaling = values.scaling;
  };
  set({ positions, scaling, mask });
  try {
    return yield* without(model, off, search);
  } finally {
    set({ positions: true, scaling: true, mask: true });
  }
}

// The probabilities after each step of a translation, with what `change` puts in the place of
// attentions' outputs.
function* read(translator, sentence, ids, change) {
  const { memory } = translator.model.encode(translator.source(sentence));
  let t = 0;
  const decoder = new CachedDecoder(translator.model, memory, null, (kind, layer, output) =>
    change(t, kind, layer, output),
  );
  for (; t < ids.length; t++) yield softmax(decoder.step([ids[t]]).logits[0]);
}

// At a step of a sentence's translation (by default the first at which the two differ), the
// probabilities of what the sentence would write and of what another one would, when some outputs
// of attentions come from that other one.
export function patched(translator, [sentence, other], ids, step = null) {
  const kept = {},
    N = translator.model.config.N,
    layers = [...Array(N).keys()],
    same = (t, kind, layer, output) => output;
  const own = [...read(translator, sentence, ids, same)];
  const theirs = [
    ...read(translator, other, ids, (t, kind, layer, output) => (kept[[t, kind, layer]] = output)),
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
