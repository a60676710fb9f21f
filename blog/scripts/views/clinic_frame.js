// The document of the clinic, in its frame.

import source from "bundle:../learn/clinic_worker.js";
import { el } from "../page/dom.js";
import { shrink } from "../page/in_frame.js";
import { say } from "../page/language.js";
import { startWorker } from "../page/worker.js";
import { describe_next, describe_result, describe_verdict } from "./clinic_result.js";
import { make_screen } from "./clinic_screen.js";
import {
  curve_is_ill,
  is_ill,
  last_loss,
  ORDERS,
  say_exact,
  say_value,
  share,
  writes_badly,
} from "./clinic_words.js";

/** @import { Result } from "../learn/clinic.js" */
/** @import { Catalogue, Patient } from "./clinic_words.js" */
/** A patient while it is here: what is left of the points, and what was measured by each test that
 *  was ordered; null while it is being measured. It is closed once the reader knows.
 *  @typedef {{ number: number, patient: Patient, points: number, closed: boolean,
 *    results: Record<string, Record<string, number> | null> }} Visit */
/** @typedef {Result & { number: number | string, test: string }} Answer */

const POINTS = 10;
const PRICE_OF_A_WRONG_NAME = 3;
const DAY_MS = 864e5;

/** @param {Patient} patient */
const name_of = ({ slip }) => slip ?? "healthy";

/** What is in the row of a trained model already.
 *  @param {string} test @param {Patient} patient @returns {Result | null} */
