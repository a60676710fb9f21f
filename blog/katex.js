// Formulas to HTML. Standard input: a JSON list of {tex, display}; standard output: a JSON list of
// HTML texts.
import { readFileSync } from "node:fs";
import katex from "katex";

const formulas = JSON.parse(readFileSync(0, "utf8"));
// links lead to places in the page, never out of it
const trust = ({ command, url }) => command === "\\href" && url.startsWith("#");
const rendered = formulas.map(({ tex, display }) => {
  try {
    return katex.renderToString(tex, {
      displayMode: display,
      output: "htmlAndMathml",
      throwOnError: true,
      trust,
    });
  } catch (error) {
    console.error(`${error.message}\nin the formula: ${tex}`);
    process.exit(1);
  }
});
process.stdout.write(JSON.stringify(rendered));
