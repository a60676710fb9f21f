# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # The Annotated Transformer
#
# *Attention Is All You Need* ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)) replaced recurrence and
# convolution in sequence models by attention alone. The model it introduced, the Transformer, now stands behind
# nearly every system that reads or writes language. This document rebuilds it, section by section, as a program that
# you can run: first the architecture, then its training, then a German-English translator trained on real data, and
# in the end a look at what its attention does.
#
# > **How to read this.** Plain paragraphs restate what the paper says, in our words, with its section and equation
# > numbers. Paragraphs set like this one are our commentary: reasons, experience, what has changed since 2017, and
# > every place where the code departs from the paper. Each idea follows one beat: statement, equation, code, a
# > picture or a small printed tensor, and an assertion that would fail if the code were wrong.
# >
# > You need Python and some linear algebra; having seen a neural network trained helps. Everything runs on a laptop
# > without a GPU. The same text is a Jupyter notebook, an importable Python module and a command line
# > (`python the_annotated_transformer.py`).
#
# | part | what you will have at its end |
# |---|---|
# | 0 Prelims | the notation, the shapes, and all the settings in one place |
# | 1 Architecture | every block of the model, each checked |
# | 2 Training | batches, loss, optimiser; a model that learns to copy in under a minute |
# | 3 A real translation system | a translator trained on Multi30k, with one process or several, and its BLEU |
# | 4 What the paper also used | beam search, checked against exhaustive search, and averaged checkpoints |
# | 5 Results | the paper's tables, and ours from saved rows: quality, time, where the speed comes from |
# | 6 Looking inside | the three kinds of attention at work on a sentence of yours |
# | Appendix | each departure from the paper, and the command line |
#
# > Part 7, on what came after 2017, is not written yet.

# %% [markdown]
# # Part 0: Prelims
#
# > The next cell matters in Colab alone, where only the notebook arrives: it installs the packages that are missing
# > there, and never touches PyTorch.

# %% tags=["active-ipynb"]
# import importlib.util, sys
#
# needed = ["tokenizers", "spacy", "pooch", "sacrebleu", "sacremoses", "safetensors", "altair", "pandas", "tqdm", "cyclopts"]
# missing = [name for name in needed if importlib.util.find_spec(name) is None]
# if missing:
#     !{sys.executable} -m pip install --quiet {" ".join(missing)}

# %%
import builtins
import copy
import difflib
import functools
import gzip
import itertools
import json
import math
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import urllib.request
import zlib
from array import array
from collections import Counter, namedtuple
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from http.client import HTTPException
from pathlib import Path
from typing import Any, Literal, NamedTuple

import altair as alt
import numpy as np
import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import DataLoader
from tqdm import tqdm

# %% [markdown]
# > Links to this document's repository are made from one address. It is empty until the repository has a public home.

# %%
REPOSITORY = ""


# %% [markdown]
# > **Examples.** A cell that shows something is a function marked `@example`. In the notebook it runs at once and its
# > result appears below it. When the script is imported, it is only defined: an import prints nothing, downloads
# > nothing and draws no random number.


# %%
def in_notebook() -> bool:
    """True where this text runs as a notebook, false where it is imported or run as a script."""
    return __name__ == "__main__" and hasattr(builtins, "__IPYTHON__")


def example(function: Callable[[], Any]) -> Callable[[], Any]:
    """Run `function` and show its result if this is the notebook; otherwise only define it."""
    if in_notebook():
        shown = function()
        if shown is not None:
            from IPython.display import display

            display(shown)
    return function


# %% [markdown]
# > Everything runs on the processor, and on an accelerator if PyTorch finds one. `ANNOTATED_DEVICE=cpu` keeps to the
# > processor.


# %%
def best_device() -> torch.device:
    """The accelerator of this machine, or the CPU; in a torchrun process, the accelerator of its rank."""
    device = torch.accelerator.current_accelerator(check_available=True)
    if device is None or os.environ.get("ANNOTATED_DEVICE") == "cpu":
        return torch.device("cpu")
    if int(os.environ.get("LOCAL_WORLD_SIZE", 1)) > torch.accelerator.device_count():
        return torch.device("cpu")  # more processes than accelerators
    return torch.device(device.type, int(os.environ.get("LOCAL_RANK", 0)))


@example
def example_machine() -> None:
    """What this document runs on."""
    print(f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}, {best_device()}, {os.cpu_count()} CPU cores")


# %% [markdown]
# ## Names and shapes
#
# > Names are the paper's. A comment such as `# (B, h, T, d_k)` gives the shape of the tensor made on that line.
# >
# > | name | meaning | base model |
# > |---|---|---|
# > | `B` | sentences in a batch | |
# > | `S`, `T` | length of the source, length of the target | |
# > | `N` | layers in each of the two stacks | 6 |
# > | `d_model` | width of every vector that flows between layers | 512 |
# > | `d_ff` | inner width of the feed-forward layers | 2048 |
# > | `h` | attention heads | 8 |
# > | `d_k`, `d_v` | width of a query or key, width of a value, per head | 64 |
# > | `V` | entries in the vocabulary | about 37,000 |
# > | memory | the encoder's output, which every decoder layer reads | |
# > | `Q`, `K`, `V` | queries, keys and values (in attention formulas) | |
# >
# > Masks are boolean and **true means "may attend"**. Where a mask comes as 0 and 1, of any number type, 1 means the
# > same. Four symbols have fixed numbers in every vocabulary.

# %%
PAD, BOS, EOS, UNK = 0, 1, 2, 3  # padding, begin of sentence, end of sentence, unknown
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]


# %% [markdown]
# ## Configuration
#
# The paper's base model fixes these numbers (Sections 3 and 5, and the first row of Table 3).
#
# > All settings stand in one frozen dataclass whose defaults are the base model, but for the clipping of gradients, which
# > the paper does not mention. `dropout_after`, `accumulate`, `factor` and most of those after `smoothing` have no
# > counterpart in its text; the Appendix says why most of them exist. `big` is the paper's large model; `tiny` and `small` fit
# > 29,000 sentence pairs and a laptop.


# %%
@dataclass(frozen=True)
class Config:
    """Sizes and training settings; the defaults are the base model (Sections 3 and 5)."""

    N: int = 6  # layers in the encoder, and in the decoder
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    d_k: int = 0  # width of queries and keys in a head (3.2.2); 0: d_model / h
    positions: Literal["sinusoidal", "learned"] = "sinusoidal"  # (3.5)
    dropout: float = 0.1  # P_drop: on embeddings and on each sublayer's output (5.4)
    dropout_after: int = 0  # updates without any dropout at the beginning
    norm: Literal["post", "pre"] = "post"  # LayerNorm after the addition (3.1), or before the sublayer
    tie: Literal["none", "target", "all"] = "all"  # which embeddings share the output matrix (3.4)
    bpe: int = 37_000  # merges of the joint byte-pair encoding (5.1); 0: whole words
    tokens_per_batch: int = 25_000  # padded target (and source) tokens in one update, over all processes (5.1)
    accumulate: int = 1  # pieces that a process cuts its share of an update into, to save memory
    factor: float = 1.0  # scales the learning rate of Equation (3)
    warmup: int = 4000  # updates over which the rate rises (5.3)
    smoothing: float = 0.1  # eps_ls (5.4)
    r_drop: float = 0.0  # weight of the agreement of two passes with different dropout; 0: one pass
    r_drop_after: int = 0  # updates of one pass at the beginning, before R-Drop
    bpe_dropout: float = 0.0  # share of merges that are skipped at random while training; 0: none
    inner_dropout: float = 0.0  # on attention weights (6.3) and inside the feed-forward (the authors' code)
    optimizer: Literal["adam", "muon"] = "adam"  # (5.3), or Muon for the layers' matrices (Part 2)
    clip: float = 1.0  # largest norm of an update's gradient; 0: no limit
    ema: float = 0.0  # moving average of the weights; 0: none
    seed: int = 0


# %%
PRESETS = {
    "tiny": Config(
        N=4, d_model=128, d_ff=256, h=4, dropout=0.25, norm="pre",
        bpe=6000, tokens_per_batch=5000, optimizer="muon", factor=1.5, warmup=200, ema=0.999,
    ),
    "small": Config(
        N=3, d_model=256, d_ff=1024, h=8, dropout=0.3, norm="pre",
        bpe=6000, tokens_per_batch=5000, optimizer="muon", warmup=100, ema=0.999,
    ),
    "base": Config(),
    "big": Config(d_model=1024, d_ff=4096, h=16, dropout=0.3),
}  # fmt: skip


# %% [markdown]
# ## Charts
#
# > Three helpers draw nearly all the charts, so that each chart takes a few lines where it is used.


# %%
def heatmap(
    values: Tensor, rows: list[str], columns: list[str], title: str = "", axes: tuple[str, str] = ("query", "key")
):
    """A chart of the matrix `values` (rows, columns), one labelled square per entry."""
    assert values.shape == (len(rows), len(columns)), (
        f"{tuple(values.shape)} for {len(rows)} rows, {len(columns)} columns"
    )
    numbers = values.detach().float().tolist()
    names = [[f"{i} {name}" for i, name in enumerate(side)] for side in (rows, columns)]
    cells = [(r, c, round(numbers[i][j], 4)) for i, r in enumerate(names[0]) for j, c in enumerate(names[1])]
    base = alt.Chart(pd.DataFrame(cells, columns=["row", "column", "value"]))
    return (
        base.mark_rect()
        .encode(
            alt.X("column:O", sort=None, title=axes[1], axis=alt.Axis(labelAngle=-60)),
            alt.Y("row:O", sort=None, title=axes[0]),
            alt.Color("value:Q", title=None, scale=alt.Scale(scheme="blues")),
            tooltip=["row", "column", "value"],
        )
        .properties(title=title, width=18 * len(columns), height=18 * len(rows))
    )


# %%
def curves(rows: list[dict], x: str, y: str, colour: str, log_y: bool = False, width: int = 480) -> alt.Chart:
    """Lines of column `y` over column `x`, one per value of column `colour`; click the legend to pick one."""
    pick = alt.selection_point(name=f"pick {y}".replace(" ", "_"), fields=[colour], bind="legend")
    lines = alt.Chart(pd.DataFrame(rows)).mark_line(point=len(rows) < 60, strokeWidth=2)
    return lines.encode(
        alt.X(f"{x}:Q"),
        alt.Y(f"{y}:Q", scale=alt.Scale(type="log" if log_y else "linear", zero=False)),
        alt.Color(f"{colour}:N"),
        opacity=alt.condition(pick, alt.value(1), alt.value(0.15)),
        tooltip=[x, y, colour],
    ).add_params(pick).properties(width=width, height=240)  # fmt: skip


def bars(rows: list[dict], x: str, y: str, colour: str) -> alt.Chart:
    """Bars of column `y` for each value of column `x`, side by side for the values of column `colour`."""
    chart = alt.Chart(pd.DataFrame(rows)).mark_bar()
    encoding = chart.encode(
        alt.X(f"{x}:O", sort=None),
        alt.Y(f"{y}:Q"),
        alt.Color(f"{colour}:N"),
        xOffset=f"{colour}:N",
        tooltip=[x, y, colour],
    )
    return encoding.properties(width=480, height=220)


# %% [markdown]
# # Part 1: Architecture
#
# ## Background (Sections 1 and 2)
#
# Until 2017 the best translation systems were recurrent networks with attention, which convolutional ones were just
# overtaking. A recurrent network computes its state at position *t* from its state at position *t* − 1, so the positions of one sentence cannot be computed side by
# side, and the longer the sentence the more that hurts. Convolutional models (ByteNet, ConvS2S) do compute all
# positions at once, but the number of operations between two distant positions grows with their distance:
# logarithmically in ByteNet, linearly in ConvS2S. That makes dependencies over long distances hard to learn.
#
# The Transformer relates any two positions by a constant number of operations. The cost of it is that averaging over
# positions blurs detail; several attention heads, each free to look elsewhere, make up for this. *Self-attention*
# relates the positions of one sequence to each other; it had served reading comprehension, summarisation and
# entailment before, mostly beside recurrence. To the authors' knowledge the Transformer was the first sequence
# transducer to rely on it entirely.
#
# ## Encoder and decoder (Section 3)
#
# An *encoder* maps the source symbols $(x_1, \dots, x_S)$ to vectors $\mathbf{z} = (z_1, \dots, z_S)$. A *decoder*
# then produces the target symbols $(y_1, \dots, y_T)$ one at a time. It is *autoregressive*: each step reads the
# symbols produced so far.
#
# ![The Transformer: on the left the encoder stack with self-attention and feed-forward sublayers, on the right the decoder stack with masked self-attention, attention to the encoder's output, and feed-forward sublayers; embeddings and positional encodings below, linear layer and softmax above](images/architecture.svg)
#
# *The Transformer, after the paper's Figure 1. Every box of it is a class below.*
#
# > The skeleton first. It says what flows where and nothing of how: two embeddings, an encoder, a decoder and a
# > generator that scores the vocabulary. Two things are often misread: it is the output of the *last* encoder layer
# > that *every* decoder layer attends to; and `forward` ends with scores (logits) for every target position at once,
# > because in training the whole target is known.


# %%
class Transformer(nn.Module):
    """Encoder, decoder, embeddings and generator put together (Section 3, Figure 1)."""

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, src_embed: nn.Module, tgt_embed: nn.Module, generator: nn.Module
    ):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed = src_embed, tgt_embed
        self.generator = generator

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
        """Source ids (B, S) with mask (B, 1, S) to memory (B, S, d_model)."""
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory: Tensor, src_mask: Tensor | None, tgt: Tensor, tgt_mask: Tensor | None) -> Tensor:
        """Target ids (B, T) with mask (B, T, T) to vectors (B, T, d_model)."""
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        """Logits (B, T, V) of the symbol that follows each target position."""
        return self.generator.logits(self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask))


# %% [markdown]
# The decoder's vectors become probabilities through one linear map and a softmax (Section 3.4).
#
# > Which form where? Training needs *logits*: the loss applies its own, numerically safe log-softmax. Search adds up
# > *log-probabilities*. Plain probabilities are for people. (For search, which asks again and again, `padded` first
# > rounds the number of symbols up to a multiple of 64, so that each row of scores fills whole vectors of the processor,
# > and transposes the matrix once and for all. The same product then takes an eighth to a quarter less time. The additional
# > symbols have probability 0.)


# %%
class Generator(nn.Module):
    """The linear layer and softmax on top of the decoder (Section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised scores (..., V)."""
        return self.proj(x)

    def padded(self) -> Callable[[Tensor], Tensor]:
        """`logits` of rows (R, d_model) for many calls: (R, V rounded up to a multiple of 64), -inf beyond V.

        A generator with other `logits` needs another `padded`, too.
        """
        size, bias = len(self.proj.weight), self.proj.bias
        weight = F.pad(self.proj.weight, (0, 0, 0, -size % 64)).t().contiguous()

        def logits(x: Tensor) -> Tensor:
            scores = x @ weight
            if bias is not None:
                scores[:, :size] += bias
            scores[:, size:] = -torch.inf
            return scores

        return logits

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (..., V)."""
        return self.logits(x).log_softmax(dim=-1)


# %% [markdown]
# ## Stacks, residuals and normalisation (Section 3.1)
#
# **Layer normalisation** (Ba et al., 2016) gives each vector mean 0 and variance 1 over its `d_model` entries, then
# rescales them by a learned gain $\gamma$ and bias $\beta$:
#
# $$\mathrm{LayerNorm}(x) = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta, \qquad
#   \mu = \frac{1}{d}\sum_i x_i, \quad \sigma^2 = \frac{1}{d}\sum_i (x_i - \mu)^2$$
#
# > The variance divides by $d$, not by $d - 1$, and $\epsilon$ stands inside the root. Why not batch normalisation?
# > In training its statistics run over the batch, so what one sentence teaches would depend on the others beside it and
# > on their padding; in use it falls back on stored averages, which fit badly where lengths and positions vary.


# %%
def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise the last dimension, then scale and shift it (Ba et al., 2016)."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


# %%
@example
def example_layer_norm() -> None:
    """Ours equals PyTorch's, which the model uses because it is one fused kernel."""
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0], [2.0, 4.0, 6.0, 8.0]])
    ours = layer_norm(x, torch.ones(4), torch.zeros(4))
    print(ours)
    torch.testing.assert_close(ours, nn.LayerNorm(4)(x))


# %% [markdown]
# **Dropout** (Srivastava et al., 2014; Section 5.4) sets each entry to zero with probability $P_{\text{drop}}$ during
# training, and multiplies the others by $1 / (1 - P_{\text{drop}})$ so that the expectation stays the same.
#
# > This is `nn.Dropout`. On a CPU, PyTorch draws one random number per entry, which takes about a tenth of the time
# > of training a small model. A 64-bit random number has room for four decisions of 16 bits each, so there we draw a
# > quarter as many. The probability is then exact to 1/65536.


# %%
class Dropout(nn.Dropout):
    """Dropout (Section 5.4), with four decisions to a random number on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """x with entries dropped if in training; any shape."""
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or self.p > 0.999:
            return super().forward(x)
        numbers = torch.empty((x.numel() + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
        bits = numbers.view(torch.int16)[: x.numel()].view(x.shape)  # uniform from -32768 to 32767
        return x * (bits >= round(self.p * 65536) - 32768).to(x.dtype).mul_(1 / (1 - self.p))


# %%
@example
def example_dropout() -> None:
    """A quarter of the entries vanishes, the mean stays, and the gradient has the same holes."""
    torch.manual_seed(0)
    x = torch.ones(1000, 1000, requires_grad=True)
    y = Dropout(0.25)(x)
    y.sum().backward()
    print(f"dropped {(y == 0).float().mean():.4f}, mean {y.mean():.4f}, values {y.unique().tolist()}")
    assert abs((y == 0).float().mean() - 0.25) < 0.002 and torch.equal(x.grad, y)
    assert torch.equal(Dropout(0.25).eval()(x), x)


# %% [markdown]
# **Residual connections** (He et al., 2016) surround every sublayer, and the normalisation follows the addition.
# Dropout applies to the sublayer's output before it is added (Section 5.4):
#
# $$\mathrm{LayerNorm}(x + \mathrm{Dropout}(\mathrm{Sublayer}(x)))$$
#
# > This is *post-norm*, what the paper says. The authors' own code soon moved to *pre-norm*,
# > $x + \mathrm{Dropout}(\mathrm{Sublayer}(\mathrm{LayerNorm}(x)))$, and so did most models since. The earlier
# > editions of this document printed one and ran the other. Here both stand behind one switch, `norm="post"` (the
# > default of `make_model`) or `norm="pre"`.
# >
# > With pre-norm nothing on the path from input to output is ever normalised, so the vectors grow from layer to
# > layer; one more LayerNorm at the end of each stack brings them back to size. With post-norm the last sublayer
# > already ends in one, and a second would do nothing useful.


# %%
class SublayerConnection(nn.Module):
    """A residual connection around a sublayer, with dropout and LayerNorm (Sections 3.1 and 5.4)."""

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = Dropout(dropout)
        self.pre = norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `sublayer` to x (B, T, d_model); the result has the same shape."""
        if self.pre:
            return x + self.dropout(sublayer(self.norm(x)))
        return self.norm(x + self.dropout(sublayer(x)))


# %%
@example
def example_residual() -> None:
    """A sublayer that returns zero: pre-norm passes x on untouched, post-norm still normalises it."""
    x = torch.tensor([[[1.0, 2.0, 3.0, 6.0]]])
    for norm in ("pre", "post"):
        print(norm, SublayerConnection(4, 0.1, norm).eval()(x, torch.zeros_like))
    assert torch.equal(SublayerConnection(4, 0.1, "pre").eval()(x, torch.zeros_like), x)


# %% [markdown]
# **The encoder** is a stack of $N = 6$ identical layers. Each has two sublayers: self-attention, then a small
# feed-forward network. All sublayers and the embeddings have outputs of width $d_{\text{model}} = 512$, which the
# additions need.
#
# > Identical in shape, not in weights. Each layer is built afresh and so draws its own initial weights; copying one
# > layer $N$ times would start them all equal.


# %%
class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (Section 3.1)."""

    def __init__(self, d_model: int, self_attn: nn.Module, feed_forward: nn.Module, dropout: float, norm: str):
        super().__init__()
        self.self_attn, self.feed_forward = self_attn, feed_forward
        self.sublayer = nn.ModuleList(SublayerConnection(d_model, dropout, norm) for _ in range(2))

    def forward(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        """x (B, S, d_model), src_mask (B, 1, S)."""
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, src_mask))
        return self.sublayer[1](x, self.feed_forward)


# %%
class Encoder(nn.Module):
    """A stack of N encoder layers (Section 3.1); `norm` closes a pre-norm stack."""

    def __init__(self, layers: list[nn.Module], norm: nn.Module):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x: Tensor, src_mask: Tensor | None) -> Tensor:
        """Embedded source (B, S, d_model) to memory (B, S, d_model)."""
        for layer in self.layers:
            x = layer(x, src_mask)
        return self.norm(x)


# %% [markdown]
# **The decoder** is a stack of $N = 6$ layers too. Between self-attention and feed-forward each has a third sublayer,
# which attends to the encoder's output. Its self-attention is masked: position $i$ may attend to positions up to $i$
# and not beyond. Together with targets shifted by one, this makes the prediction at $i$ depend on the symbols before
# $i$ alone.


# %%
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then feed-forward (Section 3.1)."""

    def __init__(
        self,
        d_model: int,
        self_attn: nn.Module,
        src_attn: nn.Module,
        feed_forward: nn.Module,
        dropout: float,
        norm: str,
    ):
        super().__init__()
        self.self_attn, self.src_attn, self.feed_forward = self_attn, src_attn, feed_forward
        self.sublayer = nn.ModuleList(SublayerConnection(d_model, dropout, norm) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        """x (B, T, d_model), memory (B, S, d_model), src_mask (B, 1, S), tgt_mask (B, T, T)."""
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)


# %%
class Decoder(nn.Module):
    """A stack of N decoder layers (Section 3.1); `norm` closes a pre-norm stack."""

    def __init__(self, layers: list[nn.Module], norm: nn.Module):
        super().__init__()
        self.layers, self.norm = nn.ModuleList(layers), norm

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        """Embedded target (B, T, d_model) and memory (B, S, d_model) to vectors (B, T, d_model)."""
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


# %% [markdown]
# ## Attention (Section 3.2)
#
# An attention function takes a query and a set of key-value pairs. Its output is a weighted sum of the values; the
# weight of each value measures how well its key fits the query. Queries, keys, values and outputs are all vectors.
#
# > A library search makes a fair picture. The *query* is what you ask for, a *key* is what stands on the spine of a
# > book, its *value* is what stands inside. The answer is not one book but a blend of all, each weighed by how well
# > its spine fits. In the Transformer all three are linear images of the same kind of vectors, and the training
# > decides what they ask and advertise. The separate projection of values lets a position *say* something else than
# > what it is *found by*.
#
# ### Scaled dot-product attention (Section 3.2.1)
#
# ![Scaled dot-product attention: queries and keys are multiplied, scaled, optionally masked, put through a softmax, and the weights multiply the values](images/scaled_dot_product_attention.svg)
#
# *After the paper's Figure 2, left.*
#
# The fit of a query and a key is their dot product, divided by $\sqrt{d_k}$. A softmax over the keys turns the fits
# into weights. All queries together, packed as rows of a matrix $Q$, keys and values likewise:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)V \tag{1}$$
#
# > The mask enters before the softmax: a key that may not be attended gets the score $-\infty$ and so the weight
# > zero, exactly. The earlier editions used −10⁹ instead, which a float16 cannot hold. The returned weights are those
# > before dropout, the ones that a picture should show.


# %%
def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: Callable | None = None
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, Equation (1): the output (..., T, d_v) and the weights (..., T, S).

    query (..., T, d_k), key (..., S, d_k), value (..., S, d_v); mask broadcasts to (..., T, S), true or 1 = may attend.
    A query that may attend to no key at all gets NaN: there is nothing to average. (Fused kernels may give zeros.)
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -torch.inf)
    weights = scores.softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, weights


# %% [markdown]
# > A case small enough for mental arithmetic. The query fits the first key, so the output lies near the first value;
# > with the first key masked, the two others share the weight equally.


# %%
@example
def example_attention() -> None:
    """One query over three keys, with and without a mask; the fused kernel agrees."""
    Q = torch.tensor([[4.0, 0.0]])  # (T=1, d_k=2)
    K = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # (S=3, d_k=2)
    V = torch.tensor([[10.0, 0.0], [0.0, 10.0], [0.0, 20.0]])  # (S=3, d_v=2)
    for mask in (torch.tensor([[1, 1, 1]]), torch.tensor([[0, 1, 1]])):
        output, weights = attention(Q, K, V, mask)
        print("mask", mask.tolist()[0], "weights", weights.numpy().round(3)[0], "output", output.numpy().round(3)[0])
        fused = F.scaled_dot_product_attention(Q[None], K[None], V[None], attn_mask=mask.bool())[0]
        torch.testing.assert_close(output, fused)
    torch.testing.assert_close(output, torch.tensor([[0.0, 15.0]]))


# %% [markdown]
# Why divide by $\sqrt{d_k}$? If the entries of $q$ and $k$ are independent with mean 0 and variance 1, their dot
# product $\sum_i q_i k_i$ has mean 0 and variance $d_k$. Large scores push the softmax where its gradient is tiny;
# the division keeps the variance at 1. (The alternative, additive attention, scores by a small network; it does
# better than *unscaled* dot products for large $d_k$ but is slower.)
#
# > Below, 64 random keys compete for one query. Without the division, one key takes nearly all the weight as $d_k$
# > grows, and hardly any gradient reaches the scores: the slopes $p_k (1 - p_k)$ of the weights, each by its own score,
# > go to 0 altogether. With it, hardly anything depends on $d_k$.


# %%
def softmax_saturation(d_k: int, scale: float, trials: int = 500, keys: int = 64) -> dict[str, float]:
    """The largest weight and the sum of all slopes of a softmax, averaged over random queries and keys (Section 3.2.1)."""
    torch.manual_seed(0)
    scores = (torch.randn(trials, 1, d_k) * torch.randn(trials, keys, d_k)).sum(-1) * scale  # (trials, keys)
    p = scores.softmax(-1)
    return {"largest weight": p.amax(-1).mean().item(), "sum of the slopes": (p * (1 - p)).sum(-1).mean().item()}


# %%
@example
def example_scaling() -> alt.Chart:
    """The softmax saturates with the width of the keys, unless the scores are scaled."""
    rows = []
    for d_k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        for name, scale in (("not divided", 1.0), ("divided by √d_k", d_k**-0.5)):
            rows.append({"d_k": d_k, "scores": name, **softmax_saturation(d_k, scale)})
    assert rows[-2]["largest weight"] > 0.9 > 0.2 > rows[-1]["largest weight"]
    assert rows[-2]["sum of the slopes"] < 0.2 < 0.9 < rows[-1]["sum of the slopes"]
    return curves(rows, "d_k", "largest weight", "scores") | curves(rows, "d_k", "sum of the slopes", "scores")


# %% [markdown]
# ### The masks (Section 3.2.3)
#
# Attention is used in three ways. In *encoder self-attention* queries, keys and values come from the layer below, and
# every source position may attend to every other. In *decoder self-attention* each position may attend to itself and
# the positions before it. In *encoder-decoder attention* (cross-attention) the queries come from the decoder and the
# keys and values from the encoder's output, so that each target position may attend to the whole source.
#
# > Padding adds a second reason to mask: sentences in a batch have different lengths, and the filled-up positions
# > must not be attended to. Masks always rule out **keys**, that is columns. The rows, queries, belong to positions
# > that receive an answer; the answer at a padded position is computed and never used.


