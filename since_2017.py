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
# # Since 2017
#
# > The Transformer of 2017 is still at the heart of today's language models, but many of its components have changed.
# > This document presents the changes that have lasted, each with a small piece of code and a check, and most with an
# > equation. It continues [The Annotated Transformer](the_annotated_transformer.ipynb) and imports its model: each new
# > part takes the place of one that you know from there, and everything else stays as it is. Where the text says
# > "Part 2", it means a part of that document, and so does "the first document"; its [names and
# > shapes](the_annotated_transformer.ipynb#Names-and-shapes) hold here as well.
# >
# > At our size and with greedy decoding, rotary positions gain 2.6 ± 0.6<!--rotary greedy ±--> BLEU over the seeds in [short
# > runs](lab_notebook.ipynb#The-paper's-Table-3-in-miniature) (1,014 sentences, three seeds), and about one in [long
# > ones](lab_notebook.ipynb#Rotary-positions-in-a-long-run) (± 1 if you also allow for the choice of test sentences).
# > Most of these changes are meant for larger models.
# >
# > None of this is in the paper, so the whole text is commentary. You can read most sections on their own:
# >
# > | sections | what they are about |
# > |---|---|
# > | [a million tokens](#A-million-tokens,-with-the-parts-of-then-and-now) | what the paper's parts and today's make of the same few minutes |
# > | [rotary positions](#Rotary-positions), [RMSNorm](#RMSNorm), [gated networks](#Gated-feed-forward-networks), [grouped queries](#Grouped-query-attention), [all in one](#All-of-them-in-one-model) | what has changed inside a layer |
# > | [a model trained by others](#A-model-trained-by-others) | a published translator, opened with the paper's classes and three small subclasses |
# > | [fused attention](#Fused-attention,-tile-by-tile), [16-bit numbers](#16-bit-numbers), [Muon](#Muon), [what makes it fast](#What-makes-it-fast) | the same results in less time |
# > | [a decoder alone](#A-decoder-alone), [sampling](#Sampling), [from here to GPT](#From-here-to-GPT) | one stack that writes text |

# %% tags=["active-ipynb"]
# # @title Setup: find what belongs to this notebook, install what Colab lacks, and make charts work offline in Jupyter
# import base64, contextlib, importlib.util, sys, urllib.request, zipfile
# from pathlib import Path
#
# REPOSITORY = ""  # the public address of this notebook's repository, once it has one
# # the companion, which the web page offers under Pages
# for bundle in Path().glob("the_annotated_transformer*.zip"):
#     assert zipfile.is_zipfile(bundle), f"{bundle} is damaged; delete it and upload it again"
#     with zipfile.ZipFile(bundle) as files:
#         files.extractall(members=[name for name in files.namelist() if not Path(name).exists()])
# for module in ("the_annotated_transformer.py", "since_2017.py"):
#     if REPOSITORY and not Path(module).exists():
#         urllib.request.urlretrieve(f"{REPOSITORY}/raw/main/{module}", module)
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
# @title Imports
import functools
import itertools
import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from the_annotated_transformer import (
    BOS,
    EOS,
    LIVE,
    OUR_SENTENCES,
    PAD,
    AdjustableAttention,
    CachedDecoder,
    Chart,
    Config,
    DroppingFeedForward,
    Generator,
    Mask,
    MultiHeadedAttention,
    Pair,
    Part,
    PositionalEncoding,
    PositionwiseFeedForward,
    Tokenizer,
    Trainer,
    Transformer,
    allowed,
    attention,
    average_weights,
    best_device,
    continue_with,
    copy_pairs,
    curves,
    evaluating,
    example,
    fit,
    greedy_decode_naive,
    in_notebook,
    layer_norm,
    live_run,
    load_split,
    make_batch,
    make_model,
    our_model,
    positional_encoding,
    positive,
    saved_rows,
    smoothed_loss,
    source_mask,
    split_heads,
    subsequent_mask,
    table,
    target_mask,
    token_batches,
    translate_lines,
    with_attention,
)

if __name__ == "__main__" and not in_notebook(__name__):
    print(
        "Since 2017: a document, to be read in since_2017.ipynb; its code is for `import since_2017`."
    )

# %% [markdown]
# ## A million tokens, with the parts of then and now
#
# > What are today's parts worth? Here models of six recipes, as large as the one that [Part
# > 3](the_annotated_transformer.ipynb#Training) trains, have learned from the same captions, in 500 updates of 2,000
# > tokens (counting padding), which takes a few minutes. The first recipe has the paper's parts, with averaged weights;
# > each of the others has one change more than the one above it:
# >
# > - *A rate that falls to zero*: it rises to the same peak as Equation (3)'s, but in 100 updates instead of 400, and
# >   falls from there in a straight line, so that it's zero at the last update.
# > - *Muon*, [another optimiser](#Muon), for the matrices of the layers.
# > - *[Rotary positions](#Rotary-positions)* instead of sinusoids.
# > - *Dropout* of 0.1.
# > - *Dropout that grows*: 0.01 more with each pass through the captions. These are the settings of the program's `train`.
# >
# > **Predict.** Which change gains most here?
# >
# > 1. a rate that falls to zero
# > 2. Muon
# > 3. rotary positions
# >
# > <details class="answer"><summary>Look</summary>
# >
# > **2.** With the rate that was chosen for it, Muon is 10.5<!--Muon's gain--> BLEU ahead of the paper's parts. For Adam that rate is too
# > high too soon: it loses 6.9<!--a falling rate's loss-->. (There may be better ones for Adam; we didn't look.) Rotary positions add 2.0<!--rotary positions' gain-->. Dropout
# > takes 2.3<!--dropout's loss--> away, probably because a model that has seen each caption once or twice hasn't learned any by heart yet.
# > If it grows, it takes hardly anything away here, and in runs of eight passes it gains 1.0<!--growing dropout's gain--> (one seed).
# > The second row is a single run; the others are means of three, which differ by up to 3.8<!--seeds of a million tokens--> BLEU.
# >
# > </details>


# %%
@example
def example_million() -> Any:
    """What each change gains: loss and BLEU on the validation set, means of three runs (in brackets
    the lowest and the highest; the second row is a single run), and what the first makes of our
    sentence."""
    print(OUR_SENTENCES[1])
    runs: dict[str, list[dict]] = {}
    for row in saved_rows("million"):
        runs.setdefault(row["recipe"], []).append(row)
    rows = []
    for recipe, seeds in runs.items():
        loss = float(np.mean([row["val_loss"] for row in seeds]))
        scores = [row["bleu"] for row in seeds]
        rows.append({"what changes": recipe, "loss": round(loss, 2)})
        rows[-1]["BLEU"] = f"{np.mean(scores):.1f} ({min(scores):.1f} to {max(scores):.1f})"
        rows[-1]["translation"] = seeds[0]["samples"][1]
    return table(rows)


# %% [markdown]
# ## Rotary positions
#
# > Sinusoids are added to the embeddings once, at the bottom. *Rotary positions* (RoPE; Su et al., 2021) add nothing.
# > Instead, each self-attention layer rotates its queries and keys: their entries are taken in pairs, and each pair,
# > seen as a point in the plane, turns by an angle that's proportional to the position $p$:
# >
# > $$\begin{pmatrix} x'_{2i} \\ x'_{2i+1} \end{pmatrix} = \begin{pmatrix} \cos \omega_i p & -\sin \omega_i p \\ \sin \omega_i p & \cos \omega_i p \end{pmatrix} \begin{pmatrix} x_{2i} \\ x_{2i+1} \end{pmatrix}, \qquad \omega_i = 10000^{-2i/d_k}$$
# >
# > A dot product depends on the angle *between* its two vectors. If the query is turned by $p$ steps and the key by
# > $s$, the score depends on the positions only through the distance $p - s$. That's the relative position, which the
# > paper's authors hoped the model would learn from the sinusoids; here it's built into every layer. But distances
# > that are longer than in training remain new to the model. To read longer texts, turn more slowly, and train a
# > little longer on long texts: Llama 3 has 500,000 in place of 10,000 (Grattafiori et al., 2024). Values aren't
# > turned, so positions affect where attention looks, but not what it passes on. Nor does cross-attention turn
# > anything: between the positions of two sentences there's no distance.
# >
# > <details class="note"><summary>The signs</summary>
# >
# > In Part 1 the sine came first in each pair. Here a pair is a point $(x, y)$, so the signs are in different places.
# >
# > </details>


# %%
def rotated(x: Tensor, start: int = 0) -> Tensor:
    """Turn the pairs of entries of x (..., T, d_k), at positions from start (Su et al., 2021)."""
    T, d_k = x.shape[-2:]
    table = positional_encoding(start + T, d_k)[start:].to(x)  # (T, d_k): sine, cosine, sine, ...
    sine, cosine = table.unflatten(-1, (-1, 2)).unbind(-1)  # (T, d_k / 2)
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)  # (..., T, d_k / 2)
    return torch.stack((a * cosine - b * sine, a * sine + b * cosine), dim=-1).flatten(-2)


# %% [markdown]
# > In the code, the cache holds keys that have *not* been turned; each step turns them when it uses them. So the
# > decoders of Part 2 work unchanged. During decoding, the query is always at the last position. In the chart, the
# > curves for two different positions of the key coincide, because only the distance counts.


# %%
class RotaryAttention(AdjustableAttention):
    """Rotary self-attention (Su et al., 2021): keys are at 0 to S - 1, queries at the last T."""

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask) -> Tensor:
        """Q (B, h, T, d_k), K and V (B, h, S, d_k) as cached, not turned, to (B, h, T, d_v)."""
        return super().weigh(rotated(Q, K.size(2) - Q.size(2)), rotated(K), V, mask)


