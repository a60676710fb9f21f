import { say } from "../page/language.js";

/** Have a dialog open over the page. `showModal` would make all else inert, for which browsers
 *  style the whole page anew, half a second of it: here a veil (blog.css) keeps the pointer away
 *  from the page, and this the focus. */
export function overThePage(dialog) {
  const stops = () => [...dialog.querySelectorAll("a[href], button:enabled, input")];
  const outside = ({ clientX: x, clientY: y }, box = dialog.getBoundingClientRect()) =>
    x < box.left || x > box.right || y < box.top || y > box.bottom;
  dialog.ariaModal = "true";
  dialog.classList.add("over-the-page");
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog && outside(event)) dialog.close();
  });
  document.addEventListener("focusin", ({ target }) => {
    if (dialog.open && !dialog.contains(target)) stops()[0].focus();
  });
  document.addEventListener("keydown", (event) => {
    if (!dialog.open) return;
    if (event.key === "Escape" && !event.isComposing) dialog.close();
    const all = stops(),
      [end, other] = event.shiftKey ? [all[0], all.at(-1)] : [all.at(-1), all[0]],
      { activeElement } = document;
    if (event.key !== "Tab" || (activeElement !== end && all.includes(activeElement))) return;
    event.preventDefault();
    other.focus();
  });
  document.body.append(dialog);
}

