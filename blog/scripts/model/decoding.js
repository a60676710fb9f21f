// Decoding: the decoder token by token, and the searches of Parts 2 and 4.

import { largest, linear, logSoftmax } from "./tensors.js";
import { BOS, EOS } from "./tokeniser.js";

const MORE = 50; // a translation may be this much longer than its source
export const [BEAM, ALPHA] = [5, 1.8];
export const LONGEST = 150; // tokens of a source: with more, a search would take too long

/** The decoder, one token of each row at a time, with the keys and values of all that was before.
 *  Rows share the source. */
export class CachedDecoder {
  /** @param {Model} model @param {Vectors} memory
   *  @param {Set<number> | null} [hidden] @param {Change} [change] */
  constructor(model, memory, hidden = null, change = (_kind, _layer, output) => output) {
    const { layers } = model.decoder;
    this.model = model;
    this.change = change;
    this.length = 0;
    /** @type {number[][]} */
    this.written = [[]];
    this.source = layers.map(({ src_attn }) => ({ ...src_attn.keysValues(memory), hidden }));
    /** Of each row and layer. @type {Visible[][]} */
    this.past = [layers.map(() => ({ keys: [], values: [] }))];
  }

  /** Takes the next token of each row. @param {number[]} ids @returns {DecoderStep} */
  step(ids) {
    this.written = this.written.map((row, i) => [...row, ids[i]]);
    const { decoder, generator, mask } = this.model;
    const step = mask ? this.next(ids) : this.anew();
    this.length += 1;
    const [last] = step.states.slice(-1);
    return { logits: linear(decoder.norm.forward(last), generator), ...step };
  }

  next(/** @type {number[]} */ ids) {
    const { model, length } = this;
    const x = ids.map((id) => model.embed(model.tgt_embed, [id], length)[0]);
    /** @param {Attention} attn @param {Vectors} y @param {number} n */
    const visible = (attn, y, n) => {
      const { keys, values } = attn.keysValues(y, length);
      return this.past.map((layers, row) => {
        layers[n].keys.push(keys[row]);
        layers[n].values.push(values[row]);
        return layers[n];
      });
    };
    return this.through(x, visible, length);
  }

  /** The same without the mask: what has been written looks at all of it, at later tokens, too. So
   *  no vector stays as it was, and all are computed anew. */
  anew() {
    const { model } = this;
    const everything = (/** @type {Attention} */ attn, /** @type {Vectors} */ y) => {
      const all = attn.keysValues(y);
      return y.map(() => all);
    };
    const rows = this.written.map((ids) =>
      this.through(model.embed(model.tgt_embed, ids), everything),
    );
    /** @template Value @param {(row: typeof rows[0]) => Value[][]} layersOf */
    const last = (layersOf) =>
      model.decoder.layers.map((_, n) => rows.map((row) => layersOf(row)[n].slice(-1)[0]));
    return {
      decoder: last((row) => row.decoder),
      cross: last((row) => row.cross),
      states: last((row) => row.states),
      whole: rows[0].decoder,
    };
  }

  /** Vectors through all layers: `visible` says what the self-attention of a layer sees.
   *  @param {Vectors} x @param {(attn: Attention, y: Vectors, layer: number) => Visible[]} visible
   *  @param {number} [at] the position of all, or else each has its own */
  through(x, visible, at) {
    const { layers } = this.model.decoder;
    /** @type {{ decoder: LayerWeights[], cross: LayerWeights[], states: Vectors[] }} */
    const { decoder, cross, states } = { decoder: [], cross: [], states: [] };
    layers.forEach(({ self_attn, src_attn, feed_forward, sublayer }, n) => {
      x = sublayer[0].forward(x, (y) => {
        const { output, weights } = self_attn.attend(y, visible(self_attn, y, n), at);
        decoder.push(weights);
        return this.change("decoder", n, output);
      });
      x = sublayer[1].forward(x, (y) => {
        const source = y.map(() => this.source[n]);
        const { output, weights } = src_attn.attend(y, source);
        cross.push(weights);
        return this.change("cross", n, output);
      });
      x = sublayer[2].forward(x, (y) => feed_forward.forward(y));
      states.push(x);
    });
    return { decoder, cross, states };
  }

