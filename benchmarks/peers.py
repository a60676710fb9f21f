"""Other implementations of the Transformer, trained on the same batches of ids with models of the same sizes.

Each peer is a module whose `forward(batch)` gives the label-smoothed loss summed over the target tokens. It uses its library
as intended, ties all embeddings, and has dropout at the same places as far as the library allows:

- `nn.Transformer`: PyTorch's own module, pre-norm, with embeddings, positions and `cross_entropy` around it;
- `Marian`: `transformers.MarianMTModel`, whose logits go into `cross_entropy`;
- `JoeyNMT`: its encoder, decoder and loss, pre-norm.

The last two need packages from requirements-bench.txt; if one is missing, that peer is left out, with a notice.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from the_annotated_transformer import BOS, EOS, PAD, UNK, Batch, Pair, make_batch, positional_encoding
from translator.settings import Settings

LONGEST = 512  # the peers' number of positions


def smoothed_cross_entropy(logits: Tensor, batch: Batch, eps: float) -> Tensor:
    """PyTorch's smoothed loss, summed over all positions except padding."""
    target = batch.tgt_y.flatten()
    return F.cross_entropy(logits.flatten(0, 1), target, ignore_index=PAD, label_smoothing=eps, reduction="sum")


class TorchTransformer(nn.Module):
    """PyTorch's nn.Transformer plus what it lacks: embeddings, positions, an output layer."""

    def __init__(self, config: Settings, vocab: int):
        super().__init__()
        self.eps, self.scale = config.smoothing, math.sqrt(config.d_model)
        self.table = nn.Embedding(vocab, config.d_model)
        nn.init.normal_(self.table.weight, std=config.d_model**-0.5)
        self.register_buffer("positions", positional_encoding(LONGEST, config.d_model))
        self.dropout = nn.Dropout(config.dropout)
        self.core = nn.Transformer(
            config.d_model, config.h, config.N, config.N, config.d_ff, config.dropout, batch_first=True, norm_first=True
        )

    def embed(self, ids: Tensor) -> Tensor:
        """Ids (B, T) to vectors (B, T, d_model)."""
        return self.dropout(self.table(ids) * self.scale + self.positions[: ids.size(1)])

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        closed = batch.src == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(batch.tgt.size(1), dtype=torch.bool)
        x = self.core(
            self.embed(batch.src), self.embed(batch.tgt), tgt_mask=causal, tgt_is_causal=True,
            src_key_padding_mask=closed, memory_key_padding_mask=closed,
        )  # fmt: skip
        return smoothed_cross_entropy(x @ self.table.weight.T, batch, self.eps)


def marian(config: Settings, vocab: int) -> nn.Module:
    """Hugging Face's MarianMTModel with these sizes."""
    from transformers import MarianConfig, MarianMTModel

    layers = {"encoder_layers": config.N, "decoder_layers": config.N}
    widths = {"encoder_ffn_dim": config.d_ff, "decoder_ffn_dim": config.d_ff, "d_model": config.d_model}
    heads = {"encoder_attention_heads": config.h, "decoder_attention_heads": config.h}
    dropout = {"dropout": config.dropout, "attention_dropout": 0.0, "activation_dropout": 0.0}
    symbols = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS, "decoder_start_token_id": BOS}
    return MarianMTModel(
        MarianConfig(
            vocab_size=vocab, max_position_embeddings=LONGEST, scale_embedding=True, activation_function="relu",
            share_encoder_decoder_embeddings=True, **layers, **widths, **heads, **dropout, **symbols,
        )
    )  # fmt: skip


class Marian(nn.Module):
    """MarianMTModel with the smoothed loss."""

    def __init__(self, config: Settings, vocab: int):
        super().__init__()
        self.model, self.eps = marian(config, vocab), config.smoothing

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        found = self.model(input_ids=batch.src, attention_mask=(batch.src != PAD).long(), decoder_input_ids=batch.tgt)
        return smoothed_cross_entropy(found.logits, batch, self.eps)


class Joey(nn.Module):
    """JoeyNMT's model, with one matrix for both embeddings and the output."""

    def __init__(self, config: Settings, vocab: int):
        super().__init__()
        from joeynmt.decoders import TransformerDecoder
        from joeynmt.embeddings import Embeddings
        from joeynmt.encoders import TransformerEncoder
        from joeynmt.model import Model

        sizes = {"hidden_size": config.d_model, "ff_size": config.d_ff, "num_layers": config.N, "num_heads": config.h}
        shared = {"dropout": config.dropout, "emb_dropout": config.dropout, "layer_norm": "pre"}
        embed = Embeddings(config.d_model, scale=True, vocab_size=vocab, padding_idx=PAD)
        nn.init.normal_(embed.lut.weight, std=config.d_model**-0.5)
        decoder = TransformerDecoder(**sizes, **shared, vocab_size=vocab)
        decoder.output_layer.weight = embed.lut.weight
        self.model = Model(TransformerEncoder(**sizes, **shared), decoder, embed, embed, Symbols(), Symbols())
        self.model.loss_function = ("crossentropy", config.smoothing)

    def forward(self, batch: Batch) -> Tensor:
        """The loss of a batch."""
        lengths = (batch.src != PAD).sum(-1)
        masks = {"src_mask": batch.src_mask, "trg_mask": (batch.tgt_y != PAD).unsqueeze(1)}
        given = {"src": batch.src, "trg_input": batch.tgt, "trg": batch.tgt_y, "src_length": lengths}
        return self.model(return_type="loss", **given, **masks)[0]


class Symbols:
    """What JoeyNMT's model needs from a vocabulary."""

    pad_index, bos_index, eos_index, unk_index, sep_index = PAD, BOS, EOS, UNK, None
    specials = lang_tags = ()


PEERS: dict[str, Callable[[Settings, int], nn.Module]] = {
    "nn.Transformer": TorchTransformer,
    "Marian": Marian,
    "JoeyNMT": Joey,
}


def peer_update(name: str, config: Settings, vocab: int) -> Callable[[list[Pair]], None]:
    """A function that makes one update: loss per token, clipped gradient, fused Adam; ImportError if the peer is missing."""
    torch.manual_seed(config.seed)
    model = PEERS[name](config, vocab).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def update(pairs: list[Pair]) -> None:
        batch = make_batch(pairs)
        optimizer.zero_grad()
        (model(batch) / batch.ntokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), config.clip)
        optimizer.step()

    return update


def self_check(name: str, config: Settings, vocab: int) -> None:
    """Assert that a peer's loss ignores padding and starts near ln(V)."""
    torch.manual_seed(0)
    model = PEERS[name](config, vocab).eval()
    pairs = [Pair([5, 6, 7, EOS], [BOS, 8, 9, EOS]), Pair([5, EOS], [BOS, 9, 8, 7, 6, EOS])]
    losses = [model(make_batch(part)).item() for part in (pairs, pairs[:1], pairs[1:])]
    assert math.isclose(losses[0], losses[1] + losses[2], rel_tol=1e-4), (name, losses)
    assert 0.5 * math.log(vocab) < losses[0] / 8 < 3 * math.log(vocab), (name, losses)
