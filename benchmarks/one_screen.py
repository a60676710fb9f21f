"""What one_screen.py has learned in the end, with several seeds: itself, or its twin in JavaScript."""

import json
import re
import subprocess
from typing import Annotated

from cyclopts import Parameter

from benchmarks.shared import RESULTS, ROOT, Rows, Seeds
from blog import listing, page
from translator.files import Refused

FILE = ROOT / "one_screen.py"
TIMED = """
import platform, runpy, sys, time
runpy.run_path(sys.argv[0], run_name="__main__")
print(platform.python_implementation(), platform.python_version(), time.process_time())
"""
TWIN = """
const asked = JSON.parse(require("fs").readFileSync(0, "utf8")), at = (name) => require(`${asked.folder}/${name}.js`);
const learn = at("learn")(Float64Array, { PAD: -1, BOS: 0, EOS: 1 });
const one = at("one_screen")(learn, at("tasks")(learn), asked.settings, asked.seed);
while (one.model.step < asked.settings.updates) one.update();
const right = one.right();
one.average();
console.log(JSON.stringify({ right, averaged: one.right(), cpu_seconds: process.cpuUsage().user / 1e6, program: `node ${process.versions.node}` }));
"""


def by_python(python: str, seed: int) -> dict[str, object]:
    """The figures of one run of the file, by an interpreter; CPU seconds are those of time.process_time."""
    command = [python, "-c", f"import sys; sys.argv = {[FILE.name, str(seed)]}\n{TIMED}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if done.returncode:
        raise Refused(f"{python} cannot run {FILE.name}")
    right, averaged = map(int, re.search(r"never seen: (\d+); .*: (\d+)\n", done.stdout).groups())
    *program, seconds = done.stdout.split("\n")[-2].split()
    return {"right": right, "averaged": averaged, "cpu_seconds": float(seconds), "program": " ".join(program)}


def by_twin(seed: int) -> dict[str, object]:
    """The same of the twin that the page runs, with numbers of 64 bits; CPU seconds are those of node."""
    asked = {"folder": str(page.TEMPLATE), "settings": listing.settings(FILE.read_text("utf-8")), "seed": seed}
    options = {"stdout": subprocess.PIPE, "text": True, "encoding": "utf-8", "check": True}
    return json.loads(page.run_node("-e", TWIN, input=json.dumps(asked), **options).stdout)


def benchmark(
    *, seeds: Seeds = tuple(range(1, 11)), rows: Rows = RESULTS,
    python: Annotated[str, Parameter(help="the interpreter")] = "python3",
    twin: Annotated[bool, Parameter(help="run learn.js in node instead")] = False,
) -> None:  # fmt: skip
    """Train with each seed, and count what is right of the numbers that it has never seen: at the end, and with the mean of checkpoints."""
    about = listing.settings(FILE.read_text("utf-8"))
    for seed in seeds:
        found = by_twin(seed) if twin else by_python(python, seed)
        row = {"seed": seed, "updates": about["updates"], "held_out": about["held"], **found}
        rows.add(row)
        print(json.dumps(row), flush=True)
