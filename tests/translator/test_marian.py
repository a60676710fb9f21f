"""Models that Marian trained, from the hub or its own file, give the numbers of other programs."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import huggingface_hub
import numpy as np
import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, MarianConfig, MarianMTModel, MarianTokenizer

import since_2017 as since
import the_annotated_transformer as tat
from tests.helpers import SOAK, Touch, refused, same
from translator.__main__ import main
from translator.captions import caption_corpus
from translator.marian import (
    HUB_FILES,
    NEVER,
    USUAL,
    import_marian,
    marian_name,
    ordered,
    read_marian,
)
from translator.model_folder import read_translator
from translator.search import Search

CONFIGURATIONS = {
    "swish": {},
    "relu": {"activation_function": "relu"},
    "deep encoder": {"encoder_layers": 3, "decoder_layers": 1},
    "deep decoder": {"encoder_layers": 1, "decoder_layers": 3}
    | {"encoder_attention_heads": 2, "decoder_attention_heads": 2},
}


@pytest.fixture(scope="module")
def captions() -> list[list[str]]:
    corpus = caption_corpus()[1000:2500]
    return [[caption.de for caption in corpus], [caption.en for caption in corpus]]


@pytest.fixture(scope="module")
def pieces(captions, tmp_path_factory) -> Path:
    """A folder with source.spm, target.spm and vocab.json, as real models have them."""
    folder = tmp_path_factory.mktemp("pieces")
    tokens = ["</s>", "<unk>", ">>fra<<"]
    for name, side in zip(("source", "target"), captions, strict=True):
        with (folder / f"{name}.spm").open("wb") as out:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(side), model_writer=out, vocab_size=180,
                hard_vocab_limit=False, bos_id=-1, eos_id=0, unk_id=1,
                normalization_rule_name="nmt_nfkc", minloglevel=2,
            )  # fmt: skip
        model = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        tokens += [model.id_to_piece(i) for i in range(2, model.get_piece_size())]
    tokens = [*dict.fromkeys(tokens), "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: i for i, token in enumerate(tokens)}))
    config = {"source_lang": "de", "target_lang": "en"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def hub_model(pieces: Path, folder: Path, **changes) -> MarianMTModel:
    """A MarianMTModel of random weights, none zero or one, beside its vocabulary as on the hub."""
    ids = json.loads((pieces / "vocab.json").read_text())
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48}
    sizes |= {"activation_function": "swish", "scale_embedding": True}
    marks = {"pad_token_id": len(ids) - 1, "eos_token_id": 0}
    marks |= {"decoder_start_token_id": len(ids) - 1}
    torch.manual_seed(1)
    model = MarianMTModel(MarianConfig(vocab_size=len(ids), **sizes | marks | changes)).eval()
    with torch.no_grad():
        for name, p in [*model.named_parameters(), ("bias", model.final_logits_bias)]:
            if "embed_positions" not in name:
                p.add_(0.25 * torch.randn_like(p))
        model.model.shared.weight[-1] = 0  # padding
    model.generation_config = GenerationConfig(**marks)
    model.save_pretrained(folder)
    for path in pieces.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    return model


@pytest.fixture
def hub(pieces, tmp_path) -> Path:
    hub_model(pieces, tmp_path / "hub")
    return tmp_path / "hub"


def read_hub(folder: Path) -> tat.Translator:
    return read_marian(str(folder))[0]


def read_own(folder: Path) -> tat.Translator:
    return read_marian(str(folder / "model.npz"), "de", "en")[0]


def sources(translator: tat.Translator, texts: list[str]) -> torch.Tensor:
    """The ids of German sentences, padded."""
    return tat.pad_rows([[*translator.tokenizer.encode(text, "de"), tat.EOS] for text in texts])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logits_and_translations_are_those_of_hugging_face(name, pieces, captions, tmp_path):
    """All at once to 1e-5, and greedy search by `generate`."""
    theirs = hub_model(pieces, tmp_path / "hub", **CONFIGURATIONS[name])
    translator = read_hub(tmp_path / "hub")
    model = translator.model
    assert translator.languages == ("de", "en")
    # of theirs; each is one of our tokens
    rows = ordered(json.loads((pieces / "vocab.json").read_text()))[1]
    id_of_row = {row: i for i, row in enumerate(rows) if i not in (tat.PAD, tat.BOS)}
    cut = MarianTokenizer.from_pretrained(str(tmp_path / "hub"))
    batch = cut(captions[0][:12], return_tensors="pt", padding=True)
    src = sources(translator, captions[0][:12])
    tgt = torch.randint(4, len(rows), (12, 9))
    tgt[:, 0] = tat.BOS
    with torch.inference_mode():
        expected = theirs(**batch, decoder_input_ids=torch.tensor(rows)[tgt]).logits[..., rows[2:]]
        logits = model(src, tgt, tat.source_mask(src), tat.subsequent_mask(9))[..., 2:]
        near = 1e-5 * float(expected.abs().max())
        torch.testing.assert_close(logits, expected, rtol=1e-5, atol=near)
        options = {"max_new_tokens": 15, "bad_words_ids": [[len(id_of_row)]], "do_sample": False}
        written = theirs.generate(**batch, num_beams=1, **options)
        greedy = Search(translator).decode(model, src, tat.source_mask(src), 16)
    for our_ids, their_rows in zip(greedy.tolist(), written.tolist(), strict=True):
        their_ids = [id_of_row[row] for row in their_rows[1:] if row in id_of_row]
        our_ids = [i for i in our_ids[1:] if i != tat.PAD]  # a padded source has a lower limit
        assert our_ids == their_ids[: len(our_ids)] and len(our_ids) >= 1


def test_pieces_are_those_of_sentencepiece(pieces, captions, hub):
    """On captions, both sides, and on strange text that is known; a language's mark is a token."""
    tokenizer = read_hub(hub).tokenizer
    vocabulary = tokenizer.vocabulary.get_vocab()
    for name, language, side in (("source", "de", captions[0]), ("target", "en", captions[1])):
        model = sentencepiece.SentencePieceProcessor(model_file=str(pieces / f"{name}.spm"))
        spaces = "  " + side[0].replace(" ", "\t \u00a0") + " "
        for text in [*side[: None if SOAK else 400], spaces, "①", ""]:
            expected = model.encode(text, out_type=str)
            tokens = tokenizer.tokens(tokenizer.encode(text, language))
            assert tokens == [piece if piece in vocabulary else "<unk>" for piece in expected]
            decoded = tokenizer.decode(tokenizer.encode(text, language))
            assert "<unk>" in tokens or decoded == model.decode(expected)
    assert tokenizer.tokens(tokenizer.encode(">>fra<< Ein Hund", "de"))[:2] == [">>fra<<", "▁Ein"]


