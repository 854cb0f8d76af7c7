"""Progress on stderr of work whose amount is known.

It is a bar with a rate in a terminal, and a line now and then elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from tacit.core.events import FIRST, THEN, Advanced, Event, Noted, Warned

INSTANT = 1e-9  # seconds or steps per second; keeps divisions from zero


class Steps:
    """Listens, and prints; with `quiet` it prints warnings only."""

    def __init__(self, *, quiet: bool, clock: Callable[[], float] = time.monotonic) -> None:
        self.quiet = quiet
        self.clock = clock
        self.start: float | None = None
        self.next = 0.0  # when the next line is due
        self.before = 0  # how much was done at the last event
        self.bar: Any = None
        self.task: Any = None

    def on_event(self, event: Event) -> None:
        if isinstance(event, Warned) or (isinstance(event, Noted) and not self.quiet):
            self._say(f"note: {event.text}")
        elif isinstance(event, Advanced) and not self.quiet:
            self._advance(event)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Within it, the terminal is free for a question."""
        if self.bar is not None:
            self.bar.stop()
        yield
        if self.bar is not None:
            self.bar.start()

    def _advance(self, event: Advanced) -> None:
        now = self.clock()
        if self.start is None or event.done < self.before:  # the first, or starting over
            self.start = now
            self.next = now + FIRST
        self.before = event.done
        elapsed = now - self.start
        rate = event.done / max(elapsed, INSTANT)
        speed = ""
        if elapsed >= FIRST:  # the first events say little of the rate
            speed = f"{rate:,.0f} per second"
        if self.bar is not None:
            self._move_bar(event, speed)
        elif now >= self.next:
            self.next = now + THEN
            left = (event.total - event.done) / max(rate, INSTANT)
            amount = f"{event.done:,} of {event.total:,} {event.what}"
            self._say(f"{amount}, {speed}, {left:.0f} s left")

    def _move_bar(self, event: Advanced, speed: str) -> None:
        self.bar.update(
            self.task,
            description=event.what,
            completed=event.done,
            total=event.total,
            rate=speed,
        )

    def _say(self, text: str) -> None:
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def __enter__(self) -> Self:
        if not self.quiet and sys.stderr.isatty():
            self.bar = _make_bar()
            self.task = self.bar.add_task("waiting", total=None, rate="")
            self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.stop()
            self.bar = None


def _make_bar() -> Any:
    """What is done, a bar, how much of it, the rate, and the time left."""
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
