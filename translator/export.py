"""Export: a trained model for CTranslate2, which runs it in C++, in int8 if you like.

An export reads the weights of a layer, and another program (https://opennmt.net/CTranslate2)
computes with them what the paper's layer would. So a layer that computes something else is refused
first, by name. Only `write_ctranslate2` needs the package `ctranslate2`.
"""

import math
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import since_2017 as since
import the_annotated_transformer as tat
from the_annotated_transformer import Transformer, Translator
from translator.agreement import compare
from translator.files import Refused, new_folder, refusing

LONGEST = 2048  # positions: CTranslate2 reads them from a table
PARTS = Path(__file__).with_name("ctranslate2_folder")  # what an export has beside the model
KIND = "is not the paper's, and cannot be exported"


def papers_layer(layer: nn.Module, x: Tensor, mask: Tensor, *memory: Tensor) -> Tensor:
    """What the paper's encoder layer gives with these weights; its self-attention may be rotary."""
    # with a memory and its mask, it is the paper's decoder layer

    def attend(attn: nn.Module, query: Tensor, key: Tensor, mask: Tensor) -> Tensor:
        # from the weights alone, not by the layer's own methods: those are what is in question
        inputs = ((query, attn.W_q), (key, attn.W_k), (key, attn.W_v))
        projected = (F.linear(y, W.weight).unflatten(-1, (attn.h, -1)) for y, W in inputs)
        Q, K, V = (y.transpose(1, 2) for y in projected)
        if isinstance(attn, since.RotaryAttention):
            Q, K = since.rotated(Q), since.rotated(K)
        heads = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        return F.linear(heads.transpose(1, 2).flatten(2), attn.W_o.weight)

    def feed_forward(y: Tensor) -> Tensor:
        W_1, W_2 = layer.feed_forward.W_1, layer.feed_forward.W_2
        return F.linear(F.linear(y, W_1.weight, W_1.bias).relu(), W_2.weight, W_2.bias)

    sublayers = [lambda y: attend(layer.self_attn, y, y, mask), feed_forward]
    if memory:
        sublayers.insert(1, lambda y: attend(layer.src_attn, y, *memory))
    for connection, sublayer in zip(layer.sublayer, sublayers, strict=True):
        norm = partial(papers_norm, connection.norm)
        x = norm(x + sublayer(x)) if isinstance(connection, tat.PostNorm) else x + sublayer(norm(x))
    return x


def papers_norm(norm: nn.Module, x: Tensor) -> Tensor:
    """LayerNorm with the gain and bias of this one; a post-norm stack ends with none."""
    if isinstance(norm, nn.Identity):
        return x
    return F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def papers_embedding(embed: nn.Module, ids: Tensor) -> Tensor:
    """Scaled embeddings plus learned, sinusoidal or no positions, with these weights (3.4, 3.5)."""
    table = embed.embeddings.table.weight
    count = ids.size(1)
    return table[ids] * math.sqrt(table.size(1)) + added_positions(embed, count)[:count]


def added_positions(embed: nn.Module, count: int) -> Tensor:
    """What one side adds to its embeddings at `count` positions, or at as many as it learned."""
    table, positions = embed.embeddings.table.weight, embed.positions
    if isinstance(positions, tat.LearnedPositions):
        return positions.table.weight
    if isinstance(positions, since.SplitPositions):
        return positions(torch.zeros(1, count, table.size(1), device=table.device))[0]
    if isinstance(positions, since.NoPositions):
        return table.new_zeros(count, table.size(1))
    return tat.positional_encoding(count, table.size(1)).to(table)


@torch.inference_mode()
def check_papers(model: Transformer, S: int = 280, T: int = 256) -> None:
    """Raise Refused naming a model's first part that computes something else than the paper's."""
    # Both have the same weights.
    # Random-looking ids of special tokens, which every vocabulary has; long enough that a window, a
    # distance or a table that ends early shows.
    ids = torch.arange(S, device=next(model.parameters()).device).unsqueeze(0) % len(tat.SPECIALS)
    future = tat.subsequent_mask(T).to(ids.device)
    real = torch.ones_like(ids, dtype=torch.bool).unsqueeze(0)
    real[..., -3:] = False  # three positions of the source are padding
    with tat.evaluating(model):
        read = ("src_embed", model.src_embed, ids), ("tgt_embed", model.tgt_embed, ids[:, :T])
        memory, x = (
            compare(name, embed, KIND, partial(embed, side), partial(papers_embedding, embed, side))
            for name, embed, side in read
        )
        stacks = (
            ("encoder", memory, (real,), (real,)),
            ("decoder", x, (memory, real, future), (future, memory, real)),
        )
        # each layer reads what the one before it gave, so the first that differs is named
        for name, start, context, papers_context in stacks:
            stack = getattr(model, name)
            y = start
            for i, layer in enumerate(stack.layers):
                layers = (
                    partial(layer, y, *context),
                    partial(papers_layer, layer, y, *papers_context),
                )
                y = compare(f"{name}.layers.{i}", layer, KIND, *layers)
            compare(
                name, stack, KIND, partial(stack, start, *context),
                partial(papers_norm, stack.norm, y),
            )  # fmt: skip
        generator = model.generator
        compare(
            "generator", generator, KIND, lambda: generator.logits(x),
            lambda: F.linear(x, generator.proj.weight, generator.proj.bias),
        )  # fmt: skip


