"""What surrounds a sublayer, feed-forward networks, layers and stacks (Sections 3.1 and 3.3)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.mistakes.attention import across, decoder_layer, network, own
from practice.mistakes.catalogue import CATALOGUE, mistake, slip

# what surrounds a sublayer: the residual and the norm
mistake("no_residual", SublayerConnection__forward=lambda self, x, sublayer: sublayer(self.norm(x)))


def norm_over(dim: int, root: bool = True) -> Callable:
    """LayerNorm over another dimension, or without the root."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim, keepdim=True)
        variance = x.var(dim, keepdim=True, unbiased=False) + self.eps
        return self.weight * (x - mean) / (variance.sqrt() if root else variance) + self.bias

    return forward


mistake("norm_over_time", LayerNorm__forward=norm_over(1))
mistake("norm_by_variance", LayerNorm__forward=norm_over(-1, root=False))
mistake("no_norm", LayerNorm__forward=lambda self, x: x)


# whole stacks are put together otherwise, so their __init__ is replaced
def stacks(change: Callable) -> dict[str, Any]:
    """Encoder and decoder of other layers, or with another last norm."""

    def with_init(init: Callable) -> Callable:
        return lambda self, layers, norm: init(self, *change(layers, norm))

    # four underscores: two end the class's name, two begin the method's
    both = tat.Encoder, tat.Decoder
    return {f"{stack.__name__}____init__": with_init(stack.__init__) for stack in both}


mistake("no_final_norm", **stacks(lambda layers, norm: (layers, nn.Identity())))
mistake("no_relu", PositionwiseFeedForward__forward=lambda self, x: self.W_2(self.W_1(x)))
mistake(
    "layers_share_weights",
    settings={"N": 2},
    **stacks(lambda layers, norm: ([layers[0]] * len(layers), norm)),
)


