"""Gate 20: a reader's own functions learn, first German numbers, then a real language.

    annotated-transformer judge mine.py --learn
    annotated-transformer judge mine.py --learn multi30k --minutes 20 --run runs/mine

The weights start as the document's do, in the dictionaries of the gates; the reader's encoder,
decoder, masks, shift, loss, rate and Adam do the rest, in the judge's worker (`learner.py`). Where
his functions pass the gates, what they have learned are weights of the document's model.
"""

import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

import the_annotated_transformer as tat
from practice import NEXT_RUNG
from practice.examine import Patient, examine
from practice.gates import GATES, World, as_arrays, stack, world
from practice.judge import SPLIT_SECONDS, ReadersCode, try_gate
from practice.learner import leaves
from the_annotated_transformer import BOS, EOS, LIVE, PAD, Config, Pair, Transformer

Say = Callable[[str], None]
NUMBERS = Config(N=1, d_model=32, d_ff=64, h=4, dropout=0.0, norm="pre", warmup=100)
UPDATES = 1400
SMALL_NUMBERS = 8  # below a hundred, in each update
LARGE_NUMBERS = 24  # from a hundred on
UNSEEN = 180  # numbers that it must read
PASSING = 162  # how many of them
CALL_SECONDS = 60  # for an update
NUMBER_SECONDS = 4  # between two lines of gate 20
SAMPLE_SECONDS = 60  # between two lines of a language
WHOLE_SECONDS = 600  # for gate 20
# fields of a `Study` that are saved with the arrays of a state
SAVED_FIELDS = "source", "languages", "vocabulary", "step", "pairs_seen", "seconds"
SHORT = Pair([4, EOS], [BOS, 5, EOS])  # to begin with, where nothing is learned
STATE = ".learning.safetensors"  # of a run: hidden, because the folder is a model's
ALL_GATES_RIGHT = "gates 1 to 19 are right: what do your functions keep between calls?"


class Stuck(ValueError):
    """Why a file doesn't learn, in a sentence for its reader."""


def plain(pairs: list[Pair]) -> list[tuple[list[int], list[int]]]:
    """Pairs for a process that doesn't know the document."""
    return [(pair.src, pair.tgt) for pair in pairs]


class Pupil:
    """A reader's file and the weights that it learns, which live in the judge's worker."""

    def __init__(
        self, reader: ReadersCode, model: Transformer, config: Config, pairs: list[Pair],
        step: int = 0, averages: list | None = None,
    ):  # fmt: skip
        self.reader = reader
        self.model = model
        task = {
            "weights": as_arrays(weights_of(model)), "averages": averages, "step": step,
            "h": config.h, "pad": PAD, "bos": BOS, "eos": EOS, "smoothing": config.smoothing,
            "warmup": config.warmup, "factor": config.factor, "pairs": plain(pairs[:8]),
            "threads": torch.get_num_threads(),
        }  # fmt: skip
        result = self.ask("begin", task)
        self.together = result["together"]
        self.notes = result["notes"]

    def ask(self, action: str, *arguments: Any) -> Any:
        """What an action of the learner gives; Stuck says what is wrong."""
        answer = self.reader.ask("learn", (action, *arguments), 0, CALL_SECONDS)
        if "error" in answer:
            raise Stuck(answer["error"])
        return answer["result"]

    def update(self, pairs: list[Pair]) -> float:
        """One update of all weights; the loss per token before it."""
        return self.ask("update", plain(pairs))

    def translate(self, src: list[int], longest: int) -> list[int]:
        """What the reader's `translate` writes for a source, up to the end."""
        return self.ask("translate", src, longest)

    def predict(self, pairs: list[Pair]) -> torch.Tensor:
        """Logits (B, T, vocab), as the examination wants them."""
        rows = [torch.from_numpy(row) for row in self.ask("predict", plain(pairs))]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).float()

    def poured(self) -> Transformer:
        """The document's model with what was learned."""
        pour(self.model, self.ask("state")[0])
        return self.model.eval()

    def introduction(self, count: int) -> str:
        """How many pairs it learns from, and whether sentences are computed together."""
        way = "whole batches at once"
        if not self.together:
            way = "sentence by sentence, which is slow: torch.func.vmap can't batch your functions"
        return "\n     ".join([f"{count:,} pairs to learn from, {way}", *self.notes])


def weights_of(model: Transformer) -> dict[str, Any]:
    """A model's weights under the names of the gates, as views."""
    nothing: Any = None  # weights need no text
    w = World(model, nothing, nothing, nothing)
    return {side: stack(w, side) for side in ("encoder", "decoder")}


