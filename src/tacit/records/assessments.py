"""What was found out about each run's last model: a JSON file per run in `assessments/`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError
from tacit.core.files import read_at_most, replacing

FOLDER = "assessments"
LARGEST = 256 << 20  # bytes of a file
PARTS = ("rows", "metrics", "bootstrap", "groups", "importance", "clients")


def write_assessment(folder: Path, run: str, findings: Mapping[str, Any]) -> None:
    path = _path(folder, run)
    path.parent.mkdir(exist_ok=True)
    with replacing(path) as file:
        json.dump(findings, file, allow_nan=False)


def read_assessment(folder: Path, run: str) -> dict[str, Any] | None:
    """None where the run has left none: it has not ended, or it has diverged."""
    path = _path(folder, run)
    if not path.exists():
        return None
    advice = "delete it, and the report leaves out what it says"
    try:
        findings = json.loads(read_at_most(path, LARGEST))
    except (OSError, ValueError, RecursionError):
        raise DataError(f"{path} is damaged; {advice}") from None
    if not isinstance(findings, dict) or not findings.keys() >= set(PARTS):
        raise DataError(f"{path} is damaged; {advice}")
    return findings


def _path(folder: Path, run: str) -> Path:
    return folder / FOLDER / f"{run}.json"
