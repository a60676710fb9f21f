"""Before a training: what is wrong with a text, what to train, for how long, what to expect."""

import itertools
import math
import re
import shlex
import statistics
import sys
import time
import unicodedata
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from io import StringIO
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

import the_annotated_transformer as tat
from since_2017 import sorted_batches
from the_annotated_transformer import Tokenizer
from translator.corpus import encode_pairs
from translator.files import Refused, nobody, read_json
from translator.losses import placeholders, some_of, unknown_letters
from translator.model_folder import read_translator
from translator.processes import choose_device
from translator.run_folder import SIZES, begin_from
from translator.scoring import UNSPACED
from translator.settings import Limits, Settings, build_model, make_settings
from translator.sources import SPLITS, Corpus, divided
from translator.trainer import ParallelTrainer

# how `tiny` was set when the runs of `measured` were made
MEASURED: dict[str, Any] = {
    "positions": "sinusoidal", "schedule": "paper", "tokens_per_batch": 5000,
    "factor": 1.5, "warmup": 200, "dropout": 0.25,
}  # fmt: skip
SAMPLE = 20_000  # pairs that vocabulary and speed are tried on
# the range goes from a third of the odds that are expected to three times; no run lies outside
WIDE = 3
FEWEST_PAIRS, MOST_PAIRS = 250, 29_000  # that the runs of `measured` learned from
FEWEST_NEIGHBOURS = 100  # in val; a share of fewer says nothing
MIXED = re.compile("HIRAGANA|KATAKANA")  # which Japanese mixes with CJK characters
Texts = list[tuple[str, str]]


def recipe(pairs: int, trained: bool = False) -> tuple[dict[str, Any], int]:
    """Settings in place of those of MEASURED, and updates, for so many pairs.

    `trained`: from a model's weights. What the runs of curve.jsonl were trained with; from 20,000
    pairs on it is what the shipped models' first stage had.
    """
    if trained:
        gentle = {"tokens_per_batch": 1000, "factor": 1.0, "warmup": 30, "dropout": 0.25}
        return gentle, 300 if pairs < 4000 else 500
    if pairs >= 20_000:
        return {"positions": "rotary"}, 4200
    updates = (300, 400, 600, 800, 1000, 2500)[bisect((700, 1400, 2800, 5600, 11_000), pairs)]
    bpe, tokens, dropout = (1000, 1000, 0.3) if pairs < 2800 else (3000, 2000, 0.1)
    sizes = {"N": 2, "positions": "rotary", "bpe": bpe, "tokens_per_batch": tokens}
    return sizes | {"factor": 0.75, "warmup": 100, "dropout": dropout}, updates


# --- What is wrong with a text ---
def script(line: str) -> str:
    """The script of most letters of a line, such as LATIN or CYRILLIC; "" without letters."""
    letters = filter(str.isalpha, line[:200])
    # Unicode names a letter by its script: LATIN SMALL LETTER A
    names = Counter(unicodedata.name(letter, "?").split()[0] for letter in letters)
    commonest = names.most_common(1)[0][0] if names else ""
    return "CJK" if MIXED.match(commonest) else commonest


def bare(line: str) -> str:
    """A line without case, spaces, punctuation and signs, or as it is if it has nothing else."""
    folded = unicodedata.normalize("NFKC", line).casefold()
    return "".join(sign for sign in folded if unicodedata.category(sign)[0] in "LMN") or line


def copies(train: Texts, texts: Texts) -> list[int]:
    """The lines of other texts whose source stands in train, or nearly (`bare`)."""
    sources = {bare(src) for src, tgt in train if src and tgt}
    return [number for number, (src, _) in enumerate(texts, 1) if bare(src) in sources]


