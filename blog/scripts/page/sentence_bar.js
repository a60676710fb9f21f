// The thin bar with the page's sentence, its translation, and the switches of the model, that
// stays within reach.

import { switchBoxes } from "../views/switches.js";
import * as Trust from "../views/trust.js";
import { isolated, say } from "./language.js";

const NEAR_PANEL = "800px"; // in which the bar is shown

export class SentenceBar {
  constructor() {
    const element = (tag, properties = {}) =>
      Object.assign(document.createElement(tag), properties);
    this.form = element("form", { id: "your-sentence" });
    this.field = element("input", {
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
    this.name = element("label", { textContent: say("Your sentence"), htmlFor: "your-words" });
    this.send = element("button", { textContent: say("Follow") });
    this.result = element("output");
    this.sure = element("small");
    this.folding = element("button", { type: "button", ariaLabel: say("Fold this bar away") });
    this.near = new Set(); // panels
    this.figures = new Set(); // live ones in view, which have a field of their own
    this.panels = this.watch(this.near, NEAR_PANEL);
    this.live = this.watch(this.figures, "0px");
  }

  /** Put it into the page; what is typed or switched there is followed by `page`. */
  start(config, page) {
    const { form, field, name, send, result, sure, folding } = this;
    this.boxes = switchBoxes(config, (switches) => page.follow(page.sentence, { switches }));
    form.append(name, field, send, result, this.boxes.host, sure, folding);
    document.body.append(form);
    this.fold(remembersFold());
    folding.addEventListener("click", () => this.fold(!form.classList.contains("folded")));
    field.addEventListener("input", () => field.setCustomValidity(""));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      page.follow(field.value);
    });
    this.place();
  }

  fold(isFolded) {
    this.form.classList.toggle("folded", isFolded);
    this.folding.textContent = isFolded ? say("Your sentence ▴") : "▾";
    this.folding.setAttribute("aria-expanded", !isFolded);
    this.place();
    try {
      localStorage.sentenceFolded = isFolded ? 1 : "";
    } catch {
      /* not remembered */
    }
  }

  // Shown when a panel is near, and no live figure is in view.
  place() {
    const { classList } = this.form;
    classList.toggle("shown", this.near.size > 0 && this.figures.size === 0);
    const takesRoom = classList.contains("shown") && !classList.contains("folded");
    document.body.classList.toggle("with-sentence", takesRoom);
  }

  watch(elements, rootMargin) {
    const changed = (entries) => {
      for (const { isIntersecting, target } of entries)
        if (isIntersecting) elements.add(target);
        else elements.delete(target);
      this.place();
    };
    return new IntersectionObserver(changed, { rootMargin });
  }

  /** Say why a sentence isn't followed; whether there is a reason. */
  refuse(reason) {
    this.field.setCustomValidity(reason);
    if (reason) this.field.reportValidity();
    return Boolean(reason);
  }

  fill(sentence, switches) {
    this.field.value = sentence;
    this.boxes?.show(switches);
  }

  wait() {
    this.result.textContent = "…";
  }

  fail(message) {
    this.result.textContent = message;
  }

  /** The result, and what the whole model made of it if that is another one. */
  show(sentence, { translation, steps }, whole, { tokenizer }, language) {
    const words = whole ? Trust.marked(translation, whole.translation) : [isolated(translation)];
    this.result.replaceChildren("→ ", ...words);
    const doubts = Trust.doubts(sentence, tokenizer, language);
    const before = whole ? [say("Before: {translation}", { translation: whole.translation })] : [];
    this.sure.textContent = [...before, Trust.verdict(steps), ...doubts].join(" ");
    this.sure.classList.toggle("warning", Trust.guessing(steps) || doubts.length > 0);
  }
}

function remembersFold() {
  try {
    return Boolean(localStorage.sentenceFolded);
  } catch {
    return false; // a page that may not remember
  }
}