def pour(model: Transformer, arrays: list[np.ndarray]) -> None:
    """Fill a model with weights in the order of `weights_of`."""
    with torch.no_grad():
        for (*_, view), array in zip(leaves(weights_of(model)), arrays, strict=True):
            view.copy_(torch.from_numpy(array))


def wrong_gate(reader: ReadersCode) -> str:
    """The first gate that isn't right, and why; empty if all are."""
    for number, gate in enumerate(GATES, 1):
        verdict = try_gate(gate, world(), reader, {})
        if verdict.state != "right":
            why = " ".join([verdict.sentence, *verdict.notes]).replace("\n", ". ")
            return f"gate {number}, {gate.title}, isn't right: {why}"
    return ""


# --- gate 20 ---


def write_number(pupil: Pupil, n: int) -> list[int]:
    """The ids that the pupil writes for a number in words."""
    return pupil.translate(tat.number_pair(n).src, 6)


def line_of(pupil: Pupil, n: int) -> str:
    """A number in words, and what the pupil reads."""
    digits = "".join(tat.LETTERS[i] for i in write_number(pupil, n) if i > EOS)
    return f"{tat.german_number(n)} → {digits or 'nothing'}"


def learn_numbers(path: Path, say: Say = print, typed: Iterable[str] = (), seed: int = 0) -> bool:
    """Let a file learn German numbers; says what it reads by then, and whether it passes.

    In the end it reads those that were typed.
    """
    torch.manual_seed(seed)
    model = NUMBERS.make_model(len(tat.LETTERS))
    with closing(ReadersCode(path)) as reader:
        try:
            pupil = Pupil(reader, model, NUMBERS, [tat.number_pair(n) for n in (3, 20, 345, 999)])
        except Stuck as error:
            say(f"20 ✗ it can't learn: {error}")
            return False
        count = 0  # of the unseen numbers that it reads
        reasons = []
        try:
            unseen = study_numbers(pupil, say, seed)
            count = sum(write_number(pupil, n) == tat.number_pair(n).tgt[1:] for n in unseen)
            if count < PASSING:
                reasons = resemblances(pupil, [tat.number_pair(n) for n in unseen])
        except Stuck as error:
            reasons = [str(error)]
        learns = count >= PASSING
        # some slips learn numbers as well: an Adam that forgets its averages read 179
        wrong = wrong_gate(reader)
        passes = learns and not wrong
        say(f"20 {'✓' if passes else '✗'} it reads {count} of {UNSEEN} numbers that it never saw")
        if learns:
            read_typed(pupil, typed, say)
        if passes:
            rung = NEXT_RUNG["change it and train"]
            say(f"     next: a language, --learn multi30k --run runs/learned. {rung}")
        else:
            for reason in [*reasons, wrong or ALL_GATES_RIGHT]:
                say(f"     {reason}")
        return passes


def read_typed(pupil: Pupil, typed: Iterable[str], say: Say) -> None:
    """Read numbers that somebody types."""
    for line in typed:
        if line.isdecimal() and int(line) < 1000:
            say(line_of(pupil, int(line)))


def study_numbers(pupil: Pupil, say: Say, seed: int) -> list[int]:
    """Learn for UPDATES updates, or as long as there is time; returns the unseen numbers."""
    # All numbers below a hundred are learned, for they are in the larger ones; of these, some are
    # never shown. Those that it reads in the end, it has put together by itself.
    draw = random.Random(seed)
    large = list(range(100, 1000))
    draw.shuffle(large)
    unseen = large[:UNSEEN]
    to_learn = large[UNSEEN:]
    say(pupil.introduction(len(to_learn) + 100))
    start = time.monotonic()
    last_line = start  # when it was said
    for update in range(1, UPDATES + 1):
        numbers = draw.choices(range(100), k=SMALL_NUMBERS)
        numbers += draw.choices(to_learn, k=LARGE_NUMBERS)
        loss = pupil.update([tat.number_pair(n) for n in numbers])
        now = time.monotonic()
        if now - last_line >= NUMBER_SECONDS or update == UPDATES:
            last_line = now
            sample = line_of(pupil, unseen[update % UNSEEN])
            say(f"{update:5} updates, loss {loss:.2f}: {sample}")
        # a file that computes one sentence after the other may need longer than anybody waits
        if now - start > WHOLE_SECONDS:
            say(f"{WHOLE_SECONDS} seconds are over after {update} of {UPDATES} updates")
            break
    return unseen


