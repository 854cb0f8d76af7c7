"""Progress of a study on stderr.

It is a live comparison in a terminal, a line now and then elsewhere, and nothing with --quiet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tacit.cli.silence import Silence
from tacit.core.events import Event, RoundFinished, RunFinished, StudyStarted, Warned

FIRST = 2.0  # seconds to the first line
THEN = 10.0  # seconds from one line to the next


class Lines(Silence):
    """A line after two seconds, then one about every ten.

    A study that took so long also gets one at its end.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.next = float("inf")
        self.ended = False  # whether the line at the end has been printed

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            print(f"note: {event.text}", file=sys.stderr, flush=True)
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
        print(self.tally.text(), file=sys.stderr, flush=True)

    def _is_end(self, event: Event) -> bool:
        """Whether all is done, for the first time, after long enough for a line."""
        if self.ended or not isinstance(event, RunFinished):
            return False
        all_runs = len(self.tally.ended) == self.tally.runs
        all_rounds = self.tally.done >= self.tally.rounds
        return all_runs and all_rounds and self.tally.elapsed >= FIRST


def display(*, quiet: bool) -> Silence:
    """The display that suits where stderr leads."""
    if quiet:
        return Silence()
    if not sys.stderr.isatty():
        return Lines()
    from tacit.cli.live_table import LiveTable

    return LiveTable()
