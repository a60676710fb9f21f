"""Numbers that a text quotes from rows: behind each, in the text, the name of its computation.

    python -m blog quotes
        say which numbers aren't what their rows give; exit 1 if there are any
    python -m blog quotes write
        write into the texts what the rows give

In a text it looks like this: `gains 1.4 ± 0.5<!--rotary ±-->`. No reader sees the name: it is a
comment of HTML, and the notebooks are made without it. A sentence may change as it likes; its
numbers stay those of the rows. Each function below gives some of the names with what stands before
them, words between the numbers included.
"""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np

import lab_notebook as lab
from blog.editions import DIGITS
from blog.notebook import QUOTED
from the_annotated_transformer import saved_rows
from translator import plan

ROOT = Path(__file__).resolve().parents[1]

TEXTS = [
    ROOT / name
    for name in (
        "translator/README.md", "lab_notebook.py", "since_2017.py",
        "the_annotated_transformer.py", "models/multi30k-de-en-rotary/README.md",
    )
]  # fmt: skip
SPACE = r"(?:\s+(?:# > *)?)"  # a line of a script may end here
NEAR = 300  # characters before a name in which its numbers are looked for
BEAM = "beam 5, alpha 1.8"
Quotes = dict[str, str]  # a name, and what stands before it


# --- what the rows give ---


def short_runs() -> Quotes:
    """Variants beside their base: `VARIANT MEASURE`, the measure being BLEU if it has no name."""
    # Each variant is compared with the base of its device, by each measure. A text may quote a
    # mean, or the mean and its reach by chance, or by how much it is beyond what many comparisons
    # need.
    variants = lab.miniature()
    quotes = {}
    for measure in lab.MEASURES:
        reach = lab.reaches(variants, measure)[0]
        for name in lab.comparable(variants, measure):
            if name.removesuffix(lab.CPU) == "base":
                continue
            mean, _, corrected = lab.short_difference(variants, name, measure)
            key = name if measure == "BLEU" else f"{name} {measure}"
            quotes[key] = f"{abs(mean):.1f}"
            quotes[f"{key} ±"] = f"{abs(mean):.1f} ± {reach:.1f}"
            quotes[f"{key} beyond"] = f"{abs(abs(mean) - corrected):.2f}"
            quotes[f"{key} exactly"] = f"{abs(mean):.2f}"

    # of two variants beside each other, neither of which is the base
    def between(a: str, b: str, measure: str = "BLEU") -> str:
        means = [lab.short_difference(variants, name, measure)[0] for name in (a, b)]
        return f"{abs(means[0] - means[1]):.1f}"

    reach, corrected = lab.reaches(variants, "BLEU")
    greedy_reach = lab.reaches(variants, "greedy")[0]
    decoder = between("decoder_only rotary", "rotary", "greedy")
    quotes["decoder_only beside rotary"] = decoder
    quotes["decoder_only beside rotary ±"] = f"{decoder} ± {greedy_reach:.1f}"
    quotes["adam post beside muon post"] = f"{between('adam post', 'muon post')} ± {reach:.1f}"
    quotes["reach"] = f"{reach:.1f}"
    quotes["reach corrected"] = f"{corrected:.2f}"
    sentences = lab.sentences_reach("val", "de-en", "beam")
    quotes["reach with sentences"] = f"{math.hypot(reach, sentences):.1f}"
    return quotes


def long_runs() -> Quotes:
    """How long runs scatter, and what the claims about them say beside their table."""
    runs = lab.long_runs()

    def pooled(split: str, kinds: dict[str, str]) -> float:
        groups = [[row["score"] for row in runs[k, split, s].values()] for k, s in kinds.items()]
        return lab.pooled(groups)[0]

    # each kind of run, and the search that its rows are of
    en_de = dict.fromkeys(("en-de base", "en-de rotary"), BEAM)
    de_en = dict.fromkeys(("de-en base", "de-en rotary", "old pairs", "new pairs"), BEAM)
    de_en |= dict.fromkeys(("close to Wu", "close to Wu, rotary"), "beam 5, alpha 1.0")
    quotes = {
        "s en-de": f"{pooled(lab.TEST, en_de):.2f}",
        "s of the others": f"{pooled(lab.TEST, de_en):.2f}",
    }
    for name, split in {"second claim": lab.TEST, "second claim val": "val"}.items():
        mean = lab.long_difference(runs, "en-de base", "en-de rotary", split, BEAM)[0]
        quotes[name] = f"{mean:.1f} ± {lab.seeds_reach(pooled(split, en_de), 4):.1f}"
    mean, reach = lab.long_difference(runs, "old pairs", "new pairs", "val", BEAM)
    quotes["new pairs val"] = f"{mean:.1f} ± {reach:.1f}"
    return quotes


