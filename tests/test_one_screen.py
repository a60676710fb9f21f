"""The paper on one screen: the document's model, the same as its twin in the browser; it fits."""

import ast
import base64
import functools
import json
import os
import re
import subprocess
import sys
import types
from collections.abc import Iterable
from pathlib import Path

import nbformat
import pytest
import torch
import torch.nn.functional as F
from bs4 import BeautifulSoup
from torch import Tensor

import the_annotated_transformer as tat
from benchmarks.one_screen import port_numbers
from blog import editions, listing, page, prose, style
from tests.helpers import ROOT, node, offline_tab

FILE = ROOT / "one_screen.py"
NEAR = 1e-12
RUN = """
import { gradient } from "./learn/learning.js";
import { OneScreen } from "./learn/one_screen.js";
const one = new OneScreen(asked.settings, asked.seed);
const weights = () => Object.fromEntries(
  Object.entries(one.model.parameters).map(([name, p]) => [name, Array.from(p.data)]));
"""


def in_node(script: str) -> dict:
    """What the twin in the browser prints, with the settings of the file."""
    settings = listing.settings(FILE.read_text("utf-8"))
    return node(RUN + script, {"settings": settings, "seed": settings["seed"]})


def load(source: str = "") -> types.ModuleType:
    """A module from the text of one_screen.py, or from another one, freshly drawn."""
    module = types.ModuleType("one_screen")
    exec(compile(source or FILE.read_text("utf-8"), FILE.name, "exec"), vars(module))
    return module


def named(paper: types.ModuleType, matrices: Iterable[list]) -> dict[str, Tensor]:
    """What belongs to one_screen.py's parameters, in order, by the document's names and layout."""
    tensor_of: dict[str, Tensor] = {}
    tensors = (torch.tensor([*map(list, rows)], dtype=torch.float64) for rows in matrices)

    def vectors(name: str) -> None:
        tensor_of.update({f"{name}.{kind}": next(tensors)[0] for kind in ("weight", "bias")})

    tensor_of["src_embed.embeddings.table.weight"] = next(tensors)
    for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "src_attn"])):
        for layer in (f"{stack}.layers.{n}" for n in range(paper.N)):
            for i, name in enumerate(attentions):
                heads = [[next(tensors) for _ in "qkv"] for _ in range(paper.h)]
                for W, columns in zip("qkv", zip(*heads, strict=True), strict=True):
                    tensor_of[f"{layer}.{name}.W_{W}.weight"] = torch.cat(columns, 1).T
                tensor_of[f"{layer}.{name}.W_o.weight"] = next(tensors).T
                vectors(f"{layer}.sublayer.{i}.norm")
            for W in ("W_1", "W_2"):
                tensor_of[f"{layer}.feed_forward.{W}.weight"] = next(tensors).T
                tensor_of[f"{layer}.feed_forward.{W}.bias"] = next(tensors)[0]
            vectors(f"{layer}.sublayer.{len(attentions)}.norm")
    assert next(tensors, None) is None
    return tensor_of


def difference(ours: Tensor, theirs: Tensor) -> float:
    """Relative to the largest number."""
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def document_model(paper: types.ModuleType) -> tat.Transformer:
    """The document's model with the weights of one_screen.py, in double precision."""
    V = len(paper.letters)
    model = tat.make_model(
        V, V, paper.N, paper.d_model, paper.d_ff, paper.h, 0.0, norm="post", tie="all"
    )
    model = model.double()
    ours = named(paper, paper.parameters)
    theirs = dict(model.named_parameters())
    assert ours.keys() == theirs.keys()
    with torch.no_grad():
        for name, p in theirs.items():
            p.copy_(ours[name])
        # sinusoids, which the document computes in single precision
        for _, table in model.named_buffers():
            table[..., : len(paper.positions), :] = torch.tensor(
                paper.positions, dtype=torch.float64
            )
    return model


