// How a figure names the tokens of what it shows.

import { plain } from "../../model/tokeniser.js";

/** @typedef {"source" | "target" | "predicted"} Side */
/** A row or column of a map: the places of its tokens, and how they are called; a query of the
 *  decoder by what it reads and predicts. @typedef {{ members: number[], text: string }} Item */

export const isMarker = (/** @type {string} */ token) => /^<\/?(s|bos|eos|pad)>$/.test(token);
const standsAlone = (/** @type {string} */ token) => isMarker(token) || /^\p{P}+$/u.test(token);

/** The names of a result's tokens. A model of whole words never writes "▁"; then each token is a
 *  word. */
export class TokenNames {
  constructor(/** @type {Result} */ { source, target, predicted }) {
    this.tokens = { source, target, predicted };
    const all = [...source, ...target, ...predicted];
    this.hasPieces = all.some((token) => token.startsWith("▁"));
  }

  isWhole(/** @type {string} */ token) {
    return standsAlone(token) || token.startsWith("▁") || !this.hasPieces;
  }

  /** @param {string[]} tokens @param {number} i */
  startsWord(tokens, i) {
    return i === 0 || this.isWhole(tokens[i]) || isMarker(tokens[i - 1]);
  }

  /** "dog"; "·board" for a piece that continues a word; "a snow·board" for several places.
   *  @param {string[]} tokens @param {number[]} places */
  spell(tokens, places) {
    const names = places.map((i, n) => {
      const before = this.startsWord(tokens, i) ? (n ? " " : "") : "·";
      return before + plain(tokens[i]);
    });
    return names.join("");
  }

  /** The name of a token that stands alone. @param {string} token */
  piece(token) {
    return (this.isWhole(token) ? "" : "·") + plain(token);
  }

  /** What the rows or columns of a map are: tokens, or words if they are `merged`.
   *  @param {Side} side @param {boolean} merged @param {boolean} isQuery */
  items(side, merged, isQuery) {
    const tokens = this.tokens[side];
    /** @type {number[][]} */
    const groups = [];
    tokens.forEach((_, i) => {
      if (!merged || this.startsWord(tokens, i)) groups.push([i]);
      else groups[groups.length - 1].push(i);
    });
    return groups.map((members) => this.item(side, members, isQuery));
  }

  /** @param {Side} side @param {number[]} members @param {boolean} isQuery @returns {Item} */
  item(side, members, isQuery) {
    const tokens = this.tokens[side];
    const text =
      members.length > 1
        ? plain(members.map((i) => tokens[i]).join(""))
        : this.spell(tokens, members);
    if (!isQuery || side === "source") return { members, text };
    const { target, predicted } = this.tokens;
    const reads = side === "target" ? text : this.spell(target, members);
    const predicts = side === "predicted" ? text : this.spell(predicted, members);
    return { members, text: `${reads} → ${predicts}` };
  }
}
