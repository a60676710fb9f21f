"""A grammar of captions: German sentences and their English translations.

It covers three genders, three cases, plurals, adjective endings, contractions (`im`, `ins`), verbs
that split (`hebt ... auf`) and clauses that end in their verb, so word order often differs between
the two languages, as in real data. It needs no download, and the seed determines the captions. A
German sentence always has the same translation.
"""

import functools
import random
import re
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from translator.files import Refused

TABLES = Path(__file__).with_name("captions.txt").read_text(encoding="utf-8")  # explained there
NOUN_TABLE, FRAME_TABLE = (re.sub(r"(?m)^#.*\n", "", table) for table in TABLES.split("\n\n"))
Noun = namedtuple("Noun", "kind adjectives words")  # words: those of its entry
NOUNS = []
for entry in NOUN_TABLE.split(";"):
    kind, adjectives, nouns = entry.split(":")
    NOUNS += [Noun(kind.strip(), adjectives.split(), noun.split()) for noun in nouns.split(",")]
Frame = namedtuple("Frame", "kind who verb slot places")
FRAMES = [Frame(*map(str.strip, line.split("|"))) for line in FRAME_TABLE.strip().splitlines()]
PLACES = {
    "park": "in=in dat der place", "beach": "an=on dat der Strand",
    "street": "auf=on dat der Straße", "lake": "an=by dat der See Fluss",
    "room": "in=in dat der Küche", "house": "vor=in_front_of dat ein Haus",
}  # fmt: skip
DETERMINERS = {
    "ein": "a", "der": "the", "die": "the", "zwei": "two", "drei": "three", "viele": "many",
    "-": "", "+": "",  # none: before a singular, and before a plural
}  # fmt: skip
MERGED = {  # two words after each other, and what is written for them
    ("in", "dem"): "im", ("an", "dem"): "am", ("in", "das"): "ins",
    (",", ","): ",", (",", "."): ".",
}  # fmt: skip
ORDERS = {  # of the parts of a clause, in German and in English
    "main": ("SVPOTR", "SVORP"), "place first": ("PVSOTR", "P,SVOR"), "verb last": ("SOV", "SVO"),
}  # fmt: skip


# A phrase says the same thing in both languages. So each language can put the parts of a clause
# into its own order (`S`ubject, `V`erb, `O`bject, `P`lace, `T`ail of the verb, `R`elative clause).


class Phrase(NamedTuple):
    """The same thing in German and English; a noun phrase keeps what other words agree with."""

    de: list[str]
    en: list[str]
    kind: str = "-"  # in no frame's `who`; "" would be in every one
    gender: str = ""  # m, f, n, or p: the plural, one for all genders
    pronoun: str = ""


class Caption(NamedTuple):
    """A German sentence and its translation."""

    de: str
    en: str


def say(words: list[tuple[str, str]], *agreement: str) -> Phrase:
    """A phrase of German words, each with its translation (`in_front_of`), unless it has none."""
    de = [german for german, _ in words if german]
    en = [text for _, english in words for text in english.split("_") if english]
    return Phrase(de, en, *agreement)


def join(*phrases: Phrase) -> Phrase:
    """One phrase after the other, in both languages."""
    return Phrase([w for p in phrases for w in p.de], [w for p in phrases for w in p.en])


NOTHING = Phrase([], [])
# A German noun phrase shows gender and case once: on the determiner if it has an ending, else on
# the adjective.
STRONG = {"nom": "er e es e", "acc": "en e es e", "dat": "em er em en"}  # m, f, n, p
DATIVE = {"m": "ihm", "f": "ihr", "n": "ihm", "p": "ihnen"}


def endings(determiner: str, case: str, gender: str) -> tuple[str, str]:
    """The inflected determiner and the ending of the adjective after it."""
    # the strong ending stands once: on the determiner, or else on the adjective
    strong = STRONG[case].split()["mfnp".index(gender)]
    weak = "en" if case == "dat" or gender == "p" or strong == "en" else "e"
    if determiner in ("der", "die"):
        return {"e": "die", "es": "das"}.get(strong, "d" + strong), weak
    if determiner == "ein" and (weak == "en" or gender == "f"):
        return "ein" + strong, weak
    return determiner.strip("-+"), strong


