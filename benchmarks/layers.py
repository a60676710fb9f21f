"""Table 1 of the paper, measured."""

import statistics
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

import the_annotated_transformer as tat
from benchmarks.shared import RESULTS, Counts, Rounds, Rows
from translator.files import Refused
from translator.settings import Count

LENGTHS = (16, 32, 64, 128, 256, 512, 1024, 2048)
HEADS, KERNEL, WIDER = 8, 3, 4  # h, k, and d_ff / d_model, as in the base model and its Table 1
LEAST = 0.02  # seconds that a measurement lasts, or one call if that takes longer


class Layer(NamedTuple):
    """One way to map n vectors to n others."""

    call: Callable[..., Tensor]
    inputs: Callable[[int, int], list[Tensor]]  # of a batch of this many sentences of length n
    multiplications: Callable[[int], int]  # for one sentence of length n
    weights: list[nn.Parameter]


def make_layers(d: int = 512) -> dict[str, Layer]:
    """The layers by name, of width d, in evaluation mode, with random weights."""
    mha, feed_forward = tat.FusedAttention(HEADS, d), tat.PositionwiseFeedForward(d, WIDER * d)
    recurrent, lstm = nn.RNN(d, d, batch_first=True), nn.LSTM(d, d, batch_first=True)
    convolution = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)
    separable = nn.Sequential(nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2, groups=d), nn.Conv1d(d, d, 1))

    def heads(batch: int, n: int) -> list[Tensor]:  # Q, K and V, each (batch, h, n, d / h)
        return [torch.randn(batch, HEADS, n, d // HEADS) for _ in range(3)]

    def positions(batch: int, n: int) -> list[Tensor]:  # (batch, n, d)
        return [torch.randn(batch, n, d)]

    def channels(batch: int, n: int) -> list[Tensor]:  # (batch, d, n)
        return [torch.randn(batch, d, n)]

    def layer(module: nn.Module, inputs: Callable, count: Callable, call: Callable | None = None) -> Layer:
        return Layer(call or module.eval(), inputs, count, list(module.eval().parameters()))

    return {
        "attention": Layer(lambda Q, K, V: tat.attention(Q, K, V)[0], heads, lambda n: 2 * n * n * d, []),
        "attention, fused": Layer(F.scaled_dot_product_attention, heads, lambda n: 2 * n * n * d, []),
        "multi-head attention": layer(mha, positions, lambda n: 4 * n * d * d + 2 * n * n * d, lambda x: mha(x, x, x)),
        "recurrent": layer(recurrent, positions, lambda n: 2 * n * d * d, lambda x: recurrent(x)[0]),
        "LSTM": layer(lstm, positions, lambda n: 8 * n * d * d, lambda x: lstm(x)[0]),
        "convolution": layer(convolution, channels, lambda n: KERNEL * n * d * d),
        "separable convolution": layer(separable, channels, lambda n: KERNEL * n * d + n * d * d),
        "feed-forward": layer(feed_forward, positions, lambda n: 2 * WIDER * n * d * d),
    }


def counted(layer: Layer, inputs: list[Tensor]) -> int:
    """The multiplications of a forward pass that PyTorch counts.

    Its counter knows neither the processor's fused attention nor oneDNN's LSTM, so both are written out for it.
    """
    with warnings.catch_warnings(), FlopCounterMode(display=False) as counter, torch.inference_mode():
        warnings.simplefilter("ignore")  # setting oneDNN's flags gives a warning about another vendor's
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            layer.call(*inputs)
    return counter.get_total_flops() // 2


def milliseconds(layer: Layer, inputs: list[Tensor], backward: bool = False, least: float = LEAST) -> float:
    """The mean time of a call: as many calls as fit into `least` seconds, after one to warm up.

    With `backward`, a call includes the gradients of the inputs and of the weights.
    """
    inputs = [x.detach().requires_grad_(backward) for x in inputs]

    def once() -> None:
        y = layer.call(*inputs)
        if backward:
            torch.autograd.grad(y, [*inputs, *layer.weights], y.detach())

    with nullcontext() if backward else torch.inference_mode():
        once()
        start, calls = time.perf_counter(), 0
        while not calls or time.perf_counter() - start < least:
            once()
            calls += 1
        return 1000 * (time.perf_counter() - start) / calls


def measure(lengths: tuple[int, ...], d: int, batch: int, backward: bool, rounds: int) -> list[dict[str, Any]]:
    """For each layer and length, the median time over the rounds and the multiplications of the whole batch."""
    torch.manual_seed(0)
    layers = make_layers(d)
    times: dict[tuple[str, int], list[float]] = {(name, n): [] for name in layers for n in lengths}
    for _ in range(rounds):
        for n in lengths:
            for name, layer in layers.items():
                times[name, n].append(milliseconds(layer, layer.inputs(batch, n), backward))
    return [
        {
            "layer": name,
            "n": n,
            "d": d,
            "milliseconds": float(f"{statistics.median(found):.4g}"),
            "multiplications": batch * layers[name].multiplications(n),
            "counted": counted(layers[name], layers[name].inputs(batch, n)),
        }
        for (name, n), found in times.items()
    ]


def benchmark(
    *, lengths: Counts = LENGTHS, width: Count = 512, batch: Count = 1, backward: bool = False, rounds: Rounds = 9,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Table 1 of the paper, measured: the time and the multiplications of one layer for sentences of length n.

    The layers of the table (Section 4) map n vectors of width d to n others, on the processor. Self-attention is measured as
    the table counts it, that is its two products and the softmax between them (plainly, by Equation (1), and with PyTorch's
    fused kernel), and as a whole layer with its four projections and the fused kernel. The others are recurrence with the step
    h' = tanh(Wx + Uh), an LSTM, a convolution, a depthwise-separable one, and the feed-forward network for comparison. Each
    layer gets its input with the dimensions in the order it wants, so no transposition is timed.

    A round measures every layer at every length in turn, so a machine that slows down slows all of them; a figure is the
    median over the rounds. `multiplications` are those of a forward pass by formula (each comes with an addition; biases,
    softmax and activations are left out), `counted` those that PyTorch counts in it.

    Args:
        lengths: of the sentence
        width: d, a multiple of 8
        batch: sentences at once
        backward: forward and backward, not forward alone
    """
    if width % HEADS:
        raise Refused(f"--width must be a multiple of {HEADS}, but it is {width}")
    row = {"d": width, "h": HEADS, "d_ff": WIDER * width, "kernel": KERNEL, "batch": batch}
    row |= {"pass": "forward and backward" if backward else "forward", "rounds": rounds}
    row["measurements"] = measure(lengths, width, batch, backward, rounds)
    print(f"{'milliseconds at n =':<22}", *(f"{n:>9}" for n in lengths))
    for name in dict.fromkeys(found["layer"] for found in row["measurements"]):
        found = [x["milliseconds"] for x in row["measurements"] if x["layer"] == name]
        print(f"{name:<22}", *(f"{x:>9.3f}" for x in found))
    rows.add(row)
