"""Choose the translation of each line that is closest to the reference, by sentence BLEU; write it to standard output.

    python benchmarks/closest.py REFERENCE TRANSLATIONS...

All files have one sentence per line. The second round of training pairs was made with it: see the cards in `models/`.
"""

import sys
from pathlib import Path

from sacrebleu import sentence_bleu


def closest(reference: str, candidates: tuple[str, ...]) -> str:
    """The candidate with the highest sentence BLEU (sacreBLEU's defaults); the first of equal ones."""
    return max(candidates, key=lambda candidate: sentence_bleu(candidate, [reference]).score)


def main(arguments: list[str]) -> int:
    """Read the files and write the chosen lines; returns the exit status."""
    try:
        reference, *others = (Path(path).read_text(encoding="utf-8").split("\n") for path in arguments)
        chosen = [closest(line, found) for line, *found in zip(reference, *others, strict=True)]
    except (OSError, ValueError) as error:
        print(f"error: {error}" if arguments else __doc__, file=sys.stderr)
        return 2
    sys.stdout.write("\n".join(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
