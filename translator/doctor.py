"""After a training, or in its midst: what is wrong with a run, and how good it is.

`practice/examine.py` has the examinations and what each means; those that hold for trained models
are made here, and a run is made a patient of theirs. What matters is measured beside what is right:
translations beside references and beside the BLEU that `plan` expects of such a text, the updates
beside those that it would take, evaluation beside training on the same text. The log adds whether a
run has learned anything but the frequency of words, at which rate, and whether it should have
stopped. The bounds for real text are wider than those for German numbers, on which the catalogue
was measured.
"""

import functools
import math
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch

import the_annotated_transformer as tat
from practice import mistakes
from practice.examine import TESTS, Finding, Patient, examine, own_loss, words
from practice.mistakes import CATALOGUE, Mistake
from practice.wires import predict_with
from the_annotated_transformer import Pair, Transformer, Translator
from translator import plan
from translator.corpus import TokenStore, encode_pairs
from translator.files import Refused, read_json
from translator.model_folder import read_translator
from translator.run_folder import token_store
from translator.run_log import read_log
from translator.scoring import bleu_of
from translator.settings import Settings, saved_settings
from translator.sources import Corpus

# the cheap ones that hold for a trained model
EXAMS = ("wires", "loss", "swap", "translations", "references")
SOME = 48  # pairs that are examined
LONG = 40  # tokens; longer sentences are left out, because the naive decoding takes their square
# nats; a model that reads loses more by another's source: captions after 90 seconds, one core: 0.69
YOUNG = 0.5
MOST_PAIRS = 2 * plan.MOST_PAIRS + 1  # with more of train, `plan` expects nothing
MOST_HELD_OUT = 5000  # pairs that are read
GOOD_BLEU = 60.0  # whatever more a text may give, who has this is well
# factor / sqrt(warmup): the rate at its peak, times the root of d_model; `plan` takes 0.08 to 0.11
PEAK = 0.1
SUSPECTS = {  # a test that is ill, and kinds of mistakes that it was ill with
    "skipped": ("mask",), "rate": ("schedule",),
    "future": ("mask", "attention", "heads", "norm"), "past": ("mask",), "padding": ("mask",),
    "source": ("heads", "data"), "neighbours": ("positions", "norm"),
    "first loss": ("shift", "data"), "source order": ("positions",),
    "target order": ("positions",), "looks ahead": ("mask",), "twice": ("report",),
    "swap": ("heads", "data"), "overlap": ("data", "heads"), "variety": ("heads", "data"),
    "alone": ("decoding",), "fed back": ("decoding",),
    "frequency": ("schedule", "data", "adam"),
}  # fmt: skip
# what only a run shows, and the test that calls such mistakes ill on German numbers
LIKE = {
    "skipped": "gradient", "rate": "heart loss", "overlap": "swap", "variety": "swap",
    "frequency": "swap",
}  # fmt: skip
# what a log, its settings or its text explain; then no mistake is looked for
EXPLAINED = "low rate", "settings", "text"
FEW_TEXTS = 2000  # pairs of train whose sides are compared
# as ill in the first update as in the last
WIRED = "future", "padding", "neighbours", "twice", "modes", "skipped", "diverged"
EVERY = (
    "future", "past", "padding", "neighbours", "source", "source order", "target order",
    "looks ahead", "twice", "each word", "modes",
)  # fmt: skip


MODES = ("modes", "evaluation", "held out")  # whether what it learned is what it is asked
# whether it has learned to translate
LEARNING = ("frequency", "swap", "overlap", "variety", "translations")


class Symptom(NamedTuple):
    """What was seen, in words."""

    test: str
    state: str  # well, young or ill
    said: str


class Prospect(NamedTuple):
    """What `plan` knows of a run's text."""

    updates: int  # that it would take
    share: float | None  # of them, or of their tokens, that the run has had; None: it has no log
    low: float  # BLEU to expect; 0 to 100 if nobody knows
    high: float

    @property
    def known(self) -> bool:
        """Whether saved runs say what to expect."""
        return (self.low, self.high) != (0, 100)

    @property
    def good(self) -> float:
        """The BLEU from which on nothing is missing."""
        return min(self.high, GOOD_BLEU)