# %%
@example
def example_rotary() -> Chart:
    """Rotation is multiplication by a complex number;
    scores depend only on the distance, and lengths don't change."""
    torch.manual_seed(0)
    q, k = torch.randn(1, 64), torch.randn(1, 64)
    frequency = 10_000 ** (-torch.arange(0, 64, 2) / 64)
    numbers = torch.view_as_complex(q.view(1, 32, 2)) * torch.polar(torch.ones(32), 7 * frequency)
    torch.testing.assert_close(rotated(q, 7), torch.view_as_real(numbers).flatten(1))
    torch.testing.assert_close(rotated(q, 7).norm(), q.norm())
    rows = []
    for p, distance in itertools.product((0, 100), range(64)):
        score = (rotated(q, p + distance) @ rotated(k, p).T).item()
        rows.append({"distance": distance, "score": score, "key at": str(p)})
    near, far = torch.tensor([row["score"] for row in rows]).view(2, 64)
    torch.testing.assert_close(near, far, atol=1e-3, rtol=0)
    assert abs(near[1] - near[30]) > 0.1  # on the distance they do depend
    return curves(rows, "distance", "score", "key at")


# %% [markdown]
# ## RMSNorm
#
# > LayerNorm subtracts the mean and divides by the standard deviation. *RMSNorm* (Zhang and Sennrich, 2019) leaves
# > the mean alone and divides by the root mean square. It has no bias and less to compute, and its authors report
# > that it works just as well:
# >
# > $$\mathrm{RMSNorm}(x) = \gamma \odot \frac{x}{\sqrt{\frac{1}{d} \sum_i x_i^2 + \epsilon}}$$


