"""What to train with how many sentence pairs, and what to expect."""

from typing import Any


def recipe(pairs: int, trained: bool = False) -> tuple[dict[str, Any], int]:
    """Settings in place of those of the preset `tiny`, and updates, for so many pairs; `trained`: from a model's weights."""
    if trained:
        return {"tokens_per_batch": 1000, "factor": 0.5, "warmup": 30, "dropout": 0.25}, 60 if pairs < 4000 else 100
    small = {"N": 2, "positions": "rotary", "factor": 0.75, "warmup": 100}
    if pairs < 4000:
        return small | {"bpe": 1000, "tokens_per_batch": 1000, "dropout": 0.3}, 300
    return small | {"bpe": 3000, "tokens_per_batch": 2000, "dropout": 0.1}, 400
