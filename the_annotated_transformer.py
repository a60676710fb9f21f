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
# > Here the Transformer of *Attention Is All You Need* ([Vaswani et al., 2017](https://arxiv.org/abs/1706.03762))
# > translates a German sentence; you change the sentence, look into the model, and build one yourself.

# %% [markdown]
# ![A German sentence with the English of its words, its translation, where the model looks before it writes a word, and the five words that it finds most probable there](images/live_figure.png)
#
# | how to read | what | time |
# |---|---|---|
# | **the road**, on a first visit | Part 1 as far as [the model assembled](#The-model-assembled); Part 2 as far as [while it learns](#While-it-learns); *What next* as far as [what to do now](#What-to-do-now) | about 68 minutes, ten of them at a model that learns and in the clinic |
# | **everything**, if you want to build systems like this yourself | Parts 1 to 6, those after Part 3 in any order; then [Since 2017](since_2017.ipynb) | a day or two |
# | **with a question** | the [list of questions](#Questions,-and-where-they-are-answered); the [glossary](#Glossary) | |

# %% [markdown] tags=["active-ipynb"]
# *On the web page, the figure above is live: it translates any German sentence, token by token.*

# %% [markdown]
# # Part 0: Prelims
#
# > This part is folded: imports, and helpers that draw and check. Go straight on to [Part
# > 1](#Part-1:-A-sentence-through-the-model). One thing first: this text retells the paper, and comments on it. On the
# > web page, what the paper says has a bar on its left; in the notebook, it's our comments that have one.
# >
# > <details><summary>How this text is laid out, and what you need</summary>
# >
# > Some paragraphs say what the paper says, in our own words, with its section and equation numbers. The others are our
# > commentary. Code is folded if it only draws, prints, checks, or puts together what you already know; so is everything that you can skip
# > on a first reading. A *side room* is a section that isn't on the road. Where it says *Predict*, stop and make up
# > your mind before you open the answer: a wrong guess teaches most. The output that follows stays hidden until you've
# > chosen (in Jupyter, until you click on the three dots). In what is live on the page, `·` is put before a piece that
# > continues a word. Where it says *Try it*, there's a line to run. A function marked `@example` runs straight away in
# > the notebook; if you import the script as a module, it's only defined. What would take too long to compute here
# > comes from saved measurements: rows in `benchmarks/results/`, each with the commit that produced it.
# >
# > You need Python and some linear algebra, and it helps if you've trained a neural network before. All the code runs
# > on a laptop without a GPU. This is the third edition; the first two, from 2018 (Alexander Rush) and 2022 (Austin
# > Huang and others), are called "the earlier editions".
# >
# > </details>


# %% tags=["active-ipynb"]
# # @title Setup: unpack what travels with this notebook, install what Colab lacks, and make charts work offline in Jupyter
# import base64, contextlib, importlib.util, sys, zipfile
# from pathlib import Path
#
# # the companion, which the web page offers under Pages
# for bundle in Path().glob("the_annotated_transformer*.zip"):
#     assert zipfile.is_zipfile(bundle), f"{bundle} is damaged; delete it and upload it again"
#     with zipfile.ZipFile(bundle) as files:
#         files.extractall(members=[name for name in files.namelist() if not Path(name).exists()])
#
# needed = ["tokenizers", "spacy", "pooch", "sacrebleu", "safetensors", "altair", "pandas", "tqdm"]
# missing = [name for name in needed if importlib.util.find_spec(name) is None]
# if missing:
#     !{sys.executable} -m pip install --quiet {" ".join(missing)}
# import altair as alt
#
# if alt.renderers.active == "default" and not {"google.colab", "kaggle_gcp"} & set(sys.modules):
#     def forms(chart, **_):  # to draw; and as a picture for GitHub, which draws nothing
#         form_by_type = {"application/vnd.vegalite.v5+json": chart, "text/plain": "chart"}
#         with contextlib.suppress(Exception):  # without the package there is no picture
#             import vl_convert
#
#             picture = vl_convert.vegalite_to_png(chart, scale=1.5)
#             form_by_type["image/png"] = base64.b64encode(picture).decode()
#         return form_by_type
#
#     alt.renderers.register("data", forms)
#     alt.renderers.enable("data")

# %%
# @title The door to the command line
import builtins
import os
import sys


def in_notebook(module: str) -> bool:
    """Whether a notebook of this name is running, not an import, a script or a command."""
    command = hasattr(sys.modules["__main__"], "__file__") and sys.argv[1:]  # as after %run FILE
    return module == "__main__" and hasattr(builtins, "__IPYTHON__") and not command


if __name__ == "__main__" and not in_notebook(__name__):  # before anything else is loaded
    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # python -P and -I leave it out
    from translator.__main__ import main

    sys.exit(main())

# %%
# @title Imports
import copy
import functools
import gzip
import html
import itertools
import json
import math
import random
import re
import shutil
import tempfile
import threading
import time
import unicodedata
import urllib.request
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm import tqdm

# %%
# @title The decorator @example
NUMBERS = itertools.count(1)  # of captions


def example(function: Callable[[], Any]) -> Callable[[], Any]:
    """In the notebook, run `function` and show its result and docstring; else only define it."""
    if in_notebook(function.__module__):
        from IPython.display import Markdown, display

        result = function()
        if result is not None:
            display(result)
        caption = " ".join(str(function.__doc__).split())
        display(Markdown(f"**{next(NUMBERS)}.** {caption}"))
    return function


# %%
# @title What this runs on
def best_device() -> torch.device:
    """The device that ANNOTATED_DEVICE names, or else this machine's accelerator, or the CPU."""
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    return tried_device(os.environ.get("ANNOTATED_DEVICE") or str(accelerator or "cpu"))


@functools.cache
def tried_device(name: str) -> torch.device:
    """The device of this name if it computes here, or else, with a notice, the CPU."""
    try:
        torch.ones(2, device=name).sum().item()
        return torch.device(name)
    except Exception as error:  # of as many kinds as there are devices
        reason = str(error).partition("\n")[0] or type(error).__name__
        print(f"NOTICE: {name} doesn't compute here, so the CPU does it ({reason}).")
        return torch.device("cpu")


@example
def example_machine() -> None:
    """What this document runs on."""
    print(f"Python {sys.version.split()[0]}, PyTorch {torch.__version__}", end=", ")
    print(f"{best_device()}, {os.cpu_count()} CPU cores")


# %% [markdown]
# ## Names and shapes
#
# > <details><summary>A reference card of names and shapes, to come back to</summary>
# >
# > Variables are named as in the paper. A comment such as `# (B, h, T, d_k)` gives the shape of the tensor that its
# > line produces. *Base* is the smaller of the paper's two models; the larger one is called *big*. *Our model* is the
# > small model that comes with this document.
# >
# > | name | meaning | base model | our model |
# > |---|---|---|---|
# > | `B` | sentences in a batch | | |
# > | `S`, `T` | length of the source, length of the target; in attention, number of keys, number of queries | | |
# > | `N` | layers in each of the two stacks | 6 | 4 |
# > | `d_model` | width of every vector that flows between layers | 512 | 128 |
# > | `d_ff` | inner width of the feed-forward networks | 2048 | 256 |
# > | `h` | attention heads | 8 | 4 |
# > | `d_k`, `d_v` | width of a query or key, width of a value, per head | 64 | 32 |
# > | `vocab` | entries in the vocabulary | about 37,000 | 6,106 |
# > | `Q`, `K`, `V` | queries, keys and values | | |
# >
# > A *mask* says which positions may be looked at. Masks are boolean, and **true means "may be looked at"**; zeros
# > and ones of any numeric type work as well. Four special *tokens* (entries of the vocabulary) have fixed numbers,
# > their *ids*.
# >
# > </details>

# %%
# @title The special tokens
PAD, BOS, EOS, UNK = 0, 1, 2, 3  # padding, begin of sentence, end of sentence, unknown
SPECIALS = ["<pad>", "<s>", "</s>", "<unk>"]


# %%
# @title What is refused: masks and ids of other conventions, and a gradient of NaN
Mask = Tensor | None  # true or 1 where one may look; None: everywhere


def allowed(mask: Tensor) -> Tensor:
    """A mask as booleans; ValueError for one that is added to scores, as 0 and minus infinity."""
    if mask.dtype == torch.bool:
        return mask
    if not (mask >= 0).all():
        raise ValueError(
            "a mask has true or 1 for what may be looked at, and false or 0 for the rest, "
            f"but this one holds {mask.min().item()}"
        )
    return mask != 0


def check_ids(ids: Tensor, vocab: float = math.inf) -> None:
    """Raise ValueError for an id outside the vocabulary; on the CPU, as a GPU would have to wait.

    Without `vocab`, only negative ids such as -100 are refused.
    """
    if ids.device.type != "cpu" or not ids.numel() or torch.compiler.is_compiling():
        return
    for extreme in (end.item() for end in torch.aminmax(ids)):
        if extreme < 0 and vocab == math.inf:
            raise ValueError(f"{extreme} is no id: ids begin at 0")
        if not 0 <= extreme < vocab:
            raise ValueError(
                f"{extreme} is no id: ids begin at 0, and the vocabulary has {vocab} entries"
            )


def check_gradient(optimizer: torch.optim.Optimizer) -> None:
    """Raise ValueError for a gradient that is infinite or NaN, before it reaches the weights."""
    weights = itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)
    norm = nn.utils.get_total_norm([p.grad for p in weights if p.grad is not None])
    if not norm.isfinite():
        raise ValueError(
            f"the gradient is {norm.item()}, so no weight was changed; "
            "look for a row whose mask hides everything, or a learning rate that was too high"
        )


# %%
# @title Tables, and charts of matrices
Chart = Any  # of altair, which is loaded when the first chart is drawn


def table(rows: list[dict]) -> Any:
    """Rows as a table of pandas, the first column in front; None without rows."""
    import pandas as pd

    if not rows:
        return None
    pd.set_option("display.max_colwidth", None)  # whole sentences
    return pd.DataFrame(rows).set_index(next(iter(rows[0])))


def heatmap(
    values: Tensor, rows: list[str], columns: list[str], title: str = "",
    axes: tuple[str, str] = ("query", "key"), signed: float = 0.0,
    size: int = 18, unit: str = "weight",
) -> Chart:  # fmt: skip
    """A chart of the matrix `values` (rows, columns), each entry a square of `size` pixels.

    If `signed` is given, a scale of two colours goes from -signed to signed.
    """
    import altair as alt

    cells = []
    for i, row in enumerate(values.detach().float().tolist()):
        for j, value in enumerate(row):  # words recur, and get numbers
            place = {"row": f"{i} {rows[i]}", "column": f"{j} {columns[j]}"}
            cells.append({**place, "value": round(value, 4)})
    scale = {"domainMin": 0, "interpolate": "rgb"}
    if signed:
        scale = {"domain": [-signed, signed], "scheme": "blueorange"}
    angle = 0 if max(map(len, columns)) < 3 else -60
    word = "slice(datum.label, indexof(datum.label, ' ') + 1)"  # without its number
    labels = {"labelExpr": word, "labelOverlap": len(cells) > 900}
    return alt.Chart(alt.Data(values=cells)).mark_rect().encode(
        alt.X("column:O", sort=None, title=axes[1], axis=alt.Axis(labelAngle=angle, **labels)),
        alt.Y("row:O", sort=None, title=axes[0], axis=alt.Axis(**labels)),
        alt.Color("value:Q", title=unit, scale=alt.Scale(**scale)),
        tooltip=["row:N", "column:N", "value:Q"],
    ).properties(title=title, width=size * len(columns), height=size * len(rows))  # fmt: skip


# %%
# @title Charts of lines and bars, and charts side by side
def curves(
    rows: list[dict], x: str, y: str, colour: str, log_y: bool = False, log_x: bool = False,
    width: int = 480,
) -> Chart:  # fmt: skip
    """Lines of column `y` over `x`, one per value of `colour`; a click on the legend picks one."""
    import altair as alt

    names = {row[colour] for row in rows}
    pick = alt.selection_point(name=f"pick {y}".replace(" ", "_"), fields=[colour], bind="legend")
    with_points = len(rows) < 20 * len(names)
    step = int(isinstance(rows[0][x], int))
    lines = alt.Chart(alt.Data(values=rows)).mark_line(point=with_points, strokeJoin="round")
    scales = {True: alt.Scale(type="log", nice=False), False: alt.Scale(zero=False)}
    chart = lines.encode(
        alt.X(f"{x}:Q", scale=scales[log_x], axis=alt.Axis(tickMinStep=step)),
        alt.Y(f"{y}:Q", scale=scales[log_y]), alt.Color(f"{colour}:N", sort=None),
        alt.StrokeDash(f"{colour}:N", sort=None), tooltip=[f"{x}:Q", f"{y}:Q", f"{colour}:N"],
    ).properties(width=width, height=240)  # fmt: skip
    if len(names) == 1:  # nothing to tell apart
        return chart.encode(color=alt.Undefined, strokeDash=alt.Undefined)
    return chart.encode(opacity=alt.condition(pick, alt.value(1), alt.value(0.15))).add_params(pick)


def bars(rows: list[dict], x: str, y: str, colour: str) -> Chart:
    """Bars of column `y` for each value of column `x`, side by side for those of `colour`."""
    import altair as alt

    return alt.Chart(alt.Data(values=rows)).mark_bar().encode(
        alt.X(f"{x}:O", sort=None), alt.Y(f"{y}:Q"), alt.Color(f"{colour}:N", sort=None),
        alt.XOffset(f"{colour}:N", sort=None), tooltip=[f"{x}:N", f"{y}:Q", f"{colour}:N"],
    ).properties(width=480, height=220)  # fmt: skip


def grid(charts: list[list[Chart]], colours: Literal["shared", "independent"] = "shared") -> Chart:
    """Rows of charts, all with one scale of colours unless each is to have its own."""
    import altair as alt

    scales = dict.fromkeys(("color", "strokeDash"), colours)
    rows = [alt.hconcat(*row).resolve_scale(**scales) for row in charts]
    return alt.vconcat(*rows).resolve_scale(**scales)


# %%
# @title Files of this repository, and saved measurements
REPOSITORY = ""  # the public address of this document's repository, once it has one
HERE = Path(__file__).resolve().parent if "__file__" in globals() else Path()


def beside(name: str) -> Path:
    """A file beside this document, or else fetched; FileNotFoundError if that fails, too."""
    path = next((p for p in (HERE / name, HERE / "translator" / name) if p.exists()), HERE / name)
    if not path.exists() and REPOSITORY:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(Exception):  # whatever a network may do
            urllib.request.urlretrieve(f"{REPOSITORY}/raw/main/{name}", f"{path}.part")
            os.replace(f"{path}.part", path)
    if not path.exists():
        raise FileNotFoundError(
            f"{name} is not beside this document (put the_annotated_transformer.zip there, "
            "which the web page offers under Pages, and run again from the top; "
            "in Colab, upload it to the files on the left)"
        )
    return path


def saved_rows(name: str) -> list[dict]:
    """The rows of a benchmark, oldest first; none, with a notice, where its file is missing."""
    try:
        lines = beside(f"benchmarks/results/{name}.jsonl").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        print(f"NOTICE: {error}; there is nothing to show.")
        return []
    return [json.loads(line) for line in lines]


# %% [markdown]
# # Part 1: A sentence through the model
#
# > **The idea in three sentences.** To understand a word, you have to look at other words: in "the dog runs", *runs*
# > needs to know who is running. *Attention* lets each position in a sentence put a question to all positions, and
# > returns a weighted average of their answers: those that fit the question best count most. The Transformer repeats
# > this step layer by layer, with small networks in between, and learns the questions and the answers from examples.
#
# ## What it is for (Abstract, Sections 1 and 2)
#
# The paper introduces a network that maps one sequence to another, such as a sentence to its translation. It translated
# better than any model before it, after far less training than the best of them.
#
# <details><summary>The paper's figures, and what came before it</summary>
#
# On WMT 2014 English-German the larger of the paper's two models reached a score of 28.4 BLEU (a measure of how closely a translation agrees
# with a person's; [Part 3](#BLEU) computes it), more than 2 points above the best earlier results; on English-French
# it reached 41.8, the best of any single model, after three and a half days on eight GPUs. It also learned to parse
# English, from both large and small amounts of training data.
#
# In 2017 the best models for translation and language modelling were recurrent neural networks, above all LSTMs and
# GRUs. A recurrent network reads a sequence position by position: its state at position *t* is a function of its
# state at position *t* − 1 and the input at *t*. So the positions of one training example cannot be computed in
# parallel. That hurts most with long sequences. Only the examples in a batch can still be computed in parallel, and
# if the sequences are long, few of them fit into memory. Factorisation tricks (Kuchaiev and Ginsburg, 2017) and
# conditional computation (Shazeer et al., 2017) made recurrent networks faster, and the latter also made them
# better, but the computation remained sequential. Attention was already part of many strong models. It connects
# positions however far apart they are, but it was nearly always used together with a recurrent network.
#
# Other models were designed to need fewer sequential steps: the Extended Neural GPU, ByteNet and ConvS2S. They are
# convolutional and compute all positions at once. In these models, the number of operations needed to relate two
# positions grows with the distance between them, linearly for ConvS2S and logarithmically for ByteNet. That makes it
# harder to learn how distant positions depend on each other.
#
# In the Transformer this number is constant. A self-attention layer takes $O(n^2 d)$ operations for $n$ vectors of
# width $d$, a recurrent one $O(n d^2)$, in $n$ steps that have to follow one another; so by this count attention is
# also the cheaper one as long as $n < d$ (Section 4). (A convolution of width $k$ takes $O(k n d^2)$; in recurrence,
# the path between two positions is as long as their distance.) The price of connecting any two positions directly is
# that attention averages over positions, which blurs what each of them says; multi-head attention is there to
# counteract this. *Self-attention*, which relates the positions of a single sequence to each other, had already been
# used for reading comprehension, abstractive summarisation, textual entailment and general sentence representations.
# End-to-end memory networks used attention recurrently, in place of recurrence along the sequence, and did well on
# simple-language question answering and language modelling. As far as the authors know, the Transformer is the first
# model for mapping sequences to sequences that relates positions by self-attention alone, without recurrence along the
# sequence and without convolution. As little as twelve hours of training on eight P100 GPUs brought it to a new state
# of the art in translation. The authors' code is part of [tensor2tensor](https://github.com/tensorflow/tensor2tensor).
#
# </details>
#
# ## The plan (Section 3)
#
# Most competitive models of the time had two halves. An *encoder* turns the *source*, here the sentence to translate,
# into vectors. Given these, a *decoder* generates the *target*, its translation, one *token* (a word or part of one) at
# a time; to produce the next token, it reads the ones it has produced so far (it's *autoregressive*). The Transformer
# keeps this plan. Both halves are built from attention and small networks.
#
# ![The Transformer: on the left the encoder stack, on the right the decoder stack with masked self-attention and attention to the encoder's output](images/architecture.svg)
#
# *After the paper's Figure 1.*
#
# > At the end of this part you'll have built every box of the figure. A German sentence is coming with us:
# >
# > "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."
# >
# > Word for word, that's *two women sit on a bench, while a man a newspaper reads*.
# >
# > The numbers that you'll see are those of a trained model of ours: four layers in each half (in the paper, six),
# > vectors of width 128 (512), two million weights, learned from 29,000 photo captions and their translations.

# %%
# @title The file of the trained model
SHIPPED_MODEL = "models/multi30k-de-en"
SIZES = {"N": 4, "d_model": 128, "d_ff": 256, "h": 4}  # of that model
SENTENCE = "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest."


class TrainedFile(NamedTuple):
    """Named matrices, and the vocabulary; no matrices where the file is missing."""

    weights: dict[str, Tensor]
    vocabulary: Any  # of the library `tokenizers`

    def fill(self, module: nn.Module, name: str = "") -> nn.Module:
        """A module, ready for use, with the weights of the part of that name, or fresh ones."""
        module.eval().requires_grad_(False)
        if self.weights:
            for key, parameter in module.named_parameters():
                parameter.copy_(self.weights[f"{name}.{key}".lstrip(".")])
        return module


@functools.cache
def our_file() -> TrainedFile:
    """The model that comes with this document; if it is missing, fresh weights and a notice."""
    from safetensors.torch import load_file
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers import models, pre_tokenizers

    try:
        weights = beside(f"{SHIPPED_MODEL}/model.safetensors")
        vocabulary = beside(f"{SHIPPED_MODEL}/tokenizer.json")
        return TrainedFile(load_file(weights), Vocabulary.from_file(str(vocabulary)))
    except FileNotFoundError as error:
        print(f"NOTICE: {error}; this Part goes on with fresh weights, whose numbers mean nothing.")
    words = [*SPECIALS, *dict.fromkeys(re.findall(r"\w+|[.,]", SENTENCE))]
    vocabulary = Vocabulary(models.WordLevel({w: i for i, w in enumerate(words)}, SPECIALS[UNK]))
    vocabulary.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    return TrainedFile({}, vocabulary)


# %% [markdown]
# ## Words become vectors (Section 3.4)
#
# ![Where we are: the embeddings](images/here/embeddings.svg)
#
# ### Tokens and ids
#
# > The sentence is first cut into *tokens*: words, pieces of words and punctuation marks. A *vocabulary* numbers all
# > the tokens that the model knows, and the number of a token is its *id*. Our model's vocabulary has 6,106 entries,
# > German and English together. Rare words are cut into pieces ([Part 3](#Words-and-word-pieces-(Section-5.1)) shows
# > how). `▁` marks the beginning of a word, and `</s>` the end of the sentence.


# %%
# @title The ids of the sentence
@functools.cache
def our_ids() -> Tensor:
    """The ids of the sentence, with the end mark: (1, S)."""
    return torch.tensor([[*our_file().vocabulary.encode(SENTENCE).ids, EOS]])


def token_names(ids: Tensor) -> list[str]:
    """The tokens with these ids (T)."""
    return [our_file().vocabulary.id_to_token(i) for i in ids.tolist()]


def text_of(ids: Tensor) -> str:
    """The tokens with these ids (T) as text, without the special ones."""
    return "".join(token_names(ids[ids > UNK])).replace("▁", " ").strip()


# %%
@example
def example_ids() -> Any:
    """Each token of the sentence with its id."""
    row = zip(token_names(our_ids()[0]), map(str, our_ids()[0].tolist()), strict=True)
    return table([{"": "id", **dict(row)}])


# %% [markdown]
# ### Embeddings
#
# Learned *embeddings* turn tokens into vectors of width $d_{\text{model}}$: a table has one row for each token of the
# vocabulary, and to embed a token is to look up its row. The rows are multiplied by $\sqrt{d_{\text{model}}}$. The same
# matrix is used for the source, for the target and, at the end, for choosing the next token.
#
# > What counts is which way a row points: words that are used in similar ways point in similar directions. Here are a
# > few tokens, each with those that are nearest in direction, and the cosine of the angle between them. (`Frau` is a
# > woman, `Damen` are ladies, `Menschen` people, `Männer` men; a `Gehsteig` is a pavement; `lesen` is *read*, `trinkt`
# > *drinks*, `spricht` *speaks*, `tanzt` *dances*.)


# %%
# @title The table of embeddings
class Embeddings(nn.Module):
    """Learned embeddings, scaled by the root of d_model (Section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.table = nn.Embedding(vocab, d_model)
        self.scale = math.sqrt(d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Ids (B, T) to vectors (B, T, d_model); ValueError for ids outside the table (CPU)."""
        check_ids(x, self.table.num_embeddings)
        return self.table(x) * self.scale


@functools.cache
def our_embeddings() -> Embeddings:
    """The trained table of embeddings."""
    plain = Embeddings(SIZES["d_model"], our_file().vocabulary.get_vocab_size())
    return our_file().fill(plain, "src_embed.embeddings")


# %%
@example
def example_neighbours() -> Any:
    """The tokens whose embeddings point in the most similar directions, with the cosine."""
    unit = F.normalize(our_embeddings().table.weight, dim=1)  # (vocab, d_model)
    rows = []
    for i in our_ids()[0, [1, 5, 12]]:
        cosines, ids = (unit @ unit[i]).topk(5)  # the first is the token itself
        row = {"token": token_names(ids)[0]}
        for place, name in enumerate(token_names(ids)[1:], 1):
            row[f"{place}."] = f"{name} {cosines[place]:.2f}"
        rows.append(row)
    return table(rows)


# %% [markdown]
# > <details><summary>Why multiply by the root of the width? And why one table for three uses?</summary>
# >
# > The paper doesn't say why it multiplies, but the sizes of the numbers tell us. At the end, a token is scored with
# > the same row of the table: the row is multiplied by a vector whose entries are about 1 in size, as the last norm
# > left them. That dot product sums $d_{\text{model}}$ terms. For the scores to start at a size of about 1, the
# > entries of the row must have a standard deviation of $d_{\text{model}}^{-1/2}$. In an embedding, such small
# > entries would be drowned out by the [positional encoding](#Positions-(Section-3.5)), whose entries have a root
# > mean square of 0.71. Multiplying by $\sqrt{d_{\text{model}}}$ brings the entries of the embedding to a size of
# > about 1. So the factor makes sense only in combination with the way the weights are [initialised](#A-fresh-model).
# > The earlier editions of this document used Glorot's initialisation here, which makes the size of an embedding
# > depend on the size of the vocabulary.
# >
# > How can one row serve for reading a token and for choosing it? The usual explanation: words that are used in
# > similar ways have similar meanings when they're read, and are also due at similar moments (Press and Wolf, 2016).
# > In training, the gradients of all three uses are added up in the one table: reading changes the rows of the tokens
# > that were read, choosing changes every row.
# >
# > </details>
#
# ## Attention (Section 3.2)
#
# ![Where we are: attention](images/here/attention.svg)
#
# ### Queries, keys and values
#
# > Fifteen rows of a table know nothing of each other: the row of `Bank` is the same whether somebody sits on it or
# > robs it. Attention changes that. Think of a search in a library. The *query* is what you ask for. A *key* is what is
# > written on a book's spine, and the *value* is what is inside. You don't get one book: you get a blend of all of
# > them, in which a book counts for more the better its spine fits your question. In our sentence, the query of `auf`
# > ("on") may ask: on what? The key of `Bank` ("bench") fits best, so its value counts most.
#
# An attention function takes a query and a set of pairs of keys and values, all of them vectors. Its output is a
# weighted sum of the values. The weight of each value says how well its key fits the query.
#
# ![The vector of a word becomes a query, a key and a value; its query meets all keys, a softmax makes weights of the scores, and the weighted values add up](images/qkv.svg)
#
# > Where do queries, keys and values come from? Each is the vector of a word multiplied by a learned matrix: $W^Q$,
# > $W^K$ or $W^V$. All words share these three matrices. So training decides what words ask for, how they're found,
# > and what they pass on.
# >
# > How can a matrix make a question out of a word? Take vectors with just two numbers. The first says "names a thing";
# > the second is 1 for a word that says *where*, and −1 for one that says *what happens*. So `Bank` is (1, 0), `auf` is
# > (0, 1) and `sitzen` is (0, −1). Now let $W^Q = \begin{pmatrix} 0 & 0 \\ 4 & 0 \end{pmatrix}$. Our vectors are rows,
# > so the matrix is on the right, and $(0, 1)\,W^Q$ is its second row: the query of `auf` is (4, 0). It points towards
# > the words that name things: "I say where; which thing is it about?" Let $W^K$ leave vectors as they are, and let
# > $W^V$ multiply them by 10.
#
# ### Scaled dot-product attention (Section 3.2.1)
#
# Queries and keys have width $d_k$, and values have width $d_v$. The score of a query and a key is their dot product
# divided by $\sqrt{d_k}$, and a softmax over the keys turns the scores into weights. In practice many queries are
# computed together, as the rows of a matrix $Q$. Keys and values are the rows of $K$ and $V$:
#
# $$\mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{QK^\top}{\sqrt{d_k}}\right)V \tag{1}$$
#
# > The softmax of scores $s$ is $\mathrm{softmax}(s)_j = e^{s_j} / \sum_i e^{s_i}$: all weights are positive and add up
# > to 1, and a score that is 3 higher gets twenty times the weight. In our example, the query of `auf` has the scores
# > $4/\sqrt 2 \approx 2.83$ with `Bank`, 0 with itself and 0 with `sitzen`. As $e^{2.83} \approx 17$, the weights are
# > 17/19, 1/19 and 1/19, and the values (10, 0), (0, 10) and (0, −10) blend to (8.9, 0): `auf` now carries a thing. (In
# > comments, `T` is the number of queries and `S` that of keys, and `...` stands for any dimensions before them.
# > `mask` comes [later](#Masks), `dropout` in a side room.)


# %%
def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask = None, dropout: Callable | None = None
) -> tuple[Tensor, Tensor]:
    """Scaled dot-product attention, Equation (1): output (..., T, d_v), weights (..., T, S).

    query (..., T, d_k), key (..., S, d_k), value (..., S, d_v); mask broadcasts to (..., T, S),
    true or 1 = may attend; a query that may attend to no key at all gets NaN.
    """
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.size(-1))  # (..., T, S)
    if mask is not None:
        scores = scores.masked_fill(~allowed(mask), -torch.inf)
    weights = scores.softmax(dim=-1)
    return (weights if dropout is None else dropout(weights)) @ value, weights


# %%
@example
def example_attention() -> None:
    """The case above: what `auf` receives.
    PyTorch's own function gives the same, even when `Bank` is hidden."""
    x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])  # `Bank`, `auf`, `sitzen`: (S=3, 2)
    W_q = torch.tensor([[0.0, 0.0], [4.0, 0.0]])
    W_v = torch.tensor([[10.0, 0.0], [0.0, 10.0]])
    Q = x[1:2] @ W_q  # one query
    K = x  # three keys
    V = x @ W_v  # three values
    output, weights = attention(Q, K, V)
    print("weights", weights.numpy().round(3)[0], "output", output.numpy().round(3)[0])
    torch.testing.assert_close(weights, torch.tensor([[17.0, 1, 1]]) / 19, atol=2e-3, rtol=0)
    for mask in (torch.tensor([[1, 1, 1]]), torch.tensor([[0, 1, 1]])):
        fused = F.scaled_dot_product_attention(Q[None], K[None], V[None], attn_mask=mask.bool())[0]
        torch.testing.assert_close(attention(Q, K, V, mask)[0], fused)


# %% [markdown]
# > Now the same with the trained numbers, starting from the rows of the table. A layer has several sets of $W^Q$, $W^K$
# > and $W^V$, called *heads*; this is the second head of the first layer, whose queries and keys have width 32. (The
# > rows are first brought to a common [size](#Residuals-and-normalisation-(Section-3.1)).)
# >
# > **Predict.** With all 15 keys, and no positions yet, how much of its weight will `auf` give to `Bank`?
# >
# > 1. nearly all of it
# > 2. about 7%, as to every other token
# > 3. about half
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **3.** `Bank` gets 49%, and no other token more than about a tenth. In our example by hand it got nearly all (1), with
# > two rivals instead of fourteen; 7% for each (2) would mean that training had learned nothing.
# >
# > </details>


