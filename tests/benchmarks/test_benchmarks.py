"""The benchmarks run, and the README quotes nothing but their saved rows."""

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

import the_annotated_transformer as tat
from benchmarks import __main__ as door
from benchmarks import gains, peers, step_profile, time_to_quality
from translator import search
from translator.__main__ import export, main, train
from translator.settings import Settings
from translator.sources import load_pairs

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def rows(name: str) -> list[dict]:
    """The saved rows of a benchmark."""
    return [json.loads(line) for line in (RESULTS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def test_the_door_lists_every_benchmark(capsys):
    """Catches a module that is not listed, one without help, and options that its signature does not have."""
    modules = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    helpers = {"__main__", "shared", "compare_child", "decoding_ctranslate2"}
    assert modules - helpers == set(door.NAMES) and door.main([]) == 0
    listed = capsys.readouterr().out
    for name in door.NAMES:
        assert re.search(rf"│ {name} +\w", listed) and door.main([name, "--help"]) == 0
        shown = capsys.readouterr().out
        assert ("--out" in shown) == (name != "closest") and f"benchmarks {name}" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["layer"], 'Unknown command "layer". Did you mean "layers"?'),
        (["layers", "--wdth", "8"], "Unknown option: --wdth. Did you mean --width?"),
        (["layers", "--width", "9"], "--width must be a multiple of 8, but it is 9"),
        (["layers", "--rounds", "0"], "--rounds"),
        (["quality", "--data", "captions"], "model is missing"),
        (["gains", "--preset", "huge"], "--preset"),
        (["peers", "--data", "captions", "--N", "1", "--d-model", "10", "--h", "3"], "10"),
        (["closest", "README.md", "--out", "rows.jsonl"], "--out"),
        (["layers", "--out", "."], "--out . cannot be written"),
        (["compare", "models"], "models is no checkout"),
    ],
)
def test_a_wrong_command_is_one_line(arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert door.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and message in error and error.count("\n") == 1


def test_the_benchmark_of_peers_writes_a_row_without_paths_of_the_machine(tmp_path):
    settings = ["--presets", "tiny", "--rounds", "1", "--seconds", "0", "--bpe", "300", "--tokens-per-batch", "300"]
    row = benchmark("peers", tmp_path / "rows.jsonl", "--data", captions(tmp_path), *settings)
    assert row["preset"] == "tiny" and row["tokens_per_second"]["nn.Transformer"]["median"] > 0
    assert row["ratio_to_peers"].keys() == row["tokens_per_second"].keys() - {"this"} and row["bpe"] == 300
    assert str(tmp_path) not in json.dumps(row)


def test_marian_is_given_the_same_tokens_and_its_report_is_read(tmp_path):
    """Catches updates of the warm-up that count, numbers with commas that are cut, and tokens under other numbers."""
    tokenizer = tat.learn_bpe([("ein Hund", "a dog")], 5)
    pair = tat.Pair(
        [*tokenizer.encode("ein Hund", "de"), tat.EOS], [tat.BOS, *tokenizer.encode("a dog", "en"), tat.EOS]
    )
    command = peers.marian_itself(tokenizer, [pair], Settings(tokens_per_batch=700, dropout=0.2), tmp_path)
    texts = [(tmp_path / side).read_text("utf-8").replace(" ", "").replace("▁", " ").strip() for side in ("src", "tgt")]
    assert texts == ["ein Hund", "a dog"]
    numbers = dict(line.rsplit(": ", 1) for line in (tmp_path / "vocab.yml").read_text("utf-8").splitlines())
    assert len(numbers) == len(tokenizer) and numbers['"</s>"'] == "0" and numbers['"<unk>"'] == "1"
    assert command[command.index("--transformer-dropout") + 1] == "0.2" and "700" in command
    report = "[now] Ep. 1 : Up. {} : Sen. 9 : Cost 9.1 * {:,} @ 12 after 99,999 : Time {}s : 3.21 words/s : gNorm 2.0"
    lines = [
        report.format(i, tokens, seconds)
        for i, (tokens, seconds) in enumerate([(1, 9), (1, 9), (4000, 1.5), (2000, 0.5)])
    ]
    program = [
        sys.executable,
        "-c",
        f"import sys; assert sys.argv[-1] == '4'; print({chr(10).join(lines)!r}, file=sys.stderr)",
    ]
    assert peers.marian_speed(program, tmp_path, 2) == (6000 / 2, 6000 / 2)


def benchmark(name: str, out: Path, *arguments: str | Path) -> dict:
    """The row that a benchmark writes, with one thread in every process that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("OMP_NUM_THREADS", "1")
        assert door.main([name, *map(str, arguments), "--out", str(out)]) == 0
    return json.loads(out.read_text(encoding="utf-8"))


def test_the_benchmark_of_decoding_measures_every_side_that_is_installed(trained, tmp_path):
    settings = ["--data", "captions", "--split", "test", "--sentences", "2", "--rounds", "1", "--model", trained]
    row = benchmark("decoding_speed", tmp_path / "rows.jsonl", *settings)
    speeds = row["sentences_per_second"]
    assert {"this", "CTranslate2"} <= speeds["split"].keys() and speeds["beam"].keys() == speeds["split"].keys()
    assert all(speed > 0 for task in speeds.values() for speed in task.values())
    assert str(trained) not in json.dumps(row)


def test_the_benchmark_of_scale_measures_every_size(tmp_path):
    found = benchmark("scale", tmp_path / "rows.jsonl", "--pairs", "3000", "--updates", "2")["pairs"]["3000"]
    assert found["resident_mb"] > 100 and 0 < found["first_update_seconds"] <= found["seconds"]  # rounded


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run of one update of a model as small as can be."""
    run = tmp_path_factory.mktemp("runs") / "run"
    sizes = ["--N", "1", "--d-model", "16", "--d-ff", "16", "--h", "1", "--bpe", "100"]
    assert main(["train", "--data", "captions", "--run", str(run), "--steps", "1", *sizes]) == 0
    return run


def test_the_benchmark_of_gains_measures_every_idea(trained, tmp_path):
    settings = [
        "--data",
        "captions",
        "--rounds",
        "1",
        "--sentences",
        "8",
        "--tokens-per-batch",
        "300",
        "--model",
        trained,
    ]
    row = benchmark("gains", tmp_path / "rows.jsonl", *settings)
    assert [len(row[task]) for task in ("training", "decoding", "beam")] == [5, 4, 4]
    assert all(ratio > 0 for task in ("training", "decoding", "beam") for ratio in row[task].values())


def test_the_profile_accounts_for_the_whole_step(tmp_path):
    row = benchmark("step_profile", tmp_path / "rows.jsonl", "--presets", "tiny", "--tokens", "300", "--times", "1")
    assert 0 < row["training_share_of_matmul"] < 1
    for what in ("training", "decoding"):
        assert min(row[what].values()) >= 0 and row[what]["matrix products"] > 0.05  # negative: time counted twice
    found = step_profile.shares(lambda: time.sleep(0.2) or torch.ones(50, 50) @ torch.ones(50, 50))
    assert found["Python and the rest"] > 0.9  # time between operations counts


@pytest.mark.parametrize("decoder", [gains.UncachedDecoder, gains.StayingDecoder])
@pytest.mark.parametrize("beam", [1, 3])
def test_the_plain_forms_of_decoding_find_the_same(decoder, beam, monkeypatch):
    """Catches rows that get each other's prefixes, keys or sources when sentences leave and beams change places."""
    torch.manual_seed(1)
    model = tat.make_model(13, 6, 2, 16, 24, 4, dropout=0.0, norm="pre").double().eval()
    for p in model.parameters():
        p.data.mul_(3 if p.dim() > 1 else 1)  # so that sentences end at different steps
    src = tat.pad_rows([torch.randint(4, 13, (n % 8 + 1,)).tolist() + [tat.EOS] for n in range(20)])
    find = search.fast_greedy if beam == 1 else lambda *given: search.fast_beam(*given, beam=beam)
    expected, made = find(model, src, tat.source_mask(src), 12), []

    def make(*given):
        made.append(decoder(*given))
        return made[-1]

    monkeypatch.setattr(search, "StepwiseDecoder", make)
    assert torch.equal(find(model, src, tat.source_mask(src), 12), expected) and len(made) == 1
    assert len({row.index(tat.EOS) if tat.EOS in row else 12 for row in expected.tolist()}) > 3


def test_the_profile_knows_products_in_place():
    assert step_profile.kind_of("aten::addmm_") == "matrix products"
    assert step_profile.kind_of("aten::matmul") != "elementwise"


SMALLEST = {"N": 1, "d_model": 16, "d_ff": 16, "h": 1, "bpe": 100}


def test_time_to_quality_scores_the_run_as_it_goes(tmp_path, monkeypatch):
    """Catches scores of another budget, a run that begins anew, and rows that are written twice. A minute is an update here."""

    def in_updates(limits, **options):
        train(limits=replace(limits, minutes=None, steps=round(limits.minutes)), **options)

    monkeypatch.setattr(time_to_quality, "train", in_updates)
    arguments = [str(tmp_path / "run"), "--data", str(captions(tmp_path)), "--out", str(tmp_path / "rows.jsonl")]
    arguments += [f"--{name.replace('_', '-')}={value}" for name, value in SMALLEST.items()]
    for until in ("2", "4"):
        assert door.main(["time_to_quality", *arguments, "--every", "2", "--until", until]) == 0
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [(row["budget"], row["step"]) for row in rows] == [(2, 2), (4, 4)] and rows[0]["preset"] == "tiny"
    assert rows[0]["settings"]["d_ff"] == 16 and rows[0]["split"] == "val" and rows[0]["search"] == "greedy"


@pytest.mark.parametrize("search", ["greedy", "beam 2, alpha 0.5"])
def test_the_row_of_a_model_is_that_of_evaluate(search, trained, tmp_path, capsys):
    out, options = tmp_path / "rows.jsonl", ["--beam", "1"] if search == "greedy" else ["--beam", "2", "--alpha", "0.5"]
    common = ["--data", "captions", "--split", "val", *options]
    assert door.main(["quality", str(trained), *common, "--command", "python x", "--out", str(out)]) == 0
    row = json.loads(out.read_text())
    capsys.readouterr()
    assert main(["evaluate", "--model", str(trained), *common, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert row["search"] == search and row["step"] == 1 and row["command"] == "python x"
    assert {key: row[key] for key in ("bleu", "bleu_signature", "chrf")} == {
        key: found[key] for key in ("bleu", "bleu_signature", "chrf")
    }


def test_a_model_without_a_log_gets_no_row(trained, tmp_path, capsys):
    """Catches a row without minutes, which every reader of the file would stumble over."""
    model, out = tmp_path / "model", tmp_path / "rows.jsonl"
    export(out=model, to="half", model=trained)
    arguments = ["quality", str(model), "--data", "captions", "--split", "val", "--command", "python x"]
    arguments += ["--out", str(out)]
    assert door.main(arguments) == 2 and not out.exists()
    assert "--run names the run" in capsys.readouterr().err
    assert door.main([*arguments, "--run", str(trained)]) == 0 and out.exists()


def captions(folder: Path) -> Path:
    """A folder of few captions."""
    for split in ("train", "val"):
        for i, language in enumerate(("de", "en")):
            text = "\n".join(pair[i] for pair in load_pairs("captions", split)[:40])
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


def test_the_closest_translation_is_chosen_line_by_line(tmp_path, capsys):
    texts = {
        "reference": "Ein Hund läuft durch den Schnee.\nZwei Frauen lesen ein Buch.\n",
        "one": "Ein Hund rennt im Schnee.\nZwei Frauen lesen ein Buch.\n",
        "two": "Ein Hund läuft durch Schnee.\nZwei Damen lesen.\n",
        "short": "Ein Hund.\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    def chosen(*names):
        status = door.main(["closest", *(str(tmp_path / name) for name in names)])
        return status, capsys.readouterr()

    status, found = chosen("reference", "one", "two")
    assert status == 0 and found.out == "Ein Hund läuft durch Schnee.\nZwei Frauen lesen ein Buch.\n"
    for names in (("reference", "short"), ("reference", "none")):
        status, failed = chosen(*names)
        assert status == 2 and failed.err.startswith("error: ") and not failed.out


def test_saved_rows_say_where_they_come_from():
    for name in {path.stem for path in RESULTS.glob("*.jsonl")} - {
        "paper",
        "test_sets",
    }:  # those are others' measurements
        for row in rows(name):
            assert row["command"].startswith(("python ", "torchrun ")) and re.fullmatch(r"[0-9a-f]{7,}", row["commit"])
            assert row["machine"]["cores"] and row["date"]
    assert all("tok:13a" in row["bleu_signature"] for row in (*rows("quality"), *rows("test_sets")))
    assert all(row["source"].startswith("Vaswani et al., 2017") for row in rows("paper"))


def test_the_readme_quotes_saved_rows():
    """Every figure of ours in its comparison, and the program's sentence on large corpora, are those of saved rows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    compared = readme.split("## How it compares")[1].split("\n## ")[0]
    ours = [line for line in compared.splitlines() if line.startswith(("| this edition", "| its ", "| the preset"))]
    assert len(ours) == 10
    scored = [row for row in rows("quality") if row["split"] == "test_2016_flickr"]
    known = {f"{row[kind]:.2f}" for row in scored for kind in ("bleu", "bleu_moses") if kind in row}
    known |= {f"{row['parameters'] / 1e6:.1f}" for row in scored}
    known |= {f"{row['bleu']:.2f}" for row in rows("test_sets") if row["search"] != "greedy"}
    for direction, kind in (("de-en", "bleu"), ("en-de", "bleu_moses")):
        for name, words in (("base", "on the 29,000 pairs alone"), ("rotary", "the same with `--positions rotary`")):
            alike = [row for row in rows("first_stage") if (row["direction"], row["variant"]) == (direction, name)]
            figures = [f"{row['test_2016_flickr']['beam'][kind]:.2f}" for row in alike]
            line = next(line for line in ours if words in line and figures[0] in line)
            assert f"| {', '.join(figures)} |" in line
            known |= set(figures)
    seeds = [
        row["bleu"]
        for row in scored
        if (row["direction"], row["step"], row["preset"]) == ("de-en", 3400, "tiny") and "beam" in row["search"]
    ]
    best = next(
        row["bleu"] for row in scored if row.get("model") == "multi30k-de-en-rotary" and "beam" in row["search"]
    )
    assert f"`--model models/multi30k-de-en-rotary`, has {best:.1f} (one seed)" in readme
    assert len(seeds) == 3 and f"{sum(seeds) / 3:.1f} BLEU on Multi30k, German to English (mean of" in readme
    training = [row for row in rows("training_speed") if row["preset"] == "tiny"]
    assert f"{training[-1]['ratio_of_pairs']:.1f} times as many sentence pairs" in " ".join(compared.split())
    peers = [row for row in rows("peers") if row["preset"] == "tiny"][-1]
    speeds = {who: speed["median"] for who, speed in peers["tokens_per_second"].items()}
    for who, words in (("nn.Transformer", "as many tokens"), ("Marian", "Hugging Face"), ("JoeyNMT", "JoeyNMT")):
        assert f"{speeds['this'] / speeds[who]:.1f} times {words}" in " ".join(compared.split())
    assert f"a factor of {speeds['this'] / speeds['Marian itself']:.1f}" in compared
    tested = [row for row in rows("bootstrap") if row["split"] == "test_2016_flickr"]
    known |= {f"{(row['b']['interval'][1] - row['b']['interval'][0]) / 2:.1f}" for row in tested}
    for line in ours:
        figures = re.findall(
            r"(?<![\w.-])\d[\d,]*\.?\d*", re.sub(r"29,000 pairs|beam 5|2 cores|13a|`[^`]*`|`tiny`", "", line)
        )
        figures = [figure.rstrip(",") for figure in figures if figure != "1"]
        assert figures and set(figures) <= known, (line, figures)
    program = (ROOT / "translator" / "README.md").read_text(encoding="utf-8")
    for pairs, found in rows("scale")[-1]["pairs"].items():
        if int(pairs) > 1_000_000:
            assert f"{int(pairs):,} pairs" in program and f"{found['first_update_seconds']:.1f} seconds" in program


def test_a_checkout_is_compared_with_itself(tmp_path):
    """Catches a side that imports the other's code, and a task that is left out."""
    row = benchmark("compare", tmp_path / "rows.jsonl", ROOT, "--data", captions(tmp_path), "--rounds", "1")
    tasks = [found for name, found in row.items() if name.startswith(("training", "translation"))]
    assert len(tasks) == 4 and all(min(found.values()) > 0 for found in tasks)
    assert row["other"] == row["commit"] and str(tmp_path) not in json.dumps(row)


def test_a_peer_drops_out_where_the_paper_does():
    """On the sum of embeddings and positions, and on each sublayer's output; on nothing else."""
    model = peers.TorchTransformer(Settings(N=2, d_model=16, d_ff=24, h=2, dropout=0.3), 13)
    assert [part.dropout for part in model.modules() if isinstance(part, nn.MultiheadAttention)] == [0.0] * 6
    active = [
        name.rpartition(".")[2] for name, part in model.named_modules() if isinstance(part, nn.Dropout) and part.p
    ]
    assert sorted(active) == sorted(
        ["dropout"] + 2 * ["dropout1", "dropout2"] + 2 * ["dropout1", "dropout2", "dropout3"]
    )
