"""The events that an engine reports while it works.

Library code never prints: it calls `on_event`, and the command line shows the event. Events hold
plain values, and all that an experiment tracker needs: the settings of a study and of its runs, the
metrics of each round, and the files that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tacit.core.errors import StudyError, shown

FIRST = 2.0  # seconds until a line first tells of progress
THEN = 10.0  # seconds from one line to the next


@dataclass(frozen=True)
class StudyStarted:
    """The first event of a study."""

    folder: str
    runs: int
    rounds: int  # of all runs together
    done: int  # rounds that were finished before; more than 0 when a study is resumed
    grid: Mapping[str, tuple[str, str]]  # run -> its row and column in the comparison
    study: Mapping[str, Any] = field(default_factory=dict)  # all its settings, as in study.yaml
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # run -> its settings
    metric: str = "accuracy"  # that decides
    lowest_is_best: bool = False  # by this metric


@dataclass(frozen=True)
class RoundFinished:
    """A run has finished a round."""

    run: str
    round: int
    metrics: Mapping[str, Any]
    metric: str = "accuracy"  # that decides

    @property
    def score(self) -> float | None:
        """The global model's figure by the metric that decides; None where the run diverged."""
        score: float | None = self.metrics.get(self.metric)
        return score


@dataclass(frozen=True)
class RunFinished:
    """A run has ended.

    It comes once per run. It comes again in a resumed study if the process ended before the end of
    the run was written down.
    """

    run: str
    round: int
    status: str  # finished | target | patience | diverged
    rounds_left: int


@dataclass(frozen=True)
class ModelSaved:
    """A run's model is in its file.

    It comes before the run's end. It comes again in a resumed study that plays the block again.
    """

    run: str
    client: int | None  # the client whose own model it is; None for the global model
    path: str


@dataclass(frozen=True)
class TableWritten:
    """A table of the results is in its CSV file."""

    name: str
    path: str


@dataclass(frozen=True)
class ReportWritten:
    """The report is in its file: the last event of a study."""

    path: str


@dataclass(frozen=True)
class Downloading:
    """Progress of a download."""

    file: str
    done: int  # bytes
    total: int


@dataclass(frozen=True)
class Warned:
    """Something that the user should look into."""

    text: str


@dataclass(frozen=True)
class Noted:
    """Something that is good to know."""

    text: str


@dataclass(frozen=True)
class Advanced:
    """Progress of work whose amount is known."""

    what: str  # what is counted, such as "elements encrypted"
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
    """One listener that passes each event to all of these, in their order.

    An exception of a listener ends the work and reaches its caller; the listeners after it do not
    get that event.

    >>> tell([print, ignore])(Noted("hello"))
    Noted(text='hello')
    """
    if callable(listeners):
        return listeners
    is_list = isinstance(listeners, Sequence) and not isinstance(listeners, str)
    if not is_list or not all(callable(listener) for listener in listeners):
        raise StudyError(
            "on_event: expected a function of an event, or a list of such functions,"
            f" got {shown(listeners)}"
        )
    ordered = tuple(listeners)

    def tell_all(event: Event) -> None:
        for listener in ordered:
            listener(event)

    return tell_all
