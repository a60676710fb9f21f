// The figure of a translation: type a sentence, hide a word, switch something off, step through
// the translation, look at every attention weight.
//
// `exploreAttention(host, content, options)` draws it into an element. `content` is what
// explorer.py writes: a `model` that runs in a worker (page/engine.js), or `recorded` translations
// of one sentence. Results of both have the same form, that of Translator.attentionMaps in
// model/translator.js; one that a beam found has the search's `nodes` and `best` as well.
//
// Here is the figure's state, and what asks the model. What draws is in figure/, and gets the
// figure; it changes nothing but what is drawn.

import { gloss } from "../page/gloss.js";
import { direction, openOnPaper, say } from "../page/language.js";
import { LONGEST } from "../model/decoding.js";
import { el } from "./dom.js";
import * as Changes from "./figure/changes.js";
import { listen } from "./figure/controls.js";
import { drawMaps } from "./figure/maps.js";
import { clearestStep, drawStep, stop } from "./figure/steps.js";
import { drawStrips, lightUp } from "./figure/strips.js";
import { TokenNames } from "./figure/tokens.js";
import { drawTree } from "./figure/tree.js";
import { asBuilt, switchBoxes } from "./switches.js";
import * as Trust from "./trust.js";

const PATIENCE_MS = 250; // after which it is said that the model computes

/**
 * @typedef {object} Options
 * @property {boolean} [first] the page's first screen, which shows the least
 * @property {boolean} [open] whether the maps are unfolded
 * @property {object} [state] choices to begin with
 * @property {(state: any, result: any) => void} [changed] told of every change
 */

export class Figure {
  constructor(host, content, options) {
    this.root = host.attachShadow({ mode: "open" });
    this.root.append(document.getElementById("explorer-figure").content.cloneNode(true));
    host.classList.toggle("first", Boolean(options.first));
    this.$ = (id) => this.root.getElementById(id);
    this.content = content;
    this.engine = content.engine;
    this.options = options;
    this.calm = matchMedia("(prefers-reduced-motion: reduce)");
    this.finger = matchMedia("(hover: none)");
    this.state = {
      sentence: content.sentence ?? "", // that was asked for last
      shown: undefined, // whose translation is shown
      search: "beam",
      temperature: 1,
      topP: 0.9,
      switches: asBuilt(),
      step: 1,
      whole: true, // whether what is written after the step is shown, too
      kind: "cross",
      layer: 0,
      head: "mean",
      words: false,
      guess: false,
      ...options.state,
    };
    this.changes = Changes.none();
    this.result = null; // what is shown
    this.whole = null; // the translation without what the reader has changed
    this.names = null; // of the result's tokens
    this.view = null; // the map that is drawn: { queries, keys, first, all, weights }
    this.pinned = null; // index of the query whose lines stay; null: the lines of all
    this.guessed = 0; // up to this step the reader has guessed
    this.playing = 0; // the timer of Play
    this.question = null; // the controller of what the model is asked
  }

  // ---- asking the model ----

  /** Ask the model; a question that is still open is given up for it. */
  async translated(question, signal) {
    if (!this.engine) return this.content.recorded[question.search];
    const count = this.engine.source(question.sentence).length;
    if (count > LONGEST)
      throw new Error(
        say("it has {count} tokens, and here at most {most} are read", { count, most: LONGEST }),
      );
    const step = (tokens) =>
      this.busy(tokens ? say("Thinking: {step} tokens", { step: tokens }) : say("Thinking"));
    return this.engine.ask("translate", question, { signal, step });
  }

  halt() {
    this.question?.abort(new DOMException("", "AbortError"));
  }

  /** Translate and show; true if there is something new to see. */
  async compute(step = null) {
    stop(this);
    this.halt();
    const question = new AbortController();
    this.question = question;
    const blank = !this.state.sentence.trim();
    if (blank) this.notice(say("Write a sentence first."));
    // a choice may come while the field is empty
    const sentence = blank ? this.state.shown : this.state.sentence.trim();
    if (!sentence) return false;
    // what was done to another one
    if (sentence !== this.state.shown) this.changes = Changes.none();
    const before = this.state.shown;
    this.state.shown = sentence;
    try {
      await this.answered(question.signal);
    } catch (error) {
      if (this.question !== question) return false; // another question has come
      this.state.shown = before;
      this.refused(error);
      return false;
    }
    this.busy(null);
    this.fade(blank);
    if (!blank) this.warn(sentence);
    this.guessed = 0;
    this.state.whole = !this.state.guess;
    const first = this.state.guess ? 1 : clearestStep(this.result, this.whole);
    this.state.step = Math.min(this.result.target.length, step ?? first);
    this.draw();
    return !blank;
  }

  async answered(signal) {
    this.busy(say("Thinking"));
    const result = await this.translated(Changes.asChanged(this), signal);
    const compares = Changes.any(this) && this.state.search !== "sample";
    const whole = compares ? await this.translated(Changes.asItIs(this), signal) : null;
    if (this.result?.source.join() !== result.source.join()) this.pinned = null;
    Object.assign(this, { result, whole, names: new TokenNames(result) });
  }

  refused(error) {
    this.busy(null);
    if (error.name === "AbortError") return this.notice(say("Stopped."));
    this.notice(say("This sentence cannot be translated: {why}.", { why: error.message }));
    this.fade(true);
  }