# %%
def subsequent_mask(size: int) -> Tensor:
    """The causal mask (1, size, size), true on and below the diagonal (Section 3.1)."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


def source_mask(src: Tensor, pad: int = PAD) -> Tensor:
    """Which source positions (B, S) may be attended to: (B, 1, S), the same for every query."""
    return (src != pad).unsqueeze(-2)


def target_mask(tgt: Tensor, pad: int = PAD) -> Tensor:
    """Which target positions (B, T) each target position may attend to: not padding, and not the future (B, T, T)."""
    return source_mask(tgt, pad) & subsequent_mask(tgt.size(-1)).to(tgt.device)


# %%
@example
def example_masks() -> alt.HConcatChart:
    """The three masks of a batch whose sentences end in padding: blue may be attended to."""
    src, tgt = torch.tensor([[5, 6, 7, EOS, PAD, PAD]]), torch.tensor([[BOS, 8, 9, 10, PAD]])
    source, target = ["5", "6", "7", "</s>", "pad", "pad"], ["<s>", "8", "9", "10", "pad"]
    masks = {"encoder": source_mask(src), "decoder": target_mask(tgt), "cross": source_mask(src)}
    print({kind: tuple(mask.shape) for kind, mask in masks.items()})
    assert masks["decoder"][0].sum() == 1 + 2 + 3 + 4 + 4  # the last row is a padded query: it sees the four real keys
    shown = {"encoder": (source, source), "decoder": (target, target), "cross": (target, source)}
    charts = [
        heatmap(masks[k][0].expand(len(q), len(s)), q, s, f"{k} {tuple(masks[k].shape)}") for k, (q, s) in shown.items()
    ]
    return alt.hconcat(*charts).resolve_scale(color="shared")


# %% [markdown]
# > Two masks have one row because all queries share it; it broadcasts. They combine by *and*: a target key must be
# > real **and** not in the future.
# >
# > Why leave padded *rows* open? Because a row with every key masked has no softmax: each of its scores is $-\infty$
# > and the result is 0/0. The NaN would spread through the next layer to the whole sentence, gradients included. An
# > open padded row is harmless: nobody attends to it (its column is masked) and its prediction is left out of the
# > loss.


# %%
@example
def example_masked_row() -> None:
    """Masking a padded query's row gives NaN; leaving it open changes nothing for the real positions."""
    torch.manual_seed(0)
    x, real = torch.randn(1, 4, 8), torch.tensor([[1, 1, 1, 0]])
    open_rows, closed_rows = real.unsqueeze(-2), real.unsqueeze(-2) * real.unsqueeze(-1)  # (1, 1, 4), (1, 4, 4)
    print("open   row 3:", attention(x, x, x, open_rows)[0][0, 3, :4])
    print("closed row 3:", attention(x, x, x, closed_rows)[0][0, 3, :4])
    assert attention(x, x, x, closed_rows)[0][0, 3].isnan().all()
    torch.testing.assert_close(attention(x, x, x, open_rows)[0][:, :3], attention(x[:, :3], x[:, :3], x[:, :3])[0])


# %% [markdown]
# ### Multi-head attention (Section 3.2.2)
#
# ![Multi-head attention: queries, keys and values are each projected h times, scaled dot-product attention runs in every head, and the concatenated outputs are projected once more](images/multi_head_attention.svg)
#
# *After the paper's Figure 2, right.*
#
# One attention over vectors of width $d_{\text{model}}$ yields one set of weights, and averaging limits what it can
# say. It pays to project queries, keys and values $h$ times with different learned maps, attend in each of these
# smaller spaces in parallel, concatenate the results and project once more:
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h)\,W^O, \qquad
#   \mathrm{head}_i = \mathrm{Attention}(QW_i^Q, KW_i^K, VW_i^V)$$
#
# with $W_i^Q, W_i^K \in \mathbb{R}^{d_{\text{model}} \times d_k}$,
# $W_i^V \in \mathbb{R}^{d_{\text{model}} \times d_v}$ and $W^O \in \mathbb{R}^{h d_v \times d_{\text{model}}}$. The
# paper takes $h = 8$ and $d_k = d_v = d_{\text{model}} / h = 64$. Because each head is narrower, the cost is about
# that of one head of full width.
#
# > **One matrix or $h$ small ones?** Both: the $h$ matrices $W_i^Q$ standing side by side *are* one
# > $d_{\text{model}} \times h d_k$ matrix, and one large multiplication is faster than $h$ small ones. So `W_q` is a
# > single linear layer whose output is cut into heads. Cutting up the *input* instead would be something else: there
# > each head would see only a slice of the vector. The check below compares with $h$ separate matrices.
# >
# > **Why $W^O$?** Concatenation gives each head its own slice of the output. $W^O$ mixes them, so that every head can
# > write to every entry of the vector.
# >
# > The class computes Equation (1) with PyTorch's fused kernel, which never stores the weights. When weights are
# > wanted for a picture, it takes the plain function.


# %%
def split_heads(x: Tensor, h: int) -> Tensor:
    """Cut the last dimension into h heads: (B, T, h * d) to (B, h, T, d)."""
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


# %%
class MultiHeadedAttention(nn.Module):
    """Multi-head attention with named projections (Section 3.2.2, Figure 2).

    d_k: the width of queries and keys per head; by default d_model / h. Raises ValueError if h does not divide d_model.
    """

    def __init__(self, h: int, d_model: int, dropout: float = 0.0, d_k: int | None = None):
        super().__init__()
        if h < 1 or d_model % h:
            raise ValueError(f"d_model must be a multiple of h, but d_model = {d_model} and h = {h}")
        self.h, d_v = h, d_model // h
        d_k = d_v if d_k is None else d_k
        self.W_q = nn.Linear(d_model, h * d_k, bias=False)
        self.W_k = nn.Linear(d_model, h * d_k, bias=False)
        self.W_v = nn.Linear(d_model, h * d_v, bias=False)
        self.W_o = nn.Linear(h * d_v, d_model, bias=False)
        self.dropout = Dropout(dropout)
        self.recorded: list[Tensor] | None = None  # where `recording` collects weights

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query (B, T, d_model), key and value (B, S, d_model), mask (B or 1, T or 1, S); returns (B, T, d_model)."""
        if mask is not None and mask.dim() != 3:
            raise ValueError(f"a mask has the shape (B or 1, T or 1, S), but this one has {tuple(mask.shape)}")
        mask = None if mask is None else (mask != 0).unsqueeze(1)  # (B, 1, T, S): one mask for all heads
        Q, K, V = (split_heads(x, self.h) for x in (self.W_q(query), self.W_k(key), self.W_v(value)))  # (B, h, ...)
        if self.recorded is None:
            p = self.dropout.p if self.training else 0.0
            x = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, dropout_p=p)  # (B, h, T, d_v)
        else:
            x, weights = attention(Q, K, V, mask, self.dropout)
            self.recorded.append(weights.detach())  # (B, h, T, S)
        return self.W_o(x.transpose(1, 2).flatten(2))  # (B, T, d_model)


# %% [markdown]
# > The check, with the $h$ matrices cut out of the wide ones:


# %%
@example
def example_heads() -> None:
    """One wide projection equals h separate ones, head by head."""
    torch.manual_seed(0)
    h, d_model, x = 4, 32, torch.randn(2, 5, 32)
    layer = MultiHeadedAttention(h, d_model)
    W_q, W_k, W_v = (W.weight.T.chunk(h, dim=1) for W in (layer.W_q, layer.W_k, layer.W_v))  # h times (d_model, d_k)
    heads = [attention(x @ W_q[i], x @ W_k[i], x @ W_v[i])[0] for i in range(h)]  # h times (B, T, d_v)
    print(
        "W_i^Q", tuple(W_q[0].shape), "head_i", tuple(heads[0].shape), "concatenated", tuple(torch.cat(heads, -1).shape)
    )
    torch.testing.assert_close(layer(x, x, x), torch.cat(heads, dim=-1) @ layer.W_o.weight.T)


# %% [markdown]
# > Is it true that the number of heads does not change the cost? Parameters and multiplications are the same for
# > every $h$ that divides $d_{\text{model}}$; what changes is only how many separate softmaxes there are.


# %%
@example
def example_head_cost() -> None:
    """The parameters of one attention layer do not depend on h."""
    counts = {h: sum(p.numel() for p in MultiHeadedAttention(h, 512).parameters()) for h in (1, 4, 8, 16, 32)}
    print("parameters by number of heads:", counts)
    assert set(counts.values()) == {4 * 512 * 512}


# %% [markdown]
# ## Position-wise feed-forward networks (Section 3.3)
#
# The other sublayer of each layer acts on every position separately, with the same weights: two linear maps with a
# ReLU between them.
#
# $$\mathrm{FFN}(x) = \max(0,\; xW_1 + b_1)\,W_2 + b_2 \tag{2}$$
#
# Input and output have width $d_{\text{model}} = 512$, the inner layer has $d_{\text{ff}} = 2048$. Each layer of the
# stack has its own weights. The same can be seen as two convolutions of kernel size 1.
#
# > Attention moves information between positions and is, given its weights, linear in the values. The feed-forward
# > network is where each position *computes* with what it gathered. It holds two thirds of an encoder layer's
# > parameters.


# %%
class PositionwiseFeedForward(nn.Module):
    """The feed-forward network of Equation (2)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) to (B, T, d_model), each position for itself."""
        return self.W_2(self.dropout(self.W_1(x).relu()))


# %%
@example
def example_feed_forward() -> None:
    """Each position for itself: shuffling the positions shuffles the outputs. It also is two convolutions."""
    torch.manual_seed(0)
    ffn, x, order = PositionwiseFeedForward(8, 32), torch.randn(1, 5, 8), torch.tensor([3, 1, 4, 0, 2])
    torch.testing.assert_close(ffn(x)[:, order], ffn(x[:, order]))
    inner = F.conv1d(x.mT, ffn.W_1.weight[..., None], ffn.W_1.bias).relu()  # (B, d_ff, T)
    torch.testing.assert_close(ffn(x), F.conv1d(inner, ffn.W_2.weight[..., None], ffn.W_2.bias).mT)
    print(f"{sum(p.numel() for p in PositionwiseFeedForward(512, 2048).parameters()):,} parameters in the base model's")


# %% [markdown]
# ## Embeddings and softmax (Section 3.4)
#
# Learned embeddings turn source and target symbols into vectors of width $d_{\text{model}}$. One matrix serves three
# times: as source embedding, as target embedding, and as the linear map before the softmax. In the embedding layers
# its entries are multiplied by $\sqrt{d_{\text{model}}}$.
#
# > **Why multiply?** The two uses of the shared matrix want different sizes. As output layer, a row is dotted with a
# > decoder vector whose entries are about 1; for the logits to start near size 1, the row needs entries of standard
# > deviation $d_{\text{model}}^{-1/2}$. As input, a vector of such small entries would drown in the positional
# > encoding, whose entries have a root mean square of $\sqrt{1/2} \approx 0.71$. Multiplying by
# > $\sqrt{d_{\text{model}}}$ brings the input to size 1. So the factor belongs to an initialisation, and `make_model`
# > below draws the matrix with exactly that standard deviation. (Glorot's initialisation, which the earlier editions
# > applied here, makes the size depend on the vocabulary.)
# >
# > **How can three places share one matrix?** All three have one row of width $d_{\text{model}}$ per symbol. Reading
# > a symbol in is looking its row up; scoring it is the dot product of the decoder's vector with that row.


# %%
class Embeddings(nn.Module):
    """Learned embeddings, scaled by the root of d_model (Section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.table = nn.Embedding(vocab, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, T) to vectors (B, T, d_model)."""
        return self.table(x) * self.scale


# %% [markdown]
# ## Positional encoding (Section 3.5)
#
# Attention knows no order: shuffle the keys with their values, and the result is the same. So a vector that depends
# on the position is added to each embedding at the bottom of both stacks. The paper uses sines and cosines of
# geometrically spaced frequencies; dimension pair $i$ has a wavelength between $2\pi$ and $10000 \cdot 2\pi$:
#
# $$PE_{(pos,\,2i)} = \sin\left(pos / 10000^{2i/d_{\text{model}}}\right), \qquad
#   PE_{(pos,\,2i+1)} = \cos\left(pos / 10000^{2i/d_{\text{model}}}\right)$$
#
# For any fixed offset $k$, $PE_{pos+k}$ is a linear function of $PE_{pos}$, which should make it easy to attend by
# relative position. Learned positions gave nearly the same results (Table 3, row E); the sinusoids were kept because
# they may extend to lengths never seen in training.
#
# > The function computes the frequencies as $\exp(-2i \ln(10000) / d_{\text{model}})$, which is the same number: a
# > power is an exponential of a logarithm. There is no longest sentence, since a position's vector is computed when
# > it is first needed.


# %%
def positional_encoding(length: int, d_model: int) -> Tensor:
    """The sinusoidal encodings of positions 0 to length - 1: (length, d_model) (Section 3.5).

    Raises ValueError for an odd d_model: sines and cosines come in pairs.
    """
    if d_model % 2:
        raise ValueError(f"d_model must be even for pairs of sine and cosine, but it is {d_model}")
    frequency = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))  # (d_model / 2)
    angle = torch.arange(length).unsqueeze(1) * frequency  # (length, d_model / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)  # sine, cosine, sine, cosine, ...


# %% [markdown]
# > The module keeps the table between calls and makes a longer one when needed. The table is no parameter, can be
# > recomputed at any time, and so stays out of checkpoints.


# %%
class PositionalEncoding(nn.Module):
    """Adds positional encodings, then applies dropout (Sections 3.5 and 5.4)."""

    def __init__(self, d_model: int, dropout: float):
        super().__init__()
        self.dropout = Dropout(dropout)
        self.register_buffer("table", positional_encoding(256, d_model), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model) holds positions start to start + T - 1."""
        end = start + x.size(1)
        table = self.table
        if end > len(table):
            table = self.table = positional_encoding(2 * end, x.size(-1)).to(table)
        return self.dropout(x + table[start:end].to(x.dtype))


# %% [markdown]
# > **Learned positions** (row E of Table 3) are a second embedding, by position in place of symbol. Nothing multiplies
# > them by $\sqrt{d_{\text{model}}}$: they start small beside the symbols, and grow as they are learned. The embedding has
# > to end somewhere, and so has every sentence.


# %%
class LearnedPositions(nn.Module):
    """Adds a learned vector for each position, then applies dropout (Section 3.5; Table 3, row E)."""

    def __init__(self, d_model: int, dropout: float, longest: int = 512):
        super().__init__()
        self.dropout, self.table = Dropout(dropout), nn.Embedding(longest, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model) holds positions start to start + T - 1; raises ValueError beyond the last that is learned."""
        end, longest = start + x.size(1), self.table.num_embeddings
        if end > longest:
            raise ValueError(f"a sentence has {end} symbols or more, but only {longest} positions are learned")
        return self.dropout(x + self.table.weight[start:end])


# %%
class EmbeddingsWithPositions(nn.Module):
    """What stands below each stack: embeddings plus positional encoding (Figure 1)."""

    def __init__(self, embeddings: Embeddings, positions: PositionalEncoding | LearnedPositions):
        super().__init__()
        self.embeddings, self.positions = embeddings, positions

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids (B, T) to vectors (B, T, d_model); `start` is the position of the first."""
        return self.positions(self.embeddings(ids), start)


# %% [markdown]
# > Each position gets a pattern of its own. Low dimensions turn quickly, high ones slowly, like the digits of a
# > number.


# %%
@example
def example_positions() -> alt.HConcatChart:
    """The encodings of 100 positions, and four of their dimensions as curves."""
    table = positional_encoding(100, 32)
    rows = [
        {"position": p, "value": table[p, d].item(), "dimension": str(d)} for p in range(100) for d in (4, 5, 10, 11)
    ]
    picture = heatmap(
        table[::4], [str(p) for p in range(0, 100, 4)], [str(d) for d in range(32)], axes=("position", "dimension")
    )
    assert table[0].tolist() == [0.0, 1.0] * 16
    return picture.properties(width=320, height=240) | curves(rows, "position", "value", "dimension", width=320)


# %% [markdown]
# > **Why sine *and* cosine?** Together they are a point on a circle, and moving on by $k$ positions turns the circle
# > by an angle that depends on $k$ alone. One rotation matrix per offset serves all positions:
# >
# > $$\begin{pmatrix} \sin(\omega(p + k)) \\ \cos(\omega(p + k)) \end{pmatrix} =
# >   \begin{pmatrix} \cos \omega k & \sin \omega k \\ -\sin \omega k & \cos \omega k \end{pmatrix}
# >   \begin{pmatrix} \sin \omega p \\ \cos \omega p \end{pmatrix}$$


# %%
@example
def example_rotation() -> alt.Chart:
    """A rotation by a fixed angle per dimension pair moves every position on by k; dot products depend on distance alone."""
    table, k, d_model = positional_encoding(200, 64).double(), 7, 64
    angle = k * torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(10_000) / d_model))
    sine, cosine = table[:, 0::2], table[:, 1::2]
    moved = torch.stack(
        (angle.cos() * sine + angle.sin() * cosine, angle.cos() * cosine - angle.sin() * sine), -1
    ).flatten(1)
    torch.testing.assert_close(moved[:-k], table[k:], atol=1e-4, rtol=0)
    dots = table @ table.T
    torch.testing.assert_close(dots.diagonal(k), dots[0, k].expand(200 - k), atol=1e-4, rtol=0)
    rows = [
        {"offset": o, "dot product": dots[100, 100 + o].item(), "of": "position 100 and 100 + offset"}
        for o in range(-90, 91)
    ]
    return curves(rows, "offset", "dot product", "of")


# %% [markdown]
# > **Why 10000?** The longest wavelength should exceed any sentence by far, so that no two positions look alike;
# > within that, the number matters little. **Why add and not concatenate?** Concatenation would spend some of the
# > width on positions. With addition the model can learn embeddings that leave a few dimensions to positions, so it
# > can imitate concatenation where that helps. **Do they extend to longer sentences?** The vectors do. Whether a
# > trained model knows what to do with them is another question, which Part 2 measures.


# %% [markdown]
# ## The full model
#
# > `make_model` puts the parts together; its positional arguments are those of the earlier editions. Matrices start
# > with Glorot's uniform initialisation, which keeps the variance of activations and of gradients about equal from
# > layer to layer; embeddings start as explained above.
# >
# > `tie="all"` makes the two embeddings and the output matrix one parameter, as in the paper; that needs a common
# > vocabulary. `tie="target"` ties the target side alone. `inner_dropout` adds two dropouts that Section 5.4 does not
# > name: the one on the attention weights, which Section 6.3 mentions in passing, and the one inside the feed-forward
# > networks, which only the authors' code has.


# %%
def make_model(
    src_vocab: int, tgt_vocab: int, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8, dropout: float = 0.1, *,
    norm: Literal["post", "pre"] = "post", tie: Literal["none", "target", "all"] = "none",
    inner_dropout: float = 0.0, d_k: int | None = None, positions: Literal["sinusoidal", "learned"] = "sinusoidal",
) -> Transformer:  # fmt: skip
    """A Transformer with fresh weights; the default sizes are the base model's (Section 3, Table 3).

    Raises ValueError for sizes that do not fit together.
    """
    check_sizes(src_vocab, tgt_vocab, N, d_model, d_ff, h, d_k, dropout, inner_dropout)
    check_choices(src_vocab, tgt_vocab, norm, tie, positions)

    def attn() -> nn.Module:
        return MultiHeadedAttention(h, d_model, inner_dropout, d_k)

    def ffn() -> nn.Module:
        return PositionwiseFeedForward(d_model, d_ff, inner_dropout)

    def final_norm() -> nn.Module:
        return nn.LayerNorm(d_model) if norm == "pre" else nn.Identity()

    def embed(vocab: int) -> nn.Module:
        places = PositionalEncoding if positions == "sinusoidal" else LearnedPositions
        return EmbeddingsWithPositions(Embeddings(d_model, vocab), places(d_model, dropout))

    encoder = Encoder([EncoderLayer(d_model, attn(), ffn(), dropout, norm) for _ in range(N)], final_norm())
    decoder = Decoder([DecoderLayer(d_model, attn(), attn(), ffn(), dropout, norm) for _ in range(N)], final_norm())
    model = Transformer(encoder, decoder, embed(src_vocab), embed(tgt_vocab), Generator(d_model, tgt_vocab))
    initialise(model, tie)
    return model


# %% [markdown]
# > Sizes that do not fit together are refused at once, and the weights get their start.


# %%
def check_sizes(src_vocab, tgt_vocab, N, d_model, d_ff, h, d_k, dropout, inner_dropout) -> None:
    """Raise ValueError for sizes that do not make a model; MultiHeadedAttention and positional_encoding check their own."""
    sizes = {"src_vocab": src_vocab, "tgt_vocab": tgt_vocab, "N": N, "d_model": d_model, "d_ff": d_ff, "h": h}
    for name, number in (sizes | ({} if d_k is None else {"d_k": d_k})).items():
        if number < 1:
            raise ValueError(f"{name} must be at least 1, but it is {number}")
    for name, number in {"dropout": dropout, "inner_dropout": inner_dropout}.items():
        if not 0 <= number < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, but it is {number}")


def check_choices(src_vocab: int, tgt_vocab: int, norm: str, tie: str, positions: str) -> None:
    """Raise ValueError for a choice that there is not, or one that does not fit the vocabularies."""
    choices = {"norm": (norm, "post", "pre"), "tie": (tie, "none", "target", "all")}
    choices["positions"] = (positions, "sinusoidal", "learned")
    for name, (chosen, *known) in choices.items():
        if chosen not in known:
            raise ValueError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, but it is {chosen}")
    if tie == "all" and src_vocab != tgt_vocab:
        raise ValueError(
            f"tie='all' needs one vocabulary for both sides, but the sizes are {src_vocab} and {tgt_vocab}"
        )


# %%
def initialise(model: Transformer, tie: str) -> None:
    """Glorot for the matrices, a standard deviation of d_model ** -0.5 for embeddings; then share matrices (Section 3.4)."""
    for name, p in model.named_parameters():
        if name.endswith("table.weight"):
            nn.init.normal_(p, std=p.size(1) ** -0.5)
        elif p.dim() > 1:
            nn.init.xavier_uniform_(p)
        elif name.endswith("bias"):
            nn.init.zeros_(p)
    if tie != "none":
        model.generator.proj.weight = model.tgt_embed.embeddings.table.weight
    if tie == "all":
        model.src_embed.embeddings.table.weight = model.tgt_embed.embeddings.table.weight


# %% [markdown]
# > The sizes that were promised above: embedding entries before and after scaling, beside those of the positions.


# %%
@example
def example_embedding_scale() -> alt.Chart:
    """Root mean squares: scaled embeddings and positions are of one size, unscaled embeddings vanish beside them."""
    rows = []
    for d_model in (128, 256, 512, 1024):
        embed = make_model(1000, 1000, N=1, d_model=d_model, d_ff=8).src_embed.embeddings
        parts = {
            "embedding": embed.table.weight,
            "× √d_model": embed(torch.arange(1000)),
            "position": positional_encoding(50, d_model),
        }
        rows += [
            {"d_model": d_model, "part": part, "RMS": x.square().mean().sqrt().item()} for part, x in parts.items()
        ]
        assert abs(rows[-2]["RMS"] - 1) < 0.02 and abs(rows[-1]["RMS"] - 0.5**0.5) < 1e-3
    return bars(rows, "d_model", "RMS", "part")


# %%
@example
def example_tied() -> None:
    """With tie='all' three places hold one and the same parameter, and it is counted once."""
    tied, untied = (make_model(1000, 1000, N=1, d_model=64, d_ff=64, h=4, tie=tie) for tie in ("all", "none"))
    table = tied.generator.proj.weight
    assert table is tied.src_embed.embeddings.table.weight is tied.tgt_embed.embeddings.table.weight
    sizes = [sum(p.numel() for p in model.parameters()) for model in (tied, untied)]
    print(f"tied {sizes[0]:,}, untied {sizes[1]:,}, difference {sizes[1] - sizes[0]:,} = 2 × {table.numel():,}")
    assert sizes[1] - sizes[0] == 2 * table.numel()


# %% [markdown]
# > **Causality, seen.** Change target symbol 3: only the predictions from position 3 on may change. And the padding:
# > translate a sentence alone, then in a batch where it is padded; its predictions must be the same.


# %%
@example
def example_causal() -> None:
    """The prediction at position t depends on targets up to t alone, and padding changes nothing."""
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=32, d_ff=64, h=4).eval()
    src, tgt = torch.randint(4, 50, (1, 6)), torch.randint(4, 50, (1, 5))
    logits = model(src, tgt, source_mask(src), target_mask(tgt))  # (1, 5, V)
    other = tgt.clone()
    other[0, 3] = 4 if tgt[0, 3] != 4 else 5
    change = (model(src, other, source_mask(src), target_mask(other)) - logits).abs().amax(-1)[0]
    print("largest change at each position when target 3 changes:", [round(c, 4) for c in change.tolist()])
    assert change[:3].max() == 0 and change[3:].min() > 0.01
    src, tgt = F.pad(src, (0, 3), value=PAD), F.pad(tgt, (0, 2), value=PAD)
    padded = model(src, tgt, source_mask(src), target_mask(tgt))
    torch.testing.assert_close(padded[:, :5], logits)


# %% [markdown]
# > **Pre- or post-norm: what it does to the gradient.** At the start of training, post-norm sends far more gradient
# > to the last layers than to the first; large first steps then do damage, which is one reason for the warmup of
# > Section 5.3. With pre-norm the gradient is spread evenly (Xiong et al., 2020). Both, with twelve layers:


# %%
def layer_gradients(norm: str, N: int = 12) -> list[dict]:
    """The norm of the gradient of each decoder layer's feed-forward weights, in a fresh model on random data."""
    torch.manual_seed(0)
    model = make_model(100, 100, N=N, d_model=64, d_ff=128, h=4, dropout=0.0, norm=norm)
    src, tgt = torch.randint(4, 100, (32, 12)), torch.randint(4, 100, (32, 13))
    logits = model(src, tgt[:, :-1], source_mask(src), subsequent_mask(12))
    F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten()).backward()
    norms = [layer.feed_forward.W_2.weight.grad.norm().item() for layer in model.decoder.layers]
    return [{"layer": i + 1, "gradient norm": g, "norm": norm} for i, g in enumerate(norms)]


@example
def example_pre_post() -> alt.Chart:
    """Gradients by layer at initialisation: post-norm grows towards the top, pre-norm stays level."""
    post, pre = layer_gradients("post"), layer_gradients("pre")
    spread = [max(r["gradient norm"] for r in rows) / min(r["gradient norm"] for r in rows) for rows in (post, pre)]
    print(f"largest over smallest: post-norm {spread[0]:.1f}, pre-norm {spread[1]:.1f}")
    assert post[-1]["gradient norm"] > 10 * post[0]["gradient norm"] and spread[1] < 4
    return curves(post + pre, "layer", "gradient norm", "norm", log_y=True)


# %% [markdown]
# ### How many parameters? (Table 3)
#
# The paper's Table 3 gives, for each variant of the model, its parameters in millions: 65 for base, 213 for big.
#
# > We can count everything except the vocabulary, which the paper states only as "about 37000". So the table below
# > counts ours *beside* the embedding matrix and asks which vocabulary would explain the paper's total. If our
# > architecture is theirs, every row must give the same answer, up to the rounding of the total.

# %%
TABLE_3 = {  # variant: (what differs from the base model, millions of parameters in the paper)
    "base": ({}, 65), "d_k = 16": ({"d_k": 16}, 58), "d_k = 32": ({"d_k": 32}, 60),
    "N = 2": ({"N": 2}, 36), "N = 4": ({"N": 4}, 50), "N = 8": ({"N": 8}, 80),
    "d_model = 256": ({"d_model": 256}, 28), "d_model = 1024": ({"d_model": 1024}, 168),
    "d_ff = 1024": ({"d_ff": 1024}, 53), "d_ff = 4096": ({"d_ff": 4096}, 90),
    "big": ({"d_model": 1024, "d_ff": 4096, "h": 16}, 213),
}  # fmt: skip


def body_parameters(**sizes: int) -> int:
    """The parameters of a model beside its embedding matrix, without making its tensors."""
    with torch.device("meta"):
        model = make_model(4, 4, tie="all", **sizes)
    return sum(p.numel() for p in model.parameters()) - model.generator.proj.weight.numel()


# %%
@example
def example_parameters() -> pd.DataFrame:
    """Our count for each row of Table 3, and the vocabulary that would explain the paper's."""
    rows = []
    for variant, (sizes, paper) in TABLE_3.items():
        body, d_model = body_parameters(**sizes), sizes.get("d_model", 512)
        low, high = (((paper + e) * 1e6 - body) / d_model for e in (-0.5, 0.5))
        rows.append({"variant": variant, "ours, beside embeddings": f"{body / 1e6:.2f} M", "paper, in all": f"{paper} M",
                     "vocabulary from": round(low), "to": round(high)})  # fmt: skip
    common = [max(row["vocabulary from"] for row in rows[:-1]), min(row["to"] for row in rows[:-1])]  # all but big
    print(f"a vocabulary of {common[0]:,} to {common[1]:,} explains every row but the last")
    assert common[0] <= common[1]
    return pd.DataFrame(rows).set_index("variant")


# %% [markdown]
# > The ranges of ten rows meet, although each is rounded to a million: one vocabulary of about 41,000 explains them
# > all, so the architecture beside the embeddings has their sizes in depth, width, inner width and keys. The big
# > model would have had about 36,000 entries; the paper does not say why its two kinds of models would differ in
# > that.

# %% [markdown]
# ## Why self-attention (Section 4, Table 1)
#
# Three questions decide between ways of mapping one sequence of $n$ vectors of width $d$ to another: how much it
# computes per layer, how many operations must follow one another, and how long the path is that a signal travels
# between two positions. $k$ is the width of a convolution's kernel, and $r$ the neighbourhood to which self-attention
# may be restricted.
#
# | layer | operations per layer | sequential operations | longest path |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k n d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention, restricted | $O(r n d)$ | $O(1)$ | $O(n/r)$ |
#
# Self-attention is cheaper than recurrence as long as $n < d$, which holds for sentences and word pieces. It may also
# be easier to interpret, as Part 6 tries out.
#
# > The path through convolutions is that of dilated kernels; with contiguous ones it is $O(n/k)$. And the table counts
# > orders of magnitude: self-attention has two products of $n^2 d$ multiplications, those of queries with keys and of
# > weights with values, and $4nd^2$ in the projections, which the table leaves out. They, not the $n^2$, dominate at the
# > length of a sentence.


