"""A Transformer in NumPy, written from the stubs."""

import numpy as np


def take(array):
    return array


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def embed(ids, table):
    return table[ids] * table.shape[1] ** 0.5


def positions(length, d_model):
    angle = np.arange(length)[:, None] / 10_000 ** (np.arange(0, d_model, 2) / d_model)
    table = np.empty((length, d_model))
    table[:, 0::2], table[:, 1::2] = np.sin(angle), np.cos(angle)
    return table


def attention(Q, K, V, mask):
    scores = Q @ K.T / Q.shape[1] ** 0.5
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ V


def multi_head(x, y, mask, W_q, W_k, W_v, W_o, h):
    cut = [np.split(z, h, axis=1) for z in (x @ W_q, y @ W_k, y @ W_v)]
    return np.hstack([attention(Q, K, V, mask) for Q, K, V in zip(*cut)]) @ W_o


def layer_norm(x, gain, bias):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return gain * (x - mean) / np.sqrt(variance + 1e-5) + bias


def feed_forward(x, W_1, b_1, W_2, b_2):
    return np.maximum(x @ W_1 + b_1, 0) @ W_2 + b_2


def normed(x, w, number):
    return layer_norm(x, w[f"norm_{number}.gain"], w[f"norm_{number}.bias"])


def attend(x, y, mask, w, which, h):
    return multi_head(x, y, mask, *(w[f"{which}.W_{name}"] for name in "qkvo"), h)


def compute(x, w):
    return feed_forward(x, *(w[f"feed_forward.{name}"] for name in ("W_1", "b_1", "W_2", "b_2")))


def encoder_layer(x, mask, w, h):
    z = normed(x, w, 1)
    x = x + attend(z, z, mask, w, "self_attn", h)
    return x + compute(normed(x, w, 2), w)


def encoder(ids, mask, w, h):
    x = embed(ids, w["table"])
    x = x + positions(*x.shape)
    for layer in w["layers"]:
        x = encoder_layer(x, mask, layer, h)
    return layer_norm(x, w["gain"], w["bias"])


def masks(src, tgt, pad):
    return (src != pad)[None], np.tri(len(tgt), dtype=bool) & (tgt != pad)[None]


def decoder_layer(x, memory, src_mask, tgt_mask, w, h):
    z = normed(x, w, 1)
    x = x + attend(z, z, tgt_mask, w, "self_attn", h)
    x = x + attend(normed(x, w, 2), memory, src_mask, w, "src_attn", h)
    return x + compute(normed(x, w, 3), w)


def decoder(ids, memory, src_mask, tgt_mask, w, h):
    x = embed(ids, w["table"])
    x = x + positions(*x.shape)
    for layer in w["layers"]:
        x = decoder_layer(x, memory, src_mask, tgt_mask, layer, h)
    return layer_norm(x, w["gain"], w["bias"])


def logits(x, table):
    return x @ table.T


def translate(src, w, h, bos, eos, longest):
    memory = encoder(src, None, w["encoder"], h)
    written = [bos]
    while len(written) <= longest and written[-1] != eos:
        tgt_mask = np.tri(len(written), dtype=bool)
        x = decoder(np.array(written), memory, None, tgt_mask, w["decoder"], h)
        written.append(int(logits(x[-1:], w["decoder"]["table"]).argmax()))
    return written[1:]


def shift(ids):
    return ids[:-1], ids[1:]


def shares(target, vocab, smoothing, pad):
    q = np.full((len(target), vocab), smoothing / (vocab - 1))
    q[np.arange(len(target)), target] += 1 - smoothing
    q[:, pad] = 0
    q[target == pad] = 0
    return q


def loss(logits, target, smoothing, pad):
    return -(shares(target, logits.shape[1], smoothing, pad) * np.log(softmax(logits))).sum()


def loss_gradient(logits, target, smoothing, pad):
    known = (target != pad)[:, None]
    return (softmax(logits) - shares(target, logits.shape[1], smoothing, pad)) * known


def rate(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def adam(w, g, m, v, step, lrate):
    m, v = 0.9 * m + 0.1 * g, 0.98 * v + 0.02 * g**2
    return w - lrate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.98**step)) + 1e-9), m, v
