"""How sure a model is of what it wrote, and where each token is from: `translate --json`.

Names are those of other toolkits: `tokens`, `log_probs`, `score` and `hypotheses` of CTranslate2,
`alignment` of fairseq and Marian. The alignment is read from cross-attention, from the mean over
all heads of all layers in the row that predicts a token: of the ways that were measured, this one
has the lowest error rate (benchmarks/results/alignment.jsonl).
"""

import itertools
from collections.abc import Callable
from typing import Any

from the_annotated_transformer import EOS, Tokenizer
from translator.search import Hypothesis, Search


def described(tokenizer: Tokenizer, source: list[int], found: Hypothesis) -> dict[str, Any]:
    """A translation: its tokens, the natural logarithms of their probabilities, and the alignment.

    That is pairs of places in source and translation. EOS belongs to no token, nor does a token
    whose row looks at the source's EOS most.
    """
    log_p = [after - before for before, after in itertools.pairwise((0.0, *found.sums))]
    predicted, words = found.ids[1:], len(source) - 1
    aligned = [(i, j) for j, i in enumerate(found.places) if predicted[j] != EOS]
    return {
        "translation": tokenizer.decode(found.ids),
        "tokens": tokenizer.tokens(predicted),
        "log_probs": [round(value, 4) for value in log_p],
        "mean_log_prob": round(sum(log_p) / len(log_p), 4),
        "score": round(found.score, 4),
        "alignment": [[i, j] for i, j in aligned if i < words],
    }


def judged(
    search: Search, lines: list[str], tell: Callable[[str], None], first: int = 1
) -> list[dict[str, Any]]:  # fmt: skip
    """What `--json` prints of each line; an empty translation of a blank one, or of one too long.

    Raises as `Search.translate` does.
    """
    tokenizer = search.translator.tokenizer

    def work(rows: list[list[int]]) -> list[dict[str, Any]]:
        results = []
        for row, found in zip(rows, search.hypotheses(rows, aligned=True), strict=True):
            each = [described(tokenizer, row, one) for one in found]
            more = {"hypotheses": each} if search.n_best > 1 else {}
            results.append({"source_tokens": tokenizer.tokens(row)} | each[0] | more)
        return results

    found = search.each(lines, work, tell, first)
    both = zip(lines, found, strict=True)
    return [{"source": line} | (one or {"translation": ""}) for line, one in both]
