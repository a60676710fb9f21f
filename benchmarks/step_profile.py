"""Where an update and a decoding step spend their time."""

import statistics
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from benchmarks.shared import CPU, RESULTS, Data, Preset, Rows, portable, with_adam
from the_annotated_transformer import BOS, learn_bpe, make_batch, sorted_batches
from translator.corpus import encode_pairs
from translator.search import StepwiseDecoder
from translator.settings import Count, build_model
from translator.sources import load_pairs
from translator.trainer import ParallelTrainer, matrix_speed, operations

KINDS = {  # kind of work: how PyTorch's names of operations begin; the first match counts
    "matrix products": "mm addmm bmm baddbmm",
    "normalisation": "native_layer_norm",
    "random numbers": "random_ bernoulli_ ge lt",
    "optimiser": "_fused_adam lerp _foreach linalg_vector_norm",
    "exp, sums, maxima": "exp_ exp log _log_softmax _softmax sum amax max gather scatter_add",
    "copies": "copy_ cat index clone fill_ zero_ nonzero embedding _index_put",
    "elementwise": "add sub mul div relu threshold clamp neg where ne bitwise",
}
REST = "Python and the rest"
EXACT = {"matrix products", "random numbers"}  # these are whole names, perhaps with _ at the end


def kind_of(operation: str) -> str:
    """The kind of an operation in the profile; views and the like cost only their call."""
    name = operation.removeprefix("aten::")
    for kind, known in KINDS.items():
        beginnings = tuple(known.split())
        if name.removesuffix("_") in [b.removesuffix("_") for b in beginnings]:
            return kind
        if kind not in EXACT and name != "expand" and operation.startswith("aten::") and name.startswith(beginnings):
            return kind
    return REST


def shares(step: Callable[[], object]) -> dict[str, float]:
    """The share of a step's time for each kind of work, the largest first; time outside all operations is Python's."""
    step()
    with profile(activities=[ProfilerActivity.CPU]) as profiler, record_function("whole step"):
        step()
    events = {event.key: event for event in profiler.key_averages()}
    whole, times = events.pop("whole step").cpu_time_total, Counter()
    for name, event in events.items():
        times[kind_of(name)] += event.self_cpu_time_total
    times[REST] += whole - sum(times.values())
    return {kind: round(microseconds / whole, 3) for kind, microseconds in times.most_common()}


def seconds(step: Callable[[], object], times: int) -> float:
    """The median time of a step."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def measure(preset: str, texts: list[tuple[str, str]], tokens: int, times: int) -> dict[str, Any]:
    """The row of one preset."""
    settings = with_adam(preset, {"tokens_per_batch": tokens})  # Muon has products of its own
    tokenizer = learn_bpe(texts, settings.bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    rows = sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], tokens, seed=0)[0]
    pairs = [pairs[i] for i in rows]
    batch = make_batch(pairs)
    trainer = ParallelTrainer(build_model(settings, len(tokenizer)), settings)

    def update() -> None:
        trainer.update(pairs)

    update()
    speeds = [matrix_speed(CPU)]
    training = seconds(update, times)
    speeds.append(matrix_speed(CPU))
    row = {"preset": preset, "vocabulary": len(tokenizer), "tokens": batch.ntokens}
    row |= {"matrix_gflops": round(statistics.mean(speeds) / 1e9, 1), "training_seconds": round(training, 3)}
    row |= {"mfu": round(operations(trainer.model, pairs) / training / statistics.mean(speeds), 3)}
    row |= {"training": shares(update)}
    with torch.inference_mode():
        trainer.model.eval()
        src = make_batch((pairs * 64)[:64])
        decoder, tokens_read = StepwiseDecoder(trainer.model, src.src, src.src_mask), torch.full((64,), BOS)

        def step() -> None:
            decoder.step(tokens_read).max(-1)

        for _ in range(8):
            step()
        row |= {"decoding_step_ms": round(1000 * seconds(step, 8), 2), "decoding": shares(step)}
    return row


def benchmark(
    *, presets: tuple[Preset, ...] = ("tiny", "small", "base"), data: Data = "captions", tokens: Count = 4096,
    times: Count = 5, rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Where an update and a decoding step spend their time, and how close an update comes to the machine's own speed.

    That is MFU as `train` logs it; the machine's speed is measured before and after the updates of the same run. (Rows up to
    commit eef756b have another share: of all products in an update, also those of attention.) Shares of time come from
    PyTorch's profiler: the time of each kind of operation in one profiled update; `Python and the rest` is what remains. The
    decoding step has a batch of 64.

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
            print(f"  {what}: " + ", ".join(f"{kind} {share:.0%}" for kind, share in row[what].items()))
        rows.add(row)
