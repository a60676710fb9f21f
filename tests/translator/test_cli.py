"""The command line: a run from start to end, continuing after an interruption, and one clear line for bad input."""

import dataclasses
import gzip
import io
import json
import math
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from docstring_parser import parse_from_object

import the_annotated_transformer as tat
from translator.__main__ import main
from translator.corpus import TokenStore, encode_pairs
from translator.files import read_tensors, write_atomically, write_tensors
from translator.model_folder import MODEL_FILES, average_checkpoints, read_translator
from translator.processes import weights_of
from translator.run import held_out_pairs, read_log
from translator.scoring import score
from translator.search import Search
from translator.settings import PRESETS, Settings
from translator.sources import decoded_lines, load_pairs
from translator.trainer import Objective, ParallelTrainer, mean_loss

ROOT = Path(__file__).resolve().parents[2]
SMALL = [
    "--N",
    "1",
    "--d-model",
    "32",
    "--d-ff",
    "32",
    "--h",
    "2",
    "--bpe",
    "200",
    "--tokens-per-batch",
    "600",
    "--warmup",
    "20",
    "--factor",
    "1",
]


def train(run: Path, *arguments: str) -> int:
    """`train` on captions with a model that trains in seconds."""
    return main(["train", "--data", "captions", "--run", str(run), *SMALL, *arguments])


def error_of(capsys, *arguments: str) -> str:
    """The one line that a failing command prints; its exit status is not zero, and it prints nothing else."""
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1, captured.err
    assert "Traceback" not in captured.err
    return captured.err


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A finished run of 30 updates with checkpoints every 10."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert train(folder, "--steps", "30", "--checkpoint-every", "10") == 0
    return folder


