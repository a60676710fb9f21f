"""Reading, fetching, tokenising: errors name file and line; text survives encoding and decoding."""

import gzip
import hashlib
import json
import shutil
from pathlib import Path

import pytest

import the_annotated_transformer as tat
from tests.helpers import refused
from translator.__main__ import main
from translator.captions import CAPTION_SPLITS, CORPUS, captions
from translator.corpus import write_store
from translator.files import Refused
from translator.run_folder import RunFolder
from translator.settings import Settings
from translator.sources import Corpus, fetch_multi30k, load_pairs, read_parallel

LANGUAGES = ("de", "en")


def write(folder: Path, **files: str | bytes) -> Path:
    """Files train_de=..., train_en=... in a folder; `.gz` is up to the content."""
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        content = content.encode() if isinstance(content, str) else content
        ending = ".gz" if content[:2] == b"\x1f\x8b" else ""
        (folder / (name.replace("_", ".") + ending)).write_bytes(content)
    return folder


def test_plain_and_compressed_files_read_alike(tmp_path):
    text = "Ein Hund.\nZwei\u2028Katzen \x0b und\tein Kamel.\n\nEnde"
    plain = write(tmp_path / "a", train_de=text, train_en="1\n2\n3\n4\n")
    packed = gzip.compress(text.encode())
    packed = write(tmp_path / "b", train_de=packed, train_en="1\r\n2\r\n3\r\n4\r\n")
    pairs = load_pairs(str(plain), "train")
    assert pairs == load_pairs(str(packed), "train")
    assert [english for _, english in pairs] == ["1", "2", "3", "4"]
    assert pairs[2] == ("", "3")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_de": "a\nb\n", "train_en": "a\n"},
         r"train\.en: ends at line 1, but .*train\.de has 2 lines"),
        ({"train_de": "\n\n", "train_en": "a\nb\n"}, r"train\.de: empty"),
        ({"train_de": "a\n"}, r"train\.en: no such file"),
        ({"train_de": b"gut\nM\xe4dchen\n", "train_en": "a\nb\n"}, r"train\.de, line 2: not UTF-8"),
        ({"train_de": gzip.compress(b"a\n" * 999)[:-9], "train_en": "a\n"},
         r"train\.de\.gz: truncated"),
    ],
)  # fmt: skip
def test_damaged_files_are_refused_by_name_and_line(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_pairs(str(tmp_path), "train")


def test_sets_of_the_hub_are_read_as_their_library_reads_them(tmp_path_factory):
    """The library also accepts a folder as a set; the word test in its path would name a split."""
    folder = tmp_path_factory.mktemp("hub")
    rows = [{"translation": {"de": f"Ein Hund  {i}.\n", "en": f"A dog {i}."}} for i in range(3)]
    for split, count in (("train", 3), ("validation", 1)):
        lines = "".join(json.dumps(row) + "\n" for row in rows[:count])
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    source = f"hf:{folder}"
    assert load_pairs(source, "train") == [(f"Ein Hund {i}.", f"A dog {i}.") for i in range(3)]
    assert load_pairs(source, "val", "en", "de") == [("A dog 0.", "Ein Hund 0.")]
    for arguments, message in (
        ((source, "test"), "hf:.*test"),
        ((source, "val", "fr", "en"), r"hf:.*but val lacks one \('fr'\)"),
        ((f"{source}:small", "val"), "hf:.*small"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            load_pairs(*arguments)


def test_a_part_of_train_is_held_out_where_there_is_no_val(tmp_path, capsys):
    """The same pairs in both directions; a repeated pair is on one side; `evaluate` finds them."""
    lines = [f"Hund {i % 900}" for i in range(1000)], [f"dog {i % 900}" for i in range(1000)]
    write(tmp_path, train_de="\n".join(lines[0]), train_en="\n".join(lines[1]))
    train, val = (load_pairs(str(tmp_path), split, held_out=0.1) for split in ("train", "val"))
    assert sorted(train + val) == sorted(zip(*lines, strict=True)) and not {*train} & {*val}
    assert 60 < len(val) < 140
    assert {pair[::-1] for pair in val} == {*load_pairs(str(tmp_path), "val", "en", "de", 0.1)}
    run = tmp_path / "run"
    options = f"train --data {tmp_path} --run {run} --N 1 --d-model 8 --d-ff 8 --h 1 --bpe 9"
    options += " --steps 1"
    assert "val.de: no such file" in refused(capsys, options)
    assert main(f"{options} --held-out 0.1".split()) == 0
    assert f"{len(train):,} pairs to learn from, {len(val):,} held out" in capsys.readouterr().out
    assert "held_out = 0.1, not 0.2" in refused(capsys, f"{options} --held-out 0.2")
    command = f"evaluate --model {run} --data {tmp_path} --split val --beam 1 --held-out 0.1"
    assert main(command.split()) == 0
    assert f"val, 0.1 of train held out: {len(val)} sentences" in capsys.readouterr().out


@pytest.fixture
def site(tmp_path, monkeypatch) -> Path:
    """A folder in the place of Multi30k's repository, with two small files of known checksums."""
    german, english = (gzip.compress(line, mtime=0) for line in (b"Ein Hund.\n", b"A dog.\n"))
    folder = write(tmp_path / "site", val_de=german, val_en=english)
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}

    def copied(self, url, output_file, pooch):
        shutil.copy(folder / Path(url).name, output_file)

    monkeypatch.setattr("pooch.HTTPDownloader.__call__", copied)
    monkeypatch.setattr("translator.sources.MULTI30K_FILES", sums)
    monkeypatch.setenv("MULTI30K_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # pooch waits between two tries
    return folder


def test_multi30k_is_fetched_once_and_kept(site, tmp_path):
    for _ in range(2):
        folder = fetch_multi30k("val")
        assert list(read_parallel(folder, "val", *LANGUAGES)) == [("Ein Hund.", "A dog.")]
        shutil.rmtree(site, ignore_errors=True)
    assert folder == tmp_path / "cache"


@pytest.mark.parametrize("content", [None, b"tampered"])
def test_a_file_that_cannot_be_fetched_is_one_line_that_helps(site, tmp_path, content):
    """Nothing is left behind."""
    file = site / "val.de.gz"
    file.write_bytes(content) if content else file.unlink()
    message = r"val\.de\.gz .* could not be fetched; put val\.de\.gz and val\.en\.gz from .* there"
    with pytest.raises(Refused, match=message):
        fetch_multi30k("val")
    assert not [*(tmp_path / "cache").iterdir()]


def test_captions_are_distinct_have_one_translation_and_their_splits_do_not_overlap(monkeypatch):
    splits = {"train": slice(1000, None), "val": slice(0, 500), "test": slice(500, 1000)}
    for split, rows in splits.items():
        monkeypatch.setitem(CAPTION_SPLITS, split, rows)  # as they are
    splits = {split: load_pairs("captions", split) for split in ("train", "val", "test")}
    everything = [pair for pairs in splits.values() for pair in pairs]
    assert len(everything) == len(set(everything)) == len({german for german, _ in everything})
    assert len(everything) == CORPUS
    assert load_pairs("captions", "val", "en", "de") == [(en, de) for de, en in splits["val"]]
    assert captions(200, seed=1)[:50] == captions(50, seed=1) != captions(50, seed=2)


@pytest.mark.parametrize("vocab, itemsize", [(2**16, 2), (2**16 + 1, 4)])
def test_a_store_gives_back_every_pair_and_is_as_small_as_its_numbers(
    tmp_path, vocab, itemsize, monkeypatch
):
    """Catches shifted starts, wrongly joined chunks, and ids that overflow."""

    class Fake:  # a tokenizer whose ids reach to the end of the vocabulary
        def __len__(self):
            return vocab

    def encode(_, texts, languages):
        return [tat.Pair([vocab - 1] * int(s), [tat.BOS] * int(t)) for s, t in texts]

    texts = [(str(i % 7 + 1), str(i % 5 + 2)) for i in range(20_005)]  # more than two chunks
    monkeypatch.setattr("translator.corpus.encode_pairs", encode)
    store = write_store(tmp_path / "x" / "train.ids", texts, Fake(), LANGUAGES)
    assert len(store) == len(texts)
    assert store.lengths().tolist() == [[int(s), int(t)] for s, t in texts]
    rows = [20_004, 0, 9_999, 10_000]
    assert store.pairs(rows) == encode(None, [texts[i] for i in rows], LANGUAGES)
    assert (tmp_path / "x" / "train.ids").stat().st_size == itemsize * store.lengths().sum()


def test_pairs_without_text_on_one_side_are_counted_aloud(capsys, tmp_path):
    """A blank line may mean that two files have slipped: both commands say how many they omit."""
    files = {"val.de": "Ein Hund.\n\nEin Mann.\n", "val.en": "A dog.\nA cat.\nA man.\n"}
    for name, lines in files.items():
        (tmp_path / name).write_text(lines)
        (tmp_path / name.replace("val", "train")).write_text(lines)
    note = "without text on one side, which are left out: 1"
    tokenizer = tat.load_translator(tat.beside(tat.SHIPPED_MODEL)).tokenizer
    RunFolder(tmp_path / "run", Corpus(str(tmp_path)), Settings(), "base").write_tokens(tokenizer)
    notes = capsys.readouterr().err
    assert f"note: pairs of train {note}" in notes and f"note: pairs of val {note}" in notes
    assert main(["evaluate", "--data", str(tmp_path), "--split", "val", "--beam", "1"]) == 0
    captured = capsys.readouterr()
    assert f"pairs of val {note}" in captured.err and "val: 2 sentences" in captured.out
