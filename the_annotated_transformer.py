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
# nearly every system that reads or writes language. This document rebuilds it, section by section, as code that you
# can run: first the architecture, then its training, then a German-English translator trained on real data, and in
# the end a look at what its attention does.
#
# > **How to read this.** Plain paragraphs restate what the paper says, in our words, with its section and equation
# > numbers. Paragraphs set like this one are our commentary: reasons, experience, what has changed since 2017, and
# > every place where the code departs from the paper. Each idea follows one beat: statement, equation, code, a
# > picture or a small printed tensor, and an assertion that would fail if the code were wrong. Code that a first
# > reader may skip is folded under a title that says what it holds.
# >
# > You need Python and some linear algebra; having seen a neural network trained helps. Everything runs on a laptop
# > without a GPU. The same text is a Jupyter notebook and an importable Python module. A program stands on it,
# > `translator/`, with all that real use needs: `python the_annotated_transformer.py` is its command line.
#
# | part | what you will have at its end |
# |---|---|
# | 0 Prelims | the notation and the shapes |
# | 1 Architecture | every block of the model, each checked |
# | 2 Training | batches, loss, optimiser, the training loop; a model that learns to copy in under a minute |
# | 3 A real translation system | a translator trained on Multi30k, its BLEU, and the gradient of two processes |
# | 4 What the paper also used | beam search, checked against exhaustive search, and averaged checkpoints |
# | 5 Results and speed | the paper's tables, and ours from saved rows; where the speed comes from, idea by idea |
# | 6 Looking inside | the three kinds of attention at work on a sentence of yours |
# | Appendix | each departure from the paper, and the command line |
#
# > Part 7, on what came after 2017, is not written yet.

# %% [markdown]
# # Part 0: Prelims

# %% tags=["active-ipynb"]
# # @title Only in Colab: install what is missing there (never PyTorch)
# import importlib.util, sys
#
# needed = ["tokenizers", "spacy", "pooch", "sacrebleu", "safetensors", "altair", "pandas", "tqdm"]
# missing = [name for name in needed if importlib.util.find_spec(name) is None]
# if missing:
#     !{sys.executable} -m pip install --quiet {" ".join(missing)}

# %%
# @title Imports
import builtins
import functools
import gzip
import itertools
import json
import math
import multiprocessing
import os
import random
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

# %% [markdown]
# > **Examples.** A cell that shows something is a function marked `@example`. In the notebook it runs at once and its
# > result appears below it. When the script is imported, it is only defined: an import prints nothing, downloads
# > nothing and draws no random number.


# %%
# @title The mark @example
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
    """The accelerator of this machine, or the CPU."""
    device = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if device is None or os.environ.get("ANNOTATED_DEVICE") == "cpu" else device


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
# ## Charts
#
# > Four helpers draw nearly all the charts, so that each chart takes a few lines where it is used.

# %%
# @title Tables, and charts of matrices
Chart = Any  # of altair, which is loaded when the first chart is drawn


def table(rows: list[dict]) -> Any:
    """Rows as a table of pandas, the first column in front."""
    import pandas as pd

    return pd.DataFrame(rows).set_index(next(iter(rows[0])))


def heatmap(
    values: Tensor, rows: list[str], columns: list[str], title: str = "", axes: tuple[str, str] = ("query", "key")
) -> Chart:
    """A chart of the matrix `values` (rows, columns), one labelled square per entry."""
    import altair as alt

    names = [[f"{i} {name}" for i, name in enumerate(side)] for side in (rows, columns)]
    numbers = zip(itertools.product(*names), values.detach().float().flatten().tolist(), strict=True)
    cells = [{"row": row, "column": column, "value": round(value, 4)} for (row, column), value in numbers]
    return alt.Chart(alt.Data(values=cells)).mark_rect().encode(
        alt.X("column:O", sort=None, title=axes[1], axis=alt.Axis(labelAngle=-60)),
        alt.Y("row:O", sort=None, title=axes[0]),
        alt.Color("value:Q", title=None, scale=alt.Scale(scheme="blues")),
        tooltip=["row:N", "column:N", "value:Q"],
    ).properties(title=title, width=18 * len(columns), height=18 * len(rows))  # fmt: skip


# %%
# @title Charts of lines and bars, and charts side by side
def curves(rows: list[dict], x: str, y: str, colour: str, log_y: bool = False, width: int = 480) -> Chart:
    """Lines of column `y` over column `x`, one per value of column `colour`; click the legend to pick one."""
    import altair as alt

    pick = alt.selection_point(name=f"pick {y}".replace(" ", "_"), fields=[colour], bind="legend")
    lines = alt.Chart(alt.Data(values=rows)).mark_line(point=len(rows) < 60, strokeWidth=2)
    return lines.encode(
        alt.X(f"{x}:Q"),
        alt.Y(f"{y}:Q", scale=alt.Scale(type="log" if log_y else "linear", zero=False)),
        alt.Color(f"{colour}:N"),
        opacity=alt.condition(pick, alt.value(1), alt.value(0.15)),
        tooltip=[f"{x}:Q", f"{y}:Q", f"{colour}:N"],
    ).add_params(pick).properties(width=width, height=240)  # fmt: skip


def bars(rows: list[dict], x: str, y: str, colour: str) -> Chart:
    """Bars of column `y` for each value of column `x`, side by side for the values of column `colour`."""
    import altair as alt

    sides = {"xOffset": alt.XOffset(f"{colour}:N", sort=None), "tooltip": [f"{x}:N", f"{y}:Q", f"{colour}:N"]}
    chart = alt.Chart(alt.Data(values=rows)).mark_bar()
    chart = chart.encode(alt.X(f"{x}:O", sort=None), alt.Y(f"{y}:Q"), alt.Color(f"{colour}:N", sort=None), **sides)
    return chart.properties(width=480, height=220)


def grid(charts: list[list[Chart]]) -> Chart:
    """Rows of charts, all with one scale of colours."""
    import altair as alt

    return alt.vconcat(*(alt.hconcat(*row) for row in charts)).resolve_scale(color="shared")


# %% [markdown]
# # Part 1: Architecture
#
# ## Background (Sections 1 and 2)
#
# Until 2017 the best translation systems were recurrent networks with attention, which convolutional ones were just
# overtaking. A recurrent network computes its state at position *t* from its state at position *t* − 1, so the
# positions of one sentence cannot be computed side by side, and the longer the sentence the more that hurts.
# Convolutional models (ByteNet, ConvS2S) do compute all positions at once, but the number of operations between two
# distant positions grows with their distance: logarithmically in ByteNet, linearly in ConvS2S. That makes dependencies
# over long distances hard to learn.
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
# > because in training the whole target is known. (A mask says which positions may be looked at. The section on masks
# > has the details.)


# %%
class Transformer(nn.Module):
    """Encoder, decoder, embeddings and generator put together (Section 3, Figure 1)."""

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, src_embed: nn.Module, tgt_embed: nn.Module, generator: nn.Module
    ):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed, self.generator = src_embed, tgt_embed, generator

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
# > Which form where? Training needs *logits*: the loss applies its own, numerically safe log-softmax. Search (Parts 2
# > and 4) adds up *log-probabilities*. Plain probabilities are for people.


# %%
class Generator(nn.Module):
    """The linear layer and softmax on top of the decoder (Section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised scores (..., V)."""
        return self.proj(x)

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
    print(ours := layer_norm(x, torch.ones(4), torch.zeros(4)))
    torch.testing.assert_close(ours, nn.LayerNorm(4)(x))


# %% [markdown]
# **Dropout** (Srivastava et al., 2014; Section 5.4) sets each entry to zero with probability $P_{\text{drop}}$ during
# training, and multiplies the others by $1 / (1 - P_{\text{drop}})$ so that the expectation stays the same.
#
# > This is PyTorch's `nn.Dropout`.


# %%
@example
def example_dropout() -> None:
    """A quarter of the entries vanishes, and the mean stays."""
    y = nn.Dropout(0.25)(torch.ones(1000, 1000))
    print(f"dropped {(y == 0).float().mean():.3f}, mean {y.mean():.3f}, values {y.unique().tolist()}")
    assert abs((y == 0).float().mean() - 0.25) < 0.005 and abs(y.mean() - 1) < 0.005


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
    """A residual connection around a sublayer, a function of x alone, with dropout and LayerNorm (Sections 3.1, 5.4)."""

    def __init__(self, d_model: int, dropout: float, norm: str):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)
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
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, src_mask))  # query, key and value are x
        return self.sublayer[1](x, self.feed_forward)


# %%
class Encoder(nn.Module):
    """A stack of N encoder layers (Section 3.1); `norm` closes a pre-norm stack, and does nothing after post-norm."""

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
        self, d_model: int, self_attn: nn.Module, src_attn: nn.Module, feed_forward: nn.Module, dropout: float,
        norm: str,
    ):  # fmt: skip
        super().__init__()
        self.self_attn, self.src_attn, self.feed_forward = self_attn, src_attn, feed_forward
        self.sublayer = nn.ModuleList(SublayerConnection(d_model, dropout, norm) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None) -> Tensor:
        """x (B, T, d_model), memory (B, S, d_model), src_mask (B, 1, S), tgt_mask (B, T, T)."""
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))  # query x; keys, values: memory
        return self.sublayer[2](x, self.feed_forward)


# %%
class Decoder(nn.Module):
    """A stack of N decoder layers (Section 3.1); `norm` closes a pre-norm stack, and does nothing after post-norm."""

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
# > its spine fits. In the Transformer all three are linear projections of the layer's vectors, and the training
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

    query (..., T, d_k), key (..., S, d_k), value (..., S, d_v); mask broadcasts to (..., T, S), true or 1 = may attend;
    a query that may attend to no key at all gets NaN. (Fused kernels may give zeros.)
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
    """The largest weight of a softmax and the sum of its slopes, which is how much gradient gets through (Section 3.2.1)."""
    torch.manual_seed(0)
    p = ((torch.randn(trials, 1, d_k) * torch.randn(trials, keys, d_k)).sum(-1) * scale).softmax(-1)  # (trials, keys)
    return {"largest weight": p.amax(-1).mean().item(), "sum of the slopes": (p * (1 - p)).sum(-1).mean().item()}


# %%
@example
def example_scaling() -> Chart:
    """The softmax saturates with the width of the keys, unless the scores are scaled."""
    rows = []
    for d_k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        for name, scale in (("not divided", 1.0), ("divided by √d_k", d_k**-0.5)):
            rows.append({"d_k": d_k, "scores": name, **softmax_saturation(d_k, scale)})
    assert rows[-2]["largest weight"] > 0.9 > 0.2 > rows[-1]["largest weight"]
    assert rows[-2]["sum of the slopes"] < 0.2 < 0.9 < rows[-1]["sum of the slopes"]
    return grid([[curves(rows, "d_k", y, "scores", width=300) for y in ("largest weight", "sum of the slopes")]])


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
def example_masks() -> Chart:
    """The three masks of a batch whose sentences end in padding: dark blue may be attended to."""
    src, tgt = torch.tensor([[5, 6, 7, EOS, PAD, PAD]]), torch.tensor([[BOS, 8, 9, 10, PAD]])
    source, target = ["5", "6", "7", "</s>", "pad", "pad"], ["<s>", "8", "9", "10", "pad"]
    shown = {"encoder": (source_mask(src).expand(1, 6, 6), source, source)}
    shown["decoder"] = (target_mask(tgt), target, target)
    shown["cross"] = (source_mask(src).expand(1, 5, 6), target, source)  # one row, the same for every query
    assert target_mask(tgt)[0].sum() == 1 + 2 + 3 + 4 + 4  # the last row is a padded query: it sees the four real keys
    print("source mask", tuple(source_mask(src).shape), "target mask", tuple(target_mask(tgt).shape))
    return grid([[heatmap(mask[0], queries, keys, kind) for kind, (mask, queries, keys) in shown.items()]])


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
# with $W_i^Q, W_i^K \in \mathbb{R}^{d_{\text{model}} \times d_k}$, $W_i^V \in \mathbb{R}^{d_{\text{model}} \times d_v}$
# and $W^O \in \mathbb{R}^{h d_v \times d_{\text{model}}}$. The paper takes $h = 8$ and $d_k = d_v = d_{\text{model}} /
# h = 64$. Because each head is narrower, the cost is about that of one head of full width.
#
# > **One matrix or $h$ small ones?** Both: the $h$ matrices $W_i^Q$ standing side by side *are* one
# > $d_{\text{model}} \times h d_k$ matrix, and one large multiplication is faster than $h$ small ones. So `W_q` is a
# > single linear layer whose output is cut into heads. Cutting up the *input* instead would be something else: there
# > each head would see only a slice of the vector. The check below compares with $h$ separate matrices.
# >
# > **Why $W^O$?** Concatenation gives each head its own slice of the output. $W^O$ mixes them, so that every head can
# > write to every entry of the vector.
# >
# > Keys and values have a method of their own, because decoding will keep them from step to step. The class computes
# > Equation (1) as it stands; with `fused` set, PyTorch's kernel of the same formula does. `recorded` collects
# > weights for pictures. Part 5 sets the one, Part 6 the other.


# %%
def split_heads(x: Tensor, h: int) -> Tensor:
    """Cut the last dimension into h heads: (B, T, h * d) to (B, h, T, d)."""
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


# %%
class MultiHeadedAttention(nn.Module):
    """Multi-head attention with named projections (Section 3.2.2); d_k, the width of a head's keys, is d_model / h or given."""

    def __init__(self, h: int, d_model: int, dropout: float = 0.0, d_k: int | None = None):
        super().__init__()
        if h < 1 or d_model % h:
            raise ValueError(f"d_model must be a multiple of h, but d_model = {d_model} and h = {h}")
        self.h, d_v = h, d_model // h
        self.W_q, self.W_k = (nn.Linear(d_model, h * (d_k or d_v), bias=False) for _ in range(2))
        self.W_v, self.W_o = nn.Linear(d_model, h * d_v, bias=False), nn.Linear(h * d_v, d_model, bias=False)
        self.dropout, self.fused = nn.Dropout(dropout), False
        self.recorded: list[Tensor] | None = None  # where weights (B, h, T, S) are collected, if anywhere

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """key and value (B, S, d_model) to K (B, h, S, d_k) and V (B, h, S, d_v)."""
        return split_heads(self.W_k(key), self.h), split_heads(self.W_v(value), self.h)

    def attend(self, query: Tensor, K: Tensor, V: Tensor, mask: Tensor | None = None) -> Tensor:
        """query (B, T, d_model) over K and V; mask (B or 1, T or 1, S); returns (B, T, d_model)."""
        if mask is not None and mask.dim() != 3:
            raise ValueError(f"a mask has the shape (B or 1, T or 1, S), but this one has {tuple(mask.shape)}")
        mask = None if mask is None else (mask != 0).unsqueeze(1)  # (B, 1, T, S): one mask for all heads
        Q = split_heads(self.W_q(query), self.h)  # (B, h, T, d_k)
        if self.fused and self.recorded is None:
            p = self.dropout.p if self.training else 0.0
            x = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask, dropout_p=p)  # (B, h, T, d_v)
        else:
            x, weights = attention(Q, K, V, mask, self.dropout)
            if self.recorded is not None:
                self.recorded.append(weights.detach())
        return self.W_o(x.transpose(1, 2).flatten(2))  # (B, T, d_model)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> Tensor:
        """query (B, T, d_model), key and value (B, S, d_model), mask (B or 1, T or 1, S); returns (B, T, d_model)."""
        return self.attend(query, *self.keys_values(key, value), mask)


