"""Changes to the architecture train and decode as they are; what can't follow names the part."""

import copy
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import since_2017 as since
import the_annotated_transformer as tat
from tests.helpers import (
    assert_gradient_of_the_loss,
    beam_by_hand,
    beam_ids,
    decided,
    greedy_by_hand,
    greedy_ids,
    uneven_pairs,
)
from translator import export
from translator.files import Refused
from translator.search import Search
from translator.settings import Settings, build_model
from translator.stepping import check_stepwise
from translator.trainer import ParallelTrainer

SIZES = {"N": 2, "d_model": 16, "d_ff": 24, "h": 4, "dropout": 0.0}


# --- Models that differ from the paper's ---
def window(Q: Tensor, K: Tensor, width: int) -> Tensor:
    """A mask of so many positions, the query's and those before; queries are the last keys."""
    before = K.size(2) - Q.size(2)
    near = torch.ones(Q.size(2), K.size(2), dtype=torch.bool, device=Q.device)
    return near.tril(before).triu(before - width + 1)


class WindowedAttention(tat.AdjustableAttention):
    """Self-attention to the last three positions alone (the restricted one of Table 1)."""

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        # padding is at the end, where no real position looks
        return super().weigh(Q, K, V, window(Q, K, 3))


class ScaledAttention(since.FusedAttention):
    """A learned temperature for each head, on top of the fused kernel."""

    def __init__(self, h: int, d_model: int, *_: Any):
        super().__init__(h, d_model)
        self.temperature = nn.Parameter(torch.linspace(0.5, 2, h).view(h, 1, 1))

    def weigh(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None) -> Tensor:
        return super().weigh(Q * self.temperature, K, V, mask)


class OwnLayer(tat.DecoderLayer):
    """A reader's own: feed-forward first, then both attentions, and a gate on the way out."""

    def __init__(self, *parts: nn.Module):
        super().__init__(16, *parts)
        self.gate = nn.Parameter(torch.rand(16) + 0.5)

    def forward(
        self, x: Tensor, memory: Tensor, src_mask: Tensor | None, tgt_mask: Tensor | None
    ) -> Tensor:
        x = self.sublayer[2](x, self.feed_forward)
        x = self.sublayer[0](x, lambda y: self.self_attn(y, y, y, tgt_mask))
        return self.gate * self.sublayer[1](x, lambda y: self.src_attn(y, memory, memory, src_mask))


class ScaledConnection(tat.DroppingConnection):
    """A reader's own: what a sublayer adds is multiplied by a learned number."""

    def __init__(self, *args: Any, **parts: Any):
        super().__init__(*args, **parts)
        self.size = nn.Parameter(torch.tensor(0.7))

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        return super().forward(x, lambda y: self.size * sublayer(y))


ALL = ("rotary", "rms_norm", "gated", "grouped")
OWN_LAYER = "a reader's own layer"
VARIANTS = {
    **{name: since.modern(name) for name in ALL},
    "all of them": since.modern(*ALL),
    "windowed": {"attention": WindowedAttention, "cross_attention": tat.AdjustableAttention},
    "scaled and fused": {"attention": ScaledAttention},
    "scaled connections": {"connection": ScaledConnection},
    OWN_LAYER: {},
}
each_variant = pytest.mark.parametrize("name", VARIANTS)


def variant(name: str, norm: str = "pre") -> tat.Transformer:
    """A model with one of the changes, and weights that make it decided."""
    torch.manual_seed(1)
    model = tat.make_model(13, 13, **SIZES, norm=norm, **VARIANTS[name])
    if name == OWN_LAYER:
        layers = [(it.self_attn, it.src_attn, it.feed_forward) for it in model.decoder.layers]
        model.decoder.layers = nn.ModuleList(OwnLayer(*parts) for parts in layers)
    return decided(model).double()


@each_variant
def test_a_variant_decodes_fast_what_it_computes_at_once(name):
    """Greedy and with a beam, in an uneven batch; the oracle recomputes everything, one by one."""
    model = variant(name).eval()
    check_stepwise(model)
    sources = [torch.randint(4, 13, (n,)).tolist() + [tat.EOS] for n in (1, 3, 8, 5, 2, 7, 4, 6)]
    batch = tat.Batch(tat.pad_rows(sources))
    limits = [14 - (batch.src.size(1) - len(src)) for src in sources]
    tasks = list(zip(sources, limits, strict=True))
    by_hand = [[greedy_by_hand(model, *pair) for pair in tasks]]
    by_hand += [[greedy_by_hand(model, src, 14) for src in sources]]
    by_hand += [[beam_by_hand(model, *pair, 3, 1.0) for pair in tasks]] * 2
    searches = (greedy_ids, tat.greedy_decode, beam_ids, tat.beam_search)
    for search, expected in zip(searches, by_hand, strict=True):
        options = (3, 1.0) if "beam" in search.__name__ else ()
        ids = search(model, batch.src, batch.src_mask, 14, *options)
        assert ids.tolist() == tat.pad_rows(expected).tolist(), search.__name__