def complaints(train: Texts, val: Texts) -> dict[str, list[int]]:
    """The lines of train that may be wrong, by what may be wrong, as keys of SAYS.

    And the lines of val that have no text on one side, or whose source stands in train.
    """
    full = [(number, *pair) for number, pair in enumerate(train, 1) if all(pair)]
    sides = zip(*train[:SAMPLE], strict=True)
    usual = [Counter(map(script, side)).most_common(1)[0][0] for side in sides]
    # of letters: one language needs more than the other for the same
    ratio = statistics.median([len(tgt) / len(src) for _, src, tgt in full] or [1.0])
    earlier: set[tuple[str, str]] = set()
    lines: dict[str, list[int]] = {name: [] for name in SAYS}
    lines["empty"] = [number for number, pair in enumerate(train, 1) if not all(pair)]
    lines["val empty"] = [number for number, pair in enumerate(val, 1) if not all(pair)]
    lines["val in train"] = copies(train, val)
    for number, *pair in full:
        src, tgt = pair
        signs = [placeholders(side) for side in pair]
        applies_by_name = {
            "twice": (src, tgt) in earlier,
            "same": src == tgt and len(src.split()) > 2,  # a name or a number may stay as it is
            "lengths": max(map(len, pair)) > 30 and not 1 / 3 < len(tgt) / len(src) / ratio < 3,
            "script": any(
                script(s) not in ("", usual_script)
                for s, usual_script in zip(pair, usual, strict=True)
            ),
            "short": any(sum(map(str.isalpha, s)) < 2 and script(s) != "CJK" for s in pair),
            "placeholders": any(signs),
            "other placeholders": signs[0] != signs[1],
        }
        earlier.add((src, tgt))
        for name, applies in applies_by_name.items():
            if applies:
                lines[name].append(number)
    return {name: numbers for name, numbers in lines.items() if numbers}


# what is said of a line, and behind a semicolon what that means
SAYS = {
    "empty": "pairs without text on one side; "
             "they are left out, and may mean that the files have slipped",
    "twice": "pairs that were there before; they teach nothing new",
    "same": "pairs of three words or more with the same text on both sides; "
            "the model will learn to copy",
    "lengths": "pairs whose lengths do not match the others'; perhaps they are no translations",
    "script": "pairs with a side in another script than most lines of that side",
    "short": "pairs with a side of fewer than two letters",
    "placeholders": "pairs with placeholders, tags, addresses or marks of shortcuts; a small model "
                    "loses many of them, and `translate` says which",
    "other placeholders": "pairs whose sides don't have the same of these; mend them",
    "val empty": "lines of val without text on one side; they are left out",
    "val in train": "lines of val whose source stands in train, but for case, spaces and "
                    "punctuation; scores on val will be too high",
    "letters": "lines of train with letters that the model to start from doesn't know; "
               "it reads and writes <unk>",
    "val letters": "lines of val with letters that the model won't know; it reads and writes <unk>",
}  # fmt: skip


def letters(texts: Texts) -> set[str]:
    """The letters and signs of both sides, in the form that a vocabulary is learned from (NFC)."""
    lines = itertools.chain.from_iterable(texts)
    signs = itertools.chain.from_iterable(unicodedata.normalize("NFC", line) for line in lines)
    return {sign for sign in signs if not sign.isspace()}


def strange(texts: Texts, alphabet: set[str]) -> list[int]:
    """The lines with a letter or sign that isn't in an alphabet."""
    return [number for number, pair in enumerate(texts, 1) if letters([pair]) - alphabet]


# --- Whether the lines belong together ---
OFFSETS = 0, -1, 1, -2, 2, -3, 3, -4, 4, -5, 5  # by how many lines one side may have slipped
FAR_OFFSETS = 17, 29, 41, 53  # in lines; at such a distance, lines match by chance only
SLIP = 15.0  # nats of evidence that a change of the offset takes
FEWEST_LINES = 20  # that show an offset
SURE = 4  # standard errors by which the best offset has to be better than chance
STRANGERS = 100  # lines without a match, if they are a tenth of a text, are no translations
BLOCK, TRIED_LINES = 500, 50_000  # a longer text is looked at in blocks