def test_importing_has_no_effect():
    """An import prints, downloads, plots and seeds nothing."""
    code = (
        "import random, torch; torch.manual_seed(5); random.seed(5); before = torch.get_rng_state(), random.getstate()\n"
        "import the_annotated_transformer\n"
        "assert torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("module", ["the_annotated_transformer", "translator.__main__"])
def test_importing_loads_no_chart_library(module):
    """Catches a command that waits for libraries it does not need."""
    unwanted = {"altair", "pandas", "spacy", "datasets", "pooch", "IPython", "ctranslate2"}
    code = f"import sys, {module}; print(*sorted({unwanted} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_translating_loads_no_compiler():
    """PyTorch's takes over a second to load; catches a sentence that waits for it."""
    code = (
        "import sys; from translator.__main__ import main; status = main(['translate', 'Ein Hund.'])\n"
        "sys.exit(status or sorted({'torch._dynamo', 'torch._inductor', 'sympy', 'altair'} & sys.modules.keys()) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "A dog.\n"), done.stderr


def test_the_help_of_train_explains_every_setting(capsys):
    """With its values in the presets: one if they agree, and else four."""
    assert main(["train", "--help"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    out = " ".join(out.replace("│", " ").split())
    meaning = {found.arg_name: found.description for found in parse_from_object(Settings).params}
    for field in dataclasses.fields(Settings):
        assert f"--{field.name.replace('_', '-')} " in out and f"{meaning[field.name]} (" in out
    assert "share of zeros on embeddings and sublayers' outputs (0.25, 0.3, 0.1, 0.3)" in out
    assert "label smoothing (5.4) (0.1)" in out


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(command in out for command in ("train", "translate", "evaluate", "average", "explain", "export"))


def test_a_run_folder_holds_what_it_should(run):
    assert {p.name for p in run.iterdir()} == {
        "config.json",
        "tokenizer.json",
        "log.jsonl",
        "checkpoints",
        "model.safetensors",
        "tokens",
        "best",
        "SHA256SUMS",
        ".lock",
    }
    names = {p.stem for p in (run / "checkpoints").iterdir()}
    assert names == {"000010", "000020", "000030", "state", "before"}
    assert {p.name for p in (run / "best").iterdir()} == {*MODEL_FILES, "SHA256SUMS"}
    about = json.loads((run / "config.json").read_text())
    assert about["settings"]["d_model"] == 32 and about["data"] == "captions"


def test_the_log_says_what_happened(run):
    rows = read_log(run)
    assert [r["step"] for r in rows if "loss" in r] == [10, 20, 30] == [r["step"] for r in rows if "val_loss" in r]
    losses = [r["val_loss"] for r in rows if "val_loss" in r]
    assert losses[0] > losses[-1] > 0
    assert all(
        math.isclose(r["val_perplexity"], math.exp(r["val_loss"]), rel_tol=1e-2) for r in rows if "val_loss" in r
    )


def test_the_validation_loss_is_that_of_the_whole_set_at_once(run):
    translator = read_translator(run)
    pairs = encode_pairs(translator.tokenizer, load_pairs("captions", "val"), ("de", "en"))
    batch = tat.make_batch(pairs)
    logits = translator.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    expected = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch.tgt_y, ignore_index=tat.PAD)
    assert abs(expected.item() - [r for r in read_log(run) if "val_loss" in r][-1]["val_loss"]) < 2e-4


def test_going_on_gives_the_uninterrupted_run(run, tmp_path, capsys):
    """Weights and state after 15 + 15 updates equal those after 30, bit by bit; dropout is on."""
    assert train(tmp_path / "again", "--steps", "15", "--checkpoint-every", "10") == 0
    with (tmp_path / "again" / "log.jsonl").open("a") as log:
        log.write('{"step": 17, "lo')  # a crash in the middle of a line
    assert train(tmp_path / "again", "--steps", "30", "--checkpoint-every", "10") == 0
    for name in ("model.safetensors", "checkpoints/000030.safetensors", "checkpoints/state.safetensors"):
        ours, theirs = (read_tensors(folder / name)[0] for folder in (tmp_path / "again", run))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
    last = [
        [r for r in read_log(folder) if r["step"] == 30 and "val_loss" in r][0]["val_loss"]
        for folder in (tmp_path / "again", run)
    ]
    assert last[0] == last[1]


def test_going_on_with_two_optimisers(tmp_path):
    """Catches a moving average that is not saved, or goes to another weight."""
    for folder, stops in (("whole", (8,)), ("parts", (3, 8))):
        for steps in stops:
            assert train(tmp_path / folder, "--steps", str(steps), "--optimizer", "muon") == 0
    ours, theirs = (read_tensors(tmp_path / name / "checkpoints/state.safetensors")[0] for name in ("parts", "whole"))
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[k], theirs[k]) for k in ours)
    assert {"momentum", "exp_avg"} <= {name.partition(".")[0] for name in ours}


def test_an_interrupted_command_says_so(tmp_path, capsys, monkeypatch):
    """Catches the library's own exit without a message."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("translator.training.fit", interrupted)
    assert train(tmp_path / "run", "--steps", "1") == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("steps", [2, 4])
@pytest.mark.parametrize("lost", ["model.safetensors", "next.safetensors"])
def test_a_crash_between_two_files_of_a_checkpoint_is_made_good(tmp_path, monkeypatch, lost, steps):
    """Catches a model that stays behind its run, and a first checkpoint that cannot be repeated."""
    folder, write = tmp_path / "run", write_tensors

    def fail(path, *args, **kwargs):
        if broken and path.name == lost:
            raise OSError("No space left on device")
        write(path, *args, **kwargs)

    broken, arguments = False, ["--checkpoint-every", "2"]
    monkeypatch.setattr("translator.run.write_tensors", fail)
    if steps == 4:
        assert train(folder, "--steps", "2", *arguments) == 0
    broken = True
    assert train(folder, "--steps", str(steps), *arguments) == 2
    broken = False
    assert train(folder, "--steps", str(steps), *arguments) == 0
    for file in (folder / "model.safetensors", folder / "checkpoints" / "state.safetensors"):
        notes = read_tensors(file)[1]
        assert notes.get("step", notes.get("progress", {}).get("step")) == steps


def test_a_loss_that_is_no_number_ends_the_training_before_it_is_saved(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "run"
    monkeypatch.setattr(tat.PositionwiseFeedForward, "forward", lambda self, x: x * math.nan)
    arguments = ["train", "--data", "captions", "--run", str(folder), *SMALL, "--minutes", "0.05"]
    assert "the gradients of the last 10 updates, up to 10, were not finite" in error_of(capsys, *arguments)
    monkeypatch.undo()
    monkeypatch.setattr(ParallelTrainer, "validate", lambda *_: math.nan)
    assert "the validation loss at update 1 is nan" in error_of(capsys, *arguments[:-2], "--steps", "1")
    assert not (folder / "model.safetensors").exists()


def test_a_run_that_lost_its_state_is_not_trained_over(run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    for name in ("state", "before"):
        (tmp_path / "run" / "checkpoints" / f"{name}.safetensors").unlink()
    arguments = ["train", "--data", "captions", "--run", str(tmp_path / "run"), *SMALL, "--steps", "40"]
    assert "is a model without the state of its training" in error_of(capsys, *arguments)


def test_a_finished_run_stays_as_it_is(run, capsys):
    """Even if its last update is not one of the regular checkpoints."""
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert train(run, "--steps", "30", "--checkpoint-every", "7") == 0
    printed = capsys.readouterr().out
    assert "de to en, 2,000 pairs to learn from, 100 held out" in printed
    assert "30 updates" in printed and "validation loss" in printed and "it had finished before" in printed
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


def test_words_and_epochs(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    for i, language in enumerate(("de", "en")):
        for split in ("train", "val"):
            text = "\n".join(pair[i] for pair in load_pairs("captions", split)[:200]) + "\n\n"
            (folder / f"{split}.{language}").write_text(text)
    arguments = [
        "--data",
        str(folder),
        "--run",
        str(tmp_path / "run"),
        "--words",
        "--epochs",
        "2",
        "--src",
        "en",
        "--tgt",
        "de",
    ]
    assert main(["train", *arguments, *[a for a in SMALL if a not in ("--bpe", "200")]]) == 0
    translator = read_translator(tmp_path / "run")
    assert translator.tokenizer.words and translator.languages == ("en", "de")
    assert read_log(tmp_path / "run")[-1]["epoch"] == 2


def test_translate_gives_one_line_for_each_line(run):
    """Whatever the lines hold: a byte-order mark, nothing, separators other than a line feed, special tokens, 300 words."""
    lines = [
        b"\xef\xbb\xbfEin Hund.",
        b"",
        b"  ",
        "a\u2028b\x0bc\x85d".encode(),
        b"</s> <pad>",
        b"Hund " * 300,
        "😀".encode(),
    ]
    done = subprocess.run(
        [sys.executable, ROOT / "the_annotated_transformer.py", "translate", "--model", run],
        input=b"\n".join(lines) + b"\n", capture_output=True, env=os.environ | {"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert done.returncode == 0
    assert re.fullmatch(rb"note: line 6 has 901 tokens, far more than a sentence; .*\n", done.stderr)
    out = done.stdout.decode("utf-8").split("\n")
    assert len(out) == len(lines) + 1 and out[-1] == ""
    assert out[1] == out[2] == ""
    assert out[0] == Search(read_translator(run), tat.BEAM).translate(["Ein Hund."])[0] != ""


def test_translate_reads_and_writes_files(run, tmp_path, capsys):
    """Plain or packed; catches output that also goes to the screen."""
    lines = ["Ein Hund.", "", "Eine Katze schläft."]
    (tmp_path / "in.txt").write_text("\n".join(lines), encoding="utf-8-sig")
    (tmp_path / "in.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    expected = Search(read_translator(run)).translate(lines)
    for name, out in (("in.txt", tmp_path / "out"), ("in.gz", tmp_path / "out.gz")):
        assert main(f"translate --input {tmp_path / name} --output {out} --model {run} --beam 1".split()) == 0
        content = gzip.decompress(out.read_bytes()) if out.suffix else out.read_bytes()
        assert content.decode().split("\n") == [*expected, ""]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_that_is_not_utf8_is_refused_with_its_line(run, tmp_path, capsys, encoding):
    """What came before it is translated."""
    bad = "Ein Käse.\n".encode(encoding)
    (tmp_path / "in").write_bytes(b"Ein Hund.\n\n" + bad)
    files = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert f"{tmp_path / 'in'}, line 3: not UTF-8" in error_of(capsys, "translate", *files, "--model", str(run))
    assert (tmp_path / "out").read_text().count("\n") == 2


def test_a_file_is_not_written_over_itself(run, tmp_path, capsys):
    (tmp_path / "in").write_text("Ein Hund.\n")
    (tmp_path / "link").symlink_to("in")
    arguments = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "link"), "--model", str(run)]
    assert "are one file" in error_of(capsys, "translate", *arguments)
    assert (tmp_path / "in").read_text() == "Ein Hund.\n"


def test_a_sentence_longer_than_a_file_name_is_translated(run, capsys):
    assert main(["translate", "Собака " * 40, "--model", str(run), "--beam", "1"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_a_file_given_as_a_sentence_is_pointed_out(run, tmp_path, capsys):
    (tmp_path / "in").write_text("Ein Hund.\n")
    assert main(["translate", str(tmp_path / "in"), "--model", str(run)]) == 0
    assert f"--input {tmp_path / 'in'} translates the lines of that file" in capsys.readouterr().err


class Pipe(io.RawIOBase):
    """A pipe in which these parts arrive one after the other; the next is asked for only when the last was read."""

    def __init__(self, *parts: bytes):
        self.parts, self.asked = [*parts], 0

    def read1(self, size: int) -> bytes:
        self.asked += 1
        return self.parts.pop(0) if self.parts else b""


def test_lines_are_answered_as_they_come():
    """Catches a program that waits for a full batch while its user waits for an answer, and a line that comes in parts."""
    pipe = Pipe(b"a\n", b"b\nc\nd", b"e\n", b"f")
    chunks = decoded_lines(pipe, "pipe")
    assert next(chunks) == ["a"] and pipe.asked == 1
    assert list(chunks) == [["b", "c"], ["de"], [], ["f"]]


def test_an_error_in_reading_comes_after_what_was_read():
    chunks = decoded_lines(Pipe(b"a\n\xff\nb\n"), "pipe")
    assert next(chunks) == ["a"]
    with pytest.raises(ValueError, match="pipe, line 2: not UTF-8"):
        next(chunks)


def test_a_program_that_waits_for_lines_answers_each(run):
    """Through pipes, as another program would use it."""
    program = [sys.executable, ROOT / "the_annotated_transformer.py", "translate", "--model", run, "--beam", "1"]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        stuck = threading.Timer(120, process.kill)
        stuck.start()
        for _ in range(2):
            process.stdin.write(b"Ein Hund.\n")
            process.stdin.flush()
            assert process.stdout.readline().endswith(b"\n")
        process.stdin.close()
        assert process.wait() == 0
        stuck.cancel()


def test_the_device_is_an_option(run, monkeypatch, capsys):
    """`meta` has no numbers, so a model that is moved there cannot translate; catches an option without effect."""
    monkeypatch.setenv("ANNOTATED_DEVICE", "meta")
    assert next(read_translator(run).model.parameters()).device.type == "meta"
    assert main(["translate", "Hund", "--model", str(run), "--device", "cpu"]) == 0
    assert "--device meta cannot be used here" in error_of(capsys, "translate", "Hund", "--device", "meta")


def test_translations_do_not_depend_on_their_neighbours(run):
    search, lines = Search(read_translator(run)), [pair[0] for pair in load_pairs("captions", "test")[:70]]
    search.batch_size = 32
    assert search.translate(lines) == [search.translate([line])[0] for line in lines]


def test_evaluate_reports_scores_with_signatures(run, capsys):
    assert main(["evaluate", "--model", str(run), "--data", "captions", "--split", "test", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["sentences"] == 100 and result["split"] == "test"
    assert "tok:13a" in result["bleu_signature"] and "case:mixed" in result["bleu_signature"]
    assert "tok:13a" in result["bleu_lower_signature"] and "case:lc" in result["bleu_lower_signature"]
    assert "tok:none" in result["bleu_moses_signature"] and "case:lc" in result["bleu_moses_signature"]
    assert main(["evaluate", "--model", str(run), "--data", "captions", "--split", "test"]) == 0
    printed = capsys.readouterr().out
    for name in ("bleu", "bleu_lower", "bleu_moses", "chrf"):
        assert f"{result[name]:.2f}  {result[name + '_signature']}" in printed
    assert f"{result['length']:.2f}" in printed.splitlines()[-1]
    assert printed.startswith(f"{run}, de to en; test: 100 sentences")


@pytest.mark.parametrize(
    ("options", "title", "called"),
    [
        ((), "beam 5, alpha 1.8", "fast_beam {'beam': 5, 'alpha': 1.8}"),
        (("--beam", "1"), "greedy", "fast_greedy {}"),
        (("--beam", "2", "--alpha", "1"), "beam 2, alpha 1.0", "fast_beam {'beam': 2, 'alpha': 1.0}"),
    ],
)
def test_the_search_of_the_command_line_is_the_one_asked_for(run, capsys, monkeypatch, options, title, called):
    """Catches an option that is read but not used."""
    asked = []

    def stand_in(name: str):
        def search(model, src, src_mask, max_len, **settings):
            asked.append(f"{name} {settings}")
            return torch.tensor([[tat.BOS, tat.EOS]] * len(src))

        return search

    for name in ("fast_greedy", "fast_beam"):
        monkeypatch.setattr(f"translator.search.{name}", stand_in(name))
    arguments = ["evaluate", "--model", str(run), "--data", "captions", "--split", "val", "--json", *options]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["search"] == title and set(asked) == {called}


def test_average_is_the_mean_of_the_last_checkpoints(run, tmp_path, capsys):
    out = tmp_path / "averaged"
    assert main(["average", str(run), "--last", "2", "--out", str(out)]) == 0
    captured, losses = capsys.readouterr(), []
    assert "000020 to 000030" in captured.out
    for folder in (out, run):
        translator = read_translator(folder)
        held_out = held_out_pairs(run, translator.tokenizer)
        losses.append(mean_loss(Objective(translator.model, eps=0.0), *held_out, torch.device("cpu")))
    assert f"validation loss {losses[0]:.3f}; the run's own model has {losses[1]:.3f}" in captured.out
    assert ("the average is worse" in captured.err) == (losses[0] > losses[1])
    assert losses[0] > losses[1]  # the loss of so short a run still falls fast
    found = weights_of(read_translator(out).model)
    parts = [read_tensors(run / "checkpoints" / f"0000{step}.safetensors")[0] for step in (20, 30)]
    for name, tensor in found.items():
        torch.testing.assert_close(tensor, (parts[0][name] + parts[1][name]) / 2)
    assert main(["translate", "Hund", "--model", str(out)]) == 0


def test_a_run_may_start_from_a_model(run, tmp_path):
    """With a rate of 0 it stays the same model: weights, vocabulary and moving average."""
    (tmp_path / "data").mkdir()
    for split in ("train", "val"):
        for i, language in enumerate(("de", "en")):
            lines = [pair[i].upper() + "\n" for pair in load_pairs("captions", "val")[:40]]
            (tmp_path / "data" / f"{split}.{language}").write_text("".join(lines), encoding="utf-8")
    new = tmp_path / "new"
    arguments = ["train", "--data", str(tmp_path / "data"), "--run", str(new), *SMALL[:-2], "--start-from", str(run)]
    assert main([*arguments, "--steps", "2", "--factor", "0"]) == 0
    before, after = (read_translator(path) for path in (run, new))
    assert (new / "tokenizer.json").read_text() == (run / "tokenizer.json").read_text()
    for a, b in zip(before.model.parameters(), after.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert main([*arguments, "--steps", "4", "--factor", "0"]) == 0  # continues
    assert [row["step"] for row in read_log(new) if "val_loss" in row] == [2, 4]


def test_a_run_may_start_from_what_the_document_saved(run, tmp_path):
    """Catches a setting that the document does not write and the program makes up."""
    tat.save_translator(tat.load_translator(run), tmp_path / "saved")
    arguments = ["--start-from", str(tmp_path / "saved"), "--steps", "2"]
    assert train(tmp_path / "new", *arguments) == 0
    assert (tmp_path / "new" / "tokenizer.json").is_file()


def test_a_run_that_goes_on_needs_its_start_no_more(run, tmp_path, monkeypatch):
    """Catches a run that reads the other model again, and a folder name that depends on the working directory."""
    start, folders = tmp_path / "start", [tmp_path / "once", tmp_path / "twice"]
    shutil.copytree(run, start)
    assert train(folders[0], "--start-from", str(start), "--steps", "4") == 0
    assert train(folders[1], "--start-from", str(start), "--steps", "2") == 0
    shutil.rmtree(start)
    monkeypatch.chdir(tmp_path)
    assert train(folders[1], "--start-from", "start", "--steps", "4") == 0
    once, twice = (read_translator(folder).model.parameters() for folder in folders)
    assert all(torch.equal(a, b) for a, b in zip(once, twice, strict=True))


def test_a_start_is_not_forgotten(run, tmp_path, capsys):
    """Catches a run that is interrupted before its first checkpoint and continues with random weights."""
    assert train(tmp_path / "new", "--start-from", str(run), "--steps", "1") == 0
    shutil.rmtree(tmp_path / "new" / "checkpoints")
    (tmp_path / "new" / "model.safetensors").unlink()
    capsys.readouterr()
    arguments = ["train", "--data", "captions", "--run", str(tmp_path / "new"), *SMALL, "--steps", "2"]
    assert f"new has start_from = {run.name}, not None" in error_of(capsys, *arguments)


def test_an_averaged_model_is_not_trained_over(run, tmp_path, capsys):
    """Catches a model that is mistaken for a new run and overwritten with fresh weights."""
    out = tmp_path / "averaged"
    assert main(["average", str(run), "--last", "2", "--out", str(out)]) == 0
    before = (out / "model.safetensors").read_bytes()
    capsys.readouterr()
    arguments = ["train", "--data", "captions", "--run", str(out), *SMALL, "--steps", "2"]
    assert "is a model without the state of its training" in error_of(capsys, *arguments)
    assert (out / "model.safetensors").read_bytes() == before


def test_checkpoints_of_two_runs_are_not_averaged(run, tmp_path):
    write_tensors(tmp_path / "other.safetensors", {"x": torch.ones(2)})
    with pytest.raises(ValueError, match="other.safetensors: other weights than in .*000030"):
        average_checkpoints([run / "checkpoints" / "000030.safetensors", tmp_path / "other.safetensors"])


def test_score_is_100_for_the_references_and_less_for_others():
    references = [pair[1] for pair in load_pairs("captions", "test")[:50]]
    assert score(references, references)["bleu"] > 99.9
    assert score([r.lower() for r in references], references)["bleu"] < 95  # cased
    assert score(references[::-1], references)["bleu"] < 50


def test_length_is_that_of_the_translations_by_that_of_the_references():
    scores = score(["a dog runs"] * 3, ["a dog runs here ."] * 3)
    assert scores["length"] == pytest.approx(3 / 5)
    assert score(["a dog"], [""])["length"] == 2  # does not divide by 0


def test_explain_writes_a_page_with_the_model(run, tmp_path, capsys):
    out = tmp_path / "page.html"
    assert main(["explain", "Ein </script> Hund.", "--model", str(run), "--out", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    content = json.loads(page.split('id="explorer-content">')[1].split("</script>")[0])
    assert content["sentence"] == "Ein </script> Hund." and content["model"]["config"]["N"] == 1
    assert len(content["model"]["vocab"]) == content["model"]["shapes"]["src_embed.embeddings.table.weight"][0]
    assert capsys.readouterr().out.splitlines()[::2] == ["Ein </script> Hund.", str(out)]


def test_explain_records_what_a_model_of_whole_words_does(run, tmp_path):
    """Words are cut by spaCy's rules, so the page cannot run that model: it has the weights of two translations instead."""
    words, out = tmp_path / "words", tmp_path / "page.html"
    small = [argument for argument in SMALL if argument not in ("--bpe", "200")]
    assert main(["train", "--data", "captions", "--run", str(words), "--steps", "2", "--words", *small]) == 0
    assert main(["explain", "Ein Hund läuft.", "--model", str(words), "--out", str(out)]) == 0
    content = json.loads(out.read_text(encoding="utf-8").split('id="explorer-content">')[1].split("</script>")[0])
    for data in content["recorded"].values():
        assert (
            data["source"][-1] == "</s>"
            and data["target"][0] == "<s>"
            and len(data["predicted"]) == len(data["target"])
        )
        S, T, shape = len(data["source"]), len(data["target"]), lambda kind, d=data: torch.tensor(d["maps"][kind]).shape
        assert shape("encoder") == (1, 2, S, S) and shape("decoder") == (1, 2, T, T) and shape("cross") == (1, 2, T, S)
        assert len(data["steps"]) == T


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "train --data captions --run {tmp}/r --preset huge",
            'Invalid value "huge" for --preset. Choose from: "tiny", "small", "base", "big".',
        ),
        ("train --data captions --run {tmp}/r --beans 3", "Unknown option: --beans"),
        ("train --data captions --run {tmp}/r --smothing 0.2", "Unknown option: --smothing. Did you mean --smoothing?"),
        ("train --data captions --run {tmp}/r --lr 3", "Unknown option: --lr. Did you mean --factor?"),
        ("train --data captions --run {tmp}/r --dropo 3", "Unknown option: --dropo. Did you mean --dropout?"),
        (
            "train --data {tmp}/file --run {tmp}/r",
            "a file; --data takes a folder with train.de, train.en, val.de, val.en",
        ),
        (
            "train --data {tmp} --run {tmp}/r",
            "val.de: no such file, and no val.de.gz beside it; the folder holds file, r; the endings are the languages, as --src",
        ),
        ("train --data {tmp} --run {tmp}", "--run is the folder of the data"),
        ("train --data captions --run {tmp}/r --src en", "--src and --tgt are both en"),
        ("evaluate --data captions", "error: --split is missing"),
        ("evaluate --data captions --split", "error: --split needs a value"),
        ("help", "--help lists them"),
        ("train --data captions --run {tmp}/r --step 3", "Unknown option: --step. Did you mean --steps?"),
        ("train --data captions --run {tmp}/r --n 3", "Unknown option: --n. Did you mean --N?"),
        (
            "train --data captions --run {tmp}/r --start-form x",
            "Unknown option: --start-form. Did you mean --start-from?",
        ),
        ("train --data captions --run {tmp}/r --d-model 30 --h 4", "d_model must be a multiple of h"),
        (
            "train --data captions --run {tmp}/r --positions rotary --d-model 36 --h 4",
            "the width of a head has to be even",
        ),
        ("train --data captions --run {tmp}/r --d-model many", "'many' is not a whole number"),
        ("train --data captions --run {tmp}/r --dropout 1.5", 'Invalid value "1.5" for --dropout. Must be < 1.'),
        (
            "train --data captions --run {tmp}/r --norm none",
            'Invalid value "none" for --norm. Choose from: "post", "pre".',
        ),
        (
            "train --data captions --run {tmp}/r --positions none",
            'for --positions. Choose from: "sinusoidal", "learned", "rotary".',
        ),
        ("train --data captions --run {tmp}/r --minutes -1", 'Invalid value "-1.0" for --minutes. Must be > 0.'),
        ("train --data captions --run {tmp}/r --minutes soon", "--minutes"),
        ("train --data captions --run {tmp}/r --steps 0", 'Invalid value "0" for --steps. Must be >= 1.'),
        ("train --data captions --run {tmp}/r --checkpoint-every 0", "for --checkpoint-every. Must be >= 1."),
        (
            "train --data captions --run {tmp}/r --tokens-per-batch 3 --steps 1",
            "--tokens-per-batch is 3, but the longest sentence has",
        ),
        ("train --data captions --run {tmp}/r --src fr", "captions has the splits"),
        ("train --data {tmp}/nowhere --run {tmp}/r", "nowhere: no such folder with"),
        ("train --data captions --run {tmp}/file/r", "file/r"),
        ("train --data captions --run {tmp}/r --words --bpe 70", "--words and --bpe exclude each other"),
        ("train --data captions --run {tmp}/r --start-from {tmp}/nowhere", "nowhere/config.json: no such file"),
        ("train --data captions --run {tmp}/r --start-from {run}", "N = 1, not 4; the new run needs the same"),
        (
            " ".join(["train --data captions --run {tmp}/r", *SMALL, "--start-from {run} --norm post"]),
            "norm = pre, not post",
        ),
        (
            " ".join(["train --data captions --run {tmp}/r", *SMALL, "--steps 1 --start-from {run} --src en --tgt de"]),
            "src = de, not en",
        ),
        ("translate Hund --input {tmp}/file", "give sentences or --input, not both"),
        ("translate --input {tmp}/nowhere --model {run}", "nowhere"),
        ("translate Hund --model {run} --device cuda:77", "--device cuda:77 cannot be used here"),
        ("train --data captions --run {tmp}/r --device none", "--device none cannot be used here"),
        ("train --data captions --run {tmp}/r --patience 0", "for --patience. Must be >= 1."),
        ("train --data captions --run {tmp}/r --seed -1", "for --seed. Must be >= 0."),
        ("translate Hund --model {tmp}/file", "a file, not the folder of a run or a model"),
        ("train --run {tmp}/r", "--data is missing"),
        ("translate Hund --model {tmp}/nowhere", "nowhere/config.json: no such file"),
        ("evaluate --data captions --split tset --model {run}", "captions has the splits train, val, test"),
        ("evaluate --data {tmp} --split test --model {run}", "test.de: no such file"),
        (
            "explain Hund --model {run} --out {tmp}/no/such/folder.html",
            "no/such/folder.html: its folder does not exist",
        ),
        ("explain Hund --model {run} --out {tmp}", "this is a folder"),
        ("explain   --model {run} --out {tmp}/x.html", "sentence"),
        (
            "train --data captions --run {tmp}/x --optimizer sgd",
            'Invalid value "sgd" for --optimizer. Choose from: "adam", "muon".',
        ),
        ("translate Hund --model {run} --beam 0", "--beam must be at least 1 and at most 1000"),
        ("evaluate --data captions --split val --model {run} --alpha -1", "--alpha must be at least 0"),
        ("average {run} --last 0 --out {tmp}/r", "--last must be at least 1"),
        ("average {run} --last 9 --out {tmp}/r", "--last asks for 9 checkpoints, but"),
        ("average {tmp}/nowhere --out {tmp}/r", "nowhere/config.json: no such file"),
        ("average {run} --last 2 --out {run}", "exists already"),
        ("train --data captions --run {tmp}/r --bpe-dropout 1", "Unknown option: --bpe-dropout"),
        ("train --data captions --run {tmp}/r --d-model 64.5", "'64.5' is not a whole number"),
        ("train --data captions --run {tmp}/r --bpe 1e3", "'1e3' is not a whole number"),
        ("train --data captions --run {tmp}/r --steps 2.7", "'2.7' is not a whole number"),
        ("translate Hund --model {run} --beam 2.5", "'2.5' is not a whole number"),
        ("average {run} --last 1.5 --out {tmp}/r", "'1.5' is not a whole number"),
        ("fly", "fly"),
    ],
)
def test_bad_input_is_one_line(capsys, tmp_path, run, arguments, message):
    (tmp_path / "file").write_text("")
    words = [word.format(tmp=tmp_path, run=run) for word in arguments.split()]
    assert message in error_of(capsys, *words)
    assert not (tmp_path / "r").exists()


