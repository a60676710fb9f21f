"""The side of CTranslate2 in decoding_speed.py: a program that never loads PyTorch, whose threads would disturb it.

Reads one JSON object from standard input: the model's folder, the kind of numbers, the number of threads, the lines to
translate, the sources and the number of steps of the other task, the size of a batch. Writes sentences per second.
"""

import json
import sys
import time
from collections.abc import Callable

import ctranslate2
from tokenizers import Tokenizer


def speed(work: Callable[[], int], calls: int) -> float:
    """Sentences per second over some calls."""
    start = time.perf_counter()
    return sum(work() for _ in range(calls)) / (time.perf_counter() - start)


def main() -> None:
    """Measure both tasks."""
    task = json.load(sys.stdin)
    vocabulary = Tokenizer.from_file(f"{task['folder']}/tokenizer.json")
    vocabulary.encode_special_tokens = True
    threads = {"inter_threads": 1, "intra_threads": task["threads"]}
    model = ctranslate2.Translator(task["folder"], compute_type=task["kind"], **threads)

    def split() -> int:
        tokens = [found.tokens for found in vocabulary.encode_batch(task["lines"])]
        limits = {"max_batch_size": task["batch"], "max_decoding_length": max(map(len, tokens)) + 51}
        found = model.translate_batch(tokens, beam_size=1, **limits)
        return len([vocabulary.decode([vocabulary.token_to_id(t) for t in f.hypotheses[0]]) for f in found])

    def steps() -> int:
        limits = {"min_decoding_length": task["steps"], "max_decoding_length": task["steps"]}
        return len(model.translate_batch(task["sources"], beam_size=1, max_batch_size=task["batch"], **limits))

    steps()
    print(json.dumps({"split": speed(split, 1), "steps": speed(steps, 5)}))


if __name__ == "__main__":
    main()
