"""The lab notebook: every example shows its rows, and what it counts itself is right."""

import functools
import gzip
import hashlib
import itertools
import math
import re
from pathlib import Path

import numpy as np
import pytest

import lab_notebook as lab
import the_annotated_transformer as tat
from benchmarks import miniature
from tests.helpers import ROOT, counted
from translator.scoring import score
from translator.sources import load_pairs

EXAMPLES = [name for name in vars(lab) if name.startswith("example_")]
FOLDER = Path(lab.__file__).parent
TEXT = Path(lab.__file__).read_text(encoding="utf-8")
OTHERS = (FOLDER / f"{name}.py" for name in ("the_annotated_transformer", "since_2017"))
OTHER = "".join(path.read_text(encoding="utf-8") for path in OTHERS)
RESULTS = FOLDER / "benchmarks" / "results"
# without the breaks of lines
LAB, DOCUMENT = (re.sub(r"\s*\n# > +", " ", text) for text in (TEXT, OTHER))
ROWLESS = {"example_parameters", "example_leaving"}  # what they show is computed


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_shows_its_rows(name, few_phrases, capsys):
    shown = getattr(lab, name)()
    if shown is None:
        assert name == "example_leaving" and "rows of all steps" in capsys.readouterr().out
    elif hasattr(shown, "iloc"):
        assert len(shown) > 1
    else:
        assert shown.to_dict()["$schema"]


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ROWLESS])
def test_without_rows_an_example_shows_nothing(name, monkeypatch):
    monkeypatch.setattr(lab, "saved_rows", lambda name: [])
    assert getattr(lab, name)() is None


def test_what_is_said_of_the_blind_trial_is_in_its_rows():
    """Only learning by heart calls a healthy model ill.

    Each change that was examined differs from the document.
    """
    rows = tat.saved_rows("clinic_blind")
    healthy = [row for row in rows if row["kind"] == "healthy"]
    mistakes = [row for row in rows if row["kind"] == "mistake"]
    heart = {"heart loss", "by heart"}
    assert {test for row in healthy for test in row["ill"]} == heart
    assert all(row["works"] == "differently" for row in mistakes if "fresh" in row)
    assert min(sum(row["kind"] == kind for row in rows) for kind in ("mistake", "healthy")) >= 10
    drawn = {row["change"]: row for row in mistakes if row["works"] == "differently"}
    usual = next(row["trained"]["exact"] for row in rows if row["kind"] == "as it is")
    harmful = [row for row in drawn.values() if row["trained"]["exact"] < usual - 0.2]
    works = [row for row in mistakes if row["works"] == "differently"]
    told = f"The {len(works)} that change something are {len(drawn)} different changes"
    assert f"{told}; a change is harmful" in LAB
    assert "then writes at least 20 points fewer of the held-out" in LAB
    # "at least" and "more than" are the same
    assert not [row for row in drawn.values() if abs(row["trained"]["exact"] - usual + 0.2) < 0.01]
    alarms = sum(bool(row["ill"]) for row in healthy)
    assert f"All false alarms, {alarms} of {len(healthy)} healthy models, come" in LAB
    found = [sum(bool({*row["ill"]} - without) for row in harmful) for without in (heart, set())]
    told = f"and {found[0]} of the {len(harmful)} harmful changes are still found"
    assert f"{told} (with them {found[1]})" in LAB


def test_the_clinic_has_three_seeds_and_its_healthy_models_are_well():
    """Catches a seed that lacks a mistake, and counts that aren't those of the document's cell."""
    runs = [(row["mistake"], row["seed"]) for row in lab.saved_rows("clinic")]
    assert sorted(runs) == sorted(itertools.product({name for name, _ in runs}, range(3)))
    assert "Numbers are means of three seeds" in LAB and "held-out numbers that come" in LAB
    counts = lab.example_clinic_counts()
    assert counts["mistakes"].nunique() == 1 and counts["healthy called ill"].sum() == 1
    healthy = [row for row in lab.saved_rows("clinic") if row["kind"] == "healthy"]
    seen = [(row["mistake"], row["seen"]) for row in healthy if row["seen"]]
    assert seen == [("healthy, post-norm", ["heart"])]
    assert len(healthy) == 12
    assert "One healthy model of twelve, with post-norm, is called ill" in LAB


def test_what_is_said_of_the_captions_is_in_their_rows():
    rows = {row["mistake"]: row for row in lab.saved_rows("clinic_captions")}
    assert rows["healthy"]["ill"] == []
    assert "has hardly begun to translate, and passes them all" in LAB
    assert len(rows) > 8 and all(row["ill"] for row in rows.values() if row["mistake"] != "healthy")
    blind = rows["no_positions_in_encoder"]
    assert blind["ill"] == ["source order"] and "only the wires show that" in LAB
    assert blind["bleu"] > rows["healthy"]["bleu"] and "BLEU is even higher" in LAB
    assert {row["steps"] for row in rows.values()} == {150} and "after 150 updates" in LAB
    leaking = rows["no_causal_mask"]
    learned = [row for row in rows.values() if row["updates"] == 150]
    assert min(row["held_out_loss"] for row in learned) == leaking["held_out_loss"]
    assert leaking["samples"] == [""] * 3
    assert min(row["loss"] for row in learned) == leaking["loss"]


