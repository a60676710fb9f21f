"""CTranslate2's side of decoding_speed.py: a program that never loads PyTorch, because PyTorch's threads would disturb it.

Reads one JSON object from standard input: the model's folder, the number type, the number of threads, the lines to translate,
the sources and the number of steps for the task `steps`, the batch size and the beam size. Writes sentences per second.
"""

import json
import sys
import time
from collections.abc import Callable

import ctranslate2
from tokenizers import Tokenizer


def speed(work: Callable[[], int]) -> float:
    """Sentences per second."""
    start = time.perf_counter()
    return work() / (time.perf_counter() - start)


def speeds(task: dict, at_once: int) -> dict[str, float]:
    """All tasks with this many batches at once; they share the threads."""
    vocabulary = Tokenizer.from_file(f"{task['folder']}/tokenizer.json")
    vocabulary.encode_special_tokens = True
    threads = {"inter_threads": at_once, "intra_threads": task["threads"] // at_once}
    model = ctranslate2.Translator(task["folder"], compute_type=task["kind"], **threads)

    def split(beam: int = 1) -> int:
        tokens = [found.tokens for found in vocabulary.encode_batch(task["lines"])]
        limits = {"max_batch_size": task["batch"], "max_decoding_length": max(map(len, tokens)) + 51}
        found = model.translate_batch(tokens, beam_size=beam, length_penalty=task["alpha"], **limits)
        return len([vocabulary.decode([vocabulary.token_to_id(t) for t in f.hypotheses[0]]) for f in found])

    def steps() -> int:
        limits = {"min_decoding_length": task["steps"], "max_decoding_length": task["steps"]}
        return len(model.translate_batch(task["sources"], beam_size=1, max_batch_size=task["batch"], **limits))

    steps()
    return {"split": speed(split), "beam": speed(lambda: split(task["beam"])), "steps": speed(steps)}


def main() -> None:
    """Measure all tasks both ways, with all threads on one batch and with a batch for each thread; print the faster."""
    task = json.load(sys.stdin)
    ways = [speeds(task, at_once) for at_once in {1, task["threads"]}]
    print(json.dumps({name: max(way[name] for way in ways) for name in ways[0]}))


if __name__ == "__main__":
    main()
