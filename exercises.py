# %% [markdown]
# # Exercises that check your answers
#
# > These exercises belong to [The Annotated Transformer](the_annotated_transformer.ipynb). Each one has step-by-step
# > hints, a place for your attempt, a check that tries it out and says what's wrong, and a folded answer. In the
# > notebook, run the cells from the top, fill in a place, and run its cell again. On the web page, some have a field,
# > buttons or an editor for the answer; the others say that they need the notebook. The stars say how hard an exercise
# > is, and the minutes how long it may take someone who has read that Part.

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
#         found = {"application/vnd.vegalite.v5+json": chart, "text/plain": "chart"}
#         with contextlib.suppress(Exception):  # without the package there is no picture
#             import vl_convert
#
#             picture = vl_convert.vegalite_to_png(chart, scale=1.5)
#             found["image/png"] = base64.b64encode(picture).decode()
#         return found
#
#     alt.renderers.register("data", forms)
#     alt.renderers.enable("data")

# %%
# @title Imports
import functools
import itertools
import math
import numbers
import operator
import random
import reprlib
import textwrap
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_args, get_origin

import torch
from torch import Tensor, nn

from since_2017 import GroupedQueryAttention, NoPositions, modern, rotated, sample_decode
from the_annotated_transformer import (
    ALPHA,
    BEAM,
    BOS,
    EOS,
    LIVE,
    OUR_SENTENCES,
    PAD,
    SPECIALS,
    UNK,
    CachedDecoder,
    Chart,
    Config,
    Embeddings,
    EncoderLayer,
    MultiHeadedAttention,
    Pair,
    PositionwiseFeedForward,
    Trainer,
    Transformer,
    attention,
    attention_maps,
    average_weights,
    beam_search,
    best_device,
    bleu,
    copy_pairs,
    curves,
    evaluating,
    example,
    fit,
    greedy_decode,
    heatmap,
    in_notebook,
    initialise,
    learn_words,
    live_run,
    load_split,
    make_batch,
    make_model,
    our_model,
    positional_encoding,
    rate,
    recording,
    saved_rows,
    smoothed_loss,
    smoothed_targets,
    source_mask,
    table,
    target_mask,
    to_pairs,
    token_batches,
    translate_lines,
    validation_loss,
    words_of,
)

if __name__ == "__main__" and not in_notebook(__name__):
    print(
        "The exercises: write where it says `your attempt`, and run this file again; or open "
        "exercises.ipynb."
    )


# %%
# @title What an attempt has to be
class NotYet(Exception):
    """What an attempt lacks, in a sentence."""


def expect(condition: bool, sentence: str) -> None:
    """NotYet, unless the condition holds. (`python -O` leaves an `assert` out.)"""
    if not condition:
        raise NotYet(sentence)


KINDS = {  # by type hint: the types that are accepted, and what they are called
    bool: (bool, "True or False"),
    int: (numbers.Real, "a number"),
    float: (numbers.Real, "a number"),
    str: (str, "a text in quotes"),
    set: ((set, frozenset, list, tuple), "a set"),
    dict: (dict, "a dict"),
    Counter: (dict, "a Counter"),
    list: ((list, tuple), "a list"),
    tuple: ((list, tuple), "a tuple"),
    Tensor: (Tensor, "a tensor"),
    nn.Module: (nn.Module, "a module"),
}


def of_kind(value: Any, hint: Any, what: str) -> Any:
    """The value as a check takes it, or NotYet if it isn't of the kind of this type hint.

    A tensor comes as float32 on the CPU; an array of one number is a number, too.
    """
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind is Callable:
        expect(callable(value), f"{what} should be a function, not {shown(value)}.")
        return guarded(value, inner[1])
    if kind not in KINDS:  # the check looks into it
        return value
    types, words = KINDS[kind]
    if kind in (bool, int, float) and math.prod(getattr(value, "shape", (0,))) == 1:
        value = value.item()
    number_for_bool = isinstance(value, bool) and kind in (int, float)
    expect(
        isinstance(value, types) and not number_for_bool,
        f"{what} should be {words}, not {shown(value)}.",
    )
    part = functools.partial(of_kind, what=f"Each part of {what.lower()}")
    if kind is tuple:
        expect(len(value) == len(inner), f"{what} should have {len(inner)} parts.")
        return tuple(map(part, value, inner))
    if kind is set:
        return {part(element, inner[0]) for element in value}
    if kind is dict:
        return {part(key, inner[0]): part(entry, inner[1]) for key, entry in value.items()}
    if kind is Tensor:
        expect(not value.is_complex(), f"{what} should hold real numbers.")
        return value.detach().float().cpu()
    return value


def shown(value: Any) -> str:
    """A short answer as it is written, or the type of a long one."""
    short = value is None or isinstance(value, (str, numbers.Number))
    return reprlib.repr(value) if short else f"a value of the type {type(value).__name__}"


# %%
# @title What an attempt that is a function raises or gives back
def guarded(function: Callable, hint: Any) -> Callable:
    """A reader's function: an error in it becomes a sentence, and so does a wrong result."""

    def call(*arguments: Any) -> Any:
        try:
            result = function(*arguments)
        except (NotImplementedError, NotYet):
            raise
        except (Exception, SystemExit) as error:
            raise NotYet(complaint(error)) from None
        expect(result is not None, "The function gives nothing back. Is a `return` missing?")
        return of_kind(result, hint, "What the function gives back")

    return call


def complaint(error: BaseException) -> str:
    """What a reader's code raised, and in which of its lines."""
    frames = traceback.extract_tb(error.__traceback__)[1:]  # behind the check's own
    library = str(Path(torch.__file__).parent)
    frames = [frame for frame in frames if not frame.filename.startswith(library)]
    frames = [frame for frame in frames if frame.filename == frames[0].filename]
    where = f", in line {frames[-1].lineno}: {frames[-1].line}" if frames else ""
    message = textwrap.shorten(str(error), 200)
    return f"Your code raises {type(error).__name__}: {message}{where}"


# %%
# @title What a check does
LONGEST_SENTENCE_LETTERS = 800  # one line, whatever an attempt has in it


def checks(function: Callable[[Any], None]) -> Callable[[Any], bool]:
    """Make `function` print that an attempt is right, or what's wrong with it, and return which.

    The type hint of its parameter says which kind of attempt it takes.
    """
    number = function.__name__.removeprefix("check_").replace("_", ".")
    hint = function.__annotations__["attempt"]

    @functools.wraps(function)
    def check(attempt: Any) -> bool:
        try:
            if attempt is ...:
                raise NotImplementedError
            function(of_kind(attempt, hint, "The answer"))
        except NotImplementedError:
            if in_notebook(__name__):
                print(f"{number}: nothing is there yet.")
            return False
        except NotYet as lack:
            sentence = str(lack)
        except Exception as error:  # of the check, which can't do with the attempt what it has to
            sentence = f"The check can't use this: {error}"
        else:
            print(f"{number}: right.")
            return True
        print(f"{number}: not yet. {textwrap.shorten(sentence, LONGEST_SENTENCE_LETTERS)}")
        return False

    return check


def same(tensor: Tensor, expected: Tensor, what: str) -> None:
    """NotYet that names `what`, unless a tensor has the expected shape and numbers."""
    shapes = tuple(expected.shape), tuple(tensor.shape)
    expect(shapes[0] == shapes[1], f"{what} should have the shape {shapes[0]}, not {shapes[1]}.")
    gap = (tensor - expected).abs().max().item()
    expect(gap < 1e-4, f"{what} is off by up to {gap:.2g}.")


# %% [markdown]
# # Exercises for Part 1: A sentence through the model
#
# ## 1.1 The encoder without its positions
#
# > ★, 10 minutes, after [Positions](the_annotated_transformer.ipynb#Positions-(Section-3.5)). Leave the positional
# > encoding out. Is it then true that shuffling the source only shuffles the encoder's output? Write a function that
# > computes the memory without positions. The check does the shuffling.
# >
# > <details><summary>Hint 1</summary>
# >
# > `model.encode(src, src_mask)` is `model.encoder(model.src_embed(src), src_mask)`. What does `src_embed` consist
# > of?
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > `model.src_embed.embeddings` looks up the scaled vectors and adds nothing. A source without padding needs no mask.
# >
# > </details>


# %%
# @title The check of 1.1
@checks
def check_1_1(attempt: Callable[[Transformer, Tensor], Tensor]) -> None:
    """The memory (1, S, d_model) is that of a model without positions, shuffled if the ids are."""
    model = make_model(50, 50, N=2, d_model=32, d_ff=64, h=4).eval()
    src, order = torch.randperm(46)[:6].unsqueeze(0) + 4, torch.tensor([3, 1, 4, 0, 5, 2])
    memory, shuffled = attempt(model, src), attempt(model, src[:, order])
    shape = tuple(memory.shape)
    expect(shape == (1, 6, 32), f"The memory should have the shape (1, 6, 32), not {shape}.")
    gap = (shuffled - memory[:, order]).abs().max().item()
    expect(
        gap < 1e-4,
        f"The shuffled source changes the vectors by up to {gap:.2g}: positions are still in.",
    )
    same(memory, model.encoder(model.src_embed.embeddings(src), None), "The memory")


# %%
def encode_without_positions(model: Transformer, src: Tensor) -> Tensor:
    """The memory (B, S, d_model) of ids (B, S) without padding, with no positional encoding."""
    raise NotImplementedError  # your attempt


check_1_1(encode_without_positions)

# %% [markdown]
# > <details><summary>Answer 1.1</summary>
# >
# > Yes. Self-attention adds up values, and a sum doesn't depend on the order of what is added. The feed-forward
# > network, the residual connections and LayerNorm treat each position on its own. So without the positional encoding
# > a token gets the same vector wherever it is, and a shuffled source gives the same vectors in the shuffled order.
# > With the positional encoding, the vectors change.
# >
# > </details>


