"""Reading, fetching, tokenising: damaged files are refused by name and line, and text survives the way to ids and back."""

import gzip
import hashlib
import http.server
import json
import random
import shutil
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import the_annotated_transformer as tat

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
    packed = write(tmp_path / "b", train_de=gzip.compress(text.encode()), train_en="1\r\n2\r\n3\r\n4\r\n")
    pairs = tat.load_pairs(str(plain), "train")
    assert pairs == tat.load_pairs(str(packed), "train")
    assert [english for _, english in pairs] == ["1", "2", "3", "4"]
    assert pairs[2] == ("", "3")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"train_de": "a\nb\n", "train_en": "a\n"}, r"train\.en: ends at line 1, but .*train\.de has 2 lines"),
        ({"train_de": "", "train_en": "a\n"}, r"train\.de: empty"),
        ({"train_de": "\n\n", "train_en": "a\nb\n"}, r"train\.de: empty"),
        ({"train_de": "a\n"}, r"train\.en: no such file"),
        ({"train_de": b"gut\nM\xe4dchen\n", "train_en": "a\nb\n"}, r"train\.de, line 2: not UTF-8"),
        ({"train_de": gzip.compress(b"a\n" * 999)[:-9], "train_en": "a\n"}, r"train\.de\.gz: truncated"),
        ({"train_de": b"\x1f\x8bnonsense", "train_en": "a\n"}, r"train\.de\.gz: truncated or not a gzip"),
    ],
)
def test_damaged_files_are_refused_by_name_and_line(tmp_path, files, message):
    write(tmp_path, **files)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tat.load_pairs(str(tmp_path), "train")


