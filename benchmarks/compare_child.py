"""What `compare` runs in each of two checkouts: the speeds of training and translation with the code on PYTHONPATH.

It knows two layouts of the program: this one, and that up to commit ad32212, whose search was `translator.decoding`.
"""

import functools
import importlib.util
import json
import sys
import time
from collections.abc import Callable

import torch

from the_annotated_transformer import ALPHA, BEAM, SHIPPED_MODEL, Translator, learn_bpe, sorted_batches
from translator.settings import PRESETS, build_model
from translator.sources import load_pairs

if importlib.util.find_spec("translator.search"):
    from translator.corpus import encode_pairs
    from translator.model_folder import read_translator
    from translator.search import Search
    from translator.trainer import ParallelTrainer as Trainer

    def translation(translator: Translator, beam: int) -> Callable[[list[str]], list[str]]:
        """The search as the command line uses it: from lines to lines."""
        return Search(translator, beam, ALPHA).translate
else:
    from translator.decoding import make_search, translate_lines
    from translator.vocabulary import encode_pairs
    from translator.weights import load_translator as read_translator

    from translator import compiled
    from translator.trainer import Trainer

    def translation(translator: Translator, beam: int) -> Callable[[list[str]], list[str]]:
        """The search as the command line used it, with the compiled step if there is one on this machine."""
        compiled.use(translator.model, beam, "auto")
        search, batch_size = make_search(beam, ALPHA), 512 // beam
        return functools.partial(translate_lines, translator, search=search, batch_size=batch_size)


def speed(work: Callable[[], object], amount: int) -> float:
    """How much of an amount is done in a second."""
    start = time.perf_counter()
    work()
    return amount / (time.perf_counter() - start)


def training_speed(preset: str, updates: int, texts: list[tuple[str, str]]) -> float:
    """Target tokens per second of some updates of a fresh model."""
    settings, tokenizer = PRESETS[preset], learn_bpe(texts, PRESETS["tiny"].bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    torch.manual_seed(0)
    trainer = Trainer(build_model(settings, len(tokenizer)), settings)
    rows = sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], settings.tokens_per_batch, seed=0)
    batches = [[pairs[i] for i in batch] for batch in rows[:updates]]
    trainer.update(batches[0])
    return speed(lambda: list(map(trainer.update, batches)), sum(len(p.tgt) - 1 for batch in batches for p in batch))


def main() -> None:
    """Print all speeds as one JSON object."""
    data, found = sys.argv[1], {}
    texts, lines = load_pairs(data, "train"), [source for source, _ in load_pairs(data, "val")]
    for preset, updates in (("tiny", 20), ("small", 8)):
        found[f"training {preset}, target tokens/s"] = training_speed(preset, updates, texts)
    translator = read_translator(SHIPPED_MODEL)
    for name, beam in (("greedy", 1), (f"beam {BEAM}", BEAM)):
        translate = translation(translator, beam)
        translate(lines[:64])
        found[f"translation {name}, sentences/s"] = speed(lambda: translate(lines), len(lines))  # noqa: B023
    print(json.dumps(found))


if __name__ == "__main__":
    main()
