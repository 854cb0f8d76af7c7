"""What clients remember between rounds: rows in memory, or, where they would be many, in a file.

A memory (SCAFFOLD's c_k, the error feedback of `top_k`) is as large as the model, and every client
that has ever taken part has one. In a file, a round reads and writes the memories of its own
clients only, and a checkpoint holds a map from client to slot in place of the rows. A client's next
memory goes to a free slot. Its old slot is free once a checkpoint has been written that does not
need it, so a study that is stopped in between resumes to the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit.core.errors import DataError
from tacit.core.rows import Rows, count_bytes, pick
from tacit.rounds.slot_file import Entry, SlotFile, SlotMap

IN_MEMORY = 32 * 2**20  # bytes: memories of all clients up to this size need no file
BESIDE = 1024  # bytes that a client's entry takes beside its rows, as objects and in a checkpoint

Memories = Mapping[int, Rows]  # of the clients that have any; one-row tensors


@dataclass(frozen=True)
class FileStorage:
    """Where a run's memories go if there are many: to this file, or to a temporary one."""

    population: int
    path: Path | None
    device: torch.device

    def is_needed(self, rows: Rows) -> bool:
        """Whether a memory of this size for every client is too much to hold."""
        return self.population * (count_bytes(rows) + BESIDE) > IN_MEMORY


class StoredMemories(Mapping[int, Rows]):
    """Memories in a file. It does not change: `updated` gives the next one, over the same file."""

    def __init__(self, file: SlotFile, slots: SlotMap, device: torch.device) -> None:
        self.file = file
        self.slots = slots
        self.device = device

    @classmethod
    def new(cls, rows: Rows, storage: FileStorage) -> StoredMemories:
        """An empty one, for memories like this."""
        slots = np.full(storage.population, -1, dtype=np.int32)
        file = SlotFile(Entry.all_of(rows), storage.path)
        return cls(file, slots, storage.device)

    def updated(self, changed: Memories) -> StoredMemories:
        """With these clients' next memories; this one stays valid until the next round."""
        is_temporary = self.file.path is None  # so that no checkpoint needs its old slots
        if is_temporary and len(self.file.free) < len(changed):
            self.file.release(self.slots)
        slots = self.slots.copy()
        for client, rows in changed.items():
            slots[client] = self.file.write(rows)
        return StoredMemories(self.file, slots, self.device)

    def saved(self, *, portable: bool) -> dict[str, Any]:
        """For a checkpoint: the map, once the file is safe on disk.

        If it is to be `portable`, it holds the rows themselves and needs no file.
        """
        if portable or self.file.path is None:
            return self._saved_rows()
        self.file.sync()
        self.file.saved = self.slots
        shapes = {}
        for entry in self.file.entries:
            dtype = str(entry.dtype).removeprefix("torch.")
            shapes[entry.name] = (list(entry.shape), dtype)
        return {"slots": torch.from_numpy(self.slots), "shapes": shapes}

    def _saved_rows(self) -> dict[str, Any]:
        memories = list(self.values())
        packed = {}
        if memories:
            for entry in self.file.entries:
                rows = [memory[entry.name].cpu() for memory in memories]
                packed[entry.name] = torch.cat(rows)
        return {"clients": torch.tensor(list(self)), "rows": packed}

    def checkpointed(self) -> None:
        """What was last saved has been written: slots that it does not need are free."""
        if self.file.saved is not None:
            self.file.release(self.slots, self.file.saved)

    def discard(self) -> None:
        """Closes the file and removes it."""
        self.file.discard()

    def __getitem__(self, client: int) -> Rows:
        if client not in self:
            raise KeyError(client)
        rows = self.file.read(int(self.slots[client]))
        return _on_device(rows, self.device)

    def __contains__(self, client: object) -> bool:
        if not isinstance(client, int | np.integer):
            return False
        return bool(0 <= client < len(self.slots) and self.slots[client] >= 0)

    def __iter__(self) -> Iterator[int]:
        return iter(np.flatnonzero(self.slots >= 0).tolist())

    def __len__(self) -> int:
        return int((self.slots >= 0).sum())


def updated(memories: Memories, changed: Memories, storage: FileStorage) -> Memories:
    """The memories with these clients' next ones."""
    if isinstance(memories, StoredMemories):
        return memories.updated(changed)
    if not changed:
        return memories
    first = next(iter(changed.values()))
    if not memories and storage.is_needed(first):
        return StoredMemories.new(first, storage).updated(changed)
    return {**memories, **changed}


def saved(memories: Memories, *, portable: bool) -> dict[Any, Any]:
    """What a checkpoint keeps of them."""
    if isinstance(memories, StoredMemories):
        return memories.saved(portable=portable)
    return dict(memories)


def restored(checkpoint: Mapping[Any, Any], storage: FileStorage) -> Memories:
    """The memories, from what `saved` gave."""
    if "rows" in checkpoint:
        return _restored_rows(checkpoint, storage)
    if "slots" in checkpoint:
        return _restored_slots(checkpoint, storage)
    return {client: _on_device(rows, storage.device) for client, rows in checkpoint.items()}


def _restored_rows(checkpoint: Mapping[str, Any], storage: FileStorage) -> Memories:
    memories = {}
    for row, client in enumerate(checkpoint["clients"].tolist()):
        memory = pick(checkpoint["rows"], slice(row, row + 1))
        memories[client] = _on_device(memory, storage.device)
    return updated({}, memories, storage)


def _restored_slots(checkpoint: Mapping[str, Any], storage: FileStorage) -> StoredMemories:
    if storage.path is None:
        raise DataError(
            "the checkpoint's client memories are in files of the study's folder; resume it there"
        )
    example = {}
    for name, (shape, dtype) in checkpoint["shapes"].items():
        example[name] = torch.empty(shape, dtype=getattr(torch, dtype))
    slots = checkpoint["slots"].cpu().numpy()
    file = SlotFile(Entry.all_of(example), storage.path, used=slots)
    return StoredMemories(file, slots, storage.device)


def _on_device(rows: Rows, device: torch.device) -> Rows:
    return {name: value.to(device) for name, value in rows.items()}
