"""A run: the folder of a training, with its settings, vocabulary and tokens, its log, and its checkpoints.

Every file except the log is first written under a temporary name and then renamed, so a crash never leaves half a file, and
every file except the log has a checksum. The order of the batches depends only on the seed and the epoch, and the dropout
only on the seed and the update. So an interrupted run ends with the same weights as one that was not interrupted.
"""

import errno
import itertools
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from cyclopts.types import PositiveFloat
from tqdm import tqdm

import the_annotated_transformer as tat
from since_2017 import sorted_batches
from the_annotated_transformer import Pair, Tokenizer, Transformer, learn_bpe
from translator import files
from translator.corpus import SidedTokenizer, TokenStore, read_tokenizer, tokenizer_text, write_store
from translator.files import Refused, read_json, read_tensors, refusing, warn, write_tensors, write_text
from translator.processes import gathered, over_processes, processes, wait_for_all, weights_of
from translator.settings import GONE, Count, Settings, build_model
from translator.sources import FullPairs, fingerprint, stream_pairs

LEARNED = 512  # positions that a model may learn
KEPT = 20  # checkpoints of a run; the paper averaged up to 20
STATE, BEFORE = "state.safetensors", "before.safetensors"  # the newest state to continue from, and the one before it
SPLITS = "train", "val"
TOKENS = [f"tokens/{split}{suffix}" for split in SPLITS for suffix in (".ids", ".starts")]
NO_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP  # file systems without locks are used without


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


@dataclass(frozen=True)
class Limits:
    """When a run ends (without any of these it takes 30 minutes), and when there is a checkpoint."""

    minutes: PositiveFloat | None = None
    """stop after this many minutes"""
    epochs: Count | None = None
    """stop after this many passes through the data"""
    steps: Count | None = None
    """stop after this many updates"""
    patience: Count | None = None
    """stop after this many checkpoints without a lower validation loss"""
    checkpoint_every: Count = 200
    """updates between two checkpoints"""
    checkpoint_minutes: PositiveFloat | None = None
    """minutes between two checkpoints, if that is sooner"""

    def shares(self, progress: Progress, in_epoch: float = math.inf) -> dict[str, float]:
        """How much of each limit is used up, by the clock of this process; 1 is all of it."""
        used = {"minutes": progress.seconds / 60, "epochs": progress.epoch + progress.batch / in_epoch}
        used |= {"steps": progress.step, "patience": progress.since_best}
        limits = {name: getattr(self, name) for name in used}
        if all(limit is None for limit in limits.values()):
            limits["minutes"] = 30
        return {name: used[name] / limit for name, limit in limits.items() if limit is not None}

    def spent(self, progress: Progress) -> bool:
        """Whether the run has to end."""
        return max(self.shares(progress).values()) >= 1

    def due(self, progress: Progress, saved_at: float) -> bool:
        """Whether it is time for a checkpoint; the last one ended after `saved_at` seconds of training."""
        late = self.checkpoint_minutes and progress.seconds - saved_at >= 60 * self.checkpoint_minutes
        return bool(late) or progress.step % self.checkpoint_every == 0


def check_same(folder: Path, wanted: dict[str, Any], advice: str = "give another --run") -> None:
    """Raise Refused, ending with the advice, if the run or model in a folder has other settings."""
    about = read_json(folder / "config.json")
    if not isinstance(settings := about.get("settings"), dict):
        raise Refused(f"{folder / 'config.json'}: not the configuration of a run")
    old = about | asdict(Settings()) | settings  # a setting newer than the run gets its default
    others = [f"{key} = {old.get(key)}, not {value}" for key, value in wanted.items() if old.get(key) != value]
    if others:
        raise Refused(f"{folder} has {', and '.join(others)}; {advice}")
    for key in GONE.keys() & settings.keys():
        if settings[key] != GONE[key]:
            raise Refused(f"{folder} was trained with {key} = {settings[key]}, which this version cannot go on with")


