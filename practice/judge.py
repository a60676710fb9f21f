"""The judge: a Transformer that you wrote yourself, tried gate by gate with the shipped weights.

    python the_annotated_transformer.py judge --new mine.py    write one stub for each gate
    python the_annotated_transformer.py judge mine.py          try it; --gate N: one gate,
                                                               --watch: at each saving

A wrong answer is compared with what the document computes while one of the mistakes of
`mistakes/` is in force: if both agree, that is the diagnosis. The gates are in `gates.py`; the
reader's file runs in a process of its own, `worker.py`.
"""

import io
import math
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, redirect_stdout, suppress
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import the_annotated_transformer as tat
from practice import NEXT_RUNG
from practice.gates import GATES, Gate, World, as_arrays, small_world, world
from practice.mistakes import CATALOGUE, SLIPS, made

CLOSE = 1e-4  # of a number, and of the largest: single precision passes, another formula doesn't
KNOWN = CATALOGUE | SLIPS
SPLIT_SECONDS = 60  # that the reader's code may translate for a score
LOADING_SECONDS = 10  # for the file itself
CAPTIONS_SECONDS = 120  # for our three sentences
WHOLE_SECONDS = 600  # for all gates together
# glibc gives no memory back: each update of `--learn` needs the same 40 MB again, and a sixth of
# its time went into asking for them
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40)}
LATE_SECONDS = 5  # for a call, after one that didn't end: what uses that function won't, either
WRITTEN_IN = "is a width, a length, a number of layers or heads, or an id written into it?"
LOOKING_SECONDS = 20  # of the processor, in which a mistake must be found
CHANGES = "it changes what it is given, which others still need"
STATES = {"fatal": "unread", "empty": "empty"}  # of a gate, by what a reply has beside its error


class Verdict(NamedTuple):
    """What came of a gate, and the seconds of the reader's code; `unread` is the whole file."""

    state: str  # right, wrong, empty or unread
    sentence: str
    seconds: float
    notes: list[str]


# --- the reader's file ---


class ReadersCode:
    """A reader's file in its own process, which is started again when it had to be ended."""

    def __init__(self, path: Path):
        self.path = path.resolve()
        self.process: Any = None  # subprocess.Popen, once it has been started
        self.late = False  # whether a call didn't end

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def start(self) -> dict[str, Any]:
        """Have the file loaded, and say what went wrong."""
        program = str(Path(__file__).with_name("worker.py"))
        # a process of its own: whatever it prints, asks for or ends, the judge goes on
        worker = [sys.executable, program, str(self.path), str(LOADING_SECONDS)]
        # one thread: for matrices this small, a second one only costs time
        environment = {"OMP_NUM_THREADS": "1"} | KEEP_MEMORY | os.environ
        self.process = subprocess.Popen(
            worker, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )
        reply = self.exchange(None, LOADING_SECONDS, "the file itself")
        return reply | {"fatal": True} if "error" in reply else reply

    def ask(self, function: str, arguments: tuple, parts: int, seconds: float) -> dict[str, Any]:
        """What a function of the file gives, or what went wrong."""
        reply = self.start() if self.process is None else {}
        if "error" in reply:
            return reply
        # after a call that didn't end, nobody waits as long again
        seconds = min(seconds, LATE_SECONDS) if self.late else seconds
        reply = self.exchange((function, arguments, parts, seconds), seconds, function)
        self.late |= reply.get("late", False)
        return reply

    def exchange(self, call: tuple | None, seconds: float, name: str) -> dict[str, Any]:
        """Send a call, if there is one, and wait for an answer; a process that is late is ended.

        seconds: of computing; by the clock, the worker takes at most four times as long.
        """
        # A thread sends and waits: not every system can wait for a pipe with a limit. `talk` fills
        # `answers` unless the process ends or hangs; then it is killed, and started again at the
        # next call.
        answers: list[dict[str, Any]] = []
        process = self.process

        def talk() -> None:
            with suppress(EOFError, OSError, pickle.UnpicklingError):  # the process has ended
                if call is not None:
                    pickle.dump(call, process.stdin)
                    process.stdin.flush()
                answers.append(pickle.load(process.stdout))

        talker = threading.Thread(target=talk, daemon=True)
        talker.start()
        talker.join(4 * seconds + 10)  # the worker says itself that it is late; 10 s are for that
        if answers and not answers[0].get("late"):
            return answers[0]
        with suppress(subprocess.TimeoutExpired):
            process.wait(1)
        status = process.returncode
        self.close()
        if answers:
            return answers[0]
        return {"error": f"{name}: {ending(status, seconds)}", "late": status is None}


