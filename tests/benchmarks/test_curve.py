"""The curve's samples, and the parts of calibration."""

import math

import pytest

from benchmarks import confidence, curve


def test_samples_are_nested_and_each_seed_draws_its_own(tmp_path):
    def lines(pairs, seed):
        folder = curve.sample("captions", pairs, seed, ("de", "en"), tmp_path / f"{pairs} {seed}")
        val = [english for _, english in curve.load_pairs("captions", "val")]
        assert (folder / "val.en").read_text(encoding="utf-8").splitlines() == val
        sides = [(folder / f"train.{side}").read_text(encoding="utf-8").splitlines() for side in ("de", "en")]
        return list(zip(*sides, strict=True))

    assert lines(30, 0) == lines(60, 0)[:30] and len(lines(60, 0)) == 60 and lines(30, 0) != lines(30, 1)
    assert set(lines(60, 1)) <= set(curve.load_pairs("captions", "train"))


def test_contrast_pairs_differ_where_they_should():
    for kind, triples in confidence.contrasts().items():
        assert len(triples) == len(set(triples)) == 20
        for _, right, wrong in triples:
            one, other = right.split(), wrong.split()
            changed = [(a, b) for a, b in zip(one, other, strict=False) if a != b] if kind != "negation" else []
            assert len(changed) == 1 or (kind == "negation" and [w for w in one if w != "not"] == other)


def test_words_have_the_probability_of_all_their_tokens():
    found = confidence.words(["▁a", "▁news", "paper", ".", "</s>"], [-0.1, -0.2, -0.3, -0.4, -9.0])
    assert [word for word, _ in found] == ["a", "newspaper", "."]
    assert [p for _, p in found] == pytest.approx([math.exp(-0.1), math.exp(-0.5), math.exp(-0.4)])


def test_each_probability_is_in_one_bin():
    bins = confidence.in_bins([(0.1, False), (0.4, True), (0.45, False), (0.9, True), (1.0, True)])
    assert [(one["from"], one["count"], one["right"]) for one in bins] == [(0.0, 1, 0), (0.4, 2, 0.5), (0.9, 2, 1)]