class Run:
    """The folder of a training: be `alone` in it, `prepare` and `restore` it, learn from its `batches`, and `save` it.

    `about` says what is trained on what (`data`, `src`, `tgt`, `held_out`, `preset`, `start_from`); it goes into `config.json`.
    """

    def __init__(self, folder: Path, settings: Settings, about: dict[str, Any]):
        self.folder, self.settings, self.about = Path(folder), settings, about
        self.languages, self.first = (about["src"], about["tgt"]), processes()[0] == 0
        self.checkpoints, self.progress = self.folder / "checkpoints", Progress()
        self.signed = False  # whether it was looked for an early sign that nothing is learned

    # --- Its folder ---
    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make the folder, if need be, and keep other trainings out of it; Refused if one is at work there.

        The system lifts the lock when the process ends, in whatever way. The first process of a group does this for all.
        """
        from filelock import FileLock, Timeout

        if not self.first:
            yield
            return
        new = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.folder / ".lock", timeout=0, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout:
            raise Refused(f"{self.folder}: another training is at work in this folder") from None
        except (NotImplementedError, OSError) as error:
            if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
                raise
        try:
            yield
        finally:
            lock.release()
            if not (self.folder / "config.json").exists():  # nothing came of it
                (self.folder / ".lock").unlink(missing_ok=True)
                with suppress(OSError):  # keep a folder that holds something else
                    for folder in new:
                        folder.rmdir()

    def has_state(self) -> bool:
        """Whether the run can be continued: it has reached a checkpoint."""
        return any((self.checkpoints / name).exists() for name in (STATE, BEFORE))

    def prepare(self, start: Path | None) -> None:
        """Create or repair the folder, then open it. In a group of processes, the first one writes and the others wait."""
        if self.first:
            if new := not (self.folder / "config.json").exists():
                self.create(start)
            for folder in (self.folder, self.folder / "tokens", self.checkpoints, self.folder / "best"):
                files.remove_partial(folder)
            if not new:
                self.repair()
            if not (self.folder / files.SUMS).exists():
                files.write_sums(self.folder, ["config.json", "tokenizer.json", *TOKENS])
        wait_for_all()
        self.open()

    def open(self) -> None:
        """Read the vocabulary, and find the tokens; the folder is whole."""
        self.tokenizer = read_tokenizer(self.folder / "tokenizer.json")
        self.parts = read_json(self.folder / "config.json").get("marian")
        self.train, self.val = (token_store(self.folder, split, self.tokenizer) for split in SPLITS)
        self.lengths, self.held_out = self.train.lengths(), self.val.pairs(range(len(self.val)))

    def create(self, start: Path | None) -> None:
        """Write vocabulary, tokens and configuration of a new run; Refused if they do not fit.

        `config.json` is written last, so a folder that has one is complete. Errors in the data show before anything is
        written, except for a sentence that fits into no batch: then the files are removed again.
        """
        begun = (self.folder / TOKENS[1]).exists()  # by a start that was interrupted
        for name in ("model.safetensors", "log.jsonl", "checkpoints", "best", *["tokenizer.json"] * (not begun)):
            if (self.folder / name).exists():
                raise Refused(f"{self.folder} holds {name} but no config.json, so it is no run; give another --run")
        for _ in self.texts("val"):
            pass  # reads every line now, to find a damaged one
        next(iter(self.texts("train")))  # its text is there
        tokenizer = self.vocabulary(start)
        for name in ("tokenizer.json", *TOKENS[1::2]):  # in this order; ids of that start are of another vocabulary
            (self.folder / name).unlink(missing_ok=True)
        (longest, split, row), most = self.write_tokens(tokenizer), self.settings.tokens_per_batch
        option = "--tokens-per-batch is"
        if self.settings.positions == "learned" and most > LEARNED:
            option, most = "--positions learned has", LEARNED
        if longest > most:
            for name in TOKENS:
                (self.folder / name).unlink()
            with suppress(OSError):  # keep a folder that holds something else
                (self.folder / "tokens").rmdir()
            found = f"the longest sentence has {longest} tokens{self.place(split, row)}"
            raise Refused(f"{option} {most}, but {found}; --longest {most} leaves such pairs out")
        if len(tokenizer) == len(tat.SPECIALS):
            warn("the vocabulary is empty, and so every word is unknown; --bpe 6000 learns pieces of words")
        write_text(self.folder / "tokenizer.json", tokenizer_text(tokenizer))
        content = self.about | {"text": fingerprint(self.about["data"], self.languages)}
        content |= {"vocab": len(tokenizer), "settings": asdict(self.settings)}
        if start and (parts := read_json(start / "config.json").get("marian")):
            content["marian"] = parts
        write_text(self.folder / "config.json", json.dumps(content, indent=1) + "\n")

    def repair(self) -> None:
        """Make good what a crash or a bad disk has left; afterwards every unchanging file is what its checksum says.

        Raises Refused if the folder holds another run, and for a damaged file that cannot be made again.
        """
        files.check_sums(self.folder, ["config.json", "tokenizer.json"])
        check_same(self.folder, {key: self.about[key] for key in self.about.keys() - {"data"}} | asdict(self.settings))
        self.check_data()
        if not self.has_state():
            steps = checkpoint_files(self.folder)
            if len(steps) > 1 or ((self.folder / "model.safetensors").exists() and not steps):
                raise Refused(f"{self.folder} is a model without the state of its training; give another --run")
            # a crash at the first checkpoint left these; the run begins again, and may come to another update
            for path in (self.folder / "model.safetensors", *steps):  # in this order
                path.unlink(missing_ok=True)
        for name in files.changed_files(self.folder, TOKENS):
            warn(f"{self.folder / name}: damaged; the text is read again")
            (self.folder / name).with_suffix(".starts").unlink(missing_ok=True)
        self.write_tokens(read_tokenizer(self.folder / "tokenizer.json"))
        if files.changed_files(self.folder, TOKENS):
            changed = f"the text of {self.about['data']} has changed"
            raise Refused(f"{self.folder}: its tokens are lost, and {changed}; give another --run")

    def check_data(self) -> None:
        """Say if the text has changed, whose tokens the run keeps; Refused for another text in another place."""
        old, new = read_json(self.folder / "config.json"), self.about["data"]
        known, now = old.get("text"), fingerprint(new, self.languages)
        moved = old["data"] != new and Path(old["data"]).resolve() != Path(new).resolve()
        if moved and (now is None or known != now):
            raise Refused(f"{self.folder} has data = {old['data']}, not {new}, another text; give another --run")
        if now and known and known != now:
            warn(f"{new} has changed since this run began, which goes on with the text as it was")

    # --- Its text ---
    def texts(self, split: str, *tell: Callable[[str], None]) -> FullPairs:
        """The text of a split, pair by pair."""
        return FullPairs(self.about["data"], split, *self.languages, self.about.get("held_out"), *tell)

    def vocabulary(self, start: Path | None) -> Tokenizer:
        """That of the model to start from, or a new one: byte-pair encoding, or whole words if there are no merges.

        Raises Refused for a start of other sizes or languages, and for a language whose words spaCy does not know.
        """
        if start:
            names = ["N", "d_model", "d_ff", "h", "d_k", "positions", "norm", "tie", "bpe"]
            if "bpe" not in read_json(start / "config.json")["settings"]:
                names.remove("bpe")  # the document saves only what a model needs; the vocabulary is taken over anyway
            wanted = {name: getattr(self.settings, name) for name in names}
            tokenizer, (src, tgt) = read_tokenizer(start / "tokenizer.json"), self.languages
            about = read_json(start / "config.json")
            if isinstance(tokenizer, SidedTokenizer) or (about.get("src"), about.get("tgt")) != (tgt, src):
                wanted = {"src": src, "tgt": tgt} | wanted  # else: turned round, with one vocabulary for both
            check_same(start, wanted, "the new run needs the same")
            return tokenizer
        if self.settings.bpe:
            return learn_bpe(self.texts("train"), self.settings.bpe)
        with refusing("--words needs languages whose words spaCy knows", ValueError):
            return tat.learn_words(self.texts("train"), self.languages)

    def write_tokens(self, tokenizer: Tokenizer) -> tuple[int, str, int]:
        """Write the token stores that the run lacks; returns the length of the longest sentence, its split and its row."""
        longest = 0, "", 0
        for split in SPLITS:
            store = token_store(self.folder, split, tokenizer)
            if not store.path.with_suffix(".starts").exists():
                write_store(store.path, self.texts(split, warn), tokenizer, self.languages, self.about.get("longest"))
            lengths = store.lengths().max(1)
            row = int(lengths.argmax())
            longest = max(longest, (int(lengths[row]), split, row))
        return longest

    def place(self, split: str, row: int) -> str:
        """Where in the text a pair of tokens comes from; nothing if the text is gone, or some of it was left out."""
        split, asked = ("train" if self.about.get("held_out") else split), self.texts(split)
        with suppress(Refused, OSError, StopIteration):
            pair = next(itertools.islice(asked, row, None))
            every = enumerate(stream_pairs(self.about["data"], split, *self.languages), 1)
            number = next(number for number, other in every if other == pair)
            side = max((0, 1), key=lambda side: len(pair[side]))
            return f" ({self.about['data']}: {split}.{self.languages[side]}, line {number})"
        return ""

    def batches(self) -> Iterator[list[Pair]]:
        """The batches of this epoch from where the run is, then those of the next, without an end; see `learned`."""
        while True:
            seed = self.settings.seed + 7919 * self.progress.epoch
            rows = sorted_batches(self.lengths, self.settings.tokens_per_batch, seed=seed)
            self.in_epoch = len(rows)
            for batch in rows[self.progress.batch :]:
                yield self.train.pairs(batch)
            if self.progress.batch:  # an earlier version saved some runs between the last batch and the next epoch
                self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0

    # --- Its model ---
    def model(self) -> Transformer:
        """A fresh model of the run's settings."""
        return build_model(self.settings, len(self.tokenizer), self.parts)

    def restore(self, trainer: Any) -> None:
        """Give a trainer the newest whole state, if there is one, and open the log.

        If it is damaged, a note says so, and the state before it is taken. Raises Refused if that is damaged, too, or if
        they are another model's.
        """
        paths = [path for path in (self.checkpoints / name for name in (STATE, BEFORE)) if path.exists()]
        for path in paths:
            try:
                tensors, notes = read_tensors(path)
                progress = Progress(**notes["progress"])
                trainer.load(tensors, progress.step, progress.skipped, path)
                self.progress = progress
                break
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                if files.MEMORY.search(str(error)):
                    raise
                wrong = error if isinstance(error, Refused) else f"{path}: not the state of a run ({error})"
                if path == paths[-1]:
                    raise Refused(str(wrong)) from error
                if self.first:
                    warn(f"{wrong}; going on from the checkpoint before it")
        self.began, self.saved_at = time.monotonic() - self.progress.seconds, self.progress.seconds
        self.log = Log(self.folder, self.first, self.progress, trainer.device)

    def learned(self, batch: list[Pair], loss: float, trainer: Any) -> None:
        """Count and log an update that the trainer has made of a batch."""
        progress = self.progress
        progress.step, progress.skipped = trainer.step, trainer.skipped
        progress.tokens += sum(len(pair.tgt) - 1 for pair in batch)
        progress.batch += 1
        if progress.batch == self.in_epoch:
            progress.epoch, progress.batch = progress.epoch + 1, 0
        progress.seconds = time.monotonic() - self.began
        self.log.update(loss, trainer.lr, operations(trainer.model, batch))

    def save(self, trainer: Any) -> None:
        """Write the weights at this update, the current model, and the state to continue from; all processes take part.

        The state comes last: if a crash leaves the old one, the continued run writes the other files again.
        """
        tensors, step = gathered(trainer.tensors()), self.progress.step
        if not self.first:
            return
        weights = {name: tensors[f"model.{name}"] for name in weights_of(trainer.model)}
        averaged = {name: tensors.get(f"averaged.{name}", weight) for name, weight in weights.items()}
        self.checkpoints.mkdir(exist_ok=True)
        write_tensors(self.checkpoints / f"{step:06d}.safetensors", weights, step=step)
        for old in checkpoint_files(self.folder)[:-KEPT]:
            old.unlink()
        write_tensors(self.folder / "model.safetensors", averaged, step=step)
        new = self.checkpoints / "next.safetensors"
        write_tensors(new, tensors, progress=asdict(self.progress))
        if (self.checkpoints / STATE).exists():
            os.replace(self.checkpoints / STATE, self.checkpoints / BEFORE)  # after a crash, BEFORE is there
        os.replace(new, self.checkpoints / STATE)

    def save_best(self, trainer: Any) -> None:
        """Write the model to the folder `best`, with what it needs; all processes take part."""
        best, weights = self.folder / "best", gathered(weights_of(trainer.averaged))
        if not self.first:
            return
        best.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json"):
            write_text(best / name, (self.folder / name).read_text(encoding="utf-8"))
        files.write_sums(best, ["config.json", "tokenizer.json"])
        write_tensors(best / "model.safetensors", weights, step=self.progress.step, val_loss=self.progress.best)


