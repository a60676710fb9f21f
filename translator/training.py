"""The training loop that survives interruptions: validation, checkpoints, a log, and a budget of time, epochs or updates.

It goes through the batches of each epoch, starting where the run stopped. At every checkpoint it measures the validation
loss and saves its state; both count as training time. PyTorch's `DataLoader` reads the batches from the store; with
`--workers 2`, two processes read ahead.
"""

import math
import sys
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader

import the_annotated_transformer as document
from the_annotated_transformer import (
    Pair,
    Tokenizer,
    Transformer,
    evaluating,
    make_batch,
    padded_logits,
    sorted_batches,
)
from translator.architecture import check_decoder, fused_agrees
from translator.decoding import CachedLayer
from translator.losses import Objective
from translator.processes import best_device, over_processes
from translator.runs import (
    Budget,
    Log,
    Progress,
    Stopwatch,
    load_checkpoint,
    prepare_run,
    progress_bar,
    save_checkpoint,
)
from translator.settings import Settings, build_model
from translator.store import TokenStore
from translator.trainer import Trainer
from translator.vocabulary import Recut
from translator.weights import load_translator, load_weights, weights_of


@torch.inference_mode()
def validation_loss(trainer: Trainer, pairs: list[Pair]) -> float:
    """The mean cross-entropy in nats per target token under the averaged weights, over all processes."""
    objective = Objective(trainer.averaged, eps=0.0)
    budget = max(trainer.config.tokens_per_batch // trainer.world, max(len(side) for pair in pairs for side in pair))
    loss, tokens = 0.0, 0
    with evaluating(trainer.averaged):
        for rows in sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], budget)[trainer.rank :: trainer.world]:
            batch = make_batch([pairs[i] for i in rows]).to(trainer.device)
            loss, tokens = loss + objective(batch).item(), tokens + batch.ntokens
    total, count = over_processes(loss, tokens)
    return total / count


def fit(
    run: Path, trainer: Trainer, tokenizer: Tokenizer, pairs: TokenStore, val: list[Pair], budget: Budget,
    checkpoint_every: int, workers: int,
) -> Progress:  # fmt: skip
    """Train until the budget is spent, with checkpoints, a log and a progress bar; continues where `run` stopped."""
    progress = load_checkpoint(run, trainer)
    saved = progress.step, progress.seconds
    log, clock = Log(run, trainer.rank == 0, progress), Stopwatch(progress.seconds)
    config, lengths = trainer.config, pairs.lengths()
    with progress_bar(trainer.rank == 0) as bar:
        while not budget.spent(progress):
            batches = sorted_batches(lengths, config.tokens_per_batch, seed=config.seed + 7919 * progress.epoch)
            collate = list
            if config.bpe_dropout:
                collate = Recut(tokenizer, config.bpe_dropout, config.seed, progress.epoch)
            left = batches[progress.batch :]
            for batch in DataLoader(pairs, batch_sampler=left, collate_fn=collate, num_workers=workers):
                loss = trainer.update(batch)
                if not math.isfinite(loss):
                    raise ValueError(
                        f"the loss of update {trainer.step} is {loss}; try a lower --factor, in another --run"
                    )
                progress.step, progress.batch = trainer.step, progress.batch + 1
                progress.tokens += sum(len(p.tgt) - 1 for p in batch)
                progress.seconds = clock.seconds()
                log.update(progress, loss, trainer.lr, bar)
                bar.n = round(100 * budget.share(progress, len(batches)))
                if progress.step % checkpoint_every == 0:
                    checkpoint(run, trainer, progress, val, log)
                    saved, progress.seconds = (progress.step, progress.seconds), clock.seconds()
                if budget.spent(progress):
                    break
            else:
                progress.epoch, progress.batch = progress.epoch + 1, 0
    if progress.step > saved[0]:
        checkpoint(run, trainer, progress, val, log)
    elif progress.seconds > saved[1] and trainer.rank == 0:
        save_checkpoint(run, trainer, progress)  # the last checkpoint itself used up the budget
    return progress


def checkpoint(run: Path, trainer: Trainer, progress: Progress, val: list[Pair], log: Log) -> None:
    """Measure the validation loss, log it, and save the state of the run."""
    loss = validation_loss(trainer, val)
    if not math.isfinite(loss):
        raise ValueError(
            f"the validation loss at update {trainer.step} is {loss}; try a lower --factor, in another --run"
        )
    log.write(progress, val_loss=round(loss, 4), val_perplexity=round(math.exp(min(loss, 50)), 3))
    if trainer.rank == 0:
        save_checkpoint(run, trainer, progress)


def train_together(
    run: Path, config: Settings, about: dict[str, Any], start_from: Path | None, budget: Budget, checkpoint_every: int,
    workers: int,
) -> tuple[Progress, int]:  # fmt: skip
    """Prepare the folder of a run and train, with the other processes if there are any; returns also how many updates are new.

    This is a separate function so that the trainer is freed before the process group closes; otherwise PyTorch can hang.
    """
    goes_on = (run / "checkpoints" / "state.safetensors").exists()
    start = load_translator(start_from) if start_from and not goes_on else None
    tokenizer = prepare_run(run, config, about, start_from if start else None, start)
    pairs, val = (TokenStore(run / "tokens" / f"{split}.ids", len(tokenizer)) for split in ("train", "val"))
    torch.manual_seed(config.seed)
    model = build_model(config, len(tokenizer))
    if start:
        load_weights(model, weights_of(start.model), start_from)
    trainer = Trainer(model, config, best_device())
    if trainer.rank == 0:
        print(f"{run}: {about['src']} to {about['tgt']}, {len(pairs):,} pairs to learn from, {len(val):,} held out")
        announce_changes(model)
    before = load_checkpoint(run, trainer).step
    validation = val.__getitems__(range(len(val)))
    progress = fit(run, trainer, tokenizer, pairs, validation, budget, checkpoint_every, workers)
    return progress, progress.step - before


def announce_changes(model: Transformer) -> None:
    """Say on standard error, before hours are spent, what the program will not do with a changed architecture."""
    if not fused_agrees(document.attention):
        print("note: attention() was changed, so it is trained as it is, without the fused kernel", file=sys.stderr)
    try:
        check_decoder(model, CachedLayer, padded_logits)
    except ValueError as error:
        print(f"note: this model can be trained, but not yet translate: {error}", file=sys.stderr)
