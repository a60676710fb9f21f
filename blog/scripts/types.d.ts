// What the model computes and what is drawn of it, by the names that all scripts have for it.

/** A vector, as all scripts may take it. */
type Numbers = Float32Array | Float64Array | number[];
type Vector = Float32Array;
/** One of every position. */
type Vectors = Vector[];
type Tensor = { shape: number[]; data: Float32Array };
type Linear = { weight: Tensor; bias?: Tensor };
/** Which attention. */
type Kind = "encoder" | "decoder" | "cross";
type Config = {
  N: number;
  h: number;
  d_model: number;
  norm: "pre" | "post";
  positions: string;
  rotary?: boolean;
};
/** Keys and values that a query sees, but for those at the places `hidden`. */
type Visible = { keys: Vectors; values: Vectors; hidden?: Set<number> | null };
/** Where a head's part of keys and of values begins, and how wide it is. */
type Part = [keyStart: number, keyWidth: number, valueStart: number, valueWidth: number];
type HeadOutput = { output: Float32Array; weights: Float64Array; scores: Float64Array };
/** A function in place of Equation (1). */
type OwnAttention = (queries: Vectors, visible: Visible, part: Part) => HeadOutput[];
/** (positions, heads, keys) */
type LayerWeights = Float64Array[][];
/** What takes the place of an attention's output. */
type Change = (kind: Kind, layer: number, output: Vectors) => Vectors;
/** `forced`: the tokens that a translation begins with; `hidden`: those of the source that nobody
 *  looks at. */
type SearchOptions = { forced?: number[]; hidden?: Set<number> | null };
/** A token in a beam. p: its log-probability; logP: that of all up to it; score: of an ended one */
type BeamNode = {
  id: number;
  parent: number | null;
  step: number;
  p: number;
  logP: number;
  score?: number;
  token?: string;
};
/** `nodes` and `best`, a place in them, are those of a beam. */
type Found = { ids: number[]; nodes?: BeamNode[] | null; best?: number | null };
/** Heads that are set to zero, as "layer head" from 1. */
type Off = Record<Kind, string[]>;
type Switches = { positions: boolean; scaling: boolean; mask: boolean; off: Off };
/** What explorer.py writes of a model. */
type ModelContent = {
  name: string;
  note: string;
  config: Config;
  vocab: string[];
  merges: string[];
  shapes: Record<string, number[]>;
  rows?: Record<string, number[]>;
  weights: string;
};
/** What the decoder computes at one step: logits and vectors of each row, and weights by layer,
 *  row, head and key. `whole`: without a mask, those of all positions. */
type DecoderStep = {
  logits: Vectors;
  states: Vectors[];
  decoder: LayerWeights[];
  cross: LayerWeights[];
  whole?: LayerWeights[];
};
/** It yields the number of the step, so that whoever runs it can pause or stop between two. */
type Search<Outcome> = Generator<number, Outcome, void>;
type SearchName = "beam" | "greedy";
/** What the model computed for a figure, and for the panels. */
type Result = import("./model/jobs.js").Result;
type Figure = import("./views/figure.js").Figure;
type Engine = ReturnType<typeof import("./page/engine.js").engine>;
type Model = import("./model/layers.js").Model;
type Attention = import("./model/attention.js").MultiHeadedAttention;
type Translator = import("./model/translator.js").Translator;
type Tokenizer = import("./model/tokeniser.js").Tokenizer;
type Head = import("./views/figure/maps.js").Head;
/** An element of a figure's template: what it is, its id says. */
type Control = HTMLInputElement & HTMLDetailsElement & HTMLTableElement;

// What learns (learn/), and what the clinic has.

type Reals = Float32Array | Float64Array;
type Precision = new (length: number) => Reals;
/** Its numbers stand row by row, each with its gradient. */
type Matrix = { rows: number; cols: number; data: Reals; grad: Reals };
/** A row or a column of a matrix: its first entry, how many it has, and how far apart they are. */
type Line = { start: number; count: number; step: number };
/** What a computation has done so far. */
type Tape = { Real: Precision; steps: (() => void)[] };
type Ways = typeof import("./learn/mistakes.js").PAPER;
type SmallModel = ReturnType<typeof import("./learn/small_model.js").make_model>;
/** Ids of a source, with EOS, and of a target, with BOS and EOS. */
type Pair = { src: number[]; tgt: number[] };
/** What is read of a pair, and what is predicted at each place of `read`. */
type Row = { src: number[]; read: number[]; predict: number[] };
/** What a test of the clinic gives: its measurements, and what is drawn of them. */
type Examination = {
  measured: Record<string, number>;
  grid?: number[][];
  bars?: Record<string, number>;
  ones?: Record<string, [number, number]>;
  examples?: string[][];
};
/** A trained model: a row of patients.jsonl. */
type Patient = {
  slip: string | null;
  seed: number;
  losses: number[];
  forced: number;
  exact: number;
  swap: number;
  "fed back": number;
  sources: number[];
  examples: string[][];
};
/** A test of practice/examine.py, and what a value between `low` and `high` means not to be. */
type Test = { measured: string; means: string; low: number; high: number };
/** A mistake of practice/mistakes, by its fields there. */
type Mistake = Record<
  "label" | "group" | "line" | "belief" | "effect" | "section" | "seen_by",
  string
>;
/** What comes from Python when the page is made. */
type Catalogue = {
  tests: Record<string, Test>;
  mistakes: Record<string, Mistake>;
  /** what its end says of the next rung */
  next: string;
};

// What a reader writes (python/), and what he searches for.

/** Numbers, and rows of them. */
type Value = number | boolean | Value[];
/** Scores of all tokens after some ids. */
type Scores = (ids: number[]) => number[];
type Interpreter = import("./python/interpreter.js").Interpreter;
/** The reader's module is `_mine`; `forms` are WRITTEN's. */
type World = {
  interpreter: Interpreter;
  translator: Translator;
  forms: Record<string, [string, string][]>;
  progress: () => void;
};
/** Cases are lists of arguments; `src` has the ids of the sentence. `few` are other cases, and
 *  `fewScores` other scores, with which a mistake is soon told. */
type Gate = {
  cases: (translator: Translator, src: number[]) => any[][];
  right: (given: any[], translator: Translator, src: number[]) => Value;
  scores?: (translator: Translator, src: number[], progress: () => void) => Scores;
  few?: any[][];
  fewScores?: Scores;
};
/** What the page asks of a function. */
type Asked = { code: string; name: string; plugged: boolean; sentence: string };
/** What came of it: a result (python/judge.js, python/plug.js), or an error, or it was `stopped` by
 *  the reader or too `late`, after so many seconds. */
type Answer = {
  result?: any;
  error?: string;
  line?: string;
  late?: number;
  stopped?: boolean;
  printed: string;
};
/** Of a section; code is folded. */
type Texts = { title: string; text: string; code: string };
/** A section of the page, and its texts plainly. */
type Section = Texts & { id: string; plain: Texts };
type Query = ReturnType<typeof import("./page/search_index.js").queryOf>;