# %%
def layer_cost(kind: str, n: int, d: int, k: int = 3, r: int = 64) -> float:
    """Multiplications of one layer in the sense of Table 1."""
    return {
        "self-attention": n * n * d,
        "recurrent": n * d * d,
        "convolutional": k * n * d * d,
        "restricted": min(r, n) * n * d,
    }[kind]


# %%
@example
def example_complexity() -> alt.Chart:
    """Table 1 as curves, for the base model's width: self-attention is cheaper than recurrence below n = d."""
    kinds = ("self-attention", "recurrent", "convolutional", "restricted")
    rows = [
        {"length n": n, "operations": layer_cost(kind, n, 512), "layer": kind}
        for kind in kinds
        for n in range(16, 1025, 16)
    ]
    from torch.utils.flop_counter import FlopCounterMode

    n, d, layer = 30, 512, MultiHeadedAttention(8, 512)
    layer.recorded = []  # attention in its plain form, whose products PyTorch can count
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(*[torch.randn(1, n, d)] * 3)
    square = 2 * layer_cost("self-attention", n, d)
    assert counter.get_total_flops() == 2 * (square + 4 * n * d * d)  # an addition for each multiplication
    print(f"{n} symbols: {square / (square + 4 * n * d * d):.0%} of the multiplications are the n² part")
    return curves(rows, "length n", "operations", "layer", log_y=True)


# %% [markdown]
# ## Summary of Part 1
#
# > A Transformer is embeddings plus positions, two stacks of sublayers with residual connections, and a linear map to
# > the vocabulary. Attention is the only place where positions meet. Masks rule out keys. The widths are chosen so
# > that multi-head attention costs what one head would.
# >
# > **Exercises.** 1. Remove the positional encoding and show with an assertion that the encoder's output is then
# > equivariant under shuffling of the source. 2. How many multiplications does one encoder layer of the base model
# > need for $n = 30$, and which share is the $n^2$ part? 3. Replace the sum of embedding and position by a
# > concatenation of 448 + 64 dimensions. What else has to change? 4. Why would a mask that is applied *after* the
# > softmax by setting weights to zero be wrong?

# %% [markdown]
# # Part 2: Training
#
# ## Batches and the shift (Section 5.1)
#
# The decoder learns to predict each target symbol from those before it. So a target sentence is used twice, shifted
# by one: without its last symbol it is the decoder's input, without its first it is what the decoder must predict.
#
# > Every target begins with `<s>` and ends with `</s>`; every source ends with `</s>`. Position $t$ reads the symbols
# > up to $t$ and must predict symbol $t + 1$. A shift of none would ask it to copy its input; with a shift of
# > two it would have to guess symbol $t + 2$ without having seen symbol $t + 1$. That the whole target is fed in at once is
# > no cheating, since the causal mask hides at each position what it has to predict. It is what makes training parallel.
# >
# > Sentences of a batch are filled up with padding. `ntokens` counts the symbols to predict, padding left out.


# %%
def pad_rows(rows: list[list[int]], pad: int = PAD) -> Tensor:
    """Rows of ids as one tensor (B, longest), filled up with `pad`."""
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


# %%
class Batch:
    """Sources (B, S) and targets (B, T + 1) with everything the model needs of them (Sections 3.1 and 5.1)."""

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD):
        self.src, self.src_mask = src, source_mask(src, pad)  # (B, S), (B, 1, S)
        if tgt is not None:
            self.tgt, self.tgt_y = tgt[:, :-1], tgt[:, 1:]  # what is read (B, T), what is predicted (B, T)
            self.tgt_mask = target_mask(self.tgt, pad)  # (B, T, T)
            self.ntokens = int((self.tgt_y != pad).sum())

    def to(self, device: torch.device) -> "Batch":
        """The same batch with its tensors on `device`."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value.to(device, non_blocking=True))
        return self


# %% [markdown]
# > A batch of two; this is its second, shorter row. The position that reads `</s>` predicts padding and does not
# > count.


# %%
@example
def example_shift() -> pd.DataFrame:
    """A padded row, position by position: read, may attend to, predict, counts in the loss."""
    names = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", 10: "a", 11: "dog", 12: "runs", 13: "two", 14: "cats"}
    batch = Batch(torch.tensor([[5, EOS], [6, EOS]]), pad_rows([[BOS, 10, 11, 12, EOS], [BOS, 13, 14, EOS]]))
    rows = []
    for t in range(4):
        seen = [names[int(i)] for i, visible in zip(batch.tgt[1], batch.tgt_mask[1, t], strict=True) if visible]
        read, predict = names[int(batch.tgt[1, t])], names[int(batch.tgt_y[1, t])]
        rows.append(
            {
                "position": t,
                "reads": read,
                "attends to": " ".join(seen),
                "predicts": predict,
                "in the loss": predict != "<pad>",
            }
        )
    assert [row["predicts"] for row in rows] == ["two", "cats", "</s>", "<pad>"] and batch.ntokens == 4 + 3
    return pd.DataFrame(rows).set_index("position")


# %% [markdown]
# Sentence pairs were batched together by approximate length; each batch held about 25,000 source tokens and 25,000
# target tokens.
#
# > Counting *tokens* and not sentences keeps the work and the memory of each batch about constant. Sorting by length
# > first keeps padding low: below a few per cent, where random batches padded to a fixed length waste four fifths of
# > the work. Ties are broken at random and the batches shuffled, anew in each epoch. The sorting is NumPy's: five
# > million pairs take seconds.


# %%
def token_batches(lengths: ArrayLike, budget: int, seed: int | None = None) -> list[np.ndarray]:
    """Row numbers of sentence pairs, grouped by length into batches of at most `budget` padded tokens a side (Section 5.1).

    lengths (n, 2): tokens of each source and target. With a seed the batches are drawn and ordered at random.
    Raises ValueError for a pair longer than the budget.
    """
    sizes = np.asarray(lengths, dtype=np.int32).reshape(-1, 2)
    if (too_long := sizes.max(1, initial=0) > budget).any():
        i = too_long.argmax()
        raise ValueError(f"pair {i + 1} has {sizes[i].max()} tokens, but a batch holds {budget}")
    draw = np.random.default_rng(seed)
    noise = np.arange(len(sizes)) if seed is None else draw.permutation(len(sizes))
    source, group = sizes[:, 0], sizes[:, 1] // 2
    snake = np.where(group % 2, source, -source)  # sources grow in one group of targets and shrink in the next: no jump
    groups_apart = 2 * sizes.max(initial=0) + 1
    order = np.argsort((group.astype(np.int64) * groups_apart + snake) * len(sizes) + noise)  # three keys in one number
    longest, start, batches = sizes.max(1)[order], 0, []
    while start < len(order):
        widths = np.maximum.accumulate(longest[start : start + budget // longest[start] + 1])
        fits = np.searchsorted(widths * np.arange(1, len(widths) + 1), budget, side="right")
        batches.append(order[start : start + fits])
        start += fits
    if seed is not None:
        draw.shuffle(batches)
    return batches


# %%
@example
def example_padding() -> None:
    """How much of a batch is padding: random order padded to 72, and grouped by length."""
    draw = random.Random(0)
    target = [max(4, round(draw.gauss(14, 4.5))) for _ in range(29_000)]
    lengths = [(max(4, t + round(draw.gauss(0, 2))), t) for t in target]
    padded = 0
    for batch in token_batches(lengths, 5000, seed=1):
        padded += len(batch) * sum(max(lengths[i][side] for i in batch) for side in (0, 1))
    waste = {"in random order, padded to 72": 1 - sum(map(sum, lengths)) / (144 * len(lengths))}
    waste["grouped by length"] = 1 - sum(map(sum, lengths)) / padded
    print({way: f"{share:.1%} padding" for way, share in waste.items()})
    assert waste["grouped by length"] < 0.06


# %% [markdown]
# ## Hardware and schedule (Section 5.2)
#
# The paper trained on one machine with eight P100 GPUs: the base model for 100,000 updates of about 0.4 seconds, 12
# hours in all; the big model for 300,000 updates of 1.0 second, three and a half days.

# %% [markdown]
# ## Optimiser (Section 5.3)
#
# Adam with $\beta_1 = 0.9$, $\beta_2 = 0.98$, $\epsilon = 10^{-9}$. The learning rate rises linearly for `warmup` =
# 4000 updates and then falls with the inverse square root of the number of updates:
#
# $$\mathit{lrate} = d_{\text{model}}^{-0.5} \cdot \min(\mathit{step}^{-0.5},\; \mathit{step} \cdot \mathit{warmup}^{-1.5}) \tag{3}$$
#
# > **Why warm up?** Adam divides by a running estimate of the gradient's size. In the first updates that estimate
# > rests on a handful of batches, and in a post-norm model the gradients of the upper layers are large, as we saw;
# > small steps let both settle. **Why $\beta_2 = 0.98$ and not 0.999?** The estimate then averages about the last 50
# > updates instead of 1000, and follows gradients whose size changes quickly at the start. **Why fall as
# > $\mathit{step}^{-0.5}$?** It is slow enough for the length of a run to be left open. `factor` scales the curve;
# > the paper has 1.
# >
# > One step of the schedule is one *update*, however many pieces its gradient was accumulated from.


# %%
def rate(step: int, model_size: int, factor: float, warmup: int) -> float:
    """The learning rate at update `step`, counted from 1, Equation (3); step 0 counts as 1."""
    step = max(step, 1)
    return factor * model_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


# %%
@example
def example_rate() -> alt.Chart:
    """Three schedules; the rate peaks at the end of the warmup."""
    rows = []
    for d_model, warmup in ((512, 4000), (512, 8000), (256, 4000)):
        rows += [
            {"update": s, "rate": rate(s, d_model, 1, warmup), "schedule": f"{d_model}:{warmup}"}
            for s in range(1, 20_001, 100)
        ]
    assert max(range(1, 20_000), key=lambda s: rate(s, 512, 1, 4000)) == 4000
    assert math.isclose(rate(4000, 512, 1, 4000), (512 * 4000) ** -0.5)
    return curves(rows, "update", "rate", "schedule")


# %% [markdown]
# ## Regularisation (Section 5.4)
#
# **Dropout** (Srivastava et al., 2014) with $P_{\text{drop}} = 0.1$ acts on the output of each sublayer before it is
# added to its input, and on the sums of embeddings and positional encodings in both stacks. That is what
# `SublayerConnection` and `PositionalEncoding` do.
#
# **Label smoothing** (Szegedy et al., 2016) with $\epsilon_{ls} = 0.1$. The model is not asked to give all
# probability to the one right symbol $y$ but to match a distribution that spreads $\epsilon_{ls}$ over the
# vocabulary:
#
# $$q(k) = (1 - \epsilon_{ls})\,[k = y] + \epsilon_{ls}\,u(k), \qquad \mathrm{loss} = -\sum_k q(k) \log p(k)$$
#
# It makes the model less sure and its perplexity worse, and improves accuracy and BLEU.
#
# > $u$ is uniform over all symbols but padding, which is never right and gets no mass. The first form below writes
# > the sum as it stands; the second gives the same number without ever building $q$. PyTorch's own
# > `cross_entropy(label_smoothing=…)` spreads the mass over padding, too. Without the column of padding, and where the
# > model gives it no probability, it is the same loss.


# %%
def smoothed_targets(target: Tensor, vocab: int, eps: float = 0.1, pad: int = PAD) -> Tensor:
    """The distribution q for each target id: (..., V); zero for padding (Section 5.4)."""
    q = torch.full((*target.shape, vocab), eps / (vocab - 1)).scatter_add_(
        -1, target.unsqueeze(-1), torch.full((*target.shape, 1), 1 - eps)
    )
    q[..., pad] = 0
    return q * (target != pad).unsqueeze(-1)


def smoothed_loss(logits: Tensor, target: Tensor, eps: float = 0.1, pad: int = PAD) -> Tensor:
    """The smoothed cross-entropy, in nats, summed over the targets that are not padding (Section 5.4).

    logits (..., V), target (...).
    """
    log_p = logits.float().log_softmax(-1)  # (..., V)
    loss = -(1 - eps) * log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    if eps:
        spread = log_p.index_fill(-1, torch.tensor([pad], device=log_p.device), 0.0).sum(-1)  # padding gets no mass
        loss = loss - eps * spread / (log_p.size(-1) - 1)
    return loss.masked_fill(target == pad, 0.0).sum()


# %%
@example
def example_smoothing() -> alt.Chart:
    """The smoothed targets of three positions, the last one padding; both forms of the loss agree."""
    torch.manual_seed(0)
    target, logits = torch.tensor([5, 7, PAD]), torch.randn(3, 10)
    q = smoothed_targets(target, 10)
    torch.testing.assert_close(smoothed_loss(logits, target), -(q * logits.log_softmax(-1)).sum())
    torch.testing.assert_close(q.sum(-1), torch.tensor([1.0, 1.0, 0.0]))
    torch.testing.assert_close(
        smoothed_loss(logits, target, eps=0.0), F.cross_entropy(logits, target, ignore_index=PAD, reduction="sum")
    )
    theirs = F.cross_entropy(logits[:2, 1:], target[:2] - 1, label_smoothing=0.1, reduction="sum")  # no padding symbol
    torch.testing.assert_close(smoothed_loss(logits.index_fill(1, torch.tensor([PAD]), -torch.inf), target), theirs)
    return heatmap(q, ["5", "7", "pad"], [str(k) for k in range(10)], axes=("target", "symbol"))


# %% [markdown]
# > **Why does it hurt perplexity?** The smallest loss is reached where $p = q$, and equals the entropy of $q$, which
# > is not zero. A model that is surer than $q$ pays for it. The curve shows the loss of a model that gives the right
# > symbol the probability $p$ and spreads the rest evenly. For the same reason a *smoothed* loss has no perplexity:
# > validation below uses $\epsilon = 0$.
# >
# > **Why does it help BLEU?** BLEU sees the words that were chosen, not how sure the model was of them. A model that is not
# > pushed towards certainty keeps its alternatives alive and overfits less. That this raises BLEU is observed, not proved.


# %%
@example
def example_overconfidence() -> alt.Chart:
    """Smoothed loss against the model's confidence: the minimum is the entropy of q, at p = q."""
    V, eps, rows = 100, 0.1, []
    target = torch.tensor([5])
    q = smoothed_targets(target, V, eps)[0]
    entropy = -(q[1:] * q[1:].log()).sum().item()
    for p in torch.linspace(0.5, 0.999, 500).tolist():
        others = torch.full((1, V), (1 - p) / (V - 2))
        others[0, 5], others[0, PAD] = p, 1e-30
        loss = {e: smoothed_loss(others.log(), target, eps=e).item() for e in (0.0, eps)}
        rows += [{"confidence": p, "loss": loss[e], "smoothing": str(e)} for e in loss]
    best = min((row for row in rows if row["smoothing"] == "0.1"), key=lambda row: row["loss"])
    print(
        f"least loss {best['loss']:.3f} at confidence {best['confidence']:.3f}; entropy of q {entropy:.3f}, its largest entry {q.max():.3f}"
    )
    assert abs(best["loss"] - entropy) < 1e-3 and abs(best["confidence"] - q.max()) < 2e-3
    return curves(rows, "confidence", "loss", "smoothing")


# %% [markdown]
# > **The same loss, without the matrix of all scores.** With 5,000 tokens and 6,000 symbols the scores fill 120
# > megabytes, the log-softmax as much again, and their gradients too; moving them through memory costs more time than
# > computing them. But the gradient has a closed form, and a simple one: what the model gives minus what it should
# > give,
# >
# > $$\frac{\partial\,\mathrm{loss}}{\partial\,\mathrm{logits}} = p - q$$
# >
# > So loss and gradient can be had together, a few hundred tokens at a time, and each chunk's scores are thrown away
# > before the next is computed. (Nothing is approximated: the check asks for the same loss and the same gradients.)


# %%
def smoothed_gradient(scores: Tensor, target: Tensor, eps: float = 0.1, pad: int = PAD) -> tuple[Tensor, Tensor]:
    """The smoothed loss, summed over targets, and its gradient p - q, written over the scores (Section 5.4).

    scores (..., n, V); target (n), without padding.
    """
    y, spread = target.unsqueeze(-1).expand(*scores.shape[:-1], 1), eps / (scores.size(-1) - 1)
    scores -= scores.amax(-1, keepdim=True)  # a shift of all scores changes nothing, and keeps exp in range
    right, uniform = scores.gather(-1, y), scores.sum(-1, keepdim=True) - scores[..., pad : pad + 1]
    z = scores.exp_().sum(-1, keepdim=True)
    loss = (z.log() - (1 - eps) * right - spread * uniform).sum()
    grad = scores.div_(z).sub_(spread)  # p - q, except for two columns
    grad[..., pad] += spread
    return loss, grad.scatter_add_(-1, y, grad.new_full(y.shape, eps - 1))


# %% [markdown]
# > That was loss and gradient of one chunk. The next function cuts the rows into chunks, and carries each chunk's
# > gradient on through the output matrix, to the decoder's vectors and to the matrix itself.


# %%
class ChunkedLoss(torch.autograd.Function):
    """A loss of the scores x @ weight.T, summed over rows, without ever holding all scores (Sections 3.4 and 5.4)."""

    @staticmethod
    def forward(
        ctx,
        x: Tensor,
        weight: Tensor,
        target: Tensor,
        loss_and_gradient: Callable = smoothed_gradient,
        chunk: int = 512,
    ) -> Tensor:
        """x (..., n, d_model), weight (V, d_model), target (n) without padding; returns a scalar."""
        total, grad_x, grad_w = x.new_zeros((), dtype=torch.float32), torch.empty_like(x), torch.zeros_like(weight)
        for start in range(0, len(target), chunk):
            part = (..., slice(start, start + chunk), slice(None))
            rows = x[part].flatten(0, -2)  # (chunk, d_model), for two passes (2 * chunk, d_model)
            scores = (rows @ weight.T).float().view(*x[part].shape[:-1], -1)  # (..., chunk, V)
            loss, grad = loss_and_gradient(scores, target[start : start + chunk])
            total += loss
            if any(ctx.needs_input_grad):
                grad = grad.to(x.dtype).flatten(0, -2)
                grad_x[part] = (grad @ weight).view_as(x[part])
                grad_w.addmm_(grad.T, rows)
        ctx.save_for_backward(grad_x, grad_w)
        return total

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        """The gradients that the forward pass left, scaled."""
        grad_x, grad_w = ctx.saved_tensors
        return grad_x * grad, grad_w * grad, None, None, None


# %%
@example
def example_chunked_loss() -> None:
    """Chunks of 3 tokens give the loss and the gradients of the whole."""
    torch.manual_seed(0)
    x, weight = torch.randn(8, 16, requires_grad=True), torch.randn(30, 16, requires_grad=True)
    target = torch.randint(1, 30, (8,))
    whole, chunked = smoothed_loss(x @ weight.T, target), ChunkedLoss.apply(x, weight, target, smoothed_gradient, 3)
    print(f"whole {whole.item():.6f}, in chunks {chunked.item():.6f}")
    torch.testing.assert_close(chunked, whole)
    torch.testing.assert_close(*(torch.autograd.grad(loss, (x, weight)) for loss in (whole, chunked)))


# %% [markdown]
# > **R-Drop: two passes that should agree.** With dropout, a random part of the network is trained, but the whole is
# > used. R-Drop (Liang et al., 2021) sends each sentence through twice, with different dropout, and asks that the two
# > distributions $p$ and $p'$ agree, by the Kullback-Leibler divergence
# > $\mathrm{KL}(p \,\|\, p') = \sum_k p_k \log (p_k / p'_k)$, which is 0 only where both are the same, in both directions:
# >
# > $$\mathrm{loss} = \tfrac12\left(\mathrm{loss}_p + \mathrm{loss}_{p'}\right) +
# >   \tfrac{\alpha}{4}\left(\mathrm{KL}(p \,\|\, p') + \mathrm{KL}(p' \,\|\, p)\right)$$
# >
# > An update costs twice as much. On little data that can pay, since there the same sentences come by dozens of times
# > anyway; in our runs of an hour it did not (`benchmarks/results/LOG.md`), so the presets leave it off. The setting
# > `r_drop` is $\alpha$; 0 means one pass. The first updates learn more without it, and at half the price, so
# > `r_drop_after` may put it off for a number of them.
# >
# > Both divergences together are $\sum_k (p_k - p'_k)(\log p_k - \log p'_k)$; the gradient is in closed form again, and
# > so the chunks serve here, too.


# %%
def r_drop_gradient(
    scores: Tensor, target: Tensor, alpha: float, eps: float = 0.1, pad: int = PAD
) -> tuple[Tensor, Tensor]:
    """The loss of R-Drop, summed over targets, and its gradient by the scores (2, n, V) of two passes (Liang et al., 2021)."""
    log_p, (loss, grad) = scores.log_softmax(-1), smoothed_gradient(scores, target, eps, pad)
    gap, (p1, p2) = log_p[0] - log_p[1], log_p.exp_()  # each (n, V)
    forth, back = (p1 * gap).sum(-1, keepdim=True), (p2 * gap).sum(-1, keepdim=True)  # KL(p || p'), -KL(p' || p)
    loss += alpha / 2 * (forth - back).sum()
    away = p1 - p2
    grad[0].add_(p1.mul_(gap - forth).add_(away), alpha=alpha / 2)
    grad[1].add_(p2.mul_(back - gap).sub_(away), alpha=alpha / 2)
    return loss / 2, grad.div_(2)


# %%
@example
def example_r_drop() -> None:
    """Value and gradients are those of PyTorch's own pieces; two passes that agree pay the plain loss."""
    torch.manual_seed(0)
    x, weight = torch.randn(2, 7, 16, requires_grad=True), torch.randn(30, 16, requires_grad=True)
    target, alpha = torch.randint(1, 30, (7,)), 5.0
    log_p, log_q = (x @ weight.T).log_softmax(-1)
    theirs = sum(smoothed_loss(log, target) for log in (log_p, log_q)) / 2
    for a, b in ((log_p, log_q), (log_q, log_p)):
        theirs = theirs + alpha / 4 * F.kl_div(a, b, log_target=True, reduction="sum")
    r_drop = functools.partial(r_drop_gradient, alpha=alpha)
    ours = ChunkedLoss.apply(x, weight, target, r_drop, 3)
    print(f"two random passes: {ours.item():.3f} with R-Drop")
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(*(torch.autograd.grad(loss, (x, weight)) for loss in (ours, theirs)))
    same = ChunkedLoss.apply(x[:1].expand(2, -1, -1), weight, target, r_drop)
    torch.testing.assert_close(same, smoothed_loss(x[0] @ weight.T, target))


# %% [markdown]
# ## One update
#
# > The gradient of an update is the sum over its target tokens, divided by their number. Both words matter. If the
# > update is cut into pieces, to fit into memory (*accumulation*) or to be shared among processes (*data
# > parallelism*), then each piece's sum must be divided by the tokens of the **whole** update. Dividing each piece by
# > its own tokens would weigh a word in a short piece more than one in a long piece. The two ways of cutting are the
# > same thing, once over time and once over machines, and one line of `split_rows` serves both.
# >
# > The loss is a module so that PyTorch's data parallelism can wrap it. Scores are computed at real positions only:
# > the output matrix is the largest of the model, and padding needs no answer.