def close_to_wu() -> Quotes:
    """The recipe close to that of Wu et al., with sinusoids and with rotary positions (`wurot`)."""
    runs = lab.long_runs()
    before, after = (runs[kind, lab.TEST, BEAM] for kind in ("close to Wu", "close to Wu, rotary"))
    gains = [after[seed]["score"] - before[seed]["score"] for seed in sorted(before)]
    row = runs["close to Wu", lab.TEST, "beam 5, alpha 1.0"][0]
    longest = row["settings"]["tokens_per_batch"]
    tokens_of_base = lab.miniature()["base"][0]["tokens"]
    return {
        "wurot 1.8 gains": listed(gains),
        "wu updates": f"{row['step']:,} updates of up to {longest:,} tokens a side",
        "wu tokens": f"{row['tokens'] / 1e6:.0f} million",
        "wu tokens, times": f"{row['tokens'] / tokens_of_base:.0f}",
    }


def quality() -> Quotes:
    """Models by name, and those that learned from the pairs alone from English to German."""
    # Rows of single models, by name; and those that learned from the pairs alone, of two
    # benchmarks, whose mean stands for the method.
    quotes = {}
    alone = []
    for row in saved_rows("quality"):
        model = row.get("model") or ""
        if row["search"] == BEAM and row["step"] == 3400:
            suffix = " val" if row["split"] == "val" else ""
            quotes[model + suffix] = f"{row['bleu']:.1f}"
        if model.startswith("tiny-2150"):
            quotes[model] = f"{row['bleu']:.1f}"
        # models that learned from the pairs alone, as those of `first_stage` below
        of_test = (row["split"], row["search"], row["step"]) == (lab.TEST, BEAM, 4700)
        if of_test and re.fullmatch(r"en-de-\d|multi30k-en-de", model):
            alone.append(row["bleu_moses"])
            quotes["en-de alone tokens"] = f"{row['tokens'] / 1e6:.0f}"
    for row in saved_rows("first_stage"):
        if (row["direction"], row["variant"]) == ("en-de", "base"):
            alone.append(row[lab.TEST]["beam"]["bleu_moses"])
    quotes["en-de alone"] = f"{np.mean(alone):.2f}"
    quotes["en-de alone, behind Wu"] = f"{41.02 - np.mean(alone):.1f}"
    beams = [row for row in saved_rows("test_sets") if row["search"] != "greedy"]
    bleu = {(row["model"], row["split"]): row["bleu"] for row in beams}
    gains = [
        score - bleu["multi30k-de-en", split]
        for (model, split), score in bleu.items()
        if model == "multi30k-de-en-rotary" and split != "val"
    ]
    quotes["rotary model, four sets"] = f"{min(gains):.1f} to {max(gains):.1f} BLEU"
    return quotes


def bootstrap() -> Quotes:
    """Differences for other sentences, of single models."""
    rows = saved_rows("bootstrap")
    differ = [row["difference_interval"] for row in rows if row["a"]["model"] != row["b"]["model"]]
    reaches = [(high - low) / 2 for low, high in differ]
    quotes = {"bootstrap differences": f"{min(reaches):.1f} to {max(reaches):.1f}"}
    second = [row for row in rows if row["b"]["model"] == "multi30k-de-en"]
    second = next(row for row in second if "beam" in row["a"]["search"])
    low, high = second["b"]["interval"]
    quotes["one score"] = f"{(high - low) / 2:.1f}"
    for row in rows:
        a = row["a"]
        if (a["model"], row["split"]) == ("rotary-pairs", lab.TEST) and "beam" in a["search"]:
            low, high = row["difference_interval"]
            quotes["new pairs, one model"] = f"{row['difference']:.1f}"
            quotes["new pairs, one model, sentences"] = f"{low:.1f} to {high:.1f}"
    resampled = next(row for row in saved_rows("resample") if row["split"] == lab.TEST)
    for name in ("bleu", "without length", "chrf"):
        low, high = resampled[name]["sentences_interval"]
        span = f"(95%: {low:.1f} to {high:.1f})" if name == "bleu" else f"({low:.1f} to {high:.1f})"
        quotes[f"resample {name}"] = f"{resampled[name]['difference']:.1f} {span}"
    return quotes


