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


def described(tokenizer: Tokenizer, source: list[int], hypothesis: Hypothesis) -> dict[str, Any]:
    """A translation: its tokens, the natural logarithms of their probabilities, and the alignment.

    That is pairs of places in source and translation. EOS belongs to no token, nor does a token
    whose row looks at the source's EOS most.
    """
    # the search keeps sums; their differences are the tokens' own
    log_p = [after - before for before, after in itertools.pairwise((0.0, *hypothesis.sums))]
    predicted = hypothesis.ids[1:]
    words = len(source) - 1
    aligned = [(i, j) for j, i in enumerate(hypothesis.looked_at) if predicted[j] != EOS]
    return {
        "translation": tokenizer.decode(hypothesis.ids),
        "tokens": tokenizer.tokens(predicted),
        "log_probs": [round(value, 4) for value in log_p],
        "mean_log_prob": round(sum(log_p) / len(log_p), 4),
        "score": round(hypothesis.score, 4),
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
        for row, best in zip(rows, search.hypotheses(rows, aligned=True), strict=True):
            hypotheses = [described(tokenizer, row, hypothesis) for hypothesis in best]
            result = {"source_tokens": tokenizer.tokens(row)} | hypotheses[0]
            if search.n_best > 1:
                result["hypotheses"] = hypotheses
            results.append(result)
        return results

    results = search.each(lines, work, tell, first)
    return [
        {"source": line} | (result or {"translation": ""})
        for line, result in zip(lines, results, strict=True)
    ]