def comparison(pairs: Texts) -> Callable[[int], tuple[np.ndarray, np.ndarray]]:
    """What compares each source with the target so many lines further on, by two numbers a line.

    How far the ratio of their lengths is from the usual one, as logarithms; and whether they share
    a rare word, a number or a sign: 1 or 0, nan for a line that has none.
    """
    count = len(pairs)
    sides = [*zip(*pairs, strict=True)]
    lengths = [np.log([len(line) or math.nan for line in side]) for side in sides]
    words = [[{*re.findall(r"\w+|[^\w\s]", line.casefold())} for line in side] for side in sides]
    often = [Counter(itertools.chain.from_iterable(side)) for side in words]
    # a word of more than two lines in a hundred is in both lines of many pairs by chance
    common = {word for word, lines in (often[0] | often[1]).items() if lines > max(2, count // 50)}
    rare = [[line - common for line in side] for side in words]
    usual = np.nanmedian(lengths[1] - lengths[0])

    def compare(offset: int) -> tuple[np.ndarray, np.ndarray]:
        partners = (np.arange(count) + offset) % count
        # at most 2: a line that is far too long is not the translation, and that is all it says
        apart = np.minimum(np.abs(lengths[1][partners] - lengths[0] - usual), 2)
        targets = map(rare[1].__getitem__, partners)
        shares = [float(bool(src & tgt)) if src else math.nan
                  for src, tgt in zip(rare[0], targets, strict=True)]  # fmt: skip
        return apart, np.array(shares)

    return compare


def evidence(pairs: Texts) -> np.ndarray | None:
    """How much speaks for the target line at each of OFFSETS being the translation, in nats.

    (offsets, lines); 0 says nothing. Lines that belong together have lengths that match, and share
    rare words, numbers and signs; how often others do shows at FAR_OFFSETS. None if no offset is
    better than those.
    """
    # What the best offset shows of each number of `comparison`, beside what offsets show by chance,
    # says how much a line speaks for an offset: for lengths by two exponential distributions of
    # these means, for shared words by two coins. Bounds keep all logarithms finite.
    count = len(pairs)
    compare = comparison(pairs)

    def mean(values: np.ndarray) -> float:
        finite = values[np.isfinite(values)]
        return float(finite.mean()) if finite.size else 0.0

    apart, shares = map(np.array, zip(*map(compare, OFFSETS), strict=True))
    others_apart, others_share = map(np.array, zip(*map(compare, FAR_OFFSETS), strict=True))
    by_chance = max(mean(others_apart), 0.01)
    best = max(min(*map(mean, apart), by_chance), 0.01)
    share_by_chance = min(max(mean(others_share), 1 / count), 0.9)
    best_share = min(max(*map(mean, shares), share_by_chance), 0.99)
    spread = np.nanstd(others_apart), math.sqrt(share_by_chance * (1 - share_by_chance))
    better = by_chance - best, best_share - share_by_chance
    lines = count, max(1, np.isfinite(shares[0]).sum())
    errors = [s / math.sqrt(n) for s, n in zip(spread, lines, strict=True)]
    # where all lines are about as long, lengths can't tell, and nothing is held against the text
    if by_chance > 0.1 and all(x < SURE * e for x, e in zip(better, errors, strict=True)):
        return None
    nats = math.log(by_chance / best) - apart * (1 / best - 1 / by_chance)
    hit = math.log(best_share / share_by_chance)
    miss = math.log((1 - best_share) / (1 - share_by_chance))
    nats = np.nan_to_num(nats) + np.where(np.isnan(shares), 0, np.where(shares == 1, hit, miss))
    # so it takes five lines, not a single odd one, to pay for SLIP
    return np.clip(nats, -3, 3)


def slips(pairs: Texts) -> list[tuple[int, int, int | None]]:
    """Where the two sides of a text have slipped: first and last line, and by how many lines.

    There a source's translation is so many lines further on; None: it is nowhere near.
    """
    # Each line has some evidence for each offset, and none for being a stranger. The best path
    # through the lines (Viterbi's) pays SLIP for each change of the offset; `back` says where the
    # best path to each offset came from, line by line.
    step = 1 + len(pairs) // TRIED_LINES
    rows = [row for row in range(len(pairs)) if row % (BLOCK * step) < BLOCK]
    if len(rows) < FEWEST_LINES:
        return []
    nats = evidence([pairs[row] for row in rows])
    if nats is None:
        return [(1, len(pairs), None)] if len(rows) >= STRANGERS else []
    nats = np.vstack([nats, np.zeros(len(rows))])
    totals, back = np.zeros(len(nats)), np.zeros(nats.shape, int)
    for i, line in enumerate(nats.T):
        best = totals.argmax()
        back[:, i] = np.where(totals < totals[best] - SLIP, best, range(len(nats)))
        totals = np.maximum(totals, totals[best] - SLIP) + line
    # from the last line to the first, along where each best path came from
    path = [int(totals.argmax())]
    for origins in back.T[:0:-1]:
        path.append(int(origins[path[-1]]))
    path.reverse()
    # a stretch counts if it speaks for its offset by more than a change would cost
    stretches = []
    first = 0
    for state, stretch in itertools.groupby(path):
        last = first + sum(1 for _ in stretch) - 1
        lines = slice(first, last + 1)
        gain = (nats[state, lines] - nats[0, lines]).sum()
        strange = state == len(OFFSETS)
        clear = gain > -nats[1:-1].mean() / 2 * (last + 1 - first)  # strangers by chance have more
        if gain > SLIP and (not strange or clear and last - first > max(STRANGERS, len(rows) / 10)):
            offset = None if strange else OFFSETS[state]
            stretches.append((rows[first] + 1, rows[last] + 1, offset))
        first = last + 1
    return stretches


# --- This machine ---
def started(
    start: Path | None, languages: tuple[str, str], changes: dict[str, Any]
) -> tuple[Settings, Tokenizer | None]:
    """The settings of a training, and the vocabulary of the model that it starts from.

    Refused if they don't fit, as `train --start-from` refuses them.
    """
    settings = make_settings("tiny", False, changes)
    if not start:
        return settings, None
    read_translator(start, "cpu")
    return begin_from(start, settings, changes, languages)


def rehearse(
    train: Texts, languages: tuple[str, str], changes: dict[str, Any], seconds: float,
    start: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train on some of the text for so many seconds: speed and lengths in tokens, gigabytes."""
    # The vocabulary takes its part of the seconds; three updates come in any case.
    began = time.monotonic()
    # the longest sentence may be behind SAMPLE: `train` rehearses it itself, before it starts
    texts = [pair for pair in train if all(pair)][:SAMPLE]
    settings, tokenizer = started(start, languages, changes)
    tokenizer = tokenizer or tat.learn_bpe(texts, settings.bpe)
    parts = read_json(start / "config.json").get("marian") if start else None
    pairs = encode_pairs(tokenizer, texts, languages)
    fits = [pair for pair in pairs if max(map(len, pair)) <= settings.tokens_per_batch]
    if not fits:
        raise Refused(f"no sentence of train has fewer than {settings.tokens_per_batch:,} tokens")
    model = build_model(settings, len(tokenizer), parts)
    trainer = ParallelTrainer(model, settings, choose_device())
    lengths = [(len(p.src), len(p.tgt)) for p in fits]
    rows = sorted_batches(lengths, settings.tokens_per_batch, seed=0)
    trainer.update([fits[i] for i in rows[0]])  # the first one is slower
    trained_from = time.monotonic()
    tokens = updates = 0
    while time.monotonic() - began < seconds or updates < 3:
        batch = [fits[i] for i in rows[(updates + 1) % len(rows)]]
        trainer.update(batch)
        tokens += sum(len(pair.tgt) - 1 for pair in batch)
        updates += 1
    seconds_trained = time.monotonic() - trained_from
    return {
        "tokens_per_second": round(tokens / seconds_trained),
        "tokens_per_pair": sum(len(p.tgt) - 1 for p in pairs) / len(pairs),
        "longest": max(max(map(len, pair)) for pair in pairs),
        "seconds_per_update": seconds_trained / updates,
        "gigabytes": round(most_memory(), 1),
        "vocabulary": len(tokenizer),
        "layers": settings.N,
        "width": settings.d_model,
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
    }


def most_memory() -> float:
    """The most gigabytes of main memory that this process has had; 0 on Windows."""
    with suppress(ImportError):
        import resource

        unit = 2**30 if sys.platform == "darwin" else 2**20
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return 0.0


# --- What to expect ---
def pieces(line: str) -> list[str]:
    """The words of a line, lower-cased, and the signs of what is in a script without spaces."""
    signs = []
    for word in line.lower().split():
        # those scripts come after Thai's first sign; to look up names would take seconds
        unspaced = max(word) >= "\u0e00" and script(word) in UNSPACED
        signs.extend(word if unspaced else [word])
    return signs


def unit_of(texts: Texts) -> str:
    """What `seen` counts neighbours of, in words: `sign` if most targets have no spaces."""
    scripts = Counter(script(tgt) for _, tgt in texts[:SAMPLE])
    return "sign" if 2 * sum(scripts[name] for name in UNSPACED) > scripts.total() else "word"


def neighbours(texts: Texts) -> Iterable[tuple[str, str]]:
    """The pairs of neighbouring words (`pieces`) in the targets of a text."""
    return itertools.chain.from_iterable(itertools.pairwise(pieces(tgt)) for _, tgt in texts)


def seen(train: Texts, val: Texts) -> float:
    """The share, 0 to 1, of pairs of neighbouring words in val's target that stand in train."""
    # of signs instead of words in a script without spaces (`pieces`)
    in_train, in_val = set(neighbours(train)), list(neighbours(val))
    return sum(pair in in_train for pair in in_val) / max(1, len(in_val))


def logit(share: float) -> float:
    """The log-odds, log(p / (1 - p)); shares stay between 0.001 and 0.999, where it is finite."""
    share = min(max(share, 0.001), 0.999)
    return math.log(share / (1 - share))


def measured() -> list[tuple[float, float]]:
    """For each saved run from random weights, `seen` and BLEU; none where there are no rows."""
    # BLEU is that on test_2016_flickr, or on the text's own val, if it isn't Multi30k.
    with redirect_stdout(StringIO()):  # the notices that there are none; `reason` says so
        rows, stages, planned = (tat.saved_rows(name) for name in ("curve", "first_stage", "plan"))
    text_of = itemgetter("data", "pairs", "seed")
    shares = {text_of(row): row["seen"] for row in rows if row["kind"] == "text"}
    curve = [row for row in rows if row["kind"] == "curve" and row["start"] == "scratch"]
    runs = [(shares[text_of(row)], row["test"]["beam"]["bleu"]) for row in curve]
    stages = [row for row in stages if row["variant"] == "rotary" and row["direction"] == "de-en"]
    text = "multi30k", MOST_PAIRS, 0
    runs += [(shares[text], row["test_2016_flickr"]["beam"]["bleu"]) for row in stages]
    return runs + [(row["seen"], row["bleu"]) for row in planned if "seen" in row]


def expected(share: float, runs: list[tuple[float, float]]) -> tuple[float, float] | None:
    """The range of BLEU to expect where `seen` is `share`; None if nobody knows."""
    # A straight line through the saved
    # runs, in log-odds on both axes, says how BLEU rises with what train shows of the target
    # language. The range goes from a third of the odds on that line to three times.
    shares, scores = [x for x, _ in runs], [y for _, y in runs]
    if len({*shares}) < 3 or not share:
        return None
    across, up = [logit(x) for x in shares], [logit(y / 100) for y in scores]
    # in log-odds, because a BLEU near its ends moves less for the same step
    slope, start = statistics.linear_regression(across, up)
    odds = math.exp(start + slope * logit(share))
    low, high = (100 * x / (1 + x) for x in (odds / WIDE, odds * WIDE))
    return low, high


def reason(train: Texts, val: Texts, runs: list[tuple[float, float]]) -> str:
    """Why the saved runs don't say what BLEU to expect; "" if they do (`expected`).

    `val`: without what stands in train.
    """
    if len({share for share, _ in runs}) < 3:
        return "the saved runs of benchmarks/results aren't here"
    if not val:
        return "every line of val stands in train"
    if not FEWEST_PAIRS <= sum(map(all, train)) <= 2 * MOST_PAIRS:
        return f"the saved runs learned from {FEWEST_PAIRS} to {MOST_PAIRS:,} pairs"
    if unit_of(train) == "sign":
        return "no saved run wrote a language without spaces"
    if len(list(neighbours(val))) < FEWEST_NEIGHBOURS:
        return f"val has fewer than {FEWEST_NEIGHBOURS} of them, which is too little"
    return ""


def other_splits(corpus: Corpus, tell: Callable[[str], None]) -> dict[str, Texts]:
    """The splits of a folder beside train and val, such as test; `tell` hears of damaged ones."""
    if not corpus.folder:
        return {}
    texts: dict[str, Texts] = {}
    names = [path.name.removesuffix(".gz") for path in sorted(corpus.folder.iterdir())]
    ending = f".{corpus.src}"
    for split in [name.removesuffix(ending) for name in names if name.endswith(ending)]:
        if split not in SPLITS and f"{split}.{corpus.tgt}" in names:
            try:
                texts[split] = list(corpus.pairs(split))
            except (Refused, OSError) as error:
                tell(f"{split} can't be read, and isn't compared with train: {error}")
    return texts


def numbered_splits(corpus: Corpus) -> tuple[dict[str, Texts], dict[str, list[tuple]]]:
    """The splits that a corpus has files of, and its train and val with the lines' numbers."""
    undivided = replace(corpus, held_out=None)
    texts = {"train": list(undivided.pairs("train"))}
    train = [(*pair, number) for number, pair in enumerate(texts["train"], 1)]
    if corpus.held_out is None:
        texts["val"] = list(corpus.pairs("val"))
        val = [(*pair, number) for number, pair in enumerate(texts["val"], 1)]
        return texts, {"train": train, "val": val}
    corpus.pairs("val")  # refuses a share that is none
    return texts, {
        split: list(divided(train, corpus.held_out, split, corpus.data)) for split in SPLITS
    }


def text_facts(
    corpus: Corpus, tell: Callable[[str], None], tokenizer: Tokenizer | None
) -> tuple[Texts, Texts, dict[str, Any]]:
    """Train, val without what stands in train, and what is wrong, by the files' lines."""
    # What is wrong is found at places among the lines of a split; `numbered` has the numbers that
    # they have in the files, which differ where val is taken from train.
    texts, numbered = numbered_splits(corpus)
    train, val = ([(src, tgt) for src, tgt, _ in numbered[split]] for split in SPLITS)
    if not any(map(all, train)):
        raise Refused(
            f"{corpus.data}: no line of train has text in both {' and '.join(corpus.languages)}"
        )
    lines = complaints(train, val)
    alphabet = letters(train)
    if tokenizer:

        def pieces(text: str) -> list[str]:
            return tokenizer.tokens(tokenizer.encode(text, corpus.src))

        if not tokenizer.words:
            alphabet -= {sign for sign in alphabet if unknown_letters(pieces, sign)}
        lines["letters"] = strange(train, alphabet)
    lines["val letters"] = strange(val, alphabet)
    copied = {*lines.get("val in train", [])}
    fresh = [pair for number, pair in enumerate(val, 1) if number not in copied]
    for name, places in lines.items():
        split = "val" if name.startswith("val") else "train"
        lines[name] = [numbered[split][place - 1][2] for place in places]
    other_texts = other_splits(corpus, tell)
    lines |= {f"{split} in train": copies(train, pairs) for split, pairs in other_texts.items()}
    facts = {
        "pairs": sum(map(all, train)), "val": len(val), "held_out": corpus.held_out,
        "complaints": {name: numbers for name, numbers in lines.items() if numbers},
        "slips": {
            name: stretches for name, pairs in (texts | other_texts).items()
            if (stretches := slips(pairs))
        },
    }  # fmt: skip
    return train, fresh, facts


def plan(
    corpus: Corpus, seconds: float, tell: Callable[[str], None],
    say: Callable[[str], None] = nobody, start: Path | None = None,
) -> dict[str, Any]:  # fmt: skip
    """All that `plan` finds; `tell` hears what is being done, `say` first what is wrong.

    start: the run or model to start from. Where lines of train or val have slipped, nothing is
    advised.
    """
    # What is wrong with the text is said before the machine is tried, which takes `seconds`. What
    # can't be told stays None, so all plans have the same keys.
    _, tokenizer = started(start, corpus.languages, {})
    train, val, facts = text_facts(corpus, tell, tokenizer)
    origin: dict[str, Any] = {"data": corpus.data, "src": corpus.src, "tgt": corpus.tgt}
    facts = origin | facts
    for line in text_report(facts):
        say(line)
    facts |= expectations(train, val, start)
    facts |= dict.fromkeys(("advice", "machine", "minutes", "command"))
    if facts["slips"].keys() & SPLITS:
        return facts | {"bleu": None, "bleu_unknown": "the lines don't belong together"}
    # what to do, and how long that takes here
    changes, updates = recipe(facts["pairs"], bool(start))
    changes = MEASURED | changes
    if start:  # its sizes are the model's
        changes = {name: value for name, value in changes.items() if name not in SIZES}
    tell(f"{facts['pairs']:,} pairs; trying this machine for {seconds:g} seconds")
    machine = rehearse(train, corpus.languages, changes, seconds, start)
    advice: dict[str, Any] = {"preset": "tiny"} | changes | {"steps": updates}
    batch_tokens = make_settings("tiny", False, changes).tokens_per_batch  # far above a sentence
    if machine["longest"] > batch_tokens:
        advice["longest"] = batch_tokens
    # a validation is as long as a third of its training would be: it has no backward pass
    forward = facts["val"] * machine["tokens_per_pair"] / machine["tokens_per_second"] / 3
    validations = -(-updates // Limits.checkpoint_every)
    minutes = (updates * machine["seconds_per_update"] + validations * forward) / 60
    facts |= {"advice": advice, "machine": machine, "minutes": round(minutes, 1)}
    return facts | {"command": command(corpus, start, advice)}


def expectations(train: Texts, val: Texts, start: Path | None) -> dict[str, Any]:
    """What to expect, from the text alone; `val`: without what stands in train."""
    share = seen(train, val) if val else None
    runs = measured()
    unknown = reason(train, val, runs)
    if start:
        unknown = "no saved run went on from another model on other text; train from scratch, too, and compare"
    bleu = None if unknown or share is None else expected(share, runs)
    facts = {"seen": share and round(share, 3), "unit": unit_of(train), "bleu_runs": len(runs)}
    return facts | {"bleu": bleu, "bleu_unknown": unknown}


def command(corpus: Corpus, start: Path | None, advice: dict[str, Any]) -> str:
    """The training that is advised, to be copied into a shell."""
    # in the order in which one reads them: the text, the run, then what was chosen
    options: dict[str, Any] = {
        "data": shlex.quote(corpus.data), "src": corpus.src, "tgt": corpus.tgt,
    }  # fmt: skip
    if start:
        options["start-from"] = shlex.quote(str(start))
    options["run"] = Path("runs") / f"{corpus.src}-{corpus.tgt}"
    options |= advice
    if corpus.held_out is not None:
        options["held-out"] = f"{corpus.held_out:g}"
    words = [f"--{name.replace('_', '-')} {value}" for name, value in options.items()]
    return f"python the_annotated_transformer.py train {' '.join(words)}"


def text_report(facts: dict[str, Any]) -> Iterable[str]:
    """The lines about the text, which `plan` prints first."""
    for split, stretches in facts["slips"].items():
        for first, last, offset in stretches[:5]:
            where = f"{split}: from about line {first:,} to line {last:,}"
            if offset is None:
                yield f"{where} the two sides are no translations of each other"
            else:
                down = f"{abs(offset)} further {'down' if offset > 0 else 'up'} in {facts['tgt']}"
                yield f"{where} the two sides have slipped: a line's translation is {down}"
    for name, numbers in facts["complaints"].items():
        split = name.removesuffix(" in train")  # of another split, or else a name of SAYS
        complaint, _, meaning = SAYS.get(
            name, SAYS["val in train"].replace("val", split)
        ).partition("; ")
        of_train = "of train, " if facts["held_out"] and name.startswith("val ") else ""
        yield (
            f"{complaint}: {len(numbers):,} ({of_train}line {some_of(numbers)})"
            f"{'; ' if meaning else ''}{meaning}"
        )
    if not facts["complaints"] and not facts["slips"]:
        yield "nothing is wrong with the text, as far as counting can tell"


def report(facts: dict[str, Any]) -> Iterable[str]:
    """The lines that `plan` prints after those about the text."""
    machine, advice = facts["machine"], facts["advice"]
    if not advice:
        yield "no training is advised, and no BLEU expected, until the lines belong together"
        return
    yield (
        f"train {machine['layers']} + {machine['layers']} layers of width {machine['width']} "
        f"({machine['parameters'] / 1e6:.1f} million weights, {machine['vocabulary']:,} tokens) "
        f"for {advice['steps']:,} updates: about {facts['minutes']:.1f} minutes here, "
        f"{machine['gigabytes'] or '?'} GB of memory"
    )
    copied = "val in train" in facts["complaints"]
    without = " (without its lines that stand in train)" if copied else ""
    text = f"of the {facts['unit']} pairs of val's {facts['tgt']}{without}, "
    text = f"{text}{facts['seen']:.0%} stand in train; " if facts["seen"] is not None else ""
    if facts["bleu"]:
        low, high = (f"{score:.0f}" for score in facts["bleu"])
        on_all = "; on all of val it will be higher" if copied else ""
        runs = f"{facts['bleu_runs']} runs in benchmarks/results say what follows"
        yield f"expect {low} to {high} BLEU{on_all}: {text}{runs}"
    else:
        yield f"what to expect isn't known: {text}{facts['bleu_unknown']}"
    yield facts["command"]
