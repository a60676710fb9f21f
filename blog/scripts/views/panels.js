// Panels that show what the model computes for one sentence: `add(element, name)` puts the panel
// `name` into an element, and `follow(engine, sentence)` has all panels show another sentence.
// model/trace.js computes it.

import { largest } from "../model/tensors.js";
import { gloss, interlinear } from "../page/gloss.js";
import { isolated, say, told } from "../page/language.js";
import { el } from "./dom.js";
import { BREAKS, PANELS } from "./panels/kinds.js";

export { el, percent } from "./dom.js";
export { bars, code, numbers, row, size } from "./panels/parts.js";

const LONGEST_TITLE = 90; // letters of a sentence in a title

const KINDS = {
  encoder: say("encoder self-attention"),
  decoder: say("decoder self-attention"),
  cross: say("cross-attention"),
};
const CHOICES = {
  layer: say("layer"),
  head: say("head"),
  token: say("token"),
  key: say("looks at"),
  step: say("step"),
  kind: say("attention"),
  temperature: say("temperature"),
  whose: say("sentence"),
  other: say("second sentence"),
};
const SWAPS = {
  Frauen: "Kinder",
  Männer: "Frauen",
  Mann: "Junge",
  Junge: "Mann",
  Hund: "Ball",
  Frau: "Katze",
  Kinder: "Hunde",
};

const panels = []; // all of the page
// { engine, sentence, switches, facts }: what the model computes is asked for when a panel is seen
let followed = null;

export async function look(of) {
  const { engine, sentence, switches } = of,
    { tokenizer } = engine,
    name = (ids) => ids.map((id) => isolated(tokenizer.spell(tokenizer.pieces[id])));
  const f = await (of.facts ??= engine.ask("facts", { sentence, switches }));
  return {
    ...f,
    config: engine.config,
    switches,
    pieces: tokenizer.pieces,
    name,
    source: name(f.src),
    written: name(f.ids.slice(0, -1)),
    predicted: name(f.ids.slice(1)),
    ask: (what, asked) => engine.ask(what, { sentence, switches, ...asked }),
  };
}

// The choices of a panel with their names, for this sentence.
function choices(what, f) {
  const { N, h } = f.config,
    count = (n) => Array.from({ length: n }, (_, i) => [i, `${i + 1}`]),
    tokens = f.source.map((name, t) => [t, name]);
  return {
    layer: count(N),
    head: count(h),
    token: tokens,
    key: tokens,
    step: f.predicted.map((name, t) => [t, `${t + 1}: ${name}`]),
    kind: Object.entries(KINDS).reverse(),
    whose: [
      ["breaks", BREAKS],
      ["own", say("the sentence that you follow")],
    ],
  }[what];
}

