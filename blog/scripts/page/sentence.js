import { LONGEST } from "../model/decoding.js";
import * as Panels from "../views/panels.js";
import * as Trust from "../views/trust.js";
import { liveContent } from "./engine.js";
import { isolated, say } from "./language.js";

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

// One sentence for the whole page: the live figures, the panels behind the sections, and a thin bar
// that stays within reach.
/** What other views may do with it; there from the start. */
export let yourSentence;

export function startSentence() {
  const PLACES = {
    // heading -> panels at the end of its section
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
  const figures = []; // the live figures that are ready
  let sentence = null;

  /** Have the whole page follow a sentence; the live figure that it comes from has it already. */
  async function follow(text, from = null, keep = true) {
    text = text.trim();
    if (!text || text === sentence) return;
    const { engine, language } = await liveContent(),
      count = engine.source(text).length,
      most = LONGEST;
    field.setCustomValidity(
      count > most
        ? say("it has {count} tokens, and here at most {most} are read", { count, most })
        : "",
    );
    if (count > most) return void field.reportValidity();
    sentence = field.value = text;
    try {
      if (keep) sessionStorage.annotatedSentence = text;
    } catch {
      /* not kept */
    }
    for (const figure of figures) if (figure !== from) figure.ask(text);
    Panels.follow(engine, text);
    result.textContent = "…";
    try {
      const { translation, steps } = await engine.ask("translate", {
        sentence: text,
        search: "beam",
      });
      if (text !== sentence) return;
      const doubts = Trust.doubts(text, engine.tokenizer, language);
      result.textContent = `→ ${isolated(translation)}`;
      sure.textContent = [Trust.verdict(steps), ...doubts].join(" ");
      sure.classList.toggle("warning", Trust.guessing(steps) || doubts.length > 0);
    } catch (error) {
      result.textContent = error.message;
    }
  }
  let kept = ""; // the reader's, until the tab is closed
  try {
    kept = sessionStorage.annotatedSentence?.trim() ?? "";
  } catch {
    /* a page that may not remember */
  }
  const begin = async () => {
    // with the page's own, if there is no reader's that can be followed
    if (sentence === null && kept) await follow(kept);
    if (sentence === null) await follow((await liveContent()).sentence, null, false);
  };
  yourSentence = {
    follow,
    begin,
    current: () => sentence,
    beside: (part) => panels.observe(part),
    join: (figure) => {
      figures.push(figure);
      if (sentence || kept) figure.ask(sentence || kept);
    },
  };

  const first = document.querySelector(".explorer");
  if (!first) return;
  const hosts = Object.entries(PLACES).flatMap(([heading, names]) => {
    const section = document.getElementById(heading)?.closest("section");
    if (!section) return [];
    const host = Object.assign(document.createElement("div"), { begins: section });
    endOf(section).after(host); // behind what the section shows of ours
    for (const name of names) Panels.add(host, name, FIRST[heading]);
    return host;
  });

  // --- the bar ---

  const bar = document.createElement("form"),
    field = document.createElement("input"),
    fold = document.createElement("button");
  bar.id = "your-sentence";
  Object.assign(field, {
    type: "text",
    dir: "auto",
    maxLength: 2000,
    ariaLabel: say("Your German sentence"),
    spellcheck: false,
    required: true,
    pattern: ".*\\S.*",
  });
  Object.assign(fold, { type: "button", ariaLabel: say("Fold this bar away") });
  const send = Object.assign(document.createElement("button"), { textContent: say("Follow") });
  const name = Object.assign(document.createElement("label"), {
    textContent: say("Your sentence"),
  });
  const [result, sure] = ["output", "small"].map((tag) => document.createElement(tag));
  [field.id, name.htmlFor, field.placeholder] = [
    "your-words",
    "your-words",
    say("a German sentence"),
  ];
  bar.append(name, field, send, result, sure, fold);
  document.body.append(bar);
  const folded = (is) => {
    bar.classList.toggle("folded", is);
    document.body.classList.toggle("with-sentence", !is && bar.classList.contains("shown"));
    fold.textContent = is ? say("Your sentence ▴") : "▾";
    fold.setAttribute("aria-expanded", !is);
    try {
      localStorage.sentenceFolded = is ? 1 : "";
    } catch {
      /* not remembered */
    }
  };
  let before = "";
  try {
    before = localStorage.sentenceFolded;
  } catch {
    /* a page that may not remember */
  }
  folded(Boolean(before));
  fold.addEventListener("click", () => folded(!bar.classList.contains("folded")));
  field.addEventListener("input", () => field.setCustomValidity(""));
  bar.addEventListener("submit", (event) => {
    event.preventDefault();
    follow(field.value);
  });

  // shown between the two live figures, which have a field of their own, when a panel is near
  const near = new Set(),
    own = new Set();
  const watch = (set, margin) =>
    new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries)
          set[isIntersecting ? "add" : "delete"](target);
        bar.classList.toggle("shown", near.size > 0 && own.size === 0);
        document.body.classList.toggle(
          "with-sentence",
          bar.classList.contains("shown") && !bar.classList.contains("folded"),
        );
      },
      { rootMargin: margin },
    );
  const panels = watch(near, "800px"),
    live = watch(own, "0px");
  hosts.forEach((host) => panels.observe(host));
  document.querySelectorAll(".explorer").forEach((place) => live.observe(place));

  // panels need the model even where no live figure has come near
  const approach = new IntersectionObserver(
    (entries) => {
      if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
      approach.disconnect();
      begin();
    },
    { rootMargin: "600px" },
  );
  hosts.forEach((host) => approach.observe(host));

  // --- a symbol in a panel lights up in the formulas of its section ---

  for (const name of ["pointerover", "pointerout", "focusin", "focusout"])
    document.addEventListener(name, (event) => {
      const own = event.target.closest?.("[data-symbol]");
      if (!own) return;
      const host = own.closest(".sentence-panel").parentElement,
        lit = ["pointerover", "focusin"].includes(name);
      for (
        let part = host.begins;
        part && part !== host;
        part = part.contains(host) ? null : part.nextElementSibling
      )
        for (const symbol of part.querySelectorAll(".katex-html .mord"))
          if (symbol.textContent && own.dataset.symbol.includes(symbol.textContent))
            symbol.classList.toggle("panel-lit", lit); // one letter
    });
}
