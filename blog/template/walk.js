// The guided walk: ten stops from the text of one sentence to the text of its translation, with the live model's numbers.
(() => {
  const place = document.querySelector(".explorer"), figure = document.querySelector(".arch-fig");
  if (!place || !figure) return;

  // --- small helpers ---

  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  let plain; // how the model's tokenizer shows a token
  const code = (text) => el("code", {}, text);
  const percent = (p) => (100 * p).toFixed(1) + "%";
  const size = (vector) => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0) / vector.length).toFixed(2);
  const numbers = (vector) => code([...vector.slice(0, 6)].map((value) => value.toFixed(2)).join("  ") + "  …");
  const bars = (rows) => el("div", { class: "walk-bars" }, ...rows.flatMap(([name, p, strong]) =>
    [el(strong ? "strong" : "span", {}, name), el("i", { style: `width:${Math.max(0.3, 100 * p)}%` }), el("span", {}, percent(p))]));
  const row = (name, value) => el("p", { class: "walk-row" }, el("span", {}, name), value);
  const strongest = (tokens, weights, n = 5) => tokens.map((token, i) => [plain(token), weights[i]])
    .sort((a, b) => b[1] - a[1]).slice(0, n);

  // --- what the model computes on the way ---

  function follow({ translator }, sentence) {
    const { model, tokenizer } = translator, src = translator.source(sentence), { d_model } = model.config;
    plain = (token) => tokenizer.spell(token);
    const { ids } = Transformer.beamSearch(model, src), maps = translator.attentionMaps(src, ids);
    const head = Math.min(1, model.config.h - 1), first = maps.maps.encoder[0][head]; // of the first layer
    const others = first.map((row, t) => Math.max(0, ...row.slice(0, -1).filter((_, k) => k !== t && /[\p{L}\p{N}]/u.test(maps.source[k]))));
    const word = others.indexOf(Math.max(...others.slice(0, -1))); // whom we follow: the token that looks hardest at another word,
    const step = Math.max(0, Math.min(3, ids.length - 3)); // and a step, before the one that writes the end
    const table = model.src_embed.table.data.subarray(src[word] * d_model, (src[word] + 1) * d_model);
    const embedded = table.map((value) => value * Math.sqrt(d_model));
    const position = model.src_embed.positions
      ? model.src_embed.positions.data.subarray(word * d_model, (word + 1) * d_model)
      : Transformer.positionalEncoding(word, d_model);
    const x = model.embed(model.src_embed, src), layer = model.encoder.layers[0];
    let inner; // the hidden units of the feed-forward network
    const seen = (y) => { const all = layer.self_attn.keysValues(y); return layer.self_attn.attend(y, y.map(() => all)).output; };
    const afterAttention = layer.sublayer[0].forward(x, seen);
    const afterNetwork = layer.sublayer[1].forward(afterAttention, (y) => {
      inner = layer.feed_forward.hidden(y)[word];
      return layer.feed_forward.forward(y);
    });
    return { model, tokenizer, src, ids, maps, head, word, step, table, embedded, position, x, inner, afterAttention, afterNetwork,
             memory: model.encode(src).memory, sentence };
  }

  // --- the ten stops: the part of the figure, a title, the section that explains it, and what to show ---

  const STOPS = [
    ["inputs", say("Text becomes tokens"), "words-and-word-pieces-section-5-1", (f) => [
      say("The model reads numbers. Its vocabulary cuts the sentence into tokens, and each token has an id. (The walk goes through the whole model with its beam search, whatever is chosen in the figure.)"),
      row(say("tokens"), code(f.maps.source.map(plain).join(" | "))), row(say("ids"), code(f.src.join("  "))),
      say("We follow “{token}”, token {id}.", { token: plain(f.maps.source[f.word]), id: f.src[f.word] })]],
    ["source embedding", say("A token becomes a vector"), "words-become-vectors-section-3-4", (f) => [
      say("Each id has a row of {width} learned numbers. It is multiplied by √{width}, so that its entries have about the size of the positions that come next.", { width: f.table.length }),
      row(say("its row"), numbers(f.table)), row(say("scaled"), numbers(f.embedded)), row(say("root mean square"), code(`${size(f.table)} → ${size(f.embedded)}`))]],
    ["source position", say("The position is added"), "positions-section-3-5", (f) => [
      say("Attention does not know the order of what it reads. So each position has a vector of its own, of sines and cosines, and it is added."),
      row(say("position {position}", { position: f.word }), numbers(f.position)), row(say("sum"), numbers(f.x[f.word]))]],
    ["encoder attention", say("Every token looks at all others"), "multi-head-attention-section-3-2-2", (f) => [
      say("In the first layer, the query of “{token}” is compared with the key of every token. A softmax turns the scores into weights, and the token receives the values, weighed. Here is head {head} of {h}:", { token: plain(f.maps.source[f.word]), head: f.head + 1, h: f.model.config.h }),
      bars(strongest(f.maps.source, f.maps.maps.encoder[0][f.head][f.word]))]],
    ["encoder norm", say("The result is added"), "residuals-and-normalisation-section-3-1", (f) => [
      f.model.config.norm === "pre"
        ? say("What attention found is added to what was there before: that is the residual connection. (The figure has a norm behind the addition, as the paper does. Our model has it in front of each sublayer instead, so the sum may grow.)")
        : say("What attention found is added to what was there before: that is the residual connection. Then the sum is normalised."),
      row(say("before"), numbers(f.x[f.word])), row(say("after"), numbers(f.afterAttention[f.word])),
      row(say("root mean square"), code(`${size(f.x[f.word])} → ${size(f.afterAttention[f.word])}`))]],
    ["encoder feed-forward", say("Each position is worked on alone"), "position-wise-feed-forward-networks-section-3-3", (f) => [
      say("A small network reads one position at a time. Of its {all} hidden units, {active} are active for our token; a ReLU sets all others to zero.", { all: f.inner.length, active: f.inner.filter((value) => value > 0).length }),
      row(say("after it"), numbers(f.afterNetwork[f.word]))]],
    ["memory", say("After all layers: the memory"), "the-encoder-section-3-1", (f) => [
      say("The other layers of the encoder do the same. In the end there is one vector for each of the {count} tokens. The decoder will look at them again and again.", { count: f.src.length }),
      row(say("shape"), code(`${f.memory.length} × ${f.memory[0].length}`)), row(say("ours"), numbers(f.memory[f.word]))]],
    ["decoder attention", say("The decoder reads what it has written"), "masks", (f) => [
      say("The decoder writes one token at a time. So far it has written “{written}”. Its newest token looks at itself and at those before it; what comes later does not exist yet. In the first head of the last layer:", { written: f.tokenizer.decode(f.ids.slice(0, f.step + 1)) }),
      bars(strongest(f.maps.target.slice(0, f.step + 1), f.maps.maps.decoder.at(-1)[0][f.step]))]],
    ["cross-attention", say("It looks at the source"), "layers-of-three-sublayers", (f) => [
      say("Its queries meet the keys of the memory. The mean over the heads of the layer before the last shows what it looks at before it writes the next token:"),
      bars(strongest(f.maps.source, f.maps.source.map((_, s) => {
        const heads = f.maps.maps.cross.at(-2) ?? f.maps.maps.cross[0];
        return heads.reduce((sum, head) => sum + head[f.step][s], 0) / heads.length;
      })))]],
    ["softmax", say("A score for every token"), "greedy-decoding", (f) => [
      say("The last vector is compared with the row of each of the {count} tokens, and a softmax turns the scores into probabilities.", { count: f.tokenizer.pieces.length.toLocaleString("en") }),
      bars(f.maps.steps[f.step].likeliest.map(({ token, p }) => [plain(token), p, token === f.maps.predicted[f.step]])),
      say("It writes “{token}”. Then it reads this token, and goes on until it writes </s>:", { token: plain(f.maps.predicted[f.step]) }),
      el("p", {}, el("strong", {}, f.maps.translation))]],
  ];

  // --- the dialog ---

  const picture = figure.cloneNode(true);
  picture.querySelectorAll("title, desc, style, defs").forEach((node) => node.remove());
  picture.querySelectorAll("a").forEach((link) => link.removeAttribute("href"));
  for (const name of ["aria-labelledby", "width", "height"]) picture.removeAttribute(name);
  picture.setAttribute("aria-hidden", "true");
  const mark = picture.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
  mark.setAttribute("class", "walk-mark");
  const title = el("h2", { id: "walk-title" }), text = el("div", { class: "walk-text" }), count = el("span", { class: "walk-count" });
  const button = (label, about) => el("button", { type: "button", "aria-label": about }, label);
  const back = button(say("◀ back"), say("Previous stop")), next = button(say("next ▶"), say("Next stop")), close = button(say("close"), say("Close the walk"));
  const link = el("a", {}, say("Read the section"));
  const dialog = el("dialog", { class: "walk", "aria-labelledby": "walk-title" }, el("div", { class: "walk-picture" }, picture),
    el("div", { class: "walk-side" }, title, text, el("p", {}, link), el("p", { class: "walk-buttons" }, back, count, next, close)));
  document.body.append(dialog);
  let facts, stop = 0;

  function show(number) {
    stop = Math.max(0, Math.min(STOPS.length - 1, number));
    const [part, name, section, tell] = STOPS[stop];
    title.textContent = `${stop + 1}. ${name}`;
    text.replaceChildren(...tell(facts).map((piece) => (typeof piece === "string" ? el("p", {}, piece) : piece)));
    link.href = "#" + section;
    count.textContent = say("{stop} of {all}", { stop: stop + 1, all: STOPS.length });
    const ends = [[back, stop === 0, next], [next, stop === STOPS.length - 1, back]];
    for (const [one, atEnd, other] of ends) { // a disabled button would lose the focus, and with it the keys
      if (atEnd && document.activeElement === one) other.focus();
      one.disabled = atEnd;
    }
    const box = picture.querySelector(`[data-part="${part}"]`).getBBox();
    for (const [name, value] of Object.entries({ x: box.x - 6, y: box.y - 6, width: box.width + 12, height: box.height + 12, rx: 10 }))
      mark.setAttribute(name, value);
    const near = matchMedia("(max-width: 48rem)").matches; // on a phone only the part and what is around it
    picture.setAttribute("viewBox", near ? `0 ${Math.max(0, box.y + box.height / 2 - 130)} 540 260` : "0 0 540 912");
  }

  async function open() {
    try {
      const content = await liveContent();
      const before = facts?.sentence, sentence = document.querySelector(".explorer > div")?.explored?.sentence().trim() || content.sentence;
      facts = follow(content, sentence);
      dialog.showModal();
      show(sentence === before && stop < STOPS.length - 1 ? stop : 0); // one who read a section meanwhile goes on
      next.focus();
    } catch (error) {
      start.textContent = say("The walk cannot begin: {why}", { why: error.message });
    }
  }

  back.addEventListener("click", () => show(stop - 1));
  next.addEventListener("click", () => show(stop + 1));
  close.addEventListener("click", () => dialog.close());
  link.addEventListener("click", () => dialog.close());
  dialog.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step && !event.altKey && !event.ctrlKey && !event.metaKey) show(stop + step);
  });
  const start = el("button", { type: "button", id: "walk" }, say("Walk with this sentence through the model: ten stops"));
  start.addEventListener("click", open);
  place.after(start);
})();
