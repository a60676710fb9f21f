"""The folder of a run: its settings, vocabulary and tokens, its log, and its checkpoints.

Every file except the log is first written under a temporary name and then renamed, so a crash never leaves half a file, and
every file except the log has a checksum. The order of the batches depends only on the seed and the epoch, and the dropout
only on the seed and the update. So an interrupted run ends with the same weights as one that was not interrupted.
"""

import errno
import json
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from tqdm import tqdm

from the_annotated_transformer import Tokenizer, Translator, learn_bpe, learn_words
from translator.files import (
    SUMS,
    changed_files,
    check_sums,
    read_json,
    read_tensors,
    remove_partial,
    write_sums,
    write_tensors,
    write_text,
    writing,
)
from translator.processes import over_processes, processes
from translator.settings import Settings
from translator.sharding import gathered, part_for
from translator.sources import FullPairs, left_out
from translator.store import TokenStore, write_store
from translator.trainer import Trainer
from translator.vocabulary import read_tokenizer
from translator.weights import load_weights, weights_of


@dataclass
class Progress:
    """How far a run has come: it has done `batch` batches of epoch `epoch`, in `seconds` of training.

    Of its `step` updates, `skipped` had a gradient that was not finite. The lowest validation loss is `best`, and there were
    `since_best` checkpoints after it. A run that was stopped where a checkpoint was due has its validation `owed`.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    tokens: int = 0
    seconds: float = 0.0
    skipped: int = 0
    best: float = math.inf
    since_best: int = 0
    owed: bool = False


class Budget(NamedTuple):
    """When a run ends: after this many minutes, epochs or updates, or checkpoints without a better validation loss."""

    minutes: float = math.inf
    epochs: float = math.inf
    steps: float = math.inf
    patience: float = math.inf

    def spent(self, progress: Progress) -> bool:
        """True when the run has to end, by the clock of this process."""
        done = progress.seconds / 60, progress.epoch, progress.step, progress.since_best
        return any(part >= limit for part, limit in zip(done, self, strict=True))

    def share(self, progress: Progress, batches: int) -> float:
        """The part of the budget that is spent, between 0 and 1, if an epoch has `batches` batches."""
        epochs = progress.epoch + progress.batch / batches
        parts = progress.seconds / 60 / self.minutes, epochs / self.epochs, progress.step / self.steps
        return min(1.0, max(parts))


def make_budget(minutes: float | None, epochs: int | None, steps: int | None, patience: int | None = None) -> Budget:
    """The given limits, or 30 minutes if there are none; raises ValueError for a limit that is not positive."""
    limits = {"minutes": minutes, "epochs": epochs, "steps": steps, "patience": patience}
    given = {name: number for name, number in limits.items() if number is not None}
    for name, number in given.items():
        if not number > 0:
            raise ValueError(f"--{name} must be more than 0, but it is {number}")
    return Budget(**(given or {"minutes": 30.0}))


# --- Checkpoints ---
def moments(trainer: Trainer) -> dict[str, dict[str, Tensor]]:
    """The optimisers' state for each weight, by its name: moving averages, and Adam's number of updates."""
    states = {p: state for optimizer in trainer.optimizers for p, state in optimizer.state.items()}
    return {name: states[p] for name, p in weights_of(trainer.model).items()}


KEPT = 20  # checkpoints of a run; the paper averaged up to 20
STATE, BEFORE = "state.safetensors", "before.safetensors"  # the newest state to continue from, and the one before it


def has_state(run: Path) -> bool:
    """Whether a run can be continued: it has reached a checkpoint."""
    return any((run / "checkpoints" / name).exists() for name in (STATE, BEFORE))


def save_checkpoint(run: Path, trainer: Trainer, progress: Progress) -> None:
    """Write the weights at this update, the current model, and the state to continue from; all processes take part.

    The state comes last: if a crash leaves the old one, the continued run writes the other files again.
    """
    tensors = {f"model.{name}": p for name, p in weights_of(trainer.model).items()}
    for name, state in moments(trainer).items():
        tensors |= {f"{kind}.{name}": state[kind] for kind in state.keys() - {"step"}}
    if trainer.config.ema:
        tensors |= {f"averaged.{name}": p for name, p in weights_of(trainer.averaged).items()}
    tensors = gathered(tensors)
    if trainer.rank != 0:
        return
    weights = {name: tensors[f"model.{name}"] for name in weights_of(trainer.model)}
    averaged = {name: tensors[f"averaged.{name}"] for name in weights} if trainer.config.ema else weights
    folder = run / "checkpoints"
    folder.mkdir(exist_ok=True)
    write_tensors(folder / f"{progress.step:06d}.safetensors", weights, step=progress.step)
    for old in sorted(folder.glob("[0-9]*[0-9].safetensors"), key=lambda path: int(path.stem))[:-KEPT]:
        old.unlink()
    write_tensors(run / "model.safetensors", averaged, step=progress.step)
    new = folder / "next.safetensors"
    write_tensors(new, tensors, progress=asdict(progress))
    if (folder / STATE).exists():
        os.replace(folder / STATE, folder / BEFORE)  # a crash after this leaves BEFORE, the state that was there
    os.replace(new, folder / STATE)


def save_best(run: Path, trainer: Trainer, progress: Progress) -> None:
    """Write the model to the folder `best` of a run, with what it needs; all processes take part."""
    best, weights = run / "best", gathered(weights_of(trainer.averaged))
    if trainer.rank != 0:
        return
    best.mkdir(exist_ok=True)
    for name in ("config.json", "tokenizer.json"):
        write_text(best / name, (run / name).read_text(encoding="utf-8"))
    write_sums(best, ["config.json", "tokenizer.json"])
    write_tensors(best / "model.safetensors", weights, step=progress.step, val_loss=progress.best)


def load_checkpoint(run: Path, trainer: Trainer) -> Progress:
    """Restore the newest whole state of a run, if it has one.

    If it is damaged, a note says so, and the state before it is taken. Raises ValueError if that is damaged, too, or if they
    are another model's.
    """
    paths = [path for path in (run / "checkpoints" / name for name in (STATE, BEFORE)) if path.exists()]
    for path in paths:
        try:
            return restore(path, trainer)
        except ValueError as error:
            if path == paths[-1]:
                raise
            if trainer.rank == 0:
                print(f"note: {error}; going on from the checkpoint before it", file=sys.stderr)
    return Progress()


def restore(path: Path, trainer: Trainer) -> Progress:
    """Restore a state; raises ValueError if it is damaged or another model's."""
    tensors, notes = read_tensors(path)
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        kind, _, rest = name.partition(".")
        groups.setdefault(kind, {})[rest] = tensor
    load_weights(trainer.model, groups.get("model", {}), path)
    if trainer.config.ema:
        load_weights(trainer.averaged, groups.get("averaged", {}), path)
    try:
        progress = Progress(**notes["progress"])
        for name, state in moments(trainer).items():
            for kind in state.keys() - {"step"}:
                state[kind].copy_(part_for(groups[kind][name].view(state[kind].shape), state[kind]))
            state.get("step", torch.zeros(())).fill_(progress.step - progress.skipped)
    except (KeyError, TypeError, RuntimeError) as error:
        raise ValueError(f"{path}: not the state of a run ({error})") from error
    trainer.step, trainer.skipped = progress.step, progress.skipped
    return progress


