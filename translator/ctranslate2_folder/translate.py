"""Translate standard input, line by line: python translate.py < FILE (pip install ctranslate2 tokenizers)."""

import sys
from pathlib import Path

import ctranslate2
from tokenizers import Tokenizer

folder = Path(__file__).resolve().parent
tokenizer, model = Tokenizer.from_file(str(folder / "tokenizer.json")), ctranslate2.Translator(str(folder))
tokenizer.encode_special_tokens = True  # the text "</s>" in a sentence is text
tokens = [tokenizer.encode(line.strip()).tokens for line in sys.stdin]
for source, found in zip(
    tokens, model.translate_batch(tokens, max_batch_size=64, beam_size=5, length_penalty=2), strict=True
):
    print("".join(found.hypotheses[0]).replace("▁", " ").strip() if source else "")
