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
