// What each mistake of practice/mistakes changes in the small model; what is said of it comes from
// there when the page is made.

/** The paper's ways, where the mistakes' part from them. */
export const PAPER = {
  ahead: 0, // letters of the target that a query sees beyond its own
  shift: 1, // places by which what is predicted is ahead of what is read
  ends: true, // whether the target has its end
  reads: /** @type {"source" | "target"} */ ("source"), // the encoder
  neighbour: 0, // how many pairs on the target is that a source gets
  scale: (/** @type {number} */ d_k) => 1 / Math.sqrt(d_k), // times the scores
  softmax_over: /** @type {"keys" | "queries"} */ ("keys"),
  split: /** @type {"transpose" | "view"} */ ("transpose"), // of the heads
  crosses_to: /** @type {"memory" | "target"} */ ("memory"),
  positions: ["encoder", "decoder"], // the stacks that add them
  norm_over: /** @type {"features" | "time"} */ ("features"),
  rate: 1, // times the learning rate
  clears: true, // the gradient of the update before
  first: /** @type {"BOS" | "EOS"} */ ("BOS"), // what it begins to write with
  moves: true, // the position, from letter to letter, while it writes
};

/** @type {Record<string, Partial<Ways>>} */
export const CHANGES = {
  no_causal_mask: { ahead: Infinity },
  causal_mask_one_too_far: { ahead: 1 },
  no_shift: { shift: 0 },
  shift_by_two: { shift: 2 },
  eos_cut_off: { ends: false },
  target_fed_as_source: { reads: "target" },
  pairs_misaligned: { neighbour: 1 },
  multiplied_by_root: { scale: Math.sqrt },
  softmax_over_queries: { softmax_over: "queries" },
  heads_split_by_view: { split: "view" },
  cross_attends_to_itself: { crosses_to: "target" },
  no_positions: { positions: [] },
  no_positions_in_decoder: { positions: ["encoder"] },
  no_positions_in_encoder: { positions: ["decoder"] },
  norm_over_time: { norm_over: "time" },
  rate_too_high: { rate: 30 },
  gradients_never_cleared: { clears: false },
  decoding_begins_with_eos: { first: "EOS" },
  every_step_at_position_zero: { moves: false },
};

/** @param {string | null} slip a mistake's name; null for none */
export const ways_with = (slip) => (slip === null ? PAPER : { ...PAPER, ...CHANGES[slip] });
