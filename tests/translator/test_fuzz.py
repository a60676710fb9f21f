"""Random input: descriptions of models, settings, the command line; it works or has one line.

`make soak` tries more.
"""

import copy
import io
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.helpers import SOAK, caption_files
from translator.__main__ import main
from translator.settings import PRESETS

SIZES = "--N 1 --d-model 8 --d-ff 8 --h 1 --bpe 50 --tokens-per-batch 300"


def examples(few: int, many: int) -> settings:
    """So many examples, or more of them for `make soak`; the same ones each time in `make test`."""
    always = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
    return settings(max_examples=many if SOAK else few, derandomize=not SOAK, **always)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two updates on a few pairs, which are in the folder `data` beside it."""
    folder = tmp_path_factory.mktemp("fuzz")
    caption_files(folder / "data", train=30, val=5)
    command = f"train --data {folder / 'data'} --run {folder / 'run'} {SIZES} --steps 2"
    assert outcome(command.split())[0] == 0
    return folder / "run"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A place for the folder of an example."""
    return tmp_path_factory.mktemp("example") / "folder"


def fresh(folder: Path, run: Path | None = None) -> Path:
    """A folder without what the last example left: empty, or a run without its checksums."""
    shutil.rmtree(folder, ignore_errors=True)
    if run:
        shutil.copytree(run, folder)
        (folder / "SHA256SUMS").unlink()
    else:
        folder.mkdir()
    return folder


def outcome(arguments: list[str]) -> tuple[int, str]:
    """The exit status of a command and what it writes on standard error."""
    device = os.environ["ANNOTATED_DEVICE"]
    out, error = (io.TextIOWrapper(io.BytesIO()) for _ in range(2))
    with redirect_stdout(out), redirect_stderr(error):
        status = main(arguments)
        error.seek(0)
        os.environ["ANNOTATED_DEVICE"] = device  # --device sets it
        return status, error.read()


def refused_well(arguments: list[str]) -> bool:
    """Whether a command is refused, with a line and status 2; asserts that all else is well."""
    status, error = outcome(arguments)
    lines = error.splitlines()
    assert status in (0, 2), (arguments, error)
    notes = lines[: -1 if status else None]
    assert all(line.startswith("note: ") for line in notes), (arguments, error)
    assert status == 0 or lines[-1].startswith("error: "), (arguments, error)
    return status == 2


# --- Files of a model and of a run ---
scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
)


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The keys that lead to each part of a JSON value; of long lists, to the first entries."""
    inner = enumerate(value) if isinstance(value, list) else ()
    inner = list(value.items() if isinstance(value, dict) else inner)[:30]
    return [path, *(place for key, part in inner for place in places(part, (*path, key)))]


def changed(value: Any, place: tuple, new: Any, delete: bool) -> Any:
    """A JSON value with another part in one place, or without it."""
    if not place:
        return new
    value = copy.deepcopy(value)
    holder = value
    for key in place[:-1]:
        holder = holder[key]
    if delete:
        del holder[place[-1]]
    else:
        holder[place[-1]] = new
    return value


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
@examples(30, 3_000)
@given(data=st.data())
def test_a_changed_description_of_a_model_is_read_or_refused(run, folder, name, data):
    """Any part of a file replaced or taken away; what is read is a whole translator."""
    whole = json.loads((fresh(folder, run) / name).read_text(encoding="utf-8"))
    place = data.draw(st.sampled_from(places(whole)))
    now = changed(whole, place, data.draw(values), data.draw(st.booleans()))
    (folder / name).write_text(json.dumps(now), encoding="utf-8", errors="surrogatepass")
    refused_well(["translate", "Hund 1", "--beam", "1", "--model", str(folder)])


# --- The command line ---
WORDS = """train translate evaluate average explain export captions multi30k hf: val cpu meta never
    --run --model --data --split --out --beam --alpha --last --json --input --output --device --to
    --quantization --src --tgt --start-from --patience --shard --help --version -- -1 0 1 2 nan
    1e999 . = --= --beam=x"""
STRANGE = "-1 0 1 2 3 0.5 1e-9 nan inf -inf x pre none all"  # values of settings
words = st.sampled_from([*WORDS.split(), ""])


@examples(50, 20_000)
@given(arguments=st.lists(words | st.text(max_size=5), max_size=6))
def test_any_arguments_are_a_command_or_a_line(empty_folder, arguments):
    """None of these trains for long: `train` always gets one update of a small model as well."""
    if "train" in arguments[:1]:
        arguments = [*arguments, *SIZES.split(), "--steps", "1"]
    refused_well(arguments)


@pytest.fixture(scope="module")
def empty_folder(tmp_path_factory) -> Iterator[None]:
    """An empty folder to work in, an empty standard input, and no network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("here"))
        patch.setenv("MULTI30K_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.setattr("translator.sources.MULTI30K_URL", "http://127.0.0.1:9/")
        patch.setattr("time.sleep", lambda seconds: None)
        with open("empty", "w+b") as empty:
            patch.setattr("sys.stdin", io.TextIOWrapper(empty))
            yield


@examples(25, 2_000)
@given(data=st.data())
def test_any_settings_are_trained_with_or_refused(run, folder, data):
    """Up to two settings with strange values, in a run of one update."""
    names = st.sampled_from([name.replace("_", "-") for name in PRESETS["tiny"].__dict__])
    options = data.draw(st.dictionaries(names, st.sampled_from([*STRANGE.split(), ""]), max_size=2))
    command = f"train --data {run.parent / 'data'} --run {fresh(folder) / 'run'} --steps 1"
    small = {"N": "1", "d-model": "8", "d-ff": "8", "h": "1", "bpe": "50"}
    small |= {"tokens-per-batch": "300"} | options
    chosen = (part for name, value in small.items() for part in (f"--{name}", value))
    refused_well([*command.split(), *chosen])
