"""The training loop that survives interruptions: validation, checkpoints, a log, and a budget of time, epochs or updates.

It goes through the batches of each epoch, starting where the run stopped. At every checkpoint it measures the validation
loss and saves its state; both count as training time. If it is asked to stop, it saves its state and stops. PyTorch's `DataLoader` reads the batches from the store; with
`--workers 2`, two processes read ahead.
"""

import math
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader
from tqdm import tqdm

import the_annotated_transformer as document
from the_annotated_transformer import (
    Pair,
    Tokenizer,
    Transformer,
    Translator,
    evaluating,
    make_batch,
    padded_logits,
    sorted_batches,
)
from translator.architecture import check_decoder, fused_agrees
from translator.decoding import CachedLayer
from translator.files import read_json
from translator.losses import Objective
from translator.processes import Stopped, StopRequest, any_process, best_device, over_processes, processes
from translator.runs import (
    Budget,
    Log,
    Progress,
    Stopwatch,
    alone_in,
    has_state,
    load_checkpoint,
    prepare_run,
    progress_bar,
    save_best,
    save_checkpoint,
)
from translator.settings import Settings, build_model
from translator.store import TokenStore
from translator.trainer import Trainer
from translator.vocabulary import Recut
from translator.weights import load_translator, load_weights, weights_of


