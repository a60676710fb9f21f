"""Attention Is All You Need (Vaswani et al., 2017) on one screen: the whole model, and how it
learns, here to read German numbers: `einundzwanzig` is 21. A number in brackets is a section of
the paper. Left out are dropout, beam search, padding, byte pairs, and its sizes and data."""
from collections import deque
from itertools import chain, cycle
from math import cos, exp, inf, log, sin, sqrt
from operator import add, mul
from sys import argv, stdout
from time import time

N, d_model, d_ff, h = 1, 16, 32, 2     # layers, widths, heads; the paper's base: 6, 512, 2048, 8
d_k, eps_ls = d_model // h, 0.1              # a head's width, and d_v (3.2.2); smoothing (5.4)
updates, pairs, warmup, factor = 1200, 8, 100, 0.5     # paper: 100000, 25000 tokens, 4000, 1
seed = int(argv[1]) if __name__ == "__main__" and argv[1:] else 1      # or python3 one_screen.py 2

def random():                                # Park and Miller's rule: the same in C, Go, Rust
    global seed
    seed = 48271 * seed % (2**31 - 1)
    return seed / (2**31 - 1)                # between 0 and 1

# === What it learns: to read a number =============================================================
ONES = ("null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn vierzehn "
        "fünfzehn sechzehn siebzehn achtzehn neunzehn").split()
TENS = "- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()

