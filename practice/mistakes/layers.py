"""What surrounds a sublayer, feed-forward networks, layers and stacks (Sections 3.1 and 3.3)."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

import the_annotated_transformer as tat
from practice.mistakes.attention import across, decoder_layer, network, own
from practice.mistakes.catalogue import CATALOGUE, mistake, slip

RESIDUAL = "Residuals and normalisation (Section 3.1)"

FFN = "Position-wise feed-forward networks (Section 3.3)"

mistake(
    "no_residual",
    kind="norm",
    line="return sublayer(self.norm(x))",
    section=RESIDUAL,
    seen_by="inventory",
    belief="The sublayer computes the new x.",
    effect=(
        "Each layer has to pass on everything by itself; what it doesn't pass on is lost. In one "
        "layer that works, in six it doesn't."
    ),
    SublayerConnection__forward=lambda self, x, sublayer: sublayer(self.norm(x)),
)


def norm_over(dim: int, root: bool = True) -> Callable:
    """LayerNorm over another dimension, or without the root."""

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(dim, keepdim=True)
        variance = x.var(dim, keepdim=True, unbiased=False) + self.eps
        return self.weight * (x - mean) / (variance.sqrt() if root else variance) + self.bias

    return forward


mistake(
    "norm_over_time",
    label="LayerNorm over time",
    kind="norm",
    line="x.mean(1), x.var(1)",
    section=RESIDUAL,
    seen_by="wires",
    belief="Each feature is normalised, as in a BatchNorm.",
    effect=(
        "The mean over a sentence contains its end: with a causal mask that is right, the future "
        "leaks through the norm."
    ),
    LayerNorm__forward=norm_over(1),
)
mistake(
    "norm_by_variance",
    kind="norm",
    line="(x - mean) / var  # no root",
    section=RESIDUAL,
    seen_by="none",
    belief="The variance is the spread.",
    effect="A stream that is twice as large comes out half as large.",
    harmless=True,
    LayerNorm__forward=norm_over(-1, root=False),
)
mistake(
    "no_norm",
    kind="norm",
    line="no norm",
    section=RESIDUAL,
    seen_by="gradient",
    belief="It only helps a little.",
    effect="At one layer that is true; the stream grows with every layer.",
    harmless=True,
    LayerNorm__forward=lambda self, x: x,
)


def stacks(change: Callable) -> dict[str, Any]:
    """Encoder and decoder of other layers, or with another last norm."""

    def with_init(init: Callable) -> Callable:
        return lambda self, layers, norm: init(self, *change(layers, norm))

    both = tat.Encoder, tat.Decoder
    return {f"{stack.__name__}____init__": with_init(stack.__init__) for stack in both}


mistake(
    "no_final_norm",
    kind="norm",
    line="pre-norm without the last norm",
    section=RESIDUAL,
    seen_by="inventory",
    belief="Every sublayer has a norm.",
    effect="With pre-norm nobody normalises what the last one adds.",
    harmless=True,
    **stacks(lambda layers, norm: (layers, nn.Identity())),
)
mistake(
    "no_relu",
    kind="norm",
    line="self.W_2(self.W_1(x))",
    section=FFN,
    seen_by="none",
    belief="Two layers are more than one.",
    effect="Without something between them they are one.",
    harmless=True,
    PositionwiseFeedForward__forward=lambda self, x: self.W_2(self.W_1(x)),
)
mistake(
    "layers_share_weights",
    kind="norm",
    line="[layer] * N",
    section="The encoder (Section 3.1)",
    seen_by="inventory",
    belief="A list of N layers.",
    effect="A list of one layer, N times.",
    harmless=True,
    settings={"N": 2},
    **stacks(lambda layers, norm: ([layers[0]] * len(layers), norm)),
)


def variance_of_a_sample(self, x):
    variance = x.var(-1, keepdim=True) + self.eps
    return self.weight * (x - x.mean(-1, keepdim=True)) / variance.sqrt() + self.bias


slip(
    "variance_of_a_sample",
    line="x.var(-1)  # divides by d - 1",
    effect=(
        "The norm's divides by d, as its Equation has it. torch.var divides by d - 1 unless it is "
        "told otherwise."
    ),
    LayerNorm__forward=variance_of_a_sample,
)


def normed(eps_inside: float, eps_outside: float, centred: bool = True) -> Callable:
    """LayerNorm with epsilon elsewhere, or without the mean."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x - x.mean(-1, keepdim=True) if centred else x
        root = (middle.square().mean(-1, keepdim=True) + eps_inside).sqrt() + eps_outside
        return self.weight * middle / root + self.bias

    return forward


