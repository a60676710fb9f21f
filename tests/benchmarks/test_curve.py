"""The curve's samples, and the parts of calibration."""

import gzip
import math

import pytest

from benchmarks import confidence, curve, plan
from tests.helpers import caption_files
from translator.scoring import score


def test_samples_are_nested_and_each_seed_draws_its_own(tmp_path):
    def lines(pairs, seed):
        folder = curve.sample("captions", pairs, seed, ("de", "en"), tmp_path / f"{pairs} {seed}")
        val = [english for _, english in curve.load_pairs("captions", "val")]
        assert (folder / "val.en").read_text(encoding="utf-8").splitlines() == val
        texts = ((folder / f"train.{side}").read_text("utf-8") for side in ("de", "en"))
        sides = [text.splitlines() for text in texts]
        return list(zip(*sides, strict=True))

    assert lines(30, 0) == lines(60, 0)[:30] and len(lines(60, 0)) == 60
    assert lines(30, 0) != lines(30, 1)
    assert set(lines(60, 1)) <= set(curve.load_pairs("captions", "train"))


def test_what_a_row_scores_can_be_scored_again(rows_of, trained, tmp_path, monkeypatch):
    """Of `curve` and `plan`; catches scores without translations, or of another split or search."""
    data = caption_files(tmp_path / "data", train=60, val=4)
    advice = {"preset": "", "steps": 1}
    planned = {"advice": advice, "minutes": 1, "bleu": [], "seen": 0.5}
    monkeypatch.setattr(plan.planning, "plan", lambda *_: planned)
    monkeypatch.setattr(curve, "trained", lambda *_: (trained, 0.0, False))  # each is this run
    where = f"--data {data} --runs {tmp_path / 'runs'}"
    text, row = rows_of(f"curve {where} --sizes 40 --starts scratch --seeds 0 --test val")
    pairs = {split: curve.load_pairs(str(data), split) for split in ("train", "val")}
    assert 0 < text["seen"] <= plan.planning.seen(**pairs)  # by 40 pairs of the 60
    planned = rows_of(f"plan {where} --pairs 50")[-1]
    references = [english for _, english in curve.load_pairs(str(data), "val")]
    for scores in (row["val"], row["test"]["greedy"], row["test"]["beam"], planned):
        packed = (tmp_path / scores["translations"]).read_bytes()
        lines = gzip.decompress(packed).decode("utf-8").splitlines()
        assert score(lines, references)["chrf"] == scores["chrf"]
    assert (
        len({scores["translations"] for scores in (row["val"], row["test"]["beam"], planned)}) == 3
    )


def test_words_have_the_probability_of_all_their_tokens():
    words = confidence.words(["▁a", "▁news", "paper", ".", "</s>"], [-0.1, -0.2, -0.3, -0.4, -9.0])
    assert [word for word, _ in words] == ["a", "newspaper", "."]
    assert [p for _, p in words] == pytest.approx([math.exp(-0.1), math.exp(-0.5), math.exp(-0.4)])


def test_each_probability_is_in_one_bin():
    bins = confidence.in_bins([(0.1, False), (0.4, True), (0.45, False), (0.9, True), (1.0, True)])
    contents = [(row["from"], row["count"], row["right"]) for row in bins]
    assert contents == [(0.0, 1, 0), (0.4, 2, 0.5), (0.9, 2, 1)]