# --- The log ---
def read_log(run: Path) -> list[dict]:
    """The rows of a run's log, without lines that a crash or a bad disk has spoilt."""
    path, rows = Path(run) / "log.jsonl", []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


class Log:
    """The log of a run, `log.jsonl`, kept by the first process; the others write nothing.

    A row has the mean loss since the row before it; rows come every ten updates and at checkpoints. A continued run drops the
    rows after its checkpoint, because that part happens again.
    """

    def __init__(self, run: Path, active: bool, progress: Progress, every: int = 10):
        self.path, self.active, self.every = run / "log.jsonl", active, every
        self.losses, self.since = [], (progress.tokens, progress.seconds)
        if active:
            kept = [row for row in read_log(run) if row["step"] <= progress.step]
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def write(self, progress: Progress, **values: float) -> None:
        """Append one row."""
        if self.active:
            minutes = round(progress.seconds / 60, 3)
            place = {"step": progress.step, "epoch": progress.epoch, "minutes": minutes, "tokens": progress.tokens}
            with writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(place | values) + "\n")

    def update(self, progress: Progress, loss: float, lr: float, bar: tqdm) -> None:
        """Record one update; one that was skipped, because its gradient was not finite, has no loss."""
        if math.isfinite(loss):
            self.losses.append(loss)
        if progress.step % self.every == 0:
            self.row(progress, lr, bar)

    def row(self, progress: Progress, lr: float, bar: tqdm) -> None:
        """Write the mean loss since the last row, added up over processes, if there were updates since."""
        if not self.losses:
            return
        mean = over_processes(sum(self.losses))[0] / len(self.losses)
        speed = (progress.tokens - self.since[0]) / max(progress.seconds - self.since[1], 1e-9)
        self.losses, self.since = [], (progress.tokens, progress.seconds)
        skipped = {"skipped": progress.skipped} if progress.skipped else {}
        self.write(progress, loss=round(mean, 4), lr=lr, tokens_per_second=round(speed), **skipped)
        bar.set_postfix_str(f"update {progress.step}, loss {mean:.3f}, {speed:,.0f} target tokens/s")


