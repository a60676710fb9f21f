// The page of exercises: where the answer is a number, a word or a choice, the reader's own is
// checked; what is done or open is kept in this browser. The messages are those of the checks in
// exercises.py, which tests compare.

import { say } from "../page/language.js";

const near = (x, y) => Math.abs(x - y) <= 0.02 * Math.max(Math.abs(x), Math.abs(y));
const yes = (right, message) => ({
  ask: ["yes", "no"],
  check: (x) => ((x === "yes") === right ? "" : message),
});

// By exercise: what is asked ("number", "word", or the choices), and what to say of an answer;
// nothing if it is right.
export const ANSWERS = {
  2.2: {
    ask: "number",
    check: (x) => {
      if (near(x, Math.sqrt(1 / 150))) return say("The other way round.");
      if (near(x, 150)) return say("The rate falls with the root of the step.");
      return near(x, Math.sqrt(150))
        ? ""
        : say("{x} is not it (2% either way are allowed).", { x });
    },
  },
  3.3: {
    ask: "number",
    check: (x) =>
      Math.abs(x - 1) < 0.02
        ? ""
        : say("Not {x}. How many n-grams of a shortened sentence are wrong?", { x }),
  },
  4.1: {
    ask: ["source", "target", "both"],
    check: (x) =>
      ({
        target: "",
        source: say("Then a hypothesis would go on with the words of another one."),
        both: say("It does no harm, but all hypotheses of a sentence read the same source."),
      })[x],
  },
  4.2: {
    ask: ["longer", "shorter", "either"],
    check: (x) =>
      x === "longer" ? "" : say("Try 8 tokens with log-probability -5 against 10 tokens with -6."),
  },
  5.1: {
    ask: "number",
    check: (x) =>
      x === 3.5
        ? say("That is the time of all eight together.")
        : x === 28
          ? ""
          : say("Not {x}.", { x }),
  },
  5.2: yes(false, say("The sentences are the same; only the rule that scores them is different.")),
  6.1: {
    ask: "word",
    check: (x) => {
      const word = x.replace(/^[▁ .]+|[▁ .]+$/g, "").toLowerCase();
      if (word === "junge")
        return say(
          "The first layer looks there, at the word that was just translated. And the upper ones?",
        );
      return word === "spielt" ? "" : say("Not {x}.", { x });
    },
  },
  6.3: yes(true, say("Compare the rates in the saved rows: the mean against the best head.")),
  7.2: {
    ask: "word",
    check: (x) =>
      /beam|束/i.test(x)
        ? say("Sampling follows one hypothesis, not several.")
        : /greedy|贪[心婪]/i.test(x)
          ? ""
          : say("Not {x}. Which token is drawn if one has all the probability?", { x }),
  },
  7.3: yes(true, say("The distance between query and keys is different: try it with `rotated`.")),
};

const WORDS_OF = {
  yes: say("yes"),
  no: say("no"),
  source: say("source"),
  target: say("target"),
  both: say("both"),
  longer: say("longer"),
  shorter: say("shorter"),
  either: say("either"),
};

function el(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

// A field or buttons for an answer, and what there is to say of it. After a wrong choice a right
// one may be a guess.
function question({ ask, check }, right) {
  const said = el("output");
  let guessed = false;
  const answer = (value) => {
    const message = check(value),
      counts = !(guessed && Array.isArray(ask));
    said.textContent =
      message ||
      (counts ? say("Right.") : say("Right. If you could explain it, tick the box yourself."));
    said.className = message ? "wrong" : "right";
    if (message) guessed = true;
    else if (counts) right();
  };
  const refuse = (message) => Object.assign(said, { className: "wrong", textContent: message });
  const form = el("form", { className: "own-answer" });
  if (Array.isArray(ask))
    form.append(
      say("Your answer: "),
      ...ask.map((choice) => {
        const button = el("button", { type: "button", textContent: WORDS_OF[choice] });
        button.addEventListener("click", () => answer(choice));
        return button;
      }),
    );
  else {
    const field = el("input", {
      type: "text",
      inputMode: ask === "number" ? "decimal" : "text",
      autocomplete: "off",
    });
    form.append(
      el("label", {}, ask === "number" ? say("Your number: ") : say("Your word: "), field),
      el("button", { textContent: say("Check") }),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const value = ask === "number" ? Number(field.value.replace(",", ".")) : field.value;
      if (field.value.trim() && !Number.isNaN(value)) answer(value);
      else refuse(ask === "number" ? say("A number, please.") : say("A word, please."));
    });
  }
  form.append(said);
  return form;
}

function start(headings) {
  let kept = { done: {}, open: {} };
  const read = () => {
    // what another tab has kept meanwhile, too
    try {
      const found = JSON.parse(localStorage.exercises ?? "{}");
      kept = { done: { ...kept.done, ...found.done }, open: { ...kept.open, ...found.open } };
    } catch {
      /* nothing was kept, or may be */
    }
  };
  const keep = (what, name, is) => {
    read();
    kept[what][name] = is;
    try {
      localStorage.exercises = JSON.stringify(kept);
    } catch {
      /* not kept */
    }
  };
  read();
  const progress = el("p", { className: "progress" }),
    count = () => {
      progress.textContent = say("{done} of {all} done (kept in this browser)", {
        done: headings.filter(({ id }) => kept.done[id]).length,
        all: headings.length,
      });
    };
  // what editor.js asks for, too
  const EDITORS = { 1.4: "scaled-dot-product-attention-section-3-2-1", 2.3: "the-loss" };
  headings.forEach((heading) => {
    const { id } = heading,
      box = el("input", { type: "checkbox", checked: Boolean(kept.done[id]) });
    const done = (is) => {
      box.checked = is;
      keep("done", id, is);
      count();
    };
    box.addEventListener("change", () => done(box.checked));
    const section = heading.closest("section"),
      number = heading.textContent.match(/^[\d.]+/)[0],
      written = EDITORS[number];
    heading.after(el("label", { className: "done" }, box, say(" done")));
    if (ANSWERS[number]) section.append(question(ANSWERS[number], () => done(true)));
    else
      section.append(
        el(
          "p",
          { className: "in-notebook" },
          ...(written
            ? [
                el("a", {
                  href: `the_annotated_transformer.html#${written}`,
                  textContent: say(
                    "Write it in the browser: the document has an editor for it at the end of this section ▸",
                  ),
                }),
                " ",
              ]
            : []),
          say(
            written
              ? "The notebook tries out what you write, too."
              : "This one is done in the notebook, which tries out what you write.",
          ),
          " ",
          ...[...document.querySelectorAll(".pages .companion a, header a.link[href*='colab']")]
            .map((link) => link.cloneNode(true))
            .flatMap((link) => [link, " "]),
        ),
      );
    let part = section;
    do {
      part.querySelectorAll("details").forEach((details, i) => {
        const name = `${id} ${details.querySelector("summary").textContent} ${i}`;
        if (kept.open[name]) details.open = true;
        details.addEventListener("toggle", () => keep("open", name, details.open));
      });
      part = part.nextElementSibling;
    } while (part && !part.querySelector(":scope > :is(h1, h2)"));
  });
  document.querySelector("main h1")?.after(progress);
  count();
}

export function startExercises() {
  const headings = [...document.querySelectorAll("main h2")].filter(
    (heading) =>
      /^\d\.\d /.test(heading.textContent) && heading.closest("section").textContent.includes("★"),
  );
  if (headings.length) start(headings);
}
