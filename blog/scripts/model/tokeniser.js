// Text to ids and back: byte-pair encoding as translator and document have it.

export const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];
const PUNCTUATION = /([!-\/:-@\[-`{-~]|\p{P})/u;

/** Pieces as text. @param {string} pieces */
export const plain = (pieces) => pieces.replaceAll("▁", " ").trim() || "␣";

export class Tokenizer {
  constructor(/** @type {string[]} */ vocab, /** @type {string[]} */ merges) {
    this.pieces = vocab;
    this.ids = new Map(vocab.map((piece, id) => [piece, id]));
    this.ranks = new Map(merges.map((merge, rank) => [merge, rank]));
  }

  /** A piece as it is shown: without the mark of a word's beginning, and with a dot in front if it
   *  continues a word. @param {string} piece */
  spell(piece) {
    const bare = piece.replaceAll("▁", "");
    return bare !== piece || /^(<.+>|\p{P}+)$/u.test(piece) ? bare || "␣" : `·${piece}`;
  }

  encode(/** @type {string} */ text) {
    const spaced = text.normalize("NFC").replace(/\p{White_Space}+/gu, " ");
    const marked = spaced.replace(/^ | $/g, "").replaceAll(" ", "▁");
    const words = `▁${marked.replace(/^▁/, "")}`.match(/▁?[^▁]*/gu) ?? [];
    const pieces = words.flatMap((word) => word.split(PUNCTUATION)).filter(Boolean);
    return pieces.flatMap((piece) => this.merge(piece));
  }

  /** The characters of a text that have no piece. @param {string} text */
  unknown(text) {
    return [...new Set(text.normalize("NFC"))].filter(
      (character) => character.trim() && this.encode(character).includes(UNK),
    );
  }

  /** Merges the pair that was learned first, until none is left. @param {string} word */
  merge(word) {
    const pieces = [...word];
    for (;;) {
      const ranks = pieces.slice(1).map((piece, i) => this.rank(pieces[i], piece));
      const first = Math.min(...ranks);
      if (first === Infinity) return pieces.map((piece) => this.ids.get(piece) ?? UNK);
      const place = ranks.indexOf(first);
      pieces.splice(place, 2, pieces[place] + pieces[place + 1]);
    }
  }

  rank(/** @type {string} */ left, /** @type {string} */ right) {
    return this.ranks.get(`${left} ${right}`) ?? Infinity;
  }

  tokens(/** @type {number[]} */ ids) {
    return ids.map((id) => this.pieces[id]);
  }

  decode(/** @type {number[]} */ ids) {
    const end = ids.indexOf(EOS);
    const words = ids.slice(0, end < 0 ? undefined : end).filter((id) => id !== PAD && id !== BOS);
    return this.tokens(words).join("").replaceAll("▁", " ").replaceAll("&amp;", "&").trim();
  }
}
