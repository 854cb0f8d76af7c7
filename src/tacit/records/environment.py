"""What a study ran with, so that it can be run again."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tacit.core.files import replacing
from tacit.core.version import __version__

PACKAGES = ("torch", "numpy", "scikit-learn", "pandas", "pyarrow")


def note_environment(
    folder: Path,
    *,
    devices: Sequence[str],
    place: str,
    threads: int | None,
    side_by_side: int,
    here: bool = True,
) -> None:
    """Adds to environment.json what the study runs with, unless the last entry says the same.

    `here` says whether the devices are this machine's, whose names can be asked for.
    """
    known = read_environment(folder)
    entry = {
        "tacit": __version__,
        "python": platform.python_version(),
        **{name: found for name in PACKAGES if (found := _version(name))},
        "machine": f"{platform.system()} {platform.machine()}",
        "device": ", ".join(_device(name) for name in devices) if here else devices[0],
        "threads": threads or torch.get_num_threads(),
        "side by side": side_by_side,
        "place": place,
    }
    if not known or known[-1] != entry:
        with replacing(folder / "environment.json") as file:
            file.write(json.dumps([*known, entry], indent=1))


def read_environment(folder: Path) -> list[dict[str, Any]]:
    """The entries, the oldest first; more than one where a study was resumed elsewhere."""
    try:
        found = json.loads((folder / "environment.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def _device(name: str) -> str:
    return torch.cuda.get_device_name(name) if name.startswith("cuda") else name


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