def document_loss(
    paper: types.ModuleType, model: tat.Transformer, numbers: list[int]
) -> tuple[Tensor, list[Tensor]]:
    """The mean loss per target, and the logits of each number.

    The document shares the smoothing among all tokens but padding; here there is none, as in
    PyTorch's own loss.
    """
    total = torch.zeros((), dtype=torch.float64)
    tokens = 0
    all_logits = []
    for n in numbers:
        src = torch.tensor([paper.ids(paper.german_number(n) + ">")])
        tgt = torch.tensor([paper.ids(f"<{n}>")])
        y = tgt[0, 1:]
        logits = model(src, tgt[:, :-1], None, tat.subsequent_mask(len(y)))[0]
        all_logits.append(logits)
        total = total + F.cross_entropy(logits, y, label_smoothing=paper.eps_ls, reduction="sum")
        tokens += len(y)
    return total / tokens, all_logits


def test_the_document_computes_the_same():
    """Logits, loss, gradients, and the weights after each of five updates, to twelve digits."""
    paper = load()
    model = document_model(paper)
    adam = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 6):
        state = paper.seed
        numbers = [paper.known[int(len(paper.known) * paper.random())] for _ in range(paper.pairs)]
        expected, logits = document_loss(paper, model, numbers)
        for n, theirs in zip(numbers, logits, strict=True):
            memory = paper.encode(paper.ids(paper.german_number(n) + ">"))
            ours = paper.decode(memory, paper.ids(f"<{n}>")[:-1])
            assert difference(torch.tensor([*map(list, ours)], dtype=torch.float64), theirs) < NEAR
        paper.tape.clear()
        adam.zero_grad()
        expected.backward()
        paper.backward(paper.loss(numbers))
        gradients = named(paper, [W.gradient for W in paper.parameters])
        for name, p in model.named_parameters():
            assert difference(gradients[name], p.grad) < NEAR, name
        for W in paper.parameters:
            W.gradient = None
        adam.param_groups[0]["lr"] = paper.rate(step)
        rate = tat.rate(step, paper.d_model, paper.factor, paper.warmup)
        assert paper.rate(step) == pytest.approx(rate, rel=NEAR)
        adam.step()
        paper.seed = state  # the update draws the same numbers
        assert paper.update(step) == pytest.approx(expected.item(), rel=NEAR)
        weights = named(paper, paper.parameters)
        for name, p in model.named_parameters():
            assert difference(weights[name], p.detach()) < NEAR, name


def test_the_browser_computes_the_same():
    """Draws, losses, and the weights after five updates."""
    paper = load()
    twin = in_node("""
        const start = weights(), losses = Array.from({ length: 5 }, () => one.update());
        const letters = one.letters.join(""), { held_out } = one;
        console.log(JSON.stringify({ start, losses, end: weights(), letters, held_out }));""")
    assert twin["letters"] == paper.letters and twin["held_out"] == paper.held_out
    for name, p in named(paper, paper.parameters).items():
        assert twin["start"][name] == p.flatten().tolist(), name
    for step, loss in enumerate(twin["losses"], 1):
        assert paper.update(step) == pytest.approx(loss, rel=NEAR)
    for name, p in named(paper, paper.parameters).items():
        end = torch.tensor(twin["end"][name], dtype=torch.float64)
        assert difference(end, p.flatten()) < NEAR, name


