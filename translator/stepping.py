"""Stepping: a model that is called for one position at a time, and the check that it can be.

    python -m translator.stepping [MODEL]     step by step equals at once: part by part, with times

Keys and values of earlier positions are kept, and those of the source are computed once. Rows that
search the same source share its keys and values.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from the_annotated_transformer import Transformer
from translator.files import Refused, nobody, refusing


def chosen(layers: list[tuple[Tensor, ...]], rows: Tensor) -> list[tuple[Tensor, ...]]:
    """Some rows of the keys and values of each layer."""
    return [tuple(y.index_select(0, rows) for y in keys_values) for keys_values in layers]


class StepwiseDecoder(tat.CachedDecoder):
    """The document's cached decoder, where several rows may search for one source.

    Every source has equally many rows, which follow each other and share its keys and values.
    """

    def __init__(self, model: Transformer, src: Tensor, src_mask: Tensor, rows: int = 1):
        """src (sources, S), src_mask (sources or 1, 1, S); rows of each source."""
        super().__init__(model, src, src_mask.expand(len(src), 1, -1))
        # laid out once as every step reads them
        self.source = [tuple(y.contiguous() for y in keys_values) for keys_values in self.source]
        self.select(torch.arange(len(src), device=src.device).repeat_interleave(rows))

    def cross(
        self, i: int, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attention of layer i to the sources: a source's rows are asked together, as positions."""
        together = query.reshape(len(self.source[i][0]), -1, query.size(-1))
        return super().cross(i, together, key, value, mask).view_as(query)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these rows, in this order, and with these sources (None: with all)."""
        self.past = chosen(self.past, rows)
        if sources is not None:  # else they are all there, and needn't be copied
            self.source = chosen(self.source, sources)
            # pyrefly: ignore[unsupported-operation] who selects among sources has masked them
            self.src_mask = self.src_mask[sources]

    def looked_at(self, weights: dict[nn.Module, Tensor]) -> Tensor:
        """The place in its source that each row of the last step looked at most: (rows).

        By the mean over all heads of all layers, of the weights (sources, h, rows, S).
        """
        means = [weights[layer.src_attn].mean(1) for layer in self.model.decoder.layers]
        return torch.stack(means).sum(0).argmax(-1).flatten()


# --- Step by step equals at once ---
@contextmanager
def precise() -> Iterator[None]:
    """Inside, products of float32 matrices are not rounded to TF32 or bfloat16."""
    backends: Any = torch.backends
    kinds = backends.cuda.matmul, backends.mkldnn.matmul
    chosen = [kind.fp32_precision for kind in kinds]
    of_all_kinds = None
    with suppress(RuntimeError):  # PyTorch doesn't tell as a whole what was set for one kind alone
        of_all_kinds = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")
    for kind in kinds:
        kind.fp32_precision = "ieee"
    try:
        yield
    finally:
        if of_all_kinds:
            torch.set_float32_matmul_precision(of_all_kinds)
        for kind, precision in zip(kinds, chosen, strict=True):
            kind.fp32_precision = precision


@precise()  # what is rounded differs by more than the tolerance
def compare(
    name: str, part: nn.Module, kind: str, found: Callable, expected: Callable,
    tell: Callable[[str], None] = nobody,
) -> Tensor:  # fmt: skip
    """What `found` gives; if that isn't expected, Refused says that the part is of this kind.

    `tell` hears that it is, and how long both ways took.
    """
    with refusing(f"{name} ({type(part).__name__}) {kind}", Exception):  # it may raise anything
        start = time.perf_counter()
        result = found()
        middle = time.perf_counter()
        result_expected = expected()
        end = time.perf_counter()
        size = max(1.0, float(result.nan_to_num().abs().max()))
        tolerance = size * max(1e-3, 4 * torch.finfo(result.dtype).eps)
        if not torch.allclose(result_expected, result, rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError("the results are others")
    at_once, stepwise = 1000 * (middle - start), 1000 * (end - middle)
    tell(f"{name:<20}at once {at_once:.2f} ms, step by step {stepwise:.2f} ms: equal")
    return result


@torch.inference_mode()
def check_stepwise(
    model: Transformer, S: int = 40, T: int = 32, tell: Callable[[str], None] = nobody
) -> None:
    """Raise Refused for the first part of a model that gives something else step by step.

    A layer that mixes positions elsewhere than in its attentions is such, or a cross-attention that
    depends on where its query is: in a beam, the rows of a source stand in for positions. So two
    rows share a source here. The ids are random special ones, which every vocabulary has.
    """
    draw = torch.Generator().manual_seed(0)
    device = next(model.parameters()).device

    def ids(*size: int) -> Tensor:
        return torch.randint(len(tat.SPECIALS), size, generator=draw).to(device)

    src, tgt = ids(1, S), ids(2, T)
    mask = (torch.arange(S, device=device) < S - 3).view(1, 1, S)  # three positions are padding
    future = tat.subsequent_mask(T).to(device)
    kind = "cannot be decoded step by step"

    def embedded() -> Tensor:
        return torch.cat([model.tgt_embed(tgt[:, t : t + 1], t) for t in range(T)], dim=1)

    def stepwise(layer: nn.Module, x: Tensor) -> Tensor:
        decoder: Any = SimpleNamespace(layers=[layer])
        alone = tat.with_attention(model, decoder=decoder)
        layer = StepwiseDecoder(alone, src, mask, rows=2).layers[0]
        return torch.cat([layer(position, None, mask, None) for position in x.split(1, 1)], dim=1)

    check = partial(compare, tell=tell)
    with tat.evaluating(model):
        memory = model.encode(src, mask)
        decoder = model.decoder
        two_rows = memory.expand(2, -1, -1)
        x = check("tgt_embed", model.tgt_embed, kind, partial(model.tgt_embed, tgt), embedded)
        for i, layer in enumerate(decoder.layers):
            at_once = partial(layer, x, two_rows, mask, future)
            x = check(f"decoder.layers.{i}", layer, kind, at_once, partial(stepwise, layer, x))
        at_once = partial(model.decode, two_rows, mask, tgt, future)
        check("decoder", decoder, kind, at_once, partial(decoder.norm, x))


if __name__ == "__main__":
    from translator.files import model_folder
    from translator.model_folder import read_translator

    try:
        model = read_translator(model_folder(*map(Path, sys.argv[1:2])), "cpu").model
        check_stepwise(model, tell=print)
    except (Refused, OSError) as error:
        sys.exit(f"error: {error}")
