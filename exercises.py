# %% [markdown]
# # Exercises: change it and train
#
# > This is the last of five rungs of practice with [The Annotated Transformer](the_annotated_transformer.ipynb):
# > *predict*, *write it*, *diagnose*, *let it learn*, *change it and train*. Each changes something, and most of them train a
# > model: do them in the notebook. Run the cells from the top, fill in a place, and run its cell again: a check tries
# > your code out, and says what's wrong. Hints and answers are folded. The stars say how hard an exercise is, and the
# > minutes how long it may take someone who has read that section.

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
import random
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from the_annotated_transformer import (
    BEAM,
    BOS,
    EOS,
    LIVE,
    PAD,
    SPECIALS,
    CachedDecoder,
    Chart,
    Config,
    Embeddings,
    Pair,
    Trainer,
    Transformer,
    average_weights,
    beam_search,
    best_device,
    copy_pairs,
    curves,
    evaluating,
    example,
    fit,
    heatmap,
    in_notebook,
    initialise,
    live_run,
    load_split,
    make_batch,
    make_model,
    our_model,
    positional_encoding,
    rate,
    recording,
    smoothed_targets,
    source_mask,
    table,
    target_mask,
    to_pairs,
    token_batches,
    translate_lines,
    validation_loss,
)

if __name__ == "__main__" and not in_notebook(__name__):
    print(
        "The exercises: write where it says `your attempt`, and run this file again; or open "
        "exercises.ipynb."
    )


# %%
# @title What a check does
class NotYet(Exception):
    """What an attempt lacks, in a sentence."""


def expect(condition: bool, sentence: str) -> None:
    """NotYet, unless the condition holds. (`python -O` leaves an `assert` out.)"""
    if not condition:
        raise NotYet(sentence)


def checks(function: Callable[[Any], None]) -> Callable[[Any], bool]:
    """Make `function` print that an attempt is right, or what's wrong with it, and return which."""
    number = function.__name__.removeprefix("check_").replace("_", ".")

    @functools.wraps(function)
    def check(attempt: Any) -> bool:
        try:
            if attempt is ...:
                raise NotImplementedError
            function(attempt)
        except NotImplementedError:
            if in_notebook(__name__):
                print(f"{number}: nothing is there yet.")
        except NotYet as lack:
            print(f"{number}: not yet. {lack}")
        except Exception as error:  # the cells below run all the same
            line = traceback.extract_tb(error.__traceback__)[-1].line
            kind = type(error).__name__
            print(f"{number}: not yet. It can't be tried out: {kind}: {error}, at `{line}`.")
        else:
            print(f"{number}: right.")
            return True
        return False

    return check


def same(tensor: Tensor, expected: Tensor, what: str) -> None:
    """NotYet that names `what`, unless a tensor has the expected shape and numbers."""
    shape, expected_shape = tuple(tensor.shape), tuple(expected.shape)
    expect(shape == expected_shape, f"{what} should have the shape {expected_shape}, not {shape}.")
    gap = (tensor - expected).abs().max().item()
    expect(gap < 1e-4, f"{what} is off by up to {gap:.2g}.")


# %% [markdown]
# ## 1.1 Concatenating token and position
#
# > ★★, 20 minutes, after [Positions](the_annotated_transformer.ipynb#Positions-(Section-3.5)). Put token and position
# > side by side in one vector instead of adding them: in the base model, `width` = 448 entries for the token and
# > `places` = 64 for the position. Write the module that goes below a stack. What else in the model has to change?
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
# > `start + T` rows of the encoding, and keep the last T. They have no batch yet: `expand` gives them one.
# >
# > </details>