# %%
# @title The queries, keys and values of one head
@functools.cache
def our_matrices() -> list[nn.Linear]:
    """W^Q, W^K and W^V of the first encoder layer, each with those of all heads side by side."""
    square = functools.partial(nn.Linear, SIZES["d_model"], SIZES["d_model"], bias=False)
    return [our_file().fill(square(), f"encoder.layers.0.self_attn.W_{x}") for x in "qkv"]


def one_head(x: Tensor, head: int = 2) -> list[Tensor]:
    """Queries, keys, values (S, d_k) of x (1, S, d_model) in a head of the first encoder layer."""
    norm = our_file().fill(nn.LayerNorm(SIZES["d_model"]), "encoder.layers.0.sublayer.0.norm")
    return [W(norm(x)[0]).chunk(SIZES["h"], dim=-1)[head - 1] for W in our_matrices()]


# %%
@example
def example_by_hand() -> None:
    """What `auf` asks of three tokens: dot products, scores and weights,
    from the rows of the table alone."""
    Q, K, V = one_head(our_embeddings()(our_ids()))  # each (S, d_k)
    tokens = token_names(our_ids()[0])
    keys = [2, 5, 9]
    dots = Q[3] @ K[keys].T  # one query, three keys
    scores = dots / math.sqrt(Q.size(-1))
    weights = scores.exp() / scores.exp().sum()
    for key, dot, score, weight in zip(keys, dots, scores, weights, strict=True):
        print(f"{tokens[3]} → {tokens[key]:9}", end=" ")
        print(f"dot product {dot:6.2f}, score {score:5.2f}, weight {weight:.2f}")
    print(f"with all {len(tokens)} keys: {attention(Q[3:4], K, V)[1][0, 5]:.2f} for {tokens[5]}")
    torch.testing.assert_close(attention(Q[3:4], K[keys], V[keys])[0][0], weights @ V[keys])


# %% [markdown]
# > That's attention: dot products, a softmax, an average. Now the whole sentence: 15 queries and 15 keys, so 225
# > scores. (A sentence twice as long has four times as many.) Each row is a token that asks, and its weights add up to
# > 1.


# %%
@example
def example_first_map() -> Chart:
    """Who looks at whom in one head of the first encoder layer,
    if it sees only the rows of the table."""
    tokens = token_names(our_ids()[0])
    Q, K, V = one_head(our_embeddings()(our_ids()))
    weights = attention(Q, K, V)[1]  # (S, S)
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(tokens)))
    return heatmap(weights, tokens, tokens)


# %% [markdown]
# > **Why three matrices?** $W^V$ separates what a word is *found by* from what it *passes on*. A noun may be found
# > because it's the subject of the sentence, and then pass on whether it is singular or plural, which the verb needs.
# > And with one matrix for queries and keys, scores would be symmetric: if `auf` looked at `Bank`, `Bank` would have to
# > score `auf` just as high. Most words would fit themselves best.
# >
# > **Why a softmax?** The weights must add up to 1, so that the output stays the size of a value whatever the number of
# > words. And it has a slope everywhere. (Picking the largest score has none, so training couldn't improve the choice.)
# >
# > **Why divide by $\sqrt{d_k}$?** Let the entries of $q$ and $k$ be independent with mean 0 and variance 1. Then $q
# > \cdot k = \sum_i q_i k_i$ has mean 0 and variance $d_k$; the division brings it back to 1. Without it, one key takes
# > nearly all the weight, and a softmax that is sure has hardly any slope. In the map above, the largest weight of a
# > row is 0.21 on average; without the division, it would be 0.71.
#
# <details><summary>Additive attention, and what happens to the gradient</summary>
#
# The authors suspect that large dot products push the softmax into regions where its gradient is tiny, and that this
# is why unscaled dot products do worse for large $d_k$.
#
# The two common attention functions are dot-product attention, which is the function above without the scaling, and
# *additive* attention (Bahdanau et al., 2015), which computes the score with a feed-forward network of one hidden
# layer, $v^\top \tanh(W q + U k)$ with learned $v$, $W$ and $U$. In theory they cost about the same. In practice the
# dot product is much faster and needs less memory, because it can be computed as a matrix product. For small $d_k$
# both do equally well; for large $d_k$ additive attention beats unscaled dot products.
#
# The chart below shows what the authors suspect: 64 random keys compete for one query. Its right half adds up the
# slopes $\partial p_j / \partial s_j = p_j (1 - p_j)$ (with $p$ for the weights and $s$ for the scores), which say how
# much each weight changes with its own score. A slope is small where $p_j$ is near 0 or near 1. Without the
# division, their sum falls towards 0 as $d_k$ grows. With it, the sum hardly depends on $d_k$.
#
# ![Scaled dot-product attention: queries and keys are multiplied, scaled, optionally masked, put through a softmax, and the weights multiply the values](images/scaled_dot_product_attention.svg)
#
# *After the paper's Figure 2, left.*
#
# </details>


# %%
# @title What happens without the division by √d_k
@example
def example_scaling() -> Chart:
    """The softmax saturates with the width of the keys, unless the scores are scaled."""
    draw = torch.Generator().manual_seed(0)
    rows = []
    for d_k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        queries = torch.randn(500, 1, d_k, generator=draw)
        keys = torch.randn(500, 64, d_k, generator=draw)  # 64 keys for one query
        for name, scale in (("not divided", 1.0), ("divided by √d_k", d_k**-0.5)):
            p = ((queries * keys).sum(-1) * scale).softmax(-1)  # (500, 64)
            rows.append({"d_k": d_k, "scores": name, "largest weight": p.amax(-1).mean().item()})
            rows[-1]["sum of the slopes"] = (p * (1 - p)).sum(-1).mean().item()
    assert rows[-2]["largest weight"] > 0.9 > 0.2 > rows[-1]["largest weight"]
    columns = "largest weight", "sum of the slopes"
    return grid([[curves(rows, "d_k", y, "scores", log_x=True, width=280) for y in columns]])


# %% [markdown]
# ## Positions (Section 3.5)
#
# ![Where we are: positions](images/here/positions.svg)
#
# > In the map, `ein` ("a") should find its noun, `Mann`. But it spreads its weight widely, and the largest share goes
# > to `Zeitung`. Why?
# >
# > **Predict.** Shuffle the 15 words and compute attention again. What does each word receive?
# >
# > 1. something else, because its neighbours have changed
# > 2. nearly the same: the farther a word has moved, the more has changed
# > 3. exactly the same as before
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **3.** The keys and values are the same vectors, only in another order, and a sum doesn't depend on the order. To
# > attention, a sentence is a *bag of words*: it has no neighbours (1) and no distances (2). So `ein` can't know which
# > noun comes next.
# >
# > </details>


# %%
@example
def example_shuffled() -> None:
    """What each word receives in the sentence, and in the same sentence shuffled:
    the difference is rounding."""
    x = our_embeddings()(our_ids())
    order = torch.randperm(x.size(1), generator=torch.Generator().manual_seed(0))
    before = attention(*one_head(x))[0]
    after = attention(*one_head(x[:, order]))[0]
    print("read as:", *token_names(our_ids()[0, order]))
    print(f"largest difference: {(after - before[order]).abs().max():.6f}")
    torch.testing.assert_close(after, before[order])


# %% [markdown]
# > *Therefore* the order of the words has to be written into the vectors themselves.
#
# *Positional encodings* have the same width as the embeddings and are added to them at the bottom of both stacks. The
# paper uses sines and cosines of different frequencies:
#
# $$PE_{(pos,\,2i)} = \sin\left(pos / 10000^{2i/d_{\text{model}}}\right)$$
# $$PE_{(pos,\,2i+1)} = \cos\left(pos / 10000^{2i/d_{\text{model}}}\right)$$
#
# Here $pos$ is the position, and $2i$ and $2i + 1$ are two neighbouring dimensions. The wavelengths form a geometric
# progression from $2\pi$ to $10000 \cdot 2\pi$.
#
# > Each pair of dimensions is the hand of a clock, slower than the one before; like the hands for hours, minutes and
# > seconds, they tell the position together. Moving on by $k$ positions means turning a hand by an angle that depends
# > on $k$ alone. That's why the authors hoped that a query could easily ask for "the word before me".


# %%
def positional_encoding(length: int, d_model: int) -> Tensor:
    """The sinusoidal encodings of positions 0 to length - 1: (length, d_model) (Section 3.5)."""
    turn = -math.log(10_000.0) / d_model  # a power is the exponential of a logarithm
    frequency = torch.exp(torch.arange(0, d_model, 2) * turn)  # (d_model / 2)
    angle = torch.arange(length).unsqueeze(1) * frequency  # (length, d_model / 2)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)  # sine, cosine, sine, ...


# %%
@example
def example_positions() -> Chart:
    """On the left, each row is the vector of one position; on the right, two pairs of sine and
    cosine as curves."""
    PE = positional_encoding(100, 32)
    labels = [str(n) if n % 8 == 0 else "" for n in range(48)]
    axes = "position", "dimension"
    image = heatmap(PE[:48], labels, labels[:32], axes=axes, signed=1.0, size=7, unit="value")
    rows = []
    for p, d in itertools.product(range(100), (4, 5, 10, 11)):
        rows.append({"position": p, "value": PE[p, d].item(), "dimension": str(d)})
    assert PE[0].tolist() == [0.0, 1.0] * 16
    return grid([[image, curves(rows, "position", "value", "dimension", width=320)]], "independent")


# %%
# @title The sentence with positions
@functools.cache
def our_vectors() -> Tensor:
    """The sentence as vectors with positions: (1, S, d_model)."""
    return our_embeddings()(our_ids()) + positional_encoding(our_ids().size(1), SIZES["d_model"])


# %% [markdown]
# > Doesn't the sum destroy the word? With 128 numbers there's room for both: training can keep them in different
# > directions, and $W^Q$ and $W^K$ can read one and ignore the other.
# >
# > **Predict.** The same head, now with positions. What changes in the row of `ein`, and what in the row of `auf`?
# >
# > 1. `ein` finds `Mann`; `auf` still looks at `Bank`
# > 2. `ein` finds `Mann`; `auf` now looks at its neighbours
# > 3. both look mostly at themselves
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **1.** `ein` gives `Mann`, the next word, 54% of its weight instead of 10%. And `auf → Bank` goes up from 49% to
# > 78%, perhaps because the bench is near. Each word still asks by what it means (so not 2), and a position alone is no
# > reason to look at oneself (3).
# >
# > </details>


# %%
@example
def example_second_map() -> Chart:
    """The same head of the first encoder layer, with positions."""
    tokens = token_names(our_ids()[0])
    return heatmap(attention(*one_head(our_vectors()))[1], tokens, tokens)


# %% [markdown]
# > <details><summary>Why sine and cosine, why 10000, and why add them? Learned positions</summary>
# >
# > **Why sine *and* cosine?** Only together are they the hand of a clock, which can be turned: there's one rotation
# > matrix for each offset, and it serves all positions. For a pair of dimensions with frequency $\omega$:
# >
# > $$\begin{pmatrix} \sin \omega(p + k) \\ \cos \omega(p + k) \end{pmatrix} = \begin{pmatrix} \cos \omega k & \sin \omega k \\ -\sin \omega k & \cos \omega k \end{pmatrix} \begin{pmatrix} \sin \omega p \\ \cos \omega p \end{pmatrix}$$
# >
# > So for any fixed offset $k$, $PE_{pos+k}$ is a linear function of $PE_{pos}$. The dot product of two encodings
# > depends only on how far apart they are, because each pair contributes $\sin \omega p \sin \omega q + \cos \omega p
# > \cos \omega q = \cos \omega (p - q)$.
# >
# > **Why 10000?** The fastest pair of dimensions, with wavelength $2\pi$, already gives every position a value of its
# > own. But a value that jumps about says little: positions six apart look more alike than neighbours. The slow pairs
# > change smoothly and say roughly where in the sentence a position is. For that, the longest wavelength should be
# > far longer than any sentence. (It comes close to $10000 \cdot 2\pi$ without reaching it, since $2i$ ends at
# > $d_{\text{model}} - 2$.)
# >
# > **Why add rather than concatenate?** Concatenation would reserve part of the width for positions. With addition, the
# > choice is left to training: the embeddings can stay near zero in those dimensions where the encoding says most.
# >
# > **Learned positions** are a second embedding, indexed by position instead of by token. They aren't multiplied by
# > $\sqrt{d_{\text{model}}}$, so they start out small compared with the tokens' vectors. Their table has a fixed
# > length, so no sentence can be longer than that. They gave nearly the same results (Table 3, row E); the authors kept
# > sinusoids because these extend to longer sentences. [Part 2](#Keeping-keys-and-values) tests
# > whether a trained model does.
# >
# > </details>
#
# ## Multi-head attention (Section 3.2.2)
#
# > A verb may need its subject *and* its object. One head can pass on only a mixture of the two. Two heads pass on both.
#
# Instead of attending once with vectors of width $d_{\text{model}}$, the authors found it better to project the
# queries, keys and values $h$ times, each time with different learned matrices, attend with each version in parallel,
# concatenate the results and project once more:
#
# $$\mathrm{MultiHead}(Q, K, V) = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_h)\,W^O$$
# $$\mathrm{head}_i = \mathrm{Attention}(QW_i^Q,\; KW_i^K,\; VW_i^V)$$
#
# > (In these two formulas, $Q$, $K$ and $V$ are the vectors *before* they're projected.)
#
# The paper uses $h = 8$ heads with $d_k = d_v = d_{\text{model}} / h = 64$. Since each head is narrower, the total cost
# is about that of one head of full width. In the paper's Table 3, a single head translates worse than the best number
# of heads, by 0.9 BLEU (a score from 0 to 100); too many heads hurt as well.
#
# ![Multi-head attention: h projections, attention in every head, concatenation, and one more projection](images/multi_head_attention.svg)
#
# *After the paper's Figure 2, right.*
#
# > In code, the $h$ small matrices $W_i^Q$ are put side by side: one matrix, whose *output* is cut into heads. (If the
# > *input* were cut, each head would see only a slice of the vector.) In our model, the sentence is $(15, 128)$. `W_q`
# > turns it into queries, again $(15, 128)$, which are cut into four heads of $(15, 32)$. Each head computes Equation
# > (1), and the joined results are $(15, 128)$ once more. Then $W^O$ mixes them: without it, each head could write only
# > to its own slice of the result.


# %%
def split_heads(x: Tensor, h: int) -> Tensor:
    """Cut the last dimension into h heads: (B, T, h * d) to (B, h, T, d)."""
    return x.unflatten(-1, (h, -1)).transpose(1, 2)  # `view` fits, too, but mixes up positions


def join_heads(x: Tensor) -> Tensor:
    """Put the heads side by side again: (B, h, T, d) to (B, T, h * d)."""
    return x.transpose(1, 2).flatten(2)


# %% [markdown]
# > (`B` is the number of sentences that are processed side by side, here 1.) With these two, multi-head attention is
# > five lines. `W_q` to `W_o` are the four matrices; `W_q(x)` multiplies $x$ by $W^Q$, without a bias:


# %%
def multi_head_attention(
    query: Tensor, key: Tensor, value: Tensor, h: int,
    W_q: nn.Linear, W_k: nn.Linear, W_v: nn.Linear, W_o: nn.Linear,
) -> Tensor:  # fmt: skip
    """Attention in h heads, side by side (Section 3.2.2): (B, T, d_model)."""
    Q = split_heads(W_q(query), h)  # (B, h, T, d_k)
    K = split_heads(W_k(key), h)  # (B, h, S, d_k)
    V = split_heads(W_v(value), h)  # (B, h, S, d_v)
    heads = attention(Q, K, V)[0]  # (B, h, T, d_v)
    return W_o(join_heads(heads))


# %%
# @title The same as a module, with a mask; its steps are methods, which later sections replace
class MultiHeadedAttention(nn.Module):
    """Attention in h heads, side by side (Section 3.2.2)."""

    def __init__(self, h: int, d_model: int):
        super().__init__()
        self.h = h
        self.W_q = nn.Linear(d_model, d_model, bias=False)
        self.W_k = nn.Linear(d_model, d_model, bias=False)
        self.W_v = nn.Linear(d_model, d_model, bias=False)
        self.W_o = nn.Linear(d_model, d_model, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Mask = None) -> Tensor:
        """query (B, T, d_model), key and value (B, S, d_model); returns (B, T, d_model)."""
        return self.attend(query, *self.keys_values(key, value), mask)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """What is offered: keys (B, h, S, d_k) and values (B, h, S, d_v)."""
        return split_heads(self.W_k(key), self.h), split_heads(self.W_v(value), self.h)

    def attend(self, query: Tensor, K: Tensor, V: Tensor, mask: Mask = None) -> Tensor:
        """What is asked of them, and what each position receives: (B, T, d_model)."""
        Q = split_heads(self.W_q(query), self.h)  # (B, h, T, d_k)
        heads = self.weigh(Q, K, V, for_all_heads(mask))  # (B, h, T, d_v)
        return self.W_o(join_heads(heads))

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask) -> Tensor:
        """Equation (1) in every head."""
        return attention(Q, K, V, mask)[0]


def for_all_heads(mask: Mask) -> Tensor | None:
    """A mask (B or 1, T or 1, S), with a dimension for the heads; ValueError for another shape."""
    if mask is not None and mask.dim() != 3:
        raise ValueError(
            f"a mask has the shape (B or 1, T or 1, S), but this one has {tuple(mask.shape)}"
        )
    return None if mask is None else allowed(mask).unsqueeze(1)  # (B or 1, 1, T or 1, S)


# %% [markdown]
# > Here are all four heads of the first layer; you've just seen the second.


# %%
# @title Recording the attention weights, for maps
RECORDS: ContextVar[tuple[dict, ...]] = ContextVar("RECORDS", default=())  # where a thread records
TURN = threading.RLock()  # of the threads that begin or end something
EARLIER_WEIGH: list[Callable] = []  # the first is the class's own, put back by who leaves last


def weigh_and_record(layer: nn.Module, Q: Tensor, K: Tensor, V: Tensor, mask: Any) -> Tensor:
    """`MultiHeadedAttention.weigh` while any thread records."""
    x, weights = attention(Q, K, V, mask)
    for record in RECORDS.get():
        record[layer] = weights.detach()
    return x


@contextmanager
def recording(model: nn.Module) -> Iterator[dict[nn.Module, Tensor]]:
    """Inside, the dictionary keeps the weights (B, h, T, S) of each attention in this thread.

    Raises ValueError for a layer with another `weigh`.
    """
    record = {}

    def check(layer: nn.Module, inputs: tuple, output: Tensor) -> None:
        if layer not in record and any(record is active for active in RECORDS.get()):
            name = type(layer).__name__
            raise ValueError(f"{name} weighs in a way of its own, so its weights are not known")

    layers = [layer for layer in model.modules() if isinstance(layer, MultiHeadedAttention)]
    with TURN:
        hooks = [layer.register_forward_hook(check) for layer in layers]
        EARLIER_WEIGH.append(MultiHeadedAttention.weigh)
        MultiHeadedAttention.weigh = weigh_and_record
    before = RECORDS.set((*RECORDS.get(), record))
    try:
        yield record
    finally:
        RECORDS.reset(before)
        with TURN:
            MultiHeadedAttention.weigh = EARLIER_WEIGH.pop()
            for hook in hooks:
                hook.remove()


def maps(weights: Tensor, rows: list[str], columns: list[str], title: str = "head") -> Chart:
    """The weights (4, T, S) of the four heads of a layer."""
    charts = [heatmap(w, rows, columns, f"{title} {i}", size=12) for i, w in enumerate(weights, 1)]
    return grid([charts[:2], charts[2:]])


# %%
# @title The trained attention of a layer
@functools.cache
def our_attention(layer: int) -> MultiHeadedAttention:
    """The trained self-attention of an encoder layer; the first is number 0."""
    plain = MultiHeadedAttention(SIZES["h"], SIZES["d_model"])
    return our_file().fill(plain, f"encoder.layers.{layer}.self_attn")


# %%
@example
def example_four_heads() -> Chart:
    """Four heads read the same sentence in different ways."""
    attn = our_attention(0)
    norm = our_file().fill(nn.LayerNorm(SIZES["d_model"]), "encoder.layers.0.sublayer.0.norm")
    x = norm(our_vectors())
    with recording(attn) as weights:
        output = attn(x, x, x)
    plain = multi_head_attention(x, x, x, attn.h, attn.W_q, attn.W_k, attn.W_v, attn.W_o)
    torch.testing.assert_close(plain, output)
    tokens = token_names(our_ids()[0])
    return maps(weights[attn][0], tokens, tokens)


# %% [markdown]
# > In the first, the articles `ein` and `eine` look at themselves, and then at each other. In the third, `Frauen` looks
# > at `Zwei`. The heads start from different random weights, so they can go different ways, but nothing forces them to:
# > in trained models, many heads can be removed with little loss (Michel et al., 2019; Voita et al., 2019).
# >
# > <details class="note"><summary>Two products say everything about a head</summary>
# >
# > Cut $W^O$ into $h$ blocks of rows, one for each head, and the result is a sum, $\sum_i \mathrm{head}_i W_i^O$: each
# > head adds a vector of its own to it. So $W_i^Q (W_i^K)^\top$ decides where a head looks, and $W_i^V W_i^O$ what it
# > passes on. Both have rank at most $d_k$.
# >
# > </details>
#
# ## Residuals and normalisation (Section 3.1)
#
# ![Where we are: additions and norms](images/here/residuals.svg)
#
# Both halves of the model are stacks of identical *layers*, and a layer consists of two or three *sublayers*: one or
# two attentions and a feed-forward network. Around each sublayer there's a **residual connection** (He et al., 2016),
# which adds the sublayer's input to its output, and **layer normalisation** (Ba et al., 2016).
#
# > **Why add?** Imagine that each position has a wire running from its embedding to the top of the stack. It carries a
# > vector of width `d_model`, often called the *residual stream*. Each sublayer reads the stream, computes something,
# > and adds it. So `auf` doesn't turn into the value of `Bank`: it stays `auf`, and now it also knows its noun.
# > Whatever an early layer writes is there for later layers to read, and in training the gradient has only a short way
# > from the loss back to each layer. Without the sum, each sublayer would have to copy word and position along, and
# > deep stacks would hardly learn.
#
# ![The residual stream of one position: on the left post-norm, with a norm after each addition, on the right pre-norm, with a norm before each sublayer](images/residual_stream.svg)
#
# > **Why normalise?** Each sublayer adds to the stream, so its vectors can grow to any size. But a sublayer works well
# > only for the sizes that it was trained on: with vectors ten times as long, dot products become a hundred times as
# > large. Layer normalisation shifts and scales the $d$ entries of each vector to mean 0 and variance 1, and then
# > applies a learned gain $\gamma$ and bias $\beta$ to each entry:
# >
# > $$\mathrm{LayerNorm}(x) = \gamma \odot \frac{x - \mu}{\sqrt{\sigma^2 + \epsilon}} + \beta$$
# > $$\mu = \frac{1}{d}\sum_i x_i, \qquad \sigma^2 = \frac{1}{d}\sum_i (x_i - \mu)^2$$
# >
# > A sublayer reads the normalised vector; what it computes is added to the stream itself, as on the right of the
# > picture. That order is called *pre-norm*. (The left is the paper's, *post-norm*; a [side
# > room](#The-paper's-order,-and-dropout) compares the two.)


# %%
class SublayerConnection(nn.Module):
    """A residual connection: x, plus what a sublayer makes of the norm of x (pre-norm)."""

    def __init__(self, d_model: int):
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x (B, T, d_model); the result has the same shape."""
        return x + sublayer(self.norm(x))


# %%
# @title LayerNorm in three lines
def layer_norm(x: Tensor, gain: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise the last dimension, then scale and shift it (Ba et al., 2016)."""
    mean = x.mean(-1, keepdim=True)
    variance = x.var(-1, keepdim=True, unbiased=False)
    return gain * (x - mean) / torch.sqrt(variance + eps) + bias


# %%
# @title The trained residual connections
@functools.cache
def our_connection(layer: int, sublayer: int) -> SublayerConnection:
    """The trained residual connection around a sublayer of the encoder."""
    plain = SublayerConnection(SIZES["d_model"])
    return our_file().fill(plain, f"encoder.layers.{layer}.sublayer.{sublayer}")


@functools.cache
def our_attended() -> Tensor:
    """The sentence after the first self-attention: (1, S, d_model)."""
    return our_connection(0, 0)(our_vectors(), lambda x: our_attention(0)(x, x, x))


# %%
@example
def example_residual() -> None:
    """The vector of `auf` on the stream, what attention adds to it, and the sum; then the first of
    these normalised, the way attention reads it. (A stream ten times as long gives the same.)"""
    x = our_vectors()
    norm = our_connection(0, 0).norm
    torch.testing.assert_close(layer_norm(x, norm.weight, norm.bias), norm(x))
    torch.testing.assert_close(norm(10 * x), norm(x), atol=1e-4, rtol=1e-4)
    vectors = {"stream": x, "+ attention": our_attended() - x, "= sum": our_attended()}
    vectors["stream, (x - μ) / σ"] = layer_norm(x, torch.tensor(1.0), torch.tensor(0.0))
    vectors["the same, × γ + β"] = norm(x)
    for name, vector in vectors.items():
        entries = [f"{value:6.2f}" for value in vector[0, 3, :6].tolist()]
        size = vector[0, 3].square().mean().sqrt()
        print(f"{name:20}", *entries, f"...   root mean square {size:.2f}")


# %% [markdown]
# > After the sum, `auf` is still mostly `auf`: its cosine with the vector before it is 0.93.
# >
# > <details class="note"><summary>Details of the norm, the earlier editions, and batch normalisation</summary>
# >
# > In the variance, the sum is divided by $d$, not by $d - 1$, and the small constant $\epsilon$ is inside the root.
# > The earlier editions divided by $d - 1$ and added $\epsilon$ outside the root. *Batch* normalisation takes the
# > mean and variance over the whole batch, so the result for one sentence would depend on the other sentences in its
# > batch, and on their padding. A layer's norm looks at one position alone: it computes the same in training and when
# > one token after the other is written.
# >
# > </details>
#
# ## Position-wise feed-forward networks (Section 3.3)
#
# ![Where we are: the feed-forward networks](images/here/feed_forward.svg)
#
# The other sublayer treats each position separately, but with the same weights everywhere. It consists of two linear
# maps with a ReLU between them:
#
# $$\mathrm{FFN}(x) = \max(0,\; xW_1 + b_1)\,W_2 + b_2 \tag{2}$$
#
# In the paper, the input and the output have width $d_{\text{model}} = 512$, and the inner layer has width
# $d_{\text{ff}} = 2048$; in our model, 128 and 256. The weights differ from layer to layer.
#
# > Attention moves information between positions, but all that it does is take averages. The feed-forward network is
# > where each position *computes* with what it has gathered. You can read it as a list of $d_{\text{ff}}$ rules, often
# > called *neurons*. A column of $W_1$ (PyTorch keeps it as a row) is the condition of a rule: its dot product with the
# > vector says how well it's met, and the ReLU cuts off anything below zero. The matching row of $W_2$ is the
# > conclusion: the vector that is added to the stream, in proportion to how well the condition is met.
# >
# > Without the ReLU, $(xW_1)W_2 = x(W_1W_2)$ would be a single matrix, however wide the middle.


# %%
class PositionwiseFeedForward(nn.Module):
    """The feed-forward network of Equation (2)."""

    def __init__(self, d_model: int, d_ff: int):
        super().__init__()
        self.W_1 = nn.Linear(d_model, d_ff)
        self.W_2 = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) to (B, T, d_model), each position on its own."""
        return self.W_2(self.W_1(x).relu())


# %% [markdown]
# > What does a neuron respond to? Here is number 215 of the 256 in the first layer:


# %%
# @title The trained feed-forward network of a layer
@functools.cache
def our_feed_forward(layer: int) -> PositionwiseFeedForward:
    """The trained feed-forward network of an encoder layer."""
    plain = PositionwiseFeedForward(SIZES["d_model"], SIZES["d_ff"])
    return our_file().fill(plain, f"encoder.layers.{layer}.feed_forward")


# %%
@example
def example_neuron(number: int = 215) -> Chart:
    """How strongly each token of the sentence meets the condition of one neuron
    of the first layer."""
    x = our_connection(0, 1).norm(our_attended())
    inner = our_feed_forward(0).W_1(x).relu()[0]  # (S, d_ff)
    print(f"on average, {(inner > 0).float().mean():.1%} of the neurons are above zero")
    rows = []
    for i, token in enumerate(token_names(our_ids()[0])):
        strength = inner[i, number].item()
        rows.append({"token": f"{i} {token}", "strength": strength, "neuron": str(number)})
    return bars(rows, "token", "strength", "neuron")


# %% [markdown]
# > It's a verb detector. Of all tokens of the vocabulary, each followed by `</s>`, it responds most strongly to `raucht`
# > (smokes), `liest` (reads) and `bedient` (serves).
# >
# > <details class="note"><summary>Why four times as wide?</summary>
# >
# > The paper gives no reason. In its Table 3, an inner layer half as wide costs 0.4 BLEU, and one twice as wide gains
# > 0.4. (Some call this network a memory, with the conditions as keys and the conclusions as values; the paper
# > also describes it as two convolutions with kernel size 1.)
# >
# > </details>
#
# ## The encoder (Section 3.1)
#
# ![Where we are: the encoder](images/here/encoder.svg)
#
# **The encoder** is a stack of $N = 6$ identical layers. Each has two sublayers: self-attention, then a feed-forward
# network.
#
# > Queries, keys and values all come from the same sentence; that is what *self*-attention means. The stack, folded,
# > calls one layer after the other and ends with a norm.


# %%
class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward (Section 3.1)."""

    def __init__(
        self, d_model: int, self_attn: nn.Module, feed_forward: nn.Module,
        connection: Callable[[int], nn.Module] = SublayerConnection,
    ):  # fmt: skip
        super().__init__()
        self.self_attn, self.feed_forward = self_attn, feed_forward
        self.sublayer = nn.ModuleList(connection(d_model) for _ in range(2))

    def forward(self, x: Tensor, src_mask: Mask) -> Tensor:
        """x (B, S, d_model), src_mask (B, 1, S)."""
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, src_mask))  # query = key = value
        return self.sublayer[1](x, self.feed_forward)