def test_every_section_is_in_the_list():
    listed = re.findall(r"^# > \| \[([^\]]+)\]", TEXT, re.M)
    assert re.findall(r"^# ## (.*)", TEXT, re.M)[:-1] == listed


def test_a_referee_can_read_it_in_twenty_minutes():
    """At most 3,500 words before the appendix (no tables); no claim rests on the log of trials."""
    main = TEXT.partition("# ## How it compares")[0]
    prose = [cell for cell in re.split(r"(?m)^# %%", main) if cell.startswith(" [markdown]")]
    lines = [line for cell in prose for line in cell.splitlines() if not line.startswith("# > |")]
    words = re.findall(r"[^\s>#*`$]+", re.sub(r"\]\([^)]*\)", "]", " ".join(lines)))
    assert 1000 < len(words) < 3500 and "LOG.md" not in TEXT
    claims = lab.example_claims()
    assert 5 < len(getattr(claims, "data", claims)) <= 10


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
    """Catches a division by n instead of n - 1, and a reach that forgets one side.

    And 0.05 in place of a corrected chance.
    """
    sd, freedom = lab.pooled([[1.0, 2.0, 3.0], [11.0, 11.0, 14.0]])
    assert (sd, freedom) == (pytest.approx(2**0.5), 4)
    near = functools.partial(pytest.approx, rel=1e-3)
    assert lab.seeds_reach(sd, freedom) == near(2.7764 * 2**0.5 * (2 / 3) ** 0.5)
    assert lab.seeds_reach(sd, freedom, each=(3, 2)) > lab.seeds_reach(sd, freedom)
    assert lab.seeds_reach(sd, freedom, 0.01) == near(4.6041 * 2 / 3**0.5)


def test_a_variant_is_compared_with_the_base_of_its_machine(monkeypatch):
    """Catches variants that lack a seed, another machine's base, and a wrong correction.

    One of the seeds' half alone, or one for a single comparison.
    """
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
    found = lab.miniature()
    assert list(found) == ["base", "other", "base (CPU)", "other (CPU)"]
    seeds = lab.threshold(0.05 / 2, 8) * (2 / 3) ** 0.5  # two variants
    assert lab.reaches(found, "perplexity")[1] == pytest.approx(seeds)
    for name, mean in (("other", 2), ("other (CPU)", -48)):
        difference, reach, strict = lab.short_difference(found, name, "greedy")
        assert difference == pytest.approx(mean)
        assert reach == pytest.approx(2.306 * (2 / 3) ** 0.5, rel=1e-3)
        assert strict == pytest.approx(math.hypot(seeds, 2.2414 / 1.96), rel=1e-4)


def test_every_verdict_follows_from_its_intervals():
    shown = [(1.0, 0.5), (0.8, 0.5), (0.5, 0.4)]
    assert lab.verdict(shown, 0.3) == "shown"
    assert lab.verdict([*shown[:2], (0.3, 0.4)], 0.3) == "suggested"
    assert lab.verdict([(1.0, 1.1), *shown[1:]], 1.05) == "not shown"
    claims = lab.example_claims()
    table = getattr(claims, "data", claims)
    for told in table["verdict"]:
        assert told in ("shown", "suggested", "not shown")
    for _, row in table.iterrows():  # whoever reads the intervals comes to the same verdict
        cells = [row[name] for name in ("BLEU", "without length", "chrF")]
        printed = [tuple(map(float, cell.split(" ± "))) for cell in cells]
        assert (row["verdict"] == "shown") == all(abs(mean) > reach for mean, reach in printed)
    variants = lab.miniature()
    for measure in ("BLEU", "best penalty", "chrF"):  # whose variants the text counts
        compared = [name.removesuffix(lab.CPU) for name in lab.comparable(variants, measure)]
        assert sum(name != "base" for name in compared) == 30
    assert "a table of thirty comparisons, so both parts of" in LAB
    again = {
        measure: lab.short_difference(variants, "rotary (CPU)", measure)
        for measure in ("BLEU", "best penalty", "chrF")
    }
    told = "gain {:.1f} in four passes, {:.1f} with the best penalty "
    told += "and {:.1f} chrF, and miss it too,"
    assert told.format(*(mean for mean, _, _ in again.values())) in LAB
    assert [mean > reach for mean, _, reach in again.values()] == [False, True, True]
    beyond = {}
    for name in ("adam pre (CPU)", "h = 16"):
        difference, _, reach = lab.short_difference(variants, name, "BLEU")
        beyond[name] = abs(difference) - reach
    told = f"Adam's BLEU is {beyond['adam pre (CPU)']:.2f} beyond its interval, "
    told += f"that of sixteen heads {-beyond['h = 16']:.2f} short."
    assert told in LAB
    verdicts = [table.loc[claim, "verdict"] for claim, _ in lab.SHORT_CLAIMS.values()]
    assert verdicts == ["suggested", "shown", "suggested", "suggested", "shown"]
    rotary = [name for name in table.index if name.startswith("rotary")]
    misses = []
    for name in rotary:
        cells = table.loc[name, ["BLEU", "without length", "chrF"]]
        printed = [tuple(map(float, cell.split(" ± "))) for cell in cells]
        misses.append(sum(mean <= reach for mean, reach in printed))
    assert misses == [1, 2, 1, 1] and "misses one of the criteria, the second row two" in LAB
    assert len(rotary) == 4 and set(table.loc[rotary, "verdict"]) == {"suggested"}
    assert table.loc["pairs that models wrote, beside the old pairs", "verdict"] == "shown"


