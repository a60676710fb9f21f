"""The translation of each line that is closest to the reference."""

import sys
from pathlib import Path

from sacrebleu import sentence_bleu

from translator.files import Refused


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
    chosen = []
    for target, *candidates in zip(wanted, *others, strict=True):
        scores = [sentence_bleu(candidate, [target]).score for candidate in candidates]
        chosen.append(candidates[scores.index(max(scores))])  # the first of equal ones
    sys.stdout.write("\n".join(chosen))