def ending(status: int | None, seconds: float) -> str:
    """Why a process gave no answer."""
    if status is None:
        return f"no answer within {seconds:g} seconds"
    if status == -9:  # SIGKILL, which Windows has not
        return "the process was killed: did it ask for too much memory?"
    if status < 0:
        return f"the process crashed ({signal.strsignal(-status)}) in compiled code"
    return f"the process ended with status {status}: does it call os._exit?"


# --- right or wrong ---


def leaves(value: Any) -> list[np.ndarray]:
    """One array or several, as a list of arrays of floats."""
    return [np.asarray(a, float) for a in (value if isinstance(value, (tuple, list)) else [value])]


def close(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Which numbers are the same up to rounding, beside the largest: learning rates are tiny."""
    # one bound for all numbers of an answer: where most are large, rounding leaves the small ones
    # apart
    largest = np.abs(b[np.isfinite(b)]).max(initial=0.0)
    return np.isclose(a, b, CLOSE, CLOSE * largest, equal_nan=True)


def agree(result: Any, expected: Any) -> bool:
    """Whether two answers are the same up to rounding."""
    arrays = leaves(result)
    right_arrays = leaves(expected)
    return [a.shape for a in arrays] == [b.shape for b in right_arrays] and all(
        close(a, b).all() for a, b in zip(arrays, right_arrays, strict=True)
    )


def difference(result: Any, expected: Any, axes: tuple[str, ...]) -> str:
    """Where two answers differ first, and by how much at most."""
    pairs = list(zip(leaves(result), leaves(expected), strict=True))
    # of several results, the first that differs; of that, the first number
    number, (a, b) = next((i, pair) for i, pair in enumerate(pairs) if not agree(*pair))
    of = f"of the {('first', 'second', 'third')[number]} result, " if len(pairs) > 1 else ""
    # a translation: which token is the first other one says more than a number
    if axes == ("step",) and a.ndim == 1:
        shorter = min(len(a), len(b))
        at = next((i for i in range(shorter) if a[i] != b[i]), shorter)
        return f"{len(a)} tokens where {len(b)} are right; the first that differs is no. {at + 1}"
    if a.shape != b.shape:
        return f"{of}the shape is {a.shape}, and should be {b.shape}"
    if not np.isfinite(a).all():
        return f"{of}{(~np.isfinite(a)).sum()} of {a.size} numbers aren't finite"
    at = tuple(np.argwhere(~close(a, b))[0])
    where = ", ".join(f"{name} {i}" for name, i in zip(axes, at, strict=False))
    if where:  # else it is a single number
        of += f"{where}: "
    largest = np.abs(a - b).max()
    return f"{of}{a[at]:.6g} instead of {b[at]:.6g}; the largest error is {largest:.3g}"


def sizes_of(arguments: tuple) -> str:
    """What was asked, in short: the shapes of arrays, and plain numbers."""
    plain = [value for value in as_arrays(arguments) if not isinstance(value, dict)]
    return ", ".join(str(getattr(value, "shape", value)) for value in plain)


def diagnosis(gate: Gate, answers: list[Callable], results: list[Any], bad: int) -> list[str]:
    """The mistakes with which the document gives for each case what the reader's function gave."""
    # Each mistake is put in force, and the document asked for the same cases. Where all its answers
    # are the reader's, that is it. Most differ at the first wrong case already: `bad` comes first.
    names = []
    end = time.process_time() + LOOKING_SECONDS
    order = sorted(range(len(answers)), key=lambda i: i != bad)
    arrays = [array for result in results for array in leaves(result)]
    if any(array.size and not np.isfinite(array).any() for array in arrays):
        return []  # nothing but NaN is like any other
    for name, mistake in KNOWN.items():
        if gate.tries and not gate.tries & mistake.puts.keys() or time.process_time() > end:
            continue
        # with some mistakes, these numbers can't be computed at all
        with made(name), suppress(RuntimeError, ValueError, IndexError, TypeError):
            if all(agree(results[i], as_arrays(answers[i]())) for i in order):
                names.append(name)
    # a slip speaks of this function, a mistake of the catalogue of a whole training
    return [name for name in names if name in SLIPS] or names


class Trial:
    """What a reader's function gave for the cases of a gate, in order, beside what is right.

    The cases with the shipped weights come first, then those of the small model. They are all made
    at once, before any mistake is put in force to be compared with: so their inputs are right.
    """

    def __init__(self, gate: Gate, w: World):
        self.gate = gate
        self.cases = list(gate.cases(w))
        self.shipped = len(self.cases)
        self.cases += gate.cases(small_world())
        self.results: list[Any] = []
        self.expected: list[Any] = []
        self.failure: dict[str, Any] = {}  # of the first case without a result
        self.notes: list[str] = []
        self.mend = ""  # which gates to mend first, of what it uses
        self.earlier = 0  # the gate at which this function was wrong already
        self.seconds = 0.0

    def ask(self, reader: ReadersCode, wrong: dict[str, int], end: float) -> None:
        """Ask one case after the other, until one has no result; arguments as of `try_gate`."""
        # Cases are asked in order, and the first without a result ends it: what fails once fails
        # again, and takes its seconds each time.
        gate = self.gate
        self.earlier = wrong.get(gate.function, 0)
        for number, (arguments, answer) in enumerate(self.cases, 1):
            progress(f"{gate.title}, case {number} of {len(self.cases)}")
            start = time.perf_counter()
            allowed = min(gate.seconds, max(1, end - time.monotonic()))
            reply = reader.ask(gate.function, as_arrays(arguments), gate.parts, allowed)
            self.seconds += time.perf_counter() - start
            self.mend = gates_of(reply.get("calls", ()), wrong, gate.function)
            if "error" in reply:
                self.failure = reply
                return
            self.note(reply)
            self.results.append(reply["result"])
            self.expected.append(as_arrays(answer()))

    def note(self, reply: dict[str, Any]) -> None:
        """Note what a reply has beside its numbers."""
        if reply.get("printed"):
            self.notes.append(f"it printed {reply['printed'].splitlines()[0]!r}")
        if reply.get("changed"):
            self.notes.append(CHANGES)
        arrays = reply["result"] if self.gate.parts else [reply["result"]]
        if np.float16 in [array.dtype for array in arrays]:
            self.notes.append("it gives numbers of 16 bits, which are too coarse to be compared")

    def verdict(self) -> Verdict:
        """What came of it. A wrong number says more than an error in a later case."""
        # wrong numbers, then no numbers, then right ones that cost somebody else's: the first
        # counts
        agreements = map(agree, self.results, self.expected)
        bad = next((i for i, agrees in enumerate(agreements) if not agrees), None)
        if bad is not None:
            state = "wrong"
            sentence = self.explanation(bad)
        elif self.failure:
            state = next((s for key, s in STATES.items() if key in self.failure), "wrong")
            sentence = self.failure["error"]
            if self.mend:
                sentence += f"; it uses what is wrong at {self.mend}"
        elif CHANGES in self.notes:
            state = "wrong"
            sentence = "right numbers, but:"
        else:
            state = "right"
            sentence = ""
        return Verdict(state, sentence, self.seconds, [*dict.fromkeys(self.notes)])

    def explanation(self, bad: int) -> str:
        """Of the first wrong result: the mistake that gives the same numbers, or the place."""
        # No mistake is looked for in a function that uses others that are wrong. First with all
        # cases, then with those of the shipped weights alone, as sizes may be written into it.
        if not self.mend:
            names = diagnosis(self.gate, self.answers(), self.results, bad)
            if names:
                return sentence_of(names)
            if bad < self.shipped:
                answers = self.answers()[: self.shipped]
                names = diagnosis(self.gate, answers, self.results, bad)
            if names:
                return f"{sentence_of(names)}\nwith weights of other sizes it gives something else: {WRITTEN_IN}"
        where = difference(self.results[bad], self.expected[bad], self.gate.axes)
        sizes = sizes_of(self.cases[bad][0])
        if self.mend:
            return f"{where}; first mend what it uses: {self.mend}"
        where += f" (case {bad + 1} of {len(self.cases)}, given {sizes})"
        if self.earlier:
            return f"{where}; first mend gate {self.earlier}, which asks the same function"
        if bad >= self.shipped:
            where += f"\nwith the shipped weights it is right: {WRITTEN_IN}"
        return f"{where}; no mistake that I tried gives this"

    def answers(self) -> list[Callable[[], Any]]:
        """What computes the right answers of the cases that have a result."""
        return [answer for _, answer in self.cases[: len(self.results)]]


def gates_of(calls: Iterable[str], wrong: dict[str, int], function: str) -> str:
    """The gates of the wrong functions that a function calls; empty if none is wrong."""
    numbers = sorted({wrong[name] for name in calls if name in wrong and name != function})
    gates = "gates" if len(numbers) > 1 else "gate"
    return f"{gates} {', '.join(map(str, numbers))}" if numbers else ""


def sentence_of(names: list[str]) -> str:
    """A diagnosis by mistakes, and what the first of them does to a training."""
    lines = ", or ".join(KNOWN[name].line for name in names)
    return f"this gives the same numbers: {lines}\n{KNOWN[names[0]].effect}"


def try_gate(
    gate: Gate, w: World, reader: ReadersCode, wrong: dict[str, int], end: float = math.inf
) -> Verdict:
    """Ask the reader's function all cases of a gate.

    `wrong` has the gates of wrong functions, and `end` is the time at which no call may go on, by
    time.monotonic.
    """
    trial = Trial(gate, w)
    trial.ask(reader, wrong, end)
    return trial.verdict()


# --- a translation by the reader's code, and the report ---


def progress(line: str) -> None:
    """What it is at, on a terminal; the next line is written over it."""
    if sys.stderr.isatty():
        print(f"     {line:70}", end="\r", file=sys.stderr, flush=True)


def sentences_of(w: World, reader: ReadersCode, lines: list[str], seconds: float) -> list[str]:
    """Translations by the reader's code, as many as it makes in the time."""
    # from the gate come the weights, in the names that the reader's functions know
    gate = next(gate for gate in GATES if gate.function == "translate")
    *_, (arguments, _) = gate.cases(w)
    _, weights, h, bos, eos, _ = as_arrays(arguments)  # of a case, with another source and limit
    texts = []
    end = time.monotonic() + seconds
    for number, line in enumerate(lines, 1):
        progress(f"translating sentence {number} of {len(lines)}")
        ids = w.ids(line)
        arguments = ids[0].numpy(), weights, h, bos, eos, ids.size(1) + 50
        remaining = end - time.monotonic()
        if remaining <= 0:
            break
        reply = reader.ask("translate", arguments, 0, remaining)
        if "error" in reply:
            break
        texts.append(w.tokenizer.decode([int(i) for i in reply["result"]]))
    return texts


def translation_report(
    w: World, reader: ReadersCode, split: str, seconds: float = SPLIT_SECONDS
) -> Iterator[str]:
    """Three sentences by the reader's code; then BLEU on a split, beside the document's own."""
    # Three captions first, which everybody knows by now; then a split, as much of it as the time
    # allows. The score is beside the document's on the very same sentences: both have the same
    # weights.
    captions = sentences_of(w, reader, tat.OUR_SENTENCES, CAPTIONS_SECONDS)
    for line, english in zip(tat.OUR_SENTENCES, captions, strict=False):
        yield f"    {line}\n    {english}"
    notice = io.StringIO()
    try:
        with redirect_stdout(notice):
            pairs = tat.load_split(split)
    except (OSError, ValueError, KeyError) as error:
        yield f"no score: {split} can't be read ({error})"
        return
    if notice.getvalue():
        yield textwrap.shorten(notice.getvalue(), 140)
    name = "made-up phrases" if tat.choose_data() == "phrases" else split
    start = time.monotonic()
    texts = sentences_of(w, reader, [source for source, _ in pairs], seconds)
    took = time.monotonic() - start
    if not texts:
        yield f"no score: your code didn't translate one sentence within {seconds:g} seconds"
        return
    # the same sentences by the document, however many they are
    sources, references = (list(side) for side in zip(*pairs[: len(texts)], strict=True))
    ours = list(tat.translate_lines(tat.Translator(w.model, w.tokenizer), sources))
    score = tat.bleu(texts, references)[0]
    score_of_ours = tat.bleu(ours, references)[0]
    yield (
        f"{name}, {len(texts)} of {len(pairs)} sentences in {took:.0f} s: your code {score:.1f} "
        f"BLEU, the document's {score_of_ours:.1f}, both greedy with the same weights"
    )


def judge(
    path: Path, only: int | None = None, split: str = "val", say: Callable[[str], None] = print,
    verdicts: dict[int, Verdict] | None = None,
) -> bool:  # fmt: skip
    """Try the gates in their order, or one; says each verdict, and returns whether all were right.

    `verdicts` gets them by their numbers.
    """
    # The gates are in the order of the road, and later functions use earlier ones. So each wrong
    # function is noted with its gate: whoever uses it is told to mend that first.
    verdicts = {} if verdicts is None else verdicts
    w = world()
    wrong_functions: dict[str, int] = {}  # and the gate at which each was
    end = time.monotonic() + WHOLE_SECONDS
    say(f"{path.name}, {date.today():%Y-%m-%d}, weights of {Path(tat.SHIPPED_MODEL).name}")
    with closing(ReadersCode(path)) as reader:
        for number, gate in enumerate(GATES, 1):
            if only not in (None, number):
                continue
            if time.monotonic() > end:
                say(f"{WHOLE_SECONDS} seconds are over: try what follows with --gate {number}")
                return False
            verdict = try_gate(gate, w, reader, wrong_functions, end)
            if verdict.state == "unread":
                say(f"nothing can be tried: {verdict.sentence}")
                return False
            verdicts[number] = verdict
            mark = {"right": "✓", "wrong": "✗", "empty": "·"}[verdict.state]
            say(f"{number:2} {mark} {gate.title:24}{verdict.seconds:6.1f} s  {gate.function}")
            if verdict.state == "wrong":
                # later gates that call it are told to mend this first
                wrong_functions.setdefault(gate.function, number)
                verdict.notes[:0] = verdict.sentence.splitlines()
            for note in verdict.notes:
                say(f"     {note}")
            if gate.function == "translate" and verdict.state == "right":
                for line in translation_report(w, reader, split):
                    say(line)
    return summed_up(verdicts, say) == len(verdicts)


def summed_up(verdicts: dict[int, Verdict], say: Callable[[str], None]) -> int:
    """Say how many gates are right, and what comes next; returns their number."""
    counts = Counter(verdict.state for verdict in verdicts.values())
    if any(v.sentence.startswith("there is no function") for v in verdicts.values()):
        say(
            "they go into this file, too; `judge --new FILE.py` writes one that names all functions"
        )
    say(f"{counts['right']} right, {counts['wrong']} wrong, {counts['empty']} not written yet")
    if counts["right"] == len(GATES):
        say(NEXT_RUNG["diagnose"])
    return counts["right"]


def scored(title: str, right: bool, output: str) -> dict[str, Any]:
    """A test in the form that Gradescope reads, with a point if it is right."""
    status = "passed" if right else "failed"
    return {"name": title, "score": float(right), "max_score": 1.0, "status": status,
            "output": output}  # fmt: skip


def scored_gates(verdicts: dict[int, Verdict], only: int | None) -> list[dict[str, Any]]:
    """All gates, or one, as Gradescope reads them; what wasn't tried has no point."""
    tests = []
    for number, gate in enumerate(GATES, 1):
        if only in (None, number):
            verdict = verdicts.get(number)
            output = "\n".join(verdict.notes or [verdict.state]) if verdict else "not tried"
            passes = verdict is not None and verdict.state == "right"
            tests.append(scored(f"gate {number}: {gate.title}", passes, output))
    return tests


def watch(path: Path, once: Callable[[], Any]) -> None:
    """Judge at each saving, until interrupted."""
    stamp = judged = None
    while True:
        time.sleep(0.5)
        with suppress(FileNotFoundError):  # an editor is just replacing it
            stamp = path.stat().st_mtime_ns
        if stamp != judged:
            judged = stamp
            once()
