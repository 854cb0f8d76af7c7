"""Models in files, as dicts of tensors: torch's own format, read without running any code in it, or safetensors."""

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
    """The tensors of a model by name; safetensors keep no order, so they come as numbers do: `fc1`, `fc2`, `fc10`."""
    if not path.is_file():
        raise DataError(
            f"{path}: there is no such file" if not path.exists() else f"{path} is no file"
        )
    found = _read_safe(path) if _is_safe(path) else _read_torch(path)
    found = next((found[key] for key in NESTED if isinstance(found.get(key), Mapping)), found)
    if not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise DataError(
            f"{path}: expected a model's tensors by name, as torch.save(model.state_dict(), ...) writes them"
        )
    return {str(key): value for key, value in found.items()}


def keeps_order(path: Path, state: Mapping[str, Tensor]) -> bool:
    """Whether the tensors come in the model's own order: in torch's files, and where names differ in numbers alone."""
    return (
        not _is_safe(path)
        or len({re.sub(r"\d+", "", name.rpartition(".")[0]) for name in state}) == 1
    )


def write_state(path: Path, state: Mapping[str, Tensor]) -> None:
    """Replaces the file; its name decides on the format."""
    if path.suffix.lower() not in (".safetensors", *TORCH):
        raise DataError(f"{path}: expected a name that ends in {', '.join(TORCH)} or .safetensors")
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file")
    buffer = io.BytesIO()
    if _is_safe(path):
        buffer.write(_safetensors().save({key: value.contiguous() for key, value in state.items()}))
    else:
        torch.save(dict(state), buffer)
    with replacing(path, "wb") as file:
        file.write(buffer.getvalue())


def _read_safe(path: Path) -> Mapping[str, Any]:
    library = _safetensors()
    try:
        found: Mapping[str, Any] = library.load(path.read_bytes())
    except Exception as error:  # the library's own, by several names
        raise DataError(f"{path} is damaged, or no safetensors file: {error}") from None
    return {key: found[key] for key in sorted(found, key=_numbered)}


def _numbered(name: str) -> list[tuple[int, str]]:
    """Orders names with numbers in them as people do."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _read_torch(path: Path) -> Mapping[str, Any]:
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:  # no permission
        raise
    except Exception:  # a file of something else can fail anywhere in torch's reader
        found = None
    if not isinstance(found, Mapping):
        raise DataError(
            f"{path} holds no plain tensors: it is damaged, or a whole pickled model, which could run code here; save"
            " its state instead, torch.save(model.state_dict(), ...)"
        )
    return found


def _is_safe(path: Path) -> bool:
    return path.suffix.lower() == ".safetensors"


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ImportError:
        raise MissingDependencyError(
            '.safetensors files need a package; run: pip install "tacit[safetensors]"'
        ) from None
    return safetensors.torch
