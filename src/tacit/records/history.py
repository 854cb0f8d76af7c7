"""The record of a study: one JSON line per run and round.

`history.jsonl` holds what follows from the study and its seed, so that two runs of it are equal to the byte;
`timings.jsonl` holds the seconds, and whatever of a record is called `..._seconds`. Lines are appended as they come; at
the end they stand run by run, wherever the runs were computed. On resume, lines of rounds after a run's checkpoint are
dropped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError
from tacit.core.files import replacing

FILES = ("history.jsonl", "timings.jsonl")
Key = tuple[int, int]  # a run's place in the study, and the round


class History:
    """Appends to the two files of a study's folder. `rounds` says how many of each run's rounds to keep there."""

    def __init__(self, folder: Path, runs: Sequence[str], rounds: Mapping[str, int]) -> None:
        self.folder, self.place = folder, {run: k for k, run in enumerate(runs)}
        kept = {
            (self.place[run], round + 1) for run, count in rounds.items() for round in range(count)
        }
        found = {name: self._read(name, kept) for name in FILES}
        if kept - {key for key, _ in found["history.jsonl"]}:
            where = folder / "history.jsonl"
            raise DataError(
                f"{where} has lost lines since the checkpoint; delete checkpoints/ to start over"
            )
        self.keys = {name: [key for key, _ in lines] for name, lines in found.items()}
        for name, lines in found.items():
            self._replace(name, [line for _, line in lines])
        self.files = {name: open(folder / name, "ab") for name in FILES}  # noqa: SIM115  (closed by close)

    def add(self, record: Mapping[str, Any], seconds: float) -> None:
        """One run's round."""
        own = {name: value for name, value in record.items() if name.endswith("_seconds")}
        key = {"run": record["run"], "round": record["round"]}
        self._write(
            "history.jsonl", {name: value for name, value in record.items() if name not in own}
        )
        times = {"seconds": seconds, **own}
        self._write("timings.jsonl", key | {name: round(value, 6) for name, value in times.items()})

    def sync(self) -> None:
        """A checkpoint must not know more than the history after a power cut."""
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    def arrange(self) -> None:
        """Closes the files and puts their lines in order, run by run."""
        self.close()
        for name, keys in self.keys.items():
            if keys != sorted(keys):
                lines = (self.folder / name).read_bytes().splitlines(keepends=True)
                self._replace(name, [line for _, line in sorted(zip(keys, lines, strict=True))])
                keys.sort()

    def _read(self, name: str, kept: set[Key]) -> list[tuple[Key, bytes]]:
        """The lines to keep, in order, the first of those with equal keys."""
        path = self.folder / name
        if not kept or not path.exists():
            return []
        lines = path.read_bytes().split(b"\n")[:-1]
        keys = [
            (self.place.get(record["run"], -1), record.get("round")) for record in read_lines(path)
        ]
        found: dict[Any, bytes] = {}
        for key, line in zip(keys, lines, strict=True):
            if key in kept:
                found.setdefault(key, line + b"\n")
        return sorted(found.items())

    def _replace(self, name: str, lines: list[bytes]) -> None:
        with replacing(self.folder / name, "wb") as file:
            file.writelines(lines)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        self.files[name].write(json.dumps(_finite(record), allow_nan=False).encode() + b"\n")
        self.keys[name].append((self.place[record["run"]], record["round"]))


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The whole records of a file that may still be growing."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").split("\n")[
        :-1
    ]  # a last line without its end is still being written
    try:
        found = [json.loads(line) for line in lines]
    except ValueError as error:
        raise DataError(f"{path} is damaged: {error}") from None
    if odd := [
        k for k, record in enumerate(found) if not isinstance(record, dict) or "run" not in record
    ]:
        raise DataError(f"{path} is damaged: line {odd[0] + 1} is no record of a run")
    return found


def _finite(value: Any) -> Any:
    """JSON has no NaN; what is not a number is null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list | tuple) else value
