"""Oracles and data of several folders: sums and searches written out, uneven sentence pairs."""

import json
import math
import os
import random
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from blog.editions import SOURCES
from blog.style import run_node
from translator.__main__ import main
from translator.captions import caption_corpus
from translator.search import Hypothesis, fast_beam

ROOT = Path(__file__).resolve().parents[1]
SOAK = bool(os.environ.get("ANNOTATED_SOAK"))  # `make soak` tries more of what may go wrong


def offline_tab(browser, width: int = 1300, height: int = 900, **options) -> tuple:
    """A tab without a network, and the list in which its errors and requests will be."""
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, offline=True, **options)
    # the page is large, and several tests run at once
    context.set_default_navigation_timeout(180_000)
    tab = context.new_page()
    problems = []
    local = ("data:", "blob:", "file:")
    tab.on("console", lambda m: problems.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda e: problems.append(str(e)))
    tab.on("request", lambda r: None if r.url.startswith(local) else problems.append(r.url))
    return tab, problems


def dense_loss(logits: Tensor, target: Tensor, eps: float, pad: int = tat.PAD) -> Tensor:
    """The definition: minus the sum of q log p, with q written out entry by entry."""
    total, V = logits.new_zeros(()), logits.size(-1)
    for scores, y in zip(logits.reshape(-1, V), target.flatten().tolist(), strict=True):
        if y != pad:
            q = [(1 - eps) * (k == y) + eps / (V - 1) * (k != pad) for k in range(V)]
            total = total - (torch.tensor(q, dtype=logits.dtype) * scores.log_softmax(-1)).sum()
    return total


def assert_gradient_of_the_loss(
    trainer: Any, model: nn.Module, pairs: list[tat.Pair], **near: float
) -> None:
    """A trainer of `model`, or of its copy, has the mean loss over all tokens and its gradient."""
    batch = tat.make_batch(pairs)
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    expected = dense_loss(logits, batch.tgt_y, eps=0.1) / sum(len(pair.tgt) - 1 for pair in pairs)
    gradient = torch.autograd.grad(expected, list(model.parameters()))
    assert trainer.gradient(pairs) == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close([p.grad for p in trainer.model.parameters()], list(gradient), **near)


def realistic_lengths(n: int) -> list[tuple[int, int]]:
    draw = random.Random(0)
    targets = [max(4, round(draw.gauss(14, 4.5))) for _ in range(n)]
    return [(max(4, t + round(draw.gauss(0, 2))), t) for t in targets]


def uneven_pairs(n: int = 7) -> list[tat.Pair]:
    draw = random.Random(0)

    def ids(longest: int) -> list[int]:
        return [draw.randint(4, 12) for _ in range(draw.randint(1, longest))]

    return [tat.Pair([*ids(6), tat.EOS], [tat.BOS, *ids(12), tat.EOS]) for _ in range(n)]


def caption_files(folder: Path, change: Callable[[str], str] = str, **sizes: int) -> Path:
    """The folder, with files of so many captions of each split."""
    folder.mkdir(exist_ok=True)
    first = {"train": 1000, "val": 0, "test": 500}  # where a split begins, which may be longer here
    for split, size in sizes.items():
        corpus = caption_corpus()[first[split] :][:size]
        for language, side in (("de", [c.de for c in corpus]), ("en", [c.en for c in corpus])):
            text = "".join(change(line) + "\n" for line in side)
            (folder / f"{split}.{language}").write_text(text, "utf-8")
    return folder


def greedy_by_hand(model: tat.Transformer, src: list[int], max_len: int) -> list[int]:
    """One sentence, no padding, cache or batch: the likeliest token after the prefix, until EOS."""
    ids = [tat.BOS]
    while len(ids) < max_len and ids[-1] != tat.EOS:
        tgt = torch.tensor([ids])
        logits = model(torch.tensor([src]), tgt, None, tat.subsequent_mask(len(ids)))
        ids.append(int(logits[0, -1].argmax()))
    return ids


