// The words of figures and pages in the page's language: a page in another one has a dictionary,
// `WORDS`, before this script.

/** A text in the page's language; {name} in it is filled in with a value. */
globalThis.say = (text, values = {}) =>
  (globalThis.WORDS?.[text] ?? text).replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

/** The same in pieces, for values that are elements. */
globalThis.told = (text, values) =>
  say(text)
    .split(/\{(\w+)\}/)
    .map((piece, i) => (i % 2 ? values[piece] : piece));
