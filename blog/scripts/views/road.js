// The road of a first visit: a button that begins it or goes on, every few minutes a way to the
// next stop with what is left, and marks in the contents. Which headings are on it, and how long
// each takes, page.py has found out.

import { all, byId, el, onceNear } from "../page/dom.js";
import { say } from "../page/language.js";
import { recall, remember } from "../page/memory.js";
import { wordsOf } from "../page/search_index.js";
import { endOf } from "../page/sentence.js";

/** @typedef {HTMLElement[]} Stop its headings */

const LONG_MINUTES = 2.5; // of a stop; then another one begins
const FEWEST_STOPS = 3;

/** From a heading to something to do that is elsewhere: its frame's id, and what is said of it.
 *  @type {Record<string, { frame: string, textContent: string }>} */
const ASIDES = {
  "while-it-learns": {
    frame: "trainer",
    textContent: say("Or first watch one learn: a small model, from nothing, in this tab ▸"),
  },
  "what-to-do-now": { frame: "write-attention", textContent: say("Next rung: write it ▸") },
};

export function startRoad() {
  const stops = stopsOf(all("main :is(h1, h2, h3)"));
  if (stops.length >= FEWEST_STOPS) new Road(stops).show();
}

const linkTo = (/** @type {HTMLElement} */ heading) => all(`#toc a[href="#${heading.id}"]`)[0];

/** A heading with nothing below it takes no time. @param {HTMLElement} heading */
const minutesOf = (heading) => Number(linkTo(heading)?.dataset.minutes ?? 0);

function stopsOf(/** @type {HTMLElement[]} */ headings) {
  /** @type {Stop[]} */
  const stops = [];
  let minutes = Infinity;
  for (const [i, heading] of headings.entries()) {
    if (!("road" in heading.dataset)) continue;
    if (minutes > LONG_MINUTES) {
      stops.push([]);
      minutes = 0;
    }
    stops[stops.length - 1].push(heading);
    minutes += minutesOf(heading);
    const leaps = !("road" in (headings[i + 1]?.dataset ?? {}));
    if (leaps || heading.id in ASIDES) minutes = Infinity;
  }
  return stops;
}

class Road {
  constructor(/** @type {Stop[]} */ stops) {
    this.stops = stops;
    /** Ids of headings that were read. @type {string[]} */
    this.read = recall("road", []);
    this.begin = el("a", { id: "road" });
    document.getElementById("ways")?.prepend(this.begin); // before the walk
    // from the trainer or the editor
    const textContent = say("↩ back to the road");
    const onclick = () => (this.home.hidden = true);
    this.home = el("a", { id: "road-home", hidden: true, textContent, onclick });
    byId("left").before(this.home); // in the bar, where it covers nothing
    const lines = stops.map((stop, i) => this.addLine(stop, i));
    // nothing leads on from the last line: whose next stop is the last one has only to come to it
    this.end = lines[lines.length - 1];
  }

  show() {
    const { stops, read, begin } = this;
    for (const heading of stops.flat()) mark(linkTo(heading), read.includes(heading.id));
    const next = stops.findLastIndex((stop) => read.includes(stop[stop.length - 1].id)) + 1;
    const over = next === stops.length;
    begin.textContent =
      next === 0 || over
        ? say("Start, {time} ▸", { time: this.timeFrom(0) })
        : say("Go on: {title}, {time} left ▸", {
            title: labelOf(stops[next]),
            time: this.timeFrom(next),
          });
    begin.href = `#${stops[over ? 0 : next][0].id}`;
    if (next === stops.length - 1) onceNear([this.end], () => this.finish(stops[next]), "0px");
  }

  finish(/** @type {Stop} */ stop) {
    this.read = [...new Set([...this.read, ...stop.map(({ id }) => id)])];
    remember("road", this.read);
    this.show();
  }

  /** @param {number} place of a stop */
  timeFrom(place) {
    const headings = this.stops.slice(place).flat();
    const minutes = headings.reduce((sum, heading) => sum + minutesOf(heading), 0);
    return say("{n} min", { n: Math.max(1, Math.round(minutes)) });
  }

  /** The line at the end of a stop. @param {Stop} stop @param {number} place */
  addLine(stop, place) {
    const line = el("p", { className: "road-next" });
    const next = this.stops[place + 1];
    const heading = stop[stop.length - 1];
    if (next) {
      const textContent = say("Next on the road: {title} ▸", { title: labelOf(next) });
      const onclick = () => {
        this.finish(stop);
        this.home.hidden = true;
      };
      const link = el("a", { href: `#${next[0].id}`, textContent, onclick });
      const time = say("{time} left", { time: this.timeFrom(place + 1) });
      line.append(link, el("small", { textContent: time }));
    } else line.append(el("strong", { textContent: say("The road ends here.") }));
    const aside = this.asideOf(heading, stop, next ?? stop);
    if (aside) line.append(aside);
    endOf(/** @type {Element} */ (heading.closest("section"))).after(line);
    return line;
  }

  /** @param {HTMLElement} heading @param {Stop} stop @param {Stop} next where to come back to */
  asideOf(heading, stop, next) {
    const { frame, textContent } = ASIDES[heading.id] ?? {};
    const place = document.getElementById(frame);
    if (!place) return null;
    const onclick = () => {
      if (place instanceof HTMLDetailsElement) place.open = true;
      this.finish(stop);
      this.home.href = `#${next[0].id}`;
      this.home.hidden = false;
    };
    return el("a", { className: "aside", href: `#${frame}`, textContent, onclick });
  }
}

function mark(/** @type {HTMLElement} */ link, /** @type {boolean} */ read) {
  link.classList.add("on-road");
  link.classList.toggle("read", read);
  link.setAttribute("aria-description", read ? say("on the road, read") : say("on the road"));
}

function labelOf(/** @type {Stop} */ [heading]) {
  if (heading.id.startsWith("part-0")) return say("how this text is laid out");
  return wordsOf(heading);
}
