"""The parts of calibration."""

import math

import pytest

from benchmarks import confidence


def test_words_have_the_probability_of_all_their_tokens():
    words = confidence.words(["▁a", "▁news", "paper", ".", "</s>"], [-0.1, -0.2, -0.3, -0.4, -9.0])
    assert [word for word, _ in words] == ["a", "newspaper", "."]
    assert [p for _, p in words] == pytest.approx([math.exp(-0.1), math.exp(-0.5), math.exp(-0.4)])


def test_each_probability_is_in_one_bin():
    bins = confidence.in_bins([(0.1, False), (0.4, True), (0.45, False), (0.9, True), (1.0, True)])
    contents = [(row["from"], row["count"], row["right"]) for row in bins]
    assert contents == [(0.0, 1, 0), (0.4, 2, 0.5), (0.9, 2, 1)]
