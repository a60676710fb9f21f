// What figures and pages share: their words in the page's language, and what is open on paper. A
// page in another language has a dictionary, `WORDS`, before this script.

export const rightToLeft = (/** @type {string | undefined} */ text = "") =>
  /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u.test(text);

/** That of a text's first letter, for what is filled by a script while it isn't shown: Chromium
 * doesn't work out dir="auto" there. @param {string} text */
export const direction = (text) => (rightToLeft(text.match(/\p{L}/u)?.[0]) ? "rtl" : "ltr");

/** A text that keeps its own order, and doesn't change that of what is beside it.
 *  @param {string} text */
export const isolated = (text) => (rightToLeft(text) ? `\u2068${text}\u2069` : text);

/** A text in the page's language; {name} in it is filled in with a value. One that is longer than a
 *  line is written say`…`, so that it takes only one.
 *  @param {string | TemplateStringsArray} text
 *  @param {Record<string, any>} values numbers, texts */
export const say = (text, values = {}) =>
  (globalThis.WORDS?.[`${text}`] ?? `${text}`).replace(/\{(\w+)\}/g, (whole, name) =>
    isolated(values[name] ?? whole),
  );

/** The same in pieces, for values that are elements.
 *  @param {string} text @param {Record<string, Node | string>} values */
export const told = (text, values) =>
  say(text)
    .split(/\{(\w+)\}/)
    .map((piece, i) => (i % 2 ? values[piece] : piece));

/** Paper can't be clicked: what is folded within `root` is open on it, except where `stays` is true
 * of a fold. Afterwards it is folded again.
 *  @param {ParentNode} root @param {(fold: HTMLDetailsElement) => boolean} stays */
export const openOnPaper = (root, stays = () => false) => {
  /** @type {HTMLDetailsElement[]} */
  let folds = [];
  addEventListener("beforeprint", () => {
    /** @type {NodeListOf<HTMLDetailsElement>} */
    const closed = root.querySelectorAll("details:not([open])");
    folds = [...closed].filter((fold) => !stays(fold));
    for (const fold of folds) fold.open = true;
  });
  addEventListener("afterprint", () => {
    for (const fold of folds) fold.open = false;
  });
};
