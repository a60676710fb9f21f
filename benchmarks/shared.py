"""What benchmarks share: options, new processes, rows with command, commit, date and machine."""

import datetime
import gzip
import hashlib
import json
import multiprocessing
import os
import platform
import re
import shlex
import subprocess
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from cyclopts import Parameter
from cyclopts.validators import Number

from since_2017 import sorted_batches
from the_annotated_transformer import Pair
from translator.files import Refused, refusing
from translator.plan import MEASURED
from translator.settings import Count, Settings, make_settings, options

CPU = torch.device("cpu")
ROOT = Path(__file__).resolve().parents[1]
Preset = Literal["tiny", "small", "base", "big"]
Counts = Annotated[tuple[int, ...], Parameter(validator=Number(gte=1))]
Changes = Annotated[options() | None, Parameter(name="*")]  # settings in place of the preset's
Data = Annotated[str, Parameter(help="multi30k, captions or a folder")]
Rounds = Annotated[Count, Parameter(help="turns of each; a figure is the median over them")]
Runs = Annotated[Path, Parameter(help="where the runs are kept")]
Seeds = Annotated[tuple[int, ...], Parameter(help="each is trained, unless it has a row already")]
Sentences = Annotated[Count | None, Parameter(help="only the first so many")]


@Parameter(name="*")  # its fields are options of every benchmark that has rows
@dataclass(frozen=True)
class Rows:
    """A file of JSON lines that rows are appended to; each row begins with its origin."""

    out: Path | None = None
    """the JSON lines to append rows to; by default the benchmark's file in benchmarks/results"""
    origin: Annotated[dict[str, Any], Parameter(parse=False)] = field(default_factory=dict)

    def begin(self, arguments: list[str]) -> "Rows":
        """The rows of a command, whose first argument is the benchmark.

        Raises Refused if they could not be written later.
        """
        out = self.out or ROOT / "benchmarks" / "results" / f"{arguments[0]}.jsonl"
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.is_dir() or not os.access(out if out.exists() else out.parent, os.W_OK):
            raise Refused(f"--out {out} cannot be written")
        with refusing(f"--out {out} holds something else than rows", ValueError, AttributeError):
            replace(self, out=out).saved({})
        command = shlex.join(["python", "-m", "benchmarks", *map(portable, arguments)])
        origin = {"command": command, "commit": commit()}
        origin |= {"date": datetime.date.today().isoformat(), "machine": machine()}
        return replace(self, out=out, origin=origin)

    def add(self, row: dict[str, Any], device: torch.device = CPU) -> None:
        """Append a row; `device` did the work."""
        origin = self.origin | {"machine": self.origin["machine"] | accelerator(device)}
        with self.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(origin | row) + "\n")

    def keep(self, title: str, lines: list[str]) -> str:
        """Store the translations that a row scores; returns their file.

        With it, whoever doubts the row needs no training. It lies beside the rows. Its name ends
        with a checksum of what it holds, so no later run takes its place.
        """
        text = "".join(f"{line}\n" for line in lines).encode("utf-8")
        name = re.sub(r"[^\w.]+", "-", f"{title} {hashlib.sha256(text).hexdigest()[:8]}.gz")
        folder = self.out.parent / "translations"
        folder.mkdir(exist_ok=True)
        # mtime=0: the same bytes whenever it's written
        (folder / name).write_bytes(gzip.compress(text, mtime=0))
        return f"{folder.name}/{name}"

    def saved(
        self, about: dict[str, Any], device: torch.device | None = None
    ) -> list[dict[str, Any]]:
        """The saved rows that agree with `about`."""
        # With `device`, those of the same accelerator, or of any CPU.
        lines = self.out.read_text(encoding="utf-8").splitlines() if self.out.exists() else []
        rows = [row for row in map(json.loads, lines) if about.items() <= row.items()]
        name = accelerator(device or CPU).get("accelerator")
        return [row for row in rows if device is None or row["machine"].get("accelerator") == name]


RESULTS = Rows()


def commit(checkout: Path = ROOT) -> str:
    """The commit, with + if tracked files other than results differ; 'unknown' without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(checkout), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    try:
        where = ("--", ".", ":!benchmarks/results")
        changed = git("status", "--porcelain", "--untracked-files=no", *where)
        return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def machine() -> dict[str, Any]:
    """What the figures depend on apart from the code."""
    info = Path("/proc/cpuinfo")
    names = re.findall("^model name.*: (.*)", info.read_text(), re.M) if info.exists() else []
    cpu = (names or [platform.processor() or platform.machine()])[0]
    facts = {"cpu": cpu, "cores": os.cpu_count(), "torch": torch.__version__}
    return facts | {"threads": torch.get_num_threads()}


def accelerator(device: torch.device) -> dict[str, str]:
    """The name of the accelerator that did the work; nothing for a CPU."""
    if device.type == "cpu":
        return {}
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    return {"accelerator": name}


def portable(argument: str) -> str:
    """An argument as given, except that an absolute path keeps only its last part."""
    # So rows name no folder of this machine.
    option, equals, value = argument.rpartition("=")
    return f"{option}{equals}{Path(value).name}" if Path(value).is_absolute() else argument


def epoch(pairs: list[Pair], budget: int, seed: int = 0) -> list[list[Pair]]:
    """An epoch's batches: pairs of similar lengths, of at most `budget` padded tokens a side."""
    lengths = [(len(pair.src), len(pair.tgt)) for pair in pairs]
    return [[pairs[i] for i in rows] for rows in sorted_batches(lengths, budget, seed=seed)]


def with_adam(preset: str, changes: dict[str, Any] | None) -> Settings:
    """A preset with some settings changed, and with Adam, which every library has.

    `tiny` is as in earlier rows, with the paper's positions. Refused for what does not fit
    together.
    """
    earlier = MEASURED if preset == "tiny" else {}
    with refusing("these settings do not fit together", ValueError):
        return make_settings(preset, False, earlier | (changes or {}) | {"optimizer": "adam"})


def in_new_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function returns in a process started for it; whatever it raises is raised here."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()