# %%
# @title The check of 1.1
@checks
def check_1_1(attempt: Callable[[int, int, int], nn.Module]) -> None:
    """Token and position in their places, from any first position, for every row of the batch."""
    module = attempt(12, 4, 50)
    ids = torch.randint(4, 50, (2, 7))
    vectors = module(ids)
    shape = tuple(vectors.shape)
    expect(shape == (2, 7, 16), f"The result should have the shape (2, 7, 16), not {shape}.")
    places = positional_encoding(7, 4).expand(2, 7, 4)
    same(vectors[..., 12:], places, "The position, in the last 4 entries of 16,")
    tables = [child for child in module.modules() if isinstance(child, Embeddings)]
    expect(len(tables) == 1, f"There should be one Embeddings in the module, not {len(tables)}.")
    same(vectors[..., :12], tables[0](ids), "The token, in the first 12 entries of 16,")
    late = module(ids[:, 3:], 3)
    same(late, vectors[:, 3:], "The same ids, cut off before position 3 and with start = 3,")


# %%
class BesidePosition(nn.Module):
    """What is below a stack, with embedding and position side by side in one vector."""

    def __init__(self, width: int, places: int, vocab: int):
        super().__init__()
        # your attempt, part one

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids (B, T) to vectors (B, T, width + places); `start` is the position of the first."""
        raise NotImplementedError  # your attempt, part two


check_1_1(BesidePosition)

# %% [markdown]
# > <details><summary>Answer 1.1</summary>
# >
# > The layers needn't change, because the two together are still 512 wide. The embedding does change: its matrix has
# > 448 columns, and the factor in front of it becomes $\sqrt{448}$. The output matrix has 512 columns, so the two can
# > no longer be one parameter, unless there's a linear map from 512 to 448 between the decoder and the output. And
# > the encoding needs an even width, which 64 is. The residual connections still let every layer write over the 64
# > entries.
# >
# > </details>


# %%
# @title Answer 1.1: the code
class TokenBesidePosition(nn.Module):
    """What is below a stack, with embedding and position side by side in one vector."""

    def __init__(self, width: int, places: int, vocab: int):
        super().__init__()
        self.embeddings = Embeddings(width, vocab)
        self.places = places

    def forward(self, ids: Tensor, start: int = 0) -> Tensor:
        """Ids (B, T) to vectors (B, T, width + places); `start` is the position of the first."""
        end = start + ids.size(1)
        PE = positional_encoding(end, self.places)[start:].to(ids.device)  # (T, places)
        return torch.cat((self.embeddings(ids), PE.expand(len(ids), -1, -1)), dim=-1)


@example
def example_answer_1_1() -> None:
    """The layers and the cached decoder take such vectors as they are,
    but no matrix can be shared any more."""
    model = make_model(50, 50, N=1, dropout=0.0)
    src, tgt = torch.randint(4, 50, (2, 3, 7))
    model.src_embed = TokenBesidePosition(448, 64, 50)
    model.tgt_embed = TokenBesidePosition(448, 64, 50)
    initialise(model, "none")
    decoder = CachedDecoder(model, src, source_mask(src))
    steps = torch.stack([decoder.step(tokens) for tokens in tgt.T], dim=1)
    at_once = model(src, tgt, source_mask(src), target_mask(tgt))
    torch.testing.assert_close(steps, at_once, atol=1e-4, rtol=1e-4)
    embedding, output = model.tgt_embed.embeddings.table.weight, model.generator.proj.weight
    print("embedding", tuple(embedding.shape), "output", tuple(output.shape))
    assert embedding.shape != output.shape


# %% [markdown]
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
    pairs = attempt(200, seed, 3, 8)
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
    again, next_pairs = (attempt(200, number, 3, 8) for number in (seed, seed + 1))
    expect(again == pairs != next_pairs, "The seed should decide about the pairs.")


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
    model = trainer.model
    with evaluating(model), recording(model) as record, torch.inference_mode():
        model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
    weights = record[model.decoder.layers[-1].src_attn].mean(1)  # (B, T, S)
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
    batches = [copy_pairs(32, 14, seed=step, longest=8) for step in range(300)]
    rows = []
    ends = {}  # the mean loss of the last 50 updates
    for norm, factor in itertools.product(("post", "pre"), (0.5, 0.5 * 150**-0.5)):
        torch.manual_seed(0)
        sizes = dict(N=2, d_model=64, d_ff=128, h=4)
        config = Config(**sizes, dropout=0.0, norm=norm, factor=factor, warmup=1)
        kind = f"{norm}, {rate(1, 64, factor, config.warmup):.4f}"
        history = fit(Trainer(config.make_model(14), config), batches)
        ends[kind] = sum(row["loss"] for row in history[-50:]) / 50
        for row in history:
            point = {"update": row["update"], "nats per token": row["loss"]}
            rows.append(point | {"norm, highest rate": kind})
    tokens = torch.cat([make_batch(pairs).tgt_y.flatten() for pairs in batches])
    q = smoothed_targets(tokens[tokens != PAD], 14).mean(0)[1:]  # how often each token is asked for
    entropy = -(q * q.log()).sum().item()
    ends["frequencies alone"] = entropy
    for name, loss in ends.items():
        print(f"{name}: {loss:.2f} nats per token at the end")
    post, post_low, pre, pre_low, _ = ends.values()
    assert abs(post - entropy) < 0.05 < entropy - pre and max(post_low, pre_low) < entropy / 2
    for update in (1, len(batches)):
        point = {"update": update, "nats per token": entropy}
        rows.append(point | {"norm, highest rate": "frequencies alone"})
    return curves(rows, "update", "nats per token", "norm, highest rate", log_y=True)


# %% [markdown]
# ## 3.1 Tokens per second and batch size
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
# @title The check of 3.1
@checks
def check_3_1(attempt: dict[int, float]) -> None:
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

check_3_1(tokens_per_second)

# %% [markdown]
# > <details><summary>Answer 3.1</summary>
# >
# > Each update has a cost that doesn't depend on how many tokens it has: Python starts several hundred operations,
# > and Adam touches every weight. A small batch pays that cost for few tokens, so it learns from few tokens per
# > second. In a large batch most of the work grows with the number of tokens, and from there on the speed stays about
# > the same. With even larger batches it can fall again; a single timing doesn't tell you why.
# >
# > </details>


# %%
# @title Answer 3.1: the code
@example
def example_answer_3_1() -> Chart:
    """Target tokens per second of a few updates, by the budget of a batch."""
    tokenizer = live_run().translator.tokenizer
    rows = []
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
# ## 4.1 Which α is best
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
# @title The check of 4.1
@checks
def check_4_1(attempt: str) -> None:
    """What the length penalty does to the choice between two finished translations."""
    kinds = "longer", "shorter", "either"
    expect(attempt in kinds, 'One of "longer", "shorter" and "either".')
    expect(
        attempt == "longer",
        "Try 8 tokens with log-probability -5 against 10 tokens with -6: first α = 0, then 1.8. "
        "Can any numbers make it the other way round?",
    )


# %%
translations_get = ...  # your attempt

check_4_1(translations_get)

# %% [markdown]
# > <details><summary>Answer 4.1</summary>
# >
# > Longer: a larger α favours the longer of the two, and no sentence gets a shorter translation. The table shows BLEU
# > and the length of the translations, as a share of the references' length. Below 100% the brevity penalty lowers
# > BLEU; above, superfluous words do. In the run shown here, α = 1.8 makes the translations together far too long, and
# > BLEU several points worse. The last column has the number of words in the longest of them: a few that run on are
# > enough for that. Between the other three penalties, the differences are within the noise of a hundred sentences.
# >
# > </details>


# %%
# @title Answer 4.1: the code
@example
def example_answer_4_1() -> Any:
    """BLEU and length of the translations by the model trained in Part 3,
    for four length penalties."""
    from sacrebleu.metrics import BLEU

    sources, references = (list(side) for side in zip(*load_split("val")[:100], strict=True))
    rows = []
    for alpha in (0.0, 0.6, 1.0, 1.8):
        search = functools.partial(beam_search, beam=BEAM, alpha=alpha)
        lines = translate_lines(live_run().translator, sources, search)
        score = BLEU().corpus_score(lines, [references])
        length = score.sys_len / score.ref_len
        longest = max(len(line.split()) for line in lines)
        rows.append({"α": alpha, "BLEU": round(score.score, 1), "length": f"{length:.1%}"})
        rows[-1] |= {"brevity penalty": round(score.bp, 3), "longest": longest}
    print("best:", max(rows, key=lambda row: row["BLEU"]))
    assert float(rows[0]["length"][:-1]) <= float(rows[-1]["length"][:-1])
    return table(rows)


# %% [markdown]
# ## 4.2 Averages of one to five checkpoints
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
# @title The check of 4.2
@checks
def check_4_2(
    attempt: Callable[[dict[str, Tensor], dict[str, Tensor], int], dict[str, Tensor]],
) -> None:
    """The mean of one to six random checkpoints, one after the other; they stay as they were."""
    checkpoints = [{"a": torch.randn(3, 4), "b": torch.randn(5)} for _ in range(6)]
    before = [{name: weight.clone() for name, weight in weights.items()} for weights in checkpoints]
    mean = {name: weight.clone() for name, weight in checkpoints[0].items()}
    for n, weights in enumerate(checkpoints[1:], 1):
        halves = {name: (mean[name] + weights[name]) / 2 for name in mean}
        mean = attempt(mean, weights, n)
        expected = average_weights(before[: n + 1])
        expect(mean.keys() == expected.keys(), "The mean should have the names of the checkpoints.")
        expect(
            n == 1 or not torch.allclose(mean["a"], halves["a"]),
            "The newest checkpoint counts for half: n checkpoints are in the mean already.",
        )
        for name in expected:
            same(mean[name], expected[name], f"The mean of {n + 1} checkpoints, {name},")
    for now, was in zip(checkpoints, before, strict=True):
        unchanged = all(torch.equal(now[name], was[name]) for name in was)
        expect(unchanged, "A checkpoint was changed.")


# %%
def running_mean(
    mean: dict[str, Tensor], checkpoint: dict[str, Tensor], n: int
) -> dict[str, Tensor]:
    """The mean of n + 1 checkpoints, from the mean of n and one more."""
    raise NotImplementedError  # your attempt


check_4_2(running_mean)

# %% [markdown]
# > <details><summary>Answer 4.2</summary>
# >
# > The first figure is that of the last checkpoint alone, and each further one adds an older checkpoint to the mean.
# > Two things work against each other. The mean cancels out the noise of individual updates, which lowers the loss,
# > the more so while the rate is high. But older checkpoints are worse models, and they pull the mean back, the more
# > so while the model is still learning fast. The longer a run, the more older checkpoints it can use.
# >
# > </details>


# %%
# @title Answer 4.2: the code
def answer_4_2(mean: dict[str, Tensor], checkpoint: dict[str, Tensor], n: int) -> dict[str, Tensor]:
    """The mean of n + 1 checkpoints, from the mean of n and one more."""
    return {name: m + (checkpoint[name] - m) / (n + 1) for name, m in mean.items()}


@example
def example_answer_4_2() -> Chart:
    """The validation loss of the mean of the last checkpoints, on 200 pairs,
    by how many there are in the mean."""
    (trained, tokenizer, _), history, checkpoints = live_run()
    model = LIVE.make_model(len(tokenizer)).to(best_device())
    val = to_pairs(tokenizer, load_split("val")[:200])
    mean = checkpoints[-1]
    rows = []
    for n in range(1, len(checkpoints) + 1):
        if n > 1:
            mean = answer_4_2(mean, checkpoints[-n], n - 1)
        model.load_state_dict(mean, strict=False)  # a tied weight is in it once
        loss = validation_loss(model, val)
        rows.append({"checkpoints": n, "nats per token": loss, "run": f"{len(history):,} updates"})
    print({row["checkpoints"]: round(row["nats per token"], 3) for row in rows})
    trained.load_state_dict(checkpoints[-1], strict=False)
    assert math.isclose(rows[0]["nats per token"], validation_loss(trained, val), rel_tol=1e-4)
    assert len(history) < 2000 or rows[-1]["nats per token"] < rows[0]["nats per token"]
    return curves(rows, "checkpoints", "nats per token", "run")


# %% [markdown]
# ## 6.1 How many heads can go
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
# @title The check of 6.1
@checks
def check_6_1(attempt: Callable[[Tensor, int, int], Tensor]) -> None:
    """A random matrix (d_model, h * d_v), one head's columns zero, and the given one as it was."""
    W_o = torch.randn(12, 12)
    before = W_o.clone()
    h = 3
    head = random.randrange(h)
    matrix = attempt(W_o, head, h)
    expect(torch.equal(W_o, before), "The matrix that was given has changed. Work on a clone.")
    expected, without_rows = before.clone(), before.clone()
    expected[:, 4 * head : 4 * head + 4] = 0
    without_rows[4 * head : 4 * head + 4] = 0
    expect(
        matrix.shape == W_o.shape,
        f"The matrix should keep its shape {tuple(W_o.shape)}, not {tuple(matrix.shape)}.",
    )
    expect(
        not torch.equal(matrix, without_rows),
        "These are rows, outputs of the layer. A head is a block of inputs.",
    )
    same(matrix, expected, f"The matrix without head {head} of {h}, counted from 0,")


