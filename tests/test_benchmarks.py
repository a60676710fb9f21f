"""The benchmarks run, and the README quotes nothing but their saved rows."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import the_annotated_transformer as tat
from benchmarks import edition_2022

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"


def rows(name: str) -> list[dict]:
    """The saved rows of a benchmark."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_recreated_edition_is_what_it_says():
    edition_2022.self_check()


def test_the_speed_benchmark_writes_a_row_without_paths_of_the_machine(tmp_path):
    for i, language in enumerate(("de", "en")):
        text = "\n".join(pair[i] for pair in tat.load_pairs("captions", "train")[:64])
        (tmp_path / f"train.{language}").write_text(text, encoding="utf-8")
    command = ["benchmarks/training_speed.py", "--quick", "--presets", "tiny", "--rounds", "1", "--data", str(tmp_path)]
    command += ["--out", str(tmp_path / "rows.jsonl")]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "rows.jsonl").read_text(encoding="utf-8")
    row = json.loads(text)
    assert row["preset"] == "tiny" and row["tokens_per_second"]["2022"]["median"] > 0
    assert str(tmp_path) not in text


def test_saved_rows_say_where_they_come_from():
    for name in ("training_speed", "quality"):
        for row in rows(name):
            assert row["command"].startswith(("python ", "torchrun ")) and re.fullmatch(r"[0-9a-f]{7,}", row["commit"])
            assert row["machine"]["cores"] and row["date"]
    assert all("tok:13a" in row["bleu_signature"] for row in rows("quality"))


def test_the_readme_quotes_saved_rows():
    """Each row of its two tables of results has the figures of a saved row."""
    results = (ROOT / "README.md").read_text(encoding="utf-8").split("## Results")[1].split("\n## ")[0]
    quoted = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in results.splitlines() if line.startswith("| `")
    ]
    quality = [
        [f"`{r['preset']}`", r["split"], f"{r['minutes']:.1f}", f"{r['bleu']:.2f}", f"{r['chrf']:.2f}"]
        for r in rows("quality")
    ]
    speed = [
        [
            f"`{r['preset']}`",
            *(f"{r['tokens_per_second'][e]['median']:,.0f}" for e in ("this", "2022")),
            f"{r['ratio']:.1f}",
        ]
        for r in rows("training_speed")
    ]
    assert len(quoted) >= 4
    for line in quoted:
        assert any(all(cell in line for cell in row) for row in quality + speed), line