# %%
def rms_norm(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """Divide the last dimension by its root mean square and scale it (Zhang and Sennrich, 2019)."""
    return gain * x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


# %%
@example
def example_rms_norm() -> None:
    """Our function gives the same as PyTorch's;
    for vectors with mean zero, it's the same as LayerNorm without a bias."""
    torch.manual_seed(0)
    x = torch.tensor([[1.0, 0.0, 0.0, 0.0], [2.0, 4.0, 6.0, 8.0]])
    gain = torch.rand(4)
    theirs = nn.RMSNorm(4, eps=1e-5)
    theirs.weight.data = gain
    print(rms_norm(x, torch.ones(4)))
    torch.testing.assert_close(rms_norm(x, gain), theirs(x))
    centred = x - x.mean(-1, keepdim=True)
    torch.testing.assert_close(rms_norm(centred, gain), layer_norm(x, gain, torch.zeros(4)))


# %% [markdown]
# ## Gated feed-forward networks
#
# > The paper's network passes each inner entry through a ReLU. A *gated* one computes two projections, and lets one
# > of them decide how much of the other comes through. With $\mathrm{Swish}(x) = x \cdot \sigma(x)$ as the gate's
# > function ($\sigma$ is the sigmoid, $1 / (1 + e^{-x})$) it's called *SwiGLU* (Shazeer, 2020):
# >
# > $$\mathrm{FFN}_{\mathrm{SwiGLU}}(x) = (\mathrm{Swish}(xW) \odot xV)\,W_2$$
# >
# > It has three matrices instead of two, so its inner width is cut to two thirds to keep the number of parameters the
# > same.
# >
# > **Why might gating help?** In the plain network, a single number decides both whether a neuron fires and how much
# > it adds. A gate separates the two: one projection says whether, the other how much and with which sign. And a
# > gated unit multiplies two projections, whereas a single ReLU neuron can't form a product of two linear functions.
# > Shazeer (2020) found gating better in experiments, but offered no explanation. In our [short
# > runs](lab_notebook.ipynb#The-paper's-Table-3-in-miniature) at the size of `tiny` it's 1.2<!--gated--> BLEU worse (± 0.5<!--reach--> over
# > the seeds, and ± 1.1<!--reach with sentences--> if you also allow for the choice of test sentences), at a rate that was tuned for the plain
# > network.


# %%
class GatedFeedForward(nn.Module):
    """SwiGLU with as many weights as a feed-forward network of inner width d_ff (Shazeer, 2020)."""

    def __init__(self, d_model: int, d_ff: int, dropout: float = 0.0):
        super().__init__()
        inner = round(2 * d_ff / 3)
        self.W = nn.Linear(d_model, inner, bias=False)
        self.V = nn.Linear(d_model, inner, bias=False)
        self.W_2 = nn.Linear(inner, d_model, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) to (B, T, d_model), each position for itself."""
        return self.W_2(self.dropout(F.silu(self.W(x)) * self.V(x)))


# %%
@example
def example_gated() -> None:
    """The layer agrees with PyTorch's own gate, and has as many parameters as the plain network,
    to within half a per cent."""
    torch.manual_seed(0)
    layer = GatedFeedForward(128, 256)
    x = torch.randn(2, 5, 128)
    W, V = layer.W.weight.T, layer.V.weight.T
    gated = (x @ W) * F.glu(torch.cat((x @ V, x @ W), dim=-1))  # F.glu is (x V) sigmoid(x W)
    torch.testing.assert_close(layer(x), layer.W_2(gated))
    print("plain and gated:")
    for d in (128, 512):
        plain = sum(p.numel() for p in PositionwiseFeedForward(d, 2 * d).parameters())
        gated = sum(p.numel() for p in GatedFeedForward(d, 2 * d).parameters())
        print(f"{plain:,} and {gated:,}")
        assert abs(gated / plain - 1) < 1 / 200


# %% [markdown]
# ## Grouped-query attention
#
# > When a large model decodes long texts, or texts for many users at once, the cache of keys and values can outgrow
# > the weights, and every step has to read all of it. (In GPT-3, a single token takes a key and a value of 12,288
# > numbers in each of 96 layers: 4.7 megabytes in 16 bits.) *Grouped-query attention* (Ainslie et al., 2023) has
# > fewer heads of keys and values, $h_{kv}$ of them, each shared by $h / h_{kv}$ query heads. The cache shrinks by
# > the same factor. One group, *multi-query attention* (Shazeer, 2019), is the fastest, and $h$ groups, the paper's
# > multi-head attention, are the best. With eight groups, Ainslie et al. got a model that's nearly as fast as the
# > first and nearly as good as the second. (They didn't start from scratch: they averaged the matrices of each
# > group's heads, and then trained for another twentieth of the original time.) *Multi-head latent attention*, MLA
# > (DeepSeek-AI, 2024), keeps one short vector for each position and layer, from which every head computes its keys
# > and values (and a small rotated key, which all heads share).
# >
# > $$\mathrm{head}_i = \mathrm{Attention}(QW_i^Q,\; KW_g^K,\; VW_g^V), \qquad g = \lceil i \, h_{kv} / h \rceil$$


# %%
class GroupedQueryAttention(AdjustableAttention):
    """h_kv heads of keys and values, each for h / h_kv heads of queries (Ainslie et al., 2023)."""

    def __init__(
        self, h: int, d_model: int, dropout: float = 0.0, d_k: int | None = None, h_kv: int = 2
    ):
        super().__init__(h, d_model, dropout, d_k)
        if h_kv < 1 or h % h_kv:
            raise ValueError(f"h must be a multiple of h_kv, but h = {h} and h_kv = {h_kv}")
        self.h_kv = h_kv
        self.W_k = nn.Linear(d_model, self.W_k.out_features * h_kv // h, bias=False)
        self.W_v = nn.Linear(d_model, self.W_v.out_features * h_kv // h, bias=False)

    def keys_values(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """key and value (B, S, d_model) to K (B, h_kv, S, d_k) and V (B, h_kv, S, d_v)."""
        return split_heads(self.W_k(key), self.h_kv), split_heads(self.W_v(value), self.h_kv)

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask) -> Tensor:
        """Each head of K and V serves a group of heads of Q (B, h, T, d_k): (B, h, T, d_v)."""
        group = self.h // self.h_kv
        K, V = (x.repeat_interleave(group, dim=1) for x in (K, V))  # (B, h, S, d_k), (B, h, S, d_v)
        return super().weigh(Q, K, V, mask)


# %%
@example
def example_grouped() -> None:
    """Grouped attention gives the same as multi-head attention in which the heads of each group
    have equal keys and values, but with a smaller cache."""
    torch.manual_seed(0)
    x = torch.randn(2, 5, 32)
    plain = MultiHeadedAttention(8, 32)
    for h_kv in (8, 4, 2, 1):
        grouped = GroupedQueryAttention(8, 32, h_kv=h_kv)
        for name, p in grouped.named_parameters():
            heads = p.detach().unflatten(0, (-1, 4))  # (heads, 4, 32)
            shared = heads.repeat_interleave(8 // len(heads), dim=0)  # (8, 4, 32)
            plain.get_parameter(name).data = shared.flatten(0, 1)
        torch.testing.assert_close(grouped(x, x, x), plain(x, x, x))
        numbers = sum(cached.numel() for cached in grouped.keys_values(x, x))
        print(f"{h_kv} heads of keys and values: {numbers} numbers are cached")
        assert numbers * 8 == sum(cached.numel() for cached in plain.keys_values(x, x)) * h_kv


# %% [markdown]
# ## All of them in one model
#
# > `make_model` takes other parts as arguments. Two small classes are still missing.


# %%
# @title No positions below the stack, only dropout
class NoPositions(nn.Module):
    """Dropout alone, below a stack whose attention knows the positions."""

    def __init__(self, d_model: int, dropout: float):
        super().__init__()
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model), wherever it is."""
        return self.dropout(x)


# %%
class RotaryGroupedAttention(RotaryAttention, GroupedQueryAttention):
    """Both at once: the keys are turned first, and then shared."""


# %% [markdown]
# > `modern` returns the arguments. Only self-attention rotates queries and keys, so the attention to the memory is an
# > argument of its own.


# %%
# @title The arguments of `make_model` for other parts
LATER = {
    "rotary": {
        "attention": RotaryAttention,
        "cross_attention": AdjustableAttention,
        "positions": NoPositions,
    },
    "rms_norm": {"norm_layer": functools.partial(nn.RMSNorm, eps=1e-5)},
    "gated": {"feed_forward": GatedFeedForward},
    "grouped": {"attention": GroupedQueryAttention},
}


def modern(*names: str) -> dict[str, Part]:
    """Arguments of `make_model` for any of `rotary`, `rms_norm`, `gated` and `grouped`."""
    parts = {}
    for name in names:
        parts |= LATER[name]
    if {"rotary", "grouped"} <= {*names}:
        parts["attention"] = RotaryGroupedAttention
        parts["cross_attention"] = GroupedQueryAttention
    return parts


# %%
@example
def example_modern() -> Any:
    """Parameters and cache size of each variant of LIVE.
    Decoding step by step, each computes the same as for all positions at once."""
    torch.manual_seed(0)
    src = torch.randint(4, 50, (2, 6))
    tgt = torch.randint(4, 50, (2, 5))
    src[1, 4:] = PAD
    rows = []
    for names in [(), *((name,) for name in LATER), tuple(LATER)]:
        model = LIVE.make_model(50, **modern(*names)).eval()
        decoder = CachedDecoder(model, src, source_mask(src))
        steps = torch.stack([decoder.step(tokens) for tokens in tgt.T], dim=1)  # (B, T, vocab)
        at_once = model(src, tgt, source_mask(src), target_mask(tgt))
        torch.testing.assert_close(steps, at_once, atol=1e-4, rtol=1e-4)
        added = any(isinstance(module, PositionalEncoding) for module in model.modules())
        assert added == ("rotary" not in names)
        cached = sum(x[0, :, 0].numel() for K_V in decoder.past for x in K_V)  # of one position
        count = sum(p.numel() for p in model.parameters()) - model.generator.proj.weight.numel()
        rows.append({"variant": " + ".join(names) or "LIVE"})
        rows[-1]["parameters without embeddings"] = f"{count:,}"
        rows[-1]["cached numbers a position"] = cached
    assert [row["cached numbers a position"] for row in rows] == [1024, 1024, 1024, 1024, 512, 512]
    return table(rows)


# %% [markdown]
# ## A model trained by others
#
# > A group at the University of Helsinki has published more than a thousand translation models under the name
# > *OPUS-MT* (Tiedemann and Thottingal, 2020). They were trained with Marian (Junczys-Dowmunt et al., 2018), a
# > translation program written in C++, and are Transformers of the paper's kind: post-norm, embeddings multiplied by
# > $\sqrt{d_{\text{model}}}$, and one matrix for both embeddings and the output. To open one, you have to know what's
# > different and which array goes where. The differences are small:
# >
# > - The four projections of attention have biases.
# > - The feed-forward network uses *swish*, $x \cdot \sigma(x)$, in place of the ReLU.
# > - The positions are the same waves in a different order: first all the sines, then all the cosines. (That's how
# >   it is on the Hugging Face hub. In Marian's own files, the frequencies differ a little: see `last` below.)
# > - The output layer has a bias, one number for each token.
# > - The decoder starts from the padding token, whose vector is zero, instead of from `<s>`. (We keep `<s>` and give
# >   it that row of zeros: if our decoder really started with padding, its mask would hide the only key.)
# > - The encoder and the decoder may have different depths. The $\epsilon$ of LayerNorm isn't stored anywhere: it's
# >   $10^{-5}$ on the hub and $10^{-6}$ in Marian.
# >
# > Each of the first three differences gets a class of its own.


# %%
class BiasedAttention(AdjustableAttention):
    """Multi-head attention whose four projections have biases."""

    def __init__(self, h: int, d_model: int, dropout: float = 0.0, d_k: int | None = None):
        super().__init__(h, d_model, dropout, d_k)
        for name in ("W_q", "W_k", "W_v", "W_o"):
            plain = getattr(self, name)
            setattr(self, name, nn.Linear(plain.in_features, plain.out_features))


class SwishFeedForward(DroppingFeedForward):
    """Equation (2) with swish, x * sigmoid(x), in place of the ReLU."""

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) to (B, T, d_model), each position on its own."""
        return self.W_2(self.dropout(F.silu(self.W_1(x))))


# %%
class SplitPositions(nn.Module):
    """Adds all sines, then all cosines."""

    def __init__(self, d_model: int, dropout: float, last: int):
        super().__init__()
        # `last` is the index of frequency 1/10000: d_model / 2 on the hub, one less in Marian
        frequency = torch.exp(torch.arange(d_model // 2) * (-math.log(10_000.0) / last))
        self.register_buffer("frequency", frequency, persistent=False)
        self.last = last
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """x (B, T, d_model), whose first position is `start`."""
        position = torch.arange(start, start + x.size(1), device=x.device)
        angle = position.unsqueeze(1) * self.frequency  # (T, d_model / 2)
        return self.dropout(x + torch.cat((angle.sin(), angle.cos()), dim=-1).to(x.dtype))


# %% [markdown]
# > `make_marian` makes a model with them.


# %%
# @title A model with Marian's parts
def make_marian(
    vocab: int, d_model: int, *sizes: Any, depths: tuple[int, int],
    swish: bool = True, closed: bool = False, eps: float = 1e-5, **settings: Any,
) -> Transformer:  # fmt: skip
    """A fresh model with Marian's parts, and with so many layers in encoder and decoder.

    With `closed`, the waves are as in Marian's files. The other arguments are `make_model`'s.
    """
    parts = {"attention": BiasedAttention, "norm_layer": functools.partial(nn.LayerNorm, eps=eps)}
    parts["positions"] = functools.partial(SplitPositions, last=d_model // 2 - closed)
    if swish:
        parts["feed_forward"] = SwishFeedForward
    model = make_model(vocab, vocab, max(depths), d_model, *sizes, **settings | parts)
    model.encoder.layers = model.encoder.layers[: depths[0]]
    model.decoder.layers = model.decoder.layers[: depths[1]]
    model.generator.proj.bias = nn.Parameter(torch.zeros(vocab))
    return model


# %% [markdown]
# > And which array is which? On the Hugging Face hub, each model is a folder with the arrays in `model.safetensors`
# > (in older ones, in `pytorch_model.bin`). There, our parameters have these names:
# >
# > | ours | theirs | where in the paper |
# > |---|---|---|
# > | `encoder.layers.0.self_attn.W_q` (`W_k`, `W_v`, `W_o`) | `model.encoder.layers.0.self_attn.q_proj` (`k_proj`, `v_proj`, `out_proj`) | 3.2.2 |
# > | `decoder.layers.0.src_attn.W_q` … | `model.decoder.layers.0.encoder_attn.q_proj` … | 3.2.3 |
# > | `encoder.layers.0.feed_forward.W_1`, `W_2` | `model.encoder.layers.0.fc1`, `fc2` | 3.3 |
# > | `encoder.layers.0.sublayer.0.norm`, `1.norm` | `model.encoder.layers.0.self_attn_layer_norm`, `final_layer_norm` | 3.1 |
# > | `decoder.layers.0.sublayer.0.norm`, `1.norm`, `2.norm` | `model.decoder.layers.0.self_attn_layer_norm`, `encoder_attn_layer_norm`, `final_layer_norm` | 3.1 |
# > | `src_embed.embeddings.table.weight`, `tgt_embed…`, `generator.proj.weight` | `model.shared.weight`, one for all three | 3.4 |
# > | `generator.proj.bias` | `final_logits_bias` | – |
# >
# > (Where the table doesn't show it, the names continue with `.weight` or `.bias`; only `final_logits_bias`, a
# > single row, has no such ending. Marian's own files hold the same arrays, transposed, under names such as
# > `encoder_l1_self_Wq`; the program knows both.)
# >
# > The arrays in the last two lines of the table have a row (in the bias, a number) for each token, in the order of
# > `vocab.json`: `</s>` is number 0, and padding comes last. Ours are put together from these rows: the one for
# > padding serves for `<pad>` and again for `<s>`, then come those of `</s>` and `<unk>`, then all the others, so
# > ours have one row more. In the bias, `<pad>` and `<s>` get a number so low that neither is ever chosen.
# >
# > The sizes are in `config.json`: `d_model`, and `encoder_layers`, `encoder_attention_heads` and
# > `encoder_ffn_dim`, and the same three for the decoder. (Only the depths may differ. `make_model` is given the
# > larger one, `tie="all"`, and one token more than `vocab.json` has.) Before you trust a model, look at four more
# > entries there: `activation_function` must be `swish` (also called `silu`) or `relu`, `scale_embedding` must be
# > true, `normalize_before` must not be true, and `share_encoder_decoder_embeddings` must not be false.
# >
# > Text is cut by *SentencePiece* (Kudo and Richardson, 2018). There's a file for each of the two languages,
# > `source.spm` and `target.spm`; each lists pieces with their log-probabilities, and the library `sentencepiece`
# > reads it. Each space becomes the character `▁`, and one more is put before the first word. Then, of all the ways
# > to cut the sentence into pieces, the most probable one is taken. `vocab.json` says which row each piece has, in
# > either language (SentencePiece's own numbers don't count here), and a piece without a row is `<unk>`. At the end
# > of the source comes `</s>`. If a model has several target languages, a code in front of the source, such as
# > `>>fra<<`, says which one is wanted; this token is never cut. A translation's pieces become text as in [Part
# > 3](the_annotated_transformer.ipynb#Words-and-word-pieces-(Section-5.1)): join them, and replace each `▁` with a
# > space.


# %%
# @title Our names of the arrays, and theirs
THEIR_NAMES = {
    "W_q": "q_proj", "W_k": "k_proj", "W_v": "v_proj", "W_o": "out_proj",
    "src_attn": "encoder_attn", "feed_forward.W_1": "fc1", "feed_forward.W_2": "fc2",
    "sublayer.0.norm": "self_attn_layer_norm", "sublayer.1.norm": "encoder_attn_layer_norm",
    "sublayer.2.norm": "final_layer_norm",
}  # fmt: skip


def their_name(name: str) -> str:
    """The name on the hub of a parameter of one of our layers."""
    if name.startswith("encoder."):  # no attention to another stack stands between its two norms
        name = name.replace("sublayer.1.norm", "final_layer_norm")
    for ours, theirs in THEIR_NAMES.items():
        name = name.replace(ours, theirs)
    return f"model.{name}"


# %% [markdown]
# > No such model comes with this document, so the next cell stores the random weights of a small one under the hub's
# > names, and loads them into another of our models. It also checks what the subclasses promise: with biases of zero,
# > and with the waves put in order, they compute what the paper's parts compute. With an internet connection, the
# > program can load real ones: `python the_annotated_transformer.py import Helsinki-NLP/opus-mt-de-en --out
# > runs/opus`, and then `translate --model runs/opus`.


# %%
@example
def example_marian() -> None:
    """Random arrays under the hub's names, loaded by name. Marian's parts are checked against the
    paper's, and decoding step by step against all positions at once."""
    torch.manual_seed(0)
    make = functools.partial(make_marian, 40, 16, 32, 4, 0.0, depths=(3, 2), tie="all")
    theirs, ours = make().eval(), make().eval()
    arrays = {their_name(name): p for name, p in theirs.named_parameters() if ".layers." in name}
    arrays["model.shared.weight"] = theirs.generator.proj.weight
    arrays["final_logits_bias"] = theirs.generator.proj.bias
    names = [name for name, _ in ours.named_parameters() if ".layers." in name]
    weights = {name: arrays[their_name(name)] for name in names}
    for name in ("src_embed.embeddings.table", "tgt_embed.embeddings.table", "generator.proj"):
        weights[f"{name}.weight"] = arrays["model.shared.weight"]
    weights["generator.proj.bias"] = arrays["final_logits_bias"]
    ours.load_state_dict(weights)
    src = torch.randint(4, 40, (2, 6))
    tgt = torch.randint(4, 40, (2, 5))
    expected = theirs(src, tgt, source_mask(src), target_mask(tgt))
    torch.testing.assert_close(ours(src, tgt, source_mask(src), target_mask(tgt)), expected)
    decoder = CachedDecoder(ours, src, source_mask(src))
    steps = torch.stack([decoder.step(tokens) for tokens in tgt.T], dim=1)
    torch.testing.assert_close(steps, expected)
    waves = SplitPositions(16, 0.0, 8)(torch.zeros(1, 9, 16))[0]
    torch.testing.assert_close(waves.unflatten(1, (2, 8)).mT.flatten(1), positional_encoding(9, 16))
    plain = MultiHeadedAttention(4, 16)
    biased = BiasedAttention(4, 16)
    zeros = {f"{name}.bias": torch.zeros(16) for name, _ in plain.named_children()}
    biased.load_state_dict(plain.state_dict() | zeros)
    x = torch.randn(2, 5, 16)
    torch.testing.assert_close(biased(x, x, x), plain(x, x, x))
    print(f"{len(arrays)} random arrays found their places; encoder of 3 layers, decoder of 2")


