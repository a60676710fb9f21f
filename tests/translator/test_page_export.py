"""`export --to page`: one file that translates in a browser as the program does."""

import copy
import html
import json
import re
import shutil
from datetime import date
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import since_2017 as since
import the_annotated_transformer as tat
from tests.helpers import ROOT, node, offline_tab, refused
from translator import page_export
from translator.__main__ import main
from translator.captions import caption_pairs
from translator.explorer import model_content
from translator.files import Refused
from translator.model_folder import read_translator

SHIPPED = ROOT / tat.SHIPPED_MODEL
SENTENCES = [source for source, _ in caption_pairs("train")][:25]
STRANGE = ["", "  ", "Ein Hund &amp; eine Katze.", "Ж漢 %s {0}", "Hund " * 200]
TRANSLATE = """
import { lineSteps } from "./model/greedy_translator.js";
import { Translator } from "./model/translator.js";
const translator = await Translator.load(asked.model);
const finished = (steps) => {
  for (;;) { const { done, value } = steps.next(); if (done) return value; }
};
console.log(JSON.stringify(asked.lines.map((line) => finished(lineSteps(translator, line)))));
"""


def made(folder: Path, options: str = "") -> Path:
    """The page of the shipped model, or of another one that the options name."""
    out = folder / "page.html"
    assert main(["export", "--to", "page", "--out", str(out), *options.split()]) == 0
    return out


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    return made(tmp_path_factory.mktemp("page"), "--title A</script> --names German English")


def translated(lines: list[str], capsys, *options: str) -> list[str]:
    """What `translate --type float32 --beam 1` gives."""
    capsys.readouterr()
    assert main(["translate", "--type", "float32", "--beam", "1", *options, *lines]) == 0
    return capsys.readouterr().out.splitlines()


def test_it_translates_as_the_program_does(capsys):
    """Each word's probability is that of the model, and what cannot be translated says why."""
    model = model_content(read_translator(SHIPPED), "x")
    results = node(TRANSLATE, {"model": model, "lines": SENTENCES + STRANGE})
    texts = [result["text"] for result in results]
    assert texts[: len(SENTENCES)] == translated(SENTENCES, capsys)
    assert texts[-5:-3] == ["", ""] and results[-1]["long"]
    assert results[-2]["unknown"] == ["Ж", "漢", "{", "}"]
    capsys.readouterr()
    assert main(["translate", "--json", "--beam", "1", SENTENCES[0]]) == 0
    row = json.loads(capsys.readouterr().out)
    logs = torch.tensor(results[0]["probabilities"]).log().tolist()
    assert logs == pytest.approx(row["log_probs"], abs=1e-3)


def test_the_sentences_of_a_line_are_translated_one_by_one(capsys):
    """Each is there, what is too long is left out and said, and no space is lost between two."""
    model = model_content(read_translator(SHIPPED), "x")
    sentences = [*SENTENCES[:3], "1. Ein Hund « .. »."]
    line = f"{' '.join(sentences)} {'Hund ' * 200}. {SENTENCES[3]}"
    (result,) = node(TRANSLATE, {"model": model, "lines": [line]})
    parts = translated([*sentences, SENTENCES[3]], capsys)
    assert result["text"].split() == " ".join(parts).split() and result["long"]
    assert result["tokens"].count("</s>") == 5


def test_8_bits_are_the_weights_nearly(shipped):
    """Each matrix is near its own within half a step of its row, and the rest is equal."""
    parameters = dict(shipped.model.named_parameters())
    content = {**page_export.in_rows(parameters), "names": list(parameters)}
    script = """
    import { readWeights, unpack } from "./model/tensors.js";
    const tensors = readWeights(asked, await unpack(asked.weights));
    console.log(JSON.stringify(asked.names.map((name) => [...tensors[name].data])));
    """
    for numbers, parameter in zip(node(script, content), parameters.values(), strict=True):
        weights = torch.tensor(numbers).view_as(parameter)
        step = parameter.abs().amax(-1, keepdim=True) / 127 if parameter.ndim > 1 else 0.0
        assert ((weights - parameter).abs() <= 0.6 * step + 1e-6).all()


def test_sizes(page, tmp_path):
    assert page.stat().st_size < 6e6
    assert made(tmp_path, "--type int8").stat().st_size < 3e6


