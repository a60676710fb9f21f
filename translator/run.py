"""A run: the folder of a training, with its settings, vocabulary, tokens, and checkpoints.

The order of the batches depends only on the seed and the epoch, and the dropout only on the seed
and the update. So an interrupted run ends with the same weights as one that was not interrupted.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from since_2017 import sorted_batches
from the_annotated_transformer import Pair, Transformer
from translator import files
from translator.corpus import read_tokenizer
from translator.files import Refused, read_json, refusing, warn, write_tensors, write_text
from translator.model_folder import read_translator
from translator.processes import check_weights, gathered, load_weights, processes, weights_of
from translator.run_folder import STATE, STATE_BEFORE, RunFolder, checkpoint_files, token_store
from translator.settings import Progress, build_model, saved_settings
from translator.sources import SPLITS
from translator.trainer import ParallelTrainer

CHECKPOINTS_KEPT = 20  # of a run; the paper averaged up to 20


class Draw(NamedTuple):
    """The batch of an update, and which of its epoch's batches it is."""

    pairs: list[Pair]
    epoch: int
    number: int  # from 0
    in_epoch: int  # batches of an epoch


class Run:
    """A run whose folder is whole.

    Who trains opens it (`opened`), lets it `restore` a trainer from its newest checkpoint, makes an
    update of each of its `batches`, and saves (`save`) now and then. The log is `Training`'s.
    """

    def __init__(
        self, folder: RunFolder, start_weights: dict[str, Tensor],
        make: Callable[..., Transformer] = build_model,
    ):  # fmt: skip
        """folder: prepared; start_weights: of the model that a new run starts from, if any."""
        self.folder = folder.path
        self.checkpoints = folder.checkpoints
        self.corpus = folder.corpus
        self.place = folder.place  # of a pair, in the text
        self.start = folder.start
        self.start_weights = start_weights
        self.make = make
        self.first = processes()[0] == 0
        # from here on it reads what `prepare` has written or checked, so that new and old runs are
        # made in the same way
        path = self.folder / "config.json"
        config = read_json(path)
        with refusing(f"{path}: not the configuration of a run", TypeError):
            self.settings = saved_settings(config["settings"])
        self.parts = config.get("marian")
        self.tokenizer = read_tokenizer(self.folder / "tokenizer.json")
        self.train, self.val = (token_store(self.folder, split, self.tokenizer) for split in SPLITS)
        self.lengths = self.train.lengths()
        self.val_pairs = self.val.pairs(range(len(self.val)))

    @classmethod
    @contextmanager
    def opened(
        cls, folder: RunFolder, make: Callable[..., Transformer] = build_model
    ) -> Iterator["Run"]:
        """The run of a folder, which is made or repaired; no other training is at work there.

        make: a fresh model, from settings, the vocabulary's size and, if imported, Marian's parts.
        """
        with folder.alone():
            start_weights = {}
            if folder.start and not folder.has_state():
                # a damaged one is refused before anything is written
                start_weights = weights_of(read_translator(folder.start, "cpu").model)
            folder.prepare()
            yield cls(folder, start_weights, make)

    def batches(self, progress: Progress) -> Iterator[Draw]:
        """The batches from where the run is, epoch after epoch, without an end."""
        # the orders depend on seed and epoch alone, so those batches that were learned are skipped
        # without being read
        epoch = progress.epoch
        begin = progress.batch
        while True:
            # far apart, or else the next seed's run would repeat these orders an epoch later
            seed = self.settings.seed + 7919 * epoch
            rows = sorted_batches(self.lengths, self.settings.tokens_per_batch, seed=seed)
            for number in range(begin, len(rows)):
                yield Draw(self.train.pairs(rows[number]), epoch, number, len(rows))
            epoch += 1
            begin = 0

    @cached_property
    def guessing(self) -> float:
        """The loss in nats per token of who knows only how often each token of train occurs."""
        return self.train.guessing()

    # --- Its model ---
    def fresh_model(self) -> Transformer:
        """A model of the run's settings, with random weights."""
        return self.make(self.settings, len(self.tokenizer), self.parts)

    def model(self) -> Transformer:
        """The model of a new run: random, or with the weights that it starts from.

        One that has a state is `restore`d afterwards.
        """
        model = self.fresh_model()
        if self.start and self.start_weights:
            load_weights(model, self.start_weights, self.start)
        return model

    def restore(self, trainer: ParallelTrainer) -> Progress:
        """Give a trainer the newest whole state, if there is one; returns how far that was.

        If it is damaged, a note says so, and the state before it is taken. Raises Refused if that
        is damaged, too, or if they are another model's.
        """
        # Weights that the settings don't describe would be saved, and never be read again. On meta,
        # the model that they are compared with takes no memory.
        with torch.device("meta"):
            check_weights(self.fresh_model(), weights_of(trainer.model), self.folder)
        # in `save`, STATE becomes STATE_BEFORE before a new one comes: one is whole after a crash
        paths = [self.checkpoints / name for name in (STATE, STATE_BEFORE)]
        paths = [path for path in paths if path.exists()]
        for path in paths:
            damages = KeyError, TypeError, ValueError, RuntimeError
            try:
                with refusing(f"{path}: not the state of a run", *damages):
                    tensors, notes = files.read_tensors(path)
                    progress = Progress(**notes["progress"])
                    trainer.load(tensors, progress.step, progress.skipped, path)
                    return progress
            except Refused as error:
                if path == paths[-1] or files.OUT_OF_MEMORY.search(str(error)):
                    raise
                if self.first:
                    warn(f"{error}; going on from the checkpoint before it")
        return Progress()

    def save(self, trainer: ParallelTrainer, progress: Progress, stopped: bool = False) -> None:
        """Write the weights at this update, the model, and the state; all processes take part."""
        # The state comes last: if a crash leaves the old one, the continued run writes the other
        # files again. A run that is `stopped` keeps no weights of this update, so that the mean of
        # its last checkpoints is that of a run which nobody stopped.
        step = progress.step
        # all processes: each has a part of what is sharded
        tensors = gathered(trainer.tensors())
        if not self.first:
            return
        weights = {name: tensors[f"model.{name}"] for name in weights_of(trainer.model)}
        averaged = {
            name: tensors.get(f"averaged.{name}", weight) for name, weight in weights.items()
        }
        self.checkpoints.mkdir(exist_ok=True)
        checkpoint = self.checkpoints / f"{step:06d}.safetensors"
        write_tensors(checkpoint, weights, step=step)
        write_tensors(self.folder / "model.safetensors", averaged, step=step)
        new = self.checkpoints / "next.safetensors"
        write_tensors(new, tensors, progress=asdict(progress))
        if (self.checkpoints / STATE).exists():
            os.replace(self.checkpoints / STATE, self.checkpoints / STATE_BEFORE)
        # after a crash here, STATE_BEFORE is there
        os.replace(new, self.checkpoints / STATE)
        # Only now: a crash before the state would leave a model alone, which `remove_stateless`
        # refuses as somebody else's. So a stopped run, too, has its checkpoint until here.
        surplus = checkpoint_files(self.folder)[:-CHECKPOINTS_KEPT]
        if stopped:
            surplus = [checkpoint]
        for path in surplus:
            path.unlink()

    def save_best(self, trainer: ParallelTrainer, step: int, scores: dict[str, float]) -> None:
        """Write the model to the folder `best`, with what it needs; all processes take part."""
        weights = gathered(weights_of(trainer.averaged))
        if not self.first:
            return
        best = self.folder / "best"
        best.mkdir(exist_ok=True)
        for name in ("config.json", "tokenizer.json"):
            write_text(best / name, (self.folder / name).read_text(encoding="utf-8"))
        files.write_sums(best, ["config.json", "tokenizer.json"])
        write_tensors(best / "model.safetensors", weights, step=step, **scores)
