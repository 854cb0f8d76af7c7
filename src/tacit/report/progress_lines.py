"""Progress of a study on stderr, for the command line and for a Python script."""

from __future__ import annotations

import sys

from tacit.core.events import FIRST, THEN, Event, RoundFinished, RunFinished, StudyStarted
from tacit.records.tally import Tally


class ProgressLines:
    """A line after two seconds, then one about every ten.

    A study that took so long also gets one at its end.
    """

    def __init__(self, tally: Tally | None = None) -> None:
        self.tally = tally or Tally()
        self.next = float("inf")
        self.ended = False  # whether the line at the end has been written

    def on_event(self, event: Event) -> None:
        """Adds the event to the tally, and writes a line if one is due."""
        self.tally.add(event)
        if isinstance(event, StudyStarted):
            self.next = self.tally.clock() + FIRST
        if not isinstance(event, RoundFinished | RunFinished):
            return
        if self._is_end(event):
            self.ended = True
            self.next = float("inf")
        elif self.tally.clock() >= self.next:
            self.next = self.tally.clock() + THEN
        else:
            return
        self._write(self.tally.text())

    def _is_end(self, event: Event) -> bool:
        """Whether all is done, for the first time, after long enough for a line."""
        if self.ended or not isinstance(event, RunFinished):
            return False
        all_runs = len(self.tally.ended) == self.tally.runs
        all_rounds = self.tally.done >= self.tally.rounds
        return all_runs and all_rounds and self.tally.elapsed >= FIRST

    def _write(self, line: str) -> None:
        if sys.stderr is not None:  # as it is in a program without a console
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
