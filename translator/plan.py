"""Before a training: what is wrong with a text, what to train, for how long, what to expect."""

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
from operator import itemgetter
from pathlib import Path
from typing import Any

import the_annotated_transformer as tat
from since_2017 import sorted_batches
from translator.corpus import encode_pairs
from translator.files import Refused
from translator.processes import choose_device
from translator.settings import PRESETS, Limits, build_model, make_settings
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer

# how `tiny` was set when the runs of `measured` were made
MEASURED = {
    "positions": "sinusoidal", "schedule": "paper", "tokens_per_batch": 5000,
    "factor": 1.5, "warmup": 200, "dropout": 0.25,
}  # fmt: skip
SAMPLE = 20_000  # pairs that vocabulary and speed are tried on
# the range goes from a third of the odds that are expected to three times; no run lies outside
WIDE = 3
MIXED = re.compile("HIRAGANA|KATAKANA")  # which Japanese mixes with CJK characters
Texts = list[tuple[str, str]]


def recipe(pairs: int, trained: bool = False) -> tuple[dict[str, Any], int]:
    """Settings in place of those of MEASURED, and updates, for so many pairs.

    `trained`: from a model's weights. What the benchmark `curve` trains with. From 20,000 pairs on
    it is what the shipped models' first stage had.
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
    names = Counter(unicodedata.name(letter, "?").split()[0] for letter in letters)
    found = names.most_common(1)[0][0] if names else ""
    return "CJK" if MIXED.match(found) else found


def complaints(train: Texts, val: Texts) -> dict[str, list[int]]:
    """The lines of train that may be wrong, by what may be wrong, as keys of SAYS.

    And the lines of val whose source stands in train.
    """
    full = [(number, *pair) for number, pair in enumerate(train, 1) if all(pair)]
    sides = zip(*train[:SAMPLE], strict=True)
    usual = [Counter(map(script, side)).most_common(1)[0][0] for side in sides]
    ratio = statistics.median([len(tgt) / len(src) for _, src, tgt in full] or [1.0])
    seen: set[tuple[str, str]] = set()
    sources = {src for _, src, _ in full}
    found: dict[str, list[int]] = {name: [] for name in SAYS}
    found["empty"] = [number for number, pair in enumerate(train, 1) if not all(pair)]
    found["val in train"] = [number for number, (src, _) in enumerate(val, 1) if src in sources]
    for number, *pair in full:
        src, tgt = pair
        wrong = {
            "twice": (src, tgt) in seen,
            "same": src == tgt and len(src.split()) > 2,  # a name or a number may stay as it is
            "lengths": max(map(len, pair)) > 30 and not 1 / 3 < len(tgt) / len(src) / ratio < 3,
            "script": any(script(s) not in ("", most) for s, most in zip(pair, usual, strict=True)),
            "short": any(sum(map(str.isalpha, s)) < 2 and script(s) != "CJK" for s in pair),
        }
        seen.add((src, tgt))
        for name, applies in wrong.items():
            if applies:
                found[name].append(number)
    return {name: numbers for name, numbers in found.items() if numbers}


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
    "val in train": "lines of val whose source stands in train; scores on val will be too high",
}  # fmt: skip


# --- This machine ---
def rehearse(
    train: Texts, languages: tuple[str, str], changes: dict[str, Any], seconds: float
) -> dict[str, Any]:
    """Train on some of the text for so many seconds: speed and lengths in tokens, gigabytes."""
    began, texts = time.monotonic(), [pair for pair in train if all(pair)][:SAMPLE]
    settings = make_settings("tiny", False, changes)
    tokenizer = tat.learn_bpe(texts, settings.bpe)
    pairs = encode_pairs(tokenizer, texts, languages)
    fits = [pair for pair in pairs if max(map(len, pair)) <= settings.tokens_per_batch]
    if not fits:
        raise Refused(f"no sentence of train has fewer than {settings.tokens_per_batch:,} tokens")
    trainer = ParallelTrainer(build_model(settings, len(tokenizer)), settings, choose_device())
    lengths = [(len(p.src), len(p.tgt)) for p in fits]
    rows = sorted_batches(lengths, settings.tokens_per_batch, seed=0)
    trainer.update([fits[i] for i in rows[0]])  # the first one is slower
    start, tokens, updates = time.monotonic(), 0, 0
    while time.monotonic() - began < seconds or updates < 3:
        batch = [fits[i] for i in rows[(updates + 1) % len(rows)]]
        trainer.update(batch)
        tokens, updates = tokens + sum(len(pair.tgt) - 1 for pair in batch), updates + 1
    speed, memory = tokens / (time.monotonic() - start), 0.0
    with suppress(ImportError):  # Windows does not tell
        import resource

        unit = 2**30 if sys.platform == "darwin" else 2**20
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    return {
        "tokens_per_second": round(speed),
        "tokens_per_pair": sum(len(p.tgt) - 1 for p in pairs) / len(pairs),
        "longest": max(max(map(len, pair)) for pair in pairs),
        "seconds_per_update": (time.monotonic() - start) / updates,
        "gigabytes": round(memory, 1),
        "vocabulary": len(tokenizer),
        "parameters": sum(p.numel() for p in trainer.model.parameters()),
    }


# --- What to expect ---
def seen(train: Texts, val: Texts) -> float:
    """The share, 0 to 1, of pairs of neighbouring words in val's target that stand in train."""

    def neighbours(texts: Texts) -> Iterable[tuple[str, str]]:
        for _, line in texts:
            words = line.lower().split()
            yield from zip(words, words[1:], strict=False)

    known, asked = set(neighbours(train)), list(neighbours(val))
    return sum(pair in known for pair in asked) / max(1, len(asked))


