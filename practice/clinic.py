# %% [markdown]
# # The clinic: twelve models to repair
#
# > This is the third rung of practice: *diagnose*. Each model below learns. Its shapes fit, its loss falls, and it is ill. The cells are from the code of [The
# > Annotated Transformer](../the_annotated_transformer.ipynb), each with one mistake that people really make. Run the
# > cells from the top. In each case, *first* answer the question: which number in a run would have told you? Then
# > change the code until `check` finds nothing any more. What it measures is explained in [What the loss can't
# > see](../the_annotated_transformer.ipynb#What-the-loss-can't-see); the answers are folded.

# %%
# @title Where the document is, and imports
import copy
import functools
import math
import random
import sys
from pathlib import Path
from typing import Any
from unittest import mock

# the document lies in a folder above this one; a notebook runs in its own folder
sys.path += map(str, Path(globals().get("__file__", "clinic.ipynb")).resolve().parents)

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice import examine, mistakes
from practice.mistakes import HEALTHY
from the_annotated_transformer import BOS, EOS, LETTERS, PAD, Config, Pair, example, number_pair

if __name__ == "__main__" and not tat.in_notebook(__name__):
    print("The clinic: mend a cell and run this file again, or open clinic.ipynb. One by one:")

# %%
# @title What a check does
NUMBERS = [7, 1, 12, 4, 30, *random.Random(0).sample(range(1000), 27)]
NO_NUMBER = (
    "ILL  {} tests measure no number but NaN. Does the mask leave each row a key? Where all "
    "are hidden, the softmax is 0 / 0"
)


def behaviour() -> dict[str, Any]:
    """What the code in force computes with the weights of a fresh model, and what it learns."""
    patient = examine.of_document(HEALTHY)
    with torch.no_grad():
        for p in patient.model.parameters():
            p.mul_(4 if p.dim() == 2 else 1)  # so that attention is sharp, and each line counts
    pairs = [tat.number_pair(n) for n in NUMBERS]
    results: dict[str, Any] = {"translation": mistakes.translate(patient.model, pairs[:8])}
    ids = [i for pair in pairs for i in (*pair.src, *pair.tgt)]
    results["pairs"] = torch.tensor(ids).float()
    results["logits"] = patient.predict(pairs)
    for update in ("first", "second"):
        results[f"loss of the {update} update"] = torch.tensor(patient.update(pairs))
        for name, p in patient.model.named_parameters():
            gradient = torch.zeros(1) if p.grad is None else p.grad.clone()
            results[f"gradient of {name} in the {update} update"] = gradient
            results[f"{name} after the {update} update"] = p.detach().clone()
    return results


BEHAVIOUR = behaviour()  # of the document, before anything is put into it


def difference() -> str | None:
    """In what the code in force differs from the document's, if in anything."""
    for name, result in behaviour().items():
        expected = BEHAVIOUR[name]
        if name == "translation":
            agree = all(map(examine.same, result, expected))
        else:  # up to rounding
            agree = result.shape == expected.shape
            agree = agree and (result - expected).norm() <= 0.02 * expected.norm()
        if not agree:
            return name
    return None


def check(*exams: str, **parts: Any) -> None:
    """Put `parts` into the document's code, examine a model, and print what is ill.

    `Class__method` stands for a method. Where nothing is ill, all is compared with the document's.
    """
    with mistakes.put(parts):
        pairs = [tat.number_pair(n) for n in NUMBERS]
        findings = examine.examine(functools.partial(examine.of_document, HEALTHY), pairs, exams)
        sick = [finding for finding in findings if finding.ill]
        differs = None if sick else difference()
    measured = [finding for finding in sick if not math.isnan(finding.value or 0)]
    if len(measured) < len(sick):
        print(NO_NUMBER.format(len(sick) - len(measured)))
    if differs:
        print(f"not yet: {len(findings)} tests find nothing; unlike the document's: {differs}")
    if not sick and not differs:
        print(f"well: {len(findings)} tests, and nothing ill")
    print(*measured, sep="\n", end="\n" if measured else "")


