"""The 2022 edition's way of training, re-created in our own code to measure its speed.

No line of that edition is copied. We re-created these facts about it, which we found by reading and running it:

- data: words by spaCy's rules, if seen at least twice, one vocabulary per language; sentences in random order, 32 to a
  micro-batch, sources and targets between `<s>` and `</s>`, both padded (or cut) to 72 positions;
- model: pre-norm with a final norm per stack, LayerNorm by hand (unbiased deviation, eps outside the root), attention
  step by step with -1e9 at masked keys, biases in all projections, three untied matrices, dropout 0.1 everywhere: on
  embeddings, on attention weights, inside the feed-forward layers, on sublayers;
- loss: log-softmax at all 71 positions, including padding; dense smoothed targets of shape (n, V), cloned twice; KLDivLoss,
  divided by the micro-batch's own tokens;
- update: gradients of 10 micro-batches, applied at the first of every ten; plain Adam; a schedule that steps at every
  micro-batch.

Where we depart from that edition, the choice favours it. It ran spaCy again in every epoch and included words of the
validation and test sets. Here words become numbers once, before any clock runs, and only training words are included.
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from the_annotated_transformer import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    UNK,
    Batch,
    Embeddings,
    Pair,
    positional_encoding,
    rate,
    smoothed_loss,
    source_mask,
    subsequent_mask,
)

LENGTH = 72  # positions of every source and every target
MICRO_BATCH = 32  # sentence pairs
ACCUMULATE = 10  # micro-batches per update
P_DROP = 0.1
WARMUP = 3000  # of the schedule, in micro-batches


class WordPairs(NamedTuple):
    """Training examples as word ids, and the sizes of the two vocabularies."""

    pairs: list[Pair]
    src_vocab: int
    tgt_vocab: int


def learn_vocabulary(sentences: list[list[str]], at_least: int = 2) -> dict[str, int]:
    """A number for every word that occurs `at_least` times, after the specials."""
    counts = Counter(word for sentence in sentences for word in sentence)
    kept = [word for word, n in counts.items() if n >= at_least and word not in SPECIALS]
    return {word: i for i, word in enumerate([*SPECIALS, *kept])}


def word_pairs(texts: list[tuple[str, str]], languages: tuple[str, str] = ("de", "en")) -> WordPairs:
    """Sentence pairs as word ids, one vocabulary per language."""
    import spacy

    sides, sizes = [], []
    for language, column in zip(languages, zip(*texts, strict=True), strict=True):
        cut = spacy.blank(language).tokenizer
        sentences = [[token.text for token in cut(text)] for text in column]
        vocabulary = learn_vocabulary(sentences)
        sides.append([[BOS, *(vocabulary.get(word, UNK) for word in words), EOS] for words in sentences])
        sizes.append(len(vocabulary))
    return WordPairs([Pair(src, tgt) for src, tgt in zip(*sides, strict=True)], *sizes)


def fixed_batch(pairs: list[Pair], length: int = LENGTH) -> Batch:
    """Pairs as a batch with sources and targets (both B, length) padded or cut to one length."""
    src, tgt = (torch.tensor([(row + [PAD] * length)[:length] for row in side]) for side in zip(*pairs, strict=True))
    return Batch(src, tgt)


class LayerNorm(nn.Module):
    """Normalisation by hand: the unbiased standard deviation, and eps added to it."""

    def __init__(self, d_model: int, eps: float = 1e-6):
        super().__init__()
        self.gain, self.bias, self.eps = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model)), eps

    def forward(self, x: Tensor) -> Tensor:
        """x (..., d_model) to the same shape."""
        centred = x - x.mean(-1, keepdim=True)
        return self.gain * centred / (x.std(-1, keepdim=True) + self.eps) + self.bias


def unfused_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor, dropout: Callable) -> tuple[Tensor, Tensor]:
    """Equation (1) step by step, -1e9 where mask (B, 1, T or 1, S) is false: output and weights after dropout."""
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))  # (B, h, T, S)
    weights = dropout(scores.masked_fill(~mask, -1e9).softmax(-1))
    return weights @ V, weights


class Attention(nn.Module):
    """Multi-head attention with biases; it keeps the weights of its last call."""

    def __init__(self, d_model: int, h: int):
        super().__init__()
        self.h, self.dropout, self.weights = h, nn.Dropout(P_DROP), None
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Queries from x (B, T, d_model), keys and values from memory (B, S, d_model), mask (B, T or 1, S)."""
        projected = (self.W_q(x), self.W_k(memory), self.W_v(memory))
        Q, K, V = (side.unflatten(-1, (self.h, -1)).transpose(1, 2) for side in projected)  # (B, h, T or S, d_k)
        heads, self.weights = unfused_attention(Q, K, V, mask.unsqueeze(1), self.dropout)
        return self.W_o(heads.transpose(1, 2).flatten(2))  # (B, T, d_model)