class Stopwatch:
    """Counts seconds from the moment it is made, starting at those already spent."""

    def __init__(self, before: float):
        self.start = time.monotonic() - before

    def seconds(self) -> float:
        """The time so far."""
        return time.monotonic() - self.start


def progress_bar(visible: bool) -> tqdm:
    """A bar that shows how much of the budget is spent, in per cent."""
    form = "training {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"
    return tqdm(total=100, disable=not visible, file=sys.stdout, bar_format=form)


# --- Starting or continuing a run ---
SPLITS = "train", "val"
TOKENS = [f"tokens/{split}{suffix}" for split in SPLITS for suffix in (".ids", ".starts")]
UNCHANGING = ["config.json", "tokenizer.json", *TOKENS]


NO_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP  # file systems without locks are used without


@contextmanager
def alone_in(run: Path) -> Iterator[None]:
    """Make the folder of a run, if need be, and keep other trainings out of it; ValueError if one is at work there.

    The system lifts the lock when the process ends, in whatever way. The first process of a group does this for all.
    """
    from filelock import FileLock, Timeout

    if processes()[0] != 0:
        yield
        return
    new = [folder for folder in (run, *run.parents) if not folder.exists()]
    run.mkdir(parents=True, exist_ok=True)
    lock = FileLock(run / ".lock", timeout=0, fallback_to_soft=False)
    try:
        lock.acquire()
    except Timeout:
        raise ValueError(f"{run}: another training is at work in this folder") from None
    except (NotImplementedError, OSError) as error:
        if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
        if not (run / "config.json").exists():  # nothing came of it
            (run / ".lock").unlink(missing_ok=True)
            with suppress(OSError):  # keep a folder that holds something else
                for folder in new:
                    folder.rmdir()


def prepare_run(
    run: Path, config: Settings, about: dict[str, Any], start_from: Path | None, start: Translator | None
) -> Tokenizer:
    """Make the folder of a run with its tokenizer, tokens and configuration, or check that an existing one matches.

    A new run takes over the vocabulary of `start`, the model in `start_from`. In a group of processes, the first one writes
    and the others wait. Raises ValueError if the folder holds something else, or if a file is damaged and cannot be made again.
    """
    if processes()[0] == 0:
        for folder in (run, run / "tokens", run / "checkpoints", run / "best"):
            remove_partial(folder)
        if (run / "config.json").exists():
            check_sums(run, ["config.json", "tokenizer.json"])
            check_same_run(run, about | asdict(config))
            if not has_state(run):
                steps = list((run / "checkpoints").glob("[0-9]*[0-9].safetensors"))
                if len(steps) > 1 or ((run / "model.safetensors").exists() and not steps):
                    raise ValueError(f"{run} is a model without the state of its training; give another --run")
                for step in steps:  # of a crash at the first checkpoint
                    step.unlink()  # the run begins again, and may be at another update when it comes there
            for name in changed_files(run, TOKENS):
                print(f"note: {run / name}: damaged; the text is read again", file=sys.stderr)
                (run / name).with_suffix(".starts").unlink(missing_ok=True)
            write_tokens(run, about, read_tokenizer(run / "tokenizer.json"))
            if changed_files(run, TOKENS):
                raise ValueError(
                    f"{run}: its tokens are lost, and the text of {about['data']} has changed; give another --run"
                )
        else:
            start_run(run, config, about, start_from, start)
        if not (run / SUMS).exists():
            write_sums(run, UNCHANGING)
    if dist.is_initialized():
        dist.barrier()
    return read_tokenizer(run / "tokenizer.json")


