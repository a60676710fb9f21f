// What a small model can learn in a tab: German numbers, letter by letter; copying; reversing. After the document's Part 2.
const Tasks = ({ BOS, EOS, generator }) => {
  const ONES = ["null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf", "zwölf",
    "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn"];
  const TENS = ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig", "achtzig", "neunzig"];

  /** A number below 1000 in German words. */
  function german_number(n) {
    const [hundreds, rest] = [Math.floor(n / 100), n % 100];
    if (hundreds) return `${ONES[hundreds]}hundert${rest ? german_number(rest) : ""}`;
    if (n < 20) return n === 1 ? "eins" : ONES[n];
    return (n % 10 ? `${ONES[n % 10]}und` : "") + TENS[Math.floor(n / 10)];
  }

  const SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"];

  /** A task: its letters, pairs from texts, batches, and pairs that are never learned from. */
  function make(name, seed) {
    const random = generator(seed), below = (n) => Math.floor(random() * n), pick = (rows) => rows[below(rows.length)];
    const numbers = name === "numbers";
    const texts = numbers ? Array.from({ length: 1000 }, (_, n) => german_number(n) + n) : ["abcdefghij"];
    const letters = [...SPECIALS, ...[...new Set(texts.join(""))].sort()], ids = (text) => [...text].map((letter) => letters.indexOf(letter));
    const pair = (source, target) => ({ source, target, src: [...ids(source), EOS], tgt: [BOS, ...ids(target), EOS] });
    if (numbers) {
      const large = Array.from({ length: 900 }, (_, i) => 100 + i);
      for (let i = large.length - 1; i > 0; i--) {
        const j = below(i + 1);
        [large[i], large[j]] = [large[j], large[i]];
      }
      const of = (n) => pair(german_number(n), String(n)), known = large.slice(180);
      const small = () => of(below(100)), big = () => of(pick(known));
      return { letters, of: (text) => (/^\d{1,3}$/.test(text) ? of(Number(text)) : null), held_out: large.slice(0, 180).map(of),
        batch: (n) => Array.from({ length: n }, (_, i) => (i < n / 4 ? small() : big())) };
    }
    const of = (text) => pair(text, name === "copy" ? text : [...text].reverse().join(""));
    const draw = () => of(Array.from({ length: 3 + below(6) }, () => letters[SPECIALS.length + below(10)]).join(""));
    const held_out = Array.from({ length: 150 }, draw), held = new Set(held_out.map(({ source }) => source));
    const fresh = () => { let found; do found = draw(); while (held.has(found.source)); return found; };
    return { letters, of: (text) => (/^[a-j]{1,12}$/.test(text) ? of(text) : null), held_out, batch: (n) => Array.from({ length: n }, fresh) };
  }
  return { german_number, make };
};
if (typeof module !== "undefined") module.exports = Tasks;
