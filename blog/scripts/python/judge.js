// Whether the reader's function is right, or which mistake it has, or where it differs.

import { GATES } from "./gates.js";
import { refusal } from "./interpreter.js";
import { plug } from "./plug.js";

/** @typedef {Record<string, any>} Judgement what the page says it of (views/editor_words.js) */

const FEW_TOKENS = 12; // of the sentence tell a mistake as well as all, and sooner
const TOLERANCE = 2e-4; // beside the largest right number

/** From a question of the page to its answer. @param {World} world @param {Asked} question */
export function answerOf(world, { code, name, plugged, sentence }) {
  try {
    world.interpreter.load("_mine", code);
    if (!world.interpreter.run(`_result = callable(_mine.get("${name}"))`))
      throw refusal("missing", name);
    const src = world.translator.source(sentence);
    return { result: plugged ? plug(world, name, src) : judge(world, name, src) };
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    const line = [...message.matchAll(/"mine\.py", line (\d+)/g)].at(-1)?.[1];
    return { error: message.trim().split("\n").at(-1), line };
  }
}

/** @param {World} world @param {string} name of the function
 *  @param {number[]} src ids of the sentence @returns {Judgement} */
function judge(world, name, src) {
  const { interpreter, translator } = world;
  const gate = GATES[name];
  const scores = gate.scores?.(translator, src, world.progress);
  const cases = gate.cases(translator, src);
  const answers = cases.map((given) => {
    const answer = interpreter.call("_mine", name, given, scores);
    if (interpreter.run("_result = _given != arguments(_json)")) throw refusal("changed");
    return answer;
  });
  const differences = cases.map((given, i) =>
    difference(name, answers[i], gate.right(given, translator, src)),
  );
  const bad = differences.findIndex(Boolean);
  if (bad < 0) return { right: true };
  const mistake = mistakeOf(world, name, src);
  if (mistake) return { mistake };
  return {
    masked: name === "attention" && bad > 0,
    asked: name === "rate" && cases[bad].join(", "),
    ...differences[bad],
  };
}

/** The first mistake with which a right function gives what the reader's gives, if there is one.
 *  @param {World} world @param {string} name @param {number[]} src */
function mistakeOf({ interpreter, translator, forms }, name, src) {
  const { cases, few, fewScores } = GATES[name];
  const asked = few ?? cases(translator, src.slice(0, FEW_TOKENS));
  const answers = asked.map((given) => interpreter.call("_mine", name, given, fewScores));
  const form = forms[name].find(([, text]) => {
    interpreter.load("_theirs", text);
    return !asked.some((given, i) =>
      difference(name, answers[i], interpreter.call("_theirs", name, given, fewScores)),
    );
  });
  return form?.[0];
}

/** Null if there is none but rounding.
 *  @param {string} name @param {Value} answer @param {Value} right @returns {Judgement | null} */
function difference(name, answer, right) {
  const [x, y] = [flat(answer), flat(right)];
  const shape = { mine: shapes(name, answer), right: shapes(name, right) };
  if (shape.mine !== shape.right || x.length !== y.length) return { shape };
  const at = placeOfError(x, y);
  if (at < 0) return null;
  const width = shapeOf(right).at(-1) || 1;
  return {
    count: x.filter((value) => !Number.isFinite(value)).length, // of all
    all: x.length,
    row: Math.floor(at / width),
    column: at % width,
    mine: x[at],
    expected: y[at],
    largest: Math.max(...x.map((value, i) => Math.abs(value - y[i]))),
  };
}

/** @param {Value} value @returns {number[]} */
const flat = (value) => (Array.isArray(value) ? value.flatMap(flat) : [Number(value)]);

/** @param {Value} value @returns {number[]} */
function shapeOf(value) {
  if (!Array.isArray(value)) return [];
  return value.length ? [value.length, ...shapeOf(value[0])] : [0];
}

/** The shape in words; masks are two. @param {string} name @param {Value} value */
const shapes = (name, value) =>
  (name === "masks" && Array.isArray(value) ? value : [value])
    .map((answer) => shapeOf(answer).join(", "))
    .join("), (");

/** Where numbers first differ by more than rounding; -1: nowhere. */
function placeOfError(/** @type {number[]} */ x, /** @type {number[]} */ right) {
  const largest = Math.max(...right.filter(Number.isFinite).map(Math.abs));
  return x.findIndex((value, i) => {
    if (Math.abs(value - right[i]) <= TOLERANCE * largest) return false;
    return !isNaN(value + right[i]) || isNaN(value) !== isNaN(right[i]);
  });
}
