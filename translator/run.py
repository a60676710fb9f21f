"""A run: the folder of a training, with its settings, vocabulary, tokens, log, and checkpoints.

Every file except the log is first written under a temporary name and then renamed, so a crash never
leaves half a file, and every file except the log has a checksum. The order of the batches depends
only on the seed and the epoch, and the dropout only on the seed and the update. So an interrupted
run ends with the same weights as one that was not interrupted.
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
from dataclasses import asdict, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

import the_annotated_transformer as tat
from since_2017 import sorted_batches
from the_annotated_transformer import Pair, Tokenizer, Transformer, learn_bpe
from translator import corpus, files
from translator.corpus import SidedTokenizer, TokenStore, read_tokenizer
from translator.files import Refused, nobody, read_json, refusing, warn, write_tensors, write_text
from translator.processes import (
    check_weights,
    gathered,
    over_processes,
    processes,
    wait_for_all,
    weights_of,
)
from translator.settings import GONE, Progress, Settings, build_model, saved_settings
from translator.sources import SPLITS, FullPairs, fingerprint, stream_pairs

LEARNED = 512  # positions that a model may learn
KEPT = 20  # checkpoints of a run; the paper averaged up to 20
SQUARE = {"cpu": 1024}  # rows of matrices that occupy a device; an accelerator needs 8,192
STATE, BEFORE = "state.safetensors", "before.safetensors"  # to continue from, and the one before
SIZES = "N", "d_model", "d_ff", "h", "d_k", "positions", "norm", "tie", "bpe"  # of a model
TOKENS = [f"tokens/{split}{suffix}" for split in SPLITS for suffix in (".ids", ".starts")]
STARTS = TOKENS[1::2]  # written after the ids, so what has them is whole
BEGUN = ".annotated-start"  # an empty file: the tokens beside it are those of a start
NO_LOCKS = errno.ENOSYS, errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP  # of some file systems


def check_same(folder: Path, wanted: dict[str, Any], advice: str = "give another --run") -> None:
    """Raise Refused, ending with the advice, if the run or model in a folder has other settings."""
    about = read_json(folder / "config.json")
    if not isinstance(settings := about.get("settings"), dict):
        raise Refused(f"{folder / 'config.json'}: not the configuration of a run")
    old = about | asdict(Settings()) | settings  # a setting newer than the run gets its default
    others = {key: value for key, value in wanted.items() if old.get(key) != value}
    if others:
        said = [f"{key} = {old.get(key)}, not {value}" for key, value in others.items()]
        raise Refused(f"{folder} has {', and '.join(said)}; {advice}")
    for key in GONE.keys() & settings.keys():
        if settings[key] != GONE[key]:
            gone = f"{key} = {settings[key]}"
            raise Refused(f"{folder} was trained with {gone}, which this version cannot go on with")


class Run:
    """The folder of a training.

    Who trains keeps to an order: be `alone` in it; `prepare` it, so that text is tokens; `restore`
    a trainer from its newest checkpoint; make an update of each of its `batches`, and tell it what
    was `learned`; and `save` now and then. `about` says what is trained on what (`data`, `src`,
    `tgt`, `held_out`, `preset`, `start_from`); it goes into `config.json`.

    `settings` are those of a new run. One that is there keeps its own, which may be those of an
    older preset; but those that are `given`, by default all, have to be the same. A new run that
    starts from a model takes its sizes.
    """

    def __init__(
        self, folder: Path, settings: Settings, about: dict[str, Any],
        given: dict[str, Any] | None = None,
    ):  # fmt: skip
        self.folder, self.settings, self.about = Path(folder), settings, about
        self.given = asdict(settings) if given is None else given
        self.languages, self.first = (about["src"], about["tgt"]), processes()[0] == 0
        self.checkpoints, self.progress = self.folder / "checkpoints", Progress()
        self.signed = False  # whether the early sign that nothing is learned has been looked for
        self.translates = True  # whether a validation translates; else the loss says what is best

    # --- Its folder ---
    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make the folder, if need be, and keep other trainings out; Refused if one is there.

        The system lifts the lock when the process ends, in whatever way. The first process of a
        group does this for all.
        """
        from filelock import FileLock, Timeout

        if not self.first:
            yield
            return
        new = [folder for folder in (self.folder, *self.folder.parents) if not folder.exists()]
        place = self.folder / ".lock"
        if new_lock := not place.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
        elif not place.is_file() or place.stat().st_size:
            raise Refused(f"{place} is not that of a training; give another --run")
        lock = FileLock(place, timeout=0, fallback_to_soft=False)
        try:
            lock.acquire()
        except Timeout:
            raise Refused(f"{self.folder}: another training is at work in this folder") from None
        except (NotImplementedError, OSError) as error:
            if getattr(error, "errno", errno.ENOSYS) not in NO_LOCKS:
                raise
        failed = True
        try:
            yield
            failed = False
        finally:
            lock.release()
            if failed and new_lock:  # perhaps in somebody's folder
                place.unlink(missing_ok=True)
            if not (self.folder / "config.json").exists():  # nothing came of it
                with suppress(OSError):  # keep a folder that holds something else
                    for folder in new:
                        folder.rmdir()

    def has_state(self) -> bool:
        """Whether the run can be continued: it has reached a checkpoint."""
        return any((self.checkpoints / name).exists() for name in (STATE, BEFORE))

    def prepare(self, start: Path | None) -> None:
        """Create or repair the folder, the first process for all of a group; then open it.

        start: the folder of the model that a new run starts from.
        """
        # `create` writes `config.json` last, so it tells a run from what is left of a start that
        # failed. Nothing is cleared away, not even half files, before the folder is known to be a
        # run. Checksums come after all that they are of. What is whole by then does
        # not change any more, and so all processes may open it.
        if self.first:
            if (self.folder / "config.json").exists():
                self.repair()
            else:
                self.create(start)
            self.remove_partial()
            # a new run, or someone edited a file and deleted the sums, as `check_sums` advises
            if not (self.folder / files.SUMS).exists():
                files.write_sums(self.folder, ["config.json", "tokenizer.json", *TOKENS])
        wait_for_all()
        path = self.folder / "config.json"
        saved = read_json(path)
        with refusing(f"{path}: not the configuration of a run", TypeError):
            self.settings = saved_settings(saved["settings"])
        self.tokenizer = read_tokenizer(self.folder / "tokenizer.json")
        self.parts = saved.get("marian")
        self.train, self.val = (token_store(self.folder, split, self.tokenizer) for split in SPLITS)
        self.lengths = self.train.lengths()
        self.val_pairs = self.val.pairs(range(len(self.val)))

    def remove_partial(self) -> None:
        """Clear away the half files of writers that were killed."""
        for folder in (self.folder, self.folder / "tokens", self.checkpoints, self.folder / "best"):
            files.remove_partial(folder)
        (self.folder / BEGUN).unlink(missing_ok=True)

    def create(self, start: Path | None) -> None:
        """Write vocabulary, tokens and configuration of a new run; Refused if they don't fit.

        What is wrong with val, or with all of train, shows before anything is written. A sentence
        that fits into no batch is found later: then the files are removed again.
        """
        self.check_strangers()
        for _ in self.texts("val"):
            pass  # reads every line now, to find a damaged one
        next(iter(self.texts("train")))  # Refused, or missing, if there is no pair
        tokenizer = self.vocabulary(start)
        (self.folder / BEGUN).touch()
        # a start that was interrupted has left these: tokens without their vocabulary are of no use
        for name in ("tokenizer.json", *STARTS):
            (self.folder / name).unlink(missing_ok=True)
        longest = self.write_tokens(tokenizer)
        self.check_longest(*longest)
        if len(tokenizer) == len(tat.SPECIALS):
            warn("the vocabulary is empty, and so every word is unknown; --bpe 6000 learns pieces")
        write_text(self.folder / "tokenizer.json", corpus.tokenizer_text(tokenizer))
        content = self.about | {"text": fingerprint(self.about["data"], self.languages)}
        content |= {"vocab": len(tokenizer), "settings": asdict(self.settings)}
        if start and (parts := read_json(start / "config.json").get("marian")):
            content["marian"] = parts
        write_text(self.folder / "config.json", json.dumps(content, indent=1) + "\n")

    def check_strangers(self) -> None:
        """Raise Refused for a folder of something else; an interrupted start may go on."""
        strange = ["model.safetensors", "log.jsonl", "checkpoints", "best", files.SUMS]
        if not (self.folder / BEGUN).exists():
            strange += ["tokenizer.json", *TOKENS]
        for name in strange:
            if (self.folder / name).exists():
                what = f"{self.folder} holds {name} but no config.json"
                raise Refused(f"{what}, so it is no run; give another --run")

    def check_longest(self, longest: int, split: str, row: int) -> None:
        """Raise Refused, and remove the tokens, if the longest sentence fits into no batch."""
        option, most = "--tokens-per-batch is", self.settings.tokens_per_batch
        if self.settings.positions == "learned" and most > LEARNED:
            option, most = "--positions learned has", LEARNED
        if longest <= most:
            return
        for name in (*TOKENS, BEGUN):
            (self.folder / name).unlink()
        with suppress(OSError):  # keep a folder that holds something else
            (self.folder / "tokens").rmdir()
        found = f"the longest sentence has {longest} tokens{self.place(split, row)}"
        raise Refused(f"{option} {most}, but {found}; --longest {most} leaves such pairs out")

    def repair(self) -> None:
        """Make good what a crash or a bad disk has left, so that checksums hold again.

        Raises Refused for another run, and for a damaged file that cannot be made again.
        """
        files.check_sums(self.folder, ["config.json", "tokenizer.json"])
        about = {key: value for key, value in self.about.items() if key != "data"}
        check_same(self.folder, about | self.given)
        self.check_data()
        if not self.has_state():
            saved = checkpoint_files(self.folder)
            if len(saved) > 1 or ((self.folder / "model.safetensors").exists() and not saved):
                what = f"{self.folder} is a model without the state of its training"
                raise Refused(f"{what}; give another --run")
            # `save` writes a checkpoint, the model and the state, in this order: a crash in the
            # first leaves at most one. The run begins again, and its first checkpoint may be of
            # another update. The model goes first: alone, after a crash, it would be refused
            for path in (self.folder / "model.safetensors", *saved):
                path.unlink(missing_ok=True)
        for name in files.changed_files(self.folder, TOKENS):
            warn(f"{self.folder / name}: damaged; the text is read again")
            (self.folder / name).with_suffix(".starts").unlink(missing_ok=True)
        self.write_tokens(read_tokenizer(self.folder / "tokenizer.json"))
        if files.changed_files(self.folder, TOKENS):
            changed = f"the text of {self.about['data']} has changed"
            raise Refused(f"{self.folder}: its tokens are lost, and {changed}; give another --run")

    def check_data(self) -> None:
        """Say if the text has changed; the run keeps its tokens. Refused for another text."""
        saved = read_json(self.folder / "config.json")
        old, new, known = saved["data"], self.about["data"], saved.get("text")
        now = fingerprint(new, self.languages)
        moved = old != new and Path(old).resolve() != Path(new).resolve()
        if moved and (now is None or known != now):
            other = f"data = {old}, not {new}, another text"
            raise Refused(f"{self.folder} has {other}; give another --run")
        if now and known and known != now:
            warn(f"{new} has changed since this run began, which goes on with the text as it was")

    # --- Its text ---
    def texts(self, split: str, tell: Callable[[str], None] = nobody) -> FullPairs:
        """The text of a split, pair by pair."""
        data, held_out = self.about["data"], self.about.get("held_out")
        return FullPairs(data, split, *self.languages, held_out, tell)

    def vocabulary(self, start: Path | None) -> Tokenizer:
        """That of the model to start from, or a new one: of pieces, or of words without merges.

        Raises Refused for a language whose words spaCy does not know, and as `vocabulary_of`.
        """
        if start:
            return self.vocabulary_of(start)
        if self.settings.bpe:
            return learn_bpe(self.texts("train"), self.settings.bpe)
        with refusing("--words needs languages whose words spaCy knows", ValueError):
            return tat.learn_words(self.texts("train"), self.languages)

    def vocabulary_of(self, start: Path) -> Tokenizer:
        """That of a model to start from, whose sizes the run takes; Refused for other languages."""
        about = read_json(start / "config.json")
        tokenizer = read_tokenizer(start / "tokenizer.json")
        sizes = {name: getattr(saved_settings(about["settings"]), name) for name in SIZES}
        # the_annotated_transformer saves only what a model needs
        if "bpe" not in about["settings"]:
            del sizes["bpe"]
        self.settings = replace(self.settings, **sizes)
        wanted = {name: self.given[name] for name in sizes if name in self.given}
        src, tgt = self.languages
        turned = (about.get("src"), about.get("tgt")) == (tgt, src)
        # a vocabulary that both sides share serves either direction
        if isinstance(tokenizer, SidedTokenizer) or not turned:
            wanted = {"src": src, "tgt": tgt} | wanted
        check_same(start, wanted, "the new run needs the same")
        return tokenizer

    def write_tokens(self, tokenizer: Tokenizer) -> tuple[int, str, int]:
        """Write missing token stores; returns the length of the longest, its split and row."""
        longest = 0, "", 0
        for split in SPLITS:
            store = token_store(self.folder, split, tokenizer)
            if not store.path.with_suffix(".starts").exists():  # which are written last
                texts, at_most = self.texts(split, warn), self.about.get("longest")
                corpus.write_store(store.path, texts, tokenizer, self.languages, at_most)
            lengths = store.lengths().max(1)
            row = int(lengths.argmax())
            longest = max(longest, (int(lengths[row]), split, row))
        return longest

    def place(self, split: str, row: int) -> str:
        """Where in the text a pair of tokens comes from; nothing if that is not there any more."""
        data, asked = self.about["data"], self.texts(split)
        if self.about.get("held_out"):
            split = "train"
        with suppress(Refused, OSError, StopIteration):
            pair = next(itertools.islice(asked, row, None))
            every = enumerate(stream_pairs(data, split, *self.languages), 1)
            number = next(number for number, other in every if other == pair)
            side = int(len(pair[1]) > len(pair[0]))
            return f" ({data}: {split}.{self.languages[side]}, line {number})"
        return ""

    def batches(self) -> Iterator[list[Pair]]:
        """The batches from where the run is, epoch after epoch, without an end; see `learned`."""
        while True:
            # far apart, or else the next seed's run would repeat these orders an epoch later
            seed = self.settings.seed + 7919 * self.progress.epoch
            rows = sorted_batches(self.lengths, self.settings.tokens_per_batch, seed=seed)
            self.in_epoch = len(rows)
            for batch in rows[self.progress.batch :]:
                yield self.train.pairs(batch)
            # `learned` has counted the epoch, unless an old run was saved at its end
            if self.progress.batch:
                self.progress.epoch, self.progress.batch = self.progress.epoch + 1, 0

    @cached_property
    def guessing(self) -> float:
        """The loss in nats per token of who knows only how often each token of train occurs."""
        return self.train.guessing()

    # --- Its model ---
    def model(self) -> Transformer:
        """A fresh model of the run's settings."""
        return build_model(self.settings, len(self.tokenizer), self.parts)

    def restore(self, trainer: Any) -> None:
        """Give a trainer the newest whole state, if there is one, and open the log.

        If it is damaged, a note says so, and the state before it is taken. Raises Refused if that
        is damaged, too, or if they are another model's.
        """
        with torch.device("meta"):  # else what is saved could not be read
            check_weights(self.model(), weights_of(trainer.model), self.folder)
        paths = [self.checkpoints / name for name in (STATE, BEFORE)]
        paths = [path for path in paths if path.exists()]
        for path in paths:
            try:
                tensors, notes = files.read_tensors(path)
                progress = Progress(**notes["progress"])
                trainer.load(tensors, progress.step, progress.skipped, path)
                self.progress = progress
                break
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                if files.MEMORY.search(str(error)):
                    raise
                wrong = error
                if not isinstance(error, Refused):
                    wrong = f"{path}: not the state of a run ({error})"
                if path == paths[-1]:
                    raise Refused(str(wrong)) from error
                if self.first:
                    warn(f"{wrong}; going on from the checkpoint before it")
        self.saved_at = self.progress.seconds
        self.began = time.monotonic() - self.saved_at  # as if it had never been interrupted
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

    def save(self, trainer: Any, stopped: bool = False) -> None:
        """Write the weights at this update, the model, and the state; all processes take part.

        The state comes last: if a crash leaves the old one, the continued run writes the other
        files again. A run that is `stopped` keeps no weights of this update, so that the mean of
        its last checkpoints is that of a run which nobody stopped.
        """
        tensors, step = gathered(trainer.tensors()), self.progress.step
        if not self.first:
            return
        weights = {name: tensors[f"model.{name}"] for name in weights_of(trainer.model)}
        averaged = {name: tensors.get(f"averaged.{name}", own) for name, own in weights.items()}
        self.checkpoints.mkdir(exist_ok=True)
        checkpoint = self.checkpoints / f"{step:06d}.safetensors"
        write_tensors(checkpoint, weights, step=step)
        write_tensors(self.folder / "model.safetensors", averaged, step=step)
        new = self.checkpoints / "next.safetensors"
        write_tensors(new, tensors, progress=asdict(self.progress))
        if (self.checkpoints / STATE).exists():
            os.replace(self.checkpoints / STATE, self.checkpoints / BEFORE)
        # after a crash here, BEFORE is there
        os.replace(new, self.checkpoints / STATE)
        # only now: without a state, `repair` takes a model without weights for a finished one
        for path in [checkpoint] if stopped else checkpoint_files(self.folder)[:-KEPT]:
            path.unlink()

    def save_best(self, trainer: Any, scores: dict[str, float]) -> None:
        """Write the model to the folder `best`, with what it needs; all processes take part."""
        best, weights = self.folder / "best", gathered(weights_of(trainer.averaged))
        if not self.first:
            return
        best.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json"):
            write_text(best / name, (self.folder / name).read_text(encoding="utf-8"))
        files.write_sums(best, ["config.json", "tokenizer.json"])
        write_tensors(best / "model.safetensors", weights, step=self.progress.step, **scores)