function result_of_row(test, patient) {
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
  /** @type {Visit | null} */
  visit = null;
  visits = 0;
  /** @type {Set<Patient>} who was here */
  treated = new Set();
  /** @type {Map<Patient, number>} of each that was finished the points, 0 without the name */
  cases = new Map();
  /** @type {Worker | null} */
  worker = null;
  /** @type {Map<string, (measured: Record<string, number>) => void>} who waits for what the worker
   *  measures of a model that isn't this patient */
  waiting = new Map();

  /** @param {Patient[]} rows @param {Catalogue} catalogue */
  constructor(rows, catalogue) {
    this.rows = rows;
    this.catalogue = catalogue;
    const actions = {
      admit_of_the_day: () => this.admit(this.of_the_day()),
      admit_next: () => this.admit(this.draw()),
      order: (/** @type {string} */ test) => this.order(test),
      name: () => this.name(),
      tell: () => this.close(false),
    };
    this.screen = make_screen(actions, catalogue.mistakes);
    this.show();
    new IntersectionObserver((entries) => {
      if (!this.visit && entries.at(-1)?.isIntersecting) actions.admit_of_the_day();
    }).observe(this.screen.curve.element);
  }

  // --- a patient ---

  of_the_day = () => this.rows[Math.floor(Date.now() / DAY_MS) % this.rows.length];

  /** The level of a patient with a mistake. @param {string} slip @param {Patient} patient */
  level_of(slip, patient) {
    if (curve_is_ill(patient)) return 0;
    return this.catalogue.mistakes[slip].seen_by === "wires" ? 1 : 2;
  }

  /** One that wasn't here, as long as there are others; a healthy one's curve isn't ill. */
  draw() {
    const level = Number(this.screen.level.value);
    const fit = this.rows.filter((row) =>
      row.slip ? this.level_of(row.slip, row) === level : level > 0,
    );
    const fresh = fit.filter((row) => !this.treated.has(row));
    const choice = fresh.length ? fresh : fit.filter((row) => row !== this.visit?.patient);
    return choice[Math.floor(Math.random() * choice.length)];
  }

  /** @param {Patient} patient */
  healthy_like = ({ seed }) =>
    /** @type {Patient} */ (this.rows.find((row) => !row.slip && row.seed === seed));

  /** @param {Patient} patient */
  admit(patient) {
    const { visit, screen } = this;
    // it was examined, and left without a name
    if (visit && !visit.closed && visit.points < POINTS) this.finish(visit, 0);
    this.visits += 1;
    this.visit = { number: this.visits, patient, points: POINTS, results: {}, closed: false };
    this.treated.add(patient);
    shrink();
    screen.told.replaceChildren();
    screen.names.value = "";
    for (const button of Object.values(screen.orders)) button.setAttribute("aria-pressed", "false");
    screen.curve.run(patient.losses, this.healthy_like(patient).losses);
    screen.facts.textContent = say(
      "Loss at the end {loss}. Of the letters of held-out numbers, {share} are right if it reads the reference before each.",
      { loss: last_loss(patient).toFixed(3), share: share(patient.forced) },
    );
    this.show();
  }

  show() {
    const { visit, screen } = this;
    const points = Math.max(0, visit?.points ?? 0);
    screen.state.textContent = visit ? say("{points} points", { points }) : "";
    const scores = [...this.cases.values()];
    screen.tally.textContent = scores.length
      ? say("named so far: {named} of {all}, with {points} of {most} points", {
          named: scores.filter(Boolean).length,
          all: scores.length,
          points: scores.reduce((a, b) => a + b),
          most: POINTS * scores.length,
        })
      : "";
    for (const button of Object.values(screen.orders)) button.disabled = !visit;
    for (const control of [screen.names, screen.name, screen.tell])
      control.disabled = !visit || visit.closed;
  }

  /** Once: who comes again is known. @param {Visit} visit @param {number} points */
  finish({ patient }, points) {
    if (!this.cases.has(patient)) this.cases.set(patient, points);
  }

  /** @param {string} className @param {...(Node | string)} content */
  tell(className, ...content) {
    const card = el("div", { className }, ...content);
    this.screen.told.append(card);
    return card;
  }

  // --- tests ---

  /** @param {string} test @param {Patient} patient @param {number | string} number */
  send(test, { slip, seed }, number) {
    this.worker ??= startWorker(source, (/** @type {Answer} */ answer) => this.hear(answer));
    this.worker.postMessage({ test, slip, seed, number });
  }

  /** @param {string} test */
  order(test) {
    const { visit } = this;
    if (!visit || test in visit.results) return;
    visit.results[test] = null;
    if (!visit.closed) visit.points -= ORDERS[test].price;
    this.screen.orders[test].setAttribute("aria-pressed", "true");
    this.tell("clinic-result", el("strong", {}, ORDERS[test].title), " …").id = `result-${test}`;
    const result = result_of_row(test, visit.patient);
    if (result) this.hear({ number: visit.number, test, ...result });
    else this.send(test, visit.patient, visit.number);
    if (visit.points <= 0 && !visit.closed) this.close(false);
    this.show();
  }

  /** @param {Answer} answer */
  hear({ number, test, ...result }) {
    this.waiting.get(`${number}`)?.(result.measured);
    if (!this.visit || number !== this.visit.number) return;
    const { patient, results } = this.visit;
    results[test] = result.measured;
    const card = /** @type {HTMLElement} */ (document.getElementById(`result-${test}`));
    card.replaceChildren(...describe_result(test, result, this.catalogue.tests, patient));
    reveal(card);
  }

  /** What a test measures of another model. @param {string} test @param {Patient} patient
   *  @returns {Promise<Record<string, number>>} */
  measure(test, patient) {
    const result = result_of_row(test, patient);
    if (result) return Promise.resolve(result.measured);
    const number = `${test} ${patient.slip}`;
    return new Promise((resolve) => {
      this.waiting.set(number, resolve);
      this.send(test, patient, number);
    });
  }

  // --- the name ---

  name() {
    const { visit, screen } = this;
    const { value, selectedOptions } = screen.names;
    if (!visit) return;
    if (!value) return screen.names.focus();
    if (value === name_of(visit.patient)) return this.close(true);
    visit.points -= PRICE_OF_A_WRONG_NAME;
    const why = el("span");
    const text = say("It isn't “{name}”. {points} points are left.", {
      name: selectedOptions[0].textContent,
      points: Math.max(0, visit.points),
    });
    const card = el("p", { className: "clinic-result wrong" }, text, " ", why);
    screen.told.append(card);
    const { seed } = visit.patient;
    const other = this.rows.find((row) => name_of(row) === value && row.seed === seed);
    if (other) this.contrast(visit, other).then((reason) => (why.textContent = reason));
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
      if (test === "references" && writes_badly(other) !== writes_badly(patient))
        return say("In such a model, {sentence}.", { sentence: say_exact(other) });
      const others = await this.measure(test, other);
      const telling = Object.keys(others).find(
        (name) =>
          name in measured &&
          is_ill(tests[name], others[name]) !== is_ill(tests[name], measured[name]),
      );
      if (telling)
        return say("In such a model, {sentence}.", {
          sentence: say_value(tests[telling], others[telling]),
        });
    }
    return say("But none of the tests that you have ordered tells the two apart.");
  }

  /** @param {boolean} right whether it was named */
  close(right) {
    const { visit, screen, catalogue } = this;
    if (!visit) return;
    const { patient } = visit;
    this.finish(visit, right ? visit.points : 0);
    visit.closed = true;
    const points = right ? visit.points : null;
    const verdict = describe_verdict(patient, this.healthy_like(patient), catalogue, points);
    const section = catalogue.mistakes[name_of(patient)]?.section;
    const card = this.tell("clinic-result", ...verdict, ...describe_next(section));
    card.id = "clinic-verdict";
    this.show();
    reveal(card);
    screen.next.focus({ preventScroll: true });
  }
}

const [rows, catalogue] = globalThis.GIVEN;
new Clinic(rows, catalogue);
