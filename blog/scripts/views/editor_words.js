// What is said of the reader's function.

import { say } from "../page/language.js";

/** @param {Answer} answer @param {string} sentence that it was tried with
 *  @param {string} code the reader's */
export function verdictOf(answer, sentence, code) {
  const right = Boolean(answer.result?.right);
  const praise = say("Right, for “{sentence}” and for the awkward cases.", { sentence });
  return { right, words: right ? praise : complaint(answer, code) };
}

/** @param {Answer} answer @param {string} code */
function complaint({ result, error, line, late, stopped }, code) {
  if (stopped) return say("Stopped.");
  if (late) return say("It didn't end within {seconds} seconds.", { seconds: late });
  if (error) return ofError(error, Number(line), code);
  if (result.mistake) return ofMistake(result.mistake);
  if (result.count && !result.asked) return say("{count} of {all} numbers aren't finite.", result);
  if (result.shape?.right === "") return say("One number is wanted, and not a list.");
  if (result.shape)
    return say("The result has the shape ({mine}), and should have ({right}).", result.shape);
  return ofNumbers(result);
}

/** @param {string} error @param {number} line of the code, NaN if none is to blame
 *  @param {string} code */
function ofError(error, line, code) {
  const [, refusal, detail] = error.match(/told: (\w+) ?(.*)$/) ?? [];
  if (refusal) return REFUSALS[refusal](detail);
  const place = line ? say("Line {line}: {error}", { line, error }) : error;
  const faulty = `${error}\n${code.split("\n")[line - 1] ?? ""}`;
  const hint = HINTS.find(([pattern]) => pattern.test(faulty))?.[1];
  return hint ? `${place}. ${hint}` : place;
}

/** @param {string} name of the mistake */
function ofMistake(name) {
  const { line, effect } = WRITTEN.mistakes[name];
  return `${say("This gives the same numbers: {code}.", { code: line })} ${effect}`;
}

function ofNumbers(/** @type {import("../python/judge.js").Judgement} */ result) {
  const [mine, right, largest] = [result.mine, result.expected, result.largest].map((value) =>
    String(Number(value.toPrecision(5))),
  );
  const values = { ...result, mine, right, largest };
  if (result.asked)
    return say(
      "For the arguments {asked} it gives {mine} instead of {right}. No mistake that I know gives this.",
      values,
    );
  const where = say(
    "Row {row}, column {column} is {mine} instead of {right}; the largest error is {largest}. No mistake that I know gives this.",
    values,
  );
  if (!result.masked) return where;
  return `${say("Without a mask it's right, with one it isn't.")} ${where}`;
}

/** What isn't a matter of numbers, by the name of the refusal (python/interpreter.js).
 *  @type {Record<string, (detail: string) => string>} */
const REFUSALS = {
  missing: (name) => say("There's no function `{name}` in this field.", { name }),
  nothing: () => say("The function gives nothing: a `return` is missing, or not reached."),
  things: () => say("What the function gives isn't made of lists and numbers."),
  changed: () => say("The function changes what it is given, which others still need."),
  none: () =>
    say`scores was asked about no ids at all. The decoder begins with bos: that is what it reads before it has written anything.`,
  odd: (id) =>
    say(
      "scores was asked about {id}, which isn't the id of a token. An id is the place of a score, not the score.",
      { id },
    ),
  eos_ignored: () =>
    `${say("scores was asked what comes after eos.")} ${WRITTEN.mistakes.eos_ignored.effect}`,
};

const JUDGE = { judge: "`python the_annotated_transformer.py judge mine.py`" };
// What is added to an error that plain lists or MicroPython may be the cause of: a pattern of the
// error and, below it, the reader's line; and the sentence. The first that fits is taken.
/** @type {[RegExp, string][]} */
const HINTS = [
  [
    /no module named/,
    say(
      "The page has no packages, and only a few of Python’s own modules. Write it in plain lists, or take mine.py along: {judge} takes any module.",
      JUDGE,
    ),
  ],
  [
    /^SyntaxError.*\n.*[{,]\s*\*\*/,
    say("MicroPython doesn’t read {**a, …}: write dict(a), and add the rest."),
  ],
  [
    /^SyntaxError(?:: \*x|.*\n.*(?:\breturn|\byield|\bin|=)\s*(?:(?:[^()[\]{}=]|\([^()]*\)|\[[^[\]]*\])*,\s*)?\*[\w[({])/,
    say("MicroPython doesn’t read this star: write (*a, b) with brackets, or list(a) + [b]."),
  ],
  [
    /^SyntaxError.*\n\s*(?:match|case)\b.*:/,
    say("MicroPython has no match: write if, elif and else."),
  ],
  [
    /^NotImplementedError.*\n.*\[[^\]]*:[^\]]*:/,
    say`MicroPython takes a slice with a step from lists only, and can’t delete it: write list(a)[::2], or make a new list.`,
  ],
  [/__getitem__/, say("MicroPython can’t pass on this method: write lambda i: a[i].")],
  [
    /^RuntimeError: maximum recursion/,
    say("Here a function can call itself only some 200 times: write a loop."),
  ],
  [
    /'type' object isn't subscriptable/,
    say("MicroPython doesn’t read list[float] here: write list alone."),
  ],
  [
    /'list' object has no attribute '(?:shape|T|size|dot|sum|mean|max|min|argmax|exp|transpose|view|reshape|tolist)'|types? for __(?:matmul|mul|sub|truediv|pow|neg)__: (?:'\w+', )?'list'|__: 'list', '(?:int|float)'|convert list to float|can't convert 'tuple' object to int|indices must be integers, not tuple/,
    say("These are lists, not arrays: loops or comprehensions go over their rows and numbers."),
  ],
  [
    /math domain error/,
    say("exp takes at most 709, sqrt nothing below 0, log only what is above 0."),
  ],
  [
    /^(?:SyntaxError|ImportError|NotImplementedError)|^AttributeError: (?:module|'(?:str|bytes|list|tuple|dict|set|int|float|bool|range|function|generator)' object)|keyword argument|can't create '\w+' instances|^NameError: name '(?:ascii|breakpoint|vars|[A-Z]\w+Error)'/,
    say(
      "If this line is right in Python, MicroPython lacks it: write it in another way, or take mine.py along, for {judge}.",
      JUDGE,
    ),
  ],
];
