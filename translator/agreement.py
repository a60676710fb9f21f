"""Agreement: whether a part computes the same in two ways.

Step by step as at once (`stepping`), as the paper's layer does (`export`), or on a device as on the
CPU (`guard`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor, nn

from translator.files import refusing


@contextmanager
def precise() -> Iterator[None]:
    """Inside, products of float32 matrices are not rounded to TF32 or bfloat16."""
    # PyTorch has an older way of setting this and a newer one, and on a GPU refuses to multiply
    # where they disagree; so inside and afterwards both say the same as each other.
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
    name: str, part: nn.Module, kind: str, at_once: Callable, another_way: Callable
) -> Tensor:  # fmt: skip
    """What a part gives at once; if another way gives something else, Refused says its kind."""
    with refusing(f"{name} ({type(part).__name__}) {kind}", Exception):  # it may raise anything
        result = at_once()
        # beside the largest number: rounding in a sum goes with its terms
        size = max(1.0, float(result.nan_to_num().abs().max()))
        tolerance = size * max(1e-3, 4 * torch.finfo(result.dtype).eps)
        if not torch.allclose(another_way(), result, rtol=0, atol=tolerance, equal_nan=True):
            raise ValueError("the results are others")
    return result
