"""How sure a model is of what it wrote, what that has lost, and where each token is from.

Names are those of other toolkits: `tokens`, `log_probs`, `score` and `hypotheses` of CTranslate2,
`alignment` of fairseq and Marian. The alignment is read from cross-attention, from the mean over
all heads of all layers in the row that predicts a token: of the ways that were measured, this one
has the lowest error rate (benchmarks/results/alignment.jsonl).
"""

import itertools
import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import Any

from the_annotated_transformer import EOS, UNK, Tokenizer, Translator
from translator.corpus import encode_texts
from translator.search import Hypothesis, Search

# What a program puts values into, reads as markup, or follows. No flag of printf's may be a space
# here, nor may a digit come before: "50 % des" and "100%ig" are text. R&D is, too; E&xit isn't.
PLACEHOLDER = re.compile(
    r"""https?://\S+ | [\w.+-]+@[\w-]+\.\w[\w.]*     # addresses
    | </?[A-Za-z0-9][^<>]*>                            # <b>, </a>, <0>
    | %\(\w+\)[-+#0]*\d*(?:\.\d+)?[a-zA-Z]            # %(name)s
    | %L?\d+(?![\d$%A-Za-z]|\.\d)                      # %1
    | (?<!\d)%(?:\d+\$)?[-+#0']*[\d*]*(?:\.[\d*]+)?(?:hh?|ll?|[qjzt])?[diouxXeEfFgGcsp@]
    | [%$#]?\{\{?[\w.\s-]*(?:[!:,][^{}]*)?\}\}?        # {0}, {name}, {{name}}, ${NAME}, {n:.2f}
    | \$[A-Za-z_]\w* | %% | \\[nrt]                    # $NAME, %%, \n
    | &(?=[^\W\d_])(?<![A-Z]&(?=[A-Z])) | (?<!\w)_(?=[^\W\d_])""",  # &File, _File
    re.X,
)


def described(tokenizer: Tokenizer, source: list[int], found: Hypothesis) -> dict[str, Any]:
    """A translation: its tokens, the natural logarithms of their probabilities, and the alignment.

    That is pairs of places in source and translation. EOS belongs to no token, nor does a token
    whose row looks at the source's EOS most.
    """
    sums, places = zip(*found.seen.tolist(), strict=True)
    log_p = [after - before for before, after in itertools.pairwise((0.0, *sums))]
    predicted, words = found.ids[1:], len(source) - 1
    aligned = [(int(i), j) for j, i in enumerate(places) if predicted[j] != EOS]
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
        for row, found in zip(rows, search.hypotheses(rows), strict=True):
            each = [described(tokenizer, row, one) for one in found]
            more = {"hypotheses": each} if search.n_best > 1 else {}
            results.append({"source_tokens": tokenizer.tokens(row)} | each[0] | more)
        return results

    found = search.each(lines, work, tell, first)
    both = zip(lines, found, strict=True)
    return [{"source": line} | (one or {"translation": ""}) for line, one in both]


def placeholders(line: str) -> Counter[str]:
    """The placeholders, tags, addresses and marks of shortcuts in a line (`PLACEHOLDER`)."""
    return Counter(PLACEHOLDER.findall(line))


def visible(sign: str) -> bool:
    """Whether a sign shows: no space, and nothing that would divide a note or move a cursor."""
    return sign.isprintable() and not sign.isspace()


def unknown_letters(tokenizer: Tokenizer, line: str, language: str) -> list[str]:
    """The letters and signs of a line that a vocabulary of pieces does not know."""
    if tokenizer.words or UNK not in tokenizer.encode(line, language):
        return []
    letters = [*filter(visible, dict.fromkeys(unicodedata.normalize("NFC", line)))]
    ids = encode_texts(tokenizer, letters, language)
    return [letter for letter, row in zip(letters, ids, strict=True) if UNK in row]


def add_losses(
    translator: Translator, lines: list[str], results: list[dict[str, Any]],
    tell: Callable[[str], None], first: int = 1,
) -> list[int]:  # fmt: skip
    """Note in each result what its `translation` has lost of a line, or has too much.

    `tell` hears of it, with the line's number, counted from `first`. Returns the numbers of lines
    with text that came out empty.
    """
    empty = []
    for number, (line, result) in enumerate(zip(lines, results, strict=True), first):
        before, after = placeholders(line), placeholders(result["translation"])
        losses = {
            "unknown_letters": unknown_letters(translator.tokenizer, line, translator.languages[0]),
            "lost_placeholders": [*(before - after).elements()],
            "added_placeholders": [*(after - before).elements()],
        }
        for name, signs in losses.items():
            if signs:
                result[name] = signs
                shown = ["".join(filter(visible, sign)) for sign in signs]
                tell(f"line {number}: {LOSSES[name].format(' '.join(shown))}")
        if any(map(visible, line)) and not result["translation"].strip():
            empty.append(number)
    return empty


LOSSES = {
    "unknown_letters": "the model does not know {}, and reads <unk> instead",
    "lost_placeholders": "its translation has lost {}",
    "added_placeholders": "its translation has {} where the source has not",
}
