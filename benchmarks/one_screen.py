"""What one_screen.py learns in the end, by seed; what a port must find."""

import json
import math
import re
import subprocess
import types
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from benchmarks.shared import RESULTS, ROOT, Rows, Seeds
from blog import listing
from translator.files import Refused, write_text

FILE = ROOT / "one_screen.py"
# seeds 1 and 2 would draw x and 2x (modulo 1)
APART = tuple(pow(16807, k, 2**31 - 1) for k in range(10))
# by update: the digits of loss and size in which programs agree that round differently
DIGITS = {0: 13, 1: 12, 10: 10, 100: 6}
Port = Annotated[Path | None, Parameter(help="only write to this file what a port must find")]
TIMED = """
import platform, runpy, sys, time
runpy.run_path(sys.argv[0], run_name="__main__")
print(platform.python_implementation(), platform.python_version(), time.process_time())
"""


def by_python(python: str, seed: int) -> dict[str, object]:
    """The figures of a run of the file, by an interpreter; CPU seconds are time.process_time's."""
    command = [python, "-c", f"import sys; sys.argv = {[FILE.name, str(seed)]}\n{TIMED}"]
    process = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, encoding="utf-8")
    if process.returncode:
        raise Refused(f"{python} cannot run {FILE.name}")
    counts = re.search(r"never seen: (\d+); .*: (\d+)\n", process.stdout).groups()
    *program, seconds = process.stdout.split("\n")[-2].split()
    figures = dict(zip(("right", "averaged"), map(int, counts), strict=True))
    figures["cpu_seconds"] = float(seconds)
    return figures | {"program": " ".join(program)}


def load() -> types.ModuleType:
    """one_screen.py as a module that has just drawn its weights."""
    module = types.ModuleType(FILE.stem)
    exec(compile(FILE.read_text("utf-8"), FILE.name, "exec"), vars(module))
    return module


def port_numbers(updates: tuple[int, ...] = (0, 1, 10, 100)) -> dict[str, object]:
    """What a port to another language must find: its draws, and how it is after some updates."""
    module = load()
    start = listing.settings(FILE.read_text("utf-8"))["seed"]
    rule = "seed = 48271 * seed % 2147483647; random = seed / 2147483647"
    numbers: dict[str, object] = {"rule": rule, "seed": start}
    state = module.seed
    module.seed = start
    numbers |= {"random": [module.random() for _ in range(3)]}
    module.seed = state
    numbers |= {"held_out": module.held_out[:8], "letters": module.letters}
    numbers |= {"parameters": sum(len(W) * len(W[0]) for W in module.parameters)}
    numbers |= {"embeddings": module.parameters[0][0][:3], "first W_Q": module.parameters[1][0][:3]}
    drawn = [module.known[int(len(module.known) * module.random())] for _ in range(module.pairs)]
    numbers |= {"first update": drawn}
    module.seed = state
    for step in range(max(updates) + 1):
        if step:
            module.update(step)
        if step in updates:
            loss = module.loss(module.held_out[:8])[0][0]
            module.tape.clear()
            size = math.sqrt(sum(w * w for W in module.parameters for row in W for w in row))
            writes = module.greedy_decode(module.german_number(module.held_out[0]))
            after = {"loss": loss, "size": size, "writes": writes, "digits": DIGITS[step]}
            numbers[f"after {step}"] = after
    return numbers


def benchmark(
    *, seeds: Seeds = APART, rows: Rows = RESULTS,
    python: Annotated[str, Parameter(help="the interpreter")] = "python3",
    port: Port = None,
) -> None:  # fmt: skip
    """Train with each seed, and count what is right of the numbers that it has never seen:
    at the end, and with the mean of checkpoints.
    """
    if port:
        numbers = port_numbers().items()
        lines = (f'  "{name}": {json.dumps(value, ensure_ascii=False)}' for name, value in numbers)
        write_text(port, "{\n" + ",\n".join(lines) + "\n}\n")
        return
    settings = listing.settings(FILE.read_text("utf-8"))
    for seed in seeds:
        figures = by_python(python, seed)
        row = {"seed": seed, "updates": settings["updates"], "held_out": settings["held"]} | figures
        rows.add(row)
        print(json.dumps(row), flush=True)
