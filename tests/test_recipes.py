"""The recipes run: two processes under Slurm or Ray end in the weights of torchrun, bit for bit.

`make soak` does this. Slurm is Debian's, with two nodes on this machine; what each node takes for
its GPU is /dev/null, and the program finds none.
"""

import getpass
import importlib.util
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import polib
import pytest
from safetensors.torch import load_file
from torch.distributed.run import get_args_parser

from recipes import messages
from tests.helpers import ROOT, SOAK, free_ports, same, started, wait_for

RECIPES = ROOT / "recipes"
TRAIN = "--data captions --N 1 --d-model 16 --d-ff 16 --h 2 --bpe 100 --tokens-per-batch 300"
TRAIN = shlex.split(f"{TRAIN} --warmup 20")
STEPS = 12
PACKAGES = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd"}
PACKAGES["sbatch"] = "slurm-client"
# torchrun, daemons
SEARCHED = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], "/usr/sbin"])
# other numbers of threads round differently
ENVIRONMENT = os.environ | {"PATH": SEARCHED, "OMP_NUM_THREADS": "1"}
CLUSTER = """
ClusterName=soak
SlurmctldHost={nodes[0]}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
GresTypes=gpu
KillWait=2
NodeName={nodes[0]} NodeAddr=127.0.0.1 Port={ports[1]} Gres=gpu:1
NodeName={nodes[1]} NodeAddr=127.0.0.1 Port={ports[2]} Gres=gpu:1
PartitionName=all Nodes=ALL Default=YES
"""
soak = pytest.mark.skipif(not SOAK, reason="make soak runs the recipes")


def same_weights(run: Path, steps: int) -> None:
    """Assert that a run ended in the weights of a run of torchrun, which is made beside it."""
    other = run.with_name(f"{run.name}-torchrun")
    command = ["torchrun", "--standalone", "--nproc-per-node=2", "--"]
    command += ["the_annotated_transformer.py", "train", *TRAIN]
    command += ["--run", other, "--steps", str(steps)]
    subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, check=True, timeout=600)
    assert same(*(load_file(folder / "model.safetensors") for folder in (run, other)))


# --- Without Slurm and Ray ---
def test_every_recipe_is_run():
    """By a soak test of this file, or, what makes a corpus, in part by `test_messages`."""
    names = {"README.md", "slurm.sbatch", "ray_train.py", "messages.py"}
    assert {path.name for path in RECIPES.iterdir() if path.is_file()} == names


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


def test_messages_are_written_when_there_are_some(tmp_path, monkeypatch):
    """Into a folder that did not exist; catches an empty one left there, and refused next time."""
    (tmp_path / "mine").mkdir()
    for out, tool, said in (
        ("mine", "apt-get", "exists already"),
        ("new", None, "apt-get"),
        ("new", "it", "no messages"),
    ):
        monkeypatch.setattr("shutil.which", lambda name, tool=tool: tool)
        monkeypatch.setattr(messages, "fetched", lambda *_: [])
        with pytest.raises(SystemExit, match=said):
            messages.main("fr", tmp_path / out)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["slurm.sbatch", "README.md"])
