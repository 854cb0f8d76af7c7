"""What clients remember between rounds: rows in memory, or, where they would be many, in a file.

A memory (SCAFFOLD's c_k, the error feedback of `top_k`) is as large as the model, and every client that has ever taken
part has one. In a file, a round reads and writes those of its own clients only, and a checkpoint holds a map from
client to slot in place of the rows. A client's next memory goes to a free slot. Its old slot is free once a checkpoint
has been written that does not need it, so a study that is stopped in between resumes to the same bits.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tacit.core.errors import DataError, StudyError
from tacit.core.rows import Rows, count_bytes

IN_MEMORY = (
    32 * 2**20
)  # bytes: if all clients' memories are less, they stay in memory and in the checkpoint
BESIDE = 1024  # bytes that a client's entry takes beside its rows, as objects and in a checkpoint
ALIGNED = 8  # bytes at whose multiples an entry begins, whatever its type

Memories = Mapping[int, Rows]  # of the clients that have any; one-row tensors


@dataclass(frozen=True)
class Shelf:
    """Where a run's memories go if there are many: to this file, or to a temporary one."""

    population: int
    path: Path | None
    device: torch.device

    def is_needed(self, rows: Rows) -> bool:
        """Whether so much for every client is too much to hold."""
        return self.population * (count_bytes(rows) + BESIDE) > IN_MEMORY


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
        found, start = [], 0
        for name, value in sorted(rows.items()):
            end = start + value.numel() * value.element_size()
            found.append(cls(name, tuple(value.shape), value.dtype, start, end))
            start = -(-end // ALIGNED) * ALIGNED
        return tuple(found)


class Slots:
    """A file of slots of one size. `free` lists those that neither a checkpoint nor the run needs."""

    def __init__(
        self, entries: Sequence[Entry], path: Path | None, *, used: NDArray[np.int32] | None = None
    ) -> None:
        self.entries, self.path = tuple(entries), path
        self.size = -(-max(entry.end for entry in entries) // ALIGNED) * ALIGNED
        self.count, self.free = 0, list[int]()
        self.saved: NDArray[np.int32] | None = used  # the map that was last given to a checkpoint
        self.file = self._open(used)
        weakref.finalize(self, self.file.close)  # a simulation that is dropped leaves no open file
        if used is not None:
            self.release(used)

    def write(self, rows: Rows) -> int:
        """Puts a memory into a free slot, and says into which."""
        if Entry.all_of(rows) != self.entries:
            texts = [", ".join(map(str, entries)) for entries in (self.entries, Entry.all_of(rows))]
            raise StudyError(
                f"a client's memory must keep its entries and their shapes: {texts[0]}; then {texts[1]}"
            )
        slot = self.free.pop() if self.free else self.count
        buffer = torch.zeros(self.size, dtype=torch.uint8)
        for entry in self.entries:
            buffer[entry.start : entry.end] = (
                rows[entry.name].detach().cpu().reshape(-1).view(torch.uint8)
            )
        data = memoryview(buffer.numpy().data)
        try:
            self.file.seek(slot * self.size)
            while data:
                data = data[self.file.write(data) :]
        except OSError as error:
            where = self.path or tempfile.gettempdir()
            raise DataError(
                f"cannot write the clients' memories to {where}: {error.strerror}"
            ) from None
        self.count = max(self.count, slot + 1)
        return slot

    def read(self, slot: int) -> Rows:
        """The memory in a slot, as CPU tensors."""
        buffer = torch.empty(self.size, dtype=torch.uint8)
        view, got = memoryview(buffer.numpy().data), 0
        self.file.seek(slot * self.size)
        while got < self.size:
            more = self.file.readinto(view[got:])  # type: ignore[attr-defined]
            if not more:
                raise _lost(self.path)
            got += more
        return {
            e.name: buffer[e.start : e.end].view(e.dtype).reshape(e.shape) for e in self.entries
        }

    def release(self, *maps: NDArray[np.int32]) -> None:
        """Frees every slot that none of these maps names."""
        used = np.zeros(self.count, dtype=bool)
        for slots in maps:
            used[slots[slots >= 0]] = True
        self.free = np.flatnonzero(~used).tolist()

    def _open(self, used: NDArray[np.int32] | None) -> IO[bytes]:
        if self.path is None:
            return tempfile.TemporaryFile(buffering=0)
        if used is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            return open(self.path, "w+b", buffering=0)
        self.count = self.path.stat().st_size // self.size if self.path.exists() else 0
        if self.count <= used.max(initial=-1):
            raise _lost(self.path)
        return open(self.path, "r+b", buffering=0)


class Stored(Mapping[int, Rows]):
    """Memories in a file. It does not change: `updated` gives the next one, over the same file."""

    def __init__(self, file: Slots, slots: NDArray[np.int32], device: torch.device) -> None:
        self.file, self.slots, self.device = (
            file,
            slots,
            device,
        )  # a slot per client, -1 for those without a memory

    @classmethod
    def new(cls, rows: Rows, shelf: Shelf) -> Stored:
        """An empty one, for memories like this."""
        nobody = np.full(shelf.population, -1, dtype=np.int32)
        return cls(Slots(Entry.all_of(rows), shelf.path), nobody, shelf.device)

    def updated(self, kept: Mapping[int, Rows]) -> Stored:
        """With these clients' next memories; this one stays valid until the next round."""
        if self.file.path is None and len(self.file.free) < len(
            kept
        ):  # no checkpoint ever needs a temporary file
            self.file.release(self.slots)
        slots = self.slots.copy()
        for client, rows in kept.items():
            slots[client] = self.file.write(rows)
        return Stored(self.file, slots, self.device)

    def saved(self, *, whole: bool) -> dict[str, Any]:
        """For a checkpoint: the map, once the file is safe on disk; or the rows themselves, to travel without it."""
        if whole or self.file.path is None:
            found = list(self.values())
            packed = {
                e.name: torch.cat([rows[e.name].cpu() for rows in found])
                for e in self.file.entries
                if found
            }
            return {"clients": torch.tensor(list(self)), "rows": packed}
        os.fsync(self.file.file.fileno())
        self.file.saved = self.slots
        shapes = {
            e.name: (list(e.shape), str(e.dtype).removeprefix("torch.")) for e in self.file.entries
        }
        return {"slots": torch.from_numpy(self.slots), "shapes": shapes}

    def checkpointed(self) -> None:
        """What was last saved has been written: slots that it does not need may be written over."""
        if self.file.saved is not None:
            self.file.release(self.slots, self.file.saved)

    def discard(self) -> None:
        """Closes the file and removes it."""
        self.file.file.close()
        if self.file.path:
            self.file.path.unlink(missing_ok=True)

    def __getitem__(self, client: int) -> Rows:
        if client not in self:
            raise KeyError(client)
        return {
            name: rows.to(self.device)
            for name, rows in self.file.read(int(self.slots[client])).items()
        }

    def __contains__(self, client: object) -> bool:
        if not isinstance(client, int | np.integer) or not 0 <= client < len(self.slots):
            return False
        return bool(self.slots[client] >= 0)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.slots >= 0).tolist())

    def __len__(self) -> int:
        return int((self.slots >= 0).sum())


