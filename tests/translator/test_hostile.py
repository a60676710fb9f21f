"""What comes from elsewhere is refused or harmless: model folders, data, sentences and names."""

import json
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import the_annotated_transformer as tat
from tests.helpers import Touch, refused
from translator import explorer
from translator.files import model_folder
from translator.model_folder import read_translator
from translator.settings import Settings, build_model


@pytest.fixture
def model(tmp_path) -> Path:
    """A copy of the shipped model, without its checksums, as a stranger's folder would be."""
    folder = tmp_path / "model"
    shutil.copytree(model_folder(), folder)
    (folder / "SHA256SUMS").unlink()
    return folder


def refuse(capsys, model: Path, message: str) -> None:
    """`translate` ends with status 2 and one line."""
    assert message in refused(capsys, ["translate", "Ein Hund.", "--model", str(model)])


def change(path: Path, function: Callable[[dict], object]) -> None:
    about = json.loads(path.read_text())
    function(about)
    path.write_text(json.dumps(about))


TOO_LARGE = [{"N": 10**9}, {"d_model": 10**12}]
WRONG = [{"h": 10**9}, {"N": "4"}, {"d_model": 0}]


@pytest.mark.parametrize("sizes", [*TOO_LARGE, *WRONG], ids=str)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_taken(
    model, capsys, monkeypatch, sizes
):
    """In a moment; catches an hour of building layers, and a machine without memory."""
    change(model / "config.json", lambda about: about["settings"].update(sizes))
    if sizes in TOO_LARGE:

        def made(*_):
            return pytest.fail("layers were made")

        monkeypatch.setattr("translator.model_folder.build_model", made)
    refuse(capsys, model, "its sizes need" if sizes in TOO_LARGE else str(model))


def test_a_language_without_rules_is_refused_where_words_need_them(model, capsys):
    """A vocabulary of whole words is read with spaCy's rules for its languages."""
    tokenizer = tat.learn_words([("ein Hund", "a dog")], ("de", "en"), at_least=1)
    net = build_model(Settings(N=1, d_model=8, d_ff=8, h=1, bpe=0), len(tokenizer))
    shutil.rmtree(model)
    tat.save_translator(tat.Translator(net, tokenizer, ("klingon", "en")), model)
    refuse(capsys, model, "no rules for the language 'klingon'")


def test_a_pickle_is_not_run(model, capsys, tmp_path):
    (model / "model.safetensors").write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    refuse(capsys, model, "model.safetensors")
    assert not (tmp_path / "touched").exists()


def test_names_in_a_model_do_not_become_html(model, tmp_path):
    """Its languages, its data and its folder's name stand in the page of `explain`, but as text."""
    attack = "</script><img src=x onerror=alert(1)>"
    change(model / "config.json", lambda about: about.update(src=attack, tgt=attack, data=attack))
    page, _ = explorer.page(read_translator(model), attack, attack, attack)
    assert "onerror=alert" in page and "<img src=x" not in page
