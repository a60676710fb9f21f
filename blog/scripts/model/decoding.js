// Decoding: the decoder token by token, and the searches of Parts 2 and 4.

import { largest, linear, logSoftmax, softmax } from "./tensors.js";
import { BOS, EOS } from "./tokeniser.js";

const MORE = 50; // a translation may be this much longer than its source
export const [BEAM, ALPHA] = [5, 1.8];
export const LONGEST = 150; // tokens of a source: with more, a search would take too long

// The decoder, one token of each row at a time, with the keys and values of all that was before.
// Rows share the source. `change` is given the output of every attention, with "decoder" or
// "cross" and the layer, and gives what takes its place.
export class CachedDecoder {
  constructor(model, memory, hidden = null, change = (kind, layer, output) => output) {
    Object.assign(this, { model, change, length: 0, written: [[]] });
    this.source = model.decoder.layers.map((layer) => ({
      ...layer.src_attn.keysValues(memory),
      hidden,
    }));
    // of each row and layer
    this.past = [model.decoder.layers.map(() => ({ keys: [], values: [] }))];
  }

  // The next token of each row to the logits of the one after it, the weights of every layer, row
  // and head, and the vectors after every layer, `states`.
  step(ids) {
    this.written = this.written.map((row, i) => [...row, ids[i]]);
    return this.model.mask ? this.next(ids) : this.anew();
  }

  next(ids) {
    const { model } = this,
      decoder = [],
      cross = [],
      states = [];
    let x = ids.map((id) => model.embed(model.tgt_embed, [id], this.length)[0]);
    model.decoder.layers.forEach(({ self_attn, src_attn, feed_forward, sublayer }, n) => {
      x = sublayer[0].forward(x, (y) => {
        const { keys, values } = self_attn.keysValues(y, this.length);
        const visible = this.past.map((layers, row) => {
          layers[n].keys.push(keys[row]);
          layers[n].values.push(values[row]);
          return layers[n];
        });
        const found = self_attn.attend(y, visible, this.length);
        decoder.push(found.weights);
        return this.change("decoder", n, found.output);
      });
      x = sublayer[1].forward(x, (y) => {
        const found = src_attn.attend(
          y,
          y.map(() => this.source[n]),
        );
        cross.push(found.weights);
        return this.change("cross", n, found.output);
      });
      x = sublayer[2].forward(x, (y) => feed_forward.forward(y));
      states.push(x);
    });
    this.length += 1;
    return {
      logits: linear(model.decoder.norm.forward(x), model.generator),
      decoder,
      cross,
      states,
    };
  }

  // The same without the mask: what has been written looks at all of it, at later tokens, too. So
  // no vector stays as it was, and all are computed anew. `whole` has every position's weights.
  anew() {
    const rows = this.written.map((ids) => this.row(ids));
    this.length += 1;
    const last = (name) => rows[0][name].map((_, n) => rows.map((row) => row[name][n].at(-1)));
    const { model } = this;
    const ends = rows.map(({ states }) => states.at(-1).at(-1));
    return {
      logits: linear(model.decoder.norm.forward(ends), model.generator),
      decoder: last("decoder"),
      cross: last("cross"),
      states: last("states"),
      whole: rows[0].decoder,
    };
  }

  // All positions of one row, layer by layer.
  row(ids) {
    const { model } = this;
    const decoder = [];
    const cross = [];
    const states = [];
    let x = model.embed(model.tgt_embed, ids);
    model.decoder.layers.forEach(({ self_attn, src_attn, feed_forward, sublayer }, n) => {
      const attend = (attn, y, memory, weights, kind) => {
        const visible = y.map(() => memory);
        const attended = attn.attend(y, visible);
        weights.push(attended.weights);
        return this.change(kind, n, attended.output);
      };
      x = sublayer[0].forward(x, (y) =>
        attend(self_attn, y, self_attn.keysValues(y), decoder, "decoder"),
      );
      x = sublayer[1].forward(x, (y) => attend(src_attn, y, this.source[n], cross, "cross"));
      x = sublayer[2].forward(x, (y) => feed_forward.forward(y));
      states.push(x);
    });
    return { decoder, cross, states };
  }

  // Continue with these rows, in this order; a row may be taken more than once.
  select(rows) {
    this.written = rows.map((row) => this.written[row]);
    this.past = rows.map((row) =>
      this.past[row].map(({ keys, values }) => ({ keys: [...keys], values: [...values] })),
    );
  }
}

