"""The recipes name what is there, and under Ray two processes end in the weights of torchrun."""

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import polib
import pytest
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from recipes import messages
from tests.helpers import ROOT, SOAK, same, started, wait_for

RECIPES = ROOT / "recipes"
TRAIN = "--data captions --N 1 --d-model 16 --d-ff 16 --h 2 --bpe 100 --tokens-per-batch 300"
TRAIN = shlex.split(f"{TRAIN} --warmup 20")
STEPS = 12
SEARCHED = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # has torchrun
# other numbers of threads round differently
ENVIRONMENT = os.environ | {"PATH": SEARCHED, "OMP_NUM_THREADS": "1"}


def same_weights(run: Path, steps: int) -> None:
    """Assert that a run ended in the weights of a run of torchrun, which is made beside it."""
    other = run.with_name(f"{run.name}-torchrun")
    command = ["torchrun", "--standalone", "--nproc-per-node=2", "--"]
    command += ["the_annotated_transformer.py", "train", *TRAIN]
    command += ["--run", other, "--steps", str(steps)]
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, timeout=600)
    assert same(*(load_file(folder / "model.safetensors") for folder in (run, other)))


def test_the_program_knows_every_option():
    """In the commands that the recipes and their README give."""
    program = [sys.executable, "the_annotated_transformer.py", "train", "--help"]
    text = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in ("README.md", "slurm.sbatch", "ray_train.py"):
        command = re.search(r"--data \w.*", (RECIPES / name).read_text(encoding="utf-8"))[0]
        options = re.findall(r"--[a-z-]+", command)
        assert {"--data", "--run", "--steps"} <= {*options}
        assert {*options} <= {*re.findall(r"--[a-z-]+", text)}, name


def test_messages_of_programs_become_pairs(tmp_path):
    """Catches marks of shortcuts, halves without words, a held-out catalogue's texts in train."""
    catalogue = polib.POFile()
    for original, translated in (
        ("_Open the file", "_Ouvrir le fichier"), ("Two\nlines here", "Deux\nlignes ici"),
        ("Not translated yet", ""), ("%d: %s", "%d : %s"),
        ("No such file", "Aucun fichier de ce type"),
    ):  # fmt: skip
        catalogue.append(polib.POEntry(msgid=original, msgstr=translated))
    catalogue.save_as_mofile(str(tmp_path / "one.mo"))
    found = messages.pairs_of(tmp_path / "one.mo")
    files = ("Ouvrir le fichier", "Open the file"), ("Aucun fichier de ce type", "No such file")
    assert sorted(found) == sorted(files)

    def texts(size: int) -> list[tuple[str, str]]:
        return [(f"un texte {i}", f"a text {i}") for i in range(size, 2 * size)]

    others = [texts(size) + found for size in (4, 30, 9)]
    largest = others[1]
    train, val = messages.divided(others, 12)  # in another order
    assert set(largest) <= set(train) and 0 < len(val) <= 12
    assert not {side for pair in train for side in pair} & {side for pair in val for side in pair}


@pytest.mark.parametrize("name", ["slurm.sbatch", "README.md"])
def test_torchrun_knows_its_options_and_starts_the_program(name):
    text = (RECIPES / name).read_text(encoding="utf-8").replace("\\\n", " ")
    words = shlex.split(re.search(r"^(?:srun )?torchrun (--nnodes.*)", text, re.M)[1])
    parsed = get_args_parser().parse_args([re.sub(r"\$\w+|\bN\b", "2", word) for word in words])
    assert parsed.training_script == "the_annotated_transformer.py"
    assert parsed.training_script_args[0] == "train"


@pytest.mark.skipif(not SOAK, reason="make soak runs the recipe")
@pytest.mark.parametrize("killed", [False, True])
def test_ray_ends_in_the_weights_of_torchrun(tmp_path, killed):
    """Also if one of its processes is killed on the way."""
    if importlib.util.find_spec("ray") is None:
        pytest.fail("this needs Ray: pip install --group soak")
    run, out = tmp_path / "run", tmp_path / "out"
    options = [*TRAIN, "--run", os.path.relpath(run, ROOT), "--steps", str(STEPS)]
    options += ["--checkpoint-every", "1"]
    # its sockets need a short path
    with tempfile.TemporaryDirectory(prefix="ray-") as folder, out.open("w") as file:
        ours = {"HOME": folder, "RAY_TMPDIR": folder, "RAY_USAGE_STATS_ENABLED": "0"}
        command = [sys.executable, RECIPES / "ray_train.py", *options]
        start = {"cwd": ROOT, "env": ENVIRONMENT | ours, "stdout": file, "stderr": file}
        with started(command, **start) as process:
            if killed:
                second = run / "checkpoints" / "000002.safetensors"
                wait_for("a checkpoint", lambda: second.exists() or process.poll() is not None, 300)
                assert second.exists(), out.read_text()
                worker = re.search(r"pid=(\d+)\) world_rank=1", out.read_text())[1]
                os.kill(int(worker), signal.SIGKILL)
            assert process.wait(400) == 0, out.read_text()
    assert ("[FailurePolicy] RETRY" in out.read_text()) == killed
    same_weights(run, STEPS)
