// From a question of the page to its answer.

import { refusal } from "./interpreter.js";
import { judge } from "./judge.js";
import { plug } from "./plug.js";

/** @param {World} world
 *  @param {Asked} question */
export function answerOf(world, { code, name, plugged, sentence }) {
  try {
    world.interpreter.load("_mine", code);
    if (!world.interpreter.hasFunction("_mine", name)) throw refusal("missing", name);
    const src = world.translator.source(sentence);
    return { result: plugged ? plug(world, name, src) : judge(world, name, src) };
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    return {
      error: message.trim().split("\n").at(-1),
      line: [...message.matchAll(/"mine\.py", line (\d+)/g)].at(-1)?.[1],
    };
  }
}
