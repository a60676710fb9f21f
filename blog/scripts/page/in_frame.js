// What every document in a frame does: its height goes to the page, the theme comes from there, and
// the key of the search goes to the page.

let width = 0,
  tallest = 0;
export const shrink = () => {
  tallest = 0;
};
new ResizeObserver(() => {
  // at one width the frame only grows, so that the page, which is long, is seldom laid out anew
  const box = document.body;
  if (box.offsetWidth !== width) [width, tallest] = [box.offsetWidth, 0];
  if (box.offsetHeight > tallest) parent.postMessage({ height: (tallest = box.offsetHeight) }, "*");
}).observe(document.body);
addEventListener("message", ({ source, data }) => {
  if (source === parent && typeof data?.theme === "string")
    document.documentElement.dataset.theme = data.theme;
});
addEventListener("keydown", (event) => {
  // the page doesn't hear keys that are pressed here
  if (
    event.key !== "/" ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    event.target.matches("input:not([type=checkbox])")
  )
    return;
  event.preventDefault();
  parent.postMessage({ search: true }, "*");
});