def validation_loss(trainer: Trainer, pairs: list[Pair]) -> float:
    """The mean cross-entropy in nats per target token under the averaged weights, over all processes."""
    return loss_of(trainer.validation, pairs, trainer.config.tokens_per_batch // trainer.world, trainer.device)


@torch.no_grad()  # inference_mode would mark weights that shards gather, and training needs them next
def loss_of(objective: Objective, pairs: list[Pair], tokens_per_batch: int, device: torch.device) -> float:
    """The mean cross-entropy in nats per target token, in batches of about this size, over all processes."""
    rank, world = processes()
    budget = max(tokens_per_batch, max(len(side) for pair in pairs for side in pair))
    batches = sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], budget)
    loss, tokens = 0.0, 0
    with evaluating(objective.model):
        for i in range(rank, -(-len(batches) // world) * world, world):  # as many in each: sharded ones work together
            batch = make_batch([pairs[row] for row in batches[i % len(batches)]]).to(device)
            found = objective(batch, plain=True).item()
            if i < len(batches):
                loss, tokens = loss + found, tokens + batch.ntokens
    total, count = over_processes(loss, tokens)
    return total / count


def loss_on_held_out(run: Path, translator: Translator) -> float | None:
    """The loss of a model on the held-out pairs of a run, or None if the run no longer has them."""
    store = TokenStore(run / "tokens" / "val.ids", len(translator.tokenizer))
    if not store.path.with_suffix(".starts").exists():
        return None
    budget = read_json(run / "config.json")["settings"].get("tokens_per_batch", Settings().tokens_per_batch)
    objective, pairs = Objective(translator.model, eps=0.0), store.__getitems__(range(len(store)))
    return loss_of(objective, pairs, budget, next(translator.model.parameters()).device)


class Every(NamedTuple):
    """How often there is a checkpoint: after this many updates, or minutes if they are given, whichever comes first."""

    steps: float = math.inf
    minutes: float | None = None

    def due(self, progress: Progress, last: float) -> bool:
        """Whether it is time for one, by the clock of this process; the last one ended after `last` seconds of training."""
        late = self.minutes is not None and progress.seconds - last >= 60 * self.minutes
        return late or progress.step % self.steps == 0


def fit(
    run: Path, trainer: Trainer, tokenizer: Tokenizer, pairs: TokenStore, val: list[Pair], budget: Budget, every: Every,
    workers: int, progress: Progress,
) -> Progress:  # fmt: skip
    """Train until the budget is spent, with checkpoints, a log and a progress bar; goes on from `progress`.

    Raises Stopped if a signal has asked for it, after the update at hand is saved. The first process's clock is everyone's.
    """
    first, saved, last = trainer.rank == 0, replace(progress), progress.seconds
    log, clock = Log(run, first, progress), Stopwatch(progress.seconds)
    config, lengths = trainer.config, pairs.lengths()

    def ended() -> bool:
        return any_process(first and budget.spent(progress))[0]

    with progress_bar(first) as bar, StopRequest() as request:
        if progress.owed:
            progress.owed = False
            checkpoint(run, trainer, progress, val, log, bar)
        while not ended():
            batches = sorted_batches(lengths, config.tokens_per_batch, seed=config.seed + 7919 * progress.epoch)
            collate = list
            if config.bpe_dropout:
                collate = Recut(tokenizer, config.bpe_dropout, config.seed, progress.epoch)
            left = batches[progress.batch :]
            for batch in DataLoader(
                pairs, batch_sampler=left, collate_fn=collate, num_workers=workers, worker_init_fn=leave_group
            ):
                loss = careful_update(trainer, batch)
                progress.step, progress.skipped = trainer.step, trainer.skipped
                progress.batch += 1
                progress.tokens += sum(len(p.tgt) - 1 for p in batch)
                progress.seconds = clock.seconds()
                log.update(progress, loss, trainer.lr, bar)
                bar.n = round(100 * budget.share(progress, len(batches)))
                done = first and budget.spent(progress)
                stop, due, done = any_process(request.number > 0, first and every.due(progress, last), done)
                if stop:
                    log.row(progress, trainer.lr, bar)
                    progress.owed = due or done  # a validation; who stops us may not wait for it
                    save_checkpoint(run, trainer, progress)
                    any_process(False)  # nobody leaves before the first process has saved
                    raise Stopped(request.number or signal.SIGTERM, progress.step)
                if due:
                    checkpoint(run, trainer, progress, val, log, bar)
                    saved, last = replace(progress), clock.seconds()
                    progress.seconds = last
                if ended():
                    break
            else:
                progress.epoch, progress.batch = progress.epoch + 1, 0
        if progress.step > saved.step:
            checkpoint(run, trainer, progress, val, log, bar)
        elif any_process(first and progress.seconds > saved.seconds)[0]:
            save_checkpoint(run, trainer, progress)  # the last checkpoint itself used up the budget
    return progress


def leave_group(worker: int) -> None:
    """Take a process that reads ahead out of the group that gets signals: it would die, and the training with it."""
    if hasattr(os, "setsid"):
        os.setsid()


PATIENCE = 10  # updates in a row whose gradient is not finite, after which a training gives up


@contextmanager
def advice(what: str) -> Iterator[None]:
    """Turn an error for want of memory into ValueError that says what was being done, and what may help."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ValueError(
            f"out of memory {what}; try a lower --tokens-per-batch, or --accumulate 2, in another --run"
        ) from error


def careful_update(trainer: Trainer, batch: list[Pair]) -> float:
    """An update; raises ValueError, with advice, if memory runs out or too many gradients in a row are not finite."""
    longest = max(max(map(len, pair)) for pair in batch)
    with advice(f"at update {trainer.step + 1}, with {len(batch)} pairs of up to {longest} tokens"):
        loss = trainer.update(batch)
    if trainer.in_a_row >= PATIENCE:
        raise ValueError(
            f"the gradients of the last {PATIENCE} updates, up to {trainer.step}, were not finite; "
            "try a lower --factor, in another --run"
        )
    return loss


def checkpoint(run: Path, trainer: Trainer, progress: Progress, val: list[Pair], log: Log, bar: tqdm) -> None:
    """Measure the validation loss, log it, and save the state of the run; keep the model if no loss was lower."""
    with advice(f"in the validation after update {trainer.step}"):
        loss = validation_loss(trainer, val)
    if not math.isfinite(loss):
        raise ValueError(
            f"the validation loss at update {trainer.step} is {loss}; try a lower --factor, in another --run"
        )
    log.row(progress, trainer.lr, bar)
    log.write(progress, val_loss=round(loss, 4), val_perplexity=round(math.exp(min(loss, 50)), 3))
    better = loss < progress.best
    progress.best, progress.since_best = min(loss, progress.best), 0 if better else progress.since_best + 1
    if better:
        save_best(run, trainer, progress)
    save_checkpoint(run, trainer, progress)


def train_together(
    run: Path, config: Settings, about: dict[str, Any], start_from: Path | None, budget: Budget, every: Every, workers: int,
    sharded: bool = False,
) -> tuple[Progress, int]:  # fmt: skip
    """Prepare the folder of a run and train, with the other processes if there are any; returns also how many updates are new.

    With `sharded`, the processes divide the model among them; ValueError if there is only one. This is a separate function so that the trainer is freed before the process group closes; otherwise PyTorch can hang.
    """
    with alone_in(run):
        start = load_translator(start_from, torch.device("cpu")) if start_from and not has_state(run) else None
        tokenizer = prepare_run(run, config, about, start_from if start else None, start)
        pairs, val = (TokenStore(run / "tokens" / f"{split}.ids", len(tokenizer)) for split in ("train", "val"))
        torch.manual_seed(config.seed)
        model = build_model(config, len(tokenizer))
        if start:
            load_weights(model, weights_of(start.model), start_from)
            del start  # its memory is needed
        if processes()[0] == 0:
            print(f"{run}: {about['src']} to {about['tgt']}, {len(pairs):,} pairs to learn from, {len(val):,} held out")
            announce_changes(model)
        trainer = Trainer(model, config, best_device(), sharded)
        progress = load_checkpoint(run, trainer)
        before, validation = progress.step, val.__getitems__(range(len(val)))
        fit(run, trainer, tokenizer, pairs, validation, budget, every, workers, progress)
        return progress, progress.step - before


def announce_changes(model: Transformer) -> None:
    """Say on standard error, before hours are spent, what the program will not do with a changed architecture."""
    if not fused_agrees(document.attention):
        print("note: attention() was changed, so it is trained as it is, without the fused kernel", file=sys.stderr)
    try:
        check_decoder(model, CachedLayer, padded_logits)
    except ValueError as error:
        print(f"note: this model can be trained, but not yet translate: {error}", file=sys.stderr)