def test_the_scatter_of_the_miniature_is_what_the_text_says():
    """Seeds as blocks gain nothing; so many kinds of run are pooled; one variant stands out."""
    found = lab.miniature()
    alike = {name: np.array(row) for name, row in lab.comparable(found, "BLEU").items()}
    ours = [name for name in alike if "CPU" not in name]
    here = np.array([[found[name][seed]["bleu_beam"] for seed in range(3)] for name in ours])
    rest = here - here.mean(1, keepdims=True) - here.mean(0) + here.mean()
    blocks = ((rest**2).sum() / (2 * (len(here) - 1))) ** 0.5
    assert f"{blocks:.2f}" == f"{lab.pooled(list(here))[0]:.2f}" == "0.32"
    assert "BLEU is 0.32, and 0.32 without" in LAB
    assert len(lab.comparable(found, "greedy")) == len(found)
    assert f"{len(alike)} of the miniature ({len(found)} greedily)" in LAB and len(here) == 25
    apart = lab.comparable(found, "perplexity")
    post = lab.pooled([apart.pop("adam post")])[0]
    own = post / lab.pooled(list(apart.values()))[0]
    assert "scatters five times as much" in LAB and 5 <= own < 6
    runs = lab.long_runs()
    test, beam = lab.TEST, "beam 5, alpha 1.8"
    assert lab.spread(runs, test, beam, "score")[1] == 16  # eight kinds of three

    def scores(*run):
        return [row["score"] for row in runs[run].values()]

    own = lab.pooled([scores(f"en-de {k}", test, beam) for k in ("base", "rotary")])
    rest = [(kind, beam) for kind in ("de-en base", "de-en rotary", "old pairs", "new pairs")]
    rest += [(kind, "beam 5, alpha 1.0") for kind in ("close to Wu", "close to Wu, rotary")]
    rest = lab.pooled([scores(kind, test, search) for kind, search in rest])
    assert f"({own[0]:.2f} and {rest[0]:.2f} BLEU)" in LAB and own[0] > 2 * rest[0]
    gain = lab.long_difference(runs, "en-de base", "en-de rotary", test, beam)
    reach = lab.seeds_reach(*own)
    assert f"claim is {gain[0]:.1f} ± {reach:.1f} for seeds alone, *not shown*," in LAB
    assert gain[1] < gain[0] < reach
    alone = [claim[0] for claim in lab.LONG_CLAIMS if "its own scatter: not shown" in claim[5]]
    assert alone == ["rotary positions, 42 passes"]
    own = lab.pooled([scores(f"en-de {k}", "val", beam) for k in ("base", "rotary")])
    gain = lab.long_difference(runs, "en-de base", "en-de rotary", "val", beam)[0]
    assert f"and on validation {gain:.1f} ± {lab.seeds_reach(*own):.1f}." in LAB
    drawn = [
        (row["difference_interval"][1] - row["difference_interval"][0]) / 2
        for row in lab.saved_rows("bootstrap") if row["a"]["model"] != row["b"]["model"]
    ]  # fmt: skip
    assert f"varies by {min(drawn):.1f} to {max(drawn):.1f}, because" in LAB


