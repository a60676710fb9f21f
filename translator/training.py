"""The training loop that survives interruptions, with validation, checkpoints and limits.

At every checkpoint it measures the validation loss, translates some of the held-out sentences, and
saves the run; all this counts as training time. What is best is best by BLEU of the translations:
on a small corpus, the smoothed model with the lower loss may be the one that translates worse. The
limits are of time, epochs or updates. If it is asked to stop, it saves the run and stops.
"""

import math
import signal
import time
from typing import NoReturn

from translator.files import Refused, Stopped, warn, within_memory
from translator.processes import any_process, over_processes, stop_requests, wait_for_all
from translator.run import Draw, Run
from translator.run_log import Log
from translator.settings import Limits
from translator.trainer import ParallelTrainer, greedy_bleu, sample

OUT_OF_MEMORY_ADVICE = "try a lower --tokens-per-batch, or --accumulate 2, in another --run"
FAR_TOKENS = 500  # a pair that is longer needs far more memory than the others
PATIENCE_UPDATES = 10  # in a row whose gradient is not finite; after them a training gives up


class Training:
    """A run at work, from where it was left: its trainer, its progress and its log.

    The first process's clock is everyone's.
    """

    def __init__(
        self, run: Run, trainer: ParallelTrainer, limits: Limits, translates: bool = True
    ):  # fmt: skip
        """translates: whether validations can; else the loss says which model is best."""
        self.run = run
        self.trainer = trainer
        self.limits = limits
        self.translates = translates
        self.progress = run.restore(trainer)
        self.saved_at = self.progress.seconds  # when the last checkpoint ended
        self.began = time.monotonic() - self.saved_at  # as if it had never been interrupted
        self.log = Log(run.folder, run.first, self.progress)
        self.told_early_sign = False

    def fit(self) -> None:
        """Train until a limit is reached, with checkpoints and a log.

        Raises Stopped if a signal has asked for it, after the update at hand is saved; one that
        comes during the last checkpoint changes nothing, because the run is over then.
        """
        # Only the first process looks at the clock and at the limits, and `any_process` hands on
        # what it has found: all processes checkpoint, stop and end at the same update, or they
        # would wait for each other for ever. An update that was begun is always finished.
        progress, first = self.progress, self.run.first
        batches = self.run.batches(progress)
        with self.log.bar, stop_requests() as signals:
            self.log.bar.refresh()
            if progress.owed:
                progress.owed = False
                over = self.checkpoint_and_look()
            else:
                (over,) = any_process(first and self.limits.spent(progress))
            while not over:
                self.learn(next(batches))
                due = first and self.limits.due(progress, self.saved_at)
                over = first and self.limits.spent(progress)
                asked, due, over = any_process(bool(signals), due, over)
                if asked:
                    # if no signal came to this process, one came to another
                    self.save_and_raise(signals[0] if signals else signal.SIGTERM, due or over)
                if due or over:
                    over = self.checkpoint_and_look(over)

    def checkpoint_and_look(self, over: bool = False) -> bool:
        """Make a checkpoint; whether the run is over, by then or by the time that this took."""
        self.checkpoint()
        (late,) = any_process(self.run.first and self.limits.spent(self.progress))
        if late and not over:
            # the state was written before its own seconds were counted: with that one, the command,
            # given again, would train on
            self.run.save(self.trainer, self.progress)
        return over or late

    def save_and_raise(self, number: int, owed: bool) -> NoReturn:
        """Save the run and raise Stopped; whoever stops us may not wait for a validation."""
        self.log.row(self.trainer.lr)
        self.progress.owed = owed
        self.run.save(self.trainer, self.progress, stopped=True)
        wait_for_all()  # nobody leaves before the first process has saved
        raise Stopped(number, self.progress.step)

    # --- An update ---
    def learn(self, draw: Draw) -> None:
        """Make an update of a batch, count and log it."""
        trainer, progress = self.trainer, self.progress
        # both before the update, whose rate and dropout go by them
        trainer.left = self.share_left(draw.in_epoch)
        trainer.passes = draw.epoch + draw.number / draw.in_epoch
        loss = self.careful_update(draw)
        progress.step, progress.skipped = trainer.step, trainer.skipped
        progress.tokens += sum(len(pair.tgt) - 1 for pair in draw.pairs)
        progress.epoch = draw.epoch
        progress.batch = draw.number + 1
        # a checkpoint after an epoch's last batch goes on with the first of the next
        if progress.batch == draw.in_epoch:
            progress.epoch += 1
            progress.batch = 0
        progress.seconds = time.monotonic() - self.began
        self.log.update(loss, trainer.lr)
        share = max(self.limits.shares(progress, draw.in_epoch).values())
        self.log.bar.n = round(100 * min(1.0, share))

    def share_left(self, in_epoch: int) -> float | None:
        """The share of the run still to come, by the first process's clock, if anybody knows."""
        # Says so, once, if that is more than before: somebody has made the run longer.
        progress, run = self.progress, self.run
        remaining = self.limits.left(progress, in_epoch)
        if remaining is not None:
            # a sum with zeros: it hands the first process's number to all
            (remaining,) = over_processes(remaining if run.first else 0.0)
        share = 1.0 if remaining is None else remaining
        if share > progress.left and run.first and run.settings.schedule == "linear":
            self.log.note(
                "this run is longer now, and so its rate rises again, "
                f"from {progress.left:.0%} of its peak to {share:.0%}"
            )
        progress.left = share
        return remaining

    def careful_update(self, draw: Draw) -> float:
        """An update; raises Refused, with advice, if memory runs out."""
        # it also gives up when the gradients of PATIENCE_UPDATES updates in a row are not finite
        trainer = self.trainer
        longest = max(max(map(len, pair)) for pair in draw.pairs)
        out_of_memory = (
            f"out of memory at update {trainer.step + 1}, with {len(draw.pairs)} pairs "
            f"of up to {longest} tokens; {OUT_OF_MEMORY_ADVICE}"
        )
        with within_memory(out_of_memory):
            loss = trainer.update(draw.pairs)
        if trainer.in_a_row >= PATIENCE_UPDATES:
            raise Refused(
                f"the gradients of the last {PATIENCE_UPDATES} updates, up to {trainer.step}, "
                "were not finite; try a lower --factor, in another --run"
            )
        return loss

    def rehearse(self) -> None:
        """Learn nothing from the longest pairs, if they are unusual."""
        # What memory does not suffice for shows now, not after hours.
        run, trainer = self.run, self.trainer
        attempts = {"train": trainer.gradient, "val": trainer.validate}
        for (split, attempt), store in zip(attempts.items(), (run.train, run.val), strict=True):
            lengths = store.lengths().max(1)
            longest = int(lengths.argmax())
            tokens = lengths[longest]
            if tokens <= FAR_TOKENS:
                continue
            place = run.place(split, longest)
            if run.first:
                warn(f"the longest pair of {split} has {tokens:,} tokens{place}")
            trainer.model.train()
            with within_memory(
                f"out of memory: the longest pair of {split} has {tokens:,} tokens{place}; "
                f"--longest {FAR_TOKENS} leaves such pairs out, in another --run"
            ):
                attempt(store.pairs([longest]))

    # --- A checkpoint ---
    def checkpoint(self) -> None:
        """Measure validation loss and BLEU, log them, save the run, and the model if it is best."""
        run, trainer, progress = self.run, self.trainer, self.progress
        with within_memory(
            f"out of memory in the validation after update {trainer.step}; {OUT_OF_MEMORY_ADVICE}"
        ):
            loss = trainer.validate(run.val_pairs)
            if not math.isfinite(loss):
                raise Refused(
                    f"the validation loss at update {trainer.step} is {loss}; "
                    "try a lower --factor, in another --run"
                )
            bleu = self.validation_bleu(loss)
        scores = {"val_loss": round(loss, 4)}
        if bleu is not None:
            scores["val_bleu"] = round(bleu, 2)
        self.log.row(trainer.lr)
        self.log.write(**scores, val_perplexity=round(math.exp(min(loss, 50)), 3))
        self.tell_early_sign(loss)
        # before the state, which says that the best model is there: after a crash between them, the
        # run goes on from the state before, and comes here again
        if progress.validated(loss, bleu):
            run.save_best(trainer, progress.step, scores)
        run.save(trainer, progress)
        self.saved_at = progress.seconds = time.monotonic() - self.began

    def validation_bleu(self, loss: float) -> float | None:
        """BLEU of the first process's translations; None if this model or this text has none."""
        # It counts as 0 where the loss is about that of word frequencies: such a model writes one
        # word after the other without an end.
        run = self.run
        bleu = 0.0
        if run.first and not self.translates:
            bleu = math.nan
        elif run.first and loss <= run.guessing - 0.5:
            bleu = greedy_bleu(self.trainer.averaged, run.tokenizer, sample(run.val_pairs))
        (bleu,) = over_processes(bleu)  # a sum with zeros
        return None if math.isnan(bleu) else bleu

    def tell_early_sign(self, loss: float) -> None:
        """One line, once, if after twice the warmup it knows little but tokens' frequencies."""
        run = self.run
        if run.first and not self.told_early_sign and self.progress.step >= 2 * run.settings.warmup:
            self.told_early_sign = True
            if loss > run.guessing - 0.5:
                self.log.note(
                    f"validation loss {loss:.2f} after twice the warmup is little better than "
                    f"{run.guessing:.2f}, that of word frequencies; `doctor` looks why"
                )
