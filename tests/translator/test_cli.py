"""The command line: a run from start to end, going on after a stop, a clear line for bad input."""

import dataclasses
import gzip
import json
import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from docstring_parser import parse_from_object
from sacrebleu.metrics import CHRF

import the_annotated_transformer as tat
from tests.helpers import ROOT, caption_files, refused, same, started
from translator import search
from translator.__main__ import main
from translator.corpus import encode_pairs
from translator.engine import Engine, open_search
from translator.files import MODEL_FILES, nobody, read_tensors, write_atomically
from translator.model_folder import read_translator
from translator.processes import weights_of
from translator.run_folder import token_store
from translator.run_log import read_log
from translator.scoring import half_width, score
from translator.search import Search
from translator.settings import PRESETS, Settings
from translator.sources import load_pairs
from translator.trainer import Objective, mean_loss

SMALL = "--N 1 --d-model 32 --d-ff 32 --h 2 --bpe 200 --tokens-per-batch 600 --warmup 20 --factor 1"
TINY = "--N 1 --d-model 8 --d-ff 8 --h 1 --bpe 50"


def training(run: Path, options: str) -> str:
    """The words of `train` on captions, for a model that trains in seconds."""
    return f"train --data captions --run {run} {SMALL} {options}"


def train(run: Path, options: str) -> int:
    return main(training(run, options).split())


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def validations(run: Path) -> dict[int, float]:
    """The validation losses in the log of a run, by update."""
    return {row["step"]: row["val_loss"] for row in read_log(run) if "val_loss" in row}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of 30 updates with checkpoints every 10."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(folder, "--steps 30 --checkpoint-every 10") == 0
    return folder


@pytest.fixture
def copy(run, tmp_path) -> Path:
    """A copy of that run, as from elsewhere: without its checksums."""
    shutil.copytree(run, tmp_path / "copy")
    (tmp_path / "copy" / "SHA256SUMS").unlink()
    return tmp_path / "copy"


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    """A run with whole words, English to German, of two passes; its text ends with a blank."""
    folder = tmp_path_factory.mktemp("words")
    data = caption_files(folder / "data", train=200, val=200)
    for path in data.iterdir():
        path.write_text(path.read_text() + "\n")
    options = f"--data {data} --run {folder / 'run'} --epochs 2 --src en --tgt de"
    assert main(f"train {options} {SMALL.replace('--bpe 200', '--words')}".split()) == 0
    return folder / "run"


def test_importing_the_document_prints_and_seeds_nothing_and_loads_no_library_in_vain():
    """Catches who imports it waiting for charts, data or PyTorch's compiler (over a second)."""
    unwanted = {"altair", "pandas", "spacy", "datasets", "pooch", "IPython"}
    unwanted |= {"torch._dynamo", "torch._inductor", "sympy"}
    code = (
        "import random, sys, torch; torch.manual_seed(5); random.seed(5); "
        "before = torch.get_rng_state(), random.getstate()\n"
        "import the_annotated_transformer\n"
        "assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()\n"
        f"sys.exit(sorted({unwanted} & sys.modules.keys()) or 0)"
    )
    call = [sys.executable, "-c", code]
    process = subprocess.run(call, cwd=ROOT, capture_output=True, text=True)
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")


@pytest.mark.quick
def test_the_shipped_model_translates(capsys):
    assert main(["translate", "Ein Hund."]) == 0
    assert capsys.readouterr().out == "A dog.\n"