def test_what_is_said_of_the_miniature_is_in_its_rows():
    """Of all documents; catches a sentence that its rows no longer carry."""
    found, best = lab.miniature(), {}

    def mean(name, measure="BLEU"):
        return lab.short_difference(found, name, measure)[0]

    def told(name, measure="BLEU"):
        return f"{abs(mean(name, measure)):.1f} ± {lab.reaches(found, measure)[0]:.1f}"

    def stars(name, measure):
        return sum(abs(mean(name, measure)) > reach for reach in lab.reaches(found, measure))

    for sentence in (
        f"*ahead* of four ({told('h = 1')}),",
        f"behind, sixteen by {-mean('h = 16'):.1f}.",
        f"chrF has only {told('h = 1', 'chrF')}, and",
        f"**Dropout** costs {-mean('dropout = 0.1'):.1f} at the paper's 0.1 "
        f"and {-mean('dropout = 0.25'):.1f} at 0.25",
        f"here by {told('smoothing = 0.0')}.",
        f"Learned positions are {-mean('positions = learned'):.1f} behind sinusoids",
        f"and {-mean('positions = none'):.1f} BLEU are lost.",
        f"Rotary positions gain {told('rotary')}, {told('rotary', 'greedy')} with greedy",
        f"in chrF {told('rotary', 'chrF')}.",
        f"Half of the layers cost {told('N = 2')}, and chrF falls",
        f"alone is {told('gated')} behind, at a rate",
        f"third fewer parameters, is {told('decoder_only', 'greedy')} behind greedily;",
        f"in place of pieces cost {-mean('words (CPU)'):.1f}, and half",
        f"with the best one, {-mean('words (CPU)', 'best penalty'):.1f}.",
        f"Adam is {told('adam pre (CPU)')} behind Muon with pre-norm",
        f"| {told('adam pre (CPU)')} BLEU (other seeds alone) after four passes, beside",
    ):  # fmt: skip
        assert sentence in LAB, sentence
    base = {seed: row["chrf_beam"] for seed, row in found["base"].items()}
    assert all(row["chrf_beam"] < base[seed] for seed, row in found["N = 2"].items())
    for measure in ("BLEU", "best penalty", "chrF", "greedy"):  # neither can be told from chance
        assert stars("N = 6", measure) == stars("d_ff = 512", measure) == 0
    assert stars("modern", "greedy") and stars("modern", "best penalty")
    assert not stars("modern", "chrF")
    assert not any(stars("smoothing = 0.2", kind) for kind in ("BLEU", "best penalty", "chrF"))
    assert stars("smoothing = 0.2", "perplexity") == 2 and mean("smoothing = 0.0", "perplexity") < 0
    one_stack = mean("decoder_only rotary", "greedy") - mean("rotary", "greedy")
    reach = lab.reaches(found, "greedy")[0]
    assert f"behind greedily; {-one_stack:.1f} ± {reach:.1f} if both have" in LAB
    behind = mean("adam post") - mean("muon post")
    assert f"and {-behind:.1f} ± {lab.reaches(found, 'BLEU')[0]:.1f} with post-norm, with" in LAB
    one = {
        row["variant"]: row
        for row in lab.saved_rows("miniature")
        if "accelerator" not in row["machine"] and row["seed"] == 0
    }
    less = one["base"]["bleu_beam"] - one["h = 1"]["bleu_beam"]
    assert f"on a CPU was {less:.1f} behind its base" in LAB
    tokens = {row.get("model"): row["tokens"] for row in lab.saved_rows("quality")}
    times = tokens["wu-averaged"] / found["base"][0]["tokens"]
    assert f"With {times:.0f} times as many target tokens" in LAB
    for sentence in (
        f"95% interval of ± {lab.reaches(found, 'BLEU')[0]:.1f} BLEU over the seeds",
        f"eight are {-mean('h = 8'):.1f} worse, sixteen {-mean('h = 16'):.1f}.",
        f"keys (B) cost {-mean('d_k = 8'):.1f} BLEU",
        f"costs most, {-mean('d_model = 64'):.1f}; "
        f"twice the width gains {mean('d_model = 256'):.1f}.",
        f"0.1 costs {-mean('dropout = 0.1'):.1f} and 0.25 more than four",
        f"(E) are {-mean('positions = learned'):.1f} worse",
        f"it gains {mean('rotary'):.1f}.",
        f"untied, {told('tie = none')} BLEU more",
        f"positions gain {told('rotary', 'greedy')} BLEU over the seeds in [short",
        f"size of `tiny` it's {-mean('gated'):.1f} BLEU worse", f"{-one_stack:.1f} behind if both",
        f"is {-mean('decoder_only', 'greedy'):.1f} BLEU behind "
        "an encoder and decoder of four each, and",
    ):  # fmt: skip
        assert sentence in DOCUMENT, sentence
    assert max(-one_stack, -mean("decoder_only", "greedy")) < lab.reaches(found, "greedy")[1]
    assert "among so many comparisons, either may be chance" in DOCUMENT
    assert mean("dropout = 0.25") < -4 and -6 < mean("positions = none") < -5
    reach, corrected = lab.reaches(found, "BLEU")
    wide = math.hypot(reach, lab.sentences_reach("val", "de-en", "beam"))
    assert f"with other sentences, ± {reach:.1f} of BLEU becomes ± {wide:.1f}." in LAB
    allow = "if you also allow for the choice of test sentences"
    assert f"over the seeds, and of about ± {wide:.1f} {allow}." in DOCUMENT
    assert f"over the seeds, and ± {wide:.1f} {allow}), at a rate" in DOCUMENT
    told = f"any difference below {corrected:.2f} could be chance, "
    told += f"even the loss of sixteen heads ({-mean('h = 16'):.2f}) and"
    assert told in DOCUMENT and mean("rotary") < -mean("h = 16") < corrected
    assert {name.removesuffix(lab.CPU) for name in found} == miniature.VARIANTS.keys()
    paper = {row["variant"]: row["bleu"] for row in lab.saved_rows("paper") if row["table"] == 3}
    assert paper["h = 1"] == min(paper[f"h = {h}"] for h in (1, 4, 16))
    assert f"is {paper['h = 4'] - paper['h = 1']:.1f} BLEU" in LAB
    assert f"({paper['dropout = 0.0']} without, {paper['base']} with 0.1)" in LAB
    assert f"there BLEU falls by {paper['base'] - paper['smoothing = 0.0']:.1f}, here" in LAB
    apart = [
        abs(row["bleu_beam"] - found[name + lab.CPU][seed]["bleu_beam"])
        for name in found if name + lab.CPU in found for seed, row in found[name].items()
    ]  # fmt: skip
    assert f"lie {np.mean(apart):.1f} BLEU apart on average, and up to {max(apart):.1f}." in LAB
    tuning = lab.saved_rows("tuning")
    for row in tuning:
        so_far = best.get(row["recipe"], row)
        best[row["recipe"]] = min(so_far, row, key=lambda row: row["val_loss"])
    assert not any((row["factor"], row["warmup"]) == (2, 400) for row in tuning)
    assert best["muon pre"]["warmup"] == min(row["warmup"] for row in tuning)
    tried = [sum(row["recipe"] == f"{name} pre" for row in tuning) for name in ("adam", "muon")]
    assert tried == [5, 4]
    claim = lab.SHORT_CLAIMS["adam pre (CPU)"][0]
    assert "(five settings) in place of Muon (four)" in claim
    assert "beside Adam with the best of five settings;" in LAB