def speed() -> Quotes:
    """Training beside other programs, and how much of a machine it uses."""
    quotes: Quotes = {}
    pairs: dict[str, list[float]] = {}
    for row in saved_rows("training_speed"):
        pairs.setdefault(row["preset"], []).append(row["ratio_of_pairs"])
    quotes |= {f"2022 {preset}": listed(ratios) for preset, ratios in pairs.items()}
    for row in saved_rows("peers"):  # the last of each size
        speeds = row["tokens_per_second"]
        for program, speed in speeds.items():
            ratio = speeds["this"]["median"] / speed["median"]
            quotes[f"{program} {row['preset']}"] = f"{ratio:.1f}"
    for row in saved_rows("step_profile"):
        if "mfu" in row:
            quotes[f"MFU {row['preset']}"] = f"{row['mfu']:.0%}"
    for number, row in saved_rows("scale")[-1]["pairs"].items():
        quotes[f"scale {number}"] = f"{int(number):,}"
        quotes[f"scale {number} seconds"] = f"{row['first_update_seconds']:.1f}"
    return quotes


def blind() -> Quotes:
    """The trial of the clinic on changes that chance made."""
    rows = saved_rows("clinic_blind")
    usual = next(row["trained"]["exact"] for row in rows if row["kind"] == "as it is")
    changes = {row["change"]: row for row in rows if row.get("works") == "differently"}
    harmful = [row for row in changes.values() if row["trained"]["exact"] < usual - 0.2]
    caught = [row for row in harmful if {*row["ill"]} - {"heart loss", "by heart"}]
    return {"blind without heart": f"{len(caught)} of the {len(harmful)}"}


def pairs_learned() -> Quotes:
    """What numbers of pairs give: of captions each time twice as many, and of messages."""
    curve: dict[tuple[str, int], list[float]] = {}
    for row in saved_rows("curve"):
        if row["kind"] == "curve" and row["start"] == "scratch":
            curve.setdefault((row["data"], row["pairs"]), []).append(row["test"]["beam"]["bleu"])
    captions = [np.mean(curve["multi30k", pairs]) for pairs in (500, 1000, 2000, 4000, 8000)]
    gains = np.diff(captions)
    messages = next(
        np.mean(bleu) for (data, n), bleu in curve.items() if "mes" in data and n == 4000
    )
    return {
        "captions doubled": f"{min(gains):.1f} to {max(gains):.1f}",
        "messages 4000": f"{messages:.1f}",
    }


def million_tokens() -> Quotes:
    """What recipes give for a million tokens, and a dropout that grows to a short run."""
    recipes: dict[str, list[float]] = {}  # in the order of the rows, from one change to the next
    for row in saved_rows("million"):
        recipes.setdefault(row["recipe"], []).append(row["bleu"])
    paper, falling, muon, rotary, always, tiny = (np.mean(bleu) for bleu in recipes.values())
    of_2150 = {
        row["model"]: row["bleu"] for row in saved_rows("quality") if row.get("step") == 2150
    }
    gain = of_2150["tiny-2150-growing-dropout"] - of_2150["tiny-2150-no-dropout"]
    return {
        "million tokens": f"{tiny:.1f}",
        "million tokens, dropout 0.1": f"{always:.1f}",
        "million tokens, no dropout": f"{rotary:.1f}",
        "million tokens, paper's parts": f"{paper:.1f}",
        "Muon's gain": f"{muon - paper:.1f}",
        "a falling rate's loss": f"{paper - falling:.1f}",
        "rotary positions' gain": f"{rotary - muon:.1f}",
        "dropout's loss": f"{rotary - always:.1f}",
        "seeds of a million tokens": f"{max(max(b) - min(b) for b in recipes.values()):.1f}",
        "growing dropout's gain": f"{gain:.1f}",
    }


def seconds_and_minutes() -> Quotes:
    """What a translation takes, and what minutes of training give."""
    quotes: Quotes = {}
    speed = saved_rows("decoding_speed")[-1]
    for name, seconds in speed["process_seconds"].items():
        quotes[f"process, {name}"] = f"{seconds:.2f}"
    for task, name in (("beam", "beams"), ("split", "greedily")):
        quotes[f"PyTorch, {name}"] = f"{1000 / speed['sentences_per_second'][task]['PyTorch']:.1f}"
    for row in saved_rows("time_to_quality"):
        if row["run"] == "both":
            quotes[f"{row['program']}, {row['budget']:.0f} minutes"] = f"{row['bleu']:.1f}"
    return quotes


