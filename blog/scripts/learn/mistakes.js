// What each mistake of practice/mistakes changes in the small model; what is said of it comes from
// there when the page is made.

/** Where the ways part.
 *  @typedef {object} Ways
 *  @property {number} ahead letters of the target that a query sees beyond its own
 *  @property {number} shift places by which what is predicted is ahead of what is read
 *  @property {boolean} ends the target has its end
 *  @property {"source" | "target"} reads what the encoder reads
 *  @property {number} neighbour how many pairs on the target is that a source gets
 *  @property {(d_k: number) => number} scale what the scores are multiplied by
 *  @property {"keys" | "queries"} softmax_over
 *  @property {"transpose" | "view"} split how the heads are cut
 *  @property {"memory" | "target"} crosses_to what cross-attention reads
 *  @property {string[]} positions the stacks that add them
 *  @property {"features" | "time"} norm_over
 *  @property {number} rate times the learning rate
 *  @property {boolean} clears the gradient of the update before
 *  @property {"BOS" | "EOS"} first what it begins to write with
 *  @property {boolean} moves the position, from letter to letter, while it writes */

/** @type {Ways} */
export const PAPER = {
  ahead: 0,
  shift: 1,
  ends: true,
  reads: "source",
  neighbour: 0,
  scale: (d_k) => 1 / Math.sqrt(d_k),
  softmax_over: "keys",
  split: "transpose",
  crosses_to: "memory",
  positions: ["encoder", "decoder"],
  norm_over: "features",
  rate: 1,
  clears: true,
  first: "BOS",
  moves: true,
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
