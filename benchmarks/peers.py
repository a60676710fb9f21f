"""Training beside other implementations of the Transformer.

Each peer is a module whose `forward(batch)` gives the label-smoothed loss summed over the target
tokens. All drop out at the same places, those of Section 5.4: on embeddings and on the sublayers'
outputs.
"""

import functools
import itertools
import math
import statistics
import sys
import timeit
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from cyclopts.types import NonNegativeFloat
from torch import Tensor, nn

import the_annotated_transformer as tat
from benchmarks import shared
from benchmarks.shared import RESULTS, Changes, Data, Preset, Rounds, Rows, epoch, portable
from the_annotated_transformer import BOS, EOS, PAD, Batch, Pair, make_batch
from translator.corpus import encode_pairs
from translator.settings import Settings, build_model
from translator.sources import Corpus
from translator.trainer import ParallelTrainer

LONGEST = 512  # the peers' number of positions


def smoothed_cross_entropy(logits: Tensor, batch: Batch, eps: float) -> Tensor:
    """PyTorch's smoothed loss, summed over all positions except padding."""
    logits, target = logits.flatten(0, 1), batch.tgt_y.flatten()
    return F.cross_entropy(logits, target, ignore_index=PAD, label_smoothing=eps, reduction="sum")


class TorchTransformer(nn.Module):
    """PyTorch's nn.Transformer plus what it lacks: embeddings, positions, an output layer."""

    def __init__(self, settings: Settings, vocab: int):
        super().__init__()
        self.eps = settings.smoothing
        self.scale = math.sqrt(settings.d_model)
        self.table = nn.Embedding(vocab, settings.d_model)
        nn.init.normal_(self.table.weight, std=settings.d_model**-0.5)
        self.register_buffer("positions", tat.positional_encoding(LONGEST, settings.d_model))
        self.dropout = nn.Dropout(settings.dropout)
        sizes = settings.d_model, settings.h, settings.N, settings.N, settings.d_ff
        self.core = nn.Transformer(*sizes, settings.dropout, batch_first=True, norm_first=True)
        for module in self.core.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0  # on the weights
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0  # inside the feed-forward network

    def embed(self, ids: Tensor) -> Tensor:
        """Ids (B, T) to vectors (B, T, d_model)."""
        return self.dropout(self.table(ids) * self.scale + self.positions[: ids.size(1)])

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        padding = batch.src == PAD
        masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        causal = nn.Transformer.generate_square_subsequent_mask(batch.tgt.size(1), dtype=torch.bool)
        masks |= {"tgt_mask": causal, "tgt_is_causal": True}
        x = self.core(self.embed(batch.src), self.embed(batch.tgt), **masks)
        return smoothed_cross_entropy(x @ self.table.weight.T, batch, self.eps)


class Marian(nn.Module):
    """Hugging Face's MarianMTModel with the smoothed loss."""

    def __init__(self, settings: Settings, vocab: int):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel

        layers = {"encoder_layers": settings.N, "decoder_layers": settings.N}
        widths = {"encoder_ffn_dim": settings.d_ff, "decoder_ffn_dim": settings.d_ff}
        heads = {"encoder_attention_heads": settings.h, "decoder_attention_heads": settings.h}
        dropout = {"dropout": settings.dropout, "attention_dropout": 0.0, "activation_dropout": 0.0}
        symbols = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
        config = MarianConfig(
            vocab_size=vocab, d_model=settings.d_model, max_position_embeddings=LONGEST,
            scale_embedding=True, share_encoder_decoder_embeddings=True, activation_function="relu",
            decoder_start_token_id=BOS, **layers, **widths, **heads, **dropout, **symbols,
        )  # fmt: skip
        self.model = MarianMTModel(config)
        self.eps = settings.smoothing

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        source = {"input_ids": batch.src, "attention_mask": (batch.src != PAD).long()}
        logits = self.model(**source, decoder_input_ids=batch.tgt).logits
        return smoothed_cross_entropy(logits, batch, self.eps)


PEERS = {"nn.Transformer": TorchTransformer, "Marian": Marian}


# --- The measurement ---
Update = Callable[[list[Pair]], object]
# from batches to target tokens per second, and per update
Turn = Callable[[list[list[Pair]]], tuple[float, float]]