def test_what_is_said_of_rotary_positions_is_in_its_rows():
    """Of both documents; catches a sentence that its rows no longer carry."""
    rows, runs = lab.saved_rows("first_stage"), lab.long_runs()
    assert len(rows) == 12  # one for each direction, kind of positions and seed
    loss = {(row["direction"], row["variant"], row["seed"]): row["val_perplexity"] for row in rows}
    pairs = itertools.product(("de-en", "en-de"), range(3))
    assert all(loss[d, "rotary", s] < loss[d, "base", s] for d, s in pairs)
    table = lab.example_rotary()
    table = getattr(table, "data", table)
    assert len(table) == 12 and all(
        cell.startswith("+") for name in ("BLEU", "without length", "chrF") for cell in table[name]
    )
    gained = [float(cell.split(" ± ")[0]) for cell in table["BLEU"]]
    assert min(gained) >= 0.5 and max(gained) < 1.5
    assert "between a half and one and a half BLEU, in the" in LAB
    claims = lab.example_claims()
    claims = getattr(claims, "data", claims)
    long = [name for name in claims.index if name.startswith("rotary") and "4 passes" not in name]
    sure = [f"{float(cell.split(' ± ')[1]):.1f}" for cell in claims.loc[long, "BLEU"]]
    assert f"in the table of claims ± {min(sure)} to {max(sure)}." in LAB
    beam = "val", "beam 5, alpha 1.8"
    base, rotary = (runs[f"de-en {kind}", *beam] for kind in ("base", "rotary"))
    seeds = [row["score"] - base[seed]["score"] for seed, row in rotary.items()]
    assert f"(One seed of three is {-min(seeds):.2f} behind from German" in LAB
    assert sum(gain < 0 for gain in seeds) == 1
    for cell in claims.loc[long, "without length"]:
        mean, reach = map(float, cell.split(" ± "))
        assert 0 < mean < reach  # "no difference without length is beyond chance"

    def difference(direction, split):
        kinds = (f"{direction} base", f"{direction} rotary")
        return lab.long_difference(runs, *kinds, split, "greedy")

    gains = [difference(d, split)[0] for d in ("de-en", "en-de") for split in ("val", lab.TEST)]
    assert {round(gain) for gain in gains} == {1} and "and about one in [long ones]" in DOCUMENT
    wide = [
        math.hypot(difference(d, lab.TEST)[1], lab.sentences_reach(lab.TEST, d, "greedy"))
        for d in ("de-en", "en-de")
    ]
    assert {f"{reach:.0f}" for reach in wide} == {"1"}
    assert "(± 1 if you also allow for the choice of test sentences)" in DOCUMENT


def test_what_is_said_of_the_accelerator_is_in_its_rows():
    """Catches a sentence that its rows no longer carry."""
    speed, reached = {}, {}
    for row in lab.saved_rows("accelerator"):
        speed[row["preset"], row["way"]] = row["tokens_per_second"]
        reached.setdefault(row["way"].split(",")[0], []).append(row["matrix_tflops"])
        assert row["losses"][1] < row["losses"][0]
        if row["way"].startswith("bfloat16"):
            assert row["mfu"] < 0.27  # "a quarter"

    def gain(preset, way, than="float32"):
        return f"{speed[preset, way] / speed[preset, than]:.1f}"

    short, compiled = "bfloat16", "bfloat16, compiled"
    tf32, half = ((gain("base", way), gain("big", way)) for way in ("TF32", short))
    assert f"TF32 makes `base` {tf32[0]} and `big` {tf32[1]} times as fast" in LAB
    assert f"bfloat16 {half[0]} and {half[1]} times; bfloat16 with compiled layers" in LAB
    assert f"compiled layers {gain('base', compiled)} and {gain('big', compiled)} times." in LAB
    fused = gain("small", "bfloat16, fused", short)
    assert f"effect on such short sentences: {fused} times as fast for `small`" in LAB
    assert f"{gain('base', 'bfloat16, fused, compiled', compiled)} times for `base` with it" in LAB
    assert gain("big", "bfloat16, fused", short) == "1.0"
    assert gain("big", "bfloat16, fused, compiled", compiled) == "1.0"
    for numbers, said in (("float32", 52), ("TF32", 440), ("bfloat16", 870)):
        assert all(abs(tflops / said - 1) < 0.05 for tflops in reached[numbers])