def check_same_run(run: Path, wanted: dict[str, Any], advice: str = "give another --run") -> None:
    """Raise ValueError, ending with the advice, if the run or model in a folder has other settings."""
    old = read_json(run / "config.json")
    settings = old.get("settings")
    if not isinstance(settings, dict):
        raise ValueError(f"{run / 'config.json'}: not the configuration of a run")
    old |= asdict(Settings()) | settings  # a setting newer than the run gets its default
    for key, value in wanted.items():
        before = old.get(key)
        if before != value:
            raise ValueError(f"{run} has {key} = {before}, not {value}; {advice}")


def texts_of(about: dict[str, Any], split: str) -> FullPairs:
    """The text of a split, from what `config.json` says of a run."""
    return FullPairs(about["data"], split, about["src"], about["tgt"], about.get("held_out"))


def write_tokens(run: Path, about: dict[str, str], tokenizer: Tokenizer) -> int:
    """Write the token stores that a run lacks; returns the length of the longest sentence."""
    longest, languages = 0, (about["src"], about["tgt"])
    for split in SPLITS:
        store = TokenStore(run / "tokens" / f"{split}.ids", len(tokenizer))
        if not store.path.with_suffix(".starts").exists():
            texts = texts_of(about, split)
            write_store(store.path, texts, tokenizer, languages)
            if texts.left_out:
                print(f"note: {left_out(texts.left_out, split)}", file=sys.stderr)
        longest = max(longest, store.lengths().max())
    return longest


def start_run(
    run: Path, config: Settings, about: dict[str, Any], start_from: Path | None, start: Translator | None
) -> None:
    """Write the tokenizer, the tokens and the configuration of a new run; raises ValueError if they do not fit.

    `config.json` is written last, so a folder that has one is complete. Errors in the data show before anything is written,
    except for a sentence that fits into no batch: then the files are removed again.
    """
    for name in ("model.safetensors", "log.jsonl", "checkpoints"):
        if (run / name).exists():
            raise ValueError(f"{run} holds {name} but no config.json, so it is no run; give another --run")
    languages = (about["src"], about["tgt"])
    texts = {split: texts_of(about, split) for split in SPLITS}
    for _ in texts["val"]:
        pass  # reads every line now, to find a damaged one
    for _ in texts["train"]:
        break  # its text is there
    if start:
        forms = ("N", "d_model", "d_ff", "h", "d_k", "positions", "norm", "tie", "bpe")
        wanted = {name: getattr(config, name) for name in forms} | {"src": about["src"], "tgt": about["tgt"]}
        if "bpe" not in read_json(start_from / "config.json")["settings"]:
            del wanted["bpe"]  # the document saves only what a model needs; the vocabulary is taken over anyway
        check_same_run(start_from, wanted, "the new run needs the same")
        tokenizer = start.tokenizer
    else:
        tokenizer = learn_bpe(texts["train"], config.bpe) if config.bpe else learn_words(texts["train"], languages)
    for old in (run / "tokens").glob("*.starts"):
        old.unlink()  # from an interrupted start: its ids belong to another vocabulary
    longest = write_tokens(run, about, tokenizer)
    if longest > config.tokens_per_batch:
        for name in TOKENS:
            (run / name).unlink()
        with suppress(OSError):  # keep a folder that holds something else
            (run / "tokens").rmdir()
        raise ValueError(
            f"--tokens-per-batch is {config.tokens_per_batch}, but the longest sentence has {longest} tokens"
        )
    write_text(run / "tokenizer.json", tokenizer.vocabulary.to_str(pretty=True))
    content = about | {"vocab": len(tokenizer), "settings": asdict(config)}
    write_text(run / "config.json", json.dumps(content, indent=1) + "\n")
