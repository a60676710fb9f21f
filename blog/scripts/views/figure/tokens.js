// How a figure names the tokens of what it shows.

import { plain } from "../../model/tokeniser.js";
import { el, quoted } from "../dom.js";
import { told } from "../../page/language.js";

export const isMarker = (token) => /^<\/?(s|bos|eos|pad)>$/.test(token);
const isPunctuation = (token) => /^\p{P}+$/u.test(token);

/** The names of a result's tokens. A model of whole words never writes "▁"; then each token is a
 *  word. */
export class TokenNames {
  constructor(result) {
    this.result = result;
    this.hasPieces = [result.source, result.target, result.predicted].some((tokens) =>
      tokens.some((token) => token.startsWith("▁")),
    );
  }

  startsWord(tokens, i) {
    return (
      i === 0 ||
      tokens[i].startsWith("▁") ||
      isPunctuation(tokens[i]) ||
      isMarker(tokens[i]) ||
      isMarker(tokens[i - 1]) ||
      !this.hasPieces
    );
  }

  /** "dog"; "·board" for a piece that continues a word; "a snow·board" for several places. */
  spell(tokens, places) {
    const name = (i, n) => (this.startsWord(tokens, i) ? (n ? " " : "") : "·") + plain(tokens[i]);
    return places.map(name).join("");
  }

  /** The name of a token that stands alone. */
  piece(token) {
    const whole =
      isMarker(token) || token.startsWith("▁") || !this.hasPieces || isPunctuation(token);
    return (whole ? "" : "·") + plain(token);
  }

  /** What the rows or columns of a map are: tokens, or words if they are `merged`.
   *  @param {"source" | "target" | "predicted"} name @param {boolean} merged */
  items(name, merged, isQuery) {
    const tokens = this.result[name];
    const groups = [];
    tokens.forEach((_, i) => {
      if (!merged || this.startsWord(tokens, i)) groups.push([i]);
      else groups.at(-1).push(i);
    });
    return groups.map((members) => this.item(name, members, isQuery));
  }

  item(name, members, isQuery) {
    const { source, target, predicted } = this.result;
    const tokens = { source, target, predicted }[name];
    const text =
      members.length > 1
        ? plain(members.map((i) => tokens[i]).join(""))
        : this.spell(tokens, members);
    const item = { members, text, start: this.startsWord(tokens, members[0]) };
    if (!isQuery || name === "source") return item;
    return {
      ...item,
      reads: name === "target" ? text : this.spell(target, members),
      predicts: name === "predicted" ? text : this.spell(predicted, members),
      main: name,
    };
  }
}

export function label(item) {
  if (!item.main) return [el("bdi", { class: "main", title: item.text }, item.text)];
  const half = (text, name) =>
    el("bdi", { class: item.main === name ? "main" : "muted", title: text }, text);
  return [half(item.reads, "target"), " → ", half(item.predicts, "predicted")];
}

export const describeQuery = (item) =>
  item.main
    ? told("reads {read}, predicts {predicted}", {
        read: quoted(item.reads),
        predicted: quoted(item.predicts),
      })
    : [quoted(item.text)];