def check_marian(model: Transformer) -> None:
    """Raise Refused naming a model's first part that is neither Marian's nor the paper's."""
    feed_forward = {since.SwishFeedForward, tat.PositionwiseFeedForward, tat.DroppingFeedForward}
    types = {
        "self_attn": {since.BiasedAttention}, "src_attn": {since.BiasedAttention},
        "positions": {since.SplitPositions}, "norm": {nn.LayerNorm, nn.Identity},
        "feed_forward": feed_forward, "proj": {nn.Linear},
    }  # fmt: skip
    for name, module in model.named_modules():
        if type(module) not in types.get(name.rpartition(".")[2], {type(module)}):
            raise Refused(
                f"{name} ({type(module).__name__}) is not Marian's, and cannot be exported"
            )


def numbers(tensor: Tensor):
    """A tensor as the float32 array that a specification takes."""
    return tensor.detach().cpu().float().contiguous().numpy()


def fill_linear(spec: Any, *layers: nn.Linear) -> None:
    """One linear layer, or several that read the same input, stacked."""
    spec.weight = numbers(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = numbers(torch.cat([layer.bias for layer in layers]))


def fill_norm(spec: Any, norm: nn.LayerNorm) -> None:
    """The gain and bias of a LayerNorm."""
    spec.gamma, spec.beta = numbers(norm.weight), numbers(norm.bias)


def fill_embeddings(spec: Any, embeddings: Any, embed: nn.Module) -> None:
    """The embedding matrix of one side, and the positions that are added to it."""
    embeddings.weight = numbers(embed.embeddings.table.weight)
    spec.position_encodings.encodings = numbers(added_positions(embed, LONGEST))


def fill_layer(spec: Any, layer: nn.Module) -> None:
    """The sublayers of an encoder or decoder layer, each with its norm."""
    from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec

    attention, ffn = layer.self_attn, layer.feed_forward
    if isinstance(attention, since.RotaryAttention):
        # 0: all of a head
        spec.self_attention = MultiHeadAttentionSpec(self_attention=True, rotary_dim=0)
    fill_linear(spec.self_attention.linear[0], attention.W_q, attention.W_k, attention.W_v)
    fill_linear(spec.self_attention.linear[1], attention.W_o)
    specs = [spec.self_attention, spec.ffn]
    if hasattr(layer, "src_attn"):
        cross = layer.src_attn
        fill_linear(spec.attention.linear[0], cross.W_q)
        fill_linear(spec.attention.linear[1], cross.W_k, cross.W_v)
        fill_linear(spec.attention.linear[2], cross.W_o)
        specs.insert(1, spec.attention)
    fill_linear(spec.ffn.linear_0, ffn.W_1)
    fill_linear(spec.ffn.linear_1, ffn.W_2)
    for sublayer_spec, sublayer in zip(specs, layer.sublayer, strict=True):
        fill_norm(sublayer_spec.layer_norm, sublayer.norm)


def specification(translator: Translator) -> Any:
    """The whole model in CTranslate2's description; CTranslate2 adds </s> to each source itself.

    Raises Refused if keys and values differ in width, or naming a layer that is not the paper's.
    """
    model, tokenizer = translator.model, translator.tokenizer
    if isinstance(model.src_embed.positions, since.SplitPositions):
        check_marian(model)
    else:
        check_papers(model)
    # only now: what can't be exported is named even where the package is missing
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    first = model.encoder.layers[0]
    depths = len(model.encoder.layers), len(model.decoder.layers)
    if first.self_attn.W_k.out_features != first.self_attn.W_v.out_features:
        raise Refused(
            "CTranslate2 has keys and values of one width alone, but this model has d_k of its own"
        )
    pre_norm = not isinstance(first.sublayer[0], tat.PostNorm)
    swish = isinstance(first.feed_forward, since.SwishFeedForward)
    activation = Activation.SWISH if swish else Activation.RELU
    spec = TransformerSpec.from_config(
        depths, first.self_attn.h, pre_norm=pre_norm, activation=activation
    )
    fill_embeddings(spec.encoder, spec.encoder.embeddings[0], model.src_embed)
    fill_embeddings(spec.decoder, spec.decoder.embeddings, model.tgt_embed)
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            fill_layer(layer_spec, layer)
        if pre_norm:
            fill_norm(side.layer_norm, stack.norm)
    fill_linear(spec.decoder.projection, model.generator.proj)
    for register in (spec.register_source_vocabulary, spec.register_target_vocabulary):
        register(tokenizer.tokens(range(len(tokenizer))))
    config: Any = spec.config
    config.add_source_eos = True
    config.layer_norm_epsilon = first.sublayer[0].norm.eps
    return spec


def write_ctranslate2(translator: Translator, out: Path, quantization: str | None = None) -> None:
    """Write the folder `out`: CTranslate2's model.bin, config and vocabulary, and tokenizer.json.

    A model with byte-pair encoding also gets a card and translate.py, which translates text.

    quantization: int8, float16 or another type that CTranslate2 knows; None keeps float32.
    Raises Refused for an unknown type, FileExistsError if `out` exists.
    """
    with new_folder(out):
        with refusing("export needs the package ctranslate2: pip install ctranslate2", ImportError):
            spec = specification(translator)
        # what is missing or has another shape is named here, before anything is written
        spec.validate()
        with refusing(f"--quantization {quantization}", ValueError):
            spec.optimize(quantization=quantization)
        spec.save(str(out))
        # of the source, as the library reads it
        translator.tokenizer.vocabulary.save(str(out / "tokenizer.json"))
        if not translator.tokenizer.words:
            shutil.copy(PARTS / "translate.py", out)
            card = (PARTS / "README.md").read_text(encoding="utf-8")
            meanings = *translator.languages, quantization or "float32"
            for word, meaning in zip(("SOURCE", "TARGET", "QUANTIZATION"), meanings, strict=True):
                card = card.replace(word, meaning)
            (out / "README.md").write_text(card, encoding="utf-8")
