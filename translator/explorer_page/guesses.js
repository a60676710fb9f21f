/** How often a reader has guessed right, over the whole page; kept in the browser. */
const Guesses = (() => {
  let kept = { right: 0, all: 0 };
  try {
    kept = { ...kept, ...JSON.parse(localStorage.guesses ?? "{}") };
  } catch {
    /* nothing was kept, or may be */
  }
  return {
    add(right) {
      kept = { right: kept.right + Boolean(right), all: kept.all + 1 };
      try {
        localStorage.guesses = JSON.stringify(kept);
      } catch {
        /* not kept */
      }
      dispatchEvent(new Event("guessed"));
    },
    text: () => (kept.all ? say("{right} of {all} guesses right", kept) : ""),
  };
})();
