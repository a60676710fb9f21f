// The worker that trains while the trainer draws: it answers each message with a report.

import { training } from "./tasks.js";

/** @import { Settings, Update } from "./tasks.js" */
/** What the trainer wants: to `begin` with a fresh model, to have the reader's `own` text read, to
 *  `train` for so many milliseconds, with at least one update.
 *  @typedef {{ begin?: Settings, own?: string, train?: number }} Message */
/** What the trainer hears. @typedef {ReturnType<typeof report>} Report */

const EXAMPLES = 5;
const SCORE_MS = 700; // between two scores of a training

/** @type {ReturnType<typeof training>} */
let run;
let own = "";
let scored = 0; // when

const finished = () => run.model.step >= run.total;

function train(/** @type {number} */ milliseconds) {
  /** @type {Update[]} */
  const updates = [];
  const end = performance.now() + milliseconds;
  for (let more = true; more && !finished(); more = performance.now() < end)
    updates.push(run.step());
  return updates;
}

/** @param {Update[]} updates since the last report @param {boolean} due is it time for a score? */
function report(updates, due) {
  const { task, model, total } = run;
  const pair = own ? task.of(own) : null;
  const answer = pair && run.answer(pair);
  const score = due ? run.score(EXAMPLES) : null;
  return { step: model.step, total, updates, tokens: task.letters.length, own: answer, score };
}

onmessage = (/** @type {MessageEvent<Message>} */ { data }) => {
  if (data.begin) run = training(data.begin);
  own = data.own ?? own;
  const updates = data.train === undefined ? [] : train(data.train);
  const now = performance.now();
  const typing = data.own !== undefined && !data.begin; // a score would take too long
  const due = !typing && (!data.train || finished() || now - scored > SCORE_MS);
  if (due) scored = now;
  postMessage(report(updates, due));
};