def updated(memories: Memories, kept: Mapping[int, Rows], shelf: Shelf) -> Memories:
    """The memories with these clients' next ones."""
    if not kept or isinstance(memories, Stored):
        return memories.updated(kept) if isinstance(memories, Stored) else memories
    first = next(iter(kept.values()))
    return (
        {**memories, **kept}
        if memories or not shelf.is_needed(first)
        else Stored.new(first, shelf).updated(kept)
    )


def saved(memories: Memories, *, whole: bool) -> dict[Any, Any]:
    """What a checkpoint keeps of them."""
    return memories.saved(whole=whole) if isinstance(memories, Stored) else dict(memories)


def restored(found: Mapping[Any, Any], shelf: Shelf) -> Memories:
    """Undoes `saved`."""
    if "rows" in found:
        rows: Mapping[str, Tensor] = found["rows"]
        clients = enumerate(found["clients"].tolist())
        return updated(
            {},
            {k: {n: x[i : i + 1].to(shelf.device) for n, x in rows.items()} for i, k in clients},
            shelf,
        )
    if "slots" not in found:
        return {
            client: {name: x.to(shelf.device) for name, x in rows.items()}
            for client, rows in found.items()
        }
    if shelf.path is None:
        raise DataError(
            "the checkpoint's client memories are in files of the study's folder; resume it there"
        )
    like = {
        name: torch.empty(shape, dtype=getattr(torch, dtype))
        for name, (shape, dtype) in found["shapes"].items()
    }
    slots = found["slots"].cpu().numpy()
    return Stored(Slots(Entry.all_of(like), shelf.path, used=slots), slots, shelf.device)


def _lost(path: Path | None) -> DataError:
    return DataError(
        f"{path} has lost clients' memories since the checkpoint; delete checkpoints/ to start over"
    )