# %% [markdown]
# > The check, with the $h$ matrices cut out of the wide ones. It also counts parameters: they are the same for every
# > $h$ that divides $d_{\text{model}}$, and so are the multiplications. What changes is the number of softmaxes.


# %%
@example
def example_heads() -> None:
    """One wide projection equals h separate ones, head by head; the number of parameters does not depend on h."""
    h, d_model, x = 4, 32, torch.randn(2, 5, 32)
    layer = MultiHeadedAttention(h, d_model)
    W_q, W_k, W_v = (W.weight.T.chunk(h, dim=1) for W in (layer.W_q, layer.W_k, layer.W_v))  # h times (d_model, d_k)
    heads = [attention(x @ W_q[i], x @ W_k[i], x @ W_v[i])[0] for i in range(h)]  # h times (B, T, d_v)
    print("W_i^Q", tuple(W_q[0].shape), "head_i", tuple(heads[0].shape))
    for layer.fused in (False, True):
        torch.testing.assert_close(layer(x, x, x), torch.cat(heads, dim=-1) @ layer.W_o.weight.T)
    sizes = {h: sum(p.numel() for p in MultiHeadedAttention(h, 512).parameters()) for h in (1, 8, 32)}
    assert set(sizes.values()) == {4 * 512 * 512}


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
        self.dropout = nn.Dropout(dropout)

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
    """The sinusoidal encodings of positions 0 to length - 1: (length, d_model) (Section 3.5); ValueError for an odd d_model."""
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
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", positional_encoding(256, d_model), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model) holds positions start to start + T - 1."""
        end = start + x.size(1)
        if end > len(self.table):
            self.table = positional_encoding(2 * end, x.size(-1)).to(self.table)
        return self.dropout(x + self.table[start:end].to(x.dtype))


# %% [markdown]
# > **Learned positions** (row E of Table 3) are a second embedding, by position in place of symbol. Nothing multiplies
# > them by $\sqrt{d_{\text{model}}}$: they start small beside the symbols, and grow as they are learned. The embedding
# > has to end somewhere, and so has every sentence.


# %%
# @title Learned positions
class LearnedPositions(nn.Module):
    """Adds a learned vector for each position, then applies dropout (Section 3.5; Table 3, row E)."""

    def __init__(self, d_model: int, dropout: float, longest: int = 512):
        super().__init__()
        self.dropout, self.table = nn.Dropout(dropout), nn.Embedding(longest, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model) holds positions start to start + T - 1; raises ValueError beyond the last that is learned."""
        if (end := start + x.size(1)) > len(self.table.weight):
            longest = len(self.table.weight)
            raise ValueError(f"a sentence has {end} symbols or more, but only {longest} positions are learned")
        return self.dropout(x + self.table.weight[start:end])


# %% [markdown]
# > Embedding and position stand together below each stack. `start` is for decoding, which reads one symbol at a time.


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
def example_positions() -> Chart:
    """The encodings of 100 positions, and four of their dimensions as curves."""
    PE, dimensions = positional_encoding(100, 32), (4, 5, 10, 11)
    rows = [{"position": p, "value": PE[p, d].item(), "dimension": str(d)} for p in range(100) for d in dimensions]
    picture = heatmap(PE[::4], [*map(str, range(0, 100, 4))], [*map(str, range(32))], axes=("position", "dimension"))
    assert PE[0].tolist() == [0.0, 1.0] * 16
    lines = curves(rows, "position", "value", "dimension", width=320)
    return grid([[picture.properties(width=320, height=240), lines]])


# %% [markdown]
# > **Why sine *and* cosine?** Together they are a point on a circle, and moving on by $k$ positions turns the circle
# > by an angle that depends on $k$ alone. One rotation matrix per offset serves all positions:
# >
# > $$\begin{pmatrix} \sin(\omega(p + k)) \\ \cos(\omega(p + k)) \end{pmatrix} =
# >   \begin{pmatrix} \cos \omega k & \sin \omega k \\ -\sin \omega k & \cos \omega k \end{pmatrix}
# >   \begin{pmatrix} \sin \omega p \\ \cos \omega p \end{pmatrix}$$
# >
# > So the dot product of two positions depends on their distance alone. The chart has it for position 100 and others.


# %%
@example
def example_rotation() -> Chart:
    """A rotation by a fixed angle per dimension pair moves every position on by k; dot products depend on distance alone."""
    PE, k, d_model = positional_encoding(200, 64).double(), 7, 64
    angle = k * torch.exp(torch.arange(0, d_model, 2).double() * (-math.log(10_000) / d_model))
    sine, cosine = PE[:, 0::2], PE[:, 1::2]
    moved = angle.cos() * sine + angle.sin() * cosine, angle.cos() * cosine - angle.sin() * sine
    torch.testing.assert_close(torch.stack(moved, -1).flatten(1)[:-k], PE[k:], atol=1e-4, rtol=0)
    dots = PE @ PE.T
    torch.testing.assert_close(dots.diagonal(k), dots[0, k].expand(200 - k), atol=1e-4, rtol=0)
    rows = [{"offset": o, "dot product": dots[100, 100 + o].item(), "with": "position 100"} for o in range(-90, 91)]
    return curves(rows, "offset", "dot product", "with")


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
    """A Transformer with fresh weights; by default of the base model's sizes (Table 3). ValueError if sizes do not fit."""
    settings = dict(N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=dropout, norm=norm, tie=tie)
    settings |= dict(inner_dropout=inner_dropout, d_k=d_k, positions=positions)
    check_sizes(src_vocab, tgt_vocab, settings)
    attn = functools.partial(MultiHeadedAttention, h, d_model, inner_dropout, d_k)
    ffn = functools.partial(PositionwiseFeedForward, d_model, d_ff, inner_dropout)
    final_norm = functools.partial(nn.LayerNorm, d_model) if norm == "pre" else nn.Identity
    place = functools.partial(PositionalEncoding if positions == "sinusoidal" else LearnedPositions, d_model, dropout)
    encoder = Encoder([EncoderLayer(d_model, attn(), ffn(), dropout, norm) for _ in range(N)], final_norm())
    decoder = Decoder([DecoderLayer(d_model, attn(), attn(), ffn(), dropout, norm) for _ in range(N)], final_norm())
    src_embed, tgt_embed = (EmbeddingsWithPositions(Embeddings(d_model, V), place()) for V in (src_vocab, tgt_vocab))
    model = Transformer(encoder, decoder, src_embed, tgt_embed, Generator(d_model, tgt_vocab))
    model.settings = settings  # to be saved with the weights
    initialise(model, tie)
    return model


# %% [markdown]
# > The weights get their start. (Folded: sizes that do not fit together are refused at once.)


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


# %%
# @title Sizes that do not fit are refused
CHOICES = {"norm": ("post", "pre"), "tie": ("none", "target", "all"), "positions": ("sinusoidal", "learned")}


def check_sizes(src_vocab: int, tgt_vocab: int, settings: dict[str, Any]) -> None:
    """Raise ValueError for what does not make a model; MultiHeadedAttention and positional_encoding check their own."""
    for name, value in {"src_vocab": src_vocab, "tgt_vocab": tgt_vocab, **settings}.items():
        if name in CHOICES and value not in (known := CHOICES[name]):
            raise ValueError(f"{name} must be {', '.join(known[:-1])} or {known[-1]}, but it is {value}")
        if name.endswith("dropout") and not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1, but it is {value}")
        if isinstance(value, int) and not name.endswith("dropout") and value < 1:
            raise ValueError(f"{name} must be at least 1, but it is {value}")
    if settings["tie"] == "all" and src_vocab != tgt_vocab:
        sizes = f"{src_vocab} and {tgt_vocab}"
        raise ValueError(f"tie='all' needs one vocabulary for both sides, but the sizes are {sizes}")


# %% [markdown]
# > The sizes that were promised above: embedding entries before and after scaling, beside those of the positions.


# %%
@example
def example_embedding_scale() -> Chart:
    """Root mean squares: scaled embeddings and positions are of one size, unscaled embeddings vanish beside them."""
    rows = []
    for d_model in (128, 256, 512, 1024):
        embed = make_model(1000, 1000, N=1, d_model=d_model, d_ff=8).src_embed.embeddings
        parts = {"embedding": embed.table.weight, "× √d_model": embed(torch.arange(1000))}
        for part, x in (parts | {"position": positional_encoding(50, d_model)}).items():
            rows.append({"d_model": d_model, "part": part, "RMS": x.square().mean().sqrt().item()})
        assert abs(rows[-2]["RMS"] - 1) < 0.02 and abs(rows[-1]["RMS"] - 0.5**0.5) < 1e-3
    return bars(rows, "d_model", "RMS", "part")


# %%
@example
def example_tied() -> None:
    """With tie='all' three places hold one and the same parameter, and it is counted once."""
    tied, untied = (make_model(1000, 1000, N=1, d_model=64, d_ff=64, h=4, tie=tie) for tie in ("all", "none"))
    matrix = tied.generator.proj.weight
    assert matrix is tied.src_embed.embeddings.table.weight is tied.tgt_embed.embeddings.table.weight
    small, large = (sum(p.numel() for p in model.parameters()) for model in (tied, untied))
    print(f"tied {small:,}, untied {large:,}, two matrices of {matrix.numel():,} more")
    assert large - small == 2 * matrix.numel()


# %% [markdown]
# > **Causality, seen.** Change target symbol 3: only the predictions from position 3 on may change. And the padding:
# > with padding behind both sentences, the predictions at all real positions must be the same.


# %%
@example
def example_causal() -> None:
    """The prediction at position t depends on targets up to t alone, and padding changes nothing."""
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=32, d_ff=64, h=4).eval()
    src, tgt = torch.randint(4, 50, (1, 6)), torch.randint(4, 49, (1, 5))
    logits = model(src, tgt, source_mask(src), target_mask(tgt))  # (1, 5, V)
    other = tgt + torch.tensor([0, 0, 0, 1, 0])  # another symbol at position 3
    change = (model(src, other, source_mask(src), target_mask(other)) - logits).abs().amax(-1)[0]
    print("largest change at each position when target 3 changes:", [round(c, 4) for c in change.tolist()])
    assert change[:3].max() == 0 and change[3:].min() > 0.01
    src, tgt = F.pad(src, (0, 3), value=PAD), F.pad(tgt, (0, 2), value=PAD)
    torch.testing.assert_close(model(src, tgt, source_mask(src), target_mask(tgt))[:, :5], logits)


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
def example_pre_post() -> Chart:
    """Gradients by layer at initialisation: post-norm grows towards the top, pre-norm stays level."""
    rows = [row for norm in ("post", "pre") for row in layer_gradients(norm)]
    growth = [rows[top]["gradient norm"] / rows[top - 11]["gradient norm"] for top in (11, 23)]
    print(f"last layer over first: post-norm {growth[0]:.1f}, pre-norm {growth[1]:.1f}")
    assert growth[0] > 10 and 1 / 4 < growth[1] < 4
    return curves(rows, "layer", "gradient norm", "norm", log_y=True)


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
    "N = 2": ({"N": 2}, 36), "N = 4": ({"N": 4}, 50), "N = 8": ({"N": 8}, 80), "d_model = 256": ({"d_model": 256}, 28),
    "d_model = 1024": ({"d_model": 1024}, 168), "d_ff = 1024": ({"d_ff": 1024}, 53), "d_ff = 4096": ({"d_ff": 4096}, 90),
    "big": ({"d_model": 1024, "d_ff": 4096, "h": 16}, 213),
}  # fmt: skip


def body_parameters(**sizes: int) -> int:
    """The parameters of a model beside its embedding matrix, without making its tensors."""
    with torch.device("meta"):
        model = make_model(4, 4, tie="all", **sizes)
    return sum(p.numel() for p in model.parameters()) - model.generator.proj.weight.numel()


# %%
@example
def example_parameters() -> Any:
    """Our count for each row of Table 3, and the vocabulary that would explain the paper's."""
    rows = []
    for variant, (sizes, paper) in TABLE_3.items():
        body, d_model = body_parameters(**sizes), sizes.get("d_model", 512)
        low, high = (round(((paper + e) * 1e6 - body) / d_model) for e in (-0.5, 0.5))
        rows.append({"variant": variant, "ours, beside embeddings": f"{body / 1e6:.2f} M"})
        rows[-1] |= {"paper, in all": f"{paper} M", "vocabulary from": low, "to": high}
    low, high = max(row["vocabulary from"] for row in rows[:-1]), min(row["to"] for row in rows[:-1])  # all but big
    print(f"a vocabulary of {low:,} to {high:,} explains every row but the last")
    assert low <= high
    return table(rows)


# %% [markdown]
# > The ranges of ten rows meet, although each is rounded to a million: one vocabulary of about 41,000 explains them
# > all, so our layers have theirs in depth, width, inner width and width of keys. (Section 5.1 says about 37,000; the
# > paper does not tell what else its totals count.) The big model would have had about 36,000 entries; the paper does
# > not say why its two kinds of models would differ in that.

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
# > weights with values, and $4nd^2$ in the projections, which the table leaves out. They, not the $n^2$, dominate at
# > the length of a sentence. So a whole attention layer multiplies more than the table's recurrent one at every length:
# > $4nd^2 + 2n^2d$ against $nd^2$. (That is a recurrent layer of a single matrix; an LSTM has eight.) What remains for
# > all lengths is that attention does its work at once, where recurrence needs $n$ steps.


# %%
@example
def example_complexity() -> Chart:
    """Table 1 as curves, for the base model's width: self-attention is cheaper than recurrence below n = d."""
    from torch.utils.flop_counter import FlopCounterMode

    d, k, r, rows = 512, 3, 64, []
    for n in range(16, 1025, 16):
        costs = {"self-attention": n * n * d, "restricted": n * min(r, n) * d, "recurrent": n * d * d}
        costs["convolutional"] = k * n * d * d
        rows += [{"length n": n, "operations": cost, "layer": layer} for layer, cost in costs.items()]
    n, layer = 30, MultiHeadedAttention(8, d)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        layer(*[torch.randn(1, n, d)] * 3)
    square, projections = 2 * n * n * d, 4 * n * d * d
    assert counter.get_total_flops() == 2 * (square + projections)  # an addition for each multiplication
    print(f"{n} symbols: {square / (square + projections):.0%} of the multiplications are the n² part")
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
# > up to $t$ and must predict symbol $t + 1$. Without the shift it could simply copy its input; with a shift of two it
# > would have to guess symbol $t + 2$ without having seen symbol $t + 1$. That the whole target is fed in at once is no
# > cheating, since the causal mask hides at each position what it has to predict. It is what makes training parallel.
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
        vars(self).update({name: value.to(device) for name, value in vars(self).items() if isinstance(value, Tensor)})
        return self


# %% [markdown]
# > A batch of two; this is its second, shorter row. The position that reads `</s>` predicts padding and does not
# > count.