slip(
    "epsilon_outside_the_root",
    line="/ (std + eps)  # outside the root",
    effect="On rows that hardly vary epsilon decides, and belongs inside the root.",
    LayerNorm__forward=normed(0.0, 1e-5),
)
slip(
    "no_epsilon",
    line="/ std  # no epsilon",
    effect="On rows that hardly vary the result is far too large.",
    LayerNorm__forward=normed(0.0, 0.0),
)
slip(
    "norm_without_mean",
    line="the mean isn't taken away",
    effect="That is RMSNorm; these weights were trained with LayerNorm.",
    LayerNorm__forward=normed(1e-5, 0.0, centred=False),
)
slip(
    "another_epsilon",
    line="epsilon 1e-6  # for 1e-5",
    effect="On rows that hardly vary, epsilon decides how large the result is.",
    LayerNorm__forward=normed(1e-6, 0.0),
)


def norm_of_2018(eps: float) -> Callable:
    """The norm of the 2018 edition."""
    return lambda self, x: (
        self.bias + self.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + eps)
    )


EDITION_OF_2018 = (
    "That's the norm of The Annotated Transformer of 2018: its x.std divides by d - 1, and its "
    "epsilon is outside the root. LayerNorm's variance divides by d, with epsilon inside."
)

slip(
    "norm_of_2018",
    line="(x - mean) / (x.std(-1) + 1e-6)",
    effect=EDITION_OF_2018,
    LayerNorm__forward=norm_of_2018(1e-6),
)
slip(
    "norm_of_2018_with_this_epsilon",
    line="(x - mean) / (x.std(-1) + 1e-5)",
    effect=EDITION_OF_2018,
    LayerNorm__forward=norm_of_2018(1e-5),
)


def norm_with(last: Callable, of: Callable = Tensor.mean, dim: Any = -1) -> Callable:
    """LayerNorm with something else done at its end, or with another sum of squares."""

    def forward(self, x: Tensor) -> Tensor:
        middle = x - x.mean(dim, keepdim=True)
        root = (of(middle.square(), dim, keepdim=True) + self.eps).sqrt()
        return last(middle / root, self.weight, self.bias)

    return forward


