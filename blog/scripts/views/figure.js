// The figure of a translation: type a sentence, hide a word, switch something off, step through
// the translation, look at every attention weight.
//
// `new Figure(host, content, options)` draws it into an element. `content` is what explorer.py
// writes: a `model` that runs in a worker (page/engine.js), or `recorded` translations of one
// sentence. Results of both have the same form, that of Translator.attentionMaps in
// model/translator.js; one that a beam found has the search's `nodes` and `best` as well.
//
// Here is the figure's state, and what asks the model. What draws is in figure/, and gets the
// figure; it changes nothing but what is drawn.

import { all, byId, el, watch } from "../page/dom.js";
import { gloss } from "../page/gloss.js";
import { direction, openOnPaper, say } from "../page/language.js";
import * as Changes from "./figure/changes.js";
import { listen } from "./figure/controls.js";
import { drawMaps } from "./figure/maps.js";
import { clearestStep, drawStep, sameStep, stop } from "./figure/steps.js";
import { drawStrips, lightUp } from "./figure/strips.js";
import { TokenNames } from "./figure/tokens.js";
import { asBuilt, switchBoxes } from "./switches.js";
import * as Trust from "./trust.js";

const PATIENCE_MS = 250; // after which it is said that the model computes

/** @typedef {import("../page/engine.js").Content} Content */
/** `first`: the page's first screen, which shows the least; `changed` is told of every change.
 *  @typedef {{ first?: boolean, changed: (state: State) => void }} Options */
/** @typedef {Figure["state"]} State */

/** What is there from the model's first answer on. @type {any} each has a type of its own */
const NOT_YET = null;

export class Figure {
  /** What is shown. @type {Result} */
  result = NOT_YET;
  /** The translation without what the reader has changed. @type {Result | null} */
  whole = null;
  /** Of the result's tokens. @type {TokenNames} */
  names = NOT_YET;
  changes = Changes.none();
  playing = 0; // the timer of Play
  typing = 0; // that of what is typed
  waiting = 0; // and that of patience
  /** What stops what the model is asked. @type {AbortController | undefined} */
  question;

  /** @param {HTMLElement} host @param {Content} content @param {Options} options */
  constructor(host, content, options) {
    this.root = host.attachShadow({ mode: "open" });
    const template = /** @type {HTMLTemplateElement} */ (byId("explorer-figure"));
    this.root.append(byId("style-panels").cloneNode(true), template.content.cloneNode(true));
    host.classList.toggle("first", Boolean(options.first));
    this.content = content;
    /** @type {Engine | undefined} */
    this.engine = content.engine;
    this.options = options;
    this.state = {
      sentence: content.sentence, // that was asked for last
      shown: "", // whose translation is shown
      search: /** @type {SearchName} */ ("beam"),
      switches: asBuilt(),
      step: 1,
      whole: true, // whether what is written after the step is shown, too
      kind: /** @type {Kind} */ ("cross"),
      layer: 0,
      head: /** @type {Head} */ ("mean"),
    };
    this.showControls();
    this.fill(this.state.sentence);
    listen(this);
    this.compute();
    const redraw = () => this.result && drawMaps(this);
    const colours = { attributeFilter: ["data-theme"] };
    new MutationObserver(redraw).observe(document.documentElement, colours);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    openOnPaper(this.root);
  }

  /** @param {string} id */
  $ = (id) => /** @type {Control} */ (this.root.getElementById(id));

  all(/** @type {string} */ selector) {
    return all(selector, this.root);
  }

  // ---- asking the model ----

  /** Ask the model; a question that is still open is given up for it.
   *  @param {ReturnType<typeof Changes.asItIs>} question @param {AbortSignal} signal
   *  @returns {Promise<Result>} */
  async translated(question, signal) {
    if (!this.engine) return this.content.recorded[question.search];
    const refusal = Trust.refusal(question.sentence, this.engine);
    if (refusal) throw new Error(refusal);
    const step = (/** @type {number} */ tokens) =>
      this.busy(tokens ? say("Thinking: {step} tokens", { step: tokens }) : say("Thinking"));
    return this.engine.ask("translate", question, { signal, step });
  }

  halt() {
    this.question?.abort();
  }

  /** Translate and show; true if there is something new to see. @param {number} [step] */
  async compute(step) {
    stop(this);
    this.halt();
    const question = new AbortController();
    this.question = question;
    const { state } = this;
    const blank = !state.sentence.trim();
    if (blank) this.notice(say("Write a sentence first."));
    // a choice may come while the field is empty
    const before = state.shown;
    const sentence = blank ? before : state.sentence.trim();
    if (!sentence) return false;
    // what was done to another one
    const old = sentence === before ? this.result : null;
    if (!old) this.changes = Changes.none();
    state.shown = sentence;
    try {
      await this.answered(question.signal);
    } catch (error) {
      if (this.question !== question) return false; // another question has come
      state.shown = before;
      this.refused(/** @type {Error} */ (error));
      return false;
    }
    this.busy(null);
    this.fade(blank);
    if (!blank) this.warn(sentence);
    state.whole = true;
    step ??= old ? sameStep(this.result, old, state.step) : clearestStep(this.result);
    state.step = Math.min(this.result.target.length, step);
    this.draw();
    return !blank;
  }