# The norm, asked by itself. Its second case has nearly constant rows, which show where epsilon is.
def gain_then_bias(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """The right end."""
    return gain * x + bias


def norm_with(
    last: Callable = gain_then_bias,
    of: Callable = Tensor.mean,
    dim: Any = -1,
    inside: float = 1e-5,
    outside: float = 0.0,
    centred: bool = True,
) -> Callable:
    """LayerNorm with one thing changed: its end, what becomes of squares, where epsilon is."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x - x.mean(dim, keepdim=True) if centred else x
        root = (of(middle.square(), dim, keepdim=True) + inside).sqrt() + outside
        return last(middle / root, self.weight, self.bias)

    return forward


def of_a_sample(squares: Tensor, dim: int, keepdim: bool) -> Tensor:
    """Their sum over d - 1, as in torch.var and torch.std."""
    return squares.sum(dim, keepdim=keepdim) / (squares.size(dim) - 1)


slip("variance_of_a_sample", LayerNorm__forward=norm_with(of=of_a_sample))
slip("epsilon_outside_the_root", LayerNorm__forward=norm_with(inside=0.0, outside=1e-5))
slip("no_epsilon", LayerNorm__forward=norm_with(inside=0.0))
slip("norm_without_mean", LayerNorm__forward=norm_with(centred=False))
slip("another_epsilon", LayerNorm__forward=norm_with(inside=1e-6))
# its std divides by d - 1, and its epsilon is outside the root
for name, eps in {"norm_of_2018": 1e-6, "norm_of_2018_with_this_epsilon": 1e-5}.items():
    slip(name, LayerNorm__forward=norm_with(of=of_a_sample, inside=0.0, outside=eps))
slip("norm_over_positions", **CATALOGUE["norm_over_time"].puts)


def centred_in_the_variance_alone(self, x):
    variance = x.var(-1, keepdim=True, unbiased=False) + self.eps
    return self.weight * x / variance.sqrt() + self.bias


slip("mean_only_in_the_variance", LayerNorm__forward=centred_in_the_variance_alone)
# over what it normalises, and what is done at its end
slip("norm_of_the_whole", LayerNorm__forward=norm_with(dim=(-2, -1)))
slip("norm_by_sum", LayerNorm__forward=norm_with(of=Tensor.sum))
slip("gain_forgotten", LayerNorm__forward=norm_with(lambda x, gain, bias: x + bias))
slip("bias_forgotten", LayerNorm__forward=norm_with(lambda x, gain, bias: gain * x))
slip("bias_before_gain", LayerNorm__forward=norm_with(lambda x, gain, bias: gain * (x + bias)))
slip("no_gain_and_bias", LayerNorm__forward=norm_with(lambda x, gain, bias: x))
# the order of norm, sublayer and residual, which trained weights don't forgive
slip(
    "post_norm_for_pre_norm",
    SublayerConnection__forward=lambda self, x, sublayer: self.norm(x + sublayer(x)),
)


def residual_from_normed(self, x, sublayer):
    x = self.norm(x)
    return x + sublayer(x)


slip("residual_from_normed", SublayerConnection__forward=residual_from_normed)
slip("sublayer_without_norm", SublayerConnection__forward=lambda self, x, sublayer: x + sublayer(x))


def norm_1_twice(self, x, src_mask):
    x = self.sublayer[0](x, lambda z: self.self_attn(z, z, z, src_mask))
    return self.sublayer[0](x, self.feed_forward)


slip("norm_1_twice", EncoderLayer__forward=norm_1_twice)


def layers_of(order: Callable[[list], list], residual: Callable[[int, int], bool]) -> dict:
    """Layers with their sublayers in another order, or some of them without a residual.

    `residual` gets the number of a sublayer, counted from 0, and how many there are.
    """

    def run(layer: nn.Module, x: Tensor, sublayers: list[Callable]) -> Tensor:
        numbered = list(zip(layer.sublayer, sublayers, strict=True))
        for number, (connection, sublayer) in enumerate(order(numbered)):
            y = sublayer(connection.norm(x))
            x = x + y if residual(number, len(numbered)) else y
        return x

    def encoder(self, x, src_mask):
        return run(self, x, [lambda z: self.self_attn(z, z, z, src_mask), self.feed_forward])

    def decoder(self, x, memory, src_mask, tgt_mask):
        sublayers = [
            lambda z: self.self_attn(z, z, z, tgt_mask),
            lambda z: self.src_attn(z, memory, memory, src_mask),
        ]
        return run(self, x, [*sublayers, self.feed_forward])

    return {"EncoderLayer__forward": encoder, "DecoderLayer__forward": decoder}


# one residual of several
slip("first_residual_missing", **layers_of(list, lambda number, _: number > 0))
slip("last_residual_missing", **layers_of(list, lambda number, last: number < last - 1))
slip(
    "middle_residual_missing",
    DecoderLayer__forward=layers_of(list, lambda number, _: number != 1)["DecoderLayer__forward"],
)
slip(
    "network_first",
    **layers_of(lambda sublayers: [sublayers[-1], *sublayers[:-1]], lambda *_: True),
)
# Equation (2)
slip(
    "no_b_1",
    PositionwiseFeedForward__forward=lambda self, x: self.W_2((x @ self.W_1.weight.T).relu()),
)
slip(
    "no_b_2",
    PositionwiseFeedForward__forward=lambda self, x: self.W_1(x).relu() @ self.W_2.weight.T,
)
slip(
    "gelu_for_relu",
    PositionwiseFeedForward__forward=lambda self, x: self.W_2(nn.functional.gelu(self.W_1(x))),
)
slip(
    "relu_twice",
    PositionwiseFeedForward__forward=lambda self, x: self.W_2(self.W_1(x).relu()).relu(),
)


def stack_with(change: Callable[[list], list], fed: bool = True, norm: bool = True) -> dict:
    """Stacks of other layers, or all of them fed the same, or without the last norm."""

    def forward(self, x, *rest):
        y = x
        for layer in change([*self.layers]):
            y = layer(y if fed else x, *rest)
        return self.norm(y) if norm else y

    return {"Encoder__forward": forward, "Decoder__forward": forward}


slip("first_layer_every_time", **stack_with(lambda layers: layers[:1] * len(layers)))
slip("return_in_the_loop", **stack_with(lambda layers: layers[:1]))
slip("return_in_the_loop_without_norm", **stack_with(lambda layers: layers[:1], norm=False))
slip("each_layer_reads_the_embeddings", **stack_with(list, fed=False))
slip("last_layer_missing", **stack_with(lambda layers: layers[:-1]))
slip("first_layer_missing", **stack_with(lambda layers: layers[1:]))
slip("layers_reversed", **stack_with(lambda layers: layers[::-1]))


# of one stack alone: the other gate has the other function
for name in ("Encoder", "Decoder"):
    forward = stack_with(list, norm=False)[f"{name}__forward"]
    slip(f"{name.lower()}_without_last_norm", **{f"{name}__forward": forward})
# the decoder layer: which sublayers, in which order, with which norm and mask
slip(
    "cross_attention_first",
    DecoderLayer__forward=decoder_layer((1, across), (0, own), (2, network)),
)
slip(
    "cross_attention_first_with_norm_1",
    DecoderLayer__forward=decoder_layer((0, across), (1, own), (2, network)),
)
slip("cross_attention_missing", DecoderLayer__forward=decoder_layer((0, own), (2, network)))
slip(
    "own_attention_unmasked",
    DecoderLayer__forward=decoder_layer(
        (0, lambda layer, z, *_: layer.self_attn(z, z, z)), (1, across), (2, network)
    ),
)
slip(
    "source_mask_not_passed",
    DecoderLayer__forward=decoder_layer(
        (0, own), (1, lambda layer, z, memory, *_: layer.src_attn(z, memory, memory)), (2, network)
    ),
)
slip(
    "query_not_normed", DecoderLayer__forward=decoder_layer((0, own), (None, across), (2, network))
)
slip(
    "memory_normed_again",
    DecoderLayer__forward=decoder_layer(
        (0, own),
        (1, lambda layer, z, y, *rest: across(layer, z, layer.sublayer[1].norm(y), *rest)),
        (2, network),
    ),
)
