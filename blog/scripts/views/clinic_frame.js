// The document of the clinic, in its frame.

import source from "bundle:../learn/clinic.js";
import { el } from "../page/dom.js";
import { shrink } from "../page/in_frame.js";
import { say } from "../page/language.js";
import { asker } from "../page/worker.js";
import * as screen from "./clinic_screen.js";
import * as Words from "./clinic_words.js";

/** @import { Order } from "../learn/clinic.js" */

const { $ } = screen;
const { ORDERS, curve_is_ill, is_ill, last_loss } = Words;

/** A patient while it is here: what is left of the points, and what was measured by each test that
 *  was ordered; null while it is being measured. It is closed once the reader knows.
 *  @typedef {{ patient: Patient, points: number, closed: boolean,
 *    results: Record<string, Record<string, number> | null> }} Visit */

const POINTS = 10;
const PRICE_OF_A_WRONG_NAME = 3;
const DAY_MS = 864e5;

/** @param {Patient} patient @returns {Visit} */
const visit_of = (patient) => ({ patient, points: POINTS, results: {}, closed: false });

const name_of = (/** @type {Patient} */ { slip }) => slip ?? "healthy";

/** What is in the row of a trained model already. @returns {Examination | null} */
function result_of_row(/** @type {string} */ test, /** @type {Patient} */ patient) {
  if (test === "swap") {
    const [own, other] = patient.sources;
    return { measured: { swap: patient.swap }, bars: { own, other } };
  }
  if (test === "references")
    return { measured: { "fed back": patient["fed back"] }, examples: patient.examples };
  return null;
}

/** On a phone it is far below; by then the frame has grown. @param {Element} element */
const reveal = (element) => setTimeout(() => element.scrollIntoView({ block: "nearest" }), 100);

class Clinic {
  /** @type {Set<Patient>} who was here */
  treated = new Set();
  /** @type {Map<Patient, number>} of each that was finished the points, 0 without the name */
  cases = new Map();
  /** @type {(order: Order) => Promise<Examination>} */
  ask = asker(source);

  constructor(/** @type {Patient[]} */ rows, /** @type {Catalogue} */ catalogue) {
    this.rows = rows;
    this.catalogue = catalogue;
    screen.draw_screen(catalogue.mistakes);
    this.listen();
    this.visit = visit_of(rows[Math.floor(Date.now() / DAY_MS) % rows.length]);
    this.admit();
  }

  listen() {
    $("next").onclick = () => this.admit_next();
    $("name").onclick = () => this.name();
    $("tell").onclick = () => this.close(false);
    for (const button of screen.order_buttons()) button.onclick = () => this.order(button);
  }

  // --- a patient ---

  /** The level of a patient with a mistake. @param {string} slip @param {Patient} patient */
  level_of(slip, patient) {
    if (curve_is_ill(patient)) return 0;
    return this.catalogue.mistakes[slip].seen_by === "wires" ? 1 : 2;
  }

  /** One that wasn't here, as long as there are others; a healthy one's curve isn't ill. */
  admit_next() {
    const level = Number($("level").value);
    const fit = this.rows.filter((row) =>
      row.slip ? this.level_of(row.slip, row) === level : level > 0,
    );
    const fresh = fit.filter((row) => !this.treated.has(row));
    const choice = fresh.length ? fresh : fit.filter((row) => row !== this.visit.patient);
    this.visit = visit_of(choice[Math.floor(Math.random() * choice.length)]);
    this.admit();
  }

  /** The one with the same seed and another mistake, or none. Each seed has all. */
  twin = (/** @type {Patient} */ { seed }, name = "healthy") =>
    /** @type {Patient} */ (this.rows.find((row) => row.seed === seed && name_of(row) === name));

  admit() {
    const { patient } = this.visit;
    this.treated.add(patient);
    shrink();
    $("told").replaceChildren();
    $("names").value = "";
    for (const button of screen.order_buttons()) button.ariaPressed = "false";
    screen.draw_curves(patient, this.twin(patient));
    $("facts").textContent = say(
      "Loss at the end {loss}. Of the letters of held-out numbers, {share} are right if it reads the reference before each.",
      { loss: last_loss(patient).toFixed(3), share: Words.share(patient.forced) },
    );
    this.show();
  }

