"""Where an update and a decoding step spend their time."""

import functools
import re
import statistics
import timeit
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.shared import CPU, RESULTS, Data, Preset, Rows, epoch, portable, with_adam
from the_annotated_transformer import BOS, learn_bpe, make_batch
from translator.corpus import encode_pairs
from translator.run import matrix_speed, operations
from translator.search import StepwiseDecoder
from translator.settings import Count, build_model
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer

# kind of work: how PyTorch's names of operations begin; products and random numbers in full
KINDS = {
    "matrix products": "(mm|addmm|bmm|baddbmm)_?$",
    "normalisation": "native_layer_norm",
    "random numbers": "(random|bernoulli|ge|lt)_?$",
    "optimiser": "_fused_adam|lerp|_foreach|linalg_vector_norm",
    "exp, sums, maxima": "exp(?!and)|log|_log_softmax|_softmax|sum|amax|max|gather|scatter_add",
    "copies": "copy_|cat|index|clone|fill_|zero_|nonzero|embedding|_index_put",
    "elementwise": "add|sub|mul|div|relu|threshold|clamp|neg|where|ne|bitwise",
}
REST = "Python and the rest"


def kind_of(operation: str) -> str:
    """The first kind that fits a profiled operation; views and the like cost only their call."""
    fitting = (kind for kind, names in KINDS.items() if re.match(f"aten::({names})", operation))
    return next(fitting, REST)


def shares(step: Callable[[], object]) -> dict[str, float]:
    """Shares of a step's time by kind of work, largest first; time outside them all is Python's."""
    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("whole step"):
        step()
    events = {event.key: event for event in profiler.key_averages()}
    whole, times = events.pop("whole step").cpu_time_total, Counter()
    for name, event in events.items():
        times[kind_of(name)] += event.self_cpu_time_total
    times[REST] += whole - sum(times.values())
    return {kind: round(microseconds / whole, 3) for kind, microseconds in times.most_common()}


def measure(preset: str, texts: list[tuple[str, str]], tokens: int, times: int) -> dict[str, Any]:
    """The row of one preset."""
    settings = with_adam(preset, {"tokens_per_batch": tokens})  # Muon has products of its own
    tokenizer = learn_bpe(texts, settings.bpe)
    pairs = epoch(encode_pairs(tokenizer, texts, ("de", "en")), tokens)[0]
    trainer = ParallelTrainer(build_model(settings, len(tokenizer)), settings)
    update = functools.partial(trainer.update, pairs)
    update()
    speeds = [matrix_speed(CPU)]
    training = statistics.median(timeit.repeat(update, number=1, repeat=times))
    speeds.append(matrix_speed(CPU))
    row = {"preset": preset, "vocabulary": len(tokenizer), "tokens": make_batch(pairs).ntokens}
    speed = statistics.mean(speeds)
    row |= {"matrix_gflops": round(speed / 1e9, 1), "training_seconds": round(training, 3)}
    row |= {"mfu": round(operations(trainer.model, pairs) / training / speed, 3)}
    row |= {"training": shares(update)}
    with torch.inference_mode():
        trainer.model.eval()
        src = make_batch((pairs * 64)[:64])
        decoder = StepwiseDecoder(trainer.model, src.src, src.src_mask)
        tokens_read = torch.full((64,), BOS)

        def step() -> None:
            decoder.step(tokens_read).max(-1)

        seconds = statistics.median(timeit.repeat(step, number=1, repeat=16)[8:])
        row |= {"decoding_step_ms": round(1000 * seconds, 2), "decoding": shares(step)}
    return row


def benchmark(
    *, presets: tuple[Preset, ...] = ("tiny", "small", "base"), data: Data = "captions",
    tokens: Count = 4096, times: Count = 5, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Where an update and a decoding step spend their time,
    and how close an update comes to the machine's own speed.

    That is MFU as `train` logs it; the machine's speed is measured before and after the updates of
    the same run. (Rows up to commit eef756b have another share: of all products in an update, also
    those of attention.) Shares of time come from PyTorch's profiler: the time of each kind of
    operation in one profiled update; `Python and the rest` is what remains. The decoding step has a
    batch of 64.

    Args:
        presets: sizes of the model
        tokens: padded target tokens of a batch
        times: measured training steps
    """
    texts = load_pairs(data, "train")
    for preset in presets:
        row = {"data": portable(data)} | measure(preset, texts, tokens, times)
        print(f"{preset}: MFU {row['mfu']:.0%} of {row['matrix_gflops']} GFLOP/s")
        for what in ("training", "decoding"):
            found = ", ".join(f"{kind} {share:.0%}" for kind, share in row[what].items())
            print(f"  {what}: {found}")
        rows.add(row)
