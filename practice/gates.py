"""The gates of the judge, in the order of the road: what a reader's function is asked.

A gate is a generator: for each case it yields the arguments, with the trained model's numbers, and
a function that computes the right answer by calling the document. It computes when it is called, so
that a mistake in force counts; by then the loop is over, so its default arguments hold the values
of its case. The docstring of a gate is the docstring of the stub.

Each gate is asked about two models: the shipped one, and a small random one of other sizes, to
which nothing fits that was written for the first: its width, its heads, its layers, its ids.
"""

import functools
import itertools
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import the_annotated_transformer as tat
from practice import mistakes
from the_annotated_transformer import BOS, EOS, PAD

SEED = 5  # of the small model: with it, some translations end early and some don't
# ids of a source, and how many may be written: the first ends just then, the second never
SMALL_CASES = [
    (1, 25), (2, 70), (3, 12), (4, 12), (5, 40), (6, 21), (7, 12), (8, 12), (6, 1),
]  # fmt: skip
SECONDS = 30  # for a call; a translation, word by word, may take four times as long
HEADER = '''"""My Transformer, in the order of the paper.

There is no batch: a sentence is a matrix with one row for each token. Matrices multiply from the
right, as in the paper: x @ W. A mask is True where a query (row) may attend to a key (column).
Give back whatever numpy.asarray reads. `take` turns the NumPy arrays that come into what you
compute with: `torch.from_numpy(array)`, `array.tolist()`, ...; with PyTorch, it can learn, too.

The shipped weights have pre-norm, x + sublayer(norm(x)), and a last norm on top of each stack.
`w` of a layer is a dict: w["self_attn.W_q"], and .W_k, .W_v, .W_o, each (d_model, d_model), in the
decoder "src_attn.W_q", ... as well; "feed_forward.W_1", .b_1, .W_2, .b_2; "norm_1.gain",
"norm_1.bias", "norm_2.gain", ... in the order of the sublayers. `w` of a stack: w["table"] (vocab,
d_model), w["layers"], a list of the above, w["gain"] and w["bias"] of its last norm.
"""


def take(array):
    return array
'''

TUTOR = """# {name} is an exercise, and whoever writes it wants to learn

Its functions are to be written by the student: a Transformer, from the docstrings of {name}, judged
gate by gate. You are the tutor.

1. Run the judge first: `annotated-transformer judge {name}` (in the project's folder: `python
   the_annotated_transformer.py judge {name}`); `--gate N` tries one gate. Begin with the first gate
   that isn't right, and with what the judge says of it.
2. Before you explain, ask for a prediction: which shape, which number, what would change?
3. Give one hint at a time, the smallest that helps: first a question, then the section of the paper
   that the docstring names, then a case small enough to compute by hand.
4. Let the student type. Don't write or complete a function, don't edit {name}, and don't show a
   solution, not even in another language; a line of yours may show how PyTorch or NumPy works, on
   numbers that have nothing to do with the gate.
5. When a gate is right, ask why it is, in a sentence. Then the next one.
6. When all are right: `judge {name} --learn`. Let the student guess how many of 180 numbers it will
   read.
"""

Case = tuple[tuple, Callable[[], Any]]  # arguments, and what computes the right answer
Cases = Iterator[Case]


class World(NamedTuple):
    """What the gates ask about: a model in double precision, a sentence, and its translation."""

    model: tat.Transformer
    tokenizer: tat.Tokenizer
    src: Tensor  # (1, S)
    tgt: Tensor  # (1, T), begins with <s>

    def ids(self, sentence: str) -> Tensor:
        """A German sentence as ids (1, S)."""
        return source_ids(self.tokenizer, sentence)


def source_ids(tokenizer: tat.Tokenizer, sentence: str) -> Tensor:
    """A German sentence as ids (1, S)."""
    return torch.tensor([[*tokenizer.encode(sentence, "de"), EOS]])


@functools.cache
def world() -> World:
    """The shipped model, read once, with one of our sentences."""
    # in double precision, so that a reader's float32 is the only rounding
    model, tokenizer, _ = tat.load_translator(tat.beside(tat.SHIPPED_MODEL))
    model.to("cpu").double().requires_grad_(False)
    src = source_ids(tokenizer, tat.OUR_SENTENCES[1])
    tgt = tat.greedy_decode(model, src, tat.source_mask(src), 60)[:, :-1]  # without its end
    return World(model, tokenizer, src, tgt)


