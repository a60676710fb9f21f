// The thin bar with the page's sentence, its translation, and the switches of the model, that
// stays within reach.

import { switchBoxes } from "../views/switches.js";
import * as Trust from "../views/trust.js";
import { button, el } from "./dom.js";
import { isolated, say } from "./language.js";
import { recall, remember } from "./memory.js";

const NEAR_PANEL = "800px";

export class SentenceBar {
  field = el("input", {
    type: "text",
    id: "your-words",
    dir: "auto",
    maxLength: 2000,
    ariaLabel: say("Your German sentence"),
    placeholder: say("a German sentence"),
    spellcheck: false,
    required: true,
    pattern: ".*\\S.*",
  });
  result = el("output");
  sure = el("small");
  folding = button("▾", () => this.fold(!this.form.classList.contains("folded")), {
    ariaLabel: say("Fold this bar away"),
  });
  form = el("form", { id: "your-sentence" });
  /** Panels; the first that comes near has the bar shown, and then it stays. */
  panels = new IntersectionObserver(
    (entries) => entries.some(({ isIntersecting }) => isIntersecting) && this.appear(),
    { rootMargin: NEAR_PANEL },
  );

  /** Put it into the page; what is typed or switched there is followed by `page`.
   *  @param {Config} config @param {typeof import("./sentence.js").yourSentence} page */
  start(config, page) {
    const { form, field, folding } = this;
    this.boxes = switchBoxes(config, (switches) => page.follow(page.sentence, { switches }));
    const name = el("label", { htmlFor: "your-words" }, say("Your sentence"));
    const send = el("button", {}, say("Follow"));
    const model = el("details", {}, el("summary", {}, say("the model")), this.boxes.host);
    model.open = matchMedia("(min-width: 30rem)").matches; // a phone has no room
    form.append(name, field, send, folding, this.result, this.sure, model);
    document.body.append(form);
    this.fold(recall("sentenceFolded", false));
    field.addEventListener("input", () => field.setCustomValidity(""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      page.follow(field.value);
    });
  }

  fold(/** @type {boolean} */ isFolded) {
    this.form.classList.toggle("folded", isFolded);
    this.folding.textContent = isFolded ? say("Your sentence ▴") : "▾";
    this.folding.ariaExpanded = `${!isFolded}`;
    this.place();
    remember("sentenceFolded", isFolded);
  }

  appear() {
    this.panels.disconnect();
    this.form.classList.add("shown");
    this.place();
  }

  place() {
    const { classList } = this.form;
    const takesRoom = classList.contains("shown") && !classList.contains("folded");
    document.body.classList.toggle("with-sentence", takesRoom);
  }

  /** Say why a sentence isn't followed; whether there is a reason. @param {string} reason */
  refuse(reason) {
    this.field.setCustomValidity(reason);
    if (reason) this.field.reportValidity();
    return Boolean(reason);
  }

  fill(/** @type {string} */ sentence, /** @type {Switches} */ switches) {
    this.field.value = sentence;
    this.boxes?.show(switches);
  }

  tell(/** @type {string} */ text) {
    this.result.textContent = text;
    this.sure.textContent = ""; // which was of another translation
  }

  /** The result, and what the whole model made of it if that is another one.
   *  @param {string} sentence @param {Result} result @param {Result | null} whole
   *  @param {Engine} engine @param {string} [language] */
  show(sentence, { translation, steps }, whole, { tokenizer }, language) {
    const words = whole ? Trust.marked(translation, whole.translation) : [isolated(translation)];
    this.result.replaceChildren("→ ", ...words);
    const doubts = Trust.doubts(sentence, tokenizer, language);
    const before = whole ? [say("Before: {translation}", { translation: whole.translation })] : [];
    this.sure.textContent = [Trust.verdict(steps), ...before, ...doubts].join(" ");
    this.sure.classList.toggle("warning", Trust.guessing(steps) || doubts.length > 0);
  }
}
