// A document in a frame: in that of the page, each new letter would have the browser look over tens
// of thousands of elements.

/** Rows of a file that is in the page. */
export const linesOf = (id) =>
  (document.getElementById(id)?.textContent ?? "")
    .split("\n")
    .filter(Boolean)
    .map((row) => JSON.parse(row));

/** A frame behind an element; the text of a script makes its document, out of `GIVEN`. The frame is
 *  as high as that wants. */
export function ownDocument(place, id, title, script, ...given) {
  const style = ["base", "learn"]
    .map((id) => document.getElementById(`style-${id}`).textContent)
    .join("");
  const inScript = (value) => JSON.stringify(value).replace(/</g, "\\u003c"),
    root = document.documentElement,
    theme = () => root.dataset.theme ?? "";
  const frame = Object.assign(document.createElement("iframe"), {
    className: "learn",
    id,
    title,
    sandbox: "allow-scripts",
    loading: "lazy",
  });
  frame.srcdoc = `<!DOCTYPE html><html lang="${root.lang}" data-theme="${theme()}"><title>${title}</title><style>${style}</style><body>
    <script>globalThis.WORDS = ${inScript(globalThis.WORDS ?? {})}; globalThis.GIVEN = ${inScript(given)}; ${script}<\/script></body></html>`;
  place.after(frame);
  addEventListener("message", ({ source, data }) => {
    if (source !== frame.contentWindow) return;
    if (data?.height > 0) frame.style.height = `${data.height + 2}px`;
    if (typeof data?.section === "string") location.hash = data.section;
    if (data?.search) document.getElementById("search").click();
  });
  const tell = () => frame.contentWindow?.postMessage({ theme: theme() }, "*");
  frame.addEventListener("load", tell); // for a switch that came too early
  new MutationObserver(tell).observe(root, { attributeFilter: ["data-theme"] });
}
