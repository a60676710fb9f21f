// The table of contents opens and marks the section that is being read; the bar says what is left.

import { all, byId, startDrawer } from "./dom.js";
import { say } from "./language.js";

/** @typedef {{ link: HTMLAnchorElement, heading: HTMLElement | null, minutes: number, onRoad:
 *  boolean }} Entry */

const FEW_ENTRIES = 8; // a page with fewer doesn't say what is left

export function startContents() {
  const contents = new Contents();
  startDrawer(byId("contents"), contents.list);
  contents.follow();
  addEventListener("scroll", () => contents.follow(), { passive: true }); // once a frame
  // the same place in another language
  for (const link of /** @type {HTMLAnchorElement[]} */ (all("a.language")))
    link.addEventListener("click", () => {
      if (contents.current) link.hash = contents.current.hash;
    });
}

class Contents {
  constructor() {
    this.list = byId("toc");
    this.left = byId("left");
    this.header = all("header")[0];
    this.entries = all("a", this.list).map(entryOf);
    /** @type {HTMLAnchorElement | undefined} */
    this.current = undefined;
  }

  /** Mark the section that is being read: its heading is above a quarter of the window. */
  follow() {
    const line = innerHeight / 4;
    const isAbove = (/** @type {Element | null} */ element) =>
      element !== null && element.getBoundingClientRect().top < line;
    const place = this.entries.findLastIndex(
      // a heading that waits far below (page/far.js) would be laid out to be measured
      ({ heading }) => heading && isAbove(heading.closest("main > *")) && isAbove(heading),
    );
    const height = Math.max(1, document.documentElement.scrollHeight - innerHeight);
    // on the root, the property would have the whole page styled anew
    this.header.style.setProperty("--read", (scrollY / height).toFixed(4));
    const link = this.entries[place]?.link;
    if (link === this.current) return;
    this.showLeft(place);
    this.current?.removeAttribute("aria-current");
    this.current = link;
    for (const item of all("li.open", this.list)) item.classList.remove("open");
    if (link) this.mark(link);
  }

  mark(/** @type {HTMLAnchorElement} */ link) {
    link.setAttribute("aria-current", "true");
    link.closest("#toc > ol > li")?.classList.add("open");
    const [box, frame] = [link.getBoundingClientRect(), this.list.getBoundingClientRect()];
    if (box.top < frame.top || box.bottom > frame.bottom)
      this.list.scrollTop += box.top - frame.top - frame.height / 3;
  }

  /** The minutes from an entry on, as long as there are some of the road. */
  showLeft(/** @type {number} */ place) {
    const coming = this.entries.slice(Math.max(0, place));
    const sum = (/** @type {Entry[]} */ entries) =>
      entries.reduce((total, { minutes }) => total + minutes, 0);
    const ofRoad = sum(coming.filter(({ onRoad }) => onRoad));
    const isOnRoad = ofRoad >= 0.5;
    const total = isOnRoad ? ofRoad : sum(coming);
    const time =
      total < 100
        ? say("{n} min", { n: Math.round(total) })
        : say("{n} h", { n: (total / 60).toFixed(1) });
    this.left.hidden = place < 0 || this.entries.length < FEW_ENTRIES || total < 0.5;
    this.left.dataset.short = time; // for a phone
    this.left.textContent = say(isOnRoad ? "{time} left on the road" : "{time} left", { time });
  }
}

/** @param {HTMLElement} element @returns {Entry} */
function entryOf(element) {
  const link = /** @type {HTMLAnchorElement} */ (element);
  const heading = document.getElementById(decodeURIComponent(link.hash.slice(1)));
  const onRoad = "road" in (heading?.dataset ?? {});
  return { link, heading, minutes: Number(link.dataset.minutes), onRoad };
}
