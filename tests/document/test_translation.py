"""What Part 3 reads, turns into tokens, saves and translates."""

import dataclasses
import hashlib

import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import ROOT
from translator.captions import caption_corpus
from translator.model_folder import read_translator
from translator.sources import MULTI30K_FILES, load_pairs

MODEL = ROOT / tat.SHIPPED_MODEL
LANGUAGES = ("de", "en")


def test_multi30k_is_read_as_the_program_reads_it(multi30k, monkeypatch):
    """Catches other checksums, a wrong encoding, a line split elsewhere, pairs in another order."""
    assert tat.CHECKSUMS.items() <= MULTI30K_FILES.items()
    monkeypatch.setenv("MULTI30K_CACHE", str(multi30k))
    for split in ("train", "val"):
        assert tat.multi30k(split) == load_pairs("multi30k", split)
    for path in multi30k.glob("*.gz"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == MULTI30K_FILES[path.name]


def test_choosing_data_falls_back_to_phrases_with_a_notice(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "nowhere"))
    assert tat.choose_data.__wrapped__() == "phrases"
    assert "NOTICE" in capsys.readouterr().out
    for name in ("train.de", "train.en", "val.de", "val.en"):
        (tmp_path / name).write_text("a\n")
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path))
    assert tat.choose_data.__wrapped__() == str(tmp_path)


def with_tanh(ffn: tat.PositionwiseFeedForward, x: torch.Tensor) -> torch.Tensor:
    """Another network of the same shapes."""
    return ffn.W_2(ffn.W_1(x).tanh())


def test_another_architecture_is_another_live_run(monkeypatch, tmp_path, capsys):
    """Catches an earlier architecture's weights, even of equal shapes, and a run not measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ANNOTATED_STEPS", "2")
    pairs = load_pairs("captions", "train")[:300]
    monkeypatch.setattr(tat, "load_split", lambda split: pairs)
    monkeypatch.setattr(tat, "choose_data", lambda: "captions")
    small = dataclasses.replace(tat.LIVE, N=1, d_model=16, d_ff=16, h=1, bpe=50)
    monkeypatch.setattr(tat, "LIVE", small)
    first = tat.live_run.__wrapped__()
    assert len(first.rows) == 2 and "validation" in first.rows[-1] and len(first.checkpoints) == 1
    for name, p in first.translator.model.named_parameters():
        assert torch.equal(first.checkpoints[-1][name], p)
    assert len(list(tmp_path.glob("runs/live-*"))) == 1
    again = tat.live_run.__wrapped__()
    assert again.rows == first.rows and len(list(tmp_path.glob("runs/live-*"))) == 1
    monkeypatch.setattr(tat.PositionwiseFeedForward, "forward", with_tanh)
    tat.live_run.__wrapped__()
    assert len(list(tmp_path.glob("runs/live-*"))) == 2


def test_the_phrases_are_whole_and_none_is_in_both_splits():
    train, val = tat.phrases("train"), tat.phrases("val")
    assert len({*train, *val}) == len(train) + len(val) == 5 * 4 * 4 * 3 and len(val) == 24
    assert ("Mein Hund schläft am Strand.", "My dog is sleeping on the beach.") in {*train, *val}
    assert tat.phrases("train") == train


@pytest.fixture(scope="module", params=["words", "pieces"])
def tokenizer(request):
    """Both kinds of vocabulary, learned from captions."""
    pairs = [(caption.de, caption.en) for caption in caption_corpus()[1000:3000]]
    if request.param == "words":
        return tat.learn_words(pairs, LANGUAGES)
    return tat.learn_bpe(pairs, 400)


def test_text_survives_the_way_to_ids_and_back(tokenizer):
    for pair in load_pairs("captions", "train")[:300]:
        for text, language in zip(pair, LANGUAGES, strict=True):
            ids = tokenizer.encode(text, language)
            assert tokenizer.decode([tat.BOS, *ids, tat.EOS, 7, 7]) == text
            assert tat.UNK not in ids


def test_specials_have_their_numbers_and_their_names_in_text_are_text(tokenizer):
    assert tokenizer.tokens(range(4)) == tat.SPECIALS
    ids = tokenizer.encode("Ein </s> Hund <pad> <s>.", "de")
    assert not {tat.PAD, tat.BOS, tat.EOS} & set(ids)


def test_the_vocabulary_of_words_comes_from_words_seen_twice():
    tokenizer = tat.learn_words([("Hund Hund Katze", "dog dog cat")], LANGUAGES)
    assert tokenizer.tokens(range(4, len(tokenizer))) == ["▁Hund", "▁dog"]
    assert tokenizer.decode(tokenizer.encode("Hund bellt Hund", "de")) == "Hund <unk> Hund"


def small_translator(**sizes) -> tat.Translator:
    tokenizer = tat.learn_bpe(load_pairs("captions", "train")[:500], 100)
    sizes = {"N": 1, "d_model": 16, "d_ff": 24, "h": 2, "tie": "all"} | sizes
    return tat.Translator(tat.make_model(len(tokenizer), len(tokenizer), **sizes).eval(), tokenizer)


def test_the_document_goes_on_without_the_shipped_model(monkeypatch, capsys, tmp_path):
    """Catches a notebook that stops if it is alone or if its architecture was edited."""
    translator = small_translator()
    monkeypatch.setattr(tat, "live_run", lambda: tat.LiveRun(translator, [], []))
    missing = "config.json is not beside this document (put the_annotated_transformer.zip there"
    for place, name, value, notice in (
        (tat, "HERE", tmp_path, missing),
        # a reader changes the norm
        (tat.nn, "LayerNorm", tat.nn.RMSNorm, "not weights of this document's model"),
        (tat.PositionwiseFeedForward, "forward", with_tanh, "does not fit this architecture"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            assert tat.our_model.__wrapped__() is translator and notice in capsys.readouterr().out
    assert tat.our_model.__wrapped__() is not translator


@pytest.mark.parametrize(
    "sizes", [{}, {"tie": "none", "norm": "pre"}, {"d_k": 3, "positions": "learned"}]
)
def test_a_translator_survives_its_folder(tmp_path, sizes):
    """Catches a lost setting, a tied matrix that becomes two, a folder the program can't read."""
    translator = small_translator(**sizes)
    tat.save_translator(translator, tmp_path / "new" / "model")
    sentences = [pair[0] for pair in load_pairs("captions", "val")[:5]]
    expected = tat.translate_lines(translator, sentences)
    for load in (tat.load_translator, read_translator):
        loaded = load(tmp_path / "new" / "model")
        assert loaded.languages == ("de", "en")
        assert len(loaded.tokenizer) == len(translator.tokenizer)
        assert all(map(torch.equal, translator.model.parameters(), loaded.model.parameters()))
        assert tat.translate_lines(loaded, sentences) == expected