# %%
@example
def example_shift() -> Any:
    """A padded row, position by position: read, may attend to, predict, counts in the loss."""
    names = {PAD: "<pad>", BOS: "<s>", EOS: "</s>", 10: "a", 11: "dog", 12: "runs", 13: "two", 14: "cats"}
    batch, rows = Batch(torch.tensor([[5, EOS], [6, EOS]]), pad_rows([[BOS, 10, 11, 12, EOS], [BOS, 13, 14, EOS]])), []
    for t in range(4):
        seen = [names[int(i)] for i, visible in zip(batch.tgt[1], batch.tgt_mask[1, t], strict=True) if visible]
        read, predict = names[int(batch.tgt[1, t])], names[int(batch.tgt_y[1, t])]
        row = {"position": t, "reads": read, "attends to": " ".join(seen), "predicts": predict}
        rows.append(row | {"in the loss": predict != "<pad>"})
    assert [row["predicts"] for row in rows] == ["two", "cats", "</s>", "<pad>"] and batch.ntokens == 4 + 3
    return table(rows)


# %% [markdown]
# Sentence pairs were batched together by approximate length; each batch held about 25,000 source tokens and 25,000
# target tokens.
#
# > Counting *tokens* and not sentences keeps the work and the memory of each batch about constant. Sorting by length
# > first keeps padding low, where random batches padded to a fixed length waste four fifths of the work. So: sort, and
# > cut wherever one more pair would exceed the budget. Pairs of equal lengths come in random order, and the batches are
# > shuffled; another `seed` for each epoch draws both anew.


# %%
class Pair(NamedTuple):
    """One training example as ids: the source ends with EOS, the target begins with BOS and ends with EOS."""

    src: list[int]
    tgt: list[int]


def make_batch(pairs: list[Pair]) -> Batch:
    """Pairs as one padded batch."""
    return Batch(pad_rows([p.src for p in pairs]), pad_rows([p.tgt for p in pairs]))


# %%
def token_batches(pairs: list[Pair], budget: int, seed: int = 0) -> list[list[Pair]]:
    """Pairs of like lengths in batches of at most `budget` padded tokens a side, in random order (Section 5.1)."""
    draw, batches, longest = random.Random(seed), [[]], 0
    for pair in sorted(pairs, key=lambda pair: (len(pair.tgt), len(pair.src), draw.random())):
        size = max(len(pair.src), len(pair.tgt))
        if size > budget:
            raise ValueError(f"a pair has {size} tokens, but a batch holds {budget}")
        longest = max(longest, size)
        if longest * (len(batches[-1]) + 1) > budget:
            batches, longest = [*batches, []], size
        batches[-1].append(pair)
    draw.shuffle(batches)
    return batches if pairs else []


# %% [markdown]
# > How much of a batch is padding, for lengths about like those of Multi30k?


# %%
@example
def example_padding() -> None:
    """How much of a batch is padding: random order padded to 72, and grouped by length."""
    draw = random.Random(0)
    lengths = [max(4, round(draw.gauss(14, 4.5))) for _ in range(29_000)]
    pairs = [Pair([5] * max(4, n + round(draw.gauss(0, 2))), [5] * n) for n in lengths]
    tokens, batches = sum(map(len, itertools.chain(*pairs))), map(make_batch, token_batches(pairs, 5000))
    padded = sum(batch.src.numel() + batch.tgt.numel() + len(batch.tgt) for batch in batches)  # with the cut-off column
    print(f"padding: {1 - tokens / (2 * 72 * len(pairs)):.1%} if all have 72, {1 - tokens / padded:.1%} by length")
    assert 1 - tokens / padded < 0.08


# %% [markdown]
# ## Hardware and duration (Section 5.2)
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
def example_rate() -> Chart:
    """Three schedules; the rate peaks at the end of the warmup."""
    kinds, steps = ((512, 4000), (512, 8000), (256, 4000)), range(1, 20_001, 100)
    rows = [{"update": s, "rate": rate(s, d, 1, w), "schedule": f"{d}:{w}"} for d, w in kinds for s in steps]
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
# > $u$ is uniform over all symbols but padding, which is never right and gets no mass. The first form below writes the
# > sum as it stands; the second gives the same number without ever building $q$. PyTorch's own
# > `cross_entropy(label_smoothing=…)` spreads the mass over padding, too; on scores without a column for padding it is
# > the same loss. The second form collects the terms:
# >
# > $$-\sum_k q(k) \log p(k) = -(1 - \epsilon_{ls}) \log p(y) -
# >   \frac{\epsilon_{ls}}{V - 1} \sum_{k \ne \mathrm{pad}} \log p(k)$$


# %%
def smoothed_targets(target: Tensor, vocab: int, eps: float = 0.1, pad: int = PAD) -> Tensor:
    """The distribution q for each target id: (..., V); zero for padding (Section 5.4)."""
    q = eps / (vocab - 1) + (1 - eps) * F.one_hot(target, vocab)
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
def example_smoothing() -> Chart:
    """The smoothed targets of three positions, the last one padding; both forms of the loss agree."""
    torch.manual_seed(0)
    target, logits = torch.tensor([5, 7, PAD]), torch.randn(3, 10)
    q, close = smoothed_targets(target, 10), torch.testing.assert_close
    close(smoothed_loss(logits, target), -(q * logits.log_softmax(-1)).sum())
    close(q.sum(-1), torch.tensor([1.0, 1.0, 0.0]))
    close(smoothed_loss(logits, target, eps=0.0), F.cross_entropy(logits[:2], target[:2], reduction="sum"))
    logits[:, PAD] = -torch.inf  # no probability for padding: then it is PyTorch's loss without that column
    theirs = F.cross_entropy(logits[:2, 1:], target[:2] - 1, label_smoothing=0.1, reduction="sum")
    close(smoothed_loss(logits.clamp_min(-70), target), theirs)
    return heatmap(q, ["5", "7", "pad"], [str(k) for k in range(10)], axes=("target", "symbol"))


# %% [markdown]
# > **Why does it hurt perplexity?** The smallest loss is reached where $p = q$, and equals the entropy of $q$, which is
# > not zero. A model that is surer than $q$ pays for it. The orange curve shows the loss of a model that gives the
# > right symbol the probability $p$ and spreads the rest evenly. For the same reason a *smoothed* loss has no
# > perplexity: validation below uses $\epsilon = 0$.
# >
# > **Why does it help BLEU?** BLEU sees the words that were chosen, not how sure the model was of them. A model that is
# > not pushed towards certainty keeps its alternatives alive and overfits less. That this raises BLEU is observed, not
# > proved.


# %%
@example
def example_overconfidence() -> Chart:
    """Smoothed loss against the model's confidence: the minimum is the entropy of q, at p = q."""
    V, target, rows = 100, torch.tensor([5]), []
    q = smoothed_targets(target, V)[0]
    entropy = -(q[1:] * q[1:].log()).sum().item()
    for p in torch.linspace(0.5, 0.999, 500).tolist():
        log_p = torch.full((1, V), (1 - p) / (V - 2)).log()
        log_p[0, 5], log_p[0, PAD] = math.log(p), -70.0
        for e in (0.0, 0.1):
            rows.append({"confidence": p, "loss": smoothed_loss(log_p, target, e).item(), "smoothing": str(e)})
    best = min(rows[1::2], key=lambda row: row["loss"])
    print(f"least loss {best['loss']:.3f} at confidence {best['confidence']:.3f}; entropy of q {entropy:.3f}")
    assert abs(best["loss"] - entropy) < 1e-3 and abs(best["confidence"] - q.max()) < 2e-3
    return curves(rows, "confidence", "loss", "smoothing")


# %% [markdown]
# > The objective of a batch is this loss of what the model predicts at all its positions.


# %%
def batch_loss(model: Transformer, batch: Batch, eps: float) -> Tensor:
    """The smoothed loss of a batch, summed over its target tokens (Section 5.4): a scalar, in nats."""
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, T, V)
    return smoothed_loss(logits, batch.tgt_y, eps)


# %% [markdown]
# ## Configuration
#
# The paper's base model fixes these numbers (Sections 3 and 5, and the first row of Table 3).
#
# > They stand in one frozen dataclass whose defaults are the base model's. `bpe` and `tokens_per_batch` are read in
# > Part 3. Two have no counterpart in the text: `accumulate` saves memory, and `factor` scales the learning rate.
# > `norm` is the switch between post- and pre-norm.


# %%
@dataclass(frozen=True)
class Config:
    """Sizes and training settings; the defaults are the base model (Sections 3 and 5)."""

    N: int = 6  # layers in the encoder, and in the decoder
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    dropout: float = 0.1  # P_drop: on embeddings and on each sublayer's output (5.4)
    norm: Literal["post", "pre"] = "post"  # LayerNorm after the addition (3.1), or before the sublayer
    bpe: int = 37_000  # merges of the joint byte-pair encoding (5.1); 0: whole words
    tokens_per_batch: int = 25_000  # padded target (and source) tokens in one update (5.1)
    accumulate: int = 1  # pieces that an update is cut into, to save memory
    factor: float = 1.0  # scales the learning rate of Equation (3)
    warmup: int = 4000  # updates over which the rate rises (5.3)
    smoothing: float = 0.1  # eps_ls (5.4)
    seed: int = 0

    def make_model(self, vocab: int) -> Transformer:
        """A fresh model of these sizes, with one vocabulary and one matrix for both languages (Section 3.4)."""
        sizes = (self.N, self.d_model, self.d_ff, self.h, self.dropout)
        return make_model(vocab, vocab, *sizes, norm=self.norm, tie="all")


# %% [markdown]
# ## One update
#
# > The gradient of an update is the sum over its target tokens, divided by their number. Both words matter. If an
# > update does not fit into memory, it is cut into pieces whose gradients are added up: *accumulation*. Then each
# > piece's sum must be divided by the tokens of the **whole** update. Dividing each piece by its own tokens would weigh
# > a word in a short piece more than one in a long piece.
# >
# > The trainer is the model, Adam, and the schedule.


# %%
def split_rows(pairs: list[Pair], pieces: int) -> list[list[Pair]]:
    """Deal the pairs of an update out to so many pieces; an idle piece gets a pair that adds nothing to the loss."""
    idle = [Pair(pairs[0].src, [BOS, PAD])]  # there is nothing to predict
    return [pairs[i::pieces] or idle for i in range(pieces)]


# %%
class Trainer:
    """A model with Adam and the schedule of Equation (3); `update` learns from one batch of pairs (Section 5)."""

    def __init__(self, model: Transformer, config: Config):
        self.model, self.config, self.step = model, config, 0
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)  # lr: see update

    def gradient(self, pairs: list[Pair]) -> float:
        """Set the gradient of the mean loss per target token of `pairs`; returns that loss, in nats."""
        self.model.zero_grad()
        tokens, total = sum(len(pair.tgt) - 1 for pair in pairs), 0.0  # tokens of the whole update
        for piece in split_rows(pairs, self.config.accumulate):
            batch = make_batch(piece).to(next(self.model.parameters()).device)
            loss = batch_loss(self.model, batch, self.config.smoothing) / tokens
            loss.backward()  # adds to the gradient
            total += loss.item()
        return total

    def update(self, pairs: list[Pair]) -> float:
        """One step of Adam on the gradient of `pairs`; returns their mean loss per target token."""
        self.model.train()
        self.step += 1
        loss = self.gradient(pairs)
        lr = rate(self.step, self.config.d_model, self.config.factor, self.config.warmup)
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        return loss


# %% [markdown]
# > Is the gradient of three pieces that of one batch? Sentences of different lengths make it a real question.


# %%
@example
def example_accumulation() -> None:
    """Three pieces of different lengths give the gradient of one large batch; dividing each by its own tokens does not."""
    draw = random.Random(0)
    pairs = [Pair([*draw.choices(range(4, 20), k=5), EOS], [BOS, *[7] * draw.randint(1, 9), EOS]) for _ in range(10)]
    model = make_model(20, 20, N=1, d_model=16, d_ff=32, h=2, dropout=0.0)

    def gradient(pairs: list[Pair], pieces: int) -> Tensor:
        Trainer(model, Config(accumulate=pieces)).gradient(pairs)
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    whole, own = gradient(pairs, 1), sum(gradient(piece, 1) for piece in split_rows(pairs, 3)) / 3
    difference = [(whole - other).abs().max().item() for other in (gradient(pairs, 3), own)]
    print(f"difference in three pieces: {difference[0]:.1e}; with each divided by its own tokens: {difference[1]:.1e}")
    assert difference[0] < 1e-6 < 1e-3 < difference[1]


# %% [markdown]
# ## The training loop
#
# > The loop is short: learn from one batch after the other, and keep what happened. It ends with the batches, or when
# > so many minutes are used up. Now and then it may measure something, such as the loss on sentences that are not
# > trained on. The copy task below uses it, and so does the translator of Part 3.


# %%
def fit(
    trainer: Trainer,
    batches: Iterable[list[Pair]],
    minutes: float = math.inf,
    every: int = 100,
    measure: Callable = dict,
) -> list[dict]:
    """Learn from one batch after the other; a row for each update, with what `measure` finds after `every` so many."""
    rows, start = [], time.monotonic()
    for pairs in tqdm(batches, "training", unit=" updates", file=sys.stdout):
        loss = trainer.update(pairs)
        rows.append({"update": trainer.step, "minutes": (time.monotonic() - start) / 60, "loss": loss})
        if trainer.step % every == 0:
            rows[-1] |= measure()
        if rows[-1]["minutes"] >= minutes:
            break
    return rows


# %% [markdown]
# ## A first task: copying
#
# > A small model that should learn to repeat its source exercises everything so far. Its symbols are real ones, apart
# > from the four specials, and sequences begin and end as in translation. The loss cannot fall below the entropy of $q$,
# > 0.54 nats for 14 symbols. The result stands at the end of the next section, since copying needs a decoder.


# %%
def copy_pairs(n: int, vocab: int, seed: int, shortest: int = 3, longest: int = 10) -> list[Pair]:
    """Random sequences of `shortest` to `longest` symbols, to be copied."""
    draw = random.Random(seed)
    lengths = [draw.randint(shortest, longest) for _ in range(n)]
    rows = [[draw.randrange(len(SPECIALS), vocab) for _ in range(length)] for length in lengths]
    return [Pair([*row, EOS], [BOS, *row, EOS]) for row in rows]


@functools.cache
def train_copy(updates: int = 1000, vocab: int = 14, seed: int = 0) -> tuple[Transformer, list[dict]]:
    """Train a small model to copy; returns it and the loss of each update."""
    torch.manual_seed(seed)
    config = Config(N=2, d_model=64, d_ff=128, h=4, dropout=0.0, norm="pre", factor=0.5, warmup=150)
    trainer = Trainer(config.make_model(vocab), config)
    rows = fit(trainer, [copy_pairs(64, vocab, seed=updates * seed + step) for step in range(updates)])
    return trainer.model.eval(), rows


# %% [markdown]
# ## Greedy decoding
#
# > To translate, the decoder runs step by step: predict a distribution, take the likeliest symbol, append it, go on.
# > All sentences of a batch advance together.
# >
# > An undertrained model repeats itself: the likeliest symbol after "a man in a" may lead back to "a man in a", and a
# > search that never takes the second likeliest does not look for a way out. In translation, more training is the cure.
# >
# > The naive form runs the decoder on the whole prefix at every step, although of all its outputs only the last is
# > new. It goes on to `max_len`, whatever the symbols are.

# %% [markdown]
# > Translations made with dropout still on are a classic mistake; this switches it off for as long as needed.


# %%
@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off inside, and each module as it was before outside."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


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
# > The loop in `step` below is `DecoderLayer.forward`, with both attentions given keys and values that were stored.