def test_the_help_of_train_explains_every_setting(capsys):
    assert main(["train", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.replace("│", " ").split())
    params = parse_from_object(Settings).params
    meaning = {param.arg_name: " ".join(param.description.split()) for param in params}
    for field in dataclasses.fields(Settings):
        assert f"--{field.name.replace('_', '-')} " in out and f"{meaning[field.name]} (" in out


# --- A run ---
def test_a_run_folder_holds_what_it_should(run):
    files = "config.json tokenizer.json log.jsonl checkpoints model.safetensors tokens best"
    assert {path.name for path in run.iterdir()} == {*files.split(), "SHA256SUMS", ".lock"}
    names = {path.stem for path in (run / "checkpoints").iterdir()}
    assert names == {"000010", "000020", "000030", "state", "before"}
    assert {path.name for path in (run / "best").iterdir()} == {*MODEL_FILES, "SHA256SUMS"}
    state = read_tensors(run / "checkpoints" / "state.safetensors")[0]
    # of both optimisers
    assert {"momentum", "exp_avg"} <= {name.partition(".")[0] for name in state}
    config = json.loads((run / "config.json").read_text())
    assert config["settings"]["d_model"] == 32 and config["data"] == "captions"


def test_the_log_says_what_happened(run):
    """The last validation loss is that of the whole set at once."""
    rows = read_log(run)
    losses = validations(run)
    assert [row["step"] for row in rows if "loss" in row] == [10, 20, 30] == [*losses]
    assert losses[10] > losses[30]
    for row in (row for row in rows if "val_loss" in row):
        assert math.isclose(row["val_perplexity"], math.exp(row["val_loss"]), rel_tol=1e-2)
    translator = read_translator(run)
    pairs = load_pairs("captions", "val")
    batch = tat.make_batch(encode_pairs(translator.tokenizer, pairs, ("de", "en")))
    logits = translator.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    loss = torch.nn.functional.cross_entropy
    expected = loss(logits.transpose(1, 2), batch.tgt_y, ignore_index=tat.PAD)
    assert abs(expected.item() - losses[30]) < 2e-4


def test_a_finished_run_stays_as_it_is(run, capsys):
    """Even if its last update is no regular checkpoint, or another kind of model is asked for."""
    before = contents(run)
    assert train(run, "--steps 30 --checkpoint-every 7") == 0
    printed = capsys.readouterr().out
    assert "de to en, 500 pairs to learn from, 60 held out" in printed and "30 updates" in printed
    assert "it had finished before" in printed and "less than the warmup" not in printed
    assert "norm = pre, not post" in refused(capsys, training(run, "--steps 40 --norm post"))
    assert contents(run) == before


def test_words_and_epochs(words):
    translator = read_translator(words)
    assert translator.tokenizer.words and translator.languages == ("en", "de")
    assert read_log(words)[-1]["epoch"] == 2


def test_a_changed_attention_is_what_is_trained(tmp_path, monkeypatch):
    """Catches code that goes on computing the formula which a reader has just changed."""
    attention = tat.attention

    def changed(Q, *rest):
        return 1 / 0 if Q.requires_grad else attention(Q, *rest)

    monkeypatch.setattr(tat, "attention", changed)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path / "changed", "--steps 2")


def test_a_model_that_cannot_translate_says_so_before_it_is_trained(tmp_path, monkeypatch, capsys):
    # one that looks at all positions can't write one after the other
    forward = tat.DecoderLayer.forward

    def looks_ahead(self, x, *more):
        return forward(self, x - x.mean(1, True), *more)

    monkeypatch.setattr(tat.DecoderLayer, "forward", looks_ahead)
    assert train(tmp_path / "run", "--steps 1") == 0
    error = capsys.readouterr().err
    assert "can be trained, but not yet translate" in error
    assert error.count("so the validation loss says which model is best") == 1
    assert [row["step"] for row in read_log(tmp_path / "run") if "val_bleu" in row] == []
    assert read_tensors(tmp_path / "run" / "best" / "model.safetensors")[1]["step"] == 1


def test_a_model_without_the_state_of_its_training_is_not_trained_over(run, tmp_path, capsys):
    out = tmp_path / "averaged"
    assert main(f"average {run} --last 2 --out {out}".split()) == 0
    before = (out / "model.safetensors").read_bytes()
    error = refused(capsys, training(out, "--steps 40"))
    assert "is a model without the state of its training" in error
    assert (out / "model.safetensors").read_bytes() == before


def test_a_run_goes_on_without_its_data(tmp_path, capsys):
    """It keeps its tokens, wherever the corpus is. So short a run is called short."""
    data = caption_files(tmp_path / "data", train=100, val=100)
    command = f"train --data {data} --run {tmp_path / 'r'} --tokens-per-batch 400 {TINY} --steps"
    assert main([*command.split(), "2"]) == 0
    data.rename(tmp_path / "elsewhere")
    assert main([*command.split(), "4"]) == 0
    printed = capsys.readouterr().out
    assert "4 updates" in printed and "that is less than the warmup of 100 updates" in printed


