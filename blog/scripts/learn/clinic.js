// A patient of the page's clinic: the small model with a mistake of practice/mistakes, and the
// tests that can be ordered. What they measure has the names and bounds of practice/examine.py. The
// tests of the first group need a fresh model, and are made when they are ordered; those of the
// second need a trained one, whose row is in patients.jsonl.
export const Clinic = (learn, tasks) => {
  const { BOS, EOS } = learn,
    D_MODEL = 16,
    RATE = 0.7,
    WARMUP = 100;
  const SLIPS = [
    "no_causal_mask",
    "causal_mask_one_too_far",
    "no_shift",
    "shift_by_two",
    "eos_cut_off",
    "target_fed_as_source",
    "pairs_misaligned",
    "multiplied_by_root",
    "softmax_over_queries",
    "heads_split_by_view",
    "cross_attends_to_itself",
    "no_positions",
    "no_positions_in_decoder",
    "no_positions_in_encoder",
    "norm_over_time",
    "rate_too_high",
    "gradients_never_cleared",
    "decoding_begins_with_eos",
    "every_step_at_position_zero",
  ];
  // these are made after the training
  const UNTRAINED = ["decoding_begins_with_eos", "every_step_at_position_zero"];

  const seen = ({ slip }, pairs) =>
    // what the model reads of them
    learn.batch(pairs, slip === "target_fed_as_source" ? slip : null);
  const mean = (list) => list.reduce((sum, one) => sum + one, 0) / list.length,
    norm = (lists) =>
      Math.sqrt(lists.flatMap((list) => [...list]).reduce((sum, x) => sum + x * x, 0));
  const grads = (model) => Object.values(model.parameters).map((p) => [...p.grad]),
    weights = (model) => Object.values(model.parameters).map((p) => [...p.data]);

  /** Log-probabilities, row by row, of each of some pairs. */
  function predict(model, pairs) {
    const rows = seen(model, pairs),
      { data, cols } = learn.logits(model, rows);
    let at = 0;
    return rows.map(({ read }) =>
      read.map(() => {
        const row = data.subarray(at * cols, ++at * cols),
          highest = Math.max(...row),
          log = highest + Math.log(row.reduce((sum, x) => sum + Math.exp(x - highest), 0));
        return row.map((x) => x - log);
      }),
    );
  }
  /** The mean loss, position t against letter t + 1, from the log-probabilities alone. */
  const own_loss = (model, pairs) =>
    mean(
      predict(model, pairs).flatMap((rows, i) => rows.map((row, t) => -row[pairs[i].tgt[t + 1]])),
    );
  const apart = (one, other) =>
    // place by place
    one.map((row, t) => Math.max(...other[t].map((x, k) => Math.abs(x - row[k]))));
  const moved = (before, after) =>
    before
      .map((rows, i) => apart(rows, after[i]))
      .reduce((a, b) => a.map((x, t) => Math.max(x, b[t])));

  /** A fresh model with this mistake, the pairs of the tests, and pairs of equal lengths. */
  function patient(slip, seed = 0) {
    const task = tasks.make("numbers", seed),
      { letters } = task,
      random = learn.generator(seed + 9);
    const ids = (names) =>
      Array.from({ length: 5 }, () => letters.indexOf(names[Math.floor(random() * names.length)]));
    const strangers = Array.from({ length: 4 }, () => ({
      src: [...ids("einsdrvuhtz"), EOS],
      tgt: [BOS, ...ids("0123456789"), EOS],
    }));
    const fresh = () =>
      learn.make_model({ vocab: letters.length, d_model: D_MODEL, d_ff: 2 * D_MODEL, seed, slip });
    const rate = (step) =>
      (slip === "rate_too_high" ? 30 : 1) * learn.rate(step, D_MODEL, RATE, WARMUP);
    const text = (lists) =>
      lists.map((list) =>
        list
          .map((i) => letters[i])
          .join("")
          .replace("</s>", ""),
      );
    return {
      slip,
      task,
      fresh,
      strangers,
      rate,
      text,
      pairs: [7, 1, 12, 4, 30, 345, 608, 917, 223, 555, 770, 836].map((n) => task.of(String(n))),
    };
  }

  const TESTS = {
    wires({ fresh, strangers }) {
      const model = fresh(),
        before = predict(model, strangers),
        T = before[0].length,
        changed = (f) => moved(before, predict(model, strangers.map(f)));
      const columns = Array.from({ length: T }, (_, u) =>
        changed(({ src, tgt }, i) => ({
          src,
          tgt: tgt.map((id, t) => (t === u ? strangers[(i + 1) % 4].tgt[u === 0 ? 1 : u] : id)),
        })),
      );
      const grid = Array.from({ length: T }, (_, t) => columns.map((column) => column[t]));
      const part = (is) => Math.max(0, ...grid.flatMap((row, t) => row.filter((_, u) => is(u, t))));
      const order = ({ src, tgt }) => ({ src: [...src.slice(0, -1).reverse(), EOS], tgt });
      const turned = ({ src, tgt }) => ({ src, tgt: [tgt[0], tgt[2], tgt[1], ...tgt.slice(3)] });
      const found = {
        future: part((u, t) => u > t),
        past: part((u, t) => u < t),
        source: Math.max(...changed(({ tgt }, i) => ({ src: strangers[(i + 1) % 4].src, tgt }))),
      };
      // who doesn't read it says nothing of its order
      if (found.source > 1e-3) found["source order"] = Math.max(...changed(order));
      return { found: { ...found, "target order": Math.max(...changed(turned).slice(3)) }, grid };
    },
    loss({ fresh, pairs, slip }) {
      const model = fresh(),
        own = own_loss(model, pairs),
        guess = Math.log(model.parameters["src_embed.embeddings.table.weight"].rows);
      const reported = learn.gradient(model, pairs);
      return {
        found: { "first loss": own - guess, recomputed: reported - own },
        bars: { reported, logits: own, guessing: guess },
      };
    },
    gradient({ fresh, pairs, rate }) {
      const model = fresh(),
        before = weights(model),
        of = () => (learn.gradient(model, pairs), grads(model)),
        first = of(),
        again = of();
      const other = fresh();
      learn.update(other, pairs, { lr: rate(1) });
      const step =
        norm(weights(other).map((list, i) => list.map((x, k) => x - before[i][k]))) / norm(before);
      return {
        found: {
          again: norm(again) / norm(first),
          without: first.filter((list) => !list.some(Boolean)).length,
          step,
        },
        bars: { once: norm(first), again: norm(again) },
      };
    },
    inventory({ fresh, strangers }) {
      const maps = [],
        inputs = [],
        model = fresh(),
        rows = seen(model, strangers);
      learn.logits(model, rows, { weights: maps, inputs, first: true });
      const entropy = mean(
        maps.map(
          (row) =>
            -row.reduce((sum, p) => sum + p * Math.log(Math.max(p, 1e-9)), 0) /
            Math.log(row.length),
        ),
      );
      const T = rows[0].src.length,
        [{ data, cols }] = inputs,
        range = (list) => [Math.min(...list), Math.max(...list)];
      const vectors = Array.from({ length: data.length / cols }, (_, i) => [
        ...data.subarray(i * cols, (i + 1) * cols),
      ]);
      const spread = (x) => Math.sqrt(mean(x.map((one) => one ** 2)) - mean(x) ** 2);
      return {
        found: { entropy },
        ones: {
          sums: range(maps.map((row) => row.reduce((sum, p) => sum + p, 0))),
          spreads: range(vectors.map(spread)),
        },
        grid: maps.slice(0, T).map((row) => [...row]),
      };
    },
    heart({ fresh, pairs, rate, text }) {
      const model = fresh(),
        few = pairs.slice(4);
      let loss;
      for (let step = 1; step <= 150; step++) loss = learn.update(model, few, { lr: rate(step) });
      const answers = few.map((pair) => written(model, pair));
      return {
        found: { "heart loss": loss, "by heart": mean(answers.map(right)) },
        examples: answers.map(text),
      };
    },
  };
  const written = (model, pair) => [
    pair.src,
    pair.tgt.slice(1),
    learn.greedy_decode(model, pair.src, pair.tgt.length + 1).ids,
  ];
  const right = ([, target, ids]) => Number(target.join() === ids.join());

  /** What a trained model shows: the last numbers of its row. */
  function trained({ task, slip, text }, model) {
    const rows = task.held_out.slice(0, 60),
      answers = rows.map((pair) => written(model, pair));
    const fed = rows
      .map(({ src }, i) => ({ src, tgt: [BOS, ...answers[i][2]] }))
      .filter(({ tgt }) => tgt.length > 1);
    const agree = (pairs) => {
      // of what the model says when it reads the letters before, how much is as in the pairs
      return mean(
        predict(model, pairs).flatMap((row, i) =>
          row.map((log_p, t) => Number(log_p.indexOf(Math.max(...log_p)) === pairs[i].tgt[t + 1])),
        ),
      );
    };
    const forced = learn.batch(rows, slip === "pairs_misaligned" ? null : slip),
      { data, cols } = learn.logits(model, forced);
    const hits = forced
      .flatMap(({ predict }) => predict)
      .map((id, i) => {
        const row = data.subarray(i * cols, (i + 1) * cols);
        return Number(row.indexOf(Math.max(...row)) === id);
      });
    const others = rows.map(({ tgt }, i) => ({ src: rows[(i + 1) % rows.length].src, tgt }));
    return {
      forced: mean(hits),
      exact: mean(answers.map(right)),
      swap: own_loss(model, others) - own_loss(model, rows),
      "fed back": agree(fed),
      sources: [own_loss(model, rows), own_loss(model, others)],
      examples: answers.slice(0, 5).map(text),
    };
  }

  /** A training with a mistake: its losses, in stretches, and what the trained model shows. */
  function row(slip, seed, stretches = 60) {
    const one = patient(slip, seed),
      run = tasks.training({
        ...tasks.WHOLE,
        task: "numbers",
        seed,
        slip: UNTRAINED.includes(slip) ? null : slip,
        rate: slip === "rate_too_high" ? 30 : 1,
      });
    const losses = Array.from({ length: run.total }, () => run.step()[1]),
      size = run.total / stretches;
    const shown = Array.from({ length: stretches }, (_, i) =>
      Number(mean(losses.slice(Math.round(i * size), Math.round((i + 1) * size))).toFixed(3)),
    );
    return { slip, seed, losses: shown, ...trained(one, { ...run.model, slip }) };
  }

  return { SLIPS, TESTS, patient, row };
};