def patient_of(model: Transformer, longest: int, smoothing: float = 0.0) -> Patient:
    """A trained model as `practice.examine` needs it, with the document's greedy decoding."""
    # The program's own search refuses a model that sees the future, and such ones come to a doctor.
    # The same sentences are decoded once, up to `longest` tokens.

    @functools.cache
    # by sources alone: with other references, translations must be the same
    def decode_once(sources: tuple[tuple[int, ...], ...]) -> list[list[int]]:
        pairs = [Pair(list(src), []) for src in sources]
        return mistakes.translate(model, pairs, longest)

    def decode(pairs: list[Pair]) -> list[list[int]]:
        return decode_once(tuple(tuple(pair.src) for pair in pairs))

    return Patient(partial(predict_with, model), model, decode=decode, smoothing=smoothing)


def tokens_of(folder: Path, split: str, translator: Translator) -> TokenStore | None:
    """The tokens of a model's run; None if they aren't there."""
    store = token_store(folder, split, translator.tokenizer)
    return store if store.is_written else None


def held_out_pairs(folder: Path, translator: Translator, corpus: Corpus | None) -> list[Pair]:
    """Held-out pairs of a run, or of a corpus if one is given; Refused if there is neither."""
    store = tokens_of(folder, "val", translator)
    if corpus:
        texts = islice(corpus.full_pairs("val"), MOST_HELD_OUT)
        return encode_pairs(translator.tokenizer, texts, corpus.languages)
    if store:
        return store.pairs(range(min(len(store), MOST_HELD_OUT)))
    raise Refused(
        f"{folder} holds no text to examine it with; "
        "--data names a source with the split val, --held-out the share of its train"
    )


def some_pairs(pairs: list[Pair], origin: str) -> list[Pair]:
    """The pairs that are examined; Refused if there is too little text."""
    fitting = [pair for pair in pairs if 3 < len(pair.src) < LONG and 3 < len(pair.tgt) < LONG]
    if len({tuple(pair.src) for pair in fitting[:SOME]}) < 8:
        raise Refused(f"{origin}: val has fewer than eight sentences of three to {LONG} tokens")
    return fitting[:SOME]


def prospect(
    translator: Translator, train: list[str], pairs: list[Pair], settings: Settings, step: int
) -> Prospect:
    """What `plan` would do with such a text and expect of it; `train` are its target's lines."""
    if not train:
        return Prospect(0, None, 0, 100)
    # targets alone: `plan` goes by what train shows of the language that is written
    changes, updates = plan.recipe(len(train))
    val = [translator.tokenizer.decode(words(pair.tgt)) for pair in pairs]
    texts, val_texts = ([(line, line) for line in side] for side in (train, val))  # targets alone
    runs = plan.measured()
    low, high = 0.0, 100.0
    if not plan.reason(texts, val_texts, runs):
        low, high = plan.expected(plan.seen(texts, val_texts), runs) or (low, high)
    tokens = updates * (plan.MEASURED | changes)["tokens_per_batch"]
    had = step * settings.tokens_per_batch * settings.accumulate
    return Prospect(updates, had / tokens if step else None, low, high)


def lines_of_train(folder: Path, translator: Translator, corpus: Corpus | None) -> list[str]:
    """The target side of what a model was trained on, as far as it is there."""
    store = tokens_of(folder, "train", translator)
    if store:
        pairs = store.pairs(range(min(len(store), MOST_PAIRS)))
        return [translator.tokenizer.decode(words(pair.tgt)) for pair in pairs]
    # of another text than a model's own nothing is to be expected
    if not corpus or read_json(folder / "config.json").get("data") != corpus.data:
        return []
    try:
        return [tgt for _, tgt in islice(corpus.full_pairs("train"), MOST_PAIRS)]
    except (Refused, FileNotFoundError):  # a folder that has only val
        return []


def of_log(rows: list[dict], warmup: int, guessing: float | None) -> list[Symptom]:
    """What the log of a run shows by itself; `guessing` is the loss of word frequencies."""
    # From what spoils everything to what only takes time: skipped and diverged updates, a warmup
    # that isn't over, a model that has learned no more than frequencies, then the last losses.
    logged = [row["val_loss"] for row in rows if "val_loss" in row]
    losses = [loss for loss in logged if isinstance(loss, int | float) and math.isfinite(loss)]
    step = max([row["step"] for row in rows], default=0)
    skipped = max([row.get("skipped") or 0 for row in rows], default=0)
    last = f"validation loss {losses[-1]:.2f}" if losses else ""
    symptoms = []
    if skipped > step / 10:
        sentence = f"{skipped} of {step} updates changed nothing: their gradient wasn't finite"
        symptoms.append(Symptom("skipped", "ill", sentence))
    if logged and logged[-1] not in losses[-1:]:
        sentence = "the last validation loss was no number: the run diverged, perhaps by its rate"
        symptoms.append(Symptom("diverged", "ill", sentence))
    if rows and step <= warmup:
        sentence = f"{step} updates, and the rate needs {warmup} to reach its peak: train longer"
        symptoms.append(Symptom("warmup", "young", sentence))
    if guessing and losses and step > warmup and losses[-1] > guessing - 0.5:
        sentence = (
            f"{last} after the warmup; knowing nothing but word frequencies has {guessing:.2f}"
        )
        symptoms.append(Symptom("frequency", "young" if step < 3 * warmup else "ill", sentence))
    if len(losses) > 3 and losses[-1] > min(losses) + 0.1:
        sentence = f"{last}, but it was {min(losses):.2f}: it learns its text by heart"
        symptoms.append(Symptom("overfit", "ill", sentence))
    elif len(losses) > 1 and losses[-2] - losses[-1] > 0.1:
        sentence = f"{last}; it still falls, before it was {losses[-2]:.2f}: train longer"
        symptoms.append(Symptom("falling", "young", sentence))
    return symptoms


