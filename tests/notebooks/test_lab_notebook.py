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
FOLDER, NAMES = Path(lab_notebook.__file__).parent, ("the_annotated_transformer", "since_2017")
OTHER = "".join((FOLDER / f"{name}.py").read_text(encoding="utf-8") for name in NAMES)  # both documents
LAB, DOCUMENTS = (re.sub(r"\s*\n# > ", " ", text) for text in (TEXT, OTHER))  # without the breaks of lines
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
    elsewhere = [row | {"machine": {}, "bleu": row["bleu"] + 50} for row in rows]
    rows = elsewhere + [row | {"machine": {"accelerator": "one"}} for row in rows]
    monkeypatch.setattr(lab_notebook, "saved_rows", lambda name: rows)
    found = lab_notebook.miniature()
    assert list(found) == ["base", "other", "base (CPU)", "other (CPU)"]
    for name in ("other", "other (CPU)"):
        mean, reach = lab_notebook.difference(found[name], lab_notebook.base_of(found, name), "bleu", 0.05)
        assert mean == pytest.approx(2) and reach == pytest.approx(4.3027 / 3**0.5, abs=1e-3)


def test_what_is_said_of_the_miniature_is_in_its_rows():
    """Of both documents; catches a sentence that its rows no longer carry."""
    found, best = lab_notebook.miniature(), {}

    def gain(name, key="bleu_beam"):
        return lab_notebook.difference(found[name], lab_notebook.base_of(found, name), key, 0.05)

    def mean(name, key="bleu_beam"):
        return gain(name, key)[0]

    def interval(name, key="bleu_beam"):
        return f"{abs(mean(name, key)):.1f} ± {gain(name, key)[1]:.1f}"

    for sentence in (
        f"two of 64 gain {interval('h = 2')} and one of 128 gains {interval('h = 1')} (the one run",
        f"its base); eight of 16 lose {interval('h = 8')} and sixteen of 8 lose {interval('h = 16')},",
        f"model costs most, {interval('d_model = 64')},", f"twice the width gains {interval('d_model = 256')}, with",
        f"(greedily {interval('d_model = 256', 'bleu')}).",
        f"from chance, either ({interval('N = 6')} less).", f"half the width costs {interval('d_ff = 128')},",
        f"twice the width gains {interval('d_ff = 512')}, neither", f"BLEU is {interval('smoothing = 0.2')} higher",
        f"({interval('smoothing = 0.2', 'bleu')} with greedy decoding), less than",
        f"grouped queries alone ({interval('grouped')} less)", f"it's {interval('decoder_only', 'bleu')} behind the base,",
        f"and {interval('decoder_only rotary', 'bleu')} ahead with", f"million parameters, gain {interval('tie = none')}, which",
        f"*costs* {interval('gated')} on its own", f"({interval('rms_norm (CPU)')} less, on a CPU)", f"Post-norm costs {interval('muon post')} with Muon;",
        f"the paper's combination is {interval('adam post')} behind", f"of width 8 cost {interval('d_k = 8')},",
        f"cost {interval('N = 2')}, which can't be told from chance, but {interval('N = 2', 'bleu')} with greedy",
        f"costs {interval('dropout = 0.1')} at 0.1, the paper's value, and {interval('dropout = 0.25')} at 0.25",
        f"here by {interval('smoothing = 0.0')}.", f"the model loses {interval('positions = none')}.",
        f"Learned positions are {interval('positions = learned')} worse",
        f"positions gain {interval('rotary')}, and {interval('rotary', 'bleu')} with greedy",
        f"best penalty, {interval('rotary', 'bleu_alpha_best')}.",
        f"best penalty, {interval('modern', 'bleu_alpha_best')}.",
        f"best penalty, words cost {interval('words (CPU)', 'bleu_alpha_best')}.",
        f"| {interval('adam pre (CPU)')} BLEU after four passes;",
        f"parameters: +{interval('modern')}, and {interval('modern', 'bleu')} with greedy",
        f"in place of pieces cost {interval('words (CPU)')},", f"is {interval('adam pre (CPU)')} behind Muon",
        f"positions gain {interval('rotary (CPU)')} on the CPU",
    ):  # fmt: skip
        assert sentence in LAB, sentence
    assert mean("rotary", "val_perplexity") < mean("modern", "val_perplexity") < 0 < mean("h = 1")
    narrow, base = found["d_k = 8"], found["base"]
    assert all(narrow[seed]["val_perplexity"] > base[seed]["val_perplexity"] for seed in base)
    for key in ("val_perplexity", "bleu"):
        assert all(abs(gain(name, key)[0]) < gain(name, key)[1] for name in ("h = 1", "h = 2"))
    assert gain("h = 16", "bleu")[0] + gain("h = 16", "bleu")[1] > 0
    for name in ("h = 8", "h = 16", "smoothing = 0.2", "d_ff = 128", "decoder_only", "decoder_only rotary"):
        assert all(found[name][seed]["val_perplexity"] > base[seed]["val_perplexity"] for seed in base)
    for name in ("d_ff = 512", "tie = none"):
        assert all(found[name][seed]["val_perplexity"] < base[seed]["val_perplexity"] for seed in base)
    one_stack, reach = lab_notebook.difference(found["decoder_only rotary"], found["rotary"], "bleu", 0.05)
    assert f"rotary positions, it's {-one_stack:.1f} ± {reach:.1f} behind." in LAB
    assert f"untied, {mean('tie = none'):.1f} ± 0.5 BLEU more" in DOCUMENTS
    behind, reach = lab_notebook.difference(found["adam post"], found["muon post"], "bleu_beam", 0.05)
    assert f"and {-behind:.1f} ± {reach:.1f} with post-norm. Post-norm" in LAB
    one = {
        row["variant"]: row
        for row in lab_notebook.saved_rows("miniature")
        if "accelerator" not in row["machine"] and row["seed"] == 0
    }
    assert f"on a CPU was {one['base']['bleu_beam'] - one['h = 1']['bleu_beam']:.1f} behind its base" in LAB
    assert f"eight are {-mean('h = 8'):.1f} worse, sixteen {-mean('h = 16'):.1f}." in DOCUMENTS
    assert f"costs most, {-mean('d_model = 64'):.1f}; twice the width gains {mean('d_model = 256'):.1f}." in DOCUMENTS
    alone = (
        f"is {-mean('decoder_only', 'bleu'):.1f} BLEU behind an encoder and decoder of four each, which may be chance,"
    )
    assert f"{alone} and {-one_stack:.1f} behind if both" in DOCUMENTS
    assert f"size of `tiny` it's {-mean('gated'):.1f} BLEU worse" in DOCUMENTS
    assert f"keys (B) cost {-mean('d_k = 8'):.1f} BLEU" in DOCUMENTS
    assert (
        f"0.1 costs {-mean('dropout = 0.1'):.1f} and 0.25 more than four" in DOCUMENTS and mean("dropout = 0.25") < -4
    )
    assert f"(E) are {-mean('positions = learned'):.1f} worse" in DOCUMENTS and -6 < mean("positions = none") < -5
    assert f"it gains {mean('rotary'):.1f}." in DOCUMENTS
    assert f"with greedy decoding, rotary positions gain {mean('rotary', 'bleu'):.1f} ± 0.6 BLEU in [short" in DOCUMENTS
    assert {name.removesuffix(lab_notebook.CPU) for name in found} == miniature.VARIANTS.keys()
    paper = {row["variant"]: row["bleu"] for row in lab_notebook.saved_rows("paper") if row["table"] == 3}
    more = {name: f"{abs(bleu - paper['base']):.1f}" for name, bleu in paper.items()}
    wider, deeper = (
        f"twice the width gains {more['d_model = 1024']},",
        f"four of six layers cost {more['N = 4']}; eight",
    )
    assert f"{wider} a feed-forward twice as wide {more['d_ff = 4096']}, and {deeper} score {more['N = 8']} less" in LAB
    assert f"There, BLEU falls by {more['smoothing = 0.0']};" in LAB and f"it is {more['smoothing = 0.2']} lower" in LAB
    apart = [
        abs(row["bleu_beam"] - found[name + lab_notebook.CPU][seed]["bleu_beam"])
        for name in found if name + lab_notebook.CPU in found for seed, row in found[name].items()
    ]  # fmt: skip
    assert "lie 0.5 BLEU apart on average, and up to 1.3" in LAB and f"{sum(apart) / len(apart):.1f}" == "0.5"
    assert f"{max(apart):.1f}" == "1.3"
    for row in lab_notebook.saved_rows("tuning"):
        best[row["recipe"]] = min(best.get(row["recipe"], row), row, key=lambda row: row["val_loss"])
    bleu = {recipe: f"{row['bleu']:.1f}" for recipe, row in best.items()}
    assert f"with {bleu['muon pre']} BLEU" in LAB and f"it reaches {bleu['muon post']}." in LAB
    assert f"Adam reaches {bleu['adam pre']} with pre-norm, and {bleu['adam post']} with post-norm" in LAB
    assert best["muon post"]["factor"] == best["muon pre"]["factor"] / 2
    assert best["adam pre"]["warmup"] == best["adam post"]["warmup"] == 400


def test_what_is_said_of_rotary_positions_is_in_its_rows():
    """Of both documents, and the lab notebook's table; catches a sentence that its rows no longer carry."""
    scores, told, gains, test = {}, {}, {}, ("test_2016_flickr", "beam")
    rows = lab_notebook.saved_rows("first_stage")
    assert len(rows) == 12  # one for each direction, kind of positions and seed
    for row in rows:
        found = {(split, kind): row[split][kind]["bleu"] for split in ("val", test[0]) for kind in ("greedy", "beam")}
        seeds = scores.setdefault((row["direction"], row["variant"]), {})
        seeds[row["seed"]] = found | {"ppl": row["val_perplexity"]}
    for direction in ("de-en", "en-de"):
        rotary, base = scores[direction, "rotary"], scores[direction, "base"]
        assert rotary.keys() == base.keys() and len(base) == 3
        assert all(rotary[seed]["ppl"] < base[seed]["ppl"] for seed in base)
        for key in found:
            mean, reach = gains[direction, key] = lab_notebook.difference(rotary, base, key, 0.05)
            told[direction, key] = f"{mean:.1f} ± {reach:.1f}"
        told[direction] = [f"{sum(row[test] for row in seeds.values()) / 3:.1f}" for seeds in (rotary, base)]
    (there, there_base), (back, back_base) = told["de-en"], told["en-de"]
    assert f"give {there} BLEU in place of {there_base} from German" in LAB
    assert f"{back} in place of {back_base} from" in LAB
    assert len(gains) == 8 and all(mean > 0 for mean, _ in gains.values())
    assert sum(mean > reach for mean, reach in gains.values()) == 5
    assert all(round(mean) == 1 for (_, (_, kind)), (mean, _) in gains.items() if kind == "greedy")
    assert f"({told['de-en', test]} more)" in LAB and f"({told['en-de', test]})" in LAB
    assert f"gain {told['de-en', ('val', 'beam')]} and {told['en-de', ('val', 'beam')]}." in LAB
    assert "and about one in [long ones]" in DOCUMENTS
    bleu = {
        (row["model"], row["split"]): f"{row['bleu']:.1f}"
        for row in lab_notebook.saved_rows("quality")
        if row["search"] == "beam 5, alpha 1.8" and row.get("model") in ("rotary-en-de", "multi30k-en-de")
    }
    ours, theirs = ([bleu[name, split] for split in ("val", test[0])] for name in ("rotary-en-de", "multi30k-en-de"))
    assert f"it has {ours[0]} on the validation set, where `multi30k-en-de` has {theirs[0]}, but" in LAB
    assert f"on test_2016_flickr both have {ours[1]} (" in LAB and ours[1] == theirs[1]
    told = [
        f"{row['difference']:.1f} {{}}{low:.1f} to {high:.1f}".replace("-", "−")
        for row in lab_notebook.saved_rows("bootstrap")
        if "rotary-pairs" in (row["a"]["model"], row["b"]["model"])
        for low, high in [row["difference_interval"]]
    ]  # the new pairs against the control, greedy and with a beam; the control against its beginning
    assert f"With five beams it gains {told[3].format('(95%: ')}), and the model with new pairs is" in LAB
    assert f"is {told[1].format('ahead of it (')}); with greedy decoding, {told[2].format('(')}) and" in LAB
    assert f"and {told[0].format('(')}).\n" in LAB
    shown = lab_notebook.example_rotary()
    assert len(shown.data if hasattr(shown, "data") else shown) == 6


def test_what_is_said_of_the_accelerator_is_in_its_rows():
    """Catches a sentence that its rows no longer carry."""
    speed, reached = {}, {}
    for row in lab_notebook.saved_rows("accelerator"):
        speed[row["preset"], row["way"]] = row["tokens_per_second"]
        reached.setdefault(row["way"].split(",")[0], []).append(row["matrix_tflops"])
        assert row["losses"][1] < row["losses"][0]
        if row["way"].startswith("bfloat16"):
            assert row["mfu"] < 0.27  # "a quarter"
    gain = lambda preset, way, than="float32": f"{speed[preset, way] / speed[preset, than]:.1f}"  # noqa: E731
    short, compiled = "bfloat16", "bfloat16, compiled"
    assert f"TF32 makes `base` {gain('base', 'TF32')} and `big` {gain('big', 'TF32')} times as fast" in LAB
    assert f"bfloat16 {gain('base', short)} and {gain('big', short)} times; bfloat16 with compiled layers" in LAB
    assert f"compiled layers {gain('base', compiled)} and {gain('big', compiled)} times." in LAB
    assert f"effect on such short sentences: {gain('small', 'bfloat16, fused', short)} times as fast for `small`" in LAB
    assert f"{gain('base', 'bfloat16, fused, compiled', compiled)} times for `base` with it" in LAB
    assert {gain("big", "bfloat16, fused", short), gain("big", "bfloat16, fused, compiled", compiled)} == {"1.0"}
    for numbers, said in (("float32", 52), ("TF32", 440), ("bfloat16", 870)):
        assert all(abs(tflops / said - 1) < 0.05 for tflops in reached[numbers])


def by_seed(pattern):
    """The rows of `quality` whose model has such a name, by split and search and then by seed (that of the first stage)."""
    found = {}
    for row in lab_notebook.saved_rows("quality"):
        if re.fullmatch(pattern, row.get("model", "")):
            start = re.search(r"--start-from \S+seed-(\d)", row["command"])
            found.setdefault((row["split"], row["search"]), {})[int(start[1]) if start else row["seed"]] = row
    return found


def test_what_is_said_of_the_recipe_of_wu_et_al_is_in_its_rows():
    def mean(rows):
        return sum(row["bleu_moses"] for row in rows.values()) / len(rows)

    def told(split, search):
        gain, reach = lab_notebook.difference(rotary[split, search], plain[split, search], "bleu_moses", 0.05)
        return f"{gain:.1f} ± {reach:.1f}"

    test, theirs, our = "test_2016_flickr", "beam 5, alpha 1.0", "beam 5, alpha 1.8"
    plain, rotary = by_seed(r"wu(-\d)?-averaged"), by_seed(r"wurot-\d-averaged")
    ours = {split: rows[0]["bleu_moses"] for (split, search), rows in by_seed("lower-en-de").items() if search == our}
    listed = [[f"{row['bleu_moses']:.2f}" for row in found[test, theirs].values()] for found in (plain, rotary)]
    assert "**Their recipe does here what they report:** {}, {} and {} with their penalty".format(*listed[0]) in LAB
    assert (
        f"That is about {mean(plain[test, theirs]) - ours[test]:.1f} ahead of ours, each with its own penalty." in LAB
    )
    val = f"{mean(plain['val', theirs]):.1f} on average with their penalty and {mean(plain['val', our]):.1f} with ours"
    assert f"behind: {val}, where ours has {ours['val']:.1f}." in LAB
    best = plain[test, theirs][0]
    assert f"{best['step']:,} updates of up to {best['settings']['tokens_per_batch']:,} tokens a side" in LAB
    assert f"({best['tokens'] / 1e6:.0f} million target tokens where ours read 20)" in LAB
    assert f"**Rotary positions add {told(test, theirs)}** to their recipe" in LAB
    assert "on the test set: {}, {} and {}. (".format(*listed[1]) in LAB
    assert f"they add {told('val', theirs)}, with our penalty {told('val', our)}, and with greedy" in LAB
    assert f"and with greedy decoding on the test set {told(test, 'greedy')}. No other model" in LAB
    others = [
        row["bleu_moses"] for row in lab_notebook.saved_rows("quality")
        if (row["split"], row["direction"]) == (test, "en-de") and row["model"] not in {r["model"] for r in rotary[test, theirs].values()}
    ]  # fmt: skip
    assert max(others) < min(row["bleu_moses"] for row in rotary[test, theirs].values())
    on_gpu = ["H100" in row["command"] for found in (plain, rotary) for row in found[test, theirs].values()]
    assert on_gpu.count(False) == 1 and "One of the six runs was made on a CPU" in LAB
    for found in (plain, rotary):
        for split, better in (("val", 1), (test, -1)):  # 1.8 is the better penalty on one, and the worse on the other
            pairs = (
                (row["bleu_moses"], found[split, theirs][seed]["bleu_moses"]) for seed, row in found[split, our].items()
            )
            assert all(better * (high - low) > 0 for high, low in pairs)
    assert len(plain[test, our]) == 2 and len(rotary[test, our]) == len(plain["val", our]) == 3
    means = [f"{mean(found[test, theirs]):.1f}" for found in (plain, rotary)]
    assert f"on lower-cased text, it scores {means[0]}, but" in DOCUMENTS and f"it scores {means[1]}, and" in DOCUMENTS


def test_what_is_said_of_the_round_and_its_controls_is_in_their_rows():
    new, old = by_seed(r"multi30k-de-en-rotary|round-\d"), by_seed(r"rotary-pairs|control-\d")
    gains = {key: lab_notebook.difference(new[key], old[key], "bleu", 0.05) for key in new}
    told = {key: f"{mean:.1f} ± {reach:.1f}" for key, (mean, reach) in gains.items()}
    test, beam = "test_2016_flickr", "beam 5, alpha 1.8"
    assert all(rows.keys() == {0, 1, 2} for found in (new, old) for rows in found.values())
    means = [f"{sum(row['bleu'] for row in found[test, beam].values()) / 3:.1f}" for found in (old, new)]
    assert (
        f"the old pairs bring {means[0]} BLEU on" in LAB and f"the new ones {means[1]}: {told[test, beam]} more" in LAB
    )
    assert f"and {told[test, 'greedy']} with greedy decoding" in LAB
    assert f"it's {told['val', beam]}, an interval with 0, and {told['val', 'greedy']}." in LAB
    assert gains["val", beam][0] < gains["val", beam][1]
    scores = [f"{new[test, beam][seed]['bleu']:.1f}" for seed in range(3)]
    assert f"and have {scores[0]}, {scores[1]} and {scores[2]} on test_2016_flickr" in LAB
    assert max(new["val", beam], key=lambda seed: new["val", beam][seed]["bleu"]) == 2


def test_what_is_said_of_pythons_share_is_in_its_row():
    tiny = [row for row in lab_notebook.saved_rows("step_profile") if row["preset"] == "tiny"][-1]
    assert f"{tiny['decoding']['Python and the rest']:.0%} of the time goes to Python" in LAB


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
