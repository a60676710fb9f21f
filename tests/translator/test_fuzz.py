"""Random input: readers of data, configurations, vocabularies, weights, states, the command line.

Each either works or raises ValueError or an OSError with one line, which the command line prints.
`make soak` tries more.
"""

import copy
import io
import json
import os
import random
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
from translator.corpus import read_tokenizer
from translator.files import model_folder, read_tensors
from translator.model_folder import read_translator
from translator.run_log import read_log
from translator.settings import PRESETS
from translator.sources import decoded_lines, load_pairs

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


# --- Text ---
text = st.binary(max_size=60) | st.text(max_size=30).map(str.encode)
text |= st.text("a \n\r\0\x1c\u2028\ufeff").map(str.encode)


@examples(100, 10_000)
@given(sides=st.tuples(text, text), packed=st.booleans())
def test_any_bytes_are_pairs_or_a_named_error(folder, sides, packed):
    fresh(folder)
    for language, content in zip(("de", "en"), sides, strict=True):
        (folder / f"train.{language}{'.gz' if packed else ''}").write_bytes(content)
    try:
        pairs = load_pairs(str(folder), "train")
    except ValueError as error:
        assert str(folder) in str(error)
    else:
        assert all("\n" not in side for pair in pairs for side in pair)
        assert len(pairs) == len(sum(decoded_lines(io.BytesIO(sides[0]), ""), []))


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
@examples(60, 3_000)
@given(data=st.data())
def test_a_changed_description_of_a_model_is_read_or_refused(run, folder, name, data):
    """Any part of a file replaced or taken away; what is read is a whole translator."""
    whole = json.loads((fresh(folder, run) / name).read_text(encoding="utf-8"))
    place = data.draw(st.sampled_from(places(whole)))
    now = changed(whole, place, data.draw(values), data.draw(st.booleans()))
    (folder / name).write_text(json.dumps(now), encoding="utf-8", errors="surrogatepass")
    refused_well(["translate", "Hund 1", "--beam", "1", "--model", str(folder)])


@examples(30, 1_200)
@given(data=st.data())
def test_changed_bytes_of_weights_and_states_are_noticed_or_harmless(run, folder, data):
    """Also without the checksums of the folder."""
    files = ["model.safetensors", "checkpoints/state.safetensors", "log.jsonl"]
    name = data.draw(st.sampled_from(files))
    path = fresh(folder, run) / name
    before = read_tensors(path)[0] if path.suffix == ".safetensors" else None
    content, draw = bytearray(path.read_bytes()), random.Random(data.draw(st.integers(0, 2**32)))
    for _ in range(draw.randint(1, 4)):
        start = draw.randrange(min(len(content), draw.choice([16, 2_000, 10**9])))
        content[start : start + draw.randint(0, 8)] = draw.randbytes(draw.randint(0, 8))
    path.write_bytes(content)
    if before is not None:
        try:
            after = read_tensors(path)[0]
        except ValueError as error:
            assert str(path) in str(error)
        else:
            assert after.keys() == before.keys()
            assert all(after[key].equal(before[key]) for key in before)
    read_log(folder)
    refused_well(f"train --data {run.parent / 'data'} --run {folder} {SIZES} --steps 3".split())


# --- The command line ---
WORDS = """train translate evaluate average explain export captions multi30k hf: val cpu meta never
    --run --model --data --split --out --beam --alpha --last --json --input --output --device --to
    --quantization --src --tgt --start-from --patience --shard --help --version -- -1 0 1 2 nan
    1e999 . = --= --beam=x"""
STRANGE = "-1 0 1 2 3 0.5 1e-9 nan inf -inf x pre none all"  # values of settings
words = st.sampled_from([*WORDS.split(), ""])


@examples(75, 20_000)
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


@examples(50, 2_000)
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


@examples(12, 600)
@given(
    lines=st.lists(st.text(max_size=40) | st.text("Hund .,", max_size=40), min_size=1, max_size=5)
)
def test_any_text_is_translated_line_by_line(run, folder, lines):
    """As many lines come out as went in."""
    fresh(folder)
    lines = [line.replace("\n", " ").encode("utf-8", "replace") for line in lines]
    (folder / "in").write_bytes(b"".join(line + b"\n" for line in lines))
    arguments = f"translate --model {model_folder()} --beam 1"
    arguments += f" --input {folder / 'in'} --output {folder / 'out'}"
    refused_well(arguments.split())  # where a line with text comes out empty
    assert len((folder / "out").read_text(encoding="utf-8").split("\n")) == len(lines) + 1
    assert read_tokenizer(run / "tokenizer.json") and read_translator(run)
