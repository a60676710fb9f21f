// What has a document of its own, in a frame: a model that learns before the reader's eyes, and the
// clinic, where a model with a hidden mistake is admitted. Their workers compute.

import clinic from "bundle:./clinic_frame.js";
import trainer from "bundle:./trainer_frame.js";
import { byId } from "../page/dom.js";
import { linesOf, ownDocument } from "../page/frame.js";
import { say } from "../page/language.js";
import { endOf } from "../page/sentence.js";

/** @param {string} heading */
const sectionOf = (heading) => document.getElementById(heading)?.closest("section");

export function startFrames() {
  if (typeof Worker === "undefined") return;
  const task = sectionOf("a-second-task-german-numbers");
  if (task) ownDocument(task, "trainer", say("A model that learns"), trainer, linesOf("learned"));
  const loss = sectionOf("what-the-loss-can-t-see");
  const patients = linesOf("patients");
  if (!loss || !patients.length) return;
  const catalogue = JSON.parse(byId("clinic").textContent);
  ownDocument(endOf(loss), "clinic-frame", say("The clinic"), clinic, patients, catalogue);
}
