"""The log of a run, `log.jsonl`, and its progress bar."""

import json
import math
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from translator import files
from translator.files import warn, write_text
from translator.processes import over_processes
from translator.settings import Progress


def read_log(folder: Path) -> list[dict]:
    """The rows of a run's log, without lines that a crash or a bad disk has spoilt."""
    path = Path(folder) / "log.jsonl"
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    rows = []
    for line in text.splitlines():
        # a crash leaves half a line; what follows it is whole again
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


@dataclass
class SinceRow:
    """What has been done since the last row of a log."""

    tokens: int  # of the run, when that row was written
    seconds: float
    losses: list[float] = field(default_factory=list)


def time_left(progress: Progress) -> str:
    """How long a run will still take at its speed so far; empty if nobody knows, or at its end."""
    if progress.left >= 1:  # --patience alone ends it
        return ""
    minutes = progress.seconds / 60 * progress.left / (1 - progress.left)
    return f", {minutes:.0f} min left" if minutes >= 1 else ""


class Log:
    """The log of a run, `log.jsonl`, and its progress bar; only the first process writes.

    A row has the mean loss since the row before it, and the speed; rows come every ten updates and
    at checkpoints. A continued run drops the rows after its checkpoint, because that part happens
    again.
    """

    def __init__(self, folder: Path, active: bool, progress: Progress):
        self.path = folder / "log.jsonl"
        self.active = active
        self.progress = progress
        self.since_row = SinceRow(progress.tokens, progress.seconds)
        self.bar = tqdm(
            total=100, disable=not active, file=sys.stdout,
            bar_format="training {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}",
            delay=1e-9,  # keeps it from lines that are printed before the first update
        )  # fmt: skip
        if active:
            rows = [row for row in read_log(folder) if row["step"] <= progress.step]
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in rows))

    def note(self, text: str) -> None:
        """A note on a line of its own: the bar goes away and comes back below it."""
        with tqdm.external_write_mode(self.bar.fp):
            warn(text)

    def write(self, **values: float) -> None:
        """Append one row."""
        if not self.active:
            return
        progress = self.progress
        row = {
            "step": progress.step,
            "epoch": progress.epoch,
            "minutes": round(progress.seconds / 60, 3),
            "tokens": progress.tokens,
        }
        with files.writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row | values) + "\n")

    def update(self, loss: float, lr: float) -> None:
        """Record one update; one that was skipped has no loss."""
        # sums since the last row: a row every ten updates says their mean
        if math.isfinite(loss):
            self.since_row.losses.append(loss)
        if self.progress.step % 10 == 0:
            self.row(lr)

    def row(self, lr: float) -> None:
        """Write the mean loss since the last row, over all processes, if there were updates."""
        since = self.since_row
        if not since.losses:
            return
        progress = self.progress
        # each process has its part of every loss, and all have as many of them
        mean = over_processes(sum(since.losses))[0] / len(since.losses)
        seconds = max(progress.seconds - since.seconds, 1e-9)
        speed = (progress.tokens - since.tokens) / seconds
        self.since_row = SinceRow(progress.tokens, progress.seconds)
        figures = {"tokens_per_second": round(speed)}
        if progress.skipped:
            figures["skipped"] = progress.skipped
        self.write(loss=round(mean, 4), lr=lr, **figures)
        self.bar.set_postfix_str(
            f"update {progress.step}, loss {mean:.3f}, {speed:,.0f} target tokens/s"
            + time_left(progress)
        )
