"""The sum of a study's events: how far it has come, and the scores for the comparison so far.

>>> tally = Tally(clock=lambda: 0.0)
>>> tally.add(StudyStarted("runs/x", 2, 4, 0, {"a": ("fedavg", "iid"), "b": ("fedprox", "iid")}))
>>> tally.add(RoundFinished("a", 1, {"accuracy": 0.5, "status": "running"}))
>>> tally.text()
'0 of 2 runs, 1 of 4 rounds; latest fedavg, iid 0.5000'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tacit.core.events import Event, RoundFinished, RunFinished, StudyStarted
from tacit.records.history import read_lines

FEW = 4  # rounds, before which the time that is left is not estimated
CellState = Literal["waiting", "going", "finished", "diverged"]


class TallyCell(NamedTuple):
    """One cell of the comparison: the mean score of its runs (one per seed), and their state."""

    mean: float | None
    state: CellState
    runs: int


class Tally:
    """Adds up the events that are passed to `add`; the properties and methods read the sums."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.started_at = clock()
        self.folder = ""
        self.latest = ""  # the run of the latest round
        self.runs = 0
        self.rounds = 0
        self.done = 0  # rounds
        self.first_round_at: float | None = None  # when the first round was finished
        self.done_by_then = 0  # rounds that were done at that time
        self.metric = "accuracy"  # that decides
        self.lowest_is_best = False
        self.grid: Mapping[str, tuple[str, str]] = {}
        self.cells: dict[tuple[str, str], list[str]] = {}  # row and column -> runs
        self.scores: dict[str, float | None] = {}
        self.ended: dict[str, str] = {}  # run -> status

    def add(self, event: Event) -> None:
        match event:
            case StudyStarted():
                self._start(event)
            case RoundFinished(run=run, metrics=metrics):
                self.done += 1
                if self.first_round_at is None:
                    self.first_round_at = self.clock()
                    self.done_by_then = self.done
                self._note(run, metrics)
            case RunFinished(run=run, status=status, rounds_left=left):
                self.done += left
                self.ended[run] = status

    @property
    def elapsed(self) -> float:
        """Seconds since the study was started or resumed."""
        return self.clock() - self.started_at

    @property
    def rate(self) -> float:
        """Rounds per second since the end of the first one, or 0 after too few rounds.

        The first round does not count, since everything that comes before rounds delays it.
        """
        if self.first_round_at is None:
            return 0.0
        rounds = self.done - self.done_by_then
        seconds = self.clock() - self.first_round_at
        if rounds < FEW or seconds <= 0:
            return 0.0
        return rounds / seconds

    @property
    def left(self) -> float | None:
        """Seconds to go, if they can be estimated yet."""
        return (self.rounds - self.done) / self.rate if self.rate else None

    @property
    def counts(self) -> str:
        return f"{len(self.ended):,} of {self.runs:,} runs, {self.done:,} of {self.rounds:,} rounds"

    def text(self) -> str:
        """Where the study is, in one line."""
        text = self.counts
        if self.done >= self.rounds:
            text += f", in {duration(self.elapsed)}"
        elif self.left:
            text += f", about {duration(self.left)} left"
        if self.latest not in self.scores:
            return text
        score = self.scores[self.latest]
        result = "diverged" if score is None else f"{score:.4f}"
        name = ", ".join(self.grid.get(self.latest, (self.latest,)))
        return f"{text}; latest {name} {result}"

    def cell(self, row: str, column: str) -> TallyCell:
        """What the comparison holds in this row and column."""
        runs = self.cells.get((row, column), [])
        state = self._state(runs)
        scores = [self.scores.get(run) for run in runs]
        numbers = [score for score in scores if score is not None]
        if state == "diverged" or not numbers:
            return TallyCell(None, state, len(runs))
        return TallyCell(sum(numbers) / len(numbers), state, len(runs))

    def _state(self, runs: Sequence[str]) -> CellState:
        if any(self.ended.get(run) == "diverged" for run in runs):
            return "diverged"
        if runs and all(run in self.ended for run in runs):
            return "finished"
        if any(run in self.scores for run in runs):
            return "going"
        return "waiting"

    def _start(self, event: StudyStarted) -> None:
        self.folder = event.folder
        self.runs = event.runs
        self.rounds = event.rounds
        self.done = event.done
        self.grid = event.grid
        self.metric = event.metric
        self.lowest_is_best = event.lowest_is_best
        self.cells = {}
        for run, cell in event.grid.items():
            self.cells.setdefault(cell, []).append(run)
        self.started_at = self.clock()
        self.first_round_at = None
        if event.done:
            for record in read_lines(Path(event.folder) / "history.jsonl"):
                self._note(record["run"], record)

    def _note(self, run: str, metrics: Mapping[str, Any]) -> None:
        self.scores[run] = metrics.get(self.metric)
        self.latest = run
        status = metrics.get("status", "running")
        if status != "running":
            self.ended[run] = status


def duration(seconds: float | None) -> str:
    """Seconds in words.

    >>> duration(50.4), duration(200), duration(5000)
    ('50 s', '3 min', '1 h 23 min')
    """
    rounded = round(seconds or 0)
    if rounded < 100:
        return f"{rounded} s"
    hours, minutes = divmod(round(rounded / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