  /** Continue with these rows, in this order; a row may be taken more than once. */
  select(/** @type {number[]} */ rows) {
    this.written = rows.map((row) => this.written[row]);
    this.past = rows.map((row) =>
      this.past[row].map(({ keys, values }) => ({ keys: [...keys], values: [...values] })),
    );
  }
}

/** @template Outcome @param {Search<Outcome>} search */
function finished(search) {
  for (;;) {
    const { done, value } = search.next();
    if (done) return value;
  }
}

const likeliest = (/** @type {Vector} */ logits) => largest(logits, 1)[0];

/** One token after another, each chosen from its logits; the likeliest one unless `choose` says
 *  otherwise.
 *  @param {Model} model @param {number[]} src @param {(logits: Vector) => number} [choose]
 *  @param {SearchOptions} [options] @returns {Search<number[]>} */
export function* greedySteps(model, src, choose = likeliest, { forced, hidden } = {}) {
  const { memory } = model.encode(src, hidden);
  const decoder = new CachedDecoder(model, memory, hidden);
  const ids = [BOS];
  let id = BOS;
  do {
    const { logits } = decoder.step([id]);
    id = forced?.[ids.length - 1] ?? choose(logits[0]);
    ids.push(id);
    yield ids.length;
  } while (id !== EOS && ids.length < src.length + MORE);
  return ids;
}

/** @param {Parameters<typeof greedySteps>} given */
export const greedyDecode = (...given) => finished(greedySteps(...given));

const lengthPenalty = (/** @type {number} */ length, /** @type {number} */ alpha) =>
  ((5 + length) / 6) ** alpha;

/** What continues each row: its likeliest tokens, or else the one that is `forced`, best first.
 *  @param {Vectors} logits @param {BeamNode[]} nodes @param {number[]} rows places in them
 *  @param {number} beam @param {number} [forced] */
function extended(logits, nodes, rows, beam, forced) {
  const nodesByRow = logits.flatMap((ofRow, row) => {
    const p = logSoftmax(ofRow);
    const parent = rows[row];
    const { step, logP } = nodes[parent];
    const next = forced === undefined ? largest(p, beam) : [forced];
    const after = { parent, step: step + 1 };
    return next.map((id) => ({ row, node: { id, ...after, p: p[id], logP: logP + p[id] } }));
  });
  return nodesByRow.sort((a, b) => b.node.logP - a.node.logP);
}

/** The best translation that a beam finds, and the search as a tree. `rows`, `best` and parents
 *  are places in `nodes`: each step extends the rows, and keeps as many as are still open.
 *  @param {Model} model @param {number[]} src @param {number} [beam] @param {number} [alpha]
 *  @param {SearchOptions} [options]
 *  @returns {Search<{ ids: number[], nodes: BeamNode[], best: number | null }>} */
export function* beamSteps(model, src, beam = BEAM, alpha = ALPHA, { forced, hidden } = {}) {
  const limit = src.length + MORE;
  const { memory } = model.encode(src, hidden);
  const decoder = new CachedDecoder(model, memory, hidden);
  /** @type {BeamNode[]} */
  const nodes = [{ id: BOS, parent: null, step: 0, p: 0, logP: 0 }];
  let rows = [0];
  let open = beam;
  /** @type {number | null} */
  let best = null;
  let bestScore = -Infinity;
  for (let step = 1; step < limit; step++) {
    const { logits } = decoder.step(rows.map((row) => nodes[row].id));
    const going = [];
    const bestFirst = extended(logits, nodes, rows, beam, forced?.[step - 1]);
    for (const { row, node } of bestFirst.slice(0, open)) {
      const place = nodes.push(node) - 1;
      if (node.id !== EOS && step + 1 < limit) {
        going.push({ row, place });
        continue;
      }
      open -= 1;
      const score = node.logP / lengthPenalty(step, alpha);
      nodes[place].score = score;
      if (score > bestScore) [best, bestScore] = [place, score];
    }
    if (!going.length) break;
    // no continuation can score more
    if (nodes[going[0].place].logP / lengthPenalty(limit - 1, alpha) <= bestScore) break;
    decoder.select(going.map(({ row }) => row));
    rows = going.map(({ place }) => place);
    yield step;
  }
  const ids = [];
  for (let at = best; at !== null; at = nodes[at].parent) ids.unshift(nodes[at].id);
  return { ids, nodes, best };
}

/** @param {Parameters<typeof beamSteps>} given */
export const beamSearch = (...given) => finished(beamSteps(...given));
