// The panel in which a model learns before the reader's eyes: a worker trains, and a document in a frame draws what it reports.
// In that of the page, each new letter would have the browser look over tens of thousands of elements.
(() => {
  const section = document.getElementById("a-second-task-german-numbers")?.closest("section");
  if (!section || typeof Worker === "undefined") return;

  const UPDATES = { numbers: 2500, copy: 500, reverse: 1200 }, FACTOR = 0.7, WARMUP = 100, D_MODEL = 16;
  const SHOWN = 5; // held-out examples in the list

  /** What the worker does; its text goes to it together with that of Learn and Tasks. */
  function work(updates, factor, warmup, d_model, shown) {
    const learn = Learn(), tasks = Tasks(learn);
    let task, model, settings, losses, run, running = false, turn = 0, own = "";

    const lr = (step) => learn.rate(step, d_model, factor, settings.warmup ? warmup : 1) * Math.min(1, 2 * (1 - step / updates[settings.task])) || 0;
    const answer = (pair, withMap) => {
      const { ids, weights } = learn.greedy_decode(model, pair.src, pair.tgt.length), names = ids.map((i) => task.letters[i]);
      return { source: pair.source, target: pair.target, found: names, ...(withMap && { weights }) }; // only one map is shown
    };
    function report(scored) {
      const pair = own && task.of(own);
      postMessage({ run, turn, step: model.step, total: updates[settings.task], losses, running, letters: task.letters, own: pair ? answer(pair, true) : null,
        examples: task.held_out.slice(0, shown).map((pair) => answer(pair)), exact: scored ? learn.exact(model, task.held_out) : null });
      losses = [];
    }
    function step() {
      const at = model.step + 1;
      losses.push([at, learn.update(model, task.batch(8), { lr: lr(at), shift: settings.shift }), lr(at)]);
      running &&= at < updates[settings.task];
    }
    let scored = 0;
    function go() { // a turn; the next one waits for the page to draw: both at once would stutter where processors are few
      if (!running) return;
      turn += 1;
      for (const end = performance.now() + 250; running && performance.now() < end;) step();
      const now = performance.now(), due = !running || now - scored > 700;
      if (due) scored = now;
      report(due);
    }
    onmessage = ({ data }) => {
      if (data.begin) {
        [settings, losses, running, run] = [data.begin, [], false, data.number];
        task = tasks.make(settings.task, settings.seed);
        model = learn.make_model({ vocab: task.letters.length, d_model, d_ff: 2 * d_model, ...settings });
      }
      if ("drawn" in data) return data.drawn === turn && go();
      if ("own" in data) own = data.own;
      if (data.step && model.step < updates[settings.task]) step();
      if ("run" in data) {
        const idle = !running;
        running = data.run && model.step < updates[settings.task];
        if (running && idle) return go();
      }
      if (!running) report(true);
    };
  }

  /** What the document in the frame does; `source` is the text of the worker. */
  function panel(source) {
    document.body.innerHTML = `
      <div class="learn-row">
        <label>${say("Task")} <select id="learn-task"><option value="numbers">${say("German numbers")}</option><option value="copy">${say("copying")}</option><option value="reverse">${say("reversing")}</option></select></label>
        <button type="button" id="learn-run">${say("▶ Train")}</button> <button type="button" id="learn-step">${say("Step")}</button>
        <button type="button" id="learn-again">${say("Restart")}</button> <button type="button" id="learn-other">${say("Other seed")}</button>
        <span id="learn-state" role="status"></span>
      </div>
      <div class="learn-row" role="group" aria-label="${say("What a fresh model has")}">
        <span>${say("A fresh model with")}</span>
        ${[["warmup", say("warmup")], ["positions", say("positions")], ["causal", say("causal mask")], ["shift", say("the shift")]].map(([key, name]) => `<label><input type="checkbox" data-key="${key}" checked> ${name}</label>`).join(" ")}
      </div>
      <div class="learn-parts">
        <div><svg id="learn-curve" viewBox="0 0 320 130" role="img" aria-label="${say("Loss and learning rate over the updates")}"><path d="M4 4V124H316M4 ${124 - 118 / 1.3}H316" fill="none" stroke="var(--rule)"/><g font-size="9" text-anchor="end" fill="var(--muted)"><text x="316" y="30" id="learn-guess"></text><text x="316" y="121" id="learn-total"></text></g></svg>
          <p class="learn-note">${say("thick: loss, in nats per letter; dotted: that of the run before; thin: learning rate; all over the updates")}</p></div>
        <div><p class="learn-note" id="learn-exact"></p><table id="learn-examples"></table></div>
      </div>
      <div class="learn-row"><label><span id="learn-ask">${say("Your number, 0 to 999")}</span> <input id="learn-own" size="12" value="345" autocomplete="off" autocapitalize="off"></label> <output id="learn-answer"></output></div>
      <div class="learn-scroll" tabindex="0" role="group" aria-label="${say("Cross-attention")}"><table id="learn-map"></table></div>
      <p class="learn-note">${say("cross-attention: a row for each letter that is written, a column for each that is read; ⏎ is the end")}</p>
      <p class="learn-note">${say("An encoder-decoder of 6,000 weights learns in your browser, from nothing. Take a part away, which begins anew, and see what it was for.")}</p>`;
    const $ = (id) => document.getElementById(`learn-${id}`), boxes = [...document.querySelectorAll("[data-key]")];
    let worker, seed = 0, curve = [], before = [], score = "", earlier = "", total = 1, number = 0, running = false, wanted = false, letters = [], every = 1, tallest = 0;

    const send = (message) => worker?.postMessage(message);
    function begin() {
      if (!worker) {
        const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
        worker = new Worker(address);
        URL.revokeObjectURL(address);
        worker.onmessage = ({ data }) => show(data);
      }
      if (curve.length > 20) [before, earlier] = [curve, say("; the run before: {score}", { score })]; // what a part is for is seen beside it
      [curve, wanted, running, every] = [[], false, false, 1];
      const settings = { task: $("task").value, seed, ...Object.fromEntries(boxes.map((box) => [box.dataset.key, box.checked])) };
      send({ begin: settings, number: (number += 1), own: $("own").value.trim().toLowerCase() });
    }

    const WHY = { // warmup and positions: in the end; the others: with a loss of nothing, and nothing right
      warmup: say("Without warmup the rate is highest at the first updates, when Adam has averaged only a few gradients."),
      positions: say("Without positions the encoder knows which letters it reads, but not in which order."),
      causal: say("In training it saw the letter that it was to predict, because nothing hid it, and learned to repeat that. Now it isn't there."),
      shift: say("In training it read the very letter that it was to predict, and learned to repeat that. Now it repeats what it wrote."),
    };
    const text = (names) => names.filter((name) => name !== "</s>").join("").replaceAll("<s>", "·"), shown = (name) => name?.replace("</s>", "⏎") ?? "";
    const lines = [1, 1.2, 2.2].map((width, i) => { // rate, loss of the run before, loss
      const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
      for (const [key, value] of Object.entries({ fill: "none", stroke: `var(--${i ? "link" : "muted"})`, "stroke-width": width, "stroke-dasharray": i === 1 ? "2 3" : "none" })) line.setAttribute(key, value);
      return $("curve").appendChild(line);
    });
    function draw({ step }) {
      $("guess").textContent = say("{loss}: guessing among {count} tokens", { loss: Math.log(letters.length).toFixed(2), count: letters.length });
      $("total").textContent = total.toLocaleString("en");
      const highest = Math.log(letters.length || 20) * 1.3, top = Math.max(...curve.map((row) => row[2]), 1e-9);
      [[curve, 2, top], [before, 1, highest], [curve, 1, highest]].forEach(([rows, at, scale], i) => {
        if (rows === before && step > 0) return; // it stays as it is
        lines[i].setAttribute("points", rows.map((row) => `${(4 + (312 * row[0]) / total).toFixed(1)},${(124 - 118 * Math.min(1, row[at] / scale)).toFixed(1)}`).join(" "));
      });
    }
    /** Show rows of cells. */
    function fill(table, rows) {
      table.replaceChildren();
      for (const cells of rows) {
        const row = table.insertRow();
        for (const { scope, words = "", kind = "", weight } of cells) {
          const cell = row.appendChild(document.createElement(scope ? "th" : "td"));
          Object.assign(cell, { textContent: words, className: kind }, scope && { scope });
          if (weight !== undefined) cell.style.setProperty("--w", weight.toFixed(2));
        }
      }
    }
    function map({ own }) { // the mean of the heads
      if (!own) return fill($("map"), []);
      const columns = [...own.source, "</s>"], head = columns.map((letter) => ({ scope: "col", words: shown(letter) }));
      const rows = own.weights.map((heads, t) => [{ scope: "row", words: shown(own.found[t]) },
        ...columns.map((_, s) => ({ weight: heads.reduce((sum, head) => sum + head[s], 0) / heads.length }))]);
      while (rows.length < own.target.length + 1) rows.push([{}]); // as high as it will be
      fill($("map"), [[{}, ...head], ...rows]);
    }
    function show(data) {
      if (data.run !== number) return; // of the run before, which was under way
      curve.push(...data.losses.filter(([step]) => step % every === 0 || step === 1));
      if (curve.length > 400) {
        every *= 2;
        curve = curve.filter(([step]) => step % every === 0);
      }
      ({ total, running, letters } = data);
      const finished = data.step >= total, last = data.losses.at(-1) ?? curve.at(-1);
      $("run").textContent = running ? say("❚❚ Pause") : say("▶ Train");
      if (finished && document.activeElement === $("run")) $("again").focus(); // a button that is disabled loses it
      $("run").disabled = $("step").disabled = finished;
      $("state").ariaLive = running ? "off" : "polite";
      $("state").textContent = say(last ? "update {step} of {total}, loss {loss}, seed {seed}" : "update {step} of {total}, seed {seed}", { seed, step: data.step.toLocaleString("en"), total: total.toLocaleString("en"), loss: last?.[1].toFixed(3) });
      if (data.exact !== null) {
        score = say("{share}% right", { share: (100 * data.exact).toFixed(0) });
        const without = boxes.filter((box) => !box.checked).map((box) => box.dataset.key), blind = data.exact < 0.1 && last?.[1] < 0.1;
        const why = without.findLast((key) => (blind ? key === "causal" || key === "shift" : finished && (key === "warmup" || key === "positions")));
        $("exact").textContent = [say("Of those it has never learned from: {score}", { score }) + earlier, ...(why ? [WHY[why]] : [])].join("\n");
      }
      draw(data);
      examples(data);
      map(data);
      requestAnimationFrame(() => requestAnimationFrame(() => send({ drawn: data.turn })));
    }
    function examples(data) {
      fill($("examples"), data.examples.map(({ source, target, found }) => {
        const right = text(found) === target && found.at(-1) === "</s>";
        return [{ words: source }, { kind: right ? "right" : "wrong", words: `${text(found) || "–"} ${right ? "✓" : "✗"}` }];
      }));
      $("answer").textContent = data.own ? `${data.own.source} → ${text(data.own.found) || "–"}`
        : $("task").value === "numbers" ? say("Write a number from 0 to 999.") : say("Write 1 to 12 letters, each from a to j.");
    }

    // --- what the reader does ---

    $("run").addEventListener("click", () => send({ run: (wanted = !running) }));
    $("step").addEventListener("click", () => send({ run: (wanted = false), step: true }));
    $("again").addEventListener("click", begin);
    $("other").addEventListener("click", () => { seed += 1; begin(); });
    for (const box of boxes) box.addEventListener("change", begin);
    $("task").addEventListener("change", () => {
      const numbers = $("task").value === "numbers";
      [curve, before, earlier, tallest] = [[], [], "", 0];
      $("ask").textContent = numbers ? say("Your number, 0 to 999") : say("Your letters, a to j (it learns from words of 3 to 8)");
      $("own").value = numbers ? "345" : "abcdefg";
      begin();
    });
    $("own").addEventListener("input", () => send({ own: $("own").value.trim().toLowerCase() }));
    new IntersectionObserver((entries) => { // nothing is computed out of sight
      const inSight = entries.at(-1).isIntersecting;
      if (inSight && !worker) begin();
      else if (wanted) send({ run: inSight });
    }).observe(document.body);
    let width = 0;
    new ResizeObserver(() => { // at one width the frame only grows, so that the page, which is long, is seldom laid out anew
      const box = document.body;
      if (box.offsetWidth !== width) [width, tallest] = [box.offsetWidth, 0];
      if (box.offsetHeight > tallest) parent.postMessage({ height: (tallest = box.offsetHeight) }, "*");
    }).observe(document.body);
    addEventListener("message", ({ source, data }) => { if (source === parent && typeof data?.theme === "string") document.documentElement.dataset.theme = data.theme; });
  }

  // --- the frame ---

  const source = `const Learn = ${Learn}; const Tasks = ${Tasks}; (${work})(${JSON.stringify(UPDATES)}, ${FACTOR}, ${WARMUP}, ${D_MODEL}, ${SHOWN})`;
  const inScript = (value) => JSON.stringify(value).replace(/</g, "\\u003c"), style = ["base", "learn"].map((id) => document.getElementById(`style-${id}`).textContent).join("");
  const root = document.documentElement, theme = () => root.dataset.theme ?? "";
  const frame = document.createElement("iframe");
  Object.assign(frame, { className: "learn", title: say("A model that learns"), sandbox: "allow-scripts" });
  frame.srcdoc = `<!DOCTYPE html><html lang="${root.lang}" data-theme="${theme()}"><title>${say("A model that learns")}</title><style>${style}</style><body>
    <script>globalThis.WORDS = ${inScript(globalThis.WORDS ?? {})}; globalThis.say = ${say}; (${panel})(${inScript(source)});<\/script></body></html>`;
  section.after(frame);
  addEventListener("message", ({ source, data }) => { if (source === frame.contentWindow && data?.height > 0) frame.style.height = `${data.height + 2}px`; });
  const tell = () => frame.contentWindow?.postMessage({ theme: theme() }, "*");
  frame.addEventListener("load", tell); // for a switch that came too early
  new MutationObserver(tell).observe(root, { attributeFilter: ["data-theme"] });
})();
