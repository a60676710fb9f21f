// Figure 1 in the margin. The boxes of the section that is being read are lit, and below the figure
// stands what one of them makes of the sentence that the page follows. A click on a box leads to
// its section. Where there is no margin, a button in the page's bar opens it.

import { largest, softmax } from "../model/tensors.js";
import { say } from "../page/language.js";
import { yourSentence } from "../page/sentence.js";
import * as Panels from "./panels.js";
import { bars, code, el, numbers, row, size } from "./panels.js";

const BARS = 4;
const WORD = /^[\p{L}\p{N}]{2,}$/u; // neither a piece with a dot nor a mark

// Sections that no box leads to, or that more of them belong to: which, and whose numbers. None
// where the text is about to ask for them.
const LIT = {
  "tokens-and-ids": [/^inputs|^outputs/, "inputs"],
  "attention-section-3-2": [/attention/, null],
  "multi-head-attention-section-3-2-2": [/attention/, "encoder attention"],
  "the-encoder-section-3-1": [/^encoder|memory/, "memory"],
  "the-decoder-writes-sections-3-1-and-3-2-3": [/^decoder|cross/, "decoder attention"],
  "the-model-assembled": [/./, "softmax"],
  "the-loss": [/softmax|probabilities/, "softmax"],
  "keeping-keys-and-values": [/decoder attention|cross/, "decoder attention"],
  "beam-search-section-6-1": [/probabilities/, "softmax"],
  "what-the-heads-of-the-encoder-do-figures-3-to-5": [/encoder attention/, "encoder attention"],
  "does-attention-find-the-right-word": [/cross/, "cross-attention"],
};

// Of each box: a title, and rows of what it makes of the sentence. `f` is what the model computes,
// `token` the source token and `step` the written word that are followed.
const NUMBERS = {
  inputs: ({ f }) => [
    say("Text becomes tokens"),
    row(say("tokens"), code(f.source.join(" | "))),
    row(say("ids"), code(f.src.join(" "))),
  ],
  "source embedding": ({ f, token }) => [
    say("A token becomes a vector"),
    row(f.source[token], numbers(f.embedded[token])),
  ],
  "source position": ({ f, token }) => [
    say("The position is added"),
    row(say("position {position}", { position: token }), numbers(f.positions[token])),
    row(f.source[token], numbers(f.input[token])),
  ],
  "encoder attention": ({ f, token, head }) => [
    say("“{token}” looks at", { token: f.source[token] }),
    strongest(f.source, f.layers[0].weights[head][token]),
    say("layer 1, head {head}", { head: head + 1 }),
  ],
  "encoder norm": ({ f, token }) => [
    say("The result is added"),
    row(`${f.source[token]}, ${say("before")}`, numbers(f.input[token])),
    row(`${f.source[token]}, ${say("after")}`, numbers(f.layers[0].between[token])),
    row(
      say("root mean square"),
      code([f.input, f.layers[0].between].map((x) => size(x[token]).toFixed(2)).join(" → ")),
    ),
  ],
  "encoder feed-forward": ({ f, token }) => {
    const inner = f.layers[0].inner[token];
    return [
      say("Each position is worked on alone"),
      row(`${f.source[token]}, ${say("its hidden units")}`, numbers(inner)),
      row(say("above zero"), code(`${inner.filter((unit) => unit > 0).length} / ${inner.length}`)),
    ];
  },
  memory: ({ f, token }) => [
    say("After all layers: the memory"),
    row(say("shape"), code(`${f.memory.length} × ${f.memory[0].length}`)),
    row(f.source[token], numbers(f.memory[token])),
  ],
  "decoder attention": ({ f, step }) => [
    say("“{token}” looks at", { token: f.written[step] }),
    strongest(f.written.slice(0, step + 1), f.steps[step].decoder.at(-1)[0][0]),
    say("layer {layer}, head {head}", { layer: f.config.N, head: 1 }),
  ],
  "cross-attention": ({ f, step }) => {
    const [heads] = f.steps[step].cross.at(-2) ?? f.steps[step].cross[0];
    const mean = f.source.map(
      (_, key) => heads.reduce((sum, weights) => sum + weights[key], 0) / heads.length,
    );
    return [
      say("To write “{token}”, it looks at", { token: f.predicted[step] }),
      strongest(f.source, mean),
      say("layer {layer}, mean of heads", { layer: Math.max(1, f.config.N - 1) }),
    ];
  },
  outputs: ({ f }) => [say("What it has written, it reads"), code(f.written.join(" | "))],
  softmax: ({ f, step }) => {
    const p = softmax(f.steps[step].logits);
    return [
      say("After “{written}”", { written: f.written.slice(1, step + 1).join(" ") }),
      bars(largest(p, BARS).map((id) => [f.name([id])[0], p[id], id === f.ids[step + 1]])),
    ];
  },
};
NUMBERS.probabilities = NUMBERS.linear = NUMBERS.softmax;