def gain_then_bias(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    """The right end."""
    return gain * x + bias


slip(
    "norm_over_positions",
    line="mean and variance over the positions  # axis 0",
    effect="Each row is normalised over its d_model numbers, which are axis 1 here, or -1.",
    **CATALOGUE["norm_over_time"].puts,
)


def centred_in_the_variance_alone(self, x):
    variance = x.var(-1, keepdim=True, unbiased=False) + self.eps
    return self.weight * x / variance.sqrt() + self.bias


slip(
    "mean_only_in_the_variance",
    line="x / sqrt(variance + eps)  # for x - mean",
    effect="The mean is taken away before the division as well.",
    LayerNorm__forward=centred_in_the_variance_alone,
)
slip(
    "norm_of_the_whole",
    line="x.mean(), x.var()  # over all positions at once",
    effect="Each position is normalised by itself; otherwise it would depend on all the others.",
    LayerNorm__forward=norm_with(gain_then_bias, dim=(-2, -1)),
)
slip(
    "norm_by_sum",
    line="the sum of the squares  # for their mean",
    effect="The variance is a mean: with a sum, the wider the vector, the smaller its entries.",
    LayerNorm__forward=norm_with(gain_then_bias, of=Tensor.sum),
)
slip(
    "gain_forgotten",
    line="no gain",
    effect="Each entry is multiplied by a gain that was learned.",
    LayerNorm__forward=norm_with(lambda x, gain, bias: x + bias),
)
slip(
    "bias_forgotten",
    line="no bias",
    effect="A bias that was learned is added to each entry.",
    LayerNorm__forward=norm_with(lambda x, gain, bias: gain * x),
)
slip(
    "bias_before_gain",
    line="gain * (x + bias)",
    effect="The gain multiplies what was normalised; the bias is added after it.",
    LayerNorm__forward=norm_with(lambda x, gain, bias: gain * (x + bias)),
)
slip(
    "no_gain_and_bias",
    line="(x - mean) / std  # no gain, no bias",
    effect="The learned gain and bias come after it.",
    LayerNorm__forward=lambda self, x: nn.functional.layer_norm(x, x.shape[-1:], eps=self.eps),
)
slip(
    "post_norm_for_pre_norm",
    line="norm(x + sublayer(x))  # these weights: x + sublayer(norm(x))",
    effect="That is Figure 1 of the paper, but the shipped weights were trained with pre-norm.",
    SublayerConnection__forward=lambda self, x, sublayer: self.norm(x + sublayer(x)),
)


def residual_from_normed(self, x, sublayer):
    x = self.norm(x)
    return x + sublayer(x)


slip(
    "residual_from_normed",
    line="x = norm(x); x + sublayer(x)",
    effect="What is added to is the normed vector, so the stream is reset at each sublayer.",
    SublayerConnection__forward=residual_from_normed,
)
slip(
    "sublayer_without_norm",
    line="x + sublayer(x)  # no norm",
    effect="The sublayer gets vectors of a size that it doesn't know.",
    SublayerConnection__forward=lambda self, x, sublayer: x + sublayer(x),
)


def norm_1_twice(self, x, src_mask):
    x = self.sublayer[0](x, lambda z: self.self_attn(z, z, z, src_mask))
    return self.sublayer[0](x, self.feed_forward)


slip(
    "norm_1_twice",
    line="norm_1 before the network, too",
    effect="Each sublayer has a norm with a gain and a bias that were trained for it: here norm_2.",
    EncoderLayer__forward=norm_1_twice,
)


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
        return run(
            self,
            x,
            [
                lambda z: self.self_attn(z, z, z, tgt_mask),
                lambda z: self.src_attn(z, memory, memory, src_mask),
                self.feed_forward,
            ],
        )

    return {"EncoderLayer__forward": encoder, "DecoderLayer__forward": decoder}


ONE_RESIDUAL = "What a sublayer computes is added to what went in, around each of them."

slip(
    "first_residual_missing",
    line="x = self_attn(norm_1(x))  # no x +",
    effect=ONE_RESIDUAL,
    **layers_of(list, lambda number, _: number > 0),
)
slip(
    "last_residual_missing",
    line="x = feed_forward(norm(x))  # no x +",
    effect=ONE_RESIDUAL,
    **layers_of(list, lambda number, last: number < last - 1),
)
slip(
    "middle_residual_missing",
    line="x = src_attn(norm_2(x), memory)  # no x +",
    effect=ONE_RESIDUAL,
    DecoderLayer__forward=layers_of(list, lambda number, _: number != 1)["DecoderLayer__forward"],
)
slip(
    "network_first",
    line="the network before the attention",
    effect="In Figure 1 attention comes first; norm_1 is its norm.",
    **layers_of(lambda sublayers: [sublayers[-1], *sublayers[:-1]], lambda *_: True),
)
slip(
    "no_b_1",
    line="x @ W_1  # no + b_1",
    effect="Equation (2) adds b_1 before the ReLU: it decides how large a sum must be to pass.",
    PositionwiseFeedForward__forward=lambda self, x: self.W_2((x @ self.W_1.weight.T).relu()),
)
slip(
    "no_b_2",
    line="max(0, x @ W_1 + b_1) @ W_2  # no + b_2",
    effect="Equation (2) ends with b_2.",
    PositionwiseFeedForward__forward=lambda self, x: self.W_1(x).relu() @ self.W_2.weight.T,
)
slip(
    "gelu_for_relu",
    line="gelu for relu",
    effect="Equation (2) has max(0, ...), and these weights learned with it.",
    PositionwiseFeedForward__forward=lambda self, x: self.W_2(nn.functional.gelu(self.W_1(x))),
)
slip(
    "relu_twice",
    line="relu after the second matrix, too",
    effect="The network could then only ever add, never take away.",
    PositionwiseFeedForward__forward=lambda self, x: self.W_2(self.W_1(x).relu()).relu(),
)


def encoder_without_last_norm(self, x, src_mask):
    for layer in self.layers:
        x = layer(x, src_mask)
    return x


slip(
    "encoder_without_last_norm",
    line="memory without the encoder's last norm",
    effect="With pre-norm nobody normalises what the last one adds.",
    Encoder__forward=encoder_without_last_norm,
)


def first_layer_every_time(self, x, *rest):
    for _ in self.layers:
        x = self.layers[0](x, *rest)
    return self.norm(x)


slip(
    "first_layer_every_time",
    line="layers[0] N times",
    effect="Each layer has weights that were trained for its place.",
    Encoder__forward=first_layer_every_time,
    Decoder__forward=first_layer_every_time,
)


def stack_with(change: Callable[[list], list], fed: bool = True, norm: bool = True) -> dict:
    """Stacks of other layers, or all of them fed the same, or without the last norm."""

    def forward(self, x, *rest):
        y = x
        for layer in change([*self.layers]):
            y = layer(y if fed else x, *rest)
        return self.norm(y) if norm else y

    return {"Encoder__forward": forward, "Decoder__forward": forward}


FIRST_ALONE = "The return ends the loop after its first layer; it belongs behind the loop."

slip(
    "return_in_the_loop",
    line="return in the loop over the layers",
    effect=FIRST_ALONE,
    **stack_with(lambda layers: layers[:1]),
)
slip(
    "return_in_the_loop_without_norm",
    line="return x in the loop over the layers",
    effect=FIRST_ALONE,
    **stack_with(lambda layers: layers[:1], norm=False),
)
slip(
    "each_layer_reads_the_embeddings",
    line="y = layer(x)  # in each round the same x",
    effect="Each layer reads what the one before it wrote, so only the last one counts here.",
    **stack_with(list, fed=False),
)
slip(
    "last_layer_missing",
    line="one layer too few",
    effect="All N layers of w are run.",
    **stack_with(lambda layers: layers[:-1]),
)
slip(
    "first_layer_missing",
    line="the first layer is left out",
    effect="All N layers of w are run.",
    **stack_with(lambda layers: layers[1:]),
)
slip(
    "layers_reversed",
    line="the last layer first",
    effect="The layers of w are in their order, the first one first.",
    **stack_with(lambda layers: layers[::-1]),
)


def decoder_without_last_norm(self, x, memory, src_mask, tgt_mask):
    for layer in self.layers:
        x = layer(x, memory, src_mask, tgt_mask)
    return x


slip(
    "decoder_without_last_norm",
    line="decoder without its last norm",
    effect="With pre-norm nobody normalises what the last one adds.",
    Decoder__forward=decoder_without_last_norm,
)
slip(
    "cross_attention_first",
    line="attention to the memory first, then to the target",
    effect="Figure 1 has the target's own attention first.",
    DecoderLayer__forward=decoder_layer((1, across), (0, own), (2, network)),
)
slip(
    "cross_attention_first_with_norm_1",
    line="attention to the memory first, with norm_1",
    effect="Figure 1 has the target's own attention first; norm_1 is its norm.",
    DecoderLayer__forward=decoder_layer((0, across), (1, own), (2, network)),
)
slip(
    "cross_attention_missing",
    line="no attention to the memory",
    effect="The decoder's has three sublayers; without the second it never sees the source.",
    DecoderLayer__forward=decoder_layer((0, own), (2, network)),
)
slip(
    "own_attention_unmasked",
    line="the decoder's own attention without its mask",
    effect="When it writes, there is no future; in training there is, and it must be hidden.",
    DecoderLayer__forward=decoder_layer(
        (0, lambda layer, z, *_: layer.self_attn(z, z, z)), (1, across), (2, network)
    ),
)
slip(
    "source_mask_not_passed",
    line="src_mask isn't passed to the attention to the memory",
    effect="The decoder then sees the padding of the source.",
    DecoderLayer__forward=decoder_layer(
        (0, own), (1, lambda layer, z, memory, *_: layer.src_attn(z, memory, memory)), (2, network)
    ),
)
slip(
    "query_not_normed",
    line="x + src_attn(x, memory, ...)  # no norm_2",
    effect="Pre-norm normalises the query of this attention as well. (The memory has had its last norm.)",
    DecoderLayer__forward=decoder_layer((0, own), (None, across), (2, network)),
)
slip(
    "memory_normed_again",
    line="norm_2(memory)",
    effect="The encoder's last norm was the memory's; norm_2 is for the query alone.",
    DecoderLayer__forward=decoder_layer(
        (0, own),
        (1, lambda layer, z, y, *rest: across(layer, z, layer.sublayer[1].norm(y), *rest)),
        (2, network),
    ),
)
