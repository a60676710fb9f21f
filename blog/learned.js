// Trainings of the page's small model, made beforehand.
//
//     node blog/learned.js copy
//         rows of learned.jsonl of a task, one for each part that is missing, with seed 0
//     node blog/learned.js patients
//         rows of patients.jsonl, one for each mistake of the clinic, with the seeds 0 and 1
//
// Other seeds may follow. Both go on where they stopped; a row is written when its training ends,
// and one that is to be made anew has to be deleted. It has the losses of 60
// stretches of updates, how much of what was held out is right (in learned.jsonl after each sixth
// of them), and examples of the end. Trainer and clinic (scripts/views) show them.
import { execSync } from "node:child_process";
import { appendFileSync, existsSync, readFileSync } from "node:fs";
import os from "node:os";
import path from "node:path";
import * as clinic from "./scripts/learn/clinic.js";
import { CHANGES as MISTAKES } from "./scripts/learn/mistakes.js";
import * as tasks from "./scripts/learn/tasks.js";

const [NAME, ...NUMBERS] = process.argv.slice(2);
const ILL = NAME === "patients";
const FILE = path.join(import.meta.dirname, ILL ? "patients.jsonl" : "learned.jsonl");
const STRETCHES = 60;
const STRETCHES_BY_SCORE = 10;
const SHOWN = 5;
const SEEDS = NUMBERS.length ? NUMBERS.map(Number) : ILL ? [0, 1] : [0];
const CHANGES = [
  ...[{}, { causal: false }, { positions: false }, { warmup: false }, { rate: 10 }],
  ...[{ warmup: false, rate: 10 }, { shift: false }, { residuals: false }, { norms: false }],
  { h: 1 },
];
if (!ILL && !(NAME in tasks.TASKS))
  throw new Error(`give a task: ${Object.keys(tasks.TASKS).join(", ")}; or patients`);
const commit = execSync("git rev-parse --short HEAD", {
  cwd: import.meta.dirname,
  encoding: "utf-8",
}).trim();

const key = ({ task, seed, change, slip }) => JSON.stringify([task, seed, change, slip]);
const lines = existsSync(FILE) ? readFileSync(FILE, "utf-8").split("\n").filter(Boolean) : [];
const done = new Set(lines.map((line) => key(JSON.parse(line))));

/** A row, with how it was made. */
function add(make) {
  const started = process.cpuUsage().user;
  const row = make();
  const minutes = Number(((process.cpuUsage().user - started) / 6e7).toFixed(2));
  const command = ["node blog/learned.js", ...process.argv.slice(2)].join(" ");
  const whole = { ...row, command, commit, machine: os.cpus()[0].model, minutes };
  const rounded = (_, value) => (typeof value === "number" ? Number(value.toPrecision(5)) : value);
  appendFileSync(FILE, JSON.stringify(whole, rounded) + "\n");
  const { task = "", seed, slip, change = {}, exact, scores } = row;
  console.log(task, seed, slip ?? JSON.stringify(change), exact ?? scores.at(-1), minutes);
}

function train(task, seed, change) {
  const run = tasks.training({ ...tasks.WHOLE, ...change, task, seed });
  const scores = [];
  const losses = tasks.losses_of(run, STRETCHES, (stretch) => {
    if (stretch % STRETCHES_BY_SCORE === 0) scores.push(Number(run.score(0).exact.toFixed(3)));
  });
  const examples = run
    .score(SHOWN)
    .examples.map(({ source, target, written }) => [source, target, written.join("")]);
  return { task, seed, change, losses, scores, examples };
}

const kinds = ILL
  ? [null, ...Object.keys(MISTAKES)].map((slip) => ({ slip }))
  : CHANGES.map((change) => ({ task: NAME, change }));
const wanted = SEEDS.flatMap((seed) => kinds.map((kind) => ({ ...kind, seed })));
const missing = wanted.filter((row) => !done.has(key(row)));
console.log(`${wanted.length - missing.length} of ${wanted.length} rows are there`);
for (const { task, seed, change, slip } of missing)
  add(() => (ILL ? clinic.row(slip, seed) : train(task, seed, change)));
