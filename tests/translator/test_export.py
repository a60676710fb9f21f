"""Export: the other program's translations equal ours, token by token."""

import subprocess
import sys
from pathlib import Path

import ctranslate2
import pytest
import torch

import the_annotated_transformer as tat
from tests.helpers import same
from translator.__main__ import main
from translator.model_folder import read_translator
from translator.processes import weights_of
from translator.search import fast_beam
from translator.sources import load_pairs

SIZES = "--N 2 --d-model 32 --d-ff 48 --h 2 --bpe 300 --tokens-per-batch 600 --warmup 30 --factor 2"


KINDS = ["--positions sinusoidal", "--norm post --positions learned", "--positions rotary"]


@pytest.fixture(scope="module", params=KINDS)
def run(request, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "run"
    command = f"train --data captions --run {run} {SIZES} --steps 60 {request.param}"
    assert main(command.split()) == 0
    return run


def test_ctranslate2_finds_the_same_symbols(run, tmp_path):
    """Catches any weight in the wrong place, other positions, another epsilon, a missing </s>."""
    assert main(["export", "--model", str(run), "--out", str(tmp_path / "served")]) == 0
    theirs = ctranslate2.Translator(str(tmp_path / "served"), compute_type="float32")
    translator = read_translator(run)
    vocabulary = translator.tokenizer.vocabulary
    different = []
    for german, _ in load_pairs("captions", "test")[:60]:
        src = torch.tensor([[*translator.tokenizer.encode(german, "de"), tat.EOS]])
        ours = fast_beam(translator.model, src, tat.source_mask(src), 25, beam=1)[0][0].ids[1:]
        tokens = vocabulary.encode(german).tokens
        result = theirs.translate_batch([tokens], beam_size=1, max_decoding_length=24)
        ids = [vocabulary.token_to_id(token) for token in result[0].hypotheses[0]]
        different += [] if ours in (ids, [*ids, tat.EOS]) else [(german, ours, ids)]
        assert len(ids) > 3
    assert not different


def test_what_is_exported_translates_text(tmp_path):
    """The script in the folder, run as its card says: text in, text out, an empty line for one."""
    out = tmp_path / "served"
    assert main(["export", "--out", str(out)]) == 0
    lines = "Ein Hund läuft durch den Schnee.\n\n Zwei Männer sitzen auf einer Bank </s>.\n"
    command = [sys.executable, out / "translate.py"]
    process = subprocess.run(command, input=lines, capture_output=True, text=True)
    texts = process.stdout.split("\n")
    assert texts[0] == "A dog runs through the snow.", process.stderr
    assert texts[1] == "" and len(texts) == 4, process.stderr
    assert texts[2].startswith("Two men are sitting on a bench") and "▁" not in process.stdout
    assert "de to en" in (out / "README.md").read_text(encoding="utf-8")


def test_half_a_model_is_half_as_large_and_loads_as_before(run, tmp_path):
    out = tmp_path / "half"
    assert main(["export", "--model", str(run), "--out", str(out), "--to", "half"]) == 0
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (out, run)]
    assert sizes[0] < 0.7 * sizes[1]  # the header does not shrink
    single, half = (weights_of(read_translator(folder).model) for folder in (run, out))
    assert {tensor.dtype for tensor in half.values()} == {torch.float32}
    assert same(half, {name: tensor.half().float() for name, tensor in single.items()})