# %%
# @title The stack of encoder layers
class Encoder(nn.Module):
    """A stack of encoder layers (Section 3.1); pre-norm needs a norm at its end."""

    def __init__(self, layers: list[nn.Module], norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x: Tensor, src_mask: Mask) -> Tensor:
        """Embedded source (B, S, d_model) to memory (B, S, d_model)."""
        for layer in self.layers:
            x = layer(x, src_mask)
        return self.norm(x)


# %% [markdown]
# > Here are two heads of our encoder.


# %%
# @title The trained encoder, what comes out of each layer, and the weights of its heads
@functools.cache
def our_encoder() -> Encoder:
    """The trained encoder, made of the parts that we've met."""
    d_model = SIZES["d_model"]
    parts = [(our_attention(i), our_feed_forward(i)) for i in range(SIZES["N"])]
    layers = [EncoderLayer(d_model, attn, ffn) for attn, ffn in parts]
    return our_file().fill(Encoder(layers, nn.LayerNorm(d_model)), "encoder")


@functools.cache
def our_maps() -> tuple[list[Tensor], list[Tensor]]:
    """What leaves each encoder layer (1, S, d_model), and the weights of its heads (h, S, S)."""
    streams = [our_vectors()]
    with recording(our_encoder()) as weights:
        for layer in our_encoder().layers:
            streams.append(layer(streams[-1], None))
    return streams, [weights[layer.self_attn][0] for layer in our_encoder().layers]


@functools.cache
def our_memory() -> Tensor:
    """What the encoder makes of the sentence: (1, S, d_model)."""
    return our_encoder()(our_vectors(), None)


# %%
@example
def example_encoder_maps() -> Chart:
    """Who looks at whom in the second layer of the encoder, and in the third."""
    tokens = token_names(our_ids()[0])
    _, weights = our_maps()
    ahead = heatmap(weights[1][3], tokens, tokens, "layer 2, head 4")
    behind = heatmap(weights[2][2], tokens, tokens, "layer 3, head 3")
    return grid([[ahead, behind]])


# %% [markdown]
# > On the left, words look ahead to a noun that follows: `auf` and `einer` to `Bank`, `während` and `ein` to `Mann`.
# > `Mann`, `eine` and `Zeitung` each give nearly half of their weight to the verb at the end, `liest`. On the right,
# > half of the tokens look mostly at the one before them, which only the positional encodings make possible.


# %%
# @title The stream from layer to layer
@example
def example_streams() -> Any:
    """The size of the stream after each layer, all tokens together, and how similar the vectors of
    four of them still are to their starting points."""
    rows = []
    for i, x in enumerate(our_maps()[0]):
        cosines = F.cosine_similarity(x, our_vectors(), dim=-1)[0]
        size = x.square().mean().sqrt().item()
        row = {"after": f"layer {i}" if i else "embedding", "root mean square": round(size, 2)}
        for token, place in {"▁auf": 3, "▁Bank": 5, "▁liest": 12, "</s>": 14}.items():
            row[token] = round(cosines[place].item(), 2)
        rows.append(row)
    return table(rows)


# %% [markdown]
# > Inside the stack, nothing normalises the stream itself, so it grows from layer to layer, sixfold in all. That is why
# > the stack ends with one more norm. What comes out at the top is called the *memory*: one vector for each German token,
# > a vector that knows its surroundings. It's all that the decoder will ever see of the German.
#
# ## The decoder writes (Sections 3.1 and 3.2.3)
#
# ![Where we are: the decoder](images/here/decoder.svg)
#
# > The decoder reads `<s>`, the mark for the beginning, and predicts the first word. Then it reads `<s>` and that word,
# > and predicts the next one, and so on until it predicts `</s>`. Suppose that it has already written *Two women are
# > sitting on a bench while a man*. What comes next?
#
# **The decoder** is also a stack of $N = 6$ layers. Each has a third sublayer between the other two, which attends to
# the encoder's output.
#
# ### Masks
#
# ![Where we are: masked self-attention](images/here/masks.svg)
#
# The model uses attention in three ways. In *encoder self-attention* every source position may attend to every other.
# In *decoder self-attention* (today also called causal) each position may attend to itself and to the positions before
# it: nothing may flow back from later positions. These are ruled out by setting their scores to $-\infty$ before the
# softmax. In *encoder-decoder attention* (today usually called cross-attention), every target position may attend to
# all of the source.
#
# > Why hide the future from a decoder that hasn't written it yet? The decoder predicts a word at *every* position. When
# > it writes, only the last prediction is used. When it learns, it reads a finished translation, and all predictions
# > count at once ([Part 2](#Part-2:-How-it-learns)). What a position has to predict is then the next token of that very
# > translation, so no position may look ahead, in any layer.
# >
# > **Why $-\infty$ before the softmax, and not zero weights after it?** As $e^{-\infty} = 0$, a hidden key gets exactly
# > no weight, and the softmax shares the whole weight among the others. If you set weights to zero afterwards, the
# > rest would no longer add up to 1, and hidden keys would still have influenced them.
# >
# > Batches are a second reason for masking: shorter sentences are filled up with `<pad>`, and no position should attend
# > to padding. So every attention has a mask, cross-attention included. Masks always rule out **keys**, the columns of
# > the matrix of attention weights.


# %%
def source_mask(src: Tensor, pad: int = PAD) -> Tensor:
    """Which source positions (B, S) may be attended to: (B, 1, S), the same for every query."""
    return (src != pad).unsqueeze(-2)


def subsequent_mask(size: int) -> Tensor:
    """The causal mask (1, size, size), true on and below the diagonal (Section 3.1)."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


def target_mask(tgt: Tensor, pad: int = PAD) -> Tensor:
    """A mask (B, T, T): target positions (B, T) may attend neither to padding nor to the future."""
    return source_mask(tgt, pad) & subsequent_mask(tgt.size(-1)).to(tgt.device)


# %%
@example
def example_masks() -> Chart:
    """The three masks of a pair that ends in padding:
    a query (row) may attend to a key (column) if the square is dark."""
    src = torch.tensor([[5, 6, 7, EOS, PAD, PAD]])
    tgt = torch.tensor([[BOS, 8, 9, 10, PAD]])
    source = ["Ein", "Hund", "bellt", "</s>", "<pad>", "<pad>"]
    target = ["<s>", "A", "dog", "barks", "<pad>"]
    over_source = source_mask(src)[0]  # (1, 6): one row for all queries
    over_target = target_mask(tgt)[0]  # (5, 5)
    assert over_target.sum() == 1 + 2 + 3 + 4 + 4  # a padded query sees the four real keys
    encoder = heatmap(over_source.expand(6, 6), source, source, "encoder", unit="allowed")
    decoder = heatmap(over_target, target, target, "decoder", unit="allowed")
    cross = heatmap(over_source.expand(5, 6), target, source, "cross-attention", unit="allowed")
    return grid([[encoder, decoder, cross]])


# %% [markdown]
# > <details><summary>Masks and heads. What if every key of a row is masked? And does a mask know the order?</summary>
# >
# > In two of the masks all rows are equal, so the code keeps only one. In attention with heads, scores have one
# > dimension more, (B, h, T, S), and so must the mask: `mask.unsqueeze(1)`. Without that, a mask (B, T, S) would be
# > taken for one of (h, T, S): a batch of as many sentences as heads would run, and be wrong.
# >
# > A causal mask makes order matter, even without positions: the third word sees three words, the fourth sees four.
# >
# > With $-\infty$, every score in the row is $-\infty$, the softmax divides 0 by 0, and the result is NaN, which the
# > next layer spreads over the whole sentence. That's ugly, but at least you notice. The earlier editions used −10⁹,
# > which is a number that float16 can't hold. With it, all the scores of the row are equal, so the softmax gives every
# > key the same weight, *including the masked ones*, and nobody notices. The rule is therefore: every query must have
# > at least one key. It always does here: the first token of a sentence is never padding, and none of our masks hides
# > it from any query, not even from a padded one. That's harmless: nothing attends to a padded position, since its
# > column is masked, and its prediction doesn't enter the loss. So a translation mustn't depend on the rest of its
# > batch, and you can test that: compare a sentence alone and in a batch.
# >
# > </details>
#
# ### Layers of three sublayers
#
# ![Where we are: cross-attention](images/here/cross.svg)
#
# > A decoder layer first looks back at what has been written, then at the source. That second attention is where the
# > two languages meet: the queries come from the decoder, the keys and values from the memory. In code, it's one more
# > line:
# >
# > ```python
# > x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
# > ```
# >
# > All decoder layers read the same memory, the output of the *last* encoder layer, but each makes its own keys and
# > values from it.


# %%
# @title A layer of three sublayers
class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the memory, then feed-forward (Section 3.1)."""

    def __init__(
        self, d_model: int, self_attn: nn.Module, src_attn: nn.Module, feed_forward: nn.Module,
        connection: Callable[[int], nn.Module] = SublayerConnection,
    ):  # fmt: skip
        super().__init__()
        self.self_attn, self.src_attn, self.feed_forward = self_attn, src_attn, feed_forward
        self.sublayer = nn.ModuleList(connection(d_model) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, src_mask: Mask, tgt_mask: Mask) -> Tensor:
        """x (B, T, d_model), memory (B, S, d_model), src_mask (B, 1, S), tgt_mask (B, T, T)."""
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        # keys and values: memory
        x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)


# %%
# @title The stack of decoder layers
class Decoder(nn.Module):
    """A stack of decoder layers (Section 3.1); pre-norm needs a norm at its end."""

    def __init__(self, layers: list[nn.Module], norm: nn.Module):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    def forward(self, x: Tensor, memory: Tensor, src_mask: Mask, tgt_mask: Mask) -> Tensor:
        """Embedded target (B, T, d_model) and memory (B, S, d_model) to vectors (B, T, d_model)."""
        for layer in self.layers:
            x = layer(x, memory, src_mask, tgt_mask)
        return self.norm(x)


# %%
# @title The trained decoder, and what it makes of ids
@functools.cache
def our_decoder() -> Decoder:
    """The trained decoder."""
    d_model = SIZES["d_model"]
    attn = functools.partial(MultiHeadedAttention, SIZES["h"], d_model)
    ffn = functools.partial(PositionwiseFeedForward, d_model, SIZES["d_ff"])
    torch.manual_seed(0)
    layers = [DecoderLayer(d_model, attn(), attn(), ffn()) for _ in range(SIZES["N"])]
    return our_file().fill(Decoder(layers, nn.LayerNorm(d_model)), "decoder")


def our_decoded(ids: Tensor) -> Tensor:
    """Target ids (1, T) to the decoder's vectors (1, T, d_model), one for each position."""
    x = our_embeddings()(ids) + positional_encoding(ids.size(1), SIZES["d_model"])
    return our_decoder()(x, our_memory(), None, subsequent_mask(ids.size(1)))


def target_ids() -> Tensor:
    """The beginning of a translation, as ids: (1, T)."""
    written = ["<s>", "▁Two", "▁women", "▁are", "▁sitting", "▁on", "▁a", "▁bench", "▁while",
               "▁a", "▁man"]  # fmt: skip
    return torch.tensor([[our_file().vocabulary.token_to_id(token) or UNK for token in written]])


# %% [markdown]
# > The last position reads `man` and has to find the next word. It skips `eine Zeitung` and gives `liest` three quarters
# > of its weight: the verb that German has put at the very end of the clause, and that English needs now.


# %%
@example
def example_cross() -> Chart:
    """Which German words each position of the translation looks at:
    cross-attention of the third decoder layer, mean of its four heads."""
    ids = target_ids()
    with recording(our_decoder()) as weights:
        our_decoded(ids)
    rows = [f"{a} → {b}" for a, b in itertools.pairwise([*token_names(ids[0]), "?"])]
    mean = weights[our_decoder().layers[2].src_attn][0].mean(0)  # (T, S)
    return heatmap(mean, rows, token_names(our_ids()[0]), axes=("reads → predicts", "looks at"))


# %% [markdown]
# > Each row is labelled with the token that it reads and the one that it's about to predict. English follows German
# > almost word for word here, so much of the map is close to a diagonal.
#
# ## A vector becomes a word (Section 3.4)
#
# ![Where we are: linear layer and softmax](images/here/word.svg)
#
# A learned linear map and a softmax turn the decoder's vectors into probabilities for the next token. The linear map
# uses the same matrix as the embeddings.
#
# > The decoder's stack ends with a norm, too. To score a token is to take the dot product of its row in the table (not
# > scaled, here) with the decoder's vector. The largest product wins: a row gets one by pointing the right way, or by
# > being long. The scores are called *logits*, and the logarithms of the probabilities *log-probabilities*. In
# > code, `generator.proj.weight = embeddings.table.weight`.


# %%
# @title The linear layer and softmax
class Generator(nn.Module):
    """The linear layer and softmax on top of the decoder (Section 3.4)."""

    def __init__(self, d_model: int, vocab: int):
        super().__init__()
        self.proj = nn.Linear(d_model, vocab, bias=False)

    def logits(self, x: Tensor) -> Tensor:
        """Unnormalised scores (..., vocab)."""
        return self.proj(x)

    def forward(self, x: Tensor) -> Tensor:
        """Log-probabilities (..., vocab)."""
        return self.logits(x).log_softmax(dim=-1)


# %%
# @title The trained output layer
@functools.cache
def our_generator() -> Generator:
    """The trained output layer: the matrix is that of the embeddings."""
    generator = Generator(SIZES["d_model"], our_file().vocabulary.get_vocab_size())
    generator.proj.weight = our_embeddings().table.weight
    return generator


# %%
@example
def example_next_word() -> None:
    """The five most probable tokens after `Two women are sitting on a bench while a man`."""
    chances, ids = our_generator()(our_decoded(target_ids()))[0, -1].exp().topk(5)
    for token, chance in zip(token_names(ids), chances.tolist(), strict=True):
        print(f"{token:10}{chance:6.1%}")


# %% [markdown]
# > All that remains is a loop: take the most probable token, add it to what has been written, and ask again. That's
# > *greedy decoding*.


# %%
def write_by_hand(longest: int = 30) -> Tensor:
    """The translation of the sentence, token by token, each the most probable one: ids (1, T)."""
    ids = torch.tensor([[BOS]])
    while ids.size(1) < longest and ids[0, -1] != EOS:
        logits = our_generator().logits(our_decoded(ids))  # (1, T, vocab)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=1)
    return ids


# %%
@example
def example_translation() -> None:
    """The German sentence and its translation."""
    ids = write_by_hand()[0]
    print(SENTENCE)
    print(text_of(ids))


# %% [markdown]
# > There it is: a translation, although no line of the code knows a word of either language. All the German and all the
# > English are in two million numbers.
# >
# > **Predict.** At each step the model took its favourite. How probable does it find the whole translation: what's the
# > product of the probabilities of its 15 tokens?
# >
# > 1. about 90%
# > 2. about 40%
# > 3. about 6%
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **3.** For 90% (1), each token would need more than 99%, and for 40% (2) about 94%. But *are* has only 41%, because
# > *Two women sit* (29%) and *Two women sitting* (21%) weren't far behind. Where there's no choice, the first of the
# > five favourites gets about 90%: in training the model was asked for no more than that, so its training loss couldn't
# > fall below 1.2. This is called [label smoothing](#Regularisation-(Section-5.4)).
# >
# > </details>


# %%
@example
def example_top_five() -> Any:
    """What the decoder reads at each step, and its five favourites: all positions at once, which
    gives what the loop found one by one."""
    ids = write_by_hand()
    chances, favourites = our_generator()(our_decoded(ids[:, :-1]))[0].exp().topk(5)  # (T, 5)
    assert torch.equal(favourites[:, 0], ids[0, 1:])  # what was written one by one
    rows = []
    for t, token in enumerate(token_names(ids[0, :-1])):
        row = {"reads": token}
        for i, name in enumerate(token_names(favourites[t])):
            row[f"{i + 1}."] = f"{name} {chances[t, i]:.1%}"
        rows.append(row)
    return table(rows)


# %% [markdown]
# > <details class="note"><summary>Does the loop need the causal mask?</summary>
# >
# > When the decoder writes, nothing comes after the last position. But the loop computes all positions again for each
# > new word, and without the mask earlier positions would see later ones, which never happened in training. Without the
# > mask, our translation would become *Two women sit on a bench while a man reads a newspaper*, which is still right,
# > by luck. (A [cache](#Keeping-keys-and-values) saves the work.)
# >
# > </details>
#
# ## The model assembled
#
# ![Where we are: everything](images/here/assembled.svg)
#
# > The folded cells make one object of the parts: `encode` turns a source into its memory, `decode` a target into
# > vectors, and calling the model does both and returns logits.


# %%
# @title The model as one object
class Transformer(nn.Module):
    """Encoder, decoder, embeddings and generator put together (Section 3, Figure 1)."""

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module,
        src_embed: nn.Module, tgt_embed: nn.Module, generator: nn.Module,
    ):  # fmt: skip
        super().__init__()
        self.encoder, self.decoder = encoder, decoder
        self.src_embed, self.tgt_embed, self.generator = src_embed, tgt_embed, generator

    def encode(self, src: Tensor, src_mask: Mask) -> Tensor:
        """Source ids (B, S) with mask (B, 1, S) to memory (B, S, d_model)."""
        return self.encoder(self.src_embed(src), src_mask)

    def decode(self, memory: Tensor, src_mask: Mask, tgt: Tensor, tgt_mask: Mask) -> Tensor:
        """Target ids (B, T) with mask (B, T, T) to vectors (B, T, d_model)."""
        return self.decoder(self.tgt_embed(tgt), memory, src_mask, tgt_mask)

    def forward(self, src: Tensor, tgt: Tensor, src_mask: Mask, tgt_mask: Mask) -> Tensor:
        """Logits (B, T, vocab) of the token that follows each target position."""
        memory = self.encode(src, src_mask)
        return self.generator.logits(self.decode(memory, src_mask, tgt, tgt_mask))


# %%
# @title Embeddings and positions as one module
class PositionalEncoding(nn.Module):
    """Adds positional encodings, then dropout (Sections 3.5 and 5.4); its table grows if needed."""

    def __init__(self, d_model: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("table", positional_encoding(256, d_model), persistent=False)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model) begins at position `start`, which decoding token by token needs."""
        end = start + x.size(1)
        table = self.table  # which another thread may replace
        if torch.compiler.is_exporting():  # a table would limit the length of sentences
            table = positional_encoding(end, x.size(-1))
        elif end > len(table):
            table = self.table = positional_encoding(2 * end, x.size(-1)).to(table)
        return self.dropout(x + table[start:end].to(x))


class LearnedPositions(nn.Module):
    """Adds a learned vector for each position, then dropout (Section 3.5; Table 3, row E)."""

    def __init__(self, d_model: int, dropout: float, longest: int = 512):
        super().__init__()
        self.dropout, self.table = nn.Dropout(dropout), nn.Embedding(longest, d_model)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model) begins at position `start`; ValueError beyond the last one learned."""
        end = start + x.size(1)
        if end > (last := len(self.table.weight)):
            raise ValueError(f"a sentence has {end} tokens, but only {last} positions are learned")
        return self.dropout(x + self.table.weight[start:end])


class EmbeddingsWithPositions(nn.Module):
    """What is below each stack: embeddings plus positional encoding (Figure 1)."""

    def __init__(self, embeddings: Embeddings, positions: nn.Module):
        super().__init__()
        self.embeddings, self.positions = embeddings, positions

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids (B, T) to vectors (B, T, d_model); `start` is the position of the first."""
        return self.positions(self.embeddings(ids), start)


# %%
# @title The trained model, and what it makes of any sentence
def our_transformer() -> Transformer:
    """A new copy of the trained model, assembled from the parts that we've met."""
    place = EmbeddingsWithPositions(our_embeddings(), PositionalEncoding(SIZES["d_model"], 0.0))
    model = Transformer(our_encoder(), our_decoder(), place, place, our_generator())
    return copy.deepcopy(model.eval())


def written(model: Transformer, src: Tensor, longest: int = 30) -> Tensor:
    """What a model writes for a source (1, S), each time the most probable token: ids (1, T)."""
    memory, ids = model.encode(src, None), torch.tensor([[BOS]])
    while ids.size(1) < longest and ids[0, -1] != EOS:
        x = model.decode(memory, None, ids, subsequent_mask(ids.size(1)))
        ids = torch.cat([ids, model.generator.logits(x[:, -1:]).argmax(-1)], dim=1)
    return ids


def translation(model: Transformer, sentence: str) -> str:
    """What a model with our vocabulary writes for a sentence."""
    src = torch.tensor([[*our_file().vocabulary.encode(sentence).ids, EOS]])
    return text_of(written(model, src)[0])


def translate(sentence: str, positions: bool = True, scaling: bool = True) -> str:
    """The trained model's translation, on request without source positions or division by √d_k."""
    model = our_transformer()
    if not positions:
        model.src_embed = model.src_embed.embeddings
    for attn in model.modules():
        if isinstance(attn, MultiHeadedAttention) and not scaling:
            attn.W_q.weight *= math.sqrt(attn.W_q.out_features // attn.h)  # undoes the division
    return translation(model, sentence)


# %%
@example
def example_assembled() -> None:
    """The assembled model, compared with what we got step by step."""
    model, ids = our_transformer(), write_by_hand()
    torch.testing.assert_close(model.encode(our_ids(), source_mask(our_ids())), our_memory())
    logits = model(our_ids(), ids[:, :-1], source_mask(our_ids()), target_mask(ids[:, :-1]))
    torch.testing.assert_close(logits, our_generator().logits(our_decoded(ids[:, :-1])))
    assert torch.equal(logits.argmax(-1), ids[:, 1:])
    assert translate(SENTENCE) == text_of(ids[0])
    weights = sum(p.numel() for p in model.parameters())
    print(f"{weights:,} weights; memory, logits and translation agree")


# %% [markdown]
# > You now have a translator in your hands. Break it.
# >
# > **Try it.** `translate("Ein Mann jagt einen Hund.")` gives *A man chases a dog.* Swap the man and the dog, and take
# > the positions away from the source: `translate("Ein Hund jagt einen Mann.", positions=False)`. Who chases whom?
# >
# > 1. the dog chases the man: the word endings say so
# > 2. nonsense
# > 3. the man chases the dog
# >
# > <details class="answer"><summary>What happens</summary>
# >
# > **3.** *A man chases a dog.* Both sentences consist of the same five words and a full stop, and without positions
# > the encoder can't tell them apart, so it *must* give both the same translation: of the two that make sense (so not
# > 2), the likelier. The endings (1) say that one of them is chased; which one, only the order says.
# >
# > </details>
# >
# > **Try it.** Take away the division by $\sqrt{d_k}$: `translate(SENTENCE, scaling=False)`. All scores become
# > $\sqrt{32} \approx 5.7$ times as large. Does the translation survive?
# >
# > 1. it becomes worse: the weights are no longer those of training
# > 2. yes
# > 3. no: it's one word, again and again
# >
# > <details class="answer"><summary>What happens</summary>
# >
# > **2.** Word for word: the largest score is still the largest, for each query another (so not 3), and here one word is
# > enough. Where several are to be blended, it does harm (1): `Ein Hund fotografiert einen Mann.` becomes *A dog is taking
# > pictures of a dog, wearing.* Training suffers more.
# >
# > </details>
# >
# > **Predict.** There are three kinds of attention. Let one of them add nothing, in all layers. Without which one does
# > our sentence still come out word for word as before?
# >
# > 1. without the decoder's own, as cross-attention has found the word
# > 2. without the encoder's, as each word can be translated by itself
# > 3. it doesn't without any of them
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **2.** The encoder's attention tells a word what belongs to it. Our sentence is clear without (so not 3), but `Ein Mann
# > mit Anzug und Brille hält ein Buch in den Händen.` becomes *A man with glasses and a book in a suit is holding a
# > book.* Without its own attention (1), the decoder doesn't know what it has written, and goes round in circles.
# >
# > </details>
# >
# > **Predict.** Back to the whole model. The source keeps its positions, the *target* loses them: the decoder gets
# > nothing but the embeddings of what it has written. What comes out?
# >
# > 1. the same as before
# > 2. the right words in another order
# > 3. some words twice, as it can't tell how far it is
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **1.** With the causal mask, attention isn't a bag of words: the first position sees one token, the second two, and so
# > on, so what they receive tells how far they are (so not 3). And each position asks from the token that has just been
# > written, and so knows what can follow it (not 2). The model learned with positions, and hardly needs them here.
# >
# > </details>


# %%
@example
def example_taken_away() -> None:
    """The translation without one kind of attention, and without the target's positions."""
    for name in ("encoder.self_attn", "decoder.self_attn", "decoder.src_attn"):
        stack, kind = name.split(".")
        model = our_transformer()
        for layer in getattr(model, stack).layers:
            getattr(layer, kind).W_o.weight.zero_()
        print(f"without {name}:\n  {translation(model, SENTENCE):.80}")
    model = our_transformer()
    model.tgt_embed = model.tgt_embed.embeddings
    print(f"without the target's positions:\n  {translation(model, SENTENCE)}")


# %% [markdown]
# > *The road goes on with [Part 2](#Part-2:-How-it-learns). The rest of this part is for those who want to build a
# > model: where the paper puts the norm, dropout, and fresh weights.*
#
# ## The paper's order, and dropout
#
# In the paper, the norm comes after the addition:
#
# $$\mathrm{LayerNorm}(x + \mathrm{Sublayer}(x))$$
#
# All sublayers and the embeddings have outputs of the same width, $d_{\text{model}} = 512$. **Dropout** (Srivastava et
# al., 2014; Section 5.4) is applied to the output of each sublayer, before it is added to the sublayer's input.
#
# > Today that order is called *post-norm*. The authors' own code soon moved to *pre-norm*, $x +
# > \mathrm{Sublayer}(\mathrm{LayerNorm}(x))$, and most models since have done the same. In post-norm, a norm rescales
# > the stream after every addition, with everything written on it so far; so no norm is needed at the end of a stack.
# >
# > In training, dropout sets each entry to zero with probability $P_{\text{drop}}$, and multiplies the others by $1 /
# > (1 - P_{\text{drop}})$, so that the expected value of each entry stays the same. It is applied to what the
# > sublayer adds rather than to the stream: anything zeroed on the stream would be lost to all later layers. (There's
# > one exception: at the bottom, dropout acts on the stream itself, on the sum of embedding and position.) When the
# > model translates, dropout does nothing.


# %%
class DroppingConnection(SublayerConnection):
    """With dropout on what the sublayer adds (Section 5.4), and perhaps with another norm."""

    def __init__(
        self, d_model: int, dropout: float, norm: Callable[[int], nn.Module] | None = None
    ):
        super().__init__(d_model)
        self.dropout = nn.Dropout(dropout)
        if norm:
            self.norm = norm(d_model)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x (B, T, d_model); the result has the same shape."""
        return super().forward(x, lambda y: self.dropout(sublayer(y)))


class PostNorm(DroppingConnection):
    """The paper's order: first the sum, then the norm (Section 3.1)."""

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x (B, T, d_model); the result has the same shape."""
        return self.norm(x + self.dropout(sublayer(x)))


# %%
# @title Attention and feed-forward network with inner dropout, and keys of another width
class AdjustableAttention(MultiHeadedAttention):
    """With dropout on weights (Section 6.3), and keys of width d_k, if given (Table 3, row B)."""

    def __init__(self, h: int, d_model: int, dropout: float = 0.0, d_k: int | None = None):
        super().__init__(h, d_model)
        self.dropout = nn.Dropout(dropout)
        if d_k:
            self.W_q, self.W_k = (nn.Linear(d_model, h * d_k, bias=False) for _ in range(2))

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask) -> Tensor:
        """Equation (1) in every head: (B, h, T, d_v)."""
        if self.training and self.dropout.p:
            return attention(Q, K, V, mask, self.dropout)[0]
        return super().weigh(Q, K, V, mask)


class DroppingFeedForward(PositionwiseFeedForward):
    """With dropout between the two matrices, as in the authors' code."""

    def __init__(self, d_model: int, d_ff: int, dropout: float):
        super().__init__(d_model, d_ff)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) to (B, T, d_model), each position on its own."""
        if self.training and self.dropout.p:
            return self.W_2(self.dropout(self.W_1(x).relu()))
        return super().forward(x)


# %% [markdown]
# ## A fresh model
#
# > `make_model` builds a new model, with fresh weights. Its sizes are those of the paper's base model, which also
# > shares its matrices: `make_model(37_000, 37_000, tie="all")`. The keyword arguments `norm`, `positions` and `tie`
# > select variants. `tie` says which of the three embedding matrices are shared: `"all"` as in the paper (the two
# > languages then need a shared vocabulary), `"target"` for the two on the target side, or `"none"`, which gives the
# > base model two more tables of $37000 \times 512$: 38 million weights on top of its 63 million. `positions` and the
# > last five arguments put other parts into the model. Each call of `attn()` below makes a module with weights of its
# > own. Copies of one layer (`copy.deepcopy`) would share none either, but all would begin with the same weights.
# >
# > <details class="note"><summary>The other arguments</summary>
# >
# > `d_k` is the width of queries and keys if it isn't `d_model / h` (Table 3, row B). `inner_dropout` adds two more
# > uses of dropout, which Section 5.4 doesn't name: one on the attention weights, which Section 6.3 mentions in
# > passing, and one inside the feed-forward network, which only the authors' code has. In their first release both
# > rates were 0, as they are here.
# >
# > </details>


# %%
Part = Callable[..., nn.Module]  # a class, or a function that gives a new module
POSITIONS = {"sinusoidal": PositionalEncoding, "learned": LearnedPositions}
CONNECTIONS = {"post": PostNorm, "pre": DroppingConnection}


def make_model(
    src_vocab: int, tgt_vocab: int, N: int = 6, d_model: int = 512, d_ff: int = 2048, h: int = 8,
    dropout: float = 0.1, *, norm: Literal["post", "pre"] = "post",
    tie: Literal["none", "target", "all"] = "none", inner_dropout: float = 0.0,
    d_k: int | None = None, positions: Literal["sinusoidal", "learned"] | Part = "sinusoidal",
    attention: Part = AdjustableAttention, cross_attention: Part | None = None,
    feed_forward: Part = DroppingFeedForward, connection: Part | None = None,
    norm_layer: Part | None = None,
) -> Transformer:  # fmt: skip
    """A fresh Transformer, by default of the base model's sizes (Table 3), its matrices untied.

    Raises ValueError if sizes do not fit.
    """
    settings = dict(N=N, d_model=d_model, d_ff=d_ff, h=h, dropout=dropout, norm=norm, tie=tie)
    settings |= dict(inner_dropout=inner_dropout, d_k=d_k)
    if isinstance(positions, str):
        settings["positions"] = positions
    check_sizes(src_vocab, tgt_vocab, settings)
    attn = functools.partial(attention, h, d_model, inner_dropout, d_k)
    cross = functools.partial(cross_attention or attention, h, d_model, inner_dropout, d_k)
    ffn = functools.partial(feed_forward, d_model, d_ff, inner_dropout)
    connect = functools.partial(connection or CONNECTIONS[norm], dropout=dropout, norm=norm_layer)
    kind = POSITIONS[positions] if isinstance(positions, str) else positions
    place = functools.partial(kind, d_model, dropout)
    last_norm = functools.partial(norm_layer or nn.LayerNorm, d_model)
    if norm == "post":
        last_norm = nn.Identity
    layers = [EncoderLayer(d_model, attn(), ffn(), connect) for _ in range(N)]
    encoder = Encoder(layers, last_norm())
    layers = [DecoderLayer(d_model, attn(), cross(), ffn(), connect) for _ in range(N)]
    decoder = Decoder(layers, last_norm())
    src_embed = EmbeddingsWithPositions(Embeddings(d_model, src_vocab), place())
    tgt_embed = EmbeddingsWithPositions(Embeddings(d_model, tgt_vocab), place())
    model = Transformer(encoder, decoder, src_embed, tgt_embed, Generator(d_model, tgt_vocab))
    model.settings = settings  # to be saved with the weights
    initialise(model, tie)
    return model


# %% [markdown]
# > **How do the weights start?** Matrices start with Glorot's uniform initialisation (Glorot and Bengio, 2010;
# > PyTorch uses Glorot's first name, Xavier): random numbers of variance $2 / (n_{\text{in}} + n_{\text{out}})$, so
# > that neither activations nor gradients grow or shrink much from layer to layer. Embeddings start with a standard
# > deviation of $d_{\text{model}}^{-1/2}$, and so does an output matrix that is tied to them, as in the authors'
# > code. The paper says nothing about initialisation.


# %%
def initialise(model: Transformer, tie: str) -> None:
    """Glorot for matrices, a standard deviation of d_model ** -0.5 for embeddings.

    Then matrices are shared, as `tie` says (Section 3.4).
    """
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
CHOICES = {"norm": [*CONNECTIONS], "tie": ["none", "target", "all"], "positions": [*POSITIONS]}
SIZE_NAMES = ("src_vocab", "tgt_vocab", "N", "d_model", "d_ff", "h", "d_k")


def check_sizes(src_vocab: int, tgt_vocab: int, settings: dict[str, Any]) -> None:
    """Raise ValueError for what does not make a model."""
    for name, value in {"src_vocab": src_vocab, "tgt_vocab": tgt_vocab, **settings}.items():
        if name in CHOICES and value not in CHOICES[name]:
            *names, last = CHOICES[name]
            raise ValueError(f"{name} must be {', '.join(names)} or {last}, but it is {value}")
        if name.endswith("dropout") and not (isinstance(value, Real) and 0 <= value < 1):
            raise ValueError(f"{name} must be at least 0 and below 1, but it is {value!r}")
        is_size = name in SIZE_NAMES and (name, value) != ("d_k", None)
        if is_size and not (isinstance(value, Integral) and value >= 1):
            raise ValueError(f"{name} must be a whole number, at least 1, but it is {value!r}")
    d_model, h = settings["d_model"], settings["h"]
    if d_model % h:
        raise ValueError(f"d_model must be a multiple of h, but d_model = {d_model} and h = {h}")
    if d_model % 2 and settings["positions"] == "sinusoidal":
        raise ValueError(f"d_model must be even for pairs of sine and cosine, but it is {d_model}")
    if settings["tie"] == "all" and src_vocab != tgt_vocab:
        raise ValueError(
            "tie='all' needs one vocabulary for both sides, "
            f"but the sizes are {src_vocab} and {tgt_vocab}"
        )


# %% [markdown]
# > **Pre- or post-norm: what happens to the gradient?** In a fresh post-norm model the last layers receive far more
# > gradient than the first ones; with pre-norm all layers receive about the same (Xiong et al., 2020). The left chart
# > shows this for twelve decoder layers. With post-norm, large steps can do damage, which may be one reason why it
# > helps to begin with a small learning rate (though not the only one, as Adam divides by the size of the gradients).
# > The right chart shows the size of the residual stream: post-norm resets it after every layer, while pre-norm lets it
# > grow. That's what pre-norm costs: the larger the stream, the less the next layer can change it.


# %%
# @title A fresh model's gradients, layer by layer
def fresh_layers(norm: str, N: int = 12) -> list[dict]:
    """For each decoder layer of a fresh model on random data: what it does at initialisation.

    That is its gradient's norm, and the size of the stream behind it.
    """
    torch.manual_seed(0)
    model = make_model(100, 100, N=N, d_model=64, d_ff=128, h=4, dropout=0.0, norm=norm)
    sizes = []
    for layer in model.decoder.layers:
        layer.register_forward_hook(lambda _, __, x: sizes.append(x.square().mean().sqrt().item()))
    src = torch.randint(4, 100, (32, 12))
    tgt = torch.randint(4, 100, (32, 13))
    logits = model(src, tgt[:, :-1], source_mask(src), subsequent_mask(12))
    F.cross_entropy(logits.flatten(0, 1), tgt[:, 1:].flatten()).backward()
    rows = []
    for i, layer in enumerate(model.decoder.layers):
        gradient = layer.feed_forward.W_2.weight.grad.norm().item()
        rows.append({"gradient": gradient, "RMS of the stream": sizes[i]})
        rows[-1] |= {"layer": i + 1, "norm": norm}
    return rows


@example
def example_pre_post() -> Chart:
    """At initialisation, post-norm's gradient grows towards the top;
    pre-norm's stays level while its stream grows."""
    post, pre = fresh_layers("post"), fresh_layers("pre")
    growth = {rows[0]["norm"]: rows[-1]["gradient"] / rows[0]["gradient"] for rows in (post, pre)}
    texts = [f"{norm}-norm {x:.1f}" for norm, x in growth.items()]
    print("gradient of the last layer over that of the first:", ", ".join(texts))
    assert growth["post"] > 10 and 1 / 4 < growth["pre"] < 4
    assert pre[-1]["RMS of the stream"] > 1.5 > 1.01 > post[-1]["RMS of the stream"]
    gradients = curves(post + pre, "layer", "gradient", "norm", log_y=True, width=280)
    sizes = curves(post + pre, "layer", "RMS of the stream", "norm", width=280)
    return grid([[gradients, sizes]])


