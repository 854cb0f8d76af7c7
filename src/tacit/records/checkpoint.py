"""Checkpoints: tensors and plain values in one file.

A checkpoint is written as a whole or not at all, and reading it runs no code. A study has one per
block of runs, `checkpoints/block-<k>.pt`, where k is the number of the block's first run. A run's
state is kept under the run's id, so that a resumed study can divide its runs into other blocks.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tacit.core.errors import DataError, StudyError
from tacit.core.files import replacing

SavedRun = dict[str, Any]  # as RunState saves it; of a finished run, only its round and status


def encode(state: Mapping[str, Any]) -> bytes:
    """The bytes of a checkpoint's file."""
    file = io.BytesIO()
    torch.save(dict(state), file)
    return file.getvalue()


def decode(encoded: bytes, name: str = "a checkpoint") -> dict[str, Any]:
    """Undoes `encode`; weights_only keeps pickle from importing anything."""
    try:
        state = torch.load(io.BytesIO(encoded), map_location="cpu", weights_only=True)
    except Exception:  # a damaged file can fail anywhere in torch's reader
        state = None
    if not isinstance(state, dict):
        raise DataError(
            f"{name} cannot be read: it is damaged, or not a checkpoint; delete it to start over"
        )
    return state


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


def block_state(key: str, runs: Mapping[str, SavedRun], *, done: bool) -> bytes:
    """A block's checkpoint; `key` stands for the study and its data."""
    return encode({"key": key, "done": done, "runs": dict(runs)})


class Checkpoints:
    """The checkpoints of a study's folder."""

    def __init__(self, folder: Path, key: str) -> None:
        self.folder = folder / "checkpoints"
        self.key = key
        self.ended: dict[str, SavedRun] = {}  # the runs of finished blocks
        self.going: dict[str, SavedRun] = {}  # the runs of unfinished blocks
        self.blocks: dict[int, tuple[str, ...]] = {}  # unfinished block -> the runs in its file
        for path in sorted(self.folder.glob("block-*.pt")):
            self._add(path)
        for run in self.ended:
            self.going.pop(run, None)

    @property
    def rounds(self) -> dict[str, int]:
        """Each run's last round."""
        saved = {**self.going, **self.ended}
        return {run: int(state["round"]) for run, state in saved.items()}

    def path(self, block: int) -> Path:
        return self.folder / f"block-{block}.pt"

    def saved(self, block: int) -> bytes | None:
        """The checkpoint from which the block goes on; None if it has not been started."""
        path = self.path(block)
        return path.read_bytes() if path.exists() else None

    def write(self, block: int, encoded: bytes) -> None:
        write(self.path(block), encoded)

    def arrange(self, blocks: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Moves the states of unfinished runs into the files of the blocks that will be played.

        The states are no longer held here after that. The last block is written first: a file holds
        no run before the one that it is named after, so most of what is overwritten has already
        been written to another file. What a crash in between loses is computed again.
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
        checkpoint = load(path)
        if checkpoint.get("key") != self.key:
            raise StudyError(
                f"{self.folder.parent} was started with another study.yaml or other data, or by a"
                " version of tacit with other settings, and its rounds would not fit together;"
                " run the study into a new folder"
            )
        runs = checkpoint["runs"]
        if checkpoint["done"]:
            self.ended |= runs
            return
        block = int(path.stem.removeprefix("block-"))
        self.blocks[block] = tuple(runs)
        for run, state in runs.items():
            if run not in self.going or state["round"] > self.going[run]["round"]:
                self.going[run] = state
