// The clinic: a model with a hidden mistake is admitted, tests are ordered, each of which costs a
// point, and the mistake is named.

import { linesOf, ownDocument } from "../page/frame.js";
import { byId } from "../page/dom.js";
import { say } from "../page/language.js";
import { endOf } from "../page/sentence.js";
import script from "bundle:./clinic_frame.js";

export function startClinic() {
  const begins = document.getElementById("what-the-loss-can-t-see")?.closest("section"),
    patients = linesOf("patients");
  if (!begins || !patients.length || typeof Worker === "undefined") return;
  ownDocument(
    endOf(begins),
    "clinic-frame",
    say("The clinic"),
    script,
    patients,
    JSON.parse(byId("clinic").textContent),
  );
}
