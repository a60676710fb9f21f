// What moves on the page: the theme switch, the charts, the table of contents, the copy buttons.

import { exploreAttention } from "../views/figure.js";
import { liveContent } from "./engine.js";
import * as Guesses from "./guesses.js";
import { openOnPaper, say } from "./language.js";
import { yourSentence } from "./sentence.js";

export function startText() {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const systemDark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ?? (systemDark.matches ? "dark" : "light")) === "dark";

  // --- side notes: open beside their paragraph where the screen has room, folded behind it
  // elsewhere ---

  const room = matchMedia("screen and (min-width: 81rem)");
  const placeNotes = (event) =>
    all("details.note").forEach((note) => {
      if (room.matches !== note.classList.contains("beside")) {
        if (room.matches)
          note.previousElementSibling?.before(note); // so that both begin at the same height
        else note.nextElementSibling?.after(note);
      }
      note.classList.toggle("beside", room.matches);
      note.open = room.matches || event?.type === "beforeprint" || matchMedia("print").matches;
      // there it is a title, nothing to open
      note.querySelector("summary").tabIndex = room.matches ? -1 : 0;
    });
  placeNotes();
  room.addEventListener("change", placeNotes);
  for (const name of ["beforeprint", "afterprint"]) addEventListener(name, placeNotes);

  // --- charts: drawn when they come near the screen, and again in the colours of the other theme
  // ---

  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  const colour = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  };

  const chartConfig = () => {
    const [ink, muted, rule] = ["--ink", "--muted", "--rule"].map(colour);
    const words = { labelColor: muted, titleColor: ink };
    return {
      background: "transparent",
      font: getComputedStyle(document.body).fontFamily,
      view: { stroke: rule },
      axis: {
        ...words,
        domainColor: rule,
        tickColor: rule,
        gridColor: rule,
        gridOpacity: 0.6,
        labelSeparation: 5,
      },
      legend: words,
      header: words,
      title: { color: ink, subtitleColor: muted },
      text: { color: ink },
      rule: { color: muted }, // marks that are black otherwise
    };
  };

  // what page.py compressed: gzip in base64
  const unpack = async (element) => {
    const bytes = Uint8Array.from(atob(element.textContent), (character) =>
      character.charCodeAt(0),
    );
    return new Response(
      new Response(bytes).body.pipeThrough(new DecompressionStream("gzip")),
    ).text();
  };

  let vega; // read when the first chart is drawn
  const loadVega = async () => {
    const script = document.createElement("script");
    script.textContent = await unpack(document.getElementById("vega"));
    document.head.append(script);
  };

  // where there is nothing, a map has the colour of the page
  const darkShades = () => {
    const page = colour("--page");
    return { heatmap: [page, "#2f6fb0", "#d6ebff"], signed: ["#6cb2ff", page, "#ffa657"] };
  };
  const stack = (part) => {
    if (part.hconcat) [part.vconcat, part.hconcat] = [part.hconcat, undefined];
    (part.vconcat ?? []).forEach(stack);
  };

  const drawn = new Map(); // figure -> what vegaEmbed made of it
  const draw = async (figure) => {
    await (vega ??= loadVega());
    let text = await unpack(figure.querySelector("script"));
    const config = chartConfig(),
      { signed, ...range } = darkShades();
    if (isDark())
      text = text.replace(
        /"scheme":\s*"blueorange"/g,
        `"range": ${JSON.stringify(signed)}, "interpolate": "rgb"`,
      );
    const spec = JSON.parse(text);
    if (isDark()) spec.config = { ...spec.config, range: { ...spec.config?.range, ...range } };
    const room = figure.clientWidth,
      wanted = Number(figure.querySelector(".still").getAttribute("width"));
    if (wanted > room) {
      // a chart of one panel shrinks, unless it is very wide; panels side by side go below each
      // other
      const single = !["hconcat", "vconcat", "concat", "facet", "repeat", "spec"].some(
        (key) => key in spec,
      );
      if (single && wanted < 720)
        Object.assign(spec, { width: room, autosize: { type: "fit-x", contains: "padding" } });
      else if (!single && wanted > 1.4 * room) stack(spec);
      // a little too wide: smaller is better than a column of charts
      else if (!single) figure.classList.add("scaled");
      config.legend = { ...config.legend, orient: "bottom", columns: 1, labelLimit: room - 40 };
      config.title = { ...config.title, limit: room, anchor: "start" };
    }
    try {
      drawn.get(figure)?.finalize();
      const tooltip = { theme: isDark() ? "dark" : "light" };
      const options = { mode: "vega-lite", renderer: "svg", actions: false, config, tooltip };
      drawn.set(figure, await vegaEmbed(figure.querySelector(".live"), spec, options));
      figure.classList.add("drawn");
    } catch (error) {
      figure.classList.add("failed"); // the picture takes its place
      console.error(error);
    }
  };

  const near = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        near.unobserve(target);
        draw(target);
      }
    },
    { rootMargin: "600px" },
  );
  all(".chart").forEach((figure) => near.observe(figure));
  const redraw = () => [...drawn.keys()].forEach(draw);

  // --- the live figure: made ready when one of its places comes near the screen ---

  const live = new IntersectionObserver(
    (entries) => {
      for (const { isIntersecting, target } of entries) {
        if (!isIntersecting) continue;
        live.unobserve(target);
        (window.requestIdleCallback ?? setTimeout)(async () => {
          const known = await liveContent();
          const figure = document.createElement("div");
          target.append(figure);
          const changed = ({ sentence, switches }) =>
            // not what it starts with
            figure.explored && yourSentence.follow(sentence, { switches, from: figure.explored });
          const first = target.dataset.number === "1";
          figure.explored = exploreAttention(figure, known, { first, open: !first, changed });
          yourSentence.join(figure.explored);
          target.classList.add("ready"); // hides the picture
        });
      }
    },
    { rootMargin: "300px" },
  );
  all(".explorer").forEach((place) => live.observe(place));

  // --- predict, then look: one of the choices before a folded answer, which begins with the number
  // of the right one. What answers it waits until one has chosen: the cells that follow, what is
  // said of them, and what else is then only shown ---

  let guessed = {}; // by question, so that one who comes back finds open what he has been through
  try {
    guessed = JSON.parse(localStorage.guessed ?? "{}");
  } catch {
    /* nothing was kept, or may be */
  }
  all("details.answer").forEach((answer) => {
    const list = answer.previousElementSibling,
      right = parseInt(answer.querySelector("strong")?.textContent, 10);
    if (list?.tagName !== "OL" || !right) return;
    const items = [...list.children],
      count = document.createElement("small"),
      question = list.previousElementSibling?.textContent ?? "";
    const settle = (choice) => {
      answer.open = true;
      count.textContent = Guesses.text();
      buttons.forEach((one, i) =>
        Object.assign(one, {
          disabled: true,
          textContent: i + 1 === right ? "✓" : i === choice ? "✗" : "○",
        }),
      );
    };
    const buttons = items.map((item, i) => {
      const button = document.createElement("button");
      Object.assign(button, {
        type: "button",
        textContent: "○",
        ariaLabel: say("I say: {choice}", { choice: item.textContent.trim() }),
      });
      button.addEventListener("click", () => {
        Guesses.add(i + 1 === right);
        guessed[question] = i;
        try {
          localStorage.guessed = JSON.stringify(guessed);
        } catch {
          /* not kept */
        }
        const focused = document.activeElement === button; // a button that is disabled loses it
        settle(i);
        if (focused) answer.querySelector("summary").focus({ preventScroll: true });
      });
      item.prepend(button, " ");
      item.addEventListener("click", (event) => {
        if (!event.target.closest("a, button")) button.click();
      });
      return button;
    });
    list.classList.add("choices");
    answer.before(count);
    if (question in guessed) settle(guessed[question]);
    const section = answer.closest("section"),
      shown = [];
    if (
      answer.nextElementSibling ||
      ![section, section.lastElementChild].includes(answer.parentElement)
    )
      return;
    let node = section.nextElementSibling;
    const take = (fits) => {
      for (; node && fits(node); node = node.nextElementSibling) shown.push(node);
    };
    take((next) => !next.matches("section"));
    if (!shown.some((cell) => cell.matches(".jp-CodeCell"))) return;
    if (node && !node.querySelector("h1, h2, h3, .choices, .answer")) {
      const said = node;
      take((next) => next === said);
      // not a cell whose code is the next step
      take((next) => next.matches(".celltag_hide-input, div:not(.jp-Cell)"));
    }
    const fold = Object.assign(document.createElement("details"), {
      className: "awaiting",
      open: matchMedia("print").matches,
    });
    fold.append(document.createElement("summary"), ...shown);
    fold.firstChild.textContent = say("What comes out opens here as soon as you've chosen");
    section.after(fold);
    answer.addEventListener("toggle", () => {
      fold.open ||= answer.open;
    });
  });

  // --- paper: what is folded opens, but not the answers to exercises, in code and in words ---

  const isAnswer = (node) => node?.matches("details:has(> .celltag_hide-cell)");
  openOnPaper(
    document.querySelector("main"),
    (fold) => isAnswer(fold) || isAnswer(fold.closest("section")?.nextElementSibling),
  );

  // --- theme: the system's, until the reader chooses; paper is light ---

  document.getElementById("theme").addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.theme = root.dataset.theme;
    } catch {
      /* not remembered */
    }
    redraw();
  });
  systemDark.addEventListener("change", redraw);
  let chosen;
  addEventListener("beforeprint", () => {
    chosen = root.dataset.theme;
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    if (chosen) root.dataset.theme = chosen;
    else delete root.dataset.theme;
  });

  // --- table of contents: opens and marks the section that is being read ---

  const toc = document.getElementById("toc");
  const button = document.getElementById("contents");
  const show = (open) => {
    toc.classList.toggle("open", open);
    button.setAttribute("aria-expanded", open);
  };
  button.addEventListener("click", () => show(!toc.classList.contains("open")));
  toc.addEventListener("click", (event) => {
    if (event.target.closest("a")) show(false);
  });
  document.addEventListener("click", (event) => {
    if (!event.target.closest("#toc, #contents")) show(false);
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !toc.classList.contains("open")) return;
    show(false);
    button.focus();
  });

  const links = all("a", toc);
  const sections = links.map((link) =>
    document.getElementById(decodeURIComponent(link.hash.slice(1))),
  );
  // what is left to read, of the road or of everything; the page has computed each section's
  // minutes
  const left = document.getElementById("left"),
    road = sections.map((section) => "road" in (section?.dataset ?? {}));
  let everything = !road.includes(true);
  try {
    everything ||= localStorage.everything === "1";
  } catch {
    /* the road */
  }
  const showLeft = (place) => {
    const total = links.reduce(
      (sum, link, i) =>
        sum + (i >= place && (everything || road[i]) ? Number(link.dataset.minutes) : 0),
      0,
    );
    left.hidden = place < 0 || links.length < 8;
    const time =
      total < 100
        ? say("{n} min", { n: Math.round(total) })
        : say("{n} h", { n: (total / 60).toFixed(1) });
    left.dataset.short = total < 0.5 ? "" : time; // for a phone
    left.textContent =
      "⇄ " +
      (total < 0.5
        ? say(everything ? "nothing left to read" : "the road ends here")
        : say(everything ? "{time} left" : "{time} left on the road", { time }));
  };
  left.title = say("Count the road, or everything");
  left.addEventListener("click", () => {
    everything = !everything || !road.includes(true);
    try {
      localStorage.everything = everything ? "1" : "";
    } catch {
      /* not remembered */
    }
    showLeft(links.indexOf(current));
  });

  let current;
  // on the root, the property would have the whole page styled anew
  const header = document.querySelector("header");
  const follow = () => {
    const line = innerHeight / 4; // a section is being read when its heading is above this line
    const place = sections.findLastIndex((section) => section.getBoundingClientRect().top < line),
      link = links[place];
    header.style.setProperty(
      "--read",
      (scrollY / Math.max(1, root.scrollHeight - innerHeight)).toFixed(4),
    );
    if (link === current) return;
    showLeft(place);
    current?.removeAttribute("aria-current");
    current = link;
    all("li.open", toc).forEach((item) => item.classList.remove("open"));
    if (!link) return;
    link.setAttribute("aria-current", "true");
    link.closest("#toc > ol > li").classList.add("open");
    const [box, frame] = [link.getBoundingClientRect(), toc.getBoundingClientRect()];
    if (box.top < frame.top || box.bottom > frame.bottom)
      toc.scrollTop += box.top - frame.top - frame.height / 3;
  };
  let waiting = false;
  addEventListener(
    "scroll",
    () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => {
        waiting = false;
        follow();
      });
    },
    { passive: true },
  );
  follow();

  // --- what scrolls can be reached by keyboard ---

  const reach = (within) => {
    // in what is folded, once it is opened: to measure there, the browser would lay it out each
    // time
    const boxes = all(
      ".katex-display, .picture, .table, .toy > div:not(.learn-row), main pre",
      within,
    ).filter((box) => !box.closest("details:not([open])"));
    const wide = boxes.map((box) => box.scrollWidth > box.clientWidth);
    boxes.forEach((box, i) => {
      // only now: a change between two measurements would have the page laid out again
      if (wide[i]) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    });
  };
  (window.requestIdleCallback ?? setTimeout)(() => reach());
  addEventListener("resize", () => reach());
  addEventListener("toggle", ({ target }) => reach(target), { capture: true });

  // --- other pages, and what has moved there ---

  const pages = document.querySelector("header .pages");
  document.addEventListener("click", (event) => {
    if (!event.target.closest(".pages")) pages?.removeAttribute("open");
  });
  pages?.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    pages.open = false;
    pages.querySelector("summary").focus();
  });
  document.getElementById("forget")?.addEventListener("click", () => {
    if (!confirm(say("Forget your answers, your code, your sentence and how far you have come?")))
      return;
    try {
      for (const name of ["guessed", "guesses", "road", "mine"]) localStorage.removeItem(name);
      sessionStorage.removeItem("annotatedSentence");
    } catch {
      /* nothing was kept */
    }
    location.reload();
  });
  const lead = () => {
    // to where a heading has gone that was once on this page
    const place = globalThis.MOVED?.[decodeURIComponent(location.hash.slice(1))];
    if (place) location.replace(place);
  };
  lead();
  addEventListener("hashchange", lead);

  // --- the same place in another language ---

  for (const link of all("a.language"))
    link.addEventListener("click", () => {
      if (current) link.hash = current.hash;
    });

  // --- copy buttons ---

  const copy = async (text) => {
    if (navigator.clipboard) return navigator.clipboard.writeText(text);
    // a page that came without https
    const area = document.body.appendChild(document.createElement("textarea"));
    area.value = text;
    area.select();
    document.execCommand("copy");
    area.remove();
  };
  for (const block of all(".highlight")) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy", textContent: say("copy") });
    button.addEventListener("click", async () => {
      await copy(block.querySelector("pre").textContent);
      button.textContent = say("copied");
      setTimeout(() => {
        button.textContent = say("copy");
      }, 1500);
    });
    block.append(button);
  }
}
