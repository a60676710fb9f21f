// Trainings of the page's small model, made beforehand: rows of learned.jsonl, one for each task, part that is missing, and seed.
//
//     node blog/learned.js        goes on where it stopped; a row is written when its training ends
//
// A row has the losses of 60 stretches of updates, how much of what was held out is right after each sixth of them, and
// examples of the end. The panel in blog/template/learn_panel.js shows them, and trains them again for who doubts.
const fs = require("fs"), path = require("path"), os = require("os"), { execSync } = require("child_process");
const learn = require("./template/learn.js")(), tasks = require("./template/tasks.js")(learn);

const FILE = path.join(__dirname, "learned.jsonl"), STRETCHES = 60, SCORES = 6, SEEDS = [0, 1, 2], SHOWN = 5;
const CHANGES = [{}, { causal: false }, { positions: false }, { warmup: false }, { rate: 10 }, { warmup: false, rate: 10 },
  { shift: false }, { residuals: false }, { norms: false }, { h: 1 }];
const commit = execSync("git rev-parse --short HEAD", { cwd: __dirname, encoding: "utf-8" }).trim();

const key = ({ task, seed, change }) => JSON.stringify([task, seed, change]);
const lines = fs.existsSync(FILE) ? fs.readFileSync(FILE, "utf-8").trim().split("\n").filter(Boolean) : [];
const done = new Set(lines.map((line) => key(JSON.parse(line))));

function train(task, seed, change) {
  const started = process.cpuUsage().user, run = tasks.training({ ...tasks.WHOLE, ...change, task, seed });
  const losses = [], scores = [];
  for (let stretch = 1, step = 0; stretch <= STRETCHES; stretch++) {
    const end = Math.round((run.total * stretch) / STRETCHES), found = [];
    while (step < end) found.push(run.step()[1]), (step += 1);
    losses.push(Number((found.reduce((sum, loss) => sum + loss, 0) / found.length).toFixed(3)));
    if (stretch % (STRETCHES / SCORES) === 0) scores.push(Number(run.score(0).exact.toFixed(3)));
  }
  const examples = run.score(SHOWN).examples.map(({ source, target, found }) => [source, target, found.join("")]);
  const minutes = Number(((process.cpuUsage().user - started) / 6e7).toFixed(2));
  return { task, seed, change, losses, scores, examples, command: "node blog/learned.js", commit, machine: os.cpus()[0].model, minutes };
}

for (const seed of SEEDS) {
  for (const task of ["copy", "reverse", "numbers"]) {
    for (const change of CHANGES) {
      if (done.has(key({ task, seed, change }))) continue;
      const row = train(task, seed, change);
      fs.appendFileSync(FILE, JSON.stringify(row) + "\n");
      console.log(task, seed, JSON.stringify(change), row.scores.at(-1), row.minutes);
    }
  }
}