# %% [markdown]
# ## Summary of Part 1
#
# > Attention is the only place where positions meet, and masks rule out keys. Everything else works on each position
# > alone, and every result is added to the stream.


# %% [markdown]
# # Part 2: How it learns
#
# > A fresh model has random numbers in its matrices. It learns from pairs of sentences, in three steps that are
# > repeated thousands of times: predict, measure the error, move every weight a little in the direction that makes the
# > error smaller.
#
# ## Batches and the shift (Section 5.1)
#
# The decoder's input is the target, shifted right by one position (Sections 3 and 3.1, Figure 1).
#
# ![The target `<s> two cats </s>`, used twice: its first three tokens are read, its last three predicted](images/target_shift.svg)
#
# > Each target sentence is used twice. Without its last token, `tgt[:, :-1]` in code, it's what the decoder *reads*;
# > without its first, `tgt[:, 1:]`, it's what the decoder must *predict*. (A `Batch`, folded, keeps the two as `tgt`
# > and `tgt_y`.) In the picture, the position that reads `two` may look at `<s>` and `two`, and must predict `cats`.
# >
# > **All positions at once.** The decoder reads the whole target in one pass, with the mask. Each position sees what it
# > would have seen had it written the right words, and computes the same. So one pass gives a prediction, and an error,
# > at *every* position: that's why a Transformer trains so fast, although it writes one word at a time. Showing the
# > model the true earlier tokens instead of its own guesses is called *teacher forcing*. It has a price: the model never
# > learns what to do after a mistake of its own, which is called *exposure bias*.
# >
# > If you forget the shift, each position has to predict the very token that it reads. Copying is easy, so the error soon
# > falls almost to zero; and when the model writes, it copies its first token, `<s> <s> <s> …`, for ever.


# %%
# @title Sentences as a batch
def pad_rows(rows: list[list[int]], pad: int = PAD) -> Tensor:
    """Rows of ids as one tensor (B, longest), filled up with `pad`."""
    longest = max(len(row) for row in rows)
    return torch.tensor([row + [pad] * (longest - len(row)) for row in rows])


class Batch:
    """Sources (B, S), targets (B, T + 1), and what the model needs of them (Sections 3.1, 5.1)."""

    pad = PAD  # of a Batch whose own `__init__` names no other

    def __init__(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD):
        check_ids(src)
        self.pad = pad
        self.src = src  # (B, S)
        self.src_mask = source_mask(src, pad)  # (B, 1, S)
        if tgt is not None:
            check_ids(tgt)
            self.tgt = tgt[:, :-1]  # what is read (B, T)
            self.tgt_y = tgt[:, 1:]  # what is predicted (B, T)
            self.tgt_mask = target_mask(self.tgt, pad)  # (B, T, T)
            self.ntokens = int((self.tgt_y != pad).sum())

    def to(self, device: torch.device) -> "Batch":
        """The same batch with its tensors on `device`."""
        vars(self).update({k: x.to(device) for k, x in vars(self).items() if isinstance(x, Tensor)})
        return self


# %% [markdown]
# ## The loss
#
# > The error is measured by the *cross-entropy*: the loss of a token is $-\log p(y)$, where $p(y)$ is the probability
# > that the model gave to the right token $y$. Probability 1 costs nothing; every time the probability halves, the loss
# > grows by 0.69. The loss of a batch is the mean over the target's tokens, without padding. The exponential of that
# > mean is the *perplexity*: a model with perplexity 5 is as unsure as if it had to guess among five tokens.
# >
# > **Predict.** Our vocabulary has 6,106 tokens. Make a fresh model, and let the entries of its table of embeddings be
# > random numbers of about 1 in size, as PyTorch does. What is its first loss?
# >
# > 1. about $\log 6106 \approx 8.7$, as it knows nothing
# > 2. far more
# > 3. far less
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **2.** About 127. Finding all tokens equally likely costs 8.7 (1), and for less it would have to know something (3).
# > But this one is *sure*, and wrong. What it reads stays on the stream, and the output layer has the same rows: a row's
# > product with itself adds up 128 squares, so each position is sure of the token that it has just read. So the entries
# > must begin at about $d_{\text{model}}^{-0.5}$, and tokens that are read are multiplied by $\sqrt{d_{\text{model}}}$.
# > Then the first loss is about 9. (Always compare it with the logarithm of the vocabulary's size.)
# >
# > </details>
# >
# > **Where learning begins: $p - q$.** How should the scores change so that the loss falls? The probabilities are the
# > softmax of the logits $z$, so $\log p_k = z_k - \log \sum_j e^{z_j}$. Let $q$ be what the model should say: 1 for
# > the right token, 0 for all others. Then the loss is $-\sum_k q_k \log p_k = \log
# > \sum_j e^{z_j} - \sum_k q_k z_k$, and its derivative is what the model says minus what it should say:
# >
# > $$\frac{\partial\,\mathrm{loss}}{\partial z_k} = p_k - q_k$$
# >
# > A token that got too much probability is pushed down, one that got too little is pulled up, and the force is as
# > large as the error. Take our trained model at the moment when it has read *Two women are sitting on a bench while a
# > man* and should say *reads*:


# %%
@example
def example_p_minus_q() -> Any:
    """What the trained model says, what it should say, and the gradient:
    its five largest entries."""
    logits = our_generator().logits(our_decoded(target_ids()))[0, -1].requires_grad_()  # (vocab)
    target = torch.tensor(our_file().vocabulary.token_to_id("▁reads") or UNK)
    F.cross_entropy(logits, target).backward()
    p = logits.detach().softmax(-1)
    q = F.one_hot(target, len(logits))
    torch.testing.assert_close(logits.grad, p - q, atol=1e-6, rtol=1e-4)
    largest = [target, *(i for i in p.topk(5).indices if i != target)][:5]
    rows = []
    for i, token in zip(largest, token_names(torch.stack(largest)), strict=True):
        row = {"token": token, "p": f"{p[i]:.3f}", "q": q[i].item()}
        rows.append(row | {"p − q": f"{p[i] - q[i]:+.3f}"})
    return table(rows)


# %% [markdown]
# > From the logits, the error travels back through every layer, by the chain rule: each part takes the gradient of its
# > output, and passes on that of its input and of its weights. PyTorch does all of that in `backward`. (In
# > [`one_screen.py`](one_screen.py), each function has its derivative beside it.)
#
# ## One update
#
# The learning rate first rises linearly, for `warmup` = 4000 updates, and then falls with the inverse square root of
# the update number (Section 5.3):
#
# $$\mathit{lrate} = d_{\text{model}}^{-0.5} \cdot \min(\mathit{step}^{-0.5},\; \mathit{step} \cdot \mathit{warmup}^{-1.5}) \tag{3}$$


# %%
def rate(step: int, model_size: int, factor: float, warmup: int) -> float:
    """The learning rate at update `step`, counted from 1, Equation (3); step 0 counts as 1."""
    step = max(step, 1)
    return factor * model_size**-0.5 * min(step**-0.5, step * warmup**-1.5)


# %%
@example
def example_rate() -> Chart:
    """Three schedules; the rate peaks at the end of the warmup.
    After it, the schedule no longer depends on how long the warmup was."""
    rows = []
    for d, w in ((512, 4000), (512, 8000), (256, 4000)):
        for s in range(1, 20_001, 100):
            rows.append({"update": s, "rate": rate(s, d, 1, w), "d_model, warmup": f"{d}, {w}"})
    assert max(range(1, 20_000), key=lambda s: rate(s, 512, 1, 4000)) == 4000
    assert math.isclose(rate(4000, 512, 1, 4000), (512 * 4000) ** -0.5)
    return curves(rows, "update", "rate", "d_model, warmup")


# %% [markdown]
# > The optimiser, Adam, moves each weight against its gradient, by at most about the learning rate. It takes roughly
# > the mean of the last ten gradients, and divides it by the usual size of this weight's gradients. While Adam is still
# > finding out what's usual, the rate is small: that's the warmup. (A [side room](#Optimiser-(Section-5.3))
# > says more. `factor` scales the whole curve; in the paper it's 1.)
# >
# > Real training also uses *dropout*: a tenth of the numbers in what each sublayer adds, and in the sums of embedding
# > and position, are set to zero at random, so that the model doesn't come to rely on any single number. When it
# > translates, `model.eval()` turns dropout off. An update takes seven lines:


# %%
def learn(model: Transformer, optimizer: torch.optim.Optimizer, batch: Batch, lr: float) -> float:
    """Predict, measure the error, move every weight; returns the mean loss per target token."""
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, T, vocab)
    loss = F.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten(), ignore_index=batch.pad)
    optimizer.param_groups[0]["lr"] = lr
    optimizer.zero_grad()
    loss.backward()  # the gradient of the loss for every weight
    check_gradient(optimizer)  # a single NaN would spread to every weight
    optimizer.step()
    return loss.item()


# %%
# @title Learning one sentence
def learn_one_sentence(shift: bool = True, mask: bool = True, updates: int = 50) -> None:
    """A fresh model learns our translation by heart; prints its losses, and what it writes then."""
    torch.manual_seed(0)
    vocab = our_file().vocabulary.get_vocab_size()
    sizes = SIZES | {"N": 2}
    model = make_model(vocab, vocab, **sizes, dropout=0.0, norm="pre", tie="all")
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    batch = Batch(our_ids(), write_by_hand())
    batch.tgt_y = batch.tgt_y if shift else batch.tgt
    batch.tgt_mask = batch.tgt_mask if mask else torch.ones_like(batch.tgt_mask)
    rates = (rate(step, sizes["d_model"], 0.3, warmup=20) for step in range(1, updates + 1))
    losses = [learn(model, optimizer, batch, lr) for lr in rates]
    print("loss:", ", ".join(f"{losses[i]:.2f} at update {i + 1}" for i in (0, 4, 9, updates - 1)))
    print("it writes:", *token_names(written(model, batch.src, longest=17)[0]))


# %%
@example
def example_learn() -> None:
    """Fifty updates on a single pair, from gibberish to a sentence known by heart."""
    learn_one_sentence()


# %% [markdown]
# > That model knows one sentence; give it another, and it will write the same. To *translate*, it has to see so many
# > sentences that learning them by heart is harder than learning German.
# >
# > **Try it.** Let the decoder see the future: `learn_one_sentence(mask=False)`. Its loss falls to 0.00 as well.
# > What does it write afterwards?
# >
# > 1. words of the sentence, in the wrong order
# > 2. the sentence, by heart
# > 3. `<s> <s> <s> …`, for ever
# >
# > <details class="answer"><summary>What happens</summary>
# >
# > **1.** *while while while while while while while while a man reads a man reads a bench.* Each position learned to
# > read its answer one place further on. When it writes, there's nothing further on to read: it hasn't learned the
# > sentence (2). Copying what it has just read (3) is what happens without the shift: try
# > `learn_one_sentence(shift=False)`.
# >
# > </details>
#
# ## While it learns
#
# > [Part 3](#Training) trains a model like ours on 29,000 pairs. This is what such a model writes as it learns:


# %%
@example
def example_while_it_learns() -> Any:
    """Our sentence, translated in training, and at last by the model of Part 1."""
    stages = [stage for row in saved_rows("learning")[-1:] for stage in row["stages"]]
    rows = [{"updates": str(s["updates"]), "translation": s["translation"]} for s in stages]
    return table([*rows, {"updates": "our model", "translation": translate(SENTENCE)}])


# %% [markdown]
# > Its cross-attention is grey everywhere after 85 updates. After 170, the rows that predict *man* and *newspaper* look at
# > a noun, but both look at `Bank`; those that predict *a* look at articles. After 850, most rows have found their word.
# > So it isn't the same map that gets darker: first the model learns which *kind* of word it needs, then which one.


# %%
@example
def example_maps_while_it_learns() -> Chart | None:
    """Cross-attention of the third layer, mean of the heads,
    while the model in training reads a right translation."""
    charts = []
    for stage in [stage for row in saved_rows("learning")[-1:] for stage in row["stages"]]:
        weights = torch.tensor(stage["weights"])
        title = f"{stage['updates']} updates"
        charts.append(heatmap(weights, stage["steps"], stage["source"], title, size=13))
    return grid([charts[:2], charts[2:]]) if charts else None


# %% [markdown]
# > *The road goes on with [What next](#What-next). The rest of this part is side rooms.*
#
# ## Regularisation (Section 5.4)
#
# [**Dropout**](#The-paper's-order,-and-dropout), with $P_{\text{drop}} = 0.1$ for the base model, is applied to the
# output of each sublayer, and to the sums of embeddings and positional encodings in both stacks.
#
# Training uses **label smoothing** (Szegedy et al., 2016) with $\epsilon_{ls} = 0.1$. This makes the perplexity worse,
# since the model learns to be less sure, but it improves accuracy and BLEU ([Part 3](#BLEU) explains it). Table 3 has
# the figures: without smoothing, the perplexity is 4.67 and BLEU is 25.3; with $\epsilon_{ls} = 0.1$ they are 4.92 and
# 25.8, and with 0.2 they are 5.47 and 25.7.
#
# > With smoothing, the right token is left with about 0.9: the model is asked to match a distribution $q$ (which has
# > nothing to do with queries) that spreads $\epsilon_{ls}$ over the whole vocabulary:
# >
# > $$q(k) = (1 - \epsilon_{ls})\,[k = y] + \epsilon_{ls}\,u(k), \qquad \mathrm{loss} = -\sum_k q(k) \log p(k)$$
# >
# > Here $[k = y]$ is 1 if $k = y$, and 0 otherwise. The paper doesn't say what $u$ is. Ours is uniform over all
# > tokens except padding, which is never right. PyTorch's `cross_entropy(label_smoothing=…)` gives padding a share as
# > well; if you take the padding column away, it's the same loss. The second function below collects terms, and never
# > builds $q$. With $n$ tokens in the vocabulary:
# >
# > $$-\sum_k q(k) \log p(k) = -(1 - \epsilon_{ls}) \log p(y) - \frac{\epsilon_{ls}}{n - 1} \sum_{k \ne \mathrm{pad}} \log p(k)$$


# %%
def smoothed_targets(target: Tensor, vocab: int, eps: float = 0.1, pad: int = PAD) -> Tensor:
    """The distribution q for each target id: (..., vocab); zero for padding (Section 5.4)."""
    check_ids(target, vocab)
    q = eps / (vocab - 1) + (1 - eps) * F.one_hot(target, vocab)
    q[..., pad] = 0
    return q * (target != pad).unsqueeze(-1)


# %%
# @title The same loss without ever building q
def smoothed_loss(logits: Tensor, target: Tensor, eps: float = 0.1, pad: int = PAD) -> Tensor:
    """The smoothed cross-entropy in nats, summed over targets other than padding (Section 5.4).

    logits (..., vocab), target (...); ValueError for an id outside the vocabulary (on the CPU).
    """
    check_ids(target, logits.size(-1))
    log_p = logits.float().log_softmax(-1)  # (..., vocab)
    loss = -(1 - eps) * log_p.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    if eps:
        # padding gets no mass
        spread = log_p.index_fill(-1, torch.tensor([pad], device=log_p.device), 0.0).sum(-1)
        loss = loss - eps * spread / (log_p.size(-1) - 1)
    return loss.masked_fill(target == pad, 0.0).sum()


# %%
@example
def example_smoothing() -> None:
    """q for the right token 5 in a vocabulary of ten. Both forms of the loss agree,
    and so does PyTorch's without the padding column."""
    torch.manual_seed(0)
    target = torch.tensor([5, 7])
    logits = torch.randn(2, 10)
    logits[:, PAD] = -70.0  # next to no probability for padding
    q = smoothed_targets(target, 10)
    loss = smoothed_loss(logits, target)
    torch.testing.assert_close(loss, -(q * logits.log_softmax(-1)).sum())
    theirs = F.cross_entropy(logits[:, 1:], target - 1, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(loss, theirs)
    print(*(f"{share:.3f}" for share in q[0].tolist()))


# %% [markdown]
# > **What is the smallest loss that can be reached?** It is reached at $p = q$, and there it equals the entropy of
# > $q$, which isn't zero: 1.2 for our vocabulary. (The loss is that entropy plus the Kullback-Leibler divergence $D_{\text{KL}}(q \,\|\, p)$,
# > which measures how far $p$ is from $q$, and only the second can be lowered.) A model that is surer than $q$ pays a
# > price for it. The validation loss, that of sentences held out from training, uses $\epsilon_{ls} = 0$, because the
# > exponential of a smoothed loss isn't a perplexity.
# >
# > **Why does smoothing help BLEU?** BLEU looks at the words that were chosen, not at how sure the model was. A model
# > that isn't pushed towards certainty overfits less, and keeps its second choices alive for beam search ([Part
# > 4](#Part-4:-What-else-the-paper-used)). That's the usual explanation; the paper shows only the gain.


# %%
def batch_loss(model: Transformer, batch: Batch, eps: float) -> Tensor:
    """The smoothed loss of a batch, summed over target tokens (Section 5.4): a scalar, in nats."""
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, T, vocab)
    return smoothed_loss(logits, batch.tgt_y, eps, batch.pad)


# %% [markdown]
# > With smoothing, too, the gradient at the logits is $p - q$, because the $q_k$ add up to 1.
#
# ## Batches of similar lengths
#
# Sentence pairs of about the same length were batched together. Each batch had about 25,000 source tokens and 25,000
# target tokens.
#
# > **Why count tokens and not sentences?** Because the work and the memory that a batch needs grow with its tokens.
# > If the number of sentences were fixed, one long sentence would make all the others in its batch as long as itself.
# > If sentences are sorted by length first, there is little to pad. So the code sorts the pairs, and begins a new
# > batch whenever one more pair would exceed the budget. Pairs of equal length come in random order, and so do the
# > batches; both are reshuffled for each *epoch*, that is, each pass through the data.
# >
# > **What does sorting cost?** A batch of sentences that all have the same length isn't a random sample:
# > short captions resemble each other, so the gradients of two batches are likely to differ more than those of two
# > random samples. That is why at least the *order* of the batches must be random. (If they came sorted, the model
# > would see only short sentences for a while, and then only long ones.)
# >
# > The number of tokens in an update (one step of the optimiser) matters for the learning rate, too: a gradient over
# > more tokens is less noisy, so the step can be larger, but there are fewer steps per epoch. If you change
# > `tokens_per_batch` (see [Configuration](#Configuration)), expect to tune the learning rate again.


# %%
# @title Pairs of sentences of similar lengths in one batch
class Pair(NamedTuple):
    """One training example as ids: a source that ends with EOS, a target between BOS and EOS."""

    src: list[int]
    tgt: list[int]


def make_batch(pairs: list[Pair]) -> Batch:
    """Pairs as one padded batch."""
    return Batch(pad_rows([p.src for p in pairs]), pad_rows([p.tgt for p in pairs]))


def token_batches(pairs: list[Pair], budget: int, seed: int = 0) -> list[list[Pair]]:
    """Pairs of similar lengths in batches, in random order (Section 5.1).

    A batch has at most `budget` padded tokens a side.
    """
    draw = random.Random(seed)
    batches = [[]]
    longest = 0  # pair of the last batch
    for pair in sorted(pairs, key=lambda pair: (len(pair.tgt), len(pair.src), draw.random())):
        size = max(len(pair.src), len(pair.tgt))
        if size > budget:
            raise ValueError(f"a pair has {size} tokens, but a batch holds {budget}")
        longest = max(longest, size)
        if longest * (len(batches[-1]) + 1) > budget:
            batches.append([])
            longest = size
        batches[-1].append(pair)
    draw.shuffle(batches)
    return batches if pairs else []


# %% [markdown]
# ## Hardware and duration (Section 5.2)
#
# The paper trained on one machine with eight P100 GPUs. The base model took 100,000 updates of about 0.4 seconds, 12
# hours in all. The big model took 300,000 updates of 1.0 second, three and a half days.
#
# ## Optimiser (Section 5.3)
#
# The optimiser is Adam (Kingma and Ba, 2015) with $\beta_1 = 0.9$, $\beta_2 = 0.98$ and $\epsilon = 10^{-9}$, and the
# learning rate is that of Equation (3).
#
# > **What Adam does.** For every weight it keeps two running averages: one of the gradient $g$, and one of its
# > square. With $\beta_1 = 0.9$, the first looks back over about ten updates, which smooths out the noise of
# > individual batches; with $\beta_2 = 0.98$, the second looks back over about fifty. The step is the learning rate
# > times the first, divided by the square root of the second:
# >
# > $$m \leftarrow \beta_1 m + (1 - \beta_1)\,g, \qquad v \leftarrow \beta_2 v + (1 - \beta_2)\,g^2$$
# > $$w \leftarrow w - \mathit{lrate} \cdot \hat m \,/\, (\sqrt{\hat v} + \epsilon)$$
# >
# > The hats stand for a correction that matters in the first steps, when the averages, which start at zero, are still
# > too small: $\hat m = m / (1 - \beta_1^{\mathit{step}})$, and likewise for $\hat v$. And $\epsilon$ keeps the
# > division finite where a weight has hardly had a gradient yet.
# >
# > **Why warm up?** After only a handful of batches, Adam has a poor estimate of how large the gradients usually are,
# > and some steps go wrong. Small first steps give it time to settle. In a fresh post-norm model, the last layers
# > also get much larger gradients than the first ones ([Part 1](#A-fresh-model)). What the warmup itself does
# > is hard to isolate, because the highest rate of the schedule is $(d_{\text{model}} \cdot \mathit{warmup})^{-0.5}$
# > (0.0007 for base), so a shorter warmup also means a higher peak. In [exercise 2.2](exercises.ipynb#2.2-Training-without-a-warmup), on
# > a toy task, training without a warmup works once the whole curve is lowered until its peak is no higher than with
# > a warmup. It's still debated how much a warmup helps if the peak is moderate anyway (Liyuan Liu et al., 2020,
# > blame the poor estimate).
# >
# > **Why $\beta_2 = 0.98$ and not the usual 0.999?** It makes the estimate an average over about the last $1/(1 -
# > \beta_2) = 50$ updates instead of the last 1000. So it can follow gradients whose size changes quickly. The paper
# > gives no reason; this is the usual guess.
# >
# > **Why fall as $\mathit{step}^{-0.5}$?** The rate has to fall, because near a minimum large steps just jump about.
# > This curve falls slowly, and it doesn't need to know in advance when training will end.
#
# ## Configuration
#
# > One frozen dataclass holds the sizes and settings that we vary; its defaults are the base model's.


# %%
@dataclass(frozen=True)
class Config:
    """Sizes and training settings; the defaults are the base model (Sections 3 and 5)."""

    N: int = 6  # layers in the encoder, and in the decoder
    d_model: int = 512
    d_ff: int = 2048
    h: int = 8
    dropout: float = 0.1  # P_drop: on embeddings and on each sublayer's output (5.4)
    norm: Literal["post", "pre"] = "post"  # LayerNorm after the sum (3.1), or before the sublayer
    bpe: int = 37_000  # merges of byte-pair encoding (5.1 gives the vocabulary); 0: whole words
    tokens_per_batch: int = 25_000  # padded target (and source) tokens in one update (5.1)
    accumulate: int = 1  # micro-batches of an update, to save memory
    factor: float = 1.0  # scales the learning rate of Equation (3)
    warmup: int = 4000  # updates over which the rate rises (5.3)
    smoothing: float = 0.1  # eps_ls (5.4)
    seed: int = 0

    def make_model(self, vocab: int, **parts: Part) -> Transformer:
        """A fresh model of these sizes; languages share vocabulary and matrix (Section 3.4)."""
        sizes = (self.N, self.d_model, self.d_ff, self.h, self.dropout)
        return make_model(vocab, vocab, *sizes, norm=self.norm, tie="all", **parts)


# %% [markdown]
# ## The trainer
#
# > The trainer does what `learn` did, but for many batches, with label smoothing, and with the schedule.
# > (The loop in `gradient` goes round once, unless an update is cut into [micro-batches](#Micro-batches).)


# %%
# @title An update cut into micro-batches
def split_rows(pairs: list[Pair], parts: int) -> list[list[Pair]]:
    """Deal an update's pairs out to micro-batches; an empty one gets a pair that adds no loss."""
    if parts < 1 or not pairs:
        raise ValueError(f"{len(pairs)} pairs can't be dealt out to {parts} micro-batches")
    idle = [Pair(pairs[0].src, [BOS, PAD])]  # there is nothing to predict
    return [pairs[i::parts] or idle for i in range(parts)]


