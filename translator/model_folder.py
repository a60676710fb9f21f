"""Folders of trained models: reading, averaging and writing them."""

import shutil
from pathlib import Path

import torch
from torch import Tensor

from the_annotated_transformer import Transformer, Translator
from translator import files
from translator.corpus import encode_texts, read_tokenizer
from translator.files import (
    MODEL_FILES,
    Refused,
    new_folder,
    read_json,
    read_tensors,
    refusing,
    write_tensors,
)
from translator.processes import check_weights, choose_device, load_weights
from translator.settings import Settings, build_model, saved_settings


def read_translator(path: str | Path, device: torch.device | str | None = None) -> Translator:
    """Read a run or model folder: model.safetensors, tokenizer.json, config.json.

    device: where the model goes; by default the best one.
    Raises FileNotFoundError or Refused naming a file that is missing, is damaged or does not fit.
    """
    path = Path(path)
    if path.is_file():
        raise Refused(f"{path}: a file, not the folder of a run or a model")
    # Settings say what the weights must be, and weights whether that can be true; only then is
    # memory taken for a model, and every array compared with its parameter.
    files.check_sums(path, MODEL_FILES)
    config = read_json(path / "config.json")
    file = path / "model.safetensors"
    damages = KeyError, TypeError, ValueError, RuntimeError
    with refusing(f"{path / 'config.json'}: not the configuration of a model", *damages):
        vocab = int(config["vocab"])
        languages = str(config["src"]), str(config["tgt"])
        settings = saved_settings(config["settings"])
        tokenizer = read_tokenizer(path / "tokenizer.json")
        if len(tokenizer) != vocab:
            raise Refused(
                f"{path / 'tokenizer.json'}: {len(tokenizer)} entries, but the model has {vocab}"
            )
        if tokenizer.words:
            for language in languages:  # ValueError for one that spaCy does not know
                encode_texts(tokenizer, [""], language)
        if not file.is_file():
            raise FileNotFoundError(
                f"{file}: no such file; the run has not reached its first checkpoint"
            )
        weights = read_tensors(file)[0]
        model = build_for(weights, settings, vocab, config.get("marian"))
    load_weights(model, weights, file)
    return Translator(model.to(device or choose_device()).eval(), tokenizer, languages)


def build_for(
    weights: dict[str, Tensor], settings: Settings, vocab: int, marian: dict | None = None
) -> Transformer:
    """A fresh model for weights that were read; ValueError for sizes that cannot be theirs."""
    # before memory is taken: a number in a file may ask for any amount
    count = sum(tensor.numel() for tensor in weights.values())
    N, d = settings.N, settings.d_model
    heads = settings.h * settings.d_k
    needed = d * max(vocab, N * settings.d_ff, N * (heads or d))
    if len(weights) < settings.N or needed > count:
        raise ValueError(f"its sizes need {needed:,} weights or more, but there are {count:,}")
    return build_model(settings, vocab, marian)


def average_checkpoints(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in some checkpoints (6.1); Refused if they do not belong together."""
    # in double precision, one checkpoint after the other: memory holds one and their sum
    total: dict[str, Tensor] = {}
    for path in paths:
        tensors = {name: tensor.double() for name, tensor in read_tensors(path)[0].items()}
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        if total and shapes != {name: tensor.shape for name, tensor in total.items()}:
            raise Refused(f"{path}: other weights than in {paths[0]}")
        total = {name: tensor + total.get(name, 0.0) for name, tensor in tensors.items()}
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def write_model(out: Path, like: Path, weights: dict[str, Tensor]) -> None:
    """Write weights as a new model folder with the tokenizer and configuration of another.

    Raises Refused for weights that are not finite (float16 overflows above 65,504) or do not fit,
    FileExistsError if the folder exists.
    """
    config = read_json(like / "config.json")
    settings = saved_settings(config["settings"])
    with torch.device("meta"):  # sizes without numbers
        check_weights(build_model(settings, config["vocab"], config.get("marian")), weights, out)
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise Refused(f"{out}: some weights are not finite")
    with new_folder(out):
        for name in MODEL_FILES[:2]:
            shutil.copy(like / name, out / name)
        write_tensors(out / MODEL_FILES[2], weights)
        files.write_sums(out, MODEL_FILES)
