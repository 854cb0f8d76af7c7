"""Checkpoints: tensors and plain values in one file, written whole or not at all, read without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tacit.core.errors import DataError
from tacit.core.files import replacing


def save(path: Path, state: dict[str, Any]) -> None:
    """Replaces the checkpoint at `path`."""
    with replacing(path, "wb") as file:
        torch.save(state, file)


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint; weights_only keeps pickle from importing anything."""
    try:
        found: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise DataError(f"{path} is no checkpoint, or is damaged: {str(error).splitlines()[0]}") from None
    return found