# %%
class Trainer:
    """A model and Adam; `update` sets the rate (Equation 3) and learns from a batch (Section 5)."""

    def __init__(self, model: Transformer, config: Config):
        self.model, self.config = model, config
        self.step = 0
        # `update` sets the rate
        self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)

    def gradient(self, pairs: list[Pair]) -> float:
        """Set the gradient of `pairs`' mean loss per target token; returns that loss, in nats."""
        self.model.zero_grad()
        tokens = sum(len(pair.tgt) - 1 for pair in pairs)  # of the whole update
        mean_loss = 0.0
        for micro_batch in split_rows(pairs, self.config.accumulate):
            batch = make_batch(micro_batch).to(next(self.model.parameters()).device)
            loss = batch_loss(self.model, batch, self.config.smoothing) / tokens
            loss.backward()  # adds to the gradient
            mean_loss += loss.item()
        return mean_loss

    def update(self, pairs: list[Pair]) -> float:
        """One step of Adam on the gradient of `pairs`; returns their mean loss per target token.

        Raises ValueError for a gradient that is infinite or NaN, and changes no weight.
        """
        self.model.train()
        loss = self.gradient(pairs)
        check_gradient(self.optimizer)
        self.step += 1
        lr = rate(self.step, self.config.d_model, self.config.factor, self.config.warmup)
        self.optimizer.param_groups[0]["lr"] = lr
        self.optimizer.step()
        return loss


# %% [markdown]
# ### Micro-batches
#
# > The gradient of an update is the *sum* over its target tokens, divided by *their number*. If an update doesn't fit
# > into memory, it's cut into micro-batches, and their gradients are added up. That's called *accumulation*. The loss
# > of each micro-batch must then be divided by the number of tokens in the **whole** update. If you divided it by the
# > micro-batch's own number, a token in a micro-batch with few tokens would weigh more than a token in one with many.
# > The rate moves once an update. (Whoever cuts an epoch into micro-batches, instead of an update, makes a last, smaller
# > update of those that are left over.)
# >
# > **What fills the memory?** Each weight takes 16 bytes in training, four each for the weight itself, its gradient and
# > Adam's two averages. For the base model that's 1 GB. The rest grows with the tokens of a batch: the results that
# > `backward` will need (in proportion to $B T d N$), the logits, and the attention weights, $B h T S$ of them in each
# > attention layer, which grow with the square of the length. (*Activation checkpointing* keeps only the input of each
# > layer, and computes the rest again on the way back, for about a third more work.)


# %%
@example
def example_accumulation() -> None:
    """Three micro-batches of different lengths give the gradient of one large batch;
    dividing each by its own tokens does not."""
    draw = random.Random(0)
    sides = ((draw.choices(range(4, 20), k=5), [7] * draw.randint(1, 9)) for _ in range(10))
    pairs = [Pair([*src, EOS], [BOS, *tgt, EOS]) for src, tgt in sides]
    model = make_model(20, 20, N=1, d_model=16, d_ff=32, h=2, dropout=0.0)

    def gradient(pairs: list[Pair], parts: int) -> Tensor:
        Trainer(model, Config(accumulate=parts)).gradient(pairs)
        return torch.cat([p.grad.flatten() for p in model.parameters()])

    at_once = gradient(pairs, 1)
    mean_of_means = sum(gradient(micro_batch, 1) for micro_batch in split_rows(pairs, 3)) / 3
    good = (at_once - gradient(pairs, 3)).abs().max().item()
    bad = (at_once - mean_of_means).abs().max().item()
    print(f"difference in three micro-batches: {good:.1e}; divided by their own tokens: {bad:.1e}")
    assert good < 1e-6 < 1e-3 < bad


# %% [markdown]
# ## The training loop
#
# > The loop records what happened, and stops when it runs out of batches or time.


# %%
def fit(
    trainer: Trainer, batches: Iterable[list[Pair]], minutes: float = math.inf,
    every: int = 100, measure: Callable = dict,
) -> list[dict]:  # fmt: skip
    """Learn batch after batch; returns a row per update, now and then with what `measure` finds."""
    rows = []
    start = time.monotonic()
    for pairs in tqdm(batches, "training", unit=" updates", file=sys.stdout):
        loss = trainer.update(pairs)
        passed = (time.monotonic() - start) / 60
        rows.append({"update": trainer.step, "minutes": passed, "loss": loss})
        if trainer.step % every == 0:
            rows[-1] |= measure()
        if passed >= minutes:
            break
    return rows


# %% [markdown]
# ## Greedy decoding
#
# > As in [Part 1](#A-vector-becomes-a-word-(Section-3.4)), the decoder runs step by step, but now all the sentences of
# > a batch advance together. Dropout must be off, which the folded cell sees to; leaving it on is a classic mistake,
# > after which each call writes another sentence. Without `<s>` in front, the decoder begins as it never did in
# > training; without a look for `</s>`, it goes on to its limit. This naive version reads everything written so far at
# > every step, although only the last of its outputs is new.


# %%
# @title Dropout off for a while
# what each thread has to switch on again when it leaves
EVALUATIONS: dict[tuple[int, nn.Module], list[nn.Module]] = {}


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Dropout off inside, and each module as it was before outside.

    While several threads are inside, it stays off until the last one leaves. So threads may share a
    model to translate, but whoever trains it at the same time should train a copy.
    """
    thread = threading.get_ident()
    with TURN:
        training = [module for module in model.modules() if module.training]
        outermost = EVALUATIONS.setdefault((thread, model), training) is training
        model.eval()
    try:
        yield
    finally:
        with TURN:
            if outermost:
                del EVALUATIONS[thread, model]
            for (other_thread, other_model), to_train in EVALUATIONS.items():
                if other_model is model and other_thread != thread:
                    to_train.extend(training)
                    break
            else:  # this thread is the last one
                for module in training:
                    module.training = True


# %%
@torch.inference_mode()
def greedy_decode_naive(
    model: Transformer, src: Tensor, src_mask: Mask, max_len: int, start_symbol: int
) -> Tensor:
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
# ## A first task: copying
#
# > A small model that learns to repeat its source needs everything that we've built so far. Its tokens are the
# > numbers from 4 upwards. It learns from random sequences, and is then asked to copy others that it has never seen.


# %%
def copy_pairs(n: int, vocab: int, seed: int, shortest: int = 3, longest: int = 10) -> list[Pair]:
    """Random sequences of `shortest` to `longest` tokens, to be copied."""
    draw = random.Random(seed)
    lengths = [draw.randint(shortest, longest) for _ in range(n)]
    rows = [[draw.randrange(len(SPECIALS), vocab) for _ in range(length)] for length in lengths]
    return [Pair([*row, EOS], [BOS, *row, EOS]) for row in rows]


@functools.cache
def train_copy(
    updates: int = 1000, vocab: int = 14, seed: int = 0
) -> tuple[Transformer, list[dict]]:
    """Train a small model to copy; returns it and the loss of each update."""
    torch.manual_seed(seed)
    small = Config(N=2, d_model=64, d_ff=128, h=4, dropout=0.0, norm="pre", factor=0.25, warmup=150)
    trainer = Trainer(small.make_model(vocab), small)
    rows = fit(trainer, [copy_pairs(64, vocab, updates * seed + step) for step in range(updates)])
    return trainer.model.eval(), rows


def unseen_copies(updates: int) -> list[Pair]:
    """Sequences that are in none of the batches that the copy task learns from with seed 0."""
    seen = {tuple(pair.src) for step in range(updates) for pair in copy_pairs(64, 14, seed=step)}
    return [pair for pair in copy_pairs(250, 14, seed=10**6) if tuple(pair.src) not in seen]


# %%
@example
def example_copy() -> Chart:
    """The smoothed loss on random sequences, and the lowest value it can take, the entropy of q.
    The lines above the chart: unseen sequences, nearly all copied without a mistake."""
    model, rows = train_copy()
    unseen = make_batch(unseen_copies(len(rows)))
    copies = greedy_decode_naive(model, unseen.src, unseen.src_mask, unseen.tgt_y.size(1) + 1, BOS)
    print("source", unseen.src[0].tolist(), "\ncopied", copies[0].tolist())
    exact = ((copies[:, 1:] == unseen.tgt_y) | (unseen.tgt_y == PAD)).all(dim=1)  # up to the end
    print(f"copied exactly: {exact.float().mean():.1%} of {len(exact)} sequences")
    assert exact.float().mean() > 0.9
    q = smoothed_targets(torch.tensor(5), 14)[1:]  # without padding
    low = -(q * q.log()).sum().item()
    lines = [{"update": r["update"], "nats per token": r["loss"], "line": "loss"} for r in rows]
    lines += [{"update": i, "nats per token": low, "line": "entropy of q"} for i in (1, len(rows))]
    return curves(lines, "update", "nats per token", "line", log_y=True)


# %% [markdown]
# ## Keeping keys and values
#
# > Because of the causal mask, nothing that earlier positions computed changes when a token is added (which is also
# > why training in parallel computes the same as decoding step by step). So it's enough to feed in the *last* token,
# > and to keep the keys and values of all earlier ones. This is the **key/value cache**. (The query of an earlier
# > position isn't kept, because no other position needs it.) The keys and values of the source are computed only
# > once. Step $t$ then computes one position (which still attends to all $t$ keys) instead of $t$, and it needs no
# > causal mask, because no key in the cache lies in the future.
#
# > For decoding, we copy each decoder layer, with the same weights, and replace its two attentions with functions
# > that use the cache.


# %%
def with_attention(layer: nn.Module, **functions: Callable) -> nn.Module:
    """A copy of a layer with the same weights, but `functions` in place of attentions so named."""
    twin = copy.copy(layer)
    twin._modules = {k: module for k, module in layer._modules.items() if k not in functions}
    vars(twin).update(functions)
    return twin


# %%
class CachedDecoder:
    """The decoder, a token of each sentence at a time, with keys and values of all before it."""

    def __init__(self, model: Transformer, src: Tensor, src_mask: Mask):
        self.model, self.src_mask = model, src_mask
        self.length = 0  # of what has been written
        layers = model.decoder.layers
        memory = model.encode(src, src_mask)
        self.source = [layer.src_attn.keys_values(memory, memory) for layer in layers]  # only once
        nothing = memory[:, :0]  # a target of no positions yet
        self.past = [layer.self_attn.keys_values(nothing, nothing) for layer in layers]
        self.layers = []
        for i, layer in enumerate(layers):
            own_attn, cross_attn = functools.partial(self.own, i), functools.partial(self.cross, i)
            self.layers.append(with_attention(layer, self_attn=own_attn, src_attn=cross_attn))

    def own(self, i: int, query: Tensor, key: Tensor, value: Tensor, mask: None = None) -> Tensor:
        """Self-attention of the new position in layer i; its key and value join the others'."""
        attn = self.model.decoder.layers[i].self_attn
        new = attn.keys_values(key, value)  # K (B, h, 1, d_k), V (B, h, 1, d_v)
        self.past[i] = tuple(torch.cat(pair, dim=2) for pair in zip(self.past[i], new, strict=True))
        return attn.attend(query, *self.past[i])  # without a mask: no key is in the future

    def cross(self, i: int, query: Tensor, key: Tensor, value: Tensor, mask: Mask) -> Tensor:
        """Attention of the new position in layer i to the source, its keys and values known."""
        return self.model.decoder.layers[i].src_attn.attend(query, *self.source[i], mask)

    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each sentence (B) to the logits of the one after it (B, vocab)."""
        x = self.model.tgt_embed(tokens.unsqueeze(1), self.length)  # (B, 1, d_model)
        for layer in self.layers:
            x = layer(x, None, self.src_mask, None)
        self.length += 1
        return self.model.generator.logits(self.model.decoder.norm(x))[:, 0]


# %% [markdown]
# > A sentence that has produced `</s>` is padded from then on, and the loop stops when all have ended. How to choose a
# > token is left to a separate function: greedy decoding takes the most probable, and
# > [sampling](since_2017.ipynb#Sampling) draws one at random.


# %%
def continue_with(
    choose: Callable[[Tensor], Tensor], decoder: CachedDecoder, ys: Tensor, max_len: int,
    end_symbol: int | None = EOS, pad: int = PAD,
) -> Tensor:  # fmt: skip
    """Append to `ys` (B, 1) what `choose` makes of each step's logits: ids (B, at most max_len).

    `choose` turns logits (B, vocab) into tokens (B).
    """
    ended = torch.zeros_like(ys[:, 0], dtype=torch.bool)
    while ys.size(1) < max_len and not ended.all():
        tokens = choose(decoder.step(ys[:, -1])).masked_fill(ended, pad)  # (B)
        ys = torch.cat((ys, tokens.unsqueeze(1)), dim=1)
        ended |= tokens == (-1 if end_symbol is None else end_symbol)  # no token has the number -1
    return ys


@torch.inference_mode()
def greedy_decode(
    model: Transformer, src: Tensor, src_mask: Mask, max_len: int, start_symbol: int = BOS,
    end_symbol: int | None = EOS, pad: int = PAD,
) -> Tensor:  # fmt: skip
    """The most probable token at each step: ids (B, at most max_len), start_symbol first.

    After end_symbol comes `pad`. src (B, S), src_mask (B or 1, 1, S). Stops when every sentence has
    ended; with end_symbol None, never before max_len.
    """
    with evaluating(model):
        first = torch.full((len(src), 1), start_symbol, device=src.device)
        decoder = CachedDecoder(model, src, src_mask)
        return continue_with(lambda x: x.argmax(-1), decoder, first, max_len, end_symbol, pad)


# %%
@example
def example_cached() -> None:
    """With and without a cache: the same tokens, up to the end of each sentence."""
    model, rows = train_copy()
    unseen = make_batch(unseen_copies(len(rows)))
    cached = greedy_decode(model, unseen.src, unseen.src_mask, max_len=12)
    naive = greedy_decode_naive(model, unseen.src, unseen.src_mask, cached.size(1), BOS)
    different = naive * (cached != PAD) != cached  # the naive loop goes on after the end
    print(f"{len(cached)} sequences, {cached.numel():,} tokens, {different.sum()} different")
    assert not different.any()


# %% [markdown]
# > **Do sinusoids extend to longer sequences?** The copy model has never seen more than ten tokens.
# > There is a vector for every position, but if a sequence is more than one token longer than those it was trained on,
# > this model seldom or never copies it correctly. We haven't tested whether the positions alone are to blame.


# %%
# @title The share of exact copies
def copied(model: Transformer, length: int) -> float:
    """The share of 100 random sequences of this length that the model copies exactly."""
    batch = make_batch(copy_pairs(100, 14, seed=10**7 + length, shortest=length, longest=length))
    copies = greedy_decode(model, batch.src, batch.src_mask, max_len=length + 2, end_symbol=None)
    return round((copies[:, 1:] == batch.src).all(dim=1).float().mean().item(), 2)


# %%
@example
def example_longer() -> Chart:
    """Exact copies by length: reliable up to the longest length seen in training,
    useless soon after."""
    shares = {n: copied(train_copy()[0], n) for n in range(3, 17)}
    rows = [{"length": n, "copied": x, "trained on": "3 to 10 tokens"} for n, x in shares.items()]
    print("copied exactly, by length:", ", ".join(f"{n}: {x:.0%}" for n, x in shares.items()))
    assert shares[10] > 0.9 > 0.5 > shares[16]
    return curves(rows, "length", "copied", "trained on")


# %% [markdown]
# ## Summary of Part 2
#
# > Targets are shifted by one, and all positions learn at once. The gradient at the logits is $p - q$: what the model
# > says minus what it should say. The loss of an update is a sum over tokens divided by their number, however the
# > update is cut up.


# %% [markdown]
# # What next
#
# ## What to delete to get GPT
#
# > Most of today's language models are this model with parts taken away. Delete the encoder. Then there's no memory to
# > look at, so delete cross-attention as well. What is left is an `EncoderLayer` that is given a causal mask:
# > self-attention and a feed-forward network. Up to details such as learned positions, that is GPT (Radford et al.,
# > 2018):


# %%
def gpt(ids: Tensor, embed: nn.Module, stack: Encoder, generator: Generator) -> Tensor:
    """Logits of the token after each position (B, T, vocab), from the tokens up to it (B, T)."""
    x = embed(ids)  # (B, T, d_model)
    x = stack(x, subsequent_mask(ids.size(1)))  # each position sees itself and what is before it
    return generator.logits(x)


# %%
@example
def example_gpt() -> None:
    """A fresh GPT with the sizes of our model; no position sees the future."""
    torch.manual_seed(0)
    model = make_model(6106, 6106, **SIZES, dropout=0.0, norm="pre", tie="all").eval()
    parts = model.tgt_embed, model.encoder, model.generator
    ids = torch.randint(4, 6106, (1, 8))
    before = gpt(ids, *parts)
    ids[0, 7] += 1
    after = gpt(ids, *parts)
    assert torch.equal(before[:, :7], after[:, :7]) and not torch.equal(before[:, 7], after[:, 7])
    modules = {"translator": model, "GPT": nn.ModuleList(parts)}
    counts = {name: sum(p.numel() for p in m.parameters()) for name, m in modules.items()}
    print("weights:", ", ".join(f"{name} {n:,}" for name, n in counts.items()))


# %% [markdown]
# > | | our translator | GPT |
# > |---|---|---|
# > | reads | a source, and what it has written so far | one text: all that it was given and all that it has written |
# > | attention | three kinds | one: masked self-attention |
# > | learns from | pairs of sentences | any text: every token is the target of those before it |
# > | loss, $p - q$, update | Part 2 | the same |
# >
# > The rest is mostly size: GPT-3 has 96 layers of width 12,288 (Brown et al., 2020). [Since 2017](since_2017.ipynb)
# > builds what has changed in the layers, and a small GPT that writes captions.
# >
# > <details><summary>How many weights that makes</summary>
# >
# > A layer has $4d^2$ weights in attention, with $d$ for $d_{\text{model}}$, and $8d^2$ in its network if that is four
# > times as wide, as in the paper. So GPT-3's layers have $96 \cdot 12 \cdot 12288^2 \approx 1.74 \cdot 10^{11}$. The
# > paper's decoder layers have two attentions, so base has $6 \cdot 12 d^2 + 6 \cdot 16 d^2$ and a table of $37000 d$,
# > 63 million in all.
# >
# > </details>
#
# ## What the maps don't tell
#
# > **Predict.** Take a hundred captions that begin with `Ein Mann`. When *man* is due, the cross-attention of the last
# > layer looks at `Mann`. Instead of what this attention adds at that step, we add what it would if the caption began with
# > `Ein Junge` (a boy). What does it take for the model to say *boy* in nearly all of the hundred?
# >
# > 1. that's enough: the map says where the word comes from
# > 2. the same in the layer below, as both pass the word on
# > 3. the same in all layers below, as any of them can pass it on
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **2.** In the last layer alone (1) it changes none, although its map looks at `Mann`: the third layer had already
# > passed the word on. In both it changes nearly all, so it doesn't take the first two (3). [Part
# > 6](#Watching-and-intervening) tells the whole story.
# >
# > </details>
# >
# > So be careful with stories such as "`auf` looks at `Bank`", for three reasons. A weight says how much of a value is
# > taken, not what is in it. After the first layer, the vector at the place of `Bank` has taken in the words around it.
# > And there are other heads and layers, and the stream flows past all of them. A map suggests what the model may be
# > doing; to know, change something and see what happens.
#
# ## A test of yourself
#
# > Answer aloud, then open the answer.
# >
# > **1. What are query, key and value, and where do they come from?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > Each is the vector of a position times a learned matrix: what the position is looking for, what it can be found by,
# > and what it passes on. Query times key gives a score, the softmax turns scores into weights, and the position
# > receives the weighted sum of the values. → [Queries, keys and values](#Queries,-keys-and-values).
# >
# > </details>
# >
# > **2. Why are scores divided by $\sqrt{d_k}$?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > A dot product of $d_k$ independent terms has variance $d_k$. With large scores, the softmax gives everything to one
# > key and has hardly any slope. → [Scaled dot-product attention](#Scaled-dot-product-attention-(Section-3.2.1)).
# >
# > </details>
# >
# > **3. If you shuffle the words of the source, what changes without positions, and what with them?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > Without positions, nothing: every word receives the same, and the translation stays the same. With them, words in
# > another order receive something else. → [Positions](#Positions-(Section-3.5)).
# >
# > </details>
# >
# > **4. What flows along the residual stream, and who may change it?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > One vector for each position, from its embedding to the top. Each sublayer reads a normalised copy and *adds* what
# > it computes; nothing is overwritten. → [Residuals and normalisation](#Residuals-and-normalisation-(Section-3.1)).
# >
# > </details>
# >
# > **5. Where does a mask act, and why not after the softmax? What does the decoder need one for?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > It sets scores to $-\infty$ before the softmax. After it, the weights would no longer add up to 1, and hidden keys
# > would have influenced them. In training the decoder reads whole targets: without the causal mask, each position
# > could read its answer. Padding is hidden in all three kinds of attention. → [Masks](#Masks).
# >
# > </details>
# >
# > **6. In cross-attention, where do queries, keys and values come from?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > Queries from the decoder's stream, keys and values from the memory, the output of the last encoder layer. → [Layers
# > of three sublayers](#Layers-of-three-sublayers).
# >
# > </details>
# >
# > **7. The decoder writes one token at a time. How can it be trained on all positions at once?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > The whole target is fed in, shifted by one; thanks to the mask, each position sees just what it would have seen had
# > it written the right words, and predicts the next token. → [Batches and the
# > shift](#Batches-and-the-shift-(Section-5.1)).
# >
# > </details>
# >
# > **8. The model says *is* with probability 0.06, and *is* is wrong. What is the gradient of the loss for its score,
# > and what does the update do?**
# >
# > <details class="answer"><summary>Answer</summary>
# >
# > $p - q = 0.06 - 0 = 0.06$. The update pushes the score down, but less hard than it pulls up that of *reads*, whose
# > error is $-0.14$. → [The loss](#The-loss).
# >
# > </details>
# >
# > Fewer than six? Follow the links.

# %% [markdown]
# ## A second task: German numbers
#
# > Now train one. The model reads a German number letter by letter, and writes its digits. In German the units come
# > before the tens (`einundzwanzig` is "one and twenty"), so the order changes. The letters are tokens, and the model
# > has one layer in each half and six thousand weights. It sees all numbers up to 99 and four fifths of those from 100
# > to 999; the others are held out.

# %% [markdown] tags=["active-ipynb"]
# *On the web page, such a model learns in your browser. Take away the shift, the mask or the positions, and see what
# they were for.*

# %%
# @title German number words
ONES = [
    "null", "ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn", "elf",
    "zwölf", "dreizehn", "vierzehn", "fünfzehn", "sechzehn", "siebzehn", "achtzehn", "neunzehn",
]  # fmt: skip
TENS = ["", "", "zwanzig", "dreißig", "vierzig", "fünfzig", "sechzig", "siebzig",
        "achtzig", "neunzig"]  # fmt: skip


def german_number(n: int) -> str:
    """A number below 1000 in German words; ValueError for another."""
    if not 0 <= n < 1000:
        raise ValueError(f"{n} is not a number from 0 to 999")
    hundreds, below_100 = divmod(n, 100)
    if hundreds:
        return ONES[hundreds] + "hundert" + (german_number(below_100) if below_100 else "")
    if n < 20:
        return "eins" if n == 1 else ONES[n]
    return (ONES[n % 10] + "und" if n % 10 else "") + TENS[n // 10]


# %%
# @title The pairs, and the model that learns them
LETTERS = [*SPECIALS, *sorted({sign for n in range(1000) for sign in german_number(n) + str(n)})]


def number_pair(n: int) -> Pair:
    """The letters of a number as source, its digits as target."""
    source = [LETTERS.index(letter) for letter in german_number(n)]
    target = [LETTERS.index(digit) for digit in str(n)]
    return Pair([*source, EOS], [BOS, *target, EOS])


@functools.cache
def train_numbers(updates: int = 1500, seed: int = 0) -> tuple[Transformer, list[int]]:
    """Train a small model to read numbers; returns it and the numbers that it has never seen."""
    draw = random.Random(seed)
    large = list(range(100, 1000))
    draw.shuffle(large)
    held_out, seen = large[:180], large[180:]
    batches = []
    for _ in range(updates):
        numbers = draw.choices(range(100), k=8) + draw.choices(seen, k=24)
        batches.append([number_pair(n) for n in numbers])
    torch.manual_seed(seed)
    sizes = dict(N=1, d_model=16, d_ff=32, h=2)
    config = Config(**sizes, dropout=0.0, norm="pre", factor=0.7, warmup=100, smoothing=0.0)
    trainer = Trainer(config.make_model(len(LETTERS)), config)
    fit(trainer, batches)
    return trainer.model.eval(), held_out


# %%
@example
def example_numbers() -> None:
    """Numbers that the model has never seen, from letters to digits."""
    model, held_out = train_numbers()
    batch = make_batch([number_pair(n) for n in held_out])
    ids = greedy_decode_naive(model, batch.src, batch.src_mask, batch.tgt.size(1) + 1, BOS)[:, 1:]
    for n, row in zip(held_out[:3], ids.tolist()[:3], strict=True):
        print(f"{german_number(n):28}{''.join(LETTERS[i] for i in row if i >= len(SPECIALS))}")
    weights = sum(p.numel() for p in model.parameters())
    exact = ((ids == batch.tgt_y) | (batch.tgt_y == PAD)).all(dim=1)
    print(f"right: {exact.float().mean():.1%} of {len(held_out)}, by {weights:,} weights")
    assert exact.float().mean() > 0.9


# %% [markdown]
# > Nobody told it that `vierzig` is a 4 in the second place from the right. Where does it look when it writes a digit?


# %%
@example
def example_number_map(n: int = 345) -> Chart:
    """Cross-attention while `dreihundertfünfundvierzig` becomes 345 (mean of the two heads)."""
    model, _ = train_numbers()
    pair = number_pair(n)
    batch = make_batch([pair])
    with recording(model) as weights:
        model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    mean = weights[model.decoder.layers[0].src_attn][0].mean(0)  # (T, S)
    rows = [f"{LETTERS[a]} → {LETTERS[b]}" for a, b in itertools.pairwise(pair.tgt)]
    columns = [LETTERS[i] for i in pair.src]
    return heatmap(mean, rows, columns, axes=("reads → predicts", "looks at"))


# %% [markdown]
# > For the 3 it looks at the beginning of `dreihundert`. For the 4 it jumps ahead, to the `v` and the `r` of
# > `vierzig`, and for the 5 it comes back to `fünf`.
#
# ## What the loss can't see
#
# > "It learns, but it writes nonsense. Why?" The loss can't answer this one: it says how well a model predicts from
# > what it sees, but not whether it sees something that it mustn't. We trained the model of German numbers with common
# > mistakes in the code. *Forced* is the share of the held-out numbers' tokens that are right if the model reads the
# > true tokens before them, as in training; *written* is the share of held-out numbers that it gets right by itself.

# %%
# @title Five mistakes, and what shows them
PATIENTS = ("healthy", "no_causal_mask", "heads_joined_by_view", "softmax_over_queries",
            "norm_over_time", "shift_by_two")  # fmt: skip
FRESH = {"wires", "loss", "gradient", "inventory", "heart"}  # tests that need no long training


@example
def example_clinic() -> Any:
    """Trained with a mistake: the loss, the accuracy with the true tokens before each token and
    without them, and which tests (explained below) show the mistake."""
    patients = {row["mistake"]: row for row in saved_rows("clinic") if row["seed"] == 0}
    keys = {"loss": "loss", "forced": "held_out_forced", "written": "held_out_exact"}
    rows = []
    for patient in (patients[name] for name in PATIENTS if patients):
        rows.append({"mistake": patient["mistake"].replace("_", " ")})
        rows[-1] |= {column: f"{patient[key]:.3f}" for column, key in keys.items()}
        rows[-1]["shown by"] = ", ".join(t for t in patient["seen"] if t in FRESH) or "nothing"
        healthy = patient["mistake"] == "healthy"
        assert healthy or not {"curve", "held out"} & {*patient["seen"]}
        assert healthy or patient["held_out_exact"] < 0.01
    return table(rows)


# %% [markdown]
# > None of these five losses looks ill, and with the true tokens before it nearly every token is right. Yet almost no
# > number is written correctly. (In the last column, *loss* computes the loss anew, and *heart* lets the model learn
# > eight pairs by heart and then translate them.)
# >
# > So test the **wires** first: change one word of the target, and see which predictions move. None may depend on a
# > later word, on padding, or on the other pairs of the batch; but they must change with the source, and with the order
# > of its words. That takes a tenth of a second, and no training.
# >
# > <details><summary>In which order to look further</summary>
# >
# > Compute the **loss** once more from the logits, position $t$ against token $t + 1$, and see whether it's the one
# > that's reported. Compute the **gradient** twice, without dropout, and see whether it's the same and whether every
# > matrix has one. Count the weights (**inventory**). Let the model learn eight pairs by **heart** and then
# > *translate* them: if it can't, there's no need for a long run. Once the model is trained, give each target the
# > source of another pair (**swap**): that must raise the loss. If it doesn't, the encoder's output isn't passed on,
# > or its mask is the wrong way round, or the text has sources beside other sentences' targets. See whether its
# > **translations** are the same alone and in a batch, and whether it needs **references**, the right answers, to
# > write well.
# >
# > `practice/examine.py` does all of this for any model. The program's `train` looks at wires, loss and gradient before
# > the first update. The [lab notebook](lab_notebook.ipynb#What-shows-a-mistake) lists all the mistakes, and what shows
# > each of them.
# >
# > </details>
# >
# > In the [notebook of the clinic](practice/clinic.ipynb), twelve broken models wait for you to repair them.

# %% [markdown]
# ## What to do now
#
# > Practice is a ladder of five rungs:
# >
# > 1. **Predict.** After the *Predict* questions in the text, type sentences into the [first
# >    figure](#The-Annotated-Transformer), until the model gets one wrong.
# > 2. **Write it.** On the web page, seven functions have an editor, first
# >    [attention](#Scaled-dot-product-attention-(Section-3.2.1)). `python the_annotated_transformer.py judge --new
# >    mine.py` writes a file for the whole model; `judge mine.py` tries it.
# > 3. **Diagnose.** Find the mistake in a trained model: on the web page, below [what the loss can't
# >    see](#What-the-loss-can't-see), then in the clinic's [notebook](practice/clinic.ipynb) and its interview.
# > 4. **Let it learn.** If all its functions compute with PyTorch, `judge mine.py --learn` gives them fresh weights:
# >    in a minute they read German numbers; with `--learn multi30k --run runs/learned`, they learn a language.
# > 5. **Change it and train.** Exercises [1.1](exercises.ipynb#1.1-Concatenating-token-and-position),
# >    [2.1](exercises.ipynb#2.1-A-model-that-reverses) and [2.2](exercises.ipynb#2.2-Training-without-a-warmup) fit
# >    what you've read. Then [change a part](#Changing-it) of your choice.
# >
# > Or read on: [`one_screen.py`](one_screen.py) is the paper in 250 lines, [Part 3](#Part-3:-A-real-translation-system)
# > trains a translator in three minutes, [Since 2017](since_2017.ipynb) leads to today's models.

# %% [markdown]
# # Part 3: A real translation system
#
# ## Data (Section 5.1)
#
# The authors trained on data from WMT 2014. For English-German, that's about 4.5 million sentence pairs and a
# shared vocabulary of about 37,000 tokens from byte-pair encoding. For English-French, it's 36 million pairs and a
# vocabulary of 32,000 word pieces (Wu et al., 2016).
#
# > That's too much for a laptop. We use [Multi30k](https://github.com/multi30k/dataset) (Elliott et al., 2016):
# > 29,000 English captions of photographs, translated into German by professionals, plus 1,014 pairs for validation
# > and several test sets such as `test_2016_flickr` (1,000 pairs). It may be used for research and teaching.
# >
# > [pooch](https://www.fatiando.org/pooch) downloads it once (1.3 MB), and checks each file's checksum.

# %%
# @title Fetching Multi30k, once
CHECKSUMS = {
    "train.de.gz": "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    "train.en.gz": "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    "val.de.gz": "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a",
    "val.en.gz": "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28",
}


def plain(text: str) -> str:
    """A line as readers see it: `&` for `&amp;`, letters and accents in one, no space around it."""
    text = re.sub(r"&(?:amp;)*(#?\w+;)", lambda entity: html.unescape("&" + entity[1]), text)
    return unicodedata.normalize("NFC", text.removeprefix("\ufeff")).strip()


def refuse_pointer(content: bytes, place: Path | str) -> None:
    """Raise ValueError for a pointer of Git LFS in the place of a file that was not fetched."""
    if content.startswith(b"version https://git-lfs"):
        raise ValueError(
            f"{place}: only a pointer of Git LFS; `git lfs pull` fetches the file itself"
        )


def decoded(line: bytes, place: str) -> str:
    """The text of a line; ValueError with its place if it isn't UTF-8."""
    refuse_pointer(line, place)
    try:
        if 3 * line.count(0) > len(line):
            raise ValueError("likely UTF-16")
        return plain(line.decode())
    except ValueError as error:
        raise ValueError(f"{place}: not UTF-8 ({getattr(error, 'reason', error)})") from error


