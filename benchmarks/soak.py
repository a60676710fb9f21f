"""Try for long what may go wrong with a run, and record how often it went well, in benchmarks/results/soak.jsonl.

    python benchmarks/soak.py [FILES OF TESTS...] [--out FILE.jsonl]

These are the tests that `make test` does in short: kills at random moments, killed ranks, signals, damaged files, random
input, and an hour of translating. The row says for each how many trials passed and failed, and how long they took.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.rows import RESULTS, ROOT, append, origin, portable

FILES = [f"tests/translator/test_{name}.py" for name in ("interruptions", "distributed", "fuzz", "endurance")]


def read_report(report: Path) -> dict[str, dict[str, Any]]:
    """From a report of `pytest`: for each test, how many trials passed, failed and were skipped, and what they noted."""
    found: dict[str, dict[str, Any]] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        row = found.setdefault(
            case.get("name").partition("[")[0], {"passed": 0, "failed": 0, "skipped": 0, "minutes": 0}
        )
        kinds = {child.tag for child in case}
        result = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
        row[result] += 1
        row["minutes"] = round(row["minutes"] + float(case.get("time")) / 60, 2)
        for noted in case.iter("property"):
            row[noted.get("name")] = noted.get("value")
    return found


def main(arguments: list[str]) -> int:
    """Run the tests and append a row; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("files", nargs="*", default=FILES)
    parser.add_argument("--out", type=Path, default=RESULTS / "soak.jsonl")
    options = parser.parse_args(arguments)
    row, begun = origin(" ".join(["python benchmarks/soak.py", *map(portable, arguments)])), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-o", "junit_family=xunit1", f"--junitxml={report}", *options.files]
        status = subprocess.run(command, cwd=ROOT, env=os.environ | {"ANNOTATED_SOAK": "1"}).returncode
        trials = read_report(report) if report.exists() else {}
    if trials:
        append(options.out, row | {"minutes": round((time.monotonic() - begun) / 60, 1), "trials": trials})
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
