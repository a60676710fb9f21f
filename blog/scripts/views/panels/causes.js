// Where a weight comes from: query, key, their products, the sum, its part of √d_k, and the softmax
// of the row.

import { largest } from "../../model/tensors.js";
import { say, told } from "../../page/language.js";
import { el } from "../dom.js";
import { bars, code, dot, numbers, row, symbol, top } from "./parts.js";

const LISTED_KEYS = 6;

export function causes(f, layer, head, q, k) {
  const { queries, keys, scores, weights } = f.layers[layer];
  const width = queries[0].length / f.config.h;
  const ofHead = (vector) => vector.slice(head * width, (head + 1) * width);
  const query = ofHead(queries[q]);
  const key = ofHead(keys[k]);
  const scale = top(query, key);
  const weight = weights[head][q][k].toFixed(3);
  const words = { weight, query: f.source[q], key: f.source[k] };
  const strongest = largest(weights[head][q], LISTED_KEYS);
  const listed = strongest.includes(k) ? strongest : [...strongest.slice(0, -1), k];
  const product = query.map((value, i) => value * key[i]);
  return el(
    "div",
    { class: "panel-causes" },
    el(
      "p",
      {},
      el(
        "strong",
        {},
        say("Where the weight {weight} comes from: “{query}” looks at “{key}”", words),
      ),
    ),
    row(el("span", {}, ...told("query {Q}", { Q: symbol("Q") })), numbers(query, scale)),
    row(el("span", {}, ...told("key {K}", { K: symbol("K") })), numbers(key, scale)),
    row(say("{count} products", { count: width }), numbers(product)),
    ...fromSum(f, dot(query, key), scores[head][q], k, width, weight),
    bars(
      listed.map((i) => [
        `${f.source[i]} (${scores[head][q][i].toFixed(2)})`,
        weights[head][q][i],
        i === k,
      ]),
    ),
    say("In brackets the scores of this row, the largest first; the bars are the weights."),
  );
}

function fromSum({ switches }, sum, scores, k, width, weight) {
  const score = scores[k].toFixed(2);
  const divided = row(
    say("divided by √{width}", { width }),
    code(`${sum.toFixed(2)} / ${Math.sqrt(width).toFixed(2)} = ${score}`),
  );
  const highest = Math.max(...scores);
  const powers = [...scores].map((value) => Math.exp(value - highest));
  const total = powers.reduce((a, b) => a + b, 0).toFixed(3);
  const softmax = `e^${score} / ${say("sum over all keys")} = ${powers[k].toFixed(3)} / ${total} = ${weight}`;
  return [
    row(say("their sum"), code(sum.toFixed(2))),
    ...(switches?.scaling === false ? [] : [divided]),
    row(say("softmax of the row"), code(softmax)),
  ];
}
