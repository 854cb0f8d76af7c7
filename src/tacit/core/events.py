"""What an engine tells while it works. Library code never prints: it calls `on_event`, and the command line renders.

Events hold plain values, and all that an experiment tracker needs: a study's settings and its runs', the metrics of
each round, and the files that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.core.errors import StudyError, shown


@dataclass(frozen=True)
class StudyStarted:
    folder: str
    runs: int
    rounds: int  # of all runs together
    done: int  # of those, finished before (a resumed study)
    grid: Mapping[str, tuple[str, str]]  # each run's row and column in the comparison
    study: Mapping[str, Any] = field(default_factory=dict)  # all of its settings, as in study.yaml
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # each run's, by its id


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
    """It comes once; or again, where the process ended before that was written down and the study is resumed."""

    run: str
    round: int
    status: str  # finished | target | patience | diverged
    rounds_left: int


@dataclass(frozen=True)
class ModelSaved:
    """A run's model is in its file; it comes before the run's end. A block that is played again saves it again."""

    run: str
    client: int | None  # whose own model it is; None: the global one
    path: str


@dataclass(frozen=True)
class TableWritten:
    """A table of the results, a CSV file."""

    name: str
    path: str


@dataclass(frozen=True)
class ReportWritten:
    """The last event of a study."""

    path: str


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


Progress = Warned | Noted | Advanced | Downloading
Event = (
    Progress
    | StudyStarted
    | RoundFinished
    | ModelSaved
    | RunFinished
    | TableWritten
    | ReportWritten
)
OnEvent = Callable[[Event], None]
Listeners = OnEvent | Sequence[OnEvent]


def ignore(event: Event) -> None:
    """The default listener."""


def tell(listeners: Listeners) -> OnEvent:
    """One listener that tells all of these, each event in their order.

    What a listener raises reaches whoever started the work, and listeners after it do not hear that event.

    >>> tell([print, ignore])(Noted("hello"))
    Noted(text='hello')
    """
    if callable(listeners):
        return listeners
    several = isinstance(listeners, Sequence) and not isinstance(listeners, str)
    if not several or not all(map(callable, listeners)):
        raise StudyError(
            f"on_event: expected a function of an event, or a list of such, got {shown(listeners)}"
        )
    each = tuple(listeners)

    def tell_each(event: Event) -> None:
        for listener in each:
            listener(event)

    return tell_each
