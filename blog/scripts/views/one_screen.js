// "Run it here": a worker does what one_screen.py does, and its lines appear as they would in a
// terminal.

import source from "bundle:../learn/one_screen_worker.js";
import { say } from "../page/language.js";
import { startWorker } from "../page/worker.js";

export function startOneScreen() {
  const section = document.getElementById("run-it-here")?.closest("section");
  if (!section || typeof Worker === "undefined") return;
  const settings = SETTINGS_HERE; // put in by listing.py

  const place = section.appendChild(document.createElement("div"));
  place.id = "run-here";
  place.innerHTML = `<div class="learn-row"><button type="button" id="run-button">${say("▶ Run")}</button>
    <label>${say("seed")} <input id="run-seed" type="number" min="1" max="2147483646" step="1" size="6"></label></div>
    <pre id="run-out" tabindex="0" role="log" aria-label="${say("What it prints")}"></pre>`;
  const [button, seed, out] = ["button", "seed", "out"].map((name) =>
    document.getElementById(`run-${name}`),
  );
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
    worker = startWorker(source, show);
    out.textContent = "";
    button.textContent = say("■ Stop");
    worker.postMessage({ settings, seed: Number(seed.value) });
  });
}
