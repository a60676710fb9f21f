"""What comes from elsewhere is refused or harmless: model folders, data, sentences and names."""

import gzip
import json
import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import the_annotated_transformer as tat
from tests.helpers import Touch, refused
from translator import explorer
from translator.files import model_folder
from translator.model_folder import build_for, read_translator
from translator.processes import weights_of
from translator.settings import Settings, build_model
from translator.sources import LONGEST_LINE_BYTES, load_pairs


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


TOO_LARGE = [{"N": 10**9}, {"d_model": 10**12}, {"d_ff": 10**12}, {"d_k": 10**9}, {"d_ff": 300_000}]
WRONG = [{"h": 10**9}, {"N": "4"}, {"N": -1}, {"d_model": 0}, {"d_model": [128]}]
WRONG += [{"h": None}, {"d_ff": 1e300}]


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


@pytest.mark.parametrize(
    "changes", [{"d_k": 1, "h": 1}, {"d_k": 64}, {"tie": "none"}, {"positions": "learned"}], ids=str
)
def test_sizes_that_the_weights_have_are_accepted(changes):
    """Of models that are mostly one thing; catches a bound that a thin model breaks."""
    config = Settings(**{"N": 12, "d_model": 128, "d_ff": 8, "h": 4} | changes)
    built = build_model(config, 20)
    assert weights_of(build_for(weights_of(built), config, 20)).keys() == weights_of(built).keys()


def test_a_pattern_of_catastrophic_cost_is_refused(model, capsys):
    pattern = {"type": "Replace", "pattern": {"Regex": "(n+)+$"}, "content": ""}

    def add(tokenizer):
        return tokenizer["normalizer"]["normalizers"].append(pattern)

    change(model / "tokenizer.json", add)
    refuse(capsys, model, "it has patterns of its own")


def test_a_language_without_rules_is_refused_where_words_need_them(model, capsys):
    """A vocabulary of whole words is read with spaCy's rules for its languages."""
    tokenizer = tat.learn_words([("ein Hund", "a dog")], ("de", "en"), at_least=1)
    net = build_model(Settings(N=1, d_model=8, d_ff=8, h=1, bpe=0), len(tokenizer))
    shutil.rmtree(model)
    tat.save_translator(tat.Translator(net, tokenizer, ("klingon", "en")), model)
    refuse(capsys, model, "no rules for the language 'klingon'")


def test_sizes_that_cannot_be_are_refused_in_a_folder_of_any_name(model, capsys, monkeypatch):
    """Catches an error taken for one that names the folder, whose name is a letter of the text."""
    model.rename(model.parent / "s")
    change(model.parent / "s" / "config.json", lambda about: about["settings"].update(N=900_000))
    monkeypatch.chdir(model.parent)
    refuse(capsys, Path("s"), "its sizes need")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
def test_a_pickle_is_not_run(model, capsys, tmp_path, name):
    (model / name).write_bytes(pickle.dumps(Touch(tmp_path / "touched")))
    refuse(capsys, model, name)
    assert not (tmp_path / "touched").exists()
    pickle.loads((model / name).read_bytes())  # it would have been
    assert (tmp_path / "touched").exists()


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json"])
@pytest.mark.parametrize("target", ["pipe", "/dev/zero", "nowhere", "."])
def test_links_and_pipes_in_a_model_keep_nobody_waiting(model, capsys, name, target):
    (model / name).unlink()
    if target == "pipe":
        os.mkfifo(model / name)
    else:
        (model / name).symlink_to(target)
    refuse(capsys, model, name)


@pytest.mark.parametrize("packed", [True, False])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path, packed):
    """As of a small file that unpacks to a hundred megabytes."""
    text = b"Ein Hund.\n" + b"x" * 10**8
    for language in ("de", "en"):
        path = tmp_path / f"train.{language}{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(text, 1) if packed else text)
    said = rf"train\.\w\w(\.gz)?, line 2: more than {LONGEST_LINE_BYTES:,} bytes"
    with pytest.raises(ValueError, match=said):
        load_pairs(str(tmp_path), "train")


def test_names_in_a_model_do_not_become_html(model, tmp_path):
    """Its languages, its data and its folder's name stand in the page of `explain`, but as text."""
    attack = "</script><img src=x onerror=alert(1)>"
    change(model / "config.json", lambda about: about.update(src=attack, tgt=attack, data=attack))
    page, _ = explorer.page(read_translator(model), attack, attack, attack)
    assert "onerror=alert" in page and "<img src=x" not in page
