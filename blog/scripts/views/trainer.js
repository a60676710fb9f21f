// The panel in which a model learns before the reader's eyes: a worker trains, and a document in a
// frame draws what it reports.

import { PEAK, WHOLE } from "../learn/tasks.js";
import { linesOf, ownDocument } from "../page/frame.js";
import { say } from "../page/language.js";
import script from "bundle:./trainer_frame.js";

export function startTrainer() {
  const section = document.getElementById("a-second-task-german-numbers")?.closest("section");
  if (!section || typeof Worker === "undefined") return;
  ownDocument(section, "trainer", say("A model that learns"), script, linesOf("learned"), {
    WHOLE,
    PEAK,
  });
}
