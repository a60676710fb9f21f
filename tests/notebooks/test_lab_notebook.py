"""The lab notebook: every example shows its rows, and what it counts itself is right."""

import functools
import gzip
import hashlib
import math
import re
from pathlib import Path

import numpy as np
import pytest

import lab_notebook as lab
from tests.helpers import counted
from translator.scoring import score
from translator.sources import load_pairs

EXAMPLES = [name for name in vars(lab) if name.startswith("example_")]
TEXT = Path(lab.__file__).read_text(encoding="utf-8")
RESULTS = Path(lab.__file__).parent / "benchmarks" / "results"
ROWLESS = {"example_parameters"}  # what it shows is computed


def shown_table(name):
    """The table that an example shows."""
    result = getattr(lab, name)()
    return getattr(result, "data", result)


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_its_rows(name):
    result = getattr(lab, name)()
    if hasattr(result, "iloc"):
        assert len(result) > 1
    else:
        assert result.to_dict()["$schema"]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ROWLESS])
def test_without_rows_an_example_shows_nothing(name, monkeypatch):
    monkeypatch.setattr(lab, "saved_rows", lambda name: [])
    assert getattr(lab, name)() is None


def test_every_section_is_in_the_list():
    listed = re.findall(r"^# > \| \[([^\]]+)\]", TEXT, re.M)
    assert re.findall(r"^# ## (.*)", TEXT, re.M)[:-1] == listed


def test_a_referee_can_read_it_in_twenty_minutes():
    """At most 3,500 words before the appendix (no tables), and no claim more than ten."""
    main = TEXT.partition("# ## How it compares")[0]
    prose = [cell for cell in re.split(r"(?m)^# %%", main) if cell.startswith(" [markdown]")]
    lines = [line for cell in prose for line in cell.splitlines() if not line.startswith("# > |")]
    words = re.findall(r"[^\s>#*`$]+", re.sub(r"\]\([^)]*\)", "]", " ".join(lines)))
    assert 1000 < len(words) < 3500
    assert 5 < len(shown_table("example_claims")) <= 10


@pytest.mark.parametrize("freedom", [2, 16, 66])
def test_the_threshold_leaves_so_much_of_students_distribution_outside(freedom):
    """Its density, added up."""
    norm = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    for chance in (0.2, 0.05, 0.002):
        edge = lab.threshold(chance, freedom)
        t = np.linspace(-edge, edge, 200_001)
        inside = norm * np.trapezoid((1 + t**2 / freedom) ** (-(freedom + 1) / 2), t)
        assert inside == pytest.approx(1 - chance, abs=1e-4)


def test_all_intervals_come_from_one_pooled_deviation():
    """Catches n for n - 1, a reach that forgets one side, and 0.05 for a corrected chance."""
    sd, freedom = lab.pooled([[1.0, 2.0, 3.0], [11.0, 11.0, 14.0]])
    assert (sd, freedom) == (pytest.approx(2**0.5), 4)
    near = functools.partial(pytest.approx, rel=1e-3)
    assert lab.seeds_reach(sd, freedom) == near(2.7764 * 2**0.5 * (2 / 3) ** 0.5)
    assert lab.seeds_reach(sd, freedom, each=(3, 2)) > lab.seeds_reach(sd, freedom)
    assert lab.seeds_reach(sd, freedom, 0.01) == near(4.6041 * 2 / 3**0.5)


def test_a_variant_is_compared_with_the_base_of_its_machine(monkeypatch):
    """Catches a variant that lacks a seed, another machine's base, and a wrong correction."""
    rows = [{"variant": "base", "seed": seed, "bleu": 10.0 + seed} for seed in (0, 1, 2)]
    rows += [{"variant": "other", "seed": seed, "bleu": 12.0 + seed} for seed in (0, 1, 2)]
    rows += [{"variant": "half", "seed": 0, "bleu": 99.0}]
    rows = [row | dict.fromkeys(("bleu_beam", "val_perplexity"), row["bleu"]) for row in rows]
    elsewhere = [
        row | {"machine": {}, "bleu": row["bleu"] + 50 * (row["variant"] == "base")} for row in rows
    ]
    rows = elsewhere + [row | {"machine": {"accelerator": "one"}} for row in rows]
    sides = {side: {"model": side, "search": "greedy"} for side in "ab"}
    drawn = sides | {"split": "val", "direction": "de-en", "difference_interval": [0.0, 2.0]}
    files = {"miniature": rows, "bootstrap": [drawn], "resample": []}
    monkeypatch.setattr(lab, "saved_rows", files.get)
    variants = lab.miniature()
    assert list(variants) == ["base", "other", "base (CPU)", "other (CPU)"]
    seeds = lab.threshold(0.05 / 2, 8) * (2 / 3) ** 0.5  # two variants
    assert lab.reaches(variants, "perplexity")[1] == pytest.approx(seeds)
    for name, mean in (("other", 2), ("other (CPU)", -48)):
        difference, reach, strict = lab.short_difference(variants, name, "greedy")
        assert difference == pytest.approx(mean)
        assert reach == pytest.approx(2.306 * (2 / 3) ** 0.5, rel=1e-3)
        assert strict == pytest.approx(math.hypot(seeds, 2.2414 / 1.96), rel=1e-4)


