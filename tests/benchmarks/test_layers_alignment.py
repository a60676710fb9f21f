"""The benchmarks of Table 1's layers, alignment and paired bootstrap measure what they say."""

import functools
import inspect
import itertools
import json

import numpy as np
import pytest
import torch
from sacrebleu.metrics import BLEU, CHRF

import the_annotated_transformer as tat
from benchmarks import alignment, bootstrap, layers
from tests.helpers import caption_files
from translator.__main__ import main
from translator.captions import Caption, captions, token_links, words_of_pieces
from translator.model_folder import read_translator


# --- layers.py ---
def test_recurrence_is_that_of_its_formula():
    """h' = tanh(Wx + Uh), step by step."""
    layer = layers.make_layers(16)["recurrent"]
    (x,) = layer.inputs(2, 4)
    W, U, *b = inspect.getclosurevars(layer.call).nonlocals["recurrent"].parameters()
    h, states = torch.zeros(2, 16), []
    for t in range(4):
        h = (x[:, t] @ W.T + h @ U.T + sum(b)).tanh()
        states.append(h)
    torch.testing.assert_close(layer.call(x), torch.stack(states, 1))


def test_a_time_is_that_of_one_call(monkeypatch):
    """By a clock on which nothing but a call takes time: 4 ms."""
    clock = [0.0]

    def call(x: torch.Tensor) -> None:
        clock[0] += 0.004

    monkeypatch.setattr(layers, "Timer", functools.partial(layers.Timer, timer=lambda: clock[0]))
    layer = layers.Layer(call, lambda batch, n: [torch.ones(batch, n)], lambda n: 0)
    found = layers.milliseconds(layer, layer.inputs(1, 2), least=0.03)
    assert found == pytest.approx(4)


def test_the_benchmark_of_layers_measures_each_at_every_length(rows_of):
    """Catches a wrong formula, a kernel unknown to the counter, a layer of other than n vectors."""
    made = layers.make_layers(16)
    assert len(made) == 8
    for name, layer in made.items():
        inputs = layer.inputs(3, 5)
        assert layer.call(*inputs).shape == inputs[-1].shape, name
    (row,) = rows_of("layers --lengths 4 8 --width 16 --batch 2 --rounds 1")
    found = {(x["layer"], x["n"]): x for x in row["measurements"]}
    assert row["pass"] == "forward" and found.keys() == set(itertools.product(made, (4, 8)))
    measured = found.values()
    assert all(x["milliseconds"] > 0 for x in measured)
    assert all(x["multiplications"] == x["counted"] for x in measured)
    # sentences, matrices, n, d, d
    assert found["recurrent", 8]["multiplications"] == 2 * 2 * 8 * 16 * 16


# --- alignment.py ---
def test_the_error_rate_is_that_of_its_definition():
    """A perfect alignment has rate 0, a wrong one 1, and a case by hand 1 - 2 * 2 / (3 + 4)."""
    true = {(0, 0), (1, 1), (1, 2), (3, 2)}
    assert alignment.score([true], [true]) == {"aer": 0, "precision": 1, "recall": 1}
    assert alignment.score([{(1, 0)}], [true]) == {"aer": 1, "precision": 0, "recall": 0}
    assert alignment.score([set()], [true]) == {"aer": 1, "precision": 0, "recall": 0}
    by_hand = alignment.score([{(0, 0), (1, 1), (2, 2)}], [true])
    assert by_hand == {"aer": round(3 / 7, 4), "precision": round(2 / 3, 4), "recall": 0.5}
    # counts over all sentences together
    two = alignment.score([{(0, 0)}, {(0, 0), (1, 1), (2, 2)}], [{(0, 0)}, true])
    assert two["aer"] == round(1 - 2 * 3 / (4 + 5), 4)


def test_the_baselines_by_hand():
    """Square sentences, diagonal links, one with two more; one linked token: (1/2) / (1/2 + 1)."""
    diagonal = {(i, i) for i in range(4)}
    found = alignment.baselines([(4, 4), (4, 4)], [diagonal, diagonal | {(0, 1), (3, 1)}])
    expected = {"aer": round(1 - 16 / 18, 4), "precision": 1, "recall": 0.8}
    assert found["diagonal"] == found["best"] == expected
    one = alignment.baselines([(1, 1)], [{(0, 0)}])["random"]
    assert one == {"aer": 0.3333, "precision": 1, "recall": 0.5}
    assert alignment.baselines([(2, 4)], [{(0, 0), (0, 1), (1, 2), (1, 3)}])["diagonal"]["aer"] == 0
    assert alignment.baselines([(4, 2)], [{(1, 0), (3, 1)}])["diagonal"]["aer"] == 0