  /** Have it translate a sentence, with the switches that another place of the page has. */
  ask(sentence, switches = this.state.switches) {
    clearTimeout(this.typing);
    this.fill(sentence);
    this.state.switches = switches;
    this.boxes?.show(switches);
    return this.compute();
  }

  askIfOther(sentence) {
    if (sentence.trim() !== this.state.sentence.trim()) return this.ask(sentence);
  }

  // ---- what the reader does ----

  /** What a click does to a token that was read; the end stays where it is. */
  async touch(i) {
    const count = this.result.source.length;
    if (i >= count - 1) return;
    if (this.$("touch").value === "hide") Changes.hide(this.changes, i);
    else if (i + 1 < count - 1) Changes.swap(this.changes, i, count);
    await this.compute();
    this.$("source").children[i]?.firstChild.focus();
    lightUp(this); // the step, not what has the focus
  }

  switch(switches) {
    return this.ask(this.state.sentence, switches);
  }

  restorable() {
    return Changes.restorable(this);
  }

  restore() {
    this.changes = { ...Changes.none(), taken: this.changes.taken };
    return this.switch(asBuilt());
  }

  /** Look at another map. */
  choose(choices) {
    const { kind, words } = this.state;
    Object.assign(this.state, choices);
    if (!this.result) return;
    // with other rows the pinned query means nothing
    if (kind !== this.state.kind || words !== this.state.words) this.pinned = null;
    drawMaps(this);
    lightUp(this);
    this.options.changed?.(this.state, this.result);
  }

  /** What has been typed, translated or not; what is shown if nothing has. */
  sentence() {
    const typed = this.$("text").value;
    return this.engine && typed.trim() ? typed : (this.state.shown ?? this.state.sentence);
  }

  // ---- drawing ----

  draw() {
    drawStrips(this);
    drawTree(this);
    drawMaps(this);
    drawStep(this);
    Changes.compare(this);
    this.options.changed?.(this.state, this.result);
  }

  fill(sentence) {
    this.state.sentence = sentence;
    this.$("text").value = sentence;
    this.$("text").dir = direction(sentence);
  }

  // What is shown is of another sentence.
  fade(isOld) {
    this.$("panel").style.opacity = isOld ? 0.4 : "";
  }

  busy(text) {
    clearTimeout(this.waiting);
    this.$("panel").ariaBusy = text !== null;
    if (text === null) this.$("busy").hidden = true;
    else
      this.waiting = setTimeout(
        () => {
          this.$("busy").hidden = false;
          this.$("busy-text").textContent = text;
        },
        this.$("busy").hidden ? PATIENCE_MS : 0,
      );
  }

  warn(sentence) {
    const { engine, content, result } = this;
    const doubts = engine ? Trust.doubts(sentence, engine.tokenizer, content.language) : [];
    if (result.predicted.at(-1) !== "</s>") doubts.push(say("It has reached the limit of length."));
    const isReady = this.options.first && gloss(sentence).length > 0;
    const note = isReady ? "" : say(engine?.note ?? "");
    this.notice([...doubts, note].join(" "), doubts.length > 0);
    const teaches = content.provocations?.find((one) => one.sentence === sentence)?.teaches;
    this.$("teaches").hidden = !teaches;
    this.$("teaches").textContent = teaches ? say(teaches) : "";
  }

  notice(text, isWarning = true) {
    this.$("notice").textContent = text;
    this.$("notice").classList.toggle("warning", isWarning);
  }

  // ---- the beginning ----

  start() {
    this.showControls();
    this.fill(this.state.sentence);
    listen(this);
    this.compute();
    const redraw = () => this.result && drawMaps(this);
    const colours = { attributeFilter: ["data-theme"] };
    new MutationObserver(redraw).observe(document.documentElement, colours);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
    openOnPaper(this.root);
    addEventListener("beforeprint", () => {
      if (!this.result) return;
      drawTree(this);
      drawMaps(this);
    });
  }

  showControls() {
    const { $, content, engine, options } = this;
    for (const id of ["live", "sample-label", "own", "guess-label", "touch-line"])
      $(id).hidden = !engine;
    $("maps").open = Boolean(options.open);
    const option = (sentence) => el("option", { value: sentence }, sentence);
    $("captions").append(...(content.samples ?? []).map(option));
    const provocations = content.provocations ?? [];
    $("provocations").append(...provocations.map(({ sentence }) => option(sentence)));
    $("provocations").hidden = !provocations.length;
    $("samples-label").hidden = !content.samples?.length;
    if (content.language) $("text-label").textContent = languageName(content.language);
    if (options.first)
      $("read").textContent = this.finger.matches
        ? say("Tap a word to hide it from the model")
        : say("Click a word to hide it from the model");
    if (!engine) return;
    this.boxes = switchBoxes(engine.config, (switches) => this.switch(switches));
    $("switches").append(say("In the model: "), this.boxes.host);
    this.boxes.show(this.state.switches);
  }
}

function languageName(code) {
  // "German" for "de"; a code that the browser does not know stays as it is
  try {
    const names = new Intl.DisplayNames(document.documentElement.lang || "en", {
      type: "language",
    });
    return names.of(code);
  } catch {
    return code;
  }
}

/** Draw a figure into an element.
 *  @param {HTMLElement} host @param {object} content @param {Options} options @returns {Figure} */
export function exploreAttention(host, content, options = {}) {
  const figure = new Figure(host, content, options);
  figure.start();
  return figure;
}
