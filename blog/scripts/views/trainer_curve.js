// The trainer's chart: the loss above, the rate below, each with its axis.

import { PEAK } from "../learn/tasks.js";
import { say } from "../page/language.js";
import { curve, put, shape, words } from "../page/svg.js";

/** @import { Update } from "../learn/tasks.js" */
/** A place in the chart. @typedef {[number, number]} Point */

const LEFT = 40;
const WIDTH = 294;
const LOSS_FLOOR = 126;
const LOSS_HEIGHT = 118;
const HIGHEST_LOSS = 4;
const RATE_FLOOR = 182;
const RATE_HEIGHT = 36;
const HIGHEST_RATE = 3 * PEAK;

const loss_y = (/** @type {number} */ loss) =>
  LOSS_FLOOR - LOSS_HEIGHT * Math.min(1, loss / HIGHEST_LOSS);
const rate_y = (/** @type {number} */ rate) =>
  RATE_FLOOR - RATE_HEIGHT * Math.min(1, rate / HIGHEST_RATE);

/** @param {number} x @param {number} y @param {string} text */
const label = (x, y, text, anchor = "end") =>
  words(x, y, text, { "text-anchor": anchor, "font-size": 10 });

export class Chart {
  /** Lines, from the lowest to the uppermost. */
  rate = curve(1.2, "none", "muted");
  whole = curve(1.4, "1.5 2.5", "ink");
  lacking = curve(1.4, "5 3", "warning");
  before = curve(1, "none", "link");
  loss = curve(2.2, "none", "link");
  middle = label(LEFT + WIDTH / 2, 195, "", "middle");
  end = label(LEFT + WIDTH, 195, "");
  guessing = label(LEFT + WIDTH, 0, "");
  above = label(LEFT + WIDTH / 2, RATE_FLOOR - RATE_HEIGHT + 12, "", "middle");
  total = 1;

  constructor(/** @type {Element} */ svg) {
    const axes = `M${LEFT} 6V${LOSS_FLOOR}H${LEFT + WIDTH}M${LEFT} ${RATE_FLOOR - RATE_HEIGHT}V${RATE_FLOOR}H${LEFT + WIDTH}`;
    svg.append(
      shape("path", { d: axes, fill: "none", stroke: "var(--rule)" }),
      ...[0, 1, 2, 3, 4].map((loss) => label(LEFT - 4, loss_y(loss) + 3, String(loss))),
      label(LEFT - 4, rate_y(0) + 3, "0"),
      label(LEFT - 4, rate_y(PEAK) + 3, PEAK.toFixed(4)),
      ...[this.middle, this.end, this.guessing, this.above],
      ...[this.rate, this.whole, this.lacking, this.before, this.loss],
    );
  }

  step_x = (/** @type {number} */ step) => LEFT + (WIDTH * step) / this.total;

  /** @param {Update[]} updates @returns {Point[]} */
  points_of_losses = (updates) => updates.map(([step, loss]) => [this.step_x(step), loss_y(loss)]);
  /** Of losses in stretches of equal length. @param {number[]} losses @returns {Point[]} */
  points_of_stretches = (losses) =>
    losses.map((loss, i) => [this.step_x((this.total * (i + 0.5)) / losses.length), loss_y(loss)]);

  /** The run itself. @param {Update[]} updates */
  draw_run(updates) {
    put(this.loss, this.points_of_losses(updates));
    put(
      this.rate,
      updates.map(([step, , rate]) => [this.step_x(step), rate_y(rate)]),
    );
  }

  /** What stays while a run goes on: losses of trainings that were made beforehand, the run before,
   *  how many tokens there are to guess among, and the highest rate.
   *  @param {{ whole: number[], lacking: number[], before: Update[], tokens: number,
   *    highest: number }} background */
  draw_background({ whole, lacking, before, tokens, highest }) {
    const { total } = this;
    put(this.whole, this.points_of_stretches(whole));
    put(this.before, this.points_of_losses(before));
    put(this.lacking, this.points_of_stretches(lacking));
    this.middle.textContent = (total / 2).toLocaleString("en");
    this.end.textContent = say("{n} updates", { n: total.toLocaleString("en") });
    const loss = Math.log(tokens);
    this.guessing.setAttribute("y", `${loss_y(loss) - 4}`);
    const values = { loss: loss.toFixed(2), count: tokens };
    this.guessing.textContent = say("{loss}: guessing among {count} tokens", values);
    this.above.textContent =
      highest > HIGHEST_RATE ? say("up to {rate}", { rate: highest.toFixed(3) }) : "";
  }
}
