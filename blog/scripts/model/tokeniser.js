// Text to ids and back: byte-pair encoding as translator and document have it.

export const [PAD, BOS, EOS, UNK] = [0, 1, 2, 3];

/** Pieces as text. */
export const plain = (pieces) => pieces.replaceAll("▁", " ").trim() || "␣";

export class Tokenizer {
  // byte-pair encoding as translator and document have it
  constructor(vocab, merges) {
    this.pieces = vocab;
    this.ids = new Map(vocab.map((piece, id) => [piece, id]));
    this.ranks = new Map(merges.map((merge, rank) => [merge, rank]));
  }

  // A piece as it is shown: without the mark of a word's beginning, and with a dot in front if it
  // continues a word.
  spell(piece) {
    const bare = piece.replaceAll("▁", "");
    return bare !== piece || /^(<.+>|\p{P}+)$/u.test(piece) ? bare || "␣" : `·${piece}`;
  }

  encode(text) {
    const clean = text
      .normalize("NFC")
      .replace(/\p{White_Space}+/gu, " ")
      .replace(/^ | $/g, "")
      .replaceAll(" ", "▁");
    const words = ("▁" + clean.replace(/^▁/, "")).match(/▁?[^▁]*/gu).filter(Boolean);
    const punctuation = /([!-\/:-@\[-`{-~]|\p{P})/u;
    return words
      .flatMap((word) => word.split(punctuation).filter(Boolean))
      .flatMap((word) => this.merge(word));
  }

  merge(word) {
    // merges the pair that was learned first, until none is left
    const pieces = [...word];
    for (;;) {
      let first = Infinity,
        place = -1;
      for (let i = 0; i + 1 < pieces.length; i++) {
        const rank = this.ranks.get(pieces[i] + " " + pieces[i + 1]);
        if (rank < first) [first, place] = [rank, i];
      }
      if (place < 0) return pieces.map((piece) => this.ids.get(piece) ?? UNK);
      pieces.splice(place, 2, pieces[place] + pieces[place + 1]);
    }
  }

  tokens(ids) {
    return ids.map((id) => this.pieces[id]);
  }

  decode(ids) {
    const end = ids.indexOf(EOS),
      kept = (end < 0 ? ids : ids.slice(0, end)).filter((id) => id !== PAD && id !== BOS);
    return this.tokens(kept).join("").replaceAll("▁", " ").replaceAll("&amp;", "&").trim();
  }
}
