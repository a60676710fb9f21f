"""What the tests of the benchmarks share: running one, and a trained model as small as can be."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import __main__ as door
from translator.__main__ import main


@pytest.fixture
def rows_of(tmp_path, tmp_path_factory, monkeypatch) -> Callable[..., list[dict]]:
    """Runs a benchmark with one thread a process, and gives all its rows; none names a folder."""
    monkeypatch.chdir(Path(__file__).resolve().parents[2])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out = tmp_path / "rows.jsonl"

    def run(command: str, *more: str | Path, status: int = 0) -> list[dict]:
        assert door.main([*command.split(), *map(str, more), "--out", str(out)]) == status
        lines = out.read_text(encoding="utf-8").splitlines() if out.exists() else []
        assert str(tmp_path_factory.getbasetemp()) not in "".join(lines)
        return [json.loads(line) for line in lines]

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A run of one update on captions; with few merges, words split into pieces."""
    run = tmp_path_factory.mktemp("runs") / "run"
    sizes = "--N 2 --d-model 16 --d-ff 16 --h 2 --bpe 100"
    assert main(f"train --data captions --steps 1 {sizes} --run {run}".split()) == 0
    return run