# %% [markdown]
# ## Fused attention, tile by tile
#
# > Equation (1) computes a matrix of weights, $T \times S$ numbers for each head. For long sequences it no longer
# > fits into a processor's fast memory, and most of the time is spent moving it to and fro. *Flash attention* (Dao
# > et al., 2022) never stores this matrix. It saves no multiplications (for the gradient, it even computes the weights
# > twice), only memory traffic, but that's what makes it fast.
# >
# > The difficulty is the softmax, which seems to need all the scores of a row at once. In fact it doesn't (Milakov
# > and Gimelshein, 2018). Go through the keys tile by tile, and keep three things for each query: the largest score
# > $m$ so far, the sum $\ell$ of the exponentials relative to it, and the weighted sum $o$ of the values. When a
# > tile brings a larger score $m'$, multiply both sums by $e^{m - m'}$ and go on. For example, take the scores 2 and
# > 0 in one tile and 5 and 1 in the next. After the first tile, $m = 2$ and $\ell = 1 + e^{-2} = 1.135$. The second
# > has $m' = 5$, so the old sum shrinks to $1.135 \cdot e^{-3} = 0.057$, and the new one is $0.057 + 1 + e^{-4} =
# > 1.075$. All four scores at once give the same: $e^{-3} + e^{-5} + 1 + e^{-4}$. In general, for a tile with scores
# > $s_j$ and values $v_j$:
# >
# > $$\ell' = e^{m - m'} \ell + \sum_j e^{s_j - m'}, \qquad o' = e^{m - m'} o + \sum_j e^{s_j - m'} v_j$$
# > $$\mathrm{output} = o / \ell$$


# %%
def tiled_attention(
    Q: Tensor, K: Tensor, V: Tensor,
    mask: Mask = None, causal: bool = False, tile: int = 64,
) -> Tensor:  # fmt: skip
    """Equation (1) by tiles of keys, with largest score and sum so far (Dao et al., 2022)."""
    output = Q.new_zeros(*Q.shape[:-1], V.size(-1))  # (..., T, d_v)
    total = Q.new_zeros(*Q.shape[:-1], 1)  # (..., T, 1)
    top = torch.full_like(total, torch.finfo(Q.dtype).min)
    places = torch.arange(K.size(-2), device=Q.device)
    for keys in places.split(tile):
        scores = Q @ K[..., keys, :].mT / math.sqrt(Q.size(-1))  # (..., T, tile)
        if mask is not None:  # (..., T or 1, S)
            scores = scores.masked_fill(~allowed(mask[..., keys]), -torch.inf)
        if causal:  # T = S
            scores = scores.masked_fill(keys > places.unsqueeze(-1), -torch.inf)
        earlier_top = top
        top = torch.maximum(top, scores.amax(-1, keepdim=True))  # (..., T, 1)
        weights = (scores - top).exp()  # (..., T, tile)
        shrink = (earlier_top - top).exp()  # (..., T, 1)
        output = output * shrink + weights @ V[..., keys, :]
        total = total * shrink + weights.sum(-1, keepdim=True)
    return output / total  # (..., T, d_v)


# %% [markdown]
# > To see how much is held at a time, the next class looks at the result of every PyTorch function called from
# > Python, and remembers the size of the largest. The chart shows this size against the length of the sequence.


# %%
# @title The size of the largest tensor
class LargestTensor(torch.overrides.TorchFunctionMode):
    """Inside, `numbers` is the size of the largest tensor that an operation gave."""

    numbers = 0

    def __torch_function__(
        self, function: Callable, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Do as told, and look at the result."""
        result = function(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numbers = max(self.numbers, result.numel())
        return result


# %%
@example
def example_tiles() -> Chart:
    """The result equals Equation (1), with and without masks;
    the largest tensor grows with the length, not with its square."""
    torch.manual_seed(0)
    Q, K, V = torch.randn(3, 2, 4, 50, 16)
    real = torch.rand(2, 1, 1, 50) < 0.3
    real[..., -1] = True
    real[0, ..., :16] = False  # the first sentence: no key of the first tile
    past = subsequent_mask(50)
    cases = [(None, False, None), (real, False, real), (None, True, past)]
    cases.append((real.flip(-1), True, real.flip(-1) & past))
    for mask, causal, whole_mask in cases:
        expected = attention(100 * Q, K, V, whole_mask)[0]
        torch.testing.assert_close(tiled_attention(100 * Q, K, V, mask, causal, tile=16), expected)
    rows = []
    for n in (64, 128, 256, 512, 1024, 2048):
        x = torch.randn(n, 64)
        for name, form in (("Equation (1)", attention), ("tiles of 64", tiled_attention)):
            with LargestTensor() as held:
                form(x, x, x)
            rows.append({"tokens": n, "numbers in the largest tensor": held.numbers, "form": name})
    assert held.numbers == 2048 * 64 and rows[-2]["numbers in the largest tensor"] == 2048**2
    return curves(rows, "tokens", "numbers in the largest tensor", "form", log_y=True, log_x=True)


# %% [markdown]
# > PyTorch offers this as a *fused kernel*: a single routine on the processor that does the work of several.
# > Because Equation (1) is a method of its own in `MultiHeadedAttention`, a subclass can put the kernel in its
# > place, and everything else stays the same. At our sizes it gains nothing on a CPU ([lab
# > notebook](lab_notebook.ipynb#Where-the-speed-comes-from)), so the models in this document do without it. It's
# > made for long sequences and for GPUs.


# %%
class FusedAttention(MultiHeadedAttention):
    """Multi-head attention by PyTorch's fused kernel, which keeps no weights."""

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Mask) -> Tensor:
        """Equation (1) in every head: (B, h, T, d_v)."""
        return F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)


# %%
@example
def example_fused() -> None:
    """With the same weights, the fused kernel gives the same vectors."""
    torch.manual_seed(0)
    plain = MultiHeadedAttention(4, 32)
    fused = FusedAttention(4, 32)
    x = torch.randn(2, 6, 32)
    mask = subsequent_mask(6)
    fused.load_state_dict(plain.state_dict())
    torch.testing.assert_close(fused(x, x, x, mask), plain(x, x, x, mask))


# %% [markdown]
# ## 16-bit numbers
#
# > GPUs, and some processors, multiply 16-bit numbers several times faster than 32-bit ones. *bfloat16* keeps the 8
# > exponent bits of float32, and with them its range, but gives up precision: its significand has 8 bits (7 of them
# > stored), which is worth two to three decimal digits. *float16* does the opposite: it has more digits, but can't go
# > beyond 65,504. That's why a −10⁹ in a mask fails in float16, and why training in bfloat16 needs no special care
# > for the size of gradients. In float16, whatever is below $3 \cdot 10^{-8}$ becomes 0, so the loss is multiplied by
# > a large number, and the gradients are divided by it before the update (*loss scaling*). With either, the optimiser
# > keeps the weights in float32: an update is often smaller than the last digit of a 16-bit weight. Sums of many
# > numbers, such as the loss or the statistics of a norm, should stay in float32, because a small number added to a
# > large one would vanish. PyTorch's `autocast` runs the matrix products in bfloat16. On a GPU, it runs softmax,
# > norms and losses in float32; on a CPU, only the losses, so there the softmax of attention runs in bfloat16. In our
# > model, that does little harm (the last cell of this section shows how much): the norms read float32 because the
# > residual stream is float32, and `smoothed_loss` converts the logits itself.