# %%
class Objective(nn.Module):
    """The smoothed loss of a batch, summed over its target tokens (Sections 3.4 and 5.4); with R-Drop of two passes."""

    def __init__(self, model: Transformer, eps: float, r_drop: float = 0.0):
        super().__init__()
        self.model, self.eps, self.r_drop = model, eps, r_drop

    def forward(self, batch: Batch) -> Tensor:
        """Batch to a scalar."""
        weight, passes = self.model.generator.proj.weight, 2 if self.r_drop else 1
        weight = weight if torch.is_grad_enabled() else weight.detach()  # where it is not asked for, none is computed
        inputs = (batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        src, tgt, src_mask, tgt_mask = (torch.cat([t] * passes) for t in inputs)
        x = self.model.decode(self.model.encode(src, src_mask), src_mask, tgt, tgt_mask)  # (passes * B, T, d_model)
        real = batch.tgt_y != PAD
        x = x.unflatten(0, (passes, -1))[:, real]  # (passes, n, d_model)
        if self.r_drop:
            loss = functools.partial(r_drop_gradient, alpha=self.r_drop, eps=self.eps)
        else:
            loss = functools.partial(smoothed_gradient, eps=self.eps)
        return ChunkedLoss.apply(x, weight, batch.tgt_y[real], loss, 512 // passes)


# %%
class Pair(NamedTuple):
    """One training example as ids: the source ends with EOS, the target begins with BOS and ends with EOS."""

    src: list[int]
    tgt: list[int]


def processes() -> tuple[int, int]:
    """The rank of this process and the number of processes that train together."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def make_batch(pairs: list[Pair]) -> Batch:
    """Pairs as one padded batch."""
    return Batch(pad_rows([p.src for p in pairs]), pad_rows([p.tgt for p in pairs]))


def split_rows(pairs: list[Pair], pieces: int) -> list[list[Pair]]:
    """Deal the pairs of an update out to `pieces` pieces; each gets at least one.

    Where there are more pieces than pairs, the rest get a pair without anything to predict, which adds nothing to the loss.
    """
    idle = [Pair(pairs[0].src, [BOS, PAD])]
    return [pairs[i::pieces] or idle for i in range(pieces)]


# %% [markdown]
# > With these, the gradient of an update is a loop over this process's pieces.


# %%
def backward(objective: nn.Module, pairs: list[Pair], accumulate: int, device: torch.device) -> float:
    """Add the gradient of the mean loss per target token of an update; returns this process's part of that mean."""
    rank, world = processes()
    pieces = split_rows(pairs, world * accumulate)[rank::world]
    tokens = sum(len(pair.tgt) - 1 for pair in pairs)  # of the whole update, over all pieces and processes
    total = 0.0
    for i, piece in enumerate(pieces):
        wait = world > 1 and i < len(pieces) - 1  # processes exchange gradients once per update
        with objective.no_sync() if wait else nullcontext():
            loss = objective(make_batch(piece).to(device)) / tokens
            (loss * world).backward()  # DistributedDataParallel averages over processes; we want the sum
        total += loss.item()
    return total


# %% [markdown]
# > **An optimiser for matrices** (Muon; Jordan et al., 2024; to be skipped at a first reading). Adam treats the entries
# > of a matrix as so many single numbers, and its update of a matrix is dominated by a few directions: its gradient is
# > nearly of low rank. Muon takes the gradient's moving average $M = U \Sigma V^\top$ and moves by $U V^\top$: the same
# > directions, each by the same length. No singular values need to be computed for that. Divided by its Frobenius norm,
# > $M$ has none above 1. Then each step
# >
# > $$X \leftarrow a X + b\,(X X^\top) X + c\,(X X^\top)^2 X$$
# >
# > applies the polynomial $a\sigma + b\sigma^3 + c\sigma^5$ to every singular value $\sigma$, since
# > $X X^\top X = U \Sigma^3 V^\top$, and leaves $U$ and $V$ alone. Five steps bring all but the smallest $\sigma$ to between
# > about 0.7 and 1.2. The coefficients are the authors': $a = 3.4445$, $b = -4.7750$, $c = 2.0315$. The result, scaled by
# > $0.3 \sqrt{\max(\text{rows}, \text{columns})}$, has entries with a root mean square of about 0.3, like Adam's updates (Liu
# > et al., 2025, take 0.2), so both share the schedule of Equation (3). The embeddings and the output matrix stay with
# > Adam, as the authors advise, and so do gains and biases. What is orthogonalised is the average mixed once more with
# > the newest gradient, as in Nesterov's momentum.
# >
# > PyTorch has this optimiser as well (`torch.optim.Muon`), in numbers of 16 bits, which many processors can only emulate.


# %%
def orthogonalised(M: Tensor, steps: int = 5) -> Tensor:
    """Matrices (n, rows, columns) with the singular vectors of M and singular values near 1 (Jordan et al., 2024)."""
    X = M / M.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    X = X.mT if M.size(1) > M.size(2) else X  # the smaller product
    for _ in range(steps):
        S = X @ X.mT
        S = torch.baddbmm(S, S, S, beta=-4.7750, alpha=2.0315)  # b S + c S S
        X = torch.baddbmm(X, S, X, beta=3.4445)  # a X + S X
    return X.mT if M.size(1) > M.size(2) else X


# %%
@example
def example_orthogonalised() -> None:
    """Singular values over two powers of ten come close together; the singular vectors stay."""
    torch.manual_seed(0)
    U, V = (torch.linalg.qr(torch.randn(64, 64))[0] for _ in range(2))
    before = torch.logspace(0, -2, 64)
    after = U.T @ orthogonalised((U * before @ V.T).unsqueeze(0))[0] @ V  # diagonal, if the vectors are the same
    print(
        f"singular values {before.min():.3f} to {before.max():.2f} -> {after.diag().min():.2f} to {after.diag().max():.2f}"
    )
    torch.testing.assert_close(after, after.diag().diag(), atol=1e-4, rtol=0)
    assert after.diag().min() > 0.6 and after.diag().max() < 1.3


# %% [markdown]
# > The optimiser itself, and which weights are whose:


# %%
class Muon(torch.optim.Optimizer):
    """Moves matrices by the orthogonalised moving average of their gradients, each entry by about 0.3 `lr`."""

    def __init__(self, matrices: list[nn.Parameter], lr: float = 0.0, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})
        self.state.update({p: {"momentum": torch.zeros_like(p)} for p in matrices})

    @torch.no_grad()
    def step(self) -> None:
        """One update; matrices of one shape are orthogonalised together."""
        for group in self.param_groups:
            shapes: dict[torch.Size, list[nn.Parameter]] = {}
            for p in group["params"]:
                shapes.setdefault(p.shape, []).append(p)
            for shape, alike in shapes.items():
                grads = torch.stack([p.grad for p in alike])
                averages = [self.state[p]["momentum"] for p in alike]
                torch._foreach_lerp_(averages, list(grads), 1 - group["momentum"])
                ahead = grads.lerp(torch.stack(averages), group["momentum"])  # as Nesterov: one step further
                torch._foreach_add_(alike, list(orthogonalised(ahead)), alpha=-0.3 * group["lr"] * max(shape) ** 0.5)


# %%
def make_optimizers(model: Transformer, kind: str) -> list[torch.optim.Optimizer]:
    """Adam with the paper's settings (Section 5.3); for "muon", with Muon for the matrices of all layers."""
    layers = {"adam": [], "muon": [*model.encoder.parameters(), *model.decoder.parameters()]}[kind]
    matrices = [p for p in layers if p.dim() == 2]
    others = [p for p in model.parameters() if not any(p is matrix for matrix in matrices)]
    adam = torch.optim.Adam(others, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for p in others:  # what Adam would do at its first step; so a checkpoint finds every place to be filled
        averages = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        adam.state[p] = {"step": torch.zeros((), device=p.device)} | averages
    return [adam, Muon(matrices)] if matrices else [adam]


# %% [markdown]
# > `Trainer` adds the optimiser and the schedule. Each update seeds its own dropout, so that a run that was interrupted
# > draws the same numbers when it goes on. `averaged` is a second set of weights that follows the trained ones slowly, an
# > *exponential moving average*. It smooths out the noise of the last updates, much as the paper's averaging of the last
# > checkpoints does, and costs one pass over the weights. After $s$ updates its decay is $s / (s + 9)$, until that
# > exceeds `ema` (0.999 at update 8,991): up to there it averages over about the last tenth of the run, then over the last
# > 1,000 updates or so, and the random start is soon forgotten.


# %%
class Trainer:
    """A model with its optimiser and schedule; `update` learns from one batch of pairs (Section 5)."""

    def __init__(self, model: Transformer, config: Config, device: torch.device | None = None):
        self.device = device or torch.device("cpu")
        self.model, self.config, self.step, self.lr = model.to(self.device), config, 0, 0.0
        self.optimizers = make_optimizers(model, config.optimizer)
        self.rank, self.world = processes()
        self.loss = Objective(model, config.smoothing, config.r_drop)
        self.objective: nn.Module = self.loss
        if self.world > 1:
            self.objective = nn.parallel.DistributedDataParallel(self.loss, forward_sync_buffers=False)
        self.averaged = averaged_copy(model) if config.ema else model

    def gradient(self, pairs: list[Pair]) -> float:
        """Set the gradient of the mean loss per target token of `pairs`; returns this process's part of that mean."""
        self.model.zero_grad()
        return backward(self.objective, pairs, self.config.accumulate, self.device)

    def update(self, pairs: list[Pair]) -> float:
        """One step of the optimiser; returns this process's part of the mean loss per target token."""
        self.step += 1
        torch.manual_seed(1_000_003 * self.config.seed + 1009 * self.step + self.rank)
        self.model.train(self.step > self.config.dropout_after)  # dropout is all that training mode changes
        self.loss.r_drop = self.config.r_drop if self.step > self.config.r_drop_after else 0.0
        loss = self.gradient(pairs)
        if self.config.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        self.lr = rate(self.step, self.config.d_model, self.config.factor, self.config.warmup)
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = self.lr
            optimizer.step()
        if self.config.ema:
            update_average(self.averaged, self.model, min(self.config.ema, self.step / (self.step + 9)))
        return loss


# %%
def averaged_copy(model: Transformer) -> Transformer:
    """A copy of the model that takes no gradient, to hold a moving average of the weights."""
    return copy.deepcopy(model).requires_grad_(False).eval()


@torch.no_grad()
def update_average(averaged: Transformer, model: Transformer, decay: float) -> None:
    """averaged = decay * averaged + (1 - decay) * model, for every weight."""
    for a, p in zip(averaged.parameters(), model.parameters(), strict=True):
        a.lerp_(p, 1 - decay)


# %% [markdown]
# > Is the gradient of three pieces that of one batch? Sentences of different lengths make it a real question.


# %%
@example
def example_accumulation() -> None:
    """Three pieces of different lengths give the gradient of one large batch; dividing each by its own tokens does not."""
    draw = random.Random(0)
    pairs = [
        Pair([draw.randint(4, 19) for _ in range(5)] + [EOS], [BOS, *([7] * draw.randint(1, 9)), EOS])
        for _ in range(10)
    ]
    gradients = {}
    for pieces in (1, 3):
        torch.manual_seed(0)
        model = make_model(20, 20, N=1, d_model=16, d_ff=32, h=2, dropout=0.0)
        Trainer(model, Config(d_model=16, accumulate=pieces)).gradient(pairs)
        gradients[pieces] = torch.cat([p.grad.flatten() for p in model.parameters()])
    torch.manual_seed(0)
    trainer = Trainer(make_model(20, 20, N=1, d_model=16, d_ff=32, h=2, dropout=0.0), Config(d_model=16))
    own = torch.zeros_like(gradients[1])
    for piece in split_rows(pairs, 3):
        trainer.gradient(piece)
        own += torch.cat([p.grad.flatten() for p in trainer.model.parameters()]) / 3
    difference = [(gradients[1] - other).abs().max().item() for other in (gradients[3], own)]
    print(f"difference in three pieces: {difference[0]:.1e}; with each divided by its own tokens: {difference[1]:.1e}")
    assert difference[0] < 1e-6 < 1e-3 < difference[1]


# %% [markdown]
# ## A first task: copying
#
# > A small model that should learn to repeat its source exercises everything so far. Its symbols are real ones, apart
# > from the four specials, and sequences begin and end as in translation.


# %%
def copy_pairs(n: int, vocab: int, seed: int, shortest: int = 3, longest: int = 10) -> list[Pair]:
    """Random sequences of `shortest` to `longest` symbols, to be copied."""
    draw = random.Random(seed)
    lengths = [draw.randint(shortest, longest) for _ in range(n)]
    rows = [[draw.randrange(len(SPECIALS), vocab) for _ in range(length)] for length in lengths]
    return [Pair([*row, EOS], [BOS, *row, EOS]) for row in rows]


@functools.cache
def train_copy(updates: int = 600, vocab: int = 14, seed: int = 0) -> tuple[Transformer, list[dict]]:
    """Train a small model to copy; returns it and the loss of each update."""
    torch.manual_seed(seed)
    sizes = {"N": 2, "d_model": 64, "d_ff": 128, "h": 4, "dropout": 0.0, "norm": "pre", "tie": "all"}
    config = Config(**sizes, factor=0.5, warmup=150, smoothing=0.0, ema=0.98, seed=seed)
    trainer, rows = Trainer(make_model(vocab, vocab, **sizes), config), []
    for step in tqdm(range(updates), "copy task", file=sys.stdout):
        loss = trainer.update(copy_pairs(64, vocab, seed=updates * seed + step))
        rows.append({"update": step + 1, "loss": loss, "task": "copy"})
    return trainer.averaged, rows


# %% [markdown]
# ## Greedy decoding
#
# > To translate, the decoder runs step by step: predict a distribution, take the likeliest symbol, append it, go on.
# > All sentences of a batch advance together; one that has produced `</s>` is filled up with padding, and the loop
# > stops when all have ended.
# >
# > An undertrained model repeats itself: the likeliest symbol after "a man in a" may lead back to "a man in a", and a
# > search that never takes the second likeliest does not look for a way out. In translation, more training is the cure.
# >
# > The naive form runs the decoder on the whole prefix at every step, although of all its outputs only the last is
# > new.


# %% [markdown]
# > Translations made with dropout still on are a classic mistake; this switches it off for as long as needed.


# %%
@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off inside, and each module as it was before outside."""
    before = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, training in before.items():
            module.training = training


# %%
@torch.inference_mode()
def greedy_decode_naive(model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, start_symbol: int) -> Tensor:
    """Greedy decoding that recomputes the prefix at each step: ids (B, max_len)."""
    with evaluating(model):
        memory = model.encode(src, src_mask)
        ys = torch.full((len(src), 1), start_symbol, device=src.device)
        for _ in range(max_len - 1):
            out = model.decode(memory, src_mask, ys, subsequent_mask(ys.size(1)).to(src.device))
            best = model.generator(out[:, -1]).argmax(-1, keepdim=True)  # (B, 1)
            ys = torch.cat((ys, best), dim=1)
    return ys


# %% [markdown]
# > Because of the causal mask, what earlier positions computed does not change when a symbol is added. It is enough
# > to feed in the *last* symbol and to keep the keys and values of the earlier ones: the **key/value cache**. The
# > keys and values of the source are computed once. The step then costs the same multiplications for one position
# > instead of $t$, and needs no causal mask: all cached keys lie in the past. The same fact makes training in
# > parallel equal to decoding step by step: position $t$ computes the same in both, whether the later symbols are
# > there or not.
# >
# > What a layer remembers grows by one position a step. In a search its rows change places, too, and some are dropped;
# > a processor is spared half the copying if both happen at once.


# %%
def extended(past: Tensor, new: Tensor, rows: Tensor | None = None) -> Tensor:
    """past (R, h, t, d), or of it these rows in this order, with new (rows, h, 1, d) behind: (rows, h, t + 1, d)."""
    if rows is None:
        return torch.cat((past, new), dim=2)
    if past.device.type != "cpu":  # the single copy below was tried on processors alone
        return torch.cat((past.index_select(0, rows), new), dim=2)
    both = new.new_empty(*new.shape[:2], past.size(2) + 1, new.size(3))
    torch.index_select(past, 0, rows, out=both[:, :, :-1])
    both[:, :, -1:] = new
    return both


# %% [markdown]
# > A decoder layer with its memory; of the layer only the two attentions are written anew, the rest is its own.


# %%
class CachedLayer:
    """A decoder layer that takes one position at a time, with the keys and values of earlier ones and of the source."""

    def __init__(self, layer: DecoderLayer, memory: Tensor, mask: Tensor | None):
        own, cross = layer.self_attn, layer.src_attn
        self.layer, self.mask = layer, mask  # mask (B, 1, 1, S), 0 or -inf
        self.weight = torch.cat([W.weight.t() for W in (own.W_q, own.W_k, own.W_v)], dim=1)  # (d_model, ...)
        self.sizes = [W.out_features for W in (own.W_q, own.W_k, own.W_v)]
        self.past: list[Tensor] = []  # keys and values so far, (rows, h, t, d_k or d_v)
        self.rows: Tensor | None = None  # which of these rows go on, and in which order; None: all as they are
        self.source = [split_heads(W(memory), cross.h).contiguous() for W in (cross.W_k, cross.W_v)]  # (B, h, S, ...)

    def __call__(self, x: Tensor, live: Tensor | None = None) -> Tensor:
        """x (rows, d_model) of the next position to the layer's output for it; for `live` see `CachedDecoder.step`."""
        x = self.layer.sublayer[0](x, self.own)
        x = self.layer.sublayer[1](x, lambda x: self.cross(x, live))
        return self.layer.sublayer[2](x, self.layer.feed_forward)

    def own(self, x: Tensor) -> Tensor:
        """Self-attention of the new position to itself and the earlier ones, which it joins."""
        attn = self.layer.self_attn
        Q, *new = (y.view(len(x), attn.h, 1, -1) for y in (x @ self.weight).split(self.sizes, dim=-1))
        self.past = [extended(*pair, self.rows) for pair in zip(self.past, new, strict=True)] if self.past else new
        self.rows = None
        return attn.W_o(F.scaled_dot_product_attention(Q, *self.past).flatten(1))

    def cross(self, x: Tensor, live: Tensor | None) -> Tensor:
        """Attention of each row to its source."""
        attn, Q = self.layer.src_attn, self.layer.src_attn.W_q(x)
        if live is not None:  # a place for each row, and empty ones
            Q = Q.new_zeros(*live.shape, Q.size(-1)).masked_scatter(live.unsqueeze(-1), Q)
        Q = split_heads(Q.view(len(self.source[0]), -1, Q.size(-1)), attn.h)  # (sources, h, places, d_k)
        found = F.scaled_dot_product_attention(Q, *self.source, attn_mask=self.mask).transpose(1, 2).flatten(2)
        return attn.W_o(found.flatten(0, 1) if live is None else found[live])


# %%
class CachedDecoder:
    """The decoder, one symbol of each row at a time; every search uses it. A source may serve several rows."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor):
        memory, self.model, self.length = model.encode(src, src_mask), model, 0
        closed = (src_mask == 0).expand(len(src), 1, -1).unsqueeze(1)  # (B, 1, 1, S)
        mask = memory.new_zeros(closed.shape).masked_fill(closed, -torch.inf) if closed.any() else None
        self.layers = [CachedLayer(layer, memory, mask) for layer in model.decoder.layers]
        self.logits = model.generator.padded()

    @torch.no_grad()
    def step(self, symbols: Tensor, live: Tensor | None = None) -> Tensor:
        """The next symbol of each row (rows) to the logits of the one after it: (rows, V rounded up to a multiple of 64).

        They have no gradients, and what is beyond V is -inf. live (sources, places) says which places of each source have a
        row, in this order; None: all sources have equally many.
        """
        live = None if live is None or live.all() else live
        x = self.model.tgt_embed(symbols.unsqueeze(1), self.length).squeeze(1)  # (rows, d_model)
        for layer in self.layers:
            x = layer(x, live)
        self.length += 1
        return self.logits(self.model.decoder.norm(x))

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these rows, in this order, and of the sources with these, or all."""
        for layer in self.layers:
            layer.rows = rows if layer.rows is None else layer.rows[rows]
            if sources is not None:
                layer.source = [x.index_select(0, sources) for x in layer.source]
                layer.mask = None if layer.mask is None else layer.mask[sources]


# %% [markdown]
# > So the fast form feeds in one symbol at a time. And a sentence that has ended leaves the batch, with its keys and
# > values: a single long sentence then costs its own steps, not those of all its neighbours. The translations are the
# > same, since no sentence of a batch sees another.


# %%
@torch.inference_mode()
def greedy_decode(
    model: Transformer,
    src: Tensor,
    src_mask: Tensor,
    max_len: int,
    start_symbol: int = BOS,
    end_symbol: int | None = EOS,
    pad: int = PAD,
) -> Tensor:
    """The likeliest symbol at each step: ids (B, at most max_len), start_symbol first, `pad` after end_symbol.

    src (B, S), src_mask (B or 1, 1, S). Stops when every sentence has ended; end_symbol None: never before max_len.
    """
    with evaluating(model):
        decoder = CachedDecoder(model, src, src_mask)
        ys = torch.full((len(src), max_len), pad, device=src.device)
        ys[:, 0], going = start_symbol, torch.arange(len(src), device=src.device)  # the sentences still to be ended
        for t in range(1, max_len):
            best = decoder.step(ys[going, t - 1]).max(-1).indices
            ys[going, t] = best
            if end_symbol is None:
                continue
            rows = (best != end_symbol).nonzero().flatten()
            if len(rows) == 0:
                return ys[:, : t + 1]
            if len(rows) < len(going):
                going = going[rows]
                decoder.select(rows, rows)
    return ys


# %%
@example
def example_copy() -> alt.Chart:
    """Train on random sequences, then copy unseen ones exactly; both decoders agree."""
    model, rows = train_copy()
    seen = {tuple(pair.src) for step in range(len(rows)) for pair in copy_pairs(64, 14, seed=step)}
    unseen = make_batch([pair for pair in copy_pairs(250, 14, seed=10**6) if tuple(pair.src) not in seen])
    naive = greedy_decode_naive(model, unseen.src, unseen.src_mask, 12, BOS)
    copies = greedy_decode(model, unseen.src, unseen.src_mask, max_len=12)
    print("source", unseen.src[0].tolist(), "\ncopied", copies[0].tolist())
    assert torch.equal(copies[:, 1:] * unseen.src_mask[:, 0], unseen.src), (
        "not every unseen sequence was copied exactly"
    )
    ends = (naive == EOS).cumsum(1) - (naive == EOS).int() > 0  # what the naive loop wrote after the end
    assert torch.equal(naive.masked_fill(ends, PAD)[:, : copies.size(1)], copies)
    return curves(rows, "update", "loss", "task", log_y=True)


# %% [markdown]
# > **Do sinusoids extend to longer sequences?** The paper hoped so. This model never saw more than ten symbols; here
# > is how it copies longer ones. A vector exists for every position, but what the layers should do with it was learnt
# > only for the first few.


# %%
def copied(model: Transformer, length: int) -> float:
    """The share of 100 random sequences of this length that the model copies exactly."""
    batch = make_batch(copy_pairs(100, 14, seed=10**7 + length, shortest=length, longest=length))
    copies = greedy_decode(model, batch.src, batch.src_mask, max_len=length + 2, end_symbol=None)
    return (copies[:, 1:] == batch.src).all(dim=1).float().mean().item()


@example
def example_longer() -> alt.Chart:
    """Exact copies by length: sure up to the longest trained length, lost soon after."""
    model = train_copy()[0]
    rows = [{"length": n, "copied exactly": copied(model, n), "trained on": "3 to 10 symbols"} for n in range(3, 17)]
    print({row["length"]: row["copied exactly"] for row in rows})
    assert rows[7]["copied exactly"] > 0.95 > 0.5 > rows[-1]["copied exactly"]
    return curves(rows, "length", "copied exactly", "trained on")


# %% [markdown]
# ## Summary of Part 2
#
# > Targets are shifted by one, and a batch is measured in tokens. The loss of an update is a sum over tokens divided
# > by their number, however it is cut up. The rate warms up and then decays. Decoding appends one symbol at a time
# > and remembers keys and values.
# >
# > **Exercises.** 1. Make the copy task reverse its input. Which attention pattern do you expect in the
# > cross-attention? 2. Train it with `warmup=1`, with post-norm and with pre-norm, and compare the losses. 3. Set the
# > shift to zero in `Batch` and explain why the loss falls quickly and the copies are useless.

# %% [markdown]
# # Part 3: A real translation system
#
# ## Data (Section 5.1)
#
# The paper trained on WMT 2014: 4.5 million English-German sentence pairs, encoded by a joint byte-pair encoding of
# about 37,000 entries, and 36 million English-French pairs with 32,000 word pieces.
#
# > That takes days of many processors. We take [Multi30k](https://github.com/multi30k/dataset) (Elliott et al.,
# > 2016): 29,000 captions of photographs in English with German translations by professionals, for research and
# > teaching. It is small enough for a laptop, and real: cased, with punctuation, long words and the order of words
# > that makes German interesting to translate.
# >
# > A *source* of data is a name or a folder. In a folder, `train.de` and `train.en` hold one sentence per line, plain
# > or compressed (`.gz`), and line *i* of one translates line *i* of the other. Files are read line by line, so that a
# > large one needs no more memory than a small one. One that is damaged is refused, and text that is not UTF-8 with its line.


# %%
def find_file(folder: Path, name: str) -> Path:
    """The file `name` or `name`.gz in a folder; raises FileNotFoundError where there is neither."""
    for path in (folder / name, folder / f"{name}.gz"):
        if path.is_file():
            return path
    raise FileNotFoundError(f"{folder / name}: no such file, and no {name}.gz beside it")


# %%
def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 text file, plain or .gz; raises ValueError naming the file, and the line, for a damaged one."""
    number, text = 0, False
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for number, line in enumerate(file, 1):  # only a line feed ends a line, whatever else the text holds
                decoded = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).decode("utf-8").strip()
                text = text or decoded != ""
                yield decoded
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {number}: not UTF-8 ({error.reason})") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}: truncated or not a gzip file ({error})") from error
    if not text:
        raise ValueError(f"{path}: empty")


# %% [markdown]
# > Two files make the pairs. They must have the same number of lines, or some line would be paired with the wrong
# > one.


# %%
def read_parallel(folder: Path, split: str, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    """The sentence pairs of FOLDER/SPLIT.SRC and FOLDER/SPLIT.TGT, line by line.

    Raises FileNotFoundError or ValueError naming the file, and the line, that is missing, damaged or uneven.
    """
    paths = [find_file(Path(folder), f"{split}.{language}") for language in (src, tgt)]
    sides = [read_lines(path) for path in paths]
    for number, pair in enumerate(itertools.zip_longest(*sides)):
        if None in pair:
            short = pair.index(None)
            longer = number + 1 + sum(1 for _ in sides[1 - short])
            raise ValueError(f"{paths[short]}: ends at line {number}, but {paths[1 - short]} has {longer} lines")
        yield pair


# %% [markdown]
# > Multi30k is fetched from its public repository into the user's cache, once.
# > [pooch](https://www.fatiando.org/pooch) downloads to a temporary file, compares the checksum, tries again where
# > that fails, and only then puts the file in its place.

# %%
MULTI30K_URL = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/"
MULTI30K_FILES = {  # SHA-256 of each compressed file
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
    "test_2016_flickr.de.gz": "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    "test_2016_flickr.en.gz": "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    "test_2017_flickr.de.gz": "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    "test_2017_flickr.en.gz": "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    "test_2017_mscoco.de.gz": "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    "test_2017_mscoco.en.gz": "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    "test_2018_flickr.de.gz": "ddd0130c7d97482dc5197a02141dae8dd79f20f03586c480d675c09a32daf608",
    "test_2018_flickr.en.gz": "ef4f4844037d4c5dea75c9a8ed5fd78905967a26f67c255e230cc9780032654d",
}


# %%
def fetch_multi30k(split: str, url: str = MULTI30K_URL) -> Path:
    """The cache folder, after fetching the two files of `split` where they are missing.

    Raises ValueError for an unknown split, FileNotFoundError where the files can be neither found nor fetched.
    """
    import pooch

    names = [f"{split}.{language}.gz" for language in ("de", "en")]
    if names[0] not in MULTI30K_FILES:
        known = sorted({name.split(".")[0] for name in MULTI30K_FILES})
        raise ValueError(f"multi30k has no split {split!r}; it has {', '.join(known)}")
    pooch.get_logger().setLevel("WARNING")
    folder = pooch.os_cache("annotated-transformer") / "multi30k"
    store = pooch.create(folder, url, registry=MULTI30K_FILES, retry_if_failed=2, env="MULTI30K_CACHE")
    try:
        for name in names:
            store.fetch(name, downloader=pooch.HTTPDownloader(timeout=20))
    except (OSError, ValueError) as error:
        reason = textwrap.shorten(str(error), 160)
        raise FileNotFoundError(
            f"multi30k: {names[0]} is not in {store.path} and could not be fetched ({reason}); `captions` needs no network"
        ) from error
    return store.path


# %% [markdown]
# ### A grammar of captions
#
# > Without Multi30k there is still something to learn. This small grammar writes German captions with their English
# > translations. It covers three genders, three cases, plurals, adjective endings, contractions (`im`, `ins`), verbs
# > that split (`hebt ... auf`) and clauses that end in their verb, so the two languages often differ in word order,
# > as they do in real data. It needs no download, and a seed fixes what it writes. A German sentence always has the
# > same translation, so a trained model can come close to a BLEU of 100. The grammar also knows which word translates
# > which, so the attention of a trained model can be compared with the true alignment.
# >
# > A noun is written `m Ball Bälle ball`: gender, singular, plural (`-` if none is needed), English. A person or a
# > pet has its English pronoun after the gender (`f.her`). `w` is a masculine noun that takes its plural form in the
# > accusative and dative (`den Jungen`). An irregular English plural comes last. Nouns stand in classes:
# > `class: adjectives that suit them: nouns;`. To add a noun, add an entry to its class.

# %%
NOUN_TABLE = """
adult: jung=young alt=old groß=tall fröhlich=cheerful: m.him Mann Männer man men, f.her Frau Frauen woman women,
    w.him Tourist Touristen tourist, w.him Student Studenten student, f.her Künstlerin Künstlerinnen artist;
child: klein=little blond=blond: w.him Junge Jungen boy, n.her Mädchen Mädchen girl, n Kind Kinder child children;
pet: braun=brown schwarz=black klein=small: m.it Hund Hunde dog, f.it Katze Katzen cat, w.it Welpe Welpen puppy puppies;
colour: rot=red blau=blue grün=green gelb=yellow schwarz=black weiß=white: n Hemd Hemden shirt, f Jacke Jacken jacket,
    m Mantel Mäntel coat, m Hut Hüte hat, f Mütze Mützen cap, n Halsband Halsbänder collar, f Tasche Taschen bag,
    m Korb Körbe basket, m Ball Bälle ball, f Blume Blumen flower, m Schirm Schirme umbrella;
fruit: reif=ripe groß=big klein=small: m Apfel Äpfel apple, f Banane Bananen banana, f Orange Orangen orange;
text: alt=old neu=new: n Buch Bücher book, f Zeitung Zeitungen newspaper, m Brief Briefe letter;
drink: kalt=cold frisch=fresh: m Saft - juice, f Milch - milk, n Wasser - water, m Tee - tea;
place: klein=small ruhig=quiet: m Park - park, m Wald - forest, m Garten - garden, n Dorf - village, f Stadt - city;
other: : m Bus - bus, n Taxi - taxi, f Bank - bench, f Mauer - wall, n Haus - house,
    m Strand - beach, f Straße - street, f Küche - kitchen, m See - lake, m Fluss - river, n Meer - sea"""
CLASSES = [entry.split(":") for entry in NOUN_TABLE.split(";")]
NOUNS = [(kind.strip(), adjectives.split(), n.split()) for kind, adjectives, nouns in CLASSES for n in nouns.split(",")]

# %% [markdown]
# > The second table says who does what. Its columns are the kind of clause, who, the verb (`hebt.auf heben` stands
# > for "hebt ... auf" and "heben ... auf"), a slot for the object, and where. The slot `auf=for acc ein Bus Taxi` is
# > a preposition with its English, a case, a determiner (`-` for none), and the nouns or classes that fit; `ein/zwei`
# > is a choice, and `je` gives each of a crowd its own (a man reads a book, two men read books). The kind decides how
# > the subject may be described: someone `busy` has no hand free to hold a flower, and a `bare` subject is not
# > described.

# %%
FRAME_TABLE = """
look | adult child     |                            | in=in dat je Hemd Jacke Mantel     |
wear | adult child     | trägt tragen wearing       | acc je Hemd Jacke Mantel Hut Mütze | park street
wear | pet             | trägt tragen wearing       | acc je Halsband                    | park street
hold | adult child     | hält halten holding        | acc je Ball Blume Schirm           | park beach
hold | adult child     | trägt tragen carrying      | acc je Korb Tasche                 | park street
free | adult child     | sitzt sitzen sitting       | auf=on dat ein Bank Mauer          | park lake
free | adult child     | wartet warten waiting      | auf=for acc ein Bus Taxi           | street house
free | adult child pet | sieht.zu sehen watching    | dat ein/zwei adult child pet       | park lake
busy | adult child     | liest lesen reading        | acc je text                        | park beach room
busy | adult child     | isst essen eating          | acc je fruit                       | park lake room
busy | adult child     | trinkt trinken drinking    | acc - drink                        | park beach room
busy | adult child pet | spielt spielen playing     | mit=with dat ein/zwei Ball pet     | park beach street
busy | adult child     | hebt.auf heben picking_up  | acc ein/zwei Ball fruit            | beach street
busy | adult child pet | schläft schlafen sleeping  |                                    | park beach
busy | adult child pet | rennt rennen running       | durch=through acc der place        |
bare | child pet       | springt springen jumping   | in=into acc der See Fluss Meer     |
bare | adult child     | zieht.an ziehen putting_on | acc je Hemd Jacke Mantel           | park room"""
Frame = namedtuple("Frame", "kind who verb slot places")
FRAMES = [Frame(*map(str.strip, line.split("|"))) for line in FRAME_TABLE.strip().splitlines()]
PLACES = {
    "park": "in=in dat der place", "beach": "an=on dat der Strand", "street": "auf=on dat der Straße",
    "lake": "an=by dat der See Fluss", "room": "in=in dat der Küche", "house": "vor=in_front_of dat ein Haus",
}  # fmt: skip
DETERMINERS = dict(ein="a", der="the", die="the", zwei="two", drei="three", viele="many") | {"-": "", "+": ""}
MERGED = {("in", "dem"): "im", ("an", "dem"): "am", ("in", "das"): "ins", (",", ","): ",", (",", "."): "."}
ORDERS = {"main": ("SVPOTR", "SVORP"), "place first": ("PVSOTR", "P,SVOR"), "verb last": ("SOV", "SVO")}

# %% [markdown]
# > A phrase holds the same thing in both languages, and each English word carries the German words that it
# > translates. Either language can then put the parts of a clause into its own order (`S`ubject, `V`erb, `O`bject,
# > `P`lace, `T`ail of the verb, `R`elative clause), and no index is needed before the sentence is complete.


# %%
@dataclass(eq=False, slots=True)  # eq=False: each word is itself, even if another one is spelt like it
class Word:
    """A German word, to which English words can refer wherever it ends up."""

    text: str


class Phrase(NamedTuple):
    """The same thing said in German and in English; a noun phrase keeps what other words agree with."""

    de: list[Word]
    en: list[tuple[str, tuple[Word, ...]]]  # each English word has with it the German words that it translates
    kind: str = "-"
    gender: str = ""  # m, f, n, or p: the plural, one for all genders
    pronoun: str = ""


class Caption(NamedTuple):
    """A German sentence, its translation, and the links (index of a German word, index of an English word)."""

    de: str
    en: str
    links: list[tuple[int, int]]


def say(words: list[tuple[str, str]], *agreement: str) -> Phrase:
    """A phrase of German words, each with its translation (`in_front_of`); either may be missing."""
    sides = [((Word(german),) if german else (), english.split("_") if english else []) for german, english in words]
    en = [(text, sources) for sources, texts in sides for text in texts]
    return Phrase([word for sources, _ in sides for word in sources], en, *agreement)


def join(*phrases: Phrase) -> Phrase:
    """One phrase after the other, in both languages."""
    return Phrase([w for p in phrases for w in p.de], [w for p in phrases for w in p.en])


NOTHING = Phrase([], [])

# %% [markdown]
# > A German noun phrase shows gender and case once: on the determiner if it has an ending, else on the adjective.


# %%
STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"}  # m, f, n, p
DATIVE = {"m": "ihm", "f": "ihr", "n": "ihm", "p": "ihnen"}


def endings(determiner: str, case: str, gender: str) -> tuple[str, str]:
    """The inflected determiner and the ending of the adjective after it."""
    strong = STRONG[case].split()["mfnp".index(gender)]
    weak = "en" if case == "dat" or gender == "p" or strong == "en" else "e"
    if determiner in ("der", "die"):
        return {"e": "die", "es": "das"}.get(strong, "d" + strong), weak
    if determiner == "ein" and (weak == "en" or gender == "f"):
        return "ein" + strong, weak
    return determiner.strip("-+"), strong


def decline(noun: tuple, preposition: str, case: str, determiner: str, adjective: str) -> tuple:
    """The words of a noun phrase, each with its English, and the kind, gender and pronoun for other words to agree."""
    kind, _, (head, german, plural, english, *irregular) = noun
    gender, pronoun = head[0], head[2:]
    if determiner not in ("ein", "der", "-"):
        german = plural + "n" if case == "dat" and plural[-1] not in "ns" else plural
        english, gender, pronoun = irregular[0] if irregular else english + "s", "p", "them"
    elif gender == "w":
        german, gender = german if case == "nom" else plural, "m"
    stem, quality = adjective.split("=")
    article, ending = endings(determiner, case, gender)
    the = "an" if determiner == "ein" and (quality or english)[0] in "aeiou" else DETERMINERS[determiner]
    words = [preposition.split("="), (article, the), (stem and stem + ending, quality), (german, english)]
    return [word for word in words if any(word)], kind, gender, pronoun


# %% [markdown]
# > The ways to fill a slot are listed once; writing a caption then only chooses among them.


# %%
@functools.cache
def fillings(slot: str, crowd: bool) -> list[tuple]:
    """All that may fill a slot, half of it without an adjective."""
    preposition, case, choices, *names = slot.split() if "=" in slot else ["=", *slot.split()]
    return [
        decline(noun, preposition, case, determiner, adjective)
        for noun in NOUNS
        if noun[0] in names or noun[2][1] in names
        for determiner in choices.replace("je", "+" if crowd else "ein").split("/")
        for adjective in [*noun[1], *["="] * max(1, len(noun[1]))]
    ]


def fill(rng: random.Random, slot: str, crowd: bool = False) -> Phrase:
    """One filling of a slot: for `mit=with dat ein pet`, perhaps `mit einem braunen Hund`, `with a brown dog`."""
    return say(*rng.choice(fillings(slot, crowd))) if slot else NOTHING


# %% [markdown]
# > A German main clause has its verb second and leaves the particle for the end (`hebt einen Ball auf`); any other
# > clause ends in its verb, in one piece (`einen Ball aufhebt`).


# %%
def clause(rng: random.Random, frame: Frame, who: Phrase, order: str, place: str = "", *given: Phrase) -> Phrase:
    """What someone does, to a given object or to one that fits the frame."""
    singular, infinitive, english = frame.verb.split()
    finite, _, particle = singular.partition(".")
    crowd, last = who.gender == "p", order == "verb last"
    head = say([(particle * last + (infinitive if crowd else finite), "are" if crowd else "is")])
    tail = say([(particle, "")]) if particle and not last else NOTHING
    verb = Phrase(head.de, head.en + [(text, (*head.de, *tail.de)) for text in english.split("_")])
    thing = given[0] if given else fill(rng, frame.slot, crowd)
    more = NOTHING if last else describe(rng, thing, "wear hold")
    parts = {"S": who, "V": verb, "O": thing, "P": fill(rng, place), "T": tail, "R": more, ",": say([("", ",")])}
    de, en = ORDERS[order]
    return Phrase([w for name in de for w in parts[name].de], [w for name in en for w in parts[name].en])


def describe(rng: random.Random, who: Phrase, kinds: str) -> Phrase:
    """Perhaps a description: `in einem roten Hemd`, or a relative clause, `der einen Ball hält`, in its commas."""
    if rng.random() > 0.4 or not (frames := [f for f in FRAMES if f.kind in kinds and who.kind in f.who]):
        return NOTHING
    frame = rng.choice(frames)
    if frame.kind == "look":
        return fill(rng, frame.slot, who.gender == "p")
    that = say([(endings("der", "nom", who.gender)[0], "that" if who.kind == "pet" else "who")], *who[2:])
    return join(say([(",", "")]), clause(rng, frame, that, "verb last"), say([(",", "")]))


def meanwhile(rng: random.Random, who: Phrase) -> Phrase:
    """What others do at the same time; they often watch: `, während eine Frau ihm zusieht`."""
    watched = [say([(DATIVE[who.gender], who.pronoun)])] if who.pronoun and rng.random() < 0.4 else []
    frame = rng.choice([f for f in FRAMES if ("zu" in f.verb if watched else f.kind in "free busy")])
    others = fill(rng, f"nom ein/ein/ein/zwei/drei {frame.who}")
    return join(say([(",", ""), ("während", "while")]), clause(rng, frame, others, "verb last", "", *watched))


# %% [markdown]
# > A caption is a main clause, at times with its place in front, and perhaps what others do meanwhile. Only when it
# > is complete are words merged (`in dem` becomes `im`) and links turned into indices. Only commas stay without a
# > link.


# %%
def compose(rng: random.Random) -> Phrase:
    """One whole sentence."""
    frame = rng.choice([frame for frame in FRAMES if frame.verb])
    who = fill(rng, f"nom ein/ein/ein/ein/der/die/zwei/drei/viele {frame.who}")
    more = describe(rng, who, {"free": "look wear hold", "busy": "look wear"}.get(frame.kind, ""))
    place = PLACES[rng.choice(frame.places.split())] if frame.places and rng.random() < 0.6 else ""
    order = "place first" if place and rng.random() < 0.3 else "main"
    scene = clause(rng, frame, Phrase(*join(who, more)[:2], *who[2:]), order, place)
    return join(scene, meanwhile(rng, who) if rng.random() < 0.4 else NOTHING, say([(".", ".")]))


def finish(sentence: Phrase) -> Caption:
    """The two texts of a sentence, and its links as indices of their words and punctuation marks."""
    german, index = [""], {}
    for word in sentence.de:
        merged = MERGED.get((german[-1], word.text))
        german[len(german) - bool(merged) :] = [merged or word.text]
        index[word] = len(german) - 2  # german[0] is only there for the first word to look back at
    links = [(index[word], j) for j, (_, sources) in enumerate(sentence.en) for word in sources]
    texts = (" ".join(t).replace(" ,", ",").replace(" .", ".") for t in (german[1:], [text for text, _ in sentence.en]))
    return Caption(*(text[0].upper() + text[1:] for text in texts), links)


def captions(n: int, seed: int = 0) -> list[Caption]:
    """The first `n` different captions of a seed; `ValueError` if `n` is negative or above a million."""
    if not 0 <= n <= 1_000_000:
        raise ValueError(f"expected n between 0 and 1,000,000, got {n}")
    rng, found = random.Random(seed), {}
    while len(found) < n:
        caption = finish(compose(rng))
        if len(nouns := re.findall(r"[A-ZÄÖÜ]\w{2,3}", caption.de)) == len(set(nouns)):  # a 2nd dog is "another dog"
            found.setdefault(caption.de, caption)
    return list(found.values())


# %% [markdown]
# > All sources are read through one function. The splits of the captions never overlap.

# %%
CAPTION_SPLITS = {"train": slice(1000, None), "val": slice(0, 500), "test": slice(500, 1000)}


@functools.cache
def caption_corpus() -> list[Caption]:
    """The captions that are cut into splits."""
    return captions(21_000)


def hub_pairs(name: str, split: str, src: str, tgt: str) -> Iterator[tuple[str, str]]:
    """The pairs of a translation set of the Hugging Face hub, NAME or NAME:CONFIG, read from disk as they are asked for.

    The split `val` is the hub's `validation`. Raises FileNotFoundError where there is no such set or split, ValueError
    for a language that it does not have.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise ValueError(f"hf:{name} needs the package datasets: pip install datasets") from None
    path, _, config = name.partition(":")
    if not path:
        raise ValueError("hf: needs the name of a set, hf:NAME or hf:NAME:CONFIG")
    try:
        rows = load_dataset(path, config or None, split="validation" if split == "val" else split)
    except Exception as error:  # the library raises errors of many kinds
        raise FileNotFoundError(f"hf:{name}: {' '.join(str(error).split())}") from error
    try:
        for row in rows:
            yield tuple(" ".join((row["translation"][language] or "").split()) for language in (src, tgt))
    except KeyError as error:
        raise ValueError(
            f"hf:{name}: no {error} in {split}; translation sets have `translation` with {src}, {tgt}"
        ) from error


# %%
def stream_pairs(data: str, split: str, src: str = "de", tgt: str = "en") -> Iterator[tuple[str, str]]:
    """The sentence pairs of a split of a source, one by one: `multi30k`, `captions`, `hf:NAME[:CONFIG]` or a folder.

    Raises ValueError or FileNotFoundError with one line that says what is wrong, some of it only when that line is read.
    """
    if data == "multi30k":
        return read_parallel(fetch_multi30k(split), split, src, tgt)
    if data == "captions":
        if split not in CAPTION_SPLITS or {src, tgt} != {"de", "en"}:
            raise ValueError(
                f"captions has the splits {', '.join(CAPTION_SPLITS)} in de and en, not {split}.{src} and {split}.{tgt}"
            )
        return ((getattr(c, src), getattr(c, tgt)) for c in caption_corpus()[CAPTION_SPLITS[split]])
    if data.startswith("hf:"):
        return hub_pairs(data.removeprefix("hf:"), split, src, tgt)
    if not Path(data).is_dir():
        raise FileNotFoundError(f"{data}: neither multi30k, captions, hf:NAME nor a folder")
    return read_parallel(Path(data), split, src, tgt)


def load_pairs(data: str, split: str, src: str = "de", tgt: str = "en") -> list[tuple[str, str]]:
    """All sentence pairs of a split of a source; raises as `stream_pairs` does."""
    return list(stream_pairs(data, split, src, tgt))


# %% [markdown]
# > This document reads its source from the environment variable `ANNOTATED_DATA` and takes Multi30k by default.
# > Without a network it goes on with `captions` and says so.


# %%
@functools.cache
def choose_data() -> str:
    """The data source of this document: $ANNOTATED_DATA, or multi30k, or captions where that cannot be had."""
    wanted = os.environ.get("ANNOTATED_DATA", "multi30k")
    try:
        for split in ("train", "val"):
            load_pairs(wanted, split)
    except FileNotFoundError as error:
        print(
            f"NOTICE: {error}\nNOTICE: going on with the built-in captions; their scores say nothing about real text."
        )
        return "captions"
    return wanted


# %%
@example
def example_data() -> None:
    """What there is to learn from: the number of pairs, and their lengths in words."""
    data = choose_data()
    for split in ("train", "val"):
        pairs = load_pairs(data, split)
        words = [sum(len(side.split()) for side in column) / len(pairs) for column in zip(*pairs, strict=True)]
        print(f"{split}: {len(pairs):,} pairs, German {words[0]:.1f} and English {words[1]:.1f} words on average")
    sample = captions(1, seed=5)[0]
    print(f"a pair of the built-in grammar: {sample.de} | {sample.en}")


# %% [markdown]
# ## Words and word pieces (Section 5.1)
#
# Byte-pair encoding (Sennrich et al., 2016) starts from single characters and merges the most frequent neighbouring
# pair, again and again. Frequent words become one entry, rare ones fall into pieces, and hardly anything is unknown.
# The paper learns one encoding for both languages together.
#
# > Both ways are here. *Words*: spaCy's rules split a sentence into words and punctuation; every word seen twice or more
# > gets a number, all others become `<unk>`. *Pieces*: the `tokenizers` library learns the merges. In both, `▁` marks a
# > symbol that begins the sentence or follows a space, so that decoding is putting the symbols together and needs no
# > rules for where spaces go.
# >
# > Both languages share one vocabulary, learnt from the training split alone.


# %%
def words_of(text: str, language: str) -> list[str]:
    """Words and punctuation by spaCy's rules for the language, `▁` before those that follow a space."""
    import spacy

    try:
        if language not in SPACY:
            SPACY[language] = spacy.blank(language)
    except ImportError as error:
        raise ValueError(f"spaCy has no rules for the language {language!r}") from error
    words = SPACY[language].tokenizer(" ".join(text.split()))
    return [("▁" if i == 0 or words[i - 1].whitespace_ else "") + word.text for i, word in enumerate(words)]


SPACY: dict[str, Any] = {}  # one tokeniser per language, made when first used


# %% [markdown]
# > One class serves both; what was learnt sits in a `tokenizers.Tokenizer`, which knows how to save itself.


# %%
class Tokenizer:
    """Text to ids and back, with one vocabulary for both languages; words or byte-pair encoding (Section 5.1)."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary  # a tokenizers.Tokenizer
        self.vocabulary.encode_special_tokens = True  # the text "</s>" in a sentence is text
        self.words = type(vocabulary.model).__name__ == "WordLevel"
        self.ranks = {tuple(m): i for i, m in enumerate(json.loads(vocabulary.to_str())["model"].get("merges", []))}

    def __len__(self) -> int:
        return self.vocabulary.get_vocab_size()

    def encode(self, text: str, language: str) -> list[int]:
        """The ids of a sentence, without BOS and EOS."""
        if self.words:
            return self.vocabulary.encode(words_of(text, language), is_pretokenized=True).ids
        return self.vocabulary.encode(text).ids

    def encode_batch(self, texts: Iterable[str], language: str) -> list[list[int]]:
        """The ids of many sentences, without BOS and EOS; pieces are found on all cores at once."""
        words = [words_of(text, language) for text in texts] if self.words else list(texts)
        return [found.ids for found in self.vocabulary.encode_batch_fast(words, is_pretokenized=self.words)]

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The symbols with these ids, specials included."""
        return [self.vocabulary.id_to_token(i) for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The sentence up to EOS; an unknown word or symbol shows as <unk>."""
        ids = [i for i in itertools.takewhile(lambda i: i != EOS, ids) if i not in (PAD, BOS)]
        unknown = "▁<unk>" if self.words else "<unk>"  # unknown words most likely had a space before them
        return "".join(unknown if i == UNK else self.vocabulary.id_to_token(i) for i in ids).replace("▁", " ").strip()

    def pairs(self, texts: Iterable[tuple[str, str]], languages: tuple[str, str]) -> list[Pair]:
        """Sentence pairs as training examples."""
        sides = [
            self.encode_batch(side, language)
            for side, language in zip(zip(*texts, strict=True), languages, strict=True)
        ]
        return [Pair([*src, EOS], [BOS, *tgt, EOS]) for src, tgt in zip(*sides, strict=True)]


# %% [markdown]
# > What there is to learn: the words, or the merges.


# %%
def learn_words(pairs: Iterable[tuple[str, str]], languages: tuple[str, str], at_least: int = 2) -> Tokenizer:
    """A vocabulary of all words that occur `at_least` times in the pairs."""
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import WordLevel

    counts = Counter(
        w for pair in pairs for text, language in zip(pair, languages, strict=True) for w in words_of(text, language)
    )
    words = SPECIALS + [
        word for word, n in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if n >= at_least
    ]
    return Tokenizer(Vocabulary(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")))


# %%
def learn_bpe(pairs: Iterable[tuple[str, str]], merges: int) -> Tokenizer:
    """A joint byte-pair encoding of both sides with at most `merges` merges (Section 5.1); reads the pairs twice."""
    from tokenizers import Regex, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    vocabulary = Vocabulary(BPE(unk_token="<unk>"))
    vocabulary.normalizer = normalizers.Sequence(
        [normalizers.NFC(), normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    )
    vocabulary.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    alphabet = {character for pair in pairs for text in pair for character in set(text)}
    size = len(SPECIALS) + len(alphabet) + merges
    trainer = BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False)
    vocabulary.train_from_iterator(itertools.chain.from_iterable(pairs), trainer)
    return Tokenizer(vocabulary)


# %% [markdown]
# > **BPE-dropout** (Provilkov et al., 2020). A model that sees each word cut in one way only learns little about the word's
# > parts. So while training, each merge is skipped at random now and then, and the word falls into other, smaller
# > pieces, anew in each epoch. Translation still uses all merges. Batches are put together before that, by the usual
# > number of pieces, so they grow beyond `tokens_per_batch`.


# %%
def segment(word: str, ranks: dict[tuple[str, str], int], skip: float, draw: random.Random) -> list[str]:
    """A word as pieces: the merge of lowest rank first, where each possible merge is skipped with probability `skip`."""
    pieces = list(word)
    while True:
        pairs = enumerate(itertools.pairwise(pieces))
        merges = [(ranks[pair], i) for i, pair in pairs if pair in ranks and draw.random() >= skip]
        if not merges:
            return pieces
        i = min(merges)[1]
        pieces[i : i + 2] = ["".join(pieces[i : i + 2])]


# %% [markdown]
# > Training examples are numbers already, so their pieces are first joined into words again.


# %%
def recut(tokenizer: Tokenizer, ids: Iterable[int], skip: float, draw: random.Random) -> list[int]:
    """The same sentence in other pieces, each merge skipped with probability `skip`."""
    words = [""]
    for piece in tokenizer.tokens(ids):
        if piece.startswith("▁") or piece in SPECIALS or words[-1] in SPECIALS:
            words.append(piece)
        else:
            words[-1] += piece
    pieces = ([word] if word in SPECIALS else segment(word, tokenizer.ranks, skip, draw) for word in words)
    return [tokenizer.vocabulary.token_to_id(piece) for piece in itertools.chain.from_iterable(pieces)]


def recut_batch(pairs: list[Pair], tokenizer: Tokenizer, skip: float, seed: int, epoch: int) -> list[Pair]:
    """A training batch in other pieces; the same batch, seed and epoch give the same ones."""
    draw = random.Random(f"{seed} {epoch} {zlib.crc32(repr(pairs).encode())}")
    return [Pair(*(recut(tokenizer, side, skip, draw) for side in pair)) for pair in pairs]


# %% [markdown]
# > One sentence in both ways. Decoding gives the sentence back.


# %%
@example
def example_tokens() -> None:
    """One sentence as words and as pieces; both ways back give the sentence."""
    pairs = load_pairs("captions", "train")[:2000]
    sentence = load_pairs("captions", "val")[0][0]
    for name, tokenizer in (("words", learn_words(pairs, ("de", "en"))), ("pieces", learn_bpe(pairs, 300))):
        ids = tokenizer.encode(sentence, "de")
        print(f"{name:>6}, vocabulary {len(tokenizer)}: {' '.join(tokenizer.tokens(ids))}")
        assert tokenizer.decode(ids) == sentence


# %% [markdown]
# ## A run and its folder
#
# > A training run lives in a folder: what it was asked to do (`config.json`), its vocabulary (`tokenizer.json`), what it
# > measured (`log.jsonl`), and its weights. Calling `train` again with the same folder continues where it stopped, and after
# > as many updates the result is the same as if it had never been interrupted: the order of the batches depends on the seed
# > and the epoch alone, and the dropout on the seed and the update.
# >
# > Every file but the log is first written beside its place and then moved there, so a crash never leaves half a file. Weights
# > are stored as [safetensors](https://huggingface.co/docs/safetensors), which hold numbers and nothing that could
# > run.


# %%
def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, then move it to `path` in one step; raises OSError where that cannot be."""
    if not path.parent.is_dir() or path.is_dir():
        raise OSError(f"{path}: {'this is a folder' if path.is_dir() else 'its folder does not exist'}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        write(Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


# %%
def write_tensors(path: Path, tensors: dict[str, Tensor], **metadata: Any) -> None:
    """Write tensors and JSON-able metadata as a safetensors file, atomically."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    notes = {key: json.dumps(value) for key, value in metadata.items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, notes))


# %% [markdown]
# > Reading a file that someone else wrote, or a crash cut short, must fail with its name and not with a traceback.


# %%
def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and metadata of a safetensors file; raises ValueError for a damaged one, FileNotFoundError for none."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, {
                k: json.loads(v) for k, v in (file.metadata() or {}).items()
            }
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: not a safetensors file that a run wrote ({error})") from error


# %% [markdown]
# > Tied matrices are one parameter with several names; a file holds it once.


# %%
def weights_of(model: Transformer) -> dict[str, Tensor]:
    """The model's parameters by name, each tied one once."""
    return dict(model.named_parameters())


# %%
def load_weights(model: Transformer, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into the model's parameters; raises ValueError naming `path` where they do not fit."""
    own = weights_of(model)
    for name in sorted(own.keys() ^ tensors.keys()):
        raise ValueError(
            f"{path}: not weights of this model ({name} is {'missing' if name in own else 'not part of it'})"
        )
    for name, parameter in own.items():
        if parameter.shape != tensors[name].shape:
            raise ValueError(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}, but the model needs {tuple(parameter.shape)}"
            )
        with torch.no_grad():
            parameter.copy_(tensors[name])


# %% [markdown]
# > A linear layer's matrix has a row for each output. The product of a few vectors with it is often quicker to compute when
# > it lies in memory the other way round: on one of our machines it takes 0.6 of the time for 16 vectors of `small`, 0.9 for
# > 64 (`benchmarks/results/LOG.md`). A tensor knows in which order its numbers lie, so whatever computes with it gives the
# > same. (What wants them row by row, such as `safetensors.torch.save_file`, needs a copy: `.contiguous()`.)


# %%
def transpose_in_memory(model: Transformer) -> None:
    """Lay the matrices of all layers column by column, for decoding; shapes and values stay, `is_contiguous()` does not."""
    for module in (*model.encoder.modules(), *model.decoder.modules()):
        if isinstance(module, nn.Linear):
            module.weight.data = module.weight.data.t().contiguous().t()


# %% [markdown]
# > A *translator* is a model with its tokeniser and the names of its languages, read from the folder of a run.


# %%
def build_model(config: Config, vocab: int) -> Transformer:
    """A fresh model with the sizes of a configuration."""
    return make_model(
        vocab, vocab, config.N, config.d_model, config.d_ff, config.h, config.dropout,
        norm=config.norm, tie=config.tie, inner_dropout=config.inner_dropout,
        d_k=config.d_k or None, positions=config.positions,
    )  # fmt: skip


class Translator(NamedTuple):
    """A trained model with everything needed to use it."""

    model: Transformer
    tokenizer: Tokenizer
    languages: tuple[str, str]
    path: Path


# %%
def load_translator(path: str | Path) -> Translator:
    """Read a run or model folder: model.safetensors, tokenizer.json, config.json.

    Raises FileNotFoundError or ValueError naming the file that is missing, damaged or does not fit.
    """
    path = Path(path)
    if path.is_file():
        raise ValueError(f"{path}: a file, not the folder of a run or a model")
    about = read_json(path / "config.json")
    try:
        vocab, languages = int(about["vocab"]), (str(about["src"]), str(about["tgt"]))
        model = build_model(Config(**about["settings"]), vocab)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path / 'config.json'}: not the configuration of a model ({error})") from error
    tokenizer = read_tokenizer(path / "tokenizer.json")
    if len(tokenizer) != vocab:
        raise ValueError(f"{path / 'tokenizer.json'}: {len(tokenizer)} entries, but the model has {vocab}")
    if not (path / "model.safetensors").is_file():
        raise FileNotFoundError(
            f"{path / 'model.safetensors'}: no such file; the run has not reached its first checkpoint"
        )
    load_weights(model, read_tensors(path / "model.safetensors")[0], path / "model.safetensors")
    transpose_in_memory(model)
    return Translator(model.to(best_device()).eval(), tokenizer, languages, path)


# %% [markdown]
# > The two small files beside the weights:


# %%
def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises ValueError for anything else, FileNotFoundError for no file."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; is {path.parent} the folder of a run or a model?") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")
    return value


# %%
def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer from its file; raises ValueError for a damaged one."""
    from tokenizers import Tokenizer as Vocabulary

    read_json(path)
    try:
        return Tokenizer(Vocabulary.from_file(str(path)))
    except Exception as error:  # the library raises bare Exception
        raise ValueError(f"{path}: not a tokenizer ({error})") from error


# %% [markdown]
# > The state of a run is more than the model: the moving average, the optimisers' own averages (Adam has two of each
# > weight, Muon one), and the position in the data.


# %%
@dataclass
class Progress:
    """How far a run has come: `batch` batches of epoch `epoch` are done, after `seconds` of training."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0


# %%
def moments(trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """The optimisers' state of each weight by its name: their moving averages, and Adam's number of updates."""
    states = {p: state for optimizer in trainer.optimizers for p, state in optimizer.state.items()}
    return {name: states[p] for name, p in weights_of(trainer.model).items()}


# %% [markdown]
# > A checkpoint is written in three files: the weights alone, of which the last twenty stay, to be averaged; the model as
# > it is to be used; and the state, last, so that a crash between them is made good when the run goes on.


# %%
KEPT = 20  # checkpoints of a run, as many as the paper averaged


def save_checkpoint(run: Path, trainer: Trainer, progress: Progress) -> None:
    """Write the weights at this update, the state from which to continue, and the model as of now."""
    tensors = {f"model.{name}": p for name, p in weights_of(trainer.model).items()}
    for name, state in moments(trainer).items():
        tensors |= {f"{kind}.{name}": state[kind] for kind in state.keys() - {"step"}}
    if trainer.config.ema:
        tensors |= {f"averaged.{name}": p for name, p in weights_of(trainer.averaged).items()}
    folder = run / "checkpoints"
    folder.mkdir(exist_ok=True)
    write_tensors(folder / f"{progress.step:06d}.safetensors", weights_of(trainer.model), step=progress.step)
    for old in sorted(folder.glob("[0-9]*[0-9].safetensors"), key=lambda path: int(path.stem))[:-KEPT]:
        old.unlink()
    write_tensors(run / "model.safetensors", weights_of(trainer.averaged), step=progress.step)
    write_tensors(folder / "state.safetensors", tensors, progress=asdict(progress))


# %% [markdown]
# > Going on means reading all that back, and refusing what does not fit.


# %%
def load_checkpoint(run: Path, trainer: Trainer) -> Progress:
    """Restore the newest state of a run, if it has one; raises ValueError for a damaged or foreign one."""
    path = run / "checkpoints" / "state.safetensors"
    if not path.exists():
        return Progress()
    tensors, notes = read_tensors(path)
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        groups.setdefault(kind, {})[rest] = tensor
    load_weights(trainer.model, groups.get("model", {}), path)
    if trainer.config.ema:
        load_weights(trainer.averaged, groups.get("averaged", {}), path)
    try:
        progress = Progress(**notes["progress"])
        for name, state in moments(trainer).items():
            for kind in state.keys() - {"step"}:
                state[kind].copy_(groups[kind][name].view_as(state[kind]))
            state.get("step", torch.zeros(())).fill_(progress.step)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: not the state of a run ({error})") from error
    trainer.step = progress.step
    return progress


# %% [markdown]
# ## Corpora that do not fit in memory
#
# > Multi30k fits in memory many times over; the 36 million pairs of WMT's English-French do not, as Python lists. So a
# > run turns its text into numbers once and keeps them in two files: all ids one after the other, and where each
# > sentence starts. Later only what a batch needs is read. The files are *mapped*: they look like arrays, and the
# > operating system fetches the pages that are touched. It counts those pages as the program's memory until the
# > mapping is closed, so each batch maps anew.


# %%
class TokenStore:
    """Sentence pairs as numbers in two files, PATH and PATH with the suffix .starts, read only where needed."""

    def __init__(self, path: Path, vocab: int):
        self.path, self.kind = path, np.uint16 if vocab <= 2**16 else np.uint32

    def starts(self) -> np.ndarray:
        """Where source and target of each pair start among the ids, and where the last one ends: (2n + 1)."""
        return np.asarray(np.memmap(self.path.with_suffix(".starts"), np.int64, "r"))

    def lengths(self) -> np.ndarray:
        """The tokens of each source and target: (n, 2)."""
        return np.diff(self.starts()).astype(np.int32).reshape(-1, 2)

    def __len__(self) -> int:
        return len(self.starts()) // 2

    def __getitems__(self, rows: Iterable[int]) -> list[Pair]:
        """The pairs with these numbers."""
        ids, starts = np.asarray(np.memmap(self.path, self.kind, "r")), self.starts()
        spans = (starts[2 * row : 2 * row + 3].tolist() for row in rows)
        return [Pair(ids[src:tgt].tolist(), ids[tgt:end].tolist()) for src, tgt, end in spans]


# %%
def write_store(
    path: Path, texts: Iterable[tuple[str, str]], tokenizer: Tokenizer, languages: tuple[str, str]
) -> TokenStore:
    """Turn text into a store, ten thousand pairs at a time; at every moment there is either a whole store or none."""
    store, texts, starts = TokenStore(path, len(tokenizer)), iter(texts), array("q", [0])

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            while chunk := list(itertools.islice(texts, 10_000)):
                sides = list(itertools.chain.from_iterable(tokenizer.pairs(chunk, languages)))
                starts.extend(itertools.accumulate(map(len, sides), initial=starts.pop()))
                np.fromiter(itertools.chain.from_iterable(sides), store.kind).tofile(file)

    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, write)
    write_atomically(path.with_suffix(".starts"), lambda temporary: temporary.write_bytes(starts.tobytes()))
    return store


# %% [markdown]
# > A few hundred pairs, to see that what goes in comes out:


# %%
@example
def example_store() -> None:
    """What goes in comes out, whichever rows are asked for."""
    texts = load_pairs("captions", "val")
    tokenizer = learn_bpe(texts, 300)
    with tempfile.TemporaryDirectory() as folder:
        store = write_store(Path(folder, "val.ids"), texts, tokenizer, ("de", "en"))
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        print(f"{len(store)} pairs, {store.lengths().sum():,} tokens, {size:,} bytes")
        assert store.__getitems__([7, 0, 499]) == tokenizer.pairs([texts[i] for i in (7, 0, 499)], ("de", "en"))


# %% [markdown]
# ## Several processes
#
# > **Data parallelism.** `torchrun --nproc-per-node K -- the_annotated_transformer.py train …` starts K copies of the
# > program. Each holds the whole model and takes its share of the rows of every batch; PyTorch's
# > `DistributedDataParallel` adds up the gradients, over NCCL between GPUs and Gloo between CPUs; each copy then
# > makes the same step. The batches are those of a single process, the sum is divided by the tokens of the whole
# > update, and so K processes compute the gradient of one (up to dropout, which each draws for itself). Only the
# > process of rank 0 writes. (The `--` tells torchrun that its own options end there; older Pythons otherwise take
# > our `--run` for an abbreviation of one of them.)
# >
# > On several machines, the same command runs on each with `--nnodes`, `--node-rank` and `--rdzv-endpoint`, and the
# > folder of the run lies on a file system that all of them share.


# %%
@contextmanager
def process_group() -> Iterator[None]:
    """Join the other processes if torchrun started this one; leave them at the end."""
    if "WORLD_SIZE" not in os.environ or int(os.environ["WORLD_SIZE"]) == 1:
        yield
        return
    device = best_device()
    if device.type != "cpu":
        torch.accelerator.set_device_index(device.index)
    wait = timedelta(days=1)  # the first process may read a large corpus for hours before the others have work
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=wait)
    try:
        yield
    finally:
        dist.destroy_process_group()


# %%
def over_processes(*numbers: float) -> list[float]:
    """Each number added up over all processes; the numbers themselves if there is one process."""
    if not dist.is_initialized():
        return list(numbers)
    total = torch.tensor(numbers, dtype=torch.float64, device=best_device())
    dist.all_reduce(total)
    return total.tolist()


# %% [markdown]
# > Validation measures the cross-entropy without smoothing, so its exponential is a perplexity. Each process takes
# > every K-th batch, and sums and counts are added up over all.


# %%
@torch.inference_mode()
def validation_loss(trainer: Trainer, pairs: list[Pair]) -> float:
    """The mean cross-entropy in nats per target token under the averaged weights, over all processes."""
    objective = Objective(trainer.averaged, eps=0.0)
    budget = max(trainer.config.tokens_per_batch // trainer.world, max(len(side) for pair in pairs for side in pair))
    loss, tokens = 0.0, 0
    with evaluating(trainer.averaged):
        for rows in token_batches([(len(p.src), len(p.tgt)) for p in pairs], budget)[trainer.rank :: trainer.world]:
            batch = make_batch([pairs[i] for i in rows]).to(trainer.device)
            loss, tokens = loss + objective(batch).item(), tokens + batch.ntokens
    total, count = over_processes(loss, tokens)
    return total / count


# %% [markdown]
# ## The training run
#
# > The loop goes through the batches of each epoch, from where the run stopped. Now and then it measures the loss on
# > the validation set and saves its state; both count as training time. It ends after so many minutes, epochs or
# > updates. PyTorch's `DataLoader` reads the batches from the store, with `--workers 2` in two processes that work
# > ahead, so that a GPU need not wait.


# %%
class Budget(NamedTuple):
    """When a run ends: after so many minutes, epochs or updates, whichever comes first."""

    minutes: float = math.inf
    epochs: float = math.inf
    steps: float = math.inf

    def spent(self, progress: Progress) -> bool:
        """True when the run has to end; all processes get the same answer, that of rank 0."""
        done = progress.seconds >= 60 * self.minutes or progress.epoch >= self.epochs or progress.step >= self.steps
        return over_processes(float(done and processes()[0] == 0))[0] > 0

    def share(self, progress: Progress, batches: int) -> float:
        """The part of the budget that is spent, between 0 and 1, where an epoch has so many batches."""
        epochs = progress.epoch + progress.batch / batches
        parts = progress.seconds / 60 / self.minutes, epochs / self.epochs, progress.step / self.steps
        return min(1.0, max(parts))


# %% [markdown]
# > The loop:


# %%
def fit(
    run: Path, trainer: Trainer, tokenizer: Tokenizer, pairs: TokenStore, val: list[Pair], budget: Budget,
    checkpoint_every: int, workers: int,
) -> Progress:  # fmt: skip
    """Train until the budget is spent, with checkpoints, a log and a progress bar; goes on where `run` stopped."""
    progress = load_checkpoint(run, trainer)
    saved = progress.step, progress.seconds
    log, clock = Log(run, trainer.rank == 0, progress), Stopwatch(progress.seconds)
    config, lengths = trainer.config, pairs.lengths()
    with progress_bar(trainer.rank == 0) as bar:
        while not budget.spent(progress):
            batches = token_batches(lengths, config.tokens_per_batch, seed=config.seed + 7919 * progress.epoch)
            cut = {"tokenizer": tokenizer, "skip": config.bpe_dropout, "seed": config.seed, "epoch": progress.epoch}
            collate = functools.partial(recut_batch, **cut) if config.bpe_dropout else list
            left = batches[progress.batch :]
            for batch in DataLoader(pairs, batch_sampler=left, collate_fn=collate, num_workers=workers):
                loss = trainer.update(batch)
                if not math.isfinite(loss):
                    raise ValueError(
                        f"the loss of update {trainer.step} is {loss}; try a lower --factor, in another --run"
                    )
                progress.step, progress.batch = trainer.step, progress.batch + 1
                progress.tokens += sum(len(p.tgt) - 1 for p in batch)
                progress.seconds = clock.seconds()
                log.update(progress, loss, trainer.lr, bar)
                bar.n = round(100 * budget.share(progress, len(batches)))
                if progress.step % checkpoint_every == 0:
                    checkpoint(run, trainer, progress, val, log)
                    saved, progress.seconds = (progress.step, progress.seconds), clock.seconds()
                if budget.spent(progress):
                    break
            else:
                progress.epoch, progress.batch = progress.epoch + 1, 0
    if progress.step > saved[0]:
        checkpoint(run, trainer, progress, val, log)
    elif progress.seconds > saved[1] and trainer.rank == 0:
        save_checkpoint(run, trainer, progress)  # the last checkpoint's own time used up the budget
    return progress


# %%
def checkpoint(run: Path, trainer: Trainer, progress: Progress, val: list[Pair], log: "Log") -> None:
    """Measure the validation loss, log it, and save the state of the run."""
    loss = validation_loss(trainer, val)
    if not math.isfinite(loss):
        raise ValueError(
            f"the validation loss at update {trainer.step} is {loss}; try a lower --factor, in another --run"
        )
    log.write(progress, val_loss=round(loss, 4), val_perplexity=round(math.exp(min(loss, 50)), 3))
    if trainer.rank == 0:
        save_checkpoint(run, trainer, progress)


# %% [markdown]
# > The log is one JSON object per line. A run that is continued drops what was logged after its checkpoint, since
# > that part happens again.


# %%
def read_log(run: Path) -> list[dict]:
    """The rows of a run's log; a last line that a crash cut short is left out."""
    path, rows = Path(run) / "log.jsonl", []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


# %%
class Stopwatch:
    """Seconds since it was made, on top of those that were spent before."""

    def __init__(self, before: float):
        self.start = time.monotonic() - before

    def seconds(self) -> float:
        """The time so far."""
        return time.monotonic() - self.start


# %% [markdown]
# > The log itself, and a bar that shows how much of the budget is spent.


# %%
class Log:
    """The log of a run, `log.jsonl`, kept by the first process; the others write nothing."""

    def __init__(self, run: Path, active: bool, progress: Progress, every: int = 10):
        self.path, self.active, self.every = run / "log.jsonl", active, every
        self.losses, self.since = [], (progress.tokens, progress.seconds)
        if active:
            kept = [row for row in read_log(run) if row["step"] <= progress.step]
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def write(self, progress: Progress, **values: float) -> None:
        """Append one row."""
        if self.active:
            minutes = round(progress.seconds / 60, 3)
            place = {"step": progress.step, "epoch": progress.epoch, "minutes": minutes, "tokens": progress.tokens}
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(place | values) + "\n")

    def update(self, progress: Progress, loss: float, lr: float, bar: tqdm) -> None:
        """Note one update; every tenth writes the mean of the losses since the last, added up over processes."""
        self.losses.append(loss)
        if progress.step % self.every:
            return
        mean = over_processes(sum(self.losses))[0] / len(self.losses)
        speed = (progress.tokens - self.since[0]) / max(progress.seconds - self.since[1], 1e-9)
        self.losses, self.since = [], (progress.tokens, progress.seconds)
        self.write(progress, loss=round(mean, 4), lr=lr, tokens_per_second=round(speed))
        bar.set_postfix_str(f"update {progress.step}, loss {mean:.3f}, {speed:,.0f} target tokens/s")


# %%
def progress_bar(visible: bool) -> tqdm:
    """A bar that shows the spent part of the budget, in per cent."""
    form = "training {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"
    return tqdm(total=100, disable=not visible, file=sys.stdout, bar_format=form)


# %% [markdown]
# > `train` is at once the function and the command `train`: it checks what it was asked, prepares the folder of the run and
# > calls `fit`. A new run begins with random weights and learns its vocabulary, or takes both from a trained model
# > (`--start-from`), to train it further on other data.


# %%
def train(
    *, data: str, run: Path, preset: str = "tiny", minutes: float | None = None, epochs: int | None = None, steps: int | None = None,
    words: bool = False, checkpoint_every: int = 200, src: str = "de", tgt: str = "en", workers: int = 0,
    start_from: Path | None = None, **settings: str,
) -> None:  # fmt: skip
    """Train a model, or go on with the training of one that was interrupted.

    Without a limit it takes 30 minutes. All fields of `Config` are options, too:

    --N --d-model --d-ff --h --d-k --positions --dropout --dropout-after --norm
    --tie --bpe --tokens-per-batch --accumulate --factor --warmup --smoothing
    --r-drop --r-drop-after --bpe-dropout --inner-dropout --optimizer --clip
    --ema --seed

    Args:
        data: multi30k, captions, hf:NAME[:CONFIG], or a folder with train.LANG and val.LANG (plain or .gz)
        run: the folder of this run; an existing one is continued
        preset: tiny, small, base or big
        minutes: train for so long
        epochs: pass so often through the data
        steps: make so many updates
        words: whole words by spaCy's rules in place of byte-pair encoding
        checkpoint_every: updates between two checkpoints
        src: language of the source
        tgt: language of the target
        workers: processes that read batches ahead
        start_from: a run or a model whose weights and vocabulary a new run takes over; it has the same sizes and languages
        settings: any of the settings above, such as --dropout 0.3 or --norm post
    """
    config = make_config(preset, words, settings)
    budget = make_budget(minutes, epochs, steps)
    for name, number, least in (("checkpoint-every", checkpoint_every, 1), ("workers", workers, 0)):
        if number < least:
            raise ValueError(f"--{name} must be at least {least}, but it is {number}")
    run, about = Path(run), {"preset": preset, "data": data, "src": src, "tgt": tgt}
    about["start_from"] = Path(start_from).resolve().name if start_from else None
    with process_group():
        progress = train_together(run, config, about, start_from, budget, checkpoint_every, workers)
        if processes()[0] == 0:
            print(f"{run}: {progress.step} updates, {progress.epoch} epochs, {progress.seconds / 60:.1f} minutes")


# %% [markdown]
# > What every process does. It is a function of its own so that the trainer is gone before the processes part: PyTorch
# > can hang when the last user of a group outlives it.


# %%
def train_together(
    run: Path, config: Config, about: dict[str, Any], start_from: Path | None, budget: Budget, checkpoint_every: int,
    workers: int,
) -> Progress:  # fmt: skip
    """Prepare the folder of a run and train, with the other processes if there are any."""
    goes_on = (run / "checkpoints" / "state.safetensors").exists()
    start = load_translator(start_from) if start_from and not goes_on else None
    tokenizer = prepare_run(run, config, about, start)
    pairs, val = (TokenStore(run / "tokens" / f"{split}.ids", len(tokenizer)) for split in ("train", "val"))
    torch.manual_seed(config.seed)
    model = build_model(config, len(tokenizer))
    if start:
        load_weights(model, weights_of(start.model), start.path)
    trainer = Trainer(model, config, best_device())
    return fit(run, trainer, tokenizer, pairs, val.__getitems__(range(len(val))), budget, checkpoint_every, workers)


# %% [markdown]
# > Every field of `Config` is an option, and every value is checked before anything is written.


# %%
def make_config(preset: str, words: bool, settings: dict[str, str]) -> Config:
    """A preset with some of its settings changed; raises ValueError for what does not exist or fit."""
    if words and "bpe" in settings:
        raise ValueError("--words and --bpe exclude each other")
    if preset not in PRESETS:
        raise ValueError(f"unknown preset {preset!r}; there are {', '.join(PRESETS)}")
    return apply_settings(PRESETS[preset], settings | ({"bpe": 0} if words else {}))


# %% [markdown]
# > A slip of the pen is answered with the option that was meant, as far as can be guessed:


# %%
def nearest_option(name: str) -> str:
    """A question about the option of `train` that is most like an unknown one, if any is."""
    known = {option.lower(): option.replace("_", "-") for option in [*asdict(Config()), *train.__kwdefaults__]}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    return f"; is it --{known[near[0]]}?" if near else ""


# %%
def apply_settings(config: Config, settings: dict[str, Any]) -> Config:
    """A configuration with some of its fields changed; texts are read as the field's type.

    Raises ValueError for an unknown field or an impossible value.
    """
    changed = {}
    for option, value in settings.items():
        name = option.replace("-", "_")
        if name not in asdict(config):
            raise ValueError(f"unknown option --{option.replace('_', '-')}{nearest_option(name)}")
        kind = type(getattr(config, name))
        try:
            changed[name] = kind(value)
        except ValueError as error:
            raise ValueError(
                f"--{option.replace('_', '-')}: {value!r} is not {'a number' if kind is float else 'a whole number'}"
            ) from error
    config = replace(config, **changed)
    if not 0 <= config.seed < 2**32:
        raise ValueError(f"--seed must be at least 0 and below 2**32, but it is {config.seed}")
    limits = dict.fromkeys(("accumulate", "tokens_per_batch", "warmup"), (1, math.inf))
    limits |= dict.fromkeys(("bpe", "clip", "d_k", "dropout_after", "factor", "r_drop", "r_drop_after"), (0, math.inf))
    limits |= dict.fromkeys(("bpe_dropout", "ema", "smoothing"), (0, 1))
    for name, (low, high) in limits.items():
        if not low <= getattr(config, name) < high:
            below = "" if high == math.inf else f" and below {high}"
            option = "--" + name.replace("_", "-")
            raise ValueError(f"{option} must be at least {low}{below}, but it is {getattr(config, name)}")
    if config.optimizer not in ("adam", "muon"):
        raise ValueError(f"--optimizer must be adam or muon, but it is {config.optimizer}")
    if config.bpe_dropout and not config.bpe:
        raise ValueError("--bpe-dropout needs byte-pair encoding, not whole words")
    with torch.device("meta"):
        build_model(config, 8)  # raises ValueError for sizes that do not fit
    return config


# %% [markdown]
# > What a run reads of its data:


# %%
class FullPairs:
    """The pairs of a split with text on both sides (others teach nothing), read again whenever they are gone through.

    Raises ValueError if there are none, and as `stream_pairs` does.
    """

    def __init__(self, data: str, split: str, src: str, tgt: str):
        self.data, self.split, self.src, self.tgt = data, split, src, tgt

    def __iter__(self) -> Iterator[tuple[str, str]]:
        pair = None
        for pair in filter(all, stream_pairs(self.data, self.split, self.src, self.tgt)):
            yield pair
        if pair is None:
            raise ValueError(f"{self.data}: no line of {self.split} has text in both {self.src} and {self.tgt}")


# %% [markdown]
# > How long to train:


# %%
def make_budget(minutes: float | None, epochs: int | None, steps: int | None) -> Budget:
    """The limits that were given, or 30 minutes; raises ValueError for one that is not positive."""
    given = {name: n for name, n in {"minutes": minutes, "epochs": epochs, "steps": steps}.items() if n is not None}
    for name, number in given.items():
        if not number > 0:
            raise ValueError(f"--{name} must be more than 0, but it is {number}")
    return Budget(**(given or {"minutes": 30.0}))


# %% [markdown]
# > A folder that holds another run is left alone.


# %%
def prepare_run(run: Path, config: Config, about: dict[str, Any], start: "Translator | None" = None) -> Tokenizer:
    """Make the folder of a run with its tokenizer, tokens and configuration, or check that an existing one is alike.

    A new run takes over the vocabulary of `start`. In a group of processes the first one writes and the others wait. Raises ValueError for a folder of something else.
    """
    if processes()[0] == 0:
        if (run / "config.json").exists():
            check_same_run(run, about | asdict(config))
            folder = run / "checkpoints"
            lost = not (folder / "state.safetensors").exists() and len(list(folder.glob("[0-9]*"))) != 1
            if (run / "model.safetensors").exists() and lost:  # with one, its first checkpoint was interrupted
                raise ValueError(f"{run} is a model without the state of its training; give another --run")
            write_tokens(run, about, read_tokenizer(run / "tokenizer.json"))
        else:
            start_run(run, config, about, start)
    if dist.is_initialized():
        dist.barrier()
    return read_tokenizer(run / "tokenizer.json")


# %%
def check_same_run(run: Path, wanted: dict[str, Any], advice: str = "give another --run") -> None:
    """Raise ValueError, which ends with the advice, if the run or model in a folder has other settings."""
    old = read_json(run / "config.json")
    settings = old.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"{run / 'config.json'}: not the configuration of a run")
    old |= asdict(Config()) | settings  # a setting that is newer than the run had its default
    for key, value in wanted.items():
        before = old.get(key)
        if before != value:
            raise ValueError(f"{run} has {key} = {before}, not {value}; {advice}")