# %%
class CachedDecoder:
    """The decoder, one symbol of each sentence at a time, with the keys and values of all that was before."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor):
        memory, layers = model.encode(src, src_mask), model.decoder.layers
        self.model, self.src_mask, self.length = model, src_mask, 0
        self.source = [layer.src_attn.keys_values(memory, memory) for layer in layers]  # computed once
        nothing = memory[:, :0]  # no position yet
        self.past = [layer.self_attn.keys_values(nothing, nothing) for layer in layers]

    def attend_to_past(self, i: int, x: Tensor) -> Tensor:
        """Self-attention of the new position in layer i; its key and value join those of the earlier ones."""
        attn = self.model.decoder.layers[i].self_attn
        (past_K, past_V), (K, V) = self.past[i], attn.keys_values(x, x)  # K (B, h, 1, d_k), V (B, h, 1, d_v)
        self.past[i] = torch.cat((past_K, K), dim=2), torch.cat((past_V, V), dim=2)  # one position longer
        return attn.attend(x, *self.past[i])

    def step(self, symbols: Tensor) -> Tensor:
        """The next symbol of each sentence (B) to the logits of the one after it (B, V)."""
        x = self.model.tgt_embed(symbols.unsqueeze(1), self.length)  # (B, 1, d_model)
        for i, layer in enumerate(self.model.decoder.layers):
            (K, V), cross = self.source[i], layer.src_attn
            x = layer.sublayer[0](x, functools.partial(self.attend_to_past, i))
            x = layer.sublayer[1](x, functools.partial(cross.attend, K=K, V=V, mask=self.src_mask))
            x = layer.sublayer[2](x, layer.feed_forward)
        self.length += 1
        return self.model.generator.logits(self.model.decoder.norm(x))[:, 0]


# %% [markdown]
# > The fast form feeds in one symbol at a time. A sentence that has produced `</s>` is filled up with padding, and the
# > loop stops when all have ended.


# %%
@torch.inference_mode()
def greedy_decode(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, start_symbol: int = BOS,
    end_symbol: int | None = EOS, pad: int = PAD,
) -> Tensor:  # fmt: skip
    """The likeliest symbol at each step: ids (B, at most max_len), start_symbol first, `pad` after end_symbol.

    src (B, S), src_mask (B or 1, 1, S). Stops when every sentence has ended; end_symbol None: never before max_len.
    """
    with evaluating(model):
        decoder, ended = CachedDecoder(model, src, src_mask), torch.zeros_like(src[:, 0], dtype=torch.bool)
        ys = torch.full((len(src), 1), start_symbol, device=src.device)
        while ys.size(1) < max_len and not ended.all():
            best = decoder.step(ys[:, -1]).argmax(-1).masked_fill(ended, pad)  # (B)
            ys = torch.cat((ys, best.unsqueeze(1)), dim=1)
            ended |= best == (-1 if end_symbol is None else end_symbol)  # no symbol has the number -1
    return ys


# %% [markdown]
# > The copy task, trained and tried on sequences that it has not seen. Both decoders must agree up to the end.


# %%
@example
def example_copy() -> Chart:
    """Train on random sequences, then copy unseen ones exactly; both decoders agree."""
    model, rows = train_copy()
    seen = {tuple(pair.src) for step in range(len(rows)) for pair in copy_pairs(64, 14, seed=step)}
    unseen = make_batch([pair for pair in copy_pairs(250, 14, seed=10**6) if tuple(pair.src) not in seen])
    copies = greedy_decode(model, unseen.src, unseen.src_mask, max_len=12)
    naive = greedy_decode_naive(model, unseen.src, unseen.src_mask, copies.size(1), BOS)
    print("source", unseen.src[0].tolist(), "\ncopied", copies[0].tolist())
    assert torch.equal(copies[:, 1:] * unseen.src_mask[:, 0], unseen.src), "not every sequence was copied exactly"
    assert torch.equal(naive * (copies != PAD), copies)  # the naive loop goes on after the end
    return curves([row | {"task": "copy"} for row in rows], "update", "loss", "task", log_y=True)


# %% [markdown]
# > **Do sinusoids extend to longer sequences?** The paper hoped so. This model never saw more than ten symbols; here
# > is how it copies longer ones. A vector exists for every position, but what the layers should do with it was learnt
# > only for the first few.


# %%
def copied(model: Transformer, length: int) -> float:
    """The share of 100 random sequences of this length that the model copies exactly."""
    batch = make_batch(copy_pairs(100, 14, seed=10**7 + length, shortest=length, longest=length))
    copies = greedy_decode(model, batch.src, batch.src_mask, max_len=length + 2, end_symbol=None)
    return round((copies[:, 1:] == batch.src).all(dim=1).float().mean().item(), 2)


@example
def example_longer() -> Chart:
    """Exact copies by length: sure up to the longest trained length, lost soon after."""
    rows = [{"length": n, "copied": copied(train_copy()[0], n), "trained on": "3 to 10 symbols"} for n in range(3, 17)]
    print({row["length"]: row["copied"] for row in rows})
    assert rows[7]["copied"] > 0.9 > 0.5 > rows[-1]["copied"]
    return curves(rows, "length", "copied", "trained on")


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
# The paper trained on WMT 2014: 4.5 million English-German sentence pairs, encoded by a joint byte-pair encoding with a
# vocabulary of about 37,000, and 36 million English-French pairs with 32,000 word pieces.
#
# > That takes half a day on eight GPUs. We take [Multi30k](https://github.com/multi30k/dataset) (Elliott et al.,
# > 2016): 29,000 captions of photographs in English with German translations by professionals, for research and
# > teaching. It is small enough for a laptop, and real: cased, with punctuation, long words and the order of words
# > that makes German interesting to translate.
# >
# > Multi30k is fetched from its public repository into your cache, once, 1.3 MB.
# > [pooch](https://www.fatiando.org/pooch) compares each file with its known checksum.

# %%
CHECKSUMS = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
}


def multi30k(split: str, repository: str = "https://raw.githubusercontent.com/multi30k/dataset/master/") -> list[tuple]:
    """The German-English pairs of `train` or `val`, from the cache or the network; OSError where they are in neither."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder = os.environ.get("MULTI30K_CACHE", pooch.os_cache("annotated-transformer") / "multi30k")
    sides = []
    for name in (f"{split}.de.gz", f"{split}.en.gz"):
        path = pooch.retrieve(f"{repository}data/task1/raw/{name}", CHECKSUMS[name], fname=name, path=folder)
        sides.append(gzip.decompress(Path(path).read_bytes()).decode().strip().split("\n"))
    return [(german.strip(), english.strip()) for german, english in zip(*sides, strict=True)]


# %% [markdown]
# > Without a network there is still something to learn: the program beside this document has a small grammar that writes
# > German captions with their translations. `ANNOTATED_DATA` names another of the program's sources, such as a folder.


# %%
# @title What is read without Multi30k
def read_split(source: str, split: str) -> list[tuple[str, str]]:
    """The pairs of a split of Multi30k, or of another source that the program reads."""
    if source == "multi30k":
        return multi30k(split)
    try:
        from translator.sources import load_pairs
    except ImportError as error:
        raise FileNotFoundError(f"{source} needs the folder `translator` beside the notebook") from error
    return load_pairs(source, split)


@functools.cache
def choose_data() -> str:
    """The source of this document's data: $ANNOTATED_DATA, or multi30k, or captions where that cannot be had."""
    wanted = os.environ.get("ANNOTATED_DATA", "multi30k")
    try:
        read_split(wanted, "train"), read_split(wanted, "val")
    except OSError as error:
        print(f"NOTICE: without {wanted}, going on with the built-in captions, whose scores say nothing ({error}).")
        return "captions"
    return wanted


# %%
@functools.cache
def load_split(split: str) -> list[tuple[str, str]]:
    """The German-English pairs of `train` or `val` with text on both sides."""
    return [pair for pair in read_split(choose_data(), split) if all(pair)]


@example
def example_data() -> None:
    """What there is to learn from: the number of pairs, their lengths in words, and one of them."""
    for split in ("train", "val"):
        words = [sum(len(text.split()) for text in side) / len(side) for side in zip(*load_split(split), strict=True)]
        print(f"{len(load_split(split)):,} pairs, {words[0]:.1f} German and {words[1]:.1f} English words on average")
    print(*load_split("train")[0], sep="\n")


# %% [markdown]
# ## Words and word pieces (Section 5.1)
#
# Byte-pair encoding (Sennrich et al., 2016) starts from single characters and merges the most frequent neighbouring
# pair, again and again. Frequent words become one entry, rare ones fall into pieces, and hardly anything is unknown.
# The paper learns one encoding for both languages together.
#
# > Both ways are here. *Words*: spaCy's rules split a sentence into words and punctuation; every word seen often enough
# > gets a number, all others become `<unk>`. *Pieces*: the `tokenizers` library learns the merges. In both, `▁` marks a
# > symbol that begins the sentence or follows a space, so that decoding is putting the symbols together and needs no
# > rules for where spaces go.
# >
# > Both languages share one vocabulary, learnt from the training split alone.


# %%
@functools.cache
def spacy_rules(language: str) -> Any:
    """spaCy's tokeniser for a language, such as "de"; ValueError for one that spaCy does not know."""
    import spacy

    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:
        raise ValueError(f"spaCy has no rules for the language {language!r}") from error


def words_of(text: str, language: str) -> list[str]:
    """Words and punctuation by spaCy's rules for the language, `▁` before those that follow a space."""
    words = spacy_rules(language)(" ".join(text.split()))
    return [("▁" if i == 0 or words[i - 1].whitespace_ else "") + word.text for i, word in enumerate(words)]


# %% [markdown]
# > One class serves both. What was learnt sits in a `tokenizers.Tokenizer`, which knows how to save itself.