# %%
@example
def example_bfloat16() -> Any:
    """What three number formats keep:
    bfloat16 has a significand of 8 bits, and adding ones in it stops at 256."""

    def eight_bits(x: float) -> float:
        m, e = math.frexp(x)  # x = m 2^e with m from 1/2 to 1
        return round(m * 256) / 256 * 2**e

    kinds = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    numbers = {"1 + 1/128": 1 + 1 / 128, "1 + 1/256": 1 + 1 / 256}
    numbers |= {"2 · 65504": 2 * 65504.0, "1e-30": 1e-30}
    rows = {}
    for name, x in numbers.items():
        rows[name] = {kind: torch.tensor(x).to(t).item() for kind, t in kinds.items()}
    ones = {kind: torch.ones(1000, dtype=t) for kind, t in kinds.items()}
    sums = {kind: functools.reduce(torch.add, x).item() for kind, x in ones.items()}
    rows["1 + 1 + … (1000 times)"] = sums
    assert rows["1 + 1/256"]["bfloat16"] == 1 != rows["1 + 1/256"]["float16"]
    assert sums["bfloat16"] == 256
    assert math.isinf(rows["2 · 65504"]["float16"]) and rows["1e-30"]["float16"] == 0
    rounded = {name: torch.tensor(eight_bits(x)).item() for name, x in numbers.items()}
    assert all(rows[name]["bfloat16"] == x for name, x in rounded.items())
    return table([{"number": name, **row} for name, row in rows.items()]).astype(str)


# %%
@example
def example_autocast() -> None:
    """Products in bfloat16, weights and loss in float32:
    the logits are off by less than two per cent."""
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=64, d_ff=128, h=4, norm="pre").eval()
    batch = make_batch(copy_pairs(16, 50, seed=0))
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    normalised = set()  # the types of what is added up from layer to layer
    for module in model.modules():
        if isinstance(module, nn.LayerNorm):
            module.register_forward_pre_hook(lambda _, inputs: normalised.add(inputs[0].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    error = ((rounded - logits).norm() / logits.norm()).item()
    full = smoothed_loss(logits, batch.tgt_y).item() / batch.ntokens
    half = smoothed_loss(rounded, batch.tgt_y).item() / batch.ntokens
    print(f"{rounded.dtype}, relative error {error:.4f}, losses {full:.4f} and {half:.4f}")
    assert normalised == {torch.float32}
    assert rounded.dtype == torch.bfloat16 and 1e-4 < error < 2e-2 and abs(half / full - 1) < 1e-3


# %% [markdown]
# ## Muon
#
# > Most large models are trained with *AdamW* (Loshchilov and Hutter, 2019): Adam that also shrinks every weight a
# > little at each update. A gradient that is too long is first cut to a fixed length (*clipping*), and after the
# > warmup the rate falls along half a cosine.
# >
# > To Adam, the entries of a matrix are just so many independent numbers. *Muon* (Jordan et al., 2024) treats the
# > matrix as a matrix. It takes the moving average $M$ of the gradient and its singular value decomposition, $M = U
# > \Sigma W^\top$: $U$ and $W$ hold directions, and $\Sigma$ says how strongly each is stretched. Then it changes the
# > matrix by a step along $-U W^\top$: in the same directions, but equally far in each. Muon's authors had observed
# > that the updates of other optimisers are dominated by a few directions. The program uses Muon for the matrices of
# > the layers, and Adam for all other parameters. Two details of the program's version are left out here: there, $M$
# > is the moving average one step ahead (Nesterov's momentum), and the result is scaled by
# > $0.3\sqrt{\max(\text{rows}, \text{columns})}$, which makes its entries about as large as those of an Adam update
# > (Jingyuan Liu et al., 2025, who use 0.2). The decomposition itself is never computed. Instead, five steps of a
# > polynomial, with matrix products alone, push every singular value that isn't tiny into a band around 1, from about
# > 0.7 to 1.2. Muon's authors tuned the polynomial's three coefficients so that small singular values grow quickly.
# > $X$ begins as $M / \lVert M \rVert$, and each step is:
# >
# > $$X \leftarrow aX + b\,(XX^\top)X + c\,(XX^\top)^2X$$


# %%
def orthogonalise(M: Tensor, steps: int = 5) -> Tensor:
    """M with its singular values near 1, by steps of Newton and Schulz (Jordan et al., 2024)."""
    X = M / M.norm()  # no singular value is above 1
    for _ in range(steps):
        S = X @ X.T
        # a singular value s becomes 3.4445 s - 4.7750 s³ + 2.0315 s⁵
        X = 3.4445 * X - 4.7750 * S @ X + 2.0315 * S @ S @ X
    return X


# %%
@example
def example_muon() -> Chart:
    """Each step applies the polynomial to the singular values and leaves the vectors unchanged;
    after five steps, nearly all the values are close to 1."""
    torch.manual_seed(0)
    M = torch.randn(64, 128, dtype=torch.double) * torch.logspace(0, -2, 128, dtype=torch.double)
    U, s, V = torch.linalg.svd(M / M.norm(), full_matrices=False)
    rows = []
    for steps in range(6):
        for i, x in enumerate(s.tolist()):
            rows.append({"singular value number": i + 1, "size": x, "steps": str(steps)})
        torch.testing.assert_close(orthogonalise(M, steps), U @ torch.diag(s) @ V)  # same U and V
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    after = [row["size"] for row in rows[-64:]]
    print(f"singular values before {rows[0]['size']:.3f} to {rows[63]['size']:.4f}", end=", ")
    print(f"after {max(after):.2f} to {min(after):.2f}")
    assert min(after) > 0.6 and max(after) < 1.25
    return curves(rows, "singular value number", "size", "steps")


# %% [markdown]
# ## What makes it fast
#
# > The first document shows everything in its plainest form. The program that trained our models computes the same
# > things in faster ways. Three ideas bring the biggest gains in training, and each has a folded cell and a check that
# > the outcome is still right. How big these gains are, which ideas brought none, what makes decoding fast, and how
# > fast other programs are: all this is in the [lab notebook](lab_notebook.ipynb#Where-the-speed-comes-from).
# >
# > **1. Batches of similar lengths.** What isn't computed costs nothing. Part 2 already groups by length, and
# > that's where the gain is, compared with random order. But it does so with Python's `sorted`, which is slow for
# > millions of pairs. NumPy sorts a single array of numbers quickly, so the three sorting
# > keys are packed into one number: the target's length in steps of two, the source's length, and a random part.
# > Within one group of targets the sources get longer, in the next they get shorter, so the order winds like a snake,
# > and no batch combines the longest sources with the shortest.


# %%
# @title Batches from a single sort of numbers
def sorted_batches(lengths: Any, budget: int, seed: int | None = None) -> list[np.ndarray]:
    """Row numbers of pairs of these lengths (n, 2), in batches (Section 5.1).

    A batch has at most `budget` padded tokens a side. With a seed the batches are drawn and
    ordered at random. Raises ValueError for a pair longer than the budget.
    """
    sizes = np.asarray(lengths, dtype=np.int32).reshape(-1, 2)
    if (too_long := sizes.max(1, initial=0) > budget).any():
        i = too_long.argmax()
        raise ValueError(f"pair {i + 1} has {sizes[i].max()} tokens, but a batch holds {budget}")
    draw = np.random.default_rng(seed)
    noise = np.arange(len(sizes)) if seed is None else draw.permutation(len(sizes))
    source = sizes[:, 0]
    group = sizes[:, 1] // 2
    width = 2 * sizes.max(initial=0) + 1  # of a group
    snake = np.where(group % 2, source, -source) + group.astype(np.int64) * width
    order = np.argsort(snake * len(sizes) + noise)  # three keys in one number
    longest = sizes.max(1)[order]
    batches = []
    start = 0
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
    """Every pair appears once, and no batch exceeds the budget.
    Lengths are in characters here, so there is more padding than with tokens."""
    lengths = [(len(german), len(english)) for german, english in load_split("val")]
    batches = sorted_batches(lengths, 5000, seed=0)
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    pairs = [[lengths[row] for row in batch] for batch in batches]
    padded = 0
    for batch in pairs:
        widths = [max(side) for side in zip(*batch, strict=True)]  # of sources, of targets
        assert len(batch) * max(widths) <= 5000
        padded += len(batch) * sum(widths)
    print(f"{len(batches)} batches, {1 - sum(map(sum, lengths)) / padded:.1%} padding")


# %% [markdown]
# > **2. The loss, without the matrix of all scores.** With 5,000 tokens and a vocabulary of 6,000, the logits take up
# > 120 megabytes. The log-softmax takes up as much again, and so does the gradient of each. But the gradient is the
# > $p - q$ of [Part 2](the_annotated_transformer.ipynb#Regularisation-(Section-5.4)). So the loss and the gradient can be computed together, a few
# > hundred tokens at a time, and each chunk of logits is thrown away before the next is made. The first function
# > handles one chunk. The second cuts the rows into chunks, calls the generator for each, and carries the chunk's
# > gradient back through it.


# %%
# @title Loss and gradient of one chunk
def smoothed_gradient(
    scores: Tensor, target: Tensor, eps: float = 0.1, pad: int = PAD
) -> tuple[Tensor, Tensor]:
    """The smoothed loss of scores (n, vocab), summed over targets (n) without padding.

    With it comes its gradient p - q (n, vocab).
    """
    y = target.unsqueeze(-1)
    spread = eps / (scores.size(-1) - 1)
    scores = scores - scores.amax(-1, keepdim=True)  # a shift changes nothing; exp stays in range
    of_target = scores.gather(-1, y)
    uniform = scores.sum(-1, keepdim=True) - scores[:, pad : pad + 1]
    z = scores.exp_().sum(-1, keepdim=True)
    loss = (z.log() - (1 - eps) * of_target - spread * uniform).sum()
    grad = scores.div_(z).sub_(spread)  # (n, vocab): p - q, except for two columns
    grad[:, pad] += spread
    return loss, grad.scatter_add_(-1, y, grad.new_full(y.shape, eps - 1))


# %%
# @title The loss in chunks
class ChunkedLoss(torch.autograd.Function):
    """The smoothed loss (5.4) of x's logits, summed over rows, never holding them all at once."""

    @staticmethod
    def forward(
        ctx, generator: Generator, x: Tensor, target: Tensor,
        eps: float, chunk: int, *parameters: Tensor,
    ) -> Tensor:  # fmt: skip
        """Returns a scalar.

        x (n, d_model), target (n) without padding, and the generator's parameters that learn.
        """
        kind = torch.promote_types(x.dtype, torch.float32)  # logits have 32 bits, even if x has 16
        total = x.new_zeros((), dtype=kind)
        grads = [torch.zeros_like(tensor) for tensor in (x, *parameters)]
        for start in range(0, len(target), chunk):
            places = slice(start, start + chunk)
            with torch.set_grad_enabled(any(ctx.needs_input_grad)):
                rows = x[places].detach().requires_grad_(any(ctx.needs_input_grad))
                logits = generator.logits(rows)  # (chunk, vocab)
            loss, grad = smoothed_gradient(logits.detach().to(kind), target[places], eps)
            total += loss
            if any(ctx.needs_input_grad):
                of_rows, *of_parameters = torch.autograd.grad(
                    logits, (rows, *parameters), grad.to(logits.dtype), materialize_grads=True
                )
                grads[0][places] = of_rows
                for sum_of_chunks, of_chunk in zip(grads[1:], of_parameters, strict=True):
                    sum_of_chunks += of_chunk
        ctx.save_for_backward(*grads)
        return total

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple:
        """The gradients that the forward pass left, scaled."""
        of_x, *of_parameters = (saved * grad for saved in ctx.saved_tensors)
        return None, of_x, None, None, None, *of_parameters


def chunked_loss(
    generator: Generator, x: Tensor, target: Tensor, eps: float = 0.1, chunk: int = 512
) -> Tensor:
    """Smoothed loss of the decoder's x (n, d_model), summed over unpadded targets (n): a scalar."""
    learning = [p for p in generator.parameters() if p.requires_grad and torch.is_grad_enabled()]
    return ChunkedLoss.apply(generator, x, target, eps, chunk, *learning)


# %%
@example
def example_chunked_loss() -> None:
    """Chunks of 3 tokens give the same loss and gradients as the whole."""
    torch.manual_seed(0)
    generator = Generator(16, 30)
    x = torch.randn(8, 16, requires_grad=True)
    target = torch.randint(1, 30, (8,))
    at_once = smoothed_loss(generator.logits(x), target)
    chunked = chunked_loss(generator, x, target, chunk=3)
    print(f"whole {at_once.item():.6f}, in chunks {chunked.item():.6f}")
    torch.testing.assert_close(chunked, at_once)
    learning = (x, *generator.parameters())
    gradients = [torch.autograd.grad(loss, learning) for loss in (at_once, chunked)]
    torch.testing.assert_close(*gradients)


# %% [markdown]
# > **3. Dropout with fewer random numbers.** On a CPU, PyTorch draws one random number for each entry. But a 64-bit
# > random number has room for four decisions of 16 bits each, so a quarter as many will do. The rate is then accurate
# > to within 1/65536.


# %%
# @title Dropout, four decisions to a random number
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
# @title The cheaper dropout in all parts of a model
def with_fast_dropout(model: Transformer) -> Transformer:
    """The same model, with the cheaper dropout in place of PyTorch's."""
    for module in list(model.modules()):
        if type(getattr(module, "dropout", None)) is nn.Dropout:
            module.dropout = FastDropout(module.dropout.p)
    return model


# %%
@example
def example_fast_dropout() -> None:
    """The right share of entries is dropped, the mean is preserved,
    and neighbours are independent."""
    torch.manual_seed(0)
    y = FastDropout(0.25)(torch.ones(1_000_000))
    dropped = (y == 0).float().mean()
    pairs = ((y[:-1] == 0) & (y[1:] == 0)).float().mean()
    print(f"dropped {dropped:.4f}, both of two neighbours {pairs:.4f}, mean {y.mean():.4f}")
    assert abs(dropped - 0.25) < 0.002 and abs(pairs - 0.25**2) < 0.002
    assert abs(y.mean() - 1) < 0.005
    model = with_fast_dropout(make_model(9, 9, N=1, d_model=8, d_ff=8, h=2))
    assert not any(type(module) is nn.Dropout for module in model.modules())


# %% [markdown]
# ## A decoder alone
#
# > Most of today's language models have no encoder. One stack with a causal mask reads everything as a single
# > sequence. To translate, it reads the source, then the target:
# >
# > $$x_1 \dots x_S\ \texttt{</s>}\ \texttt{<s>}\ y_1 \dots y_T$$
# >
# > What changes? There's one stack instead of two, and one kind of attention instead of three: a target token sees
# > source and target in the same self-attention. What is lost? Source tokens can no longer look ahead, because the
# > mask is causal for them as well. What is gained? Simplicity, and a model that can continue *any* text, not only
# > translate: with enough text, translation is one task among many. And as a conversation goes on, what has been read
# > once stays in the cache.
# >
# > In our [short runs](lab_notebook.ipynb#The-paper's-Table-3-in-miniature), greedily decoded, a decoder of five
# > layers is 0.5<!--decoder_only greedy--> BLEU behind an encoder and decoder of four each, and 1.7<!--decoder_only beside rotary--> behind if both have rotary positions;
# > among so many comparisons, either may be chance. It computes about as much for each token, with almost a third fewer parameters.
# >
# > The model is a `Transformer` whose `encode` does nothing, so the trainer, the loss and the naive decoder of Part 2
# > work as they are. As before, only the target tokens count towards the loss, whereas a language model learns from
# > every token. In a batch, the padding of the sources mustn't come between source and target. So `decode` moves it
# > to the end: `5 6 </s> <pad> <s> 8 9` becomes `5 6 </s> <s> 8 9 <pad>`. Only the cache needs a form of its own.


# %%
class DecoderOnly(Transformer):
    """One causal stack for source and target (Liu et al., 2018); used like a Transformer."""

    def encode(self, src: Tensor, src_mask: Mask) -> Tensor:
        """Nothing is computed from the source (B, S) alone."""
        return src

    def decode(self, memory: Tensor, src_mask: Mask, tgt: Tensor, tgt_mask: Mask) -> Tensor:
        """Source ids (B, S) and target ids (B, T) to the target's vectors (B, T, d_model)."""
        ids = torch.cat((memory, tgt), dim=1)  # (B, S + T)
        real = memory >= 0 if src_mask is None else allowed(src_mask).squeeze(1)  # (B or 1, S)
        padding = F.pad(~real, (0, tgt.size(1))).expand_as(ids)  # (B, S + T)
        order = padding.int().argsort(dim=1, stable=True)  # padding last, where nothing sees it
        x = self.tgt_embed(ids.gather(1, order))  # (B, S + T, d_model)
        x = self.decoder(x, subsequent_mask(x.size(1)).to(x.device))
        start = (~padding).sum(1, keepdim=True) - tgt.size(1)  # (B, 1), the place of <s>
        places = start + torch.arange(tgt.size(1), device=x.device)  # (B, T)
        return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.size(-1)))


