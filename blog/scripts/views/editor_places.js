// The functions that a reader writes on the page: under which heading, what each is given and
// gives, and what there is at first. Names and arguments are those of `judge`, so that what was
// written can be taken there.

import { say } from "../page/language.js";

/** @typedef {{ heading: string, name: string, task: string, pluggable?: boolean, stub: string }}
 *  Place
 *  `pluggable` functions can be put into the live model */

/** @type {Place[]} */
export const PLACES = [
  {
    heading: "scaled-dot-product-attention-section-3-2-1",
    name: "attention",
    task: say`Q, K and V are lists of rows. mask is None, or has a row for each query: True where a key may be seen. Give back the output alone, a row for each query. When it’s right, follow “Ein Hund fotografiert einen Mann.” in the bar below, leave out the division, and put it into the model.`,
    pluggable: true,
    stub: `from math import exp, sqrt

def attention(Q, K, V, mask):
    return [[0.0 for v in V[0]] for q in Q]
`,
  },
  {
    heading: "positions-section-3-5",
    name: "positions",
    task: say("Give back a row of d_model numbers for each position; the first position is 0."),
    pluggable: true,
    stub: `from math import sin, cos

def positions(length, d_model):
    return [[0.0] * d_model for p in range(length)]
`,
  },
  {
    heading: "masks",
    name: "masks",
    task: say`Give back two masks: one row for the source, and a row for each token of the target. True is where a query (row) may look at a key (column).`,
    stub: `def masks(src, tgt, pad):
    return [[True] * len(src)], [[True] * len(tgt) for t in tgt]
`,
  },
  {
    heading: "residuals-and-normalisation-section-3-1",
    name: "layer_norm",
    task: say("x is a list of rows; epsilon is 1e-5."),
    pluggable: true,
    stub: `from math import sqrt

def layer_norm(x, gain, bias):
    return x
`,
  },
  {
    heading: "a-vector-becomes-a-word-section-3-4",
    name: "decode",
    task: say`scores(ids) gives each token of the vocabulary a score, as the one that comes after ids; ids begin with bos. Give back what was written: eos included, bos not, and at most longest ids.`,
    pluggable: true,
    stub: `def decode(scores, bos, eos, longest):
    return []
`,
  },
  {
    heading: "the-loss",
    name: "loss_gradient",
    task: say`logits has a row of scores for each position, target the right ids. The loss is a sum over the positions, without those where target is pad. The right id gets 1 - smoothing in q; the smoothing is shared out evenly among all ids but pad, the right one included.`,
    stub: `from math import exp

def loss_gradient(logits, target, smoothing, pad):
    return [[0.0] * len(row) for row in logits]
`,
  },
  {
    heading: "one-update",
    name: "rate",
    task: say("step counts from 1; give back a number."),
    stub: `def rate(step, d_model, warmup):
    return 0.0
`,
  },
];