# %%
# @title Answer 1.1: the code
def answer_1_1(model: Transformer, src: Tensor) -> Tensor:
    """The memory (B, S, d_model) of ids (B, S) without padding, with no positional encoding."""
    return model.encoder(model.src_embed.embeddings(src), None)


@example
def example_answer_1_1() -> None:
    """Shuffling the source shuffles the encoder's output and does nothing else,
    but only without positions."""
    torch.manual_seed(0)
    model = make_model(50, 50, N=2, d_model=32, d_ff=64, h=4).eval()
    src, order, changes = torch.arange(4, 10).unsqueeze(0), torch.tensor([3, 1, 4, 0, 5, 2]), []
    kinds = {"without": answer_1_1, "with": lambda model, src: model.encode(src, None)}
    for name, encode in kinds.items():
        plain, shuffled = (encode(model, ids) for ids in (src, src[:, order]))  # (1, S, d_model)
        changes.append((shuffled - plain[:, order]).abs().max().item())
        print(f"{name} positions: the shuffled output differs by up to {changes[-1]:.1e}")
    assert changes[0] < 1e-5 < 0.1 < changes[1]


# %% [markdown]
# ## 1.2 Counting an encoder layer's multiplications
#
# > ★★, 15 minutes, after [the encoder](the_annotated_transformer.ipynb#The-encoder-(Section-3.1)). How many
# > multiplications does one encoder layer need for $n$ tokens? Count only those in matrix products. And at what $n$
# > does the part with $n^2$ reach half of them in the base model?
# >
# > <details><summary>Hint 1</summary>
# >
# > A product of an $(a, b)$ matrix with a $(b, c)$ matrix takes $abc$ multiplications. Which products are there in
# > attention, and which in the feed-forward network?
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > Four projections of width $d$; queries with keys; weights with values; two layers between $d$ and $d_{\text{ff}}$.
# > The heads change nothing: they share $d$ out among themselves.
# >
# > </details>


# %%
# @title The check of 1.2
@checks
def check_1_2(attempt: Callable[[int, int, int], int]) -> None:
    """The count for three random sizes, as PyTorch counts."""
    from torch.utils.flop_counter import FlopCounterMode

    for _ in range(3):
        # no two parts are equal
        n, h, d, d_ff = random.randrange(3, 90, 2), 4, 4 * random.randint(2, 20), 211
        with torch.device("meta"), FlopCounterMode(display=False) as counter:  # shapes alone
            layer = EncoderLayer(d, MultiHeadedAttention(h, d), PositionwiseFeedForward(d, d_ff))
            layer(torch.empty(1, n, d), None)
        found = attempt(n, d, d_ff)
        expected = counter.get_total_flops() // 2  # an addition for each multiplication
        missing = {
            "You counted additions as well.": -expected,
            "The two products of positions with positions are missing.": 2 * n * n * d,
            "One of the two products of positions with positions is missing.": n * n * d,
            "The feed-forward network is missing.": 2 * n * d * d_ff,
            "One layer of the feed-forward network is missing.": n * d * d_ff,
            "The projection of the output is missing.": n * d * d,
        }
        hint = next((text for text, part in missing.items() if found == expected - part), "")
        sizes = f"n = {n}, d = {d}, d_ff = {d_ff}"
        expect(found == expected, f"{sizes}: {expected:,}, not {found:,}. {hint}".strip())


# %%
def multiplications(n: int, d: int, d_ff: int) -> int:
    """The multiplications in an encoder layer's matrix products, for n tokens.

    The layer has the width d and the inner width d_ff.
    """
    raise NotImplementedError  # your attempt


check_1_2(multiplications)

# %% [markdown]
# > <details><summary>Answer 1.2</summary>
# >
# > The four projections of attention take $4nd^2$ multiplications, its two products of positions with positions
# > $2n^2d$, and the feed-forward network $2n\,d\,d_{\text{ff}}$. PyTorch counts the same. At sentence length, the
# > $n^2$ part is next to nothing. It reaches one half only where $n = 2d + d_{\text{ff}}$, which is 3,072 tokens for
# > the base model. That's why long documents need other forms of attention and sentences don't.
# >
# > </details>


# %%
# @title Answer 1.2: the code
def answer_1_2(n: int, d: int, d_ff: int) -> int:
    """The multiplications in an encoder layer's matrix products, for n tokens.

    The layer has the width d and the inner width d_ff.
    """
    return 4 * n * d**2 + 2 * n**2 * d + 2 * n * d * d_ff


@example
def example_answer_1_2() -> Any:
    """The multiplications of one encoder layer of the base model by three lengths,
    and the share of the n² part."""
    d, d_ff, rows = 512, 2048, []
    for n in (30, 300, 2 * d + d_ff):
        parts = {"projections": 4 * n * d**2, "n² part": 2 * n**2 * d}
        parts["feed-forward"] = 2 * n * d * d_ff
        total = sum(parts.values())
        assert total == answer_1_2(n, d, d_ff)
        numbers = parts | {"in all": total}
        millions = {name: f"{number / 1e6:,.1f} M" for name, number in numbers.items()}
        rows.append({"n": n} | millions | {"share of n²": f"{parts['n² part'] / total:.1%}"})
    assert rows[0]["share of n²"] == "1.0%" and rows[-1]["share of n²"] == "50.0%"
    return table(rows)


# %% [markdown]
# ## 1.3 Concatenating token and position
#
# > ★★, 20 minutes, after [Positions](the_annotated_transformer.ipynb#Positions-(Section-3.5)). Put token and position
# > side by side in one vector, 448 entries for the token and 64 for the position, instead of adding them. Write the
# > module that goes below a stack. What else in the model has to change?
# >
# > <details><summary>Hint 1</summary>
# >
# > All you need is `Embeddings(width, vocab)`, `positional_encoding(length, places)` and `torch.cat`.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > When decoding, the ids come one at a time, and `start` says where the first of them stands. So compute
# > `start + T` rows of the encoding, and keep the last T.
# >
# > </details>


# %%
# @title The check of 1.3
@checks
def check_1_3(attempt: Callable[[int, int, int], nn.Module]) -> None:
    """Token and position in their places, from any first position, for every row of the batch."""
    module, ids = attempt(12, 4, 50), torch.randint(4, 50, (2, 7))
    forward = guarded(module, Tensor)
    found, places = forward(ids), positional_encoding(7, 4)
    shape = tuple(found.shape)
    expect(shape == (2, 7, 16), f"The result should have the shape (2, 7, 16), not {shape}.")
    same(found[..., 12:], places.expand(2, 7, 4), "The position, in the last 4 entries of 16,")
    tables = [part for part in module.modules() if isinstance(part, Embeddings)]
    expect(len(tables) == 1, f"There should be one Embeddings in the module, not {len(tables)}.")
    same(found[..., :12], tables[0](ids), "The token, in the first 12 entries of 16,")
    rest = forward(ids[:, 3:], 3)
    same(rest, found[:, 3:], "The same ids, cut off before position 3 and with start = 3,")


# %%
class BesidePosition(nn.Module):
    """What is below a stack, with embedding and position side by side in one vector."""

    def __init__(self, width: int, places: int, vocab: int):
        super().__init__()
        # your attempt, part one

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids (B, T) to vectors (B, T, width + places); `start` is the position of the first."""
        raise NotImplementedError  # your attempt, part two


check_1_3(BesidePosition)

# %% [markdown]
# > <details><summary>Answer 1.3</summary>
# >
# > The layers needn't change, because the two together are still 512 wide. The embedding does change: its matrix has
# > 448 columns, and the factor in front of it becomes $\sqrt{448}$. The output matrix has 512 columns, so the two can
# > no longer be one parameter, unless there's a linear map from 512 to 448 between the decoder and the output. And
# > the encoding needs an even width, which 64 is. The residual connections still let every layer write over the 64
# > entries.
# >
# > </details>


# %%
# @title Answer 1.3: the code
class TokenBesidePosition(nn.Module):
    """What is below a stack, with embedding and position side by side in one vector."""

    def __init__(self, width: int, places: int, vocab: int):
        super().__init__()
        self.embeddings, self.places = Embeddings(width, vocab), places

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids (B, T) to vectors (B, T, width + places); `start` is the position of the first."""
        end = start + ids.size(1)
        PE = positional_encoding(end, self.places)[start:].to(ids.device)  # (T, places)
        return torch.cat((self.embeddings(ids), PE.expand(len(ids), -1, -1)), dim=-1)


@example
def example_answer_1_3() -> None:
    """The layers and the cached decoder take such vectors as they are,
    but no matrix can be shared any more."""
    model, (src, tgt) = make_model(50, 50, N=1, dropout=0.0), torch.randint(4, 50, (2, 3, 7))
    model.src_embed, model.tgt_embed = (TokenBesidePosition(448, 64, 50) for _ in range(2))
    initialise(model, "none")
    decoder = CachedDecoder(model, src, source_mask(src))
    steps = torch.stack([decoder.step(tokens) for tokens in tgt.T], dim=1)
    at_once = model(src, tgt, source_mask(src), target_mask(tgt))
    torch.testing.assert_close(steps, at_once, atol=1e-4, rtol=1e-4)
    embedding, output = model.tgt_embed.embeddings.table.weight, model.generator.proj.weight
    print("embedding", tuple(embedding.shape), "output", tuple(output.shape))
    assert embedding.shape != output.shape


# %% [markdown]
# ## 1.4 Attention from memory
#
# > ★★, 15 minutes, after [Attention](the_annotated_transformer.ipynb#Attention-(Section-3.2)). Close the document and
# > write Equation (1) with a mask: output and weights. The check knows the usual mistakes.
# >
# > <details><summary>Hint 1</summary>
# >
# > Score each query against each key, and divide; hide some scores; take a softmax over the keys; take the weighted
# > sum of the values.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > `key.mT` transposes the last two axes and leaves batch and heads alone. `masked_fill(mask == 0, -math.inf)` does
# > the hiding.
# >
# > </details>


