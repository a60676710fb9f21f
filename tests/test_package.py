"""What is declared: imports, their lock, and what `pip install .` installs without a repository."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from email.parser import HeaderParser
from importlib.metadata import packages_distributions
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PIP = [sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-input"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RUN_TIME = re.findall(r"(?m)^[^#\s].*", (ROOT / "requirements.txt").read_text("utf-8"))
HUB = PROJECT["project"]["optional-dependencies"]["hub"]
GROUPS = PROJECT["dependency-groups"]


def imported(*paths: str) -> dict[str, str]:
    """Of the scripts there: each package that they import, and a script that does."""
    file_of = {}
    for path in run("git", "ls-files", *paths, cwd=ROOT).splitlines():
        for node in ast.walk(ast.parse((ROOT / path).read_text("utf-8"))):
            modules = []
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules = [node.module]
            file_of |= {module.partition(".")[0]: path for module in modules}
    ours = {path.stem for path in ROOT.iterdir()}
    return {name: file_of[name] for name in file_of.keys() - ours - sys.stdlib_module_names}


PROGRAM = ("translator/*.py", "practice/**/*.py", "the_annotated_transformer.py", "since_2017.py")
ALL_GROUPS = [need for needs in GROUPS.values() for need in needs if isinstance(need, str)]


@pytest.mark.parametrize(
    ("paths", "declared"),
    [
        (PROGRAM, [*RUN_TIME, *HUB, "ipython"]),  # only in a notebook, which IPython runs
        (("*.py",), [*RUN_TIME, *ALL_GROUPS]),
    ],
    ids=["program", "everything"],
)  # fmt: skip
def test_what_is_imported_is_declared(paths, declared):
    """Catches a package that is there only because another one brings it."""
    names = {canonicalize_name(Requirement(need).name) for need in declared}
    distributions = packages_distributions()
    files = imported(*paths)
    assert len(files) > 10
    for module, path in files.items():
        candidates = {canonicalize_name(name) for name in distributions.get(module, [module])}
        assert candidates & names, f"{path} imports {module}, which is declared nowhere"


def test_the_lock_has_what_is_declared():
    """Each in a version that its range admits; every line with hashes, and from no address."""
    lines = (ROOT / ".ci/requirements.lock").read_text("utf-8").splitlines()
    assert all("--hash=sha256:" in line and "://" not in line for line in lines)
    locked = dict(re.match(r"([\w.-]+)==(\S+)", line).groups() for line in lines)
    ranges = PROJECT["project"]["dependencies"]
    for need in map(Requirement, [*ranges, *RUN_TIME, *HUB, *GROUPS["dev"]]):
        version = locked.get(canonicalize_name(need.name))
        assert version and need.specifier.contains(version), f"{need}: {version}; try `make lock`"


def run(*command: str | Path, cwd: Path) -> str:
    """A command's standard output; it must exit with 0, and doesn't know this repository."""
    paths = ("PYTHONPATH", "PYTHONHOME")
    settings = {name: value for name, value in os.environ.items() if name not in paths}
    process = subprocess.run(
        list(map(str, command)),
        cwd=cwd, env=settings, capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]
    return process.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A copy of what git tracks or would track, and a build that still holds a deleted module."""
    folder = tmp_path_factory.mktemp("package") / "clone"
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    (folder / "build/lib/translator").mkdir(parents=True)
    (folder / "build/lib/translator/gone.py").touch()
    (folder / "build/page.html").touch()
    return folder


@pytest.fixture(scope="module")
def wheel(clone) -> Path:
    """The wheel that pip builds from it, without a network."""
    out = clone.parent / "wheels"
    offline = ("--no-deps", "--no-build-isolation", "--no-index")
    run(*PIP, "wheel", ".", *offline, "--wheel-dir", out, cwd=clone)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def environment(wheel) -> Path:
    """A new virtual environment with the wheel; its dependencies come from this environment."""
    folder = wheel.parents[1] / "environment"
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=wheel.parent)
    python = folder / "bin/python"
    run(*PIP, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=wheel.parent)
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = run(python, "-c", find, cwd=wheel.parent).strip()
    borrowed = {sysconfig.get_path(kind) for kind in ("purelib", "platlib")}
    (Path(packages) / "borrowed.pth").write_text("\n".join(sorted(borrowed)) + "\n")
    return folder


def test_the_wheel_holds_the_document_the_program_and_one_model(clone, wheel):
    """Catches missing package data, an installed test, and a module left from an older build."""
    program = {
        path.relative_to(clone).as_posix()
        for room in ("practice", "translator")
        for path in (clone / room).rglob("*.py")
    }
    data = {
        "practice/mistakes": "mistakes.tsv slips.tsv",
        "translator": "captions.txt ctranslate2_folder/README.md",
        "translator/models/multi30k-de-en":
            "README.md SHA256SUMS config.json model.safetensors tokenizer.json",
        "translator/benchmarks/results": "curve.jsonl first_stage.jsonl plan.jsonl",
        "translator/explorer_page":
            "explain.js figure.html models.json page.html panels.css",
        "translator/translator_page": "page.html translate.js",
    }  # fmt: skip
    data = {f"{folder}/{name}" for folder, names in data.items() for name in names.split()}
    assert len(program) > 10 and (clone / "build/page.html").is_file()
    with ZipFile(wheel) as file:
        metadata = next(name for name in file.namelist() if name.endswith("/METADATA"))
        metadata = metadata.rpartition("/")[0]
        inside = {name for name in file.namelist() if not name.startswith(f"{metadata}/")}
        assert inside == {"the_annotated_transformer.py", "since_2017.py"} | program | data
        assert file.read(f"{metadata}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        headers = HeaderParser().parsestr(file.read(f"{metadata}/METADATA").decode())
    needs = [Requirement(need) for need in headers.get_all("Requires-Dist") if ";" not in need]
    pinned = dict(line.split("==") for line in RUN_TIME)
    assert [need.name for need in needs] == [*pinned]
    # ranges that admit what is tested
    assert all(need.specifier.contains(pinned[need.name]) for need in needs)


def test_the_installed_command_translates(environment, tmp_path):
    """It uses the model and the modules of the new environment, not those of this repository."""
    find = "from importlib.util import find_spec as f; "
    find += "print(f('the_annotated_transformer').origin, f('translator').origin)"
    origins = run(environment / "bin/python", "-c", find, cwd=tmp_path).split()
    assert len(origins) == 2 and all(Path(o).is_relative_to(environment) for o in origins), origins
    program = environment / "bin/annotated-transformer"
    out = run(program, "translate", "Ein Hund läuft.", cwd=tmp_path)
    assert any(re.search(r"\bdog\b", line) for line in out.splitlines()), out
    assert not list(tmp_path.iterdir())
    measured = "from translator.plan import measured; print(len(measured()))"
    assert int(run(environment / "bin/python", "-c", measured, cwd=tmp_path)) > 20