def test_an_imported_model_is_a_folder_like_any_other(
    pieces, captions, tmp_path, capsys, monkeypatch
):
    """It translates, is scored, explained, exported to half its size, and trained further."""
    monkeypatch.setenv("ANNOTATED_DEVICE", "cpu")
    hub_model(pieces, tmp_path / "opus-mt-de-en", encoder_layers=2, decoder_layers=1)
    out = str(tmp_path / "ours")
    assert main(["import", str(tmp_path / "opus-mt-de-en"), "--out", out]) == 0
    lines = captions[0][:6]
    ours = read_translator(Path(out), torch.device("cpu"))
    direct = read_hub(tmp_path / "opus-mt-de-en")
    assert Search(ours, 3).translate(lines) == Search(direct, 3).translate(lines)
    command = f"evaluate --model {out} --data captions --split test --beam 1"
    assert main(command.split()) == 0
    assert main(["explain", lines[0], "--model", out, "--out", str(tmp_path / "page.html")]) == 0
    assert "recorded" in (tmp_path / "page.html").read_text("utf-8")
    assert main(["export", "--model", out, "--to", "half", "--out", str(tmp_path / "half")]) == 0
    assert read_translator(tmp_path / "half").model.encoder.layers[0].self_attn.W_q.bias is not None
    run = f"train --data captions --start-from {out} --run {tmp_path / 'run'}"
    run += " --tokens-per-batch 400 --checkpoint-every 1"
    sizes = "--preset base --N 2 --d-model 32 --d-ff 48 --h 4 --norm post --bpe 37000"
    for steps in (2, 3):
        assert main(f"{run} {sizes} --steps {steps}".split()) == 0, capsys.readouterr().err
    before, after = (read_translator(Path(folder)).model for folder in (out, tmp_path / "run"))
    assert len(after.decoder.layers) == 1
    assert not torch.equal(before.generator.proj.bias, after.generator.proj.bias)