def token_store(folder: Path, split: str, tokenizer: Tokenizer) -> TokenStore:
    """The tokens of a split in the folder of a run."""
    return TokenStore(folder / "tokens" / f"{split}.ids", len(tokenizer))


def checkpoint_files(folder: Path) -> list[Path]:
    """The weights that a run keeps of its checkpoints, oldest first."""
    found = (folder / "checkpoints").glob("*.safetensors")  # and no copies, such as "000010 2.safetensors"
    return sorted((path for path in found if re.fullmatch("[0-9]{6,}", path.stem)), key=lambda path: int(path.stem))


# --- The log ---
def read_log(folder: Path) -> list[dict]:
    """The rows of a run's log, without lines that a crash or a bad disk has spoilt."""
    path, rows = Path(folder) / "log.jsonl", []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []:
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


def matrix_speed(device: torch.device, dtype: torch.dtype = torch.float32) -> float:
    """Floating-point operations per second that this device reaches in a product of two large matrices; the best of five."""
    n = 1024 if device.type == "cpu" else 8192  # an accelerator is not busy with less
    # random numbers would change what is drawn later
    a = torch.linspace(-1, 1, n * n, dtype=dtype, device=device).view(n, n)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        (a @ a)[0, 0].item()  # to ask for a number is to wait for it
        seconds.append(time.perf_counter() - start)
    with suppress(Exception):  # not every device counts; a figure for the log ends no training
        torch.accelerator.reset_peak_memory_stats(device)  # what follows is the model's
    return 2 * n**3 / min(seconds)


