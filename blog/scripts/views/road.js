// The road of a first visit: a button that begins it or goes on, every few minutes a way to the
// next stop with what is left, and marks in the contents. Which headings are on it, and how long
// each takes, page.py has found out.

import { say } from "../page/language.js";
import { endOf } from "../page/sentence.js";

export function startRoad() {
  const minutes = (heading) =>
    Number(document.querySelector(`#toc a[href="#${heading.id}"]`)?.dataset.minutes ?? 0);
  const SIDE = {
    // from a stop to something to do that is elsewhere: its frame's name, and what is said of it
    "while-it-learns": [
      "trainer",
      say("Or first watch one learn: a small model, from nothing, in this tab ▸"),
    ],
    "what-to-do-now": ["write-attention", say("The next rung: write attention, in this page ▸")],
  };
  const headings = [...document.querySelectorAll("main :is(h1, h2, h3)")],
    stops = []; // a stop: its headings
  let time = Infinity; // of the stop; a heading with nothing below it takes none
  for (const [i, heading] of headings.entries()) {
    if (!("road" in heading.dataset)) continue;
    if (time > 2.5) {
      // long enough
      stops.push([]);
      time = 0;
    }
    stops.at(-1).push(heading);
    time += minutes(heading);
    // the road leaps
    if (heading.id in SIDE || !("road" in (headings[i + 1]?.dataset ?? {}))) time = Infinity;
  }
  if (stops.length < 3) return;
  const el = (tag, properties = {}, ...children) => {
    const node = Object.assign(document.createElement(tag), properties);
    node.append(...children);
    return node;
  };
  const timeFrom = (stop) =>
    say("{n} min", {
      n: Math.max(
        1,
        Math.round(
          stops
            .slice(stop)
            .flat()
            .reduce((sum, heading) => sum + minutes(heading), 0),
        ),
      ),
    });
  const title = (heading) => {
    const copy = heading.cloneNode(true);
    copy.querySelectorAll(".anchor, annotation, .katex-html").forEach((part) => part.remove());
    return copy.textContent.trim();
  };
  const label = ([heading]) =>
    heading.id.startsWith("part-0") ? say("how this text is laid out") : title(heading);

  let done = [],
    // the line from which nothing leads on: whose next stop is the last one has only to come to it
    last;
  const end = new IntersectionObserver(([seen]) => seen.isIntersecting && finish(stops.at(-1)));
  try {
    done = JSON.parse(localStorage.road ?? "[]");
  } catch {
    /* nothing is known */
  }
  const begin = el("a", { id: "road" });
  function show() {
    stops.flat().forEach(({ id }) => {
      const link = document.querySelector(`#toc a[href="#${id}"]`),
        read = done.includes(id);
      link.classList.add("on-road");
      link.classList.toggle("read", read);
      link.setAttribute("aria-description", read ? say("on the road, read") : say("on the road"));
    });
    const next = Math.max(0, stops.findLastIndex((stop) => done.includes(stop.at(-1).id)) + 1),
      over = next === stops.length;
    begin.textContent =
      next === 0 || over
        ? say("Start, {time} ▸", { time: timeFrom(0) })
        : say("Go on: {title}, {time} left ▸", { title: label(stops[next]), time: timeFrom(next) });
    begin.href = `#${stops[over ? 0 : next][0].id}`;
    if (next === stops.length - 1) end.observe(last);
  }
  const finish = (stop) => {
    done = [...new Set([...done, ...stop.map(({ id }) => id)])];
    try {
      localStorage.road = JSON.stringify(done);
    } catch {
      /* not kept */
    }
    show();
  };
  const walk = document.getElementById("walk"); // comes second
  (walk ?? document.querySelector(".explorer"))?.before(begin, " ");

  // from the trainer or the editor
  const home = el("a", { id: "road-home", hidden: true, textContent: say("↩ back to the road") });
  home.addEventListener("click", () => {
    home.hidden = true;
  });
  document.getElementById("left").before(home); // in the bar, where it covers nothing
  stops.forEach((stop, i) => {
    const end = endOf(stop.at(-1).closest("section"));
    const next = stops[i + 1],
      line = el("p", { className: "road-next" }),
      [frame, text] = SIDE[stop.at(-1).id] ?? [];
    if (next)
      line.append(
        el("a", {
          href: `#${next[0].id}`,
          textContent: say("Next on the road: {title} ▸", { title: label(next) }),
        }),
        el("small", { textContent: say("{time} left", { time: timeFrom(i + 1) }) }),
      );
    else line.append(el("strong", { textContent: say("The road ends here.") }));
    if (next)
      line.firstChild.addEventListener("click", () => {
        finish(stop);
        home.hidden = true;
      });
    const place = document.getElementById(frame);
    if (place) {
      const aside = el("a", { className: "aside", href: `#${frame}`, textContent: text });
      aside.addEventListener("click", () => {
        if (place.matches("details")) place.open = true;
        finish(stop);
        home.href = `#${(next ?? stop)[0].id}`;
        home.hidden = false;
      });
      line.append(aside);
    }
    end.after(line);
    last = line;
  });
  show();
}