# %%
class Tokenizer:
    """Text to ids and back, with one vocabulary for both languages; words or byte-pair encoding (Section 5.1)."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary  # a tokenizers.Tokenizer
        self.vocabulary.encode_special_tokens = True  # the text "</s>" in a sentence is text
        self.words = type(vocabulary.model).__name__ == "WordLevel"

    def __len__(self) -> int:
        return self.vocabulary.get_vocab_size()

    def encode(self, text: str, language: str) -> list[int]:
        """The ids of a sentence, without BOS and EOS."""
        return self.vocabulary.encode(words_of(text, language) if self.words else text, is_pretokenized=self.words).ids

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The symbols with these ids, specials included."""
        return [self.vocabulary.id_to_token(i) for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The sentence up to EOS; an unknown word or symbol shows as <unk>."""
        ids = [i for i in itertools.takewhile(lambda i: i != EOS, ids) if i not in (PAD, BOS)]
        unknown = "▁<unk>" if self.words else "<unk>"  # unknown words most likely had a space before them
        return "".join(unknown if i == UNK else self.vocabulary.id_to_token(i) for i in ids).replace("▁", " ").strip()


# %% [markdown]
# > What there is to learn: the words, or the merges.


# %%
def learn_words(pairs: Iterable[tuple[str, str]], languages: tuple[str, str], at_least: int = 2) -> Tokenizer:
    """A vocabulary of all words that occur `at_least` times in the pairs."""
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import WordLevel

    counts = Counter(w for pair in pairs for side in zip(pair, languages, strict=True) for w in words_of(*side))
    found = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = SPECIALS + [word for word, n in found if n >= at_least]
    return Tokenizer(Vocabulary(WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>")))


# %%
def learn_bpe(pairs: Iterable[tuple[str, str]], merges: int) -> Tokenizer:
    """A joint byte-pair encoding of both sides with at most `merges` merges (Section 5.1); reads the pairs twice."""
    from tokenizers import Regex, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    vocabulary = Vocabulary(BPE(unk_token="<unk>"))
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    vocabulary.normalizer = normalizers.Sequence([normalizers.NFC(), *spaces])
    vocabulary.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    alphabet = {character for pair in pairs for text in pair for character in set(text)}
    size = len(SPECIALS) + len(alphabet) + merges
    trainer = BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False)
    vocabulary.train_from_iterator(itertools.chain.from_iterable(pairs), trainer)
    return Tokenizer(vocabulary)


# %% [markdown]
# > One sentence in both ways. Decoding gives the sentence back. (An unknown word is lost, so the sentence is one of
# > those that the words were learnt from.)


# %%
@example
def example_tokens() -> None:
    """One sentence as words and as pieces; both ways back give the sentence."""
    pairs, sentence = load_split("train")[:3000], load_split("train")[0][0]
    for name, tokenizer in (("words", learn_words(pairs, ("de", "en"), 1)), ("pieces", learn_bpe(pairs, 300))):
        ids = tokenizer.encode(sentence, "de")
        print(f"{name:>6}, vocabulary {len(tokenizer):,}: {' '.join(tokenizer.tokens(ids))}")
        assert tokenizer.decode(ids) == " ".join(sentence.split())


# %% [markdown]
# ## A translator, saved and loaded
#
# > A *translator* is a model with its tokeniser and the names of its languages. In a file, its weights are
# > [safetensors](https://huggingface.co/docs/safetensors), which hold numbers and nothing that could run. Tied matrices
# > are one parameter with several names; the file holds it once.


# %%
class Translator(NamedTuple):
    """A trained model with everything needed to use it."""

    model: Transformer
    tokenizer: Tokenizer
    languages: tuple[str, str] = ("de", "en")


def save_translator(translator: Translator, folder: str | Path) -> None:
    """Write a folder that holds the weights, the vocabulary, and the settings that `make_model` was called with."""
    from safetensors.torch import save_file

    (model, tokenizer, (src, tgt)), folder = translator, Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: p.detach().contiguous() for name, p in model.named_parameters()}, folder / "model.safetensors")
    tokenizer.vocabulary.save(str(folder / "tokenizer.json"))
    settings = model.settings | {"d_k": model.settings["d_k"] or 0}
    about = {"src": src, "tgt": tgt, "vocab": len(tokenizer), "settings": settings}
    (folder / "config.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


# %%
def load_translator(folder: str | Path) -> Translator:
    """Read what `save_translator` or the program wrote; raises ValueError for weights that do not fit this document."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer as Vocabulary

    folder, names = Path(folder), ("N", "d_model", "d_ff", "h", "dropout", "norm", "tie", "inner_dropout", "positions")
    about = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    settings = {name: value for name, value in about["settings"].items() if name in names}
    model = make_model(about["vocab"], about["vocab"], **settings, d_k=about["settings"].get("d_k") or None)
    saved = load_file(folder / "model.safetensors")
    if {n: p.shape for n, p in model.named_parameters()} != {n: tensor.shape for n, tensor in saved.items()}:
        raise ValueError(f"{folder / 'model.safetensors'}: not weights of this document's model")
    model.load_state_dict(saved, strict=False)  # a tied matrix has several names and is saved under one
    tokenizer = Tokenizer(Vocabulary.from_file(str(folder / "tokenizer.json")))
    return Translator(model.to(best_device()).eval(), tokenizer, (about["src"], about["tgt"]))


# %% [markdown]
# ## Training
#
# > The pairs become numbers, and batches come epoch after epoch, each time in another order. Validation measures the
# > cross-entropy without smoothing and without dropout; its exponential is the *perplexity*, the number of symbols among
# > which the model is as unsure as if it had to guess.


# %%
def to_pairs(tokenizer: Tokenizer, texts: list[tuple[str, str]]) -> list[Pair]:
    """German-English sentence pairs as training examples."""
    encode = tokenizer.encode
    return [Pair([*encode(german, "de"), EOS], [BOS, *encode(english, "en"), EOS]) for german, english in texts]


@torch.inference_mode()
def validation_loss(model: Transformer, pairs: list[Pair]) -> float:
    """The mean cross-entropy in nats per target token; its exponential is the perplexity."""
    with evaluating(model):
        batches = [make_batch(pairs).to(best_device()) for pairs in token_batches(pairs, 5000)]
        return sum(batch_loss(model, b, eps=0.0).item() for b in batches) / sum(b.ntokens for b in batches)


# %% [markdown]
# > The model is small, a thirtieth of the paper's base model, because 29,000 pairs and a laptop are all there is. A
# > narrow model takes a higher learning rate, and a run of minutes needs small batches and a short warmup.

# %%
TINY = Config(N=4, d_model=128, d_ff=256, h=4, norm="pre", bpe=6000, tokens_per_batch=2000, factor=2.0, warmup=400)


class LiveRun(NamedTuple):
    """What the training of this document left behind: a row for each update, and the last weights, at most five times."""

    translator: Translator
    rows: list[dict]
    checkpoints: list[dict[str, Tensor]]


# %%
def train_tiny(limits: dict[str, float]) -> LiveRun:
    """Train for so many `minutes` or `steps`; the weights are kept whenever the validation loss is measured."""
    torch.manual_seed(TINY.seed)
    tokenizer = learn_bpe(load_split("train"), TINY.bpe)
    train, val = (to_pairs(tokenizer, load_split(split)) for split in ("train", "val"))
    model, kept = TINY.make_model(len(tokenizer)).to(best_device()), []

    def measure() -> dict[str, float]:
        kept[:] = [*kept[-4:], {name: p.detach().clone() for name, p in model.named_parameters()}]
        return {"validation": validation_loss(model, val)}

    batches = (batch for epoch in itertools.count() for batch in token_batches(train, TINY.tokens_per_batch, epoch))
    batches, minutes = itertools.islice(batches, limits.get("steps")), limits.get("minutes", math.inf)
    rows = fit(Trainer(model, TINY), batches, minutes, every=50, measure=measure)
    rows[-1] |= measure()
    return LiveRun(Translator(model.eval(), tokenizer), rows, kept)


# %% [markdown]
# > Now for real. The next cell trains for three minutes, or as long as `ANNOTATED_MINUTES` or `ANNOTATED_STEPS` in the
# > environment say; its output tells how long it was here. A run that was finished before is read from its folder.


# %%
# @title A finished run is kept, and read the next time
@functools.cache
def live_run() -> LiveRun:
    """The training run of this document, made now or read from its folder; another architecture is another run."""
    kind = "steps" if "ANNOTATED_STEPS" in os.environ else "minutes"
    number = float(os.environ.get(f"ANNOTATED_{kind.upper()}", 3))
    torch.manual_seed(0)
    probe = batch_loss(TINY.make_model(100).eval(), make_batch(copy_pairs(8, 100, seed=0)), TINY.smoothing).item()
    folder = Path(f"runs/live-{Path(choose_data()).name}-{kind}-{number:g}-{probe:.3f}")
    if not (folder / "history.pt").exists():
        run = train_tiny({kind: int(number) if kind == "steps" else number})
        save_translator(run.translator, folder)
        torch.save(run[1:], folder / "history.pt")
    return LiveRun(load_translator(folder), *torch.load(folder / "history.pt", map_location=best_device()))


@example
def example_training() -> None:
    """A live training run."""
    rows = live_run().rows
    print(f"{len(rows):,} updates in {rows[-1]['minutes']:.1f} minutes, the last loss {rows[-1]['loss']:.2f}")


# %% [markdown]
# > The curves of that run. The training loss is smoothed and measured with dropout on; validation uses neither
# > smoothing nor dropout, so the two cannot be compared with each other. (No smoothed loss falls below the entropy of
# > $q$: 1.20 nats for 6,106 symbols and ε = 0.1.) A fresh model finds all $V$ symbols about equally likely: its loss
# > begins at $\ln V$ and a little more, because its random scores already differ.


# %%
@example
def example_curves() -> Chart:
    """Losses over minutes; an untrained model that finds all V symbols equally likely has the loss ln V."""
    (_, tokenizer, _), rows, _ = live_run()
    lines = {"training, smoothed": [(r["minutes"], r["loss"]) for r in rows[::10]]}
    lines["validation"] = [(r["minutes"], r["validation"]) for r in rows if "validation" in r]
    lines["ln V"] = [(rows[i]["minutes"], math.log(len(tokenizer))) for i in (0, -1)]
    end = lines["validation"][-1][1]
    print(f"validation: {end:.3f} nats per token, perplexity {math.exp(end):.1f}; of {len(tokenizer):,} symbols")
    assert end < math.log(len(tokenizer))
    shown = [{"minutes": x, "nats per token": y, "loss": name} for name, line in lines.items() for x, y in line]
    return curves(shown, "minutes", "nats per token", "loss")


# %% [markdown]
# ## Translating
#
# > Sentences are sorted by length, so that a batch holds little padding, decoded in batches, and put back in order. A
# > translation may be 50 symbols longer than its source, the paper's limit (Section 6.1). A blank line stays blank.
# >
# > Of the three sentences below the second has a clause that ends in its verb, and the third a verb in two parts.


# %%
def translate_lines(
    translator: Translator, lines: str | list[str], search: Callable[..., Tensor] = greedy_decode, batch_size: int = 64
) -> str | list[str]:
    """One translation for each line, in order, or that of a single sentence; by greedy decoding or another search."""
    if isinstance(lines, str):
        return translate_lines(translator, [lines], search)[0]
    model, tokenizer, (language, _) = translator
    sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
    order = sorted((i for i, line in enumerate(lines) if line.strip()), key=lambda i: len(sources[i]))
    results = [""] * len(lines)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        src = pad_rows([sources[i] for i in rows]).to(next(model.parameters()).device)
        for i, ids in zip(rows, search(model, src, source_mask(src), src.size(1) + 50).tolist(), strict=True):
            results[i] = tokenizer.decode(ids[: len(sources[i]) + 50])  # max_len is that of the longest source
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
    for german, english in zip(OUR_SENTENCES, translate_lines(live_run().translator, OUR_SENTENCES), strict=True):
        print(f"{german}\n  {english}")


# %% [markdown]
# > Two models come with this document, one for each direction. They have the same architecture and were trained for
# > hours by the program that stands on it (the cards beside them tell how, and Part 5 why). Links to this document's
# > repository are made from one address. It is empty until the repository has a public home.

# %%
# @title Files of this repository, and the model among them
REPOSITORY = ""
HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path()
SHIPPED_MODEL = "models/multi30k-de-en"


def beside(name: str) -> Path:
    """A file of this repository: beside this document, else fetched from its public address; FileNotFoundError for none."""
    path = next((path for path in (HERE / name, HERE / "translator" / name) if path.exists()), HERE / name)
    if not path.exists() and REPOSITORY:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Exception):  # whatever a network may do
            os.replace(urllib.request.urlretrieve(f"{REPOSITORY}/raw/main/{name}", f"{path}.part")[0], path)
    if not path.exists():
        raise FileNotFoundError(f"{name} is not beside this document")
    return path


@functools.cache
def our_model() -> Translator:
    """The model that comes with this document; where it is missing or does not fit, with a notice, the one trained above."""
    try:
        files = [beside(f"{SHIPPED_MODEL}/{name}") for name in ("config.json", "tokenizer.json", "model.safetensors")]
        translator = load_translator(files[0].parent)
        if translate_lines(translator, "Ein Hund läuft.") != "A dog is running.":
            raise ValueError(f"{SHIPPED_MODEL} does not fit this architecture: it translates no more")
        return translator
    except Exception as error:  # whatever a reader's changes lead to
        print(f"NOTICE: {error}; the model trained above takes its place.")
        return live_run().translator


# %% [markdown]
# > The same sentences by that model:


# %%
@example
def example_our_model() -> None:
    """The same sentences by the model that comes with this document."""
    print(*translate_lines(our_model(), OUR_SENTENCES), sep="\n")


# %% [markdown]
# ## BLEU
#
# The paper reports BLEU (Section 6.1).
#
# > BLEU (Papineni et al., 2002) asks, for $n$ = 1 to 4, which share of the translation's $n$-grams the reference has,
# > too, each counted at most as often as there, over all sentences of the corpus together. It is the geometric mean of
# > the four shares, times a penalty if the translations are shorter in all than the references.
# >
# > The figure depends on how text is cut into words. [sacreBLEU](https://github.com/mjpost/sacrebleu) does the cutting
# > itself, on plain cased text, and prints a signature that says how; figures with the same signature can be compared.
# > Two more forms serve comparisons with published figures: lower-cased, and lower-cased after the tokeniser of the
# > Moses toolkit. chrF compares $n$-grams of characters, and treats long German words more kindly. The program reports
# > all of them (Part 5); here the first will do.


# %%
def bleu(translations: list[str], references: list[str]) -> tuple[float, str]:
    """BLEU of a corpus, cased, with the tokenisation 13a of sacreBLEU, and the signature that says so (Section 6.1)."""
    from sacrebleu.metrics import BLEU

    metric = BLEU()
    return metric.corpus_score(translations, [references]).score, str(metric.get_signature())


@example
def example_bleu() -> None:
    """BLEU of the model trained above on validation sentences; the references themselves score 100."""
    sources, references = (list(side) for side in zip(*load_split("val"), strict=True))
    found, signature = bleu(translate_lines(live_run().translator, sources), references)
    print(f"BLEU {found:.1f} ({signature})")
    assert bleu(references, references)[0] > 99.9


# %% [markdown]
# ## Several processes (Section 5.2)
#
# The paper trained on one machine with eight GPUs.
#
# > **Data parallelism.** Every process holds the whole model and takes its share of the rows of a batch. Each computes
# > the gradient of its rows. Then all of them add up their gradients, an operation that is called *all-reduce* because
# > each one gets the sum. The same sum moves the same weights by the same step, and so the copies stay equal.
#
# ![Two processes, rank 0 and rank 1, each with a copy of the model and half of the rows of a batch; each computes a gradient, all-reduce gives both the sum, and both make the same update](images/data_parallel.svg)
#
# > In PyTorch, Gloo does this between processors, and NCCL between GPUs. As with accumulation, each process divides by
# > the tokens of the *whole* update. Accumulation splits an update over time, data parallelism over machines; the sums
# > are the same.