# %% [markdown]
# > A new run learns or takes over its vocabulary and writes its tokens. `config.json` is written last, so a folder that
# > has one is complete. What is wrong with the data shows before anything is written, except a sentence that fits into no
# > batch: then what was written is removed.


# %%
def write_tokens(run: Path, about: dict[str, str], tokenizer: Tokenizer) -> int:
    """Write the token stores of a run where they are missing; returns the length of the longest sentence."""
    longest, languages = 0, (about["src"], about["tgt"])
    for split in ("train", "val"):
        store = TokenStore(run / "tokens" / f"{split}.ids", len(tokenizer))
        if not store.path.with_suffix(".starts").exists():
            write_store(store.path, FullPairs(about["data"], split, *languages), tokenizer, languages)
        longest = max(longest, store.lengths().max())
    return longest


# %%
def start_run(run: Path, config: Config, about: dict[str, Any], start: "Translator | None") -> None:
    """Write the tokenizer, the tokens and the configuration of a new run; raises ValueError if they do not fit."""
    for name in ("model.safetensors", "log.jsonl", "checkpoints"):
        if (run / name).exists():
            raise ValueError(f"{run} holds {name} but no config.json, so it is no run; give another --run")
    languages = (about["src"], about["tgt"])
    texts = {split: FullPairs(about["data"], split, *languages) for split in ("train", "val")}
    for _ in texts["val"]:
        pass  # read once, so that a damaged line shows now
    if start:
        forms = ("N", "d_model", "d_ff", "h", "d_k", "positions", "norm", "tie", "bpe")
        wanted = {name: getattr(config, name) for name in forms} | {"src": about["src"], "tgt": about["tgt"]}
        check_same_run(start.path, wanted, "the new run needs the same")
        tokenizer = start.tokenizer
    else:
        tokenizer = learn_bpe(texts["train"], config.bpe) if config.bpe else learn_words(texts["train"], languages)
    existed = run.exists()
    for old in (run / "tokens").glob("*.starts"):
        old.unlink()  # a start that was interrupted: its numbers belong to another vocabulary
    longest = write_tokens(run, about, tokenizer)
    if longest > config.tokens_per_batch:
        for split in ("train", "val"):
            for suffix in (".ids", ".starts"):
                (run / "tokens" / split).with_suffix(suffix).unlink()
        with suppress(OSError):  # a folder that holds something else stays
            (run / "tokens").rmdir()
            if not existed:
                run.rmdir()
        raise ValueError(
            f"--tokens-per-batch is {config.tokens_per_batch}, but the longest sentence has {longest} tokens"
        )
    write_text(run / "tokenizer.json", tokenizer.vocabulary.to_str(pretty=True))
    content = about | {"vocab": len(tokenizer), "settings": asdict(config)}
    write_text(run / "config.json", json.dumps(content, indent=1) + "\n")


