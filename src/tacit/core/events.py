"""What an engine tells while it works. Library code never prints: it calls `on_event`, and the command line renders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StudyStarted:
    folder: str
    runs: int
    rounds: int  # of all runs together
    done: int  # of those, finished before (a resumed study)
    grid: Mapping[str, tuple[str, str]]  # each run's row and column in the comparison


@dataclass(frozen=True)
class RoundFinished:
    run: str
    round: int
    metrics: Mapping[str, Any]

    @property
    def score(self) -> float | None:
        """The global model's accuracy or, in a regression, R2; None where the run diverged."""
        found: float | None = self.metrics.get("r2", self.metrics.get("accuracy"))
        return found


@dataclass(frozen=True)
class RunFinished:
    run: str
    round: int
    status: str  # finished | target | patience | diverged
    rounds_left: int


@dataclass(frozen=True)
class Downloading:
    file: str
    done: int  # bytes
    total: int


@dataclass(frozen=True)
class Warned:
    text: str


@dataclass(frozen=True)
class Noted:
    text: str


@dataclass(frozen=True)
class Advanced:
    """Work of which the amount is known."""

    what: str
    done: int
    total: int


Event = Warned | Noted | Advanced | StudyStarted | RoundFinished | RunFinished | Downloading
OnEvent = Callable[[Event], None]


def ignore(event: Event) -> None:
    """The default listener."""
