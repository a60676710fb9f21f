// A Transformer that learns, in plain JavaScript: the model of the document, pre-norm or post-norm,
// forward and backward, and Adam. Names are the document's. A function that computes pushes onto
// the tape what carries the gradient back through it. The sequences of a batch stand one below the
// other, without padding: a matrix has a row for each position of all of them, and `starts` says
// where each begins.
export const Learn = (Real = Float32Array, { PAD = 0, BOS = 1, EOS = 2 } = {}) => {
  // without padding, PAD is -1
  let tape = [];

  const tensor = (rows, cols) => ({
    rows,
    cols,
    data: new Real(rows * cols),
    grad: new Real(rows * cols),
  });

  /** Random numbers between 0 and 1 that follow from a seed (mulberry32). */
  function generator(seed) {
    return () => {
      seed = (seed + 0x6d2b79f5) | 0;
      let t = Math.imul(seed ^ (seed >>> 15), 1 | seed);
      t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
      return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
    };
  }

  // --- What computes ---

  /** y = x Wᵀ + b for x (n, a), W (b, a). */
  function linear(x, W, bias) {
    const n = x.rows,
      a = x.cols,
      b = W.rows,
      y = tensor(n, b),
      [X, M, Y] = [x.data, W.data, y.data];
    for (let i = 0; i < n; i++) {
      for (let o = 0; o < b; o++) {
        let sum = bias ? bias.data[o] : 0;
        for (let k = 0, p = i * a, q = o * a; k < a; k++) sum += X[p++] * M[q++];
        Y[i * b + o] = sum;
      }
    }
    tape.push(() => {
      const [dX, dM, dY] = [x.grad, W.grad, y.grad];
      for (let i = 0; i < n; i++) {
        for (let o = 0; o < b; o++) {
          const g = dY[i * b + o];
          if (g === 0) continue;
          if (bias) bias.grad[o] += g;
          for (let k = 0, p = i * a, q = o * a; k < a; k++, p++, q++) {
            dX[p] += g * M[q];
            dM[q] += g * X[p];
          }
        }
      }
    });
    return y;
  }

  /** The sum of two matrices of one shape. */
  function add(x, y) {
    const z = tensor(x.rows, x.cols);
    for (let i = 0; i < z.data.length; i++) z.data[i] = x.data[i] + y.data[i];
    tape.push(() => {
      for (let i = 0; i < z.grad.length; i++) {
        x.grad[i] += z.grad[i];
        y.grad[i] += z.grad[i];
      }
    });
    return z;
  }

  function relu(x) {
    const y = tensor(x.rows, x.cols);
    for (let i = 0; i < y.data.length; i++) y.data[i] = Math.max(0, x.data[i]);
    tape.push(() => {
      for (let i = 0; i < y.grad.length; i++) if (x.data[i] > 0) x.grad[i] += y.grad[i];
    });
    return y;
  }

  /** Each row is normalised; or, as a mistake, each feature over the rows of its sequence. */
  function layer_norm(x, gain, bias, over, eps = 1e-5) {
    const y = tensor(x.rows, x.cols),
      d = x.cols,
      normal = new Real(x.data.length),
      groups = [];
    if (!over)
      // the first entry, how many, how far apart
      for (let i = 0; i < x.rows; i++) groups.push([i * d, d, 1]);
    else
      for (let s = 0; s + 1 < over.length; s++)
        for (let k = 0; k < d; k++) groups.push([over[s] * d + k, over[s + 1] - over[s], d]);
    const scales = groups.map(([start, n, apart]) => {
      let mean = 0,
        variance = 0;
      for (let k = 0, p = start; k < n; k++, p += apart) mean += x.data[p] / n;
      for (let k = 0, p = start; k < n; k++, p += apart) variance += (x.data[p] - mean) ** 2 / n;
      const scale = 1 / Math.sqrt(variance + eps);
      for (let k = 0, p = start; k < n; k++, p += apart) {
        normal[p] = (x.data[p] - mean) * scale;
        y.data[p] = normal[p] * gain.data[p % d] + bias.data[p % d];
      }
      return scale;
    });
    tape.push(() => {
      for (const [g, [start, n, apart]] of groups.entries()) {
        let sum = 0,
          along = 0; // of the gradient of the normalised vector, and its part along that vector
        for (let k = 0, p = start; k < n; k++, p += apart) {
          gain.grad[p % d] += y.grad[p] * normal[p];
          bias.grad[p % d] += y.grad[p];
          sum += (y.grad[p] * gain.data[p % d]) / n;
          along += (y.grad[p] * gain.data[p % d] * normal[p]) / n;
        }
        for (let k = 0, p = start; k < n; k++, p += apart) {
          x.grad[p] += scales[g] * (y.grad[p] * gain.data[p % d] - sum - normal[p] * along);
        }
      }
    });
    return y;
  }

  /** Rows of the table, times the root of d_model, plus the sinusoids of their positions, if there
   *  are positions; `still` is a mistake. */
  function embed(table, ids, starts, positions, still) {
    const d = table.cols,
      x = tensor(ids.length, d),
      scale = Math.sqrt(d);
    for (let s = 0; s + 1 < starts.length; s++) {
      for (let i = starts[s]; i < starts[s + 1]; i++) {
        for (let k = 0; k < d; k++) {
          const angle =
            (still ? 0 : i - starts[s]) * Math.exp((-Math.log(10000) * (k - (k % 2))) / d);
          x.data[i * d + k] =
            table.data[ids[i] * d + k] * scale +
            (positions ? (k % 2 ? Math.cos(angle) : Math.sin(angle)) : 0);
        }
      }
    }
    tape.push(() => {
      for (let i = 0; i < ids.length; i++)
        for (let k = 0; k < d; k++) table.grad[ids[i] * d + k] += x.grad[i * d + k] * scale;
    });
    return x;
  }

  /** Equation (1) in every head, sequence by sequence; `ahead` is how far a query may look beyond
   *  its own place. `weights` is filled with one array for each head and query; `slip` is a
   *  mistake. */
  function attention(Q, K, V, h, queries, keys, ahead, weights, slip) {
    const d = Q.cols,
      d_k = d / h,
      out = tensor(Q.rows, d),
      kept = [];
    const scale = slip === "multiplied_by_root" ? Math.sqrt(d_k) : 1 / Math.sqrt(d_k);
    for (let s = 0; s + 1 < queries.length; s++) {
      const [n, m] = [queries[s + 1] - queries[s], keys[s + 1] - keys[s]];
      for (let head = 0; head < h; head++) {
        // its rows are then n whole pieces of the sequence, one after the other
        const viewed = slip === "heads_split_by_view";
        const [apart, q0, k0] = viewed
          ? [d_k, queries[s] * d + head * n * d_k, keys[s] * d + head * m * d_k]
          : [d, queries[s] * d + head * d_k, keys[s] * d + head * d_k];
        const P = new Real(n * m).fill(-Infinity),
          end = (i) => Math.min(m, i + 1 + ahead);
        for (let i = 0; i < n; i++) {
          for (let j = 0; j < end(i); j++) {
            let score = 0;
            for (let k = 0, p = q0 + i * apart, q = k0 + j * apart; k < d_k; k++)
              score += Q.data[p++] * K.data[q++];
            P[i * m + j] = score * scale;
          }
        }
        const groups =
          slip === "softmax_over_queries"
            ? Array.from({ length: m }, (_, j) => [j, n, m])
            : Array.from({ length: n }, (_, i) => [i * m, end(i), 1]);
        for (const [start, count, step] of groups) {
          let highest = -Infinity,
            total = 0;
          for (let k = 0, p = start; k < count; k++, p += step) highest = Math.max(highest, P[p]);
          for (let k = 0, p = start; k < count; k++, p += step)
            total += P[p] = Math.exp(P[p] - highest);
          for (let k = 0, p = start; k < count; k++, p += step) P[p] /= total;
        }
        for (let i = 0, o = queries[s] * d + head * d_k; i < n; i++, o += d) {
          for (let j = 0; j < end(i); j++)
            for (let k = 0, q = k0 + j * apart; k < d_k; k++)
              out.data[o + k] += P[i * m + j] * V.data[q++];
          weights?.push(P.subarray(i * m, i * m + end(i)));
        }
        kept.push([n, m, apart, q0, k0, queries[s] * d + head * d_k, end, P, groups]);
      }
    }
    tape.push(() => {
      for (const [n, m, apart, q0, k0, o0, end, P, groups] of kept) {
        const dP = new Real(n * m);
        for (let i = 0, o = o0; i < n; i++, o += d) {
          for (let j = 0; j < end(i); j++) {
            const p = P[i * m + j];
            let dp = 0;
            for (let k = 0, q = k0 + j * apart; k < d_k; k++, q++) {
              dp += out.grad[o + k] * V.data[q];
              V.grad[q] += p * out.grad[o + k];
            }
            dP[i * m + j] = dp;
          }
        }
        for (const [start, count, step] of groups) {
          let dot = 0;
          for (let k = 0, p = start; k < count; k++, p += step) dot += P[p] * dP[p];
          for (let k = 0, p = start; k < count; k++, p += step)
            dP[p] = P[p] * (dP[p] - dot) * scale;
        }
        for (let i = 0; i < n; i++) {
          for (let j = 0; j < end(i); j++) {
            const ds = dP[i * m + j];
            for (let k = 0, p = q0 + i * apart, q = k0 + j * apart; k < d_k; k++, p++, q++) {
              Q.grad[p] += ds * K.data[q];
              K.grad[q] += ds * Q.data[p];
            }
          }
        }
      }
    });
    return out;
  }

  /** The smoothed cross-entropy per target, and its gradient p - q. */
  function smoothed_loss(logits, targets, eps) {
    const V = logits.cols,
      n = targets.length,
      share = eps / (PAD < 0 ? V : V - 1); // padding gets none
    let loss = 0;
    for (let i = 0; i < n; i++) {
      const row = logits.data.subarray(i * V, (i + 1) * V);
      let highest = -Infinity,
        total = 0;
      for (const score of row) highest = Math.max(highest, score);
      for (const score of row) total += Math.exp(score - highest);
      for (let k = 0; k < V; k++) {
        const log_p = row[k] - highest - Math.log(total);
        const q = k === PAD ? 0 : share + (k === targets[i] ? 1 - eps : 0);
        loss -= (q * log_p) / n;
        logits.grad[i * V + k] = (Math.exp(log_p) - q) / n;
      }
    }
    return loss;
  }

  // --- The model ---

  /** A fresh model; its parameters have the names that they have in the document. One matrix embeds
   *  and scores. `slip` is a mistake of practice/mistakes, by its name there: what it changes is
   *  where the name stands below. */
  function make_model({
    vocab,
    N = 1,
    d_model = 16,
    d_ff = 32,
    h = 2,
    seed = 0,
    positions = true,
    causal = true,
    norms = true,
    residuals = true,
    norm = "pre",
    slip = null,
  }) {
    const random = generator(seed),
      parameters = {};
    const normal = () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
    function matrix(name, rows, cols) {
      // Glorot's uniform
      const W = (parameters[`${name}.weight`] = tensor(rows, cols)),
        limit = Math.sqrt(6 / (rows + cols));
      for (let i = 0; i < W.data.length; i++) W.data[i] = (2 * random() - 1) * limit;
    }
    function gain_and_bias(name) {
      (parameters[`${name}.weight`] = tensor(1, d_model)).data.fill(1);
      parameters[`${name}.bias`] = tensor(1, d_model);
    }
    const table = (parameters["src_embed.embeddings.table.weight"] = tensor(vocab, d_model));
    for (let i = 0; i < table.data.length; i++) table.data[i] = normal() / Math.sqrt(d_model);
    for (const [stack, attentions] of [
      ["encoder", ["self_attn"]],
      ["decoder", ["self_attn", "src_attn"]],
    ]) {
      for (let n = 0; n < N; n++) {
        const layer = `${stack}.layers.${n}`;
        for (const attn of attentions)
          for (const W of ["W_q", "W_k", "W_v", "W_o"])
            matrix(`${layer}.${attn}.${W}`, d_model, d_model);
        for (const [W, rows, cols] of [
          ["W_1", d_ff, d_model],
          ["W_2", d_model, d_ff],
        ]) {
          matrix(`${layer}.feed_forward.${W}`, rows, cols);
          parameters[`${layer}.feed_forward.${W}.bias`] = tensor(1, rows);
        }
        for (let i = 0; i <= attentions.length; i++) gain_and_bias(`${layer}.sublayer.${i}.norm`);
      }
      if (norm === "pre") gain_and_bias(`${stack}.norm`);
    }
    return {
      parameters,
      N,
      h,
      positions,
      causal,
      norms,
      residuals,
      norm,
      slip,
      step: 0,
      moments: null,
    };
  }

  // how far ahead a letter of the target sees
  const FAR = { no_causal_mask: Infinity, causal_mask_one_too_far: 1 };

  /** Logits of all target positions of all pairs; `weights` receives the attention of the decoder's
   *  last layer to the source, or, if `first` is true, that of the encoder's first layer; `inputs`
   *  receives what the encoder's attentions read. */
  function forward(model, pairs, { weights, inputs, writing = false, first = false } = {}) {
    const { N, h, slip } = model,
      P = (name) => model.parameters[name],
      places = (stack) =>
        model.positions && !["no_positions", `no_positions_in_${stack}`].includes(slip);
    const join = model.residuals ? add : (x, found) => found;
    const stack = (rows) => [
      rows.flat(),
      rows.reduce((starts, row) => [...starts, starts.at(-1) + row.length], [0]),
    ];
    const [src, sources] = stack(pairs.map((pair) => pair.src)),
      [tgt, targets] = stack(pairs.map((pair) => pair.read));
    const normed = (x, name) =>
      model.norms
        ? layer_norm(
            x,
            P(`${name}.weight`),
            P(`${name}.bias`),
            slip === "norm_over_time" && (name.startsWith("encoder") ? sources : targets),
          )
        : x;
    const ahead = model.causal ? (FAR[slip] ?? 0) : Infinity,
      itself = slip === "cross_attends_to_itself";
    const attend = (name, x, y, queries, keys, ahead, kept) =>
      linear(
        attention(
          linear(x, P(`${name}.W_q.weight`)),
          linear(y, P(`${name}.W_k.weight`)),
          linear(y, P(`${name}.W_v.weight`)),
          h,
          queries,
          keys,
          ahead,
          kept,
          slip,
        ),
        P(`${name}.W_o.weight`),
      );
    const feed = (name, x) =>
      linear(
        relu(linear(x, P(`${name}.W_1.weight`), P(`${name}.W_1.bias`))),
        P(`${name}.W_2.weight`),
        P(`${name}.W_2.bias`),
      );
    const table = P("src_embed.embeddings.table.weight");
    const sublayer = (name, x, f) =>
      model.norm === "pre"
        ? join(x, f(normed(x, `${name}.norm`)))
        : normed(join(x, f(x)), `${name}.norm`);
    const last = (x, stack) => (model.norm === "pre" ? normed(x, `${stack}.norm`) : x);
    let memory = embed(table, src, sources, places("encoder")),
      x = embed(
        table,
        tgt,
        targets,
        places("decoder"),
        writing && slip === "every_step_at_position_zero",
      );
    for (let n = 0; n < N; n++) {
      const layer = `encoder.layers.${n}`;
      memory = sublayer(
        `${layer}.sublayer.0`,
        memory,
        (y) => (
          inputs?.push(y),
          attend(
            `${layer}.self_attn`,
            y,
            y,
            sources,
            sources,
            Infinity,
            first && n === 0 ? weights : undefined,
          )
        ),
      );
      memory = sublayer(`${layer}.sublayer.1`, memory, (y) => feed(`${layer}.feed_forward`, y));
    }
    memory = last(memory, "encoder");
    for (let n = 0; n < N; n++) {
      const layer = `decoder.layers.${n}`,
        kept = !first && n === N - 1 ? weights : undefined;
      x = sublayer(`${layer}.sublayer.0`, x, (y) =>
        attend(`${layer}.self_attn`, y, y, targets, targets, ahead),
      );
      x = sublayer(`${layer}.sublayer.1`, x, (y) =>
        itself
          ? attend(`${layer}.src_attn`, y, y, targets, targets, ahead, kept)
          : attend(`${layer}.src_attn`, y, memory, targets, sources, Infinity, kept),
      );
      x = sublayer(`${layer}.sublayer.2`, x, (y) => feed(`${layer}.feed_forward`, y));
    }
    return linear(last(x, "decoder"), table);
  }

  /** What is read and what is predicted: shifted by one, or with a mistake. */
  const batch = (pairs, slip = null) =>
    pairs.map(({ src, tgt }, i) => {
      if (slip === "target_fed_as_source") src = tgt.slice(1);
      if (slip === "pairs_misaligned") tgt = pairs[(i + 1) % pairs.length].tgt;
      if (slip === "eos_cut_off") tgt = tgt.filter((id) => id !== EOS);
      const by = { no_shift: 0, shift_by_two: 2 }[slip] ?? 1,
        end = Math.min(-1, -by);
      return { src, read: tgt.slice(0, end), predict: by ? tgt.slice(by) : tgt.slice(0, end) };
    });

  /** Set the gradient of the mean loss per target token; returns that loss. */
  function gradient(model, pairs, { smoothing = 0, shift = true } = {}) {
    tape = [];
    if (model.slip !== "gradients_never_cleared")
      for (const p of Object.values(model.parameters)) p.grad.fill(0);
    const rows = batch(pairs, shift ? model.slip : "no_shift"),
      loss = smoothed_loss_of(forward(model, rows), rows, smoothing);
    while (tape.length) tape.pop()();
    return loss;
  }
  const smoothed_loss_of = (logits, rows, smoothing) =>
    smoothed_loss(
      logits,
      rows.flatMap((row) => row.predict),
      smoothing,
    );

  /** The mean loss per target token, without gradients. */
  function loss(model, pairs, smoothing = 0) {
    const rows = batch(pairs),
      found = smoothed_loss_of(forward(model, rows), rows, smoothing);
    tape = [];
    return found;
  }

  /** Equation (3). */
  const rate = (step, d_model, factor, warmup) =>
    factor * d_model ** -0.5 * Math.min(step ** -0.5, step * warmup ** -1.5);

  /** One step of Adam on some pairs; returns the loss before it. */
  function update(model, pairs, { lr, smoothing = 0, shift = true }) {
    const loss = gradient(model, pairs, { smoothing, shift }),
      [beta1, beta2, eps] = [0.9, 0.98, 1e-9],
      t = ++model.step;
    model.moments ??= Object.fromEntries(
      Object.entries(model.parameters).map(([name, p]) => [
        name,
        [new Real(p.data.length), new Real(p.data.length)],
      ]),
    );
    for (const [name, p] of Object.entries(model.parameters)) {
      const [m, v] = model.moments[name];
      for (let i = 0; i < m.length; i++) {
        m[i] = beta1 * m[i] + (1 - beta1) * p.grad[i];
        v[i] = beta2 * v[i] + (1 - beta2) * p.grad[i] ** 2;
        p.data[i] -= (lr * (m[i] / (1 - beta1 ** t))) / (Math.sqrt(v[i] / (1 - beta2 ** t)) + eps);
      }
    }
    return loss;
  }

  /** The most probable token at each step, until EOS or `longest` tokens: ids without BOS, and the
   *  cross-attention (T)(h)(S) of the last layer. */
  function greedy_decode(model, src, longest) {
    const ids = [model.slip === "decoding_begins_with_eos" ? EOS : BOS],
      maps = [];
    while (ids.length <= longest && (ids.length === 1 || ids.at(-1) !== EOS)) {
      const weights = [],
        logits = forward(model, [{ src, read: ids }], { weights, writing: true }),
        V = logits.cols,
        T = ids.length;
      tape = [];
      const last = logits.data.subarray((T - 1) * V);
      maps.push(
        Array.from({ length: model.h }, (_, head) => Array.from(weights[head * T + T - 1])),
      );
      ids.push(last.indexOf(Math.max(...last)));
    }
    return { ids: ids.slice(1), weights: maps };
  }

  /** The places of the pairs that greedy decoding gets wrong: it is right if it is right after each
   *  beginning of the true tokens. */
  function wrong_ones(model, pairs) {
    const wrong = new Set();
    const check = (rows, from) => {
      // the predictions of rows, from one of their positions on
      const logits = forward(model, rows),
        V = logits.cols;
      tape = [];
      let i = 0;
      for (const [r, { predict }] of rows.entries()) {
        for (const [t, target] of predict.entries()) {
          const row = logits.data.subarray(i * V, ++i * V);
          if (t >= from && row.indexOf(Math.max(...row)) !== target) wrong.add(r);
        }
      }
    };
    const rows = batch(pairs),
      longest = Math.max(...rows.map(({ read }) => read.length));
    if (model.causal && !model.slip)
      check(rows, 0); // all beginnings at once
    else
      for (let t = 0; t < longest; t++)
        check(
          rows.map(({ src, read, predict }) => ({
            src,
            read: read.slice(0, t + 1),
            predict: predict.slice(0, t + 1),
          })),
          t,
        );
    return [...wrong].sort((a, b) => a - b);
  }
  /** Logits of rows of `batch`, with the options of `forward`; nothing is kept for a gradient. */
  function logits(model, rows, options) {
    const found = forward(model, rows, options);
    tape = [];
    return found;
  }
  const exact = (model, pairs) => 1 - wrong_ones(model, pairs).length / pairs.length;

  return {
    PAD,
    BOS,
    EOS,
    generator,
    make_model,
    batch,
    logits,
    gradient,
    loss,
    rate,
    update,
    greedy_decode,
    wrong_ones,
    exact,
  };
};