@each_variant
def test_a_variant_learns_by_the_gradient_of_its_own_loss(name):
    """Catches a loss, an optimiser or an average that knows the paper's layers alone."""
    model, pairs = variant(name).float(), uneven_pairs()
    settings = Settings(**SIZES, optimizer="muon", ema=0.9, warmup=10)
    trainer = ParallelTrainer(copy.deepcopy(model), settings)
    assert_gradient_of_the_loss(trainer, model, pairs, atol=1e-4, rtol=1e-3)
    losses = [trainer.update(pairs) for _ in range(30)]
    assert losses[-1] < losses[0] - 0.3 and trainer.skipped == 0


# --- Changes that cannot be decoded step by step, or exported ---
STEPS, PAPER = "cannot be decoded step by step", "is not the paper's, and cannot be exported"


def fresh(norm: str = "pre", **settings) -> tat.Translator:
    """A translator with random weights, none of them zero or one, and a small vocabulary."""
    tokenizer = tat.learn_words([("ein Hund läuft", "a dog runs")], ("de", "en"), at_least=1)
    model = build_model(Settings(**SIZES, norm=norm, **settings), len(tokenizer)).eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return tat.Translator(model, tokenizer)


def translate(translator: tat.Translator) -> list[str]:
    """What the command `translate` calls."""
    return Search(translator).translate(["ein Hund läuft"])


def assert_refused(translator: tat.Translator, part: str, *kinds: str) -> None:
    """Decoding or exporting, or both, refuse the model, and name the part."""
    for kind in kinds:
        with pytest.raises(Refused) as error:
            (translate if kind == STEPS else export.specification)(translator)
        assert str(error.value).startswith(f"{part} {kind}")


@pytest.mark.parametrize(
    "settings", [{}, {"norm": "post"}, {"positions": "learned"}, {"d_k": 3}, {"tie": "none"}]
)
def test_all_that_the_settings_can_make_is_decoded_and_exported(settings):
    """Catches a check that refuses a part it should know."""
    translator = fresh(**settings)
    assert len(translate(translator)) == 1
    with pytest.raises(Refused, match="d_k of its own") if "d_k" in settings else nullcontext():
        export.specification(translator)


def test_rotated_keys_are_refused_where_the_cache_would_hold_them_turned():
    """In `keys_values` alone, a step sees one position; catches a check of the first layer only."""
    translator = fresh()
    attn = translator.model.decoder.layers[1].self_attn
    attn.keys_values = lambda key, value: (
        since.rotated(tat.split_heads(attn.W_k(key), 4)),
        tat.split_heads(attn.W_v(value), 4),
    )
    assert_refused(translator, "decoder.layers.1 (DecoderLayer)", STEPS, PAPER)


def test_another_norm_is_decoded_and_not_exported():
    """RMSNorm: decoding calls it as it is, but CTranslate2 would treat it as LayerNorm."""
    translator = fresh()
    for module in translator.model.modules():
        if isinstance(getattr(module, "norm", None), nn.LayerNorm):
            module.norm = nn.RMSNorm(16)
    assert len(translate(translator)) == 1
    assert_refused(translator, "encoder.layers.0 (EncoderLayer)", PAPER)


@pytest.mark.parametrize("part", ["generator", "src_embed", "tgt_embed", "decoder"])
def test_other_changed_parts_are_decoded_or_named(part, monkeypatch):
    """Catches a change outside the layers: in the output layer, the embeddings or the stack."""
    translator = fresh()
    module = getattr(translator.model, part)
    if part == "generator":
        monkeypatch.setattr(tat.Generator, "logits", lambda self, x: 2 * self.proj(x))
    elif part == "decoder":
        monkeypatch.setattr(tat.Decoder, "forward", lambda self, x, *rest: 2 * x)
    else:
        module.embeddings.scale = 1.0
        module.forward = lambda ids, start=0: module.positions(module.embeddings(ids), 0)
    title = f"{part} ({type(module).__name__})"
    if part in ("generator", "src_embed"):  # decoding calls them as they are
        assert len(translate(translator)) == 1
    else:
        assert_refused(translator, title, STEPS)
    assert_refused(translator, title, PAPER)


def test_training_calls_the_generator_as_it_is(monkeypatch):
    """Catches a loss that multiplies by the output matrix itself, whatever the generator does."""
    monkeypatch.setattr(tat.Generator, "logits", lambda self, x: 5 * torch.tanh(self.proj(x) / 5))
    model = tat.make_model(13, 13, **SIZES)
    trainer = ParallelTrainer(copy.deepcopy(model), Settings(**SIZES))
    assert_gradient_of_the_loss(trainer, model, uneven_pairs(), atol=1e-5, rtol=1e-3)