# %% [markdown]
# ## 1 The heads
#
# > The loss falls faster than in a healthy model; what is written is wrong. **Which number would have told you?**


# %% tags=["hide-output"]
def split_heads(x: Tensor, h: int) -> Tensor:
    """Cut the last dimension into h heads: (B, T, h * d) to (B, h, T, d)."""
    return x.reshape(x.size(0), h, x.size(1), -1)


check("wires", split_heads=split_heads)


# %%
# @title Answer 1
@example
def example_answer_1() -> None:
    """The shape is right, but a head got some of the positions, whole.
    The mask counts rows and hides the wrong ones, so the future leaks."""
    check("wires", split_heads=lambda x, h: x.unflatten(-1, (h, -1)).transpose(1, 2))


# %% [markdown]
# ## 2 The mask
#
# > A weight of zero is a weight of zero, isn't it? **Before you run it:** does the mask hide the future here?


# %% tags=["hide-output"]
def attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: Any = None
) -> tuple:
    """Equation (1)."""
    weights = (query @ key.mT / query.size(-1) ** 0.5).softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ value, weights


check("wires", "inventory", attention=attention)


# %%
# @title Answer 2
@example
def example_answer_2() -> None:
    """The hidden keys stay in the softmax's denominator,
    so each weight tells how well the future would have fitted."""

    def attention(
        query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, dropout: Any = None
    ) -> tuple:
        scores = query @ key.mT / query.size(-1) ** 0.5
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -torch.inf)
        weights = scores.softmax(-1)
        return weights @ value, weights

    check("wires", "inventory", attention=attention)


# %% [markdown]
# ## 3 The shift
#
# > The loss is a little higher than usual and falls as usual; the first digit is missing. **Which of your numbers
# > would have told you?** (Accuracy on held-out numbers, computed by the same `Batch`, is 98 %.)


# %% tags=["hide-output"]
def init(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
    """Sources and targets with everything the model needs of them."""
    self.src = src
    self.src_mask = tat.source_mask(src, pad)
    if tgt is not None:
        self.tgt, self.tgt_y = tgt[:, :-2], tgt[:, 2:]
        self.tgt_mask = tat.target_mask(self.tgt, pad)
        self.ntokens = int((self.tgt_y != pad).sum())


check("wires", "loss", Batch____init__=init)


# %%
# @title Answer 3
@example
def example_answer_3() -> None:
    """A shift of one.
    The loss recomputed from logits, position t against token t + 1, was not the one reported."""

    def init(self, src: Tensor, tgt: Tensor | None = None, pad: int = PAD) -> None:
        self.src = src
        self.src_mask = tat.source_mask(src, pad)
        if tgt is not None:
            self.tgt, self.tgt_y = tgt[:, :-1], tgt[:, 1:]
            self.tgt_mask = tat.target_mask(self.tgt, pad)
            self.ntokens = int((self.tgt_y != pad).sum())

    check("wires", "loss", Batch____init__=init)


# %% [markdown]
# ## 4 Padding in the loss
#
# > The loss is lower than a colleague's for the same model. **Is the model better?** (What is returned is a sum over
# > the target's tokens.)


# %% tags=["hide-output"]
def batch_loss(model: nn.Module, batch: Any, eps: float) -> Tensor:
    """The loss of a batch, summed over its tokens."""
    logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)  # (B, T, vocab)
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch.tgt_y.flatten()) * batch.ntokens


check("loss", batch_loss=batch_loss)


# %%
# @title Answer 4
@example
def example_answer_4() -> None:
    """Padding is easy to predict and lowers the mean:
    recomputed from the logits, without padding, the loss is higher. ignore_index leaves it out."""

    def batch_loss(model: nn.Module, batch: Any, eps: float) -> Tensor:
        logits = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask)
        logits = logits.flatten(0, 1)
        target = batch.tgt_y.flatten()
        return nn.functional.cross_entropy(logits, target, ignore_index=PAD, reduction="sum")

    check("loss", batch_loss=batch_loss)


