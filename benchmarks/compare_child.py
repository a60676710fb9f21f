"""What `compare` runs in two checkouts: speeds of training and translation of PYTHONPATH's code."""

import json
import sys
import timeit
from dataclasses import replace

import torch

from since_2017 import sorted_batches
from the_annotated_transformer import ALPHA, BEAM, SHIPPED_MODEL, learn_bpe
from translator.corpus import encode_pairs
from translator.model_folder import read_translator
from translator.search import Search
from translator.settings import PRESETS, build_model
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer


def training_speed(preset: str, updates: int, texts: list[tuple[str, str]]) -> float:
    """Target tokens per second of some updates of a fresh model."""
    # what all commits can compute
    settings = replace(PRESETS[preset], positions="sinusoidal", tokens_per_batch=5000)
    tokenizer = learn_bpe(texts, PRESETS["tiny"].bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    torch.manual_seed(0)
    trainer = ParallelTrainer(build_model(settings, len(tokenizer)), settings)
    lengths = [(len(p.src), len(p.tgt)) for p in pairs]
    rows = sorted_batches(lengths, settings.tokens_per_batch, seed=0)
    batches = [[pairs[i] for i in batch] for batch in rows[:updates]]
    trainer.update(batches[0])
    tokens = sum(len(p.tgt) - 1 for batch in batches for p in batch)
    return tokens / timeit.timeit(lambda: list(map(trainer.update, batches)), number=1)


def main() -> None:
    """Print all speeds as one JSON object."""
    data = sys.argv[1]
    speeds = {}
    texts = load_pairs(data, "train")
    lines = [source for source, _ in load_pairs(data, "val")]
    for preset, updates in (("tiny", 20), ("small", 8)):
        speeds[f"training {preset}, target tokens/s"] = training_speed(preset, updates, texts)
    translator = read_translator(SHIPPED_MODEL)
    for name, beam in (("greedy", 1), (f"beam {BEAM}", BEAM)):
        translate = Search(translator, beam, ALPHA).translate
        translate(lines[:64])
        seconds = timeit.timeit(lambda: translate(lines), number=1)  # noqa: B023
        speeds[f"translation {name}, sentences/s"] = len(lines) / seconds
    print(json.dumps(speeds))


if __name__ == "__main__":
    main()