def decline(noun: Noun, preposition: str, case: str, determiner: str, adjective: str) -> tuple:
    """The words of a noun phrase, each with its English, and its kind, gender and pronoun."""
    head, german, plural, english, *irregular = noun.words
    gender, pronoun = head[0], head[2:]
    if determiner not in ("ein", "der", "-"):  # a plural; its "the" is `die`
        german = plural + "n" if case == "dat" and plural[-1] not in "ns" else plural
        english = irregular[0] if irregular else english + "s"
        gender = "p"
        pronoun = "them"
    elif gender == "w":  # such as `den Jungen`
        german = german if case == "nom" else plural
        gender = "m"
    stem, quality = adjective.split("=")
    article, ending = endings(determiner, case, gender)
    the = DETERMINERS[determiner]
    if determiner == "ein" and (quality or english)[0] in "aeiou":
        the = "an"
    adjective = stem and stem + ending
    words = [preposition.split("="), (article, the), (adjective, quality), (german, english)]
    return [word for word in words if any(word)], noun.kind, gender, pronoun


@functools.cache
def fillings(slot: str, crowd: bool) -> list[tuple]:
    """Everything that may fill a slot; half of it has no adjective."""
    preposition, case, choices, *names = slot.split() if "=" in slot else ["=", *slot.split()]
    return [
        decline(noun, preposition, case, determiner, adjective)
        for noun in NOUNS
        if noun.kind in names or noun.words[1] in names  # a class of nouns, or a German noun
        for determiner in choices.replace("je", "+" if crowd else "ein").split("/")
        for adjective in [*noun.adjectives, *["="] * max(1, len(noun.adjectives))]  # "=": none
    ]


def fill(rng: random.Random, slot: str, crowd: bool = False) -> Phrase:
    """One filling of a slot: of `mit=with dat ein pet`, perhaps `mit einem braunen Hund`."""
    return say(*rng.choice(fillings(slot, crowd))) if slot else NOTHING


def clause(
    rng: random.Random, frame: Frame, who: Phrase, order: str, place: str = "", *given: Phrase
) -> Phrase:  # fmt: skip
    """What someone does, to a given object or to one that fits the frame."""
    # A German main clause has its verb second and its particle at the end (`hebt einen Ball auf`);
    # any other clause ends in the whole verb (`einen Ball aufhebt`).
    singular, infinitive, english = frame.verb.split()
    finite, _, particle = singular.partition(".")
    crowd, last = who.gender == "p", order == "verb last"
    form = infinitive if crowd else finite
    head = say([(particle + form if last else form, "are" if crowd else "is")])
    tail = say([(particle, "")]) if particle and not last else NOTHING
    verb = Phrase(head.de, head.en + english.split("_"))
    # the seed's captions depend on the order in which these parts are drawn
    object_ = given[0] if given else fill(rng, frame.slot, crowd)
    description = NOTHING if last else describe(rng, object_, "wear hold")
    where, comma = fill(rng, place), say([("", ",")])
    parts = {"S": who, "V": verb, "O": object_, "P": where, "T": tail, "R": description, ",": comma}
    german, english = ([parts[name] for name in names] for names in ORDERS[order])
    return Phrase(join(*german).de, join(*english).en)


def describe(rng: random.Random, who: Phrase, kinds: str) -> Phrase:
    """Perhaps a description: `in einem roten Hemd`, or a clause, `, der einen Ball hält,`."""
    if rng.random() > 0.4:
        return NOTHING
    frames = [frame for frame in FRAMES if frame.kind in kinds and who.kind in frame.who]
    if not frames:
        return NOTHING
    frame = rng.choice(frames)
    if frame.kind == "look":
        return fill(rng, frame.slot, who.gender == "p")
    # the relative pronoun is declined like the article
    pronoun = endings("der", "nom", who.gender)[0]
    english = "that" if who.kind == "pet" else "who"
    that = say([(pronoun, english)], who.kind, who.gender, who.pronoun)
    return join(say([(",", "")]), clause(rng, frame, that, "verb last"), say([(",", "")]))