def test_what_is_said_of_the_recipe_of_wu_et_al_is_in_its_rows():
    test, one, ours = lab.TEST, "beam 5, alpha 1.0", "beam 5, alpha 1.8"
    runs = lab.long_runs()
    plain, rotary = (
        {key[1:]: seeds for key, seeds in runs.items() if key[0] == kind}
        for kind in ("close to Wu", "close to Wu, rotary")
    )

    def mean(rows, key="score"):
        return sum(row[key] for row in rows.values()) / len(rows)

    lower = {
        (row["split"], row["search"]): row["bleu_moses"]
        for row in lab.saved_rows("quality")
        if row.get("model") == "lower-en-de"
    }
    kinds = (plain, rotary)
    listed = [[f"{row['score']:.2f}" for row in found[test, one].values()] for found in kinds]
    assert "the three seeds score {}, {} and {}, as much as".format(*listed[0]) in LAB
    assert "in this recipe score {}, {} and {} with α = 1, ".format(*listed[1]) in LAB
    gain, bare = (
        mean(rotary[test, one], key) - mean(plain[test, one], key)
        for key in ("score", "without length")
    )
    assert f"with α = 1, {gain:.1f} more." in LAB and bare < gain / 2
    assert f"before the penalty the gain is {bare:.1f}." in LAB
    assert f"in the fourth, {gain - bare:.1f} of {gain:.1f} is the brevity penalty" in LAB
    length = mean(plain[test, one], "length")
    assert f"translations have {length:.2f} of the references' length and theirs 0.999" in LAB
    longer = plain[test, ours].values()
    told = "; but written longer (α = 1.8; {:.3f} and {:.3f}), two of these models have".format(
        *(row["length"] for row in longer)
    )
    told += " {:.1f} and {:.1f}, since longer".format(*(row["score"] for row in longer))
    bare = mean(plain[test, one], "without length")
    assert f"Before the brevity penalty ours have {bare:.1f}{told}" in LAB
    for split in (test, "val"):  # "longer translations match less", and in chrF more
        for seed, row in plain[split, ours].items():
            before = plain[split, one][seed]
            assert row["length"] > before["length"]
            assert row["without length"] < before["without length"]
            assert row["chrf"] > before["chrf"]
    # each of the six, and the five scored with both
    for split, better, count in (("val", ours, 6), (test, one, 5)):
        pairs = [
            (found[split, one][seed]["score"], row["score"])
            for found in (plain, rotary)
            for seed, row in found[split, ours].items()
        ]
        assert len(pairs) == count
        assert all((with_ours > with_one) == (better == ours) for with_one, with_ours in pairs)
    told = "prefers α = 1.8 for each of the six models, "
    assert f"{told}the test set α = 1 for the five that it scored with both." in LAB
    told = f"has {mean(plain[test, ours]):.1f} on the test set (two seeds) "
    told += f"where ours has {lower[test, ours]:.1f} (one seed), and on the"
    assert told in LAB and len(plain[test, ours]) == 2
    ours_here, theirs_here = mean(plain["val", ours]), lower["val", ours]
    assert f"validation set {ours_here:.1f} and {theirs_here:.1f}: neither" in LAB
    seeds = plain[test, ours].items()
    both = [rotary[test, ours][seed]["score"] - row["score"] for seed, row in seeds]
    assert f"the two seeds that have both rows gain {both[0]:.1f} and {both[1]:.1f}." in LAB
    assert all(row["length"] >= 1 for found in kinds for row in found[test, ours].values())
    chrf = [row["chrf"] - plain[test, one][seed]["chrf"] for seed, row in rotary[test, one].items()]
    assert f"by {min(chrf):.1f} to {max(chrf):.1f} at α = 1." in LAB
    about = (test, ours, 3400, "en-de")
    models = {
        row["model"]: row["bleu_moses"] for row in lab.saved_rows("quality")
        if (row["split"], row["search"], row["step"], row["direction"]) == about
    }  # fmt: skip
    told = f"At α = 1.8 these models have {mean(rotary[test, ours]):.1f}, and so has "
    told += f"`multi30k-en-de`; `rotary-en-de` has {models['rotary-en-de']:.1f}."
    assert told in LAB
    assert f"{models['multi30k-en-de']:.1f}" == f"{mean(rotary[test, ours]):.1f}"
    # none of these is the best
    assert models["rotary-en-de"] > max(row["score"] for row in rotary[test, ours].values())
    best = plain[test, one][0]
    size = best["settings"]["tokens_per_batch"]
    assert f"{best['step']:,} updates of up to {size:,} tokens a side" in LAB
    assert f"({best['tokens'] / 1e6:.0f} million target tokens, as" in LAB
    at = [row["trained_on"] for found in (plain, rotary) for row in found[test, one].values()]
    assert sum("H100" in where for where in at) == 5
    assert "One of the six runs was made on a CPU" in LAB
    alone = [
        row["bleu_moses"]
        for row in lab.saved_rows("quality")
        if re.fullmatch(r"en-de-\d|multi30k-en-de", row.get("model") or "")
        and (row["split"], row["search"], row["step"]) == (test, ours, 4700)
    ]
    alone += [
        row[test]["beam"]["bleu_moses"] for row in lab.saved_rows("first_stage")
        if (row["direction"], row["variant"]) == ("en-de", "base")
    ]  # fmt: skip
    assert f"ours scores {sum(alone) / 6:.2f} in that way" in LAB and len(alone) == 6
    names = ("en-de-1", "en-de-2")
    short = [row for row in lab.saved_rows("quality") if row.get("model") in names]
    (tokens,) = {f"{row['tokens'] / 1e6:.0f} million target tokens" for row in short}
    behind = f"trained on the pairs alone, scores {41.02 - sum(alone) / 6:.1f} *less*"
    assert behind in DOCUMENT
    assert f"(the mean of six runs, three of them on a CPU) with {tokens}." in LAB