@functools.cache
def small_world() -> World:
    """A model with random numbers, of two layers, three heads, width 12 and 11 tokens."""
    # Its table is small beside its matrices, and </s> scores high: otherwise it would repeat what
    # it has read, and never end.
    draw = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        model = tat.make_model(11, 11, 2, 12, 20, 3, dropout=0.0, norm="pre", tie="all").double()
    # matrices are drawn, gains are near one and biases near zero
    for p in model.requires_grad_(False).parameters():
        noise = torch.randn(p.shape, generator=draw).double()
        p.copy_(noise if p.dim() == 2 else noise / 10 + p.eq(1) * (1 + noise / 3))
    table = model.src_embed.embeddings.table.weight
    table *= 0.08
    table[[PAD, BOS]] /= 9  # so that it writes neither
    table[EOS] *= 1.3
    src = torch.randint(3, 11, (1, 7), generator=draw)
    tgt = torch.randint(3, 11, (1, 6), generator=draw)
    tgt[0, 0] = BOS
    return World(model, world().tokenizer, src, tgt)


@dataclass(frozen=True)
class Gate:
    """A function of the reader's file and what it is asked; `axes` name its answer's dimensions."""

    stub: str
    axes: tuple[str, ...]
    cases: Callable[[World], Cases]
    seconds: int = SECONDS
    parts: int = 0  # how many results it gives, if there are several
    tries: frozenset[str] = frozenset()  # only mistakes that replace one of these; empty: all

    @property
    def function(self) -> str:
        """Its name in the reader's file."""
        return self.stub.partition("(")[0]

    @property
    def title(self) -> str:
        """What it is about."""
        return self.cases.__name__.replace("_", " ")


GATES: list[Gate] = []  # in the order in which they are defined below, which is their number


def gate(stub: str, *axes: str, **fields: Any) -> Callable:
    """Make a gate of the function below, which yields its cases, and put it behind the others.

    stub: the function that the reader writes; axes and fields: those of `Gate`.
    """

    def append_gate(cases: Callable[[World], Cases]) -> Callable[[World], Cases]:
        GATES.append(Gate(stub, axes, cases, **fields))
        return cases

    return append_gate


