"""Scores of a corpus, each with a signature that says how it was computed."""

import unicodedata
from collections import Counter
from functools import partial
from importlib.util import find_spec
from typing import Any

SCORES = {
    "bleu": "BLEU", "bleu_lower": "BLEU, lower-cased", "bleu_moses": "BLEU, lower-cased, Moses",
    "chrf": "chrF",
}  # fmt: skip
# scripts without spaces between words
UNSPACED = {"CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"}


def cut_of(references: list[str]) -> str:
    """sacreBLEU's tokeniser for a language: 13a, unless most letters are of `UNSPACED` scripts."""
    # most letters decide, because names and numbers of another script stand in any text
    letters = (c for text in references for c in text if c.isalpha())
    letters = Counter(unicodedata.name(c, "").split(" ")[0] for c in letters)
    if 2 * sum(letters[script] for script in UNSPACED) <= letters.total():
        return "13a"
    if letters["HIRAGANA"] + letters["KATAKANA"]:
        return "ja-mecab" if find_spec("MeCab") and find_spec("ipadic") else "char"
    return "zh" if letters["CJK"] > letters.total() / 2 else "char"


def bleu_of(translations: list[str], references: list[str]) -> float:
    """BLEU of a corpus, cased, as in `score`, without the scores that take longer."""
    from sacrebleu.metrics import BLEU

    return BLEU(tokenize=cut_of(references)).corpus_score(translations, [references]).score


def score(
    translations: list[str], references: list[str], language: str = "en"
) -> dict[str, Any]:  # fmt: skip
    """BLEU of a corpus and chrF, each with its signature.

    BLEU is 13a cased; lower-cased; lower-cased after Moses tokenisation. For a script without
    spaces, all BLEU is of sacreBLEU's tokens for it. `length` is the length of the translations
    divided by the length of the references.
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacremoses import MosesTokenizer

    rules = cut_of(references)
    sides = translations, references
    lower = BLEU(lowercase=True, tokenize=rules)
    metrics = {"bleu": BLEU(tokenize=rules), "bleu_lower": lower, "chrf": CHRF()}
    # where the Moses rules have no words to cut, this score is the lower-cased one
    metrics["bleu_moses"] = lower
    cut = sides
    if rules == "13a":
        moses = partial(MosesTokenizer(lang=language).tokenize, return_str=True, escape=False)
        cut = [list(map(moses, side)) for side in sides]
        metrics["bleu_moses"] = BLEU(lowercase=True, tokenize="none", force=True)
    scores = {}
    for name in SCORES:
        hypotheses, truth = cut if name == "bleu_moses" else sides
        result = metrics[name].corpus_score(hypotheses, [truth])
        scores |= {name: result.score, f"{name}_signature": str(metrics[name].get_signature())}
        if name == "bleu":
            scores["length"] = result.sys_len / max(1, result.ref_len)
    return scores


def half_width(name: str, translations: list[str], references: list[str]) -> float | None:
    """Half of the 95% interval of `bleu` or `chrf`, by a thousand bootstrap samples of sentences.

    The samples are always the same ones, if SACREBLEU_SEED isn't set. None where a sample has no
    score but 0, which sacreBLEU can't put beside others.
    """
    from sacrebleu.metrics import BLEU, CHRF

    # forced, because `score` has already had a warning of tokenised text
    metric = BLEU(tokenize=cut_of(references), force=True) if name == "bleu" else CHRF()
    try:
        result: Any = metric.corpus_score(translations, [references], n_bootstrap=1000)
    except TypeError:  # a 0 of Python's among numbers of NumPy's
        return None
    return round(float(result._ci), 4)


def table(sources: list[str], references: list[str], translations: list[str]) -> str:
    """chrF of each sentence, source, reference and translation: lines with tabs, and a title."""
    from sacrebleu.metrics import CHRF

    # tabs in the texts would make columns
    lines = ["chrF\tsource\treference\ttranslation"]
    for source, reference, translation in zip(sources, references, translations, strict=True):
        chrf = CHRF().sentence_score(translation, [reference]).score
        fields = (text.replace("\t", " ") for text in (source, reference, translation))
        lines.append("\t".join((f"{chrf:.1f}", *fields)))
    return "\n".join(lines) + "\n"
