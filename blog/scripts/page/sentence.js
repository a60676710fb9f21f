// One sentence for the whole page, and what is switched off in the model that translates it: the
// live figures, the panels behind the sections, and the bar follow it.

import * as Panels from "../views/panels.js";
import { asBuilt, same } from "../views/switches.js";
import { refusal } from "../views/trust.js";
import { all, button, el, onceNear, watch } from "./dom.js";
import { liveContent } from "./engine.js";
import { say } from "./language.js";
import { recall, remember } from "./memory.js";
import { SentenceBar } from "./sentence_bar.js";

/** Heading -> panels at the end of its section. @type {Record<string, string[]>} */
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
  "watching-and-intervening": ["lens", "removed", "patch"],
};
const PICTURED = ["heads", "neurons", "cross"]; // of the text's sentence, in charts
// what the text calls, which the page can do: translate("…", positions=False)
const CALL = /^translate\("([^"]+)"(?:, (positions|scaling)=False)?\)$/;

/** The last element of the section that begins with this one. @param {Element} section */
export function endOf(section) {
  let end = section;
  for (let next = end.nextElementSibling; next; next = next.nextElementSibling) {
    if (next.querySelector(":scope > :is(h1, h2, h3)")) break;
    end = next;
  }
  return end;
}

class SentenceOfThePage {
  bar = new SentenceBar();
  /** The live figures that are ready. @type {Figure[]} */
  figures = [];
  sentence = "";
  switches = asBuilt();
  stored = recall("sentence", "", "sessionStorage"); // the reader's, until the tab is closed

  join(/** @type {Figure} */ figure) {
    this.figures.push(figure);
    const sentence = this.sentence || this.stored;
    if (sentence) figure.ask(sentence, this.switches);
  }

  /** With the page's own sentence, if there is no reader's that can be followed. */
  async begin() {
    if (!this.sentence && this.stored) await this.follow(this.stored);
    if (!this.sentence) await this.follow((await liveContent()).sentence, { keep: false });
  }

  /** Have the whole page follow a sentence.
   *  @param {string} text
   *  @param {{ switches?: Switches, from?: Figure, keep?: boolean }} [options] the figure that it
   *    comes `from` has it already */
  async follow(text, { switches = this.switches, from, keep = true } = {}) {
    const sentence = text.trim();
    if (!sentence || (sentence === this.sentence && same(switches, this.switches))) return;
    const { engine, language, sentence: first } = await liveContent();
    if (!engine) return;
    if (this.bar.refuse(refusal(sentence, engine))) return;
    Object.assign(this, { sentence, switches });
    this.bar.fill(sentence, switches);
    document.body.classList.toggle("other-sentence", sentence !== first);
    if (keep) remember("sentence", sentence, "sessionStorage");
    for (const figure of this.figures) if (figure !== from) figure.ask(sentence, switches);
    Panels.follow(engine, sentence, switches);
    await this.translate(engine, language);
  }

  /** Into the bar, beside what the model as it was built makes of it.
   *  @param {Engine} engine @param {string} [language] */
  async translate(engine, language) {
    const { sentence, switches } = this;
    const isWhole = same(switches, asBuilt());
    // greedily where the text's `translate` is tried, which has no beam
    const search = isWhole ? "beam" : "greedy";
    this.bar.tell("…");
    try {
      const result = await engine.ask("translate", { sentence, search, switches });
      const whole = isWhole ? null : await engine.ask("translate", { sentence, search });
      if (sentence === this.sentence && switches === this.switches)
        this.bar.show(sentence, result, whole, engine, language);
    } catch (error) {
      this.bar.tell(/** @type {Error} */ (error).message);
    }
  }
}

/** What other views may do with it. */
export const yourSentence = new SentenceOfThePage();

export function startSentence() {
  const { bar } = yourSentence;
  const figures = all(".explorer");
  if (!figures.length) return;
  const hosts = Object.keys(PLACES).flatMap(addPanels);
  liveContent().then(({ engine }) => {
    if (engine) bar.start(engine.config, yourSentence);
  });
  // panels need the model even where no live figure has come near
  const begin = () => {
    approach.disconnect();
    yourSentence.begin();
  };
  const approach = onceNear(hosts, begin, "600px");
  for (const host of hosts) bar.panels.observe(host);
  for (const code of all("main section.prose code")) makeCall(code);
}

function addPanels(/** @type {string} */ heading) {
  const section = document.getElementById(heading)?.closest("section");
  if (!section) return [];
  const host = el("div");
  endOf(section).after(host); // behind what the section shows of ours
  for (const name of PLACES[heading]) Panels.add(host, name);
  if (!PICTURED.some((name) => PLACES[heading].includes(name))) return [host];
  const text = new Range();
  text.setStartBefore(section);
  text.setEndBefore(host);
  for (const chart of all(".chart").filter((figure) => text.intersectsNode(figure)))
    chart.dataset.note = say("This picture shows the text’s sentence; yours is below it.");
  return [host];
}

/** A call in the text that the page can do is a button. Once it is out of sight, the page follows
 *  again what it followed before. @param {HTMLElement} code */
function makeCall(code) {
  const [, sentence, name] = code.textContent?.match(CALL) ?? [];
  if (!sentence || code.closest("button, a, pre")) return;
  const switches = { ...asBuilt(), ...(name && { [name]: false }) };
  /** @type {{ sentence: string, switches: Switches } | null} */
  let before = null;
  const properties = { className: "call", title: say("Do it in this page") };
  const call = button("", onclick, properties);
  async function onclick() {
    await yourSentence.begin();
    before ??= { sentence: yourSentence.sentence, switches: yourSentence.switches };
    yourSentence.bar.fold(false);
    yourSentence.follow(sentence, { switches, keep: false });
  }
  code.replaceWith(call);
  call.append(code);
  watch([call], (isSeen) => {
    if (isSeen || !before) return;
    if (yourSentence.sentence === sentence)
      yourSentence.follow(before.sentence, { switches: before.switches, keep: false });
    before = null;
  });
  yourSentence.bar.panels.observe(call);
}