def test_chance_is_what_random_links_score():
    """The expected counts agree with many draws."""
    true, sizes = [{(0, 0), (2, 0), (1, 2)}, {(0, 1)}], [(3, 4), (1, 2)]
    found = [alignment.largest_links(torch.rand(T, S + 1)) for _ in range(3000) for S, T in sizes]
    expected = alignment.baselines(sizes, true)["random"]
    assert alignment.score(found, true * 3000) == pytest.approx(expected, abs=0.02)


def test_the_end_of_the_source_is_no_link():
    weights = torch.tensor([[0.2, 0.5, 0.3], [0.1, 0.2, 0.7], [0.6, 0.0, 0.4]])
    assert alignment.largest_links(weights) == {(1, 0), (0, 2)}


def test_pieces_inherit_the_links_of_their_words():
    words = [(0, 0), (0, 1), (1, 2), (3, 4), (2, 5), (4, 6)]
    caption = Caption("Am Strand liest er.", "On the beach, he reads.", words)
    source = ["▁A", "m", "▁Strand", "▁", "lie", "st", "▁er", "."]
    target = ["▁On", "▁the", "▁beach", ",", "▁he", "▁reads", "."]
    assert words_of_pieces(source, caption.de) == [0, 0, 1, 2, 2, 2, 3, 4]
    # the comma has none
    links = {(0, 0), (1, 0), (0, 1), (1, 1), (2, 2), (6, 4), (3, 5), (4, 5), (5, 5), (7, 6)}
    assert token_links(caption, source, target) == links
    with pytest.raises(ValueError, match="not the pieces of"):
        words_of_pieces(["▁Am", "<unk>"], "Am Strand")


def test_pieces_of_real_captions_lie_within_their_words(trained):
    """Compares with the characters that the tokenizer itself gives for each piece."""
    vocabulary = read_translator(trained).tokenizer.vocabulary
    for caption in captions(50):
        text, encoding = caption.de, vocabulary.encode(caption.de)
        words, ends = text.replace(",", " ,").replace(".", " .").split(), []
        for word in words:
            ends.append(text.index(word, ends[-1] if ends else 0) + len(word))
        stops = [stop for _, stop in encoding.offsets]
        expected = [next(i for i, end in enumerate(ends) if stop <= end) for stop in stops]
        # these belong to the next word
        spaces = [i for i, piece in enumerate(encoding.tokens) if piece == "▁"]
        for i in spaces:
            expected[i] = expected[i + 1]
        assert words_of_pieces(encoding.tokens, text) == expected
        assert len(encoding.tokens) > len(words) and max(i for i, _ in caption.links) < len(words)


def test_the_weights_are_those_of_the_document(trained):
    """Reading the model's own translation gives the maps that the document draws."""
    translator = read_translator(trained)
    text = captions(1)[0].de
    src = torch.tensor([[*translator.tokenizer.encode(text, "de"), tat.EOS]])
    most = src.size(1) + 50
    ids = tat.greedy_decode(translator.model, src, tat.source_mask(src), most)[0].tolist()
    expected = tat.attention_maps(translator, text).maps["cross"]
    torch.testing.assert_close(alignment.cross_attention(translator, text, ids[1:-1]), expected)


def test_a_convention_is_one_row_from_the_other(trained, monkeypatch):
    """Heads that look at the source of the token just read, or of the next one.

    Each is perfect only by its own convention.
    """
    translator, examples = read_translator(trained), captions(20)
    tokenizer = translator.tokenizer
    links = {}
    for caption in examples:
        texts = zip(caption[:2], ("de", "en"), strict=True)
        sides = [tokenizer.encode(text, language) for text, language in texts]
        links[caption.de] = len(sides[0]), token_links(caption, *map(tokenizer.tokens, sides))

    def aligned(translator, text, target):
        length, known = links[text]
        weights = torch.zeros(2, 2, len(target) + 1, length + 1)
        weights[..., -1] = 0.5  # EOS, if nothing is known
        for i, j in known:
            weights[0, 0, j + 1, i] = weights[0, 1, j, i] = 1
        return weights

    monkeypatch.setattr(alignment, "cross_attention", aligned)
    found = alignment.measure(translator, examples)
    aer = {(x["layer"], x["head"], x["convention"]): x["aer"] for x in found["heads"]}
    best = found["baselines"]["best"]["aer"]
    assert aer[1, 1, "reads"] == aer[1, 2, "predicts"] == best < 0.8
    assert min(aer[1, 1, "predicts"], aer[1, 2, "reads"]) > best + 0.05
    assert aer[2, 1, "reads"] == aer[2, "mean", "predicts"] == 1  # only EOS
    assert len(found["heads"]) == 2 * (2 * (2 + 1) + 1) and found["sentences"] == 20
    assert found["links"] == sum(len(known) for _, known in links.values())


