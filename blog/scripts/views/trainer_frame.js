// The document of the trainer, in its frame.

import source from "bundle:../learn/trainer_worker.js";
import { PEAK, WHOLE } from "../learn/tasks.js";
import { percent, watch } from "../page/dom.js";
import { shrink } from "../page/in_frame.js";
import { say } from "../page/language.js";
import { startWorker } from "../page/worker.js";
import { examples_of } from "./frame_parts.js";
import { Chart } from "./trainer_curve.js";
import { $, draw_map, draw_screen, inputs, TASKS, text_of, WHY } from "./trainer_screen.js";

/** @import { Settings } from "../learn/tasks.js" */
/** @import { Message, Report } from "../learn/trainer_worker.js" */
/** @import { Update } from "./trainer_curve.js" */
/** Settings that differ from the whole model's. @typedef {Record<string, unknown>} Change */
/** A training that was made beforehand: a row of learned.jsonl.
 *  @typedef {{ task: string, seed: number, change: Change, losses: number[],
 *    scores: number[] }} Row */

/** @type {Record<string, number | boolean>} */
const USUAL = WHOLE;
const LONGEST_WAIT_MS = 100; // for a drawing
const MOST_POINTS = 400; // of a curve
const FEW_POINTS = 9; // a run with more is kept beside the next one

const text_of_change = (/** @type {Change} */ change) =>
  JSON.stringify(Object.entries(change).sort());

/** @param {number} number the run's */
const fresh_run = (number, task = "") => ({
  number,
  task,
  /** @type {Update[]} every so many of the updates */
  curve: [],
  every: 1,
  total: 1,
  running: false,
  tokens: 0,
});

class Trainer {
  run = fresh_run(0);
  /** @type {{ task: string, curve: Update[] } | null} */
  run_before = null;
  seed = 0;
  wanted = false; // the reader wants it to train, in sight or not
  /** @type {Worker | null} */
  worker = null;
  chart = new Chart($("curve"), PEAK);

  constructor(/** @type {Row[]} */ rows) {
    this.rows = rows;
    this.listen();
  }

  // --- what is chosen ---

  /** @returns {Settings} */
  settings() {
    const value = (/** @type {HTMLInputElement | HTMLSelectElement} */ input) =>
      input instanceof HTMLInputElement ? input.checked : Number(input.value);
    const parts = inputs().map((input) => [input.dataset.key, value(input)]);
    return { task: $("task").value, seed: this.seed, ...Object.fromEntries(parts) };
  }

  /** What the fresh model has otherwise than the whole one. @returns {Change} */
  change() {
    const chosen = Object.entries(this.settings());
    return Object.fromEntries(
      chosen.filter(([key, value]) => key in USUAL && value !== USUAL[key]),
    );
  }

  /** Trainings of all seeds that were made beforehand. */
  rows_with(/** @type {Change} */ change) {
    const { value } = $("task");
    const text = text_of_change(change);
    return this.rows.filter((row) => row.task === value && text_of_change(row.change) === text);
  }

  own_text = () => $("own").value.trim().toLowerCase();

  // --- a run ---

  send = (/** @type {Message} */ message) => this.worker?.postMessage(message);

  begin(wanted = false) {
    const { run } = this;
    this.worker ??= startWorker(source, (/** @type {Report} */ report) => this.hear(report));
    if (run.curve.length > FEW_POINTS) this.run_before = run;
    const { total, tokens } = run;
    this.run = { ...fresh_run(run.number + 1, $("task").value), total, tokens };
    this.wanted = wanted;
    this.send({ begin: this.settings(), number: this.run.number, own: this.own_text() });
    if (wanted) this.send({ run: true });
    this.compare();
  }

  /** What was trained beforehand with these settings: how much of what was held out each seed got
   *  right. */
  compare() {
    const shares = this.rows_with(this.change())
      .map((row) =>
        say("{share} (seed {seed})", { share: percent(row.scores.at(-1) ?? 0, 0), seed: row.seed }),
      )
      .join(say(", "));
    $("before").textContent = shares
      ? say("Trained beforehand, right in the end: {shares}", { shares })
      : say("Nothing was trained beforehand with these settings.");
  }

  /** What the worker reports. @param {Report} report */
  hear(report) {
    const { run } = this;
    if (report.number !== run.number) return; // of the run before
    run.curve.push(...report.losses.filter(([step]) => step % run.every === 0 || step === 1));
    if (run.curve.length > MOST_POINTS) {
      run.every *= 2;
      run.curve = run.curve.filter(([step]) => step % run.every === 0);
    }
    run.total = report.total;
    run.running = report.running;
    run.tokens = report.letters.length;
    const last = report.losses.at(-1) ?? run.curve.at(-1);
    this.wanted &&= report.step < run.total;
    this.show_state(report, last);
    if (report.score)
      this.show_score(report.score, last?.[1] ?? Infinity, report.step >= run.total);
    this.draw(report.step);
    this.show_own(report);
    this.go_on_when_drawn(report.turn);
  }