# %%
# @title Mistakes that the check of 1.4 knows
def wrong_weights(products: Tensor, mask: Tensor) -> Iterable[tuple[str, Tensor]]:
    """What goes wrong, in a sentence, and the weights of who does it; queries have the width 8."""
    root = 8**0.5
    scores = products / root
    scales = {
        "The scores are not divided by the root of the width.": 1,
        "The scores are divided by the width, not by its root.": 1 / 8,
        "The scores are multiplied by the root of the width, not divided by it.": root,
        "The scores are divided by the root of the number of keys.": products.size(-1) ** -0.5,
    }
    for fill in (-math.inf, -1e9):
        for sentence, scale in scales.items():
            yield sentence, (products * scale).masked_fill(~mask, fill).softmax(-1)
        flipped = scores.masked_fill(mask, fill).softmax(-1)
        yield "The mask hides what it should show: 1 means may attend.", flipped
        heads = scores.masked_fill(~mask, fill).softmax(-3)
        yield "The softmax runs over the batch or the heads, not over the keys.", heads
    yield "The mask is not used.", scores.softmax(-1)
    after = scores.softmax(-1) * mask
    yield "The mask comes after the softmax, when hidden keys have taken their share.", after
    added = (scores + mask).softmax(-1)
    yield "The mask is added to the scores: that moves them by 1 and hides nothing.", added
    times = (scores * mask).softmax(-1)
    yield "The mask is multiplied with the scores: a score of 0 hides nothing.", times
    for raw in (scores, scores * mask, scores.masked_fill(~mask, -math.inf)):
        yield "There is no softmax: the weights are scores.", raw


