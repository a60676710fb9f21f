"""The translation of each line that is closest to the reference."""

from pathlib import Path

from sacrebleu import sentence_bleu

from translator.__main__ import deliver
from translator.files import Refused, refusing


def lines_of(path: Path) -> list[str]:
    """The lines of a file; Refused if it isn't UTF-8."""
    with refusing(f"{path}: not UTF-8", UnicodeDecodeError):
        return path.read_text(encoding="utf-8").split("\n")


def benchmark(reference: Path, *translations: Path) -> None:
    """Choose the translation of each line that is closest to the reference, by sentence BLEU;
    write it to standard output.

    All files have one sentence per line. The second round of training pairs was made with it: see
    the cards in `models/`.

    Args:
        reference: a file of references
        translations: files of translations
    """
    if not translations:
        raise Refused("there are no translations to choose from")
    wanted, *others = map(lines_of, (reference, *translations))
    for path, lines in zip(translations, others, strict=True):
        if len(lines) != len(wanted):
            raise Refused(f"{path} has {len(lines)} lines, but {reference} has {len(wanted)}")
    chosen = []
    for target, *candidates in zip(wanted, *others, strict=True):
        scores = [sentence_bleu(candidate, [target]).score for candidate in candidates]
        chosen.append(candidates[scores.index(max(scores))])  # the first of equal ones
    deliver("\n".join(chosen).removesuffix("\n"))