# %% [markdown]
# > Now for real. The next cell trains a `tiny` model for three minutes; `ANNOTATED_MINUTES` or `ANNOTATED_STEPS` in
# > the environment make it another number of minutes or updates, and the last line of its output says how many it
# > was. If its folder is there already, it goes on from there, or finds that nothing is left to do.


# %%
def live_budget() -> dict[str, float]:
    """The budget of this document's training run, from the environment."""
    if "ANNOTATED_STEPS" in os.environ:
        return {"steps": int(os.environ["ANNOTATED_STEPS"])}
    return {"minutes": float(os.environ.get("ANNOTATED_MINUTES", 3))}


# %%
def live_run() -> Path:
    """The folder of this document's training run, one per data source and budget."""
    budget = "-".join(f"{name}-{number:g}" for name, number in live_budget().items())
    return Path("runs") / f"live-{Path(choose_data()).name}-{budget}"


@example
def example_training() -> None:
    """A live training run."""
    train(data=choose_data(), run=live_run(), preset="tiny", checkpoint_every=100, **live_budget())


# %% [markdown]
# > The curves of that run: the training loss is smoothed and measured with dropout on, the validation loss is neither,
# > and measured with the averaged weights, so the two cannot be compared with each other. (No smoothed loss falls below
# > the entropy of $q$: 1.20 nats for Multi30k's 6,106 symbols and ε = 0.1.) The dashed line is what a model would reach
# > that knows how frequent each symbol is, and nothing else.


# %%
def frequency_loss(pairs: list[Pair]) -> float:
    """The cross-entropy per target token of guessing every symbol by its frequency (in nats)."""
    counts = Counter(symbol for pair in pairs for symbol in pair.tgt[1:])
    total = sum(counts.values())
    return -sum(n / total * math.log(n / total) for n in counts.values())


@example
def example_curves() -> alt.LayerChart:
    """Losses over minutes; after the run, validation lies below guessing by frequency."""
    translator, rows = load_translator(live_run()), read_log(live_run())
    val = translator.tokenizer.pairs(load_pairs(choose_data(), "val"), ("de", "en"))
    guess, shown = frequency_loss(val), []
    for kind, name in (("loss", "training, smoothed"), ("val_loss", "validation")):
        shown += [{"minutes": r["minutes"], "nats per token": r[kind], "loss": name} for r in rows if kind in r]
    print(f"validation: {shown[-1]['nats per token']:.3f} nats per token; guessing by frequency: {guess:.3f}")
    assert shown[-1]["nats per token"] < guess
    line = alt.Chart(pd.DataFrame({"guess": [guess]})).mark_rule(strokeDash=[4, 4])
    return curves(shown, "minutes", "nats per token", "loss") + line.encode(alt.Y("guess:Q", title="nats per token"))


# %% [markdown]
# > **Two processes, live.** The script beside this notebook is the same program. Here `torchrun` starts it twice on
# > this machine, on the built-in captions, and then once for comparison. Dropout is off, because each process draws
# > its own. The losses of the two runs must agree, up to the rounding of sums in another order.


# %%
def beside(name: str) -> Path | None:
    """A file of this repository: beside this document, else fetched from its public address, else none."""
    path = HERE / name
    if not path.exists() and REPOSITORY:
        with suppress(OSError, HTTPException):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, lambda part: urllib.request.urlretrieve(f"{REPOSITORY}/raw/main/{name}", part))
    return path if path.exists() else None


HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path()


# %% [markdown]
# > Among the files beside this document are the results of its benchmarks, from which later charts are drawn:


# %%
def saved_rows(name: str) -> list[dict]:
    """The rows of a benchmark, oldest first; none, with a notice, where its file is not beside this document."""
    path = beside(f"benchmarks/results/{name}.jsonl")
    if path is None:
        print(f"NOTICE: benchmarks/results/{name}.jsonl is not beside this document; there is nothing to show.")
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# %% [markdown]
# > The start of several processes:


# %%
def torchrun(script: Path, count: int, *arguments: str) -> None:
    """Start the command line in several processes on this machine and wait; raises CalledProcessError if one fails."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}", "--"]
    threads = str(max(1, (os.cpu_count() or 1) // count))
    done = subprocess.run(
        [*launch, script, *arguments], text=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": threads}
    )
    if done.returncode:
        print(done.stderr[-2000:])
    done.check_returncode()


# %% [markdown]
# > Two processes and one, side by side:


# %%
@example
def example_processes() -> pd.DataFrame | None:
    """The first 40 updates with one process and with two: the same training losses."""
    script = beside("the_annotated_transformer.py")
    if script is None:
        print("NOTICE: the script is not beside this notebook and has no public address yet; this example needs it.")
        return None
    columns, settings = {}, "--data captions --steps 40 --dropout 0 --bpe 500 --tokens-per-batch 1500"
    with tempfile.TemporaryDirectory() as folder:
        for name, count in (("one process", 1), ("two processes", 2)):
            torchrun(script, count, "train", "--run", f"{folder}/{count}", *settings.split())
            columns[name] = {r["step"]: r["loss"] for r in read_log(Path(folder, str(count))) if "loss" in r}
    table = pd.DataFrame(columns).rename_axis("loss at update")
    assert (table["one process"] - table["two processes"]).abs().max() < 2e-3
    return table


# %% [markdown]
# ## Translating
#
# > Sentences are sorted by length, so that a batch holds little padding, decoded in batches, and put back in order. A
# > translation may be 50 symbols longer than its source, the paper's limit (Section 6.1). A blank line stays blank. On
# > a CPU each thread takes a batch of its own: the products of a decoding step are small, and threads that share one of
# > them wait for each other. Part 5 has what that brings.
# >
# > Of the three sentences below the second has a clause that ends in its verb, and the third a verb in two parts. After
# > three minutes of training expect mistakes in them; half an hour mends most.


# %%
def in_threads(work: Callable, items: list, device: torch.device) -> list:
    """The results of `work` for each item, in order; on a CPU by as many threads as PyTorch has, each with one item.

    While it runs, other threads of the program get one thread from PyTorch, too.
    """
    count = min(torch.get_num_threads(), len(items)) if device.type == "cpu" else 1
    if count < 2:
        return [work(item) for item in items]
    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(before)


# %% [markdown]
# > The function that the command line, the scores and the examples call:


# %%
def translate_lines(
    translator: Translator, lines: list[str], search: Callable[..., Tensor] = greedy_decode, batch_size: int = 128
) -> list[str]:
    """One translation for each line, in order, by greedy decoding or another search."""
    model, tokenizer, (language, _), _ = translator
    device = next(model.parameters()).device
    sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
    order = sorted((i for i, line in enumerate(lines) if line.strip()), key=lambda i: -len(sources[i]))  # longest first
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]

    def decode(rows: list[int]) -> list[list[int]]:
        src = pad_rows([sources[i] for i in rows]).to(device)
        return search(model, src, source_mask(src), max_len=src.size(1) + 50).tolist()

    results = [""] * len(lines)
    with evaluating(model):
        for rows, decoded in zip(batches, in_threads(decode, batches, device), strict=True):
            for i, ids in zip(rows, decoded, strict=True):
                results[i] = tokenizer.decode(ids[: len(sources[i]) + 50])  # as if it had been alone
    return results


# %%
OUR_SENTENCES = [
    "Ein kleiner Junge in einem roten Hemd spielt im Park mit einem Hund.",
    "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest.",
    "Eine Frau hebt am Strand einen gelben Ball auf.",
]


@example
def example_translate() -> None:
    """Three sentences that are not in Multi30k, translated by the model trained above."""
    for german, english in zip(OUR_SENTENCES, translate_lines(load_translator(live_run()), OUR_SENTENCES), strict=True):
        print(f"{german}\n  {english}")


# %% [markdown]
# > Two models come with this document, one for each direction: the same code, trained for hours (the cards beside them tell
# > how, and Part 5 why). The one from German to English is what the commands use unless they are given another.


# %%
SHIPPED_MODEL = "models/multi30k-de-en"


def open_model(path: Path | None = None) -> Translator:
    """The model of a folder, or the one beside this document; raises FileNotFoundError that says how to get one."""
    if path is None:
        if not all(
            beside(f"{SHIPPED_MODEL}/{name}") for name in ("config.json", "tokenizer.json", "model.safetensors")
        ):
            command = "python the_annotated_transformer.py train --data multi30k --preset tiny --run runs/tiny"
            raise FileNotFoundError(
                f"no {SHIPPED_MODEL} beside this script; make a model with `{command}` and give --model runs/tiny"
            )
        path = HERE / SHIPPED_MODEL
    return load_translator(path)


# %%
def our_model() -> Translator:
    """The model that comes with this document; where it cannot be had, with a notice, the one trained above."""
    try:
        return open_model()
    except FileNotFoundError:
        print(f"NOTICE: {SHIPPED_MODEL} is not beside this document; the model trained above takes its place.")
        return load_translator(live_run())


@example
def example_our_model() -> None:
    """The same sentences by the model that comes with this document."""
    print(*translate_lines(our_model(), OUR_SENTENCES), sep="\n")


# %% [markdown]
# ## BLEU
#
# The paper reports BLEU (Section 6.1).
#
# > BLEU (Papineni et al., 2002) asks, for $n$ = 1 to 4, which share of the translation's $n$-grams the reference has, too,
# > each counted at most as often as there, over all sentences of the corpus together. It is the geometric mean of the four
# > shares, times a penalty if the translations are shorter in all than the references.
# >
# > The figure depends on how text is cut into words. [sacreBLEU](https://github.com/mjpost/sacrebleu) does the
# > cutting itself, on plain cased text, and prints a signature that says how; figures with the same signature can be
# > compared. Two more forms serve comparisons with published figures: lower-cased, and lower-cased after the tokeniser
# > of the Moses toolkit. chrF compares $n$-grams of characters, and treats long German words more kindly.


# %%
SCORES = {"bleu": "BLEU", "bleu_lower": "BLEU, lower-cased", "bleu_moses": "BLEU, lower-cased, Moses", "chrf": "chrF"}


def score(translations: list[str], references: list[str], language: str = "en") -> dict[str, Any]:
    """BLEU of a corpus (13a cased; lower-cased; lower-cased after Moses tokenisation) and chrF, each with its signature.

    `length` is that of the translations divided by that of the references.
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacremoses import MosesTokenizer

    moses = MosesTokenizer(lang=language)
    cut = [
        [moses.tokenize(text, return_str=True, escape=False) for text in side] for side in (translations, references)
    ]
    metrics = {"bleu": BLEU(), "bleu_lower": BLEU(lowercase=True), "chrf": CHRF()}
    metrics["bleu_moses"] = BLEU(lowercase=True, tokenize="none", force=True)
    scores = {}
    for name in SCORES:
        hypotheses, truth = cut if name == "bleu_moses" else (translations, references)
        result = metrics[name].corpus_score(hypotheses, [truth])
        scores |= {name: result.score, f"{name}_signature": str(metrics[name].get_signature())}
        if name == "bleu":
            scores["length"] = result.sys_len / max(1, result.ref_len)
    return scores


@example
def example_bleu() -> None:
    """BLEU of the model trained above on validation sentences; the references themselves score 100."""
    sources, references = zip(*load_pairs(choose_data(), "val"), strict=True)
    result = score(translate_lines(load_translator(live_run()), list(sources)), list(references))
    print(f"BLEU {result['bleu']:.1f} ({result['bleu_signature']})\nchrF {result['chrf']:.1f}")
    assert score(list(references), list(references))["bleu"] > 99.9


# %% [markdown]
# ## Summary of Part 3
#
# > Real text needs a vocabulary that can spell unseen words, batches sorted by length, a run that survives
# > interruption, and a score that others can compare with. Several processes share each batch and compute the same
# > gradient.
# >
# > **Exercises.** 1. Train with `--words` for the same minutes and compare BLEU; where do the `<unk>` come from? 2.
# > Train with `--norm post` and find a `factor` and a `warmup` with which it learns as well. 3. Plot
# > `tokens_per_second` against `--tokens-per-batch`. 4. Cut the training data in half. How much BLEU does it cost?

# %% [markdown]
# # Part 4: What the paper also used
#
# ## Beam search (Section 6.1)
#
# The paper translates with *beam search*: beam size 4 and length penalty $\alpha = 0.6$ (Wu et al., 2016), values
# chosen on the development set. Output may be 50 symbols longer than the input, and the search ends early where it
# can.
#
# > Greedy decoding takes the likeliest symbol and never looks back. A beam keeps the $K$ likeliest *beginnings*. At each
# > step every beginning is extended by every symbol, and the likeliest of all these extensions remain. One that ends in
# > `</s>`, or has reached the limit of length, is finished and keeps its place for good: with $j$ finished, only the $K - j$
# > likeliest are carried on, and with $K$ the search ends. (The paper does not say what happens to these places.)
# >
# > Each further symbol multiplies the probability by a factor below 1, so shorter translations have an advantage that
# > they do not deserve. The finished ones are therefore compared by their log-probability divided by a *length penalty*,
# > where $|Y|$ counts the symbols with `</s>`:
# >
# > $$\mathrm{score}(Y) = \frac{\log P(Y \mid X)}{lp(Y)}, \qquad lp(Y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha}$$
# >
# > A logarithm of a probability is negative, so a larger divisor *raises* the score. In spite of its name, the penalty
# > favours long translations, the more the larger $\alpha$; with $\alpha = 0$ it is off.
# >
# > **When may the search stop?** A beginning's log-probability can only fall. Divided by the largest possible penalty,
# > that of the longest output allowed, it is the best that any of its continuations can ever score. When no beginning can
# > beat the best finished translation any more, more steps change nothing.
# >
# > All beams of all sentences go through the decoder together, as rows of one batch; the beams of a sentence share the
# > keys and values of their source, and a place that is finished has no row any more. With one beam this is greedy
# > decoding, and with a beam as wide as there are sequences it is exhaustive search. The last cell of this section checks
# > both.


# %%
def length_penalty(length: Tensor | float, alpha: float) -> Tensor | float:
    """What log-probabilities of translations of so many symbols are divided by (Wu et al., 2016, Equation 14)."""
    return ((5 + length) / 6) ** alpha


# %% [markdown]
# > Of the extensions of one beginning, only its $K$ likeliest can be among the $K$ likeliest of all. PyTorch's `topk` finds
# > them, but slowly, because it moves each of thousands of entries about together with its place. It is quicker to take the
# > maximum of each block of 64 entries first: the $K$ largest of a row lie in the $K$ blocks with the largest maxima.