# --- What was interrupted, or is damaged ---


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", lambda b: b[: len(b) // 2],
         "model.safetensors: not a safetensors file that a run wrote"),
        ("model.safetensors", None, "model.safetensors: no such file"),
        ("config.json", lambda b: b'{"settings": {"color": 3}}',
         "config.json: not the configuration of a model"),
        ("config.json", lambda b: b.replace(b'"d_ff": 32', b'"d_ff": 64'),
         "(32, 32), but the model needs (64, 32)"),
    ],
)  # fmt: skip
def test_a_damaged_or_foreign_model_is_refused(capsys, copy, name, damage, message):
    path = copy / name
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    assert message in refused(capsys, f"translate Hund --model {copy}")


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def crash(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(path, crash)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# --- Translating ---
def test_translate_answers_each_line_as_it_comes(run):
    """Through pipes; a line may hold a byte-order mark, nothing, separators, tokens, 300 words."""
    lines = [b"\xef\xbb\xbfEin Hund.", b"", "a\u2028b\x0bc\x85d".encode()]
    lines += [b"</s> <pad>", b"Hund " * 300]
    # -P: without the script's folder among those of modules
    script = ROOT / "the_annotated_transformer.py"
    program = [sys.executable, "-P", script, "translate", "--model", run]
    pipe = subprocess.PIPE
    ascii_only = os.environ | {"PYTHONIOENCODING": "ascii"}
    streams = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "env": ascii_only}
    with started(program, **streams) as process:
        answers = []
        for line in lines:
            process.stdin.write(line + b"\n")
            process.stdin.flush()
            answers.append(process.stdout.readline().decode("utf-8"))
        last_line, errors = process.communicate("😀".encode())
    assert process.returncode == 0 and all(line.endswith("\n") for line in answers)
    assert last_line.count(b"\n") == 1 and answers[1] == "\n"
    for note in ("line 4: the model does not know < / >", "line 5 has 901 tokens",
                 "line 6: the model does not know 😀"):  # fmt: skip
        assert f"note: {note}" in errors.decode()
    (expected,) = open_search(run, tat.BEAM, tat.ALPHA).translate(["Ein Hund."], nobody)
    assert answers[0].strip() == expected != ""


