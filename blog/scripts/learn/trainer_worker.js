// The worker that trains while the trainer draws.

import { Learn } from "./small_model.js";
import { Tasks } from "./tasks.js";

const SHOWN = 5; // examples in the list
const tasks = Tasks(Learn());
let run,
  losses,
  number,
  running = false,
  turn = 0,
  own = "",
  scored = 0;

function report(due) {
  const { task, model, total, answer, score } = run,
    pair = own && task.of(own);
  postMessage({
    number,
    turn,
    step: model.step,
    total,
    losses,
    running,
    letters: task.letters,
    own: pair ? answer(pair, true) : null,
    ...(due && score(SHOWN)),
  });
  losses = [];
}
const ended = () => run.model.step >= run.total;
function go() {
  // a turn; the next one waits for the page to draw: both at once would stutter where
  // processors are few
  if (!running) return;
  turn += 1;
  for (const end = performance.now() + 250; running && performance.now() < end;) {
    losses.push(run.step());
    running = !ended();
  }
  const now = performance.now(),
    due = !running || now - scored > 700;
  if (due) scored = now;
  report(due);
}
onmessage = ({ data }) => {
  if (data.begin)
    [run, losses, running, number] = [tasks.training(data.begin), [], false, data.number];
  if ("drawn" in data) return data.drawn === turn && go();
  if ("own" in data) own = data.own;
  if (data.step && !ended()) losses.push(run.step());
  if ("run" in data) {
    const idle = !running;
    running = data.run && !ended();
    if (running && idle) return go();
  }
  if (!running) report(true);
};
