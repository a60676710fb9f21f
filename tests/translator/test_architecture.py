"""Changes that a reader makes to the architecture: code that cannot follow them names the changed part."""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import the_annotated_transformer as tat
from translator import decoding, export
from translator.settings import Settings, build_model
from translator.trainer import Trainer

SIZES = {"N": 2, "d_model": 16, "d_ff": 24, "h": 2, "bpe": 0}
DECODER, EXPORT = "the fast decoder (translator/decoding.py)", "the export (translator/export.py)"


def fresh(norm: str = "pre", **settings) -> tat.Translator:
    """A translator with random weights, none of them zero or one, and a small vocabulary."""
    tokenizer = tat.learn_words([("ein Hund läuft", "a dog runs")], ("de", "en"), at_least=1)
    model = build_model(Settings(**SIZES, norm=norm, **settings), len(tokenizer)).eval()
    for p in model.parameters():
        nn.init.normal_(p, std=0.3)
    return tat.Translator(model, tokenizer)


def translate(translator: tat.Translator) -> list[str]:
    """What the command `translate` calls."""
    return decoding.translate_lines(translator, ["ein Hund läuft"])


def rotated(x: Tensor, start: int = 0) -> Tensor:
    """Rotary positions: pairs of entries (..., T, d) rotated by an angle that grows with the position."""
    angle = torch.arange(start, start + x.size(-2)).unsqueeze(1) * torch.tensor([1.0, 0.1, 0.01, 0.001])
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), dim=-1)


@pytest.mark.parametrize("settings", [{}, {"norm": "post"}, {"positions": "learned"}, {"d_k": 3}, {"tie": "none"}])
def test_all_that_the_settings_can_make_is_known(settings, tmp_path):
    """Catches a check that refuses a part it should know."""
    translator = fresh(**settings)
    assert len(translate(translator)) == 1
    if "d_k" not in settings:
        export.specification(translator)


def test_each_model_is_asked_once(monkeypatch):
    """Catches a check that runs at every call, and a model that is mistaken for another."""
    translator, layers = fresh(), []
    layer = translator.model.decoder.layers[0]
    layer.register_forward_hook(lambda *_: layers.append(1))
    translate(translator)
    asked = len(layers)
    translate(translator)
    assert asked == len(layers) > 0
    with pytest.raises(ValueError, match="does not know"):
        translate(with_rotated_keys(translator))


def with_rotated_keys(translator: tat.Translator) -> tat.Translator:
    """A copy in which the keys of the decoder's second self-attention are rotated, in `keys_values` alone."""
    other = copy.deepcopy(translator.model)
    attn = other.decoder.layers[1].self_attn
    attn.keys_values = lambda key, value: (
        rotated(tat.split_heads(attn.W_k(key), 2)),
        tat.split_heads(attn.W_v(value), 2),
    )
    return translator._replace(model=other)


def test_a_change_after_the_answer_is_noticed():
    """Catches a model that a reader changes after its check."""
    translator = fresh()
    translate(translator)
    translator.model.decoder.layers[1].self_attn.W_q = nn.Linear(16, 16)  # with a bias that no other code expects
    with pytest.raises(ValueError) as error:
        translate(translator)
    assert f"{DECODER} does not know decoder.layers.1 (DecoderLayer)" in str(error.value)


def test_a_narrow_window_of_attention_is_refused_by_both(monkeypatch):
    """The restricted self-attention of Table 1, which a check with few positions would miss."""
    forward = tat.DecoderLayer.forward

    def windowed(self, x, memory, src_mask, tgt_mask):
        near = tat.subsequent_mask(x.size(1)) & ~tat.subsequent_mask(x.size(1)).tril(-20)
        return forward(self, x, memory, src_mask, near & tgt_mask)

    monkeypatch.setattr(tat.DecoderLayer, "forward", windowed)
    for user, use in ((DECODER, translate), (EXPORT, export.specification)):
        with pytest.raises(ValueError) as error:
            use(fresh())
        assert f"{user} does not know decoder.layers.0 (DecoderLayer)" in str(error.value)


def test_a_layer_of_another_kind_is_named_and_no_traceback():
    translator = fresh()
    layer = translator.model.decoder.layers[0]
    layer.forward = lambda *inputs: (inputs[0], None)
    with pytest.raises(ValueError, match=r"decoder\.layers\.0 \(DecoderLayer\)"):
        translate(translator)
    translator = fresh()
    translator.model.generator = nn.Sequential(nn.Linear(16, len(translator.tokenizer)))
    with pytest.raises(ValueError, match=r"generator \(Sequential\)"):
        translate(translator)


