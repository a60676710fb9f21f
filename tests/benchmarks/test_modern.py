"""The benchmark of what came since 2017 trains its variants like the preset."""

import json

from benchmarks import __main__ as door
from benchmarks import modern
from translator.__main__ import train
from translator.run import Limits, read_log
from translator.sources import load_pairs


def captions(folder):
    for split in ("train", "val"):
        for i, language in enumerate(("de", "en")):
            text = "\n".join(pair[i] for pair in load_pairs("captions", split)[:40])
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


def test_what_came_since_2017_is_trained_like_the_preset(tmp_path, monkeypatch):
    """Catches a variant without its change or with another, a base that is not the program's, and rows written twice."""
    smallest = {"N": 2, "d_model": 16, "d_ff": 24, "h": 4, "bpe": 100}
    monkeypatch.setattr(modern, "COMMON", smallest)
    data, runs, out = captions(tmp_path), tmp_path / "runs", tmp_path / "rows.jsonl"
    command = ["modern", "--data", str(data), "--runs", str(runs), "--out", str(out), "--epochs", "2", "--seeds", "1"]
    for _ in range(2):
        assert door.main([*command, "--only", *modern.VARIANTS]) == 0
    rows = {row["variant"]: row for row in map(json.loads, out.read_text().splitlines())}
    assert len(out.read_text().splitlines()) == len(rows) == len(modern.VARIANTS)
    train(data=str(data), run=tmp_path / "run", limits=Limits(epochs=2), changes=smallest | {"seed": 1})
    expected = read_log(tmp_path / "run")[-1]["val_loss"]
    assert rows["base"]["val_loss"] == expected and rows["base"]["seed"] == rows["base"]["settings"]["seed"] == 1
    assert len({row["val_loss"] for row in rows.values()}) == len(rows)  # each is another model
    more = {name: row["parameters"] - rows["base"]["parameters"] for name, row in rows.items()}
    kv = 2 * 2 * 3 * 16 * 16  # keys and values of three attentions in two layers
    assert more["rotary"] == 0 and more["grouped 2"] == -kv // 2 and more["grouped 1"] == -kv * 3 // 4
    assert more["rms_norm"] == -16 * (2 * 2 + 2 * 3 + 2) and more["gated"] == -4 * (24 + 16)
    assert more["modern"] == more["rms_norm"] + more["gated"] + more["grouped 2"]
    assert rows["decoder_only"]["tokens"] == rows["base"]["tokens"] and "bleu_beam" not in rows["decoder_only"]
    assert all("bleu_beam" in row for name, row in rows.items() if not name.startswith("decoder_only"))
    assert str(tmp_path) not in out.read_text()
    assert rows["modern"]["preset"] == "tiny" and rows["modern"]["row"] == "since 2017"
    assert door.main([*command, "--only", "rotary", "gate"]) == 2
