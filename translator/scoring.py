"""Scores of a corpus, each with a signature that says how it was computed."""

from functools import partial
from typing import Any

SCORES = {"bleu": "BLEU", "bleu_lower": "BLEU, lower-cased", "bleu_moses": "BLEU, lower-cased, Moses", "chrf": "chrF"}


def score(translations: list[str], references: list[str], language: str = "en") -> dict[str, Any]:
    """BLEU of a corpus (13a cased; lower-cased; lower-cased after Moses tokenisation) and chrF, each with its signature.

    `length` is the length of the translations divided by the length of the references.
    """
    from sacrebleu.metrics import BLEU, CHRF
    from sacremoses import MosesTokenizer

    moses = partial(MosesTokenizer(lang=language).tokenize, return_str=True, escape=False)
    cut = [list(map(moses, side)) for side in (translations, references)]
    metrics = {"bleu": BLEU(), "bleu_lower": BLEU(lowercase=True), "chrf": CHRF()}
    metrics["bleu_moses"] = BLEU(lowercase=True, tokenize="none", force=True)
    scores = {}
    for name in SCORES:
        hypotheses, truth = cut if name == "bleu_moses" else (translations, references)
        result = metrics[name].corpus_score(hypotheses, [truth])
        scores |= {name: result.score, f"{name}_signature": str(metrics[name].get_signature())}
        if name == "bleu":
            scores["length"] = result.sys_len / max(1, result.ref_len)
    return scores
