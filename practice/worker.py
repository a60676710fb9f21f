"""The process in which a reader's file runs for the judge: it answers calls with what came of them.

    python worker.py mine.py 10    its seconds to be loaded; calls come pickled on standard input,
                                   answers go to standard output

The first answer says that the file was loaded. It imports NumPy and nothing of ours, so that it is
there at once. The file may print, raise, loop, ask for all memory or end the process: none of that
reaches the judge.
"""

import functools
import importlib.util
import io
import json
import linecache
import os
import pickle
import queue
import re
import sys
import threading
import time
import tokenize
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

SHARE = 0.8  # of the machine's memory that a file may ask for
MODULE = "judged_file"  # a name that no library has: the file's own may be that of one
MAGIC = re.compile(r"^([ \t]*)(?=%{1,2}[a-z]|!\w)", re.M)  # a notebook's line for IPython begins
MOST_LINES = 6  # of a trace
MOST_SHOWN = 2000  # characters of what the file prints
ROOMS = Path(__file__).parent
LEARN = "learn"  # a call that isn't a gate's: its arguments are an action of `learner.py`


def limit_memory() -> None:
    """Make a request for too much memory a MemoryError of the file, where the system can."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows; macOS has no such limit
        import resource

        # of addresses: a request beyond it fails at once, before the machine begins to swap
        limit = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * SHARE)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


class Paper(io.TextIOWrapper):
    """What the file prints, cut short."""

    length = 0

    def write(self, text: str) -> int:
        super().write(text[: max(MOST_SHOWN - self.length, 0)])
        self.length += len(text)
        return len(text)


def cells(path: str) -> list[str]:
    """The code of a notebook, cell by cell; a line for IPython becomes a comment."""
    with open(path, encoding="utf-8-sig") as file:
        notebook = json.load(file)
    # a source is a list of lines, or one text
    sources = (cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "code")
    return [MAGIC.sub(r"\1pass  # ", "".join(source)) + "\n" for source in sources]


def place(number: int, path: str) -> str:
    """Where a line of the file is, as its reader counts."""
    if path.endswith(".ipynb"):
        for cell, text in enumerate(cells(path), 1):
            if number <= (lines := text.count("\n")):
                return f"code cell {cell}, line {number}"
            number -= lines
    return f"line {number}"


def complaint(error: BaseException, path: str) -> str:
    """What went wrong, and the lines of the reader's file on the way there, the last one last."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"{place(error.lineno or 0, path)}: SyntaxError: {error.msg}"
    # the reader's own lines alone: those of libraries and of this file would hide them
    message = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{place(f.lineno or 0, path)}, {f.line}" for f in frames if f.filename == path]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES // 2 : -MOST_LINES // 2] = ["..."]  # of an endless recursion
    return ": ".join(("\n".join(lines), message)) if lines else message


def load(path: str) -> Any:
    """The file as a module, as if it were run; its folder can be imported from."""
    practice = os.path.dirname(os.path.abspath(__file__))  # whose modules the file can't mean
    sys.path[:] = [os.path.dirname(path), *(folder for folder in sys.path if folder != practice)]
    sys.argv = [path]
    if path.endswith(".ipynb"):
        text = "".join(cells(path))
        # for tracebacks and inspect.getsource; the file itself holds JSON
        linecache.cache[path] = len(text), None, text.splitlines(keepends=True), path
    else:
        with tokenize.open(path) as file:
            text = file.read()
    # in sys.modules, where pickle, dataclasses and typing look for what a file defines
    module = sys.modules[MODULE] = types.ModuleType(MODULE)
    module.__file__ = path
    # __name__ is not "__main__": what a script does when it is run isn't done
    exec(compile(text, path, "exec", dont_inherit=True), vars(module))
    return module


def given(value: Any, take: Any) -> Any:
    """Arguments with each array as the file wants to have it."""
    if isinstance(value, dict):
        return {name: given(item, take) for name, item in value.items()}
    if isinstance(value, list):
        return [given(item, take) for item in value]
    return take(value) if isinstance(value, np.ndarray) else value