class Residual(nn.Module):
    """Pre-norm: normalise, apply the sublayer, apply dropout, add."""

    def __init__(self, d_model: int):
        super().__init__()
        self.norm, self.dropout = LayerNorm(d_model), nn.Dropout(P_DROP)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """x (B, T, d_model) to the same shape."""
        return x + self.dropout(sublayer(self.norm(x)))


class Layer(nn.Module):
    """A layer of the encoder, or of the decoder if it attends to a memory."""

    def __init__(self, d_model: int, d_ff: int, h: int, decoder: bool):
        super().__init__()
        self.own, self.cross = Attention(d_model, h), Attention(d_model, h) if decoder else None
        inner = (nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(P_DROP), nn.Linear(d_ff, d_model))
        self.feed_forward = nn.Sequential(*inner)
        self.residual = nn.ModuleList(Residual(d_model) for _ in range(3 if decoder else 2))

    def forward(
        self, x: Tensor, mask: Tensor, memory: Tensor | None = None, memory_mask: Tensor | None = None
    ) -> Tensor:
        """x (B, T, d_model) with its mask, and the memory (B, S, d_model) with its mask in the decoder."""
        x = self.residual[0](x, lambda x: self.own(x, x, mask))
        if self.cross is not None:
            x = self.residual[1](x, lambda x: self.cross(x, memory, memory_mask))
        return self.residual[-1](x, self.feed_forward)


class Model(nn.Module):
    """Two stacks with their embeddings and the output layer; nothing is tied."""

    def __init__(self, src_vocab: int, tgt_vocab: int, N: int, d_model: int, d_ff: int, h: int):
        super().__init__()
        self.embeddings = nn.ModuleList(Embeddings(d_model, vocab) for vocab in (src_vocab, tgt_vocab))
        self.register_buffer("positions", positional_encoding(LENGTH, d_model))
        self.dropout = nn.Dropout(P_DROP)
        self.encoder = nn.ModuleList(Layer(d_model, d_ff, h, decoder=False) for _ in range(N))
        self.decoder = nn.ModuleList(Layer(d_model, d_ff, h, decoder=True) for _ in range(N))
        self.norms = nn.ModuleList(LayerNorm(d_model) for _ in range(2))
        self.output = nn.Linear(d_model, tgt_vocab)
        for matrix in (p for p in self.parameters() if p.dim() > 1):
            nn.init.xavier_uniform_(matrix)

    def embed(self, side: int, ids: Tensor) -> Tensor:
        """Ids (B, T) of the source (side 0) or the target (side 1) to vectors (B, T, d_model)."""
        return self.dropout(self.embeddings[side](ids) + self.positions[: ids.size(1)])

    def encode(self, src: Tensor, mask: Tensor) -> Tensor:
        """Sources (B, S) to memory (B, S, d_model)."""
        memory = self.embed(0, src)
        for layer in self.encoder:
            memory = layer(memory, mask)
        return self.norms[0](memory)

    def decode(self, memory: Tensor, src_mask: Tensor, tgt: Tensor, tgt_mask: Tensor) -> Tensor:
        """Targets (B, T) to vectors (B, T, d_model)."""
        x = self.embed(1, tgt)
        for layer in self.decoder:
            x = layer(x, tgt_mask, memory, src_mask)
        return self.norms[1](x)

    def forward(self, batch: Batch) -> Tensor:
        """Log-probabilities (B, T, V) at every position, including padding."""
        memory = self.encode(batch.src, batch.src_mask)
        return self.output(self.decode(memory, batch.src_mask, batch.tgt, batch.tgt_mask)).log_softmax(-1)


def greedy(model: Model, src: Tensor) -> Tensor:
    """That edition's loop for one sentence, src (1, LENGTH): it runs the whole prefix at each step and stops only at LENGTH."""
    memory, mask = model.encode(src, source_mask(src)), source_mask(src)
    ys = torch.full((1, 1), BOS)
    for _ in range(LENGTH - 1):
        x = model.decode(memory, mask, ys, subsequent_mask(ys.size(1)))
        ys = torch.cat((ys, model.output(x[:, -1]).log_softmax(-1).argmax(-1, keepdim=True)), dim=1)
    return ys


class DenseSmoothing(nn.Module):
    """The divergence from smoothed targets, held in memory as a matrix (n, V), summed over all positions.

    The right token gets 1 - eps; the others share eps, including `<s>` and `<unk>` but not padding.
    """

    def __init__(self, eps: float = 0.1):
        super().__init__()
        self.eps, self.divergence = eps, nn.KLDivLoss(reduction="sum")

    def targets(self, log_p: Tensor, target: Tensor) -> Tensor:
        """The distribution for each target (n): (n, V), zero in the rows of padding."""
        q = log_p.detach().clone().fill_(self.eps / (log_p.size(1) - 2))
        q.scatter_(1, target[:, None], 1 - self.eps)
        q.select(1, PAD).zero_()
        return q.index_fill_(0, (target == PAD).nonzero().flatten(), 0.0)

    def forward(self, log_p: Tensor, target: Tensor) -> Tensor:
        """log_p (n, V), target (n); returns a scalar."""
        return self.divergence(log_p, self.targets(log_p, target).clone())


