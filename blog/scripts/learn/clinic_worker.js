// The worker of the clinic: the tests that need a fresh model, which it makes for each of them.

import { Clinic } from "./clinic.js";
import { Learn } from "./small_model.js";
import { Tasks } from "./tasks.js";

const learn = Learn(),
  clinic = Clinic(learn, Tasks(learn));
onmessage = ({ data: { test, slip, seed, number } }) =>
  postMessage({ number, test, ...clinic.TESTS[test](clinic.patient(slip, seed)) });
