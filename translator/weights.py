"""Model folders: loading, averaging and writing weights."""

import shutil
from pathlib import Path

import torch
from torch import Tensor

from the_annotated_transformer import Transformer, Translator, transpose_in_memory
from translator.files import check_sums, read_json, read_tensors, write_sums, write_tensors
from translator.processes import best_device
from translator.settings import Settings, build_model
from translator.sharding import part_for
from translator.vocabulary import read_tokenizer


def weights_of(model: Transformer) -> dict[str, Tensor]:
    """The model's parameters by name; a tied one appears once."""
    return dict(model.named_parameters())


def load_weights(model: Transformer, tensors: dict[str, Tensor], path: Path) -> None:
    """Copy tensors into the model's parameters; raises ValueError naming `path` if they do not fit."""
    own = weights_of(model)
    for name in sorted(own.keys() ^ tensors.keys()):
        raise ValueError(
            f"{path}: not weights of this model ({name} is {'missing' if name in own else 'not part of it'})"
        )
    for name, parameter in own.items():
        if parameter.shape != tensors[name].shape:
            raise ValueError(
                f"{path}: {name} has shape {tuple(tensors[name].shape)}, but the model needs {tuple(parameter.shape)}"
            )
        with torch.no_grad():
            parameter.copy_(part_for(tensors[name], parameter))


MODEL_FILES = ["config.json", "tokenizer.json", "model.safetensors"]


def load_translator(path: str | Path, device: torch.device | None = None) -> Translator:
    """Read a run or model folder: model.safetensors, tokenizer.json, config.json; by default to the best device.

    Raises FileNotFoundError or ValueError naming a file that is missing, is damaged or does not fit.
    """
    path = Path(path)
    if path.is_file():
        raise ValueError(f"{path}: a file, not the folder of a run or a model")
    check_sums(path, MODEL_FILES)
    about, file = read_json(path / "config.json"), path / "model.safetensors"
    try:
        vocab, languages = int(about["vocab"]), (str(about["src"]), str(about["tgt"]))
        config = Settings(**about["settings"])
        tokenizer = read_tokenizer(path / "tokenizer.json")
        if len(tokenizer) != vocab:
            raise ValueError(f"{path / 'tokenizer.json'}: {len(tokenizer)} entries, but the model has {vocab}")
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file; the run has not reached its first checkpoint")
        weights = read_tensors(file)[0]
        model = build_for(weights, config, vocab)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path / 'config.json'}: not the configuration of a model ({error})") from error
    load_weights(model, weights, file)
    transpose_in_memory(model)
    return Translator(model.to(device or best_device()).eval(), tokenizer, languages)


def build_for(weights: dict[str, Tensor], config: Settings, vocab: int) -> Transformer:
    """A fresh model for weights that were read; ValueError, before memory is taken, for sizes that cannot be theirs."""
    there, d, heads = sum(tensor.numel() for tensor in weights.values()), config.d_model, config.h * config.d_k
    needed = d * max(vocab, config.N * config.d_ff, config.N * (heads or config.d_model))
    if len(weights) < config.N or needed > there:
        raise ValueError(f"its sizes need {needed:,} weights or more, but there are {there:,}")
    return build_model(config, vocab)


def average_weights(paths: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights in some checkpoints (Section 6.1); raises ValueError if they do not belong together."""
    total: dict[str, Tensor] = {}
    for path in paths:
        tensors = {name: tensor.double() for name, tensor in read_tensors(path)[0].items()}
        if total and {n: t.shape for n, t in total.items()} != {n: t.shape for n, t in tensors.items()}:
            raise ValueError(f"{path}: other weights than in {paths[0]}")
        total = {name: tensor + total.get(name, 0.0) for name, tensor in tensors.items()}
    return {name: (tensor / len(paths)).float() for name, tensor in total.items()}


def write_model(out: Path, like: Path, weights: dict[str, Tensor]) -> None:
    """Write weights as a new model folder with the tokenizer and configuration of another; FileExistsError if it exists.

    Raises ValueError for weights that are not finite: float16 overflows above 65,504.
    """
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise ValueError(f"{out}: some weights are not finite")
    try:
        Path(out).mkdir(parents=True)
    except FileExistsError:
        raise FileExistsError(f"{out}: exists already") from None
    try:
        for name in MODEL_FILES[:2]:
            shutil.copy(like / name, out / name)
        write_tensors(out / MODEL_FILES[2], weights)
        write_sums(out, MODEL_FILES)
    except OSError:
        shutil.rmtree(out)
        raise


SHIPPED_MODEL = "models/multi30k-de-en"


def model_folder(path: Path | None = None) -> Path:
    """The given folder, or the folder of the model that comes with the program.

    If none came with it, raises FileNotFoundError with a command that makes one.
    """
    if path is not None:
        return Path(path)
    here = Path(__file__).resolve().parent
    for folder in (here.parent / SHIPPED_MODEL, here / SHIPPED_MODEL):  # in a clone; installed
        if all((folder / name).is_file() for name in MODEL_FILES):
            return folder
    command = "python the_annotated_transformer.py train --data multi30k --preset tiny --run runs/tiny"
    raise FileNotFoundError(
        f"no {SHIPPED_MODEL} beside this script; make a model with `{command}` and give --model runs/tiny"
    )
