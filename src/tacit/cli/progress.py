"""Progress of a study on stderr.

It is a live comparison in a terminal, a line now and then elsewhere, and nothing with --quiet.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from tacit.cli.silence import Silence
from tacit.core.events import Event, Warned
from tacit.report.progress_lines import ProgressLines


class Lines(Silence):
    """Notes, and a line of progress now and then."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(clock)
        self.progress = ProgressLines(self.tally)

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned):
            print(f"note: {event.text}", file=sys.stderr, flush=True)
        self.progress.on_event(event)


def display(*, quiet: bool) -> Silence:
    """The display that suits where stderr leads."""
    if quiet:
        return Silence()
    if not sys.stderr.isatty():
        return Lines()
    from tacit.cli.live_table import LiveTable

    return LiveTable()
