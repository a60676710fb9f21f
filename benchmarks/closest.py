"""Of several translations of each line, write the one nearest to the reference, by BLEU of the sentence, to standard output.

    python benchmarks/closest.py REFERENCE TRANSLATIONS...

All files have one sentence per line. The second round of training pairs is made with it: see the cards in
`models/`.
"""

import sys
from pathlib import Path

from sacrebleu import sentence_bleu


def closest(reference: str, candidates: tuple[str, ...]) -> str:
    """The candidate of highest sentence BLEU (sacreBLEU's defaults); of equal ones the first."""
    return max(candidates, key=lambda candidate: sentence_bleu(candidate, [reference]).score)


def main(arguments: list[str]) -> int:
    """Read the files and write a line for each of theirs; returns the exit status."""
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