  async answered(/** @type {AbortSignal} */ signal) {
    this.busy(say("Thinking"));
    const result = await this.translated(Changes.asChanged(this), signal);
    const isChanged = Changes.restorable(this) || this.changes.taken;
    const whole = isChanged ? await this.translated(Changes.asItIs(this), signal) : null;
    Object.assign(this, { result, whole, names: new TokenNames(result) });
  }

  refused(/** @type {Error} */ { name, message }) {
    this.busy(null);
    if (name === "AbortError") return this.notice(say("Stopped."));
    this.notice(say("This sentence cannot be translated: {why}.", { why: message }));
    this.fade(true);
  }

  /** Have it translate a sentence, with the switches that another place of the page has. */
  ask(/** @type {string} */ sentence, switches = this.state.switches) {
    clearTimeout(this.typing);
    this.fill(sentence);
    this.state.switches = switches;
    this.boxes?.show(switches);
    return this.compute();
  }

  // ---- what the reader does ----

  /** Hide a token that was read, or no longer; the end stays. @param {number} i */
  async touch(i) {
    if (i >= this.result.source.length - 1) return;
    const { hidden } = this.changes;
    if (!hidden.delete(i)) hidden.add(i);
    await this.compute();
    this.all("#source button")[i]?.focus();
    lightUp(this); // the step, not what has the focus
  }

  switch(/** @type {Switches} */ switches) {
    return this.ask(this.state.sentence, switches);
  }

  restore() {
    this.changes = { ...Changes.none(), taken: this.changes.taken };
    return this.switch(asBuilt());
  }

  /** Look at another map. @param {object} choices of the state, as menus have them */
  choose(choices) {
    Object.assign(this.state, choices);
    if (!this.result) return;
    drawMaps(this);
    lightUp(this);
    this.options.changed(this.state);
  }

  /** What has been typed, translated or not; what is shown if nothing has. */
  sentence() {
    const typed = this.$("text").value;
    return this.engine && typed.trim() ? typed : this.state.shown || this.state.sentence;
  }

  // ---- drawing ----

  draw() {
    drawStrips(this);
    drawMaps(this);
    drawStep(this);
    Changes.compare(this);
    this.options.changed(this.state);
  }

  fill(/** @type {string} */ sentence) {
    this.state.sentence = sentence;
    Object.assign(this.$("text"), { value: sentence, dir: direction(sentence) });
  }

  /** @param {boolean} isOld what is shown is of another sentence */
  fade(isOld) {
    this.$("panel").classList.toggle("old", isOld);
  }

  /** @param {string | null} text null: no longer */
  busy(text) {
    const busy = this.$("busy");
    clearTimeout(this.waiting);
    this.$("panel").ariaBusy = `${text !== null}`;
    const tell = () => {
      busy.hidden = text === null;
      this.$("busy-text").textContent = text;
    };
    if (text === null || !busy.hidden) tell();
    else this.waiting = window.setTimeout(tell, PATIENCE_MS);
  }

  warn(/** @type {string} */ sentence) {
    const { engine, content } = this;
    const doubts = engine ? Trust.doubts(sentence, engine.tokenizer, content.language) : [];
    const isReady = this.options.first && gloss(sentence).length > 0;
    const note = isReady ? "" : say(engine?.note ?? "");
    this.notice([...doubts, note].join(" "), doubts.length > 0);
    const provocation = content.provocations?.find((ready) => ready.sentence === sentence);
    this.$("teaches").hidden = !provocation;
    this.$("teaches").textContent = provocation ? say(provocation.teaches) : "";
  }

  /** @param {string} text */
  notice(text, isWarning = true) {
    this.$("notice").textContent = text;
    this.$("notice").classList.toggle("warning", isWarning);
  }

  // ---- the beginning ----

  showControls() {
    const { $, content, engine } = this;
    const { first } = this.options;
    const { samples = [], provocations = [], language } = content;
    for (const id of ["live", "own"]) $(id).hidden = !engine;
    $("maps").open = !first;
    const option = (/** @type {string} */ value) => el("option", { value }, value);
    $("captions").append(...samples.map(option));
    $("provocations").append(...provocations.map(({ sentence }) => option(sentence)));
    $("provocations").hidden = !provocations.length;
    $("samples-label").hidden = !samples.length;
    if (language) $("text-label").textContent = languageName(language);
    if (first)
      $("read").textContent = matchMedia("(hover: none)").matches
        ? say("Tap a word to hide it")
        : say("Click a word to hide it from the model");
    if (!engine) return;
    this.boxes = switchBoxes(engine.config, (switches) => this.switch(switches), first);
    $("switches").append(first ? say("The model ") : say("In the model: "), this.boxes.host);
    if (first)
      watch([this.root.host], (isSeen) => {
        // what was tried here is not to follow the reader down the page
        if (!isSeen && this.result && Changes.restorable(this)) this.restore();
      });
    this.boxes.show(this.state.switches);
  }
}

/** "German" for "de"; a code that the browser does not know stays as it is. */
function languageName(/** @type {string} */ code) {
  try {
    const here = document.documentElement.lang || "en";
    return new Intl.DisplayNames(here, { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