def test_sets_of_the_hub_are_read_as_their_library_reads_them(tmp_path_factory):
    """The library takes a folder for a set of the hub, too; in its path, the word test would name a split."""
    folder = tmp_path_factory.mktemp("hub")
    rows = [{"translation": {"de": f"Ein Hund  {i}.\n", "en": f"A dog {i}."}} for i in range(3)]
    for split, count in (("train", 3), ("validation", 1)):
        lines = "".join(json.dumps(row) + "\n" for row in rows[:count])
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    source = f"hf:{folder}"
    assert tat.load_pairs(source, "train") == [(f"Ein Hund {i}.", f"A dog {i}.") for i in range(3)]
    assert tat.load_pairs(source, "val", "en", "de") == [("A dog 0.", "Ein Hund 0.")]
    for arguments, message in (
        ((source, "test"), "hf:.*test"),
        ((source, "val", "fr", "en"), "hf:.*no 'fr' in val"),
        ((f"{source}:small", "val"), "hf:.*small"),
        (("hf:", "val"), "needs the name of a set"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            tat.load_pairs(*arguments)


def test_unknown_sources_and_splits_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere: neither multi30k, captions, hf:NAME nor a folder"):
        tat.load_pairs("nowhere", "train")
    with pytest.raises(ValueError, match="multi30k has no split 'tset'; it has test_2016_flickr"):
        tat.load_pairs("multi30k", "tset")
    with pytest.raises(ValueError, match="captions has the splits train, val, test"):
        tat.load_pairs("captions", "dev")
    with pytest.raises(FileNotFoundError, match=r"dev\.de: no such file"):
        tat.load_pairs(str(write(tmp_path, train_de="a", train_en="b")), "dev")


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A local server in place of the repository of Multi30k, with two small files of known checksums."""
    site, requests = tmp_path / "site", []
    write(site, val_de=gzip.compress(b"Ein Hund.\n", mtime=0), val_en=gzip.compress(b"A dog.\n", mtime=0))
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in site.iterdir()}
    monkeypatch.setattr(tat, "MULTI30K_FILES", sums)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("MULTI30K_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # pooch waits between two tries

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            requests.append(self.path)
            if requests.count(self.path) <= Handler.failures:
                return self.send_error(503)
            return super().do_GET()

        def log_message(self, *args):
            pass

    Handler.failures = 0
    handler = lambda *args: Handler(*args, directory=str(site))  # noqa: E731
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        server.url, server.requests, server.site, server.handler = (
            f"http://127.0.0.1:{server.server_port}/",
            requests,
            site,
            Handler,
        )
        yield server
        server.shutdown()


def test_multi30k_is_fetched_once_and_kept(server, tmp_path):
    for _ in range(2):
        folder = tat.fetch_multi30k("val", server.url)
        assert list(tat.read_parallel(folder, "val", *LANGUAGES)) == [("Ein Hund.", "A dog.")]
    assert sorted(server.requests) == ["/val.de.gz", "/val.en.gz"]
    assert str(folder).startswith(str(tmp_path))


def test_a_failing_server_is_tried_again(server):
    server.handler.failures = 2
    tat.fetch_multi30k("val", server.url)
    assert server.requests.count("/val.de.gz") == 3


def test_a_wrong_checksum_leaves_nothing_behind(server, tmp_path):
    (server.site / "val.de.gz").write_bytes(gzip.compress(b"tampered\n"))
    with pytest.raises(FileNotFoundError, match=r"val\.de\.gz .* could not be fetched"):
        tat.fetch_multi30k("val", server.url)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_no_network_is_one_line(server):
    with pytest.raises(FileNotFoundError, match="could not be fetched") as error:
        tat.fetch_multi30k("val", "http://127.0.0.1:9/")
    assert "\n" not in str(error.value)


def test_multi30k_checksums_are_those_of_the_real_files(multi30k):
    for path in multi30k.glob("*.gz"):
        assert hashlib.sha256(path.read_bytes()).hexdigest() == tat.MULTI30K_FILES[path.name]


def test_choosing_data_falls_back_to_captions_with_a_notice(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("ANNOTATED_DATA", str(tmp_path / "nowhere"))
    assert tat.choose_data.__wrapped__() == "captions"
    assert "NOTICE" in capsys.readouterr().out
    monkeypatch.setenv(
        "ANNOTATED_DATA", str(write(tmp_path / "here", train_de="a", train_en="b", val_de="a", val_en="b"))
    )
    assert tat.choose_data.__wrapped__() == str(tmp_path / "here")


@pytest.fixture(scope="module", params=["words", "pieces"])
def tokenizer(request):
    """Both kinds of vocabulary, learnt from captions."""
    pairs = tat.load_pairs("captions", "train")[:3000]
    return tat.learn_words(pairs, LANGUAGES) if request.param == "words" else tat.learn_bpe(pairs, 400)


def test_text_survives_the_way_to_ids_and_back(tokenizer):
    for pair in tat.load_pairs("captions", "train")[:300]:
        for text, language in zip(pair, LANGUAGES, strict=True):
            ids = tokenizer.encode(text, language)
            assert tokenizer.decode([tat.BOS, *ids, tat.EOS, 7, 7]) == text
            assert tat.UNK not in ids


def test_specials_have_their_numbers_and_their_names_in_text_are_text(tokenizer):
    assert tokenizer.tokens(range(4)) == tat.SPECIALS
    ids = tokenizer.encode("Ein </s> Hund <pad> <s>.", "de")
    assert not {tat.PAD, tat.BOS, tat.EOS} & set(ids)


def test_any_text_has_ids_and_decodes_to_one_line(tokenizer):
    for text in ("", "   ", "😀 你好", "a\tb\x0bc\u2028d\u00a0e", "\x00", "e\u0301", "x" * 3000):
        decoded = tokenizer.decode(tokenizer.encode(text, "de"))
        assert len(decoded.splitlines()) <= 1


def test_bpe_splits_into_at_most_the_merges_asked_for():
    pairs = tat.load_pairs("captions", "train")[:500]
    characters = len(set("".join(text for pair in pairs for text in pair)))
    assert characters + 4 + 50 - 5 <= len(tat.learn_bpe(pairs, 50)) <= characters + 4 + 50


def test_the_vocabulary_of_words_comes_from_words_seen_twice():
    tokenizer = tat.learn_words([("Hund Hund Katze", "dog dog cat")], LANGUAGES)
    assert tokenizer.tokens(range(4, len(tokenizer))) == ["▁Hund", "▁dog"]
    assert tokenizer.decode(tokenizer.encode("Hund bellt Hund", "de")) == "Hund <unk> Hund"


def test_tokenizers_survive_their_file(tokenizer, tmp_path):
    tat.write_text(tmp_path / "tokenizer.json", tokenizer.vocabulary.to_str())
    again = tat.read_tokenizer(tmp_path / "tokenizer.json")
    text = "Zwei Hunde </s> im Park."
    assert again.words == tokenizer.words and len(again) == len(tokenizer)
    assert again.encode(text, "de") == tokenizer.encode(text, "de")


def test_captions_are_distinct_and_their_splits_do_not_overlap():
    splits = {split: tat.load_pairs("captions", split) for split in ("train", "val", "test")}
    everything = [pair for pairs in splits.values() for pair in pairs]
    assert len(set(everything)) == len(everything) == 21_000
    assert tat.load_pairs("captions", "val", "en", "de") == [(en, de) for de, en in splits["val"]]


def test_there_are_100_000_distinct_captions_and_one_translation_each():
    captions = tat.captions(100_000, seed=1)
    assert len({(c.de, c.en) for c in captions}) == 100_000
    assert len({c.de for c in captions}) == 100_000
    assert captions[:50] == tat.captions(50, seed=1) != tat.captions(50, seed=2)


def test_the_folder_source_reads_what_torchtext_reads(tmp_path):
    """The same pairs as the reader of torchtext 0.6, the library of the earlier editions."""
    datasets = pytest.importorskip("torchtext.datasets")
    data = pytest.importorskip("torchtext.data")
    pairs = tat.load_pairs("captions", "test")
    write(tmp_path, train_de="\n".join(p[0] for p in pairs) + "\n", train_en="\n".join(p[1] for p in pairs) + "\n")
    fields = (data.Field(tokenize=str), data.Field(tokenize=str))
    theirs = datasets.TranslationDataset(str(tmp_path / "train."), LANGUAGES, fields)
    assert [("".join(e.src), "".join(e.trg)) for e in theirs.examples] == tat.load_pairs(str(tmp_path), "train")


def test_a_missing_cache_is_no_reason_to_write_elsewhere(server, tmp_path, monkeypatch):
    """A cache that cannot be written is an error in one line."""
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("MULTI30K_CACHE", str(blocked))
    with pytest.raises(FileNotFoundError, match="could not be fetched"):
        tat.fetch_multi30k("val", server.url)
    shutil.rmtree(tmp_path / "site")


@pytest.mark.parametrize("vocab, itemsize", [(2**16, 2), (2**16 + 1, 4)])
def test_a_store_gives_back_every_pair_and_is_as_small_as_its_numbers(tmp_path, vocab, itemsize):
    """Catches shifted starts, chunks joined wrongly, and numbers that overflow."""

    class Fake:  # a tokenizer whose ids reach to the end of the vocabulary
        def __len__(self):
            return vocab

        def pairs(self, texts, languages):
            return [tat.Pair([vocab - 1] * int(s), [tat.BOS] * int(t)) for s, t in texts]

    texts = [(str(i % 7 + 1), str(i % 5 + 2)) for i in range(20_005)]  # more than two chunks
    store = tat.write_store(tmp_path / "x" / "train.ids", texts, Fake(), LANGUAGES)
    assert len(store) == len(texts)
    assert store.lengths().tolist() == [[int(s), int(t)] for s, t in texts]
    rows = [20_004, 0, 9_999, 10_000]
    assert store.__getitems__(rows) == Fake().pairs([texts[i] for i in rows], LANGUAGES)
    assert (tmp_path / "x" / "train.ids").stat().st_size == itemsize * store.lengths().sum()


def test_a_store_that_is_not_finished_is_none(tmp_path):
    def texts():
        yield "Ein Hund.", "A dog."
        raise KeyboardInterrupt

    tokenizer = tat.learn_words([("Ein Hund.", "A dog.")] * 2, LANGUAGES)
    with pytest.raises(KeyboardInterrupt):
        tat.write_store(tmp_path / "train.ids", texts(), tokenizer, LANGUAGES)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["words", "pieces"])
def test_many_sentences_are_encoded_as_one_by_one(kind):
    texts = tat.load_pairs("captions", "train")[:300]
    tokenizer = tat.learn_words(texts, LANGUAGES) if kind == "words" else tat.learn_bpe(texts, 200)
    expected = [
        tat.Pair([*tokenizer.encode(de, "de"), tat.EOS], [tat.BOS, *tokenizer.encode(en, "en"), tat.EOS])
        for de, en in texts
    ]
    assert tokenizer.pairs(texts, LANGUAGES) == expected


# --- BPE-dropout ---


def test_segment_merges_by_rank_and_skips_at_random():
    """Catches merges in another order than learnt, and a skip that holds for the whole word."""
    ranks = {("b", "c"): 0, ("a", "b"): 1, ("a", "bc"): 2}
    draw = random.Random(0)
    assert tat.segment("abc", ranks, 0.0, draw) == ["abc"]
    assert tat.segment("abab", ranks, 0.0, draw) == ["ab", "ab"]
    assert tat.segment("abc", ranks, 1.0, draw) == ["a", "b", "c"]
    found = Counter(tuple(tat.segment("abc", ranks, 0.5, draw)) for _ in range(4000))
    # skip bc and not ab: 1/4; skip both: 1/4; else bc, and then a+bc half of the time
    expected = {("ab", "c"): 1 / 4, ("a", "b", "c"): 1 / 4, ("abc",): 1 / 4, ("a", "bc"): 1 / 4}
    assert found.keys() == expected.keys()
    assert all(abs(found[pieces] / 4000 - share) < 0.03 for pieces, share in expected.items())


def test_recut_sentences_say_the_same_and_nothing_skipped_changes_nothing():
    pairs = tat.load_pairs("captions", "train")[:300]
    tokenizer = tat.learn_bpe(pairs, 400)
    odd = ["Ein \u2603 Hund.", "</s> ein <pad> Hund", "Hund,Hund; (Hund)", "a"]
    examples = tokenizer.pairs([*pairs, *((text, text) for text in odd)], LANGUAGES)
    assert tat.recut_batch(examples, tokenizer, 0.0, 3, epoch=0) == examples
    recut = tat.recut_batch(examples, tokenizer, 0.2, 3, epoch=0)
    assert (
        recut
        == tat.recut_batch(examples, tokenizer, 0.2, 3, epoch=0)
        != tat.recut_batch(examples, tokenizer, 0.2, 4, epoch=0)
    )
    assert recut != tat.recut_batch(examples, tokenizer, 0.2, 3, epoch=1)
    assert sum(len(p.src) for p in recut) > 1.1 * sum(len(p.src) for p in examples)
    for old, new in zip(examples, recut, strict=True):
        assert new.tgt[0] == tat.BOS and new.tgt[-1] == new.src[-1] == tat.EOS
        assert [tokenizer.decode(side) for side in new] == [tokenizer.decode(side) for side in old]


def test_a_seed_draws_the_same_batches_whatever_the_machine():
    """Catches an order that depends on how a sort breaks ties: a resumed run must find the batches it left."""
    draw = random.Random(5)
    lengths = [(draw.randint(2, 9), draw.randint(2, 9)) for _ in range(2000)]
    batches = tat.token_batches(lengths, 60, seed=7)
    noise = np.random.default_rng(7).permutation(2000)
    rows = [row for batch in sorted(batches, key=lambda b: order_key(lengths[b[0]], noise[b[0]])) for row in batch]
    assert rows == sorted(range(2000), key=lambda i: order_key(lengths[i], noise[i]))


def order_key(lengths: tuple[int, int], noise: int) -> tuple[int, int, int]:
    """What pairs are sorted by: pairs of target lengths, then sources up and down in turn, then chance."""
    source, target = lengths
    return target // 2, source if target // 2 % 2 else -source, noise