def test_torchrun_knows_its_options_and_starts_the_program(name):
    text = (RECIPES / name).read_text(encoding="utf-8").replace("\\\n", " ")
    words = shlex.split(re.search(r"^(?:srun )?torchrun (--nnodes.*)", text, re.M)[1])
    parsed = get_args_parser().parse_args([re.sub(r"\$\w+|\bN\b", "2", word) for word in words])
    assert parsed.training_script == "the_annotated_transformer.py"
    assert parsed.training_script_args[0] == "train"


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_the_shell_can_read_the_script():
    done = subprocess.run(["bash", "-n", RECIPES / "slurm.sbatch"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# --- Slurm ---
class Cluster:
    """Slurm on this machine: two nodes, each with one processor and, as it thinks, one GPU.

    All its files are in one folder.
    """

    def __init__(self, folder: Path):
        self.folder, self.user = folder, getpass.getuser()
        host = socket.gethostname().partition(".")[0]
        self.environment = ENVIRONMENT | {"SLURM_CONF": str(folder / "slurm.conf")}
        self.nodes = [host, f"{host}-2"]
        for node in self.nodes:
            (folder / node).mkdir()
        text = CLUSTER.format(nodes=self.nodes, ports=free_ports(3), user=self.user, folder=folder)
        (folder / "slurm.conf").write_text(text)
        (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
        (folder / "munge.key").write_bytes(os.urandom(128))
        (folder / "munge.key").chmod(0o600)

    def daemons(self) -> Iterator[list[str]]:
        """The commands that start it, in their order."""
        kinds = ("key", "log", "pid", "seed")
        files = [f"--{kind}-file={self.folder}/munge.{kind}" for kind in kinds]
        yield ["munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket", *files]
        yield ["slurmctld", "-D"]
        for node in self.nodes:
            yield ["slurmd", "-D", "-N", node]

    @contextmanager
    def running(self, number: int, command: list[str]) -> Iterator[None]:
        log = self.folder / f"{number}.out"
        with log.open("w") as out, started(command, env=self.environment, stdout=out, stderr=out):
            time.sleep(1)
            yield

    def call(self, *command: str | Path) -> str:
        """What a command of Slurm prints."""
        return subprocess.run(
            command,
            cwd=ROOT, env=self.environment, check=True, timeout=60,
            stdout=subprocess.PIPE, text=True,
        ).stdout.strip()  # fmt: skip

    def submit(
        self, run: Path, steps: int, *options: str, before: list[str] | None = None
    ) -> tuple[str, str]:
        """Submit the recipe, wait for the job's end, return its state and what it printed."""
        out = run.with_suffix(".out")
        ours = ["--gpus-per-node=1", f"--output={out}", *(before or [])]
        theirs = [*TRAIN, "--run", run, "--steps", str(steps), *options]
        job = self.call("sbatch", "--parsable", *ours, RECIPES / "slurm.sbatch", *theirs)

        def ended() -> str | None:
            state = re.search(r"JobState=(\w+)", self.call("scontrol", "show", "job", job))[1]
            return None if state in ("PENDING", "RUNNING", "COMPLETING") else state

        return wait_for(f"job {job}", ended, 400), out.read_text(encoding="utf-8", errors="replace")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    missing = [PACKAGES[name] for name in PACKAGES if not shutil.which(name, path=SEARCHED)]
    if missing:
        install = f"apt-get install --no-install-recommends {' '.join(missing)}"
        pytest.fail(f"this needs Slurm: {install}")
    with tempfile.TemporaryDirectory(prefix="slurm-") as name, ExitStack() as stack:
        made = Cluster(Path(name))
        for number, command in enumerate(made.daemons()):
            stack.enter_context(made.running(number, command))
        try:
            ask = ("sinfo", "--noheader", "--format=%D %T")
            wait_for("sinfo", lambda: made.call(*ask) == "2 idle", 60)
        except (TimeoutError, subprocess.CalledProcessError):
            pytest.fail("\n".join(path.read_text() for path in sorted(made.folder.glob("*.out"))))
        yield made
        made.call("scancel", f"--user={made.user}")  # of a test that failed
        wait_for("squeue", lambda: not made.call("squeue", "--noheader"))


@soak
def test_slurm_ends_in_the_weights_of_torchrun(cluster, tmp_path):
    """Two nodes, one torchrun and one process each."""
    state, out = cluster.submit(tmp_path / "run", STEPS)
    assert state == "COMPLETED", out
    same_weights(tmp_path / "run", STEPS)


@soak
def test_a_job_whose_time_is_up_saves_the_run_and_the_next_goes_on(cluster, tmp_path):
    """Slurm sends the recipe's signal, two to two and a half minutes before the end of four."""
    run = tmp_path / "run"
    state, out = cluster.submit(run, 100_000, "--checkpoint-every", "1", before=["--time=00:04:00"])
    assert state == "FAILED", out
    lost = "torchrun did not wait for its processes, so a large run might not be saved"
    assert "closing signal SIGUSR1" in out, lost
    assert "forcefully exiting" not in out, "a process hung after it had saved"
    step = int(re.search(r"stopped by SIGUSR1 after update (\d+), which is saved", out)[1])
    state, out = cluster.submit(run, step + 5)
    assert state == "COMPLETED", out
    same_weights(run, step + 5)


# --- Ray ---
@soak
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