def test_what_is_said_of_time_and_quality_is_in_its_rows():
    """And of the updates after which samples look like translations."""
    timed = lab.saved_rows("time_to_quality")
    rows = {row["budget"]: row for row in timed if row["run"] == "tiny"}
    five, thirty, last = (f"{rows[n]['bleu']:.0f}" for n in (5, 30, 45))
    updates = [f"{rows[n]['step']:,}" for n in (5, 30, 45)]
    told = f"about {five} after 5 minutes ({updates[0]} updates), "
    told += f"{thirty} after half an hour ({updates[1]}), and {last}"
    assert f"{told} after three quarters ({updates[2]})." in LAB and max(rows) == 45
    today = {row["budget"]: row for row in timed if row["run"] == "tiny-rotary"}
    had, after = (
        [f"{today[n][key]:{form}}" for n in (5, 30)]
        for key, form in (("bleu", ".0f"), ("step", ","))
    )
    said = f"{had[0]} and {had[1]} after 5 and 30 minutes "
    said += f"(single runs of {after[0]} and {after[1]} updates)"
    assert said in LAB and all(0.5 < today[n]["tokens"] / rows[n]["tokens"] < 0.67 for n in (5, 30))
    faster = {(row["program"], row["budget"]): row for row in timed if row["run"] == "both"}
    one, two, three, five, ten = (faster["this", n]["bleu"] for n in (1, 2, 3, 5, 10))
    other = faster["nn.Transformer", 10]["bleu"]
    after = [f"{faster['this', n]['step']:,}" for n in (5, 10)]
    told = f"it had {one:.1f}, {two:.1f} and {three:.1f} after 1, 2 and 3 minutes, "
    told += f"{five:.1f} after 5 ({after[0]} updates) and {ten:.1f} after 10 ({after[1]}): "
    assert told in LAB and 1.45 < faster["this", 5]["tokens"] / rows[5]["tokens"] < 1.6
    assert f"Adam and Equation (3) had {other:.1f} after 10 minutes." in LAB
    program = " ".join((ROOT / "translator" / "README.md").read_text("utf-8").split())
    told = f"gave {five:.1f} BLEU on Multi30k's `val`, greedily, and `--minutes 10` {ten:.1f}, "
    assert told in program
    assert f"where `nn.Transformer` with the paper's parts had {other:.1f} ([" in program
    stages = {stage.get("updates") for row in lab.saved_rows("samples") for stage in row["stages"]}
    assert {510, 850} < stages
    assert "after about 500 updates" in DOCUMENT and "after about 850 most short" in DOCUMENT


