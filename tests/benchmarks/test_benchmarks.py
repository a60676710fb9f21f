"""The benchmarks run, and the README quotes nothing but their saved rows."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import the_annotated_transformer as tat
from benchmarks import __main__ as door
from benchmarks import beside, peers, quality, resample, time_to_quality
from benchmarks.shared import Rows
from tests.helpers import ROOT, SOAK, caption_files
from translator.__main__ import main, train
from translator.run_log import read_log
from translator.settings import make_settings

rows = tat.saved_rows


def test_the_door_lists_every_benchmark(capsys):
    """Catches a module that is not listed, one without help, and options its signature lacks."""
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    helpers = {"__main__", "beside", "shared", "compare_child", "decoding_ctranslate2"}
    assert modules - helpers == set(door.NAMES) and door.main([]) == 0
    listed = capsys.readouterr().out
    for name in door.NAMES:
        assert re.search(rf"│ {name} +\w", listed) and door.main([name, "--help"]) == 0
        help_text = capsys.readouterr().out
        assert "--out" in help_text and f"benchmarks {name}" in help_text


def test_the_benchmark_of_peers_measures_this_and_those_that_are_installed(rows_of, tmp_path):
    data = caption_files(tmp_path, train=40, val=40)
    settings = "--bpe 300 --tokens-per-batch 300"
    (row,) = rows_of(f"peers --presets tiny --rounds 1 --seconds 0 --data {data} {settings}")
    assert row["preset"] == "tiny" and row["tokens_per_second"]["nn.Transformer"]["median"] > 0
    assert row["ratio_to_peers"].keys() == row["tokens_per_second"].keys() - {"this"}
    assert row["bpe"] == 300


def test_the_benchmark_of_decoding_measures_every_side_that_is_installed(rows_of, trained):
    options = f"--data captions --split test --sentences 2 --rounds 1 --model {trained}"
    (row,) = rows_of(f"decoding_speed {options}")
    speeds = row["sentences_per_second"]
    assert {"this", "PyTorch", "CTranslate2"} <= speeds["split"].keys()
    assert speeds["beam"].keys() == speeds["split"].keys()
    assert all(speed > 0 for task in speeds.values() for speed in task.values())


def test_time_to_quality_has_a_run_for_each_number_of_minutes(rows_of, tmp_path, monkeypatch):
    """Here of updates. Catches scores of another budget or of a run on its way, doubled rows."""

    def in_updates(limits, **options):
        train(limits=replace(limits, minutes=None, steps=round(limits.minutes)), **options)

    monkeypatch.setattr(time_to_quality, "train", in_updates)
    data = caption_files(tmp_path, train=40, val=40)
    sizes = "--N 1 --d-model 16 --d-ff 16 --h 1"
    sizes += " --bpe 100 --factor 1 --warmup 1 --schedule linear"
    for minutes in ("2", "2 4"):
        rows = rows_of(f"time_to_quality {tmp_path}/run --data {data} --minutes {minutes} {sizes}")
    assert [(row["budget"], row["step"]) for row in rows] == [(2, 2), (4, 4)]
    assert rows[0]["preset"] == "tiny"
    for steps in (2, 4):  # zero is where each ends
        rates = [row["lr"] for row in read_log(tmp_path / "run" / str(steps)) if "lr" in row]
        assert rates == [tat.rate(1, 16, 1, 1) / steps]
    assert rows[0]["settings"]["d_ff"] == 16
    assert rows[0]["split"] == "val" and rows[0]["search"] == "greedy"


def test_another_program_writes_what_is_most_probable_step_by_step():
    sizes = {"N": 1, "d_model": 16, "d_ff": 16, "h": 2, "dropout": 0.1}
    settings = make_settings("tiny", False, sizes)
    torch.manual_seed(0)
    model = peers.TorchTransformer(settings, 12).eval()
    for matrix in (p for p in model.core.parameters() if p.dim() == 2):
        matrix.data *= 5  # else it would write for ever what it has just read
    sources = [[5, 6, 7], [8], [9, 10, 11, 4, 5]]
    written = beside.greedy(model, sources)
    assert len({*map(tuple, written)}) == 3
    for src, ids in zip(sources, written, strict=True):
        ended = ids.index(tat.EOS) + 1 if tat.EOS in ids else len(ids)
        batch = tat.make_batch([tat.Pair([*src, tat.EOS], [tat.BOS, *ids[:ended]])])
        causal = torch.nn.Transformer.generate_square_subsequent_mask(ended, dtype=torch.bool)
        x = model.core(model.embed(batch.src), model.embed(batch.tgt), tgt_mask=causal)
        assert (x @ model.table.weight.T).argmax(-1)[0].tolist() == ids[:ended]


@pytest.mark.parametrize(
    ("search", "options"), [("greedy", "--beam 1"), ("beam 2, alpha 0.5", "--beam 2 --alpha 0.5")]
)
def test_the_row_of_a_model_is_that_of_evaluate(
    search, options, rows_of, trained, capsys, monkeypatch
):
    """And names the device that translated, here a made-up one."""
    monkeypatch.setattr(quality, "choose_device", lambda: torch.device("meta"))
    common = f"--data captions --split val {options}"
    (row,) = rows_of(f"quality {trained} {common}", "--command", "python x")
    capsys.readouterr()
    assert main(f"evaluate --model {trained} {common} --json --engine pytorch".split()) == 0
    scores = json.loads(capsys.readouterr().out)
    assert row["search"] == search and row["step"] == 1 and row["command"] == "python x"
    assert row["machine"]["accelerator"] == "meta"
    assert all(row[key] == scores[key] for key in ("bleu", "bleu_signature", "chrf"))


def test_saved_rows_say_where_they_come_from():
    foreign = {"paper"}  # where others measured
    for name in {path.stem for path in (ROOT / "benchmarks" / "results").glob("*.jsonl")} - foreign:
        for row in rows(name):
            assert row["command"].startswith(("python ", "torchrun "))
            assert re.fullmatch(r"[0-9a-f]{7,}", row["commit"]) and row["date"]
            machine = row["machine"]
            assert machine == "another machine, not recorded" or machine["cores"]
    assert all("tok:13a" in row["bleu_signature"] for row in (*rows("quality"), *rows("test_sets")))
    assert all(row["source"].startswith("Vaswani et al., 2017") for row in rows("paper"))


@pytest.mark.skipif(not SOAK, reason="make soak")
def test_a_checkout_is_compared_with_itself(rows_of, tmp_path):
    """Catches a side that imports the other's code, and a task that is left out."""
    data = caption_files(tmp_path, train=8, val=2)
    (row,) = rows_of("compare", ROOT, "--rounds", 1, "--data", data)
    tasks = [speeds for name, speeds in row.items() if name.startswith(("training", "translation"))]
    assert len(tasks) == 4 and all(min(speeds.values()) > 0 for speeds in tasks)
    assert row["other"] == row["commit"]


