"""A Transformer in plain lists, written from the stubs: the standard library and nothing else."""

from math import cos, exp, log, sin, sqrt
from operator import mul


def take(array):
    return array.tolist()


def product(A, B):
    columns = list(zip(*B))
    return [[sum(map(mul, row, column)) for column in columns] for row in A]


def plus(A, B):
    return [[a + b for a, b in zip(*rows)] for rows in zip(A, B)]


def softmax(row):
    top = max(row)
    powers = [exp(x - top) for x in row]
    total = sum(powers)
    return [p / total for p in powers]


def embed(ids, table):
    root = sqrt(len(table[0]))
    return [[root * x for x in table[i]] for i in ids]


def positions(length, d_model):
    wave = (sin, cos)
    return [
        [wave[i % 2](p / 10_000 ** ((i - i % 2) / d_model)) for i in range(d_model)]
        for p in range(length)
    ]


def attention(Q, K, V, mask):
    scores = [[x / sqrt(len(Q[0])) for x in row] for row in product(Q, list(zip(*K)))]
    if mask is not None:
        scores = [[x if m else float("-inf") for x, m in zip(*rows)] for rows in zip(scores, mask)]
    return product([softmax(row) for row in scores], V)


def multi_head(x, y, mask, W_q, W_k, W_v, W_o, h):
    Q, K, V = product(x, W_q), product(y, W_k), product(y, W_v)
    d = len(W_q) // h
    joined = [[] for _ in x]
    for i in range(h):
        head = attention(*([row[i * d : (i + 1) * d] for row in Z] for Z in (Q, K, V)), mask)
        joined = [old + new for old, new in zip(joined, head)]
    return product(joined, W_o)


def layer_norm(x, gain, bias):
    result = []
    for row in x:
        mean = sum(row) / len(row)
        root = sqrt(sum((a - mean) ** 2 for a in row) / len(row) + 1e-5)
        result.append([g * (a - mean) / root + b for a, g, b in zip(row, gain, bias)])
    return result


def feed_forward(x, W_1, b_1, W_2, b_2):
    inner = [[max(0, a + b) for a, b in zip(row, b_1)] for row in product(x, W_1)]
    return [[a + b for a, b in zip(row, b_2)] for row in product(inner, W_2)]


def layer(x, others, w, h):
    """All sublayers: `others` says for each attention what is asked, and its mask."""
    for number, (which, y, mask) in enumerate(others, 1):
        z = layer_norm(x, w[f"norm_{number}.gain"], w[f"norm_{number}.bias"])
        W = [w[f"{which}.W_{name}"] for name in "qkvo"]
        rows = mask and (mask * len(x) if len(mask) == 1 else mask)
        x = plus(x, multi_head(z, z if y is None else y, rows, *W, h))
    last = len(others) + 1
    z = layer_norm(x, w[f"norm_{last}.gain"], w[f"norm_{last}.bias"])
    return plus(x, feed_forward(z, *(w[f"feed_forward.{n}"] for n in ("W_1", "b_1", "W_2", "b_2"))))


def encoder_layer(x, mask, w, h):
    return layer(x, [("self_attn", None, mask)], w, h)


def decoder_layer(x, memory, src_mask, tgt_mask, w, h):
    return layer(x, [("self_attn", None, tgt_mask), ("src_attn", memory, src_mask)], w, h)


def bottom(ids, table):
    return plus(embed(ids, table), positions(len(ids), len(table[0])))


def encoder(ids, mask, w, h):
    x = bottom(ids, w["table"])
    for weights in w["layers"]:
        x = encoder_layer(x, mask, weights, h)
    return layer_norm(x, w["gain"], w["bias"])


def decoder(ids, memory, src_mask, tgt_mask, w, h):
    x = bottom(ids, w["table"])
    for weights in w["layers"]:
        x = decoder_layer(x, memory, src_mask, tgt_mask, weights, h)
    return layer_norm(x, w["gain"], w["bias"])


def masks(src, tgt, pad):
    T = range(len(tgt))
    return [[i != pad for i in src]], [[j <= i and tgt[j] != pad for j in T] for i in T]


def logits(x, table):
    return [[sum(map(mul, row, vector)) for vector in table] for row in x]


def translate(src, w, h, bos, eos, longest):
    memory = encoder(src, None, w["encoder"], h)
    written = [bos]
    while len(written) <= longest and written[-1] != eos:
        T = range(len(written))
        x = decoder(written, memory, None, [[j <= i for j in T] for i in T], w["decoder"], h)
        (scores,) = logits(x[-1:], w["decoder"]["table"])
        written.append(scores.index(max(scores)))
    return written[1:]


def shift(ids):
    return ids[:-1], ids[1:]


def q(y, k, vocab, smoothing, pad):
    return 0 if k == pad else (k == y) * (1 - smoothing) + smoothing / (vocab - 1)


def loss(logits, target, smoothing, pad):
    total = 0
    for row, y in zip(logits, target):
        if y != pad:
            p = softmax(row)
            total -= sum(q(y, k, len(p), smoothing, pad) * log(p[k]) for k in range(len(p)))
    return total


def loss_gradient(logits, target, smoothing, pad):
    V = len(logits[0])
    return [
        [p - q(y, k, V, smoothing, pad) for k, p in enumerate(softmax(row))]
        if y != pad
        else [0] * V
        for row, y in zip(logits, target)
    ]


def rate(step, d_model, warmup):
    return d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)


def adam(w, g, m, v, step, lrate):
    m = [[0.9 * a + 0.1 * b for a, b in zip(*rows)] for rows in zip(m, g)]
    v = [[0.98 * a + 0.02 * b * b for a, b in zip(*rows)] for rows in zip(v, g)]

    def moved(w, m, v):
        return w - lrate * (m / (1 - 0.9**step)) / (sqrt(v / (1 - 0.98**step)) + 1e-9)

    return [[moved(*three) for three in zip(*rows)] for rows in zip(w, m, v)], m, v
