// Cards of the clinic: what a test has measured, and what it was.

import { button, el } from "../page/dom.js";
import { say } from "../page/language.js";
import {
  BARS,
  is_ill,
  ORDERS,
  say_exact,
  say_measured,
  say_of_ones,
  say_value,
  writes_badly,
} from "./clinic_words.js";

import { examples_of, note, rows_of } from "./frame_parts.js";

/** @param {boolean} well @param {string} text */
const finding = (well, text) =>
  el("li", { className: well ? "right" : "wrong", textContent: text });

/** @param {string} test @param {Examination} result @param {Catalogue["tests"]} tests
 *  @param {Patient} patient */
function findings(test, { measured, ones = {} }, tests, patient) {
  const items = Object.entries(measured).map(([name, value]) =>
    finding(!is_ill(tests[name], value), say_value(tests[name], value)),
  );
  if (test === "references") items.unshift(finding(!writes_badly(patient), say_exact(patient)));
  for (const [name, [low, high]] of Object.entries(ones)) {
    const well = Math.max(1 - low, high - 1) < 0.01;
    items.push(
      finding(well, say_of_ones(name, well, { low: low.toFixed(2), high: high.toFixed(2) })),
    );
  }
  return el("ul", {}, ...items);
}

/** @param {number[][]} grid @param {boolean} wires whether they show what moves what */
function draw_grid(grid, wires) {
  const rows = grid.map((cells, t) =>
    cells.map((value, u) => {
      const className = wires && u > t && value > 1e-3 ? "leak" : "";
      const weight = Math.min(1, wires ? Math.sqrt(value / 2) : value).toFixed(2);
      return el("td", { className, title: value.toFixed(3), style: `--w: ${weight}` });
    }),
  );
  return el("table", { className: "clinic-grid" }, ...rows_of(rows));
}

function draw_bars(/** @type {Record<string, number>} */ bars) {
  const most = Math.max(1, ...Object.values(bars));
  const rows = Object.entries(bars).map(([name, value]) => [
    el("th", { scope: "row", textContent: BARS[name] }),
    el("td", {}, el("span", { style: `width: ${Math.max(1, (100 * value) / most)}%` })),
    el("td", {}, value.toFixed(3)),
  ]);
  return el("table", { className: "clinic-bars" }, ...rows_of(rows));
}

/** @type {Record<string, string>} */
const CAPTIONS = {
  wires: say(
    "rows: predictions, columns: the word that is changed; framed: it moves a prediction before it",
  ),
  inventory: say("rows: queries, columns: keys, of one head"),
};

/** What a card says of a test.
 *  @param {string} test @param {Examination} result @param {Catalogue["tests"]} tests
 *  @param {Patient} patient */
export function describe_result(test, result, tests, patient) {
  const { grid, bars, examples = [] } = result;
  const drawn = bars
    ? draw_bars(bars)
    : el("table", { className: "clinic-examples" }, ...examples_of(examples));
  const parts = [
    el("strong", {}, ORDERS[test].title),
    note(ORDERS[test].about),
    findings(test, result, tests, patient),
    grid ? draw_grid(grid, test === "wires") : drawn,
  ];
  if (CAPTIONS[test]) parts.push(note(CAPTIONS[test]));
  return parts;
}

/** What was wrong, as whoever writes it sees it. @param {Mistake} mistake */
function describe_mistake({ line, belief, effect }) {
  const text = `${say("Whoever writes this thinks: “{belief}”", { belief })} ${effect}`;
  return [el("pre", {}, line), el("p", {}, ...with_code(text))];
}

const with_code = (/** @type {string} */ text) =>
  text.split("`").map((piece, i) => (i % 2 ? el("code", {}, piece) : piece));

/** The cheapest examination that shows it.
 *  @param {Patient} patient @param {Mistake} mistake @param {Catalogue["tests"]} tests */
function cheapest(patient, { seen_by }, tests) {
  const unread = seen_by === "heart" && patient["fed back"] < tests["fed back"].low;
  return ORDERS[unread ? "references" : seen_by]?.title;
}

/** @param {Patient} patient @param {Patient} healthy one with the same seed
 *  @param {Catalogue} catalogue @param {number | null} points left, null if it wasn't named */
export function describe_verdict(patient, healthy, { mistakes, tests }, points) {
  const mistake = patient.slip === null ? null : mistakes[patient.slip];
  const name = mistake?.label ?? say("nothing: it is healthy");
  const [className, verdict] =
    points === null
      ? ["wrong", say("It was this: {name}.", { name })]
      : ["right", say("Yes, with {points} points left: {name}.", { points, name })];
  const parts = [el("strong", { className }, verdict)];
  const add = (/** @type {string} */ text) => parts.push(el("p", {}, text));
  const ill = say_measured(patient);
  if (mistake) {
    parts.push(...describe_mistake(mistake));
    add(say("Measured: {ill}. A healthy one: {well}.", { ill, well: say_measured(healthy) }));
    const test = cheapest(patient, mistake, tests);
    if (test) add(say("The cheapest test that sees it: {test}.", { test }));
  } else {
    add(
      say(
        "Not everything that learns slowly or badly is ill, and no test can show that something is well. Did you order one that could have shown an illness?",
      ),
    );
    add(say("Measured: {ill}.", { ill }));
  }
  add(say("Now all tests are free: see what the others show."));
  return parts;
}

/** Where to go from a verdict.
 *  @param {string | undefined} section of the document @param {string} rung the next one */
export function describe_next(section, rung) {
  const notebook = say("The clinic’s notebook, under Pages, has twelve models to repair.");
  const next = el("p", {}, notebook, " ", ...with_code(rung));
  if (!section) return [next];
  return [button(say("Read the section"), () => parent.postMessage({ section }, "*")), next];
}