# %%
# @title A new decoder-only model
def make_decoder_only(vocab: int, config: Config, N: int, **parts: Part) -> DecoderOnly:
    """A fresh decoder-only model: N layers, `config`'s other sizes, and one embedding matrix."""
    sizes = (N, config.d_model, config.d_ff, config.h, config.dropout)
    pair = make_model(vocab, vocab, *sizes, norm=config.norm, tie="all", **parts)
    embed = pair.tgt_embed
    model = DecoderOnly(nn.Identity(), pair.encoder, embed, embed, pair.generator)
    model.settings = pair.settings
    return model


# %% [markdown]
# > With a cache, the stack first reads the source, here token by token, and then goes on with tokens of its own. (The
# > source could be read in a single pass, with the causal mask. Large models do that and call it *prefill*: it keeps
# > the processor busy with large matrix products, whereas writing mostly waits until weights and cache have been read
# > from memory.)


# %%
class CachedStack(CachedDecoder):
    """A decoder-only model, a token of each sequence at a time, with all keys and values so far."""

    def __init__(self, model: DecoderOnly, rows: int):
        self.model = model
        self.length = 0
        nothing = model.generator.proj.weight.new_empty(rows, 0, model.generator.proj.in_features)
        layers = model.decoder.layers  # encoder layers: there is no memory to attend to
        self.past = [layer.self_attn.keys_values(nothing, nothing) for layer in layers]
        self.layers = []
        for i, layer in enumerate(layers):
            self.layers.append(with_attention(layer, self_attn=functools.partial(self.own, i)))

    def step(self, tokens: Tensor) -> Tensor:
        """The next token of each sequence (B) to the logits of the one after it (B, vocab)."""
        x = self.model.tgt_embed(tokens.unsqueeze(1), self.length)  # (B, 1, d_model)
        for layer in self.layers:
            x = layer(x, None)
        self.length += 1
        return self.model.generator.logits(self.model.decoder.norm(x))[:, 0]


