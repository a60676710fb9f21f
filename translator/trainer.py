"""The trainer: a model with its loss, optimisers and schedule, in one process or several.

The gradient of an update is the sum over its target tokens divided by their number. This holds
however the update is split: into micro-batches one after the other (accumulation), or among
processes (data parallelism). One line of `gradient` serves both.
"""

import copy
import math
from contextlib import nullcontext
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import the_annotated_transformer as tat
from since_2017 import chunked_loss, sorted_batches
from the_annotated_transformer import PAD, Batch, Pair, Tokenizer, Transformer, make_batch, rate
from translator.processes import (
    is_sharded,
    load_weights,
    over_processes,
    part_for,
    processes,
    shard,
    weights_of,
    whole,
)
from translator.scoring import bleu_of
from translator.search import fast_beam
from translator.settings import Settings, growing_dropout

SENTENCES = 200  # that a validation translates: for `tiny`, in about a second of one core
LONGEST_TOKENS = 200  # of these sentences; a position of longer ones may not be learned


class Objective(nn.Module):
    """The smoothed loss of a batch, summed over its target tokens (Section 5.4).

    It is a module, so that PyTorch can wrap it. It scores real positions only, because the output
    matrix is the model's largest and padding needs no prediction.
    """

    def __init__(self, model: Transformer, eps: float):
        super().__init__()
        self.model, self.eps = model, eps

    def forward(self, batch: Batch, plain: bool = False) -> Tensor:
        """Batch to a scalar; if `plain`, the cross-entropy alone, without smoothing."""
        memory = self.model.encode(batch.src, batch.src_mask)
        x = self.model.decode(memory, batch.src_mask, batch.tgt, batch.tgt_mask)  # (B, T, d_model)
        real = batch.tgt_y != PAD
        eps = 0.0 if plain else self.eps
        return chunked_loss(self.model.generator, x[real], batch.tgt_y[real], eps)


