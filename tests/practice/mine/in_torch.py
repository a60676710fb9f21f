"""A Transformer in PyTorch, written from the stubs, with own classes behind the functions."""

import math

import torch
import torch.nn.functional as F
from torch import nn


def take(array):
    return torch.from_numpy(array)


def embed(ids, table):
    return F.embedding(ids, table) * math.sqrt(table.size(1))


def positions(length, d_model):
    angle = torch.arange(length)[:, None] * 10_000 ** (-torch.arange(0, d_model, 2) / d_model)
    return torch.stack((angle.sin(), angle.cos()), 2).reshape(length, d_model)


def attention(Q, K, V, mask):
    return F.scaled_dot_product_attention(Q[None], K[None], V[None], attn_mask=mask)[0]


class Attention(nn.Module):
    """My own class, which keeps the matrices that it is given."""

    def __init__(self, h, *W):
        super().__init__()
        self.h, self.W = h, W

    def forward(self, x, y, mask):
        pairs = zip(self.W, (x, y, y), strict=False)
        Q, K, V = ((z @ w).unflatten(1, (self.h, -1)).transpose(0, 1) for w, z in pairs)
        found = F.scaled_dot_product_attention(Q, K, V, attn_mask=mask)
        return found.transpose(0, 1).flatten(1) @ self.W[3]


def multi_head(x, y, mask, *W_and_h):
    return Attention(W_and_h[-1], *W_and_h[:-1])(x, y, mask)


def layer_norm(x, gain, bias):
    return F.layer_norm(x, gain.shape, gain, bias)


def feed_forward(x, W_1, b_1, W_2, b_2):
    return F.relu(x @ W_1 + b_1) @ W_2 + b_2


def norm(x, w, number):
    return layer_norm(x, w[f"norm_{number}.gain"], w[f"norm_{number}.bias"])


def ffn(x, w):
    return feed_forward(x, *(w[f"feed_forward.{name}"] for name in ("W_1", "b_1", "W_2", "b_2")))


def encoder_layer(x, mask, w, h):
    z = norm(x, w, 1)
    x = x + multi_head(z, z, mask, *(w[f"self_attn.W_{i}"] for i in "qkvo"), h)
    return x + ffn(norm(x, w, 2), w)


def begin(ids, w):
    return embed(ids, w["table"]) + positions(len(ids), w["table"].size(1))


def encoder(ids, mask, w, h):
    x = begin(ids, w)
    for layer in w["layers"]:
        x = encoder_layer(x, mask, layer, h)
    return layer_norm(x, w["gain"], w["bias"])


def masks(src, tgt, pad):
    causal = torch.ones(len(tgt), len(tgt), dtype=torch.bool).tril()
    return (src != pad).unsqueeze(0), causal & (tgt != pad)


def decoder_layer(x, memory, src_mask, tgt_mask, w, h):
    z = norm(x, w, 1)
    x = x + multi_head(z, z, tgt_mask, *(w[f"self_attn.W_{i}"] for i in "qkvo"), h)
    x = x + multi_head(norm(x, w, 2), memory, src_mask, *(w[f"src_attn.W_{i}"] for i in "qkvo"), h)
    return x + ffn(norm(x, w, 3), w)


def decoder(ids, memory, src_mask, tgt_mask, w, h):
    x = begin(ids, w)
    for layer in w["layers"]:
        x = decoder_layer(x, memory, src_mask, tgt_mask, layer, h)
    return layer_norm(x, w["gain"], w["bias"])


def logits(x, table):
    return x @ table.T


@torch.inference_mode()
def translate(src, w, h, bos, eos, longest):
    memory, ids = encoder(src, None, w["encoder"], h), torch.tensor([bos])
    for _ in range(longest):
        causal = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        x = decoder(ids, memory, None, causal, w["decoder"], h)
        ids = torch.cat((ids, logits(x[-1:], w["decoder"]["table"]).argmax(1)))
        if ids[-1] == eos:
            break
    return ids[1:]


def shift(ids):
    return ids[:-1], ids[1:]


def loss(logits, target, smoothing, pad):
    log_p = logits.log_softmax(1)
    known = target != pad
    right = log_p.gather(1, target[:, None])[:, 0]
    others = (log_p.sum(1) - log_p[:, pad]) / (logits.size(1) - 1)
    return -((1 - smoothing) * right + smoothing * others)[known].sum()


def loss_gradient(logits, target, smoothing, pad):
    logits = logits.clone().requires_grad_()
    loss(logits, target, smoothing, pad).backward()
    return logits.grad


def rate(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def adam(w, g, m, v, step, lrate):
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    return w - lrate * (m / (1 - 0.9**step)) / ((v / (1 - 0.98**step)).sqrt() + 1e-9), m, v