def as_arrays(value: Any) -> Any:
    """Arguments or answers with NumPy arrays for tensors."""
    if isinstance(value, Tensor):
        return value.detach().numpy().copy()
    if isinstance(value, dict):
        return {name: as_arrays(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(as_arrays(item) for item in value)
    return value


# --- numbers of the model, which several gates ask about ---


def one_head(w: World) -> list[Tensor]:
    """Queries, keys and values (S, d_k) of the second head of the first layer."""
    # the second head: the first would also fit who never goes on from it
    layer = w.model.encoder.layers[0]
    attn = layer.self_attn
    x = layer.sublayer[0].norm(w.model.src_embed(w.src))
    d_k = x.size(-1) // attn.h
    return [W(x)[0, :, d_k : 2 * d_k] for W in (attn.W_q, attn.W_k, attn.W_v)]


def sources(w: World) -> list[Tensor]:
    """Ids (1, S) of the sentence, of the same with padding, and of a single token."""
    # The padding is also in the middle: who counts it instead of looking where it is, is seen.
    padded = F.pad(w.src, (0, 3), value=PAD)
    padded[0, 3] = PAD
    return [w.src, padded, w.src[:, -1:]]


def visible(ids: Tensor) -> Tensor:
    """The right mask of a source, whatever mistake is in force: (1, 1, S)."""
    return (ids != PAD).unsqueeze(1)


def past(size: int) -> Tensor:
    """The right mask of a target, likewise: (1, size, size)."""
    return torch.ones(1, size, size, dtype=torch.bool).tril()


def targets(w: World) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Ids of a target (1, T), the memory that it is to look at, and both masks."""
    # A whole target, one of five tokens, whose mask hides more than the future, and a single one.
    for src, T in zip(sources(w), (w.tgt.size(1), 5, 1), strict=True):
        tgt_mask = past(T)
        if T == 5:
            tgt_mask[:, 2:, 1] = False
        yield w.tgt[:, :T], w.model.encode(src, visible(src)), visible(src), tgt_mask


def named(layer: nn.Module) -> dict[str, Tensor]:
    """The weights of a layer under the names of the header."""
    weights = {}
    for name, p in layer.named_parameters():
        module, submodule, *_, kind = name.split(".")  # such as self_attn.W_q.weight
        if module == "sublayer":  # sublayer.0.norm.weight
            name = f"norm_{int(submodule) + 1}.{'gain' if kind == 'weight' else kind}"
        elif kind == "bias":
            name = f"{module}.{submodule.replace('W', 'b')}"
        else:
            name = f"{module}.{submodule}"
        weights[name] = p.T if p.dim() == 2 else p  # the reader's matrices multiply from the right
    return weights


def stack(w: World, side: str) -> dict[str, Any]:
    """The weights of the encoder or the decoder under the names of the header."""
    module = getattr(w.model, side)
    return {
        "layers": [named(layer) for layer in module.layers],
        "table": w.model.src_embed.embeddings.table.weight,
        "gain": module.norm.weight,
        "bias": module.norm.bias,
    }


def scored(w: World) -> Iterator[tuple[Tensor, Tensor, int]]:
    """Logits (T, vocab), the tokens to predict (T), and which is padding; then few of both."""
    tgt, memory, src_mask, tgt_mask = next(targets(w))
    y = torch.cat((tgt[0, 1:-2], torch.tensor([EOS, PAD, PAD])))
    scores = w.model.generator.logits(w.model.decode(memory, src_mask, tgt, tgt_mask))[0]
    yield scores, y, PAD
    few_scores = scores[:3, :9]
    few_tokens = torch.tensor([5, 7, PAD])
    yield few_scores, few_tokens, PAD  # in so small a vocabulary, each share counts
    yield few_scores, few_tokens, 7


# --- the sentence through the model ---


@gate("embed(ids, table)", "position", "dimension")
def embedding(w: World) -> Cases:
    """Section 3.4. ids (S), table (vocab, d_model); gives (S, d_model)."""
    embeddings = w.model.src_embed.embeddings
    for ids in (w.src[0], w.src[0, :1]):
        yield (ids, embeddings.table.weight), lambda ids=ids: embeddings(ids)


@gate("positions(length, d_model)", "position", "dimension")
def positions(w: World) -> Cases:
    """Section 3.5, the sinusoids. Gives (length, d_model)."""
    for size in ((15, 128), (1, 8), (100, 6), (600, 4)):
        yield size, lambda size=size: tat.positional_encoding(*size)


@gate("attention(Q, K, V, mask)", "query", "dimension")
def attention(w: World) -> Cases:
    """Section 3.2.1, Equation (1). Q (T, d_k), K (S, d_k), V (S, d_v); gives (T, d_v).
    mask is None."""
    # fewer queries than keys, narrower values, a single position: a wrong axis shows in one of them
    Q, K, V = one_head(w)
    sentence = (Q, K, V)
    few_queries = Q[:3], K, V
    narrow_values = Q[:6], K[:4], V[:4, :3]
    single = Q[:1], K[:1], V[:1]
    for arrays in (sentence, few_queries, narrow_values, single):
        yield (*arrays, None), lambda arrays=arrays: tat.attention(*arrays)[0]


@gate("attention(Q, K, V, mask)", "query", "dimension")
def attention_with_a_mask(w: World) -> Cases:
    """Section 3.2.3. The same function; mask is (T, S)."""
    Q, K, V = one_head(w)
    T = w.src.size(1)
    causal = past(T)[0]
    padded = (torch.arange(T) < T - 3).expand(T, T)
    itself = torch.eye(T, dtype=torch.bool)
    cases = [(Q, K, V, mask) for mask in (causal, padded, itself, causal & padded)]
    scores = Q[:5] @ K.T
    # large scores, of which the lower half may be seen: a hidden one must be far below them
    larger = Q[:5] / scores.abs().max() * 300 * Q.size(1) ** 0.5
    cases.append((larger, K, V, scores <= scores.median(1, keepdim=True).values))
    for arguments in cases:
        yield arguments, lambda arguments=arguments: tat.attention(*arguments)[0]


@gate("multi_head(x, y, mask, W_q, W_k, W_v, W_o, h)", "position", "dimension")
def heads(w: World) -> Cases:
    """Section 3.2.2. x (T, d_model) asks, y (S, d_model) is asked; gives (T, d_model)."""
    # self-attention and cross-attention, whose two sides differ in length
    layer = w.model.decoder.layers[0]
    for tgt, memory, src_mask, tgt_mask in targets(w):
        x = w.model.tgt_embed(tgt)
        for attn, y, mask in ((layer.self_attn, x, tgt_mask), (layer.src_attn, memory, src_mask)):
            W = [getattr(attn, name).weight.T for name in ("W_q", "W_k", "W_v", "W_o")]
            mask = mask.expand(1, x.size(1), y.size(1))  # a row for each query, as the stub says

            def right(attn: nn.Module = attn, inputs: tuple = (x, y, y, mask)) -> Tensor:
                return attn(*inputs)[0]

            yield (x[0], y[0], mask[0], *W, attn.h), right


@gate("layer_norm(x, gain, bias)", "position", "dimension")
def norm(w: World) -> Cases:
    """Section 3.1, after Ba et al. (2016), with epsilon 1e-5.
    x (T, d_model); gives (T, d_model)."""
    layer = w.model.encoder.layers[0].sublayer[0].norm
    x = w.model.src_embed(w.src)[0]
    for rows in (x, 1 + x[:2] / 300):  # nearly constant rows show where epsilon is
        yield (rows, layer.weight, layer.bias), lambda x=rows: layer(x.unsqueeze(0))[0]


@gate("feed_forward(x, W_1, b_1, W_2, b_2)", "position", "dimension")
def network(w: World) -> Cases:
    """Section 3.3, Equation (2). x (T, d_model); gives (T, d_model)."""
    layer = w.model.encoder.layers[0]
    x = layer.sublayer[1].norm(w.model.src_embed(w.src))
    ffn = layer.feed_forward
    yield (x[0], ffn.W_1.weight.T, ffn.W_1.bias, ffn.W_2.weight.T, ffn.W_2.bias), lambda: ffn(x)[0]


@gate("encoder_layer(x, mask, w, h)", "position", "dimension")
def encoder_layer(w: World) -> Cases:
    """Section 3.1. x (S, d_model), mask (1, S); gives (S, d_model)."""
    layer = w.model.encoder.layers[0]
    for ids in sources(w):
        x, mask = w.model.src_embed(ids), visible(ids)
        yield (x[0], mask[0], named(layer), layer.self_attn.h), lambda x=x, m=mask: layer(x, m)[0]


@gate("encoder(ids, mask, w, h)", "position", "dimension")
def encoder(w: World) -> Cases:
    """Section 3.1 and Figure 1, left: from ids (S) to the memory (S, d_model)."""
    h = w.model.encoder.layers[0].self_attn.h
    for ids in sources(w):
        arguments = ids[0], visible(ids)[0], stack(w, "encoder"), h
        yield arguments, lambda ids=ids: w.model.encode(ids, visible(ids))[0]


@gate("masks(src, tgt, pad)", "query", "key", parts=2)
def masks(w: World) -> Cases:
    """Section 3.2.3. src (S), tgt (T) as the decoder reads it, pad (an id);
    gives (1, S) and (T, T)."""
    another = F.pad(w.src, (0, 2), value=7)  # which may be the padding as well; 0 is a token then
    another[0, 2] = PAD
    for src, T, pad in zip((*sources(w), another), (4, 9, 1, 4), (PAD, PAD, PAD, 7), strict=True):
        tgt = F.pad(w.tgt[:, :T], (0, min(T - 1, 2)), value=pad)
        tgt[:, 5:6] = pad

        def right(src: Tensor = src, tgt: Tensor = tgt, pad: int = pad) -> tuple[Tensor, Tensor]:
            return tat.source_mask(src, pad)[0], tat.target_mask(tgt, pad)[0]

        yield (src[0], tgt[0], pad), right


@gate("decoder_layer(x, memory, src_mask, tgt_mask, w, h)", "position", "dimension")
def decoder_layer(w: World) -> Cases:
    """Section 3.1. x (T, d_model), memory (S, d_model), masks as above; gives (T, d_model)."""
    layer = w.model.decoder.layers[0]
    for tgt, memory, src_mask, tgt_mask in targets(w):
        x = w.model.tgt_embed(tgt)
        inputs = (x, memory, src_mask, tgt_mask)
        arguments = *(array[0] for array in inputs), named(layer), layer.self_attn.h
        yield arguments, lambda inputs=inputs: layer(*inputs)[0]


@gate("decoder(ids, memory, src_mask, tgt_mask, w, h)", "position", "dimension")
def decoder(w: World) -> Cases:
    """Section 3.1 and Figure 1, right, up to the last norm. ids (T); gives (T, d_model)."""
    h = w.model.decoder.layers[0].self_attn.h
    for tgt, memory, src_mask, tgt_mask in targets(w):
        arguments = tgt[0], memory[0], src_mask[0], tgt_mask[0], stack(w, "decoder"), h
        inputs = (memory, src_mask, tgt, tgt_mask)
        yield arguments, lambda inputs=inputs: w.model.decode(*inputs)[0]


@gate("logits(x, table)", "position", "token")
def logits(w: World) -> Cases:
    """Section 3.4. x (T, d_model), table (vocab, d_model); gives (T, vocab), before the softmax."""
    tgt, memory, src_mask, tgt_mask = next(targets(w))
    x = w.model.decode(memory, src_mask, tgt, tgt_mask)
    yield (x[0], w.model.src_embed.embeddings.table.weight), lambda: w.model.generator.logits(x)[0]


def small_translations() -> Cases:
    """Greedy decoding by the small model, under other numbers for the same tokens."""
    # Its translations say nothing, but they change with whatever changes a score: each of the ways
    # to decode otherwise that we know changes some of them. One isn't over before a limit, one just
    # then, and one of a single token is far longer than its source.
    w = small_world()
    draw = torch.Generator().manual_seed(SEED)
    number = torch.tensor([0, 4, 7, 10, 1, 9, 2, 6, 8, 3, 5])  # of each token, in the question
    table = w.model.src_embed.embeddings.table.weight[number.argsort()]
    stacks = {side: stack(w, side) | {"table": table} for side in ("encoder", "decoder")}
    h = w.model.encoder.layers[0].self_attn.h
    for size, longest in SMALL_CASES:
        src = [*torch.randint(3, 11, (size - 1,), generator=draw).tolist(), EOS]

        def right(src: list[int] = src, longest: int = longest) -> Tensor:
            return number[mistakes.translate(w.model, [tat.Pair(src, [])], longest)[0]]

        yield (number[src], stacks, h, int(number[BOS]), int(number[EOS]), longest), right


# What the other functions may do wrong was seen at their gates, and decoding takes long.
@gate(
    "translate(src, w, h, bos, eos, longest)", "step", seconds=4 * SECONDS,
    tries=frozenset({"translate", "subsequent_mask"}),
)  # fmt: skip
def greedy_decoding(w: World) -> Cases:
    """Sections 3 and 3.1: from ids (S) to the most probable next id, again and again, until eos or
    `longest` ids; gives the ids that were written, eos included and bos not. w["encoder"] and
    w["decoder"] are the two stacks."""
    if w is small_world():
        yield from small_translations()
        return
    stacks = {side: stack(w, side) for side in ("encoder", "decoder")}
    h = w.model.encoder.layers[0].self_attn.h
    pairs = [tat.Pair(w.src[0].tolist(), [])]
    for longest in (3, 20):
        arguments = w.src[0], stacks, h, BOS, EOS, longest
        yield arguments, lambda n=longest: torch.tensor(mistakes.translate(w.model, pairs, n)[0])


# --- how it learns ---


@gate("shift(ids)", "position", parts=2)
def shift(w: World) -> Cases:
    """Sections 3.1 and 5.1. ids of a target from bos to eos; gives what the decoder reads, and what
    it must predict at each position."""
    # a whole one, one that ends early, and one of another vocabulary, where 1 and 2 are words
    translation = torch.cat((w.tgt[0], torch.tensor([EOS])))
    for ids in (translation, w.tgt[0, :2], torch.tensor([4, 1, 7, 7, 2, 9])):

        def right(ids: Tensor = ids) -> tuple[Tensor, Tensor]:
            batch = tat.make_batch([tat.Pair([EOS], ids.tolist())])
            return batch.tgt[0], batch.tgt_y[0]

        yield (ids,), right


@gate("loss(logits, target, smoothing, pad)")
def loss(w: World) -> Cases:
    """Section 5.4: cross-entropy, summed over the targets that aren't padding. logits (T, vocab),
    target (T). All tokens but padding share `smoothing` evenly, the right one included."""
    for z, y, pad in scored(w):
        for eps in (0.1, 0.0, 0.3):
            inputs = (z, y, eps, pad)
            yield inputs, lambda inputs=inputs: tat.smoothed_loss(*inputs)


@gate("loss_gradient(logits, target, smoothing, pad)", "position", "token")
def gradient_of_the_loss(w: World) -> Cases:
    """The derivative of this loss with respect to the logits; gives (T, vocab)."""
    for (scores, y, pad), eps in itertools.product(scored(w), (0.1, 0.0, 0.3)):

        def right(scores: Tensor = scores, arguments: tuple = (y, eps, pad)) -> Tensor:
            z = scores.clone().requires_grad_()
            return torch.autograd.grad(tat.smoothed_loss(z, *arguments), z)[0]

        yield (scores, y, eps, pad), right


@gate("rate(step, d_model, warmup)")
def schedule(w: World) -> Cases:
    """Section 5.3, Equation (3). step counts from 1; gives a number."""
    steps_of_the_paper = [(step, 512, 4000) for step in (1, 400, 4000, 100_000)]
    # other sizes than the paper's, for who has written those into it
    for step, width, warmup in [*steps_of_the_paper, (30, 128, 100), (500, 64, 100)]:

        def right(step: int = step, width: int = width, warmup: int = warmup) -> float:
            return tat.rate(step, width, 1.0, warmup)

        yield (step, width, warmup), right


@gate("adam(w, g, m, v, step, lrate)", "row", "column", parts=3)
def update_of_Adam(w: World) -> Cases:
    """Section 5.3; Kingma and Ba (2015), Algorithm 1, with beta_1 = 0.9, beta_2 = 0.98 and
    epsilon = 1e-9. Weights, gradient and both averages before this step, all of one shape; step
    counts from 1. Gives the new w, m and v."""
    first, second = (layer.self_attn.W_q.weight[:4] for layer in w.model.encoder.layers[:2])
    # the last gradients are so small that epsilon counts, and the weights large beside the step
    for step, g, lrate in ((1, second / 1000, 0.01), (7, second / 1000, 0.02),
                           (3000, second / 1e8, 0.3), (2, second / 1e8, 0.3)):  # fmt: skip
        m, v = (0 * g, 0 * g) if step == 1 else (g.flip(0), g.flip(1) ** 2)

        def right(
            step: int = step, g: Tensor = g, m: Tensor = m, v: Tensor = v, lrate: float = lrate
        ) -> tuple[Tensor, ...]:
            p = nn.Parameter(first.clone())
            optimizer = torch.optim.Adam([p], lr=lrate, betas=(0.9, 0.98), eps=1e-9)
            state = {"exp_avg": m.clone(), "exp_avg_sq": v.clone()}
            state["step"] = torch.tensor(step - 1.0)
            optimizer.state[p] = state
            p.grad = g.clone()
            optimizer.step()
            return p.detach(), state["exp_avg"], state["exp_avg_sq"]

        yield (first, g, m, v, step, lrate), right


# --- the empty file ---


def stubs() -> str:
    """An empty file for the reader: a function for each gate, or for two of them."""
    # attention has two gates and one stub, whose docstring names both
    texts = [HEADER]
    for stub in dict.fromkeys(gate.stub for gate in GATES):
        gates = [(number, gate) for number, gate in enumerate(GATES, 1) if gate.stub == stub]
        docstrings = []
        for number, gate in gates:
            docstring = " ".join(str(gate.cases.__doc__).split())
            docstrings.append(f"Gate {number}: {docstring}" if docstrings else docstring)
        docstring = "\n    ".join(textwrap.wrap(" ".join(docstrings), 88))
        titles = "; gate ".join(f"{number}: {gate.title}" for number, gate in gates)
        body = f'    """{docstring}"""\n    raise NotImplementedError\n'
        texts.append(f"# Gate {titles}\ndef {stub}:\n{body}")
    return "\n".join(texts)