def test_every_verdict_follows_from_its_intervals():
    intervals = [(1.0, 0.5), (0.8, 0.5), (0.5, 0.4)]
    assert lab.verdict(intervals, 0.3) == "shown"
    assert lab.verdict([*intervals[:2], (0.3, 0.4)], 0.3) == "suggested"
    assert lab.verdict([(1.0, 1.1), *intervals[1:]], 1.05) == "not shown"
    table = shown_table("example_claims")
    misses = {}
    for claim, row in table.iterrows():  # whoever reads the intervals comes to the same verdict
        cells = [row[name] for name in ("BLEU", "without length", "chrF")]
        printed = [tuple(map(float, cell.split(" ± "))) for cell in cells]
        misses[claim] = sum(abs(mean) <= reach for mean, reach in printed)
        assert row["verdict"] in ("shown", "suggested", "not shown")
        assert (row["verdict"] == "shown") == (misses[claim] == 0)
    verdicts = [table.loc[claim, "verdict"] for claim, _ in lab.SHORT_CLAIMS.values()]
    assert verdicts == ["suggested", "shown", "suggested", "suggested", "shown"]
    rotary = [name for name in table.index if name.startswith("rotary")]
    assert [misses[name] for name in rotary] == [1, 2, 1, 1]
    assert set(table.loc[rotary, "verdict"]) == {"suggested"}
    assert table.loc["pairs that models wrote, beside the old pairs", "verdict"] == "shown"


def test_kept_translations_score_what_their_rows_say(multi30k):
    """Catches a file that another run has taken over, and translations of another split."""
    rows = [row for row in lab.saved_rows("test_sets") if "translations" in row]
    assert len(rows) == 12
    for row in rows:
        file = RESULTS / row["translations"]
        lines = gzip.decompress(file.read_bytes()).decode("utf-8").splitlines()
        text = "".join(f"{line}\n" for line in lines)
        assert len(lines) == row["sentences"]
        assert hashlib.sha256(text.encode()).hexdigest()[:8] in file.name
    row = next(row for row in rows if (row["model"], row["split"]) == ("multi30k-de-en", "val"))
    packed = (RESULTS / row["translations"]).read_bytes()
    lines = gzip.decompress(packed).decode("utf-8").splitlines()
    references = [target for _, target in load_pairs(str(multi30k), "val")]
    assert score(lines, references)["bleu"] == pytest.approx(row["bleu"])


def test_sentences_reach_is_the_widest_of_two_models(monkeypatch):
    """Catches a model beside itself, another set or search, and BLEU's interval for chrF."""

    def drawn(a, b, split="val", search="beam 5", low=0.0, high=2.0):
        sides = {"a": {"model": a, "search": search}, "b": {"model": b, "search": search}}
        return sides | {"split": split, "direction": "de-en", "difference_interval": [low, high]}

    files = {"resample": []}
    files["bootstrap"] = [
        drawn("m", "n"), drawn("m", "m", high=90.0), drawn("m", "n", "test", high=80.0),
        drawn("m", "n", search="greedy", high=70.0),
    ]  # fmt: skip
    monkeypatch.setattr(lab, "saved_rows", files.get)
    reach = lab.sentences_reach
    assert reach("val", "de-en", "beam") == 1.0
    resampled = {"a": ["m-beam.gz"], "b": ["n-beam.gz"], "split": "val", "direction": "de-en"}
    for name, high in (("bleu", 3.0), ("without length", 4.0), ("chrf", 1.0)):
        resampled[name] = {"sentences_interval": [0.0, high]}
    files["resample"] = [resampled]
    assert reach("val", "de-en", "beam") == 1.5
    assert reach("val", "de-en", "beam", "without length") == 2.0
    assert reach("val", "en-de", "beam", "chrf") == reach("val", "de-en", "beam", "chrf") == 0.5


def test_parameter_counts_of_table_3():
    """Catches a missing or extra matrix: one vocabulary must explain all base-size totals."""
    fits = set(range(30_000, 45_000))
    for variant, (sizes, millions) in lab.TABLE_3.items():
        body = lab.body_parameters(**sizes)
        assert body == counted(**sizes), variant
        if variant != "big":  # the only model whose total needs another vocabulary
            d_model = sizes.get("d_model", 512)
            fits &= {V for V in fits if abs(body + V * d_model - millions * 1e6) <= 0.5e6}
    assert fits
