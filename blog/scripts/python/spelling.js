// Python that MicroPython doesn't read, spelled as it does, on the same lines.

const LITERAL = /#.*|("""|''')[^]*?\1|(["'])(?:\\[^]|(?!\2)[^\\\n])*\2/g;
const HIDDEN = "\u0001"; // stands for a text or a comment
const AFTER_A_WORD = /\b(?:return|yield|in|and|or|not|if|elif|else|is|assert|while|from)\s*$/;
const SLICED_TARGET =
  /(^\s*|[;:,=]\s*)([A-Za-z_][\w.]*(?:\[[^[\]:\n]*\])*)(?=\[[^[\]\n]*:[^[\]\n]*:[^[\]\n]*\](?:\s*,[^=\n]*)?\s*=(?!=))/gm;
/** @type {Record<string, string>} */
const CALL_FOR = { "[": "_list(", "(": "_tuple(", "{": "_set(" };

/** The reader's code: row[::2] = x as _strided(row)[::2] = x, z.__getitem__ as a lambda, no / among
 *  parameters. If it still can't be compiled, [*ids, best] may be why: with `displays` it becomes
 *  _list(*ids, best). */
export function spelled(/** @type {string} */ code, /** @type {boolean} */ displays) {
  /** @type {string[]} */
  const literals = [];
  const bare = code.replace(LITERAL, (literal) => {
    literals.push(literal);
    return HIDDEN;
  });
  const text = bare
    .replace(/,\s*\/(?=\s*[,)])/g, "")
    .replace(/([A-Za-z_][\w.]*)\.__getitem__\b/g, "(lambda _key: $1[_key])")
    .replace(SLICED_TARGET, "$1_strided($2)");
  return (displays ? withCalls(text) : text).replaceAll(HIDDEN, () => literals.shift() ?? "");
}

/** Displays with a star in them as calls. @param {string} text */
function withCalls(text) {
  const marks = text.split("");
  /** @type {{ start: number, call: boolean, starred: boolean }[]} */
  const open = [];
  for (const [at, mark] of text.split("").entries()) {
    const before = text.slice(0, at);
    const innermost = open.at(-1);
    if ("([{".includes(mark)) {
      const call = /[\w)\]\u0001]\s*$/.test(before) && !AFTER_A_WORD.test(before);
      open.push({ start: at, call: call && mark !== "{", starred: false });
    } else if (mark === "*" && innermost && /[([{,]\s*$/.test(before)) {
      innermost.starred ||= text[at + 1] !== "*" && !isParameter(text.slice(innermost.start, at));
    } else if (")]}".includes(mark) && innermost) {
      open.pop();
      const { start, call, starred } = innermost;
      if (!starred || call || isTarget(text.slice(0, start), text.slice(at + 1))) continue;
      marks[start] = CALL_FOR[text[start]];
      marks[at] = ")";
    }
  }
  return marks.join("");
}

/** Whether a star after this is that of a parameter, or of the target of a loop.
 *  @param {string} before */
const isParameter = (before) => /\b(?:lambda|for)\b(?:(?!:|\bin\b)[^])*$/.test(before);

/** Whether what stands between these is assigned to. */
const isTarget = (/** @type {string} */ before, /** @type {string} */ after) =>
  /^[\s\])]*=(?!=)/.test(after) ||
  (/^[\s\])]*in\b/.test(after) && /\bfor\s(?:(?!\bin\b)[^:])*$/.test(before));
