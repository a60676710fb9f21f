// What a reader's clicks, keys and words do in a figure.

import { direction } from "../../page/language.js";
import { rove } from "../dom.js";
import { withHead } from "../switches.js";
import { readCell } from "./heat.js";
import { pin, showQuery } from "./lines.js";
import { drawMaps, headChoices } from "./maps.js";
import { answer, drawStep, go, idsOf, play, stop, take, unseen } from "./steps.js";
import { lightUp } from "./strips.js";
import { drawTree } from "./tree.js";

const TYPING_MS = 600; // of silence, after which what was typed is translated

/** @param {import("../figure.js").Figure} figure */
export function listen(figure) {
  listenToSentence(figure);
  listenToSearch(figure);
  listenToSteps(figure);
  listenToWords(figure);
  for (const side of ["source", "target"]) listenToStrip(figure, side);
  listenToMaps(figure);
  listenToHeads(figure);
  listenToHeat(figure);
  listenToLines(figure);
}

function listenToSentence(figure) {
  const { $ } = figure;
  $("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    figure.ask($("text").value);
  });
  $("text").addEventListener("input", () => {
    $("samples").value = "";
    $("text").dir = direction($("text").value);
    clearTimeout(figure.typing);
    figure.typing = setTimeout(() => figure.askIfOther($("text").value), TYPING_MS);
  });
  $("samples").addEventListener("change", () => {
    const sentence = $("samples").value;
    $("samples").value = ""; // so that it can be picked again
    if (sentence) figure.ask(sentence);
  });
}

function listenToSearch(figure) {
  const { $, root, state } = figure;
  for (const radio of root.querySelectorAll("input[name=search]"))
    radio.addEventListener("change", () => {
      state.search = radio.value;
      figure.compute();
    });
  for (const [id, name] of [
    ["temperature", "temperature"],
    ["top-p", "topP"],
  ]) {
    $(id).addEventListener("input", () => {
      state[name] = Number($(id).value);
      $(id + "-value").textContent = state[name];
    });
    $(id).addEventListener("change", () => figure.compute());
  }
  $("again").addEventListener("click", () => figure.compute());
  $("halt").addEventListener("click", () => figure.halt());
  $("tree-box").addEventListener("toggle", () => {
    if (!figure.result) return;
    drawTree(figure);
    drawStep(figure);
  });
}

function listenToSteps(figure) {
  const { $, state } = figure;
  const steps = { back: () => state.step - 1, forward: () => state.step + 1 };
  for (const [id, next] of Object.entries(steps))
    $(id).addEventListener("click", () => {
      stop(figure);
      go(figure, next());
    });
  $("step").addEventListener("input", () => {
    stop(figure);
    go(figure, Number($("step").value));
  });
  $("play").addEventListener("click", () => play(figure));
  $("guess").addEventListener("change", () => {
    state.guess = $("guess").checked;
    figure.guessed = 0;
    stop(figure);
    if (!figure.result) return;
    figure.draw(); // without what would tell the translation
    go(figure, 1);
  });
}

function listenToWords(figure) {
  const { $, engine } = figure;
  $("likeliest").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const id = Number(button.dataset.id);
    if (unseen(figure)) answer(figure, id);
    else take(figure, [id]);
  });
  $("own").addEventListener("submit", (event) => {
    event.preventDefault();
    const ids = idsOf(engine, $("own-word").value.trim());
    if (ids.length) take(figure, ids);
    $("own-word").value = "";
  });
  $("untake").addEventListener("click", () => {
    figure.changes.taken = null;
    figure.compute();
  });
}

function listenToStrip(figure, side) {
  const box = figure.$(side);
  const place = (event) => event.target.closest("button")?.dataset.i;
  for (const name of ["pointerover", "focusin"])
    box.addEventListener(name, (event) => {
      if (place(event)) lightUp(figure, side, Number(place(event)));
    });
  for (const name of ["pointerleave", "focusout"])
    box.addEventListener(name, () => lightUp(figure));
  box.addEventListener("click", (event) => {
    if (!place(event)) return;
    const i = Number(place(event));
    if (side === "source") figure.touch(i);
    else {
      stop(figure);
      go(figure, i + 1, figure.state.whole);
    }
  });
  rove(box, "button", () => 1);
}

function listenToMaps(figure) {
  const { $, root } = figure;
  for (const radio of root.querySelectorAll("input[name=kind]"))
    radio.addEventListener("change", () => figure.choose({ kind: radio.value }));
  for (const id of ["layer", "head"])
    $(id).addEventListener("change", () => figure.choose({ [id]: $(id).value }));
  $("words").addEventListener("change", () => figure.choose({ words: $("words").checked }));
  $("maps").addEventListener("toggle", () => {
    if (!figure.result || !$("maps").open) return;
    drawMaps(figure);
    drawStep(figure); // lines need sizes
  });
}

function listenToHeads(figure) {
  const { $, state } = figure;
  const flip = () =>
    figure.switch(withHead(state.switches, state.kind, `${state.layer} ${state.head}`));
  $("zero").addEventListener("change", flip);
  $("restore").addEventListener("click", () => figure.restore());
  $("overview").addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { layer, head } = button.dataset;
    figure.choose({ layer, head });
    if ($("switch").checked && head !== "mean") flip();
  });
  rove($("overview"), "button", () => headChoices(figure).length);
}

function listenToHeat(figure) {
  const heat = figure.$("heat");
  const cellOf = (event) => event.target.closest("tbody td");
  const keep = (event) => {
    if (cellOf(event)) pin(figure, Number(cellOf(event).dataset.q));
  };
  for (const name of ["pointerover", "focusin"])
    heat.addEventListener(name, (event) => readCell(figure, cellOf(event)));
  heat.addEventListener("focusin", () => {
    // or the arrow keys could move to a cell under the sticky labels
    const { offsetWidth } = heat.tBodies[0].rows[0].cells[0];
    figure.$("heat-box").style.scrollPadding = `${heat.tHead.offsetHeight}px 0 0 ${offsetWidth}px`;
  });
  heat.addEventListener("click", keep);
  heat.addEventListener("keydown", (event) => {
    if (event.key === "Enter") keep(event);
  });
  rove(heat, "tbody td", () => figure.view.keys.length);
}

function listenToLines(figure) {
  const queries = figure.$("queries");
  const query = (event) => Number(event.target.closest("li").dataset.q);
  queries.addEventListener("pointerover", (event) => {
    if (event.target.closest("li")) showQuery(figure, query(event));
  });
  queries.addEventListener("pointerleave", () => showQuery(figure, figure.pinned));
  queries.addEventListener("focusin", (event) => pin(figure, query(event)));
  queries.addEventListener("keydown", (event) => {
    if (event.key === "Escape") pin(figure, null);
  });
  figure.$("all").addEventListener("click", () => pin(figure, null));
  rove(queries, "li", () => 1);
}
