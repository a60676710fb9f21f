"""Table 1 of the paper, measured."""

import itertools
import statistics
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.benchmark import Timer
from torch.utils.flop_counter import FlopCounterMode

import since_2017 as since
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


def make_layers(d: int = 512) -> dict[str, Layer]:
    """The layers by name, of width d, without dropout, with random weights."""
    mha, feed_forward = since.FusedAttention(HEADS, d), tat.PositionwiseFeedForward(d, WIDER * d)
    recurrent, lstm = nn.RNN(d, d, batch_first=True), nn.LSTM(d, d, batch_first=True)
    convolution = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2)
    depthwise = nn.Conv1d(d, d, KERNEL, padding=KERNEL // 2, groups=d)
    separable = nn.Sequential(depthwise, nn.Conv1d(d, d, 1))

    def heads(batch: int, n: int) -> list[Tensor]:  # Q, K and V, each (batch, h, n, d / h)
        return [torch.randn(batch, HEADS, n, d // HEADS) for _ in range(3)]

    def positions(batch: int, n: int) -> list[Tensor]:  # (batch, n, d)
        return [torch.randn(batch, n, d)]

    def channels(batch: int, n: int) -> list[Tensor]:  # (batch, d, n)
        return [torch.randn(batch, d, n)]

    return {
        "attention": Layer(
            lambda Q, K, V: tat.attention(Q, K, V)[0], heads, lambda n: 2 * n * n * d
        ),
        "attention, fused": Layer(F.scaled_dot_product_attention, heads, lambda n: 2 * n * n * d),
        "multi-head attention": Layer(
            lambda x: mha(x, x, x), positions, lambda n: 4 * n * d * d + 2 * n * n * d
        ),
        "recurrent": Layer(lambda x: recurrent(x)[0], positions, lambda n: 2 * n * d * d),
        "LSTM": Layer(lambda x: lstm(x)[0], positions, lambda n: 8 * n * d * d),
        "convolution": Layer(convolution, channels, lambda n: KERNEL * n * d * d),
        "separable convolution": Layer(separable, channels, lambda n: KERNEL * n * d + n * d * d),
        "feed-forward": Layer(feed_forward, positions, lambda n: 2 * WIDER * n * d * d),
    }


@torch.inference_mode()
def counted(layer: Layer, inputs: list[Tensor]) -> int:
    """The multiplications of a forward pass that PyTorch counts.

    Its counter knows neither the processor's fused attention nor oneDNN's LSTM, so both are written
    out for it.
    """
    with warnings.catch_warnings(), FlopCounterMode(display=False) as counter:
        # setting oneDNN's flags gives a warning about another vendor's
        warnings.simplefilter("ignore")
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            layer.call(*inputs)
    return counter.get_total_flops() // 2


def milliseconds(layer: Layer, inputs: list[Tensor], least: float = LEAST) -> float:
    """The median time of a forward pass in `least` seconds of measurements, after a first one."""
    given = {"layer": layer, "inputs": inputs}
    with torch.inference_mode():
        timer = Timer("layer.call(*inputs)", globals=given, num_threads=torch.get_num_threads())
        return 1000 * timer.blocked_autorange(min_run_time=least).median


def benchmark(
    *, lengths: Counts = LENGTHS, width: Count = 512, batch: Count = 1, rounds: Rounds = 9,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Table 1 of the paper, measured:
    the time and the multiplications of one layer for sentences of length n.

    The layers of the table (Section 4) map n vectors of width d to n others, on the processor.
    Self-attention is measured as the table counts it, that is its two products and the softmax
    between them (plainly, by Equation (1), and with PyTorch's fused kernel), and as a whole layer
    with its four projections and the fused kernel. The others are recurrence with the step
    h' = tanh(Wx + Uh), an LSTM, a convolution, a depthwise-separable one, and the feed-forward
    network for comparison. Each layer gets its input with the dimensions in the order it wants, so
    no transposition is timed.

    A round measures every layer at every length in turn, so a machine that slows down slows all of
    them; a figure is the median over the rounds. `multiplications` are those of a forward pass by
    formula (each comes with an addition; biases, softmax and activations are left out), `counted`
    those that PyTorch counts in it.

    Args:
        lengths: of the sentence
        width: d, a multiple of 8
        batch: sentences at once
    """
    if width % HEADS:
        raise Refused(f"--width must be a multiple of {HEADS}, but it is {width}")
    torch.manual_seed(0)
    layers = make_layers(width)
    times = {(name, n): [] for name in layers for n in lengths}
    for _, n, (name, layer) in itertools.product(range(rounds), lengths, layers.items()):
        times[name, n].append(milliseconds(layer, layer.inputs(batch, n)))
    row = {"d": width, "h": HEADS, "d_ff": WIDER * width, "kernel": KERNEL, "batch": batch}
    row |= {"pass": "forward", "rounds": rounds, "measurements": []}
    for (name, n), found in times.items():
        known = {"layer": name, "n": n, "d": width}
        known |= {"milliseconds": float(f"{statistics.median(found):.4g}")}
        known |= {"multiplications": batch * layers[name].multiplications(n)}
        known |= {"counted": counted(layers[name], layers[name].inputs(batch, n))}
        row["measurements"].append(known)
    print(f"{'milliseconds at n =':<22}", *(f"{n:>9}" for n in lengths))
    for name in layers:
        print(f"{name:<22}", *(f"{statistics.median(times[name, n]):>9.3f}" for n in lengths))
    rows.add(row)