def test_kept_translations_are_resampled_with_their_seeds(rows_of, tmp_path):
    """Catches swapped sides, seeds not drawn, and a file that another run has taken over."""
    data = caption_files(tmp_path, train=4, val=40)
    rows = Rows(tmp_path / "kept" / "rows.jsonl")
    rows.out.parent.mkdir()
    lines = (tmp_path / "val.en").read_text(encoding="utf-8").splitlines()

    def worse(n):
        return [line if i % n else "no" for i, line in enumerate(lines)]

    texts = (worse(2), worse(3), worse(9), lines)
    files = [rows.out.parent / rows.keep("a model: val", text) for text in texts]
    assert len({*files}) == 4 and files[3] == rows.out.parent / rows.keep("a model: val", lines)
    (row,) = rows_of(f"resample --data {data} --samples 200", "--a", *files[:2], "--b", *files[2:])
    assert row["direction"] == "de-en"
    for measure in resample.MEASURES:
        result = row[measure]
        assert result["scores"][1][1] == pytest.approx(100)
        means = [sum(scores) / 2 for scores in result["scores"]]
        assert result["difference"] == pytest.approx(means[1] - means[0], abs=0.01)
        assert result["difference"] > 0
        wide, narrow = (
            high - low for low, high in (result["interval"], result["sentences_interval"])
        )
        assert wide > narrow > 0  # the seeds of a side differ
    assert row["chrf"]["scores"] != row["bleu"]["scores"]
    lone = rows_of(f"resample --data {data} --samples 40", "--a", files[0], "--b", *files[2:])[1]
    # one seed: nobody knows
    assert lone["bleu"]["interval"] is None and lone["bleu"]["sentences_interval"][0] > 0


def test_without_length_is_before_the_brevity_penalty_and_seeds_count_by_welch():
    """Catches a penalty that stays, and a normal distribution where three seeds give Student's."""
    begins, ends = ("A", "The", "This"), ("barks", "sleeps", "eats")
    lines = [f"{a} dog runs through the snow and {b}" for a in begins for b in ends]
    short = [line.rpartition(" and ")[0] for line in lines]
    result = resample.resampled(lines, [[short], [lines]], 20)
    assert result["without length"]["scores"][0][0] == pytest.approx(100)
    assert result["bleu"]["scores"][0][0] < 80
    a = np.array([1.0, 2.0, 4.0])
    b = np.array([5.0, 5.5, 7.0, 9.0])
    error, freedom = resample.seeds_error([a, b])
    variances = 7 / 3 / 3, 38.75 / 12 / 4
    assert error == pytest.approx(sum(variances) ** 0.5)
    squares = variances[0] ** 2 / 2 + variances[1] ** 2 / 3
    assert freedom == pytest.approx(sum(variances) ** 2 / squares)