def resemblances(pupil: Pupil, pairs: list[Pair]) -> list[str]:
    """What the clinic's examination says of a model that doesn't write what it should."""

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return [pupil.translate(pair.src, 8) for pair in pairs]

    patient = Patient(pupil.predict, decode=decode, smoothing=NUMBERS.smoothing)
    findings = []
    for exam in ("wires", "swap", "translations", "references"):
        with suppress(Stuck, RuntimeError, IndexError):  # logits of a shape that nobody expects
            findings += examine(lambda: patient, pairs[:40], [exam])
    return [str(finding) for finding in findings if finding.ill]


# --- a language ---


class Study:
    """A reader's file that learns a language in a folder, and can go on there.

    `read` comes first. A folder that a file has learned in is whole after each `save`.
    """

    def __init__(
        self, folder: Path, file: Path, source: str | None, languages: tuple[str, str]
    ):  # fmt: skip
        """Raises Stuck for a folder of something else, or of another source."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        self.folder = folder
        self.file = file
        self.languages = languages
        self.source = source
        self.step = 0
        self.pairs_seen = 0
        self.seconds = 0.0
        # without a state it is a new folder, and only for learning: then a source is given
        path = folder / STATE
        if not path.exists():
            if source is None or (folder.is_dir() and any(folder.iterdir())):
                raise Stuck("it is no folder of `judge FILE --learn`")
            return
        try:
            self.arrays = load(path.read_bytes())
            fields = json.loads(self.arrays.pop("about").tobytes())
            for name in SAVED_FIELDS:
                setattr(self, name, fields[name])
        except (SafetensorError, KeyError, ValueError) as error:
            raise Stuck(f"{STATE} is damaged, or from elsewhere ({error})") from error
        if source not in (None, self.source):
            raise Stuck(f"it learns from {self.source}, not {source}; give another --run")

    def read(self, texts: list[tuple[str, str]], val: list[tuple[str, str]]) -> None:
        """Take the text to learn from, and that to be tried with."""
        from tokenizers import Tokenizer as Vocabulary

        if self.step:
            self.tokenizer = tat.Tokenizer(Vocabulary.from_str(self.vocabulary))
        else:
            self.tokenizer = tat.learn_bpe(texts, LIVE.bpe)
            self.vocabulary = self.tokenizer.vocabulary.to_str()
        pairs = tat.to_pairs(self.tokenizer, texts)
        self.train = [pair for pair in pairs if max(map(len, pair)) <= LIVE.tokens_per_batch]
        self.val = val

    def fresh(self) -> Transformer:
        """The weights from which both trainings start: the reader's and the document's."""
        torch.manual_seed(LIVE.seed)  # so that both start from the same numbers
        return LIVE.make_model(len(self.tokenizer))

    def pupil(self, reader: ReadersCode) -> Pupil:
        """The file with fresh weights, or with those of the folder."""
        model = self.fresh()
        averages = None
        if self.step:
            # one array of each kind for each weight: itself, and Adam's two moving averages
            count = len(self.arrays) // 3
            try:
                weights, *averages = (
                    [self.arrays[f"{kind}.{i}"] for i in range(count)] for kind in "wmv"
                )
                pour(model, weights)
            except (KeyError, ValueError, RuntimeError) as error:
                raise Stuck(f"{STATE} has the weights of another model ({error})") from error
        return Pupil(reader, model, LIVE, self.train or [SHORT], self.step, averages)

    def save(self, pupil: Pupil) -> None:
        """Write what it takes to go on, whole or not at all."""
        from safetensors.numpy import save

        fields = json.dumps({name: getattr(self, name) for name in SAVED_FIELDS}).encode()
        arrays = {"about": np.frombuffer(fields, np.uint8)}
        for kind, rows in zip("wmv", pupil.ask("state"), strict=True):  # weights, Adam's m and v
            arrays |= {f"{kind}.{i}": np.ascontiguousarray(row) for i, row in enumerate(rows)}
        self.folder.mkdir(parents=True, exist_ok=True)
        new = self.folder / f"{STATE}.new"
        new.write_bytes(save(arrays))
        os.replace(new, self.folder / STATE)

    def batches(self) -> Iterator[list[Pair]]:
        """The batches of all epochs, as the document's training takes them."""
        for epoch in itertools.count():
            yield from tat.token_batches(self.train, LIVE.tokens_per_batch, epoch)

    def text(self, pupil: Pupil, line: str) -> str:
        """A translation of a line by the reader's `translate`."""
        src = [*self.tokenizer.encode(tat.plain(line), self.languages[0]), EOS]
        return self.tokenizer.decode(pupil.translate(src, len(src) + 50))


