// Write it yourself: under some sections an editor in which the reader writes Python in plain
// lists. A gate compares what the function gives for the reader's own sentence with what the live
// model computes, names the mistake if it is a known one, and puts the function into the live
// model. Python is MicroPython, in a worker that can be ended.

import { LIBRARY } from "../model/python_library.js";
import source from "bundle:../model/python_worker.js";
import { liveContent } from "../page/engine.js";
import { say } from "../page/language.js";
import { endOf, yourSentence } from "../page/sentence.js";
import { startWorker } from "../page/worker.js";

export function startEditors() {
  if (!document.getElementById("micropython-wasm")) return;

  const SECONDS = 5,
    PLUGGED = 120; // for a gate, and for a whole translation
  // Heading, function, what it is given and gives, what there is at first. The names and arguments
  // are those of `judge`, so that what was written can be taken there.
  const PLACES = [
    [
      "scaled-dot-product-attention-section-3-2-1",
      "attention",
      say(
        "Q, K and V are lists of rows. mask is None, or has a row for each query: True where a key may be seen. Give back the output alone, a row for each query. When it’s right, leave out the division, put it into all heads, and follow “Ein Hund fotografiert einen Mann.”",
      ),
      "from math import exp, sqrt\n\ndef attention(Q, K, V, mask):\n    return [[0.0 for v in V[0]] for q in Q]\n",
    ],
    [
      "positions-section-3-5",
      "positions",
      say("Give back a row of d_model numbers for each position; the first position is 0."),
      "from math import sin, cos\n\ndef positions(length, d_model):\n    return [[0.0] * d_model for p in range(length)]\n",
    ],
    [
      "masks",
      "masks",
      say(
        "Give back two masks: one row for the source, and a row for each token of the target. True is where a query (row) may look at a key (column).",
      ),
      "def masks(src, tgt, pad):\n    return [[True] * len(src)], [[True] * len(tgt) for t in tgt]\n",
    ],
    [
      "residuals-and-normalisation-section-3-1",
      "layer_norm",
      say("x is a list of rows; epsilon is 1e-5."),
      "from math import sqrt\n\ndef layer_norm(x, gain, bias):\n    return x\n",
    ],
    [
      "a-vector-becomes-a-word-section-3-4",
      "decode",
      say(
        "scores(ids) gives each token of the vocabulary a score, as the one that comes after ids; ids begin with bos. Give back what was written: eos included, bos not, and at most longest ids.",
      ),
      "def decode(scores, bos, eos, longest):\n    return []\n",
    ],
    [
      "the-loss",
      "loss_gradient",
      say(
        "logits has a row of scores for each position, target the right ids. The loss is a sum over the positions, without those where target is pad. The right id gets 1 - smoothing in q; the smoothing is shared out evenly among all ids but pad, the right one included.",
      ),
      "from math import exp\n\ndef loss_gradient(logits, target, smoothing, pad):\n    return [[0.0] * len(row) for row in logits]\n",
    ],
    [
      "one-update",
      "rate",
      say("step counts from 1; give back a number."),
      "def rate(step, d_model, warmup):\n    return 0.0\n",
    ],
  ];
  const PLUGGABLE = ["attention", "positions", "layer_norm", "decode"]; // into the live model

  const el = (tag, properties, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  let kept = {}; // what was written, by function
  try {
    kept = JSON.parse(localStorage.mine ?? "{}");
  } catch {
    /* nothing was kept, or may be */
  }
  const keep = (name, code) => {
    kept[name] = code;
    try {
      localStorage.mine = JSON.stringify(kept);
    } catch {
      /* not kept */
    }
  };

  // one for all editors, made when it is first asked, and again after it had to be ended
  let worker = null;
  async function running() {
    if (worker) return worker;
    const micropython = document.getElementById("micropython").textContent,
      made = startWorker(`${micropython}\n${source}`);
    const { model } = await liveContent();
    made.postMessage({
      content: { ...model, weights: document.getElementById("explorer-weights").textContent },
      wasm: document.getElementById("micropython-wasm").textContent,
      library: LIBRARY,
    });
    await new Promise((resolve, reject) => {
      made.onmessage = ({ data }) => (data.ready ? resolve() : reject(new Error(data.error)));
      made.onerror = (event) => reject(new Error(event.message));
    });
    return (worker = made);
  }

  // Ask the worker; it is ended after some seconds, or when the reader stops it.
  async function ask(asked, seconds, signal, step) {
    const one = await running();
    return new Promise((resolve) => {
      let printed = "";
      const done = (found) => {
        clearTimeout(late);
        signal.removeEventListener("abort", stop);
        resolve({ ...found, printed });
      };
      const end = (found) => {
          one.terminate();
          worker = null;
          done(found);
        },
        stop = () => end({ stopped: true }),
        late = setTimeout(() => end({ late: seconds }), 1000 * seconds);
      signal.addEventListener("abort", stop);
      one.onmessage = ({ data }) => {
        if ("step" in data) step(data.step);
        else if ("printed" in data) printed = (printed + data.printed + "\n").slice(0, 300);
        else done(data);
      };
      one.postMessage(asked);
    });
  }

  const JUDGE = { judge: "`python the_annotated_transformer.py judge mine.py`" };
  const named = (mistake) =>
    `${say("This gives the same numbers: {code}.", { code: globalThis.WRITTEN[mistake].line })} ${globalThis.WRITTEN[mistake].effect}`;
  const TOLD = {
    // what isn't a matter of numbers
    missing: (name) => say("There's no function `{name}` in this field.", { name }),
    nothing: () => say("The function gives nothing: a `return` is missing, or not reached."),
    things: () => say("What the function gives isn't made of lists and numbers."),
    changed: () => say("The function changes what it is given, which others still need."),
    none: () =>
      say(
        "scores was asked about no ids at all. The decoder begins with bos: that is what it reads before it has written anything.",
      ),
    odd: (id) =>
      say(
        "scores was asked about {id}, which isn't the id of a token. An id is the place of a score, not the score.",
        { id },
      ),
    eos_ignored: () =>
      `${say("scores was asked what comes after eos.")} ${globalThis.WRITTEN.eos_ignored.effect}`,
  };
  // What is added to an error that plain lists or MicroPython may be the cause of: a pattern of the
  // error and, below it, the reader's line; and the sentence. The first that fits is taken.
  const HINTS = [
    [
      /no module named/,
      say(
        "The page has no packages, and only a few of Python’s own modules. Write it in plain lists, or take mine.py along: {judge} takes any module.",
        JUDGE,
      ),
    ],
    [
      /^SyntaxError.*\n.*[{,]\s*\*\*/,
      say("MicroPython doesn’t read {**a, …}: write dict(a), and add the rest."),
    ],
    [
      /^SyntaxError(?:: \*x|.*\n.*(?:\breturn|\byield|\bin|=)\s*(?:(?:[^()[\]{}=]|\([^()]*\)|\[[^[\]]*\])*,\s*)?\*[\w[({])/,
      say("MicroPython doesn’t read this star: write (*a, b) with brackets, or list(a) + [b]."),
    ],
    [
      /^SyntaxError.*\n\s*(?:match|case)\b.*:/,
      say("MicroPython has no match: write if, elif and else."),
    ],
    [
      /^NotImplementedError.*\n.*\[[^\]]*:[^\]]*:/,
      say(
        "MicroPython takes a slice with a step from lists only, and can’t delete it: write list(a)[::2], or make a new list.",
      ),
    ],
    [/__getitem__/, say("MicroPython can’t pass on this method: write lambda i: a[i].")],
    [
      /^RuntimeError: maximum recursion/,
      say("Here a function can call itself only some 200 times: write a loop."),
    ],
    [
      /'type' object isn't subscriptable/,
      say("MicroPython doesn’t read list[float] here: write list alone."),
    ],
    [
      /'list' object has no attribute '(?:shape|T|size|dot|sum|mean|max|min|argmax|exp|transpose|view|reshape|tolist)'|types? for __(?:matmul|mul|sub|truediv|pow|neg)__: (?:'\w+', )?'list'|__: 'list', '(?:int|float)'|convert list to float|can't convert 'tuple' object to int|indices must be integers, not tuple/,
      say("These are lists, not arrays: loops or comprehensions go over their rows and numbers."),
    ],
    [
      /math domain error/,
      say("exp takes at most 709, sqrt nothing below 0, log only what is above 0."),
    ],
    [
      /^(?:SyntaxError|ImportError|NotImplementedError)|^AttributeError: (?:module|'(?:str|bytes|list|tuple|dict|set|int|float|bool|range|function|generator)' object)|keyword argument|can't create '\w+' instances|^NameError: name '(?:ascii|breakpoint|vars|[A-Z]\w+Error)'/,
      say(
        "If this line is right in Python, MicroPython lacks it: write it in another way, or take mine.py along, for {judge}.",
        JUDGE,
      ),
    ],
  ];
  const hint = (error, code) =>
    HINTS.find(([pattern]) => pattern.test(`${error}\n${code}`))?.[1] ?? "";

  function verdict({ found, error, line, late, stopped }, sentence, code) {
    // [whether it is right, what is said]
    if (stopped) return [false, say("Stopped.")];
    if (late) return [false, say("It didn't end within {seconds} seconds.", { seconds: late })];
    const [, known, about] = error?.match(/told: (\w+) ?(.*)$/) ?? [];
    if (known) return [false, TOLD[known](about)];
    if (error) {
      const place = line ? say("Line {line}: {error}", { line, error }) : error;
      const advice = hint(error, code.split("\n")[line - 1] ?? "");
      return [false, [place, advice].filter(Boolean).join(". ")];
    }
    if (found.right)
      return [true, say("Right, for “{sentence}” and for the awkward cases.", { sentence })];
    if (found.mistake) return [false, named(found.mistake)];
    if (found.infinite)
      return [
        false,
        say("{count} of {all} numbers aren't finite.", { count: found.infinite, all: found.all }),
      ];
    if ("shape" in found)
      return [
        false,
        say("The result has the shape ({mine}), and should have ({right}).", {
          mine: found.shape,
          right: found.wanted,
        }),
      ];
    const [mine, right, largest] = [found.mine, found.expected, found.largest ?? 0].map((value) =>
      String(Number(value.toPrecision(5))),
    );
    if (found.asked)
      return [
        false,
        say(
          "For the arguments {asked} it gives {mine} instead of {right}. No mistake that I know gives this.",
          { ...found, mine, right },
        ),
      ];
    const where = say(
      "Row {row}, column {column} is {mine} instead of {right}; the largest error is {largest}. No mistake that I know gives this.",
      { ...found, mine, right, largest },
    );
    return [
      false,
      found.masked ? `${say("Without a mask it's right, with one it isn't.")} ${where}` : where,
    ];
  }

  // A link from a function that is right to the next one; from the last one to the next rung.
  function wayOn(name) {
    const folds = [...document.querySelectorAll(".write-it")],
      next = folds[folds.findIndex((fold) => fold.dataset.function === name) + 1];
    const link = el("a", {
      href: next ? `#${next.id}` : "#clinic-frame",
      textContent: next
        ? say("Next, write {name} ▸", { name: next.dataset.function })
        : say("The next rung: diagnose. To the clinic ▸"),
    });
    if (next) link.addEventListener("click", () => (next.open = true));
    return link;
  }

  function editor(name, about, stub) {
    const field = el("textarea", {
      value: kept[name] ?? stub,
      spellcheck: false,
      wrap: "off",
      rows: 9,
      ariaLabel: say("Your function {name}", { name }),
    });
    const button = (textContent, act, hidden = false) => {
      const one = el("button", { type: "button", textContent, hidden });
      one.addEventListener("click", act);
      return one;
    };
    const check = button(say("Check it"), () => run(false)),
      put = button(say("Put it into the model"), () => run(true), !PLUGGABLE.includes(name));
    const stop = button(say("Stop"), () => stopper.abort(), true),
      take = button(say("Take mine.py along"), download),
      again = button(say("Begin again"), () => keep(name, (field.value = stub))),
      said = el("output");
    const where = el(
      "select",
      { hidden: name !== "attention", ariaLabel: say("Where in the encoder") },
      el("option", {
        value: "one",
        textContent: say("layer {layer}, head {head}", { layer: 1, head: 2 }),
      }),
      el("option", { value: "all", textContent: say("all heads of the model") }),
    );
    let stopper,
      leaves = false; // Escape, then Tab, leaves the field; Tab alone indents

    async function run(plugged) {
      const before = document.activeElement,
        wait = (is) => {
          check.disabled = put.disabled = is;
          stop.hidden = !is;
        };
      stopper = new AbortController();
      Object.assign(said, { className: "busy", textContent: say("computing…") });
      wait(true);
      try {
        await yourSentence.begin();
        const asked = {
          code: field.value,
          name,
          plugged,
          sentence: yourSentence.current(),
          all: where.value === "all",
        };
        const found = await ask(
          asked,
          plugged ? PLUGGED : name === "decode" ? 4 * SECONDS : SECONDS,
          stopper.signal,
          (count) => {
            said.textContent = say("computing… calls so far: {count}", { count });
          },
        );
        const { text, own } = found.found ?? {},
          [right, words] = plugged && found.found ? [] : verdict(found, asked.sentence, asked.code);
        said.className = words ? (right ? "right" : "wrong") : "plugged";
        if (words) said.replaceChildren(words, ...(right ? [" ", wayOn(name)] : []));
        else
          said.replaceChildren(
            say(
              "With your function in it, the model writes for “{sentence}”, one token at a time:",
              asked,
            ),
            el("strong", { textContent: text || say("(nothing)") }),
            text === own
              ? say("Without it, it writes the same.")
              : say("Without it: {text}", { text: own }),
          );
        if (found.printed) said.append(el("pre", { textContent: found.printed }));
      } catch (error) {
        Object.assign(said, { className: "wrong", textContent: error.message });
      }
      wait(false);
      before?.focus();
    }

    function download() {
      keep(name, field.value);
      // of several functions in one file, what Python takes at its beginning only
      const future = /^from __future__ import .*\n?/gm,
        functions = Object.values(kept).join("\n");
      const text = [
        `"""${say("Judge it: python the_annotated_transformer.py judge mine.py")}"""`,
        ...new Set(functions.match(future)?.map((line) => line.trim())),
        "",
        "",
        "def take(array):",
        "    return array.tolist()",
        "",
        "",
        functions.replace(future, ""),
      ].join("\n");
      el("a", {
        href: `data:text/x-python,${encodeURIComponent(text)}`,
        download: "mine.py",
      }).click();
    }

    field.addEventListener("input", () => keep(name, field.value));
    field.addEventListener("keydown", (event) => {
      if (event.key === "Tab" && !leaves && !event.shiftKey) {
        event.preventDefault();
        field.setRangeText("    ", field.selectionStart, field.selectionEnd, "end");
      }
      leaves = event.key === "Escape";
    });
    const fold = el(
      "details",
      { className: "write-it", id: `write-${name}` },
      el("summary", { textContent: say("Write it yourself: {name}", { name }) }),
      el("p", {
        textContent: `${about} ${say("Python in plain lists. It is compared with the live model, for your sentence. Escape, then Tab, leaves the field.")} ${say("MicroPython, a small Python without packages, runs your function.")}`,
      }),
      field,
      el("div", { className: "controls" }, check, stop, put, where, take, again),
      said,
    );
    fold.dataset.function = name;
    return fold;
  }

  for (const [heading, name, about, stub] of PLACES) {
    const section = document.getElementById(heading)?.closest("section");
    if (!section) continue;
    const fold = editor(name, about, stub);
    endOf(section).after(fold);
    yourSentence.beside(fold); // the bar is shown here, too
  }
}