def meanwhile(rng: random.Random, who: Phrase) -> Phrase:
    """What others do at the same time; often they watch: `, während eine Frau ihm zusieht`."""
    watched = []
    if who.pronoun and rng.random() < 0.4:
        watched.append(say([(DATIVE[who.gender], who.pronoun)]))
        frames = [frame for frame in FRAMES if "zu" in frame.verb]  # `zusehen`, with a dative
    else:
        frames = [frame for frame in FRAMES if frame.kind in "free busy"]
    frame = rng.choice(frames)
    actors = fill(rng, f"nom ein/ein/ein/zwei/drei {frame.who}")
    doing = clause(rng, frame, actors, "verb last", "", *watched)
    return join(say([(",", ""), ("während", "while")]), doing)


def compose(rng: random.Random) -> Phrase:
    """One whole sentence."""
    frame = rng.choice([frame for frame in FRAMES if frame.verb])
    who = fill(rng, f"nom ein/ein/ein/ein/der/die/zwei/drei/viele {frame.who}")
    description = describe(
        rng, who, {"free": "look wear hold", "busy": "look wear"}.get(frame.kind, "")
    )
    place = PLACES[rng.choice(frame.places.split())] if frame.places and rng.random() < 0.6 else ""
    order = "place first" if place and rng.random() < 0.3 else "main"
    described = join(who, description)  # which forgets what other words agree with
    scene = clause(rng, frame, who._replace(de=described.de, en=described.en), order, place)
    return join(scene, meanwhile(rng, who) if rng.random() < 0.4 else NOTHING, say([(".", ".")]))


def finish(sentence: Phrase) -> Caption:
    """The two texts of a sentence."""
    # a German word that merges with the one before it (`in` and `dem`) takes its place
    german = [""]  # so that the first word has one before it
    for word in sentence.de:
        merged = MERGED.get((german[-1], word))
        if merged:
            german.pop()
        german.append(merged or word)
    return Caption(written(german[1:]), written(sentence.en))


def written(words: list[str]) -> str:
    """The text of a sentence."""
    text = " ".join(words).replace(" ,", ",").replace(" .", ".")
    return text[0].upper() + text[1:]


def captions(n: int, seed: int = 0) -> list[Caption]:
    """The first `n` different captions of a seed."""
    rng = random.Random(seed)
    captions_by_text = {}
    while len(captions_by_text) < n:
        caption = finish(compose(rng))
        # a second dog would be "another dog"; by their first letters, `Hunde` are dogs, too
        nouns = re.findall(r"[A-ZÄÖÜ]\w{2,3}", caption.de)
        if len(nouns) == len(set(nouns)):
            captions_by_text.setdefault(caption.de, caption)
    return list(captions_by_text.values())


CORPUS = 21_000
CAPTION_SPLITS = {"train": slice(1000, None), "val": slice(0, 500), "test": slice(500, 1000)}


@functools.cache
def caption_corpus() -> list[Caption]:
    """All captions, before they are split."""
    return captions(CORPUS)


def caption_pairs(split: str, src: str = "de", tgt: str = "en") -> Iterator[tuple[str, str]]:
    """The captions of a split: train, val or test, which never overlap; Refused for any other."""
    if split not in CAPTION_SPLITS or {src, tgt} != {"de", "en"}:
        raise Refused(
            f"captions has the splits {', '.join(CAPTION_SPLITS)} in de and en, "
            f"not {split}.{src} and {split}.{tgt}"
        )
    return ((getattr(c, src), getattr(c, tgt)) for c in caption_corpus()[CAPTION_SPLITS[split]])