const strongest = (tokens, weights) =>
  bars(largest(weights, BARS).map((key) => [tokens[key], weights[key]]));

export function startPlace() {
  const aside = document.getElementById("place"),
    figure = document.querySelector(".arch-fig");
  if (!aside || !figure) return;
  const picture = small(figure);
  const lines = el("div", { class: "place-numbers" });
  aside.append(picture, lines);
  const boxes = [...picture.querySelectorAll("[data-part]")];
  const sections = linksByHeading();
  let box = null,
    turn = 0;

  const isSeen = () => aside.getClientRects().length > 0;
  async function tell() {
    const mine = (turn += 1);
    if (!isSeen()) return;
    if (box) await yourSentence.begin();
    const f = await Panels.facts();
    if (!f || mine !== turn) return;
    fillIn(picture, f);
    const [title, ...rows] = NUMBERS[box]?.(followed(f)) ?? [];
    lines.replaceChildren(...(title ? [el("strong", {}, title), ...rows.map(orSmall)] : []));
  }
  function light() {
    const link = document.querySelector("#toc a[aria-current]");
    const [pattern, name] = placeOf(sections.get(link) ?? [], boxes);
    for (const part of boxes) part.classList.toggle("lit", pattern.test(part.dataset.part));
    box = name;
    tell().catch((error) => lines.replaceChildren(error.message));
  }
  Panels.alsoFollow(tell);
  // page/text.js marks there what is being read
  const toc = document.getElementById("toc");
  new MutationObserver(light).observe(toc, { subtree: true, attributeFilter: ["aria-current"] });
  light();
  openFromTheBar(aside, tell);
}

const orSmall = (line) => (typeof line === "string" ? el("small", {}, line) : line);

/** A copy of the figure, without what is too small to be read here. */
function small(figure) {
  const picture = figure.cloneNode(true);
  picture.querySelectorAll("title, desc, style, defs, .arch-key").forEach((node) => node.remove());
  for (const name of ["aria-labelledby", "width", "height", "style"]) picture.removeAttribute(name);
  picture.setAttribute("class", "place-figure");
  picture.setAttribute("viewBox", "0 6 540 900");
  picture.setAttribute("aria-hidden", "true"); // the contents lead to the same sections
  picture.querySelectorAll("a").forEach((link) => link.setAttribute("tabindex", "-1"));
  for (const letter of picture.querySelectorAll("tspan.arch-i"))
    letter.dataset.letter = letter.textContent;
  return picture;
}

/** The sentence's sizes in the place of the paper's letters. */
function fillIn(picture, { src, predicted, config }) {
  const sizes = { B: 1, S: src.length, T: predicted.length, N: config.N, d: config.d_model };
  for (const letter of picture.querySelectorAll("[data-letter]"))
    letter.textContent = sizes[letter.dataset.letter] ?? letter.dataset.letter;
  picture.querySelector(".arch-sub").textContent = ""; // of d_model
}

/** By link of the contents: the ids of its heading and, for a section of a section, of that one. */
function linksByHeading() {
  const ids = new Map();
  let section = "";
  for (const link of document.querySelectorAll("#toc a")) {
    const id = decodeURIComponent(link.hash.slice(1));
    if (!link.closest(".level-3")) section = id;
    ids.set(link, [id, section]);
  }
  return ids;
}

/** Which boxes belong to the first of some headings that has any, and whose numbers are shown. */
function placeOf(ids, boxes) {
  for (const id of ids) {
    if (LIT[id]) return LIT[id];
    const names = boxes
      .filter((part) => part.getAttribute("href") === `#${id}`)
      .map((part) => part.dataset.part);
    if (names.length) return [new RegExp(`^(${names.join("|")})$`), names[0]];
  }
  return [/^$/, null];
}

/** What is followed: the word that looks hardest at another one, the word of which the model is
 *  least sure, from the third on, and the head that shows the first. */
function followed(f) {
  const head = Math.min(1, f.config.h - 1);
  const others = f.layers[0].weights[head].map((weights, query) =>
    WORD.test(f.source[query])
      ? Math.max(0, ...weights.filter((_, key) => key !== query && WORD.test(f.source[key])))
      : -1,
  );
  const sure = f.steps.map(({ logits }, step) =>
    step > 1 && WORD.test(f.predicted[step]) ? Math.max(...softmax(logits)) : 2,
  );
  return {
    f,
    head,
    token: others.indexOf(Math.max(...others)),
    step: sure.indexOf(Math.min(...sure)),
  };
}

function openFromTheBar(aside, tell) {
  const button = document.getElementById("where");
  const show = (isOpen) => {
    aside.classList.toggle("open", isOpen);
    button.setAttribute("aria-expanded", isOpen);
    if (isOpen) tell();
  };
  button.addEventListener("click", () => show(!aside.classList.contains("open")));
  document.addEventListener("click", ({ target }) => {
    if (!target.closest("#place, #where") || target.closest("#place a")) show(false);
  });
  addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !aside.classList.contains("open")) return;
    show(false);
    button.focus();
  });
}
