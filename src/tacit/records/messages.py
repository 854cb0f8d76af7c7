"""What a worker sends while it plays a block of runs.

Messages hold plain values and bytes, so that they can go through a pipe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RoundPlayed:
    """A run has finished a round."""

    record: dict[str, Any]  # the line for history.jsonl
    seconds: float


@dataclass(frozen=True)
class BlockSaved:
    """A checkpoint from which the block can go on."""

    rounds: dict[str, int]  # run -> its last round in the checkpoint
    state: bytes


@dataclass(frozen=True)
class ModelTrained:
    """A model of a run that has ended: the global one, or a client's own."""

    run: str
    client: int | None  # None for the global model
    state: bytes

    @property
    def name(self) -> str:
        """The name of its file."""
        if self.client is None:
            return self.run
        return f"{self.run}-client-{self.client}"


@dataclass(frozen=True)
class RunAssessed:
    """What was found out about the last model of a run that has ended."""

    run: str
    findings: dict[str, Any]


@dataclass(frozen=True)
class BlockEnded:
    """All runs of the block have ended; with the block's last checkpoint."""

    runs: dict[str, tuple[int, str]]  # run -> its last round and status
    state: bytes


Message = RoundPlayed | BlockSaved | ModelTrained | RunAssessed | BlockEnded