def operations(model: Transformer, pairs: list[Pair]) -> float:
    """Floating-point operations of an update, forward and backward: six for each weight of a matrix and token it reads.

    Padding is not counted, nor are the products of queries, keys and values, which matter for long sequences alone. All of the
    decoder is taken to read the target (Chowdhery et al., 2022, count like this).
    """
    parts = model.encoder, model.decoder, model.generator
    encoder, decoder, output = (sum(p.numel() for p in part.parameters() if p.dim() == 2) for part in parts)
    source, target = sum(len(pair.src) for pair in pairs), sum(len(pair.tgt) - 1 for pair in pairs)
    return 6.0 * (encoder * source + (decoder + output) * target)


def accelerator_use(device: torch.device) -> dict[str, float]:
    """Gigabytes of an accelerator's memory in use, the most so far, and the percentage of time it works; nothing for a CPU.

    For the last, PyTorch needs a package of the maker, such as `nvidia-ml-py`; without it, it is left out.
    """
    if device.type == "cpu":
        return {}
    found = {}
    with suppress(Exception):  # what devices and such packages may raise is not known here
        found["memory"] = round(torch.accelerator.memory_allocated(device) / 2**30, 2)
        found["most_memory"] = round(torch.accelerator.max_memory_allocated(device) / 2**30, 2)
        found["utilisation"] = torch.cuda.utilization(device)
    return found


