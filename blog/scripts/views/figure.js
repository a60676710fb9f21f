// The figure of a translation: type a sentence, step through its translation, look at every
// attention weight.
//
// `exploreAttention(host, content, options)` draws it into an element. `content` is what
// explorer.py writes: a `model` that runs in a worker (page/engine.js), or `recorded` translations
// of one sentence. Results of both have the same form, that of Translator.attentionMaps in
// model/translator.js; one that a beam found has the search's `nodes` and `best` as well.

import * as Guesses from "../page/guesses.js";
import { direction, openOnPaper, say, told } from "../page/language.js";
import { LONGEST } from "../model/decoding.js";
import { EOS } from "../model/tokeniser.js";
import * as Trust from "./trust.js";

export function exploreAttention(host, content, options = {}) {
  const root = host.attachShadow({ mode: "open" });
  root.append(document.getElementById("explorer-figure").content.cloneNode(true));
  const $ = (id) => root.getElementById(id);
  const calm = matchMedia("(prefers-reduced-motion: reduce)"),
    finger = matchMedia("(hover: none)");

  // Cross-attention names (and merges) its rows by what they PREDICT: they search the source for
  // that word.
  const KINDS = {
    encoder: {
      name: say("Encoder self-attention"),
      queries: "source",
      keys: "source",
      explanation: say(
        "Each source token (query, row) looks at all source tokens (keys, columns), including itself.",
      ),
    },
    decoder: {
      name: say("Decoder self-attention"),
      queries: "target",
      keys: "target",
      explanation: say(
        "Each target token that is read (query, row) looks at itself and at the tokens before it (keys, columns). The mask hides later ones.",
      ),
    },
    cross: {
      name: say("Cross-attention"),
      queries: "predicted",
      keys: "source",
      explanation: say(
        "Each decoder position (query, row) reads one target token and predicts the next. To do so it looks at the source tokens in the encoder’s output (keys, columns).",
      ),
    },
  };
  const state = {
    sentence: "",
    search: "beam",
    temperature: 1,
    topP: 0.9,
    step: 1,
    kind: "cross",
    layer: 0,
    head: "mean",
    words: false,
    guess: false,
  };
  const { engine } = content,
    LARGEST = 2000; // cells of a map that are drawn at once
  // heads set to zero, as "layer head" from 1
  const off = { encoder: new Set(), decoder: new Set(), cross: new Set() };
  const source = { hidden: new Set(), order: null }; // what was done to the tokens that are read
  // what the reader chose: all `forced` tokens, and `choices`, each { step, ids, token, p, other, q
  // }
  let taken = null;
  let guessed = 0; // up to this step the reader has guessed
  let result = null; // what is shown
  let whole = null; // its translation without what the reader has changed
  let view = null; // the map that is drawn: { queries, keys, weights }
  let pinned = null; // index of the query whose lines stay; null: the lines of all
  let playing = 0; // the timer of a running animation

  // ---- translating ----

  const anyOff = () => Object.values(off).some((places) => places.size);
  const anyMoved = () => source.hidden.size > 0 || source.order !== null;
  const asItIs = () => ({
    sentence: state.shown,
    search: state.search,
    temperature: state.temperature,
    topP: state.topP,
  });
  const asChanged = () => ({
    ...asItIs(),
    forced: taken?.forced ?? [],
    off: anyOff()
      ? Object.fromEntries(Object.entries(off).map(([kind, places]) => [kind, [...places]]))
      : {},
    changes: anyMoved() ? { hidden: [...source.hidden], order: source.order } : undefined,
  });

  /** Ask the model; a question that is still open is given up for it. */
  async function translated(asked, signal) {
    if (!engine) return content.recorded[asked.search];
    const count = engine.source(asked.sentence).length,
      most = LONGEST;
    if (count > most)
      throw new Error(
        say("it has {count} tokens, and here at most {most} are read", { count, most }),
      );
    return engine.ask("translate", asked, {
      signal,
      step: (step) => busy(step ? say("Thinking: {step} tokens", { step }) : say("Thinking")),
    });
  }

  function busy(text) {
    clearTimeout(busy.waiting);
    $("panel").ariaBusy = text !== null;
    if (text === null) $("busy").hidden = true;
    else
      busy.waiting = setTimeout(
        () => {
          $("busy").hidden = false;
          $("busy-text").textContent = text;
        },
        $("busy").hidden ? 250 : 0,
      );
  }

  let open; // the question that the model is at
  /** Translate and show; true if there is something new to see. */
  async function compute(step = null) {
    stop();
    open?.abort(new DOMException("", "AbortError"));
    const mine = (open = new AbortController());
    const blank = !state.sentence.trim(),
      // a choice may come while the field is empty
      sentence = blank ? state.shown : state.sentence.trim();
    if (blank) notice(say("Write a sentence first."));
    if (!sentence) return false;
    if (sentence !== state.shown) {
      // what was done to another one
      taken = null;
      source.hidden.clear();
      source.order = null;
    }
    const before = state.shown;
    try {
      busy(say("Thinking"));
      state.shown = sentence;
      const changed = anyOff() || anyMoved() || taken,
        found = await translated(asChanged(), mine.signal);
      const own =
        changed && state.search !== "sample" ? await translated(asItIs(), mine.signal) : null;
      if (result?.source.join() !== found.source.join()) pinned = null;
      [result, whole, guessed] = [found, own, 0];
    } catch (error) {
      if (open !== mine) return false; // another question has come
      state.shown = before;
      busy(null);
      if (error.name === "AbortError") notice(say("Stopped."));
      else notice(say("This sentence cannot be translated: {why}.", { why: error.message }));
      if (error.name !== "AbortError") fade(true);
      return false;
    }
    busy(null);
    fade(blank);
    if (!blank) warn(sentence);
    state.step = Math.min(result.target.length, step ?? (state.guess ? 1 : Infinity));
    drawResult();
    return !blank;
  }
  const fade = (is) => {
    $("panel").style.opacity = is ? 0.4 : "";
  }; // what is shown is of another sentence

  function warn(sentence) {
    const found = engine ? Trust.doubts(sentence, engine.tokenizer, content.language) : [];
    if (result.predicted.at(-1) !== "</s>") found.push(say("It has reached the limit of length."));
    notice([...found, say(engine?.note ?? "")].join(" "), found.length > 0);
    const teaches = content.provocations?.find((one) => one.sentence === sentence)?.teaches;
    $("teaches").hidden = !teaches;
    $("teaches").textContent = teaches ? say(teaches) : "";
  }

  const notice = (text, warning = true) => {
    $("notice").textContent = text;
    $("notice").classList.toggle("warning", warning);
  };

  // What the reader has changed, and what became of it: once under the translation, and once beside
  // the heads.
  function compare() {
    const zeroed = Object.entries(off).flatMap(([kind, places]) =>
      [...places].map((place) => `${KINDS[kind].name.toLowerCase()} ${place.replace(" ", "/")}`),
    );
    const name = (i) => `“${spell(result.source, [i])}”`,
      moved =
        source.order?.flatMap((place, t) => (place > t ? [`${name(t)} ⇄ ${name(place)}`] : [])) ??
        [];
    const done = [
      ...(zeroed.length
        ? [say("Set to zero (layer/head): {names}. ", { names: zeroed.join(say(", ")) })]
        : []),
      ...(source.hidden.size
        ? [say("Hidden: {names}. ", { names: [...source.hidden].map(name).join(say(", ")) })]
        : []),
      ...(moved.length
        ? [say("Positions swapped: {names}. ", { names: moved.join(say(", ")) })]
        : []),
    ];
    const own = whole?.translation,
      same = own === result.translation;
    const after =
      own === undefined || state.guess
        ? []
        : same
          ? [say("The translation is the same as without it.")]
          : [
              say("Now: "),
              el("strong", {}, ...Trust.marked(result.translation, own)),
              el("br"),
              say("Before: "),
              el("span", {}, ...Trust.marked(own, result.translation)),
            ];
    for (const id of ["compared", "effect"]) {
      $(id).hidden = !done.length || (id === "effect" && !anyOff());
      $(id).replaceChildren(
        ...done,
        ...after.map((part) => (part.cloneNode ? part.cloneNode(true) : part)),
      );
    }
    const undo = el("button", { type: "button" }, $("restore").textContent);
    undo.addEventListener("click", () => {
      $("restore").click();
      $("source").querySelector("[tabindex='0']").focus();
    });
    $("compared").append(" ", undo);
    $("taken").hidden = !taken;
    if (!taken) return;
    const share = (found) => `${Math.round(100 * Trust.confidence(found.steps))}%`;
    $("taken").firstElementChild.textContent =
      taken.choices
        .map(({ token, p, other, q, step }) =>
          say("You took “{token}” at step {step} (probability {p}) instead of “{other}” ({q}).", {
            token: plain(token),
            step,
            p: percent(p),
            other: plain(other),
            q: percent(q),
          }),
        )
        .join(" ") +
      (whole
        ? say(
            " The sentence has now {now} per token (geometric mean); the model’s own has {before}.",
            { now: share(result), before: share(whole) },
          )
        : "");
  }

  // ---- tokens ----

  const isMarker = (token) => /^<\/?(s|bos|eos|pad)>$/.test(token);

  // A model of whole words never writes "▁"; then each token is a word.
  const hasPieces = () =>
    [result.source, result.target, result.predicted].some((tokens) =>
      tokens.some((token) => token.startsWith("▁")),
    );

  const startsWord = (tokens, i) =>
    i === 0 ||
    tokens[i].startsWith("▁") ||
    /^\p{P}+$/u.test(tokens[i]) ||
    isMarker(tokens[i]) ||
    isMarker(tokens[i - 1]) ||
    !hasPieces();

  function groups(tokens) {
    const found = [];
    tokens.forEach((_, i) => {
      if (!state.words || startsWord(tokens, i)) found.push([i]);
      else found.at(-1).push(i);
    });
    return found;
  }

  const plain = (text) => text.replaceAll("▁", " ").trim() || "␣";

  // "dog"; "·board" for a piece that continues a word; "a snow·board" for several.
  const spell = (tokens, members) =>
    members
      .map((i, n) => (startsWord(tokens, i) ? (n ? " " : "") : "·") + plain(tokens[i]))
      .join("");

  function items(name, isQuery) {
    const tokens = result[name];
    return groups(tokens).map((members) => {
      const text =
        members.length > 1 ? plain(members.map((i) => tokens[i]).join("")) : spell(tokens, members);
      const item = { members, text, start: startsWord(tokens, members[0]) };
      if (!isQuery || name === "source") return item;
      return {
        ...item,
        reads: name === "target" ? text : spell(result.target, members),
        predicts: name === "predicted" ? text : spell(result.predicted, members),
        main: name,
      };
    });
  }

  // ---- small helpers ----

  const SVG = "http://www.w3.org/2000/svg";

  function setAll(node, attributes) {
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  }

  // Strings become text nodes, so that no token is ever read as HTML.
  function el(tag, attributes = {}, ...children) {
    const node = setAll(document.createElement(tag), attributes);
    node.append(...children);
    return node;
  }

  function svg(tag, attributes = {}, ...children) {
    const node = setAll(document.createElementNS(SVG, tag), attributes);
    node.append(...children);
    return node;
  }

  function languageName(code) {
    // "German" for "de"; a code that the browser does not know stays as it is
    try {
      return new Intl.DisplayNames(document.documentElement.lang || "en", { type: "language" }).of(
        code,
      );
    } catch {
      return code;
    }
  }

  const startClass = (item) => (item.start ? "start" : "");
  const percent = (p) => (100 * p).toFixed(1) + "%";

  // The square root makes 2% visible beside 90%; all maps have the same scale, so they can be
  // compared.
  const opacity = (weight) => Math.sqrt(Math.max(0, Math.min(1, weight)));
  const shade = (weight) => "--a:" + opacity(weight).toFixed(3);

  // <bdi> keeps a right-to-left token from reordering its neighbours.
  const quoted = (text) => el("span", {}, "“", el("bdi", {}, text), "”");

  function fill(sentence) {
    $("text").value = sentence;
    $("text").dir = direction(sentence);
  }

  function label(item) {
    if (!item.main) return [el("bdi", { class: "main", title: item.text }, item.text)];
    const part = (text, name) =>
      el("bdi", { class: item.main === name ? "main" : "muted", title: text }, text);
    return [part(item.reads, "target"), " → ", part(item.predicts, "predicted")];
  }

  const describeQuery = (item) =>
    item.main
      ? told("reads {read}, predicts {predicted}", {
          read: quoted(item.reads),
          predicted: quoted(item.predicts),
        })
      : [quoted(item.text)];

  // One tab stop for a grid; the arrow keys move inside it.
  function rove(box, selector, countColumns) {
    box.addEventListener("keydown", (event) => {
      const all = [...box.querySelectorAll(selector)],
        at = all.indexOf(root.activeElement),
        columns = countColumns();
      const first = columns > 1 ? at - (at % columns) : 0,
        last = columns > 1 ? first + columns - 1 : all.length - 1,
        rightwards = box.dir === "rtl" ? -1 : 1,
        beside = (places) => Math.max(first, Math.min(last, at + places));
      const to = {
        ArrowLeft: beside(-rightwards),
        ArrowRight: beside(rightwards),
        ArrowUp: at - columns,
        ArrowDown: at + columns,
        Home: first,
        End: last,
      }[event.key];
      // Alt and an arrow is "back" in the browser
      if (at < 0 || to === undefined || event.altKey) return;
      event.preventDefault();
      all[to]?.focus({ preventScroll: true });
      // focus() alone may ignore the padding
      all[to]?.scrollIntoView({ block: "nearest", inline: "nearest" });
    });
    box.addEventListener("focusin", (event) => {
      for (const old of box.querySelectorAll("[tabindex='0']")) old.tabIndex = -1;
      event.target.tabIndex = 0;
    });
  }

  // ---- reading and writing ----

  // the reader is still to guess this step
  const unseen = () => state.guess && state.step > guessed;
  const pieceName = (token) =>
    (isMarker(token) || token.startsWith("▁") || !hasPieces() || /^\p{P}+$/u.test(token)
      ? ""
      : "·") + plain(token);

  function answer(id) {
    // the reader's guess
    const right = id === result.ids[state.step];
    guessed = state.step;
    Guesses.add(right);
    drawStep();
    $("step-readout").append(
      " ",
      el(
        "strong",
        {},
        right
          ? say("You guessed it.")
          : say("You guessed “{token}”.", { token: plain(engine.tokenizer.pieces[id]) }),
      ),
    );
    $("forward").focus();
  }

  /** Have the sentence go on from tokens of the reader's choice. */
  function take(ids) {
    const at = result.steps[state.step - 1],
      listed = at.likeliest.find(({ id }) => id === ids[0]);
    const [best] = at.likeliest,
      forced = [...result.ids.slice(1, state.step), ...ids],
      step = state.step;
    const choice = {
      step,
      ids,
      token: engine.tokenizer.tokens(ids).join(""),
      p: listed?.p ?? 0,
      other: best.token,
      q: best.p,
    };
    taken = {
      forced,
      choices: [...(taken?.choices ?? []).filter((one) => one.step < step), choice],
    };
    compute(step).then((is) => {
      if (!is) return;
      choice.p = ids.reduce((p, _, i) => p * (result.steps[step - 1 + i]?.own ?? 1), 1);
      compare();
      if (calm.matches) go(result.predicted.length);
      else play();
    });
  }

  function drawStrips() {
    const token = (tokens, text, i, about, name = "") =>
      el(
        "li",
        { class: `${startsWord(tokens, i) ? "start" : ""} ${name}`.trim() },
        el(
          "button",
          { type: "button", tabindex: i ? -1 : 0, "data-i": i },
          el("bdi", {}, text),
          ...(about ? [el("small", {}, about)] : []),
        ),
      );
    $("source").dir = direction(state.sentence);
    $("target").dir = direction(result.translation);
    $("source").replaceChildren(
      ...result.source.map((_, i) =>
        token(
          result.source,
          spell(result.source, [i]),
          i,
          source.order && source.order[i] !== i
            ? say("at {place}", { place: source.order[i] + 1 })
            : "",
          source.hidden.has(i) ? "gone" : "",
        ),
      ),
    );
    const chose = (i) =>
        taken?.choices.some(({ step, ids }) => i >= step - 1 && i < step - 1 + ids.length),
      own = result.steps.filter((_, i) => !chose(i));
    const doubtful = Trust.doubtful(
      result.steps.map((one, i) => (chose(i) ? { own: 1 } : one)),
      (i) => startsWord(result.predicted, i),
    ).map((is, i) => is && !isMarker(result.predicted[i]));
    $("target").replaceChildren(
      ...result.predicted.map((_, i) =>
        token(
          result.predicted,
          spell(result.predicted, [i]),
          i,
          Math.round(100 * result.steps[i].chosen) + "%",
          doubtful[i] ? "doubtful" : "",
        ),
      ),
    );
    $("dot").hidden = ![result.source, result.predicted].some((tokens) =>
      tokens.some((_, i) => !startsWord(tokens, i)),
    );
    $("sure").replaceChildren(
      own.length ? Trust.verdict(own) : "", // only of what the model chose itself
      el(
        "span",
        { id: "underlined" },
        " ",
        say(
          "It gave the underlined words less than 40%: in a test, only a third of such words were in the reference.",
        ),
      ),
    );
    $("sure").classList.toggle("warning", own.length > 0 && Trust.guessing(own));
  }

  // The weights that a token's row has in the chosen layer and head; without a token, those of the
  // current step.
  function lightUp(side = "target", i = state.step - 1) {
    const light = (id, weights) =>
      [...$(id).children].forEach((li, k) =>
        li.firstChild.style.setProperty("--a", opacity(weights?.[k] ?? 0).toFixed(3)),
      );
    const [layer, head] = [Math.min(state.layer, result.maps.cross.length), state.head];
    light(
      "source",
      side === "target"
        ? rawWeights("cross", layer, head)[i]
        : rawWeights("encoder", layer, head)[i],
    );
    light("target", side === "target" ? rawWeights("decoder", layer, head)[i].slice(1) : []);
    const token = plain(side === "target" ? result.predicted[i] : result.source[i]),
      place = { token, layer, head: headName(head) };
    $("shades").textContent =
      side === "target" && unseen() && i === state.step - 1
        ? say("Shaded: where this step looks (layer {layer}, {head}).", place)
        : side === "target"
          ? say(
              "Shaded: where the step that writes “{token}” looks (layer {layer}, {head}).",
              place,
            )
          : say("Shaded: where “{token}” looks in the encoder (layer {layer}, {head}).", place);
  }

  function drawStep() {
    const count = result.predicted.length,
      { step } = state;
    setAll($("step"), { max: count });
    $("step").value = step;
    $("step").setAttribute("aria-valuetext", say("{step} of {count}", { step, count }));
    for (const [id, atEnd, other] of [
      ["back", step <= 1, "forward"],
      ["forward", step >= count, "back"],
    ]) {
      if (atEnd && root.activeElement === $(id)) $(count > 1 ? other : "step").focus();
      $(id).disabled = atEnd;
    }
    [...$("target").children].forEach((li, i) => {
      // what comes later is not to be seen before
      li.classList.toggle("later", i >= step);
      li.classList.toggle("unseen", i === step - 1 && unseen());
      li.firstChild.classList.toggle("now", i === step - 1);
    });
    $("underlined").hidden = !$("target").querySelector(".doubtful:not(.later, .unseen)");
    const before = plain(result.predicted.slice(0, step - 1).join("")),
      shown = result.predicted
        .slice(0, unseen() ? step - 1 : step)
        .filter((token) => !isMarker(token));
    $("translation").replaceChildren(
      el(
        "strong",
        { dir: "auto" },
        step === count && !unseen()
          ? result.translation
          : shown.length
            ? `${plain(shown.join(""))} …`
            : "…",
      ),
    );
    $("step-readout").replaceChildren(
      ...(step > 1
        ? told("Step {step} of {count}. It has written {written} and predicts:", {
            step,
            count,
            written: quoted(before),
          })
        : [say("Step {step} of {count}. It has written nothing, and predicts:", { step, count })]),
    );
    const { likeliest } = result.steps[step - 1],
      chosen = result.predicted[step - 1];
    const listed = likeliest.some(({ token }) => token === chosen)
      ? [...likeliest]
      : [...likeliest, { id: result.ids?.[step], token: chosen, p: result.steps[step - 1].chosen }];
    if (unseen()) listed.sort((a, b) => (plain(a.token) < plain(b.token) ? -1 : 1));
    $("likeliest").replaceChildren(
      ...listed.flatMap(({ id, token, p }) => {
        const name = token === chosen && !unseen() ? "chosen" : "",
          text = el("bdi", {}, pieceName(token));
        const first = engine
          ? el("button", { type: "button", class: name, "data-id": id }, text)
          : el("span", {}, text);
        return [
          el("span", { class: name }, first, name ? " ←" : ""),
          ...(unseen()
            ? [el("span"), el("span")]
            : [
                el("i", { style: `width:${Math.max(0.2, 100 * p)}%` }),
                el("span", { class: name }, percent(p)),
              ]),
        ];
      }),
    );
    if (unseen()) $("step-readout").append(" ", say("Which of these comes next? Click it."));
    $("count").textContent = Guesses.text();
    $("play").disabled = state.guess;
    const spoils = state.guess && guessed < count,
      showed = $("maps").hidden && !spoils; // tree and maps tell what comes
    [$("tree-box").hidden, $("maps").hidden] = [!result.nodes || spoils, spoils];
    if (showed) drawMaps();
    lightUp();
    for (const node of $("tree").querySelectorAll("[data-step]"))
      node.classList.toggle("later", Number(node.dataset.step) > step);
    if (state.words || state.kind === "encoder" || !view || !$("maps").open) return;
    if (view.queries[step - 1 - view.first]) pin(step - 1 - view.first);
    else drawMaps(); // a map of a long sentence shows the rows around the step
  }

  // One column for each step, one row for each place in the beam; the line of the translation is
  // marked.
  function drawTree() {
    const { nodes, best } = result;
    if (!nodes || !$("tree-box").open) return $("tree").replaceChildren();
    const [wide, high] = [112, 40],
      chosen = new Set();
    for (let at = best; at !== null; at = nodes[at].parent) chosen.add(at);
    const seen = {},
      place = nodes.map((node) => (seen[node.step] = (seen[node.step] ?? -1) + 1));
    const x = (i) => 40 + wide * nodes[i].step,
      y = (i) => 24 + high * place[i];
    const drawn = nodes.map(({ token, parent, step, p, logP, score }, i) => {
      const from =
        parent === null
          ? ""
          : `M${x(parent) + 36},${y(parent)} C${x(i) - 54},${y(parent)} ${x(i) - 58},${y(i)} ${x(i) - 36},${y(i)}`;
      const values = {
        step,
        token: plain(token),
        p: percent(Math.exp(p)),
        logP: logP.toFixed(2),
        score: score?.toFixed(2),
      };
      const about =
        score === undefined
          ? say("step {step}: {token}, {p}, log-probability in all {logP}", values)
          : say("step {step}: {token}, {p}, log-probability in all {logP}, score {score}", values);
      const text = [...pieceName(token)].slice(0, 9).join("");
      return svg(
        "g",
        { class: chosen.has(i) ? "best" : "", "data-step": step },
        svg("title", {}, about),
        svg("path", { d: from }),
        svg("text", { x: x(i), y: y(i) + 4, "text-anchor": "middle" }, text),
        svg(
          "text",
          { x: x(i), y: y(i) + 17, "text-anchor": "middle", class: "score" },
          (score ?? logP).toFixed(2),
        ),
      );
    });
    const width = 90 + wide * Math.max(...nodes.map((node) => node.step)),
      height = 30 + high * (1 + Math.max(...place));
    $("tree").replaceChildren(
      svg(
        "svg",
        {
          width,
          height,
          viewBox: `0 0 ${width} ${height}`,
          role: "img",
          "aria-label": say(
            "{count} beginnings that the search kept; numbers are log-probabilities, and scores where a translation ends",
            { count: nodes.length },
          ),
        },
        ...drawn,
      ),
    );
  }

  function go(step) {
    if (!result) return;
    state.step = Math.max(1, Math.min(result.predicted.length, step));
    drawStep();
  }

  function stop() {
    clearInterval(playing);
    playing = 0;
    $("play").textContent = say("Play");
  }

  function play() {
    if (playing || !result) return stop();
    if (calm.matches) return go(state.step < result.predicted.length ? state.step + 1 : 1);
    go(state.step < result.predicted.length ? state.step : 1);
    $("play").textContent = say("Stop");
    playing = setInterval(
      () => (state.step < result.predicted.length ? go(state.step + 1) : stop()),
      600,
    );
  }

  // ---- all layers and heads ----

  function rawWeights(kind, layer, head) {
    const heads = result.maps[kind][layer - 1];
    if (head !== "mean") return heads[head - 1];
    return heads[0].map((row, q) =>
      Float32Array.from(
        row,
        (_, k) => heads.reduce((sum, map) => sum + map[q][k], 0) / heads.length,
      ),
    );
  }

  // As a key, a word gets the sum of its pieces' weights; as a query, the mean of their rows. So
  // each row still sums to 1.
  function merged(weights, queries, keys) {
    const total = (row, members) => members.reduce((sum, k) => sum + row[k], 0);
    return queries.map((query) =>
      keys.map(
        (key) =>
          query.members.reduce((sum, q) => sum + total(weights[q], key.members), 0) /
          query.members.length,
      ),
    );
  }

  const headName = (head) =>
    head === "mean" ? say("mean of heads") : say("head {head}", { head });
  const headChoices = () => [...result.maps[state.kind][0].map((_, i) => i + 1), "mean"];

  function thumbnail(layer, head, colour) {
    const weights = rawWeights(state.kind, layer, head),
      width = weights[0].length;
    const canvas = el("canvas", { width, height: weights.length }),
      zeroed = off[state.kind].has(`${layer} ${head}`);
    const image = new ImageData(width, weights.length),
      { data } = image,
      [red, green, blue] = colour;
    let at = 0;
    for (const row of weights)
      for (const weight of row) {
        data[at++] = red;
        data[at++] = green;
        data[at++] = blue;
        data[at++] = 255 * opacity(weight);
      }
    canvas.getContext("2d").putImageData(image, 0, 0);
    return el(
      "button",
      {
        type: "button",
        "data-layer": layer,
        "data-head": head,
        tabindex: -1,
        class: zeroed ? "off" : "",
        "aria-label": say(zeroed ? "layer {layer}, {head}, set to zero" : "layer {layer}, {head}", {
          layer,
          head: headName(head),
        }),
      },
      canvas,
    );
  }

  function drawOverview() {
    const probe = root.appendChild(el("i", { style: "color: var(--full)", hidden: "" }));
    const colour = getComputedStyle(probe)
      .color.match(/[\d.]+/g)
      .slice(0, 3)
      .map(Number);
    probe.remove();
    const heads = headChoices();
    const top = el(
      "tr",
      {},
      el("td"),
      ...heads.map((head) =>
        el("th", { scope: "col" }, head === "mean" ? say("mean") : headName(head)),
      ),
    );
    const rows = result.maps[state.kind].map((_, i) =>
      el(
        "tr",
        {},
        el("th", { scope: "row" }, say("layer {layer}", { layer: i + 1 })),
        ...heads.map((head) => el("td", {}, thumbnail(i + 1, head, colour))),
      ),
    );
    const focused = $("overview").contains(root.activeElement);
    $("overview").replaceChildren(el("thead", {}, top), el("tbody", {}, ...rows));
    if (focused)
      $("overview")
        .querySelector(`[data-layer="${state.layer}"][data-head="${state.head}"]`)
        .focus();
  }

  function markThumbnail() {
    for (const button of $("overview").querySelectorAll("button")) {
      const chosen = button.matches(`[data-layer="${state.layer}"][data-head="${state.head}"]`);
      button.setAttribute("aria-pressed", chosen);
      button.tabIndex = chosen ? 0 : -1;
    }
  }

  // Only a weight of exactly 0 counts as masked, so a leak through the mask would show.
  const isMasked = (q, k) =>
    state.kind === "decoder" &&
    view.keys[k].members[0] > view.queries[q].members.at(-1) &&
    view.weights[q][k] === 0;

  // The true alignment, where it is known: links of the source's and the reference's tokens, if the
  // model wrote just these.
  const trueLinks = () => {
    const { alignment } = content,
      same = (a, b) => a.join("\n") === b.join("\n");
    const fits =
      alignment &&
      same(alignment.source, result.source) &&
      same(alignment.predicted, result.predicted);
    return state.kind === "cross" && fits ? alignment.links : [];
  };
  const isTrue = (q, k) =>
    trueLinks().some(
      ([s, t]) => view.keys[k].members.includes(s) && view.queries[q].members.includes(t),
    );

  function cell(q, k) {
    const weight = view.weights[q][k],
      masked = isMasked(q, k);
    const names = [startClass(view.keys[k]), masked ? "masked" : "", isTrue(q, k) ? "true" : ""]
      .join(" ")
      .trim();
    return el("td", {
      class: names,
      role: "gridcell",
      "data-q": q,
      "data-k": k,
      tabindex: q + k ? -1 : 0,
      style: shade(weight),
      "aria-label": masked ? say("masked") : percent(weight),
    });
  }

  function drawHeat() {
    const { queries, keys } = view,
      table = $("heat");
    const corner =
      (state.kind === "encoder" ? say("query") : say("reads → predicts")) + ` ↓\n${say("key")} →`;
    const column = (key) =>
      el(
        "th",
        { scope: "col", role: "columnheader", class: startClass(key) },
        el("div", { class: "upright" }, ...label(key)),
      );
    const head = el(
      "tr",
      { role: "row" },
      el("td", { role: "gridcell" }, corner),
      ...keys.map(column),
    );
    const rows = queries.map((query, q) =>
      el(
        "tr",
        { role: "row", class: startClass(query) },
        el("th", { scope: "row", role: "rowheader" }, ...label(query)),
        ...keys.map((_, k) => cell(q, k)),
      ),
    );
    table.style.setProperty(
      "--cell",
      Math.max(20, Math.min(34, Math.floor(480 / keys.length))) + "px",
    );
    table.replaceChildren(
      el("thead", { role: "rowgroup" }, head),
      el("tbody", { role: "rowgroup" }, ...rows),
    );
    $("heat-title").textContent = say("{attention}, layer {layer}, {head}", {
      attention: KINDS[state.kind].name,
      layer: state.layer,
      head: headName(state.head),
    });
    $("readout").textContent =
      (view.queries.length < view.all
        ? say("Rows {from} to {to} of {all}, those around the step. ", {
            from: view.first + 1,
            to: view.first + view.queries.length,
            all: view.all,
          })
        : "") +
      (finger.matches
        ? say("Tap a cell to read it and to keep its query’s lines.")
        : say(
            "Point at a cell, or use Tab and the arrow keys. Click it (or press Enter) to keep its query’s lines.",
          ));
  }

  function readCell(td) {
    if (!td?.dataset.q) return;
    const q = Number(td.dataset.q),
      k = Number(td.dataset.k),
      table = $("heat");
    for (const old of table.querySelectorAll("th.on")) old.classList.remove("on");
    table.tHead.rows[0].cells[k + 1].classList.add("on");
    table.tBodies[0].rows[q].cells[0].classList.add("on");
    const weight = isMasked(q, k) ? say("masked (not yet written)") : percent(view.weights[q][k]);
    $("readout").replaceChildren(
      say("Query: "),
      ...describeQuery(view.queries[q]),
      say(" · key: "),
      quoted(view.keys[k].text),
      say(" · weight: "),
      el("strong", {}, weight),
      isTrue(q, k) ? say(" · a true link") : "",
    );
  }

  function drawLegend() {
    const swatches = [0, 0.01, 0.05, 0.2, 0.5, 1].map((weight) =>
      el("span", {}, el("i", { class: "swatch", style: shade(weight) }), 100 * weight + "%"),
    );
    if (state.kind === "decoder")
      swatches.push(el("span", {}, el("i", { class: "hatched" }), say("masked")));
    if (trueLinks().length)
      swatches.push(
        el("span", {}, el("i", { style: "border: 2px solid var(--mark)" }), say("true alignment")),
      );
    $("legend").replaceChildren(...swatches);
  }

  function drawTokens() {
    $("queries").replaceChildren(
      ...view.queries.map((query, q) =>
        el("li", { role: "option", class: startClass(query), "data-q": q }, ...label(query)),
      ),
    );
    $("keys").replaceChildren(
      ...view.keys.map((key) =>
        el("li", { class: startClass(key) }, ...label(key), " ", el("small")),
      ),
    );
  }

  function drawThreads(active) {
    const row = 24,
      height = row * Math.max(view.queries.length, view.keys.length);
    const least = active === null ? 0.01 : 0.001,
      threads = [];
    view.weights.forEach((weights, q) => {
      if (active !== null && active !== q) return;
      weights.forEach((weight, k) => {
        if (weight >= least)
          threads.push(
            svg("line", {
              x1: 0,
              y1: row * (q + 0.5),
              x2: 100,
              y2: row * (k + 0.5),
              "stroke-opacity": Math.min(1, 0.08 + weight),
              "stroke-width": 0.5 + 6 * weight,
            }),
          );
      });
    });
    $("threads").setAttribute("viewBox", `0 0 100 ${height}`);
    $("threads").style.height = height + "px";
    $("threads").replaceChildren(...threads);
  }

  function showQuery(active) {
    drawThreads(active);
    for (const li of $("queries").children)
      li.setAttribute("aria-selected", Number(li.dataset.q) === active);
    [...$("keys").children].forEach((li, k) => {
      li.lastChild.textContent =
        active === null
          ? ""
          : isMasked(active, k)
            ? say("masked")
            : percent(view.weights[active][k]);
    });
    $("all").disabled = active === null;
    $("lines-readout").replaceChildren(...describeLines(active));
  }

  function describeLines(active) {
    if (active === null)
      return [
        finger.matches
          ? say("All weights of at least 1%. Tap a query to see only its lines.")
          : say(
              "All weights of at least 1%. Point at a query, or use Tab and the arrow keys, to see only its lines.",
            ),
      ];
    const strongest = view.weights[active]
      .map((weight, k) => [weight, k])
      .sort((a, b) => b[0] - a[0])
      .slice(0, 3);
    return [
      say("Query: "),
      ...describeQuery(view.queries[active]),
      say(" · most to: "),
      ...strongest.flatMap(([weight, k], n) => [
        n ? ", " : "",
        quoted(view.keys[k].text),
        " " + percent(weight),
      ]),
    ];
  }

  function pin(q) {
    pinned = q;
    [...$("queries").children].forEach((li, i) => {
      li.tabIndex = i === (q ?? 0) ? 0 : -1;
    });
    showQuery(q);
  }

  // ---- choices ----

  function fit(value, top, fallback) {
    const number = Number(value);
    return Number.isInteger(number) && number >= 1 && number <= top ? number : fallback;
  }

  function fillSelect(select, values, chosen) {
    select.replaceChildren(
      ...values.map((value) => el("option", { value }, value === "mean" ? headName(value) : value)),
    );
    select.value = chosen;
  }

  function showChoices() {
    for (const radio of root.querySelectorAll("input[name=kind]"))
      radio.checked = radio.value === state.kind;
    for (const radio of root.querySelectorAll("input[name=search]"))
      radio.checked = radio.value === state.search;
    $("sampling").hidden = $("drawn-from").hidden = state.search !== "sample";
    fillSelect(
      $("layer"),
      result.maps[state.kind].map((_, i) => i + 1),
      state.layer,
    );
    fillSelect($("head"), headChoices(), state.head);
    $("words").checked = state.words;
    $("words-label").hidden = !hasPieces();
    $("zero-label").hidden = !engine || state.head === "mean";
    $("switch-label").hidden = !engine;
    $("zero").checked = off[state.kind].has(`${state.layer} ${state.head}`);
    const changed = anyOff() || anyMoved();
    if (!changed && root.activeElement === $("restore")) $("head").focus();
    $("restore").hidden = !changed;
    $("explanation").textContent = KINDS[state.kind].explanation;
  }

  // Everything below the strips: the chosen map, its lines, the overview.
  function drawMaps() {
    state.layer = fit(state.layer, result.maps[state.kind].length, result.maps[state.kind].length);
    state.head = fit(state.head, headChoices().length - 1, "mean");
    const all = items(KINDS[state.kind].queries, true),
      keys = items(KINDS[state.kind].keys, false);
    const rows = Math.max(6, Math.floor(LARGEST / keys.length)),
      at = state.kind === "encoder" ? 0 : state.step - 1 - Math.floor(rows / 2);
    const first = Math.max(0, Math.min(all.length - rows, at)),
      queries = all.slice(first, first + rows);
    view = {
      queries,
      keys,
      first,
      all: all.length,
      weights: merged(rawWeights(state.kind, state.layer, state.head), queries, keys),
    };
    showChoices();
    if (!$("maps").open) return; // nobody sees the rest
    drawOverview();
    markThumbnail();
    drawHeat();
    drawLegend();
    drawTokens();
    pin(pinned !== null && pinned < queries.length ? pinned : null);
  }

  function drawResult() {
    drawStrips();
    drawTree();
    drawMaps();
    drawStep();
    compare();
    options.changed?.(state, result);
  }

  function choose(changes) {
    const rows = state.kind + state.words;
    Object.assign(state, changes);
    if (!result) return;
    // with other rows the pinned query means nothing
    if (rows !== state.kind + state.words) pinned = null;
    drawMaps();
    lightUp();
    options.changed?.(state, result);
  }

  // ---- events ----

  function listen() {
    $("ask").addEventListener("submit", (event) => {
      event.preventDefault();
      ask($("text").value, true);
    });
    $("text").addEventListener("input", () => {
      $("samples").value = "";
      $("text").dir = direction($("text").value);
      clearTimeout(listen.waiting);
      listen.waiting = setTimeout(() => ask($("text").value), 600);
    });
    $("samples").addEventListener("change", () => {
      const picked = $("samples").value;
      $("samples").value = ""; // so that it can be picked again
      if (picked) ask(picked, true);
    });
    for (const radio of root.querySelectorAll("input[name=search]"))
      radio.addEventListener("change", () => {
        state.search = radio.value;
        compute();
      });
    for (const [id, name] of [
      ["temperature", "temperature"],
      ["top-p", "topP"],
    ]) {
      $(id).addEventListener("input", () => {
        $(id + "-value").textContent = state[name] = Number($(id).value);
      });
      $(id).addEventListener("change", () => compute());
    }
    $("again").addEventListener("click", () => compute());
    $("halt").addEventListener("click", () => open?.abort(new DOMException("", "AbortError")));
    $("likeliest").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) (unseen() ? answer : (id) => take([id]))(Number(button.dataset.id));
    });
    $("own").addEventListener("submit", (event) => {
      event.preventDefault();
      const word = $("own-word").value.trim(),
        { tokenizer } = engine,
        ids = word.startsWith("·") ? tokenizer.merge(word.slice(1)) : tokenizer.encode(word);
      if (ids.length) take(word === "</s>" ? [EOS] : ids);
      $("own-word").value = "";
    });
    $("untake").addEventListener("click", () => {
      taken = null;
      compute();
    });
    $("guess").addEventListener("change", () => {
      [state.guess, guessed] = [$("guess").checked, 0];
      stop();
      if (result) compare(); // which would tell the translation
      go(1);
    });
    $("tree-box").addEventListener("toggle", () => {
      if (result) {
        drawTree();
        drawStep();
      }
    });
    $("step").addEventListener("input", () => {
      stop();
      go(Number($("step").value));
    });
    $("back").addEventListener("click", () => {
      stop();
      go(state.step - 1);
    });
    $("forward").addEventListener("click", () => {
      stop();
      go(state.step + 1);
    });
    $("play").addEventListener("click", play);
    for (const side of ["source", "target"]) {
      const box = $(side),
        place = (event) => event.target.closest("button")?.dataset.i;
      for (const name of ["pointerover", "focusin"])
        box.addEventListener(name, (event) => {
          if (place(event)) lightUp(side, Number(place(event)));
        });
      for (const name of ["pointerleave", "focusout"]) box.addEventListener(name, () => lightUp());
      box.addEventListener("click", (event) => {
        if (!place(event)) return;
        if (side === "source") touch(Number(place(event)));
        else {
          stop();
          go(Number(place(event)) + 1);
        }
      });
      rove(box, "button", () => 1);
    }
    for (const radio of root.querySelectorAll("input[name=kind]"))
      radio.addEventListener("change", () => choose({ kind: radio.value }));
    for (const id of ["layer", "head"])
      $(id).addEventListener("change", (event) => choose({ [id]: event.target.value }));
    $("words").addEventListener("change", (event) => choose({ words: event.target.checked }));
    $("zero").addEventListener("change", (event) => {
      off[state.kind][event.target.checked ? "add" : "delete"](`${state.layer} ${state.head}`);
      compute();
    });
    $("restore").addEventListener("click", () => {
      Object.values(off).forEach((places) => places.clear());
      source.hidden.clear();
      source.order = null;
      compute();
    });
    $("overview").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const { layer, head } = button.dataset,
        places = off[state.kind],
        place = `${layer} ${head}`;
      choose({ layer, head });
      if (!$("switch").checked || head === "mean") return;
      places[places.has(place) ? "delete" : "add"](place);
      compute();
    });
    rove($("overview"), "button", () => headChoices().length);
    $("maps").addEventListener("toggle", () => {
      if (result && $("maps").open) {
        drawMaps();
        drawStep();
      }
    }); // lines need sizes
    listenToHeat();
    listenToLines();
  }

  function listenToHeat() {
    const heat = $("heat"),
      cellOf = (event) => event.target.closest("tbody td");
    const keep = (event) => {
      if (cellOf(event)) pin(Number(cellOf(event).dataset.q));
    };
    for (const name of ["pointerover", "focusin"])
      heat.addEventListener(name, (event) => readCell(cellOf(event)));
    heat.addEventListener("focusin", () => {
      // or the arrow keys could move to a cell under the sticky labels
      $("heat-box").style.scrollPadding =
        `${heat.tHead.offsetHeight}px 0 0 ${heat.tBodies[0].rows[0].cells[0].offsetWidth}px`;
    });
    heat.addEventListener("click", keep);
    heat.addEventListener("keydown", (event) => {
      if (event.key === "Enter") keep(event);
    });
    rove(heat, "tbody td", () => view.keys.length);
  }

  function listenToLines() {
    const queries = $("queries"),
      query = (event) => Number(event.target.closest("li").dataset.q);
    queries.addEventListener("pointerover", (event) => {
      if (event.target.closest("li")) showQuery(query(event));
    });
    queries.addEventListener("pointerleave", () => showQuery(pinned));
    queries.addEventListener("focusin", (event) => pin(query(event)));
    queries.addEventListener("keydown", (event) => {
      if (event.key === "Escape") pin(null);
    });
    $("all").addEventListener("click", () => pin(null));
    rove(queries, "li", () => 1);
  }

  /** What the reader does to a token that was read; the end stays where it is. */
  function touch(i) {
    const last = result.source.length - 1,
      what = $("touch").value;
    if (what === "look" || i >= last) return;
    if (what === "hide") source.hidden[source.hidden.has(i) ? "delete" : "add"](i);
    if (what === "swap" && i + 1 < last) {
      source.order ??= result.source.map((_, t) => t);
      [source.order[i], source.order[i + 1]] = [source.order[i + 1], source.order[i]];
      if (source.order.every((place, t) => place === t)) source.order = null;
    }
    compute().then(() => $("source").children[i]?.firstChild.focus());
  }

  async function ask(sentence, toldTo = false) {
    clearTimeout(listen.waiting);
    listen.waiting = null;
    if (!toldTo && sentence.trim() === state.sentence.trim()) return;
    fill((state.sentence = sentence));
    const plays = toldTo && !calm.matches && !state.guess;
    if ((await compute(plays ? 1 : null)) && plays) play();
  }

  function start() {
    for (const id of ["live", "sample-label", "own", "guess-label", "touch-label"])
      $(id).hidden = !engine;
    $("maps").open = Boolean(options.open);
    for (const sentence of content.samples ?? [])
      $("captions").append(el("option", { value: sentence }, sentence));
    for (const { sentence } of content.provocations ?? [])
      $("provocations").append(el("option", { value: sentence }, sentence));
    $("provocations").hidden = !content.provocations?.length;
    $("samples-label").hidden = !content.samples?.length;
    if (content.language) $("text-label").textContent = languageName(content.language);
    Object.assign(state, options.state);
    fill((state.sentence = content.sentence ?? ""));
    listen();
    compute(4); // the last step shows little
    new MutationObserver(() => result && drawMaps()).observe(document.documentElement, {
      attributeFilter: ["data-theme"],
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener(
      "change",
      () => result && drawMaps(),
    );
  }

  start();
  openOnPaper(root);
  addEventListener("beforeprint", () => {
    if (!result) return;
    drawTree();
    drawMaps();
  });
  // what has been typed, translated or not; what is shown if nothing has
  const sentence = () =>
    engine && $("text").value.trim() ? $("text").value : (state.shown ?? state.sentence);
  return {
    choose,
    ask,
    state,
    sentence,
    get result() {
      return result;
    },
  };
}
