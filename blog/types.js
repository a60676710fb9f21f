// Checks the types of the pages' scripts: `node blog/types.js`.
import { spawnSync } from "node:child_process";
import { join } from "node:path";

const compiler = join(import.meta.dirname, "node_modules/typescript/bin/tsc");
const { status, stdout, stderr } = spawnSync(
  process.execPath,
  [compiler, "--project", "jsconfig.json", "--pretty", "false"],
  { cwd: import.meta.dirname, encoding: "utf8" },
);
// an error begins with its file; what follows it is indented
console.log(`${stdout}${stderr}`.trim().replace(/^(?=\S)/gm, "blog/") || "no errors of type");
process.exitCode = status ?? 1;
