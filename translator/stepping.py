"""Stepping: a model that is called for one position at a time, and the check that it can be.

Keys and values of earlier positions are kept, and those of the source are computed once. Rows that
search the same source share its keys and values.
"""

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from the_annotated_transformer import Transformer
from translator.agreement import compare


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
        # (sources, rows, d_model): the rows of a source are as many positions of one query
        together = query.reshape(len(self.source[i][0]), -1, query.size(-1))
        return super().cross(i, together, key, value, mask).view_as(query)

    def select(self, rows: Tensor, sources: Tensor | None = None) -> None:
        """Go on with these rows, in this order, and with these sources (None: with all)."""
        self.past = [tuple(y.index_select(0, rows) for y in pair) for pair in self.past]
        if sources is not None:
            self.source = [tuple(y.index_select(0, sources) for y in pair) for pair in self.source]
            # pyrefly: ignore[unsupported-operation] who selects among sources has masked them
            self.src_mask = self.src_mask[sources]

    def looked_at(self, weights: dict[nn.Module, Tensor]) -> Tensor:
        """The place in its source that each row of the last step looked at most: (rows).

        By the mean over all heads of all layers, of the recorded weights (sources, h, rows, S);
        without any, place 0.
        """
        if not weights:
            keys = self.past[0][0]
            return keys.new_zeros(len(keys))
        # over heads, then over layers; then the place with the most
        means = [weights[layer.src_attn].mean(1) for layer in self.model.decoder.layers]
        return torch.stack(means).sum(0).argmax(-1).flatten()


@torch.inference_mode()
def check_stepwise(model: Transformer) -> None:
    """Raise Refused for the first part of a model that gives something else step by step."""
    # A layer that mixes positions elsewhere than in its attentions is such, or a cross-attention
    # that depends on where its query is: in a beam, the rows of a source stand in for positions. So
    # two rows share a source here. The ids are random special ones, which every vocabulary has.
    draw = torch.Generator().manual_seed(0)
    device = next(model.parameters()).device
    ids = torch.randint(len(tat.SPECIALS), (3, 40), generator=draw).to(device)
    src, tgt = ids[:1], ids[1:, :32]
    mask = (torch.arange(40, device=device) < 37).view(1, 1, -1)  # three positions are padding
    future = tat.subsequent_mask(32).to(device)

    def embedded() -> Tensor:
        return torch.cat([model.tgt_embed(ids, t) for t, ids in enumerate(tgt.split(1, 1))], dim=1)

    def stepwise(layer: nn.Module, x: Tensor) -> Tensor:
        # a decoder of this layer alone, so an error in preparing it has this layer's name
        decoder: Any = SimpleNamespace(layers=[layer])
        alone = tat.with_attention(model, decoder=decoder)
        layer = StepwiseDecoder(alone, src, mask, rows=2).layers[0]
        return torch.cat([layer(position, None, mask, None) for position in x.split(1, 1)], dim=1)

    def check(name: str, part: nn.Module, at_once: Callable, in_steps: Callable) -> Tensor:
        return compare(name, part, "cannot be decoded step by step", at_once, in_steps)

    with tat.evaluating(model):
        memory = model.encode(src, mask).expand(2, -1, -1)
        x = check("tgt_embed", model.tgt_embed, partial(model.tgt_embed, tgt), embedded)
        # each layer reads what the one before it gave, so the first that differs is named
        for i, layer in enumerate(model.decoder.layers):
            at_once = partial(layer, x, memory, mask, future)
            x = check(f"decoder.layers.{i}", layer, at_once, partial(stepwise, layer, x))
        at_once = partial(model.decode, memory, mask, tgt, future)
        check("decoder", model.decoder, at_once, partial(model.decoder.norm, x))