# %%
# @title The check of 1.4
@checks
def check_1_4(attempt: Callable[[Tensor, Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]) -> None:
    """Output and weights of `attention` for random inputs and masks, with and without heads."""
    for shape in ((2,), (2, 3)):
        q, k, v = torch.randn(*shape, 5, 8), torch.randn(*shape, 6, 8), torch.randn(*shape, 6, 7)
        mask = torch.rand(5, 6) < 0.7
        mask[:, 0], mask[0, 1] = True, False  # something to see for each, and something hidden
        # copies: what works in place is right as well
        output, weights = attempt(q.clone(), k.clone(), v.clone(), mask.clone())
        expected, right = attention(q, k, v, mask)
        shapes = tuple(right.shape), tuple(weights.shape)
        expect(
            shapes[0] == shapes[1],
            f"The weights should have the shape {shapes[0]}, not {shapes[1]}.",
        )
        expect(
            not torch.allclose(weights.sum(-2), torch.ones(6)),
            "The softmax runs over the queries, not over the keys.",
        )
        for sentence, wrong in wrong_weights(q @ k.mT, mask):
            expect(not torch.allclose(weights, wrong, equal_nan=True), sentence)
        same(weights.sum(-1), torch.ones(*shape, 5), "The sum of each query's weights")
        same(weights, right, "The weights")
        same(output, expected, "The output")


# %%
def my_attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Queries (..., T, d_k), keys (..., S, d_k) and values (..., S, d_v) to two tensors.

    They are the output (..., T, d_v) and the weights (..., T, S).
    """
    raise NotImplementedError  # your attempt


check_1_4(my_attention)

# %% [markdown]
# > <details><summary>Answer 1.4</summary>
# >
# > It's the function [`attention`](the_annotated_transformer.ipynb#Scaled-dot-product-attention-(Section-3.2.1)) of
# > the document. Without its dropout it's three lines long.
# >
# > </details>


# %%
# @title Answer 1.4: the code
def answer_1_4(query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Equation (1): output (..., T, d_v) and weights (..., T, S)."""
    scores = query @ key.mT / math.sqrt(query.size(-1))
    weights = scores.masked_fill(mask == 0, -math.inf).softmax(dim=-1)
    return weights @ value, weights


@example
def example_answer_1_4() -> None:
    """The answer passes the check."""
    assert check_1_4(answer_1_4)


# %% [markdown]
# # Exercises for Part 2: How it learns
#
# ## 2.1 A model that reverses
#
# > ★, 15 minutes, after [A first task: copying](the_annotated_transformer.ipynb#A-first-task:-copying). Get the model
# > to reverse its input instead of copying it: write the pairs. What pattern do you expect in the cross-attention?
# >
# > <details><summary>Hint 1</summary>
# >
# > `copy_pairs(n, 14, seed, shortest, longest)` makes pairs to copy. A `Pair` is a source, which ends with `EOS`, and
# > a target, which begins with `BOS` and ends with `EOS`.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > Only what is between `BOS` and `EOS` is reversed. A slice with a step of −1 from the last but one does it.
# >
# > </details>


# %%
# @title The check of 2.1
@checks
def check_2_1(attempt: Callable[[int, int, int, int], list[Pair]]) -> None:
    """Each target is its source backwards between BOS and EOS; all lengths; the seed decides."""
    seed = random.randrange(10**6)

    def pairs_of(seed: int) -> list[Pair]:
        try:
            rows = [
                [[operator.index(i) for i in ids] for ids in pair]
                for pair in attempt(200, seed, 3, 8)
            ]
            return [Pair(*row) for row in rows]
        except TypeError:
            raise NotYet("Each pair should be two lists of ids, source and target.") from None

    pairs = pairs_of(seed)
    expect(len(pairs) == 200, f"You were asked for 200 pairs and made {len(pairs)}.")
    for src, tgt in pairs:
        expect(src[-1:] == [EOS], f"A source should end with EOS = {EOS}: {src}.")
        expect(
            tgt[:1] == [BOS] and tgt[-1:] == [EOS],
            f"A target should begin with BOS = {BOS} and end with EOS = {EOS}: {tgt}.",
        )
        backwards = [BOS, *src[-2::-1], EOS]
        expect(tgt == backwards or tgt != [BOS, *src], f"{src} is copied, not reversed: {tgt}.")
        expect(tgt == backwards, f"The target of {src} should be {backwards}, not {tgt}.")
    lengths = {len(src) - 1 for src, _ in pairs}
    expect(
        lengths == set(range(3, 9)),
        f"The lengths should go from 3 to 8; yours are {sorted(lengths)}.",
    )
    tokens = {i for src, _ in pairs for i in src[:-1]}
    first = len(SPECIALS)  # PAD, BOS, EOS and UNK are below it
    expect(
        tokens == set(range(first, 14)),
        f"What is reversed should be the ids from {first} to 13, all of them and no others; "
        f"yours are {sorted(tokens)}.",
    )
    expect(pairs_of(seed) == pairs != pairs_of(seed + 1), "The seed should decide about the pairs.")


# %%
def my_reverse_pairs(n: int, seed: int, shortest: int = 3, longest: int = 8) -> list[Pair]:
    """Random sequences of `shortest` to `longest` tokens of 14, to be written backwards."""
    raise NotImplementedError  # your attempt


check_2_1(my_reverse_pairs)

# %% [markdown]
# > <details><summary>Answer 2.1</summary>
# >
# > The first token to be written is the last one of the source, so you might expect a diagonal that runs the other
# > way, from the top right to the bottom left. The chart shows it: the row that predicts the first token looks at the
# > last one, and so on, until the row that predicts `</s>`, which has nothing to look for. The task is learned just
# > as copying is. For attention, the last position is no farther away than the first.
# >
# > </details>


# %%
# @title Answer 2.1: the code
def reverse_pairs(n: int, seed: int, shortest: int = 3, longest: int = 8) -> list[Pair]:
    """Random sequences of `shortest` to `longest` tokens, to be written backwards."""
    pairs = copy_pairs(n, 14, seed, shortest, longest)
    return [Pair(src, [BOS, *tgt[-2:0:-1], EOS]) for src, tgt in pairs]


@example
def example_answer_2_1() -> Chart:
    """Train a small model to reverse;
    its cross-attention in the last layer, mean over heads, of one sequence."""
    torch.manual_seed(0)
    config = Config(N=2, d_model=64, d_ff=128, h=4, dropout=0.0, norm="pre", factor=0.5, warmup=100)
    trainer = Trainer(config.make_model(14), config)
    fit(trainer, [reverse_pairs(32, seed=step) for step in range(400)])
    batch = make_batch(reverse_pairs(100, seed=10**6, shortest=8))  # eight tokens each
    with evaluating(trainer.model), recording(trainer.model) as kept, torch.inference_mode():
        trainer.model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    weights = kept[trainer.model.decoder.layers[-1].src_attn].mean(1)  # (B, T, S)
    assert weights.mean(0)[:8].argmax(-1).tolist() == [7, 6, 5, 4, 3, 2, 1, 0]
    tokens = zip(batch.tgt[0].tolist(), batch.tgt_y[0].tolist(), strict=True)
    steps = [f"{read} → {predicts}" for read, predicts in tokens]
    source = [str(i) for i in batch.src[0].tolist()]
    return heatmap(weights[0], steps, source, axes=("reads → predicts", "source"))


# %% [markdown]
# ## 2.2 Training without a warmup
#
# > ★★, 20 minutes, after [Optimiser](the_annotated_transformer.ipynb#Optimiser-(Section-5.3)). Train the copy task
# > with `warmup=1`, once with post-norm and once with pre-norm. Before you conclude anything: by what factor is the
# > highest rate of Equation (3) higher with `warmup=1` than with `warmup=150`?
# >
# > <details><summary>Hint 1</summary>
# >
# > The rate is highest at the step where the two branches of the minimum meet.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > That's the step `warmup`, and the rate there is proportional to $\mathit{warmup}^{-0.5}$.
# >
# > </details>


# %%
# @title The check of 2.2
@checks
def check_2_2(attempt: float) -> None:
    """The quotient of the highest rates, from the document's own schedule."""
    highest = [max(rate(step, 64, 1.0, warmup) for step in range(1, 500)) for warmup in (1, 150)]
    close = functools.partial(math.isclose, attempt, rel_tol=0.02)
    expect(not close(highest[1] / highest[0]), "The other way round.")
    expect(not close(150), "The rate falls with the root of the step.")
    expect(close(highest[0] / highest[1]), f"{attempt} is not it (2% either way are allowed).")


# %%
how_many_times = ...  # your attempt

check_2_2(how_many_times)

# %% [markdown]
# > <details><summary>Answer 2.2</summary>
# >
# > $\sqrt{150}$, about 12.2 times. Without a warmup the very first update has the highest rate. Post-norm doesn't
# > recover from it: its loss falls to that of a model which only knows how often each token occurs, and stays there.
# > It no longer reads the source. Pre-norm first falls to that level as well, but slowly improves on it. So the cell
# > trains once more, with a `factor` that makes the highest rate the same as with a warmup. Then both learn the task,
# > pre-norm a little faster. So on this small task, and with one seed, training without a warmup probably fails
# > because of how high the rate is, rather than how early that comes. (The lower `factor` lowers the whole curve, not
# > just the peak.)
# >
# > </details>


# %%
# @title Answer 2.2: the code
@example
def example_answer_2_2() -> Chart:
    """The copy task without warmup, with both norms and two highest rates,
    beside the loss of knowing only frequencies."""
    batches, rows, ends = [copy_pairs(32, 14, seed=step, longest=8) for step in range(300)], [], {}
    for norm, factor in itertools.product(("post", "pre"), (0.5, 0.5 * 150**-0.5)):
        torch.manual_seed(0)
        config = Config(
            N=2, d_model=64, d_ff=128, h=4, dropout=0.0, norm=norm, factor=factor, warmup=1
        )
        kind = f"{norm}, {rate(1, 64, factor, config.warmup):.4f}"
        found = fit(Trainer(config.make_model(14), config), batches)
        ends[kind] = sum(row["loss"] for row in found[-50:]) / 50
        for row in found:
            point = {"update": row["update"], "nats per token": row["loss"]}
            rows.append(point | {"norm, highest rate": kind})
    tokens = torch.cat([make_batch(pairs).tgt_y.flatten() for pairs in batches])
    q = smoothed_targets(tokens[tokens != PAD], 14).mean(0)[1:]  # how often each token is asked for
    known = ends["frequencies alone"] = -(q * q.log()).sum().item()
    for kind, loss in ends.items():
        print(f"{kind}: {loss:.2f} nats per token at the end")
    post, post_low, pre, pre_low, _ = ends.values()
    assert abs(post - known) < 0.05 < known - pre and max(post_low, pre_low) < known / 2
    line = {"nats per token": known, "norm, highest rate": "frequencies alone"}
    rows += [{"update": 1, **line}, {"update": len(batches), **line}]
    return curves(rows, "update", "nats per token", "norm, highest rate", log_y=True)


# %% [markdown]
# ## 2.3 The gradient of the smoothed loss
#
# > ★★, 15 minutes, after [Regularisation](the_annotated_transformer.ipynb#Regularisation-(Section-5.4)). Write the
# > gradient of the smoothed loss, summed over the targets, with respect to the logits. Don't call `backward`. Rows of
# > padding have no loss.
# >
# > <details><summary>Hint 1</summary>
# >
# > For one target it is $p - q$: what the model says minus what it should say.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > `smoothed_targets(target, vocab, eps)` is $q$, and zero for a target that's padding. $p$ isn't zero there.
# >
# > </details>


# %%
# @title The check of 2.3
@checks
def check_2_3(attempt: Callable[[Tensor, Tensor, float], Tensor]) -> None:
    """The gradient that autograd finds, for random logits and eps, and targets with padding."""
    logits, eps = torch.randn(9, 13, requires_grad=True), random.uniform(0.05, 0.3)
    target = torch.tensor([4, 12, PAD, 5, 6, 7, PAD, 1, 2])
    expected = torch.autograd.grad(smoothed_loss(logits, target, eps), logits)[0]
    found = attempt(logits.detach().clone(), target.clone(), eps)
    shape = tuple(found.shape)
    expect(shape == (9, 13), f"The gradient should have the shape (9, 13), not {shape}.")
    expect(
        not torch.allclose(found, -expected, atol=1e-5),
        "The sign is wrong: the loss falls if the right score rises.",
    )
    expect(
        found[target == PAD].abs().max() == 0,
        "A row whose target is padding should have no gradient.",
    )
    expect(
        not torch.allclose(found, expected / (target != PAD).sum(), atol=1e-5),
        "That is the gradient of the mean, not of the sum.",
    )
    same(found, expected, "The gradient")


# %%
def my_gradient(logits: Tensor, target: Tensor, eps: float) -> Tensor:
    """The gradient (n, vocab) of `smoothed_loss` for logits (n, vocab), targets (n) and eps."""
    raise NotImplementedError  # your attempt


check_2_3(my_gradient)

# %% [markdown]
# > <details><summary>Answer 2.3</summary>
# >
# > $p - q$ for each target that isn't padding, and zero for the others.
# >
# > </details>


# %%
# @title Answer 2.3: the code
def answer_2_3(logits: Tensor, target: Tensor, eps: float) -> Tensor:
    """The gradient (n, vocab) of `smoothed_loss(logits, target, eps)`."""
    difference = logits.softmax(-1) - smoothed_targets(target, logits.size(-1), eps)
    return difference * (target != PAD).unsqueeze(-1)


@example
def example_answer_2_3() -> None:
    """The answer passes the check."""
    assert check_2_3(answer_2_3)


# %% [markdown]
# # Exercises for Part 3: A real translation system
#
# ## 3.1 What is unknown, and where
#
# > ★, 15 minutes, after [Words and word pieces](the_annotated_transformer.ipynb#Words-and-word-pieces-(Section-5.1)).
# > How many words in the validation set are unknown to a vocabulary of whole words, and how many tokens are unknown
# > to BPE? Which words are they? Start with a function that counts them.
# >
# > <details><summary>Hint 1</summary>
# >
# > A `Counter` of the words that aren't in the set.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > `learn_words(load_split("train"), ("de", "en")).vocabulary.get_vocab()` has the known words, and `words_of(text,
# > language)` cuts a text into words.
# >
# > </details>


# %%
# @title The check of 3.1
@checks
def check_3_1(attempt: Callable[[set[str], list[str]], Counter]) -> None:
    """How often each unknown word occurs, in a random text."""
    words = random.choices("abcdefgh", k=40)
    found = dict(attempt({"a", "b", "c"}, [*words]))
    expected = Counter(word for word in words if word not in "abc")
    expect(not set(found) & {"a", "b", "c"}, "A known word is counted.")
    expect(
        found != dict.fromkeys(expected, 1),
        "Each unknown word is counted once, however often it occurs.",
    )
    expect(found == dict(expected), f"{words} has the unknown words {dict(expected)}, not {found}.")


# %%
def unknown_words(known: set[str], words: list[str]) -> Counter[str]:
    """How often each word that is not known occurs."""
    raise NotImplementedError  # your attempt


check_3_1(unknown_words)

# %% [markdown]
# > <details><summary>Answer 3.1</summary>
# >
# > The cell counts on each side. German has more unknown words than English, and the list shows why: German writes
# > compounds as one word and inflects more, so more of its words are rare. (A word that occurs only once in the
# > training split is unknown as well.) Words for rare things are unknown in both languages, and those are the words
# > that carry the meaning. Byte-pair encoding cuts each of them into pieces that it knows. Only a character that
# > never occurs in the training split can be unknown to it.
# >
# > </details>


# %%
# @title Answer 3.1: the code
def answer_3_1(known: set[str], words: list[str]) -> Counter[str]:
    """How often each word that is not known occurs."""
    return Counter(word for word in words if word not in known)


@example
def example_answer_3_1() -> Any:
    """Unknown words and unknown pieces of the validation set,
    and the first of these words as pieces."""
    words, rows = learn_words(load_split("train"), ("de", "en")), []
    known, pieces = words.vocabulary.get_vocab(), live_run().translator.tokenizer
    for side, language in enumerate(("de", "en")):
        texts = [pair[side] for pair in load_split("val")]
        found = [word for text in texts for word in words_of(text, language)]
        unknown = answer_3_1(known, found)
        ids = [i for text in texts for i in pieces.encode(text, language)]
        row = {"language": language, "words": len(found), "unknown words": unknown.total()}
        row |= {"share": f"{unknown.total() / len(found):.1%}"}
        rows.append(row | {"pieces": len(ids), "unknown pieces": ids.count(UNK)})
        print(language, *list(unknown)[:12])
        for word in list(unknown)[:1]:
            print("  as pieces:", *pieces.tokens(pieces.encode(word.strip("▁"), language)))
    assert all(row["unknown pieces"] * 10 <= row["unknown words"] for row in rows)
    return table(rows)


# %% [markdown]
# ## 3.2 Tokens per second and batch size
#
# > ★★, 20 minutes, after [Training](the_annotated_transformer.ipynb#Training). Measure the target tokens per second
# > of training for budgets from 100 to 3,200 tokens per batch, and give the check what you found. Why does the number
# > rise and then level off?
# >
# > <details><summary>Hint 1</summary>
# >
# > `token_batches(pairs, budget)` makes batches and `Trainer.update(batch)` learns from one. Time a few updates with
# > `time.perf_counter()`.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > The first update of a process is slow, so do one before you start the clock.
# >
# > </details>


# %%
# @title The check of 3.2
@checks
def check_3_2(attempt: dict[int, float]) -> None:
    """Tokens per second by budget: they rise at first, and not in proportion to the budget."""
    expect(len(attempt) >= 3, "Measure at three budgets at least.")
    positive = all(number > 0 for number in [*attempt, *attempt.values()])
    expect(positive, "A budget and a speed are more than 0.")
    small, *_, large = sorted(attempt)
    expect(
        large >= 8 * small,
        f"{large} is not eight times {small}: the difference would drown in noise.",
    )
    times = max(attempt.values()) / attempt[small]
    expect(
        times > 1,
        "The smallest batch is the fastest. Was the first, slow update in another one's time?",
    )
    expect(
        times < large / small,
        "The speed rises as fast as the budget. Did you count the tokens, or the batches?",
    )
    print(f"the best budget is {times:.1f} times as fast as {small}")


# %%
tokens_per_second = ...  # your attempt: {100: ..., 400: ..., 1600: ...}

check_3_2(tokens_per_second)

# %% [markdown]
# > <details><summary>Answer 3.2</summary>
# >
# > Each update has a cost that doesn't depend on how many tokens it has: Python starts several hundred operations,
# > and Adam touches every weight. A small batch pays that cost for few tokens, so it learns from few tokens per
# > second. In a large batch most of the work grows with the number of tokens, and from there on the speed stays about
# > the same. With even larger batches it can fall again; a single timing doesn't tell you why.
# >
# > </details>


# %%
# @title Answer 3.2: the code
@example
def example_answer_3_2() -> Chart:
    """Target tokens per second of a few updates, by the budget of a batch."""
    tokenizer, rows = live_run().translator.tokenizer, []
    pairs = to_pairs(tokenizer, load_split("train")[:3000])
    train = [pair for pair in pairs if max(map(len, pair)) <= 100]
    trainer = Trainer(LIVE.make_model(len(tokenizer)).to(best_device()), LIVE)
    trainer.update(train[:4])  # the first update prepares what the others find ready
    for budget in (100, 200, 400, 800, 1600, 3200):
        chosen = token_batches(train, budget)[: max(2, 2400 // budget)]
        start = time.perf_counter()
        for pairs in chosen:
            trainer.update(pairs)
        seconds = time.perf_counter() - start
        speed = sum(len(pair.tgt) - 1 for pairs in chosen for pair in pairs) / seconds
        rows.append({"tokens per batch": budget, "tokens per second": speed, "model": "LIVE"})
    print({row["tokens per batch"]: round(row["tokens per second"]) for row in rows})
    assert all(row["tokens per second"] > 0 for row in rows)
    return curves(rows, "tokens per batch", "tokens per second", "model")


# %% [markdown]
# ## 3.3 References without their last word
#
# > ★, 10 minutes, after [BLEU](the_annotated_transformer.ipynb#BLEU). Drop the last word of every reference, and
# > score the result against the references. What share of the points lost is due to the penalty for being short? (A
# > number from 0 to 1.) And what if the last word is replaced by a wrong one?
# >
# > <details><summary>Hint 1</summary>
# >
# > Which $n$-grams of a shortened sentence aren't in its reference?
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > None. So what are the four shares?
# >
# > </details>


# %%
# @title The check of 3.3
@checks
def check_3_3(attempt: float) -> None:
    """The share of the points lost that the brevity penalty takes, from sacreBLEU."""
    from sacrebleu.metrics import BLEU

    references = [english for _, english in load_split("val")[:50]]
    beginnings = [" ".join(english.split()[:-1]) for english in references]
    score = BLEU().corpus_score(beginnings, [references])
    share = (100 - 100 * score.bp) / (100 - score.score)
    expect(
        abs(attempt - share) < 0.02,
        f"Not {attempt}. How many n-grams of a shortened sentence are wrong?",
    )


# %%
share_of_the_penalty = ...  # your attempt

check_3_3(share_of_the_penalty)

# %% [markdown]
# > <details><summary>Answer 3.3</summary>
# >
# > All of it, 1. The shortened text is the beginning of the reference itself, so every $n$-gram in it is right and
# > the four shares are 100%. Only the length is penalised. (The last word takes the full stop with it, so most
# > sentences lose two.) If the last word is replaced by a wrong one, it's the other way round: the length is right,
# > and the shares fall.
# >
# > </details>


# %%
# @title Answer 3.3: the code
@example
def example_answer_3_3() -> Any:
    """BLEU, its four shares and its brevity penalty for references without their last word,
    and with a wrong one."""
    from sacrebleu.metrics import BLEU

    references, rows = [english for _, english in load_split("val")], []
    beginnings = [" ".join(english.split()[:-1]) for english in references]
    kinds = {"complete": references, "last word dropped": beginnings}
    kinds["last word wrong"] = [f"{beginning} wrong." for beginning in beginnings]
    for kind, texts in kinds.items():
        score = BLEU().corpus_score(texts, [references])
        shares = {f"share of {n}-grams": score.precisions[n - 1] for n in (1, 2, 3, 4)}
        row = {"references": kind, "BLEU": score.score}
        rows.append(row | shares | {"brevity penalty": score.bp})
    dropped, wrong = rows[1], rows[2]
    assert abs(dropped["BLEU"] - 100 * dropped["brevity penalty"]) < 0.5
    assert dropped["brevity penalty"] < 0.95
    assert wrong["brevity penalty"] > 0.99 and wrong["BLEU"] < 95
    return table(rows).round(2)


# %% [markdown]
# # Exercises for Part 4: What else the paper used
#
# ## 4.1 Keys and values that stay behind
#
# > ★★, 15 minutes, after [Beam search](the_annotated_transformer.ipynb#Beam-search-(Section-6.1)). When the beams
# > change places, the rows of the cache must follow them. Which keys and values must: those of the `"source"`, those
# > of the `"target"`, or both? (In the notebook, give a set.)
# >
# > <details><summary>Hint 1</summary>
# >
# > A row of the cache belongs to one hypothesis. Which of its keys and values come from the hypothesis?
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > All hypotheses of one sentence have the same source.
# >
# > </details>


# %%
# @title The check of 4.1
@checks
def check_4_1(attempt: set[str]) -> None:
    """The part of the cache that differs from hypothesis to hypothesis."""
    unknown = ", ".join(sorted(attempt - {"source", "target"}))
    expect(not unknown, f"There are only source and target, not {unknown}.")
    expect("target" in attempt, "Then a hypothesis would go on with the words of another one.")
    expect(
        "source" not in attempt,
        "It does no harm, but all hypotheses of a sentence read the same source.",
    )


# %%
must_follow = ...  # your attempt

check_4_1(must_follow)

# %% [markdown]
# > <details><summary>Answer 4.1</summary>
# >
# > Those of the target. The kept keys and values belong to one hypothesis. If they stayed behind when hypotheses
# > change places, a row of the cache would belong to a different one, and the model would continue a sentence that it
# > hasn't written. The keys and values of the source are the same for all hypotheses of a sentence, so moving them
# > changes nothing. The cell runs the search three times: once with everything following, once with only the target's
# > keys and values, and once with nothing.
# >
# > </details>


# %%
# @title Answer 4.1: the code
def rows_follow(parts: tuple[str, ...]) -> Callable[[CachedDecoder, Tensor], None]:
    """A `select_rows` that lets only these parts of the cache follow beams, once there are some."""

    def select(decoder: CachedDecoder, rows: Tensor) -> None:
        for part in parts if decoder.length else ("past", "source"):  # the first call makes beams
            setattr(decoder, part, [(K[rows], V[rows]) for K, V in getattr(decoder, part)])
        decoder.src_mask = decoder.src_mask[rows]

    return select


@example
def example_answer_4_1() -> None:
    """BLEU of 40 validation sentences if source and target, only the target,
    or nothing follows the beams."""
    from unittest.mock import patch

    import the_annotated_transformer as document

    sources, references = (list(side) for side in zip(*load_split("val")[:40], strict=True))
    search, found = functools.partial(beam_search, beam=BEAM, alpha=ALPHA), []
    kinds = {"source and target": ("past", "source"), "only the target": ("past",), "nothing": ()}
    for who, parts in kinds.items():
        with patch.object(document, "select_rows", rows_follow(parts)):
            found.append(translate_lines(our_model(), sources, search))
        print(f"{who:>17}: BLEU {bleu(found[-1], references)[0]:.1f}")
    assert found[0] == found[1] == translate_lines(our_model(), sources, search) != found[2]
    differ = (pair for pair in zip(found[0], found[2], strict=True) if pair[0] != pair[1])
    print(*next(differ), sep="\n")


# %% [markdown]
# ## 4.2 Which α is best
#
# > ★★, 20 minutes, after [Beam search](the_annotated_transformer.ipynb#Beam-search-(Section-6.1)). Translate 100
# > validation sentences with the model of Part 3 and α = 0, 0.6, 1 and 1.8. First predict: does a larger α make the
# > translations `"longer"`, `"shorter"`, or `"either"`, depending on the sentence?
# >
# > <details><summary>Hint 1</summary>
# >
# > Take two finished translations of one sentence, of 8 and of 10 tokens. When does the longer one win?
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > Both log-probabilities are negative, and each is divided by $((5 + |Y|)/6)^\alpha$.
# >
# > </details>


# %%
# @title The check of 4.2
@checks
def check_4_2(attempt: str) -> None:
    """What the length penalty does to the choice between two finished translations."""
    # 10 tokens against 8
    wins = [(-6 / (15 / 6) ** alpha) > (-5 / (13 / 6) ** alpha) for alpha in (0.0, 1.8)]
    kinds = "longer", "shorter", "either"
    expect(attempt in kinds, 'One of "longer", "shorter" and "either".')
    expect(
        (attempt == "longer") == (wins == [False, True]),
        "Try 8 tokens with log-probability -5 against 10 tokens with -6.",
    )


# %%
translations_get = ...  # your attempt

check_4_2(translations_get)

# %% [markdown]
# > <details><summary>Answer 4.2</summary>
# >
# > Longer: a larger α favours the longer of the two. The table shows BLEU and the length of the translations, as a
# > share of the references' length. Below 100% the brevity penalty lowers BLEU; above, superfluous words do. In the
# > run shown here, α = 1.8 makes the translations together a tenth too long, and four points worse. The last column
# > has the number of words in the longest of them: a few that run on are enough for that. Between the other three
# > penalties, the differences are within the noise of a hundred sentences.
# >
# > </details>


# %%
# @title Answer 4.2: the code
@example
def example_answer_4_2() -> Any:
    """BLEU and length of the translations by the model trained in Part 3,
    for four length penalties."""
    from sacrebleu.metrics import BLEU

    sources, references = (list(side) for side in zip(*load_split("val")[:100], strict=True))
    rows = []
    for alpha in (0.0, 0.6, 1.0, 1.8):
        search = functools.partial(beam_search, beam=BEAM, alpha=alpha)
        lines = translate_lines(live_run().translator, sources, search)
        score = BLEU().corpus_score(lines, [references])
        length, longest = score.sys_len / score.ref_len, max(len(line.split()) for line in lines)
        rows.append({"α": alpha, "BLEU": round(score.score, 1), "length": f"{length:.1%}"})
        rows[-1] |= {"brevity penalty": round(score.bp, 3), "longest": longest}
    print("best:", max(rows, key=lambda row: row["BLEU"]))
    assert float(rows[0]["length"][:-1]) <= float(rows[-1]["length"][:-1])
    return table(rows)


# %% [markdown]
# ## 4.3 Averages of one to five checkpoints
#
# > ★★, 15 minutes, after [Averaged checkpoints](the_annotated_transformer.ipynb#Averaged-checkpoints-(Section-6.1)).
# > Average one, two, … five of the last checkpoints of the training run, and measure the validation loss of each
# > mean. To do so without keeping five checkpoints in memory, write the update of a running mean.
# >
# > <details><summary>Hint 1</summary>
# >
# > If $m_n$ is the mean of $n$ numbers, then the sum is $n\,m_n$.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > $m_{n+1} = m_n + (x - m_n) / (n + 1)$, for each matrix.
# >
# > </details>


# %%
# @title The check of 4.3
@checks
def check_4_3(
    attempt: Callable[[dict[str, Tensor], dict[str, Tensor], int], dict[str, Tensor]],
) -> None:
    """The mean of one to six random checkpoints, one after the other; they stay as they were."""
    checkpoints = [{"a": torch.randn(3, 4), "b": torch.randn(5)} for _ in range(6)]
    before = [{name: weight.clone() for name, weight in weights.items()} for weights in checkpoints]
    mean = {name: weight.clone() for name, weight in checkpoints[0].items()}
    for n, weights in enumerate(checkpoints[1:], 1):
        halves = {name: (mean[name] + weights[name]) / 2 for name in mean}
        mean, expected = attempt(mean, weights, n), average_weights(before[: n + 1])
        expect(mean.keys() == expected.keys(), "The mean should have the names of the checkpoints.")
        expect(
            n == 1 or not torch.allclose(mean["a"], halves["a"]),
            "The newest checkpoint counts for half: n checkpoints are in the mean already.",
        )
        for name in expected:
            same(mean[name], expected[name], f"The mean of {n + 1} checkpoints, {name},")
    both = zip(checkpoints, before, strict=True)
    kept = all(torch.equal(now[name], was[name]) for now, was in both for name in was)
    expect(kept, "A checkpoint was changed.")


# %%
def running_mean(
    mean: dict[str, Tensor], checkpoint: dict[str, Tensor], n: int
) -> dict[str, Tensor]:
    """The mean of n + 1 checkpoints, from the mean of n and one more."""
    raise NotImplementedError  # your attempt


check_4_3(running_mean)

# %% [markdown]
# > <details><summary>Answer 4.3</summary>
# >
# > The first figure is that of the last checkpoint alone, and each further one adds an older checkpoint to the mean.
# > Two things work against each other. The mean cancels out the noise of individual updates, which lowers the loss,
# > the more so while the rate is high. But older checkpoints are worse models, and they pull the mean back, the more
# > so while the model is still learning fast. The longer a run, the more older checkpoints it can use.
# >
# > </details>


# %%
# @title Answer 4.3: the code
def answer_4_3(mean: dict[str, Tensor], checkpoint: dict[str, Tensor], n: int) -> dict[str, Tensor]:
    """The mean of n + 1 checkpoints, from the mean of n and one more."""
    return {name: m + (checkpoint[name] - m) / (n + 1) for name, m in mean.items()}


@example
def example_answer_4_3() -> Chart:
    """The validation loss of the mean of the last checkpoints, on 200 pairs,
    by how many there are in the mean."""
    (trained, tokenizer, _), history, checkpoints = live_run()
    model = LIVE.make_model(len(tokenizer)).to(best_device())
    val, rows, mean = to_pairs(tokenizer, load_split("val")[:200]), [], checkpoints[-1]
    for n in range(1, len(checkpoints) + 1):
        mean = mean if n == 1 else answer_4_3(mean, checkpoints[-n], n - 1)
        model.load_state_dict(mean, strict=False)  # a tied weight is in it once
        loss = validation_loss(model, val)
        rows.append({"checkpoints": n, "nats per token": loss, "run": f"{len(history):,} updates"})
    print({row["checkpoints"]: round(row["nats per token"], 3) for row in rows})
    trained.load_state_dict(checkpoints[-1], strict=False)
    assert math.isclose(rows[0]["nats per token"], validation_loss(trained, val), rel_tol=1e-4)
    assert len(history) < 2000 or rows[-1]["nats per token"] < rows[0]["nats per token"]
    return curves(rows, "checkpoints", "nats per token", "run")


# %% [markdown]
# # Exercises for Part 5: Results
#
# ## 5.1 P100-days, and days of yours
#
# > ★, 10 minutes, after [Machine
# > translation](the_annotated_transformer.ipynb#Machine-translation-(Section-6.1,-Table-2)). How many days would the
# > training of the big model have taken on a single one of its GPUs? And for how many days would it keep your
# > processor busy, if all it did was large matrix products?
# >
# > <details><summary>Hint 1</summary>
# >
# > [Hardware and duration](the_annotated_transformer.ipynb#Hardware-and-duration-(Section-5.2)) has the days and the
# > number of GPUs.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > Three and a half days on eight.
# >
# > </details>


# %%
# @title The check of 5.1
@checks
def check_5_1(attempt: float) -> None:
    """3.5 days times 8 GPUs."""
    expect(attempt != 3.5, "That is the time of all eight together.")
    expect(attempt == 3.5 * 8, f"Not {attempt}.")


# %%
P100_days = ...  # your attempt

check_5_1(P100_days)

# %% [markdown]
# > <details><summary>Answer 5.1</summary>
# >
# > Three and a half days on eight GPUs are 28 P100-days. The paper multiplies them by 9.5 TFLOP/s, which gives the
# > operations in its table. The cell measures how many operations per second your processor reaches in a large matrix
# > product, and divides. The number is the best you can hope for, since there's more to training than matrix
# > products. For the P100 the paper takes the rate that it thinks such a GPU can sustain, so its number is an
# > estimate as well.
# >
# > </details>


# %%
# @title Answer 5.1: the code
@example
def example_answer_5_1() -> None:
    """The cost of the big model in P100-days, in operations,
    and in days of this machine's matrix products."""
    days = 3.5 * 8
    operations, n, seconds = days * 24 * 3600 * 9.5e12, 2048, []
    a = torch.randn(n, n, device=best_device())
    for _ in range(4):
        start = time.perf_counter()
        (a @ a).sum().item()  # to ask for a number is to wait for it
        seconds.append(time.perf_counter() - start)
    speed = 2 * n**3 / min(seconds)  # a multiplication and an addition each
    print(f"{days:.0f} P100-days, {operations:.1e} operations", end="; ")
    print(f"here {speed / 1e9:,.0f} GFLOP/s on the {best_device()}", end=" ")
    print(f"with {torch.get_num_threads()} threads: {operations / speed / 86_400:,.0f} days")
    assert days == 28 and f"{operations:.1e}" == "2.3e+19"


# %% [markdown]
# ## 5.2 BLEU without commas
#
# > ★, 10 minutes, after [BLEU](the_annotated_transformer.ipynb#BLEU). Remove all commas from translations and
# > references, and score again. BLEU changes. Is the model better now? (In the notebook, answer `True` or `False`.)
# >
# > <details><summary>Hint</summary>
# >
# > Has any translation got better?
# >
# > </details>


# %%
# @title The check of 5.2
@checks
def check_5_2(attempt: bool) -> None:
    """Another count of the same sentences."""
    expect(not attempt, "The sentences are the same; only the rule that scores them is different.")


# %%
model_is_better = ...  # your attempt

check_5_2(model_is_better)

# %% [markdown]
# > <details><summary>Answer 5.2</summary>
# >
# > No. BLEU changes because a comma counts like a word. One that's missing or in the wrong place spoils every
# > $n$-gram that spans it, and one that's right is as good as a right word. The model is what it was: the sentences
# > are the same, only scored by a different rule. So you can compare two figures only if both were computed on the
# > same text in the same way. If you clean the references before scoring, your figure can't be compared with any
# > other.
# >
# > </details>


# %%
# @title Answer 5.2: the code
@example
def example_answer_5_2() -> None:
    """BLEU of the same translations with their commas and without; so do the references."""
    sources, references = (list(side) for side in zip(*load_split("val")[:300], strict=True))
    translations = translate_lines(our_model(), sources)
    commas = [sum(text.count(",") for text in side) for side in (translations, references)]
    plain = ([text.replace(",", "") for text in side] for side in (translations, references))
    with_commas, without = bleu(translations, references)[0], bleu(*plain)[0]
    print(f"commas: {commas[0]} in the translations, {commas[1]} in the references")
    print(f"BLEU {with_commas:.2f}, without commas {without:.2f}: {without - with_commas:+.2f}")
    assert (with_commas != without) == (sum(commas) > 0)


# %% [markdown]
# # Exercises for Part 6: Looking inside
#
# ## 6.1 A verb at the end
#
# > ★, 10 minutes, after [Looking inside](the_annotated_transformer.ipynb#Part-6:-Looking-inside). In `Ein Mädchen
# > sieht zu, wie ein Junge auf der Straße mit einem roten Ball spielt.`, the verb of the second clause is at the end.
# > English needs it right after its subject. When the decoder has read "a boy" and predicts "plays", which German
# > word has the largest weight in the upper layers?
# >
# > <details><summary>Hint</summary>
# >
# > `attention_maps(our_model(), sentence).maps["cross"]` has the weights, `(N, h, T, S)`.
# >
# > </details>


# %%
# @title The check of 6.1
@checks
def check_6_1(attempt: str) -> None:
    """The word that is being translated."""
    word = attempt.strip("▁ .").lower()
    expect(
        word != "junge",
        "The first layer looks there, at the word that was just translated. And the upper ones?",
    )
    expect(word == "spielt", f"Not {attempt}.")


# %%
word_with_the_largest_weight = ...  # your attempt

check_6_1(word_with_the_largest_weight)

# %% [markdown]
# > <details><summary>Answer 6.1</summary>
# >
# > `spielt`, the last word before the full stop. The first layer still looks at `Junge`, the word that was just
# > translated. In this one sentence the upper two layers give the verb 0.71 and 0.53 of their weight, averaged over
# > the heads. In the chart, the row for the verb jumps to the end of the sentence, and the rows after it come back.
# >
# > </details>


# %%
# @title Answer 6.1: the code
@example
def example_answer_6_1() -> Chart:
    """Where each layer looks when a verb is predicted
    whose German counterpart ends the sentence."""
    sentence = "Ein Mädchen sieht zu, wie ein Junge auf der Straße mit einem roten Ball spielt."
    seen = attention_maps(our_model(), sentence)
    cross, steps = seen.maps["cross"].mean(1), seen.steps()  # (N, T, S), mean over heads
    print(sentence, seen.translation, sep="\n")
    # another model may say it in another way
    if "▁plays" in seen.predicted and "▁spielt" in seen.source:
        row, verb = seen.predicted.index("▁plays"), seen.source.index("▁spielt")
        print(f"most weight of the row {steps[row]}, layer by layer:")
        for weights in cross[:, row]:
            best = int(weights.argmax())
            print(f"  {seen.source[best]} at position {best}, {weights[best]:.2f}")
        assert cross[-2:, row].argmax(-1).tolist() == [verb, verb] and verb == len(seen.source) - 3
    return heatmap(cross[-2], steps, seen.source, "cross-attention, mean of heads")


# %% [markdown]
# ## 6.2 How many heads can go
#
# > ★★★, 30 minutes, after [Watching and intervening](the_annotated_transformer.ipynb#Watching-and-intervening). Take
# > away one head of the cross-attention at a time, then the cheaper half of the heads together, and measure the
# > validation loss. How many can go? Begin with a function that takes a head away.
# >
# > <details><summary>Hint 1</summary>
# >
# > The heads' outputs stand side by side in one vector, and $W^O$ mixes them. If nothing reads a head, it's as good
# > as gone.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > `nn.Linear` keeps its matrix as (outputs, inputs), so a head is a block of *columns* of `W_o.weight`.
# >
# > </details>


# %%
# @title The check of 6.2
@checks
def check_6_2(attempt: Callable[[Tensor, int, int], Tensor]) -> None:
    """A random matrix (d_model, h * d_v), one head's columns zero, and the given one as it was."""
    W_o, h = torch.randn(12, 12), 3
    head, before = random.randrange(h), W_o.clone()
    found = attempt(W_o, head, h)
    expect(torch.equal(W_o, before), "The matrix that was given has changed. Work on a clone.")
    expected, rows = before.clone(), before.clone()
    expected[:, 4 * head : 4 * head + 4] = 0
    rows[4 * head : 4 * head + 4] = 0
    expect(
        found.shape == W_o.shape,
        f"The matrix should keep its shape {tuple(W_o.shape)}, not {tuple(found.shape)}.",
    )
    expect(
        not torch.equal(found, rows),
        "These are rows, outputs of the layer. A head is a block of inputs.",
    )
    same(found, expected, f"The matrix without head {head} of {h}, counted from 0,")


# %%
def remove_head(W_o: Tensor, head: int, h: int) -> Tensor:
    """A copy of the matrix (d_model, h * d_v) that does not read this head, counted from 0."""
    raise NotImplementedError  # your attempt


check_6_2(remove_head)

# %% [markdown]
# > <details><summary>Answer 6.2</summary>
# >
# > A head vanishes if the columns of $W^O$ that read it are zero. The chart shows what each head costs on its own:
# > for most of them, next to nothing. You might conclude that most of them could go. But taken together, the cheaper
# > half costs far more than the sum of what each costs on its own: the heads stand in for each other. So the question
# > has two answers, one for each head alone and one for all together, and the second is what you can save. (The model
# > wasn't trained any further without them. If it were, more could go.)
# >
# > </details>


# %%
# @title Answer 6.2: the code
def answer_6_2(W_o: Tensor, head: int, h: int) -> Tensor:
    """A copy of the matrix (d_model, h * d_v) that does not read this head, counted from 0."""
    W_o = W_o.clone()
    W_o.unflatten(1, (h, -1))[:, head] = 0
    return W_o


@torch.no_grad()
def loss_without(model: Transformer, heads: Iterable[tuple[int, int]], pairs: list[Pair]) -> float:
    """The validation loss without some heads (layer, head) of cross-attention, counted from 0."""
    kept = {name: weight.clone() for name, weight in model.state_dict().items()}
    try:
        for n, i in heads:
            W_o = model.decoder.layers[n].src_attn.W_o.weight
            W_o.copy_(answer_6_2(W_o, i, model.settings["h"]))
        return validation_loss(model, pairs)
    finally:
        model.load_state_dict(kept)


@example
def example_answer_6_2() -> Chart:
    """What each head of the cross-attention is worth, in nats per token,
    and the least valuable half together."""
    model, pairs = our_model().model, to_pairs(our_model().tokenizer, load_split("val")[:200])
    N, h = model.settings["N"], model.settings["h"]
    whole = validation_loss(model, pairs)
    heads = itertools.product(range(N), range(h))
    costs = {head: loss_without(model, [head], pairs) - whole for head in heads}
    half = sorted(costs, key=costs.get)[: N * h // 2]
    single, together = sum(costs[head] for head in half), loss_without(model, half, pairs) - whole
    print(f"{whole:.3f} nats; the cheaper half costs {single:.3f} more one by one", end=", ")
    print(f"{together:.3f} more together")
    assert validation_loss(model, pairs) == whole and together > single
    return heatmap(
        torch.tensor(list(costs.values())).view(N, h),
        [str(n + 1) for n in range(N)],
        [str(i + 1) for i in range(h)],
        axes=("layer", "head"), size=40, unit="nats per token",
    )  # fmt: skip


# %% [markdown]
# ## 6.3 The mean against the best head
#
# > ★, 10 minutes, after [Does attention find the right
# > word?](the_annotated_transformer.ipynb#Does-attention-find-the-right-word?) Compare alignment error rates: is the
# > mean over all heads a better aligner than the best single head, counted by the row that predicts? (In the notebook,
# > answer `True` or `False`.) Which of the two comparisons in the table should you distrust?
# >
# > <details><summary>Hint</summary>
# >
# > The rates are in the rows `alignment`: `saved_rows("alignment")[0]["heads"]`. On which sentences was the best head
# > chosen?
# >
# > </details>


# %%
# @title The check of 6.3
@checks
def check_6_3(attempt: bool) -> None:
    """The mean over all heads against the best single head, in every saved row."""
    for row in saved_rows("alignment"):
        heads = [head for head in row["heads"] if head["convention"] == "predicts"]
        rates = {(head["layer"], head["head"]): head["aer"] for head in heads}
        mean = rates["mean", "mean"]
        single = min(rate for place, rate in rates.items() if "mean" not in place)
        expect(
            attempt == (mean < single),
            f"The mean has an error rate of {mean:.3f}, the best head one of {single:.3f}.",
        )


# %%
mean_is_better = ...  # your attempt

check_6_3(mean_is_better)

# %% [markdown]
# > <details><summary>Answer 6.3</summary>
# >
# > It's better, in both training runs. The table has, for each run, the best single head, the best mean over one
# > layer's heads, and the mean over all; the lower the error rate, the better. A mean corrects what one head misses,
# > and blurs what one head sees sharply. Distrust the first column: the best head was picked on the same sentences
# > it's scored on, whereas the mean over all wasn't picked at all.
# >
# > </details>


# %%
# @title Answer 6.3: the code
@example
def example_answer_6_3() -> Any:
    """Alignment error rates of the best single head, of the best mean over a layer,
    and of the mean over all heads."""
    shown = []
    for row in saved_rows("alignment"):
        for convention in ("reads", "predicts"):
            kinds = {"single head": [], "mean over a layer": [], "mean over all": []}
            for found in row["heads"]:
                if found["convention"] == convention:
                    means = (found["head"] == "mean") + (found["layer"] == "mean")
                    kinds[list(kinds)[means]].append(found["aer"])
            best = {kind: min(rates) for kind, rates in kinds.items()}
            which = {"seed": row["set"]["seed"], "the row that": f"{convention} the token"}
            shown.append(which | best)
            limits = [row["baselines"][name]["aer"] for name in ("best", "random")]
            assert limits[0] <= min(best.values()) and best["single head"] < limits[1]
    return table(shown).round(3) if shown else None


# %% [markdown]
# # Exercises for Since 2017
#
# ## 7.1 The size of the cache
#
# > ★, 10 minutes, after [Grouped-query attention](since_2017.ipynb#Grouped-query-attention). How many
# > bytes does the key/value cache of a decoder take for one sequence? Then compare the base model for 1,000 tokens
# > with 8, 2 and 1 heads of keys and values, in float32 and in bfloat16.
# >
# > <details><summary>Hint 1</summary>
# >
# > Each layer keeps a key *and* a value, for every position and every head of keys and values.
# >
# > </details>
# >
# > <details><summary>Hint 2</summary>
# >
# > A key of one head has $d_k$ numbers, each of 4 bytes in float32.
# >
# > </details>


# %%
# @title The check of 7.1
@checks
def check_7_1(attempt: Callable[[int, int, int, int, int], int]) -> None:
    """The bytes of the keys and values that a layer really makes, for random sizes."""
    N, length, h_kv = random.randint(3, 9), random.randint(5, 90), random.choice((1, 2, 4))
    d_k, kind = 8, torch.bfloat16
    with torch.device("meta"):  # shapes without numbers
        layer = GroupedQueryAttention(4, 4 * d_k, h_kv=h_kv).to(kind)
        x = torch.empty(1, length, 4 * d_k, dtype=kind)
        expected = N * sum(part.nbytes for part in layer.keys_values(x, x))
    found = attempt(N, length, h_kv, d_k, kind.itemsize)
    expect(2 * found != expected, "Keys and values are two.")
    expect(N * found != expected, "Every layer has its own.")
    sizes = f"{N} layers, {length} tokens, {h_kv} heads of {d_k}, 2 bytes"
    expect(found == expected, f"{sizes}: {expected:,}, not {found:,}.")


# %%
def cache_bytes(N: int, length: int, h_kv: int, d_k: int, itemsize: int) -> int:
    """The bytes of the cache of N layers for one sequence.

    Each layer has h_kv heads of keys and values, of d_k numbers each.
    """
    raise NotImplementedError  # your attempt


check_7_1(cache_bytes)

# %% [markdown]
# > <details><summary>Answer 7.1</summary>
# >
# > Each of the six decoder layers keeps a key and a value of 64 numbers for every position and every head of keys and
# > values. So for a given model, the size grows with the number of tokens, of heads and of bytes per number. The
# > table is for one sequence; a batch of sentences with several beams each needs that many times as much. The keys
# > and values of the source come on top of that.
# >
# > </details>


# %%
# @title Answer 7.1: the code
def answer_7_1(N: int, length: int, h_kv: int, d_k: int, itemsize: int) -> int:
    """The bytes of the cache of N layers for one sequence.

    Each layer has h_kv heads of keys and values, of d_k numbers each.
    """
    return 2 * N * length * h_kv * d_k * itemsize


@example
def example_answer_7_1() -> Any:
    """Megabytes of the base model's cache for 1,000 tokens,
    by heads of keys and values and by type of number."""
    kinds = {"float32": 4, "bfloat16": 2}
    rows = []
    for h_kv in (8, 2, 1):
        sizes = {kind: answer_7_1(6, 1000, h_kv, 64, size) for kind, size in kinds.items()}
        megabytes = {kind: f"{n / 1e6:.2f} MB" for kind, n in sizes.items()}
        rows.append({"heads of keys and values": h_kv} | megabytes)
    return table(rows)


# %% [markdown]
# ## 7.2 The limits of sampling
#
# > ★, 10 minutes, after [Sampling](since_2017.ipynb#Sampling). As the temperature goes to 0, sampling
# > turns into a search that you know. Which one? And what if `top_p` goes to 0, and if `top_p` is 1?
# >
# > <details><summary>Hint</summary>
# >
# > Divide the scores 2 and 1 by a temperature of 0.01, and take the softmax.
# >
# > </details>


# %%
# @title The check of 7.2
@checks
def check_7_2(attempt: str) -> None:
    """The name of the search."""
    expect("beam" not in attempt.lower(), "Sampling follows one hypothesis, not several.")
    expect(
        "greedy" in attempt.lower(),
        f"Not {attempt}. Which token is drawn if one has all the probability?",
    )


# %%
becomes = ...  # your attempt

check_7_2(becomes)

# %% [markdown]
# > <details><summary>Answer 7.2</summary>
# >
# > As the temperature goes to 0, the differences between the scores grow without bound, and the most probable token
# > gets all the probability: that's greedy decoding. If `top_p` goes to 0, only that token is left to draw from:
# > greedy decoding again. With `top_p` = 1 nothing is cut off, and every token comes as often as the model says, the
# > silly ones in the tail included. Each of them is rare, but there are thousands of them, and a translation draws
# > once for every token.
# >
# > </details>


# %%
# @title Answer 7.2: the code
@example
def example_answer_7_2() -> Any:
    """Fifty samples for one sentence: how many different ones, and the most frequent."""
    (model, tokenizer, (language, _)), rows = our_model(), []
    device = next(model.parameters()).device
    ids = torch.tensor([*tokenizer.encode(OUR_SENTENCES[1], language), EOS], device=device)
    src = ids.expand(50, -1)
    greedy = tokenizer.decode(greedy_decode(model, src[:1], source_mask(src[:1]), 40)[0].tolist())
    for temperature, top_p in ((1e-4, 1.0), (1.0, 1e-6), (1.0, 0.9), (1.0, 1.0)):
        torch.manual_seed(0)
        found = sample_decode(model, src, source_mask(src), 40, temperature, top_p).tolist()
        texts = Counter(tokenizer.decode(row) for row in found)
        rows.append({"temperature": temperature, "top_p": top_p, "different": len(texts)})
        rows[-1]["most frequent"] = texts.most_common(1)[0][0]
    assert [row["different"] for row in rows[:2]] == [1, 1]
    assert {row["most frequent"] for row in rows[:2]} == {greedy}
    assert rows[3]["different"] > rows[2]["different"] > 1
    many = ids.expand(1000, -1)
    first = sample_decode(model, many, source_mask(many), 2, 1.0, 1.0)[:, 1]
    decoder = CachedDecoder(model, src[:1], source_mask(src[:1]))
    expected = decoder.step(torch.tensor([BOS], device=device))
    drawn = torch.bincount(first, minlength=expected.size(1)) / len(first)
    assert (drawn - expected.softmax(-1)[0]).abs().max() < 0.07  # nothing is cut off
    return table(rows)


# %% [markdown]
# ## 7.3 Cross-attention without rotary positions
#
# > ★★, 15 minutes, after [Rotary positions](since_2017.ipynb#Rotary-positions). Keys and queries of
# > the cross-attention aren't turned. Suppose they were, and the source were counted from 3 instead of 0. Would the
# > scores of a target position change, and why is that bad? (In the notebook, answer `True` or `False`.)
# >
# > <details><summary>Hint</summary>
# >
# > `rotated(x, start)` turns vectors whose first position is `start`. Turn a query at position 2, and six keys from 0
# > and from 3.
# >
# > </details>


# %%
# @title The check of 7.3
@checks
def check_7_3(attempt: bool) -> None:
    """Scores of a turned query with keys that are turned from 0 and from 3."""
    query, keys = torch.randn(1, 16), torch.randn(6, 16)
    scores = [rotated(query, 2) @ rotated(keys, start).T for start in (0, 3)]
    changed = not torch.allclose(*scores, atol=1e-3)
    expect(
        attempt == changed,
        "The distance between query and keys is different: try it with `rotated`.",
    )


# %%
scores_change = ...  # your attempt

check_7_3(scores_change)

# %% [markdown]
# > <details><summary>Answer 7.3</summary>
# >
# > They would. A turned score depends on the distance between two positions in *one* sequence. Between a position of
# > the target and one of the source there's no such distance: they're counted in different sentences, of different
# > lengths and with words in a different order. If the source were counted from 3, all turned scores would change,
# > although the sentence is the same. And the cross-attention needs no positions of its own. The self-attention of
# > the encoder has worked the order of the source into the memory.
# >
# > </details>


# %%
# @title Answer 7.3: the code
@example
def example_answer_7_3() -> None:
    """With rotary positions the memory knows the order;
    turned cross-attention would depend on the first number."""
    torch.manual_seed(0)
    src, order, changes = torch.arange(4, 10).unsqueeze(0), torch.tensor([3, 1, 4, 0, 5, 2]), {}
    sizes = {"N": 2, "d_model": 32, "d_ff": 64, "h": 4}
    plain = make_model(50, 50, **sizes, positions=NoPositions).eval()
    rotary = make_model(50, 50, **sizes, **modern("rotary")).eval()
    for name, model in (("no positions", plain), ("rotary positions", rotary)):
        shuffled = model.encode(src[:, order], None) - model.encode(src, None)[:, order]
        changes[name] = gap = shuffled.abs().max().item()
        print(f"{name}: a shuffled source changes the vectors of the memory by up to {gap:.1e}")
    assert changes["no positions"] < 1e-5 < 1e-2 < changes["rotary positions"]
    query, keys = torch.randn(1, 64), torch.randn(6, 64)  # of one target and six source positions
    weights = [(rotated(query, 2) @ rotated(keys, start).T / 8).softmax(-1) for start in (0, 3)]
    print("weights, source counted from 0 and from 3:", *(w[0].numpy().round(2) for w in weights))
    assert (weights[0] - weights[1]).abs().max() > 0.05
