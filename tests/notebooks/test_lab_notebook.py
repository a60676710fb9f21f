"""The lab notebook: every example shows its rows, and what it counts itself is right."""

import re
from pathlib import Path

import numpy as np
import pytest

import lab_notebook
from benchmarks import miniature
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

    def interval(name, key="bleu_beam"):
        middle, reach = lab_notebook.difference(found[name], lab_notebook.base_of(found, name), key, 0.05)
        return f"{abs(middle):.1f} ± {reach:.1f}"

    for sentence in (
        f"ahead of four of 32, by {interval('h = 1')};", f"of width 8 cost {interval('d_k = 8')},",
        f"cost {interval('N = 2')}, which can't be told from chance, but {interval('N = 2', 'bleu')} with greedy",
        f"costs {interval('dropout = 0.1')} at 0.1, the paper's value, and {interval('dropout = 0.25')} at 0.25",
        f"here by {interval('smoothing = 0.0')}.", f"the model loses {interval('positions = none')}.",
        f"Learned positions are {interval('positions = learned')} worse",
        f"positions gain {interval('rotary')}, and {interval('rotary', 'bleu')} with greedy",
        f"parameters: +{interval('modern')}, and {interval('modern', 'bleu')} with greedy",
        f"in place of pieces cost {interval('words (CPU)')},", f"is {interval('adam pre (CPU)')} behind Muon",
        f"positions gain {interval('rotary (CPU)')} on the CPU",
    ):  # fmt: skip
        assert sentence in lab, sentence
    assert mean("rotary", "val_perplexity") < mean("modern", "val_perplexity") < 0 < mean("h = 1")
    narrow, base = found["d_k = 8"], found["base"]
    assert all(narrow[seed]["val_perplexity"] > base[seed]["val_perplexity"] for seed in base)
    assert f"keys (B) cost {-mean('d_k = 8'):.1f} BLEU" in document
    assert f"0.1 costs {-mean('dropout = 0.1'):.1f} and 0.25 more than four" in document and mean("dropout = 0.25") < -4
    assert f"(E) are {-mean('positions = learned'):.1f} worse" in document and -6 < mean("positions = none") < -5
    assert f"it gains {mean('rotary'):.1f}." in document
    assert f"rotary positions gain {mean('rotary'):.1f} BLEU with five beams" in document
    others = len(miniature.VARIANTS) - len({name.removesuffix(lab_notebook.CPU) for name in found})
    assert others == 17 and "knows seventeen other variants" in lab
    apart = [
        abs(row["bleu_beam"] - found[name + lab_notebook.CPU][seed]["bleu_beam"])
        for name in found if name + lab_notebook.CPU in found for seed, row in found[name].items()
    ]  # fmt: skip
    assert "lie 0.5 BLEU apart on average, and up to 1.3" in lab and f"{sum(apart) / len(apart):.1f}" == "0.5"
    assert f"{max(apart):.1f}" == "1.3"
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
    places = [(direction, variant) for direction in ("de-en", "en-de") for variant in ("rotary", "base")]
    there, there_base, back, back_base = (means[*place, "test_2016_flickr"] for place in places)
    assert (
        f"give {there} BLEU in place of {there_base} from German" in lab
        and f"{back} in place of {back_base} from" in lab
    )
    by_seed = {}
    for row in lab_notebook.saved_rows("first_stage"):
        found = {
            (split, kind): row[split][kind]["bleu"]
            for split in ("val", "test_2016_flickr")
            for kind in ("greedy", "beam")
        }
        by_seed.setdefault((row["direction"], row["variant"]), {})[row["seed"]] = found | {"ppl": row["val_perplexity"]}
    gain = {
        (direction, key): lab_notebook.difference(by_seed[direction, "rotary"], by_seed[direction, "base"], key, 0.05)
        for direction in ("de-en", "en-de") for key in by_seed["de-en", "base"][0] if key != "ppl"
    }  # fmt: skip
    assert len(gain) == 8 and all(mean > 0 for mean, _ in gain.values())
    assert sum(mean > reach for mean, reach in gain.values()) == 5
    assert all(round(mean) == 1 for (_, (_, kind)), (mean, _) in gain.items() if kind == "greedy")
    told = {key: f"{mean:.1f} ± {reach:.1f}" for key, (mean, reach) in gain.items()}
    test, val = (
        [told[direction, (split, "beam")] for direction in ("de-en", "en-de")] for split in ("test_2016_flickr", "val")
    )
    assert f"({test[0]} more)" in lab and f"({test[1]})" in lab and f"gain {val[0]} and {val[1]}." in lab
    for direction in ("de-en", "en-de"):
        rotary, base = by_seed[direction, "rotary"], by_seed[direction, "base"]
        assert all(rotary[seed]["ppl"] < base[seed]["ppl"] for seed in base)
    assert "and about one with greedy decoding in [long ones]" in document
    shown = lab_notebook.example_rotary()
    assert len(shown.data if hasattr(shown, "data") else shown) == 6


def test_what_is_said_of_the_accelerator_is_in_its_rows():
    """Catches a sentence that its rows no longer carry."""
    lab, speed, reached = re.sub(r"\s*\n# > ", " ", TEXT), {}, {}
    for row in lab_notebook.saved_rows("accelerator"):
        speed[row["preset"], row["way"]] = row["tokens_per_second"]
        reached.setdefault(row["way"].split(",")[0], []).append(row["matrix_tflops"])
        assert row["losses"][1] < row["losses"][0]
        if row["way"].startswith("bfloat16"):
            assert row["mfu"] < 0.27  # "a quarter"
    gain = lambda preset, way, than="float32": f"{speed[preset, way] / speed[preset, than]:.1f}"  # noqa: E731
    short, compiled = "bfloat16", "bfloat16, compiled"
    assert f"TF32 makes `base` {gain('base', 'TF32')} and `big` {gain('big', 'TF32')} times as fast" in lab
    assert f"bfloat16 {gain('base', short)} and {gain('big', short)} times; bfloat16 with compiled layers" in lab
    assert f"compiled layers {gain('base', compiled)} and {gain('big', compiled)} times." in lab
    assert f"effect on such short sentences: {gain('small', 'bfloat16, fused', short)} times as fast for `small`" in lab
    assert f"{gain('base', 'bfloat16, fused, compiled', compiled)} times for `base` with it" in lab
    assert {gain("big", "bfloat16, fused", short), gain("big", "bfloat16, fused, compiled", compiled)} == {"1.0"}
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
