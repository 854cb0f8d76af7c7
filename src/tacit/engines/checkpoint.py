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
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can fail anywhere in torch's reader
        found = None
    if not isinstance(found, dict):
        raise DataError(f"{path} cannot be read: it is damaged, or no checkpoint; delete it to start over")
    return found