def test_ctranslate2_translates_alike(pieces, captions, tmp_path, monkeypatch):
    ctranslate2 = pytest.importorskip("ctranslate2")
    monkeypatch.setenv("ANNOTATED_DEVICE", "cpu")
    hub_model(pieces, tmp_path / "hub", encoder_layers=2, decoder_layers=1)
    translator = import_marian(str(tmp_path / "hub"), tmp_path / "ours")
    assert main(["export", "--model", str(tmp_path / "ours"), "--out", str(tmp_path / "ct2")]) == 0
    lines = captions[0][:10]
    tokenizer = translator.tokenizer
    tokens = [tokenizer.tokens(tokenizer.encode(text, "de")) for text in lines]
    served = ctranslate2.Translator(str(tmp_path / "ct2"))
    results = served.translate_batch(tokens, beam_size=1, max_decoding_length=20)
    src = sources(translator, lines)
    longest = 21 + src.size(1)  # a padded source has a lower limit
    ours = Search(translator).decode(translator.model, src, tat.source_mask(src), longest).tolist()
    for theirs, ids in zip(results, ours, strict=True):
        expected = tokenizer.tokens(i for i in ids[1:] if i not in (tat.EOS, tat.PAD))
        assert theirs.hypotheses[0] == expected[:20]


def write_npz(translator: tat.Translator, out: Path) -> None:
    """A folder with model.npz and vocab.yml, as Marian writes them."""
    model, tokenizer, _ = translator
    layer, tie = model.encoder.layers[0], model.settings["tie"]
    pre = not isinstance(layer.sublayer[0], tat.PostNorm)
    swish = isinstance(layer.feed_forward, since.SwishFeedForward)
    order = [tat.EOS, tat.UNK, *range(len(tat.SPECIALS), len(tokenizer)), tat.PAD]  # theirs
    apart = ["encoder_Wemb", "decoder_Wemb", "decoder_ff_logit_out_Wt"]
    names = {"all": ["Wemb"], "target": apart[:2], "none": apart}[tie]
    tables = model.src_embed.embeddings.table, model.tgt_embed.embeddings.table
    tables = *tables, model.generator.proj  # of which the tied ones have no name
    arrays = {name: table.weight[order] for name, table in zip(names, tables, strict=False)}
    arrays["decoder_ff_logit_out_b"] = model.generator.proj.bias[order].unsqueeze(0)
    for name, parameter in model.named_parameters():
        if ".layers." in name or ".norm." in name:
            vector = parameter.dim() == 1
            arrays[marian_name(name, pre)] = parameter.unsqueeze(0) if vector else parameter.T
    options = USUAL | {
        "dim-emb": model.settings["d_model"], "transformer-heads": layer.self_attn.h,
        "transformer-dim-ffn": layer.feed_forward.W_1.out_features,
        "enc-depth": len(model.encoder.layers), "dec-depth": len(model.decoder.layers),
        "transformer-ffn-activation": "swish" if swish else "relu",
        "transformer-preprocess": '"n"' if pre else '""',
        "transformer-postprocess": '"da"' if pre else '"dan"',
        "transformer-postprocess-top": '"n"' if pre else '""',
    }  # fmt: skip
    text = "".join(f"{name}: {value}\n" for name, value in options.items()) + "\0"
    numbers = {name: array.detach().contiguous().numpy() for name, array in arrays.items()}
    numbers["special:model.yml"] = np.frombuffer(text.encode(), np.int8)
    out.mkdir()
    np.savez(out / "model.npz", **numbers)
    tokens = (json.dumps(token, ensure_ascii=False) for token in tokenizer.tokens(order))
    text = "".join(f"{token}: {i}\n" for i, token in enumerate(tokens))
    (out / "vocab.yml").write_text(text, encoding="utf-8")


