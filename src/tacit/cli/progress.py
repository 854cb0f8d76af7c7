"""Progress on stderr: a live comparison in a terminal, a line now and then elsewhere, nothing with --quiet."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tacit.cli.silence import Silence
from tacit.core.events import Event, RoundFinished, RunFinished, StudyStarted, Warned

FIRST, THEN = 2.0, 10.0  # seconds to the first line, and from one to the next


class Lines(Silence):
    """A line after two seconds, then one about every ten, and one at the end of a study that took so long."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.next, self.ended = float("inf"), False

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            print(f"note: {event.text}", file=sys.stderr, flush=True)
        self.tally.add(event)
        if isinstance(event, StudyStarted):
            self.next = self.tally.clock() + FIRST
        if not isinstance(event, RoundFinished | RunFinished):
            return
        last = len(self.tally.ended) == self.tally.runs and isinstance(event, RunFinished)
        ending = (
            last
            and not self.ended
            and self.tally.done >= self.tally.rounds
            and self.tally.elapsed >= FIRST
        )
        if ending or self.tally.clock() >= self.next:
            self.next = float("inf") if ending else self.tally.clock() + THEN
            self.ended = self.ended or ending
            print(self.tally.text(), file=sys.stderr, flush=True)


def display(*, quiet: bool) -> Silence:
    """The display that suits where stderr leads."""
    if quiet:
        return Silence()
    if not sys.stderr.isatty():
        return Lines()
    from tacit.cli.live_table import LiveTable

    return LiveTable()
