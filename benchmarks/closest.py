"""The translation of each line that is closest to the reference."""

import sys
from pathlib import Path

from sacrebleu import sentence_bleu

from translator.files import Refused


def closest(reference: str, candidates: tuple[str, ...]) -> str:
    """The candidate with the highest sentence BLEU (sacreBLEU's defaults); the first of equal ones."""
    return max(candidates, key=lambda candidate: sentence_bleu(candidate, [reference]).score)


def benchmark(reference: Path, *translations: Path) -> None:
    """Choose the translation of each line that is closest to the reference, by sentence BLEU; write it to standard output.

    All files have one sentence per line. The second round of training pairs was made with it: see the cards in `models/`.

    Args:
        reference: a file of references
        translations: files of translations
    """
    if not translations:
        raise Refused("there are no translations to choose from")
    wanted, *others = (path.read_text(encoding="utf-8").split("\n") for path in (reference, *translations))
    for path, lines in zip(translations, others, strict=True):
        if len(lines) != len(wanted):
            raise Refused(f"{path} has {len(lines)} lines, but {reference} has {len(wanted)}")
    sys.stdout.write("\n".join(map(closest, wanted, zip(*others, strict=True))))