def learn_language(study: Study, minutes: float, say: Say = print) -> bool:
    """Let a file learn for some minutes in all; says how well it translates then."""
    with closing(ReadersCode(study.file)) as reader:
        sentence = wrong_gate(reader)
        say(
            sentence
            or "gates 1 to 19 are right: what it learns are weights of the document's model"
        )
        try:
            pupil = study.pupil(reader)
            say(pupil.introduction(len(study.train)))
            say("label smoothing asks for less than certainty: the loss ends above 1, not near 0")
            practise(study, pupil, minutes, say)
            # only where all gates are right does the document's model compute what the file does
            translate = own_texts if sentence else texts_of_model
            texts = translate(study, pupil, say)
        except Stuck as error:
            say(f"it doesn't learn: {error}")
            return False
    compare(study, texts, say)
    return True


def practise(study: Study, pupil: Pupil, minutes: float, say: Say) -> None:
    """Learn until the minutes are over; every minute it saves the state and shows a sample."""
    if study.step:
        say(f"it goes on after {study.step:,} updates, {study.seconds / 60:.1f} minutes")
    saved = study.seconds
    try:
        # the batches of earlier calls are passed over: it goes on as if it had never stopped
        for batch in itertools.islice(study.batches(), study.step, None):
            if study.seconds >= 60 * minutes:
                break
            start = time.monotonic()
            loss = pupil.update(batch)
            study.step += 1
            study.pairs_seen += len(batch)
            study.seconds += time.monotonic() - start
            # a new one first after ten seconds, as who waits a minute for a sign interrupts it
            if study.seconds - saved >= (SAMPLE_SECONDS if saved else 10):
                saved = study.seconds
                study.save(pupil)
                line = study.val[study.step % len(study.val)][0]
                say(
                    f"{study.seconds / 60:.1f} min, {study.pairs_seen:,} pairs, loss {loss:.2f}\n"
                    f"    {line}\n    {study.text(pupil, line)}"
                )
    except KeyboardInterrupt:
        say(f"{study.folder} keeps {saved / 60:.1f} minutes of learning; the same command goes on")
        raise
    study.save(pupil)


def texts_of_model(study: Study, pupil: Pupil, say: Say) -> list[str]:
    """Write the document's model with what was learned; its translations of val."""
    translator = tat.Translator(pupil.poured(), study.tokenizer, study.languages)
    tat.save_translator(translator, study.folder)
    say(
        f"{study.folder} is a model, which works without your code: translate, explain and export open it with --model {study.folder}"
    )
    return list(tat.translate_lines(translator, [source for source, _ in study.val]))


def own_texts(study: Study, pupil: Pupil, say: Say) -> list[str]:
    """Translations of val by the reader's code, as many as it makes in the time."""
    say(f"its weights need its own code: judge {study.file} --run {study.folder} translates by it")
    texts = []
    end = time.monotonic() + SPLIT_SECONDS
    for line, _ in study.val:
        if time.monotonic() > end:
            break
        texts.append(study.text(pupil, line))
    return texts


def compare(study: Study, texts: list[str], say: Say) -> None:
    """BLEU of the translations; then that of the document's own parts after the same pairs."""
    sources, references = (list(side) for side in zip(*study.val[: len(texts)], strict=True))
    score = tat.bleu(texts, references)[0]
    say(
        f"your code after {study.pairs_seen:,} pairs: {score:.1f} BLEU on {len(texts)} sentences of val, greedily"
    )
    say("now the document's own parts learn from the same batches; Ctrl-C leaves that out")
    with suppress(KeyboardInterrupt):
        trainer = tat.Trainer(study.fresh(), LIVE)
        for batch in itertools.islice(study.batches(), study.step):
            trainer.update(batch)
        ours = tat.Translator(trainer.model.eval(), study.tokenizer, study.languages)
        score = tat.bleu(list(tat.translate_lines(ours, sources)), references)[0]
        say(f"the document's parts after as many: {score:.1f} BLEU")
    rung = NEXT_RUNG["change it and train"]
    say(f"with more --minutes, the same command learns on. {rung}")


def own_lines(study: Study, chunks: Iterable[list[str]]) -> Iterator[str]:
    """Translations of lines as they come, by the reader's code and what it has learned."""
    study.read([], [])
    with closing(ReadersCode(study.file)) as reader:
        pupil = study.pupil(reader)
        for line in itertools.chain.from_iterable(chunks):
            yield study.text(pupil, line)