# %%
# @title Greedy decoding without an encoder
@torch.inference_mode()
def decoder_only_greedy(model: DecoderOnly, src: Tensor, src_mask: Mask, max_len: int) -> Tensor:
    """Reads src token by token and goes on greedily: ids (B, max_len), BOS first, PAD after EOS."""
    real = torch.ones_like(src[:, None]) if src_mask is None else allowed(src_mask)
    lengths = real.sum(-1).expand(len(src), 1)  # (B, 1)
    sources = F.pad(src, (0, max_len), value=PAD).scatter(1, lengths, BOS)  # (B, S + max_len)
    decoder = CachedStack(model, len(src))

    def choose(logits: Tensor) -> Tensor:
        # while the source is read, its next token, whatever the logits say
        reading = decoder.length <= lengths.squeeze(1)
        return torch.where(reading, sources[:, decoder.length], logits.argmax(-1))

    with evaluating(model):
        # no end_symbol: sources hold </s>, too
        ids = continue_with(choose, decoder, sources[:, :1], sources.size(1), end_symbol=None)
    target = ids.gather(1, lengths + torch.arange(max_len, device=src.device))  # (B, max_len)
    before = (target == EOS).int().cumsum(1) - (target == EOS).int()  # how many </s> came before
    return target.masked_fill(before > 0, PAD)


# %% [markdown]
# > A single stack needs ten layers to have about as many parameters as `LIVE`. But does such a model learn? We try a
# > small one, of two layers, on the copy task of Part 2. As in Part 4, we average the last checkpoints, ten of them
# > here.


# %%
@example
def example_decoder_only() -> Chart:
    """As many parameters as LIVE has, in one stack of ten layers;
    a small one learns to copy what it has not seen."""
    kinds = {"encoder and decoder": LIVE.make_model(6000)}
    kinds["decoder only"] = make_decoder_only(6000, LIVE, N=10)
    sizes = {name: sum(p.numel() for p in model.parameters()) for name, model in kinds.items()}
    print("parameters:", ", ".join(f"{name} {size:,}" for name, size in sizes.items()))
    torch.manual_seed(0)
    config = Config(d_model=64, d_ff=128, h=4, dropout=0.0, norm="pre", factor=0.25, warmup=150)
    model = make_decoder_only(14, config, N=2)
    checkpoints = []

    def keep() -> dict:
        checkpoints.append({name: p.detach().clone() for name, p in model.named_parameters()})
        return {}

    batches = [copy_pairs(64, 14, seed=step) for step in range(1000)]
    rows = fit(Trainer(model, config), batches, every=20, measure=keep)
    model.load_state_dict(average_weights(checkpoints[-10:]), strict=False)
    seen = {tuple(pair.src) for step in range(len(rows)) for pair in copy_pairs(64, 14, seed=step)}
    new = [pair for pair in copy_pairs(250, 14, seed=10**6) if tuple(pair.src) not in seen]
    unseen = make_batch(new)
    copies = decoder_only_greedy(model, unseen.src, unseen.src_mask, max_len=12)
    print("source", unseen.src[0].tolist(), "\ncopied", copies[0].tolist())
    written = copies[:, 1:] * unseen.src_mask[:, 0]
    assert torch.equal(written, unseen.src), "not every sequence was copied exactly"
    naive = greedy_decode_naive(model, unseen.src, unseen.src_mask, 12, BOS)
    assert torch.equal(naive * (copies != PAD), copies)  # the cache changes nothing
    rows = [{"update": r["update"], "nats per token": r["loss"], "task": "copy"} for r in rows]
    return curves(rows, "update", "nats per token", "task", log_y=True)


# %% [markdown]
# ## Sampling
#
# > Greedy and beam search look for a probable text. For translation that works well. For stories or conversations
# > it's dull, so language models *draw* each token at random from the predicted distribution. Two numbers control how
# > freely. The *temperature* $\tau$ divides the logits before the softmax: below 1, it sharpens the distribution;
# > above 1, it flattens it; and as it goes to 0, drawing becomes greedy decoding. *Top-p*, or nucleus sampling
# > (Holtzman et al., 2020), keeps the smallest set of tokens whose probabilities add up to at least $p$, and draws
# > only from these. It cuts off the long tail of tokens that are each unlikely but together quite likely. (*Top-k*
# > sampling keeps the $k$ most probable tokens instead, always the same number: too many where one word is certain,
# > too few where many would do.) At temperature $\tau$, a token $k$ with the logit $z_k$ has this probability:
# >
# > $$p_\tau(k) = \frac{e^{z_k / \tau}}{\sum_j e^{z_j / \tau}}$$


# %%
def nucleus(logits: Tensor, temperature: float = 1.0, top_p: float = 1.0) -> Tensor:
    """Probabilities (B, vocab) of the nucleus, else zero (Holtzman et al., 2020).

    It is the fewest tokens with a mass of top_p or more; at temperature 0, the most probable one.
    Raises ValueError for a negative temperature, and for a top_p that isn't from 0 to 1.
    """
    if not (0 <= temperature < math.inf and 0 <= top_p <= 1):
        raise ValueError(
            "the temperature must be at least 0 and top_p from 0 to 1, "
            f"but they are {temperature} and {top_p}"
        )
    if temperature < 1e-30:  # 0, or too small to divide by: only the most probable is left
        return F.one_hot(logits.argmax(-1), logits.size(-1)).to(logits.dtype)
    below = logits - logits.amax(-1, keepdim=True)  # so that the largest can't overflow
    p, tokens = (below / temperature).softmax(-1).sort(-1, descending=True)  # (B, vocab)
    if top_p < 1:
        beyond = p.cumsum(-1) - p >= top_p  # more probable ones have that mass without this one
        beyond[:, 0] = False  # the most probable one always stays
        p = p.masked_fill(beyond, 0.0)
    return torch.zeros_like(p).scatter(-1, tokens, p / p.sum(-1, keepdim=True))


# %%
@torch.inference_mode()
def sample_decode(
    model: Transformer, src: Tensor, src_mask: Mask, max_len: int,
    temperature: float = 1.0, top_p: float = 1.0,
) -> Tensor:  # fmt: skip
    """As `greedy_decode`, but tokens are drawn: ids (B, at most max_len), BOS, ..., EOS, PAD."""

    def draw(logits: Tensor) -> Tensor:
        return torch.multinomial(nucleus(logits, temperature, top_p), 1).squeeze(1)

    with evaluating(model):
        first = torch.full((len(src), 1), BOS, device=src.device)
        return continue_with(draw, CachedDecoder(model, src, src_mask), first, max_len)


# %% [markdown]
# > Below are three translations, drawn at temperature 1 with `top_p` = 0.9.


# %%
@example
def example_sampling() -> None:
    """Three translations of one sentence, drawn at random. The cell also checks the nucleus of a
    small distribution, and that a temperature near zero gives greedy decoding."""
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05], [0.05, 0.15, 0.3, 0.5]]).log()
    for top_p, n in ((0.45, 1), (0.55, 2), (0.79, 2), (0.81, 3), (1.0, 4)):
        p = nucleus(logits, top_p=top_p)
        assert (p > 0).sum(-1).tolist() == [n, n] and torch.equal(p[0], p[1].flip(0))
        torch.testing.assert_close(p[0, :n], logits[0, :n].softmax(-1))
    squares = torch.tensor([0.25, 0.09, 0.0225, 0.0025])
    torch.testing.assert_close(nucleus(logits, 0.5)[0], squares / 0.365)
    cold = functools.partial(sample_decode, temperature=1e-6, top_p=0.9)
    drawn = functools.partial(sample_decode, temperature=1.0, top_p=0.9)
    greedy = translate_lines(our_model(), OUR_SENTENCES)
    assert translate_lines(our_model(), OUR_SENTENCES, cold) == greedy
    torch.manual_seed(0)
    print(*translate_lines(our_model(), [OUR_SENTENCES[1]] * 3, drawn), sep="\n")


# %% [markdown]
# ## From here to GPT
#
# > A decoder alone needs no source. Give it nothing but the start token (ours also gets an empty source, `</s>`), and
# > train it to predict the next token of ordinary text: the result is a *language model*, and GPT is one (Radford et
# > al., 2018). Ours learns from the English side of the captions alone, for two and a half minutes. Nothing here is
# > new: the class is the one above, now with four layers, and with a source that consists of `</s>` alone; the loss,
# > the trainer and the batches are those of Part 2.


# %%
# @title Two and a half minutes of training
@functools.cache
def train_writer() -> tuple[DecoderOnly, Tokenizer]:
    """A decoder of 4 layers, trained on captions for 2.5 minutes or $ANNOTATED_STEPS updates."""
    tokenizer = live_run().translator.tokenizer
    texts = (tokenizer.encode(english, "en") for _, english in load_split("train"))
    pairs = [Pair([EOS], [BOS, *ids, EOS]) for ids in texts]
    torch.manual_seed(0)
    model = make_decoder_only(len(tokenizer), LIVE, N=4).to(best_device())
    epochs = (token_batches(pairs, LIVE.tokens_per_batch, epoch) for epoch in itertools.count())
    batches = itertools.chain.from_iterable(epochs)
    steps = math.ceil(positive("ANNOTATED_STEPS", 1)) if os.environ.get("ANNOTATED_STEPS") else None
    fit(Trainer(model, LIVE), itertools.islice(batches, steps), minutes=2.5)
    return model.eval(), tokenizer


# %%
@torch.inference_mode()
def write_text(
    model: DecoderOnly, tokenizer: Tokenizer, begin: str,
    temperature: float = 1.0, top_p: float = 1.0, longest: int = 25,
) -> str:  # fmt: skip
    """Goes on with a text, each token drawn from the nucleus, until `</s>` or `longest` tokens.

    Raises ValueError for a beginning that is as long as that.
    """
    device = next(model.parameters()).device
    source = torch.tensor([[EOS]], device=device)
    ids = torch.tensor([[BOS, *tokenizer.encode(begin, "en")]], device=device)
    if ids.size(1) >= longest:
        raise ValueError(f"with `<s>`, the beginning has {ids.size(1)} of {longest} tokens already")
    while ids.size(1) < longest and ids[0, -1] != EOS:
        x = model.decode(source, source_mask(source), ids, None)  # (1, T, d_model)
        p = nucleus(model.generator.logits(x[:, -1]), temperature, top_p)
        ids = torch.cat([ids, torch.multinomial(p, 1)], dim=1)
    return tokenizer.decode(ids[0].tolist())


