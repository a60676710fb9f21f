// Write it yourself: under some sections an editor in which the reader writes Python in plain
// lists. A gate compares what the function gives for the reader's own sentence with what the live
// model computes, names the mistake if the catalogue has it, and puts the function into the live
// model. Python is MicroPython, in a worker that can be ended.

import { all, button, el } from "../page/dom.js";
import { say } from "../page/language.js";
import { recall, remember } from "../page/memory.js";
import { askPython } from "../page/python.js";
import { endOf, yourSentence } from "../page/sentence.js";
import { PLACES } from "./editor_places.js";
import { verdictOf } from "./editor_words.js";

/** @typedef {import("./editor_places.js").Place} Place */

const GATE_SECONDS = 5;
const DECODE_SECONDS = 20; // asks the live model at each step
const PLUGGED_SECONDS = 120; // a whole translation

export function startEditors() {
  if (!document.getElementById("micropython-wasm")) return;
  for (const place of PLACES) {
    const section = document.getElementById(place.heading)?.closest("section");
    if (!section) continue;
    const { fold } = new Editor(place);
    endOf(section).after(fold);
    yourSentence.bar.panels.observe(fold); // the bar is shown here, too
  }
}

/** What was written, by function. @type {Record<string, string>} */
const written = recall("mine", {});

function keep(/** @type {string} */ name, /** @type {string} */ code) {
  written[name] = code;
  remember("mine", written);
}

class Editor {
  constructor(/** @type {Place} */ { name, task, pluggable, stub }) {
    this.name = name;
    this.stub = stub;
    this.stopper = new AbortController();
    this.field = this.makeField();
    this.check = button(say("Check it"), () => this.run(false));
    this.stop = button(say("Stop"), () => this.stopper.abort(), { hidden: true });
    const put = say("Put it into the model");
    this.put = button(put, () => this.run(true), { hidden: !pluggable });
    this.output = el("output");
    this.fold = this.makeFold(task);
  }

  makeField() {
    const field = el("textarea", {
      value: written[this.name] ?? this.stub,
      spellcheck: false,
      wrap: "off",
      rows: 9,
      ariaLabel: say("Your function {name}", { name: this.name }),
      oninput: () => keep(this.name, field.value),
    });
    let leaves = false; // Escape, then Tab, leaves the field; Tab alone indents
    field.addEventListener("keydown", (event) => {
      if (event.key === "Tab" && !leaves && !event.shiftKey) {
        event.preventDefault();
        field.setRangeText("    ", field.selectionStart, field.selectionEnd, "end");
      }
      leaves = event.key === "Escape";
    });
    return field;
  }

  makeFold(/** @type {string} */ task) {
    const { name, field, check, stop, put, output } = this;
    const take = button(say("Take mine.py along"), () => {
      keep(name, field.value);
      download();
    });
    const again = button(say("Begin again"), () => {
      field.value = this.stub;
      keep(name, this.stub);
    });
    return el(
      "details",
      { className: "write-it", id: `write-${name}`, "data-function": name },
      el("summary", { textContent: say("Write it yourself: {name}", { name }) }),
      el("p", {
        textContent: `${task} ${say("Python in plain lists. It is compared with the live model, for your sentence. Escape, then Tab, leaves the field.")} ${say("MicroPython, a small Python without packages, runs your function.")}`,
      }),
      field,
      el("div", { className: "controls" }, check, stop, put, take, again),
      output,
    );
  }

  /** Ask a gate, or put the function into the model. @param {boolean} plugged */
  async run(plugged) {
    if (this.field.value.trim() === this.stub.trim())
      return this.show("wrong", say("This is the template: write the body first."));
    const focused = /** @type {HTMLElement | null} */ (document.activeElement);
    this.stopper = new AbortController();
    this.busy(true);
    this.show("busy", say("computing…"));
    try {
      await yourSentence.begin();
      const { sentence } = yourSentence;
      await this.ask({ code: this.field.value, name: this.name, plugged, sentence });
    } catch (error) {
      this.show("wrong", /** @type {Error} */ (error).message);
    }
    this.busy(false);
    focused?.focus();
  }

  busy(/** @type {boolean} */ is) {
    this.check.disabled = this.put.disabled = is;
    this.stop.hidden = !is;
  }

  show(/** @type {string} */ className, /** @type {(Node | string)[]} */ ...content) {
    this.output.className = className;
    this.output.replaceChildren(...content);
  }

  async ask(/** @type {Asked} */ question) {
    const gateSeconds = this.name === "decode" ? DECODE_SECONDS : GATE_SECONDS;
    const answer = await askPython(question, {
      seconds: question.plugged ? PLUGGED_SECONDS : gateSeconds,
      signal: this.stopper.signal,
      step: (count) => this.show("busy", say("computing… calls so far: {count}", { count })),
    });
    if (question.plugged && answer.result)
      this.show("plugged", ...translations(question, answer.result));
    else {
      const { right, words } = verdictOf(answer, question.sentence, question.code);
      if (right) this.show("right", words, " ", wayOn(this.name));
      else this.show("wrong", words);
    }
    if (answer.printed) this.output.append(el("pre", { textContent: answer.printed }));
  }
}

/** @param {{ sentence: string }} question
 *  @param {{ text: string, own: string }} result the model's with the reader's function, and its
 *  own */
const translations = ({ sentence }, { text, own }) => [
  say("With your function in it, the model writes for “{sentence}”, one token at a time:", {
    sentence,
  }),
  el("strong", { textContent: text || say("(nothing)") }),
  text === own ? say("Without it, it writes the same.") : say("Without it: {text}", { text: own }),
];

/** A link from a function that is right to the next one; from the last one to the next rung. */
function wayOn(/** @type {string} */ name) {
  const folds = /** @type {HTMLDetailsElement[]} */ (all("details.write-it"));
  const next = folds[folds.findIndex((fold) => fold.dataset.function === name) + 1];
  if (!next) return el("a", { href: "#clinic-frame", textContent: say("Next rung: diagnose ▸") });
  const textContent = say("Next, write {name} ▸", { name: next.dataset.function });
  return el("a", { href: `#${next.id}`, textContent, onclick: () => (next.open = true) });
}

/** All functions in one file, which begins with what Python takes at a file's beginning only. */
function download() {
  const future = /^from __future__ import .*\n?/gm;
  const functions = Object.values(written).join("\n");
  const imports = [...new Set(functions.match(future)?.map((line) => line.trim()))];
  const text = `"""${say("Judge it: python the_annotated_transformer.py judge mine.py. To learn (--learn), it needs all functions, in PyTorch.")}"""
${imports.map((line) => `${line}\n`).join("")}

def take(array):
    return array.tolist()


${functions.replace(future, "")}`;
  el("a", { href: `data:text/x-python,${encodeURIComponent(text)}`, download: "mine.py" }).click();
}
