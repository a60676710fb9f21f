// What runs on every page of the document: each view looks for its place, and does nothing where
// there is none. What it exports is there for blog/pdf.py and the tests, as `Page`.

import { liveContent } from "./page/engine.js";
import { startFar } from "./page/far.js";
import { fitFormulas } from "./page/formulas.js";
import { startSentence } from "./page/sentence.js";
import { startFirstFigure, startText } from "./page/text.js";
import { startCards } from "./views/cards.js";
import { startEditors } from "./views/editor.js";
import { startFrames } from "./views/frames.js";
import { startOneScreen } from "./views/one_screen.js";
import { startPlace } from "./views/place.js";
import { startRoad } from "./views/road.js";
import { startSearch } from "./views/search.js";
import { startToys } from "./views/toys.js";
import { startWalk } from "./views/walk.js";

export { liveContent };
export { largest } from "./model/tensors.js";
export { yourSentence } from "./page/sentence.js";
export * as Panels from "./views/panels.js";

startFirstFigure(); // which translates while the text below it is read
addEventListener("DOMContentLoaded", () => {
  startFar(); // before what measures anew when the window has another width
  startSentence();
  startText();
  startPlace();
  startSearch();
  startCards();
  startWalk();
  startFrames();
  startToys();
  startEditors();
  startRoad();
  startOneScreen();
  fitFormulas();
});