def of_rate(rows: list[dict], d_model: int) -> list[Symptom]:
    """A rate that explains why nothing was learned, if the log has one."""
    # a good rate goes with the inverse square root of the width, as in Equation (3)
    rates = [row["lr"] for row in rows if isinstance(row.get("lr"), int | float)]
    times = max(rates, default=0) * d_model**0.5 / PEAK
    if not rates or 1 / 30 < times < 5:
        return []
    sentence = f"the rate reached {max(rates):.2g}, {times:.2g} times what plan takes at this width"
    return [Symptom("rate" if times > 1 else "low rate", "ill", sentence)]


def of_settings(settings: Settings) -> list[Symptom]:
    """Settings that explain why nothing was learned."""
    # each is a share of what is to be learned that is taken away
    shares = {"dropout": settings.dropout or 0.0, "smoothing": settings.smoothing}
    return [
        Symptom("settings", "ill", f"{name} is {share:g}: more than half of what it learns from")
        for name, share in shares.items() if share > 0.5
    ]  # fmt: skip


def of_text(store: TokenStore | None, translator: Translator) -> list[Symptom]:
    """Whether the two sides of what it was trained on have slipped, as `plan` sees it."""
    if not store:
        return []
    decode = translator.tokenizer.decode
    pairs = store.pairs(range(min(len(store), FEW_TEXTS)))
    stretches = plan.slips([(decode(words(p.src)), decode(words(p.tgt))) for p in pairs])
    return [
        Symptom(
            "text", "ill", f"the sides of train have slipped in pairs {first} to {last}: see plan"
        )
        for first, last, _ in stretches[:1]
    ]


def of_translations(
    rows: list[list[int]], pairs: list[Pair], translator: Translator, expected: Prospect
) -> tuple[float, Symptom]:
    """BLEU of translations, and what it means beside what such a text should give."""
    decode = translator.tokenizer.decode
    sides = [[decode(words(ids)) for ids in side] for side in (rows, [p.tgt for p in pairs])]
    # 48 sentences give a rough score, enough to tell nonsense from translations
    score = bleu_of(*sides)
    exact = sum(a == b for a, b in zip(*sides, strict=True))
    sentence = f"{score:.1f} BLEU, and {exact} of {len(pairs)} translations are the reference"
    if expected.known:
        sentence += f"; for this text plan expects {expected.low:.0f} to {expected.high:.0f} BLEU"
    else:
        sentence += "; what to expect isn't known"
    if score >= min(expected.low, GOOD_BLEU):
        return score, Symptom("translations", "well", sentence)
    early = expected.share is not None and expected.share < 0.5
    return score, Symptom("translations", "young" if early else "ill", f"{sentence}: too little")


def of_modes(
    patient: Patient, train: list[Pair], pairs: list[Pair], rows: list[dict], well: bool
) -> list[Symptom]:
    """Evaluation beside training, on the same text; and held-out text beside both."""
    if not train:
        return []
    logged = [row["loss"] for row in rows if isinstance(row.get("loss"), int | float)]
    # `smooth` is the log's kind of loss, only without dropout, and should be below it
    smooth, plain = own_loss(patient, train), patient._replace(smoothing=0.0)
    symptoms = []
    if logged and smooth > logged[-1] + 0.5:
        sentence = (
            f"loss {logged[-1]:.2f} in training, but {smooth:.2f} of the same text in evaluation"
        )
        symptoms.append(Symptom("evaluation", "ill", sentence))
    learned, held = own_loss(plain, train), own_loss(plain, pairs)
    sentence = f"loss {learned:.2f} on train, {held:.2f} on val"
    if held > learned + 2 and not well:
        sentence += ": it has learned train, and val is another text, or prepared otherwise"
        return [*symptoms, Symptom("held out", "ill", sentence)]
    return [*symptoms, Symptom("held out", "well", sentence)]


