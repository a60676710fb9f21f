"""Training on an accelerator: 16-bit numbers, fused attention and compiled layers."""

import gc
import statistics
import timeit
from contextlib import nullcontext
from typing import Any, Literal
from unittest.mock import patch

import torch

import since_2017 as since
import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Preset, Rounds, Rows
from translator.files import Refused
from translator.processes import choose_device
from translator.run_log import matrix_speed, operations
from translator.settings import PRESETS, Count, Settings, build_model
from translator.trainer import ParallelTrainer

LENGTH = 32  # tokens of a sentence; one size, so that the compiler works once
WAYS = (
    "float32", "TF32", "bfloat16", "bfloat16, fused", "bfloat16, compiled",
    "bfloat16, fused, compiled",
)  # fmt: skip


def measure(
    settings: Settings, way: str, vocab: int, updates: int, device: torch.device
) -> dict[str, Any]:
    """Updates of one model in one of the WAYS: target tokens per second, seconds, MFU, memory."""
    torch.manual_seed(0)
    gc.collect()  # of the model before, whose memory would count as well
    torch.set_float32_matmul_precision("highest" if way == "float32" else "high")
    model = build_model(settings, vocab)
    ids = torch.randint(4, vocab, (2, settings.tokens_per_batch // LENGTH, LENGTH - 1)).tolist()
    sides = zip(*ids, strict=True)
    pairs = [tat.Pair([*src, tat.EOS], [tat.BOS, *tgt, tat.EOS]) for src, tgt in sides]
    trainer = ParallelTrainer(model, settings, device)
    half = way.startswith("bfloat16")
    if half:  # the forward pass and the loss; weights, gradients and updates stay float32
        autocast = torch.autocast(device.type, torch.bfloat16)
        trainer.objective.forward = autocast(trainer.objective.forward)
    speed = matrix_speed(device, torch.bfloat16 if half else torch.float32)
    losses: list[float] = []

    def update() -> None:
        losses.append(trainer.update(pairs))
        torch.accelerator.synchronize(device)  # until the accelerator has done all it was given

    fused = patch.object(tat.MultiHeadedAttention, "weigh", since.FusedAttention.weigh)
    with fused if "fused" in way else nullcontext():
        if "compiled" in way:
            for layer in (*model.encoder.layers, *model.decoder.layers):
                layer.compile()
        times = timeit.repeat(update, number=1, repeat=4 + updates)
    seconds = statistics.median(times[4:])
    most_bytes = torch.accelerator.max_memory_allocated(device)
    row = {"tokens_per_second": round(len(pairs) * LENGTH / seconds)}
    row |= {"update_seconds": round(seconds, 4), "first_update_seconds": round(times[0], 2)}
    row |= {"mfu": round(operations(model, pairs) / seconds / speed, 3)}
    row |= {"matrix_tflops": round(speed / 1e12, 1), "most_memory": round(most_bytes / 2**30, 2)}
    return row | {"losses": [round(losses[0], 3), round(losses[-1], 3)]}


def benchmark(
    *, presets: tuple[Preset, ...] = ("small", "base", "big"),
    ways: tuple[Literal[*WAYS], ...] = WAYS, vocab: Count = 37_000, updates: Rounds = 10,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Train presets on an accelerator in float32, TF32 and bfloat16,
    with and without fused attention and compiled layers.

    The sentences are random, of 32 tokens each, and fill an update of the preset. Times are medians
    over the updates after the first four; that of the first one includes compiling. MFU is the
    share of what a product of two large matrices reaches in the same numbers. The losses, of the
    first update and the last, show that all ways learn the same.

    Args:
        presets: names of presets
        ways: some of the ways; by default all
        vocab: tokens of the vocabulary, which both languages share
    """
    device = choose_device()
    before = torch.get_float32_matmul_precision()
    if device.type == "cpu":
        raise Refused("this machine has no accelerator")
    for preset in presets:
        settings = PRESETS[preset]
        for way in ways:
            row = {"preset": preset, "way": way, "tokens_per_update": settings.tokens_per_batch}
            row |= measure(settings, way, vocab, updates, device)
            rows.add(row, device)
            print(
                f"{preset}, {way}: {row['tokens_per_second']:,} target tokens/s, MFU {row['mfu']:.0%}",
                flush=True,
            )
    torch.set_float32_matmul_precision(before)
