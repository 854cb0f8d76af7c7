"""The record of a study: one JSON line per run and round.

`history.jsonl` holds what follows from the study and its seed, so that two runs of it are equal to the byte;
`timings.jsonl` holds the seconds. A checkpoint remembers how long both were, and on resume what came after is cut off.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError

FILES = ("history.jsonl", "timings.jsonl")


class History:
    """Appends to the two files of a study's folder."""

    def __init__(self, folder: Path, lengths: Mapping[str, int] | None = None) -> None:
        for name, length in (lengths or {}).items():
            path = folder / name
            if not path.exists() or path.stat().st_size < length:
                raise DataError(f"{path} has lost lines since the checkpoint; delete checkpoints/ to start over")
        self.files = {name: open(folder / name, "ab") for name in FILES}  # noqa: SIM115  (closed by close)
        for name, file in self.files.items():
            file.truncate((lengths or {}).get(name, 0))

    def add(self, record: Mapping[str, Any], seconds: float) -> None:
        """One run's round."""
        key = {"run": record["run"], "round": record["round"]}
        self._write("history.jsonl", record)
        self._write("timings.jsonl", {**key, "seconds": round(seconds, 6)})

    def lengths(self) -> dict[str, int]:
        """How long the files are, once all is written."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())  # a checkpoint must not know more than the history after a power cut
        return {name: os.fstat(file.fileno()).st_size for name, file in self.files.items()}

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        self.files[name].write(json.dumps(_finite(record), allow_nan=False).encode() + b"\n")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole records of a file that may still be growing."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]  # a last line without its end is still being written
    try:
        found = [json.loads(line) for line in lines]
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if odd := [k for k, record in enumerate(found) if not isinstance(record, dict) or "run" not in record]:
        raise DataError(f"{path} is damaged: line {odd[0] + 1} is no record of a run")
    return found


def _finite(value: Any) -> Any:
    """JSON has no NaN; what is not a number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