@pytest.fixture
def npz(pieces, tmp_path) -> Path:
    """A folder with Marian's own file, and the .spm of both sides beside it."""
    hub_model(pieces, tmp_path / "hub", encoder_layers=2, decoder_layers=1)
    translator = read_hub(tmp_path / "hub")
    for embed in (translator.model.src_embed, translator.model.tgt_embed):
        embed.positions = since.SplitPositions(32, 0.0, 15)
    write_npz(translator, tmp_path / "npz")
    for name in ("source", "target"):
        (tmp_path / "npz" / f"{name}.spm").write_bytes((pieces / f"{name}.spm").read_bytes())
    return tmp_path / "npz"


@pytest.mark.parametrize(("norm", "tie"), [("pre", "all"), ("post", "target"), ("pre", "none")])
def test_other_norms_and_shared_matrices_arrive(norm, tie, npz, tmp_path):
    """And what it computes; catches a norm, a small constant or a table taken for another."""
    tokenizer = read_own(npz).tokenizer
    size = len(tokenizer)
    different = {"depths": (2, 1), "closed": True, "eps": 1e-6}
    model = since.make_marian(size, 32, 48, 4, 0.0, norm=norm, tie=tie, **different)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.3 * torch.randn_like(p))
        for embed in (model.src_embed, model.tgt_embed):
            embed.embeddings.table.weight[[tat.PAD, tat.BOS]] = 0
        model.generator.proj.weight[[tat.PAD, tat.BOS]] = 0
        model.generator.proj.bias[[tat.PAD, tat.BOS, tat.UNK]] = NEVER
    write_npz(tat.Translator(model.eval(), tokenizer, ("de", "en")), tmp_path / "other")
    for name in ("source", "target"):
        (tmp_path / "other" / f"{name}.spm").write_bytes((npz / f"{name}.spm").read_bytes())
    back, settings, _ = read_marian(str(tmp_path / "other" / "model.npz"), "de", "en")
    assert (settings.norm, settings.tie) == (norm, tie)
    end = "_pre" if norm == "pre" else ""  # as in the files that Marian itself writes
    assert {f"encoder_l1_self_Wo_ln_scale{end}", f"decoder_l1_ffn_ffn_ln_bias{end}"} <= {
        *np.load(tmp_path / "other" / "model.npz")
    }
    assert same(dict(model.named_parameters()), dict(back.model.named_parameters()))
    src, tgt = torch.randint(4, size, (2, 7)), torch.randint(4, size, (2, 5))
    inputs = src, tgt, tat.source_mask(src), tat.subsequent_mask(5)
    torch.testing.assert_close(model(*inputs), back.model(*inputs), rtol=0, atol=0)


# Each gives a function that spoils one thing in a folder of the hub.
def arrays(changes: dict) -> Callable[[Path], None]:
    """Other weights, or none for None."""

    def spoil(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors") | changes
        present = {name: array for name, array in weights.items() if array is not None}
        save_file(present, folder / "model.safetensors")

    return spoil


def content(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


def config(**changes) -> Callable[[Path], None]:
    return content("config.json", lambda data: json.dumps(json.loads(data) | changes).encode())


FIRST = "model.encoder.layers.0.self_attn.q_proj.weight"


def a_pickle(folder: Path) -> None:
    """In the place of PyTorch's file, and no archive."""
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Touch(Path("stolen"))))


BAD = {
    "a pickle": (a_pickle, "pytorch_model.bin: damaged"),
    "truncated": (content("model.safetensors", lambda b: b[:-100]), "model.safetensors: damaged"),
    "a shape":
        (arrays({FIRST: torch.zeros(3, 3)}), f"{FIRST} has shape (3, 3), but (32, 32) is needed"),
    "an array less": (arrays({FIRST: None}), f"it has no array {FIRST}"),
    "an array more": (arrays({"model.ssru": torch.zeros(1)}), "its array model.ssru"),
    "pieces that end early": (content("source.spm", lambda b: b[:1203]), "source.spm: damaged"),
    "a vocabulary less": (content("vocab.json", lambda b: b.replace(b', "<pad>": 319', b"")),
                          "pad_token_id is 319, but vocab.json has <pad> at None"),
    "gelu": (config(activation_function="gelu"), "activation_function is 'gelu'"),
    "bart": (config(model_type="bart"), "model_type is 'bart'"),
}  # fmt: skip


