// Rules for the scripts; Prettier lays them out, and types.js has their types checked.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import globals from "globals";

const declarations = readFileSync(join(import.meta.dirname, "scripts/globals.d.ts"), "utf8");
const declared = Object.fromEntries(
  [...declarations.matchAll(/^declare (?:var|function) (\w+)/gm)].map(([, name]) => [name, false]),
);

export default [
  {
    rules: {
      "no-undef": "error",
      "no-unused-vars": "error",
      "prefer-const": ["error", { destructuring: "all" }],
      eqeqeq: "error",
      "max-lines": ["error", 400],
      "max-lines-per-function": ["error", 40],
    },
  },
  { files: ["*.js"], languageOptions: { globals: globals.node } },
  { files: ["scripts/**"], languageOptions: { globals: { ...globals.browser, ...declared } } },
];
