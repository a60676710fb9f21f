"""What people and machines read first: README, TEACHING and llms.txt.

They are short, and what they name and quote is there.
"""

import json
import re

import the_annotated_transformer as tat
from tests.helpers import ROOT

README = " ".join((ROOT / "README.md").read_text("utf-8").split())


def rows(name: str) -> list[dict]:
    text = (ROOT / f"benchmarks/results/{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_they_are_short():
    for name, most in (("README.md", 60), ("TEACHING.md", 55), ("llms.txt", 45)):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        assert len(lines) <= most, name
        assert name != "README.md" or max(map(len, lines)) <= 100


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
    row = rows("samples")[-1]
    sentence = "Ein Hund läuft durch den Schnee."
    written = {
        stage.get("updates"): stage["translations"][row["sentences"].index(sentence)]
        for stage in row["stages"]
    }
    said = f'After 170 updates, a model writes "{written[170]}" for "{sentence}"'
    assert f'{said}; after 510, "{written[510]}"' in README


def mean_bleu(direction: str, variant: str, kind: str) -> str:
    """BLEU with a beam on the test of 2016 after the pairs alone: the mean of three seeds."""
    found = [
        row["test_2016_flickr"]["beam"][kind]
        for row in rows("first_stage")
        if (row["direction"], row["variant"]) == (direction, variant)
    ]
    assert len(found) == 3
    return f"{sum(found) / 3:.2f}"


def test_the_readme_compares_in_few_words_what_rows_hold():
    """Each number of its lines; the lab notebook's tables behind them are tested there."""
    compared = README.partition("## How it compares")[2].partition("## ")[0]
    ratios = [row["ratio_of_pairs"] for row in rows("training_speed") if row["preset"] == "tiny"]
    assert "about ten times slower than ours (re-created; both with Adam)." in compared
    assert round(sum(ratios) / len(ratios)) == 10
    shipped = {
        row["model"]: f"{row['bleu']:.1f}"
        for row in rows("test_sets")
        if row["search"] != "greedy" and row["split"] == "test_2016_flickr"
    }
    said = f"have {shipped['multi30k-de-en']} and {shipped['multi30k-de-en-rotary']} BLEU"
    assert f"our two models {said} on Multi30k's test of 2016" in compared
    base, rotary = (float(mean_bleu("de-en", name, "bleu")) for name in ("base", "rotary"))
    assert f"such models have {base:.1f} and {rotary:.1f}." in compared
    behind = 41.02 - float(mean_bleu("en-de", "base", "bleu_moses"))
    assert f"we are {behind:.1f} BLEU *behind* a published model" in compared


def test_the_program_quotes_its_engines():
    engines = [row for row in rows("engines") if row["split"] == "test_2016_flickr"]
    program = " ".join((ROOT / "translator" / "README.md").read_text("utf-8").split())
    kinds = (("int8_float32", "have {}, {} and {} BLEU"), ("float32", "and {}, {} and {} without"))
    for kind, said in kinds:
        scores = [
            row["bleu"]
            for row in engines
            if "5" in row["search"] and (row["type"], row["engine"]) == (kind, "ctranslate2")
        ]
        assert said.format(*(f"{score:.1f}" for score in scores)) in program
    greedy = [
        row for row in rows("engines") if row["search"] == "greedy" and row["type"] == "float32"
    ]
    assert (
        len({(row["model"], row["split"], row["bleu"]) for row in greedy}) == len(greedy) / 2 == 6
    )