# %%
def remove_head(W_o: Tensor, head: int, h: int) -> Tensor:
    """A copy of the matrix (d_model, h * d_v) that does not read this head, counted from 0."""
    raise NotImplementedError  # your attempt


check_6_1(remove_head)

# %% [markdown]
# > <details><summary>Answer 6.1</summary>
# >
# > A head vanishes if the columns of $W^O$ that read it are zero. The chart shows what each head costs on its own:
# > for most of them, next to nothing. You might conclude that most of them could go. But taken together, the cheaper
# > half costs far more than the sum of what each costs on its own: the heads stand in for each other. So the question
# > has two answers, one for each head alone and one for all together, and the second is what you can save. (The model
# > wasn't trained any further without them. If it were, more could go.)
# >
# > </details>


# %%
# @title Answer 6.1: the code
def answer_6_1(W_o: Tensor, head: int, h: int) -> Tensor:
    """A copy of the matrix (d_model, h * d_v) that does not read this head, counted from 0."""
    W_o = W_o.clone()
    W_o.unflatten(1, (h, -1))[:, head] = 0
    return W_o


@torch.no_grad()
def loss_without(model: Transformer, heads: Iterable[tuple[int, int]], pairs: list[Pair]) -> float:
    """The validation loss without some heads (layer, head) of cross-attention, counted from 0."""
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    try:
        for n, i in heads:
            W_o = model.decoder.layers[n].src_attn.W_o.weight
            W_o.copy_(answer_6_1(W_o, i, model.settings["h"]))
        return validation_loss(model, pairs)
    finally:
        model.load_state_dict(before)


@example
def example_answer_6_1() -> Chart:
    """What each head of the cross-attention is worth, in nats per token,
    and the least valuable half together."""
    model = our_model().model
    pairs = to_pairs(our_model().tokenizer, load_split("val")[:200])
    N, h = model.settings["N"], model.settings["h"]
    loss = validation_loss(model, pairs)
    heads = itertools.product(range(N), range(h))
    costs = {head: loss_without(model, [head], pairs) - loss for head in heads}
    half = sorted(costs, key=costs.get)[: N * h // 2]
    single = sum(costs[head] for head in half)
    together = loss_without(model, half, pairs) - loss
    print(f"{loss:.3f} nats; the cheaper half costs {single:.3f} more one by one", end=", ")
    print(f"{together:.3f} more together")
    assert validation_loss(model, pairs) == loss and together > single
    return heatmap(
        torch.tensor(list(costs.values())).view(N, h),
        [str(n + 1) for n in range(N)],
        [str(i + 1) for i in range(h)],
        axes=("layer", "head"), size=40, unit="nats per token",
    )  # fmt: skip


# %% [markdown]
# ## What comes next
#
# > That was the last exercise. Now change a part of your choice, as [Changing
# > it](the_annotated_transformer.ipynb#Changing-it) says.