def test_translate_without_a_model_says_how_to_get_one(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("translator.model_folder.__file__", str(tmp_path / "translator" / "weights.py"))
    command = "python the_annotated_transformer.py train --data multi30k --preset tiny --run runs/tiny"
    assert command in error_of(capsys, "translate", "Hund")


def test_a_run_of_another_kind_is_left_alone(capsys, run):
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    arguments = ["train", "--data", "captions", "--run", str(run), *SMALL, "--steps", "40", "--norm", "post"]
    assert "norm = pre, not post" in error_of(capsys, *arguments)
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


def test_a_run_of_an_earlier_version_goes_on(run, tmp_path):
    """Catches a new setting that older runs lack, so that they could not continue."""
    older = tmp_path / "older"
    shutil.copytree(run, older)
    about = json.loads((older / "config.json").read_text())
    del about["settings"]["inner_dropout"], about["settings"]["d_k"]
    about["settings"] |= {"r_drop": 0.0, "r_drop_after": 0, "bpe_dropout": 0.0, "dropout_after": 0}
    (older / "config.json").write_text(json.dumps(about))
    (older / "SHA256SUMS").unlink()
    assert train(older, "--steps", "31", "--checkpoint-every", "10") == 0
    assert "config.json" in (older / "SHA256SUMS").read_text()


def test_a_run_that_used_what_is_gone_translates_and_does_not_go_on(run, tmp_path, capsys):
    older = tmp_path / "older"
    shutil.copytree(run, older)
    about = json.loads((older / "config.json").read_text())
    about["settings"]["r_drop"] = 5.0
    (older / "config.json").write_text(json.dumps(about))
    (older / "SHA256SUMS").unlink()
    assert main(["translate", "Hund", "--model", str(older)]) == 0
    capsys.readouterr()
    arguments = ["train", "--data", "captions", "--run", str(older), *SMALL, "--steps", "40"]
    assert "was trained with r_drop = 5.0, which this version cannot go on with" in error_of(capsys, *arguments)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("model.safetensors", lambda b: b[: len(b) // 2], "model.safetensors: not a safetensors file that a run wrote"),
        ("model.safetensors", lambda b: b"nonsense", "model.safetensors: not a safetensors file that a run wrote"),
        ("model.safetensors", None, "model.safetensors: no such file"),
        ("tokenizer.json", lambda b: b"{}", "tokenizer.json: not a tokenizer"),
        ("tokenizer.json", lambda b: b[:100], "tokenizer.json: not JSON"),
        ("config.json", lambda b: b'{"settings": {"color": 3}}', "config.json: not the configuration of a model"),
        ("config.json", lambda b: b"[]", "config.json: not a JSON object"),
        ("config.json", lambda b: b.replace(b'"vocab": ', b'"vocab": 1'), "tokenizer.json"),
        (
            "config.json",
            lambda b: b.replace(b'"d_ff": 32', b'"d_ff": 64'),
            "has shape (32, 32), but the model needs (64, 32)",
        ),
        ("config.json", lambda b: b.replace(b'"N": 1', b'"N": 2'), "not weights of this model"),
    ],
)
def test_a_damaged_or_foreign_model_is_refused(capsys, run, tmp_path, name, damage, message):
    shutil.copytree(run, tmp_path / "m")
    (tmp_path / "m" / "SHA256SUMS").unlink()  # as of a model from elsewhere
    path = tmp_path / "m" / name
    path.write_bytes(damage(path.read_bytes())) if damage else path.unlink()
    assert message in error_of(capsys, "translate", "Hund", "--model", str(tmp_path / "m"))


@pytest.mark.parametrize("damage", [lambda b: b[:1000], lambda b: b.replace(b"exp_avg_sq.", b"exp_avg_xx.")])
def test_a_damaged_state_is_refused_and_nothing_is_lost(capsys, run, tmp_path, damage):
    shutil.copytree(run, tmp_path / "m")
    for name in ("state", "before"):
        state = tmp_path / "m" / "checkpoints" / f"{name}.safetensors"
        state.write_bytes(damage(state.read_bytes()))
    before = (tmp_path / "m" / "log.jsonl").read_bytes()
    arguments = ["train", "--data", "captions", "--run", str(tmp_path / "m"), *SMALL, "--steps", "40"]
    assert main(arguments) == 2
    note, error, _ = capsys.readouterr().err.split("\n")
    assert note.startswith("note: ") and "state.safetensors" in note
    assert error.startswith("error: ") and "before.safetensors" in error
    assert (tmp_path / "m" / "log.jsonl").read_bytes() == before


def test_a_folder_of_something_else_is_left_alone(capsys, tmp_path):
    (tmp_path / "model.safetensors").write_text("mine")
    assert "holds model.safetensors but no config.json" in error_of(
        capsys, "train", "--data", "captions", "--run", str(tmp_path), *SMALL, "--steps", "1"
    )
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_data_without_a_full_pair_and_languages_without_rules_are_refused(capsys, tmp_path):
    for split, english in (("train", "\ndog\n"), ("val", "dog\n\n")):
        (tmp_path / f"{split}.de").write_text("Hund\n\n")
        (tmp_path / f"{split}.xx").write_text(english)
    arguments = ["train", "--data", str(tmp_path), "--run", str(tmp_path / "r"), "--steps", "1", "--tgt", "xx"]
    assert "no line of train has text in both de and xx" in error_of(capsys, *arguments)
    for split in ("train", "val"):
        (tmp_path / f"{split}.xx").write_text("dog\n\n")
        (tmp_path / f"{split}.xx").rename(tmp_path / f"{split}.klingon")
    arguments = [argument.replace("xx", "klingon") for argument in arguments]
    assert "no rules for the language 'klingon'" in error_of(capsys, *arguments, "--words")


def test_a_changed_attention_is_what_is_trained(tmp_path, monkeypatch):
    """Catches code that goes on computing the formula which a reader has just changed."""
    assert train(tmp_path / "paper", "--steps", "2") == 0
    known = tat.attention

    def sharper(query, key, value, *rest):
        return known(7 * query, key, value, *rest)

    monkeypatch.setattr(tat, "attention", sharper)
    assert train(tmp_path / "changed", "--steps", "2") == 0
    paper, changed = (read_tensors(tmp_path / name / "model.safetensors")[0] for name in ("paper", "changed"))
    assert any(not torch.equal(paper[name], changed[name]) for name in paper)
    layer = read_translator(tmp_path / "changed").model.encoder.layers[0].self_attn
    x = torch.randn(1, 4, 32)
    expected, _ = sharper(*(tat.split_heads(W(x), 2) for W in (layer.W_q, layer.W_k, layer.W_v)))
    torch.testing.assert_close(layer(x, x, x), layer.W_o(expected.transpose(1, 2).flatten(2)))


def test_a_reader_that_has_enough_is_no_error(run):
    """As with `| head -1`: one line arrives, the status is 0, and nothing is said."""
    program = [sys.executable, ROOT / "the_annotated_transformer.py", "translate", "--model", run, "--beam", "1"]
    lines = "Ein Hund.\n" * 3000
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        process.stdout.close()
        _, error = process.communicate(lines)
    assert process.returncode == 0 and error == ""


def test_a_model_that_cannot_translate_says_so_before_it_is_trained(tmp_path, monkeypatch, capsys):
    forward = tat.DecoderLayer.forward
    monkeypatch.setattr(tat.DecoderLayer, "forward", lambda self, *inputs: 2 * forward(self, *inputs))
    assert train(tmp_path / "run", "--steps", "1") == 0
    assert "can be trained, but not yet translate" in capsys.readouterr().err


def test_a_run_ended_by_its_minutes_is_finished(tmp_path, monkeypatch):
    """Even if its last checkpoint used up the remaining time."""
    now = iter(range(10**6))
    monkeypatch.setattr("time.monotonic", lambda: next(now) * 3.0)  # each look at the clock takes three seconds
    counts = []
    for _ in range(3):
        assert train(tmp_path / "r", "--minutes", "1", "--checkpoint-every", "5") == 0
        counts.append(read_tensors(tmp_path / "r" / "checkpoints" / "state.safetensors")[1]["progress"]["step"])
    assert counts[0] == counts[1] == counts[2]


def test_files_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")

    def crash(temporary: Path) -> None:
        temporary.write_text("half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write_atomically(path, crash)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_file_takes_no_devices_place(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match="no regular file"):
            write_atomically(tmp_path / name, lambda path: path.write_text("x"))
    assert (tmp_path / "pipe").is_fifo() and (tmp_path / "link").is_symlink()


def test_a_refused_run_leaves_only_what_was_there(tmp_path):
    for name in ("notes.txt", "tokens/mine.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert main(["train", "--data", "captions", "--run", str(tmp_path), "--tokens-per-batch", "3"]) == 2
    assert {path.name for path in tmp_path.rglob("*")} == {"notes.txt", "tokens", "mine.txt"}
    assert main(["train", "--data", "captions", "--run", str(tmp_path / "new" / "run"), "--tokens-per-batch", "3"]) == 2
    assert not (tmp_path / "new").exists()


def test_an_argument_that_is_not_utf8_is_translated(run, tmp_path, capsys):
    """Catches a traceback for bytes that the shell passes on."""
    assert main(["translate", "Ein K\udce4se", "--model", str(run)]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert main(["explain", "Ein K\udce4se", "--model", str(run), "--out", str(tmp_path / "page.html")]) == 0


def test_a_run_goes_on_without_its_data(tmp_path, capsys):
    """The run keeps its tokens, so moving or changing the corpus does not affect it."""
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "val"):
        for i, language in enumerate(("de", "en")):
            text = "\n".join(pair[i] for pair in load_pairs("captions", split)[:100])
            (data / f"{split}.{language}").write_text(text, encoding="utf-8")
    arguments = f"train --data {data} --run {tmp_path / 'r'} --bpe 50 --tokens-per-batch 400 --N 1 --d-model 8 --d-ff 8"
    assert main([*arguments.split(), "--steps", "2"]) == 0
    data.rename(tmp_path / "elsewhere")
    assert main([*arguments.split(), "--steps", "4"]) == 0
    assert "4 updates" in capsys.readouterr().out


def test_lost_tokens_are_made_again(tmp_path):
    arguments = f"train --data captions --run {tmp_path / 'r'} --bpe 50 --N 1 --d-model 8 --d-ff 8 --h 1"
    assert main([*arguments.split(), "--steps", "1"]) == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "r" / "tokens").iterdir()}
    shutil.rmtree(tmp_path / "r" / "tokens")
    assert main([*arguments.split(), "--steps", "1"]) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "r" / "tokens").iterdir()} == before


