// "Run it here": a worker does what one_screen.py does, and its lines appear as they would in a
// terminal.

import source from "bundle:../learn/one_screen.js";
import { byId, el } from "../page/dom.js";
import { say } from "../page/language.js";
import { startWorker } from "../page/worker.js";

/** @import { Line } from "../learn/one_screen.js" */

const PLACE = `<div class="learn-row"><button type="button" id="run-button">${say("▶ Run")}</button>
  <label>${say("seed")} <input id="run-seed" type="number" min="1" max="2147483646" step="1" size="6"></label></div>
  <pre id="run-out" tabindex="0" role="log" aria-label="${say("What it prints")}"></pre>`;

/** What is printed of a line that the worker posts. @param {Line} line */
function lines_of(line) {
  if (line.kind === "size") {
    const { parameters, seed } = line;
    return [say("{count} parameters, seed {seed}", { count: parameters, seed })];
  }
  if (line.kind === "progress")
    return [
      say("update {step}, {left} s left: loss {loss}, rate {rate}, {word} -> {found}", {
        step: String(line.step).padStart(4),
        left: line.left.toFixed(0).padStart(3),
        loss: line.loss.toFixed(2),
        rate: line.rate.toFixed(4),
        word: line.word,
        found: line.written,
      }),
    ];
  const { held, right, last, averaged, word, text, map } = line;
  const shades = map.map((row) => row.map((weight) => " ░▒▓█"[Math.round(4 * weight)]).join(" "));
  return [
    say(
      "Right of {held} numbers that it has never seen: {right}; with the mean of the last {last} checkpoints: {averaged}",
      { held, right, last, averaged },
    ),
    say("Where it looks for each digit (cross-attention, mean of the heads):"),
    `    ${[...word, ">"].join(" ")}`,
    ...shades.map((row, i) => `  ${`${text}>`[i] ?? " "} ${row}`),
  ];
}

export function startOneScreen() {
  const section = document.getElementById("run-it-here")?.closest("section");
  if (!section) return;
  const settings = SETTINGS_HERE; // put in by listing.py
  section.append(el("div", { id: "run-here", innerHTML: PLACE }));
  const button = byId("run-button");
  const seed = /** @type {HTMLInputElement} */ (byId("run-seed"));
  const out = byId("run-out");
  /** @type {Worker | undefined} */
  let worker;
  seed.value = String(settings.seed);

  function print(/** @type {string} */ line) {
    const below = out.scrollTop + out.clientHeight >= out.scrollHeight - 4;
    out.textContent += `${line}\n`;
    if (below) out.scrollTop = out.scrollHeight; // follows, unless one has scrolled up
  }
  function stop() {
    worker?.terminate();
    worker = undefined;
    button.textContent = say("▶ Run");
  }
  button.addEventListener("click", () => {
    if (worker) return stop();
    const chosen = Math.trunc(Number(seed.value));
    seed.value = String(chosen > 0 && chosen < 2 ** 31 - 1 ? chosen : settings.seed);
    worker = startWorker(source, (/** @type {Line} */ line) => {
      lines_of(line).forEach(print);
      if (line.kind === "result") stop();
    });
    out.textContent = "";
    button.textContent = say("■ Stop");
    worker.postMessage({ settings, seed: Number(seed.value) });
  });
}