def beam_by_hand(
    model: tat.Transformer, src: list[int], max_len: int, beam: int, alpha: float
) -> list[int]:
    """One sentence, no padding, no cache, no batch: lists of (log-probability, ids)."""
    source = torch.tensor([src])
    open_ends = [(0.0, [tat.BOS])]
    finished = []
    for t in range(1, max_len):
        extended = []
        for log_p, ids in open_ends:
            logits = model(source, torch.tensor([ids]), None, tat.subsequent_mask(len(ids)))
            step = logits[0, -1].log_softmax(-1)
            extended += [(log_p + gain, [*ids, token]) for token, gain in enumerate(step.tolist())]
        open_ends = []
        for log_p, ids in sorted(extended, reverse=True)[: beam - len(finished)]:
            if ids[-1] == tat.EOS or len(ids) == max_len:
                finished.append((log_p / ((5 + t) / 6) ** alpha, ids))
            else:
                open_ends.append((log_p, ids))
    return max(finished)[1]


def best_ids(results: list[list[Hypothesis]]) -> Tensor:
    """The best hypothesis of each source as ids (B, longest), PAD after EOS."""
    return tat.pad_rows([hypotheses[0].ids for hypotheses in results])


def greedy_ids(*inputs: Any, **options: Any) -> Tensor:
    """The program's greedy search, with the document's result."""
    return best_ids(fast_beam(*inputs, beam=1, alpha=0.6, **options))


def beam_ids(*inputs: Any, **options: Any) -> Tensor:
    """The program's beam search, with the document's result."""
    return best_ids(fast_beam(*inputs, **options))


def exhaustive_search(
    model: tat.Transformer, src: Tensor, max_len: int, alpha: float
) -> tuple[float, list[int]]:
    """The best score, and its sequence, of at most max_len tokens, BOS included; src (1, S)."""
    best = (-math.inf, [])
    open_ends = [([tat.BOS], 0.0)]
    while open_ends:
        ys, log_p = open_ends.pop()
        logits = model(src, torch.tensor([ys]), None, tat.subsequent_mask(len(ys)))
        step = logits[0, -1].log_softmax(-1)
        for token, gain in enumerate(step.tolist()):
            if token == tat.EOS or len(ys) + 1 == max_len:
                score = (log_p + gain) / tat.length_penalty(len(ys), alpha)
                best = max(best, (score, [*ys, token]))
            else:
                open_ends.append(([*ys, token], log_p + gain))
    return best


def counted(
    N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8, d_k: int | None = None
) -> int:
    """All layers' parameters, only from the paper's shapes; without pre-norm stacks' last norms."""
    attention = 2 * d_model * h * (d_k or d_model // h) + 2 * d_model * d_model
    ffn, norm = 2 * d_model * d_ff + d_ff + d_model, 2 * d_model
    return N * (attention + ffn + 2 * norm) + N * (2 * attention + ffn + 3 * norm)


def refused(capsys, command: str | list[str]) -> str:
    """The only line that a failing command prints; its exit status is 2."""
    capsys.readouterr()
    assert main(command.split() if isinstance(command, str) else command) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error


def same(ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> bool:
    """Whether two sets of named tensors agree in every bit."""
    return ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)


def decided(model: nn.Module) -> nn.Module:
    """The model with weights so large that it prefers some tokens, and ends anywhere or never."""
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)
    return model


READ = """import { readFileSync } from "node:fs";
const asked = JSON.parse(readFileSync(0, "utf8"));
"""


def node(script: str, asked: object) -> Any:
    """What a module prints in Node, as JSON; it has `asked`, and imports from blog/scripts."""
    options = {"stdout": subprocess.PIPE, "text": True, "encoding": "utf-8", "check": True}
    options |= {"cwd": SOURCES, "input": json.dumps(asked)}
    return json.loads(run_node("--input-type=module", "-e", READ + script, **options).stdout)


def wait_for(event: str, ready: Callable[[], object], seconds: float = 120) -> object:
    """What `found` returns, once it is true."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if result := ready():
            return result
        time.sleep(0.05)
    raise TimeoutError(f"{event}: nothing after {seconds} s")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        address = ("127.0.0.1", 0)
        sockets = [stack.enter_context(socket.create_server(address)) for _ in range(count)]
        return [opened.getsockname()[1] for opened in sockets]


@contextmanager
def started(command: list[str | Path], **options) -> Iterator[subprocess.Popen]:
    """A process that does not outlive the test, whatever happens."""
    with subprocess.Popen(command, **options) as process:
        try:
            yield process
        finally:
            process.terminate()


class Touch:
    """What a pickle can hold: a call, here of one that leaves a file behind."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def in_view(locator):
    """A locator's element, scrolled into view; what waits for a prediction opens, as after one."""
    locator.evaluate(
        "(element) => { const fold = element.closest('details.awaiting'); "
        "if (fold) fold.open = true; }"
    )
    locator.scroll_into_view_if_needed()
    return locator
