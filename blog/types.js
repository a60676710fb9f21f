// Checks the types of the pages' scripts: `node blog/types.js`. The files that
// unfinished.json lists may have errors of type, and be too long; one leaves the list for good.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";

const unfinished = JSON.parse(readFileSync(join(import.meta.dirname, "unfinished.json"), "utf8"));
const compiler = join(import.meta.dirname, "node_modules/typescript/bin/tsc");
const { stdout, stderr } = spawnSync(
  process.execPath,
  [compiler, "--project", "jsconfig.json", "--pretty", "false"],
  { cwd: import.meta.dirname, encoding: "utf8" },
);
// an error begins a line with its file; what follows it is indented
const errors = `${stdout}${stderr}`.split(/\n(?! )/).filter(Boolean);
const bad = errors.filter((error) => !unfinished.includes(error.split("(")[0]));
console.log(bad.map((error) => `blog/${error}`).join("\n") || "no errors of type");
process.exitCode = bad.length ? 1 : 0;
