"""The checks that keep the fast decoder, the loss and the exports from misreading a layer: they name it and refuse it.

Readers are meant to change the document: another norm, other positions, a third attention. But some code reads a layer's
weights instead of calling the layer, and would then silently decode, learn or export something else. So each layer gets
some random vectors, and its output must equal what that code would compute.
"""

import ast
import functools
import hashlib
import inspect
import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from the_annotated_transformer import (
    LearnedPositions,
    MultiHeadedAttention,
    Transformer,
    evaluating,
    positional_encoding,
    split_heads,
    subsequent_mask,
)

S, T = 40, 32  # source and target positions of the random vectors: more than a narrow attention window spans
ANSWERED: WeakKeyDictionary[Transformer, int] = (
    WeakKeyDictionary()
)  # models that passed, each with its state at that time


def state(model: Transformer) -> int:
    """A number that changes with the model's parts and with its weights."""
    weights = tuple((id(p), p._version) for p in model.parameters())
    return hash((tuple((name, id(module)) for name, module in model.named_modules()), weights))


def vectors(model: Transformer, length: int) -> Tensor:
    """The same random vectors (1, length, d_model) each time, of the model's type and on its device."""
    weight = next(model.decoder.parameters())
    d_model = model.tgt_embed.embeddings.table.embedding_dim
    return torch.randn(1, length, d_model, generator=torch.Generator().manual_seed(length)).to(weight)


def compare(part: nn.Module, name: str, user: str, ours: Callable[[], Tensor], known: Callable[[], Tensor]) -> None:
    """Raise ValueError naming the part if the two functions give different results, or if one of them fails."""
    title = f"{name} ({type(part).__name__})"
    try:
        a, b = ours(), known()
        size = float(a.nan_to_num().abs().max())
        tolerance = max(1e-3, 4 * torch.finfo(a.dtype).eps) * max(1.0, size)
        same = a.shape == b.shape and torch.allclose(a, b, rtol=0, atol=tolerance, equal_nan=True)
    except Exception as error:  # a changed layer may raise anything
        raise ValueError(f"{user} does not know {title}: {error}") from error
    if not same:
        raise ValueError(f"{user} does not know {title}: it would compute something else there; change it, too")


@contextmanager
def one_thread() -> Iterator[None]:
    """A single thread for operations that are too small to share; beside other work, several wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


ATTENTION = "e208c3a50c322680"  # of the document's `attention`, for which the fused kernel stands


def digest(function: Callable) -> str:
    """A digest of a function's code without its comments; empty where the code cannot be read."""
    try:
        code = ast.unparse(ast.parse(textwrap.dedent(inspect.getsource(function))))
    except (OSError, TypeError, SyntaxError):
        return ""
    return hashlib.sha256(code.encode()).hexdigest()[:16]


@functools.cache
def fused_agrees(attention: Callable) -> bool:
    """Whether PyTorch's fused kernel computes what this function does, the document's `attention` or what became of it.

    Random numbers alone cannot tell, because a change may show only for large scores or in dropout.
    """
    if digest(attention) != ATTENTION:
        return False
    draw = torch.Generator(device="cpu").manual_seed(0)
    Q, K, V = (torch.randn(2, 3, length, 8, generator=draw, device="cpu") for length in (T, S, S))
    mask = torch.rand(2, 1, T, S, generator=draw, device="cpu") < 0.7
    with torch.no_grad():
        fused = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        try:
            return torch.allclose(attention(Q, K, V, mask)[0], fused, atol=1e-4)
        except Exception:  # a changed function may raise anything, or return something else
            return False


@torch.inference_mode()
def check_loss(model: Transformer) -> None:
    """Raise ValueError if the generator does more than multiply by its matrix, which is all that the chunked loss does."""
    x, generator = vectors(model, T), model.generator
    user = "the loss in chunks (translator/losses.py)"
    compare(generator, "generator", user, lambda: generator.logits(x), lambda: x @ generator.proj.weight.T)


@torch.inference_mode()
def check_decoder(model: Transformer, cached_layer: Callable, padded_logits: Callable) -> None:
    """Raise ValueError naming the first part whose result token by token differs from its result all at once."""
    asked = state(model)
    if ANSWERED.get(model) == asked:
        return
    x, memory, user = vectors(model, T), vectors(model, S), "the fast decoder (translator/decoding.py)"
    embed, decoder, generator = model.tgt_embed, model.decoder, model.generator
    vocab = embed.embeddings.table.num_embeddings
    ids, future = torch.arange(T, device=x.device).unsqueeze(0) % vocab, subsequent_mask(T).to(x.device)
    real = (torch.arange(S, device=x.device) < S - 3).view(1, 1, S)  # three positions of the source are padding
    closed = torch.zeros(1, 1, 1, S, dtype=x.dtype, device=x.device).masked_fill(~real.unsqueeze(1), -torch.inf)

    def by_steps(layer: nn.Module) -> Tensor:
        cached = cached_layer(layer, memory, closed)
        return torch.stack([cached(x[:, t]) for t in range(T)], dim=1)

    def by_layers() -> Tensor:
        y = x
        for layer in decoder.layers:
            y = layer(y, memory, real, future)
        return decoder.norm(y)

    with evaluating(model), one_thread():
        one_by_one = lambda: torch.cat([embed(ids[:, t : t + 1], t) for t in range(T)], dim=1)  # noqa: E731
        compare(embed, "tgt_embed", user, partial(embed, ids), one_by_one)
        for i, layer in enumerate(decoder.layers):
            at_once = partial(layer, x, memory, real, future)
            compare(layer, f"decoder.layers.{i}", user, at_once, partial(by_steps, layer))
        compare(decoder, "decoder", user, partial(decoder, x, memory, real, future), by_layers)
        scores = lambda: padded_logits(generator)(x[0])[:, :vocab]  # noqa: E731
        compare(generator, "generator", user, lambda: generator.logits(x[0]), scores)
    ANSWERED[model] = asked