# %%
def largest(x: Tensor, k: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """The k largest entries of each row of x (R, V), and where they stand: as x.topk(k) does, sooner for long rows.

    Of equal entries it may choose others. Shorter rows have all their entries taken.
    """
    k = min(k, x.size(1))
    whole = x.size(1) // block * block  # what is left over makes a block of its own
    if whole < 2 * k * block:
        return x.topk(k)
    blocks = x[:, :whole].unflatten(1, (-1, block))
    chosen = blocks.amax(-1).topk(k).indices.unsqueeze(-1)  # (R, k, 1)
    rest = torch.arange(whole, x.size(1), device=x.device).expand(len(x), -1)
    places = torch.cat(((chosen * block + torch.arange(block, device=x.device)).flatten(1), rest), dim=1)
    values, found = x.gather(1, places).topk(k)
    return values, places.gather(1, found)


def likeliest(logits: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k most probable symbols of each row of logits (R, V), and their log-probabilities, first: both (R, at most k)."""
    count = 64 if logits.device.type == "cpu" else len(logits)  # what is made of few rows is read while in a cache
    parts = [largest(rows.float().log_softmax(-1), k) for rows in logits.split(count)]
    values, symbols = zip(*parts, strict=True)
    return torch.cat(values), torch.cat(symbols)


# %% [markdown]
# > The search. `open_places` counts what is left of each sentence's $K$ places.


# %%
@torch.inference_mode()
def beam_search(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int = 4, alpha: float = 0.6
) -> Tensor:
    """The translation of best score that a beam finds: ids (B, at most max_len), BOS first, PAD after EOS (Section 6.1).

    src (B, S), src_mask (B or 1, 1, S). max_len is for sources without padding: one with n padded positions gets n fewer
    symbols, as many as if it were alone, but one at least. Raises ValueError for a beam below 1 or an alpha out of range.
    """
    if beam < 1 or not 0 <= alpha <= 10:  # larger ones overflow
        raise ValueError(f"the beam must be at least 1 and alpha from 0 to 10, but they are {beam} and {alpha}")
    device, neg = src.device, -torch.inf
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(len(src))).clamp(min=2)  # of each output, BOS included
    best, results = torch.full((len(src),), neg, device=device, dtype=torch.float), [[BOS]] * len(src)
    places, open_places = torch.arange(beam, device=device), torch.full((len(src), 1), beam, device=device)
    with evaluating(model):
        decoder, going = CachedDecoder(model, src, src_mask), torch.arange(len(src), device=device)
        log_p = torch.where(places > 0, neg, 0.0).float().repeat(len(src), 1)  # (B, beam); at first one beginning each
        live, ys = log_p > neg, torch.full((len(src), 1), BOS, device=device)  # each has a row of symbols, (rows, t)
        for t in range(1, max_len):
            step, symbols = likeliest(decoder.step(ys[:, -1], live), beam)  # (rows, at most beam)
            scores = log_p.new_full((*live.shape, step.size(1)), neg)
            scores[live] = log_p[live].unsqueeze(1) + step
            log_p, found = scores.flatten(1).topk(beam)  # (B, beam), best first
            parents = (live.flatten().cumsum(0).view_as(live) - 1).gather(1, found // step.size(1))  # their rows
            symbols = symbols[parents, found % step.size(1)]
            ys = torch.cat((ys[parents], symbols.unsqueeze(-1)), dim=-1)  # (B, beam, t + 1)
            alive = (places < open_places) & (log_p > neg)
            ended = alive & ((symbols == EOS) | (t + 1 >= limit[going]).unsqueeze(1))
            score, place = (log_p / length_penalty(t, alpha)).masked_fill(~ended, neg).max(1)
            for i in (score > best[going]).nonzero().flatten().tolist():
                best[going[i]], results[going[i]] = score[i], ys[i, place[i]].tolist()
            log_p, open_places = log_p.masked_fill(ended | ~alive, neg), open_places - ended.sum(1, keepdim=True)
            rows = (log_p.amax(1) / length_penalty(limit[going] - 1, alpha) > best[going]).nonzero().flatten()
            if len(rows) == 0:  # no continuation can score more
                break
            log_p, going, open_places, ys, parents = (x[rows] for x in (log_p, going, open_places, ys, parents))
            decoder.select(parents[log_p > neg], rows if len(rows) < len(live) else None)
            live, ys = log_p > neg, ys[log_p > neg]
    return pad_rows(results).to(device)


# %% [markdown]
# > **Which penalty?** The paper's is 0.6. With it, the translations of so small a model come out too short, for which BLEU
# > punishes them: it ends too early, and a wide beam finds these early ends. The cell below shows by how much, on the
# > validation set, German to English (its rows are in `benchmarks/results/search.jsonl`; they are of the model in `models/`
# > before it went on with more pairs, see Part 5). The commands use five beams and the best penalty of those tried there,
# > unless `--beam` and `--alpha` say otherwise; another model or direction may need another one. Ten beams are twice the
# > work and gain next to nothing.


# %%
BEAM, ALPHA = 5, 1.8


def make_search(beam: int, alpha: float) -> Callable[..., Tensor]:
    """Beam search with these settings, or greedy decoding for one beam; raises ValueError for impossible ones."""
    if not 1 <= beam <= 1000:
        raise ValueError(f"--beam must be at least 1 and at most 1000, but it is {beam}")
    if not 0 <= alpha <= 10:
        raise ValueError(f"--alpha must be at least 0 and at most 10, but it is {alpha}")
    return greedy_decode if beam == 1 else functools.partial(beam_search, beam=beam, alpha=alpha)


# %% [markdown]
# > BLEU by length penalty, and for five beams the length of all translations divided by that of all references:


# %%
@example
def example_length_penalty() -> alt.Chart | None:
    """BLEU of a trained model on the validation set, by beam and length penalty."""
    rows = []
    for row in saved_rows("search"):
        search, _, alpha = row["search"].partition(", alpha ")
        if alpha:
            rows.append({"alpha": float(alpha), "BLEU": row["bleu"], "search": search})
        if search == f"beam {BEAM}":
            print(f"{row['search']}: BLEU {row['bleu']:.2f}, length {row['length']:.1%}")
    return curves(rows, "alpha", "BLEU", "search") if rows else None


# %% [markdown]
# > On a tiny problem all sequences can be tried one by one, which finds what a beam only approximates:


# %%
def exhaustive_search(model: Transformer, src: Tensor, max_len: int, alpha: float) -> tuple[float, list[int]]:
    """The best score of all sequences of at most max_len symbols, BOS included, and the sequence; src (1, S)."""
    best, open_ends = (-math.inf, []), [([BOS], 0.0)]
    while open_ends:
        ys, log_p = open_ends.pop()
        step = model(src, torch.tensor([ys]), None, subsequent_mask(len(ys)))[0, -1].log_softmax(-1)
        for symbol, more in enumerate(step.tolist()):
            if symbol == EOS or len(ys) + 1 == max_len:
                best = max(best, ((log_p + more) / length_penalty(len(ys), alpha), [*ys, symbol]))
            else:
                open_ends.append(([*ys, symbol], log_p + more))
    return best


@example
def example_beam() -> pd.DataFrame:
    """On six symbols: one beam is greedy, the widest is exhaustive, and between them wider beams find the best more often."""
    torch.manual_seed(0)
    model = make_model(20, 6, N=1, d_model=16, d_ff=32, h=2, dropout=0.0, norm="pre").eval()
    src = torch.randint(4, 20, (30, 5))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)  # a fresh model finds all translations about alike; this one has opinions
        optimal = [exhaustive_search(model, row.unsqueeze(0), 5, alpha=0.6)[1] for row in src]
    found = {}
    for beam in (1, 2, 3, 5, 10, 6**4):
        results = beam_search(model, src, source_mask(src), 5, beam).tolist()
        found[beam] = sum(a[: len(b)] == b for a, b in zip(results, optimal, strict=True)) / len(src)
    assert found[6**4] == 1
    assert torch.equal(beam_search(model, src, source_mask(src), 5, 1), greedy_decode(model, src, source_mask(src), 5))
    return pd.DataFrame({"found the best of all": {f"beam {k}": f"{share:.0%}" for k, share in found.items()}})


# %% [markdown]
# ## Averaged checkpoints (Section 6.1)
#
# The paper's base models are the average of the last 5 checkpoints, written every 10 minutes, the big ones that of the
# last 20.
#
# > The weights of the last updates jump about a common centre, pushed by the noise of single batches; their mean lies
# > nearer to it than any of them. The average is one of *weights*, so the result is a single model and costs nothing when
# > it translates. It works because the checkpoints come from one run. Two runs from different random weights number their
# > hidden units and heads differently, and the mean of their weights is of no use.
# >
# > `average` does it afterwards, from the files of a run. The moving average that `Trainer` keeps (`ema`) does much the same
# > while training, and a run's `model.safetensors` then holds it. `base` and `big` have none, as in the paper: average theirs.


# %%
def average_weights(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in some checkpoints (Section 6.1); raises ValueError where they do not belong together."""
    total: dict[str, Tensor] = {}
    for path in paths:
        tensors = {name: tensor.double() for name, tensor in read_tensors(path)[0].items()}
        if total and {n: t.shape for n, t in total.items()} != {n: t.shape for n, t in tensors.items()}:
            raise ValueError(f"{path}: other weights than in {paths[0]}")
        total = {name: tensor + total.get(name, 0.0) for name, tensor in tensors.items()}
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


# %%
def write_model(out: Path, like: Path, weights: dict[str, Tensor]) -> None:
    """Write weights as a new model folder with the tokenizer and configuration of another; FileExistsError if it exists.

    Raises ValueError for weights that are not finite: in 16 bits, no number is larger than 65,504.
    """
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise ValueError(f"{out}: some weights are not finite")
    try:
        Path(out).mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(f"{out}: exists already") from None
    try:
        for name in ("config.json", "tokenizer.json"):
            shutil.copy(like / name, out / name)
        write_tensors(out / "model.safetensors", weights)
    except OSError:
        shutil.rmtree(out)
        raise


# %% [markdown]
# > And as a command, which leaves a model folder like any other:


# %%
def average(run: Path, *, out: Path, last: int = 5) -> None:
    """Average the last checkpoints of a run into a model (Section 6.1).

    Args:
        run: the folder of a run
        out: the folder to write the model to; it must not exist
        last: so many checkpoints
    """
    run = Path(run)
    if last < 1:
        raise ValueError(f"--last must be at least 1, but it is {last}")
    read_json(run / "config.json")
    paths = sorted((run / "checkpoints").glob("[0-9]*[0-9].safetensors"), key=lambda path: int(path.stem))
    if len(paths) < last:
        found = f"{run} has only {len(paths)} of its checkpoints"
        raise ValueError(f"--last is {last}, but {found} (--checkpoint-every; the last {KEPT} are kept)")
    translator, weights = load_translator(run), average_weights(paths[-last:])
    load_weights(translator.model, weights, run / "checkpoints")
    write_model(out, run, weights)
    print(f"{out}: the average of {last} checkpoints, {paths[-last].stem} to {paths[-1].stem}")


# %% [markdown]
# > Both ideas tried on the model trained above: BLEU on the first 300 validation sentences, by weights and search. On so few
# > sentences, differences below one point mean little; the beam's gain is the clearest. In a longer run an average may
# > gain, too. A run of three minutes has hardly any checkpoints, and its weights still improve fast; an average then lags
# > behind them, and can do harm. The paper averages, too, and does not say what it gained.


# %%
@example
def example_search_and_average() -> pd.DataFrame:
    """BLEU of the last checkpoint, the mean of the last (at most five) and the moving average, greedy and with a beam."""
    translator, pairs = load_translator(live_run()), load_pairs(choose_data(), "val")[:300]
    sources, references = (list(side) for side in zip(*pairs, strict=True))
    paths = sorted((live_run() / "checkpoints").glob("[0-9]*[0-9].safetensors"), key=lambda path: int(path.stem))[-5:]
    moving = {name: p.detach().clone() for name, p in weights_of(translator.model).items()}
    weights = {"last checkpoint": average_weights(paths[-1:]), f"mean of the last {len(paths)}": average_weights(paths)}
    for name, tensor in weights[f"mean of the last {len(paths)}"].items():
        torch.testing.assert_close(tensor, sum(read_tensors(path)[0][name] for path in paths) / len(paths))
    table = {}
    for name, tensors in (weights | {"moving average": moving}).items():
        load_weights(translator.model, tensors, live_run())
        table[name] = {
            title: score(translate_lines(translator, sources, search), references)["bleu"]
            for title, search in (("greedy", greedy_decode), (f"beam {BEAM}", make_search(BEAM, ALPHA)))
        }
    return pd.DataFrame(table).T.round(1)


# %% [markdown]
# ## Shared embeddings and byte-pair encoding (Sections 3.4 and 5.1)
#
# > Two more ingredients stand where they are used: the one matrix for source embedding, target embedding and output in
# > Part 1 (`tie="all"`), and the common byte-pair encoding that makes it possible in Part 3 (`learn_bpe`).
#
# ## Summary of Part 4
#
# > A beam follows several beginnings at once, and the length penalty decides which of its finished translations wins.
# > The mean of the weights of one run's checkpoints is again a model, and costs no more than one of them.
# >
# > **Exercises.** 1. Why must the beams of a sentence be reordered in the key/value cache at every step, but not in the
# > keys of the source? 2. Which $\alpha$ is best for a model of your own, and how long are its translations then? 3.
# > Average the five last checkpoints (`--checkpoint-every 20`) of a run of two minutes, and of one of an hour. What happens,
# > and why?

# %% [markdown]
# # Part 5: Results (Section 6)
#
# > The charts and tables of this part read the rows that the benchmarks left in `benchmarks/results/`. Each row names its
# > command, its commit and its machine.


# %% [markdown]
# ## Translation (Section 6.1)
#
# On WMT 2014's newstest2014 the big model reached 28.4 BLEU from English to German, more than two points above everything
# before it, ensembles included, after 3.5 days on eight P100 GPUs; even the base model surpassed them all. From English to
# French the big model, with dropout 0.1 in place of 0.3, reached 41.8 in the paper's table (its text says 41.0). The cost is
# the time of training times the number of GPUs times what each can sustain, 9.5 TFLOP/s for a P100:
#
# | model | EN-DE | EN-FR | operations, EN-DE | EN-FR |
# |---|---|---|---|---|
# | GNMT + RL (Wu et al., 2016) | 24.6 | 39.92 | $2.3 \cdot 10^{19}$ | $1.4 \cdot 10^{20}$ |
# | ConvS2S (Gehring et al., 2017) | 25.16 | 40.46 | $9.6 \cdot 10^{18}$ | $1.5 \cdot 10^{20}$ |
# | mixture of experts (Shazeer et al., 2017) | 26.03 | 40.56 | $2.0 \cdot 10^{19}$ | $1.2 \cdot 10^{20}$ |
# | ensemble of ConvS2S | 26.36 | 41.29 | $7.7 \cdot 10^{19}$ | $1.2 \cdot 10^{21}$ |
# | **Transformer, base** | 27.3 | 38.1 | $3.3 \cdot 10^{18}$ | $3.3 \cdot 10^{18}$ |
# | **Transformer, big** | 28.4 | 41.8 | $2.3 \cdot 10^{19}$ | $2.3 \cdot 10^{19}$ |
#
# > Our models are a thirtieth of the base model's size and read 29,000 captions in place of 4.5 million sentences. Their
# > BLEU cannot be compared with the paper's, because other sentences were translated, and its words were cut in another
# > way. That of others on Multi30k can, where it was counted in the same way: `bleu` is cased, with the tokenisation 13a
# > of sacreBLEU; `lower` the same without case; `Moses` lower-cased with the Moses tokeniser, as Zhiyong Wu et al. (2021)
# > count, whose model of 2.6 million parameters reached 41.02 on test_2016_flickr from English to German. Ours has
# > 2.1 million, and with the five beams that were chosen on the validation set it is a hair above, greedily a little below.
# > On a thousand sentences so small a difference tells of neither that it is the better one.
# >
# > Among the rows of people's pairs, those of one direction with the same optimiser and more minutes are the same run,
# > later. After half an hour it was continued twice: for this table partly beside other work, so that 40 BLEU took 56 minutes,
# > and for the chart of the next section, where it took 45. What was not measured is left empty. The
# > last rows went on from there with models' pairs besides (see *More pairs from the same pairs* below); each one's minutes
# > come on top of those before it.


# %%
def training_pairs(row: dict) -> str:
    """Which pairs the model of a row of `quality` learned from."""
    if "--start-from" not in row["command"]:
        return "people's"
    return "and models', chosen" if "--data runs/closest-" in row["command"] else "and models'"


@example
def example_quality() -> pd.DataFrame | None:
    """Every model that was scored, by split and search."""
    names = {"direction": "direction", "split": "split", "search": "search", "bleu": "bleu", "bleu_lower": "lower"}
    names |= {"bleu_moses": "Moses", "chrf": "chrF", "minutes": "minutes", "optimizer": "optimiser", "pairs": "pairs"}
    rows = [row | {"pairs": training_pairs(row)} for row in saved_rows("quality")]
    rows = [row | {"optimizer": row["settings"].get("optimizer", "adam")} for row in rows]
    rows = [{title: row.get(key, "") for key, title in names.items()} for row in rows]
    rows = [{k: f"{v:.2f}" if isinstance(v, float) else v for k, v in row.items()} for row in rows]
    return pd.DataFrame(rows).set_index("direction") if rows else None


# %% [markdown]
# ### How long must one train?
#
# > BLEU on the validation set, greedy, while a model learns, on two cores of an AMD EPYC.


# %%
@example
def example_time_to_quality() -> alt.Chart | None:
    """BLEU over minutes of training, on two processor cores."""
    rows = [{"minutes": r["minutes"], "BLEU": r["bleu"], "run": r["run"]} for r in saved_rows("time_to_quality")]
    for goal in (30, 36, 38, 40):
        if first := min((row["minutes"] for row in rows if row["BLEU"] >= goal), default=None):
            print(f"{goal} BLEU within {first:.0f} minutes")
    return curves(rows, "minutes", "BLEU", "run") if rows else None


# %% [markdown]
# ## Which part brings what (Section 6.2, Table 3)
#
# The paper varied the base model and scored it on newstest2013, with beam search and without averaged checkpoints. Where
# the number of heads changes (A), so does their width, $d_k = d_v = 512 / h$, and the work stays the same. A single head
# was 0.9 BLEU worse than eight, and too many heads hurt as well (A). Narrower keys hurt (B): whether two positions belong
# together is not easy to decide, and a finer measure than the dot product might help. Larger models were better (C),
# dropout helped much against overfitting (D), and learned positions were as good as sinusoids (E). The base model had
# 25.8; some of the others:
#
# | row | change | BLEU | | row | change | BLEU |
# |---|---|---|---|---|---|---|
# | A | $h = 1$ | 24.9 | | C | $d_{\text{model}} = 1024$ | 26.0 |
# | A | $h = 32$ | 25.4 | | C | $d_{\text{ff}} = 4096$ | 26.2 |
# | B | $d_k = 16$ | 25.1 | | D | no dropout | 24.6 |
# | C | $N = 2$ | 23.7 | | D | no smoothing | 25.3 |
# | C | $N = 8$ | 25.5 | | E | learned positions | 25.7 |
# | C | $d_{\text{model}} = 256$ | 24.5 | | | | |
#
# > Not every larger model was better: eight layers did worse than six.
# >
# > Below is a part of it in miniature: `tiny` on Multi30k, with batches of 2,000 tokens in place of 5,000. Each variant was
# > trained for four passes through the data (1,068 updates) on one core (`benchmarks/variants.py`), which took from 4 minutes
# > for a single layer to 41 for twice the width, though not all on the same machine. All were scored on the validation set
# > with a beam. The grey band spans three runs of `tiny` itself that differ in their seed alone: a point inside it shows
# > nothing, and one that is hardly outside, hardly more. `tiny` has $N = 4$, $d_{\text{model}} = 128$,
# > $d_{\text{ff}} = 256$, four heads of $d_k = 32$, dropout 0.25, smoothing 0.1, sinusoids and pre-norm.


# %%
def variants_table() -> pd.DataFrame:
    """The variants of `tiny` in the order of the paper's rows, with perplexity and BLEU on the validation set."""
    rows = saved_rows("variants")
    rows.sort(key=lambda row: (row["row"], [float(n) if n[0].isdigit() else n for n in row["variant"].split()]))
    columns = {"variant": "variant", "row": "row", "bleu": "greedy", "bleu_beam": "BLEU", "minutes": "minutes"}
    table = pd.DataFrame(
        [{title: row[key] for key, title in columns.items()} for row in rows], columns=columns.values()
    )
    table["perplexity"] = [math.exp(row["val_loss"]) for row in rows]
    return table.drop_duplicates("variant", keep="last")


@example
def example_table_3() -> alt.HConcatChart | None:
    """Perplexity and BLEU of each variant on the validation set, and the range of the preset's own seeds."""
    table = variants_table()
    tiny, variants, panels = table[table["row"] == "base"], table[table["row"].str.fullmatch("[A-E]")], []
    if tiny.empty:
        return None
    for name in ("perplexity", "BLEU"):
        low, high, mean = tiny[name].min(), tiny[name].max(), tiny[name].mean()
        print(f"tiny itself: {name} {mean:.2f}, the mean of {len(tiny)} seeds from {low:.2f} to {high:.2f}")
        band = alt.Chart(pd.DataFrame({"low": [low], "high": [high]})).mark_rect(opacity=0.3, color="grey")
        points = alt.Chart(variants).mark_point(filled=True, size=70, opacity=1).encode(
            alt.X(f"{name}:Q", title=name).scale(zero=False, padding=8),
            alt.Y("variant:N", sort=None, title=None, axis=alt.Axis(labels=not panels, grid=True)),
            alt.Color("row:N", title="row of Table 3"),
            tooltip=list(table),
        )  # fmt: skip
        panels.append((band.encode(alt.X("low:Q", title=name), x2="high:Q") + points).properties(width=220))
    return alt.hconcat(*panels)


# %% [markdown]
# > What agrees with the paper: keys of width 8 hurt (B), so does a model of width 64 (C), smoothing raises the perplexity (D),
# > and learned positions are as good as sinusoids (E).
# >
# > What does not agree: the number of heads (A) makes hardly any difference, where the paper lost almost a point with a
# > single one; here one head has a slightly higher perplexity, and sixteen lose a point with a beam, but nothing greedily.
# > Depth and width (C) are another matter, too. Two layers do better than four; one and six do worse; half or twice the
# > $d_{\text{ff}}$ makes hardly any difference; and $d_{\text{model}} = 256$ has a lower perplexity but a lower BLEU, too. Nor
# > does smoothing pay here (D).
# >
# > Part of each difference comes from the search. The length penalty was chosen for a `tiny` that was trained for longer, and
# > the beam changes the BLEU of a variant by anything from a third of a point less to two points more.
# >
# > Dropout (D), which helped the paper's models much, does great harm, the more the higher its rate. The likely reason is
# > the length of the runs: after four passes through the data little is overfitted yet, and dropout slows the learning down.
# > The paper measured its benefit in long runs; a long one without it was not made here. A table like this must be read
# > together with its number of updates.


# %% [markdown]
# ### Which ingredient brings what
#
# > The same for the ingredients of `tiny`: each is taken away in turn, and some are added that it does without. All runs make
# > four passes through the data, but the one with R-Drop, whose updates cost twice as much, makes two. Whole words make fewer
# > updates, and their perplexity is that of a word, which cannot be compared with the others. `greedy` and `BLEU` (five
# > beams) are of the validation set.


# %%
INGREDIENTS = {
    "optimizer = adam": "Adam (warmup 500), not Muon",
    "norm = post": "post-norm, not pre-norm",
    "words": "whole words, not byte pairs",
    "tie = none": "three matrices, not one",
    "ema = 0": "no moving average",
    "smoothing = 0.0": "no smoothing",
    "clip = 0": "no clipping of gradients",
    "dropout = 0.0": "no dropout",
    "dropout_after = 534": "with late dropout: none in the first half",
    "bpe_dropout = 0.1": "with BPE-dropout",
    "r_drop = 5": "with R-Drop, half as many updates",
}


@example
def example_ablation() -> pd.DataFrame | None:
    """What changes when one ingredient is taken away, or added; the range of three seeds tells what is chance."""
    table, columns = variants_table().set_index("variant"), ["perplexity", "greedy", "BLEU"]
    own = table[table["row"] == "base"][columns]
    if own.empty:
        return None
    found = table[columns].reindex([name for name in INGREDIENTS if name in table.index]).rename(index=INGREDIENTS)
    seeds = pd.DataFrame({"tiny, lowest": own.min(), "tiny, mean": own.mean(), "tiny, highest": own.max()}).T
    return pd.concat([seeds, found]).round(2)


# %% [markdown]
# > **What the recipe owes to its parts**, in BLEU. Post-norm hardly gets going at this rate. Byte pairs are about three
# > points ahead of whole words, of which every rare one is unknown and which make an eighth fewer updates. Muon is 1.4
# > (greedy) to two ahead of Adam, a lead that longer runs mostly lose (`benchmarks/results/LOG.md`), and the moving average
# > brings about one. What clipping and smoothing bring cannot be told from chance. Three separate matrices do better than
# > one here, with 1.6 million weights more than the 2.1 million that `tiny` has.
# >
# > **What comes too early.** In a run of four passes, `tiny` would do better without what is meant against overfitting:
# > without dropout it gains six points with the beam, with dropout only in the second half (*late dropout*, `--dropout-after`;
# > Liu et al., 2023) two; BPE-dropout (Part 3) takes seven. R-Drop (Part 2) had half the updates, so its figure says little.
# > How these did in longer runs is in `LOG.md`, too.


# %% [markdown]
# ### More pairs from the same pairs
#
# > Short runs cannot tell what helps a long one, which with 29,000 pairs ends in overfitting. R-Drop, BPE-dropout and more
# > dropout, begun late, did not help (`LOG.md`). What did help was more pairs. A caption has many right translations, of
# > which the data shows one, and two models that were trained on the pairs, one for each direction, can write down others:
# >
# > - each source sentence a second time, with the translation of the model of the same direction (*sequence-level
# >   distillation*; Kim and Rush, 2016). A model's translations are more regular than people's, and easier to learn;
# > - each target sentence a second time, with a source that the model of the other direction makes of it
# >   (*back-translation*; Sennrich et al., 2016). What is to be written is still a person's, only what is to be read varies.
# >
# > With the pairs as they are, that is three times as many (*data diversification*; Nguyen et al., 2020), and still nothing
# > has been read but the 29,000. Both models in `models/` went on with these for one or two hours, from where the pairs alone
# > had brought them, with less dropout and the learning rate raised again.
# >
# > Then there was a second round, since now there were better translators. For each source sentence there were four
# > translations, by the model of before and that of after the first round, the latter also greedily and with the paper's
# > length penalty; of these the one nearest to the person's was kept, by the BLEU of the sentence (`benchmarks/closest.py`).
# > It is a model's wording still, and of those the one that says most of what the person said (*sequence-level
# > interpolation*; Kim and Rush, 2016). Back-translations were those of two models of the other direction.
# >
# > The cards have the commands. The table has BLEU from stage to stage; the updates of each row come on top of those in the
# > rows of its direction above. The second round helps everywhere but in one place: from English to German, greedy decoding
# > of the test set loses a little.


# %%
@example
def example_more_pairs() -> pd.DataFrame | None:
    """The models of this document with the pairs alone, and after going on with models' pairs besides."""
    found: dict[tuple[str, str], dict[str, float]] = {}
    for row in saved_rows("quality"):
        if row.get("model", "").startswith("multi30k-"):
            key = (row["direction"], training_pairs(row))
            if found.get(key, {}).get("updates") != row["step"]:  # a later state of the same run takes its place
                found[key] = {"updates": row["step"], "loss on val": row["val_loss"]}
            found[key][f"{row['split']}, {row['search'].partition(',')[0]}"] = row["bleu"]
    found = dict(sorted(found.items(), key=lambda item: item[0][0]))  # by direction, then as they were made
    return pd.DataFrame.from_dict(found, orient="index").round(2) if found else None


# %% [markdown]
# > Look at the loss as well: from German to English the first round did not lower it, yet the translations got better. The
# > loss asks how likely people's wordings are, and of what these models learned to write, a third or a quarter is models'.
# > Where targets come from models, only translations tell which model is better. (More updates with the pairs alone had
# > stopped improving the translations from German to English; see `benchmarks/results/LOG.md`.)


# %% [markdown]
# ## Another task (Section 6.3)
#
# To see whether the model is good for more than translation, the authors trained one with four layers of width 1024 to
# write the parse tree of an English sentence, brackets and all, as its target. The output is much longer than the input
# and must be well formed, and there are only 40,000 sentences with trees. Hardly anything was tuned: dropout (on the
# attention weights as well), learning rate and beam size, on the development set. With 21 beams, $\alpha = 0.3$ and outputs
# up to 300 symbols longer than the input it scored an F1 of 91.3 on Section 23 of the Wall Street Journal, better than all
# earlier parsers that learned from these sentences alone, except the Recurrent Neural Network Grammar, a network built for
# parsing (Dyer et al., 2016; 91.7). With 17 million automatically parsed sentences besides it scored 92.7, better than
# others so trained; above it in the paper's table are a multi-task model (93.0) and that grammar in its generative form (93.3).
#
# ## What remained open (Section 7)
#
# The first model to translate with attention alone trained faster than recurrent and convolutional ones and translated
# better. The authors meant to try it on pictures, sound and video, where attention might have to be restricted to a
# neighbourhood, and to make generation less sequential.


# %% [markdown]
# ## Where the speed comes from
#
# > What makes this document fast are a handful of ideas, each of them met above, each with its check that the result is
# > the same. The chart sets one of them at a time back to its plain form, and shows how many times longer the task then
# > takes: 1 means no longer at all. Here and in the table below, training is with Adam; Muon's own products come on top.


# %%
@example
def example_gains() -> alt.Chart | None:
    """How many times longer training and decoding take without each idea."""
    rows = [
        {"plain form": f"{idea} ({task})", "times the time": times, "task": task}
        for row in saved_rows("gains")[-1:]
        for task in ("training", "decoding")
        for idea, times in row[task].items()
    ]
    if not rows:
        return None
    chart = alt.Chart(pd.DataFrame(rows)).mark_bar()
    sides = {
        "x": "times the time:Q",
        "y": alt.Y("plain form:N", sort=None, axis=alt.Axis(labelLimit=320)),
        "color": "task:N",
    }
    return chart.encode(**sides, tooltip=["plain form", "times the time"]).properties(width=320, height=200)


# %% [markdown]
# > **In training,** most comes from *batches of like lengths*, since what is not computed costs nothing, and from the *loss
# > in chunks*: the scores of all tokens at once do not fit into the processor's caches, and writing them down, with the
# > log-softmax and two gradients of the same size, takes time beside the products that make them. Then follows the cheaper
# > *dropout*. The *fused attention* kernel and the *fused Adam* bring nothing beyond the noise of about a tenth here; they
# > are one word each, and long sequences and GPUs need them. The bar for random batches still fills each by its tokens;
# > 2022's way, below, pads every sentence to 72, which is where most of its distance comes from. What was tried and did not
# > stay, such as the three projections of self-attention as one product, or numbers of 16 bits, is in
# > `benchmarks/results/LOG.md`.
# >
# > **In decoding,** the *key/value cache* is the greatest gain in the document. *Sentences that leave* when they end,
# > and *batches of like lengths*, save steps of sentences that have nothing more to say. What *a batch for each thread*
# > adds depends on the machine: with two threads, little.
# >
# > How near is this to what the machine can do? The first row of the next table is the rate of a training step, the operations
# > of its matrix products divided by its whole time, as a share of what one large multiplication reaches in the same run. The
# > rows below are the shares of the step's time by kind of work.


# %%
@example
def example_profile() -> pd.DataFrame | None:
    """Where an update spends its time at three sizes; the larger the model, the more of it is multiplication."""
    rows = {row["preset"]: row for row in saved_rows("step_profile")}  # the last row of each
    if not rows:
        return None
    whole = {
        name: {"of the machine's rate": row["training_share_of_matmul"]} | row["training"] for name, row in rows.items()
    }
    table = pd.DataFrame(whole).fillna(0.0)
    assert table.loc["matrix products", [name for name in PRESETS if name in table]].is_monotonic_increasing
    return table.map(lambda share: f"{share:.0%}")


# %% [markdown]
# ### Beside others
#
# > The same sizes, the same sentences, the same threads, in turns: PyTorch's own `nn.Transformer`, Marian as Hugging
# > Face has it, and JoeyNMT train on the very batches of this document; 2022's way is our re-creation of the previous
# > edition's, with sentences in random order padded to 72. All sides use Adam.


# %%
@example
def example_training_speed() -> alt.Chart | None:
    """Target tokens per second of training, as multiples of 2022's way."""
    last = {row["preset"]: row["tokens_per_second"] for row in saved_rows("training_speed")}
    rows = [
        {"preset": preset, "times the speed of 2022": speed["median"] / last[preset]["2022"]["median"], "who": who}
        for preset in sorted(last, key=list(PRESETS).index)
        for who, speed in last[preset].items()
    ]
    return bars(rows, "preset", "times the speed of 2022", "who") if rows else None


# %% [markdown]
# > And decoding, in sentences per second: `split` is test_2016_flickr, greedy, each sentence to its own end (2022's loop
# > takes one at a time, and only the first eight); `beam` is the same with beams of five; `steps`, greedy, is exactly
# > fifteen steps for random sentences. `this` is this edition; an empty cell was not measured. (`tiny` is the model of this
# > document from German to English, `small` one of 1,200 updates; the machine has two cores of an Intel Xeon.) CTranslate2 is a
# > library in C++ for this purpose alone, and it remains faster: a step is a chain of about a hundred operations, and PyTorch
# > starts each of them by itself. At `tiny` they are small, and that counts; at `small` half of a beam search's time goes into
# > matrix products (`benchmarks/results/LOG.md`), which C++ alone makes no faster, but integers of 8 bits do. To serve a model,
# > take it there with the command `export`; to understand one, stay here.


# %%
@example
def example_decoding_speed() -> pd.DataFrame | None:
    """Sentences per second of decoding, by preset, task and program."""
    last = {row["preset"]: row["sentences_per_second"] for row in saved_rows("decoding_speed")}
    table = {(preset, task): speeds for preset, tasks in last.items() for task, speeds in tasks.items()}
    return pd.DataFrame(table, dtype=object).T.fillna("") if table else None


# %% [markdown]
# ## Summary of Part 5
#
# > A score means something beside another one of the same sentences, cut into the same words, with the same case. What a
# > part of the model brings depends on how long it was trained and on how much there is to learn from. Most of the speed
# > comes from what is not computed: padding, what a cache remembers, sentences that have ended.
# >
# > **Exercises.** 1. Of how many P100-days did the big model's training consist, and for how many days would it keep your
# > own processor busy, if it did nothing but large matrix products? 2. Train the variants `seed 0`, `h = 1` and
# > `dropout = 0.4` of Table 3 for four times as long (`benchmarks/variants.py --only "seed 0,h = 1,dropout = 0.4"`,
# > `--epochs 16`, and an `--out` of your own; up to an hour each). Do they keep their places? 3. Score a model's
# > translations against the references with all commas removed from both. By how much does BLEU change, and is the model
# > better now?

# %% [markdown]
# # Part 6: Looking inside
#
# The paper shows attention maps of a trained model (announced in its Section 4, shown at its end) and reads tasks
# into the heads: some follow long-distance dependencies, some seem to resolve what a pronoun refers to.
#
# > A map shows where information *may* flow, not what the model concludes from it. With that grain of salt: here are
# > the three kinds for one sentence, taken in evaluation mode, before dropout, and labelled with the symbols that
# > were really read. The model is the one that comes with this document. Rows are queries, columns keys. In the two maps
# > of the decoder, row $t$ reads a target symbol and predicts the *next* one, so the label has both.


# %%
@contextmanager
def recording(model: nn.Module) -> Iterator[None]:
    """Inside, every attention layer keeps its weights in `recorded`; afterwards they keep none."""
    layers = [layer for layer in model.modules() if isinstance(layer, MultiHeadedAttention)]
    for layer in layers:
        layer.recorded = []
    try:
        yield
    finally:
        for layer in layers:
            layer.recorded = None


# %%
class AttentionMaps(NamedTuple):
    """The weights of one translation: `maps` has encoder (N, h, S, S), decoder (N, h, T, T) and cross (N, h, T, S)."""

    source: list[str]
    target: list[str]  # what each decoder position reads
    predicted: list[str]  # what it predicts
    maps: dict[str, Tensor]
    translation: str

    def steps(self) -> list[str]:
        """What each decoder position reads, and what it predicts from it."""
        return [f"{read} → {predicts}" for read, predicts in zip(self.target, self.predicted, strict=True)]


# %% [markdown]
# > One pass over the finished translation gives all weights at once: what each position attends to does not depend on
# > whether the symbols came one by one.


# %%
@torch.inference_mode()
def attention_maps(translator: Translator, sentence: str) -> AttentionMaps:
    """Translate a sentence greedily, then read all attention weights in one pass over it.

    Raises ValueError for a blank sentence.
    """
    model, tokenizer, (language, _), _ = translator
    if not sentence.strip():
        raise ValueError("the sentence is blank")
    src = torch.tensor([[*tokenizer.encode(sentence, language), EOS]], device=next(model.parameters()).device)  # (1, S)
    ids = greedy_decode(model, src, source_mask(src), src.size(1) + 50)[0].tolist()  # BOS, ..., EOS
    tgt = torch.tensor([ids[:-1]], device=src.device)  # (1, T)
    with evaluating(model), recording(model):
        model(src, tgt, source_mask(src), target_mask(tgt))
        kinds = {
            "encoder": (model.encoder, "self_attn"),
            "decoder": (model.decoder, "self_attn"),
            "cross": (model.decoder, "src_attn"),
        }
        maps = {
            kind: torch.cat([getattr(layer, name).recorded[0] for layer in stack.layers]).cpu()
            for kind, (stack, name) in kinds.items()
        }
    tokens = tokenizer.tokens
    return AttentionMaps(tokens(src[0].tolist()), tokens(ids[:-1]), tokens(ids[1:]), maps, tokenizer.decode(ids))


# %% [markdown]
# > The picture, after checks that every axis is labelled with what it shows.


# %%
@example
def example_maps() -> alt.VConcatChart:
    """The three kinds of attention in the last layer, averaged over the heads, with labels checked against shapes."""
    sentence = attention_maps(our_model(), OUR_SENTENCES[1])
    S, T = len(sentence.source), len(sentence.target)
    labels = {
        "encoder": (sentence.source,) * 2,
        "decoder": (sentence.steps(), sentence.target),
        "cross": (sentence.steps(), sentence.source),
    }
    assert sentence.source[-1] == "</s>" and sentence.target[0] == "<s>"
    assert [tuple(sentence.maps[k].shape[2:]) for k in labels] == [(S, S), (T, T), (T, S)]
    assert sentence.maps["decoder"].triu(1).abs().max() == 0  # nothing attends to the future
    for kind in labels:
        torch.testing.assert_close(sentence.maps[kind].sum(-1), torch.ones(sentence.maps[kind].shape[:-1]))
    print(OUR_SENTENCES[1], "\n" + sentence.translation)
    return alt.vconcat(
        *(
            heatmap(sentence.maps[kind][-1].mean(0), *labels[kind], f"{kind}, last layer, mean of heads")
            for kind in labels
        )
    )


# %% [markdown]
# > Every head of the cross-attention, layer by layer. Look for diagonals: some heads look at the source of the word that was
# > just read, others, in higher layers, at that of the word to come, one step further. Look for the words whose order differs
# > in the two languages, and for rows of other words that look at the full stop or at `</s>`, a way of attending to nothing in
# > particular.


# %%
@example
def example_cross_heads() -> alt.VConcatChart:
    """Cross-attention of each head (columns) in each layer (rows of charts)."""
    sentence = attention_maps(our_model(), OUR_SENTENCES[1])
    weights, small = sentence.maps["cross"], {"width": 150, "height": 150}
    N, h = weights.shape[:2]
    grid = [
        [
            heatmap(weights[n, i], sentence.steps(), sentence.source, f"layer {n + 1}, head {i + 1}").properties(
                **small
            )
            for i in range(h)
        ]
        for n in range(N)
    ]
    return alt.vconcat(*(alt.hconcat(*row) for row in grid)).resolve_scale(color="shared")


# %% [markdown]
# > **Summary.** Attention weights are a by-product that can be looked at, if they are taken in evaluation mode and
# > labelled with care. The cross-attention of a translator often shows which source word a target word comes from, even
# > where the order differs; its self-attention is harder to read.
# >
# > **For a sentence of your own**, with all layers and heads, in a page that you can explore with the mouse:
# > `python the_annotated_transformer.py explain "Ein Hund läuft." --model RUN --out attention.html`
# >
# > **Exercises.** 1. Find a sentence whose verb stands at the end in German. Which position does the decoder attend
# > to when it predicts the English verb? 2. Zero one head at a time and measure BLEU. How many heads can go? 3. In
# > `captions`, the true alignment of words is known: how often does the largest cross-attention weight hit it?

# %% [markdown]
# # Appendix
#
# ## Implementation details
#
# > Where the code does something else than the paper, or something that the paper leaves open:
# >
# > | # | what | why | effect |
# > |---|---|---|---|
# > | 1 | `norm="pre"` in the presets `tiny` and `small`; `make_model` has the paper's `post` | trains with larger rates; levels the gradients | shown in Part 1 |
# > | 2 | LayerNorm with ε = 10⁻⁵ | PyTorch's; the paper gives none | none |
# > | 3 | projections of attention and the output layer have no bias | the paper's formulas have none | none |
# > | 4 | embeddings start with standard deviation $d_{\text{model}}^{-1/2}$, matrices with Glorot's uniform | the paper gives none | shown in Part 1 |
# > | 5 | `inner_dropout` (attention weights, feed-forward) is off | Section 5.4 names neither; Section 6.3 has the first, the authors' code both | not measured here |
# > | 6 | smoothing gives no mass to padding | it is never right | less than $\epsilon_{ls} / V$ a symbol |
# > | 7 | gradients are clipped at norm 1 | a safeguard; the paper has none | shown in Part 5 for short runs |
# > | 8 | a moving average of the weights in `tiny` and `small` in place of averaged checkpoints; neither in `base` and `big` | a model at any time | shown in Parts 4 and 5 |
# > | 9 | `warmup`, `bpe`, `tokens_per_batch` and, in `tiny`, `factor` differ from the paper's | narrow models and 29,000 pairs need a higher rate and fewer updates | not measured here |
# > | 10 | dropout 0.25 and 0.3 in `tiny` and `small` | little data | shown in Part 5 for short runs |
# > | 11 | a batch's size is the padded length of its longer side | it bounds memory and work | none on results |
# > | 12 | `translate` and `evaluate` search with beam 5 and length penalty 1.8, the paper with 4 and 0.6; pictures and scores during development are greedy | chosen on the validation set; speed | shown in Part 4 |
# > | 13 | fused attention, chunked loss, 16-bit dropout decisions, key/value cache, sentences that leave the batch when they end | speed | the same numbers; for dropout the same distribution, its rate rounded to 1/65536 |
# > | 14 | `make_model` ties no matrices unless asked; the presets tie all three | two vocabularies may differ; code for the earlier editions | parameters, shown in Part 1; BLEU, in Part 5 for short runs |
# > | 15 | every update draws its dropout from `seed` and its number | a resumed run equals an uninterrupted one | none |
# > | 16 | `r_drop` and `bpe_dropout`, off in all presets | ideas of 2021 and 2020 for little data (Parts 2 and 3) | no gain within an hour on two cores, shown in Part 5 for short runs (`benchmarks/results/LOG.md`) |
# > | 17 | `dropout_after`, off in all presets | overfitting comes late (Part 5) | learns faster at first, shown in Part 5; not yet measured to the end of a run |
# > | 18 | `optimizer="muon"` in `tiny` and `small` | an optimiser of 2024 (Part 2) | learns much faster at first, shown in Part 5; after half an hour little of that is left (`benchmarks/results/LOG.md`) |

# %% [markdown]
# ## The command line
#
# > The functions below are the commands `translate`, `evaluate`, `explain` and `export`; `train` and `average` stand
# > above. `cyclopts` makes options and help from their signatures and docstrings. What is wrong with the input is said in
# > one line on standard error, and the exit status is 2.


# %%
def translate(*sentence: str, model: Path | None = None, beam: int = BEAM, alpha: float = ALPHA) -> None:
    """Translate sentences; without any, one per line from standard input, one line out for each.

    Args:
        sentence: sentences in the model's source language
        model: the folder of a run or a model; without it, models/multi30k-de-en
        beam: beams of the search; 1: greedy decoding
        alpha: exponent of the length penalty
    """
    search, translator = make_search(beam, alpha), open_model(model)
    lines = (
        (line.encode("utf-8", "replace").decode() for line in sentence)  # a shell may hand over other bytes
        if sentence
        else (line.decode("utf-8", "replace").rstrip("\r\n") for line in sys.stdin.buffer)
    )
    at_once = 1 if not sentence and sys.stdin.isatty() else 1000
    while chunk := list(itertools.islice(lines, at_once)):
        print(*translate_lines(translator, chunk, search, batch_size=max(1, 512 // beam)), sep="\n", flush=True)


# %% [markdown]
# > Scoring a split, and drawing the page of Part 6:


# %%
def evaluate(*, data: str, split: str, model: Path | None = None, beam: int = BEAM, alpha: float = ALPHA, json: bool = False) -> None:  # fmt: skip
    """Translate a split and score it: BLEU (13a cased, 13a lower-cased, lower-cased after Moses), chrF and length.

    Args:
        data: multi30k, captions, hf:NAME[:CONFIG] or a folder
        split: the name of the split, such as val or test_2016_flickr
        model: the folder of a run or a model; without it, models/multi30k-de-en
        beam: beams of the search; 1: greedy decoding
        alpha: exponent of the length penalty
        json: print one JSON object
    """
    search, translator = make_search(beam, alpha), open_model(model)
    sources, references = zip(*load_pairs(data, split, *translator.languages), strict=True)
    start = time.monotonic()
    translations = translate_lines(translator, list(sources), search, batch_size=max(1, 512 // beam))
    result = {
        "data": data,
        "split": split,
        "sentences": len(sources),
        "search": "greedy" if beam == 1 else f"beam {beam}, alpha {alpha}",
        **score(translations, list(references), translator.languages[1]),
    }
    if json:
        print(to_json(result | {"seconds": round(time.monotonic() - start, 1)}))
    else:
        print(f"{split}: {len(sources)} sentences, {result['search']}")
        for name, title in SCORES.items():
            print(f"{title:<28}{result[name]:6.2f}  {result[name + '_signature']}")
        print(f"{'length / reference':<28}{result['length']:6.2f}")


to_json = json.dumps  # `evaluate` has an option of the module's name


# %%
def explain(sentence: str, *, out: Path, model: Path | None = None) -> None:
    """Write a page that shows all attention weights of a sentence and its greedy translation.

    Args:
        sentence: a sentence in the model's source language
        out: the HTML file to write
        model: the folder of a run or a model; without it, models/multi30k-de-en
    """
    translator = open_model(model)
    page = beside("explorer.html")
    if page is None:
        raise FileNotFoundError("explorer.html is not beside this script")
    sentence = sentence.encode("utf-8", "replace").decode()  # a shell may hand over other bytes
    maps = attention_maps(translator, sentence)
    rounded = {
        kind: [[[[round(w, 4) for w in row] for row in head] for head in layer] for layer in weights.tolist()]
        for kind, weights in maps.maps.items()
    }
    content = maps._asdict() | {"maps": rounded, "sentence": sentence, "model": translator.path.name}
    safe = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    empty = '<script type="application/json" id="attention">{}</script>'
    write_text(Path(out), page.read_text(encoding="utf-8").replace(empty, empty.replace("{}", safe)))
    print(f"{sentence}\n{maps.translation}\n{out}")


# %% [markdown]
# > To *serve* a model, take it to [CTranslate2](https://opennmt.net/CTranslate2), which runs it in C++, on
# > request with weights of 8 bits.


# %%
def export(
    *, out: Path, to: Literal["ctranslate2", "half"] = "ctranslate2", model: Path | None = None, quantization: str | None = None
) -> None:  # fmt: skip
    """Convert a model for another program that runs it, or to half its size.

    Args:
        out: the folder to write; it must not exist
        to: ctranslate2, or half: a model for this program whose weights are float16
        model: the folder of a run or a model; without it, models/multi30k-de-en
        quantization: for ctranslate2: int8, float16, ...; without it, float32
    """
    translator, out = open_model(model), Path(out)
    if to == "half":
        if quantization:
            raise ValueError("--quantization is for ctranslate2; half is always float16")
        write_model(out, translator.path, {name: p.half() for name, p in weights_of(translator.model).items()})
        print(f"{out}: float16")
        return
    if out.exists():
        raise FileExistsError(f"{out}: exists already")
    try:
        import export_ctranslate2
    except ImportError as error:
        raise ValueError(
            f"export needs the file export_ctranslate2.py and the package ctranslate2 ({error})"
        ) from error
    export_ctranslate2.write_model(translator, out, quantization)
    cut = ", from words cut by spaCy's rules" if translator.tokenizer.words else ""
    print(f"{out}: for {to}, {quantization or 'float32'}; its tokens are made with the tokenizer.json beside it{cut}")


# %% [markdown]
# > And the program itself:


# %%
def main(arguments: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    import cyclopts

    app = cyclopts.App(
        name="the_annotated_transformer.py",
        help="Train, use and look into a Transformer.",
        help_format="plaintext",
        version_flags=[],
        suppress_keyboard_interrupt=False,
    )
    for command in (train, translate, evaluate, average, explain, export):
        app.command(command)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8", errors="replace")
    try:
        app(arguments, exit_on_error=False, print_error=False, result_action="return_value")
        return 0
    except (cyclopts.CycloptsError, ValueError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; a training goes on from its last checkpoint with the same command", file=sys.stderr)
        return 130


# %%
if __name__ == "__main__" and not in_notebook():
    sys.exit(main())
