"""The record of a study: one JSON line per run and round.

`history.jsonl` holds what follows from the study and its seed: if the same study is run twice, the
two files are equal to the byte. `timings.jsonl` holds the seconds of each round, and the entries of
a record whose names end in `_seconds`. Lines are appended as they come; at the end they are sorted
run by run, wherever the runs were computed. On resume, lines of rounds after a run's checkpoint are
dropped.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tacit.core.errors import DataError
from tacit.core.files import naming, read_at_most, replacing

LARGEST = 16 << 30  # bytes
FILES = ("history.jsonl", "timings.jsonl")
RoundKey = tuple[int, int]  # a run's position in the study, and the round


class History:
    """Appends to the two files of a study's folder.

    The lines that the files have already are kept up to each run's round in `rounds`.
    """

    def __init__(self, folder: Path, runs: Sequence[str], rounds: Mapping[str, int]) -> None:
        self.folder = folder
        self.positions = {run: position for position, run in enumerate(runs)}
        self.keys: dict[str, list[RoundKey]] = {}  # file -> the key of each of its lines
        played = self._keys_of(rounds)
        lines = {name: self._read(name, played) for name in FILES}
        if played - lines["history.jsonl"].keys():
            path = folder / "history.jsonl"
            raise DataError(
                f"{path} has lost lines since the checkpoint; delete checkpoints/ to start over"
            )
        for name in FILES:
            self.keys[name] = list(lines[name])
            self._replace(name, list(lines[name].values()))
        self.files = {name: open(folder / name, "ab") for name in FILES}  # noqa: SIM115  (closed by close)

    def add(self, record: Mapping[str, Any], seconds: float) -> None:
        """Appends one run's round."""
        line: dict[str, Any] = {}
        timing = {"run": record["run"], "round": record["round"]}
        timing["seconds"] = round(seconds, 6)
        for name, value in record.items():
            if name.endswith("_seconds"):
                timing[name] = round(value, 6)
            else:
                line[name] = value
        self._write("history.jsonl", line)
        self._write("timings.jsonl", timing)

    def sync(self) -> None:
        """Brings all lines to the disk: after a power cut, no checkpoint may be ahead of them."""
        for name, file in self.files.items():
            with naming(self.folder / name):
                file.flush()
                os.fsync(file.fileno())

    def close(self) -> None:
        """Closes the files; lines that no longer fit on the disk are computed again on resume."""
        for file in self.files.values():
            with suppress(OSError):
                file.close()

    def arrange(self) -> None:
        """Closes the files and puts their lines in order, run by run."""
        self.sync()
        self.close()
        for name, keys in self.keys.items():
            if keys == sorted(keys):
                continue
            lines = (self.folder / name).read_bytes().splitlines(keepends=True)
            in_order = sorted(zip(keys, lines, strict=True))
            self._replace(name, [line for _, line in in_order])
            keys.sort()

    def _keys_of(self, rounds: Mapping[str, int]) -> set[RoundKey]:
        """The keys of each run's first rounds."""
        keys: set[RoundKey] = set()
        for run, count in rounds.items():
            keys.update((self.positions[run], round) for round in range(1, count + 1))
        return keys

    def _read(self, name: str, wanted: set[RoundKey]) -> dict[RoundKey, bytes]:
        """A file's lines with the wanted keys, in order; of lines with equal keys, the first."""
        path = self.folder / name
        if not wanted or not path.exists():
            return {}
        records = read_lines(path)
        lines = path.read_bytes().split(b"\n")[:-1]
        by_key: dict[Any, bytes] = {}
        for record, line in zip(records, lines, strict=True):
            key = (self.positions.get(record["run"], -1), record.get("round"))
            if key in wanted:
                by_key.setdefault(key, line + b"\n")
        return dict(sorted(by_key.items()))

    def _replace(self, name: str, lines: list[bytes]) -> None:
        with replacing(self.folder / name, "wb") as file:
            file.writelines(lines)

    def _write(self, name: str, record: Mapping[str, Any]) -> None:
        text = json.dumps(_finite(record), allow_nan=False)
        with naming(self.folder / name):
            self.files[name].write(text.encode() + b"\n")
        key = (self.positions[record["run"]], record["round"])
        self.keys[name].append(key)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The complete records of a file that may still be growing."""
    if not path.exists():
        return []
    try:
        # a last line without its end is still being written
        lines = read_at_most(path, LARGEST).split(b"\n")[:-1]
        records = [json.loads(line) for line in lines]
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    for number, record in enumerate(records, 1):
        if not _is_record(record):
            raise DataError(f"{path} is damaged: line {number} is not a record of a run")
    return records


def _is_record(record: Any) -> bool:
    if not isinstance(record, dict):
        return False
    return isinstance(record.get("run"), str) and isinstance(record.get("round"), int)


def _finite(value: Any) -> Any:
    """The value as JSON can hold it: NaN and the infinities become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
