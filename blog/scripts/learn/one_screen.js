// What one_screen.py does, with small_model.js: the same random numbers in the same order, so the
// same weights, batches and losses. `settings` has the values that stand at the top of
// one_screen.py, under their names there.
export const OneScreen = (learn, tasks, settings, seed) => {
  const { N, d_model, d_ff, h, eps_ls, pairs, warmup, factor, held, every, last } = settings,
    M = 2 ** 31 - 1;
  let state = seed;

  /** A number between 0 and 1; the products are below 2 ** 53, so they are exact. */
  function random() {
    state = (48271 * state) % M;
    return state / M;
  }

  const keys = Array.from({ length: 900 }, random),
    first = (n) => Array.from({ length: n }, (_, i) => i);
  const shuffled = first(900)
    .sort((a, b) => keys[a] - keys[b])
    .map((i) => 100 + i);
  const held_out = shuffled.slice(0, held),
    known = [...first(100), ...shuffled.slice(held)];
  const letters = [
    "<",
    ">",
    ...[...new Set(known.map((n) => tasks.german_number(n) + n).join(""))].sort(),
  ];
  const ids = (text) => [...text].map((letter) => letters.indexOf(letter));
  const pair = (n) => ({ src: ids(`${tasks.german_number(n)}>`), tgt: ids(`<${n}>`) });
  const model = learn.make_model({ vocab: letters.length, N, d_model, d_ff, h, norm: "post" });

  /** Draw a matrix, of which `place` says where row i and column j are in the model's; there a row
   *  is what gives one number. */
  function draw(name, rows, columns, place) {
    const { data } = model.parameters[`${name}.weight`],
      limit = Math.sqrt(6 / (rows + columns));
    for (let i = 0; i < rows; i++)
      for (let j = 0; j < columns; j++) data[place(i, j)] = limit * (2 * random() - 1);
  }
  draw("src_embed.embeddings.table", letters.length, d_model, (i, j) => i * d_model + j);
  for (const [stack, attentions] of [
    ["encoder", ["self_attn"]],
    ["decoder", ["self_attn", "src_attn"]],
  ]) {
    for (let n = 0; n < N; n++) {
      const layer = `${stack}.layers.${n}`,
        d_k = d_model / h;
      for (const name of attentions) {
        for (let head = 0; head < h; head++)
          for (const W of "qkv")
            draw(`${layer}.${name}.W_${W}`, d_model, d_k, (i, j) => (head * d_k + j) * d_model + i);
        draw(`${layer}.${name}.W_o`, d_model, d_model, (i, j) => j * d_model + i);
      }
      draw(`${layer}.feed_forward.W_1`, d_model, d_ff, (i, j) => j * d_model + i);
      draw(`${layer}.feed_forward.W_2`, d_ff, d_model, (i, j) => j * d_ff + i);
    }
  }

  const batch = () =>
    Array.from({ length: pairs }, () => pair(known[Math.floor(known.length * random())]));
  const rate = (step) => learn.rate(step, d_model, factor, warmup);
  const checkpoints = [],
    parameters = Object.values(model.parameters);
  /** One update; returns the loss before it. */
  function update() {
    const loss = learn.update(model, batch(), { lr: rate(model.step + 1), smoothing: eps_ls });
    if (model.step % every === 0) checkpoints.push(parameters.map(({ data }) => data.slice()));
    if (checkpoints.length > last) checkpoints.shift();
    return loss;
  }
  /** Put the mean of the last checkpoints into the model (Section 6.1). */
  function average() {
    parameters.forEach(({ data }, p) =>
      data.forEach((_, i) => {
        data[i] = checkpoints.reduce((sum, kept) => sum + kept[p][i], 0) / checkpoints.length;
      }),
    );
  }
  /** What it writes for a number, and where it looks, the mean of the heads: a row for each letter
   *  that it writes. */
  function read(n) {
    const { ids: found, weights } = learn.greedy_decode(model, pair(n).src, 5);
    const map = weights.map((heads) =>
      heads[0].map((_, j) => heads.reduce((sum, head) => sum + head[j], 0) / h),
    );
    return {
      text: found
        .map((i) => letters[i])
        .join("")
        .replace(/>$/, ""),
      map,
    };
  }
  const loss = (numbers) => learn.loss(model, numbers.map(pair), eps_ls);
  const right = () => held_out.filter((n) => read(n).text === String(n)).length;
  return { model, letters, held_out, known, pair, batch, rate, update, average, read, loss, right };
};
