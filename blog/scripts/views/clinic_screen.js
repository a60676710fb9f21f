// What there is on the screen of the clinic.

import { button, el } from "../page/dom.js";
import { say } from "../page/language.js";
import { curve, put, shape, words } from "../page/svg.js";
import { LEVELS, ORDERS } from "./clinic_words.js";
import { note, row } from "./frame_parts.js";

/** @import { Clinic } from "./clinic_frame.js" */

const UPDATES_MS = 1500; // how long the curve runs

/** The points of losses, of 60 stretches. @returns {[number, number][]} */
const points = (/** @type {number[]} */ losses) =>
  losses.map((loss, i) => [30 + 5.1 * (i + 0.5), 120 - 28 * Math.min(4, loss)]);

/** The training loss, beside that of a healthy model. */
export class Curve {
  healthy = curve(1.4, "1.5 2.5", "ink");
  patient = curve(2.2, "none", "link");
  /** @type {number[]} of the patient */
  losses = [];

  constructor() {
    /** @param {number} x @param {number} y @param {string} text */
    const label = (x, y, text) => words(x, y, text, { "text-anchor": "end", "font-size": 9 });
    this.element = shape(
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
      this.healthy,
      this.patient,
    );
  }

  /** @param {number[]} losses @param {number[]} healthy */
  run(losses, healthy) {
    this.losses = losses;
    put(this.healthy, points(healthy));
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    const start = performance.now();
    const draw = (/** @type {number} */ now) => {
      const done = still ? 1 : Math.min(1, (now - start) / UPDATES_MS);
      if (this.losses !== losses) return; // the next patient has come
      const end = Math.ceil(done * losses.length);
      put(this.patient, points(losses.slice(0, end)));
      if (done < 1) requestAnimationFrame(draw);
    };
    draw(start);
  }
}

/** The names of the mistakes, in groups. @param {Catalogue["mistakes"]} mistakes */
function select_names(mistakes) {
  const groups = Object.groupBy(Object.entries(mistakes), ([, { group }]) => group);
  /** @param {string} label @param {[string, string][]} names */
  const group = (label, names) =>
    el("optgroup", { label }, ...names.map(([value, text]) => el("option", { value }, text)));
  const question = say("What is wrong with it?");
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

/** All that the reader can do, as elements.
 *  @param {Clinic} clinic @param {Catalogue["mistakes"]} mistakes */
function controls(clinic, mistakes) {
  const levels = LEVELS.map((name, i) => el("option", { value: `${i}`, selected: i === 1 }, name));
  /** @type {Record<string, HTMLButtonElement>} */
  const orders = {};
  for (const [test, { title, price, about }] of Object.entries(ORDERS))
    orders[test] = button(`${title} −${price}`, () => clinic.order(test), { title: about });
  return {
    level: el("select", { id: "clinic-level" }, ...levels),
    of_the_day: button(say("Patient of the day"), () => clinic.admit_of_the_day()),
    next: button(say("Next patient"), () => clinic.admit_next(), { id: "clinic-next" }),
    orders,
    names: select_names(mistakes),
    name: button(say("Name it"), () => clinic.name(), { id: "clinic-name" }),
    tell: button(say("Tell me"), () => clinic.close(false), { id: "clinic-tell" }),
  };
}

const CAPTION = say("The training loss; dotted: a healthy model with the same seed.");
const INTRODUCTION = say(
  "Each patient is the small model of German numbers, trained beforehand with one mistake in it, or with none. Order tests, name the mistake, and keep as many of your ten points as you can: a wrong name costs three. Words are letters and digits here.",
);

/** @param {Clinic} clinic @param {Catalogue["mistakes"]} mistakes */
export function make_screen(clinic, mistakes) {
  const screen = {
    ...controls(clinic, mistakes),
    curve: new Curve(),
    state: el("span", { id: "clinic-state" }),
    tally: el("span", { className: "learn-note" }),
    facts: el("p", { id: "clinic-facts" }),
    told: el("div", { id: "clinic-told", ariaLive: "polite" }),
  };
  const orders = row(...Object.values(screen.orders));
  orders.id = "clinic-orders";
  document.body.append(
    row(
      el("strong", {}, say("The clinic")),
      screen.of_the_day,
      screen.next,
      el("label", {}, say("Level of the next patient"), " ", screen.level),
      screen.state,
      screen.tally,
    ),
    note(INTRODUCTION),
    el(
      "div",
      { className: "learn-parts" },
      el("div", {}, screen.curve.element, note(CAPTION)),
      el("div", {}, screen.facts, orders, row(screen.names, screen.name, screen.tell)),
    ),
    screen.told,
  );
  return screen;
}