  show() {
    const { visit } = this;
    const points = Math.max(0, visit.points);
    $("state").textContent = say("{points} of {most} points", { points, most: POINTS });
    const scores = [...this.cases.values()];
    $("tally").textContent = scores.length
      ? say("named so far: {named} of {all}, with {points} of {most} points", {
          named: scores.filter(Boolean).length,
          all: scores.length,
          points: scores.reduce((a, b) => a + b),
          most: POINTS * scores.length,
        })
      : "";
    for (const name of ["names", "name", "tell"]) $(name).disabled = visit.closed;
  }

  tell(/** @type {string} */ className, /** @type {...(Node | string)} */ ...content) {
    const card = el("div", { className }, ...content);
    $("told").append(card);
    return card;
  }

  // --- tests ---

  async order(/** @type {HTMLButtonElement} */ button) {
    const { visit, catalogue } = this;
    const { test = "" } = button.dataset;
    if (test in visit.results) return;
    visit.results[test] = null;
    const [title, price] = ORDERS[test];
    // a point is left for the name
    if (!visit.closed) visit.points = Math.max(1, visit.points - price);
    button.ariaPressed = "true";
    const card = this.tell("clinic-result", el("strong", {}, title), " …");
    card.id = `result-${test}`;
    this.show();
    const result = await this.result_of(test, visit.patient);
    if (visit !== this.visit) return;
    visit.results[test] = result.measured;
    card.replaceChildren(...screen.describe_result(test, result, catalogue.tests, visit.patient));
    reveal(card);
  }

  result_of = async (/** @type {string} */ test, /** @type {Patient} */ patient) =>
    result_of_row(test, patient) ?? this.ask({ test, slip: patient.slip, seed: patient.seed });

  // --- the name ---

  name() {
    const { visit, catalogue } = this;
    const { value } = $("names");
    if (!value) return $("names").focus();
    if (value === name_of(visit.patient)) return this.close(true);
    visit.points -= PRICE_OF_A_WRONG_NAME;
    const name = screen.label_of(catalogue.mistakes[value]);
    const points = Math.max(0, visit.points);
    const text = say("It isn't “{name}”. Points left: {points}.", { name, points });
    const why = el("span");
    const card = this.tell("clinic-result wrong", text, " ", why);
    const other = this.twin(visit.patient, value);
    this.contrast(visit, other).then((reason) => (why.textContent = reason));
    reveal(card);
    if (visit.points <= 0) this.close(false);
    this.show();
  }

  /** What the reader has seen that would be otherwise in a model with the mistake that was named.
   *  @param {Visit} visit @param {Patient} other */
  async contrast({ patient, results }, other) {
    const { tests } = this.catalogue;
    if (curve_is_ill(patient) !== curve_is_ill(other))
      return say("In such a model, the loss at the end is {loss}.", {
        loss: last_loss(other).toFixed(3),
      });
    for (const [test, measured] of Object.entries(results)) {
      if (!measured) continue; // it is being measured
      if (test === "references" && Words.writes_badly(other) !== Words.writes_badly(patient))
        return say("In such a model, {sentence}.", { sentence: Words.say_exact(other) });
      const others = (await this.result_of(test, other)).measured;
      const telling = Object.keys(others).find(
        (name) =>
          name in measured &&
          is_ill(tests[name], others[name]) !== is_ill(tests[name], measured[name]),
      );
      if (telling)
        return say("In such a model, {sentence}.", {
          sentence: Words.say_value(tests[telling], others[telling]),
        });
    }
    return say("But none of the tests that you have ordered tells the two apart.");
  }

  /** @param {boolean} right whether it was named */
  close(right) {
    const { visit, catalogue } = this;
    const { patient } = visit;
    // once: who comes again is known
    this.cases.set(patient, this.cases.get(patient) ?? (right ? visit.points : 0));
    visit.closed = true;
    const points = right ? visit.points : null;
    const verdict = screen.describe_verdict(patient, this.twin(patient), catalogue, points);
    const card = this.tell("clinic-result", ...verdict);
    card.id = "clinic-verdict";
    this.show();
    reveal(card);
    $("next").focus({ preventScroll: true });
  }
}

const [rows, catalogue] = globalThis.GIVEN;
new Clinic(rows, catalogue);