def lines_of(content: bytes, path: Path | str) -> list[str]:
    """The lines of a text file; ValueError with the name and the line where it isn't UTF-8."""
    lines = content.removesuffix(b"\n").split(b"\n")
    return [decoded(line, f"{path}, line {number}") for number, line in enumerate(lines, 1)]


def multi30k(
    split: str, repository: str = "https://raw.githubusercontent.com/multi30k/dataset/master/"
) -> list[tuple]:
    """The German-English pairs of `train` or `val`, cached or fetched; OSError if neither works."""
    import pooch

    pooch.get_logger().setLevel("WARNING")
    folder = os.getenv("MULTI30K_CACHE") or pooch.os_cache("annotated-transformer") / "multi30k"
    folder = Path(folder).expanduser()
    sides = []
    for name in (f"{split}.de.gz", f"{split}.en.gz"):
        path = pooch.retrieve(f"{repository}data/task1/raw/{name}", CHECKSUMS[name], name, folder)
        sides.append(lines_of(gzip.decompress(Path(path).read_bytes()), path))
    return list(zip(*sides, strict=True))


# %% [markdown]
# > Without an internet connection, the model can still learn from something simpler: sentences assembled from a few
# > words. To use data of your own instead, put `train.de`, `train.en`, `val.de` and `val.en`, with one sentence per
# > line, in a folder, and set the environment variable `ANNOTATED_DATA` to its path.


# %%
# @title The data used without Multi30k
WHO = {"Ein Mann": "A man", "Eine Frau": "A woman", "Ein Junge": "A boy",
       "Ein Mädchen": "A girl", "Mein Hund": "My dog"}  # fmt: skip
WHERE = {"im Park": "in the park", "am Strand": "on the beach",
         "auf der Straße": "in the street", "zu Hause": "at home"}  # fmt: skip
WHAT = {"schläft {}": "is sleeping {}", "spielt {} mit einem Ball": "is playing with a ball {}",
        "sitzt {} auf einer Bank": "is sitting on a bench {}",
        "hebt {} eine Zeitung auf": "is picking up a newspaper {}"}  # fmt: skip
MEANWHILE = {"": "", ", während eine Katze zusieht": ", while a cat is watching",
             ", während ein Kind ein Buch liest": ", while a child is reading a book"}  # fmt: skip


def phrases(split: str) -> list[tuple[str, str]]:
    """German-English sentences put together from the words above, a tenth held out for `val`."""
    pairs = []
    for who, where, action, clause in itertools.product(WHO, WHERE, WHAT, MEANWHILE):
        german = f"{who} {action.format(where)}{clause}."
        english = f"{WHO[who]} {WHAT[action].format(WHERE[where])}{MEANWHILE[clause]}."
        pairs.append((german, english))
    random.Random(0).shuffle(pairs)
    return pairs[24:] if split == "train" else pairs[:24]


def read_folder(folder: Path, split: str) -> list[tuple[str, str]]:
    """The pairs of FOLDER/SPLIT.de and .en, plain or .gz; ValueError if damaged or not parallel."""
    sides = []
    for language in ("de", "en"):
        path = folder / f"{split}.{language}"
        packed = Path(f"{path}.gz")
        if not path.exists() and not packed.exists():
            raise FileNotFoundError(f"there is neither {path} nor {packed}")
        content = (path if path.exists() else packed).read_bytes()
        try:
            content = gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise ValueError(f"{packed}: damaged, or not a gzip file ({error})") from error
        sides.append(lines_of(content, path))
    german, english = map(len, sides)
    if german != english:
        raise ValueError(f"{folder}: {split} has {german} German and {english} English lines")
    return list(zip(*sides, strict=True))


# %%
# @title Choosing the data
def read_split(source: str, split: str) -> list[tuple[str, str]]:
    """The pairs of a split of `multi30k`, of `phrases` or of a folder."""
    if source == "multi30k":
        return multi30k(split)
    return phrases(split) if source == "phrases" else read_folder(Path(source), split)


@functools.cache
def choose_data() -> str:
    """The source of the data: $ANNOTATED_DATA, or multi30k, or phrases if that cannot be had."""
    wanted = os.path.expanduser(os.environ.get("ANNOTATED_DATA") or "multi30k")
    # a wrong checksum is a ValueError, and a user without a home folder a RuntimeError
    failures = (OSError, ValueError, RuntimeError) if wanted == "multi30k" else OSError
    try:
        read_split(wanted, "train"), read_split(wanted, "val")
    except failures as error:
        reason = "there's no connection" if "ConnectionPool" in str(error) else error
        print(
            f"NOTICE: without {wanted}, going on with a few made-up phrases, "
            f"whose scores say nothing ({reason})."
        )
        return "phrases"
    return wanted


@functools.cache
def load_split(split: str) -> list[tuple[str, str]]:
    """German-English pairs of `train` or `val` with text on both sides; others teach nothing."""
    return [pair for pair in read_split(choose_data(), split) if all(pair)]


# %%
@example
def example_data() -> None:
    """The training and validation data: the number of pairs, their average lengths in words,
    and one example."""
    for pairs in map(load_split, ("train", "val")):
        sides = zip(*pairs, strict=True)
        de, en = (sum(len(text.split()) for text in side) / len(side) for side in sides)
        print(f"{len(pairs):,} pairs, {de:.1f} German and {en:.1f} English words on average")
    print(*load_split("train")[0], sep="\n")


# %% [markdown]
# ## Words and word pieces (Section 5.1)
#
# Byte-pair encoding (Britz et al., 2017) gives both languages one shared vocabulary.
#
# > *Whole words* make for a simple vocabulary: split a sentence into words and punctuation, and give an id to each
# > word that's frequent enough. Every other word becomes `<unk>`, "unknown". In a language such as German, which
# > forms new words by joining old ones, many words end up unknown.
# >
# > *Byte-pair encoding*, BPE, has a better answer (Sennrich et al., 2016). It begins with single characters as its
# > tokens, counts all pairs of neighbouring tokens, and merges the most frequent pair into a new token. It does this
# > over and over. Frequent words end up as one token, rare ones as several pieces, and hardly anything is unknown: a
# > new word begins as single characters, too, and the merges are carried out in the order in which they were learned.
# > Here is the algorithm in its simplest form. A token that begins a word starts with the mark `▁`, which stands for
# > the space before it. So to turn tokens back into text, join them and replace each `▁` with a space.


# %%
def naive_bpe(words: list[str], merges: int) -> list[tuple[str, str, int]]:
    """The first merges of byte-pair encoding, with their pairs' counts (Sennrich et al., 2016)."""
    counts = {tuple(word): n for word, n in Counter(words).items()}
    learned = []
    for _ in range(merges):
        pairs = Counter()
        for word, n in counts.items():
            for pair in itertools.pairwise(word):
                pairs[pair] += n
        (first, second), n = pairs.most_common(1)[0]
        learned.append((first, second, n))
        counts = {merge(word, first, second): n for word, n in counts.items()}
    return learned


def merge(word: tuple[str, ...], first: str, second: str) -> tuple[str, ...]:
    """The tokens of a word with each pair (first, second) made one."""
    tokens = list(word)
    for i in range(len(tokens) - 1):
        if tokens[i : i + 2] == [first, second]:
            tokens[i : i + 2] = [first + second, ""]  # the second place stays, empty, to the end
    return tuple(filter(None, tokens))


# %% [markdown]
# > The `tokenizers` library learns the same merges quickly. The class below serves both kinds of vocabulary;
# > spaCy's rules split a sentence into whole words.


# %%
# @title Splitting into words by spaCy's rules
@functools.cache
def spacy_rules(language: str) -> Any:
    """spaCy's tokeniser for a language, such as "de"; ValueError for one that it does not know."""
    import spacy

    try:
        return spacy.blank(language).tokenizer
    except ImportError as error:
        raise ValueError(f"spaCy has no rules for the language {language!r}") from error


def words_of(text: str, language: str) -> list[str]:
    """Words and punctuation by spaCy's rules for the language, `▁` before those after a space."""
    doc = spacy_rules(language)(unicodedata.normalize("NFC", " ".join(text.split())))
    return [("▁" if i == 0 or doc[i - 1].whitespace_ else "") + w.text for i, w in enumerate(doc)]


# %%
# @title A tokeniser: text to ids and back
class Tokenizer:
    """Text to ids and back, in one vocabulary; whole words or byte-pair encoding (Section 5.1)."""

    def __init__(self, vocabulary):
        self.vocabulary = vocabulary  # a tokenizers.Tokenizer
        self.vocabulary.encode_special_tokens = True  # the text "</s>" in a sentence is text
        self.words = type(vocabulary.model).__name__ == "WordLevel"

    def __setstate__(self, state: dict) -> None:
        self.__dict__.update(state)
        self.vocabulary.encode_special_tokens = True  # copies and pickles forget it

    def __len__(self) -> int:
        return self.vocabulary.get_vocab_size()

    def encode(self, text: str, language: str) -> list[int]:
        """The ids of a sentence, without BOS and EOS; ValueError for what is not text."""
        if not isinstance(text, str):
            raise ValueError(f"{text!r} is not text")
        if self.words:
            return self.vocabulary.encode(words_of(text, language), is_pretokenized=True).ids
        return self.vocabulary.encode(text).ids

    def tokens(self, ids: Iterable[int]) -> list[str]:
        """The tokens with these ids, specials included."""
        return [self.vocabulary.id_to_token(i) for i in ids]

    def decode(self, ids: Iterable[int]) -> str:
        """The sentence up to EOS; an unknown word or token shows as <unk>."""
        ids = [i for i in itertools.takewhile(lambda i: i != EOS, ids) if i not in (PAD, BOS)]
        unknown = "▁<unk>" if self.words else "<unk>"  # most likely with a space before it
        pieces = (unknown if i == UNK else self.vocabulary.id_to_token(i) for i in ids)
        return plain("".join(pieces).replace("▁", " "))  # a model may have learned to write `&amp;`


# %% [markdown]
# > A vocabulary is learned from the training split alone. If it had seen the test text as well, fewer words of that
# > text would be unknown than of new text, and the scores would promise too much.
# >
# > **How many merges?** With few, sentences become long sequences, and attention must first assemble the words. With
# > many, most words are single tokens, but the rare ones occur too seldom to be learned. We take 6,000 for 29,000 short
# > pairs.


# %%
# @title A vocabulary of whole words
def learn_words(
    pairs: Iterable[tuple[str, str]], languages: tuple[str, str], at_least: int = 2
) -> Tokenizer:
    """A vocabulary of all words that occur `at_least` times in the pairs."""
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import WordLevel

    counts = Counter()
    for pair in pairs:
        for text, language in zip(pair, languages, strict=True):
            counts.update(words_of(text, language))
    by_frequency = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = SPECIALS + [word for word, n in by_frequency if n >= at_least]
    return Tokenizer(Vocabulary(WordLevel({w: i for i, w in enumerate(words)}, unk_token="<unk>")))


# %%
# @title Byte-pair encoding by a library
def learn_bpe(pairs: Iterable[tuple[str, str]], merges: int) -> Tokenizer:
    """A joint byte-pair encoding with at most `merges` merges (Section 5.1); reads pairs twice."""
    from tokenizers import Regex, normalizers, pre_tokenizers
    from tokenizers import Tokenizer as Vocabulary
    from tokenizers.models import BPE
    from tokenizers.trainers import BpeTrainer

    vocabulary = Vocabulary(BPE(unk_token="<unk>"))
    spaces = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Strip()]
    vocabulary.normalizer = normalizers.Sequence([normalizers.NFC(), *spaces])
    cuts = [pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()]
    vocabulary.pre_tokenizer = pre_tokenizers.Sequence(cuts)
    clean = map(vocabulary.normalizer.normalize_str, itertools.chain.from_iterable(pairs))
    letters = {"▁", *itertools.chain.from_iterable(clean)} - {" "}
    size = len(SPECIALS) + len(letters) + merges
    trainer = BpeTrainer(vocab_size=size, special_tokens=SPECIALS, show_progress=False)
    vocabulary.train_from_iterator(itertools.chain.from_iterable(pairs), trainer)
    return Tokenizer(vocabulary)


# %% [markdown]
# > Here are the first merges on 3,000 pairs, and a sentence cut into tokens in both ways.


# %%
@example
def example_merges() -> Any:
    """The first merges on 3,000 pairs, step by step; the library learns the same ones."""
    pairs = load_split("train")[:3000]
    library = learn_bpe(pairs, 6).vocabulary
    cut = library.pre_tokenizer.pre_tokenize_str
    texts = map(library.normalizer.normalize_str, itertools.chain.from_iterable(pairs))
    merges = naive_bpe([word for text in texts for word, _ in cut(text)], 6)
    assert [[a, b] for a, b, _ in merges] == json.loads(library.to_str())["model"]["merges"]
    rows = []
    for i, (a, b, n) in enumerate(merges, 1):
        rows.append({"merge": i, "left": a, "right": b, "found": f"{n:,} times"})
    return table(rows)


# %%
@example
def example_tokens() -> None:
    """One sentence as words and as pieces; decoding either gives the sentence back."""
    pairs = load_split("train")[:3000]
    sentence, _ = pairs[0]
    tokenizers = {"words": learn_words(pairs, ("de", "en"), 1), "pieces": learn_bpe(pairs, 300)}
    for name, tokenizer in tokenizers.items():
        ids = tokenizer.encode(sentence, "de")
        print(f"{name:>6}, vocabulary {len(tokenizer):,}: {' '.join(tokenizer.tokens(ids))}")
        assert tokenizer.decode(ids) == " ".join(sentence.split())


# %% [markdown]
# ## Saving and loading a translator
#
# > A *translator* is a model together with its tokeniser and the names of its two languages. Its weights are saved as
# > [safetensors](https://huggingface.co/docs/safetensors), a file format that holds numbers and no executable code.


# %%
# @title A translator in a folder
class Translator(NamedTuple):
    """A trained model with everything needed to use it."""

    model: Transformer
    tokenizer: Tokenizer
    languages: tuple[str, str] = ("de", "en")


def unwrapped(model: nn.Module) -> Transformer:
    """The model that `torch.compile`, `DataParallel` or `DistributedDataParallel` has wrapped."""
    inner = getattr(model, "_orig_mod", None) or getattr(model, "module", None)
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


def savable_weights(model: Transformer, vocab: int) -> dict[str, Tensor]:
    """The weights by name; ValueError for a model that `make_model` wouldn't build again."""

    def shapes(model: nn.Module) -> dict[str, tuple]:
        return {name: tuple(p.shape) for name, p in model.named_parameters()}

    def kinds(model: nn.Module) -> list[str]:
        return [type(m).__name__ for m in model.modules() if not isinstance(m, nn.Dropout)]

    with torch.device("meta"):  # sizes without numbers
        again = make_model(vocab, vocab, **model.settings)
    if shapes(model) != shapes(again) or kinds(model) != kinds(again):
        raise ValueError(
            "its layers, sizes or tied matrices are not those of make_model(vocab, vocab, ...), "
            "so nobody could load it; save its state_dict() instead"
        )
    return {name: p.detach().contiguous() for name, p in model.named_parameters()}


def check_place(folder: Path) -> None:
    """Raise FileExistsError for a folder of something else, such as a run of the program."""
    if not folder.is_dir():
        return
    # those that begin with a dot are a file manager's
    names = {path.name for path in folder.iterdir() if not path.name.startswith(".")}
    strangers = names - {"config.json", "model.safetensors", "tokenizer.json"}
    if names and not strangers:
        config = folder / "config.json"
        keys = {*json.loads(config.read_text("utf-8"))} if config.exists() else set()
        strangers = set() if {"vocab", "settings"} <= keys else names
    if strangers:
        raise FileExistsError(
            f"{folder} holds {min(strangers)}, so it's something else; give another folder"
        )


def save_translator(translator: Translator, folder: str | Path) -> None:
    """Write a folder with the weights, the vocabulary, and the settings given to `make_model`.

    Raises FileExistsError for a folder of something else, ValueError for a model that was changed.
    """
    from safetensors.torch import save

    (model, tokenizer, (src, tgt)) = translator
    model = unwrapped(model)
    folder = Path(folder).expanduser().resolve()
    weights = savable_weights(model, len(tokenizer))
    check_place(folder)
    folder.mkdir(parents=True, exist_ok=True)
    # what was there stays until all of the new is written
    with tempfile.TemporaryDirectory(dir=folder.parent) as name:
        new = Path(name)
        (new / "model.safetensors").write_bytes(save(weights))
        (new / "tokenizer.json").write_text(tokenizer.vocabulary.to_str(pretty=True), "utf-8")
        settings = model.settings | {"d_k": model.settings["d_k"] or 0}
        config = {"src": src, "tgt": tgt, "vocab": len(tokenizer), "settings": settings}
        (new / "config.json").write_text(json.dumps(config, indent=1) + "\n", "utf-8")
        for path in sorted(new.iterdir()):  # config.json first: it says whose folder it is
            target = (folder / path.name).resolve()
            with suppress(OSError):  # it is new, or the file system has no modes
                shutil.copymode(target, path)
            os.replace(path, target)


# %%
# @title Loading it again
def load_translator(folder: str | Path) -> Translator:
    """Read what `save_translator` or the program wrote; ValueError for weights that don't fit."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file
    from tokenizers import Tokenizer as Vocabulary

    folder = Path(folder).expanduser()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        refuse_pointer((folder / name).read_bytes(), folder / name)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    saved = config["settings"]
    if modern := saved.get("modern"):
        raise ValueError(
            f"{folder} has the layers {', '.join(modern)} of since_2017: "
            "build the model, then load its weights"
        )
    if "marian" in config or saved.get("positions") == "rotary":
        raise ValueError(
            f"{folder} has layers that only the program knows: "
            f"python the_annotated_transformer.py translate --model {folder}"
        )
    names = ("N", "d_model", "d_ff", "h", "dropout", "norm", "tie", "inner_dropout", "positions")
    settings = {name: value for name, value in saved.items() if name in names}
    settings["dropout"] = saved.get("dropout") or 0.0  # None: it grew while the model learned
    settings["d_k"] = saved.get("d_k") or None
    model = make_model(config["vocab"], config["vocab"], **settings)
    path = folder / "model.safetensors"
    try:
        weights = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path}: damaged ({error})") from error
    shapes = {name: p.shape for name, p in model.named_parameters()}
    if shapes != {name: p.shape for name, p in weights.items()}:
        raise ValueError(f"{path}: not weights of this document's model")
    model.load_state_dict(weights, strict=False)  # a tied matrix is saved under one of its names
    tokenizer = Tokenizer(Vocabulary.from_file(str(folder / "tokenizer.json")))
    return Translator(model.to(best_device()).eval(), tokenizer, (config["src"], config["tgt"]))


# %% [markdown]
# ## Translating
#
# > Sentences of similar length are decoded together, and the translations are put back in the original order. A
# > translation may be up to 50 tokens longer than its source, as in the paper (Section 6.1).


# %%
# @title From text to text
def translate_lines(
    translator: Translator, lines: str | list[str],
    search: Callable[..., Tensor] = greedy_decode, batch_size: int = 64,
) -> str | list[str]:  # fmt: skip
    """One translation for each line, in order, or that of a single sentence, found by `search`.

    Raises ValueError for a line that is not text, before anything is translated.
    """
    if isinstance(lines, str):
        return translate_lines(translator, [lines], search)[0]
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, but it is {batch_size}")
    lines = list(lines)
    for number, line in enumerate(lines, 1):
        if not isinstance(line, str):
            raise ValueError(f"line {number} is not text ({line!r})")
    lines = [plain(line) for line in lines]
    model, tokenizer, (language, _) = translator
    model = unwrapped(model)
    sources = [[*tokenizer.encode(line, language), EOS] for line in lines]
    order = sorted((i for i, s in enumerate(lines) if s.strip()), key=lambda i: len(sources[i]))
    results = [""] * len(lines)
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        src = pad_rows([sources[i] for i in rows]).to(next(model.parameters()).device)
        outputs = search(model, src, source_mask(src), src.size(1) + 50).tolist()
        for i, ids in zip(rows, outputs, strict=True):
            # max_len is that of the longest source
            results[i] = tokenizer.decode(ids[: len(sources[i]) + 50])
    return results


# %% [markdown]
# ## Training
#
# > While the model learns, it translates three sentences of our own, which aren't in Multi30k. The second is the one
# > from Part 1; in the third, the verb is split in two (`hebt … auf`). The validation loss is the mean cross-entropy
# > per target token, without smoothing or dropout.


# %%
# @title Sentences to translate, sentence pairs as ids, and the loss on the validation set
OUR_SENTENCES = [
    "Ein kleiner Junge in einem roten Hemd spielt im Park mit einem Hund.",
    "Zwei Frauen sitzen auf einer Bank, während ein Mann eine Zeitung liest.",
    "Eine Frau hebt am Strand einen gelben Ball auf.",
]


def to_pairs(tokenizer: Tokenizer, texts: list[tuple[str, str]]) -> list[Pair]:
    """German-English sentence pairs as training examples."""
    ids = ((tokenizer.encode(de, "de"), tokenizer.encode(en, "en")) for de, en in texts)
    return [Pair([*src, EOS], [BOS, *tgt, EOS]) for src, tgt in ids]


@torch.inference_mode()
def validation_loss(model: Transformer, pairs: list[Pair]) -> float:
    """The mean cross-entropy in nats per target token; its exponential is the perplexity."""
    with evaluating(model):
        device = next(model.parameters()).device
        batches = [make_batch(batch).to(device) for batch in token_batches(pairs, 5000)]
        loss = sum(batch_loss(model, batch, eps=0.0).item() for batch in batches)
        return loss / sum(batch.ntokens for batch in batches)


# %% [markdown]
# > With 29,000 pairs and a few minutes on a laptop, we train a model far smaller than base, with small batches, a
# > short warmup and pre-norm, which copes with a high learning rate. There's no dropout, because in [short runs of
# > the program](lab_notebook.ipynb#The-paper's-Table-3-in-miniature) dropout hurt.

# %%
# @title The training, which keeps weights and translations as it goes
LIVE = Config(N=4, d_model=128, d_ff=256, h=4, dropout=0.0, norm="pre",
              bpe=6000, tokens_per_batch=2000, factor=2.0, warmup=400)  # fmt: skip


class LiveRun(NamedTuple):
    """What training left behind: a row for each update, and its last weights, five sets at most."""

    translator: Translator
    rows: list[dict]
    checkpoints: list[dict[str, Tensor]]


def train_tiny(limits: dict[str, float]) -> LiveRun:
    """Train for some `minutes` or `steps`; keeps weights and translations at each measurement."""
    torch.manual_seed(LIVE.seed)
    tokenizer = learn_bpe(load_split("train"), LIVE.bpe)
    train = to_pairs(tokenizer, load_split("train"))
    val = to_pairs(tokenizer, load_split("val"))
    model = LIVE.make_model(len(tokenizer)).to(best_device())
    checkpoints = []

    def measure() -> dict[str, float]:
        del checkpoints[:-4]
        checkpoints.append({name: p.detach().clone() for name, p in model.named_parameters()})
        translations = translate_lines(Translator(model, tokenizer), OUR_SENTENCES)
        return {"validation": validation_loss(model, val), "translations": translations}

    epochs = (token_batches(train, LIVE.tokens_per_batch, epoch) for epoch in itertools.count())
    batches = itertools.islice(itertools.chain.from_iterable(epochs), limits.get("steps"))
    minutes = limits.get("minutes", math.inf)
    rows = fit(Trainer(model, LIVE), batches, minutes, every=50, measure=measure)
    if "validation" not in rows[-1]:
        rows[-1] |= measure()
    return LiveRun(Translator(model.eval(), tokenizer), rows, checkpoints)


# %% [markdown]
# > The next cell trains for three minutes, or for as long as `ANNOTATED_MINUTES` or `ANNOTATED_STEPS` in the environment
# > says. How far that gets depends on your machine: after about 500 updates translations take shape, and after about 850
# > most short captions come out right. The output shown here comes from fifteen minutes on a single core. A run that was
# > completed before is loaded from its folder.
# >
# > **To continue a run.** The folder holds only the weights. That's enough for translating, but not for continuing the training as if
# > nothing had happened: Adam would have to estimate the sizes of the gradients from scratch, and the learning rate
# > would start near zero and climb to its peak again. A checkpoint to *continue* from must also hold the
# > optimiser's state, the number of updates and the position in the data, as the program's checkpoints do. Two runs
# > agree to the last bit only with the same versions of the libraries, the same kind of processor and as many threads.


# %%
# @title A finished run is saved and reloaded
def positive(variable: str, default: float) -> float:
    """A number above 0 from the environment; ValueError naming the variable for anything else."""
    text = os.environ.get(variable) or str(default)
    if not re.fullmatch(r"[0-9]*\.?[0-9]+", text) or float(text) == 0:
        raise ValueError(f"{variable} must be a number above 0, but it is {text!r}")
    return float(text)


@functools.cache
def live_run() -> LiveRun:
    """This document's training, made now or read from its folder; one for each architecture."""
    kind = "steps" if os.environ.get("ANNOTATED_STEPS") else "minutes"
    number = positive(f"ANNOTATED_{kind.upper()}", 3)
    torch.manual_seed(0)
    batch = make_batch(copy_pairs(8, 100, seed=0))
    fingerprint = batch_loss(LIVE.make_model(100).eval(), batch, LIVE.smoothing).item()
    data = Path(choose_data().replace(":", "-")).name
    if choose_data() not in ("multi30k", "phrases"):  # another text in a folder is another run, too
        data += f"-{zlib.crc32(repr(load_split('train')).encode()):08x}"
    folder = Path(f"runs/live-{data}-{kind}-{number:g}-{fingerprint:.3f}")
    history = folder / "history.pt"
    new = folder.with_name(f"{folder.name}.new")
    new.parent.mkdir(parents=True, exist_ok=True)  # if that is impossible, it shows at once
    if not history.exists():
        run = train_tiny({kind: math.ceil(number) if kind == "steps" else number})
        save_translator(run.translator, folder)
        torch.save(run[1:], new)
        os.replace(new, history)  # last, and whole
    try:
        return LiveRun(load_translator(folder), *torch.load(history, map_location=best_device()))
    except Exception as error:  # of many kinds, from three libraries
        raise RuntimeError(
            f"{folder} can't be read; delete it, and the training is done again ({error})"
        ) from error


# %% [markdown]
# > The targets of the training loss are smoothed and those of the validation loss aren't, so you can compare the
# > directions of the two curves, but not their heights. If training goes on for thousands of updates, the validation
# > loss stops falling and then rises again, while the training loss keeps falling. That's *overfitting*: the model
# > learns the training sentences by heart. Dropout, which this run lacks, counteracts it.


# %%
@example
def example_curves() -> Chart:
    """Losses over time. A model that finds all tokens equally likely
    has a loss equal to the logarithm of their number."""
    (_, tokenizer, _), rows, _ = live_run()
    n = len(tokenizer)
    last = rows[-1]
    points = []
    for i in range(0, len(rows), 10):
        ten = rows[i : i + 10]
        mean = sum(row["loss"] for row in ten) / len(ten)
        points.append((ten[-1]["minutes"], mean, "training, smoothed targets"))
    measured = [row for row in rows if "validation" in row]
    points += [(row["minutes"], row["validation"], "validation") for row in measured]
    points += [(row["minutes"], math.log(n), "ln of the vocabulary") for row in (rows[0], last)]
    end = measured[-1]["validation"]
    print(f"{len(rows):,} updates in {last['minutes']:.1f} minutes", end=", ")
    print(f"the last loss {last['loss']:.2f}")
    print(f"validation: {end:.3f} nats per token, perplexity {math.exp(end):.1f}; of {n:,} tokens")
    assert end < math.log(n) or len(rows) < 50
    lines = [{"minutes": x, "nats per token": y, "loss": name} for x, y, name in points]
    return curves(lines, "minutes", "nats per token", "loss")


# %% [markdown]
# > Three models come with this document: one for each direction, and a third with [rotary
# > positions](since_2017.ipynb#Rotary-positions). They are of the same size as the one above, but the program trained
# > them longer, with another recipe; the `README.md` in each model's folder, its *card*, says how.


# %%
# @title The model that comes with this document
@functools.cache
def our_model() -> Translator:
    """The shipped model; if it is missing or does not fit, with a notice, the one trained above."""
    try:
        names = "config.json", "tokenizer.json", "model.safetensors"
        files = [beside(f"{SHIPPED_MODEL}/{name}") for name in names]
        translator = load_translator(files[0].parent)
        if translate_lines(translator, "Ein Hund läuft.") != "A dog is running.":
            raise ValueError(
                f"{SHIPPED_MODEL} does not fit this architecture: "
                "its translations are no longer right"
            )
        return translator
    except Exception as error:  # whatever a reader's changes lead to
        print(f"NOTICE: {error}; the model trained above takes its place.")
        return live_run().translator


