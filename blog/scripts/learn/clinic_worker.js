// The worker of the clinic: the tests that need a fresh model, which it makes for each of them.

import { patient, TESTS } from "./clinic.js";

/** @typedef {{ test: string, slip: string | null, seed: number }} Order */

onmessage = (/** @type {MessageEvent<Order>} */ { data: { test, slip, seed } }) =>
  postMessage(TESTS[test](patient(slip, seed)));
