"""The recipes for schedulers: each can be read by the program it is for, as far as that is possible without it.

None of these schedulers runs here. What is checked is syntax, and that the commands and options in them exist.
"""

import ast
import dataclasses
import inspect
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from torch.distributed.run import get_args_parser

from translator import commands
from translator.settings import Settings

ROOT = Path(__file__).resolve().parents[1]
RECIPES = ROOT / "recipes"


def words(name: str) -> list[str]:
    """The command line of a recipe, from torchrun, or in Ray's the program's own part."""
    text = (RECIPES / name).read_text(encoding="utf-8")
    if name.endswith(".py"):
        lists = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.List)]
        return [getattr(item, "value", "RUN") for item in max(lists, key=lambda found: len(found.elts)).elts]
    if name == "kubeflow.yaml":
        trainer = yaml.safe_load(text)["spec"]["trainer"]
        return [*trainer["command"], *trainer["args"]]
    script = yaml.safe_load(text)["run"] if name.endswith(".yaml") else text
    script = re.sub(r"\$\([^)]*\)", "HOST", script.replace("\\\n", " "))
    return shlex.split(next(line for line in script.splitlines() if "torchrun --" in line))


COMMANDS = ["slurm.sbatch", "skypilot.yaml", "kubeflow.yaml", "ray_train.py"]


def test_every_recipe_is_tested():
    assert {path.name for path in RECIPES.iterdir()} == {*COMMANDS, "Dockerfile", "Dockerfile.dockerignore"}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_program_knows_every_option(name):
    found = words(name)
    line = found[found.index("train") + 1 :]
    known = {field.name for field in dataclasses.fields(Settings)} | {*inspect.signature(commands.train).parameters}
    options = [word for word in line if word.startswith("--")]
    assert {"--data", "--run", "--steps"} <= {*options}
    assert all(option[2:].replace("-", "_") in known for option in options), options
    assert len(line) == 2 * len(options)


@pytest.mark.parametrize("name", COMMANDS[:3])
def test_torchrun_knows_its_options_and_starts_the_program(name):
    found = words(name)
    start = next(i for i, word in enumerate(found) if word.endswith("torchrun"))
    values = [re.sub(r"\$\w+|HOST", "2", word) for word in found[start + 1 :]]
    parsed = get_args_parser().parse_args(values)
    assert parsed.training_script == "the_annotated_transformer.py" and parsed.training_script_args[0] == "train"


def test_a_run_under_slurm_gets_its_signal():
    """Catches a signal that Slurm sends and torchrun does not hand on, and restarts that would hang."""
    text = (RECIPES / "slurm.sbatch").read_text()
    sent = re.search(r"--signal=(\w+)@", text)[1]
    assert f"SIG{sent}" in next(word for word in words("slurm.sbatch") if word.startswith("--signals-to-handle"))
    assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1" in text


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_shell_can_read_the_scripts():
    scripts = [(RECIPES / "slurm.sbatch").read_text()]
    scripts += [yaml.safe_load((RECIPES / "skypilot.yaml").read_text())[key] for key in ("setup", "run")]
    for script in scripts:
        done = subprocess.run(["bash", "-n"], input=script, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def test_the_image_runs_both_commands_of_the_readme():
    text = (RECIPES / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    assert [keyword for keyword, _ in lines] == ["FROM", "RUN", "WORKDIR", "COPY", "RUN", "CMD"]
    assert ast.literal_eval(lines[-1][1]) == ["sh", "-c", "make html && make test"]
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)
    assert {"setup", "html", "test"} <= {*targets}
    mounted = yaml.safe_load((RECIPES / "kubeflow.yaml").read_text())["spec"]["trainer"]["command"][0]
    assert mounted == f"{lines[2][1]}/.venv/bin/torchrun"
