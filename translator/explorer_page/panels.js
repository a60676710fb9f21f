// What the model computes for one sentence, stop by stop, and panels that show it: `SentencePanels.add(element, name)` puts the
// panel `name` into an element, and `SentencePanels.follow(translator, sentence)` has all panels show another sentence.

const SentencePanels = (() => {
  "use strict";

  const { linear, softmax } = Transformer;

  // --- what the model computes ---

  // The numbers on the way of a sentence, named as in the document; vectors are those of every token, in its order.
  function trace(translator, sentence) {
    const { model, tokenizer } = translator, { d_model, h } = model.config, src = translator.source(sentence);
    for (const kind of ["encoder", "decoder", "cross"]) model.heads(kind).forEach((attention) => attention.off.clear());
    const { ids, nodes, best } = Transformer.beamSearch(model, src), { table } = model.src_embed;
    const rows = src.map((id) => table.data.slice(id * d_model, (id + 1) * d_model));
    const embedded = rows.map((row) => row.map((value) => value * Math.sqrt(d_model))), input = model.embed(model.src_embed, src);
    const positions = input.map((vector, t) => vector.map((value, i) => value - embedded[t][i]));
    let x = input;
    const layers = model.encoder.layers.map(({ self_attn, feed_forward, sublayer }) => {
      const found = { before: x };
      x = found.between = sublayer[0].forward(x, (y) => {
        const all = self_attn.keysValues(y), queries = self_attn.queries(y), width = queries[0].length / h;
        const score = (q, k, head) => q.slice(head * width, (head + 1) * width).reduce((sum, value, i) => sum + value * k[head * width + i], 0) / Math.sqrt(width);
        found.scores = Array.from({ length: h }, (_, head) => queries.map((q) => all.keys.map((k) => score(q, k, head))));
        found.weights = found.scores.map((rows) => rows.map(softmax));
        Object.assign(found, { normed: y, queries, keys: all.keys, attended: self_attn.attend(y, y.map(() => all)).output });
        return found.attended;
      });
      x = found.after = sublayer[1].forward(x, (y) => {
        found.inner = feed_forward.hidden(y);
        return feed_forward.forward(y);
      });
      return found;
    });
    const memory = model.encoder.norm.forward(x), decoder = new Transformer.CachedDecoder(model, memory);
    const steps = ids.slice(0, -1).map((id) => {
      const { logits, states, ...weights } = decoder.step([id]);
      return { logits: logits[0], p: softmax(logits[0]), states: states.map(([vector]) => vector), ...weights };
    });
    const name = (list) => list.map((id) => tokenizer.spell(tokenizer.pieces[id]));
    return { translator, src, ids, nodes, best, rows, embedded, positions, input, layers, memory, steps, translation: tokenizer.decode(ids),
             source: name(src), written: name(ids.slice(0, -1)), predicted: name(ids.slice(1)), name };
  }

  // What each layer of the decoder would say at a step if it were the last: token ids and their probabilities.
  function lens({ translator: { model }, steps }, step) {
    return steps[step].states.map((vector) => {
      const p = softmax(linear(model.decoder.norm.forward([vector]), model.generator)[0]), id = p.indexOf(Math.max(...p));
      return { id, p: p[id] };
    });
  }

  // The greedy translation with one head set to zero.
  function without({ translator: { model, tokenizer }, src }, kind, layer, head) {
    const { off } = model.heads(kind)[layer];
    off.add(head);
    try { return tokenizer.decode(Transformer.greedyDecode(model, src)); } finally { off.delete(head); }
  }

  // --- how it is shown ---

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  }
  const code = (text) => el("code", {}, text);
  const percent = (p) => (100 * p).toFixed(1) + "%";
  const size = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0) / vector.length);
  const numbers = (vector) => code([...vector.slice(0, 6)].map((value) => value.toFixed(2)).join("  ") + "  …");
  const row = (name, value) => el("p", { class: "panel-row" }, el("span", {}, name), value);
  const symbol = (letters, ...text) => el("span", { class: "panel-symbol", "data-symbol": letters, tabindex: "0" }, ...(text.length ? text : letters)); // which the page lights up in its formulas
  const bars = (entries, show = percent) => {
    const most = Math.max(...entries.map(([, value]) => value));
    return el("div", { class: "panel-bars" }, ...entries.flatMap(([name, value, strong]) =>
      [el(strong ? "strong" : "span", {}, name), el("i", { style: `width:${Math.max(0.3, (100 * value) / most)}%` }), el("span", {}, show(value))]));
  };
  const largest = (values, n) => [...values.keys()].sort((a, b) => values[b] - values[a]).slice(0, n);

  // A map with words on its axes; `weight` from 0 to 1 colours a cell, null hides it.
  function heat(queries, keys, value, about, { weight = value, digits = 2 } = {}) {
    const cell = (q, k) => {
      const shade = weight(q, k);
      if (shade === null) return el("td", { class: "hidden", title: say("{query} may not look at {key}", { query: queries[q], key: keys[k] }) });
      const text = value(q, k).toFixed(digits);
      return el("td", { style: `--w:${shade.toFixed(3)}`, title: `${queries[q]} → ${keys[k]}: ${text}` }, digits < 2 ? text : shade >= 0.1 ? text.replace(/^0(?=\.)/, "") : "");
    };
    const head = el("tr", {}, el("td"), ...keys.map((key) => el("th", { scope: "col" }, el("span", {}, key))));
    const body = queries.map((query, q) => el("tr", {}, el("th", { scope: "row" }, query), ...keys.map((_, k) => cell(q, k))));
    return el("div", { class: "panel-scroll", tabindex: "0", role: "group", "aria-label": about }, el("table", { class: "panel-heat" }, el("thead", {}, head), el("tbody", {}, ...body)));
  }

  // The beam as a tree: a column for each step, a line from each token to those that continue it.
  function tree({ nodes, best, name }) {
    const way = new Set(), columns = [];
    for (let at = best; at !== null; at = nodes[at].parent) way.add(at);
    nodes.forEach((node, i) => (columns[node.step] ??= []).push(i));
    const place = [];
    columns.forEach((column, step) => column.forEach((i, y) => { place[i] = [84 * step + 4, 20 * y + 14]; }));
    const shape = (tag, attributes, ...text) => {
      const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
      node.append(...text);
      return node;
    };
    const height = 20 * Math.max(...columns.map((column) => column.length)) + 6, width = 84 * columns.length;
    const lines = nodes.flatMap(({ parent }, i) => {
      if (parent === null) return [];
      const [[x, y], [z, w]] = [place[parent], place[i]];
      return [shape("path", { d: `M${x + 60} ${y - 4}C${x + 72} ${y - 4} ${z - 18} ${w - 4} ${z - 4} ${w - 4}`, class: way.has(i) ? "way" : "" })];
    });
    const labels = nodes.map(({ id, logP, score }, i) => shape("text", { x: place[i][0], y: place[i][1], class: way.has(i) ? "way" : "" },
      shape("title", {}, score === undefined ? say("log-probability {logP}", { logP: logP.toFixed(2) }) : say("log-probability {logP}, score {score}", { logP: logP.toFixed(2), score: score.toFixed(2) })), name([id])[0].slice(0, 7)));
    const svg = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": say("The beam as a tree") }, ...lines, ...labels);
    return el("div", { class: "panel-scroll panel-tree", tabindex: "0", role: "group", "aria-label": say("The beam as a tree") }, svg);
  }

  // --- the panels: a title, what can be chosen, and what to show ---

  const KINDS = { encoder: say("encoder"), decoder: say("decoder’s own"), cross: say("cross") };
  const CHOICES = { layer: say("layer"), head: say("head"), token: say("token"), step: say("step"), kind: say("kind"), temperature: say("temperature") };
  const PANELS = {
    vectors: [say("A token becomes a vector"), ["token"], (f, { token }) => [
      row(say("tokens"), code(f.source.join(" | "))), row(say("ids"), code(f.src.join("  "))),
      row(say("row {id}", { id: f.src[token] }), numbers(f.rows[token])), row(say("times {factor}", { factor: `√${f.rows[0].length}` }), numbers(f.embedded[token])),
      row(say("root mean square"), code(`${size(f.rows[token]).toFixed(2)} → ${size(f.embedded[token]).toFixed(2)}`))]],
    positions: [say("The position is added"), ["token"], (f, { token }) => f.translator.model.config.rotary ? [el("p", {}, say("This model adds no positions: each self-attention rotates its queries and keys (Part 7)."))] : [
      row(say("embedding"), numbers(f.embedded[token])), row(symbol("PE", say("position {position}", { position: token })), numbers(f.positions[token])), row(say("sum"), numbers(f.input[token]))]],
    scores: [say("Scores of one head"), ["layer", "head"], (f, { layer, head }) => {
      const scores = f.layers[layer].scores[head], all = scores.flat(), [low, high] = [Math.min(...all), Math.max(...all)];
      return [heat(f.source, f.source, (q, k) => scores[q][k], say("Scores"), { weight: (q, k) => (scores[q][k] - low) / (high - low || 1), digits: 1 }),
        el("p", {}, ...told("Each row is a query {Q}, each column a key {K}: their dot product, divided by √d_k. A softmax turns each row into the weights of the next map.", { Q: symbol("Q"), K: symbol("K") }))];
    }],
    heads: [say("Whom a token looks at"), ["layer", "head"], (f, { layer, head }) => {
      const weights = f.layers[layer].weights[head];
      return [heat(f.source, f.source, (q, k) => weights[q][k], say("Attention weights of the encoder")), el("p", {}, ...told("Each row adds up to 1; weights below .10 have a colour, but no number. With these weights, the row’s token gets the mean of all values {V}.", { V: symbol("V") }))];
    }],
    residual: [say("The stream before and after attention"), ["layer", "token"], (f, { layer, token }) => {
      const { before, normed, attended, between } = f.layers[layer], pre = f.translator.model.config.norm === "pre", show = (x) => el("span", {}, numbers(x[token]), " ", say("root mean square {size}", { size: size(x[token]).toFixed(2) }));
      return [row(symbol("x", say("the stream x")), show(before)), row(pre ? say("normalised, times the gain") : say("as it is"), show(normed)), row(say("attention’s output"), show(attended)), row(pre ? say("their sum") : say("sum, normalised"), show(between))];
    }],
    neurons: [say("Which neurons answer"), ["layer", "token"], (f, { layer, token }) => {
      const inner = f.layers[layer].inner, [first, ...rest] = largest(inner[token], 3), active = inner[token].filter((value) => value > 0).length;
      const strongest = [first, ...rest].map((n) => say("number {n} ({value})", { n, value: inner[token][n].toFixed(2) })).join(", ");
      return [say("Of {all} neurons, {active} are above zero for “{token}”. The strongest are {strongest}. The first of these answers to the tokens of the sentence like this:", { all: inner[token].length, active, token: f.source[token], strongest }),
        bars(f.source.map((name, t) => [name, inner[t][first], t === token]), (value) => value.toFixed(2))];
    }],
    masks: [say("The mask on what has been written"), ["layer", "head"], (f, { layer, head }) => [
      heat(f.written, f.written, (q, k) => f.steps[q].decoder[layer][0][head][k] ?? 0, say("Attention weights of the decoder"), { weight: (q, k) => (k > q ? null : f.steps[q].decoder[layer][0][head][k]) }),
      say("Hatched: later tokens, which the mask hides.")]],
    cross: [say("Where the decoder looks"), ["layer", "head"], (f, { layer, head }) => [
      heat(f.predicted, f.source, (q, k) => f.steps[q].cross[layer][0][head][k], say("Weights of the cross-attention")),
      say("Each row is a step, with the token that it writes: where the decoder looked before it wrote that.")]],
    logits: [say("A score for every token"), ["step"], (f, { step }) => {
      const { logits, p } = f.steps[step], ids = largest(p, 6);
      return [say("After “{written}”:", { written: f.written.slice(1, step + 1).join(" ") || say("nothing but <s>") }), bars(ids.map((id) => [`${f.name([id])[0]} (${logits[id].toFixed(1)})`, p[id], id === f.ids[step + 1]])),
        say("In brackets the logit; the bar is the probability. Bold: the token that the search took.")];
    }],
    temperature: [say("The same logits at another temperature"), ["step", "temperature"], (f, { step, temperature }) => {
      const { logits } = f.steps[step], p = softmax(logits.map((logit) => (10 * logit) / temperature)), ids = largest(logits, 8), among = ids.reduce((sum, id) => sum + p[id], 0);
      return [bars(ids.map((id) => [f.name([id])[0], p[id]])), say("Temperature {temperature}: the other {count} tokens have {share} together.", { temperature: (temperature / 10).toFixed(1), count: (p.length - ids.length).toLocaleString("en"), share: percent(Math.max(0, 1 - among)) })];
    }],
    beam: [say("The search as a tree"), [], (f) => [tree(f), say("The best way is drawn bold: “{translation}”", { translation: f.translation })]],
    lens: [say("What each layer would say"), [], (f) => {
      const found = f.steps.map((_, step) => lens(f, step)), layers = found[0].map((_, n) => n);
      const cells = (n) => found.map((steps, t) => el("td", { style: `--w:${(0.6 * steps[n].p).toFixed(2)}`, title: percent(steps[n].p) }, f.name([steps[n].id])[0]));
      const table = el("table", { class: "panel-heat words" }, el("tbody", {}, ...layers.map((n) => el("tr", {}, el("th", { scope: "row" }, say("layer {layer}", { layer: n + 1 })), ...cells(n)))));
      return [el("div", { class: "panel-scroll", tabindex: "0", role: "group", "aria-label": say("What each layer would say") }, table), say("The stronger the colour, the surer the layer. The last row is the translation, if the greedy choice is the beam’s.")];
    }],
    removed: [say("One head less"), ["kind"], (f, { kind }) => {
      const whole = f.translator.tokenizer.decode(Transformer.greedyDecode(f.translator.model, f.src)), heads = f.translator.model.heads(kind);
      const rows = heads.flatMap((attention, layer) => Array.from({ length: attention.h }, (_, head) => [layer, head, without(f, kind, layer, head)]));
      const changed = rows.filter(([, , text]) => text !== whole);
      return [row(say("all heads"), whole), ...changed.map(([layer, head, text]) => row(say("layer {layer}, head {head}", { layer: layer + 1, head: head + 1 }), text)),
        say("{changed} of {all} heads change the greedy translation when they are removed alone.", { changed: changed.length, all: rows.length })];
    }],
  };

  const shown = []; // of every panel: `draw` it if it is not drawn, and draw it `again` if it is seen
  let facts = null, waiting = null; // of the sentence that is followed; [translator, sentence] until a panel is seen

  function current() {
    if (waiting) [facts, waiting] = [trace(...waiting), null];
    return facts;
  }

  // The choices of a panel with their names, for this sentence.
  function choices(what, f) {
    const { N, h } = f.translator.model.config, count = (n) => Array.from({ length: n }, (_, i) => [i, `${i + 1}`]);
    return { layer: count(N), head: count(h), token: f.source.map((name, t) => [t, name]), step: f.predicted.map((name, t) => [t, `${t + 1}: ${name}`]),
             kind: Object.entries(KINDS) }[what];
  }

  function add(host, name) { // panels of one place have one layer and one head
    const [title, wanted, draw] = PANELS[name], body = el("div", { class: "panel-body" }), selects = {}, line = el("p", { class: "panel-choices" });
    host.append(el("figure", { class: "sentence-panel", "data-panel": name }, el("figcaption", {}, title), line, body));
    const common = (host.chosen ??= {});
    body.ariaBusy = "true"; // until it shows the sentence that is followed
    let seen = false;
    for (const what of wanted) {
      selects[what] = what === "temperature" ? el("input", { type: "range", min: 1, max: 30, value: 10 }) : el("select"); // in tenths
      selects[what].setAttribute("aria-label", `${title}: ${CHOICES[what]}`);
      selects[what].addEventListener("input", () => {
        common[what] = selects[what].value;
        for (const panel of shown) if (panel.host === host) panel.again();
      });
      line.append(el("label", {}, `${CHOICES[what]} `, selects[what]));
    }
    function show() {
      const f = current(), chosen = {};
      if (!f) return;
      for (const what of wanted) {
        if (what === "temperature") { chosen[what] = Number(selects[what].value); continue; }
        const before = common[what] ?? selects[what].value, list = choices(what, f), last = list.length - 1, first = { token: Math.min(2, last), step: Math.min(3, last), layer: name === "cross" ? last : 0, head: Math.min(1, last) }[what] ?? list[0][0];
        selects[what].replaceChildren(...list.map(([value, text]) => el("option", { value }, text)));
        selects[what].value = list.some(([value]) => `${value}` === before) ? before : first;
        chosen[what] = what === "kind" ? selects[what].value : Number(selects[what].value);
      }
      body.replaceChildren(...draw(f, chosen).map((part) => (typeof part === "string" ? el("p", {}, part) : part)));
      body.ariaBusy = "false";
    }
    new IntersectionObserver((entries) => { // what nobody sees is not computed
      seen = entries.at(-1).isIntersecting;
      if (seen && body.ariaBusy === "true") show();
    }, { rootMargin: "300px" }).observe(body);
    shown.push({ host, draw: () => body.ariaBusy === "false" || show(), again: () => { body.ariaBusy = "true"; if (seen) show(); } });
  }

  function follow(translator, sentence) {
    if (!sentence.trim()) return;
    [facts, waiting] = [null, [translator, sentence]];
    for (const { again } of shown) again();
  }
  globalThis.addEventListener?.("beforeprint", () => shown.forEach(({ draw }) => draw())); // on paper, all of them

  return { names: Object.keys(PANELS), trace, lens, without, add, follow };
})();

if (typeof module !== "undefined") module.exports = SentencePanels;
