"""README, TEACHING and llms.txt are short, and what they name and quote is there."""

import json
import re

import the_annotated_transformer as tat
from tests.helpers import ROOT

README = " ".join((ROOT / "README.md").read_text("utf-8").split())


def rows(name: str) -> list[dict]:
    text = (ROOT / f"benchmarks/results/{name}.jsonl").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_they_are_short():
    for name, limit in (("README.md", 60), ("TEACHING.md", 55), ("llms.txt", 45)):
        lines = (ROOT / name).read_text("utf-8").splitlines()
        assert len(lines) <= limit, name
        assert name != "README.md" or max(map(len, lines)) <= 100


def test_what_llms_txt_names_is_there():
    text = (ROOT / "llms.txt").read_text("utf-8")
    files = re.findall(r"\]\(([^)]+)\)", text) + re.findall(r"`([\w/]+\.(?:py|md|jsonl))`", text)
    assert len(files) > 9 and not [name for name in files if not (ROOT / name).is_file()]
    names = text.partition("## Names that hold")[2].partition(" in `the_annotated")[0]
    methods, model = re.findall(r"`(?:model\.)?(\w+)`", names), tat.make_model(9, 9, 1, 8, 8, 2)
    assert len(methods) == 9
    assert not [n for n in methods if not hasattr(tat, n) and not hasattr(model, n)]
    scripts = [ROOT / f"{name}.py" for name in ("the_annotated_transformer", "since_2017")]
    documents = "".join(script.read_text("utf-8") for script in scripts)
    for heading in ("Questions, and where they are answered", "Glossary", "BLEU"):
        assert f'"{heading}"' in text and f"# ## {heading}\n" in documents
    assert "# @title Answer" in (ROOT / "exercises.py").read_text("utf-8")


def means(direction: str, variant: str, kind: str) -> float:
    """BLEU with a beam on the test of 2016 after the pairs alone: the mean of three seeds."""
    scores = [
        row["test_2016_flickr"]["beam"][kind]
        for row in rows("first_stage")
        if (row["direction"], row["variant"]) == (direction, variant)
    ]
    return round(sum(scores) / 3, 2)


def test_the_readme_compares_what_rows_hold():
    """Its numbers, whatever its sentences say; the tables behind them are the lab notebook's."""
    compared = README.partition("## How it compares")[2].partition("## ")[0]
    shipped = {
        row["model"]: row["bleu"]
        for row in rows("test_sets")
        if row["search"] != "greedy" and row["split"] == "test_2016_flickr"
    }
    numbers = [shipped[name] for name in ("multi30k-de-en", "multi30k-de-en-rotary")]
    numbers += [means("de-en", variant, "bleu") for variant in ("base", "rotary")]
    numbers.append(41.02 - means("en-de", "base", "bleu_moses"))  # behind Wu et al.
    assert {f"{number:.1f}" for number in numbers} <= {*re.findall(r"\d+\.\d", compared)}


def test_the_readme_quotes_samples_of_a_row():
    row = rows("samples")[-1]
    written = [stage["translations"] for stage in row["stages"]]
    samples = {line for translations in written for line in translations} | {*row["sentences"]}
    quoted = re.findall(r'"([^"]{15,}\.)"', README)  # longer than that of a command
    assert len(quoted) >= 3 and {*quoted} <= samples
