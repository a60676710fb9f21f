// The worker of the clinic: the tests that need a fresh model, which it makes for each of them.

import { patient, TESTS } from "./clinic.js";

/** `number` says which patient it is that is measured.
 *  @typedef {{ test: string, slip: string | null, seed: number, number: number | string }} Order */

onmessage = (/** @type {MessageEvent<Order>} */ { data: { test, slip, seed, number } }) =>
  postMessage({ number, test, ...TESTS[test](patient(slip, seed)) });
