// What there is on the screen of the clinic, and the cards that are put there.

import { button, el, rowsOf } from "../page/dom.js";
import { say } from "../page/language.js";
import { curve, put, shape, words } from "../page/svg.js";
import * as Words from "./clinic_words.js";
import { examples_of, note, row } from "./frame_parts.js";

/** @import { Clinic } from "./clinic_frame.js" */

const { ORDERS } = Words;

/** The points of losses, of 60 stretches. @returns {[number, number][]} */
const points = (/** @type {number[]} */ losses) =>
  losses.map((loss, i) => [30 + 5.1 * (i + 0.5), 120 - 28 * Math.min(4, loss)]);

/** The training loss, beside that of a healthy model. */
function make_curve() {
  const patient = curve(2.2, "none", "link");
  const healthy = curve(1.4, "1.5 2.5", "ink");
  /** @param {number} x @param {number} y @param {string} text */
  const label = (x, y, text) => words(x, y, text, { "text-anchor": "end", "font-size": 9 });
  const element = shape(
    "svg",
    {
      id: "clinic-curve",
      viewBox: "0 0 340 140",
      role: "img",
      "aria-label": say("Loss over the updates, and a healthy one's"),
    },
    shape("path", { d: "M30 6V120H336", fill: "none", stroke: "var(--rule)" }),
    ...[0, 1, 2, 3, 4].map((loss) => label(26, 123 - 28 * loss, String(loss))),
    label(336, 133, say("2,500 updates")),
    ...[healthy, patient],
  );
  function draw(/** @type {number[]} */ losses, /** @type {number[]} */ well) {
    put(patient, points(losses));
    put(healthy, points(well));
  }
  return { element, draw };
}

/** The names of the mistakes, in groups. @param {Catalogue["mistakes"]} mistakes */
function select_names(mistakes) {
  const group = (/** @type {string} */ label, /** @type {[string, string][]} */ names) =>
    el("optgroup", { label }, ...names.map(([value, text]) => el("option", { value }, text)));
  const question = say("What is wrong with it?");
  const groups = Object.groupBy(Object.entries(mistakes), ([, mistake]) => mistake.group);
  return el(
    "select",
    { id: "clinic-names", ariaLabel: question },
    el("option", { value: "" }, question),
    group(say("Nothing"), [["healthy", say("nothing: it is healthy")]]),
    ...Object.entries(groups).map(([label, entries = []]) =>
      group(
        label,
        entries.map(([name, mistake]) => [name, mistake.label]),
      ),
    ),
  );
}

/** All that the reader can do, as elements. */
function controls(/** @type {Clinic} */ clinic, /** @type {Catalogue["mistakes"]} */ mistakes) {
  const levels = Words.LEVELS.map((name, i) =>
    el("option", { value: `${i}`, selected: i === 1 }, name),
  );
  /** @type {Record<string, HTMLButtonElement>} */
  const orders = {};
  for (const [test, [name, price, title]] of Object.entries(ORDERS))
    orders[test] = button(`${name} −${price}`, () => clinic.order(test), { title });
  return {
    level: el("select", { id: "clinic-level" }, ...levels),
    next: button(say("Next patient"), () => clinic.admit_next(), { id: "clinic-next" }),
    orders,
    names: select_names(mistakes),
    name: button(say("Name it"), () => clinic.name(), { id: "clinic-name" }),
    tell: button(say("Tell me"), () => clinic.close(false), { id: "clinic-tell" }),
  };
}

const CAPTION = say("The training loss; dotted: a healthy model with the same seed.");
const INTRODUCTION = say`Each patient is the small model of German numbers, trained beforehand with one mistake in it, or with none. Order tests, name the mistake, and keep as many of your ten points as you can: a wrong name costs three. Words are letters and digits here.`;

/** @param {Clinic} clinic @param {Catalogue["mistakes"]} mistakes */
export function make_screen(clinic, mistakes) {
  const screen = {
    ...controls(clinic, mistakes),
    curve: make_curve(),
    state: el("span", { id: "clinic-state" }),
    tally: el("span", { className: "learn-note" }),
    facts: el("p", { id: "clinic-facts" }),
    told: el("div", { id: "clinic-told", ariaLive: "polite" }),
  };
  const { level, next, orders, names, name, tell, state, tally } = screen;
  const levels = el("label", {}, say("Level of the next patient"), " ", level);
  const tests = row(...Object.values(orders));
  tests.id = "clinic-orders";
  document.body.append(
    row(el("strong", {}, say("The clinic")), next, levels, state, tally),
    note(INTRODUCTION),
    el(
      "div",
      { className: "learn-parts" },
      el("div", {}, screen.curve.element, note(CAPTION)),
      el("div", {}, screen.facts, tests, row(names, name, tell)),
    ),
    screen.told,
  );
  return screen;
}