# %% [markdown]
# ## 5 The end
#
# > All digits are right. Then come more digits. **What would eight pairs, learnt by heart, have shown after two
# > seconds?**


# %% tags=["hide-output"]
def with_end(n: int) -> Pair:
    """The letters of a number as source, its digits as target."""
    source = [LETTERS.index(letter) for letter in tat.german_number(n)]
    target = [LETTERS.index(digit) for digit in str(n)]
    return Pair([*source, EOS], [BOS, *target])


check("heart", number_pair=with_end)


# %%
# @title Answer 5
@example
def example_answer_5() -> None:
    """Without EOS in the targets nothing ever tells the model to stop.
    Its loss can't show it: it is never asked."""
    check("heart", number_pair=number_pair)


# %% [markdown]
# ## 6 A cached step
#
# > The model is trained well, and the decoder with a cache writes nonsense. **Which two numbers have to agree?**


# %% tags=["hide-output"]
def step(self, tokens: Tensor) -> Tensor:
    """The next token of each sentence (B) to the logits of the one after it (B, vocab)."""
    x = self.model.tgt_embed(tokens.unsqueeze(1))  # (B, 1, d_model)
    for layer in self.layers:  # each looks at the keys and values that are kept
        x = layer(x, None, self.src_mask, None)
    self.length += 1
    return self.model.generator.logits(self.model.decoder.norm(x))[:, 0]


check("heart", CachedDecoder__step=step, translate=mistakes.cached)


# %%
# @title Answer 6
@example
def example_answer_6() -> None:
    """`tgt_embed(tokens, self.length)`.
    With a cache and without one, the same tokens must come out."""
    check("heart", translate=mistakes.cached)


# %% [markdown]
# ## 7 One hundred per cent
#
# > "100 % of the held-out numbers!" `translate` is the function that wrote them. **What did it read?** There are two
# > mistakes in this cell, and each hides the other.


# %% tags=["hide-output"]
def subsequent_mask(size: int) -> Tensor:
    """Which positions may be seen: (1, size, size)."""
    return torch.ones(1, size, size, dtype=torch.bool)


def translate(model: nn.Module, pairs: list[Pair], longest: int = 8) -> list[list[int]]:
    """Translations of the sources, as ids up to and with EOS."""
    batch = tat.make_batch(pairs)
    with torch.inference_mode(), tat.evaluating(model):
        best = model(batch.src, batch.tgt, batch.src_mask, batch.tgt_mask).argmax(-1)
    return [mistakes.until_end(row) for row in best.tolist()]


check("wires", "references", subsequent_mask=subsequent_mask, translate=translate)


# %%
# @title Answer 7
@example
def example_answer_7() -> None:
    """It read the reference, and without a mask the very token that it should say.
    `.tril()`, and decode one by one."""
    check("wires", "references")


# %% [markdown]
# ## 8 One sentence for all
#
# > What it writes is fluent, and always the same. On real sentences, the loss of such a model is only a little too
# > high. **What would it cost this model to read another source?**


# %% tags=["hide-output"]
def forward(
    self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None
) -> Tensor:
    """x (B, T, d_model), memory (B, S, d_model), src_mask (B, 1, S), tgt_mask (B, T, T)."""
    x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
    x = self.sublayer[1](x, lambda y: self.src_attn(y, y, y, tgt_mask))
    return self.sublayer[2](x, self.feed_forward)


check("wires", "gradient", DecoderLayer__forward=forward)


# %%
# @title Answer 8
@example
def example_answer_8() -> None:
    """Cross-attention: queries from x, keys and values from the memory.
    Another source must cost something."""

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None
    ) -> Tensor:
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        x = self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)

    check("wires", "gradient", DecoderLayer__forward=forward)


