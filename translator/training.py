"""The training loop that survives interruptions, with validation, checkpoints and limits.

At every checkpoint it measures the validation loss, translates some of the held-out sentences, and
saves the run; all this counts as training time. What is best is best by BLEU of the translations:
on a small corpus, the smoothed model with the lower loss may be the one that translates worse. The
limits are of time, epochs or updates. If it is asked to stop, it saves the run and stops.
"""

import math
import signal
import time

from the_annotated_transformer import Pair
from translator.files import Refused, Stopped, warn, within_memory
from translator.processes import any_process, over_processes, stop_requests, wait_for_all
from translator.run import Run
from translator.settings import Limits
from translator.trainer import ParallelTrainer, greedy_bleu, sample

ADVICE = "try a lower --tokens-per-batch, or --accumulate 2, in another --run"  # if memory is out
FAR = 500  # tokens; a pair that is longer needs far more memory than the others
PATIENCE = 10  # updates in a row whose gradient is not finite, after which a training gives up


def fit(run: Run, trainer: ParallelTrainer, limits: Limits) -> None:
    """Train until a limit is reached, with checkpoints and a log; goes on from where the run is.

    Raises Stopped if a signal has asked for it, after the update at hand is saved. The first
    process's clock is everyone's.
    """
    progress, first, batches = run.progress, run.first, run.batches()
    with run.log.bar, stop_requests() as asked:
        run.log.bar.refresh()
        if progress.owed:
            progress.owed = False
            checkpoint(run, trainer)
        (done,) = any_process(first and limits.spent(progress))
        while not done:
            batch = next(batches)  # sets `run.in_epoch`, which the next line needs
            trainer.left = share_left(run, limits)
            trainer.passes = progress.epoch + progress.batch / run.in_epoch
            run.learned(batch, careful_update(trainer, batch), trainer)
            share = max(limits.shares(progress, run.in_epoch).values())
            run.log.bar.n = round(100 * min(1.0, share))
            due = first and limits.due(progress, run.saved_at)
            done = first and limits.spent(progress)
            stop, due, done = any_process(bool(asked), due, done)
            if stop:
                run.log.row(trainer.lr)
                progress.owed = due or done  # a validation; who stops us may not wait for it
                run.save(trainer, stopped=True)
                wait_for_all()  # nobody leaves before the first process has saved
                # if nobody asked this process, another one was asked
                raise Stopped(asked[0] if asked else signal.SIGTERM, progress.step)
            if due or done:
                checkpoint(run, trainer)
                (late,) = any_process(first and limits.spent(progress))
                if late and not done:
                    # the checkpoint itself used up the time; unsaved, the command, given again,
                    # would train on
                    run.save(trainer)
                done = done or late


def share_left(run: Run, limits: Limits) -> float | None:
    """The share of the run still to come, by the first process's clock; None if nobody knows.

    Says so, once, if that is more than before: somebody has made the run longer.
    """
    progress, left = run.progress, limits.left(run.progress, run.in_epoch)
    if left is not None:
        # a sum with zeros: it hands the first process's number to all
        (left,) = over_processes(left if run.first else 0.0)
    now = 1.0 if left is None else left
    if now > progress.left and run.first and run.settings.schedule == "linear":
        shares = f"from {progress.left:.0%} of its peak to {now:.0%}"
        run.log.note(f"this run is longer now, and so its rate rises again, {shares}")
    progress.left = now
    return left


def rehearse(run: Run, trainer: ParallelTrainer) -> None:
    """Learn nothing from the longest pairs, if they are unusual.

    What memory does not suffice for shows now, not after hours.
    """
    for split, store in (("train", run.train), ("val", run.val)):
        lengths = store.lengths().max(1)
        longest = int(lengths.argmax())
        if (tokens := lengths[longest]) <= FAR:
            continue
        what = f"the longest pair of {split} has {tokens:,} tokens{run.place(split, longest)}"
        if run.first:
            warn(what)
        trainer.model.train()
        advice = f"--longest {FAR} leaves such pairs out, in another --run"
        with within_memory(f"out of memory: {what}; {advice}"):
            (trainer.gradient if split == "train" else trainer.validate)(store.pairs([longest]))


def careful_update(trainer: ParallelTrainer, batch: list[Pair]) -> float:
    """An update; raises Refused, with advice, if memory runs out.

    So it does if the gradients of PATIENCE updates in a row are not finite.
    """
    longest = max(max(map(len, pair)) for pair in batch)
    pairs = f"{len(batch)} pairs of up to {longest} tokens"
    with within_memory(f"out of memory at update {trainer.step + 1}, with {pairs}; {ADVICE}"):
        loss = trainer.update(batch)
    if trainer.in_a_row >= PATIENCE:
        last = f"the last {PATIENCE} updates, up to {trainer.step}, were not finite"
        raise Refused(f"the gradients of {last}; try a lower --factor, in another --run")
    return loss


def checkpoint(run: Run, trainer: ParallelTrainer) -> None:
    """Measure validation loss and BLEU, log them, save the run; keep the model if it is best."""
    with within_memory(f"out of memory in the validation after update {trainer.step}; {ADVICE}"):
        loss = trainer.validate(run.val_pairs)
        if not math.isfinite(loss):
            wrong = f"the validation loss at update {trainer.step} is {loss}"
            raise Refused(f"{wrong}; try a lower --factor, in another --run")
        bleu = validation_bleu(run, trainer, loss)
    progress = run.progress
    scores = {"val_loss": round(loss, 4)} | ({} if bleu is None else {"val_bleu": round(bleu, 2)})
    run.log.row(trainer.lr)
    run.log.write(**scores, val_perplexity=round(math.exp(min(loss, 50)), 3))
    early_sign(run, loss)
    if progress.validated(loss, bleu):
        run.save_best(trainer, scores)
    run.save(trainer)
    run.saved_at = progress.seconds = time.monotonic() - run.began


def validation_bleu(run: Run, trainer: ParallelTrainer, loss: float) -> float | None:
    """BLEU of the first process's translations; None if this model or this text has none.

    It counts as 0 where the loss is about that of word frequencies: such a model writes one word
    after the other without an end.
    """
    bleu = math.nan
    if run.first and run.translates:
        young = loss > run.guessing - 0.5
        pairs = sample(run.val_pairs)
        bleu = 0.0 if young else greedy_bleu(trainer.averaged, run.tokenizer, pairs)
    (bleu,) = over_processes(bleu if run.first else 0.0)
    return None if math.isnan(bleu) else bleu


def early_sign(run: Run, loss: float) -> None:
    """One line, once, if after twice the warmup the model knows little but tokens' frequencies."""
    if run.first and not run.signed and run.progress.step >= 2 * run.settings.warmup:
        run.signed = True
        if loss > run.guessing - 0.5:
            known = f"{run.guessing:.2f}, that of word frequencies; `doctor` looks why"
            small = f"validation loss {loss:.2f} after twice the warmup is little better than"
            run.log.note(f"{small} {known}")