class Log:
    """The log of a run, `log.jsonl`, and its progress bar, kept by the first process; the others write nothing.

    A row has the mean loss since the row before it, the speed, and `mfu`, the share of the machine's own speed in products of
    matrices that the model's operations reached, and of an accelerator its memory; rows come every ten updates and at
    checkpoints. A continued run drops the rows after its checkpoint, because that part happens again.
    """

    def __init__(self, folder: Path, active: bool, progress: Progress, device: torch.device, every: int = 10):
        self.path, self.active, self.progress, self.every = folder / "log.jsonl", active, progress, every
        self.device, self.losses, self.since = device, [], (progress.tokens, progress.seconds)
        (self.speed,), self.operations = over_processes(matrix_speed(device)), 0.0  # of all processes, in products
        form = "training {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"
        self.bar = tqdm(total=100, disable=not active, file=sys.stdout, bar_format=form)
        if active:
            kept = [row for row in read_log(folder) if row["step"] <= progress.step]
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def write(self, **values: float) -> None:
        """Append one row."""
        if self.active:
            row = {"step": self.progress.step, "epoch": self.progress.epoch}
            row |= {"minutes": round(self.progress.seconds / 60, 3), "tokens": self.progress.tokens, **values}
            with files.writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def update(self, loss: float, lr: float, operations: float) -> None:
        """Record one update; one that was skipped, because its gradient was not finite, has no loss."""
        self.operations += operations
        if math.isfinite(loss):
            self.losses.append(loss)
        if self.progress.step % self.every == 0:
            self.row(lr)

    def row(self, lr: float) -> None:
        """Write the mean loss since the last row, added up over processes, if there were updates since."""
        if not self.losses:
            return
        done, mean = self.progress, over_processes(sum(self.losses))[0] / len(self.losses)
        seconds = max(done.seconds - self.since[1], 1e-9)
        speed, mfu = (done.tokens - self.since[0]) / seconds, self.operations / seconds / self.speed
        self.losses, self.since, self.operations = [], (done.tokens, done.seconds), 0.0
        more = ({"skipped": done.skipped} if done.skipped else {}) | accelerator_use(self.device)
        self.write(loss=round(mean, 4), lr=lr, tokens_per_second=round(speed), mfu=round(mfu, 4), **more)
        self.bar.set_postfix_str(f"update {done.step}, loss {mean:.3f}, {speed:,.0f} target tokens/s")