def of_finding(name: str, value: float) -> Symptom:
    """What a test of the examination has measured, with bounds for real text."""
    # A trained model on real text reads less evenly than one of German numbers: what would be ill
    # there may be young here.
    test = TESTS[name]
    state = "ill" if Finding(name, value).ill else "well"
    if name == "swap" and math.isfinite(value):
        state = "well" if value > YOUNG else "young" if value > 0.05 else "ill"
    if name == "overlap":
        state = "well" if value > 0.1 else "young" if value > 0.03 else "ill"
    if name in ("alone", "fed back") and value >= 0.9:
        state = "well"  # of two tokens as good as alike, rounding takes either
    means = {"well": "", "young": ": it reads, but little as yet", "ill": f": {test.means}"}[state]
    return Symptom(name, state, test.measured.format(value) + means)


def of_examinations(patient: Patient, pairs: list[Pair], bleu: float) -> list[Symptom]:
    """What the examinations show; who has next to no BLEU may still learn to end."""
    symptoms = []
    for name, value in examine(lambda: patient, pairs, EXAMS):
        if name == "peeks" or value is None:  # its decoding never sees a reference
            continue
        symptom = of_finding(name, value)
        early = name == "ends" and bleu < 5
        symptoms.append(symptom._replace(state="young") if early else symptom)
    return symptoms


@functools.cache
def ill_tests() -> dict[str, list[set[str]]]:
    """By mistake, the tests that called it ill on German numbers, of each saved row."""
    # Empty where the program was installed without its results.
    tests: dict[str, list[set[str]]] = {}
    if (tat.HERE / "benchmarks" / "results" / "clinic.jsonl").exists():
        for row in tat.saved_rows("clinic"):
            tests.setdefault(row["mistake"], []).append(set(row["ill"]))
    return tests


def resembles(symptoms: list[Symptom]) -> list[Mistake]:
    """Mistakes of the catalogue that show the first test which is ill, and no wire that is well."""
    # The first ill test decides, because tests come from what spoils everything to what only takes
    # time. Of the mistakes of its kinds, those stay whose saved rows were ill by it and by no test
    # that was well.
    ill = [
        symptom.test for symptom in symptoms if symptom.state == "ill" and symptom.test in SUSPECTS
    ]
    other_text = any(symptom.state == "ill" for symptom in symptoms if symptom.test in MODES)
    explained = any(symptom.state == "ill" for symptom in symptoms if symptom.test in EXPLAINED)
    if not ill or explained or (other_text and ill[0] in LEARNING):
        return []  # it has learned, and something else is asked: as no mistake that we know does
    kinds = SUSPECTS[ill[0]]
    test = LIKE.get(ill[0], ill[0])
    well = {
        symptom.test for symptom in symptoms if symptom.state == "well" and symptom.test in EVERY
    }
    suspects = []
    for mistake in CATALOGUE.values():
        rows = ill_tests().get(mistake.name, [{test}])
        # one that did no harm to German numbers explains a wire, but no nonsense
        fits = mistake.kind in kinds and (ill[0] in EVERY or not mistake.harmless)
        if fits and any(test in row for row in rows) and not set.intersection(well, *rows):
            suspects.append(mistake)
    return sorted(
        suspects, key=lambda symptom: kinds.index(symptom.kind)
    )  # the likeliest kind first


def of_variety(rows: list[list[int]], pairs: list[Pair]) -> Symptom:
    """Whether different sentences are translated differently."""
    # a model that ignores its source writes one sentence for all
    different, sources = (len({*map(tuple, ids)}) for ids in (rows, [p.src for p in pairs]))
    share = different / sources
    state = "ill" if share < 0.1 else "young" if share < 0.5 else "well"
    sentence = f"{different} different translations of {len(pairs)} sentences"
    return Symptom("variety", state, sentence)


def of_updates(share: float, step: int) -> Symptom:
    """Whether a run has had the updates that its text takes, or a share; asked if it isn't good."""
    sentence = f"{step} updates, {share:.0%} of what plan would take"
    if share >= 0.5:
        return Symptom("updates", "well", sentence)
    return Symptom("updates", "young", f"{sentence}: train longer")