def names_in(code: types.CodeType) -> Iterator[str]:
    """The names that code uses, by itself or in what is defined inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)


@functools.cache
def called(module: Any, function: str) -> list[str]:
    """Functions of the file that one of them uses, by itself or through others."""
    # The list grows while it is walked through. Each name is in it once, so two functions that call
    # each other come to an end; and only functions of the file itself have code that counts.
    names = [function]
    for name in names:
        value = getattr(module, name, None)
        code = getattr(value, "__code__", None)
        if code and value.__module__ == MODULE:
            names += [used for used in {*names_in(code)} - {*names} if hasattr(module, used)]
    return names[1:]


def array(value: Any) -> np.ndarray:
    """What a function gave, as numbers; a tensor that has a gradient is taken without it."""
    # whatever numpy.asarray reads is an answer; PyTorch's tensors may need two steps before
    with suppress(AttributeError):
        value = value.detach().cpu()
    numbers = np.asarray(value)
    if numbers.dtype.kind not in "biuf":
        raise TypeError(
            f"gives {type(value).__name__}, which numpy.asarray doesn't read as numbers"
        )
    return numbers


def answer(module: Any, function: str, arguments: tuple, parts: int) -> dict[str, Any]:
    """Call a function of the file: its result, as `parts` arrays if several, or what is wrong."""
    # The arguments are copies, made for this call. `take` may turn them into tensors or lists
    # first; what it does wrong is the file's fault, too, and is said to be `take`'s.
    if not callable(call := getattr(module, function, None)):
        return {"error": f"there is no function {function}", "empty": True}
    printed = io.BytesIO()
    paper = Paper(printed, "utf-8", "replace", write_through=True)
    with redirect_stdout(paper):
        try:
            handed = given(list(arguments), getattr(module, "take", lambda array: array))
        except Exception as error:
            message = f"`take`, before {function} is called: {complaint(error, module.__file__)}"
            return {"error": message}
        before = pickle.dumps(handed)  # by which a change in place is seen
        result = call(*handed)
        if result is None:
            return {"error": f"{function} gives nothing: a `return` is missing, or not reached"}
        if parts and (not hasattr(result, "__len__") or len(result) != parts):
            return {"error": f"{function} should give {parts} things"}
        arrays = [array(item) for item in result] if parts else array(result)
    reply: dict[str, Any] = {"result": arrays, "printed": printed.getvalue().decode()[:200]}
    if pickle.dumps(handed) != before:
        reply["changed"] = True
    return reply


@functools.cache
def room(name: str) -> Any:
    """A module beside this one, which the file can't import by mistake."""
    path = ROOMS / f"{name}.py"
    spec: Any = importlib.util.spec_from_file_location(f"{MODULE}_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(path: str, loading_seconds: float) -> None:
    """Load the file, and answer calls until there are no more."""
    # The judge's pipes are taken away from the file first: standard input is empty for it, and what
    # it prints goes to standard error. Then the first answer says whether the file was loaded; from
    # then on, each call gets one.
    calls = os.fdopen(os.dup(0), "rb")
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a call isn't what the file may read,
    os.dup2(2, 1)  # and what it prints isn't an answer
    errors = os.fdopen(os.dup(2), "wb")
    sys.stdout = sys.stderr = Paper(errors, "utf-8", "replace", line_buffering=True)
    limit_memory()
    waiting = queue_of(calls)
    module: Any = None
    late = "the file itself doesn't end within {:g} seconds: put what trains into a function"
    with limited(out, path, loading_seconds, late):
        try:
            module = load(path)
            reply = {}
        except BaseException as error:  # SystemExit, too: a script that wasn't made to be imported
            reply = {"error": complaint(error, path), "fatal": True}
    send(out, reply)
    while True:
        function, arguments, parts, seconds = waiting.get()
        with limited(out, path, seconds, "no answer within {:g} seconds"):
            try:
                if function == LEARN:
                    where = functools.partial(place, path=path)
                    reply = room("learner").answer(module, where, *arguments)
                else:
                    reply = answer(module, function, arguments, parts)
            except NotImplementedError as error:
                reply = {"error": complaint(error, path), "empty": True}
            except BaseException as error:
                reply = {"error": complaint(error, path)}
        send(out, reply | {"calls": called(module, function)})


def queue_of(calls: BinaryIO) -> queue.SimpleQueue:
    """The judge's calls as they come, read by a thread."""
    # So the judge never waits for this process to take one, and the process ends with the judge,
    # whatever the file is at.
    waiting: queue.SimpleQueue = queue.SimpleQueue()

    def read() -> None:
        while True:
            try:
                waiting.put(pickle.load(calls))
            except EOFError:
                os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    return waiting


@contextmanager
def limited(out: BinaryIO, path: str, seconds: float, message: str) -> Iterator[None]:
    """End the process, and say in which line the file is, if what is inside takes too long."""
    stop = threading.Event()
    arguments = out, path, seconds, message, stop
    threading.Thread(target=end_when_late, args=arguments, daemon=True).start()
    yield  # nothing is raised here: every error inside becomes an answer
    stop.set()


def end_when_late(
    out: BinaryIO, path: str, seconds: float, message: str, stop: threading.Event
) -> None:
    """Say where the file is when its time is over, and end the process."""
    # The time is the processor's, so that a busy machine, or a library that comes from a slow disk,
    # is no fault of the file's; four times as long may pass in all.
    start = time.monotonic()
    start_of_computing = time.process_time()
    while not stop.wait(0.1):
        passed = time.monotonic() - start
        if time.process_time() - start_of_computing > seconds or passed > 4 * seconds:
            break
    else:
        return
    # what the main thread is in, the innermost first
    frame = sys._current_frames()[threading.main_thread().ident or 0]
    numbers = (n for f, n in traceback.walk_stack(frame) if f.f_code.co_filename == path)
    number = next(numbers, None)
    where = "in a library" if number is None else place(number, path)
    send(out, {"error": f"{where}: {message.format(seconds)}", "late": True})
    os._exit(1)


def send(out: BinaryIO, reply: dict[str, Any]) -> None:
    """One answer."""
    pickle.dump(reply, out)
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