# inference_mode would mark weights that shards gather, and training needs them next
@torch.no_grad()
def mean_loss(
    objective: Objective, pairs: list[Pair], tokens_per_batch: int, device: torch.device
) -> float:
    """The mean cross-entropy in nats per target token, over all processes."""
    # in batches of about `tokens_per_batch` tokens
    rank, world = processes()
    # a pair may be longer than one process's share of a batch
    budget = max(tokens_per_batch, max(len(side) for pair in pairs for side in pair))
    batches = sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], budget)
    loss, tokens = 0.0, 0
    with tat.evaluating(objective.model):
        # as many in each process, the surplus uncounted: sharded ones wait for each other in each
        for i in range(rank, -(-len(batches) // world) * world, world):
            batch = make_batch([pairs[row] for row in batches[i % len(batches)]]).to(device)
            batch_loss = objective(batch, plain=True).item()
            if i < len(batches):
                loss += batch_loss
                tokens += batch.ntokens
    total, count = over_processes(loss, tokens)
    return total / count


def sample(pairs: list[Pair]) -> list[Pair]:
    """The pairs that a validation translates: SENTENCES of all but the longest, evenly spread."""
    # evenly over all, because a file may be sorted by subject or length
    short = [pair for pair in pairs if max(map(len, pair)) <= LONGEST_TOKENS]
    count = min(len(short), SENTENCES)
    return [short[i * len(short) // count] for i in range(count)]


def greedy_bleu(model: Transformer, tokenizer: Tokenizer, pairs: list[Pair]) -> float:
    """BLEU of greedy translations of pairs, by a model that is whole in this process."""
    # as `translate` gives them, with at most 50 tokens more than their source
    device = next(model.parameters()).device
    translations = []
    # by length, so that little is padded
    pairs = sorted(pairs, key=lambda pair: len(pair.src))
    for start in range(0, len(pairs), 100):
        rows = pairs[start : start + 100]
        src = tat.pad_rows([pair.src for pair in rows]).to(device)
        best = fast_beam(model, src, tat.source_mask(src), src.size(1) + 50, beam=1)
        translations += [tokenizer.decode(hypotheses[0].ids) for hypotheses in best]
    return bleu_of(translations, [tokenizer.decode(pair.tgt) for pair in pairs])


def chance(sentences: int) -> float:
    """The difference in BLEU that two models may show by chance on so many sentences.

    That is two standard errors: bootstrapped in pairs, on 200 sentences of Multi30k's val, one is
    0.95 for the two shipped models.
    """
    return 2.0 * math.sqrt(SENTENCES / sentences)


def set_dropout(model: nn.Module, share: float) -> None:
    """Set the dropout on embeddings and sublayers' outputs; that inside sublayers stays."""
    for module in model.modules():
        inside = isinstance(module, tat.MultiHeadedAttention | tat.PositionwiseFeedForward)
        if isinstance(getattr(module, "dropout", None), nn.Dropout) and not inside:
            module.dropout.p = share


class ParallelTrainer:
    """A model with its optimisers and schedule; `update` learns from a batch of pairs (Section 5).

    Each update seeds its own dropout, so an interrupted run draws the same numbers when it
    continues. `averaged` is a second set of weights, an exponential moving average of the trained
    ones. After s updates its decay is s / (s + 9), until that exceeds `ema`; until then it averages
    over about the last tenth of the run. An update whose gradient is not finite changes no weight;
    there were `skipped` of them in all, and the last `in_a_row` updates were such. With `sharded`,
    each process keeps only its part of the weights, of their averages and of the optimisers' state.
    Who knows where the run ends sets `left` before an update: the share of the run that is still to
    come. `passes` through the text, so far, are what a growing dropout goes by.
    """

    def __init__(
        self, model: nn.Module, settings: Settings,
        device: torch.device | str = "cpu", sharded: bool = False,
    ):  # fmt: skip
        self.device = torch.device(device)
        self.model = model
        self.settings = settings
        self.step = 0
        self.lr = 0.0
        self.skipped = self.in_a_row = 0
        self.left: float | None = None
        self.passes = 0.0
        self.rank, self.world = processes()
        self.averaged = copy.deepcopy(model).requires_grad_(False).eval() if settings.ema else model
        loss = Objective(model, settings.smoothing)
        self.validation = Objective(self.averaged, eps=0.0) if settings.ema else loss
        self.objective: nn.Module = loss
        if sharded:
            for objective in dict.fromkeys((loss, self.validation)):  # once, if they are the same
                layers = [*objective.model.encoder.layers, *objective.model.decoder.layers]
                shard(objective, layers, self.device)
        else:
            model.to(self.device)
            self.averaged.to(self.device)
            if self.world > 1:
                self.objective = DistributedDataParallel(loss, forward_sync_buffers=False)
        self.optimizers = make_optimizers(model, settings.optimizer)

    def gradient(self, pairs: list[Pair]) -> float:
        """Set the gradient of the mean loss per target token of `pairs`.

        Returns this process's part of that mean.
        """
        # Each piece's loss is divided by all tokens of the update, not by its own: so pieces and
        # processes give the gradient of one large batch.
        self.model.zero_grad()
        mine = tat.split_rows(pairs, self.world * self.settings.accumulate)[self.rank :: self.world]
        tokens = sum(len(pair.tgt) - 1 for pair in pairs)  # of all micro-batches and processes
        total = 0.0
        for i, piece in enumerate(mine):
            # whole copies exchange gradients after the last piece; shards after each, for memory
            later = isinstance(self.objective, DistributedDataParallel) and i < len(mine) - 1
            with self.objective.no_sync() if later else nullcontext():
                loss = self.objective(make_batch(piece).to(self.device)) / tokens
                (loss * self.world).backward()  # PyTorch averages over processes; we want the sum
            total += loss.item()
        return total

    def rate(self) -> float:
        """The learning rate now: Equation (3), or the fall to zero of a run whose end is known."""
        settings = self.settings
        sizes = settings.d_model, settings.factor, settings.warmup
        if settings.schedule == "paper" or self.left is None:
            return rate(self.step, *sizes)
        return rate(settings.warmup, *sizes) * min(self.step / settings.warmup, self.left)

    def update(self, pairs: list[Pair]) -> float:
        """One update; returns what `gradient` does, or nan if the update was skipped."""
        self.step += 1
        if self.settings.dropout is None:
            set_dropout(self.model, growing_dropout(self.passes))
        torch.manual_seed(1_000_003 * self.settings.seed + 1009 * self.step + self.rank)
        self.model.train()
        loss = self.gradient(pairs)
        # without a limit the norm is needed all the same: it says whether the gradient is finite
        limit = self.settings.clip or math.inf
        norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), limit))
        if not norm.isfinite():  # the gradient, and so this answer, is the same in all processes
            self.skipped += 1
            self.in_a_row += 1
            return math.nan
        self.in_a_row = 0
        self.lr = self.rate()
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = self.lr
            optimizer.step()
        if self.settings.ema:
            decay = min(self.settings.ema, self.step / (self.step + 9))
            for a, p in zip(self.averaged.parameters(), self.model.parameters(), strict=True):
                a.lerp_(p.detach(), 1 - decay)
        return loss

    def validate(self, pairs: list[Pair]) -> float:
        """The averaged weights' mean cross-entropy in nats per target token, over all processes."""
        tokens = self.settings.tokens_per_batch // self.world
        return mean_loss(self.validation, pairs, tokens, self.device)

    def moments(self) -> dict[str, dict[str, Tensor]]:
        """The optimisers' state by weights' names: moving averages, Adam's number of updates."""
        states = {p: state for optimizer in self.optimizers for p, state in optimizer.state.items()}
        return {name: states[p] for name, p in weights_of(self.model).items()}

    def tensors(self) -> dict[str, Tensor]:
        """All that training goes on with, as KIND.NAME: weights, their averages and moments."""
        tensors_by_name = {f"model.{name}": p for name, p in weights_of(self.model).items()}
        for name, state in self.moments().items():
            tensors_by_name |= {f"{kind}.{name}": state[kind] for kind in state.keys() - {"step"}}
        if self.settings.ema:
            tensors_by_name |= {
                f"averaged.{name}": p for name, p in weights_of(self.averaged).items()
            }
        return tensors_by_name

    def load(self, tensors: dict[str, Tensor], step: int, skipped: int, path: Path) -> None:
        """Take over what `tensors` gave at this step of a training; `path` is for errors.

        Raises Refused, KeyError or RuntimeError if they are another model's.
        """
        models = {"model.": self.model}
        models |= {"averaged.": self.averaged} if self.settings.ema else {}
        for kind, model in models.items():
            load_weights(
                model,
                {n.removeprefix(kind): t for n, t in tensors.items() if n.startswith(kind)},
                path,
            )
        for name, state in self.moments().items():
            for kind in state.keys() - {"step"}:
                saved = tensors[f"{kind}.{name}"].view(state[kind].shape)
                state[kind].copy_(part_for(saved, state[kind]))
            if "step" in state:  # Adam's, which skipped updates do not count for
                state["step"].fill_(step - skipped)
        self.step, self.skipped = step, skipped


# --- Optimisers ---
#
# Muon (Jordan et al., 2024): Adam treats each entry of a matrix separately. Muon takes the
# gradient's moving average M = U S V^T and moves by U V^T: the same directions, all by the same
# length. It needs no singular value decomposition. Divided by its Frobenius norm, M has no singular
# value above 1. Each step X <- a X + b (X X^T) X + c (X X^T)^2 X then applies the polynomial
# a s + b s^3 + c s^5 to every singular value s and leaves U and V alone. Five steps bring all but
# the smallest to between about 0.7 and 1.2. Scaled by 0.3 sqrt(max(rows, columns)), the result has
# entries with a root mean square of about 0.3, like Adam's updates, so both share the schedule of
# Equation (3). Embeddings, output matrix, gains and biases stay with Adam, as the authors advise.
# PyTorch's `torch.optim.Muon` computes in 16 bits, which many processors can only emulate.


def orthogonalise_all(M: Tensor, steps: int = 5) -> Tensor:
    """Matrices M (n, rows, columns), their singular values near 1 (Jordan et al., 2024)."""
    X = M / M.norm(dim=(1, 2), keepdim=True).clamp(min=1e-7)
    X = X.mT if M.size(1) > M.size(2) else X  # so that X X^T is the smaller product
    for _ in range(steps):
        G = X @ X.mT
        G = torch.baddbmm(G, G, G, beta=-4.7750, alpha=2.0315)  # b G + c G G
        X = torch.baddbmm(X, G, X, beta=3.4445)  # a X + G X
    return X.mT if M.size(1) > M.size(2) else X


class Muon(torch.optim.Optimizer):
    """Moves matrices by orthogonalised moving averages of gradients, entries by about 0.3 `lr`."""

    def __init__(self, matrices: list[nn.Parameter], lr: float = 0.0, momentum: float = 0.95):
        super().__init__(matrices, {"lr": lr, "momentum": momentum})
        self.state.update({p: {"momentum": torch.zeros_like(p)} for p in matrices})

    @torch.no_grad()
    def step(self) -> None:
        """One update; orthogonalises like shapes together, but parts one by one, to save memory."""
        for group in self.param_groups:
            together: dict[torch.Size | nn.Parameter, list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:  # as Adam does; a matrix that nothing reads has none
                    together.setdefault(p if is_sharded(p) else p.shape, []).append(p)
            for alike in together.values():
                grads = [p.grad for p in alike]
                averages = [self.state[p]["momentum"] for p in alike]
                torch._foreach_lerp_(averages, grads, 1 - group["momentum"])
                # Nesterov's momentum: one step ahead
                ahead = torch._foreach_lerp(grads, averages, group["momentum"])
                moves = orthogonalise_all(torch.stack([whole(matrix) for matrix in ahead]))
                parts = [part_for(move, p) for move, p in zip(moves, alike, strict=True)]
                size = 0.3 * group["lr"] * max(alike[0].shape) ** 0.5
                torch._foreach_add_(alike, parts, alpha=-size)


def make_optimizers(model: Transformer, kind: str) -> list[torch.optim.Optimizer]:
    """Adam as the paper sets it (Section 5.3); for "muon", with Muon for all layers' matrices."""
    layers = {"adam": [], "muon": [*model.encoder.parameters(), *model.decoder.parameters()]}[kind]
    matrices = [p for p in layers if p.dim() == 2]
    vectors_and_tables = [
        p for p in model.parameters() if not any(p is matrix for matrix in matrices)
    ]
    adam = torch.optim.Adam(vectors_and_tables, lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    # Adam would do this at its first step; a checkpoint needs the tensors before that
    for p in vectors_and_tables:
        averages = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        adam.state[p] = {"step": torch.zeros((), device=p.device)} | averages
    return [adam, Muon(matrices)] if matrices else [adam]
