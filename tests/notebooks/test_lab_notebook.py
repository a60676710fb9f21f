"""The lab notebook: every example shows its rows, and what it counts itself is right."""

import re
from pathlib import Path

import numpy as np
import pytest

import lab_notebook
from tests.helpers import counted

EXAMPLES = [name for name in vars(lab_notebook) if name.startswith("example_")]
TEXT = Path(lab_notebook.__file__).read_text(encoding="utf-8")
ROWLESS = {"example_parameters", "example_leaving"}  # what they show is computed


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_its_rows(name, few_phrases, capsys):
    shown = getattr(lab_notebook, name)()
    if shown is None:
        assert name == "example_leaving" and "rows of all steps" in capsys.readouterr().out
    elif hasattr(shown, "iloc"):
        assert len(shown) > 1
    else:
        assert shown.to_dict()["$schema"]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ROWLESS])
def test_without_rows_an_example_shows_nothing(name, monkeypatch):
    monkeypatch.setattr(lab_notebook, "saved_rows", lambda name: [])
    assert getattr(lab_notebook, name)() is None


def test_every_section_is_in_the_list():
    assert re.findall(r"^# ## (.*)", TEXT, re.M)[:-1] == re.findall(r"^# > \| \[([^\]]+)\]", TEXT, re.M)


def test_the_threshold_leaves_so_much_of_students_distribution_outside():
    """The density with two degrees of freedom, added up."""
    for chance in (0.2, 0.05, 0.002):
        t = np.linspace(-lab_notebook.threshold(chance), lab_notebook.threshold(chance), 200_001)
        inside = np.trapezoid((1 + t**2 / 2) ** -1.5 / (2 * 2**0.5), t)
        assert inside == pytest.approx(1 - chance, abs=1e-6)


def test_a_difference_is_taken_seed_by_seed(monkeypatch):
    """Catches seeds that are paired in the order of the rows, and variants that lack a seed."""
    rows = [{"variant": "base", "seed": seed, "bleu": 10.0 * seed} for seed in (0, 1, 2)]
    rows += [{"variant": "other", "seed": seed, "bleu": 10.0 * seed + more} for seed, more in ((2, 3), (0, 1), (1, 2))]
    rows += [{"variant": "half", "seed": 0, "bleu": 99.0}]
    monkeypatch.setattr(lab_notebook, "saved_rows", lambda name: rows)
    found = lab_notebook.miniature()
    assert list(found) == ["base", "other"]
    mean, reach = lab_notebook.difference(found["other"], found["base"], "bleu", 0.05)
    assert mean == pytest.approx(2) and reach == pytest.approx(4.3027 / 3**0.5, abs=1e-3)


def test_what_is_said_of_the_miniature_is_in_its_rows():
    """Of both documents; catches a sentence that its rows no longer carry."""
    found, best = lab_notebook.miniature(), {}
    base = found.pop("base")
    mean = lambda name, key: lab_notebook.difference(found[name], base, key, 0.05)[0]  # noqa: E731
    document = Path(lab_notebook.__file__).with_name("the_annotated_transformer.py").read_text(encoding="utf-8")
    lab, document = (re.sub(r"\s*\n# > ", " ", text) for text in (TEXT, document))
    greedy, beam, penalty = (f"{mean('rotary', key):.1f}" for key in ("bleu", "bleu_beam", "bleu_alpha_best"))
    assert (
        f"greedy decoding gains {greedy} BLEU. With five beams it's {beam}," in lab
        and f"for each run it's {penalty}." in lab
    )
    assert f"it gains {greedy} with greedy decoding and {beam} with five beams" in document
    assert f"rotary positions gain {greedy} BLEU with greedy decoding and {beam} with five beams" in document
    for key in ("bleu", "bleu_beam"):
        assert round(mean("positions = none", key)) == -6 and mean("dropout = 0.25", key) < -4
        assert round(mean("adam pre", key)) == -2
    for row in lab_notebook.saved_rows("tuning"):
        best[row["recipe"]] = min(best.get(row["recipe"], row), row, key=lambda row: row["val_loss"])
    assert f"with {best['muon pre']['bleu']:.1f} BLEU" in lab and f"it reaches {best['muon post']['bleu']:.1f}." in lab
    assert f"Adam with pre-norm reaches {best['adam pre']['bleu']:.1f} (" in lab
    assert best["muon post"]["factor"] == best["muon pre"]["factor"] / 2 and best["adam pre"]["warmup"] == 400


def test_parameter_counts_of_table_3():
    """Catches a missing or extra matrix: one vocabulary must explain the paper's totals of all base-size variants."""
    fits = set(range(30_000, 45_000))
    for variant, (sizes, millions) in lab_notebook.TABLE_3.items():
        body = lab_notebook.body_parameters(**sizes)
        assert body == counted(**sizes), variant
        if variant != "big":  # the only model whose total needs another vocabulary
            d_model = sizes.get("d_model", 512)
            fits &= {V for V in fits if abs(body + V * d_model - millions * 1e6) <= 0.5e6}
    assert fits