def logit(share: float) -> float:
    """The log-odds, log(p / (1 - p)); shares stay between 0.001 and 0.999, where it is finite."""
    share = min(max(share, 0.001), 0.999)
    return math.log(share / (1 - share))


def measured() -> list[tuple[float, float]]:
    """For each saved run from random weights, `seen` and BLEU; none where the rows are not there.

    BLEU is that on test_2016_flickr, or on the text's own val, if it isn't Multi30k.
    """
    with redirect_stdout(sys.stderr):  # the notice that there are none
        rows, whole, planned = (tat.saved_rows(name) for name in ("curve", "first_stage", "plan"))
    text_of = itemgetter("data", "pairs", "seed")
    shares = {text_of(row): row["seen"] for row in rows if row["kind"] == "text"}
    curve = [row for row in rows if row["kind"] == "curve" and row["start"] == "scratch"]
    runs = [(shares[text_of(row)], row["test"]["beam"]["bleu"]) for row in curve]
    whole = [row for row in whole if row["variant"] == "rotary" and row["direction"] == "de-en"]
    text = "multi30k", 29_000, 0
    runs += [(shares[text], row["test_2016_flickr"]["beam"]["bleu"]) for row in whole]
    return runs + [(row["seen"], row["bleu"]) for row in planned if "seen" in row]


def expected(share: float, runs: list[tuple[float, float]]) -> tuple[float, float] | None:
    """The range of BLEU to expect where `seen` is `share`.

    None if there are too few runs, or no neighbours at all. A straight line through the saved runs,
    in log-odds on both axes, says how BLEU rises with what train shows of the target language. The
    range goes from a third of the odds on that line to three times.
    """
    shares, scores = [x for x, _ in runs], [y for _, y in runs]
    if len({*shares}) < 3 or not share:
        return None
    across, up = [logit(x) for x in shares], [logit(y / 100) for y in scores]
    slope, start = statistics.linear_regression(across, up)
    odds = math.exp(start + slope * logit(share))
    low, high = (100 * x / (1 + x) for x in (odds / WIDE, odds * WIDE))
    return low, high


def plan(
    data: str, src: str, tgt: str, held_out: float | None, seconds: float,
    tell: Callable[[str], None],
) -> dict[str, Any]:  # fmt: skip
    """All that `plan` finds; `tell` hears what is being done."""
    train, val = (load_pairs(data, split, src, tgt, held_out) for split in ("train", "val"))
    count = sum(all(pair) for pair in train)
    if not count:
        raise Refused(f"{data}: no line of train has text in both {src} and {tgt}")
    changes, updates = recipe(count)
    changes = MEASURED | changes
    tell(f"{count:,} pairs; trying this machine for {seconds:g} seconds")
    machine = rehearse(train, (src, tgt), changes, seconds)
    advice: dict[str, Any] = {"preset": "tiny"} | changes | {"steps": updates}
    most = make_settings("tiny", False, changes).tokens_per_batch  # far more than a sentence
    if machine["longest"] > most:
        advice["longest"] = most
    options: dict[str, Any] = {"data": shlex.quote(data), "src": src, "tgt": tgt}
    options |= {"run": Path("runs") / f"{src}-{tgt}"} | advice
    options |= {} if held_out is None else {"held-out": f"{held_out:g}"}
    given = (f"--{name.replace('_', '-')} {value}" for name, value in options.items())
    command = f"python -m translator train {' '.join(given)}"
    # a validation is as long as a third of its training would be: it has no backward pass
    forward = len(val) * machine["tokens_per_pair"] / machine["tokens_per_second"] / 3
    validations = -(-updates // Limits.checkpoint_every)
    minutes = (updates * machine["seconds_per_update"] + validations * forward) / 60
    share, runs = seen(train, val), measured()
    return {
        "data": data, "src": src, "tgt": tgt, "pairs": count, "val": len(val),
        "complaints": complaints(train, val), "advice": advice, "machine": machine,
        "minutes": round(minutes, 1), "seen": round(share, 3), "bleu": expected(share, runs),
        "bleu_runs": len(runs), "command": command,
    }  # fmt: skip


def report(found: dict[str, Any]) -> Iterable[str]:
    """The lines that `plan` prints."""
    for name, numbers in found["complaints"].items():
        shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
        what, _, means = SAYS[name].partition("; ")
        yield f"{what}: {len(numbers):,} (line {shown})" + (f"; {means}" if means else "")
    if not found["complaints"]:
        yield "nothing is wrong with the text, as far as counting can tell"
    machine, advice = found["machine"], found["advice"]
    layers = advice.get("N", PRESETS["tiny"].N)
    yield (
        f"train {layers} + {layers} layers of width 128 "
        f"({machine['parameters'] / 1e6:.1f} million weights, {machine['vocabulary']:,} tokens) "
        f"for {advice['steps']:,} updates: about {found['minutes']:.0f} minutes here, "
        f"{machine['gigabytes'] or '?'} GB of memory"
    )
    text = f"of the word pairs of val's {found['tgt']}, {found['seen']:.0%} stand in train"
    if found["bleu"]:
        low, high = (f"{score:.0f}" for score in found["bleu"])
        runs = f"{found['bleu_runs']} runs in benchmarks/results say what follows"
        yield f"expect {low} to {high} BLEU: {text} ({runs})"
    else:
        yield f"what to expect isn't known: {text}"
    yield found["command"]
