// "Run it here": a worker does what one_screen.py does, and its lines appear as they would in a
// terminal.
(() => {
  const section = document.getElementById("run-it-here")?.closest("section");
  if (!section || typeof Worker === "undefined") return;
  const settings = SETTINGS_HERE; // put in by listing.py

  /** What the worker does; its text goes to it together with that of Learn, Tasks and OneScreen. */
  function work(settings) {
    const learn = Learn(Float64Array, { PAD: -1, BOS: 0, EOS: 1 }),
      tasks = Tasks(learn);
    onmessage = ({ data }) => {
      const one = OneScreen(learn, tasks, settings, data.seed),
        word = (n) => tasks.german_number(n),
        begin = performance.now();
      const { updates, every, last, held } = settings;
      postMessage({
        parameters: Object.values(one.model.parameters).reduce(
          (sum, { data: numbers }) => sum + numbers.length,
          0,
        ),
        seed: data.seed,
      });
      let n;
      for (let step = 1; step <= updates; step++) {
        const loss = one.update();
        if (step % every) continue;
        n = one.held_out[step / every];
        const left = ((performance.now() - begin) / 1000) * (updates / step - 1);
        postMessage({
          step,
          left,
          loss,
          rate: one.rate(step),
          word: word(n),
          found: one.read(n).text,
        });
      }
      const right = one.right();
      one.average();
      const { text, map } = one.read(n);
      postMessage({ held, right, last, averaged: one.right(), word: word(n), text, map });
    };
  }

  const place = section.appendChild(document.createElement("div"));
  place.id = "run-here";
  place.innerHTML = `<div class="learn-row"><button type="button" id="run-button">${say("▶ Run")}</button>
    <label>${say("seed")} <input id="run-seed" type="number" min="1" max="2147483646" step="1" size="6"></label></div>
    <pre id="run-out" tabindex="0" role="log" aria-label="${say("What it prints")}"></pre>`;
  const [button, seed, out] = ["button", "seed", "out"].map((name) =>
    document.getElementById(`run-${name}`),
  );
  const source = `const Learn = ${Learn}; const Tasks = ${Tasks}; const OneScreen = ${OneScreen}; (${work})(${JSON.stringify(settings)})`;
  let worker;
  seed.value = settings.seed;

  function print(line) {
    const below = out.scrollTop + out.clientHeight >= out.scrollHeight - 4;
    out.textContent += `${line}\n`;
    if (below) out.scrollTop = out.scrollHeight; // follows, unless one has scrolled up
  }
  function stop() {
    worker?.terminate();
    worker = undefined;
    button.textContent = say("▶ Run");
  }
  function show({ parameters, step, held, ...about }) {
    if (parameters) print(say("{count} parameters, seed {seed}", { count: parameters, ...about }));
    else if (step) {
      const places = {
        step: String(step).padStart(4),
        left: about.left.toFixed(0).padStart(3),
        loss: about.loss.toFixed(2),
        rate: about.rate.toFixed(4),
      };
      print(
        say("update {step}, {left} s left: loss {loss}, rate {rate}, {word} -> {found}", {
          ...places,
          word: about.word,
          found: about.found,
        }),
      );
    } else {
      print(
        say(
          "Right of {held} numbers that it has never seen: {right}; with the mean of the last {last} checkpoints: {averaged}",
          { held, ...about },
        ),
      );
      print(say("Where it looks for each digit (cross-attention, mean of the heads):"));
      print(`    ${[...about.word, ">"].join(" ")}`);
      about.map.forEach((row, i) =>
        print(
          `  ${`${about.text}>`[i] ?? " "} ${row.map((weight) => " ░▒▓█"[Math.round(4 * weight)]).join(" ")}`,
        ),
      );
      stop();
    }
  }
  button.addEventListener("click", () => {
    if (worker) return stop();
    const chosen = Math.trunc(Number(seed.value));
    seed.value = chosen > 0 && chosen < 2 ** 31 - 1 ? chosen : settings.seed;
    const address = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    worker = new Worker(address);
    URL.revokeObjectURL(address);
    worker.onmessage = ({ data }) => show(data);
    out.textContent = "";
    button.textContent = say("■ Stop");
    worker.postMessage({ seed: Number(seed.value) });
  });
})();
