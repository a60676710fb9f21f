"""Where an update and a decoding step spend their time, and how close they come to the machine's own rate.

    python benchmarks/step_profile.py [--presets tiny,small,base] [--data SOURCE] [--tokens 4096] [--out FILE.jsonl]

The machine's rate is that of one large matrix multiplication, measured between the updates of the same run. An update's rate
is the number of floating-point operations in its matrix products divided by its seconds. PyTorch counts the operations of the
same update; those inside attention and the share that is padding are left out. Shares come from PyTorch's profiler: the time
of each kind of operation in one profiled update; `Python and the rest` is what remains. The decoding step has a batch of 64.
"""

import argparse
import shlex
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.rows import RESULTS, append, origin, portable
from the_annotated_transformer import BOS, learn_bpe, make_batch, sorted_batches, transpose_in_memory
from translator.decoding import CachedDecoder
from translator.settings import PRESETS, build_model
from translator.sources import load_pairs
from translator.trainer import Trainer
from translator.vocabulary import encode_pairs

KINDS = {  # kind of work: prefixes of PyTorch's operation names; the first match counts
    "matrix products": ("mm", "addmm", "bmm", "baddbmm"),
    "attention": ("_scaled_dot_product", "_flash_attention"),
    "normalisation": ("native_layer_norm",),
    "random numbers": ("random_", "bernoulli_", "ge", "lt"),
    "optimiser": ("_fused_adam", "lerp", "_foreach", "linalg_vector_norm"),
    "exp, sums, maxima": (
        "exp_",
        "exp",
        "log",
        "_log_softmax",
        "_softmax",
        "sum",
        "amax",
        "max",
        "gather",
        "scatter_add",
    ),
    "copies": ("copy_", "cat", "index", "clone", "fill_", "zero_", "nonzero", "embedding", "_index_put"),
    "elementwise": ("add", "sub", "mul", "div", "relu", "threshold", "clamp", "neg", "where", "ne", "bitwise"),
}
EXACT = {"matrix products", "random numbers"}  # these are whole names, perhaps with _ at the end


def kind_of(operation: str) -> str:
    """The kind of an operation in the profile; views and the like cost only their call."""
    name = operation.removeprefix("aten::")
    for kind, beginnings in KINDS.items():
        if name.removesuffix("_") in [b.removesuffix("_") for b in beginnings]:
            return kind
        if kind not in EXACT and name != "expand" and operation.startswith("aten::") and name.startswith(beginnings):
            return kind
    return REST


REST = "Python and the rest"


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


def flops_addmm_(self_shape, a_shape, b_shape, *_, out_shape=None, **__) -> int:
    """The operations of a product added in place, which PyTorch's counter does not know."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


def seconds(step: Callable[[], object], times: int) -> float:
    """The median time of a step."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return statistics.median(found)


def matmul_rate(n: int = 2048) -> float:
    """Floating-point operations per second of a product of two n by n matrices."""
    a, b = torch.randn(2, n, n)
    a @ b
    return 2 * n**3 / seconds(lambda: a @ b, 5)


def measure(preset: str, texts: list[tuple[str, str]], tokens: int, times: int) -> dict[str, Any]:
    """The row of one preset."""
    config = replace(PRESETS[preset], tokens_per_batch=tokens, optimizer="adam")  # Muon has products of its own
    tokenizer = learn_bpe(texts, config.bpe)
    pairs = encode_pairs(tokenizer, texts, ("de", "en"))
    rows = sorted_batches([(len(p.src), len(p.tgt)) for p in pairs], tokens, seed=0)[0]
    pairs = [pairs[i] for i in rows]
    batch = make_batch(pairs)
    trainer = Trainer(build_model(config, len(tokenizer)), config)

    def update() -> None:
        trainer.update(pairs)

    update()
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: flops_addmm_})
    with counter:
        update()
    real = sum(len(p.src) + len(p.tgt) - 1 for p in pairs) / (batch.src.numel() + batch.tgt.numel())
    rates = [matmul_rate()]
    training = seconds(update, times)
    rates.append(matmul_rate())
    needed = counter.get_total_flops() * real
    row = {"preset": preset, "vocabulary": len(tokenizer), "tokens": batch.ntokens, "padding": round(1 - real, 4)}
    row |= {"matmul_gflops": round(statistics.mean(rates) / 1e9, 1), "training_seconds": round(training, 3)}
    row |= {"training_gflops": round(needed / training / 1e9, 1)}
    row |= {"training_share_of_matmul": round(needed / training / statistics.mean(rates), 3)}
    row |= {"training": shares(update)}
    with torch.inference_mode():
        trainer.model.eval()
        transpose_in_memory(trainer.model)  # as when a model is read from a file
        src = make_batch((pairs * 64)[:64])
        decoder, symbols = CachedDecoder(trainer.model, src.src, src.src_mask), torch.full((64,), BOS)

        def step() -> None:
            decoder.step(symbols).max(-1)

        for _ in range(8):
            step()
        row |= {"decoding_step_ms": round(1000 * seconds(step, 8), 2), "decoding": shares(step)}
    return row


def main(arguments: list[str]) -> None:
    """Run the benchmark, print and append its rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--presets", default="tiny,small,base", help=f"some of {','.join(PRESETS)}")
    parser.add_argument("--data", default="captions", help="multi30k, captions or a folder; default: captions")
    parser.add_argument("--tokens", type=int, default=4096, help="padded target tokens of a batch; default: 4096")
    parser.add_argument("--times", type=int, default=5, help="measured training steps; default: 5")
    parser.add_argument("--out", type=Path, default=RESULTS / "step_profile.jsonl")
    options = parser.parse_args(arguments)
    about = origin(shlex.join(["python", "benchmarks/step_profile.py", *map(portable, arguments)]))
    texts = load_pairs(options.data, "train")
    for preset in options.presets.split(","):
        row = about | {"data": portable(options.data)} | measure(preset, texts, options.tokens, options.times)
        print(f"{preset}: training step at {row['training_share_of_matmul']:.0%} of {row['matmul_gflops']} GFLOP/s")
        for what in ("training", "decoding"):
            print(f"  {what}: " + ", ".join(f"{kind} {share:.0%}" for kind, share in row[what].items()))
        append(options.out, row)


if __name__ == "__main__":
    main(sys.argv[1:])
