"""The folder of a run: made for a new one, checked and repaired for one that goes on.

Every file except the log is first written under a temporary name and then renamed, so a crash never
leaves half a file, and every file except the log has a checksum.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import the_annotated_transformer as tat
from the_annotated_transformer import Tokenizer, learn_bpe
from translator import corpus, files
from translator.corpus import TokenStore, read_tokenizer
from translator.files import Refused, read_json, refusing, warn, write_text
from translator.processes import processes, wait_for_all
from translator.settings import GONE, Settings, saved_settings
from translator.sources import SPLITS, Corpus

LEARNED_POSITIONS = 512  # that a model may learn
STATE = "state.safetensors"  # to continue from
STATE_BEFORE = "before.safetensors"  # the one before it
SIZES = "N", "d_model", "d_ff", "h", "d_k", "positions", "norm", "tie", "bpe"  # of a model
TOKENS = [f"tokens/{split}{suffix}" for split in SPLITS for suffix in (".ids", ".starts")]
STARTS = TOKENS[1::2]  # written after the ids, so what has them is whole


def token_store(folder: Path, split: str, tokenizer: Tokenizer) -> TokenStore:
    """The tokens of a split in the folder of a run."""
    return TokenStore(folder / "tokens" / f"{split}.ids", len(tokenizer))


def checkpoint_files(folder: Path) -> list[Path]:
    """The weights that a run keeps of its checkpoints, oldest first."""
    weights = (folder / "checkpoints").glob("*.safetensors")
    # and no copies, such as "000010 2.safetensors"
    numbered = [path for path in weights if re.fullmatch("[0-9]{6,}", path.stem)]
    return sorted(numbered, key=lambda path: int(path.stem))


def check_same(folder: Path, wanted: dict[str, Any], advice: str = "give another --run") -> None:
    """Raise Refused, ending with the advice, if the run or model in a folder has other settings."""
    config = read_json(folder / "config.json")
    settings = config.get("settings")
    if not isinstance(settings, dict):
        raise Refused(f"{folder / 'config.json'}: not the configuration of a run")
    old = config | asdict(Settings()) | settings  # a setting newer than the run gets its default
    differences = [
        f"{key} = {old.get(key)}, not {value}"
        for key, value in wanted.items() if old.get(key) != value
    ]  # fmt: skip
    if differences:
        raise Refused(f"{folder} has {', and '.join(differences)}; {advice}")
    for key in GONE.keys() & settings.keys():
        if settings[key] != GONE[key]:
            raise Refused(
                f"{folder} was trained with {key} = {settings[key]}, "
                "which this version cannot go on with"
            )


def begin_from(
    start: Path, settings: Settings, given: dict[str, Any], languages: tuple[str, str]
) -> tuple[Settings, Tokenizer]:
    """The settings with the sizes of the model to start from, and its vocabulary.

    Raises Refused for other languages, and for a size among those `given` that isn't the model's.
    """
    config = read_json(start / "config.json")
    tokenizer = read_tokenizer(start / "tokenizer.json")
    saved = saved_settings(config["settings"])
    # the_annotated_transformer saves only what a model needs
    names = [name for name in SIZES if name != "bpe" or "bpe" in config["settings"]]
    wanted = {name: given[name] for name in names if name in given}
    src, tgt = languages
    turned = (config.get("src"), config.get("tgt")) == (tgt, src)
    # a vocabulary that both sides share serves either direction
    if corpus.has_marks(tokenizer) or not turned:
        wanted = {"src": src, "tgt": tgt} | wanted
    check_same(start, wanted, "the new run needs the same")
    return replace(settings, **{name: getattr(saved, name) for name in names}), tokenizer


class LongestPair(NamedTuple):
    """Where the pair with the longest side is, and how many tokens that has."""

    tokens: int = 0
    split: str = ""
    row: int = 0


@dataclass
class RunFolder:
    """A folder, and the training that is to be in it; makes it, or checks that it is of the same.

    `settings` are those of a new run. One that is there keeps its own, which may be those of an
    older preset; but those that are `given`, by default all, have to be the same. A new run that
    starts from a model takes its sizes.
    """

    path: Path
    corpus: Corpus
    settings: Settings
    preset: str
    given: dict[str, Any] | None = None
    longest: int | None = None  # tokens of a side; pairs with more are left out
    start: Path | None = None  # the folder of the model that a new run starts from

    @property
    def checkpoints(self) -> Path:
        """The folder of its checkpoints."""
        return self.path / "checkpoints"

    def has_state(self) -> bool:
        """Whether the run can be continued: it has reached a checkpoint."""
        return any((self.checkpoints / name).exists() for name in (STATE, STATE_BEFORE))

    def content(self) -> dict[str, Any]:
        """What `config.json` says of the training beside its settings."""
        start_from = self.start.resolve().name if self.start else None
        content = {"preset": self.preset} | asdict(self.corpus)
        return content | {"longest": self.longest, "start_from": start_from}

    def settings_given(self) -> dict[str, Any]:
        """Those that have to be the same in a run that is there."""
        return asdict(self.settings) if self.given is None else self.given

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Make the folder, if need be, and keep other trainings out; Refused if one is there."""
        # The system lifts the lock when the process ends, in whatever way. The first process of a
        # group does this for all.
        from filelock import FileLock, Timeout

        if processes()[0] > 0:
            yield
            return
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            with FileLock(self.path / ".lock", timeout=0):
                yield
        except Timeout:
            raise Refused(f"{self.path}: another training is at work in this folder") from None

    def prepare(self) -> None:
        """Create or repair the folder; the first process does it, for all of a group."""
        # `create` writes `config.json` last, so it tells a run from what is left of a start that
        # failed. Nothing is cleared away, not even half files, before the folder is known to be a
        # run. Checksums are written after their files. What is whole by then does not change any
        # more, and so all processes may open it.
        if processes()[0] == 0:
            if (self.path / "config.json").exists():
                self.repair()
            else:
                self.create()
            self.remove_partial()
            # a new run, or someone edited a file and deleted the sums, as `check_sums` advises
            if not (self.path / files.SUMS).exists():
                files.write_sums(self.path, ["config.json", "tokenizer.json", *TOKENS])
        wait_for_all()

    def remove_partial(self) -> None:
        """Clear away the half files of writers that were killed."""
        for folder in (self.path, self.path / "tokens", self.checkpoints, self.path / "best"):
            files.remove_partial(folder)

    # --- A new run ---
    def create(self) -> None:
        """Write vocabulary, tokens and configuration of a new run; Refused if they don't fit."""
        # a damaged line of val, or a train without a pair, shows before anything is written
        self.check_foreign_files()
        # val is read to its end, train only to its first pair: all of train may take hours
        for _ in self.corpus.full_pairs("val"):
            pass  # every line is read now, to find a damaged one
        next(iter(self.corpus.full_pairs("train")))  # raises Refused if there is none
        settings, tokenizer = self.vocabulary()
        # a start that was interrupted has left these: tokens without their vocabulary are of no use
        for name in ("tokenizer.json", *STARTS):
            (self.path / name).unlink(missing_ok=True)
        self.check_longest(self.write_tokens(tokenizer), settings)
        if len(tokenizer) == len(tat.SPECIALS):
            warn("the vocabulary is empty, and so every word is unknown; --bpe 6000 learns pieces")
        write_text(self.path / "tokenizer.json", corpus.tokenizer_text(tokenizer))
        content = self.content() | {
            "text": self.corpus.fingerprint(),
            "vocab": len(tokenizer),
            "settings": asdict(settings),
        }
        marian = self.start and read_json(self.start / "config.json").get("marian")
        if marian:
            content["marian"] = marian
        write_text(self.path / "config.json", json.dumps(content, indent=1) + "\n")

    def check_foreign_files(self) -> None:
        """Raise Refused for a folder of something else; tokens are of an interrupted start."""
        for name in ("model.safetensors", "log.jsonl", "checkpoints", "best", files.SUMS):
            if (self.path / name).exists():
                raise Refused(
                    f"{self.path} holds {name} but no config.json, so it is no run; "
                    "give another --run"
                )

    def vocabulary(self) -> tuple[Settings, Tokenizer]:
        """The settings, and the vocabulary: the start's, or a new one; Refused as `begin_from`."""
        if self.start:
            languages = self.corpus.languages
            return begin_from(self.start, self.settings, self.settings_given(), languages)
        train = self.corpus.full_pairs("train")
        if self.settings.bpe:
            return self.settings, learn_bpe(train, self.settings.bpe)
        with refusing("--words needs languages whose words spaCy knows", ValueError):
            return self.settings, tat.learn_words(train, self.corpus.languages)

    def write_tokens(self, tokenizer: Tokenizer) -> LongestPair:
        """Write missing token stores; returns where the longest pair is."""
        longest = LongestPair()
        languages = self.corpus.languages
        for split in SPLITS:
            store = token_store(self.path, split, tokenizer)
            if not store.is_written:
                pairs = self.corpus.full_pairs(split, warn)
                corpus.write_store(store.path, pairs, tokenizer, languages, self.longest)
            lengths = store.lengths().max(1)
            row = int(lengths.argmax())
            longest = max(longest, LongestPair(int(lengths[row]), split, row))
        return longest

    def check_longest(self, longest: LongestPair, settings: Settings) -> None:
        """Raise Refused if the longest sentence fits into no batch."""
        learned = settings.positions == "learned" and settings.tokens_per_batch > LEARNED_POSITIONS
        limit = LEARNED_POSITIONS if learned else settings.tokens_per_batch
        if longest.tokens <= limit:
            return
        place = self.place(longest.split, longest.row)
        raise Refused(
            f"{'--positions learned has' if learned else '--tokens-per-batch is'} {limit}, "
            f"but the longest sentence has {longest.tokens} tokens{place}; "
            f"--longest {limit} leaves such pairs out"
        )

    def place(self, split: str, row: int) -> str:
        """Where the text has a stored pair, in brackets; nothing where pairs were left out."""
        # the store counts only the pairs that it holds, the text all of them
        return "" if self.longest else self.corpus.place(split, row)

    # --- A run that is there ---
    def repair(self) -> None:
        """Make good what a crash or a bad disk has left, so that checksums hold again.

        Raises Refused for another run, and for a damaged file that cannot be made again.
        """
        files.check_sums(self.path, ["config.json", "tokenizer.json"])
        content = {key: value for key, value in self.content().items() if key != "data"}
        check_same(self.path, content | self.settings_given())
        self.check_data()
        if not self.has_state():
            self.remove_stateless()
        for name in files.changed_files(self.path, TOKENS):
            warn(f"{self.path / name}: damaged; the text is read again")
            (self.path / name).with_suffix(".starts").unlink(missing_ok=True)
        self.write_tokens(read_tokenizer(self.path / "tokenizer.json"))
        if files.changed_files(self.path, TOKENS):
            raise Refused(
                f"{self.path}: its tokens are lost, and the text of {self.corpus.data} "
                "has changed; give another --run"
            )

    def remove_stateless(self) -> None:
        """Remove what the first checkpoint has left without its state; Refused for a model."""
        # `Run.save` writes a checkpoint, the model and the state, in this order: a crash in the
        # first leaves at most one. The run begins again, and its first checkpoint may be of another
        # update.
        checkpoints = checkpoint_files(self.path)
        model = self.path / "model.safetensors"
        if len(checkpoints) > 1 or (model.exists() and not checkpoints):
            raise Refused(
                f"{self.path} is a model without the state of its training; give another --run"
            )
        # the model goes first: alone, after a crash, it would be refused
        for path in (model, *checkpoints):
            path.unlink(missing_ok=True)

    def check_data(self) -> None:
        """Say if the text has changed; the run keeps its tokens. Refused for another text."""
        # the same text may have moved; another one in the old place is only noted, as the run has
        # its tokens
        saved = read_json(self.path / "config.json")
        old = saved["data"]
        new = self.corpus.data
        old_text = saved.get("text")
        new_text = self.corpus.fingerprint()
        moved = old != new and Path(old).resolve() != Path(new).resolve()
        if moved and (new_text is None or old_text != new_text):
            raise Refused(
                f"{self.path} has data = {old}, not {new}, another text; give another --run"
            )
        if new_text and old_text and old_text != new_text:
            warn(f"{new} has changed since this run began, which goes on with the text as it was")