// --- what a test has measured ---

const finding = (/** @type {boolean} */ well, /** @type {string} */ text) =>
  el("li", { className: well ? "right" : "wrong", textContent: text });

/** @param {string} test @param {Examination} result @param {Catalogue["tests"]} tests
 *  @param {Patient} patient */
function findings(test, { measured, ones = {} }, tests, patient) {
  const items = Object.entries(measured).map(([name, value]) =>
    finding(!Words.is_ill(tests[name], value), Words.say_value(tests[name], value)),
  );
  if (test === "references")
    items.unshift(finding(!Words.writes_badly(patient), Words.say_exact(patient)));
  for (const [name, [low, high]] of Object.entries(ones)) {
    const well = Math.max(1 - low, high - 1) < 0.01;
    const range = { low: low.toFixed(2), high: high.toFixed(2) };
    items.push(finding(well, Words.say_of_ones(name, well, range)));
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
  return el("table", { className: "clinic-grid" }, ...rowsOf(rows));
}

function draw_bars(/** @type {Record<string, number>} */ bars) {
  const most = Math.max(1, ...Object.values(bars));
  const rows = Object.entries(bars).map(([name, value]) => [
    el("th", { scope: "row", textContent: Words.BARS[name] }),
    el("td", {}, el("span", { style: `width: ${Math.max(1, (100 * value) / most)}%` })),
    el("td", {}, value.toFixed(3)),
  ]);
  return el("table", { className: "clinic-bars" }, ...rowsOf(rows));
}

/** What a card says of a test.
 *  @param {string} test @param {Examination} result @param {Catalogue["tests"]} tests
 *  @param {Patient} patient */
export function describe_result(test, result, tests, patient) {
  const { grid, bars, examples = [] } = result;
  const [title, , text] = ORDERS[test];
  const drawn = bars
    ? draw_bars(bars)
    : el("table", { className: "clinic-examples" }, ...examples_of(examples));
  return [
    el("strong", {}, title),
    note(text),
    findings(test, result, tests, patient),
    grid ? draw_grid(grid, test === "wires") : drawn,
    ...(test in Words.CAPTIONS ? [note(Words.CAPTIONS[test])] : []),
  ];
}

// --- what it was ---

/** What was wrong, as whoever writes it sees it. @param {Mistake} mistake */
function describe_mistake({ line, belief, effect }) {
  const text = `${say("Whoever writes this thinks: “{belief}”", { belief })} ${effect}`;
  return [el("pre", {}, line), el("p", {}, ...with_code(text))];
}

const with_code = (/** @type {string} */ text) =>
  text.split("`").map((piece, i) => (i % 2 ? el("code", {}, piece) : piece));

/** What is said of a mistake, or of none. @param {Patient} patient
 *  @param {Patient} healthy one with the same seed @param {Catalogue} catalogue */
function explained(patient, healthy, { mistakes, tests }) {
  const ill = Words.say_measured(patient);
  if (patient.slip === null)
    return [
      say`Not everything that learns slowly or badly is ill, and no test can show that something is well. Did you order one that could have shown an illness?`,
      say("Measured: {ill}.", { ill }),
    ];
  const { seen_by } = mistakes[patient.slip];
  const unread = seen_by === "heart" && patient["fed back"] < tests["fed back"].low;
  const cheapest = ORDERS[unread ? "references" : seen_by];
  return [
    say("Measured: {ill}. A healthy one: {well}.", { ill, well: Words.say_measured(healthy) }),
    ...(cheapest ? [say("The cheapest test that sees it: {test}.", { test: cheapest[0] })] : []),
  ];
}

/** @param {Patient} patient @param {Patient} healthy one with the same seed
 *  @param {Catalogue} catalogue @param {number | null} points left, null if it wasn't named */
export function describe_verdict(patient, healthy, catalogue, points) {
  const mistake = patient.slip === null ? null : catalogue.mistakes[patient.slip];
  const name = mistake?.label ?? say("nothing: it is healthy");
  const verdict =
    points === null
      ? say("It was this: {name}.", { name })
      : say("Yes: {name}. Points left: {points}.", { points, name });
  const section = mistake?.section;
  const notebook = say("The clinic’s notebook, under Pages, has twelve models to repair.");
  const texts = [
    ...explained(patient, healthy, catalogue),
    say("Now all tests are free: see what the others show."),
  ];
  return [
    el("strong", { className: points === null ? "wrong" : "right" }, verdict),
    ...(mistake ? describe_mistake(mistake) : []),
    ...texts.map((text) => el("p", {}, text)),
    ...(section
      ? [button(say("Read the section"), () => parent.postMessage({ section }, "*"))]
      : []),
    el("p", {}, notebook, " ", ...with_code(catalogue.next)),
  ];
}
