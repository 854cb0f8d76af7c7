"""What a study's events add up to: how far it has come, and the comparison as it fills.

>>> tally = Tally(clock=lambda: 0.0)
>>> tally.add(StudyStarted("runs/x", 2, 4, 0, {"a": ("fedavg", "iid"), "b": ("fedprox", "iid")}))
>>> tally.add(RoundFinished("a", 1, {"accuracy": 0.5, "status": "running"}))
>>> tally.text()
'0 of 2 runs, 1 of 4 rounds; latest fedavg, iid 0.5000'
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from tacit.core.events import Event, RoundFinished, RunFinished, StudyStarted
from tacit.records.history import read_lines

FEW = 4  # rounds, before which nothing is said of the time that is left
State = Literal["waiting", "going", "finished", "diverged"]


class Cell(NamedTuple):
    """One place of the comparison: the mean over the seeds so far, and how far they are."""

    mean: float | None
    state: State
    runs: int


class Tally:
    """Add every event with `add`; the rest reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.since = clock, clock()
        self.folder, self.latest = "", ""
        self.runs = self.rounds = self.done = 0
        self.first, self.started = (
            self.since,
            -1,
        )  # when the first round was done, and how many were then
        self.grid: Mapping[str, tuple[str, str]] = {}
        self.scores: dict[str, float | None] = {}
        self.ended: dict[str, str] = {}  # run -> status

    def add(self, event: Event) -> None:
        match event:
            case StudyStarted(folder=folder, runs=runs, rounds=rounds, done=done, grid=grid):
                self.folder, self.runs, self.rounds, self.done, self.grid = (
                    folder,
                    runs,
                    rounds,
                    done,
                    grid,
                )
                self.since, self.started = self.clock(), -1
                for record in read_lines(Path(folder) / "history.jsonl") if done else []:
                    self._note(record["run"], record)
            case RoundFinished(run=run, metrics=metrics):
                self.done += 1
                if self.started < 0:
                    self.first, self.started = self.clock(), self.done
                self._note(run, metrics)
            case RunFinished(run=run, status=status, rounds_left=left):
                self.done += left
                self.ended[run] = status

    @property
    def elapsed(self) -> float:
        """Seconds since the study was started or resumed."""
        return self.clock() - self.since

    @property
    def rate(self) -> float:
        """Rounds per second since the first one, which had to wait for all that comes before rounds."""
        seconds = self.clock() - self.first
        return (
            (self.done - self.started) / seconds
            if self.done - self.started >= FEW and seconds > 0
            else 0.0
        )

    @property
    def left(self) -> float | None:
        """Seconds to go, once there is a rate to tell them by."""
        return (self.rounds - self.done) / self.rate if self.rate else None

    @property
    def counts(self) -> str:
        return f"{len(self.ended):,} of {self.runs:,} runs, {self.done:,} of {self.rounds:,} rounds"

    def text(self) -> str:
        """Where the study is, in one line."""
        over = self.done >= self.rounds
        when = (
            f"in {duration(self.elapsed)}"
            if over
            else f"about {duration(self.left)} left"
            if self.left
            else ""
        )
        parts = ", ".join(part for part in (self.counts, when) if part)
        if self.latest not in self.scores:
            return parts
        score = self.scores[self.latest]
        name = ", ".join(self.grid.get(self.latest, (self.latest,)))
        return f"{parts}; latest {name} {'diverged' if score is None else f'{score:.4f}'}"

    def cell(self, row: str, column: str) -> Cell:
        """What the comparison holds at this place."""
        runs = [run for run, place in self.grid.items() if place == (row, column)]
        scores = [self.scores[run] for run in runs if run in self.scores]
        if any(self.ended.get(run) == "diverged" for run in runs):
            return Cell(None, "diverged", len(runs))
        known = [score for score in scores if score is not None]
        state: State = (
            "finished"
            if all(run in self.ended for run in runs)
            else "going"
            if scores
            else "waiting"
        )
        return Cell(
            sum(known) / len(known) if known else None, state if runs else "waiting", len(runs)
        )

    def _note(self, run: str, metrics: Mapping[str, Any]) -> None:
        self.scores[run] = metrics.get("accuracy", metrics.get("r2"))
        self.latest = run
        if (status := metrics.get("status", "running")) != "running":
            self.ended[run] = status


def duration(seconds: float | None) -> str:
    """Seconds in words.

    >>> duration(50.4), duration(200), duration(5000)
    ('50 s', '3 min', '1 h 23 min')
    """
    whole = round(seconds or 0)
    if whole < 100:
        return f"{whole} s"
    hours, minutes = divmod(round(whole / 60), 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"
