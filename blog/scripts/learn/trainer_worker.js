// The worker that trains while the trainer draws.

import { training } from "./tasks.js";

/** @import { Settings } from "./tasks.js" */
/** What the trainer sends: `begin` a fresh model as run `number`, `run` or pause, one `step`, the
 *  reader's `own` text, or that turn `drawn` is on the screen.
 *  @typedef {{ begin?: Settings, number?: number, run?: boolean, step?: boolean, own?: string,
 *    drawn?: number }} Message */
/** What the trainer hears. @typedef {ReturnType<typeof report>} Report */

const EXAMPLES = 5;
const TURN_MS = 250;
const SCORE_MS = 700; // between two scores

/** A run of the trainer; its turns go on from those of the run before.
 *  @param {Settings} settings @param {number} number @param {number} turn */
const begun = (settings, number, turn) => ({
  ...training(settings),
  number,
  /** @type {[number, number, number][]} of the updates since the last report */
  losses: [],
  running: false,
  turn,
  scored: 0, // when
});
/** @type {ReturnType<typeof begun>} */
let run;
let own = "";

/** @param {boolean} due is it time for a score? */
function report(due) {
  const { number, turn, total, losses, running, task, model } = run;
  const pair = own ? task.of(own) : null;
  const answer = pair && run.answer(pair);
  const score = due ? run.score(EXAMPLES) : null;
  const { letters } = task;
  run.losses = [];
  return { number, turn, step: model.step, total, losses, running, letters, own: answer, score };
}
const ended = () => run.model.step >= run.total;

/** A turn; the next one waits for the page to draw: both at once would stutter where processors
 *  are few. */
function go() {
  if (!run.running) return;
  run.turn += 1;
  for (const end = performance.now() + TURN_MS; run.running && performance.now() < end;) {
    run.losses.push(run.step());
    run.running = !ended();
  }
  const now = performance.now();
  const due = !run.running || now - run.scored > SCORE_MS;
  if (due) run.scored = now;
  postMessage(report(due));
}
onmessage = (/** @type {MessageEvent<Message>} */ { data }) => {
  if (data.begin) run = begun(data.begin, data.number ?? 0, run?.turn ?? 0);
  if (data.drawn !== undefined) {
    if (data.drawn === run.turn) go();
    return;
  }
  if (data.own !== undefined) own = data.own;
  if (data.step && !ended()) run.losses.push(run.step());
  if (data.run !== undefined) {
    const idle = !run.running;
    run.running = data.run && !ended();
    if (run.running && idle) return go();
  }
  if (!run.running) postMessage(report(true));
};