def known_attention(attn: MultiHeadedAttention, query: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
    """Multi-head attention from the weights of its four projections (Section 3.2.2)."""
    Q, K, V = (
        split_heads(F.linear(x, W.weight), attn.h)
        for x, W in ((query, attn.W_q), (memory, attn.W_k), (memory, attn.W_v))
    )
    return F.linear(F.scaled_dot_product_attention(Q, K, V, attn_mask=mask).transpose(1, 2).flatten(2), attn.W_o.weight)


def known_layer(layer: nn.Module, x: Tensor, memory: Tensor | None, mask: Tensor, memory_mask: Tensor | None) -> Tensor:
    """An encoder layer, or a decoder layer if there is a memory, from its weights (Section 3.1)."""
    sublayers = [lambda y: known_attention(layer.self_attn, y, y, mask)]
    if memory is not None:
        sublayers.append(lambda y: known_attention(layer.src_attn, y, memory, memory_mask))
    W_1, W_2 = layer.feed_forward.W_1, layer.feed_forward.W_2
    sublayers.append(lambda y: F.linear(F.linear(y, W_1.weight, W_1.bias).relu(), W_2.weight, W_2.bias))
    for connection, sublayer in zip(layer.sublayer, sublayers, strict=True):
        norm = connection.norm
        normalise = lambda y, n=norm: F.layer_norm(y, y.shape[-1:], n.weight, n.bias, n.eps)  # noqa: E731
        x = x + sublayer(normalise(x)) if connection.pre else normalise(x + sublayer(x))
    return x


def known_stack(stack: nn.Module, x: Tensor, *context: Tensor | None) -> Tensor:
    """The layers of a stack one after the other, then its final norm (Section 3.1)."""
    for layer in stack.layers:
        x = layer(x, *context)
    norm = stack.norm
    return x if isinstance(norm, nn.Identity) else F.layer_norm(x, x.shape[-1:], norm.weight, norm.bias, norm.eps)


def known_embedding(embed: nn.Module, ids: Tensor) -> Tensor:
    """Scaled embeddings plus learned or sinusoidal positions (Sections 3.4 and 3.5)."""
    table, positions = embed.embeddings.table.weight, embed.positions
    learned = isinstance(positions, LearnedPositions)
    added = positions.table.weight if learned else positional_encoding(ids.size(1), table.size(1)).to(table)
    return table[ids] * math.sqrt(table.size(1)) + added[: ids.size(1)]


@torch.inference_mode()
def check_export(model: Transformer) -> None:
    """Raise ValueError naming the first part that does not compute what the paper's would with the same weights."""
    x, memory, user = vectors(model, T), vectors(model, S), "the export (translator/export.py)"
    future, real = subsequent_mask(T).to(x.device), (torch.arange(S, device=x.device) < S - 3).view(1, 1, S)
    with evaluating(model):
        for name in ("src_embed", "tgt_embed"):
            embed = getattr(model, name)
            ids = torch.arange(T, device=x.device).unsqueeze(0) % embed.embeddings.table.num_embeddings
            compare(embed, name, user, partial(embed, ids), partial(known_embedding, embed, ids))
        for i, layer in enumerate(model.encoder.layers):
            known = partial(known_layer, layer, memory, None, real, None)
            compare(layer, f"encoder.layers.{i}", user, partial(layer, memory, real), known)
        for i, layer in enumerate(model.decoder.layers):
            known = partial(known_layer, layer, x, memory, future, real)
            compare(layer, f"decoder.layers.{i}", user, partial(layer, x, memory, real, future), known)
        stacks = {"encoder": (model.encoder, (memory, real)), "decoder": (model.decoder, (x, memory, real, future))}
        for name, (stack, inputs) in stacks.items():
            compare(stack, name, user, partial(stack, *inputs), partial(known_stack, stack, *inputs))
        generator = model.generator
        linear = lambda: F.linear(x, generator.proj.weight, generator.proj.bias)  # noqa: E731
        compare(generator, "generator", user, lambda: generator.logits(x), linear)