def test_one_sentence_gives_one_translation_and_a_list_gives_a_list():
    """Catches a sentence taken for a list of letters, and translations in another order."""
    translator = tat.load_translator(MODEL)
    lines = ["Ein Hund läuft.", "", "Zwei Frauen lesen ein Buch.", "  ", "Ein Mann."]
    texts = tat.translate_lines(translator, lines, batch_size=2)
    assert texts == [tat.translate_lines(translator, line) for line in lines]
    assert texts[1] == texts[3] == ""
    assert "dog" in texts[0] and "book" in texts[2] and "man" in texts[4].lower()
    assert tat.translate_lines(translator, iter(lines)) == texts


def test_what_is_missing_is_fetched(monkeypatch, tmp_path):
    """Catches a folder that is not made, and half a file."""
    (tmp_path / "public/raw/main").mkdir(parents=True)
    (tmp_path / "public/raw/main/models").symlink_to(ROOT / "models")
    monkeypatch.setattr(tat, "REPOSITORY", (tmp_path / "public").as_uri())
    monkeypatch.setattr(tat, "HERE", tmp_path / "colab")
    assert tat.our_model.__wrapped__().languages == ("de", "en")
    fetched = {path.name for path in (tmp_path / "colab" / tat.SHIPPED_MODEL).iterdir()}
    assert fetched == {"config.json", "model.safetensors", "tokenizer.json"}
    with pytest.raises(FileNotFoundError, match="models/nothing is not beside this document"):
        tat.beside("models/nothing")
    assert not list((tmp_path / "colab/models").glob("*nothing*"))
