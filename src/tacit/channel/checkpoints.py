"""What a party keeps on disk of a session that lasts, so that it can go on after its end.

The last two checkpoints are kept: the others may be one behind, or one ahead. They are readable by
their owner alone, and hold arrays, numbers and text. They refuse bytes, since keys are bytes.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.channel.frames import GarbageError
from tacit.channel.messages import Contents, decode, pieces
from tacit.core.errors import DataError
from tacit.core.events import OnEvent, Warned, ignore
from tacit.core.files import read_at_most, replacing

KIND = b"tacit checkpoint "
MARK = KIND + b"1\n"
DIGEST = 32  # bytes
KEPT = 2
LARGEST = 1 << 40  # bytes
STATE = "state "  # before the names of a state, so that they differ from our own
NAME = re.compile(r"checkpoint-([1-9][0-9]{0,17})")
UNFINISHED = re.compile(r"\.checkpoint-[1-9][0-9]{0,17}\.\w+")  # by who died writing


@dataclass(frozen=True)
class Checkpoint:
    """The state of a program after a step, with what its session is about."""

    step: int
    session: Mapping[str, Any]
    state: Contents


class CheckpointFolder:
    """The folder that holds them, of one party and one session."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)

    def read(self, on_event: OnEvent = ignore) -> dict[int, Checkpoint]:
        """Those that are there and whole, by their steps; a damaged one counts as absent."""
        checkpoints = {}
        for step in self._steps():
            checkpoint = self._read(step)
            if checkpoint is None:
                on_event(Warned(f"{self._path(step)} is damaged, so it is left out"))
            else:
                checkpoints[step] = checkpoint
        return checkpoints

    def save(self, checkpoint: Checkpoint) -> None:
        """Writes it, whole or not at all, and then removes all but the last two up to it."""
        message = {"session": dict(checkpoint.session), **_marked(checkpoint.state)}
        digest = hashlib.sha256()
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with replacing(self._path(checkpoint.step), "wb", private=True) as file:
            file.write(MARK + bytes(DIGEST))
            for piece in pieces(message):
                digest.update(piece)
                file.write(piece)
            file.seek(len(MARK))
            file.write(digest.digest())
        for step in self._steps():
            if not checkpoint.step - KEPT < step <= checkpoint.step:
                self._path(step).unlink(missing_ok=True)

    def drop_after(self, step: int) -> None:
        """Removes those beyond a step, from where the session goes on anew, and unfinished ones."""
        for later in self._steps():
            if later > step:
                self._path(later).unlink(missing_ok=True)
        for path in self._unfinished():
            path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Removes all, as the session is over; the folder too, if nothing else is in it."""
        self.drop_after(0)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _steps(self) -> list[int]:
        if not self.folder.is_dir():
            return []
        matches = [NAME.fullmatch(name) for name in os.listdir(self.folder)]
        return sorted(int(match[1]) for match in matches if match)

    def _unfinished(self) -> list[Path]:
        if not self.folder.is_dir():
            return []
        return [path for path in self.folder.iterdir() if UNFINISHED.fullmatch(path.name)]

    def _path(self, step: int) -> Path:
        return self.folder / f"checkpoint-{step}"

    def _read(self, step: int) -> Checkpoint | None:
        path = self._path(step)
        try:
            raw = memoryview(read_at_most(path, LARGEST))
        except OSError as error:
            raise DataError(f"cannot read the checkpoint {path}: {error.strerror}") from None
        if raw[: len(KIND)] == KIND and raw[: len(MARK)] != MARK:
            raise DataError(
                f"{path} is a checkpoint of another version of tacit; go on with that version, "
                "or remove it"
            )
        start = len(MARK) + DIGEST
        digest = hashlib.sha256(raw[start:]).digest()
        if raw[:start] != MARK + digest:
            return None
        try:
            message = decode(raw[start:], LARGEST)
        except GarbageError:
            return None
        session = message.pop("session", None)
        if not isinstance(session, dict):
            return None
        state = {name.removeprefix(STATE): value for name, value in message.items()}
        return Checkpoint(step, session, state)


def _marked(state: Contents) -> dict[str, Any]:
    for name, value in state.items():
        if isinstance(value, bytes | bytearray | memoryview):
            kind = type(value).__name__
            raise DataError(
                f"a checkpoint holds no bytes, since keys are bytes; got {name} of type {kind}"
            )
    return {f"{STATE}{name}": value for name, value in state.items()}