def peer_update(name: str, settings: Settings, vocab: int) -> Update:
    """A function that makes one update: loss per token, clipped gradient, fused Adam.

    Before, it asserts that the peer's loss ignores padding and starts near ln(V). ImportError if
    the peer is missing.
    """
    torch.manual_seed(settings.seed)
    model = PEERS[name](settings, vocab).eval()
    pairs = [Pair([5, 6, 7, EOS], [BOS, 8, 9, EOS]), Pair([5, EOS], [BOS, 9, 8, 7, 6, EOS])]
    losses = [model(make_batch(batch)).item() for batch in (pairs, pairs[:1], pairs[1:])]
    assert math.isclose(losses[0], losses[1] + losses[2], rel_tol=1e-4), (name, losses)
    assert 0.5 * math.log(vocab) < losses[0] / 8 < 3 * math.log(vocab), (name, losses)
    weights = model.train().parameters()
    optimizer = torch.optim.Adam(weights, lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(pairs: list[Pair]) -> None:
        batch = make_batch(pairs)
        optimizer.zero_grad()
        (model(batch) / batch.ntokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()

    return update


def sides(settings: Settings, vocab: int) -> dict[str, Turn]:
    """The program, and every peer that is installed."""
    torch.manual_seed(settings.seed)
    trainer = ParallelTrainer(build_model(settings, vocab), settings)
    updates: dict[str, Update] = {"this": trainer.update}
    for name in PEERS:
        try:
            updates[name] = peer_update(name, settings, vocab)
        except ImportError as error:
            print(f"NOTICE: {name} is left out: {error}", file=sys.stderr)
    return {name: functools.partial(turn, update) for name, update in updates.items()}


def turn(update: Update, batches: list[list[Pair]]) -> tuple[float, float]:
    """Learn from batches; returns the target tokens per second, and per update."""
    tokens = sum(len(pair.tgt) - 1 for batch in batches for pair in batch)
    seconds = timeit.timeit(lambda: list(map(update, batches)), number=1)
    return tokens / seconds, tokens / len(batches)


def measure(
    turns: dict[str, Turn], batches: Iterator[list[Pair]], rounds: int, seconds: float
) -> dict[str, dict]:
    """Warm up every side with two updates, then let them take turns."""
    # A turn has as many updates as the first one makes in these seconds.
    for take in turns.values():
        take(list(itertools.islice(batches, 2)))
    speed, size = turns["this"](list(itertools.islice(batches, 4)))
    count = max(1, round(seconds * speed / size))
    turns_of_sides = {name: [] for name in turns}
    for _ in range(rounds):
        used = list(itertools.islice(batches, count))
        for name, take in turns.items():
            turns_of_sides[name].append(take(used))
    speeds, sizes = (
        {name: [x[i] for x in pairs] for name, pairs in turns_of_sides.items()} for i in (0, 1)
    )
    kinds = statistics.median, min, max
    figures = {name: {f.__name__: round(f(x), 1) for f in kinds} for name, x in speeds.items()}
    medians = {name: x["median"] for name, x in figures.items()}
    ratios = {name: round(medians["this"] / x, 2) for name, x in medians.items() if name != "this"}
    per_update = {"this": round(statistics.mean(sizes["this"]))}
    return {"tokens_per_second": figures, "ratio_to_peers": ratios, "tokens_per_update": per_update}


def benchmark(
    *, presets: tuple[Preset, ...] = ("tiny", "small"), data: Data = "captions",
    rounds: Rounds = 7, seconds: NonNegativeFloat = 15.0, changes: Changes = None,
    rows: Rows = RESULTS,
) -> None:  # fmt: skip
    """Target tokens per second of training: the program beside other libraries, in one run.

    A target token is a token to predict, so padding does not count. All sides train models of the
    preset's sizes, with Adam, on the same batches of ids, in this process and with its number of
    threads. The peers are PyTorch's own `nn.Transformer` and Hugging Face's port of Marian. Each is
    used as its library intends, with all embeddings tied, and with dropout at the same places as
    far as the library allows. One whose package (group `bench` of pyproject.toml) is missing is
    left out.

    After all have warmed up, they take turns, round by round, so that a machine that becomes slower
    or busier affects all. In a round, each makes as many updates as the program makes in about the
    seconds. A figure is the median over the rounds. (Rows of `training_speed`, up to commit
    ad32212, also have the 2022 edition's way, rows up to 82be6c4 JoeyNMT, and one has Marian
    itself.)

    Args:
        presets: sizes of the models
        seconds: about the length of a turn
    """
    texts = list(Corpus(data).full_pairs("train"))
    for preset in presets:
        settings = shared.with_adam(preset, changes)
        budget = settings.tokens_per_batch
        tokenizer = tat.learn_bpe(texts, settings.bpe)
        pairs = encode_pairs(tokenizer, texts, ("de", "en"))
        turns = sides(settings, len(tokenizer))
        row = {"preset": preset, "data": portable(data), "tokens_per_batch": budget}
        row |= {"bpe": settings.bpe, "rounds": rounds}
        epochs = (epoch(pairs, budget, seed) for seed in itertools.count())
        row |= measure(turns, itertools.chain.from_iterable(epochs), rounds, seconds)
        for name, figures in row["tokens_per_second"].items():
            numbers = ", ".join(f"{kind} {figure:,.0f}" for kind, figure in figures.items())
            ratio = row["ratio_to_peers"].get(name, "")
            print(f"{preset:<8}{name:<16}{numbers} tokens/s  {ratio}", flush=True)
        rows.add(row)