  /** The worker's next turn waits until this one is on the screen; WebKit draws a frame as seldom
   *  as three times a second, so it doesn't wait long where somebody looks. */
  go_on_when_drawn(/** @type {number} */ turn) {
    const drawn = () => this.send({ drawn: turn }); // a second time it is of a turn that is over
    requestAnimationFrame(() => requestAnimationFrame(drawn));
    setTimeout(() => {
      if (!document.hidden) drawn();
    }, LONGEST_WAIT_MS);
  }

  /** @param {Report} report @param {Update | undefined} last */
  show_state({ step, total, running }, last) {
    const finished = step >= total;
    $("run").textContent = running ? say("❚❚ Pause") : say("▶ Train");
    // a button that is disabled loses it
    if (finished && document.activeElement === $("run")) $("again").focus();
    $("run").disabled = $("step").disabled = finished;
    $("state").ariaLive = running ? "off" : "polite";
    const [number, count] = [step, total].map((n) => n.toLocaleString("en"));
    const values = { seed: this.seed, step: number, total: count, loss: last?.[1].toFixed(3) };
    $("state").textContent = say(
      last
        ? "update {step} of {total}, loss {loss}, seed {seed}"
        : "update {step} of {total}, seed {seed}",
      values,
    );
  }

  /** @param {NonNullable<Report["score"]>} score @param {number} loss @param {boolean} finished */
  show_score({ exact, examples }, loss, finished) {
    const score = say("{share}% right", { share: (100 * exact).toFixed(0) });
    const wrong = exact < 1;
    const lines = [
      say(
        wrong
          ? "Of those it has never learned from: {score}. Below, the wrong ones first."
          : "Of those it has never learned from: {score}",
        { score },
      ),
    ];
    const why = this.why(exact, loss, finished);
    if (why) lines.push(WHY[why]);
    $("exact").textContent = lines.join("\n");
    const texts = examples.map(({ source, target, written }) => [
      source,
      target,
      written.at(-1) === "</s>" ? text_of(written) : `${text_of(written)}…`,
    ]);
    $("examples").replaceChildren(...examples_of(texts));
  }

  /** The missing part that explains what is seen. */
  why(/** @type {number} */ exact, /** @type {number} */ loss, /** @type {boolean} */ finished) {
    const blind = exact < 0.1 && loss < 0.1;
    const high = this.settings().rate > 1 && exact < 0.9;
    const seen = blind
      ? ["causal", "shift"]
      : finished
        ? ["warmup", "positions", ...(high ? ["rate"] : [])]
        : [];
    return Object.keys(this.change()).findLast((key) => seen.includes(key));
  }

  show_own(/** @type {Report} */ { own }) {
    $("answer").textContent = own
      ? `${own.source} → ${text_of(own.written) || "–"}`
      : TASKS[$("task").value].allowed;
    draw_map($("map"), own);
  }

  draw(/** @type {number} */ step) {
    const { run, chart, run_before } = this;
    chart.total = run.total;
    chart.draw_run(run.curve);
    if (step > 0 && run.curve.length > FEW_POINTS) return; // the rest stays as it is
    const lacks = this.change();
    const whole = Object.keys(lacks).length === 0;
    chart.draw_background({
      whole: this.rows_with({})[0]?.losses ?? [],
      lacking: whole ? [] : (this.rows_with(lacks)[0]?.losses ?? []),
      before: run_before?.task === run.task ? run_before.curve : [],
      tokens: run.tokens,
      highest: this.settings().rate * chart.peak,
    });
  }

  // --- what the reader does ---

  choose_task() {
    const { question, example } = TASKS[$("task").value];
    shrink();
    $("ask").textContent = question;
    $("own").value = example;
    this.begin();
  }

  listen() {
    $("run").onclick = () => {
      this.wanted = !this.run.running;
      this.send({ run: this.wanted });
    };
    $("step").onclick = () => {
      this.wanted = false;
      this.send({ run: false, step: true });
    };
    $("again").onclick = () => this.begin();
    $("other").onclick = () => {
      this.seed += 1;
      this.begin(this.wanted);
    };
    // who was training goes on with the new model
    for (const input of inputs()) input.onchange = () => this.begin(this.wanted);
    $("task").onchange = () => this.choose_task();
    $("own").oninput = () => this.send({ own: this.own_text() });
    // nothing is computed out of sight
    watch([document.body], (in_sight) => {
      if (in_sight && !this.worker) this.begin();
      else if (this.wanted) this.send({ run: in_sight });
    });
  }
}

draw_screen();
const [rows] = globalThis.GIVEN;
new Trainer(rows);
