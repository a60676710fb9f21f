// What there is on the screen of the clinic, and the cards that are put there.

import { all, button, byId, el, rowsOf } from "../page/dom.js";
import { say } from "../page/language.js";
import { curve, put, shape, words } from "../page/svg.js";
import * as Words from "./clinic_words.js";
import { examples_of } from "./frame_parts.js";

const { ORDERS } = Words;
const HEALTHY = say("nothing: it is healthy");

/** @param {Mistake | undefined} mistake none of a healthy patient */
export const label_of = (mistake) => mistake?.label ?? HEALTHY;

const levels = Words.LEVELS.map(
  (name, i) => `<option value="${i}"${i === 1 ? " selected" : ""}>${name}</option>`,
);
const orders = Object.entries(ORDERS).map(
  ([test, [name, price, title]]) =>
    `<button type="button" data-test="${test}" title="${title}">${name} −${price}</button>`,
);

const SCREEN = `
  <div class="learn-row">
    <strong>${say("The clinic")}</strong> <button type="button" id="clinic-next">${say("Next patient")}</button>
    <label>${say("Level of the next patient")} <select id="clinic-level">${levels.join("")}</select></label>
    <span id="clinic-state"></span> <span class="learn-note" id="clinic-tally"></span>
  </div>
  <p class="learn-note">${say`Each patient is the small model of German numbers, trained beforehand with one mistake in it, or with none. Order tests, name the mistake, and keep as many of your ten points as you can: a wrong name costs three. Words are letters and digits here.`}</p>
  <div class="learn-parts">
    <div><svg id="clinic-curve" viewBox="0 0 340 140" role="img" aria-label="${say("Loss over the updates, and a healthy one's")}"></svg>
      <p class="learn-note">${say("The training loss; dotted: a healthy model with the same seed.")}</p></div>
    <div><p id="clinic-facts"></p>
      <div class="learn-row" id="clinic-orders">${orders.join("")}</div>
      <div class="learn-row">
        <select id="clinic-names" aria-label="${say("What is wrong with it?")}">
          <option value="">${say("What is wrong with it?")}</option>
          <optgroup label="${say("Nothing")}"><option value="healthy">${HEALTHY}</option></optgroup>
        </select>
        <button type="button" id="clinic-name">${say("Name it")}</button> <button type="button" id="clinic-tell">${say("Tell me")}</button>
      </div></div>
  </div>
  <div id="clinic-told" aria-live="polite"></div>`;

/** An element of the screen, which is drawn before. @param {string} name */
export const $ = (name) => /** @type {Control} */ (byId(`clinic-${name}`));
export const order_buttons = () =>
  /** @type {HTMLButtonElement[]} */ (all("#clinic-orders button"));

const patient_curve = curve(2.2, "none", "link");
const healthy_curve = curve(1.4, "1.5 2.5", "ink");

/** @param {Catalogue["mistakes"]} mistakes */
export function draw_screen(mistakes) {
  /** @param {number} x @param {number} y @param {string} text */
  const axis_label = (x, y, text) => words(x, y, text, { "text-anchor": "end", "font-size": 9 });
  document.body.innerHTML = SCREEN;
  $("curve").append(
    shape("path", { d: "M30 6V120H336", fill: "none", stroke: "var(--rule)" }),
    ...[0, 1, 2, 3, 4].map((loss) => axis_label(26, 123 - 28 * loss, String(loss))),
    axis_label(336, 133, say("2,500 updates")),
    ...[healthy_curve, patient_curve],
  );
  const groups = Object.groupBy(Object.entries(mistakes), ([, { group }]) => group);
  for (const [label, entries = []] of Object.entries(groups)) {
    const options = entries.map(([name, mistake]) => new Option(mistake.label, name));
    $("names").append(el("optgroup", { label }, ...options));
  }
}

/** The points of losses, of 60 stretches. @returns {[number, number][]} */
const points_of = (/** @type {Patient} */ { losses }) =>
  losses.map((loss, i) => [30 + 5.1 * (i + 0.5), 120 - 28 * Math.min(4, loss)]);

/** The training loss, beside that of a healthy model.
 *  @param {Patient} patient @param {Patient} healthy */
export function draw_curves(patient, healthy) {
  put(patient_curve, points_of(patient));
  put(healthy_curve, points_of(healthy));
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

const note = (/** @type {string} */ textContent) =>
  el("p", { className: "learn-note", textContent });

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
  const mistake = patient.slip === null ? undefined : catalogue.mistakes[patient.slip];
  const name = label_of(mistake);
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
