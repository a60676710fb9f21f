// MicroPython, as the editors use it: texts become modules, and their functions are called.

import { LIBRARY } from "./library.js";
import { spelled } from "./spelling.js";

const HEAP_BYTES = 4 * 2 ** 20; // at first; it grows
// the heap is swept after calls that made so much: by itself it is after nearly every one
const SWEPT_BYTES = 16 * 2 ** 20;
const START = `
import gc, json, set_up
gc.threshold(${SWEPT_BYTES})
_kept = {}
_result = None

def kept(name, rows):
    _kept.setdefault(name, []).extend(rows)
    return [row[:] for row in _kept[name]]

def arguments(text):
    return [kept(**given) if isinstance(given, dict) else given for given in json.loads(text)]
`;

/** What the page has a sentence for (views/editor_words.js).
 *  @param {string} name @param {string | number} detail */
export const refusal = (name, detail = "") => new Error(`told: ${name} ${detail}`);

/** An argument of `call`: the rows that Python has under this name, and these behind them.
 *  @typedef {{ name: string, rows: number[][] }} Kept */

export class Interpreter {
  /** @param {any} machine MicroPython has no types */
  constructor(machine) {
    this.machine = machine;
  }

  /** @param {(options: object) => Promise<any>} loadMicroPython @param {Uint8Array} wasmBinary
   *  @param {(line: string) => void} stdout is told what is printed */
  static async load(loadMicroPython, wasmBinary, stdout) {
    const machine = await loadMicroPython({ wasmBinary, heapsize: HEAP_BYTES, stdout });
    machine.FS.mkdirTree("/lib");
    for (const [file, text] of Object.entries(LIBRARY))
      machine.FS.writeFile(`/lib/${file}.py`, text);
    machine.runPython(START);
    return new Interpreter(machine);
  }

  /** Runs Python with these globals; gives what it calls `_result`. */
  run(/** @type {string} */ code, /** @type {Record<string, unknown>} */ globals = {}) {
    for (const [name, value] of Object.entries(globals)) this.machine.globals.set(name, value);
    this.machine.runPython(code);
    return this.machine.globals.get("_result");
  }

  /** Makes a module of a text; nothing of an earlier one is left. */
  load(/** @type {string} */ module, /** @type {string} */ text) {
    /** @param {string} _code */
    const compile = (_code) => this.run("_program = compile(_code, 'mine.py', 'exec')", { _code });
    try {
      compile(spelled(text, false));
    } catch {
      compile(spelled(text, true));
    }
    this.run(`${module} = {"__name__": "mine"}\nexec(_program, ${module})`);
  }

  /** What a function of a module gives; numbers that aren't finite become NaN.
   *  @param {string} module @param {string} name @param {any[]} given
   *  @param {Scores} [scores] what it may ask, its first argument @returns {Value} */
  call(module, name, given, scores) {
    const asking = scores ? "lambda ids: json.loads(_scores(json.dumps(ids))), " : "";
    const text = this.run(
      `_given = arguments(_json)\n_result = json.dumps(${module}["${name}"](${asking}*_given))`,
      {
        _json: JSON.stringify(given),
        _scores: (/** @type {string} */ ids) => JSON.stringify(scores?.(JSON.parse(ids))),
      },
    );
    if (text === "null") throw refusal("nothing");
    try {
      return JSON.parse(text.replace(/-?\binf\b|\bnan\b/g, "null"), asNumber);
    } catch {
      throw refusal("things");
    }
  }
}

function asNumber(/** @type {string} */ _key, /** @type {unknown} */ value) {
  if (value === null) return NaN;
  if (typeof value === "number" || typeof value === "boolean" || Array.isArray(value)) return value;
  throw new TypeError("neither a list nor a number");
}
