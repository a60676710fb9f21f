"""One door to all benchmarks: `python -m benchmarks NAME [options]`.

A benchmark is a module with the function `benchmark`: its signature gives the options, its
docstring the help. One with the parameter `rows` appends rows of results to a file.
"""

import importlib
import inspect
import sys
from contextlib import redirect_stderr, redirect_stdout

import cyclopts
from cyclopts import Parameter

from benchmarks.shared import RESULTS
from translator.__main__ import explained
from translator.files import Refused, Steady
from translator.processes import use_device

NAMES = (
    "clinic", "compare", "confidence", "decoding_speed", "million", "miniature", "one_screen",
    "peers", "quality", "resample", "test_sets", "time_to_quality",
)  # fmt: skip
HELP = (
    "Measure something, and append rows to benchmarks/results/NAME.jsonl. "
    "`NAME --help` says what, and how."
)


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark; returns the exit status, 2 if the command line was wrong."""
    arguments = sys.argv[1:] if arguments is None else arguments
    app = cyclopts.App(
        name="python -m benchmarks", help=HELP, help_format="markdown", version_flags=[],
        default_parameter=Parameter(consume_multiple=True, negative=()),
    )  # fmt: skip
    with redirect_stdout(Steady(sys.stdout)), redirect_stderr(Steady(sys.stderr)):
        return measure(app, arguments)


def measure(app: cyclopts.App, arguments: list[str]) -> int:
    """Run the benchmark of a command line; rows are written even if nobody reads the output."""
    try:
        # only what is asked for is imported; for --help and misspelt names, all
        asked_for = {*arguments[:1]} & {*NAMES} or NAMES
        for name in asked_for:
            app.command(importlib.import_module(f"benchmarks.{name}").benchmark, name=name)
        benchmark, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        use_device()  # a device that does not compute is refused before hours are spent
        if "rows" in inspect.signature(benchmark).parameters:
            bound.arguments["rows"] = bound.arguments.get("rows", RESULTS).begin(arguments)
        return benchmark(*bound.args, **bound.kwargs) or 0
    except (cyclopts.CycloptsError, Refused, OSError, ModuleNotFoundError) as error:
        print(f"error: {explained(error, arguments)}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
