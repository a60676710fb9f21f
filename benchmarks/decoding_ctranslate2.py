"""CTranslate2's side of `decoding_speed`, in a process that never loads PyTorch.

PyTorch's threads would disturb it.
"""

import timeit
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

BATCH, BEAM, ALPHA = 64, 5, 0.6


class Work(NamedTuple):
    """What all sides translate, and with what."""

    lines: list[str]
    model: Path
    export: Path  # the same model, as `export` writes it for CTranslate2
    threads: int


def speed(work: Work, translate: Callable[[int], object]) -> dict[str, float]:
    """Sentences per second of both tasks; `translate` translates all lines with so many beams."""
    translate(1)  # to warm up
    tasks = {"split": partial(translate, 1), "beam": partial(translate, BEAM)}
    return {name: len(work.lines) / timeit.timeit(task, number=1) for name, task in tasks.items()}


def ctranslate2_speed(work: Work, kind: str, at_once: int) -> dict[str, float]:
    """CTranslate2's, with this kind of numbers and so many batches at once, sharing the threads."""
    import ctranslate2
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_file(str(work.export / "tokenizer.json"))
    vocabulary.encode_special_tokens = True
    threads = {"inter_threads": at_once, "intra_threads": work.threads // at_once}
    model = ctranslate2.Translator(str(work.export), compute_type=kind, **threads)

    def translate(beam: int) -> list[str]:
        tokens = [encoding.tokens for encoding in vocabulary.encode_batch(work.lines)]
        limits = {"max_batch_size": BATCH, "max_decoding_length": max(map(len, tokens)) + 51}
        results = model.translate_batch(tokens, beam_size=beam, length_penalty=ALPHA, **limits)
        ids = [map(vocabulary.token_to_id, result.hypotheses[0]) for result in results]
        return [vocabulary.decode([i for i in row if i is not None]) for row in ids]

    return speed(work, translate)