BREAKS = {  # each in place of what it is named after: a derivative that is wrong
    "matmul, left": ("(dots(dC, B), dots(flip(A), flip(dC)))",
                     "(dots(dC, flip(flip(B)[::-1])), dots(flip(A), flip(dC)))"),
    "matmul, right": ("dots(flip(A), flip(dC)))",
                      "each(lambda g: 0.9 * g, dots(flip(A), flip(dC))))"),
    "transpose": ("lambda dC: [flip(dC)]", "lambda dC: [flip(dC[::-1])]"),
    "plus, left": ("lambda dC: (dC, dC if", "lambda dC: (each(lambda g: 0.5 * g, dC), dC if"),
    "plus, one row for all": ("else total(dC))", "else dC[:1])"),
    "times, left": ("(each(mul, dC, cycle(B)), total", "(dC, total"),
    "lookup": ("one_hot = [[float(i == j) for j in range(len(table))] for i in rows]",
               "one_hot = [[float(i == j and i not in rows[:k]) for j in range(len(table))] "
               "for k, i in enumerate(rows)]"),
    "softmax": ("p_i * (g - average)", "p_i * g"),
    "concat": ("for i in range(0, d_model, d_k)]", "for i in range(d_model - d_k, -1, -d_k)]"),
    "normalise, mean": ("(g - shift - stretch * a)", "(g - stretch * a)"),
    "relu": ("g * (a > 0) for", "g * (a > -0.1) for"),
    "loss": ("-q / p * dL[0][0]", "(1 - q) / p * dL[0][0]"),
}  # fmt: skip


@functools.cache
def gradients() -> tuple[types.ModuleType, list[list]]:
    """Those of one number, which the test above holds to the document's."""
    paper = load()
    paper.backward(paper.loss(paper.known[100:101]))
    return paper, [W.gradient for W in paper.parameters]


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_derivative_is_found(name):
    """By the comparison of gradients, and by the file's own check."""
    source = FILE.read_text("utf-8")
    derivative, broken = BREAKS[name]
    assert source.count(derivative) == 1
    paper = load(source.replace(derivative, broken))
    paper.backward(paper.loss(paper.known[100:101]))
    ours = named(paper, [W.gradient for W in paper.parameters])
    theirs = named(*gradients())
    assert max(difference(ours[name], theirs[name]) for name in theirs) > 1e-3
    for W in paper.parameters:
        W.gradient = None
    assert any(error > 1e-5 for error in paper.gradient_errors())


def test_it_fits_on_the_screen_and_needs_nothing():
    source = FILE.read_text("utf-8")
    lines = source.splitlines()
    assert len(lines) <= 250 and max(map(len, lines)) <= 100
    names = {*re.findall(r"(?m)^\s*(?:from|import) (\w+)", source)}
    assert names and names <= sys.stdlib_module_names


def test_it_says_what_it_does(tmp_path):
    """A short run without packages: parameters, check, progress, a guess, what's right, the map."""
    source = FILE.read_text("utf-8")
    for old, new in (
        ("= 1200, 8,", "= 4, 1,"),
        ("step % 50", "step % 2"),
        ("step // 50", "step // 2"),
        ("[:180],", "[:5],"),
    ):
        assert source.count(old) == 1
        source = source.replace(old, new)
    (tmp_path / FILE.name).write_text(source, "utf-8")
    command = [sys.executable, "-P", "-S", FILE.name, "2"]
    terminal = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ""}
    streams = {"capture_output": True, "text": True}
    process = subprocess.run(command, cwd=tmp_path, env=terminal, **streams)
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("5904 parameters")
    assert float(re.search(r"by (\S+) at", process.stdout)[1]) < 1e-5
    update = r"(?m)^update .*, +\d s left: loss \d\.\d\d, rate 0\.\d{4}, [a-zäöüß?]+ -> "
    assert len(re.findall(update, process.stdout)) == 2
    assert re.search(r"(?m)^Right of 5 numbers .*: 0; .*: 0$", process.stdout)
    assert not set("░▒▓█") & set(process.stdout)


