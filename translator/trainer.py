"""The trainer: a model with its objective, optimisers and schedule, in one process or several.

The gradient of an update is the sum over its target tokens divided by their number. This holds however the update is split:
into micro-batches one after the other (accumulation), or among processes (data parallelism). One line of `backward` serves
both.
"""

import math
from contextlib import nullcontext

import torch
from torch import nn

from the_annotated_transformer import Pair, Transformer, make_batch, rate, split_rows
from translator.architecture import check_loss
from translator.losses import Objective
from translator.optimizers import averaged_copy, make_optimizers, update_average
from translator.processes import processes
from translator.settings import Settings
from translator.sharding import shard, whole


def backward(objective: nn.Module, pairs: list[Pair], accumulate: int, device: torch.device) -> float:
    """Add the gradient of the mean loss per target token of an update; returns this process's part of that mean."""
    rank, world = processes()
    pieces = split_rows(pairs, world * accumulate)[rank::world]
    tokens = sum(len(pair.tgt) - 1 for pair in pairs)  # of the whole update, over all micro-batches and processes
    total = 0.0
    for i, piece in enumerate(pieces):
        # whole copies exchange their gradients once per update; parts, to save memory, after each micro-batch
        wait = isinstance(objective, nn.parallel.DistributedDataParallel) and i < len(pieces) - 1
        with objective.no_sync() if wait else nullcontext():
            loss = objective(make_batch(piece).to(device)) / tokens
            (loss * world).backward()  # PyTorch averages over processes; we want the sum
        total += loss.item()
    return total


class Trainer:
    """A model with its optimisers and schedule; `update` learns from one batch of pairs (Section 5).

    Each update seeds its own dropout, so an interrupted run draws the same numbers when it continues. `averaged` is a second
    set of weights, an exponential moving average of the trained ones. After s updates its decay is s / (s + 9), until that
    exceeds `ema`; until then it averages over about the last tenth of the run. An update whose gradient is not finite changes
    no weight; there were `skipped` of them in all, and the last `in_a_row` updates were such. With `sharded`, each process
    keeps only its part of the weights, of their averages and of the optimisers' state.
    """

    def __init__(self, model: Transformer, config: Settings, device: torch.device | None = None, sharded: bool = False):
        self.device = device or torch.device("cpu")
        self.model, self.config, self.step, self.lr = model, config, 0, 0.0
        self.skipped = self.in_a_row = 0
        self.rank, self.world = processes()
        check_loss(model)
        self.averaged = averaged_copy(model) if config.ema else model
        self.loss = Objective(model, config.smoothing, config.r_drop)
        self.validation = Objective(self.averaged, eps=0.0) if config.ema else self.loss
        self.objective: nn.Module = self.loss
        if sharded:
            for objective in dict.fromkeys((self.loss, self.validation)):
                shard(objective, self.device)
        else:
            model.to(self.device)
            self.averaged.to(self.device)
            if self.world > 1:
                self.objective = nn.parallel.DistributedDataParallel(self.loss, forward_sync_buffers=False)
        self.optimizers = make_optimizers(model, config.optimizer)

    def gradient(self, pairs: list[Pair]) -> float:
        """Set the gradient of the mean loss per target token of `pairs`; returns this process's part of that mean."""
        self.model.zero_grad()
        return backward(self.objective, pairs, self.config.accumulate, self.device)

    def update(self, pairs: list[Pair]) -> float:
        """One update; returns this process's part of the mean loss per target token, or nan if the update was skipped."""
        self.step += 1
        torch.manual_seed(1_000_003 * self.config.seed + 1009 * self.step + self.rank)
        self.model.train(self.step > self.config.dropout_after)  # training mode changes nothing but dropout
        self.loss.r_drop = self.config.r_drop if self.step > self.config.r_drop_after else 0.0
        loss = self.gradient(pairs)
        norm = whole(nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf))
        if not norm.isfinite():  # the gradient, and so this answer, is the same in all processes
            self.skipped, self.in_a_row = self.skipped + 1, self.in_a_row + 1
            return math.nan
        self.in_a_row = 0
        self.lr = rate(self.step, self.config.d_model, self.config.factor, self.config.warmup)
        for optimizer in self.optimizers:
            optimizer.param_groups[0]["lr"] = self.lr
            optimizer.step()
        if self.config.ema:
            update_average(self.averaged, self.model, min(self.config.ema, self.step / (self.step + 9)))
        return loss