# %%
@example
def example_writer() -> Any:
    """Captions of photographs that nobody took:
    greedy, at a low temperature, from the nucleus, and from the whole distribution."""
    model, tokenizer = train_writer()
    ways = {"greedy": (1e-4, 1.0), "temperature 0.7": (0.7, 1.0)}
    ways |= {"top-p 0.9": (1.0, 0.9), "temperature 1": (1.0, 1.0)}
    torch.manual_seed(0)
    rows = []
    for name, (temperature, top_p) in ways.items():
        for begin in ("", "Two dogs"):
            caption = write_text(model, tokenizer, begin, temperature, top_p)
            rows.append({"way": name, "begins with": begin, "caption": caption})
    return table(rows)


# %% [markdown]
# > Greedy decoding always writes the same text, and from an empty beginning it may fall into the loop of [Part
# > 3](the_annotated_transformer.ipynb#Training). The more freely the tokens are drawn, the more surprising the scene,
# > and the more often the grammar breaks. None of these sentences is about anything: this model has never seen a
# > photograph.
# >
# > What separates this from the models in the news is mostly size and data. How much of each? With $N$ weights and
# > $D$ tokens, training takes about $6ND$ operations, and Hoffmann et al. (2022) found that for a given cost both
# > should grow together, at about 20 tokens for each weight. Here is what the builders of those models changed, and
# > what they kept.
# >
# > | model | what it changes | what it keeps |
# > |---|---|---|
# > | BERT (Devlin et al., 2019) | only the encoder: every position sees both sides, and the task is to fill in words that were masked out; it understands text, but can't write it; positions are learned | encoder layers, multi-head attention |
# > | GPT (Radford et al., 2018), GPT-2, GPT-3 (Brown et al., 2020) | only the decoder, without cross-attention, as above; pre-norm since GPT-2; trained to predict the next token of vast amounts of text | causal self-attention, feed-forward, residual stream, tied embeddings |
# > | T5 (Raffel et al., 2020) | every task becomes text in, text out; positions enter the scores, as a learned bias that depends on the distance; pre-norm, with norms that only scale | encoder, decoder and cross-attention |
# > | vision Transformers (Dosovitskiy et al., 2021) | the tokens are squares of 16 × 16 pixels, embedded by one matrix; positions are learned; pre-norm | the encoder |
# > | Llama (Touvron et al., 2023) and most open models since | rotary positions, RMSNorm, gated feed-forward and, later, grouped queries: the sections above | a decoder alone, layer by layer |
# > | mixture of experts (Shazeer et al., 2017; Fedus et al., 2022) | many feed-forward networks to a layer, and a small learned matrix that picks a few of them for each token: more weights, hardly more work | attention, and the rest of the layer |
# > | chat models (Ouyang et al., 2022) | the training: after language modelling come conversations written by people, then rewards based on people's judgements | the architecture |
# >
# > The last row is worth a second look. Between a model that continues text and one that answers questions, not a
# > single box in the figure of the architecture changes. A question followed by its answer is a text like any
# > other, and the model learns to continue it as a helpful person would.

# %% [markdown]
# ## Summary
#
# > Positions moved from the embeddings into attention. Norms became a little simpler, and feed-forward networks a
# > little richer. Keys and values are shared, so that caches stay small. Kernels are written with memory in mind,
# > numbers have become shorter, and optimisers look at whole matrices. Much of the speed comes from leaving things
# > out: padding, the memory for all logits at once, and needless random numbers. One stack does the work of two. The
# > idea of 2017, that attention alone relates the positions, hasn't changed.
#
# ## Questions, and where they are answered
#
# > | question | answer |
# > |---|---|
# > | What do rotary positions turn, and why not the values? | [Rotary positions](#Rotary-positions) |
# > | Why do many models have fewer keys and values than queries? | [Grouped-query attention](#Grouped-query-attention) |
# > | How do I put a part of my own into the model? | [All of them in one model](#All-of-them-in-one-model), [Changing it](the_annotated_transformer.ipynb#Changing-it) |
# > | How do I open a model from the Hugging Face hub? | [A model trained by others](#A-model-trained-by-others) |
# > | Why is fused attention fast, although it saves no multiplications? | [Fused attention](#Fused-attention,-tile-by-tile) |
# > | When does bfloat16 do harm, and why not float16? | [16-bit numbers](#16-bit-numbers) |
# > | What do decoder-only models do differently? | [A decoder alone](#A-decoder-alone) |
# > | What do temperature and top-p do? | [Sampling](#Sampling) |
# > | What separates this model from BERT, GPT, T5 and Llama? | [From here to GPT](#From-here-to-GPT) |
#
# ## References
#
# > - Joshua Ainslie and others (2023). [GQA: training generalized multi-query Transformer models from multi-head
# >   checkpoints](https://arxiv.org/abs/2305.13245).
# > - Tom Brown and others (2020). [Language models are few-shot learners](https://arxiv.org/abs/2005.14165) (GPT-3).
# > - DeepSeek-AI (2024). [DeepSeek-V2: a strong, economical, and efficient mixture-of-experts language
# >   model](https://arxiv.org/abs/2405.04434).
# > - Tri Dao and others (2022). [FlashAttention: fast and memory-efficient exact attention with
# >   IO-awareness](https://arxiv.org/abs/2205.14135).
# > - Jacob Devlin and others (2019). [BERT: pre-training of deep bidirectional transformers for language
# >   understanding](https://arxiv.org/abs/1810.04805).
# > - Alexey Dosovitskiy and others (2021). [An image is worth 16x16 words](https://arxiv.org/abs/2010.11929).
# > - William Fedus, Barret Zoph, Noam Shazeer (2022). [Switch Transformers: scaling to trillion parameter models with
# >   simple and efficient sparsity](https://arxiv.org/abs/2101.03961).
# > - Aaron Grattafiori and others (2024). [The Llama 3 herd of models](https://arxiv.org/abs/2407.21783).
# > - Jordan Hoffmann and others (2022). [Training compute-optimal large language
# >   models](https://arxiv.org/abs/2203.15556).
# > - Ari Holtzman and others (2020). [The curious case of neural text degeneration](https://arxiv.org/abs/1904.09751).
# > - Keller Jordan and others (2024). [Muon: an optimizer for hidden layers in neural
# >   networks](https://kellerjordan.github.io/posts/muon/).
# > - Marcin Junczys-Dowmunt and others (2018). [Marian: fast neural machine translation in
# >   C++](https://arxiv.org/abs/1804.00344).
# > - Taku Kudo, John Richardson (2018). [SentencePiece: a simple and language independent subword tokenizer and
# >   detokenizer for neural text processing](https://arxiv.org/abs/1808.06226).
# > - Jingyuan Liu and others (2025). [Muon is scalable for LLM training](https://arxiv.org/abs/2502.16982).
# > - Peter Liu and others (2018). [Generating Wikipedia by summarizing long
# >   sequences](https://arxiv.org/abs/1801.10198).
# > - Ilya Loshchilov, Frank Hutter (2019). [Decoupled weight decay regularization](https://arxiv.org/abs/1711.05101)
# >   (AdamW).
# > - Maxim Milakov, Natalia Gimelshein (2018). [Online normalizer calculation for
# >   softmax](https://arxiv.org/abs/1805.02867).
# > - Long Ouyang and others (2022). [Training language models to follow instructions with human
# >   feedback](https://arxiv.org/abs/2203.02155).
# > - Alec Radford and others (2018). Improving language understanding by generative pre-training. OpenAI (GPT).
# > - Colin Raffel and others (2020). [Exploring the limits of transfer learning with a unified text-to-text
# >   transformer](https://arxiv.org/abs/1910.10683) (T5).
# > - Noam Shazeer and others (2017). [Outrageously large neural networks: the sparsely-gated mixture-of-experts
# >   layer](https://arxiv.org/abs/1701.06538).
# > - Noam Shazeer (2019). [Fast Transformer decoding: one write-head is all you
# >   need](https://arxiv.org/abs/1911.02150).
# > - Noam Shazeer (2020). [GLU variants improve Transformer](https://arxiv.org/abs/2002.05202).
# > - Jianlin Su and others (2021). [RoFormer: enhanced Transformer with rotary position
# >   embedding](https://arxiv.org/abs/2104.09864).
# > - Jörg Tiedemann, Santhosh Thottingal (2020). OPUS-MT: building open translation services for the world. EAMT.
# > - Hugo Touvron and others (2023). [LLaMA: open and efficient foundation language
# >   models](https://arxiv.org/abs/2302.13971).
# > - Biao Zhang, Rico Sennrich (2019). [Root mean square layer normalization](https://arxiv.org/abs/1910.07467).
#
# ## Glossary
#
# > The words of the paper are in the [first document's glossary](the_annotated_transformer.ipynb#Glossary).
# >
# > | word | meaning |
# > |---|---|
# > | bfloat16, float16 | numbers of 16 bits: with the range of 32 bits and fewer digits; with more digits and a smaller range |
# > | fused kernel | one routine that does the work of several operations |
# > | gated | of a feed-forward network: one projection decides how much of another comes through |
# > | grouped-query attention, multi-query attention | several heads of queries, or all of them, share a head of keys and values |
# > | language model | a model that predicts the next token of ordinary text |
# > | Muon | an optimiser that moves a matrix equally far in all its directions |
# > | RMSNorm | a norm that divides by the root mean square and leaves the mean alone |
# > | rotary positions | queries and keys are turned by an angle that's proportional to their position |
# > | sigmoid | $\sigma(x) = 1 / (1 + e^{-x})$, between 0 and 1 |
# > | temperature | a number by which the logits are divided before the softmax |
# > | top-p | drawing only from the most probable tokens that together have the probability $p$ |