def test_weights_that_are_no_numbers_are_no_other_architecture():
    translator = fresh()
    nn.init.constant_(translator.model.decoder.layers[0].feed_forward.W_1.weight, float("nan"))
    assert len(translate(translator)) == 1


def test_training_refuses_a_generator_that_its_loss_does_not_know(monkeypatch):
    """Catches training on another function than the model computes."""
    Trainer(fresh().model, Settings(**SIZES))
    monkeypatch.setattr(tat.Generator, "logits", lambda self, x: 2 * self.proj(x))
    with pytest.raises(ValueError, match=r"the loss in chunks .* does not know generator \(Generator\)"):
        Trainer(fresh().model, Settings(**SIZES))


def test_another_norm_is_decoded_and_not_exported():
    """RMSNorm: the fast decoder calls it as it is, but CTranslate2 would treat it as LayerNorm."""
    translator = fresh()
    for module in translator.model.modules():
        if isinstance(getattr(module, "norm", None), nn.LayerNorm):
            module.norm = nn.RMSNorm(16)
    assert len(translate(translator)) == 1
    with pytest.raises(ValueError) as error:
        export.specification(translator)
    assert f"{EXPORT} does not know encoder.layers.0 (EncoderLayer)" in str(error.value)


def test_rotary_positions_are_refused_by_both(monkeypatch):
    """Rotated queries and keys in `forward`, as a newcomer would write it."""

    def forward(self, query, key, value, mask=None):
        Q, K = (rotated(tat.split_heads(W(x), self.h)) for W, x in ((self.W_q, query), (self.W_k, key)))
        mask = None if mask is None else mask.unsqueeze(1)
        x, _ = tat.attention(Q, K, tat.split_heads(self.W_v(value), self.h), mask)
        return self.W_o(x.transpose(1, 2).flatten(2))

    monkeypatch.setattr(tat.MultiHeadedAttention, "forward", forward)
    translator = fresh()
    with pytest.raises(ValueError) as error:
        translate(translator)
    assert f"{DECODER} does not know decoder.layers.0 (DecoderLayer)" in str(error.value)
    with pytest.raises(ValueError) as error:
        export.specification(translator)
    assert f"{EXPORT} does not know encoder.layers.0 (EncoderLayer)" in str(error.value)


def test_a_third_attention_is_refused_by_both(monkeypatch):
    """A decoder layer with one more sublayer, which the fast decoder used to skip silently."""
    init, forward = tat.DecoderLayer.__init__, tat.DecoderLayer.forward

    def longer_init(self, d_model, *rest):
        init(self, d_model, *rest)
        self.third_attn = tat.MultiHeadedAttention(2, d_model)
        self.sublayer.append(tat.SublayerConnection(d_model, 0.0, rest[-1]))

    def longer_forward(self, x, memory, src_mask, tgt_mask):
        x = forward(self, x, memory, src_mask, tgt_mask)
        return self.sublayer[3](x, lambda x: self.third_attn(x, memory, memory, src_mask))

    monkeypatch.setattr(tat.DecoderLayer, "__init__", longer_init)
    monkeypatch.setattr(tat.DecoderLayer, "forward", longer_forward)
    translator = fresh()
    for user, use in ((DECODER, translate), (EXPORT, export.specification)):
        with pytest.raises(ValueError) as error:
            use(translator)
        assert f"{user} does not know decoder.layers.0 (DecoderLayer)" in str(error.value)


@pytest.mark.parametrize("part", ["generator", "src_embed", "tgt_embed", "decoder"])
def test_other_changed_parts_are_named(part, monkeypatch):
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
    if part != "src_embed":  # the decoder calls the encoder as it is
        with pytest.raises(ValueError) as error:
            translate(translator)
        assert f"{DECODER} does not know {title}" in str(error.value)
    with pytest.raises(ValueError) as error:
        export.specification(translator)
    assert f"{EXPORT} does not know {title}" in str(error.value)


def test_the_command_says_it_in_one_line(monkeypatch, capsys):
    from translator.commands import main

    monkeypatch.setattr(tat.Generator, "logits", lambda self, x: 2 * self.proj(x))
    model = Path(__file__).resolve().parents[2] / tat.SHIPPED_MODEL
    assert main(["translate", "Hund", "--model", str(model)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1 and "generator (Generator)" in error
