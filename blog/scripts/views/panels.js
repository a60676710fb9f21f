// Panels that show what the model computes for one sentence: `add(element, name)` puts the panel
// `name` into an element, and `follow(engine, sentence)` has all panels show another sentence.
// model/trace.js computes it.

import { largest } from "../model/tensors.js";
import { el, watch } from "../page/dom.js";
import { gloss, glossed, glossOf, interlinear } from "../page/gloss.js";
import { isolated, say, told } from "../page/language.js";
import { BREAKS, PANELS } from "./panels/kinds.js";
import { paragraphs } from "./panels/parts.js";

/** @typedef {import("./panels/kinds.js").Chosen} Chosen */
/** @typedef {keyof Chosen} Choice */
/** @typedef {Awaited<ReturnType<typeof look>>} Facts */
/** Where panels are, and what is chosen in all of them.
 *  @typedef {HTMLElement & { chosen?: Record<string, string> }} Host */
/** @typedef {import("../model/jobs.js").Facts} Computed */
/** What the model computes, `facts`, is asked for when a panel is seen.
 *  @typedef {{ engine: Engine, sentence: string, switches?: Switches,
 *    facts?: Promise<Computed> }} Followed */

const LONGEST_TITLE = 90; // letters of a sentence in a title
const CHOICES = {
  layer: say("layer"),
  head: say("head"),
  token: say("token"),
  key: say("looks at"),
  step: say("step"),
  differing: say("step"),
  kind: say("attention"),
  whose: say("sentence"),
  other: say("second sentence"),
};
/** @type {Record<string, string>} */
const SWAPS = {
  ...{ Frauen: "Kinder", Männer: "Frauen", Mann: "Junge", Junge: "Mann", Hund: "Ball" },
  ...{ Frau: "Katze", Kinder: "Hunde" },
};

/** All of the page. @type {{ again(): unknown, draw(): unknown, host?: Host }[]} */
const panels = [];
/** @type {Followed | null} */
let followed = null;

/** What the model computes of a sentence, with the names of its tokens. @param {Followed} of */
export async function look(of) {
  const { engine, sentence, switches } = of;
  const { tokenizer, config } = engine;
  const name = (/** @type {number[]} */ ids) =>
    ids.map((id) => isolated(tokenizer.spell(tokenizer.pieces[id])));
  /** @type {Computed} */
  const facts = await (of.facts ??= engine.ask("facts", { sentence, switches }));
  const source = name(facts.src);
  const tokens = facts.src.map((id) => tokenizer.pieces[id]);
  const english = glossOf(sentence, tokens);
  return {
    ...facts,
    ...{ config, switches, name, source },
    // with their English, if the sentence has some
    german: source.map((token, t) => glossed(token, english[t])),
    near: facts.near.map((rows) =>
      rows.map(({ id, cosine }) => {
        const [token] = name([id]);
        return { id, cosine, name: english.some(Boolean) ? glossed(token) : token };
      }),
    ),
    written: name(facts.ids.slice(0, -1)),
    predicted: name(facts.ids.slice(1)),
    ask: (/** @type {string} */ what, /** @type {object} */ asked) =>
      engine.ask(what, { sentence, switches, ...asked }),
  };
}

const numbers = (/** @type {number} */ length) => Array.from({ length }, (_, i) => `${i + 1}`);

/** The options of each choice. @param {Facts} f @returns {Record<string, string[]>} */
function optionsOf({ config, german, predicted }) {
  const steps = predicted.map((name, t) => `${t + 1}: ${name}`);
  return {
    layer: numbers(config.N),
    head: numbers(config.h),
    ...{ token: german, key: german },
    step: steps,
    differing: [say("the first that differs"), ...steps],
    // in the order of panels/kinds.js
    kind: [say("cross-attention"), say("decoder self-attention"), say("encoder self-attention")],
    whose: [BREAKS, say("the sentence that you follow")],
  };
}

/** Places of the options at first, where it isn't 0.
 *  @param {Facts} f @param {Partial<Chosen>} chosen so far @param {string} panel
 *  @returns {Record<string, number>} */
function startOf({ config, german, predicted, layers }, { layer = 0, head = 0, token = 0 }, panel) {
  return {
    // the last but one, of which text and walk speak
    layer: panel === "cross" ? Math.max(0, config.N - 2) : 0,
    head: Math.min(1, config.h - 1),
    // “auf”, of which the text speaks; of a short sentence no mark at its end
    token: Math.max(0, Math.min(3, german.length - 3)),
    key: largest(layers[layer].weights[head][token], 1)[0],
    step: Math.min(3, predicted.length - 1),
  };
}

/** One panel: its elements, what is chosen in it, and whether it shows what is followed. */
class Panel {
  turn = 0; // of what was asked for last
  isSeen = false;
  whose = el("span", { class: "panel-whose" });
  body = el("div", { class: "panel-body", ariaBusy: "true" }); // until it shows what is followed

