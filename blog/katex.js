// Formulas to HTML. Standard input: a JSON list of {tex, display}; standard output: a JSON list of HTML texts.
const katex = require("katex");

const formulas = JSON.parse(require("fs").readFileSync(0, "utf8"));
const rendered = formulas.map(({ tex, display }) => {
  try {
    return katex.renderToString(tex, { displayMode: display, output: "htmlAndMathml", throwOnError: true });
  } catch (error) {
    console.error(`${error.message}\nin the formula: ${tex}`);
    process.exit(1);
  }
});
process.stdout.write(JSON.stringify(rendered));
