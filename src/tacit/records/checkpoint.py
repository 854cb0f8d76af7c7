"""Checkpoints: tensors and plain values in one file, written whole or not at all, read without running anything.

A study has one checkpoint per block of runs, `checkpoints/block-<k>.pt`, named by the number of its first run. A run's
state is kept under the run's id, so that a study can go on in other blocks than those it was stopped in.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tacit.core.errors import DataError, StudyError
from tacit.core.files import replacing

State = dict[
    str, Any
]  # a run's, as RunState saves it; of a finished one, its round and status alone


def encode(state: Mapping[str, Any]) -> bytes:
    """A checkpoint as it stands in a file."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    return file.getvalue()


def decode(encoded: bytes, name: str = "a checkpoint") -> dict[str, Any]:
    """Undoes `encode`; weights_only keeps pickle from importing anything."""
    try:
        found = torch.load(io.BytesIO(encoded), map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can fail anywhere in torch's reader
        found = None
    if not isinstance(found, dict):
        raise DataError(
            f"{name} cannot be read: it is damaged, or no checkpoint; delete it to start over"
        )
    return found


def write(path: Path, encoded: bytes) -> None:
    """Replaces the file at `path`."""
    with replacing(path, "wb") as file:
        file.write(encoded)


def save(path: Path, state: Mapping[str, Any]) -> None:
    """Replaces the checkpoint at `path`."""
    write(path, encode(state))


def load(path: Path) -> dict[str, Any]:
    """Reads a checkpoint."""
    return decode(path.read_bytes(), str(path))


def block_state(key: str, runs: Mapping[str, State], *, done: bool) -> bytes:
    """A block's checkpoint; `key` says of which study, on which data."""
    return encode({"key": key, "done": done, "runs": dict(runs)})


class Checkpoints:
    """The checkpoints of a study's folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder, self.key = folder / "checkpoints", key
        self.ended: dict[str, State] = {}  # the runs of finished blocks
        self.going: dict[str, State] = {}  # those of the others
        self.blocks: dict[int, tuple[str, ...]] = {}  # which runs an unfinished block's file holds
        for path in sorted(self.folder.glob("block-*.pt")):
            self._add(path)
        self.going = {run: state for run, state in self.going.items() if run not in self.ended}

    @property
    def rounds(self) -> dict[str, int]:
        """How far each run has come."""
        return {run: int(state["round"]) for run, state in {**self.going, **self.ended}.items()}

    def path(self, block: int) -> Path:
        return self.folder / f"block-{block}.pt"

    def saved(self, block: int) -> bytes | None:
        """Where the block goes on, if it has come anywhere."""
        return self.path(block).read_bytes() if self.path(block).exists() else None

    def write(self, block: int, encoded: bytes) -> None:
        write(self.path(block), encoded)

    def arrange(self, blocks: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Sorts what is saved of unfinished runs into the files of the blocks that will be played, and forgets it here.

        The last block first: a file holds no run before the one that it is named by, so what is overwritten has mostly
        been written elsewhere; what a crash just here loses is computed again.
        """
        wanted = {index: tuple(runs) for index, runs in blocks}
        for index in sorted(wanted, reverse=True):
            states = {run: self.going[run] for run in wanted[index] if run in self.going}
            if states and self.blocks.get(index) != tuple(states):
                self.write(index, block_state(self.key, states, done=False))
        for index in self.blocks.keys() - wanted.keys():
            self.path(index).unlink()
        self.going = {}

    def _add(self, path: Path) -> None:
        found = load(path)
        if found.get("key") != self.key:
            raise StudyError(
                f"{self.folder.parent} was started with another study.yaml or other data, or by a version of tacit"
                " with other settings, and its rounds would not fit together; run the study into a new folder"
            )
        if found["done"]:
            self.ended |= found["runs"]
            return
        self.blocks[int(path.stem.partition("-")[2])] = tuple(found["runs"])
        for run, state in found["runs"].items():
            if run not in self.going or state["round"] > self.going[run]["round"]:
                self.going[run] = state
