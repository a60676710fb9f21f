// A script of a page with all that it imports, as one text.
//
//     node blog/bundle.js document          to standard output
//     node blog/bundle.js explain OUT.js    into a file
//
// `import text from "bundle:PATH"` gives such a text of another script, for a worker or a frame.
import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { build } from "esbuild";

const SCRIPTS = join(import.meta.dirname, "scripts");

/** Texts of scripts that other scripts import. */
const asText = {
  name: "bundle",
  setup({ onLoad, onResolve }) {
    onResolve({ filter: /^bundle:/ }, ({ path, resolveDir }) => ({
      path: join(resolveDir, path.slice("bundle:".length)),
      namespace: "bundle",
    }));
    onLoad({ filter: /.*/, namespace: "bundle" }, async ({ path }) => ({
      contents: await bundle(path),
      loader: "text",
    }));
  },
};

/** The text of the script in a file. */
async function bundle(path) {
  const { outputFiles } = await build({
    absWorkingDir: SCRIPTS,
    entryPoints: [path],
    bundle: true,
    write: false,
    format: "iife",
    globalName: dirname(path) === SCRIPTS ? "Page" : undefined,
    target: "es2022",
    charset: "utf8",
    minifyWhitespace: true,
    legalComments: "none",
    plugins: [asText],
  });
  return outputFiles[0].text;
}

const [name, out] = process.argv.slice(2);
const text = await bundle(join(SCRIPTS, `${name}.js`));
if (out) writeFileSync(out, text);
else process.stdout.write(text);
