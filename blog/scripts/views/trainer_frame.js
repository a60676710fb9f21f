// The document of the trainer, in its frame.

import source from "bundle:../learn/trainer_worker.js";
import { PEAK, WHOLE } from "../learn/tasks.js";
import { percent, watch } from "../page/dom.js";
import { shrink } from "../page/in_frame.js";
import { say } from "../page/language.js";
import { asker } from "../page/worker.js";
import { examples_of } from "./frame_parts.js";
import { Chart } from "./trainer_curve.js";
import { $, draw_map, draw_screen, inputs, TASKS, text_of, WHY } from "./trainer_screen.js";

/** @import { Settings, Update } from "../learn/tasks.js" */
/** @import { Message, Report } from "../learn/trainer_worker.js" */
/** Settings that differ from the whole model's. @typedef {Record<string, unknown>} Change */
/** A training that was made beforehand: a row of learned.jsonl.
 *  @typedef {{ task: string, seed: number, change: Change, losses: number[],
 *    scores: number[] }} Row */

/** @type {Record<string, number | boolean>} */
const USUAL = WHOLE;
const TURN_MS = 250;
const LONGEST_WAIT_MS = 100; // for a drawing
const MOST_POINTS = 400; // of a curve
const FEW_POINTS = 9; // a run with more is kept beside the next one

const text_of_change = (/** @type {Change} */ change) =>
  JSON.stringify(Object.entries(change).sort());

const fresh_run = (task = "") => ({
  task,
  /** @type {Update[]} every so many of them */
  curve: [],
  every: 1,
  training: false,
});

/** Once what was reported is on the screen. WebKit draws a frame as seldom as three times a second,
 *  so it doesn't wait long where somebody looks. */
const drawn = () =>
  new Promise((go) => {
    requestAnimationFrame(() => requestAnimationFrame(go));
    setTimeout(() => document.hidden || go(null), LONGEST_WAIT_MS);
  });

class Trainer {
  run = fresh_run();
  run_before = fresh_run();
  seed = 0;
  wanted = false; // the reader wants it to train, in sight or not
  in_sight = false;
  /** @type {(message: Message) => Promise<Report>} */
  worker = asker(source);
  chart = new Chart($("curve"));

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

  /** Have the worker do something; what it reports of this run is shown.
   *  @param {Message} message */
  async ask(message) {
    const { run } = this;
    if (!run.task) return; // not in sight yet
    const report = await this.worker(message);
    if (run === this.run) this.hear(report);
  }

  /** Turn by turn, each once the one before is on the screen: where processors are few, to train
   *  and to draw at once would stutter. */
  async train() {
    const { run } = this;
    if (run.training) return;
    run.training = true;
    while (this.wanted && this.in_sight && run === this.run) {
      await this.ask({ train: TURN_MS });
      await drawn();
    }
    run.training = false;
  }