# %%
@example
def example_progress() -> Any:
    """One sentence after a minute, after five minutes, and at the end of training;
    and by the German-English model that comes with this document."""
    measured = [row for row in live_run().rows if "validation" in row]
    stages = {}  # by update: a short run has fewer
    for minutes in (1, 5, 1e9):
        stage = min(measured, key=lambda row: abs(row["minutes"] - minutes))
        stages[stage["update"]] = stage
    print(OUR_SENTENCES[1])
    rows = []
    for stage in stages.values():
        rows.append({"minutes": f"{stage['minutes']:.1f}", "loss": f"{stage['validation']:.2f}"})
        rows[-1]["translation"] = stage["translations"][1]
    shipped = translate_lines(our_model(), OUR_SENTENCES[1])
    return table([*rows, {"minutes": "shipped", "loss": "", "translation": shipped}])


# %% [markdown]
# > **Why does greedy decoding repeat itself?** In an undertrained model, the most probable token after "a" may be "a"
# > again, or the most probable words after "on a bench" may lead back to "on a bench". A search that never takes the
# > second most probable token has no way out of such a loop.
#
# ## BLEU
#
# > BLEU (Papineni et al., 2002) compares translations with references, over a whole corpus. For $n$ from 1 to 4, it
# > measures what share of the translations' *n-grams* (sequences of $n$ words) also occur in the references. A
# > repeated n-gram counts at most as often as it occurs in the reference. BLEU is the geometric mean of the four
# > shares, times 100, and times a penalty of $e^{1 - r/c}$ if the $c$ words of the translations are fewer than the
# > $r$ words of the references.


# %%
@example
def example_bleu_by_hand() -> Any:
    """BLEU of one sentence, step by step, as sacreBLEU computes it."""
    from sacrebleu.metrics import BLEU

    translation = "a woman picks up a yellow ball on the beach ."
    reference = "a woman is picking up a yellow ball on the beach ."
    words, right_words = translation.split(), reference.split()
    rows, logs = [], []
    for n in range(1, 5):
        n_grams = Counter(zip(*(words[i:] for i in range(n)), strict=False))
        expected = Counter(zip(*(right_words[i:] for i in range(n)), strict=False))
        hits = (n_grams & expected).total()  # & takes the smaller count of each
        total = n_grams.total()
        rows.append({"n": n, "in the translation": total, "also in the reference": hits})
        rows[-1]["share"] = f"{hits / total:.3f}"
        logs.append(math.log(hits / total) / 4)
    penalty = min(1.0, math.exp(1 - len(right_words) / len(words)))
    mean = math.exp(sum(logs))
    score = 100 * penalty * mean
    print("translation:", translation, "\nreference:  ", reference)
    print(f"geometric mean {mean:.3f}, times {penalty:.3f} for being too short: BLEU {score:.1f}")
    theirs = BLEU(tokenize="none").corpus_score([translation], [[reference]]).score
    assert math.isclose(score, theirs, abs_tol=1e-6)
    return table(rows)


# %% [markdown]
# > The score depends on how the text is cut into words, so two BLEU scores can be compared only if both were computed
# > in the same way. [sacreBLEU](https://github.com/mjpost/sacrebleu) (Post, 2018) does the cutting itself, on ordinary
# > text with capital letters, and prints a signature that says how. *chrF* (Popović, 2015) compares n-grams of
# > characters instead, and is kinder to long German words. BLEU is defined for a whole corpus, and the mean of the
# > scores of its sentences is a different number. And a good translation scores badly if its words aren't those of the
# > reference.
# >
# > The paper's BLEU was probably computed on tokenised text with German compounds split at their hyphens, which makes
# > more words match (see the [lab notebook](lab_notebook.ipynb#Scores-of-others)). So its 28.4 isn't a sacreBLEU score.


# %%
def bleu(translations: list[str], references: list[str]) -> tuple[float, str]:
    """A corpus's BLEU, cased, by sacreBLEU's tokenisation 13a, and its signature (Section 6.1).

    Raises ValueError unless there are as many references as translations.
    """
    from sacrebleu.metrics import BLEU

    if len(translations) != len(references):
        raise ValueError(
            "each translation needs one reference, but there are "
            f"{len(translations)} translations and {len(references)} references"
        )
    metric = BLEU()
    return metric.corpus_score(translations, [references]).score, str(metric.get_signature())


# %%
@example
def example_bleu() -> None:
    """BLEU, on the validation sentences, of the model trained above;
    the references themselves score 100."""
    sources, references = (list(side) for side in zip(*load_split("val"), strict=True))
    score, signature = bleu(translate_lines(live_run().translator, sources), references)
    print(f"BLEU {score:.1f} ({signature})")
    assert bleu(references, references)[0] > 99.9


# %% [markdown]
# ### What a number of pairs buys
#
# > From random weights, each doubling of the captions adds 3.5 to 8.5<!--captions doubled--> BLEU. With 500 pairs, a model that already
# > translates in the other direction gets as far as 2,000 pairs from random weights; with 8,000 it ends slightly
# > lower. Messages of programs vary more: 4,000 pairs give 13.1<!--messages 4000--> BLEU.
# >
# > The [lab notebook](lab_notebook.ipynb#What-a-number-of-pairs-buys) has the table and the settings. The model of the
# > other direction has read all these sentences; one that has read others may help less. Test on text of your own kind,
# > and remove any pair that's also in the training set. With more text in the target language, a model of the other
# > direction can translate it back into the source language, which gives you further pairs
# > ([back-translation](lab_notebook.ipynb#More-pairs-from-the-same-pairs)).
#
# ## Several processes (Section 5.2)
#
# > **Data parallelism.** Every process holds the whole model and takes a share of the rows of each batch. It computes
# > the gradient of these rows, and then the gradients of all processes are added up. This is called *all-reduce*: every
# > process contributes a number, and every process gets the sum. Since all of them then make the same update, their
# > weights stay equal. (The number of a process is its *rank*.)
# >
# ![Two processes, rank 0 and rank 1, each with a copy of the model and half of the rows of a batch; each computes a gradient, all-reduce gives both the sum, and both make the same update](images/data_parallel.svg)
#
# > As with accumulation, each process divides by the number of tokens in the *whole* update. (PyTorch's
# > `DistributedDataParallel` takes the *mean* over the processes. If you use it, multiply each loss by the number of
# > processes; otherwise every gradient is that many times too small.)
# >
# > The program starts its processes with `torchrun`, and can also divide the weights and the optimiser's state among
# > them, on one machine or several ([how](lab_notebook.ipynb#Many-processes-and-machines)).
#
# ## Summary of Part 3
#
# > Real text needs a vocabulary that can spell words it has never seen, and a score that others can compare with their
# > own.
# >
# > **Change it and train:** [3.1 Tokens per second and batch
# > size](exercises.ipynb#3.1-Tokens-per-second-and-batch-size).

# %% [markdown]
# # Part 4: What else the paper used
#
# ## Beam search (Section 6.1)
#
# The paper translates with *beam search*, with a beam of 4 and a length penalty of $\alpha = 0.6$ (Wu et al., 2016).
# Both were chosen on the development set (our validation set). The output may be at most 50 tokens longer than the
# input, and the search ends early when possible.
#
# > Greedy decoding takes the most probable token and never looks back. A beam of width $b$ keeps the $b$ most probable
# > *hypotheses*, that is, unfinished translations; we also say that the search has $b$ *beams*. At each step, every
# > hypothesis is extended by each token of the vocabulary, and the $b$ most probable extensions are kept. An extension
# > that ends in `</s>` is finished, and so is one that has reached the length limit. A finished hypothesis keeps its
# > place: once $j$ are finished, only $b - j$ are carried on, and once all $b$ are finished the search ends.
# >
# > Every extra token multiplies the probability by a factor below 1, so short translations have an advantage they
# > don't deserve. The finished ones are therefore compared by their log-probability divided by a *length penalty*,
# > where $|Y|$ is the number of tokens, `</s>` included:
# >
# > $$\mathrm{score}(Y) = \frac{\log P(Y \mid X)}{lp(Y)}, \qquad lp(Y) = \left(\frac{5 + |Y|}{6}\right)^{\alpha}$$
# >
# > The logarithm of a probability is negative, so a larger divisor *raises* the score. In spite of its name, the
# > penalty favours long translations, and more so with a larger $\alpha$. With $\alpha = 0$ it's off.
# >
# > All hypotheses of all sentences go through the decoder together, as rows of one batch. When hypotheses change
# > places, their keys and values must move with them.
# >
# > When can the search stop? The log-probability of a hypothesis can only fall. Divide it by the largest possible
# > penalty, that of the longest output allowed, and you have the best score that any continuation can reach. If no
# > hypothesis can beat the best finished translation, going on won't change anything.


# %%
def length_penalty(length: Tensor | float, alpha: float) -> Tensor | float:
    """The length penalty: log-probabilities are divided by it (Wu et al., 2016, Equation 14)."""
    return ((5 + length) / 6) ** alpha


# %%
# @title Choosing rows of a cache
def select_rows(decoder: CachedDecoder, rows: Tensor) -> None:
    """Go on with these rows, in this order."""
    decoder.past = [(K[rows], V[rows]) for K, V in decoder.past]
    decoder.source = [(K[rows], V[rows]) for K, V in decoder.source]
    decoder.src_mask = decoder.src_mask[rows]


# %% [markdown]
# > For each sentence, `topk` looks at all the extensions of its $b$ hypotheses at once. Divide the index of an
# > extension by the size of the vocabulary, and the quotient is the hypothesis that it extends (`parents`); the
# > remainder is the new token. `open_places` counts what is left of each sentence's $b$ places. A place is `alive` if it
# > holds a hypothesis, and `ended` if this token is its last.


# %%
@torch.inference_mode()
def beam_search(
    model: Transformer, src: Tensor, src_mask: Mask, max_len: int,
    beam: int = 4, alpha: float = 0.6,
) -> Tensor:  # fmt: skip
    """The translation of best score that a beam finds (Section 6.1).

    Returns ids (B, at most max_len), BOS first, PAD after EOS. max_len is for sources (B, S)
    without padding: one with n padded positions gets n tokens fewer, as if it were alone.
    """
    if not (isinstance(beam, Integral) and beam >= 1 and 0 <= alpha <= 10):  # 1000 overflows
        raise ValueError(
            "the beam must be a whole number, at least 1, and alpha from 0 to 10, "
            f"but they are {beam} and {alpha}"
        )
    B = len(src)
    if src_mask is None:
        src_mask = torch.ones_like(src[:, None], dtype=torch.bool)
    limit = (max_len - (src_mask == 0).sum((1, 2)).expand(B)).clamp(min=2)  # of outputs, with BOS
    best = [-torch.inf] * B  # scores of finished translations
    results = [[BOS]] * B
    sentences = torch.arange(B, device=src.device).unsqueeze(1)  # (B, 1)
    places = torch.arange(beam, device=src.device)
    open_places = torch.full((B, 1), beam, device=src.device)
    ys = torch.full((B, beam, 1), BOS, device=src.device)
    log_p = torch.where(places > 0, -torch.inf, 0.0).repeat(B, 1)  # (B, beam): one hypothesis
    with evaluating(model):
        decoder = CachedDecoder(model, src, src_mask.expand(B, 1, -1))
        select_rows(decoder, sentences.expand(B, beam).flatten())
        for t in range(1, max_len):
            step = decoder.step(ys[:, :, -1].flatten()).float().log_softmax(-1)  # (B * beam, vocab)
            total = log_p.unsqueeze(-1) + step.view(B, beam, -1)  # (B, beam, vocab)
            log_p, extensions = total.flatten(1).topk(beam)  # (B, beam), best first
            parents = extensions // step.size(-1)
            tokens = extensions % step.size(-1)
            ys = torch.cat((ys[sentences, parents], tokens.unsqueeze(-1)), -1)  # (B, beam, t + 1)
            alive = (places < open_places) & (log_p > -torch.inf)
            ended = alive & ((tokens == EOS) | (t + 1 >= limit).unsqueeze(1))
            for i, place in ended.nonzero().tolist():
                score = log_p[i, place].item() / length_penalty(t, alpha)
                if score > best[i]:
                    best[i] = score
                    results[i] = ys[i, place].tolist()
            log_p = log_p.masked_fill(ended | ~alive, -torch.inf)
            open_places = open_places - ended.sum(1, keepdim=True)
            highest = log_p.amax(1) / length_penalty(limit - 1, alpha)
            if (highest <= torch.tensor(best, device=src.device)).all():
                break  # no continuation can score more
            select_rows(decoder, (beam * sentences + parents).flatten())
    return pad_rows(results).to(src.device)


# %% [markdown]
# > With a single beam, it's greedy decoding; with as many beams as there are sequences, it finds the best of all.
# > `tests/tour.py` checks that it does.
# >
# > **Which penalty?** The chart shows BLEU on the validation set, from German to English, for several beam widths and
# > penalties. (It was measured with the German-English model in `models/` before that model learned from extra pairs.)
# > With the paper's 0.6, our model's translations come out 4% shorter than the references. With five beams, $\alpha = 1.8$
# > gives the highest BLEU, and the program uses it, but all values from 0.6 to 2.4 come within half a point of it, a
# > difference that may be down to chance.
# >
# > **Why are beams so small?** A wider beam finds translations that the model considers more probable, but they
# > aren't necessarily better. The most probable output of all is often too short; for many sentences it's even empty
# > (Stahlberg and Byrne, 2019). One explanation is that the model has learned which token follows a good
# > beginning, not how to rank whole translations.

# %%
BEAM, ALPHA = 5, 1.8


# %%
@example
def example_length_penalty() -> Chart | None:
    """BLEU of a trained model on the validation set, by beam and length penalty,
    and the lengths with five beams."""
    rows = []
    for row in [row for row in saved_rows("search") if "alpha" in row["search"]]:
        search, alpha = row["search"].split(", alpha ")
        rows.append({"alpha": float(alpha), "BLEU": row["bleu"], "search": search})
        if search == f"beam {BEAM}":
            print(f"alpha {alpha}: BLEU {row['bleu']:.2f}", end=", ")
            print(f"{row['length']:.1%} of the references' length")
    return curves(rows, "alpha", "BLEU", "search") if rows else None


# %% [markdown]
# ## Averaged checkpoints (Section 6.1)
#
# For the base models, the paper averages the last 5 checkpoints, which were written every 10 minutes. For the big
# models it averages the last 20.
#
# > It's the *weights* that are averaged. The result is a single model, and costs no more to run than any other. Why
# > does averaging help? The usual explanation is that at the end of a run the weights jump around a common centre,
# > because each batch pushes them its own way, and that the mean lies nearer to the centre than any checkpoint.
# > Averaging works for checkpoints of one run, or of runs that started from the same trained weights. Two runs from
# > different random weights have their hidden units and heads in different orders, so the mean of their weights is
# > useless. Such models can form an *ensemble*, which averages their predictions instead. That usually gains more,
# > but every one of them has to be run. Whoever fears overfitting keeps the checkpoint with the best validation score
# > (the program, in `best/`); it may owe a little of its score to luck.


# %%
def average_weights(checkpoints: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight over some checkpoints of one run (Section 6.1)."""
    return {name: torch.stack([w[name] for w in checkpoints]).mean(0) for name in checkpoints[0]}


# %% [markdown]
# > Here are beam search and averaging, applied to the model trained above, with BLEU on the first 300 validation
# > sentences; with so few, a difference of a point proves nothing. The run was short, and its checkpoints were still
# > improving; yet the mean is far better than the last of them. (In [a longer
# > run](lab_notebook.ipynb#Post-norm-and-Adam-in-a-longer-run), it gains more than two BLEU.) The program keeps a
# > *moving average* of the weights while it trains, over about the last tenth of the run, and translates with it.


# %%
@example
def example_search_and_average() -> Any:
    """BLEU of the last checkpoint and of the mean of the last (at most five),
    greedy and with a beam."""
    (model, tokenizer, _), _, checkpoints = live_run()
    sources, references = (list(side) for side in zip(*load_split("val")[:300], strict=True))
    beam = functools.partial(beam_search, beam=BEAM, alpha=ALPHA)
    rows = []
    for name, last in (("mean of the last", checkpoints), ("last alone", checkpoints[-1:])):
        model.load_state_dict(average_weights(last), strict=False)  # a tied weight is there once
        rows.append({"checkpoints": f"{name} ({len(last)})"})
        for column, search in {"greedy": greedy_decode, f"beam {BEAM}": beam}.items():
            lines = translate_lines(Translator(model, tokenizer), sources, search)
            rows[-1][column] = round(bleu(lines, references)[0], 1)
    return table(rows)


# %% [markdown]
# ## Summary of Part 4
#
# > A beam follows several hypotheses at once, and a length penalty decides which of the finished translations wins.
# >
# > **Change it and train:** [4.1 Which α is best](exercises.ipynb#4.1-Which-α-is-best), and [4.2 Averages of one to five
# > checkpoints](exercises.ipynb#4.2-Averages-of-one-to-five-checkpoints).

# %% [markdown]
# # Part 5: Results (Section 6)
#
# ## Why self-attention (Section 4, Table 1)
#
# The paper compares self-attention with recurrent and convolutional layers, each mapping $n$ vectors of width $d$ to
# $n$ vectors of width $d$. It asks three questions. How much does a layer compute? How many operations must follow
# one another? And how long is the path that a signal has to travel between two positions? The shorter the path, the
# easier it is to learn dependencies over long distances.
#
# | layer | operations per layer | sequential operations | longest path |
# |---|---|---|---|
# | self-attention | $O(n^2 d)$ | $O(1)$ | $O(1)$ |
# | recurrent | $O(n d^2)$ | $O(n)$ | $O(n)$ |
# | convolutional | $O(k n d^2)$ | $O(1)$ | $O(\log_k n)$ |
# | self-attention, restricted | $O(r n d)$ | $O(1)$ | $O(n/r)$ |
#
# <details><summary>What the paper says about the table</summary>
#
# Here $k$ is the width of a convolution's kernel. Self-attention is cheaper than recurrence if $n < d$, which holds
# for most sentences in word pieces. For very long sequences it could be restricted to a neighbourhood of $r$
# positions, at the cost of longer paths; the authors left that for later. A single convolution with $k < n$ does
# not connect all pairs of positions. That takes a stack of $O(n/k)$ of them, or $O(\log_k n)$ if they are dilated.
# Convolutions generally cost $k$ times as much as recurrence. Separable ones need only $O(k n d + n d^2)$; with $k
# = n$ that is the same as a self-attention layer and a feed-forward layer together, which is the combination that
# the Transformer uses. As a side benefit, self-attention may be easier to interpret: its heads clearly learn
# different tasks, and many of them seem to follow the syntax and the meaning of a sentence (Part 6).
#
# </details>
#
# > **Where do these numbers come from?** Count the multiplications. *Self-attention* takes the dot product of $n$
# > queries with $n$ keys, $d$ multiplications each: $n^2 d$. Weighting the values takes another $n^2 d$. *Recurrence*
# > multiplies the state by a $d \times d$ matrix at each of $n$ positions: $n d^2$, and each must wait for the one
# > before. A *convolution* does the same for $k$ neighbours: $k n d^2$. A *separable* one first mixes $k$ neighbours
# > within each of $d$ channels, $k n d$, and then the channels at each position, $n d^2$.
# >
# > **What the table leaves out.** An attention layer also projects: queries, keys, values and output take $4 n
# > d^2$. At sentence length it's these that dominate, not the $n^2$ terms. So at every length, a whole attention
# > layer needs more multiplications than the table's recurrent layer: $4nd^2 + 2n^2d$ against $nd^2$. Even if you
# > count only attention's own products, $2n^2d$ is less than $nd^2$ only if $n < d/2$. (A plain recurrent layer has
# > two matrices, not one, and an LSTM has eight.) What remains true at every length is the column of sequential
# > operations: attention can handle all positions at once, and recurrence can't.
# >
# > The chart shows *measured* times for one layer of each kind, of width 512, and a single sequence. On these axes, a
# > slope of 1 means in proportion to the length, and a slope of 2 to its square.


# %%
@example
def example_layer_times() -> Chart | None:
    """Time against length for one layer of each kind, measured."""
    rows = []
    for run in saved_rows("layers")[-1:]:
        rows += [{"tokens": row["n"], **row} for row in run["measurements"]]
    return curves(rows, "tokens", "milliseconds", "layer", log_y=True, log_x=True) if rows else None


# %% [markdown]
# > Up to about a thousand tokens, the whole layer of attention takes less time than the recurrent one, although it
# > multiplies more, probably because it computes all positions at once.
#
# ## How many parameters? (Table 3)
#
# Table 3 of the paper gives the number of parameters of several variants, in millions: 65 for base, 213 for big.
#
# > Where are they? [Attention has $4d^2$, and the network $8d^2$](#What-to-delete-to-get-GPT); a decoder layer has two
# > attentions. The embeddings are one matrix, used three times. (The small remainder is norms and biases.)


# %%
@example
def example_base() -> Any:
    """The base model's parameters, part by part."""
    with torch.device("meta"):  # shapes without numbers
        model = make_model(37_000, 37_000, tie="all")
    modules = {"encoder, 6 · 12 d²": model.encoder, "decoder, 6 · 16 d²": model.decoder}
    modules |= {"embeddings, 37,000 d": model.generator, "in all": model}
    counts = {name: sum(p.numel() for p in module.parameters()) for name, module in modules.items()}
    assert sum(counts.values()) == 2 * counts["in all"]
    return table([{"part": name, "parameters": f"{n:,}"} for name, n in counts.items()])


# %% [markdown]
# > That makes 63 million. The paper's 65 suggests a vocabulary about 4,000 tokens larger than its Section 5.1 says
# > (the [sums for all of Table 3](lab_notebook.ipynb#The-vocabulary-behind-Table-3)).
#
# ## Machine translation (Section 6.1, Table 2)
#
# On WMT 2014's newstest2014, the big model reached 28.4 BLEU from English to German. That is more than 2 BLEU above
# everything before it, ensembles included. Even the base model was better than all of them, at a fraction of their
# training cost. From English to French the big model reached 41.8 in the table (the text says 41.0), better than
# every earlier single model, at less than a quarter of the cost of the best of them; for this language pair it used a
# dropout rate of 0.1, not 0.3 as for English to German.
#
# The cost is the training time, times the number of GPUs, times the operations per second that a GPU of that type
# sustains (2.8, 3.7, 6.0 and 9.5 TFLOPS in single precision for the K80, K40, M40 and P100).
#
# > You can also count from the model: per token, a weight takes 2 operations forward and 4 backward. For base, with
# > 63 million weights and 2.5 billion tokens on each side, that makes $0.9 \cdot 10^{18}$. The table's $3.3 \cdot
# > 10^{18}$ is what eight P100s could have done in the twelve hours. Attention's own products add $12nd$ operations
# > per token and attention sublayer, with $n$ positions: for base and thirty positions, about one per cent.


# %%
@example
def example_table_2() -> Any:
    """The paper's Table 2: BLEU on newstest2014, and the cost of training
    in floating-point operations."""
    rows = []
    for row in saved_rows("paper"):
        if row["table"] == 2:
            rows.append({name: row.get(name, "") for name in ("model", "en-de", "en-fr")})
            for name in ("operations en-de", "operations en-fr"):
                rows[-1][name] = f"{row[name]:.1e}" if row.get(name) else ""
    return table(rows)


# %% [markdown]
# ## Our translators
#
# > The program's models have the dimensions of the model in Part 1. For each direction there are two kinds: one learned
# > from Multi30k's 29,000 pairs alone; the other then went on to learn from further pairs, written by models
# > ([how](lab_notebook.ipynb#More-pairs-from-the-same-pairs)). The table has BLEU on test_2016_flickr, with five beams.
# > `moses` is what most papers on Multi30k report, BLEU of lower-cased text that was split by the tokeniser of the
# > Moses toolkit.


# %%
@example
def example_translators() -> Any:
    """Our four kinds of translator on a thousand unseen sentences (means over the runs).
    Those that went on to learn from more pairs score higher; they also trained for longer."""
    runs: dict[tuple[str, str], list[dict]] = {}
    wanted = {"split": "test_2016_flickr", "preset": "tiny", "data": "multi30k"}
    for row in saved_rows("quality"):
        if wanted.items() <= row.items() and "5" in row["search"]:
            pairs = "29,000 pairs" + " and models'" * ("--start-from" in row["command"])
            runs.setdefault((row["direction"], pairs), []).append(row)
    for kind, group in runs.items():  # the last model of a training counts
        last = max(row["step"] for row in group)
        runs[kind] = [row for row in group if row["step"] == last]
    for row in saved_rows("first_stage"):  # the same recipe once more, with three seeds
        if row["variant"] == "base":
            scores = row["test_2016_flickr"]["beam"]
            runs.setdefault((row["direction"], "29,000 pairs"), []).append(scores)
    rows = []
    for (direction, pairs), group in runs.items():
        rows.append({"direction": direction, "learned from": pairs})
        for name, key in (("BLEU", "bleu"), ("moses", "bleu_moses"), ("chrF", "chrf")):
            rows[-1][name] = round(sum(row[key] for row in group) / len(group), 2)
        scores = [round(row["bleu"], 2) for row in group]
        rows[-1] |= {"runs": len(scores), "lowest": min(scores), "highest": max(scores)}
    return table(rows)


# %% [markdown]
# > A published Transformer of these dimensions, trained on the same pairs, has a `moses` score of 41.02 from English
# > to German (Wu et al., 2021). Ours, trained on the pairs alone, scores 1.3<!--en-de alone, behind Wu--> *less*
# > ([details](lab_notebook.ipynb#The-translators)).
#
# ## What each part contributes (Section 6.2, Table 3)
#
# The paper varied the base model and scored each variant on newstest2013, with beam search and without averaged
# checkpoints. (A) varies the number of heads and the width of each, so that the amount of work stays the same: a
# single head is 0.9 BLEU worse than the best setting, and too many heads also hurt. (B) Narrower keys hurt. This
# suggests, the authors say, that it is not easy to decide how well a query and a key match, and that a better
# function than the dot product might help. (C) Larger models are better (though the one with eight layers has a
# lower BLEU than the base). (D) Dropout does a great deal to prevent overfitting. (E) Learned positions give nearly
# the same result as sinusoids. Perplexities are per word piece and cannot be compared with those per word. An empty
# cell means the base model's value:


# %%
@example
def example_paper_table_3() -> Any:
    """The paper's Table 3, all columns."""
    variants = [row for row in saved_rows("paper") if row["table"] == 3]  # the base model first
    rows = []
    for row in variants:
        rows.append({"variant": row["variant"], "row": row["row"]})
        for name in ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "eps_ls", "updates"):
            changed = row["row"] == "base" or row[name] != variants[0][name]
            rows[-1][name] = row[name] if changed else ""
        rows[-1] |= {"perplexity": row["perplexity"], "bleu": row["bleu"]}
        rows[-1]["parameters"] = row.get("million parameters", "")
    return table(rows)


# %% [markdown]
# > A perplexity belongs to its vocabulary: a piece is easier to predict than a whole word.
# >
# > **Does the same hold at our size?** Some of it holds, for variants of the `tiny` model after four passes through Multi30k, with a beam, each ± 0.5<!--reach--> BLEU over the seeds ([all
# > of them](lab_notebook.ipynb#The-paper's-Table-3-in-miniature)). One head (A) is no worse than four, sixteen are 1.8<!--h = 16--> worse. Narrow keys (B)
# > cost 1.2<!--d_k = 8-->. Twice the width of the model (C) gains 0.7<!--d_model = 256-->. Dropout (D) hurts: 0.1 costs 1.2<!--dropout = 0.1-->, probably because four passes are too
# > few for overfitting to begin. Learned positions (E) are 1.3<!--positions = learned--> worse than sinusoids, and without any, the model loses more than
# > five. Allow for the choice of test sentences and for the thirty comparisons that we made, and any difference below
# > 1.84<!--reach corrected--> could be chance.
#
# ## English constituency parsing (Section 6.3, Table 4)
#
# For another task, the authors trained a Transformer with four layers and $d_{\text{model}} = 1024$ to write the
# parse tree of an English sentence. The output is much longer than the input and must be well formed, and recurrent
# models had not done well with little data.
#
# One training run used the Wall Street Journal part of the Penn Treebank, about 40,000 sentences, with a vocabulary of
# 16,000 tokens. The other, semi-supervised, added two corpora of about 17 million automatically parsed sentences
# ("high-confidence" and BerkeleyParser), with a vocabulary of 32,000. The authors ran only a few experiments, on the
# development set (Section 22 of the treebank), to choose the dropout rate (on attention as well), the learning rate and
# the beam size. The output could be up to 300 tokens longer than the input, with a beam of 21 and $\alpha = 0.3$. All
# other settings were those of the English-German base model.
#
# The table gives the F1 scores on Section 23 of the treebank:


# %%
@example
def example_table_4() -> Any:
    """The paper's Table 4."""
    rows = [row for row in saved_rows("paper") if row["table"] == 4]
    return table([{name: row[name] for name in ("parser", "training", "F1")} for row in rows])


# %% [markdown]
# Even with so little tuning for the task, the Transformer did better than all earlier models except the Recurrent
# Neural Network Grammar (Dyer et al., 2016). Unlike recurrent sequence models, it beat the BerkeleyParser (Petrov et
# al., 2006) when trained on the 40,000 sentences alone.
#
# > In the table, a multi-task model (Luong et al., 2015) also scores higher than the Transformer. *F1* combines two
# > shares: how many of the brackets found are right, and how many of the right brackets were found.
#
# ## Conclusion (Section 7)
#
# The Transformer was the first model for mapping sequences to sequences in which attention alone relates the positions.
# It trained faster than models with recurrence or convolution, and set a new state of the art on both translation
# tasks. The authors planned to apply it to images, audio and video, to restrict attention to neighbourhoods when input
# and output are large, and to make generation less sequential.
#
# ## Summary of Part 5
#
# > A score means something only next to another score for the same sentences, computed in the same way, and only if
# > the difference is larger than chance alone would explain.

# %% [markdown]
# # Part 6: Looking inside
#
# > The maps here are of the German-English model that comes with this document. There's no dropout, which would
# > change them every time.


# %%
# @title All attention weights of a translation
class AttentionMaps(NamedTuple):
    """The weights of one translation."""

    source: list[str]
    target: list[str]  # what each decoder position reads
    predicted: list[str]  # what it predicts
    maps: dict[str, Tensor]  # encoder (N, h, S, S), decoder (N, h, T, T) and cross (N, h, T, S)
    translation: str

    def steps(self) -> list[str]:
        """What each decoder position reads, and what it predicts from it."""
        return [f"{a} → {b}" for a, b in zip(self.target, self.predicted, strict=True)]


