// One sentence for the whole page, and what is switched off in the model that translates it: the
// live figures, the panels behind the sections, and the bar follow it.

import { LONGEST } from "../model/decoding.js";
import * as Panels from "../views/panels.js";
import { asBuilt, same } from "../views/switches.js";
import { liveContent } from "./engine.js";
import { say } from "./language.js";
import { SentenceBar } from "./sentence_bar.js";

// heading -> panels at the end of its section
const PLACES = {
  embeddings: ["vectors"],
  "positions-section-3-5": ["positions"],
  "multi-head-attention-section-3-2-2": ["heads"],
  "residuals-and-normalisation-section-3-1": ["residual"],
  "position-wise-feed-forward-networks-section-3-3": ["neurons"],
  masks: ["masks"],
  "layers-of-three-sublayers": ["cross"],
  "a-vector-becomes-a-word-section-3-4": ["logits"],
  "beam-search-section-6-1": ["beam"],
  sampling: ["temperature"],
  "watching-and-intervening": ["lens", "removed", "patch"],
};
// the layer and the head that the text speaks of, from 0
const FIRST = { "multi-head-attention-section-3-2-2": { layer: 3, head: 3 } };
// what the text calls, which the page can do: translate("…", positions=False)
const CALL = /^translate\("([^"]+)"(?:, (positions|scaling)=False)?\)$/;

/** The last element of the section that begins with this one. */
export function endOf(section) {
  let end = section;
  while (
    end.nextElementSibling &&
    !end.nextElementSibling.querySelector(":scope > :is(h1, h2, h3)")
  )
    end = end.nextElementSibling;
  return end;
}

/** What other views may do with it; there from the start. */
export let yourSentence;

class SentenceOfThePage {
  constructor(bar) {
    this.bar = bar;
    this.figures = []; // the live figures that are ready
    this.sentence = null;
    this.switches = asBuilt();
    this.kept = stored(); // the reader's, until the tab is closed
  }

  current() {
    return this.sentence;
  }

  /** Have the bar shown while an element is near. */
  beside(element) {
    this.bar.panels.observe(element);
  }

  join(figure) {
    this.figures.push(figure);
    const sentence = this.sentence || this.kept;
    if (sentence) figure.ask(sentence, this.switches);
  }

  /** With the page's own sentence, if there is no reader's that can be followed. */
  async begin() {
    if (this.sentence === null && this.kept) await this.follow(this.kept);
    if (this.sentence === null) await this.follow((await liveContent()).sentence, { keep: false });
  }

  /** Have the whole page follow a sentence; the figure that it comes `from` has it already. */
  async follow(text, { switches = this.switches, from = null, keep = true } = {}) {
    const sentence = text.trim();
    if (!sentence || (sentence === this.sentence && same(switches, this.switches))) return;
    const content = await liveContent();
    const count = content.engine.source(sentence).length;
    const refusal =
      count > LONGEST
        ? say("it has {count} tokens, and here at most {most} are read", { count, most: LONGEST })
        : "";
    if (this.bar.refuse(refusal)) return;
    Object.assign(this, { sentence, switches });
    this.bar.fill(sentence, switches);
    if (keep) store(sentence);
    for (const figure of this.figures) if (figure !== from) figure.ask(sentence, switches);
    Panels.follow(content.engine, sentence, switches);
    await this.translate(content);
  }

  // Into the bar, beside what the model as it was built makes of it.
  async translate({ engine, language }) {
    const { sentence, switches } = this;
    const isWhole = same(switches, asBuilt());
    // greedily where the text's `translate` is tried, which has no beam
    const search = isWhole ? "beam" : "greedy";
    this.bar.wait();
    try {
      const result = await engine.ask("translate", { sentence, search, switches });
      const whole = isWhole ? null : await engine.ask("translate", { sentence, search });
      if (sentence === this.sentence && switches === this.switches)
        this.bar.show(sentence, result, whole, engine, language);
    } catch (error) {
      this.bar.fail(error.message);
    }
  }
}

function stored() {
  try {
    return sessionStorage.annotatedSentence?.trim() ?? "";
  } catch {
    return ""; // a page that may not remember
  }
}

function store(sentence) {
  try {
    sessionStorage.annotatedSentence = sentence;
  } catch {
    /* not kept */
  }
}

export function startSentence() {
  const bar = new SentenceBar();
  yourSentence = new SentenceOfThePage(bar);
  if (!document.querySelector(".explorer")) return;
  const hosts = Object.keys(PLACES).flatMap(addPanels);
  liveContent().then(({ engine }) => {
    if (engine) bar.start(engine.config, yourSentence);
  });
  hosts.forEach((host) => bar.panels.observe(host));
  document.querySelectorAll(".explorer").forEach((place) => bar.live.observe(place));
  // panels need the model even where no live figure has come near
  const approach = new IntersectionObserver(
    (entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      approach.disconnect();
      yourSentence.begin();
    },
    { rootMargin: "600px" },
  );
  hosts.forEach((host) => approach.observe(host));
  lightSymbols();
  document.querySelectorAll("main section.prose code").forEach(makeCall);
}

function addPanels(heading) {
  const section = document.getElementById(heading)?.closest("section");
  if (!section) return [];
  const host = Object.assign(document.createElement("div"), { begins: section });
  endOf(section).after(host); // behind what the section shows of ours
  for (const name of PLACES[heading]) Panels.add(host, name, FIRST[heading]);
  return [host];
}

// A call in the text that the page can do is a button.
function makeCall(code) {
  const [, sentence, name] = code.textContent.match(CALL) ?? [];
  if (!sentence || code.closest("button, a, pre")) return;
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "call", title: say("Do it in this page") });
  code.replaceWith(button);
  button.append(code);
  button.addEventListener("click", () => {
    const switches = asBuilt();
    if (name) switches[name] = false;
    yourSentence.bar.fold(false);
    yourSentence.follow(sentence, { switches });
  });
  yourSentence.beside(button);
}

// A symbol in a panel lights up in the formulas of its section.
function lightSymbols() {
  for (const name of ["pointerover", "pointerout", "focusin", "focusout"])
    document.addEventListener(name, ({ target }) => {
      const symbol = target.closest?.("[data-symbol]");
      if (symbol) light(symbol, name === "pointerover" || name === "focusin");
    });
}

function light(symbol, isLit) {
  const host = symbol.closest(".sentence-panel").parentElement;
  let part = host.begins;
  while (part && part !== host) {
    for (const letter of part.querySelectorAll(".katex-html .mord"))
      if (letter.textContent && symbol.dataset.symbol.includes(letter.textContent))
        letter.classList.toggle("panel-lit", isLit); // one letter
    part = part.contains(host) ? null : part.nextElementSibling;
  }
}