def test_the_benchmark_of_alignment_trains_a_seed_once(rows_of, tmp_path):
    sizes = "--N 2 --d-model 16 --d-ff 16 --h 2 --bpe 100 --steps 1 --sentences 4"
    for seeds, status in (("3", 0), ("3 4", 0), ("3 4 --seed 5", 2)):
        rows = rows_of(f"alignment {sizes} --runs {tmp_path}/runs --seeds {seeds}", status=status)
    assert [row["seed"] for row in rows] == [3, 4]
    assert [row["settings"]["seed"] for row in rows] == [3, 4]
    assert rows[0]["split"] == "val" and rows[0]["step"] == 1 and rows[0]["sentences"] == 4
    assert rows[0]["heads"] != rows[1]["heads"] and rows[0]["baselines"] == rows[1]["baselines"]


# --- bootstrap.py ---
def some_translations() -> tuple[list[str], list[str], list[str]]:
    """References and two translations, of which the first is better."""
    references = [caption.en for caption in captions(40)]
    one = [text.replace("a ", "the ", 1) if i % 3 else text for i, text in enumerate(references)]
    two = [text.replace("is ", "was ") if i % 2 else one[i] for i, text in enumerate(references)]
    return references, one, two


def test_the_bootstrap_is_that_of_its_definition():
    """Compares with corpus scores of sentences drawn here."""
    references, a, b = some_translations()
    found = bootstrap.compare(references, a, b, samples=80)
    draws = np.random.default_rng(12345).choice(40, size=(80, 40))

    def score(side: list[str], draw: list[int]) -> float:
        return BLEU().corpus_score([side[i] for i in draw], [[references[i] for i in draw]]).score

    scores = np.array([[score(side, draw) for side in (a, b)] for draw in draws])
    for side, column in (("a", scores[:, 0]), ("b", scores[:, 1])):
        ordered = np.sort(column)
        assert found[side]["interval"] == pytest.approx([ordered[2], ordered[-3]], abs=0.006)
    difference = np.sort(scores[:, 1] - scores[:, 0])
    assert found["difference_interval"] == pytest.approx([difference[2], difference[-3]], abs=0.006)
    assert found["difference"] == pytest.approx(found["b"]["bleu"] - found["a"]["bleu"])
    assert found["difference"] < 0
    away = np.abs(difference) - np.abs(difference).mean()  # as if there were no difference
    assert found["p"] == pytest.approx((1 + (away > -found["difference"]).sum()) / 81)
    assert "bs:80|seed:12345" in found["signature"]
    chrf, whole = found["chrf"], [CHRF().corpus_score(side, [references]).score for side in (a, b)]
    assert chrf["scores"] == pytest.approx(whole)
    assert chrf["difference"] == pytest.approx(whole[1] - whole[0])
    low, high = chrf["difference_interval"]
    assert low < chrf["difference"] < high and chrf["p"] < 0.05 and "nc:6" in chrf["signature"]


def test_the_same_translations_do_not_differ():
    """sacreBLEU gives its smallest p in this case, which would look like certainty."""
    references, a, _ = some_translations()
    found = bootstrap.compare(references, a, a, samples=40)
    assert found["difference"] == 0 and found["difference_interval"] == [0, 0]
    assert found["p"] is None


def test_two_searches_of_one_model_are_compared(rows_of, trained, tmp_path, capsys):
    options = f"--data {caption_files(tmp_path, val=30)} --split val --alpha 0.5"
    (row,) = rows_of(f"bootstrap {trained} {trained} {options} --beam 1 2 --samples 40")
    assert [row[side]["search"] for side in "ab"] == ["greedy", "beam 2, alpha 0.5"]
    assert row["samples"] == 40
    assert row["sentences"] == 30 and row["direction"] == "de-en"
    for side, beam in (("a", 1), ("b", 2)):
        capsys.readouterr()
        assert main(f"evaluate --model {trained} {options} --beam {beam} --json".split()) == 0
        assert row[side]["bleu"] == json.loads(capsys.readouterr().out)["bleu"]
    rows_of(f"bootstrap {trained} {trained} {options} --beam 1 2 3", status=2)