# %%
def parallel_gradient(rank: int, world: int, pairs: list[Pair], folder: str) -> None:
    """One of `world` processes: the gradient of its share of the pairs, then the sum of all, which it writes down."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world)
    torch.manual_seed(0)  # the same weights in every process
    model = make_model(20, 20, N=1, d_model=16, d_ff=32, h=2, dropout=0.0)
    tokens = sum(len(pair.tgt) - 1 for pair in pairs)  # of the whole update, over all processes
    (batch_loss(model, make_batch(pairs[rank::world]), eps=0.1) / tokens).backward()
    for p in model.parameters():
        dist.all_reduce(p.grad)  # afterwards p.grad is the sum, in every process
    torch.save(torch.cat([p.grad.flatten() for p in model.parameters()]), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def in_processes(world: int, pairs: list[Pair]) -> list[Tensor]:
    """The gradients that `world` processes on this machine have in the end."""
    context = multiprocessing.get_context("fork")  # each begins as a copy of this one, with all that was defined so far
    with tempfile.TemporaryDirectory() as folder:
        group = [context.Process(target=parallel_gradient, args=(rank, world, pairs, folder)) for rank in range(world)]
        for process in group:
            process.start()
        for process in group:
            process.join()
        assert not any(process.exitcode for process in group), "a process failed; its error stands above"
        return [torch.load(f"{folder}/{rank}.pt") for rank in range(world)]


# %% [markdown]
# > One process and two, side by side. (The processes here are copies of this one, which neither Windows nor an
# > accelerator allows; the program's are started by `torchrun`, and know no such limit.)


# %%
@example
def example_processes() -> None:
    """Two processes compute the gradient of one."""
    draw = random.Random(0)
    pairs = [Pair([*draw.choices(range(4, 20), k=5), EOS], [BOS, *[7] * draw.randint(1, 9), EOS]) for _ in range(7)]
    if "fork" not in multiprocessing.get_all_start_methods() or best_device().type != "cpu":
        print("NOTICE: a process with an accelerator, or under Windows, cannot be copied; this example is left out.")
    else:
        (alone,), (one, two) = in_processes(1, pairs), in_processes(2, pairs)
        print(f"largest number {one.abs().max():.3f}, largest difference {(one - alone).abs().max():.1e}")
        assert torch.equal(one, two) and torch.allclose(one, alone, atol=1e-6)


# %% [markdown]
# > PyTorch's `DistributedDataParallel` does the same and hides its cost: it adds up the gradients of the last layers
# > while those of the first are still being computed. The program uses it: `torchrun --nproc-per-node 2 --
# > the_annotated_transformer.py train …` starts two processes on one machine, over NCCL between GPUs and Gloo between
# > CPUs. On several machines, the same command runs on each with `--nnodes`, `--node-rank` and `--rdzv-endpoint`, and
# > the folder of the run lies on a file system that all of them share.

# %% [markdown]
# ## Summary of Part 3
#
# > Real text needs a vocabulary that can spell unseen words, batches of like lengths, and a score that others can
# > compare with. Several processes share each batch and compute the same gradient.
# >
# > What a training of days needs besides is in the program: runs that survive any interruption, corpora larger than
# > memory, other sources of data, a log.
# >
# > **Exercises.** 1. Train with whole words for the same minutes (`learn_words`) and compare BLEU; where do the `<unk>`
# > come from? 2. Train with `norm="post"` and find a `factor` and a `warmup` with which it learns as well. 3. Measure
# > target tokens per second against `tokens_per_batch`. 4. Cut the training data in half. How much BLEU does it cost?

# %% [markdown]
# # Part 4: What the paper also used
#
# ## Beam search (Section 6.1)
#
# The paper translates with *beam search*: beam size 4 and length penalty $\alpha = 0.6$ (Wu et al., 2016), values
# chosen on the development set. Output may be 50 symbols longer than the input, and the search ends early where it
# can.
#
# > Greedy decoding takes the likeliest symbol and never looks back. A beam keeps the $K$ likeliest *beginnings*. At
# > each step every beginning is extended by every symbol, and the likeliest of all these extensions remain. One that
# > ends in `</s>`, or has reached the limit of length, is finished and keeps its place for good: with $j$ finished,
# > only the $K - j$ likeliest are carried on, and with $K$ the search ends. (The paper does not say what happens to
# > these places.)
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
# > that of the longest output allowed, it is the best that any of its continuations can ever score. When no beginning
# > can beat the best finished translation any more, more steps change nothing.
# >
# > All beams of all sentences go through the decoder together, as rows of one batch. When beginnings change places,
# > their keys and values must follow. With one beam this is greedy decoding, and with a beam as wide as there are
# > sequences it is exhaustive search. The last cell of this section checks both.


# %%
def length_penalty(length: Tensor | float, alpha: float) -> Tensor | float:
    """What log-probabilities of translations of so many symbols are divided by (Wu et al., 2016, Equation 14)."""
    return ((5 + length) / 6) ** alpha


# %%
def select_rows(decoder: CachedDecoder, rows: Tensor) -> None:
    """Go on with these rows, in this order."""
    for kept in (decoder.past, decoder.source):
        kept[:] = [(K[rows], V[rows]) for K, V in kept]
    decoder.src_mask = decoder.src_mask[rows]


# %% [markdown]
# > The search. `open_places` counts what is left of each sentence's $K$ places.


# %%
@torch.inference_mode()
def beam_search(
    model: Transformer, src: Tensor, src_mask: Tensor, max_len: int, beam: int = 4, alpha: float = 0.6
) -> Tensor:
    """The translation of best score that a beam finds: ids (B, at most max_len), BOS first, PAD after EOS (Section 6.1).

    max_len is for sources (B, S) without padding: one with n padded positions gets n symbols fewer, as if it were alone.
    """
    if beam < 1 or not 0 <= alpha <= 10:  # larger ones overflow
        raise ValueError(f"the beam must be at least 1 and alpha from 0 to 10, but they are {beam} and {alpha}")
    B, neg, device = len(src), -torch.inf, src.device
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(B)).clamp(min=2)  # of each output, BOS included
    best, results, sentences = [neg] * B, [[BOS]] * B, torch.arange(B, device=device).unsqueeze(1)
    places, open_places = torch.arange(beam, device=device), torch.full((B, 1), beam, device=device)
    ys = torch.full((B, beam, 1), BOS, device=device)
    log_p = torch.where(places > 0, neg, 0.0).repeat(B, 1)  # (B, beam); at first one beginning each
    with evaluating(model):
        decoder = CachedDecoder(model, src, src_mask.expand(B, 1, -1))
        select_rows(decoder, sentences.expand(B, beam).flatten())
        for t in range(1, max_len):
            step = decoder.step(ys[:, :, -1].flatten()).float().log_softmax(-1)  # (B * beam, V)
            log_p, found = (log_p.unsqueeze(-1) + step.view(B, beam, -1)).flatten(1).topk(beam)  # (B, beam), best first
            parents, symbols = found // step.size(-1), found % step.size(-1)
            ys = torch.cat((ys[sentences, parents], symbols.unsqueeze(-1)), dim=-1)  # (B, beam, t + 1)
            alive = (places < open_places) & (log_p > neg)
            ended = alive & ((symbols == EOS) | (t + 1 >= limit).unsqueeze(1))
            for i, place in ended.nonzero().tolist():
                score = log_p[i, place].item() / length_penalty(t, alpha)
                if score > best[i]:
                    best[i], results[i] = score, ys[i, place].tolist()
            log_p, open_places = log_p.masked_fill(ended | ~alive, neg), open_places - ended.sum(1, keepdim=True)
            if (log_p.amax(1) / length_penalty(limit - 1, alpha) <= torch.tensor(best, device=device)).all():
                break  # no continuation can score more
            select_rows(decoder, (beam * sentences + parents).flatten())
    return pad_rows(results).to(device)


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


# %%
@example
def example_beam() -> Any:
    """On six symbols: one beam is greedy, the widest is exhaustive, and between them wider beams find the best more often."""
    torch.manual_seed(0)
    model, src, rows = make_model(20, 6, 1, 16, 32, 2, norm="pre").eval(), torch.randint(4, 20, (30, 5)), []
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3 if p.dim() > 1 else 1)  # a fresh model finds all translations about alike; this one has opinions
        optimal = [exhaustive_search(model, row.unsqueeze(0), 5, alpha=0.6)[1] for row in src]
    for beam in (1, 2, 3, 5, 10, 6**4):
        found = beam_search(model, src, source_mask(src), 5, beam).tolist()
        share = sum(a[: len(b)] == b for a, b in zip(found, optimal, strict=True)) / len(src)
        rows.append({"beam": beam, "found the best of all": f"{share:.0%}"})
    assert share == 1
    assert torch.equal(beam_search(model, src, source_mask(src), 5, 1), greedy_decode(model, src, source_mask(src), 5))
    return table(rows)


# %% [markdown]
# > **Which penalty?** The paper's is 0.6. With it, the translations of so small a model come out too short, for which
# > BLEU punishes them: it ends too early, and a wide beam finds these early ends. The cell below shows by how much, on
# > the validation set, German to English (its rows are in `benchmarks/results/search.jsonl`; they are of the model in
# > `models/` before it went on with more pairs, see Part 5). The program searches with five beams and the best penalty
# > of those tried there, unless `--beam` and `--alpha` say otherwise; another model or direction may need another one.
# > Ten beams are twice the work and gain next to nothing.

# %%
BEAM, ALPHA = 5, 1.8


def saved_rows(name: str) -> list[dict]:
    """The rows of a benchmark, oldest first; none, with a notice, where its file is not beside this document."""
    try:
        lines = beside(f"benchmarks/results/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        print(f"NOTICE: {error}; there is nothing to show.")
        return []
    return [json.loads(line) for line in lines]


# %%
@example
def example_length_penalty() -> Chart | None:
    """BLEU of a trained model on the validation set, by beam and length penalty; of five beams the lengths, too."""
    found = [(*row["search"].split(", alpha "), row) for row in saved_rows("search") if "alpha" in row["search"]]
    for search, alpha, row in found:
        if search == f"beam {BEAM}":
            print(f"alpha {alpha}: BLEU {row['bleu']:.2f}, {row['length']:.1%} of the references' length")
    rows = [{"alpha": float(alpha), "BLEU": row["bleu"], "search": search} for search, alpha, row in found]
    return curves(rows, "alpha", "BLEU", "search") if rows else None


# %% [markdown]
# ## Averaged checkpoints (Section 6.1)
#
# The paper's base models are the average of the last 5 checkpoints, written every 10 minutes, the big ones that of the
# last 20.
#
# > The weights of the last updates jump about a common centre, pushed by the noise of single batches; their mean lies
# > nearer to it than any of them. The average is one of *weights*, so the result is a single model and costs nothing
# > when it translates. It works because the checkpoints come from one run. Two runs from different random weights
# > number their hidden units and heads differently, and the mean of their weights is of no use.


# %%
def average_weights(checkpoints: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight over some checkpoints of one run (Section 6.1)."""
    return {name: torch.stack([weights[name] for weights in checkpoints]).mean(0) for name in checkpoints[0]}


# %% [markdown]
# > Both ideas tried on the model trained above: BLEU on the first 300 validation sentences, by weights and search. On
# > so few sentences, differences below one point mean little. The average gains far more here than the beam: the rate
# > of so short a run is still high at its end, so that every update jumps far, and the mean of five checkpoints, 50
# > updates apart, lies nearer to the centre than the last of them. It could also do harm: where checkpoints lie so far
# > apart that the model improved much between them, their mean lags behind. The paper averages checkpoints of ten
# > minutes' distance, at the end of long runs, and does not say what it gained. (The program keeps a *moving* average
# > while it trains, over about the last tenth of a run; what that brings stands in Part 5.)


# %%
@example
def example_search_and_average() -> Any:
    """BLEU of the last checkpoint and of the mean of the last (at most five), greedy and with a beam."""
    (model, tokenizer, _), _, checkpoints = live_run()
    sources, references = (list(side) for side in zip(*load_split("val")[:300], strict=True))
    beam, rows = functools.partial(beam_search, beam=BEAM, alpha=ALPHA), []
    for name, kept in (("mean of the last", checkpoints), ("last alone", checkpoints[-1:])):
        model.load_state_dict(average_weights(kept), strict=False)  # a tied weight stands there once
        found = [translate_lines(Translator(model, tokenizer), sources, search) for search in (greedy_decode, beam)]
        scores = [round(bleu(translations, references)[0], 1) for translations in found]
        rows.append({"checkpoints": f"{name} ({len(kept)})", "greedy": scores[0], f"beam {BEAM}": scores[1]})
    return table(rows)


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
# > **Exercises.** 1. Why must the keys and values of the target follow their beams at every step, although those of the
# > source need not? 2. Which $\alpha$ is best for a model of your own, and how long are its translations then? 3.
# > Average the five last checkpoints of a run of two minutes, and of one of an hour. What happens, and why?

# %% [markdown]
# # Part 5: Results and speed (Section 6)
#
# > The charts and tables of this part read the rows that the benchmarks left in `benchmarks/results/`. Each row names
# > its command, its commit and its machine.

# %% [markdown]
# ## Translation (Section 6.1)
#
# On WMT 2014's newstest2014 the big model reached 28.4 BLEU from English to German, more than two points above
# everything before it, ensembles included, after 3.5 days on eight P100 GPUs; even the base model surpassed them all.
# From English to French the big model, with dropout 0.1 in place of 0.3, reached 41.8 in the paper's table (its text
# says 41.0). The cost is the time of training times the number of GPUs times what each can sustain, 9.5 TFLOP/s for a
# P100:
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
# > Our models are a thirtieth of the base model's size and read 29,000 captions in place of 4.5 million sentences.
# > Their BLEU cannot be compared with the paper's, because other sentences were translated, and its words were cut in
# > another way. Published Multi30k scores that were computed the same way can be compared: `bleu` is cased, with the
# > tokenisation 13a of sacreBLEU; `lower` the same without case; `Moses` lower-cased with the Moses tokeniser, as
# > Zhiyong Wu et al. (2021) count, whose model of 2.6 million parameters reached 41.02 on test_2016_flickr from English
# > to German. Ours has 2.1 million, and with the five beams that were chosen on the validation set it is a hair above,
# > greedily a little below. On a thousand sentences the difference is within the noise.
# >
# > Among the rows of people's pairs, those of one direction with the same optimiser and more minutes are the same run,
# > later. After half an hour it was continued twice: for this table partly beside other work, so that 40 BLEU took 56
# > minutes, and for the chart of the next section, where it took 45. What was not measured is left empty. The last rows
# > went on from there with models' pairs besides (see *More pairs from the same pairs* below); each one's minutes come
# > on top of those before it.


# %%
@example
def example_quality() -> Any:
    """Every model that was scored, by split and search."""
    scores, rows = ("bleu", "bleu_lower", "bleu_moses", "chrf"), []
    for row in saved_rows("quality"):
        about = {name: row[name] for name in ("direction", "split", "search")}
        about |= {name: f"{row[name]:.2f}" if name in row else "" for name in (*scores, "val_loss")}
        about |= {"minutes": f"{row['minutes']:.0f}", "updates": row["step"]}
        about["pairs"] = "and models'" if "--start-from" in row["command"] else "people's"
        rows.append(about | {"optimiser": row["settings"].get("optimizer", "adam")})
    return table(rows) if rows else None


# %% [markdown]
# ### How long must one train?
#
# > BLEU on the validation set, greedy, while a model learns, on two cores of an AMD EPYC.


# %%
@example
def example_time_to_quality() -> Chart | None:
    """BLEU over minutes of training, on two processor cores."""
    rows = [{"minutes": r["minutes"], "BLEU": r["bleu"], "run": r["run"]} for r in saved_rows("time_to_quality")]
    return curves(rows, "minutes", "BLEU", "run") if rows else None


# %% [markdown]
# ## Which part brings what (Section 6.2, Table 3)
#
# The paper varied the base model and scored it on newstest2013, with beam search and without averaged checkpoints.
# Where the number of heads changes (A), so does their width, $d_k = d_v = 512 / h$, and the work stays the same. A
# single head was 0.9 BLEU worse than eight, and too many heads hurt as well (A). Narrower keys hurt (B): whether two
# positions belong together is not easy to decide, and a finer measure than the dot product might help. Larger models
# were better (C), dropout helped much against overfitting (D), and learned positions were as good as sinusoids (E). The
# base model had 25.8; some of the others:
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
# > Below is a part of it in miniature: the program's preset `tiny` on Multi30k, with batches of 2,000 tokens in place
# > of 5,000. Each variant was trained for four passes through the data (1,068 updates) on one core
# > (`benchmarks/variants.py`), which took from 4 minutes for a single layer to 41 for twice the width, though not all
# > on the same machine. All were scored on the validation set with a beam. The grey band spans three runs of `tiny`
# > itself that differ in their seed alone: a point inside it shows nothing, and one that is hardly outside, hardly
# > more. `tiny` has $N = 4$, $d_{\text{model}} = 128$, $d_{\text{ff}} = 256$, four heads of $d_k = 32$, dropout 0.25,
# > smoothing 0.1, sinusoids and pre-norm.


# %%
def variant_rows() -> list[dict]:
    """The variants of `tiny` in the order of the paper's rows, with perplexity and BLEU on the validation set."""
    rows = {row["variant"]: row for row in saved_rows("variants")}.values()  # the last row of each
    order = {row["variant"]: [float(n) if n[0].isdigit() else n for n in row["variant"].split()] for row in rows}
    rows = sorted(rows, key=lambda row: (row["row"], order[row["variant"]]))
    columns = {"variant": "variant", "row": "row", "bleu": "greedy", "bleu_beam": "BLEU"}
    found = [{title: row[key] for key, title in columns.items()} for row in rows]
    return [new | {"perplexity": math.exp(row["val_loss"])} for new, row in zip(found, rows, strict=True)]


# %%
# @title A chart of points beside a band
def points(rows: list[dict], x: str, band: dict[str, float], labels: bool) -> Chart:
    """Column `x` of each variant as a point, over a band from `low` to `high`."""
    import altair as alt

    ends = alt.Chart(alt.Data(values=[band])).mark_rect(opacity=0.3, color="grey")
    chart = alt.Chart(alt.Data(values=rows)).mark_point(filled=True, size=70, opacity=1).encode(
        alt.X(f"{x}:Q").scale(zero=False, padding=8), alt.Y("variant:N", sort=None, title=None).axis(labels=labels, grid=True),
        alt.Color("row:N", title="row of Table 3"), tooltip=["variant:N", "perplexity:Q", "greedy:Q", "BLEU:Q"],
    )  # fmt: skip
    return (ends.encode(alt.X("low:Q", title=x), x2="high:Q") + chart).properties(width=220)


@example
def example_table_3() -> Chart | None:
    """Perplexity and BLEU of each variant on the validation set, and the range of the preset's own seeds."""
    variants, charts = [row for row in variant_rows() if row["row"] in tuple("ABCDE")], []
    for name in ("perplexity", "BLEU") if variants else ():
        tiny = [row[name] for row in variant_rows() if row["row"] == "base"]
        band = {"low": min(tiny), "mean": sum(tiny) / len(tiny), "high": max(tiny)}
        print(f"{name} of tiny itself, {len(tiny)} seeds:", {end: round(value, 2) for end, value in band.items()})
        charts.append(points(variants, name, band, labels=not charts))
    return grid([charts]) if charts else None


# %% [markdown]
# > What agrees with the paper: keys of width 8 hurt (B), so does a model of width 64 (C), smoothing raises the
# > perplexity (D), and learned positions are as good as sinusoids (E).
# >
# > What does not agree: the number of heads (A) makes hardly any difference, where the paper lost almost a point with a
# > single one; here one head has a slightly higher perplexity, and sixteen lose a point with a beam, but nothing
# > greedily. Depth and width (C) are another matter, too. Two layers do better than four; one and six do worse; half or
# > twice the $d_{\text{ff}}$ makes hardly any difference; and $d_{\text{model}} = 256$ has a lower perplexity but a
# > lower BLEU, too. Nor does smoothing pay here (D).
# >
# > Part of each difference comes from the search. The length penalty was chosen for a `tiny` that was trained for
# > longer, and the beam changes the BLEU of a variant by anything from a third of a point less to two points more.
# >
# > Dropout (D), which helped the paper's models much, does great harm, the more the higher its rate. The likely reason
# > is the length of the runs: after four passes through the data little is overfitted yet, and dropout slows the
# > learning down. The paper measured its benefit in long runs; a long one without it was not made here. A table like
# > this must be read together with its number of updates.

