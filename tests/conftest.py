"""What the tests share: the import path, a fixed seed, a small model, and sentences for it."""

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
import torch
from bs4 import BeautifulSoup
from filelock import FileLock
from torch import nn

os.environ.setdefault("ANNOTATED_DEVICE", "cpu")
# `datasets` reads them when imported
os.environ |= {"HF_HOME": tempfile.mkdtemp(prefix="hub-"), "HF_HUB_OFFLINE": "1"}

import exercises
import since_2017
import the_annotated_transformer as tat
from blog import companion, page
from translator import captions

ROOT = Path(__file__).resolve().parents[1]
LONG = ("document", "page", "distributed", "explorer", "benchmarks", "exercises", "languages")
LONG = [f"test_{name}.py" for name in LONG]
captions.CORPUS = 3000  # enough here
captions.CAPTION_SPLITS |= {"train": slice(1000, 1500), "val": slice(0, 60)}
captions.CAPTION_SPLITS["test"] = slice(500, 560)
# a page of Chromium's own that each new window would load first, which takes more than a second
NOT_NEEDED = [
    "WebUIOmniboxPopup", "WebUIOmniboxAimPopup",
    # and what playwright takes away, because this list stands in for its own
    "AvoidUnnecessaryBeforeUnloadCheckSync", "DestroyProfileOnBrowserClose", "MediaRouter",
    "PaintHolding", "ThirdPartyStoragePartitioning", "OptimizationHints",
    "NetworkTimeServiceQuerying", "AimEnabled", "PreconnectToSearch",
]  # fmt: skip
CACHED = (
    tat.choose_data,
    tat.load_split,
    tat.live_run,
    tat.our_model,
    since_2017.train_writer,
)  # what keeps its first result
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)
torch.set_num_threads(1)  # for models this small, a second thread only costs time


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that take longest begin first, so that no process waits for another in the end."""
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Every test starts from the same random numbers, whichever tests ran before."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def multi30k() -> Path:
    """The folder of the real files; without them, a test that needs it is skipped."""
    folder = Path(os.environ.get("MULTI30K_CACHE") or ROOT.parent / "shared" / "multi30k")
    if not folder.is_dir():
        pytest.skip("Multi30k is not here")
    return folder


@pytest.fixture(scope="session")
def committed_page(tmp_path_factory) -> Callable[..., Path]:
    """Gives a committed notebook's page in a language, made once for all processes that test."""
    if not (ROOT / "blog" / "node_modules" / "katex").is_dir():
        missing = pytest.fail if os.environ.get("ANNOTATED_TESTS") == "all" else pytest.skip
        missing("no KaTeX: npm ci --prefix blog")
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared) / "pages"

    def find(name: str, language: str = "en") -> Path:
        out = folder / ("" if language == "en" else language) / f"{name}.html"
        out.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(out.with_suffix(".lock")):
            if not out.exists():
                of_book = ROOT / ("practice" if name == "clinic" else "")
                book = nbformat.read(of_book / f"{name}.ipynb", 4)
                companion.whole(out, page.make_page(book, name, ROOT, language=language).encode())
        return out

    return find


@pytest.fixture(scope="module")
def tree_of(committed_page) -> Callable[..., BeautifulSoup]:
    """Gives such a page as a tree, which is read once."""
    return functools.cache(
        lambda *about: BeautifulSoup(committed_page(*about).read_text("utf-8"), "lxml")
    )


@pytest.fixture(scope="module")
def browser() -> Iterator:
    """Chromium; without it, a test that needs it is skipped."""
    if not (chromium := shutil.which("chromium")):
        pytest.skip("chromium is not installed")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        flags = ["--no-sandbox", f"--disable-features={','.join(NOT_NEEDED)}"]
        launched = playwright.chromium.launch(executable_path=chromium, args=flags)
        yield launched
        launched.close()


@pytest.fixture
def randomise() -> Callable[[nn.Module], nn.Module]:
    """Draws all weights again, in float64: no zero bias, unit gain or rounding hides a mistake."""

    def draw(module: nn.Module, std: float = 0.3) -> nn.Module:
        for p in module.double().parameters():
            nn.init.normal_(p, std=std)
        return module

    return draw


@pytest.fixture
def small_model(randomise) -> Callable[..., tat.Transformer]:
    """Makes models with 13 source and 11 target tokens, no dropout, and random float64 weights."""

    def build(**changes) -> tat.Transformer:
        sizes = {"src_vocab": 13, "tgt_vocab": 11, "N": 2, "d_model": 16, "d_ff": 24, "h": 4}
        return randomise(tat.make_model(**sizes | {"dropout": 0.0} | changes))

    return build


@pytest.fixture
def sentences() -> tat.Batch:
    """Three sentence pairs of unequal lengths, padded."""
    sources = [[5, 6, 7, 8, 12, tat.EOS], [9, 10, tat.EOS], [4, 4, 11, tat.EOS]]
    targets = [[tat.BOS, 5, 6, tat.EOS], [tat.BOS, 7, 8, 9, 10, tat.EOS], [tat.BOS, 4, tat.EOS]]
    return tat.Batch(tat.pad_rows(sources), tat.pad_rows(targets))


@pytest.fixture(scope="module")
def shipped() -> tat.Translator:
    """The shipped model, whose weights are exact in float16."""
    return tat.load_translator(Path(__file__).resolve().parents[1] / tat.SHIPPED_MODEL)


@pytest.fixture(scope="module")
def few_phrases(tmp_path_factory) -> Iterator[None]:
    """The data are some phrases; the document's run, in a folder of its own, has a few updates."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("phrases"))
        patch.setenv("ANNOTATED_DATA", "phrases")
        patch.setenv("ANNOTATED_STEPS", "8")
        fused = functools.partialmethod(torch.optim.Adam.__init__, fused=True)
        patch.setattr(torch.optim.Adam, "__init__", fused)
        for cached in CACHED:
            cached.cache_clear()
        few = {split: tat.load_split(split)[:size] for split, size in (("train", 400), ("val", 16))}
        for module in (tat, since_2017, exercises):
            patch.setattr(module, "load_split", few.get)
        yield
        for cached in CACHED:
            cached.cache_clear()