def test_translate_reads_and_writes_files(run, tmp_path, capsys):
    """Plain or packed; catches output that also goes to the screen."""
    lines = ["Ein Hund.", "", "Eine Katze schläft."]
    (tmp_path / "in.txt").write_text("\n".join(lines), encoding="utf-8-sig")
    (tmp_path / "in.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    expected = Search(read_translator(run)).translate(lines)
    for name, out in (("in.txt", tmp_path / "out"), ("in.gz", tmp_path / "out.gz")):
        command = f"translate --input {tmp_path / name} --output {out} --model {run} --beam 1"
        assert main(command.split()) == 0
        content = gzip.decompress(out.read_bytes()) if out.suffix else out.read_bytes()
        assert content.decode().split("\n") == [*expected, ""]
    assert capsys.readouterr().out == ""


def test_translate_prints_an_object_for_each_line(run, tmp_path, capsys):
    lines = ["Ein Hund läuft.", "", "Zwei Katzen schlafen auf dem Sofa."]
    (tmp_path / "in").write_text("\n".join(lines), encoding="utf-8")
    command = f"translate --input {tmp_path / 'in'} --model {run} --beam 3"
    assert main(command.split()) == 0
    plain = capsys.readouterr().out.splitlines()
    for options in ("", " --n-best 2"):
        assert main(f"{command} --json{options}".split()) == 0
        results = list(map(json.loads, capsys.readouterr().out.splitlines()))
        assert [result["translation"] for result in results] == plain
        assert [result["source"] for result in results] == lines
        assert results[1] == {"source": "", "translation": ""}
        for result in (results[0], results[2]):
            tokens = result["tokens"]
            assert result["source_tokens"][-1] == "</s>"
            mean = sum(result["log_probs"]) / len(tokens)
            assert result["mean_log_prob"] == pytest.approx(mean, abs=1e-3)
            for source, target in result["alignment"]:
                assert source < len(result["source_tokens"]) - 1 and tokens[target] != "</s>"
            hypotheses = result.pop("hypotheses", [])
            assert len(hypotheses) == (2 if options else 0)
            assert not hypotheses or hypotheses[0].items() <= result.items()


def test_the_device_is_an_option(run, monkeypatch, capsys):
    """`meta` has no numbers, so a model there can't translate; catches an option without effect."""
    monkeypatch.setenv("ANNOTATED_DEVICE", "meta")
    assert next(read_translator(run).model.parameters()).device.type == "meta"
    assert main(["translate", "Hund", "--model", str(run), "--device", "cpu"]) == 0
    assert "--device meta cannot be used here" in refused(capsys, "translate Hund --device meta")


# --- Scores ---
def test_evaluate_reports_scores_with_signatures(run, capsys):
    command = f"evaluate --model {run} --data captions --split test --beam 1".split()
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["sentences"] == 60 and result["split"] == "test"
    kinds = (("bleu", "13a", "mixed"), ("bleu_lower", "13a", "lc"), ("bleu_moses", "none", "lc"))
    for name, tokens, case in kinds:
        signature = result[f"{name}_signature"]
        assert f"tok:{tokens}" in signature and f"case:{case}" in signature
    assert main(command) == 0
    printed = capsys.readouterr().out
    for name in ("bleu", "bleu_lower", "bleu_moses", "chrf"):
        assert f"{result[name]:.2f}" in printed and result[name + "_signature"] in printed


def test_evaluate_writes_sources_references_and_translations_side_by_side(run, tmp_path):
    table = tmp_path / "test.tsv"
    command = f"evaluate --model {run} --data captions --split test --beam 1 --output {table}"
    assert main(command.split()) == 0
    title, *rows = (line.split("\t") for line in table.read_text("utf-8").splitlines())
    assert title == ["chrF", "source", "reference", "translation"]
    assert [tuple(row[1:3]) for row in rows] == load_pairs("captions", "test")
    best = max(rows, key=lambda row: float(row[0]))
    assert float(best[0]) == round(CHRF().sentence_score(best[3], [best[2]]).score, 1)


@pytest.mark.parametrize(
    ("engine", "options", "title", "called"),
    [
        ("pytorch", (), "beam 5, alpha 1.8", (5, 1.8)),
        ("ctranslate2", ("--beam", "1"), "greedy", (1, 1.8)),
        ("pytorch", ("--beam", "2", "--alpha", "1"), "beam 2, alpha 1.0", (2, 1.0)),
        ("ctranslate2", ("--beam", "2", "--alpha", "1"), "beam 2, alpha 1.0", (2, 1.0)),
    ],
)
def test_the_search_of_the_command_line_is_the_one_asked_for(
    run, capsys, monkeypatch, engine, options, title, called
):
    """Catches an option that is read but not used."""
    searches = set()

    def pytorch(model, src, src_mask, max_len, beam, alpha, *more):
        searches.add((beam, alpha))
        return [[search.Hypothesis(0.0, [tat.BOS, tat.EOS], [0.0], [])] for _ in src]

    def ctranslate2(self, rows, beam):
        searches.add((beam, self.alpha))
        return ["" for _ in rows]

    monkeypatch.setattr(search, "fast_beam", pytorch)
    monkeypatch.setattr(Engine, "translated", ctranslate2)
    arguments = ["evaluate", "--model", str(run), "--data", "captions", "--split", "val", "--json"]
    assert main([*arguments, "--engine", engine, *options]) == 0
    assert json.loads(capsys.readouterr().out)["search"] == title and searches == {called}


def test_an_interval_is_narrower_with_more_sentences():
    """By a thousand samples, four times as many sentences halve it."""
    references = [pair[1] for pair in load_pairs("captions", "train")[:40]]
    translations = [text if i % 2 else text[::-1] for i, text in enumerate(references)]
    for name in ("bleu", "chrf"):
        wide = half_width(name, translations, references)
        narrow = half_width(name, translations * 4, references * 4)
        assert 1.5 < wide / narrow < 2.7 and half_width(name, references, references) == 0


def test_scores_of_known_translations():
    references = [pair[1] for pair in load_pairs("captions", "test")[:50]]
    assert score(references, references)["bleu"] > 99.9
    assert score([r.lower() for r in references], references)["bleu"] < 95  # cased
    assert score(references[::-1], references)["bleu"] < 50
    assert score(["a dog runs"] * 3, ["a dog runs here ."] * 3)["length"] == pytest.approx(3 / 5)
    assert score(["a dog"], [""])["length"] == 2  # does not divide by 0


# --- Before a training ---
def test_plan_prints_a_command_that_can_be_copied(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("translator.plan.measured", list)
    data = caption_files(tmp_path / "my text", train=60, val=20)
    command = ["plan", str(data), "--seconds", "0.1"]
    assert main([*command, "--held-out", "0.2", "--json"]) == 0
    held_out = json.loads(capsys.readouterr().out)
    assert held_out["pairs"] + held_out["val"] == 60
    assert held_out["command"].endswith("--held-out 0.2")
    assert main([*command, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["pairs"] == 60 and result["bleu"] is None
    assert result["machine"]["tokens_per_second"] > 0
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[-1] == result["command"]
    words = shlex.split(result["command"])
    assert words[:2] == ["python", "the_annotated_transformer.py"]
    words[words.index("--steps") + 1] = "1"
    words[words.index("--run") + 1] = str(tmp_path / "run")
    assert main(words[2:]) == 0


# --- Averages, and runs that start from a model ---
def test_average_is_the_mean_of_the_last_checkpoints(run, tmp_path, capsys):
    out = tmp_path / "averaged"
    assert main(["average", str(run), "--last", "2", "--out", str(out)]) == 0
    captured = capsys.readouterr()
    losses = []
    assert "000020 to 000030" in captured.out
    for folder in (out, run):
        translator = read_translator(folder)
        store = token_store(run, "val", translator.tokenizer)
        objective = Objective(translator.model, eps=0.0)
        pairs = store.pairs(range(len(store)))
        losses.append(mean_loss(objective, pairs, 600, torch.device("cpu")))
    for loss in losses:
        assert f"{loss:.3f}" in captured.out
    assert losses[0] > losses[1]  # the loss of so short a run still falls fast
    assert "the average is no better" in captured.err
    files = [run / "checkpoints" / f"0000{step}.safetensors" for step in (20, 30)]
    first, second = (read_tensors(file)[0] for file in files)
    for name, tensor in weights_of(read_translator(out).model).items():
        torch.testing.assert_close(tensor, (first[name] + second[name]) / 2)
    assert main(["translate", "Hund", "--model", str(out)]) == 0


@pytest.mark.parametrize(
    ("run_bleu", "mean_bleu", "falling", "better"),
    [(28.3, 29.0, True, False), (28.3, 40.0, True, True), (28.3, 28.5, False, True)],
)
def test_an_average_is_judged_by_its_translations(
    run, tmp_path, monkeypatch, capsys, run_bleu, mean_bleu, falling, better
):
    """Catches one by the loss, and one that is recommended by chance where the rate fell."""
    scores = Mock(side_effect=[run_bleu, mean_bleu])
    monkeypatch.setattr("translator.trainer.greedy_bleu", scores)
    if not falling:
        monkeypatch.setattr("translator.run_log.read_log", lambda run: [])
    assert main(["average", str(run), "--last", "2", "--out", str(tmp_path / "averaged")]) == 0
    out, error = capsys.readouterr()
    assert f"BLEU {mean_bleu} on 60" in out and ("the average is better" in out) == better
    assert ("the average is no better" in error) == (not better)


def test_a_run_may_start_from_a_model(run, tmp_path):
    """With a rate of 0 it stays the same model: weights, vocabulary and moving average."""
    data = caption_files(tmp_path / "data", str.upper, train=40, val=40)
    new = tmp_path / "new"
    small = SMALL.replace("--factor 1", "--factor 0")
    for steps in (2, 4):
        command = f"train --data {data} --run {new} {small} --start-from {run} --steps {steps}"
        assert main(command.split()) == 0
        assert same(*(weights_of(read_translator(folder).model) for folder in (run, new)))
    assert (new / "tokenizer.json").read_text() == (run / "tokenizer.json").read_text()
    assert [*validations(new)] == [2, 4]


def test_half_a_model_is_half_as_large_and_loads_as_before(run, tmp_path):
    out = tmp_path / "half"
    assert main(["export", "--model", str(run), "--out", str(out), "--to", "half"]) == 0
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (out, run)]
    assert sizes[0] < 0.7 * sizes[1]  # the header does not shrink
    single, half = (weights_of(read_translator(folder).model) for folder in (run, out))
    assert {tensor.dtype for tensor in half.values()} == {torch.float32}
    assert same(half, {name: tensor.half().float() for name, tensor in single.items()})


# --- Pages ---
def content_of(page: Path) -> dict:
    """What the page of `explain` has for its figure."""
    text = page.read_text(encoding="utf-8").split('id="explorer-content">')[1]
    return json.loads(text.split("</script>")[0])


def test_explain_records_what_a_model_of_whole_words_does(words, tmp_path):
    """spaCy cuts words, which the page can't: it has the weights of two translations."""
    out = str(tmp_path / "page.html")
    assert main(["explain", "A dog runs.", "--model", str(words), "--out", out]) == 0
    for data in content_of(tmp_path / "page.html")["recorded"].values():
        S, T = len(data["source"]), len(data["target"])
        assert data["source"][-1] == "</s>" and data["target"][0] == "<s>"
        assert len(data["predicted"]) == len(data["steps"]) == T
        for kind, rows, columns in (("encoder", S, S), ("decoder", T, T), ("cross", T, S)):
            assert torch.tensor(data["maps"][kind]).shape == (1, 2, rows, columns)


# --- What is refused ---
TRAIN = {  # options of a training
    "--preset huge": 'Invalid value "huge" for --preset. Choose from: "tiny", "small", "base", "big".',
    "--smothing 0.2": "Unknown option: --smothing. Did you mean --smoothing?",
    "--lr 3": "Unknown option: --lr. Did you mean --factor?",
    "--d-model 30 --h 4": "d_model must be a multiple of h",
    "--positions rotary --d-model 36 --h 4": "the width of a head has to be even",
    "--words --bpe 70": "--words and --bpe exclude each other",
    "--dropout 1.5": 'Invalid value "1.5" for --dropout. Must be < 1.',
    "--tokens-per-batch 3 --steps 1": "--tokens-per-batch is 3, but the longest sentence has",
    "--src fr": "captions has the splits",
    "--device none": "--device none cannot be used here",
    "--start-from {tmp}/nowhere": "nowhere/config.json: no such file",
    "--start-from {run} --N 4 --d-model 128": "N = 1, not 4, and d_model = 32, not 128; the new",
}


OTHER_COMMANDS = {
    "fly": '"fly"',
    "train --run {tmp}/r": "--data is missing",
    "train --data {tmp}/nowhere --run {tmp}/r": "nowhere: no such folder with",
    "train --data {tmp} --run {tmp}/r": "val.de: no such file, and no val.de.gz beside it; "
    "the folder holds file, r; the endings are the languages, as --src",
    "doctor {tmp}/nowhere": "nowhere/config.json: no such file",
    "plan {tmp}/nowhere": "nowhere: no such folder with train.de, train.en, val.de, val.en",
    "translate Hund --input {tmp}/file": "give sentences or --input, not both",
    "translate Hund --model {tmp}/nowhere": "nowhere/config.json: no such file",
    "translate Hund --model {run} --n-best 2": "--n-best needs --json",
    "evaluate --data captions": "error: --split is missing",
    "evaluate --data captions --split tset --model {run}": "captions has the splits train, val, test",
    "explain Hund --model {run} --out {tmp}/no/such/folder.html": "no/such/folder.html: cannot be written (No such file",
    "export --model {run} --out {run}": "exists already",
    "average {run} --last 9 --out {tmp}/r": "--last asks for 9 checkpoints, but",
}
BAD = {f"train --data captions --run {{tmp}}/r {options}": TRAIN[options] for options in TRAIN}
BAD |= OTHER_COMMANDS


@pytest.mark.parametrize(("command", "message"), BAD.items())
def test_bad_input_is_one_line(capsys, tmp_path, run, command, message):
    (tmp_path / "file").write_text("")
    assert message in refused(capsys, command.format(tmp=tmp_path, run=run))
    assert not (tmp_path / "r" / "config.json").exists()


def test_the_lab_notebooks_table_of_presets_is_the_programs():
    text = (ROOT / "lab_notebook.py").read_text(encoding="utf-8")
    rows = re.findall(r"# > \| `(\w+)`.*? \| (\d) \+ (\d) \| (\d+) \| (\d+) \| (\d+) \|", text)
    table = {name: tuple(map(int, sizes)) for name, *sizes in rows}
    assert table == {name: (p.N, p.N, p.d_model, p.d_ff, p.h) for name, p in PRESETS.items()}