/** One panel: its elements, what is chosen in it, and whether it shows what is followed. */
class Panel {
  constructor(host, name) {
    const [title, choices, draw] = PANELS[name];
    Object.assign(this, { host, name, title, choices, drawBody: draw });
    this.turn = 0; // of what was asked for last
    this.isSeen = false;
    this.selects = Object.fromEntries(choices.map((choice) => [choice, this.control(choice)]));
    this.whose = el("span", { class: "panel-whose" });
    this.body = el("div", { class: "panel-body" });
    this.body.ariaBusy = "true"; // until it shows the sentence that is followed
    const labels = choices.map((choice) =>
      el("label", {}, `${CHOICES[choice]} `, this.selects[choice]),
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
    this.watch();
  }

  control(choice) {
    const controls = {
      temperature: () => el("input", { type: "range", min: 1, max: 30, value: 10 }), // in tenths
      other: () => el("input", { type: "text", size: 36, dir: "auto" }),
    };
    const control = controls[choice]?.() ?? el("select");
    control.setAttribute("aria-label", `${this.title}: ${CHOICES[choice]}`);
    control.addEventListener(choice === "other" ? "change" : "input", () =>
      this.choose({ [choice]: control.value }),
    );
    return control;
  }

  // What nobody sees is not computed.
  watch() {
    const seen = (entries) => {
      this.isSeen = entries.at(-1).isIntersecting;
      if (this.isSeen && this.body.ariaBusy === "true") this.show();
    };
    new IntersectionObserver(seen, { rootMargin: "300px" }).observe(this.body);
  }

  // Panels of one place have one layer and one head.
  choose(changes) {
    for (const [choice, value] of Object.entries(changes)) this.host.chosen[choice] = `${value}`;
    for (const panel of panels) if (panel.host === this.host) panel.again();
  }

  again() {
    this.body.ariaBusy = "true";
    if (this.isSeen) this.show();
  }

  draw() {
    return this.body.ariaBusy === "false" || this.show();
  }

  async show() {
    try {
      await this.compute();
    } catch (error) {
      if (error.name !== "AbortError") this.body.replaceChildren(el("p", {}, error.message));
    }
  }

  async compute() {
    this.turn += 1;
    const { turn } = this;
    if (!followed) return;
    const f = await look(followed);
    const chosen = {};
    for (const choice of this.choices) chosen[choice] = this.value(choice, f, chosen);
    const drawn = await this.drawBody(f, chosen, (changes) => this.choose(changes));
    if (turn !== this.turn) return; // something else has been asked for meanwhile
    this.tellWhose(this.name === "removed" && chosen.whose !== "own" ? BREAKS : f.sentence);
    this.body.replaceChildren(
      ...drawn.map((part) => (typeof part === "string" ? el("p", {}, part) : part)),
    );
    this.body.ariaBusy = "false";
  }

  tellWhose(text) {
    const isLong = text.length > LONGEST_TITLE && !gloss(text).length;
    const words = isLong ? [`${text.slice(0, LONGEST_TITLE - 2)}…`] : interlinear(text);
    const sentence = el("span", {}, ...words);
    this.whose.replaceChildren(...told("of “{sentence}”", { sentence }));
  }

  // What is chosen of one kind, for this sentence.
  value(choice, f, chosen) {
    const control = this.selects[choice];
    if (choice === "temperature") return Number(control.value);
    if (choice === "other") return this.otherSentence(f);
    const list = choices(choice, f);
    const start = this.start(choice, list, f, chosen);
    if (this.name === "patch" && choice === "step")
      list.unshift([-1, say("the first that differs")]);
    // another token's key is another one
    const last = choice !== "key" && control.value;
    const before = this.host.chosen[choice] ?? (last || `${start}`);
    control.replaceChildren(...list.map(([value, text]) => el("option", { value }, text)));
    control.value = list.some(([value]) => `${value}` === before) ? before : start;
    return ["kind", "whose"].includes(choice) ? control.value : Number(control.value);
  }

  start(choice, list, f, { layer, head, token }) {
    const last = list.length - 1;
    const starts = {
      token: () => Math.min(2, last),
      key: () => largest(f.layers[layer].weights[head][token], 1)[0],
      step: () => (this.name === "patch" ? -1 : Math.min(3, last)),
      layer: () => (this.name === "cross" ? last : 0),
      head: () => Math.min(1, last),
    };
    return starts[choice]?.() ?? list[0][0];
  }

  // The followed sentence with one word changed, until the reader writes another one.
  otherSentence({ sentence }) {
    const { chosen } = this.host;
    if (chosen.follows !== sentence) {
      chosen.follows = sentence;
      const words = sentence.split(/(\p{L}+)/u);
      const place = words.findIndex((word) => Object.hasOwn(SWAPS, word));
      if (place >= 0) words[place] = SWAPS[words[place]];
      this.selects.other.value = words.join("");
    }
    const { value } = this.selects.other;
    return value === sentence ? "" : value;
  }
}

/** Put a panel into an element; `first` has what the text beside it speaks of. */
export function add(host, name, first = {}) {
  host.chosen ??= {};
  for (const [choice, value] of Object.entries(first)) host.chosen[choice] ??= `${value}`;
  panels.push(new Panel(host, name));
}

export function follow(engine, sentence, switches) {
  if (!sentence.trim()) return;
  followed = { engine, sentence, switches };
  for (const panel of panels) panel.again();
}

/** Another view of the sentence that is followed: `again` is called when it changes. */
export const alsoFollow = (again) => panels.push({ again, draw: again });
/** What the model computes of it, as `look` tells it; null before there is one. */
export const facts = async () => followed && look(followed);
export const drawn = () => Promise.all(panels.map((panel) => panel.draw()));
globalThis.addEventListener?.("beforeprint", drawn); // on paper, all of them

export const names = Object.keys(PANELS);