def token_store(folder: Path, split: str, tokenizer: Tokenizer) -> TokenStore:
    """The tokens of a split in the folder of a run."""
    return TokenStore(folder / "tokens" / f"{split}.ids", len(tokenizer))


def checkpoint_files(folder: Path) -> list[Path]:
    """The weights that a run keeps of its checkpoints, oldest first."""
    found = (folder / "checkpoints").glob("*.safetensors")
    # and no copies, such as "000010 2.safetensors"
    numbered = [path for path in found if re.fullmatch("[0-9]{6,}", path.stem)]
    return sorted(numbered, key=lambda path: int(path.stem))


# --- The log ---
def read_log(folder: Path) -> list[dict]:
    """The rows of a run's log, without lines that a crash or a bad disk has spoilt."""
    path, rows = Path(folder) / "log.jsonl", []
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    for line in text.splitlines():
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("step"), int):
                rows.append(row)
    return rows


def matrix_speed(device: torch.device, dtype: torch.dtype = torch.float32) -> float:
    """Operations per second of this device in a product of two large matrices, the best of five."""
    n = SQUARE.get(device.type, 8192)
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
    """Operations of an update, back and forth: six for each weight of a matrix and token it reads.

    Padding is not counted, nor are the products of queries, keys and values, which matter for long
    sequences alone. All of the decoder is taken to read the target (Chowdhery et al., 2022, count
    like this).
    """

    def size(*parts: torch.nn.Module) -> int:
        return sum(p.numel() for part in parts for p in part.parameters() if p.dim() == 2)

    source = sum(len(pair.src) for pair in pairs)
    target = sum(len(pair.tgt) - 1 for pair in pairs)
    return 6.0 * (size(model.encoder) * source + size(model.decoder, model.generator) * target)


