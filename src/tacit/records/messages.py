"""What comes of a block of runs while it is played: plain values and bytes, which can go through a pipe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class RoundPlayed:
    """A run's round."""

    record: dict[str, Any]
    seconds: float


@dataclass(frozen=True)
class BlockSaved:
    """Where the block can go on."""

    rounds: dict[str, int]
    state: bytes


@dataclass(frozen=True)
class ModelTrained:
    """A model of a run that has ended, the global one or a client's own."""

    run: str
    client: int | None
    state: bytes

    @property
    def name(self) -> str:
        return self.run if self.client is None else f"{self.run}-client-{self.client}"


@dataclass(frozen=True)
class BlockEnded:
    """The whole block, and its last checkpoint."""

    runs: dict[str, tuple[int, str]]  # each one's last round and status
    state: bytes


Message = RoundPlayed | BlockSaved | ModelTrained | BlockEnded