  begin(wanted = false) {
    if (this.run.curve.length > FEW_POINTS) this.run_before = this.run;
    this.run = fresh_run($("task").value);
    this.wanted = wanted;
    this.ask({ begin: this.settings(), own: this.own_text() });
    this.train();
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

  hear(/** @type {Report} */ report) {
    const { run } = this;
    const finished = report.step >= report.total;
    run.curve.push(...report.updates.filter(([step]) => step % run.every === 0 || step === 1));
    if (run.curve.length > MOST_POINTS) {
      run.every *= 2;
      run.curve = run.curve.filter(([step]) => step % run.every === 0);
    }
    this.wanted &&= !finished;
    const last = report.updates.at(-1) ?? run.curve.at(-1);
    this.show_state(report, finished, last);
    if (report.score) this.show_score(report.score, finished, last?.[1] ?? Infinity);
    this.draw(report);
    this.show_own(report);
  }

  name_button() {
    $("run").textContent = this.wanted ? say("❚❚ Pause") : say("▶ Train");
  }

  /** @param {Report} report @param {boolean} finished @param {Update} [last] */
  show_state({ step, total }, finished, last) {
    this.name_button();
    // a button that is disabled loses it
    if (finished && document.activeElement === $("run")) $("again").focus();
    $("run").disabled = $("step").disabled = finished;
    $("state").ariaLive = this.wanted ? "off" : "polite";
    const [number, count] = [step, total].map((n) => n.toLocaleString("en"));
    const values = { seed: this.seed, step: number, total: count, loss: last?.[1].toFixed(3) };
    $("state").textContent = say(
      last
        ? "update {step} of {total}, loss {loss}, seed {seed}"
        : "update {step} of {total}, seed {seed}",
      values,
    );
  }

  /** @param {NonNullable<Report["score"]>} score @param {boolean} finished @param {number} loss */
  show_score({ exact, examples }, finished, loss) {
    const score = say("{share}% right", { share: (100 * exact).toFixed(0) });
    const wrong = exact < 1;
    const text = say(
      wrong
        ? "Of those it has never learned from: {score}. Below, the wrong ones first."
        : "Of those it has never learned from: {score}",
      { score },
    );
    const why = this.why(exact, finished, loss);
    $("exact").textContent = why ? `${text}\n${WHY[why]}` : text;
    const texts = examples.map(({ source, target, written }) => [
      source,
      target,
      written.at(-1) === "</s>" ? text_of(written) : `${text_of(written)}…`,
    ]);
    $("examples").replaceChildren(...examples_of(texts));
  }

  /** The missing part that explains what is seen.
   *  @param {number} exact @param {boolean} finished @param {number} loss */
  why(exact, finished, loss) {
    const blind = exact < 0.1 && loss < 0.1;
    const failed = ["positions", ...(this.settings().rate > 1 ? ["rate"] : [])];
    const at_the_end = ["warmup", ...(exact < 0.9 ? failed : [])];
    const seen = blind ? ["causal", "shift"] : finished ? at_the_end : [];
    return Object.keys(this.change()).findLast((key) => seen.includes(key));
  }

  show_own(/** @type {Report} */ { own }) {
    $("answer").textContent = own
      ? `${own.source} → ${text_of(own.written) || "–"}`
      : TASKS[$("task").value].allowed;
    draw_map($("map"), own);
  }

  /** @param {Report} report */
  draw({ step, total, tokens }) {
    const { run, chart, run_before } = this;
    chart.total = total;
    chart.draw_run(run.curve);
    if (step > 0 && run.curve.length > FEW_POINTS) return; // the rest stays as it is
    const lacks = this.change();
    const whole = Object.keys(lacks).length === 0;
    chart.draw_background({
      whole: this.rows_with({})[0]?.losses ?? [],
      lacking: whole ? [] : (this.rows_with(lacks)[0]?.losses ?? []),
      before: run_before.task === run.task ? run_before.curve : [],
      tokens,
      highest: this.settings().rate * PEAK,
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
      this.wanted = !this.wanted;
      this.name_button(); // at once: the next report may take a while
      if (this.wanted) this.train();
      else this.ask({});
    };
    $("step").onclick = () => {
      this.wanted = false;
      this.ask({ train: 0 });
    };
    $("again").onclick = () => this.begin();
    $("other").onclick = () => {
      this.seed += 1;
      this.begin(this.wanted);
    };
    // who was training goes on with the new model
    for (const input of inputs()) input.onchange = () => this.begin(this.wanted);
    $("task").onchange = () => this.choose_task();
    $("own").oninput = () => this.ask({ own: this.own_text() });
    // nothing is computed out of sight
    watch([document.body], (in_sight) => {
      this.in_sight = in_sight;
      if (in_sight && !this.run.task) this.begin();
      this.train();
    });
  }
}

draw_screen();
const [rows] = globalThis.GIVEN;
new Trainer(rows);