def test_tokens_of_a_start_that_was_interrupted_are_replaced(tmp_path):
    """Catches ids of an older vocabulary that a new one would read as other words."""
    tokens = tmp_path / "r" / "tokens"
    tokens.mkdir(parents=True)
    for split in ("train", "val"):
        (tokens / f"{split}.ids").write_bytes(bytes(8))
        (tokens / f"{split}.starts").write_bytes(bytes(24))
    arguments = f"train --data captions --run {tmp_path / 'r'} --bpe 50 --N 1 --d-model 8 --d-ff 8 --h 1 --steps 1"
    assert main(arguments.split()) == 0
    assert len(TokenStore(tokens / "train.ids", 100)) == 2_000


def test_the_lab_notebooks_table_of_presets_is_the_programs():
    text = (ROOT / "lab_notebook.py").read_text(encoding="utf-8")
    rows = re.findall(r"# > \| `(\w+)`.*? \| (\d) \+ (\d) \| (\d+) \| (\d+) \| (\d+) \|", text)
    shown = {name: tuple(map(int, sizes)) for name, *sizes in rows}
    assert shown == {name: (p.N, p.N, p.d_model, p.d_ff, p.h) for name, p in PRESETS.items()}


def test_a_run_shorter_than_its_warmup_says_so(tmp_path, capsys):
    assert train(tmp_path / "run", "--steps", "5") == 0
    assert "that is less than the warmup of 20 updates" in capsys.readouterr().out
