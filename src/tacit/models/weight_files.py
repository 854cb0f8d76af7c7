"""Models in files, as dicts of tensors: safetensors, or torch's own format.

A file of torch's is read without running any code in it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.core.errors import DataError, MissingDependencyError
from tacit.core.files import replacing

TORCH = (".pt", ".pth", ".bin")
NESTED = ("state_dict", "model_state_dict", "model")  # where a training checkpoint keeps the model


def read_state(path: Path) -> dict[str, Tensor]:
    """The tensors of a model by name.

    Safetensors keep no order, so their tensors are sorted by the numbers in their names: `fc1`,
    `fc2`, `fc10`.
    """
    if not path.exists():
        raise DataError(f"{path}: there is no such file")
    if not path.is_file():
        raise DataError(f"{path} is not a file")
    content = _read_safetensors(path) if _is_safetensors(path) else _read_torch(path)
    state = _unwrap(content)
    if not state or not all(isinstance(value, Tensor) for value in state.values()):
        raise DataError(
            f"{path}: expected a model's tensors by name,"
            " as torch.save(model.state_dict(), ...) writes them"
        )
    return {str(key): value for key, value in state.items()}


def keeps_order(path: Path, state: Mapping[str, Tensor]) -> bool:
    """Whether the tensors come in the model's own order.

    They do in torch's files, and where the names of the layers differ in their numbers alone.
    """
    if not _is_safetensors(path):
        return True
    layers = [name.rpartition(".")[0] for name in state]
    without_numbers = {re.sub(r"\d+", "", layer) for layer in layers}
    return len(without_numbers) == 1


def write_state(path: Path, state: Mapping[str, Tensor]) -> None:
    """Replaces the file; its name decides on the format."""
    if path.suffix.lower() not in (".safetensors", *TORCH):
        raise DataError(f"{path}: expected a name that ends in {', '.join(TORCH)} or .safetensors")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file")
    buffer = io.BytesIO()
    if _is_safetensors(path):
        contiguous = {key: value.contiguous() for key, value in state.items()}
        buffer.write(_safetensors().save(contiguous))
    else:
        torch.save(dict(state), buffer)
    with replacing(path, "wb") as file:
        file.write(buffer.getvalue())


def _unwrap(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """The model's tensors, where the file is a training checkpoint that holds more than them."""
    for key in NESTED:
        state = content.get(key)
        if isinstance(state, Mapping):
            return state
    return content


def _read_safetensors(path: Path) -> Mapping[str, Any]:
    library = _safetensors()
    try:
        tensors: Mapping[str, Any] = library.load(path.read_bytes())
    except Exception as error:  # the library raises exceptions of several kinds
        raise DataError(f"{path} is damaged, or not a safetensors file: {error}") from None
    return {key: tensors[key] for key in sorted(tensors, key=_with_numbers)}


def _with_numbers(name: str) -> list[tuple[int, str]]:
    """A key that sorts names with numbers in them as people do."""
    key = []
    for piece in re.split(r"(\d+)", name):
        if piece.isdigit():
            key.append((int(piece), ""))
        else:
            key.append((-1, piece))
    return key


def _read_torch(path: Path) -> Mapping[str, Any]:
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:  # no permission
        raise
    except Exception:  # a file of something else can fail anywhere in torch's reader
        content = None
    if not isinstance(content, Mapping):
        raise DataError(
            f"{path} holds no plain tensors: it is damaged, or a whole pickled model, which could"
            " run code here; save its state instead, torch.save(model.state_dict(), ...)"
        )
    return content


def _is_safetensors(path: Path) -> bool:
    return path.suffix.lower() == ".safetensors"


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingDependencyError(
            '.safetensors files need a package; run: pip install "tacit[safetensors]"'
        ) from None
    return safetensors.torch
