// What every document in a frame does: its height goes to the page, the theme comes from there.

let width = 0;
let tallest = 0;
export const shrink = () => {
  tallest = 0;
};
new ResizeObserver(() => {
  // at one width the frame only grows, so that the page, which is long, is seldom laid out anew
  const { offsetWidth, offsetHeight } = document.body;
  if (offsetWidth !== width) tallest = 0;
  width = offsetWidth;
  if (offsetHeight <= tallest) return;
  tallest = offsetHeight;
  parent.postMessage({ height: tallest }, "*");
}).observe(document.body);

addEventListener("message", ({ source, data }) => {
  if (source === parent && typeof data?.theme === "string")
    document.documentElement.dataset.theme = data.theme;
});