# %% [markdown]
# ## 9 Half of it learns
#
# > It learns, only not very well. **Which number is 0 and should not be?**


# %% tags=["hide-output"]
def encode(self, src: Tensor, src_mask: Tensor | None) -> Tensor:
    """Source ids (B, S) with mask (B, 1, S) to memory (B, S, d_model)."""
    with torch.no_grad():  # the memory is only read
        return self.encoder(self.src_embed(src), src_mask)


check("wires", "gradient", Transformer__encode=encode)


# %%
# @title Answer 9
@example
def example_answer_9() -> None:
    """The repair takes away `no_grad`, with which the encoder got no gradient
    and stayed as random as it was born; the decoder made do with it."""
    check("wires", "gradient")


# %% [markdown]
# ## 10 An optimiser for somebody else
#
# > The loss goes up and down a little and doesn't fall. **How far do the weights move in one step?**


# %% tags=["hide-output"]
def begin(self, model: nn.Module, config: Config) -> None:
    """A model with Adam and the schedule of Equation (3)."""
    self.optimizer = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9)
    self.model = copy.deepcopy(model)  # ours, whatever others do with theirs
    self.config = config
    self.step = 0


check("gradient", Trainer____init__=begin)


# %%
# @title Answer 10
@example
def example_answer_10() -> None:
    """Adam held the weights of the model that was copied.
    Copy first, then give Adam the weights of the copy."""
    check("gradient")


# %% [markdown]
# ## 11 A norm
#
# > Normalised is normalised. **Over what?**


# %% tags=["hide-output"]
def normalise(self, x: Tensor) -> Tensor:
    """x (B, T, d_model) with mean 0 and variance 1."""
    mean = x.mean(1, keepdim=True)
    variance = x.var(1, keepdim=True, unbiased=False)
    return self.weight * (x - mean) / (variance + self.eps).sqrt() + self.bias


Norm = type("Norm", (nn.LayerNorm,), {"forward": normalise})
with mock.patch.object(nn, "LayerNorm", Norm):
    check("wires")


# %%
# @title Answer 11
@example
def example_answer_11() -> None:
    """Over the last dimension.
    The mean over a sentence contains its end, so the future leaks past a mask that is right."""
    check("wires")


# %% [markdown]
# ## 12 A gradient that grows
#
# > The loss falls, then wanders off. **What is the gradient of the same pairs, computed again?**


# %% tags=["hide-output"]
def gradient(self, pairs: list[Pair]) -> float:
    """The gradient of the mean loss per token of `pairs`; returns that loss, in nats."""
    batch = tat.make_batch(pairs)
    loss = tat.batch_loss(self.model, batch, self.config.smoothing) / batch.ntokens
    loss.backward()
    return loss.item()


check("gradient", Trainer__gradient=gradient)


# %%
# @title Answer 12
@example
def example_answer_12() -> None:
    """`self.model.zero_grad()` before `backward`, which adds to the gradient that is there."""

    def gradient(self, pairs: list[Pair]) -> float:
        self.model.zero_grad()
        batch = tat.make_batch(pairs)
        loss = tat.batch_loss(self.model, batch, self.config.smoothing) / batch.ntokens
        loss.backward()
        return loss.item()

    check("gradient", Trainer__gradient=gradient)


# %% [markdown]
# ## The last case: an interview
#
# > "Here are a hundred lines. They learn. They don't work. You have half an hour." That's a common interview by now,
# > so here is one to practise on: `practice/interview.py`, a Transformer of one file with four mistakes.
# > `python practice/interview.py` starts the clock, examines the model, and says how long you've taken. Read the code
# > before you run it a second time. `python practice/interview.py key` explains.
# >
# > Next rung: let it learn. If all its functions compute with PyTorch, `judge mine.py --learn` gives them fresh
# > weights: in a minute they read German numbers; with `--learn multi30k --run runs/learned`, they learn a language.