class Trainer:
    """The model with its loss, optimiser and schedule; `update` learns from the micro-batches of one update."""

    def __init__(self, model: Model, d_model: int):
        self.model, self.loss = model.train(), DenseSmoothing()
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: rate(step, d_model, factor=1.0, warmup=WARMUP)
        )

    def update(self, micro_batches: list[list[Pair]]) -> int:
        """The gradients of the micro-batches, with one step of the optimiser after the first; returns their target tokens."""
        tokens = 0
        for i, pairs in enumerate(micro_batches):
            batch = fixed_batch(pairs)
            loss = self.loss(self.model(batch).flatten(0, 1), batch.tgt_y.flatten()) / batch.ntokens
            loss.backward()
            if i == 0:  # the other nine gradients wait for the next call
                self.optimizer.step()
                self.optimizer.zero_grad()
            self.schedule.step()
            tokens += batch.ntokens
        return tokens


def self_check() -> None:
    """Assert, within seconds, that the re-creation is what this module's docstring says."""
    check_parts()
    torch.manual_seed(0)
    model = Model(30, 40, N=2, d_model=16, d_ff=32, h=2)
    check_dropout(model)
    pairs = [Pair([BOS, 5, 6, 7, EOS], [BOS, 8, 9, EOS]), Pair([BOS, 5, EOS], [BOS, 9, 8, 7, 6, EOS])]
    check_model(model.eval(), pairs)
    check_loss(model(fixed_batch(pairs)).detach().flatten(0, 1), fixed_batch(pairs).tgt_y.flatten())
    trainer = Trainer(model, 16)
    before = [p.detach().clone() for p in model.parameters()]
    assert trainer.update([pairs, pairs[:1]]) == 3 + 5 + 3  # targets that are not padding
    assert any(not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def check_parts() -> None:
    """LayerNorm of [1, 0, 0, 0] begins with 1.50 (PyTorch: 1.73); unfused attention equals PyTorch's."""
    assert abs(LayerNorm(4)(torch.tensor([1.0, 0.0, 0.0, 0.0]))[0].item() - 1.5) < 1e-4
    Q, K, V = torch.randn(3, 2, 4, 5, 8)  # (B=2, h=4, T=S=5, d_k=8) each
    mask = torch.tensor([True, True, True, False, False]).expand(2, 1, 5, 5)
    ours = unfused_attention(Q, K, V, mask, nn.Identity())[0]
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(Q, K, V, attn_mask=mask))


def check_dropout(model: Model) -> None:
    """Every dropout rate is 0.1; embeddings have one dropout, and so has each sublayer, attention and feed-forward."""
    rates = [module.p for module in model.modules() if isinstance(module, nn.Dropout)]
    N = len(model.encoder)
    assert rates == [P_DROP] * (1 + N * (2 + 2) + N * (3 + 3))


def check_model(model: Model, pairs: list[Pair]) -> None:
    """Padding changes nothing at real positions, and no prediction depends on later targets."""
    wide, narrow = fixed_batch(pairs), fixed_batch(pairs, 8)
    assert wide.src.shape == (2, LENGTH) and wide.tgt_y.shape == (2, LENGTH - 1)
    torch.testing.assert_close(model(wide)[:, :5], model(narrow)[:, :5])
    other = fixed_batch([pairs[0], Pair(pairs[1].src, [*pairs[1].tgt[:4], 20, EOS])])
    same = (model(wide) - model(other))[1].abs().amax(-1) < 1e-6
    assert same[:4].all() and not same[4]


def check_loss(log_p: Tensor, target: Tensor, eps: float = 0.1) -> None:
    """Padding has no part in the loss, and the loss equals this edition's except for two constants.

    This edition also gives the right token a share of eps; with eps * (V - 2) / (V - 1), DenseSmoothing has the same targets.
    And KLDivLoss subtracts the entropy of the targets. After correcting for both, loss and gradient agree.
    """
    n, V, real = int((target != PAD).sum()), log_p.size(1), target != PAD
    noise = torch.where(real[:, None], log_p, torch.randn_like(log_p))
    assert torch.equal(DenseSmoothing()(log_p, target), DenseSmoothing()(noise, target))
    torch.testing.assert_close(DenseSmoothing().targets(log_p, target).sum(1), real.float())

    spread = eps / (V - 1)
    right = 1 - eps + spread
    entropy = -(right * math.log(right) + (V - 2) * spread * math.log(spread))
    scores = log_p.clone().requires_grad_()
    dense = DenseSmoothing(eps * (V - 2) / (V - 1))(scores.log_softmax(-1), target)
    ours = smoothed_loss(scores, target, eps)
    torch.testing.assert_close(dense, ours - n * entropy, rtol=1e-4, atol=1e-4)
    gradients = [torch.autograd.grad(loss, scores)[0] for loss in (dense, ours)]
    torch.testing.assert_close(*gradients)
