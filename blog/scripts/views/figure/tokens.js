// How a figure names the tokens of what it shows.

import { plain } from "../../model/tokeniser.js";

/** @typedef {"source" | "target" | "predicted"} Side */

export const isMarker = (/** @type {string} */ token) => /^<\/?(s|bos|eos|pad)>$/.test(token);
const standsAlone = (/** @type {string} */ token) => isMarker(token) || /^\p{P}+$/u.test(token);

/** The names of a result's tokens. A model of whole words never writes "▁"; then each token is a
 *  word. */
export class TokenNames {
  constructor(/** @type {Record<Side, string[]>} */ { source, target, predicted }) {
    this.tokens = { source, target, predicted };
    const all = [...source, ...target, ...predicted];
    this.hasPieces = all.some((token) => token.startsWith("▁"));
  }

  isWhole(/** @type {string} */ token) {
    return standsAlone(token) || token.startsWith("▁") || !this.hasPieces;
  }

  startsWord(/** @type {string[]} */ tokens, /** @type {number} */ i) {
    return i === 0 || this.isWhole(tokens[i]) || isMarker(tokens[i - 1]);
  }

  /** "dog"; "·board" for a piece that continues a word.
   *  @param {string[]} tokens @param {number} i */
  spell(tokens, i) {
    return (this.startsWord(tokens, i) ? "" : "·") + plain(tokens[i]);
  }

  /** The name of a token that stands alone. @param {string} token */
  piece(token) {
    return (this.isWhole(token) ? "" : "·") + plain(token);
  }

  /** How the rows or columns of a map are called; a query of the decoder by what it reads and
   *  predicts. @param {Side} side @param {boolean} isQuery */
  names(side, isQuery) {
    const named = (/** @type {string[]} */ tokens) => tokens.map((_, i) => this.spell(tokens, i));
    if (!isQuery || side === "source") return named(this.tokens[side]);
    const predicted = named(this.tokens.predicted);
    return named(this.tokens.target).map((name, i) => `${name} → ${predicted[i]}`);
  }
}