def test_a_port_finds_these_numbers():
    """The file is what the command writes, up to ten updates; the twin finds the same after 100."""
    written = json.loads(listing.PORT.read_text("utf-8"))
    computed = port_numbers((0, 1, 10))

    def start(numbers):
        return {n: v for n, v in numbers.items() if "after" not in n}

    assert start(computed) == start(written)
    for step in (0, 1, 10):
        agree(computed[f"after {step}"], written[f"after {step}"])
    twin = in_node("""
        while (one.model.step < 100) one.update();
        const size = Math.hypot(...Object.values(weights()).flat());
        const pairs = one.held_out.slice(0, 8).map((n) => one.pair(n));
        const loss = gradient(one.model, pairs, { smoothing: asked.settings.eps_ls });
        console.log(JSON.stringify({ size, loss, writes: one.read(one.held_out[0]).text }));""")
    agree(twin, written["after 100"])


def agree(ours: dict, theirs: dict) -> None:
    """As far as the number of digits that the file promises."""
    assert ours["writes"] == theirs["writes"]
    for name in ("loss", "size"):
        assert ours[name] == pytest.approx(theirs[name], rel=10 ** -theirs["digits"]), name


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> dict[str, Path]:
    """The page of the listing in each language, as the command makes it."""
    if not style.KATEX.is_dir():
        missing = pytest.fail if os.environ.get("ANNOTATED_TESTS") == "all" else pytest.skip
        missing("no KaTeX: npm ci --prefix blog")
    folder = tmp_path_factory.mktemp("listing")
    files = {language: folder / language / "one_screen.html" for language in editions.languages()}
    files["en"] = folder / "one_screen.html"
    for language, file in files.items():
        page.listing_page(file, language=language)
    return files


def test_the_page_has_every_line_and_beside_each_block_a_sentence_whose_links_lead_somewhere(pages):
    source = FILE.read_text("utf-8")
    _, texts, _ = listing.notes()
    defined = [listing.defines(block) & texts.keys() for block in listing.blocks(source)]
    assert all(len(names) == 1 for names in defined) and set().union(*defined) == texts.keys()
    headings = {
        name: prose.anchor_name(name)
        for name in editions.anchors(nbformat.read(ROOT / "the_annotated_transformer.ipynb", 4))
    }
    for language, path in pages.items():
        tree = BeautifulSoup(path.read_text("utf-8"), "lxml")
        blocks = [block.get_text().strip("\n") for block in tree.select(".jp-CodeCell pre")]
        assert language != "en" or "\n\n".join(blocks) == source.strip("\n")
        assert len(blocks) == len(defined) == len(tree.select(".jp-CodeCell + .prose"))
        links = [a["href"] for a in tree.select("main a[href^='the_annotated_transformer.html#']")]
        assert len(links) >= 18
        assert {link.partition("#")[2] for link in links} <= {*headings.values()}
        packed = tree.select_one("main a[href^='data:']")["href"].partition(",")[2]
        assert base64.b64decode(packed).decode() == source and "_HERE" not in tree.get_text()


def test_a_translated_listing_is_the_same_program():
    """Only comments and docstrings differ, and there are as many."""
    source = FILE.read_text("utf-8")
    meanings = editions.meanings("zh", FILE.name)
    chinese = listing.in_words(source, lambda text: meanings.get(text, text))

    def plain(text):
        return re.sub(r'(?s)""".*?"""', '""""""', text)

    assert ast.dump(ast.parse(plain(chinese))) == ast.dump(ast.parse(plain(source)))
    assert len([*listing.comments(chinese)]) == len([*listing.comments(source)])
    assert re.search(f"[{editions.HAN}]", chinese) and listing.in_words(source, str) == source


def test_the_page_runs_it(pages, browser):
    """Until the first guess; a second click stops it."""
    tab, problems = offline_tab(browser)
    tab.goto(pages["en"].as_uri())
    tab.locator("#run-button").click()
    tab.locator("#run-out", has_text="->").wait_for(timeout=120_000)
    text = tab.locator("#run-out").inner_text()
    assert text.startswith("5904 parameters, seed 1\n")
    assert re.search(r"update +50, +\d+ s left: loss \d\.\d\d", text)
    tab.locator("#run-button").click()
    assert "Run" in tab.locator("#run-button").inner_text() and not problems
    tab.context.close()
