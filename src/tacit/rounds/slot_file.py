"""A file of slots of one size: each holds one client's memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray

from tacit.core.errors import DataError, StudyError
from tacit.core.files import naming
from tacit.core.rows import Rows

ALIGNED = 8  # bytes at whose multiples an entry begins, whatever its type

SlotMap = NDArray[np.int32]  # each client's slot, -1 for clients without a memory


@dataclass(frozen=True)
class Entry:
    """One tensor of a memory, and where its bytes lie in a slot."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    start: int
    end: int

    def __str__(self) -> str:
        return f"{self.name} {self.shape} {self.dtype}"

    @classmethod
    def all_of(cls, rows: Rows) -> tuple[Entry, ...]:
        """An entry for each of these tensors, one after another."""
        entries = []
        start = 0
        for name, value in sorted(rows.items()):
            end = start + value.numel() * value.element_size()
            entries.append(cls(name, tuple(value.shape), value.dtype, start, end))
            start = _align(end)
        return tuple(entries)


class SlotFile:
    """The file. `free` lists the slots that neither a checkpoint nor the run needs.

    Without a path the file is a temporary one. `used` is the map of a checkpoint to go on from.
    """

    def __init__(
        self, entries: Sequence[Entry], path: Path | None, *, used: SlotMap | None = None
    ) -> None:
        self.entries = tuple(entries)
        self.path = path
        self.size = _align(max(entry.end for entry in entries))
        self.count = 0
        self.free: list[int] = []
        self.saved: SlotMap | None = used  # the map that was last given to a checkpoint
        self.file = self._open(used)
        weakref.finalize(self, self.file.close)  # a simulation that is dropped leaves no open file
        if used is not None:
            self.release(used)

    def write(self, rows: Rows) -> int:
        """Puts a memory into a free slot, and returns the slot's number."""
        self._check_entries(rows)
        slot = self.free.pop() if self.free else self.count
        buffer = torch.zeros(self.size, dtype=torch.uint8)
        for entry in self.entries:
            values = rows[entry.name].detach().cpu().reshape(-1)
            buffer[entry.start : entry.end] = values.view(torch.uint8)
        with naming(self.path or Path(tempfile.gettempdir())):
            self._write_bytes(slot, memoryview(buffer.numpy().data))
        self.count = max(self.count, slot + 1)
        return slot

    def read(self, slot: int) -> Rows:
        """The memory in a slot, as CPU tensors."""
        buffer = torch.empty(self.size, dtype=torch.uint8)
        view = memoryview(buffer.numpy().data)
        position = 0
        self.file.seek(slot * self.size)
        while position < self.size:
            count = self.file.readinto(view[position:])  # type: ignore[attr-defined]
            if not count:
                raise _lost(self.path)
            position += count
        rows = {}
        for entry in self.entries:
            values = buffer[entry.start : entry.end].view(entry.dtype)
            rows[entry.name] = values.reshape(entry.shape)
        return rows

    def release(self, *maps: SlotMap) -> None:
        """Frees every slot that none of these maps names."""
        used = np.zeros(self.count, dtype=bool)
        for slots in maps:
            used[slots[slots >= 0]] = True
        self.free = np.flatnonzero(~used).tolist()

    def sync(self) -> None:
        """Waits until everything that was written is safe on disk."""
        with naming(self.path or Path(tempfile.gettempdir())):
            os.fsync(self.file.fileno())

    def discard(self) -> None:
        """Closes the file and removes it."""
        self.file.close()
        if self.path:
            self.path.unlink(missing_ok=True)

    def _check_entries(self, rows: Rows) -> None:
        entries = Entry.all_of(rows)
        if entries != self.entries:
            first = ", ".join(map(str, self.entries))
            then = ", ".join(map(str, entries))
            raise StudyError(
                f"a client's memory must keep its entries and their shapes: {first}; then {then}"
            )

    def _write_bytes(self, slot: int, data: memoryview) -> None:
        self.file.seek(slot * self.size)
        while data:
            written = self.file.write(data)
            data = data[written:]

    def _open(self, used: SlotMap | None) -> IO[bytes]:
        if self.path is None:
            return tempfile.TemporaryFile(buffering=0)
        if used is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return open(self.path, "w+b", buffering=0)
        if self.path.exists():
            self.count = self.path.stat().st_size // self.size
        if self.count <= used.max(initial=-1):
            raise _lost(self.path)
        return open(self.path, "r+b", buffering=0)


def _align(position: int) -> int:
    """The next position at which an entry may begin."""
    return -(-position // ALIGNED) * ALIGNED


def _lost(path: Path | None) -> DataError:
    return DataError(
        f"{path} has lost clients' memories since the checkpoint; delete checkpoints/ to start over"
    )