@pytest.mark.parametrize(("spoil", "message"), BAD.values(), ids=BAD)
def test_a_bad_folder_is_refused_in_one_line(spoil, message, hub, tmp_path, capsys, monkeypatch):
    """The line names the file and the array; nothing is executed, and nothing is left behind."""
    monkeypatch.chdir(tmp_path)
    spoil(hub)
    assert message in refused(capsys, "import hub --out ours")
    assert not (tmp_path / "ours").exists() and not (tmp_path / "stolen").exists()


def test_a_name_on_the_hub_is_found_in_the_cache(hub, tmp_path, capsys, monkeypatch):
    """As the library lays it out there; what is not in it, without a network, is one line."""
    cache = Path(os.environ["HF_HOME"]) / "hub" / "models--owner--opus-mt-de-en"
    shutil.copytree(hub, cache / "snapshots" / ("a" * 40))
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text("a" * 40)
    # all would be fetched
    assert all(any(path.match(pattern) for pattern in HUB_FILES) for path in hub.iterdir())
    fetch = Mock(wraps=huggingface_hub.snapshot_download)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert main(["import", "owner/opus-mt-de-en", "--out", str(tmp_path / "ours")]) == 0
    assert read_translator(tmp_path / "ours").languages == ("de", "en")
    fetch.assert_called_once_with("owner/opus-mt-de-en", allow_patterns=HUB_FILES)
    assert "not from the hub" in refused(capsys, f"import owner/other --out {tmp_path / 'other'}")
    assert not (tmp_path / "other").exists()


DECODE = """
from pymarian import Translator
options = {"beam_size": 1, "mini_batch": 1, "maxi_batch": 1, "max_length_factor": 5}
options |= {"cpu_threads": 1, "quiet": True}
translator = Translator(models="model.npz", vocabs=["vocab.spm"] * 2, **options)
lines = open("lines.de", encoding="utf-8").read().splitlines()
found = "".join(translator.translate(line) + chr(10) for line in lines)
open("there.en", "w", encoding="utf-8").write(found)
"""


@pytest.mark.skipif(not SOAK, reason="make soak trains with Marian itself")
def test_a_model_that_marian_trained_translates_alike(captions, tmp_path):
    """The same lines from its own file, where all end by themselves."""
    for name, side in zip(("de", "en"), captions, strict=True):
        (tmp_path / f"train.{name}").write_text("\n".join(side) + "\n", encoding="utf-8")
    command = """train --type transformer --train-sets train.de train.en --model model.npz
        --vocabs vocab.spm vocab.spm --dim-vocabs 300 300 --dim-emb 64 --enc-depth 2 --dec-depth 1
        --transformer-heads 4 --transformer-dim-ffn 128 --transformer-ffn-activation swish
        --tied-embeddings-all --mini-batch 32 --learn-rate 0.002 --lr-warmup 100
        --lr-decay-inv-sqrt 100 --after-batches 500 --save-freq 500 --cpu-threads 1 --seed 1
        -w 500 --quiet"""
    program = Path(sys.executable).with_name("pymarian")
    subprocess.run([program, *command.split()], cwd=tmp_path, check=True)
    translator = read_own(tmp_path)
    lines = captions[0][:100]
    (tmp_path / "lines.de").write_text("\n".join(lines) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, "-c", DECODE], cwd=tmp_path, check=True)
    theirs = (tmp_path / "there.en").read_text("utf-8").splitlines()
    ours = Search(translator).translate(lines)
    ended = [i for i, line in enumerate(ours) if len(line) < 100]
    assert len(ended) > 80
    assert [ours[i] for i in ended] == [theirs[i] for i in ended]
