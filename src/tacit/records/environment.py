"""The versions and the machine that a study ran with, so that it can be run again."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from tacit.core.files import read_at_most, replacing
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

    `here` says whether the devices are this machine's, so that they can be asked for their names.
    """
    entry = {
        "tacit": __version__,
        "python": platform.python_version(),
        **_package_versions(),
        "machine": f"{platform.system()} {platform.machine()}",
        "device": _device_names(devices) if here else devices[0],
        "threads": threads or torch.get_num_threads(),
        "side by side": side_by_side,
        "place": place,
    }
    entries = read_environment(folder)
    if not entries or entries[-1] != entry:
        with replacing(folder / "environment.json") as file:
            file.write(json.dumps([*entries, entry], indent=1))


def read_environment(folder: Path) -> list[dict[str, Any]]:
    """The entries, the oldest first; more than one where a study was resumed elsewhere."""
    try:
        entries = json.loads(read_at_most(folder / "environment.json"))
    except (OSError, ValueError, RecursionError):
        return []
    if not isinstance(entries, list):
        return []
    return [entry for entry in entries if isinstance(entry, dict)]


def _device_names(devices: Sequence[str]) -> str:
    names: list[str] = []
    for device in devices:
        is_gpu = device.startswith("cuda")
        names.append(torch.cuda.get_device_name(device) if is_gpu else device)
    return ", ".join(names)


def _package_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions
