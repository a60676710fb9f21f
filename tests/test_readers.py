"""What people and machines read first: README, TEACHING and llms.txt.

They are short, and what they name and quote is there.
"""

import json
import re

import the_annotated_transformer as tat
from benchmarks import shared
from tests.helpers import ROOT
from translator.settings import PRESETS

README = " ".join((ROOT / "README.md").read_text("utf-8").split())


def rows(name: str) -> list[dict]:
    text = (ROOT / f"benchmarks/results/{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_they_are_short():
    for name, most in (("README.md", 90), ("TEACHING.md", 55), ("llms.txt", 45)):
        assert len((ROOT / name).read_text("utf-8").splitlines()) <= most, name


def test_what_llms_txt_names_is_there():
    text = (ROOT / "llms.txt").read_text("utf-8")
    files = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`([\w/]+\.(?:py|md|jsonl))`", text)
    assert len(files) > 9 and not [name for name in files if not (ROOT / name).is_file()]
    names = text.partition("## Names that hold")[2].partition(" in `the_annotated")[0]
    found, model = re.findall(r"`(?:model\.)?(\w+)`", names), tat.make_model(9, 9, 1, 8, 8, 2)
    assert len(found) == 9
    assert not [n for n in found if not hasattr(tat, n) and not hasattr(model, n)]
    scripts = [ROOT / f"{name}.py" for name in ("the_annotated_transformer", "since_2017")]
    documents = "".join(script.read_text("utf-8") for script in scripts)
    for heading in ("Questions, and where they are answered", "Glossary", "BLEU"):
        assert f'"{heading}"' in text and f"# ## {heading}\n" in documents
    assert "# @title Answer" in (ROOT / "exercises.py").read_text("utf-8")


def test_the_readme_quotes_samples_of_a_row():
    """Each line of its table, and the one that goes wrong."""
    row = rows("samples")[-1]
    # with which the preset is complete
    today = next(row for row in rows("million") if row["recipe"] == "dropout")
    section = README.partition("## What you get")[2].partition("All these models")[0]
    table = re.findall(r"\| ([^|]*) \| ([^|]*) \| ([^|]*) \|", section)
    asked, *lines = [cells for cells in table if set(cells[0]) != {"-"}]
    numbers = [row["sentences"].index(sentence.strip('"')) for sentence in asked[1:]]
    stages = {f"{stage['updates']}": stage for stage in row["stages"] if "updates" in stage} | {
        "shipped": row["stages"][-1],
        f"{today['step']}": {"translations": today["samples"]},
    }
    assert len(lines) == 4
    for words, *translations in lines:
        stage = next(found for name, found in stages.items() if re.search(rf"\b{name}\b", words))
        assert translations == [stage["translations"][number] for number in numbers]
    worst = row["sentences"].index("Mein Nachbar hat gestern sein Fahrrad verkauft.")
    assert f"into *{row['stages'][-1]['translations'][worst]}*" in README


def test_the_readme_compares_in_few_words_what_rows_hold():
    """Each number of its six lines; the lab notebook's tables behind them are tested there."""
    compared = README.partition("## How it compares")[2].partition("## ")[0]
    ratios = [row["ratio_of_pairs"] for row in rows("training_speed") if row["preset"] == "tiny"]
    assert "about ten times slower than ours (both with Adam)." in compared
    assert round(sum(ratios) / len(ratios)) == 10
    last = [row for row in rows("peers") if row["preset"] == "tiny"][-1]
    speeds = {who: found["median"] for who, found in last["tokens_per_second"].items()}
    ratio = speeds["this"] / speeds["nn.Transformer"]
    assert f"{ratio:.1f} times as many tokens a second" in compared
    assert "At the sizes of `tiny`, with Adam, sinusoids" in compared
    assert shared.with_adam("tiny", None).optimizer == "adam" != PRESETS["tiny"].optimizer
    assert shared.with_adam("tiny", None).positions == "sinusoidal" != PRESETS["tiny"].positions
    minutes = {(r["direction"], r["variant"], r["seed"]): r["minutes"] for r in rows("first_stage")}
    turned = {one: took for one, took in minutes.items() if one[1] == "rotary"}
    assert len(turned) == 6
    assert all(took > minutes[d, "base", seed] for (d, _, seed), took in turned.items())
    assert "`tiny` itself has Muon and rotary positions, and is slower" in compared
    beams = [row for row in rows("test_sets") if row["search"] != "greedy"]
    sets = {(row["model"], row["split"]): row["bleu"] for row in beams}
    splits = ("test_2016_flickr", "test_2017_flickr", "test_2018_flickr", "test_2017_mscoco")
    for name, said in ("multi30k-de-en", "{} BLEU"), ("multi30k-de-en-rotary", "rotary` has {}"):
        *first, last = (f"{sets[name, split]:.1f}" for split in splits)
        assert said.format(f"{', '.join(first)} and {last}") in compared
    means = {}
    for direction, variant, kind in (
        ("de-en", "base", "bleu"),
        ("de-en", "rotary", "bleu"),
        ("en-de", "base", "bleu_moses"),
        ("en-de", "rotary", "bleu_moses"),
    ):
        found = [
            r["test_2016_flickr"]["beam"][kind]
            for r in rows("first_stage")
            if (r["direction"], r["variant"]) == (direction, variant)
        ]
        assert len(found) == 3
        means[direction, variant] = sum(found) / 3
    alone, turned = f"{means['de-en', 'base']:.1f}", f"{means['de-en', 'rotary']:.1f}"
    said = f"the 29,000 pairs alone give {alone} on the test of 2016, and {turned}"
    assert f"{said} with rotary positions" in compared
    chrf = [row["chrf"] for row in beams if row["split"] == splits[0]]
    chrf = [chrf[0], chrf[-1]]  # the other direction's stands between them
    for variant in ("base", "rotary"):
        kind = ("de-en", variant)
        stages = [r for r in rows("first_stage") if (r["direction"], r["variant"]) == kind]
        chrf.append(sum(r[splits[0]]["beam"]["chrf"] for r in stages) / 3)
    said = "chrF these four models have {:.1f}, {:.1f}, {:.1f} and {:.1f}."
    assert said.format(*chrf) in compared
    engines = [row for row in rows("engines") if row["split"] == splits[0] and "5" in row["search"]]
    program = " ".join((ROOT / "translator" / "README.md").read_text("utf-8").split())
    kinds = (("int8_float32", "have {}, {} and {} BLEU"), ("float32", "and {}, {} and {} without"))
    for kind, said in kinds:
        scores = [
            row["bleu"] for row in engines if (row["type"], row["engine"]) == (kind, "ctranslate2")
        ]
        assert said.format(*(f"{score:.1f}" for score in scores)) in program
    greedy = [
        row for row in rows("engines") if row["search"] == "greedy" and row["type"] == "float32"
    ]
    assert (
        len({(row["model"], row["split"], row["bleu"]) for row in greedy}) == len(greedy) / 2 == 6
    )
    behind, rotary = (f"{41.02 - means['en-de', kind]:.1f}" for kind in ("base", "rotary"))
    said = f"we are {behind} BLEU *behind* a published model of these dimensions"
    assert f"{said}, {rotary} with rotary" in compared
