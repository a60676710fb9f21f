"""The benchmark of `doctor`: its cases, and a row of one that hardly trains."""

import pytest

from benchmarks import doctor
from practice.mistakes import CATALOGUE
from translator.sources import load_pairs


def test_each_case_expects_what_it_makes():
    """Twelve: eight mistakes that the catalogue knows, two healthy runs, two stopped early."""
    verdicts = [case.expected for case in doctor.CASES.values()]
    assert [verdicts.count(name) for name in ("resembles", "healthy", "undertrained")] == [8, 2, 2]
    for case in doctor.CASES.values():
        assert (case.mistake in CATALOGUE) == (case.expected == "resembles")


@pytest.mark.parametrize("misaligned", [False, True])
def test_lines_slip_by_one_where_they_should(tmp_path, misaligned):
    folder = doctor.text(tmp_path, misaligned)
    pairs, lines = load_pairs("captions", "train"), load_pairs(str(folder), "train")
    assert lines[0] == (pairs[0][0], pairs[misaligned][1]) and len(lines) == len(pairs)


def test_a_row_says_what_doctor_said(rows_of, tmp_path, monkeypatch):
    """Of a run that sees the future, and knows next to nothing; given again, it has its row."""
    small = {"N": 1, "d_model": 16, "d_ff": 16, "bpe": 60}
    case = doctor.Case("resembles", "no_causal_mask", 2, small)
    monkeypatch.setattr(doctor, "CASES", {"sees the future": case})
    monkeypatch.setattr(doctor, "SIZES", {"tokens_per_batch": 400})
    monkeypatch.setattr("translator.doctor.SOME", 12)
    for _ in range(2):
        (row,) = rows_of("doctor --runs", tmp_path / "runs")
    assert row["verdict"] == "resembles" and row["named"]
    assert row["resembles"][0] == "no_causal_mask"
