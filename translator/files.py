"""Files: written whole or not at all; an error in reading one names it."""

import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file, then move it to `path` in one step; raises OSError if that is impossible."""
    if not path.parent.is_dir() or path.is_dir():
        raise OSError(f"{path}: {'this is a folder' if path.is_dir() else 'its folder does not exist'}")
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        write(Path(name))
        os.chmod(name, 0o644)
        os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_tensors(path: Path, tensors: dict[str, Tensor], **metadata: Any) -> None:
    """Write tensors and JSON-able metadata as a safetensors file, atomically."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().contiguous() for name, tensor in tensors.items()}
    notes = {key: json.dumps(value) for key, value in metadata.items()}
    write_atomically(path, lambda temporary: save_file(tensors, temporary, notes))


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and metadata of a safetensors file; ValueError if it is damaged, FileNotFoundError if missing."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, {
                k: json.loads(v) for k, v in (file.metadata() or {}).items()
            }
    except (SafetensorError, ValueError) as error:
        raise ValueError(f"{path}: not a safetensors file that a run wrote ({error})") from error


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file; raises ValueError if it holds anything else, FileNotFoundError if it is missing."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise FileNotFoundError(f"{path}: no such file; is {path.parent} the folder of a run or a model?") from None
    except ValueError as error:
        raise ValueError(f"{path}: not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: not a JSON object")
    return value