  constructor(/** @type {Host} */ host, /** @type {string} */ name) {
    const [title, choices, draw] = PANELS[name];
    this.host = host;
    this.chosen = host.chosen ??= {};
    this.name = name;
    this.drawBody = draw;
    this.controls = choices.map((choice) => ({ choice, control: this.control(title, choice) }));
    const labels = this.controls.map(({ choice, control }) =>
      el("label", {}, `${CHOICES[choice]} `, control),
    );
    host.append(
      el(
        "figure",
        { class: "sentence-panel", "data-panel": name },
        el("figcaption", {}, title, " ", this.whose),
        el("p", { class: "panel-choices" }, ...labels),
        this.body,
      ),
    );
    // what nobody sees is not computed
    watch(
      [this.body],
      (isNear) => {
        this.isSeen = isNear;
        if (isNear && this.body.ariaBusy === "true") this.show();
      },
      "300px",
    );
  }

  control(/** @type {string} */ title, /** @type {Choice} */ choice) {
    const control =
      choice === "other" ? el("input", { type: "text", size: 36, dir: "auto" }) : el("select");
    control.setAttribute("aria-label", `${title}: ${CHOICES[choice]}`);
    control.addEventListener(choice === "other" ? "change" : "input", () =>
      this.choose({ [choice]: control.value }),
    );
    return control;
  }

  /** Panels of one place have one layer and one head. @param {object} changes */
  choose(changes) {
    for (const [choice, value] of Object.entries(changes)) this.chosen[choice] = `${value}`;
    for (const panel of panels) if (panel.host === this.host) panel.again();
  }

  again() {
    this.body.ariaBusy = "true";
    if (this.isSeen) this.show();
  }

  draw() {
    return this.body.ariaBusy === "false" || this.show();
  }

  show() {
    return this.compute().catch(({ message }) => this.body.replaceChildren(el("p", {}, message)));
  }

  async compute() {
    this.turn += 1;
    const { turn } = this;
    if (!followed) return;
    const f = await look(followed);
    const chosen = /** @type {Chosen} */ ({});
    for (const { choice, control } of this.controls)
      Object.assign(chosen, { [choice]: this.value(choice, control, f, chosen) });
    const drawn = await this.drawBody(f, chosen, (changes) => this.choose(changes));
    if (turn !== this.turn) return; // something else has been asked for meanwhile
    this.tellWhose(chosen.whose === 0 ? BREAKS : f.sentence);
    this.body.replaceChildren(...paragraphs(drawn));
    this.body.ariaBusy = "false";
  }

  tellWhose(/** @type {string} */ text) {
    const isLong = text.length > LONGEST_TITLE && !gloss(text).length;
    const words = isLong ? [`${text.slice(0, LONGEST_TITLE - 2)}…`] : interlinear(text);
    const sentence = el("span", {}, ...words);
    this.whose.replaceChildren(...told("of “{sentence}”", { sentence }));
  }

  /** What is chosen of one kind, for this sentence.
   *  @param {Choice} choice @param {HTMLInputElement | HTMLSelectElement} control
   *  @param {Facts} f @param {Chosen} chosen so far */
  value(choice, control, f, chosen) {
    if (choice === "other") return this.otherSentence(f, control);
    const first = `${startOf(f, chosen, this.name)[choice] ?? 0}`;
    // another sentence has another token worth a look, and another token another key
    const last = !["token", "key"].includes(choice) && control.value;
    const before = this.chosen[choice] ?? (last || first);
    const options = optionsOf(f)[choice];
    control.replaceChildren(...options.map((text, value) => el("option", { value }, text)));
    control.value = before;
    control.value ||= first; // where there is no such option any more
    return Number(control.value);
  }

  /** The followed sentence with one word changed, until the reader writes another one.
   *  @param {Facts} f @param {HTMLInputElement | HTMLSelectElement} control */
  otherSentence({ sentence }, control) {
    if (this.chosen.follows !== sentence) {
      this.chosen.follows = sentence;
      const words = sentence.split(/(\p{L}+)/u);
      const place = words.findIndex((word) => Object.hasOwn(SWAPS, word));
      if (place >= 0) words[place] = SWAPS[words[place]];
      control.value = words.join("");
    }
    return control.value === sentence ? "" : control.value;
  }
}

/** Put a panel into an element. @param {Host} host @param {string} name */
export const add = (host, name) => void panels.push(new Panel(host, name));

/** @param {Engine} engine @param {string} sentence @param {Switches} [switches] */
export function follow(engine, sentence, switches) {
  if (!sentence.trim()) return;
  followed = { engine, sentence, switches };
  for (const panel of panels) panel.again();
}

/** Another view of the sentence that is followed: `again` is called when it changes.
 *  @param {() => unknown} again */
export const alsoFollow = (again) => panels.push({ again, draw: again });
/** What the model computes of it, as `look` tells it; null before there is one. */
export const facts = async () => followed && look(followed);
export const drawn = () => Promise.all(panels.map((panel) => panel.draw()));
globalThis.addEventListener?.("beforeprint", drawn); // on paper, all of them

export const names = Object.keys(PANELS);
