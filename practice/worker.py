"""The process in which a reader's file runs for the judge: it answers calls with what came of them.

    python worker.py mine.py    calls come pickled on standard input, answers go to standard output

It imports NumPy and nothing of ours, so that it is there at once. The file may print, raise, loop,
ask for all memory or end the process: none of that reaches the judge.
"""

import dis
import functools
import importlib.util
import io
import os
import pickle
import sys
import threading
import time
import traceback
import types
from contextlib import redirect_stdout, suppress
from typing import Any, BinaryIO

import numpy as np

SHARE = 0.8  # of the machine's memory that a file may ask for


def limit_memory() -> None:
    """Make a request for too much memory a MemoryError of the file, where the system can."""
    with suppress(ImportError, OSError, ValueError):  # not on Windows; macOS has no such limit
        import resource

        limit = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * SHARE)
        resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def complaint(error: BaseException, path: str) -> str:
    """What went wrong, with the last line of the reader's file on the way there."""
    if isinstance(error, SyntaxError) and error.filename == path:
        return f"line {error.lineno}: SyntaxError: {error.msg}"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    stem = os.path.splitext(os.path.basename(path))[0]
    if isinstance(error, (AttributeError, ImportError)) and f"'{stem}'" in str(error):
        what += f" (your file is called {stem}, so `import {stem}` finds it: rename it)"
    mine = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
    return f"line {mine[-1].lineno}, {mine[-1].line}: {what}" if mine else what


def load(path: str) -> Any:
    """The file as a module; its folder can be imported from, as when it is run."""
    sys.path.insert(0, os.path.dirname(path))
    spec = importlib.util.spec_from_file_location("mine", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def given(value: Any, take: Any) -> Any:
    """Arguments with each array as the file wants to have it."""
    if isinstance(value, dict):
        return {name: given(item, take) for name, item in value.items()}
    if isinstance(value, list):
        return [given(item, take) for item in value]
    return take(value) if isinstance(value, np.ndarray) else value


@functools.cache
def called(module: Any, function: str) -> list[str]:
    """Names of the file that one of its functions uses, by itself or through others."""
    found, todo = [function], [getattr(module, function, None)]
    while todo:
        value = todo.pop()
        if getattr(value, "__module__", "mine") != "mine":
            continue  # a library's
        if isinstance(value, type):
            todo += vars(value).values()
        code = getattr(value, "__code__", value)
        if isinstance(code, types.CodeType):
            todo += code.co_consts  # the code of what is defined inside
            for one in dis.get_instructions(code):
                if one.opname == "LOAD_GLOBAL" and one.argval not in found:
                    found.append(one.argval)
                    todo.append(getattr(module, one.argval, None))
        elif not isinstance(value, type):
            todo += [type(value)] if type(value).__module__ == "mine" else []
    return found[1:]


def array(value: Any) -> np.ndarray:
    """What a function gave, as numbers; a tensor that has a gradient is taken without it."""
    with suppress(AttributeError):
        value = value.detach().cpu()
    found = np.asarray(value)
    if found.dtype.kind not in "biuf":
        kind = type(value).__name__
        raise TypeError(f"gives {kind}, which numpy.asarray doesn't read as numbers")
    return found


def answer(module: Any, function: str, arguments: tuple, parts: int) -> dict[str, Any]:
    """Call a function of the file: its result, as `parts` arrays if several, or what is wrong."""
    if not callable(call := getattr(module, function, None)):
        return {"error": f"there is no function {function}"}
    printed = io.StringIO()
    with redirect_stdout(printed):
        handed = given(list(arguments), getattr(module, "take", lambda array: array))
        before = pickle.dumps(handed)
        result = call(*handed)
        if result is None:
            return {"error": f"{function} gives nothing: a `return` is missing, or not reached"}
        if parts and (not hasattr(result, "__len__") or len(result) != parts):
            return {"error": f"{function} should give {parts} things"}
        found = [array(part) for part in result] if parts else array(result)
    said = {"result": found, "printed": printed.getvalue()[:200]}
    if pickle.dumps(handed) != before:
        said["changed"] = True
    return said


def main(path: str) -> None:
    """Answer calls until there are no more."""
    calls, out = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # a call isn't what the file may read,
    os.dup2(2, 1)  # and what it prints isn't an answer
    limit_memory()
    try:
        module: Any = load(path)
    except BaseException as error:  # SystemExit, too: a script that wasn't made to be imported
        module = complaint(error, path)
    while True:
        try:
            function, arguments, parts, seconds = pickle.load(calls)
        except EOFError:
            return
        if isinstance(module, str):
            send(out, {"error": module, "fatal": True})
            continue
        stop = threading.Event()
        watch = threading.Thread(target=end_when_late, args=(out, path, seconds, stop), daemon=True)
        watch.start()
        try:
            said = answer(module, function, arguments, parts)
        except NotImplementedError as error:
            said = {"error": complaint(error, path), "empty": True}
        except BaseException as error:
            said = {"error": complaint(error, path)}
        stop.set()
        send(out, said | {"calls": called(module, function)})


def end_when_late(out: BinaryIO, path: str, seconds: float, stop: threading.Event) -> None:
    """Say where the file is when its time is over, and end the process.

    Time is the processor's, so that a busy machine is no fault of the file's; one that only sleeps
    has four times as long.
    """
    end, busy = time.monotonic() + 4 * seconds, time.process_time() + seconds
    while time.monotonic() < end and time.process_time() < busy:
        if stop.wait(0.1):
            return
    frame, line = sys._current_frames()[threading.main_thread().ident], None
    while frame and line is None:
        line = frame.f_lineno if frame.f_code.co_filename == path else None
        frame = frame.f_back
    send(out, {"error": f"line {line}: no answer within {seconds:g} seconds", "late": True})
    os._exit(1)


def send(out: BinaryIO, said: dict[str, Any]) -> None:
    """One answer."""
    pickle.dump(said, out)
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1])
