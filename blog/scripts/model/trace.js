// What a sentence goes through, stop by stop.

import { CachedDecoder, beamSearch } from "./decoding.js";
import { largest, linear, softmax } from "./tensors.js";

const KINDS = ["encoder", "decoder", "cross"];

// The numbers on the way of a sentence whose translation is known, named as in the document;
// vectors are those of every token, in its order.
export function trace(
  translator,
  sentence,
  { ids, nodes = null, best = null } = beamSearch(translator.model, translator.source(sentence)),
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
    decoder = new CachedDecoder(model, memory);
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
export function lens({ model }, { states }) {
  return states.map((vector) => {
    const p = softmax(linear(model.decoder.norm.forward([vector]), model.generator)[0]),
      [id] = largest(p, 1);
    return { id, p: p[id] };
  });
}

// The tokens whose rows point in the directions most like a token's, with their cosines.
export function neighbours(
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
export function* without(model, off, search) {
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
