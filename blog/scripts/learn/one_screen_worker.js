// The worker that does what one_screen.py does.

import { OneScreen } from "./one_screen.js";
import { Learn } from "./small_model.js";
import { Tasks } from "./tasks.js";

const learn = Learn(Float64Array, { PAD: -1, BOS: 0, EOS: 1 }),
  tasks = Tasks(learn);
onmessage = ({ data: { settings, seed } }) => {
  const one = OneScreen(learn, tasks, settings, seed),
    word = (n) => tasks.german_number(n),
    begin = performance.now();
  const { updates, every, last, held } = settings;
  postMessage({
    parameters: Object.values(one.model.parameters).reduce(
      (sum, { data: numbers }) => sum + numbers.length,
      0,
    ),
    seed,
  });
  let n;
  for (let step = 1; step <= updates; step++) {
    const loss = one.update();
    if (step % every) continue;
    n = one.held_out[step / every];
    const left = ((performance.now() - begin) / 1000) * (updates / step - 1);
    postMessage({ step, left, loss, rate: one.rate(step), word: word(n), found: one.read(n).text });
  }
  const right = one.right();
  one.average();
  const { text, map } = one.read(n);
  postMessage({ held, right, last, averaged: one.right(), word: word(n), text, map });
};