# %% [markdown]
# ### Which ingredient brings what
#
# > The same for the ingredients of the program's `tiny`: each is taken away in turn, and some are added that it does
# > without. `ema` is the moving average of the weights, `clip` the largest norm of a gradient, `words` means whole
# > words, `dropout_after = 534` dropout in the second half alone. All runs make four passes through the data, but the
# > one with R-Drop, whose updates cost twice as much, makes two. Whole words make fewer updates, and their perplexity
# > is that of a word, which cannot be compared with the others. `greedy` and `BLEU` (five beams) are of the validation
# > set.


# %%
@example
def example_ablation() -> Any:
    """What changes when one ingredient is changed or added; three seeds of the preset itself tell what is chance."""
    rows, names = variant_rows(), ("perplexity", "greedy", "BLEU")
    chosen = [row for row in rows if row["row"] in ("base", "") or row["variant"].endswith(" 0.0")]
    return table([{name: row[name] for name in ("variant", *names)} for row in chosen]).round(2) if rows else None


# %% [markdown]
# > **What the recipe owes to its parts**, in BLEU. Post-norm hardly gets going at this rate, which was chosen for
# > pre-norm. Byte pairs are about three points ahead of whole words, of which every rare one is unknown and which make
# > an eighth fewer updates. Muon (Jordan et al., 2024: an optimiser for matrices) is 1.4 (greedy) to two ahead of Adam,
# > a lead that longer runs mostly lose (`benchmarks/results/LOG.md`), and the moving average brings about one. What
# > clipping and smoothing bring cannot be told from chance. Three separate matrices do better than one here, with 1.6
# > million weights more than the 2.1 million that `tiny` has.
# >
# > **What comes too early.** In a run of four passes, `tiny` would do better without what is meant against overfitting:
# > without dropout it gains six points with the beam, with dropout only in the second half (*late dropout*,
# > `--dropout-after`; Liu et al., 2023) two; BPE-dropout (Provilkov et al., 2020: each merge is skipped at random now
# > and then) takes seven. R-Drop (Liang et al., 2021: two passes with different dropout should agree) had half the
# > updates, so its figure says little. How these did in longer runs is in `LOG.md`, too.

# %% [markdown]
# ### More pairs from the same pairs
#
# > Short runs cannot tell what helps a long one, which with 29,000 pairs ends in overfitting. R-Drop, BPE-dropout and
# > more dropout, begun late, were not tried for long enough to tell (`LOG.md`). What did help was more pairs. A caption
# > has many right translations, of which the data shows one, and two models that were trained on the pairs, one for
# > each direction, can write down others:
# >
# > - each source sentence a second time, with the translation of the model of the same direction (*sequence-level
# >   distillation*; Kim and Rush, 2016). A model's translations are more regular than people's, and easier to learn;
# > - each target sentence a second time, with a source that the model of the other direction makes of it
# >   (*back-translation*; Sennrich et al., 2016). What is to be written is still a person's, only what is to be read varies.
# >
# > With the pairs as they are, that is three times as many (*data diversification*; Nguyen et al., 2020), and still
# > nothing has been read but the 29,000. Both models in `models/` went on with these for one or two hours, from where
# > the pairs alone had brought them, with less dropout and the learning rate raised again.
# >
# > Then there was a second round, since now there were better translators. For each source sentence there were four
# > translations, by the model of before and that of after the first round, the latter also greedily and with the
# > paper's length penalty; of these the one nearest to the person's was kept, by the BLEU of the sentence
# > (`benchmarks/closest.py`). It is a model's wording still, the candidate closest to the human reference
# > (*sequence-level interpolation*; Kim and Rush, 2016). Back-translations were those of two models of the other
# > direction.
# >
# > The cards have the commands. The table at the beginning of this Part has BLEU from stage to stage; the updates of
# > each row come on top of those in the rows of its direction above. The second round helps everywhere but in one
# > place: from English to German, greedy decoding of the test set loses a little. Most of these differences are within
# > the noise of a thousand sentences.
# >
# > Look at the loss (`val_loss`) as well: from German to English the first round did not lower it, yet the translations
# > got better. The loss asks how likely people's wordings are, and a quarter to a third of what these models learned to
# > write was written by a model. Where targets come from models, only translations tell which model is better. (More
# > updates with the pairs alone had stopped improving the translations from German to English; see
# > `benchmarks/results/LOG.md`.)

# %% [markdown]
# ## Another task (Section 6.3)
#
# To see whether the model is good for more than translation, the authors trained one with four layers of width 1024 to
# write the parse tree of an English sentence, brackets and all, as its target. The output is much longer than the input
# and must be well formed, and there are only 40,000 sentences with trees. Hardly anything was tuned: dropout (on the
# attention weights as well), learning rate and beam size, on the development set. With 21 beams, $\alpha = 0.3$ and
# outputs up to 300 symbols longer than the input it scored an F1 of 91.3 on Section 23 of the Wall Street Journal,
# better than all earlier parsers that learned from these sentences alone, except the Recurrent Neural Network Grammar,
# a network built for parsing (Dyer et al., 2016; 91.7). With 17 million automatically parsed sentences besides it
# scored 92.7, better than others so trained; above it in the paper's table are a multi-task model (93.0) and that
# grammar in its generative form (93.3).
#
# ## What remained open (Section 7)
#
# The first model to translate with attention alone trained faster than recurrent and convolutional ones and translated
# better. The authors meant to try it on pictures, sound and video, where attention might have to be restricted to a
# neighbourhood, and to make generation less sequential.

# %% [markdown]
# ## Where the speed comes from
#
# > The document so far has the plain form of everything. The program that trained the models above computes the same in
# > faster forms. Each of them is one idea, and each stands here once: the plain form, the fast one, and a check that
# > both give the same. The last section has what each brings, measured.
#
# ### Batches of like lengths
#
# > What is not computed costs nothing: grouping by length is the first idea, and Part 2 has it already. For millions of
# > pairs, Python's `sorted` and a loop over pairs are slow. NumPy sorts one array of numbers quickly, so the keys are
# > put into one number: first the target's length in steps of two, then the source's length, then chance. Sources grow
# > within one group of targets and shrink in the next, so that no batch joins the longest sources with the shortest.


# %%
# @title Batches from a single sort of numbers
def sorted_batches(lengths: Any, budget: int, seed: int | None = None) -> list[np.ndarray]:
    """Row numbers of pairs of these lengths (n, 2), in batches of at most `budget` padded tokens a side (Section 5.1).

    With a seed the batches are drawn and ordered at random. Raises ValueError for a pair longer than the budget.
    """
    sizes = np.asarray(lengths, dtype=np.int32).reshape(-1, 2)
    if (too_long := sizes.max(1, initial=0) > budget).any():
        i = too_long.argmax()
        raise ValueError(f"pair {i + 1} has {sizes[i].max()} tokens, but a batch holds {budget}")
    draw = np.random.default_rng(seed)
    noise = np.arange(len(sizes)) if seed is None else draw.permutation(len(sizes))
    source, group = sizes[:, 0], sizes[:, 1] // 2
    snake = np.where(group % 2, source, -source) + group.astype(np.int64) * (2 * sizes.max(initial=0) + 1)
    order = np.argsort(snake * len(sizes) + noise)  # three keys in one number
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
def example_sorted_batches() -> None:
    """Every pair once, no batch beyond the budget, and little padding."""
    lengths = [(len(german), len(english)) for german, english in load_split("val")]  # in characters
    batches = sorted_batches(lengths, 5000, seed=0)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    widths = [[max(side) for side in zip(*(lengths[row] for row in batch), strict=True)] for batch in batches]
    assert all(len(batch) * max(width) <= 5000 for batch, width in zip(batches, widths, strict=True))
    padded = sum(len(batch) * sum(width) for batch, width in zip(batches, widths, strict=True))
    print(f"{len(batches)} batches, {1 - sum(map(sum, lengths)) / padded:.1%} padding")


# %% [markdown]
# ### Dropout with fewer random numbers
#
# > On a CPU, PyTorch draws one random number per entry. A 64-bit random number has room for four decisions of 16 bits
# > each, so a quarter as many will do. The rate is then exact to 1/65536.


# %%
class FastDropout(nn.Dropout):
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
def example_fast_dropout() -> None:
    """The same share of entries vanishes, the mean stays, and neighbours are independent."""
    torch.manual_seed(0)
    y = FastDropout(0.25)(torch.ones(1_000_000))
    dropped, both = (y == 0).float().mean(), ((y[:-1] == 0) & (y[1:] == 0)).float().mean()
    print(f"dropped {dropped:.4f}, both of two neighbours {both:.4f}, mean {y.mean():.4f}")
    assert abs(dropped - 0.25) < 0.002 and abs(both - 0.25**2) < 0.002 and abs(y.mean() - 1) < 0.005


# %% [markdown]
# > Together with PyTorch's fused kernel of Equation (1), which never stores the attention weights, this is the model
# > that the program trains:


# %%
def speed_up(model: Transformer) -> Transformer:
    """The same model with fused attention and cheaper dropout."""
    for module in list(model.modules()):
        if isinstance(module, MultiHeadedAttention):
            module.fused = True
        if type(getattr(module, "dropout", None)) is nn.Dropout:
            module.dropout = FastDropout(module.dropout.p)
    return model


# %%
@example
def example_speed_up() -> None:
    """Without dropout, both forms give the same logits."""
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=32, d_ff=64, h=4).eval()
    src, tgt = torch.randint(4, 50, (2, 6)), torch.randint(4, 50, (2, 5))
    plain = model(src, tgt, source_mask(src), target_mask(tgt))
    fast = speed_up(model).eval()(src, tgt, source_mask(src), target_mask(tgt))
    torch.testing.assert_close(fast, plain)


# %% [markdown]
# ### The loss, without the matrix of all scores
#
# > With 5,000 tokens and 6,000 symbols the scores fill 120 megabytes, the log-softmax as much again, and their gradients
# > too; moving them through memory costs more time than computing them. But the gradient has a closed form, and a simple
# > one: what the model gives minus what it should give,
# >
# > $$\frac{\partial\,\mathrm{loss}}{\partial\,\mathrm{logits}} = p - q$$
# >
# > So loss and gradient can be had together, a few hundred tokens at a time, and each chunk's scores are thrown away
# > before the next is computed. Nothing is approximated. The first function is loss and gradient of one chunk. The
# > second cuts the rows into chunks, and carries each chunk's gradient on through the output matrix.


# %%
# @title Loss and gradient of one chunk
def smoothed_gradient(scores: Tensor, target: Tensor, eps: float = 0.1, pad: int = PAD) -> tuple[Tensor, Tensor]:
    """The smoothed loss, summed over targets (n) without padding, and its gradient p - q, written over scores (..., n, V)."""
    y, spread = target.unsqueeze(-1).expand(*scores.shape[:-1], 1), eps / (scores.size(-1) - 1)
    scores -= scores.amax(-1, keepdim=True)  # a shift of all scores changes nothing, and keeps exp in range
    right, uniform = scores.gather(-1, y), scores.sum(-1, keepdim=True) - scores[..., pad : pad + 1]
    z = scores.exp_().sum(-1, keepdim=True)
    loss = (z.log() - (1 - eps) * right - spread * uniform).sum()
    grad = scores.div_(z).sub_(spread)  # p - q, except for two columns
    grad[..., pad] += spread
    return loss, grad.scatter_add_(-1, y, grad.new_full(y.shape, eps - 1))


# %%
# @title The loss in chunks
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


# %% [markdown]
# > The check asks for the same loss and the same gradients:


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
# ### Sentences that leave
#
# > In Part 2, a sentence that has ended stays in the batch until the last one ends. If it leaves, with its keys and
# > values, a single long sentence costs its own steps and not those of all its neighbours. The translations are the
# > same, since no sentence of a batch sees another.


# %%
@torch.inference_mode()
def greedy_decode_leaving(model: Transformer, src: Tensor, src_mask: Tensor, max_len: int) -> Tensor:
    """Greedy decoding as in Part 2, but a sentence that has ended leaves the batch: ids (B, max_len)."""
    with evaluating(model):
        going = torch.arange(len(src), device=src.device)
        decoder = CachedDecoder(model, src, src_mask.expand(len(src), 1, -1))
        ys = torch.full((len(src), max_len), PAD, device=src.device)
        ys[:, 0] = BOS
        for t in range(1, max_len):
            ys[going, t] = decoder.step(ys[going, t - 1]).argmax(-1)
            rows = (ys[going, t] != EOS).nonzero().flatten()  # those that go on
            if len(rows) == 0:
                break
            going = going[rows]
            select_rows(decoder, rows)
    return ys


# %%
@example
def example_leaving() -> None:
    """The same translations, with fewer rows in the decoder."""
    model, tokenizer, (language, _) = our_model()
    src = pad_rows([[*tokenizer.encode(text, language), EOS] for text, _ in load_split("val")[:64]]).to(best_device())
    stay, leave = (search(model, src, source_mask(src), 80) for search in (greedy_decode, greedy_decode_leaving))
    assert torch.equal(leave[:, : stay.size(1)], stay) and (leave[:, stay.size(1) :] == PAD).all()
    print(f"rows of all steps: {stay[:, 1:].numel():,} if sentences stay, else {(leave[:, 1:] != PAD).sum():,}")


# %% [markdown]
# ### The likeliest symbols, by blocks
#
# > Of the extensions of one beginning, only its $K$ likeliest can be among the $K$ likeliest of all. PyTorch's `topk`
# > finds them, but slowly, because it moves each of thousands of entries about together with its place. It is quicker
# > to take the maximum of each block of 64 entries first: the $K$ largest of a row lie in the $K$ blocks with the
# > largest maxima.


# %%
def largest(x: Tensor, k: int, block: int = 64) -> tuple[Tensor, Tensor]:
    """The k largest entries of each row of x (R, V) and their places, as x.topk(k); of equal ones it may choose others."""
    k = min(k, x.size(1))
    whole = x.size(1) // block * block  # what is left over makes a block of its own
    if whole < 2 * k * block:
        return x.topk(k)
    chosen = x[:, :whole].unflatten(1, (-1, block)).amax(-1).topk(k).indices.unsqueeze(-1)  # (R, k, 1)
    rest = torch.arange(whole, x.size(1), device=x.device).expand(len(x), -1)
    places = torch.cat(((chosen * block + torch.arange(block, device=x.device)).flatten(1), rest), dim=1)
    values, found = x.gather(1, places).topk(k)
    return values, places.gather(1, found)


# %%
@example
def example_largest() -> None:
    """Five of 6,106 random numbers: the same as by topk."""
    torch.manual_seed(0)
    x = torch.randn(320, 6106)
    (values, places), expected = largest(x, 5), x.topk(5)
    assert torch.equal(values, expected.values) and torch.equal(places, expected.indices)
    print("the five largest of the first row stand at", places[0].tolist())


# %% [markdown]
# ### Matrices that lie as they are read
#
# > Decoding multiplies the same matrices by a few vectors, again and again. A linear layer's matrix has a row for each
# > output; the product of few vectors with it is often quicker if it lies in memory the other way round. A tensor knows
# > in which order its numbers lie, so whatever computes with it gives the same. The output matrix is also padded: with
# > a number of symbols that is a multiple of 64, each row of scores fills whole vectors of the processor. The
# > additional symbols get the score $-\infty$. For the same reason, decoding computes queries, keys and values of a
# > position in one product, with the three matrices side by side.