@torch.inference_mode()
def attention_maps(
    translator: Translator, sentence: str, search: Callable = greedy_decode
) -> AttentionMaps:
    """Translate a sentence, then read all attention weights in one pass over both texts.

    Raises ValueError for a blank sentence.
    """
    model, tokenizer, (language, _) = translator
    if not sentence.strip():
        raise ValueError("the sentence is blank")
    device = next(model.parameters()).device
    src = torch.tensor([[*tokenizer.encode(sentence, language), EOS]], device=device)  # (1, S)
    ids = search(model, src, source_mask(src), src.size(1) + 50)[0].tolist()  # BOS, ..., EOS
    tgt = torch.tensor([ids[:-1]], device=device)  # (1, T)
    with evaluating(model), recording(model) as weights:
        model(src, tgt, source_mask(src), target_mask(tgt))
    attentions = {"encoder": [layer.self_attn for layer in model.encoder.layers]}
    attentions["decoder"] = [layer.self_attn for layer in model.decoder.layers]
    attentions["cross"] = [layer.src_attn for layer in model.decoder.layers]
    maps = {kind: torch.cat([weights[a] for a in attns]) for kind, attns in attentions.items()}
    maps = {kind: stacked.cpu() for kind, stacked in maps.items()}
    source, target, predicted = map(tokenizer.tokens, (src[0].tolist(), ids[:-1], ids[1:]))
    return AttentionMaps(source, target, predicted, maps, tokenizer.decode(ids))


# %% [markdown]
# > Here is every head of the cross-attention, layer by layer. Look for diagonals: most heads follow the sentence from
# > left to right, some exactly, others a word behind or ahead. In layers 3 and 4 the last two rows, which predict the
# > full stop and `</s>`, nearly always rest on the end of the source, as they should.


# %%
@example
def example_cross_heads() -> Chart:
    """Cross-attention of each head (columns of charts) in each layer (rows of charts)."""
    sentence = attention_maps(our_model(), OUR_SENTENCES[1])
    steps = sentence.steps()
    words = sentence.source
    charts = []
    for n, heads in enumerate(sentence.maps["cross"], 1):
        row = [heatmap(w, steps, words, f"layer {n}, head {i}") for i, w in enumerate(heads, 1)]
        charts.append([chart.properties(width=130, height=130) for chart in row])
    return grid(charts)


# %% [markdown]
# ## What the heads of the encoder do (Figures 3 to 5)
#
# The paper shows attention maps of a trained model (announced in Section 4 and printed as Figures 3 to 5; all are
# from layer 5 of the encoder's six layers). In the first, many heads connect two distant parts of a phrase: "making"
# and "more difficult", which completes it. In the second, two heads (5 and 6) seem to resolve what the word "its" refers
# to; this word's weights are concentrated on very few others. The third has two examples, from two different heads, of
# what many heads do: they seem to follow the structure of the sentence. The authors conclude that the heads have learned
# different tasks.
#
# > Here is every head of our last encoder layer but one, for a long sentence with a possessive, `seinem` (his). Two
# > of the four heads give nearly half of their weight to the word to the left. Another gives most of the weight of
# > `seinem` to `Hund` (dog), the noun that it goes with, and about half of the rest to the man whose dog it is.

# %%
# @title A long sentence, and what the encoder's heads do with it
LONG_SENTENCE = ("Ein alter Mann mit einem grauen Bart sitzt auf einer Bank im Park "
                 "und spielt mit seinem kleinen Hund.")  # fmt: skip


@example
def example_encoder_heads() -> Chart:
    """The heads of the last encoder layer but one. In the first, `seinem` looks at `Hund`;
    in the third and the fourth, much of the weight is on the word to the left."""
    sentence = attention_maps(our_model(), LONG_SENTENCE)
    return maps(sentence.maps["encoder"][-2], sentence.source, sentence.source)


# %% [markdown]
# ## Does attention find the right word?
#
# > It's often said that cross-attention shows which source word a target word was translated from. To check that, you
# > have to know the true alignment. So we trained two models on captions from a grammar that knows it, and compared
# > the weights of each head with the truth (`benchmarks/alignment.py` at commit 28f8c6a). Each head gives one *link*
# > per target token, to the source token with the largest weight (or no link, if that token is `</s>`). The
# > *alignment error rate* is 0 if these links and the true ones are the same, and 1 if they have none in common (Och
# > and Ney, 2003). For comparison, the cell prints the rates for links drawn at `random`, for the `diagonal`, and for
# > the `best` that's possible with one link per token. In the charts, lighter is better.


# %%
@example
def example_alignment() -> Chart | None:
    """The alignment error rate of each head of the cross-attention, counted by the row
    that reads a token (left) and by the row that predicts it (right)."""
    runs = saved_rows("alignment")
    if not runs:
        return None
    layers = [*"1234"]
    columns = ["mean", *layers]
    axes = "layer", "head"
    charts = []
    for convention in ("reads", "predicts"):
        heads = [[h for h in run["heads"] if h["convention"] == convention] for run in runs]
        rates = torch.tensor([h["aer"] for h in heads[0] if h["layer"] != "mean"]).view(4, 5)
        title = f"the row that {convention} the token"
        charts.append(heatmap(rates, layers, columns, title, axes, size=40, unit="error rate"))
        means = [f"{h['aer']:.2f}" for run in heads for h in run if h["layer"] == "mean"]
        print("the row that", convention, "the token: mean over all heads, by seed:", *means)
    baselines = [f"{name} {row['aer']:.2f}" for name, row in runs[0]["baselines"].items()]
    print("to compare:", ", ".join([*baselines, f"BLEU {runs[0]['bleu']:.1f}"]))
    return grid([charts])


# %% [markdown]
# > In layers 3 and 4, the row that *predicts* a token looks at that token's source. The row that *reads* a token has
# > already moved on to the next one; with that way of counting, every head does worse than simply following the
# > diagonal. Counted by the predicting row, the heads' averaged weights find most of the links, but by no means all,
# > even though the model translates these captions almost without a mistake. So looking at the wrong word doesn't
# > prevent a correct translation.
#
# ## Watching and intervening
#
# > What does the model make of what it looks at? Two experiments ask it.
# >
# > **The logit lens** ([nostalgebraist,
# > 2020](https://www.lesswrong.com/posts/AcKRB8wDpdaN6v6ru/interpreting-gpt-the-logit-lens)). Every decoder layer
# > writes into the same stream, and only the top of the stream is turned into a word. If we stop after a lower layer,
# > and put the stream, as it stands at that point, through the final norm and the output matrix, we see which word
# > that layer would say.


# %%
@torch.inference_mode()
def logit_lens(model: Transformer, batch: Batch) -> list[Tensor]:
    """From the embeddings and after each decoder layer, the most probable next tokens (B, T)."""
    memory = model.encode(batch.src, batch.src_mask)
    x = model.tgt_embed(batch.tgt)
    tokens = [model.generator.logits(model.decoder.norm(x)).argmax(-1)]
    for layer in model.decoder.layers:
        x = layer(x, memory, batch.src_mask, batch.tgt_mask)
        tokens.append(model.generator.logits(model.decoder.norm(x)).argmax(-1))
    return tokens


# %%
@example
def example_lens() -> Any:
    """What each decoder layer would say, and how often it already agrees with the last one
    (100 validation sentences)."""
    model, tokenizer, (language, _) = our_model()
    src = torch.tensor([[*tokenizer.encode(SENTENCE, language), EOS]], device=best_device())
    ids = greedy_decode(model, src, source_mask(src), src.size(1) + 50)
    batch = make_batch(to_pairs(tokenizer, load_split("val")[:100])).to(best_device())
    in_batch = logit_lens(model, batch)
    in_sentence = logit_lens(model, Batch(src, ids))
    assert torch.equal(in_sentence[-1][0], ids[0, 1:])
    rows = []
    for i, tokens in enumerate(in_batch):
        agrees = (tokens == in_batch[-1])[batch.tgt_y != PAD].float().mean().item()
        words = tokenizer.tokens(in_sentence[i][0].tolist())
        rows.append({"after": f"layer {i}" if i else "embedding"})
        rows[-1]["agrees with the last"] = f"{agrees:.0%}"
        rows[-1]["would say"] = " ".join(words).replace("▁", "")
    return table(rows)


# %% [markdown]
# > With the embedding by itself, the lens repeats the token that has just been read, because the same matrix reads and
# > writes; layer 1 still does nearly the same. After two layers most of the words are there, but they don't make a
# > sentence yet. The third layer has nearly all of it in order, but says *one man is a newspaper*, and the fourth puts
# > that right.
# >
# > **Patching.** Take two sentences that differ in one word, such as "Ein Mann liest." (a man reads) and "Ein Junge
# > liest." (a boy reads). Suppose that the decoder is translating the first and has read *A*: *man* should come next.
# > Now replace the output of some of the attention sublayers at this position with their output for the second
# > sentence, and leave everything else as it is. If the model now says *boy*, it was these sublayers that supplied the
# > noun. As a control, in the last row of the table, we replace the output of the self-attention of all layers, which
# > doesn't look at the German. We do this with up to a hundred validation captions that begin with `Ein Mann`.


# %%
@torch.inference_mode()
def patched(
    translator: Translator, texts: tuple[str, str], prefix: str, attentions: list[nn.Module]
) -> Tensor:
    """The probabilities (vocab) after a prefix of the first text's translation.

    The last outputs of `attentions` are those from the second text.
    """
    model, tokenizer, (source, target) = translator
    tgt = torch.tensor([[BOS, *tokenizer.encode(prefix, target)]], device=best_device())
    mask = subsequent_mask(tgt.size(1)).to(best_device())
    ends = {}  # the last output of each attention for the second text

    def read(text: str, change: Callable) -> Tensor:
        src = torch.tensor([[*tokenizer.encode(text, source), EOS]], device=best_device())
        hooks = [attn.register_forward_hook(change) for attn in attentions]
        log_p = model.generator(model.decode(model.encode(src, None), None, tgt, mask))[0, -1]
        for hook in hooks:
            hook.remove()
        return log_p.exp()

    read(texts[1], lambda attn, inputs, x: ends.update({attn: x[:, -1:]}))
    return read(texts[0], lambda attn, inputs, x: torch.cat([x[:, :-1], ends[attn]], dim=1))


# %%
@example
def example_patching() -> Any:
    """How often the model says *man*, and how often *boy*,
    when some outputs are taken from the sentence with `Junge`."""
    captions = [german for german, _ in load_split("val") if german.startswith("Ein Mann ")][:100]
    layers = our_model().model.decoder.layers
    choices = {"nothing": [], "cross-attention of the last layer but one": [layers[-2].src_attn]}
    choices |= {"cross-attention of the last layer": [layers[-1].src_attn]}
    choices |= {"cross-attention of the last two": [layer.src_attn for layer in layers[-2:]]}
    choices |= {"self-attention of all (control)": [layer.self_attn for layer in layers]}
    ids = {word: our_model().tokenizer.encode(word, "en")[0] for word in ("man", "boy")}
    pairs = [(text, text.replace("Ein Mann", "Ein Junge", 1)) for text in captions]
    rows = []
    for name, attentions in choices.items():
        tokens = [int(patched(our_model(), pair, "A", attentions).argmax()) for pair in pairs]
        shares = {word: f"{tokens.count(i)} of {len(tokens)}" for word, i in ids.items()}
        rows.append({"replaced": name} | shares)
    return table(rows)


# %% [markdown]
# > When the last two layers are patched together, the word changes in nearly all captions; when only one of them is
# > patched, it never changes, and the control changes nothing. So a map of one head tells you less than it seems to.
# > Removing heads tells the same story. Removed one at a time, most heads of the cross-attention are hardly missed;
# > removing the less important half all at once costs far more than removing them one by one would suggest ([exercise
# > 6.1](exercises.ipynb#6.1-How-many-heads-can-go)).
#
# > **Summary.** Attention weights are a by-product that you can look at, if you take them in evaluation mode and
# > label them with care.
# >
# > **For a sentence of your own,** use the figure at the end of this part. On the web page, it shows all layers and
# > heads, and lets you set heads to zero and watch the translation change. `python the_annotated_transformer.py explain
# > "Ein Hund läuft." --out attention.html` saves the same figure as a page.
# >
# > **Change it and train:** [6.1 How many heads can go](exercises.ipynb#6.1-How-many-heads-can-go).
#
# ![The figure of the first page again: a sentence, its translation, and the tokens that the model thinks most probable](images/live_figure.png)

# %% [markdown]
# # Appendix
#
# ## Departures from the paper
#
# > Here are the places where this document's code does something different from the paper, or something that the paper
# > leaves open. The program's own departures are in [the lab notebook](lab_notebook.ipynb#Departures-of-the-program).
# >
# > | what | why | effect |
# > |---|---|---|
# > | `norm="pre"` in `LIVE` and in the program's presets `tiny` and `small`; `make_model` has the paper's `post` | allows larger rates; levels the gradients | Part 1; lab notebook |
# > | LayerNorm with ε = 10⁻⁵ inside the root | PyTorch's; the paper gives none | none expected |
# > | the projections of attention and the output layer have no bias | the paper's formulas of attention have none; for the output layer it gives no formula | not measured |
# > | embeddings start with standard deviation $d_{\text{model}}^{-1/2}$, matrices with Glorot's uniform | the paper gives none; the authors' code does the same | Part 1 |
# > | `inner_dropout` (on attention weights and inside the feed-forward network) is off | Section 5.4 names neither, and the authors' first release had both at 0 | not measured |
# > | smoothing spreads $\epsilon_{ls}$ over all tokens but padding, the right one included; the authors' code gives the right token exactly $1 - \epsilon_{ls}$ | the paper does not say | the right token gets $\epsilon_{ls} / (n - 1)$ more, with $n$ tokens in the vocabulary |
# > | the size of a batch is the number of tokens on its longer side, padding included | it bounds memory and work | not measured |
# > | `make_model` ties no matrices unless asked; `Config` and the presets tie all three | the two vocabularies may differ, and code written for the earlier editions still works | untied, 0.1 ± 0.5<!--tie = none ±--> BLEU more [after four passes](lab_notebook.ipynb#The-paper's-Table-3-in-miniature) |
# > | text is brought to Unicode's form NFC, and BPE never joins punctuation with letters | one spelling for each word | not measured |
# > | Multi30k in place of WMT 2014, and German to English as well as English to German | small enough for a laptop | scores cannot be compared with the paper's |
# > | learned positions are not scaled, and there are at most 512 | the paper does not say | not measured |
# > | finished translations keep their places; the length penalty counts `</s>` and has no coverage term | the paper does not say | not measured |
#
# ## All shapes on one page
#
# > Our sentence and its translation have 15 tokens each, with `</s>`. Read from top to bottom, this is Part 1; the last
# > lines are Part 2.
# >
# > | what | shape, one sentence | shape in a batch | paper's base model |
# > |---|---|---|---|
# > | source ids | 15 | (B, S) | |
# > | embeddings + positions | 15 × 128 | (B, S, d_model) | d_model = 512 |
# > | queries, keys, values, in heads | 4 × 15 × 32 | (B, h, S, d_k) | h = 8, d_k = 64 |
# > | scores and weights | 4 × 15 × 15 | (B, h, S, S) | |
# > | heads side by side, after $W^O$ | 15 × 128 | (B, S, d_model) | |
# > | inside the feed-forward network | 15 × 256 | (B, S, d_ff) | d_ff = 2048 |
# > | memory, after 4 layers | 15 × 128 | (B, S, d_model) | 6 layers |
# > | target ids that are read: `<s>` … `.` | 15 | (B, T) | |
# > | weights of masked self-attention | 4 × 15 × 15, above the diagonal 0 | (B, h, T, T) | |
# > | weights of cross-attention | 4 × 15 × 15 | (B, h, T, S) | |
# > | the decoder's vectors | 15 × 128 | (B, T, d_model) | |
# > | logits | 15 × 6,106 | (B, T, vocab) | vocab ≈ 37,000 |
# > | target ids to predict: `Two` … `</s>` | 15 | (B, T) | |
# > | loss | one number | one number | |
#
# ## Questions, and where they are answered
#
# > These are questions that readers often ask.
# >
# > | question | answer |
# > |---|---|
# > | Pre- or post-norm, and why a final norm? | [Residuals and normalisation](#Residuals-and-normalisation-(Section-3.1)), [the gradients](#A-fresh-model), [the encoder](#The-encoder-(Section-3.1)) |
# > | Why normalise at all, and why each vector by itself? Why residual connections? | [Residuals and normalisation](#Residuals-and-normalisation-(Section-3.1)) |
# > | Where does dropout go? | [Regularisation](#Regularisation-(Section-5.4)), [the paper's order, and dropout](#The-paper's-order,-and-dropout) |
# > | What are queries, keys and values? Why project the values? Why different matrices for queries and keys? | [Attention](#Attention-(Section-3.2)) |
# > | Why divide by $\sqrt{d_k}$? | [Scaled dot-product attention](#Scaled-dot-product-attention-(Section-3.2.1)) |
# > | Why split the width among the heads? Why $W^O$? | [Multi-head attention](#Multi-head-attention-(Section-3.2.2)) |
# > | Does every decoder layer read the last encoder layer? | [Layers of three sublayers](#Layers-of-three-sublayers) |
# > | Why $-\infty$? Why mask keys and not queries? What if a whole row is masked? | [Masks](#Masks) |
# > | Why multiply embeddings by $\sqrt{d_{\text{model}}}$? How can three places share one matrix? | [Embeddings](#Embeddings) |
# > | Why sine and cosine, why 10000, why add? Do they extrapolate? | [Positions](#Positions-(Section-3.5)), [longer copies](#Keeping-keys-and-values) |
# > | It learns, but it writes nonsense: what is wrong? | [What the loss can't see](#What-the-loss-can't-see) |
# > | Why Glorot? | [A fresh model](#A-fresh-model) |
# > | Logits, log-probabilities or probabilities: which are used where? | [A vector becomes a word](#A-vector-becomes-a-word-(Section-3.4)) |
# > | Why a shift of one? Why isn't it cheating to see the target? | [Batches and the shift](#Batches-and-the-shift-(Section-5.1)) |
# > | Why does parallel training compute the same as decoding step by step? What does a cache save? | [Keeping keys and values](#Keeping-keys-and-values) |
# > | Why measure batches in tokens? What is risky about grouping by length? | [Batches of similar lengths](#Batches-of-similar-lengths) |
# > | Why warm up, why $\mathit{step}^{-0.5}$, why $\beta_2 = 0.98$? | [Optimiser](#Optimiser-(Section-5.3)) |
# > | Why does smoothing hurt perplexity and help BLEU? What is the smallest loss? | [Regularisation](#Regularisation-(Section-5.4)) |
# > | Why divide by the number of tokens, and how does that go with accumulation? | [Micro-batches](#Micro-batches) |
# > | Why does greedy decoding repeat itself? | [Training](#Training) |
# > | How does a translation know when to stop? | [Batches and the shift](#Batches-and-the-shift-(Section-5.1)): it predicts `</s>`; a limit on the length is in [Translating](#Translating) |
# > | How long may a text be, and what becomes expensive? | [Positions](#Positions-(Section-3.5)), [why self-attention](#Why-self-attention-(Section-4,-Table-1)), [longer copies](#Keeping-keys-and-values) |
# > | Why may a vocabulary not see the test text? | [Words and word pieces](#Words-and-word-pieces-(Section-5.1)) |
# > | Can training go on from the weights alone? | [Training](#Training) |
# > | What is BLEU, and how was the paper's computed? | [BLEU](#BLEU) |
# > | How does the length penalty work? | [Beam search](#Beam-search-(Section-6.1)) |
# > | Why average checkpoints? | [Averaged checkpoints](#Averaged-checkpoints-(Section-6.1)) |
# > | How does training on several machines work? | [Several processes](#Several-processes-(Section-5.2)) |
# > | What changed since 2017? What do decoder-only models do differently? Why is fused attention fast? | [Since 2017](since_2017.ipynb#Questions,-and-where-they-are-answered) |
# > | How do I change the attention, or another part, and train again? | [Changing it](#Changing-it) |
# > | How do I train on text of my own? Will it work for my language? May I trust a translation? | [The program](#The-program) |
#
# ## References
#
# > The tables, figures and settings of the paper are quoted from version 5 of arXiv:1706.03762 (December 2017).
# >
# > - Jimmy Lei Ba, Jamie Ryan Kiros, Geoffrey Hinton (2016). [Layer normalization](https://arxiv.org/abs/1607.06450).
# > - Dzmitry Bahdanau, Kyunghyun Cho, Yoshua Bengio (2015). [Neural machine translation by jointly learning to align and
# >   translate](https://arxiv.org/abs/1409.0473).
# > - Denny Britz and others (2017). [Massive exploration of neural machine translation
# >   architectures](https://arxiv.org/abs/1703.03906).
# > - Tom Brown and others (2020). [Language models are few-shot learners](https://arxiv.org/abs/2005.14165) (GPT-3).
# > - Chris Dyer and others (2016). [Recurrent neural network grammars](https://arxiv.org/abs/1602.07776).
# > - Desmond Elliott and others (2016). [Multi30K: multilingual English-German image
# >   descriptions](https://arxiv.org/abs/1605.00459).
# > - Jonas Gehring and others (2017). [Convolutional sequence to sequence learning](https://arxiv.org/abs/1705.03122)
# >   (ConvS2S).
# > - Xavier Glorot, Yoshua Bengio (2010). Understanding the difficulty of training deep feedforward neural networks.
# >   AISTATS.
# > - Kaiming He and others (2016). [Deep residual learning for image recognition](https://arxiv.org/abs/1512.03385).
# > - Zhongqiang Huang, Mary Harper (2009). Self-training PCFG grammars with latent annotations across languages. EMNLP.
# > - Łukasz Kaiser, Samy Bengio (2016). [Can active memory replace attention?](https://arxiv.org/abs/1610.08613) (Extended
# >   Neural GPU.)
# > - Nal Kalchbrenner and others (2017). [Neural machine translation in linear time](https://arxiv.org/abs/1610.10099)
# >   (ByteNet).
# > - Diederik Kingma, Jimmy Ba (2015). [Adam: a method for stochastic optimization](https://arxiv.org/abs/1412.6980).
# > - Oleksii Kuchaiev, Boris Ginsburg (2017). [Factorization tricks for LSTM networks](https://arxiv.org/abs/1703.10722).
# > - Liyuan Liu and others (2020). [On the variance of the adaptive learning rate and
# >   beyond](https://arxiv.org/abs/1908.03265).
# > - Minh-Thang Luong and others (2015). [Multi-task sequence to sequence learning](https://arxiv.org/abs/1511.06114).
# > - David McClosky, Eugene Charniak, Mark Johnson (2006). Effective self-training for parsing. NAACL.
# > - Paul Michel, Omer Levy, Graham Neubig (2019). [Are sixteen heads really better than
# >   one?](https://arxiv.org/abs/1905.10650)
# > - Franz Josef Och, Hermann Ney (2003). A systematic comparison of various statistical alignment models. Computational
# >   Linguistics 29.
# > - Kishore Papineni and others (2002). BLEU: a method for automatic evaluation of machine translation. ACL.
# > - Slav Petrov and others (2006). Learning accurate, compact, and interpretable tree annotation. ACL.
# > - Maja Popović (2015). chrF: character n-gram F-score for automatic MT evaluation. WMT.
# > - Matt Post (2018). [A call for clarity in reporting BLEU scores](https://arxiv.org/abs/1804.08771).
# > - Ofir Press, Lior Wolf (2016). [Using the output embedding to improve language
# >   models](https://arxiv.org/abs/1608.05859).
# > - Alec Radford and others (2018). Improving language understanding by generative pre-training. OpenAI (GPT).
# > - Rico Sennrich, Barry Haddow, Alexandra Birch (2016). [Neural machine translation of rare words with subword
# >   units](https://arxiv.org/abs/1508.07909).
# > - Noam Shazeer and others (2017). [Outrageously large neural networks: the sparsely-gated mixture-of-experts
# >   layer](https://arxiv.org/abs/1701.06538).
# > - Nitish Srivastava and others (2014). Dropout: a simple way to prevent neural networks from overfitting. JMLR 15.
# > - Felix Stahlberg, Bill Byrne (2019). [On NMT search errors and model errors: cat got your
# >   tongue?](https://arxiv.org/abs/1908.10090)
# > - Sainbayar Sukhbaatar and others (2015). [End-to-end memory networks](https://arxiv.org/abs/1503.08895).
# > - Christian Szegedy and others (2016). [Rethinking the Inception architecture for computer
# >   vision](https://arxiv.org/abs/1512.00567).
# > - Ashish Vaswani, Noam Shazeer, Niki Parmar, Jakob Uszkoreit, Llion Jones, Aidan Gomez, Łukasz Kaiser, Illia Polosukhin
# >   (2017). [Attention is all you need](https://arxiv.org/abs/1706.03762). NIPS.
# > - Oriol Vinyals, Łukasz Kaiser and others (2014). [Grammar as a foreign language](https://arxiv.org/abs/1412.7449).
# > - Elena Voita and others (2019). [Analyzing multi-head self-attention: specialized heads do the heavy lifting, the rest
# >   can be pruned](https://arxiv.org/abs/1905.09418).
# > - Yonghui Wu and others (2016). [Google's neural machine translation system](https://arxiv.org/abs/1609.08144).
# > - Zhiyong Wu and others (2021). [Good for misconceived reasons: an empirical revisiting on the need for visual context
# >   in multimodal machine translation](https://arxiv.org/abs/2105.14462).
# > - Ruibin Xiong and others (2020). [On layer normalization in the Transformer
# >   architecture](https://arxiv.org/abs/2002.04745).
# > - Jie Zhou and others (2016). [Deep recurrent models with fast-forward connections for neural machine
# >   translation](https://arxiv.org/abs/1606.04199) (Deep-Att).
# > - Muhua Zhu and others (2013). Fast and accurate shift-reduce constituent parsing. ACL.
#
# ## Glossary
#
# > | word | meaning |
# > |---|---|
# > | accumulation | adding up the gradients of several micro-batches before one update |
# > | Adam | an optimiser that moves each weight by at most about the learning rate, however large the gradients are ([Part 2](#Optimiser-(Section-5.3))) |
# > | all-reduce | an operation after which every process has the sum over all processes |
# > | attention | a weighted sum of values; the weights say how well a query fits each key ([Part 1](#Attention-(Section-3.2))) |
# > | autoregressive | producing one token at a time, each from those before it |
# > | beam search | a search that keeps the $b$ most probable hypotheses (unfinished translations) |
# > | BLEU, chrF | scores of translations, by n-grams of words or of characters ([Part 3](#BLEU)) |
# > | BPE | byte-pair encoding, a vocabulary of frequent pieces of words |
# > | causal mask | hides from each position everything after it |
# > | checkpoint | the weights at some point in a training run; if training is to go on from there, the checkpoint must also hold the optimiser's state |
# > | cross-attention | queries from the decoder, keys and values from the encoder's output |
# > | cross-entropy | the mean of $-\log p$ over a distribution of right answers; the loss of this document |
# > | decoder, encoder | the half that writes the target; the half that reads the source ([Part 1](#The-plan-(Section-3))) |
# > | dropout | setting random entries to zero in training, so that the model doesn't come to rely on any single one |
# > | embedding | a table with a learned vector for each token; such a vector |
# > | entropy | the cross-entropy of a distribution with itself, the smallest that is possible |
# > | epoch | one pass through the training data |
# > | Glorot | an initialisation that keeps the size of activations and gradients about constant |
# > | greedy | taking the most probable token at each step |
# > | head | one of $h$ attentions that run side by side |
# > | key/value cache | the keys and values of earlier positions, kept while decoding |
# > | label smoothing | training towards a distribution that is not quite sure |
# > | LayerNorm | brings each position's vector to mean 0 and variance 1, then scales and shifts it by a learned gain and bias |
# > | logit | a score before the softmax |
# > | mask | says which keys a query may attend to ([Part 1](#Masks)) |
# > | memory | the encoder's output; the paper calls it $\mathbf{z}$ |
# > | micro-batch | one of the parts into which an update is cut to save memory |
# > | moving average | of weights: after each update, mostly the average so far and a little of the new weights |
# > | n-gram | $n$ words or tokens in a row |
# > | nat | the unit of losses with natural logarithms |
# > | overfitting | learning the training sentences by heart, so that others are predicted worse |
# > | perplexity | the exponential of the mean loss per token, where the loss is computed without label smoothing |
# > | positional encoding | a vector that is added to an embedding and gives its position in the sequence |
# > | pre-norm, post-norm | the norm before the sublayer, or after the addition |
# > | query, key, value | what a position asks for, what it is found by, and what it passes on ([Part 1](#Attention-(Section-3.2))) |
# > | residual connection | adds the input of a sublayer to its output |
# > | residual stream | the vector of a position that all sublayers add to |
# > | seed | the number from which all random numbers of a run follow |
# > | softmax | turns scores into positive numbers that add up to 1 |
# > | teacher forcing | training with the true earlier tokens as input |
# > | token, id | an entry of a sequence, and its number in the vocabulary |
# > | training, validation, test set | pairs to learn from, to choose by, and to report on |
# > | update | one step of the optimiser |
# > | warmup | the updates in which the learning rate rises |
#
# ## The program
#
# > Real use needs more: other sources of data, training that can be interrupted at any moment, a fast search, pages
# > of attention maps, export to other programs. All of that is in the folder `translator/`, and its model is the one
# > from Part 1. This script is one way in: `python the_annotated_transformer.py` lists the commands. To train on text
# > of your own, put `train.fr`, `train.en`, `val.fr` and `val.en` into a folder, one sentence per line, and use
# > `train --data FOLDER --src fr --tgt en --run runs/fr-en`; `translator/README.md` has the rest.
# >
# > Three questions come up again and again. *Will it work for my language?* `plan FOLDER` looks at your text, tries
# > your machine for twenty seconds, and says which size of model to train, for how many minutes, and what BLEU to
# > expect. *It trains, and writes nonsense: what is wrong?* `doctor RUN` looks for the mistake. *May I trust this
# > translation?* `translate --json` gives the probability of each token, and `translator/README.md` says how often such
# > tokens were right. But a model can be sure and wrong: ours may drop a *not*, because captions hardly ever have one.
#
# ### Changing it
#
# > Change a function or class of Part 1 in this script, and train: `train --data multi30k --positions sinusoidal --run
# > runs/NEW`. (Without that option, positions are rotary, and `positional_encoding` isn't called.) The program calls
# > the layers, so it trains and decodes what you wrote; if decoding step by step doesn't give what the model does for
# > all positions at once, an error message names the layer. [`RotaryAttention`](since_2017.ipynb#Rotary-positions)
# > shows another way: a new class that replaces one method. In a notebook, run the cells again from the one that you
# > changed, and delete the live run's folder in `runs/`.
