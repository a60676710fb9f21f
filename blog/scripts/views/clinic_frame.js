// The document of the clinic, in its frame.

import source from "bundle:../learn/clinic_worker.js";
import { shrink } from "../page/in_frame.js";
import { say } from "../page/language.js";
import { startWorker } from "../page/worker.js";

/** `rows` are the patients, `known` has bounds and sentences of the tests, and the mistakes. */
function start(rows, known) {
  const POINTS = 10,
    WRONG = 3;
  const ORDERS = [
    // an examination, its name, its price, and what it does
    [
      "wires",
      say("Wires"),
      1,
      say("Change one word of the target after the other: which predictions move?"),
    ],
    ["loss", say("Loss"), 1, say("Compute the loss once more, from the logits.")],
    ["gradient", say("Gradient"), 1, say("Compute the gradient twice, and make one step.")],
    [
      "inventory",
      say("Look inside"),
      1,
      say("Look at the encoder's first norm and first attention, before any training."),
    ],
    [
      "heart",
      say("By heart"),
      2,
      say("A fresh model learns eight pairs by heart and translates them."),
    ],
    ["swap", say("Swap sources"), 1, say("Give the trained model the sources of other numbers.")],
    [
      "references",
      say("Let it write"),
      1,
      say("The trained model writes on its own; then it reads what it wrote."),
    ],
  ];
  const NAMES = [
    [say("Nothing"), { healthy: say("nothing: it is healthy") }],
    [
      say("Mask and shift"),
      {
        no_causal_mask: say("no causal mask"),
        causal_mask_one_too_far: say("a causal mask that is open one place too far"),
        no_shift: say("the target isn't shifted"),
        shift_by_two: say("the target is shifted twice"),
        eos_cut_off: say("targets without their end"),
      },
    ],
    [
      say("Data"),
      {
        target_fed_as_source: say("the target is given as the source, too"),
        pairs_misaligned: say("each source has the next one's target"),
      },
    ],
    [
      say("Attention"),
      {
        multiplied_by_root: say("scores times √d_k, not divided by it"),
        softmax_over_queries: say("softmax over the queries"),
        heads_split_by_view: say("heads split without a transpose"),
        cross_attends_to_itself: say("cross-attention that reads the target"),
      },
    ],
    [
      say("Positions and norm"),
      {
        no_positions: say("no positions"),
        no_positions_in_encoder: say("no positions in the encoder"),
        no_positions_in_decoder: say("no positions in the decoder"),
        norm_over_time: say("LayerNorm over time"),
      },
    ],
    [
      say("Training"),
      {
        rate_too_high: say("a learning rate that is 30 times too high"),
        gradients_never_cleared: say("gradients that are never cleared"),
      },
    ],
    [
      say("Writing"),
      {
        decoding_begins_with_eos: say("it begins to write with </s>"),
        every_step_at_position_zero: say("it writes every letter at position 0"),
      },
    ],
  ];
  const names = Object.assign({}, ...NAMES.map(([, some]) => some)),
    WORD = {
      reported: say("as reported"),
      logits: say("from the logits"),
      guessing: say("of guessing"),
      once: say("the gradient"),
      again: say("once more"),
      own: say("its own source"),
      other: say("another's source"),
    };
  const ONES = {
    // what has to be 1 in a look inside
    sums: (well, about) =>
      well
        ? say("the weights of a query add up to 1")
        : say("the weights of a query add up to {low} to {high}, not to 1", about),
    spreads: (well, about) =>
      well
        ? say("behind the norm, the spread of each vector is 1")
        : say("behind the norm, the spread of a vector is {low} to {high}, not 1", about),
  };
  const el = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const button = (name, act, properties) => {
    const node = el("button", { type: "button", textContent: name, ...properties });
    node.addEventListener("click", act);
    return node;
  };
  const share = (value) => `${Math.round(100 * value)}%`,
    slipOf = (row) => row.slip ?? "healthy";
  const healthy = (seed) => rows.find((row) => !row.slip && row.seed === seed);
  let row,
    points,
    number = 0,
    results,
    closed,
    worker,
    treated = new Set(),
    cases = new Map(); // of each patient that was finished: the points, 0 without the name

  // --- what there is on the screen ---

  const levels = [
    say("easy: the curve is ill"),
    say("harder: the curve is well"),
    say("hard: the wires are well, too"),
  ];
  const level = el(
    "select",
    { id: "clinic-level" },
    ...levels.map((name, i) => el("option", { value: i, textContent: name, selected: i === 1 })),
  );
  const state = el("span", { id: "clinic-state" }),
    tally = el("span", { className: "learn-note" }),
    told = el("div", { id: "clinic-told" }),
    facts = el("p", { id: "clinic-facts" });
  told.setAttribute("aria-live", "polite");
  const orders = ORDERS.map(([test, name, price, title]) =>
    button(`${name} −${price}`, () => order(test, price), { title }),
  );
  const names_ = el(
    "select",
    { id: "clinic-names", ariaLabel: say("What is wrong with it?") },
    el("option", { value: "", textContent: say("What is wrong with it?") }),
    ...NAMES.map(([label, some]) =>
      el(
        "optgroup",
        { label },
        ...Object.entries(some).map(([value, textContent]) => el("option", { value, textContent })),
      ),
    ),
  );
  const SVG = "http://www.w3.org/2000/svg",
    curve = document.createElementNS(SVG, "svg");
  curve.id = "clinic-curve";
  curve.setAttribute("viewBox", "0 0 340 140");
  curve.setAttribute("role", "img");
  curve.setAttribute("aria-label", say("Loss over the updates, and a healthy one's"));
  const shape = (kind, attributes, content = "") => {
    const node = curve.appendChild(document.createElementNS(SVG, kind));
    for (const [key, one] of Object.entries(attributes)) node.setAttribute(key, one);
    node.textContent = content;
    return node;
  };
  const at = (losses) =>
    losses
      .map(
        (loss, i) =>
          `${(30 + 5.1 * (i + 0.5)).toFixed(1)},${(120 - 28 * Math.min(4, loss)).toFixed(1)}`,
      )
      .join(" ");
  shape("path", { d: "M30 6V120H336", fill: "none", stroke: "var(--rule)" });
  for (const loss of [0, 1, 2, 3, 4])
    shape(
      "text",
      { x: 26, y: 123 - 28 * loss, "text-anchor": "end", "font-size": 9, fill: "var(--muted)" },
      loss,
    );
  shape(
    "text",
    { x: 336, y: 133, "text-anchor": "end", "font-size": 9, fill: "var(--muted)" },
    say("2,500 updates"),
  );
  const line = (width, dashes, colour) =>
    shape("polyline", {
      fill: "none",
      stroke: `var(--${colour})`,
      "stroke-width": width,
      "stroke-dasharray": dashes,
    });
  const [dotted, thick] = [line(1.4, "1.5 2.5", "ink"), line(2.2, "none", "link")];
  document.body.append(
    el(
      "div",
      { className: "learn-row" },
      el("strong", { textContent: say("The clinic") }),
      button(say("Patient of the day"), () => admit(ofTheDay())),
      button(say("Next patient"), () => admit(draw()), { id: "clinic-next" }),
      el("label", {}, say("Level of the next patient"), " ", level),
      state,
      tally,
    ),
    el("p", {
      className: "learn-note",
      textContent: say(
        "Each patient is the small model of German numbers, trained beforehand with one mistake in it, or with none. Order tests, name the mistake, and keep as many of your ten points as you can: a wrong name costs three. Words are letters and digits here.",
      ),
    }),
    el(
      "div",
      { className: "learn-parts" },
      el(
        "div",
        {},
        curve,
        el("p", {
          className: "learn-note",
          textContent: say("The training loss; dotted: a healthy model with the same seed."),
        }),
      ),
      el(
        "div",
        {},
        facts,
        el("div", { className: "learn-row", id: "clinic-orders" }, ...orders),
        el(
          "div",
          { className: "learn-row" },
          names_,
          button(say("Name it"), name, { id: "clinic-name" }),
          button(say("Tell me"), () => close(false), { id: "clinic-tell" }),
        ),
      ),
    ),
    told,
  );

  // --- a patient ---

  const difficulty = ({ slip, losses }) =>
    losses.at(-1) > 0.2 ? 0 : known.mistakes[slip]?.found === "wires" ? 1 : 2;
  const ofTheDay = () => rows[Math.floor(Date.now() / 864e5) % rows.length];
  function draw() {
    // not one that was there, as long as there are others; a healthy one's curve isn't ill
    const fit = rows.filter((one) =>
        one.slip ? difficulty(one) === Number(level.value) : level.value > 0,
      ),
      fresh = fit.filter((one) => !treated.has(one));
    const some = fresh.length ? fresh : fit.filter((one) => one !== row);
    return some[Math.floor(Math.random() * some.length)];
  }
  function admit(one) {
    if (row && !closed && points < POINTS) finish(0); // it was examined, and left without a name
    [row, points, results, closed] = [one, POINTS, {}, false];
    treated.add(one);
    number += 1;
    shrink();
    told.replaceChildren();
    names_.value = "";
    orders.forEach((one) => one.setAttribute("aria-pressed", "false"));
    dotted.setAttribute("points", at(healthy(row.seed).losses));
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches,
      mine = number,
      start = performance.now();
    const run = (now) => {
      // the curve runs for a second and a half
      const done = still ? 1 : Math.min(1, (now - start) / 1500);
      if (mine !== number) return;
      thick.setAttribute("points", at(row.losses.slice(0, Math.ceil(done * row.losses.length))));
      if (done < 1) requestAnimationFrame(run);
    };
    run(start);
    facts.textContent = say(
      "Loss at the end {loss}. Of the letters of held-out numbers, {share} are right if it reads the reference before each.",
      { loss: row.losses.at(-1).toFixed(3), share: share(row.forced) },
    );
    show();
  }
  function show() {
    state.textContent = row ? say("{points} points", { points: Math.max(0, points) }) : "";
    const kept = [...cases.values()];
    tally.textContent = kept.length
      ? say("named so far: {named} of {all}, with {points} of {most} points", {
          named: kept.filter(Boolean).length,
          all: kept.length,
          points: kept.reduce((a, b) => a + b),
          most: POINTS * kept.length,
        })
      : "";
    for (const one of orders) one.disabled = !row;
    for (const one of [
      names_,
      document.getElementById("clinic-name"),
      document.getElementById("clinic-tell"),
    ])
      one.disabled = !row || closed;
  }
  // once: who comes again is known
  const finish = (left) => cases.has(row) || cases.set(row, left);

  // --- tests ---

  const OF_ROW = {
    swap: ({ swap }) => ({ swap }),
    references: (one) => ({ "fed back": one["fed back"] }),
  }; // those of a trained model
  // what the worker measures of a model that isn't this patient, and who waits for it
  const asked = new Map();
  const measure = (test, { slip, seed }) =>
    new Promise((resolve) => {
      asked.set(`${test} ${slip}`, resolve);
      (worker ??= startWorker(source, heard)).postMessage({
        test,
        slip,
        seed,
        number: `${test} ${slip}`,
      });
    });
  function order(test, price) {
    if (test in results) return;
    results[test] = null;
    if (!closed) points -= price;
    orders[ORDERS.findIndex(([name]) => name === test)].setAttribute("aria-pressed", "true");
    told.append(
      el(
        "div",
        { className: "clinic-result", id: `result-${test}` },
        el("strong", { textContent: ORDERS.find(([name]) => name === test)[1] }),
        " …",
      ),
    );
    if (test === "swap")
      heard({
        number,
        test,
        found: OF_ROW.swap(row),
        bars: { own: row.sources[0], other: row.sources[1] },
      });
    else if (test === "references")
      heard({
        number,
        test,
        found: OF_ROW.references(row),
        examples: row.examples,
        exact: row.exact,
      });
    else
      (worker ??= startWorker(source, heard)).postMessage({
        test,
        slip: row.slip,
        seed: row.seed,
        number,
      });
    if (points <= 0 && !closed) close(false);
    show();
  }
  const plain = (text, value) =>
    text.replace(/\{:(\+?)\.(\d)([gf%])\}/, (_, sign, digits, kind) => {
      // a number as Python writes it
      const x = Math.abs(value) < 1e-4 ? 0 : value;
      return (
        (sign && x > 0 ? "+" : "") +
        (kind === "g" ? Number(x.toPrecision(digits)) : kind === "%" ? share(x) : x.toFixed(digits))
      );
    });
  const isIll = (test, value) =>
    !(known.tests[test].low <= value && value <= known.tests[test].high);
  const sentence = (test, value) =>
    plain(known.tests[test].measured, value) +
    (isIll(test, value) ? say(": {means}", { means: known.tests[test].means }) : "");
  const written = ({ exact }) =>
    say("{share} of the held-out numbers are written correctly", { share: share(exact) });
  function heard({ number: whose, test, found, ones, grid, bars, examples, exact }) {
    asked.get(whose)?.(found);
    if (whose !== number) return;
    results[test] = found;
    const [, title, , about] = ORDERS.find(([name]) => name === test),
      most = Math.max(1, ...Object.values(bars ?? {}));
    const list = el(
      "ul",
      {},
      ...Object.entries(found).map(([name, value]) =>
        el("li", {
          className: isIll(name, value) ? "wrong" : "right",
          textContent: sentence(name, value),
        }),
      ),
    );
    if (exact !== undefined)
      list.prepend(
        el("li", { className: exact < 0.8 ? "wrong" : "right", textContent: written({ exact }) }),
      );
    for (const [name, [low, high]] of Object.entries(ones ?? {})) {
      const well = Math.max(1 - low, high - 1) < 0.01;
      list.append(
        el("li", {
          className: well ? "right" : "wrong",
          textContent: ONES[name](well, { low: low.toFixed(2), high: high.toFixed(2) }),
        }),
      );
    }
    const picture = grid
      ? el(
          "table",
          { className: "clinic-grid" },
          ...grid.map((cells, t) =>
            el(
              "tr",
              {},
              ...cells.map((value, u) => {
                const cell = el("td", {
                  className: test === "wires" && u > t && value > 1e-3 ? "leak" : "",
                  title: value.toFixed(3),
                });
                cell.style.setProperty(
                  "--w",
                  Math.min(1, test === "wires" ? Math.sqrt(value / 2) : value).toFixed(2),
                );
                return cell;
              }),
            ),
          ),
        )
      : bars
        ? el(
            "table",
            { className: "clinic-bars" },
            ...Object.entries(bars).map(([name, value]) => {
              const bar = el("span");
              bar.style.width = `${Math.max(1, (100 * value) / most)}%`;
              return el(
                "tr",
                {},
                el("th", { scope: "row", textContent: WORD[name] }),
                el("td", {}, bar),
                el("td", { textContent: value.toFixed(3) }),
              );
            }),
          )
        : el(
            "table",
            { className: "clinic-examples" },
            ...examples.map(([asked, target, written]) =>
              el(
                "tr",
                {},
                el("td", { textContent: asked }),
                el("td", {
                  className: target === written ? "right" : "wrong",
                  textContent: `${written || "–"} ${target === written ? "✓" : "✗"}`,
                }),
              ),
            ),
          );
    const caption = {
      wires: say(
        "rows: predictions, columns: the word that is changed; framed: it moves a prediction before it",
      ),
      inventory: say("rows: queries, columns: keys, of one head"),
    }[test];
    const card = document.getElementById(`result-${test}`);
    card.replaceChildren(
      el("strong", { textContent: title }),
      el("p", { className: "learn-note", textContent: about }),
      list,
      picture,
      ...(caption ? [el("p", { className: "learn-note", textContent: caption })] : []),
    );
    reveal(card);
  }
  // on a phone it is far below; by then the frame has grown
  const reveal = (node) => setTimeout(() => node.scrollIntoView({ block: "nearest" }), 100);

  // --- the name ---

  function name() {
    if (!names_.value) return names_.focus();
    if (names_.value === slipOf(row)) return close(true);
    points -= WRONG;
    const why = el("span"),
      one = rows.find((other) => slipOf(other) === names_.value && other.seed === row.seed);
    told.append(
      el(
        "p",
        { className: "clinic-result wrong" },
        say("It isn't “{name}”. {points} points are left.", {
          name: names[names_.value],
          points: Math.max(0, points),
        }),
        " ",
        why,
      ),
    );
    if (one)
      contrast(one, results).then((text) => {
        why.textContent = text;
      });
    reveal(told.lastChild);
    if (points <= 0) close(false);
    show();
  }
  /** What the reader has seen that would be otherwise in a model with the mistake that was named.
   *  */
  async function contrast(one, seen) {
    const differs = (is) => is(one) !== is(row);
    if (differs(({ losses }) => losses.at(-1) > 0.2))
      return say("In such a model, the loss at the end is {loss}.", {
        loss: one.losses.at(-1).toFixed(3),
      });
    for (const [test, found] of Object.entries(seen)) {
      if (!found) continue; // it is being measured
      if (test === "references" && differs(({ exact }) => exact < 0.8))
        return say("In such a model, {sentence}.", { sentence: written(one) });
      const other = test in OF_ROW ? OF_ROW[test](one) : await measure(test, one);
      const telling = Object.keys(other).find(
        (name) => name in found && isIll(name, other[name]) !== isIll(name, found[name]),
      );
      if (telling)
        return say("In such a model, {sentence}.", { sentence: sentence(telling, other[telling]) });
    }
    return say("But none of the tests that you have ordered tells the two apart.");
  }
  function close(right) {
    finish(right ? points : 0);
    closed = true;
    const { line, belief, effect, section, found } = known.mistakes[slipOf(row)] ?? {},
      other = healthy(row.seed),
      first = ORDERS.find(
        ([name]) =>
          name ===
          (found === "heart" && row["fed back"] < known.tests["fed back"].low
            ? "references"
            : found),
      )?.[1];
    const measured = (one) =>
      say("loss {loss}, {forced} right with the reference, {exact} when it writes", {
        loss: one.losses.at(-1).toFixed(3),
        forced: share(one.forced),
        exact: share(one.exact),
      });
    told.append(
      el(
        "div",
        { className: "clinic-result", id: "clinic-verdict" },
        el("strong", {
          className: right ? "right" : "wrong",
          textContent: right
            ? say("Yes, with {points} points left: {name}.", { points, name: names[slipOf(row)] })
            : say("It was this: {name}.", { name: names[slipOf(row)] }),
        }),
        ...(line
          ? [
              el("pre", { textContent: line }),
              el(
                "p",
                {},
                ...`${say("Whoever writes this thinks: “{belief}”", { belief })} ${effect}`
                  .split("`")
                  .map((text, i) => (i % 2 ? el("code", { textContent: text }) : text)),
              ),
            ]
          : [
              el("p", {
                textContent: say(
                  "Not everything that learns slowly or badly is ill, and no test can show that something is well. Did you order one that could have shown an illness?",
                ),
              }),
            ]),
        el("p", {
          textContent: row.slip
            ? say("Measured: {ill}. A healthy one: {well}.", {
                ill: measured(row),
                well: measured(other),
              })
            : say("Measured: {ill}.", { ill: measured(row) }),
        }),
        ...(first
          ? [
              el("p", {
                textContent: say("The cheapest test that sees it: {test}.", { test: first }),
              }),
            ]
          : []),
        el("p", { textContent: say("Now all tests are free: see what the others show.") }),
        ...(section
          ? [button(say("Read the section"), () => parent.postMessage({ section }, "*"))]
          : []),
        el("p", {
          textContent: say(
            "Then go on with practice/clinic.ipynb, where you repair the code of twelve models.",
          ),
        }),
      ),
    );
    show();
    reveal(told.lastChild);
    document.getElementById("clinic-next").focus({ preventScroll: true });
  }
  show();
  new IntersectionObserver((entries) => {
    if (!row && entries.at(-1).isIntersecting) admit(ofTheDay());
  }).observe(curve);
}

start(...globalThis.GIVEN);