def test_what_is_said_of_the_round_and_its_controls_is_in_their_rows():
    runs, test, beam = lab.long_runs(), lab.TEST, "beam 5, alpha 1.8"
    kinds = itertools.product(("old pairs", "new pairs"), ("val", test))
    assert all(runs[kind, split, beam].keys() == {0, 1, 2} for kind, split in kinds)

    def gain(split, measure="score"):
        return lab.long_difference(runs, "old pairs", "new pairs", split, beam, measure)

    told = f"ahead by {gain(test)[0]:.1f} BLEU on test_2016_flickr "
    told += f"({gain(test, 'without length')[0]:.1f} without length)"
    assert told in LAB
    assert gain(test, "chrf")[0] > gain(test, "chrf")[1]
    told = "set the difference is {:.1f} ± {:.1f} for other first stages."
    assert told.format(*gain("val")) in LAB
    second = [runs[kind, test, beam].values() for kind in ("new pairs", "old pairs")]
    assert len({row["tokens"] for row in second[0]}) == 1 and all(
        "runs/closest-de-en " in row["command"] for row in second[0]
    )
    assert {row["seed"] for rows in second for row in rows} == {0}
    assert "and one seed of the second stage: the" in LAB
    # the one in models/
    assert max(range(3), key=lambda seed: runs["new pairs", "val", beam][seed]["score"]) == 2
    bootstrap = lab.saved_rows("bootstrap")
    found = {(row["a"]["model"], row["b"]["model"], row["a"]["search"]): row for row in bootstrap}
    assert "Read this as an estimate that favours the new pairs." in LAB
    about = ("rotary-pairs", "multi30k-de-en-rotary", "beam", test)
    (drawn,) = (
        row for (a, b, search), row in found.items() if (a, b, search[:4], row["split"]) == about
    )
    card = (RESULTS.parents[1] / "models/multi30k-de-en-rotary/README.md").read_text("utf-8")
    card = " ".join(card.split())
    told = "with new pairs is {:.1f} ahead (95%, other sentences alone: {:.1f} to {:.1f})."
    assert told.format(drawn["difference"], *drawn["difference_interval"]) in card
    kinds = ("own", "back", "back-own")
    third = [found["made-pairs", f"made-pairs-{kind}", "greedy"] for kind in kinds]
    own, _, both = (row["difference"] for row in third)
    assert f"`own` gains {own:.1f} and both together {both:.1f};" in LAB
    p = [row["p"] for row in bootstrap if row["a"]["model"] == "made-pairs"]
    assert len(p) == 6 and sum(value < 0.05 / 6 for value in p) == 1 and third[2]["p"] == min(p)
    resampled = {row["split"]: row for row in lab.saved_rows("resample")}[test]
    told = [
        (resampled[name]["difference"], *resampled[name]["sentences_interval"])
        for name in ("bleu", "without length", "chrf")
    ]
    assert "other sentences: {:.1f} (95%: {:.1f} to {:.1f}), without length".format(*told[0]) in LAB
    bare = "without length {:.1f} ({:.1f} to {:.1f}), ".format(*told[1])
    assert bare + "chrF {:.1f} ({:.1f} to {:.1f}; `".format(*told[2]) in LAB
    files = [file.partition("-test")[0] for file in resampled["a"] + resampled["b"]]
    assert files == ["multi30k-de-en", "multi30k-de-en-rotary"]
    twice = [row for row in found.values() if row["b"]["model"] == "multi30k-de-en"]
    twice = [row for row in twice if "beam" in row["a"]["search"]]
    before = twice[0]["a"]["bleu"]
    others = [
        row["bleu"] - before for row in lab.saved_rows("quality")
        if re.fullmatch(r"de-en-\d", row.get("model") or "")
        and (row["split"], row["search"]) == (test, beam)
    ]  # fmt: skip
    seeds = f"and {others[0]:.2f} and {others[1]:.2f} with two other seeds"
    assert f"gains {twice[0]['difference']:.2f}, {seeds}" in LAB
    bleu = {
        (row.get("model"), row["split"]): f"{row['bleu']:.1f}"
        for row in lab.saved_rows("quality")
        if row["search"] == beam and row["step"] == 3400
    }
    told = (
        f"it has {bleu['rotary-en-de', 'val']} on the validation set, where `multi30k-en-de` has "
    )
    told += f"{bleu['multi30k-en-de', 'val']}, and {bleu['rotary-en-de', test]} on"
    assert told in LAB


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


def test_what_the_notebook_says_of_kept_translations_and_of_the_test_set_is_so(capsys):
    """Only the included models' are there, and no row of a claim has some.

    Once they do, the text must say so.
    """
    for name in ("quality", "first_stage", "miniature"):
        assert "translations" not in str(lab.saved_rows(name)), (
            f"{name} has translations, and the text denies it"
        )
    kept = [row for row in lab.saved_rows("test_sets") if "translations" in row]
    assert {row["split"] for row in kept} == {"val", lab.TEST}
    assert "no row of a claim was made again" in LAB
    lab.example_quality()
    curve = sum(
        f"'{search}': {{" in str(row.get("test"))
        for row in lab.saved_rows("curve")
        if lab.TEST in str(row)  # others are messages of programs
        for search in ("greedy", "beam")
    )
    assert f" {curve} times in curve.jsonl" in capsys.readouterr().out and curve > 0


def test_sentences_reach_is_the_widest_of_two_models(monkeypatch):
    """Catches one file that is left out, a model beside itself, and another set or search.

    And BLEU's interval for chrF.
    """

    def drawn(a, b, split="val", search="beam 5", low=0.0, high=2.0):
        sides = {"a": {"model": a, "search": search}, "b": {"model": b, "search": search}}
        return sides | {"split": split, "direction": "de-en", "difference_interval": [low, high]}

    kept = {"a": ["m-beam.gz"], "b": ["n-beam.gz"], "split": "val", "direction": "de-en"}
    kept |= {
        name: {"sentences_interval": [0.0, high]}
        for name, high in (("bleu", 3.0), ("without length", 4.0), ("chrf", 1.0))
    }
    files = {
        "bootstrap": [
            drawn("m", "n"),
            drawn("m", "m", high=90.0),
            drawn("m", "n", "test", high=80.0),
            drawn("m", "n", search="greedy", high=70.0),
        ]
    }
    files["resample"] = []
    monkeypatch.setattr(lab, "saved_rows", files.get)
    reach = lab.sentences_reach
    assert reach("val", "de-en", "beam") == 1.0
    files["resample"] = [kept]
    assert reach("val", "de-en", "beam") == 1.5
    assert reach("val", "de-en", "beam", "without length") == 2.0
    assert reach("val", "en-de", "beam", "chrf") == reach("val", "de-en", "beam", "chrf") == 0.5


def test_what_is_said_of_pythons_share_is_in_its_row():
    tiny = [row for row in lab.saved_rows("step_profile") if row["preset"] == "tiny"][-1]
    assert f"{tiny['decoding']['Python and the rest']:.0%} of the time goes to Python" in LAB


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