def diagnose(folder: Path, data: str | None = None, share: float | None = None) -> dict[str, Any]:
    """The verdict on a run or a model, the mistakes that it resembles, and all symptoms."""
    # What translations show beside their references decides how the rest is read: symptoms of a
    # run that has all that its text gives, or that has just begun, weigh less.
    translator = read_translator(folder, torch.device("cpu"))
    settings = saved_settings(read_json(folder / "config.json")["settings"])
    corpus = Corpus(data, *translator.languages, share) if data else None
    held_out = held_out_pairs(folder, translator, corpus)
    pairs = some_pairs(held_out, data or str(folder))
    log = read_log(folder)
    store = tokens_of(folder, "train", translator)
    step = max([row["step"] for row in log], default=0)
    lines = lines_of_train(folder, translator, corpus)
    expected = prospect(translator, lines, held_out, settings, step)
    slipped = of_text(store, translator)
    if slipped:
        expected = expected._replace(low=0, high=100)
    longest = max(len(pair.tgt) for pair in pairs) + 10
    patient = patient_of(translator.model, longest, settings.smoothing)
    rows = patient.decode(pairs)
    bleu, translations = of_translations(rows, pairs, translator, expected)
    learning = [translations, of_variety(rows, pairs)]
    learning += of_modes(patient, some_of_train(store), pairs, log, translations.state == "well")
    of_run = of_log(log, settings.warmup, store.guessing() if store else None)
    if bleu >= expected.good:  # it has what such a text gives, however it came there
        of_run = [symptom for symptom in of_run if symptom.test != "falling"]
    elif expected.share is not None:
        of_run.append(of_updates(expected.share, step))
    symptoms = slipped + of_run + of_examinations(patient, pairs, bleu) + learning
    if any(symptom.state != "well" for symptom in symptoms if symptom.test in LEARNING):
        symptoms = of_rate(log, settings.d_model) + of_settings(settings) + symptoms
    return {"run": str(folder), "bleu": round(bleu, 1)} | verdict(forgiven(symptoms))


def forgiven(symptoms: list[Symptom]) -> list[Symptom]:
    """What has just begun doesn't read yet, but its wires are there: nothing else is ill."""
    if not any(symptom.test == "warmup" for symptom in symptoms):
        return symptoms
    return [
        symptom._replace(state="young")
        if symptom.state == "ill" and symptom.test not in WIRED
        else symptom
        for symptom in symptoms
    ]


def some_of_train(store: TokenStore | None) -> list[Pair]:
    """As many pairs of train as are examined of val, from all over it."""
    if not store:
        return []
    pairs = store.pairs(range(0, len(store), max(len(store) // (2 * SOME), 1)))
    return [pair for pair in pairs if 3 < len(pair.src) < LONG and 3 < len(pair.tgt) < LONG][:SOME]


def verdict(symptoms: list[Symptom]) -> dict[str, Any]:
    """What all symptoms come to."""
    # A cause that log, settings or text show goes before the mistakes that its symptoms resemble.
    ill, young = (any(symptom.state == state for symptom in symptoms) for state in ("ill", "young"))
    suspects = resembles(symptoms)
    word = "healthy"
    if ill:
        word = "resembles" if suspects else "ill, by none of the mistakes that I know"
        causes = [
            symptom.test
            for symptom in symptoms
            if symptom.state == "ill" and symptom.test in EXPLAINED
        ]
        if causes:
            word = f"ill, and [{causes[0]}] says why"
        if {symptom.test for symptom in symptoms if symptom.state == "ill"} <= {"overfit"}:
            word = "healthy, but it has learned for too long"
            suspects = []
    elif young:
        word = "undertrained"
    like = [
        {"name": symptom.name, "line": symptom.line, "section": symptom.section}
        for symptom in suspects
    ]
    return {
        "verdict": word, "resembles": like, "symptoms": [symptom._asdict() for symptom in symptoms],
    }  # fmt: skip


def report(diagnosis: dict[str, Any]) -> list[str]:
    """The lines that `doctor` prints: what was measured, each with its test, and a verdict."""
    lines = [
        f"{symptom['state']:<6}{symptom['said']} [{symptom['test']}]"
        for symptom in diagnosis["symptoms"]
    ]
    like = diagnosis["resembles"]
    lines.append(f"{diagnosis['run']}: {diagnosis['verdict']}" + (":" if like else ""))
    if diagnosis["verdict"].startswith("healthy"):
        lines[-1] += f", {diagnosis['bleu']:.1f} BLEU"
    for symptom in like:
        lines.append(f"  {symptom['line']} ({symptom['name']}; the document: {symptom['section']})")
    return lines