# %%
def transpose_in_memory(model: Transformer) -> None:
    """Lay the matrices of all layers column by column, for decoding; shapes and values stay, `is_contiguous()` does not."""
    for module in (*model.encoder.modules(), *model.decoder.modules()):
        if isinstance(module, nn.Linear):
            module.weight = nn.Parameter(module.weight.detach().t().contiguous().t(), module.weight.requires_grad)


def padded_logits(generator: Generator) -> Callable[[Tensor], Tensor]:
    """`logits` of rows (R, d_model) for many calls: (R, V rounded up to a multiple of 64), -inf beyond V."""
    size, bias = len(generator.proj.weight), generator.proj.bias
    weight = F.pad(generator.proj.weight, (0, 0, 0, -size % 64)).t().contiguous()

    def logits(x: Tensor) -> Tensor:
        scores = x @ weight
        if bias is not None:
            scores[:, :size] += bias
        scores[:, size:] = -torch.inf
        return scores

    return logits


# %%
@example
def example_layout() -> None:
    """The model computes the same, wherever its numbers lie."""
    torch.manual_seed(0)
    model = make_model(50, 50, N=1, d_model=32, d_ff=64, h=4).eval()
    x, ids = torch.randn(3, 32), torch.randint(4, 50, (2, 6))
    attn, before = model.decoder.layers[0].self_attn, model.encode(ids, None)
    together = x @ torch.cat([W.weight.t() for W in (attn.W_q, attn.W_k, attn.W_v)], dim=1)
    torch.testing.assert_close(together, torch.cat([attn.W_q(x), attn.W_k(x), attn.W_v(x)], dim=1))
    transpose_in_memory(model)
    torch.testing.assert_close(model.encode(ids, None), before)
    padded = padded_logits(model.generator)(x)
    torch.testing.assert_close(padded[:, :50], model.generator.logits(x))


# %% [markdown]
# ### A batch for each thread
#
# > The products of a decoding step are small, and threads that share one of them wait for each other. So on a CPU each
# > thread takes a batch of its own.


# %%
def in_threads(work: Callable, items: list, device: torch.device) -> list:
    """The results of `work` for each item, in order; on a CPU by as many threads as PyTorch has, each with one item."""
    count = min(torch.get_num_threads(), len(items)) if device.type == "cpu" else 1
    if count < 2:
        return [work(item) for item in items]
    before = torch.get_num_threads()
    try:  # meanwhile, other threads of the program get one thread from PyTorch, too
        with ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(work, items))
    finally:
        torch.set_num_threads(before)


# %%
@example
def example_threads() -> None:
    """The sentences from above, one by one and by all threads at once: the same translations."""
    translate = functools.partial(translate_lines, our_model())
    one_by_one = [translate(sentence) for sentence in OUR_SENTENCES]
    assert in_threads(translate, OUR_SENTENCES, torch.device("cpu")) == one_by_one


# %% [markdown]
# ### What each idea brings
#
# > The chart sets one idea at a time back to its plain form, and shows how many times longer the task then takes: 1
# > means no longer at all. Here and in the table below, training is with Adam; Muon's own products come on top.


# %%
# @title How many times longer without each idea
@example
def example_gains() -> Chart | None:
    """How many times longer training and decoding take without each idea."""
    import altair as alt

    last = saved_rows("gains")[-1:]
    rows = [{"plain form": f"{idea} ({task})", "times the time": times, "task": task}
            for row in last for task in ("training", "decoding", "beam") for idea, times in row.get(task, {}).items()]  # fmt: skip
    names = alt.Y("plain form:N", sort=None, axis=alt.Axis(labelLimit=320))
    chart = alt.Chart(alt.Data(values=rows)).mark_bar().encode(alt.X("times the time:Q"), names, alt.Color("task:N"))
    return chart.properties(width=320, height=200) if rows else None


# %% [markdown]
# > **In training,** most comes from *batches of like lengths*, since what is not computed costs nothing, and from the
# > *loss in chunks*: the scores of all tokens at once do not fit into the processor's caches, and writing them down,
# > with the log-softmax and two gradients of the same size, takes time beside the products that make them. Then follows
# > the cheaper *dropout*. The *fused attention* kernel and the *fused Adam* bring nothing beyond the noise of about a
# > tenth here; they are one word each, and long sequences and GPUs need them. The bar for random batches still fills
# > each by its tokens; 2022's way, below, pads every sentence to 72, which is where most of its distance comes from.
# > What was tried and did not stay, such as the three projections of self-attention as one product in training, or
# > numbers of 16 bits, is in `benchmarks/results/LOG.md`.
# >
# > **In decoding,** the *key/value cache* is the greatest gain in the document. *Sentences that leave* when they end,
# > and *batches of like lengths*, save steps of sentences that have nothing more to say. What *a batch for each thread*
# > adds depends on the machine: with two threads, little.
# >
# > **In beam search,** the maxima of blocks, the padded output matrix and the layout of the layers' matrices bring
# > nothing on the machine of this chart. Single measurements elsewhere, with an earlier form of the search, had spoken for
# > them (`benchmarks/results/LOG.md`). Gains of this kind belong to a processor and a version of PyTorch, so measure on
# > yours: `python benchmarks/gains.py --model models/multi30k-de-en`.
# >
# > How near is this to what the machine can do? The first row of the next table is the rate of a training step, the
# > operations of its matrix products divided by its whole time, as a share of what one large multiplication reaches in
# > the same run. The rows below are the shares of the step's time by kind of work.


# %%
@example
def example_profile() -> Any:
    """Where an update spends its time at three sizes; the larger the model, the more of it is multiplication."""
    rows = {row["preset"]: row for row in saved_rows("step_profile")}  # the last row of each
    rate = "of the machine's rate"
    shares = {size: {rate: row["training_share_of_matmul"], **row["training"]} for size, row in rows.items()}
    kinds = dict.fromkeys(kind for found in shares.values() for kind in found)
    return table([{"kind": k} | {s: f"{f.get(k, 0):.0%}" for s, f in shares.items()} for k in kinds]) if rows else None


# %% [markdown]
# ### Beside others
#
# > The same sizes, the same sentences, the same threads, in turns: PyTorch's own `nn.Transformer`, Marian as Hugging
# > Face has it, and JoeyNMT train on the very batches of this document; 2022's way is our re-creation of the previous
# > edition's, with sentences in random order padded to 72. All sides use Adam.


# %%
@example
def example_training_speed() -> Chart | None:
    """Target tokens per second of training, as multiples of 2022's way."""
    last = {row["preset"]: row["tokens_per_second"] for row in saved_rows("training_speed")}
    name = "times the speed of 2022"
    rows = [{"preset": preset, name: speed["median"] / last[preset]["2022"]["median"], "who": who}
            for preset in last for who, speed in last[preset].items()]  # fmt: skip
    return bars(rows, "preset", name, "who") if rows else None


# %% [markdown]
# > And decoding, in sentences per second: `split` is test_2016_flickr, greedy, each sentence to its own end (2022's
# > loop takes one at a time, and only the first eight); `beam` is the same with beams of five; `steps`, greedy, is
# > exactly fifteen steps for random sentences. `this` is this edition; an empty cell was not measured. (`tiny` is the
# > model of this document from German to English, `small` one of 1,200 updates; the machine has two cores of an Intel
# > Xeon.) CTranslate2 is a library in C++ for this purpose alone, and it remains faster: a step is a chain of about a
# > hundred operations, and PyTorch starts each of them by itself. At `tiny` they are small, and that counts; at `small`
# > half of a beam search's time goes into matrix products (`benchmarks/results/LOG.md`), which C++ alone makes no
# > faster, but integers of 8 bits do. To serve a model, take it there with the command `export`; to understand one,
# > stay here.


# %%
@example
def example_decoding_speed() -> Any:
    """Sentences per second of decoding, by preset, task and program."""
    last = {row["preset"]: row["sentences_per_second"] for row in saved_rows("decoding_speed")}
    rows = [{"task": f"{preset}, {task}", **speeds} for preset, tasks in last.items() for task, speeds in tasks.items()]
    return table(rows).astype(object).fillna("") if rows else None


# %% [markdown]
# ## Summary of Part 5
#
# > A score means something beside another one of the same sentences, cut into the same words, with the same case. What a
# > part of the model brings depends on how long it was trained and on how much there is to learn from. Most of the speed
# > comes from what is not computed: padding, what a cache remembers, sentences that have ended.
# >
# > **Exercises.** 1. Of how many P100-days did the big model's training consist, and for how many days would it keep
# > your own processor busy, if it did nothing but large matrix products? 2. Train the variants `seed 0`, `h = 1` and
# > `dropout = 0.4` of Table 3 for four times as long (`benchmarks/variants.py --only "seed 0,h = 1,dropout = 0.4"`,
# > `--epochs 16`, and an `--out` of your own; up to an hour each). Do they keep their places? 3. Score a model's
# > translations against the references with all commas removed from both. By how much does BLEU change, and is the
# > model better now?

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
    try:
        for layer in layers:
            layer.recorded = []
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
    """Translate a sentence greedily, then read all attention weights in one pass over it; ValueError for a blank one."""
    model, tokenizer, (language, _) = translator
    if not sentence.strip():
        raise ValueError("the sentence is blank")
    src = torch.tensor([[*tokenizer.encode(sentence, language), EOS]], device=next(model.parameters()).device)  # (1, S)
    ids = greedy_decode(model, src, source_mask(src), src.size(1) + 50)[0].tolist()  # BOS, ..., EOS
    tgt, tokens = torch.tensor([ids[:-1]], device=src.device), tokenizer.tokens  # (1, T)
    with evaluating(model), recording(model):
        model(src, tgt, source_mask(src), target_mask(tgt))
        encoder, decoder = model.encoder.layers, model.decoder.layers
        layers = {"encoder": [layer.self_attn for layer in encoder], "decoder": [layer.self_attn for layer in decoder]}
        layers["cross"] = [layer.src_attn for layer in decoder]
        maps = {kind: torch.cat([attn.recorded[0] for attn in found]).cpu() for kind, found in layers.items()}
    return AttentionMaps(tokens(src[0].tolist()), tokens(ids[:-1]), tokens(ids[1:]), maps, tokenizer.decode(ids))


# %% [markdown]
# > The picture, after checks that every axis is labelled with what it shows.


# %%
@example
def example_maps() -> Chart:
    """The three kinds of attention in the last layer, averaged over the heads, with labels checked against shapes."""
    sentence = attention_maps(our_model(), OUR_SENTENCES[1])
    source, target, steps = sentence.source, sentence.target, sentence.steps()
    labels = {"encoder": (source, source), "decoder": (steps, target), "cross": (steps, source)}
    assert source[-1] == "</s>" and target[0] == "<s>"
    assert all(sentence.maps[k].shape[2:] == (len(rows), len(columns)) for k, (rows, columns) in labels.items())
    assert sentence.maps["decoder"].triu(1).abs().max() == 0  # nothing attends to the future
    assert all(torch.allclose(weights.sum(-1), torch.ones(())) for weights in sentence.maps.values())
    print(OUR_SENTENCES[1], "\n" + sentence.translation)
    last = {kind: weights[-1].mean(0) for kind, weights in sentence.maps.items()}
    return grid([[heatmap(last[kind], *labels[kind], f"{kind}, last layer, mean of heads")] for kind in labels])


# %% [markdown]
# > Every head of the cross-attention, layer by layer. Look for diagonals: some heads look at the source of the word
# > that was just read, others, in higher layers, at that of the word to come, one step further. Look for the words
# > whose order differs in the two languages, and for rows of other words that look at the full stop or at `</s>`, a way
# > of attending to nothing in particular.


# %%
@example
def example_cross_heads() -> Chart:
    """Cross-attention of each head (columns) in each layer (rows of charts)."""
    sentence = attention_maps(our_model(), OUR_SENTENCES[1])
    weights, (rows, columns) = sentence.maps["cross"], (sentence.steps(), sentence.source)
    N, h = weights.shape[:2]
    titles = [[f"layer {n + 1}, head {i + 1}" for i in range(h)] for n in range(N)]
    charts = [[heatmap(weights[n, i], rows, columns, titles[n][i]) for i in range(h)] for n in range(N)]
    return grid([[chart.properties(width=150, height=150) for chart in row] for row in charts])


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
# > | 1 | `norm="pre"` in `TINY` and in the program's presets `tiny` and `small`; `make_model` has the paper's `post` | trains with larger rates; levels the gradients | shown in Part 1 |
# > | 2 | LayerNorm with ε = 10⁻⁵ | PyTorch's; the paper gives none | none |
# > | 3 | projections of attention and the output layer have no bias | the paper's formulas have none | none |
# > | 4 | embeddings start with standard deviation $d_{\text{model}}^{-1/2}$, matrices with Glorot's uniform | the paper gives none | shown in Part 1 |
# > | 5 | `inner_dropout` (attention weights, feed-forward) is off | Section 5.4 names neither; Section 6.3 has the first, the authors' code both | not measured here |
# > | 6 | smoothing gives no mass to padding | it is never right | less than $\epsilon_{ls} / V$ a symbol |
# > | 7 | the program clips gradients at norm 1 | a safeguard; the paper has none | shown in Part 5 for short runs |
# > | 8 | a moving average of the weights in the program's `tiny` and `small` in place of averaged checkpoints; neither in `base` and `big` | a model at any time | shown in Part 5 for short runs |
# > | 9 | `warmup`, `bpe`, `tokens_per_batch` and, in `tiny`, `factor` differ from the paper's | narrow models and 29,000 pairs need a higher rate and fewer updates | not measured here |
# > | 10 | dropout 0.25 and 0.3 in `tiny` and `small` | little data | shown in Part 5 for short runs |
# > | 11 | a batch's size is the padded length of its longer side | it bounds memory and work | none on results |
# > | 12 | the commands `translate` and `evaluate` search with beam 5 and length penalty 1.8, the paper with 4 and 0.6; pictures and scores during development are greedy | chosen on the validation set; speed | shown in Part 4 |
# > | 13 | the program's fast forms: fused attention, chunked loss, 16-bit dropout decisions, sentences that leave the batch when they end (Part 5) | speed | the same numbers; for dropout the same distribution, its rate rounded to 1/65536 |
# > | 14 | `make_model` ties no matrices unless asked; the presets tie all three | two vocabularies may differ; code for the earlier editions | parameters, shown in Part 1; BLEU, in Part 5 for short runs |
# > | 15 | in the program, every update draws its dropout from `seed` and its number | a resumed run equals an uninterrupted one | none |
# > | 16 | `r_drop` and `bpe_dropout` in the program, off in all presets | ideas of 2021 and 2020 for little data | shown in Part 5 for short runs; not tried for long enough to tell (`benchmarks/results/LOG.md`) |
# > | 17 | `dropout_after`, off in all presets | overfitting comes late (Part 5) | learns faster at first, shown in Part 5; not yet measured to the end of a run |
# > | 18 | `optimizer="muon"` in the program's `tiny` and `small`; this document trains with Adam | an optimiser of 2024 | learns much faster at first, shown in Part 5; after half an hour little of that is left (`benchmarks/results/LOG.md`) |

# %% [markdown]
# ## The program
#
# > What it takes to use such a model for real stands in the folder `translator/` beside this document: other sources of
# > data with all their checks, training runs that can be interrupted at any moment, a fast search, the attention page,
# > and the export to other programs. It imports this document, and its model is the one of Part 1. This script is the
# > door to it: `python the_annotated_transformer.py` lists the commands.

# %%
if __name__ == "__main__" and not in_notebook():
    from translator.commands import main

    sys.exit(main())
