"""What a translation has lost: placeholders, tags, and letters that the model does not know."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable
from typing import Any

# What a program puts values into, reads as markup, or follows. No flag of `printf` may be a space
# here, nor may a digit come before: `50 % des` and `100%ig` are text. R&D is, too; `E&xit` isn't.
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
LOSSES = {
    "unknown_letters": "the model does not know {}, and reads <unk> instead",
    "lost_placeholders": "its translation has lost {}",
    "added_placeholders": "its translation has {} where the source has not",
}


def placeholders(line: str) -> Counter[str]:
    """The placeholders, tags, addresses and marks of shortcuts in a line (`PLACEHOLDER`)."""
    return Counter(PLACEHOLDER.findall(line))


def visible(sign: str) -> bool:
    """Whether a sign shows: no space, and nothing that would divide a note or move a cursor."""
    return sign.isprintable() and not sign.isspace()


def unknown_letters(pieces: Callable[[str], list[str]], line: str) -> list[str]:
    """The letters and signs of a line that a vocabulary of pieces does not know.

    pieces: what cuts a text into its tokens.
    """
    if "<unk>" not in pieces(line):
        return []
    letters = filter(visible, dict.fromkeys(unicodedata.normalize("NFC", line)))
    return [letter for letter in letters if "<unk>" in pieces(letter)]


def add_losses(
    pieces: Callable[[str], list[str]], lines: list[str], results: list[dict[str, Any]],
    tell: Callable[[str], None], first: int = 1,
) -> list[int]:  # fmt: skip
    """Note in each result what its `translation` has lost of a line, or has too much.

    `pieces` cuts a line into tokens of the model's vocabulary. `tell` hears of each loss, with the
    line's number, counted from `first`. Returns the numbers of lines with text that came out empty.
    """
    empty = []
    for number, (line, result) in enumerate(zip(lines, results, strict=True), first):
        # counted, because one of two `%s` may be lost
        before, after = placeholders(line), placeholders(result["translation"])
        losses = {
            "unknown_letters": unknown_letters(pieces, line),
            "lost_placeholders": [*(before - after).elements()],
            "added_placeholders": [*(after - before).elements()],
        }
        for name, signs in losses.items():
            if signs:
                result[name] = signs
                visible_signs = ["".join(filter(visible, sign)) for sign in signs]
                tell(f"line {number}: {LOSSES[name].format(' '.join(visible_signs))}")
        if any(map(visible, line)) and not result["translation"].strip():
            empty.append(number)
    return empty


def some_of(numbers: list[int]) -> str:
    """The first five of some numbers, for a message."""
    return ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
