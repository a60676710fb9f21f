// The document of the trainer, in its frame.

import source from "bundle:../learn/trainer_worker.js";
import { shrink } from "../page/in_frame.js";
import { say } from "../page/language.js";
import { startWorker } from "../page/worker.js";

/** `rows` are trainings that were made beforehand, `tasks` what tasks.js says of all. */
function start(rows, tasks) {
  const PARTS = [
    ["warmup", say("warmup")],
    ["positions", say("positions")],
    ["causal", say("causal mask")],
    ["shift", say("the shift")],
    ["norms", say("norms")],
    ["residuals", say("residuals")],
  ];
  const options = (values, first, name) =>
    values
      .map(
        (value) =>
          `<option value="${value}"${value === first ? " selected" : ""}>${name(value)}</option>`,
      )
      .join("");
  document.body.innerHTML = `
      <div class="learn-row">
        <label>${say("Task")} <select id="learn-task"><option value="numbers">${say("German numbers")}</option><option value="copy">${say("copying")}</option><option value="reverse">${say("reversing")}</option></select></label>
        <button type="button" id="learn-run">${say("▶ Train")}</button> <button type="button" id="learn-step">${say("Step")}</button>
        <button type="button" id="learn-again">${say("Restart")}</button> <button type="button" id="learn-other">${say("Other seed")}</button>
        <button type="button" id="learn-guess">${say("Guess what is missing")}</button>
        <span id="learn-state" role="status"></span>
      </div>
      <div class="learn-row" role="group" aria-label="${say("What a fresh model has")}">
        <span>${say("A fresh model with")}</span>
        ${PARTS.map(([key, name]) => `<label><input type="checkbox" data-key="${key}" checked> ${name}</label>`).join(" ")}
        <label>${say("heads")} <select data-key="h">${options([1, 2, 4], 2, String)}</select></label>
        <label>${say("learning rate")} <select data-key="rate">${options([0.3, 1, 3, 10], 1, (rate) => `× ${rate}`)}</select></label>
      </div>
      <div class="learn-parts">
        <div><svg id="learn-curve" viewBox="0 0 340 200" role="img" aria-label="${say("Loss and learning rate over the updates")}"></svg>
          <p class="learn-note">${say("Above: the loss in nats per letter; thick is this model, thin your run before it, dotted the whole model with seed 0, trained beforehand, and dashed one that lacks the same part. Below: the learning rate, always on one scale.")}</p></div>
        <div><p class="learn-note" id="learn-exact"></p><p class="learn-note" id="learn-before"></p><div id="learn-choices" class="learn-row" hidden></div>
          <table id="learn-examples"></table></div>
      </div>
      <div class="learn-row"><label><span id="learn-ask">${say("Your number, 0 to 999")}</span> <input id="learn-own" size="12" value="345" autocomplete="off" autocapitalize="off"></label> <output id="learn-answer"></output></div>
      <div class="learn-scroll" tabindex="0" role="group" aria-label="${say("Cross-attention")}"><table id="learn-map"></table></div>
      <p class="learn-note">${say("cross-attention: a row for each letter that is written, a column for each that is read; ⏎ is the end")}</p>
      <p class="learn-note">${say("An encoder-decoder of 6,000 weights learns in your browser, from nothing. Take a part away, which begins anew, and see what it was for.")}</p>`;
  const $ = (id) => document.getElementById(`learn-${id}`),
    inputs = [...document.querySelectorAll("[data-key]")];
  let worker,
    seed = 0,
    ran = "",
    curve = [],
    total = 1,
    number = 0,
    running = false,
    wanted = false,
    letters = [],
    every = 1,
    riddle = null,
    before = null;

  const value = (input) => (input.type === "checkbox" ? input.checked : Number(input.value));
  const settings = () => ({
    task: $("task").value,
    seed,
    ...Object.fromEntries(inputs.map((input) => [input.dataset.key, value(input)])),
  });
  const change = () =>
    Object.fromEntries(
      Object.entries(settings()).filter(
        ([key, chosen]) => key in tasks.WHOLE && chosen !== tasks.WHOLE[key],
      ),
    );
  const same = (one, other) =>
    JSON.stringify(Object.entries(one).sort()) === JSON.stringify(Object.entries(other).sort());
  const made = (lacks) =>
    rows.filter((row) => row.task === $("task").value && same(row.change, lacks)); // of all seeds
  const send = (message) => worker?.postMessage(message);
  function begin(go = false) {
    worker ??= startWorker(source, show);
    if (curve.length > 9) before = { task: ran, curve };
    ran = $("task").value;
    [curve, wanted, running, every, riddle] = [[], go, false, 1, null];
    $("choices").hidden = true;
    send({ begin: settings(), number: (number += 1), own: $("own").value.trim().toLowerCase() });
    if (go) send({ run: true });
    compare();
  }

  const percent = (share) => `${(100 * share).toFixed(0)}%`;
  /** What was trained beforehand with these settings: how much of what was held out each seed got
   *  right. */
  function compare() {
    const found = made(change());
    const shares = found
      .map((row) =>
        say("{share} (seed {seed})", { share: percent(row.scores.at(-1)), seed: row.seed }),
      )
      .join(say(", "));
    $("before").textContent = found.length
      ? say("Trained beforehand, right in the end: {shares}", { shares })
      : say("Nothing was trained beforehand with these settings.");
  }

  const WHY = {
    // warmup, height of the rate, norms, residuals, positions: in the end; the others: with a
    // loss of nothing, and nothing right
    warmup: say(
      "Here the rate has its usual peak from the first update. That costs much with some seeds and little with others; try the rate × 10 to see what its height does.",
    ),
    rate: say(
      "The rate is too high for this model, with warmup and without: how high it is counts for more than how early.",
    ),
    positions: say(
      "Without positions the encoder knows which letters it reads, but not in which order.",
    ),
    causal: say(
      "In training it saw the letter that it was to predict, because nothing hid it, and learned to repeat that. Now it isn't there.",
    ),
    shift: say(
      "In training it read the very letter that it was to predict, and learned to repeat that. Now it repeats what it wrote.",
    ),
  };
  const text = (names) =>
      names
        .filter((name) => name !== "</s>")
        .join("")
        .replaceAll("<s>", "·"),
    shown = (name) => name?.replace("</s>", "⏎") ?? "";

  // --- the chart: loss above, rate below, each with its axis ---

  const SVG = "http://www.w3.org/2000/svg",
    [LEFT, WIDTH, LOW, TALL, FLOOR, STRIP] = [40, 294, 126, 118, 182, 36],
    HIGHEST = 3 * tasks.PEAK;
  const shape = (kind, attributes, content = "") => {
    const node = $("curve").appendChild(document.createElementNS(SVG, kind));
    for (const [key, one] of Object.entries(attributes)) node.setAttribute(key, one);
    node.textContent = content;
    return node;
  };
  shape("path", {
    d: `M${LEFT} 6V${LOW}H${LEFT + WIDTH}M${LEFT} ${FLOOR - STRIP}V${FLOOR}H${LEFT + WIDTH}`,
    fill: "none",
    stroke: "var(--rule)",
  });
  const label = (x, y, words, anchor = "end") =>
    shape("text", { x, y, "text-anchor": anchor, "font-size": 10, fill: "var(--muted)" }, words);
  const lossAt = (loss) => LOW - TALL * Math.min(1, loss / 4),
    rateAt = (rate) => FLOOR - STRIP * Math.min(1, rate / HIGHEST),
    stepAt = (step) => LEFT + (WIDTH * step) / total;
  for (const loss of [0, 1, 2, 3, 4]) label(LEFT - 4, lossAt(loss) + 3, loss);
  for (const rate of [0, tasks.PEAK]) label(LEFT - 4, rateAt(rate) + 3, rate.toFixed(rate ? 4 : 0));
  const ends = [0.5, 1].map((part) => [
    part,
    label(LEFT + WIDTH * part, 195, "", part === 1 ? "end" : "middle"),
  ]);
  const guessing = label(LEFT + WIDTH, 0, ""),
    above = label(LEFT + WIDTH / 2, FLOOR - STRIP + 12, "", "middle");
  const line = (width, dashes, colour) =>
    shape("polyline", {
      fill: "none",
      stroke: `var(--${colour})`,
      "stroke-width": width,
      "stroke-dasharray": dashes,
    });
  const [rateLine, wholeLine, lackLine, beforeLine, lossLine] = [
    line(1.2, "none", "muted"),
    line(1.4, "1.5 2.5", "ink"),
    line(1.4, "5 3", "warning"),
    line(1, "none", "link"),
    line(2.2, "none", "link"),
  ];
  const points = (node, list) =>
    node.setAttribute(
      "points",
      list.map((pair) => pair.map((one) => one.toFixed(1)).join(",")).join(" "),
    );
  const stretches = (row) =>
    row?.losses.map((loss, i) => [stepAt((total * (i + 0.5)) / row.losses.length), lossAt(loss)]) ??
    [];
  function draw({ step }) {
    points(
      lossLine,
      curve.map(([at, loss]) => [stepAt(at), lossAt(loss)]),
    );
    points(
      rateLine,
      curve.map(([at, , rate]) => [stepAt(at), rateAt(rate)]),
    );
    if (step > 0 && curve.length > 9) return; // the rest stays as it is
    const lacks = riddle?.change ?? change();
    points(wholeLine, stretches(made({})[0]));
    points(
      beforeLine,
      before?.task === ran && !riddle
        ? before.curve.map(([at, loss]) => [stepAt(at), lossAt(loss)])
        : [],
    );
    points(lackLine, same(lacks, {}) ? [] : stretches(made(lacks)[riddle?.seed ?? 0]));
    for (const [part, node] of ends)
      node.textContent =
        part < 1
          ? (total * part).toLocaleString("en")
          : say("{n} updates", { n: total.toLocaleString("en") });
    guessing.setAttribute("y", lossAt(Math.log(letters.length || 20)) - 4);
    guessing.textContent = letters.length
      ? say("{loss}: guessing among {count} tokens", {
          loss: Math.log(letters.length).toFixed(2),
          count: letters.length,
        })
      : "";
    const peak = settings().rate * tasks.PEAK;
    above.textContent =
      peak > HIGHEST && !riddle ? say("up to {rate}", { rate: peak.toFixed(3) }) : "";
  }

  /** Show rows of cells. */
  function fill(table, lines) {
    table.replaceChildren();
    for (const cells of lines) {
      const row = table.insertRow();
      for (const { scope, words = "", kind = "", weight } of cells) {
        const cell = row.appendChild(document.createElement(scope ? "th" : "td"));
        Object.assign(cell, { textContent: words, className: kind }, scope && { scope });
        if (weight !== undefined) cell.style.setProperty("--w", weight.toFixed(2));
      }
    }
  }
  function map({ own }) {
    // the mean of the heads
    if (!own) return fill($("map"), []);
    const columns = [...own.source, "</s>"],
      head = columns.map((letter) => ({ scope: "col", words: shown(letter) }));
    const body = own.weights.map((heads, t) => [
      { scope: "row", words: shown(own.found[t]) },
      ...columns.map((_, s) => ({
        weight: heads.reduce((sum, weights) => sum + weights[s], 0) / heads.length,
      })),
    ]);
    while (body.length < own.target.length + 1) body.push([{}]); // as high as it will be
    fill($("map"), [[{}, ...head], ...body]);
  }
  function show(data) {
    if (data.number !== number || riddle) return; // of the run before, which was under way
    curve.push(...data.losses.filter(([step]) => step % every === 0 || step === 1));
    if (curve.length > 400) {
      every *= 2;
      curve = curve.filter(([step]) => step % every === 0);
    }
    ({ total, running, letters } = data);
    const finished = data.step >= total,
      last = data.losses.at(-1) ?? curve.at(-1);
    wanted &&= !finished;
    $("run").textContent = running ? say("❚❚ Pause") : say("▶ Train");
    // a button that is disabled loses it
    if (finished && document.activeElement === $("run")) $("again").focus();
    $("run").disabled = $("step").disabled = finished;
    $("state").ariaLive = running ? "off" : "polite";
    $("state").textContent = say(
      last
        ? "update {step} of {total}, loss {loss}, seed {seed}"
        : "update {step} of {total}, seed {seed}",
      {
        seed,
        step: data.step.toLocaleString("en"),
        total: total.toLocaleString("en"),
        loss: last?.[1].toFixed(3),
      },
    );
    if ("exact" in data) {
      const wrong = data.exact < 1,
        lacks = Object.keys(change()),
        blind = data.exact < 0.1 && last?.[1] < 0.1,
        high = settings().rate > 1 && data.exact < 0.9;
      const why = lacks.findLast(
        (key) =>
          WHY[key] &&
          (blind
            ? key === "causal" || key === "shift"
            : finished && (key === "warmup" || key === "positions" || (key === "rate" && high))),
      );
      $("exact").textContent = [
        say(
          wrong
            ? "Of those it has never learned from: {score}. Below, the wrong ones first."
            : "Of those it has never learned from: {score}",
          { score: say("{share}% right", { share: (100 * data.exact).toFixed(0) }) },
        ),
        ...(why ? [WHY[why]] : []),
      ].join("\n");
      examples(
        data.examples.map(({ source, target, found }) => [
          source,
          target,
          found.at(-1) === "</s>" ? text(found) : `${text(found)}…`,
        ]),
      );
    }
    draw(data);
    $("answer").textContent = data.own
      ? `${data.own.source} → ${text(data.own.found) || "–"}`
      : $("task").value === "numbers"
        ? say("Write a number from 0 to 999.")
        : say("Write 1 to 12 letters, each from a to j.");
    map(data);
    requestAnimationFrame(() => requestAnimationFrame(() => send({ drawn: data.turn })));
  }
  const examples = (list) =>
    fill(
      $("examples"),
      list.map(([source, target, found]) => [
        { words: source },
        {
          kind: found === target ? "right" : "wrong",
          words: `${found || "–"} ${found === target ? "✓" : "✗"}`,
        },
      ]),
    );

  // --- a riddle: which part does a model lack that was trained beforehand? ---

  function guess() {
    const all = rows.filter(
      (row) =>
        row.task === $("task").value &&
        Object.keys(row.change).length === 1 &&
        row.scores.at(-1) < 0.9,
    );
    if (!all.length) return;
    for (const input of inputs)
      input[input.type === "checkbox" ? "checked" : "value"] = tasks.WHOLE[input.dataset.key];
    begin();
    fill($("map"), []);
    $("state").textContent = $("answer").textContent = "";
    $("run").textContent = say("▶ Train"); // the training under way has ended
    $("run").disabled = $("step").disabled = false;
    riddle = all[Math.floor(Math.random() * all.length)];
    draw({ step: 0 });
    $("exact").textContent = say(
      "The dashed curve is that of a model that lacks one thing. In the end {share} of those it has never learned from were right; five of them below. What is missing?",
      { share: percent(riddle.scores.at(-1)) },
    );
    $("before").textContent = "";
    examples(
      riddle.examples.map(([source, target, found]) => [
        source,
        target,
        text([found.replace("</s>", "")]),
      ]),
    );
    const keys = [...new Set(all.map((row) => Object.keys(row.change)[0]))],
      names = {
        ...Object.fromEntries(PARTS),
        rate: say("a rate of the usual height"),
        h: say("the second head"),
      };
    $("choices").hidden = false;
    $("choices").replaceChildren(
      ...keys.map((key) => {
        const button = Object.assign(document.createElement("button"), {
          type: "button",
          textContent: names[key],
        });
        button.addEventListener("click", () => {
          const right = key in riddle.change;
          button.textContent = `${names[key]} ${right ? "✓" : "✗"}`;
          if (right)
            $("exact").textContent = [
              say("Yes. Take it away yourself, and train."),
              WHY[key] ?? "",
            ].join("\n");
        });
        return button;
      }),
    );
  }

  // --- what the reader does ---

  $("run").addEventListener("click", () =>
    riddle ? begin(true) : send({ run: (wanted = !running) }),
  );
  $("step").addEventListener("click", () =>
    riddle ? begin() : send({ run: (wanted = false), step: true }),
  );
  $("again").addEventListener("click", () => begin());
  $("other").addEventListener("click", () => {
    seed += 1;
    begin(wanted);
  });
  $("guess").addEventListener("click", guess);
  // who was training goes on with the new model
  for (const input of inputs) input.addEventListener("change", () => begin(wanted));
  $("task").addEventListener("change", () => {
    const numbers = $("task").value === "numbers";
    shrink();
    $("ask").textContent = numbers
      ? say("Your number, 0 to 999")
      : say("Your letters, a to j (it learns from words of 3 to 8)");
    $("own").value = numbers ? "345" : "abcdefg";
    begin();
  });
  $("own").addEventListener("input", () => send({ own: $("own").value.trim().toLowerCase() }));
  new IntersectionObserver((entries) => {
    // nothing is computed out of sight
    const inSight = entries.at(-1).isIntersecting;
    if (inSight && !worker) begin();
    else if (wanted) send({ run: inSight });
  }).observe(document.body);
}

start(...globalThis.GIVEN);
