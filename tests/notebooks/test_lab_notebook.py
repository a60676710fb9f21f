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
    """Catches seeds that are paired in the order of the rows, variants that lack a seed, and another machine's base."""
    rows = [{"variant": "base", "seed": seed, "bleu": 10.0 * seed} for seed in (0, 1, 2)]
    rows += [{"variant": "other", "seed": seed, "bleu": 10.0 * seed + more} for seed, more in ((2, 3), (0, 1), (1, 2))]
    rows += [{"variant": "half", "seed": 0, "bleu": 99.0}]
    rows = [row | {"machine": {}, "bleu": row["bleu"] + 50} for row in rows] + [
        row | {"machine": {"accelerator": "one"}} for row in rows
    ]
    monkeypatch.setattr(lab_notebook, "saved_rows", lambda name: rows)
    found = lab_notebook.miniature()
    assert list(found) == ["base", "other", "base (CPU)", "other (CPU)"]
    for name in ("other", "other (CPU)"):
        mean, reach = lab_notebook.difference(found[name], lab_notebook.base_of(found, name), "bleu", 0.05)
        assert mean == pytest.approx(2) and reach == pytest.approx(4.3027 / 3**0.5, abs=1e-3)


def test_what_is_said_of_the_miniature_is_in_its_rows():
    """Of both documents; catches a sentence that its rows no longer carry."""
    found, best = lab_notebook.miniature(), {}
    document = Path(lab_notebook.__file__).with_name("the_annotated_transformer.py").read_text(encoding="utf-8")
    lab, document = (re.sub(r"\s*\n# > ", " ", text) for text in (TEXT, document))

    def mean(name, key="bleu_beam"):
        return lab_notebook.difference(found[name], lab_notebook.base_of(found, name), key, 0.05)[0]

    greedy, beam, head = f"{mean('rotary', 'bleu'):.1f}", f"{mean('rotary'):.1f}", f"{mean('h = 1'):.1f}"
    gains = f"{greedy} BLEU with greedy decoding and {beam} with five beams"
    assert f"positions gain {gains}." in lab and f"rotary positions gain {gains} in" in document
    assert f"it gains {gains.replace(' BLEU', '')}." in document
    assert f"by {head} BLEU with five beams" in lab and f"One head (A) is {head} BLEU *better*" in document
    assert f"It gains {mean('modern', 'bleu'):.1f} with greedy decoding" in lab
    costs = {name: f"{-mean(name):.1f}" for name in ("d_k = 8", "dropout = 0.1", "positions = learned")}
    assert f"of width 8 cost {costs['d_k = 8']} BLEU" in lab and f"keys (B) cost {costs['d_k = 8']}." in document
    assert (
        f"costs {costs['dropout = 0.1']} BLEU at 0.1" in lab and f"0.1 costs {costs['dropout = 0.1']} and" in document
    )
    assert f"Learned positions are {costs['positions = learned']} BLEU worse" in lab
    assert f"Learned positions (E) are {costs['positions = learned']} worse" in document
    assert f"cost {-mean('N = 2', 'bleu'):.1f} with greedy decoding (C)" in lab
    assert f"cost {-mean('words (CPU)', 'bleu'):.1f} BLEU with greedy" in lab
    assert round(mean("smoothing = 0.0"), 1) == -0.4 and round(mean("smoothing = 0.0", "bleu_alpha_best"), 1) == -0.6
    for key in ("bleu", "bleu_beam"):
        assert -6.2 < mean("positions = none", key) < -5 and mean("dropout = 0.25", key) < -4
        assert round(mean("adam pre (CPU)", key)) == -2
    for row in lab_notebook.saved_rows("tuning"):
        best[row["recipe"]] = min(best.get(row["recipe"], row), row, key=lambda row: row["val_loss"])
    assert f"with {best['muon pre']['bleu']:.1f} BLEU" in lab and f"it reaches {best['muon post']['bleu']:.1f}." in lab
    assert (
        f"Adam reaches {best['adam pre']['bleu']:.1f} with pre-norm, and {best['adam post']['bleu']:.1f} with post-norm"
        in lab
    )
    assert best["muon post"]["factor"] == best["muon pre"]["factor"] / 2 and {
        best[f"adam {norm}"]["warmup"] for norm in ("pre", "post")
    } == {400}


def test_what_is_said_of_rotary_positions_is_in_its_rows():
    """Of both documents, and the lab notebook's table; catches a sentence that its rows no longer carry."""
    document = Path(lab_notebook.__file__).with_name("the_annotated_transformer.py").read_text(encoding="utf-8")
    lab, document = (re.sub(r"\s*\n# > ", " ", text) for text in (TEXT, document))
    scores = {}
    for row in lab_notebook.saved_rows("first_stage"):
        for split in ("val", "test_2016_flickr"):
            scores.setdefault((row["direction"], row["variant"], split), []).append(row[split]["beam"]["bleu"])
    assert {len(found) for found in scores.values()} == {3}
    means = {key: f"{sum(found) / 3:.1f}" for key, found in scores.items()}
    more = {key: f"{(sum(found) - sum(scores[key[0], 'base', key[2]])) / 3:.1f}" for key, found in scores.items()}
    there, there_base, back, back_base = (
        means[direction, variant, "test_2016_flickr"]
        for direction in ("de-en", "en-de")
        for variant in ("rotary", "base")
    )
    assert (
        f"give {there} BLEU in place of {there_base} from German" in lab
        and f"{back} in place of {back_base} from" in lab
    )
    there, back = (more[d, "rotary", "test_2016_flickr"] for d in ("de-en", "en-de"))
    assert f"they gain {there} on the test set from German to English, and {back} from" in document
    there, back = (more[d, "rotary", "val"] for d in ("de-en", "en-de"))
    assert (
        f"{back} more from English to German, and from German to English {there} more, but one seed of three lost"
        in lab
    )
    shown = lab_notebook.example_rotary()
    assert len(shown.data if hasattr(shown, "data") else shown) == 6


def test_what_is_said_of_the_accelerator_is_in_its_rows():
    """Catches a sentence that its rows no longer carry."""
    lab, speed, reached = re.sub(r"\s*\n# > ", " ", TEXT), {}, {}
    for row in lab_notebook.saved_rows("accelerator"):
        speed[row["preset"], row["way"]] = row["tokens_per_second"]
        reached.setdefault(row["way"].split(",")[0], []).append(row["matrix_tflops"])
        assert row["losses"][1] < row["losses"][0] and row["way"] == "float32" or row["mfu"] < 0.32
    gain = lambda preset, way: speed[preset, way] / speed[preset, "float32"]  # noqa: E731
    best = {preset: max(gain(*key) for key in speed if key[0] == preset) for preset in ("small", "base", "big")}
    assert f"compiled, `big` learns {best['big']:.1f} times" in lab and f"`base` {best['base']:.1f} times" in lab
    assert 1.1 < best["small"] < 1.2 and gain("small", "bfloat16") < 1
    for numbers, said in (("float32", 52), ("TF32", 440), ("bfloat16", 870)):
        assert all(abs(tflops / said - 1) < 0.05 for tflops in reached[numbers])


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
