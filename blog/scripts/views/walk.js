// The guided walk: ten stops from the text of one sentence to the text of its translation, with the
// live model's numbers.

import { largest, softmax } from "../model/tensors.js";
import { liveContent } from "../page/engine.js";
import * as Guesses from "../page/guesses.js";
import { say } from "../page/language.js";
import * as Panels from "./panels.js";
import { bars, code, el, numbers, row, size } from "./panels.js";
import { overThePage } from "../page/dialog.js";

export function startWalk() {
  const place = document.querySelector(".explorer"),
    figure = document.querySelector(".arch-fig");
  if (!place || !figure) return;

  const strongest = (tokens, weights, n = 5) =>
    tokens
      .map((token, i) => [token, weights[i]])
      .sort((a, b) => b[1] - a[1])
      .slice(0, n);
  // neither a piece with a dot nor a mark
  const isWord = (token) => /^[\p{L}\p{N}]{2,}$/u.test(token);

  // --- what the model computes on the way ---

  async function follow({ engine }, sentence) {
    const f = await Panels.look({ engine, sentence });
    const head = Math.min(1, f.config.h - 1),
      first = f.layers[0].weights[head],
      words = f.source.map(isWord); // of the first layer
    const others = first.map((weights, t) =>
      words[t] ? Math.max(0, ...weights.filter((_, k) => k !== t && words[k])) : -1,
    );
    // whom we follow: the word that looks hardest at another word,
    const word = others.indexOf(Math.max(...others));
    const open = f.predicted
      .slice(0, -1)
      .map((token, t) => (t > 1 && isWord(token) ? Math.max(...softmax(f.steps[t].logits)) : 2));
    // and the step, from the third on, at which it is least sure
    const step = open.length ? open.indexOf(Math.min(...open)) : 0;
    const p = softmax(f.steps[step].logits),
      likeliest = largest(p, 5);
    const heads = (f.steps[step].cross.at(-2) ?? f.steps[step].cross[0])[0],
      cross = f.source.map(
        (_, s) => heads.reduce((sum, weights) => sum + weights[s], 0) / heads.length,
      );
    return {
      ...f,
      head,
      word,
      step,
      p,
      likeliest,
      cross,
      own: first[word],
      back: f.steps[step].decoder.at(-1)[0][0],
      x: f.input,
      layer: f.layers[0],
    };
  }

  // Some names, the right one among them, in an order that doesn't tell: that of the alphabet.
  const among = (names, right, n = 4) =>
    [right, ...[...new Set(names)].filter((name) => name !== right).slice(0, n - 1)].sort();

  // --- the ten stops: the part of the figure, a title, the section that explains it, a question,
  // and what to show ---

  const STOPS = [
    [
      "inputs",
      say("Text becomes tokens"),
      "words-and-word-pieces-section-5-1",
      (f) => [
        say("Into how many tokens does the vocabulary cut this sentence, its end included?"),
        [f.src.length - 3, f.src.length, f.src.length + 4].map(String),
        String(f.src.length),
      ],
      (f) => [
        say(
          "The model reads numbers. Its vocabulary cuts the sentence into tokens, and each token has an id. (The walk goes through the whole model with its beam search, whatever is chosen in the figure.)",
        ),
        row(say("tokens"), code(f.source.join(" | "))),
        row(say("ids"), code(f.src.join("  "))),
        say("We follow “{token}”, token {id}.", { token: f.source[f.word], id: f.src[f.word] }),
      ],
    ],
    [
      "source embedding",
      say("A token becomes a vector"),
      "words-become-vectors-section-3-4",
      (f) => [
        say("Which of these has a row most like that of “{token}”?", { token: f.source[f.word] }),
        among(
          f.source.filter(
            (name, t) =>
              isWord(name) && t !== f.word && !f.near[f.word].some(({ id }) => id === f.src[t]),
          ),
          f.name([f.near[f.word][0].id])[0],
        ),
        f.name([f.near[f.word][0].id])[0],
      ],
      (f) => [
        say(
          "Each id has a row of {width} learned numbers. It is multiplied by √{width}, so that its entries have about the size of the positions that come next.",
          { width: f.rows[0].length },
        ),
        row(say("its row"), numbers(f.rows[f.word])),
        row(say("scaled"), numbers(f.embedded[f.word])),
        row(
          say("root mean square"),
          code(`${size(f.rows[f.word]).toFixed(2)} → ${size(f.embedded[f.word]).toFixed(2)}`),
        ),
        row(
          say("nearest rows"),
          code(
            f.near[f.word]
              .slice(0, 5)
              .map(({ id, cosine }) => `${f.name([id])[0]} ${cosine.toFixed(2)}`)
              .join("   "),
          ),
        ),
      ],
    ],
    [
      "source position",
      say("The position is added"),
      "positions-section-3-5",
      () => [
        say("What would attention not know without this?"),
        [say("which words there are"), say("in which order they come"), say("how many there are")],
        say("in which order they come"),
      ],
      (f) => [
        say(
          "Attention does not know the order of what it reads. So each position has a vector of its own, of sines and cosines, and it is added.",
        ),
        row(say("position {position}", { position: f.word }), numbers(f.positions[f.word])),
        row(say("sum"), numbers(f.x[f.word])),
      ],
    ],
    [
      "encoder attention",
      say("Every token looks at all others"),
      "multi-head-attention-section-3-2-2",
      (f) => [
        say("Whom does “{token}” look at most, in head {head} of the first layer?", {
          token: f.source[f.word],
          head: f.head + 1,
        }),
        among(f.source, strongest(f.source, f.own, 1)[0][0]),
        strongest(f.source, f.own, 1)[0][0],
      ],
      (f) => [
        say(
          "In the first layer, the query of “{token}” is compared with the key of every token. A softmax turns the scores into weights, and the token receives the values, weighed. Here is head {head} of {h}:",
          { token: f.source[f.word], head: f.head + 1, h: f.config.h },
        ),
        bars(strongest(f.source, f.own)),
      ],
    ],
    [
      "encoder norm",
      say("The result is added"),
      "residuals-and-normalisation-section-3-1",
      () => [
        say("What happens to the vector that was there before?"),
        [
          say("it is replaced"),
          say("it stays, and the result is added"),
          say("the mean of both is taken"),
        ],
        say("it stays, and the result is added"),
      ],
      (f) => [
        f.config.norm === "pre"
          ? say(
              "What attention found is added to what was there before: that is the residual connection. (The figure has a norm behind the addition, as the paper does. Our model has it in front of each sublayer instead, so the sum may grow.)",
            )
          : say(
              "What attention found is added to what was there before: that is the residual connection. Then the sum is normalised.",
            ),
        row(say("before"), numbers(f.x[f.word])),
        row(say("after"), numbers(f.layer.between[f.word])),
        row(
          say("root mean square"),
          code(`${size(f.x[f.word]).toFixed(2)} → ${size(f.layer.between[f.word]).toFixed(2)}`),
        ),
      ],
    ],
    [
      "encoder feed-forward",
      say("Each position is worked on alone"),
      "position-wise-feed-forward-networks-section-3-3",
      (f) => {
        const share =
          f.layer.inner[f.word].filter((value) => value > 0).length / f.layer.inner[f.word].length;
        const names = ["0–25%", "25–50%", "50–75%", "75–100%"];
        return [
          say("How many of its hidden units are above zero for “{token}”?", {
            token: f.source[f.word],
          }),
          names,
          names[Math.min(3, Math.floor(4 * share))],
        ];
      },
      (f) => [
        say(
          "A small network reads one position at a time. Of its {all} hidden units, {active} are active for our token; a ReLU sets all others to zero.",
          {
            all: f.layer.inner[f.word].length,
            active: f.layer.inner[f.word].filter((value) => value > 0).length,
          },
        ),
        row(say("its hidden units"), numbers(f.layer.inner[f.word])),
        row(say("after it"), numbers(f.layer.after[f.word])),
      ],
    ],
    [
      "memory",
      say("After all layers: the memory"),
      "the-encoder-section-3-1",
      (f) => [
        say("How many vectors does the decoder get?"),
        ["1", String(f.src.length), String(f.memory[0].length)],
        String(f.src.length),
      ],
      (f) => [
        say(
          "The other layers of the encoder do the same. In the end there is one vector for each of the {count} tokens. The decoder will look at them again and again.",
          { count: f.src.length },
        ),
        row(say("shape"), code(`${f.memory.length} × ${f.memory[0].length}`)),
        row(say("ours"), numbers(f.memory[f.word])),
      ],
    ],
    [
      "decoder attention",
      say("The decoder reads what it has written"),
      "masks",
      (f) => [
        say("So far it has written “{written}”. At which of these can its newest token not look?", {
          written: f.written.slice(1, f.step + 1).join(" "),
        }),
        among(f.written.slice(0, f.step + 1), f.predicted[f.step + 1]),
        f.predicted[f.step + 1],
      ],
      (f) => [
        say(
          "The decoder writes one token at a time. So far it has written “{written}”. Its newest token looks at itself and at those before it; what comes later does not exist yet. In the first head of the last layer:",
          { written: f.written.slice(1, f.step + 1).join(" ") },
        ),
        bars(strongest(f.written.slice(0, f.step + 1), f.back)),
      ],
    ],
    [
      "cross-attention",
      say("It looks at the source"),
      "layers-of-three-sublayers",
      (f) => [
        say(
          "It has written “{written}”. Which source token does it look at most before it goes on?",
          { written: f.written.slice(1, f.step + 1).join(" ") },
        ),
        among(f.source, strongest(f.source, f.cross, 1)[0][0]),
        strongest(f.source, f.cross, 1)[0][0],
      ],
      (f) => [
        say(
          "Its queries meet the keys of the memory. The mean over the heads of the layer before the last shows what it looks at before it writes the next token:",
        ),
        bars(strongest(f.source, f.cross)),
      ],
    ],
    [
      "softmax",
      say("A score for every token"),
      "greedy-decoding",
      (f) => [
        say("What comes after “{written}”?", { written: f.written.slice(1, f.step + 1).join(" ") }),
        among(f.name(f.likeliest), f.predicted[f.step], 5),
        f.predicted[f.step],
      ],
      (f) => [
        say(
          "The last vector is compared with the row of each of the {count} tokens, and a softmax turns the scores into probabilities.",
          { count: f.p.length.toLocaleString("en") },
        ),
        bars(f.likeliest.map((id) => [f.name([id])[0], f.p[id], id === f.ids[f.step + 1]])),
        say("It writes “{token}”. Then it reads this token, and goes on until it writes </s>:", {
          token: f.predicted[f.step],
        }),
        el("p", {}, el("strong", {}, f.translation)),
      ],
    ],
  ];

  // --- the dialog ---

  const picture = figure.cloneNode(true);
  picture.querySelectorAll("title, desc, style, defs").forEach((node) => node.remove());
  picture.querySelectorAll("a").forEach((link) => link.removeAttribute("href"));
  picture.querySelectorAll("[data-part]").forEach((part) => {
    const place = STOPS.findIndex(([name]) => name === part.dataset.part);
    if (place >= 0) part.classList.add("walk-part");
    part.addEventListener("click", () => {
      if (place >= 0) show(place);
    });
  });
  for (const name of ["aria-labelledby", "width", "height"]) picture.removeAttribute(name);
  picture.setAttribute("aria-hidden", "true");
  const mark = picture.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
  mark.setAttribute("class", "walk-mark");
  const title = el("h2", { id: "walk-title" }),
    text = el("div", { class: "walk-text" }),
    count = el("span", { class: "walk-count" });
  const button = (label, about) => el("button", { type: "button", "aria-label": about }, label);
  const back = button(say("◀ back"), say("Previous stop")),
    next = button(say("next ▶"), say("Next stop")),
    close = button(say("close"), say("Close the walk"));
  const link = el("a", {}, say("Read the section")),
    whose = el("p", { class: "walk-whose" });
  const dialog = el(
    "dialog",
    { class: "walk", "aria-labelledby": "walk-title" },
    el("div", { class: "walk-picture" }, picture),
    el(
      "div",
      { class: "walk-side" },
      title,
      whose,
      text,
      el("p", {}, link),
      el("p", { class: "walk-buttons" }, back, count, next, close),
    ),
  );
  overThePage(dialog);
  const answered = {}; // by stop: what was clicked
  let facts,
    stop = 0;

  // A question with its answers; what is told appears when one of them, or "show me", has been
  // clicked.
  function question(number, [asked, names, right], reveal) {
    const line = el("div", { class: "walk-answers" });
    const done = (name) => {
      if (!(number in answered)) Guesses.add(name === right);
      answered[number] = name;
      line.replaceChildren(
        ...names.map((one) =>
          el(
            "span",
            { class: one === right ? "right" : one === name ? "wrong" : "" },
            `${one} ${one === right ? "✓" : one === name ? "✗" : ""}`,
          ),
        ),
        el("small", {}, Guesses.text()),
      );
      reveal();
    };
    line.append(...names.map((name) => button(name, name)));
    line.querySelectorAll("button").forEach((one, i) =>
      one.addEventListener("click", () => {
        done(names[i]);
        next.focus();
      }),
    );
    if (number in answered) done(answered[number]);
    return [el("p", { class: "walk-question" }, asked), line];
  }

  function show(number) {
    stop = Math.max(0, Math.min(STOPS.length - 1, number));
    const [part, name, section, ask, tell] = STOPS[stop];
    title.textContent = `${stop + 1}. ${name}`;
    const rest = el("div", {}),
      reveal = () =>
        rest.replaceChildren(
          ...tell(facts).map((piece) => (typeof piece === "string" ? el("p", {}, piece) : piece)),
        );
    whose.textContent = facts.sentence;
    text.replaceChildren(...question(stop, ask(facts), reveal), rest);
    link.href = "#" + section;
    count.textContent = say("{stop} of {all}", { stop: stop + 1, all: STOPS.length });
    const ends = [
      [back, stop === 0, next],
      [next, stop === STOPS.length - 1, back],
    ];
    for (const [one, atEnd, other] of ends) {
      // a disabled button would lose the focus, and with it the keys
      if (atEnd && document.activeElement === one) other.focus();
      one.disabled = atEnd;
    }
    const box = picture.querySelector(`[data-part="${part}"]`).getBBox();
    for (const [name, value] of Object.entries({
      x: box.x - 6,
      y: box.y - 6,
      width: box.width + 12,
      height: box.height + 12,
      rx: 10,
    }))
      mark.setAttribute(name, value);
    // on a phone only the part and what is around it
    const near = matchMedia("(max-width: 48rem)").matches;
    picture.setAttribute(
      "viewBox",
      near
        ? `0 ${Math.max(0, Math.min(652, box.y + box.height / 2 - 130))} 540 260`
        : "0 0 540 912",
    );
  }

  async function open() {
    try {
      const content = await liveContent();
      start.textContent = say("computing…");
      const before = facts?.sentence,
        sentence =
          document.querySelector(".explorer > div")?.explored?.sentence().trim() ||
          content.sentence;
      facts = await follow(content, sentence);
      if (sentence !== before) Object.keys(answered).forEach((number) => delete answered[number]);
      dialog.show();
      start.textContent = begin;
      // one who read a section meanwhile goes on
      show(sentence === before && stop < STOPS.length - 1 ? stop : 0);
      next.focus();
    } catch (error) {
      start.textContent = say("The walk cannot begin: {why}", { why: error.message });
    }
  }

  back.addEventListener("click", () => show(stop - 1));
  next.addEventListener("click", () => show(stop + 1));
  close.addEventListener("click", () => dialog.close());
  const home = el(
    "button",
    { type: "button", id: "walk-home", hidden: "" },
    say("↩ back to the walk"),
  );
  home.addEventListener("click", () => {
    home.hidden = true;
    open();
  });
  document.body.append(home);
  link.addEventListener("click", () => {
    dialog.close();
    home.hidden = false;
  });
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step && !event.altKey && !event.ctrlKey && !event.metaKey) show(stop + step);
  });
  const begin = say("Walk with this sentence through the model: ten stops"),
    start = el("button", { type: "button", id: "walk" }, begin);
  start.addEventListener("click", open);
  place.after(start);
}