// The searches are generators: they yield the number of the step, so that whoever runs them can
// pause or stop between two. `forced` has the tokens that a translation is to begin with;
// `changes` are those of `encode`.
const finished = (search) => {
  for (;;) {
    const { done, value } = search.next();
    if (done) return value;
  }
};

// One token after another, each chosen from its logits; the likeliest one unless `choose` says
// otherwise.
export function* greedySteps(
  model,
  src,
  choose = (logits) => largest(logits, 1)[0],
  { forced = [], changes } = {},
) {
  const { memory, hidden } = model.encode(src, changes),
    decoder = new CachedDecoder(model, memory, hidden),
    ids = [BOS];
  while (ids.length < src.length + MORE && (ids.length === 1 || ids.at(-1) !== EOS)) {
    const { logits } = decoder.step([ids.at(-1)]);
    ids.push(forced[ids.length - 1] ?? choose(logits[0]));
    yield ids.length;
  }
  return ids;
}
export const greedyDecode = (...asked) => finished(greedySteps(...asked));

// The probabilities of the fewest tokens that have topP together, else zero.
export function nucleus(logits, temperature = 1, topP = 1) {
  const p = softmax(logits.map((logit) => logit / temperature));
  const order = Array.from(p.keys()).sort((a, b) => p[b] - p[a]);
  let before = 0;
  for (const id of order) {
    const own = p[id];
    if (topP < 1 && before > 0 && before >= topP) p[id] = 0; // the likeliest one always stays
    before += own;
  }
  const sum = p.reduce((a, b) => a + b, 0);
  return p.map((value) => value / sum);
}

// As greedyDecode, but each token is drawn; `random` gives numbers from 0 to below 1.
export function sampleSteps(model, src, temperature = 1, topP = 1, random = Math.random, options) {
  return greedySteps(
    model,
    src,
    (logits) => {
      const p = nucleus(logits, temperature, topP);
      let rest = random();
      const drawn = p.findIndex((value) => (rest -= value) < 0);
      return drawn < 0 ? largest(p, 1)[0] : drawn; // the rest of rounding
    },
    options,
  );
}
export const sampleDecode = (...asked) => finished(sampleSteps(...asked));

export const lengthPenalty = (length, alpha) => ((5 + length) / 6) ** alpha;

// The best translation that a beam finds, and the search as a tree: a node has an id, the node
// that it continues (its parent), its step, its log-probability alone (p) and with all before it
// (logP); an ended one has a score.
export function* beamSteps(model, src, beam = BEAM, alpha = ALPHA, { forced = [], changes } = {}) {
  const limit = src.length + MORE,
    { memory, hidden } = model.encode(src, changes),
    decoder = new CachedDecoder(model, memory, hidden);
  const nodes = [{ id: BOS, parent: null, step: 0, p: 0, logP: 0 }];
  let rows = [0],
    open = beam,
    best = null; // rows and best are places in nodes
  for (let t = 1; t < limit; t++) {
    const found = decoder.step(rows.map((row) => nodes[row].id)).logits.flatMap((logits, row) => {
      const p = logSoftmax(logits),
        next = t <= forced.length ? [forced[t - 1]] : largest(p, beam);
      return next.map((id) => ({ id, row, p: p[id], logP: nodes[rows[row]].logP + p[id] }));
    });
    const kept = found.sort((a, b) => b.logP - a.logP).slice(0, open),
      going = [];
    for (const { id, row, p, logP } of kept) {
      const node = { id, parent: rows[row], step: t, p, logP };
      nodes.push(node);
      if (id === EOS || t + 1 >= limit) {
        node.score = logP / lengthPenalty(t, alpha);
        if (best === null || node.score > nodes[best].score) best = nodes.length - 1;
        open -= 1;
      } else going.push({ row, place: nodes.length - 1, logP });
    }
    const bound = going.length ? going[0].logP / lengthPenalty(limit - 1, alpha) : -Infinity;
    if (best !== null && bound <= nodes[best].score) break; // no continuation can score more
    if (!going.length) break;
    decoder.select(going.map(({ row }) => row));
    rows = going.map(({ place }) => place);
    yield t;
  }
  const ids = [];
  for (let at = best; at !== null; at = nodes[at].parent) ids.unshift(nodes[at].id);
  return { ids, nodes, best };
}
export const beamSearch = (...asked) => finished(beamSteps(...asked));
