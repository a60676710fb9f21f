"""Rows of results: the machine, date and commit that a figure comes from."""

import datetime
import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def commit() -> str:
    """The current commit, with + if tracked files other than the results differ from it; 'unknown' without git."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/results")
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """What the figures depend on apart from the code."""
    cpu, info = platform.processor() or platform.machine(), Path("/proc/cpuinfo")
    for line in info.read_text().splitlines() if info.exists() else []:
        if line.startswith("model name"):
            cpu = line.partition(":")[2].strip()
            break
    return {"cpu": cpu, "cores": os.cpu_count(), "torch": torch.__version__, "threads": torch.get_num_threads()}


def portable(argument: str) -> str:
    """An argument as given, except that an absolute path keeps only its last part: rows name no folder of this machine."""
    option, equals, value = argument.rpartition("=")
    return f"{option}{equals}{Path(value).name}" if Path(value).is_absolute() else argument


def origin(command: str) -> dict[str, Any]:
    """What every row records: the command, the commit, the date and the machine."""
    today = datetime.date.today().isoformat()
    return {"command": command, "commit": commit(), "date": today, "machine": machine()}


def append(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a JSON-lines file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")