def test_it_opens_from_a_file_on_a_phone(browser, page):
    """Without a request: typing translates after a pause, Enter at once, even before the model is
    there; letters are named."""
    tab, problems = offline_tab(browser, 390, 844)
    tab.goto(page.as_uri(), wait_until="commit")
    tab.fill("#text", "Ein Hund")
    tab.press("#text", "Enter")
    tab.wait_for_selector("#translation[aria-busy=false] p")
    assert tab.title() == "A</script>"
    tab.fill("#text", "Ein Hund läuft durch den Schnee.")
    tab.wait_for_selector(
        "#translation[aria-busy=false] p:has-text('A dog runs through the snow.')"
    )
    tab.fill("#text", "Die Bundeskanzlerin Ж.\nEin Hund läuft.")
    tab.press("#text", "Enter")
    tab.wait_for_selector("#translation[aria-busy=false] p:nth-child(3)")
    assert tab.locator("#translation .note").text_content().endswith("seen: Ж")
    assert tab.locator("#translation u").count() and tab.is_visible("#legend")
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    tab.fill("#text", "Ein Hund läuft durch den Schnee. Ein Hund läuft.")
    tab.press("#text", "Enter")
    tab.wait_for_selector("#translation[aria-busy=false] p")
    assert tab.text_content("#translation").count(". A dog") == 1
    assert "captions" in tab.text_content("details") and problems == []


def test_the_card_has_the_score_of_these_weights(tmp_path, capsys):
    evaluate = "evaluate --data captions --split val --beam 1 --json"
    assert main(evaluate.split()) == 0
    row = json.loads(capsys.readouterr().out)
    score, out = tmp_path / "score.json", tmp_path / "page.html"
    score.write_text(json.dumps(row))
    text = made(tmp_path, f"--score {score}").read_text("utf-8")
    assert "how good it is" not in capsys.readouterr().out
    expected = f"it has {row['bleu']:.1f} ± {row['bleu_half_width']:.1f} of 100 points"
    assert f"On 60 sentences (captions, val), {expected}" in text
    for changed, message in (
        (row | {"weights": "0"}, "the score of other weights than"),
        (row | {"search": "5 beams"}, "measured with 5 beams, and a page translates greedily"),
        ({"bleu": 3}, "not what evaluate --json prints"),
        ({"weights": row["weights"], "bleu": "<b>"}, "not what evaluate --json prints"),
    ):
        score.write_text(json.dumps(changed))
        other = out.with_name("other.html")
        assert message in refused(capsys, f"export --to page --out {other} --score {score}")
    assert "stays as it is" in refused(capsys, f"export --to page --out {out}")
    out.unlink()
    made(tmp_path)
    assert "it tells nobody how good it is" in capsys.readouterr().out


def test_right_to_left_and_other_words(tmp_path):
    """The direction is the language's; all the page's texts are its maker's."""
    folder, words = tmp_path / "ar", tmp_path / "words.json"
    shutil.copytree(SHIPPED, folder)
    (folder / "SHA256SUMS").unlink()
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"src": "ar", "tgt": "en"}))
    others = {text: f"№{i}<" for i, text in enumerate(page_export.WORDS)}
    others |= {"lang": "ar", "Made on": "", page_export.LEARNED: "№ {source}<"}
    words.write_text(json.dumps(others))
    text = made(tmp_path, f"--model {folder} --words {words}").read_text("utf-8")
    assert '<textarea id="text" lang="ar" dir="rtl"' in text and '<html lang="ar">' in text
    assert re.search('<div id="translation" lang="en" dir="ltr"', text)
    body = text.partition("<script")[0]
    said = set(re.findall(r">([^<>]*\w[^<>]*)</(?:p|summary|dt|dd|noscript)>", body))
    texts = {html.escape(other) for other in others.values()}
    assert said - texts == {"Made on", "№ closest-de-en&lt;", date.today().isoformat()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("page --type int4", "--type int4: a page has float16 or int8"),
        ("page --words {tmp}/words.json", "'Maked on' is no text of the page, which has: {\"A sen"),
        ("half --title x", "--title is for --to page"),
    ],
)
def test_what_no_page_can_have_is_refused(tmp_path, capsys, options, message):
    (tmp_path / "words.json").write_text('{"Maked on": "x"}')
    command = f"export --out {tmp_path}/x.html --to {options}".format(tmp=tmp_path)
    assert message in refused(capsys, command)
    assert not (tmp_path / "x.html").exists()


def test_models_that_no_page_can_run_are_refused(shipped):
    """Whole words, Marian's layers, and another layer than the paper's, by name."""
    marian, changed = copy.deepcopy(shipped.model), copy.deepcopy(shipped.model)
    marian.src_embed.positions = since.SplitPositions(128, 0.0, 64)
    changed.encoder.layers[1].feed_forward = torch.nn.Identity()
    words = SimpleNamespace(words=True)
    for translator, message in (
        (shipped._replace(tokenizer=words), "whole words need spaCy's rules"),
        (shipped._replace(model=marian), "a model that Marian trained"),
        (shipped._replace(model=changed), r"encoder\.layers\.1 .* is not the paper's"),
    ):
        with pytest.raises(Refused, match=message):
            page_export.page_content(Path("x"), translator, "float16")