def accelerator_use(device: torch.device) -> dict[str, float]:
    """Gigabytes in use of an accelerator, the most so far, and the percentage of time it works.

    For the last, PyTorch needs a package of the maker, such as `nvidia-ml-py`. A CPU has none.
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
    """The log of a run, `log.jsonl`, and its progress bar; only the first process writes.

    A row has the mean loss since the row before it, the speed, and `mfu`, the share of the
    machine's own speed in products of matrices that the model's operations reached, and of an
    accelerator its memory; rows come every ten updates and at checkpoints. A continued run drops
    the rows after its checkpoint, because that part happens again.
    """

    def __init__(self, folder: Path, active: bool, progress: Progress, device: torch.device):
        self.path, self.active = folder / "log.jsonl", active
        self.progress, self.device = progress, device
        (self.speed,) = over_processes(matrix_speed(device))  # of all processes together
        self.losses, self.operations, self.since = [], 0.0, (progress.tokens, progress.seconds)
        form = "training {percentage:3.0f}%|{bar:20}| {elapsed}{postfix}"
        # the delay keeps it from lines that are printed before the first update
        bar = {"file": sys.stdout, "bar_format": form, "delay": 1e-9}
        self.bar = tqdm(total=100, disable=not active, **bar)
        if active:
            kept = [row for row in read_log(folder) if row["step"] <= progress.step]
            write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def note(self, text: str) -> None:
        """A note on a line of its own: the bar goes away and comes back below it."""
        with tqdm.external_write_mode(self.bar.fp):
            warn(text)

    def write(self, **values: float) -> None:
        """Append one row."""
        if self.active:
            row = {"step": self.progress.step, "epoch": self.progress.epoch}
            row |= {"minutes": round(self.progress.seconds / 60, 3)}
            row |= {"tokens": self.progress.tokens} | values
            with files.writing(self.path), self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")

    def update(self, loss: float, lr: float, operations: float) -> None:
        """Record one update; one that was skipped has no loss."""
        self.operations += operations
        if math.isfinite(loss):
            self.losses.append(loss)
        if self.progress.step % 10 == 0:
            self.row(lr)

    def row(self, lr: float) -> None:
        """Write the mean loss since the last row, over all processes, if there were updates."""
        if not self.losses:
            return
        done, mean = self.progress, over_processes(sum(self.losses))[0] / len(self.losses)
        seconds = max(done.seconds - self.since[1], 1e-9)
        speed, mfu = (done.tokens - self.since[0]) / seconds, self.operations / seconds / self.speed
        self.losses, self.since, self.operations = [], (done.tokens, done.seconds), 0.0
        more = ({"skipped": done.skipped} if done.skipped else {}) | accelerator_use(self.device)
        figures = {"tokens_per_second": round(speed), "mfu": round(mfu, 4)}
        self.write(loss=round(mean, 4), lr=lr, **figures, **more)
        rate = f"{speed:,.0f} target tokens/s"
        self.bar.set_postfix_str(f"update {done.step}, loss {mean:.3f}, {rate}")