// Finding things: full-text search, and cards that show what a link leads to (a term, a citation,
// an equation, a section).
export function startSearch() {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const el = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const main = document.getElementById("content");
  const HEADINGS = "h1, h2, h3, h4",
    SHOWN = 30;

  // --- search ---

  // What a reader sees of a node: a formula once, no anchors, no code of figures.
  const words = (node) => {
    const copy = node.cloneNode(true);
    all(".anchor, .spoken, .katex-html, annotation, script, style, svg, .copy", copy).forEach(
      (part) => part.remove(),
    );
    for (const part of all("msub, msup, msubsup, munder, munderover, mfrac, msqrt", copy)) {
      // what is drawn below or above is said in a line
      const [first, second, third] = part.children,
        signs = part.localName === "mfrac" ? ["/"] : part.localName === "msup" ? ["^"] : ["_", "^"];
      if (part.localName === "msqrt") {
        part.prepend("√");
        continue;
      }
      if (signs[0] === "/")
        for (const side of [first, second])
          if (all("mo", side).some((sign) => /[-+−]/.test(sign.textContent))) {
            side.prepend("(");
            side.append(")");
          }
      second.before(signs[0]);
      third?.before(signs[1]);
    }
    return copy.textContent.replace(/\s+/g, " ").trim();
  };
  // Letters as people type them; Chinese is written without spaces, and one beside its characters
  // is a matter of taste.
  const HAN = "\\p{Script=Han}",
    typed = (text) => text.normalize("NFC").toLowerCase().replaceAll("’", "'");
  const plainly = (text) => typed(text).replace(new RegExp(`(?<=${HAN}) | (?=${HAN})`, "gu"), "");
  // What finds some plain words in a text that has such spaces, or line breaks.
  const pattern = (words) =>
    new RegExp(
      [...words]
        .map((letter) => (letter === " " ? "\\s" : letter.replace(/[.*+?^${}()|[\]\\/]/, "\\$&")))
        .reduce(
          (before, letter) =>
            before +
            (new RegExp(`${HAN}$`, "u").test(before) || new RegExp(HAN, "u").test(letter)
              ? "\\s?"
              : "") +
            letter,
        ),
      "gu",
    );
  // What people search for under another name than the text's.
  const SAME = [
    ["backpropagation", "backprop", "the chain rule", "反向传播", "链式法则"],
    ["kv cache", "key-value cache", "keeping keys and values", "kv 缓存", "键值缓存"],
    ["query key value", "queries, keys and values", "查询、键和值"],
    ["byte pair encoding", "byte-pair encoding", "字节对编码"],
    ["skip connection", "residual connection", "残差连接"],
    ["optimizer", "optimiser", "优化器"],
    ["regularization", "regularisation"],
    ["normalization", "normalisation"],
    ["tokenizer", "tokeniser"],
  ];
  const others = (phrase) =>
    SAME.filter((names) => names.some((name) => plainly(name) === phrase))
      .flat()
      .map(plainly)
      .filter((name) => name !== phrase);
  let sections; // made at the first search: { id, title, text, folded code }
  const index = () => {
    const found = [];
    for (const node of all(`:is(${HEADINGS}), p, li, td, pre`, main)) {
      if (node.matches(HEADINGS))
        found.push({ id: node.id, title: words(node), text: "", code: "" });
      else if (found.length && !node.parentElement.closest("li, td, pre"))
        found.at(-1)[node.closest("details.code") ? "code" : "text"] += " " + words(node);
    }
    return found;
  };

  const input = el("input", {
    type: "search",
    id: "query",
    placeholder: say("Search the text"),
    "aria-label": say("Search the text"),
    autocomplete: "off",
  });
  const results = el("ol", { id: "results" }),
    told = el("p", { role: "status", id: "found" });
  const close = el("button", { type: "button", id: "search-close" }, say("close"));
  const dialog = el(
    "dialog",
    { class: "search", "aria-label": say("Search") },
    el("p", { class: "search-line" }, input, close),
    told,
    results,
  );
  overThePage(dialog);

  const snippet = (text, place, length) => {
    const from = Math.max(0, place - 60),
      to = place + length + 100;
    return [
      from ? "… " : "",
      text.slice(from, place),
      length ? el("mark", {}, text.slice(place, place + length)) : "",
      text.slice(place + length, to),
      to < text.length ? " …" : "",
    ];
  };
  const search = () => {
    sections ??= index();
    const asked = input.value.trim().split(/\s+/).map(plainly).filter(Boolean),
      phrase = plainly(asked.join(" "));
    // one character can be a word
    const enough = phrase.length > 1 || /\p{Script=Han}/u.test(phrase);
    const same = others(phrase),
      has = (one) => (text) => plainly(text).includes(one),
      all_ = (text) => asked.every((word) => has(word)(text));
    const hits = enough
      ? sections.filter(
          ({ title, text, code }) =>
            all_(`${title} ${text} ${code}`) || same.some((name) => has(name)(`${title} ${text}`)),
        )
      : [];
    const worth = ({ title, text }) =>
      4 * (all_(title) || same.some((name) => has(name)(title))) +
      2 * has(phrase)(text) +
      (all_(text) || same.some((name) => has(name)(text))); // folded code counts for nothing
    hits.sort((a, b) => worth(b) - worth(a));
    const more = hits.length > SHOWN;
    told.textContent = !enough
      ? ""
      : hits.length === 1
        ? say("1 section")
        : say(more ? "{count} sections, of which {shown} are listed" : "{count} sections", {
            count: hits.length,
            shown: SHOWN,
          });
    results.replaceChildren(
      ...hits.slice(0, SHOWN).map(({ id, title, text: open, code }) => {
        const text = open + code,
          found = [phrase, ...same, ...asked]
            .map((words) => pattern(words).exec(typed(text)))
            .find(Boolean);
        return el(
          "li",
          {},
          el("a", { href: "#" + id }, title),
          el("span", {}, ...snippet(text, found?.index ?? 0, found?.[0].length ?? 0)),
        );
      }),
    );
  };
  input.addEventListener("input", search);
  // Where a section has what was sought, first of all in what is open: in the middle of the window,
  // and marked.
  const reveal = (id, sought) => {
    const heading = document.getElementById(id),
      next = all(HEADINGS, main).find(
        (node) => heading.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING,
      );
    const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT),
      nodes = [];
    texts.currentNode = heading;
    for (
      let node = texts.nextNode(), at = 0;
      node && (!next || node.compareDocumentPosition(next) & Node.DOCUMENT_POSITION_FOLLOWING);
      node = texts.nextNode()
    ) {
      if (
        heading.contains(node) ||
        node.parentElement.closest(".anchor, .katex, script, style, svg, .copy")
      )
        continue;
      nodes.push({ node, at, fold: node.parentElement.closest("details:not([open])") });
      at += node.length;
    }
    const of = (at) => nodes.findLast((one) => one.at <= at),
      whole = typed(nodes.map(({ node }) => node.data).join(""));
    const places = [...whole.matchAll(pattern(sought))],
      found = places.find(({ index }) => !of(index).fold) ?? places[0];
    if (!found) return; // the heading will do
    const range = new Range(),
      [first, last] = [found.index, found.index + found[0].length - 1].map((at) => [of(at), at]);
    range.setStart(first[0].node, first[1] - first[0].at);
    range.setEnd(last[0].node, last[1] - last[0].at + 1);
    const place = first[0].node.parentElement;
    for (let fold = place.closest("details"); fold; fold = fold.parentElement.closest("details"))
      fold.open = true;
    globalThis.CSS.highlights?.set("found", new Highlight(range));
    const again = [0, 200, 600, 1500].map((wait) =>
      setTimeout(() => place.scrollIntoView({ block: "center" }), wait),
    ); // charts and panels above still grow
    for (const name of ["wheel", "touchstart", "pointerdown", "keydown"])
      addEventListener(name, () => again.forEach(clearTimeout), { once: true, capture: true });
  };
  results.addEventListener("click", (event) => {
    const link = event.target.closest("a"),
      sought = link?.parentElement.querySelector("mark")?.textContent;
    if (!link || event.ctrlKey || event.metaKey) return;
    dialog.close();
    globalThis.CSS.highlights?.delete("found");
    if (!sought) return;
    event.preventDefault();
    location.hash = link.hash;
    reveal(decodeURIComponent(link.hash.slice(1)), plainly(sought.replace(/\s+/g, " ")));
  });
  dialog.addEventListener("keydown", (event) => {
    // from the field to the results and between them
    if (event.isComposing) return; // letters of Chinese are being chosen
    const places = [input, ...all("a", results)],
      step = { ArrowDown: 1, ArrowUp: -1 }[event.key],
      to = places[places.indexOf(document.activeElement) + step];
    if (to) {
      event.preventDefault();
      to.focus();
    }
    if (event.key === "Enter" && document.activeElement === input) {
      event.preventDefault(); // or it would press the button that the focus goes back to
      results.querySelector("a")?.click();
    }
  });
  close.addEventListener("click", () => dialog.close());
  // or the next "/" may still be typed into it
  dialog.addEventListener("close", () => input.blur());
  const openSearch = () => {
    dialog.show();
    input.select();
  };
  document.getElementById("search").addEventListener("click", openSearch);
  addEventListener("keydown", (event) => {
    const typing = event.composedPath()[0].matches?.("input, textarea, select");
    if (
      event.key === "/" &&
      !typing &&
      !event.ctrlKey &&
      !event.metaKey &&
      !document.querySelector("dialog[open]")
    ) {
      event.preventDefault();
      openSearch();
    }
  });

  // --- cards ---

  const card = el("div", { class: "card", id: "card", role: "tooltip", hidden: "" });
  document.body.append(card);
  let waiting, shown;

  // What stands at the target: a reference, the meaning of a term, an equation, or a heading with
  // its first paragraph.
  const contents = (target) => {
    if (target.matches("tr")) {
      // the legend has an example: the size in the base model
      const [name, meaning, example] = target.cells;
      const pieces = [
        el("strong", {}, words(name)),
        el("p", {}, ...meaning.cloneNode(true).childNodes),
      ];
      const title = example && words(target.closest("table").tHead.rows[0].cells[2]);
      return words(example ?? name) && title
        ? [...pieces, el("p", {}, `${title}: ${words(example)}`)]
        : pieces;
    }
    if (!target.matches(HEADINGS)) return [target.cloneNode(true)];
    const after = all(`p, ${HEADINGS}`, main).find(
      (node) => target.compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING,
    );
    return [
      el("strong", {}, words(target)),
      ...(after?.matches("p") ? [after.cloneNode(true)] : []),
    ];
  };
  const hide = () => {
    clearTimeout(waiting);
    card.hidden = true;
    shown?.removeAttribute("aria-describedby");
    shown = null;
  };
  const show = (link) => {
    // also of a link in a figure
    const target = document.getElementById(decodeURIComponent(link.getAttribute("href").slice(1)));
    if (!target) return;
    hide();
    const pieces = contents(target);
    pieces.forEach((piece) => {
      all(".here", piece).forEach((part) => part.remove());
      piece.removeAttribute?.("id");
      all("[id]", piece).forEach((part) => part.removeAttribute("id"));
    });
    card.replaceChildren(...pieces);
    card.hidden = false;
    const box = link.getBoundingClientRect(),
      width = Math.min(420, innerWidth - 24);
    card.style.width = width + "px";
    card.style.left = Math.max(12, Math.min(box.left, innerWidth - width - 12)) + scrollX + "px";
    const below =
      box.bottom + card.offsetHeight + 16 < innerHeight || box.top < card.offsetHeight + 16;
    card.style.top = (below ? box.bottom + 8 : box.top - card.offsetHeight - 8) + scrollY + "px";
    link.setAttribute("aria-describedby", "card");
    shown = link;
  };
  const inner = (event) => event.target.closest?.("main a[href^='#']:not(.anchor, .road-next a)");
  document.addEventListener("pointerover", (event) => {
    const link = inner(event);
    if (!link || event.pointerType === "touch" || link === shown) return;
    clearTimeout(waiting);
    waiting = setTimeout(() => show(link), 250);
  });
  const leave = () => {
    // slowly, so that the pointer can move onto the card
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      if (!card.matches(":hover")) hide();
    }, 200);
  };
  document.addEventListener("pointerout", (event) => {
    if (inner(event) && event.pointerType !== "touch") leave();
  });
  card.addEventListener("pointerleave", leave);
  document.addEventListener("focusin", (event) => {
    const link = inner(event);
    if (link?.matches(":focus-visible")) show(link);
  });
  document.addEventListener("focusout", (event) => {
    if (inner(event)) hide();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
  document.addEventListener("click", (event) => {
    // a finger opens the card first; a second tap follows the link
    const link = inner(event);
    if (
      link &&
      link !== shown &&
      matchMedia("(hover: none)").matches &&
      link.matches(".cite, .term, .symbol, .equation-link, .katex a")
    ) {
      event.preventDefault();
      show(link);
    } else if (!card.contains(event.target)) hide();
  });
}
