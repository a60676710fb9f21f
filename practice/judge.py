"""The judge: a Transformer that you wrote yourself, tried gate by gate with the shipped weights.

    annotated-transformer judge --new mine.py    write an empty file: one stub for each gate
    annotated-transformer judge mine.py          try it; --gate N: one gate, --watch: at each saving

A wrong answer is compared with what the document computes while one of the mistakes of
`mistakes.py` is in force: if both agree, that is the diagnosis. The gates are in `gates.py`; the
reader's file runs in a process of its own, `worker.py`.
"""

import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

import the_annotated_transformer as tat
from practice.gates import GATES, HEADER, Case, Gate, World, as_arrays, world
from practice.mistakes import CATALOGUE, SLIPS, made

CLOSE = 1e-4  # relative and absolute: single precision passes, another formula doesn't
KNOWN = CATALOGUE | SLIPS
SPLIT_SECONDS = 60  # that the reader's code may translate for a score


class Verdict(NamedTuple):
    """What came of a gate: "right", "wrong" or "empty" (not written yet), a sentence, and the
    seconds that the reader's code took."""

    state: str
    sentence: str
    seconds: float
    notes: list[str]


# --- the reader's file ---


class Reader:
    """A reader's file in its own process, which is started again when it had to be ended."""

    def __init__(self, path: Path):
        self.path, self.process = path.resolve(), None

    def __enter__(self) -> "Reader":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def ask(self, function: str, arguments: tuple, parts: int, seconds: float) -> dict[str, Any]:
        """What a function of the file gives, or what went wrong."""
        if self.process is None:
            worker = [sys.executable, str(Path(__file__).with_name("worker.py")), str(self.path)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            # one thread: for matrices this small, a second one only costs time
            self.process = subprocess.Popen(
                worker, env={"OMP_NUM_THREADS": "1"} | os.environ, **pipes
            )
        said: list[dict[str, Any]] = []

        def listen(stream: Any = self.process.stdout) -> None:
            with suppress(EOFError):  # the process has ended
                said.append(pickle.load(stream))

        with suppress(OSError):
            pickle.dump((function, arguments, parts, seconds), self.process.stdin)
            self.process.stdin.flush()
            # a thread: not every system can wait for a pipe with a limit
            ear = threading.Thread(target=listen, daemon=True)
            ear.start()
            ear.join(4 * seconds + 10)  # the worker says itself when it is late, and where
        if said and not said[0].get("late"):
            return said[0]
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(1)
        code = self.process.returncode
        self.end()
        if said:
            return said[0]
        ended = f"the file's process ended with status {code}: did it ask for too much memory?"
        return {"error": f"no answer within {seconds:g} seconds" if code is None else ended}


# --- right or wrong ---


def leaves(value: Any) -> list[np.ndarray]:
    """One array or several, as a list."""
    several = isinstance(value, (tuple, list))
    return [np.asarray(part) for part in (value if several else [value])]


def agree(found: Any, right: Any) -> bool:
    """Whether two answers are the same up to rounding."""
    mine, theirs = leaves(found), leaves(right)
    if [a.shape for a in mine] != [b.shape for b in theirs]:
        return False
    return all(np.allclose(a, b, CLOSE, CLOSE) for a, b in zip(mine, theirs, strict=True))


def difference(found: Any, right: Any, axes: tuple[str, ...]) -> str:
    """Where two answers differ first, and by how much at most."""
    results = list(zip(leaves(found), leaves(right), strict=True))
    which, (a, b) = next((i, pair) for i, pair in enumerate(results, 1) if not agree(*pair))
    of = f"of result {which}, " if len(results) > 1 else ""
    if axes == ("step",) and a.ndim == 1:
        same = min(len(a), len(b))
        at = next((i for i in range(same) if a[i] != b[i]), same)
        return (
            f"{len(a)} tokens where {len(b)} are right; the first that differs is number {at + 1}"
        )
    if a.shape != b.shape:
        return f"{of}the shape is {a.shape}, and should be {b.shape}"
    a, b = a.astype(float), b.astype(float)
    if not np.isfinite(a).all():
        return f"{of}{(~np.isfinite(a)).sum()} of {a.size} numbers aren't finite"
    at = tuple(np.argwhere(~np.isclose(a, b, CLOSE, CLOSE))[0])
    where = ", ".join(f"{name} {i}" for name, i in zip(axes, at, strict=False))
    error = f"{a[at]:.6g} instead of {b[at]:.6g}; the largest error is {np.abs(a - b).max():.3g}"
    return f"{of}{where}: {error}" if where else of + error


def diagnosis(cases: list[Case], found: list[Any], bad: int) -> list[str]:
    """The mistakes with which the document gives in every case what the reader's function gave."""
    names, order = [], [bad, *(i for i in range(len(found)) if i != bad)]
    for name in KNOWN:
        with made(name):
            try:
                if all(agree(found[i], as_arrays(cases[i][1]())) for i in order):
                    names.append(name)
            except (RuntimeError, ValueError, IndexError, TypeError):
                pass  # with this mistake, these numbers can't be computed at all
    return names


def try_gate(gate: Gate, w: World, reader: Reader) -> Verdict:
    """Ask the reader's function all cases of a gate."""
    seconds, found, right, notes = 0.0, [], [], []
    cases = list(gate.cases(w))  # now: the inputs are the right ones, whatever is in force later

    def verdict(state: str, sentence: str = "") -> Verdict:
        return Verdict(state, sentence, seconds, [*dict.fromkeys(notes)])

    for arguments, answer in cases:
        start = time.perf_counter()
        said = reader.ask(gate.function, as_arrays(arguments), gate.parts, gate.seconds)
        seconds += time.perf_counter() - start
        if "error" in said:
            return verdict("empty" if "empty" in said else "wrong", said["error"])
        if said.get("printed"):
            notes.append(f"it printed {said['printed'].splitlines()[0]!r}")
        if said.get("changed"):
            notes.append("it changes what it is given, which others still need")
        found.append(said["result"])
        right.append(as_arrays(answer()))
    bad = next((i for i in range(len(cases)) if not agree(found[i], right[i])), None)
    if bad is None:
        return verdict("wrong" if any("changes" in note for note in notes) else "right")
    names = diagnosis(cases, found, bad)
    if not names:
        where = difference(found[bad], right[bad], gate.axes)
        return verdict("wrong", f"{where} (case {bad + 1}); no mistake that I know gives this")
    lines = ", or ".join(KNOWN[name].line for name in names)
    return verdict("wrong", f"this is what comes out with {lines}. {KNOWN[names[0]].effect}")


# --- a translation by the reader's code, and the report ---


def sentences_of(w: World, reader: Reader, lines: list[str], seconds: float) -> list[str]:
    """Translations by the reader's code, as many as it makes in the time."""
    gate = next(gate for gate in GATES if gate.function == "translate")
    *_, (arguments, _) = gate.cases(w)
    _, weights, *rest, _ = as_arrays(arguments)
    found, end = [], time.monotonic() + seconds
    for line in lines:
        ids = w.ids(line)
        said = reader.ask(
            "translate", (ids[0].numpy(), weights, *rest, ids.size(1) + 50), 0, gate.seconds
        )
        if "error" in said or (time.monotonic() > end and found):
            break
        found.append(w.tokenizer.decode([int(i) for i in said["result"]]))
    return found


def translations(
    w: World, reader: Reader, split: str, seconds: float = SPLIT_SECONDS
) -> Iterator[str]:
    """Three sentences by the reader's code; then BLEU on a split, beside the document's own."""
    for line, english in zip(
        tat.OUR_SENTENCES, sentences_of(w, reader, tat.OUR_SENTENCES, 300), strict=False
    ):
        yield f"    {line}\n    {english}"
    try:
        pairs = tat.load_split(split)
    except (OSError, ValueError, KeyError) as error:
        yield f"no score: {split} can't be read ({error})"
        return
    found = sentences_of(w, reader, [source for source, _ in pairs], seconds)
    if not found:
        yield "no score: your code didn't get through the first sentence"
        return
    sources, references = (list(side) for side in zip(*pairs[: len(found)], strict=True))
    ours = tat.translate_lines(tat.Translator(w.model, w.tokenizer), sources)
    scores = [tat.bleu(lines, references)[0] for lines in (found, ours)]
    yield (
        f"{split}, {len(found)} sentences in {seconds:g} s: your code {scores[0]:.1f} BLEU, the document's "
        f"{scores[1]:.1f}, both greedy with the same weights"
    )


def judge(
    path: Path, only: int | None = None, split: str = "val", say: Callable[[str], None] = print
) -> bool:
    """Walk through the gates, or try one; says each verdict, and returns whether all were right."""
    w, gates = world(), list(enumerate(GATES, 1))
    say(f"{path.name}, {date.today():%Y-%m-%d}, weights of {Path(tat.SHIPPED_MODEL).name}")
    verdicts: dict[int, Verdict] = {}
    with Reader(path) as reader:
        for number, gate in gates:
            if only not in (None, number):
                continue
            verdict = verdicts[number] = try_gate(gate, w, reader)
            mark = {"right": "✓", "wrong": "✗", "empty": "·"}[verdict.state]
            say(f"{number:2} {mark} {gate.title:24}{verdict.seconds:6.1f} s  {gate.function}")
            earlier = next(
                (n for n in verdicts if verdicts[n].state == "wrong" and n < number), None
            )
            if verdict.state == "wrong":
                after = f" (mend gate {earlier} first, if this one calls it)" if earlier else ""
                say(f"     {verdict.sentence or 'right numbers, but see below'}{after}")
            for note in verdict.notes:
                say(f"     {note}")
            if gate.function == "translate" and verdict.state == "right":
                for line in translations(w, reader, split):
                    say(line)
    counts = [
        sum(v.state == state for v in verdicts.values()) for state in ("right", "wrong", "empty")
    ]
    say("{} right, {} wrong, {} not written yet".format(*counts))
    return counts[0] == len(verdicts)


def write_stubs(path: Path) -> None:
    """Write an empty file for the reader; FileExistsError if it is there."""
    written: set[str] = set()
    lines = [HEADER]
    for number, gate in enumerate(GATES, 1):
        about = " ".join(gate.cases.__doc__.split())
        if gate.function in written:
            lines.append(f"# Gate {number} is {gate.function} again. {about}\n")
            continue
        written.add(gate.function)
        text = "\n    ".join(textwrap.wrap(about, 88))
        lines.append(
            f'# Gate {number}: {gate.title}\ndef {gate.stub}:\n    """{text}"""\n    raise NotImplementedError\n'
        )
    with path.open("x", encoding="utf-8") as file:
        file.write("\n".join(lines))


def watch(path: Path, only: int | None = None, split: str = "val") -> None:
    """Judge at each saving, until interrupted."""
    seen = None
    while True:
        time.sleep(0.5)
        stamp = path.stat().st_mtime_ns if path.exists() else seen
        if stamp != seen:
            seen = stamp
            judge(path, only, split)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(not judge(Path(sys.argv[1])))