def expectations() -> Quotes:
    """What `plan`, `doctor` and `translate --json` say of a run or a line, and how right it was."""
    runs = plan.measured()
    tried = [row for row in saved_rows("plan") if "seen" in row]
    curves = [row for row in saved_rows("curve") if row["kind"] == "curve"]
    elsewhere = len(tried) + sum(row["data"] != "multi30k" for row in curves)
    ratios = [row["minutes"] / row["predicted_minutes"] for row in tried]
    sick = [row for row in saved_rows("doctor") if row["expected"] == "resembles"]
    named = [len(row["resembles"]) for row in sick if row["named"]]
    row = next(row for row in saved_rows("confidence") if row["model"] == "multi30k-de-en")
    quotes = {
        "plan, runs": f"{len(runs)}",
        "plan, runs on Multi30k": f"{len(runs) - elsewhere}",
        "plan, other runs": f"{elsewhere}",
        "plan, minutes": f"{max(*ratios, *(1 / ratio for ratio in ratios)):.1f}",
        "doctor, named": f"{min(named)} to {max(named)}",
    }
    for kind in ("sentences", "words"):
        for share in row["calibration"][kind]:
            quotes[f"right {kind}, from {share['from']}"] = f"{share['right']:.0%}"
    for kind, share in row["contrasts"].items():
        quotes[f"contrasts, {kind}"] = f"{round(20 * share)}"
        quotes[f"contrasts, {kind} lost"] = f"{round(20 * (1 - share))}"
    return quotes


def listed(values: Any, digits: int = 1) -> str:
    """Some numbers as English lists them: 1.0, 2.0 and 3.0."""
    *first, last = (f"{value:.{digits}f}" for value in values)
    return f"{', '.join(first)} and {last}" if first else last


SOURCES = (short_runs, long_runs, close_to_wu, quality, bootstrap)
SOURCES += (speed, blind, pairs_learned, million_tokens, seconds_and_minutes, expectations)


def from_rows() -> Quotes:
    """Every name with what the rows give. Raises ValueError if two computations share a name."""
    quotes: Quotes = {}
    for source in SOURCES:
        new = source()
        if shared := quotes.keys() & new.keys():
            raise ValueError(f"two computations are called {', '.join(sorted(shared))}")
        quotes |= new
    return quotes


# --- the texts ---


def before(text: str, mark: re.Match[str], quote: str) -> re.Match[str] | None:
    """The place before a mark that has the form of its quote, whatever its numbers are."""
    # the words between the numbers must be there; the numbers are what may have changed
    words = [re.escape(word) for word in re.split(DIGITS, quote)]
    form = DIGITS.join(words).replace(r"\ ", SPACE)
    return re.compile(rf"(?<![\d.,]){form}\Z").search(
        text, max(0, mark.start() - NEAR), mark.start()
    )


def rewritten(text: str, quotes: Quotes) -> tuple[str, list[str]]:
    """A text with the numbers of the rows, and a line for each that was another.

    Raises ValueError if a name has no computation, or stands behind something of another form.
    """
    changes = []
    # from the end: a number of another length moves only marks that are done
    for mark in reversed([*re.finditer(QUOTED, text)]):
        quote = quotes.get(mark[1])
        if quote is None:
            raise ValueError(f"nothing computes {mark[0]}")
        place = before(text, mark, quote)
        if place is None:
            raise ValueError(f"{quote} should stand before {mark[0]}")
        numbers = iter(re.findall(DIGITS, quote))
        new = re.sub(DIGITS, lambda _, numbers=numbers: next(numbers), place[0])
        if new != place[0]:
            changes.append(f"{mark[1]}: {place[0]}, and by its rows {new}")
            text = text[: place.start()] + new + text[place.end() :]
    return text, changes[::-1]


def stale() -> Iterator[tuple[Path, str, list[str]]]:
    """The texts with other numbers than their rows: the file, the text as it should be, why."""
    quotes = from_rows()
    for path in TEXTS:
        try:
            text, changes = rewritten(path.read_text("utf-8"), quotes)
        except ValueError as error:
            raise ValueError(f"{path.name}: {error}") from None
        if changes:
            yield path, text, changes


def main(command: Literal["check", "write"] = "check", /) -> int:
    """Say which quoted numbers aren't what their rows give, or write them; returns the status."""
    try:
        texts = [*stale()]
    except ValueError as error:
        print(f"error: {error}")
        return 2
    for path, text, changes in texts:
        print(*(f"{path.name}: {change}" for change in changes), sep="\n")
        if command == "write":
            path.write_text(text, "utf-8")
    return int(bool(texts) and command != "write")
