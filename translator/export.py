"""Export: a trained model for CTranslate2 (https://opennmt.net/CTranslate2), which runs it in C++, in int8 if you like.

Only this module needs the package `ctranslate2`.
"""

import shutil
from pathlib import Path

import torch
from ctranslate2.specs import LayerSpec, TransformerSpec
from torch import Tensor, nn

from the_annotated_transformer import LearnedPositions, Translator, positional_encoding
from translator.architecture import check_export

LONGEST = 2048  # positions: CTranslate2 reads them from a table
SCRIPT = '''"""Translate standard input, line by line: python translate.py < FILE (pip install ctranslate2 tokenizers)."""

import sys
from pathlib import Path

import ctranslate2
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parent
tokenizer, model = Tokenizer.from_file(str(folder / "tokenizer.json")), ctranslate2.Translator(str(folder))
tokenizer.encode_special_tokens = True  # the text "</s>" in a sentence is text
tokens = [tokenizer.encode(line.strip()).tokens for line in sys.stdin]
for source, found in zip(tokens, model.translate_batch(tokens, max_batch_size=64, beam_size=5, length_penalty=2)):
    print("".join(found.hypotheses[0]).replace("▁", " ").strip() if source else "")
'''
CARD = """# {src} to {tgt}, for CTranslate2

Exported by the Annotated Transformer in {quantization}. `translate.py` goes from text to text:

```sh
pip install ctranslate2 tokenizers
echo "..." | python translate.py
```

The model reads and writes the tokens of `tokenizer.json`; `▁` begins a word. The search of `translate.py`, five beams and
CTranslate2's length penalty of 2, had the highest BLEU of five penalties on Multi30k's validation set, with the German-English
model; other models may need another. How the model was trained is in the card or the log of the folder that it came from.
"""


def numbers(tensor: Tensor):
    """A tensor as the float32 array that a specification takes."""
    return tensor.detach().cpu().float().contiguous().numpy()


def fill_linear(spec: LayerSpec, *layers: nn.Linear) -> None:
    """One linear layer, or several that read the same input, stacked."""
    spec.weight = numbers(torch.cat([layer.weight for layer in layers]))
    if layers[0].bias is not None:
        spec.bias = numbers(torch.cat([layer.bias for layer in layers]))


def fill_norm(spec: LayerSpec, norm: nn.LayerNorm) -> None:
    """The gain and bias of a LayerNorm."""
    spec.gamma, spec.beta = numbers(norm.weight), numbers(norm.bias)


def fill_embeddings(spec: LayerSpec, embeddings: LayerSpec, embed: nn.Module) -> None:
    """The embedding matrix of one side, and the positions that are added to it."""
    table, positions = embed.embeddings.table.weight, embed.positions
    embeddings.weight = numbers(table)
    learned = isinstance(positions, LearnedPositions)
    spec.position_encodings.encodings = numbers(
        positions.table.weight if learned else positional_encoding(LONGEST, table.size(1))
    )


def fill_layer(spec: LayerSpec, layer: nn.Module) -> None:
    """The sublayers of an encoder or decoder layer, each with its norm."""
    own, ffn = layer.self_attn, layer.feed_forward
    fill_linear(spec.self_attention.linear[0], own.W_q, own.W_k, own.W_v)
    fill_linear(spec.self_attention.linear[1], own.W_o)
    specs = [spec.self_attention, spec.ffn]
    if hasattr(layer, "src_attn"):
        cross = layer.src_attn
        fill_linear(spec.attention.linear[0], cross.W_q)
        fill_linear(spec.attention.linear[1], cross.W_k, cross.W_v)
        fill_linear(spec.attention.linear[2], cross.W_o)
        specs.insert(1, spec.attention)
    fill_linear(spec.ffn.linear_0, ffn.W_1)
    fill_linear(spec.ffn.linear_1, ffn.W_2)
    for part, sublayer in zip(specs, layer.sublayer, strict=True):
        fill_norm(part.layer_norm, sublayer.norm)


def specification(translator: Translator) -> TransformerSpec:
    """The whole model in CTranslate2's own description; CTranslate2 adds </s> to each source itself.

    Raises ValueError if keys and values differ in width, which CTranslate2 does not support, and naming a layer that is not
    the paper's.
    """
    model, tokenizer = translator.model, translator.tokenizer
    check_export(model)
    first = model.encoder.layers[0]
    if first.self_attn.W_k.out_features != first.self_attn.W_v.out_features:
        raise ValueError("CTranslate2 has keys and values of one width alone, but this model has d_k of its own")
    pre_norm = first.sublayer[0].pre
    spec = TransformerSpec.from_config(len(model.encoder.layers), first.self_attn.h, pre_norm=pre_norm)
    fill_embeddings(spec.encoder, spec.encoder.embeddings[0], model.src_embed)
    fill_embeddings(spec.decoder, spec.decoder.embeddings, model.tgt_embed)
    for side, stack in ((spec.encoder, model.encoder), (spec.decoder, model.decoder)):
        for layer_spec, layer in zip(side.layer, stack.layers, strict=True):
            fill_layer(layer_spec, layer)
        if pre_norm:
            fill_norm(side.layer_norm, stack.norm)
    fill_linear(spec.decoder.projection, model.generator.proj)
    tokens = tokenizer.tokens(range(len(tokenizer)))
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.config.add_source_eos = True
    spec.config.layer_norm_epsilon = first.sublayer[0].norm.eps
    return spec


def write_model(translator: Translator, folder: Path, out: Path, quantization: str | None = None) -> None:
    """Write the folder `out`: CTranslate2's model.bin, config and vocabulary, and `folder`'s tokenizer.json beside them.

    A model with byte-pair encoding also gets a card and translate.py, which translates text.

    quantization: int8, float16 or another type that CTranslate2 knows; None keeps float32.
    Raises ValueError for an unknown type, FileExistsError if `out` exists.
    """
    spec = specification(translator)
    spec.validate()
    spec.optimize(quantization=quantization)
    out.mkdir(parents=True)
    spec.save(str(out))
    shutil.copy(folder / "tokenizer.json", out)
    if not translator.tokenizer.words:
        src, tgt = translator.languages
        (out / "translate.py").write_text(SCRIPT, encoding="utf-8")
        (out / "README.md").write_text(
            CARD.format(src=src, tgt=tgt, quantization=quantization or "float32"), encoding="utf-8"
        )