def german_number(n):
    if not 0 <= n < 1000: raise ValueError(f"it reads numbers from 0 to 999, not {n}")
    hundreds, rest = divmod(n, 100)
    if hundreds:
        return ONES[hundreds] + "hundert" + (german_number(rest) if rest else "")
    if n < 20:
        return "eins" if n == 1 else ONES[n]
    return (ONES[n % 10] + "und" if n % 10 else "") + TENS[n // 10]        # 21 is one-and-twenty

shuffled = sorted(range(100, 1000), key=lambda n: random())            # one draw for each, in order
held_out, known = shuffled[:180], [*range(100), *shuffled[180:]]       # a fifth is kept back
letters = "<>" + "".join(sorted({letter for n in known for letter in german_number(n) + str(n)}))
def ids(text):                               # letters as numbers; > ends a text, < begins a number
    for letter in set(text) - set(letters): raise ValueError(f"no number has the letter {letter!r}")
    return [letters.index(letter) for letter in text]

# === Matrices, and how the loss (how wrong it is) depends on each: the chain rule, backwards ======
def each(f, *matrices): return [[*map(f, *rows)] for rows in zip(*matrices)]   # entry by entry
def flip(A): return [*zip(*A)]                                                 # rows to columns
def total(A): return [[*map(sum, zip(*A))]]                                    # its rows added up
def mean(a): return sum(a) / len(a)
try:
    from math import sumprod as dot          # since Python 3.12: faster, and it rounds less
except ImportError:
    def dot(a, b): return sum(map(mul, a, b))
def dots(A, B): return [[dot(a, b) for b in B] for a in A]   # each row of A with each row of B

tape = []                                    # what was computed, in order
def differentiable(function):
    """The function returns its value C and how to go back: from dC, the loss's derivative by each
    entry of C, to those by the entries of its inputs. What is needed for that goes on the tape."""
    def operation(*inputs):
        value, back = function(*inputs)
        tape.append((C := Matrix(value), inputs, back))
        return C
    return operation

def row_by_row(function):                    # the same for a function of a single row
    def of_all(A):
        rows, backs = zip(*map(function, A))
        return rows, lambda dC: [[back(dc) for back, dc in zip(backs, dC)]]
    return differentiable(of_all)

def backward(loss):                          # undo the last operation first
    loss.gradient = [[1.0]]
    while tape:
        C, inputs, back = tape.pop()
        for x, dx in zip(inputs, back(C.gradient) if C.gradient else ()):
            if isinstance(x, Matrix):        # else it is a constant, such as a mask
                x.gradient = each(add, x.gradient, dx) if x.gradient else dx   # x is used twice

@differentiable
def matmul(A, B):                            # C = AB, so dA = dC B^T and dB = A^T dC
    return dots(A, flip(B)), lambda dC: (dots(dC, B), dots(flip(A), flip(dC)))
@differentiable
def transpose(A): return flip(A), lambda dC: [flip(dC)]
@differentiable
def plus(A, B):                              # B has as many rows as A, or one row for all of A's
    return each(add, A, cycle(B)), lambda dC: (dC, dC if len(B) == len(A) else total(dC))
@differentiable
def times(A, B):                             # B is a number, or one row for all of A's
    B = B if isinstance(B, Matrix) else [[B] * len(A[0])]
    return each(mul, A, cycle(B)), lambda dC: (each(mul, dC, cycle(B)), total(each(mul, dC, A)))

class Matrix(list):                          # a list of rows, for formulas as in the paper
    gradient = None
    __add__, __mul__, __matmul__, T = plus, times, matmul, property(transpose)
    def __truediv__(self, number): return self * (1 / number)

parameters = []                              # what is learned
def parameter(rows, columns, start=None):    # random at the start (Glorot and Bengio, 2010)
    limit = sqrt(6 / (rows + columns))
    W = Matrix([[limit * (2 * random() - 1) if start is None else start for _ in range(columns)]
                for _ in range(rows)])
    W.m = W.v = each(lambda w: 0.0, W)       # means of the gradient and of its square: see update
    parameters.append(W)
    return W

# === The model (3, Figure 1) ======================================================================
embeddings = parameter(len(letters), d_model)   # a row for each letter: read, written, scored (3.4)
positions = [[wave(pos / 10000 ** (2 * i / d_model)) for i in range(d_model // 2)
              for wave in (sin, cos)] for pos in range(40)]    # which tell the order (3.5)
@differentiable
def lookup(table, rows):                     # as one_hot @ table, in which each 1 picks a row
    one_hot = [[float(i == j) for j in range(len(table))] for i in rows]
    return [table[i] for i in rows], lambda dC: [dots(flip(one_hot), flip(dC))]
def embed(text):                             # of at most 40 letters
    if len(text) > 40: raise ValueError(f"a text has at most 40 letters, but this has {len(text)}")
    return lookup(embeddings, text) * sqrt(d_model) + positions[:len(text)]

@row_by_row
def softmax(scores):                         # none is negative, and together they are 1
    highest = max(scores)                    # so that exp does not overflow
    powers = [exp(score - highest) for score in scores]
    whole = sum(powers)
    p = [power / whole for power in powers]
    def back(dp):                            # dp_j / dscore_i = p_j ((i == j) - p_i)
        average = dot(p, dp)
        return [p_i * (g - average) for p_i, g in zip(p, dp)]
    return p, back

maps = deque(maxlen=h)                       # where the last h heads looked, to be drawn at the end
def attention(Q, K, V, mask=None):           # (3.2.1) Equation (1)
    scores = Q @ K.T / sqrt(d_k)             # how well each query (a row of Q) fits each key
    maps.append(weights := softmax(scores + mask if mask else scores))
    return weights @ V                       # for each query, a weighted mean of the values

@differentiable
def concat(*heads):                          # side by side
    C = [[*chain(*rows)] for rows in zip(*heads)]
    return C, lambda dC: [[row[i:i + d_k] for row in dC] for i in range(0, d_model, d_k)]

def MultiHeadAttention():                    # (3.2.2) x asks, with queries; y has keys and values
    heads = [[parameter(d_model, d_k) for _ in "QKV"] for _ in range(h)]
    W_O = parameter(d_model, d_model)
    return lambda x, y, mask=None: concat(
        *[attention(x @ W_Q, y @ W_K, y @ W_V, mask) for W_Q, W_K, W_V in heads]) @ W_O

@row_by_row
def normalise(x):                            # to mean 0 and variance 1
    centre = mean(x)
    spread = sqrt(mean([(a - centre) ** 2 for a in x]) + 1e-5)         # never 0
    z = [(a - centre) / spread for a in x]
    def back(dz):                            # each x_i moves the centre and the spread, too
        shift, stretch = mean(dz), dot(z, dz) / len(z)
        return [(g - shift - stretch * a) / spread for a, g in zip(z, dz)]
    return z, back

def AddNorm(sublayer):                       # (3.1) LayerNorm(x + sublayer(x))
    gain, bias = parameter(1, d_model, 1.0), parameter(1, d_model, 0.0)
    return lambda x, *others: normalise(x + sublayer(x, *others)) * gain + bias

@row_by_row
def relu(x): return [max(0.0, a) for a in x], lambda dy: [g * (a > 0) for a, g in zip(x, dy)]

def FeedForward():                           # (3.3) Equation (2)
    W_1, b_1 = parameter(d_model, d_ff), parameter(1, d_ff, 0.0)
    W_2, b_2 = parameter(d_ff, d_model), parameter(1, d_model, 0.0)
    return lambda x: relu(x @ W_1 + b_1) @ W_2 + b_2

encoder = [[AddNorm(MultiHeadAttention()), AddNorm(FeedForward())] for _ in range(N)]    # (3.1)
decoder = [[AddNorm(MultiHeadAttention()), AddNorm(MultiHeadAttention()), AddNorm(FeedForward())]
           for _ in range(N)]

def encode(src):
    x = embed(src)
    for self_attention, feed_forward in encoder:
        x = feed_forward(self_attention(x, x))
    return x

def decode(memory, tgt):                     # memory is what the encoder returned
    x, steps = embed(tgt), range(len(tgt))
    mask = [[0.0 if j <= i else -inf for j in steps] for i in steps]  # hides what is later (3.2.3)
    for self_attention, cross_attention, feed_forward in decoder:
        x = feed_forward(cross_attention(self_attention(x, x, mask), memory))
    return x @ embeddings.T                  # at each position, a score for each letter (3.4)

def greedy_decode(word):                     # the highest score's letter, until > or five letters
    memory, number = encode(ids(word + ">")), "<"
    while number[-1] != ">" and len(number) < 6:
        scores = decode(memory, ids(number))[-1]
        number += letters[scores.index(max(scores))]
    tape.clear()                             # nothing is learned from this
    return number[1:].rstrip(">")

def right():                                 # how many of the numbers that it has never seen
    return sum(greedy_decode(german_number(n)) == str(n) for n in held_out)

# === How it learns (5) ============================================================================
@differentiable
def smoothed_loss(P, targets):               # cross-entropy with label smoothing (5.4)
    u = eps_ls / len(letters)                # a little for each letter, the rest for the right one
    wanted = [[u + (1 - eps_ls) * (i == y) for i in range(len(letters))] for y in targets]
    L = -sum(q * log(p) for rows in zip(P, wanted) for p, q in zip(*rows))     # least if P = wanted
    return [[L]], lambda dL: [each(lambda p, q: -q / p * dL[0][0], P, wanted)]

def loss(numbers):                           # per predicted letter; it reads <21 and predicts 21>
    texts = [(ids(german_number(n) + ">"), ids(f"<{n}>")) for n in numbers]
    losses = [smoothed_loss(softmax(decode(encode(src), tgt[:-1])), tgt[1:]) for src, tgt in texts]
    return sum(losses, Matrix([[0.0]])) / sum(len(tgt) - 1 for _, tgt in texts)

def rate(step):                              # (5.3) Equation (3), times a factor: up, then down
    return factor * d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
def update(step, beta1=0.9, beta2=0.98, eps=1e-9):         # with Adam (5.3)
    value = loss([known[int(len(known) * random())] for _ in range(pairs)])
    backward(value)
    lr, c1, c2 = rate(step), 1 - beta1 ** step, 1 - beta2 ** step     # because m and v begin at 0
    for W in parameters:
        W.m = each(lambda m, g: beta1 * m + (1 - beta1) * g, W.m, W.gradient)
        W.v = each(lambda v, g: beta2 * v + (1 - beta2) * g * g, W.v, W.gradient)
        W[:] = each(lambda w, m, v: w - lr * (m / c1) / (sqrt(v / c2) + eps), W, W.m, W.v)
        W.gradient = None
    return value[0][0]

def gradient_errors(by=1e-5):                # each gradient against the slope between two losses
    backward(loss(known[:2]))
    for W in parameters:
        start, G, slope = [*W], W.gradient, 0.0
        signs = each(lambda g: 1 if g >= 0 else -1, G)     # all entries move, those with 0 as well
        for move in by, -by:
            W[:] = each(lambda w, sign: w + move * sign, start, signs)
            slope += loss(known[:2])[0][0] / (2 * move)    # (loss ahead - loss behind) / distance
        W[:], W.gradient = start, None
        yield abs(slope / sum(map(dot, G, signs)) - 1)

if __name__ == "__main__":
    getattr(stdout, "reconfigure", dict)(errors="replace")   # an old terminal may lack letters
    print(sum(len(W) * len(W[0]) for W in parameters), "parameters; their gradients are wrong by",
          f"{max(gradient_errors()):.0e} at most", flush=True)
    begin, checkpoints = time(), []
    for step in range(1, updates + 1):
        value = update(step)
        if step % 50 == 0 or step == updates:
            word = german_number(held_out[step // 50 % len(held_out)])
            print(f"update {step:4}, {(time() - begin) * (updates / step - 1):3.0f} s left: loss",
                  f"{value:.2f}, rate {rate(step):.4f}, {word} ->", greedy_decode(word), flush=True)
            checkpoints.append([[*W] for W in parameters])
    print("Right of", len(held_out), "numbers that it has never seen:", right(), end="; ")
    for W, *last in zip(parameters, *checkpoints[-5:]):    # W, and what it was five times (6.1)
        W[:] = each(lambda *ws: mean(ws), *last)
    print("with the mean of the last five checkpoints:", right())
    signs = " .:+#" if "█".encode(stdout.encoding or "utf-8", "replace") == b"?" else " ░▒▓█"
    print("Where it looks for each digit (cross-attention, mean of the heads):\n   ", *word, ">")
    for digit, row in zip(greedy_decode(word) + ">", each(lambda *ws: mean(ws), *maps)):
        print(" ", digit, *(signs[round(4 * weight)] for weight in row))
